/* Decoders of group messages on any bytes: they stay within them, and what they take is what the encoders make, byte
 * for byte. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/groups/wire.h"
#include "core/qsm/wire.h"
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

static void qsm_head_and_messages(const uint8_t *bytes, size_t size) {
    rs_qsm_head head;
    uint8_t again[RS_QSM_HEAD];
    if (!rs_qsm_get_head(bytes, size, &head))
        return;
    rs_qsm_put_head(again, (uint8_t)bytes[3], &head);
    must(memcmp(again + 4, bytes + 4, 8) == 0 && memcmp(again + 16, bytes + 16, RS_QSM_HEAD - 16) == 0);
    size_t at = RS_QSM_DATA_HEAD;
    rs_qsm_inner inner;
    for (bool well = true; at <= size && rs_qsm_get_inner(bytes, size, &at, &inner, &well);)
        must(well && inner.body + inner.length == bytes + at);
}

static void qsm_token(const uint8_t *bytes, size_t size) {
    rs_qsm_token token;
    rs_qsm_entry entry;
    if (!rs_qsm_get_token(bytes, size, &token))
        return;
    uint8_t *again = malloc(size);
    must(again != NULL);
    rs_qsm_put_token(again, &token);
    size_t at = RS_QSM_TOKEN_HEAD;
    for (uint32_t i = 0; i < token.count; i++) {
        must(rs_qsm_get_entry(bytes + at, size - at, &entry) > 0);
        at += rs_qsm_put_entry(again + at, &entry);
    }
    must(at == size && memcmp(again + RS_QSM_HEAD, bytes + RS_QSM_HEAD, size - RS_QSM_HEAD) == 0);
    free(again);
}

static void qsm_others(const uint8_t *bytes, size_t size) {
    rs_peer sender;
    uint32_t incarnation, partition;
    uint64_t sn;
    rs_qsm_ack ack;
    rs_qsm_ranges ranges;
    uint8_t again[RS_QSM_LIST_HEAD + 9 + RS_QSM_RANGES * RS_QSM_RANGE];
    if (rs_qsm_get_ack(bytes, size, &ack)) {
        rs_qsm_put_ack(again, &ack);
        must(memcmp(again + RS_QSM_HEAD, bytes + RS_QSM_HEAD, size - RS_QSM_HEAD) == 0);
    }
    if (rs_qsm_get_position(bytes, size, &sender, &incarnation, &sn)) {
        rs_qsm_put_position(again, sender, incarnation, sn);
        must(memcmp(again + RS_QSM_HEAD, bytes + RS_QSM_HEAD, size - RS_QSM_HEAD) == 0);
    }
    if (rs_qsm_get_list(bytes, size, &sender, &incarnation, &partition, &ranges))
        must(rs_qsm_put_list(again, sender, incarnation, partition, &ranges) == size &&
             memcmp(again + RS_QSM_HEAD, bytes + RS_QSM_HEAD, size - RS_QSM_HEAD) == 0);
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
    qsm_head_and_messages(bytes, size);
    qsm_token(bytes, size);
    qsm_others(bytes, size);
    check(bytes, size);
    free(bytes);
    return 0;
}
