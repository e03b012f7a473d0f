#include "core/base/wire.h"

#include <string.h>

#include "core/base/bytes.h"

#define CONTROL_MAX 508 /* length field of anything but PTCH_DATA */

/* A cursor that never leaves its buffer; once it would, `bad` stays set and reads give 0. */
typedef struct {
    uint8_t *write;
    const uint8_t *read;
    size_t at, size;
    bool bad;
} cursor;

static bool room(cursor *c, size_t bytes) {
    if (c->bad || c->size - c->at < bytes)
        c->bad = true;
    return !c->bad;
}

static void put(cursor *c, uint64_t value, size_t bytes) {
    if (!room(c, bytes))
        return;
    for (size_t i = 0; i < bytes; i++)
        c->write[c->at++] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(cursor *c, size_t bytes) {
    uint64_t value = 0;
    if (!room(c, bytes))
        return 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)c->read[c->at++] << (8 * i);
    return value;
}

static void put_bytes(cursor *c, const void *from, size_t bytes) {
    if (!room(c, bytes))
        return;
    memcpy(c->write + c->at, from, bytes);
    c->at += bytes;
}

static void get_bytes(cursor *c, void *to, size_t bytes) {
    if (!room(c, bytes))
        return;
    memcpy(to, c->read + c->at, bytes);
    c->at += bytes;
}

void rs_wire_encode_data(const rs_data_header *h, uint8_t out[RS_DATA_HEADER]) {
    cursor c = {.write = out, .size = RS_DATA_HEADER};
    put(&c, RS_DATA_MAGIC, 2);
    put(&c, RS_WIRE_VERSION, 1);
    put(&c, h->flags, 1);
    put(&c, h->session, 3);
    put(&c, h->engine, 1);
    put(&c, h->nonce, 8);
    put(&c, h->sn, 8);
    put(&c, h->aux, 8);
}

bool rs_wire_is_message_data(const uint8_t *bytes, size_t length) {
    cursor c = {.read = bytes, .size = length};
    if (length <= RS_MESSAGES_KIND_AT || get(&c, 2) != RS_MESSAGES_MAGIC)
        return false;
    return bytes[RS_MESSAGES_KIND_AT] == RS_MESSAGES_KIND_DATA || bytes[RS_MESSAGES_KIND_AT] == RS_MESSAGES_KIND_REGION;
}

bool rs_wire_decode_data(const uint8_t *bytes, size_t length, rs_data_header *h) {
    cursor c = {.read = bytes, .size = length};
    if (length != RS_DATA_HEADER || get(&c, 2) != RS_DATA_MAGIC || get(&c, 1) != RS_WIRE_VERSION)
        return false;
    h->flags = (uint8_t)get(&c, 1);
    h->session = (uint32_t)get(&c, 3);
    h->engine = (uint8_t)get(&c, 1);
    h->nonce = get(&c, 8);
    h->sn = get(&c, 8);
    h->aux = get(&c, 8);
    if ((h->flags & ~(RS_DATA_FIRST | RS_DATA_ATTEMPT | RS_DATA_REPORT | RS_DATA_LIMIT)) ||
        h->engine >= RS_ENGINES_MOST)
        return false;
    int meanings = ((h->flags & RS_DATA_FIRST) != 0) + ((h->flags & RS_DATA_LIMIT) != 0);
    return meanings == 1 || (meanings == 0 && h->aux == 0);
}

bool rs_wire_nonce(const uint8_t *bytes, size_t length, uint64_t *nonce) {
    cursor c = {.read = bytes, .at = 8, .size = length};
    *nonce = length > 8 ? get(&c, 8) : 0;
    return *nonce != 0 && !c.bad;
}

int rs_wire_version(const uint8_t *bytes, size_t have) {
    return have > 2 && bytes[1] == RS_DATA_MAGIC >> 8 && bytes[0] == (RS_DATA_MAGIC & 0xff) ? bytes[2] : -1;
}

int rs_wire_datagram(const uint8_t *bytes, size_t length, size_t *header_length) {
    if (length < 4)
        return -1;
    uint64_t magic = rs_le_get(bytes, 2);
    bool known = magic == RS_ACK_MAGIC || magic == RS_REPORT_MAGIC || magic == RS_WAN_STATUS_MAGIC;
    if (known && length <= RS_HEADER_MAX)
        *header_length = length;
    else if (magic == RS_DATA_MAGIC && !(bytes[3] & RS_DATA_REPAIR) && length >= RS_DATA_HEADER)
        *header_length = RS_DATA_HEADER;
    else
        return -1;
    return 1;
}

