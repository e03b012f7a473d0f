/* What a node remembers. Private to agent/core. */
#ifndef RS_CORE_STATE_H
#define RS_CORE_STATE_H

#include "core/base/list.h"
#include "core/base/memory.h"
#include "core/base/random.h"
#include "core/base/ranges.h"
#include "core/base/seqset.h"
#include "core/base/timers.h"
#include "core/base/wire.h"
#include "core/rate/marks.h"
#include "core/rate/pacer.h"
#include "core/rate/rate.h"
#include "core/rate/road.h"
#include "core/rate/rtt.h"
#include "core/repair/loss_cases.h"
#include "core/repair/table.h"
#include "core/transfer/node.h"

#define RS_MS INT64_C(1000000)
#define RS_STRAYS 8 /* answers to messages about transfers unknown here, per peer */
#define RS_KEPT 256 /* finished transfers remembered, each way */
#define RS_RINGS 8  /* sessions whose rings a sender remembers */
#define RS_FRAGMENTS_MAX (UINT64_C(1) << 28)

enum { RS_TIMER_PEER = 1, RS_TIMER_SENDING, RS_TIMER_RECEIVING, RS_TIMER_DATA };

/* Things to say to a peer about a transfer, said in this order. There is no queue of messages: what is to be said is a
 * bit, and the message is made from the state when the peer's road is free. So nothing can pile up, and saying it
 * again after a lost connection is setting the bit again. */
enum {
    RS_SAY_CONNECT = 1 << 0, /* nothing yet, but have a connection ready */
    RS_SAY_OPEN = 1 << 1,
    RS_SAY_OPEN_ACK = 1 << 2,
    RS_SAY_INTL_SEQ = 1 << 3,
    RS_SAY_RATE = 1 << 4,
    RS_SAY_PTCH_REQ = 1 << 5, /* one message per range */
    RS_SAY_DATA_FNSD = 1 << 6,
    RS_SAY_DATA_RCVD = 1 << 7,
    RS_SAY_PONG = 1 << 8,
    RS_SAY_PING = 1 << 9,
    RS_SAY_ABORT = 1 << 10,
    RS_SAY_PTCH_MAP = 1 << 11, /* a few messages */
    RS_SAY_LEAF_REQ = 1 << 12,
    RS_SAY_LEAVES = 1 << 13
};

typedef struct rs_engine rs_engine; /* transfer/engine.h */
typedef struct rs_transfer rs_transfer;
typedef struct rs_sending rs_sending;
typedef struct rs_receiving rs_receiving;

/* An answer about a transfer that is not here. */
typedef struct {
    rs_message_type type;
    uint64_t nonce;
    uint32_t session;
    const char *cause;
} rs_stray;

typedef struct {
    rs_peer id;
    uint32_t bucket;
    rs_list hashed;
    bool up, writable;
    bool wanted; /* RS_EV_PEER_WANTED is out, no answer yet */
    rs_time down_since, up_at, retry_at, backoff;
    char down_cause[96];
    rs_rtt rtt;
    rs_list links;                   /* all links to it */
    rs_list talking, patching;       /* of these, with something to say; with PTCH_DATA to send */
    rs_list in_talking, in_patching; /* the peer in the node's lists: up, writable, and something to send */
    rs_timer timer;
    rs_stray strays[RS_STRAYS];
    uint32_t stray_count;
    uint32_t announced; /* objects of it that are not whole here: counted when places are short */
} rs_peer_state;

/* One end of the talk between this node and a peer about one transfer. */
typedef struct {
    rs_peer_state *peer;
    rs_transfer *transfer;
    uint32_t say; /* RS_SAY_* */
    uint64_t pong_token, ping_token;
    bool ping_out;
    rs_time heard_at;
    char cause[RS_CAUSE_MAX]; /* of RS_SAY_ABORT */
    rs_list in_peer, in_talking, in_patching;
} rs_link;

/* Of a continuing stream, in fragments. transfer/stream.c */
typedef struct {
    bool on;            /* it was opened without an end; that may be known by now */
    bool moved_told;    /* RS_EV_STREAM_MOVED is out, and the caller has not looked since */
    uint64_t capacity;  /* between the first that is kept and the last that may come, and 64 more: the engine's */
    uint64_t released;  /* nobody needs from here what is below */
    uint64_t taken;     /* what is below, the caller here does not need; UINT64_MAX: it takes all at once */
    uint64_t available; /* sender: so many may be sent */
} rs_stream;

