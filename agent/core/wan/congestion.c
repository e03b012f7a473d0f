#include "core/wan/congestion.h"

#include <math.h>

#include "core/rate/path_model.h"
#include "core/rate/rate.h"

/* Where no other source is named: docs/wan.md. */
#define MS INT64_C(1000000)
#define SECOND INT64_C(1000000000)
#define FIRST_BYTES (256 << 10) /* in the first round trip to one receiver: what any queue takes, paced; */
#define FIRST_BPS 40e6          /* more in a long one: as many bits a second (rostrum sim run wan), */
#define FIRST_BYTES_MOST (1 << 20)
#define TREE_EXPONENT 0.8 /* Chuang and Sirbu: L_m / L_u = N^0.8 */
/* The queue wanted at the narrowest place: these bytes of each transfer, as FAST TCP's alpha: equal for all, so that
 * transfers that share the place come to equal rates. */
#define QUEUE_LEAST (1 * MS)
#define QUEUE_TRIP 16         /* and that part of a round trip: hosts stand still for some ms (rostrum lab run wan) */
#define DRAIN_SEEN (100 * MS) /* a drained path is looked at for so long at least (rostrum lab run wan) */
#define WINDOW_LEAST (2 * MS) /* time over which a sample of what comes out is taken; and an eighth of a round trip */
#define GROWTH 2.5            /* start-up: faster by that each round trip */
#define GREW 1.2 /* a round trip that brought less more than that was flat; two of them end start-up (BBR has 1.25) */
#define VELOCITY_FIRST 0.01 /* share faster after a round trip without a queue; doubled each time */
#define VELOCITY_MOST 0.125
#define SLOWER_MOST 0.25    /* than what comes out */
#define FAR_BELOW 0.85      /* of the best rate of late (rostrum lab run wan): */
#define VELOCITY_BACK 0.25  /* from there it goes back faster, for that rate was carried */
#define LOSS_MUCH 0.02      /* above what is usual: it may be a queue that is too short to be seen */
#define CHANCE 5            /* standard deviations of what is lost among so few packets are no sign of anything */
#define LOSS_USUAL_MOST 0.3 /* more is no loss that a transfer can live with (a bound) */
#define LOSS_PACKETS 256    /* are judged at once, at least: of fewer a single loss is a great share */
#define SPELL (10 * SECOND) /* paths change: a least round trip older than two of these is forgotten */
#define CUBIC_C 0.8         /* twice that of RFC 9438: as fair, and a transfer is there sooner (test_friendly) */
#define CUBIC_BETA 0.7      /* RFC 9438, 4.6 */
/* A TCP that yields leaves room for as many round trips at least; losses that come again sooner, so often in a row, are
 * made by one that does not. */
#define STUBBORN_TRIPS 8   /* test_friendly */
#define STUBBORN_TIMES 2   /* test_friendly */
#define STUBBORN_WINDOW 32 /* packets; below, the window itself comes back as soon (test_friendly) */
/* Or it leaves room, but ever less: a window that did not come back to that part of what it was at the event before, so
 * often in a row. One TCP that yields takes 0.85, 0.88, 0.9 of a window that had all; who does not, 0.7 and a bit. */
#define BEATEN_PART 0.87   /* test_friendly */
#define BEATEN_TIMES 3     /* test_friendly */
#define HOLD (10 * SECOND) /* then it is looked whether that one is still there; for as long a single sign is enough */
#define TURNS 8            /* of BBR's ways of trying (draft-ietf-ccwg-bbr) */

double rs_wan_tree_size(uint32_t receivers) {
    return pow(receivers ? (double)receivers : 1, TREE_EXPONENT);
}

int64_t rs_wan_first_rate(rs_time grtt, uint32_t receivers, uint32_t tree_links, double path_links) {
    double size = tree_links && path_links >= 1 ? tree_links / path_links : rs_wan_tree_size(receivers);
    size = size > receivers ? receivers : size; /* no tree is larger than all ways apart */
    double rtt = (double)(grtt > MS / 2 ? grtt : MS / 2), bytes = FIRST_BPS / 8e9 * rtt;
    bytes = bytes < FIRST_BYTES ? FIRST_BYTES : bytes > FIRST_BYTES_MOST ? FIRST_BYTES_MOST : bytes;
    double rate = bytes * 8e9 / rtt / (size > 1 ? size : 1);
    return rate > RS_RATE_LEAST ? (int64_t)rate : RS_RATE_LEAST;
}

