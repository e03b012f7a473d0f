/* tls.c and what client.c makes of it: a link by TLS does what one without does, and whoever must mend a certificate
 * is told what is wrong with it. */
#include "link_certificates.h"

#include <sys/socket.h>
#include <unistd.h>

static char folder[] = "/tmp/test-link-tls-XXXXXX";
static char paths[3][64]; /* h1.pem, h1.key, ca.pem */
static credentials ca, stranger, manager, agent;

static rs_tls_files files(void) {
    return (rs_tls_files){.certificate = paths[0], .key = paths[1], .authority = paths[2]};
}

static int set_up(void **state) {
    credentials_write(folder, "ca", &ca, NULL);
    credentials_write(folder, "h1", &agent, NULL);
    rs_tls_files all = files();
    return link_fixture_setup_tls(state, &all);
}
#define with_tls(test) cmocka_unit_test_setup_teardown(test, set_up, link_fixture_teardown)

static credentials issue(const char *alternative, const char *usage, long from_s, long until_s) {
    certificate_wish wish = {"manager", alternative, usage, from_s, until_s};
    return credentials_make(&wish, &ca);
}

static void send_by(tls_peer *peer, link_frame frame) {
    tls_peer_send(peer, frame.data, frame.len);
    free(frame.data);
}

static const void *call_by(tls_peer *peer, fixture *f, const char *expected) {
    size_t length;
    uint8_t *frame = tls_peer_read(peer, f, &length);
    const void *args = link_call_decode(frame, length, expected);
    free(frame);
    return args;
}

/* A manager of version `version` that the link comes up with. */
static void come_up_by(tls_peer *peer, fixture *f, int version) {
    unsigned ups = f->ups;
    tls_peer_open(peer, &manager, ca.certificate, version);
    rs_manager_start(f->link, f->now);
    if (f->fd < 0)
        skip_to_deadline(f);
    assert_true(tls_peer_greet(peer, f));
    link_args_free(call_by(peer, f, "hello"));
    send_by(peer, link_frame_welcome("m"));
    turn_until(f, f->ups > ups);
}

/* ---- what works without TLS works with it ---- */

static void link__calls_go_both_ways(void **state) {
    fixture *f = *state;
    const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (unsigned i = 0; i < 2; i++) {
        tls_peer peer;
        come_up_by(&peer, f, versions[i]);
        X509 *shown = SSL_get1_peer_certificate(peer.ssl);
        assert_int_equal(X509_cmp(shown, agent.certificate), 0);
        X509_free(shown);
        assert_non_null(strstr(f->text, "connected to manager 127.0.0.1:"));
        assert_non_null(strstr(f->text, " by TLS (m)"));
        char id[] = "r0";
        id[1] = (char)('0' + i);
        assert_int_equal(ask(f, id), RS_OK);
        link_args_free(call_by(&peer, f, "request"));
        link_grant given;
        link_granting(&given, id, "p1");
        send_by(&peer, link_frame_response(&given.response));
        turn_until(f, f->responses == i + 1);
        assert_int_equal(f->decision, RS_MANAGER_ACCEPTED);
        SSL_shutdown(peer.ssl);
        turn_until(f, !rs_manager_up(f->link));
        assert_non_null(strstr(f->text, "it closed the connection"));
        tls_peer_close(&peer);
    }
}

static void link__comes_back_after_the_manager_died(void **state) {
    fixture *f = *state;
    tls_peer peer;
    come_up_by(&peer, f, 0);
    assert_int_equal(ask(f, "r1"), RS_OK);
    link_args_free(call_by(&peer, f, "request"));
    tls_peer_close(&peer);
    link_peer_hang_up(&f->peer);
    turn_until(f, f->fd < 0);
    come_up_by(&peer, f, 0);
    link_args_free(call_by(&peer, f, "request")); /* repeated */
    tls_peer_close(&peer);
}

static void link__frames_come_in_any_records(void **state) {
    fixture *f = *state;
    tls_peer peer;
    come_up_by(&peer, f, 0);
    link_frame frame = link_frame_light("p7");
    for (size_t i = 0; i < frame.len; i++)
        tls_peer_send(&peer, frame.data + i, 1);
    turn_until(f, f->lights == 1);
    link_frame many = {malloc(2000 * frame.len), 2000 * frame.len};
    assert_non_null(many.data);
    for (size_t i = 0; i < 2000; i++)
        memcpy(many.data + i * frame.len, frame.data, frame.len);
    for (size_t at = 0; at < many.len; at += 7777) {
        size_t more = many.len - at;
        tls_peer_send(&peer, many.data + at, more < 7777 ? more : 7777);
        turn(f);
    }
    turn_until(f, f->lights == 2001);
    free(many.data);
    free(frame.data);
    tls_peer_close(&peer);
}

