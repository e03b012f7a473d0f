#include "cluster.h"

#include <stdio.h>

#include "core/base/heap.h"

#define GROUPS_MOST 4096
#define SECOND_CHANNEL (1u << 24) /* added to the number of a group */

typedef struct {
    rs_time at;
    uint64_t order;
    rs_peer from, to;
    uint32_t length;
    bool corrupt;
    uint8_t *bytes;
} packet;

typedef struct {
    rs_peer *members, *publishers;
    uint32_t *incarnations; /* of all nodes the same */
    uint32_t count, publisher_count;
    uint64_t version;
    rs_messages_view like;
    char options[RS_GROUP_OPTIONS_TEXT]; /* of `like` */
    rs_group second;                     /* channel */
    uint64_t included, *received_by;
    bool *knows, *was;   /* by node: it has a view; it is or was a member */
    uint64_t *last_seen; /* by node and sender: number of the last message, for order */
} group_state;

struct cluster {
    cluster_options options;
    rs_time now;
    uint64_t random, order;
    rs_messages **nodes;
    group_state *groups;
    packet *heap;
    uint32_t heap_count, heap_room;
    cluster_message *messages;
    uint32_t message_count, message_room;
    cluster_account account;
    uint64_t *repairs_to, on_second;
    uint64_t *complete;          /* by node and group */
    bool *cut, *halted, *behind; /* by node; `behind`: it has not heard of a view while it was halted */
};

