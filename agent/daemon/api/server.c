#include "daemon/api/server.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api/socket.h"
#include "api/wire.h"
#include "core/transfer/node.h"
#include "daemon/accept.h"
#include "daemon/api/access.h"
#include "daemon/api/status.h"
#include "daemon/api/waits.h"
#include "daemon/store/digest.h"

/* One request, with the descriptor that came along (owned by the callee). */
static void rs_api_serve(rs_api_server *server, rs_api_client *client, const rs_api_request *request, int fd);
/* The client unregisters or is gone: what waits for it ends (with an answer, when it is still there) and its created
 * files go. */
static void rs_api_forget(rs_api_server *server, rs_api_client *client, bool answer);

#define ACCEPTS_PER_ROUND 16
#define MESSAGES_PER_ROUND 32 /* of one client, so that a busy one does not starve the others */
#define EVENTS_PER_ROUND 64
#define LISTENER_ID 0
#define FRAMED_LISTENER_ID UINT64_MAX
#define KEY_BOUND ((rs_time)10 * 1000000000) /* until a connection that was attached is asked for */
#define FETCH_WAIT_MS 60000u                 /* of one that does not say */
#define FREE_BYTES ((uint64_t)8 << 20)       /* per dispatch: about 1 ms */

static void rs_api_log(rs_api_server *server, const char *format, ...) {
    if (!server->handlers.log)
        return;
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    server->handlers.log(server->handlers.context, text);
}

static bool watch(rs_api_server *server, int operation, int fd, uint32_t events, uint64_t id) {
    struct epoll_event event = {.events = events, .data = {.u64 = id}};
    return epoll_ctl(server->epoll, operation, fd, &event) == 0;
}

rs_api_server *rs_api_server_new(const rs_api_config *config, const rs_api_handlers *handlers, rs_store *store,
                                 rs_error *error) {
    rs_api_server *server = calloc(1, sizeof *server);
    if (!server) {
        rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "no memory for the application interface");
        return NULL;
    }
    server->config = *config;
    server->handlers = *handlers;
    server->store = store;
    server->epoll = server->listener = server->framed_listener = -1;
    server->read_deadline = server->key_ends = server->ephemeral.next = RS_NEVER;
    server->config.max_clients += config->max_clients ? 0 : 256;
    server->config.max_pending += config->max_pending ? 0 : 1024;
    server->config.max_queued_bytes +=
        config->max_queued_bytes ? 0 : (uint64_t)16 << 20; /* the longest result of a send, and some */
    server->config.digest_algorithm = config->digest_algorithm ? config->digest_algorithm : RS_DIGEST_XXH3;
    server->path = strdup(config->socket_path ? config->socket_path : "");
    if (asprintf(&server->framed_path, "%s.framed", server->path ? server->path : "") < 0)
        server->framed_path = NULL;
    server->server_name = strdup(config->server_name ? config->server_name : "");
    server->version = strdup(config->version ? config->version : "");
    server->clients = calloc(server->config.max_clients, sizeof(rs_api_client *));
    if (!server->path || !server->framed_path || !server->server_name || !server->version || !server->clients) {
        rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "no memory for the application interface");
        rs_api_server_free(server);
        return NULL;
    }
    const gid_t *group = config->has_group ? &config->group : NULL;
    mode_t mode = config->socket_mode ? config->socket_mode : 0660;
    server->listener = rs_unix_listen(server->path, SOCK_SEQPACKET, mode, group, error);
    if (server->listener >= 0)
        server->framed_listener = rs_unix_listen(server->framed_path, SOCK_STREAM, mode, group, error);
    if (server->framed_listener < 0) {
        rs_api_server_free(server);
        return NULL;
    }
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll < 0 || !watch(server, EPOLL_CTL_ADD, server->listener, EPOLLIN, LISTENER_ID) ||
        !watch(server, EPOLL_CTL_ADD, server->framed_listener, EPOLLIN, FRAMED_LISTENER_ID)) {
        rs_error_system(error, errno, "socket %s: epoll", server->path);
        rs_api_server_free(server);
        return NULL;
    }
    return server;
}

static void free_queue(rs_api_client *client) {
    while (client->first) {
        rs_api_outgoing *one = client->first;
        client->first = one->next;
        if (one->fd >= 0)
            close(one->fd);
        free(one);
    }
    client->last = NULL;
    client->queued_bytes = 0;
}

static void reap_dead(rs_api_server *server) {
    server->reap = false;
    for (uint32_t i = 0; i < server->client_count;) {
        rs_api_client *client = server->clients[i];
        if (!client->dead) {
            i++;
            continue;
        }
        rs_api_forget(server, client, false);
        server->clients[i] = server->clients[--server->client_count];
        free_queue(client);
        rs_framed_clear(&client->frame);
        close(client->fd);
        free(client);
    }
}

