#include "core/rate/path_model.h"

#include "core/base/wire.h"

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define SAMPLE_LEAST (2 * MS)      /* time one sample of the rate is taken over */
#define SAMPLE_STARTING (200 * US) /* the same in start-up */
#define TRIPS 6                    /* a queue that was not there once in so many does not stand */
#define TRIPS_FOR (6 * MS)
/* The queue wanted, beside half the time that a change takes to show: long enough to keep the place busy while a host
 * does something else for a moment, short enough to fit anywhere. */
#define TARGET_BITS (192e3 * 8)
#define TARGET_LEAST (1 * MS)
#define TARGET_MOST (6 * MS)
#define LOSS_BURST 16 /* packets that may well be lost together without congestion */
#define LOSS_SAMPLE_TRIED 2048
#define LOSS_SAMPLE_MOST 8192
#define LOSS_SAMPLE 512 /* packets */
#define LOSS_MUCH 0.02
#define IDLE_PART 16 /* of a sample's time: then the sender was the slow one */
#define FADING 0.9   /* of what came behind a queue, each sample */
#define SHALLOW_LEAST (200 * US)
#define GROWTH_NUM 5 /* start-up: times 5/2 each round trip */
#define GROWTH_DEN 2
#define FLAT_ROUNDS 2       /* start-up: so many without growth end it */
#define ONE 256             /* gains are in 1/256 */
#define GAIN_STEP (ONE / 4) /* for a queue one target away from the target */
#define GAIN_LEAST (ONE / 4 * 3)

void rs_path_model_start(rs_path_model *r, uint32_t packet_bytes, int64_t first_bps) {
    *r = (rs_path_model){.packet_bytes = packet_bytes, .room = UINT32_MAX, .wanted_bps = first_bps};
}

void rs_path_model_again(rs_path_model *r) {
    r->found = false;
    r->full_bps = r->round_best_bps = 0;
    r->flat = 0;
    r->round_pos = 0;
    r->queued_time = 0;
}

int64_t rs_path_model_rate(const rs_path_model *r) {
    return r->rate_bps;
}

/* The least of the latest trips: of TRIPS of the last TRIPS_FOR, but two at least; of two in start-up. */
static rs_time standing(const rs_path_model *r, rs_time now) {
    uint32_t most = r->trip_count < TRIPS ? r->trip_count : TRIPS;
    rs_time least = 0;
    for (uint32_t i = 1; i <= most; i++) {
        uint32_t at = (r->trip_count - i) % RS_PATH_TRIPS;
        if (i > 2 && (!r->found || now - r->trips_at[at] > TRIPS_FOR))
            break;
        if (i == 1 || r->trips[at] < least)
            least = r->trips[at];
    }
    return least;
}

/* What is under way cannot queue for much longer than it takes to leave at the best pace seen: a trip that is longer is
 * a busy host's, or jitter. So a rate that has become low is not lowered by them any further. */
rs_time rs_path_model_queue(const rs_path_model *r, rs_time now) {
    rs_time queue = r->trip_count ? standing(r, now) - r->least : 0;
    if (!r->found || r->full_bps == 0)
        return queue;
    double most = 1.25 * (double)r->under_way * r->packet_bytes * 8e9 / (double)r->full_bps;
    return most < (double)queue ? (rs_time)most : queue;
}

/* The queue wanted where there is room for it. */
static rs_time usual(const rs_path_model *r) {
    int64_t rate = rs_path_model_rate(r);
    rs_time queue = rate ? (rs_time)(TARGET_BITS * 1e9 / (double)rate) : TARGET_LEAST;
    queue = queue < TARGET_LEAST ? TARGET_LEAST : queue > TARGET_MOST ? TARGET_MOST : queue;
    return queue + (r->least + r->reports_every) / 2;
}

static rs_time target(const rs_path_model *r) {
    rs_time wanted = usual(r);
    int64_t rate = rs_path_model_rate(r);
    uint64_t bits = r->room / 4 * r->packet_bytes * 8;
    rs_time fits = rate ? (rs_time)((double)bits * 1e9 / (double)rate) : wanted;
    if (r->shallow && r->shallow < wanted)
        wanted = r->shallow;
    return wanted < fits ? wanted : fits > 1 ? fits : 1;
}

bool rs_path_model_has_queue(const rs_path_model *r, rs_time now) {
    return rs_path_model_queue(r, now) * 4 > target(r);
}

