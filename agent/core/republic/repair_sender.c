/* Repairs by multicast, at the sender: whether, when, and what is combined. Ours; the paper patches one by one.
 *
 * Patches are sent one by one (PTCH_DATA) until receivers have asked for so much that patching costs a share of the
 * data channel's time, and much of it could be spared. From then on requests are gathered in a table, and repair
 * packets, each of which mends a different loss at each of many receivers, go out between data packets. What finds no
 * company within HOLD is patched after all. When the round is over and the path is a packet path, it is kept for a
 * tail: repairs, then a mark to which receivers answer with what they still miss, until nothing is missing or little is
 * gained. */
#include "core/republic/repair_sender.h"

#include "core/republic/sender.h"
#include "core/republic/speakers.h"
#include "core/republic/window.h"

#define CHOICE_ASKED 8                  /* losses: their number is known to a third (its root) (test_repair), */
#define CHOICE_LEAST (4 * CHOICE_ASKED) /* and more than one packet in four is no loss that repairs mend */
#define PATCHES_DEAR 200 /* patching costs a packet in so many of the data channel or more: 0.5 % (MUCH of trial.c) */
#define SPARED_LEAST (2 * PATCHES_DEAR)     /* and half of that can be spared */
#define CHOICE_WINDOW 8192                  /* after so many the older half counts half: 40 losses at PATCHES_DEAR */
#define BURST RS_LOSS_RUN                   /* repairs in a row, and data packets at least before the next */
#define GATHERED (BURST / 2)                /* losses of each receiver that loses much, to begin a burst, */
#define BEHIND (4 * BURST)                  /* or of one alone: at the end it takes repairs of its own */
#define PATCHES_WAITING (RS_RANGES_CAP / 8) /* of one receiver, at most: the rest of its places are for requests */
#define HOLD 2048           /* packets: a loss waits so long for company; ten others come in it at PATCHES_DEAR, */
#define HOLD_LEAST RS_AHEAD /* and whoever lost the same says so within it, */
#define HOLD_MOST (2 * RS_CONTROL_LATE) /* or never */
#define ENDING (RS_AHEAD * 3 / 2)       /* so long before the end of a round without a tail nothing waits */
#define MARKS 2                         /* a mark goes out so many times: one may be lost (test_repair) */
#define MARK_AGAIN (10 * RS_MS)         /* an answer takes so long at a host that reads late (RS_HOST_PAUSE), */
#define ANSWERS_LEAST (RS_MS / 4)       /* most have come by then: as NEAR_LEAST_ENDED */
#define MARKS_MOST 12                   /* and who leaves so many unanswered is silent (RS_SILENT): the tail ends */
#define TAIL_LEAST RS_CONTROL_LATE
#define ROUNDS_IDLE 3 /* rounds of the tail that mend nothing: two may have been lost (test_repair) */
#define ROUNDS_CODED \
    4 /* after so many what is left is patched: of 5 % lost, 6 fragments of a million are (test_repair) */

static bool takes_part(const rs_sending *x, const rs_recipient *r) {
    return rs_is_active(r) && r->light == RS_LIGHT_LIT && rs_link_is_up(&r->link) && rs_speaks(x, r);
}

/* ------------------------------------------------------------------------------------------------------ the choice */

static void tell_choice(rs_node *node, const rs_sending *x, uint64_t sent, uint32_t losing) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    const rs_repairing *p = &own->repair;
    rs_event event = {.kind = RS_EV_LOG, .xfer = x->t.id, .session = x->t.session};
    uint64_t all = p->asked * 1000 / sent, most = p->asked_most * 1000 / sent;
    rs_format(
        event.cause, sizeof event.cause,
        "repairs by multicast, coded: %u receivers asked for %llu.%llu %% of %llu packets in all, the one that lost "
        "most for %llu.%llu %%",
        losing, (unsigned long long)all / 10, (unsigned long long)all % 10, (unsigned long long)sent,
        (unsigned long long)most / 10, (unsigned long long)most % 10);
    rs_emit(node, &event);
}

static void mark_next(rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    own->repair.marks = MARKS;
}

static void begin_coding(rs_node *node, rs_time now, rs_sending *x, uint64_t sent, uint32_t losing) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_repairing *p = &own->repair;
    if (rs_repair_table_init(&p->table, &node->allocator, rs_speakers_most(x)) != RS_OK) {
        p->phase = RS_REPAIR_REFUSED; /* out of memory: patches do it */
        return;
    }
    p->phase = RS_REPAIR_CODED;
    p->rest = BURST;
    tell_choice(node, x, sent, losing);
    mark_next(x);
    rs_republic_schedule(node, now, x);
}

