/* The node: its making, and where packets, time and statistics go in. */
#include "core/transfer/engine.h"

#include <string.h>

#define DEFAULT_FRAGMENT 8896
#define DEFAULT_BOUND (5000 * RS_MS)

uint32_t rs_engines_here(void) {
    uint32_t here = 0;
    for (uint32_t i = 0; i < rs_engine_count; i++)
        here |= 1u << rs_engines_known[i]->id;
    return here;
}

static const rs_engine *known(uint32_t engine) {
    for (uint32_t i = 0; i < rs_engine_count; i++)
        if (rs_engines_known[i]->id == engine)
            return rs_engines_known[i];
    return NULL;
}

const char *rs_engine_name(uint32_t engine) {
    return known(engine) ? known(engine)->word : NULL;
}

bool rs_engine_has(uint32_t engine, rs_engine_trait trait) {
    return known(engine) && (known(engine)->traits & trait) != 0;
}

#define VIEW_CHILDREN 4096

static bool fill_defaults(rs_config *c) {
    if (c->attempt_interval < 0 || c->patch_timeout < 0 || c->nic_rate_bps < 0 || c->receiver_silence_bound < 0 ||
        c->sender_silence_bound < 0 || c->sender_away_bound < 0 || c->no_path_bound < 0 || c->answer_bound < 0)
        return false;
    if (c->fragment_size > RS_FRAGMENT_MAX || c->light_confirm > 255 || c->stragglers > RS_STRAGGLERS_EVICT ||
        c->start_policy > RS_START_ON_SWITCHES || c->repairs > RS_REPAIRS_PATCHES_ONLY)
        return false;
    c->fragment_size = c->fragment_size ? c->fragment_size : DEFAULT_FRAGMENT;
    c->nic_rate_bps = c->nic_rate_bps ? c->nic_rate_bps : INT64_C(10000000000);
    c->receiver_silence_bound = c->receiver_silence_bound ? c->receiver_silence_bound : DEFAULT_BOUND;
    c->sender_silence_bound = c->sender_silence_bound ? c->sender_silence_bound : DEFAULT_BOUND;
    c->sender_away_bound =
        c->sender_away_bound > c->sender_silence_bound ? c->sender_away_bound : c->sender_silence_bound;
    c->no_path_bound = c->no_path_bound ? c->no_path_bound : 60000 * RS_MS;
    c->answer_bound = c->answer_bound ? c->answer_bound : c->no_path_bound;
    c->stragglers = c->stragglers ? c->stragglers : RS_STRAGGLERS_WAIT;
    c->max_transfers = c->max_transfers ? c->max_transfers : 1024;
    c->max_receivers = c->max_receivers ? c->max_receivers : 16384;
    c->direct_receivers = c->direct_receivers ? c->direct_receivers : 32;
    c->feedback_arity = c->feedback_arity ? c->feedback_arity : 8;
    for (uint32_t i = 0; i < 2; i++)
        c->secret[i] = c->secret[i] ? c->secret[i] : rs_mix(rs_mix(c->seed) + i);
    return c->max_transfers <= 32768 && c->max_receivers <= 65536 && c->feedback_arity <= RS_FEEDBACK_ARITY_MOST &&
           c->directory.host_bits < 32;
}

static bool make_tables(rs_node *node) {
    uint32_t buckets = 64;
    while (buckets < node->config.max_transfers)
        buckets *= 2;
    node->bucket_mask = buckets - 1;
    node->slot_count = node->config.max_transfers + RS_KEPT + 2;
    node->slots = rs_memory_take(&node->allocator, node->slot_count * sizeof *node->slots);
    node->slot_generation = rs_memory_take(&node->allocator, node->slot_count * sizeof *node->slot_generation);
    node->transfer_buckets = rs_memory_take(&node->allocator, buckets * sizeof(rs_list));
    node->nonce_buckets = rs_memory_take(&node->allocator, buckets * sizeof(rs_list));
    node->peer_buckets = rs_memory_take(&node->allocator, buckets * sizeof(rs_list));
    if (!node->slots || !node->slot_generation || !node->transfer_buckets || !node->nonce_buckets ||
        !node->peer_buckets)
        return false;
    for (uint32_t i = 0; i < buckets; i++) {
        rs_list_init(&node->transfer_buckets[i]);
        rs_list_init(&node->nonce_buckets[i]);
        rs_list_init(&node->peer_buckets[i]);
    }
    return true;
}