static void link__output_waits_for_a_slow_manager(void **state) {
    fixture *f = *state;
    tls_peer peer;
    come_up_by(&peer, f, 0);
    char name[RS_MANAGER_NAME_MAX + 1];
    const char *names[1000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (unsigned i = 0; i < 1000; i++)
        names[i] = name;
    unsigned calls = 0;
    while (!(f->wants & RS_MANAGER_WRITE)) { /* until the socket takes no more */
        assert_int_equal(rs_manager_no_light(f->link, f->now, "p1", names, 1000), RS_OK);
        assert_true(++calls < 200);
    }
    for (unsigned more = 0; more < 8; more++, calls++)
        assert_int_equal(rs_manager_no_light(f->link, f->now, "p1", names, 1000), RS_OK);
    size_t length, other_length;
    uint8_t *first = tls_peer_read(&peer, f, &length);
    assert_true(length > 1000 * RS_MANAGER_NAME_MAX);
    for (unsigned i = 1; i < calls; i++) {
        uint8_t *other = tls_peer_read(&peer, f, &other_length);
        assert_int_equal(other_length, length);
        assert_memory_equal(other, first, length);
        free(other);
    }
    free(first);
    assert_true(rs_manager_up(f->link));
    tls_peer_close(&peer);
}

/* ---- certificates that are refused ---- */

/* Meets a manager with this certificate, which the link must refuse with this text. */
static void expect_refusal(fixture *f, credentials own, const char *text, const char *alert) {
    tls_peer peer;
    tls_peer_open(&peer, &own, ca.certificate, 0);
    rs_manager_start(f->link, f->now);
    if (f->fd < 0)
        skip_to_deadline(f);
    assert_false(tls_peer_greet(&peer, f));
    turn_until(f, f->fd < 0);
    char said[512];
    rs_manager_describe(f->link, f->now, said, sizeof said);
    if (!strstr(said, text))
        fail_msg("\"%s\" is not in \"%s\"", text, said);
    if (!strstr(peer.alert, alert))
        fail_msg("the manager got \"%s\"", peer.alert);
    assert_false(rs_manager_up(f->link));
    tls_peer_close(&peer);
    credentials_free(&own);
}

static void managers__that_cannot_be_trusted_are_refused(void **state) {
    fixture *f = *state;
    certificate_wish same = {.name = "manager", .alternative = "IP:127.0.0.1"};
    expect_refusal(f, credentials_make(&same, &stranger), "is not signed by the CA in /tmp/test-link-tls",
                   "unknown ca");
    expect_refusal(f, credentials_make(&same, NULL), "is not signed by the CA in", "unknown ca");
    expect_refusal(f, issue("IP:127.0.0.1", NULL, -7200, -60), "its certificate expired at 2", "expired");
    expect_refusal(f, issue("IP:127.0.0.1", NULL, 60, 7200), "is this machine's clock right?", "bad certificate");
    expect_refusal(f, issue("IP:127.0.0.2,DNS:127.0.0.1", NULL, 0, 0),
                   "is not for 127.0.0.1 (it needs subjectAltName=IP:127.0.0.1)", "bad certificate");
    expect_refusal(f, issue(NULL, NULL, 0, 0), "is not for 127.0.0.1", "bad certificate");
    expect_refusal(f, issue("IP:127.0.0.1", "clientAuth", 0, 0), "its certificate is refused: unsuitable",
                   "unsupported certificate");
    tls_peer peer;
    come_up_by(&peer, f, 0); /* and a good one is still good */
    tls_peer_close(&peer);
}

static void own_certificate__that_the_manager_refuses_is_named(void **state) {
    fixture *f = *state;
    const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (unsigned i = 0; i < 2; i++) {
        tls_peer peer;
        tls_peer_open(&peer, &manager, stranger.certificate, versions[i]);
        rs_manager_start(f->link, f->now);
        if (f->fd < 0)
            skip_to_deadline(f);
        assert_false(tls_peer_greet(&peer, f));
        turn_until(f, f->fd < 0);
        assert_non_null(strstr(f->text, "it refuses the certificate /tmp/test-link-tls"));
        assert_non_null(strstr(f->text, "h1.pem: no CA that it knows has signed it"));
        tls_peer_close(&peer);
    }
}

/* ---- who does not speak TLS, or stops ---- */

static void peers__without_tls_are_named(void **state) {
    fixture *f = *state;
    rs_manager_start(f->link, f->now);
    turn_until(f, f->fd >= 0);
    link_peer_accept(&f->peer);
    send_frame(f, link_frame_goodbye("a frame of 369295616 bytes"));
    turn_until(f, f->fd < 0);
    assert_non_null(strstr(f->text, "it does not speak TLS; start rostrum-manager with --thrift-tls"));
}

static void peers__that_hang_up_or_hang_are_left(void **state) {
    fixture *f = *state;
    rs_manager_start(f->link, f->now);
    turn_until(f, f->fd >= 0);
    link_peer_accept(&f->peer);
    uint8_t hello[4096];
    turn_until(f, recv(f->peer.fd, hello, sizeof hello, MSG_DONTWAIT) > 0);
    link_peer_hang_up(&f->peer);
    turn_until(f, f->fd < 0);
    assert_non_null(strstr(f->text, "it closed the connection in TLS's handshake"));
    skip_to_deadline(f);
    turn_until(f, f->fd >= 0);
    link_peer_accept(&f->peer);
    turn_until(f, f->wants == RS_MANAGER_READ); /* the handshake has begun, and no answer comes */
    rs_time began = f->now;
    skip_to_deadline(f);
    assert_int_equal(f->fd, -1);
    assert_int_equal(f->now - began, 2000 * MS);
    char said[512];
    rs_manager_describe(f->link, f->now, said, sizeof said);
    assert_non_null(strstr(said, "TLS's handshake was not done in 2.0 s"));
}

static void garbage__ends_the_connection_with_a_reason(void **state) {
    fixture *f = *state;
    const char *given = getenv("ROSTRUM_TEST_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 0) : (unsigned)time(NULL);
    print_message("ROSTRUM_TEST_SEED=%u\n", seed);
    for (int i = 0; i < 100; i++) {
        uint8_t noise[300];
        for (size_t at = 0; at < sizeof noise; at++)
            noise[at] = (uint8_t)rand_r(&seed);
        if (i % 2) /* as if it were TLS: a record of a handshake */
            memcpy(noise, (uint8_t[]){22, 3, 3, 0, 200, 2, 0, 0, 196, 3, 3}, 11);
        rs_manager_start(f->link, f->now);
        if (f->fd < 0)
            skip_to_deadline(f);
        turn_until(f, f->fd >= 0);
        link_peer_accept(&f->peer);
        link_peer_send(&f->peer, noise, sizeof noise);
        link_peer_hang_up(&f->peer); /* some noise is the beginning of a record that would be longer */
        turn_until(f, f->fd < 0);
    }
    tls_peer peer;
    come_up_by(&peer, f, 0);
    uint8_t record[5 + 64] = {23, 3, 3, 0, 64};
    assert_int_equal(send(f->peer.fd, record, sizeof record, MSG_NOSIGNAL), sizeof record);
    turn_until(f, f->fd < 0);
    assert_non_null(strstr(f->text, "TLS failed: "));
    tls_peer_close(&peer);
}

static void stall__inside_a_record_ends_the_connection(void **state) {
    fixture *f = *state;
    tls_peer peer;
    come_up_by(&peer, f, 0);
    const uint8_t begin[] = {23, 3, 3, 1, 0, 9, 9, 9};
    assert_int_equal(send(f->peer.fd, begin, sizeof begin, MSG_NOSIGNAL), sizeof begin);
    turn_until(f, rs_manager_deadline(f->link) <= f->now + 5000 * MS);
    turn(f);
    for (int i = 0; i < 20 && f->downs == 0; i++)
        skip_to_deadline(f); /* keepalives, then the stall */
    assert_non_null(strstr(f->text, "it stopped inside a frame for 5.0 s"));
    tls_peer_close(&peer);
}

/* ---- files ---- */

static void files__are_read_again_for_a_new_connection(void **state) {
    fixture *f = *state;
    credentials_write(folder, "ca", &stranger, NULL);
    certificate_wish wish = {.name = "manager", .alternative = "IP:127.0.0.1"};
    expect_refusal(f, credentials_make(&wish, &ca), "is not signed by the CA", "unknown ca");
    assert_int_equal(f->downs, 1);
    assert_true(rs_manager_deadline(f->link) - f->now >= 1000 * MS); /* a pause like the longest */
    expect_refusal(f, credentials_make(&wish, &ca), "is not signed by the CA", "unknown ca");
    assert_int_equal(f->downs, 1); /* told once */
    assert_int_equal(unlink(paths[1]), 0);
    skip_to_deadline(f);
    assert_int_equal(f->downs, 2); /* other words are told */
    assert_non_null(strstr(f->text, "h1.key cannot be read: No such file"));
    assert_int_equal(f->fd, -1);
    credentials_write(folder, "h1", &agent, NULL);
    credentials_write(folder, "ca", &ca, NULL);
    tls_peer peer;
    come_up_by(&peer, f, 0);
    credentials_write(folder, "ca", &stranger, NULL); /* no news for a connection that is there */
    assert_int_equal(ask(f, "r1"), RS_OK);
    link_args_free(call_by(&peer, f, "request"));
    tls_peer_close(&peer);
}

static void expect_wrong(const char *expected) {
    char text[RS_TLS_TEXT] = "";
    rs_tls_files all = files();
    assert_null(rs_tls_identity_new(&all, text));
    if (!strstr(text, expected))
        fail_msg("\"%s\" is not in \"%s\"", expected, text);
}

static void empty(const char *path) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
}

static void files__that_are_wrong_are_named(void **state) {
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        static const char *const text[] = {"h1.pem holds no certificate", "h1.key holds no private key",
                                           "ca.pem holds no certificate of a CA"};
        credentials_write(folder, "h1", &agent, NULL);
        credentials_write(folder, "ca", &ca, NULL);
        unlink(paths[i]);
        expect_wrong("cannot be read: No such file or directory");
        empty(paths[i]);
        expect_wrong(text[i]);
    }
    credentials_write(folder, "ca", &ca, NULL);
    credentials_write(folder, "h1", &agent, "secret"); /* nobody is asked for it */
    expect_wrong("h1.key holds no private key that can be used (PEM, not encrypted)");
    credentials mixed = {manager.key, agent.certificate};
    credentials_write(folder, "h1", &mixed, NULL);
    expect_wrong("h1.key is not that of the certificate");
    char said[RS_TLS_TEXT];
    rs_manager_options options = {.manager_address = "127.0.0.1", .server = "h1", .tls = files()};
    rs_manager_callbacks callbacks = {.watch = (void (*)(void *, int, unsigned))abort};
    assert_null(rs_manager_new(&options, &callbacks, said, sizeof said));
    assert_non_null(strstr(said, "is not that of the certificate"));
    options.tls.authority = NULL;
    assert_null(rs_manager_new(&options, &callbacks, said, sizeof said));
    assert_non_null(strstr(said, "TLS needs a certificate, its key and a CA"));
}

