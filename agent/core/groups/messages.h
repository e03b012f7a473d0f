/* Group messages at one node, sans-IO, beside rs_node and by its rules: packets, time and views go in; packets, a
 * deadline and events come out. Same calls with the same arguments give the same outputs, bit for bit; no call blocks,
 * reads a clock or does I/O; every buffer, window and wait has a bound. docs/ricochet.md tells how it works,
 * docs/protocol.md (Group messages) what is on the wire.
 *
 * Use:  rs_messages_new; rs_messages_set_view for each group that is subscribed or published to; then
 *       rs_messages_publish, rs_messages_receive, rs_messages_timeout as things happen, and after each (or a batch)
 *       rs_messages_poll_event and rs_messages_poll_tx until they return false, then rs_messages_deadline.
 *
 * Names: in this interface an rs_peer is a number that all nodes of all groups agree on, since it is on the wire and
 * in repairs that others make (the agent: the server's IPv4 address in host order; the simulator: the host's number). A
 * message group is numbered by whoever makes groups (the manager); an rs_group is the caller's number of the multicast
 * address that carries it, and several message groups may share one: packets of groups not subscribed to here are
 * dropped and counted (`foreign`).
 *
 * Who owns what: rs_messages_publish and rs_messages_receive copy what they take (once), the caller's memory is free
 * when they return. What rs_messages_poll_tx and rs_messages_poll_event give out points into the node and stays as it
 * is until the next call of anything but these two, so a caller may collect a whole batch and then send it with one
 * system call. All memory comes from the rs_allocator and is bounded by the config: the two byte rings and the tables
 * when the node is made (zeroed memory, touched only as it fills), the rest as streams, groups and repairs appear. */
#ifndef RS_CORE_MESSAGES_H
#define RS_CORE_MESSAGES_H

#include "core/base/types.h"

typedef struct rs_messages rs_messages;

typedef uint32_t rs_message_group; /* a group of subscribers, the same number everywhere */

#define RS_MESSAGES_CHANNELS_MOST 4096u /* of a group beside its first one */
#define RS_MESSAGES_TEXT 256u           /* bytes of a refusal as text */
#define RS_MESSAGES_PACKET_LEAST 256
#define RS_MESSAGES_PACKET_MOST 65000

/* engine.h: how a group's packets travel and what comes back of those that are lost. */
typedef struct rs_group_engine rs_group_engine;

typedef enum {
    RS_ORDER_NONE = 0, /* as they come */
    RS_ORDER_FIFO = 1  /* of each sender in the order it published them; a gap holds what follows until it is filled or
                        * given up */
} rs_messages_order;

/* For the engine of that name: a struct of its own (core/ENGINE/options.h). */
typedef struct {
    const char *engine;
    const void *config;
} rs_group_engine_config;

#define RS_MESSAGES_STAMP 178u  /* bytes of a stamp, in front of the payload of a packet */
#define RS_MESSAGES_STAMPED 64u /* packets that are stamped at once, at most */

/* A packet and its stamp: which one it is (sender, incarnation, group, sn, as on the wire), and its bytes in two pieces
 * without check and stamp. */
typedef struct {
    const uint8_t *id;                 /* 20 bytes */
    const uint8_t *head, *rest;        /* The bytes. */
    uint32_t head_length, rest_length; /* How many of each. */
    uint8_t *stamp;                    /* RS_MESSAGES_STAMP bytes; only read by is_right. */
} rs_messages_stamped;

/* By what receivers tell a sender's packets from those that another member made in its name: signatures, of which the
 * node knows nothing. It looks at each packet before it acts on it, however it came, also out of a repair. */
typedef struct {
    void *context; /* Handed to both. */
    /* Fills in stamps. NULL: packets have none, and none is looked at. */
    void (*make)(void *context, const rs_messages_stamped *packets, uint32_t count);
    /* Whether `sender` has made it. A packet without a stamp is of nobody. */
    bool (*is_right)(void *context, rs_peer sender, const rs_messages_stamped *packet);
} rs_messages_stamps;

