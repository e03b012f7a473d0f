/* Of many receivers some carry control messages for the others (docs/feedback.md, "Carried messages"). */
#include "check.h"

#include "racks.h"

#include <string.h>

#include "core/feedback/report.h"

#define CARRIER 4u /* head of the first rack that is not the sender's */

static uint64_t old; /* bit i: the agent of server i carries nothing */

static bool carries(void *context, rs_peer peer) {
    (void)context;
    return peer > 63 || !(old >> peer & 1);
}

static const rs_config many = {
    .fragment_size = 8896,
    .nic_rate_bps = GIGABIT,
    .direct_receivers = 2,
    .feedback_arity = 2,
    .carries = true,
    .directory = {.peer_at = racks_peer_at, .place_of = racks_place_of, .carries = carries, .host_bits = RACKS_BITS}};

static void watch(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                  size_t length, void *context) {
    (void)from, (void)to, (void)header, (void)length;
    data_gaps_see(context, n, arrives, channel);
}

static net *begin(uint64_t seed, data_gaps *s) {
    *s = (data_gaps){0};
    return racks_begin(&many, seed, watch, s);
}

/* Whom the sender has, or had, a connection to. */
static bool connected(const net *n, rs_peer i) {
    return net_event(n, 0, RS_EV_PEER_WANTED, i) || net_event(n, i, RS_EV_PEER_WANTED, 0);
}

static uint32_t connections(const net *n) {
    uint32_t count = 0;
    for (rs_peer i = 1; i < SERVERS; i++)
        count += connected(n, i);
    return count;
}

static uint32_t heard(const net *n) {
    uint32_t count = 0;
    for (rs_peer i = 1; i < SERVERS; i++)
        for (rs_message_type type = RS_MSG_HELLO; type <= RS_MSG_CARRIED; type++)
            count += net_messages(n, i, 0, type);
    return count;
}

static void assert_all_are_done(const net *n, uint32_t but) {
    assert_int_equal(complete(n), SERVERS - 1 - but);
    assert_int_equal(net_events(n, 0, RS_EV_PEER_DONE, ANYONE), SERVERS - 1 - but);
    assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, ANYONE), but);
    assert_int_equal(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok, but == 0);
}

static void sender__has_connections_to_reporters_only(void **state) {
    (void)state;
    data_gaps s;
    net *n = begin(1, &s);
    net_at(n, 5 * SEC);
    assert_all_are_done(n, 0);
    assert_int_equal(connections(n), 2);
    assert_true(connected(n, CARRIER));
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START < 600 * MS);
    for (rs_peer i = 1; i < SERVERS; i++) {
        assert_int_equal(net_messages(n, 0, i, RS_MSG_OPEN), connected(n, i));
        assert_int_equal(net_messages(n, i, 0, RS_MSG_DATA_RCVD) > 0, connected(n, i));
    }
    uint32_t carried = heard(n);
    net_free(n);
    rs_config config = many;
    config.carries = false;
    n = net_new(SERVERS, &config, 1);
    net_send_all(n, 1, OBJECT);
    net_at(n, 5 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    assert_int_equal(connections(n), SERVERS - 1);
    assert_true(carried < heard(n) / 2);
    net_free(n);
}

static void few__have_connections(void **state) {
    (void)state;
    rs_config config = many;
    config.direct_receivers = 0; /* 32 */
    net *n = net_new(SERVERS, &config, 2);
    net_send_all(n, 1, OBJECT);
    net_at(n, 5 * SEC);
    assert_all_are_done(n, 0);
    assert_int_equal(connections(n), SERVERS - 1);
    net_free(n);
}

static void losses__of_everything(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        data_gaps s;
        net *n = begin(seed, &s);
        net_knob(n)->loss = 0.01;
        net_knob(n)->peer_loss = 0.2;
        net_at(n, 10 * SEC);
        assert_all_are_done(n, 0);
        net_free(n);
    }
}

