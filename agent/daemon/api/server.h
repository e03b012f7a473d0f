/* The application interface (Republic, Table I) over a unix socket: clients, requests, answers
 * (docs/application-interface.md).
 *
 * The server knows the object store, so create, add, read, delete and drop are finished here. What concerns transfers
 * goes to the daemon through rs_api_handlers, and the daemon answers when it can: every answer names its call, and
 * answers to clients that are gone are dropped. Nothing here blocks.
 *
 * In a loop: watch rs_api_server_fd for readability (it is an epoll descriptor of the server's own); when it is
 * readable, or when rs_api_server_deadline has passed, call rs_api_server_dispatch. That is all. */
#ifndef RS_API_SERVER_H
#define RS_API_SERVER_H

#include "api/error.h"
#include "core/base/types.h"
#include "daemon/api/policy.h"
#include "daemon/store/store.h"

typedef struct rs_api_server rs_api_server;

/* A request that will be answered later. Copy it by value; it never becomes dangling. */
typedef struct {
    uint64_t client; /* never reused */
    uint64_t tag;    /* the client's */
} rs_api_call;

typedef struct {
    rs_api_call call;
    rs_object_id id;
    rs_object *object;    /* whole; rs_store_hold it while it is being sent. NULL: a continuing stream */
    int stream;           /* of a stream: the socket that its bytes come from, the callee's to close; else -1 */
    const char *process;  /* who asks, for logs */
    uint32_t wait_ms;     /* bound on waiting for a path; 0 = the manager's default */
    uint32_t deadline_ms; /* when the transfer should be done, from now, a hint for the scheduler; 0 = none */
    rostrum_straggler_policy stragglers;
    rostrum_protocol protocol;
    const char *options;     /* of that protocol, NAME=VALUE joined by commas; NULL or "": as usual */
    uint32_t receiver_count; /* 1 ... ROSTRUM_RECEIVERS_MAX, no doubles */
    const char *const *receivers;
} rs_api_send;

/* A program wants to read a continuing stream. */
typedef struct {
    rs_api_call call;
    rs_object_id id;
    const char *process;
    uint32_t wait_ms;      /* for the stream to begin; 0 = it must have begun */
    int stream;            /* the socket that its bytes go to, the callee's to close */
    uint32_t holder_count; /* STREAM_JOIN: who receives or sends it */
    const char *const *holders;
} rs_api_take;

/* A program wants a message group. */
typedef struct {
    rs_api_call call;
    bool subscribe;
    const char *process;
    const char *group, *protocol, *order; /* the last two "" = as the group is */
    const char *options;                  /* of the protocol's engine: what is not named is as the group has it */
    int socket;                           /* to be the group's, the callee's to close; -1: one is to be made */
    bool from, since;                     /* what the group keeps, too, from `start` on: a number, or a time */
    uint64_t start;                       /* a message's number; a time: wall clock, ns */
    const rs_policy_who *who;
    bool complete;                    /* it wants to know what is complete */
    bool ring;                        /* it takes messages by shared memory, too */
    struct rs_group_socket *channels; /* NULL: it was asked by a call; else on that socket, as that channel of it */
    uint16_t channel;
} rs_api_join;

/* A program asked for something. */
typedef struct {
    const char *what, *process; /* process "": it did not register yet */
    int pid;
    const rs_policy_who *who;
    const uint8_t *app; /* 16 bytes */
    bool has_object;
    uint64_t data_id;
    const char *group;          /* NULL: of none */
    const char *const *servers; /* receivers or holders */
    uint32_t server_count;
    const char *refusal; /* NULL: the policy allows it */
} rs_api_asked;

/* What the daemon does. Pointers in arguments are valid during the call only (an rs_object as long as the store says).
 */