/* Patching costs the sender a packet per loss and receiver, a coded repair about as many as the receiver needs that
 * lost most. */
static void choose(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_repairing *p = &own->repair;
    uint64_t sent = x->pos - p->from_pos;
    uint32_t losing = 0;
    if (p->phase == RS_REPAIR_REFUSED || node->config.repairs == RS_REPAIRS_PATCHES_ONLY ||
        x->phase != RS_PHASE_HIGH_RATE || !x->path_held || rs_speakers_most(x) > RS_REPAIR_RECEIVERS ||
        sent < CHOICE_LEAST || p->asked < CHOICE_ASKED)
        return;
    p->asked_most = 0;
    for (uint32_t i = 0; i < rs_speaker_count(x); i++) {
        const rs_recipient *r = rs_speaker(x, i);
        rs_progress *progress = rs_progress_of(r);
        losing += progress->asked > 0;
        p->asked_most = progress->asked > p->asked_most ? progress->asked : p->asked_most;
    }
    if (p->asked * PATCHES_DEAR >= sent && (p->asked - p->asked_most) * SPARED_LEAST >= sent) {
        begin_coding(node, now, x, sent, losing);
    } else if (sent > CHOICE_WINDOW) {
        p->from_pos += sent / 2;
        p->asked = 0;
        for (uint32_t i = 0; i < rs_speaker_count(x); i++)
            p->asked += rs_progress_of(rs_speaker(x, i))->asked /= 2;
    }
}

void rs_repair_begin_session(rs_node *node, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_repairing *p = &own->repair;
    rs_repair_end(node, x);
    *p = (rs_repairing){.tail_due = RS_NEVER};
    for (uint32_t i = 0; i < x->recipient_count; i++)
        rs_progress_of(&x->recipients[i])->asked = rs_progress_of(&x->recipients[i])->answered = 0;
}

void rs_repair_high_rate(rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (rs_repair_is_coded(&own->repair))
        return;
    own->repair.from_pos = x->pos;
    own->repair.asked = 0;
    for (uint32_t i = 0; i < rs_speaker_count(x); i++)
        rs_progress_of(rs_speaker(x, i))->asked = 0; /* of attempts: what was lost then says nothing of the path */
}

/* -------------------------------------------------------------------------------------------------- what they miss */

/* Fragments [from, to) are asked for. What cannot be held for a repair is patched. */
void rs_repair_asked(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, uint64_t from, uint64_t to) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_repairing *p = &own->repair;
    if (from >= to)
        return;
    if (rs_repair_is_coded(p) && takes_part(x, r))
        while (from < to && rs_repair_want(&p->table, now, rs_speaker_place(x, r), from))
            from++;
    if (!rs_speaks(x, r) && r->want && r->want->count + 1 >= RS_RANGES_CAP)
        return; /* more than those that it reports to need not name: it asks again */
    if (rs_sender_wants(node, r, from, to))
        rs_patch_ready(node, now, &r->link, true);
    if (rs_repair_is_coded(p) || r->light != RS_LIGHT_LIT || !rs_speaks(x, r))
        return;
    rs_progress_of(r)->asked += to - from;
    p->asked += to - from;
    choose(node, now, x);
}

static bool all_answered(const rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    for (uint32_t i = 0; i < rs_speaker_count(x); i++)
        if (takes_part(x, rs_speaker(x, i)) && rs_progress_of(rs_speaker(x, i))->answered < own->repair.mark_number)
            return false;
    return true;
}

static void tell_result(rs_node *node, const rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    const rs_repairing *p = &own->repair;
    rs_event event = {.kind = RS_EV_LOG, .xfer = x->t.id, .session = x->t.session};
    uint64_t lost = 0, most = 0, sent = x->pos ? x->pos : 1;
    uint64_t each = p->sent ? p->table.mended * 10 / p->sent : 0;
    for (uint32_t i = 0; i < p->table.receivers; i++) {
        lost += p->table.of[i].told;
        most = p->table.of[i].told > most ? p->table.of[i].told : most;
    }
    rs_format(event.cause, sizeof event.cause,
              "%llu repair packets mended %llu of %llu losses, %llu.%llu each; the receiver that lost most missed "
              "%llu.%llu %%",
              (unsigned long long)p->sent, (unsigned long long)p->table.mended, (unsigned long long)lost,
              (unsigned long long)each / 10, (unsigned long long)each % 10, (unsigned long long)(most * 100 / sent),
              (unsigned long long)(most * 1000 / sent % 10));
    rs_emit(node, &event);
}