/* A receiver has all, and its word of it is lost as often as it says so for a while: it is asked again. */
static void word_of_the_end_is_lost__it_is_asked_again(void **state) {
    (void)state;
    enum { MUTE = 13 };
    data_gaps s;
    net *n = begin(3, &s);
    net_at(n, 500 * MS);
    assert_false(connected(n, MUTE));
    net_mute(n, MUTE, true);
    net_at(n, 700 * MS);
    assert_true(net_event(n, MUTE, RS_EV_COMPLETE, ANYONE));
    assert_null(net_event(n, 0, RS_EV_PEER_DONE, MUTE));
    net_mute(n, MUTE, false);
    net_at(n, 3 * SEC);
    assert_all_are_done(n, 0);
    assert_false(connected(n, MUTE));
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START < 1500 * MS);
    net_free(n);
}

static bool keeps_report_to(net *n, rs_peer from, rs_peer to, rs_packet_in *in, void *context) {
    rs_message m;
    (void)n, (void)from, (void)context;
    return to == 13 && rs_wire_decode(in->header, in->header_length, 0, &m) && m.type == RS_MSG_CARRIED &&
           m.carried.inner.type == RS_MSG_REPORT_TO;
}

/* Where one is to report does not come to it by who carries: it is told again when it asks the sender by a connection,
 * and asks its own head for what it misses from then on. */
static void place_in_the_tree_is_lost__it_is_told_again(void **state) {
    (void)state;
    data_gaps s;
    net *n = begin(6, &s);
    net_knob(n)->loss = 0.01;
    net_knob(n)->tamper = keeps_report_to;
    net_at(n, 10 * SEC);
    assert_all_are_done(n, 0);
    assert_true(connected(n, 13));
    assert_true(net_messages(n, 0, 13, RS_MSG_REPORT_TO) > 0);
    net_free(n);
}

static bool keeps_open(net *n, rs_peer from, rs_peer to, rs_packet_in *in, void *context) {
    rs_message m;
    uint32_t *pings = context;
    bool read = rs_wire_decode(in->header, in->header_length, 0, &m), carried = read && m.type == RS_MSG_CARRIED;
    uint32_t type = carried ? m.carried.inner.type : m.type;
    (void)from;
    if (read && to < SERVERS && type == RS_MSG_PING && net_now(n) < 60 * MS)
        pings[to]++;
    return to == 13 && carried && type == RS_MSG_OPEN;
}

/* TCP sends again what is lost as soon as something later has come: who has not accepted when others have is asked. */
static void open_is_lost__something_is_said_behind_it(void **state) {
    (void)state;
    uint32_t pings[SERVERS] = {0};
    data_gaps s;
    net *n = begin(6, &s);
    net_knob(n)->tamper = keeps_open;
    net_knob(n)->tamper_context = pings;
    net_at(n, 60 * MS);
    for (rs_peer i = 1; i < SERVERS; i++)
        if (i == 13)
            assert_in_range(pings[i], 2, 10);
        else if (!connected(n, i))
            assert_in_range(pings[i], 0, 1); /* all once, as where they report may have been lost */
    net_at(n, 10 * SEC);
    assert_all_are_done(n, 0);
    net_free(n);
}

/* Whose receivers hear nothing by it are connected to within 100 ms, and a round trip. */
static void frozen_from_the_start(void **state) {
    (void)state;
    data_gaps s;
    net *n = begin(4, &s);
    net_freeze(n, CARRIER);
    net_at(n, 200 * MS);
    assert_true(connections(n) > 10);
    for (rs_peer i = 1; i < SERVERS; i++)
        assert_true(i == CARRIER || net_stats(n, i, net_receiving(n, i)).bytes_present > 0);
    net_at(n, 30 * SEC);
    assert_all_are_done(n, 1);
    net_free(n);
}

