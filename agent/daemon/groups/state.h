/* What the files of message groups share: groups, the peers that views name, addresses listened at, streams to
 * programs. */
#ifndef RS_DAEMON_GROUPS_STATE_H
#define RS_DAEMON_GROUPS_STATE_H

#include "api/group_delivery.h"
#include "core/base/list.h"
#include "core/base/memory.h"
#include "core/order/order.h"
#include "core/order/replay.h"
#include "daemon/agent.h"
#include "daemon/groups/drain.h"
#include "daemon/groups/flow.h"
#include "daemon/groups/groups.h"
#include "io/datagrams.h"

#define RS_GROUPS_MOST 16384u        /* in use here */
#define RS_REGIONS_MOST 4096u        /* known here */
#define RS_GROUP_STREAMS_MOST 32768u /* of all programs together */
#define RS_GROUP_SOCKETS_MOST 1024u  /* with channels */
#define RS_CHANNELS_MOST 1024u       /* multicast addresses at a time */
#define RS_GROUP_PEERS_MOST 65536u
#define RS_GROUP_BUCKETS 4096u

/* A server that views name; this one too. */
typedef struct rs_group_peer {
    struct rs_group_peer *next_by_id, *next_by_address;
    int32_t id;     /* the manager's number; -1: it named none */
    uint32_t index; /* from 0, in the order they became known */
    uint32_t address;
    uint16_t port;
    uint32_t incarnation; /* by the boot id of its agent; 0: the manager has not told it */
    uint32_t takes_lists; /* its agent of that incarnation takes reports of several streams; 0: of none is known */
    rs_time told_lists;   /* when it was told that this one does */
    char *name;
} rs_group_peer;

/* A multicast address: several groups may use it. The engine's rs_group is its index. */
typedef struct {
    uint32_t address; /* 0 = free */
    uint16_t port;
    uint32_t users, listeners; /* groups */
    uint32_t *copies;          /* who gets a copy of each packet by unicast; NULL: nobody */
    uint32_t copy_count;
} rs_group_channel;

/* A channel of a group, and whether this server is to listen there, and does. */
typedef struct {
    rs_group channel;
    bool wanted, listening;
} rs_group_place;

/* A region of groups (rs_messages_region), as the manager told it. */
typedef struct {
    uint32_t region;
    uint64_t version;
    char protocol[32];
    int32_t *nodes; /* ids of peers, ascending */
    uint32_t node_count;
    rs_group channel; /* RS_NO_GROUP: none */
    bool listening;
} rs_local_region;

/* A group or region left that address lately: it is listened at a little longer, or (`used`) what is still to be sent
 * there finds it. */
typedef struct {
    rs_group channel;
    rs_time until;
    bool used;
} rs_linger;

typedef struct rs_group_stream rs_group_stream;
typedef struct rs_group_socket rs_group_socket;
typedef struct rs_kept rs_kept;

/* What this server is in a group. */
typedef enum {
    RS_GROUP_UNKNOWN, /* No view holds: what a view says does not, and the engine does not know the group. */
    RS_GROUP_OUTSIDE, /* A view holds, and this server is no member by it: it may publish. */
    RS_GROUP_MEMBER,  /* It is a member. */
    RS_GROUP_REPORTER /* Of the members it is one that tells senders how far it is. */
} rs_group_standing;

/* What the manager was told of this server's part in a group, since it was last there. */
typedef enum {
    RS_TOLD_NOTHING = 0,
    RS_TOLD_USE = 1,  /* Programs here publish to it. */
    RS_TOLD_JOIN = 2, /* Programs here receive it. */
    RS_TOLD_BOTH = RS_TOLD_USE | RS_TOLD_JOIN
} rs_group_told;

