/* The agent's command line, units and names (agent/daemon/options.c, units.c, peers.c, log.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/control/peers.h"
#include "daemon/data/nic.h"
#include "daemon/log.h"
#include "daemon/options.h"
#include "daemon/store/digest.h"
#include "daemon/units.h"

#define ARGUMENTS 64

static char said[16384], complained[4096];

/* Parses "--a b --c" as the shell would. */
static rs_options_result parse(const char *line, rs_options *out) {
    static char text[2048];
    char *argv[ARGUMENTS] = {(char[]){"rostrumd"}}, *rest = NULL;
    int argc = 1;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok_r(text, " ", &rest); word && argc < ARGUMENTS - 1; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    memset(said, 0, sizeof said);
    memset(complained, 0, sizeof complained);
    FILE *say = fmemopen(said, sizeof said - 1, "w"), *complain = fmemopen(complained, sizeof complained - 1, "w");
    rs_options_result result = rs_options_parse(argc, argv, out, say, complain);
    fclose(say);
    fclose(complain);
    return result;
}

#define NEEDED "--server h1 --interface h1-eth0 --address 10.0.1.1 --socket /run/a.sock --store /run/objects "

static void options__defaults(void **state) {
    (void)state;
    rs_options o;
    assert_int_equal(parse(NEEDED, &o), RS_OPTIONS_RUN);
    assert_string_equal(o.server, "h1");
    assert_int_equal(o.address, 0x0a000101);
    assert_int_equal(o.control_port, 7071);
    assert_int_equal(o.data_port, 7070);
    assert_int_equal(o.manager_address, 0);
    assert_string_equal(o.io, "auto");
    assert_int_equal(o.attempt_interval, 0);
    assert_int_equal(o.start_policy, RS_START_ON_LAST);
    assert_int_equal(o.repairs, RS_REPAIRS_BY_LOSS);
    assert_int_equal(o.reserve_bytes, 0);
    assert_null(o.loss);
    assert_int_equal(o.silence_bound, 5000000000); /* streams multiply it: 0 failed their readers at once */
}

static void options__everything_set(void **state) {
    (void)state;
    rs_options o;
    assert_int_equal(parse(NEEDED
                           "--manager 10.255.0.1:9090 --control-port 81 --data-port 82 --quota 4G --reserve 128M --mtu "
                           "1500 --nic-rate 2.5G --wan-buffer 64M "
                           "--io udp --receive-buffer 8M --attempt-interval 1.4ms --light-confirm 5 --start-on first "
                           "--silence-bound 2s --repairs patches "
                           "--digest sha256 --max-connections 9 --loss gilbert:0.01:5 --seed 42 --log-level warning",
                           &o),
                     RS_OPTIONS_RUN);
    rs_log_set_level("info");
    assert_int_equal(o.manager_address, 0x0aff0001);
    assert_int_equal(o.manager_port, 9090);
    assert_int_equal(o.control_port, 81);
    assert_int_equal(o.data_port, 82);
    assert_true(o.quota_bytes == UINT64_C(4) << 30);
    assert_true(o.wan_buffer == UINT64_C(64) << 20);
    assert_true(o.reserve_bytes == UINT64_C(128) << 20);
    assert_int_equal(o.mtu, 1500);
    assert_true(o.nic_rate_bps == INT64_C(2500000000));
    assert_int_equal(o.receive_buffer, 8 << 20);
    assert_int_equal(o.attempt_interval, 1400000);
    assert_int_equal(o.light_confirm, 5);
    assert_int_equal(o.start_policy, RS_START_ON_FIRST);
    assert_int_equal(o.repairs, RS_REPAIRS_PATCHES_ONLY);
    assert_true(o.silence_bound == INT64_C(2000000000));
    assert_int_equal(o.max_connections, 9);
    assert_string_equal(o.loss, "gilbert:0.01:5");
    assert_int_equal(o.seed, 42);
}