void rs_api_server_free(rs_api_server *server) {
    if (!server)
        return;
    for (uint32_t i = 0; i < server->client_count; i++)
        server->clients[i]->dead = true;
    reap_dead(server);
    while (server->waits)
        rs_api_wait_end(server, server->waits, true);
    if (server->listener >= 0) {
        close(server->listener);
        (void)unlink(server->path);
    }
    if (server->framed_listener >= 0) {
        close(server->framed_listener);
        (void)unlink(server->framed_path);
    }
    if (server->epoll >= 0)
        close(server->epoll);
    free(server->clients);
    free(server->path);
    free(server->framed_path);
    free(server->server_name);
    free(server->version);
    free(server);
}

int rs_api_server_fd(const rs_api_server *server) {
    return server->epoll;
}

rs_time rs_api_server_deadline(const rs_api_server *server) {
    rs_time work = rs_api_waits_due(server);
    if (work == 0 || server->store_work || server->reap)
        return 0;
    bool paused = server->pause.again != 0 && server->pause.again < server->read_deadline;
    rs_time next = paused ? server->pause.again : server->read_deadline;
    next = server->ephemeral.next < next ? server->ephemeral.next : next;
    next = work < next ? work : next;
    return server->key_ends < next ? server->key_ends : next;
}

rs_api_client *rs_api_client_find(rs_api_server *server, uint64_t id) {
    for (uint32_t i = 0; i < server->client_count; i++)
        if (server->clients[i]->id == id)
            return server->clients[i];
    return NULL;
}

static void kill_client(rs_api_server *server, rs_api_client *client, const char *why) {
    if (client->dead)
        return;
    client->dead = true;
    server->reap = true;
    (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, client->fd, NULL);
    rs_api_log(server, "client %" PRIu64 " (pid %d%s%s) %s", client->id, client->pid, client->registered ? ", " : "",
               client->process, why);
}

/* Takes `fd` over. */
static void enqueue(rs_api_server *server, rs_api_client *client, int fd) {
    const rs_api_message *message = &server->message;
    size_t length = message->length;
    uint8_t *frame = client->framed ? rs_framed_new(message->data, length, server->where, &length) : NULL;
    uint64_t bytes = client->queued_bytes + length + sizeof(rs_api_outgoing);
    rs_api_outgoing *one = NULL;
    if (bytes > server->config.max_queued_bytes)
        kill_client(server, client, "disconnected: it does not read its answers");
    else if ((client->framed && !frame) || !(one = malloc(sizeof *one + length)))
        kill_client(server, client, "disconnected: no memory for its answers");
    if (!one) {
        free(frame);
        if (fd >= 0)
            close(fd);
        return;
    }
    one->next = NULL;
    one->fd = fd;
    one->length = length;
    one->at = 0;
    memcpy(one->data, frame ? frame : message->data, length);
    free(frame);
    if (client->last)
        client->last->next = one;
    else
        client->first = one;
    client->last = one;
    client->queued_bytes = bytes;
}

static void flush(rs_api_server *server, rs_api_client *client) {
    while (client->first && !client->dead) {
        rs_api_outgoing *one = client->first;
        int number = client->framed ? rs_framed_write(client->fd, one->data, one->length, &one->at)
                                    : rs_unix_send(client->fd, one->data, one->length, one->fd, true);
        if (number == EAGAIN || number == ENOBUFS)
            return;
        if (number) {
            kill_client(server, client, "left");
            return;
        }
        client->first = one->next;
        if (!client->first)
            client->last = NULL;
        client->queued_bytes -= one->length + sizeof *one;
        if (one->fd >= 0)
            close(one->fd);
        free(one);
    }
    if (!client->dead)
        (void)watch(server, EPOLL_CTL_MOD, client->fd, EPOLLIN, client->id);
}

void rs_api_transmit(rs_api_server *server, uint64_t id, int fd, bool lossy) {
    rs_api_client *client = rs_api_client_find(server, id);
    int number = 0;
    if (!client || client->dead)
        goto out;
    if (client->first && lossy && client->queued_bytes > server->config.max_queued_bytes / 2) {
        client->events_dropped++;
        goto out;
    }
    if (!client->first && !client->framed)
        number = rs_unix_send(client->fd, server->message.data, server->message.length, fd, true);
    if (client->first || client->framed || number == EAGAIN || number == ENOBUFS) {
        bool was_empty = !client->first;
        enqueue(server, client, fd);
        server->where[0] = 0;
        if (was_empty && !client->dead)
            (void)watch(server, EPOLL_CTL_MOD, client->fd, EPOLLIN | EPOLLOUT, client->id);
        if (was_empty && client->framed && !client->dead)
            flush(server, client);
        return;
    }
    if (number)
        kill_client(server, client, number == EPIPE || number == ECONNRESET ? "left" : strerror(number));
out:
    server->where[0] = 0;
    if (fd >= 0)
        close(fd);
}

static void refuse_malformed(rs_api_server *server, rs_api_client *client, const rs_error *error) {
    rs_api_call call = {.client = client->id, .tag = server->request.tag};
    rs_api_reply_failure(server, &call, error);
    if (!server->request.type)
        kill_client(server, client, "disconnected: it does not speak this interface");
}

