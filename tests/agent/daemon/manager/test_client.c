/* client.c, pending.c: what a user of the link sees with a well-behaved manager, and without one. */
#include "link_fixture.h"

/* ---- coming up ---- */

static void start__says_hello_with_the_paths_held(void **state) {
    fixture *f = *state;
    static const char *const receivers[] = {"h3"};
    f->live[0] = (rs_manager_live_path){"r0", "p0", 0xefc00001, RS_PATH_PACKET, receivers, 1, 500, RS_PROTOCOL_WAN};
    f->lives = 1;
    rs_manager_start(f->link, f->now);
    link_peer_accept(&f->peer);
    turn_until(f, f->wants & RS_MANAGER_READ);
    const rs_thrift_manager_hello *hello = expect_call(f, "hello");
    assert_string_equal(hello->info.server, "h1");
    assert_int_equal(hello->info.version, 1);
    assert_int_equal((uint64_t)hello->info.boot_id, 0xfeedfacecafebeef);
    assert_int_equal(hello->info.control_port, 7071);
    assert_true(hello->info.has_wants_light && hello->info.wants_light);
    assert_string_equal(hello->info.token, "a token of h1's");
    assert_string_equal(hello->info.software, "0.1.0");
    assert_true(hello->info.has_knows_probes && hello->info.knows_probes);
    const char *const *protocols = hello->info.protocols.items;
    assert_int_equal(hello->info.protocols.count, 3);
    assert_string_equal(protocols[0], "republic");
    assert_string_equal(protocols[1], "rdcm");
    assert_string_equal(protocols[2], "wan");
    assert_int_equal(hello->info.group_engines.count, 1);
    const rs_thrift_engine *engine = hello->info.group_engines.items;
    const rs_thrift_engine_option *option = engine->options.items;
    for (uint32_t i = 0; i < engine->options.count; i++) /* the manager leaves it out, as this agent does */
        assert_int_equal(option[i].has_later && option[i].later, strcmp(option[i].name, "flush") == 0);
    assert_int_equal(hello->info.live_paths.count, 1);
    const rs_thrift_live_path *path = hello->info.live_paths.items;
    assert_string_equal(path->group, "239.192.0.1");
    assert_string_equal(*(const char *const *)path->receivers.items, "h3");
    assert_int_equal(path->accepted_size, 500);
    assert_true(path->has_protocol && path->protocol == RS_THRIFT_PROTOCOL_WAN);
    link_args_free(hello);
    assert_false(rs_manager_up(f->link));
    send_frame(f, link_frame_welcome("m"));
    turn_until(f, f->ups == 1);
    assert_true(rs_manager_up(f->link));
    assert_int_equal(f->downs, 0);
}

static void start__without_a_manager_says_so_and_keeps_trying(void **state) {
    fixture *f = *state;
    link_peer_close(&f->peer);
    rs_manager_start(f->link, f->now);
    turn_until(f, f->downs == 1);
    assert_non_null(strstr(f->text, "Connection refused"));
    rs_time last = f->now, longest = 0;
    for (int i = 0; i < 12; i++) {
        skip_to_deadline(f); /* the next attempt */
        longest = f->now - last > longest ? f->now - last : longest;
        assert_true(f->now - last <= 3000 * MS);
        last = f->now;
        turn_until(f, f->fd < 0);
    }
    assert_true(longest >= 1000 * MS); /* the pauses grow */
    assert_int_equal(f->downs, 1);     /* told once */
    char text[256];
    rs_manager_describe(f->link, f->now, text, sizeof text);
    assert_non_null(strstr(text, "unreachable for"));
    link_peer_listen(&f->peer, f->peer.port);
    come_up(f);
}

static void swap_managers(fixture *f) {
    link_peer other = f->other;
    f->other = f->peer;
    f->peer = other;
}

