/* librostrum's connection and asynchronous requests (rostrum/rostrum.h); and the blocking ones built on them.
 */
#include "client/connection.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/socket.h"
#include "api/uuid.h"

#define DEFAULT_SOCKET "/run/rostrum/agent.sock"
#define SEND_BOUND_MS 10000 /* for the agent to take a request off the socket */
#define MESSAGES_PER_DISPATCH 64

bool rostrum_uuid_parse(const char *text, uint8_t out[16]) {
    return rs_uuid_parse(text, out);
}

rostrum_code rostrum_fail(rostrum_error *error, rostrum_code code, const char *text) {
    (void)rs_error_set(error, code, "%s", text);
    return code;
}

static void free_call(rostrum_call *call) {
    free(call->receivers);
    free(call->transfers);
    free(call->objects);
    free(call->groups);
    free(call);
}

static rostrum_call **find_call(rostrum *agent, uint64_t tag) {
    rostrum_call **at = &agent->calls;
    while (*at && (*at)->tag != tag)
        at = &(*at)->next;
    return at;
}

void rostrum_forget(rostrum *agent, uint64_t tag) {
    rostrum_call **at = find_call(agent, tag), *call = *at;
    if (call) {
        *at = call->next;
        free_call(call);
    }
}

static void call_back(rostrum *agent, rostrum_callback callback, void *context, const rostrum_answer *answer) {
    agent->calling++;
    callback(context, answer);
    agent->calling--;
}

void rostrum_ref(rostrum *agent) {
    agent->inside++;
}

void rostrum_unref(rostrum *agent) {
    if (--agent->inside == 0 && agent->closed)
        free(agent);
}

/* Everyone who waits hears why there will be no answer. */
static void fail_all(rostrum *agent, const rostrum_error *error) {
    agent->broken = *error;
    while (agent->calls) {
        rostrum_call *call = agent->calls;
        agent->calls = call->next;
        rostrum_answer answer = {.error = *error, .tag = call->tag, .fd = -1};
        if (call->callback && !call->answered)
            call_back(agent, call->callback, call->context, &answer);
        free_call(call);
    }
}

static rostrum_code break_off(rostrum *agent, rostrum_error *error, rostrum_code code, const char *text) {
    rostrum_error reason;
    (void)rostrum_fail(&reason, code, text);
    fail_all(agent, &reason);
    return rostrum_fail(error, code, text);
}

static int send_bounded(rostrum *agent, int fd) {
    for (;;) {
        int number = rs_unix_send(agent->socket, agent->message.data, agent->message.length, fd, true);
        if (number != EAGAIN)
            return number;
        struct pollfd ready = {.fd = agent->socket, .events = POLLOUT};
        int count = poll(&ready, 1, SEND_BOUND_MS);
        if (count == 0)
            return ETIMEDOUT;
        if (count < 0 && errno != EINTR)
            return errno;
    }
}

rostrum_code rostrum_start(rostrum *agent, const rostrum_start_params *params, uint64_t *tag, rostrum_error *error) {
    if (agent->broken.code)
        return rostrum_fail(error, agent->broken.code, agent->broken.text);
    rostrum_call *call = calloc(1, sizeof *call);
    if (!call)
        return rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "no memory for one more request");
    call->tag = ++agent->next_tag;
    call->type = agent->request.type;
    call->callback = params->callback;
    call->on_event = params->on_event;
    call->context = params->context;
    call->event_context = params->event_context;
    agent->request.tag = call->tag;
    rostrum_error reason;
    if (!rs_api_encode_request(&agent->request, &agent->message, &reason)) {
        free(call);
        return rostrum_fail(error, reason.code, reason.text);
    }
    int number = send_bounded(agent, params->fd);
    if (number) {
        free(call);
        if (rostrum_dispatch(agent, error)) /* the agent may have said why before it hung up */
            return agent->broken.code;
        (void)rs_error_system(&reason, number, "the agent does not take a request");
        return rostrum_fail(error, ROSTRUM_ERR_UNAVAILABLE, reason.text);
    }
    call->next = agent->calls;
    agent->calls = call;
    if (tag)
        *tag = call->tag;
    return ROSTRUM_OK;
}