static void carrier_is_killed_when(rs_time at, uint64_t seed) {
    data_gaps s;
    net *n = begin(seed, &s);
    net_at(n, at);
    s.from = at;
    net_kill(n, CARRIER);
    net_at(n, at + 100 * MS);
    uint32_t now_connected = connections(n);
    net_at(n, 30 * SEC);
    assert_true(now_connected > 2);
    assert_all_are_done(n, 1);
    assert_true(net_event(n, 0, RS_EV_PATH_DONE, ANYONE)->at - NET_START < 700 * MS);
    assert_true(at < 10 * MS || s.longest < 30 * MS);
    net_free(n);
}

static void carrier_is_killed__others_have_connections_then(void **state) {
    (void)state;
    carrier_is_killed_when(1200 * US, 5);
    carrier_is_killed_when(1400 * US, 6);
    carrier_is_killed_when(2 * MS, 7);
    carrier_is_killed_when(200 * MS, 8);
    carrier_is_killed_when(450 * MS, 9);
}

static void carrier_of_many_is_killed__few_connections_are_made_at_once(void **state) {
    (void)state;
    enum { LARGE = 200, AT_ONCE = 32 };
    net *n = net_new(LARGE, &many, 33);
    net_send_all(n, 1, OBJECT);
    net_at(n, 200 * MS);
    assert_int_equal(net_events(n, 0, RS_EV_PEER_WANTED, ANYONE), 2);
    net_kill(n, CARRIER);
    for (uint32_t before = 2, at = 202; at < 300; at += 2) {
        net_at(n, at * MS);
        uint32_t wanted = net_events(n, 0, RS_EV_PEER_WANTED, ANYONE);
        assert_in_range(wanted - before, 0, 2 * AT_ONCE + 1); /* a batch at each end; and the carrier itself */
        before = wanted;
    }
    assert_true(net_events(n, 0, RS_EV_PEER_WANTED, ANYONE) > 2 * AT_ONCE);
    net_at(n, 30 * SEC);
    assert_int_equal(net_events(n, 0, RS_EV_PEER_DONE, ANYONE), LARGE - 2);
    net_free(n);
}

static void connection_to_a_carrier_ends(void **state) {
    (void)state;
    for (rs_time at = 1 * MS; at < 600 * MS; at = at * 2 + 1 * MS) {
        data_gaps s;
        net *n = begin(10, &s);
        net_at(n, at);
        net_cut(n, 0, CARRIER);
        net_at(n, 10 * SEC);
        assert_all_are_done(n, 0);
        net_free(n);
    }
}

static void connection_of_a_carrier_ends(void **state) {
    (void)state;
    for (rs_time at = 1 * MS; at < 600 * MS; at = at * 2 + 300 * US) {
        data_gaps s;
        net *n = begin(11, &s);
        net_at(n, at);
        for (rs_peer i = 1; i < SERVERS; i++)
            if (i != CARRIER)
                net_cut(n, CARRIER, i);
        net_at(n, 10 * SEC);
        assert_all_are_done(n, 0);
        net_free(n);
    }
}

static void old_agents(void **state) {
    (void)state;
    const uint64_t which[] = {UINT64_C(1) << CARRIER, 0x2a8020, 0x7ffffe};
    for (size_t k = 0; k < sizeof which / sizeof which[0]; k++) {
        data_gaps s;
        old = which[k];
        net *n = begin(12 + k, &s);
        net_at(n, 10 * SEC);
        assert_all_are_done(n, 0);
        for (rs_peer i = 1; i < SERVERS; i++) {
            assert_true(!(old >> i & 1) || connected(n, i));
            assert_true(!(old >> i & 1) || net_messages(n, i, 0, RS_MSG_CARRY) == 0);
        }
        net_free(n);
    }
    old = 0;
}