struct rs_transfer {
    rs_xfer id;
    const rs_engine *engine; /* by which it goes now */
    const rs_engine *owner;  /* whose `own` is: `engine`, or at a sender one that may begin yet; NULL: nobody's */
    void *own;               /* what that engine remembers */
    rs_stream stream;
    rs_list in_acking, in_mending; /* in the node's lists, while it has such datagrams for its peers */
    bool sending;
    bool finished; /* SEND_DONE or RECEIVE_DONE is out; kept a while for last words, repeated answers, statistics */
    rs_object_id object;
    uint64_t nonce; /* drawn by the sender: of all packets and messages of another one none is heeded. Not 0 */
    uint32_t bucket;
    rs_list hashed, by_nonce; /* by object; by nonce */
    rs_list listed;           /* in the node's list of live or of finished transfers, by direction */
    rs_timer timer;
    uint64_t size, fragments;
    uint32_t fragment_size;
    rs_digest digest;
    uint32_t session;
    uint32_t reserved_events;
};

typedef enum { RS_RECIPIENT_ACTIVE, RS_RECIPIENT_DONE, RS_RECIPIENT_FAILED } rs_recipient_state;

/* A receiver, as its sender sees it. */
typedef struct {
    rs_link link;
    rs_recipient_state state;
    /* which sessions are for it: sender_parts.c */
    bool member;             /* the present one */
    bool wanted;             /* the path that is asked for, or kept for the next session */
    bool named;              /* scratch */
    bool opened;             /* one was */
    uint32_t session;        /* its latest one */
    uint64_t first, reached; /* the ring of that: its sessions have come so far */
    uint64_t sent;           /* fragments sent in its earlier sessions */
    bool accepted;           /* OPEN_ACK */
    bool lit;                /* INTL_SEQ of this session */
    bool passed_over;        /* this session no longer waits for its light: it will be finished by patches */
    bool no_light_told;
    bool named_dark;    /* by the grant: it saw nothing of earlier paths */
    uint64_t start_pos; /* position in the session at which its initial sn was sent */
    rs_time accepted_at, progress_at;
    rs_ranges want;    /* fragments to patch */
    uint64_t asked;    /* fragments asked for at high rate, while the choice of repair_sender.c is open */
    uint32_t answered; /* newest repair packet it said it saw */
    uint64_t patches_sent, patched;
    /* feedback */
    uint64_t seen_pos; /* position of the newest packet it said it saw */
    rs_time seen_at;   /* when it said so */
    uint64_t room;     /* bytes of data packets that may wait at it before it drops any; 0 = unknown */
    bool rated;
    uint64_t rated_pos, rated_received, rated_dropped;
    uint64_t expected, lost;
    bool dropped;
    rs_loss_watch watch;
    rs_road road;
    uint64_t trip_pos; /* the newest mark it has reported */
    /* stragglers */
    rs_time slow_at, slow_since; /* held the others back last; without a break; 0 = never */
    int64_t slow_bps;            /* the rate at which it did */
    bool aside;                  /* does not count while the others are tried */
    bool apart;                  /* has left the data channel */
    int64_t share_bps;
    uint64_t leaf_first; /* digests of pieces to be said */
    uint32_t leaf_count, leaf_requests, retakes;
    bool retaking;  /* RS_EV_RETAKE is out */
    uint32_t child; /* place among the sender's overlay children + 1; 0 = none (RDCM) */
} rs_recipient;

typedef struct {
    uint32_t session;
    uint64_t first, end;
} rs_session_ring;

/* Repairs by multicast, in the present session: repair_sender.c */
typedef struct {
    bool refused, coded;                  /* never; from now on */
    uint64_t from_pos, asked, asked_most; /* what the choice is made from */
    rs_repair_table table;
    uint32_t number;      /* of the newest repair packet or mark */
    uint64_t sent;        /* repair packets */
    uint32_t burst, rest; /* repairs left in a row; data packets before the next row */
    rs_time held_at;      /* last look for sets */
    uint32_t marks;       /* to be sent */
    /* the tail: after the round, while the path is kept */
    bool tail;
    uint32_t mark_number, unanswered, rounds, idle;
    uint64_t mended_before;
    rs_time tail_due; /* answers to the mark are waited for until then; RS_NEVER: sending */
    rs_time tail_end;
} rs_repairing;

