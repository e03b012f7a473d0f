/* Datagrams of QSM (docs/qsm.md). Each begins as all of group messages do, names its region view, and has its check
 * where rs_gm_seal puts it. Decoders take exactly what encoders make, and never read beyond the length given. */
#ifndef RS_CORE_QSM_WIRE_H
#define RS_CORE_QSM_WIRE_H

#include "core/groups/wire.h"

#define RS_QSM_KIND_DATA 16u      /* a packet of a region: messages of many groups */
#define RS_QSM_KIND_TOKEN 17u     /* Sec. 2.3.2 */
#define RS_QSM_KIND_TOKEN_ACK 18u /* it was taken */
#define RS_QSM_KIND_PULL 19u      /* packets are asked for of another node of the region */
#define RS_QSM_KIND_ACK 20u /* to a sender: the collective one of the region's leader; of partitions' when it begins */
#define RS_QSM_KIND_NAK 21u /* from a partition's leader to a sender: what all of the partition miss */
#define RS_QSM_KIND_POSITION 22u /* from a sender without ACKs to the region's leader: how far it is */

#define RS_QSM_HEAD 32u                     /* of all of them: who (4), incarnation (4), check, region, version, 0 */
#define RS_QSM_DATA_HEAD (RS_QSM_HEAD + 8u) /* sn */
#define RS_QSM_INNER (2u + 12u)             /* before each message's body: length; group, sn */
#define RS_QSM_CARRIED (RS_QSM_DATA_HEAD + RS_QSM_INNER) /* bytes before the body of a message that goes alone */
#define RS_QSM_RANGES 16u /* ranges of packets in one list at most (Sec. 2.3.3: bounded) */
#define RS_QSM_RANGE 10u  /* first (8), how many (2) */
#define RS_QSM_ACK_LENGTH (RS_QSM_HEAD + 48u)
#define RS_QSM_POSITION_LENGTH (RS_QSM_HEAD + 16u) /* sender, incarnation, sn */
#define RS_QSM_TOKEN_HEAD (RS_QSM_HEAD + 20u)
#define RS_QSM_ENTRY 88u /* of one sender, without ranges */
#define RS_QSM_TOKEN_ACK_LENGTH (RS_QSM_HEAD + 12u)
#define RS_QSM_SN_MOST (UINT64_C(1) << 60)

/* What all datagrams begin with. `who` is whose packet it is, or who says it. */
typedef struct {
    rs_peer who;
    uint32_t incarnation;
    uint32_t region;
    uint64_t version;
} rs_qsm_head;

/* Packets of one partition, numbered among themselves: the q-th is packet q * partitions + partition. Disjoint,
 * ascending. What is listed is complete below `end`: a longer list was cut there. */
typedef struct {
    uint32_t count;
    uint64_t end;
    struct {
        uint64_t first;
        uint32_t count;
    } range[RS_QSM_RANGES];
} rs_qsm_ranges;

/* What a token says of one sender (Sec. 2.3.2 to 2.4). */
typedef struct {
    rs_peer sender;
    uint32_t incarnation;
    uint64_t cutoff; /* The newest packet heard of in the region in the last round: what is not here is missing. */
    uint64_t newest; /* The same in this round, so far. */
    uint64_t stable, cached;         /* The last round's: all nodes have it up to here; and all that cache it do. */
    uint64_t now_stable, now_cached; /* This round's, so far. */
    uint64_t behind;    /* The most packets that a node had not heard of, and one before it in the round, or the round
                         * before, had: what waits before it, however long a round takes. */
    uint32_t rate;      /* The least rate, packets a second, at which a node receives new packets of it. */
    uint16_t missing;   /* The most packets that a node found missing. */
    rs_qsm_ranges naks; /* What the node before misses of its partition's packets. */
    rs_qsm_ranges all;  /* What all of the partition miss, so far. */
} rs_qsm_entry;

typedef struct {
    rs_peer from; /* The node that passes it on. */
    rs_peer leader;
    uint32_t round;
    uint8_t part, parts; /* Senders are split over several tokens when one datagram is too small. */
    uint8_t phase;       /* 0: it goes round a partition; 1: it comes back to that partition's leader. */
    bool incomplete;     /* A node was passed over: what all have is not known. */
    bool copy;           /* For a node that was passed over: it is not passed on. */
    uint32_t rate;       /* The least rate at which a node receives, of all senders together. */
    uint32_t count;      /* Entries. */
} rs_qsm_token;

typedef struct {
    uint64_t stable, cached;
    uint64_t behind; /* as of a token */
    uint32_t round, senders;
    uint32_t rate;        /* of this sender */
    uint32_t share;       /* mu_rec, Sec. 2.4: packets a second, the sender's fair share */
    uint32_t missing;     /* the most packets that a node found missing of it in this round */
    uint32_t interval_us; /* between rounds, or as long as this one took; 0: a node took no part in it; or */
} rs_qsm_ack;
#define RS_QSM_GOES_ON UINT32_MAX /* ... the round goes on: a partition's leader says what is known so far */

void rs_qsm_put_head(uint8_t *out, uint8_t kind, const rs_qsm_head *head);
/* False: it is too short, or of no version. */
bool rs_qsm_get_head(const uint8_t *bytes, size_t length, rs_qsm_head *out);

void rs_qsm_put_sn(uint8_t *datagram, uint64_t sn); /* of a data packet, or a position */
uint64_t rs_qsm_get_sn(const uint8_t *datagram);

/* One message's place in a data packet; false at its end, or (`*well` is false) where it is malformed. */
typedef struct {
    rs_message_group group;
    uint64_t sn;
    const uint8_t *body;
    uint32_t length;
} rs_qsm_inner;
void rs_qsm_put_inner(uint8_t *out, const rs_qsm_inner *inner);
bool rs_qsm_get_inner(const uint8_t *bytes, size_t length, size_t *at, rs_qsm_inner *out, bool *well);

size_t rs_qsm_ranges_length(const rs_qsm_ranges *ranges);
size_t rs_qsm_put_ranges(uint8_t *out, const rs_qsm_ranges *ranges);
/* Bytes used; 0: malformed. */
size_t rs_qsm_get_ranges(const uint8_t *bytes, size_t length, rs_qsm_ranges *out);

void rs_qsm_put_token(uint8_t *datagram, const rs_qsm_token *token);
bool rs_qsm_get_token(const uint8_t *datagram, size_t length, rs_qsm_token *out);
size_t rs_qsm_put_entry(uint8_t *out, const rs_qsm_entry *entry);
size_t rs_qsm_get_entry(const uint8_t *bytes, size_t length, rs_qsm_entry *out);

/* A list of packets of one partition of a sender's: PULL and NAK. */
#define RS_QSM_LIST_HEAD (RS_QSM_HEAD + 12u)
size_t rs_qsm_put_list(uint8_t *datagram, rs_peer sender, uint32_t incarnation, uint32_t partition,
                       const rs_qsm_ranges *ranges);
bool rs_qsm_get_list(const uint8_t *datagram, size_t length, rs_peer *sender, uint32_t *incarnation,
                     uint32_t *partition, rs_qsm_ranges *out);
void rs_qsm_put_position(uint8_t *datagram, rs_peer sender, uint32_t incarnation, uint64_t sn);
bool rs_qsm_get_position(const uint8_t *datagram, size_t length, rs_peer *sender, uint32_t *incarnation, uint64_t *sn);

void rs_qsm_put_ack(uint8_t *datagram, const rs_qsm_ack *ack);
bool rs_qsm_get_ack(const uint8_t *datagram, size_t length, rs_qsm_ack *out);

#endif