/* False: out of memory, or some are out of range. */
static bool make_options(rs_node *node, const rs_config *c) {
    for (uint32_t i = 0; i < c->engine_count; i++) {
        const rs_engine *engine = c->engines[i];
        if (!engine->configure)
            continue;
        void *options = node->options[engine->id] = rs_memory_take(&node->allocator, engine->options_size);
        if (!options || !engine->configure(c->options[engine->id], options))
            return false;
    }
    memset(node->config.options, 0, sizeof node->config.options);
    return true;
}

static void free_tables(rs_node *node) {
    for (uint32_t i = 0; i < RS_ENGINES_MOST; i++)
        rs_memory_give(&node->allocator, node->options[i]);
    rs_memory_give(&node->allocator, node->slots);
    rs_memory_give(&node->allocator, node->slot_generation);
    rs_memory_give(&node->allocator, node->transfer_buckets);
    rs_memory_give(&node->allocator, node->nonce_buckets);
    rs_memory_give(&node->allocator, node->peer_buckets);
    rs_memory_give(&node->allocator, node->events.ring);
    rs_memory_give(&node->allocator, node->events.causes);
    rs_timers_free(&node->timers, &node->allocator);
    rs_timers_free(&node->data_timers, &node->allocator);
}

rs_node *rs_node_new(const rs_config *config, const rs_allocator *allocator) {
    rs_config filled = *config;
    if (!filled.engines) {
        filled.engines = rs_engines_known;
        filled.engine_count = rs_engine_count;
    }
    if (!fill_defaults(&filled))
        return NULL;
    rs_node *node = rs_memory_take(allocator, sizeof *node);
    if (!node)
        return NULL;
    node->config = filled;
    node->engines = filled.engines;
    node->engine_count = filled.engine_count;
    node->allocator = *allocator;
    node->random = filled.seed;
    rs_list *lists[] = {&node->sending, &node->receiving, &node->sent,   &node->received, &node->ready,
                        &node->talking, &node->patching,  &node->acking, &node->mending};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        rs_list_init(lists[i]);
    if (!make_options(node, &filled) || !make_tables(node)) {
        free_tables(node);
        rs_memory_give(allocator, node);
        return NULL;
    }
    rs_pacer_start(&node->nic, INT64_MIN / 2, filled.nic_rate_bps);
    return node;
}

void rs_node_free(rs_node *node) {
    if (!node)
        return;
    for (uint32_t i = 0; i < node->slot_count; i++) {
        rs_transfer *t = node->slots[i];
        if (t)
            t->free(node, t);
    }
    for (uint32_t i = 0; i <= node->bucket_mask; i++)
        while (!rs_list_empty(&node->peer_buckets[i]))
            rs_free_peer(node, RS_HOLDER(rs_peer_state, hashed, node->peer_buckets[i].next));
    free_tables(node);
    rs_allocator allocator = node->allocator;
    allocator.release(allocator.context, node);
}

static bool is_for_receiver(rs_message_type type) {
    return type == RS_MSG_OPEN || type == RS_MSG_PTCH_DATA || type == RS_MSG_DATA_FNSD || type == RS_MSG_LEAVES ||
           type == RS_MSG_REPORT_TO;
}

static bool is_for_either(rs_message_type type) {
    return type == RS_MSG_ABORT || type == RS_MSG_PING || type == RS_MSG_PONG;
}

/* Nobody here for that message. Those whose sender waits for something are answered, so that it need not wait for its
 * bound. */
static rs_rx_result nobody(rs_node *node, rs_time now, rs_peer peer, const rs_message *m) {
    bool waits = m->type == RS_MSG_PING || m->type == RS_MSG_DATA_FNSD || m->type == RS_MSG_PTCH_DATA ||
                 m->type == RS_MSG_INTL_SEQ || m->type == RS_MSG_PTCH_REQ || m->type == RS_MSG_PTCH_MAP ||
                 m->type == RS_MSG_LEAF_REQ || m->type == RS_MSG_CARRY_TO || m->type == RS_MSG_CARRY;
    if (waits)
        rs_unknown_transfer_answer(node, now, peer, m, RS_MSG_ABORT,
                                   "no such transfer here; this agent may have been restarted");
    return (rs_rx_result){.verdict = m->type == RS_MSG_PTCH_DATA ? RS_RX_UNKNOWN : RS_RX_NONE};
}

