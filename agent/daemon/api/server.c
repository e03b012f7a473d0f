#include "daemon/api/internal.h"

#include "api/socket.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_PER_ROUND 16
#define MESSAGES_PER_ROUND 32 /* of one client, so that a busy one does not starve the others */
#define EVENTS_PER_ROUND 64
#define LISTENER_ID 0
#define FREE_BYTES ((uint64_t)8 << 20) /* per dispatch: about 1 ms */

void rs_api_log(rs_api_server *server, const char *format, ...) {
    if (!server->handlers.log)
        return;
    char words[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(words, sizeof words, format, args);
    va_end(args);
    server->handlers.log(server->handlers.context, words);
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
    server->epoll = server->listener = -1;
    server->read_deadline = RS_NEVER;
    server->config.max_clients += config->max_clients ? 0 : 256;
    server->config.max_pending += config->max_pending ? 0 : 1024;
    server->config.max_queued_bytes += config->max_queued_bytes ? 0 : (uint64_t)4 << 20;
    server->config.digest_algorithm = config->digest_algorithm ? config->digest_algorithm : RS_DIGEST_XXH3;
    server->path = strdup(config->socket_path ? config->socket_path : "");
    server->server_name = strdup(config->server_name ? config->server_name : "");
    server->version = strdup(config->version ? config->version : "");
    server->clients = calloc(server->config.max_clients, sizeof(rs_api_client *));
    if (!server->path || !server->server_name || !server->version || !server->clients) {
        rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "no memory for the application interface");
        rs_api_server_free(server);
        return NULL;
    }
    server->listener = rs_unix_listen(server->path, config->socket_mode ? config->socket_mode : 0660,
                                      config->has_group ? &config->group : NULL, error);
    if (server->listener < 0) {
        rs_api_server_free(server);
        return NULL;
    }
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll < 0 || !watch(server, EPOLL_CTL_ADD, server->listener, EPOLLIN, LISTENER_ID)) {
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
    if (server->epoll >= 0)
        close(server->epoll);
    free(server->clients);
    free(server->path);
    free(server->server_name);
    free(server->version);
    free(server);
}

int rs_api_server_fd(const rs_api_server *server) {
    return server->epoll;
}

rs_time rs_api_server_deadline(const rs_api_server *server) {
    if (server->work_count || server->store_work || server->reap)
        return 0;
    bool paused = server->pause.again != 0 && server->pause.again < server->read_deadline;
    return paused ? server->pause.again : server->read_deadline;
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
    uint64_t bytes = client->queued_bytes + message->length + sizeof(rs_api_outgoing);
    rs_api_outgoing *one = NULL;
    if (bytes > server->config.max_queued_bytes)
        kill_client(server, client, "disconnected: it does not read its answers");
    else if (!(one = malloc(sizeof *one + message->length)))
        kill_client(server, client, "disconnected: no memory for its answers");
    if (!one) {
        if (fd >= 0)
            close(fd);
        return;
    }
    one->next = NULL;
    one->fd = fd;
    one->length = message->length;
    memcpy(one->data, message->data, message->length);
    if (client->last)
        client->last->next = one;
    else
        client->first = one;
    client->last = one;
    client->queued_bytes = bytes;
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
    if (!client->first)
        number = rs_unix_send(client->fd, server->message.data, server->message.length, fd, true);
    if (client->first || number == EAGAIN || number == ENOBUFS) {
        bool was_empty = !client->first;
        enqueue(server, client, fd);
        if (was_empty && !client->dead)
            (void)watch(server, EPOLL_CTL_MOD, client->fd, EPOLLIN | EPOLLOUT, client->id);
        return;
    }
    if (number)
        kill_client(server, client, number == EPIPE || number == ECONNRESET ? "left" : strerror(number));
out:
    if (fd >= 0)
        close(fd);
}

static void flush(rs_api_server *server, rs_api_client *client) {
    while (client->first && !client->dead) {
        rs_api_outgoing *one = client->first;
        int number = rs_unix_send(client->fd, one->data, one->length, one->fd, true);
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
        rs_api_call call = {.client = client->id, .tag = server->request.tag};
        rs_api_reply_failure(server, &call, &error);
        if (!server->request.type)
            kill_client(server, client, "disconnected: it does not speak this interface");
    }
}

static void accept_clients(rs_api_server *server) {
    for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
        int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        char words[RS_ACCEPT_WORDS];
        if (fd < 0 && rs_accept_failed(&server->pause, errno, server->now, "the socket of applications", words)) {
            if (words[0])
                rs_api_log(server, "%s", words);
            (void)watch(server, EPOLL_CTL_MOD, server->listener, 0, LISTENER_ID);
        }
        if (fd < 0)
            return;
        rs_accept_worked(&server->pause);
        rs_api_client *client = server->client_count < server->config.max_clients ? calloc(1, sizeof *client) : NULL;
        if (!client) {
            rs_api_encode_error(&server->message, 0, ROSTRUM_ERR_LIMIT,
                                "the agent serves its maximum of clients already");
            (void)rs_unix_send(fd, server->message.data, server->message.length, -1, true);
            rs_api_log(server, "a client was turned away: %u are connected", server->client_count);
            close(fd);
            continue;
        }
        struct ucred credentials = {0};
        socklen_t length = sizeof credentials;
        (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length);
        client->id = ++server->next_client;
        client->fd = fd;
        client->pid = (int)credentials.pid;
        client->uid = (unsigned int)credentials.uid;
        if (!watch(server, EPOLL_CTL_ADD, fd, EPOLLIN, client->id)) {
            close(fd);
            free(client);
            continue;
        }
        server->clients[server->client_count++] = client;
    }
}

