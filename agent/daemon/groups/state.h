/* What the files of message groups share: groups, the peers that views name, addresses listened at, streams to
 * programs. */
#ifndef RS_DAEMON_GROUPS_STATE_H
#define RS_DAEMON_GROUPS_STATE_H

#include "daemon/agent.h"
#include "daemon/groups/flow.h"
#include "daemon/groups/groups.h"
#include "io/datagrams.h"

#define RS_GROUPS_MOST 4096u   /* in use here */
#define RS_STREAMS_MOST 4096u  /* of all programs together */
#define RS_CHANNELS_MOST 1024u /* multicast addresses at a time */
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
    char *name;
} rs_group_peer;

/* A multicast address: several groups may use it. The engine's rs_group is its index. */
typedef struct {
    uint32_t address; /* 0 = free */
    uint16_t port;
    uint32_t users, listeners; /* groups */
} rs_group_channel;

/* A group left that address lately: it is listened at a little longer. */
typedef struct {
    rs_group channel;
    rs_time until;
} rs_linger;

typedef struct rs_group_stream rs_group_stream;

typedef struct rs_local_group {
    struct rs_local_group *next, *next_by_id;
    char name[ROSTRUM_GROUP_NAME_MAX + 1];
    rs_group_stream *streams;
    uint32_t stream_count, receiver_count; /* waiting ones too */
    bool viewed;                           /* the rest holds; the engine knows it */
    bool member;                           /* this server is one, by the newest view */
    bool listening;                        /* at `channel` */
    bool reports;                          /* of the members it is one that tells senders how far it is */
    bool told_join, told_use;              /* to the manager, since it was last there */
    bool asked;                            /* for a program that waits: a refusal may be about it alone */
    uint32_t held;                         /* its streams are being gone through */
    rs_time unused_at;                     /* it goes then; RS_NEVER: programs use it */
    uint32_t id;
    uint64_t version;
    rs_group channel;
    char protocol[32], order[8];
    uint32_t r, c, stagger;
    int32_t *members, *senders; /* ids of peers, ascending */
    uint32_t member_count, sender_count;
    rs_flow flow;
    uint64_t published, delivered, by_repair, by_request, lost, lost_slow;
} rs_local_group;

struct rs_groups {
    rs_agent *agent;
    rs_messages *node;
    rs_io *io;
    uint32_t incarnation, packet_bytes, message_bytes, window;
    rs_watch readable, writable;
    rs_local_group *groups, *by_id[RS_GROUP_BUCKETS];
    uint32_t group_count, stream_count;
    uint32_t paused_count;  /* streams that wait for room to publish */
    rs_group_stream *dirty; /* streams with something to send */
    rs_group_peer *peers_by_id[RS_GROUP_BUCKETS], *peers_by_address[RS_GROUP_BUCKETS];
    uint32_t peer_count;
    rs_group_channel channels[RS_CHANNELS_MOST];
    uint32_t channel_room;
    rs_linger linger[RS_CHANNELS_MOST];
    uint32_t linger_count;
    rs_flow_heard *heard;
    uint64_t reports_refused;
    bool any_held;         /* a report of one of them is held back */
    rs_time join_deadline; /* of the first stream that waits for the manager, or earlier */
    /* packets that the socket did not take at once: copies */
    rs_io_packet kept[RS_IO_BATCH];
    uint32_t kept_count;
    uint8_t *kept_bytes;
    uint64_t drops;     /* of sockets, all addresses */
    bool behind;        /* they have dropped some at the last look */
    rs_time put_off_at; /* since when datagrams from peers wait for multicast to be read; 0: they do not */
    bool more;          /* the engine has more to say than one turn takes */
    rs_log_limit complaints, versions; /* `versions`: datagrams of other ones */
};

/* groups.c */
rs_local_group *rs_groups_by_id(const rs_groups *groups, uint32_t id);
rs_local_group *rs_groups_by_name(const rs_groups *groups, const char *name);
/* The manager is told, if it is there; with what is held of the group if `held`. */
void rs_group_tell(rs_groups *groups, rs_local_group *group, rs_link_group_call call, bool held);
/* The engine has nothing to do with it any more. */
void rs_group_forget(rs_groups *groups, rs_local_group *group);
/* Its programs, or those that wait for it, are told why. */
void rs_group_refuse(rs_local_group *group, bool waiting_only, rostrum_code code, const char *words);

/* A stream was closed: the group goes some time after its last one. */
void rs_groups_stream_gone(rs_groups *groups, rs_local_group *group, bool received);

/* groups/views.c */
void rs_group_leave_channel(rs_groups *groups, rs_local_group *group, bool linger);

/* groups/peers.c */
/* NULL: no memory, or RS_GROUP_PEERS_MOST. */
rs_group_peer *rs_group_peer_learn(rs_groups *groups, const rs_link_group_peer *peer);
rs_group_peer *rs_group_peer_by_id(const rs_groups *groups, int32_t id);
/* NULL: no view named it. This server itself is made if it is not known. */
rs_group_peer *rs_group_peer_at(rs_groups *groups, uint32_t address);
void rs_group_peers_free(rs_groups *groups);

/* groups/sockets.c */
bool rs_groups_sockets_start(rs_groups *groups);
void rs_groups_sockets_stop(rs_groups *groups);
rs_time rs_groups_sockets_deadline(const rs_groups *groups);
void rs_groups_sockets_timeout(rs_groups *groups);
/* Senders are told, if programs have read on and what was missing is here. */
void rs_groups_report_held_back(rs_groups *groups);
/* RS_NO_GROUP: too many. */
rs_group rs_channel_use(rs_groups *groups, uint32_t address, uint16_t port);
void rs_channel_unuse(rs_groups *groups, rs_group channel);
bool rs_channel_listen(rs_groups *groups, rs_group channel, char *error);
/* `linger`: not at once. */
void rs_channel_ignore(rs_groups *groups, rs_group channel, bool linger);
bool rs_groups_send_packets(rs_groups *groups);
void rs_groups_send_to(rs_groups *groups, uint32_t address, const uint8_t *head, size_t head_length,
                       const uint8_t *rest, size_t rest_length);

/* groups/stream.c */
/* NULL: no memory. It waits until rs_stream_open or rs_stream_refuse. */
rs_group_stream *rs_stream_new(rs_groups *groups, rs_local_group *group, const rs_api_join *join, rs_time deadline);
bool rs_stream_waits(const rs_group_stream *stream);
bool rs_stream_receives(const rs_group_stream *stream);
rs_time rs_stream_deadline(const rs_group_stream *stream);
rs_group_stream *rs_stream_next(const rs_group_stream *stream);
/* What the program asked for; protocol "" = as the group is. */
const rs_link_group_options *rs_stream_options(const rs_group_stream *stream);
/* The program gets its end. */
void rs_stream_open(rs_group_stream *stream);
/* A waiting stream: the program is told; an open one: it reads the words last. The stream is gone then. */
void rs_stream_refuse(rs_group_stream *stream, rostrum_code code, const char *words);
void rs_stream_message(rs_group_stream *stream, const rs_messages_event *event);
void rs_stream_lost(rs_group_stream *stream, const rs_messages_event *event);
/* Sends what was put into streams since. */
void rs_streams_flush(rs_groups *groups);
/* Publishes of those that waited for room, as many as go. */
void rs_streams_resume(rs_groups *groups);
/* A subscriber of the group has much unread, and is reading. */
bool rs_stream_is_catching_up(const rs_group_stream *stream, rs_time now);

#endif