/* "attach KEY", without a message: this connection will be asked for by another one of that program. */
static void attach(rs_api_server *server, rs_api_client *client, const char *text) {
    rs_api_call call = {.client = client->id};
    size_t length = strlen(text);
    if (strncmp(text, "attach ", 7) != 0 || length != 7 + RS_API_KEY || client->registered) {
        rs_api_reply_error(server, &call, ROSTRUM_ERR_PROTOCOL,
                           "a frame without a message attaches a new connection by a key of %d characters", RS_API_KEY);
        kill_client(server, client, "disconnected: it does not speak this interface");
        return;
    }
    memcpy(client->key, text + 7, RS_API_KEY);
    client->key_ends = server->now + KEY_BOUND;
    if (client->key_ends < server->key_ends)
        server->key_ends = client->key_ends;
    rs_api_reply_ok(server, &call);
    if (client->first)
        kill_client(server, client, "disconnected: it does not read its answers");
    else if (!client->dead)
        (void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, client->fd, NULL);
}

static void expire_attached(rs_api_server *server) {
    if (server->now < server->key_ends)
        return;
    server->key_ends = RS_NEVER;
    for (uint32_t i = 0; i < server->client_count; i++) {
        rs_api_client *client = server->clients[i];
        if (!client->key[0] || client->dead)
            continue;
        if (client->key_ends <= server->now)
            kill_client(server, client, "disconnected: it was attached, and nobody asked for it");
        else if (client->key_ends < server->key_ends)
            server->key_ends = client->key_ends;
    }
}

/* The descriptor that goes with a request, where `text` says: "file HANDLE", of create; "socket KEY", a connection
 * attached by the same user. -1 and `error`. */
static int find_descriptor(rs_api_server *server, const rs_api_client *client, const char *text, rs_error *error) {
    if (strncmp(text, "file ", 5) == 0) {
        rs_object *object = rs_store_find_created(server->store, strtoull(text + 5, NULL, 10));
        if (object && object->owner == client->id)
            return rs_store_writer_fd(object, error);
        rs_error_set(error, ROSTRUM_ERR_UNKNOWN, "this process has no created file with handle %.20s", text + 5);
        return -1;
    }
    for (uint32_t i = 0; strncmp(text, "socket ", 7) == 0 && i < server->client_count; i++) {
        rs_api_client *other = server->clients[i];
        if (other->dead || !other->key[0] || other->uid != client->uid || strcmp(other->key, text + 7) != 0)
            continue;
        int fd = fcntl(other->fd, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
            rs_error_system(error, errno, "the agent has no descriptors left");
        other->dead = true;
        server->reap = true;
        return fd;
    }
    rs_error_set(error, ROSTRUM_ERR_INVALID, "nothing is attached by what the request names: %.60s", text);
    return -1;
}

static void serve_framed(rs_api_server *server, rs_api_client *client) {
    for (int i = 0; i < MESSAGES_PER_ROUND && !client->dead && !client->key[0]; i++) {
        rs_framed_state state = rs_framed_read(&client->frame, client->fd);
        if (state == RS_FRAMED_PART)
            return;
        if (state != RS_FRAMED_COMPLETE) {
            kill_client(server, client,
                        state == RS_FRAMED_GONE  ? "left"
                        : state == RS_FRAMED_BAD ? "disconnected: it sent a frame that is too long"
                                                 : "disconnected: no memory for what it asks");
            return;
        }
        rs_error error = {0};
        int fd = -1;
        const char *text = rs_framed_text(&client->frame);
        if (client->frame.message == 0)
            attach(server, client, text);
        else if (!rs_api_parse_request(client->frame.body, client->frame.message, &server->request, &error) ||
                 (text[0] && (fd = find_descriptor(server, client, text, &error)) < 0))
            refuse_malformed(server, client, &error);
        else
            rs_api_serve(server, client, &server->request, fd);
        rs_framed_clear(&client->frame);
    }
}

static void serve_client(rs_api_server *server, rs_api_client *client) {
    for (int i = 0; i < MESSAGES_PER_ROUND && !client->dead; i++) {
        int fd;
        rs_error error;
        ssize_t got = rs_unix_receive(client->fd, server->input, sizeof server->input, &fd, true);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (got <= 0) {
            kill_client(server, client,
                        got == 0 || errno != EMSGSIZE ? "left" : "disconnected: it sent a message of more than 64 KiB");
            if (fd >= 0)
                close(fd);
            return;
        }
        if (rs_api_parse_request(server->input, (size_t)got, &server->request, &error)) {
            rs_api_serve(server, client, &server->request, fd);
            continue;
        }
        if (fd >= 0)
            close(fd);
        refuse_malformed(server, client, &error);
    }
}

static void accept_clients(rs_api_server *server, bool framed) {
    int listener = framed ? server->framed_listener : server->listener;
    for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        char text[RS_ACCEPT_TEXT];
        if (fd < 0 && rs_accept_failed(&server->pause, errno, server->now, "the socket of applications", text)) {
            if (text[0])
                rs_api_log(server, "%s", text);
            (void)watch(server, EPOLL_CTL_MOD, listener, 0, framed ? FRAMED_LISTENER_ID : LISTENER_ID);
        }
        if (fd < 0)
            return;
        rs_accept_worked(&server->pause);
        rs_api_client *client = server->client_count < server->config.max_clients ? calloc(1, sizeof *client) : NULL;
        if (!client) {
            rs_api_encode_error(&server->message, 0, ROSTRUM_ERR_LIMIT,
                                "the agent serves its maximum of clients already");
            size_t length = 0, at = 0;
            uint8_t *frame = framed ? rs_framed_new(server->message.data, server->message.length, "", &length) : NULL;
            if (frame)
                (void)rs_framed_write(fd, frame, length, &at);
            else
                (void)rs_unix_send(fd, server->message.data, server->message.length, -1, true);
            free(frame);
            rs_api_log(server, "a client was turned away: %u are connected", server->client_count);
            close(fd);
            continue;
        }
        client->id = ++server->next_client;
        client->fd = fd;
        client->framed = framed;
        bool known = rs_policy_peer(fd, &client->who);
        client->pid = (int)client->who.pid;
        client->uid = (unsigned int)client->who.uid;
        if (!known || !watch(server, EPOLL_CTL_ADD, fd, EPOLLIN, client->id)) {
            close(fd);
            free(client);
            continue;
        }
        server->clients[server->client_count++] = client;
    }
}