static void start__goes_to_the_manager_that_leads(void **state) {
    fixture *f = *state;
    link_peer_close(&f->peer); /* stands by: nobody listens there */
    rs_manager_start(f->link, f->now);
    turn_until(f, f->downs == 1);
    swap_managers(f);
    come_up(f); /* at the next one */
    rs_time lost = f->now;
    assert_int_equal(ask(f, "r1"), RS_OK);
    link_peer_close(&f->peer); /* it dies, and the first one leads */
    turn_until(f, f->fd < 0);
    swap_managers(f);
    link_peer_listen(&f->peer, f->peer.port);
    come_up(f);
    assert_true(f->now - lost < 1000 * MS);
    const void *request = expect_call(f, "request"); /* repeated to the new leader */
    assert_non_null(request);
    link_args_free(request);
}

static void keepalive__without_an_answer_the_next_manager(void **state) {
    fixture *f = *state;
    come_up(f);
    for (unsigned sent = 0; f->downs == 0; sent++) { /* the manager hangs: its socket takes what comes */
        assert_true(sent <= 4);
        skip_to_deadline(f);
    }
    assert_non_null(strstr(f->text, "answered none of 3 keepalives"));
    swap_managers(f);
    come_up(f);
}

/* Its socket takes what comes: the connection stays, and who waits for a path is told that nobody answers. */
static void keepalive__without_an_answer_the_manager_is_silent(void **state) {
    fixture *f = *state;
    char text[320];
    come_up(f);
    rs_time asked = rs_manager_deadline(f->link);
    skip_to_deadline(f);
    assert_true(rs_manager_answers(f->link));
    skip_to_deadline(f);
    assert_int_equal(f->now, asked + 1000 * MS);
    assert_int_equal(f->silences, 1);
    assert_non_null(strstr(f->text, "has not answered for 1.0 s"));
    assert_true(rs_manager_up(f->link) && !rs_manager_answers(f->link));
    for (unsigned i = 0; i < 8; i++)
        skip_to_deadline(f);
    assert_int_equal(f->silences, 1); /* told once */
    assert_int_equal(f->downs, 0);
    rs_manager_describe(f->link, f->now, text, sizeof text);
    assert_non_null(strstr(text, "is connected and has not answered for"));
    send_frame(f, link_frame_alive());
    turn_until(f, f->answers == 1);
    assert_true(rs_manager_answers(f->link));
    assert_non_null(strstr(f->text, "answers again"));
    for (unsigned i = 0; i < 8; i++) { /* heard in time: nobody is told */
        skip_to_deadline(f);
        send_frame(f, link_frame_alive());
        uint64_t heard = rs_manager_stats_get(f->link).frames_in;
        turn_until(f, rs_manager_stats_get(f->link).frames_in > heard);
    }
    assert_int_equal(f->silences + f->answers, 2);
}

static void start__gives_up_a_manager_that_does_not_welcome(void **state) {
    fixture *f = *state;
    rs_manager_start(f->link, f->now);
    greet(f);
    skip_to_deadline(f);
    assert_int_equal(f->downs, 1);
    assert_non_null(strstr(f->text, "no welcome in 2.0 s"));
    come_up(f);
}

/* ---- requests ---- */

static void request__is_answered_queued_then_accepted(void **state) {
    fixture *f = *state;
    come_up(f);
    assert_int_equal(ask(f, "r1"), RS_OK);
    const rs_thrift_manager_request *args = expect_call(f, "request");
    assert_string_equal(args->request.request_id, "r1");
    assert_string_equal(args->request.sender, "h1");
    assert_int_equal(args->request.app_id.length, 16);
    assert_int_equal(args->request.data_id, 42);
    assert_int_equal(args->request.remaining_size, 600);
    assert_int_equal(args->request.receivers.count, 2);
    assert_true(args->request.has_wait_ms && args->request.wait_ms == 250);
    assert_false(args->request.has_deadline_ms);
    assert_true(args->request.has_splits && args->request.splits);
    link_args_free(args);
    respond(f, "r1", RS_THRIFT_DECISION_QUEUED, "no splitter free");
    turn_until(f, f->responses == 1);
    assert_int_equal(f->decision, RS_MANAGER_QUEUED);
    assert_string_equal(f->reason, "no splitter free");
    assert_int_equal(ask(f, "r1"), RS_ERR_EXISTS);
    grant(f, "r1", "p1");
    turn_until(f, f->responses == 2);
    assert_int_equal(f->decision, RS_MANAGER_ACCEPTED);
    assert_int_equal(f->accepted_size, 64 << 20);
    assert_int_equal(rs_manager_stats_get(f->link).requests_pending, 0);
}

