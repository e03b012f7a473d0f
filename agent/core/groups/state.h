/* What the files of this folder, and engines, know of one rs_messages node: its structs, and what is quickly said of
 * them. Each file has a header that says what it offers:
 *   node.c      life, config, the order of things (messages.h)   outbox.c  small datagrams that wait to be sent
 *   views.c     groups and their versions                         members.c who is known, and what they may be given
 *   streams.c   what is here of each (sender, group)              arrive.c  a data packet's way
 *   missing.c   what is known to be missing                       naks.c    when it is asked for, of whom, and answers
 *   publish.c   messages become packets                           deliver.c order, large messages, events
 *   positions.c how far publishers are: heartbeats, questions     log.c     rings of packets
 *   engine.h    the seam of engines    options.c their options    wire.c    datagrams that all engines share
 *   early.c     what came before its view */
#ifndef RS_CORE_MESSAGES_STATE_H
#define RS_CORE_MESSAGES_STATE_H

#include "core/base/list.h"
#include "core/base/memory.h"
#include "core/base/random.h"
#include "core/base/timers.h"
#include "core/groups/engine.h"
#include "core/groups/log.h"
#include "core/groups/messages.h"
#include "core/groups/wire.h"
#include "core/rate/rtt.h"

#define RS_GM_ENGINES 8u
#define RS_GM_MEMBERS_MOST (1u << 20)
#define RS_GM_CHUNK 64u          /* streams allocated at a time */
#define RS_GM_LEAST_WINDOW 8u    /* slots of a stream that was just heard of */
#define RS_GM_LATE_JOIN 64u      /* a stream first heard further into a view than this is taken from there on */
#define RS_GM_LOST_RESERVE 1024u /* events of losses that fit beside `deliveries` */
#define RS_GM_SMALLS 4096u       /* NAKs and heartbeats that wait to be sent */
#define RS_GM_RETRANSMITS 8192u  /* a power of two */
#define RS_GM_ANSWERED 1024u     /* answers that are remembered; a power of two */
#define RS_GM_EARLY_BUCKETS 256u
#define RS_GM_NUMBERS 4096u /* groups whose numbering is remembered when they are forgotten */
#define RS_GM_DEPARTED_BOUND (32 * INT64_C(1000000000)) /* ... and so long they are asked how far they were */
#define RS_GM_DEPARTED 1024u /* streams of senders that left their group, kept so that a return goes on with them */
#define RS_GM_NAK_LEAST (4 * INT64_C(1000000)) /* a packet is not asked for again sooner, and not given again */

/* What a node knows of one packet of a stream: tag in the low bits, above it where it is. */
typedef uint64_t rs_gm_slot;
#define RS_GM_TAG 3u
#define RS_GM_GONE 0u    /* given up */
#define RS_GM_MISSING 1u /* number of its rs_gm_missing << 2 */
#define RS_GM_RECORD 2u  /* received, or published here: its place in the log (a multiple of 16) */

/* Packets that may be asked for a second: more with each answer, less with each that does not come (naks.c). */
typedef struct {
    uint64_t per_s;
    rs_time next; /* The next one may be asked for then; if that is past, what was not used is left. */
} rs_gm_budget;

#define RS_GM_ASKING 256u /* senders of which something is missing; those that share a place are as one */

/* How fast packets arrive at the node, of late. */
typedef struct {
    rs_time at;              /* The last look was then, */
    uint64_t bytes, packets; /* and so much had arrived until then. */
    uint64_t bytes_per_ms, packets_per_ms;
} rs_gm_pace;

/* A server that views name. */
typedef struct rs_gm_peer {
    struct rs_gm_peer *next; /* It is the next one in its bucket. */
    rs_peer peer;
    uint32_t incarnation; /* No other one of it is believed; 0: none is known yet. */
    uint32_t groups;      /* So many lists name it; it goes with the last. */
    uint64_t allowance;   /* It may still ask for so many bytes of packets, */
    uint64_t written;     /* computed when so much had been written to both logs. */
} rs_gm_peer;

