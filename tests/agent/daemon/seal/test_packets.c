/* Packet I/O that seals: whatever the back end gives, and takes, and wherever payloads belong, what was sent is what
 * comes, once; what was not sealed, or was touched, nobody hears of. */
#include "daemon/seal/packets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/random.h"
#include "core/base/wire.h"
#include "core/groups/wire.h"
#include "io/guard.h"

#define GROUP 0xefff0001u
#define PORT 7070
#define NONCE 77
#define WIRE 512u
#define FRAGMENT 1408u

static const uint8_t key[32] = {1, 2, 3};

/* A back end without a network: what is sent waits here, and is given as sockets do or as rings do. */
typedef struct {
    rs_io base;
    bool whole;
    unsigned room; /* datagrams that a send call takes */
    uint8_t datagrams[WIRE][FRAGMENT + 200];
    size_t lengths[WIRE];
    unsigned count, given;
} fake_io;

static int fake_send(rs_io *base, const rs_io_packet *packets, unsigned count) {
    fake_io *io = (fake_io *)base;
    unsigned taken = count < io->room ? count : io->room;
    for (unsigned i = 0; i < taken; i++) {
        assert_true(io->count < WIRE);
        uint8_t *at = io->datagrams[io->count];
        memcpy(at, packets[i].header, packets[i].header_length);
        memcpy(at + packets[i].header_length, packets[i].payload, packets[i].payload_length);
        io->lengths[io->count++] = packets[i].header_length + packets[i].payload_length;
    }
    return (int)taken;
}

static int fake_receive(rs_io *base, unsigned limit, const rs_io_sink *sink) {
    fake_io *io = (fake_io *)base;
    unsigned count = 0;
    uint8_t *places[WIRE];
    unsigned from = io->given;
    assert_null(sink->predict);
    for (; io->given < io->count && count < limit; count++, io->given++) {
        size_t length = io->lengths[io->given], head = length < RS_IO_HEADER_BYTES ? length : RS_IO_HEADER_BYTES;
        uint8_t copy[RS_IO_HEADER_BYTES];
        memcpy(copy, io->datagrams[io->given], head);
        places[count] = sink->deliver(sink->context, 5, io->whole ? io->datagrams[io->given] : copy, head,
                                      (uint32_t)(length - head));
    }
    for (unsigned i = 0; i < count; i++)
        if (places[i] && io->lengths[from + i] > RS_IO_HEADER_BYTES)
            memcpy(places[i], io->datagrams[from + i] + RS_IO_HEADER_BYTES, io->lengths[from + i] - RS_IO_HEADER_BYTES);
    return (int)count;
}

static bool fake_join(rs_io *base, rs_io_group group, uint32_t address, uint16_t port, char *error) {
    (void)base;
    (void)error;
    return group == 5 && address == GROUP && port == PORT;
}

static void fake_close(rs_io *base) {
    (void)base;
}

/* Each datagram is of another address: by how many are taken already. */
static uint32_t fake_source(const rs_io *base) {
    return 1000 + ((const fake_io *)base)->given;
}

static const rs_io_ops fake_ops = {.name = "fake",
                                   .send = fake_send,
                                   .receive = fake_receive,
                                   .join = fake_join,
                                   .close = fake_close,
                                   .source = fake_source};

/* Where fragments belong: fragment n at n * FRAGMENT. */
typedef struct {
    uint8_t *object;
    unsigned expected; /* what is predicted */
    unsigned came[WIRE];
    unsigned count;
    unsigned late;
    const rs_io *from;
    bool predicts;
} receiver;

static bool predict(void *context, rs_io_group group, uint32_t ahead, uint8_t **place, uint32_t *length) {
    receiver *r = context;
    assert_int_equal(group, 5);
    unsigned n = r->expected + ahead;
    while (n < WIRE && r->came[n]) /* what is there must not be written over */
        n++;
    *place = r->object + (size_t)n * FRAGMENT;
    *length = FRAGMENT;
    return n < WIRE;
}

static uint8_t *deliver(void *context, rs_io_group group, const uint8_t *header, size_t header_length,
                        uint32_t payload_length) {
    receiver *r = context;
    unsigned n = header[16] | (unsigned)header[17] << 8;
    assert_int_equal(group, 5);
    assert_int_equal(header_length, RS_IO_HEADER_BYTES);
    assert_int_equal(header[3] & RS_DATA_SEALED, 0);
    assert_true(n < WIRE && payload_length <= FRAGMENT);
    r->late += rs_io_late(r->from);
    if (rs_io_late(r->from) && r->came[n]) /* as rs_receive does */
        return NULL;
    r->came[n]++;
    r->count++;
    r->expected = n + 1;
    if (!r->predicts) /* in one piece */
        memcpy(r->object + (size_t)n * FRAGMENT, header + RS_IO_HEADER_BYTES, payload_length);
    return r->predicts ? r->object + (size_t)n * FRAGMENT : NULL;
}