/* What is no good news is said to the sender itself. */
static void one_refuses__one_has_it(void **state) {
    (void)state;
    data_gaps s;
    net *n = net_new(SERVERS, &many, 20);
    (void)s;
    net_application(n, 13, APP_REFUSES);
    net_application(n, 14, APP_HAS_IT);
    net_application(n, CARRIER, APP_HAS_IT);
    net_send_all(n, 1, OBJECT);
    net_at(n, 10 * SEC);
    assert_int_equal(complete(n), SERVERS - 4);
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 13)->event.cause, "quota of 1 GB is used up"));
    assert_true(net_event(n, 0, RS_EV_PEER_DONE, 14)->event.had_it);
    assert_true(net_event(n, 0, RS_EV_PEER_DONE, CARRIER)->event.had_it);
    net_free(n);
}

static bool hand_in(net *n, rs_peer to, rs_channel channel, rs_peer from, const rs_message *m) {
    uint8_t bytes[RS_HEADER_MAX];
    const rs_said_proof proof = {0};
    size_t length =
        channel == RS_CH_PEER_DATAGRAM ? rs_said_encode(m, &proof, bytes) : rs_wire_encode(m, 0, bytes, sizeof bytes);
    const rs_packet_in packet = {
        .channel = channel, .peer = from, .group = RS_NO_GROUP, .header = bytes, .header_length = length};
    return length > 0 && rs_receive(net_node(n, to), net_knob(n)->now, &packet).verdict != RS_RX_BAD;
}

static rs_message answer_of_all(uint64_t nonce, const rs_message *said) {
    rs_message m = {.type = RS_MSG_CARRY, .nonce = nonce};
    m.carry.bytes = 3;
    memset(m.carry.set, 0xff, 3);
    if (!rs_wire_inner_set(&m.carry.inner, said))
        m.carry.inner.type = 0;
    return m;
}

static bool loses_repairs(net *n, rs_peer to, const rs_data_header *header, void *context) {
    double share = to == *(const rs_peer *)context && header->flags & RS_DATA_REPAIR ? 0.5 : 0.05;
    return !(header->flags & RS_DATA_ATTEMPT) && net_random(n) < share;
}

/* It asks its parent for the rest when it sees that the sender is in the tail, and then has no parent any more: it is
 * to ask and to answer as others do, who report to the sender. */
static void parent_is_gone_in_the_tail__repairs_are_heeded_again(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        rs_config config = many;
        rs_peer one = 13;
        config.direct_receivers = 0; /* nobody has one */
        net *n = net_new(SERVERS, &config, seed);
        net_knob(n)->drop = loses_repairs;
        net_knob(n)->drop_context = &one;
        rs_xfer xfer = net_send_all(n, 1, OBJECT);
        rs_time at = 0;
        while (net_stats(n, 0, xfer).phase != RS_PHASE_PATCHING)
            net_at(n, at += MS / 10);
        rs_message m = {.type = RS_MSG_REPORT_TO, .nonce = net_message(n, 0, one, RS_MSG_OPEN, 0)->message.nonce};
        m.report_to.on = true;
        m.report_to.sample_us = 1000000;
        m.report_to.parent = (rs_wire_place){3 << 16 | 16, 7071};
        assert_true(hand_in(n, one, RS_CH_PEER_RELIABLE, 0, &m));
        net_at(n, at += MS);
        assert_false(net_has(n, one, 1));
        m.report_to.parent = (rs_wire_place){0};
        assert_true(hand_in(n, one, RS_CH_PEER_RELIABLE, 0, &m));
        net_at(n, 30 * SEC);
        rs_time path = net_event(n, 0, RS_EV_PATH_DONE, ANYONE)->at - NET_START - at;
        rs_time last = net_event(n, one, RS_EV_COMPLETE, ANYONE)->at - NET_START - at;
        print_message("seed %llu: whole after %.1f ms, path given back after %.1f\n", (unsigned long long)seed,
                      (double)last / 1e6, (double)path / 1e6);
        assert_all_are_done(n, 0);
        assert_true(last < 100 * MS);
        assert_true(path < 100 * MS);
        net_free(n);
    }
}

