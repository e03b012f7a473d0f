/* A replica's world: a group, and objects of the agent. */
#include "client/connection.h"
#include "client/groups.h"
#include "client/replica.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    rostrum *agent;
    rostrum_group *group;
    pthread_mutex_t publishing; /* whoever holds it may write to the group */
} world;

struct rostrum_replica_send {
    bool done;
    rostrum_error result;
    uint64_t tag, handle; /* of the request, of the created file */
};

/* ------------------------------------------------------------------------------------------------------- the group */

static int64_t now_ms(void *at) {
    (void)at;
    return rostrum_now_ms();
}

static rostrum_code next(void *at, rostrum_message *message, const rostrum_view **view, int timeout_ms,
                         rostrum_error *error) {
    world *w = at;
    rostrum_code code = rostrum_next(w->group, message, timeout_ms, error);
    *view = rostrum_group_view(w->group);
    return code;
}

static rostrum_code try_publish(void *at, const void *bytes, uint32_t length, rostrum_error *error) {
    world *w = at;
    if (pthread_mutex_trylock(&w->publishing))
        return ROSTRUM_ERR_BUSY;
    rostrum_code code = rostrum_group_flush_some(w->group, error);
    if (!code)
        code = rostrum_publish(w->group, bytes, length, ROSTRUM_MORE, error);
    if (!code) { /* what the agent has no room for goes with the next message, or the next try */
        code = rostrum_group_flush_some(w->group, error);
        code = code == ROSTRUM_ERR_BUSY ? ROSTRUM_OK : code;
    }
    pthread_mutex_unlock(&w->publishing);
    return code;
}

/* --------------------------------------------------------------------------------------------------------- objects */

static rostrum_code read_object(void *at, const char *name, const uint8_t **bytes, size_t *length,
                                rostrum_error *error) {
    world *w = at;
    uint64_t data_id, size;
    struct stat info;
    int fd = -1;
    rostrum_code code = rostrum_data_id(name, &data_id, error);
    if (!code)
        code = rostrum_read(w->agent, data_id, 0, &fd, &size, error);
    if (code)
        return code;
    void *mapped = MAP_FAILED;
    if (size > 0 && fstat(fd, &info) == 0 && info.st_size >= (off_t)size)
        mapped = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED)
        size = 0; /* too short to be a state */
    *bytes = mapped == MAP_FAILED ? (const uint8_t *)"" : mapped;
    *length = size;
    return ROSTRUM_OK;
}

static void unread(void *at, const uint8_t *bytes, size_t length) {
    (void)at;
    if (length)
        (void)munmap((void *)(uintptr_t)bytes, length);
}

static bool forget(void *at, const char *name) {
    world *w = at;
    uint64_t data_id;
    return !rostrum_data_id(name, &data_id, NULL) && !rostrum_delete(w->agent, data_id, NULL);
}

static bool write_all(int fd, const void *bytes, size_t length, off_t to) {
    for (const uint8_t *at = bytes; length > 0;) {
        ssize_t done = pwrite(fd, at, length, to);
        if (done <= 0)
            return false;
        at += done;
        to += done;
        length -= (size_t)done;
    }
    return true;
}

/* A file in the agent's store with both. */
static rostrum_code create(world *w, const void *table, size_t table_length, const void *state, size_t state_length,
                           int *fd, uint64_t *handle, rostrum_error *error) {
    rostrum_code code = rostrum_create(w->agent, table_length + state_length, fd, handle, error);
    if (code)
        return code;
    if (write_all(*fd, table, table_length, 0) && write_all(*fd, state, state_length, (off_t)table_length))
        return ROSTRUM_OK;
    close(*fd);
    (void)rostrum_drop(w->agent, *handle, NULL);
    return rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "the agent's store has no room for the state");
}

static rostrum_code add(void *at, const char *name, const void *table, size_t table_length, const void *state,
                        size_t state_length, rostrum_error *error) {
    world *w = at;
    uint64_t data_id, handle;
    int fd;
    rostrum_code code = rostrum_data_id(name, &data_id, error);
    if (!code)
        code = create(w, table, table_length, state, state_length, &fd, &handle, error);
    if (code)
        return code;
    code = rostrum_add(w->agent, data_id, fd, error);
    close(fd);
    if (code)
        (void)rostrum_drop(w->agent, handle, NULL);
    else
        (void)rostrum_name(w->agent, data_id, name, NULL); /* for lists only */
    return code;
}

static void on_sent(void *context, const rostrum_answer *answer) {
    rostrum_replica_send *s = context;
    s->done = true;
    s->result = answer->error;
}