/* What the table still holds, and what is still to be patched, is asked for again after DATA_FNSD. */
void rs_repair_end(rs_node *node, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_repairing *p = &own->repair;
    if (rs_repair_is_coded(p)) {
        tell_result(node, x);
        x->stats.repairs_mended += p->table.mended;
        for (uint32_t i = 0; i < rs_speaker_count(x); i++)
            if (rs_speaker(x, i)->member)
                rs_sender_wants_nothing(node, rs_speaker(x, i));
        p->phase = RS_REPAIR_CHOICE;
    }
    rs_repair_table_free(&p->table, &node->allocator);
    p->tail_due = RS_NEVER;
    p->marks = 0;
}

static void end_tail(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    bool complete = all_answered(x);
    for (uint32_t i = 0; i < own->repair.table.receivers; i++)
        complete &= own->repair.table.of[i].missing == 0;
    rs_repair_end(node, x);
    rs_data_stop(node, x);
    rs_sender_data_over(node, now, x, complete);
}

/* The tail goes on when all have answered the mark, or are not waited for any longer. */
static void next_round(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_repairing *p = &own->repair;
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->table.receivers; i++)
        most = p->table.of[i].wanted > most ? p->table.of[i].wanted : most;
    p->idle = p->table.mended == p->mended_before ? p->idle + 1 : 0;
    p->mended_before = p->table.mended;
    bool worth = p->rounds < ROUNDS_CODED || p->table.wanted * 2 >= 3 * (uint64_t)most;
    if (p->table.wanted == 0 || !worth || p->idle >= ROUNDS_IDLE || now >= p->tail_end) {
        end_tail(node, now, x);
        return;
    }
    p->rounds++;
    p->unanswered = p->early = 0;
    p->tail_due = RS_NEVER;
    rs_republic_schedule(node, now, x);
}

/* Those that have answered do not wait for those whose answer is late: it was lost, and is said again by TCP. That goes
 * for some rounds only: nothing else ends the tail of one that misses something and answers no mark. */
static void go_on(rs_node *node, rs_time now, rs_sending *x) {
    rs_repairing *p = &rs_republic_sender_of(x)->repair;
    bool early = p->table.wanted && p->early < ROUNDS_CODED;
    p->tail_due = early ? RS_NEVER : p->answers_due;
    p->early += early;
    if (early)
        rs_republic_schedule(node, now, x);
}

static void check_tail(rs_node *node, rs_time now, rs_sending *x) {
    const rs_repairing *p = &rs_republic_sender_of(x)->repair;
    if (rs_repair_in_tail(p) && p->tail_due != RS_NEVER && all_answered(x))
        next_round(node, now, x);
    else if (rs_repair_in_tail(p) && p->tail_due == p->answers_due)
        go_on(node, now, x);
    rs_sender_arm(node, x);
}

rs_rx_verdict rs_on_ptch_map(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_progress *progress = rs_progress_of(r);
    rs_repairing *p = &own->repair;
    if (m->session > x->t.session || m->ptch_map.base + m->ptch_map.bits > x->t.fragments)
        return RS_RX_BAD;
    if (m->session < x->t.session || !rs_repair_is_coded(p))
        return RS_RX_NONE; /* it asks again after DATA_FNSD */
    if (m->ptch_map.number > p->number)
        return RS_RX_BAD;
    const rs_repair_told told = {.from = m->ptch_map.from,
                                 .base = m->ptch_map.base,
                                 .bits = m->ptch_map.bits,
                                 .number = m->ptch_map.number,
                                 .last = m->ptch_map.last,
                                 .map = m->ptch_map.map};
    r->progress_at = now;
    progress->answered = m->ptch_map.number > progress->answered ? m->ptch_map.number : progress->answered;
    if (takes_part(x, r))
        rs_repair_tell(&p->table, now, rs_speaker_place(x, r), &told);
    check_tail(node, now, x);
    return RS_RX_NONE;
}

void rs_repair_on_receiver_removed(rs_time now, rs_sending *x, const rs_recipient *r) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (!rs_repair_is_coded(&own->repair) || !rs_speaks(x, r))
        return;
    rs_repair_forget(&own->repair.table, rs_speaker_place(x, r), r->state == RS_RECIPIENT_DONE);
    if (rs_repair_in_tail(&own->repair)) /* from the timer: the caller is not done with this recipient yet */
        own->repair.tail_due = own->repair.tail_due == RS_NEVER ? RS_NEVER : now;
}

