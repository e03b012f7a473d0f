/* What a node remembers. Private to agent/core. */
#ifndef RS_CORE_STATE_H
#define RS_CORE_STATE_H

#include <stddef.h>

#include "core/base/list.h"
#include "core/base/memory.h"
#include "core/base/random.h"
#include "core/base/ranges.h"
#include "core/base/seqset.h"
#include "core/base/timers.h"
#include "core/base/wire.h"
#include "core/rate/control.h"
#include "core/rate/pacer.h"
#include "core/rate/rtt.h"
#include "core/repair/loss_cases.h"
#include "core/repair/table.h"
#include "core/transfer/node.h"

#define RS_MS INT64_C(1000000)
/* Reports to a sender are 20,000 a second at most, from all receivers together (docs/feedback.md): ns for each. */
#define RS_REPORTS_EACH 50000
/* A control message that is lost once is here within this: Linux's TCP sends again after 200 ms (TCP_RTO_MIN), and a
 * busy host reads late. */
#define RS_CONTROL_LATE (250 * RS_MS)
#define RS_REQUEST_TIMEOUT (1000 * RS_MS) /* control channels are reliable: to ask again is a last resort (a bound) */
/* From the last data packet to releasing the path: RS_QUEUE_BITS pass in that at 1.5 Gbit/s. */
#define RS_DRAIN (1 * RS_MS)
#define RS_TAIL_QUIET (4 * RS_MS)     /* no data packet for so long: nothing is under way any more (a bound) */
#define RS_UNKNOWN_TRANSFER_REPLIES 8 /* answers to messages about transfers unknown here, per peer */
#define RS_OPEN_REPLIES 1024          /* and with those to OPEN: each is one transfer of the peer's */
#define RS_KEPT 256                   /* finished transfers remembered, each way */
#define RS_RINGS 8                    /* sessions whose rings a sender remembers */
#define RS_FRAGMENTS_MAX (UINT64_C(1) << 28)

enum { RS_TIMER_PEER = 1, RS_TIMER_SENDING, RS_TIMER_RECEIVING, RS_TIMER_DATA };

/* Things to say to a peer about a transfer, said in this order. There is no queue of messages: what is to be said is a
 * bit, and the message is made from the state when the peer's connection is free. So nothing can pile up, and saying it
 * again after a lost connection is setting the bit again. */
enum {
    RS_CONTROL_CONNECT = 1 << 0, /* nothing yet, but have a connection ready */
    RS_CONTROL_OPEN = 1 << 1,
    RS_CONTROL_OPEN_ACK = 1 << 2,
    RS_CONTROL_INTL_SEQ = 1 << 3,
    RS_CONTROL_RATE = 1 << 4,
    RS_CONTROL_PTCH_REQ = 1 << 5, /* one message per range */
    RS_CONTROL_DATA_FNSD = 1 << 6,
    RS_CONTROL_DATA_RCVD = 1 << 7,
    RS_CONTROL_PONG = 1 << 8,
    RS_CONTROL_PING = 1 << 9,
    RS_CONTROL_ABORT = 1 << 10,
    RS_CONTROL_PTCH_MAP = 1 << 11, /* a few messages */
    RS_CONTROL_LEAF_REQ = 1 << 12,
    RS_CONTROL_LEAVES = 1 << 13,
    RS_CONTROL_REPORT_TO = 1 << 14,
    RS_CONTROL_CARRY_TO = 1 << 15,
    RS_CONTROL_CARRY = 1 << 16, /* what others say, or are told, by this one */
    RS_CONTROL_NAME = 1 << 17,
    RS_CONTROL_ASK = 1 << 18, /* by a datagram: transfer/proof.h */
    RS_CONTROL_TELL = 1 << 19
};

typedef struct rs_engine rs_engine; /* transfer/engine.h */
typedef struct rs_transfer rs_transfer;
typedef struct rs_sending rs_sending;
typedef struct rs_receiving rs_receiving;

/* An answer about a transfer that is not here. */
typedef struct {
    rs_message_type type; /* What is said. */
    uint64_t nonce;       /* Of the transfer that it is about. */
    uint32_t session;     /* Of that transfer. */
    const char *cause;    /* NULL, of OPEN_ACK: what is missing of it is being fetched. */
} rs_unknown_transfer_reply;

