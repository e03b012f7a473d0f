#include "core/groups/wire.h"

#include <string.h>

#include "core/base/wire.h"
#include "core/base/xxh3_64.h"
#include "core/base/xxh64.h"

_Static_assert(RS_MESSAGES_KIND_DATA == RS_GM_KIND_DATA && RS_MESSAGES_KIND_REGION == RS_GM_KIND_REGIONS,
               "kinds that a pattern of losses knows");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they are");

static void put16(uint8_t *out, uint32_t value) {
    memcpy(out, &(uint16_t){(uint16_t)value}, 2);
}

static void put32(uint8_t *out, uint32_t value) {
    memcpy(out, &value, 4);
}

static void put64(uint8_t *out, uint64_t value) {
    memcpy(out, &value, 8);
}

static uint16_t get16(const uint8_t *bytes) {
    uint16_t value;
    memcpy(&value, bytes, 2);
    return value;
}

static uint32_t get32(const uint8_t *bytes) {
    uint32_t value;
    memcpy(&value, bytes, 4);
    return value;
}

static uint64_t get64(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, 8);
    return value;
}

void rs_gm_put_kind(uint8_t *out, uint8_t kind) {
    put16(out, RS_MESSAGES_MAGIC);
    out[2] = RS_GM_VERSION;
    out[3] = kind;
}

void rs_gm_put_header(uint8_t out[RS_GM_HEADER], rs_gm_kind kind, const rs_gm_id *id) {
    rs_gm_put_kind(out, (uint8_t)kind);
    rs_gm_put_id(out + 4, id);
}

void rs_gm_put_id(uint8_t out[RS_GM_ID], const rs_gm_id *id) {
    put32(out, id->sender);
    put32(out + 4, id->incarnation);
    put32(out + 8, id->group);
    put64(out + 12, id->sn);
}

void rs_gm_get_id(const uint8_t bytes[RS_GM_ID], rs_gm_id *out) {
    *out = (rs_gm_id){get32(bytes), get32(bytes + 4), get32(bytes + 8), get64(bytes + 12)};
}

/* 12 bytes: the newest version, then what the older ones are less than it (0: none), each with its `back`. */
static void put_views(uint8_t *out, const rs_gm_views *views) {
    memset(out, 0, 13);
    out[0] = views->view[0].back;
    put32(out + 1, views->view[0].version);
    for (uint32_t i = 1; i < views->count; i++) {
        put16(out + 2 + 3 * i, views->view[0].version - views->view[i].version);
        out[4 + 3 * i] = views->view[i].back;
    }
}

static bool get_views(const uint8_t *bytes, rs_gm_views *out) {
    *out = (rs_gm_views){.count = 1, .view = {{get32(bytes + 1), bytes[0]}}};
    for (uint32_t i = 1; i < RS_GM_VIEWS; i++) {
        uint32_t less = get16(bytes + 2 + 3 * i), last = out->view[0].version - out->view[out->count - 1].version;
        uint8_t back = bytes[4 + 3 * i];
        if (less == 0 && back == 0)
            continue;
        if (out->count < i || less <= last || (back <= out->view[i - 1].back && back < RS_GM_BACK_MOST))
            return false;
        out->view[out->count].version = out->view[0].version - less;
        out->view[out->count++].back = back;
    }
    return bytes[11] == 0 && bytes[12] == 0;
}

/* A body begins with its check, then: */
#define BODY_LENGTH 4
#define BODY_FORM 6
#define STAMPED 0x80u /* in the form: a stamp is in front of the payload */
#define BODY_VIEWS 7

void rs_gm_put_body(uint8_t out[RS_GM_BODY], const rs_gm_body *body) {
    put32(out, 0);
    put16(out + BODY_LENGTH, body->length);
    out[BODY_FORM] = (uint8_t)(body->form | (body->stamped ? STAMPED : 0));
    put_views(out + BODY_VIEWS, &body->views);
}