int main(void) {
    if (!mkdtemp(folder))
        return 1;
    static const char *const names[] = {"h1.pem", "h1.key", "ca.pem"};
    for (unsigned i = 0; i < 3; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
    ca = credentials_make(&(certificate_wish){.name = "ca"}, NULL);
    stranger = credentials_make(&(certificate_wish){.name = "another ca"}, NULL);
    agent = credentials_make(&(certificate_wish){.name = "h1"}, &ca);
    manager = issue("IP:127.0.0.1", NULL, 0, 0);
    const struct CMUnitTest tests[] = {
        with_tls(link__calls_go_both_ways),
        with_tls(link__comes_back_after_the_manager_died),
        with_tls(link__frames_come_in_any_records),
        with_tls(link__output_waits_for_a_slow_manager),
        with_tls(managers__that_cannot_be_trusted_are_refused),
        with_tls(own_certificate__that_the_manager_refuses_is_named),
        with_tls(peers__without_tls_are_named),
        with_tls(peers__that_hang_up_or_hang_are_left),
        with_tls(garbage__ends_the_connection_with_a_reason),
        with_tls(stall__inside_a_record_ends_the_connection),
        with_tls(files__are_read_again_for_a_new_connection),
        cmocka_unit_test(files__that_are_wrong_are_named),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    credentials *made[] = {&ca, &stranger, &agent, &manager};
    for (unsigned i = 0; i < 4; i++)
        credentials_free(made[i]);
    static const char *const left[] = {"h1.pem", "h1.key", "ca.pem", "ca.key"};
    for (unsigned i = 0; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", folder, left[i]);
        unlink(path);
    }
    rmdir(folder);
    return failed;
}