/* A peer's connection, which the caller has. */
typedef enum {
    RS_PEER_DOWN,    /* There is none. */
    RS_PEER_WANTED,  /* RS_EV_PEER_WANTED is out and has no answer yet. */
    RS_PEER_CHOKED,  /* It is up, and takes nothing now. */
    RS_PEER_WRITABLE /* It takes more now. */
} rs_peer_connection;

typedef struct {
    rs_peer id;     /* What the caller knows it by. */
    rs_list hashed; /* Its place among the node's peers. */
    rs_peer_connection connection;
    rs_time down_since;              /* The connection ended, or was first wanted, then; RS_NEVER: it has not. */
    rs_time up_at;                   /* The connection came up then. */
    rs_time retry_at;                /* No connection is asked for before. */
    rs_time backoff;                 /* After the next failure that waits so long. */
    char *down_cause;                /* Why the last connection ended or did not come up; NULL: rs_text_keep. */
    rs_rtt rtt;                      /* Round trips of PING. */
    rs_list links;                   /* All links to it. */
    rs_list talking, patching;       /* Those of them with something to say, and with PTCH_DATA to send. */
    rs_list in_talking, in_patching; /* The peer's places in the node's lists, while such a link can be served. */
    rs_timer timer;                  /* It asks for a connection again. */
    rs_unknown_transfer_reply *unknown_replies; /* Answers about transfers that are not here, waiting to be said; */
    uint32_t unknown_reply_count;               /* so many. NULL: none was yet. */
    uint32_t unknown_reply_first, unknown_reply_room; /* The first's place, and how many have room. */
    rs_time measured;   /* The round trip to it, as the caller knows it; 0: it does not. */
    uint32_t announced; /* Objects of it that are not whole here, counted when places are short. */
} rs_peer_state;

static inline bool rs_peer_is_up(const rs_peer_state *p) {
    return p->connection >= RS_PEER_CHOKED;
}

typedef struct rs_peer_session rs_peer_session;

/* What a talk is about knows what to say, and hears of its connection. */
typedef struct {
    /* Makes the message for a bit of RS_CONTROL_*. `more`: there is a further one. False: it no longer matters. */
    bool (*says)(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what, rs_message *m, bool *more);
    void (*up)(rs_node *node, rs_time now, rs_peer_session *link);
    void (*down)(rs_node *node, rs_time now, rs_peer_session *link);
    void (*unreached)(rs_node *node, rs_time now, rs_peer_session *link); /* there was to be one; NULL: it waits */
    /* Of a talk by another peer's connection (`via`): makes what goes there of the message for that bit; or a datagram,
     * which is in `out`. False: nothing does. */
    bool (*carried)(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what, rs_message *m,
                    rs_packet_out *out);
} rs_talk;

/* One end of the talk between this node and a peer about one transfer. */
struct rs_peer_session {
    const rs_talk *talk;             /* What it is about. */
    rs_peer_state *peer;             /* The other end. */
    rs_peer_state *via;              /* It is said by the connection to that one; NULL: by its own. */
    rs_transfer *transfer;           /* What they talk about. */
    uint32_t pending;                /* The bits of RS_CONTROL_* that are to be said. */
    uint64_t pong_token;             /* The next PONG answers that PING. */
    uint64_t ping_token;             /* The last PING went out with it, while... */
    bool ping_out;                   /* ...its answer is awaited. */
    rs_time heard_at;                /* The peer was heard about this transfer then. */
    char *cause;                     /* What RS_CONTROL_ABORT, a refusal or DATA_RCVD says; NULL: rs_text_keep. */
    rs_list in_peer;                 /* Its place among the peer's links... */
    rs_list in_talking, in_patching; /* ...and in the peer's lists of those to be served. */
};

/* What is said reaches it. */
static inline bool rs_link_is_up(const rs_peer_session *link) {
    return rs_peer_is_up(link->via ? link->via : link->peer);
}

/* Of a continuing stream, in fragments. transfer/stream.c */
typedef struct {
    bool on;            /* It was opened without an end; that may be known by now. */
    bool moved_told;    /* RS_EV_STREAM_MOVED is out, and the caller has not looked since. */
    uint64_t capacity;  /* The engine's: from the first that is kept to the last that may come, and 64 more. */
    uint64_t released;  /* Nobody needs from here what is below. */
    uint64_t taken;     /* The caller does not need what is below; UINT64_MAX: it takes all at once. */
    uint64_t available; /* At the sender so many may be sent. */
    bool by_unicast;    /* At the sender its path is gone: each receiver gets all by its control channel. */
} rs_stream;

