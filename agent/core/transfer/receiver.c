/* A receiving transfer from INCOMING to RECEIVE_DONE. */
#include "core/transfer/receiver.h"

#include "core/transfer/engine.h"

#include <string.h>

#define KEEP (60000 * RS_MS) /* a finished transfer answers a sender that missed its final answer for so long */
/* A sender that was not heard for so long gives way to another of the object: an idle one says something each second */
#define REPLACE_AFTER (2500 * RS_MS)
#define REPLACE_STALLED (15000 * RS_MS) /* and one that was, of which less than that came in so long */
#define REPLACE_LEAST 65536
/* Who says by a datagram that it is whole does so within that part of the time between two of its samples: all at once
 * would be more than a port's queue takes. DATA_FNSD that others pass on comes to those, too, who just said so. */
#define TOLD_WITHIN (20 * RS_MS) /* after it accepted: where to report, of one to whom another one carries */
#define SAID_PART 16000
#define SAID_JUST_NOW (10 * RS_MS)

void rs_receiver_free(rs_node *node, rs_transfer *t) {
    rs_receiving *x = (rs_receiving *)t;
    if (node->last_rx == x)
        node->last_rx = NULL;
    rs_carry_relay_free(node, x);
    rs_leave(node, &x->t);
    rs_peer_session_end(node, &x->link);
    rs_engine_drop(node, &x->t);
    rs_memory_give(&node->allocator, x->present.words);
    rs_again_free(node, x);
    rs_memory_give(&node->allocator, x);
}

rs_time rs_receiver_request_timeout(const rs_receiving *x) {
    rs_time late = 4 * rs_rtt_late(&x->link.peer->rtt, 0);
    return late > RS_REQUEST_TIMEOUT ? late : RS_REQUEST_TIMEOUT;
}

/* Room for what is here, and for the fallback's sets. Of a stream the engine has all that. */
static bool make_sets(rs_node *node, rs_receiving *x) {
    const rs_engine *fallback = node->engines[0];
    size_t words = rs_seqset_words(x->t.fragments);
    uint64_t *memory =
        x->t.stream.on ? NULL : rs_memory_take(&node->allocator, (1 + fallback->sets) * words * sizeof *memory);
    if (!memory)
        return x->t.stream.on;
    rs_seqset_init(&x->present, x->t.fragments, memory);
    for (uint64_t sn = 0; sn < x->resumed; sn++)
        rs_seqset_add(&x->present, sn);
    x->stats.bytes_present = x->resumed * x->t.fragment_size;
    if (fallback->sets)
        fallback->lay_sets(x, memory + words);
    return true;
}

static void drop_sets(rs_node *node, rs_receiving *x) {
    if (node->engines[0]->sets && x->present.words)
        node->engines[0]->lay_sets(x, NULL);
    rs_memory_give(&node->allocator, x->present.words);
    x->present.words = NULL;
}

/* No longer a transfer: what remains answers repeated questions. `final_control` is what to say, and to say again; 0 =
 * nothing. */
void rs_receiver_finish(rs_node *node, rs_time now, rs_receiving *x, uint32_t final_control, const char *cause) {
    x->state = RS_RX_FINISHED;
    x->final_control = final_control;
    rs_text_keep(node, &x->link.cause, cause ? cause : "");
    rs_control_clear(node, now, &x->link, UINT32_MAX);
    if (final_control)
        rs_control_set_pending(node, now, &x->link, final_control);
    rs_engine_stop(node, &x->t);
    rs_again_free(node, x);
    drop_sets(node, x);
    x->present.size = 0;
    rs_retire(node, &x->t);
    x->kept_until = now + KEEP;
    rs_receiver_arm(node, x);
}

void rs_receiver_end(rs_node *node, rs_time now, rs_receiving *x, bool ok, uint32_t final_control, const char *cause) {
    rs_event event = {.kind = RS_EV_RECEIVE_DONE,
                      .xfer = x->t.id,
                      .peer = x->link.peer->id,
                      .ok = ok,
                      .bytes = x->stats.bytes_present,
                      .session = x->t.session};
    rs_format(event.cause, sizeof event.cause, "%s", cause ? cause : "");
    rs_receiver_finish(node, now, x, final_control, cause);
    rs_emit(node, &event);
}

void rs_receiver_left(rs_node *node, rs_time now, rs_receiving *x) {
    rs_receiver_end(node, now, x, false, RS_CONTROL_OPEN_ACK | RS_CONTROL_DATA_RCVD, RS_LEFT);
}

/* All is here: the caller checks the digest, and tells what it finds. */
void rs_receiver_await_check(rs_node *node, rs_time now, rs_receiving *x) {
    x->verify_due = now + node->config.no_path_bound;
    rs_emit(node, &(rs_event){.kind = RS_EV_COMPLETE,
                              .xfer = x->t.id,
                              .peer = x->link.peer->id,
                              .ok = true,
                              .bytes = x->t.size,
                              .session = x->t.session});
    rs_receiver_arm(node, x);
}

void rs_receiver_complete(rs_node *node, rs_time now, rs_receiving *x) {
    if (x->leaving_due != RS_NEVER) {
        rs_receiver_left(node, now, x);
        return;
    }
    x->state = RS_RX_VERIFYING;
    x->stats.data_done_at = now;
    rs_control_clear(node, now, &x->link, RS_CONTROL_PTCH_REQ | RS_CONTROL_RATE | RS_CONTROL_INTL_SEQ);
    if (x->proof.wanted && !x->proof.digest.length) { /* what is proven but the digest, the caller waits for that */
        x->proof.whole = true;
        if (x->proof.asked == 0)
            rs_proof_wait(node, now, x, 0);
        rs_receiver_arm(node, x);
        return;
    }
    rs_receiver_await_check(node, now, x);
}

