#include "check.h"

#include "core/base/wire.h"
#include "core/transfer/node.h"

static const rs_object_id object = {.app = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, .data = 0x99};

#define NONCE UINT64_C(0x1122334455667788)

/* docs/protocol.md, byte by byte. */
static void data_header__byte_for_byte(void **state) {
    (void)state;
    const rs_data_header header = {.flags = RS_DATA_FIRST | RS_DATA_ATTEMPT,
                                   .engine = RS_PROTOCOL_RDCM,
                                   .session = 0x0b0c0d,
                                   .nonce = NONCE,
                                   .sn = 0x0102,
                                   .aux = 0xff00};
    const uint8_t bytes[RS_DATA_HEADER] = {0x53, 0x52, 2,    3,    0x0d, 0x0c, 0x0b, 1, 0x88, 0x77, 0x66,
                                           0x55, 0x44, 0x33, 0x22, 0x11, 2,    1,    0, 0,    0,    0,
                                           0,    0,    0,    0xff, 0,    0,    0,    0, 0,    0};
    uint8_t out[RS_DATA_HEADER];
    rs_data_header back;
    rs_wire_encode_data(&header, out);
    assert_memory_equal(out, bytes, sizeof bytes);
    assert_true(rs_wire_decode_data(bytes, sizeof bytes, &back));
    assert_int_equal(back.sn, 0x0102);
    assert_int_equal(back.session, 0x0b0c0d);
    assert_int_equal(back.nonce, NONCE);
    assert_int_equal(back.engine, RS_PROTOCOL_RDCM);
    assert_int_equal(back.aux, 0xff00);
}

static void data_header__bad_ones_are_refused(void **state) {
    (void)state;
    rs_data_header header = {.nonce = NONCE}, back;
    uint8_t good[RS_DATA_HEADER], bad[RS_DATA_HEADER];
    rs_wire_encode_data(&header, good);
    for (size_t length = 0; length < RS_DATA_HEADER; length++)
        assert_false(rs_wire_decode_data(good, length, &back));
    const struct {
        size_t at;
        uint8_t value;
    } changes[] = {{0, 0}, {1, 0},    {2, 1},  {2, 3},   /* magic, version */
                   {3, 8}, {3, 0x80}, {7, 32}, {24, 1}}; /* flags, engine, size without FIRST */
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        memcpy(bad, good, sizeof bad);
        bad[changes[i].at] = changes[i].value;
        assert_false(rs_wire_decode_data(bad, sizeof bad, &back));
    }
}

static void ptch_req__byte_for_byte(void **state) {
    (void)state;
    const rs_message m = {.type = RS_MSG_PTCH_REQ, .nonce = NONCE, .session = 2, .ptch_req = {73, 76}};
    const uint8_t bytes[] = {32, 0, 0,  0, 5, 2, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 2, 0,
                             0,  0, 73, 0, 0, 0, 0, 0, 0,    0,    76,   0,    0,    0,    0,    0,    0, 0};
    uint8_t out[RS_HEADER_MAX];
    assert_int_equal(rs_wire_encode(&m, 0, out, sizeof out), sizeof bytes);
    assert_memory_equal(out, bytes, sizeof bytes);
}

static void sample_open(rs_message *m) {
    m->open.object = object;
    m->open.size = 10000;
    m->open.fragment_size = 999;
    m->open.first = 2;
    m->open.end = 11;
    m->open.feedback_us = 5000;
    m->open.group_address = 0xefff0001;
    m->open.data_port = 7070;
    m->open.path_kind = RS_PATH_CIRCUIT;
    m->open.light_confirm = 3;
    m->open.digest = (rs_digest){.algorithm = 2, .length = 32, .value = {9, 8, 7}};
}