size_t rs_wire_data_header_length(const uint8_t *bytes, size_t have) {
    return have > 3 && (bytes[3] & RS_DATA_REPAIR) ? RS_REPAIR_HEADER : RS_DATA_HEADER;
}

uint8_t rs_wire_repair_engine(const uint8_t *header) {
    return header[7];
}

#define MEMBERS_NEAR 0x80u /* one byte per distance, else two */
#define DISTANCES 20       /* bytes of them */

static bool all_near(const rs_repair_header *h) {
    for (uint32_t i = 1; i < h->count; i++)
        if (h->member[i] - h->member[i - 1] > RS_REPAIR_NEAR)
            return false;
    return true;
}

void rs_wire_encode_repair(const rs_repair_header *h, uint8_t out[RS_REPAIR_HEADER]) {
    cursor c = {.write = out, .size = RS_REPAIR_HEADER};
    bool near = h->count > RS_REPAIR_SPARSE && all_near(h);
    size_t each = near ? 1 : 2;
    put(&c, RS_DATA_MAGIC, 2);
    put(&c, RS_WIRE_VERSION, 1);
    put(&c, RS_DATA_REPAIR | (h->mark ? RS_DATA_MARK : 0u) | (h->done ? RS_DATA_DONE : 0u), 1);
    put(&c, h->session, 3);
    put(&c, h->engine, 1);
    put(&c, h->nonce, 8);
    put(&c, h->count ? h->member[0] : 0, 8);
    put(&c, h->number, 3);
    put(&c, h->count | (near ? MEMBERS_NEAR : 0), 1);
    for (uint32_t i = 1; i <= DISTANCES / each; i++)
        put(&c, i < h->count ? h->member[i] - h->member[i - 1] : 0, each);
}

/* Members increase and do not overflow, so that whoever takes them needs to look at the last one only. */
static bool get_members(cursor *c, rs_repair_header *h, uint64_t first, bool near) {
    bool right = h->count <= (near ? RS_COMBINE_MAX : RS_REPAIR_SPARSE) && (!near || h->count > RS_REPAIR_SPARSE);
    right &= first < UINT64_MAX / 2 && (h->count > 0 || (h->mark && first == 0));
    size_t each = near ? 1 : 2;
    h->member[0] = first;
    for (uint32_t i = 1; i <= DISTANCES / each; i++) {
        uint64_t distance = get(c, each);
        right &= (distance > 0) == (i < h->count);
        h->member[i] = h->member[i - 1] + distance;
    }
    return right && !c->bad;
}

bool rs_wire_decode_repair(const uint8_t *bytes, size_t length, rs_repair_header *h) {
    cursor c = {.read = bytes, .size = length};
    if (length != RS_REPAIR_HEADER || get(&c, 2) != RS_DATA_MAGIC || get(&c, 1) != RS_WIRE_VERSION)
        return false;
    uint8_t flags = (uint8_t)get(&c, 1);
    if (!(flags & RS_DATA_REPAIR) || (flags & ~(RS_DATA_REPAIR | RS_DATA_MARK | RS_DATA_DONE)))
        return false;
    h->mark = flags & RS_DATA_MARK;
    h->done = flags & RS_DATA_DONE;
    h->session = (uint32_t)get(&c, 3);
    h->engine = (uint8_t)get(&c, 1);
    h->nonce = get(&c, 8);
    uint64_t first = get(&c, 8);
    h->number = (uint32_t)get(&c, 3);
    uint32_t shape = (uint32_t)get(&c, 1);
    h->count = shape & ~MEMBERS_NEAR;
    return h->number > 0 && h->engine < RS_ENGINES_MOST && get_members(&c, h, first, shape & MEMBERS_NEAR);
}

void rs_wire_cause_set(rs_wire_cause *cause, const char *text) {
    size_t length = text ? strnlen(text, RS_CAUSE_MAX - 1) : 0;
    memset(cause->text, 0, sizeof cause->text);
    if (length)
        memcpy(cause->text, text, length);
    cause->length = (uint16_t)length;
}

static void put_cause(cursor *c, const rs_wire_cause *cause) {
    if (cause->length >= RS_CAUSE_MAX) {
        c->bad = true;
        return;
    }
    put(c, cause->length, 2);
    put_bytes(c, cause->text, cause->length);
}

