/* The parts of one rs_messages node, for the files of this folder:
 *   node.c      life, config, what goes out            views.c    groups and their versions
 *   streams.c   what is here of each (sender, group)    arrive.c   a data packet's way
 *   missing.c   what is known to be missing             asking.c    when it is asked for, and of whom: NAKs
 *   publish.c   messages become packets                 heartbeats.c  the last packet before a pause
 *   peers.c     who is known, and what they may be given
 *   positions.c how far a publisher is, if nothing says so
 *   answers.c   packets that are asked for              intake.c   packets that wait for the node
 *   deliver.c   order, large messages, events
 *   regions.c, plane.c   who is to get repairs of what (Ricochet, Sec. 4.1)
 *   bins.c      repairs being made                      kept.c     repairs received */
#ifndef RS_CORE_MESSAGES_STATE_H
#define RS_CORE_MESSAGES_STATE_H

#include "core/base/list.h"
#include "core/base/timers.h"
#include "core/groups/log.h"
#include "core/groups/messages.h"
#include "core/groups/wire.h"
#include "core/ricochet/plane.h"

#define RS_GM_PLANES 8
#define RS_GM_ENGINES 2
#define RS_GM_MEMBERS_MOST (1u << 20)
#define RS_GM_CHUNK 64u          /* streams, or repairs, allocated at a time */
#define RS_GM_LEAST_WINDOW 8u    /* slots of a stream that was just heard of */
#define RS_GM_LATE_JOIN 64u      /* a stream first heard further into a view than this is taken from there on */
#define RS_GM_LOST_RESERVE 1024u /* events of losses that fit beside `deliveries` */
#define RS_GM_SMALLS 4096u       /* NAKs and heartbeats that wait to be sent */
#define RS_GM_REPAIRS_WAITING 8192u
#define RS_GM_RETRANSMITS 8192u /* a power of two */
#define RS_GM_ANSWERED 1024u    /* answers that are remembered; a power of two */
#define RS_GM_EARLY 64u         /* packets that wait for a view, at most */
#define RS_GM_NUMBERS 4096u     /* groups whose numbering is remembered when they are forgotten */
#define RS_GM_DEPARTED_BOUND (32 * INT64_C(1000000000)) /* ... and so long they are asked how far they were */
#define RS_GM_DEPARTED 1024u /* streams of senders that left their group, kept so that a return goes on with them */
#define RS_GM_ASK_LEAST (4 * INT64_C(1000000)) /* a packet is not asked for again sooner, and not given again */

/* What a node knows of one packet of a stream: tag in the low bits, above it where it is. */
typedef uint64_t rs_gm_slot;
#define RS_GM_TAG 3u
#define RS_GM_GONE 0u    /* given up */
#define RS_GM_MISSING 1u /* number of its rs_gm_missing << 2 */
#define RS_GM_RECORD 2u  /* received, or published here: its place in the log (a multiple of 16) */

typedef struct rs_gm_group rs_gm_group;

/* Packets that may be asked for a second (asking.c): more with each answer, less with each that does not come. */
typedef struct {
    uint64_t per_s;
    rs_time next; /* when the next may be; in the past: what was not used is left */
} rs_gm_budget;

/* How fast packets arrive, of late. */
typedef struct {
    rs_time at; /* of the last look, and what had arrived until then */
    uint64_t bytes, packets;
    uint64_t bytes_per_ms, packets_per_ms;
} rs_gm_pace;

/* A server that views name. */
typedef struct rs_gm_peer {
    struct rs_gm_peer *next; /* in its bucket */
    rs_peer peer;
    uint32_t incarnation; /* the only one that is believed; 0: not known yet */
    uint32_t groups;      /* lists that name it: it goes with the last */
    uint64_t allowance;   /* bytes of packets it may still ask for */
    uint64_t written;     /* in both logs, when that was last reckoned */
} rs_gm_peer;

/* A data packet of a sender that no view lists yet. */
typedef struct {
    rs_time at;
    rs_peer sender;
    uint32_t length;
    uint8_t *bytes;
} rs_gm_early;

