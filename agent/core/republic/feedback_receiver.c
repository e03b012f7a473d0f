/* RATE at a receiver: it says how much gets through and what its NIC has left. Ours. */
#include "core/republic/feedback_receiver.h"

#include "core/republic/tree_receiver.h"

#define REPORT_LEAST (1 * RS_MS) /* between two reports, when something is wrong (REPORTS_STEADY) */
#define ACTIVE_FOR RS_HOST_BUSY  /* a transfer takes part in the NIC's share so long after its last high-rate packet */
#define QUIET_REPORTS 2          /* feedback intervals between two reports when nothing is wrong (test_feedback) */

static int64_t nic_share(const rs_node *node, rs_time now, const rs_receiving *self) {
    int64_t active = 1;
    for (const rs_list *at = node->receiving.next; at != &node->receiving; at = at->next) {
        const rs_receiving *x = (const rs_receiving *)RS_HOLDER(rs_transfer, listed, at);
        const rs_republic_receiver *its = rs_republic_receiver_of(x);
        active += x != self && its->active && now - its->active_at < ACTIVE_FOR;
    }
    return node->config.nic_rate_bps / active;
}

static uint64_t at_most(uint64_t value, uint64_t most) {
    return value < most ? value : most;
}

void rs_report_own(const rs_node *node, rs_time now, const rs_receiving *x, rs_message *m) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    m->type = RS_MSG_RATE;
    m->rate.highest = x->ring.prior;
    m->rate.received = at_most(own->session_received, RS_RATE_COUNT_MAX);
    m->rate.repairs = at_most(own->session_repairs, RS_RATE_COUNT_MAX);
    m->rate.dropped = at_most(x->session_dropped, RS_RATE_COUNT_MAX);
    m->rate.share_bps = at_most((uint64_t)nic_share(node, now, x), RS_RATE_BPS_MAX);
    m->rate.at = x->data_at > x->waited ? at_most((uint64_t)(x->data_at - x->waited), RS_RATE_AT_MAX) : 0;
    m->rate.waited = x->waited > 0 ? at_most((uint64_t)x->waited, RS_RATE_WAITED_MAX) : 0;
    m->rate.receivers = 1;
}

void rs_report_fill(const rs_node *node, rs_time now, rs_receiving *x, rs_message *m) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_report_own(node, now, x, m);
    own->reported_at = now;
    own->report_due = RS_NEVER; /* whatever the reason was */
}

static void report_by(rs_node *node, rs_receiving *x, rs_time due) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    if (due >= own->report_due)
        return;
    own->report_due = due;
    rs_receiver_arm(node, x);
}

void rs_report_soon(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_time due = own->reported_at + rs_report_least(x, REPORT_LEAST);
    if (rs_tree_is_on(x))
        return; /* packets ask for its reports often enough */
    report_by(node, x, due > now ? due : now);
}

/* The sender asks as often as switches have room for the answers. What is told unasked - because marks were lost, or
 * none come - may not take more of it. */
static rs_time own_interval(const rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_time quiet = QUIET_REPORTS * x->feedback_interval;
    return quiet > 2 * own->mark_interval ? quiet : 2 * own->mark_interval;
}

rs_time rs_report_least(const rs_receiving *x, rs_time least) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    return own->mark_interval > least ? own->mark_interval : least;
}

void rs_report_asked(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_time interval = own->marked_at ? now - own->marked_at : 0;
    interval = interval < RS_SENT_TIMES_MOST ? interval : RS_SENT_TIMES_MOST;
    own->mark_interval += (interval - own->mark_interval) / 4;
    own->marked_at = now;
    rs_control_set_pending(node, now, &x->link, RS_CONTROL_RATE);
}

/* A high-rate packet came in. The first one tells all the others that they share the NIC with one more. */
void rs_report_activity(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    bool began = !own->active || now - own->active_at >= ACTIVE_FOR;
    own->active = true;
    own->active_at = now;
    if (!rs_tree_is_on(x))
        report_by(node, x, now + own_interval(x));
    else if (own->report_due == RS_NEVER)
        report_by(node, x, now + rs_tree_sample_time(node, x));
    if (!began)
        return;
    for (rs_list *at = node->receiving.next; at != &node->receiving; at = at->next) {
        rs_receiving *other = (rs_receiving *)RS_HOLDER(rs_transfer, listed, at);
        const rs_republic_receiver *its = rs_republic_receiver_of(other);
        if (its->active && now - its->active_at < ACTIVE_FOR)
            rs_report_soon(node, now, other);
    }
}

void rs_report_timeout(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    own->report_due = RS_NEVER;
    if (x->state == RS_RX_RECEIVING && x->ring.lit && !x->ring.round_done)
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_RATE);
}
