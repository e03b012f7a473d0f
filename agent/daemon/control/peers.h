/* The servers this agent has to do with: their names, their numbers in the core, where their agents are reached. */
#ifndef RS_DAEMON_PEERS_H
#define RS_DAEMON_PEERS_H

#include "core/base/types.h"
#include "core/base/wire.h"

#define RS_PEERS_MAX 32768u /* as many receivers as a transfer may have, and as many again */

typedef struct {
    char name[RS_NAME_MAX + 1];
    uint32_t hash;    /* of the name */
    uint32_t address; /* IPv4, host order, as the manager tells it; 0 = it has not */
    uint16_t control_port;
    bool used;
    bool rumoured;         /* the address is what another agent said of it, and may be false */
    uint32_t rack;         /* the manager's number; 0 = not told */
    uint16_t outside_port; /* its datagrams come from there, by a translation of addresses; 0 = from its port */
    bool dials;            /* it connects, and cannot be connected to: its addresses are translated on the way */
    uint32_t claimed; /* where an agent of that name connected from while nobody had told its address; 0 = nowhere */
    uint32_t round_trip_us; /* the least of its newest connection; 0 = not known */
    uint32_t holds;         /* transfers and connections that speak of it: its number stays its own */
    uint64_t last_used;
    rs_peer next_named, next_at; /* in the same bucket */
} rs_peer_entry;

typedef struct {
    rs_peer_entry *entries;   /* grows; the rs_peer is the index */
    rs_peer *named, *located; /* first of each bucket, by name and by address; as many buckets as `room` */
    uint32_t room, given;     /* numbers below `given` were given once */
    uint32_t hand;            /* where the search for a number nobody holds goes on */
    uint64_t uses;
} rs_peers;

void rs_peers_free(rs_peers *peers);

/* The number of a server, given one if it has none; when there are RS_PEERS_MAX, one that nobody holds is given again.
 * RS_NO_PEER: the name is empty or too long, or all numbers are held, or out of memory. */
rs_peer rs_peers_number(rs_peers *peers, const char *name);
/* The number it has, or RS_NO_PEER. */
rs_peer rs_peers_find(const rs_peers *peers, const char *name);
/* Numbers of that name, however many came by it: the one after `after`; RS_NO_PEER: the first, or there are no more. */
rs_peer rs_peers_of_name(const rs_peers *peers, const char *name, rs_peer after);

/* A name is no secret. As long as the manager has not told where a server is, agents that connect from several
 * addresses by one name are servers of their own, each with a number: none keeps the others out, and none can speak
 * for another. Once the address is told there is one number, which the two functions above give. */

/* The number of an agent that connects from that address and says it is `name`: of the server whose address is told,
 * whether it is that one or not (look), else of that name at that address. RS_NO_PEER as above. */
rs_peer rs_peers_claim(rs_peers *peers, const char *name, uint32_t from);
/* The number of a server whose address is told: of the agent that connected from there by that name, if one did. The
 * caller notes where it is (rs_peers_told). */
rs_peer rs_peers_at(rs_peers *peers, const char *name, uint32_t address);
/* The manager says where the server of that number is; `rack` 0: it does not say that. */
void rs_peers_told(rs_peers *peers, rs_peer peer, uint32_t address, uint16_t control_port, uint32_t rack);
/* Who is at that address, by what was told; RS_NO_PEER: nobody. */
rs_peer rs_peers_located(const rs_peers *peers, uint32_t address);
/* The same; somebody whom nobody has named gets a number. It is the server's when that is named later. */
rs_peer rs_peers_locate(rs_peers *peers, uint32_t address, uint16_t control_port);
/* Never NULL for a number that was given. */
rs_peer_entry *rs_peers_entry(const rs_peers *peers, rs_peer peer);
const char *rs_peers_name(const rs_peers *peers, rs_peer peer);
/* False: it is known by its address alone. */
bool rs_peers_is_named(const rs_peers *peers, rs_peer peer);
/* The same; another agent says that it is called so. That is believed of somebody whom nobody has named, while no
 * server of that name is known to be elsewhere; the manager's word, and who connects from there, count for more. */
rs_peer rs_peers_heard(rs_peers *peers, const char *name, uint32_t address, uint16_t control_port);
/* Who was connected to says that it is called so: that is its name, if nobody has named who is there. */
void rs_peers_answers(rs_peers *peers, rs_peer peer, const char *name);
/* It has another name than it was called by. */
void rs_peers_rename(rs_peers *peers, rs_peer peer, const char *name);
void rs_peers_hold(rs_peers *peers, rs_peer peer);
void rs_peers_release(rs_peers *peers, rs_peer peer);

#endif
