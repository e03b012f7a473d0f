/* Connections to peers: what is to be said to whom, and when the connection is there. */
#include "core/transfer/peer_sessions.h"

#include <string.h>

#include "core/transfer/engine.h"

#define RETRY_FIRST (20 * RS_MS)
#define RETRY_MOST (500 * RS_MS)

static rs_peer_state *way(const rs_peer_session *link) {
    return link->via ? link->via : link->peer;
}

static bool wants_connection(const rs_peer_state *p) {
    return !rs_list_empty(&p->talking) || !rs_list_empty(&p->patching);
}

/* Puts the peer where its state says it belongs: in the lists of those that can be sent to, or with the caller who is
 * asked to connect. */
static void update(rs_node *node, rs_time now, rs_peer_state *p) {
    bool open = p->connection == RS_PEER_WRITABLE;
    rs_list_keep(&node->talking, &p->in_talking, open && (!rs_list_empty(&p->talking) || p->unknown_reply_count));
    rs_list_keep(&node->patching, &p->in_patching, open && !rs_list_empty(&p->patching));
    if (p->connection != RS_PEER_DOWN || !wants_connection(p)) {
        rs_timer_set(&node->timers, &p->timer, RS_NEVER);
        return;
    }
    if (now < p->retry_at) {
        rs_timer_set(&node->timers, &p->timer, p->retry_at);
        return;
    }
    rs_timer_set(&node->timers, &p->timer, RS_NEVER);
    p->connection = RS_PEER_WANTED;
    if (p->down_since == RS_NEVER)
        p->down_since = now;
    const rs_list *first = rs_list_empty(&p->talking) ? NULL : p->talking.next;
    rs_peer_session *link = first ? RS_HOLDER(rs_peer_session, in_talking, first)
                                  : RS_HOLDER(rs_peer_session, in_patching, p->patching.next);
    rs_emit(node, &(rs_event){.kind = RS_EV_PEER_WANTED, .peer = p->id, .xfer = link->transfer->id});
}

void rs_peer_timeout(rs_node *node, rs_time now, rs_peer_state *p) {
    update(node, now, p);
}

void rs_peer_session_attach(rs_peer_session *link, const rs_talk *talk, rs_peer_state *peer, rs_transfer *transfer,
                            rs_time now) {
    link->talk = talk;
    link->peer = peer;
    link->via = NULL;
    link->transfer = transfer;
    link->heard_at = now;
    rs_list_init(&link->in_peer);
    rs_list_init(&link->in_talking);
    rs_list_init(&link->in_patching);
    rs_list_append(&peer->links, &link->in_peer);
}

void rs_peer_session_end(rs_node *node, rs_peer_session *link) {
    rs_peer_state *p = link->peer;
    if (!p)
        return;
    rs_list_remove(&link->in_peer);
    rs_list_remove(&link->in_talking);
    rs_list_remove(&link->in_patching);
    rs_peer_state *via = link->via;
    if (via)
        rs_list_keep(&node->talking, &via->in_talking,
                     via->connection == RS_PEER_WRITABLE &&
                         (!rs_list_empty(&via->talking) || via->unknown_reply_count));
    link->peer = link->via = NULL;
    rs_memory_give(&node->allocator, link->cause);
    link->cause = NULL;
    if (!wants_connection(p))
        rs_timer_set(&node->timers, &p->timer, RS_NEVER);
    rs_list_keep(&node->talking, &p->in_talking,
                 p->connection == RS_PEER_WRITABLE && (!rs_list_empty(&p->talking) || p->unknown_reply_count));
    rs_list_keep(&node->patching, &p->in_patching, p->connection == RS_PEER_WRITABLE && !rs_list_empty(&p->patching));
    rs_drop_peer_if_idle(node, p);
}

void rs_control_set_pending(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what) {
    if (what == RS_CONTROL_CONNECT && rs_link_is_up(link))
        return;
    link->pending |= what;
    rs_list_keep(&way(link)->talking, &link->in_talking, true);
    update(node, now, way(link));
}

