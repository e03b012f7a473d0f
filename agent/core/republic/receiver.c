/* Republic's receiver (Sec. III-A2, III-A3): what data packets say of light and losses, and asking for what is missing.
 * The bitmap of what is there is the truth; a second one marks what is asked for. */
#include "core/republic/receiver.h"

#include "core/republic/feedback_receiver.h"
#include "core/republic/repair_receiver.h"
#include "core/republic/tree_receiver.h"

#define ASKED_RUNS 48            /* runs asked for and not here yet: fewer than the sender remembers (RS_RANGES_CAP) */
#define TAIL_LEAST (RS_MS / 2)   /* hosts do not look at packets at once (RS_WAN_QUEUE_LEAST, a bound) */
#define OTHER_SOCKET (RS_MS / 4) /* DATA_FNSD may be read before packets that came before it (a bound) */
#define TAIL_LATEST RS_CONTROL_LATE /* after DATA_FNSD what is missing is asked for, even while data packets come */

/* ------------------------------------------------------------------------------------------- asking for patches */

/* Notes what is missing in [from, to) as due. Ranges may grow together in `to_ask`: what is asked for is cut out of
 * the bitmap again. */
static void request_repair(rs_node *node, rs_time now, rs_receiving *x, uint64_t from, uint64_t to) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    bool any = false;
    for (uint64_t at = from; at < to;) {
        uint64_t start = rs_seqset_next_absent(&x->present, &own->asked, at, to);
        uint64_t end = rs_seqset_next_present(&x->present, &own->asked, start, to);
        if (own->asks != RS_ASKS_MAPS)
            rs_ranges_add(&own->to_ask, start, end);
        any |= start < end;
        at = end;
    }
    if (any && own->asks == RS_ASKS_MAPS)
        rs_map_soon(node, now, x);
    else if (any)
        rs_request_schedule(node, now, x);
}

/* Asks if something is due and there is not enough to do with what is asked for already. */
void rs_request_schedule(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    if (own->to_ask.count == 0 || own->asked_runs >= ASKED_RUNS)
        return;
    if (rs_tree_asks(x))
        rs_tree_request(node, x);
    else if (!(x->link.pending & RS_CONTROL_PTCH_REQ))
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_PTCH_REQ);
}

/* When nothing is under way any more: four packets more would have come at the pace of those before, but for a look
 * into another socket. */
static rs_time quiet_at(const rs_receiving *x) {
    const rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_time said = own->tail_last - TAIL_LATEST, quiet = RS_TAIL_QUIET;
    if (x->t.fragments > RS_FEW || x->stats.packets_received == 0)
        return x->data_at + quiet;
    rs_time few = TAIL_LEAST + 4 * (x->data_at - own->began_at) / (rs_time)x->stats.packets_received;
    quiet = x->data_at + (few < quiet ? few : quiet);
    return quiet > said + OTHER_SOCKET ? quiet : said + OTHER_SOCKET;
}

/* DATA_FNSD came. Asks for what is missing once no data packet came in for a while. */
static void request_tail(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_time quiet = quiet_at(x);
    own->tail_due = quiet < own->tail_last ? quiet : own->tail_last;
    if (now < own->tail_due) {
        rs_receiver_arm(node, x);
        return;
    }
    own->tail_due = RS_NEVER;
    own->active = false;
    request_repair(node, now, x, 0, x->ring.end);
}

static void request_repair_between(rs_node *node, rs_time now, rs_receiving *x, uint64_t after, uint64_t before) {
    uint64_t from = rs_ring_next(&x->ring, after);
    if (after != before && from <= before) {
        request_repair(node, now, x, from, before);
    } else {
        request_repair(node, now, x, from, x->ring.end);
        request_repair(node, now, x, x->ring.first, before);
    }
}

void rs_request_restart(rs_node *node, rs_time now, rs_receiving *x, rs_asks how) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    own->asks = how;
    x->stats.lost -= own->asked.count; /* they are counted again when asked for again */
    rs_seqset_clear(&own->asked);
    own->asked_runs = 0;
    own->to_ask.count = 0;
    own->retry_due = own->map_due = RS_NEVER;
    rs_control_clear(node, now, &x->link, RS_CONTROL_PTCH_REQ | RS_CONTROL_PTCH_MAP);
}