/* Makes room for `more` rows behind `count`. NULL (and the old array stays) without memory. */
static void *grow(void **rows, uint32_t count, uint32_t more, size_t size) {
    void *larger = reallocarray(*rows, (size_t)count + more, size);
    if (larger)
        *rows = larger;
    return larger;
}

static bool take_rows(rostrum_call *call, rs_api_answer *answer) {
    bool room = true;
    uint32_t more = answer->rows;
    if (answer->type == RS_API_RECEIVERS) {
        room = grow((void **)&call->receivers, call->receiver_count, more, sizeof *call->receivers);
        while (room && rs_api_next_receiver(answer, &call->receivers[call->receiver_count]))
            call->receiver_count++;
    } else if (answer->type == RS_API_TRANSFERS) {
        room = grow((void **)&call->transfers, call->transfer_count, more, sizeof *call->transfers);
        while (room && rs_api_next_transfer(answer, &call->transfers[call->transfer_count]))
            call->transfer_count++;
    } else if (answer->type == RS_API_GROUPS) {
        room = grow((void **)&call->groups, call->group_count, more, sizeof *call->groups);
        while (room && rs_api_next_group(answer, &call->groups[call->group_count]))
            call->group_count++;
    } else {
        room = grow((void **)&call->objects, call->object_count, more, sizeof *call->objects);
        while (room && rs_api_next_object(answer, &call->objects[call->object_count]))
            call->object_count++;
    }
    return room && answer->rows == 0;
}

/* The final answer of a call: it leaves the list before its callback, which may start others. */
static void finish(rostrum *agent, rostrum_call **at, rs_api_answer *from, int fd) {
    rostrum_call *call = *at;
    rostrum_answer answer = {.tag = call->tag, .fd = fd, .handle = from->handle, .size = from->object.size};
    bool stays = call->type == RS_API_SUBSCRIBE && from->type == RS_API_DONE;
    if (from->type == RS_API_ERROR)
        answer.error = from->error;
    if (from->type == RS_API_SENT) {
        from->result.receivers = call->receivers;
        from->result.receiver_count = call->receiver_count;
        answer.result = &from->result;
        if (!from->result.ok)
            (void)rostrum_fail(&answer.error, ROSTRUM_ERR_FAILED,
                               from->result.cause[0] ? from->result.cause : "some receivers do not have the object");
    }
    if (from->type == RS_API_STATE) {
        from->status.transfers = call->transfers;
        from->status.transfer_count = call->transfer_count;
        from->status.objects = call->objects;
        from->status.object_count = call->object_count;
        from->status.groups = call->groups;
        from->status.group_count = call->group_count;
        answer.status = &from->status;
    }
    if (from->type == RS_API_REGISTERED)
        memcpy(agent->server, from->status.server, sizeof agent->server);
    if (from->type == RS_API_GROUP) {
        answer.protocol = from->protocol;
        answer.order = from->order;
        answer.message_bytes = from->message_bytes;
    }
    if ((from->type == RS_API_CREATED || from->type == RS_API_OBJECT || from->type == RS_API_GROUP) && fd < 0)
        (void)rostrum_fail(&answer.error, ROSTRUM_ERR_IO,
                           "the file descriptor did not arrive; too many files are open");
    call->answered = true;
    if (!stays)
        *at = call->next;
    if (call->callback)
        call_back(agent, call->callback, call->context, &answer);
    else if (fd >= 0)
        close(fd);
    if (!stays)
        free_call(call);
}