/* Zero in any field means its default, given in brackets. */
typedef struct {
    rs_peer self;
    /* Another one each time a node with this `self` is made again, so that its new messages are not taken for old ones:
     * rs_messages_incarnation of what views tell of it. */
    uint32_t incarnation;
    uint64_t seed;
    uint32_t packet_bytes;     /* longest datagram sent or taken [1472]; the same for all nodes of a group */
    uint32_t message_bytes;    /* largest message published or put together again [1 MiB] */
    uint64_t receive_bytes;    /* ring of received packets, kept to decode repairs and to help others [32 MiB] */
    uint64_t send_bytes;       /* ring of own packets: waiting to be sent, and kept for retransmission [32 MiB] */
    uint64_t assembly_bytes;   /* messages being put together, all of them [64 MiB] */
    uint32_t deliveries;       /* events that may wait for rs_messages_poll_event [65,536] */
    uint32_t rx_queue_packets; /* packets that may wait for rs_messages_work [1024] */
    uint32_t max_groups;       /* views held here [16,384] */
    uint32_t max_streams;      /* (sender, group) pairs heard of [262,144] */
    uint64_t window_bytes;     /* what all streams together know of their packets, 8 bytes each [16 MiB] */
    uint32_t max_missing;      /* packets known to be missing [65,536] */
    uint32_t window_packets;   /* newest packets of one stream about which the node knows what it has [65,536] */
    rs_time nak_delay;      /* first request after discovery at the latest; a quarter of it at the earliest [100 ms] */
    rs_time nak_retry;      /* and again, before it is known how long answers take [50 ms] */
    rs_time give_up;        /* a missing packet of a group with NAKs is lost this long after discovery [1 s] */
    rs_time give_up_plain;  /* of a group without NAKs [200 ms] */
    rs_time assembly_bound; /* a message that is still not whole after this is lost [2 s] */
    rs_time heartbeat;      /* after the last packet to a group with NAKs its sender says so [40 ms], ... */
    uint32_t heartbeats;    /* ... so many times at most, each time twice as long after it [4] */
    bool lone_heartbeats;   /* they tell of one group each: others have other keys [no] */
    /* Datagrams are sealed (rs_messages_receive_as): what a sender is said to be far from is believed of itself alone,
     * which is asked, and nothing leads back to packets that were passed over, but its own word. Checks of packets are
     * not looked at: the seal's tag was right [no]. */
    bool sealed;
    rs_messages_stamps stamps;             /* [none]; the same for all nodes of a group */
    const rs_group_engine_config *engines; /* what engines are given for themselves; not kept [nothing] */
    uint32_t engine_count;
    const rs_group_engine *const *more_engines; /* beside those every node knows: the simulator's; must stay [none] */
    uint32_t more_engine_count;
} rs_messages_config;

/* One immutable version of a group. `members` are the subscribers (this node among them: it subscribes), `publishers`
 * those who publish without subscribing; copied. Nothing of a sender that is in neither is believed, and nothing is
 * sent to anybody who is no member. A view with a larger version replaces the one before it, whatever differs; the cost
 * is that of what differs. */
typedef struct {
    rs_message_group group;
    uint64_t version;              /* from 1 */
    rs_group channel;              /* data goes there */
    const rs_group *more_channels; /* of engines that use several; copied */
    uint32_t more_count;
    const rs_peer *members;
    uint32_t member_count;
    const rs_peer *publishers;
    uint32_t publisher_count;
    /* Of the members, then of the publishers: the incarnation of each, 0 if whoever makes views does not know it: then
     * the first one that is heard holds. NULL: none is known. It holds for all groups of that peer, until another view
     * tells of another one. */
    const uint32_t *incarnations;
    /* Of engines whose groups travel in regions: those that together are the members, with views of their own
     * (rs_messages_set_region), told before; copied. None: the members are one region. */
    const uint32_t *regions;
    uint32_t region_count;
    bool open; /* anybody may publish: for callers without a membership service (the simulator); agents never say so */
    /* This node was out of the group and is in it anew, though it may never have heard that it was out: of what was
     * published before nothing comes that is missing, unless it can be asked for of its publisher (NAKs) and is of use:
     * who stands above a plain group asks anew for what it needs. */
    bool rejoined;
    /* Who stands above the group needs all: what is missing is asked for whatever its engine promises by itself. */
    bool whole;
    const char *protocol; /* name of its engine, the same at all nodes of a group; NULL: the first one of the table */
    const char *options;  /* "name=value,name=value": the engine's; what it does not name is as usual, NULL: all */
    rs_messages_order order;
} rs_messages_view;