void rs_wan_path_start(rs_wan_path *p, rs_wan_congestion law, uint32_t packet_bytes, int64_t first_bps,
                       int64_t most_bps) {
    *p = (rs_wan_path){.law = law,
                       .packet_bytes = packet_bytes,
                       .rate_bps = first_bps < most_bps ? first_bps : most_bps,
                       .most_bps = most_bps,
                       .velocity = VELOCITY_FIRST};
}

void rs_wan_path_resume(rs_wan_path *p) {
    p->based = false;
}

static void set_rate(rs_wan_path *p, double bps) {
    double most = (double)p->most_bps;
    p->rate_bps = (int64_t)(bps > most ? most : bps < RS_RATE_LEAST ? RS_RATE_LEAST : bps);
}

static rs_time wanted_queue(const rs_wan_path *p) {
    rs_time queue = (rs_time)(RS_QUEUE_BITS * 1e9 / (double)p->rate_bps);
    queue = queue > p->least / QUEUE_TRIP ? queue : p->least / QUEUE_TRIP;
    return queue < QUEUE_LEAST ? QUEUE_LEAST : queue > RS_WAN_QUEUE_MOST ? RS_WAN_QUEUE_MOST : queue;
}

static void take_rtt(rs_wan_path *p, const rs_wan_sample *s) {
    if (s->rtt <= 0)
        return;
    p->rtt = p->rtt ? p->rtt + (s->rtt - p->rtt) / 8 : s->rtt;
    if (p->spell_end == 0 || s->now >= p->spell_end) {
        p->best_bps = p->best_recent;
        p->best_recent = 0;
        p->before = p->spell_end ? p->recent : s->rtt;
        p->recent = s->rtt;
        p->spell_end = s->now + SPELL;
    }
    p->recent = s->rtt < p->recent ? s->rtt : p->recent;
    p->least = p->recent < p->before ? p->recent : p->before;
    p->rtts[p->rtt_count++ % RS_WAN_RTTS] = s->rtt;
}

static rs_time standing_queue(const rs_wan_path *p) {
    uint32_t count = p->rtt_count < RS_WAN_RTTS ? p->rtt_count : RS_WAN_RTTS;
    rs_time least = RS_NEVER;
    for (uint32_t i = 0; i < count; i++)
        least = p->rtts[i] < least ? p->rtts[i] : least;
    return count && least > p->least ? least - p->least : 0;
}

static double bps(const rs_wan_path *p, uint64_t packets, rs_time time) {
    return (double)packets * p->packet_bytes * 8e9 / (double)time;
}

/* What one window has shown. */
typedef struct {
    rs_time time;      /* its length */
    double passed_bps; /* what the receiver moved on by: what was lost at random came out of the path, too */
    double came_bps;
    double lost, marked; /* shares of what passed */
    bool dropped;
    double rtts; /* its length in round trips */
} window;

static bool take_window(rs_wan_path *p, const rs_wan_sample *s, window *w) {
    const rs_wan_sample *b = &p->base;
    double part = s->part > 0 ? s->part : 1;
    rs_time least = p->least / 8 > WINDOW_LEAST ? p->least / 8 : WINDOW_LEAST;
    if (!p->based || s->next < b->next || s->received < b->received || s->repairs < b->repairs || s->at < b->at ||
        s->marked < b->marked || s->dropped < b->dropped) {
        p->based = true;
        p->base = *s;
        return false;
    }
    w->time = s->at - b->at;
    if (w->time < least)
        return false;
    uint64_t passed = s->next - b->next, came = s->received - b->received, repairs = s->repairs - b->repairs;
    came = came < passed ? came : passed;
    w->passed_bps = bps(p, passed + repairs, w->time) / part;
    w->came_bps = bps(p, came + repairs, w->time) / part;
    w->lost = passed ? (double)(passed - came) / (double)passed : 0;
    uint64_t all = came + repairs, marked = s->marked - b->marked;
    w->marked = all ? (double)(marked < all ? marked : all) / (double)all : 0;
    w->dropped = s->dropped > b->dropped;
    w->rtts = p->least ? (double)w->time / (double)p->least : 1;
    w->rtts = w->rtts < 1 ? w->rtts : 1;
    p->queue = standing_queue(p);
    p->judged += passed;
    p->missed += passed - came;
    /* What got lost beyond the usual did not come out of the narrowest place. */
    double carried = w->came_bps / (1 - p->lost_usually - LOSS_MUCH);
    carried = carried < w->passed_bps ? carried : w->passed_bps;
    p->delivered_bps += (int64_t)((carried - (double)p->delivered_bps) * (p->delivered_bps ? w->rtts : 1));
    if (s->now >= p->out_end) {
        p->out_before = p->out_most;
        p->out_most = 0;
        p->out_end = s->now + p->rtt;
    }
    p->out_most = p->delivered_bps > p->out_most ? p->delivered_bps : p->out_most;
    if (p->delivered_bps > p->best_recent)
        p->best_recent = p->delivered_bps;
    if (p->best_recent > p->best_bps)
        p->best_bps = p->best_recent;
    p->base = *s;
    return true;
}