static void get_cause(cursor *c, rs_wire_cause *cause) {
    cause->length = (uint16_t)get(c, 2);
    if (cause->length >= RS_CAUSE_MAX) {
        c->bad = true;
        return;
    }
    get_bytes(c, cause->text, cause->length);
    cause->text[cause->length] = 0;
}

static void put_open(cursor *c, const rs_message *m) {
    put_bytes(c, m->open.object.app, 16);
    put(c, m->open.object.data, 8);
    put(c, m->open.size, 8);
    put(c, m->open.fragment_size, 4);
    put(c, m->open.first, 8);
    put(c, m->open.end, 8);
    put(c, m->open.feedback_us, 4);
    put(c, m->open.group_address, 4);
    put(c, m->open.data_port, 2);
    put(c, m->open.engine, 1);
    put(c, m->open.path_kind, 1);
    put(c, m->open.light_confirm, 1);
    put(c, m->open.epoch, 4);
    put(c, m->open.digest.algorithm, 1);
    put(c, m->open.digest.length, 1);
    if (m->open.digest.length > sizeof m->open.digest.value)
        c->bad = true;
    else
        put_bytes(c, m->open.digest.value, m->open.digest.length);
}

/* Ring, sizes and kind are checked here once, so that nobody behind the decoder divides by zero or overflows. An engine
 * or a path kind that is not known is refused with a reason by who knows the peer. */
static bool open_is_sane(const rs_message *m) {
    uint64_t fragments = m->open.size / (m->open.fragment_size ? m->open.fragment_size : 1);
    if (m->open.fragment_size == 0 || m->open.fragment_size > RS_FRAGMENT_MAX)
        return false;
    if (m->open.size % m->open.fragment_size != 0 || m->open.size == 0)
        fragments++;
    if (m->open.size == RS_STREAM && m->open.end != RS_STREAM_FRAGMENTS)
        return false;
    if (m->open.first >= m->open.end || m->open.end > fragments || m->open.end > INT64_MAX)
        return false;
    if (m->open.light_confirm == 0 || m->nonce == 0)
        return false;
    if (m->open.path_kind == RS_OPEN_NO_PATH)
        return m->open.group_address == 0 && m->open.data_port == 0;
    if (m->open.group_address == 0) /* by unicast */
        return m->open.path_kind == RS_PATH_PACKET && m->open.data_port == 0;
    return m->open.group_address >> 28 == 14; /* 224.0.0.0/4: a receiver binds a socket to it */
}

static void get_open(cursor *c, rs_message *m) {
    get_bytes(c, m->open.object.app, 16);
    m->open.object.data = get(c, 8);
    m->open.size = get(c, 8);
    m->open.fragment_size = (uint32_t)get(c, 4);
    m->open.first = get(c, 8);
    m->open.end = get(c, 8);
    m->open.feedback_us = (uint32_t)get(c, 4);
    m->open.group_address = (uint32_t)get(c, 4);
    m->open.data_port = (uint16_t)get(c, 2);
    m->open.engine = (uint8_t)get(c, 1);
    m->open.path_kind = (uint8_t)get(c, 1);
    m->open.light_confirm = (uint8_t)get(c, 1);
    m->open.epoch = (uint32_t)get(c, 4);
    m->open.digest.algorithm = (uint8_t)get(c, 1);
    m->open.digest.length = (uint8_t)get(c, 1);
    if (m->open.digest.length > sizeof m->open.digest.value)
        c->bad = true;
    else
        get_bytes(c, m->open.digest.value, m->open.digest.length);
    if (!c->bad && !open_is_sane(m))
        c->bad = true;
}

static void put_hello(cursor *c, const rs_message *m) {
    put(c, m->hello.engines, 4);
    put(c, m->hello.boot, 8);
    put(c, m->hello.name_length, 2);
    if (m->hello.name_length > RS_NAME_MAX)
        c->bad = true;
    else
        put_bytes(c, m->hello.name, m->hello.name_length);
}

/* FNV-1a, its highest bits folded onto the lowest. */
uint32_t rs_wire_hello_for(const char *name) {
    const uint32_t lowest = RS_HELLO_FOR & ~(RS_HELLO_FOR - 1), most = RS_HELLO_FOR / lowest;
    uint32_t hash = UINT32_C(0x811c9dc5);
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * UINT32_C(0x01000193);
    hash = (hash ^ hash / (most + 1)) & most;
    return (hash ? hash : 1) * lowest;
}