static rs_receiving *receiving(const rs_node *node, rs_xfer id) {
    rs_transfer *t = rs_by_id(node, id);
    return t && !t->sending && !rs_is_finished(t) ? (rs_receiving *)t : NULL;
}

rs_status rs_incoming_info(const rs_node *node, rs_xfer xfer, rs_incoming *out) {
    const rs_receiving *x = receiving(node, xfer);
    if (!x)
        return RS_ERR_UNKNOWN;
    *out = (rs_incoming){.object = x->t.object,
                         .size = x->t.size,
                         .fragment_size = x->t.fragment_size,
                         .digest = x->t.digest,
                         .sender = x->link.peer->id,
                         .group_address = x->group_address,
                         .data_port = x->data_port,
                         .session = x->t.session,
                         .nonce = x->t.nonce};
    return RS_OK;
}

static void tell_session(rs_node *node, const rs_receiving *x) {
    rs_emit(node,
            &(rs_event){.kind = RS_EV_SESSION, .xfer = x->t.id, .peer = x->link.peer->id, .session = x->t.session});
}

void rs_receiver_next_session(rs_node *node, rs_receiving *x, const rs_message *m) {
    x->t.session = m->session;
    x->group_address = m->open.group_address;
    x->data_port = m->open.data_port;
    x->path_kind = m->open.path_kind;
    x->light_confirm = m->open.light_confirm;
    x->ended = false;
    rs_ring_start(&x->ring, m->open.first, m->open.end);
    x->session_news = x->state == RS_RX_OFFERED;
    if (x->state == RS_RX_RECEIVING && (x->path_kind != RS_OPEN_NO_PATH || x->group != RS_NO_GROUP))
        tell_session(node, x);
}

/* Memory is short: it is as it was before it was accepted. */
static rs_status unaccepted(rs_node *node, rs_time now, rs_receiving *x) {
    rs_control_clear(node, now, &x->link, RS_CONTROL_OPEN_ACK);
    drop_sets(node, x);
    x->state = RS_RX_OFFERED;
    return RS_ERR_MEMORY;
}

rs_status rs_incoming_accept(rs_node *node, rs_time now, rs_xfer xfer, rs_group group, uint64_t room) {
    rs_receiving *x = receiving(node, xfer);
    if (!x)
        return RS_ERR_UNKNOWN;
    if (x->state == RS_RX_RECEIVING) { /* a further session's group */
        x->group = group;
        x->room = room;
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_OPEN_ACK);
        return RS_OK;
    }
    if (x->state != RS_RX_OFFERED)
        return RS_ERR_STATE;
    x->room = room;
    if (!make_sets(node, x))
        return RS_ERR_MEMORY;
    x->group = group;
    x->state = RS_RX_RECEIVING;
    x->ack_status = RS_ACK_ACCEPTED;
    rs_control_set_pending(node, now, &x->link, RS_CONTROL_OPEN_ACK);
    if (x->session_news && x->path_kind != RS_OPEN_NO_PATH)
        tell_session(node, x);
    if (!x->t.engine->begin(node, now, x))
        return unaccepted(node, now, x);
    rs_proof_accepted(node, now, x);
    x->offered_due = RS_NEVER;
    x->came_bytes = x->stats.bytes_present;
    x->came_at = x->stats.granted_at = now;
    rs_receiver_arm(node, x);
    return RS_OK;
}

rs_status rs_incoming_resume(rs_node *node, rs_xfer xfer, uint64_t bytes) {
    rs_receiving *x = receiving(node, xfer);
    if (!x)
        return RS_ERR_UNKNOWN;
    if (x->state != RS_RX_OFFERED || x->t.stream.on)
        return RS_ERR_STATE;
    if (bytes > x->t.size)
        return RS_ERR_INVALID;
    x->resumed = bytes / x->t.fragment_size;
    if (x->resumed >= x->t.fragments) /* the last one comes again: all that follows from it does, too */
        x->resumed = x->t.fragments - 1;
    return RS_OK;
}

rs_status rs_receive_prefix(const rs_node *node, rs_xfer xfer, uint64_t from, uint64_t *bytes) {
    const rs_receiving *x = receiving(node, xfer);
    if (!x || !x->present.words)
        return RS_ERR_UNKNOWN;
    uint64_t sn = rs_seqset_next_absent(&x->present, NULL, from / x->t.fragment_size, x->t.fragments);
    *bytes = sn == x->t.fragments ? x->t.size : sn * x->t.fragment_size;
    return RS_OK;
}

static void turn_it_away(rs_node *node, rs_time now, rs_receiving *x, uint8_t status) {
    char cause[RS_CAUSE_MAX];
    rs_format(cause, sizeof cause, "%s", rs_peer_session_cause(&x->link));
    x->ack_status = status;
    rs_receiver_finish(node, now, x, RS_CONTROL_OPEN_ACK, cause);
}

/* What is not good for this receiver the sender is to say itself. */
static void ask_the_sender(rs_node *node, rs_time now, rs_receiving *x) {
    rs_peer_session_go_by(node, now, &x->link, NULL);
    rs_ping(node, now, &x->link);
}

/* What another one said of it. */
static void ask(rs_node *node, rs_time now, rs_receiving *x) {
    if (rs_proof_ask(node, now, x))
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_ASK);
    else
        ask_the_sender(node, now, x);
}

