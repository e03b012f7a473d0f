/* Datagrams of group messages (docs/protocol.md, Group messages). Decoders take exactly what encoders make and never
 * read beyond the length they are given. All numbers are little endian.
 *
 * Each datagram has a check of 32 bits, since UDP's is weak, is not always computed, and says nothing of what an XOR of
 * packets gives. That of a data packet is in its body, and is of its id, too: it goes with the packet through repairs,
 * and whatever a receiver puts together is compared with what the sender made. It must not be linear as a CRC is: the
 * XOR of three packets would pass for a fourth. That of a repair is of what it names alone; the packets that come out
 * of it have their own. */
#ifndef RS_CORE_MESSAGES_WIRE_H
#define RS_CORE_MESSAGES_WIRE_H

#include "core/groups/messages.h"

#define RS_GM_VERSION 3 /* 2: data had another check; 1: incarnations were times of day, and anybody was believed */
#define RS_GM_HEADER 24 /* of a data packet, before its body */
#define RS_GM_BODY 20   /* head of the body: its check first */
#define RS_GM_DATA_LEAST (RS_GM_HEADER + RS_GM_BODY)
#define RS_GM_PAYLOAD_LEAST 64 /* what a packet must have room for */
#define RS_GM_PART 12          /* in front of a part of a large message */
#define RS_GM_PACK_LENGTH 2    /* in front of each small message that shares a packet */
#define RS_GM_ID 20            /* a packet's id in a repair */
#define RS_GM_KIND_REGIONS 16u /* kinds from here on are of regions, and say which; by multicast this one alone goes */
#define RS_GM_REGION_AT 16
#define RS_GM_CHECK_AT 12 /* where all but data packets have their check of 32 bits */
#define RS_GM_NAK 16
#define RS_GM_NAK_ITEM 24
#define RS_GM_NAK_ITEMS 48
#define RS_GM_NAK_MOST (RS_GM_NAK + RS_GM_NAK_ITEMS * RS_GM_NAK_ITEM)
#define RS_GM_STATE 20
#define RS_GM_STATE_ITEM 28
#define RS_GM_STATE_ITEMS 16
#define RS_GM_STATE_MOST (RS_GM_STATE + RS_GM_STATE_ITEMS * RS_GM_STATE_ITEM)
#define RS_GM_VIEWS 3                 /* views a packet tells of */
#define RS_GM_STAMP RS_MESSAGES_STAMP /* in front of a signed packet's payload */
#define RS_GM_SN_MOST (UINT64_C(1) << 60)
#define RS_GM_BACK_MOST UINT8_MAX

typedef enum {
    RS_GM_KIND_DATA = 1, /* 2 is of an engine (engine.h), as are all that are not named here */
    RS_GM_KIND_NAK = 3,
    RS_GM_KIND_STATE = 4,
    RS_GM_KIND_AGAIN = 5, /* a data packet that was asked for */
    RS_GM_KIND_QUERY = 6  /* how far is the peer in these groups? As a STATE, of what the asker does not know yet */
} rs_gm_kind;

typedef enum {
    RS_GM_SINGLE = 0, /* one message */
    RS_GM_PACK = 1,   /* several small ones, each behind its length (2 bytes) */
    RS_GM_PARTS = 2   /* a part of a large one, behind an rs_gm_part */
} rs_gm_form;

/* Names a packet everywhere (Ricochet, Sec. 4). */
typedef struct {
    rs_peer sender;
    uint32_t incarnation;
    rs_message_group group;
    uint64_t sn;
} rs_gm_id;

/* Under which views a sender published its newest packets, the newest first: whoever joined with a version finds where
 * the stream begins for it. */
typedef struct {
    struct {
        uint32_t version; /* low 32 bits */
        uint8_t back;     /* how many packets before this one the first under that version was, or RS_GM_BACK_MOST */
    } view[RS_GM_VIEWS];
    uint32_t count; /* at least 1 */
} rs_gm_views;

/* Head of a body: what a repair restores besides the payload. */
typedef struct {
    uint16_t length; /* payload bytes behind it, a stamp among them */
    uint8_t form;
    bool stamped; /* The payload begins with RS_GM_STAMP bytes that say who made it. */
    rs_gm_views views;
} rs_gm_body;

typedef struct {
    uint32_t total, offset; /* bytes of the message */
    uint16_t index, count;  /* of its packets, whose sns are consecutive */
} rs_gm_part;

typedef struct {
    rs_gm_id id;
    uint32_t mask; /* bit i: sn + 1 + i is asked for too */
} rs_gm_nak_item;

