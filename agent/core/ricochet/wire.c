#include "core/ricochet/wire.h"

#include <string.h>

#define FROM_AT 4
#define COUNT_AT 8
#define LENGTH_AT 10

void rs_ricochet_put_repair(uint8_t out[RS_RICOCHET_REPAIR], rs_peer from, uint32_t count, uint32_t length) {
    memset(out, 0, RS_RICOCHET_REPAIR);
    rs_gm_put_kind(out, RS_RICOCHET_KIND_REPAIR);
    memcpy(out + FROM_AT, &from, 4);
    out[COUNT_AT] = (uint8_t)count;
    memcpy(out + LENGTH_AT, &(uint16_t){(uint16_t)length}, 2);
}

bool rs_ricochet_get_repair(const uint8_t *bytes, size_t length, rs_ricochet_repair *out) {
    if (rs_gm_get_kind(bytes, length) != RS_RICOCHET_KIND_REPAIR || length < RS_RICOCHET_REPAIR)
        return false;
    uint16_t body_length;
    memcpy(&body_length, bytes + LENGTH_AT, 2);
    *out = (rs_ricochet_repair){.count = bytes[COUNT_AT], .length = body_length, .ids = bytes + RS_RICOCHET_REPAIR};
    memcpy(&out->from, bytes + FROM_AT, 4);
    if (out->count == 0 || out->count > RS_RICOCHET_R_MAX || bytes[COUNT_AT + 1] != 0 || out->length < RS_GM_BODY ||
        length != (size_t)rs_ricochet_head_length(out->count) + out->length)
        return false;
    out->body = bytes + rs_ricochet_head_length(out->count);
    for (uint32_t i = 0; i < out->count; i++) {
        rs_gm_id id;
        rs_gm_get_id(out->ids + (size_t)i * RS_GM_ID, &id);
        if (id.sn == 0 || id.sn >= RS_GM_SN_MOST)
            return false;
    }
    return true;
}
