/* One request of a client: what needs only the object store is done here, the rest goes to the daemon. */
#include "daemon/api/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

void rs_api_forget(rs_api_server *server, rs_api_client *client, bool answer) {
    (void)rs_api_waits_forget(server, client->id, answer);
    drop_created(server, client->id);
    client->registered = false;
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

/* Makes the file an object, whose digest `wait` takes. False, and the call is answered, if that cannot be. */
static bool add_object(rs_api_server *server, rs_api_wait *wait, const rs_api_call *call, int fd) {
    rs_error error;
    rs_object *object = rs_store_add(server->store, &wait->id, fd, 0, &error);
    if (!object) {
        rs_api_reply_failure(server, call, &error);
        rs_api_wait_end(server, wait, false);
        return false;
    }
    wait->object = object;
    wait->tree = rs_digest_tree_new(server->config.digest_algorithm, object->size);
    if (!wait->tree) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_NO_ROOM,
                           "the agent has no memory for the digest of object %" PRIu64, wait->id.data);
        rs_api_wait_end(server, wait, true);
        return false;
    }
    rs_digest_tree_all_present(wait->tree);
    return true;
}

static void serve_add(rs_api_server *server, rs_api_client *client, const rs_api_call *call, uint64_t data_id, int fd) {
    rs_object_id id = id_of(client, data_id);
    if (fd < 0) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_INVALID,
                           "add of object %" PRIu64 " came without a file descriptor", data_id);
        return;
    }
    rs_api_wait *wait = rs_api_wait_new(server, client, RS_WAIT_DIGEST, call, &id);
    if (wait)
        (void)add_object(server, wait, call, fd);
}

void rs_api_reply_object(rs_api_server *server, const rs_api_call *call, const rs_object *object) {
    rs_error error;
    int fd = rs_store_reader_fd(object, &error);
    if (fd < 0) {
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
    if (object && object->phase == RS_OBJECT_WHOLE) {
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
                              .receiver_count = request->receiver_count,
                              .receivers = request->receivers};
    server->handlers.on_send(server->handlers.context, &send);
}

/* The file beside the request becomes the object, and is sent while its digest is being taken. What cannot be begun
 * leaves nothing. */
static void serve_send_file(rs_api_server *server, rs_api_client *client, const rs_api_call *call,
                            const rs_api_request *request, int fd) {
    rs_object_id id = id_of(client, request->data_id);
    if ((request->flags & RS_API_SEND_EVENTS) && !rs_api_wait_new(server, client, RS_WAIT_SEND, call, &id))
        return;
    rs_api_wait *wait = rs_api_wait_new(server, NULL, RS_WAIT_DIGEST, call, &id);
    if (!wait || !add_object(server, wait, call, fd))
        return;
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
    if (object->phase != RS_OBJECT_WHOLE && object->phase != RS_OBJECT_DIGESTING) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_BUSY, "object %" PRIu64 " is still being received here",
                           request->data_id);
        return;
    }
    if ((request->flags & RS_API_SEND_EVENTS) && !rs_api_wait_new(server, client, RS_WAIT_SEND, call, &id))
        return;
    start_send(server, client, call, request, object, -1);
}

/* The daemon's own descriptor of the socket that came along; -1, and the call is answered, if there is none. */
static int stream_socket(rs_api_server *server, const rs_api_call *call, int fd) {
    int domain = 0, type = 0;
    socklen_t size = sizeof domain;
    bool there = server->handlers.on_stream_end && server->handlers.on_stream_receive;
    if (!there) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_UNAVAILABLE, "there are no streams here");
        return -1;
    }
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

static void serve_stream_send(rs_api_server *server, rs_api_client *client, const rs_api_call *call,
                              const rs_api_request *request, int fd) {
    rs_object_id id = id_of(client, request->data_id);
    if ((rostrum_protocol)(request->flags >> RS_API_SEND_PROTOCOL & 3) == ROSTRUM_PROTOCOL_REPUBLIC) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_INVALID,
                           "a stream goes by rdcm over a packet tree; republic needs to know an object's end");
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
                              .stream = stream_socket(server, call, fd)};
    if (take.stream >= 0)
        server->handlers.on_stream_receive(server->handlers.context, &take);
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

static void serve_delete(rs_api_server *server, rs_api_client *client, const rs_api_call *call, uint64_t data_id) {
    rs_error error;
    rs_object_id id = id_of(client, data_id);
    if (server->handlers.on_delete)
        server->handlers.on_delete(server->handlers.context, &id);
    if (!drop_unfinished(server, &id) && !rs_store_delete(server->store, &id, &error)) {
        rs_api_reply_failure(server, call, &error);
        return;
    }
    server->store_work = true;
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

static void serve_join(rs_api_server *server, const rs_api_call *call, const rs_api_request *request) {
    const rs_api_join join = {.call = *call,
                              .subscribe = request->flags & RS_API_JOIN_SUBSCRIBE,
                              .group = request->group,
                              .protocol = request->protocol,
                              .order = request->order,
                              .options = request->options};
    if (server->handlers.on_join)
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
        serve_join(server, call, request);
        break;
    case RS_API_STREAM_SEND:
        serve_stream_send(server, client, call, request, fd);
        break;
    case RS_API_STREAM_END:
        serve_stream_end(server, call, &id, request->number);
        break;
    case RS_API_STREAM_RECEIVE:
        serve_stream_receive(server, client, call, request, fd);
        break;
    case RS_API_CANCEL:
        server->handlers.on_cancel(server->handlers.context, call, &id);
        break;
    }
}

void rs_api_serve(rs_api_server *server, rs_api_client *client, const rs_api_request *request, int fd) {
    rs_api_call call = {.client = client->id, .tag = request->tag};
    if (request->type == RS_API_REGISTER)
        serve_register(server, client, &call, request);
    else if (request->type == RS_API_STATUS)
        server->handlers.on_status(server->handlers.context, &call);
    else if (!client->registered)
        rs_api_reply_error(server, &call, ROSTRUM_ERR_NOT_REGISTERED, "register with the application's id first");
    else
        serve_registered(server, client, &call, request, fd);
    if (fd >= 0)
        close(fd);
}
