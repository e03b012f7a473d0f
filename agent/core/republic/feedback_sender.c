/* RATE at the sender: its rate follows the receiver on whose way it is the least, and losses. Ours. */
#include "core/republic/feedback_sender.h"

#include "core/republic/speakers.h"
#include "core/republic/straggler.h"
#include "core/republic/tree_sender.h"
#include "core/republic/window.h"

/* Where no other source is named: test_pace. */
#define REPORTS_STARTING (200000)        /* ns between two of them in start-up */
#define REPORTS_STEADY (1 * RS_MS)       /* and later, of up to three receivers */
#define STEADY_EACH (REPORTS_STEADY / 3) /* per receiver of more: what it costs to read reports stays the same */
#define STEADY_MOST (4 * RS_MS)          /* test_feedback */
#define FIRST_BYTES (64 << 10)           /* a round trip of start-up begins with */
#define FIRST_RTT (RS_MS / 2) /* and takes at least that long: hosts are slow to look at their first packets */
#define LOGS_MOST 8           /* rate cuts told a person, per session (a bound) */

static uint32_t wire_bytes(const rs_sending *x) {
    return x->t.fragment_size + RS_DATA_HEADER + RS_WIRE_OVERHEAD;
}

rs_time rs_reports_least(const rs_sending *x) {
    return RS_REPORTS_EACH * (rs_time)rs_speaker_count(x);
}

bool rs_holds_back(const rs_sending *x, const rs_recipient *r, rs_time now) {
    rs_progress *progress = rs_progress_of(r);
    return rs_is_active(r) && r->light == RS_LIGHT_LIT && !progress->on_trial && rs_link_is_up(&r->link) &&
           now - progress->seen_at < RS_SILENT && !rs_tree_silent(x, r, now) &&
           progress->seen_pos + 1 < progress->start_pos + (x->end - x->first);
}

void rs_rate_apply(rs_sending *x) {
    x->pacer.rate_bps = rs_rate_bps(&x->rate);
}

static bool is_starting(const rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    return !rs_path_rate_is_known(x) && !(own->rate_of && rs_progress_of(own->rate_of)->rate->model.startup_done);
}

/* What comes of each is the same share of the port of whoever reads most. In start-up no more than fit into a window,
 * as some are lost. */
uint64_t rs_report_interval(const rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    uint64_t share = (uint64_t)rs_reporters_most(x) * RS_REPORT_WIRE * RS_REPORT_PART / wire_bytes(x);
    return is_starting(x) && share > own->first_window / 2 ? own->first_window / 2 : share;
}

static void find_slowest(rs_sending *x, rs_time now) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    own->rate_of = NULL;
    for (uint32_t i = 0; i < rs_speaker_count(x); i++) {
        rs_recipient *r = rs_speaker(x, i);
        rs_progress *progress = rs_progress_of(r);
        if (rs_holds_back(x, r, now) && progress->rate->model.wanted_bps &&
            (!own->rate_of || progress->rate->model.wanted_bps < rs_progress_of(own->rate_of)->rate->model.wanted_bps))
            own->rate_of = r;
    }
    if (rs_path_rate_is_known(x))
        x->rate.model_bps = 0;
    else if (own->rate_of)
        x->rate.model_bps = rs_progress_of(own->rate_of)->rate->model.wanted_bps;
}

/* Start-up begins with about FIRST_BYTES in a round trip, which any queue takes. */
void rs_rate_begin(rs_sending *x, rs_time now) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_time rtt = FIRST_RTT;
    for (uint32_t i = 0; i < rs_speaker_count(x); i++) {
        const rs_recipient *r = rs_speaker(x, i);
        if (rs_is_active(r) && r->light == RS_LIGHT_LIT && r->link.peer->rtt.smoothed > rtt)
            rtt = r->link.peer->rtt.smoothed;
    }
    int64_t first = (int64_t)(FIRST_BYTES * 8 * UINT64_C(1000000000) / (uint64_t)rtt);
    rs_sent_times_start(&own->sent_times, now, rs_reports_least(x), REPORTS_STARTING);
    for (uint32_t i = 0; i < rs_speaker_count(x); i++) {
        rs_recipient *r = rs_speaker(x, i);
        rs_progress_of(r)->rate->rtt_pos = 0;
        rs_progress_of(r)->rate->model.based = false; /* time went by in which nothing was sent at high rate */
        if (!rs_progress_of(r)->rate->model.wanted_bps)
            rs_path_model_start(&rs_progress_of(r)->rate->model, wire_bytes(x), first);
    }
    own->high_pos = x->pos;
    own->first_window = FIRST_BYTES / wire_bytes(x) + 2;
    x->rate.model_bps = rs_path_rate_is_known(x) ? 0 : first;
    find_slowest(x, now);
    own->sent_times.interval = rs_report_interval(x);
}

