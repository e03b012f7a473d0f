/* What a carrier says of the sender, or anybody of a receiver that has no connection, and is not so: it costs time, and
 * nobody's object (docs/feedback.md, "Carried messages"; transfer/proof.h). */
#include "check.h"

#include "racks.h"

#include <string.h>

#include "core/base/keyed_hash.h"
#include "core/feedback/report.h"

#define CARRIER 4u /* head of the first rack that is not the sender's */

static const rs_config many = {
    .fragment_size = 8896,
    .nic_rate_bps = GIGABIT,
    .direct_receivers = 2,
    .feedback_arity = 2,
    .carries = true,
    .directory = {.peer_at = racks_peer_at, .place_of = racks_place_of, .host_bits = RACKS_BITS}};

static const rs_digest right = {.algorithm = 1, .length = 16, .value = {1, 2, 3, 4}};

static void assert_all_are_done(const net *n) {
    assert_int_equal(complete(n), SERVERS - 1);
    assert_int_equal(net_events(n, 0, RS_EV_PEER_DONE, ANYONE), SERVERS - 1);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
}

static bool connected(const net *n, rs_peer i) {
    return net_event(n, 0, RS_EV_PEER_WANTED, i) || net_event(n, i, RS_EV_PEER_WANTED, 0);
}

/* What carriers make of an OPEN that they carry: its size, fragments, digest, and path. */
typedef enum { SMALLER, LARGER, ENDLESS, FINER, DIGEST, NO_DIGEST, GROUP, PORT, RING, LIES } lie;

typedef struct {
    lie lie;
    rs_peer only; /* ANYONE: to all */
    uint32_t told;
    uint8_t bytes[RS_HEADER_MAX];
} liar;

static void falsify(rs_message *open, lie what) {
    switch (what) {
    case SMALLER:
        open->open.size /= 2;
        open->open.end = (open->open.end + 1) / 2;
        break;
    case LARGER:
        open->open.size *= 2;
        open->open.end *= 2;
        break;
    case ENDLESS:
        open->open.size = UINT64_C(1) << 41;
        break;
    case FINER:
        open->open.fragment_size /= 2;
        open->open.end *= 2;
        break;
    case DIGEST:
        open->open.digest.value[15] ^= 1;
        break;
    case NO_DIGEST:
        open->open.digest.length = 0;
        break;
    case GROUP:
        open->open.group_address ^= 1u << 20;
        break;
    case PORT:
        open->open.data_port ^= 1;
        break;
    default:
        open->open.first++;
        break;
    }
}

static bool carried_open(const rs_packet_in *in, rs_message *m, rs_message *open) {
    return rs_wire_decode(in->header, in->header_length, 0, m) && m->type == RS_MSG_CARRIED &&
           rs_wire_inner_get(&m->carried.inner, m->nonce, m->session, open) && open->type == RS_MSG_OPEN;
}

static bool lies(net *n, rs_peer from, rs_peer to, rs_packet_in *in, void *context) {
    liar *l = context;
    rs_message m, open;
    (void)n, (void)from;
    if ((l->only != ANYONE && to != l->only) || !carried_open(in, &m, &open))
        return false;
    falsify(&open, l->lie);
    assert_true(rs_wire_inner_set(&m.carried.inner, &open));
    in->header_length = rs_wire_encode(&m, 0, l->bytes, sizeof l->bytes);
    in->header = l->bytes;
    l->told++;
    return false;
}

static net *begin(uint64_t seed, liar *l, net_tamper tamper) {
    net *n = net_new(SERVERS, &many, seed);
    net_digest(n, right);
    net_knob(n)->tamper = tamper;
    net_knob(n)->tamper_context = l;
    net_send_all(n, 1, OBJECT);
    return n;
}

static void carriers_make_up_what_is_sent__it_starts_over(void **state) {
    (void)state;
    for (lie what = SMALLER; what < LIES; what++)
        for (int all = 0; all < 2; all++) {
            liar l = {.lie = what, .only = all ? ANYONE : 13};
            net *n = begin(50 + what, &l, lies);
            net_at(n, 20 * SEC);
            assert_true(l.told > 0);
            assert_all_are_done(n);
            assert_true(connected(n, 13));
            rs_incoming info;
            assert_int_equal(rs_incoming_info(net_node(n, 13), net_receiving(n, 13), &info), RS_ERR_UNKNOWN);
            assert_true(all || net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START < 2 * SEC);
            net_free(n);
        }
}

