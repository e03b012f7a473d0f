/* A protocol node, sans-IO: packets, time and answers go in; packets, deadlines and events come out. One surface for
 * the agent, the simulator and the fuzzers.
 *
 * Life of a transfer at the sender:   rs_send_open -> RS_EV_PATH_WANTED -> rs_path_granted -> RS_EV_PHASE... ->
 * RS_EV_PATH_DONE (release it) ->
 *                                     [RS_EV_PATH_WANTED for the next session] -> RS_EV_SEND_DONE
 * Life of a transfer at a receiver:   RS_EV_INCOMING -> rs_incoming_accept | rs_incoming_refuse -> RS_EV_COMPLETE
 * -> rs_verified ->
 *                                     RS_EV_RECEIVE_DONE
 * Every call after which output may exist is followed by rs_poll_event and rs_poll_tx until they return false,
 * then rs_deadline.
 * Packets may be batched before polling; an event can then be about a transfer that has ended meanwhile (calls
 * about it say RS_ERR_UNKNOWN).
 * rs_poll_tx makes no events. After RS_EV_SEND_DONE or RS_EV_RECEIVE_DONE statistics stay readable for about a
 * second.
 * Same calls with the same arguments give the same outputs, bit for bit. No call blocks, reads a clock, or does
 * I/O. */
#ifndef RS_CORE_NODE_H
#define RS_CORE_NODE_H

#include "core/base/types.h"

typedef struct rs_node rs_node;
typedef struct rs_engine rs_engine;

typedef enum {
    RS_START_ON_LAST = 0,    /* high rate after the last receiver's INTL_SEQ (the paper's choice) */
    RS_START_ON_FIRST = 1,   /* after the first one's (the alternative of Fig. 8) */
    RS_START_ON_SWITCHES = 2 /* after the last's, or when the path's switches have seen light: rs_path_light */
} rs_start_policy;

typedef enum {
    RS_REPAIRS_BY_LOSS = 0,     /* by multicast, coded, where measured loss says that this costs less than patches */
    RS_REPAIRS_PATCHES_ONLY = 1 /* point to point, as in the paper */
} rs_repair_policy;

/* What becomes of a receiver that takes less than half of what half of the others take, while they wait for it
 * (republic/straggler.c has the rules). */
typedef enum {
    RS_STRAGGLERS_DEFAULT = 0, /* as the node's config says */
    RS_STRAGGLERS_WAIT = 1,    /* all wait for it */
    RS_STRAGGLERS_DEMOTE = 2,  /* it leaves the data channel and is finished by unicast */
    RS_STRAGGLERS_EVICT = 3    /* it fails, with these figures as the cause */
} rs_straggler_policy;

/* Where peers are reached, for what one node tells others of third ones. RS_NO_PEER is this node itself. */
typedef struct {
    rs_peer (*peer_at)(void *context, uint32_t address, uint16_t port); /* RS_NO_PEER: there can be none */
    bool (*place_of)(void *context, rs_peer peer, uint32_t *address, uint16_t *port); /* false: not known */
    uint32_t (*rack_of)(void *context, rs_peer peer); /* its rack's number; 0, or no function: not known */
    /* False: its agent says that it knows no REPORT_TO. Without the function all know it. */
    bool (*knows_tree)(void *context, rs_peer peer);
    /* False: its agent says that it cannot carry to others, nor be carried to. Without the function all can. */
    bool (*carries)(void *context, rs_peer peer);
    /* The name of a server, "" if it has none; and who is there, by what a third one says of it. Of objects: the name
     * that programs gave it, or "". Where there are no functions nothing has a name. */
    const char *(*name_of)(void *context, rs_peer peer);
    rs_peer (*peer_called)(void *context, uint32_t address, uint16_t port, const char *name);
    const char *(*object_name)(void *context, const rs_object_id *object);
    void *context; /* What the functions are called with. */
    /* Where no rack is known: servers whose addresses differ in these low bits only are in one; below 32. */
    uint32_t host_bits;
} rs_directory;

#define RS_FEEDBACK_ARITY_MOST 16u