struct rs_transfer {
    rs_xfer id;              /* What the caller knows it by. */
    const rs_engine *engine; /* It goes by this one now. */
    const rs_engine *owner;  /* `own` is its: `engine`'s, or at a sender that of one that may begin yet. */
    void *own;               /* What that engine remembers; NULL: nothing. */
    void *fallback;          /* What the first engine of the table remembers: behind the transfer, in the same memory,
                              * for it must be able to begin without asking for any. */
    rs_stream stream;
    rs_list in_acking, in_mending; /* Its places in the node's lists, while it has such datagrams for its peers. */
    bool sending;                  /* It is a rs_sending; else a rs_receiving. */
    rs_object_id object;
    uint64_t nonce;           /* Drawn by the sender, not 0: no packet or message of another one is heeded. */
    rs_list hashed, by_nonce; /* Its places in the node's tables, by object and by nonce. */
    rs_list listed;           /* Its place in the node's list of live or of finished transfers, by direction. */
    rs_timer timer;
    uint64_t size;          /* Bytes; RS_STREAM: not known yet. */
    uint64_t fragments;     /* The same in fragments. */
    uint32_t fragment_size; /* Of all but the last. */
    rs_digest digest;
    uint32_t session;         /* The present one. */
    uint32_t reserved_events; /* Places in the event ring that are its. */
    void (*free)(rs_node *node, rs_transfer *t);
    void (*arm)(rs_node *node, rs_transfer *t); /* Its timer, after what it waits for has changed. */
};

/* How far a receiver has come, as its sender knows. */
typedef enum {
    RS_RECIPIENT_NEW,      /* No session was opened for it: it owes nothing, and may not even know of the object. */
    RS_RECIPIENT_OPENED,   /* It owes OPEN_ACK. */
    RS_RECIPIENT_ACCEPTED, /* It takes data, and may say what it misses. */
    RS_RECIPIENT_DONE,     /* It has the object. */
    RS_RECIPIENT_FAILED    /* It is given up. */
} rs_recipient_state;

/* Its place on the data channel. */
typedef enum {
    RS_LIGHT_AWAITED, /* It has said no INTL_SEQ of this session, and is waited for. */
    RS_LIGHT_SKIPPED, /* The same, and it is not waited for: patches are for it, unless its light comes. */
    RS_LIGHT_LIT,     /* It is sent one whole round from its initial sn on. */
    RS_LIGHT_DEMOTED  /* It has left the data channel for good, and is finished by unicast. */
} rs_light;

/* A receiver, as its sender sees it. */
typedef struct {
    rs_peer_session link;     /* The talk with it about this transfer. */
    rs_recipient_state state; /* How far it has come. */
    rs_light light;           /* Its place on the data channel. */
    bool member;              /* The present session is for it. */
    bool kept;                /* Some of it was there before, the rest it fetches: it is asked again and again. */
    bool wanted;              /* The path that is asked for, or kept for the next session, is for it. */
    uint32_t session;         /* The latest session that was for it... */
    uint64_t first, reached;  /* ...and the ring of that: its sessions have come so far. */
    uint64_t sent;            /* Fragments sent in its earlier sessions. */
    rs_time accepted_at;      /* It accepted then. */
    rs_time progress_at;      /* It took a step then: said something new, or was sent a patch. */
    rs_ranges *want;          /* Fragments to be patched; NULL: none. */
    uint64_t patches_sent;
    uint64_t patched;       /* So many it says to have got by patches and repairs, at its end. */
    uint64_t room;          /* Bytes of data packets that may wait at it before it drops any; 0: unknown. */
    uint64_t leaf_first;    /* Digests of pieces that are to be said: from there... */
    uint32_t leaf_count;    /* ...so many. */
    uint32_t leaf_requests; /* It has asked for digests so often, */
    uint32_t retakes;       /* and so often for one to be taken again. */
    bool retaking;          /* RS_EV_RETAKE is out and has no answer yet. */
    uint32_t child;         /* RDCM: its place among the sender's overlay children + 1; 0: it has none. */
    bool reported;          /* Others report of it, and name it if it is silent: it is asked seldom itself. */
    uint16_t carrier;       /* Who carries to it: the place among the sender's carriers + 1; 0: nobody does. */
    uint16_t carried_as;    /* Its number there. */
    uint64_t challenge;     /* It asked with that number, by a datagram. */
    bool named_dark;        /* The grant names it as one that saw nothing of earlier paths. */
    void *fallback;         /* What the first engine of the table remembers of it. */
} rs_recipient;