/* It says of others that they have light, and that they have accepted, before they do: that costs time. It cannot say
 * that they have refused, or are whole, or left. */
static void carrier_lies(void **state) {
    (void)state;
    data_gaps s;
    net *n = begin(21, &s);
    net_at(n, 1500 * US);
    uint64_t nonce = net_message(n, 0, CARRIER, RS_MSG_OPEN, 0)->message.nonce;
    rs_message said = {.type = RS_MSG_OPEN_ACK, .nonce = nonce};
    rs_message lie = answer_of_all(nonce, &said);
    assert_true(hand_in(n, 0, RS_CH_PEER_RELIABLE, CARRIER, &lie));
    said = (rs_message){.type = RS_MSG_INTL_SEQ, .nonce = nonce};
    lie = answer_of_all(nonce, &said);
    assert_true(hand_in(n, 0, RS_CH_PEER_RELIABLE, CARRIER, &lie));
    said = (rs_message){.type = RS_MSG_OPEN_ACK, .nonce = nonce, .open_ack = {.status = RS_ACK_REFUSED}};
    lie = answer_of_all(nonce, &said);
    assert_false(hand_in(n, 0, RS_CH_PEER_RELIABLE, CARRIER, &lie));
    said = (rs_message){.type = RS_MSG_ABORT, .nonce = nonce};
    lie = answer_of_all(nonce, &said);
    assert_false(hand_in(n, 0, RS_CH_PEER_RELIABLE, CARRIER, &lie));
    said = (rs_message){.type = RS_MSG_DATA_RCVD, .nonce = nonce};
    assert_false(rs_wire_inner_set(&lie.carry.inner, &said));
    net_at(n, 10 * SEC);
    assert_all_are_done(n, 0);
    net_free(n);
}

/* Who is not a carrier, and says that others have accepted: nothing comes of it. Who is no receiver says that it is
 * whole. */
static void strangers_lie(void **state) {
    (void)state;
    data_gaps s;
    net *n = begin(22, &s);
    net_at(n, 300 * MS);
    uint64_t nonce = net_message(n, 0, CARRIER, RS_MSG_OPEN, 0)->message.nonce;
    const rs_message said = {.type = RS_MSG_PONG, .nonce = nonce}, right = {.type = RS_MSG_DATA_RCVD, .nonce = nonce};
    const rs_message lie = answer_of_all(nonce, &said), none = answer_of_all(nonce, &right);
    hand_in(n, 0, RS_CH_PEER_RELIABLE, 13, &lie);
    hand_in(n, 0, RS_CH_PEER_RELIABLE, 13, &none);
    hand_in(n, 0, RS_CH_PEER_DATAGRAM, 77, &right);
    hand_in(n, 13, RS_CH_PEER_RELIABLE, 14, &lie);
    net_at(n, 400 * MS);
    assert_int_equal(net_events(n, 0, RS_EV_PEER_DONE, ANYONE), 0);
    net_at(n, 10 * SEC);
    assert_all_are_done(n, 0);
    assert_int_equal(connections(n), 2);
    net_free(n);
}

/* In another's name. */
static void open_by_one_who_does_not_carry__of_one_who_has_a_connection(void **state) {
    (void)state;
    data_gaps s;
    net *n = begin(23, &s);
    net_at(n, 300 * MS);
    rs_message lie = racks_open_by(77, 2);
    old = UINT64_C(1) << 14;
    assert_false(hand_in(n, 13, RS_CH_PEER_RELIABLE, 14, &lie));
    old = 0;
    lie = racks_open_by(0, 2);
    assert_true(hand_in(n, CARRIER, RS_CH_PEER_RELIABLE, 14, &lie));
    net_at(n, 310 * MS);
    assert_int_equal(net_events(n, 13, RS_EV_INCOMING, ANYONE), 1);
    assert_int_equal(net_events(n, CARRIER, RS_EV_INCOMING, ANYONE), 1);
    lie = racks_open_by(77, 2);
    assert_true(hand_in(n, CARRIER, RS_CH_PEER_RELIABLE, 14, &lie));
    net_at(n, 320 * MS);
    assert_int_equal(net_events(n, CARRIER, RS_EV_INCOMING, ANYONE), 2);
    net_free(n);
}