/* Zero in any field means its default, given in brackets. */
typedef struct {
    uint64_t seed;          /* Of all that is drawn at random here. */
    uint32_t fragment_size; /* payload bytes of a full data packet [8896]; a receiver takes what the sender says */
    int64_t nic_rate_bps; /* what this server's NIC can send, on the wire [10e9]; shared by all transfers being sent */
    /* ia [2 % of the granted path's reconfiguration time; 0.2 ms, slowing down, when that is 0] */
    rs_time attempt_interval;
    /* Consecutive attempt packets a receiver must see before INTL_SEQ [3 under reconfiguration, else 1]; 1 = paper */
    uint32_t light_confirm;
    rs_start_policy start_policy;   /* When high-rate sending begins. */
    rs_repair_policy repairs;       /* Whether losses are mended by coded repairs. */
    rs_time patch_timeout;          /* DATA_FNSD to whoever has not said DATA_RCVD after this [from round trips] */
    rs_time receiver_silence_bound; /* a receiver that says nothing this long while something is owed fails [5 s] */
    rs_time sender_silence_bound;   /* a receiver gives up after this long without a message or a packet [5 s] */
    /* The same, while its control channel stays up: its process was stopped and may go on [sender_silence_bound]. */
    rs_time sender_away_bound;
    rs_time no_path_bound;          /* a wait for something to happen on a path or of the caller; then a cause [60 s] */
    rs_time answer_bound;           /* a wait for the caller's answer to RS_EV_PATH_WANTED [no_path_bound] */
    rs_straggler_policy stragglers; /* for transfers that do not say [wait] */
    uint32_t max_transfers;         /* [1024] */
    uint32_t max_receivers;         /* per transfer [16384] */
    /* More receivers of a transfer than these report by a tree, of which no one collects more than `feedback_arity`
     * others' reports (docs/feedback.md) [32; 8]. Without a directory all report to the sender. */
    uint32_t direct_receivers, feedback_arity;
    rs_directory directory; /* Where peers are reached. */
    bool carries;           /* Of many receivers some carry control messages between the sender and the others. */
    uint64_t secret[2];     /* Nobody else knows it: what proves who speaks is made of it [of the seed] */
    /* The engines of objects that are known; the first one is the fallback [all of this agent: Republic, RDCM]. */
    const rs_engine *const *engines;
    uint32_t engine_count;                /* Length of `engines`. */
    const void *options[RS_ENGINES_MOST]; /* of each engine, by its number, as its own header has them; not kept */
} rs_config;

typedef struct {
    rs_object_id object; /* Application and data id. */
    uint64_t size;       /* bytes, may be 0; RS_STREAM with RS_PROTOCOL_RDCM only */
    rs_digest digest;    /* or it follows, by rs_send_digest */
    const rs_peer *receivers;
    uint32_t receiver_count;        /* Length of `receivers`. */
    rs_straggler_policy stragglers; /* What is done about slow receivers. */
    rs_protocol protocol;           /* wanted; what the grant says is what is done */
    const char *options; /* of that protocol's engine, NAME=VALUE joined by commas, see rs_send_options_good; or NULL */
    bool grows;  /* nothing of it is here yet: rs_send_grown says what is. Only by RS_PROTOCOL_WAN, or patches */
    bool beside; /* other transfers of this object may go to other receivers at the same time */
} rs_send_params;

/* The manager's answer to RS_EV_PATH_WANTED. */
typedef struct {
    rs_group group; /* What the caller knows the multicast group by. */
    /* IPv4, host order: carried to receivers so that they can join. 0, with RS_PROTOCOL_WAN and RS_NO_GROUP: data goes
     * by unicast, between the peers' UDP ports, to the only receiver. */
    uint32_t group_address;
    uint16_t data_port;     /* UDP port of the data packets. */
    uint64_t accepted_size; /* bytes of this session; rounded up to whole fragments; >= remaining = all the rest */
    rs_path_kind kind;
    rs_time reconfiguration; /* expected; 0 = live at once */
    int64_t rate_bps;        /* cap; 0 = unknown */
    rs_time light_bound;     /* RS_EV_NO_LIGHT after this; 0 = never */
    /* RS_PROTOCOL_RDCM: for a packet path that accepts all of the object, its first, to all receivers; otherwise
     * Republic, and a log. */
    rs_protocol protocol;
    bool no_overlay; /* RS_PROTOCOL_RDCM: there will be no view (rs_set_view), none is waited for */
    /* Of the receivers that the path was wanted for, those it serves; 0 = all. The others then want one of their own.
     * Not kept. */
    const rs_peer *receivers;
    uint32_t receiver_count; /* Length of `receivers`. */
    /* Receivers that saw nothing of earlier paths: their light is not waited for. Whoever has light all the same takes
     * part. Not kept. */
    const rs_peer *dark;
    uint32_t dark_count; /* Length of `dark`. */
    uint32_t tree_links; /* Links of the path's tree, the sender's own included; 0: not known. */
    uint32_t path_links; /* Links of the ways to each of its receivers, all together. */
} rs_path_grant;

