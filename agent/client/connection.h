/* Inside librostrum: the connection and its requests under way. */
#ifndef RS_CLIENT_CONNECTION_H
#define RS_CLIENT_CONNECTION_H

#include "api/wire.h"

#include <rostrum/rostrum.h>

typedef struct rostrum_call {
    struct rostrum_call *next;
    uint64_t tag;
    uint8_t type;
    bool answered; /* a subscription stays for its events */
    rostrum_callback callback;
    void (*on_event)(void *context, const rostrum_event *event);
    void *context, *event_context;
    rostrum_receiver *receivers; /* rows so far */
    rostrum_transfer *transfers;
    rostrum_object *objects;
    rostrum_group_status *groups;
    uint32_t receiver_count, transfer_count, object_count, group_count;
} rostrum_call;

struct rostrum {
    int socket;
    uint32_t answer_bound_ms;
    uint64_t next_tag;
    rostrum_call *calls;
    rostrum_error broken; /* why the connection is of no use any more */
    uint32_t calling;     /* callbacks of the program that are running */
    uint32_t inside;      /* our calls that will look at this again */
    bool closed;          /* by a callback: freed when none of these is left */
    char server[ROSTRUM_NAME_MAX + 1];
    rs_api_request request; /* the one being sent */
    rs_api_message message; /* the one being sent or taken */
    rs_api_answer answer;   /* the one being taken */
};

typedef struct {
    rostrum_callback callback;
    void (*on_event)(void *context, const rostrum_event *event);
    void *context, *event_context;
    int fd; /* to go along, or -1 */
} rostrum_start_params;

/* Fills `error` and returns `code`. */
rostrum_code rostrum_fail(rostrum_error *error, rostrum_code code, const char *text);
/* agent->request, cleared. */
rs_api_request *rostrum_request(rostrum *agent, uint8_t type, uint64_t data_id);
/* Sends agent->request. */
rostrum_code rostrum_start(rostrum *agent, const rostrum_start_params *params, uint64_t *tag, rostrum_error *error);
/* Around whatever may call back and looks at the connection afterwards. */
void rostrum_ref(rostrum *agent);
void rostrum_unref(rostrum *agent);
/* Nobody waits for that request any more: its callback will not be called. */
void rostrum_forget(rostrum *agent, uint64_t tag);

/* What a blocking call takes out of its answer. */
typedef struct {
    bool done;
    rostrum_error error;
    int fd;
    uint64_t handle, size;
    char protocol[32], order[RS_GROUP_DELIVERY_TEXT];
    uint32_t message_bytes;
    bool keep_result, keep_status;
    rostrum_send_result *result;
    rostrum_status *status;
} rostrum_outcome;

/* A callback that fills the rostrum_outcome that `context` is. */
void rostrum_take_answer(void *context, const rostrum_answer *answer);
/* Dispatches until `outcome` is there. `bound_ms` UINT64_MAX: as long as the agent lives. */
rostrum_code rostrum_wait_for(rostrum *agent, uint64_t tag, uint64_t bound_ms, rostrum_outcome *outcome,
                              rostrum_error *error);
/* Sends agent->request with `fd`, waits for its answer (`wait_ms` and the answer bound), fills `outcome` (may be NULL).
 */
rostrum_code rostrum_ask(rostrum *agent, uint64_t wait_ms, int fd, rostrum_outcome *outcome, rostrum_error *error);

#endif
