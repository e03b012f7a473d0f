/* Datagrams of group messages: multicast by a packet I/O of their own, repairs and requests by the socket for packets
 * between peers. */
#include "daemon/groups/sockets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/wire.h"
#include "core/groups/wire.h"
#include "daemon/data/overlay.h"
#include "daemon/groups/kept.h"
#include "daemon/groups/stream.h"
#include "daemon/groups/views.h"
#include "daemon/units.h"

#define RECEIVE_TURN 256u      /* datagrams read before the rest of the loop has its turn */
#define RX_QUEUE_TURN 1024u    /* and these are put aside when the sockets have dropped some */
#define LINGER (5 * RS_SECOND) /* controller/rostrum.thrift, GroupView */
#define SEND_TURN 1024u
#define OUT_TURN 1024u /* messages of a group with guarantees */
/* For how long datagrams from peers may wait while multicast does: until a window of it has been read. In packets, not
 * time alone: in that, this process may not have run. */
#define PUT_OFF_LEAST (4 * RS_MILLISECOND)
_Static_assert(RS_GROUP_HEAD_MOST <= RS_DATAGRAM_HEADER_MAX, "first pieces fit");

/* --------------------------------------------------------------------------------------------------- addresses */

rs_group rs_channel_use(rs_groups *g, uint32_t address, uint16_t port) {
    rs_group unused = RS_NO_GROUP;
    for (uint32_t i = 0; i < g->channel_room; i++) {
        if (g->channels[i].address == address && g->channels[i].port == port) {
            g->channels[i].users++;
            return i;
        }
        if (g->channels[i].address == 0 && unused == RS_NO_GROUP)
            unused = i;
    }
    if (unused == RS_NO_GROUP && g->channel_room < RS_CHANNELS_MOST)
        unused = g->channel_room++;
    if (unused != RS_NO_GROUP)
        g->channels[unused] = (rs_group_channel){.address = address, .port = port, .users = 1};
    return unused;
}

void rs_channel_copies(rs_groups *g, rs_group channel, const uint32_t *addresses, uint32_t count) {
    rs_group_channel *c = &g->channels[channel];
    free(c->copies);
    c->copies = count ? malloc(count * sizeof *c->copies) : NULL;
    c->copy_count = c->copies ? count : 0;
    if (c->copies)
        memcpy(c->copies, addresses, count * sizeof *c->copies);
}

void rs_channel_unuse(rs_groups *g, rs_group channel) {
    rs_group_channel *c = &g->channels[channel];
    if (--c->users > 0)
        return;
    rs_channel_copies(g, channel, NULL, 0);
    if (c->listeners == 0)
        c->address = 0;
}

bool rs_channel_listen(rs_groups *g, rs_group channel, char *error) {
    rs_group_channel *c = &g->channels[channel];
    if (c->listeners == 0 && !rs_io_join(g->io, channel, c->address, c->port, error))
        return false;
    g->listening += c->listeners == 0;
    c->listeners++;
    return true;
}

static void ignore(rs_groups *g, rs_group channel) {
    rs_group_channel *c = &g->channels[channel];
    if (--c->listeners > 0)
        return;
    rs_io_leave(g->io, channel);
    g->listening--;
    if (c->users == 0)
        c->address = 0;
}

void rs_channel_ignore(rs_groups *g, rs_group channel, bool linger) {
    if (linger && g->linger_count < RS_CHANNELS_MOST)
        g->linger[g->linger_count++] = (rs_linger){channel, rs_agent_now(g->agent) + LINGER, false};
    else
        ignore(g, channel);
}

void rs_channel_unuse_later(rs_groups *g, rs_group channel) {
    if (g->linger_count < RS_CHANNELS_MOST)
        g->linger[g->linger_count++] = (rs_linger){channel, rs_agent_now(g->agent) + LINGER, true};
    else
        rs_channel_unuse(g, channel);
}

static void end_lingering(rs_groups *g, rs_time now) {
    uint32_t over = 0;
    for (; over < g->linger_count && g->linger[over].until <= now; over++)
        if (g->linger[over].used)
            rs_channel_unuse(g, g->linger[over].channel);
        else
            ignore(g, g->linger[over].channel);
    g->linger_count -= over;
    if (over > 0)
        memmove(g->linger, g->linger + over, g->linger_count * sizeof g->linger[0]);
}