uint32_t rs_due_ranges(const rs_receiving *x, rs_range out[3]) {
    const rs_ring *r = &x->ring;
    out[0] = (rs_range){0, r->first}; /* of the sessions before */
    if (x->ended || r->round_done) {
        out[0].to = r->end;
        return 1;
    }
    if (!r->lit)
        return 1;
    if (r->initial <= r->prior) {
        out[1] = (rs_range){r->initial, r->prior};
        return 2;
    }
    out[1] = (rs_range){r->first, r->prior};
    out[2] = (rs_range){r->initial, r->end};
    return 3;
}

void rs_request_repeat(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_range due[3];
    rs_request_restart(node, now, x, own->asks);
    uint32_t count = rs_due_ranges(x, due);
    for (uint32_t i = 0; i < count; i++)
        request_repair(node, now, x, due[i].from, due[i].to);
}

/* Repairs say that no data packet of the session follows: they go the way of the data. */
void rs_request_rest(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    if (x->ended || x->state != RS_RX_RECEIVING || !x->ring.lit)
        return;
    x->ended = true;
    own->active = false;
    rs_request_restart(node, now, x, RS_ASKS_RANGES_AGAIN); /* what was asked for and did not come was lost again */
    request_repair(node, now, x, 0, x->ring.end);
}

static void mark_asked(rs_receiving *x, uint64_t from, uint64_t to) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    own->asked_runs += 1;
    own->asked_runs -= from > 0 && rs_seqset_has(&own->asked, from - 1);
    own->asked_runs -= rs_seqset_has(&own->asked, to);
    rs_seqset_add_range(&own->asked, from, to);
    x->stats.lost += to - from;
}

/* A fragment that was asked for has come: runs end, or break in two. */
static void request_answered(rs_receiving *x, uint64_t sn) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    if (!rs_seqset_remove(&own->asked, sn) || own->asks == RS_ASKS_MAPS)
        return;
    int neighbours = (sn > 0 && rs_seqset_has(&own->asked, sn - 1)) + rs_seqset_has(&own->asked, sn + 1);
    if (neighbours == 0)
        own->asked_runs--;
    else if (neighbours == 2)
        own->asked_runs++;
}

/* The first run that is still missing in what is due, taken out of it. */
static bool first_due(rs_receiving *x, rs_range *out) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    while (own->to_ask.count) {
        rs_range r = rs_ranges_take(&own->to_ask, 0);
        out->from = rs_seqset_next_absent(&x->present, &own->asked, r.from, r.to);
        out->to = rs_seqset_next_present(&x->present, &own->asked, out->from, r.to);
        rs_ranges_add(&own->to_ask, out->to, r.to);
        if (out->from < out->to)
            return true;
    }
    return false;
}

/* The run up to the ring's end, if that is all that is due last. */
static bool tail_due(const rs_receiving *x, rs_range *out) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    if (own->to_ask.count == 0)
        return false;
    *out = own->to_ask.range[own->to_ask.count - 1];
    return out->to == x->ring.end && out->from > x->ring.first &&
           rs_seqset_next_present(&x->present, &own->asked, out->from, out->to) == out->to;
}

/* Names [from, to) as the exclusive range of a ring. */
static void name(rs_message *m, uint32_t session, uint64_t first, uint64_t end, uint64_t from, uint64_t to) {
    m->type = RS_MSG_PTCH_REQ;
    m->session = session;
    m->ptch_req.start = from == first ? end - 1 : from - 1;
    m->ptch_req.end = to == end ? first : to;
}

/* The next PTCH_REQ. A range that goes around the ring's end, as (prior, initial) does, is one message. */
static bool next_request(rs_time now, rs_receiving *x, rs_message *m) {
    rs_republic_receiver *state = rs_republic_receiver_of(x);
    uint64_t first = x->ring.first, end = x->ring.end;
    uint32_t session = x->t.session;
    rs_range r, tail;
    if (state->asked_runs >= ASKED_RUNS || !first_due(x, &r))
        return false;
    state->retry_due = now + rs_receiver_request_timeout(x);
    if (r.from == first && r.to < end && tail_due(x, &tail)) {
        rs_ranges_take(&state->to_ask, state->to_ask.count - 1);
        mark_asked(x, r.from, r.to);
        mark_asked(x, tail.from, tail.to);
        name(m, session, first, end, tail.from, r.to);
        return true;
    }
    if (r.from < first || r.to > end) {
        session = RS_SESSION_OBJECT;
        first = 0;
        end = x->t.fragments;
    }
    if (r.from == first && r.to == end && end - first > 1) { /* a whole ring has no name of its own: two requests */
        rs_ranges_add(&state->to_ask, first, first + 1);
        r.from = first + 1;
    }
    mark_asked(x, r.from, r.to);
    name(m, session, first, end, r.from, r.to);
    return true;
}

