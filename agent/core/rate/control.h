/* Rate control on the data channel: takes samples (a receiver's report, with what the sender knew when it came) and
 * returns verdicts. It knows no node and no transfer, and can be run alone against a trace
 * (tests/agent/core/rate/test_trace.c). Of several receivers the caller sends as the slowest of those that count can
 * take: the least `model.wanted_bps` goes into rs_rate.model_bps. */
#ifndef RS_CORE_RATE_CONTROL_H
#define RS_CORE_RATE_CONTROL_H

#include "core/rate/path_model.h"
#include "core/rate/rate.h"
#include "core/rate/sent_times.h"

/* What one receiver's reports have shown. All zero at first, and again when a session begins. */
typedef struct {
    rs_path_model model; /* The path to it. rs_path_model_start before the first sample. */
    rs_loss_watch watch; /* What its losses are taken for. */
    uint64_t rtt_pos;    /* The newest position that a round trip was taken from. */
    /* The least time from a packet's being seen to the arrival of the report on it, by two clocks that differ by
     * anything: in this window of BACK_WINDOW, which ends then, and in the one before. */
    rs_time back_least, back_before, back_until;
    /* The report that losses are counted from; `based`: there is one. */
    bool based;
    uint64_t base_pos, base_received, base_dropped; /* The report that the sample began with. */
    /* The present sample of losses: packets it should have had, those that did not come, and whether its socket dropped
     * any of them. */
    uint64_t expected, lost;
    bool dropped; /* The receiver's own socket dropped packets. */
} rs_receiver_rate;

/* A report, and what the sender knew when it came. */
typedef struct {
    rs_time now; /* The sender's clock. */
    /* Of the receiver. */
    uint64_t pos;      /* The newest position of the data channel that it has seen. */
    rs_time at;        /* Its clock when that came. */
    rs_time waited;    /* So long that packet waited in its host. */
    uint64_t received; /* Packets it has counted, no more than were sent; */
    uint64_t repairs;  /* repair packets, likewise; */
    uint64_t dropped;  /* and those that its socket dropped. */
    /* Of the sender. */
    uint64_t sent;         /* Positions sent. */
    rs_time idle;          /* Time so far in which it sent less than it might (rs_pacer.lost). */
    rs_time late;          /* So much later than it should have it looks at this report. */
    rs_time reports_every; /* Time between two packets that ask for a report (rs_sent_times.every). */
    uint64_t room;         /* Packets that may wait at the receiver before its socket drops any. */
    bool rate_is_known;    /* The path carries nobody else and its rate was told: only losses count. */
} rs_rate_sample;

/* The verdict of the path model. True: it is known better than before, `model.wanted_bps` may have changed. */
bool rs_control_path(rs_rate *rate, rs_receiver_rate *r, const rs_sent_times *sent, const rs_rate_sample *sample);
/* The verdict of losses, after that of the path. With RS_LOSS_CUT `rate` was changed: r->expected, r->lost and
 * r->dropped tell why. */
rs_loss_verdict rs_control_losses(rs_rate *rate, rs_receiver_rate *r, const rs_rate_sample *sample);
/* The sample of losses was dealt with: the next one begins. */
void rs_control_losses_done(rs_receiver_rate *r);

#endif
