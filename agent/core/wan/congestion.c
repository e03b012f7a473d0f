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
#define THROUGH 0.9           /* start-up: of a pulse that came slower than that part of its rate some was too much, */
#define GREW 1.2 /* and one that brought less more than that was flat; two of them end start-up (BBR has 1.25) */
#define TAKEN_LEAST (100 * MS) /* over which what a receiver takes is measured, and over a round trip (a bound) */
#define TAKEN_HALF 4    /* such times in a row, in which it was sent twice as much (tests/agent/core/wan/test_slow.c) */
#define START_WINDOW 32 /* part of a round trip: shorter than a step of a pulse (pulses.c) */
#define VELOCITY_FIRST 0.01 /* share faster after a round trip without a queue; doubled each time */
#define VELOCITY_MOST 0.125
#define SLOWER_MOST 0.25   /* than what comes out */
#define FAR_BELOW 0.85     /* of the best rate of late (rostrum lab run wan): */
#define VELOCITY_BACK 0.25 /* from there it goes back faster, for that rate was carried */
#define STOOD_GREW 8       /* a queue that became longer by that part of it is another one; */
#define STOOD_CAME 1       /* another way is longer all at once; others need longer to fill what this one leaves */
#define STOOD_AFTER 2 /* so long after that, when what came out before is forgotten, it is looked at whether it goes, */
#define STOOD_TRIPS 8 /* until then: later others may have filled it again */
#define LOSS_MUCH 0.02      /* above what is usual: it may be a queue that is too short to be seen */
#define CHANCE 5            /* standard deviations of what is lost among so few packets are no sign of anything */
#define TRIAL_LOST 16       /* packets that a trial would lose if it lessened nothing */
#define LOSS_USUAL_MOST 0.3 /* more is no loss that a transfer can live with (a bound) */
#define LOSS_PACKETS 256    /* are judged at once, at least: of fewer a single loss is a great share */
#define SPELL (10 * SECOND) /* paths change: a least round trip older than two of these is forgotten */
#define LOOK_FIRST SECOND   /* friendly: in a short queue that it fills others do not get to where they are seen */
/* Of congestion=friendly: tests/sim/test_narrow.c. */
#define PULSE 0.2          /* part by which the rate is more or less than its mean: as much again with more than that */
#define PULSE_LEAST 0.1    /* queue, which a shallow one would lose */
#define CHIP_LEAST 4194304 /* ns: power of two, several statuses of the shortest round trip */
#define SLOT CHIP_LEAST    /* of which is known what was meant */
#define REMEMBER 40.0      /* round trips of pulses; and of so many nothing is known: */
#define PULSES_LEAST 4.0
#define STOOD_TRIP 128   /* part of a round trip: where a shorter queue stood sent / came tells nothing of others */
#define STRETCH_MOST 3.0 /* of what a pause of a host makes of a window, nothing is learned */
#define MOST_TIMES 2.5   /* what came out at best: more than that the place is taken for only when that has come out */
#define SHARE 0.47       /* of the place; a little less than half, so that others can fill it */
#define OVERLOAD 0.5     /* is sent more than comes, faded over so many round trips */
#define OVERLOAD_TRIPS 8
#define OTHERS_THERE 0.08
/* What start-up shows of the place (rostrum lab run wan --with-tcp): */
#define LINE_QUEUE MS   /* stood at both ends of a window */
#define LINE_LEAST 8    /* windows */
#define LINE_SEEN 2     /* standard errors that the slope is at least, or nobody knows whose queue it is */
#define LINE_KEEP 0.5   /* of it after a pulse: others may have given way */
#define LINE_MOST 4.0   /* more is a pause of a host */
#define LINE_LOST 0.2   /* more is an overflow, by which some lose more than others */
#define LINE_SPREAD 0.2 /* a standard deviation of what was sent, at least, over its mean */
#define LINE_ERRORS 1   /* standard errors by which the place is taken for less: later pulses show more */
#define PLACE_TIMES 10  /* what came out at best, at most */
#define JOIN_OTHERS 0.2 /* of the place; less is as good as nobody */
#define JOIN_TRIPS 8
/* Of start-up's pulses (see_peak): where sent / came is as much, they show how much others may hold at most. Those that
 * come in bursts (a CUBIC that fills no place sends when it is acknowledged) hold less. */
#define PEAK_STRETCH 1.5
#define PEAK_OPEN 0.25   /* so much of that counts */
#define PEAK_LEAST 2     /* windows */
#define LOOK_STOOD 0.5   /* a queue that stood for less of the first round trip is one of bursts: others are met */
#define LOOK_NARROW 2.5  /* times more is sent in it than comes: the place is narrow, whoever is there */
#define MET_PULSE 768000 /* bytes of a pulse once others are met, */
#define MET_AFTER 3      /* which goes such a part of a round trip later each time: their bursts come once in one */
/* Of marks (rostrum sim run wan --friendly): */
#define BUSY 0.7         /* in that part of the time after all gave way a queue still stands: pulses show something; */
#define BUSY_NO_MORE 0.2 /* they do no more */
#define BUSY_TRIPS 16
#define LOSS_USUAL_FRIENDLY 0.1 /* as LOSS_USUAL_MOST: trials show little while others fill what it leaves */
#define FLOOR_MORE 1.5
#define MET_TIMES 4
#define MET_LEAST 0.6 /* of the window that it had: who does not heed marks makes many */
#define EARLY 0.4     /* of the time in which a CUBIC is back: marked before that, by somebody who did not give way */
#define IGNORED 3     /* times, and */
#define IGNORED_TRIPS 500   /* for so long pulses go on, whatever is marked: then it looks again */
#define CUBIC_GROWS 4       /* times K, in which a CUBIC has nine times what it had: nobody marks there any more */
#define ROOM_LEAST (MS / 2) /* a shorter queue is none */
#define ROOM_PART 3         /* of the queue that overflowed or was marked, as its own: tests/sim/test_narrow.c */
#define ROOM_AGAIN 1.5      /* times that is thought to be there in the next spell: queues change */
#define EVEN 0.5        /* of what a CUBIC has that meets events so often: all of it overshoots, by the cube of time */
#define CUBIC_C 0.4     /* RFC 9438, 5.1 */
#define CUBIC_BETA 0.7  /* RFC 9438, 4.6 */
#define OTHERS_GROW 2.0 /* times in which a CUBIC is back where it was: who is not seen for so long is gone */

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