static void request__while_the_manager_is_away_waits_for_it(void **state) {
    fixture *f = *state;
    assert_int_equal(ask(f, "r0"), RS_ERR_STATE); /* not started */
    come_up(f);
    link_peer_hang_up(&f->peer);
    turn_until(f, f->downs == 1);
    assert_int_equal(ask(f, "r1"), RS_OK);
    assert_int_equal(ask(f, "r2"), RS_OK);
    assert_int_equal(rs_manager_cancel(f->link, f->now, "r2"), RS_OK); /* its owner does not wait any longer */
    assert_int_equal(f->responses, 0);
    come_up(f);
    link_args_free(expect_call(f, "cancel"));
    const rs_thrift_manager_request *args = expect_call(f, "request");
    assert_string_equal(args->request.request_id, "r1");
    link_args_free(args);
    grant(f, "r1", "p1");
    turn_until(f, f->responses == 1);
    assert_int_equal(f->decision, RS_MANAGER_ACCEPTED);
}

/* After a pause of its own an agent asks whether its paths are still its own. What was said of them before comes first,
 * and answers to earlier keepalives do not count. */
static void confirm__is_answered_after_all_that_was_said_before(void **state) {
    fixture *f = *state;
    come_up(f);
    rs_manager_timeout(f->link, f->now += 5000 * MS / 4); /* a keepalive, whose answer is still to come */
    rs_manager_confirm(f->link, f->now);
    link_args_free(expect_call(f, "keepalive"));
    link_args_free(expect_call(f, "keepalive"));
    send_frame(f, link_frame_alive());
    send_frame(f, link_frame_failed("p1", "its agent was silent"));
    turn_until(f, f->failures == 1);
    assert_int_equal(f->confirmed, 0);
    send_frame(f, link_frame_alive());
    turn_until(f, f->confirmed == 1);
    send_frame(f, link_frame_alive()); /* that nobody asked for */
    send_frame(f, link_frame_failed("p2", ""));
    turn_until(f, f->failures == 2);
    assert_int_equal(f->confirmed, 1);
}

static void confirm__while_the_manager_is_away_is_asked_when_it_is_back(void **state) {
    fixture *f = *state;
    come_up(f);
    link_peer_hang_up(&f->peer);
    turn_until(f, f->downs == 1);
    rs_manager_confirm(f->link, f->now);
    come_up(f);
    rs_manager_timeout(f->link, f->now);
    link_args_free(expect_call(f, "keepalive"));
    send_frame(f, link_frame_alive());
    turn_until(f, f->confirmed == 1);
}

static void request__unanswered_is_repeated_after_a_reconnect(void **state) {
    fixture *f = *state;
    come_up(f);
    ask(f, "r1");
    link_args_free(expect_call(f, "request"));
    link_peer_hang_up(&f->peer);
    turn_until(f, f->downs == 1);
    come_up(f);
    const rs_thrift_manager_request *args = expect_call(f, "request");
    assert_string_equal(args->request.request_id, "r1");
    link_args_free(args);
    grant(f, "r1", "p1");
    turn_until(f, f->responses == 1);
    assert_int_equal(f->decision, RS_MANAGER_ACCEPTED);
}

static void request__fails_when_the_manager_stays_away(void **state) {
    fixture *f = *state;
    come_up(f);
    ask(f, "r1");
    link_peer_close(&f->peer);
    turn_until(f, f->downs == 1);
    rs_time broke = f->now;
    for (int i = 0; i < 50 && f->responses == 0; i++)
        skip_to_deadline(f);
    assert_int_equal(f->responses, 1);
    assert_int_equal(f->decision, RS_MANAGER_DENIED);
    assert_string_equal(f->id, "r1");
    assert_non_null(strstr(f->reason, "unreachable for 3.0 s"));
    assert_true(f->now - broke >= 3000 * MS && f->now - broke < 3100 * MS);
}