/* A data packet that came before a view of its group, or before one that lists its sender (early.h). */
typedef struct {
    rs_list by_age, in_bucket;
    rs_time at; /* It came then, */
    rs_peer sender;
    uint32_t incarnation;
    rs_message_group group;
    rs_messages_via via; /* ... by this, */
    bool carried;        /* ... in a datagram of an engine's own. */
    bool expected;       /* A view was told a moment before. */
    uint32_t length;
    uint8_t bytes[];
} rs_gm_early;

/* One sender in one group. Slots are a ring over the newest `capacity` sns; what is older is settled. What each packet
 * needs comes first: with many groups none of it is in the caches. */
typedef struct {
    _Alignas(RS_MEMORY_LINE) rs_peer sender;
    uint32_t incarnation;
    rs_gm_group *group; /* NULL while the stream is not in use. */
    rs_gm_slot *slots;
    uint32_t capacity;  /* A power of two. */
    uint32_t number;    /* Its place in node->chunks. */
    uint64_t base;      /* Nothing before this is of interest here: it was sent before this node joined. */
    uint64_t high;      /* The newest sn known of; base - 1 if none is. */
    uint64_t next;      /* FIFO: this one is delivered next. */
    uint64_t seen;      /* The newest sn of which the packet itself came, or was sent if it is an own one; 0: none. */
    rs_gm_peer *peer;   /* NULL: its sender has left the group, or anybody may publish to it. */
    rs_time heard_at;   /* The sender itself was heard last: a packet by multicast, or its position. */
    uint64_t returned;  /* Its sender left and came back with this version, and no packet of it told where; else 0. */
    bool own;           /* This node is the sender. */
    bool settled_base;  /* A packet's views have told where it begins for this node. */
    bool unheard;       /* Nothing of it ever came: it is remembered because its sender has left. */
    bool delivered;     /* A packet of it was, so in order it begins nowhere earlier any more. */
    bool rejoined;      /* The group is here anew, and no packet has told yet where the stream goes on. */
    bool placed;        /* ... but its sender said how far it was: what it published before is told as lost. */
    bool doubted;       /* Sealed: its sender was asked, since a packet did not fit, and has not answered since. */
    uint32_t missing;   /* So many of its packets are. */
    uint64_t dropped;   /* The message that was given up in the middle last begins here; 0: none was. */
    uint64_t outside;   /* The last packet or claim that was too far off to be believed has this sn; 0: none was. */
    uint64_t floor;     /* `high` before what is known of it jumped forward: what is not above it is settled. */
    rs_time doubted_at; /* It was asked then. */
    uint64_t mark, recent; /* `high` at the last look at the window, and how many packets came before that. */
    rs_time departed_at;   /* Its sender left then, if it has left. */
    rs_list in_group, assemblies;
    rs_list wide;     /* It is in node->wide while its window is more than the least. */
    rs_list departed; /* It is in node->departed after its sender has left. */
    uint32_t next_free;
} rs_gm_stream;

/* Views under which this node published to a group, the newest last, and the first sn under each. */
typedef struct {
    struct {
        uint64_t version, first;
    } view[RS_GM_VIEWS];
    uint32_t count;
} rs_gm_past;

/* A group that was forgotten, and how far this node's own numbers were in it. */
typedef struct {
    rs_message_group group;
    uint64_t high;
    rs_gm_past past;
    uint64_t members[4]; /* Its members then, a bit each by their hash: some others pass for members. */
} rs_gm_forgotten;