typedef struct {
    fake_io wire;
    rs_keyring *from, *to;
    rs_seal *sends; /* of the transfer */
    rs_io *out, *in;
    receiver receiver;
    uint8_t *object;
    uint8_t headers[WIRE][48];
    rs_io_packet packets[WIRE];
} rig;

static rig *start(bool whole, bool predicts) {
    rig *r = calloc(1, sizeof *r);
    char error[RS_IO_ERROR_MAX];
    r->wire.base.ops = &fake_ops;
    r->wire.whole = whole;
    r->wire.room = RS_IO_BATCH;
    r->from = rs_keyring_new(rs_cipher_here());
    r->to = rs_keyring_new(rs_cipher_here());
    r->sends = rs_keyring_take(r->from, RS_KEYS_TRANSFER_OUT, NONCE, 0);
    rs_seal *takes = rs_keyring_take(r->to, RS_KEYS_TRANSFER_IN, NONCE, 0);
    assert_true(rs_seal_learn(r->sends, 7, key, 0, 0) && rs_seal_learn(takes, 7, key, 0, 0));
    r->out = rs_seal_io(&r->wire.base, r->from, RS_SEAL_DATA, true);
    r->in = rs_seal_io(&r->wire.base, r->to, RS_SEAL_DATA, whole);
    assert_true(r->out && r->in && rs_io_join(r->in, 5, GROUP, PORT, error));
    assert_false(rs_io_join(r->in, RS_IO_GROUPS_MAX, GROUP, PORT, error));
    r->object = calloc(WIRE, FRAGMENT);
    r->receiver = (receiver){.object = calloc(WIRE, FRAGMENT), .from = r->in, .predicts = predicts};
    uint64_t random = 1;
    for (size_t i = 0; i < (size_t)WIRE * FRAGMENT; i++)
        r->object[i] = (uint8_t)rs_random_next(&random);
    for (unsigned i = 0; i < WIRE; i++) {
        r->headers[i][0] = 0x53;
        r->headers[i][1] = 0x52;
        r->headers[i][2] = 2;
        r->headers[i][8] = NONCE;
        r->headers[i][16] = (uint8_t)i;
        r->headers[i][17] = (uint8_t)(i >> 8);
        r->packets[i] = (rs_io_packet){.address = GROUP,
                                       .port = PORT,
                                       .header = r->headers[i],
                                       .header_length = RS_IO_HEADER_BYTES,
                                       .payload = r->object + (size_t)i * FRAGMENT,
                                       .payload_length = FRAGMENT};
    }
    return r;
}

static void stop(rig *r) {
    rs_io_close(r->out);
    rs_io_close(r->in);
    rs_keyring_free(r->from);
    rs_keyring_free(r->to);
    free(r->object);
    free(r->receiver.object);
    free(r);
}

static void receive(rig *r) {
    const rs_io_sink sink = {
        .predict = r->receiver.predicts ? predict : NULL, .deliver = deliver, .context = &r->receiver};
    while (rs_io_receive(r->in, 64, &sink) > 0)
        ;
}

