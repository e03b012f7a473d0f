/* How far the data channel runs ahead of its receivers: no further than AHEAD of what the slowest of them last said it
 * saw (RATE). What a switch or a host cannot carry then waits at the sender and not in buffers on the way, where it
 * would be late first and lost later; the sender finds the pace of the path without losing a packet. A receiver that
 * says nothing for SILENT holds nobody up. Ours. */
#include "core/state.h"

#define AHEAD (30 * RS_MS)   /* at the present rate; three reports at least */
#define AHEAD_LEAST 64       /* packets */
#define SILENT (100 * RS_MS) /* then patches are for it */

static uint64_t ahead(const rs_sending *x) {
    rs_time time = 3 * RS_QUIET_REPORTS * x->feedback_interval;
    time = time > AHEAD ? time : AHEAD;
    rs_time packet = rs_wire_time(x->t.fragment_size + RS_DATA_HEADER + RS_WIRE_OVERHEAD, rs_rate_bps(&x->rate));
    uint64_t packets = (uint64_t)(time / packet);
    return packets > AHEAD_LEAST ? packets : AHEAD_LEAST;
}

/* Its round ends within the window, or it is finished by other means. */
static bool out_of_it(const rs_sending *x, const rs_recipient *r, rs_time now, uint64_t window) {
    return r->state != RS_RECIPIENT_ACTIVE || !r->lit || !r->link.peer->up || now - r->seen_at >= SILENT ||
           r->seen_pos + window >= r->start_pos + (x->end - x->first);
}

static void find(rs_sending *x, rs_time now) {
    uint64_t window = ahead(x), least = UINT64_MAX - window;
    x->window_of = NULL;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (r->seen_pos >= least || out_of_it(x, r, now, window))
            continue;
        least = r->seen_pos;
        x->window_of = r;
    }
    x->window_pos = x->window_of ? least + window : UINT64_MAX;
}

/* The slowest has moved on, or another is the slowest now: data packets may go again. */
static void find_anew(rs_node *node, rs_time now, rs_sending *x) {
    bool shut = x->pos >= x->window_pos;
    find(x, now);
    if (shut && x->pos < x->window_pos)
        rs_data_schedule(node, now, x);
}

void rs_window_start(rs_sending *x, rs_time now) {
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        x->recipients[i].seen_pos = x->pos; /* attempts are too few to wait anywhere */
        x->recipients[i].seen_at = now;
    }
    find(x, now);
}

void rs_window_seen(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, uint64_t pos) {
    r->seen_at = now;
    if (pos > r->seen_pos)
        r->seen_pos = pos;
    if (x->phase != RS_PHASE_HIGH_RATE)
        return;
    if (r == x->window_of || r->seen_pos < x->window_pos - ahead(x))
        find_anew(node, now, x);
}

void rs_window_left(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r) {
    if (x->phase == RS_PHASE_HIGH_RATE && r == x->window_of)
        find_anew(node, now, x);
}

rs_time rs_window_due(rs_sending *x, rs_time now) {
    if (x->phase != RS_PHASE_HIGH_RATE || x->pos < x->window_pos)
        return now;
    find(x, now);
    return x->pos < x->window_pos ? now : x->window_of->seen_at + SILENT;
}
