/* What stream.c holds: the sockets of programs, and the groups that they are in by each. */
#ifndef RS_DAEMON_GROUPS_STREAM_STATE_H
#define RS_DAEMON_GROUPS_STREAM_STATE_H

#include "api/shared_ring.h"
#include "core/base/list.h"
#include "daemon/api/access.h"
#include "daemon/groups/state.h"
#include "daemon/groups/stream.h"

#define RS_STREAM_STUCK RS_FLOW_HOLD /* a program that reads nothing so long is not waited for */

/* What published.c needs of stream.c. */
typedef struct {
    /* One frame of a program. RS_ERR_LIMIT: later; other errors: it does not keep to the format. */
    rs_status (*take)(rs_group_socket *s, int kind, const uint8_t *frame, uint32_t length);
    void (*watch)(rs_group_socket *s); /* it is paused, or not any more */
} rs_published_calls;

/* A program's end. */
struct rs_group_socket {
    rs_list in_groups; /* of those with channels: in rs_groups.sockets */
    rs_list in_paused; /* in rs_groups.paused while it is */
    rs_group_socket *next_dirty;
    rs_groups *groups;
    bool many; /* It carries channels; else one stream, with which it goes. */
    bool paused, dirty, blocked;
    bool asks;      /* for a ring */
    bool loses;     /* Some of its channels lost messages that they were not told of. */
    bool completes; /* Something complete was not told for want of room. */
    int fd, given;  /* given: the program's own, to be `fd` once it is open; else -1 */
    rs_watch watch;
    uint8_t *in, *out;
    size_t in_start, in_length, in_room;
    const rs_published_calls *calls;
    size_t out_start, out_length, out_room;
    rs_shared_ring ring;      /* in front of `out`; no page: the socket is */
    int event;                /* by which who took of a ring says so: the program by an eventfd, of `ring` */
    rs_watch roomy;           /* of that */
    rs_shared_ring published; /* in front of `in`, of who only publishes; no page: the socket is */
    rs_time progress_at;
    int left;          /* of a full socket: its bytes that were not read when progress was last seen */
    rs_time looked_at; /* at these */
    char process[ROSTRUM_NAME_MAX + 1];
    rs_policy_who who;
    uint64_t *told; /* bit i: the program knows the name of the peer with that index */
    uint32_t told_size;
    rs_group_stream *alone;
    rs_group_stream **channels; /* by number; `channel_room` of them */
    uint32_t channel_room;
};

/* Messages of a program up to `number` are complete when the group's packets up to `sn` are. */
typedef struct {
    uint64_t number, sn;
} rs_stream_pending;

/* What each message needs comes first, as in a group. */
struct rs_group_stream {
    _Alignas(RS_MEMORY_LINE) rs_group_stream *next;
    rs_groups *groups;
    rs_local_group *group;
    rs_group_socket *socket;
    uint16_t channel; /* 0: it has the socket alone */
    bool receives, waits, may_publish;
    bool refused;  /* it published, and may not */
    bool complete; /* the program wants to know what is complete */
    /* It is given what the group kept, and then hears the group: from the message of that number on, or, with `since`,
     * from that time on. `oldest`: from the first that is kept. */
    bool replaying, since, oldest;
    uint64_t lost;  /* not told yet: there was no room */
    bool owes_view; /* nor was a view, or that the group is not in the primary part: it is told what holds then */
    uint64_t cursor;
    rs_api_call call;
    rs_time deadline;
    rs_manager_group_options options; /* texts of its own until it is open */
    char *texts;
    uint64_t lost_all;
    rs_time lost_at;                 /* the last of them */
    uint64_t published;              /* messages, */
    uint64_t completed, complete_to; /* of which these are complete; and those that were told so */
    uint64_t given_up;               /* of which nobody knows; not told yet */
    rs_stream_pending *pending;      /* a ring of `pending_room` */
    uint32_t pending_room, pending_head, pending_tail;
};

/* Bytes that wait here until it has read what was before. */
static inline size_t rs_stream_unread(const rs_group_socket *s) {
    return s->out_length - s->out_start;
}

/* How much may wait for it now. */
static inline size_t rs_stream_unread_most(const rs_group_socket *s) {
    rs_time now = rs_agent_now(s->groups->agent);
    return rs_stream_unread(s) == 0 || now - s->progress_at < RS_STREAM_STUCK ? RS_UNREAD_MOST : RS_UNREAD_STUCK;
}

#endif