typedef enum {
    /* sender */
    RS_EV_PATH_WANTED, /* ask the manager for a path for `bytes` remaining bytes, to whom rs_path_wants says */
    RS_EV_PHASE,       /* the session entered `phase` */
    RS_EV_FIRST_LIGHT, /* INTL_SEQ of `peer` came in, initial sn in `sn` */
    RS_EV_PEER_KEPT,   /* `peer` has some of it from before, and fetches the rest: nothing is sent to it */
    RS_EV_NO_LIGHT,    /* `peer` got nothing within light_bound, or before all the others were served (one each) */
    /* DATA_RCVD of `peer`; `bytes` = fragments patched or repaired for it. `had_it`: the object was there before. */
    RS_EV_PEER_DONE,
    RS_EV_PEER_FAILED, /* `peer` is given up, `cause` says why; the others go on */
    RS_EV_PEER_LEFT,   /* `peer` wants it no more: that is no failure, as long as somebody gets it */
    RS_EV_PATH_DONE,   /* the data channel is done: release the path (before the last patches) */
    /* Every receiver is done or failed (`ok`: none failed; `bytes`: receivers done); its id is invalid after this. */
    RS_EV_SEND_DONE,
    /* receiver */
    /* A sender announces an object: make room and join the group (rs_incoming_info), then rs_incoming_accept, refuse or
     * have. */
    RS_EV_INCOMING,
    /* A further session of an accepted transfer: join its group (rs_incoming_info) and call rs_incoming_accept again
     * with it; the old group may be left. */
    RS_EV_SESSION,
    RS_EV_COMPLETE, /* every byte is there: check the digest, then rs_verified */
    RS_EV_DIGEST,   /* the digest, which was to follow, has come (rs_incoming_info) */
    /* `ok`, or given up with `cause`: discard the partial object; the id is invalid after this. With RDCM it comes
     * when nobody needs repairs from here any more: the object is the application's after rs_verified already. */
    RS_EV_RECEIVE_DONE,
    /* RDCM, receivers; tell the manager */
    RS_EV_RECEIVER_FAILED, /* `peer`, the successor in `ring`, acknowledges nothing, repairs included */
    /* `peer`, the successor in `ring`, gets all by repair: a link above it has failed. Again while it goes on, at
     * growing intervals, until there is another view or... */
    RS_EV_LINK_SUSPECTED,
    RS_EV_LINK_WORKS, /* ...packets come to it by the tree again */
    /* RDCM, sender and receivers: the view of this version is in use: predecessors can repair, old rings are left */
    RS_EV_VIEW_USED,
    /* RDCM, a stream's sender and receivers: rs_stream_window has moved. Once until it is called. */
    RS_EV_STREAM_MOVED,
    /* both */
    RS_EV_PEER_WANTED, /* something must go to `peer` and it is not up: connect, then rs_peer_up or rs_peer_down */
    RS_EV_RETAKE,      /* sender: take the digest of piece `sn` again, then rs_send_retaken for `peer` */
    RS_EV_LOG          /* something a person may want to know, in `cause` (rate found, policy chosen, ...) */
} rs_event_kind;

typedef enum { RS_PHASE_WAITING, RS_PHASE_ATTEMPT, RS_PHASE_HIGH_RATE, RS_PHASE_PATCHING, RS_PHASE_DONE } rs_phase;

typedef struct {
    rs_event_kind kind; /* What happened. */
    rs_xfer xfer;       /* The transfer that it is about. */
    rs_peer peer;       /* The other server that it is about. */
    rs_phase phase;     /* Of a sender. */
    bool ok, had_it;    /* It ended well; the object was there before. */
    /* RS_EV_RECEIVE_DONE: another server's RS_EV_INCOMING of the same object follows; the first `bytes` are here */
    bool replaced;
    uint64_t bytes;   /* Bytes or counts, as the kind says. */
    uint64_t sn;      /* The fragment, or the piece, as the kind says. */
    uint64_t version; /* of the view in use */
    rs_ring_kind ring;
    uint32_t session; /* The session that it is about, from 1 on. */
    char cause[160];  /* Why, for people; empty: nothing is said. */
} rs_event;

