/* Repairs on the wire (Ricochet, Sec. 4; docs/protocol.md): the ids of packets, and the XOR of their bodies. The check
 * is of what it names alone; packets that come out of it have their own. */
#ifndef RS_CORE_RICOCHET_WIRE_H
#define RS_CORE_RICOCHET_WIRE_H

#include "core/groups/wire.h"

#define RS_RICOCHET_KIND_REPAIR 2u
#define RS_RICOCHET_R_MAX 32u /* Data packets in one repair. */
#define RS_RICOCHET_REPAIR 16 /* Bytes in front of the ids. */
#define RS_RICOCHET_HEAD_MOST (RS_RICOCHET_REPAIR + RS_RICOCHET_R_MAX * RS_GM_ID)

typedef struct {
    rs_peer from;
    uint32_t count;
    const uint8_t *ids;
    const uint8_t *body; /* The XOR of the bodies, shorter ones filled up with zeros. */
    uint32_t length;
} rs_ricochet_repair;

void rs_ricochet_put_repair(uint8_t out[RS_RICOCHET_REPAIR], rs_peer from, uint32_t count, uint32_t length);
/* False if it is no repair. Its check is of the first rs_ricochet_head_length bytes. */
bool rs_ricochet_get_repair(const uint8_t *bytes, size_t length, rs_ricochet_repair *out);

static inline uint32_t rs_ricochet_head_length(uint32_t count) {
    return RS_RICOCHET_REPAIR + count * RS_GM_ID;
}

#endif
