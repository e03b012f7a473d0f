/* What tests do to the network, and what they see of it. */
#include "net_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What tests do to the world. */

void net_dark_until(net *n, rs_peer server, rs_time time) {
    n->servers[server].dark_until = time == RS_NEVER ? RS_NEVER : NET_START + time;
}

void net_ringing_until(net *n, rs_peer server, rs_time time, double loss) {
    n->servers[server].ringing_until = NET_START + time;
    n->servers[server].ringing_loss = loss;
}

void net_bottleneck(net *n, rs_peer server, int64_t rate_bps, uint32_t buffer_packets, bool at_socket) {
    n->servers[server].bottleneck_bps = rate_bps;
    n->servers[server].buffer_packets = buffer_packets;
    n->servers[server].at_socket = at_socket;
}

void net_room(net *n, rs_peer server, uint64_t bytes) {
    n->servers[server].room = bytes;
}

void net_cut(net *n, rs_peer a, rs_peer b) {
    net_connection *c = between(n, a, b);
    if (!c->up)
        return;
    c->up = false;
    c->epoch++;
    rs_peer_down(n->servers[a].node, n->knobs.now, b, "connection reset by peer");
    rs_peer_down(n->servers[b].node, n->knobs.now, a, "connection reset by peer");
    pump(n, a);
    pump(n, b);
}

void net_kill(net *n, rs_peer server) {
    n->servers[server].dead = true;
    n->due[server] = NOT_ASKED;
    for (rs_peer other = 0; other < n->server_count; other++)
        if (other != server)
            net_cut(n, server, other);
}

void net_freeze(net *n, rs_peer server) {
    n->servers[server].frozen = true;
    n->due[server] = NOT_ASKED;
}

void net_pause(net *n, rs_peer server, rs_time time) {
    net_server *s = &n->servers[server];
    s->paused = true;
    s->paused_until = n->knobs.now + time;
    s->lost += time;
    n->due[server] = NOT_ASKED;
}

void net_restart(net *n, rs_peer server) {
    net_server *s = &n->servers[server];
    if (!s->dead)
        net_kill(n, server);
    rs_node_free(s->node);
    s->epoch++;
    for (uint32_t i = 0; i < s->store_count; i++)
        free(s->stores[i].stored);
    s->store_count = 0;
    memset(s->stores, 0, sizeof s->stores);
    start_node(n, server);
    s->dead = s->frozen = false;
}

void net_unreachable(net *n, rs_peer server, bool unreachable) {
    n->servers[server].unreachable = unreachable;
}

void net_mute(net *n, rs_peer server, bool mute) {
    n->servers[server].mute = mute;
}

void net_application(net *n, rs_peer server, net_app app) {
    n->servers[server].app = app;
}

void net_wrong_piece(net *n, rs_peer server, uint64_t offset, uint64_t length, uint32_t times) {
    net_server *s = &n->servers[server];
    s->wrong_times = times;
    s->wrong_offset = offset;
    s->wrong_length = length;
}

void net_spoils(net *n, rs_peer server, uint64_t from, uint64_t to) {
    n->servers[server].spoils_from = from;
    n->servers[server].spoils_to = to;
}

uint64_t net_wrong(const net *n, rs_peer server, uint64_t data) {
    const net_server *s = &n->servers[server];
    for (uint32_t i = 0; i < s->store_count; i++)
        if (s->stores[i].data == data)
            return s->stores[i].wrong;
    return 0;
}

void net_bytes_change(net *n, rs_peer sender) {
    n->servers[sender].changed = true;
}

uint32_t net_fetches(const net *n, rs_peer server) {
    return n->servers[server].fetches;
}

uint32_t net_retaken(const net *n, rs_peer sender) {
    return n->servers[sender].retaken;
}

void net_bad_digest(net *n, rs_peer server) {
    n->servers[server].bad_digest = true;
}

void net_verify_takes(net *n, rs_peer server, rs_time time) {
    n->servers[server].verify_time = time;
}

void net_allocations(net *n, int64_t fail_at) {
    n->fail_at = fail_at;
}