/* What a receiver's caller needs to know of a transfer (RS_EV_INCOMING, RS_EV_SESSION). */
typedef struct {
    rs_object_id object;    /* Application and data id. */
    uint64_t size;          /* Bytes of it; RS_STREAM: not known yet. */
    uint32_t fragment_size; /* Bytes of each fragment but the last. */
    rs_digest digest;       /* Length 0: it follows. */
    rs_peer sender;         /* Who sends it. */
    uint32_t group_address; /* 0: no data channel, the object comes over the control channel; accept with RS_NO_GROUP */
    uint16_t data_port;
    uint32_t session; /* The session that it is about, from 1 on. */
    uint64_t nonce;   /* Of the transfer; further sessions have the same. */
} rs_incoming;

/* Counters and state of one transfer; what is of the other side only is 0. */
typedef struct {
    bool sending;   /* It is sent from here. */
    rs_phase phase; /* Of a sender. */
    /* receiver: bytes stored so far; sender: bytes of distinct fragments sent, the mean of all receivers that did not
     * fail (they differ where paths serve some of them only) */
    uint64_t size, bytes_present;
    uint64_t fragments;         /* Its size in fragments. */
    uint64_t packets_sent;      /* data packets, all phases */
    uint64_t packets_attempt;   /* of these, during attempt sending */
    uint64_t packets_redundant; /* of these, beyond one per fragment of each session */
    uint64_t patches_sent, patches_received;
    uint64_t packets_received, packets_old; /* Receiver: packets; those with nothing new. */
    uint64_t lost;                          /* receiver: fragments found missing by the three cases */
    uint64_t repairs_sent;                  /* coded repair packets, besides packets_sent */
    uint64_t repairs_mended;                /* sender: losses they mended, all receivers together */
    uint64_t repairs_received;              /* receiver: of these, repairs_used gave a fragment */
    uint64_t repairs_used;
    int64_t rate_bps; /* sender: present pacing rate, on the wire */
    uint32_t receivers, receivers_done, receivers_failed;
    rs_time granted_at, high_rate_at, data_done_at; /* 0 = not yet; of the last session */
    /* RDCM. At the sender, packets_redundant counts what it sent again by multicast. */
    rs_protocol protocol;
    uint64_t view;                                     /* version of the newest; 0 = none yet */
    uint64_t acks_sent, acks_received;                 /* packets */
    uint64_t peer_repairs_sent, peer_repairs_received; /* data packets within rings; of the received ones */
    uint64_t peer_repairs_old;                         /* were here already */
    uint64_t fragments_refused;                        /* receiver: of a stream, their bytes were not the sender's */
    uint64_t requests_sent; /* ranges asked of the sender; what came of it is in patches_received */
    uint64_t losses;        /* receiver: packets missed on the tree, as congestion control counts them */
    uint64_t window;        /* receiver: congestion window; sender: how far it may run ahead of what is acknowledged */
    rs_time ack_timeout;    /* present, of the leaf ring or of the highest one */
    rs_time sender_ack_rtt; /* sender: smoothed time from sending to the first ACK */
} rs_xfer_stats;

/* The engines of this agent: bit e, it has engine e. */
uint32_t rs_engines_here(void);
/* What a caller has to know of an engine: */
typedef enum {
    RS_ENGINE_STREAMS = 1 << 0, /* It carries what has no known end. */
    RS_ENGINE_PARTS = 1 << 1,  /* An object may go by several paths, each for some of the receivers or the fragments. */
    RS_ENGINE_SERVES = 1 << 2, /* A receiver that has all repairs for others: it keeps the object until it is done. */
    RS_ENGINE_UNICAST = 1 << 3 /* To one receiver it goes without a group, too. */
} rs_engine_trait;
bool rs_engine_has(uint32_t engine, rs_engine_trait trait); /* false, too: the engine is not here */
const char *rs_engine_name(uint32_t engine); /* its name in commands and towards the manager; NULL: it is not here */