/* One sender in one group. Slots are a ring over the newest `capacity` sns; what is older is settled. */
typedef struct {
    rs_peer sender;
    uint32_t incarnation;
    rs_gm_group *group; /* NULL: not in use */
    rs_gm_slot *slots;
    uint32_t capacity;     /* a power of two */
    uint32_t number;       /* in node->chunks */
    uint64_t base;         /* nothing before this is of interest here: it was sent before this node joined */
    uint64_t high;         /* newest sn known of; base - 1 = none yet */
    uint64_t next;         /* FIFO: what is delivered next */
    uint64_t dropped;      /* first sn of the message that was last given up in the middle; 0 = none */
    uint64_t seen;         /* newest sn of which the packet itself came, or an own one was sent; 0 = none */
    uint64_t outside;      /* sn of the last packet or claim that was too far off to be believed; 0 = none */
    uint64_t floor;        /* high before what is known of it jumped forward: what is not above it is settled */
    uint64_t mark, recent; /* high at the last look at its window, and how many packets came before that */
    uint32_t missing;      /* packets */
    rs_gm_peer *peer;      /* NULL: its sender has left the group (or anybody may publish) */
    rs_time departed_at;   /* then: when that was */
    rs_time heard_at;      /* the sender itself was heard last: a packet by multicast, or its position */
    bool own, settled_base, delivered;
    rs_list in_group, assemblies;
    rs_list wide;     /* in node->wide while the window is more than the least */
    rs_list departed; /* in node->departed */
    uint32_t next_free;
} rs_gm_stream;

struct rs_gm_group {
    rs_message_group id;
    uint64_t version;
    uint64_t joined; /* the first version of which this node was a member, without break since */
    rs_group channel;
    rs_messages_protocol protocol;
    rs_messages_order order;
    uint32_t r, c_milli, stagger;
    bool member, naks, open;
    rs_peer *members, *publishers; /* sorted */
    uint32_t member_count, publisher_count;
    rs_list streams;
    rs_lec_group *lec; /* NULL: no repairs are made of it here */
    rs_gm_stream *own;
    struct { /* views under which this node published, the newest last: the first sn under each */
        uint64_t version, first;
    } past[RS_GM_VIEWS];
    uint32_t past_count;
    rs_gm_budget asks;
    uint64_t passed;      /* packets of all senders that are here or missing, own ones too */
    struct {              /* how fast they come, of late: asking.c */
        rs_time at, each; /* of the last look; ns, 0 = not known */
        uint64_t passed;
    } pace;
    rs_timer heartbeat;
    rs_list beating; /* in node->beating while heartbeats are to come */
    rs_time published_at, beat_at;
    uint32_t beats;
    uint32_t told;     /* by heartbeats of other groups since: members of 256 that heard, added up */
    uint32_t position; /* in node->groups */
    rs_time member_since;
    rs_timer query; /* publishers that were not heard are asked how far they are */
    uint32_t query_rounds, query_cursor;
};

/* A repair that cannot be used yet; `link` joins it to each packet it waits for. */
typedef struct rs_gm_kept rs_gm_kept;

typedef struct {
    rs_list in_missing;
    rs_gm_kept *kept;
    uint32_t missing;
} rs_gm_link;

struct rs_gm_kept {
    rs_list order; /* oldest first, or ready, or free */
    uint32_t count, length;
    rs_gm_link link[RS_MESSAGES_R_MAX]; /* the first `count`, by increasing number */
    uint8_t *bytes;                     /* XOR of the missing packets' bodies */
};

typedef struct {
    rs_timer ask;         /* when it is asked for (again) */
    rs_list doom;         /* by discovery */
    rs_list kept;         /* links of repairs that wait for it */
    rs_gm_stream *stream; /* NULL: free */
    uint64_t sn;
    rs_time discovered, asked;
    uint32_t next_free;
    uint16_t rounds;               /* times that it was asked for */
    bool waits, reserved, put_off; /* for an answer; its turn is in the budgets; for the answer to another */
} rs_gm_missing;

/* A large message being put together. */
typedef struct {
    rs_list in_stream;
    rs_list by_age;
    rs_gm_stream *stream;
    uint64_t first;
    uint32_t total, have, count, got;
    rs_time started;
    uint8_t *bytes;
} rs_gm_assembly;

typedef struct {
    uint8_t kind, via, reason;
    rs_message_group group;
    rs_peer sender;
    uint32_t incarnation, part, offset, length;
    uint64_t sn, count;
    uint64_t at; /* place in the log of received packets, if `assembly` is NULL */
    rs_time late;
    rs_gm_assembly *assembly;
} rs_gm_event;

