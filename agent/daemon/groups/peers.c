/* The servers of message groups: by the manager's numbers, and by the addresses that packets carry. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/groups/state.h"
#include "daemon/units.h"

static uint32_t place(uint32_t number) {
    return number * UINT32_C(2654435761) >> 20 & (RS_GROUP_BUCKETS - 1);
}

rs_group_peer *rs_group_peer_by_id(const rs_groups *groups, int32_t id) {
    rs_group_peer *p = groups->peers_by_id[place((uint32_t)id)];
    while (p && p->id != id)
        p = p->next_by_id;
    return p;
}

static rs_group_peer *find_address(const rs_groups *groups, uint32_t address) {
    rs_group_peer *p = groups->peers_by_address[place(address)];
    while (p && p->address != address)
        p = p->next_by_address;
    return p;
}

static void link_address(rs_groups *groups, rs_group_peer *p) {
    rs_group_peer **head = &groups->peers_by_address[place(p->address)];
    p->next_by_address = *head;
    *head = p;
}

static void link_id(rs_groups *groups, rs_group_peer *p) {
    rs_group_peer **head = &groups->peers_by_id[place((uint32_t)p->id)];
    p->next_by_id = *head;
    *head = p;
}

static void unlink_address(rs_groups *groups, const rs_group_peer *p) {
    for (rs_group_peer **at = &groups->peers_by_address[place(p->address)]; *at; at = &(*at)->next_by_address)
        if (*at == p) {
            *at = p->next_by_address;
            return;
        }
}

static void unlink_id(rs_groups *groups, const rs_group_peer *p) {
    for (rs_group_peer **at = &groups->peers_by_id[place((uint32_t)p->id)]; *at; at = &(*at)->next_by_id)
        if (*at == p) {
            *at = p->next_by_id;
            return;
        }
}

static rs_group_peer *make(rs_groups *groups, uint32_t address, const char *name) {
    rs_group_peer *p = groups->peer_count < RS_GROUP_PEERS_MOST ? calloc(1, sizeof *p) : NULL;
    if (p)
        p->name = strdup(name);
    if (!p || !p->name) {
        free(p);
        return NULL;
    }
    p->id = -1;
    p->index = groups->peer_count++;
    p->address = address;
    p->port = groups->agent->options.control_port;
    link_address(groups, p);
    return p;
}

rs_group_peer *rs_group_peer_at(rs_groups *groups, uint32_t address) {
    rs_group_peer *p = find_address(groups, address);
    if (p || address != groups->agent->options.address)
        return p;
    return make(groups, address, groups->agent->options.server);
}

rs_group_peer *rs_group_peer_learn(rs_groups *groups, const rs_link_group_peer *told) {
    rs_group_peer *p = rs_group_peer_by_id(groups, told->id);
    if (p && p->address != told->address) { /* the topology has changed: its old address is nobody's name now */
        unlink_id(groups, p);
        p->id = -1;
        p = NULL;
    }
    if (!p)
        p = find_address(groups, told->address);
    if (!p)
        p = make(groups, told->address, told->server);
    if (!p)
        return NULL;
    if (p->id != told->id) {
        if (p->id >= 0)
            unlink_id(groups, p);
        p->id = told->id;
        link_id(groups, p);
    }
    p->port = told->port;
    if (told->boot_id)
        p->incarnation = rs_messages_incarnation(told->boot_id);
    char *name = strcmp(p->name, told->server) == 0 ? NULL : strdup(told->server);
    if (name) {
        free(p->name);
        p->name = name;
    }
    return p;
}

void rs_group_peers_free(rs_groups *groups) {
    for (uint32_t i = 0; i < RS_GROUP_BUCKETS; i++)
        while (groups->peers_by_address[i]) {
            rs_group_peer *p = groups->peers_by_address[i];
            unlink_address(groups, p);
            free(p->name);
            free(p);
        }
}