static inline bool rs_is_active(const rs_recipient *r) {
    return r->state < RS_RECIPIENT_DONE;
}

static inline bool rs_is_opened(const rs_recipient *r) {
    return r->state == RS_RECIPIENT_OPENED || r->state == RS_RECIPIENT_ACCEPTED;
}

/* Its data goes by unicast, to the one receiver that its session is for. */
static inline bool rs_is_unicast(const rs_path_grant *grant) {
    return grant->kind == RS_PATH_PACKET && grant->group_address == 0;
}

static inline bool rs_has_accepted(const rs_recipient *r) {
    return r->state == RS_RECIPIENT_ACCEPTED;
}

/* Whose reports others collect hears of those that the data are over: each passes it on to those below it. */
static inline bool rs_hears_of_others(const rs_recipient *r) {
    return r->reported && rs_has_accepted(r) && r->light == RS_LIGHT_LIT;
}

/* A session and the fragments it was for. */
typedef struct {
    uint32_t session;    /* Of that transfer. */
    uint64_t first, end; /* Its fragments: from the first to before the end. */
} rs_session_ring;

/* The path of the next session. */
typedef enum {
    RS_NEXT_NONE,
    RS_NEXT_WANTED, /* RS_EV_PATH_WANTED is out and has no answer yet. */
    RS_NEXT_GRANTED /* next_grant waits for the present session's end. */
} rs_next_path;

struct rs_sending {
    rs_transfer t;                          /* What both directions have. */
    rs_phase phase;                         /* Of the present session. */
    rs_recipient *recipients;               /* All receivers, in the caller's order; */
    uint32_t recipient_count, done, failed; /* so many, those that have all, and those that are given up. */
    uint32_t left;                          /* Of those that failed: they wanted it no more. */
    uint32_t kept;                          /* Of the others: so many fetch the rest. */
    uint32_t *index;                        /* An open hash of recipients by peer: place + 1. */
    uint32_t index_mask;                    /* Its size - 1. */
    const uint8_t *leaves; /* Digests of the object's pieces, the caller's; NULL: they were not told. */
    uint64_t leaf_count;
    uint64_t available;             /* Fragments of the object that are here, from the first on; UINT64_MAX: all. */
    rs_xfer source;                 /* Others of it are here that this transfer has brought; 0: none are. */
    char first_cause[RS_CAUSE_MAX]; /* Why the first receiver that failed did. */
    rs_xfer_stats stats;

    /* paths and sessions */
    rs_next_path next;
    bool path_held;           /* A path was granted, and RS_EV_PATH_DONE is not out yet. */
    rs_path_grant grant;      /* The present session's; of kind RS_OPEN_NO_PATH the rest goes by patches. */
    rs_path_grant next_grant; /* The next session's, while `next` says so. */
    uint64_t wanted_from;     /* The path that is asked for begins there. */
    uint32_t sessions;        /* So many were started. */
    uint64_t first, end;      /* The ring of the present one. */
    uint64_t pos;             /* Data packets sent in it: the next sn is first + pos mod ring. */
    uint64_t sent_before;     /* Fragments sent in earlier ones. */
    rs_time said_each;        /* Receivers that others report of say so often themselves how far they are. */
    uint32_t taking;          /* So many receivers that did not fail are in it, */
    uint64_t sent_to_all;     /* and those that did not fail were sent so many in earlier ones, together. */
    bool fnsd_said;           /* DATA_FNSD of it is said to whoever comes back, too: it was said to those that
                                 others do not tell it. */
    rs_time answer_due;       /* The answer to RS_EV_PATH_WANTED is waited for until then. */
    rs_time path_done_due;    /* The path is given back then: the last packets have arrived. */
    rs_time fnsd_due;         /* DATA_FNSD is said then; a second time to all. */
    rs_time tick_due;         /* Receivers are looked at then: who is silent, who makes no progress. */

