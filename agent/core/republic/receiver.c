/* The receiver's side of the protocol of Sec. III-A: data packets, and one handler per message from the sender. */
#include "core/republic/republic.h"
#include "core/transfer/engine.h"

#include <string.h>

static rs_rx_result verdict(rs_rx_verdict what) {
    return (rs_rx_result){.verdict = what};
}

/* What a data packet of the present session says about light and losses: Fig. 4. */
static void on_ring_packet(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h) {
    x->session_received++;
    rs_loss loss = rs_ring_packet(&x->ring, h->sn, x->light_confirm);
    switch (loss.what) {
    case RS_CASE_DARK:
    case RS_CASE_LATE:
        break;
    case RS_CASE_LIGHT:
        rs_say(node, now, &x->link, RS_SAY_INTL_SEQ | RS_SAY_RATE);
        break;
    case RS_CASE_NEXT:
        break;
    case RS_CASE_GAP:
    case RS_CASE_ROUND:
        rs_ask_between(node, now, x, loss.lost_after, loss.lost_before);
        rs_report_soon(node, now, x);
        break;
    }
    if (x->ring.round_done && loss.what != RS_CASE_LATE) {
        rs_ask_missing(node, now, x, x->ring.first,
                       x->ring.end); /* nothing, unless a packet came in at a strange time */
        x->active = false;
    } else if (!x->ring.round_done && !(h->flags & RS_DATA_ATTEMPT)) {
        rs_report_activity(node, now, x);
    }
    if (h->flags & RS_DATA_REPORT)
        rs_say(node, now, &x->link, RS_SAY_RATE);
}

rs_rx_result rs_receiver_store(rs_receiving *x, uint64_t sn) {
    rs_rx_result result = {.xfer = x->t.id,
                           .offset = sn * x->t.fragment_size,
                           .length = rs_fragment_length(&x->t, sn),
                           .verdict = rs_seqset_add(&x->present, sn) ? RS_RX_STORE : RS_RX_OLD};
    if (result.verdict == RS_RX_STORE) {
        rs_asked_came(x, sn);
        x->stats.bytes_present += result.length;
    } else {
        x->stats.packets_old++;
    }
    return result;
}

rs_receiving *rs_receiving_of_packet(rs_node *node, uint64_t nonce) {
    rs_receiving *x = node->last_rx;
    if (x && x->t.nonce == nonce)
        return x;
    x = (rs_receiving *)rs_find_nonce(node, nonce, false);
    if (x)
        node->last_rx = x;
    return x;
}

rs_rx_result rs_receiver_data(rs_node *node, rs_time now, const rs_packet_in *packet) {
    rs_data_header h = {.flags = RS_DATA_REPAIR};
    int version = rs_wire_version(packet->header, packet->header_length);
    if (version >= 0 && version != RS_WIRE_VERSION)
        return verdict(RS_RX_VERSION);
    bool repair = rs_wire_data_header_length(packet->header, packet->header_length) == RS_REPAIR_HEADER;
    if (repair ? !rs_wire_nonce(packet->header, packet->header_length, &h.nonce)
               : !rs_wire_decode_data(packet->header, packet->header_length, &h) || !rs_engine_of(node, h.engine))
        return verdict(RS_RX_BAD);
    rs_receiving *x = rs_receiving_of_packet(node, h.nonce);
    if (!x || x->state == RS_RX_OFFERED)
        return verdict(RS_RX_UNKNOWN);
    if (repair)
        return x->t.engine->data_packet(node, now, x, &h, packet);
    if (x->t.size == RS_STREAM && packet->payload_length < x->t.fragment_size)
        return verdict(RS_RX_UNKNOWN); /* its end, which is not known here yet */
    if (h.sn >= x->t.fragments || packet->payload_length != rs_fragment_length(&x->t, h.sn))
        return verdict(RS_RX_BAD);
    if ((h.flags & RS_DATA_FIRST) && h.aux != x->t.size)
        return verdict(RS_RX_BAD);
    return x->t.engine->data_packet(node, now, x, &h, packet);
}

/* There is room for it here; it may be late for the data channel. */
bool rs_republic_begin(rs_node *node, rs_time now, rs_receiving *x) {
    rs_ask_missing(node, now, x, 0, x->ended ? x->ring.end : x->ring.first);
    return true;
}