/* --------------------------------------------------------------------------------------------------- what goes out */

/* Receivers that lose much, and how many losses of theirs wait at least; or those that are far behind. */
static uint32_t gathered(const rs_repairing *p, uint64_t must[RS_REPAIR_WORDS]) {
    uint64_t most = 0;
    uint32_t least = UINT32_MAX, waiting = 0;
    for (uint32_t i = 0; i < p->table.receivers; i++) {
        const rs_repair_of *of = &p->table.of[i];
        most = !of->gone && of->told > most ? of->told : most;
        waiting = !of->gone && of->wanted > waiting ? of->wanted : waiting;
    }
    bool behind = waiting >= BEHIND;
    for (uint32_t i = 0; i < p->table.receivers; i++) {
        const rs_repair_of *of = &p->table.of[i];
        if (of->gone || (behind ? of->wanted * 2 < waiting : of->told * 2 < most))
            continue;
        must[i / 64] |= UINT64_C(1) << i % 64;
        least = of->wanted < least ? of->wanted : least;
    }
    return least;
}

static bool covers(const rs_repair_set *s, const uint64_t must[RS_REPAIR_WORDS]) {
    for (uint32_t i = 0; i < RS_REPAIR_WORDS; i++)
        if (must[i] & ~s->serves[i])
            return false;
    return true;
}

/* A circuit is given back when the round is over: light is dear, and the packet network carries patches beside it. With
 * a further session to come there is no tail either: neither waits for the other. */
static bool tail_follows(const rs_sending *x) {
    return x->grant.kind == RS_PATH_PACKET && x->next != RS_NEXT_WANTED && x->next != RS_NEXT_GRANTED;
}

static rs_time hold(const rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_time packet = rs_wire_time(x->t.fragment_size + RS_DATA_HEADER + RS_WIRE_OVERHEAD, x->pacer.rate_bps);
    rs_time time = HOLD * packet;
    if (!tail_follows(x) && own->stop_pos > x->pos && (rs_time)(own->stop_pos - x->pos) < ENDING / packet)
        return 0;
    return time < HOLD_LEAST ? HOLD_LEAST : time > HOLD_MOST ? HOLD_MOST : time;
}

/* The table fills up. */
static bool is_pressed(const rs_repair_table *t) {
    return t->count - t->dead > t->capacity / 4 * 3;
}

/* As in the paper, what nobody else lost. False if its receiver has patches enough waiting for it: ranges that are too
 * many become fewer and longer. */
static bool patch(rs_node *node, rs_time now, rs_sending *x, const rs_repair_set *s) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    for (uint32_t i = 0; i < rs_speaker_count(x); i++) {
        rs_recipient *r = rs_speaker(x, i);
        if (!(s->serves[i / 64] >> i % 64 & 1))
            continue;
        if ((r->want && r->want->count >= PATCHES_WAITING) || !rs_sender_wants(node, r, s->sn[0], s->sn[0] + 1))
            return false;
        rs_patch_ready(node, now, &r->link, true);
    }
    rs_repair_patched(&own->repair.table, s);
    return true;
}

/* While data flows: a set that is as good as it can be goes out, another waits for company until its oldest member has
 * waited for HOLD. */
static bool pick_now(rs_node *node, rs_time now, rs_sending *x, rs_repair_set *s) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_repairing *p = &own->repair;
    uint64_t must[RS_REPAIR_WORDS] = {0};
    uint32_t least = gathered(p, must);
    rs_time waits = hold(x);
    if (p->burst == 0 && least < GATHERED && !is_pressed(&p->table) && now - p->held_at < waits / 8)
        return false;
    p->held_at = now;
    for (uint32_t patched = 0; patched < BURST && rs_repair_pick(&p->table, s); patched++) {
        if (covers(s, must) || s->full || is_pressed(&p->table))
            return true;
        if (now - s->since < waits)
            return false;
        if (s->served > 1)
            return true;
        if (!patch(node, now, x, s))
            return true;
    }
    return false;
}

static bool next_set(rs_node *node, rs_time now, rs_sending *x, rs_repair_set *s) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_repairing *p = &own->repair;
    if (rs_repair_in_tail(p))
        return rs_repair_pick(&p->table, s);
    if (p->rest > 0 || p->table.wanted == 0)
        return false;
    if (!pick_now(node, now, x, s)) {
        p->burst = 0;
        p->rest = BURST;
        return false;
    }
    p->burst = p->burst ? p->burst - 1 : BURST - 1;
    p->rest = p->burst ? 0 : BURST;
    return true;
}