typedef struct {
    rs_list order;
    rs_channel channel;
    rs_peer peer;
    rs_group group;
    uint32_t length;
    uint8_t bytes[RS_GM_NAK_MOST];
} rs_gm_small;

typedef struct {
    uint64_t at;
    bool own; /* in the log of own packets */
    uint32_t length;
    rs_peer peer;
    uint8_t header[RS_GM_HEADER];
} rs_gm_retransmit;

typedef struct {
    uint64_t at;
    rs_time when;
    rs_peer peer;
    bool own, used;
} rs_gm_answered;

/* A mean and the mean deviation from it, of what came of late (as of round trips in RFC 6298). */
typedef struct {
    rs_time mean, deviation; /* both 0: nothing came yet */
} rs_gm_measure;

/* One word of the hash table of streams. */
typedef struct {
    rs_peer sender;
    rs_message_group group;
    uint32_t number; /* + 1; 0 = empty */
} rs_gm_place;

/* What an engine has to do for its groups; a protocol is a row of the table in engines.c. */
typedef struct rs_gm_engine {
    rs_messages_protocol protocol;
    const char *name;
    bool naks; /* unless the view says without */
    /* Any may be NULL. `group` is as it was (no members if it is new), `next` as it is going to be.
     * A view is about to hold: checks its options and makes room; nothing has changed yet. */
    rs_status (*prepare)(rs_messages *node, const rs_gm_group *group, const rs_gm_group *next);
    /* Cannot fail. Called for the engine that the group leaves, too. */
    void (*change)(rs_messages *node, rs_gm_group *group, const rs_gm_group *next);
    /* A new data packet came by multicast. */
    void (*received)(rs_messages *node, rs_time now, rs_gm_group *group, const uint8_t *datagram, uint32_t length);
} rs_gm_engine;

struct rs_messages {
    rs_messages_config config;
    rs_allocator allocator;
    uint64_t random;
    rs_messages_stats stats;
    rs_timers timers;
    rs_gm_engine engines[RS_GM_ENGINES];

    rs_gm_group **groups; /* group_count of them */
    rs_gm_group **group_table;
    uint32_t group_count, group_mask;

    rs_gm_stream **chunks;
    uint32_t chunk_count, stream_free; /* number + 1 of the first free one */
    rs_gm_place *places;
    uint32_t place_mask, place_count;
    uint64_t own_windows; /* bytes: not counted in the bound of the others */
    rs_list wide, departed;
    uint32_t departed_count;
    rs_time sweep_at; /* windows are looked at then; RS_NEVER: all are the least */

    rs_gm_peer **peers;
    uint32_t peer_mask, early_count;
    rs_gm_early early[RS_GM_EARLY]; /* the oldest first */
    uint8_t *early_bytes;

    struct { /* groups forgotten: how far this node's own numbers were in them */
        rs_message_group group;
        uint64_t high;
    } * numbers; /* RS_GM_NUMBERS, a ring */
    uint32_t number_count, number_next;
    uint64_t number_least; /* of those that it has no room for any more: own streams begin above */

    rs_gm_log in, out;
    uint64_t sent; /* place in `out`: what is behind it waits to be sent */
    uint64_t last_published;

    rs_gm_missing *missing;
    uint32_t missing_used, missing_free;
    rs_list doom, doom_plain;
    rs_timers asking;
    rs_gm_budget asks;
    rs_gm_pace pace;
    rs_gm_measure answer, repair; /* how long the answer to a NAK takes, and a repair after discovery */
    uint32_t hope;                /* share of what did not come at once that repairs brought, of 65,536 */

    rs_gm_kept *kept; /* kept_repairs of them */
    uint32_t kept_used;
    rs_list kept_order, kept_ready, kept_free;
    uint8_t *scratch; /* a datagram made out of a repair */

    rs_list assemblies; /* by age */
    uint64_t assembly_bytes;
    rs_gm_event *events;
    uint64_t event_head, event_tail; /* tail - head of them wait */
    uint64_t event_room;             /* a power of two */
    uint64_t losses_unreported;

    rs_timers queries;
    rs_time queries_from; /* of the second in which so many positions were asked for */
    uint32_t queries_sent;

    rs_list beating;     /* groups with heartbeats to come, by when they were published to */
    uint64_t seen, lost; /* packets that crossed the network, and those lost on it, until the last look */
    uint64_t asked_here; /* own packets that others asked for */
    uint32_t loss_milli; /* share of them */
    bool loss_known;

