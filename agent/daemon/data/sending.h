/* The application's sends: the transfer in the core, the path it holds, what is told about it. */
#ifndef RS_DAEMON_SENDING_H
#define RS_DAEMON_SENDING_H

#include "daemon/agent.h"
#include "daemon/pieces/wire.h"

enum { RS_PART_PRESENT = 1, RS_PART_NEXT = 2 };

typedef enum { RS_PATH_STATE_NONE, RS_PATH_STATE_REQUESTED, RS_PATH_STATE_GRANTED } rs_path_state;

/* A path asked for, or held. */
typedef struct {
    rs_path_state state;
    char request_id[RS_UUID_TEXT];
    char response_id[RS_MANAGER_NAME_MAX + 1];
    rs_group group; /* RS_NO_GROUP until granted */
    uint32_t group_address;
    uint16_t data_port;
    rs_path_kind kind;
    rs_protocol protocol;
    bool has_light; /* the next session's: its switches said so already */
    uint64_t accepted_size;
    rs_time bound_at;                      /* when the wait for an answer ends */
    char queued_for[ROSTRUM_TEXT_MAX + 1]; /* what the manager said it waits for */
} rs_path;

/* What the journal has of a send, so that it goes on after a restart of the agent. */
typedef enum {
    RS_JOURNAL_NOT,     /* Nothing, and nothing is to come. */
    RS_JOURNAL_DUE,     /* Nothing yet: it is written down once it takes a while. */
    RS_JOURNAL_WRITTEN, /* All that it needs. */
    RS_JOURNAL_RESUMED  /* As much; an earlier run began it, and no program is told of it. */
} rs_send_journal;

struct rs_send_state {
    rs_transfer_entry base;
    rs_api_call call;
    uint32_t wait_ms;
    rs_time deadline;          /* a hint for the manager; RS_NEVER = none */
    rostrum_protocol protocol; /* asked for */
    /* The present session's path and the next session's, asked for while the present one is still used. */
    rs_path path, next_path;
    bool ever_granted;
    char request_id[RS_UUID_TEXT]; /* of the latest path granted, for reports */
    char response_id[RS_MANAGER_NAME_MAX + 1];
    char denial[ROSTRUM_TEXT_MAX + 1]; /* why there was no path */
    /* the receivers */
    uint32_t receiver_count;
    rs_peer *peers;
    uint32_t *index; /* an open hash of them: place + 1 */
    uint32_t index_mask;
    rostrum_receiver *receivers;
    bool *dark; /* no light: to be told to the manager */
    uint32_t dark_count;
    uint8_t *parts; /* RS_PART_*: which paths are for it */
    /* what is told */
    rs_phase phase;
    rostrum_send_result result;
    rs_xfer_stats stats;     /* as last seen */
    rostrum_code failure;    /* how it failed before any path was there */
    rs_time report_at;       /* RS_NEVER = nothing new */
    const char *final_phase; /* "done", "failed"; NULL before that */
    /* a restart of the agent: journal.h */
    rs_send_journal in_journal;
    int64_t began_ns; /* wall clock */
    char *options;    /* of its protocol, as rs_api_send.options; "": none */
    /* several sites: sites.c */
    rostrum_straggler_policy stragglers;
    struct rs_spread *spread; /* it goes by legs, which are sendings of their own; NULL: it is one itself */
    struct rs_leg *leg;       /* it is a leg of another sending, or NULL; */
    bool relayed;             /* it passes on what another server sends */
};

static inline rs_send_state *rs_sending_of(rs_transfer_entry *transfer) {
    return (rs_send_state *)(void *)transfer;
}

/* The index of a receiver, or -1. */
int64_t rs_sending_receiver(const rs_send_state *sending, rs_peer peer);

/* Tells the application. */
void rs_sending_tell_phase(rs_agent *agent, rs_send_state *sending, const char *phase, const char *text);

void rs_sending_tell_receiver(rs_agent *agent, rs_send_state *sending, const rostrum_receiver *receiver);
/* A sending of a leg's own; NULL with the reason (ROSTRUM_TEXT_MAX + 1 bytes). */
rs_send_state *rs_sending_leg(rs_agent *agent, const rs_api_send *send, struct rs_leg *leg, char *text);
/* The same of an object that is passed on: by legs, if its receivers are in several sites.
 * `relayed`: by an order of the manager, and sites.h is told of it. */
rs_send_state *rs_sending_relayed(rs_agent *agent, const rs_api_send *send, bool relayed, char *text);
/* A sending that goes by legs is over: who asked for it is told, and it is freed. */
void rs_sending_over(rs_agent *agent, rs_send_state *sending, bool ok, const char *cause);

/* It is being sent from here just now: which part of the link (a half: 2) `name` may take to fetch of it. 0: it is not,
 * or the send waits for that. */
uint32_t rs_sending_spare_part(const rs_agent *agent, const rs_object_id *id, const char *name);
/* Where the packets of an object that is being sent from here can be heard: rs_piece_server_config.runs. The manager
 * adds the server to the path's tree; the transfer does not know of it. */
uint32_t rs_sending_runs(void *agent, const rs_object_id *id, const char *name, rs_piece_message *out, uint32_t most);
/* The journal of these sends (journal.h). NULL: it cannot be read. */
rs_journal *rs_sending_journal(rs_agent *agent);
/* The application's calls, and what the core says. */
void rs_sending_api(void *agent, const rs_api_send *send);
void rs_sending_added_api(void *agent, const rs_object *object);
void rs_sending_unreadable_api(void *agent, const rs_object *object, const char *text);
void rs_sending_cancel_api(void *agent, const rs_api_call *call, const rs_object_id *id);
void rs_sending_event(rs_agent *agent, const rs_event *event);
/* Payload bytes that go out for it. */
void rs_sending_count(rs_transfer_entry *transfer, const rs_packet_out *out);
void rs_sending_cancel(rs_agent *agent, rs_transfer_entry *transfer, const char *cause);
rs_time rs_sending_deadline(const rs_agent *agent);
void rs_sending_timeout(rs_agent *agent);
void rs_sending_free_all(rs_agent *agent);

/* The manager's TransferReport: soon, or now. */
void rs_report_later(rs_agent *agent, rs_send_state *sending);
void rs_report_now(rs_agent *agent, rs_send_state *sending);

/* What a send begins by until a path is granted, which says more. */
rs_protocol rs_sending_engine(rostrum_protocol protocol);

#endif
