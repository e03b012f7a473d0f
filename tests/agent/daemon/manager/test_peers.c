/* client.c, manager/frames.c against managers that send garbage, stall, or do not read. */
#include "link_fixture.h"

static void garbage__closes_with_a_reason_and_reconnects(void **state) {
    fixture *f = *state;
    static const struct {
        const char *bytes;
        size_t length;
        const char *text;
    } cases[] = {
        {"HTTP/1.1 400 Bad Request\r\n", 26, "Thrift port?"},
        {"\0\0\0\0", 4, "Thrift port?"},
        {"\xff\xff\xff\xff", 4, "Thrift port?"},
        {"\0\x20\0\x01", 4, "Thrift port?"},
        {"\0\0\0\x04\x80\x01\0\x04", 8, "frame ends early"},
        {"\0\0\0\x08\x80\x01\0\x01\0\0\0\0", 12, "not a oneway call"},
    };
    come_up(f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned downs = f->downs;
        link_peer_send(&f->peer, cases[i].bytes, cases[i].length);
        turn_until(f, f->downs > downs);
        if (!strstr(f->text, cases[i].text))
            fail_msg("case %zu: %s", i, f->text);
        come_up(f);
    }
    assert_int_equal(rs_manager_stats_get(f->link).disconnects, sizeof cases / sizeof cases[0]);
}

static void frame__in_single_bytes_is_understood(void **state) {
    fixture *f = *state;
    come_up(f);
    ask(f, "r1");
    link_grant given;
    link_granting(&given, "r1", "p1");
    link_frame frame = link_frame_response(&given.response);
    for (size_t i = 0; i < frame.len; i++) {
        assert_int_equal(f->responses, 0);
        uint64_t before = rs_manager_stats_get(f->link).bytes_in;
        link_peer_send(&f->peer, frame.data + i, 1);
        turn_until(f, rs_manager_stats_get(f->link).bytes_in == before + 1);
    }
    free(frame.data);
    assert_int_equal(f->responses, 1);
}

static void frame__never_finished_loses_the_connection(void **state) {
    fixture *f = *state;
    come_up(f);
    uint64_t before = rs_manager_stats_get(f->link).bytes_in;
    link_peer_send(&f->peer, "\0\0\x10\0half", 8);
    turn_until(f, rs_manager_stats_get(f->link).bytes_in == before + 8);
    for (int i = 0; i < 20 && f->downs == 0; i++)
        skip_to_deadline(f);
    assert_non_null(strstr(f->text, "stopped inside a frame"));
}

static void many_frames__at_once_are_all_handled(void **state) {
    fixture *f = *state;
    come_up(f);
    for (unsigned i = 0; i < 500; i++)
        send_frame(f, link_frame_failed("p1", "gone"));
    turn_until(f, f->failures == 500);
}

static rs_status send_large_report(fixture *f, char *cause) {
    static rs_manager_receiver_report receivers[200];
    for (size_t i = 0; i < 200; i++)
        receivers[i] = (rs_manager_receiver_report){"h3", "failed", cause, 0, 0, 0, 0};
    const rs_manager_report_params report = {.request_id = "r1",
                                             .response_id = "p1",
                                             .phase = "patching",
                                             .cause = "",
                                             .receivers = receivers,
                                             .receiver_count = 200};
    return rs_manager_report(f->link, f->now, &report);
}

/* A manager that reads nothing: memory stays bounded, the connection goes. */
static void output__nobody_takes_is_bounded(void **state) {
    fixture *f = *state;
    char cause[4000];
    memset(cause, 'x', sizeof cause);
    cause[sizeof cause - 1] = '\0';
    come_up(f);
    for (int i = 0; i < 100 && rs_manager_up(f->link); i++)
        assert_int_equal(send_large_report(f, cause), RS_OK);
    assert_false(rs_manager_up(f->link));
    assert_int_equal(send_large_report(f, cause), RS_ERR_STATE);
    turn_until(f, f->downs == 1);
    assert_non_null(strstr(f->text, "takes nothing: 8 MiB wait"));
    come_up(f);
}

static void output__stalled_loses_the_connection(void **state) {
    fixture *f = *state;
    char cause[4000];
    memset(cause, 'x', sizeof cause);
    cause[sizeof cause - 1] = '\0';
    come_up(f);
    while (!(f->wants & RS_MANAGER_WRITE)) /* until the socket takes no more */
        assert_int_equal(send_large_report(f, cause), RS_OK);
    for (int i = 0; i < 4; i++) /* and the kernel may find a little more room yet */
        assert_int_equal(send_large_report(f, cause), RS_OK);
    for (int i = 0; i < 20 && f->downs == 0; i++)
        skip_to_deadline(f);
    assert_non_null(strstr(f->text, "took no output for 5.0 s"));
}

static void report__too_long_for_a_frame_is_refused(void **state) {
    fixture *f = *state;
    char cause[4000];
    memset(cause, 'x', sizeof cause);
    cause[sizeof cause - 1] = '\0';
    static rs_manager_receiver_report receivers[RS_MANAGER_RECEIVERS_MAX];
    for (size_t i = 0; i < RS_MANAGER_RECEIVERS_MAX; i++)
        receivers[i] = (rs_manager_receiver_report){"h3", "failed", cause, 0, 0, 0, 0};
    const rs_manager_report_params report = {.request_id = "r1",
                                             .response_id = "p1",
                                             .phase = "done",
                                             .cause = "",
                                             .receivers = receivers,
                                             .receiver_count = RS_MANAGER_RECEIVERS_MAX};
    assert_int_equal(rs_manager_report(f->link, f->now, &report), RS_ERR_LIMIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        with_link(garbage__closes_with_a_reason_and_reconnects),
        with_link(frame__in_single_bytes_is_understood),
        with_link(frame__never_finished_loses_the_connection),
        with_link(many_frames__at_once_are_all_handled),
        with_link(output__nobody_takes_is_bounded),
        with_link(output__stalled_loses_the_connection),
        with_link(report__too_long_for_a_frame_is_refused),
    };
    return cmocka_run_group_tests_name("link_peers", tests, NULL, NULL);
}
