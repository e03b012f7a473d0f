/* Many receivers report by a tree (docs/feedback.md). */
#include "check.h"

#include "racks.h"

#include "core/feedback/report.h"

#define PACKET (72 * US)

static uint32_t old_from, old_count; /* agents that know no REPORT_TO */

static bool knows_tree(void *context, rs_peer peer) {
    (void)context;
    return peer < old_from || peer >= old_from + old_count;
}

static const rs_config by_tree = {
    .fragment_size = 8896,
    .nic_rate_bps = GIGABIT,
    .direct_receivers = 2,
    .feedback_arity = 2,
    .directory = {
        .peer_at = racks_peer_at, .place_of = racks_place_of, .knows_tree = knows_tree, .host_bits = RACKS_BITS}};

static bool is_report(const uint8_t *header, size_t length) {
    rs_report report;
    return rs_report_decode(header, length, &report);
}

typedef struct {
    bool reports[SERVERS], is_parent[SERVERS], speaks[SERVERS];
    rs_peer reads[SERVERS];   /* The last report of each went to that one. */
    uint64_t read[SERVERS];   /* So many reports came to each. */
    uint64_t to_senders_rack; /* from other racks, and not to the sender */
    uint64_t at_sender;
    uint64_t newest; /* fragment */
    data_gaps gaps;
    uint64_t least_share; /* of their NICs that somebody told since 300 ms; 0: nobody did */
} seen;

static void watch(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                  size_t length, void *context) {
    seen *s = context;
    rs_data_header data;
    data_gaps_see(&s->gaps, n, arrives, channel);
    if (channel == RS_CH_GROUP && !arrives && rs_wire_decode_data(header, length, &data))
        s->newest = data.sn;
    if (channel != RS_CH_PEER_DATAGRAM || !arrives || !is_report(header, length))
        return;
    rs_report report;
    rs_report_decode(header, length, &report);
    if (net_now(n) > 300 * MS && report.share_bps && (s->least_share == 0 || report.share_bps < s->least_share))
        s->least_share = report.share_bps;
    s->reports[from] = true;
    s->reads[from] = to;
    s->read[to]++;
    s->at_sender += to == 0;
    s->speaks[from] = to == 0;
    s->to_senders_rack += to != 0 && to < 4 && from >= 4;
    if (to != 0)
        s->is_parent[to] = true;
}

static net *begin(uint64_t seed, seen *s) {
    *s = (seen){0};
    return racks_begin(&by_tree, seed, watch, s);
}

static void all_report__the_sender_reads_two(void **state) {
    (void)state;
    seen s;
    net *n = begin(1, &s);
    net_at(n, 300 * MS);
    for (rs_peer i = 1; i < SERVERS; i++)
        assert_true(s.reports[i]);
    uint64_t before = s.at_sender;
    net_at(n, 400 * MS);
    assert_in_range(s.at_sender - before, 10, 2000); /* at most 20,000 a second */
    net_at(n, 5 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START < 600 * MS);
    net_free(n);
}

/* Who collects for others answers for them from the start: the sender asks nobody else whether it is there. */
static void start__only_speakers_are_asked(void **state) {
    (void)state;
    seen s;
    net *n = begin(17, &s);
    net_at(n, 100 * MS);
    for (rs_peer i = 1; i < SERVERS; i++)
        assert_true((net_message(n, 0, i, RS_MSG_PING, 0) != NULL) == s.speaks[i]);
    net_free(n);
}

/* Who says each 250 ms how far it is need not be asked between, however short the bound on silence; who is gone is
 * given up within that bound once all is sent. */
static void short_bound__who_speaks_seldom_is_not_asked(void **state) {
    (void)state;
    enum { GONE = 22 };
    const rs_time bound = 200 * MS;
    rs_config config = by_tree;
    config.receiver_silence_bound = bound;
    seen s = {0};
    net *n = net_new(SERVERS, &config, 20);
    net_knob(n)->watch = watch;
    net_knob(n)->watch_context = &s;
    net_send_all(n, 1, OBJECT);
    net_at(n, 400 * MS);
    net_freeze(n, GONE);
    net_at(n, 500 * MS);
    for (rs_peer i = 1; i < GONE; i++)
        assert_true(s.speaks[i] || !net_message(n, 0, i, RS_MSG_PING, 0));
    net_at(n, 5 * SEC);
    assert_int_equal(complete(n), SERVERS - 2);
    rs_time sent = net_event(n, 0, RS_EV_PATH_DONE, ANYONE)->at;
    assert_in_range(net_event(n, 0, RS_EV_PEER_FAILED, GONE)->at, sent, sent + bound + bound / 2);
    net_free(n);
}