/* NULL if out of memory or the config is invalid. The config is copied. */
rs_node *rs_node_new(const rs_config *config, const rs_allocator *allocator);
void rs_node_free(rs_node *node);

/* Time and packets. */
rs_rx_result rs_receive(rs_node *node, rs_time now, const rs_packet_in *packet);
void rs_timeout(rs_node *node, rs_time now);
rs_time rs_deadline(const rs_node *node);                        /* RS_NEVER if nothing is due */
bool rs_poll_tx(rs_node *node, rs_time now, rs_packet_out *out); /* false: nothing to send now */
bool rs_poll_event(rs_node *node, rs_event *out);

/* The caller's connection to a peer. Packets on RS_CH_PEER_RELIABLE come out only for peers that are up and writable.
 * After rs_peer_down what was handed out may be lost: the core repeats what still matters when the peer is up again,
 * within the silence bound. RS_CH_PEER_DATAGRAM needs none of this: what the caller cannot send is lost. */
rs_status rs_peer_up(rs_node *node, rs_time now, rs_peer peer);
/* The round trip to it, as that connection knows it. */
rs_status rs_peer_measured(rs_node *node, rs_peer peer, rs_time round_trip);
/* All that is to be said to it is of sends that nobody carries messages of: it does not matter what it knows. */
bool rs_peer_is_plain(const rs_node *node, rs_peer peer);
rs_status rs_peer_down(rs_node *node, rs_time now, rs_peer peer, const char *cause);
rs_status rs_peer_writable(rs_node *node, rs_time now, rs_peer peer, bool writable);
/* Packets this node's sockets dropped on a group since the last call: makes the receivers' feedback say so. */
rs_status rs_receive_drops(rs_node *node, rs_time now, rs_group group, uint64_t drops);
/* The newest data packet received of a group had waited so long in this host before it was read: senders do not take
 * that for a queue of the network. 0: not known; below 0: it came after the time that it was taken in with. */
void rs_receive_waited(rs_node *node, rs_group group, rs_time waited);

/* Whether an engine takes these options of a send; if not, why. */
bool rs_send_options_good(const rs_node *node, rs_protocol protocol, const char *options, char *text, size_t size);
/* What the data packets of a transfer that is sent carry, for who hears them without being a receiver. */
rs_status rs_send_nonce(const rs_node *node, rs_xfer xfer, uint64_t *nonce);
/* Whether a transfer of that nonce is under way here. */
bool rs_nonce_is_used(const rs_node *node, uint64_t nonce, bool sending);
/* From whom a transfer of that nonce comes in; RS_NO_PEER: none does. */
rs_peer rs_nonce_sender(const rs_node *node, uint64_t nonce);
/* Sender. RS_ERR_EXISTS if that object is already being sent from here. */
rs_status rs_send_open(rs_node *node, rs_time now, const rs_send_params *params, rs_xfer *out);
rs_status rs_path_granted(rs_node *node, rs_time now, rs_xfer xfer, const rs_path_grant *grant);
/* The receivers it was wanted for fail. */
rs_status rs_path_denied(rs_node *node, rs_time now, rs_xfer xfer, const char *cause);
/* The digest of an object that was opened without one. RS_ERR_STATE if it has one, RS_ERR_INVALID if the algorithm is
 * another. */
rs_status rs_send_digest(rs_node *node, rs_time now, rs_xfer xfer, const rs_digest *digest);
/* The digests of the object's pieces in order, each as long as the object's: receivers whose copy has a wrong digest
 * find by them what to fetch again. They are not copied, and must stay until RS_EV_SEND_DONE. */
rs_status rs_send_leaves(rs_node *node, rs_xfer xfer, const uint8_t *leaves, uint64_t count);
/* The answer to RS_EV_RETAKE. Not `same`: the bytes have changed here, and that receiver fails with this cause. */
rs_status rs_send_retaken(rs_node *node, rs_time now, rs_xfer xfer, rs_peer peer, uint64_t leaf, bool same);
/* Whether the path that is wanted now is wanted for this receiver. */
bool rs_path_wants(const rs_node *node, rs_xfer xfer, rs_peer peer);
/* The path moved (for example to the packet network) under the same group: attempt again until light. */
rs_status rs_path_moved(rs_node *node, rs_time now, rs_xfer xfer, rs_path_kind kind);
/* The path's switches have seen data packets arrive at every receiver's: with RS_START_ON_SWITCHES high rate need not
 * wait for their INTL_SEQ. A hint: who says none within one round is waited for as ever. */