/* What each packet needs comes first, as in a stream. */
struct rs_gm_group {
    _Alignas(RS_MEMORY_LINE) rs_message_group id;
    rs_messages_order order;
    bool member;   /* This node is one. */
    bool open;     /* Anybody may publish. */
    bool rejoined; /* Of a view that is about to hold: rs_messages_view.rejoined. */
    bool whole;    /* rs_messages_view.whole */
    bool evicted;  /* Streams of senders that have left are forgotten: what came of them is not known any more. */
    const rs_group_engine *engine;
    uint64_t passed; /* Packets of all senders that are here or missing, own ones too. */
    uint64_t joined; /* The first version of which this node was a member, without a break since. */
    rs_group_policy policy;
    uint64_t version;
    /* No packet that was published under an earlier version begins a stream here where packets are sealed: whoever
     * heard it, and keeps it, can send it again to a node that has just come and has the key. */
    uint64_t begins_from;
    rs_group channel;
    rs_group *more_channels; /* Further ones, for engines that use several. */
    uint32_t more_count;
    uint32_t *regions; /* Those that together are its members; none: they are one. */
    uint32_t region_count;
    void *own;                              /* The engine's. */
    uint64_t mapped;                        /* QSM's: the region views, as a sum, that were seen to have all members. */
    uint32_t option[RS_GROUP_OPTIONS_MOST]; /* Thousandths, in the order of the engine's table. */
    rs_peer *members, *publishers;          /* Sorted. */
    uint32_t member_count, publisher_count;
    rs_list streams;
    rs_gm_stream *published; /* This node's stream; NULL before its first message. */
    rs_gm_past past;
    rs_gm_budget asks;
    struct {             /* How fast they come, of late (naks.c): */
        rs_time at;      /* the last look was then, */
        rs_time each;    /* one came every so many ns, 0: not known, */
        uint64_t passed; /* and so many had come. */
    } pace;
    rs_timer heartbeat;
    rs_list beating; /* It is in node->beating while heartbeats are to come. */
    rs_time published_at, beat_at;
    uint32_t beats;
    uint32_t told;     /* By heartbeats of other groups since: members of 256 that heard, added up. */
    uint32_t position; /* Its place in node->groups. */
    rs_time member_since;
    rs_timer query; /* Publishers that were not heard are asked then how far they are. */
    uint32_t query_rounds, query_cursor;
};

/* Where the NAK for a missing packet stands. */
typedef enum {
    RS_GM_NAK_LATER,    /* Its time comes. */
    RS_GM_NAK_RESERVED, /* Its turn is in the budgets already. */
    RS_GM_ASKED         /* An answer is on its way, perhaps. */
} rs_gm_nak_state;

struct rs_gm_missing {
    rs_timer ask;         /* It is asked for (again) then, */
    rs_timer give_up;     /* and told as lost then. */
    rs_list order;        /* In node->missing_order, by discovery. */
    rs_list waiting;      /* What waits for it at the group's engine, which alone looks at it. */
    rs_gm_stream *stream; /* NULL while it is free. */
    uint64_t sn;
    rs_time discovered, asked;
    uint32_t next_free;
    uint16_t rounds; /* So many times it was asked for. */
    rs_gm_nak_state nak;
    bool put_off; /* It was not asked for when its time came, for it comes with another one. */
};

/* A large message being put together. */
typedef struct {
    rs_list in_stream;
    rs_list by_age;
    rs_gm_stream *stream;
    uint64_t first;
    uint32_t total, have; /* Bytes. */
    uint32_t count, got;  /* Packets. */
    rs_time began;        /* Its first part came then, */
    rs_time started;      /* ... and it was looked at last. */
    uint8_t *bytes;
} rs_gm_assembly;

typedef struct {
    uint8_t kind, via, reason;
    rs_message_group group;
    rs_peer sender;
    uint32_t incarnation, part, offset, length;
    uint64_t sn, count;
    uint64_t at; /* The place in the log of received packets, if `assembly` is NULL. */
    rs_time late;
    rs_gm_assembly *assembly;
} rs_gm_event;

/* A small datagram that waits to be sent. */
typedef struct {
    rs_list order;
    rs_channel channel;
    rs_peer peer;
    rs_group group;
    uint32_t length;
    uint8_t bytes[RS_GM_NAK_MOST];
} rs_gm_small;