bool rs_channel_end_linger(rs_groups *g) {
    uint32_t i = 0;
    while (i < g->linger_count && g->linger[i].used)
        i++;
    if (i == g->linger_count)
        return false;
    ignore(g, g->linger[i].channel);
    memmove(g->linger + i, g->linger + i + 1, (--g->linger_count - i) * sizeof g->linger[0]);
    return true;
}

/* --------------------------------------------------------------------------------------------------- receiving */

/* The sender shall not go on yet: a program has to read first, or what was lost could not be asked for in time, or
 * would be gone from the sender's buffer. */
static bool must_wait(rs_groups *g, const rs_local_group *group, const rs_flow_heard *h) {
    const rs_time now = rs_agent_now(g->agent);
    for (rs_group_stream *s = group->streams; s; s = rs_stream_next(s)) {
        rs_stream_look(s, now);
        if (rs_stream_is_catching_up(s, now))
            return true;
    }
    return !group->in_regions &&
           (rs_messages_is_behind(g->node, h->sender, h->group) ||
            rs_flow_too_far(h, rs_messages_oldest_missing(g->node, h->sender, h->group), g->window));
}

/* Short ones are copied into the batch; what others hold may change before that is sent, so they go at once. */
static void send_soon(rs_groups *g, uint32_t address, const uint8_t *bytes, size_t length) {
    if (length <= RS_DATAGRAM_HEADER_MAX - RS_SEAL_MORE) {
        rs_groups_send_to(g, address, bytes, length, NULL, 0);
        return;
    }
    rs_groups_send_to(g, address, NULL, 0, bytes, length);
    rs_overlay_flush(g->agent->overlay);
}

static void send_reports(rs_groups *g) {
    uint8_t datagram[RS_FLOW_LIST_BYTES(RS_FLOW_LIST)];
    if (g->report.count > 0)
        send_soon(g, g->report_to, datagram, rs_flow_list_encode(datagram, &g->report));
    g->report.count = 0;
}

/* With others of that sender (send_reports), or alone if it does not take lists as far as is known. */
static void say(rs_groups *g, const rs_flow_heard *h) {
    const rs_group_peer *peer = rs_group_peer_at(g, h->sender);
    const uint32_t self = g->agent->options.address;
    if (!peer || peer->takes_lists != h->incarnation) {
        uint8_t datagram[RS_FLOW_BYTES];
        rs_flow_encode(datagram, &(rs_flow_report){self, h->incarnation, h->group, h->told});
        rs_groups_send_to(g, h->sender, datagram, sizeof datagram, NULL, 0);
        return;
    }
    if (g->report.count == RS_FLOW_LIST || g->report_to != h->sender || g->report.incarnation != h->incarnation)
        send_reports(g);
    g->report_to = h->sender;
    g->report.from = self;
    g->report.incarnation = h->incarnation;
    g->report.stream[g->report.count].group = h->group;
    g->report.stream[g->report.count++].sn = h->told;
}

static void report(rs_groups *g, rs_flow_heard *h) {
    const rs_local_group *group = rs_groups_by_id(g, h->group);
    h->held_back = group && rs_group_is_member(group) && must_wait(g, group, h);
    g->any_held |= h->held_back;
    if (!group || !rs_group_is_member(group))
        return;
    rs_time now = rs_agent_now(g->agent);
    if (h->held_back && now - h->told_at < RS_FLOW_AGAIN)
        return;
    h->told = h->held_back ? h->told : h->newest;
    h->told_at = now;
    if (group->standing == RS_GROUP_REPORTER && h->told > 0)
        say(g, h);
}

void rs_groups_report_held_back(rs_groups *g) {
    bool any = g->any_held;
    g->any_held = false;
    for (uint32_t i = 0; i < RS_FLOW_HEARD && any; i++)
        if (g->ears->streams[i].held_back)
            report(g, &g->ears->streams[i]);
    send_reports(g);
}

/* What came of a sender is reported, of the stream that has moved by a step or of all. */
static void report_moved(rs_groups *g, rs_flow_heard *h, uint32_t sender, size_t length) {
    rs_flow_heard *due[RS_FLOW_LIST];
    if (h && !h->held_back)
        report(g, h);
    if (!rs_flow_is_due(g->ears, sender, length, g->window))
        return;
    const rs_group_peer *peer = rs_group_peer_at(g, sender);
    const bool lists = peer && peer->takes_lists != 0 && peer->takes_lists == peer->incarnation;
    const uint32_t count = rs_flow_due(g->ears, sender, length, g->window, lists, due);
    for (uint32_t i = 0; i < count; i++)
        if (!due[i]->held_back)
            report(g, due[i]);
    if (count > 0)
        send_reports(g);
}