void rs_control_clear(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what) {
    link->pending &= ~what;
    if (link->pending == 0) {
        rs_list_keep(&way(link)->talking, &link->in_talking, false);
        update(node, now, way(link));
    }
}

void rs_peer_session_go_by(rs_node *node, rs_time now, rs_peer_session *link, rs_peer_state *via) {
    rs_peer_state *before = way(link);
    if (link->via == via)
        return;
    rs_list_remove(&link->in_talking);
    link->via = via;
    link->ping_out = false;
    link->pending &= ~(uint32_t)RS_CONTROL_CONNECT;
    if (link->pending)
        rs_list_append(&way(link)->talking, &link->in_talking);
    update(node, now, before);
    update(node, now, way(link));
}

void rs_patch_ready(rs_node *node, rs_time now, rs_peer_session *link, bool ready) {
    rs_list_keep(&link->peer->patching, &link->in_patching, ready);
    update(node, now, link->peer);
}

/* Behind the last of those that wait. */
static bool room_for_reply(rs_node *node, rs_peer_state *p) {
    if (p->unknown_reply_count == 0)
        p->unknown_reply_first = 0;
    if (p->unknown_reply_first + p->unknown_reply_count < p->unknown_reply_room)
        return true;
    bool grows = p->unknown_reply_count == p->unknown_reply_room;
    uint32_t room = !grows ? p->unknown_reply_room : p->unknown_reply_room ? 2 * p->unknown_reply_room : 8;
    rs_unknown_transfer_reply *to = grows ? rs_memory_take(&node->allocator, room * sizeof *to) : p->unknown_replies;
    if (!to)
        return false;
    if (p->unknown_reply_count)
        memmove(to, p->unknown_replies + p->unknown_reply_first, p->unknown_reply_count * sizeof *to);
    if (grows)
        rs_memory_give(&node->allocator, p->unknown_replies);
    p->unknown_replies = to;
    p->unknown_reply_first = 0;
    p->unknown_reply_room = room;
    return true;
}

void rs_unknown_transfer_answer(rs_node *node, rs_time now, rs_peer peer, const rs_message *about, rs_message_type type,
                                const char *cause) {
    rs_peer_state *p = rs_find_peer(node, peer);
    uint32_t most = type == RS_MSG_OPEN_ACK ? RS_OPEN_REPLIES : RS_UNKNOWN_TRANSFER_REPLIES;
    if (!p || !rs_peer_is_up(p) || p->unknown_reply_count >= most)
        return; /* it will ask again, or fall silent for us: both are bounded */
    for (uint32_t i = 0; i < p->unknown_reply_count; i++) {
        rs_unknown_transfer_reply *waits = &p->unknown_replies[p->unknown_reply_first + i];
        if (waits->nonce != about->nonce || waits->type != type)
            continue;
        waits->session = about->session;
        waits->cause = cause;
        return;
    }
    if (!room_for_reply(node, p))
        return; /* likewise */
    p->unknown_replies[p->unknown_reply_first + p->unknown_reply_count++] =
        (rs_unknown_transfer_reply){.type = type, .nonce = about->nonce, .session = about->session, .cause = cause};
    update(node, now, p);
}

static bool send_unknown_reply(rs_peer_state *p, rs_packet_out *out) {
    rs_unknown_transfer_reply reply = p->unknown_replies[p->unknown_reply_first++];
    p->unknown_reply_count--;
    rs_message m = {.type = reply.type, .nonce = reply.nonce, .session = reply.session};
    if (reply.type == RS_MSG_OPEN_ACK) {
        m.open_ack.status = reply.cause ? RS_ACK_REFUSED : RS_ACK_KEPT;
        rs_wire_cause_set(&m.open_ack.cause, reply.cause ? reply.cause : "");
    } else {
        rs_wire_cause_set(&m.abort.cause, reply.cause);
    }
    size_t length = rs_wire_encode(&m, 0, out->header, sizeof out->header);
    out->header_length = (uint16_t)length;
    return length > 0;
}

