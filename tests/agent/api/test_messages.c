/* Messages of the application socket: round trips of every type, and parsing of what is no message. */
#include "api/wire.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static uint64_t seed;
static rs_api_request request, parsed;
static rs_api_message message;
static rs_api_answer answer;
static rs_error error;

static uint64_t random_next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static rs_api_request *new_request(uint8_t type) {
    memset(&request, 0, sizeof request);
    request.type = type;
    request.tag = 0x1122334455667788;
    return &request;
}

static void round_trip(void) {
    assert_true(rs_api_encode_request(&request, &message, &error));
    assert_true(rs_api_parse_request(message.data, message.length, &parsed, &error));
    assert_int_equal(parsed.type, request.type);
    assert_int_equal(parsed.tag, request.tag);
    assert_int_equal(parsed.data_id, request.data_id);
    assert_int_equal(parsed.number, request.number);
    assert_int_equal(parsed.receiver_count, request.receiver_count);
    /* One byte less or more is refused, and the header is still understood. */
    if (message.length > RS_API_HEADER_SIZE) {
        assert_false(rs_api_parse_request(message.data, message.length - 1, &parsed, &error));
        assert_int_equal(parsed.tag, request.tag);
        assert_int_equal(parsed.type, request.type);
    }
    message.data[message.length] = 0;
    assert_false(rs_api_parse_request(message.data, message.length + 1, &parsed, &error));
    assert_true(rs_api_parse_request(message.data, message.length, &parsed, &error));
}

static void requests__round_trip(void **context) {
    (void)context;
    memcpy(new_request(RS_API_REGISTER)->app, "0123456789abcdef", 16);
    request.process = "worker 7 \xc3\xa9";
    round_trip();
    assert_memory_equal(parsed.app, request.app, 16);
    assert_string_equal(parsed.process, request.process);

    static const uint8_t with_data_id[] = {RS_API_ADD,    RS_API_READ,           RS_API_DELETE,     RS_API_SUBSCRIBE,
                                           RS_API_CANCEL, RS_API_STREAM_RECEIVE, RS_API_STREAM_END, RS_API_LEAVE};
    for (size_t i = 0; i < sizeof with_data_id; i++) {
        new_request(with_data_id[i])->data_id = UINT64_MAX - i;
        request.wait_ms = with_data_id[i] == RS_API_READ || with_data_id[i] == RS_API_STREAM_RECEIVE ? 77 : 0;
        request.number = with_data_id[i] == RS_API_STREAM_END ? UINT64_MAX - 5 : 0;
        round_trip();
        assert_int_equal(parsed.wait_ms, request.wait_ms);
        assert_int_equal(parsed.number, request.number);
    }
    static const uint8_t with_number[] = {RS_API_CREATE, RS_API_DROP,  RS_API_UNSUBSCRIBE, RS_API_UNREGISTER,
                                          RS_API_STATUS, RS_API_NAMES, RS_API_EPHEMERAL};
    for (size_t i = 0; i < sizeof with_number; i++) {
        new_request(with_number[i])->number = i < 3 ? 1 + i : 0;
        round_trip();
    }
    for (int stream = 0; stream < 2; stream++) {
        uint8_t type = stream ? RS_API_STREAM_SEND : RS_API_SEND;
        *new_request(type) = (rs_api_request){.type = type,
                                              .tag = 9,
                                              .data_id = 1,
                                              .flags = 1,
                                              .wait_ms = 2,
                                              .deadline_ms = 3,
                                              .receiver_count = 2,
                                              .receivers = {"h3", "h4"}};
        round_trip();
        assert_string_equal(parsed.receivers[1], "h4");
        assert_int_equal(parsed.deadline_ms, 3);
        assert_null(parsed.options);
        request.options = "congestion=own";
        round_trip();
        assert_string_equal(parsed.options, "congestion=own");
        request.options = "a\nb"; /* nor may others send what this library would not */
        assert_false(rs_api_encode_request(&request, &message, &error));
        assert_int_equal(error.code, ROSTRUM_ERR_INVALID);
        request.options = "a_b";
        assert_true(rs_api_encode_request(&request, &message, &error));
        message.data[message.length - 2] = 0;
        assert_false(rs_api_parse_request(message.data, message.length, &parsed, &error));
        assert_int_equal(error.code, ROSTRUM_ERR_INVALID);
    }
}