uint64_t net_memory_most(const net *n, rs_peer server) {
    return n->servers[server].memory.most;
}

uint64_t net_allocated(const net *n) {
    return n->allocations;
}

rs_object_id net_object(uint64_t data) {
    return (rs_object_id){.app = "republic-test", .data = data};
}

rs_status net_send(net *n, rs_peer from, uint64_t data, uint64_t size, uint32_t receivers, const rs_peer *to,
                   rs_xfer *out) {
    rs_send_params params = {.object = net_object(data),
                             .size = size,
                             .digest = n->digest,
                             .receivers = to,
                             .receiver_count = receivers,
                             .protocol = n->knobs.path.protocol,
                             .stragglers = n->stragglers};
    rs_status status = rs_send_open(n->servers[from].node, n->knobs.now, &params, out);
    if (status == RS_OK && n->digest.length == 16)
        assert_int_equal(rs_send_leaves(n->servers[from].node, *out, n->leaves, 64), RS_OK);
    pump(n, from);
    return status;
}

void net_digest(net *n, rs_digest digest) {
    n->digest = digest;
}

void net_stragglers(net *n, rs_straggler_policy policy) {
    n->stragglers = policy;
}

rs_xfer net_send_all(net *n, uint64_t data, uint64_t size) {
    rs_peer *to = calloc(n->server_count, sizeof *to);
    rs_xfer xfer = 0;
    for (uint32_t i = 1; i < n->server_count; i++)
        to[i - 1] = i;
    assert_int_equal(net_send(n, 0, data, size, n->server_count - 1, to, &xfer), RS_OK);
    free(to);
    return xfer;
}

rs_xfer net_stream_all(net *n, uint64_t data, uint64_t fragments_most) {
    n->stream_most = fragments_most;
    return net_send_all(n, data, RS_STREAM);
}

rs_path_grant net_part(net *n, uint64_t bytes, uint32_t count, const rs_peer *receivers) {
    rs_path_grant grant = n->knobs.path;
    grant.accepted_size = bytes;
    grant.receivers = receivers;
    grant.receiver_count = count;
    grant.group = NET_GROUP + ++n->groups;
    grant.group_address = 0xefff0000 + grant.group;
    return grant;
}

void net_grant(net *n, rs_peer sender, rs_xfer xfer, const rs_path_grant *grant) {
    assert_int_equal(rs_path_granted(n->servers[sender].node, n->knobs.now, xfer, grant), RS_OK);
    pump(n, sender);
}

void net_call(net *n, rs_peer server, rs_status status) {
    assert_int_equal(status, RS_OK);
    pump(n, server);
}

/* What came of it. */

bool net_has(const net *n, rs_peer server, uint64_t data) {
    const net_server *s = &n->servers[server];
    for (uint32_t i = 0; i < s->store_count; i++)
        if (s->stores[i].data == data)
            return s->stores[i].whole;
    return false;
}

static bool is_event(const net_told *t, rs_peer node, rs_event_kind kind, rs_peer peer) {
    return t->node == node && t->event.kind == kind && (peer == ANYONE || t->event.peer == peer);
}

const net_told *net_event(const net *n, rs_peer node, rs_event_kind kind, rs_peer peer) {
    for (size_t i = 0; i < n->told_count; i++)
        if (is_event(&n->told[i], node, kind, peer))
            return &n->told[i];
    return NULL;
}

const net_told *net_event_nth(const net *n, rs_peer node, rs_event_kind kind, uint32_t which) {
    for (size_t i = 0; i < n->told_count; i++)
        if (is_event(&n->told[i], node, kind, ANYONE) && which-- == 0)
            return &n->told[i];
    return NULL;
}

uint32_t net_events(const net *n, rs_peer node, rs_event_kind kind, rs_peer peer) {
    uint32_t count = 0;
    for (size_t i = 0; i < n->told_count; i++)
        count += is_event(&n->told[i], node, kind, peer);
    return count;
}

