/* One send of an application: the transfer in the core, the path it holds, what is told about it. Shared by
 * sending.c, paths.c and report.c. */
#ifndef RS_DAEMON_SENDING_H
#define RS_DAEMON_SENDING_H

#include "daemon/agent.h"

typedef enum { RS_HELD_NONE, RS_HELD_REQUESTED, RS_HELD_GRANTED } rs_held_path;

struct rs_sending {
    rs_transfer base;
    rs_api_call call;
    uint32_t wait_ms, deadline_ms;
    /* the path */
    rs_held_path held;
    char request_id[RS_UUID_TEXT];
    char response_id[RS_LINK_NAME_MAX + 1];
    rs_group group; /* RS_NO_GROUP while none is held */
    uint32_t group_address;
    uint64_t accepted_size;
    rs_time path_bound_at; /* RS_NEVER = no answer is awaited */
    bool ever_granted;
    char queued_for[ROSTRUM_WORDS_MAX + 1]; /* what the manager said it waits for */
    /* the receivers */
    uint32_t receiver_count;
    rs_peer *peers;
    rostrum_receiver *receivers;
    bool *dark; /* no light: to be told to the manager */
    uint32_t dark_count;
    /* what is told */
    rs_phase phase;
    rostrum_send_result result;
    rs_xfer_stats stats;     /* as last seen */
    rostrum_code failure;    /* how it failed before any path was there */
    rs_time report_at;       /* RS_NEVER = nothing new */
    const char *final_phase; /* "done", "failed"; NULL before that */
};

static inline rs_sending *rs_sending_of(rs_transfer *transfer) {
    return (rs_sending *)(void *)transfer;
}

rs_sending *rs_sending_find_request(rs_agent *agent, const char *request_id);
rs_sending *rs_sending_find_response(rs_agent *agent, const char *response_id);
/* The index of a receiver, or -1. */
int64_t rs_sending_receiver(const rs_sending *sending, rs_peer peer);

/* Tells the application. */
void rs_sending_tell_phase(rs_agent *agent, rs_sending *sending, const char *phase, const char *words);

/* paths.c: asks the manager for a path; gives back what is held or asked for. */
void rs_paths_request(rs_agent *agent, rs_sending *sending, uint64_t remaining);
void rs_paths_give_back(rs_agent *agent, rs_sending *sending);
void rs_paths_tell_dark(rs_agent *agent, rs_sending *sending);

/* report.c: the manager's TransferReport. */
void rs_report_later(rs_agent *agent, rs_sending *sending);
void rs_report_now(rs_agent *agent, rs_sending *sending);
void rs_sending_sample(rs_agent *agent, rs_sending *sending);

#endif
