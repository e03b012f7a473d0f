/* A replica's part in its group: who has the state, who wants it, who gives it. What it needs of the world it calls by
 * a table, so that it can be tested with any world. */
#ifndef ROSTRUM_CLIENT_REPLICA_H
#define ROSTRUM_CLIENT_REPLICA_H

#include "client/replica_table.h"

#include <rostrum/replicas.h>

#define ROSTRUM_REPLICA_ATTEMPTS 8u /* members are asked for the state so often */

/* A state that this one gives by a send; replica_world.c knows what it is. */
typedef struct rostrum_replica_send rostrum_replica_send;

/* Names of objects are text, as of rostrum_data_id. */
typedef struct {
    /* Milliseconds of a clock that goes on steadily. */
    int64_t (*now_ms)(void *world);
    /* As rostrum_next; `view` is that of a ROSTRUM_VIEW. */
    rostrum_code (*next)(void *world, rostrum_message *message, const rostrum_view **view, int timeout_ms,
                         rostrum_error *error);
    /* Without waiting. BUSY: not now. */
    rostrum_code (*try_publish)(void *world, const void *bytes, uint32_t length, rostrum_error *error);
    /* The object, if it is whole here, until `unread`. UNAVAILABLE: the agent is gone; others: it is not here. */
    rostrum_code (*read)(void *world, const char *name, const uint8_t **bytes, size_t *length, rostrum_error *error);
    void (*unread)(void *world, const uint8_t *bytes, size_t length);
    /* False: it is not there, or in use. */
    bool (*forget)(void *world, const char *name);
    /* Makes an object of a table and the state behind it: here, */
    rostrum_code (*add)(void *world, const char *name, const void *table, size_t table_length, const void *state,
                        size_t state_length, rostrum_error *error);
    /* or here and on a server; it goes on after that. */
    rostrum_code (*send)(void *world, const char *name, const char *server, const void *table, size_t table_length,
                         const void *state, size_t state_length, rostrum_replica_send **out, rostrum_error *error);
    /* False: it is still going on. True: it is over, and freed; what came of it is in `result`. */
    bool (*sent)(void *world, rostrum_replica_send *send, rostrum_error *result);
    /* Nobody asks for it any more; it goes on. */
    void (*abandon)(void *world, rostrum_replica_send *send);
} rostrum_replica_world;

/* A replica on the server of that name, which has joined `group` just now. NULL: no memory. */
rostrum_replica *rostrum_replica_new(const rostrum_replica_world *world, void *of_world, const char *server,
                                     const char *group, const rostrum_replica_callbacks *callbacks, void *context);
/* Only what it keeps itself, not the world. */
void rostrum_replica_free(rostrum_replica *replica);
/* Other than ROSTRUM_REPLICA_ATTEMPTS. */
void rostrum_replica_set_attempts(rostrum_replica *replica, uint32_t attempts);
/* Takes one message, or waits for it until `deadline_ms` of the world's clock; whether `deliver` was called. TIMEOUT:
 * it has passed. Other errors stay. */
rostrum_code rostrum_replica_step(rostrum_replica *replica, int64_t deadline_ms, bool *delivered, rostrum_error *error);
/* What its calls to the world are given. */
void *rostrum_replica_of_world(const rostrum_replica *replica);
/* Who has the state and who wants it, as far as this one has heard. */
const rostrum_replica_table *rostrum_replica_table_of(const rostrum_replica *replica);
/* Whether a message is one of replicas' own. */
bool rostrum_replica_is_control(const void *bytes, uint32_t length);

#endif