static void request__before_the_first_welcome_waits_for_it(void **state) {
    fixture *f = *state;
    rs_manager_start(f->link, f->now);
    assert_int_equal(ask(f, "r1"), RS_OK);
    greet(f);
    send_frame(f, link_frame_welcome("m"));
    turn_until(f, f->ups == 1);
    link_args_free(expect_call(f, "request"));
}

static void request__refuses_bad_arguments(void **state) {
    fixture *f = *state;
    come_up(f);
    const char *receivers[] = {"h3", ""};
    char longest[300];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    rs_manager_request_params good = {
        .request_id = "r", .data_size = 10, .remaining_size = 10, .receivers = receivers, .receiver_count = 1};
    rs_manager_request_params bad[] = {good, good, good, good, good, good, good};
    bad[0].request_id = NULL;
    bad[1].request_id = longest;
    bad[2].receiver_count = 0;
    bad[3].receiver_count = 2; /* one without a name */
    bad[4].remaining_size = 11;
    bad[5].data_size = bad[5].remaining_size = UINT64_MAX;
    bad[6].receiver_count = RS_MANAGER_RECEIVERS_MAX + 1;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(rs_manager_request(f->link, f->now, &bad[i], NULL, 0), RS_ERR_INVALID);
    assert_int_equal(rs_manager_request(f->link, f->now, &good, NULL, 0), RS_OK);
    assert_int_equal(rs_manager_release(f->link, f->now, "r", NULL), RS_ERR_INVALID);
    assert_int_equal(rs_manager_cancel(f->link, f->now, "\xff"), RS_ERR_INVALID);
    assert_int_equal(rs_manager_no_light(f->link, f->now, "p", receivers, 0), RS_ERR_INVALID);
}

static void request__number_is_bounded(void **state) {
    fixture *f = *state;
    rs_manager_start(f->link, f->now);
    char id[16];
    for (unsigned i = 0; i < RS_MANAGER_REQUESTS_MAX; i++) {
        snprintf(id, sizeof id, "r%u", i);
        assert_int_equal(ask(f, id), RS_OK);
    }
    assert_int_equal(ask(f, "one more"), RS_ERR_LIMIT);
    assert_non_null(strstr(f->text, "too many"));
}

/* ---- releases and reports ---- */

static void release__while_down_is_told_after_the_reconnect_in_order(void **state) {
    fixture *f = *state;
    come_up(f);
    link_peer_hang_up(&f->peer);
    turn_until(f, f->downs == 1);
    assert_int_equal(rs_manager_release(f->link, f->now, "r1", "p1"), RS_OK);
    assert_int_equal(rs_manager_cancel(f->link, f->now, "r2"), RS_OK);
    const rs_manager_report_params passing = {
        .request_id = "r1", .response_id = "p1", .phase = "patching", .cause = ""};
    rs_manager_report_params final = passing;
    final.phase = "done";
    assert_int_equal(rs_manager_report(f->link, f->now, &passing), RS_ERR_STATE);
    assert_int_equal(rs_manager_report(f->link, f->now, &final), RS_OK);
    come_up(f);
    const rs_thrift_manager_release *release = expect_call(f, "release");
    assert_string_equal(release->response_id, "p1");
    link_args_free(release);
    link_args_free(expect_call(f, "cancel"));
    const rs_thrift_manager_report *report = expect_call(f, "report");
    assert_string_equal(report->report.phase, "done");
    link_args_free(report);
}

/* A release the socket took just before the connection broke may not have arrived: it is told again, for a while. */
static void release__just_before_the_break_is_repeated(void **state) {
    fixture *f = *state;
    come_up(f);
    rs_manager_release(f->link, f->now, "r1", "p1");
    link_args_free(expect_call(f, "release"));
    link_peer_hang_up(&f->peer);
    turn_until(f, f->downs == 1);
    come_up(f);
    link_args_free(expect_call(f, "release"));
    f->now += 6000 * MS;
    rs_manager_timeout(f->link, f->now); /* keepalive; the release has arrived by now */
    link_args_free(expect_call(f, "keepalive"));
    assert_int_equal(rs_manager_stats_get(f->link).kept, 0);
}