int64_t rs_wan_path_known(const rs_wan_path *p) {
    return p->known_bps > p->rate_bps ? p->known_bps : p->rate_bps;
}

bool rs_wan_path_looks(const rs_wan_path *p) {
    return p->law == RS_WAN_FRIENDLY && !p->found && !p->looked;
}

/* A status that waited while this process stood still is read late, by a clock that stood still, too: its round trip
 * may be taken for one that no path has, and every other would show a queue after that. The way there has become longer
 * by the pause, as the two clocks have it. */
void rs_wan_path_resume(rs_wan_path *p) {
    p->based = false;
    p->took = (rs_wan_sample){0};
    p->stood_queue = 0;
    p->look_windows = p->look_stood = 0;
    p->there = (rs_wan_delay){0};
    p->trip.least = p->trip.recent = p->trip.before;
    for (uint32_t i = 0; i < RS_WAN_DELAYS; i++)
        p->trip.latest[i] = p->trip.before;
}

static void set_rate(rs_wan_path *p, double bps) {
    double most = (double)p->most_bps;
    p->rate_bps = (int64_t)(bps > most ? most : bps < RS_RATE_LEAST ? RS_RATE_LEAST : bps);
}

static rs_time wanted_queue(const rs_wan_path *p) {
    rs_time queue = (rs_time)(RS_QUEUE_BITS * 1e9 / (double)p->rate_bps);
    queue = queue > p->trip.least / QUEUE_TRIP ? queue : p->trip.least / QUEUE_TRIP;
    if (p->room > 0 && queue > p->room / ROOM_PART)
        queue = p->room / ROOM_PART;
    rs_time least = p->room > 0 && p->room / ROOM_PART < QUEUE_LEAST ? p->room / ROOM_PART : QUEUE_LEAST;
    return queue < least ? least : queue > RS_WAN_QUEUE_MOST ? RS_WAN_QUEUE_MOST : queue;
}

static void take_delay(rs_wan_delay *d, rs_time delay, bool new_spell) {
    if (d->count == 0 || new_spell) {
        d->before = d->count ? d->recent : delay;
        d->recent = delay;
    }
    d->recent = delay < d->recent ? delay : d->recent;
    d->least = d->recent < d->before ? d->recent : d->before;
    d->latest[d->count++ % RS_WAN_DELAYS] = delay;
}

static void take_rtt(rs_wan_path *p, const rs_wan_sample *s) {
    if (s->rtt <= 0)
        return;
    bool new_spell = s->now >= p->spell_end;
    p->rtt = p->rtt ? p->rtt + (s->rtt - p->rtt) / 8 : s->rtt;
    if (new_spell) {
        p->best_bps = p->best_recent;
        p->best_recent = 0;
        p->spell_end = s->now + SPELL;
        p->room = (rs_time)((double)p->room * ROOM_AGAIN);
    }
    take_delay(&p->trip, s->rtt, new_spell);
    take_delay(&p->there, s->at - s->stamp, new_spell);
}

/* By the least of the latest, since a host that is busy delays single ones. */
static rs_time over_least(const rs_wan_delay *d) {
    uint32_t count = d->count < RS_WAN_DELAYS ? d->count : RS_WAN_DELAYS;
    rs_time least = RS_NEVER;
    for (uint32_t i = 0; i < count; i++)
        least = d->latest[i] < least ? d->latest[i] : least;
    return count ? least - d->least : 0;
}

/* What a status waited for on its way back is no queue of ours (as LEDBAT has it, RFC 6817), and what the clocks drift
 * apart is none either: no more than both show. */
static rs_time standing_queue(const rs_wan_path *p) {
    rs_time trip = over_least(&p->trip), there = over_least(&p->there);
    return trip < there ? trip : there;
}

static double bps(const rs_wan_path *p, uint64_t packets, rs_time time) {
    return (double)packets * p->packet_bytes * 8e9 / (double)time;
}

/* What one window has shown. */
typedef struct {
    rs_time time;      /* its length */
    rs_time from;      /* the sender's clock when it began, */
    rs_time sent_time; /* and what it took to send */
    uint64_t first;    /* position of its first packet */
    double sent_bps;   /* what passed was sent at that rate */
    double passed_bps; /* what the receiver moved on by: what was lost at random came out of the path, too */
    double came_bps;
    double lost, marked;   /* shares of what passed */
    bool dropped, limited; /* it was sent slower than the rate allows */
    double rtts;           /* its length in round trips */
    rs_time queue;         /* at its beginning or its end, the lesser */
} window;

