/* RDCM's packets between peers, on RS_CH_PEER_DATAGRAM (docs/protocol.md): acknowledgements. Repairs are data
 * packets. */
#ifndef RS_CORE_RDCM_WIRE_H
#define RS_CORE_RDCM_WIRE_H

#include "core/base/types.h"

/* Of the wire. */
#define RS_ACK_HEADER 56
#define RS_ACK_SETTLED UINT16_MAX
#define RS_ACK_WORDS 48 /* of 64 sns each, at most, that one ACK tells of one by one */

enum {
    RS_ACK_TO_PREDECESSOR = 1, /* what is acknowledged need not be repaired */
    RS_ACK_TO_PARENT = 2,      /* somebody below has it */
    RS_ACK_WANTS_READY = 4,    /* the ring is new: can its predecessor repair? */
    RS_ACK_READY = 8,          /* to the successor: yes, and what follows is of no meaning */
    RS_ACK_LEFT = 16,          /* to a predecessor: of this one no repairs are needed any more */
    RS_ACK_BY_TREE = 32,       /* of late a packet came to this one by the tree: no link above it has failed */
    RS_ACK_GOES = 128,         /* to a predecessor: this one leaves the transfer, nothing is to be repaired to it */
    RS_ACK_STARVED = 64        /* to a predecessor: its successor has a tree, and nothing comes to this one */
};

typedef struct {
    uint8_t flags;    /* RS_ACK_* bits. */
    uint64_t nonce;   /* of the transfer, as in OPEN */
    uint64_t version; /* of the view it is sent by */
    uint64_t cum;     /* all below */
    uint64_t settled; /* what is below and not acknowledged was lost, rather than late: to be repaired at once. From cum
                          to cum + RS_ACK_SETTLED */
    uint64_t expected; /* HESN: up to which sn the sender may go, as far as the one acknowledging and those below are
                          concerned */
    uint64_t base;     /* first sn the map speaks of: a multiple of 64 */
    uint32_t words;
    uint64_t map[RS_ACK_WORDS]; /* bit i of word w set: base + 64 w + i */
} rs_ack;

/* Returns the bytes written, at most RS_ACK_HEADER + 8 * RS_ACK_WORDS. */
size_t rs_ack_encode(const rs_ack *ack, uint8_t *out);
bool rs_ack_decode(const uint8_t *bytes, size_t length, rs_ack *out);

#endif