static rs_message sample(rs_message_type type) {
    rs_message m;
    memset(&m, 0, sizeof m);
    m.type = type;
    m.nonce = NONCE;
    m.session = 3;
    switch (type) {
    case RS_MSG_HELLO:
        m.hello.engines = rs_engines_here();
        m.hello.boot = 77;
        m.hello.name_length = 255;
        memset(m.hello.name, 'h', 255);
        break;
    case RS_MSG_OPEN:
        sample_open(&m);
        break;
    case RS_MSG_OPEN_ACK:
        m.open_ack.status = RS_ACK_REFUSED;
        m.open_ack.room = 16 << 20;
        rs_wire_cause_set(&m.open_ack.cause, "no room");
        break;
    case RS_MSG_DATA_RCVD:
        m.data_rcvd.status = RS_RCVD_MISMATCH;
        m.data_rcvd.patched = 12;
        rs_wire_cause_set(&m.data_rcvd.cause, "chunk 3");
        break;
    case RS_MSG_ABORT:
        rs_wire_cause_set(&m.abort.cause, "enough");
        break;
    case RS_MSG_PTCH_MAP:
        m.ptch_map.from = 5;
        m.ptch_map.base = 1000;
        m.ptch_map.number = 7;
        m.ptch_map.last = true;
        m.ptch_map.bits = RS_MAP_BITS - 3;
        memset(m.ptch_map.map, 0x1f, RS_MAP_BYTES);
        break;
    case RS_MSG_LEAF_REQ:
        m.leaf_req.first = 5;
        m.leaf_req.count = 1;
        m.leaf_req.retake = true;
        break;
    case RS_MSG_LEAVES:
        m.leaves.first = 6;
        m.leaves.count = 28;
        m.leaves.width = 16;
        memset(m.leaves.bytes, 0xd1, sizeof m.leaves.bytes);
        break;
    case RS_MSG_KEY:
        m.key.epoch = UINT16_MAX;
        m.key.in_ms = 1000;
        memset(m.key.key, 0xab, sizeof m.key.key + sizeof m.key.signer);
        break;
    case RS_MSG_NAME:
        m.name.object.data = 7;
        m.name.length = RS_NAME_MAX;
        memset(m.name.text, 'n', RS_NAME_MAX);
        break;
    case RS_MSG_REPORT_TO:
        m.report_to.on = true;
        m.report_to.height = 3;
        m.report_to.sample_us = 250000;
        m.report_to.parent = (rs_wire_place){0x0a000101, 7071};
        m.report_to.count = RS_REPORT_TO_MOST;
        for (uint32_t i = 0; i < RS_REPORT_TO_MOST; i++)
            m.report_to.children[i] = (rs_wire_place){0x0a000201 + i, 7071};
        break;
    default:
        m.rate.highest = 1;
        m.rate.received = type == RS_MSG_RATE || type == RS_MSG_PTCH_REQ ? 2 : 0;
        m.rate.dropped = type == RS_MSG_RATE ? 3 : 0;
        m.rate.share_bps = type == RS_MSG_RATE ? 4 : 0;
        m.rate.at = type == RS_MSG_RATE ? 5 : 0;
        m.rate.waited = type == RS_MSG_RATE ? 6 : 0;
        m.rate.receivers = type == RS_MSG_RATE;
        if (type == RS_MSG_DATA_FNSD)
            m.rate.highest = 0;
    }
    return m;
}

static void every_message__there_and_back(void **state) {
    (void)state;
    for (int type = RS_MSG_HELLO; type <= RS_MSG_KEY; type++) {
        rs_message m = sample((rs_message_type)type), back;
        uint32_t payload = type == RS_MSG_PTCH_DATA ? 8896 : 0, cut_payload;
        uint8_t out[RS_HEADER_MAX], again[RS_HEADER_MAX];
        size_t length = rs_wire_encode(&m, payload, out, sizeof out), cut;
        memset(&back, 0, sizeof back);
        assert_true(length > 0);
        assert_true(rs_wire_decode(out, length, payload, &back));
        assert_int_equal(rs_wire_encode(&back, payload, again, sizeof again), length);
        assert_memory_equal(out, again, length);
        /* One byte less or more, or less room, is an error. */
        assert_false(rs_wire_decode(out, length - 1, payload, &back));
        assert_false(rs_wire_decode(out, length + 1, payload, &back));
        assert_int_equal(rs_wire_encode(&m, payload, again, length - 1), 0);
        /* A stream reader needs a few bytes to know where it ends. */
        for (size_t have = 0; have < RS_CONTROL_PEEK; have++)
            assert_int_equal(rs_wire_frame(out, have, &cut, &cut_payload), 0);
        assert_int_equal(rs_wire_frame(out, RS_CONTROL_PEEK, &cut, &cut_payload), 1);
        assert_int_equal(cut, length);
        assert_int_equal(cut_payload, payload);
    }
}

static bool open_passes(const rs_message *m) {
    uint8_t out[RS_HEADER_MAX];
    rs_message back;
    size_t length = rs_wire_encode(m, 0, out, sizeof out);
    return length && rs_wire_decode(out, length, 0, &back);
}

