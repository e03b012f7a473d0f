/* The agent's protocol node (agent/core) at a simulated host, with the application and the manager beside it: the
 * application takes everything, the manager grants the path it was given after a while. */
#include "core/rdcm/options.h"
#include "core/transfer/node.h"
#include "engine/engine.h"

#include <string.h>

/* A transfer of an object, being sent or received; or one to be received that a view is kept for. */
typedef struct {
    uint64_t object;
    rs_xfer xfer; /* 0: not yet */
    bool sending, stream;
    bool absent;         /* nobody here wants it yet: it is not accepted */
    uint64_t stream_end; /* told so far */
    rs_view view;        /* newest, version 0: none; its children are owned */
} transfer;

typedef struct {
    sim_engine base;
    rs_node *node;
    sim_path_params path;
    bool has_path;
    uint64_t room;
    transfer *transfers;
    uint32_t transfer_count, transfer_capacity;
} node_engine;

static node_engine *of(sim_engine *engine) {
    return (node_engine *)(void *)engine;
}

static void node_free(sim_engine *engine) {
    node_engine *e = of(engine);
    sim *s = engine->sim;
    rs_node_free(e->node);
    for (uint32_t i = 0; i < e->transfer_count; i++)
        engine_give(s, (void *)(uintptr_t)e->transfers[i].view.children);
    engine_give(s, e->transfers);
    engine_give(s, e);
}

static transfer *transfer_of(node_engine *e, uint64_t object) {
    for (uint32_t i = 0; i < e->transfer_count; i++)
        if (e->transfers[i].object == object)
            return &e->transfers[i];
    if (e->transfer_count == e->transfer_capacity) {
        uint32_t capacity = e->transfer_capacity ? 2 * e->transfer_capacity : 4;
        transfer *grown = engine_take(e->base.sim, capacity * sizeof *grown);
        if (e->transfer_count)
            memcpy(grown, e->transfers, e->transfer_count * sizeof *grown);
        engine_give(e->base.sim, e->transfers);
        e->transfers = grown;
        e->transfer_capacity = capacity;
    }
    e->transfers[e->transfer_count] = (transfer){.object = object};
    return &e->transfers[e->transfer_count++];
}

static void hand_in_view(node_engine *e, rs_time now, const transfer *t) {
    if (t->xfer && t->view.version && rs_set_view(e->node, now, t->xfer, &t->view) == RS_ERR_MEMORY)
        engine_fail(&e->base, "host %u has no memory for its view", e->base.node);
}

/* More of a stream: as much as there is room for. */
static void stream_moved(node_engine *e, rs_time now, rs_xfer xfer) {
    uint64_t first, here, end;
    if (rs_stream_window(e->node, xfer, &first, &here, &end) != RS_OK)
        return;
    for (uint32_t i = 0; i < e->transfer_count; i++) {
        transfer *t = &e->transfers[i];
        if (t->xfer == xfer && t->stream && end > t->stream_end) {
            t->stream_end = end;
            rs_stream_extend(e->node, now, xfer, end, false);
        }
    }
}

static void incoming(node_engine *e, rs_time now, rs_xfer xfer) {
    rs_incoming info;
    if (rs_incoming_info(e->node, xfer, &info) != RS_OK)
        return;
    transfer *t = transfer_of(e, info.object.data);
    t->xfer = xfer;
    if (t->absent)
        return;
    rs_group group = info.group_address ? info.group_address & 0x0fffffff : RS_NO_GROUP;
    if (rs_incoming_accept(e->node, now, xfer, group, e->room) != RS_OK)
        rs_incoming_refuse(e->node, now, xfer, "out of memory");
    hand_in_view(e, now, t);
}

static void note(node_engine *e, const rs_event *event, sim_note_kind kind, uint64_t value) {
    engine_note(&e->base, kind, event->peer == RS_NO_PEER ? SIM_ERROR : event->peer, event->xfer, value);
}