static void options__what_waits_to_be_sent_goes_in_3_ms(void **state) {
    (void)state;
    rs_options o;
    assert_int_equal(parse(NEEDED "--nic-rate 100M", &o), RS_OPTIONS_RUN);
    assert_int_equal(rs_options_send_buffer(&o), 37500);
    assert_int_equal(parse(NEEDED "--nic-rate 1M --mtu 1500", &o), RS_OPTIONS_RUN);
    assert_int_equal(rs_options_send_buffer(&o), 2 * 1500);
    assert_int_equal(parse(NEEDED "--nic-rate 100G", &o), RS_OPTIONS_RUN);
    assert_int_equal(rs_options_send_buffer(&o), 4 << 20);
    assert_int_equal(
        parse("--server h1 --interface nosuch0 --address 10.0.1.1 --socket /run/a.sock --store /run/objects "
              "--manager 10.255.0.1:9090",
              &o),
        RS_OPTIONS_RUN);
    assert_int_equal(rs_options_send_buffer(&o), 4 << 20); /* nobody knows its rate */
}

static void options__help_and_version(void **state) {
    (void)state;
    rs_options o;
    assert_int_equal(parse("--help", &o), RS_OPTIONS_TOLD);
    assert_non_null(strstr(said, "usage:"));
    assert_non_null(strstr(said, "--attempt-interval"));
    assert_non_null(strstr(said, "Exit codes"));
    assert_int_equal(parse("--version", &o), RS_OPTIONS_TOLD);
    assert_non_null(strstr(said, RS_VERSION));
}

static void options__wrong_ones_are_explained(void **state) {
    (void)state;
    const char *const cases[][2] = {
        {"--server h1", "--interface is needed"},
        {NEEDED "--bogus 3", "--bogus"},
        {NEEDED "--mtu", "a value is missing"},
        {NEEDED "stray", "stray"},
        {NEEDED "--address 10.0.1", "IPv4"},
        {NEEDED "--address 0.0.0.0", "IPv4"},
        {NEEDED "--manager 10.255.0.1", "10.255.0.1:9090"},
        {NEEDED "--manager host:9090", "IPv4"},
        {NEEDED "--control-port 65536", "65535"},
        {NEEDED "--control-port -1", "port"},
        {NEEDED "--receive-buffer 2G", "64K to 1G"},
        {NEEDED "--quota 0", "size"},
        {NEEDED "--wan-buffer 1000K", "1M to 1T"},
        {NEEDED "--wan-buffer 2T", "1M to 1T"},
        {NEEDED "--quota 4X", "size"},
        {NEEDED "--reserve lots", "size"},
        {NEEDED "--reserve -1", "size"},
        {NEEDED "--quota 99999999999T", "size"},
        {NEEDED "--mtu 100", "576"},
        {NEEDED "--nic-rate fast", "rate"},
        {NEEDED "--nic-rate 10", "rate"},
        {NEEDED "--io dpdk", "packet I/O"},
        {NEEDED "--attempt-interval 5", "1.4ms"},
        {NEEDED "--attempt-interval 1h", "1.4ms"},
        {NEEDED "--light-confirm 0", "1 to 255"},
        {NEEDED "--start-on middle", "last, first or switches"},
        {NEEDED "--repairs never", "by-loss or patches"},
        {NEEDED "--silence-bound 1ms", "100ms"},
        {NEEDED "--digest md5", "sha256"},
        {NEEDED "--loss rain", "gilbert"},
        {NEEDED "--seed 0", "number"},
        {NEEDED "--log-level loud", "debug"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rs_options o;
        assert_int_equal(parse(cases[i][0], &o), RS_OPTIONS_WRONG);
        if (!strstr(complained, cases[i][1]))
            fail_msg("\"%s\" said: %s", cases[i][0], complained);
    }
}

static void options__manager_tls_takes_three_files(void **state) {
    (void)state;
    rs_options o;
    assert_int_equal(parse(NEEDED "--manager-tls a.pem a.key ca.pem --mtu 1500", &o), RS_OPTIONS_RUN);
    assert_string_equal(o.manager_tls.certificate, "a.pem");
    assert_string_equal(o.manager_tls.key, "a.key");
    assert_string_equal(o.manager_tls.authority, "ca.pem");
    assert_int_equal(o.mtu, 1500);
    assert_int_equal(parse("--manager-tls=1 2 3 " NEEDED "--manager-tls a.pem a.key ca.pem", &o), RS_OPTIONS_RUN);
    assert_string_equal(o.manager_tls.certificate, "a.pem");
    assert_string_equal(o.manager_tls.authority, "ca.pem");
    assert_int_equal(parse(NEEDED, &o), RS_OPTIONS_RUN);
    assert_null(o.manager_tls.certificate);
    static const char *const short_of[] = {NEEDED "--manager-tls a.pem a.key", "--manager-tls a.pem " NEEDED};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(parse(short_of[i], &o), RS_OPTIONS_WRONG);
        assert_non_null(strstr(complained, "--manager-tls needs CERTIFICATE KEY CA"));
    }
    assert_int_equal(parse(NEEDED "--manager-tls a.pem a.key ca.pem one-more", &o), RS_OPTIONS_WRONG);
    assert_non_null(strstr(complained, "\"one-more\" is not understood"));
}