const net_said *net_message(const net *n, rs_peer from, rs_peer to, rs_message_type type, uint32_t which) {
    for (size_t i = 0; i < n->said_count; i++) {
        const net_said *s = &n->said[i];
        if (s->from == from && s->to == to && s->message.type == type && which-- == 0)
            return s;
    }
    return NULL;
}

uint32_t net_messages(const net *n, rs_peer from, rs_peer to, rs_message_type type) {
    uint32_t count = 0;
    for (size_t i = 0; i < n->said_count; i++)
        count += n->said[i].from == from && n->said[i].to == to && n->said[i].message.type == type;
    return count;
}

rs_xfer_stats net_stats(net *n, rs_peer node, rs_xfer xfer) {
    rs_xfer_stats stats;
    assert_int_equal(rs_xfer_stats_get(n->servers[node].node, xfer, &stats), RS_OK);
    return stats;
}

rs_xfer net_receiving(const net *n, rs_peer server) {
    return n->servers[server].incoming;
}

uint64_t net_last_sn(const net *n) {
    return n->last_sn;
}

static const char *const event_names[] = {
    [RS_EV_PATH_WANTED] = "PATH_WANTED",
    [RS_EV_PHASE] = "PHASE",
    [RS_EV_FIRST_LIGHT] = "FIRST_LIGHT",
    [RS_EV_PEER_KEPT] = "PEER_KEPT",
    [RS_EV_NO_LIGHT] = "NO_LIGHT",
    [RS_EV_PEER_DONE] = "PEER_DONE",
    [RS_EV_PEER_FAILED] = "PEER_FAILED",
    [RS_EV_PEER_LEFT] = "PEER_LEFT",
    [RS_EV_PATH_DONE] = "PATH_DONE",
    [RS_EV_SEND_DONE] = "SEND_DONE",
    [RS_EV_INCOMING] = "INCOMING",
    [RS_EV_SESSION] = "SESSION",
    [RS_EV_COMPLETE] = "COMPLETE",
    [RS_EV_DIGEST] = "DIGEST",
    [RS_EV_RECEIVE_DONE] = "RECEIVE_DONE",
    [RS_EV_RECEIVER_FAILED] = "RECEIVER_FAILED",
    [RS_EV_LINK_SUSPECTED] = "LINK_SUSPECTED",
    [RS_EV_LINK_WORKS] = "LINK_WORKS",
    [RS_EV_VIEW_USED] = "VIEW_USED",
    [RS_EV_STREAM_MOVED] = "STREAM_MOVED",
    [RS_EV_PEER_WANTED] = "PEER_WANTED",
    [RS_EV_RETAKE] = "RETAKE",
    [RS_EV_LOG] = "LOG",
};
static const char *const message_names[] = {"?",        "HELLO",     "OPEN",      "OPEN_ACK",  "INTL_SEQ",
                                            "PTCH_REQ", "PTCH_DATA", "DATA_FNSD", "DATA_RCVD", "RATE",
                                            "ABORT",    "PING",      "PONG",      "PTCH_MAP"};

void net_show(const net *n) {
    size_t t = n->told_count > 60 ? n->told_count - 60 : 0, s = n->said_count > 120 ? n->said_count - 120 : 0;
    while (t < n->told_count || s < n->said_count) {
        bool event = s == n->said_count || (t < n->told_count && n->told[t].at < n->said[s].at);
        if (event) {
            const net_told *told = &n->told[t++];
            print_message("%10.3f ms  server %u: %s peer %d phase %d session %u sn %llu ok %d %s\n",
                          (double)(told->at - NET_START) / 1e6, told->node, event_names[told->event.kind],
                          (int)told->event.peer, (int)told->event.phase, told->event.session,
                          (unsigned long long)told->event.sn, told->event.ok, told->event.cause);
        } else {
            const net_said *said = &n->said[s++];
            print_message("%10.3f ms  %u -> %u %s session %u (%llu, %llu)\n", (double)(said->at - NET_START) / 1e6,
                          said->from, said->to, message_names[said->message.type], said->message.session,
                          (unsigned long long)said->message.ptch_req.start,
                          (unsigned long long)said->message.ptch_req.end);
        }
    }
}