static rs_status turn_away(rs_node *node, rs_time now, rs_xfer xfer, uint8_t status, const char *cause) {
    rs_receiving *x = receiving(node, xfer);
    if (!x)
        return RS_ERR_UNKNOWN;
    if (x->state != RS_RX_OFFERED)
        return RS_ERR_STATE;
    rs_text_keep(node, &x->link.cause, cause);
    if (x->proof.wanted) { /* it may be another than the sender's */
        x->ack_status = status;
        x->proof.turned_away = true;
        ask_the_sender(node, now, x);
    } else {
        turn_it_away(node, now, x, status);
    }
    return RS_OK;
}

rs_status rs_incoming_refuse(rs_node *node, rs_time now, rs_xfer xfer, const char *cause) {
    return turn_away(node, now, xfer, RS_ACK_REFUSED, cause ? cause : "no reason given");
}

rs_status rs_incoming_have(rs_node *node, rs_time now, rs_xfer xfer) {
    return turn_away(node, now, xfer, RS_ACK_HAVE, "");
}

/* Nothing of it stays: the next OPEN is offered to the caller again. */
rs_status rs_incoming_kept(rs_node *node, rs_time now, rs_xfer xfer) {
    rs_receiving *x = receiving(node, xfer);
    if (!x)
        return RS_ERR_UNKNOWN;
    if (x->state != RS_RX_OFFERED)
        return RS_ERR_STATE;
    const rs_message about = {.nonce = x->t.nonce, .session = x->t.session};
    rs_unknown_transfer_answer(node, now, x->link.peer->id, &about, RS_MSG_OPEN_ACK, NULL);
    rs_receiver_free(node, &x->t);
    return RS_OK;
}

rs_status rs_verified(rs_node *node, rs_time now, rs_xfer xfer, bool ok, const char *cause) {
    rs_receiving *x = receiving(node, xfer);
    if (!x)
        return RS_ERR_UNKNOWN;
    if (x->state != RS_RX_VERIFYING)
        return RS_ERR_STATE;
    x->rcvd_status = ok ? RS_RCVD_COMPLETE : RS_RCVD_MISMATCH;
    if (ok && x->t.engine->serves && x->t.engine->serves(x)) {
        x->state = RS_RX_SERVING;
        x->verify_due = RS_NEVER;
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_DATA_RCVD);
        rs_engine_notify(node, now, &x->t, RS_NEWS_VERIFIED);
        return RS_OK;
    }
    rs_receiver_end(node, now, x, ok, RS_CONTROL_DATA_RCVD, ok ? "" : cause ? cause : "the digest is wrong");
    return RS_OK;
}

rs_status rs_receive_cancel(rs_node *node, rs_time now, rs_xfer xfer, const char *cause) {
    rs_receiving *x = receiving(node, xfer);
    if (!x)
        return RS_ERR_UNKNOWN;
    if (x->state == RS_RX_SERVING)
        rs_receiver_end(node, now, x, true, RS_CONTROL_DATA_RCVD, "");
    else
        rs_receiver_end(node, now, x, false, RS_CONTROL_ABORT, cause ? cause : "cancelled by the receiver");
    return RS_OK;
}

static uint64_t gapless(const rs_receiving *x) {
    uint64_t sn = rs_seqset_next_absent(&x->present, NULL, 0, x->t.fragments);
    return sn == x->t.fragments ? x->t.size : sn * x->t.fragment_size;
}

static void end_for_another(rs_node *node, rs_time now, rs_receiving *x, bool replaced, const char *cause) {
    rs_event event = {.kind = RS_EV_RECEIVE_DONE,
                      .xfer = x->t.id,
                      .peer = x->link.peer->id,
                      .replaced = replaced,
                      .bytes = replaced ? gapless(x) : x->stats.bytes_present,
                      .session = x->t.session};
    rs_format(event.cause, sizeof event.cause, "%s", cause);
    rs_receiver_finish(node, now, x, 0, event.cause);
    if (!x->proof.turned_away) /* else the caller knows it no more */
        rs_emit(node, &event);
}

void rs_receiver_make_place(rs_node *node, rs_time now, const rs_peer_state *newcomer) {
    rs_receiving *x = rs_gives_place(node, newcomer);
    if (x)
        rs_receiver_end(node, now, x, false, RS_CONTROL_ABORT,
                        "its place was needed: its sender has more transfers here than any other");
}

static void give_up(rs_node *node, rs_time now, rs_receiving *x, const char *cause) {
    x->rcvd_status = RS_RCVD_GIVEN_UP;
    rs_receiver_end(node, now, x, false, rs_peer_is_up(x->link.peer) ? RS_CONTROL_DATA_RCVD : 0, cause);
}

static void give_up_silent(rs_node *node, rs_time now, rs_receiving *x) {
    char text[RS_CAUSE_MAX];
    if (rs_proof_unanswered(x)) { /* nothing is remembered of it: if it has a sender, that one can begin it again */
        end_for_another(node, now, x, false,
                        "another receiver, which carries, said that it comes, and its sender does not answer");
        rs_receiver_free(node, &x->t);
        return;
    }
    const rs_peer_state *p = x->link.peer;
    long long ms = (long long)((now - x->link.heard_at) / RS_MS);
    if (rs_peer_is_up(p))
        rs_format(text, sizeof text, "the sender said nothing for %lld ms, %llu of %llu bytes are here", ms,
                  (unsigned long long)x->stats.bytes_present, (unsigned long long)x->t.size);
    else
        rs_format(text, sizeof text, "the sender cannot be reached for %lld ms: %s", ms,
                  p->down_cause ? p->down_cause : "no connection came up");
    give_up(node, now, x, text);
}