static rostrum_code take_message(rostrum *agent, size_t length, int fd, rostrum_error *error) {
    rs_api_answer *answer = &agent->answer;
    rostrum_error reason;
    if (!rs_api_parse_answer(agent->message.data, length, answer, &reason)) {
        if (fd >= 0)
            close(fd);
        return break_off(agent, error, reason.code, reason.text);
    }
    if (answer->type == RS_API_ERROR && answer->tag == 0)
        return break_off(agent, error, answer->error.code, answer->error.text);
    rostrum_call **at = find_call(agent, answer->tag), *call = *at;
    if (!call) { /* whoever asked has given up */
        if (fd >= 0)
            close(fd);
        return ROSTRUM_OK;
    }
    if (answer->type == RS_API_EVENT) {
        if (call->on_event) {
            agent->calling++;
            call->on_event(call->event_context, &answer->event);
            agent->calling--;
        }
    } else if (answer->type == RS_API_RECEIVERS || answer->type == RS_API_TRANSFERS || answer->type == RS_API_OBJECTS ||
               answer->type == RS_API_GROUPS) {
        if (!take_rows(call, answer))
            return break_off(agent, error, ROSTRUM_ERR_PROTOCOL, "rows of an answer are malformed, or out of memory");
    } else {
        finish(agent, at, answer, fd);
        return ROSTRUM_OK;
    }
    if (fd >= 0)
        close(fd);
    return ROSTRUM_OK;
}

static rostrum_code dispatch(rostrum *agent, rostrum_error *error) {
    for (int i = 0; i < MESSAGES_PER_DISPATCH; i++) {
        if (agent->broken.code)
            return rostrum_fail(error, agent->broken.code, agent->broken.text);
        int fd;
        ssize_t got = rs_unix_receive(agent->socket, agent->message.data, sizeof agent->message.data, &fd, true);
        if (got < 0 && errno == ECONNRESET) /* told first, but what the agent had said before comes after it */
            got = rs_unix_receive(agent->socket, agent->message.data, sizeof agent->message.data, &fd, true);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return ROSTRUM_OK;
        if (got < 0 && errno == EMSGSIZE)
            return break_off(agent, error, ROSTRUM_ERR_PROTOCOL, "the agent sent a message of more than 64 KiB");
        if (got <= 0)
            return break_off(agent, error, ROSTRUM_ERR_UNAVAILABLE, "the agent went away");
        rostrum_code code = take_message(agent, (size_t)got, fd, error);
        if (code)
            return code;
    }
    return ROSTRUM_OK;
}

rostrum_code rostrum_dispatch(rostrum *agent, rostrum_error *error) {
    rostrum_ref(agent);
    rostrum_code code = dispatch(agent, error);
    rostrum_unref(agent);
    return code;
}

rs_api_request *rostrum_request(rostrum *agent, uint8_t type, uint64_t data_id) {
    memset(&agent->request, 0, offsetof(rs_api_request, text));
    agent->request.type = type;
    agent->request.data_id = data_id;
    return &agent->request;
}

rostrum_code rostrum_connect(const char *socket_path, const uint8_t app[16], const char *process, rostrum **out,
                             rostrum_error *error) {
    rostrum_error reason;
    rostrum *agent = calloc(1, sizeof *agent);
    *out = NULL;
    if (!agent)
        return rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "no memory for a connection");
    const char *path = socket_path ? socket_path : getenv("ROSTRUM_SOCKET");
    agent->answer_bound_ms = 60000;
    agent->socket = rs_unix_connect(path && *path ? path : DEFAULT_SOCKET, true, &reason);
    if (agent->socket < 0) {
        free(agent);
        return rostrum_fail(error, reason.code, reason.text);
    }
    rs_api_request *request = rostrum_request(agent, RS_API_REGISTER, 0);
    memcpy(request->app, app, sizeof request->app);
    request->process = process && *process ? process : program_invocation_short_name;
    rostrum_code code = rostrum_ask(agent, 0, -1, NULL, error);
    if (code)
        rostrum_close(agent);
    else
        *out = agent;
    return code;
}

void rostrum_close(rostrum *agent) {
    if (!agent)
        return;
    rostrum_error reason;
    (void)rostrum_fail(&reason, ROSTRUM_ERR_CANCELLED, "the connection to the agent was closed");
    if (agent->closed)
        return;
    rostrum_ref(agent);
    fail_all(agent, &reason);
    close(agent->socket); /* the agent takes that as unregister */
    agent->socket = -1;
    agent->closed = true;
    rostrum_unref(agent); /* frees it, unless a callback closes while one of our calls is under way */
}

const char *rostrum_server(const rostrum *agent) {
    return agent->server;
}

void rostrum_set_answer_bound(rostrum *agent, uint32_t answer_bound_ms) {
    agent->answer_bound_ms = answer_bound_ms;
}

int rostrum_fd(const rostrum *agent) {
    return agent->socket;
}

