/* How fast to send to one receiver over a wide area: takes samples (what a status says, with what the sender knew when
 * it came), keeps a rate. It knows no node and no transfer. docs/wan.md, "Rate", has the law and where it comes from.
 *
 * Ours beside Sec. IV-A of the paper, which asks for rate-based control with a prediction from tree shape and group
 * size. */
#ifndef RS_CORE_WAN_CONGESTION_H
#define RS_CORE_WAN_CONGESTION_H

#include "core/wan/options.h"

/* Of one status. */
typedef struct {
    rs_time now;   /* the sender's clock */
    rs_time rtt;   /* from a packet being sent to the report of it, less what it waited at the receiver; 0: unknown */
    rs_time at;    /* the receiver's clock when its newest packet came */
    rs_time stamp; /* the sender's clock when that was sent */
    uint64_t next; /* fragments it has seen go by, */
    uint64_t received; /* of these, those that came, */
    uint64_t repairs, marked, dropped;
    uint64_t sent;      /* fragments sent by now */
    double part;        /* of what the sender sends this receiver gets that part: repairs to others are not for it */
    uint64_t pulse_end; /* in start-up: fragments sent when the newest pulse was over; 0: it goes on */
    bool limited;       /* the sender has sent less than the rate allows */
    int64_t sent_bps;   /* at which it has sent */
} rs_wan_sample;

#define RS_WAN_DELAYS 4                     /* docs/wan.md */
#define RS_WAN_SLOTS 512                    /* of 4 ms: a round trip of two seconds (a bound) */
#define RS_WAN_QUEUE_MOST INT64_C(25000000) /* ns (docs/wan.md); a sender's pause as long is caught up */

/* Of round trips, or of the way there by two clocks, which may differ by anything: only differences mean something. */
typedef struct {
    rs_time least;                 /* without a queue: */
    rs_time recent, before;        /* the least of the present spell and of the one before, `least` is the lesser */
    rs_time latest[RS_WAN_DELAYS]; /* the newest ones, */
    uint32_t count;                /* of so many ever taken */
} rs_wan_delay;

/* The window of RFC 9438. */
typedef struct {
    rs_time epoch;                          /* of the latest event, */
    uint64_t heed_from;                     /* of which what was sent before says nothing new */
    double window, most, prior, reno, back; /* cwnd, W_max, cwnd_prior, W_est in packets; K in s */
} rs_wan_cubic;

/* Sums over windows, of the rate that was sent and of sent / came, for a line through both. */
typedef struct {
    double windows, sent, stretch, sent_sent, stretch_stretch, sent_stretch;
} rs_wan_line;

/* Sums over windows of pulses that came out much slower than they were sent: ns, and bits in a second times these. */
typedef struct {
    double windows, sent, sent_time, came, came_time;
} rs_wan_peak;