/* All begin at once, and say themselves how far they are now and then: each at another time. */
static void samples__do_not_come_all_at_once(void **state) {
    (void)state;
    seen s;
    rs_time first = RS_NEVER, last = 0;
    net *n = begin(18, &s);
    net_at(n, 500 * MS);
    for (rs_peer i = 1; i < SERVERS; i++) {
        const net_said *said = s.speaks[i] ? NULL : net_message(n, i, 0, RS_MSG_RATE, 0);
        if (!said)
            continue;
        first = said->at < first ? said->at : first;
        last = said->at > last ? said->at : last;
    }
    assert_true(last - first > 100 * MS); /* of 250 */
    net_free(n);
}

/* 49 servers at 5 Mbit/s, whose switches leave a tenth of that to control: what each says of itself is no more than a
 * fiftieth, so that reports do not wait behind it. */
static void slow_link__samples_leave_room_for_reports(void **state) {
    (void)state;
    enum { MANY = 49, WIRE = 192 };
    const int64_t rate = 5000000;
    rs_config config = by_tree;
    config.nic_rate_bps = rate;
    net *n = net_new(MANY, &config, 21);
    net_knob(n)->path.rate_bps = 0;
    net_knob(n)->uplink_bps = rate;
    net_knob(n)->uplink_bytes = 1 << 20;
    net_knob(n)->control_port_bps = rate / 10;
    net_send_all(n, 1, UINT64_C(3) << 20);
    net_at(n, 1 * SEC);
    uint64_t said = 0, before;
    for (rs_peer i = 1; i < MANY; i++)
        said += net_messages(n, i, 0, RS_MSG_RATE);
    before = said;
    said = 0;
    net_at(n, 5 * SEC);
    for (rs_peer i = 1; i < MANY; i++)
        said += net_messages(n, i, 0, RS_MSG_RATE);
    assert_in_range((said - before) * WIRE * 8 / 4, 1, rate / 50);
    net_at(n, 60 * SEC);
    for (rs_peer i = 1; i < MANY; i++)
        assert_true(net_has(n, i, 1));
    net_free(n);
}

/* What a receiver collects comes by the port that the data comes by: on a slow link, whoever collects most reads no
 * more than a 50th of it. */
