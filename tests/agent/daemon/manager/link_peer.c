#include "link_peer.h"

#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

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
    assert_in_range(*length, 1, RS_MANAGER_FRAME_MAX);
    *frame = malloc(*length);
    assert_non_null(*frame);
    if (read_all(peer->fd, *frame, *length))
        return true;
    free(*frame);
    return false;
}

link_frame link_frame_of(uint32_t call, const void *args) {
    link_frame frame;
    assert_int_equal(
        rs_thrift_encode(&rs_thrift_service_agent, call, args, RS_MANAGER_FRAME_MAX, &frame.data, &frame.len),
        RS_THRIFT_OK);
    return frame;
}

link_frame link_frame_welcome(const char *manager) {
    return link_frame_of(RS_THRIFT_AGENT_WELCOME, &(rs_thrift_agent_welcome){manager, 7});
}

link_frame link_frame_goodbye(const char *reason) {
    return link_frame_of(RS_THRIFT_AGENT_GOODBYE, &(rs_thrift_agent_goodbye){reason});
}

link_frame link_frame_response(const rs_thrift_path_response *response) {
    return link_frame_of(RS_THRIFT_AGENT_RESPONSE, &(rs_thrift_agent_response){*response});
}

link_frame link_frame_moved(const char *response_id, int32_t kind, const char *reason) {
    return link_frame_of(RS_THRIFT_AGENT_MOVED, &(rs_thrift_agent_moved){response_id, kind, reason});
}

link_frame link_frame_failed(const char *response_id, const char *reason) {
    return link_frame_of(RS_THRIFT_AGENT_FAILED, &(rs_thrift_agent_failed){response_id, reason});
}

link_frame link_frame_alive(void) {
    return link_frame_of(RS_THRIFT_AGENT_ALIVE, NULL);
}

link_frame link_frame_light(const char *response_id) {
    return link_frame_of(RS_THRIFT_AGENT_LIGHT, &(rs_thrift_agent_light){response_id});
}

link_frame link_frame_view(const rs_thrift_overlay_view *view) {
    return link_frame_of(RS_THRIFT_AGENT_VIEW, &(rs_thrift_agent_view){*view});
}

link_frame link_frame_group_view(const rs_thrift_group_peer *peers, uint32_t peer_count,
                                 const rs_thrift_group_view *views, uint32_t view_count) {
    const rs_thrift_agent_group_view args = {{peers, peer_count}, {views, view_count}};
    return link_frame_of(RS_THRIFT_AGENT_GROUP_VIEW, &args);
}

void link_granting(link_grant *grant, const char *request_id, const char *response_id) {
    static const char *const dark[] = {"h5"};
    grant->receivers[0] = (rs_thrift_server_address){"h3", "10.0.2.1", 7071, true, 1};
    grant->receivers[1] = (rs_thrift_server_address){"h5", "10.0.3.1", 7071, true, 2};
    grant->response = (rs_thrift_path_response){.request_id = request_id,
                                                .response_id = response_id,
                                                .decision = RS_THRIFT_DECISION_ACCEPTED,
                                                .reason = "",
                                                .has_accepted_size = true,
                                                .accepted_size = 64 << 20,
                                                .has_kind = true,
                                                .kind = RS_THRIFT_PATH_KIND_CIRCUIT,
                                                .group = "239.192.0.5",
                                                .has_data_port = true,
                                                .data_port = 7070,
                                                .has_reconfiguration_ns = true,
                                                .reconfiguration_ns = 70000000,
                                                .has_rate_bps = true,
                                                .rate_bps = 1000000000,
                                                .has_lease_ms = true,
                                                .lease_ms = 3000,
                                                .has_light_bound_ms = true,
                                                .light_bound_ms = 500,
                                                .has_receivers = true,
                                                .receivers = {grant->receivers, 2},
                                                .has_dark = true,
                                                .dark = {dark, 1}};
}

/* Decoded calls whose arguments a test holds. */
static rs_thrift_call held[16];

const void *link_call_decode(const uint8_t *frame, size_t length, const char *expected) {
    char text[RS_THRIFT_TEXT_SIZE];
    size_t i = 0;
    while (i < 15 && held[i].args)
        i++;
    if (!rs_thrift_decode(&rs_thrift_service_manager, frame, length, &held[i], text))
        fail_msg("the agent's call cannot be read: %s", text);
    if (held[i].call == rs_thrift_service_manager.count)
        fail_msg("the agent made a call that service Manager does not have");
    assert_string_equal(rs_thrift_service_manager.calls[held[i].call].name, expected);
    return held[i].args;
}

void link_args_free(const void *args) {
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++)
        if (held[i].args == args)
            rs_thrift_call_free(&held[i]);
}
