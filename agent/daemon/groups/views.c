/* Views of message groups: what the manager tells, put together, listened to, and given to the engine. */
#include "daemon/groups/views.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/groups/kept.h"
#include "daemon/groups/ordered.h"
#include "daemon/groups/sockets.h"
#include "daemon/groups/stream.h"
#include "daemon/units.h"

/* The servers of message groups: by the manager's numbers, and by the addresses that packets carry. */

static uint32_t place(uint32_t number) {
    return number * UINT32_C(2654435761) >> 20 & (RS_GROUP_BUCKETS - 1);
}

rs_group_peer *rs_group_peer_by_id(const rs_groups *groups, int32_t id) {
    rs_group_peer *p = groups->peers_by_id[place((uint32_t)id)];
    while (p && p->id != id)
        p = p->next_by_id;
    return p;
}

rs_group_peer *rs_group_peer_by_address(const rs_groups *groups, uint32_t address) {
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
    rs_group_peer *p = rs_group_peer_by_address(groups, address);
    if (p || address != groups->agent->options.address)
        return p;
    return make(groups, address, groups->agent->options.server);
}

rs_group_peer *rs_group_peer_learn(rs_groups *groups, const rs_manager_group_peer *told) {
    rs_group_peer *p = rs_group_peer_by_id(groups, told->id);
    if (p && p->address != told->address) { /* the topology has changed: its old address is nobody's name now */
        unlink_id(groups, p);
        p->id = -1;
        p = NULL;
    }
    if (!p)
        p = rs_group_peer_by_address(groups, told->address);
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

/* ------------------------------------------------------------------------------------------------------- views */

/* No channel of the group is used or listened at any more; where it listened, it may do so a little longer. */
static void leave(rs_groups *g, rs_group_place *places, uint32_t count, bool linger) {
    for (uint32_t i = 0; i < count; i++) {
        if (places[i].listening)
            rs_channel_ignore(g, places[i].channel, linger);
        rs_channel_unuse(g, places[i].channel);
    }
    free(places);
}

void rs_group_leave_channels(rs_groups *g, rs_local_group *group, bool linger) {
    leave(g, group->places, group->place_count, linger);
    group->places = NULL;
    group->place_count = 0;
}

static int compare(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

static bool contains(const int32_t *ids, uint32_t count, int32_t id) {
    return count > 0 && bsearch(&id, ids, count, sizeof *ids, compare) != NULL;
}

/* The ids of `old` that are in neither of two lists, and those of `more`, ascending. NULL: no memory. */
static int32_t *merge(const int32_t *old, uint32_t old_count, const int32_t *away[2], const uint32_t away_count[2],
                      const int32_t *more, uint32_t more_count, uint32_t *count) {
    uint32_t gone_count = away_count[0] + away_count[1], kept = 0, unique = 0;
    int32_t *all = malloc(((size_t)old_count + more_count + 1) * sizeof *all);
    int32_t *gone = malloc(((size_t)gone_count + 1) * sizeof *gone);
    if (!all || !gone) {
        free(all);
        free(gone);
        return NULL;
    }
    for (uint32_t i = 0; i < gone_count; i++)
        gone[i] = i < away_count[0] ? away[0][i] : away[1][i - away_count[0]];
    qsort(gone, gone_count, sizeof *gone, compare);
    for (uint32_t i = 0; i < old_count; i++)
        if (!contains(gone, gone_count, old[i]))
            all[kept++] = old[i];
    for (uint32_t i = 0; i < more_count; i++)
        all[kept++] = more[i];
    qsort(all, kept, sizeof *all, compare);
    for (uint32_t i = 0; i < kept; i++)
        if (unique == 0 || all[unique - 1] != all[i])
            all[unique++] = all[i];
    free(gone);
    *count = unique;
    return all;
}

/* `view`'s lists put into those that were: who is in one of them now is in the other no more. */
static bool take_members(rs_local_group *group, const rs_manager_group_view *view) {
    uint32_t members = view->full ? 0 : group->member_count, senders = view->full ? 0 : group->sender_count;
    int32_t *now[2];
    uint32_t count[2] = {0, 0};
    now[0] =
        merge(group->members, members, (const int32_t *[]){view->gone, view->senders},
              (const uint32_t[]){view->gone_count, view->sender_count}, view->members, view->member_count, &count[0]);
    now[1] =
        merge(group->senders, senders, (const int32_t *[]){view->gone, view->members},
              (const uint32_t[]){view->gone_count, view->member_count}, view->senders, view->sender_count, &count[1]);
    if (!now[0] || !now[1]) {
        free(now[0]);
        free(now[1]);
        return false;
    }
    free(group->members);
    free(group->senders);
    group->members = now[0];
    group->member_count = count[0];
    group->senders = now[1];
    group->sender_count = count[1];
    return true;
}

/* Listens where a member is to, and nowhere else. */
static bool listen_or_not(rs_groups *g, rs_group_place *places, uint32_t count, bool member, char *error) {
    for (uint32_t i = 0; i < count; i++) {
        rs_group_place *p = &places[i];
        bool listen = member && p->wanted;
        if (listen && !p->listening && !rs_channel_listen(g, p->channel, error))
            return false;
        if (!listen && p->listening)
            rs_channel_ignore(g, p->channel, false);
        p->listening = listen;
    }
    return true;
}

static void want(rs_group_place *places, uint32_t count, const rs_manager_group_view *view) {
    if (!view->says_listens && !view->group)
        return;
    for (uint32_t i = 0; i < count; i++)
        places[i].wanted = !view->says_listens;
    for (uint32_t i = 0; i < view->listen_count; i++)
        if (view->listens[i] >= 0 && (uint32_t)view->listens[i] < count)
            places[view->listens[i]].wanted = true;
}

static bool has_channels(const rs_groups *g, const rs_local_group *group, const rs_manager_group_view *view) {
    bool same = group->place_count == view->address_count;
    for (uint32_t i = 0; i < view->address_count && same; i++) {
        const rs_group_channel *c = &g->channels[group->places[i].channel];
        same = c->address == view->addresses[i] && c->port == view->port;
    }
    return same;
}

/* If all are in use, who uses one no more gives it up sooner: else who opens a thousand groups, and then a thousand
 * others, would be refused. */
static rs_group use_channel(rs_groups *g, const rs_local_group *group, uint32_t address, uint16_t port) {
    rs_group channel = rs_channel_use(g, address, port);
    while (channel == RS_NO_GROUP && (rs_group_end_unused(g, group) || rs_channel_end_linger(g)))
        channel = rs_channel_use(g, address, port);
    return channel;
}

/* Moves to the view's addresses. False, as text: they cannot be listened at; the group is as it was. */
static bool take_channels(rs_groups *g, rs_local_group *group, const rs_manager_group_view *view, bool member,
                          char *error) {
    if (view->group ? view->in_regions : group->in_regions) {
        rs_group_leave_channels(g, group, true);
        return true;
    }
    if (rs_group_is_viewed(group) && (!view->group || has_channels(g, group, view))) {
        want(group->places, group->place_count, view);
        return listen_or_not(g, group->places, group->place_count, member, error);
    }
    rs_group_place *places = calloc(view->address_count, sizeof *places);
    uint32_t count = 0;
    snprintf(error, RS_IO_ERROR_MAX, places ? "this server uses %u multicast addresses already" : "out of memory",
             RS_CHANNELS_MOST);
    for (; places && count < view->address_count; count++) {
        places[count].channel = use_channel(g, group, view->addresses[count], view->port);
        if (places[count].channel == RS_NO_GROUP)
            break;
    }
    if (!places || count < view->address_count) {
        leave(g, places, count, false);
        return false;
    }
    want(places, count, view);
    if (!listen_or_not(g, places, count, member, error)) {
        leave(g, places, count, false);
        return false;
    }
    rs_group_leave_channels(g, group, true);
    group->places = places;
    group->place_count = count;
    return true;
}

/* False: out of memory. */
static bool take_regions(rs_groups *g, rs_local_group *group, const rs_manager_group_view *view) {
    uint32_t *regions = malloc((view->region_count + 1u) * sizeof *regions);
    if (!regions)
        return false;
    for (uint32_t i = 0; i < view->region_count; i++)
        regions[i] = (uint32_t)view->regions[i];
    free(group->regions);
    group->regions = regions;
    group->region_count = view->region_count;
    if (group->in_regions != view->in_regions)
        rs_flow_end(rs_group_sum(g, group), &group->flow);
    group->in_regions = view->in_regions;
    return true;
}

static void take_facts(rs_local_group *group, const rs_manager_group_view *view) {
    const rs_manager_group_options *o = &view->options;
    snprintf(group->protocol, sizeof group->protocol, "%s", o->protocol);
    snprintf(group->order, sizeof group->order, "%s", o->order);
    if (!rs_group_delivery_parse(group->order, &group->delivery))
        rs_log(RS_LOG_WARNING, "groups", "group=%s order %s is none that this agent has: install the manager's release",
               group->name, rs_quote(o->order));
    snprintf(group->options, sizeof group->options, "%s", o->options);
}

/* Addresses and incarnations of those in a list, behind what is there; who is not in the topology any more is left
 * out. Returns how many there are then. */
static uint32_t look_up(const rs_groups *g, const int32_t *ids, uint32_t id_count, rs_peer *peers,
                        uint32_t *incarnations, uint32_t count) {
    for (uint32_t i = 0; i < id_count; i++) {
        const rs_group_peer *peer = rs_group_peer_by_id(g, ids[i]);
        if (!peer)
            continue;
        peers[count] = peer->address;
        incarnations[count++] = peer->incarnation;
    }
    return count;
}

/* The engine gets the view. The reason in `error` if it does not take it. */
static bool hand_in(rs_groups *g, rs_local_group *group, bool rejoined, char *error) {
    size_t most = (size_t)group->member_count + group->sender_count + 1;
    rs_peer *peers = calloc(most, sizeof *peers);
    uint32_t *incarnations = calloc(most, sizeof *incarnations), self = g->agent->options.address;
    rs_group *more = calloc(group->place_count + 1u, sizeof *more);
    rs_time now = rs_agent_now(g->agent);
    rs_messages_view view = {.group = group->id,
                             .version = group->version,
                             .channel = group->place_count ? group->places[0].channel : RS_NO_GROUP,
                             .more_channels = more,
                             .more_count = group->place_count ? group->place_count - 1 : 0,
                             .regions = group->regions,
                             .region_count = group->in_regions ? group->region_count : 0,
                             .members = peers,
                             .incarnations = incarnations,
                             .rejoined = rejoined,
                             .whole = group->delivery.guaranteed,
                             .order = group->delivery.fifo ? RS_ORDER_FIFO : RS_ORDER_NONE,
                             .protocol = group->protocol,
                             .options = group->options};
    rs_status status = peers && incarnations && more ? RS_OK : RS_ERR_MEMORY;
    for (uint32_t i = 1; i < group->place_count && status == RS_OK; i++)
        more[i - 1] = group->places[i].channel;
    group->standing = RS_GROUP_OUTSIDE;
    if (status == RS_OK) {
        view.member_count = look_up(g, group->members, group->member_count, peers, incarnations, 0);
        view.publishers = peers + view.member_count;
        view.publisher_count =
            look_up(g, group->senders, group->sender_count, peers, incarnations, view.member_count) - view.member_count;
        for (uint32_t i = 0; i < view.member_count; i++)
            group->standing = peers[i] == self ? RS_GROUP_MEMBER : group->standing;
        status = rs_messages_set_view(g->node, now, &view);
    }
    if (status == RS_ERR_STATE) { /* versions started over */
        rs_ordered_forget(g, group);
        rs_messages_forget(g->node, now, group->id);
        status = rs_messages_set_view(g->node, now, &view);
    }
    for (const rs_group_stream *s = group->streams; s && status == RS_OK; s = rs_stream_next(s))
        if (!rs_stream_waits(s))
            (void)rs_stream_ask_completion(s); /* the group may be new to the engine */
    if (status == RS_OK && group->delivery.guaranteed && rs_group_is_member(group))
        status = rs_ordered_view(g, group, peers, view.member_count);
    else
        rs_ordered_forget(g, group);
    if (rs_group_is_member(group) && rs_flow_chosen(self, group->id, peers, view.member_count))
        group->standing = RS_GROUP_REPORTER;
    rs_flow_view(&group->flow, self, group->id, peers, view.member_count);
    free(peers);
    free(incarnations);
    free(more);
    if (status != RS_OK)
        snprintf(error, RS_IO_ERROR_MAX, "%s cannot be used here (%s, by its agent): %s", group->name,
                 g->agent->options.server, rs_messages_refusal(g->node));
    return status == RS_OK;
}

/* Programs that waited for it, and for what it says. */
static void open_streams(rs_local_group *group) {
    group->held++;
    for (rs_group_stream *s = group->streams, *next; s; s = next) {
        next = rs_stream_next(s);
        if (rs_stream_waits(s) && (!rs_stream_receives(s) || rs_group_is_member(group)))
            rs_stream_open(s);
    }
    group->held--;
}

static bool take_view(rs_groups *g, rs_local_group *group, const rs_manager_group_view *view, char *error) {
    bool member = false;
    if (!take_members(group, view)) {
        snprintf(error, RS_IO_ERROR_MAX, "out of memory");
        return false;
    }
    for (uint32_t i = 0; i < group->member_count && !member; i++) {
        const rs_group_peer *peer = rs_group_peer_by_id(g, group->members[i]);
        member = peer && peer->address == g->agent->options.address;
    }
    bool ok = take_channels(g, group, view, member, error);
    if (ok && !rs_group_is_viewed(group)) {
        group->id = view->id;
        group->next_by_id = g->by_id[view->id % RS_GROUP_BUCKETS];
        g->by_id[view->id % RS_GROUP_BUCKETS] = group;
        group->standing = RS_GROUP_OUTSIDE;
    }
    if (view->group) {
        take_facts(group, view);
        if (!take_regions(g, group, view)) {
            snprintf(error, RS_IO_ERROR_MAX, "out of memory");
            return false;
        }
    }
    group->version = view->version;
    return ok && hand_in(g, group, view->rejoined, error);
}

void rs_groups_view(void *context, const rs_manager_group_view *view) {
    rs_agent *agent = context;
    rs_groups *g = agent->groups;
    char error[RS_IO_ERROR_MAX];
    rs_local_group *group = view->group ? rs_groups_by_name(g, view->group) : rs_groups_by_id(g, view->id);
    g->answered_at = rs_agent_now(agent);
    if (g->held_checked) /* those of all its groups come together */
        g->held_until = 0;
    if (!group)
        return; /* left meanwhile */
    if (rs_group_is_viewed(group) && group->id != view->id) {
        rs_kept_end(g, group, true);
        rs_group_forget(g, group); /* deleted, and made again */
    }
    if (view->full ? !view->group : (!rs_group_is_viewed(group) || view->base_version != group->version)) {
        if (rs_group_is_viewed(group) && view->version <= group->version)
            return; /* an old one */
        rs_group_tell(g, group, group->receiver_count > 0 ? RS_MANAGER_GROUP_JOIN : RS_MANAGER_GROUP_USE, false);
        return;
    }
    bool again = rs_group_is_viewed(group) && view->full && view->version == group->version;
    if (!again && !take_view(g, group, view, error)) {
        rs_log(RS_LOG_WARNING, "groups", "group=%s %s", group->name, error);
        rs_group_forget(g, group);
        rs_group_refuse(group, false, ROSTRUM_ERR_DENIED, error);
        return;
    }
    rs_log(RS_LOG_DEBUG, "groups", "group=%s id=%u view=%llu members=%u", group->name, group->id,
           (unsigned long long)group->version, group->member_count);
    group->asked = false;
    rs_group_tell_role(g, group);
    open_streams(group);
}

/* ----------------------------------------------------------------------------------------------------- regions */

static void drop_region(rs_groups *g, rs_local_region *region) {
    const rs_messages_region none = {
        .region = region->region, .version = region->version + 1, .protocol = region->protocol};
    if (region->version > 0)
        rs_messages_set_region(g->node, rs_agent_now(g->agent), &none);
    if (region->listening)
        rs_channel_ignore(g, region->channel, true);
    if (region->channel != RS_NO_GROUP)
        rs_channel_unuse_later(g, region->channel); /* the core's view before is not over yet */
    free(region->nodes);
    *region = g->regions[--g->region_count];
}

static rs_local_region *region_of(rs_groups *g, uint32_t number) {
    for (uint32_t i = 0; i < g->region_count; i++)
        if (g->regions[i].region == number)
            return &g->regions[i];
    return NULL;
}

/* NULL: there are too many. */
static rs_local_region *make_region(rs_groups *g, uint32_t number) {
    if (g->region_count == g->region_room) {
        uint32_t room = g->region_room ? 2 * g->region_room : 16;
        rs_local_region *more = room <= RS_REGIONS_MOST ? realloc(g->regions, room * sizeof *more) : NULL;
        if (!more)
            return NULL;
        g->regions = more;
        g->region_room = room;
    }
    g->regions[g->region_count] = (rs_local_region){.region = number, .channel = RS_NO_GROUP};
    return &g->regions[g->region_count++];
}

/* The view's channel, listened at if this server is in the region. */
static bool take_region_channel(rs_groups *g, rs_local_region *region, const rs_manager_group_region *view, bool inside,
                                char *error) {
    rs_group channel = view->address ? use_channel(g, NULL, view->address, view->port) : RS_NO_GROUP;
    bool listen = inside && channel != RS_NO_GROUP;
    if (view->address && channel == RS_NO_GROUP) {
        snprintf(error, RS_IO_ERROR_MAX, "this server uses %u multicast addresses already", RS_CHANNELS_MOST);
        return false;
    }
    if (listen && !rs_channel_listen(g, channel, error)) {
        rs_channel_unuse(g, channel);
        return false;
    }
    if (region->listening)
        rs_channel_ignore(g, region->channel, region->channel != channel);
    if (region->channel != RS_NO_GROUP)
        rs_channel_unuse_later(g, region->channel); /* the core's view before is not over yet */
    region->channel = channel;
    region->listening = listen;
    return true;
}

static bool take_region(rs_groups *g, rs_local_region *region, const rs_manager_group_region *view, char *error) {
    uint32_t old = view->full ? 0 : region->node_count, count = 0, alive = 0, self = g->agent->options.address;
    const int32_t *away[2] = {view->gone, NULL};
    int32_t *nodes =
        merge(region->nodes, old, away, (const uint32_t[]){view->gone_count, 0}, view->nodes, view->node_count, &count);
    rs_peer *peers = calloc(count + 1u, sizeof *peers);
    bool inside = false, good = nodes && peers;
    snprintf(error, RS_IO_ERROR_MAX, "out of memory");
    for (uint32_t i = 0; good && i < count; i++) {
        const rs_group_peer *peer = rs_group_peer_by_id(g, nodes[i]);
        if (!peer)
            continue; /* it is not in the topology any more */
        inside |= peer->address == self;
        peers[alive++] = peer->address;
    }
    good = good && take_region_channel(g, region, view, inside, error);
    if (good) {
        const rs_messages_region told = {.protocol = view->protocol,
                                         .options = view->options,
                                         .region = view->region,
                                         .version = view->version,
                                         .channel = region->channel,
                                         .nodes = peers,
                                         .node_count = alive};
        good = rs_messages_set_region(g->node, rs_agent_now(g->agent), &told) == RS_OK;
        if (!good)
            snprintf(error, RS_IO_ERROR_MAX, "%s", rs_messages_refusal(g->node));
    }
    free(peers);
    if (!good) {
        free(nodes);
        return false;
    }
    free(region->nodes);
    region->nodes = nodes;
    region->node_count = count;
    region->version = view->version;
    snprintf(region->protocol, sizeof region->protocol, "%s", view->protocol);
    return true;
}

/* A group that names the region is asked for again: its regions come with it, whole. */
static void ask_for_region(rs_groups *g, uint32_t number) {
    for (rs_local_group *group = g->groups; group; group = group->next)
        for (uint32_t i = 0; i < group->region_count; i++)
            if (group->regions[i] == number) {
                rs_group_tell(g, group, group->receiver_count > 0 ? RS_MANAGER_GROUP_JOIN : RS_MANAGER_GROUP_USE,
                              false);
                return;
            }
}

void rs_groups_region(void *context, const rs_manager_group_region *view) {
    rs_agent *agent = context;
    rs_groups *g = agent->groups;
    char error[RS_IO_ERROR_MAX] = "";
    rs_local_region *region = region_of(g, view->region);
    if (view->full && view->node_count == 0) {
        if (region)
            drop_region(g, region);
        return;
    }
    if (region && region->version == view->version)
        return;
    if (!view->full && (!region || region->version != view->base_version)) {
        ask_for_region(g, view->region);
        return;
    }
    if (!region && !(region = make_region(g, view->region)))
        snprintf(error, sizeof error, "this server is in %u regions already, or out of memory", g->region_count);
    else if (take_region(g, region, view, error))
        error[0] = '\0';
    else if (region->version == 0)
        drop_region(g, region);
    if (error[0])
        rs_log(RS_LOG_WARNING, "groups", "region=%u version=%llu %s", view->region, (unsigned long long)view->version,
               error);
    else
        rs_log(RS_LOG_DEBUG, "groups", "region=%u version=%llu servers=%u", region->region,
               (unsigned long long)region->version, region->node_count);
}

void rs_group_regions_free(rs_groups *g) {
    for (uint32_t i = 0; i < g->region_count; i++)
        free(g->regions[i].nodes);
    free(g->regions);
}

void rs_groups_peer(void *context, const rs_manager_group_peer *peer) {
    rs_agent *agent = context;
    if (!rs_group_peer_learn(agent->groups, peer))
        rs_log_limited(&agent->groups->complaints, 5, RS_LOG_WARNING, "groups", "no room to know server %s",
                       rs_quote(peer->server));
}

void rs_groups_refused(void *context, const char *name, const char *reason) {
    rs_agent *agent = context;
    rs_local_group *group = rs_groups_by_name(agent->groups, name);
    if (!group)
        return;
    rs_log(RS_LOG_INFO, "groups", "group=%s refused: %s", name, rs_quote(reason));
    /* A program that asked for other options does not take the group from those that are in it. */
    bool deleted = rs_group_is_viewed(group) && !group->asked;
    if (!rs_group_is_viewed(group) || deleted) {
        rs_kept_end(agent->groups, group, deleted);
        rs_group_forget(agent->groups, group);
        group->told = RS_TOLD_NOTHING;
        rs_group_refuse(group, false, ROSTRUM_ERR_DENIED, reason);
    } else {
        rs_group_refuse(group, true, ROSTRUM_ERR_DENIED, reason);
    }
    group->asked = false;
}