    rs_list smalls, smalls_free;
    uint32_t smalls_made;
    rs_gm_answered *answered;
    rs_gm_retransmit *retransmits;
    uint32_t retransmit_head, retransmit_tail;
    rs_list repairs;
    uint32_t repairs_waiting;
    rs_lec lec;

    rs_list handed_smalls, handed_repairs, handed_assemblies; /* given out, until the next call */

    uint8_t *intake;
    uint32_t *intake_order, *intake_length, *intake_free, *intake_from; /* intake_packets of each */
    uint32_t intake_count;
};

/* Whether a datagram that says it is of `maker` may be: it came from there, or nobody knows whence. */
static inline bool rs_gm_is_from(rs_messages *node, rs_peer from, rs_peer maker) {
    node->stats.strangers += from != RS_NO_PEER && from != maker;
    return from == RS_NO_PEER || from == maker;
}

/* Whether a datagram that was decoded is as its maker sealed it; if not, it is dropped, and as good as lost. */
static inline bool rs_gm_intact(rs_messages *node, const uint8_t *bytes, size_t length) {
    bool intact = rs_gm_is_intact(bytes, length);
    node->stats.corrupt += !intact;
    return intact;
}

/* node.c */
void *rs_gm_alloc(rs_messages *node, size_t size);
void rs_gm_release(rs_messages *node, void *memory);
uint64_t rs_gm_mix(uint64_t value);
uint64_t rs_gm_random(rs_messages *node);
uint32_t rs_gm_random_below(rs_messages *node, uint32_t bound);
/* What was given out is the node's again. */
void rs_gm_take_back(rs_messages *node);
rs_gm_small *rs_gm_small_new(rs_messages *node);

/* engines.c */
/* The table of all engines; each node has its own, since the core has no data of its own. */
void rs_gm_engines_init(rs_gm_engine engines[RS_GM_ENGINES]);
const rs_gm_engine *rs_gm_engine_of(const rs_messages *node, rs_messages_protocol protocol);

/* peers.c */
/* NULL: no view names it. */
rs_gm_peer *rs_gm_peer_find(const rs_messages *node, rs_peer peer);
/* Those that `next` lists and `group` does not are known from now on. False: no memory, all is as it was. */
bool rs_gm_peers_hold(rs_messages *node, const rs_gm_group *group, const rs_gm_group *next);
/* Those that `group` lists and `next` does not are of no interest for this group any more. */
void rs_gm_peers_let_go(rs_messages *node, const rs_gm_group *group, const rs_gm_group *next);
void rs_gm_peers_free(rs_messages *node);
bool rs_gm_is_member(const rs_gm_group *group, rs_peer peer);
bool rs_gm_may_publish(const rs_gm_group *group, rs_peer peer);
/* The view lists the sender, and as far as is known it runs with that incarnation. */
bool rs_gm_believes(const rs_messages *node, const rs_gm_group *group, rs_peer sender, uint32_t incarnation);
/* So many bytes may be sent to it because it asked: in all not much more than was multicast before it. */
bool rs_gm_peer_gets(rs_messages *node, rs_peer peer, uint32_t bytes);
/* A data packet whose sender no view lists waits for a view. */
void rs_gm_early_keep(rs_messages *node, rs_time now, rs_peer sender, const uint8_t *bytes, size_t length);
/* The group has a new view: packets that waited for it are received. */
void rs_gm_early_look(rs_messages *node, rs_time now, const rs_gm_group *group);

/* views.c */
rs_gm_group *rs_gm_group_find(const rs_messages *node, rs_message_group id);
void rs_gm_group_free(rs_messages *node, rs_gm_group *group);

/* streams.c */
rs_gm_stream *rs_gm_stream_find(const rs_messages *node, rs_peer sender, rs_message_group group);
/* NULL if no stream ever had that number; it may be out of use (group == NULL). */
rs_gm_stream *rs_gm_stream_numbered(const rs_messages *node, uint32_t number);
bool rs_gm_streams_init(rs_messages *node);
/* A stream of that id, made or made anew if need be; NULL if the view does not list the sender, the id is of another
 * incarnation than the sender's, or there is no room. `own_word`: the sender says so itself, and is believed if its
 * incarnation is not known yet. `*fresh`: nothing was heard of it before. */