static void release__kept_number_is_bounded(void **state) {
    fixture *f = *state;
    for (unsigned i = 0; i < RS_MANAGER_DEFERRED_MAX + 5; i++)
        assert_int_equal(rs_manager_release(f->link, f->now, "r", "p"), RS_OK);
    assert_int_equal(rs_manager_stats_get(f->link).kept, RS_MANAGER_DEFERRED_MAX);
    assert_int_equal(rs_manager_stats_get(f->link).kept_dropped, 5);
}

static void report__carries_every_receiver(void **state) {
    fixture *f = *state;
    come_up(f);
    const rs_manager_receiver_report receivers[] = {{"h3", "done", "", 7, 2, 1000, 2000},
                                                    {"h5", "failed", "killed", 9, 0, 1500, 0}};
    const rs_manager_report_params report = {.request_id = "r1",
                                             .response_id = "p1",
                                             .phase = "patching",
                                             .cause = "",
                                             .bytes = 64,
                                             .sent_packets = 10,
                                             .redundant_packets = 3,
                                             .patched_packets = 2,
                                             .receivers = receivers,
                                             .receiver_count = 2};
    assert_int_equal(rs_manager_report(f->link, f->now, &report), RS_OK);
    const rs_thrift_manager_report *args = expect_call(f, "report");
    assert_int_equal(args->report.redundant_packets, 3);
    const rs_thrift_receiver_report *second = (const rs_thrift_receiver_report *)args->report.receivers.items + 1;
    assert_string_equal(second->cause, "killed");
    assert_int_equal(second->initial_sn, 9);
    assert_int_equal(second->first_light_ns, 1500);
    link_args_free(args);
    const char *dark[] = {"h5"};
    assert_int_equal(rs_manager_no_light(f->link, f->now, "p1", dark, 1), RS_OK);
    const rs_thrift_manager_no_light *no_light = expect_call(f, "no_light");
    assert_string_equal(no_light->response_id, "p1");
    assert_string_equal(*(const char *const *)no_light->receivers.items, "h5");
    link_args_free(no_light);
}

/* ---- what the manager says ---- */

static void response__nobody_waits_for_gives_the_path_back(void **state) {
    fixture *f = *state;
    come_up(f);
    grant(f, "r9", "p9");
    turn_until(f, rs_manager_stats_get(f->link).kept == 1);
    const rs_thrift_manager_release *release = expect_call(f, "release");
    assert_string_equal(release->response_id, "p9");
    link_args_free(release);
    assert_int_equal(f->responses, 0);
}

static void response__twice_leaves_the_live_path_alone(void **state) {
    fixture *f = *state;
    come_up(f);
    ask(f, "r1");
    grant(f, "r1", "p1");
    turn_until(f, f->responses == 1);
    f->live[0] = (rs_manager_live_path){"r1", "p1", 0xefc00005, RS_PATH_CIRCUIT, NULL, 0, 1, RS_PROTOCOL_REPUBLIC};
    f->lives = 1;
    uint64_t frames = rs_manager_stats_get(f->link).frames_in;
    grant(f, "r1", "p1");
    turn_until(f, rs_manager_stats_get(f->link).frames_in > frames);
    assert_int_equal(f->responses, 1);
    assert_int_equal(rs_manager_stats_get(f->link).kept, 0);
}

static void response__unusable_is_denied_and_given_back(void **state) {
    fixture *f = *state;
    come_up(f);
    ask(f, "r1");
    link_args_free(expect_call(f, "request"));
    link_grant given;
    link_granting(&given, "r1", "p1");
    given.response.data_port = 0;
    send_frame(f, link_frame_response(&given.response));
    turn_until(f, f->responses == 1);
    assert_int_equal(f->decision, RS_MANAGER_DENIED);
    assert_non_null(strstr(f->reason, "data port"));
    link_args_free(expect_call(f, "release"));
}