static void options__required_security_takes_nothing_less(void **state) {
    (void)state;
#define TLS "--manager-tls a.pem a.key ca.pem "
    rs_options o;
    assert_int_equal(parse(NEEDED, &o), RS_OPTIONS_RUN);
    assert_false(o.security);
    assert_int_equal(o.digest_algorithm, RS_DIGEST_XXH3);
    assert_int_equal(parse(NEEDED TLS "--security required", &o), RS_OPTIONS_RUN);
    assert_true(o.security);
    assert_int_equal(o.digest_algorithm, RS_DIGEST_SHA256);
    assert_int_equal(parse(NEEDED TLS "--security off", &o), RS_OPTIONS_RUN);
    assert_false(o.security);
    assert_int_equal(parse(NEEDED, &o), RS_OPTIONS_RUN);
    assert_true(o.carry);
    assert_int_equal(parse(NEEDED "--carry false", &o), RS_OPTIONS_RUN);
    assert_false(o.carry);
    assert_int_equal(parse(NEEDED TLS "--security required", &o), RS_OPTIONS_RUN);
    assert_false(o.carry);
    assert_int_equal(parse(NEEDED TLS "--security off --carry true", &o), RS_OPTIONS_RUN);
    assert_true(o.carry);
    assert_int_equal(parse(NEEDED TLS "--carry true --security required", &o), RS_OPTIONS_RUN);
    assert_false(o.carry);
    static const struct {
        const char *line, *word;
    } wrongs[] = {{NEEDED TLS "--security some", "required"},
                  {NEEDED "--security required", "--manager-tls"},
                  {NEEDED TLS "--security required --standalone true", "--standalone"},
                  {NEEDED TLS "--security required --digest xxh3", "sha256"}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(parse(wrongs[i].line, &o), RS_OPTIONS_WRONG);
        assert_non_null(strstr(complained, wrongs[i].word));
    }
#undef TLS
}