/* How far a sender is in one of its groups. */
typedef struct {
    rs_message_group group;
    uint64_t sn; /* of the newest packet */
    rs_gm_views views;
} rs_gm_state_item;

/* Magic, version and kind: the first four bytes of each datagram. */
void rs_gm_put_kind(uint8_t *out, uint8_t kind);
void rs_gm_put_header(uint8_t out[RS_GM_HEADER], rs_gm_kind kind, const rs_gm_id *id);
void rs_gm_put_body(uint8_t out[RS_GM_BODY], const rs_gm_body *body);
void rs_gm_put_pack_length(uint8_t out[RS_GM_PACK_LENGTH], uint32_t length);
uint32_t rs_gm_get_pack_length(const uint8_t *bytes);
void rs_gm_put_part(uint8_t out[RS_GM_PART], const rs_gm_part *part);
void rs_gm_put_id(uint8_t out[RS_GM_ID], const rs_gm_id *id);
void rs_gm_put_nak(uint8_t out[RS_GM_NAK], rs_peer from, uint32_t count);
void rs_gm_put_nak_item(uint8_t out[RS_GM_NAK_ITEM], const rs_gm_nak_item *item);
/* RS_GM_KIND_STATE or RS_GM_KIND_QUERY */
void rs_gm_put_positions(uint8_t out[RS_GM_STATE], rs_gm_kind kind, rs_peer sender, uint32_t incarnation,
                         uint32_t count);
void rs_gm_put_state(uint8_t out[RS_GM_STATE], rs_peer sender, uint32_t incarnation, uint32_t count);
void rs_gm_put_state_item(uint8_t out[RS_GM_STATE_ITEM], const rs_gm_state_item *item);
/* Puts the check into a datagram of any kind that is otherwise done; an engine's may be of its first `length` bytes. */
void rs_gm_seal(uint8_t *bytes, size_t length);

/* Of any version: the third byte behind the magic says which; 0 if it is none of group messages. */
unsigned rs_gm_get_version(const uint8_t *bytes, size_t length);
/* Kind of a datagram of this version; 0 if it is none. */
unsigned rs_gm_get_kind(const uint8_t *bytes, size_t length);
/* Of a datagram that a decoder below, or an engine's, took: it is as it was sealed. */
bool rs_gm_is_intact(const uint8_t *bytes, size_t length);
/* A body with its head, that was checked for its form: it is what the sender of that id sealed. */
bool rs_gm_is_body_intact(const rs_gm_id *id, const uint8_t *bytes, size_t length);
/* A whole data packet, DATA or AGAIN. */
bool rs_gm_get_data(const uint8_t *bytes, size_t length, rs_gm_id *id, rs_gm_body *body);
/* A body that is `length` bytes with its head; looks at the payload's form, not at its check. */
bool rs_gm_get_body(const uint8_t *bytes, size_t length, rs_gm_body *out);
/* Of a body that was checked before. */
uint32_t rs_gm_body_length(const uint8_t *bytes);
rs_gm_form rs_gm_body_form(const uint8_t *bytes);
/* A checked body that has a stamp, for whoever makes or judges that. */
rs_messages_stamped rs_gm_stamped(const uint8_t id[RS_GM_ID], const uint8_t *body);
uint32_t rs_gm_body_stamp(const uint8_t *bytes); /* bytes of its stamp; 0: it has none */
rs_gm_views rs_gm_body_views(const uint8_t *bytes);
/* The payload has grown. */
void rs_gm_put_body_length(uint8_t *bytes, uint32_t length);
rs_gm_part rs_gm_get_part(const uint8_t *bytes);
void rs_gm_get_id(const uint8_t bytes[RS_GM_ID], rs_gm_id *out);
/* Number of items, 0 if it is no NAK. */
uint32_t rs_gm_get_nak(const uint8_t *bytes, size_t length, rs_peer *from);
void rs_gm_get_nak_item(const uint8_t *bytes, uint32_t index, rs_gm_nak_item *out);
/* Number of items, 0 if it is no STATE. */
uint32_t rs_gm_get_state(const uint8_t *bytes, size_t length, rs_peer *sender, uint32_t *incarnation);
uint32_t rs_gm_get_positions(const uint8_t *bytes, size_t length, rs_gm_kind kind, rs_peer *sender,
                             uint32_t *incarnation);
/* Of a STATE or QUERY that was checked. */
void rs_gm_get_state_item(const uint8_t *bytes, uint32_t index, rs_gm_state_item *out);

#endif
