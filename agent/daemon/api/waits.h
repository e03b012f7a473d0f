/* Requests that take time: reads that wait, allocation and digests a piece at a time, subscriptions. With them the
 * server and its clients, whose fields both files know. */
#ifndef RS_API_WAITS_H
#define RS_API_WAITS_H

#include "api/wire.h"
#include "daemon/accept.h"
#include "daemon/api/ephemeral.h"
#include "daemon/api/framed.h"
#include "daemon/api/server.h"
#include "daemon/store/digest.h"

#define RS_API_KEY 32 /* characters by which a program names one of its own connections */

/* An answer that the client's socket did not take yet. */
typedef struct rs_api_outgoing {
    struct rs_api_outgoing *next;
    int fd;            /* to go with it, owned; or -1 */
    size_t length, at; /* at: what is written, of a frame */
    uint8_t data[];
} rs_api_outgoing;

typedef struct rs_api_client {
    uint64_t id;
    int fd;
    bool framed; /* on the framed socket */
    rs_framed frame;
    char key[RS_API_KEY + 1]; /* it waits to become a stream's or a group's socket, which is asked for by that */
    rs_time key_ends;
    bool registered;
    bool ephemeral; /* its application's objects go with the last process that asked so */
    bool dead;      /* no more reading or writing; reaped by the next dispatch */
    uint8_t app[16];
    char process[ROSTRUM_NAME_MAX + 1];
    int pid;
    unsigned int uid;
    rs_policy_who who;
    uint32_t pending; /* waits of this client, all kinds */
    rs_api_outgoing *first, *last;
    uint64_t queued_bytes;
    uint64_t events_dropped;
} rs_api_client;

typedef enum {
    RS_WAIT_READ,   /* for an object to be whole */
    RS_WAIT_CREATE, /* for a created file to be allocated */
    RS_WAIT_DIGEST, /* for an added object's digest */
    RS_WAIT_EVENTS, /* a subscription */
    RS_WAIT_SEND    /* the events of a send, until it is answered */
} rs_api_wait_kind;

/* A request that is not finished. One list for all; bounded per client. */
typedef struct rs_api_wait {
    struct rs_api_wait *next;
    rs_api_wait_kind kind;
    rs_api_call call;
    rs_object_id id;
    rs_time deadline;     /* READ */
    uint32_t wait_ms;     /* READ: for the words */
    bool fetch;           /* READ: it was asked for by FETCH, which may fail before its time */
    rs_object *object;    /* CREATE, DIGEST */
    rs_digest_tree *tree; /* DIGEST */
    bool failed;          /* DIGEST: and answered; transfers still use the object */
    bool follows;         /* DIGEST: what is sent, as that is fast */
    uint64_t sent;        /* DIGEST: object->sent, at looked_at */
    rs_time looked_at;
    unsigned looks;
    char *cause; /* READ: why the last transfer of it failed */
} rs_api_wait;

struct rs_api_server {
    rs_api_config config;
    rs_api_handlers handlers;
    rs_store *store;
    int listener, framed_listener, epoll;
    char *path, *framed_path, *server_name, *version;
    uint64_t next_client;
    uint32_t client_count;
    rs_api_client **clients; /* [config.max_clients] */
    rs_api_wait *waits;
    uint32_t work_count;     /* waits that this server itself must work on */
    uint32_t listener_count; /* waits for events */
    bool oldest_turn;        /* of these that have work to do, the oldest had the last turn */
    bool store_work;
    bool reap;
    rs_time now;
    rs_time read_deadline; /* the nearest of the waiting reads, or earlier */
    rs_time key_ends;      /* the nearest of those that wait to be asked for */
    rs_accept_pause pause;
    rs_ephemeral ephemeral;
    const rs_policy *policy;        /* NULL: everybody may do everything */
    rs_api_request request;         /* the one being served */
    rs_api_message message;         /* the one being built */
    char where[RS_STORE_PATH_SIZE]; /* goes with it to a client that can take no descriptor */
    uint8_t input[RS_API_MESSAGE_MAX];
};

/* NULL (and the call is answered) when the client has too many. `client` NULL: for nobody, and so not answered. */
rs_api_wait *rs_api_wait_new(rs_api_server *server, rs_api_client *client, rs_api_wait_kind kind,
                             const rs_api_call *call, const rs_object_id *id);
/* Unlinks and frees; a wait that works on a digest or an allocation takes its object along when `discard`. */
void rs_api_wait_end(rs_api_server *server, rs_api_wait *wait, bool discard);
/* Makes the file an object, whose digest `wait` takes. False and `error` if that cannot be, and the wait is over. */
bool rs_api_add_object(rs_api_server *server, rs_api_wait *wait, int fd, rs_error *error);
/* The agent itself adds a file, after a restart. NULL and `error`. */
rs_object *rs_api_add_again(rs_api_server *server, const rs_object_id *id, int fd, rs_error *error);
/* The client is gone or unregistered: its reads, creations and subscriptions end. Returns how many. */
uint32_t rs_api_waits_forget(rs_api_server *server, uint64_t client, bool answer);
void rs_api_waits_expire(rs_api_server *server);
/* A bounded amount of allocation and digesting. */
void rs_api_waits_work(rs_api_server *server);
/* Data was sent just now: the digest of an object that is sent fast follows, while the data is in the cache. */
void rs_api_digest_sent(rs_api_server *server, rs_time now);
/* When there is more to do: 0 = at once. */
rs_time rs_api_waits_due(const rs_api_server *server);
/* Ends the events of a send whose call is answered. */
void rs_api_send_events_end(rs_api_server *server, const rs_api_call *call);

/* ---- For the rest of the daemon. */

/* The store has a new whole object (after rs_store_commit): waiting reads are answered. */
void rs_api_object_complete(rs_api_server *server, const rs_object_id *id);
/* A transfer of it to this server failed: reads go on waiting within their bounds (it may be sent again), and say
 * `cause` if they time out. */
void rs_api_object_failed(rs_api_server *server, const rs_object_id *id, const char *cause);
/* Nobody gives it: those who asked for it by FETCH are answered. */
void rs_api_fetch_failed(rs_api_server *server, const rs_object_id *id, const char *cause);
/* Is anybody listening (worth computing progress)? */
bool rs_api_event_wanted(const rs_api_server *server, const rs_object_id *id);
/* Something happened to the transfer of that object: goes to the sends that asked for events and to all who subscribed.
 * event->data_id is set here; time_ns 0 = now. Cheap when nobody listens. */
void rs_api_event(rs_api_server *server, const rs_object_id *id, const rostrum_event *event);

#endif
