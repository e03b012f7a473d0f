/* Messages on the application socket (docs/application-interface.md): their bytes, both ways. Used by the agent, by
 * librostrum, by tests and by the fuzzer. No I/O, no allocation.
 *
 * One message is one SOCK_SEQPACKET record: a 16-byte header (magic u16, version u8, type u8, zero u32, tag u64), then
 * the type's fields, little-endian, text as u8 length and bytes. */
#ifndef RS_API_WIRE_H
#define RS_API_WIRE_H

#include "api/error.h"
#include "api/group_delivery.h"

#define RS_API_MAGIC 0x5241u /* "AR" */
#define RS_API_VERSION 1u
#define RS_API_HEADER_SIZE 16u
#define RS_API_MESSAGE_MAX 196608u /* less than what sockets send at once everywhere (wmem_default) */

typedef enum {
    /* requests */
    RS_API_REGISTER = 1,
    RS_API_UNREGISTER = 2,
    RS_API_ADD = 3, /* with a descriptor */
    RS_API_CREATE = 4,
    RS_API_DROP = 5,
    RS_API_SEND = 6,
    RS_API_READ = 7,
    RS_API_DELETE = 8,
    RS_API_STATUS = 9,
    RS_API_SUBSCRIBE = 10,
    RS_API_UNSUBSCRIBE = 11,
    RS_API_CANCEL = 12,
    RS_API_STREAM_SEND = 14, /* with a descriptor: the stream's bytes come from it */
    RS_API_STREAM_END = 15,
    RS_API_STREAM_RECEIVE = 16, /* with a descriptor: the stream's bytes go there */
    RS_API_JOIN = 17,           /* 13 had Ricochet's options spelled out */
    RS_API_FETCH = 18,          /* receivers: holders; answered by OBJECT */
    RS_API_NAME = 19,           /* by which the program knows an object */
    RS_API_PIN = 20,            /* an object stays when room is made; flag RS_API_PIN_ON: or does not any more */
    RS_API_LEAVE = 21,          /* an object or stream that comes here is wanted no more */
    RS_API_STREAM_JOIN = 22,    /* with a descriptor, as STREAM_RECEIVE; receivers: who receives or sends it */
    RS_API_NAMES = 23,          /* by which programs know the objects that are here; answered DONE */
    RS_API_EPHEMERAL = 24,      /* objects of the application here go with the last process that asks so */
    RS_API_CHANNELS = 25,       /* a socket for many groups, which are joined on it; answered by GROUP */
    /* answers; those marked + do not end the request */
    RS_API_DONE = 128,
    RS_API_ERROR = 129,
    RS_API_REGISTERED = 130,
    RS_API_ADDED = 131,
    RS_API_CREATED = 132,   /* with a descriptor */
    RS_API_OBJECT = 133,    /* with a descriptor */
    RS_API_RECEIVERS = 134, /* + rows of a send's result */
    RS_API_SENT = 135,
    RS_API_EVENT = 136,     /* + */
    RS_API_TRANSFERS = 137, /* + rows of the status */
    RS_API_OBJECTS = 138,   /* + rows of the status */
    RS_API_STATE = 139,
    RS_API_GROUP = 140,  /* with a descriptor: the group's own socket (api/group_frames.h) */
    RS_API_GROUPS = 141, /* + rows of the status */
    RS_API_STREAMED = 142,
    RS_API_NAMED = 143 /* + rows of NAMES */
} rs_api_type;

#define RS_API_JOIN_SUBSCRIBE 1u /* flag of JOIN: to receive, not only to publish */
#define RS_API_JOIN_COMPLETE 2u  /* flag of JOIN: to be told what is complete */
#define RS_API_JOIN_FROM 4u      /* flag of JOIN: what the group keeps, too, from `number` on */
#define RS_API_JOIN_SINCE 8u     /* flag of JOIN: the same, from `number` on as a time: wall clock, ns */
#define RS_API_JOIN_RING 16u     /* flag of JOIN: to have messages by shared memory, if the agent has it to give */
#define RS_API_PIN_ON 1u         /* flag of PIN */
#define RS_API_SEND_EVENTS 1u    /* flag of SEND: tell what happens */
#define RS_API_SEND_PROTOCOL 3   /* place of two bits in SEND's flags: a rostrum_protocol */
#define RS_API_SEND_STRAGGLERS 1 /* place of two bits in SEND's flags: a rostrum_straggler_policy */

/* An object's, in the answer to NAMES. */
typedef struct {
    uint8_t app[16];
    uint64_t data_id;
    const char *name;
} rs_api_object_name;

/* Well-formed UTF-8 without control characters: what may stand in a log line. */
bool rs_api_is_name(const char *text, size_t length);