/* From the sender to this node, by another one; or to a sender by this one. */
static rs_rx_verdict on_carried(rs_node *node, rs_time now, rs_peer by, const rs_message *m) {
    const rs_directory *d = &node->config.directory;
    const rs_wire_place *at = &m->carried.sender;
    rs_receiving *in = (rs_receiving *)rs_find_nonce(node, m->nonce, false);
    if (at->address == 0)
        return in ? rs_carry_relay_answer(node, now, in, by, m) : RS_RX_NONE;
    rs_peer sender = d->peer_called && m->carried.name_length
                         ? d->peer_called(d->context, at->address, at->port, m->carried.name)
                     : d->peer_at ? d->peer_at(d->context, at->address, at->port)
                                  : RS_NO_PEER;
    rs_message said;
    if (!rs_wire_inner_get(&m->carried.inner, m->nonce, m->session, &said))
        return RS_RX_BAD;
    if (said.type != RS_MSG_NAME && !is_for_receiver(said.type) && !is_for_either(said.type))
        return RS_RX_BAD;
    if (sender == RS_NO_PEER || sender == by || said.type == RS_MSG_NAME)
        return RS_RX_NONE;
    if (d->carries && !d->carries(d->context, by))
        return RS_RX_BAD;
    if (in)
        return in->link.peer->id == sender ? rs_receiver_hearsay(node, now, in, by, &said) : RS_RX_NONE;
    const rs_receiving *before = said.type == RS_MSG_OPEN ? rs_find_receiving(node, &said.open.object) : NULL;
    const rs_peer_state *itself = rs_find_peer(node, sender);
    if (itself && rs_peer_is_up(itself))
        return RS_RX_NONE; /* who has a connection to here says by it what it has to say */
    if (said.type != RS_MSG_OPEN || said.session > 0 || (before && !rs_is_finished(&before->t)))
        return RS_RX_NONE; /* it would end what comes in: the sender says so itself, soon */
    rs_rx_verdict verdict = rs_on_open(node, now, sender, by, &said);
    in = (rs_receiving *)rs_find_nonce(node, m->nonce, false);
    if (in)
        rs_receiver_carried(node, now, in, by);
    return verdict;
}

/* What several receivers answer, by one of them. Only good news of others is taken from it. */
static rs_rx_verdict on_answers(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r, const rs_message *m) {
    uint8_t type = m->carry.inner.type;
    rs_message said = {.type = RS_MSG_ABORT};
    if (type && (!rs_wire_inner_get(&m->carry.inner, m->nonce, m->session, &said) || !rs_carry_is_answer(type) ||
                 (type == RS_MSG_OPEN_ACK && said.open_ack.status != RS_ACK_ACCEPTED)))
        return RS_RX_BAD;
    rs_recipient *other;
    for (uint32_t at = 0; !rs_is_finished(&x->t) && (other = rs_carriers_next(now, x, r, m, &at));)
        if (type)
            rs_sender_message(node, now, x, other, &said);
        else
            rs_carriers_leave(node, now, other);
    return RS_RX_NONE;
}