static rs_rx_result patch(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn) {
    rs_rx_result result = rs_receiver_store(x, sn);
    if (result.verdict == RS_RX_STORE)
        x->stats.patches_received++;
    x->retry_due = x->asked.count ? now + rs_receiver_patience(x) : RS_NEVER;
    rs_ask_on(node, now, x);
    rs_republic_whole(node, now, x);
    return result;
}

rs_rx_result rs_republic_data(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h,
                              const rs_packet_in *packet) {
    if (packet->channel == RS_CH_PEER_RELIABLE)
        return patch(node, now, x, h->sn);
    if (h->flags & RS_DATA_REPAIR)
        return rs_receiver_repair(node, now, x, packet);
    if (x->state != RS_RX_RECEIVING)
        return (rs_rx_result){.verdict = RS_RX_OLD, .xfer = x->t.id};
    x->link.heard_at = now;
    x->stats.packets_received++;
    x->data_at = now;
    rs_rx_result result = rs_receiver_store(x, h->sn);
    if (h->session == x->t.session && x->path_kind != RS_OPEN_NO_PATH && h->sn >= x->ring.first && h->sn < x->ring.end)
        on_ring_packet(node, now, x, h);
    rs_ask_on(node, now, x);
    rs_republic_whole(node, now, x);
    return result;
}

static rs_rx_result on_ptch_data(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m,
                                 const rs_packet_in *packet) {
    uint64_t sn = m->ptch_data.sn;
    const rs_data_header h = {.session = m->session, .nonce = m->nonce, .sn = sn};
    if (sn >= x->t.fragments || packet->payload_length != rs_fragment_length(&x->t, sn))
        return verdict(RS_RX_BAD);
    if (x->state == RS_RX_OFFERED)
        return verdict(RS_RX_UNKNOWN);
    if (x->state == RS_RX_VERIFYING)
        return rs_again_patch(node, now, x, sn);
    if (x->state != RS_RX_RECEIVING)
        return (rs_rx_result){.verdict = RS_RX_OLD, .xfer = x->t.id};
    return x->t.engine->data_packet(node, now, x, &h, packet);
}

/* The data channel of that session is done: the tail (prior, initial) is lost, and (ours) whatever else the bitmap
 * misses. The control channel may be faster than the data channel: while data packets still come, what is missing is
 * late rather than lost. */
static void on_data_fnsd(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    if (m->session == x->t.session)
        x->ended = true;
    if (x->state == RS_RX_SERVING)
        rs_say(node, now, &x->link, RS_SAY_DATA_RCVD); /* the sender missed it */
    if (x->state != RS_RX_RECEIVING)
        return; /* asks when it is accepted */
    x->t.engine->message(node, now, &x->link, m);
}

static void data_over(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    if (m->session == x->t.session) {
        if (x->asks != RS_ASKS_RANGES_AGAIN) /* what repairs have not mended is patched */
            rs_ask_by(node, now, x, RS_ASKS_RANGES_AGAIN);
        x->tail_last = now + RS_TAIL_LATEST;
        rs_ask_tail(node, now, x);
    } else {
        rs_ask_missing(node, now, x, 0, x->ring.first);
        x->active = false;
    }
}

rs_rx_result rs_receiver_message(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m,
                                 const rs_packet_in *packet) {
    char cause[RS_CAUSE_MAX];
    x->link.heard_at = now;
    if (x->t.finished && m->type != RS_MSG_OPEN) {
        if (m->type == RS_MSG_DATA_FNSD || m->type == RS_MSG_PING)
            rs_say(node, now, &x->link, x->last_word); /* the sender missed it */
        return m->type == RS_MSG_PTCH_DATA ? (rs_rx_result){.verdict = RS_RX_OLD, .xfer = x->t.id}
                                           : verdict(RS_RX_NONE);
    }
    switch (m->type) {
    case RS_MSG_PTCH_DATA:
        return on_ptch_data(node, now, x, m, packet);
    case RS_MSG_LEAVES:
        return rs_on_leaves(node, x, m);
    case RS_MSG_DATA_FNSD:
        if (m->session > x->t.session)
            return verdict(RS_RX_BAD);
        on_data_fnsd(node, now, x, m);
        return verdict(RS_RX_NONE);
    case RS_MSG_ABORT:
        if (x->state == RS_RX_SERVING) { /* it is whole here */
            rs_receiver_end(node, now, x, true, 0, "");
            return verdict(RS_RX_NONE);
        }
        rs_words(cause, sizeof cause, "the sender aborted: %s", m->abort.cause.text);
        rs_receiver_end(node, now, x, false, 0, cause);
        return verdict(RS_RX_NONE);
    case RS_MSG_PING:
        rs_on_ping(node, now, &x->link, m);
        return verdict(RS_RX_NONE);
    case RS_MSG_PONG:
        rs_on_pong(now, &x->link, m);
        return verdict(RS_RX_NONE);
    default:
        return verdict(RS_RX_BAD);
    }
}