static uint64_t draw(net *n, uint64_t below) {
    return (uint64_t)(net_random(n) * (double)below);
}

static rs_message garbage(net *n, uint64_t nonce) {
    const rs_message_type types[] = {RS_MSG_OPEN_ACK, RS_MSG_INTL_SEQ, RS_MSG_DATA_FNSD, RS_MSG_PING,
                                     RS_MSG_PONG,     RS_MSG_ABORT,    RS_MSG_REPORT_TO};
    rs_message m = {.type = (rs_message_type)(RS_MSG_CARRY_TO + draw(n, 3)),
                    .nonce = draw(n, 8) ? nonce : 1 + draw(n, 1000),
                    .session = (uint32_t)draw(n, 2)};
    rs_message said = {.type = types[draw(n, sizeof types / sizeof types[0])], .nonce = nonce, .session = m.session};
    if (said.type == RS_MSG_INTL_SEQ || said.type == RS_MSG_PING || said.type == RS_MSG_PONG)
        said.intl_seq.sn = draw(n, 8000);
    if (m.type == RS_MSG_CARRY_TO) {
        m.carry_to.first = (uint16_t)draw(n, 12);
        m.carry_to.count = (uint8_t)(1 + draw(n, RS_CARRY_PLACES));
        for (uint32_t i = 0; i < m.carry_to.count; i++)
            m.carry_to.places[i] = (rs_wire_place){1 + (uint32_t)draw(n, SERVERS), 1};
    } else if (m.type == RS_MSG_CARRY) {
        m.carry.base = (uint16_t)draw(n, 3);
        m.carry.bytes = (uint8_t)(1 + draw(n, 3));
        for (uint32_t i = 0; i < m.carry.bytes; i++)
            m.carry.set[i] = (uint8_t)(1 + draw(n, 255));
        rs_wire_inner_set(&m.carry.inner, &said);
    } else {
        m.carried.sender.address = draw(n, 4) ? 1 : (uint32_t)draw(n, SERVERS);
        m.carried.sender.port = m.carried.sender.address ? 7071 : 0;
        rs_wire_inner_set(&m.carried.inner, &said);
    }
    return m;
}

/* Receivers say anything, to the sender and to each other, in the sender's name, too. */
static void garbage__from_receivers(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        data_gaps s;
        net *n = begin(seed, &s);
        net_at(n, 1500 * US);
        uint64_t nonce =
            net_message(n, 0, CARRIER, RS_MSG_OPEN, 0) ? net_message(n, 0, CARRIER, RS_MSG_OPEN, 0)->message.nonce : 1;
        for (rs_time at = 1500 * US; at < 100 * MS; at += 200 * US) {
            const rs_message m = garbage(n, nonce);
            hand_in(n, (rs_peer)draw(n, SERVERS), RS_CH_PEER_RELIABLE, (rs_peer)(1 + draw(n, SERVERS - 1)), &m);
            net_at(n, at);
        }
        net_at(n, 120 * SEC);
        if (complete(n) < SERVERS - 1)
            print_message("seed %llu: %u of %u are whole\n", (unsigned long long)seed, complete(n), SERVERS - 1);
        assert_all_are_done(n, 0);
        net_free(n);
    }
}