static void units__bytes_rates_and_times(void **state) {
    (void)state;
    uint64_t bytes;
    int64_t rate;
    rs_time time;
    assert_true(rs_parse_bytes("4096", &bytes) && bytes == 4096);
    assert_true(rs_parse_bytes("1.5KiB", &bytes) && bytes == 1536);
    assert_true(rs_parse_bytes("64m", &bytes) && bytes == 64u << 20);
    assert_true(rs_parse_rate("100Mbit", &rate) && rate == 100000000);
    assert_true(rs_parse_rate("1G", &rate) && rate == 1000000000);
    assert_true(rs_parse_duration("70us", &time) && time == 70000);
    assert_true(rs_parse_duration("0", &time) && time == 0);
    assert_true(rs_parse_duration("2min", &time) && time == INT64_C(120000000000));
    const char *const wrong[] = {"", " ", "-1", "+1", "0x10", "nan", "inf", "1e999", "1 G", "1GG", "G", "1.1.1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (rs_parse_bytes(wrong[i], &bytes) || rs_parse_rate(wrong[i], &rate) || rs_parse_duration(wrong[i], &time))
            fail_msg("\"%s\" was taken", wrong[i]);
    assert_false(rs_parse_bytes("0.3", &bytes));
    assert_false(rs_parse_duration("5", &time));
    char text[RS_ADDRESS_TEXT];
    assert_string_equal(rs_address_text(0xffffffff, text), "255.255.255.255");
}

static void units__fragments_fit_the_mtu(void **state) {
    (void)state;
    assert_int_equal(rs_fragment_size(9000, 0), 8896);
    assert_int_equal(rs_fragment_size(1500, 0), 1408);
    assert_int_equal(rs_fragment_size(9000, 28), 8896); /* sealed */
    assert_int_equal(rs_fragment_size(1500, 28), 1392);
    assert_int_equal(rs_fragment_size(76, 0), 0);
    assert_int_equal(rs_fragment_size(76, 28), 0);
    assert_int_equal(rs_fragment_size(10, 0), 0);
    assert_true(rs_fragment_size(65536, 0) <= RS_FRAGMENT_MAX);
    assert_true(rs_nic_mtu("lo") >= 1500);
    assert_int_equal(rs_nic_mtu("nosuch0"), 0);
    assert_int_equal(rs_nic_rate("nosuch0"), 0);
}

static void options__who_may_use_the_socket(void **state) {
    (void)state;
    rs_options o;
    assert_int_equal(parse(NEEDED, &o), RS_OPTIONS_RUN);
    assert_int_equal(o.socket_mode, 0660);
    assert_false(o.has_group);
    assert_int_equal(parse(NEEDED "--socket-group 0 --socket-mode 600", &o), RS_OPTIONS_RUN);
    assert_true(o.has_group && o.group == 0);
    assert_int_equal(o.socket_mode, 0600);
    assert_int_equal(parse(NEEDED "--socket-group root", &o), RS_OPTIONS_RUN);
    assert_true(o.has_group && o.group == 0);
    assert_int_equal(parse(NEEDED "--socket-group no-such-group-here", &o), RS_OPTIONS_WRONG);
    assert_non_null(strstr(complained, "no group of that name"));
    const char *const wrong[] = {"0880", "-660", "rw", "01777", "060", "66 0"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, NEEDED "--socket-mode %s", wrong[i]);
        assert_int_equal(parse(line, &o), RS_OPTIONS_WRONG);
    }
}

static void peers__numbers_stay_while_held(void **state) {
    (void)state;
    rs_peers peers = {0};
    rs_peer h2 = rs_peers_number(&peers, "h2");
    rs_peers_hold(&peers, h2);
    assert_int_equal(rs_peers_number(&peers, "h2"), h2);
    assert_int_equal(rs_peers_find(&peers, "h3"), RS_NO_PEER);
    char name[32];
    for (uint32_t i = 0; i < 3 * RS_PEERS_MAX; i++) {
        snprintf(name, sizeof name, "stranger-%u", i);
        assert_int_not_equal(rs_peers_number(&peers, name), RS_NO_PEER);
    }
    assert_true(peers.room <= RS_PEERS_MAX);
    assert_int_equal(rs_peers_find(&peers, "h2"), h2);
    assert_string_equal(rs_peers_name(&peers, h2), "h2");
    rs_peers_free(&peers);
}