static void hear(rs_groups *g, uint32_t source, const uint8_t *bytes, size_t length) {
    report_moved(g, rs_flow_hear(g->ears, source, bytes, length, g->window), source, length);
}

void rs_groups_given(rs_groups *g, const rs_messages_event *event) {
    const uint64_t more = event->kind == RS_MESSAGES_LOST && event->count > 0 ? event->count - 1 : 0;
    rs_flow_heard *h =
        rs_flow_given(g->ears, event->sender, event->incarnation, event->group, event->sn + more, g->window);
    report_moved(g, h, event->sender, event->length);
}

/* It begins with reports of one stream, not knowing that more are taken here; agents of before do not ask. */
static void tell_lists(rs_groups *g, uint32_t address) {
    rs_group_peer *peer = rs_group_peer_at(g, address);
    const rs_time now = rs_agent_now(g->agent);
    uint8_t datagram[RS_FLOW_LIST_BYTES(0)];
    if (!peer || (peer->told_lists > 0 && now - peer->told_lists < RS_FLOW_FRESH))
        return;
    peer->told_lists = now;
    const rs_flow_list none = {.from = g->agent->options.address, .incarnation = g->incarnation};
    rs_groups_send_to(g, address, datagram, rs_flow_list_encode(datagram, &none), NULL, 0);
}

static void take_report(rs_groups *g, uint32_t source, uint32_t incarnation, uint32_t id, uint64_t sn) {
    rs_local_group *group = rs_groups_by_id(g, id);
    bool counts = group && incarnation == g->incarnation &&
                  rs_flow_reported(rs_group_sum(g, group), &group->flow, rs_agent_now(g->agent), g->window, source, sn);
    g->reports_refused += !counts;
}

/* False: it is malformed. */
static bool take_reports(rs_groups *g, uint32_t source, const uint8_t *bytes, size_t length) {
    rs_flow_report one;
    rs_flow_list list;
    if (rs_flow_decode(bytes, length, &one) && one.from == source) {
        take_report(g, source, one.incarnation, one.group, one.sn);
        tell_lists(g, source);
        return true;
    }
    if (!rs_flow_list_decode(bytes, length, &list) || list.from != source) {
        g->reports_refused++;
        return false;
    }
    for (uint32_t i = 0; i < list.count; i++)
        take_report(g, source, list.incarnation, list.stream[i].group, list.stream[i].sn);
    rs_group_peer *peer = list.count == 0 ? rs_group_peer_at(g, source) : NULL;
    if (peer)
        peer->takes_lists = list.incarnation;
    return true;
}

static void complain(rs_groups *g, uint32_t source, const uint8_t *bytes, size_t length) {
    unsigned version = rs_gm_get_version(bytes, length), kind = rs_gm_get_kind(bytes, length);
    rs_messages_stats stats;
    char text[RS_ADDRESS_TEXT];
    rs_messages_stats_get(g->node, &stats);
    if (kind != 0 && stats.kinds > g->kinds)
        rs_log_limited(&g->versions, 5, RS_LOG_WARNING, "groups",
                       "the agent at %s sends group messages of kind %u, which no engine here has: they are dropped; "
                       "install the same release on both",
                       rs_address_text(source, text), kind);
    g->kinds = stats.kinds;
    if (version != 0 && version != RS_GM_VERSION)
        rs_log_limited(&g->versions, 5, RS_LOG_WARNING, "groups",
                       "the agent at %s speaks version %u of group messages, this one %u: none of its messages is "
                       "taken; install the same release on both",
                       rs_address_text(source, text), version, (unsigned)RS_GM_VERSION);
}

/* With many groups nothing of a message's is in the caches, and processors wait for that more than they work. */
static void come_soon(void *context, uint32_t ahead, const uint8_t *bytes, size_t length) {
    const rs_groups *g = context;
    const uint32_t group = rs_messages_soon(g->node, ahead, bytes, length);
    rs_groups_soon(g, group, ahead > 1 ? RS_GROUPS_SOON_PLACE : RS_GROUPS_SOON_GROUP);
}

