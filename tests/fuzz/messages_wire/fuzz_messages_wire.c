/* Decoders of group messages on any bytes: they stay within them, and what they take is what the encoders make, byte
 * for byte. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/groups/wire.h"
#include "core/ricochet/wire.h"

#define CHECK_AT 12 /* of all kinds but data */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool true_then) {
    if (!true_then)
        abort();
}

static void data_packet(const uint8_t *bytes, size_t size) {
    rs_gm_id id;
    rs_gm_body body;
    uint8_t again[RS_GM_DATA_LEAST];
    if (!rs_gm_get_data(bytes, size, &id, &body))
        return;
    rs_gm_put_header(again, (rs_gm_kind)rs_gm_get_kind(bytes, size), &id);
    rs_gm_put_body(again + RS_GM_HEADER, &body);
    memcpy(again + RS_GM_HEADER, bytes + RS_GM_HEADER, 4); /* its check */
    must(memcmp(again, bytes, sizeof again) == 0 && size == RS_GM_DATA_LEAST + (size_t)body.length);
}

static void repair(const uint8_t *bytes, size_t size) {
    rs_ricochet_repair in;
    uint8_t again[RS_RICOCHET_HEAD_MOST];
    if (!rs_ricochet_get_repair(bytes, size, &in))
        return;
    rs_ricochet_put_repair(again, in.from, in.count, in.length);
    for (uint32_t i = 0; i < in.count; i++) {
        rs_gm_id id;
        rs_gm_get_id(in.ids + i * RS_GM_ID, &id);
        rs_gm_put_id(again + RS_RICOCHET_REPAIR + i * RS_GM_ID, &id);
    }
    memcpy(again + CHECK_AT, bytes + CHECK_AT, 4);
    must(memcmp(again, bytes, RS_RICOCHET_REPAIR + in.count * RS_GM_ID) == 0 && in.body + in.length == bytes + size);
}

static void nak(const uint8_t *bytes, size_t size) {
    rs_peer from;
    uint32_t count = rs_gm_get_nak(bytes, size, &from);
    uint8_t again[RS_GM_NAK_MOST];
    if (count == 0)
        return;
    rs_gm_put_nak(again, from, count);
    for (uint32_t i = 0; i < count; i++) {
        rs_gm_nak_item item;
        rs_gm_get_nak_item(bytes, i, &item);
        rs_gm_put_nak_item(again + RS_GM_NAK + i * RS_GM_NAK_ITEM, &item);
    }
    memcpy(again + CHECK_AT, bytes + CHECK_AT, 4);
    must(memcmp(again, bytes, size) == 0);
}

static void state(const uint8_t *bytes, size_t size) {
    rs_peer sender;
    uint32_t incarnation, count = rs_gm_get_state(bytes, size, &sender, &incarnation);
    uint8_t again[RS_GM_STATE_MOST];
    if (count == 0)
        return;
    rs_gm_put_state(again, sender, incarnation, count);
    for (uint32_t i = 0; i < count; i++) {
        rs_gm_state_item item;
        rs_gm_get_state_item(bytes, i, &item);
        rs_gm_put_state_item(again + RS_GM_STATE + i * RS_GM_STATE_ITEM, &item);
    }
    memcpy(again + CHECK_AT, bytes + CHECK_AT, 4);
    must(memcmp(again, bytes, size) == 0);
}

/* What a decoder took has a place for its check, and is intact once that is there. */
static void check(uint8_t *bytes, size_t size) {
    rs_gm_id id;
    rs_gm_body body;
    rs_ricochet_repair in;
    rs_peer from;
    uint32_t incarnation;
    if (!rs_ricochet_get_repair(bytes, size, &in) && !rs_gm_get_data(bytes, size, &id, &body) &&
        rs_gm_get_nak(bytes, size, &from) == 0 && rs_gm_get_state(bytes, size, &from, &incarnation) == 0)
        return;
    (void)rs_gm_is_intact(bytes, size);
    rs_gm_seal(bytes, size);
    must(rs_gm_is_intact(bytes, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* Exactly as many bytes as there are, so that the sanitizer sees a read beyond. */
    uint8_t *bytes = malloc(size ? size : 1);
    must(bytes != NULL);
    if (size)
        memcpy(bytes, data, size);
    /* What is of no version that is known is of no kind. */
    must(rs_gm_get_version(bytes, size) == RS_GM_VERSION || rs_gm_get_kind(bytes, size) == 0);
    data_packet(bytes, size);
    repair(bytes, size);
    nak(bytes, size);
    state(bytes, size);
    check(bytes, size);
    free(bytes);
    return 0;
}