/* What is not so is refused, or is here already; what the sender has is neither. */
static void made_up_and_turned_away__the_senders_own_is_taken(void **state) {
    (void)state;
    const net_app answers[] = {APP_REFUSES, APP_HAS_IT};
    for (size_t k = 0; k < sizeof answers / sizeof answers[0]; k++) {
        liar l = {.lie = k ? DIGEST : ENDLESS, .only = 13};
        net *n = begin(60 + k, &l, lies);
        net_application(n, 13, answers[k]);
        rs_time at = 0;
        while (!net_event(n, 13, RS_EV_INCOMING, ANYONE))
            net_at(n, at += 10 * US);
        net_application(n, 13, APP_ACCEPTS);
        net_at(n, 10 * SEC);
        assert_true(l.told > 0);
        assert_all_are_done(n);
        assert_false(net_event(n, 0, RS_EV_PEER_DONE, 13)->event.had_it);
        net_free(n);
    }
}

/* One that is true is turned away as by a connection. */
static void true_and_turned_away(void **state) {
    (void)state;
    net *n = begin(62, NULL, NULL);
    net_application(n, 13, APP_REFUSES);
    net_application(n, 14, APP_HAS_IT);
    net_at(n, 10 * SEC);
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 13)->event.cause, "quota of 1 GB is used up"));
    assert_true(net_event(n, 0, RS_EV_PEER_DONE, 14)->event.had_it);
    assert_int_equal(complete(n), SERVERS - 3);
    net_free(n);
}

/* The digest follows, and carriers say another: the receivers' callers hear of the sender's only. */
static void carriers_make_up_the_digest_that_follows(void **state) {
    (void)state;
    for (int before = 0; before < 2; before++)
        for (int false_one = 0; false_one < 2; false_one++) {
            rs_digest follows = {.algorithm = 1};
            liar l = {.lie = DIGEST, .only = ANYONE};
            net *n = net_new(SERVERS, &many, 63);
            net_digest(n, follows);
            rs_xfer xfer = net_send_all(n, 1, OBJECT);
            net_at(n, before ? 200 * MS : 700 * MS);
            if (false_one) {
                net_knob(n)->tamper = lies;
                net_knob(n)->tamper_context = &l;
            }
            net_call(n, 0, rs_send_digest(net_node(n, 0), net_knob(n)->now, xfer, &right));
            for (rs_time at = before ? 200 * MS : 700 * MS; at < 900 * MS; at += MS) {
                net_at(n, at);
                for (rs_peer i = 1; i < SERVERS; i++) {
                    rs_incoming info;
                    if (rs_incoming_info(net_node(n, i), net_receiving(n, i), &info) == RS_OK && info.digest.length)
                        assert_memory_equal(info.digest.value, right.value, right.length);
                }
            }
            net_at(n, 10 * SEC);
            assert_all_are_done(n);
            uint32_t connections = 0;
            for (rs_peer i = 1; i < SERVERS; i++)
                connections += connected(n, i);
            assert_int_equal(connections > 2, false_one);
            net_free(n);
        }
}

/* It says that one has accepted and has light, and keeps from it all that is said. */
static bool swallows(net *n, rs_peer from, rs_peer to, rs_packet_in *in, void *context) {
    rs_message m;
    (void)n, (void)context;
    return (from == 13 || to == 13) && rs_wire_decode(in->header, in->header_length, 0, &m) && m.type == RS_MSG_CARRIED;
}

static void carrier_keeps_all_from_one_and_answers_for_it(void **state) {
    (void)state;
    net *n = begin(64, NULL, swallows);
    net_at(n, 1500 * US);
    uint64_t nonce = net_message(n, 0, CARRIER, RS_MSG_OPEN, 0)->message.nonce;
    for (rs_time at = 1500 * US; at < 30 * SEC; at += at < 10 * MS ? 500 * US : 100 * MS) {
        const rs_message lies_of_it[] = {{.type = RS_MSG_OPEN_ACK, .nonce = nonce},
                                         {.type = RS_MSG_INTL_SEQ, .nonce = nonce},
                                         {.type = RS_MSG_PONG, .nonce = nonce}};
        for (size_t k = 0; k < 3; k++)
            for (rs_peer head = CARRIER; head < SERVERS; head += 4) {
                rs_message m = {.type = RS_MSG_CARRY, .nonce = nonce};
                uint8_t bytes[RS_HEADER_MAX];
                m.carry.bytes = 2;
                m.carry.set[0] = m.carry.set[1] = 0xff;
                rs_wire_inner_set(&m.carry.inner, &lies_of_it[k]);
                const rs_packet_in in = {.channel = RS_CH_PEER_RELIABLE,
                                         .peer = head,
                                         .group = RS_NO_GROUP,
                                         .header = bytes,
                                         .header_length = rs_wire_encode(&m, 0, bytes, sizeof bytes)};
                if (connected(n, head) && !net_event(n, 0, RS_EV_SEND_DONE, ANYONE))
                    rs_receive(net_node(n, 0), net_knob(n)->now, &in);
            }
        net_at(n, at);
    }
    assert_all_are_done(n);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START < 6 * SEC);
    net_free(n);
}