/* A whole datagram lies at `bytes`: nothing is predicted (rs_io_sink). */
static uint8_t *take(void *context, rs_io_group channel, const uint8_t *bytes, size_t header_length,
                     uint32_t payload_length) {
    rs_groups *g = context;
    size_t length = header_length + payload_length;
    uint32_t source = rs_io_source(g->io);
    g->heard_at = channel;
    if (rs_io_late(g->io)) {
        (void)rs_messages_receive_as(g->node, rs_agent_now(g->agent), source, RS_CAME_LATE, bytes, length);
        return NULL;
    }
    const uint32_t group = rs_messages_soon(g->node, 0, bytes, length);
    rs_groups_soon(g, group, RS_GROUPS_SOON_GROUP);
    if (g->behind)
        rs_messages_enqueue(g->node, source, bytes, length);
    else if (!rs_messages_receive(g->node, rs_agent_now(g->agent), source, bytes, length))
        complain(g, source, bytes, length);
    rs_groups_soon(g, group, RS_GROUPS_SOON_PROGRAMS);
    hear(g, source, bytes, length);
    return NULL;
}

static void note_drops(rs_groups *g) {
    rs_io_stats stats;
    rs_io_stats_get(g->io, &stats);
    const uint64_t drops = stats.dropped;
    g->behind = drops > g->drops;
    if (drops > g->drops)
        rs_log_limited(&g->complaints, 5, RS_LOG_WARNING, "groups", "sockets' buffers were full: dropped=%llu",
                       (unsigned long long)(drops - g->drops));
    g->drops = drops;
}

/* When the last one that was read came; 0: nobody knows, or more sockets than one have datagrams. */
static rs_time last_came(const rs_groups *g) {
    int64_t waited = g->listening == 1 ? rs_io_waited(g->io, g->heard_at) : 0;
    return waited > 0 ? rs_agent_now(g->agent) - waited : 0;
}

/* False: more waits than a turn takes. */
static bool read_multicast(rs_groups *g) {
    const rs_io_sink sink = {.deliver = take, .soon = come_soon, .soon_most = RS_MESSAGES_AHEAD, .context = g};
    unsigned limit = g->behind ? RX_QUEUE_TURN : RECEIVE_TURN;
    int count = rs_io_receive(g->io, limit, &sink);
    bool all = count + (int)RS_IO_TOGETHER <= (int)limit;
    rs_drain_looked(&g->drain, RS_DRAIN_MULTICAST, count > 0 ? (uint32_t)count : 0, all, all ? 0 : last_came(g));
    note_drops(g);
    return all;
}

static void readable(void *context, uint32_t events) {
    rs_groups *g = context;
    (void)events;
    if (read_multicast(g))
        g->put_off_at = 0;
}

bool rs_groups_read_first(rs_groups *g) {
    rs_time now = rs_agent_now(g->agent);
    unsigned limit = g->behind ? RX_QUEUE_TURN : RECEIVE_TURN;
    if (read_multicast(g)) {
        rs_messages_work(g->node, now, RX_QUEUE_TURN); /* those put aside came before them, too */
        g->put_off_at = 0;
        return true;
    }
    if (g->put_off_at == 0) {
        g->put_off_at = now;
        g->put_off_packets = 0;
    }
    g->put_off_packets += limit;
    bool enough = now - g->put_off_at >= PUT_OFF_LEAST && g->put_off_packets >= g->window;
    if (enough)
        g->put_off_at = 0;
    else
        rs_drain_looked(&g->drain, RS_DRAIN_PEERS, 0, false, 0);
    return enough;
}

void rs_groups_datagrams_read(rs_groups *g, uint32_t count, bool all) {
    rs_time waited = rs_overlay_waited(g->agent->overlay);
    rs_drain_looked(&g->drain, RS_DRAIN_PEERS, count, all, waited > 0 ? rs_agent_now(g->agent) - waited : 0);
}

static void receive_ordered(rs_groups *g, unsigned magic, uint32_t source, const uint8_t *bytes, size_t length) {
    if (length < RS_ORDER_GROUP_AT + 4)
        return;
    const uint8_t *at = bytes + RS_ORDER_GROUP_AT;
    uint32_t id = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    rs_local_group *group = rs_groups_by_id(g, id);
    if (group && group->ordered && magic == RS_REPLAY_MAGIC)
        rs_kept_receive(g, group, source, bytes, length);
    else if (group && group->ordered)
        (void)rs_order_receive(group->ordered, rs_agent_now(g->agent), source, bytes, length);
}