/* Its end is told to who has no connection, too. */
static void cancelled(void **state) {
    (void)state;
    data_gaps s;
    net *n = net_new(SERVERS, &many, 31);
    s = (data_gaps){0};
    (void)s;
    rs_xfer xfer = net_send_all(n, 1, OBJECT);
    net_at(n, 100 * MS);
    net_call(n, 0, rs_send_cancel(net_node(n, 0), net_knob(n)->now, xfer, "no more"));
    net_at(n, 200 * MS);
    for (rs_peer i = 1; i < SERVERS; i++)
        assert_non_null(strstr(net_event(n, i, RS_EV_RECEIVE_DONE, ANYONE)->event.cause, "no more"));
    net_free(n);
}

static uint32_t count_carried(const net *n, uint32_t servers) {
    uint32_t count = 0;
    for (rs_peer i = 1; i < servers; i++)
        count += net_messages(n, CARRIER, i, RS_MSG_CARRIED);
    return count;
}

/* Each message differs from all that wait: a carrier keeps 256 for its others, and as many for the sender. */
static void much_to_carry__what_is_too_much_is_lost(void **state) {
    (void)state;
    enum { LARGE = 400, MOST = 256 };
    const rs_message_type types[] = {RS_MSG_PING, RS_MSG_PONG};
    net *n = net_new(LARGE, &many, 34);
    net_send_all(n, 1, OBJECT);
    net_at(n, 300 * MS);
    uint64_t nonce = net_message(n, 0, CARRIER, RS_MSG_OPEN, 0)->message.nonce;
    for (int up = 1; up >= 0; up--) {
        uint32_t others = 0, before = count_carried(n, LARGE), told = net_messages(n, CARRIER, 0, RS_MSG_CARRY);
        for (rs_peer i = 1; i < LARGE; i++) {
            if (net_messages(n, CARRIER, i, RS_MSG_CARRIED) == 0)
                continue;
            for (uint32_t k = 0; k < 2; k++) {
                const rs_message said = {.type = types[k], .nonce = nonce, .ping.token = 1000 * i + k};
                rs_message m = {.type = up ? RS_MSG_CARRIED : RS_MSG_CARRY, .nonce = nonce};
                if (!up) {
                    m.carry.base = (uint16_t)(others / 8);
                    m.carry.bytes = 1;
                    m.carry.set[0] = (uint8_t)(1u << others % 8);
                }
                assert_true(rs_wire_inner_set(up ? &m.carried.inner : &m.carry.inner, &said));
                assert_true(hand_in(n, CARRIER, RS_CH_PEER_RELIABLE, up ? i : 0, &m));
            }
            others++;
        }
        assert_true(2 * others > MOST);
        net_call(n, CARRIER, RS_OK);
        net_at(n, up ? 301 * MS : 311 * MS);
        if (up)
            assert_in_range(net_messages(n, CARRIER, 0, RS_MSG_CARRY) - told, MOST / 2, MOST);
        else
            assert_in_range(count_carried(n, LARGE) - before, MOST / 2, MOST);
        if (up)
            net_at(n, 310 * MS); /* what came of it */
    }
    net_at(n, 10 * SEC);
    assert_int_equal(net_events(n, 0, RS_EV_PEER_DONE, ANYONE), LARGE - 1);
    net_free(n);
}

/* The end of a receiver's wait to say that it is whole finds it with a connection of its own, while it still repairs
 * others: it says so by that, and no more. */