static void moved_failed_and_light__reach_the_owner(void **state) {
    fixture *f = *state;
    come_up(f);
    send_frame(f, link_frame_moved("p1", RS_THRIFT_PATH_KIND_PACKET, "cross-connect 12->31 in FAULT"));
    turn_until(f, f->moves == 1);
    assert_int_equal(f->kind, RS_PATH_PACKET);
    assert_string_equal(f->reason, "cross-connect 12->31 in FAULT");
    send_frame(f, link_frame_failed("p1", "tor3 is gone"));
    turn_until(f, f->failures == 1);
    assert_string_equal(f->id, "p1");
    assert_string_equal(f->reason, "tor3 is gone");
    send_frame(f, link_frame_light("p2"));
    turn_until(f, f->lights == 1);
    assert_string_equal(f->id, "p2");
}

static void goodbye__closes_and_tries_again_late(void **state) {
    fixture *f = *state;
    rs_manager_start(f->link, f->now);
    greet(f);
    send_frame(f, link_frame_goodbye("version 2 wanted"));
    turn_until(f, f->goodbyes == 1);
    assert_string_equal(f->reason, "version 2 wanted");
    turn_until(f, f->downs == 1);
    assert_non_null(strstr(f->text, "refused this agent: version 2 wanted"));
    assert_true(rs_manager_deadline(f->link) - f->now >= 1000 * MS);
    come_up(f);
}

static void keepalive__comes_at_least_three_times_per_lease(void **state) {
    fixture *f = *state;
    come_up(f);
    ask(f, "r1");
    link_args_free(expect_call(f, "request"));
    grant(f, "r1", "p1"); /* lease of 3 s */
    turn_until(f, f->responses == 1);
    rs_time begin = f->now;
    while (rs_manager_deadline(f->link) - begin <= 3000 * MS)
        skip_to_deadline(f);
    uint64_t keepalives = rs_manager_stats_get(f->link).keepalives;
    assert_in_range(keepalives, 3, 5);
    for (uint64_t i = 0; i < keepalives; i++)
        link_args_free(expect_call(f, "keepalive"));
}

static void watch_nothing(void *context, int fd, unsigned wants) {
    (void)context;
    (void)fd;
    (void)wants;
}

static void new__refuses_bad_options(void **state) {
    (void)state;
    const rs_manager_callbacks callbacks = {.context = NULL, .watch = watch_nothing};
    const rs_manager_callbacks none = {0};
    rs_manager_options options = {.manager_address = "manager.example", .server = "h1"};
    char text[160];
    assert_null(rs_manager_new(&options, &callbacks, text, sizeof text));
    assert_non_null(strstr(text, "IPv4"));
    options.manager_address = "127.0.0.1";
    assert_null(rs_manager_new(&options, &none, text, sizeof text));
    options.server = "";
    assert_null(rs_manager_new(&options, &callbacks, text, sizeof text));
    assert_non_null(strstr(text, "name"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        with_link(start__says_hello_with_the_paths_held),
        with_link(start__without_a_manager_says_so_and_keeps_trying),
        with_two_managers(keepalive__without_an_answer_the_next_manager),
        with_link(keepalive__without_an_answer_the_manager_is_silent),
        with_two_managers(start__goes_to_the_manager_that_leads),
        with_link(start__gives_up_a_manager_that_does_not_welcome),
        with_link(request__is_answered_queued_then_accepted),
        with_link(request__while_the_manager_is_away_waits_for_it),
        with_link(confirm__is_answered_after_all_that_was_said_before),
        with_link(confirm__while_the_manager_is_away_is_asked_when_it_is_back),
        with_link(request__unanswered_is_repeated_after_a_reconnect),
        with_link(request__fails_when_the_manager_stays_away),
        with_link(request__before_the_first_welcome_waits_for_it),
        with_link(request__refuses_bad_arguments),
        with_link(request__number_is_bounded),
        with_link(release__while_down_is_told_after_the_reconnect_in_order),
        with_link(release__just_before_the_break_is_repeated),
        with_link(release__kept_number_is_bounded),
        with_link(report__carries_every_receiver),
        with_link(response__nobody_waits_for_gives_the_path_back),
        with_link(response__twice_leaves_the_live_path_alone),
        with_link(response__unusable_is_denied_and_given_back),
        with_link(moved_failed_and_light__reach_the_owner),
        with_link(goodbye__closes_and_tries_again_late),
        with_link(keepalive__comes_at_least_three_times_per_lease),
        cmocka_unit_test(new__refuses_bad_options),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