static int64_t bps(const rs_path_model *r, uint64_t packets, rs_time time) {
    double rate = (double)packets * r->packet_bytes * 8e9 / (double)time;
    return (int64_t)(rate < (double)RS_RATE_BPS_MAX ? rate : (double)RS_RATE_BPS_MAX);
}

/* Behind a queue the pace at which the receiver moves on is the path's own, in the mean. What did not come counts too:
 * random losses are no slower path, and to take them for one, sample after sample, would go down to nothing; where a
 * queue overflows they make this too fast, but then the queue is long and lessens it (follow), or too short to be
 * seen, and that is found out from the losses (doubt_room). Without a queue the path may take more than it was sent: by
 * a sender that is busy, or held back by another receiver. */
static void take_rate(rs_path_model *r, const rs_path_model_report *n, rs_time time) {
    uint64_t repairs = n->repairs - r->base.repairs, came = n->received - r->base.received + repairs;
    rs_time since = n->at - r->base.at;
    bool idle = n->idle - r->base.idle > time / IDLE_PART;
    if (!rs_path_model_has_queue(r, n->now) || idle) {
        int64_t rate = bps(r, idle ? came : n->pos - r->base.pos + repairs, time);
        r->rate_bps = rate > r->rate_bps ? rate : r->rate_bps;
        r->queued_time = 0;
        return;
    }
    r->queued_packets = r->queued_time > 0 ? r->queued_packets * FADING : 0;
    r->queued_packets += (double)(n->pos - r->base.pos + repairs);
    r->queued_time = r->queued_time * FADING + (double)(since > 0 ? since : time);
    r->rate_bps = (int64_t)(r->queued_packets * r->packet_bytes * 8e9 / r->queued_time);
    r->full_bps = r->rate_bps > r->full_bps ? r->rate_bps : r->full_bps;
}

/* Start-up: each round trip shows whether more came out of it than in those before. */
static void start_up(rs_path_model *r, const rs_path_model_report *n, rs_time time) {
    rs_time queue = rs_path_model_queue(r, n->now);
    uint64_t repairs = n->repairs - r->base.repairs;
    int64_t rate = bps(r, n->pos - r->base.pos + repairs, time);
    int64_t got = bps(r, n->received - r->base.received + repairs, time);
    got = got < rate ? got : rate;
    int64_t grown = (rs_path_model_has_queue(r, n->now) ? got : rate) / GROWTH_DEN * GROWTH_NUM;
    r->wanted_bps = grown > r->wanted_bps ? grown : r->wanted_bps;
    r->round_best_bps = got > r->round_best_bps ? got : r->round_best_bps;
    r->found = queue > target(r);
    if (n->pos >= r->round_pos) {
        bool grew = r->round_best_bps >= r->full_bps / 4 * 5;
        r->flat = grew ? 0 : r->flat + 1;
        r->full_bps = r->round_best_bps > r->full_bps ? r->round_best_bps : r->full_bps;
        r->round_best_bps = 0;
        r->round_pos = n->pos + n->under_way + 1;
        r->found |= r->flat >= FLAT_ROUNDS;
    }
    if (!r->found)
        return;
    /* What was lost of what went too fast did not come out of it, and is not held against it later. */
    r->round_pos = n->pos + n->under_way + 1;
    r->rate_bps = r->full_bps > got ? r->full_bps : got;
}

/* So much less was sent than came out that most of the queue must be gone, and the trip is as long as before: it is a
 * longer way, or a busy receiver, and no queue. */
static void doubt_queue(rs_path_model *r, const rs_path_model_report *n, rs_time stands) {
    rs_time queue = stands - r->least;
    uint64_t sent = n->pos + n->under_way;
    if (queue <= usual(r)) {
        r->stood = 0;
        return;
    }
    if (r->stood == 0 || sent - r->stood_sent > n->received - r->stood_received) {
        r->stood = stands;
        r->stood_sent = sent;
        r->stood_received = n->received;
        r->drained_at = 0;
        return;
    }
    r->stood = stands > r->stood ? stands : r->stood;
    double drained = (double)(n->received - r->stood_received) - (double)(sent - r->stood_sent);
    double queued = (double)(r->stood - r->least) * (double)rs_path_model_rate(r) / 8e9 / r->packet_bytes;
    if (drained < queued / 4 * 3)
        r->drained_at = 0;
    else if (r->drained_at == 0)
        r->drained_at = n->now;
    if (r->drained_at == 0 || n->trip == 0 || n->now - n->trip < r->drained_at)
        return; /* nothing sent since then was reported yet */
    if (queue > (r->stood - r->least) / 4 * 3)
        r->least = stands;
    r->stood = 0;
}