/* One immutable version of a region: nodes that are in the same groups, whose packets travel together. Several groups
 * name it (rs_messages_view.regions), and each of its nodes is a member of all of them. A view with a larger version
 * replaces the one before; one without nodes says that the region is of no interest here any more. */
typedef struct {
    const char *protocol; /* name of its engine */
    const char *options;  /* as of a group */
    uint32_t region;
    uint64_t version;     /* from 1 */
    rs_group channel;     /* RS_NO_GROUP: each node is sent to by unicast */
    const rs_peer *nodes; /* copied */
    uint32_t node_count;
    bool open; /* as of a group */
} rs_messages_region;

/* A datagram out of the node: its bytes are the pieces one after the other. */
typedef struct {
    rs_channel channel; /* RS_CH_GROUP: to `group`; RS_CH_PEER_DATAGRAM: to `peer` */
    rs_peer peer;
    rs_group group;
    uint32_t piece_count;
    struct {
        const uint8_t *bytes;
        uint32_t length;
    } piece[2];
} rs_messages_out;

typedef enum {
    RS_MESSAGES_DELIVER, /* a message: `bytes`, `length`, who sent it (`sender`, `sn`, `part`), how it came (`via`) */
    RS_MESSAGES_LOST,    /* `count` packets of a stream from `sn` on will not come, `reason` says why */
    RS_MESSAGES_LOG,     /* something a person may want to know, in `text` */
    RS_MESSAGES_COMPLETE /* own packets up to `sn` are with the group's members, but for `count` of those since the last
                          * such event, of which nobody can say so (rs_messages_tell_completion) */
} rs_messages_event_kind;

/* How the last packet of a message came. */
typedef enum {
    RS_VIA_DATA,      /* by multicast */
    RS_VIA_REPAIR,    /* out of a repair: lateral error correction */
    RS_VIA_RETRANSMIT /* asked for with a NAK */
} rs_messages_via;

typedef enum {
    RS_LOST_NETWORK, /* not recovered within its bounds */
    /* too many packets came after it (window_packets, max_missing or receive_bytes); `count` 0: how many is not known,
     * they were published after this node joined and before the first that it heard of */
    RS_LOST_WINDOW,
    RS_LOST_SLOW,     /* it came, but the subscriber did not take it in time (`deliveries` or receive_bytes) */
    RS_LOST_ASSEMBLY, /* a message of which other packets came: not whole in time, or too large for this node */
    RS_LOST_RESTART   /* its sender's agent was restarted; `count` 0: how many is not known */
} rs_messages_reason;

typedef struct {
    rs_messages_event_kind kind;
    rs_message_group group;
    rs_peer sender;
    uint32_t incarnation;
    uint64_t sn;   /* of the (first) packet, from 1 in each (sender, incarnation, group) */
    uint32_t part; /* small messages that shared a packet: its place in it, from 0 */
    /* delivery */
    const uint8_t *bytes;
    uint32_t length;
    rs_messages_via via;
    rs_time
        late; /* time from the discovery that its last packet was missing until it was recovered; 0 if never missed */
    /* loss */
    uint64_t count; /* packets; each carried one message, several small ones, or a part of a large one */
    rs_messages_reason reason;
    char text[128];
} rs_messages_event;

/* Counters since the node was made; gauges are marked. */
typedef struct {
    uint64_t published, delivered; /* messages */
    uint64_t delivered_bytes;
    uint64_t lost;                     /* packets reported in RS_MESSAGES_LOST */
    uint64_t data_sent, data_received; /* data packets by multicast; received: for groups subscribed to here */
    uint64_t duplicates;               /* data packets already here */
    uint64_t foreign;                  /* datagrams of groups not subscribed to here: the waste of shared addresses */
    uint64_t bad;                      /* malformed datagrams */
    uint64_t corrupt;                  /* changed on their way, and packets that a repair gave wrong */
    uint64_t forged;                   /* packets whose stamp is not their sender's */
    uint64_t refused;                  /* dropped for a bound: max_streams, another incarnation, before the window */
    /* Not believed: of a sender that the view does not list, or with an id that is not of who sent the datagram. */
    uint64_t strangers;
    uint64_t early;    /* data of senders that the view does not list yet, kept for a moment; of them `strangers` count
                     * those that no view came for, of what an engine's datagrams carried `foreign` */
    uint64_t versions; /* datagrams of another version of the protocol; `other_version` is that of the last */
    uint64_t other_version;
    uint64_t kinds; /* datagrams of a kind that no engine here has; `other_kind` is that of the last */
    uint64_t other_kind;
    uint64_t naks_refused; /* packets asked for by who is no member of the group; naks_over: beyond a member's budget */
    uint64_t naks_over;
    uint64_t claims;     /* sequence numbers so far off that they were not believed before they were confirmed */
    uint64_t discovered; /* packets found missing */
    uint64_t recovered_repair, recovered_retransmit, recovered_data; /* of these; the last: they were only late */
    uint64_t asked;         /* packets asked for, each time again; naks_sent: the datagrams, of many packets each */
    uint64_t naks_repeated; /* packets asked for again before the answer can have come: not given twice */
    uint64_t queries_sent, queries_received; /* for how far a publisher is that is not heard */
    uint64_t naks_sent, naks_received, retransmits_sent, heartbeats_sent, heartbeats_received;
    uint64_t rx_queue_dropped;         /* random victims of a full receive queue */
    uint64_t groups, streams, missing; /* gauges: now */
    uint64_t window_bytes, peers;      /* gauges: of streams; servers that views name */
} rs_messages_stats;

