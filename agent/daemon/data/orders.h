/* What a relay was told to pass on (RelayOrder of controller/rostrum.thrift), and how far it is with that. */
#ifndef RS_DAEMON_ORDERS_H
#define RS_DAEMON_ORDERS_H

#include "daemon/data/sending.h"

typedef struct rs_relay rs_relay;

struct rs_relay {
    rs_relay *next;
    char leg_id[RS_MANAGER_NAME_MAX + 1], origin[RS_MANAGER_NAME_MAX + 1];
    rs_object_id id;
    rs_peer peer; /* the origin, held */
    char **names;
    uint32_t count;
    bool dials, keeps;
    rs_time since;
    rs_send_state *sending; /* NULL: not begun, or over; orders of one object share it (share) */
    bool begun, over;
    uint64_t grown; /* bytes that may go on, from the first on; */
    uint64_t came;  /* and so many fragments had come when it was last said that more of it may */
    const char *state;
    char cause[ROSTRUM_TEXT_MAX + 1];
    rs_manager_receiver_report *last; /* of the receivers, when it was over */
    char (*causes)[ROSTRUM_TEXT_MAX + 1];
    rs_time report_at;
    uint32_t last_reports;
    char *options; /* asked of the send, as rs_manager_terms has it */
    rostrum_straggler_policy stragglers;
    uint32_t wait_ms;
    rs_time deadline;       /* a hint; RS_NEVER: none */
    rs_manager_leg *onward; /* its own legs, until they are begun or too old; NULL: the manager is asked for them */
    uint32_t onward_count;
};

/* NULL: out of memory, or no room for its origin. `keeps`: the object stays here when it was passed on. */
rs_relay *rs_relay_new(rs_agent *agent, const rs_manager_relay_order *order, bool keeps);
void rs_relay_free(rs_agent *agent, rs_relay *relay);

/* A policy as SendTerms.stragglers has it. */
const char *rs_policy_word(rostrum_straggler_policy policy);

#endif