static void get_hello(cursor *c, rs_message *m) {
    m->hello.engines = (uint32_t)get(c, 4);
    m->hello.boot = get(c, 8);
    m->hello.name_length = (uint16_t)get(c, 2);
    if (m->hello.name_length > RS_NAME_MAX) {
        c->bad = true;
        return;
    }
    get_bytes(c, m->hello.name, m->hello.name_length);
    m->hello.name[m->hello.name_length] = 0;
}

static void put_map(cursor *c, const rs_message *m) {
    put(c, m->ptch_map.from, 8);
    put(c, m->ptch_map.base, 8);
    put(c, m->ptch_map.number, 4);
    put(c, m->ptch_map.last, 1);
    put(c, m->ptch_map.bits, 2);
    if (m->ptch_map.bits > RS_MAP_BITS)
        c->bad = true;
    else
        put_bytes(c, m->ptch_map.map, (m->ptch_map.bits + 7u) / 8);
}

static void get_map(cursor *c, rs_message *m) {
    m->ptch_map.from = get(c, 8);
    m->ptch_map.base = get(c, 8);
    m->ptch_map.number = (uint32_t)get(c, 4);
    uint8_t last = (uint8_t)get(c, 1);
    m->ptch_map.last = last;
    m->ptch_map.bits = (uint16_t)get(c, 2);
    if (last > 1 || m->ptch_map.bits > RS_MAP_BITS || m->ptch_map.from > m->ptch_map.base ||
        m->ptch_map.base > INT64_MAX) {
        c->bad = true;
        return;
    }
    get_bytes(c, m->ptch_map.map, (m->ptch_map.bits + 7u) / 8);
    if (!c->bad && m->ptch_map.bits % 8 && m->ptch_map.map[m->ptch_map.bits / 8] >> m->ptch_map.bits % 8)
        c->bad = true;
}

/* Bounds within which the sums and products of feedback_sender.c and path_model.c do not overflow. */
static void get_rate(cursor *c, rs_message *m) {
    m->rate.highest = get(c, 8);
    m->rate.received = get(c, 8);
    m->rate.repairs = get(c, 8);
    m->rate.dropped = get(c, 8);
    m->rate.share_bps = get(c, 8);
    m->rate.at = get(c, 8);
    m->rate.waited = get(c, 8);
    m->rate.receivers = (uint32_t)get(c, 4);
    c->bad |= m->rate.highest > RS_STREAM_FRAGMENTS || m->rate.received > RS_RATE_COUNT_MAX ||
              m->rate.repairs > RS_RATE_COUNT_MAX || m->rate.dropped > RS_RATE_COUNT_MAX ||
              m->rate.share_bps > RS_RATE_BPS_MAX || m->rate.at > RS_RATE_AT_MAX ||
              m->rate.waited > RS_RATE_WAITED_MAX || m->rate.receivers != 1;
}

static void put_place(cursor *c, const rs_wire_place *place) {
    put(c, place->address, 4);
    put(c, place->port, 2);
}

static void get_place(cursor *c, rs_wire_place *place, bool needed) {
    place->address = (uint32_t)get(c, 4);
    place->port = (uint16_t)get(c, 2);
    c->bad |= (place->address == 0) != (place->port == 0) || (needed && place->address == 0);
}

static void put_name(cursor *c, const rs_message *m) {
    put_bytes(c, m->name.object.app, sizeof m->name.object.app);
    put(c, m->name.object.data, 8);
    put(c, m->name.length, 2);
    c->bad |= m->name.length == 0 || m->name.length > RS_NAME_MAX;
    if (!c->bad)
        put_bytes(c, (const uint8_t *)m->name.text, m->name.length);
}

static void get_name(cursor *c, rs_message *m) {
    get_bytes(c, m->name.object.app, sizeof m->name.object.app);
    m->name.object.data = get(c, 8);
    m->name.length = (uint16_t)get(c, 2);
    c->bad |= m->name.length == 0 || m->name.length > RS_NAME_MAX;
    if (c->bad)
        return;
    get_bytes(c, m->name.text, m->name.length);
    m->name.text[m->name.length] = 0;
}

static void put_report_to(cursor *c, const rs_message *m) {
    put(c, m->report_to.on, 1);
    put(c, m->report_to.height, 1);
    put(c, m->report_to.sample_us, 4);
    put_place(c, &m->report_to.parent);
    put(c, m->report_to.count, 1);
    c->bad |= m->report_to.count > RS_REPORT_TO_MOST;
    for (uint32_t i = 0; i < m->report_to.count && !c->bad; i++)
        put_place(c, &m->report_to.children[i]);
}