static void fill(rs_sending *x, const rs_repair_set *s, bool mark, rs_packet_out *out) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_repair_header h = {.mark = mark,
                          .done = rs_repair_in_tail(&own->repair),
                          .session = x->t.session,
                          .nonce = x->t.nonce,
                          .number = ++own->repair.number,
                          .count = s->count};
    out->channel = RS_CH_GROUP;
    out->peer = RS_NO_PEER;
    out->group = x->grant.group;
    out->xfer = x->t.id;
    out->header_length = RS_REPAIR_HEADER;
    out->payload_offset = 0;
    out->payload_length = 0;
    out->combine.count = s->count > 1 ? s->count : 0;
    for (uint32_t i = 0; i < s->count; i++) {
        h.member[i] = s->sn[i];
        out->combine.offset[i] = s->sn[i] * x->t.fragment_size;
        out->combine.length[i] = rs_fragment_length(&x->t, s->sn[i]);
    }
    if (s->count) {
        out->payload_offset = out->combine.offset[0];
        out->payload_length = out->combine.length[0]; /* only the object's last fragment may be shorter */
    }
    rs_wire_encode_repair(&h, out->header);
}

static void fill_mark(rs_time now, rs_sending *x, rs_packet_out *out) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_repairing *p = &own->repair;
    const rs_repair_set nothing = {0};
    fill(x, &nothing, true, out);
    if (p->marks-- == MARKS)
        p->mark_number = p->number;
    if (p->marks > 0 || !rs_repair_in_tail(p))
        return;
    rs_time late = 0, soon = ANSWERS_LEAST;
    for (uint32_t i = 0; i < rs_speaker_count(x); i++) {
        const rs_recipient *r = rs_speaker(x, i);
        rs_time its = 2 * rs_rtt_late(&r->link.peer->rtt, 0), usual = 4 * rs_progress_of(r)->rate->model.min_rtt;
        late = takes_part(x, r) && its > late ? its : late;
        soon = takes_part(x, r) && usual > soon ? usual : soon;
    }
    p->answers_due = now + (late > MARK_AGAIN ? late : MARK_AGAIN);
    p->tail_due = now + soon < p->answers_due ? now + soon : p->answers_due;
}

/* One repair packet or mark, if it is their turn. */
bool rs_repair_poll(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_repairing *p = &own->repair;
    rs_repair_set s;
    if (!rs_repair_is_coded(p) || (x->phase == RS_PHASE_ATTEMPT && x->stats.high_rate_at == 0))
        return false;
    if ((!rs_repair_in_tail(p) && p->marks) || !next_set(node, now, x, &s)) {
        if (rs_repair_in_tail(p) && p->tail_due == RS_NEVER && p->marks == 0)
            mark_next(x);
        if (p->marks == 0)
            return false;
        fill_mark(now, x, out);
        if (p->marks == 0 && rs_repair_in_tail(p))
            rs_sender_arm(node, x);
        return true;
    }
    fill(x, &s, false, out);
    rs_repair_sent(&p->table, &s, p->number);
    p->sent++;
    x->stats.repairs_sent++;
    return true;
}

void rs_repair_data_sent(rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (own->repair.rest > 0)
        own->repair.rest--;
}

/* --------------------------------------------------------------------------------------------------------- the tail */

/* The round is over. True: the path is kept for the tail's repairs. */
bool rs_repair_tail(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_repairing *p = &own->repair;
    if (!rs_repair_is_coded(p) || !x->path_held)
        return false;
    if (!tail_follows(x)) {
        rs_repair_end(node, x);
        return false;
    }
    rs_time length = now - x->stats.high_rate_at;
    p->phase = RS_REPAIR_TAIL;
    p->rounds = p->idle = p->unanswered = p->early = p->marks = 0;
    p->tail_due = RS_NEVER;
    p->tail_end = now + length / 2 + TAIL_LEAST;
    return true;
}

void rs_repair_timeout(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_repairing *p = &own->repair;
    if (!rs_repair_in_tail(p) || now < p->tail_due)
        return;
    if (all_answered(x)) {
        next_round(node, now, x);
    } else if (now < p->answers_due && now < p->tail_end) {
        go_on(node, now, x);
    } else if (++p->unanswered > MARKS_MOST || now >= p->tail_end) {
        end_tail(node, now, x);
    } else if (p->table.wanted) { /* of those that answered */
        p->tail_due = RS_NEVER;
        rs_republic_schedule(node, now, x);
    } else {
        p->tail_due = RS_NEVER;
        p->marks = 1;
        rs_republic_schedule(node, now, x);
    }
}
