/* Congestion control at a receiver (Sec. 3.5): losses on the tree shrink its window, packets that come by the tree let
 * it grow. Repairs do neither: they take other paths.
 *
 * Ours: the window grows only while it is what holds the sender back. The sender says in each packet up to where it may
 * go; that was said by the slowest receiver, which so knows itself. (TCP sees its own flight, RFC 7661.) */
#include "core/rdcm/rdcm.h"

void rs_rdcm_congestion_start(rs_receiving *x) {
    uint64_t most = x->room ? x->room / 2 / (x->t.fragment_size + RS_DATA_HEADER) : UINT32_MAX;
    rs_rdcm *r = x->t.own;
    uint64_t sets = r->capacity / 2 > 2 * RS_BIC_FIRST ? r->capacity / 2 : 2 * RS_BIC_FIRST;
    rs_bic_start(&r->bic, (uint32_t)(most < sets ? most : sets));
    r->said[0] = RS_BIC_FIRST - 1; /* what the sender begins with */
}

static void window_moved(rs_node *node, rs_time now, rs_rdcm *r) {
    rs_rdcm_expected_moved(node, now, r, RS_RING_LEAF);
    if (r->own_child)
        rs_rdcm_expected_moved(node, now, r, RS_RING_PROXY);
}

static void lost(rs_node *node, rs_time now, rs_receiving *x, const rs_rdcm_gap *gap) {
    rs_rdcm *r = x->t.own;
    x->stats.losses += gap->to - gap->from;
    rs_rdcm_say_lost(node, r);
    uint64_t said = rs_rdcm_expected(r, RS_RING_LEAF) + 1, by_window = r->tree_top + r->bic.window;
    if (rs_losses_lost(&r->losses, &r->bic, gap->from, gap->to, said < by_window ? said : by_window, r->limits))
        window_moved(node, now, r);
}

rs_time rs_rdcm_congestion_due(const rs_node *node, const rs_rdcm *r) {
    return r->gap_count && rs_rdcm_options(node)->loss_delay ? r->gaps[0].at + rs_rdcm_options(node)->loss_delay
                                                             : RS_NEVER;
}

/* The oldest gaps are over, whatever becomes of them. */
static void forget(rs_rdcm *r, uint32_t count) {
    r->gap_count -= count;
    for (uint32_t i = 0; count && i < r->gap_count; i++)
        r->gaps[i] = r->gaps[i + count];
}

void rs_rdcm_congestion_look(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    rs_time delay = rs_rdcm_options(node)->loss_delay;
    uint32_t done = 0;
    for (; done < r->gap_count; done++) {
        const rs_rdcm_gap *gap = &r->gaps[done];
        if (delay ? now < gap->at + delay : r->tree_top < gap->to + RS_RDCM_OVERTAKEN)
            break;
        if (gap->from < gap->to)
            lost(node, now, x, gap);
    }
    forget(r, done);
}

/* It was only late. */
static void came_late(rs_rdcm *r, uint64_t sn) {
    for (uint32_t i = 0; i < r->gap_count; i++) {
        rs_rdcm_gap *gap = &r->gaps[i];
        if (sn == gap->from && gap->from < gap->to)
            gap->from++;
        else if (sn + 1 == gap->to && gap->from < gap->to)
            gap->to--;
    }
}

/* No room for another: the oldest is lost a little earlier than `loss_delay` has it. To take two gaps for one would
 * count what came in between. */
static void make_room(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    if (r->gap_count < RS_RDCM_GAPS)
        return;
    if (r->gaps[0].from < r->gaps[0].to)
        lost(node, now, x, &r->gaps[0]);
    forget(r, 1);
}

/* The sender's first flight is RS_BIC_FIRST packets: to whom the first packet comes later than that, the tree did not
 * lead before. What went by meanwhile was not lost in a queue; its peers are told that it is missed. */
static void note_gap(rs_node *node, rs_time now, rs_receiving *x, uint64_t to) {
    rs_rdcm *r = x->t.own;
    if (r->tree_top == 0 && to > RS_BIC_FIRST) {
        r->tree_top = to;
        rs_rdcm_say_lost(node, r);
        return;
    }
    make_room(node, now, x);
    r->gaps[r->gap_count++] = (rs_rdcm_gap){r->tree_top, to, now};
    if (rs_rdcm_options(node)->loss_delay)
        rs_rdcm_wake(node, r, now + rs_rdcm_options(node)->loss_delay);
}

static bool holds_the_sender(rs_rdcm *r, const rs_data_header *h) {
    if (!(h->flags & RS_DATA_LIMIT))
        return false;
    if (h->aux != r->limit) {
        r->limit = h->aux;
        r->limits = false;
        for (int i = 0; i < RS_RDCM_SAID && !r->limits; i++)
            r->limits = r->said[i] == h->aux;
    }
    return r->limits && h->sn + r->bic.window / 2 >= h->aux;
}

void rs_rdcm_congestion_packet(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h, bool fresh) {
    rs_rdcm *r = x->t.own;
    r->tree_at = now;
    if (h->sn < r->tree_top) {
        came_late(r, h->sn);
        return;
    }
    if (h->sn > r->tree_top)
        note_gap(node, now, x, h->sn);
    r->tree_top = h->sn + 1;
    r->tree_report = h->flags & RS_DATA_REPORT;
    if (r->gap_count)
        rs_rdcm_congestion_look(node, now, x);
    bool holds = holds_the_sender(r, h);
    if (rs_losses_passed(&r->losses, &r->bic, r->tree_top))
        window_moved(node, now, r);
    else if (fresh && holds && !r->losses.trial_packets)
        rs_bic_packet(&r->bic);
}