const char *rs_peer_session_cause(const rs_peer_session *link) {
    return link->cause ? link->cause : "out of memory: the reason was lost";
}

uint32_t rs_peer_session_next(const rs_peer_session *link) {
    uint32_t bits = link->pending & ~(uint32_t)RS_CONTROL_CONNECT;
    return bits & (~bits + 1);
}

bool rs_peer_session_makes(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what, rs_message *m,
                           bool *more) {
    m->nonce = link->transfer->nonce;
    m->session = link->transfer->session;
    *more = false;
    if (what == RS_CONTROL_PING) {
        m->type = RS_MSG_PING;
        m->ping.token = link->ping_token = (uint64_t)now;
        link->ping_out = true;
        return true;
    }
    if (what == RS_CONTROL_PONG) {
        m->type = RS_MSG_PONG;
        m->ping.token = link->pong_token;
        return true;
    }
    if (what == RS_CONTROL_ABORT) {
        m->type = RS_MSG_ABORT;
        rs_wire_cause_set(&m->abort.cause, rs_peer_session_cause(link));
        return true;
    }
    return what && link->talk->says(node, now, link, what, m, more);
}

/* Makes the link's next message. False if what was to be said no longer matters. */
static bool say_next(rs_node *node, rs_time now, rs_peer_session *link, rs_packet_out *out) {
    uint32_t what = rs_peer_session_next(link);
    rs_message m = {0};
    bool more = false;
    link->pending &= ~(what | RS_CONTROL_CONNECT);
    if (!rs_peer_session_makes(node, now, link, what, &m, &more))
        return false;
    if (more)
        link->pending |= what;
    out->xfer = link->transfer->id;
    if (link->via && !link->talk->carried(node, now, link, what, &m, out))
        return false;
    if (out->channel == RS_CH_PEER_RELIABLE)
        out->header_length = (uint16_t)rs_wire_encode(&m, 0, out->header, sizeof out->header);
    return out->header_length > 0;
}

/* One control message; peers and their links take turns. */
static bool poll_talk(rs_node *node, rs_time now, rs_packet_out *out) {
    while (!rs_list_empty(&node->talking)) {
        rs_peer_state *p = RS_HOLDER(rs_peer_state, in_talking, node->talking.next);
        bool said;
        out->channel = RS_CH_PEER_RELIABLE;
        out->peer = p->id;
        out->group = RS_NO_GROUP;
        out->xfer = 0;
        out->payload_offset = out->payload_length = out->combine.count = 0;
        rs_list_append(&node->talking, &p->in_talking);
        if (p->unknown_reply_count) {
            said = send_unknown_reply(p, out);
        } else {
            rs_peer_session *link = RS_HOLDER(rs_peer_session, in_talking, p->talking.next);
            said = say_next(node, now, link, out);
            if (link->pending && way(link) == p)
                rs_list_append(&p->talking, &link->in_talking);
            else if (link->pending == 0)
                rs_list_remove(&link->in_talking);
        }
        update(node, now, p);
        if (said)
            return true;
    }
    return false;
}

static bool patch_of(rs_node *node, rs_sending *x, rs_recipient *r, rs_packet_out *out) {
    uint64_t sn;
    if (!rs_is_active(r) || !r->want || !rs_ranges_pop_sn(r->want, &sn))
        return false;
    if (sn >= x->available) { /* rs_send_grown goes on */
        rs_ranges_add(r->want, sn, sn + 1);
        return false;
    }
    if (r->want->count == 0)
        rs_sender_wants_nothing(node, r);
    rs_message m = {.type = RS_MSG_PTCH_DATA, .nonce = x->t.nonce, .session = x->t.session, .ptch_data.sn = sn};
    out->channel = RS_CH_PEER_RELIABLE;
    out->peer = r->link.peer->id;
    out->group = RS_NO_GROUP;
    out->xfer = x->t.id;
    out->payload_offset = sn * x->t.fragment_size;
    out->payload_length = rs_fragment_length(&x->t, sn);
    out->combine.count = 0;
    out->header_length = (uint16_t)rs_wire_encode(&m, out->payload_length, out->header, sizeof out->header);
    r->patches_sent++;
    x->stats.patches_sent++;
    return true;
}