/* How long the sender may be silent. One whose process was stopped keeps its connections, and goes on with all it has;
 * so more is risked by giving up than by keeping what is here. One whose process or machine is gone loses them. */
static rs_time silence_bound(const rs_node *node, const rs_receiving *x) {
    if (rs_proof_unanswered(x))
        return node->config.sender_silence_bound / 5 * 2; /* it might be nobody's */
    return rs_link_is_up(&x->link) ? node->config.sender_away_bound : node->config.sender_silence_bound;
}

/* When it was heard, or its connection ended, for the last time. */
static rs_time silent_since(const rs_receiving *x) {
    rs_time down = rs_link_is_up(&x->link) ? RS_NEVER : x->link.peer->down_since;
    return down == RS_NEVER || down < x->link.heard_at ? x->link.heard_at : down;
}

static bool waits_for_sender(const rs_receiving *x) {
    return x->state < RS_RX_VERIFYING || rs_pieces_wait(x) || (x->proof.wanted && !rs_is_finished(&x->t));
}

/* True if the transfer ended. */
static bool waits_end(rs_node *node, rs_time now, rs_receiving *x) {
    bool alive = now - x->link.heard_at < node->config.sender_silence_bound;
    if (alive && rs_digest_follows(&x->t.digest)) { /* without it nothing can be checked, or be known to be here */
        x->offered_due = now < x->offered_due ? x->offered_due : now + node->config.sender_silence_bound;
        x->verify_due = now < x->verify_due ? x->verify_due : now + node->config.no_path_bound;
    }
    if (now >= x->leaving_due) {
        rs_receiver_left(node, now, x);
        return true;
    }
    if (now >= x->offered_due && x->proof.turned_away) {
        turn_it_away(node, now, x, x->ack_status);
        return true;
    }
    if (now >= x->offered_due) {
        x->ack_status = RS_ACK_REFUSED;
        rs_receiver_end(node, now, x, false, RS_CONTROL_OPEN_ACK, "the receiving agent did not make room in time");
        return true;
    }
    if (now >= x->verify_due) {
        bool told = !rs_digest_follows(&x->t.digest);
        give_up(node, now, x, told ? "the digest was not checked in time" : "the sender told no digest, and is silent");
        return true;
    }
    if (waits_for_sender(x) && now - silent_since(x) >= silence_bound(node, x)) {
        give_up_silent(node, now, x);
        return true;
    }
    return false;
}

void rs_receiver_timeout(rs_node *node, rs_time now, rs_receiving *x) {
    if (rs_is_finished(&x->t) && now >= x->kept_until) {
        rs_receiver_free(node, &x->t);
        return;
    }
    rs_carry_relay_timeout(node, now, x);
    if (now >= x->proof.ask_due)
        ask(node, now, x);
    if (now >= x->rcvd_due)
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_DATA_RCVD);
    if (rs_is_finished(&x->t)) {
        rs_receiver_arm(node, x);
        return;
    }
    if (waits_end(node, now, x))
        return;
    if (now >= x->ping_due) {
        rs_time bound = node->config.sender_silence_bound, silent = now - x->link.heard_at;
        if (silent >= bound / 4 * 3 && x->link.via && x->state != RS_RX_SERVING)
            ask_the_sender(node, now, x);
        else if (silent >= bound / 2 && rs_link_is_up(&x->link) && x->state != RS_RX_SERVING)
            rs_ping(node, now, &x->link);
        x->ping_due = now + bound / 4 + 1;
    }
    if (now >= x->again_due)
        rs_again_ask(node, now, x);
    if (x->t.engine->timeout)
        x->t.engine->timeout(node, now, &x->t);
    rs_receiver_arm(node, x);
}

void rs_receiver_arm(rs_node *node, rs_receiving *x) {
    rs_time relay = rs_carry_relay_due(x), rcvd = x->link.pending & RS_CONTROL_DATA_RCVD ? RS_NEVER : x->rcvd_due;
    relay = rcvd < relay ? rcvd : relay;
    if (rs_is_finished(&x->t)) {
        rs_timer_set(&node->timers, &x->t.timer, relay < x->kept_until ? relay : x->kept_until);
        return;
    }
    rs_time silent = !waits_for_sender(x) ? RS_NEVER : silent_since(x) + silence_bound(node, x);
    const rs_time dues[] = {silent,       x->offered_due, x->verify_due, x->ping_due,
                            x->again_due, x->leaving_due, relay,         x->proof.ask_due};
    rs_transfer_arm(node, &x->t, dues, sizeof dues / sizeof dues[0]);
}

static const rs_receiving *on_group(const rs_node *node, rs_group group) {
    if (node->last_rx && node->last_rx->group == group && node->last_rx->state == RS_RX_RECEIVING)
        return node->last_rx;
    for (const rs_list *at = node->receiving.next; at != &node->receiving; at = at->next) {
        const rs_receiving *x = (const rs_receiving *)RS_HOLDER(rs_transfer, listed, at);
        if (x->group == group && x->state == RS_RX_RECEIVING)
            return x;
    }
    return NULL;
}

bool rs_predict(const rs_node *node, rs_group group, uint32_t ahead, rs_xfer *xfer, uint64_t *offset,
                uint32_t *length) {
    const rs_receiving *x = group == RS_NO_GROUP ? NULL : on_group(node, group);
    if (!x)
        return false;
    uint64_t ring = x->ring.end - x->ring.first;
    if (ahead >= ring) /* once around: each place is named for one packet of a batch, or one overwrites the other */
        return false;
    uint64_t past = x->ring.lit || x->ring.run ? x->ring.prior - x->ring.first + 1 : 0;
    uint64_t sn = x->ring.first + (past + ahead) % ring;
    if (x->t.stream.on ? !x->t.engine->stream->lacks(x, sn) : rs_seqset_has(&x->present, sn))
        return false;
    *xfer = x->t.id;
    *offset = sn * x->t.fragment_size;
    *length = rs_fragment_length(&x->t, sn);
    return true;
}