static void get_report_to(cursor *c, rs_message *m) {
    uint8_t on = (uint8_t)get(c, 1);
    m->report_to.on = on;
    m->report_to.height = (uint8_t)get(c, 1);
    m->report_to.sample_us = (uint32_t)get(c, 4);
    get_place(c, &m->report_to.parent, false);
    m->report_to.count = (uint8_t)get(c, 1);
    bool nothing = m->report_to.height == 0 && m->report_to.sample_us == 0 && m->report_to.parent.address == 0 &&
                   m->report_to.count == 0;
    c->bad |= on > 1 || m->report_to.count > RS_REPORT_TO_MOST || m->report_to.height > RS_REPORT_TO_MOST;
    c->bad |= on ? m->report_to.sample_us == 0 : !nothing;
    for (uint32_t i = 0; i < m->report_to.count && !c->bad; i++)
        get_place(c, &m->report_to.children[i], true);
}

static bool may_be_carried(uint8_t type) {
    return type == RS_MSG_OPEN || type == RS_MSG_OPEN_ACK || type == RS_MSG_INTL_SEQ || type == RS_MSG_DATA_FNSD ||
           type == RS_MSG_ABORT || type == RS_MSG_PING || type == RS_MSG_PONG || type == RS_MSG_REPORT_TO ||
           type == RS_MSG_NAME;
}

bool rs_wire_encode_fields(const rs_message *m, uint8_t *out, size_t most, size_t *length) {
    uint8_t bytes[RS_HEADER_MAX];
    size_t all = rs_wire_encode(m, 0, bytes, sizeof bytes);
    if (all < RS_CONTROL_COMMON || all - RS_CONTROL_COMMON > most)
        return false;
    *length = all - RS_CONTROL_COMMON;
    memcpy(out, bytes + RS_CONTROL_COMMON, *length);
    return true;
}

bool rs_wire_decode_fields(uint8_t type, uint64_t nonce, uint32_t session, const uint8_t *fields, size_t length,
                           rs_message *out) {
    uint8_t bytes[RS_CONTROL_COMMON + RS_HEADER_MAX];
    cursor c = {.write = bytes, .size = sizeof bytes};
    put(&c, RS_CONTROL_COMMON - RS_CONTROL_LENGTH + length, RS_CONTROL_LENGTH);
    put(&c, type, 1);
    put(&c, RS_WIRE_VERSION, 1);
    put(&c, 0, 2);
    put(&c, nonce, 8);
    put(&c, session, 4);
    put_bytes(&c, fields, length);
    return !c.bad && rs_wire_decode(bytes, c.at, 0, out);
}

bool rs_wire_inner_set(rs_wire_inner *inner, const rs_message *m) {
    size_t length;
    if (!may_be_carried((uint8_t)m->type) || !rs_wire_encode_fields(m, inner->bytes, RS_INNER_BYTES, &length))
        return false;
    inner->type = (uint8_t)m->type;
    inner->length = (uint16_t)length;
    return true;
}

bool rs_wire_inner_get(const rs_wire_inner *inner, uint64_t nonce, uint32_t session, rs_message *out) {
    return may_be_carried(inner->type) && inner->length <= RS_INNER_BYTES &&
           rs_wire_decode_fields(inner->type, nonce, session, inner->bytes, inner->length, out);
}

bool rs_wire_inner_same(const rs_wire_inner *one, const rs_wire_inner *other) {
    return one->type == other->type && one->length == other->length &&
           memcmp(one->bytes, other->bytes, one->length) == 0;
}

static void put_inner(cursor *c, const rs_wire_inner *inner) {
    put(c, inner->type, 1);
    put_bytes(c, inner->bytes, inner->length);
}

/* It is the last field. */
static void get_inner(cursor *c, const rs_message *m, rs_wire_inner *inner, bool needed) {
    rs_message within;
    inner->type = (uint8_t)get(c, 1);
    size_t left = c->size - c->at;
    c->bad |= left > RS_INNER_BYTES || (inner->type == 0 && (needed || left > 0));
    if (c->bad)
        return;
    inner->length = (uint16_t)left;
    get_bytes(c, inner->bytes, left);
    c->bad |= inner->type != 0 && !rs_wire_inner_get(inner, m->nonce, m->session, &within);
}