struct rs_sending {
    rs_transfer t;
    rs_phase phase;
    const uint8_t *leaves; /* digests of the object's pieces, the caller's; NULL: not told */
    uint64_t leaf_count;
    rs_recipient *recipients;
    uint32_t recipient_count, done, failed;
    uint32_t *index; /* open hash of recipients by peer, place + 1 */
    uint32_t index_mask;

    /* path and session */
    bool path_wanted;     /* RS_EV_PATH_WANTED is out, no answer yet */
    bool path_held;       /* granted, RS_EV_PATH_DONE not yet said */
    bool has_next;        /* next_grant waits for the present session's end */
    bool no_data_channel; /* the rest goes by patches */
    bool dark_passed;     /* light was waited for long enough */
    bool all_dark;        /* nobody of it is expected to have light */
    rs_path_grant grant, next_grant;
    uint64_t wanted_from;           /* the path that is asked for begins there */
    uint32_t sessions;              /* started so far */
    uint64_t first, end;            /* ring of the present session */
    uint64_t pos;                   /* data packets sent in it: the next sn is first + pos mod ring */
    uint64_t stop_pos;              /* where the last lit recipient has had a whole round */
    uint64_t sent_before;           /* fragments sent in earlier sessions */
    uint32_t members, waiting, lit; /* active recipients of it; whose light is waited for; that have it */
    rs_session_ring rings[RS_RINGS];
    bool fnsd_said;

    uint32_t light_confirm;
    rs_time attempt_interval, attempt_due;
    bool attempt_slows;
    uint32_t attempts;
    rs_pacer pacer;
    rs_rate rate;
    rs_time feedback_interval;
    uint32_t cuts_logged;
    rs_marks marks; /* of high rate: when what was sent, where reports are asked for */
    rs_straggler_policy stragglers;
    rs_time straggler_due, trial_began, trial_next; /* trial_began 0 = none is on */
    int64_t trial_found_bps;
    uint32_t trials;
    rs_recipient *rate_of;   /* the one whose road is the slowest; NULL = none is known */
    rs_recipient *window_of; /* the slowest, whose word holds the data channel back; NULL = nobody */
    uint64_t high_pos;       /* high rate began there */
    uint64_t first_window;   /* packets that may be under way when it begins */
    bool path_lit;           /* by the word of its switches, when light_pos was next */
    uint64_t light_pos;
    uint64_t window_pos; /* no data packet from here on, for now */
    uint32_t probes;     /* times in a row that a shut window let some packets through */
    rs_time probed_at;
    uint64_t rate_from_pos; /* what was sent before says nothing of the present rate */
    rs_timer data_timer;
    rs_list in_ready;

    rs_time path_at;  /* granted or moved */
    rs_time light_at; /* somebody of this session had light last; 0 = nobody yet */
    rs_time answer_due, light_due, pass_over_due, grace_due, dark_due, path_done_due, fnsd_due, tick_due, advance_due,
        forget_due;
    rs_repairing repair;
    char first_cause[RS_CAUSE_MAX];
    rs_protocol protocol; /* wanted */
    rs_xfer_stats stats;
};

/* RS_RX_SERVING: it is whole and checked, but others may need repairs from here (RDCM). */
typedef enum { RS_RX_OFFERED, RS_RX_RECEIVING, RS_RX_VERIFYING, RS_RX_SERVING, RS_RX_FINISHED } rs_receiving_state;

/* How a receiver asks: by ranges; by maps, since repair packets come; by ranges again, since DATA_FNSD. */
typedef enum { RS_ASKS_RANGES, RS_ASKS_MAPS, RS_ASKS_RANGES_AGAIN } rs_asks;

