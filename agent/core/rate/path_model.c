#include "core/rate/path_model.h"

#include "core/base/wire.h"
#include "core/rate/pacer.h"

/* Where no other source is named: test_pace. */
#define MS INT64_C(1000000)
/* BBR (draft-ietf-ccwg-bbr): start-up grows by 2/ln 2 a round trip, which doubles what is delivered, and is over when
 * three of them brought less than a quarter more; a queue drains at 3/4 of the rate. */
#define GROWTH 2.885
#define FULL_GROWTH 1.25
#define FULL_ROUNDS 3
#define HELD_ROUNDS 4 /* so many in which the sender was held back count as one (rostrum sim run broadcast) */
#define DRAIN_LEAST 0.75
#define QUEUE_RTTS \
    6 /* a queue that was not there once in so many round trips, all of the last RS_HOST_PAUSE, does not stand */
#define QUEUE_LEAST RS_PACER_QUANTUM           /* the sender's own batches make one so long */
#define SMALL_BUFFER_PACKETS (RS_LOSS_RUN / 2) /* less cannot be told from the batches of a host */
#define SAMPLE \
    (2 * MS) /* a sample of the rate takes so long: two reports (REPORTS_STEADY), each late by a part of it */
#define SAMPLE_PACKETS 8         /* and so many packets of a slow path, each late by a part of its time (test_trace) */
#define SAMPLE_STARTING (MS / 5) /* and in start-up one report (REPORTS_STARTING) */
#define IDLE_PART 16             /* of a sample's time: then the sender was the slow one */
#define FADES 10                 /* samples over which what came from behind a queue is averaged (test_trace) */
#define GROWS 16                 /* after a sample without more losses than usual the queue held may be 1/16 longer */

void rs_path_model_start(rs_path_model *r, uint32_t packet_bytes, int64_t first_bps) {
    *r = (rs_path_model){.packet_bytes = packet_bytes, .room = UINT32_MAX, .wanted_bps = first_bps};
}

void rs_path_model_again(rs_path_model *r) {
    r->startup_done = false;
    r->full_bps = r->round_best_bps = 0;
    r->flat = 0;
    r->round_pos = 0;
    r->queued_time = 0;
}

int64_t rs_path_model_rate(const rs_path_model *r) {
    return r->rate_bps;
}

/* Least of the latest round trips: of QUEUE_RTTS of the last RS_HOST_PAUSE, but two at least; of two in start-up. */
static rs_time standing(const rs_path_model *r, rs_time now) {
    uint32_t most = r->rtt_count < QUEUE_RTTS ? r->rtt_count : QUEUE_RTTS;
    rs_time least = 0;
    for (uint32_t i = 1; i <= most; i++) {
        uint32_t at = (r->rtt_count - i) % RS_PATH_RTTS;
        if (i > 2 && (!r->startup_done || now - r->rtts_at[at] > RS_HOST_PAUSE))
            break;
        if (i == 1 || r->rtts[at] < least)
            least = r->rtts[at];
    }
    return least;
}

/* What is under way cannot queue for much longer than it takes to leave at the best pace seen: a RTT beyond that is
 * a busy host's, or jitter. So a rate that has become low is not lowered by them any further. */
rs_time rs_path_model_queue(const rs_path_model *r, rs_time now) {
    rs_time queue = r->rtt_count ? standing(r, now) - r->min_rtt : 0;
    if (!r->startup_done || r->full_bps == 0)
        return queue;
    double most = 1.25 * (double)r->under_way * r->packet_bytes * 8e9 / (double)r->full_bps;
    return most < (double)queue ? (rs_time)most : queue;
}

/* The queue wanted where there is room for it. */
static rs_time usual(const rs_path_model *r) {
    int64_t rate = rs_path_model_rate(r);
    rs_time queue = rate ? (rs_time)(RS_QUEUE_BITS * 1e9 / (double)rate) : QUEUE_LEAST;
    queue = queue < QUEUE_LEAST ? QUEUE_LEAST : queue > RS_HOST_PAUSE ? RS_HOST_PAUSE : queue;
    return queue + (r->min_rtt + r->reports_every) / 2;
}