static bool node_work_event(sim_engine *engine, rs_time now) {
    node_engine *e = of(engine);
    rs_event event;
    if (!rs_poll_event(e->node, &event))
        return false;
    switch (event.kind) {
    case RS_EV_PATH_WANTED:
        note(e, &event, SIM_NOTE_PATH_WANTED, event.bytes);
        if (e->has_path)
            engine_later(engine, now + e->path.manager_delay_ns, event.xfer);
        break;
    case RS_EV_PHASE:
        note(e, &event, SIM_NOTE_PHASE, event.phase);
        break;
    case RS_EV_FIRST_LIGHT:
        note(e, &event, SIM_NOTE_FIRST_LIGHT, event.sn);
        break;
    case RS_EV_PEER_DONE:
        note(e, &event, SIM_NOTE_PEER_DONE, event.bytes);
        break;
    case RS_EV_PEER_FAILED:
        note(e, &event, SIM_NOTE_PEER_FAILED, 0);
        break;
    case RS_EV_PATH_DONE:
        note(e, &event, SIM_NOTE_PATH_DONE, 0);
        break;
    case RS_EV_SEND_DONE:
        note(e, &event, SIM_NOTE_SEND_DONE, event.bytes);
        break;
    case RS_EV_INCOMING:
    case RS_EV_SESSION:
        incoming(e, now, event.xfer);
        break;
    case RS_EV_COMPLETE:
        note(e, &event, SIM_NOTE_COMPLETE, 0);
        rs_verified(e->node, now, event.xfer, true, NULL);
        break;
    case RS_EV_RECEIVE_DONE:
        note(e, &event, SIM_NOTE_RECEIVE_DONE, event.ok);
        break;
    case RS_EV_RECEIVER_FAILED:
        note(e, &event, SIM_NOTE_RECEIVER_FAILED, event.ring);
        break;
    case RS_EV_LINK_SUSPECTED:
        note(e, &event, SIM_NOTE_LINK_SUSPECTED, event.ring);
        break;
    case RS_EV_LINK_WORKS:
        break; /* the simulator's manager believes the first answer */
    case RS_EV_VIEW_USED:
        note(e, &event, SIM_NOTE_VIEW_USED, event.version);
        break;
    case RS_EV_STREAM_MOVED:
        stream_moved(e, now, event.xfer);
        break;
    case RS_EV_PEER_WANTED:
        engine_connect(engine, event.peer);
        break;
    case RS_EV_DIGEST:
    case RS_EV_RETAKE:
    case RS_EV_PEER_KEPT:
    case RS_EV_PEER_LEFT:
    case RS_EV_NO_LIGHT:
    case RS_EV_LOG:
        break;
    }
    return true;
}

static void node_receive(sim_engine *engine, rs_time now, const rs_packet_in *packet, uint64_t payload_offset) {
    if (packet->channel == RS_CH_GROUP)
        rs_receive_waited(of(engine)->node, packet->group, engine->waited);
    rs_rx_result r = rs_receive(of(engine)->node, now, packet);
    if (r.verdict == RS_RX_BAD)
        engine_fail(engine, "host %u finds a packet malformed", engine->node);
    else if (r.verdict == RS_RX_STORE && (r.offset != payload_offset || r.length != packet->payload_length))
        engine_fail(engine, "host %u would store a fragment at the wrong place", engine->node);
}

static void node_timeout(sim_engine *engine, rs_time now) {
    rs_timeout(of(engine)->node, now);
}

static rs_time node_deadline(const sim_engine *engine) {
    return rs_deadline(((const node_engine *)(const void *)engine)->node);
}

static bool node_poll_tx(sim_engine *engine, rs_time now, rs_packet_out *out) {
    return rs_poll_tx(of(engine)->node, now, out);
}

static void node_granted(sim_engine *engine, rs_time now, uint32_t xfer) {
    const sim_path_params *path = &of(engine)->path;
    rs_path_grant grant = {.group = path->group,
                           .group_address = 0xe0000000 | path->group,
                           .data_port = 7070,
                           .accepted_size = path->accepted_bytes ? path->accepted_bytes : UINT64_MAX,
                           .kind = path->circuit ? RS_PATH_CIRCUIT : RS_PATH_PACKET,
                           .reconfiguration = path->reconfiguration_ns,
                           .rate_bps = path->rate_bps,
                           .light_bound = path->light_bound_ns,
                           .protocol = (rs_protocol)path->engine};
    rs_path_granted(of(engine)->node, now, xfer, &grant);
}

static bool node_send(sim_engine *engine, rs_time now, const sim_send_params *params, uint32_t *number) {
    node_engine *e = of(engine);
    bool stream = params->size == SIM_STREAM;
    rs_send_params send = {.object = {.app = "rostrum sim", .data = params->object},
                           .size = stream ? RS_STREAM : params->size,
                           .receivers = params->receivers,
                           .receiver_count = params->count,
                           .protocol = e->has_path ? (rs_protocol)e->path.engine : RS_PROTOCOL_REPUBLIC,
                           .options = params->options};
    rs_status status = rs_send_open(e->node, now, &send, number);
    if (status != RS_OK)
        return sim_fail(engine->sim, "host %u cannot send: %s", engine->node, rs_strerror(status));
    transfer *t = transfer_of(e, params->object);
    t->xfer = *number;
    t->sending = true;
    t->stream = stream;
    hand_in_view(e, now, t);
    if (stream)
        stream_moved(e, now, *number);
    return true;
}

