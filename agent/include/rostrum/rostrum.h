/* librostrum: the agent of this server, from a program (Republic, Table I).
 *
 * Two ways to use it. Blocking: rostrum_send, rostrum_read, ... return when the agent has answered. Asynchronous:
 * rostrum_start_* return at once; watch rostrum_fd for readability and call rostrum_dispatch, which calls back. Both
 * may be mixed. A callback may start requests and close the connection; a blocking call in it fails with INVALID,
 * since its answer comes after the callback. It must return (no longjmp, no C++ exception). A connection is used by one
 * thread at a time.
 *
 * Functions return ROSTRUM_OK (0) or a rostrum_code, and on failure fill `error` (which may be NULL) with the reason
 * for a person.
 *
 *     rostrum *agent;
 *     rostrum_error error;
 *     if (rostrum_connect(NULL, app, "my-program", &agent, &error))
 *         errx(1, "%s", error.text);
 *     int fd;
 *     uint64_t size;
 *     if (rostrum_read(agent, 7, 60000, &fd, &size, &error))
 *         errx(1, "%s", error.text);
 */
#ifndef ROSTRUM_ROSTRUM_H
#define ROSTRUM_ROSTRUM_H

#include <rostrum/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ROSTRUM_API __attribute__((visibility("default")))

/* A registered connection to the agent. */
typedef struct rostrum rostrum;

/* Connects and registers. `socket_path` NULL: $ROSTRUM_SOCKET, else /run/rostrum/agent.sock. `app` is the application's
 * UUID, the same in all its processes; `process` names this one in the agent's log (NULL: the program's name). Errors:
 * UNAVAILABLE, INVALID, LIMIT, PROTOCOL. */
ROSTRUM_API rostrum_code rostrum_connect(const char *socket_path, const uint8_t app[16], const char *process,
                                         rostrum **out, rostrum_error *error);
/* Unregisters and frees. Running sends go on; created files that were not added go back to the store; callbacks of
 * requests under way are called with CANCELLED. */
ROSTRUM_API void rostrum_close(rostrum *agent);

/* This server's name, as the manager knows it. */
ROSTRUM_API const char *rostrum_server(const rostrum *agent);

/* How long a blocking call waits for the agent beyond what the request itself waits for. Default 60000; a send has no
 * bound but its own options. */
ROSTRUM_API void rostrum_set_answer_bound(rostrum *agent, uint32_t answer_bound_ms);

/* "f81d4fae-7dec-11d0-a765-00a0c91e6bf6" to 16 bytes. False if it is not a UUID. */
ROSTRUM_API bool rostrum_uuid_parse(const char *text, uint8_t out[16]);

/* -- blocking ------------------------------------------------------------------------------------------------ */

/* A writable file of `size` bytes in the agent's store, on its quota until added or dropped. The caller closes *fd.
 * `handle` may be NULL. */
ROSTRUM_API rostrum_code rostrum_create(rostrum *agent, uint64_t size, int *fd, uint64_t *handle, rostrum_error *error);
/* A created file is not wanted any more. */
ROSTRUM_API rostrum_code rostrum_drop(rostrum *agent, uint64_t handle, rostrum_error *error);

/* Makes the file behind `fd` (of rostrum_create, or a tmpfs file or memfd) the object `data_id` of this application.
 * The caller keeps and closes fd, and must not change the file as long as the object exists. Returns when its digest is
 * taken. */
ROSTRUM_API rostrum_code rostrum_add(rostrum *agent, uint64_t data_id, int fd, rostrum_error *error);

typedef struct {
    uint32_t wait_ms;     /* bound on waiting for a path; 0 = the manager's default */
    uint32_t deadline_ms; /* when it should be done, from now; a hint for the scheduler; 0 = none */
    uint32_t
        timeout_ms; /* blocking send only: give up waiting (the transfer goes on); 0 = as long as the agent lives */
    void (*on_event)(void *context, const rostrum_event *event); /* NULL = no events */
    void *context;
    rostrum_straggler_policy stragglers;
    rostrum_protocol protocol;
} rostrum_send_options;

