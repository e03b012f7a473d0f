/* What SRM, RMTP, LBRM and TMTP have in common: one object that is sent and received in packets, messages, timers, an
 * outbox.
 * Private to sim/baselines. */
#ifndef SIM_BASELINE_H
#define SIM_BASELINE_H

#include "baselines/baselines.h"
#include "core/base/seqset.h"
#include "core/base/timers.h"
#include "engine/engine.h"

#define LIST_MAX 32

typedef enum { MESSAGE_DATA = 1, MESSAGE_REPAIR, MESSAGE_REQUEST, MESSAGE_STATUS, MESSAGE_SESSION } message_kind;

/* A packet's header. Both ends are in one process: it goes as it is, cut after what is used of `list`. */
typedef struct {
    uint32_t kind, origin; /* origin: the host that sent it */
    uint64_t size;
    rs_time sent_at;
    uint32_t sn;      /* of the packet; status: the first that is missing */
    uint32_t highest; /* as far as its sender knows: all below exist */
    uint32_t fragment_size, listed;
    uint32_t list[LIST_MAX]; /* request: sns; status: a bitmap from sn on of what is there */
} message;

typedef struct baseline baseline;

/* Of a protocol. `got` and `missing` come once for each packet at most. */
typedef struct {
    uint32_t timers;                                           /* per packet */
    void (*begin)(baseline *b, rs_time now);                   /* the object's size is known */
    void (*missing)(baseline *b, rs_time now, uint32_t sn);    /* it exists, and is not here */
    void (*got)(baseline *b, rs_time now, uint32_t sn);        /* it is here now */
    void (*heard)(baseline *b, rs_time now, const message *m); /* every message, after the above */
    void (*timer)(baseline *b, rs_time now, rs_timer *timer);  /* it is due, and not set any more */
    void (*sent_all)(baseline *b, rs_time now);                /* sender: the last new packet has gone */
    void (*free)(baseline *b);
} protocol;

struct baseline {
    sim_engine base;
    const protocol *protocol;
    baseline_params params;
    baseline_stats stats;
    rs_allocator allocator;
    uint64_t random;
    bool sender, failed;
    uint64_t size;
    uint32_t count, fragment_size; /* count 0: nothing known yet */
    uint32_t highest;              /* all below exist */
    uint32_t end;                  /* of what is here: after the last that is */
    rs_seqset here;
    uint32_t next; /* sender: to be sent next, at next_at */
    rs_time next_at;
    rs_timers timers;
    message *outbox; /* ring; `channel` and whom it goes to beside it */
    struct outgoing *whither;
    uint32_t out_head, out_count, out_capacity;
    void *state;            /* of the protocol */
    struct repairer *mends; /* of RMTP, LBRM and TMTP */
};

extern const protocol SRM, RMTP, LBRM, TMTP;

/* baseline.c */
double baseline_uniform(baseline *b, double low, double width);
message baseline_message(const baseline *b, rs_time now, message_kind kind, uint32_t sn);
void baseline_to_group(baseline *b, const message *m, uint32_t group);
void baseline_to_peer(baseline *b, const message *m, rs_peer peer);
void baseline_exists(baseline *b, rs_time now, uint32_t highest); /* all below `highest` do */
static inline bool baseline_complete(const baseline *b) {
    return b->count && b->here.count == b->count;
}

#endif
