/* What the engine for wide areas says in packets of its own (docs/wan.md, "Packets"): a receiver's status, which holds
 * its consolidated NACKs, one for a section; and a report of the sender's in the header of each data packet. */
#ifndef RS_CORE_WAN_WIRE_H
#define RS_CORE_WAN_WIRE_H

#include "core/base/types.h"
#include "core/base/wire.h"

/* Of the wire. */
#define RS_WAN_SECTION 1024 /* fragments of a section (docs/wan.md) */
#define RS_WAN_STATUS_HEADER 96
#define RS_WAN_NACK_HEADER 10
#define RS_WAN_NACKS 3 /* in one status: so many of whole sections fit into RS_HEADER_MAX */

/* All that one receiver misses of one section. */
typedef struct {
    uint64_t base;                   /* the first fragment that is missing */
    uint16_t bits;                   /* from that to the last one, at most to the section's end */
    uint8_t map[RS_WAN_SECTION / 8]; /* bit i % 8 of byte i / 8 set: fragment base + i is missing */
} rs_wan_nack;

typedef struct {
    uint64_t nonce; /* of the transfer */
    uint32_t session;
    uint32_t receivers; /* that its NACKs speak for */
    uint64_t next;      /* one past the newest fragment it has seen sent for the first time; 0: none */
    uint64_t cum;       /* all below are here */
    uint64_t received;  /* packets sent for the first time that it has counted, */
    uint64_t repairs;   /* repairs of any kind, */
    uint64_t marked;    /* packets that a switch had marked (ECN), */
    uint64_t dropped;   /* and packets that its socket dropped */
    uint64_t stamp_us;  /* the sender's, in the newest packet */
    uint64_t at;        /* ns of the receiver's clock when that came */
    uint32_t waited_us; /* from then to now */
    uint32_t nack_count;
    rs_wan_nack nacks[RS_WAN_NACKS]; /* one for each section with losses */
} rs_wan_status;

/* Returns the bytes written, at most RS_HEADER_MAX. */
size_t rs_wan_encode_status(const rs_wan_status *status, uint8_t out[RS_HEADER_MAX]);
/* False: malformed. */
bool rs_wan_decode_status(const uint8_t *bytes, size_t length, rs_wan_status *out);

#define RS_WAN_STAMP_BITS 40 /* docs/wan.md */

/* In `aux` of a data packet, with RS_DATA_LIMIT. Times are rounded up to 1/8 of themselves. */
typedef struct {
    uint64_t stamp_us; /* the sender's clock, RS_WAN_STAMP_BITS of it */
    rs_time grtt;      /* the group's round trip: the longest of those that count */
    uint32_t group;    /* receivers, rounded up to a power of two */
    bool repair;       /* it was sent before */
} rs_wan_word;

uint64_t rs_wan_pack(const rs_wan_word *word);
rs_wan_word rs_wan_unpack(uint64_t aux);

#endif