/* Sends the object to the servers named. `options` may be NULL. FAILED if some receiver does not have it; *result
 * (which may be NULL) then has the whole story too; free it with rostrum_send_result_free. It is NULL when the send was
 * not even started. */
ROSTRUM_API rostrum_code rostrum_send(rostrum *agent, uint64_t data_id, const char *const *receivers,
                                      uint32_t receiver_count, const rostrum_send_options *options,
                                      rostrum_send_result **result, rostrum_error *error);
/* The same of a file that is no object yet: `fd` as for rostrum_add, `data_id` the object it becomes. It is sent while
 * its digest is being taken. What cannot be begun leaves no object. */
ROSTRUM_API rostrum_code rostrum_send_file(rostrum *agent, uint64_t data_id, int fd, const char *const *receivers,
                                           uint32_t receiver_count, const rostrum_send_options *options,
                                           rostrum_send_result **result, rostrum_error *error);
ROSTRUM_API void rostrum_send_result_free(rostrum_send_result *result);
/* Stops the sending of that object, whichever process of the application started it. */
ROSTRUM_API rostrum_code rostrum_cancel(rostrum *agent, uint64_t data_id, rostrum_error *error);

/* This server wants an object (or stream) no more that comes to it, sent or fetched: what is here of it goes,
 * and its sender and the other receivers go on without it. Whoever waits to read it goes on waiting; a stream's reader
 * fails (CANCELLED). UNKNOWN: it does not come in here. */
ROSTRUM_API rostrum_code rostrum_leave_object(rostrum *agent, uint64_t data_id, rostrum_error *error);

/* The application's objects here go with the last of its processes that asked so, however it ends (a transfer that uses
 * one ends first). */
ROSTRUM_API rostrum_code rostrum_ephemeral(rostrum *agent, rostrum_error *error);

/* A read-only descriptor of the object, as soon as it is whole here; waits at most wait_ms (0: not at all). The caller
 * closes it, and may map it. `size` may be NULL. Errors: UNKNOWN, BUSY (without waiting), TIMEOUT. */
ROSTRUM_API rostrum_code rostrum_read(rostrum *agent, uint64_t data_id, uint32_t wait_ms, int *fd, uint64_t *size,
                                      rostrum_error *error);

/* The number that a name stands for, by which all programs know the object: "42" and "0x2a" are themselves, other text
 * is its BLAKE2b of 8 bytes. INVALID: it is empty, or a number of more than 64 bits. */
ROSTRUM_API rostrum_code rostrum_data_id(const char *name, uint64_t *data_id, rostrum_error *error);
/* Fetches an object that servers have ("NAME", "NAME@ADDRESS" or "NAME@ADDRESS:PORT" each; none: the manager is asked
 * who has it, and whom the part of it came from that is on this server's disk), from all of them at once, piece by
 * piece; then as rostrum_read. wait_ms 0: a minute. Errors: FAILED (nobody gives it), UNKNOWN (where a server is),
 * TIMEOUT (it goes on). */
ROSTRUM_API rostrum_code rostrum_fetch(rostrum *agent, uint64_t data_id, const char *const *holders,
                                       uint32_t holder_count, uint32_t wait_ms, int *fd, uint64_t *size,
                                       rostrum_error *error);

/* The program knows the object by that name (1 to 255 bytes of UTF-8): the manager lists it so. */
ROSTRUM_API rostrum_code rostrum_name(rostrum *agent, uint64_t data_id, const char *name, rostrum_error *error);
/* An object that is pinned stays when the agent makes room (rostrumd --evict). */
ROSTRUM_API rostrum_code rostrum_pin(rostrum *agent, uint64_t data_id, bool on, rostrum_error *error);

/* Removes the object from this server. Descriptors that readers have stay valid. BUSY while a transfer uses it. */
ROSTRUM_API rostrum_code rostrum_delete(rostrum *agent, uint64_t data_id, rostrum_error *error);

