/* Datagrams of group messages: what is written is read back; what is not exactly that is refused. */
#include "check.h"

#include "core/base/xxh3_64.h"
#include "core/base/xxh64.h"
#include "core/groups/wire.h"
#include "core/ricochet/wire.h"

static uint64_t state = 1;

static uint32_t below(uint32_t bound) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) * bound >> 31);
}

/* A data packet of `length` payload bytes; returns its whole length. */
static size_t make_data(uint8_t *out, rs_gm_form form, const void *payload, uint32_t length) {
    rs_gm_id id = {0x0a000001, 7, 0x01020304, UINT64_C(0x0102030405)};
    rs_gm_body body = {(uint16_t)length, (uint8_t)form, false, {.count = 3, .view = {{900, 1}, {890, 5}, {400, 255}}}};
    rs_gm_put_header(out, RS_GM_KIND_DATA, &id);
    rs_gm_put_body(out + RS_GM_HEADER, &body);
    if (length)
        memcpy(out + RS_GM_DATA_LEAST, payload, length);
    return RS_GM_DATA_LEAST + length;
}

static void wire__data_is_read_as_written(void **unused) {
    (void)unused;
    uint8_t bytes[256];
    rs_gm_id id;
    rs_gm_body body;
    size_t length = make_data(bytes, RS_GM_SINGLE, "hello", 5);
    /* docs/protocol.md: magic 47 52, version 3, kind 1, sender little endian. */
    assert_memory_equal(bytes, "\x47\x52\x03\x01\x01\x00\x00\x0a", 8);
    assert_int_equal(rs_gm_get_kind(bytes, length), RS_GM_KIND_DATA);
    assert_true(rs_gm_get_data(bytes, length, &id, &body));
    assert_int_equal(id.sender, 0x0a000001);
    assert_int_equal(id.incarnation, 7);
    assert_int_equal(id.group, 0x01020304);
    assert_int_equal(id.sn, UINT64_C(0x0102030405));
    assert_int_equal(body.length, 5);
    assert_int_equal(body.views.count, 3);
    assert_int_equal(body.views.view[0].version, 900);
    assert_int_equal(body.views.view[1].version, 890);
    assert_int_equal(body.views.view[1].back, 5);
    assert_int_equal(body.views.view[2].version, 400);
    assert_int_equal(body.views.view[2].back, 255);
    for (size_t i = 0; i < length; i++)
        assert_false(rs_gm_get_data(bytes, i, &id, &body));
    assert_false(rs_gm_get_data(bytes, length + 1, &id, &body));
}