static void put_carry_to(cursor *c, const rs_message *m) {
    put(c, m->carry_to.first, 2);
    put(c, m->carry_to.count, 1);
    c->bad |= m->carry_to.count == 0 || m->carry_to.count > RS_CARRY_PLACES;
    for (uint32_t i = 0; i < m->carry_to.count && !c->bad; i++)
        put_place(c, &m->carry_to.places[i]);
}

static void get_carry_to(cursor *c, rs_message *m) {
    m->carry_to.first = (uint16_t)get(c, 2);
    m->carry_to.count = (uint8_t)get(c, 1);
    c->bad |= m->carry_to.count == 0 || m->carry_to.count > RS_CARRY_PLACES;
    for (uint32_t i = 0; i < m->carry_to.count && !c->bad; i++)
        get_place(c, &m->carry_to.places[i], true);
}

static bool set_is_sane(const rs_message *m) {
    return m->carry.bytes > 0 && m->carry.bytes <= RS_CARRY_BYTES && m->carry.set[0] != 0 &&
           m->carry.set[m->carry.bytes - 1] != 0 && 8u * (m->carry.base + (uint32_t)m->carry.bytes) <= RS_CARRIED_MOST;
}

static void put_carry(cursor *c, const rs_message *m) {
    put(c, m->carry.base, 2);
    put(c, m->carry.bytes, 1);
    c->bad |= !set_is_sane(m);
    if (!c->bad)
        put_bytes(c, m->carry.set, m->carry.bytes);
    put_inner(c, &m->carry.inner);
}

static void get_carry(cursor *c, rs_message *m) {
    m->carry.base = (uint16_t)get(c, 2);
    m->carry.bytes = (uint8_t)get(c, 1);
    c->bad |= m->carry.bytes > RS_CARRY_BYTES;
    if (!c->bad)
        get_bytes(c, m->carry.set, m->carry.bytes);
    c->bad |= c->bad || !set_is_sane(m);
    get_inner(c, m, &m->carry.inner, false);
}

static void put_carried(cursor *c, const rs_message *m) {
    put_place(c, &m->carried.sender);
    put(c, m->carried.name_length, 1);
    put_bytes(c, m->carried.name, m->carried.name_length);
    put_inner(c, &m->carried.inner);
}

static void get_carried(cursor *c, rs_message *m) {
    get_place(c, &m->carried.sender, false);
    m->carried.name_length = (uint8_t)get(c, 1);
    get_bytes(c, m->carried.name, m->carried.name_length);
    m->carried.name[m->carried.name_length] = 0;
    get_inner(c, m, &m->carried.inner, true);
}

static void put_carries(cursor *c, const rs_message *m) {
    if (m->type == RS_MSG_CARRY_TO)
        put_carry_to(c, m);
    else if (m->type == RS_MSG_CARRY)
        put_carry(c, m);
    else
        put_carried(c, m);
}

static void get_carries(cursor *c, rs_message *m) {
    if (m->type == RS_MSG_CARRY_TO)
        get_carry_to(c, m);
    else if (m->type == RS_MSG_CARRY)
        get_carry(c, m);
    else
        get_carried(c, m);
}

static bool leaves_are_sane(const rs_message *m) {
    uint32_t width = m->leaves.width;
    return m->leaves.count > 0 && width > 0 && width <= sizeof m->open.digest.value &&
           m->leaves.count * width <= RS_LEAVES_BYTES && m->leaves.first < RS_STREAM_FRAGMENTS;
}

static void put_leaves(cursor *c, const rs_message *m) {
    put(c, m->leaves.first, 8);
    put(c, m->leaves.count, 2);
    put(c, m->leaves.width, 1);
    if (leaves_are_sane(m))
        put_bytes(c, m->leaves.bytes, (size_t)m->leaves.count * m->leaves.width);
    else
        c->bad = true;
}

static void get_leaves(cursor *c, rs_message *m) {
    m->leaves.first = get(c, 8);
    m->leaves.count = (uint16_t)get(c, 2);
    m->leaves.width = (uint8_t)get(c, 1);
    if (leaves_are_sane(m))
        get_bytes(c, m->leaves.bytes, (size_t)m->leaves.count * m->leaves.width);
    else
        c->bad = true;
}

static void get_leaf_req(cursor *c, rs_message *m) {
    m->leaf_req.first = get(c, 8);
    m->leaf_req.count = (uint16_t)get(c, 2);
    uint8_t retake = (uint8_t)get(c, 1);
    m->leaf_req.retake = retake;
    c->bad |= m->leaf_req.count == 0 || m->leaf_req.first >= RS_STREAM_FRAGMENTS || retake > 1 ||
              (retake && m->leaf_req.count > 1);
}