rs_status rs_path_light(rs_node *node, rs_time now, rs_xfer xfer);
/* The path of the next session, granted already, moved, or is gone: then another one is wanted. RS_ERR_STATE: there is
 * none. */
rs_status rs_next_path_moved(rs_node *node, rs_time now, rs_xfer xfer, rs_path_kind kind);
rs_status rs_next_path_failed(rs_node *node, rs_time now, rs_xfer xfer);
/* The caller's process was stopped for a while, which its clock `now` leaves out: what was measured across that means
 * nothing. Call it before anything else is sent, and hand in what came meanwhile before rs_timeout. */
void rs_node_paused(rs_node *node, rs_time now);
/* While `held` nothing goes out on granted paths, for whose being there the caller asks the manager first. Everything
 * else does. */
void rs_node_hold(rs_node *node, rs_time now, bool held);
/* The path is gone: what is missing goes to each receiver by patches (unicast), or to each that the path was for, if
 * others still want theirs; if no path was ever granted, all fail with the cause. */
rs_status rs_path_failed(rs_node *node, rs_time now, rs_xfer xfer, const char *cause);
rs_status rs_send_cancel(rs_node *node, rs_time now, rs_xfer xfer, const char *cause);

/* Of an object that `grows`: so many bytes of it, from its beginning, are here. Never less than before. */
rs_status rs_send_grown(rs_node *node, rs_time now, rs_xfer xfer, uint64_t bytes);
/* Of such an object: more of it has come by the transfer `from`, of a wide area, with gaps. An engine that can sends
 * what is beyond them, too, by unicast. */
rs_status rs_send_comes_by(rs_node *node, rs_time now, rs_xfer xfer, rs_xfer from);

/* Receiver. */
/* After RS_EV_INCOMING, before it is accepted: these first bytes are here already, from another server. */
rs_status rs_incoming_resume(rs_node *node, rs_xfer xfer, uint64_t bytes);
/* So many bytes of the object are here without a gap, at least `from`, which was the answer before. */
rs_status rs_receive_prefix(const rs_node *node, rs_xfer xfer, uint64_t from, uint64_t *bytes);
/* So many fragments are here, with gaps or without. */
uint64_t rs_receive_count(const rs_node *node, rs_xfer xfer);
rs_status rs_incoming_info(const rs_node *node, rs_xfer xfer, rs_incoming *out);
/* `room`: bytes of data packets that may wait for the group before any is dropped; 0 = unknown. */
rs_status rs_incoming_accept(rs_node *node, rs_time now, rs_xfer xfer, rs_group group, uint64_t room);
rs_status rs_incoming_refuse(rs_node *node, rs_time now, rs_xfer xfer, const char *cause);
/* The whole object, checked, is here already: the sender counts this receiver as done. Like refuse, it ends the id; no
 * event follows. */
rs_status rs_incoming_have(rs_node *node, rs_time now, rs_xfer xfer);
/* Some of it is here from before, and the rest is being fetched otherwise: the sender sends nothing for this receiver,
 * and asks again until it has it (rs_incoming_have) or not (rs_incoming_refuse). It ends the id; no event follows. */
rs_status rs_incoming_kept(rs_node *node, rs_time now, rs_xfer xfer);
rs_status rs_verified(rs_node *node, rs_time now, rs_xfer xfer, bool ok, const char *cause);
/* After RS_EV_COMPLETE, while the digest is wrong. The first asks the sender for the digests of pieces, as many as one
 * message holds, at most `count`: they come as RS_RX_LEAVES. `retake`, of one piece: the sender looks at its bytes
 * again; if they are others than before, it says so and the transfer ends. The second fetches the fragments over which
 * these bytes extend once more, and says which bytes that are; RS_EV_COMPLETE comes again when they are here. */