uint32_t rs_next_ranges(rs_time now, rs_receiving *x, rs_range *out, uint32_t most) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    uint32_t count = 0;
    while (count < most && own->asked_runs < ASKED_RUNS && first_due(x, &out[count])) {
        mark_asked(x, out[count].from, out[count].to);
        count++;
    }
    if (count)
        own->retry_due = now + rs_tree_request_timeout(x);
    return count;
}

/* --------------------------------------------------------------------------------------- packets and messages */

rs_rx_result rs_republic_store(rs_node *node, rs_receiving *x, uint64_t sn, bool to_all) {
    rs_rx_result result = rs_receiver_store(x, sn);
    if (result.verdict == RS_RX_STORE) {
        request_answered(x, sn);
        rs_tree_stored(node, x, sn, to_all);
    }
    return result;
}

/* What a data packet of the present session says about light and losses: Fig. 4. */
static void on_ring_packet(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    own->session_received++;
    rs_loss loss = rs_ring_packet(&x->ring, h->sn, x->light_confirm);
    switch (loss.what) {
    case RS_CASE_DARK:
    case RS_CASE_LATE:
        break;
    case RS_CASE_LIGHT:
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_INTL_SEQ | (rs_tree_is_on(x) ? 0 : RS_CONTROL_RATE));
        break;
    case RS_CASE_NEXT:
        break;
    case RS_CASE_GAP:
    case RS_CASE_ROUND:
        request_repair_between(node, now, x, loss.lost_after, loss.lost_before);
        rs_report_soon(node, now, x);
        break;
    }
    if (x->ring.round_done && loss.what != RS_CASE_LATE) {
        request_repair(node, now, x, x->ring.first,
                       x->ring.end); /* nothing, unless a packet came in at a strange time */
        if (own->active)
            rs_tree_done(node, now, x);
        own->active = false;
    } else if (!x->ring.round_done && !(h->flags & RS_DATA_ATTEMPT)) {
        rs_report_activity(node, now, x);
    }
    if (h->flags & RS_DATA_REPORT && rs_tree_is_on(x))
        rs_tree_mark(node, now, x, h->sn);
    else if (h->flags & RS_DATA_REPORT)
        rs_report_asked(node, now, x);
}

/* There is room for it here; it may be late for the data channel. */
bool rs_republic_begin(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver_of(x)->began_at = now;
    request_repair(node, now, x, 0, x->ended ? x->ring.end : x->ring.first);
    return true;
}

static rs_rx_result patch(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_rx_result result = rs_republic_store(node, x, sn, false);
    if (result.verdict == RS_RX_STORE)
        x->stats.patches_received++;
    own->retry_due = own->asked.count ? now + rs_receiver_request_timeout(x) : RS_NEVER;
    rs_request_schedule(node, now, x);
    rs_republic_check_complete(node, now, x);
    return result;
}

rs_rx_result rs_republic_data(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h,
                              const rs_packet_in *packet) {
    if (packet->channel == RS_CH_PEER_RELIABLE)
        return patch(node, now, x, h->sn);
    if (h->flags & RS_DATA_REPAIR)
        return rs_receiver_repair(node, now, x, packet);
    if (x->state != RS_RX_RECEIVING) {
        if ((h->flags & RS_DATA_REPORT) && h->session == x->t.session && rs_tree_is_on(x))
            rs_tree_mark(node, now, x, h->sn); /* of those it collects from */
        return (rs_rx_result){.verdict = RS_RX_OLD, .xfer = x->t.id};
    }
    x->link.heard_at = now;
    x->stats.packets_received++;
    x->data_at = now;
    rs_rx_result result = rs_republic_store(node, x, h->sn, true);
    if (h->session == x->t.session && x->path_kind != RS_OPEN_NO_PATH && h->sn >= x->ring.first && h->sn < x->ring.end)
        on_ring_packet(node, now, x, h);
    rs_request_schedule(node, now, x);
    rs_republic_check_complete(node, now, x);
    return result;
}