uint32_t rs_gm_body_length(const uint8_t *bytes) {
    return get16(bytes + BODY_LENGTH);
}

rs_gm_form rs_gm_body_form(const uint8_t *bytes) {
    return (rs_gm_form)(bytes[BODY_FORM] & ~STAMPED);
}

uint32_t rs_gm_body_stamp(const uint8_t *bytes) {
    return bytes[BODY_FORM] & STAMPED ? RS_GM_STAMP : 0;
}

rs_gm_views rs_gm_body_views(const uint8_t *bytes) {
    rs_gm_views views;
    get_views(bytes + BODY_VIEWS, &views);
    return views;
}

void rs_gm_put_body_length(uint8_t *bytes, uint32_t length) {
    put16(bytes + BODY_LENGTH, length);
}

void rs_gm_put_pack_length(uint8_t out[RS_GM_PACK_LENGTH], uint32_t length) {
    put16(out, length);
}

uint32_t rs_gm_get_pack_length(const uint8_t *bytes) {
    return get16(bytes);
}

void rs_gm_put_part(uint8_t out[RS_GM_PART], const rs_gm_part *part) {
    put32(out, part->total);
    put32(out + 4, part->offset);
    put16(out + 8, part->index);
    put16(out + 10, part->count);
}

rs_gm_part rs_gm_get_part(const uint8_t *bytes) {
    return (rs_gm_part){get32(bytes), get32(bytes + 4), get16(bytes + 8), get16(bytes + 10)};
}

static bool pack_fits(const uint8_t *payload, size_t length) {
    size_t at = 0;
    while (at < length) {
        if (length - at < RS_GM_PACK_LENGTH)
            return false;
        at += RS_GM_PACK_LENGTH + (size_t)get16(payload + at);
    }
    return length > 0 && at == length;
}

/* Parts in the middle of a message carry at least a byte, lie within it and are where their number says they may be. */
static bool part_fits(const uint8_t *payload, size_t length) {
    if (length <= RS_GM_PART)
        return false;
    rs_gm_part part = rs_gm_get_part(payload);
    size_t bytes = length - RS_GM_PART;
    return part.index < part.count && part.count > 1 && part.offset < part.total && bytes <= part.total - part.offset &&
           part.offset >= part.index && (part.index == 0) == (part.offset == 0) &&
           (part.index + 1 == part.count) == (part.offset + bytes == part.total);
}

rs_messages_stamped rs_gm_stamped(const uint8_t id[RS_GM_ID], const uint8_t *body) {
    const uint32_t stamp = rs_gm_body_stamp(body);
    return (rs_messages_stamped){.id = id,
                                 .head = body + BODY_LENGTH,
                                 .head_length = RS_GM_BODY - BODY_LENGTH,
                                 .stamp = (uint8_t *)(uintptr_t)body + RS_GM_BODY,
                                 .rest = body + RS_GM_BODY + stamp,
                                 .rest_length = rs_gm_body_length(body) - stamp};
}

bool rs_gm_get_body(const uint8_t *bytes, size_t length, rs_gm_body *out) {
    if (length < RS_GM_BODY || !get_views(bytes + BODY_VIEWS, &out->views))
        return false;
    out->length = get16(bytes + BODY_LENGTH);
    out->form = (uint8_t)rs_gm_body_form(bytes);
    out->stamped = bytes[BODY_FORM] & STAMPED;
    const size_t stamp = rs_gm_body_stamp(bytes);
    if (out->length != length - RS_GM_BODY || out->length < stamp)
        return false;
    switch (out->form) {
    case RS_GM_SINGLE:
        return true;
    case RS_GM_PACK:
        return pack_fits(bytes + RS_GM_BODY + stamp, out->length - stamp);
    case RS_GM_PARTS:
        return part_fits(bytes + RS_GM_BODY + stamp, out->length - stamp);
    default:
        return false;
    }
}