/* All zero, then rs_wan_path_start. */
typedef struct {
    rs_wan_congestion law; /* own, friendly or fixed */
    uint32_t packet_bytes; /* on the wire */
    int64_t rate_bps;      /* the verdict */
    int64_t most_bps;      /* never more */
    bool found;            /* start-up is over */
    /* how long packets are on the path */
    rs_time rtt; /* smoothed */
    rs_wan_delay trip, there;
    rs_time spell_end;
    rs_time queue; /* that stood of late on the way there */
    rs_time drain_end, drain_again;
    rs_time stood_queue;  /* A queue longer than wanted was so long, at most; 0: there is none. */
    rs_time stood_since;  /* It was there first then, */
    rs_time stood_from;   /* has not grown since then, */
    double stood_drained; /* and should have become shorter by so much (ns). */
    int64_t stood_best;   /* best_bps when it came */
    /* what comes out of it */
    bool based;
    rs_wan_sample base;           /* where the present window began */
    int64_t delivered_bps;        /* in the latest windows, faded */
    int64_t out_most, out_before; /* The most of it in this round trip and in the one before: a pause of the sender's
                                     process makes less come out, and says nothing of the path. */
    rs_time out_end;              /* of the present one */
    int64_t best_bps;             /* the most of it in the present spell or the one before, */
    int64_t best_recent;          /* and in the present one */
    rs_wan_sample took;           /* a time of a round trip or more began; what came in such, */
    int64_t took_bps;             /* the most in the present spell of that, */
    int64_t took_before;          /* and in the one before */
    rs_time took_end;             /* of the present one */
    uint32_t took_half;           /* in so many of them, the latest, it was sent more than twice as much */
    rs_time judged_at;            /* losses were judged then; */
    uint64_t judged, missed;      /* packets since, and how many of them were lost */
    rs_time much_from;            /* since then it is more than usual; 0: it is not */
    double lost_usually;          /* the share that is lost whatever the rate */
    double lost_proven;           /* of that, what a trial has shown not to be of its own making */
    double lost_spread;           /* how far from that it usually is, of so few packets */
    double lost_before_cut;       /* when the rate was cut for it; 0: it was not */
    int64_t cut_from_bps;         /* the rate before that, */
    bool cut_for_creep;           /* it was for what is usually lost, not for one great loss */
    uint64_t judge_from;          /* fragments sent before that position say nothing of a cut */
    /* start-up */
    uint64_t pulse_end;     /* the newest pulse that was seen ended there */
    int64_t round_most_bps; /* the most that came of the one after it, */
    bool round_limited;     /* for which less was sent than the rate allows, */
    bool overran;           /* or of which some was too much; */
    bool careful;           /* so it was in the one before */
    int64_t found_bps;      /* the most of all pulses */
    uint32_t flat;          /* pulses without growth */
    rs_wan_line line;       /* of windows in which a queue stood */
    rs_wan_peak peak;
    int64_t known_bps;                 /* known to be carried: pulses go on from there, */
    uint64_t pulse_most;               /* with so many bytes at most; 0: any; */
    rs_time pulse_after;               /* each so long after the one before was seen */
    bool looked;                       /* friendly: the round trip is over that was looked at before the first pulse; */
    rs_wan_sample look;                /* it began so; */
    uint32_t look_windows, look_stood; /* windows in it, and those in which a queue stood */
    bool drained;                      /* the queue of its own pulses was gone; */
    bool met; /* one that came after that, or came and went before the first pulse, is others', beside which the rate
                 between pulses stays */
    bool was_marked; /* in start-up */
    bool offered;    /* start-up was over, and goes on for others */
    double velocity; /* how much faster it goes after a round trip without a queue */
    /* friendly: beside others it has half of the place, and sends in pulses, which show what that is */
    double place_bps;      /* what the narrowest place carries, of all that goes through it; 0: unknown */
    double share_bps;      /* the mean of the pulses */
    double others;         /* what others send there, faded, as a part of place_bps */
    rs_time room;          /* the longest queue of the place, as overflows and marks show it; 0: unknown */
    double busy;           /* part of the time in which a queue stood, faded, */
    bool shallow;          /* so little that pulses show nothing */
    uint32_t ignored;      /* marks came again so often before a CUBIC could be back: */
    rs_time ignored_until; /* others are taken for such as do not answer them */
    double overload;       /* what is sent over what comes, less 1, faded */
    rs_time others_until;  /* they count as there until then */
    rs_time join_until;    /* it goes to the part that start-up has shown, whatever is marked */
    double pulsed;         /* round trips of pulses, faded; in these, */
    double more_sent;      /* how much more was sent in strong pulses than in weak ones, */
    double more_stretch;   /* and how much longer what was sent took to come out */
    bool pulses, strong;   /* it sends in pulses; the present one is a strong one, */
    uint64_t slot;         /* since that slot of time; which were strong before: */
    uint64_t slots[RS_WAN_SLOTS / 64];
    double mean_sent, mean_stretch; /* both of late */
    rs_wan_cubic cubic;             /* the answer to marks, */
    rs_time cubic_until;            /* which holds until then */
    rs_wan_cubic floor;             /* what a CUBIC would have, whatever is sent: */
    double floor_bps;               /* as a rate */
} rs_wan_path;

void rs_wan_path_start(rs_wan_path *path, rs_wan_congestion law, uint32_t packet_bytes, int64_t first_bps,
                       int64_t most_bps);
/* True: rate_bps may have changed. */
bool rs_wan_path_heard(rs_wan_path *path, const rs_wan_sample *sample);
/* Start-up goes on for other receivers' sake, too fast for this path: friendly learns of the place by it. */
void rs_wan_path_offered(rs_wan_path *path, const rs_wan_sample *sample);
/* Its rate is what it leaves others, as one receiver's clock has it. */
bool rs_wan_path_is_beside(const rs_wan_path *path, rs_time now);
/* Whether less than half as much has come at best by `slow`, for a round trip, as by `other`. */
bool rs_wan_path_took_half(const rs_wan_path *slow, const rs_wan_path *other);
/* What start-up's pulses are made from. */
int64_t rs_wan_path_known(const rs_wan_path *path);
/* Friendly looks for others in a round trip of what it sends first: no pulse goes yet. */
bool rs_wan_path_looks(const rs_wan_path *path);
/* What was measured across this moment means nothing. */
void rs_wan_path_resume(rs_wan_path *path);

/* The rate to begin with, towards that many receivers whose longest round trip is `grtt`. `tree_links` and
 * `path_links`: of the multicast tree, and of the mean path of it, where they are known; 0: by the group's size. */
int64_t rs_wan_first_rate(rs_time grtt, uint32_t receivers, uint32_t tree_links, double path_links);
/* How many times the links of one path a multicast tree to so many receivers has. */
double rs_wan_tree_size(uint32_t receivers);

#endif
