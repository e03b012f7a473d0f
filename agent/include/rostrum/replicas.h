/* Replicas: programs on many servers that keep the same state (docs/guarantees.md, State). What changes it goes to a
 * group of order total; who joins gets it as an object, as it was at one point of the stream, and then what came after.
 * A replica in Python (rostrum.client.Replica) and one in C may be in one group.
 *
 *     static const rostrum_replica_callbacks callbacks = {.deliver = add, .get_state = get, .set_state = set};
 *     rostrum_replica *visits;
 *     if (rostrum_replica_open(agent, "visits", NULL, &callbacks, &sum, &visits, &error) ||
 *         rostrum_replica_wait_ready(visits, 60000, &error) ||
 *         rostrum_replica_publish(visits, "1", 1, &error))
 *         errx(1, "%s", error.text);
 *     while (!rostrum_replica_dispatch(visits, -1, &error))
 *         printf("%ld\n", sum);
 *
 * One thread dispatches, which is when callbacks are called; it is the only one that uses `agent` as long as the
 * replica is open. Any thread may publish. */
#ifndef ROSTRUM_REPLICAS_H
#define ROSTRUM_REPLICAS_H

#include <rostrum/groups.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One of the members that keep the same state. */
typedef struct rostrum_replica rostrum_replica;

/* What the program does; the first three must be there. Callbacks may publish; they must not dispatch or close the
 * replica. */
typedef struct {
    /* A message, in the same order at all. Valid during the call. */
    rostrum_deliver_fn *deliver;
    /* The state as it is now: what all messages delivered so far have made it, in memory of malloc, which the caller
     * frees. Another code than ROSTRUM_OK: another member is asked instead. */
    rostrum_code (*get_state)(void *context, void **bytes, size_t *length);
    /* Takes another one's state instead of its own; `bytes` are valid during the call. Another code than ROSTRUM_OK: it
     * makes no sense, and the next member is asked for its own. */
    rostrum_code (*set_state)(void *context, const void *bytes, size_t length);
    /* Who is in the group has changed; messages from here on are of this view. May be NULL. */
    rostrum_confchg_fn *confchg;
    /* This server is cut off from the group's primary part (0), or back (1). May be NULL. */
    void (*primary)(void *context, int is_primary);
} rostrum_replica_callbacks;

/* Joins the group, which is made if it is not there: `options` NULL, its protocol or order NULL: "plain", "total". Its
 * first members must be replicas, of the same application (rostrum_connect). `callbacks` and `context` are used until
 * rostrum_replica_close. Errors: as rostrum_subscribe; INVALID: a callback is missing, or the group has no total order,
 * or tells no views. */
ROSTRUM_API rostrum_code rostrum_replica_open(rostrum *agent, const char *group, const rostrum_group_options *options,
                                              const rostrum_replica_callbacks *callbacks, void *context,
                                              rostrum_replica **out, rostrum_error *error);
/* Leaves the group and frees. States that are being sent go on. */
ROSTRUM_API void rostrum_replica_close(rostrum_replica *replica);

/* To all, this one too; what is published before the state is here (rostrum_replica_wait_ready) may be before the point
 * where the state begins. Errors: as rostrum_publish; INVALID: it begins with "\0rostrum", as replicas' own do. */
ROSTRUM_API rostrum_code rostrum_replica_publish(rostrum_replica *replica, const void *bytes, uint32_t length,
                                                 rostrum_error *error);
/* Takes what comes until `deliver` was called. `timeout_ms` -1: as long as it takes; 0: only what is here. TIMEOUT: no
 * message came. Other errors: there will be no more: as rostrum_next; UNAVAILABLE: no member gives its state; LIMIT:
 * more than 256 MiB came before it. */
ROSTRUM_API rostrum_code rostrum_replica_dispatch(rostrum_replica *replica, int timeout_ms, rostrum_error *error);
/* Dispatches until the state is here; errors alike. */
ROSTRUM_API rostrum_code rostrum_replica_wait_ready(rostrum_replica *replica, int timeout_ms, rostrum_error *error);
/* Not 0: it has the state. It may lack it again, after losses or when this server was put out of the group. */
ROSTRUM_API int rostrum_replica_ready(const rostrum_replica *replica);
/* Readable when there may be something to dispatch. Dispatch every 50 ms even if it is not: states come beside it. */
ROSTRUM_API int rostrum_replica_fd(const rostrum_replica *replica);

#ifdef __cplusplus
}
#endif

#endif