/* What repairs near by leave of a receiver's NIC: as told, it is low by their bursts (rostrum sim run broadcast). */
static void find_least_share(rs_sending *x) {
    int64_t least = 0;
    for (uint32_t i = 0; i < rs_speaker_count(x); i++) {
        const rs_recipient *r = rs_speaker(x, i);
        rs_progress *progress = rs_progress_of(r);
        if (rs_is_active(r) && r->member && !progress->on_trial && r->light != RS_LIGHT_DEMOTED &&
            progress->share_bps && (least == 0 || progress->share_bps < least))
            least = progress->share_bps;
    }
    x->rate.share_bps = least / 1000 * 995;
}

void rs_rate_recompute(rs_node *node, rs_time now, rs_sending *x) {
    find_least_share(x);
    find_slowest(x, now);
    rs_rate_apply(x);
    rs_window_recompute(node, now, x);
}

static void log_cut(rs_node *node, const rs_sending *x, const rs_recipient *r) {
    rs_progress *progress = rs_progress_of(r);
    rs_event event = {.kind = RS_EV_LOG, .xfer = x->t.id, .peer = r->link.peer->id, .session = x->t.session};
    rs_format(event.cause, sizeof event.cause, "rate now %lld Mb/s: this receiver missed %llu of %llu packets%s%s",
              (long long)(rs_rate_bps(&x->rate) / 1000000), (unsigned long long)progress->rate->lost,
              (unsigned long long)progress->rate->expected, progress->rate->dropped ? ", dropped at its socket" : "",
              progress->rate->watch.trial.before > 0 || progress->rate->dropped
                  ? ""
                  : "; a lower rate does not lessen that, so it is not lowered");
    rs_emit(node, &event);
}

static rs_time steady_reports(const rs_sending *x) {
    rs_time every = (rs_time)rs_speaker_count(x) * STEADY_EACH;
    every = every < STEADY_MOST ? every : STEADY_MOST;
    return every > REPORTS_STEADY ? every : REPORTS_STEADY;
}

/* In start-up reports are asked for more often, and again when the window holds little of them. */
static void pace_marks(rs_sending *x, const rs_recipient *slowest) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_time every = is_starting(x) ? REPORTS_STARTING : steady_reports(x);
    rs_time quarter = (rs_time)(rs_window_of(x, slowest) / 4) * rs_wire_time(wire_bytes(x), rs_rate_bps(&x->rate));
    rs_sent_times_every(&own->sent_times, quarter < every ? quarter : every);
    own->sent_times.interval = rs_report_interval(x);
}

/* No more came than was sent, or the network made copies: a receiver does not make the path faster by lying. */
static rs_rate_sample sample_of(const rs_sending *x, rs_time now, const rs_recipient *r, uint64_t pos,
                                const rs_message *m) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    const rs_timer *data = &x->data_timer;
    return (rs_rate_sample){
        .now = now,
        .pos = pos,
        .at = (rs_time)m->rate.at,
        .waited = (rs_time)m->rate.waited,
        .received = m->rate.received < x->pos ? m->rate.received : x->pos,
        .repairs = m->rate.repairs < own->repair.number ? m->rate.repairs : own->repair.number,
        .dropped = m->rate.dropped,
        .sent = x->pos,
        .idle = x->pacer.lost,
        .late = data->at && data->due < now ? now - data->due : 0,
        .reports_every = rs_sent_times_interval(&own->sent_times, rs_wire_time(wire_bytes(x), rs_rate_bps(&x->rate))),
        .room = 2 * rs_window_room(x, r),
        .rate_is_known = rs_path_rate_is_known(x)};
}

static void follow_model(rs_sending *x, rs_recipient *r, const rs_rate_sample *sample) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_progress *progress = rs_progress_of(r);
    if (!rs_control_path(&x->rate, progress->rate, &own->sent_times, sample))
        return;
    if (r == own->rate_of || !own->rate_of || progress->rate->model.wanted_bps < x->rate.model_bps) {
        find_slowest(x, sample->now);
        if (own->rate_of)
            pace_marks(x, own->rate_of);
    }
}