    /* the data channel */
    rs_pacer pacer;
    rs_rate rate;        /* The rate of the data channel. */
    rs_timer data_timer; /* The engine sends again then; or it is among the node's ready: */
    rs_list in_ready;

    uint32_t light_confirm;          /* So many packets in a row make light, as OPEN says. */
    rs_time feedback_interval;       /* Receivers report so often, as OPEN says. */
    rs_session_ring rings[RS_RINGS]; /* The rings of the latest sessions: requests name them. */
    void *asked; /* Options of this send, as its engine has them (rs_engine.ask); NULL: the node's. */
    rs_straggler_policy stragglers;
    struct rs_carriers *carriers; /* Receivers that carry to others; NULL: none do. transfer/carriers.h */
    rs_time carried_due;          /* Who they carry to must have answered by then. */
    rs_time knock_due;            /* Who has not answered then is said something more. transfer/knock.h */
    uint32_t knocks;              /* So often was that done, */
    bool knocked_all;             /* and once to all that others carry to. */
};

/* What a receiver that another one carries to knows of its sender by that one's word alone. transfer/proof.h */
typedef struct {
    bool wanted;        /* It is to be proven, */
    bool of_all;        /* all of it, not a digest that followed alone. */
    bool whole;         /* All is here, and the caller is told when it is. */
    bool turned_away;   /* The caller does not take it, which is said when it is. */
    uint8_t asked;      /* So often the sender was asked. */
    uint32_t unsaid;    /* Bits of RS_CONTROL_* that are to be said when it is. */
    rs_time ask_due;    /* The sender is asked then. */
    uint64_t challenge; /* It was asked with that number last, */
    uint64_t token;     /* and knows this receiver's datagrams by that one; 0: not told. */
    rs_digest digest;   /* Which was to follow, and came by the other one; length 0: none did. */
} rs_proof_of_sender;

/* What a receiving transfer waits for. */
typedef enum {
    RS_RX_OFFERED,   /* The caller is to accept, refuse or have it. */
    RS_RX_RECEIVING, /* Fragments come. */
    RS_RX_VERIFYING, /* All are here: the caller checks the digest, and pieces may be fetched again. */
    RS_RX_SERVING,   /* It is checked, but others may need repairs from here (RDCM). */
    RS_RX_FINISHED   /* Only final messages are said. */
} rs_receiving_state;

struct rs_receiving {
    rs_transfer t;            /* What both directions have. */
    rs_peer_session link;     /* The talk with it about this transfer. */
    rs_receiving_state state; /* What it waits for. */
    rs_xfer_stats stats;      /* Its counters. */

    /* the session, as OPEN says */
    uint32_t group_address;
    uint16_t data_port;               /* UDP port of its data packets. */
    uint8_t path_kind, light_confirm; /* The path's kind, and so many packets in a row make light. */
    bool session_news;                /* A further session began before the first was accepted. */
    bool ended;                       /* The sender says that its data channel is over. */
    rs_group group;                   /* Its data packets come by it, by the caller's report. */
    uint64_t room;                    /* Bytes that may wait for the group before any is dropped; 0: unknown. */
    rs_time feedback_interval;        /* Reports are wanted so often. */
    rs_ring ring;                     /* Its fragments, and what was seen of them. */

    /* what is here, and what is said */
    rs_seqset present;      /* Fragments that are here; of a stream the engine knows. */
    uint64_t resumed;       /* The first ones were here before it was accepted. */
    uint8_t ack_status;     /* What OPEN_ACK says, */
    uint8_t rcvd_status;    /* and DATA_RCVD. */
    uint32_t final_control; /* The RS_CONTROL_* that ended it, said again to a sender that missed it. */
    rs_time data_at;        /* The newest data packet of the session came then. */
    rs_time came_at;        /* While another server waits to send it: it had grown then, */
    uint64_t came_bytes;    /* to so much. */
    rs_time offered_due;    /* The caller makes room until then, */
    rs_time verify_due;     /* and has checked the digest by then. */
    rs_time leaving_due;    /* It has left, and is there for the others until then; RS_NEVER: it has not. */
    rs_time ping_due;       /* A silent sender is asked for a sign then. */
    uint64_t wrong_sn;      /* This fragment of a stream came wrong from the sender itself, */
    uint32_t wrong_times;   /* so many times in a row. */