static void put_fields(cursor *c, const rs_message *m) {
    switch (m->type) {
    case RS_MSG_HELLO:
        put_hello(c, m);
        break;
    case RS_MSG_OPEN:
        put_open(c, m);
        break;
    case RS_MSG_OPEN_ACK:
        put(c, m->open_ack.status, 1);
        put(c, m->open_ack.room, 8);
        put_cause(c, &m->open_ack.cause);
        break;
    case RS_MSG_INTL_SEQ:
        put(c, m->intl_seq.sn, 8);
        break;
    case RS_MSG_PTCH_REQ:
        put(c, m->ptch_req.start, 8);
        put(c, m->ptch_req.end, 8);
        break;
    case RS_MSG_PTCH_DATA:
        put(c, m->ptch_data.sn, 8);
        break;
    case RS_MSG_DATA_FNSD:
        break;
    case RS_MSG_DATA_RCVD:
        put(c, m->data_rcvd.status, 1);
        put(c, m->data_rcvd.patched, 8);
        put_cause(c, &m->data_rcvd.cause);
        break;
    case RS_MSG_RATE:
        put(c, m->rate.highest, 8);
        put(c, m->rate.received, 8);
        put(c, m->rate.repairs, 8);
        put(c, m->rate.dropped, 8);
        put(c, m->rate.share_bps, 8);
        put(c, m->rate.at, 8);
        put(c, m->rate.waited, 8);
        put(c, m->rate.receivers, 4);
        break;
    case RS_MSG_ABORT:
        put_cause(c, &m->abort.cause);
        break;
    case RS_MSG_PING:
    case RS_MSG_PONG:
        put(c, m->ping.token, 8);
        break;
    case RS_MSG_PTCH_MAP:
        put_map(c, m);
        break;
    case RS_MSG_LEAF_REQ:
        put(c, m->leaf_req.first, 8);
        put(c, m->leaf_req.count, 2);
        put(c, m->leaf_req.retake, 1);
        break;
    case RS_MSG_LEAVES:
        put_leaves(c, m);
        break;
    case RS_MSG_REPORT_TO:
        put_report_to(c, m);
        break;
    case RS_MSG_NAME:
        put_name(c, m);
        break;
    case RS_MSG_KEY:
        put(c, m->key.epoch, 2);
        put(c, m->key.in_ms, 4);
        put_bytes(c, m->key.key, sizeof m->key.key);
        put_bytes(c, m->key.signer, sizeof m->key.signer);
        c->bad |= m->key.epoch == 0;
        break;
    case RS_MSG_CARRY_TO:
    case RS_MSG_CARRY:
    case RS_MSG_CARRIED:
        put_carries(c, m);
        break;
    }
}

static void get_fields(cursor *c, rs_message *m) {
    switch (m->type) {
    case RS_MSG_HELLO:
        get_hello(c, m);
        break;
    case RS_MSG_OPEN:
        get_open(c, m);
        break;
    case RS_MSG_OPEN_ACK:
        m->open_ack.status = (uint8_t)get(c, 1);
        c->bad |= m->open_ack.status > RS_ACK_LEAVES;
        m->open_ack.room = get(c, 8);
        get_cause(c, &m->open_ack.cause);
        break;
    case RS_MSG_INTL_SEQ:
        m->intl_seq.sn = get(c, 8);
        break;
    case RS_MSG_PTCH_REQ:
        m->ptch_req.start = get(c, 8);
        m->ptch_req.end = get(c, 8);
        break;
    case RS_MSG_PTCH_DATA:
        m->ptch_data.sn = get(c, 8);
        break;
    case RS_MSG_DATA_FNSD:
        break;
    case RS_MSG_DATA_RCVD:
        m->data_rcvd.status = (uint8_t)get(c, 1);
        c->bad |= m->data_rcvd.status > RS_RCVD_LEFT;
        m->data_rcvd.patched = get(c, 8);
        get_cause(c, &m->data_rcvd.cause);
        break;
    case RS_MSG_RATE:
        get_rate(c, m);
        break;
    case RS_MSG_ABORT:
        get_cause(c, &m->abort.cause);
        break;
    case RS_MSG_PING:
    case RS_MSG_PONG:
        m->ping.token = get(c, 8);
        break;
    case RS_MSG_PTCH_MAP:
        get_map(c, m);
        break;
    case RS_MSG_LEAF_REQ:
        get_leaf_req(c, m);
        break;
    case RS_MSG_LEAVES:
        get_leaves(c, m);
        break;
    case RS_MSG_REPORT_TO:
        get_report_to(c, m);
        break;
    case RS_MSG_NAME:
        get_name(c, m);
        break;
    case RS_MSG_KEY:
        m->key.epoch = (uint16_t)get(c, 2);
        m->key.in_ms = (uint32_t)get(c, 4);
        get_bytes(c, m->key.key, sizeof m->key.key);
        get_bytes(c, m->key.signer, sizeof m->key.signer);
        c->bad |= m->key.epoch == 0;
        break;
    case RS_MSG_CARRY_TO:
    case RS_MSG_CARRY:
    case RS_MSG_CARRIED:
        get_carries(c, m);
        break;
    }
}

