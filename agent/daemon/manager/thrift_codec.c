#include "daemon/manager/thrift_codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Types that only unknown fields may have. */
enum { STOP = 0, BYTE = 3, DOUBLE = 4, I16 = 6, MAP = 13, SET = 14 };
enum { DEPTH_MAX = 16, CALL_NAME_MAX = 64, FIELDS_MAX = 32, MESSAGE_ONEWAY = 4, CHUNK = 4096 };

/* ---- texts ---- */

/* Bytes of the UTF-8 sequence at `s`, 0 if it is not one (RFC 3629). */
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

bool rs_thrift_text_ok(const uint8_t *text, size_t length, size_t max) {
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

/* ---- memory of one decoded call: chunks, freed together ---- */

struct rs_thrift_memory {
    rs_thrift_memory *next;
    size_t used, size;
    _Alignas(max_align_t) uint8_t bytes[];
};

static void *take(rs_thrift_memory **memory, size_t size) {
    size_t aligned = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (!*memory || (*memory)->size - (*memory)->used < aligned) {
        size_t room = aligned > CHUNK ? aligned : CHUNK;
        rs_thrift_memory *chunk = malloc(sizeof *chunk + room);
        if (!chunk)
            return NULL;
        chunk->next = *memory;
        chunk->used = 0;
        chunk->size = room;
        *memory = chunk;
    }
    void *taken = (*memory)->bytes + (*memory)->used;
    (*memory)->used += aligned;
    memset(taken, 0, size);
    return taken;
}

void rs_thrift_call_free(rs_thrift_call *call) {
    while (call->memory) {
        rs_thrift_memory *next = call->memory->next;
        free(call->memory);
        call->memory = next;
    }
    call->args = NULL;
}

/* ---- reading ---- */

typedef struct {
    const uint8_t *start;
    const uint8_t *at;
    const uint8_t *end;
    rs_thrift_memory **memory;
    char *text;
} reader;

static bool fail(reader *r, const char *what, const char *where) {
    snprintf(r->text, RS_THRIFT_TEXT_SIZE, "%s%s%s at byte %zu of %zu", what, where[0] ? " in " : "", where,
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

/* A big-endian number of `size` bytes. */
static bool take_number(reader *r, size_t size, uint64_t *out) {
    if (left(r) < size)
        return fail(r, "frame ends early", "");
    *out = 0;
    for (size_t i = 0; i < size; i++)
        *out = *out << 8 | *r->at++;
    return true;
}

static bool take_u32(reader *r, uint32_t *out) {
    uint64_t value;
    if (!take_number(r, 4, &value))
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool take_id(reader *r, int16_t *out) {
    uint64_t value;
    if (!take_number(r, 2, &value))
        return false;
    *out = (int16_t)(uint16_t)value;
    return true;
}

/* The head of a field; STOP has no number. */
static bool take_head(reader *r, uint8_t *type, int16_t *id) {
    return take_u8(r, type) && (*type == STOP || take_id(r, id));
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
    case RS_THRIFT_BOOL:
    case BYTE:
    case RS_THRIFT_STRUCT:
        return 1;
    case I16:
        return 2;
    case RS_THRIFT_I32:
    case RS_THRIFT_STRING:
        return 4;
    case RS_THRIFT_I64:
    case DOUBLE:
        return 8;
    case SET:
    case RS_THRIFT_LIST:
        return 5;
    case MAP:
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
    uint8_t type;
    int16_t id;
    do {
        if (!take_head(r, &type, &id) || (type != STOP && !skip_value(r, type, depth + 1)))
            return false;
    } while (type != STOP);
    return true;
}

/* A value nobody here knows. */
static bool skip_value(reader *r, uint8_t type, unsigned depth) {
    uint8_t element, pair = 0;
    uint32_t length;
    if (depth > DEPTH_MAX)
        return fail(r, "nested too deep", "");
    switch (type) {
    case RS_THRIFT_STRING:
        return take_u32(r, &length) && skip_bytes(r, length);
    case RS_THRIFT_STRUCT:
        return skip_struct(r, depth);
    case MAP:
        return take_u8(r, &element) && take_u8(r, &pair) && skip_elements(r, element, pair ? pair : 1, depth);
    case SET:
    case RS_THRIFT_LIST:
        return take_u8(r, &element) && skip_elements(r, element, 0, depth);
    default:
        if (least_size(type) == 0)
            return fail(r, "unknown type", "");
        return skip_bytes(r, least_size(type));
    }
}

/* A text's or a binary's bytes, checked, not copied. */
static bool read_bytes(reader *r, uint32_t max, bool is_binary, const char *where, rs_thrift_bytes *out) {
    uint32_t length;
    if (!take_u32(r, &length))
        return false;
    if (length > left(r))
        return fail(r, "length beyond the frame", where);
    if (max && length > max)
        return fail(r, "text too long", where);
    if (!is_binary && !rs_thrift_text_ok(r->at, length, length))
        return fail(r, "text that is not UTF-8", where);
    *out = (rs_thrift_bytes){r->at, length};
    r->at += length;
    return true;
}

static bool read_text(reader *r, uint32_t max, const char *where, const char **out) {
    rs_thrift_bytes found;
    if (!read_bytes(r, max, false, where, &found))
        return false;
    char *copy = take(r->memory, found.length + 1);
    if (!copy)
        return fail(r, "out of memory", where);
    memcpy(copy, found.bytes, found.length);
    *out = copy;
    return true;
}

static bool read_struct(reader *r, const rs_thrift_struct *shape, void *out, unsigned depth);

static size_t element_size(const rs_thrift_field *f) {
    return f->element == RS_THRIFT_I32 ? sizeof(int32_t) : f->shape ? f->shape->size : sizeof(const char *);
}

static bool read_list(reader *r, const rs_thrift_field *f, const char *where, rs_thrift_list *out, unsigned depth) {
    uint8_t element;
    uint32_t count;
    if (!take_u8(r, &element) || !take_u32(r, &count))
        return false;
    if (element != f->element)
        return fail(r, "wrong element type", where);
    if ((f->max && count > f->max) || count > left(r) / least_size(element))
        return fail(r, "too many elements", where);
    size_t size = element_size(f);
    uint8_t *items = count ? take(r->memory, count * size) : NULL;
    if (count && !items)
        return fail(r, "out of memory", where);
    for (uint32_t i = 0; i < count; i++) {
        void *item = items + i * size;
        uint32_t number;
        if (f->shape ? !read_struct(r, f->shape, item, depth + 1)
                     : f->element == RS_THRIFT_STRING && !read_text(r, f->text_max, where, (const char **)item))
            return false;
        if (f->element == RS_THRIFT_I32) {
            if (!take_u32(r, &number))
                return false;
            *(int32_t *)item = (int32_t)number;
        }
    }
    *out = (rs_thrift_list){items, count};
    return true;
}

static bool read_i32(reader *r, const rs_thrift_field *f, const char *where, int32_t *out) {
    uint32_t value;
    if (!take_u32(r, &value))
        return false;
    if (f->max > 0 && (value < 1 || value > f->max))
        return fail(r, "value out of its enumeration", where);
    *out = (int32_t)value;
    return true;
}

static bool read_nested(reader *r, const rs_thrift_field *f, void *value, unsigned depth) {
    if (f->required)
        return read_struct(r, f->shape, value, depth + 1);
    void *made = take(r->memory, f->shape->size);
    if (!made)
        return fail(r, "out of memory", f->shape->name);
    *(const void **)value = made;
    return read_struct(r, f->shape, made, depth + 1);
}

static bool read_field(reader *r, const rs_thrift_field *f, const char *where, uint8_t *in, unsigned depth) {
    void *value = in + f->offset;
    uint64_t number;
    uint8_t one;
    if (f->has != SIZE_MAX)
        *(bool *)(in + f->has) = true;
    switch (f->type) {
    case RS_THRIFT_STRING:
        return f->is_binary ? read_bytes(r, f->max, true, where, value) : read_text(r, f->max, where, value);
    case RS_THRIFT_STRUCT:
        return read_nested(r, f, value, depth);
    case RS_THRIFT_LIST:
        return read_list(r, f, where, value, depth);
    case RS_THRIFT_I32:
        return read_i32(r, f, where, value);
    case RS_THRIFT_I64:
        if (!take_number(r, 8, &number))
            return false;
        *(int64_t *)value = (int64_t)number;
        return true;
    default:
        if (!take_u8(r, &one))
            return false;
        *(bool *)value = one != 0;
        return true;
    }
}

static bool read_struct(reader *r, const rs_thrift_struct *shape, void *out, unsigned depth) {
    uint32_t seen = 0;
    if (depth > DEPTH_MAX)
        return fail(r, "nested too deep", shape->name);
    for (;;) {
        uint8_t type;
        int16_t id;
        if (!take_head(r, &type, &id))
            return false;
        if (type == STOP)
            break;
        size_t i = 0;
        while (i < shape->count && shape->fields[i].id != id)
            i++;
        if (i == shape->count) {
            if (!skip_value(r, type, depth + 1))
                return false;
            continue;
        }
        if (shape->fields[i].type != type)
            return fail(r, "field of a wrong type", shape->name);
        if (seen & 1u << i)
            return fail(r, "field given twice", shape->name);
        seen |= 1u << i;
        if (!read_field(r, &shape->fields[i], shape->name, out, depth))
            return false;
    }
    for (size_t i = 0; i < shape->count; i++)
        if (shape->fields[i].required && !(seen & 1u << i))
            return fail(r, "required field missing", shape->name);
    return true;
}

/* Strict header: version 1, a oneway call. */
static bool read_header(reader *r, const rs_thrift_service *service, uint32_t *call) {
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
    *call = 0;
    while (*call < service->count &&
           (strlen(service->calls[*call].name) != length || memcmp(service->calls[*call].name, r->at, length) != 0))
        ++*call;
    r->at += length;
    return take_u32(r, &sequence);
}

static bool read_call(reader *r, const rs_thrift_service *service, rs_thrift_call *out) {
    if (!read_header(r, service, &out->call))
        return false;
    if (out->call == service->count) {
        if (!skip_struct(r, 0))
            return false;
    } else {
        const rs_thrift_struct *shape = &service->calls[out->call];
        void *args = take(r->memory, shape->size);
        if (!args)
            return fail(r, "out of memory", shape->name);
        out->args = args;
        if (!read_struct(r, shape, args, 0))
            return false;
    }
    return r->at == r->end || fail(r, "bytes behind the end", "");
}

bool rs_thrift_decode(const rs_thrift_service *service, const uint8_t *frame, size_t length, rs_thrift_call *out,
                      char text[RS_THRIFT_TEXT_SIZE]) {
    *out = (rs_thrift_call){0};
    reader r = {frame, frame, frame + length, &out->memory, text};
    if (read_call(&r, service, out))
        return true;
    rs_thrift_call_free(out);
    return false;
}

/* ---- writing: once to count and check, once to write ---- */

typedef struct {
    uint8_t *at; /* NULL: only counted */
    size_t length;
    bool invalid;
} writer;

static void put(writer *w, const void *bytes, size_t length) {
    if (w->at && length > 0) {
        memcpy(w->at, bytes, length);
        w->at += length;
    }
    w->length += length;
}

static void put_number(writer *w, size_t size, uint64_t value) {
    uint8_t bytes[8];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
    put(w, bytes, size);
}

static void put_bytes(writer *w, const void *bytes, size_t length) {
    put_number(w, 4, length);
    put(w, bytes, length);
}

static void put_text(writer *w, const char *text, uint32_t max) {
    size_t bound = max ? max : UINT32_MAX;
    size_t length = text ? strnlen(text, bound + 1) : 0;
    if (!text || !rs_thrift_text_ok((const uint8_t *)text, length, bound)) {
        w->invalid = true;
        return;
    }
    put_bytes(w, text, length);
}

static void put_struct(writer *w, const rs_thrift_struct *shape, const void *value);

static void put_list(writer *w, const rs_thrift_field *f, const rs_thrift_list *list) {
    if (f->max && list->count > f->max) {
        w->invalid = true;
        return;
    }
    put_number(w, 1, f->element);
    put_number(w, 4, list->count);
    for (uint32_t i = 0; i < list->count && !w->invalid; i++) {
        const void *item = (const uint8_t *)list->items + i * element_size(f);
        if (f->shape)
            put_struct(w, f->shape, item);
        else if (f->element == RS_THRIFT_I32)
            put_number(w, 4, (uint32_t) * (const int32_t *)item);
        else
            put_text(w, *(const char *const *)item, f->text_max);
    }
}

static void put_i32(writer *w, const rs_thrift_field *f, int32_t value) {
    if (f->max && (value < 1 || (uint32_t)value > f->max))
        w->invalid = true;
    put_number(w, 4, (uint32_t)value);
}

static void put_string(writer *w, const rs_thrift_field *f, const void *value) {
    const rs_thrift_bytes *bytes = value;
    if (!f->is_binary)
        put_text(w, *(const char *const *)value, f->max);
    else if (f->max && bytes->length > f->max)
        w->invalid = true;
    else
        put_bytes(w, bytes->bytes, bytes->length);
}

static void put_value(writer *w, const rs_thrift_field *f, const void *value) {
    switch (f->type) {
    case RS_THRIFT_STRING:
        put_string(w, f, value);
        break;
    case RS_THRIFT_STRUCT:
        put_struct(w, f->shape, f->required ? value : *(const void *const *)value);
        break;
    case RS_THRIFT_LIST:
        put_list(w, f, value);
        break;
    case RS_THRIFT_I32:
        put_i32(w, f, *(const int32_t *)value);
        break;
    case RS_THRIFT_I64:
        put_number(w, 8, (uint64_t) * (const int64_t *)value);
        break;
    default:
        put_number(w, 1, *(const bool *)value);
    }
}

/* An optional field is there if it says so, or if its pointer does. */
static bool is_there(const rs_thrift_field *f, const uint8_t *in) {
    if (f->required)
        return true;
    if (f->has != SIZE_MAX)
        return *(const bool *)(in + f->has);
    return *(const void *const *)(in + f->offset) != NULL;
}

static void put_struct(writer *w, const rs_thrift_struct *shape, const void *value) {
    const uint8_t *in = value;
    for (size_t i = 0; i < shape->count && !w->invalid; i++) {
        const rs_thrift_field *f = &shape->fields[i];
        if (!is_there(f, in))
            continue;
        put_number(w, 1, f->type);
        put_number(w, 2, (uint16_t)f->id);
        put_value(w, f, in + f->offset);
    }
    put_number(w, 1, STOP);
}

static void put_call(writer *w, const rs_thrift_struct *call, const void *args) {
    put_number(w, 4, 0x80010000u | MESSAGE_ONEWAY);
    put_bytes(w, call->name, strlen(call->name));
    put_number(w, 4, 0);
    put_struct(w, call, args);
}

rs_thrift_status rs_thrift_encode(const rs_thrift_service *service, uint32_t call, const void *args, size_t frame_max,
                                  uint8_t **bytes, size_t *length) {
    writer counted = {0};
    put_call(&counted, &service->calls[call], args);
    if (counted.invalid)
        return RS_THRIFT_INVALID;
    if (counted.length > frame_max || counted.length > UINT32_MAX)
        return RS_THRIFT_TOO_LONG;
    uint8_t *made = malloc(4 + counted.length);
    if (!made)
        return RS_THRIFT_NO_MEMORY;
    writer w = {.at = made};
    put_number(&w, 4, counted.length);
    put_call(&w, &service->calls[call], args);
    *bytes = made;
    *length = 4 + counted.length;
    return RS_THRIFT_OK;
}

size_t rs_thrift_size(const rs_thrift_struct *shape, const void *value) {
    writer counted = {0};
    put_struct(&counted, shape, value);
    return counted.invalid ? 0 : counted.length;
}