void rs_api_store_work(rs_api_server *server) {
    server->store_work = true;
}

void rs_api_server_dispatch(rs_api_server *server, rs_time now) {
    struct epoll_event events[EVENTS_PER_ROUND];
    server->now = now;
    if (rs_accept_resumes(&server->pause, now)) {
        (void)watch(server, EPOLL_CTL_MOD, server->listener, EPOLLIN, LISTENER_ID);
        (void)watch(server, EPOLL_CTL_MOD, server->framed_listener, EPOLLIN, FRAMED_LISTENER_ID);
    }
    /* Before what is new: a file that is to be sent has its path asked for before its digest is begun. */
    if (server->work_count)
        rs_api_waits_work(server);
    int count = epoll_wait(server->epoll, events, EVENTS_PER_ROUND, 0);
    for (int i = 0; i < count; i++) {
        if (events[i].data.u64 == LISTENER_ID || events[i].data.u64 == FRAMED_LISTENER_ID) {
            accept_clients(server, events[i].data.u64 == FRAMED_LISTENER_ID);
            continue;
        }
        rs_api_client *client = rs_api_client_find(server, events[i].data.u64);
        if (client && (events[i].events & EPOLLOUT))
            flush(server, client);
        if (client && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
            (client->framed ? serve_framed : serve_client)(server, client);
    }
    rs_api_waits_expire(server);
    expire_attached(server);
    if (server->reap)
        reap_dead(server);
    rs_ephemeral_work(server, rs_api_drop);
    if (server->store_work)
        server->store_work = rs_store_work(server->store, FREE_BYTES);
}

void rs_api_reply_ok(rs_api_server *server, const rs_api_call *call) {
    rs_api_begin(&server->message, RS_API_DONE, call->tag);
    rs_api_transmit(server, call->client, -1, false);
}

void rs_api_reply_error(rs_api_server *server, const rs_api_call *call, rostrum_code code, const char *format, ...) {
    char text[ROSTRUM_TEXT_MAX + 1];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    rs_api_send_events_end(server, call);
    rs_api_encode_error(&server->message, call->tag, code, text);
    rs_api_transmit(server, call->client, -1, false);
}

void rs_api_reply_failure(rs_api_server *server, const rs_api_call *call, const rs_error *error) {
    rs_api_reply_error(server, call, error->code, "%s", error->text);
}

void rs_api_reply_send(rs_api_server *server, const rs_api_call *call, const rostrum_send_result *result) {
    rs_api_send_events_end(server, call);
    for (uint32_t done = 0; done < result->receiver_count;) {
        done += rs_api_encode_receivers(&server->message, call->tag, result->receivers + done,
                                        result->receiver_count - done);
        rs_api_transmit(server, call->client, -1, false);
    }
    rs_api_encode_sent(&server->message, call->tag, result);
    rs_api_transmit(server, call->client, -1, false);
}

void rs_api_reply_streamed(rs_api_server *server, const rs_api_call *call, uint64_t bytes) {
    rs_api_encode_streamed(&server->message, call->tag, bytes);
    rs_api_transmit(server, call->client, -1, false);
}

void rs_api_reply_group(rs_api_server *server, const rs_api_call *call, const char *protocol, const char *order,
                        uint32_t message_bytes, int fd) {
    rs_api_encode_group(&server->message, call->tag, protocol, order, message_bytes);
    rs_api_transmit(server, call->client, fd, false);
}

/* One request of a client: what needs only the object store is done here, the rest goes to the daemon. */

static rs_object_id id_of(const rs_api_client *client, uint64_t data_id) {
    rs_object_id id = {.data = data_id};
    memcpy(id.app, client->app, sizeof id.app);
    return id;
}

static void serve_register(rs_api_server *server, rs_api_client *client, const rs_api_call *call,
                           const rs_api_request *request) {
    if (client->registered) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_EXISTS, "this connection is registered already, as %s",
                           client->process);
        return;
    }
    static const uint8_t nobody[16];
    if (memcmp(request->app, nobody, sizeof nobody) == 0) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_INVALID,
                           "the application's id is all zero; generate a UUID once for the application");
        return;
    }
    memcpy(client->app, request->app, sizeof client->app);
    (void)strncpy(client->process, request->process, sizeof client->process - 1);
    client->registered = true;
    rs_api_log(server, "client %" PRIu64 " (pid %d, uid %u) registered as %s", client->id, client->pid, client->uid,
               client->process);
    rs_api_encode_registered(&server->message, call->tag, server->server_name, server->version, server->config.boot_id);
    rs_api_transmit(server, client->id, -1, false);
}