static rs_time target(const rs_path_model *r) {
    rs_time wanted = usual(r);
    int64_t rate = rs_path_model_rate(r);
    uint64_t bits = r->room / 4 * r->packet_bytes * 8;
    rs_time fits = rate ? (rs_time)((double)bits * 1e9 / (double)rate) : wanted;
    if (r->small_buffer && r->small_buffer < wanted)
        wanted = r->small_buffer;
    return wanted < fits ? wanted : fits > 1 ? fits : 1;
}

bool rs_path_model_has_queue(const rs_path_model *r, rs_time now) {
    return rs_path_model_queue(r, now) * 4 > target(r);
}

static int64_t bps(const rs_path_model *r, uint64_t packets, rs_time time) {
    double rate = (double)packets * r->packet_bytes * 8e9 / (double)time;
    return (int64_t)(rate < (double)RS_RATE_BPS_MAX ? rate : (double)RS_RATE_BPS_MAX);
}

/* Behind a queue the pace at which packets come out is the path's own, in the mean; what it loses whatever is sent
 * (trial) has taken its time on it too. Losses that are not known as usual yet make the path seem slower by so much:
 * the queue gets shorter, and where none stands any more nothing is learned from them. So random losses cost a part of
 * the queue at first, not of the rate, and a queue that overflows shows the true rate at once. Without a queue the path
 * may take more than it was sent: by a sender that is busy, or held back by another receiver. */
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
    double sent = (double)(n->pos - r->base.pos + repairs), moved = (double)came / (1 - r->trial.usual);
    double kept = r->queued_time > 0 ? 1 - 1.0 / FADES : 0;
    r->queued_packets = r->queued_packets * kept + (moved < sent ? moved : sent);
    r->queued_time = r->queued_time * kept + (double)(since > 0 ? since : time);
    r->rate_bps = (int64_t)(r->queued_packets * r->packet_bytes * 8e9 / r->queued_time);
    r->full_bps = r->rate_bps > r->full_bps ? r->rate_bps : r->full_bps;
}

/* Start-up: each round trip shows whether more came out of it than in those before. One in which the sender mostly
 * stood still, held back by others' reports, shows little; but a sender that is always late must know when it has found
 * all that it can send. */
static void start_up(rs_path_model *r, const rs_path_model_report *n, rs_time time) {
    rs_time queue = rs_path_model_queue(r, n->now);
    uint64_t repairs = n->repairs - r->base.repairs;
    int64_t rate = bps(r, n->pos - r->base.pos + repairs, time);
    int64_t got = bps(r, n->received - r->base.received + repairs, time);
    got = got < rate ? got : rate;
    int64_t grown = (int64_t)((double)(rs_path_model_has_queue(r, n->now) ? got : rate) * GROWTH);
    r->wanted_bps = grown > r->wanted_bps ? grown : r->wanted_bps;
    r->round_best_bps = got > r->round_best_bps ? got : r->round_best_bps;
    r->startup_done = queue > target(r);
    if (n->pos >= r->round_pos) {
        bool grew = (double)r->round_best_bps >= (double)r->full_bps * FULL_GROWTH;
        bool held = n->idle - r->base.idle > time / 2;
        r->flat = grew ? 0 : r->flat + (held ? 1 : HELD_ROUNDS);
        r->full_bps = r->round_best_bps > r->full_bps ? r->round_best_bps : r->full_bps;
        r->round_best_bps = 0;
        r->round_pos = n->pos + n->under_way + 1;
        r->startup_done |= r->flat >= FULL_ROUNDS * HELD_ROUNDS;
    }
    if (!r->startup_done)
        return;
    /* What was lost of what went too fast did not come out of it, and is not held against it later. */
    r->round_pos = n->pos + n->under_way + 1;
    r->rate_bps = r->full_bps > got ? r->full_bps : got;
}

/* So much less was sent than came out that most of the queue must be gone, and the RTT is as long as before: it is a
 * longer way, or a busy receiver, and no queue. */