rostrum_code rostrum_start_create(rostrum *agent, uint64_t size, rostrum_callback callback, void *context,
                                  uint64_t *tag, rostrum_error *error) {
    rostrum_request(agent, RS_API_CREATE, 0)->number = size;
    rostrum_start_params params = {.callback = callback, .context = context, .fd = -1};
    return rostrum_start(agent, &params, tag, error);
}

rostrum_code rostrum_start_add(rostrum *agent, uint64_t data_id, int fd, rostrum_callback callback, void *context,
                               uint64_t *tag, rostrum_error *error) {
    if (fd < 0)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "add needs an open file");
    (void)rostrum_request(agent, RS_API_ADD, data_id);
    rostrum_start_params params = {.callback = callback, .context = context, .fd = fd};
    return rostrum_start(agent, &params, tag, error);
}

/* `fd` -1: of an object. */
static rostrum_code start_send(rostrum *agent, uint64_t data_id, int fd, const char *const *receivers,
                               uint32_t receiver_count, const rostrum_send_options *options, rostrum_callback callback,
                               void *context, uint64_t *tag, rostrum_error *error) {
    static const rostrum_send_options defaults;
    options = options ? options : &defaults;
    rs_api_request *request = rostrum_request(agent, RS_API_SEND, data_id);
    request->flags = (options->on_event ? RS_API_SEND_EVENTS : 0) |
                     ((uint32_t)options->stragglers & 3) << RS_API_SEND_STRAGGLERS |
                     ((uint32_t)options->protocol & 3) << RS_API_SEND_PROTOCOL;
    request->wait_ms = options->wait_ms;
    request->deadline_ms = options->deadline_ms;
    request->receiver_count = receiver_count;
    for (uint32_t i = 0; i < receiver_count && i < ROSTRUM_RECEIVERS_MAX; i++)
        request->receivers[i] = receivers[i];
    rostrum_start_params params = {.callback = callback,
                                   .context = context,
                                   .on_event = options->on_event,
                                   .event_context = options->context,
                                   .fd = fd};
    return rostrum_start(agent, &params, tag, error);
}

rostrum_code rostrum_start_send(rostrum *agent, uint64_t data_id, const char *const *receivers, uint32_t receiver_count,
                                const rostrum_send_options *options, rostrum_callback callback, void *context,
                                uint64_t *tag, rostrum_error *error) {
    return start_send(agent, data_id, -1, receivers, receiver_count, options, callback, context, tag, error);
}

rostrum_code rostrum_start_send_file(rostrum *agent, uint64_t data_id, int fd, const char *const *receivers,
                                     uint32_t receiver_count, const rostrum_send_options *options,
                                     rostrum_callback callback, void *context, uint64_t *tag, rostrum_error *error) {
    if (fd < 0)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "send_file needs an open file");
    return start_send(agent, data_id, fd, receivers, receiver_count, options, callback, context, tag, error);
}

rostrum_code rostrum_start_read(rostrum *agent, uint64_t data_id, uint32_t wait_ms, rostrum_callback callback,
                                void *context, uint64_t *tag, rostrum_error *error) {
    rostrum_request(agent, RS_API_READ, data_id)->wait_ms = wait_ms;
    rostrum_start_params params = {.callback = callback, .context = context, .fd = -1};
    return rostrum_start(agent, &params, tag, error);
}

static rostrum_code request_fetch(rostrum *agent, uint64_t data_id, const char *const *holders, uint32_t holder_count,
                                  uint32_t wait_ms, rostrum_error *error) {
    if (holder_count > ROSTRUM_RECEIVERS_MAX)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "so many holders cannot be named");
    rs_api_request *request = rostrum_request(agent, RS_API_FETCH, data_id);
    request->wait_ms = wait_ms;
    request->receiver_count = holder_count;
    for (uint32_t i = 0; i < holder_count; i++)
        request->receivers[i] = holders[i];
    return ROSTRUM_OK;
}

