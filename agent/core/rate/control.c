#include "core/rate/control.h"

#define BACK_WINDOW (INT64_C(10) * 1000000000) /* in which clocks drift apart by 1 ms (100 ppm); a bound */

/* What the report waited on its way back: switches leave control a small share of each port, and an aggregator collects
 * several. As the base delay of LEDBAT (RFC 6817, 3.4.2), only the other way. */
static rs_time waited_back(rs_receiver_rate *r, const rs_rate_sample *s) {
    rs_time back = s->now - s->late - s->at - s->waited;
    if (s->now >= r->back_until) {
        r->back_before = r->back_until && s->now - r->back_until < BACK_WINDOW ? r->back_least : back;
        r->back_least = back;
        r->back_until = s->now + BACK_WINDOW;
    }
    r->back_least = back < r->back_least ? back : r->back_least;
    return back - (r->back_before < r->back_least ? r->back_before : r->back_least);
}

/* A round trip of the path alone: less what the packet waited in the receiver's host, as far as its socket may fill
 * without harm, less what the report waited, and less what this host came late to look at it. */
static rs_time rtt_of(const rs_rate_sample *s, rs_time sent_at, rs_time back) {
    rs_time rtt = s->now - sent_at - s->late - (s->waited < RS_HOST_PAUSE ? s->waited : RS_HOST_PAUSE) - back;
    return rtt > 1 ? rtt : 1;
}

bool rs_control_path(rs_rate *rate, rs_receiver_rate *r, const rs_sent_times *sent, const rs_rate_sample *s) {
    const rs_sent_time *asked = rs_sent_times_at(sent, s->pos);
    rs_path_model_report report = {.now = s->now,
                                   .at = s->at,
                                   .pos = s->pos,
                                   .sent_at = rs_sent_times_time(sent, s->pos),
                                   .received = s->received,
                                   .repairs = s->repairs,
                                   .under_way = s->sent - s->pos,
                                   .idle = s->idle};
    rs_time back = waited_back(r, s);
    if (asked && asked->pos > r->rtt_pos) {
        r->rtt_pos = asked->pos;
        report.rtt = rtt_of(s, report.sent_at, back);
    }
    r->model.room = s->room;
    r->model.reports_every = s->reports_every;
    bool starting = !r->model.startup_done;
    if (!rs_path_model_heard(&r->model, &report))
        return false;
    if (starting && r->model.startup_done)
        rate->from_pos = s->sent; /* start-up goes too fast on purpose */
    return true;
}

void rs_control_losses_done(rs_receiver_rate *r) {
    r->expected = r->lost = 0;
    r->dropped = false;
}

rs_loss_verdict rs_control_losses(rs_rate *rate, rs_receiver_rate *r, const rs_rate_sample *s) {
    if (r->based && r->base_pos >= rate->from_pos && s->pos >= r->base_pos && s->received >= r->base_received) {
        uint64_t expected = s->pos - r->base_pos, got = s->received - r->base_received;
        r->expected += expected;
        r->lost += got < expected ? expected - got : 0;
        r->dropped |= s->dropped > r->base_dropped;
    } else {
        if (r->based && r->base_pos < rate->from_pos)
            rs_rate_changed(rate, &r->watch, r->expected, r->lost);
        rs_control_losses_done(r);
    }
    r->based = true;
    r->base_pos = s->pos;
    r->base_received = s->received;
    r->base_dropped = s->dropped;
    /* In start-up, and while a queue stands, the path model says it better. */
    bool by_queue = !s->rate_is_known && (!r->model.startup_done || rs_path_model_has_queue(&r->model, s->now));
    rs_loss_verdict verdict = by_queue && !r->dropped
                                  ? RS_LOSS_FINE
                                  : rs_rate_feedback(rate, s->now, &r->watch, r->expected, r->lost, r->dropped);
    if (verdict == RS_LOSS_CUT)
        rate->from_pos = s->sent;
    if (verdict == RS_LOSS_FINE)
        rs_control_losses_done(r);
    return verdict;
}