/* One PTCH_DATA; peers take turns, then the transfers to a peer. */
static bool poll_patch(rs_node *node, rs_time now, rs_packet_out *out) {
    while (!rs_list_empty(&node->patching)) {
        rs_peer_state *p = RS_HOLDER(rs_peer_state, in_patching, node->patching.next);
        rs_peer_session *link = RS_HOLDER(rs_peer_session, in_patching, p->patching.next);
        rs_recipient *r = RS_HOLDER(rs_recipient, link, link);
        bool sent = patch_of(node, (rs_sending *)link->transfer, r, out);
        rs_list_append(&node->patching, &p->in_patching);
        rs_list_append(&p->patching, &link->in_patching);
        if (sent)
            r->progress_at = now;
        if (!sent || !r->want)
            rs_patch_ready(node, now, link, false);
        if (sent)
            return true;
    }
    return false;
}

void rs_ping(rs_node *node, rs_time now, rs_peer_session *link) {
    rs_control_set_pending(node, now, link, RS_CONTROL_PING);
}

void rs_on_ping(rs_node *node, rs_time now, rs_peer_session *link, const rs_message *m) {
    link->pong_token = m->ping.token;
    rs_control_set_pending(node, now, link, RS_CONTROL_PONG);
}

void rs_on_pong(rs_time now, rs_peer_session *link, const rs_message *m) {
    if (link->ping_out && m->ping.token == link->ping_token && !link->via)
        rs_rtt_sample(&link->peer->rtt, now - (rs_time)link->ping_token);
    link->ping_out = false;
}

/* One that was asked for did not come up. */
static void unreached(rs_node *node, rs_time now, rs_peer_state *p) {
    for (rs_list *at = p->links.next, *next; at != &p->links; at = next) {
        next = at->next;
        rs_peer_session *link = RS_HOLDER(rs_peer_session, in_peer, at);
        if (link->talk->unreached)
            link->talk->unreached(node, now, link);
    }
}

static void each_link(rs_node *node, rs_time now, rs_peer_state *p, bool up) {
    for (rs_list *at = p->links.next, *next; at != &p->links; at = next) {
        next = at->next;
        rs_peer_session *link = RS_HOLDER(rs_peer_session, in_peer, at);
        link->ping_out = false;
        if (up)
            link->talk->up(node, now, link);
        else
            link->talk->down(node, now, link);
    }
}

rs_status rs_peer_up(rs_node *node, rs_time now, rs_peer peer) {
    rs_peer_state *p = rs_make_peer(node, peer);
    if (!p)
        return RS_ERR_MEMORY;
    if (rs_peer_is_up(p)) { /* a new connection took the old one's place: what went into the old one may be lost */
        p->connection = RS_PEER_WANTED; /* and is here: nobody is asked for it */
        each_link(node, now, p, false);
    }
    p->connection = RS_PEER_WRITABLE;
    p->down_since = RS_NEVER;
    p->up_at = now;
    p->unknown_reply_count = 0;
    for (rs_list *at = p->talking.next, *next; at != &p->talking; at = next) {
        next = at->next;
        rs_peer_session *link = RS_HOLDER(rs_peer_session, in_talking, at);
        link->pending &= ~(uint32_t)RS_CONTROL_CONNECT;
        if (link->pending == 0)
            rs_list_remove(&link->in_talking);
    }
    each_link(node, now, p, true);
    update(node, now, p);
    return RS_OK;
}