void rs_api_server_dispatch(rs_api_server *server, rs_time now) {
    struct epoll_event events[EVENTS_PER_ROUND];
    server->now = now;
    if (rs_accept_resumes(&server->pause, now))
        (void)watch(server, EPOLL_CTL_MOD, server->listener, EPOLLIN, LISTENER_ID);
    /* Before what is new: a file that is to be sent has its path asked for before its digest is begun. */
    if (server->work_count)
        rs_api_waits_work(server);
    int count = epoll_wait(server->epoll, events, EVENTS_PER_ROUND, 0);
    for (int i = 0; i < count; i++) {
        if (events[i].data.u64 == LISTENER_ID) {
            accept_clients(server);
            continue;
        }
        rs_api_client *client = rs_api_client_find(server, events[i].data.u64);
        if (client && (events[i].events & EPOLLOUT))
            flush(server, client);
        if (client && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
            serve_client(server, client);
    }
    rs_api_waits_expire(server);
    if (server->reap)
        reap_dead(server);
    if (server->store_work)
        server->store_work = rs_store_work(server->store, FREE_BYTES);
}

void rs_api_reply_ok(rs_api_server *server, const rs_api_call *call) {
    rs_api_begin(&server->message, RS_API_DONE, call->tag);
    rs_api_transmit(server, call->client, -1, false);
}

void rs_api_reply_error(rs_api_server *server, const rs_api_call *call, rostrum_code code, const char *format, ...) {
    char words[ROSTRUM_WORDS_MAX + 1];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(words, sizeof words, format, args);
    va_end(args);
    rs_api_send_events_end(server, call);
    rs_api_encode_error(&server->message, call->tag, code, words);
    rs_api_transmit(server, call->client, -1, false);
}

void rs_api_reply_failure(rs_api_server *server, const rs_api_call *call, const rs_error *error) {
    rs_api_reply_error(server, call, error->code, "%s", error->words);
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

/* An application's id is the right to its objects: only root, the agent's own user and the application see it. */
static void hide_app(const rs_api_client *asks, uint8_t app[16]) {
    bool may = asks && (asks->uid == 0 || asks->uid == (unsigned int)geteuid() ||
                        (asks->registered && memcmp(asks->app, app, sizeof asks->app) == 0));
    if (!may)
        memset(app, 0, sizeof asks->app);
}

static void object_row(const rs_object *object, rostrum_object *row) {
    *row = (rostrum_object){.data_id = object->id.data,
                            .state = object->phase == RS_OBJECT_WHOLE ? ROSTRUM_OBJECT_WHOLE : ROSTRUM_OBJECT_BUILDING,
                            .received = object->received,
                            .holds = object->holds,
                            .size = object->size,
                            .digest_algorithm = object->digest.algorithm,
                            .digest_length = object->digest.length};
    memcpy(row->app, object->id.app, sizeof row->app);
    memcpy(row->digest, object->digest.value, sizeof row->digest);
}

static void put_objects(rs_api_server *server, const rs_api_call *call) {
    const rs_api_client *asks = rs_api_client_find(server, call->client);
    rostrum_object rows[64]; /* always fit in one message */
    uint32_t cursor = 0, count;
    do {
        const rs_object *object;
        for (count = 0; count < sizeof rows / sizeof *rows && (object = rs_store_next(server->store, &cursor)); count++)
            object_row(object, &rows[count]);
        for (uint32_t i = 0; i < count; i++)
            hide_app(asks, rows[i].app);
        if (count) {
            (void)rs_api_encode_objects(&server->message, call->tag, rows, count);
            rs_api_transmit(server, call->client, -1, false);
        }
    } while (count);
}

void rs_api_reply_status(rs_api_server *server, const rs_api_call *call, const rostrum_status *status) {
    rostrum_status whole = *status;
    (void)snprintf(whole.server, sizeof whole.server, "%s", server->server_name);
    (void)snprintf(whole.version, sizeof whole.version, "%s", server->version);
    (void)snprintf(whole.store, sizeof whole.store, "%s", rs_store_directory(server->store));
    whole.boot_id = server->config.boot_id;
    whole.store_used = rs_store_used(server->store);
    whole.store_quota = rs_store_quota(server->store);
    whole.clients = server->client_count;
    for (uint32_t done = 0; done < status->transfer_count;) {
        rostrum_transfer rows[32];
        uint32_t left = status->transfer_count - done, count = left < 32 ? left : 32;
        memcpy(rows, status->transfers + done, count * sizeof *rows);
        for (uint32_t i = 0; i < count; i++)
            hide_app(rs_api_client_find(server, call->client), rows[i].app);
        done += rs_api_encode_transfers(&server->message, call->tag, rows, count);
        rs_api_transmit(server, call->client, -1, false);
    }
    for (uint32_t done = 0; done < status->group_count;) {
        done += rs_api_encode_groups(&server->message, call->tag, status->groups + done, status->group_count - done);
        rs_api_transmit(server, call->client, -1, false);
    }
    put_objects(server, call);
    rs_api_encode_state(&server->message, call->tag, &whole);
    rs_api_transmit(server, call->client, -1, false);
}