unsigned rs_gm_get_version(const uint8_t *bytes, size_t length) {
    return length < 4 || get16(bytes) != RS_MESSAGES_MAGIC ? 0 : bytes[2];
}

unsigned rs_gm_get_kind(const uint8_t *bytes, size_t length) {
    if (length < 4 || get16(bytes) != RS_MESSAGES_MAGIC || bytes[2] != RS_GM_VERSION)
        return 0;
    return bytes[3];
}

static bool sn_fits(uint64_t sn) {
    return sn > 0 && sn < RS_GM_SN_MOST;
}

bool rs_gm_get_data(const uint8_t *bytes, size_t length, rs_gm_id *id, rs_gm_body *body) {
    unsigned kind = rs_gm_get_kind(bytes, length);
    if ((kind != RS_GM_KIND_DATA && kind != RS_GM_KIND_AGAIN) || length < RS_GM_DATA_LEAST)
        return false;
    rs_gm_get_id(bytes + 4, id);
    return sn_fits(id->sn) && rs_gm_get_body(bytes + RS_GM_HEADER, length - RS_GM_HEADER, body);
}

void rs_gm_put_nak(uint8_t out[RS_GM_NAK], rs_peer from, uint32_t count) {
    rs_gm_put_kind(out, RS_GM_KIND_NAK);
    put32(out + 4, from);
    out[8] = (uint8_t)count;
    out[9] = 0;
    put16(out + 10, 0);
    put32(out + RS_GM_CHECK_AT, 0);
}

void rs_gm_put_nak_item(uint8_t out[RS_GM_NAK_ITEM], const rs_gm_nak_item *item) {
    rs_gm_put_id(out, &item->id);
    put32(out + RS_GM_ID, item->mask);
}

void rs_gm_get_nak_item(const uint8_t *bytes, uint32_t index, rs_gm_nak_item *out) {
    const uint8_t *at = bytes + RS_GM_NAK + (size_t)index * RS_GM_NAK_ITEM;
    rs_gm_get_id(at, &out->id);
    out->mask = get32(at + RS_GM_ID);
}

uint32_t rs_gm_get_nak(const uint8_t *bytes, size_t length, rs_peer *from) {
    if (rs_gm_get_kind(bytes, length) != RS_GM_KIND_NAK || length < RS_GM_NAK)
        return 0;
    uint32_t count = bytes[8];
    *from = get32(bytes + 4);
    if (count == 0 || count > RS_GM_NAK_ITEMS || bytes[9] != 0 || get16(bytes + 10) != 0 ||
        length != RS_GM_NAK + (size_t)count * RS_GM_NAK_ITEM)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        rs_gm_nak_item item;
        rs_gm_get_nak_item(bytes, i, &item);
        if (!sn_fits(item.id.sn))
            return 0;
    }
    return count;
}

void rs_gm_put_state(uint8_t out[RS_GM_STATE], rs_peer sender, uint32_t incarnation, uint32_t count) {
    rs_gm_put_positions(out, RS_GM_KIND_STATE, sender, incarnation, count);
}

void rs_gm_put_positions(uint8_t out[RS_GM_STATE], rs_gm_kind kind, rs_peer sender, uint32_t incarnation,
                         uint32_t count) {
    rs_gm_put_kind(out, (uint8_t)kind);
    put32(out + 4, sender);
    put32(out + 8, incarnation);
    put32(out + RS_GM_CHECK_AT, 0);
    put32(out + 16, count);
}

void rs_gm_put_state_item(uint8_t out[RS_GM_STATE_ITEM], const rs_gm_state_item *item) {
    put32(out, item->group);
    put64(out + 4, item->sn);
    memset(out + 12, 0, 3);
    put_views(out + 15, &item->views);
}

uint32_t rs_gm_get_state(const uint8_t *bytes, size_t length, rs_peer *sender, uint32_t *incarnation) {
    return rs_gm_get_positions(bytes, length, RS_GM_KIND_STATE, sender, incarnation);
}