rs_status rs_peer_measured(rs_node *node, rs_peer peer, rs_time round_trip) {
    rs_peer_state *p = rs_make_peer(node, peer);
    if (!p)
        return RS_ERR_MEMORY;
    p->measured = round_trip;
    return RS_OK;
}

bool rs_peer_is_plain(const rs_node *node, rs_peer peer) {
    const rs_peer_state *p = rs_find_peer(node, peer);
    bool any = false;
    for (const rs_list *at = p ? p->links.next : NULL; p && at != &p->links; at = at->next) {
        const rs_transfer *t = RS_HOLDER(rs_peer_session, in_peer, at)->transfer;
        if (rs_is_finished(t))
            continue;
        if (!t->sending || t->engine == node->engines[0])
            return false;
        any = true;
    }
    return any;
}

/* Who heard the sender by it has only its own connection left. */
static void leave_carrier(rs_node *node, rs_time now, const rs_peer_state *p) {
    rs_list *const lists[] = {&node->receiving, &node->received};
    for (uint32_t i = 0; i < 2; i++)
        for (rs_list *at = lists[i]->next; at != lists[i]; at = at->next) {
            rs_receiving *x = (rs_receiving *)RS_HOLDER(rs_transfer, listed, at);
            if (x->link.peer && x->link.via == p)
                rs_peer_session_go_by(node, now, &x->link, NULL);
        }
}

rs_status rs_peer_down(rs_node *node, rs_time now, rs_peer peer, const char *cause) {
    rs_peer_state *p = rs_find_peer(node, peer);
    if (!p)
        return RS_ERR_UNKNOWN;
    bool was_up = rs_peer_is_up(p);
    p->connection = RS_PEER_DOWN;
    p->unknown_reply_count = 0;
    if (p->down_since == RS_NEVER)
        p->down_since = now;
    rs_text_keep(node, &p->down_cause, cause ? cause : "no reason given");
    if (was_up && now - p->up_at > RS_MS * 1000)
        p->backoff = 0; /* it was a good connection: try again at once */
    p->retry_at = now + p->backoff;
    p->backoff = p->backoff == 0 ? RETRY_FIRST : p->backoff < RETRY_MOST / 2 ? p->backoff * 2 : RETRY_MOST;
    if (was_up) {
        each_link(node, now, p, false);
        leave_carrier(node, now, p);
    } else {
        unreached(node, now, p);
    }
    update(node, now, p);
    rs_drop_peer_if_idle(node, p);
    return RS_OK;
}

rs_status rs_peer_writable(rs_node *node, rs_time now, rs_peer peer, bool writable) {
    rs_peer_state *p = rs_find_peer(node, peer);
    if (!p)
        return RS_ERR_UNKNOWN;
    /* It took some of what waited: it is alive, and what it was to answer may be among that. */
    for (rs_list *at = p->links.next; writable && p->connection == RS_PEER_CHOKED && at != &p->links; at = at->next)
        RS_HOLDER(rs_peer_session, in_peer, at)->heard_at = now;
    if (rs_peer_is_up(p))
        p->connection = writable ? RS_PEER_WRITABLE : RS_PEER_CHOKED;
    update(node, now, p);
    return RS_OK;
}

/* What leaves the node: control messages first, then data packets as pacers allow, round robin between transfers, with
 * patches in between. */

#define DATA_PER_PATCH 4 /* when the NIC is the limit: patches must not stall the data channel */

void rs_data_schedule(rs_node *node, rs_time now, rs_sending *x, rs_time due) {
    rs_timer_set(&node->data_timers, &x->data_timer, due > now ? due : RS_NEVER);
    if (due > now)
        rs_list_remove(&x->in_ready);
    else
        rs_list_append(&node->ready, &x->in_ready);
}

void rs_data_stop(rs_node *node, rs_sending *x) {
    rs_timer_set(&node->data_timers, &x->data_timer, RS_NEVER);
    rs_list_remove(&x->in_ready);
}