static rostrum_code send_object(void *at, const char *name, const char *server, const void *table, size_t table_length,
                                const void *state, size_t state_length, rostrum_replica_send **out,
                                rostrum_error *error) {
    world *w = at;
    uint64_t data_id;
    int fd;
    rostrum_code code = rostrum_data_id(name, &data_id, error);
    if (code)
        return code;
    rostrum_replica_send *s = calloc(1, sizeof *s);
    if (!s)
        return rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "no memory for a send");
    code = create(w, table, table_length, state, state_length, &fd, &s->handle, error);
    if (code) {
        free(s);
        return code;
    }
    code = rostrum_start_send_file(w->agent, data_id, fd, &server, 1, NULL, on_sent, s, &s->tag, error);
    close(fd);
    if (code) {
        (void)rostrum_drop(w->agent, s->handle, NULL);
        free(s);
        return code;
    }
    (void)rostrum_name(w->agent, data_id, name, NULL);
    *out = s;
    return ROSTRUM_OK;
}

static bool sent(void *at, rostrum_replica_send *s, rostrum_error *result) {
    world *w = at;
    if (!s->done)
        (void)rostrum_dispatch(w->agent, NULL);
    if (!s->done)
        return false;
    *result = s->result;
    if (s->result.code) /* if it was not begun, the file is no object */
        (void)rostrum_drop(w->agent, s->handle, NULL);
    free(s);
    return true;
}

static void abandon(void *at, rostrum_replica_send *s) {
    world *w = at;
    rostrum_forget(w->agent, s->tag);
    free(s);
}

static const rostrum_replica_world calls = {.now_ms = now_ms,
                                            .next = next,
                                            .try_publish = try_publish,
                                            .read = read_object,
                                            .unread = unread,
                                            .forget = forget,
                                            .add = add,
                                            .send = send_object,
                                            .sent = sent,
                                            .abandon = abandon};

/* ----------------------------------------------------------------------------------------------- what programs call */

rostrum_code rostrum_replica_open(rostrum *agent, const char *group, const rostrum_group_options *options,
                                  const rostrum_replica_callbacks *callbacks, void *context, rostrum_replica **out,
                                  rostrum_error *error) {
    rostrum_group_options chosen = options ? *options : (rostrum_group_options){0};
    rostrum_group *joined = NULL;
    *out = NULL;
    if (!callbacks->deliver || !callbacks->get_state || !callbacks->set_state)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "a replica needs deliver, get_state and set_state");
    chosen.protocol = chosen.protocol ? chosen.protocol : "plain";
    chosen.order = chosen.order ? chosen.order : "total";
    rostrum_code code = rostrum_subscribe(agent, group, &chosen, &joined, error);
    if (code)
        return code;
    const char *order = rostrum_group_order(joined);
    size_t first = strcspn(order, ",");
    if (first != 5 || strncmp(order, "total", first) != 0 || strstr(order, "guarantee=reliable")) {
        rostrum_leave(joined);
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "replicas need a group of order total with views");
    }
    world *w = calloc(1, sizeof *w);
    rostrum_replica *replica =
        w ? rostrum_replica_new(&calls, w, rostrum_server(agent), group, callbacks, context) : NULL;
    if (!replica) {
        free(w);
        rostrum_leave(joined);
        return rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "no memory for a replica");
    }
    w->agent = agent;
    w->group = joined;
    (void)pthread_mutex_init(&w->publishing, NULL);
    *out = replica;
    return ROSTRUM_OK;
}

void rostrum_replica_close(rostrum_replica *replica) {
    if (!replica)
        return;
    world *w = rostrum_replica_of_world(replica);
    rostrum_replica_free(replica);
    rostrum_leave(w->group);
    (void)pthread_mutex_destroy(&w->publishing);
    free(w);
}

rostrum_code rostrum_replica_publish(rostrum_replica *replica, const void *bytes, uint32_t length,
                                     rostrum_error *error) {
    world *w = rostrum_replica_of_world(replica);
    if (rostrum_replica_is_control(bytes, length))
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "a message to replicas must not begin with \\0rostrum");
    (void)pthread_mutex_lock(&w->publishing);
    rostrum_code code = rostrum_publish(w->group, bytes, length, 0, error);
    (void)pthread_mutex_unlock(&w->publishing);
    return code;
}

int rostrum_replica_fd(const rostrum_replica *replica) {
    const world *w = rostrum_replica_of_world(replica);
    return rostrum_group_fd(w->group);
}