/* Faster by GROWTH each round trip, until no more comes out or a queue stands. */
static void start_up(rs_wan_path *p, const rs_wan_sample *s, const window *w) {
    double came = w->passed_bps;
    if (p->queue > wanted_queue(p) / 4) /* behind a queue, what overflowed was not carried */
        came = w->came_bps;
    p->round_most_bps = (int64_t)came > p->round_most_bps ? (int64_t)came : p->round_most_bps;
    if (came * GROWTH > (double)p->rate_bps && !s->limited)
        set_rate(p, came * GROWTH);
    bool full = p->queue > wanted_queue(p) + p->least / 32 || w->marked > 0.05 || w->dropped;
    if (s->next >= p->round_end) {
        bool grew = (double)p->round_most_bps >= GREW * (double)p->found_bps || s->limited;
        p->flat = grew ? 0 : p->flat + 1;
        p->found_bps = p->round_most_bps > p->found_bps ? p->round_most_bps : p->found_bps;
        p->round_most_bps = 0;
        p->round_end = s->sent + 1;
        full |= p->flat >= 2;
    }
    if (!full && p->rate_bps < p->most_bps)
        return;
    p->found = true;
    p->judge_from = s->sent + 1; /* start-up goes too fast on purpose */
    double best = (double)(p->found_bps > p->round_most_bps ? p->found_bps : p->round_most_bps);
    if (full)
        set_rate(p, best * (1 - SLOWER_MOST));
    p->delivered_bps = (int64_t)best;
    p->window = best / 8e9 * (double)p->rtt;
    p->window_most = p->window;
    p->epoch = s->now;
    p->event_end = s->sent;
}

/* Losses above the usual may be those of a queue that is too short to be seen: the rate goes to what came through. If
 * that does not lessen them they are the path's, and the rate goes back. */
static bool judge_losses(rs_wan_path *p, const rs_wan_sample *s, const window *w) {
    if (s->next < p->judge_from) {
        p->judged = p->missed = 0;
        return false;
    }
    if (p->judged < LOSS_PACKETS && !w->dropped)
        return false;
    double lost = p->judged ? (double)p->missed / (double)p->judged : 0;
    double usual = p->lost_usually, chance = sqrt(usual * (1 - usual) / (double)(p->judged ? p->judged : 1));
    double spread = chance > 1.25 * p->lost_spread ? chance : 1.25 * p->lost_spread; /* a standard deviation */
    double much = usual / 2 + LOSS_MUCH;
    much = much > CHANCE * spread ? much : CHANCE * spread;
    p->judged = p->missed = 0;
    if (p->lost_before_cut > 0) {
        bool same = lost > 0.7 * p->lost_before_cut;
        if (same) {
            p->lost_usually = lost < LOSS_USUAL_MOST ? lost : LOSS_USUAL_MOST;
            set_rate(p, (double)p->cut_from_bps);
        }
        p->lost_before_cut = 0;
        return same;
    }
    if (lost > usual + much || w->dropped) {
        p->lost_before_cut = lost;
        p->cut_from_bps = p->rate_bps;
        p->judge_from = s->sent + 1;
        p->velocity = VELOCITY_FIRST;
        double out = (double)(p->out_most > p->out_before ? p->out_most : p->out_before);
        double rate = out * (1 - (lost > usual ? lost - usual : 0)) * 0.97;
        if (rate < (double)p->rate_bps)
            set_rate(p, rate > (double)p->rate_bps / 2 ? rate : (double)p->rate_bps / 2);
        return true;
    }
    p->lost_spread += (fabs(lost - usual) - p->lost_spread) / 16;
    p->lost_usually += (lost - usual) / 8;
    return false;
}

