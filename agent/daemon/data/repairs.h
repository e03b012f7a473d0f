/* Repair packets of one look at the data channel. They are handed to the core when all other payloads of that look are
 * in their places, for that is what they are combined with. */
#ifndef RS_DAEMON_REPAIRS_H
#define RS_DAEMON_REPAIRS_H

#include "core/base/types.h"
#include "core/base/wire.h"

typedef struct rs_repairs rs_repairs;

/* A repair packet: its whole header and its payload. */
typedef struct {
    rs_group group;
    uint8_t header[RS_REPAIR_HEADER];
    const uint8_t *payload;
    uint32_t payload_length;
} rs_repair_packet;

rs_repairs *rs_repairs_new(void); /* NULL: out of memory */
void rs_repairs_free(rs_repairs *repairs);

/* The first RS_DATA_HEADER bytes of a repair packet came: room for the `rest` that is to follow. NULL: too short, too
 * long, or too many at once. */
uint8_t *rs_repairs_take(rs_repairs *repairs, rs_group group, const uint8_t *header, uint32_t rest);
/* The packets taken whose rest is there, in order of arrival; false when there is none any more. */
bool rs_repairs_next(rs_repairs *repairs, rs_repair_packet *out);

#endif