void rs_receiver_stats(const rs_node *node, const rs_receiving *x, rs_xfer_stats *out) {
    *out = x->stats;
    out->phase = x->state == RS_RX_FINISHED ? RS_PHASE_DONE : RS_PHASE_HIGH_RATE;
    rs_engine_stats(node, &x->t, out);
}

/* ------------------------------------------------------------------------------------------ what comes in, and OPEN */

static rs_rx_result verdict(rs_rx_verdict what) {
    return (rs_rx_result){.verdict = what};
}

rs_rx_result rs_receiver_store(rs_receiving *x, uint64_t sn) {
    rs_rx_result result = {.xfer = x->t.id,
                           .offset = sn * x->t.fragment_size,
                           .length = rs_fragment_length(&x->t, sn),
                           .verdict = rs_seqset_add(&x->present, sn) ? RS_RX_STORE : RS_RX_OLD};
    if (result.verdict == RS_RX_STORE)
        x->stats.bytes_present += result.length;
    else
        x->stats.packets_old++;
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
    if (!x || x->state == RS_RX_OFFERED || (repair && rs_wire_repair_engine(packet->header) != x->t.engine->id))
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
rs_rx_verdict rs_on_data_fnsd(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    if (m->session == x->t.session) {
        x->ended = true;
        rs_engine_notify(node, now, &x->t, RS_NEWS_OVER);
    }
    if (x->state == RS_RX_SERVING && (!x->link.via || now - x->rcvd_at >= SAID_JUST_NOW))
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_DATA_RCVD); /* the sender missed it */
    if (x->state == RS_RX_RECEIVING)                                       /* else it asks when it is accepted */
        x->t.engine->message(node, now, &x->link, m);
    return RS_RX_NONE;
}

rs_rx_result rs_receiver_message(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m,
                                 const rs_packet_in *packet) {
    char cause[RS_CAUSE_MAX];
    x->link.heard_at = now;
    if (rs_is_finished(&x->t) && m->type != RS_MSG_OPEN) {
        if (m->type == RS_MSG_DATA_FNSD || m->type == RS_MSG_PING)
            rs_control_set_pending(node, now, &x->link, x->final_control); /* the sender missed it */
        return m->type == RS_MSG_PTCH_DATA ? (rs_rx_result){.verdict = RS_RX_OLD, .xfer = x->t.id}
                                           : verdict(RS_RX_NONE);
    }
    switch (m->type) {
    case RS_MSG_PTCH_DATA:
        return on_ptch_data(node, now, x, m, packet);
    case RS_MSG_LEAVES:
        return rs_on_leaves(node, x, m);
    case RS_MSG_REPORT_TO:
        if (m->session > x->t.session)
            return verdict(RS_RX_BAD);
        x->said_each = (rs_time)m->report_to.sample_us * 1000;
        if (rs_proof_spread(node, now, x))
            rs_receiver_arm(node, x);
        return verdict(x->state == RS_RX_OFFERED || x->t.stream.on || !x->t.engine->report_to
                           ? RS_RX_NONE
                           : x->t.engine->report_to(node, now, x, m));
    case RS_MSG_DATA_FNSD:
        return verdict(m->session > x->t.session ? RS_RX_BAD : rs_on_data_fnsd(node, now, x, m));
    case RS_MSG_ABORT:
        if (x->state == RS_RX_SERVING) { /* it is whole here */
            rs_receiver_end(node, now, x, true, 0, "");
            return verdict(RS_RX_NONE);
        }
        rs_format(cause, sizeof cause, "the sender aborted: %s", m->abort.cause.text);
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

static bool says(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what, rs_message *m, bool *more) {
    rs_receiving *x = (rs_receiving *)link->transfer;
    const uint32_t good = RS_CONTROL_OPEN_ACK | RS_CONTROL_CARRY | RS_CONTROL_ASK | RS_CONTROL_DATA_RCVD;
    if (x->proof.wanted && !link->via && !rs_is_finished(&x->t) && !(what & good)) {
        x->proof.unsaid |= what; /* it might contradict what the sender knows */
        return false;
    }
    switch (what) {
    case RS_CONTROL_ASK:
        m->type = RS_MSG_PING;
        return link->via != NULL;
    case RS_CONTROL_OPEN_ACK:
        m->type = RS_MSG_OPEN_ACK;
        m->open_ack.status = x->ack_status;
        m->open_ack.room = x->room;
        rs_wire_cause_set(&m->open_ack.cause, x->ack_status == RS_ACK_REFUSED ? rs_peer_session_cause(&x->link) : "");
        return true;
    case RS_CONTROL_LEAF_REQ:
        return rs_leaf_request(x, m);
    case RS_CONTROL_CARRY:
        return rs_carry_relay_says(now, node, x, m, more);
    case RS_CONTROL_DATA_RCVD:
        if (!link->via)
            x->rcvd_due = RS_NEVER; /* of a datagram, which none will be */
        m->type = RS_MSG_DATA_RCVD;
        m->data_rcvd.status = x->rcvd_status;
        m->data_rcvd.patched = x->stats.patches_received + x->stats.repairs_used;
        rs_wire_cause_set(&m->data_rcvd.cause,
                          x->rcvd_status == RS_RCVD_COMPLETE ? "" : rs_peer_session_cause(&x->link));
        return true;
    case RS_CONTROL_PTCH_REQ:
        if (x->again.words) {
            bool worth = rs_again_request(x, m);
            *more = rs_again_pending(x);
            return worth;
        }
        return x->t.engine->say(node, now, x, what, m, more);
    default:
        return x->t.engine->say(node, now, x, what, m, more);
    }
}

/* What was said may be lost: say again what the sender must know, ask again for what is missing. */
static void peer_up(rs_node *node, rs_time now, rs_peer_session *link) {
    rs_receiving *x = (rs_receiving *)link->transfer;
    rs_peer_session_go_by(node, now, link, NULL);
    x->proof.ask_due = RS_NEVER; /* its OPEN comes */
    if (x->state == RS_RX_FINISHED) {
        if (x->final_control)
            rs_control_set_pending(node, now, &x->link, RS_CONTROL_OPEN_ACK | x->final_control);
        return;
    }
    if (x->state == RS_RX_SERVING)
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_OPEN_ACK | RS_CONTROL_DATA_RCVD);
    if (x->state == RS_RX_VERIFYING && rs_pieces_wait(x)) {
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_OPEN_ACK | (x->leaf_count ? RS_CONTROL_LEAF_REQ : 0));
        if (x->again.words)
            rs_again_ask(node, now, x);
    }
    if (x->state != RS_RX_RECEIVING)
        return;
    rs_control_set_pending(node, now, &x->link, RS_CONTROL_OPEN_ACK);
    rs_engine_notify(node, now, &x->t, RS_NEWS_CONNECTED);
}

