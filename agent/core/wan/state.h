/* What the engine for wide areas remembers of its transfers, at either end; and what they share at a node. */
#ifndef RS_CORE_WAN_STATE_H
#define RS_CORE_WAN_STATE_H

#include "core/transfer/engine.h"
#include "core/wan/collector.h"
#include "core/wan/congestion.h"
#include "core/wan/gaps.h"
#include "core/wan/memory.h"
#include "core/wan/options.h"
#include "core/wan/pulses.h"
#include "core/wan/sections.h"
#include "core/wan/tail.h"

/* The engine's options, first, and what its transfers at a node share. */
typedef struct {
    rs_wan_config config; /* As the daemon gives it. */
    rs_wan_pool pool;     /* The one bound of memory of all transfers. */
} rs_wan_node;

/* Statuses go eight times in a round trip, so that the sender sees the path several times in what is under way, within
 * these bounds (docs/wan.md); it looks at them as often. */
#define RS_WAN_REPORT_LEAST (2 * RS_MS)
#define RS_WAN_REPORT_MOST (25 * RS_MS)
#define RS_WAN_END_REPAIRS 256 /* of one receiver, that go once more at the end of an object (a bound) */

/* A receiver, as the sender sees it; at the place of its rs_recipient. */
typedef struct {
    rs_wan_path path;     /* What is known of the path to it. */
    rs_time heard_at;     /* Its newest status came then; 0: none did. */
    uint64_t cum;         /* All below are there. */
    uint64_t next;        /* It has seen fragments sent up to there. */
    uint64_t received;    /* It has got so many packets, by its newest status, */
    uint64_t tried_at;    /* and so many when the trial of start-up began. */
    uint64_t gaps;        /* Of the fragments before `gaps_to`, which it has seen go by, so many were passed over: */
    uint64_t gaps_to;     /* they are none that it lost. */
    int64_t repair_bytes; /* So much has gone to it alone in the present time of `sent_since`. */
    double part;          /* Of all bytes that were sent it gets that part: not what goes to others alone. */
    rs_time slow_since;   /* It was the slowest, by far, since then; 0: it is not. */
    rs_time apart_since;  /* The same by its rate, which is no more than a share beside others. */
} rs_wan_peer;

typedef struct rs_wan_place rs_wan_place; /* in the tree of NACKs: nack_tree.c */

typedef struct {
    rs_wan_user memory;       /* This transfer's part of the pool. */
    uint64_t given_to;        /* Fragments before that one use none of it any more. */
    rs_wan_sections sections; /* What is sent and not free yet. */
    rs_wan_gaps gaps;         /* What was passed over for not being here yet. */
    rs_wan_peer *peers;       /* By the place of the recipient. */
    rs_wan_place *places;     /* The same; NULL: all say their NACKs to the sender. */
    bool early;               /* It has begun before all have accepted: */
    rs_time early_from;       /* OPEN has gone to all, whose round trips are known, since then; 0: not so. */
    rs_time early_due;        /* It begins so, or that is looked at, then, */
    uint64_t early_end;       /* and goes no further than there. */
    rs_time begin_due;        /* It begins then at the latest, though not all have accepted. */
    rs_time opened_at;        /* The session began then. */
    rs_time grtt;             /* The longest round trip of those that count, */
    rs_time shortest;         /* and the shortest. */
    rs_time over_due;         /* All was sent and is there: what follows makes events, so it waits for the timer. */
    rs_time look_due;         /* Receivers are looked at then: who is silent, who holds the others back. */
    rs_time probe_due;        /* Nothing is to be sent, and somebody still misses something: a probe goes then. */
    uint32_t probes;          /* So many went without an answer. */
    uint32_t number;          /* The newest coded repair has it. */
    uint32_t unpaired;        /* So many data packets went since the last proactive repair. */
    rs_wan_pulse pulse;       /* Of start-up. */
    rs_time pulse_change;     /* Its rate changes then. */
    rs_time counts_from;      /* Who has accepted may be heard from then on. */
    int64_t rate_bps;         /* The group's rate, but for pulses. */
    bool report;              /* The next packet asks for a status. */
    rs_time trial_until;      /* Start-up goes on without those that are slow, until then; 0: not yet. */
    /* Repairs of the object's end: they go a second time when nothing else is to be sent, for a lost one would cost
     * everybody a round trip. */
    rs_wan_mend end_repairs[RS_WAN_END_REPAIRS];
    uint32_t again;      /* So many of that ring are still to go, */
    uint32_t again_at;   /* those before there. */
    rs_wan_tail tail;    /* What of the object's end goes a second time before anybody asks. */
    uint64_t tail_at;    /* Where that cannot be XORs: fragments before there, */
    uint64_t tail_first; /* and from there on. */
    bool repaired;       /* The last packet was a repair: they take turns with data packets. */
    int64_t sent_bytes;  /* So much was sent, on the wire, */
    int64_t alone_bytes; /* of which so much to single receivers, */
    rs_time sent_since;  /* since then: the present rate is made of that, */
    int64_t sent_bps;    /* and was this in the time before. */
    rs_time starved_at;  /* All that is here of the object had been sent then; 0: never. */
    rs_time unheard;     /* By unicast: the first packet since its receiver's last status went then; 0: none has. */
    rs_time resumed_at;  /* What was sent before, and when its status came, says nothing: this process stood still. */
    bool held;           /* Memory, or the end of the object, has held it back since then. */
} rs_wan_sender;