/* What each message needs comes first: with many groups none of it is in the caches. */
struct rs_local_group {
    _Alignas(RS_MEMORY_LINE) struct rs_local_group *next_by_id;
    uint32_t id;
    rs_group_stream *streams;
    rs_order *ordered; /* its guarantees; NULL: it has none, or this server is no member */
    uint64_t delivered, by_repair, by_request, lost;
    struct rs_local_group *next, *before, *next_by_name;
    char name[ROSTRUM_GROUP_NAME_MAX + 1];
    uint32_t stream_count, receiver_count; /* waiting ones too */
    rs_group_standing standing;
    rs_group_told told;
    bool asked;        /* for a program that waits: a refusal may be about it alone */
    uint32_t held;     /* its streams are being gone through */
    rs_time unused_at; /* it goes then; RS_NEVER: programs use it */
    uint64_t version;
    rs_group_place *places; /* its channels; NULL: it is not viewed */
    uint32_t place_count;
    bool in_regions; /* these have its channels, and it has none */
    uint32_t *regions, region_count;
    char protocol[32], order[RS_GROUP_DELIVERY_TEXT], options[RS_GROUP_OPTIONS_TEXT];
    int32_t *members, *senders; /* ids of peers, ascending */
    uint32_t member_count, sender_count;
    rs_flow flow;
    rs_group_delivery delivery;
    rs_local_group *next_ordered;
    rs_peer *view_peers; /* members of the view that holds, as programs were told; NULL: none */
    uint32_t view_count;
    uint64_t view, view_number;
    bool not_primary;
    uint64_t given;           /* in total order: the number of the last message that programs were told, or could be */
    rs_kept *kept;            /* messages for replay (kept.h); NULL: none are kept, or this server is no member yet */
    uint32_t replaying_count; /* streams that are given what is kept */
    rs_time waited_at;        /* since when a program here is waited for; 0: none is */
    /* trouble.h: what the manager was told last, and when; 0: that there is none; and who was put out last */
    uint64_t trouble, put_out_lost;
    rs_time trouble_at, put_out_at;
    char put_out[ROSTRUM_NAME_MAX + 1];
    uint64_t published, lost_slow;
};

static inline bool rs_group_is_viewed(const rs_local_group *group) {
    return group->standing != RS_GROUP_UNKNOWN;
}

static inline bool rs_group_is_member(const rs_local_group *group) {
    return group->standing >= RS_GROUP_MEMBER;
}

struct rs_groups {
    rs_agent *agent;
    rs_messages *node;
    rs_io *io;
    uint32_t incarnation, packet_bytes, message_bytes, window;
    rs_watch readable, writable;
    rs_local_group *groups, *by_id[RS_GROUP_BUCKETS], *by_name[RS_GROUP_BUCKETS];
    rs_local_group *ordered; /* those with guarantees */
    uint32_t instances;      /* of guarantees, made here */
    uint64_t history_bytes;  /* that kept messages take */
    uint32_t group_count, stream_count;
    rs_list sockets, paused; /* those with channels; those that wait for room to publish */
    uint32_t socket_count, ring_count;
    rs_group_socket *dirty; /* sockets with something to send */
    rs_group_peer *peers_by_id[RS_GROUP_BUCKETS], *peers_by_address[RS_GROUP_BUCKETS];
    uint32_t peer_count;
    rs_group_channel channels[RS_CHANNELS_MOST];
    uint32_t channel_room;
    rs_local_region *regions;
    uint32_t region_count, region_room;
    rs_linger linger[RS_CHANNELS_MOST];
    uint32_t linger_count;
    rs_flow_ears *ears;
    rs_flow_list report; /* what is reported next, to `report_to` */
    uint32_t report_to;
    rs_flow_sum flows, region_flows; /* of groups that are not in regions, and that are */
    uint64_t reports_refused, copies;
    bool any_held; /* a report of one of them is held back */
    rs_time trouble_looked_at;
    rs_time join_deadline;  /* of the first stream that waits for the manager, or earlier */
    rs_time held_until;     /* nothing is published before; 0: it is */
    bool held_long;         /* it may have been put out of its groups */
    bool held_checked;      /* the manager has answered: views end it */
    rs_time answered_at;    /* when the manager told a view, 0 = not yet */
    rs_time prepare_at;     /* the next part of the memory for messages is made then, */
    uint32_t prepare_steps; /* after so many */
    rs_time link_up_at;     /* when the manager was connected, or answered again, for the last time */
    /* packets that the socket did not take at once: copies */
    rs_io_packet kept[RS_IO_BATCH];
    uint32_t kept_count;
    uint8_t *kept_bytes;
    uint64_t drops;           /* of sockets, all addresses */
    bool behind;              /* they have dropped some at the last look */
    rs_time put_off_at;       /* since when datagrams from peers wait for multicast to be read; 0: they do not */
    uint32_t put_off_packets; /* and so many were read since */
    rs_drain drain;           /* timers wait for what is in the sockets */
    uint32_t listening;       /* multicast addresses, each with a socket */
    rs_group heard_at;        /* the one of these where something was read last */
    bool more;                /* the engine has more to say than one turn takes */
    rs_log_limit complaints, versions; /* `versions`: datagrams of other ones, or of kinds that are not known */
    uint64_t kinds;                    /* so many datagrams of kinds that are not known had come at the last look */
};

/* Packets of groups in regions go out at the pace of their engine: messages wait for programs alone. */
static inline rs_flow_sum *rs_group_sum(rs_groups *g, const rs_local_group *group) {
    return group->in_regions ? &g->region_flows : &g->flows;
}

#endif
