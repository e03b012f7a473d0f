/* What Republic remembers of a transfer besides what every transfer has. It lies with the transfer (rs_engine.
 * sending_size and so on): the fallback must be able to begin without asking for memory. A tree of reports, which many
 * receivers need, is asked for, and hangs off rs_transfer.own. */
#ifndef RS_CORE_REPUBLIC_STATE_H
#define RS_CORE_REPUBLIC_STATE_H

#include "core/rate/control.h"
#include "core/repair/table.h"
#include "core/transfer/engine.h"

/* A busy host reads nothing for so long: twice RS_WAN_QUEUE_MOST. */
#define RS_HOST_BUSY (50 * RS_MS)

/* Of an object of so few fragments the end comes soon, and some that are under way may be asked for (a bound). */
#define RS_FEW 64

/* How far a receiver is, as its sender knows. */
typedef struct {
    /* light */
    bool no_light_told; /* RS_EV_NO_LIGHT is out for it in this session. */
    uint64_t start_pos; /* Its initial sn was sent at this position of the session. */
    /* repairs by multicast */
    uint64_t asked;    /* It asked for so many fragments at high rate, while the choice of repair_sender.c is open. */
    uint32_t answered; /* It saw repair packets up to that number. */
    /* reports */
    uint64_t seen_pos;      /* It saw data packets up to that position, */
    rs_time seen_at;        /* as it said then. */
    rs_receiver_rate *rate; /* Its reports have shown that of its path and its losses; NULL: it is no speaker. */
    bool sampled;           /* Others report for it, and it has said now and then how far it is: */
    uint64_t sampled_pos, sampled_received; /* that position last, with so many packets. */
    int64_t share_bps; /* So much of its NIC is left for this transfer, by its report; 0: unknown. */
    /* stragglers */
    rs_time slow_at;    /* It was seen to hold the others back last; */
    rs_time slow_since; /* without a break since then; 0: it is not. */
    int64_t slow_bps;   /* The rate at which it did. */
    bool on_trial;      /* It does not count while the others are tried. */
    bool counted;       /* It is among rs_republic_sender.members. */
} rs_progress;

/* Repairs by multicast, in the present session. */
typedef enum {
    RS_REPAIR_CHOICE,  /* Patches go, and what they cost is counted. */
    RS_REPAIR_REFUSED, /* There are none in this session, whatever is lost. */
    RS_REPAIR_CODED,   /* They go between data packets. */
    RS_REPAIR_TAIL     /* The round is over, and the path is kept for them. */
} rs_repair_phase;

typedef struct {
    rs_repair_phase phase;  /* What repairs wait for. */
    uint64_t from_pos;      /* The choice is made from what was asked for since that position: */
    uint64_t asked;         /* so many fragments by all receivers, */
    uint64_t asked_most;    /* and so many by the one that asked for most. */
    rs_repair_table table;  /* It says who misses what. */
    uint32_t number;        /* The newest repair packet or mark has it. */
    uint64_t sent;          /* So many repair packets went out. */
    uint32_t burst;         /* So many repairs may go in a row yet, */
    uint32_t rest;          /* and so many data packets go before the next row. */
    rs_time held_at;        /* The table was last searched for sets then. */
    uint32_t marks;         /* So many marks are to be sent. */
    uint32_t mark_number;   /* Answers are awaited to the mark of that number. */
    uint32_t unanswered;    /* So many marks in a row were not answered by somebody. */
    uint32_t early;         /* So many times in a row repairs went on before all had answered. */
    uint32_t rounds;        /* The tail has had so many rounds; */
    uint32_t idle;          /* the last ones of them mended nothing. */
    uint64_t mended_before; /* So many losses were mended when the present round began. */
    rs_time tail_due;       /* Answers are looked at then; RS_NEVER: repairs are being sent. */
    rs_time answers_due;    /* They are awaited until then. */
    rs_time tail_end;       /* The tail ends then at the latest. */
} rs_repairing;

static inline bool rs_repair_is_coded(const rs_repairing *p) {
    return p->phase >= RS_REPAIR_CODED;
}

static inline bool rs_repair_in_tail(const rs_repairing *p) {
    return p->phase == RS_REPAIR_TAIL;
}