rs_gm_stream *rs_gm_stream_get(rs_messages *node, rs_gm_group *group, const rs_gm_id *id, bool own_word, bool *fresh);
/* Like new from `sn` on: what was missing of it is forgotten. */
void rs_gm_stream_restart(rs_messages *node, rs_gm_stream *stream, uint64_t sn);
/* All up to `sn` is out of reach, and told as lost. */
void rs_gm_stream_jump(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn);
/* The group's view has changed: streams of who is not in it any more are kept a while, and used no more. */
void rs_gm_streams_view(rs_messages *node, rs_time now, rs_gm_group *group);
/* Windows that are larger than what came of late needs become smaller. */
void rs_gm_streams_timeout(rs_messages *node, rs_time now);
void rs_gm_stream_free(rs_messages *node, rs_gm_stream *stream);
/* Nothing before `sn` matters. For a stream of which nothing is known yet. */
void rs_gm_stream_start(rs_gm_stream *stream, uint64_t sn);
/* Packet `sn` of this stream told of these views: what was sent since this node joined matters too. */
void rs_gm_stream_settle_base(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn,
                              const rs_gm_views *views);
/* The stream is known to go up to `sn`: what is not here of it is missing, but `sn` itself if it is `here`. */
void rs_gm_stream_reach(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn, bool here);

static inline const rs_gm_log *rs_gm_log_of(const rs_messages *node, const rs_gm_stream *stream) {
    return stream->own ? &node->out : &node->in;
}

/* NULL if nothing is known of that sn, or no longer. */
static inline rs_gm_slot *rs_gm_slot_of(const rs_gm_stream *stream, uint64_t sn) {
    if (sn < stream->base || sn > stream->high || stream->high - sn >= stream->capacity)
        return NULL;
    return &stream->slots[sn & (stream->capacity - 1)];
}

static inline bool rs_gm_slot_is(rs_gm_slot slot, unsigned tag) {
    return (slot & RS_GM_TAG) == tag;
}

static inline uint64_t rs_gm_slot_at(rs_gm_slot slot) {
    return slot & ~(uint64_t)RS_GM_TAG;
}

static inline bool rs_gm_slot_kept(const rs_messages *node, const rs_gm_stream *stream, rs_gm_slot slot) {
    return rs_gm_slot_is(slot, RS_GM_RECORD) && rs_gm_log_has(rs_gm_log_of(node, stream), rs_gm_slot_at(slot));
}

/* missing.c */
/* False if there is no room to remember it: it is given up. */
bool rs_gm_missing_new(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn);
void rs_gm_missing_found(rs_messages *node, rs_gm_missing *missing);
/* Given up: reported, its slot is RS_GM_GONE. */
void rs_gm_missing_lost(rs_messages *node, rs_time now, rs_gm_missing *missing, rs_messages_reason reason);
void rs_gm_missing_timeout(rs_messages *node, rs_time now);
rs_time rs_gm_missing_deadline(const rs_messages *node);

/* asking.c */
bool rs_gm_ask_init(rs_messages *node);
/* The packet was found missing just now. */
void rs_gm_ask_later(rs_messages *node, rs_time now, rs_gm_missing *missing);
/* What is missing of the stream from `sn` on was found so by a heartbeat: repairs had their time. */
void rs_gm_ask_sooner(rs_messages *node, rs_time now, const rs_gm_stream *stream, uint64_t sn);
void rs_gm_ask_came(rs_messages *node, rs_time now, const rs_gm_missing *missing, rs_messages_via via);
void rs_gm_ask_timeout(rs_messages *node, rs_time now);

static inline rs_gm_missing *rs_gm_missing_at(const rs_messages *node, rs_gm_slot slot) {
    return &node->missing[slot >> 2];
}

/* arrive.c */
/* A whole datagram of a data packet that was checked, for a stream that takes it. */
void rs_gm_arrive(rs_messages *node, rs_time now, rs_gm_stream *stream, const rs_gm_id *id, const uint8_t *datagram,
                  uint32_t length, rs_messages_via via);
bool rs_gm_receive_data(rs_messages *node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);

