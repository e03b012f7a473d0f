#include "world.h"

#include <sys/mman.h>
#include <unistd.h>

#include "daemon/log.h"

static void on_up(void *context, rs_peer peer) {
    (void)peer;
    ((end *)context)->ups++;
}

static void on_down(void *context, rs_peer peer, const char *cause) {
    (void)peer;
    end *e = context;
    e->downs++;
    snprintf(e->cause, sizeof e->cause, "%s", cause);
}

static void on_writable(void *context, rs_peer peer, bool writable) {
    (void)peer;
    end *e = context;
    e->writable += writable;
    e->unwritable += !writable;
}

static bool on_plain(void *context, rs_peer peer) {
    (void)peer;
    return !*((end *)context)->matters;
}

static bool on_message(void *context, rs_peer peer, const uint8_t *header, size_t header_length, const uint8_t *payload,
                       uint32_t payload_length) {
    end *e = context;
    rs_message message;
    assert_true(peer < e->peers.room);
    assert_true(rs_wire_decode(header, header_length, payload_length, &message));
    if (message.type == RS_MSG_PTCH_DATA) {
        assert_int_equal(message.ptch_data.sn, e->patches_in_order++);
        for (uint32_t i = 0; i < payload_length; i += 101)
            assert_int_equal(payload[i], (uint8_t)(message.ptch_data.sn % FRAGMENTS * 7 + i));
    }
    e->messages++;
    e->last_type = (uint8_t)message.type;
    e->payload_bytes += payload_length;
    return !e->reject;
}

void show(const world *w, end *e, const char *certificate) {
    char text[RS_TLS_TEXT];
    snprintf(e->shown[0], sizeof e->shown[0], "%s/%s.pem", w->folder, certificate);
    snprintf(e->shown[1], sizeof e->shown[1], "%s/%s.key", w->folder, certificate);
    snprintf(e->shown[2], sizeof e->shown[2], "%s/ca.pem", w->folder);
    const rs_tls_files files = {e->shown[0], e->shown[1], e->shown[2], true};
    e->identity = rs_tls_identity_new(&files, text);
    if (!e->identity)
        fail_msg("%s", text);
}

void open_end(world *w, end *e, const char *name, uint32_t address, uint64_t boot, rs_control_options options) {
    char error[RS_CONNECTION_TEXT];
    const rs_control_callbacks callbacks = {.context = e,
                                            .peer_up = on_up,
                                            .peer_down = on_down,
                                            .peer_writable = on_writable,
                                            .peer_is_plain = on_plain,
                                            .message = on_message};
    e->matters = &w->matters;
    e->address = address;
    options.loop = w->loop;
    options.peers = &e->peers;
    options.server = name;
    options.boot = boot;
    options.address = address;
    options.port = w->port;
    if (!options.max_connections)
        options.max_connections = 8;
    if (w->folder[0] && !e->identity)
        show(w, e, name);
    options.identity = e->identity;
    e->control = rs_control_new(&options, &callbacks, error);
    if (!e->control)
        fail_msg("%s", error);
}

void close_end(end *e) {
    rs_control_free(e->control);
    rs_tls_identity_free(e->identity);
    rs_peers_free(&e->peers);
    memset(e, 0, sizeof *e);
}

rs_peer know(end *e, const char *name, uint32_t address, uint16_t port) {
    rs_peer peer = rs_peers_number(&e->peers, name);
    assert_int_not_equal(peer, RS_NO_PEER);
    rs_peers_told(&e->peers, peer, address, port, 0);
    return peer;
}

void turn_both(world *w) {
    rs_time deadline = rs_loop_now(w->loop) + RS_SECOND;
    const end *ends[] = {&w->h1, &w->h2};
    for (int i = 0; i < 2; i++)
        if (ends[i]->control && rs_control_deadline(ends[i]->control) < deadline)
            deadline = rs_control_deadline(ends[i]->control);
    assert_true(rs_loop_turn(w->loop, deadline));
    for (int i = 0; i < 2; i++)
        if (ends[i]->control)
            rs_control_timeout(ends[i]->control);
}

int set_up(void **state) {
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    rs_log_set_level("error");
    w->loop = rs_loop_new();
    assert_non_null(w->loop);
    w->port = (uint16_t)(20000 + getpid() % 20000);
    w->object_fd = memfd_create("object", MFD_CLOEXEC);
    assert_int_equal(ftruncate(w->object_fd, FRAGMENT * FRAGMENTS), 0);
    w->object = mmap(NULL, FRAGMENT * FRAGMENTS, PROT_READ | PROT_WRITE, MAP_SHARED, w->object_fd, 0);
    assert_ptr_not_equal(w->object, MAP_FAILED);
    for (uint32_t sn = 0; sn < FRAGMENTS; sn++)
        for (uint32_t i = 0; i < FRAGMENT; i++)
            w->object[sn * FRAGMENT + i] = (uint8_t)(sn * 7 + i);
    *state = w;
    return 0;
}

int tear_down(void **state) {
    world *w = *state;
    close_end(&w->h1);
    close_end(&w->h2);
    munmap(w->object, FRAGMENT * FRAGMENTS);
    close(w->object_fd);
    rs_loop_free(w->loop);
    free(w);
    return 0;
}

void open_both(world *w) {
    open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){0});
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
}

bool send_message(end *e, rs_peer peer, rs_message message) {
    uint8_t bytes[RS_HEADER_MAX];
    size_t length = rs_wire_encode(&message, 0, bytes, sizeof bytes);
    assert_true(length > 0);
    return rs_control_send(e->control, peer, bytes, length, NULL);
}

bool send_patch(world *w, end *e, rs_peer peer, uint64_t sn) {
    uint8_t bytes[RS_HEADER_MAX];
    rs_message message = {.type = RS_MSG_PTCH_DATA, .ptch_data = {.sn = sn}};
    size_t length = rs_wire_encode(&message, FRAGMENT, bytes, sizeof bytes);
    uint64_t at = sn % FRAGMENTS * FRAGMENT;
    const rs_connection_payload payload = {.map = w->object + at, .fd = w->object_fd, .offset = at, .length = FRAGMENT};
    return rs_control_send(e->control, peer, bytes, length, &payload);
}