static bool take_window(rs_wan_path *p, const rs_wan_sample *s, window *w) {
    const rs_wan_sample *b = &p->base;
    double part = s->part > 0 ? s->part : 1;
    rs_time least = p->trip.least / (p->found && !p->offered ? 8 : START_WINDOW);
    least = least > WINDOW_LEAST ? least : WINDOW_LEAST;
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
    w->from = b->stamp;
    w->sent_time = s->stamp > b->stamp ? s->stamp - b->stamp : 0;
    rs_time before = b->at - b->stamp, after = s->at - s->stamp;
    w->queue = (before < after ? before : after) - p->there.least;
    w->first = b->next;
    w->sent_bps = s->stamp > b->stamp ? bps(p, passed + repairs, s->stamp - b->stamp) / part : 0;
    w->limited = s->limited && w->sent_bps < 0.9 * (double)p->rate_bps; /* else it is of a burst: as good as any */
    w->lost = passed ? (double)(passed - came) / (double)passed : 0;
    uint64_t all = came + repairs, marked = s->marked - b->marked;
    w->marked = all ? (double)(marked < all ? marked : all) / (double)all : 0;
    w->dropped = s->dropped > b->dropped;
    w->rtts = p->trip.least ? (double)w->time / (double)p->trip.least : 1;
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

/* Of what is lost: more, beside others, is congestion, whatever a trial seems to show. */
static double most_usual(const rs_wan_path *p) {
    return p->law == RS_WAN_FRIENDLY ? LOSS_USUAL_FRIENDLY : LOSS_USUAL_MOST;
}

/* What a window of start-up shows to be carried. Of the windows of a pulse that were too fast the first counts: what
 * comes out at a yet higher rate is what others lose by it. */
static void carries(rs_wan_path *p, const window *w) {
    double most = w->came_bps / (1 - most_usual(p)); /* a queue that others filled before is not seen */
    double came = w->passed_bps < most ? w->passed_bps : most;
    if (p->queue > wanted_queue(p) / 4) /* behind a queue, what overflowed was not carried */
        came = w->came_bps;
    bool slower = came < THROUGH * w->sent_bps || w->marked > 0.05;
    came = came < w->sent_bps ? came : w->sent_bps; /* what came at once after a pause was not sent so */
    double known = (double)rs_wan_path_known(p);
    if (p->overran && (slower || came < GREW * known))
        return;
    p->overran = slower;
    p->round_most_bps = (int64_t)came > p->round_most_bps ? (int64_t)came : p->round_most_bps;
    if (came <= known)
        return;
    p->known_bps = (int64_t)(came >= THROUGH * (double)p->most_bps ? (double)p->most_bps : came);
    if (!p->met)
        set_rate(p, (double)p->known_bps);
}

static bool is_between(const rs_wan_path *p, const window *w) {
    return w->sent_bps < 1.25 * (double)p->rate_bps;
}

/* A TCP that fills no place sends what its acknowledgements ask for, in a burst at the place's whole rate, and nothing
 * until the next round trip. A pulse between two bursts sees all of the place, and to send at that is to fill its queue
 * in each: so a round trip is looked at before the first pulse, at a rate that leaves but a short queue in a burst. */
static void look(rs_wan_path *p, const rs_wan_sample *s, bool stood) {
    if (p->look_windows == 0)
        p->look = *s;
    p->look_windows++;
    p->look_stood += stood;
    p->looked = s->now >= p->look.now + p->rtt;
    p->met = p->looked && p->look_stood > 0 && p->look_stood < LOOK_STOOD * p->look_windows;
}

/* Nobody who heeds anything leaves so little of a place: it carries no more than what came in that round trip. */
static bool look_narrow(rs_wan_path *p, const rs_wan_sample *s) {
    double came = bps(p, s->received - p->look.received, s->at - p->look.at);
    double sent = bps(p, s->next - p->look.next, s->stamp - p->look.stamp);
    if (!(came > 0) || !(sent >= LOOK_NARROW * came)) /* they may be none, of a receiver that lies */
        return false;
    p->round_most_bps = (int64_t)came;
    return true;
}

/* A queue that stands between pulses after that of the last one was gone is others'. A CUBIC goes back once in a round
 * trip for marks, however many: so the rate goes up at once, when it is known, not in each of some round trips. */
static void meet(rs_wan_path *p, const rs_wan_sample *s, const window *w) {
    const bool stood = w->queue > LINE_QUEUE, between = is_between(p, w);
    p->was_marked |= w->marked > 0;
    if (p->looked) {
        p->met |= between && stood && p->drained;
        p->drained = between && (!stood || p->drained);
    } else {
        look(p, s, stood);
    }
    p->pulse_most = p->met ? MET_PULSE : 0;
    p->pulse_after = p->met ? p->trip.least / MET_AFTER : 0;
}

/* Of what was sent in a pulse so much came out: the place carries that at least. */
static void learn_peak(rs_wan_path *p, const window *w) {
    rs_wan_peak *k = &p->peak;
    if (is_between(p, w) || w->queue < LINE_QUEUE || w->limited || w->dropped || w->came_bps <= 0 ||
        w->sent_bps < PEAK_STRETCH * w->came_bps)
        return;
    k->windows += 1;
    k->sent += w->sent_bps * (double)w->sent_time;
    k->sent_time += (double)w->sent_time;
    k->came += w->came_bps * (double)w->time;
    k->came_time += (double)w->time;
}

/* What the place carries, at least and (if others send no more than that) at most. */
static bool see_peak(const rs_wan_peak *k, double *least, double *most) {
    if (k->windows < PEAK_LEAST)
        return false;
    double sent = k->sent / k->sent_time, came = k->came / k->came_time;
    if (sent < PEAK_STRETCH * came)
        return false;
    *least = came;
    *most = came * sent / (sent - came);
    return true;
}

/* Behind a queue sent / came = (others + sent) / place (see learn_place), which pulses make into a line. */
static void learn_line(rs_wan_line *l, const window *w) {
    double sent = w->sent_bps, stretch = w->came_bps > 0 ? sent / w->came_bps : 0;
    if (w->queue < LINE_QUEUE || w->limited || w->dropped || w->lost > LINE_LOST || stretch > LINE_MOST ||
        stretch < 1 / LINE_MOST)
        return;
    l->windows += 1;
    l->sent += sent;
    l->stretch += stretch;
    l->sent_sent += sent * sent;
    l->stretch_stretch += stretch * stretch;
    l->sent_stretch += sent * stretch;
}

static void fade_line(rs_wan_line *l, double keep) {
    l->windows *= keep;
    l->sent *= keep;
    l->stretch *= keep;
    l->sent_sent *= keep;
    l->stretch_stretch *= keep;
    l->sent_stretch *= keep;
}

/* The slope of the line, which is 1 over the place, and its standard error. False: none is to be seen. */
static bool see_line(const rs_wan_line *l, double *slope, double *error) {
    if (l->windows < LINE_LEAST)
        return false;
    double sent = l->sent / l->windows, stretch = l->stretch / l->windows;
    double spread = l->sent_sent / l->windows - sent * sent, both = l->sent_stretch / l->windows - sent * stretch;
    if (spread < LINE_SPREAD * LINE_SPREAD * sent * sent || both <= 0)
        return false;
    double off = l->stretch_stretch / l->windows - stretch * stretch - both * both / spread;
    *slope = both / spread;
    *error = sqrt((off > 0 ? off : 0) / spread / (l->windows - 2));
    return true;
}

/* When a CUBIC that has an eighth less than its part is back, in s. */
static double back_by(const rs_wan_path *p) {
    double half = p->place_bps / 16 * (double)p->rtt / 1e9 / p->packet_bytes;
    return cbrt(half * (1 - CUBIC_BETA) / CUBIC_C);
}

/* Who comes to a place that others fill goes to its part at once, if start-up's pulses have shown that. A TCP's slow
 * start takes as much; by CUBIC's growth alone it would take minutes at a long round trip. */
static void join(rs_wan_path *p, const rs_wan_sample *s) {
    const rs_wan_line *l = &p->line;
    double slope, error, best = (double)p->best_bps, least, most, place, others = 1 - SHARE;
    bool line = see_line(l, &slope, &error), peak = see_peak(&p->peak, &least, &most);
    if (!line && !p->met)
        return;
    place = line ? 1 / (slope + LINE_ERRORS * error) : (double)p->found_bps;
    if (p->met && peak) {
        most = least + PEAK_OPEN * (most - least);
        place = !line || place > most ? most : place < least ? least : place;
    }
    place = place < best ? best : place > PLACE_TIMES * best ? PLACE_TIMES * best : place;
    others = l->windows > 0 ? (l->stretch - l->sent / place) / l->windows : others;
    if (!line && others < JOIN_OTHERS)
        others = 1 - SHARE;
    if (others < JOIN_OTHERS)
        return;
    p->place_bps = place;
    p->others = others;
    p->share_bps = (double)p->rate_bps;
    if (p->met || (p->was_marked && SHARE * place < p->share_bps)) { /* each round trip more would be marked, too */
        p->share_bps = SHARE * place;
        set_rate(p, p->share_bps);
    }
    p->join_until = p->others_until = s->now + JOIN_TRIPS * p->rtt;
    if (p->met) /* they leave no queue in which they are seen */
        p->others_until += (rs_time)(OTHERS_GROW * back_by(p) * 1e9);
}

/* Its rate is what is known to be carried; the sender goes faster in pulses, until two bring no more, or a queue
 * stands. */
static void start_up(rs_wan_path *p, const rs_wan_sample *s, const window *w) {
    double slope, error, least, most;
    bool full = p->queue > wanted_queue(p) + p->trip.least / 32, narrow = false;
    if (p->law == RS_WAN_FRIENDLY) {
        bool looks = rs_wan_path_looks(p);
        meet(p, s, w);
        if (rs_wan_path_looks(p))
            return;
        narrow = looks && look_narrow(p, s);
        learn_peak(p, w);
    }
    carries(p, w);
    learn_line(&p->line, w);
    if (p->law == RS_WAN_FRIENDLY && full) { /* the queue may be others': pulses grow until they are seen in it */
        full = p->pulse_end > 0 && see_line(&p->line, &slope, &error) && slope > LINE_SEEN * error;
        bool over = s->pulse_end > 0 && s->next >= s->pulse_end; /* each more would be marked, too */
        full |= p->was_marked && over && see_peak(&p->peak, &least, &most);
    }
    full |= w->dropped || narrow;
    p->round_limited |= w->limited;
    if (s->pulse_end > 0 && s->pulse_end != p->pulse_end && s->next >= s->pulse_end) {
        bool grew = (double)p->round_most_bps >= GREW * (double)p->found_bps || p->round_limited;
        p->flat = grew ? 0 : p->flat + 1;
        p->found_bps = p->round_most_bps > p->found_bps ? p->round_most_bps : p->found_bps;
        p->careful = p->overran;
        p->round_most_bps = 0;
        p->round_limited = p->overran = false;
        p->pulse_end = s->pulse_end;
        fade_line(&p->line, LINE_KEEP);
        full |= p->flat >= 2;
    }
    if (!full && rs_wan_path_known(p) < p->most_bps)
        return;
    p->found = true;
    p->judge_from = s->sent + 1; /* start-up goes too fast on purpose */
    double best = (double)(p->found_bps > p->round_most_bps ? p->found_bps : p->round_most_bps);
    double slower = p->trip.least ? (double)p->queue / (double)p->trip.least : 0; /* the queue is gone after a trip */
    if (full)
        set_rate(p, best * (1 - (slower < SLOWER_MOST ? slower : SLOWER_MOST)));
    p->delivered_bps = (int64_t)best;
}

/* Losses that a lower rate has not lessened are the path's; others were of its own making. */
static bool end_trial(rs_wan_path *p, double lost) {
    bool same = lost > 0.7 * p->lost_before_cut;
    p->lost_before_cut = 0;
    if (same) {
        p->lost_usually = lost < most_usual(p) ? lost : most_usual(p);
        p->lost_proven = p->cut_for_creep ? p->lost_usually : p->lost_proven;
        set_rate(p, (double)p->cut_from_bps);
        return true;
    }
    if (p->cut_for_creep) /* a trial of one great loss may have been chance, in bursts */
        p->lost_usually = lost < p->lost_usually ? lost : p->lost_usually;
    p->lost_proven = p->lost_usually < p->lost_proven ? p->lost_usually : p->lost_proven;
    return false;
}

/* Losses above the usual may be those of a queue that is too short to be seen: the rate goes to what came through. If
 * that does not lessen them they are the path's, and the rate goes back. So it is each time the usual has crept up by
 * as much: at a short queue it crept to LOSS_USUAL_MOST, each loss a little more than usual. */
static bool judge_losses(rs_wan_path *p, const rs_wan_sample *s, const window *w) {
    rs_time from = p->judged_at;
    if (s->next < p->judge_from) {
        p->judged = p->missed = 0;
        p->judged_at = s->now;
        return false;
    }
    double packets = LOSS_PACKETS, tried = p->lost_before_cut;
    if (tried > 0 && tried < TRIAL_LOST / packets && p->cut_for_creep)
        packets = TRIAL_LOST / tried;
    if ((double)p->judged < packets && !w->dropped)
        return false;
    double lost = p->judged ? (double)p->missed / (double)p->judged : 0;
    double usual = p->lost_usually, chance = sqrt(usual * (1 - usual) / (double)(p->judged ? p->judged : 1));
    double spread = chance > 1.25 * p->lost_spread ? chance : 1.25 * p->lost_spread; /* a standard deviation */
    double much = usual / 2 + LOSS_MUCH;
    much = much > CHANCE * spread ? much : CHANCE * spread;
    p->judged = p->missed = 0;
    p->judged_at = s->now;
    if (tried > 0)
        return end_trial(p, lost);
    bool crept = usual > p->lost_proven + LOSS_MUCH + p->lost_spread;
    p->much_from = lost <= usual + much ? 0 : p->much_from ? p->much_from : from;
    bool lasts = p->much_from > 0 && s->now - p->much_from >= p->trip.least / 2; /* a burst is over sooner */
    if (lasts || w->dropped || crept) {
        p->much_from = 0;
        lost = crept && lost < usual ? usual : lost;
        p->lost_before_cut = lost;
        p->cut_from_bps = p->rate_bps;
        p->cut_for_creep = crept;
        p->judge_from = s->sent + 1;
        p->velocity = VELOCITY_FIRST;
        double out = (double)(p->out_most > p->out_before ? p->out_most : p->out_before);
        double known = crept ? p->lost_proven : usual;
        double rate = out * (1 - (lost > known ? lost - known : 0)) * 0.97;
        if (rate < (double)p->rate_bps)
            set_rate(p, rate > (double)p->rate_bps / 2 ? rate : (double)p->rate_bps / 2);
        return true;
    }
    p->lost_spread += (fabs(lost - usual) - p->lost_spread) / 16;
    usual += (lost - usual) / 8;
    p->lost_usually = usual < most_usual(p) ? usual : most_usual(p);
    p->lost_proven = p->lost_proven < usual ? p->lost_proven : usual;
    return false;
}

static void forget_least(rs_wan_delay *d) {
    rs_time now = over_least(d) + d->least;
    d->least = d->recent = d->before = now;
}

/* A queue of its own becomes shorter by what is sent less than comes out. One that does not was none: the way became
 * longer (another one was taken), and to send ever less shortens nothing. One that grew yet, or what came out while
 * more was carried, says nothing: where the place became narrower the queue is its own. */
static void see_longer_way(rs_wan_path *p, const rs_wan_sample *s, const window *w, double out) {
    rs_time wanted = wanted_queue(p), trip = s->rtt > p->rtt ? s->rtt : p->rtt;
    if (p->queue <= wanted) {
        p->stood_queue = 0;
    } else if (p->queue > p->stood_queue + p->stood_queue / STOOD_GREW) {
        p->stood_best = p->stood_queue ? p->stood_best : p->best_bps;
        p->stood_since = p->stood_queue ? p->stood_since : s->now;
        p->stood_queue = p->queue;
        p->stood_from = s->now;
        p->stood_drained = 0;
    } else if (s->now >= p->stood_from + STOOD_AFTER * trip && s->now < p->stood_from + STOOD_TRIPS * trip) {
        if (w->sent_bps < THROUGH * out && w->came_bps >= THROUGH * w->sent_bps)
            p->stood_drained += (double)w->sent_time * (1 - w->sent_bps / out);
        bool goes = (double)p->queue < (double)p->stood_queue - p->stood_drained / 2;
        if (p->stood_drained < (double)wanted || goes || p->stood_from - p->stood_since > STOOD_CAME * trip)
            return;
        forget_least(&p->trip);
        forget_least(&p->there);
        p->queue = p->stood_queue = 0;
        p->best_bps = p->best_recent = p->stood_best;
    }
}

/* Holds a queue as long as wanted_queue at the narrowest place. What is under way makes it longer or shorter yet, and
 * is counted: a rate that waits to see that swings about what is carried, and on the mean stays 4 % below. */
static void follow(rs_wan_path *p, const rs_wan_sample *s, const window *w) {
    double rate = (double)p->rate_bps, out = (double)(p->out_most > p->out_before ? p->out_most : p->out_before);
    if (p->law == RS_WAN_OWN) /* friendly takes it for others, and has its part */
        see_longer_way(p, s, w, out);
    rs_time wanted = wanted_queue(p);
    double rtt = (double)(p->trip.least > MS ? p->trip.least : MS), queue = (double)p->queue;
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
    } else if (p->lost_before_cut > 0 && p->cut_for_creep && p->law == RS_WAN_OWN) { /* faster, it shows nothing */
        p->velocity = VELOCITY_FIRST;
    } else if (w->limited && s->sent_bps < p->rate_bps / 10 * 9) {
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
        p->drain_again = s->now + (p->law == RS_WAN_FRIENDLY ? LOOK_FIRST : SPELL);
    if (s->now < p->drain_again || p->queue == 0)
        return;
    p->drain_again = s->now + SPELL;
    rs_time drain = wanted_queue(p) * 10 / 3 + DRAIN_SEEN;
    drain = drain < p->rtt + p->rtt / 2 ? drain : p->rtt + p->rtt / 2;
    p->drain_end = s->now + drain;
}

/* A power of two, shorter than a round trip: so soon a TCP that waits for acknowledgements does not answer to it. */
static rs_time chip(const rs_wan_path *p) {
    rs_time chip = CHIP_LEAST;
    while (chip * 4 <= p->rtt)
        chip *= 2;
    return chip;
}

/* Whether what is sent then is a strong pulse (1) or a weak one (-1): random, so that it has nothing to do with what
 * others answer to earlier ones; and the same for all receivers, whose pulses go together. */
static double pulse_at(const rs_wan_path *p, rs_time when) {
    uint64_t mixed = (uint64_t)(when / chip(p)) * UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return mixed >> 40 & 1 ? 1 : -1;
}

/* Sends on in pulses, and keeps what was meant: a status may come long after the time for another one. */
static void pulse(rs_wan_path *p, rs_time now) {
    double part = RS_QUEUE_BITS / 2 * 1e9 / (double)chip(p) / p->share_bps, sign = pulse_at(p, now);
    part = part < PULSE_LEAST ? PULSE_LEAST : part > PULSE ? PULSE : part;
    uint64_t slot = (uint64_t)(now / SLOT);
    if (slot - p->slot > RS_WAN_SLOTS)
        p->slot = slot - RS_WAN_SLOTS;
    for (; p->slot < slot; p->slot++) {
        uint64_t bit = UINT64_C(1) << p->slot % 64, *word = &p->slots[p->slot % RS_WAN_SLOTS / 64];
        *word = p->strong ? *word | bit : *word & ~bit;
    }
    p->strong = sign > 0;
    p->pulses = true;
    set_rate(p, p->share_bps * (1 + part * sign));
}

/* How strong it was meant to be while that was sent, in the mean: from -1 to 1. */
static double meant(const rs_wan_path *p, rs_time from, rs_time to) {
    uint64_t first = (uint64_t)(from / SLOT), last = (uint64_t)(to / SLOT), strong = 0;
    first = last - first < RS_WAN_SLOTS ? first : last;
    for (uint64_t i = first; i <= last; i++)
        strong += i >= p->slot ? p->strong : p->slots[i % RS_WAN_SLOTS / 64] >> i % 64 & 1;
    return 2 * (double)strong / (double)(last - first + 1) - 1;
}

/* At a full place a stream is stretched by what all send, over what the place carries (Goyal et al., "Elasticity
 * Detection", SIGCOMM 2022, by which others = place x sent / came - sent). So of two pulses the one which is so much
 * stronger is stretched more by that, over the place: that tells what the place carries. It goes by whether a pulse was
 * meant to be strong (an instrument), for sent and stretch have the errors of one clock. */
static void learn_place(rs_wan_path *p, const rs_wan_sample *s, const window *w, double trips) {
    double came = w->came_bps / (1 - p->lost_usually), sent = w->sent_bps, stretch = came > 0 ? sent / came : 0;
    double keep = exp(-trips / REMEMBER), now = trips / 4;
    if (sent <= 0 || stretch > STRETCH_MOST || stretch < 1 / STRETCH_MOST)
        return;
    if (p->mean_sent == 0) {
        p->mean_sent = sent;
        p->mean_stretch = stretch;
    }
    if (s->now < p->others_until) {
        double sign = meant(p, w->from, s->stamp) * trips;
        p->pulsed = p->pulsed * keep + trips;
        p->more_sent = p->more_sent * keep + sign * (sent - p->mean_sent);
        p->more_stretch = p->more_stretch * keep + sign * (stretch - p->mean_stretch);
    }
    p->mean_sent += (sent - p->mean_sent) * trips / 2;
    p->mean_stretch += (stretch - p->mean_stretch) * trips / 2;
    double least = (double)p->best_bps, most = MOST_TIMES * least;
    if (p->pulsed > PULSES_LEAST && p->more_sent > PULSE_LEAST / 2 * p->pulsed * sent) {
        double place = p->more_stretch * most > p->more_sent ? p->more_sent / p->more_stretch : most;
        p->place_bps += (place - p->place_bps) * now;
    }
    p->place_bps = p->place_bps > least ? p->place_bps : least;
    p->others += (stretch - sent / p->place_bps - p->others) * now;
}

/* How long the place's queue was when it overflowed, beyond what chance loses, or was marked: who fills a short one by
 * itself leaves a TCP, which goes back at each such event, nothing. */
static void learn_room(rs_wan_path *p, const window *w) {
    double packets = w->passed_bps * (double)w->time / 8e9 / p->packet_bytes, usual = p->lost_usually;
    double chance = CHANCE * sqrt(usual * (1 - usual) / (packets > 1 ? packets : 1));
    bool full = w->lost > usual + LOSS_MUCH / 2 + chance || w->dropped || w->marked > 0;
    rs_time least = w->marked > 0 ? QUEUE_LEAST : ROOM_LEAST; /* one that marks is longer than it was then */
    rs_time here = p->queue > least ? p->queue : least;
    if (full)
        p->room += (here - p->room) / (p->room == 0 ? 1 : here < p->room ? 2 : 4); /* too short does less harm */
    else if (p->room && p->queue > p->room)
        p->room = p->queue;
}

/* RFC 9438, 4, but for W_max: that goes half the way to where a CUBIC is that meets events so often (its response
 * function, 5.1). So it comes near the window of those that meet the same events, where two CUBICs keep what they began
 * with for long. `more`: times that. */
static void cubic_event(rs_wan_cubic *c, const rs_wan_sample *s, double trip, double more) {
    double had = c->window, since = (double)(s->now - c->epoch) / 1e9;
    c->most = had;
    if (c->epoch) {
        double cubic = CUBIC_C / (1 - CUBIC_BETA) * since * since * since;
        double reno = since / trip * 3 / (1 + CUBIC_BETA), theirs = cubic > reno ? cubic : reno;
        theirs = theirs > MET_TIMES * had ? MET_TIMES * had : theirs < had / MET_TIMES ? had / MET_TIMES : theirs;
        double met = sqrt(more * theirs / had);
        c->most = had * (met > MET_LEAST ? met : MET_LEAST);
    }
    c->prior = had;
    c->window = (had < c->most ? had : c->most) * CUBIC_BETA;
    c->window = c->reno = c->window > 2 ? c->window : 2;
    c->epoch = s->now;
    c->heed_from = s->sent + 1;
    double gap = c->most - c->window;
    c->back = cbrt((gap > 0 ? gap : 0) / CUBIC_C);
}

/* `even`: never less than EVEN of what a CUBIC has at the end of such a time, if it has as much at each event: who
 * came later, or lost start-up to the first mark, has its part within one such time. */
static void cubic_grow(rs_wan_cubic *c, const rs_wan_sample *s, const window *w, double trip, bool even) {
    double since = (double)(s->now - c->epoch) / 1e9 + trip, cube = since - c->back;
    double to = CUBIC_C * cube * cube * cube + c->most, trips = (double)w->time / 1e9 / trip;
    double its = EVEN * CUBIC_C / (1 - CUBIC_BETA) * since * since * since;
    to = even && its > to ? its : to;
    c->reno += (c->reno < c->prior ? 3 * (1 - CUBIC_BETA) / (1 + CUBIC_BETA) : 1) * trips;
    to = to > c->reno ? to : c->reno;
    to = to < 1.5 * c->window ? to : 1.5 * c->window;
    if (to > c->window)
        c->window += (to - c->window) * (trips < 1 ? trips : 1);
}

static double latest_trip(const rs_wan_path *p, const rs_wan_sample *s) {
    rs_time latest = s->rtt > 0 ? s->rtt : p->rtt; /* the smoothed one is so late that the rate would swing */
    return (double)(latest > MS ? latest : MS) / 1e9;
}

/* What a CUBIC would have there that met the same losses and marks; alone it has had no more than was sent. */
static void run_floor(rs_wan_path *p, const rs_wan_sample *s, const window *w) {
    rs_wan_cubic *c = &p->floor;
    double trip = latest_trip(p, s), sent = (double)p->rate_bps * trip / 8 / p->packet_bytes;
    if (c->window == 0) {
        c->window = c->most = c->prior = c->reno = sent;
        c->epoch = s->now;
    }
    if ((w->lost > 0 || w->marked > 0) && w->first >= c->heed_from)
        cubic_event(c, s, trip, FLOOR_MORE);
    else if (!w->limited)
        cubic_grow(c, s, w, trip, p->cubic.epoch > 0); /* of losses not all are seen */
    if (p->share_bps == 0 && c->window > sent)
        c->window = sent;
    p->floor_bps = c->window * p->packet_bytes * 8 / trip;
}

static void give_way(rs_wan_path *p, const rs_wan_sample *s, double trip) {
    double renos = (1 + CUBIC_BETA) / 3 * p->cubic.prior * trip; /* s, in which it is back */
    double grown = renos < p->cubic.back ? renos : p->cubic.back;
    bool early = (double)(s->now - p->cubic.epoch) / 1e9 < EARLY * grown;
    p->ignored = early ? p->ignored + 1 : p->ignored > 1 ? p->ignored - 1 : 0;
    if (p->ignored >= IGNORED)
        p->ignored_until = s->now + IGNORED_TRIPS * p->rtt;
    cubic_event(&p->cubic, s, trip, 1);
    p->cubic_until = s->now + (rs_time)((CUBIC_GROWS * p->cubic.back + 4 * trip) * 1e9);
    p->velocity = VELOCITY_FIRST;
}

/* A switch that marks asks for what a CUBIC does (RFC 3168; RFC 9438, 4): one that came later and is marked as often as
 * ours would never get up to it, nor be seen, if ours gave way less. The rate is its window over the round trip. */
static void answer_marks(rs_wan_path *p, const rs_wan_sample *s, const window *w) {
    double trip = latest_trip(p, s);
    if (s->now >= p->cubic_until)
        p->cubic.window = (double)p->rate_bps * trip / 8 / p->packet_bytes; /* after start-up less is under way */
    if (w->marked > 0 && w->first >= p->cubic.heed_from) {
        give_way(p, s, trip);
    } else if (!w->limited) {
        cubic_grow(&p->cubic, s, w, trip, true);
    }
    set_rate(p, p->cubic.window * p->packet_bytes * 8 / trip);
}

/* Those of start-up's pulses: it was too fast, and goes to its share at once, for a next round trip of marks would
 * bring it there. */
static void answer_first_marks(rs_wan_path *p, const rs_wan_sample *s, const window *w) {
    rs_wan_cubic *c = &p->cubic;
    answer_marks(p, s, w);
    c->window = c->reno = SHARE / CUBIC_BETA * c->window;
    c->back = cbrt((c->most > c->window ? c->most - c->window : 0) / CUBIC_C);
    set_rate(p, c->window * p->packet_bytes * 8 / latest_trip(p, s));
}

/* Who heeds marks has given way by now. */
static void see_ignored(rs_wan_path *p, const rs_wan_sample *s, const window *w) {
    if (s->now >= p->join_until || s->now < p->join_until - JOIN_TRIPS / 2 * p->rtt || w->marked <= 0 ||
        w->first < p->cubic.heed_from)
        return;
    p->cubic.heed_from = s->sent + 1;
    if (++p->ignored >= IGNORED)
        p->ignored_until = s->now + IGNORED_TRIPS * p->rtt;
}

/* Whether marks are to be answered: not where others do not, for they (BBR) would take all. */
static bool heeds_marks(rs_wan_path *p, const rs_wan_sample *s, const window *w, bool queued, double trips) {
    bool answered = s->now < p->cubic_until;
    if (!answered || (double)(s->now - p->cubic.epoch) / 1e9 < p->cubic.back / 4) /* later it is full in any case */
        p->busy += ((queued ? 1 : 0) - p->busy) * trips / BUSY_TRIPS;
    p->shallow = p->busy < (p->shallow ? BUSY : BUSY_NO_MORE);
    if (s->now < p->ignored_until)
        return false;
    if (p->ignored >= IGNORED)
        p->ignored = 0;
    return w->marked > 0 || answered;
}

/* Alone it goes as `own` does, with a small queue; beside others it has SHARE of the place, whatever they do: a CUBIC
 * or BBR fills the rest. Where marks keep the queue short it goes as a CUBIC, and it never has less than one. They are
 * there as long as a queue stands that is not its own, and until a CUBIC would have grown back into its part. */
static void friendly(rs_wan_path *p, const rs_wan_sample *s, const window *w) {
    learn_room(p, w);
    run_floor(p, s, w);
    bool queued = p->queue > wanted_queue(p) / 4 || w->lost > p->lost_usually + LOSS_MUCH || w->marked > 0;
    double rtt = (double)p->rtt / 1e9, trips = (double)w->sent_time / (double)p->rtt;
    trips = trips < 1 ? trips : 1;
    bool full = w->lost > p->lost_usually + LOSS_MUCH; /* if it always was, it is taken for the path */
    if (queued && (full || w->queue > p->trip.least / STOOD_TRIP))
        learn_place(p, s, w, trips);
    if (queued && p->others > OTHERS_THERE) {
        if (p->share_bps == 0)
            p->share_bps = (double)p->rate_bps;
        p->others_until = s->now + (rs_time)((OTHERS_GROW * back_by(p) + 4 * rtt) * 1e9);
    }
    see_ignored(p, s, w);
    bool heeds = heeds_marks(p, s, w, queued, trips);
    if (heeds && p->shallow && s->now >= p->join_until) { /* pulses show nothing where no queue stands */
        answer_marks(p, s, w);
        p->share_bps = p->share_bps > 0 ? (double)p->rate_bps : 0;
        return;
    }
    if (s->now >= p->others_until) {
        if (p->share_bps > 0) /* what was known of the place was with them there */
            p->share_bps = p->place_bps = p->others = p->overload = p->pulsed = p->more_sent = p->more_stretch = 0;
        if (heeds)
            answer_marks(p, s, w);
        else
            follow(p, s, w);
        return;
    }
    p->cubic_until = 0;
    double over = w->came_bps > 0 ? w->sent_bps / w->came_bps : STRETCH_MOST;
    over = over < STRETCH_MOST ? over : STRETCH_MOST;
    p->overload += (over - 1 - p->overload) * trips / OVERLOAD_TRIPS;
    if (p->overload > OVERLOAD) { /* no TCP sends so much for so long: the place has narrowed */
        p->best_bps = p->best_recent = p->delivered_bps;
        p->place_bps = (double)p->delivered_bps;
        p->pulsed = p->more_sent = p->more_stretch = p->others = p->overload = 0;
    }
    /* While the place is not known, its own best is taken for it, which a share of that would lower without an end. */
    double share = SHARE * p->place_bps, floor = p->floor_bps;
    if (p->pulsed > PULSES_LEAST && p->more_stretch > 0) {
        double most = SHARE * p->more_sent / p->more_stretch;
        floor = floor < most ? floor : most;
    }
    share = share > floor ? share : floor;
    p->share_bps += (share - p->share_bps) * trips / 2;
    pulse(p, s->now);
}

/* What a receiver takes whatever its rate is thought to be, by times in which pauses of its host hardly count. Who was
 * sent twice as much in some of them takes no more. */
static void see_taken(rs_wan_path *p, const rs_wan_sample *s) {
    const rs_wan_sample *b = &p->took;
    rs_time least = p->trip.least > TAKEN_LEAST ? p->trip.least : TAKEN_LEAST, time = s->at - b->at;
    bool begins = b->next == 0 || s->next < b->next || s->received < b->received || time < 0 || s->stamp <= b->stamp;
    if (!begins && time < least)
        return;
    if (!begins) {
        int64_t took = (int64_t)bps(p, s->received - b->received, time);
        if (s->now >= p->took_end) {
            p->took_before = p->took_bps;
            p->took_bps = 0;
            p->took_end = s->now + SPELL;
        }
        p->took_bps = took > p->took_bps ? took : p->took_bps;
        bool half = bps(p, s->next - b->next, s->stamp - b->stamp) > 2 * (double)took;
        p->took_half = half ? p->took_half + 1 : 0;
        if (p->took_half >= TAKEN_HALF)
            p->took_bps = p->took_before = took;
    }
    p->took = *s;
}

bool rs_wan_path_is_beside(const rs_wan_path *p, rs_time now) {
    return p->law == RS_WAN_FRIENDLY && (now < p->others_until || now < p->cubic_until);
}

bool rs_wan_path_took_half(const rs_wan_path *slow, const rs_wan_path *other) {
    int64_t its = slow->took_bps > slow->took_before ? slow->took_bps : slow->took_before;
    int64_t most = other->took_bps > other->took_before ? other->took_bps : other->took_before;
    return most / 2 > its;
}

void rs_wan_path_offered(rs_wan_path *p, const rs_wan_sample *s) {
    window w = {0};
    see_taken(p, s);
    p->offered = p->law == RS_WAN_FRIENDLY && s->now >= p->others_until;
    if (!p->offered)
        p->based = false;
    else if (take_window(p, s, &w) && p->there.count > 0) /* else the queue is between two clocks */
        learn_line(&p->line, &w);
}

bool rs_wan_path_heard(rs_wan_path *p, const rs_wan_sample *s) {
    window w = {0};
    if (p->offered) {
        p->offered = false;
        p->judge_from = s->sent + 1; /* as in start_up */
        join(p, s);
    }
    take_rtt(p, s);
    see_taken(p, s);
    if (!take_window(p, s, &w) || p->law == RS_WAN_FIXED) {
        if (p->pulses)
            pulse(p, s->now);
        return p->pulses;
    }
    p->pulses = false;
    if (!p->found) {
        start_up(p, s, &w);
        if (p->found && p->law == RS_WAN_FRIENDLY) {
            join(p, s);
            if (w.marked > 0 && s->now >= p->join_until)
                answer_first_marks(p, s, &w);
        }
    } else if (p->law == RS_WAN_FRIENDLY)
        friendly(p, s, &w);
    else
        follow(p, s, &w);
    if (p->found && (p->law == RS_WAN_OWN || s->now >= p->others_until))
        look_below(p, s);
    return true;
}
