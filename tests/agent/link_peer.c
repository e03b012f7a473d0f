#include "link_peer.h"

#include "daemon/link_gobject.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <thrift/c_glib/protocol/thrift_binary_protocol.h>
#include <thrift/c_glib/transport/thrift_memory_buffer.h>

enum { WAIT_MS = 10000 };

void link_peer_listen(link_peer *peer, uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int on = 1;
    peer->fd = -1;
    peer->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(peer->listener >= 0);
    assert_int_equal(setsockopt(peer->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(peer->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(peer->listener, 4), 0);
    assert_int_equal(getsockname(peer->listener, (struct sockaddr *)&address, &size), 0);
    peer->port = ntohs(address.sin_port);
}

static void wait_for(int fd, short events) {
    struct pollfd p = {.fd = fd, .events = events};
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
}

void link_peer_accept(link_peer *peer) {
    link_peer_hang_up(peer);
    wait_for(peer->listener, POLLIN);
    peer->fd = accept(peer->listener, NULL, NULL);
    assert_true(peer->fd >= 0);
}

void link_peer_hang_up(link_peer *peer) {
    if (peer->fd >= 0)
        close(peer->fd);
    peer->fd = -1;
}

void link_peer_close(link_peer *peer) {
    link_peer_hang_up(peer);
    if (peer->listener >= 0)
        close(peer->listener);
    peer->listener = -1;
}

void link_peer_send(link_peer *peer, const void *bytes, size_t length) {
    for (size_t sent = 0; sent < length;) {
        wait_for(peer->fd, POLLOUT);
        ssize_t n = send(peer->fd, (const uint8_t *)bytes + sent, length - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        assert_true(n > 0);
        sent += (size_t)n;
    }
}

static bool read_all(int fd, uint8_t *out, size_t length) {
    for (size_t got = 0; got < length;) {
        wait_for(fd, POLLIN);
        ssize_t n = recv(fd, out + got, length - got, 0);
        if (n <= 0)
            return false;
        got += (size_t)n;
    }
    return true;
}

bool link_peer_read(link_peer *peer, uint8_t **frame, size_t *length) {
    uint8_t prefix[4];
    if (!read_all(peer->fd, prefix, 4))
        return false;
    *length = (size_t)prefix[0] << 24 | (size_t)prefix[1] << 16 | (size_t)prefix[2] << 8 | prefix[3];
    assert_in_range(*length, 1, RS_LINK_FRAME_MAX);
    *frame = malloc(*length);
    assert_non_null(*frame);
    if (read_all(peer->fd, *frame, *length))
        return true;
    free(*frame);
    return false;
}

/* An Agent client that writes into memory. */
typedef struct {
    ThriftMemoryBuffer *buffer;
    ThriftProtocol *protocol;
    rostrumAgentIf *agent;
} writer;

static writer writer_open(void) {
    rs_link_gobject_repair();
    rs_link_gobject_repair_class(ROSTRUM_TYPE_AGENT_CLIENT);
    writer w;
    w.buffer = g_object_new(THRIFT_TYPE_MEMORY_BUFFER, "buf_size", 1u << 20, NULL);
    w.protocol = g_object_new(THRIFT_TYPE_BINARY_PROTOCOL, "transport", w.buffer, NULL);
    w.agent = ROSTRUM_AGENT_IF(
        g_object_new(ROSTRUM_TYPE_AGENT_CLIENT, "input_protocol", w.protocol, "output_protocol", w.protocol, NULL));
    return w;
}

static GByteArray *writer_close(writer *w, gboolean written) {
    assert_true(written);
    uint32_t prefix = htonl(w->buffer->buf->len);
    GByteArray *frame = g_byte_array_new();
    g_byte_array_append(frame, (const guint8 *)&prefix, 4);
    g_byte_array_append(frame, w->buffer->buf->data, w->buffer->buf->len);
    g_object_unref(w->agent);
    g_object_unref(w->protocol);
    g_object_unref(w->buffer);
    return frame;
}

GByteArray *link_frame_welcome(const char *manager) {
    writer w = writer_open();
    return writer_close(&w, rostrum_agent_client_send_welcome(w.agent, manager, 7, NULL));
}

GByteArray *link_frame_goodbye(const char *reason) {
    writer w = writer_open();
    return writer_close(&w, rostrum_agent_client_send_goodbye(w.agent, reason, NULL));
}

GByteArray *link_frame_response(const rostrumPathResponse *response) {
    writer w = writer_open();
    return writer_close(&w, rostrum_agent_client_send_response(w.agent, response, NULL));
}

GByteArray *link_frame_moved(const char *response_id, rostrumPathKind kind, const char *reason) {
    writer w = writer_open();
    return writer_close(&w, rostrum_agent_client_send_moved(w.agent, response_id, kind, reason, NULL));
}

GByteArray *link_frame_failed(const char *response_id, const char *reason) {
    writer w = writer_open();
    return writer_close(&w, rostrum_agent_client_send_failed(w.agent, response_id, reason, NULL));
}

GByteArray *link_frame_light(const char *response_id) {
    writer w = writer_open();
    return writer_close(&w, rostrum_agent_client_send_light(w.agent, response_id, NULL));
}

GByteArray *link_frame_view(const rostrumOverlayView *view) {
    writer w = writer_open();
    return writer_close(&w, rostrum_agent_client_send_view(w.agent, view, NULL));
}

GByteArray *link_frame_group_view(const GPtrArray *peers, const GPtrArray *views) {
    writer w = writer_open();
    return writer_close(&w, rostrum_agent_client_send_group_view(w.agent, peers, views, NULL));
}

static rostrumServerAddress *address_of(const char *server, const char *address) {
    rostrumServerAddress *object = g_object_new(ROSTRUM_TYPE_SERVER_ADDRESS, NULL);
    object->server = g_strdup(server);
    object->address = g_strdup(address);
    object->control_port = 7071;
    return object;
}

rostrumPathResponse *link_granting(const char *request_id, const char *response_id) {
    rostrumPathResponse *r = g_object_new(ROSTRUM_TYPE_PATH_RESPONSE, NULL);
    r->request_id = g_strdup(request_id);
    r->response_id = g_strdup(response_id);
    r->decision = ROSTRUM_DECISION_ACCEPTED;
    r->reason = g_strdup("");
    r->accepted_size = 64 << 20;
    r->kind = ROSTRUM_PATH_KIND_CIRCUIT;
    r->group = g_strdup("239.192.0.5");
    r->data_port = 7070;
    r->reconfiguration_ns = 70000000;
    r->rate_bps = 1000000000;
    r->lease_ms = 3000;
    r->light_bound_ms = 500;
    r->__isset_accepted_size = r->__isset_kind = r->__isset_group = r->__isset_data_port = TRUE;
    r->__isset_reconfiguration_ns = r->__isset_rate_bps = r->__isset_lease_ms = r->__isset_light_bound_ms = TRUE;
    g_ptr_array_add(r->receivers, address_of("h3", "10.0.2.1"));
    g_ptr_array_add(r->receivers, address_of("h5", "10.0.3.1"));
    r->__isset_receivers = TRUE;
    g_ptr_array_add(r->dark, g_strdup("h5"));
    r->__isset_dark = TRUE;
    return r;
}

static GType args_of(const char *name) {
    struct {
        const char *name;
        GType type;
    } known[] = {
        {"hello", ROSTRUM_TYPE_MANAGER_HELLO_ARGS},
        {"request", ROSTRUM_TYPE_MANAGER_REQUEST_ARGS},
        {"release", ROSTRUM_TYPE_MANAGER_RELEASE_ARGS},
        {"cancel", ROSTRUM_TYPE_MANAGER_CANCEL_ARGS},
        {"keepalive", ROSTRUM_TYPE_MANAGER_KEEPALIVE_ARGS},
        {"no_light", ROSTRUM_TYPE_MANAGER_NO_LIGHT_ARGS},
        {"report", ROSTRUM_TYPE_MANAGER_REPORT_ARGS},
        {"view_used", ROSTRUM_TYPE_MANAGER_VIEW_USED_ARGS},
        {"failure", ROSTRUM_TYPE_MANAGER_FAILURE_ARGS},
        {"join_group", ROSTRUM_TYPE_MANAGER_JOIN_GROUP_ARGS},
        {"leave_group", ROSTRUM_TYPE_MANAGER_LEAVE_GROUP_ARGS},
    };
    GType found = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0)
            found = known[i].type;
    if (found) {
        rs_link_gobject_repair_class(found);
        return found;
    }
    fail_msg("the agent called %s, which service Manager does not have", name);
    return 0;
}

char *link_call_decode(const uint8_t *frame, size_t length, ThriftStruct **args) {
    ThriftMemoryBuffer *buffer = g_object_new(THRIFT_TYPE_MEMORY_BUFFER, "buf_size", 1u << 20, NULL);
    g_byte_array_append(buffer->buf, frame, (guint)length);
    ThriftProtocol *protocol = g_object_new(THRIFT_TYPE_BINARY_PROTOCOL, "transport", buffer, NULL);
    gchar *name = NULL;
    ThriftMessageType type;
    gint32 sequence;
    assert_true(thrift_protocol_read_message_begin(protocol, &name, &type, &sequence, NULL) >= 0);
    assert_int_equal(type, T_ONEWAY);
    *args = g_object_new(args_of(name), NULL);
    assert_true(thrift_struct_read(*args, protocol, NULL) >= 0);
    assert_int_equal(buffer->buf->len, 0);
    g_object_unref(protocol);
    g_object_unref(buffer);
    return name;
}
