/* Messages of a LAN: what is said is understood, and nothing else is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/random.h"
#include "daemon/lan/wire.h"

#define GROUP 0xefc01234u

static rs_lan_message relay(void) {
    return (rs_lan_message){.type = RS_LAN_RELAY,
                            .flags = RS_LAN_PARENT,
                            .nonce = 0x0102030405060708u,
                            .cookie = UINT64_MAX - 5,
                            .boot = 77,
                            .group = GROUP,
                            .data_port = 7070,
                            .control_port = 7071,
                            .next = 0x0a000003u,
                            .next_port = 7100,
                            .next_lan_port = 7072,
                            .mtu = 1500,
                            .small = 3,
                            .full = 2,
                            .name = "10.0.0.1",
                            .host = "lab-a.example"};
}

static bool takes(const rs_lan_message *m) {
    uint8_t bytes[RS_LAN_MESSAGE];
    rs_lan_message out;
    rs_lan_encode(m, bytes);
    return rs_lan_decode(bytes, sizeof bytes, &out);
}

static void lan_wire__round_trip(void **state) {
    (void)state;
    uint8_t bytes[RS_LAN_MESSAGE + 40] = {0};
    rs_lan_message m = relay(), out;
    rs_lan_encode(&m, bytes);
    assert_true(rs_lan_decode(bytes, sizeof bytes, &out)); /* padding behind it does not matter */
    assert_int_equal(out.type, m.type);
    assert_int_equal(out.flags, m.flags);
    assert_true(out.nonce == m.nonce && out.cookie == m.cookie && out.boot == m.boot);
    assert_true(out.group == m.group && out.next == m.next && out.data_port == m.data_port);
    assert_true(out.control_port == m.control_port && out.next_port == m.next_port);
    assert_true(out.next_lan_port == m.next_lan_port && out.mtu == m.mtu);
    assert_true(out.small == m.small && out.full == m.full);
    assert_string_equal(out.name, m.name);
    assert_string_equal(out.host, m.host);
    assert_false(rs_lan_decode(bytes, RS_LAN_MESSAGE - 1, &out)); /* an answer is never longer than its question */
}

static void lan_wire__fields_out_of_range(void **state) {
    (void)state;
    rs_lan_message m = relay();
    assert_true(takes(&m));
    m.group = 0x0a000001u; /* no multicast group */
    assert_false(takes(&m));
    m = relay();
    m.next = GROUP; /* handing on to a group would be an amplifier */
    assert_false(takes(&m));
    m = relay();
    m.next = UINT32_MAX; /* and to a broadcast address */
    assert_false(takes(&m));
    m = relay();
    m.next_port = 0;
    assert_false(takes(&m));
    m = relay();
    m.next = 0;
    m.next_port = m.next_lan_port = 0; /* to nobody */
    assert_true(takes(&m));
    m.type = (rs_lan_type)0;
    assert_false(takes(&m));
    m.type = (rs_lan_type)(RS_LAN_GROUP + 1);
    assert_false(takes(&m));
    m = (rs_lan_message){.type = RS_LAN_HERE, .name = "a b", .control_port = 1, .mtu = 1500};
    assert_false(takes(&m)); /* names stand in logs and metrics as they are */
    strcpy(m.name, "x\"}");
    assert_false(takes(&m));
    strcpy(m.name, "h1");
    assert_true(takes(&m));
    m.mtu = 500;
    assert_false(takes(&m));
}

