/* Message groups: publish to many servers, and get what others publish (docs/application-interface.md).
 *
 *     rostrum_group *ticks;
 *     if (rostrum_subscribe(agent, "ticks", NULL, &ticks, &error))
 *         errx(1, "%s", error.text);
 *     rostrum_message message;
 *     while (!rostrum_next(ticks, &message, -1, &error))
 *         if (message.kind == ROSTRUM_MESSAGE)
 *             use(message.sender, message.bytes, message.length);
 *         else
 *             warnx("%llu lost: %s", (unsigned long long)message.count, message.why);
 *
 * A group is used by one thread that publishes and one that takes, at most; beside them the connection may be used by
 * others. Its messages do not go through the connection: it may even be closed. */
#ifndef ROSTRUM_GROUPS_H
#define ROSTRUM_GROUPS_H

#include <rostrum/rostrum.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A group that this program is in. */
typedef struct rostrum_group rostrum_group;

/* Of a group that is not there yet; of one that is, they must be as it has them. */
typedef struct {
    const char *protocol; /* "plain": what is lost is lost; "ricochet": receivers mend each other's losses; NULL: as the
                           * group is, and then neither order nor options may be given */
    const char *order;    /* NULL or "none": as messages come; "fifo": of each sender as it published them; with
                           * guarantees (docs/guarantees.md): "sender", "agreed": one order for all, or "total": that
                           * once all have the message. May go on with ",guarantee=reliable", then ",slow=drop" or
                           * ",slow=disconnect", then, with "total", ",keep=64M" or ",keep=10m" and ",keep-on=disk" */
    const char *options;  /* of the protocol, such as "r=4,c=2"; what is not named, or NULL: as the group has it, or as
                           * usual (docs/groups.md lists them) */
    int completion;       /* not 0: ROSTRUM_COMPLETE tells how many of this program's messages all members have; INVALID
                           * if the group's protocol cannot say (qsm can) */
} rostrum_group_options;

/* Subscribes: what others publish from now on comes by rostrum_next, and rostrum_publish may be called too. What this
 * program itself publishes does not come back to it; other programs on this server get it. `options` NULL: as the group
 * is, or the manager's defaults. Errors: DENIED (the manager's text: another protocol, too many groups, ...),
 * UNAVAILABLE (no manager), TIMEOUT, LIMIT. */
ROSTRUM_API rostrum_code rostrum_subscribe(rostrum *agent, const char *group, const rostrum_group_options *options,
                                           rostrum_group **out, rostrum_error *error);
/* The same, with what the group keeps (docs/guarantees.md, Replay) from message `number` on; 0: from the first that is
 * kept. Then what is published comes, without a gap and no message twice. Of messages that no member keeps any more
 * ROSTRUM_MESSAGES_LOST tells how many. DENIED, too: the group keeps none. */
ROSTRUM_API rostrum_code rostrum_subscribe_from(rostrum *agent, const char *group, const rostrum_group_options *options,
                                                uint64_t number, rostrum_group **out, rostrum_error *error);
/* From that time on: wall clock, ns since 1970, of the member that kept it first. */
ROSTRUM_API rostrum_code rostrum_subscribe_since(rostrum *agent, const char *group,
                                                 const rostrum_group_options *options, uint64_t time_ns,
                                                 rostrum_group **out, rostrum_error *error);
/* Only to publish: this server need not receive the group's messages. */
ROSTRUM_API rostrum_code rostrum_publisher(rostrum *agent, const char *group, const rostrum_group_options *options,
                                           rostrum_group **out, rostrum_error *error);
/* Sends what rostrum_publish keeps (waiting for the agent at most 10 s), leaves the group, and frees. */
ROSTRUM_API void rostrum_leave(rostrum_group *group);

/* As the group is. */
ROSTRUM_API const char *rostrum_group_protocol(const rostrum_group *group);
ROSTRUM_API const char *rostrum_group_order(const rostrum_group *group);
ROSTRUM_API uint32_t rostrum_group_message_bytes(const rostrum_group *group); /* the largest message */

/* More messages follow at once: this one may wait for them in the program, so that many go to the agent together. A
 * call without it, or rostrum_flush, sends all. */