static bool node_stats(const sim_engine *engine, uint32_t xfer, sim_transfer_stats *out) {
    rs_xfer_stats stats;
    if (rs_xfer_stats_get(((const node_engine *)(const void *)engine)->node, xfer, &stats) != RS_OK)
        return false;
    *out = (sim_transfer_stats){.sending = stats.sending,
                                .phase = stats.phase,
                                .size = stats.size,
                                .bytes_present = stats.bytes_present,
                                .fragments = stats.fragments,
                                .packets_sent = stats.packets_sent,
                                .packets_attempt = stats.packets_attempt,
                                .packets_redundant = stats.packets_redundant,
                                .patches_sent = stats.patches_sent,
                                .patches_received = stats.patches_received,
                                .packets_received = stats.packets_received,
                                .packets_old = stats.packets_old,
                                .lost = stats.lost,
                                .rate_bps = stats.rate_bps,
                                .receivers = stats.receivers,
                                .receivers_done = stats.receivers_done,
                                .receivers_failed = stats.receivers_failed,
                                .granted_at = stats.granted_at,
                                .high_rate_at = stats.high_rate_at,
                                .data_done_at = stats.data_done_at,
                                .view = stats.view,
                                .acks_sent = stats.acks_sent,
                                .acks_received = stats.acks_received,
                                .peer_repairs_sent = stats.peer_repairs_sent,
                                .peer_repairs_received = stats.peer_repairs_received,
                                .peer_repairs_old = stats.peer_repairs_old,
                                .requests_sent = stats.requests_sent,
                                .losses = stats.losses,
                                .window = stats.window};
    return true;
}

static uint32_t node_receiving(const sim_engine *engine, uint64_t object) {
    const node_engine *e = (const node_engine *)(const void *)engine;
    for (uint32_t i = 0; i < e->transfer_count; i++)
        if (e->transfers[i].object == object && !e->transfers[i].sending)
            return e->transfers[i].xfer;
    return 0;
}

static bool node_peer_up(sim_engine *engine, rs_time now, rs_peer peer) {
    return rs_peer_up(of(engine)->node, now, peer) == RS_OK;
}

static void node_peer_down(sim_engine *engine, rs_time now, rs_peer peer, const char *cause) {
    rs_peer_down(of(engine)->node, now, peer, cause);
}

static void node_peer_writable(sim_engine *engine, rs_time now, rs_peer peer, bool writable) {
    rs_peer_writable(of(engine)->node, now, peer, writable);
}

static const sim_engine_ops NODE = {.free = node_free,
                                    .receive = node_receive,
                                    .timeout = node_timeout,
                                    .deadline = node_deadline,
                                    .poll_tx = node_poll_tx,
                                    .work_event = node_work_event,
                                    .send = node_send,
                                    .later = node_granted,
                                    .stats = node_stats,
                                    .receiving = node_receiving,
                                    .peer_up = node_peer_up,
                                    .peer_down = node_peer_down,
                                    .peer_writable = node_peer_writable};

static rs_rdcm_config rdcm_config(const sim_rdcm_params *params) {
    return (rs_rdcm_config){.no_congestion_control = params->no_congestion_control,
                            .ack_every = params->ack_every,
                            .ack_delay = params->ack_delay_ns,
                            .ack_timeout = params->ack_timeout_ns,
                            .ack_timeout_least = params->ack_timeout_least_ns,
                            .ack_timeout_first = params->ack_timeout_first_ns,
                            .loss_delay = params->loss_delay_ns,
                            .failure_bound = params->failure_ns,
                            .link_bound = params->link_ns,
                            .request_bound = params->request_ns,
                            .view_bound = params->view_ns,
                            .window_packets = params->window_packets};
}

void sim_rdcm_of_agents(sim_rdcm_params *out) {
    const rs_rdcm_config c = rs_rdcm_of_agents();
    *out = (sim_rdcm_params){.ack_every = c.ack_every,
                             .ack_delay_ns = c.ack_delay,
                             .ack_timeout_ns = c.ack_timeout,
                             .ack_timeout_least_ns = c.ack_timeout_least,
                             .ack_timeout_first_ns = c.ack_timeout_first,
                             .failure_ns = c.failure_bound,
                             .link_ns = c.link_bound,
                             .request_ns = c.request_bound,
                             .view_ns = c.view_bound,
                             .window_packets = c.window_packets};
}

/* An address is a host's rack and its number + 1. */
#define RACK_BITS 16u

static rs_peer peer_at(void *context, uint32_t address, uint16_t port) {
    (void)context;
    (void)port;
    return (address & ((1u << RACK_BITS) - 1)) - 1;
}

static bool place_at(void *context, rs_peer peer, uint32_t *address, uint16_t *port) {
    const node_engine *e = context;
    peer = peer == RS_NO_PEER ? e->base.node : peer;
    *address = engine_rack(e->base.sim, peer) << RACK_BITS | (peer + 1);
    *port = 1;
    return true;
}