/* The next session: what the one before left out is asked for, its data channel is over. */
static void next_session(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    rs_receiver_next_session(node, x, m);
    x->active = false;
    x->tail_due = RS_NEVER;
    x->repair_number = 0;
    rs_ask_by(node, now, x, RS_ASKS_RANGES);
    x->session_received = x->session_repairs = x->session_dropped = 0;
    rs_unsay(node, now, &x->link, RS_SAY_INTL_SEQ | RS_SAY_RATE);
    if (x->state == RS_RX_RECEIVING)
        rs_ask_missing(node, now, x, 0, m->open.first); /* the data channel of what was before is done */
}

void rs_republic_receiver_message(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    if (m->type == RS_MSG_DATA_FNSD) {
        data_over(node, now, x, m);
        return;
    }
    if (m->session > x->t.session)
        next_session(node, now, x, m);
    if (x->state != RS_RX_OFFERED)
        rs_say(node, now, &x->link, RS_SAY_OPEN_ACK);
}

/* Requests, or what they brought, may be lost. */
static void ask_again(rs_node *node, rs_time now, rs_receiving *x) {
    if (now >= x->retry_due)
        x->retry_due = RS_NEVER;
    rs_ask_again(node, now, x);
}

void rs_republic_connected(rs_node *node, rs_time now, rs_receiving *x) {
    if (x->ring.lit)
        rs_say(node, now, &x->link, RS_SAY_INTL_SEQ);
    ask_again(node, now, x);
}

void rs_republic_receiver_timeout(rs_node *node, rs_time now, rs_receiving *x) {
    if (now >= x->retry_due)
        ask_again(node, now, x);
    if (now >= x->tail_due && x->state == RS_RX_RECEIVING)
        rs_ask_tail(node, now, x);
    if (now >= x->map_due)
        rs_map_timeout(node, now, x);
    if (now >= x->report_due)
        rs_report_timeout(node, now, x);
}

rs_time rs_republic_receiver_due(const rs_receiving *x) {
    rs_time asks = x->retry_due < x->tail_due ? x->retry_due : x->tail_due;
    rs_time tells = x->report_due < x->map_due ? x->report_due : x->map_due;
    return asks < tells ? asks : tells;
}

void rs_republic_whole(rs_node *node, rs_time now, rs_receiving *x) {
    if (x->state != RS_RX_RECEIVING || x->present.count != x->t.fragments)
        return;
    x->active = false;
    x->report_due = x->retry_due = x->tail_due = x->map_due = RS_NEVER;
    rs_receiver_is_whole(node, now, x);
}

bool rs_republic_say(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more) {
    switch (what) {
    case RS_SAY_INTL_SEQ:
        m->type = RS_MSG_INTL_SEQ;
        m->intl_seq.sn = x->ring.initial;
        return x->state == RS_RX_RECEIVING && x->ring.lit;
    case RS_SAY_RATE:
        if (x->state != RS_RX_RECEIVING || !x->ring.lit)
            return false;
        rs_report_fill(node, now, x, m);
        return true;
    case RS_SAY_PTCH_REQ:
        if (x->state != RS_RX_RECEIVING || !rs_next_request(now, x, m))
            return false;
        if (x->retry_due < x->t.timer.due)
            rs_receiver_arm(node, x);
        *more = x->to_ask.count > 0;
        return true;
    case RS_SAY_PTCH_MAP:
        if ((x->state != RS_RX_RECEIVING && x->state != RS_RX_VERIFYING) || x->asks != RS_ASKS_MAPS)
            return false;
        rs_next_map(now, x, m);
        if (x->retry_due < x->t.timer.due)
            rs_receiver_arm(node, x);
        *more = x->maps_left > 0;
        return true;
    default:
        return false;
    }
}

