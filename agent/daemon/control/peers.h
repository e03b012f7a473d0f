/* The servers this agent has to do with: their names, their numbers in the core, where their agents are reached. */
#ifndef RS_DAEMON_PEERS_H
#define RS_DAEMON_PEERS_H

#include "core/base/types.h"
#include "core/base/wire.h"

#define RS_PEERS_MAX 4096u

typedef struct {
    char name[RS_NAME_MAX + 1];
    bool used;
    uint32_t hash;    /* of the name */
    uint32_t address; /* IPv4, host order, as the manager tells it; 0 = it has not */
    uint16_t control_port;
    uint32_t claimed; /* where an agent of that name connected from while nobody had told its address; 0 = nowhere */
    uint32_t holds;   /* transfers and connections that speak of it: its number stays its own */
    uint64_t last_used;
} rs_peer_entry;

typedef struct {
    rs_peer_entry *entries; /* grows; the rs_peer is the index */
    uint32_t room;
    uint64_t uses;
} rs_peers;

void rs_peers_free(rs_peers *peers);

/* The number of a server, given one if it has none; when there are RS_PEERS_MAX, a number nobody holds is given anew.
 * RS_NO_PEER: the name is empty or too long, or all numbers are held, or memory is short. */
rs_peer rs_peers_number(rs_peers *peers, const char *name);
/* The number it has, or RS_NO_PEER. */
rs_peer rs_peers_find(const rs_peers *peers, const char *name);

/* A name is no secret. As long as the manager has not told where a server is, agents that connect from several
 * addresses by one name are servers of their own, each with a number: none keeps the others out, and none can speak
 * for another. Once the address is told there is one number, which the two functions above give. */

/* The number of an agent that connects from that address and says it is `name`: of the server whose address is told,
 * whether it is that one or not (look), else of that name at that address. RS_NO_PEER as above. */
rs_peer rs_peers_claim(rs_peers *peers, const char *name, uint32_t from);
/* The number of a server whose address is told: of the agent that connected from there by that name, if one did. The
 * caller notes the address in its entry. */
rs_peer rs_peers_at(rs_peers *peers, const char *name, uint32_t address);
/* Never NULL for a number that was given. */
rs_peer_entry *rs_peers_entry(const rs_peers *peers, rs_peer peer);
const char *rs_peers_name(const rs_peers *peers, rs_peer peer);
void rs_peers_hold(rs_peers *peers, rs_peer peer);
void rs_peers_release(rs_peers *peers, rs_peer peer);

#endif
