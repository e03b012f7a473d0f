/* The agents of a LAN that this one has heard of: a table of RS_LAN_PEERS_MAX. */
#ifndef RS_DAEMON_LAN_PEERS_H
#define RS_DAEMON_LAN_PEERS_H

#include "daemon/lan/wire.h"
#include "daemon/loop.h"

#define RS_LAN_PEERS_MAX 1024u        /* the one that was not heard of for the longest time gives way */
#define RS_LAN_FRESH (60 * RS_SECOND) /* what was found out holds so long */

typedef struct {
    bool used;
    char name[RS_LAN_NAME + 1], host[RS_LAN_NAME + 1];
    uint32_t address;
    uint16_t lan_port, control_port, mtu;
    bool receives;
    uint64_t boot;
    bool has_cookie;
    uint64_t cookie;         /* that it takes orders by from here */
    rs_time heard, answered; /* `answered`: with the cookie */
    rs_time multicast_heard; /* a multicast message of its came; 0: none has */
    int multicast;           /* as in rs_lan_peer_info; holds until `multicast_until` */
    rs_time multicast_until;
} rs_lan_known;

/* The same, for metrics and programs. */
typedef struct {
    const char *name, *host;
    uint32_t address;
    uint16_t control_port;
    uint32_t mtu;
    bool receives;
    int multicast; /* 1: it gets there, -1: it does not, -2: small packets alone do, 0: not tested lately */
    rs_time heard; /* ago */
} rs_lan_peer_info;

/* Who answered, or announced itself; `answer`: to a question of ours. NULL if it was known, as it is. */
const rs_lan_known *rs_lan_peer_heard(rs_lan_known *peers, rs_time now, const rs_lan_message *here, uint32_t from,
                                      uint16_t port, bool answer);
rs_lan_peer_info rs_lan_peer_describe(const rs_lan_known *peer, rs_time now);
rs_lan_known *rs_lan_peer_at(rs_lan_known *peers, uint32_t address, uint16_t control_port); /* or NULL */
/* Whether it is known of that agent, which was found at `place`, and not for too long, if multicast gets there:
 * `direct`. One that gave way to another is not known. */
bool rs_lan_peer_is_tried(const rs_lan_known *place, rs_time now, const rs_lan_known *peer, bool *direct);
/* The place has that agent, as ever. */
bool rs_lan_peer_is_at(const rs_lan_known *place, const rs_lan_known *peer);
/* A place for another one. */
rs_lan_known *rs_lan_peer_room(rs_lan_known *peers);
/* By the name of its agent, of its host, or its address; the one heard of last. NULL: none; with `answered`, none that
 * takes orders. */
rs_lan_known *rs_lan_peer_named(rs_lan_known *peers, rs_time now, const char *name, bool answered);

#endif