_Static_assert(RS_REPLAY_MAGIC != RS_REPORT_MAGIC && RS_ORDER_MAGIC != RS_REPORT_MAGIC &&
                   RS_FLOW_MAGIC != RS_REPORT_MAGIC && RS_MESSAGES_MAGIC != RS_REPORT_MAGIC &&
                   RS_REPLAY_MAGIC != RS_ACK_MAGIC && RS_ORDER_MAGIC != RS_ACK_MAGIC && RS_FLOW_MAGIC != RS_ACK_MAGIC &&
                   RS_MESSAGES_MAGIC != RS_ACK_MAGIC && RS_REPLAY_MAGIC != RS_DATA_MAGIC &&
                   RS_REPLAY_MAGIC != RS_ORDER_MAGIC && RS_REPLAY_MAGIC != RS_FLOW_MAGIC &&
                   RS_REPLAY_MAGIC != RS_MESSAGES_MAGIC,
               "groups take no transfer's datagrams");

bool rs_groups_datagram(rs_groups *g, uint32_t source, const uint8_t *bytes, size_t length) {
    unsigned magic = length >= 2 ? bytes[0] | (unsigned)bytes[1] << 8 : 0;
    if (magic == RS_MESSAGES_MAGIC) {
        if (!rs_messages_receive_as(g->node, rs_agent_now(g->agent), source, RS_CAME_ALONE, bytes, length))
            complain(g, source, bytes, length);
        /* where multicast does not get through, it is as if it had come by it */
        if (g->agent->lan)
            hear(g, source, bytes, length);
    } else if (magic == RS_ORDER_MAGIC || magic == RS_REPLAY_MAGIC) {
        receive_ordered(g, magic, source, bytes, length);
    } else if (magic == RS_FLOW_MAGIC) {
        (void)take_reports(g, source, bytes, length);
    } else {
        return false;
    }
    return true;
}

/* ----------------------------------------------------------------------------------------------------- sending */

void rs_groups_send_to(rs_groups *g, uint32_t address, const uint8_t *head, size_t head_length, const uint8_t *rest,
                       size_t rest_length) {
    const rs_group_peer *peer = rs_group_peer_at(g, address);
    if (!peer)
        return;
    rs_overlay_send_bytes(g->agent->overlay, peer->name, address, peer->port, head, head_length, rest, rest_length);
}

/* What the sockets did not take, copied: the engine's bytes hold until its next call only. */
static void keep(rs_groups *g, const rs_io_packet *packets, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *at = g->kept_bytes + (size_t)g->kept_count * g->packet_bytes;
        const rs_io_packet *p = &packets[i];
        memcpy(at, p->header, p->header_length);
        if (p->payload_length > 0)
            memcpy(at + p->header_length, p->payload, p->payload_length);
        g->kept[g->kept_count++] = (rs_io_packet){.address = p->address,
                                                  .port = p->port,
                                                  .header = at,
                                                  .header_length = (uint16_t)(p->header_length + p->payload_length)};
    }
}

static bool send_kept(rs_groups *g) {
    while (g->kept_count > 0) {
        int taken = rs_io_send(g->io, g->kept, g->kept_count);
        if (taken <= 0)
            return false;
        g->kept_count -= (uint32_t)taken;
        memmove(g->kept, g->kept + taken, g->kept_count * sizeof g->kept[0]);
    }
    if (g->writable.active)
        rs_loop_unwatch(g->agent->loop, &g->writable);
    return true;
}

static void writable(void *context, uint32_t events) {
    (void)events;
    send_kept(context);
}

static void send_batch(rs_groups *g, const rs_io_packet *packets, uint32_t count) {
    uint32_t done = 0;
    while (done < count) {
        int taken = rs_io_send(g->io, packets + done, count - done);
        if (taken <= 0)
            break;
        done += (uint32_t)taken;
    }
    if (done == count)
        return;
    keep(g, packets + done, count - done);
    rs_loop_watch(g->agent->loop, &g->writable, rs_io_send_fd(g->io), EPOLLOUT);
}

static bool send_ordered(rs_groups *g, rs_local_group *group) {
    rs_order_out out;
    uint32_t count = 0;
    rs_time now = rs_agent_now(g->agent);
    while (count < OUT_TURN && rs_order_poll_out(group->ordered, now, &out)) {
        uint64_t sn = 0;
        count++;
        if (out.peer != RS_NO_PEER)
            send_soon(g, out.peer, out.bytes, out.length); /* its bytes hold until the next poll only */
        else if (rs_messages_publish(g->node, now, group->id, out.bytes, out.length, &sn) == RS_OK)
            rs_flow_published(rs_group_sum(g, group), &group->flow, sn, rs_messages_last_published(g->node, group->id),
                              out.length);
    }
    return count == OUT_TURN;
}