static uint64_t next_random(cluster *c) {
    c->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = c->random;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint32_t cluster_random(cluster *c, uint32_t bound) {
    return (uint32_t)((next_random(c) >> 32) * bound >> 32);
}

static bool chance(cluster *c, double probability) {
    return (double)(next_random(c) >> 11) < probability * 9007199254740992.0;
}

uint64_t cluster_seed(void) {
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)(uintptr_t)&seed * UINT64_C(2654435761) >> 16;
    print_message("SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

cluster *cluster_new(const cluster_options *options) {
    cluster *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->options = *options;
    c->random = options->seed;
    c->now = 1000 * MS;
    c->nodes = calloc(options->nodes, sizeof *c->nodes);
    c->groups = calloc(GROUPS_MOST, sizeof *c->groups);
    c->repairs_to = calloc(options->nodes, sizeof *c->repairs_to);
    c->complete = calloc((size_t)options->nodes * GROUPS_MOST, sizeof *c->complete);
    c->cut = calloc(options->nodes, sizeof *c->cut);
    c->halted = calloc(options->nodes, sizeof *c->halted);
    c->behind = calloc(options->nodes, sizeof *c->behind);
    for (uint32_t i = 0; i < options->nodes; i++) {
        rs_messages_config config = options->config;
        config.self = i;
        config.seed = next_random(c);
        if (config.incarnation == 0)
            config.incarnation = 7;
        if (config.receive_bytes == 0)
            config.receive_bytes = 4 << 20;
        if (config.send_bytes == 0)
            config.send_bytes = 2 << 20;
        if (config.deliveries == 0)
            config.deliveries = 4096;
        c->nodes[i] = rs_messages_new(&config, &rs_heap);
        assert_non_null(c->nodes[i]);
    }
    return c;
}

void cluster_free(cluster *c) {
    for (uint32_t i = 0; i < c->options.nodes; i++)
        rs_messages_free(c->nodes[i]);
    for (uint32_t i = 0; i < GROUPS_MOST; i++) {
        free(c->groups[i].members);
        free(c->groups[i].publishers);
        free(c->groups[i].incarnations);
        free(c->groups[i].knows);
        free(c->groups[i].received_by);
        free(c->groups[i].was);
        free(c->groups[i].last_seen);
    }
    for (uint32_t i = 0; i < c->heap_count; i++)
        free(c->heap[i].bytes);
    for (uint32_t i = 0; i < c->message_count; i++) {
        free(c->messages[i].due);
        free(c->messages[i].had);
    }
    free(c->heap);
    free(c->messages);
    free(c->groups);
    free(c->repairs_to);
    free(c->complete);
    free(c->cut);
    free(c->halted);
    free(c->behind);
    free(c->nodes);
    free(c);
}

rs_messages *cluster_node(cluster *c, uint32_t number) {
    return c->nodes[number];
}

rs_time cluster_now(const cluster *c) {
    return c->now;
}

void cluster_cut(cluster *c, rs_peer peer, bool cut) {
    c->cut[peer] = cut;
}

void cluster_halt(cluster *c, rs_peer peer, bool halted) {
    c->cut[peer] = c->halted[peer] = halted;
}

uint64_t cluster_complete(const cluster *c, rs_peer peer, rs_message_group group) {
    return c->complete[peer * GROUPS_MOST + group];
}

void cluster_loss(cluster *c, double loss) {
    c->options.loss = loss;
}

void cluster_corrupt(cluster *c, double corrupted) {
    c->options.corrupted = corrupted;
}

/* Packets by time, then in the order they were sent. */
static bool before(const packet *a, const packet *b) {
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void heap_push(cluster *c, packet p) {
    if (c->heap_count == c->heap_room) {
        c->heap_room = c->heap_room ? c->heap_room * 2 : 1024;
        c->heap = realloc(c->heap, c->heap_room * sizeof *c->heap);
        assert_non_null(c->heap);
    }
    uint32_t at = c->heap_count++;
    for (; at > 0 && before(&p, &c->heap[(at - 1) / 2]); at = (at - 1) / 2)
        c->heap[at] = c->heap[(at - 1) / 2];
    c->heap[at] = p;
}

static packet heap_pop(cluster *c) {
    packet first = c->heap[0], last = c->heap[--c->heap_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < c->heap_count && before(&c->heap[child + 1], &c->heap[child]))
            child++;
        if (child >= c->heap_count || !before(&c->heap[child], &last))
            break;
        c->heap[at] = c->heap[child];
        at = child;
    }
    c->heap[at] = last;
    return first;
}

static void travel(cluster *c, rs_peer from, rs_peer to, const uint8_t *bytes, uint32_t length, bool data) {
    if (c->cut[from] || c->cut[to])
        return;
    if ((data || !c->options.loss_of_data_only) && chance(c, c->options.loss)) {
        c->account.packets_lost += data;
        return;
    }
    uint32_t copies = chance(c, c->options.duplicated) ? 2 : 1;
    for (uint32_t i = 0; i < copies; i++) {
        packet p = {.at = c->now + c->options.delay, .order = c->order++, .from = from, .to = to, .length = length};
        if (c->options.jitter)
            p.at += (rs_time)(next_random(c) % (uint64_t)c->options.jitter);
        p.bytes = malloc(length);
        assert_non_null(p.bytes);
        memcpy(p.bytes, bytes, length);
        p.corrupt = c->options.corrupted > 0 && chance(c, c->options.corrupted);
        if (p.corrupt)
            p.bytes[cluster_random(c, length)] ^= (uint8_t)(1u << cluster_random(c, 8));
        heap_push(c, p);
    }
}

static void look_at_repair(cluster *c, rs_peer to, const uint8_t *bytes, uint32_t length) {
    rs_ricochet_repair repair;
    if (!rs_ricochet_get_repair(bytes, length, &repair))
        return;
    c->repairs_to[to]++;
    for (uint32_t i = 0; i < repair.count; i++) {
        rs_gm_id id;
        rs_gm_get_id(repair.ids + i * RS_GM_ID, &id);
        c->groups[id.group].included++;
    }
}

static void drain_packets(cluster *c, rs_peer from) {
    rs_messages_out out;
    uint8_t bytes[65536];
    while (rs_messages_poll_tx(c->nodes[from], c->now, &out)) {
        uint32_t length = 0;
        for (uint32_t i = 0; i < out.piece_count; i++) {
            memcpy(bytes + length, out.piece[i].bytes, out.piece[i].length);
            length += out.piece[i].length;
        }
        unsigned kind = rs_gm_get_kind(bytes, length);
        bool data = kind == RS_GM_KIND_DATA || kind == RS_QSM_KIND_DATA;
        if (out.channel == RS_CH_PEER_DATAGRAM) {
            assert_true(out.peer < c->options.nodes && out.peer != from);
            look_at_repair(c, out.peer, bytes, length);
            travel(c, from, out.peer, bytes, length, false);
            continue;
        }
        const group_state *group = &c->groups[out.group % SECOND_CHANNEL]; /* channels are numbered like groups */
        c->on_second += out.group >= SECOND_CHANNEL;
        for (uint32_t i = 0; i < group->count; i++) {
            if (group->members[i] != from)
                travel(c, from, group->members[i], bytes, length, data);
        }
    }
}

static void fill(uint8_t *bytes, uint32_t number, uint32_t length) {
    for (uint32_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(i < 4 ? number >> 8 * i : number * 31 + i * 7);
}

static void delivered(cluster *c, rs_peer to, const rs_messages_event *event) {
    uint32_t number = 0;
    uint8_t *expected = malloc(event->length + 1);
    for (uint32_t i = 0; i < 4 && i < event->length; i++)
        number |= (uint32_t)event->bytes[i] << 8 * i;
    cluster_message *message = number < c->message_count ? &c->messages[number] : NULL;
    if (message)
        fill(expected, number, event->length);
    if (!message || message->length != event->length || message->group != event->group ||
        message->sender != event->sender || memcmp(expected, event->bytes, event->length) != 0) {
        c->account.wrong++;
        free(expected);
        return;
    }
    free(expected);
    group_state *group = &c->groups[event->group];
    uint64_t *last = &group->last_seen[to * c->options.nodes + event->sender];
    if (group->like.order == RS_ORDER_FIFO && number + 1 <= *last)
        c->account.out_of_order++;
    *last = number + 1;
    message->had[to]++;
    c->account.by_via[event->via]++;
    c->account.late_sum[event->via] += event->late;
    c->account.slow += event->late > 250 * MS;
    if (c->now - message->at > c->account.slowest)
        c->account.slowest = c->now - message->at;
}

static void drain_events(cluster *c, rs_peer node) {
    rs_messages_event event;
    while (rs_messages_poll_event(c->nodes[node], &event)) {
        if (event.kind == RS_MESSAGES_DELIVER)
            delivered(c, node, &event);
        else if (event.kind == RS_MESSAGES_COMPLETE)
            c->complete[node * GROUPS_MOST + event.group] = event.sn;
        else
            c->account.lost_events += event.count;
    }
}

/* All that know the group but are not in it may publish to it. */
static void name_publishers(cluster *c, group_state *group, rs_messages_view *view) {
    free(group->publishers);
    group->publishers = malloc(c->options.nodes * sizeof *group->publishers);
    if (!group->incarnations) {
        group->incarnations = malloc(c->options.nodes * sizeof *group->incarnations);
        for (uint32_t i = 0; i < c->options.nodes; i++)
            group->incarnations[i] = c->options.config.incarnation ? c->options.config.incarnation : 7;
    }
    view->incarnations = group->incarnations;
    group->publisher_count = 0;
    for (uint32_t i = 0; i < c->options.nodes; i++) {
        bool member = false;
        for (uint32_t k = 0; k < group->count; k++)
            member |= group->members[k] == i;
        if (group->knows[i] && !member && !c->cut[i])
            group->publishers[group->publisher_count++] = i;
    }
    view->publishers = group->publishers;
    view->publisher_count = group->publisher_count;
}

static bool is_publisher(const group_state *group, rs_peer peer) {
    for (uint32_t i = 0; i < group->publisher_count; i++)
        if (group->publishers[i] == peer)
            return true;
    return false;
}

/* It is no more a member: what it has not got it need not get. */
static void nothing_is_due(cluster *c, rs_message_group id, rs_peer peer) {
    for (uint32_t i = 0; i < c->message_count; i++)
        if (c->messages[i].group == id && !c->messages[i].had[peer])
            c->messages[i].due[peer] = 0;
}

void cluster_view(cluster *c, rs_message_group id, const rs_peer *members, uint32_t count,
                  const rs_messages_view *like) {
    assert_true(id < GROUPS_MOST);
    group_state *group = &c->groups[id];
    if (!group->knows) {
        group->knows = calloc(c->options.nodes, sizeof *group->knows);
        group->received_by = calloc(c->options.nodes, sizeof *group->received_by);
        group->was = calloc(c->options.nodes, sizeof *group->was);
        group->last_seen = calloc((size_t)c->options.nodes * c->options.nodes, sizeof *group->last_seen);
    }
    rs_messages_view view = *like;
    snprintf(group->options, sizeof group->options, "%s", like->options ? like->options : "");
    view.options = group->options;
    group->second = id + SECOND_CHANNEL;
    view.more_channels = &group->second;
    view.more_count = 1;
    rs_peer *copy = malloc((count + 1) * sizeof *copy);
    bool *before = calloc(c->options.nodes, sizeof *before);
    if (count)
        memcpy(copy, members, count * sizeof *copy);
    for (uint32_t i = 0; i < group->count; i++)
        before[group->members[i]] = true;
    free(group->members);
    group->members = copy;
    group->count = count;
    group->like = view;
    view.group = view.channel = id;
    view.version = ++group->version;
    view.members = copy;
    view.member_count = count;
    for (uint32_t i = 0; i < count; i++)
        group->knows[copy[i]] = group->was[copy[i]] = true;
    name_publishers(c, group, &view);
    for (uint32_t i = 0; i < c->options.nodes; i++) {
        view.rejoined = !before[i];
        c->behind[i] = c->halted[i];
        if (c->halted[i] && before[i] && !cluster_is_member(c, id, i))
            nothing_is_due(c, id, i);
        else if (group->knows[i] && !c->halted[i])
            assert_int_equal(rs_messages_set_view(c->nodes[i], c->now, &view), RS_OK);
        drain_packets(c, i);
    }
    free(before);
}

bool cluster_is_member(const cluster *c, rs_message_group id, rs_peer peer) {
    for (uint32_t i = 0; i < c->groups[id].count; i++) {
        if (c->groups[id].members[i] == peer)
            return true;
    }
    return false;
}

/* The next version, of the same members: who knows the group besides is a publisher. */
static void view_again(cluster *c, rs_message_group id) {
    group_state *group = &c->groups[id];
    rs_messages_view view = group->like;
    view.group = view.channel = id;
    view.version = ++group->version;
    view.members = group->members;
    view.member_count = group->count;
    name_publishers(c, group, &view);
    for (uint32_t i = 0; i < c->options.nodes; i++)
        if (group->knows[i])
            assert_int_equal(rs_messages_set_view(c->nodes[i], c->now, &view), RS_OK);
}

/* All that know the group get the change; those that do not, the whole. */
static void change(cluster *c, rs_message_group id, rs_peer peer, bool join) {
    group_state *group = &c->groups[id];
    rs_peer *members = malloc((group->count + 1) * sizeof *members);
    uint32_t count = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        if (group->members[i] != peer)
            members[count++] = group->members[i];
    }
    if (join)
        members[count++] = peer;
    free(group->members);
    group->members = members;
    group->count = count;
    group->version++;
    rs_messages_view view = group->like;
    view.group = view.channel = id;
    view.version = group->version;
    view.members = members;
    view.member_count = count;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < group->publisher_count; i++)
        if (group->publishers[i] != peer)
            group->publishers[kept++] = group->publishers[i];
    view.publishers = group->publishers;
    view.publisher_count = group->publisher_count = kept;
    view.incarnations = group->incarnations;
    for (uint32_t i = 0; i < c->options.nodes; i++) {
        if (group->knows[i])
            assert_int_equal(rs_messages_change_view(c->nodes[i], c->now, id, view.version - 1, view.version, &peer,
                                                     join, &peer, !join),
                             RS_OK);
        else if (i == peer && join)
            assert_int_equal(rs_messages_set_view(c->nodes[i], c->now, &view), RS_OK);
        drain_packets(c, i);
    }
    group->knows[peer] = group->was[peer] = true;
    if (!join)
        nothing_is_due(c, id, peer);
}

void cluster_join(cluster *c, rs_message_group group, rs_peer peer) {
    change(c, group, peer, true);
}

void cluster_leave(cluster *c, rs_message_group group, rs_peer peer) {
    change(c, group, peer, false);
    view_again(c, group); /* agents stay publishers for a while: what they published may be on its way */
}

void cluster_move(cluster *c, rs_message_group id) {
    rs_peer peer = cluster_random(c, c->options.nodes);
    if (cluster_is_member(c, id, peer) && c->groups[id].count > 2)
        cluster_leave(c, id, peer);
    else if (!c->groups[id].was[peer])
        cluster_join(c, id, peer);
}

void cluster_random_groups(cluster *c, uint32_t groups, uint32_t size, const rs_messages_view *like) {
    uint32_t n = c->options.nodes;
    rs_peer *all = malloc(n * sizeof *all);
    for (uint32_t id = 0; id < groups; id++) {
        for (uint32_t i = 0; i < n; i++)
            all[i] = i;
        for (uint32_t i = 0; i < size; i++) {
            uint32_t at = i + cluster_random(c, n - i);
            rs_peer chosen = all[at];
            all[at] = all[i];
            all[i] = chosen;
        }
        cluster_view(c, id, all, size, like);
    }
    free(all);
}

void cluster_publish(cluster *c, rs_peer sender, rs_message_group id, uint32_t length) {
    group_state *group = &c->groups[id];
    if (!c->behind[sender] &&
        (!group->knows[sender] || (!cluster_is_member(c, id, sender) && !is_publisher(group, sender)))) {
        group->knows[sender] = true;
        view_again(c, id);
    }
    if (c->message_count == c->message_room) {
        c->message_room = c->message_room ? c->message_room * 2 : 1024;
        c->messages = realloc(c->messages, c->message_room * sizeof *c->messages);
        assert_non_null(c->messages);
    }
    uint32_t number = c->message_count++;
    cluster_message *message = &c->messages[number];
    *message = (cluster_message){.group = id, .sender = sender, .length = length, .at = c->now};
    message->due = calloc(c->options.nodes, 1);
    message->had = calloc(c->options.nodes, 1);
    for (uint32_t i = 0; i < group->count; i++)
        message->due[group->members[i]] = group->members[i] != sender && !c->behind[sender];
    uint8_t *bytes = malloc(length);
    fill(bytes, number, length);
    assert_int_equal(rs_messages_publish(c->nodes[sender], c->now, id, bytes, length, NULL), RS_OK);
    free(bytes);
    drain_packets(c, sender);
}

void cluster_run(cluster *c, rs_time until) {
    for (;;) {
        rs_time next = c->heap_count ? c->heap[0].at : RS_NEVER;
        rs_peer timed = RS_NO_PEER;
        for (uint32_t i = 0; i < c->options.nodes; i++) {
            rs_time deadline = c->halted[i] ? RS_NEVER : rs_messages_deadline(c->nodes[i]);
            if (deadline < next) {
                next = deadline;
                timed = i;
            }
        }
        if (next > until)
            break;
        c->now = next > c->now ? next : c->now;
        rs_peer node = timed;
        if (timed == RS_NO_PEER) {
            packet p = heap_pop(c);
            rs_gm_id id;
            rs_gm_body body;
            node = p.to;
            if (c->halted[node]) {
                free(p.bytes);
                continue;
            }
            if (!p.corrupt && rs_gm_get_kind(p.bytes, p.length) == RS_GM_KIND_DATA &&
                rs_gm_get_data(p.bytes, p.length, &id, &body))
                c->groups[id.group].received_by[node]++;
            bool taken = rs_messages_receive(c->nodes[node], c->now, p.from, p.bytes, p.length);
            assert_true(taken || p.corrupt);
            free(p.bytes);
        } else
            rs_messages_timeout(c->nodes[node], c->now);
        drain_events(c, node);
        drain_packets(c, node);
    }
    c->now = until;
}

cluster_account cluster_check(cluster *c) {
    cluster_account account = c->account;
    for (uint32_t i = 0; i < c->message_count; i++) {
        for (uint32_t node = 0; node < c->options.nodes; node++) {
            account.due += c->messages[i].due[node];
            account.delivered += c->messages[i].had[node] > 0;
            account.missed += c->messages[i].due[node] && !c->messages[i].had[node];
            account.twice += c->messages[i].had[node] > 1;
            account.wrong += c->messages[i].had[node] > 0 && node == c->messages[i].sender;
        }
    }
    return account;
}

uint64_t cluster_included(const cluster *c, rs_message_group group) {
    return c->groups[group].included;
}

uint64_t cluster_received(const cluster *c, rs_message_group group) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->options.nodes; i++)
        sum += c->groups[group].received_by[i];
    return sum;
}

uint64_t cluster_received_by(const cluster *c, rs_message_group group, rs_peer peer) {
    return c->groups[group].received_by[peer];
}

uint64_t cluster_repairs_to(const cluster *c, rs_peer peer) {
    return c->repairs_to[peer];
}

uint64_t cluster_on_second_channels(const cluster *c) {
    return c->on_second;
}