/* Losses while a queue stands may come from a queue that is full: a shorter one must lessen them. They come in bursts
 * in any case, so a sample has as many packets as it takes to be sure. */
static void doubt_room(rs_path_model *r, rs_time now, uint64_t passed, uint64_t came) {
    r->passed += passed;
    r->missed += came < passed ? passed - came : 0;
    if (r->passed < LOSS_SAMPLE)
        return;
    double share = (double)r->missed / (double)r->passed;
    double above = share - r->missed_always * 1.5 - LOSS_MUCH;
    bool tried = r->missed_before > 0, settling = r->settling;
    bool sure = above > 0 && above * above > 4 * LOSS_BURST * share / (double)r->passed; /* two deviations */
    bool much = sure && rs_path_model_has_queue(r, now);
    bool whole = r->passed >= (tried ? LOSS_SAMPLE_TRIED : LOSS_SAMPLE_MOST);
    if (!whole && (tried || !much))
        return;
    r->passed = r->missed = 0;
    r->settling = false;
    if (settling)
        return;
    if (tried && share > r->missed_before * 0.6) {
        r->missed_always = share < 0.5 ? share : 0.5;
        r->missed_before = 0;
        r->shallow = 0;
    } else if (much) {
        r->missed_before = share;
        r->settling = true;
        r->shallow = rs_path_model_queue(r, now) / 2;
        r->shallow = r->shallow > SHALLOW_LEAST ? r->shallow : SHALLOW_LEAST;
    } else {
        r->missed_before = 0;
        r->missed_always -= r->missed_always / 16;
        r->shallow += r->shallow / 16; /* it may hold more by now */
        if (r->shallow >= usual(r))
            r->shallow = 0;
    }
}

static void follow(rs_path_model *r, const rs_path_model_report *n) {
    rs_time queue = rs_path_model_queue(r, n->now), wanted = target(r);
    int64_t gain;
    doubt_queue(r, n, r->least + queue);
    queue = rs_path_model_queue(r, n->now);
    gain = ONE + (int64_t)((double)GAIN_STEP * (double)(wanted - queue) / (double)wanted);
    gain = gain < GAIN_LEAST ? GAIN_LEAST : gain;
    r->wanted_bps = rs_path_model_rate(r) / ONE * gain;
}

static void take_trip(rs_path_model *r, const rs_path_model_report *n) {
    if (n->trip <= 0)
        return;
    r->trips_at[r->trip_count % RS_PATH_TRIPS] = n->now;
    r->trips[r->trip_count++ % RS_PATH_TRIPS] = n->trip;
    if (r->least == 0 || n->trip < r->least)
        r->least = n->trip;
}

/* The time one more sample took: no shorter than it took to send it, or a receiver that had stood still and caught up
 * would seem fast. 0: too short yet. */
static rs_time sample_time(const rs_path_model *r, const rs_path_model_report *n) {
    rs_time came = n->at - r->base.at, sent = n->sent_at - r->base.sent_at;
    rs_time least = r->found ? SAMPLE_LEAST : SAMPLE_STARTING;
    if (n->sent_at == RS_NEVER || r->base.sent_at == RS_NEVER)
        sent = 0;
    rs_time time = came > sent ? came : sent;
    return time >= least ? time : 0;
}

bool rs_path_model_heard(rs_path_model *r, const rs_path_model_report *n) {
    take_trip(r, n);
    r->under_way = n->under_way;
    if (!r->based || n->pos < r->base.pos || n->at < r->base.at || n->received < r->base.received ||
        n->repairs < r->base.repairs) {
        r->based = true;
        r->base = *n;
        return false;
    }
    rs_time time = sample_time(r, n);
    if (time > 0) {
        uint64_t passed = n->pos - r->base.pos, came = n->received - r->base.received;
        if (!r->found)
            start_up(r, n, time);
        else
            take_rate(r, n, time);
        if (r->found && r->base.pos >= r->round_pos)
            doubt_room(r, n->now, passed, came);
        r->base = *n;
    }
    if (r->found)
        follow(r, n);
    return time > 0 || r->found;
}