static void open__contradictions_are_refused(void **state) {
    (void)state;
    rs_message m = sample(RS_MSG_OPEN);
    assert_true(open_passes(&m));
#define REFUSED(change)      \
    m = sample(RS_MSG_OPEN); \
    change;                  \
    assert_false(open_passes(&m))
    REFUSED(m.open.fragment_size = 0);
    REFUSED(m.open.fragment_size = RS_FRAGMENT_MAX + 1);
    REFUSED(m.open.end = m.open.first);
    REFUSED(m.open.end = 12); /* 10,000 bytes are 11 fragments */
    REFUSED(m.open.first = UINT64_MAX);
    REFUSED(m.nonce = 0);
    REFUSED(m.open.group_address = 0x0a000001); /* a server's own: nobody binds a socket to it */
    REFUSED(m.open.group_address = 0xf0000001);
    REFUSED(m.open.size = RS_STREAM); /* which ends */
    REFUSED(m.open.light_confirm = 0);
    REFUSED(m.open.digest.length = 33);
    REFUSED(m.open.path_kind = RS_OPEN_NO_PATH); /* with a group */
    m = sample(RS_MSG_OPEN);
    m.open.engine = 7; /* not known here: the node says so */
    assert_true(open_passes(&m));
    m = sample(RS_MSG_OPEN);
    m.open.path_kind = 9;
    assert_true(open_passes(&m));
    m.open.size = UINT64_MAX - 1; /* absurd, but not a contradiction: the node refuses it */
    m.open.fragment_size = 1;
    assert_true(open_passes(&m));
    m.open.size = 0;
    m.open.first = 0;
    m.open.end = 1;
    assert_true(open_passes(&m)); /* an empty object has one fragment */
}

static void frame__strangers_are_turned_away(void **state) {
    (void)state;
    size_t length;
    uint32_t payload;
    const uint8_t strangers[][RS_CONTROL_PEEK] = {
        {'G', 'E', 'T', ' ', '/', ' ', 'H', 'T'},
        {0xff, 0xff, 0xff, 0xff, RS_MSG_PTCH_DATA, RS_WIRE_VERSION},
        {15, 0, 0, 0, RS_MSG_DATA_FNSD, RS_WIRE_VERSION}, /* too short */
        {40, 0, 0, 0, 0, RS_WIRE_VERSION},                /* no such types */
        {40, 0, 0, 0, RS_MSG_CARRIED + 1, RS_WIRE_VERSION},
        {0xfd, 1, 0, 0, RS_MSG_PING, RS_WIRE_VERSION}, /* too long */
        {24, 0, 0, 0, RS_MSG_PING, 1},                 /* another version */
    };
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++)
        assert_int_equal(rs_wire_frame(strangers[i], RS_CONTROL_PEEK, &length, &payload), -1);
}

/* Agents of two versions can tell each other so. */
static void hello__of_another_version_is_read(void **state) {
    (void)state;
    uint8_t out[RS_HEADER_MAX];
    size_t cut;
    uint32_t payload;
    for (int type = RS_MSG_HELLO; type <= RS_MSG_KEY; type++) {
        rs_message m = sample((rs_message_type)type), back;
        bool any_version = type == RS_MSG_HELLO || type == RS_MSG_ABORT;
        size_t length = rs_wire_encode(&m, 0, out, sizeof out - 3);
        memset(out + length, 7, 3); /* it has fields that this version does not know */
        length += 3;
        out[0] = (uint8_t)(length - RS_CONTROL_LENGTH);
        out[1] = (uint8_t)((length - RS_CONTROL_LENGTH) >> 8);
        out[5] = 9;
        assert_int_equal(rs_wire_frame(out, length, &cut, &payload), any_version ? 1 : -1);
        assert_int_equal(rs_wire_decode(out, length, 0, &back), any_version);
        assert_true(!any_version || back.version == 9);
    }
}

static void rate__has_bounds(void **state) {
    (void)state;
    uint8_t out[RS_HEADER_MAX];
    rs_message back;
    for (size_t field = 0; field < 8; field++) {
        rs_message m = sample(RS_MSG_RATE);
        uint64_t *fields[] = {&m.rate.highest,   &m.rate.received, &m.rate.repairs, &m.rate.dropped,
                              &m.rate.share_bps, &m.rate.at,       &m.rate.waited};
        if (field < 7)
            *fields[field] = INT64_MAX;
        else
            m.rate.receivers = 2; /* until reports are aggregated */
        size_t length = rs_wire_encode(&m, 0, out, sizeof out);
        assert_true(length > 0);
        assert_false(rs_wire_decode(out, length, 0, &back));
    }
}

static void ptch_map__contradictions_are_refused(void **state) {
    (void)state;
    uint8_t out[RS_HEADER_MAX];
    rs_message m = sample(RS_MSG_PTCH_MAP), back;
    size_t length = rs_wire_encode(&m, 0, out, sizeof out);
    assert_true(rs_wire_decode(out, length, 0, &back));
    out[length - 1] |= 0x20; /* a bit beyond the last one */
    assert_false(rs_wire_decode(out, length, 0, &back));
    m.ptch_map.bits = RS_MAP_BITS + 1;
    assert_int_equal(rs_wire_encode(&m, 0, out, sizeof out), 0);
    m.ptch_map.bits = 8;
    m.ptch_map.from = 1001; /* behind what it speaks of */
    length = rs_wire_encode(&m, 0, out, sizeof out);
    assert_false(rs_wire_decode(out, length, 0, &back));
}