static bool type_is_known(uint8_t type) {
    return type >= RS_MSG_HELLO && type <= RS_MSG_CARRIED;
}

/* Their first fields are the same in every version; others may follow. */
static bool speaks_any_version(uint8_t type) {
    return type == RS_MSG_HELLO || type == RS_MSG_ABORT;
}

size_t rs_wire_encode(const rs_message *m, uint32_t payload_length, uint8_t *out, size_t capacity) {
    cursor c = {.write = out, .size = capacity};
    if (!type_is_known((uint8_t)m->type) || payload_length > RS_FRAGMENT_MAX)
        return 0;
    if (m->type != RS_MSG_PTCH_DATA && payload_length != 0)
        return 0;
    put(&c, 0, RS_CONTROL_LENGTH);
    put(&c, (uint64_t)m->type, 1);
    put(&c, RS_WIRE_VERSION, 1);
    put(&c, 0, 2);
    put(&c, m->nonce, 8);
    put(&c, m->session, 4);
    put_fields(&c, m);
    if (c.bad)
        return 0;
    size_t length = c.at;
    c.at = 0;
    put(&c, length - RS_CONTROL_LENGTH + payload_length, RS_CONTROL_LENGTH);
    return length;
}

bool rs_wire_decode(const uint8_t *bytes, size_t length, uint32_t payload_length, rs_message *m) {
    cursor c = {.read = bytes, .size = length};
    uint64_t stated = get(&c, RS_CONTROL_LENGTH);
    uint8_t type = (uint8_t)get(&c, 1);
    m->version = (uint8_t)get(&c, 1);
    if (get(&c, 2) != 0 || c.bad || !type_is_known(type))
        return false;
    bool ours = m->version == RS_WIRE_VERSION;
    if (!ours && !speaks_any_version(type))
        return false;
    if (payload_length > RS_FRAGMENT_MAX || (type != RS_MSG_PTCH_DATA && payload_length != 0))
        return false;
    if (length > RS_CONTROL_LENGTH + CONTROL_MAX || stated != length - RS_CONTROL_LENGTH + payload_length)
        return false;
    m->type = (rs_message_type)type;
    m->nonce = get(&c, 8);
    m->session = (uint32_t)get(&c, 4);
    get_fields(&c, m);
    return !c.bad && (c.at == length || !ours);
}

int rs_wire_frame(const uint8_t *bytes, size_t have, size_t *header_length, uint32_t *payload_length) {
    cursor c = {.read = bytes, .size = have};
    if (have < RS_CONTROL_PEEK)
        return 0;
    uint64_t stated = get(&c, RS_CONTROL_LENGTH);
    uint8_t type = (uint8_t)get(&c, 1), version = (uint8_t)get(&c, 1);
    if (version != RS_WIRE_VERSION && !speaks_any_version(type))
        return -1;
    uint64_t most = type == RS_MSG_PTCH_DATA ? RS_PATCH_HEADER - RS_CONTROL_LENGTH + RS_FRAGMENT_MAX : CONTROL_MAX;
    uint64_t least = (type == RS_MSG_PTCH_DATA ? RS_PATCH_HEADER : RS_CONTROL_COMMON) - RS_CONTROL_LENGTH;
    if (!type_is_known(type) || stated < least || stated > most)
        return -1;
    *header_length = type == RS_MSG_PTCH_DATA ? RS_PATCH_HEADER : (size_t)stated + RS_CONTROL_LENGTH;
    *payload_length = type == RS_MSG_PTCH_DATA ? (uint32_t)(stated + RS_CONTROL_LENGTH - RS_PATCH_HEADER) : 0;
    return 1;
}