/* A sender tells a receiver of others by their addresses alone: whoever is named there later is the same peer. */
static void peers__somebody_at_an_address_keeps_the_number_when_named(void **state) {
    (void)state;
    rs_peers peers = {0};
    char name[32];
    rs_peer there[100];
    for (uint32_t i = 0; i < 100; i++) {
        there[i] = rs_peers_locate(&peers, 0x0a000001 + i, 7071);
        assert_int_equal(rs_peers_locate(&peers, 0x0a000001 + i, 7071), there[i]);
        assert_int_equal(rs_peers_entry(&peers, there[i])->control_port, 7071);
    }
    for (uint32_t i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "h%u", i);
        assert_int_equal(rs_peers_find(&peers, name), RS_NO_PEER);
        assert_int_equal(rs_peers_at(&peers, name, 0x0a000001 + i), there[i]);
        assert_int_equal(rs_peers_find(&peers, name), there[i]);
        assert_string_equal(rs_peers_name(&peers, there[i]), name);
        assert_int_equal(rs_peers_located(&peers, 0x0a000001 + i), there[i]);
    }
    rs_peers_free(&peers);
}

/* A server that has a number by its name, and one by its address: the name's is the one from then on. */
static void peers__a_name_that_is_known_takes_its_address(void **state) {
    (void)state;
    rs_peers peers = {0};
    rs_peer nameless = rs_peers_locate(&peers, 0x0a000001, 7071), h2 = rs_peers_number(&peers, "h2");
    assert_int_not_equal(nameless, h2);
    rs_peers_told(&peers, h2, 0x0a000001, 7072, 3);
    assert_int_equal(rs_peers_located(&peers, 0x0a000001), h2);
    assert_int_equal(rs_peers_locate(&peers, 0x0a000001, 7072), h2);
    assert_int_equal(rs_peers_entry(&peers, h2)->rack, 3);
    rs_peers_told(&peers, h2, 0x0a000002, 7072, 0); /* it moved */
    assert_int_equal(rs_peers_located(&peers, 0x0a000001), RS_NO_PEER);
    assert_int_equal(rs_peers_located(&peers, 0x0a000002), h2);
    rs_peers_free(&peers);
}

static void peers__are_bounded(void **state) {
    (void)state;
    rs_peers peers = {0};
    char name[300];
    for (uint32_t i = 0; i < RS_PEERS_MAX; i++) {
        snprintf(name, sizeof name, "server-%u", i);
        rs_peers_hold(&peers, rs_peers_number(&peers, name));
    }
    assert_int_equal(rs_peers_number(&peers, "one more"), RS_NO_PEER);
    assert_int_equal(rs_peers_number(&peers, ""), RS_NO_PEER);
    memset(name, 'x', sizeof name);
    name[256] = '\0';
    assert_int_equal(rs_peers_number(&peers, name), RS_NO_PEER);
    rs_peers_release(&peers, 17);
    assert_int_equal(rs_peers_number(&peers, "one more"), 17);
    rs_peers_free(&peers);
}

static void log__quotes_what_strangers_say(void **state) {
    (void)state;
    assert_string_equal(rs_quote("plain words"), "\"plain words\"");
    assert_string_equal(rs_quote("a\"b\\c\n\x1b["), "\"a\\\"b\\\\c\\x0a\\x1b[\"");
    char longest[1000];
    memset(longest, 1, sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_true(strlen(rs_quote(longest)) < 272);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options__defaults),
        cmocka_unit_test(options__everything_set),
        cmocka_unit_test(options__what_waits_to_be_sent_goes_in_3_ms),
        cmocka_unit_test(options__help_and_version),
        cmocka_unit_test(options__wrong_ones_are_explained),
        cmocka_unit_test(options__manager_tls_takes_three_files),
        cmocka_unit_test(options__required_security_takes_nothing_less),
        cmocka_unit_test(units__bytes_rates_and_times),
        cmocka_unit_test(units__fragments_fit_the_mtu),
        cmocka_unit_test(options__who_may_use_the_socket),
        cmocka_unit_test(peers__numbers_stay_while_held),
        cmocka_unit_test(peers__somebody_at_an_address_keeps_the_number_when_named),
        cmocka_unit_test(peers__a_name_that_is_known_takes_its_address),
        cmocka_unit_test(peers__are_bounded),
        cmocka_unit_test(log__quotes_what_strangers_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