static void hand_in_datagram(net *n, rs_peer to, rs_peer from, const uint8_t *bytes, size_t length) {
    const rs_packet_in in = {
        .channel = RS_CH_PEER_DATAGRAM, .peer = from, .group = RS_NO_GROUP, .header = bytes, .header_length = length};
    assert_true(length > 0);
    rs_receive(net_node(n, to), net_knob(n)->now, &in);
}

/* A datagram's source is easily forged. */
static void datagrams_in_a_receivers_name__nobody_is_done_by_them(void **state) {
    (void)state;
    net *n = begin(65, NULL, NULL);
    net_at(n, 300 * MS);
    uint64_t nonce = net_message(n, 0, CARRIER, RS_MSG_OPEN, 0)->message.nonce;
    const rs_message whole = {.type = RS_MSG_DATA_RCVD, .nonce = nonce};
    rs_message slow = {.type = RS_MSG_RATE, .nonce = nonce, .rate = {.share_bps = 1000, .receivers = 1}};
    for (rs_peer i = 1; i < SERVERS; i++)
        for (uint64_t token = 0; token < 4; token++) {
            const rs_said_proof proof = {.token = token, .challenge = token};
            uint8_t bytes[RS_HEADER_MAX];
            hand_in_datagram(n, 0, i, bytes, rs_said_encode(&whole, &proof, bytes));
            hand_in_datagram(n, 0, i, bytes, rs_said_encode(&slow, &proof, bytes));
        }
    net_call(n, 0, RS_OK);
    net_at(n, 310 * MS);
    assert_int_equal(net_events(n, 0, RS_EV_PEER_DONE, ANYONE), 0);
    net_at(n, 5 * SEC);
    assert_all_are_done(n);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START < 600 * MS);
    net_free(n);
}

typedef struct {
    uint64_t challenges[SERVERS], tokens[SERVERS];
    uint32_t asks, answers;
} proofs;

static void see(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                size_t length, void *context) {
    proofs *p = context;
    rs_message m;
    rs_said_proof said;
    rs_told told;
    (void)n;
    if (arrives || channel != RS_CH_PEER_DATAGRAM)
        return;
    if (rs_said_decode(header, length, &m, &said) && m.type == RS_MSG_PING) {
        p->challenges[from] = said.challenge;
        p->asks++;
    }
    if (rs_told_decode(header, length, &told)) {
        assert_true(told.challenge == p->challenges[to]);
        p->tokens[to] = told.token;
        p->answers++;
    }
}

/* Each is told another number, and asks with another one; once, where nothing is lost. */
static void each_has_a_number_of_its_own(void **state) {
    (void)state;
    proofs p = {0};
    net *n = net_new(SERVERS, &many, 66);
    net_knob(n)->watch = see;
    net_knob(n)->watch_context = &p;
    net_send_all(n, 1, OBJECT);
    net_at(n, 5 * SEC);
    assert_all_are_done(n);
    assert_int_equal(p.asks, SERVERS - 1 - 2);
    assert_int_equal(p.answers, p.asks);
    for (rs_peer i = 1; i < SERVERS; i++)
        for (rs_peer k = 1; k < i; k++)
            assert_true(!p.tokens[i] || (p.tokens[i] != p.tokens[k] && p.challenges[i] != p.challenges[k]));
    net_free(n);
}

/* The sender's answers never come, or what comes is not the sender's: it is asked by a connection. */
static void answers_are_lost_or_forged(void **state) {
    (void)state;
    for (int forged = 0; forged < 2; forged++) {
        net *n = begin(67, NULL, NULL);
        net_knob(n)->peer_loss = forged ? 0 : 1;
        uint64_t nonce = 1;
        for (rs_time at = 1300 * US; forged && at < 40 * MS; at += 100 * US) {
            net_at(n, at);
            if (net_message(n, 0, CARRIER, RS_MSG_OPEN, 0))
                nonce = net_message(n, 0, CARRIER, RS_MSG_OPEN, 0)->message.nonce;
            const rs_told told = {.nonce = nonce, .challenge = 1 + (uint64_t)at, .token = 4711, .print = 4711};
            uint8_t bytes[RS_TOLD_BYTES];
            hand_in_datagram(n, 13, 0, bytes, rs_told_encode(&told, bytes));
        }
        net_at(n, 30 * SEC);
        assert_all_are_done(n);
        assert_int_equal(connected(n, 13), !forged);
        net_free(n);
    }
}