/* Holds a queue as long as wanted_queue at the narrowest place. What is under way makes it longer or shorter yet, and
 * is counted: a rate that waits to see that swings about what is carried, and on the mean stays 4 % below. */
static void follow(rs_wan_path *p, const rs_wan_sample *s, const window *w) {
    rs_time wanted = wanted_queue(p);
    double rate = (double)p->rate_bps, rtt = (double)(p->least > MS ? p->least : MS);
    double out = (double)(p->out_most > p->out_before ? p->out_most : p->out_before), queue = (double)p->queue;
    if (p->queue >= wanted / 4 && out > 0) /* else what comes out is not all that could */
        queue += (rate - out) / out * rtt;
    if (judge_losses(p, s, w))
        return;
    if (w->marked > 0) { /* a switch has seen the queue before we did */
        double part = w->marked / 2 < SLOWER_MOST ? w->marked / 2 : SLOWER_MOST;
        set_rate(p, rate * (1 - part * w->rtts));
        p->velocity = VELOCITY_FIRST;
    } else if (queue > (double)wanted) {
        double over = (queue - (double)wanted) / rtt / 2;
        over = over < SLOWER_MOST ? over : SLOWER_MOST;
        double to = out * (1 - over);
        if ((double)s->sent_bps < 0.9 * rate) /* a host that was busy sent less: what came out is not all that could */
            to = rate * (1 - over * w->rtts);
        set_rate(p, to < rate ? to : rate);
        p->velocity = VELOCITY_FIRST;
        if (rate < FAR_BELOW * (double)p->best_bps) /* it carries that no more */
            p->best_bps = p->best_recent = (int64_t)(rate / FAR_BELOW);
    } else if (s->limited && s->sent_bps < p->rate_bps / 10 * 9) {
        p->velocity = VELOCITY_FIRST; /* what was not sent says nothing of what would come out */
    } else if (p->queue < wanted / 4) {
        bool back = rate < FAR_BELOW * (double)p->best_bps;
        double faster = back && p->velocity < VELOCITY_BACK ? VELOCITY_BACK : p->velocity;
        double to = rate * (1 + faster * w->rtts), most = out * (1 + VELOCITY_MOST);
        to = back || to < most ? to : most;
        to = to > out ? to : out;
        set_rate(p, to > rate ? to : rate);
        p->velocity *= 1 + w->rtts;
        p->velocity = p->velocity < VELOCITY_MOST ? p->velocity : VELOCITY_MOST;
    } else {
        double under = ((double)wanted - queue) / rtt / 2;
        under = under < VELOCITY_MOST ? under : VELOCITY_MOST;
        double to = rate * (1 + under * w->rtts);
        set_rate(p, to > out ? to : out);
        p->velocity = VELOCITY_FIRST;
    }
}

/* A transfer that began behind the queues of others takes them for the path: once in a spell that showed no lesser
 * trip the rate is lowered for one round trip, so that the place runs empty. */
static void look_below(rs_wan_path *p, const rs_wan_sample *s) {
    if (p->drain_again == 0)
        p->drain_again = s->now + SPELL;
    if (s->now < p->drain_again || p->queue == 0)
        return;
    p->drain_again = s->now + SPELL;
    rs_time drain = wanted_queue(p) * 10 / 3 + DRAIN_SEEN;
    drain = drain < p->rtt + p->rtt / 2 ? drain : p->rtt + p->rtt / 2;
    p->drain_end = s->now + drain;
}

/* Beside a TCP that yields to no loss, as BBR (its draft, 4.6): it carries what it has carried, and tries for more in
 * one round trip of eight. What is under way is bounded, as there. What came is the mean of a round trip: the most of
 * shorter times would be that of bursts, and more than half of the place. */