/* Who says only what ended does not do so for ever. */
static void unreached(rs_node *node, rs_time now, rs_peer_session *link) {
    const rs_receiving *x = (const rs_receiving *)link->transfer;
    if (rs_is_finished(&x->t) && now - link->peer->down_since >= node->config.sender_silence_bound)
        rs_control_clear(node, now, link, UINT32_MAX);
}

/* It waits for another one. */
static void peer_down(rs_node *node, rs_time now, rs_peer_session *link) {
    (void)node, (void)now, (void)link;
}

/* Good news, and questions, go by who carries; how far it is, and that all is here, straight to the sender. All else
 * needs a connection of its own. */
static bool carried(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what, rs_message *m,
                    rs_packet_out *out) {
    rs_receiving *x = (rs_receiving *)link->transfer;
    rs_message said = *m;
    if (what != RS_CONTROL_ASK && rs_carry_is_answer((uint8_t)m->type) &&
        (m->type != RS_MSG_OPEN_ACK || x->ack_status == RS_ACK_ACCEPTED)) {
        *m = (rs_message){.type = RS_MSG_CARRIED, .nonce = said.nonce, .session = said.session};
        return rs_wire_inner_set(&m->carried.inner, &said);
    }
    if (what & (RS_CONTROL_PTCH_REQ | RS_CONTROL_PTCH_MAP) && x->said_each == 0 &&
        now - x->stats.granted_at < TOLD_WITHIN)
        return false; /* as if it was lost: whom to ask it is about to be told */
    out->header_length = rs_proof_say(x, m, out->header);
    if (!out->header_length && m->type == RS_MSG_RATE)
        return false; /* the sender does not know it yet */
    if (out->header_length && m->type == RS_MSG_DATA_RCVD && now < x->rcvd_due) {
        if (x->rcvd_due == RS_NEVER)
            x->rcvd_due = now + (rs_time)(rs_random(node) % ((uint64_t)x->said_each / SAID_PART + 1));
        rs_receiver_arm(node, x);
        out->header_length = 0;
        return x->rcvd_due <= now && carried(node, now, link, what, m, out);
    }
    if (out->header_length && m->type == RS_MSG_DATA_RCVD) {
        x->rcvd_due = RS_NEVER;
        x->rcvd_at = now;
    }
    if (out->header_length) {
        out->channel = RS_CH_PEER_DATAGRAM;
        out->peer = link->peer->id;
        return true;
    }
    link->pending |= what;
    rs_peer_session_go_by(node, now, link, NULL);
    return false;
}

void rs_receiver_carried(rs_node *node, rs_time now, rs_receiving *x, rs_peer by) {
    rs_peer_state *p = rs_find_peer(node, by);
    if (p && p != x->link.peer && rs_peer_is_up(p) && !rs_peer_is_up(x->link.peer))
        rs_peer_session_go_by(node, now, &x->link, p);
}

static const rs_talk talk = {
    .says = says, .up = peer_up, .down = peer_down, .unreached = unreached, .carried = carried};

/* What waited for it has the whole of its time now. */
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

/* What another one said of it is true: what waited for that is said and done. */
static void proven(rs_node *node, rs_time now, rs_receiving *x) {
    rs_proof_of_sender had = rs_proof_end(x);
    if (!had.wanted || rs_is_finished(&x->t))
        return;
    if (had.turned_away)
        turn_it_away(node, now, x, x->ack_status);
    if (had.unsaid)
        rs_control_set_pending(node, now, &x->link, had.unsaid);
    if (had.digest.length)
        take_digest(node, now, x, &had.digest);
    if (had.whole)
        rs_receiver_await_check(node, now, x);
    rs_receiver_arm(node, x);
}

bool rs_receiver_told(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet) {
    rs_told_what what = rs_proof_told(now, x, packet);
    if (what == RS_TOLD_TRUE) {
        proven(node, now, x);
    } else if (what == RS_TOLD_FALSE) {
        x->proof.ask_due = RS_NEVER;
        ask_the_sender(node, now, x);
    }
    return what != RS_TOLD_NO;
}

