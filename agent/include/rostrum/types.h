/* Values of the application interface, shared by librostrum and the agent: what a transfer came to, what happens
 * meanwhile, what is stored.
 *
 * Times named *_ns are wall clock, nanoseconds since the epoch, 0 = has not happened; rates are bits/s on the wire;
 * sizes are bytes. Bounded text is NUL-terminated UTF-8. The byte format on the socket is
 * docs/application-interface.md. */
#ifndef ROSTRUM_TYPES_H
#define ROSTRUM_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ROSTRUM_NAME_MAX 255        /* bytes of a server's or process's name */
#define ROSTRUM_GROUP_NAME_MAX 128  /* characters of a message group's name */
#define ROSTRUM_TEXT_MAX 255        /* bytes of a cause or reason */
#define ROSTRUM_RECEIVERS_MAX 16384 /* receivers of one send; their names are 192 KiB together at most */

/* Why a request failed; the words that come along say the rest. */
typedef enum {
    ROSTRUM_OK = 0,
    ROSTRUM_ERR_INVALID = 1,        /* an argument makes no sense */
    ROSTRUM_ERR_NOT_REGISTERED = 2, /* register first */
    ROSTRUM_ERR_EXISTS = 3,         /* that object, transfer or registration is already there */
    ROSTRUM_ERR_UNKNOWN = 4,        /* no such object, transfer or server */
    ROSTRUM_ERR_BUSY = 5,           /* held by a transfer, or not finished yet */
    ROSTRUM_ERR_NO_ROOM = 6,        /* quota reached, or the tmpfs is full */
    ROSTRUM_ERR_TIMEOUT = 7,        /* a bound on waiting passed */
    ROSTRUM_ERR_DENIED = 8,         /* the manager said no */
    ROSTRUM_ERR_CANCELLED = 9,
    ROSTRUM_ERR_LIMIT = 10,       /* too many of something at once */
    ROSTRUM_ERR_UNAVAILABLE = 11, /* the agent or the manager cannot be reached */
    ROSTRUM_ERR_IO = 12,          /* the system refused an operation */
    ROSTRUM_ERR_PROTOCOL = 13,    /* the other side of the socket does not speak this protocol */
    ROSTRUM_ERR_FAILED = 14       /* the transfer did not reach every receiver */
} rostrum_code;

typedef struct {
    rostrum_code code;
    char text[ROSTRUM_TEXT_MAX + 1];
} rostrum_error;

/* What becomes of a receiver that takes less than half of what half of the others take, while they wait for it. */
typedef enum {
    ROSTRUM_STRAGGLERS_DEFAULT = 0, /* as the agent was told (rostrumd --stragglers) */
    ROSTRUM_STRAGGLERS_WAIT = 1,    /* all wait for it */
    ROSTRUM_STRAGGLERS_DEMOTE = 2,  /* the others go on; it is finished by unicast */
    ROSTRUM_STRAGGLERS_EVICT = 3    /* the others go on; it fails, and its cause says how slow it was */
} rostrum_straggler_policy;

/* By which protocol an object travels. */
typedef enum {
    ROSTRUM_PROTOCOL_AUTO = 0,     /* the manager chooses: RDCM on packet trees, Republic on circuits */
    ROSTRUM_PROTOCOL_REPUBLIC = 1, /* the sender mends what is lost */
    ROSTRUM_PROTOCOL_RDCM = 2,     /* receivers mend each other's losses along a backup overlay */
    ROSTRUM_PROTOCOL_WAN = 3       /* for long round trips: sections, consolidated NACKs, a rate by delay */
} rostrum_protocol;

typedef enum {
    ROSTRUM_RECEIVER_WAITING = 0, /* no light yet */
    ROSTRUM_RECEIVER_RECEIVING = 1,
    ROSTRUM_RECEIVER_DONE = 2, /* whole and digest-checked */
    ROSTRUM_RECEIVER_FAILED = 3,
    ROSTRUM_RECEIVER_LEFT = 4 /* it wanted the object no more (rostrum_leave_object): no failure of the send */
} rostrum_receiver_state;

typedef struct {
    char name[ROSTRUM_NAME_MAX + 1];
    rostrum_receiver_state state;
    bool digest_ok;
    bool had_it;         /* it had the object before this send */
    uint64_t initial_sn; /* first fragment it got; means something once first_light_ns is set */
    uint64_t patched_fragments;
    int64_t first_light_ns, complete_ns;
    char cause[ROSTRUM_TEXT_MAX + 1]; /* of a failure; or why it was served by unicast though others were not */
} rostrum_receiver;

typedef enum { ROSTRUM_PATH_NONE = 0, ROSTRUM_PATH_CIRCUIT = 1, ROSTRUM_PATH_PACKET = 2 } rostrum_path;