/* A request. Fields that its type does not have are 0. */
typedef struct {
    uint8_t type;
    uint64_t tag;
    uint8_t app[16];     /* REGISTER */
    const char *process; /* REGISTER */
    uint64_t data_id;    /* ADD, SEND, READ, FETCH, NAME, PIN, DELETE, SUBSCRIBE, CANCEL, LEAVE, STREAM_* */
    uint64_t number;     /* CREATE: size; DROP: handle; UNSUBSCRIBE: tag of the subscription; STREAM_END: bytes;
                          * JOIN: see its flags */
    uint32_t flags, wait_ms, deadline_ms;
    uint32_t receiver_count;
    const char *receivers[ROSTRUM_RECEIVERS_MAX];
    const char *group;            /* JOIN; NAME: the name */
    const char *protocol, *order; /* JOIN: "" = as the group is */
    const char
        *options; /* JOIN: of the protocol's engine; what is not named is as the group has it. SEND: of this one */
    char text[RS_API_MESSAGE_MAX]; /* of a parsed request: where the names are */
} rs_api_request;

typedef struct {
    size_t length;
    bool overflow; /* something did not fit: not to be sent */
    uint8_t data[RS_API_MESSAGE_MAX];
} rs_api_message;

typedef struct {
    uint64_t size;
    uint8_t digest_algorithm, digest_length, digest[32];
} rs_api_object_info;

/* An answer. Only what its type has is set. Rows (RECEIVERS, TRANSFERS, OBJECTS) are taken one by one by rs_api_next_*.
 */
typedef struct {
    uint8_t type;
    uint64_t tag;
    rostrum_error error;                              /* ERROR */
    uint64_t handle;                                  /* CREATED */
    rs_api_object_info object;                        /* ADDED, OBJECT; CREATED, STREAMED: size */
    rostrum_event event;                              /* EVENT */
    rostrum_send_result result;                       /* SENT, without its receivers */
    rostrum_status status;                            /* STATE, without rows; REGISTERED: server, version, boot_id */
    char protocol[32], order[RS_GROUP_DELIVERY_TEXT]; /* GROUP */
    uint32_t message_bytes;                           /* GROUP: the largest message */
    uint32_t rows;                                    /* still to be taken */
    const uint8_t *row, *end;
} rs_api_answer;

/* False and `error` if it does not fit the format (names empty, too long or not UTF-8; too many receivers, doubles; too
 * long a message). */
bool rs_api_encode_request(const rs_api_request *request, rs_api_message *out, rs_error *error);
/* What to send back is `error`; out->tag is the request's if the header could be read, and out->type is 0 if not: then
 * whoever is there does not speak this protocol. */
bool rs_api_parse_request(const uint8_t *data, size_t length, rs_api_request *out, rs_error *error);

/* An answer of `type` without fields (DONE), or the beginning of one. */
void rs_api_begin(rs_api_message *out, uint8_t type, uint64_t tag);
void rs_api_encode_error(rs_api_message *out, uint64_t tag, rostrum_code code, const char *text);
void rs_api_encode_registered(rs_api_message *out, uint64_t tag, const char *server, const char *version,
                              uint64_t boot_id);
void rs_api_encode_object(rs_api_message *out, uint8_t type, uint64_t tag, const rs_api_object_info *info);
void rs_api_encode_created(rs_api_message *out, uint64_t tag, uint64_t handle, uint64_t size);
void rs_api_encode_streamed(rs_api_message *out, uint64_t tag, uint64_t bytes);
void rs_api_encode_event(rs_api_message *out, uint64_t tag, const rostrum_event *event);
void rs_api_encode_sent(rs_api_message *out, uint64_t tag, const rostrum_send_result *result);
void rs_api_encode_state(rs_api_message *out, uint64_t tag, const rostrum_status *status);
void rs_api_encode_group(rs_api_message *out, uint64_t tag, const char *protocol, const char *order,
                         uint32_t message_bytes);
/* Rows, as many of `count` as fit into one message; returns how many. */
uint32_t rs_api_encode_receivers(rs_api_message *out, uint64_t tag, const rostrum_receiver *rows, uint32_t count);
uint32_t rs_api_encode_transfers(rs_api_message *out, uint64_t tag, const rostrum_transfer *rows, uint32_t count);
uint32_t rs_api_encode_objects(rs_api_message *out, uint64_t tag, const rostrum_object *rows, uint32_t count);
uint32_t rs_api_encode_names(rs_api_message *out, uint64_t tag, const rs_api_object_name *rows, uint32_t count);
uint32_t rs_api_encode_groups(rs_api_message *out, uint64_t tag, const rostrum_group_status *rows, uint32_t count);

bool rs_api_parse_answer(const uint8_t *data, size_t length, rs_api_answer *out, rs_error *error);
/* The next row of an answer of that type. False at the end, and when the row is malformed (then answer->rows is not 0).
 */
bool rs_api_next_receiver(rs_api_answer *answer, rostrum_receiver *out);
bool rs_api_next_transfer(rs_api_answer *answer, rostrum_transfer *out);
bool rs_api_next_group(rs_api_answer *answer, rostrum_group_status *out);
bool rs_api_next_object(rs_api_answer *answer, rostrum_object *out);

#endif