bool sim_use_node(sim *s, uint32_t host, const sim_host_params *params) {
    const rs_rdcm_config rdcm = rdcm_config(&params->rdcm);
    node_engine *e = engine_take(s, sizeof *e);
    e->base = (sim_engine){.ops = &NODE, .sim = s, .node = host};
    e->room = params->room_bytes;
    rs_config config = {.seed = params->seed,
                        .fragment_size = params->fragment_size,
                        .nic_rate_bps = params->nic_rate_bps,
                        .attempt_interval = params->attempt_interval_ns,
                        .light_confirm = params->light_confirm,
                        .start_policy = params->start_on_first ? RS_START_ON_FIRST : RS_START_ON_LAST,
                        .repairs = params->patches_only ? RS_REPAIRS_PATCHES_ONLY : RS_REPAIRS_BY_LOSS,
                        .receiver_silence_bound = params->receiver_silence_ns,
                        .sender_silence_bound = params->sender_silence_ns,
                        .max_transfers = params->max_transfers,
                        .max_receivers = params->max_receivers,
                        .direct_receivers = params->direct_receivers,
                        .feedback_arity = params->feedback_arity,
                        .carries = params->carries,
                        .directory = {.peer_at = peer_at, .place_of = place_at, .context = e, .host_bits = RACK_BITS},
                        .options[RS_PROTOCOL_RDCM] = &rdcm};
    rs_allocator allocator = engine_allocator(s);
    e->node = rs_node_new(&config, &allocator);
    if (!e->node) {
        engine_give(s, e);
        return sim_fail(s, "no such host can be: its parameters are out of range, or out of memory");
    }
    return sim_host_use(s, host, &e->base);
}

uint32_t sim_engine_number(const char *word) {
    for (uint32_t i = 0; i < RS_ENGINES_MOST; i++)
        if (rs_engine_name(i) && strcmp(rs_engine_name(i), word) == 0)
            return i;
    return SIM_ERROR;
}

void sim_set_path(sim *s, uint32_t node, const sim_path_params *params) {
    node_engine *e = of(sim_host_engine(s, node, &NODE, "an agent"));
    if (!e)
        return;
    e->path = *params;
    e->has_path = true;
}

static rs_peer peer_of(uint32_t node) {
    return node == SIM_ERROR ? RS_NO_PEER : node;
}

bool sim_set_view(sim *s, uint32_t host, uint64_t object, const sim_view *view) {
    node_engine *e = of(sim_host_engine(s, host, &NODE, "an agent"));
    if (!e)
        return false;
    transfer *t = transfer_of(e, object);
    rs_peer *children = engine_take(s, view->child_count * sizeof *children);
    if (view->child_count)
        memcpy(children, view->children, view->child_count * sizeof *children);
    engine_give(s, (void *)(uintptr_t)t->view.children);
    t->view = (rs_view){
        .version = view->version,
        .leaf = {peer_of(view->leaf_predecessor), peer_of(view->leaf_successor), peer_of(view->leaf_parent)},
        .proxy = {peer_of(view->proxy_predecessor), peer_of(view->proxy_successor), peer_of(view->proxy_parent)},
        .children = children,
        .child_count = view->child_count};
    hand_in_view(e, sim_now(s), t);
    sim_host_pump(s, host);
    return true;
}

bool sim_set_absent(sim *s, uint32_t host, uint64_t object, bool absent) {
    node_engine *e = of(sim_host_engine(s, host, &NODE, "an agent"));
    if (!e)
        return false;
    transfer *t = transfer_of(e, object);
    bool comes = t->absent && !absent && t->xfer;
    t->absent = absent;
    if (comes)
        incoming(e, sim_now(s), t->xfer);
    sim_host_pump(s, host);
    return true;
}

bool sim_leave(sim *s, uint32_t host, uint64_t object) {
    node_engine *e = of(sim_host_engine(s, host, &NODE, "an agent"));
    if (!e)
        return false;
    const transfer *t = transfer_of(e, object);
    rs_status status = t->xfer && !t->sending ? rs_receive_leave(e->node, sim_now(s), t->xfer) : RS_ERR_UNKNOWN;
    if (status != RS_OK)
        return sim_fail(s, "host %u cannot leave the transfer: %s", host, rs_strerror(status));
    sim_host_pump(s, host);
    return true;
}

bool sim_stream_end(sim *s, uint32_t host, uint64_t object) {
    node_engine *e = of(sim_host_engine(s, host, &NODE, "an agent"));
    if (!e)
        return false;
    const transfer *t = transfer_of(e, object);
    rs_status status = t->stream ? rs_stream_extend(e->node, sim_now(s), t->xfer, t->stream_end, true) : RS_ERR_UNKNOWN;
    if (status != RS_OK)
        return sim_fail(s, "host %u cannot end the stream: %s", host, rs_strerror(status));
    sim_host_pump(s, host);
    return true;
}