/* What a send came to. */
typedef struct {
    bool ok; /* every receiver is done with the right digest */
    uint64_t data_id;
    uint64_t size;
    char cause[ROSTRUM_TEXT_MAX + 1]; /* why not ok */

    /* Timeline. With several sessions: requested and accepted of the first, the others of the last. */
    int64_t requested_ns, accepted_ns, attempt_ns, high_rate_ns, data_done_ns, released_ns, done_ns;

    rostrum_path path;
    rostrum_protocol protocol;         /* that of the last session; AUTO: none was begun */
    char reason[ROSTRUM_TEXT_MAX + 1]; /* why this kind of path; the manager's text */
    char response_id[64];
    int64_t reconfiguration_ns; /* what the manager told to expect; 0 = a live circuit or a packet path */
    uint32_t sessions;
    uint32_t fragment_size;
    uint64_t packets_sent;      /* data packets, all phases */
    uint64_t packets_attempt;   /* of these, in the attempt phase */
    uint64_t packets_redundant; /* of these, beyond one per fragment */
    uint64_t packets_patched;   /* sent again on the control channel */
    uint64_t packets_repair;    /* repair packets by multicast, not in packets_sent */
    uint64_t losses_repaired;   /* losses they mended, all receivers together */
    uint64_t acks_received;     /* RDCM: acknowledgements, packets */
    uint64_t bytes_sent;        /* payload bytes, data channel and patches */
    int64_t rate_bps;           /* highest pacing rate reached */

    uint32_t receiver_count;
    const rostrum_receiver *receivers;
} rostrum_send_result;

typedef enum {
    /* `subject` names the phase: requested, queued, accepted, attempt, high-rate, data-done, released, patching, done
     */
    ROSTRUM_EVENT_PHASE = 1,
    ROSTRUM_EVENT_RECEIVER = 2, /* `subject` is a receiver; `state` its new state */
    ROSTRUM_EVENT_PROGRESS = 3, /* numbers only; dropped first when the client is slow */
    ROSTRUM_EVENT_LOG = 4       /* `text` for a person */
} rostrum_event_kind;

/* Something that happened to a transfer. Fields that say nothing about the kind are 0 or empty. */
typedef struct {
    rostrum_event_kind kind;
    uint64_t data_id;
    int64_t time_ns;
    bool sending; /* seen at the sender, or at a receiver */
    rostrum_receiver_state state;
    uint32_t session;
    uint64_t bytes; /* sender: payload bytes sent at least once; receiver: bytes present */
    uint64_t size;
    uint64_t sn; /* a receiver's initial sn */
    int64_t rate_bps;
    uint32_t receivers, receivers_done, receivers_failed;
    char subject[ROSTRUM_NAME_MAX + 1];
    char text[ROSTRUM_TEXT_MAX + 1];
} rostrum_event;

/* One transfer in the agent's status. */
typedef struct {
    uint8_t app[16];
    uint64_t data_id;
    bool sending;
    char phase[32];
    char peer[ROSTRUM_NAME_MAX + 1]; /* receiving: the sender */
    rostrum_path path;
    rostrum_protocol protocol;
    uint64_t size, bytes;
    int64_t rate_bps;
    uint32_t receivers, receivers_done, receivers_failed;
    int64_t requested_ns;
    /* RDCM */
    uint64_t view;                           /* version of the overlay's newest view; 0 = none yet */
    uint64_t acks_sent, acks_received;       /* packets */
    uint64_t repairs_sent, repairs_received; /* packets, to and from peers */
    uint64_t repairs_old;                    /* of the received ones: had been here already */
    uint64_t window;                         /* packets: receiver: congestion window; sender: may be under way */
    int64_t ack_timeout_ns;
} rostrum_transfer;

typedef enum { ROSTRUM_OBJECT_BUILDING = 0, ROSTRUM_OBJECT_COMPLETE = 1 } rostrum_object_state;

/* One object in the agent's store. */
typedef struct {
    uint8_t app[16];
    uint64_t data_id;
    rostrum_object_state state;
    bool received;  /* by a transfer; otherwise an application here wrote it, and it never goes by itself */
    bool pinned;    /* it stays when room is made */
    bool goes;      /* soon, to make room */
    uint32_t holds; /* transfers using it */
    uint64_t size;
    uint8_t digest_algorithm; /* 0 not yet known, 1 xxh3-128 tree, 2 SHA-256 tree */
    uint8_t digest_length;
    uint8_t digest[32];
} rostrum_object;

/* One message group in the agent's status. */
typedef struct {
    char name[ROSTRUM_GROUP_NAME_MAX + 1];
    char protocol[32], order[8]; /* "" until the manager has said */
    char address[16];            /* multicast, dotted */
    uint32_t id;
    uint64_t version;                 /* of its view */
    bool joined;                      /* this server receives it */
    uint32_t members;                 /* servers */
    uint32_t subscribers, publishers; /* programs here */
    uint64_t published, delivered;    /* messages */
    uint64_t lost;                    /* packets: not recovered */
    uint64_t lost_slow;               /* messages that programs here did not take in time */
    uint64_t by_repair, by_request;   /* messages delivered that were lost on the way: how they came after all */
} rostrum_group_status;

typedef struct {
    char server[ROSTRUM_NAME_MAX + 1];
    char version[32];
    uint64_t boot_id;
    int64_t started_ns;
    bool manager_up;
    char manager[ROSTRUM_TEXT_MAX + 1]; /* where the manager is and how the link to it stands, as text */
    char store[ROSTRUM_TEXT_MAX + 1];   /* the store's folder */
    uint64_t store_used, store_quota;
    uint32_t clients;
    uint64_t packets_bad; /* malformed packets and messages from the network since the start */
    uint32_t transfer_count, object_count, group_count;
    const rostrum_transfer *transfers;
    const rostrum_object *objects;
    const rostrum_group_status *groups;
} rostrum_status;

#ifdef __cplusplus
}
#endif

#endif