static rs_rx_result receive_message(rs_node *node, rs_time now, const rs_packet_in *packet) {
    rs_message m;
    if (!rs_wire_decode(packet->header, packet->header_length, packet->payload_length, &m))
        return (rs_rx_result){.verdict = RS_RX_BAD};
    if (m.type == RS_MSG_HELLO || m.type == RS_MSG_NAME || m.type == RS_MSG_KEY)
        return (rs_rx_result){.verdict = RS_RX_NONE}; /* the caller's business */
    if (m.version != RS_WIRE_VERSION)
        return (rs_rx_result){.verdict = RS_RX_BAD};
    bool carries = m.type == RS_MSG_CARRY_TO || m.type == RS_MSG_CARRY || m.type == RS_MSG_CARRIED;
    if (carries && !node->config.carries)
        return (rs_rx_result){.verdict = RS_RX_BAD};
    if (m.type == RS_MSG_CARRIED)
        return (rs_rx_result){.verdict = on_carried(node, now, packet->peer, &m)};
    if (m.type == RS_MSG_OPEN)
        return (rs_rx_result){.verdict = rs_on_open(node, now, packet->peer, packet->peer, &m)};
    rs_receiving *in = (rs_receiving *)rs_find_nonce(node, m.nonce, false);
    if ((is_for_receiver(m.type) || is_for_either(m.type)) && in && in->link.peer->id == packet->peer)
        return rs_receiver_message(node, now, in, &m, packet);
    if (carries && in && in->link.peer->id == packet->peer)
        return (rs_rx_result){.verdict = m.type == RS_MSG_CARRY ? rs_carry_relay_carry(node, now, in, &m)
                                                                : rs_carry_relay_told(node, now, in, &m)};
    if (m.type == RS_MSG_CARRY_TO && rs_find_nonce(node, m.nonce, true))
        return (rs_rx_result){.verdict = RS_RX_BAD};
    if (is_for_receiver(m.type) || m.type == RS_MSG_CARRY_TO)
        return nobody(node, now, packet->peer, &m);
    rs_sending *out = (rs_sending *)rs_find_nonce(node, m.nonce, true);
    rs_recipient *r = out ? rs_recipient_of(out, packet->peer) : NULL;
    if (!r)
        return nobody(node, now, packet->peer, &m);
    if (m.type == RS_MSG_CARRY)
        return (rs_rx_result){.verdict = on_answers(node, now, out, r, &m)};
    if (m.type == RS_MSG_ABORT)
        rs_carriers_lost(node, now, out, r);
    return (rs_rx_result){.verdict = rs_sender_message(node, now, out, r, &m)};
}

bool rs_nonce_is_used(const rs_node *node, uint64_t nonce, bool sending) {
    return rs_find_nonce(node, nonce, sending) != NULL;
}

rs_peer rs_nonce_sender(const rs_node *node, uint64_t nonce) {
    const rs_receiving *in = (const rs_receiving *)rs_find_nonce(node, nonce, false);
    return in ? in->link.peer->id : RS_NO_PEER;
}

/* By a receiver that has no connection, as another one carries to it: a datagram's source is easily forged, and of
 * anybody else nothing is taken that ends or slows a transfer. */
static rs_rx_verdict on_said(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m,
                             bool itself, bool asks) {
    if (!x->carriers || rs_peer_is_up(r->link.peer) || !rs_is_active(r) || !rs_is_opened(r))
        return RS_RX_NONE;
    if (asks && r->link.via)
        rs_control_set_pending(node, now, &r->link, RS_CONTROL_TELL);
    if (!itself || m->type == RS_MSG_PING)
        return RS_RX_NONE;
    return rs_sender_message(node, now, x, r, m);
}

static rs_rx_result peer_datagram(rs_node *node, rs_time now, const rs_packet_in *packet) {
    uint64_t nonce;
    if (packet->peer == RS_NO_PEER || !rs_wire_nonce(packet->header, packet->header_length, &nonce))
        return (rs_rx_result){.verdict = RS_RX_BAD};
    rs_receiving *in = rs_receiving_of_packet(node, nonce);
    if (in && rs_receiver_told(node, now, in, packet))
        return (rs_rx_result){.verdict = RS_RX_NONE};
    if (in && in->state != RS_RX_OFFERED && in->t.engine->peer_datagram)
        return in->t.engine->peer_datagram(node, now, &in->t, packet);
    rs_sending *out = (rs_sending *)rs_find_nonce(node, nonce, true);
    rs_recipient *r = out ? rs_recipient_of(out, packet->peer) : NULL;
    rs_message said;
    bool itself, asks;
    if (r && rs_proof_said(node, r, packet, &said, &itself, &asks))
        return (rs_rx_result){.verdict = on_said(node, now, out, r, &said, itself, asks)};
    if (out && out->t.engine->peer_datagram && r)
        return out->t.engine->peer_datagram(node, now, &out->t, packet);
    return (rs_rx_result){.verdict = RS_RX_UNKNOWN};
}

rs_rx_result rs_receive(rs_node *node, rs_time now, const rs_packet_in *packet) {
    if (packet->channel == RS_CH_GROUP && packet->late && rs_receiving_has(node, packet))
        return (rs_rx_result){.verdict = RS_RX_OLD};
    if (packet->channel == RS_CH_GROUP)
        return rs_receiver_data(node, now, packet);
    if (packet->channel == RS_CH_PEER_RELIABLE && packet->peer != RS_NO_PEER)
        return receive_message(node, now, packet);
    if (packet->channel == RS_CH_PEER_DATAGRAM)
        return peer_datagram(node, now, packet);
    return (rs_rx_result){.verdict = RS_RX_BAD};
}