rostrum_code rostrum_start_fetch(rostrum *agent, uint64_t data_id, const char *const *holders, uint32_t holder_count,
                                 uint32_t wait_ms, rostrum_callback callback, void *context, uint64_t *tag,
                                 rostrum_error *error) {
    rostrum_start_params params = {.callback = callback, .context = context, .fd = -1};
    rostrum_code code = request_fetch(agent, data_id, holders, holder_count, wait_ms, error);
    return code ? code : rostrum_start(agent, &params, tag, error);
}

rostrum_code rostrum_start_delete(rostrum *agent, uint64_t data_id, rostrum_callback callback, void *context,
                                  uint64_t *tag, rostrum_error *error) {
    (void)rostrum_request(agent, RS_API_DELETE, data_id);
    rostrum_start_params params = {.callback = callback, .context = context, .fd = -1};
    return rostrum_start(agent, &params, tag, error);
}

rostrum_code rostrum_start_status(rostrum *agent, rostrum_callback callback, void *context, uint64_t *tag,
                                  rostrum_error *error) {
    (void)rostrum_request(agent, RS_API_STATUS, 0);
    rostrum_start_params params = {.callback = callback, .context = context, .fd = -1};
    return rostrum_start(agent, &params, tag, error);
}

rostrum_code rostrum_start_subscribe(rostrum *agent, uint64_t data_id,
                                     void (*on_event)(void *context, const rostrum_event *event),
                                     rostrum_callback callback, void *context, uint64_t *tag, rostrum_error *error) {
    (void)rostrum_request(agent, RS_API_SUBSCRIBE, data_id);
    rostrum_start_params params = {
        .callback = callback, .context = context, .on_event = on_event, .event_context = context, .fd = -1};
    return rostrum_start(agent, &params, tag, error);
}

/* librostrum's blocking calls: start, then dispatch until the answer is there or the bound has passed. */

#define FOREVER UINT64_MAX
#define SLOWEST_DIGEST_BYTES_PER_MS 50000u

static int64_t now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* A result or status with its rows behind it, in one piece of memory. */
static rostrum_send_result *copy_result(const rostrum_send_result *from) {
    rostrum_send_result *copy = malloc(sizeof *copy + from->receiver_count * sizeof *from->receivers);
    if (!copy)
        return NULL;
    *copy = *from;
    copy->receivers = (const rostrum_receiver *)(copy + 1);
    if (from->receiver_count)
        memcpy(copy + 1, from->receivers, from->receiver_count * sizeof *from->receivers);
    return copy;
}

static rostrum_status *copy_status(const rostrum_status *from) {
    size_t transfers = from->transfer_count * sizeof *from->transfers;
    size_t objects = from->object_count * sizeof *from->objects;
    size_t groups = from->group_count * sizeof *from->groups;
    rostrum_status *copy = malloc(sizeof *copy + transfers + objects + groups);
    if (!copy)
        return NULL;
    *copy = *from;
    uint8_t *behind = (uint8_t *)(copy + 1);
    copy->transfers = (const rostrum_transfer *)(void *)behind;
    copy->objects = (const rostrum_object *)(void *)(behind + transfers);
    copy->groups = (const rostrum_group_status *)(void *)(behind + transfers + objects);
    if (groups)
        memcpy(behind + transfers + objects, from->groups, groups);
    if (transfers)
        memcpy(behind, from->transfers, transfers);
    if (objects)
        memcpy(behind + transfers, from->objects, objects);
    return copy;
}

void rostrum_take_answer(void *context, const rostrum_answer *answer) {
    rostrum_outcome *outcome = context;
    outcome->done = true;
    outcome->error = answer->error;
    outcome->fd = answer->fd;
    outcome->handle = answer->handle;
    outcome->size = answer->size;
    outcome->message_bytes = answer->message_bytes;
    (void)snprintf(outcome->protocol, sizeof outcome->protocol, "%s", answer->protocol ? answer->protocol : "");
    (void)snprintf(outcome->order, sizeof outcome->order, "%s", answer->order ? answer->order : "");
    if (outcome->keep_result && answer->result)
        outcome->result = copy_result(answer->result);
    if (outcome->keep_status && answer->status)
        outcome->status = copy_status(answer->status);
}