/* What others asked for of what is kept here, and what is asked of them. */
static bool send_kept_messages(rs_groups *g, const rs_local_group *group) {
    rs_replay *replay = rs_kept_replay(group);
    rs_replay_out out;
    uint32_t count = 0;
    while (count < OUT_TURN && rs_replay_poll_out(replay, &out)) {
        rs_groups_send_to(g, out.peer, NULL, 0, out.bytes, out.length);
        count++;
    }
    if (count > 0)
        rs_overlay_flush(g->agent->overlay);
    rs_replay_sent(replay);
    return count == OUT_TURN;
}

bool rs_groups_send_ordered(rs_groups *g) {
    bool more = false;
    for (rs_local_group *group = g->ordered; group; group = group->next_ordered)
        more |= send_ordered(g, group);
    for (rs_local_group *group = g->ordered; group; group = group->next_ordered)
        more |= group->kept && send_kept_messages(g, group);
    return more;
}

bool rs_groups_send_packets(rs_groups *g) {
    rs_io_packet packets[RS_IO_BATCH];
    uint32_t count = 0, total = 0;
    rs_messages_out out;
    if (g->kept_count > 0)
        return false;
    while (total < SEND_TURN && g->kept_count == 0 && rs_messages_poll_tx(g->node, rs_agent_now(g->agent), &out)) {
        total++;
        const uint8_t *rest = out.piece_count > 1 ? out.piece[1].bytes : NULL;
        uint32_t rest_length = out.piece_count > 1 ? out.piece[1].length : 0;
        if (out.channel != RS_CH_GROUP) {
            if (out.piece_count > 1)
                rs_groups_send_to(g, out.peer, out.piece[0].bytes, out.piece[0].length, rest, rest_length);
            else
                rs_groups_send_to(g, out.peer, NULL, 0, out.piece[0].bytes, out.piece[0].length);
            continue;
        }
        const rs_group_channel *to = &g->channels[out.group];
        for (uint32_t i = 0; i < to->copy_count; i++) {
            rs_groups_send_to(g, to->copies[i], out.piece[0].bytes, out.piece[0].length, rest, rest_length);
            g->copies++;
        }
        packets[count++] = (rs_io_packet){.address = g->channels[out.group].address,
                                          .port = g->channels[out.group].port,
                                          .header = out.piece[0].bytes,
                                          .header_length = (uint16_t)out.piece[0].length,
                                          .payload = rest,
                                          .payload_length = rest_length};
        if (count == RS_IO_BATCH) {
            send_batch(g, packets, count);
            count = 0;
        }
    }
    send_batch(g, packets, count);
    return total > 0;
}

/* ------------------------------------------------------------------------------------------------------- birth */

bool rs_groups_sockets_start(rs_groups *g) {
    g->readable = (rs_watch){.ready = readable, .context = g};
    g->writable = (rs_watch){.ready = writable, .context = g};
    g->kept_bytes = malloc((size_t)RS_IO_BATCH * g->packet_bytes);
    return g->kept_bytes && rs_loop_watch(g->agent->loop, &g->readable, rs_io_receive_fd(g->io), EPOLLIN);
}

void rs_groups_sockets_stop(rs_groups *g) {
    rs_loop_unwatch(g->agent->loop, &g->readable);
    rs_loop_unwatch(g->agent->loop, &g->writable);
    rs_io_close(g->io);
    for (uint32_t i = 0; i < g->channel_room; i++)
        free(g->channels[i].copies);
    free(g->kept_bytes);
}

rs_io_stats rs_groups_io_stats(const rs_groups *g) {
    rs_io_stats stats;
    rs_io_stats_get(g->io, &stats);
    return stats;
}

uint64_t rs_groups_copied(const rs_groups *g) {
    return g->copies;
}

uint64_t rs_groups_reports_refused(const rs_groups *g) {
    return g->reports_refused;
}

uint64_t rs_groups_socket_drops(const rs_groups *g) {
    return g->drops;
}

rs_time rs_groups_sockets_deadline(const rs_groups *g) {
    return g->linger_count > 0 ? g->linger[0].until : RS_NEVER;
}

void rs_groups_sockets_timeout(rs_groups *g) {
    end_lingering(g, rs_agent_now(g->agent));
}