static void take_losses(rs_node *node, rs_sending *x, rs_recipient *r, const rs_rate_sample *sample) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_progress *progress = rs_progress_of(r);
    if (progress->on_trial || rs_control_losses(&x->rate, progress->rate, sample) != RS_LOSS_CUT)
        return;                  /* one that is aside loses for the others' sake */
    if (progress->rate->dropped) /* others may use that socket, or it takes less than was said */
        r->room = rs_window_room(x, r) * 2 / 4 * 3 * (x->t.fragment_size + RS_DATA_HEADER);
    if (own->cuts_logged++ < LOGS_MOST)
        log_cut(node, x, r);
    rs_control_losses_done(progress->rate);
}

/* The position of the newest sn a receiver has seen: in the one round of this session that concerns it, which began
 * with its initial sn. */
static uint64_t position(const rs_sending *x, const rs_recipient *r, uint64_t sn) {
    rs_progress *progress = rs_progress_of(r);
    uint64_t ring = x->end - x->first, offset = sn - x->first, start = progress->start_pos % ring;
    uint64_t pos = progress->start_pos + (offset >= start ? offset - start : offset + ring - start);
    return pos < x->pos ? pos : x->pos - 1;
}

static void note_share(rs_sending *x, rs_recipient *r, uint64_t bps) {
    rs_progress *progress = rs_progress_of(r);
    if ((int64_t)bps == progress->share_bps)
        return;
    progress->share_bps = (int64_t)bps;
    find_least_share(x);
}

/* What a speaker says of the path to itself. */
static void heed(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, uint64_t pos, const rs_message *m) {
    rs_rate_sample sample = sample_of(x, now, r, pos, m);
    follow_model(x, r, &sample);
    take_losses(node, x, r, &sample);
    rs_rate_tick(&x->rate, now);
    rs_straggler_look(node, now, x);
}

void rs_report_taken(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_report *report,
                     uint64_t least) {
    note_share(x, r, report->share_bps);
    rs_window_seen(node, now, x, r, least);
    if (report->flags & RS_REPORT_OWN) {
        const rs_message m = {.rate = {.highest = report->highest,
                                       .received = report->received,
                                       .repairs = report->repairs,
                                       .dropped = report->dropped,
                                       .at = report->at,
                                       .waited = report->waited}};
        heed(node, now, x, r, position(x, r, report->highest), &m);
    }
    rs_rate_apply(x);
}

/* Now and then each says how far it is, whoever collects its reports. */
static void take_sample(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, uint64_t pos, uint64_t received) {
    rs_progress *progress = rs_progress_of(r);
    uint32_t ppm = 0;
    bool follows = progress->sampled && pos >= progress->sampled_pos && received >= progress->sampled_received;
    if (follows && pos - progress->sampled_pos >= RS_RATE_SAMPLE) {
        uint64_t expected = pos - progress->sampled_pos, got = received - progress->sampled_received;
        ppm = got < expected ? (uint32_t)((expected - got) * 1000000 / expected) : 0;
    }
    progress->sampled = true;
    progress->sampled_pos = pos;
    progress->sampled_received = received;
    progress->seen_at = now;
    progress->seen_pos = pos > progress->seen_pos ? pos : progress->seen_pos;
    rs_tree_sample(node, now, x, r, pos, ppm);
}

rs_rx_verdict rs_on_rate(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    if (r->light == RS_LIGHT_DEMOTED)
        return RS_RX_NONE;
    if (m->session > x->t.session)
        return RS_RX_BAD;
    note_share(x, r, m->rate.share_bps);
    if (m->session == x->t.session && x->phase == RS_PHASE_HIGH_RATE && r->light == RS_LIGHT_LIT) {
        if (m->rate.highest < x->first || m->rate.highest >= x->end)
            return RS_RX_BAD;
        uint64_t pos = position(x, r, m->rate.highest);
        if (!rs_speaks(x, r)) {
            take_sample(node, now, x, r, pos, m->rate.received);
            return RS_RX_NONE;
        }
        rs_tree_heard(x, r);
        if (!rs_tree_in_use(x) || rs_tree_unknown(x, r)) /* else those it speaks for may be further behind */
            rs_window_seen(node, now, x, r, pos);
        heed(node, now, x, r, pos, m);
    }
    rs_rate_apply(x);
    return RS_RX_NONE;
}
