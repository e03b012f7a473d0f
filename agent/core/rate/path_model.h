/* The path of the data channel to one receiver, as its reports show it: how fast packets come out of it, how long they
 * are on it, and so how fast to send if there were no other receiver.
 *
 * A model, not a reaction to loss, after BBR (Cardwell et al., ACM Queue 2016): the rate at which the receiver moves on
 * is the path's, once it no longer grows with ours. Loss shortens the queue, where a trial (trial.h) shows that fewer
 * are lost so; the rate is rate.h's. Unlike BBR, which probes now and then, the rate is held where a small queue stands
 * in front of the narrowest place, as long as a target (as Vegas and Copa do): the place is never idle, a rate that
 * rises is noticed at once, and an estimate that is a little wrong corrects itself by the queue it makes or drains.
 * Ours. */
#ifndef RS_CORE_PATH_MODEL_H
#define RS_CORE_PATH_MODEL_H

#include "core/rate/trial.h"

#define RS_PATH_RTTS 8 /* test_pace */
/* The queue wanted, beside half the time that a change takes to show: some 20 frames of 9 KB, which bridges a pause of
 * 1.5 ms at 1 Gbit/s and fits into half of what the smallest top-of-rack buffers give a port (384 KB; test_pace). */
#define RS_QUEUE_BITS (192e3 * 8)
/* A host does something else for so long now and then (seen on a virtual machine whose two cores are busy): no queue
 * has to be longer to bridge that, and what waited so long in a host says nothing of the path. */
#define RS_HOST_PAUSE INT64_C(6000000) /* test_pauses */

/* What one report says. */
typedef struct {
    rs_time now;        /* the sender's clock */
    rs_time at;         /* receiver's clock, when the newest packet came */
    uint64_t pos;       /* the newest position it saw */
    rs_time sent_at;    /* when that was sent; RS_NEVER = forgotten */
    uint64_t received;  /* packets it has counted */
    uint64_t repairs;   /* and repair packets, which take their share of the path but have no position */
    uint64_t under_way; /* packets sent after that position */
    rs_time idle;       /* time so far in which the sender sent less than it might: it was late, or held back */
    rs_time rtt;        /* from a packet being sent to the report of it; 0 = no such packet */
} rs_path_model_report;

typedef struct {
    uint32_t packet_bytes; /* on the wire */
    uint64_t room;         /* packets that may wait at the receiver */
    rs_time reports_every;
    int64_t wanted_bps; /* what it can be sent, by all that is known; 0 = not started */
    bool startup_done;  /* start-up is over */
    /* what came out of it */
    bool based;
    rs_path_model_report base; /* the report that the sample began with */
    int64_t rate_bps; /* the most while no queue stood: it may have had less to carry later; else its own rate */
    double queued_packets,
        queued_time; /* while one stands: how much came out of it in which time, faded; 0 = none stands */
    /* how long packets are on it */
    rs_time rtts[RS_PATH_RTTS], rtts_at[RS_PATH_RTTS];
    uint32_t rtt_count; /* ever taken; the newest RS_PATH_RTTS are kept */
    rs_time min_rtt;    /* round trip without a queue; 0 = unknown */
    uint64_t under_way;
    /* a place with room for less than the queue wanted loses packets while the queue stands at that room */
    rs_time small_buffer;    /* the queue it holds, as far as losses show; 0 = what is wanted */
    uint64_t passed, missed; /* packets of the present sample of losses, and those that did not come */
    rs_loss_trial trial;     /* whether a shorter queue lessens them */
    /* a queue that does not go away when there is less under way is none */
    rs_time stood; /* 0 = no queue is being drained */
    uint64_t stood_sent, stood_received;
    rs_time drained_at; /* 0 = not yet */
    /* start-up */
    uint64_t round_pos;
    int64_t round_best_bps, full_bps; /* full_bps: later on the best rate seen */
    uint32_t flat;
} rs_path_model;

void rs_path_model_start(rs_path_model *model, uint32_t packet_bytes, int64_t first_bps);
/* Takes a report in. True if the path is known better than before: `wanted_bps` may have changed. */
bool rs_path_model_heard(rs_path_model *model, const rs_path_model_report *report);
/* The path may be wider than it could show so far: start-up starts over, from what is known. */
void rs_path_model_again(rs_path_model *model);
/* The rate that came out of it lately; 0 = unknown. */
int64_t rs_path_model_rate(const rs_path_model *model);
/* The queue that stands on it, as time. */
rs_time rs_path_model_queue(const rs_path_model *model, rs_time now);
/* That queue is long enough to tell how the path is doing: losses need not be asked. */
bool rs_path_model_has_queue(const rs_path_model *model, rs_time now);

#endif