static double hold_own(rs_wan_path *p, const rs_wan_sample *s) {
    rs_time least_rtt = p->least > MS ? p->least : MS;
    uint64_t came = s->received + s->repairs;
    if (p->turn_at == 0 || came < p->turn_came || s->at < p->turn_at) {
        for (uint32_t i = 0; i < RS_WAN_TURNS; i++)
            p->came_most[i] = 0;
        p->came_most[p->turn % RS_WAN_TURNS] = p->delivered_bps;
        p->turn_end = s->now + least_rtt;
        p->turn_at = s->at;
        p->turn_came = came;
    } else if (s->now >= p->turn_end && s->at > p->turn_at) {
        p->turn_end = s->now + least_rtt;
        p->turn++;
        p->came_most[p->turn % RS_WAN_TURNS] =
            (int64_t)(bps(p, came - p->turn_came, s->at - p->turn_at) / (s->part > 0 ? s->part : 1));
        p->turn_at = s->at;
        p->turn_came = came;
    }
    int64_t most = 0;
    for (uint32_t i = 0; i < RS_WAN_TURNS; i++)
        most = p->came_most[i] > most ? p->came_most[i] : most;
    double gain = p->turn % TURNS == 0 ? 1.25 : p->turn % TURNS == 1 ? 0.75 : 1;
    double rate = (double)most * gain, bound = 2 * (double)most * (double)least_rtt / (double)p->rtt;
    return rate < bound ? rate : bound;
}

/* At an event: whether it is another sign of one that does not yield. */
static void count_beaten(rs_wan_path *p, const rs_wan_sample *s, double mss) {
    bool large = p->window > STUBBORN_WINDOW * mss, doubtful = p->held_at && s->now - p->held_at < HOLD;
    bool soon = large && s->now - p->epoch < STUBBORN_TRIPS * p->rtt;
    bool beaten = large && p->window < BEATEN_PART * p->event_window;
    if (p->stubborn >= STUBBORN_TIMES)
        return;
    p->stubborn = soon ? p->stubborn + 1 : 0;
    p->beaten = beaten ? p->beaten + 1 : 0;
    p->event_window = p->window;
    if (p->beaten >= (doubtful ? 1 : BEATEN_TIMES) || (doubtful && soon))
        p->stubborn = STUBBORN_TIMES;
}

/* RFC 9438, as a rate. Losses without a queue are nobody's congestion: a TCP that shared the place would have made
 * one. */
static void friendly(rs_wan_path *p, const rs_wan_sample *s, const window *w) {
    bool queued = p->queue > wanted_queue(p) / 4 || w->lost > p->lost_usually + LOSS_MUCH;
    bool event = (w->lost > 0 && queued) || w->marked > 0 || w->dropped;
    double mss = p->packet_bytes, rtt = (double)p->rtt / 1e9;
    if (event && s->next >= p->event_end) {
        count_beaten(p, s, mss);
        p->window_most = p->window < p->window_most ? p->window * (1 + CUBIC_BETA) / 2 : p->window;
        p->window *= CUBIC_BETA;
        p->epoch = s->now;
        p->event_end = s->sent + 1;
    } else if (!s->limited) {
        double since = (double)(s->now - p->epoch) / 1e9 + rtt;
        double k = cbrt(p->window_most / mss * (1 - CUBIC_BETA) / CUBIC_C);
        double cubic = (CUBIC_C * (since - k) * (since - k) * (since - k)) * mss + p->window_most;
        double reno = p->window_most * CUBIC_BETA + 3 * (1 - CUBIC_BETA) / (1 + CUBIC_BETA) * since / rtt * mss;
        double to = cubic > reno ? cubic : reno, most = p->window * 1.5;
        if (to > p->window)
            p->window += ((to < most ? to : most) - p->window) * w->rtts;
    }
    p->window = p->window > 4 * mss ? p->window : 4 * mss;
    if (!queued)
        p->lost_usually += (w->lost - p->lost_usually) * w->rtts / 8;
    double rate = p->window * 8 / rtt;
    if (p->stubborn < STUBBORN_TIMES) {
        p->held_until = s->now + HOLD;
        p->turn_at = 0;
        set_rate(p, rate);
        return;
    }
    double held = hold_own(p, s);
    held = held > rate ? held : rate; /* in a deep queue the one with the window has more */
    set_rate(p, held);
    if (s->now < p->held_until)
        return;
    p->stubborn = p->beaten = 0; /* perhaps it is gone */
    p->held_at = s->now;
    p->event_window = 0;
    p->window = p->window_most = held / 8 * rtt;
    p->epoch = s->now;
}

bool rs_wan_path_heard(rs_wan_path *p, const rs_wan_sample *s) {
    window w = {0};
    take_rtt(p, s);
    if (!take_window(p, s, &w) || p->law == RS_WAN_FIXED)
        return false;
    if (!p->found)
        start_up(p, s, &w);
    else if (p->law == RS_WAN_FRIENDLY)
        friendly(p, s, &w);
    else
        follow(p, s, &w);
    if (p->found && p->law == RS_WAN_OWN)
        look_below(p, s);
    return true;
}