static uint64_t seed_of_run(void) {
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* In any order, some twice, some not at all, some changed: those that came are where they belong. */
static void packets__come_as_they_were_sent(void **state) {
    (void)state;
    uint64_t random = seed_of_run();
    for (unsigned way = 0; way < 3; way++) {
        rig *r = start(way != 1, way != 2);
        for (unsigned sent = 0; sent < WIRE;)
            sent += (unsigned)rs_io_send(r->out, r->packets + sent, WIRE - sent);
        assert_int_equal(r->wire.count, WIRE);
        bool lost[WIRE] = {false};
        for (unsigned i = 0; i < WIRE; i++) {
            unsigned other = i + (unsigned)(rs_random_next(&random) % 8);
            other = other < WIRE ? other : WIRE - 1;
            for (size_t k = 0; k < r->wire.lengths[i]; k++) {
                uint8_t byte = r->wire.datagrams[i][k];
                r->wire.datagrams[i][k] = r->wire.datagrams[other][k];
                r->wire.datagrams[other][k] = byte;
            }
        }
        for (unsigned i = 0; i < WIRE; i++) {
            uint8_t *d = r->wire.datagrams[i];
            unsigned n = d[16] | (unsigned)d[17] << 8;
            assert_true(d[3] & RS_DATA_SEALED);
            switch (rs_random_next(&random) % 8) {
            case 0: /* changed */
                d[rs_random_next(&random) % r->wire.lengths[i]] ^= (uint8_t)(1u << rs_random_next(&random) % 8);
                lost[n] = true;
                break;
            case 1: /* another one comes a second time in its stead */
                if (i > 0)
                    memcpy(d, r->wire.datagrams[i - 1], r->wire.lengths[i]);
                lost[n] |= i > 0;
                break;
            default:
                break;
            }
        }
        receive(r);
        for (unsigned i = 0; i < WIRE; i++) {
            assert_int_equal(r->receiver.came[i], !lost[i]);
            if (!lost[i])
                assert_memory_equal(r->receiver.object + (size_t)i * FRAGMENT, r->object + (size_t)i * FRAGMENT,
                                    FRAGMENT);
        }
        stop(r);
    }
}

/* One of the receivers sends a packet far ahead in the sender's name: what the sender itself sends comes as before, and
 * what comes behind that is told as late, whatever it is. */
static void packets__behind_a_leap_of_another_receivers_are_taken(void **state) {
    (void)state;
    enum { FIRST = 100, MORE = 200 };
    rig *r = start(true, true);
    for (unsigned sent = 0; sent < FIRST;)
        sent += (unsigned)rs_io_send(r->out, r->packets + sent, FIRST - sent);
    rs_keyring *liar = rs_keyring_new(rs_cipher_here());
    rs_seal *lies = rs_keyring_take(liar, RS_KEYS_TRANSFER_OUT, NONCE, 0);
    assert_true(rs_seal_learn(lies, 7, key, 0, 0));
    rs_seal_skip(lies, 1 << 30);
    rs_io *false_one = rs_seal_io(&r->wire.base, liar, RS_SEAL_DATA, true);
    assert_int_equal(rs_io_send(false_one, r->packets + WIRE - 1, 1), 1);
    for (unsigned sent = FIRST; sent < MORE;)
        sent += (unsigned)rs_io_send(r->out, r->packets + sent, MORE - sent);
    receive(r);
    for (unsigned i = 0; i < MORE; i++) {
        assert_int_equal(r->receiver.came[i], 1);
        assert_memory_equal(r->receiver.object + (size_t)i * FRAGMENT, r->object + (size_t)i * FRAGMENT, FRAGMENT);
    }
    rs_seal_stats stats;
    rs_keyring_stats(r->to, &stats);
    assert_int_equal(stats.late, MORE - FIRST);
    assert_int_equal(r->receiver.late, MORE - FIRST);
    assert_int_equal(stats.opened[RS_SEAL_REPLAYED], 0);
    rs_io_close(false_one);
    rs_keyring_free(liar);
    stop(r);
}

static void packets__that_are_not_sealed_are_heard_by_nobody(void **state) {
    (void)state;
    rig *r = start(true, true);
    assert_int_equal(rs_io_send(&r->wire.base, r->packets, 10), 10);
    receive(r);
    assert_int_equal(r->receiver.count, 0);
    rs_seal_stats stats;
    rs_keyring_stats(r->to, &stats);
    assert_int_equal(stats.opened[RS_SEAL_PLAIN], 10);
    stop(r);
}

/* The NIC's queue is full again and again: nothing is sealed twice, and what waited too long is sealed anew. */
static void packets__that_wait_are_sealed_once(void **state) {
    (void)state;
    rig *r = start(true, true);
    r->wire.room = 7;
    for (unsigned sent = 0; sent < WIRE;)
        sent += (unsigned)rs_io_send(r->out, r->packets + sent, WIRE - sent);
    assert_int_equal(rs_seal_counter(r->sends), WIRE);
    receive(r);
    assert_int_equal(r->receiver.count, WIRE);
    r->wire.count = r->wire.given = 0;
    r->wire.room = 0;
    assert_int_equal(rs_io_send(r->out, r->packets, 3), 0);
    uint8_t other[FRAGMENT + 200];
    for (unsigned i = 0; i < RS_SEAL_WINDOW; i++) /* by the same transmitter, on another way */
        assert_true(rs_seal_close(r->sends, (rs_seal_place){1, 1}, 0, other, 8, NULL, 0, other + 8));
    r->wire.room = 50;
    uint64_t before = rs_seal_counter(r->sends);
    assert_int_equal(rs_io_send(r->out, r->packets, 3), 3);
    assert_int_equal(rs_seal_counter(r->sends), before + 3);
    /* and what others send instead is not taken for it */
    r->wire.room = 0;
    assert_int_equal(rs_io_send(r->out, r->packets + 10, 3), 0);
    r->wire.room = 50;
    assert_int_equal(rs_io_send(r->out, r->packets + 11, 3), 3);
    memset(r->receiver.came, 0, sizeof r->receiver.came);
    receive(r);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(r->receiver.came[i], i < 3 || (i >= 11 && i < 14));
    stop(r);
}

static void packets__without_a_key_are_lost(void **state) {
    (void)state;
    rig *r = start(true, true);
    r->headers[3][8] = NONCE + 1; /* of a transfer without a key, among others */
    for (unsigned sent = 0; sent < 20;)
        sent += (unsigned)rs_io_send(r->out, r->packets + sent, 20 - sent);
    assert_int_equal(r->wire.count, 19);
    rs_seal_stats stats;
    rs_keyring_stats(r->from, &stats);
    assert_int_equal(stats.unsealable, 1);
    stop(r);
}

/* A receiver of one transfer has no use of its key in another one, and a stranger to both has of none. */
static void packets__of_another_transfer_are_heard_by_nobody(void **state) {
    (void)state;
    rig *r = start(true, true);
    const uint8_t other[32] = {9};
    assert_true(rs_seal_learn(rs_keyring_take(r->to, RS_KEYS_TRANSFER_IN, NONCE + 1, 0), 7, other, 0, 0));
    rs_seal *liar = rs_seal_new(rs_cipher_here()); /* has the other one's key, and says that it is of this one */
    assert_true(rs_seal_learn(liar, 7, other, 0, 0));
    uint8_t packet[RS_IO_HEADER_BYTES + 100 + RS_SEAL_MORE];
    for (unsigned own = 0; own < 2; own++) {
        const rs_io_packet forged = {.address = GROUP,
                                     .port = PORT,
                                     .header = packet,
                                     .header_length = 32,
                                     .payload = packet + 32,
                                     .payload_length = sizeof packet - 32};
        r->headers[0][3] = RS_DATA_SEALED;
        r->headers[0][8] = own ? NONCE + 2 : NONCE;
        assert_true(rs_seal_close(liar, (rs_seal_place){GROUP, PORT}, 32, r->headers[0], 32, r->object, 100, packet));
        assert_int_equal(rs_io_send(&r->wire.base, &forged, 1), 1);
    }
    receive(r);
    assert_int_equal(r->receiver.count, 0);
    rs_seal_stats stats;
    rs_keyring_stats(r->to, &stats);
    assert_int_equal(stats.opened[RS_SEAL_FORGED], 1);
    assert_int_equal(stats.opened[RS_SEAL_SCOPE], 1);
    rs_seal_free(liar);
    stop(r);
}

/* ------------------------------------------------------------------------------------------------- group messages */

#define MESSAGES 200u
#define GROUP_NUMBER 77u

typedef struct {
    const rs_io *from;
    const uint8_t (*sent)[FRAGMENT + 100];
    const size_t *lengths;
    const bool *spoiled;
    unsigned next, count;
} listener;

/* What was not spoiled, in the order it was sent in, each with the address it came from. */
static uint8_t *listen(void *context, rs_io_group group, const uint8_t *header, size_t header_length,
                       uint32_t payload_length) {
    listener *l = context;
    assert_int_equal(group, 5);
    while (l->next < MESSAGES && l->spoiled[l->next])
        l->next++;
    assert_true(l->next < MESSAGES);
    assert_int_equal(header_length + payload_length, l->lengths[l->next]);
    assert_memory_equal(header, l->sent[l->next], l->lengths[l->next]);
    assert_int_equal(rs_io_source(l->from), 1000 + l->next);
    assert_false(rs_io_late(l->from));
    l->next++;
    l->count++;
    return NULL;
}

/* Several are opened before the first is given. */
static void messages__come_in_order_and_from_whom_they_are(void **state) {
    (void)state;
    uint64_t random = seed_of_run();
    static uint8_t sent[MESSAGES][FRAGMENT + 100];
    for (unsigned way = 0; way < 2; way++) {
        rig *r = start(way == 0, false);
        rs_io_close(r->out);
        rs_io_close(r->in);
        r->out = rs_seal_io(&r->wire.base, r->from, RS_SEAL_MESSAGES, true);
        r->in = rs_seal_io(&r->wire.base, r->to, RS_SEAL_MESSAGES, way == 0);
        char error[RS_IO_ERROR_MAX];
        assert_true(r->out && r->in && rs_io_join(r->in, 5, GROUP, PORT, error));
        assert_true(rs_seal_learn(rs_keyring_take(r->from, RS_KEYS_GROUP, GROUP_NUMBER, 0), 7, key, 256, 0));
        assert_true(rs_seal_learn(rs_keyring_take(r->to, RS_KEYS_GROUP, GROUP_NUMBER, 0), 7, key, 512, 0));
        size_t lengths[MESSAGES];
        bool spoiled[MESSAGES];
        unsigned right = 0;
        for (unsigned i = 0; i < MESSAGES; i++) {
            lengths[i] = RS_GM_HEADER + rs_random_next(&random) % (i % 3 ? 60 : FRAGMENT);
            for (size_t k = RS_GM_HEADER; k < lengths[i]; k++)
                sent[i][k] = (uint8_t)rs_random_next(&random);
            const rs_gm_id id = {.sender = 1, .group = GROUP_NUMBER, .sn = i + 1};
            rs_gm_put_header(sent[i], RS_GM_KIND_DATA, &id);
            const rs_io_packet packet = {.address = GROUP,
                                         .port = PORT,
                                         .header = sent[i],
                                         .header_length = RS_GM_HEADER,
                                         .payload = sent[i] + RS_GM_HEADER,
                                         .payload_length = (uint32_t)lengths[i] - RS_GM_HEADER};
            assert_int_equal(rs_io_send(r->out, &packet, 1), 1);
            spoiled[i] = rs_random_next(&random) % 5 == 0;
            right += !spoiled[i];
            if (spoiled[i])
                r->wire.datagrams[i][r->wire.lengths[i] - 1 - rs_random_next(&random) % 16] ^= 1;
        }
        listener l = {
            .from = r->in, .sent = (const uint8_t(*)[FRAGMENT + 100]) sent, .lengths = lengths, .spoiled = spoiled};
        const rs_io_sink sink = {.deliver = listen, .context = &l};
        while (rs_io_receive(r->in, 64, &sink) > 0)
            ;
        assert_int_equal(l.count, right);
        rs_seal_stats stats;
        rs_keyring_stats(r->to, &stats);
        assert_int_equal(stats.opened[RS_SEAL_RIGHT], right);
        assert_int_equal(stats.opened[RS_SEAL_FORGED], MESSAGES - right);
        stop(r);
    }
}

/* An application shortens the file that an object lies in, here or there. */
static void files__that_were_shortened_end_nothing(void **state) {
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 64 * page;
    assert_true(rs_guard_start());
    for (unsigned at_sender = 0; at_sender < 2; at_sender++) {
        rig *r = start(true, true);
        int fd = memfd_create("object", 0);
        assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
        uint8_t *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(map != MAP_FAILED);
        uint8_t *own = r->receiver.object;
        if (at_sender)
            for (unsigned i = 2; i < 5; i++)
                r->packets[i].payload = map + i * page;
        else
            r->receiver.object = map;
        assert_int_equal(ftruncate(fd, 0), 0);
        if (at_sender) {
            assert_int_equal(rs_io_send(r->out, r->packets, 5), 2);
            assert_int_equal(rs_io_send(r->out, r->packets + 2, 3), RS_IO_UNREADABLE);
            assert_int_equal(rs_io_send(r->out, r->packets + 5, 3), 3); /* the others go on */
        } else {
            assert_int_equal(rs_io_send(r->out, r->packets, 5), 5);
        }
        receive(r);
        assert_int_equal(r->receiver.count, 5);
        r->receiver.object = own;
        munmap(map, bytes);
        close(fd);
        stop(r);
    }
    rs_guard_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packets__come_as_they_were_sent),
        cmocka_unit_test(packets__behind_a_leap_of_another_receivers_are_taken),
        cmocka_unit_test(packets__that_are_not_sealed_are_heard_by_nobody),
        cmocka_unit_test(packets__that_wait_are_sealed_once),
        cmocka_unit_test(packets__without_a_key_are_lost),
        cmocka_unit_test(packets__of_another_transfer_are_heard_by_nobody),
        cmocka_unit_test(messages__come_in_order_and_from_whom_they_are),
        cmocka_unit_test(files__that_were_shortened_end_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