static void drop_created(rs_api_server *server, uint64_t client) {
    uint32_t cursor = 0;
    for (rs_object *object; (object = rs_store_next(server->store, &cursor));)
        if (object->phase == RS_OBJECT_CREATED && object->owner == client) {
            rs_store_discard(server->store, object);
            server->store_work = true;
            cursor = 0;
        }
}

static void rs_api_forget(rs_api_server *server, rs_api_client *client, bool answer) {
    (void)rs_api_waits_forget(server, client->id, answer);
    drop_created(server, client->id);
    client->registered = false;
    rs_ephemeral_left(server, client);
    client->ephemeral = false;
}

static void serve_create(rs_api_server *server, rs_api_client *client, const rs_api_call *call, uint64_t size) {
    rs_error error;
    rs_object *object = rs_store_create(server->store, size, client->id, &error);
    if (!object) {
        rs_api_reply_failure(server, call, &error);
        return;
    }
    rs_object_id nothing = {.data = 0};
    rs_api_wait *wait = rs_api_wait_new(server, client, RS_WAIT_CREATE, call, &nothing);
    if (wait)
        wait->object = object;
    else
        rs_store_discard(server->store, object);
}

static void serve_drop(rs_api_server *server, rs_api_client *client, const rs_api_call *call, uint64_t handle) {
    rs_object *object = rs_store_find_created(server->store, handle);
    bool under_way = false;
    for (rs_api_wait *wait = server->waits; wait; wait = wait->next)
        under_way |= wait->object && wait->object == object;
    if (!object || object->owner != client->id || under_way) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_UNKNOWN, "this process has no created file with handle %" PRIu64,
                           handle);
        return;
    }
    rs_store_discard(server->store, object);
    server->store_work = true;
    rs_api_reply_ok(server, call);
}

/* What the agent added again after a restart: a program that names the same file has that object; otherwise it goes,
 * unless it is being sent. */
static rs_object *take_over(rs_api_server *server, const rs_object_id *id, int fd) {
    rs_object *object = rs_store_find(server->store, id);
    if (!object || !object->added_again)
        return NULL;
    if (object->phase == RS_OBJECT_COMPLETE && rs_store_is_file(object, fd)) {
        object->added_again = false;
        return object;
    }
    rs_error busy;
    if (object->holds == 0)
        (void)rs_api_drop(server, id, &busy);
    return NULL;
}

void rs_api_reply_added(rs_api_server *server, const rs_api_call *call, const rs_object *object) {
    const rs_digest *digest = &object->digest;
    rs_api_object_info info = {
        .size = object->size, .digest_algorithm = digest->algorithm, .digest_length = digest->length};
    memcpy(info.digest, digest->value, sizeof info.digest);
    rs_api_encode_object(&server->message, RS_API_ADDED, call->tag, &info);
    rs_api_transmit(server, call->client, -1, false);
}

static void serve_add(rs_api_server *server, rs_api_client *client, const rs_api_call *call, uint64_t data_id, int fd) {
    rs_object_id id = id_of(client, data_id);
    rs_error error = {0};
    if (fd < 0) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_INVALID,
                           "add of object %" PRIu64 " came without a file descriptor", data_id);
        return;
    }
    const rs_object *here = take_over(server, &id, fd);
    if (here) {
        rs_api_reply_added(server, call, here);
        return;
    }
    rs_api_wait *wait = rs_api_wait_new(server, client, RS_WAIT_DIGEST, call, &id);
    if (wait && !rs_api_add_object(server, wait, fd, &error))
        rs_api_reply_failure(server, call, &error);
}

void rs_api_reply_object(rs_api_server *server, const rs_api_call *call, const rs_object *object) {
    rs_error error;
    const rs_api_client *client = rs_api_client_find(server, call->client);
    int fd = rs_store_reader_fd(object, &error); /* a framed client's too: it was read now */
    bool ok =
        fd >= 0 && (!client || !client->framed || rs_store_reader_path(object, client->uid, server->where, &error));
    if (!ok) {
        if (fd >= 0)
            close(fd);
        rs_api_reply_failure(server, call, &error);
        return;
    }
    rs_api_object_info info = {
        .size = object->size, .digest_algorithm = object->digest.algorithm, .digest_length = object->digest.length};
    memcpy(info.digest, object->digest.value, sizeof info.digest);
    rs_api_encode_object(&server->message, RS_API_OBJECT, call->tag, &info);
    rs_api_transmit(server, call->client, fd, false);
}