#define ROSTRUM_MORE 1u

/* Publishes a copy. Waits while the agent has no room, because the network or receivers take no more. Errors: INVALID
 * (longer than rostrum_group_message_bytes), TIMEOUT (no room for 10 s; the message is kept, and goes out by a later
 * call), UNAVAILABLE (the agent is gone), DENIED (the group was deleted). */
ROSTRUM_API rostrum_code rostrum_publish(rostrum_group *group, const void *bytes, uint32_t length, unsigned flags,
                                         rostrum_error *error);
ROSTRUM_API rostrum_code rostrum_flush(rostrum_group *group, rostrum_error *error);

typedef enum {
    ROSTRUM_MESSAGE = 0,
    ROSTRUM_MESSAGES_LOST = 1, /* `count` packets of them (small ones share one), and `why` */
    ROSTRUM_VIEW = 2,          /* of groups with guarantees: who is in it from here on (rostrum_view) */
    ROSTRUM_PRIMARY = 3,       /* this server hears the primary part of the group (`count` 1) or not (0) */
    ROSTRUM_COMPLETE = 4,      /* of the messages that this program published, the first `sn` are with all members or,
                                * `count` more since the last time, are not known to be (options.completion) */
    ROSTRUM_JOINED = 5,        /* of a channel (rostrum/channels.h): it may be used now; */
    ROSTRUM_ENDED = 6          /* ... and there will be no more: `count` is a rostrum_code, `why` the agent's text */
} rostrum_message_kind;

/* How a message came. */
typedef enum {
    ROSTRUM_VIA_MULTICAST = 0,
    ROSTRUM_VIA_REPAIR = 1,
    ROSTRUM_VIA_RETRANSMIT = 2,
    ROSTRUM_VIA_KEPT = 3 /* it was given out before this program came */
} rostrum_via;

typedef struct {
    rostrum_message_kind kind;
    const char *sender; /* its server's name; "" of losses of any sender */
    uint64_t sn;        /* of the packet it came in, from 1 of each sender */
    uint32_t part;      /* small messages that came in one packet: its place */
    const void *bytes;  /* until the next call */
    uint32_t length;
    rostrum_via via;
    uint64_t count; /* of losses in the network: packets, each with a message, several small ones, or a part of a large
                     * one; of a slow subscriber: messages; 0: not known */
    const char *why;
} rostrum_message;

/* Who is in a group with guarantees, by servers' names, until the next call of rostrum_next. */
typedef struct {
    uint64_t id;     /* rises from view to view, the same everywhere */
    uint64_t number; /* messages before it, with order total */
    const char *const *members, *const *joined, *const *left;
    uint32_t member_count, joined_count, left_count;
    int anew; /* this server joined with it, or this program came while it held: what was before is not known here */
} rostrum_view;

/* The next message. `timeout_ms` -1: waits as long as it takes; 0: not at all. TIMEOUT: there is none. Other errors:
 * there will be no more. */
ROSTRUM_API rostrum_code rostrum_next(rostrum_group *group, rostrum_message *message, int timeout_ms,
                                      rostrum_error *error);
/* The last view that rostrum_next gave; NULL: none yet. */
ROSTRUM_API const rostrum_view *rostrum_group_view(const rostrum_group *group);
/* As CPG dispatches: the next message goes to `deliver`, views before it to `confchg`, both with `context`; what else
 * is told (losses, primary) goes to `deliver`, too. Returns after one `deliver`, or as rostrum_next. */
typedef void rostrum_deliver_fn(void *context, const rostrum_message *message);
typedef void rostrum_confchg_fn(void *context, const rostrum_view *view);
ROSTRUM_API rostrum_code rostrum_group_dispatch(rostrum_group *group, rostrum_deliver_fn *deliver,
                                                rostrum_confchg_fn *confchg, void *context, int timeout_ms,
                                                rostrum_error *error);
/* Readable when rostrum_next may have something; call it until it says TIMEOUT before waiting. */
ROSTRUM_API int rostrum_group_fd(const rostrum_group *group);

#ifdef __cplusplus
}
#endif

#endif