struct rs_receiving {
    rs_transfer t;
    rs_link link;
    rs_receiving_state state;
    uint32_t group_address;
    uint16_t data_port;
    uint8_t path_kind, light_confirm;
    rs_group group;
    uint64_t room; /* bytes that may wait for the group before any is dropped; 0 = unknown */
    rs_ring ring;
    bool ended; /* the data channel of this session is done, says the sender */
    rs_seqset present, asked;
    rs_ranges to_ask;    /* what is due and not asked for yet; it may also name what is here or asked for */
    uint32_t asked_runs; /* runs in `asked`, while it asks by ranges */
    rs_asks asks;
    uint32_t repair_number; /* newest repair packet of the session */
    uint64_t map_at;        /* the next PTCH_MAP speaks of what is from there on */
    uint32_t maps_left;     /* that the present report may have */
    rs_time mapped_at, map_due;
    uint8_t rcvd_status;
    /* pieces.c: while it is verified */
    uint64_t leaf_first; /* digests of pieces that are asked for */
    uint16_t leaf_count;
    bool leaf_retake;
    rs_seqset again; /* fragments that are fetched again, from again_first on: those that came. No words: none */
    uint64_t again_first, again_at; /* asked for up to again_first + again_at */
    rs_time again_due;              /* and again then */
    uint64_t wrong_sn; /* fragment of a stream that came wrong from the sender itself, `wrong_times` in a row */
    uint32_t wrong_times;
    uint32_t last_word; /* RS_SAY_* that ended it, said again to a sender that missed it */
    uint8_t ack_status;
    bool session_news; /* a further session began before the first was accepted */
    /* feedback */
    rs_time feedback_interval, reported_at, report_due, active_at;
    uint64_t session_received, session_repairs, session_dropped;
    rs_time waited; /* of the newest data packet in this host, before it was read */
    bool active;
    rs_time data_at;   /* last data packet of the present session */
    rs_time tail_due;  /* the tail is asked for then, unless data packets still come */
    rs_time tail_last; /* and then at the latest */
    rs_time offered_due, verify_due, retry_due, ping_due, forget_due;
    rs_xfer_stats stats;
};

typedef struct {
    rs_event *ring;
    uint32_t head, count, capacity;
    uint32_t reserved;
} rs_events;

struct rs_node {
    rs_config config;
    const rs_engine *const *engines; /* the first one is the fallback */
    uint32_t engine_count;
    void *options[RS_ENGINES_MOST]; /* by an engine's number: its own, filled in */
    rs_allocator allocator;
    uint64_t random;
    rs_transfer **slots;
    uint32_t slot_count, next_slot;
    uint16_t *slot_generation;
    rs_list *transfer_buckets, *nonce_buckets, *peer_buckets;
    uint32_t bucket_mask;
    rs_list sending, receiving, sent, received; /* live; finished */
    uint32_t live, kept_sent, kept_received;
    uint32_t peer_count, timer_count;
    rs_timers timers, data_timers;
    rs_list ready;             /* sendings whose pacer lets them send, round robin */
    rs_list talking, patching; /* peers */
    rs_list acking, mending;   /* receivings with acknowledgements to send; that may have something to repair */
    uint32_t data_in_row;      /* data packets since the last patch */
    bool held;                 /* no data packets go out: rs_node_hold */
    rs_pacer nic;
    rs_events events;
    rs_receiving *last_rx;
    uint8_t leaves[RS_LEAVES_BYTES]; /* that came last */
    rs_combine combine;              /* of the repair packet that came last */
};

/* tables.c: who is who */
rs_peer_state *rs_find_peer(const rs_node *node, rs_peer id);
rs_peer_state *rs_make_peer(rs_node *node, rs_peer id); /* finds or makes; NULL if memory is short */
void rs_drop_peer_if_idle(rs_node *node, rs_peer_state *peer);
void rs_free_peer(rs_node *node, rs_peer_state *peer);
rs_status rs_enter(rs_node *node,
                   rs_transfer *t); /* gives it an id, a place in the tables, room for timers and events */
void rs_leave(rs_node *node, rs_transfer *t);
void rs_retire(rs_node *node, rs_transfer *t); /* finished: kept a while, no longer counted */
rs_transfer *rs_by_id(const rs_node *node, rs_xfer id);
rs_sending *rs_find_sending(const rs_node *node, const rs_object_id *object);
rs_receiving *rs_find_receiving(const rs_node *node, const rs_object_id *object);
rs_transfer *rs_find_nonce(const rs_node *node, uint64_t nonce, bool sending);
uint64_t rs_random(rs_node *node);
uint64_t rs_fragments(uint64_t size, uint32_t fragment_size);
uint32_t rs_fragment_length(const rs_transfer *t, uint64_t sn);