/* A session of a transfer that is known here: a repetition, or the next one. */
static rs_rx_verdict on_open_again(rs_node *node, rs_time now, rs_receiving *x, rs_peer by, const rs_message *m) {
    bool ends = x->t.size == RS_STREAM && m->open.size != RS_STREAM;
    if ((m->open.size != x->t.size && !ends) || m->open.fragment_size != x->t.fragment_size)
        return RS_RX_BAD;
    if (ends && !rs_is_finished(&x->t) && !rs_stream_ends(node, now, x, m->open.size))
        return RS_RX_BAD;
    if (rs_is_finished(&x->t)) { /* of a stream that was left here before its end, too */
        if (x->final_control)
            rs_control_set_pending(node, now, &x->link, RS_CONTROL_OPEN_ACK | x->final_control);
        return RS_RX_NONE;
    }
    bool follows = rs_digest_follows(&x->t.digest) && m->open.digest.length > 0, again = false;
    if (follows && by != x->link.peer->id)
        again = rs_proof_digest(node, now, x, &m->open.digest);
    else if (follows && !take_digest(node, now, x, &m->open.digest))
        return RS_RX_BAD;
    if (again)
        rs_receiver_arm(node, x);
    return x->t.engine->message(node, now, &x->link, m);
}

static void arm(rs_node *node, rs_transfer *t) {
    rs_receiver_arm(node, (rs_receiving *)t);
}

static rs_receiving *make(rs_node *node, rs_time now, rs_peer peer, const rs_message *m) {
    const rs_engine *engine = rs_engine_of(node, m->open.engine);
    rs_peer_state *p = rs_make_peer(node, peer);
    rs_receiving *x = p ? rs_memory_take(&node->allocator, sizeof *x + node->engines[0]->receiving_size) : NULL;
    if (!x) {
        if (p)
            rs_drop_peer_if_idle(node, p);
        return NULL;
    }
    x->t.fallback = x + 1;
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
    x->t.free = rs_receiver_free;
    x->t.arm = arm;
    x->t.timer = (rs_timer){.due = RS_NEVER, .kind = RS_TIMER_RECEIVING, .owner = x};
    x->group_address = m->open.group_address;
    x->data_port = m->open.data_port;
    x->path_kind = m->open.path_kind;
    x->light_confirm = m->open.light_confirm;
    x->group = RS_NO_GROUP;
    x->feedback_interval = m->open.feedback_us < 1000 ? RS_MS : (rs_time)m->open.feedback_us * 1000;
    x->data_at = now - 1000 * RS_MS;
    x->came_at = now;
    x->verify_due = x->again_due = x->rcvd_due = x->proof.ask_due = RS_NEVER;
    if (node->engines[0]->prepare)
        node->engines[0]->prepare(now, &x->t);
    x->offered_due = now + node->config.sender_silence_bound;
    rs_ring_start(&x->ring, m->open.first, m->open.end);
    if (rs_enter(node, &x->t) != RS_OK) {
        rs_memory_give(&node->allocator, x);
        rs_drop_peer_if_idle(node, p);
        return NULL;
    }
    rs_peer_session_attach(&x->link, &talk, p, &x->t, now);
    x->leaving_due = RS_NEVER;
    x->ping_due = now + node->config.sender_silence_bound / 2;
    return x;
}

/* Whether what it says of its path and its length can be by its engine. Of one that is not known nobody can tell. */
static bool fits(const rs_engine *engine, const rs_message *m) {
    bool path = m->open.path_kind > RS_PATH_PACKET || !engine || (engine->path_kinds >> m->open.path_kind & 1);
    bool unicast = m->open.path_kind == RS_PATH_PACKET && m->open.group_address == 0;
    return path && (m->open.size != RS_STREAM || !engine || engine->stream) &&
           (!unicast || !engine || (engine->traits & RS_ENGINE_UNICAST));
}

/* Why an OPEN is refused whoever it is from; NULL: it is not. */
static const char *cannot_open(const rs_node *node, const rs_message *m) {
    if (!rs_engine_of(node, m->open.engine))
        return "it is sent by an engine that this agent does not know: update this agent, or choose another protocol";
    if (m->open.path_kind > RS_PATH_PACKET)
        return "it comes by a kind of path that this agent does not know: update this agent";
    if (!fits(rs_engine_of(node, m->open.engine), m))
        return "its engine does not go by that kind of path, or not without a group, or carries no streams: update the "
               "sender's agent";
    if (m->open.epoch != 0)
        return "its packets are sealed, and this agent has no keys: update this agent";
    bool many = m->open.size == RS_STREAM || m->open.size / m->open.fragment_size > RS_FRAGMENTS_SMALL;
    if (many && m->open.fragment_size < RS_FRAGMENT_LEAST)
        return "its fragments are too small: 256 bytes is the least for so many";
    if (rs_find_nonce(node, m->nonce, false) || rs_find_nonce(node, m->nonce, true))
        return "another transfer of this agent has that nonce";
    return NULL;
}

/* As far as is known by now it is the object that comes. */
static bool is_alike(const rs_receiving *x, const rs_message *m) {
    const rs_digest *is = &x->t.digest, *comes = &m->open.digest;
    return is->algorithm == comes->algorithm && m->open.size == x->t.size && !x->t.stream.on &&
           (is->length == 0 || comes->length == 0 ||
            (is->length == comes->length && memcmp(is->value, comes->value, is->length) == 0));
}