static void serve_read(rs_api_server *server, rs_api_client *client, const rs_api_call *call,
                       const rs_api_request *request) {
    rs_object_id id = id_of(client, request->data_id);
    const rs_object *object = rs_store_find(server->store, &id);
    if (object && object->phase == RS_OBJECT_COMPLETE) {
        rs_api_reply_object(server, call, object);
        return;
    }
    if (!request->wait_ms) {
        rs_api_reply_error(server, call, object ? ROSTRUM_ERR_BUSY : ROSTRUM_ERR_UNKNOWN, "object %" PRIu64 " %s %s",
                           request->data_id, object ? "is not whole yet on" : "is not on", server->server_name);
        return;
    }
    rs_api_wait *wait = rs_api_wait_new(server, client, RS_WAIT_READ, call, &id);
    if (!wait)
        return;
    wait->wait_ms = request->wait_ms;
    wait->deadline = server->now + (rs_time)request->wait_ms * 1000000;
    if (wait->deadline < server->read_deadline)
        server->read_deadline = wait->deadline;
}

static void serve_fetch(rs_api_server *server, rs_api_client *client, const rs_api_call *call,
                        const rs_api_request *request) {
    rs_object_id id = id_of(client, request->data_id);
    const rs_object *object = rs_store_find(server->store, &id);
    rs_error error = {0};
    if (object && object->phase == RS_OBJECT_COMPLETE) {
        rs_api_reply_object(server, call, object);
        return;
    }
    rs_api_wait *wait = rs_api_wait_new(server, client, RS_WAIT_READ, call, &id);
    if (!wait)
        return;
    wait->fetch = true;
    wait->wait_ms = request->wait_ms ? request->wait_ms : FETCH_WAIT_MS;
    wait->deadline = server->now + (rs_time)wait->wait_ms * 1000000;
    if (wait->deadline < server->read_deadline)
        server->read_deadline = wait->deadline;
    bool ok = server->handlers.on_fetch ? server->handlers.on_fetch(server->handlers.context, &id, request->receivers,
                                                                    request->receiver_count, &error)
                                        : rs_error_set(&error, ROSTRUM_ERR_UNAVAILABLE, "there is no fetching here");
    if (ok)
        return;
    rs_api_wait_end(server, wait, false);
    rs_api_reply_failure(server, call, &error);
}

static void start_send(rs_api_server *server, rs_api_client *client, const rs_api_call *call,
                       const rs_api_request *request, rs_object *object, int stream) {
    const rs_api_send send = {.call = *call,
                              .id = id_of(client, request->data_id),
                              .object = object,
                              .stream = stream,
                              .process = client->process,
                              .wait_ms = request->wait_ms,
                              .deadline_ms = request->deadline_ms,
                              .stragglers = (rostrum_straggler_policy)(request->flags >> RS_API_SEND_STRAGGLERS & 3),
                              .protocol = (rostrum_protocol)(request->flags >> RS_API_SEND_PROTOCOL & 3),
                              .options = request->options,
                              .receiver_count = request->receiver_count,
                              .receivers = request->receivers};
    server->handlers.on_send(server->handlers.context, &send);
}

static void serve_send(rs_api_server *server, rs_api_client *client, const rs_api_call *call,
                       const rs_api_request *request);

/* The file beside the request becomes the object, and is sent while its digest is being taken. What cannot be begun
 * leaves nothing. */
static void serve_send_file(rs_api_server *server, rs_api_client *client, const rs_api_call *call,
                            const rs_api_request *request, int fd) {
    rs_object_id id = id_of(client, request->data_id);
    rs_error error = {0};
    if (take_over(server, &id, fd)) {
        serve_send(server, client, call, request);
        return;
    }
    if ((request->flags & RS_API_SEND_EVENTS) && !rs_api_wait_new(server, client, RS_WAIT_SEND, call, &id))
        return;
    rs_api_wait *wait = rs_api_wait_new(server, NULL, RS_WAIT_DIGEST, call, &id);
    if (!wait)
        return;
    if (!rs_api_add_object(server, wait, fd, &error)) {
        rs_api_reply_failure(server, call, &error);
        return;
    }
    start_send(server, client, call, request, wait->object, -1);
    if (wait->object->holds == 0)
        rs_api_wait_end(server, wait, true);
}

static void serve_send(rs_api_server *server, rs_api_client *client, const rs_api_call *call,
                       const rs_api_request *request) {
    rs_object_id id = id_of(client, request->data_id);
    rs_object *object = rs_store_find(server->store, &id);
    if (!object) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_UNKNOWN,
                           "there is no object %" PRIu64 " of this application on %s; add it first", request->data_id,
                           server->server_name);
        return;
    }
    if (object->phase != RS_OBJECT_COMPLETE && object->phase != RS_OBJECT_DIGESTING) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_BUSY, "object %" PRIu64 " is still being received here",
                           request->data_id);
        return;
    }
    if ((request->flags & RS_API_SEND_EVENTS) && !rs_api_wait_new(server, client, RS_WAIT_SEND, call, &id))
        return;
    start_send(server, client, call, request, object, -1);
}