static rostrum_code wait_for(rostrum *agent, uint64_t tag, uint64_t bound_ms, rostrum_outcome *outcome,
                             rostrum_error *error) {
    if (agent->calling) {
        rostrum_forget(agent, tag);
        return rostrum_fail(error, ROSTRUM_ERR_INVALID,
                            "a callback cannot wait for an answer, which comes after it: use rostrum_start_*");
    }
    int64_t start = now_ms();
    while (!outcome->done) {
        uint64_t waited = (uint64_t)(now_ms() - start);
        if (waited >= bound_ms) {
            rostrum_forget(agent, tag);
            (void)snprintf(outcome->error.text, sizeof outcome->error.text, "the agent did not answer within %llu ms",
                           (unsigned long long)bound_ms);
            return rostrum_fail(error, ROSTRUM_ERR_TIMEOUT, outcome->error.text);
        }
        uint64_t left = bound_ms - waited;
        struct pollfd ready = {.fd = agent->socket, .events = POLLIN};
        int count = poll(&ready, 1, left > 3600000 ? 3600000 : (int)left);
        if (count < 0 && errno != EINTR) {
            rostrum_forget(agent, tag);
            return rostrum_fail(error, ROSTRUM_ERR_IO, "waiting for the agent failed");
        }
        if (count > 0)
            (void)rostrum_dispatch(agent, NULL); /* a broken connection answers every request */
    }
    return outcome->error.code ? rostrum_fail(error, outcome->error.code, outcome->error.text) : ROSTRUM_OK;
}

rostrum_code rostrum_wait_for(rostrum *agent, uint64_t tag, uint64_t bound_ms, rostrum_outcome *outcome,
                              rostrum_error *error) {
    rostrum_ref(agent);
    rostrum_code code = wait_for(agent, tag, bound_ms, outcome, error);
    rostrum_unref(agent);
    return code;
}

rostrum_code rostrum_ask(rostrum *agent, uint64_t wait_ms, int fd, rostrum_outcome *outcome, rostrum_error *error) {
    rostrum_outcome unused = {0};
    uint64_t tag;
    outcome = outcome ? outcome : &unused;
    outcome->fd = -1;
    rostrum_start_params params = {.callback = rostrum_take_answer, .context = outcome, .fd = fd};
    rostrum_code code = rostrum_start(agent, &params, &tag, error);
    return code ? code : rostrum_wait_for(agent, tag, wait_ms + agent->answer_bound_ms, outcome, error);
}

rostrum_code rostrum_create(rostrum *agent, uint64_t size, int *fd, uint64_t *handle, rostrum_error *error) {
    rostrum_outcome outcome = {0};
    rostrum_request(agent, RS_API_CREATE, 0)->number = size;
    rostrum_code code = rostrum_ask(agent, 0, -1, &outcome, error);
    *fd = outcome.fd;
    if (handle)
        *handle = outcome.handle;
    return code;
}

rostrum_code rostrum_drop(rostrum *agent, uint64_t handle, rostrum_error *error) {
    rostrum_request(agent, RS_API_DROP, 0)->number = handle;
    return rostrum_ask(agent, 0, -1, NULL, error);
}

rostrum_code rostrum_add(rostrum *agent, uint64_t data_id, int fd, rostrum_error *error) {
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "add needs an open file");
    (void)rostrum_request(agent, RS_API_ADD, data_id);
    return rostrum_ask(agent, (uint64_t)info.st_size / SLOWEST_DIGEST_BYTES_PER_MS, fd, NULL, error);
}

/* `fd` -1: of an object. */
static rostrum_code send_and_wait(rostrum *agent, uint64_t data_id, int fd, const char *const *receivers,
                                  uint32_t receiver_count, const rostrum_send_options *options,
                                  rostrum_send_result **result, rostrum_error *error) {
    rostrum_outcome outcome = {.keep_result = result != NULL, .fd = -1};
    uint64_t tag;
    if (result)
        *result = NULL;
    rostrum_code code = fd < 0 ? rostrum_start_send(agent, data_id, receivers, receiver_count, options,
                                                    rostrum_take_answer, &outcome, &tag, error)
                               : rostrum_start_send_file(agent, data_id, fd, receivers, receiver_count, options,
                                                         rostrum_take_answer, &outcome, &tag, error);
    if (code)
        return code;
    code =
        rostrum_wait_for(agent, tag, options && options->timeout_ms ? options->timeout_ms : FOREVER, &outcome, error);
    if (result)
        *result = outcome.result;
    return code;
}