static void verify_queue(rs_path_model *r, const rs_path_model_report *n, rs_time stands) {
    rs_time queue = stands - r->min_rtt;
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
    double queued = (double)(r->stood - r->min_rtt) * (double)rs_path_model_rate(r) / 8e9 / r->packet_bytes;
    if (drained < queued / 4 * 3)
        r->drained_at = 0;
    else if (r->drained_at == 0)
        r->drained_at = n->now;
    if (r->drained_at == 0 || n->rtt == 0 || n->now - n->rtt < r->drained_at)
        return; /* nothing sent since then was reported yet */
    if (queue > (r->stood - r->min_rtt) / 4 * 3)
        r->min_rtt = stands;
    r->stood = 0;
}

/* Losses while a queue stands may come from a queue that is full: a shorter one must lessen them. They come in bursts
 * in any case, so a sample has as many packets as it takes to be sure. */
static void verify_buffer(rs_path_model *r, const rs_path_model_report *n, uint64_t passed, uint64_t came) {
    r->passed += passed;
    r->missed += came < passed ? passed - came : 0;
    bool queued = rs_path_model_has_queue(r, n->now);
    rs_trial_verdict verdict = rs_loss_trial_judge(&r->trial, r->passed, r->missed, queued);
    if (verdict == RS_TRIAL_MORE)
        return;
    r->passed = r->missed = 0;
    if (verdict == RS_TRIAL_BEGINS) {
        r->small_buffer = rs_path_model_queue(r, n->now) / 2;
        rs_time least = SMALL_BUFFER_PACKETS * rs_wire_time(r->packet_bytes, r->rate_bps);
        r->small_buffer = r->small_buffer > least ? r->small_buffer : least;
        r->round_pos = n->pos + n->under_way + 1;
    } else if (verdict == RS_TRIAL_FUTILE) {
        r->small_buffer = 0;
    } else if (verdict == RS_TRIAL_FINE) {
        r->small_buffer += r->small_buffer / GROWS; /* it may hold more by now */
        r->small_buffer = r->small_buffer < usual(r) ? r->small_buffer : 0;
    }
}

/* A queue of more or less than is wanted goes away within twice the time in which this sender can see that: faster, and
 * it would swing. */
static void follow(rs_path_model *r, const rs_path_model_report *n) {
    rs_time wanted = target(r);
    verify_queue(r, n, r->min_rtt + rs_path_model_queue(r, n->now));
    rs_time queue = rs_path_model_queue(r, n->now), within = 2 * (wanted + r->min_rtt + r->reports_every);
    double gain = 1 + (double)(wanted - queue) / (double)within;
    r->wanted_bps = (int64_t)((double)rs_path_model_rate(r) * (gain > DRAIN_LEAST ? gain : DRAIN_LEAST));
}

static void take_rtt(rs_path_model *r, const rs_path_model_report *n) {
    if (n->rtt <= 0)
        return;
    r->rtts_at[r->rtt_count % RS_PATH_RTTS] = n->now;
    r->rtts[r->rtt_count++ % RS_PATH_RTTS] = n->rtt;
    if (r->min_rtt == 0 || n->rtt < r->min_rtt)
        r->min_rtt = n->rtt;
}

/* The time one more sample took: no shorter than it took to send it, or a receiver that had stood still and caught up
 * would seem fast. 0: too short yet. */
static rs_time sample_time(const rs_path_model *r, const rs_path_model_report *n) {
    rs_time came = n->at - r->base.at, sent = n->sent_at - r->base.sent_at;
    rs_time least = r->startup_done ? SAMPLE : SAMPLE_STARTING;
    if (r->startup_done && n->pos - r->base.pos < SAMPLE_PACKETS)
        return 0;
    if (n->sent_at == RS_NEVER || r->base.sent_at == RS_NEVER)
        sent = 0;
    rs_time time = came > sent ? came : sent;
    return time >= least ? time : 0;
}

bool rs_path_model_heard(rs_path_model *r, const rs_path_model_report *n) {
    take_rtt(r, n);
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
        if (!r->startup_done)
            start_up(r, n, time);
        else
            take_rate(r, n, time);
        if (r->startup_done && r->base.pos >= r->round_pos)
            verify_buffer(r, n, passed, came);
        r->base = *n;
    }
    if (r->startup_done)
        follow(r, n);
    return time > 0 || r->startup_done;
}
