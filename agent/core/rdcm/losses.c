/* Losses that come whatever is sent (a bad transceiver, a link that others fill) would keep an AIMD window at some
 * tens of packets, whatever the network carries. The paper has loss as the signal and says nothing of these. Ours:
 * when losses go on from cut to cut, the receiver that holds the sender tries half its window for as many packets
 * as should lose TRIAL_GAPS. Losses of a queue that this window overfilled are gone then, others are not. If some
 * are still there, the window is what it was before; if not, it was congestion, and trials become rarer. What was
 * lost by half the window is what is usual: only losses beyond it cut the window. More than one packet in MOST_PART
 * is always congestion: flows that lose together, none of whom can change that by itself, stop there. */
#include "core/rdcm/losses.h"

/* Where no other source is named: test_congestion. */
/* Of a count of losses the deviation is its root: 6 are known to two fifths, 24 to a fifth, 64 to an eighth. */
#define TRIAL_GAPS 6               /* losses that make a trial, and that it waits for */
#define SURE_GAPS (4 * TRIAL_GAPS) /* what is usual is known well, */
#define FEW_GAPS 2                 /* and from less not at all */
#define USUAL_GAPS 64              /* what is remembered is halved then */
#define FORGET_GAPS 4   /* that were to be expected: if less than one in so many came, what was usual is forgotten */
#define TRIAL_MOST 8192 /* packets of one: 6 losses at 0.07 %, and BIC's window is large enough where they are rarer */
#define RECENT_PACKETS (8 * TRIAL_MOST)
#define MOST_PART 12 /* of a window: one lost packet in so many is always congestion (test_congestion.c) */
/* After a trial there is none for 2^1 times as many packets; where it finds congestion alone, 2^2, 2^3... up to 2^8
 * (0.4 % of the time is half a window then), and 2^4 where what is usual is known well. */
#define REST_FIRST 1
#define REST_MOST 8
#define REST_SURE 4
#define ROUND_LEAST (4 * RS_BIC_FIRST) /* packets: a window of less is over before its losses are known */
#define SIGMAS 2                       /* one in 40 is taken for congestion by chance, and BIC grows back */

static uint64_t root(uint64_t square) {
    uint64_t r = 0;
    for (uint64_t bit = UINT64_C(1) << 31; bit; bit >>= 1)
        if ((r + bit) * (r + bit) <= square)
            r += bit;
    return r;
}

static void halve(rs_loss_tally *t) {
    t->sent /= 2;
    t->lost /= 2;
    t->gaps /= 2;
}

static uint64_t round_packets(const rs_bic *bic) {
    return bic->window < ROUND_LEAST ? ROUND_LEAST : bic->window;
}

/* How many of a window's packets may be lost for no other reason than usual: what is usual, twice the deviation of
 * their number (losses come in runs of some length; what is usual is known from a few losses itself) and one. A window
 * that is cut for less once in many round trips grows back in fewer. */
static uint64_t allowed(const rs_losses *l, const rs_bic *bic) {
    const rs_loss_tally *u = &l->usual;
    if (u->gaps == 0)
        return 0;
    uint64_t n = round_packets(bic), most = n / MOST_PART;
    uint64_t milli = n * 1000 * u->lost / u->sent, run = 2 * u->lost - u->gaps;
    uint64_t square = milli * run / u->gaps * 1000 + milli * milli / u->gaps;
    uint64_t usual = (milli + SIGMAS * root(square)) / 1000;
    return (usual < most ? usual : most) + 1;
}

static void begin_round(rs_losses *l, const rs_bic *bic, uint64_t from) {
    l->round_end = from + round_packets(bic);
    l->round_lost = 0;
}

static void learn(rs_loss_tally *usual, const rs_loss_tally *trial) {
    uint64_t expected = usual->gaps ? usual->gaps * trial->sent / usual->sent : 0;
    if (expected >= FORGET_GAPS && trial->gaps * FORGET_GAPS < expected) /* no more */
        *usual = (rs_loss_tally){0};
    usual->sent += trial->sent;
    usual->lost += trial->lost;
    usual->gaps += trial->gaps;
    if (usual->gaps < FEW_GAPS)
        *usual = (rs_loss_tally){0};
    if (usual->gaps > USUAL_GAPS)
        halve(usual);
}

static void end_trial(rs_losses *l, rs_bic *bic, bool congested) {
    *bic = l->before;
    learn(&l->usual, &l->trial);
    if (congested)
        rs_bic_loss(bic);
    else
        bic->last_max = 0;
    if (l->usual.gaps)
        l->doublings = 0;
    else if (l->doublings < REST_MOST - REST_FIRST)
        l->doublings++;
    l->rest = l->trial_packets << (l->usual.gaps >= SURE_GAPS ? REST_SURE : REST_FIRST + l->doublings);
    l->recent = (rs_loss_tally){0};
    l->trial_packets = 0;
}

bool rs_losses_passed(rs_losses *l, rs_bic *bic, uint64_t top) {
    uint64_t from = l->counted > l->recover ? l->counted : l->recover;
    l->counted = top;
    if (top <= from)
        return false;
    if (l->trial_packets) {
        l->trial.sent += top - from;
        bool none = l->trial.gaps == 0 && 3 * l->trial.sent >= 2 * l->trial_packets; /* nor will there be: e^-4 */
        if (l->trial.sent < l->trial_packets && !none)
            return false;
        end_trial(l, bic, l->trial.gaps < FEW_GAPS);
        begin_round(l, bic, top);
        return true;
    }
    l->rest = l->rest > top - from ? l->rest - (top - from) : 0;
    l->recent.sent += top - from;
    if (l->recent.sent > RECENT_PACKETS)
        halve(&l->recent);
    if (top >= l->round_end)
        begin_round(l, bic, top);
    return false;
}

static bool try_half(rs_losses *l, rs_bic *bic) {
    const rs_loss_tally *r = &l->recent;
    if (r->gaps < TRIAL_GAPS || r->lost * MOST_PART > r->sent || r->sent * TRIAL_GAPS / r->gaps > TRIAL_MOST || l->rest)
        return false;
    l->before = *bic;
    l->trial_packets = r->sent * TRIAL_GAPS / r->gaps;
    l->trial = (rs_loss_tally){0};
    rs_bic_halve(bic);
    return true;
}

bool rs_losses_lost(rs_losses *l, rs_bic *bic, uint64_t from, uint64_t to, uint64_t flight_end, bool limits) {
    if (to <= l->recover)
        return false;
    uint64_t lost = to - (from > l->recover ? from : l->recover);
    if (l->trial_packets) {
        l->trial.lost += lost;
        l->trial.gaps++;
        if (l->trial.lost <= l->trial_packets / MOST_PART + TRIAL_GAPS)
            return false;
        l->before = *bic; /* half is too much, too */
        l->trial.sent = l->trial.lost = l->trial.gaps = 0;
        end_trial(l, bic, true);
    } else {
        l->recent.lost += lost;
        l->recent.gaps++;
        l->round_lost += lost;
        if (l->round_lost <= allowed(l, bic))
            return false;
        if (!limits || !try_half(l, bic))
            rs_bic_loss(bic);
    }
    l->recover = flight_end;
    begin_round(l, bic, flight_end);
    return true;
}