bool rs_receiver_says(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more) {
    switch (what) {
    case RS_SAY_OPEN_ACK:
        m->type = RS_MSG_OPEN_ACK;
        m->open_ack.status = x->ack_status;
        m->open_ack.room = x->room;
        rs_wire_cause_set(&m->open_ack.cause, x->ack_status == RS_ACK_REFUSED ? x->link.cause : "");
        return true;
    case RS_SAY_LEAF_REQ:
        return rs_leaf_request(x, m);
    case RS_SAY_DATA_RCVD:
        m->type = RS_MSG_DATA_RCVD;
        m->data_rcvd.status = x->rcvd_status;
        m->data_rcvd.patched = x->stats.patches_received + x->stats.repairs_used;
        rs_wire_cause_set(&m->data_rcvd.cause, x->rcvd_status == RS_RCVD_WHOLE ? "" : x->link.cause);
        return true;
    case RS_SAY_PTCH_REQ:
        if (x->again.words) {
            bool worth = rs_again_request(x, m);
            *more = rs_again_left(x);
            return worth;
        }
        return x->t.engine->say(node, now, x, what, m, more);
    default:
        return x->t.engine->say(node, now, x, what, m, more);
    }
}

/* The digest, which was to follow. What waited for it has the whole of its time now. */
static bool take_digest(rs_node *node, rs_time now, rs_receiving *x, const rs_digest *digest) {
    if (digest->algorithm != x->t.digest.algorithm)
        return false;
    x->t.digest = *digest;
    if (x->state == RS_RX_OFFERED)
        x->offered_due = now + node->config.sender_silence_bound;
    if (x->state == RS_RX_VERIFYING)
        x->verify_due = now + node->config.no_path_bound;
    rs_emit(node, &(rs_event){.kind = RS_EV_DIGEST, .xfer = x->t.id, .peer = x->link.peer->id});
    rs_receiver_arm(node, x);
    return true;
}

/* A session of a transfer that is known here: a repetition, or the next one. */
static rs_rx_verdict on_open_again(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    bool ends = x->t.size == RS_STREAM && m->open.size != RS_STREAM;
    if ((m->open.size != x->t.size && !ends) || m->open.fragment_size != x->t.fragment_size)
        return RS_RX_BAD;
    if (ends && !x->t.finished && !rs_stream_ends(node, now, x, m->open.size))
        return RS_RX_BAD;
    if (x->t.finished) { /* of a stream that was left here before its end, too */
        if (x->last_word)
            rs_say(node, now, &x->link, RS_SAY_OPEN_ACK | x->last_word);
        return RS_RX_NONE;
    }
    if (rs_digest_follows(&x->t.digest) && m->open.digest.length > 0 && !take_digest(node, now, x, &m->open.digest))
        return RS_RX_BAD;
    return x->t.engine->message(node, now, &x->link, m);
}

static rs_receiving *make(rs_node *node, rs_time now, rs_peer peer, const rs_message *m) {
    const rs_engine *engine = rs_engine_of(node, m->open.engine);
    rs_peer_state *p = rs_make_peer(node, peer);
    rs_receiving *x = p ? rs_allocate(node, sizeof *x) : NULL;
    if (!x) {
        if (p)
            rs_drop_peer_if_idle(node, p);
        return NULL;
    }
    x->t.object = m->open.object;
    x->t.nonce = m->nonce;
    x->t.size = m->open.size;
    x->t.fragment_size = m->open.fragment_size;
    x->t.fragments = rs_fragments(m->open.size, m->open.fragment_size);
    x->t.digest = m->open.digest;
    x->t.session = m->session;
    x->t.engine = engine;
    x->t.stream.on = m->open.size == RS_STREAM;
    x->t.reserved_events = engine->receiver_events;
    x->t.timer = (rs_timer){.due = RS_NEVER, .kind = RS_TIMER_RECEIVING, .owner = x};
    x->group_address = m->open.group_address;
    x->data_port = m->open.data_port;
    x->path_kind = m->open.path_kind;
    x->light_confirm = m->open.light_confirm;
    x->group = RS_NO_GROUP;
    x->feedback_interval = m->open.feedback_us < 1000 ? RS_MS : (rs_time)m->open.feedback_us * 1000;
    x->reported_at = x->data_at = now - 1000 * RS_MS;
    x->report_due = x->verify_due = x->retry_due = x->forget_due = x->tail_due = x->map_due = x->again_due = RS_NEVER;
    x->offered_due = now + node->config.sender_silence_bound;
    rs_ring_start(&x->ring, m->open.first, m->open.end);
    if (rs_enter(node, &x->t) != RS_OK) {
        rs_release(node, x);
        rs_drop_peer_if_idle(node, p);
        return NULL;
    }
    rs_link_attach(&x->link, p, &x->t, now);
    x->ping_due = now + node->config.sender_silence_bound / 2;
    return x;
}

