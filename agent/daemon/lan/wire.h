/* Messages by which agents without a manager find each other and set up the paths of a LAN (docs/lan.md). All have one
 * size, so that no answer is longer than what asked for it. */
#ifndef RS_DAEMON_LAN_WIRE_H
#define RS_DAEMON_LAN_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/groups/engine.h"
#include "rostrum/types.h"

#define RS_LAN_MESSAGE 192u       /* bytes of each message, */
#define RS_LAN_GROUP_MESSAGE 704u /* but for those of message groups */
#define RS_LAN_NAME 63u           /* bytes of a name: letters, digits and . _ : - */

typedef enum {
    RS_LAN_QUERY = 1,  /* who is there? */
    RS_LAN_HERE = 2,   /* the answer, with a cookie for whoever asked from that address; an announcement has none */
    RS_LAN_LISTEN = 3, /* count what comes of test `nonce` by group and port */
    RS_LAN_HEARD = 4,  /* the answer: so many, small and full */
    RS_LAN_TEST = 5,   /* what is counted: padded to a full packet, or not */
    RS_LAN_RELAY = 6,  /* take the group's packets by unicast too, hand them on to `next`; port 0: to nobody */
    RS_LAN_RELAYS = 7, /* the answer: by this port, and whether `next` is known to take them */
    RS_LAN_HOP = 8,    /* from a relay to its next: do you take the group's packets by this port? */
    RS_LAN_HOP_OK = 9, /* the answer */
    RS_LAN_END = 10,   /* the group's path is over */
    RS_LAN_GROUP = 11  /* what the agent that speaks is in a message group (rs_lan_group_message) */
} rs_lan_type;

#define RS_LAN_RECEIVES 1u /* HERE: objects may be sent to it by those who ask for anybody */
#define RS_LAN_PARENT 2u   /* RELAY: packets come by unicast; else by the group */
#define RS_LAN_READY 4u    /* RELAYS: all that was asked for holds. HEARD: it listens */
#define RS_LAN_FULL 8u     /* TEST: a full-sized packet */
#define RS_LAN_MEMBER 16u  /* GROUP: it receives the group's messages */
#define RS_LAN_SENDER 32u  /* GROUP: it publishes without receiving; neither: it is not in the group */
#define RS_LAN_HEARS 64u   /* GROUP: multicast from whom this goes to has come lately */

typedef struct {
    rs_lan_type type;
    uint16_t flags;
    uint64_t nonce;         /* of the question; the answer repeats it */
    uint64_t cookie;        /* that the one asked gave to the one who asks */
    uint64_t boot;          /* of the agent that speaks */
    uint32_t group;         /* IPv4, host order, as all addresses here */
    uint16_t data_port;     /* of the group */
    uint16_t control_port;  /* of the agent that speaks */
    uint32_t next;          /* RELAY: whom packets are handed on to */
    uint16_t next_port;     /* RELAY, HOP: by which port it takes them; RELAYS: by which this one takes them */
    uint16_t next_lan_port; /* RELAY: where `next` answers to HOP */
    uint16_t mtu;           /* of the data NIC, 65535 at most */
    uint8_t small, full;    /* HEARD */
    char name[RS_LAN_NAME + 1], host[RS_LAN_NAME + 1];
} rs_lan_message;

/* In the head: `nonce` 0, or what the one it goes to has asked to be repeated; `cookie`: to be repeated in an answer,
 * 0: none is asked for; `group` and `data_port`: the group's. */
typedef struct {
    rs_lan_message head;
    uint32_t id;      /* the group's number in its packets: rs_lan_group_id of its name */
    uint64_t version; /* of the newest view that the agent that speaks knows of */
    int64_t founded;  /* by the founder's clock, ns since the epoch: of two groups of one name the older one holds */
    uint32_t founder; /* IPv4, host order; decides between two of one age */
    char group[ROSTRUM_GROUP_NAME_MAX + 1], protocol[32], order[8], options[RS_GROUP_OPTIONS_TEXT];
} rs_lan_group_message;

void rs_lan_group_encode(const rs_lan_group_message *message, uint8_t out[RS_LAN_GROUP_MESSAGE]);
/* As rs_lan_decode. */
bool rs_lan_group_decode(const uint8_t *bytes, size_t length, rs_lan_group_message *out);
uint32_t rs_lan_group_id(const char *group);

void rs_lan_encode(const rs_lan_message *message, uint8_t out[RS_LAN_MESSAGE]);
/* False: it is none of ours, or a field is out of its range. What follows the message's own bytes is padding. */
bool rs_lan_decode(const uint8_t *bytes, size_t length, rs_lan_message *out);
/* A name as it may stand in a message. */
bool rs_lan_name_ok(const char *name);

#endif
