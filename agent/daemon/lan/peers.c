/* The agents of a LAN that this one has heard of. */
#include "daemon/lan/peers.h"

#include <string.h>

#include "daemon/units.h"

rs_lan_known *rs_lan_peer_at(rs_lan_known *peers, uint32_t address, uint16_t control_port) {
    for (uint32_t i = 0; i < RS_LAN_PEERS_MAX; i++)
        if (peers[i].used && peers[i].address == address && peers[i].control_port == control_port)
            return &peers[i];
    return NULL;
}

bool rs_lan_peer_is_at(const rs_lan_known *place, const rs_lan_known *peer) {
    return place->used && place->address == peer->address && place->control_port == peer->control_port;
}

bool rs_lan_peer_is_tried(const rs_lan_known *place, rs_time now, const rs_lan_known *peer, bool *direct) {
    bool tried = rs_lan_peer_is_at(place, peer) && place->multicast && place->multicast_until > now;
    *direct = tried && place->multicast > 0;
    return tried;
}

rs_lan_known *rs_lan_peer_room(rs_lan_known *peers) {
    rs_lan_known *oldest = &peers[0];
    for (uint32_t i = 0; i < RS_LAN_PEERS_MAX; i++) {
        if (!peers[i].used)
            return &peers[i];
        if (peers[i].heard < oldest->heard)
            oldest = &peers[i];
    }
    return oldest;
}

/* By the name of its agent, of its host, or its address; the one heard of last. */
rs_lan_known *rs_lan_peer_named(rs_lan_known *peers, rs_time now, const char *name, bool answered) {
    uint32_t address = 0;
    rs_lan_known *found = NULL;
    (void)rs_parse_address(name, &address);
    for (uint32_t i = 0; i < RS_LAN_PEERS_MAX; i++) {
        rs_lan_known *p = &peers[i];
        bool is_it = p->used && (p->has_cookie || !answered) && now - p->heard < RS_LAN_FRESH &&
                     (strcmp(p->name, name) == 0 || strcmp(p->host, name) == 0 || (address && p->address == address));
        /* of several agents at an address it is the one that receives */
        if (is_it && (!found || (p->receives && !found->receives) ||
                      (p->receives == found->receives && p->heard > found->heard)))
            found = p;
    }
    return found;
}

const rs_lan_known *rs_lan_peer_heard(rs_lan_known *peers, rs_time now, const rs_lan_message *m, uint32_t from,
                                      uint16_t port, bool answer) {
    rs_lan_known *p = rs_lan_peer_at(peers, from, m->control_port);
    bool fresh = !p;
    if (!p || p->boot != m->boot) {
        p = p ? p : rs_lan_peer_room(peers);
        *p = (rs_lan_known){.used = true, .address = from, .control_port = m->control_port, .boot = m->boot};
    }
    memcpy(p->name, m->name, sizeof p->name);
    memcpy(p->host, m->host, sizeof p->host);
    p->mtu = m->mtu;
    p->receives = m->flags & RS_LAN_RECEIVES;
    p->heard = now;
    if (answer) {
        p->lan_port = port;
        p->cookie = m->cookie;
        p->has_cookie = true;
        p->answered = now;
    }
    return fresh ? p : NULL;
}

rs_lan_peer_info rs_lan_peer_describe(const rs_lan_known *p, rs_time now) {
    return (rs_lan_peer_info){.name = p->name,
                              .host = p->host,
                              .address = p->address,
                              .control_port = p->control_port,
                              .mtu = p->mtu,
                              .receives = p->receives && p->has_cookie &&
                                                  now - p->heard<RS_LAN_FRESH, .multicast = p->multicast_until> now
                                              ? p->multicast
                                              : 0,
                              .heard = now - p->heard};
}