    /* While it is verified: pieces whose digest is wrong. */
    uint64_t leaf_first;  /* The digests of pieces from there on are asked for, */
    uint16_t leaf_count;  /* so many; 0: none. */
    bool leaf_retake;     /* The sender is to take it again. */
    rs_seqset again;      /* Fragments that are fetched again: those that came. No words: none is. */
    uint64_t again_first; /* The set's first one. */
    uint64_t again_at;    /* Of the set, all below are asked for; */
    rs_time again_due;    /* once more then. */

    struct rs_relay *relay; /* Receivers that this one carries to; NULL: none. transfer/relay.h */
    rs_time kept_until;     /* Once finished. */
    rs_time said_each;      /* It says by itself so seldom how far it is; 0: not told. */
    rs_proof_of_sender proof;
    rs_time rcvd_due; /* It says by a datagram that all is here then, */
    rs_time rcvd_at;  /* and did then, last; 0: not yet. */

    uint64_t session_dropped; /* The group's socket dropped so many packets in this session. */
    rs_time waited;           /* The newest data packet waited so long in this host before it was read. */
};

/* SEND_DONE or RECEIVE_DONE is out; it is kept a while for final messages and statistics. */
static inline bool rs_is_finished(const rs_transfer *t) {
    return t->sending ? ((const rs_sending *)t)->phase == RS_PHASE_DONE
                      : ((const rs_receiving *)t)->state == RS_RX_FINISHED;
}

/* An event that waits for the caller: all of it but its text. Texts are long, and few events have one. */
typedef struct {
    _Alignas(rs_event) uint8_t head[offsetof(rs_event, cause)]; /* The event up to its text. */
    uint32_t cause; /* The number of its text among rs_events.causes, or what events.c says instead. */
} rs_kept_event;

typedef char rs_event_cause[sizeof((rs_event *)NULL)->cause];

typedef struct {
    rs_kept_event *ring;            /* Those that wait, oldest at `head`. */
    uint32_t head, count, capacity; /* Places in it. */
    uint32_t reserved;              /* Places that transfers and peers have claimed. */
    rs_event_cause *causes; /* A ring of texts, in the order of their events; what follows each other shares one. */
    uint32_t first_cause, next_cause, cause_capacity; /* Their numbers; the place of a number is modulo the size. */
} rs_events;

struct rs_node {
    rs_config config;                /* As given, defaults filled in. */
    const rs_engine *const *engines; /* the first one is the fallback */
    uint32_t engine_count;
    void *options[RS_ENGINES_MOST]; /* by an engine's number: its own, filled in */
    rs_allocator allocator;
    uint64_t random;                                          /* State of the generator. */
    rs_transfer **slots;                                      /* By the low bits of rs_xfer; NULL: free. */
    uint32_t slot_count, next_slot;                           /* Size of it; where a free one is looked for. */
    uint16_t *slot_generation;                                /* Of each slot, in the high bits of rs_xfer. */
    rs_list *transfer_buckets, *nonce_buckets, *peer_buckets; /* Hash tables. */
    uint32_t bucket_mask;                                     /* Their size - 1. */
    rs_list sending, receiving, sent, received;               /* live; finished */
    uint32_t live, kept_sent, kept_received;
    uint32_t peer_count, timer_count; /* Peers that are known; timers in use. */
    rs_timers timers, data_timers;    /* All; those of data channels. */
    rs_list ready;                    /* sendings whose pacer lets them send, round robin */
    rs_list talking, patching;        /* peers */
    rs_list acking, mending;          /* receivings with acknowledgements to send; that may have something to repair */
    uint32_t relayed;                 /* So many others are carried to from here. */
    uint32_t data_in_row;             /* data packets since the last patch */
    bool held;                        /* no data packets go out: rs_node_hold */
    rs_pacer nic;
    rs_events events;                /* What waits for the caller. */
    rs_receiving *last_rx;           /* The newest packet's; NULL: look it up. */
    uint8_t leaves[RS_LEAVES_BYTES]; /* that came last */
    rs_combine combine;              /* of the repair packet that came last */
};

#endif