/* The incarnation of a node whose server's agent was started with that boot id; never 0. */
uint32_t rs_messages_incarnation(uint64_t boot_id);

/* NULL if out of memory or the config is out of its ranges. The config is copied. */
rs_messages *rs_messages_new(const rs_messages_config *config, const rs_allocator *allocator);
void rs_messages_free(rs_messages *node);

/* RS_ERR_PROTOCOL: no engine of that name here; RS_ERR_STATE: the version is not newer; RS_ERR_INVALID: an option is
 * none of the engine's or out of its range, or a member is named twice; RS_ERR_LIMIT: max_groups, or a bound of the
 * engine; RS_ERR_MEMORY. rs_messages_refusal says it as text. After an error the group is as it was. */
rs_status rs_messages_set_view(rs_messages *node, rs_time now, const rs_messages_view *view);
/* The same of a region. RS_ERR_INVALID: its engine has none. */
rs_status rs_messages_set_region(rs_messages *node, rs_time now, const rs_messages_region *view);
/* The same by what changed since version `from`: who joined, who left. RS_ERR_STATE: the view here is not `from`. */
rs_status rs_messages_change_view(rs_messages *node, rs_time now, rs_message_group group, uint64_t from, uint64_t to,
                                  const rs_peer *joined, uint32_t joined_count, const rs_peer *left,
                                  uint32_t left_count);
/* The group is no more of this node's business: what waits to be delivered of it is dropped. If it is published to
 * again later, its packets' numbers go on where they were. RS_ERR_UNKNOWN. */
rs_status rs_messages_forget(rs_messages *node, rs_time now, rs_message_group group);
/* Why the last rs_messages_set_view, _change_view or _check_options was refused, as text for people. */
const char *rs_messages_refusal(const rs_messages *node);
/* Asks the engine of that name about options: RS_ERR_PROTOCOL, RS_ERR_INVALID; else all of them as text (`complete` has
 * room for RS_GROUP_OPTIONS_TEXT bytes): what `options` does not name is as `has` says, and else as usual. */
rs_status rs_messages_check_options(rs_messages *node, const char *protocol, const char *has, const char *options,
                                    char *complete);
/* The engines of this node; NULL behind the last. */
const rs_group_engine *rs_messages_engine(const rs_messages *node, uint32_t number);

/* To all subscribers of a group except this node itself, which hears nothing of its own messages. RS_ERR_UNKNOWN: no
 * view of the group; RS_ERR_INVALID: longer than message_bytes; RS_ERR_LIMIT: so much waits to be sent already that the
 * message would overwrite it: poll and send, then try again. Messages that are published while an earlier small one of
 * the same group still waits to be sent share its datagram. `sn` (may be NULL): of the message's first packet. */
rs_status rs_messages_publish(rs_messages *node, rs_time now, rs_message_group group, const void *bytes,
                              uint32_t length, uint64_t *sn);
/* The number of the last packet that this node published to the group; 0: none. */
uint64_t rs_messages_last_published(const rs_messages *node, rs_message_group group);
/* Whether RS_MESSAGES_COMPLETE tells how far what is published from now on has come. RS_ERR_UNKNOWN: no view of the
 * group; RS_ERR_INVALID: its engine does not know; RS_ERR_MEMORY. */