/* Whether what it says of its path and its length can be by its engine. Of one that is not known nobody can tell. */
static bool fits(const rs_engine *engine, const rs_message *m) {
    bool path = m->open.path_kind > RS_PATH_PACKET || !engine || (engine->path_kinds >> m->open.path_kind & 1);
    return path && (m->open.size != RS_STREAM || !engine || engine->stream);
}

/* Why an OPEN is refused whoever it is from; NULL: it is not. */
static const char *cannot_open(const rs_node *node, const rs_message *m) {
    if (!rs_engine_of(node, m->open.engine))
        return "it is sent by an engine that this agent does not know: update this agent, or choose another protocol";
    if (m->open.path_kind > RS_PATH_PACKET)
        return "it comes by a kind of path that this agent does not know: update this agent";
    if (!fits(rs_engine_of(node, m->open.engine), m))
        return "its engine does not go by that kind of path, or carries no streams: update the sender's agent";
    if (m->open.epoch != 0)
        return "its packets are sealed, and this agent has no keys: update this agent";
    bool many = m->open.size == RS_STREAM || m->open.size / m->open.fragment_size > RS_FRAGMENTS_SMALL;
    if (many && m->open.fragment_size < RS_FRAGMENT_LEAST)
        return "its fragments are too small: 256 bytes is the least for so many";
    if (rs_find_nonce(node, m->nonce, false) || rs_find_nonce(node, m->nonce, true))
        return "another transfer of this agent has that nonce";
    return NULL;
}

rs_rx_verdict rs_on_open(rs_node *node, rs_time now, rs_peer peer, const rs_message *m) {
    rs_receiving *x = rs_find_receiving(node, &m->open.object);
    if (x && x->link.peer->id == peer && x->t.nonce == m->nonce) {
        x->link.heard_at = now;
        return fits(rs_engine_of(node, m->open.engine), m) ? on_open_again(node, now, x, m) : RS_RX_BAD;
    }
    const char *cause = cannot_open(node, m);
    if (cause) {
        rs_stray_answer(node, now, peer, m, RS_MSG_OPEN_ACK, cause);
        return RS_RX_NONE;
    }
    if (x && !x->t.finished && x->link.peer->id != peer) {
        rs_stray_answer(node, now, peer, m, RS_MSG_OPEN_ACK, "another server is sending this object here");
        return RS_RX_NONE;
    }
    if (m->open.size != RS_STREAM && rs_fragments(m->open.size, m->open.fragment_size) > RS_FRAGMENTS_MAX) {
        rs_stray_answer(node, now, peer, m, RS_MSG_OPEN_ACK, "too large: more than 2^28 fragments");
        return RS_RX_NONE;
    }
    if (x && !x->t.finished)
        rs_receiver_end(node, now, x, false, 0, "the sender began anew");
    if (x)
        rs_receiver_free(node, x);
    rs_receiver_make_place(node, now, rs_find_peer(node, peer));
    x = make(node, now, peer, m);
    if (!x) {
        rs_stray_answer(node, now, peer, m, RS_MSG_OPEN_ACK, "no room for one more transfer here: memory or the cap");
        return RS_RX_NONE;
    }
    rs_emit(
        node,
        &(rs_event){.kind = RS_EV_INCOMING, .xfer = x->t.id, .peer = peer, .bytes = x->t.size, .session = m->session});
    rs_receiver_arm(node, x);
    return RS_RX_NONE;
}