static void lan_wire__garbage(void **state) {
    (void)state;
    const char *given = getenv("LAN_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : 20261123, random = seed;
    print_message("LAN_SEED=%llu\n", (unsigned long long)seed);
    uint8_t whole[RS_LAN_MESSAGE], bytes[RS_LAN_MESSAGE], again[RS_LAN_MESSAGE];
    rs_lan_message m = relay(), out;
    rs_lan_encode(&m, whole);
    for (unsigned run = 0; run < 200000; run++) {
        memcpy(bytes, whole, sizeof bytes);
        for (unsigned flips = 1 + (unsigned)(rs_random_next(&random) % 8); flips > 0; flips--)
            bytes[rs_random_next(&random) % sizeof bytes] = (uint8_t)rs_random_next(&random);
        if (!rs_lan_decode(bytes, rs_random_next(&random) % (sizeof bytes + 1), &out) &&
            !rs_lan_decode(bytes, sizeof bytes, &out))
            continue;
        assert_true(rs_lan_name_ok(out.name) && rs_lan_name_ok(out.host));
        rs_lan_message twice;
        rs_lan_encode(&out, again);
        assert_true(rs_lan_decode(again, sizeof again, &twice));
    }
}

static rs_lan_group_message ticks(void) {
    rs_lan_group_message m = {.id = rs_lan_group_id("ticks"),
                              .version = 9,
                              .founded = INT64_MAX,
                              .founder = 0x0a000001u,
                              .group = "ticks",
                              .protocol = "ricochet",
                              .order = "fifo",
                              .options = "r=4,c=2.5"};
    m.head = relay();
    m.head.type = RS_LAN_GROUP;
    m.head.flags = RS_LAN_MEMBER | RS_LAN_HEARS;
    return m;
}

static bool takes_group(const rs_lan_group_message *m) {
    uint8_t bytes[RS_LAN_GROUP_MESSAGE];
    rs_lan_group_message out;
    rs_lan_group_encode(m, bytes);
    return rs_lan_group_decode(bytes, sizeof bytes, &out);
}

static void lan_wire__message_groups(void **state) {
    (void)state;
    uint8_t bytes[RS_LAN_GROUP_MESSAGE], again[RS_LAN_GROUP_MESSAGE];
    rs_lan_group_message m = ticks(), out;
    rs_lan_group_encode(&m, bytes);
    assert_true(rs_lan_group_decode(bytes, sizeof bytes, &out));
    rs_lan_group_encode(&out, again);
    assert_memory_equal(bytes, again, sizeof bytes);
    assert_true(out.id == m.id && out.version == 9 && out.founded == INT64_MAX && out.founder == m.founder);
    assert_string_equal(out.group, "ticks");
    assert_string_equal(out.options, "r=4,c=2.5");
    assert_false(rs_lan_group_decode(bytes, sizeof bytes - 1, &out));
    m.id++; /* the number of another name */
    assert_false(takes_group(&m));
    m = ticks();
    strcpy(m.options, "r=4\n"); /* texts stand in logs as they are */
    assert_false(takes_group(&m));
    m = ticks();
    m.head.group = 0x0a000001u;
    assert_false(takes_group(&m));
    m.founded = 0; /* it does not know yet */
    assert_true(takes_group(&m));
    m = ticks();
    m.version = UINT64_C(1) << 48;
    assert_false(takes_group(&m));
    m = ticks();
    m.founded = -1;
    assert_false(takes_group(&m));
}

static void lan_wire__garbage_of_groups(void **state) {
    (void)state;
    const char *given = getenv("LAN_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : 20261123, random = seed;
    print_message("LAN_SEED=%llu\n", (unsigned long long)seed);
    uint8_t one[RS_LAN_GROUP_MESSAGE], bytes[RS_LAN_GROUP_MESSAGE];
    rs_lan_group_message m = ticks(), out;
    rs_lan_group_encode(&m, one);
    for (unsigned run = 0; run < 50000; run++) {
        memcpy(bytes, one, sizeof bytes);
        for (unsigned flips = 1 + (unsigned)(rs_random_next(&random) % 8); flips > 0; flips--)
            bytes[rs_random_next(&random) % sizeof bytes] = (uint8_t)rs_random_next(&random);
        if (!rs_lan_group_decode(bytes, sizeof bytes, &out))
            continue;
        assert_true(out.id == rs_lan_group_id(out.group) && strlen(out.options) < sizeof out.options);
        assert_true(takes_group(&out));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lan_wire__round_trip), cmocka_unit_test(lan_wire__message_groups),
        cmocka_unit_test(lan_wire__garbage_of_groups), cmocka_unit_test(lan_wire__fields_out_of_range),
        cmocka_unit_test(lan_wire__garbage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