/* kept.c */
bool rs_gm_receive_repair(rs_messages *node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
/* The packet `missing` stood for is here: repairs that waited for it need one less. */
void rs_gm_kept_found(rs_messages *node, rs_gm_missing *missing, const uint8_t *body, uint32_t length);
/* It will not come: repairs with it are of no use. */
void rs_gm_kept_lost(rs_messages *node, rs_gm_missing *missing);
/* Decodes what has become usable. */
void rs_gm_kept_work(rs_messages *node, rs_time now);

/* Longest body that the group's packets may have, so that repairs of r of them fit a datagram too. */
static inline uint32_t rs_gm_body_most(const rs_messages *node, const rs_gm_group *group) {
    uint32_t before = group->protocol == RS_MESSAGES_RICOCHET ? RS_GM_REPAIR + group->r * RS_GM_ID : RS_GM_HEADER;
    return node->config.packet_bytes > before ? node->config.packet_bytes - before : 0;
}

/* publish.c */
/* A new view holds for what is published from now on. */
void rs_gm_publish_view(rs_gm_group *group);
/* What packet `sn`, the newest, tells of the views it and those before it were published under. */
rs_gm_views rs_gm_publish_views(const rs_gm_group *group, uint64_t sn);
bool rs_gm_poll_data(rs_messages *node, rs_messages_out *out);
/* How far this node was in a group that it has forgotten; 0: not known. */
uint64_t rs_gm_publish_forgotten(const rs_messages *node, rs_message_group group);
/* The group is about to be forgotten: its numbers will go on where they are. */
void rs_gm_publish_end(rs_messages *node, const rs_gm_group *group);

/* heartbeats.c */
/* Something was published to the group just now. */
void rs_gm_heartbeats_begin(rs_messages *node, rs_time now, rs_gm_group *group);
void rs_gm_heartbeat(rs_messages *node, rs_time now, rs_gm_group *group);
bool rs_gm_receive_state(rs_messages *node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);

/* positions.c */
/* The group has another view: who may publish under it is asked for its position, unless it is heard. */
void rs_gm_query_view(rs_messages *node, rs_time now, rs_gm_group *group);
void rs_gm_query_timeout(rs_messages *node, rs_time now);
bool rs_gm_receive_query(rs_messages *node, rs_peer from, const uint8_t *bytes, size_t length);
/* Whether what a sender that has left says of how far it was is believed still. */
static inline bool rs_gm_departed_counts(rs_time now, const rs_gm_group *group, const rs_gm_stream *stream) {
    return !group->open && !stream->own && !stream->peer && now - stream->departed_at < RS_GM_DEPARTED_BOUND;
}

/* answers.c */
bool rs_gm_receive_nak(rs_messages *node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
bool rs_gm_poll_retransmit(rs_messages *node, rs_messages_out *out);

/* deliver.c */
/* A packet is in its slot: delivers it, or what order allows now. */
void rs_gm_deliver(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn);
/* FIFO: what order allows after something was given up. */
void rs_gm_deliver_run(rs_messages *node, rs_time now, rs_gm_stream *stream);
void rs_gm_lost(rs_messages *node, const rs_gm_stream *stream, uint64_t sn, uint64_t count, rs_messages_reason reason);
/* The message that packet was part of cannot become whole. */
void rs_gm_assembly_broken(rs_messages *node, rs_gm_stream *stream, uint64_t sn);
void rs_gm_assembly_free(rs_messages *node, rs_gm_assembly *assembly);
void rs_gm_deliver_timeout(rs_messages *node, rs_time now);
rs_time rs_gm_deliver_deadline(const rs_messages *node);
/* Waiting events of a group that is forgotten are dropped. */
void rs_gm_events_forget(rs_messages *node, rs_message_group group);

/* bins.c */
void rs_gm_bins_received(rs_messages *node, rs_time now, rs_gm_group *group, const uint8_t *datagram, uint32_t length);
void rs_gm_bins_timeout(rs_messages *node, rs_time now);
rs_time rs_gm_bins_deadline(const rs_messages *node);
bool rs_gm_poll_repair(rs_messages *node, rs_messages_out *out);
rs_status rs_gm_bins_init(rs_messages *node);
void rs_gm_bins_free(rs_messages *node);
/* Repairs that were given out are free again. */
void rs_gm_bins_take_back(rs_messages *node);
/* An instance's repair begins: how many are to get it, and who, is drawn (Sec. 4.2.5). */
void rs_gm_bin_arm(rs_messages *node, rs_lec_bin *bin, rs_lec_instance *instance);
/* The bin goes away: what is in it is sent. */
void rs_gm_bin_empty(rs_messages *node, rs_lec_bin *bin);

/* regions.c, plane.c: see plane.h */

#endif