static void wire__forms_are_checked(void **unused) {
    (void)unused;
    uint8_t bytes[256];
    rs_gm_id id;
    rs_gm_body body;
    struct {
        rs_gm_form form;
        const char *payload;
        uint32_t length;
        bool good;
    } cases[] = {
        {RS_GM_PACK, "\2\0ab\0\0\1\0c", 9, true},
        {RS_GM_PACK, "\2\0ab\0\0\2\0c", 9, false}, /* the last is longer than what is left */
        {RS_GM_PACK, "\2\0ab\0", 5, false},        /* half a length */
        {RS_GM_PACK, "", 0, false},
        {RS_GM_PARTS, "\4\0\0\0\0\0\0\0\0\0\2\0ab", 14, true},
        {RS_GM_PARTS, "\4\0\0\0\2\0\0\0\1\0\2\0ab", 14, true},
        {RS_GM_PARTS, "\4\0\0\0\3\0\0\0\1\0\2\0ab", 14, false}, /* beyond the message */
        {RS_GM_PARTS, "\4\0\0\0\1\0\0\0\1\0\2\0ab", 14, false}, /* the last part does not end it */
        {RS_GM_PARTS, "\4\0\0\0\1\0\0\0\0\0\2\0ab", 14, false}, /* the first part does not begin it */
        {RS_GM_PARTS, "\4\0\0\0\2\0\0\0\2\0\2\0ab", 14, false}, /* part 2 of 2 */
        {RS_GM_PARTS, "\2\0\0\0\0\0\0\0\0\0\1\0ab", 14, false}, /* one part is no large message */
        {RS_GM_PARTS, "\4\0\0\0\0\0\0\0\0\0\2\0", 12, false},   /* nothing in it */
        {(rs_gm_form)3, "ab", 2, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t length = make_data(bytes, cases[i].form, cases[i].payload, cases[i].length);
        assert_int_equal(rs_gm_get_data(bytes, length, &id, &body), cases[i].good);
    }
}

static void wire__repairs_are_read_as_written(void **unused) {
    (void)unused;
    uint8_t bytes[RS_RICOCHET_HEAD_MOST + 100] = {0};
    rs_ricochet_repair repair;
    for (uint32_t count = 1; count <= RS_RICOCHET_R_MAX; count++) {
        rs_ricochet_put_repair(bytes, 5, count, 100);
        for (uint32_t i = 0; i < count; i++)
            rs_gm_put_id(bytes + RS_RICOCHET_REPAIR + i * RS_GM_ID, &(rs_gm_id){i, 1, 2, i + 1});
        size_t length = RS_RICOCHET_REPAIR + count * RS_GM_ID + 100;
        assert_true(rs_ricochet_get_repair(bytes, length, &repair));
        assert_int_equal(repair.from, 5);
        assert_int_equal(repair.count, count);
        assert_int_equal(repair.length, 100);
        rs_gm_id id;
        rs_gm_get_id(repair.ids + (count - 1) * RS_GM_ID, &id);
        assert_int_equal(id.sn, count);
        assert_false(rs_ricochet_get_repair(bytes, length - 1, &repair));
        assert_false(rs_ricochet_get_repair(bytes, length + 1, &repair));
        rs_gm_put_id(bytes + RS_RICOCHET_REPAIR, &(rs_gm_id){1, 1, 2, 0}); /* there is no packet 0 */
        assert_false(rs_ricochet_get_repair(bytes, length, &repair));
    }
}

static void wire__naks_and_states_are_read_as_written(void **unused) {
    (void)unused;
    uint8_t bytes[RS_GM_NAK_MOST];
    rs_peer from;
    rs_gm_put_nak(bytes, 9, 2);
    for (uint32_t i = 0; i < 2; i++)
        rs_gm_put_nak_item(bytes + RS_GM_NAK + i * RS_GM_NAK_ITEM, &(rs_gm_nak_item){{1, 2, 3, 40 + i}, i});
    assert_int_equal(rs_gm_get_nak(bytes, RS_GM_NAK + 2 * RS_GM_NAK_ITEM, &from), 2);
    assert_int_equal(from, 9);
    rs_gm_nak_item item;
    rs_gm_get_nak_item(bytes, 1, &item);
    assert_int_equal(item.id.sn, 41);
    assert_int_equal(item.mask, 1);
    assert_int_equal(rs_gm_get_nak(bytes, RS_GM_NAK + RS_GM_NAK_ITEM, &from), 0);
    bytes[9] = 1; /* nothing is there */
    assert_int_equal(rs_gm_get_nak(bytes, RS_GM_NAK + 2 * RS_GM_NAK_ITEM, &from), 0);

    uint32_t incarnation, length = RS_GM_STATE + 2 * RS_GM_STATE_ITEM;
    rs_gm_put_state(bytes, 1, 2, 2);
    for (uint32_t i = 0; i < 2; i++) {
        rs_gm_state_item in = {3 + i, 4 + i, {.count = 2, .view = {{7, 0}, {6, 3}}}};
        rs_gm_put_state_item(bytes + RS_GM_STATE + i * RS_GM_STATE_ITEM, &in);
    }
    assert_int_equal(rs_gm_get_state(bytes, length, &from, &incarnation), 2);
    assert_int_equal(from, 1);
    assert_int_equal(incarnation, 2);
    rs_gm_state_item out;
    rs_gm_get_state_item(bytes, 1, &out);
    assert_int_equal(out.group, 4);
    assert_int_equal(out.sn, 5);
    assert_int_equal(out.views.count, 2);
    assert_int_equal(out.views.view[1].version, 6);
    assert_int_equal(rs_gm_get_state(bytes, length - 1, &from, &incarnation), 0);
    bytes[RS_GM_STATE + RS_GM_STATE_ITEM + 13] = 1; /* nothing is there */
    assert_int_equal(rs_gm_get_state(bytes, length, &from, &incarnation), 0);
    rs_gm_put_state(bytes, 1, 2, RS_GM_STATE_ITEMS + 1);
    assert_int_equal(
        rs_gm_get_state(bytes, RS_GM_STATE + (RS_GM_STATE_ITEMS + 1) * RS_GM_STATE_ITEM, &from, &incarnation), 0);
}

/* As the reference implementation has them. */
static void wire__xxh64_is_that_of_its_specification(void **unused) {
    (void)unused;
    uint8_t bytes[101];
    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7 + 3);
    const struct {
        size_t length;
        uint64_t seed, hash;
    } known[] = {
        {0, UINT64_C(0x0), UINT64_C(0xef46db3751d8e999)},
        {0, UINT64_C(0x123456789abcdef0), UINT64_C(0x7fef5b0c316777ed)},
        {1, UINT64_C(0x0), UINT64_C(0x1f25c8d0bc1f4bb6)},
        {1, UINT64_C(0x123456789abcdef0), UINT64_C(0x1e2ea53a3040e362)},
        {3, UINT64_C(0x0), UINT64_C(0x31d2363f52e564c9)},
        {3, UINT64_C(0x123456789abcdef0), UINT64_C(0x05c22bc4b93347d9)},
        {4, UINT64_C(0x0), UINT64_C(0x9bb64b7d66ee9fda)},
        {4, UINT64_C(0x123456789abcdef0), UINT64_C(0x6f43828b2dc8c736)},
        {7, UINT64_C(0x0), UINT64_C(0x9a7b149959ce60d8)},
        {7, UINT64_C(0x123456789abcdef0), UINT64_C(0x8ba3f8e8dcfc9a32)},
        {8, UINT64_C(0x0), UINT64_C(0xdab99d95c6f90092)},
        {8, UINT64_C(0x123456789abcdef0), UINT64_C(0x311893ba9020dedf)},
        {12, UINT64_C(0x0), UINT64_C(0xd52e407833af5133)},
        {12, UINT64_C(0x123456789abcdef0), UINT64_C(0xe9e507001465eec1)},
        {20, UINT64_C(0x0), UINT64_C(0x18ae385ada6b00cb)},
        {20, UINT64_C(0x123456789abcdef0), UINT64_C(0x822a79ccad27e6d9)},
        {31, UINT64_C(0x0), UINT64_C(0xa2aa5f33cc4a6119)},
        {31, UINT64_C(0x123456789abcdef0), UINT64_C(0x2c9e9c9d631d0aaa)},
        {32, UINT64_C(0x0), UINT64_C(0x23c3c17ef790fd97)},
        {32, UINT64_C(0x123456789abcdef0), UINT64_C(0xd1dc5d84aebdafb4)},
        {33, UINT64_C(0x0), UINT64_C(0x50a7cfc7ba588784)},
        {33, UINT64_C(0x123456789abcdef0), UINT64_C(0x4c4db23e16391b47)},
        {64, UINT64_C(0x0), UINT64_C(0x0eb64b3ef6eeb01f)},
        {64, UINT64_C(0x123456789abcdef0), UINT64_C(0xf5d7da99a82361fb)},
        {101, UINT64_C(0x0), UINT64_C(0xbad4d3bf033bda4c)},
        {101, UINT64_C(0x123456789abcdef0), UINT64_C(0xf4caaf9852f8d642)},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_true(rs_gm_xxh64(bytes, known[i].length, known[i].seed) == known[i].hash);
}

static void wire__xxh3_is_that_of_its_specification(void **unused) {
    (void)unused;
    uint8_t bytes[1464];
    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7 + 3);
    const struct {
        size_t length;
        uint64_t hash;
    } known[] = {
        {0, UINT64_C(0x2d06800538d394c2)},    {3, UINT64_C(0xa9088dda485b481c)},
        {8, UINT64_C(0x60539db630471163)},    {16, UINT64_C(0xb8c859b0f030b585)},
        {20, UINT64_C(0x8851af100ea32e06)},   {128, UINT64_C(0x67425a03650261bf)},
        {129, UINT64_C(0xc664bf3311c6abc4)},  {240, UINT64_C(0x64556dc6b462a6cf)},
        {241, UINT64_C(0x8beadd3a8874fe17)},  {1024, UINT64_C(0x9b81661c641c72b1)},
        {1025, UINT64_C(0x806c2072ed713576)}, {1464, UINT64_C(0xadeebea7d4f7bd8a)},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_true(rs_xxh3_64(bytes, known[i].length) == known[i].hash);
}

/* Whatever bit is another, of whatever kind of packet, is seen; but for the kind and version, which have no check, and
 * the XOR of a repair, whose packets have their own. */
static void wire__every_changed_bit_is_seen(void **unused) {
    (void)unused;
    uint8_t bytes[512];
    for (unsigned kind = RS_GM_KIND_DATA; kind <= RS_GM_KIND_AGAIN; kind++) {
        const rs_gm_id id = {1, 2, 3, 4};
        size_t length = 0, checked = 0;
        memset(bytes, 0, sizeof bytes);
        if (kind == RS_GM_KIND_DATA || kind == RS_GM_KIND_AGAIN) {
            length = checked = make_data(bytes, RS_GM_SINGLE, "hello", 5);
            bytes[3] = (uint8_t)kind;
        } else if (kind == RS_RICOCHET_KIND_REPAIR) {
            length = checked = rs_ricochet_head_length(1); /* the XOR behind it has no check of its own */
            rs_ricochet_put_repair(bytes, 5, 1, 100);
            rs_gm_put_id(bytes + RS_RICOCHET_REPAIR, &id);
        } else if (kind == RS_GM_KIND_NAK) {
            length = checked = RS_GM_NAK + RS_GM_NAK_ITEM;
            rs_gm_put_nak(bytes, 5, 1);
            rs_gm_put_nak_item(bytes + RS_GM_NAK, &(rs_gm_nak_item){id, 7});
        } else {
            length = checked = RS_GM_STATE + RS_GM_STATE_ITEM;
            rs_gm_put_state(bytes, 1, 2, 1);
            rs_gm_put_state_item(bytes + RS_GM_STATE, &(rs_gm_state_item){3, 4, {.count = 1, .view = {{1, 2}}}});
        }
        rs_gm_seal(bytes, length);
        assert_true(rs_gm_is_intact(bytes, length));
        for (size_t bit = 4 * 8; bit < checked * 8; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_false(rs_gm_is_intact(bytes, length));
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        assert_true(rs_gm_is_intact(bytes, length));
    }
}

/* The XOR of three packets, as a repair might give it, is no fourth one, though all of its fields would fit. */
static void wire__the_xor_of_packets_is_no_packet(void **unused) {
    (void)unused;
    uint8_t packets[4][RS_GM_DATA_LEAST + 64], mixed[RS_GM_DATA_LEAST + 64] = {0};
    const uint64_t sns[] = {4, 5, 7, 6}; /* 4 ^ 5 ^ 7 == 6 */
    for (uint32_t i = 0; i < 4; i++) {
        const rs_gm_body head = {64, RS_GM_SINGLE, false, {.count = 1, .view = {{9, 255}}}};
        rs_gm_put_header(packets[i], RS_GM_KIND_DATA, &(rs_gm_id){1, 2, 3, sns[i]});
        rs_gm_put_body(packets[i] + RS_GM_HEADER, &head);
        memset(packets[i] + RS_GM_DATA_LEAST, (int)(10 + i), 64);
        rs_gm_seal(packets[i], sizeof packets[i]);
        for (size_t k = 0; i < 3 && k < sizeof mixed; k++)
            mixed[k] ^= packets[i][k];
    }
    rs_gm_id id;
    rs_gm_body body;
    assert_true(rs_gm_get_data(mixed, sizeof mixed, &id, &body) && id.sn == 6 && body.length == 64);
    assert_false(rs_gm_is_intact(mixed, sizeof mixed));
    assert_false(rs_gm_is_body_intact(&id, mixed + RS_GM_HEADER, sizeof mixed - RS_GM_HEADER));
    assert_true(rs_gm_is_body_intact(&id, packets[3] + RS_GM_HEADER, sizeof mixed - RS_GM_HEADER));
    /* Nor is a packet one of another place in the stream. */
    id.sn = 8;
    assert_false(rs_gm_is_body_intact(&id, packets[3] + RS_GM_HEADER, sizeof mixed - RS_GM_HEADER));
}

/* Any bytes, and any packet with a few bytes changed: a node survives them, and still works. */
static void wire__garbage_does_no_harm(void **unused) {
    (void)unused;
    uint8_t bytes[1500];
    for (uint32_t i = 0; i < 200000; i++) {
        uint32_t length = below(sizeof bytes);
        for (uint32_t k = 0; k < 64; k++)
            bytes[below(sizeof bytes)] = (uint8_t)below(256);
        if (below(8)) {
            static const uint8_t head[] = {0x47, 0x52, RS_GM_VERSION};
            memcpy(bytes, head, sizeof head);
            bytes[3] = (uint8_t)(1 + below(5));
            length = below(4) ? length : RS_GM_STATE + RS_GM_STATE_ITEM * (1 + below(3));
        }
        uint8_t *exact = malloc(length + 1);
        assert_non_null(exact);
        memcpy(exact, bytes, length);
        rs_gm_id id;
        rs_gm_body body;
        rs_ricochet_repair repair;
        rs_gm_nak_item nak;
        rs_gm_state_item item;
        rs_peer from;
        uint32_t incarnation;
        rs_gm_get_data(exact, length, &id, &body);
        if (rs_ricochet_get_repair(exact, length, &repair))
            assert_ptr_equal(repair.body + repair.length, exact + length);
        for (uint32_t k = rs_gm_get_nak(exact, length, &from); k-- > 0;)
            rs_gm_get_nak_item(exact, k, &nak);
        for (uint32_t k = rs_gm_get_state(exact, length, &from, &incarnation); k-- > 0;)
            rs_gm_get_state_item(exact, k, &item);
        free(exact);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire__data_is_read_as_written),
        cmocka_unit_test(wire__forms_are_checked),
        cmocka_unit_test(wire__repairs_are_read_as_written),
        cmocka_unit_test(wire__naks_and_states_are_read_as_written),
        cmocka_unit_test(wire__xxh64_is_that_of_its_specification),
        cmocka_unit_test(wire__xxh3_is_that_of_its_specification),
        cmocka_unit_test(wire__every_changed_bit_is_seen),
        cmocka_unit_test(wire__the_xor_of_packets_is_no_packet),
        cmocka_unit_test(wire__garbage_does_no_harm),
    };
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