rostrum_code rostrum_send(rostrum *agent, uint64_t data_id, const char *const *receivers, uint32_t receiver_count,
                          const rostrum_send_options *options, rostrum_send_result **result, rostrum_error *error) {
    return send_and_wait(agent, data_id, -1, receivers, receiver_count, options, result, error);
}

rostrum_code rostrum_send_file(rostrum *agent, uint64_t data_id, int fd, const char *const *receivers,
                               uint32_t receiver_count, const rostrum_send_options *options,
                               rostrum_send_result **result, rostrum_error *error) {
    if (result)
        *result = NULL;
    if (fd < 0)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "send_file needs an open file");
    return send_and_wait(agent, data_id, fd, receivers, receiver_count, options, result, error);
}

void rostrum_send_result_free(rostrum_send_result *result) {
    free(result);
}

rostrum_code rostrum_cancel(rostrum *agent, uint64_t data_id, rostrum_error *error) {
    (void)rostrum_request(agent, RS_API_CANCEL, data_id);
    return rostrum_ask(agent, 0, -1, NULL, error);
}

rostrum_code rostrum_leave_object(rostrum *agent, uint64_t data_id, rostrum_error *error) {
    (void)rostrum_request(agent, RS_API_LEAVE, data_id);
    return rostrum_ask(agent, 0, -1, NULL, error);
}

rostrum_code rostrum_ephemeral(rostrum *agent, rostrum_error *error) {
    (void)rostrum_request(agent, RS_API_EPHEMERAL, 0);
    return rostrum_ask(agent, 0, -1, NULL, error);
}

rostrum_code rostrum_read(rostrum *agent, uint64_t data_id, uint32_t wait_ms, int *fd, uint64_t *size,
                          rostrum_error *error) {
    rostrum_outcome outcome = {0};
    rostrum_request(agent, RS_API_READ, data_id)->wait_ms = wait_ms;
    rostrum_code code = rostrum_ask(agent, wait_ms, -1, &outcome, error);
    *fd = outcome.fd;
    if (size)
        *size = outcome.size;
    return code;
}

rostrum_code rostrum_fetch(rostrum *agent, uint64_t data_id, const char *const *holders, uint32_t holder_count,
                           uint32_t wait_ms, int *fd, uint64_t *size, rostrum_error *error) {
    rostrum_outcome outcome = {0};
    rostrum_code code = request_fetch(agent, data_id, holders, holder_count, wait_ms, error);
    if (!code)
        code = rostrum_ask(agent, wait_ms ? wait_ms : 60000, -1, &outcome, error);
    *fd = code ? -1 : outcome.fd;
    if (size)
        *size = outcome.size;
    return code;
}

rostrum_code rostrum_name(rostrum *agent, uint64_t data_id, const char *name, rostrum_error *error) {
    rostrum_request(agent, RS_API_NAME, data_id)->group = name;
    return rostrum_ask(agent, 0, -1, NULL, error);
}

rostrum_code rostrum_pin(rostrum *agent, uint64_t data_id, bool on, rostrum_error *error) {
    rostrum_request(agent, RS_API_PIN, data_id)->flags = on ? RS_API_PIN_ON : 0;
    return rostrum_ask(agent, 0, -1, NULL, error);
}

rostrum_code rostrum_delete(rostrum *agent, uint64_t data_id, rostrum_error *error) {
    (void)rostrum_request(agent, RS_API_DELETE, data_id);
    return rostrum_ask(agent, 0, -1, NULL, error);
}

rostrum_code rostrum_status_get(rostrum *agent, rostrum_status **out, rostrum_error *error) {
    rostrum_outcome outcome = {.keep_status = true};
    (void)rostrum_request(agent, RS_API_STATUS, 0);
    rostrum_code code = rostrum_ask(agent, 0, -1, &outcome, error);
    *out = outcome.status;
    if (!code && !outcome.status)
        return rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "no memory for the agent's status");
    return code;
}

void rostrum_status_free(rostrum_status *status) {
    free(status);
}