/* events.c */
rs_status rs_events_reserve(rs_node *node, uint32_t more);
void rs_events_release(rs_node *node, uint32_t fewer);
void rs_emit(rs_node *node, const rs_event *event);
void rs_words(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
void rs_clean_words(char *text); /* no control characters: causes come from strangers and go to terminals */

/* links.c: roads to peers */
void rs_link_attach(rs_link *link, rs_peer_state *peer, rs_transfer *transfer, rs_time now);
void rs_link_end(rs_node *node, rs_link *link);
void rs_say(rs_node *node, rs_time now, rs_link *link, uint32_t what);
void rs_unsay(rs_node *node, rs_time now, rs_link *link, uint32_t what);
void rs_patch_ready(rs_node *node, rs_time now, rs_link *link, bool ready);
void rs_stray_answer(rs_node *node, rs_time now, rs_peer peer, const rs_message *about, rs_message_type type,
                     const char *cause);
void rs_peer_timeout(rs_node *node, rs_time now, rs_peer_state *peer);
void rs_ping(rs_node *node, rs_time now, rs_link *link);
void rs_on_ping(rs_node *node, rs_time now, rs_link *link, const rs_message *m);
void rs_on_pong(rs_time now, rs_link *link, const rs_message *m);
bool rs_poll_talk(rs_node *node, rs_time now, rs_packet_out *out);
bool rs_poll_patch(rs_node *node, rs_time now, rs_packet_out *out);

/* sender_life.c: what is said, and what comes in */
rs_recipient *rs_recipient_of(const rs_sending *x, rs_peer peer);
rs_rx_verdict rs_sender_message(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m);
/* Makes the message for a bit. */
bool rs_sender_says(const rs_node *node, const rs_sending *x, const rs_recipient *r, uint32_t what, rs_message *m);
bool rs_sender_too_many(rs_node *node, rs_time now, rs_recipient *r); /* patches: it was given up */
/* Fragments [from, to) go to it by unicast, as often as that is sane. */
void rs_sender_patch(rs_node *node, rs_time now, rs_recipient *r, uint64_t from, uint64_t to);

/* sender_session.c: paths, phases, sessions */
void rs_sender_phase(rs_node *node, rs_sending *x, rs_phase phase);
void rs_sender_want_path(rs_node *node, rs_time now, rs_sending *x);
void rs_sender_open_members(rs_node *node, rs_time now, rs_sending *x); /* OPEN of a session that begins */
void rs_sender_path_done(rs_node *node, rs_time now, rs_sending *x);
/* What is left goes to each receiver by patches; `cause`: why, for a person. */
void rs_sender_unicast(rs_node *node, rs_time now, rs_sending *x, const char *cause);
/* There is no path for those it was wanted for: they fail with that cause, others want theirs. */
void rs_sender_no_path(rs_node *node, rs_time now, rs_sending *x, const char *cause);

/* sender_parts.c: which receivers a session is for */
bool rs_sender_lacks(const rs_sending *x, const rs_recipient *r); /* a session more, at least */
bool rs_sender_others(const rs_sending *x);                       /* somebody lacks one who is not in the present one */
bool rs_sender_choose(rs_sending *x);                             /* whom the next path is for; false: nobody */
bool rs_sender_served(rs_sending *x, const rs_path_grant *grant); /* of these, the grant is for some; false: none */
bool rs_sender_has_members(const rs_sending *x);                  /* a session that begins now */
void rs_sender_join(rs_node *node, rs_time now, rs_sending *x);   /* it begins */
void rs_sender_session_sent(rs_sending *x);                       /* it is over */
uint64_t rs_sender_sent(const rs_sending *x); /* distinct fragments, the mean of what was sent to each receiver */
void rs_sender_apart(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r); /* finished by unicast, from now on */
/* The present session's path failed, or (not `held`) the one that is wanted: whom it was for is finished by unicast. */
void rs_sender_part_failed(rs_node *node, rs_time now, rs_sending *x, bool held, const char *cause);

/* sender_life.c: open, settle, fail, watch */
void rs_sender_fail(rs_node *node, rs_time now, rs_recipient *r, bool tell, const char *cause);
void rs_sender_fail_all(rs_node *node, rs_time now, rs_sending *x, const char *cause);
void rs_sender_done(rs_node *node, rs_time now, rs_recipient *r, uint64_t patched, bool had_it);
void rs_sender_settle(rs_node *node, rs_time now, rs_sending *x); /* after recipients were done or failed */
void rs_sender_timeout(rs_node *node, rs_time now, rs_sending *x);
void rs_sender_arm(rs_node *node, rs_sending *x);
void rs_sender_peer_up(rs_node *node, rs_time now, rs_recipient *r);
void rs_sender_peer_down(rs_node *node, rs_time now, rs_recipient *r);
void rs_sender_free(rs_node *node, rs_sending *x);
void rs_sender_stats(const rs_node *node, const rs_sending *x, rs_xfer_stats *out);

/* transfer/stream.c */
void rs_stream_released(rs_node *node, rs_transfer *t, uint64_t low); /* below, nobody needs anything from here */
uint64_t rs_stream_past(const rs_transfer *t);                        /* one past what there is room for */
bool rs_stream_ends(rs_node *node, rs_time now, rs_receiving *x, uint64_t size); /* false: it went further */

/* transmit.c: the data channel's output */
void rs_data_stop(rs_node *node, rs_sending *x);
void rs_data_packet(const rs_sending *x, const rs_data_header *header, rs_packet_out *out); /* to the group */
rs_time rs_data_deadline(const rs_node *node);
uint32_t rs_wire_bytes(const rs_packet_out *out); /* what it costs on an Ethernet wire */

/* pieces.c: pieces whose digest is wrong */
bool rs_pieces_wait(const rs_receiving *x); /* for the sender */
bool rs_leaf_request(const rs_receiving *x, rs_message *m);
rs_rx_result rs_on_leaves(rs_node *node, rs_receiving *x, const rs_message *m);
void rs_again_free(rs_node *node, rs_receiving *x);
void rs_again_ask(rs_node *node, rs_time now, rs_receiving *x);
bool rs_again_left(const rs_receiving *x);
bool rs_again_request(rs_receiving *x, rs_message *m);
rs_rx_result rs_again_patch(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn);
rs_rx_verdict rs_on_leaf_req(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m);
bool rs_leaves_said(const rs_sending *x, const rs_recipient *r, rs_message *m);

/* republic/receiver.c: data packets and one handler per message */
rs_rx_result rs_receiver_data(rs_node *node, rs_time now, const rs_packet_in *packet);
rs_receiving *rs_receiving_of_packet(rs_node *node, uint64_t nonce);
rs_rx_result rs_receiver_store(rs_receiving *x, uint64_t sn);
rs_rx_result rs_receiver_message(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m,
                                 const rs_packet_in *packet);
rs_rx_verdict rs_on_open(rs_node *node, rs_time now, rs_peer peer, const rs_message *m);
/* Makes the message for a bit; `more`: there is a further one for it. */
bool rs_receiver_says(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more);

/* receiver_life.c: from INCOMING to RECEIVE_DONE */
void rs_receiver_finish(rs_node *node, rs_time now, rs_receiving *x, uint32_t last_word, const char *cause);
/* PTCH_REQ for [from, to), named in the ring of the object. Returns its end: all of a ring has no name of its own. */
uint64_t rs_request_object(const rs_transfer *t, uint64_t from, uint64_t to, rs_message *m);
/* OPEN of a further session: where its data channel is. */
void rs_receiver_next_session(rs_node *node, rs_receiving *x, const rs_message *m);
void rs_receiver_end(rs_node *node, rs_time now, rs_receiving *x, bool ok, uint32_t last_word, const char *cause);
void rs_receiver_is_whole(rs_node *node, rs_time now, rs_receiving *x); /* it is */
void rs_receiver_timeout(rs_node *node, rs_time now, rs_receiving *x);
rs_time rs_receiver_patience(const rs_receiving *x); /* until what was asked for is asked for again */
void rs_receiver_arm(rs_node *node, rs_receiving *x);
void rs_receiver_peer_up(rs_node *node, rs_time now, rs_receiving *x);
void rs_receiver_free(rs_node *node, rs_receiving *x);
void rs_receiver_make_place(rs_node *node, rs_time now,
                            const rs_peer_state *newcomer); /* NULL: for a transfer that this node sends */
void rs_receiver_stats(const rs_node *node, const rs_receiving *x, rs_xfer_stats *out);

#endif