/* At the sender. */
typedef struct {
    /* attempts and light */
    rs_time attempt_interval; /* ia (Sec. III-A1). */
    rs_time attempt_due;      /* The next attempt packet goes then. */
    uint32_t attempts;        /* So many went at the present path. */
    uint32_t fresh, heard;    /* So many have accepted since the last one, and at that path. */
    uint64_t stop_pos;        /* The last lit receiver has had a whole round there. */
    uint32_t members;         /* So many receivers of the session are active: */
    uint32_t waiting;         /* the light of so many of them is awaited, */
    uint32_t lit;             /* and so many have it. */
    uint64_t rounds_end;      /* The rounds of these are whole there; */
    uint32_t rounds_last;     /* that of so many no earlier. */
    bool counted;             /* `members` to `rounds_last` are true: else all receivers are counted. */
    bool dark_passed;         /* Light was waited for long enough. */
    bool all_dark;            /* Nobody of the session is expected to have light, or it is `lone`. */
    bool lone;                /* One receiver is on a packet path: by unicast it costs no more, after a trial. */
    bool path_lit;            /* The path's switches have seen light, */
    uint64_t light_pos;       /* when this position was next. */
    rs_time path_at;          /* The path was granted or moved then. */
    rs_time light_at;         /* Somebody of this session had light last; 0: nobody yet. */
    rs_time light_due;        /* RS_EV_NO_LIGHT is due for some. */
    rs_time pass_over_due;    /* Who has not accepted by then is not waited for. */
    rs_time grace_due;        /* The others are looked at: they had time since somebody's light. */
    rs_time dark_due;         /* Nobody's light is waited for any longer. */
    rs_time advance_due;      /* The round is complete: what follows makes events, so it waits for the timer. */

    /* rate and window */
    uint32_t cuts_logged;     /* A person was told of so many rate cuts in this session. */
    rs_sent_times sent_times; /* It says of high rate when what was sent, and where reports are asked for. */
    rs_recipient *rate_of;    /* Its way is the slowest; NULL: none is known. */
    uint64_t high_pos;        /* High rate began there... */
    uint64_t first_window;    /* ...with so many packets that may be under way. */
    rs_recipient *window_of;  /* It holds the data channel back; NULL: nobody does. */
    uint64_t window_pos;      /* No data packet goes from there on, for now. */
    uint32_t probes;          /* A shut window let some packets through so many times in a row, */
    rs_time probed_at;        /* last then. */

    /* stragglers and repairs */
    rs_time straggler_due;   /* Nobody looks for stragglers before. */
    rs_time trial_began;     /* A trial is on since then; 0: none is. */
    rs_time trial_next;      /* There is none before. */
    int64_t trial_found_bps; /* Loss feedback allowed that before the trial. */
    uint32_t trials;         /* The pause between them was doubled so often. */
    rs_repairing repair;
} rs_republic_sender;

/* How a receiver asks. */
typedef enum {
    RS_ASKS_RANGES,      /* By ranges, at once. */
    RS_ASKS_MAPS,        /* By maps, since repair packets come. */
    RS_ASKS_RANGES_AGAIN /* By ranges again, since DATA_FNSD. */
} rs_asks;

/* At a receiver. */
typedef struct {
    /* asking */
    rs_asks asks;
    rs_seqset asked;        /* Fragments that are asked for and are not here. */
    uint32_t asked_runs;    /* It has so many runs, while it asks by ranges. */
    rs_ranges to_ask;       /* That is due and not asked for yet; it may name what is here or asked for, too. */
    rs_time retry_due;      /* It asks again then: nothing came of it. */
    rs_time tail_due;       /* The tail is asked for then, unless data packets still come, */
    rs_time tail_last;      /* and at the latest then. */
    rs_time began_at;       /* It accepted then. */
    bool over;              /* The sender itself has said to it that the session's data and repairs are over. */
    uint32_t repair_number; /* The newest repair packet of the session has it. */
    uint64_t map_at;        /* The next PTCH_MAP speaks of what is from there on. */
    uint32_t maps_left;     /* The present report may have so many more. */
    rs_time mapped_at;      /* The last report by maps began then, */
    rs_time map_due;        /* and the next one begins then. */
    /* reports */
    rs_time reported_at;       /* The last report was made then, */
    rs_time report_due;        /* and the next one is due then. */
    rs_time marked_at;         /* The last packet that asked for one came then; 0: none has. */
    rs_time mark_interval;     /* It came so long after the one before it, on average. */
    bool active;               /* High-rate packets come... */
    rs_time active_at;         /* ...and did then, last. */
    uint64_t session_received; /* The session's reports count so many data packets, */
    uint64_t session_repairs;  /* and so many repair packets. */
} rs_republic_receiver;

static inline rs_progress *rs_progress_of(const rs_recipient *r) {
    return r->fallback;
}

static inline rs_republic_sender *rs_republic_sender_of(const rs_sending *x) {
    return x->t.fallback;
}

static inline rs_republic_receiver *rs_republic_receiver_of(const rs_receiving *x) {
    return x->t.fallback;
}

#endif