rs_status rs_leaves_want(rs_node *node, rs_time now, rs_xfer xfer, uint64_t first, uint16_t count, bool retake);
rs_status rs_fetch_again(rs_node *node, rs_time now, rs_xfer xfer, uint64_t *offset, uint64_t *length);
/* The application gave up on the object, or the store must have the room back. */
rs_status rs_receive_cancel(rs_node *node, rs_time now, rs_xfer xfer, const char *cause);
/* The application wants it no more, and nothing is wrong: the sender and the others go on without this receiver. Where
 * receivers repair each other it goes on doing so for a moment, in which the manager makes an overlay without it: so
 * payloads are still handed in, and RS_EV_RECEIVE_DONE comes then. */
rs_status rs_receive_leave(rs_node *node, rs_time now, rs_xfer xfer);
/* Where the next data packet of a group most likely belongs, for I/O that scatters payloads to their final place:
 * transfer and offset of the `ahead`-th next expected fragment, false if there is none or it is already present. No two
 * values of `ahead` name the same fragment until the next call of rs_receive. */
bool rs_predict(const rs_node *node, rs_group group, uint32_t ahead, rs_xfer *xfer, uint64_t *offset, uint32_t *length);

/* RDCM. Hands in what concerns this node of a transfer's overlay; to senders from rs_send_open on, to receivers from
 * RS_EV_INCOMING on. An older or equal version changes nothing (RS_OK). RS_ERR_STATE: the transfer does not run by
 * RDCM, or no longer (what is left goes by unicast). Nothing of `view` is kept by reference. */
rs_status rs_set_view(rs_node *node, rs_time now, rs_xfer xfer, const rs_view *view);

/* A continuing stream: rs_send_open with size RS_STREAM and RS_PROTOCOL_RDCM. Payloads are named by offset as ever, in
 * a stream that only grows; what is kept of it is a window: bytes [*first, *end), at most as many fragments as this
 * node's window takes (RDCM: window_packets).
 * Sender: says by rs_stream_extend up to which byte there is data, never beyond *end (RS_ERR_LIMIT). What is not `last`
 * is a multiple of the fragment size. Bytes before *first are not needed any more.
 * Receiver: has all before *here; must keep [*first, *here) for others, and room up to *end. RS_EV_COMPLETE and
 * rs_verified come at the end, as for an object.
 * Who is left behind by more than the window (it was dead to its peers) fails. */
rs_status rs_stream_extend(rs_node *node, rs_time now, rs_xfer xfer, uint64_t bytes, bool last);
rs_status rs_stream_window(rs_node *node, rs_xfer xfer, uint64_t *first, uint64_t *here, uint64_t *end);

/* Receiver: the caller needs nothing before `bytes` any more, a multiple of the fragment size or the end. Once this was
 * called, the window does not go further than that: a caller that takes nothing holds the sender back. Until then all
 * that is here counts as taken. RS_ERR_INVALID beyond *here. */
rs_status rs_stream_taken(rs_node *node, rs_time now, rs_xfer xfer, uint64_t bytes);

/* Receiver: bytes of a stream have no digest that tells later which of them are wrong, so the caller looks at each
 * fragment before it hands the packet in (rs_receive), or refuses it. False: the packet is none of a stream that comes
 * in here. */
typedef struct {
    rs_xfer xfer;    /* The transfer that it is about. */
    uint64_t offset; /* Byte of the stream at which the fragment begins. */
    bool lacks;      /* it is not here, and there is room for it */
} rs_stream_piece;
bool rs_stream_piece_of(const rs_node *node, const rs_packet_in *packet, rs_stream_piece *out);
/* Instead of rs_receive: these are not the bytes that the sender sealed. The fragment is still missing, and the sender
 * is asked for it soon. Only when it comes wrong over the sender's own connection as well, 8 times, does this receiver
 * fail. */
void rs_stream_piece_refuse(rs_node *node, rs_time now, const rs_packet_in *packet);

rs_status rs_xfer_stats_get(const rs_node *node, rs_xfer xfer, rs_xfer_stats *out);

/* The one bound of memory of all sends by an engine, in bytes. */
typedef struct {
    uint64_t bound;     /* They may have so many, */
    uint64_t used;      /* have so many: sent, and perhaps needed again, */
    uint64_t used_most; /* had so many at most, */
    uint64_t wanted;    /* and could use so many. */
    uint32_t sends;     /* That share it now. */
} rs_send_buffers;

/* RS_ERR_UNKNOWN: the engine is not known here, or has no such bound. */
rs_status rs_send_buffers_get(const rs_node *node, rs_protocol protocol, rs_send_buffers *out);

#endif