/* What a sender learns of its object while it is sent. */

rs_status rs_send_digest(rs_node *node, rs_time now, rs_xfer xfer, const rs_digest *digest) {
    rs_transfer *t = rs_by_id(node, xfer);
    if (!t || !t->sending || rs_is_finished(t))
        return RS_ERR_UNKNOWN;
    if (!rs_digest_follows(&t->digest))
        return RS_ERR_STATE;
    if (digest->algorithm != t->digest.algorithm || digest->length == 0 || digest->length > sizeof digest->value)
        return RS_ERR_INVALID;
    rs_sending *x = (rs_sending *)t;
    t->digest = *digest;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        r->progress_at = now;
        if (rs_is_active(r) && rs_is_opened(r))
            rs_control_set_pending(node, now, &r->link, RS_CONTROL_OPEN);
    }
    return RS_OK;
}

rs_status rs_send_grown(rs_node *node, rs_time now, rs_xfer xfer, uint64_t bytes) {
    rs_transfer *t = rs_by_id(node, xfer);
    if (!t || !t->sending || rs_is_finished(t))
        return RS_ERR_UNKNOWN;
    rs_sending *x = (rs_sending *)t;
    uint64_t fragments = bytes >= t->size ? UINT64_MAX : bytes / t->fragment_size;
    if (fragments <= x->available)
        return RS_OK;
    x->available = fragments;
    rs_engine_notify(node, now, t, RS_NEWS_GROWN);
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (rs_is_active(&x->recipients[i]) && x->recipients[i].want)
            rs_patch_ready(node, now, &x->recipients[i].link, true);
    return RS_OK;
}

rs_status rs_send_comes_by(rs_node *node, rs_time now, rs_xfer xfer, rs_xfer from) {
    rs_transfer *t = rs_by_id(node, xfer);
    if (!t || !t->sending || rs_is_finished(t))
        return RS_ERR_UNKNOWN;
    ((rs_sending *)t)->source = from;
    rs_engine_notify(node, now, t, RS_NEWS_GROWN);
    return RS_OK;
}

uint64_t rs_receive_count(const rs_node *node, rs_xfer xfer) {
    const rs_transfer *t = rs_by_id(node, xfer);
    return t && !t->sending ? ((const rs_receiving *)t)->present.count : 0;
}

/* What a receiver learns of its host. */

rs_status rs_receive_drops(rs_node *node, rs_time now, rs_group group, uint64_t drops) {
    bool any = false;
    for (rs_list *at = node->receiving.next; at != &node->receiving; at = at->next) {
        rs_receiving *x = (rs_receiving *)RS_HOLDER(rs_transfer, listed, at);
        if (x->state != RS_RX_RECEIVING || x->group != group || group == RS_NO_GROUP)
            continue;
        x->session_dropped += drops;
        if (drops)
            rs_engine_notify(node, now, &x->t, RS_NEWS_DROPPED);
        any = true;
    }
    return any ? RS_OK : RS_ERR_UNKNOWN;
}

void rs_receive_waited(rs_node *node, rs_group group, rs_time waited) {
    for (rs_list *at = node->receiving.next; at != &node->receiving; at = at->next) {
        rs_receiving *x = (rs_receiving *)RS_HOLDER(rs_transfer, listed, at);
        if (x->group == group)
            x->waited = waited;
    }
}

/* A receiver leaves. */

#define LEAVING (500 * RS_MS) /* one that has left repairs and answers for others for so long */

