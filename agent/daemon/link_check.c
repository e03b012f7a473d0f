#include "daemon/link_check.h"

#include "daemon/link.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Types of the binary protocol. */
enum {
    T_STOP_ = 0,
    T_BOOL_ = 2,
    T_BYTE_ = 3,
    T_DOUBLE_ = 4,
    T_I16_ = 6,
    T_I32_ = 8,
    T_I64_ = 10,
    T_STRING_ = 11,
    T_STRUCT_ = 12,
    T_MAP_ = 13,
    T_SET_ = 14,
    T_LIST_ = 15
};

enum { DEPTH_MAX = 16, REASON_MAX = RS_LINK_TEXT_MAX, CALL_NAME_MAX = 32, MESSAGE_ONEWAY = 4 };

typedef struct shape shape;

typedef struct {
    int16_t id;
    uint8_t type;
    bool required;
    size_t max;           /* bytes of a text, elements of a list, highest value of an enumeration (from 1); 0: any */
    const shape *element; /* shape of a struct, or of a list's structs; NULL: a list's texts */
} field;

struct shape {
    const char *name;
    size_t count;
    const field *fields;
};

static const shape binary;  /* as the element of a T_STRING_: bytes that need not be text */
static const shape numbers; /* as the element of a T_LIST_: 32-bit numbers */

#define SHAPE(name, fields) \
    { name, sizeof(fields) / sizeof((fields)[0]), fields }