static bool hand_in(net *n, rs_peer to, rs_peer from, const rs_message *m) {
    uint8_t bytes[RS_HEADER_MAX];
    const rs_packet_in in = {.channel = RS_CH_PEER_RELIABLE,
                             .peer = from,
                             .group = RS_NO_GROUP,
                             .header = bytes,
                             .header_length = rs_wire_encode(m, 0, bytes, sizeof bytes)};
    assert_true(in.header_length > 0);
    return rs_receive(net_node(n, to), net_knob(n)->now, &in).verdict != RS_RX_BAD;
}

/* Somebody says that one who is not there sends an object: another one sends it, and is not turned away. */
static void made_up_sender__another_one_sends_it(void **state) {
    (void)state;
    net *n = begin(68, NULL, NULL);
    net_at(n, 600 * MS);
    const rs_message m = racks_open_by(77, 2);
    assert_true(hand_in(n, 13, 14, &m));
    net_call(n, 13, RS_OK);
    const rs_peer to[] = {13};
    rs_xfer xfer;
    assert_int_equal(net_send(n, 15, 2, 100000, 1, to, &xfer), RS_OK);
    net_at(n, 10 * SEC);
    assert_true(net_has(n, 13, 2));
    assert_true(net_event(n, 15, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

/* What somebody says that comes keeps its place for less than half the bound of a sender that was heard. */
static void made_up_sender__is_not_waited_for_long(void **state) {
    (void)state;
    const net_app answers[] = {APP_ACCEPTS, APP_REFUSES};
    for (size_t k = 0; k < sizeof answers / sizeof answers[0]; k++) {
        net *n = begin(71 + k, NULL, NULL);
        net_at(n, 600 * MS);
        net_application(n, 13, answers[k]);
        const rs_message m = racks_open_by(77, 2);
        assert_true(hand_in(n, 13, 14, &m));
        net_call(n, 13, RS_OK);
        const rs_xfer xfer = net_receiving(n, 13);
        rs_incoming info;
        net_at(n, 2 * SEC);
        assert_int_equal(rs_incoming_info(net_node(n, 13), xfer, &info), RS_OK);
        net_at(n, 3 * SEC);
        assert_int_equal(rs_incoming_info(net_node(n, 13), xfer, &info), RS_ERR_UNKNOWN);
        net_free(n);
    }
}

/* It stops before it answers who ask, and goes on when they wait no more. */
static void sender_is_stopped__what_was_not_proven_begins_again(void **state) {
    (void)state;
    net *n = begin(73, NULL, NULL);
    rs_time at = 0;
    while (!net_event(n, 13, RS_EV_INCOMING, ANYONE))
        net_at(n, at += 10 * US);
    net_pause(n, 0, 4 * SEC);
    const rs_xfer xfer = net_receiving(n, 13);
    rs_incoming info;
    net_at(n, at + 3500 * MS);
    assert_int_equal(rs_incoming_info(net_node(n, 13), xfer, &info), RS_ERR_UNKNOWN);
    net_at(n, 30 * SEC);
    assert_all_are_done(n);
    net_free(n);
}

/* Who does not answer is dialled a few times, not for as long as what ended is remembered. */
static void places_that_do_not_answer__are_not_dialled_for_ever(void **state) {
    (void)state;
    net *n = begin(69, NULL, NULL);
    net_at(n, 300 * MS);
    const rs_message opened = racks_open_by(77, 2);
    net_application(n, CARRIER, APP_REFUSES);
    assert_true(hand_in(n, CARRIER, 14, &opened));
    net_call(n, CARRIER, RS_OK);
    uint64_t nonce = net_message(n, 0, CARRIER, RS_MSG_OPEN, 0)->message.nonce;
    rs_message m = {.type = RS_MSG_CARRY_TO, .nonce = nonce}, carry = {.type = RS_MSG_CARRY, .nonce = nonce};
    const rs_message ping = {.type = RS_MSG_PING, .nonce = nonce};
    m.carry_to.count = 2;
    m.carry_to.places[0] = (rs_wire_place){90, 1};
    m.carry_to.places[1] = (rs_wire_place){91, 1};
    while (!hand_in(n, CARRIER, 0, &m))
        m.carry_to.first++;
    carry.carry.base = m.carry_to.first / 8;
    carry.carry.bytes = 2;
    carry.carry.set[0] = carry.carry.set[1] = 0xff;
    assert_true(rs_wire_inner_set(&carry.carry.inner, &ping));
    for (rs_time at = 300 * MS; at < 500 * MS; at += 10 * MS) {
        assert_true(hand_in(n, CARRIER, 0, &carry));
        net_call(n, CARRIER, RS_OK);
        net_at(n, at);
    }
    net_at(n, 200 * SEC);
    assert_all_are_done(n);
    assert_int_equal(net_events(n, CARRIER, RS_EV_PEER_WANTED, 89), 1);
    assert_int_equal(net_events(n, CARRIER, RS_EV_PEER_WANTED, 90), 1);
    assert_in_range(net_events(n, CARRIER, RS_EV_PEER_WANTED, 77), 1, 25); /* 5 s, and 5 s again: half a second each */
    net_free(n);
}

typedef struct {
    rs_time from; /* Attempts are looked for from then on. */
    rs_time first;
} attempts;

static void see_attempts(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                         size_t length, void *context) {
    attempts *a = context;
    (void)from, (void)to, (void)header, (void)length;
    if (!arrives && channel == RS_CH_GROUP && !a->first && net_now(n) >= a->from)
        a->first = net_now(n);
}

/* From the last acceptance that the sender hears of to the next data packet. */
static rs_time attempt_after(rs_time connect_delay) {
    rs_time last = 0;
    attempts a = {0};
    for (int turn = 0; turn < 2; turn++) { /* the second time it is known when that is */
        net *n = net_new(SERVERS, &many, 70);
        net_knob(n)->connect_delay = connect_delay;
        net_knob(n)->watch = see_attempts;
        net_knob(n)->watch_context = &a;
        a = (attempts){.from = last};
        net_send_all(n, 1, OBJECT);
        net_at(n, 5 * MS);
        for (rs_peer i = 1; i < SERVERS; i++)
            for (uint32_t k = 0; k < net_messages(n, i, 0, RS_MSG_CARRY); k++) {
                const net_said *said = net_message(n, i, 0, RS_MSG_CARRY, k);
                rs_time at = said->at - NET_START + net_knob(n)->control_delay;
                if (said->message.carry.inner.type == RS_MSG_OPEN_ACK && at > last)
                    last = at;
            }
        net_free(n);
    }
    assert_true(last > 0 && a.first > 0);
    return a.first - last;
}

/* Those that are carried to accept together: the next attempt does not wait for its time, which comes each 200 us. */
static void many_accept__an_attempt_follows_at_once(void **state) {
    (void)state;
    for (rs_time delay = 150 * US; delay < 350 * US; delay += 20 * US)
        assert_in_range(attempt_after(delay), 0, 20 * US);
}

/* Of the paper's authors' test vectors. */
static void keyed_hash(void **state) {
    (void)state;
    const uint64_t key[2] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
    uint8_t bytes[15];
    for (uint8_t i = 0; i < sizeof bytes; i++)
        bytes[i] = i;
    assert_true(rs_keyed_hash(key, bytes, sizeof bytes) == UINT64_C(0xa129ca6149be45e5));
    assert_true(rs_keyed_hash(key, bytes, 0) == UINT64_C(0x726fdb47dd0e0e31));
    assert_true(rs_keyed_hash(key, bytes, 8) == UINT64_C(0x93f5f5799a932462));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carriers_make_up_what_is_sent__it_starts_over),
        cmocka_unit_test(made_up_and_turned_away__the_senders_own_is_taken),
        cmocka_unit_test(true_and_turned_away),
        cmocka_unit_test(carriers_make_up_the_digest_that_follows),
        cmocka_unit_test(carrier_keeps_all_from_one_and_answers_for_it),
        cmocka_unit_test(datagrams_in_a_receivers_name__nobody_is_done_by_them),
        cmocka_unit_test(each_has_a_number_of_its_own),
        cmocka_unit_test(answers_are_lost_or_forged),
        cmocka_unit_test(made_up_sender__another_one_sends_it),
        cmocka_unit_test(made_up_sender__is_not_waited_for_long),
        cmocka_unit_test(sender_is_stopped__what_was_not_proven_begins_again),
        cmocka_unit_test(places_that_do_not_answer__are_not_dialled_for_ever),
        cmocka_unit_test(many_accept__an_attempt_follows_at_once),
        cmocka_unit_test(keyed_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