/* The agent now; free with rostrum_status_free. */
ROSTRUM_API rostrum_code rostrum_status_get(rostrum *agent, rostrum_status **out, rostrum_error *error);
ROSTRUM_API void rostrum_status_free(rostrum_status *status);

/* -- asynchronous --------------------------------------------------------------------------------------------- */

/* The answer to a request. Pointers are valid during the callback only. */
typedef struct {
    rostrum_error error;               /* code ROSTRUM_OK: it went well */
    uint64_t tag;                      /* as rostrum_start_* gave it */
    int fd;                            /* create, read, fetch, group: the callee's to close; otherwise -1 */
    uint64_t handle;                   /* create */
    uint64_t size;                     /* create, add, read, fetch */
    const rostrum_send_result *result; /* send; also when some receiver failed */
    const rostrum_status *status;      /* status */
    const char *protocol, *order;      /* a message group (rostrum/groups.h) */
    uint32_t message_bytes;            /* a message group: the largest message */
} rostrum_answer;

typedef void (*rostrum_callback)(void *context, const rostrum_answer *answer);

/* Readable: call rostrum_dispatch. */
ROSTRUM_API int rostrum_fd(const rostrum *agent);
/* Takes what is there, without waiting, and calls back. After an error (the agent is gone) every request under way has
 * been called back. */
ROSTRUM_API rostrum_code rostrum_dispatch(rostrum *agent, rostrum_error *error);

/* Each sends its request and returns; `callback` is called once by a later rostrum_dispatch (or blocking call). `tag`
 * may be NULL. */
ROSTRUM_API rostrum_code rostrum_start_create(rostrum *agent, uint64_t size, rostrum_callback callback, void *context,
                                              uint64_t *tag, rostrum_error *error);
ROSTRUM_API rostrum_code rostrum_start_add(rostrum *agent, uint64_t data_id, int fd, rostrum_callback callback,
                                           void *context, uint64_t *tag, rostrum_error *error);
ROSTRUM_API rostrum_code rostrum_start_send(rostrum *agent, uint64_t data_id, const char *const *receivers,
                                            uint32_t receiver_count, const rostrum_send_options *options,
                                            rostrum_callback callback, void *context, uint64_t *tag,
                                            rostrum_error *error);
ROSTRUM_API rostrum_code rostrum_start_send_file(rostrum *agent, uint64_t data_id, int fd, const char *const *receivers,
                                                 uint32_t receiver_count, const rostrum_send_options *options,
                                                 rostrum_callback callback, void *context, uint64_t *tag,
                                                 rostrum_error *error);
ROSTRUM_API rostrum_code rostrum_start_read(rostrum *agent, uint64_t data_id, uint32_t wait_ms,
                                            rostrum_callback callback, void *context, uint64_t *tag,
                                            rostrum_error *error);
ROSTRUM_API rostrum_code rostrum_start_fetch(rostrum *agent, uint64_t data_id, const char *const *holders,
                                             uint32_t holder_count, uint32_t wait_ms, rostrum_callback callback,
                                             void *context, uint64_t *tag, rostrum_error *error);
ROSTRUM_API rostrum_code rostrum_start_delete(rostrum *agent, uint64_t data_id, rostrum_callback callback,
                                              void *context, uint64_t *tag, rostrum_error *error);
ROSTRUM_API rostrum_code rostrum_start_status(rostrum *agent, rostrum_callback callback, void *context, uint64_t *tag,
                                              rostrum_error *error);
/* Events of the object's transfers, from now on and until rostrum_close, to `on_event`; `callback` says once whether
 * that could be arranged. */
ROSTRUM_API rostrum_code rostrum_start_subscribe(rostrum *agent, uint64_t data_id,
                                                 void (*on_event)(void *context, const rostrum_event *event),
                                                 rostrum_callback callback, void *context, uint64_t *tag,
                                                 rostrum_error *error);

#ifdef __cplusplus
}
#endif

#endif