uint32_t rs_gm_get_positions(const uint8_t *bytes, size_t length, rs_gm_kind kind, rs_peer *sender,
                             uint32_t *incarnation) {
    if (rs_gm_get_kind(bytes, length) != (unsigned)kind || length < RS_GM_STATE)
        return 0;
    uint32_t count = get32(bytes + 16);
    *sender = get32(bytes + 4);
    *incarnation = get32(bytes + 8);
    if (count == 0 || count > RS_GM_STATE_ITEMS || length != RS_GM_STATE + (size_t)count * RS_GM_STATE_ITEM)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *at = bytes + RS_GM_STATE + (size_t)i * RS_GM_STATE_ITEM;
        rs_gm_views views;
        if (!sn_fits(get64(at + 4)) || get16(at + 12) != 0 || at[14] != 0 || !get_views(at + 15, &views))
            return 0;
    }
    return count;
}

void rs_gm_get_state_item(const uint8_t *bytes, uint32_t index, rs_gm_state_item *out) {
    const uint8_t *at = bytes + RS_GM_STATE + (size_t)index * RS_GM_STATE_ITEM;
    out->group = get32(at);
    out->sn = get64(at + 4);
    get_views(at + 15, &out->views);
}

bool rs_messages_scope(const uint8_t *bytes, size_t length, bool *region, uint32_t *number) {
    unsigned kind = rs_gm_get_kind(bytes, length);
    *region = kind == RS_GM_KIND_REGIONS;
    if (*region && length >= RS_GM_REGION_AT + 4) {
        *number = get32(bytes + RS_GM_REGION_AT);
        return true;
    }
    if (kind == RS_GM_KIND_DATA && length >= RS_GM_HEADER) {
        *number = get32(bytes + 12);
        return true;
    }
    if (kind != RS_GM_KIND_STATE || length != RS_GM_STATE + RS_GM_STATE_ITEM)
        return false;
    *number = get32(bytes + RS_GM_STATE);
    return true;
}

/* ------------------------------------------------------------------------------------------------------- checks */

static uint32_t body_check(const uint8_t *id, const uint8_t *body, size_t length) {
    return (uint32_t)(rs_xxh3_64(body + BODY_LENGTH, length - BODY_LENGTH) ^ rs_xxh3_64(id, RS_GM_ID));
}

/* Of all but data packets: what is before the check, and what is behind it. */
static uint32_t head_check(const uint8_t *bytes, size_t length) {
    return (uint32_t)rs_gm_xxh64(bytes + RS_GM_CHECK_AT + 4, length - RS_GM_CHECK_AT - 4,
                                 rs_gm_xxh64(bytes, RS_GM_CHECK_AT, 0));
}

static bool is_data(const uint8_t *bytes) {
    return bytes[3] == RS_GM_KIND_DATA || bytes[3] == RS_GM_KIND_AGAIN;
}

void rs_gm_seal(uint8_t *bytes, size_t length) {
    if (is_data(bytes))
        put32(bytes + RS_GM_HEADER, body_check(bytes + 4, bytes + RS_GM_HEADER, length - RS_GM_HEADER));
    else
        put32(bytes + RS_GM_CHECK_AT, head_check(bytes, length));
}

bool rs_gm_is_intact(const uint8_t *bytes, size_t length) {
    if (is_data(bytes))
        return get32(bytes + RS_GM_HEADER) == body_check(bytes + 4, bytes + RS_GM_HEADER, length - RS_GM_HEADER);
    return get32(bytes + RS_GM_CHECK_AT) == head_check(bytes, length);
}

bool rs_gm_is_body_intact(const rs_gm_id *id, const uint8_t *bytes, size_t length) {
    uint8_t name[RS_GM_ID];
    rs_gm_put_id(name, id);
    return get32(bytes) == body_check(name, bytes, length);
}