/* A packet that is given again to who asked for it. */
typedef struct {
    uint64_t at;
    bool own; /* It is in the log of own packets. */
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

/* One report of the hash table of streams. */
typedef struct {
    rs_peer sender;
    rs_message_group group;
    uint32_t number; /* + 1; 0 = empty. */
} rs_gm_place;

struct rs_messages {
    rs_messages_config config;
    rs_messages_came came; /* How the datagram came that is being looked at. */
    rs_time strange_at;    /* Sealed: a sender of which nothing is known was asked then, for a late packet. */
    rs_allocator allocator;
    uint64_t random;
    rs_messages_stats stats;
    rs_timers heartbeats; /* Of groups. */

    const rs_group_engine *engines[RS_GM_ENGINES];
    void *engine_own[RS_GM_ENGINES];
    uint32_t engine_count;
    uint8_t kind_engine[256];       /* By kind of datagram: number of the engine whose kind it is, + 1. */
    char refusal[RS_MESSAGES_TEXT]; /* Why the last view or options were refused. */

    rs_gm_group **groups; /* group_count of them. */
    rs_gm_group **group_table;
    uint32_t group_count, group_mask;

    rs_gm_stream **chunks;
    uint32_t chunk_count, stream_free; /* `stream_free`: the number of the first free one, + 1. */
    rs_gm_place *places;
    uint32_t place_mask, place_count;
    uint64_t own_windows; /* Bytes of windows of own streams, which the others' bound does not count. */
    rs_list wide, departed;
    uint32_t departed_count;
    rs_time sweep_at; /* Windows are looked at then; RS_NEVER: all are the least. */

    rs_gm_peer **peers;
    uint32_t peer_mask;
    rs_list early_by_age[2]; /* Of what is not expected, and of what is: the oldest first. */
    rs_list *early_buckets;  /* RS_GM_EARLY_BUCKETS of them, by group; made with the first packet. */
    uint32_t early_bytes;    /* What they take together. */
    uint32_t early_strange;  /* So many of them are not expected. */
    rs_time early_until;     /* Until then packets are expected. */
    bool early_closed;       /* What waits is being given. */

    rs_gm_forgotten *numbers; /* A ring of RS_GM_NUMBERS. */
    uint32_t number_count, number_next;
    uint64_t number_least; /* Of those that it has no room for any more: own streams begin above. */

    rs_gm_log in, out;
    uint64_t sent; /* What is behind this place in `out` waits to be sent, */
    uint32_t turn; /* and the packet there has gone to so many channels already. */
    uint64_t last_published;
    uint64_t stamped; /* What is behind this place has no stamp yet, if packets have any. */
    bool carried;     /* An engine took packets that waited to be sent, and may have datagrams for them. */

    rs_gm_missing *missing;
    uint32_t missing_used, missing_free;
    rs_list missing_order; /* By discovery. */
    rs_timers nak_timers, give_up_timers;
    uint32_t asking[RS_GM_ASKING]; /* Of those in nak_timers, by sender; */
    uint32_t asking_senders;       /* so many of these are not 0. */
    rs_gm_budget asks;
    rs_gm_pace pace;
    rs_rtt answer, repair; /* How long the answer to a NAK takes, and a repair after discovery. */
    uint32_t hope;         /* Share of what did not come at once that repairs brought, of 65,536. */

    rs_list assemblies; /* By age. */
    uint64_t assembly_bytes;
    rs_gm_event *events;
    uint64_t event_head, event_tail; /* tail - head of them wait. */
    uint64_t event_room;             /* A power of two. */
    uint64_t losses_unreported;

    rs_timers queries;
    rs_time queries_from; /* The second in which so many positions were asked for began then. */
    uint32_t queries_sent;

    rs_list beating;     /* Groups with heartbeats to come, by when they were published to. */
    uint64_t seen, lost; /* Packets that crossed the network, and those lost on it, until the last look. */
    uint64_t asked_here; /* Own packets that others asked for. */
    uint32_t loss_milli; /* Share of packets that the network loses, */
    bool loss_known;     /* if enough have crossed it. */

    rs_list smalls, smalls_free;
    uint32_t smalls_made;
    rs_gm_answered *answered;
    rs_gm_retransmit *retransmits;
    uint32_t retransmit_head, retransmit_tail;

    rs_list handed_smalls, handed_assemblies; /* They were given out, until the next call. */

    uint8_t *rx_queue;
    uint32_t *rx_queue_order, *rx_queue_length, *rx_queue_free, *rx_queue_from; /* rx_queue_packets of each. */
    uint32_t rx_queue_count;
};

/* ------------------------------------------------------------------------------------------------------- chance */

static inline uint64_t rs_gm_random(rs_messages *node) {
    return rs_random_next(&node->random);
}

static inline uint32_t rs_gm_random_below(rs_messages *node, uint32_t bound) {
    return (uint32_t)(((rs_gm_random(node) >> 32) * bound) >> 32);
}

/* ---------------------------------------------------------------------------------------------------- datagrams */

/* Whether a datagram that says it is of `maker` may be: it came from there, or nobody knows whence. */
static inline bool rs_gm_is_from(rs_messages *node, rs_peer from, rs_peer maker) {
    node->stats.strangers += from != RS_NO_PEER && from != maker;
    return from == RS_NO_PEER || from == maker;
}

/* Whether a datagram that was decoded is as its maker sealed it; if not, it is dropped, and as good as lost. The tag of
 * a sealed one has told that. */
static inline bool rs_gm_intact(rs_messages *node, const uint8_t *bytes, size_t length) {
    bool intact = node->config.sealed || rs_gm_is_intact(bytes, length);
    node->stats.corrupt += !intact;
    return intact;
}

/* Whether a checked body is its sender's, as far as packets have stamps; if not, it is dropped and still missing. */
static inline bool rs_gm_is_genuine(rs_messages *node, const rs_gm_id *id, const uint8_t *body) {
    const rs_messages_stamps *stamps = &node->config.stamps;
    if (!stamps->make)
        return true;
    uint8_t bytes[RS_GM_ID];
    rs_gm_put_id(bytes, id);
    const rs_messages_stamped packet = rs_gm_stamped(bytes, body);
    bool right = rs_gm_body_stamp(body) > 0 && stamps->is_right(stamps->context, id->sender, &packet);
    node->stats.forged += !right;
    return right;
}

/* ------------------------------------------------------------------------------------------------------ streams */

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

static inline rs_gm_missing *rs_gm_missing_at(const rs_messages *node, rs_gm_slot slot) {
    return &node->missing[slot >> 2];
}

/* Whether what a sender that has left says of how far it was is believed still. */
static inline bool rs_gm_departed_counts(rs_time now, const rs_gm_group *group, const rs_gm_stream *stream) {
    return !group->open && !stream->own && !stream->peer && now - stream->departed_at < RS_GM_DEPARTED_BOUND;
}

/* ------------------------------------------------------------------------------------------------------ engines */

/* What the group's engine remembers of this node. */
static inline void *rs_gm_engine_own(const rs_messages *node, const rs_group_engine *engine) {
    for (uint32_t i = 0; i < node->engine_count; i++)
        if (node->engines[i] == engine)
            return node->engine_own[i];
    return NULL;
}

/* Longest body that the group's packets may have, so that its engine's datagrams of them fit too. */
static inline uint32_t rs_gm_body_most(const rs_messages *node, const rs_gm_group *group) {
    uint32_t before = group->engine->head ? group->engine->head(group) : RS_GM_HEADER;
    before = before > RS_GM_HEADER ? before : RS_GM_HEADER;
    return node->config.packet_bytes > before ? node->config.packet_bytes - before : 0;
}

#endif