/* What is said of a section at its receiver. */
typedef struct {
    rs_time due;   /* What is missing of it is said then; RS_NEVER: nothing is, or it goes on. */
    rs_time up_at; /* It went up then. */
    uint8_t times; /* It was said so often since something came of it. */
    bool again;    /* It was said more than once, */
    bool up;       /* first to the parent, */
    bool came;     /* and something came of that. */
} rs_wan_due;

typedef struct {
    uint64_t next;          /* One past the newest fragment seen sent for the first time. */
    uint64_t cum;           /* All below are here. */
    uint64_t received;      /* So many data packets came, */
    uint64_t repairs;       /* and so many repairs; */
    uint64_t marked;        /* so many of both were marked by a switch. */
    uint64_t stamp_us;      /* The newest packet has that stamp, */
    rs_time stamp_at;       /* and came to this host then. */
    rs_time grtt;           /* The longest round trip, as the sender says. */
    uint32_t group;         /* So many receivers share it, as the sender says. */
    rs_time late;           /* Packets come so much later than others that were sent after them. */
    rs_time report_due;     /* A status is said then. */
    rs_time reported_at;    /* The last one was said then. */
    rs_time nack_due;       /* The earliest of... */
    rs_wan_due *due;        /* ...by section. */
    rs_wan_collector *tree; /* Its part in the tree of NACKs; NULL: it has none. */
    uint64_t section_count;
    uint64_t ended;  /* So many sections are over: all of them was sent for the first time. */
    uint64_t ask_at; /* The next PTCH_REQ is about fragments from there on, */
    rs_time ask_due; /* and goes then. */
    bool say;        /* A status is to be said to the sender, */
    bool say_up;     /* NACKs to the parent. */
} rs_wan_receiver;

static inline rs_wan_sender *rs_wan_sender_of(const rs_transfer *t) {
    return t->own;
}

static inline rs_wan_receiver *rs_wan_receiver_of(const rs_transfer *t) {
    return t->own;
}

/* Of a send: as it was asked for, else as the node has them. */
static inline const rs_wan_config *rs_wan_config_of(const rs_node *node, const rs_sending *x) {
    return x->asked ? x->asked : node->options[RS_PROTOCOL_WAN];
}

static inline rs_wan_node *rs_wan_node_of(const rs_node *node) {
    return node->options[RS_PROTOCOL_WAN];
}

#endif