/* The daemon's own descriptor of the socket that came along; -1, and the call is answered, if there is none. */
static int unix_stream(rs_api_server *server, const rs_api_call *call, int fd) {
    int domain = 0, type = 0;
    socklen_t size = sizeof domain;
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || domain != AF_UNIX || type != SOCK_STREAM) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_INVALID,
                           "a stream needs one end of a pair of unix stream sockets (socketpair)");
        return -1;
    }
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0)
        rs_api_reply_error(server, call, ROSTRUM_ERR_LIMIT, "the agent has no descriptors left: %s", strerror(errno));
    return own;
}

static int stream_socket(rs_api_server *server, const rs_api_call *call, int fd) {
    if (server->handlers.on_stream_end && server->handlers.on_stream_receive)
        return unix_stream(server, call, fd);
    rs_api_reply_error(server, call, ROSTRUM_ERR_UNAVAILABLE, "there are no streams here");
    return -1;
}

static void serve_stream_send(rs_api_server *server, rs_api_client *client, const rs_api_call *call,
                              const rs_api_request *request, int fd) {
    rs_object_id id = id_of(client, request->data_id);
    rostrum_protocol protocol = (rostrum_protocol)(request->flags >> RS_API_SEND_PROTOCOL & 3);
    if (protocol != ROSTRUM_PROTOCOL_AUTO &&
        !rs_engine_has((uint32_t)protocol - ROSTRUM_PROTOCOL_REPUBLIC, RS_ENGINE_STREAMS)) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_INVALID,
                           "a stream goes by rdcm over a packet tree; republic and wan need to know an object's end");
        return;
    }
    int own = stream_socket(server, call, fd);
    if (own < 0)
        return;
    if ((request->flags & RS_API_SEND_EVENTS) && !rs_api_wait_new(server, client, RS_WAIT_SEND, call, &id))
        close(own);
    else
        start_send(server, client, call, request, NULL, own);
}

static void serve_stream_receive(rs_api_server *server, rs_api_client *client, const rs_api_call *call,
                                 const rs_api_request *request, int fd) {
    const rs_api_take take = {.call = *call,
                              .id = id_of(client, request->data_id),
                              .process = client->process,
                              .wait_ms = request->wait_ms,
                              .stream = stream_socket(server, call, fd),
                              .holder_count = request->receiver_count,
                              .holders = request->receivers};
    if (take.stream < 0)
        return;
    bool joins = request->type == RS_API_STREAM_JOIN && server->handlers.on_stream_join;
    (joins ? server->handlers.on_stream_join : server->handlers.on_stream_receive)(server->handlers.context, &take);
}

static void serve_stream_end(rs_api_server *server, const rs_api_call *call, const rs_object_id *id, uint64_t bytes) {
    if (server->handlers.on_stream_end)
        server->handlers.on_stream_end(server->handlers.context, call, id, bytes);
    else
        rs_api_reply_error(server, call, ROSTRUM_ERR_UNAVAILABLE, "there are no streams here");
}

/* An object whose digest is still being taken, for nobody: its send is over. True: it is gone. */
static bool drop_unfinished(rs_api_server *server, const rs_object_id *id) {
    const rs_object *object = rs_store_find(server->store, id);
    for (rs_api_wait *wait = server->waits; object && wait; wait = wait->next)
        if (wait->kind == RS_WAIT_DIGEST && wait->object == object && wait->call.client == 0 && object->holds == 0) {
            rs_api_wait_end(server, wait, true);
            return true;
        }
    return false;
}

bool rs_api_drop(rs_api_server *server, const rs_object_id *id, rs_error *error) {
    if (server->handlers.on_delete)
        server->handlers.on_delete(server->handlers.context, id);
    server->store_work = true;
    return drop_unfinished(server, id) || rs_store_delete(server->store, id, error);
}

static void serve_delete(rs_api_server *server, rs_api_client *client, const rs_api_call *call, uint64_t data_id) {
    rs_error error;
    rs_object_id id = id_of(client, data_id);
    if (rs_api_drop(server, &id, &error))
        rs_api_reply_ok(server, call);
    else
        rs_api_reply_failure(server, call, &error);
}

static void serve_name(rs_api_server *server, const rs_api_call *call, const rs_object_id *id, const char *name) {
    rs_object *object = rs_store_find(server->store, id);
    if (object)
        rs_store_rename(object, name);
    if (server->handlers.on_name)
        server->handlers.on_name(server->handlers.context, id, name);
    rs_api_reply_ok(server, call);
}

static void serve_pin(rs_api_server *server, const rs_api_call *call, const rs_object_id *id, bool on) {
    rs_object *object = rs_store_find(server->store, id);
    if (!object) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_UNKNOWN, "there is no object %" PRIu64 " on %s", id->data,
                           server->server_name);
        return;
    }
    rs_store_pin(object, on);
    rs_api_reply_ok(server, call);
}