static void slow_link__what_is_collected_leaves_room_for_data(void **state) {
    (void)state;
    enum { WIRE = 192, SECONDS = 8 };
    const int64_t rate = 5000000;
    rs_config config = by_tree;
    config.nic_rate_bps = rate;
    seen s = {0};
    net *n = net_new(SERVERS, &config, 22);
    net_knob(n)->path.rate_bps = 0;
    net_knob(n)->uplink_bps = rate;
    net_knob(n)->uplink_bytes = 1 << 20;
    net_knob(n)->watch = watch;
    net_knob(n)->watch_context = &s;
    net_send_all(n, 1, UINT64_C(6) << 20);
    net_at(n, 1 * SEC);
    seen before = s;
    net_at(n, (1 + SECONDS) * SEC);
    for (rs_peer i = 0; i < SERVERS; i++)
        assert_in_range((s.read[i] - before.read[i]) * WIRE * 8 / SECONDS, 0, rate / 50);
    net_at(n, 60 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    net_free(n);
}

static bool anybody_collects(int64_t rate) {
    seen s = {0};
    rs_config config = by_tree;
    config.nic_rate_bps = rate;
    config.direct_receivers = config.feedback_arity = 0;
    net *n = net_new(SERVERS, &config, 19);
    net_knob(n)->path.rate_bps = rate;
    net_knob(n)->watch = watch;
    net_knob(n)->watch_context = &s;
    net_send_all(n, 1, OBJECT);
    net_at(n, 5 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    bool any = false;
    for (rs_peer i = 1; i < SERVERS; i++)
        any |= s.is_parent[i];
    net_free(n);
    return any;
}

/* At 100 Gbit/s half of what waits at a socket is sent in 0.7 ms: the reports of 22, of 50 us each, came too late. */
static void fast_path__fewer_report_by_the_tree(void **state) {
    (void)state;
    assert_false(anybody_collects(10 * GIGABIT));
    assert_true(anybody_collects(100 * GIGABIT));
}

static void losses__are_mended_by_those_near(void **state) {
    (void)state;
    seen s;
    net *n = begin(2, &s);
    net_knob(n)->loss = 0.01;
    net_knob(n)->peer_loss = 0.01;
    net_at(n, 5 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    uint64_t near = 0, lost = 0;
    for (rs_peer i = 1; i < SERVERS; i++) {
        near += net_stats(n, i, net_receiving(n, i)).peer_repairs_received;
        lost += net_stats(n, i, net_receiving(n, i)).lost;
    }
    assert_true(near > lost / 2);
    net_free(n);
}

/* The first packet of the tail says to all that no data follow: who asks a parent asks for the end, and again for what
 * was lost twice, at once. DATA_FNSD, which comes later and by each one's own connection, finds nobody waiting. */
static void end__is_told_with_the_repairs(void **state) {
    (void)state;
    rs_config config = by_tree;
    config.patch_timeout = 40 * MS;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        net *n = net_new(SERVERS, &config, 30 + seed);
        net_knob(n)->loss = 0.01;
        net_knob(n)->peer_loss = 0.02;
        rs_xfer xfer = net_send_all(n, 1, OBJECT);
        net_at(n, 1 * SEC);
        rs_time done = net_stats(n, 0, xfer).data_done_at;
        net_at(n, 5 * SEC);
        assert_int_equal(complete(n), SERVERS - 1);
        rs_time last = 0;
        for (rs_peer i = 1; i < SERVERS; i++)
            if (net_event(n, i, RS_EV_COMPLETE, ANYONE)->at > last)
                last = net_event(n, i, RS_EV_COMPLETE, ANYONE)->at;
        assert_in_range(last, done, done + 10 * MS);
        net_free(n);
    }
}

static rs_time end_lost_from;

/* Whoever is not in the sender's rack misses the last few packets, and sees none behind them. */
static bool end_is_lost(net *n, rs_peer to, const rs_data_header *h, void *context) {
    (void)context;
    return to >= 4 && !(h->flags & RS_DATA_REPAIR) && net_now(n) >= end_lost_from;
}

static rs_time until_sent(net *n, rs_xfer xfer) {
    while (!net_stats(n, 0, xfer).data_done_at)
        net_at(n, net_now(n) + PACKET);
    return net_stats(n, 0, xfer).data_done_at;
}

/* Up to the end of the data. */
static net *lose_the_end(uint64_t seed, seen *s, rs_time *done) {
    net *n = NULL;
    end_lost_from = RS_NEVER;
    for (int run = 0; run < 2; run++) { /* the first one tells when that is */
        if (n)
            net_free(n);
        n = net_new(SERVERS, &by_tree, seed);
        *s = (seen){0};
        net_knob(n)->watch = watch;
        net_knob(n)->watch_context = s;
        net_knob(n)->drop = end_is_lost;
        *done = until_sent(n, net_send_all(n, 1, 1000 * 8896));
        end_lost_from = *done - NET_START - 4 * PACKET;
    }
    assert_true(s->speaks[4] && s->is_parent[4]);
    return n;
}

static rs_time last_complete(const net *n) {
    rs_time last = 0;
    for (rs_peer i = 1; i < SERVERS; i++) {
        const net_told *told = net_event(n, i, RS_EV_COMPLETE, ANYONE);
        last = told && told->at > last ? told->at : last;
    }
    return last;
}

/* The sender says DATA_FNSD to its speakers, and they to the others, down the tree. */
static void end__is_told_down_the_tree(void **state) {
    (void)state;
    seen s;
    rs_time done;
    net *n = lose_the_end(40, &s, &done);
    net_at(n, 5 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    for (rs_peer i = 4; i < SERVERS; i++)
        assert_int_equal(net_messages(n, 0, i, RS_MSG_DATA_FNSD), s.speaks[i]);
    assert_in_range(last_complete(n), done, done + 15 * MS);
    net_free(n);
}

/* A head that passes nothing on: those below it hear it from the sender after all. */
static void end__is_told_to_those_whose_head_is_mute(void **state) {
    (void)state;
    seen s;
    rs_time done;
    net *n = lose_the_end(41, &s, &done);
    net_mute(n, 4, true);
    net_at(n, 5 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    uint32_t told = 0;
    for (rs_peer i = 4; i < SERVERS; i++) {
        const net_said *said = s.speaks[i] ? NULL : net_message(n, 0, i, RS_MSG_DATA_FNSD, 0);
        if (!said)
            continue;
        told++;
        assert_in_range(said->at, done + 20 * MS, done + 40 * MS);
    }
    assert_true(told > 0);
    net_free(n);
}

static void end__is_told_though_a_head_dies(void **state) {
    (void)state;
    seen s;
    rs_time done;
    net *n = lose_the_end(42, &s, &done);
    net_kill(n, 4);
    net_at(n, 30 * SEC);
    assert_int_equal(complete(n), SERVERS - 2);
    assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, ANYONE), 1);
    assert_in_range(last_complete(n), done, done + 100 * MS);
    net_free(n);
}

/* One that says so while data come is not believed: nobody asks for what is still to be sent. */
static void end__is_told_too_early(void **state) {
    (void)state;
    seen s;
    net *n = begin(43, &s);
    net_at(n, 100 * MS);
    rs_message open = net_message(n, 0, 5, RS_MSG_OPEN, 0)->message;
    const rs_report lie = {.nonce = open.nonce, .flags = RS_REPORT_DONE, .receivers = 1};
    for (rs_time at = 100 * MS; at < 400 * MS; at += MS) {
        net_at(n, at);
        uint8_t bytes[RS_HEADER_MAX];
        size_t length = rs_report_encode(&lie, bytes);
        for (rs_peer i = 1; i < SERVERS; i++) {
            const rs_packet_in packet = {.channel = RS_CH_PEER_DATAGRAM,
                                         .peer = s.reads[i],
                                         .group = RS_NO_GROUP,
                                         .header = bytes,
                                         .header_length = (uint16_t)length};
            if (!s.speaks[i])
                rs_receive(net_node(n, i), net_knob(n)->now, &packet);
        }
    }
    for (rs_peer i = 1; i < SERVERS; i++)
        assert_int_equal(net_stats(n, i, net_receiving(n, i)).requests_sent, 0);
    net_at(n, 5 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START < 600 * MS);
    net_free(n);
}

/* What heads repair for other racks does not share the sender's rack's way out with the data. */
static void head_of_the_senders_rack__collects_for_no_other(void **state) {
    (void)state;
    seen s;
    net *n = begin(14, &s);
    net_at(n, 300 * MS);
    assert_true(s.reports[1] && s.reports[2] && s.reports[3]);
    assert_true(s.is_parent[1]); /* of those in its rack */
    assert_int_equal(s.to_senders_rack, 0);
    net_free(n);
}

/* One that spoke for others was not heard for a while, and is a child among them since: it asks its parent for what it
 * misses. It went on to tell the sender, which repairs for speakers only, until the data was over. */
static void speaker_that_was_gone_around__is_repaired_by_its_parent(void **state) {
    (void)state;
    seen s;
    net *n = begin(15, &s);
    net_knob(n)->loss = 0.03;
    net_at(n, 150 * MS);
    rs_peer victim = 1;
    while (victim < SERVERS && !(s.speaks[victim] && s.is_parent[victim]))
        victim++;
    assert_in_range(victim, 1, SERVERS - 1);
    rs_xfer its = net_receiving(n, victim);
    assert_int_equal(net_stats(n, victim, its).requests_sent, 0);
    net_mute(n, victim, true);
    net_at(n, 200 * MS);
    net_mute(n, victim, false);
    net_at(n, 400 * MS);
    assert_false(s.speaks[victim]);
    assert_true(net_stats(n, victim, its).peer_repairs_received > 50);
    net_at(n, 5 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    net_free(n);
}

static bool each_fiftieth(net *n, rs_peer to, const rs_data_header *h, void *context) {
    (void)n, (void)to, (void)context;
    return !(h->flags & RS_DATA_REPAIR) && h->sn % 50 == 7;
}

/* What all of them lost comes to all by one repair, and a parent does not send it once more. If the top has it alone,
 * by a patch, it comes down the tree level by level at once: a parent remembers what it was asked for and lacked.
 * Nobody asks again and again. */
static void common_losses__come_once(void **state) {
    (void)state;
    seen s;
    net *n = begin(16, &s);
    net_knob(n)->drop = each_fiftieth;
    net_at(n, 5 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    uint64_t requests = 0, repairs = 0, losses = (OBJECT / by_tree.fragment_size + 43) / 50 * (SERVERS - 1);
    for (rs_peer i = 1; i < SERVERS; i++) {
        requests += net_stats(n, i, net_receiving(n, i)).requests_sent;
        repairs += net_stats(n, i, net_receiving(n, i)).peer_repairs_received;
    }
    print_message("%llu requests for %llu repairs\n", (unsigned long long)requests, (unsigned long long)repairs);
    assert_in_range(repairs, 1, losses / 4);
    assert_true(requests < losses * 5 / 4);
    net_free(n);
}

static bool each_sixtieth_to_a_rack(net *n, rs_peer to, const rs_data_header *h, void *context) {
    (void)n, (void)context;
    return !(h->flags & RS_DATA_REPAIR) && to / 4 == 4 && h->sn % 60 == 7;
}

static bool each_sixtieth_to_one(net *n, rs_peer to, const rs_data_header *h, void *context) {
    (void)n, (void)context;
    return !(h->flags & RS_DATA_REPAIR) && to == 19 && h->sn % 60 == 7;
}

/* What a rack lost on its way in left its place on the links behind that to the repairs: the rate stays. Of what one
 * lost on its own link it does not know whether it took its place, so room is left for its repairs. */
static void losses_of_a_rack__need_no_room_on_its_links(void **state) {
    (void)state;
    seen s;
    net *n = begin(16, &s);
    net_knob(n)->drop = each_sixtieth_to_a_rack;
    net_at(n, 5 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    assert_in_range(s.least_share, GIGABIT / 100 * 99, GIGABIT);
    net_free(n);
    n = begin(16, &s);
    net_knob(n)->drop = each_sixtieth_to_one;
    net_at(n, 5 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    assert_in_range(s.least_share, GIGABIT / 100 * 97, GIGABIT / 1000 * 988);
    net_free(n);
}

/* Requests and repairs between receivers are lost when the data are over: they come again within a few round trips. */
static void repairs_lost_at_the_end__are_asked_for_soon(void **state) {
    (void)state;
    rs_time sum = 0;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        net *n = net_new(SERVERS, &by_tree, 60 + seed);
        net_knob(n)->loss = 0.01;
        net_knob(n)->peer_loss = 0.2;
        rs_time done = until_sent(n, net_send_all(n, 1, OBJECT));
        while (complete(n) < SERVERS - 1) /* some serve those below them a little longer than they need to */
            net_at(n, net_now(n) + MS);
        rs_time took = last_complete(n) - done;
        print_message("seed %d: %.2f ms after the data\n", (int)seed, (double)took / 1e6);
        sum += took;
        net_free(n);
    }
    assert_true(sum < 60 * MS);
}

static rs_peer a_collector(const seen *s, const seen *not_of) {
    for (rs_peer i = 1; i < SERVERS; i++)
        if (s->is_parent[i] && !not_of->reports[i])
            return i;
    return 0;
}

/* One that collects reports stops: the others are whole, and the data channel does not stand still meanwhile. */
static void one_that_collects_ends(uint64_t seed, void (*end)(net *n, rs_peer server)) {
    seen s, none = {0};
    net *n = begin(seed, &s);
    net_knob(n)->loss = 0.001;
    net_at(n, 200 * MS);
    rs_peer victim = a_collector(&s, &none);
    assert_true(victim > 0);
    s.gaps.from = net_now(n);
    end(n, victim);
    net_at(n, 400 * MS);
    assert_true(s.gaps.longest < 30 * MS);
    net_at(n, 30 * SEC);
    assert_int_equal(complete(n), SERVERS - 2);
    assert_non_null(net_event(n, 0, RS_EV_PEER_FAILED, victim));
    assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, ANYONE), 1);
    net_free(n);
}

static void collector_killed__others_go_on(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++)
        one_that_collects_ends(seed, net_kill);
}

static void collector_frozen__others_go_on(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++)
        one_that_collects_ends(seed, net_freeze);
}

/* The head of a rack ends, and so does the one that took its place: one of those that are left is asked by the other. A
 * receiver of another rack collected for both, and what it repaired for them shared the rack's way in with the data. */
static void heads_of_a_rack_end__it_still_helps_itself(void **state) {
    (void)state;
    seen s;
    net *n = begin(16, &s);
    net_at(n, 100 * MS);
    assert_true(s.speaks[4] && s.is_parent[4]);
    net_kill(n, 4);
    net_at(n, 200 * MS);
    rs_peer next = s.speaks[5] ? 5 : s.speaks[6] ? 6 : 7;
    assert_true(s.speaks[next] && s.is_parent[next]);
    net_kill(n, next);
    net_at(n, 300 * MS);
    rs_peer left[2], count = 0;
    for (rs_peer i = 5; i < 8; i++)
        if (i != next)
            left[count++] = i;
    assert_true(s.reads[left[0]] == left[1] || s.reads[left[1]] == left[0]);
    net_at(n, 10 * SEC);
    assert_int_equal(complete(n), SERVERS - 3);
    net_free(n);
}

static void every_collector_is_lost_in_turn__the_rest_is_complete(void **state) {
    (void)state;
    seen s, none = {0};
    net *n = begin(5, &s);
    net_knob(n)->loss = 0.001;
    uint32_t killed = 0;
    for (rs_time at = 100 * MS; at <= 400 * MS; at += 60 * MS) {
        net_at(n, at);
        rs_peer victim = a_collector(&s, &none);
        if (!victim)
            continue;
        net_kill(n, victim);
        killed++;
        memset(s.is_parent, 0, sizeof s.is_parent);
    }
    assert_true(killed >= 3);
    net_at(n, 40 * SEC);
    assert_int_equal(complete(n), SERVERS - 1 - killed);
    net_free(n);
}

/* A process stops for a while and goes on: nobody is lost. */
static void collector_pauses__all_are_complete(void **state) {
    (void)state;
    seen s, none = {0};
    net *n = begin(6, &s);
    net_at(n, 200 * MS);
    net_pause(n, a_collector(&s, &none), 1 * SEC);
    net_at(n, 30 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    net_free(n);
}

static void sender_pauses__all_are_complete(void **state) {
    (void)state;
    seen s;
    net *n = begin(7, &s);
    net_at(n, 200 * MS);
    net_pause(n, 0, 1 * SEC);
    net_at(n, 30 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    net_free(n);
}

/* No datagram between peers goes through: everybody asks the sender after all. */
static void no_datagrams__all_are_complete(void **state) {
    (void)state;
    seen s;
    net *n = begin(8, &s);
    net_knob(n)->loss = 0.001;
    net_knob(n)->peer_loss = 1;
    net_at(n, 60 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    net_free(n);
}

/* One of many behind a port of half the rate speaks for itself: the others follow it, nothing is lost for long. */
static void slow_one_deep_in_the_tree__the_rate_follows_it(void **state) {
    (void)state;
    seen s;
    net *n = begin(9, &s);
    net_bottleneck(n, SERVERS - 1, GIGABIT / 2, 64, false);
    net_at(n, 10 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    const net_told *done = net_event(n, 0, RS_EV_SEND_DONE, ANYONE);
    assert_true(done->at - NET_START < 1700 * MS); /* 1.12 s on its wire */
    net_free(n);
}

static bool one_in_sixteen_is_lost_at_the_last(net *n, rs_peer to, const rs_data_header *h, void *context) {
    (void)n;
    (void)context;
    return to == SERVERS - 1 && h->sn % 16 == 0;
}

/* One that loses much speaks for itself from the middle of the object on. It was as far as all that it was reported
 * with, so the data channel does not wait for its first report. */
static void lossy_one_begins_to_speak__the_data_do_not_pause(void **state) {
    (void)state;
    seen s;
    net *n = begin(17, &s);
    net_knob(n)->drop = one_in_sixteen_is_lost_at_the_last;
    s.gaps.from = 100 * MS;
    for (rs_time at = 100 * MS; at < 2 * SEC && !s.speaks[SERVERS - 1]; at += MS)
        net_at(n, at);
    assert_true(s.speaks[SERVERS - 1]);
    assert_true(s.newest > 4096 && s.newest < OBJECT / 8896 - 100);
    assert_in_range(s.gaps.longest, PACKET / 2, 10 * PACKET);
    net_knob(n)->drop = NULL;
    net_at(n, 10 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    net_free(n);
}

/* A path so slow that packets ask for reports one after the other: none of them is taken for a repeated question. */
static void slow_path__reports_come(void **state) {
    (void)state;
    seen s = {0};
    rs_config slow = by_tree;
    slow.nic_rate_bps = GIGABIT / 50;
    net *n = net_new(SERVERS, &slow, 13);
    net_knob(n)->watch = watch;
    net_knob(n)->watch_context = &s;
    net_send_all(n, 1, UINT64_C(4) << 20); /* 472 packets */
    net_at(n, 20 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    assert_true(s.at_sender > 160); /* two speakers, at every fifth packet: others collect of four */
    net_free(n);
}

static bool gone_around(const net *n, rs_peer server) {
    const net_told *log;
    for (uint32_t i = 0; (log = net_event_nth(n, 0, RS_EV_LOG, i)); i++)
        if (log->event.peer == server && strstr(log->event.cause, "than it said"))
            return true;
    return false;
}

/* Much is lost everywhere, and some say so before those that they report to have counted theirs: nobody lied. */
static void losses_from_the_start__nobody_is_blamed(void **state) {
    (void)state;
    for (uint64_t seed = 20; seed < 24; seed++) {
        seen s;
        net *n = begin(seed, &s);
        net_knob(n)->loss = 0.1;
        net_at(n, 400 * MS);
        for (rs_peer i = 1; i < SERVERS; i++)
            assert_false(gone_around(n, i));
        net_knob(n)->loss = 0;
        net_at(n, 20 * SEC);
        assert_int_equal(complete(n), SERVERS - 1);
        net_free(n);
    }
}

/* One hears late of what is sent: the others do not wait for it, and go no slower for it when it comes, whether it
 * speaks to the sender or not. */
static void one_has_light_late__the_others_begin(void **state) {
    (void)state;
    seen s;
    net *n = net_new(SERVERS, &by_tree, 17);
    net_send_all(n, 1, OBJECT);
    net_at(n, 10 * SEC);
    rs_time usual = net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at;
    net_free(n);
    for (rs_peer late = 1; late < SERVERS; late++) {
        n = net_new(SERVERS, &by_tree, 17);
        s = (seen){.gaps.from = 10 * MS};
        net_knob(n)->watch = watch;
        net_knob(n)->watch_context = &s;
        net_dark_until(n, late, 10 * MS);
        rs_xfer xfer = net_send_all(n, 1, OBJECT);
        net_at(n, 200 * MS);
        assert_in_range(net_stats(n, 0, xfer).high_rate_at - NET_START, 1, 9 * MS);
        assert_true(s.gaps.longest < 3 * MS);
        net_at(n, 10 * SEC);
        assert_int_equal(complete(n), SERVERS - 1);
        assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at < usual + 11 * MS);
        net_free(n);
    }
}

/* A few have light and most have none yet: they are waited for. */
static void most_have_no_light_yet__they_are_waited_for(void **state) {
    (void)state;
    net *n = net_new(SERVERS, &by_tree, 18);
    for (rs_peer i = 1; i < SERVERS / 2; i++)
        net_dark_until(n, i, 20 * MS);
    rs_xfer xfer = net_send_all(n, 1, OBJECT);
    net_at(n, 200 * MS);
    assert_true(net_stats(n, 0, xfer).high_rate_at - NET_START >= 20 * MS);
    net_at(n, 10 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    net_free(n);
}

/* One that collects tells of those below it what is not so: they say otherwise, now and then, and it is gone around. */
static void liar__is_gone_around(void **state) {
    (void)state;
    seen s;
    net *n = begin(10, &s);
    net_at(n, 100 * MS);
    rs_peer liar = 0;
    for (rs_peer i = 1; i < SERVERS && !liar; i++)
        if (s.is_parent[i] && s.speaks[i])
            liar = i;
    net_mute(n, liar, true); /* its own words are made up here */
    rs_message open = net_message(n, 0, liar, RS_MSG_OPEN, 0)->message;
    rs_report lie = {.nonce = open.nonce, .flags = RS_REPORT_OWN | RS_REPORT_LEAST, .receivers = 20};
    for (rs_time at = 100 * MS; at < 3 * SEC && !gone_around(n, liar); at += MS / 2) {
        net_at(n, at);
        lie.highest = lie.least = lie.received = s.newest;
        lie.at = (uint64_t)at;
        uint8_t bytes[RS_HEADER_MAX];
        const rs_packet_in packet = {.channel = RS_CH_PEER_DATAGRAM,
                                     .peer = liar,
                                     .group = RS_NO_GROUP,
                                     .header = bytes,
                                     .header_length = rs_report_encode(&lie, bytes)};
        rs_receive(net_node(n, 0), net_knob(n)->now, &packet);
        if (at == 150 * MS) /* all below it lose much */
            net_knob(n)->loss = 0.2;
    }
    assert_true(gone_around(n, liar));
    net_knob(n)->loss = 0;
    net_mute(n, liar, false);
    net_at(n, 60 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    net_free(n);
}

#define FROM 300u
#define TO 330u /* fragments that a receiver's memory changes, and that all others miss on the tree */

typedef struct {
    rs_peer holder;
    uint64_t wrong_repairs; /* of these fragments, by the holder */
} spoiler;

static bool only_the_holder_hears(net *n, rs_peer to, const rs_data_header *h, void *context) {
    const spoiler *w = context;
    (void)n;
    return to != w->holder && h->sn >= FROM && h->sn < TO && !(h->flags & RS_DATA_REPAIR);
}

static void see_repairs(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                        size_t length, void *context) {
    spoiler *w = context;
    rs_data_header h;
    (void)n, (void)to;
    if (arrives && channel == RS_CH_PEER_DATAGRAM && from == w->holder && rs_wire_decode_data(header, length, &h))
        w->wrong_repairs += h.sn >= FROM && h.sn < TO;
}

/* One that repairs those below it does so with changed bytes. They find out by the digest, fetch the pieces again, from
 * who has the right ones, and nobody fails; so does the one itself. */
static void parent__repairs_with_changed_bytes(void **state) {
    (void)state;
    uint32_t parents = 0, fetched = 0;
    for (rs_peer holder = 1; holder < SERVERS; holder++) {
        spoiler w = {.holder = holder};
        net *n = net_new(SERVERS, &by_tree, 100 + holder);
        net_digest(n, (rs_digest){.algorithm = 1, .length = 16, .value = {1}});
        net_knobs *k = net_knob(n);
        k->drop = only_the_holder_hears;
        k->watch = see_repairs;
        k->drop_context = k->watch_context = &w;
        net_spoils(n, holder, FROM, TO);
        net_send_all(n, 1, 1000 * 8896);
        net_at(n, 10 * SEC);
        const net_told *done = net_event(n, 0, RS_EV_SEND_DONE, ANYONE);
        if (!done || !done->event.ok)
            net_show(n);
        assert_true(done && done->event.ok);
        assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, ANYONE), 0);
        parents += w.wrong_repairs > 0;
        for (rs_peer i = 1; i < SERVERS; i++) {
            assert_true(net_has(n, i, 1));
            assert_int_equal(net_wrong(n, i, 1), 0);
            assert_true(net_fetches(n, i) <= 2); /* these lie in two pieces at most: not for ever */
            fetched += i != holder && net_fetches(n, i) > 0;
        }
        net_free(n);
    }
    print_message("%u of %u repaired others with changed bytes, %u fetched pieces again\n", parents, SERVERS - 1,
                  fetched);
    assert_true(parents > 0 && fetched > 0);
}

/* Agents that do not know the tree are not told of it, and hold the sender back as ever. */
static void some_old_agents__report_directly(void **state) {
    (void)state;
    seen s;
    old_from = 9;
    old_count = 5;
    net *n = begin(11, &s);
    net_bottleneck(n, 11, GIGABIT / 2, 64, false);
    net_at(n, 10 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    for (rs_peer i = 1; i < SERVERS; i++) {
        bool old = !knows_tree(NULL, i);
        assert_true(s.reports[i] == !old);
        assert_true((net_message(n, 0, i, RS_MSG_REPORT_TO, 0) == NULL) == old);
        assert_true(!old || !s.is_parent[i]);
    }
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START < 1700 * MS); /* 1.12 s on its wire */
    net_free(n);
    old_count = 0;
}

static void many_old_agents__nobody_reports_by_the_tree(void **state) {
    (void)state;
    seen s;
    old_from = 5;
    old_count = 12;
    net *n = begin(12, &s);
    net_knob(n)->loss = 0.001;
    net_at(n, 10 * SEC);
    assert_int_equal(complete(n), SERVERS - 1);
    for (rs_peer i = 1; i < SERVERS; i++) {
        assert_false(s.reports[i]);
        const net_said *told = NULL;
        for (uint32_t k = 0; net_message(n, 0, i, RS_MSG_REPORT_TO, k); k++)
            told = net_message(n, 0, i, RS_MSG_REPORT_TO, k);
        assert_true(!told || (knows_tree(NULL, i) && !told->message.report_to.on));
    }
    net_free(n);
    old_count = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_report__the_sender_reads_two),
        cmocka_unit_test(start__only_speakers_are_asked),
        cmocka_unit_test(short_bound__who_speaks_seldom_is_not_asked),
        cmocka_unit_test(samples__do_not_come_all_at_once),
        cmocka_unit_test(slow_link__samples_leave_room_for_reports),
        cmocka_unit_test(slow_link__what_is_collected_leaves_room_for_data),
        cmocka_unit_test(fast_path__fewer_report_by_the_tree),
        cmocka_unit_test(losses__are_mended_by_those_near),
        cmocka_unit_test(end__is_told_with_the_repairs),
        cmocka_unit_test(end__is_told_down_the_tree),
        cmocka_unit_test(end__is_told_to_those_whose_head_is_mute),
        cmocka_unit_test(end__is_told_though_a_head_dies),
        cmocka_unit_test(end__is_told_too_early),
        cmocka_unit_test(head_of_the_senders_rack__collects_for_no_other),
        cmocka_unit_test(speaker_that_was_gone_around__is_repaired_by_its_parent),
        cmocka_unit_test(common_losses__come_once),
        cmocka_unit_test(collector_killed__others_go_on),
        cmocka_unit_test(collector_frozen__others_go_on),
        cmocka_unit_test(heads_of_a_rack_end__it_still_helps_itself),
        cmocka_unit_test(every_collector_is_lost_in_turn__the_rest_is_complete),
        cmocka_unit_test(collector_pauses__all_are_complete),
        cmocka_unit_test(sender_pauses__all_are_complete),
        cmocka_unit_test(no_datagrams__all_are_complete),
        cmocka_unit_test(slow_one_deep_in_the_tree__the_rate_follows_it),
        cmocka_unit_test(lossy_one_begins_to_speak__the_data_do_not_pause),
        cmocka_unit_test(slow_path__reports_come),
        cmocka_unit_test(losses_of_a_rack__need_no_room_on_its_links),
        cmocka_unit_test(repairs_lost_at_the_end__are_asked_for_soon),
        cmocka_unit_test(losses_from_the_start__nobody_is_blamed),
        cmocka_unit_test(one_has_light_late__the_others_begin),
        cmocka_unit_test(most_have_no_light_yet__they_are_waited_for),
        cmocka_unit_test(liar__is_gone_around),
        cmocka_unit_test(parent__repairs_with_changed_bytes),
        cmocka_unit_test(some_old_agents__report_directly),
        cmocka_unit_test(many_old_agents__nobody_reports_by_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