rs_time rs_data_deadline(const rs_node *node) {
    const rs_timer *first = rs_timers_first(&node->data_timers);
    rs_time due = first ? first->due : RS_NEVER;
    if (node->held)
        due = RS_NEVER;
    if ((!node->held && !rs_list_empty(&node->ready)) || !rs_list_empty(&node->patching) ||
        !rs_list_empty(&node->mending))
        due = rs_pacer_due(&node->nic) < due ? rs_pacer_due(&node->nic) : due;
    return due;
}

void rs_data_packet(const rs_sending *x, const rs_data_header *header, rs_packet_out *out) {
    rs_wire_encode_data(header, out->header);
    out->channel = RS_CH_GROUP;
    out->peer = RS_NO_PEER;
    out->group = x->grant.group;
    out->xfer = x->t.id;
    out->header_length = RS_DATA_HEADER;
    out->payload_offset = header->sn * x->t.fragment_size;
    out->payload_length = rs_fragment_length(&x->t, header->sn);
    out->combine.count = 0;
}

uint32_t rs_wire_bytes(const rs_packet_out *out) {
    return out->header_length + out->payload_length + RS_WIRE_OVERHEAD;
}

static bool poll_data(rs_node *node, rs_time now, rs_packet_out *out) {
    while (!rs_list_empty(&node->ready)) {
        rs_sending *x = RS_HOLDER(rs_sending, in_ready, node->ready.next);
        if (x->t.engine->poll(node, now, &x->t, RS_TURN_DATA, out))
            return true; /* if not, it is in the list no more */
    }
    return false;
}

void rs_node_hold(rs_node *node, rs_time now, bool held) {
    bool ends = node->held && !held;
    node->held = held;
    for (rs_list *at = node->sending.next; ends && at != &node->sending; at = at->next)
        rs_engine_notify(node, now, RS_HOLDER(rs_transfer, listed, at), RS_NEWS_RESUMED);
}

static bool poll_acks(rs_node *node, rs_time now, rs_packet_out *out) {
    while (!rs_list_empty(&node->acking)) {
        rs_transfer *t = RS_HOLDER(rs_transfer, in_acking, node->acking.next);
        if (t->engine->poll(node, now, t, RS_TURN_ACK, out))
            return true;
    }
    return false;
}

/* One repair to another receiver; transfers take turns. */
static bool poll_repairs(rs_node *node, rs_time now, rs_packet_out *out) {
    while (!rs_list_empty(&node->mending)) {
        rs_transfer *t = RS_HOLDER(rs_transfer, in_mending, node->mending.next);
        if (t->engine->poll(node, now, t, RS_TURN_REPAIR, out)) {
            rs_list_append(&node->mending, &t->in_mending);
            return true;
        }
        rs_list_remove(&t->in_mending);
        t->arm(node, t);
    }
    return false;
}

bool rs_poll_tx(rs_node *node, rs_time now, rs_packet_out *out) {
    if (poll_talk(node, now, out) || poll_acks(node, now, out))
        return true;
    for (rs_timer *t = rs_timers_first(&node->data_timers); t && t->due <= now; t = rs_timers_first(&node->data_timers))
        rs_engine_notify(node, now, &((rs_sending *)t->owner)->t, RS_NEWS_DATA_TIMER);
    if (!rs_pacer_ready(&node->nic, now))
        return false;
    bool patch_turn = node->held || node->data_in_row >= DATA_PER_PATCH || rs_list_empty(&node->ready);
    if (patch_turn && (poll_patch(node, now, out) || poll_repairs(node, now, out))) {
        node->data_in_row = 0;
        rs_pacer_sent(&node->nic, now, rs_wire_bytes(out));
        return true;
    }
    if (!node->held && poll_data(node, now, out)) {
        node->data_in_row++;
        return true;
    }
    return false;
}