rs_status rs_receive_leave(rs_node *node, rs_time now, rs_xfer xfer) {
    rs_transfer *t = rs_by_id(node, xfer);
    rs_receiving *x = t && !t->sending && !rs_is_finished(t) ? (rs_receiving *)t : NULL;
    if (!x)
        return RS_ERR_UNKNOWN;
    if (x->state == RS_RX_OFFERED) {
        x->ack_status = RS_ACK_LEAVES;
        rs_receiver_finish(node, now, x, RS_CONTROL_OPEN_ACK, RS_LEFT);
        return RS_OK;
    }
    if (x->state == RS_RX_SERVING)
        return rs_receive_cancel(node, now, xfer, NULL);
    if (x->leaving_due != RS_NEVER)
        return RS_OK;
    x->rcvd_status = RS_RCVD_LEFT;
    if (x->state != RS_RX_RECEIVING || !x->t.own || !x->t.engine->serves || !x->t.engine->serves(x)) {
        rs_receiver_left(node, now, x);
        return RS_OK;
    }
    x->leaving_due = now + LEAVING;
    x->t.stream.taken = UINT64_MAX;
    rs_text_keep(node, &x->link.cause, RS_LEFT);
    rs_control_clear(node, now, &x->link, RS_CONTROL_PTCH_REQ);
    rs_control_set_pending(node, now, &x->link, RS_CONTROL_DATA_RCVD);
    rs_engine_notify(node, now, &x->t, RS_NEWS_LEAVES);
    rs_receiver_arm(node, x);
    return RS_OK;
}

void rs_node_paused(rs_node *node, rs_time now) {
    for (rs_list *at = node->sending.next; at != &node->sending; at = at->next) {
        rs_sending *x = (rs_sending *)RS_HOLDER(rs_transfer, listed, at);
        for (uint32_t i = 0; i < x->recipient_count; i++)
            x->recipients[i].link.ping_out = false;
        rs_engine_notify(node, now, &x->t, RS_NEWS_RESUMED);
    }
    for (rs_list *at = node->receiving.next; at != &node->receiving; at = at->next)
        ((rs_receiving *)RS_HOLDER(rs_transfer, listed, at))->link.ping_out = false;
}

void rs_timeout(rs_node *node, rs_time now) {
    /* Each timer that is due fires once; one that is due again at once waits for the next call. */
    for (uint32_t left = node->timers.count; left > 0; left--) {
        rs_timer *first = rs_timers_first(&node->timers);
        if (!first || first->due > now)
            return;
        rs_timer_set(&node->timers, first, RS_NEVER);
        if (first->kind == RS_TIMER_PEER)
            rs_peer_timeout(node, now, first->owner);
        else if (first->kind == RS_TIMER_SENDING)
            rs_sender_timeout(node, now, first->owner);
        else
            rs_receiver_timeout(node, now, first->owner);
    }
}

rs_time rs_deadline(const rs_node *node) {
    const rs_timer *first = rs_timers_first(&node->timers);
    rs_time data = rs_data_deadline(node);
    return first && first->due < data ? first->due : data;
}

rs_status rs_xfer_stats_get(const rs_node *node, rs_xfer xfer, rs_xfer_stats *out) {
    const rs_transfer *t = rs_by_id(node, xfer);
    if (!t)
        return RS_ERR_UNKNOWN;
    if (t->sending)
        rs_sender_stats(node, (const rs_sending *)t, out);
    else
        rs_receiver_stats(node, (const rs_receiving *)t, out);
    out->size = t->size;
    out->fragments = t->fragments;
    return RS_OK;
}

rs_status rs_send_buffers_get(const rs_node *node, rs_protocol protocol, rs_send_buffers *out) {
    const rs_engine *engine = rs_engine_of(node, (uint8_t)protocol);
    if (!engine || !engine->buffers)
        return RS_ERR_UNKNOWN;
    engine->buffers(node, out);
    return RS_OK;
}

static bool is_sane(const rs_view *v) {
    if (v->child_count > VIEW_CHILDREN || (v->child_count && !v->children))
        return false;
    return v->proxy.predecessor == RS_NO_PEER || v->leaf.predecessor != RS_NO_PEER;
}

/* A sender may be told its view before its path, so before it is known by which engine it goes: the first that takes
 * views has it, and lets it go if another one begins. */
static const rs_engine *of_views(const rs_node *node) {
    for (uint32_t i = 0; i < node->engine_count; i++)
        if (node->engines[i]->view)
            return node->engines[i];
    return NULL;
}

rs_status rs_set_view(rs_node *node, rs_time now, rs_xfer xfer, const rs_view *view) {
    rs_transfer *t = rs_by_id(node, xfer);
    if (!t || rs_is_finished(t))
        return RS_ERR_UNKNOWN;
    if (!is_sane(view))
        return RS_ERR_INVALID;
    const rs_engine *engine = t->engine->view || !t->sending ? t->engine : of_views(node);
    return engine && engine->view ? engine->view(node, now, t, view) : RS_ERR_STATE;
}