static const rs_repair_header some_repair = {
    .done = true, .session = 0x020304, .nonce = NONCE, .number = 0x0a0b0c, .count = 3, .member = {1000, 1002, 1260}};

static void repair_header__byte_for_byte(void **state) {
    (void)state;
    uint8_t out[RS_REPAIR_HEADER];
    const uint8_t tail[] = {0xe8, 3, 0, 0, 0, 0, 0, 0, 0x0c, 0x0b, 0x0a, 3, 2, 0, 2, 1, 0, 0};
    rs_wire_encode_repair(&some_repair, out);
    assert_memory_equal(out, "\x53\x52\x02\x28\x04\x03\x02\x00\x88\x77\x66\x55\x44\x33\x22\x11", 16);
    assert_memory_equal(out + 16, tail, sizeof tail);
    assert_int_equal(rs_wire_data_header_length(out, 4), RS_REPAIR_HEADER);
}

static bool same_repair(const rs_repair_header *a, const rs_repair_header *b) {
    bool same = a->mark == b->mark && a->done == b->done && a->session == b->session && a->number == b->number &&
                a->count == b->count && a->nonce == b->nonce && a->engine == b->engine;
    for (uint32_t i = 0; same && i < a->count; i++)
        same = a->member[i] == b->member[i];
    return same;
}

/* Few members far apart, many near by, one, none. */
static void repair_header__there_and_back(void **state) {
    (void)state;
    for (uint32_t count = 0; count <= RS_COMBINE_MAX; count++) {
        rs_repair_header h = some_repair, back;
        uint8_t out[RS_REPAIR_HEADER];
        h.count = count;
        h.mark = count == 0;
        h.member[0] = UINT64_C(1) << 27;
        for (uint32_t i = 1; i < count; i++)
            h.member[i] = h.member[i - 1] + (count > RS_REPAIR_SPARSE ? RS_REPAIR_NEAR : RS_REPAIR_FAR);
        rs_wire_encode_repair(&h, out);
        assert_true(rs_wire_decode_repair(out, sizeof out, &back));
        assert_true(same_repair(&h, &back));
        assert_false(rs_wire_decode_repair(out, sizeof out - 1, &back));
        assert_false(rs_wire_decode_data(out, RS_DATA_HEADER, &(rs_data_header){0}));
    }
}

static void repair_header__bad_ones_are_refused(void **state) {
    (void)state;
    /* offset and value of one byte of a good one */
    static const struct {
        size_t at;
        uint8_t value;
    } bad[] = {
        {0, 0},     {2, 1},  {3, 0x20}, {3, 0x29},  {7, 32},  /* magic, version, no repair, an unknown combination */
        {23, 0xff}, {27, 4}, {27, 2},   {27, 12},   {27, 22}, /* sn out of bounds; other numbers of members */
        {27, 0x83}, {28, 0}, {47, 1},   {27, 0xff},           /* short form for few; twice the same; one too many */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rs_repair_header back;
        uint8_t out[RS_REPAIR_HEADER];
        rs_wire_encode_repair(&some_repair, out);
        assert_true(rs_wire_decode_repair(out, sizeof out, &back));
        out[bad[i].at] = bad[i].value;
        assert_false(rs_wire_decode_repair(out, sizeof out, &back));
    }
    rs_repair_header none = {.number = 1}; /* neither members nor a mark */
    uint8_t out[RS_REPAIR_HEADER];
    rs_wire_encode_repair(&none, out);
    assert_false(rs_wire_decode_repair(out, sizeof out, &none));
}

static void cause__is_cut_at_its_bound(void **state) {
    (void)state;
    char text[400];
    rs_wire_cause cause;
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    rs_wire_cause_set(&cause, text);
    assert_int_equal(cause.length, RS_CAUSE_MAX - 1);
    assert_int_equal(strlen(cause.text), RS_CAUSE_MAX - 1);
    rs_wire_cause_set(&cause, NULL);
    assert_int_equal(cause.length, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_header__byte_for_byte),
        cmocka_unit_test(data_header__bad_ones_are_refused),
        cmocka_unit_test(ptch_req__byte_for_byte),
        cmocka_unit_test(every_message__there_and_back),
        cmocka_unit_test(open__contradictions_are_refused),
        cmocka_unit_test(frame__strangers_are_turned_away),
        cmocka_unit_test(hello__of_another_version_is_read),
        cmocka_unit_test(rate__has_bounds),
        cmocka_unit_test(cause__is_cut_at_its_bound),
        cmocka_unit_test(ptch_map__contradictions_are_refused),
        cmocka_unit_test(repair_header__byte_for_byte),
        cmocka_unit_test(repair_header__there_and_back),
        cmocka_unit_test(repair_header__bad_ones_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