static void carrier_leaves_one_that_waits_to_say_that_it_is_complete(void **state) {
    (void)state;
    data_gaps s;
    net *n = begin(35, &s);
    net_at(n, 300 * MS);
    rs_message m = {0}, said;
    rs_peer one = CARRIER;
    for (bool found = false; !found && ++one < SERVERS;)
        for (uint32_t k = 0; !found && k < net_messages(n, CARRIER, one, RS_MSG_CARRIED); k++) {
            m = net_message(n, CARRIER, one, RS_MSG_CARRIED, k)->message;
            found = rs_wire_inner_get(&m.carried.inner, m.nonce, m.session, &said) && said.type == RS_MSG_REPORT_TO &&
                    said.report_to.count > 0;
        }
    assert_true(one < SERVERS);
    rs_peer below = racks_peer_at(NULL, said.report_to.children[0].address, 0);
    said.report_to.sample_us = UINT32_MAX / 100; /* it waits for up to 2.7 ms */
    assert_true(rs_wire_inner_set(&m.carried.inner, &said));
    assert_true(hand_in(n, one, RS_CH_PEER_RELIABLE, CARRIER, &m));
    net_ringing_until(n, below, 10 * SEC, 0.05);
    rs_time at = 300 * MS;
    while (!net_event(n, one, RS_EV_COMPLETE, ANYONE))
        net_at(n, at += 50 * US);
    net_cut(n, CARRIER, one);
    assert_int_equal(net_messages(n, one, 0, RS_MSG_DATA_RCVD), 0);
    net_at(n, 5 * SEC);
    assert_all_are_done(n, 0);
    assert_in_range(net_messages(n, one, 0, RS_MSG_DATA_RCVD), 1, 2); /* when it knows, and when it ends */
    net_free(n);
}

static void no_memory(void **state) {
    (void)state;
    for (int64_t at = 0; at < 400; at += 3) {
        net *n = net_new(SERVERS, &many, 30);
        net_send_all(n, 1, OBJECT / 16);
        net_allocations(n, at);
        net_at(n, 200 * SEC);
        assert_true(net_events(n, 0, RS_EV_PEER_DONE, ANYONE) >= SERVERS - 3);
        net_free(n);
    }
}

/* "I am whole", by a datagram in the name of one that has a connection: with and without carriers. */
static void forged_datagram__of_who_has_a_connection(void **state) {
    (void)state;
    rs_config config = many;
    for (unsigned i = 0; i < 2; i++) {
        config.carries = i > 0;
        net *n = net_new(SERVERS, &config, 40);
        net_send_all(n, 1, OBJECT);
        net_at(n, 300 * MS);
        const rs_message forged = {.type = RS_MSG_DATA_RCVD,
                                   .nonce = net_message(n, 0, CARRIER, RS_MSG_OPEN, 0)->message.nonce};
        assert_true(connected(n, CARRIER));
        hand_in(n, 0, RS_CH_PEER_DATAGRAM, CARRIER, &forged);
        net_at(n, 310 * MS);
        assert_int_equal(net_events(n, 0, RS_EV_PEER_DONE, ANYONE), 0);
        net_at(n, 5 * SEC);
        assert_all_are_done(n, 0);
        net_free(n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sender__has_connections_to_reporters_only),
        cmocka_unit_test(few__have_connections),
        cmocka_unit_test(losses__of_everything),
        cmocka_unit_test(word_of_the_end_is_lost__it_is_asked_again),
        cmocka_unit_test(place_in_the_tree_is_lost__it_is_told_again),
        cmocka_unit_test(open_is_lost__something_is_said_behind_it),
        cmocka_unit_test(frozen_from_the_start),
        cmocka_unit_test(carrier_is_killed__others_have_connections_then),
        cmocka_unit_test(carrier_of_many_is_killed__few_connections_are_made_at_once),
        cmocka_unit_test(parent_is_gone_in_the_tail__repairs_are_heeded_again),
        cmocka_unit_test(connection_to_a_carrier_ends),
        cmocka_unit_test(connection_of_a_carrier_ends),
        cmocka_unit_test(old_agents),
        cmocka_unit_test(one_refuses__one_has_it),
        cmocka_unit_test(carrier_lies),
        cmocka_unit_test(strangers_lie),
        cmocka_unit_test(forged_datagram__of_who_has_a_connection),
        cmocka_unit_test(open_by_one_who_does_not_carry__of_one_who_has_a_connection),
        cmocka_unit_test(garbage__from_receivers),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(much_to_carry__what_is_too_much_is_lost),
        cmocka_unit_test(carrier_leaves_one_that_waits_to_say_that_it_is_complete),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