rs_status rs_messages_tell_completion(rs_messages *node, rs_message_group group, bool tell);
/* The packet of that sender that is missing longest and is being asked for; 0: none of late. */
uint64_t rs_messages_oldest_missing(const rs_messages *node, rs_peer sender, rs_message_group group);
/* Of a message of that sender parts are here, and others come; or packets are missing that requests alone bring. */
bool rs_messages_brings(const rs_messages *node, rs_peer sender, rs_message_group group);
/* So many packets are missing here, of that sender alone or with others of which not fewer are, that those of that
 * group that are found now could not be asked for in good time. */
bool rs_messages_is_behind(const rs_messages *node, rs_peer sender, rs_message_group group);
/* Bytes of published packets that wait for rs_messages_poll_tx. */
uint64_t rs_messages_unsent(const rs_messages *node);

/* Whose keys a datagram for a group address is sealed with: those of a region (true in `region`) or of a group. False:
 * it is none that goes there, as those that one node sends another, or of several groups. */
bool rs_messages_scope(const uint8_t *bytes, size_t length, bool *region, uint32_t *number);

/* A datagram that begins with RS_MESSAGES_MAGIC, however it came, from whom (the address it was sent from; RS_NO_PEER:
 * the caller cannot tell, then what the datagram says is believed). False if it is malformed (counted). */
bool rs_messages_receive(rs_messages *node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
/* The same, where datagrams are sealed: who can have made it. rs_messages_receive says RS_CAME_TO_ALL. */
typedef enum {
    RS_CAME_TO_ALL, /* whoever has the group's key */
    RS_CAME_ALONE,  /* `from` alone, for this node alone */
    RS_CAME_LATE /* as TO_ALL, and it may be a copy of one that came before, from anybody who heard that: only data is
                     * looked at, and what of it is missing here, or newer than all that is known, is taken */
} rs_messages_came;
bool rs_messages_receive_as(rs_messages *node, rs_time now, rs_peer from, rs_messages_came came, const uint8_t *bytes,
                            size_t length);
/* The `ahead`-th datagram from now (0: the next one) will be this one: what it needs of a group's state is on its way
 * into the caches while others are worked on. Told of each by falling numbers, from RS_MESSAGES_AHEAD on; it may be
 * anything, and nothing changes. The group that it brings a message of, if that is soon said; else 0. */
#define RS_MESSAGES_AHEAD 3u
rs_message_group rs_messages_soon(const rs_messages *node, uint32_t ahead, const uint8_t *bytes, size_t length);

/* For a caller that drains its sockets faster than it can work (Ricochet, Sec. 4.2.6): the datagram waits in a bounded
 * buffer; when that is full, a random one in it gives way, so that losses are spread and can be repaired. False if a
 * datagram was dropped. rs_messages_work then receives up to `most` of those that wait, oldest first, and returns how
 * many it did. */
bool rs_messages_enqueue(rs_messages *node, rs_peer from, const uint8_t *bytes, size_t length);
uint32_t rs_messages_work(rs_messages *node, rs_time now, uint32_t most);

/* Memory for messages is told of ahead (rs_allocator.soon), a part at each call: for those to come where this node is a
 * member, for its own where it only publishes, or has published some. Who publishes many at once waits for no pages. */
void rs_messages_prepare(rs_messages *node);
bool rs_messages_is_prepared(const rs_messages *node);

void rs_messages_timeout(rs_messages *node, rs_time now);
rs_time rs_messages_deadline(const rs_messages *node); /* RS_NEVER if nothing is due */
bool rs_messages_poll_tx(rs_messages *node, rs_time now, rs_messages_out *out);
bool rs_messages_poll_event(rs_messages *node, rs_messages_event *out);
/* The group of the event that is polled `ahead` others later, if that is known yet; else 0. */
rs_message_group rs_messages_event_ahead(const rs_messages *node, uint32_t ahead);

void rs_messages_stats_get(const rs_messages *node, rs_messages_stats *out);
/* What an engine counts besides (engine.h: at most RS_GROUP_STATS_MOST); how many there are. */
struct rs_group_stat;
uint32_t rs_messages_engine_stats(const rs_messages *node, uint32_t number, struct rs_group_stat *out);
/* Of all engines: what is counted under that name and kind (NULL: of all kinds). */
uint64_t rs_messages_count(const rs_messages *node, const char *name, const char *kind);

#endif