typedef struct {
    /* Start sending. Answer at once with rs_api_reply_error if it cannot be started; otherwise with rs_api_reply_send
     * when it is over, whatever it came to. The transfer goes on when the client goes away. */
    void (*on_send)(void *context, const rs_api_send *send);
    /* The digest of an object that is being sent already is taken. */
    void (*on_added)(void *context, const rs_object *object);
    /* It cannot be taken: everything that uses the object has to let go of it. */
    void (*on_unreadable)(void *context, const rs_object *object, const char *text);
    /* Stop the sending of that object. Answer with rs_api_reply_ok or rs_api_reply_error; the send itself is answered
     * too. */
    void (*on_cancel)(void *context, const rs_api_call *call, const rs_object_id *id);
    /* The application wants an object or stream no more that comes in here. Answer with rs_api_reply_ok or
     * rs_api_reply_error. NULL: nothing comes in here. */
    void (*on_leave)(void *context, const rs_api_call *call, const rs_object_id *id);
    /* An application wants that object deleted: whatever here can let go of it should, before the store looks. May be
     * NULL. */
    void (*on_delete)(void *context, const rs_object_id *id);
    /* Answer with rs_api_reply_group or rs_api_reply_error, then or later. NULL: there are no groups here. */
    void (*on_join)(void *context, const rs_api_join *join);
    /* A socket for many groups; of `join` only call, process, who, socket count. Answer as on_join. NULL: none. */
    void (*on_channels)(void *context, const rs_api_join *join);
    /* A stream that is being sent is whole with so many bytes. Answer with rs_api_reply_ok or rs_api_reply_error. NULL:
     * there are no streams here. */
    void (*on_stream_end)(void *context, const rs_api_call *call, const rs_object_id *id, uint64_t bytes);
    /* Answer at the end with rs_api_reply_streamed, or with rs_api_reply_error. NULL: there are no streams here. */
    void (*on_stream_receive)(void *context, const rs_api_take *take);
    /* The same, of a stream that is not for this server: it is joined under way. NULL: that cannot be. */
    void (*on_stream_join)(void *context, const rs_api_take *take);
    /* An object is to be fetched; it is answered when it is whole, by rs_api_fetch_failed, or when its time is over.
     * False and `error`: it cannot be begun. NULL: there is no fetching here. */
    /* The program knows the object by that name; it may not be here (yet). May be NULL. */
    void (*on_name)(void *context, const rs_object_id *id, const char *name);
    bool (*on_fetch)(void *context, const rs_object_id *id, const char *const *holders, uint32_t count,
                     rs_error *error);
    /* Answer with rs_api_reply_status, which leaves application ids out that are none of the asker's business. */
    void (*on_status)(void *context, const rs_api_call *call);
    /* A program asks for something, and may or may not. May be NULL. */
    void (*on_asked)(void *context, const rs_api_asked *asked);
    /* One line for the log. May be NULL. */
    void (*log)(void *context, const char *text);
    void *context;
} rs_api_handlers;

typedef struct {
    const char *socket_path; /* and <socket_path>.framed, for programs that pass no descriptors (api/framed.h) */
    uint32_t socket_mode;    /* 0 = 0660 */
    bool has_group;          /* the socket is `group`'s, else that of the process */
    uint32_t group;
    const char *server_name; /* this server, as in the topology file */
    const char *version;     /* of the agent */
    uint64_t boot_id;
    uint8_t digest_algorithm;  /* of added objects: RS_DIGEST_XXH3 (also by 0) or RS_DIGEST_SHA256 */
    uint32_t max_clients;      /* 0 = 256 */
    uint32_t max_pending;      /* requests a client may have waiting in the server (reads, adds); 0 = 1024 */
    uint64_t max_queued_bytes; /* answers a client may leave unread before it is disconnected; 0 = 16 MiB */
} rs_api_config;

/* Listens. A socket that a dead agent left is replaced; a live one is an error. NULL and `error`. The store outlives
 * the server. */
rs_api_server *rs_api_server_new(const rs_api_config *config, const rs_api_handlers *handlers, rs_store *store,
                                 rs_error *error);
/* Disconnects everyone and removes the socket. */
void rs_api_server_free(rs_api_server *server);

int rs_api_server_fd(const rs_api_server *server);
/* When to call dispatch even if nothing is readable: RS_NEVER, or a monotonic time; a time in the past when digests are
 * waiting to be taken. */
rs_time rs_api_server_deadline(const rs_api_server *server);
/* Serves what is there, a bounded amount of it, and takes up to some 4 MiB of digests. `now` is monotonic. */
/* Something in the store waits for rs_store_work. */
void rs_api_store_work(rs_api_server *server);
void rs_api_server_dispatch(rs_api_server *server, rs_time now);

/* Answers. Each ends its call, except where said. */
void rs_api_reply_ok(rs_api_server *server, const rs_api_call *call);
__attribute__((format(printf, 4, 5))) void rs_api_reply_error(rs_api_server *server, const rs_api_call *call,
                                                              rostrum_code code, const char *format, ...);
/* result->data_id and ->size are taken as they are; the server's subscribers to the object get a final PHASE "done"
 * from the caller's rs_api_event, not from here. */
void rs_api_reply_send(rs_api_server *server, const rs_api_call *call, const rostrum_send_result *result);
/* All `bytes` of a stream went to the program. */
void rs_api_reply_streamed(rs_api_server *server, const rs_api_call *call, uint64_t bytes);
/* `fd`: the program's end of the group's socket, taken over; -1: it has it already. */
void rs_api_reply_group(rs_api_server *server, const rs_api_call *call, const char *protocol, const char *order,
                        uint32_t message_bytes, int fd);

/* What an application's delete does. False and `error`. */
bool rs_api_drop(rs_api_server *server, const rs_object_id *id, rs_error *error);

/* ---- For waits.c. */

struct rs_api_client;
struct rs_api_client *rs_api_client_find(rs_api_server *server, uint64_t id);
/* Sends server->message, with `fd` (which is then owned by the queue, or closed). `lossy`: dropped when the client is
 * slow. */
void rs_api_transmit(rs_api_server *server, uint64_t client, int fd, bool lossy);
void rs_api_reply_failure(rs_api_server *server, const rs_api_call *call, const rs_error *error);
/* Answers a read of a whole object, an add. */
void rs_api_reply_object(rs_api_server *server, const rs_api_call *call, const rs_object *object);
void rs_api_reply_added(rs_api_server *server, const rs_api_call *call, const rs_object *object);

#endif
