#include "link_fixture.h"
#include "core/ricochet/ricochet.h"

#include <poll.h>

static void on_watch(void *context, int fd, unsigned wants) {
    ((fixture *)context)->fd = fd;
    ((fixture *)context)->wants = wants;
}

static void on_state(void *context, bool up, const char *text) {
    fixture *f = context;
    up ? f->ups++ : f->downs++;
    snprintf(f->text, sizeof f->text, "%s", text);
}

static void on_silent(void *context, bool silent, const char *text) {
    fixture *f = context;
    silent ? f->silences++ : f->answers++;
    snprintf(f->text, sizeof f->text, "%s", text);
}

static void on_response(void *context, const rs_manager_response *response) {
    fixture *f = context;
    f->responses++;
    f->decision = response->decision;
    f->accepted_size = response->accepted_size;
    snprintf(f->id, sizeof f->id, "%s", response->request_id);
    snprintf(f->reason, sizeof f->reason, "%s", response->reason);
}

static void on_moved(void *context, const char *response_id, rs_path_kind kind, const char *reason) {
    fixture *f = context;
    f->moves++;
    f->kind = kind;
    snprintf(f->id, sizeof f->id, "%s", response_id);
    snprintf(f->reason, sizeof f->reason, "%s", reason);
}

static void on_failed(void *context, const char *response_id, const char *reason) {
    fixture *f = context;
    f->failures++;
    snprintf(f->id, sizeof f->id, "%s", response_id);
    snprintf(f->reason, sizeof f->reason, "%s", reason);
}

static void on_checked(void *context) {
    fixture *f = context;
    f->confirmed++;
}

static void on_light(void *context, const char *response_id) {
    fixture *f = context;
    f->lights++;
    snprintf(f->id, sizeof f->id, "%s", response_id);
}

static void on_goodbye(void *context, const char *reason) {
    fixture *f = context;
    f->goodbyes++;
    snprintf(f->reason, sizeof f->reason, "%s", reason);
}

static bool live_path(void *context, uint32_t index, rs_manager_live_path *out) {
    fixture *f = context;
    if (index >= f->lives)
        return false;
    *out = f->live[index];
    return true;
}

static int set_up(void **state, bool two, const rs_tls_files *tls) {
    fixture *f = calloc(1, sizeof *f);
    if (!f)
        return -1;
    f->fd = -1;
    f->now = 1000 * MS;
    link_peer_listen(&f->peer, 0);
    static const rs_group_engine *const engines[] = {&rs_group_engine_ricochet};
    rs_manager_options options = {.group_engines = engines,
                                  .group_engine_count = 1,
                                  .manager_address = "127.0.0.1",
                                  .manager_port = f->peer.port,
                                  .server = "h1",
                                  .boot_id = 0xfeedfacecafebeef,
                                  .control_port = 7071,
                                  .token = "a token of h1's",
                                  .software = "0.1.0",
                                  .request_hold = 3000 * MS,
                                  .wants_light = true};
    if (tls)
        options.tls = *tls;
    if (two) {
        link_peer_listen(&f->other, 0);
        options.standbys[0] = (rs_manager_endpoint){0x7f000001, f->other.port};
        options.standby_count = 1;
    }
    const rs_manager_callbacks callbacks = {.context = f,
                                            .watch = on_watch,
                                            .on_state = on_state,
                                            .on_silent = on_silent,
                                            .on_response = on_response,
                                            .on_moved = on_moved,
                                            .on_failed = on_failed,
                                            .on_light = on_light,
                                            .on_checked = on_checked,
                                            .on_goodbye = on_goodbye,
                                            .live_path = live_path};
    char text[160];
    f->link = rs_manager_new(&options, &callbacks, text, sizeof text);
    *state = f;
    return f->link ? 0 : -1;
}

int link_fixture_setup(void **state) {
    return set_up(state, false, NULL);
}

int link_fixture_setup_two(void **state) {
    return set_up(state, true, NULL);
}

int link_fixture_setup_tls(void **state, const rs_tls_files *tls) {
    return set_up(state, false, tls);
}

int link_fixture_teardown(void **state) {
    fixture *f = *state;
    rs_manager_free(f->link);
    assert_int_equal(f->fd, -1);
    link_peer_close(&f->peer);
    if (f->other.port)
        link_peer_close(&f->other);
    free(f);
    return 0;
}

void turn(fixture *f) {
    struct pollfd p = {
        .fd = f->fd,
        .events = (short)((f->wants & RS_MANAGER_READ ? POLLIN : 0) | (f->wants & RS_MANAGER_WRITE ? POLLOUT : 0))};
    if (f->fd >= 0 && poll(&p, 1, 100) == 1) {
        unsigned ready = 0;
        if (p.revents & (POLLIN | POLLERR | POLLHUP))
            ready |= RS_MANAGER_READ;
        if (p.revents & (POLLOUT | POLLERR | POLLHUP))
            ready |= RS_MANAGER_WRITE;
        rs_manager_on_ready(f->link, f->now, ready);
    }
    if (rs_manager_deadline(f->link) <= f->now)
        rs_manager_timeout(f->link, f->now);
}

void skip_to_deadline(fixture *f) {
    rs_time deadline = rs_manager_deadline(f->link);
    assert_true(deadline != RS_NEVER);
    if (deadline > f->now)
        f->now = deadline;
    rs_manager_timeout(f->link, f->now);
}

const void *expect_call(fixture *f, const char *expected) {
    uint8_t *frame;
    size_t length;
    assert_true(link_peer_read(&f->peer, &frame, &length));
    const void *args = link_call_decode(frame, length, expected);
    free(frame);
    return args;
}

void send_frame(fixture *f, link_frame frame) {
    link_peer_send(&f->peer, frame.data, frame.len);
    free(frame.data);
}

void grant(fixture *f, const char *request_id, const char *response_id) {
    link_grant given;
    link_granting(&given, request_id, response_id);
    send_frame(f, link_frame_response(&given.response));
}

void respond(fixture *f, const char *request_id, int32_t decision, const char *reason) {
    const rs_thrift_path_response response = {
        .request_id = request_id, .response_id = "", .decision = decision, .reason = reason};
    send_frame(f, link_frame_response(&response));
}

void greet(fixture *f) {
    turn_until(f, f->fd >= 0);
    link_peer_accept(&f->peer);
    turn_until(f, f->wants & RS_MANAGER_READ);
    link_args_free(expect_call(f, "hello"));
}

void come_up(fixture *f) {
    unsigned ups = f->ups;
    rs_manager_start(f->link, f->now);
    if (f->fd < 0)
        skip_to_deadline(f);
    greet(f);
    send_frame(f, link_frame_welcome("m"));
    turn_until(f, f->ups > ups);
}

rs_status ask(fixture *f, const char *id) {
    static const char *const receivers[] = {"h3", "h5"};
    const rs_manager_request_params request = {.request_id = id,
                                               .object = {.app = {1, 2, 3}, .data = 42},
                                               .data_size = 1000,
                                               .remaining_size = 600,
                                               .receivers = receivers,
                                               .receiver_count = 2,
                                               .wait_ms = 250,
                                               .splits = true};
    return rs_manager_request(f->link, f->now, &request, f->text, sizeof f->text);
}