static void serve_unsubscribe(rs_api_server *server, const rs_api_call *call, uint64_t subscription) {
    for (rs_api_wait *wait = server->waits; wait; wait = wait->next)
        if (wait->kind == RS_WAIT_EVENTS && wait->call.client == call->client && wait->call.tag == subscription) {
            rs_api_wait_end(server, wait, false);
            rs_api_reply_ok(server, call);
            return;
        }
    rs_api_reply_error(server, call, ROSTRUM_ERR_UNKNOWN, "this process has no subscription %" PRIu64, subscription);
}

static void serve_join(rs_api_server *server, const rs_api_client *client, const rs_api_call *call,
                       const rs_api_request *request, int fd) {
    int own = fd >= 0 && server->handlers.on_join ? unix_stream(server, call, fd) : -1;
    if (fd >= 0 && server->handlers.on_join && own < 0)
        return;
    const rs_api_join join = {.call = *call,
                              .subscribe = request->flags & RS_API_JOIN_SUBSCRIBE,
                              .complete = request->flags & RS_API_JOIN_COMPLETE,
                              .ring = request->flags & RS_API_JOIN_RING,
                              .process = client->process,
                              .group = request->group,
                              .protocol = request->protocol,
                              .order = request->order,
                              .options = request->options,
                              .who = &client->who,
                              .from = request->flags & RS_API_JOIN_FROM,
                              .since = request->flags & RS_API_JOIN_SINCE,
                              .start = request->number,
                              .socket = own};
    if (server->handlers.on_join && request->type == RS_API_CHANNELS)
        server->handlers.on_channels(server->handlers.context, &join);
    else if (server->handlers.on_join)
        server->handlers.on_join(server->handlers.context, &join);
    else
        rs_api_reply_error(server, call, ROSTRUM_ERR_UNAVAILABLE, "there are no message groups here");
}

static void serve_registered(rs_api_server *server, rs_api_client *client, const rs_api_call *call,
                             const rs_api_request *request, int fd) {
    rs_object_id id = id_of(client, request->data_id);
    switch (request->type) {
    case RS_API_UNREGISTER:
        rs_api_forget(server, client, true);
        rs_api_reply_ok(server, call);
        break;
    case RS_API_EPHEMERAL:
        client->ephemeral = true;
        rs_api_reply_ok(server, call);
        break;
    case RS_API_ADD:
        serve_add(server, client, call, request->data_id, fd);
        break;
    case RS_API_CREATE:
        serve_create(server, client, call, request->number);
        break;
    case RS_API_DROP:
        serve_drop(server, client, call, request->number);
        break;
    case RS_API_SEND:
        if (fd >= 0)
            serve_send_file(server, client, call, request, fd);
        else
            serve_send(server, client, call, request);
        break;
    case RS_API_READ:
        serve_read(server, client, call, request);
        break;
    case RS_API_FETCH:
        serve_fetch(server, client, call, request);
        break;
    case RS_API_NAME:
        serve_name(server, call, &id, request->group);
        break;
    case RS_API_PIN:
        serve_pin(server, call, &id, request->flags & RS_API_PIN_ON);
        break;
    case RS_API_DELETE:
        serve_delete(server, client, call, request->data_id);
        break;
    case RS_API_SUBSCRIBE:
        if (rs_api_wait_new(server, client, RS_WAIT_EVENTS, call, &id))
            rs_api_reply_ok(server, call);
        break;
    case RS_API_UNSUBSCRIBE:
        serve_unsubscribe(server, call, request->number);
        break;
    case RS_API_JOIN:
    case RS_API_CHANNELS:
        serve_join(server, client, call, request, fd);
        break;
    case RS_API_STREAM_SEND:
        serve_stream_send(server, client, call, request, fd);
        break;
    case RS_API_STREAM_END:
        serve_stream_end(server, call, &id, request->number);
        break;
    case RS_API_STREAM_RECEIVE:
    case RS_API_STREAM_JOIN:
        serve_stream_receive(server, client, call, request, fd);
        break;
    case RS_API_CANCEL:
        server->handlers.on_cancel(server->handlers.context, call, &id);
        break;
    case RS_API_LEAVE:
        if (server->handlers.on_leave)
            server->handlers.on_leave(server->handlers.context, call, &id);
        else
            rs_api_reply_error(server, call, ROSTRUM_ERR_UNKNOWN, "nothing comes in here");
        break;
    }
}

static void rs_api_serve(rs_api_server *server, rs_api_client *client, const rs_api_request *request, int fd) {
    rs_api_call call = {.client = client->id, .tag = request->tag};
    if (request->type == RS_API_STATUS)
        server->handlers.on_status(server->handlers.context, &call);
    else if (request->type == RS_API_NAMES)
        rs_api_reply_names(server, &call);
    else if (request->type == RS_API_REGISTER && rs_api_may(server, client, &call, request))
        serve_register(server, client, &call, request);
    else if (!client->registered)
        rs_api_reply_error(server, &call, ROSTRUM_ERR_NOT_REGISTERED, "register with the application's id first");
    else if (request->type != RS_API_REGISTER && rs_api_may(server, client, &call, request))
        serve_registered(server, client, &call, request, fd);
    if (fd >= 0)
        close(fd);
}