static const field server_address_fields[] = {
    {1, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {2, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {3, T_I32_, true, 0, NULL},
};
static const shape server_address = SHAPE("ServerAddress", server_address_fields);

static const field path_response_fields[] = {
    {1, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {2, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {3, T_I32_, true, 0, NULL},
    {4, T_STRING_, true, REASON_MAX, NULL},
    {5, T_I64_, false, 0, NULL},
    {6, T_I32_, false, 0, NULL},
    {7, T_STRING_, false, RS_LINK_NAME_MAX, NULL},
    {8, T_I32_, false, 0, NULL},
    {9, T_I64_, false, 0, NULL},
    {10, T_I64_, false, 0, NULL},
    {11, T_I32_, false, 0, NULL},
    {12, T_I32_, false, 0, NULL},
    {13, T_LIST_, false, RS_LINK_RECEIVERS_MAX, &server_address},
    {14, T_I32_, false, 0, NULL},
    {15, T_LIST_, false, RS_LINK_RECEIVERS_MAX, NULL},
};
static const shape path_response = SHAPE("PathResponse", path_response_fields);

static const field welcome_fields[] = {
    {1, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {2, T_I64_, true, 0, NULL},
};
static const field goodbye_fields[] = {{1, T_STRING_, true, REASON_MAX, NULL}};
static const field response_fields[] = {{1, T_STRUCT_, true, 0, &path_response}};
static const field moved_fields[] = {
    {1, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {2, T_I32_, true, 2, NULL},
    {3, T_STRING_, true, REASON_MAX, NULL},
};
static const field failed_fields[] = {
    {1, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {2, T_STRING_, true, REASON_MAX, NULL},
};

static const field light_fields[] = {{1, T_STRING_, true, RS_LINK_NAME_MAX, NULL}};

static const field probe_order_fields[] = {
    {1, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {2, T_I32_, true, 4, NULL},
    {3, T_I32_, true, 0, NULL},
    {4, T_STRING_, false, RS_LINK_NAME_MAX, NULL},
    {5, T_I32_, false, 0, NULL},
    {6, T_I32_, false, 0, NULL},
    {7, T_I32_, false, 0, NULL},
    {8, T_LIST_, false, RS_LINK_RECEIVERS_MAX, &server_address},
};
static const shape probe_order = SHAPE("ProbeOrder", probe_order_fields);
static const field probe_fields[] = {{1, T_STRUCT_, true, 0, &probe_order}};

static const field overlay_view_fields[] = {
    {1, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {2, T_I64_, true, 0, NULL},
    {3, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {4, T_STRING_, true, 16, &binary},
    {5, T_I64_, true, 0, NULL},
    {6, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {7, T_STRING_, false, RS_LINK_NAME_MAX, NULL},
    {8, T_STRING_, false, RS_LINK_NAME_MAX, NULL},
    {9, T_STRING_, false, RS_LINK_NAME_MAX, NULL},
    {10, T_STRING_, false, RS_LINK_NAME_MAX, NULL},
    {11, T_STRING_, false, RS_LINK_NAME_MAX, NULL},
    {12, T_STRING_, false, RS_LINK_NAME_MAX, NULL},
    {13, T_LIST_, true, RS_LINK_RECEIVERS_MAX, NULL},
    {14, T_LIST_, true, RS_LINK_RECEIVERS_MAX + 1, &server_address},
};
static const shape overlay_view = SHAPE("OverlayView", overlay_view_fields);
static const field view_fields[] = {{1, T_STRUCT_, true, 0, &overlay_view}};

static const field group_options_fields[] = {
    {1, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {2, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {3, T_I32_, true, 0, NULL},
    {4, T_I32_, true, 0, NULL},
    {5, T_I32_, true, 0, NULL},
};
static const shape group_options = SHAPE("GroupOptions", group_options_fields);

static const field group_facts_fields[] = {
    {1, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {2, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {3, T_I32_, true, 0, NULL},
    {4, T_STRUCT_, true, 0, &group_options},
};
static const shape group_facts = SHAPE("GroupFacts", group_facts_fields);

static const field group_peer_fields[] = {
    {1, T_I32_, true, 0, NULL},
    {2, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {3, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {4, T_I32_, true, 0, NULL},
    {5, T_I64_, true, 0, NULL},
};
static const shape group_peer = SHAPE("GroupPeer", group_peer_fields);

static const field one_group_view_fields[] = {
    {1, T_I32_, true, 0, NULL},
    {2, T_I64_, true, 0, NULL},
    {3, T_I64_, false, 0, NULL},
    {4, T_STRUCT_, false, 0, &group_facts},
    {5, T_LIST_, true, RS_LINK_GROUP_PEERS_MAX, &numbers},
    {6, T_LIST_, true, RS_LINK_GROUP_PEERS_MAX, &numbers},
    {7, T_LIST_, true, RS_LINK_GROUP_PEERS_MAX, &numbers},
};
static const shape one_group_view = SHAPE("GroupView", one_group_view_fields);
static const field group_view_fields[] = {
    {1, T_LIST_, true, RS_LINK_GROUP_PEERS_MAX, &group_peer},
    {2, T_LIST_, true, RS_LINK_GROUP_PEERS_MAX, &one_group_view},
};
static const field group_refused_fields[] = {
    {1, T_STRING_, true, RS_LINK_NAME_MAX, NULL},
    {2, T_STRING_, true, REASON_MAX, NULL},
};

/* In the order of rs_link_call, without RS_LINK_CALL_UNKNOWN. */
static const shape calls[RS_LINK_CALL_UNKNOWN] = {
    SHAPE("welcome", welcome_fields),       SHAPE("goodbye", goodbye_fields),
    SHAPE("response", response_fields),     SHAPE("moved", moved_fields),
    SHAPE("failed", failed_fields),         SHAPE("light", light_fields),
    SHAPE("probe", probe_fields),           SHAPE("view", view_fields),
    SHAPE("group_view", group_view_fields), SHAPE("group_refused", group_refused_fields),
};

typedef struct {
    const uint8_t *start;
    const uint8_t *at;
    const uint8_t *end;
    char *words;
    size_t words_size;
} reader;

static bool fail(reader *r, const char *what, const char *where) {
    snprintf(r->words, r->words_size, "%s%s%s at byte %zu of %zu", what, where[0] ? " in " : "", where,
             (size_t)(r->at - r->start), (size_t)(r->end - r->start));
    return false;
}

static size_t left(const reader *r) {
    return (size_t)(r->end - r->at);
}

static bool take_u8(reader *r, uint8_t *out) {
    if (left(r) < 1)
        return fail(r, "frame ends early", "");
    *out = *r->at++;
    return true;
}

static bool take_i16(reader *r, int16_t *out) {
    if (left(r) < 2)
        return fail(r, "frame ends early", "");
    *out = (int16_t)(uint16_t)((unsigned)r->at[0] << 8 | r->at[1]);
    r->at += 2;
    return true;
}

static bool take_u32(reader *r, uint32_t *out) {
    if (left(r) < 4)
        return fail(r, "frame ends early", "");
    *out = (uint32_t)r->at[0] << 24 | (uint32_t)r->at[1] << 16 | (uint32_t)r->at[2] << 8 | r->at[3];
    r->at += 4;
    return true;
}

static bool skip_bytes(reader *r, size_t count) {
    if (left(r) < count)
        return fail(r, "length beyond the frame", "");
    r->at += count;
    return true;
}

/* Least bytes a value of the type takes; 0 = no such type. */
static size_t least_size(uint8_t type) {
    switch (type) {
    case T_BOOL_:
    case T_BYTE_:
    case T_STRUCT_:
        return 1;
    case T_I16_:
        return 2;
    case T_I32_:
    case T_STRING_:
        return 4;
    case T_I64_:
    case T_DOUBLE_:
        return 8;
    case T_SET_:
    case T_LIST_:
        return 5;
    case T_MAP_:
        return 6;
    default:
        return 0;
    }
}

static bool skip_value(reader *r, uint8_t type, unsigned depth);

/* `pair`: the second type of a map, or 0. */
static bool skip_elements(reader *r, uint8_t type, uint8_t pair, unsigned depth) {
    uint32_t count;
    if (!take_u32(r, &count))
        return false;
    size_t least = least_size(type) + (pair ? least_size(pair) : 0);
    if (count == 0)
        return true;
    if (least_size(type) == 0 || (pair && least_size(pair) == 0))
        return fail(r, "unknown element type", "");
    if (count > left(r) / least)
        return fail(r, "more elements than the frame can hold", "");
    for (uint32_t i = 0; i < count; i++)
        if (!skip_value(r, type, depth + 1) || (pair && !skip_value(r, pair, depth + 1)))
            return false;
    return true;
}

static bool skip_struct(reader *r, unsigned depth) {
    for (;;) {
        uint8_t type;
        int16_t id;
        if (!take_u8(r, &type))
            return false;
        if (type == T_STOP_)
            return true;
        if (!take_i16(r, &id) || !skip_value(r, type, depth + 1))
            return false;
    }
}

/* A value nobody here knows. */
static bool skip_value(reader *r, uint8_t type, unsigned depth) {
    uint8_t element, pair = 0;
    uint32_t length;
    if (depth > DEPTH_MAX)
        return fail(r, "nested too deep", "");
    switch (type) {
    case T_STRING_:
        return take_u32(r, &length) && skip_bytes(r, length);
    case T_STRUCT_:
        return skip_struct(r, depth);
    case T_MAP_:
        return take_u8(r, &element) && take_u8(r, &pair) && skip_elements(r, element, pair ? pair : 1, depth);
    case T_SET_:
    case T_LIST_:
        return take_u8(r, &element) && skip_elements(r, element, 0, depth);
    default:
        if (least_size(type) == 0)
            return fail(r, "unknown type", "");
        return skip_bytes(r, least_size(type));
    }
}

/* Bytes of the UTF-8 sequence at `s`, 0 if it is not one. */
static size_t utf8_sequence(const uint8_t *s, size_t length) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : (s[0] & 0xf0) == 0xe0       ? 3
               : (s[0] & 0xf8) == 0xf0       ? 4
                                             : 0;
    if (n == 0 || n > length)
        return 0;
    if (n == 1)
        return 1;
    uint32_t point = s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (s[i] & 0x3fu);
    }
    return point >= least[n] && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff) ? n : 0;
}

bool rs_link_text_ok(const uint8_t *text, size_t length, size_t max) {
    if (length > max)
        return false;
    for (size_t i = 0; i < length;) {
        size_t n = utf8_sequence(text + i, length - i);
        if (n == 0 || text[i] == 0)
            return false;
        i += n;
    }
    return true;
}

static bool check_text(reader *r, size_t max, const shape *kind, const char *where) {
    uint32_t length;
    if (!take_u32(r, &length))
        return false;
    if (length > left(r))
        return fail(r, "length beyond the frame", where);
    if (length > max)
        return fail(r, "text too long", where);
    if (kind != &binary && !rs_link_text_ok(r->at, length, max))
        return fail(r, "text that is not UTF-8", where);
    r->at += length;
    return true;
}

static bool check_struct(reader *r, const shape *s, unsigned depth);

static bool check_list(reader *r, const field *f, const char *where, unsigned depth) {
    uint8_t element;
    uint32_t count;
    if (!take_u8(r, &element) || !take_u32(r, &count))
        return false;
    if (element != (f->element == &numbers ? T_I32_ : f->element ? T_STRUCT_ : T_STRING_))
        return fail(r, "wrong element type", where);
    if (count > f->max || count > left(r))
        return fail(r, "too many elements", where);
    if (f->element == &numbers)
        return skip_bytes(r, (size_t)count * 4);
    for (uint32_t i = 0; i < count; i++)
        if (f->element ? !check_struct(r, f->element, depth + 1) : !check_text(r, RS_LINK_NAME_MAX, NULL, where))
            return false;
    return true;
}

static bool check_enumeration(reader *r, size_t max, const char *where) {
    uint32_t value;
    if (!take_u32(r, &value))
        return false;
    return (value >= 1 && value <= max) || fail(r, "value out of its enumeration", where);
}

static bool check_field(reader *r, const field *f, const char *where, unsigned depth) {
    switch (f->type) {
    case T_STRING_:
        return check_text(r, f->max, f->element, where);
    case T_STRUCT_:
        return check_struct(r, f->element, depth + 1);
    case T_LIST_:
        return check_list(r, f, where, depth);
    case T_I32_:
        if (f->max > 0)
            return check_enumeration(r, f->max, where);
        return skip_bytes(r, 4);
    default:
        return skip_bytes(r, least_size(f->type));
    }
}

static bool check_struct(reader *r, const shape *s, unsigned depth) {
    uint32_t seen = 0;
    for (;;) {
        uint8_t type;
        int16_t id;
        if (!take_u8(r, &type))
            return false;
        if (type == T_STOP_)
            break;
        if (!take_i16(r, &id))
            return false;
        size_t i = 0;
        while (i < s->count && s->fields[i].id != id)
            i++;
        if (i == s->count) {
            if (!skip_value(r, type, depth + 1))
                return false;
            continue;
        }
        if (s->fields[i].type != type)
            return fail(r, "field of a wrong type", s->name);
        if (seen & 1u << i)
            return fail(r, "field given twice", s->name);
        seen |= 1u << i;
        if (!check_field(r, &s->fields[i], s->name, depth))
            return false;
    }
    for (size_t i = 0; i < s->count; i++)
        if (s->fields[i].required && !(seen & 1u << i))
            return fail(r, "required field missing", s->name);
    return true;
}

/* Strict header: version 1, a oneway call. */
static bool check_header(reader *r, rs_link_call *call) {
    uint32_t version, length, sequence;
    if (!take_u32(r, &version))
        return false;
    if ((version & 0xffffff00u) != 0x80010000u)
        return fail(r, "not a strict binary-protocol message", "");
    if ((version & 0xffu) != MESSAGE_ONEWAY)
        return fail(r, "not a oneway call", "");
    if (!take_u32(r, &length))
        return false;
    if (length > CALL_NAME_MAX || length > left(r))
        return fail(r, "call name too long", "");
    size_t i = 0;
    while (i < RS_LINK_CALL_UNKNOWN && (strlen(calls[i].name) != length || memcmp(calls[i].name, r->at, length) != 0))
        i++;
    *call = (rs_link_call)i;
    r->at += length;
    return take_u32(r, &sequence);
}

bool rs_link_check(const uint8_t *frame, size_t length, rs_link_call *call, char *words, size_t words_size) {
    reader r = {.start = frame, .at = frame, .end = frame + length, .words = words, .words_size = words_size};
    if (length > RS_LINK_FRAME_MAX)
        return fail(&r, "frame too long", "");
    if (!check_header(&r, call))
        return false;
    bool unknown = *call == RS_LINK_CALL_UNKNOWN;
    if (!(unknown ? skip_struct(&r, 0) : check_struct(&r, &calls[*call], 0)))
        return false;
    return left(&r) == 0 || fail(&r, "bytes behind the call", unknown ? "" : calls[*call].name);
}