/* Nobody gets less order than was asked for without a word. */
static void join__has_an_order_with_its_protocol_only(void **context) {
    (void)context;
    static const struct {
        const char *protocol, *order;
        bool may;
    } cases[] = {{NULL, NULL, true}, {NULL, "none", true}, {"plain", "total", true}, {NULL, "total", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        new_request(RS_API_JOIN)->group = "ticks";
        request.protocol = cases[i].protocol;
        request.order = cases[i].order;
        assert_int_equal(rs_api_encode_request(&request, &message, &error), cases[i].may);
        assert_true(cases[i].may || strstr(error.text, "go with its protocol"));
    }
}

static void send__takes_what_fits_and_refuses_the_rest(void **context) {
    (void)context;
    static char names[ROSTRUM_RECEIVERS_MAX + 1][ROSTRUM_NAME_MAX + 2];
    new_request(RS_API_SEND)->receiver_count = ROSTRUM_RECEIVERS_MAX;
    for (uint32_t i = 0; i < ROSTRUM_RECEIVERS_MAX; i++) {
        (void)snprintf(names[i], sizeof names[i], "h%u.r%u", i, i / 40);
        request.receivers[i] = names[i];
    }
    round_trip();
    assert_string_equal(parsed.receivers[ROSTRUM_RECEIVERS_MAX - 1], names[ROSTRUM_RECEIVERS_MAX - 1]);
    request.receiver_count = 5000;
    for (uint32_t i = 0; i < request.receiver_count; i++)
        (void)snprintf(names[i], sizeof names[i], "server-%u.row-%u.data-center.example", i, i / 40);
    round_trip();
    assert_string_equal(parsed.receivers[4999], names[4999]);
    request.receiver_count = ROSTRUM_RECEIVERS_MAX;
    for (uint32_t i = 0; i < ROSTRUM_RECEIVERS_MAX; i++)
        (void)snprintf(names[i], sizeof names[i], "%0255u", i);
    assert_false(rs_api_encode_request(&request, &message, &error));
    assert_non_null(strstr(error.text, "too long together"));

    request.receiver_count = 3;
    request.receivers[0] = "h1";
    request.receivers[1] = "h2";
    static const char *const bad[] = {
        "", "h1", "a\nb", "\x7f", "\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc2\x85"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        request.receivers[2] = bad[i];
        assert_false(rs_api_encode_request(&request, &message, &error));
        assert_int_equal(error.code, ROSTRUM_ERR_INVALID);
    }
    request.receivers[2] = names[3];
    names[3][255] = 'x'; /* 256 bytes */
    names[3][256] = 0;
    assert_false(rs_api_encode_request(&request, &message, &error));
    request.receiver_count = 0;
    assert_false(rs_api_encode_request(&request, &message, &error));
    request.receiver_count = ROSTRUM_RECEIVERS_MAX + 1;
    assert_false(rs_api_encode_request(&request, &message, &error));
}

static void header__tells_whether_to_answer_or_to_hang_up(void **context) {
    (void)context;
    assert_false(rs_api_parse_request((const uint8_t *)"", 0, &parsed, &error));
    assert_int_equal(parsed.type, 0);
    assert_true(rs_api_encode_request(new_request(RS_API_STATUS), &message, &error));
    message.data[2] = 2; /* version */
    assert_false(rs_api_parse_request(message.data, message.length, &parsed, &error));
    assert_int_equal(parsed.type, 0);
    assert_non_null(strstr(error.text, "version 2"));
    message.data[2] = RS_API_VERSION;
    message.data[3] = 99; /* type */
    assert_false(rs_api_parse_request(message.data, message.length, &parsed, &error));
    assert_int_equal(parsed.type, 99);
    assert_int_equal(parsed.tag, request.tag);
}

static void events_and_results__round_trip(void **context) {
    (void)context;
    /* Static: what is between the fields is zero, so that whole values can be compared. */
    static const rostrum_event event = {.kind = ROSTRUM_EVENT_RECEIVER,
                                        .data_id = 5,
                                        .time_ns = -1,
                                        .sending = true,
                                        .state = ROSTRUM_RECEIVER_DONE,
                                        .session = 2,
                                        .bytes = 3,
                                        .size = 4,
                                        .sn = UINT64_MAX,
                                        .rate_bps = 6,
                                        .receivers = 7,
                                        .receivers_done = 8,
                                        .receivers_failed = 9,
                                        .subject = "h3",
                                        .text = "words"};
    rs_api_encode_event(&message, 1, &event);
    assert_true(rs_api_parse_answer(message.data, message.length, &answer, &error));
    assert_int_equal(answer.tag, 1);
    assert_memory_equal(&answer.event, &event, sizeof event);

    static const rostrum_send_result result = {.ok = true,
                                               .data_id = 1,
                                               .size = 2,
                                               .cause = "cause",
                                               .requested_ns = 3,
                                               .accepted_ns = 4,
                                               .attempt_ns = 5,
                                               .high_rate_ns = 6,
                                               .data_done_ns = 7,
                                               .released_ns = 8,
                                               .done_ns = 9,
                                               .path = ROSTRUM_PATH_PACKET,
                                               .reason = "no splitter free",
                                               .response_id = "r-1",
                                               .protocol = ROSTRUM_PROTOCOL_RDCM,
                                               .reconfiguration_ns = 10,
                                               .sessions = 11,
                                               .fragment_size = 12,
                                               .packets_sent = 13,
                                               .packets_attempt = 14,
                                               .packets_redundant = 15,
                                               .packets_patched = 16,
                                               .packets_repair = 19,
                                               .losses_repaired = 20,
                                               .acks_received = 21,
                                               .bytes_sent = 17,
                                               .rate_bps = 18};
    rs_api_encode_sent(&message, 2, &result);
    assert_true(rs_api_parse_answer(message.data, message.length, &answer, &error));
    assert_memory_equal(&answer.result, &result, sizeof result);
}

static void receivers__go_in_as_many_messages_as_needed(void **context) {
    (void)context;
    rostrum_receiver *rows = calloc(ROSTRUM_RECEIVERS_MAX, sizeof *rows), got;
    assert_non_null(rows);
    for (uint32_t i = 0; i < ROSTRUM_RECEIVERS_MAX; i++) {
        (void)snprintf(rows[i].name, sizeof rows[i].name, "%0200u", i);
        memset(rows[i].cause, 'c', i % ROSTRUM_TEXT_MAX);
        rows[i].initial_sn = i;
        rows[i].state = (rostrum_receiver_state)(i % 4);
        rows[i].digest_ok = i % 2;
    }
    uint32_t done = 0, messages = 0;
    for (; done < ROSTRUM_RECEIVERS_MAX; messages++) {
        uint32_t count = rs_api_encode_receivers(&message, 3, rows + done, ROSTRUM_RECEIVERS_MAX - done);
        assert_true(count > 0);
        assert_true(rs_api_parse_answer(message.data, message.length, &answer, &error));
        assert_int_equal(answer.rows, count);
        while (rs_api_next_receiver(&answer, &got)) {
            assert_string_equal(got.name, rows[done].name);
            assert_string_equal(got.cause, rows[done].cause);
            assert_int_equal(got.initial_sn, done);
            assert_int_equal(got.digest_ok, done % 2);
            done++;
        }
        assert_int_equal(answer.rows, 0);
    }
    assert_true(messages > 1);
    free(rows);
}

static void status_rows__round_trip(void **context) {
    (void)context;
    static const rostrum_transfer transfer = {.app = {1, 2},
                                              .data_id = 3,
                                              .sending = true,
                                              .phase = "attempt",
                                              .peer = "h1",
                                              .path = ROSTRUM_PATH_CIRCUIT,
                                              .size = 4,
                                              .bytes = 5,
                                              .rate_bps = 6,
                                              .receivers = 7,
                                              .receivers_done = 8,
                                              .receivers_failed = 9,
                                              .requested_ns = 10,
                                              .protocol = ROSTRUM_PROTOCOL_RDCM,
                                              .view = 11,
                                              .acks_sent = 12,
                                              .acks_received = 13,
                                              .repairs_sent = 14,
                                              .repairs_received = 15,
                                              .repairs_old = 18,
                                              .window = 16,
                                              .ack_timeout_ns = 17};
    static const rostrum_object object = {.app = {9},
                                          .data_id = 1,
                                          .state = ROSTRUM_OBJECT_COMPLETE,
                                          .received = true,
                                          .holds = 2,
                                          .size = 3,
                                          .digest_algorithm = 1,
                                          .digest_length = 16,
                                          .digest = {5, 6}};
    rostrum_transfer other_transfer;
    rostrum_object other_object;
    memset(&other_transfer, 0, sizeof other_transfer);
    memset(&other_object, 0, sizeof other_object);
    assert_int_equal(rs_api_encode_transfers(&message, 1, &transfer, 1), 1);
    assert_true(rs_api_parse_answer(message.data, message.length, &answer, &error));
    assert_true(rs_api_next_transfer(&answer, &other_transfer));
    assert_memory_equal(&other_transfer, &transfer, sizeof transfer);
    assert_int_equal(rs_api_encode_objects(&message, 1, &object, 1), 1);
    assert_true(rs_api_parse_answer(message.data, message.length, &answer, &error));
    assert_true(rs_api_next_object(&answer, &other_object));
    assert_memory_equal(&other_object, &object, sizeof object);
    assert_false(rs_api_next_object(&answer, &other_object));
}

/* Whatever bytes come: no crash (the sanitizers watch), and what is accepted is encoded again to the same bytes. */
static void garbage__is_refused_or_means_what_it_says(void **context) {
    (void)context;
    uint64_t state = seed;
    uint32_t accepted = 0;
    rostrum_receiver receiver;
    for (int i = 0; i < 200000; i++) {
        uint8_t bytes[96];
        size_t length = random_next(&state) % sizeof bytes;
        for (size_t at = 0; at < length; at++)
            bytes[at] = (uint8_t)random_next(&state);
        static const uint8_t head[8] = {0x41, 0x52, RS_API_VERSION};
        bool request_side = random_next(&state) % 2;
        if (length >= 8)
            memcpy(bytes, head, 8);
        if (length >= 8)
            bytes[3] = (uint8_t)((request_side ? 1 + random_next(&state) % 17 : 128 + random_next(&state) % 16));
        if (length > 46 && bytes[3] == RS_API_SEND)
            memcpy(bytes + 36, "\x02\x00\x02h3\x02h4", 8), length = 44;
        if (request_side && rs_api_parse_request(bytes, length, &parsed, &error)) {
            accepted++;
            assert_true(rs_api_encode_request(&parsed, &message, &error));
            assert_int_equal(message.length, length);
            assert_memory_equal(message.data, bytes, length);
        }
        if (!request_side && rs_api_parse_answer(bytes, length, &answer, &error))
            while (answer.type == RS_API_RECEIVERS && rs_api_next_receiver(&answer, &receiver))
                ;
    }
    assert_true(accepted > 100);
}

int main(void) {
    const char *given = getenv("ROSTRUM_TEST_SEED");
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    seed += seed == 0;
    printf("# ROSTRUM_TEST_SEED=%" PRIu64 "\n", seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests__round_trip),
        cmocka_unit_test(join__has_an_order_with_its_protocol_only),
        cmocka_unit_test(send__takes_what_fits_and_refuses_the_rest),
        cmocka_unit_test(header__tells_whether_to_answer_or_to_hang_up),
        cmocka_unit_test(events_and_results__round_trip),
        cmocka_unit_test(receivers__go_in_as_many_messages_as_needed),
        cmocka_unit_test(status_rows__round_trip),
        cmocka_unit_test(garbage__is_refused_or_means_what_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