/* Another server sends on what the present sender, which is gone, silent, or sends nothing of it, has begun. */
static bool may_replace(rs_receiving *x, rs_time now, const rs_message *m) {
    uint64_t few = x->t.size / 64 < REPLACE_LEAST ? x->t.size / 64 : REPLACE_LEAST;
    if (x->stats.bytes_present > x->came_bytes + few) {
        x->came_bytes = x->stats.bytes_present;
        x->came_at = now;
    }
    bool silent =
        !rs_peer_is_up(x->link.peer) || now - x->link.heard_at >= REPLACE_AFTER || now - x->came_at >= REPLACE_STALLED;
    return silent && x->state == RS_RX_RECEIVING && is_alike(x, m);
}

rs_rx_verdict rs_receiver_hearsay(rs_node *node, rs_time now, rs_receiving *x, rs_peer by, const rs_message *m) {
    if (!x->link.via || x->link.via->id != by)
        return RS_RX_NONE; /* that one does not carry to here */
    if (m->type == RS_MSG_DATA_FNSD && now - x->data_at < RS_TAIL_QUIET)
        return RS_RX_NONE;
    bool ends = m->type == RS_MSG_ABORT && !rs_is_finished(&x->t);
    if (ends || (m->type == RS_MSG_OPEN && m->session != x->t.session)) {
        ask_the_sender(node, now, x);
        return RS_RX_NONE;
    }
    if (m->type == RS_MSG_ABORT)
        return RS_RX_NONE;
    if (m->type == RS_MSG_OPEN)
        return rs_on_open(node, now, x->link.peer->id, by, m);
    return rs_receiver_message(node, now, x, m, NULL).verdict;
}

rs_rx_verdict rs_on_open(rs_node *node, rs_time now, rs_peer peer, rs_peer by, const rs_message *m) {
    rs_receiving *x = rs_find_receiving(node, &m->open.object);
    if (x && x->link.peer->id == peer && x->t.nonce == m->nonce) {
        x->link.heard_at = now;
        if (!fits(rs_engine_of(node, m->open.engine), m))
            return RS_RX_BAD;
        bool false_word = by == peer && x->proof.wanted && !rs_is_finished(&x->t) && !rs_proof_agrees(x, m);
        if (!false_word) {
            if (by == peer) {
                x->proof.digest.length = 0; /* the sender's own is taken, if it has one by now */
                proven(node, now, x);
            }
            return on_open_again(node, now, x, by, m);
        }
        end_for_another(node, now, x, false,
                        "another receiver, which carries, said what is not so of it: it starts over");
        rs_receiver_free(node, &x->t);
        x = NULL;
    }
    const char *cause = cannot_open(node, m);
    if (cause) {
        rs_unknown_transfer_answer(node, now, peer, m, RS_MSG_OPEN_ACK, cause);
        return RS_RX_NONE;
    }
    bool other = x && !rs_is_finished(&x->t) && x->link.peer->id != peer, replaces = other && may_replace(x, now, m);
    if (other && x->proof.wanted) {
        ask_the_sender(node, now, x); /* there may be none: who asks again is answered otherwise */
        rs_unknown_transfer_answer(node, now, peer, m, RS_MSG_OPEN_ACK, NULL);
        return RS_RX_NONE;
    }
    if (other && !replaces) { /* who sends the same asks again until it is here */
        rs_unknown_transfer_answer(node, now, peer, m, RS_MSG_OPEN_ACK,
                                   is_alike(x, m) ? NULL : "another server is sending another object by that id here");
        return RS_RX_NONE;
    }
    if (m->open.size != RS_STREAM && rs_fragments(m->open.size, m->open.fragment_size) > RS_FRAGMENTS_MAX) {
        rs_unknown_transfer_answer(node, now, peer, m, RS_MSG_OPEN_ACK, "too large: more than 2^28 fragments");
        return RS_RX_NONE;
    }
    if (replaces) { /* one that only stood still asks from then on, too */
        const rs_message about = {.nonce = x->t.nonce, .session = x->t.session};
        rs_unknown_transfer_answer(node, now, x->link.peer->id, &about, RS_MSG_OPEN_ACK, NULL);
    }
    if (x && !rs_is_finished(&x->t))
        end_for_another(node, now, x, replaces,
                        replaces ? "its sender is gone, and another server sends it on" : "the sender started over");
    if (x)
        rs_receiver_free(node, &x->t);
    rs_receiver_make_place(node, now, rs_find_peer(node, by));
    x = make(node, now, peer, m);
    if (x && by != peer)
        rs_proof_begin(x);
    if (!x) {
        rs_unknown_transfer_answer(node, now, peer, m, RS_MSG_OPEN_ACK,
                                   "no room for one more transfer here: memory or the cap");
        return RS_RX_NONE;
    }
    rs_emit(
        node,
        &(rs_event){.kind = RS_EV_INCOMING, .xfer = x->t.id, .peer = peer, .bytes = x->t.size, .session = m->session});
    rs_receiver_arm(node, x);
    return RS_RX_NONE;
}

bool rs_stream_ends(rs_node *node, rs_time now, rs_receiving *x, uint64_t size) {
    uint64_t fragments = rs_fragments(size, x->t.fragment_size), came = 0, top = 0;
    if (x->t.own && x->t.owner->stream)
        x->t.owner->stream->extent(&x->t, &came, &top);
    if (!x->t.engine->stream || top > fragments)
        return false;
    x->t.size = size;
    x->t.fragments = fragments;
    rs_engine_notify(node, now, &x->t, RS_NEWS_ENDS);
    return true;
}