static void data_over(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    if (m->session == x->t.session) {
        bool reports = !rs_tree_has_parent(x), first = reports && !own->over;
        if (own->asks != RS_ASKS_RANGES_AGAIN || first) /* what repairs have not mended is patched */
            rs_request_restart(node, now, x, RS_ASKS_RANGES_AGAIN);
        own->over |= reports && !x->link.via;
        own->tail_last = now + TAIL_LATEST;
        request_tail(node, now, x);
    } else {
        request_repair(node, now, x, 0, x->ring.first);
        own->active = false;
    }
}

/* The next session: what the one before left out is asked for, its data channel is over. */
static void next_session(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_receiver_next_session(node, x, m);
    own->active = false;
    own->tail_due = RS_NEVER;
    own->repair_number = 0;
    own->over = false;
    rs_request_restart(node, now, x, RS_ASKS_RANGES);
    own->session_received = own->session_repairs = x->session_dropped = 0;
    rs_tree_session(x);
    rs_control_clear(node, now, &x->link, RS_CONTROL_INTL_SEQ | RS_CONTROL_RATE);
    if (x->state == RS_RX_RECEIVING)
        request_repair(node, now, x, 0, m->open.first); /* the data channel of what was before is done */
}

void rs_republic_receiver_message(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    if (m->type == RS_MSG_DATA_FNSD) {
        data_over(node, now, x, m);
        return;
    }
    if (m->session > x->t.session)
        next_session(node, now, x, m);
    if (x->state != RS_RX_OFFERED)
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_OPEN_ACK);
}

/* Requests, or what they brought, may be lost. */
static void ask_again(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    if (now >= own->retry_due)
        own->retry_due = RS_NEVER;
    if (own->asks == RS_ASKS_MAPS && x->ended && now - x->data_at >= RS_HOST_BUSY)
        own->asks = RS_ASKS_RANGES_AGAIN; /* no repairs come any more */
    rs_tree_retry(now, x);
    rs_request_repeat(node, now, x);
}

void rs_republic_connected(rs_node *node, rs_time now, rs_receiving *x) {
    if (x->ring.lit)
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_INTL_SEQ);
    ask_again(node, now, x);
}

void rs_republic_receiver_timeout(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    if (now >= own->retry_due)
        ask_again(node, now, x);
    if (now >= own->tail_due && x->state == RS_RX_RECEIVING)
        request_tail(node, now, x);
    if (now >= own->map_due)
        rs_map_timeout(node, now, x);
    if (now >= own->report_due)
        rs_report_timeout(node, now, x);
    rs_tree_timeout(node, now, x);
}

rs_time rs_republic_receiver_due(const rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_time asks = own->retry_due < own->tail_due ? own->retry_due : own->tail_due;
    rs_time tells = own->report_due < own->map_due ? own->report_due : own->map_due;
    rs_time due = asks < tells ? asks : tells, tree = rs_tree_due(x);
    return tree < due ? tree : due;
}

void rs_republic_check_complete(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    if (x->state != RS_RX_RECEIVING || x->present.count != x->t.fragments)
        return;
    own->active = false;
    own->report_due = own->retry_due = own->tail_due = own->map_due = RS_NEVER;
    rs_receiver_complete(node, now, x);
    rs_tree_done(node, now, x);
}

bool rs_republic_say(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    switch (what) {
    case RS_CONTROL_INTL_SEQ:
        m->type = RS_MSG_INTL_SEQ;
        m->intl_seq.sn = x->ring.initial;
        return x->state == RS_RX_RECEIVING && x->ring.lit;
    case RS_CONTROL_RATE:
        if (x->state != RS_RX_RECEIVING || !x->ring.lit)
            return false;
        rs_report_fill(node, now, x, m);
        return true;
    case RS_CONTROL_PTCH_REQ:
        if (x->state != RS_RX_RECEIVING || !next_request(now, x, m))
            return false;
        if (own->retry_due < x->t.timer.due)
            rs_receiver_arm(node, x);
        *more = own->to_ask.count > 0;
        return true;
    case RS_CONTROL_PTCH_MAP:
        if ((x->state != RS_RX_RECEIVING && x->state != RS_RX_VERIFYING) || own->asks != RS_ASKS_MAPS)
            return false;
        rs_next_map(now, x, m);
        if (own->retry_due < x->t.timer.due)
            rs_receiver_arm(node, x);
        *more = own->maps_left > 0;
        return true;
    default:
        return false;
    }
}
