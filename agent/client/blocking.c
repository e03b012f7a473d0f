/* librostrum's blocking calls: start, then dispatch until the answer is there or the bound has passed. */
#include "client/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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
            (void)snprintf(outcome->error.words, sizeof outcome->error.words, "the agent did not answer within %llu ms",
                           (unsigned long long)bound_ms);
            return rostrum_fail(error, ROSTRUM_ERR_TIMEOUT, outcome->error.words);
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
    return outcome->error.code ? rostrum_fail(error, outcome->error.code, outcome->error.words) : ROSTRUM_OK;
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
