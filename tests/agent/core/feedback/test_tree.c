/* The tree of reports as a pure function, and its datagrams. */
#include "check.h"

#include "core/feedback/report.h"
#include "core/feedback/reporter.h"
#include "core/feedback/tree.h"

#define MOST 10000u

static uint32_t starts[MOST], children[MOST], from_rack[MOST];

static rs_tree tree_of(uint32_t count, uint32_t per_rack, uint32_t arity) {
    uint32_t racks = 0;
    for (uint32_t i = 0; i < count; i += per_rack)
        starts[racks++] = i;
    return (rs_tree){.starts = starts, .rack_count = racks, .count = count, .tops = arity, .arity = arity};
}

/* Everybody has one parent, before it; nobody more children than the bound; heights are bounds of what is below. */
static void check_tree(const rs_tree *t, uint32_t per_rack, uint32_t levels_most) {
    static rs_tree_place places[MOST];
    uint32_t tops = 0;
    memset(children, 0, sizeof children);
    memset(from_rack, 0, sizeof from_rack);
    for (uint32_t i = 0; i < t->count; i++) {
        places[i] = rs_tree_place_of(t, i);
        assert_true(places[i].height < levels_most);
        if (places[i].parent == RS_TREE_SENDER) {
            tops++;
            continue;
        }
        uint32_t parent = places[i].parent;
        assert_true(parent < i);
        assert_true(places[parent].height > places[i].height);
        children[parent]++;
        from_rack[i / per_rack] += parent / per_rack != i / per_rack;
    }
    assert_in_range(tops, 1, t->tops);
    for (uint32_t i = 0; i < t->count; i++)
        assert_true(children[i] <= 2 * t->arity);
    for (uint32_t rack = 0; rack * per_rack < t->count; rack++)
        assert_true(from_rack[rack] <= 1); /* its head alone reports to another rack */
}

static void any_size__each_has_one_parent_and_few_children(void **state) {
    (void)state;
    const uint32_t counts[] = {1, 2, 3, 7, 33, 100, 999, 10000}, racks[] = {1, 2, 20, 250}, arities[] = {2, 8, 16};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (size_t r = 0; r < sizeof racks / sizeof racks[0]; r++)
            for (size_t a = 0; a < sizeof arities / sizeof arities[0]; a++) {
                rs_tree t = tree_of(counts[c], racks[r], arities[a]);
                check_tree(&t, racks[r], 24);
            }
}

static void ten_thousand__five_levels(void **state) {
    (void)state;
    rs_tree t = tree_of(10000, 40, 8);
    check_tree(&t, 40, 6);
}

#define NONCE UINT64_C(0x1122334455667788)

static const rs_report full_report = {.nonce = NONCE,
                                      .session = 3,
                                      .flags = RS_REPORT_OWN | RS_REPORT_LEAST,
                                      .receivers = 9,
                                      .highest = 1000,
                                      .received = 990,
                                      .repairs = 5,
                                      .dropped = 1,
                                      .at = 123456789,
                                      .waited = 42,
                                      .share_bps = 10000000000,
                                      .least = 900,
                                      .least_of = 0x0a000102,
                                      .lossy_ppm = 12000,
                                      .lossy_of = 0x0a000103,
                                      .silent = 0x0a000104};

static void report__there_and_back(void **state) {
    (void)state;
    uint8_t bytes[RS_HEADER_MAX];
    rs_report back;
    const uint8_t begins[] = {0x52, 0x50, 2, 1, 3, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
    assert_int_equal(rs_report_encode(&full_report, bytes), RS_REPORT_BYTES);
    assert_memory_equal(bytes, begins, sizeof begins);
    assert_true(rs_report_decode(bytes, RS_REPORT_BYTES, &back));
    assert_int_equal(back.least_of, full_report.least_of);
    assert_int_equal(back.share_bps, full_report.share_bps);
    assert_int_equal(back.silent, full_report.silent);
    assert_false(rs_report_decode(bytes, RS_REPORT_BYTES - 1, &back));
}

static void request__there_and_back(void **state) {
    (void)state;
    uint8_t bytes[RS_HEADER_MAX];
    rs_repair_request request = {.nonce = NONCE, .count = RS_REQUEST_RANGES}, back;
    for (uint32_t i = 0; i < request.count; i++)
        request.range[i] = (rs_range){i * 10, i * 10 + 3};
    size_t length = rs_request_encode(&request, bytes);
    assert_true(rs_request_decode(bytes, length, &back));
    assert_memory_equal(back.range, request.range, sizeof back.range);
    assert_false(rs_request_decode(bytes, length - 16, &back));
    request.range[3].to = request.range[3].from; /* of nothing */
    rs_request_encode(&request, bytes);
    assert_false(rs_request_decode(bytes, length, &back));
}

static uint64_t random_word = 88172645463325252u;

static uint32_t draw(uint32_t below) {
    random_word ^= random_word << 13;
    random_word ^= random_word >> 7;
    random_word ^= random_word << 17;
    return (uint32_t)(random_word >> 33) % below;
}

/* What is taken is what an encoder makes. */
static void garbage__is_refused_or_means_itself(void **state) {
    (void)state;
    uint8_t good[RS_HEADER_MAX], bad[RS_HEADER_MAX], again[RS_HEADER_MAX];
    rs_report report;
    rs_repair_request request = {.nonce = NONCE, .count = 2, .range = {{1, 2}, {5, 9}}}, asked;
    for (int round = 0; round < 200000; round++) {
        bool reports = round & 1;
        size_t length = reports ? rs_report_encode(&full_report, good) : rs_request_encode(&request, good);
        memcpy(bad, good, length);
        for (uint32_t changes = draw(4) + 1; changes > 0; changes--)
            bad[draw((uint32_t)length)] = (uint8_t)draw(256);
        if (rs_report_decode(bad, length, &report)) {
            assert_int_equal(rs_report_encode(&report, again), length);
            assert_memory_equal(again, bad, length);
        }
        if (rs_request_decode(bad, length, &asked)) {
            assert_int_equal(rs_request_encode(&asked, again), length);
            assert_memory_equal(again, bad, length);
        }
    }
}

/* --------------------------------------------------------------------------------------------------- merging */

#define US INT64_C(1000)
#define MS INT64_C(1000000)

static rs_reporter_child two[2];

static rs_reporter collector(void) {
    rs_reporter r = {.parent = 9, .height = 1, .child_count = 2, .children = two};
    memset(two, 0, sizeof two);
    for (uint32_t i = 0; i < 2; i++)
        two[i] = (rs_reporter_child){.peer = i + 1, .address = 0x0a000001 + i};
    rs_reporter_session(&r, 0, 1000);
    return r;
}

static rs_report at_sn(uint64_t sn) {
    return (rs_report){.nonce = NONCE, .flags = RS_REPORT_OWN, .receivers = 1, .highest = sn, .share_bps = 1000 - sn};
}

static rs_report child_at(uint64_t sn) {
    rs_report r = at_sn(sn);
    r.flags |= RS_REPORT_LEAST;
    r.least = sn;
    return r;
}

static void all_answered__the_least_goes_up_at_once(void **state) {
    (void)state;
    rs_reporter r = collector();
    rs_report own = at_sn(100), a = child_at(101), b = child_at(100), out;
    a.least = 40;
    a.lossy_ppm = 7;
    rs_reporter_mark(&r, 1 * MS, &own);
    assert_false(rs_reporter_due(&r, 1 * MS));
    assert_true(rs_reporter_heard(&r, 1 * MS, 1, &a));
    assert_false(rs_reporter_due(&r, 1 * MS));
    assert_true(rs_reporter_heard(&r, 1 * MS, 2, &b));
    assert_true(rs_reporter_due(&r, 1 * MS));
    rs_reporter_make(&r, 1 * MS, &out);
    assert_int_equal(out.flags, RS_REPORT_OWN | RS_REPORT_LEAST);
    assert_int_equal(out.least, 40);
    assert_int_equal(out.least_of, 0x0a000001); /* the child's own, which has no better name for itself */
    assert_int_equal(out.receivers, 3);
    assert_int_equal(out.lossy_of, 0x0a000001);
    assert_int_equal(out.share_bps, 899);
    assert_false(rs_reporter_due(&r, 100 * MS));
}

/* Around the ring's end, 990 is behind 5. */
static void around_the_end__behind_is_behind(void **state) {
    (void)state;
    rs_reporter r = collector();
    rs_report own = at_sn(5), a = child_at(990), b = child_at(7), out;
    rs_reporter_mark(&r, 1 * MS, &own);
    rs_reporter_heard(&r, 1 * MS, 1, &a);
    rs_reporter_heard(&r, 1 * MS, 2, &b);
    rs_reporter_make(&r, 1 * MS, &out);
    assert_int_equal(out.least, 990);
}

static void one_does_not_answer__it_is_waited_for_a_little_and_then_named(void **state) {
    (void)state;
    rs_reporter r = collector();
    rs_report b = child_at(0), out;
    for (uint32_t mark = 0; mark < 40; mark++) {
        rs_time now = (mark + 1) * MS;
        rs_report own = at_sn(mark * 10);
        b.highest = b.least = mark * 10;
        rs_reporter_mark(&r, now, &own);
        rs_reporter_heard(&r, now, 2, &b);
        assert_true(rs_reporter_due(&r, now + MS / 2));
        rs_reporter_make(&r, now + MS / 2, &out);
        assert_int_equal(out.silent, mark >= 9 ? 0x0a000001 : 0);
    }
    rs_reporter_done(&r, 50 * MS, true);
    b.flags = RS_REPORT_DONE | RS_REPORT_COMPLETE;
    rs_reporter_heard(&r, 50 * MS, 2, &b);
    rs_reporter_make(&r, 50 * MS, &out);
    assert_int_equal(out.flags, RS_REPORT_DONE); /* not whole: who knows what the silent one misses */
    assert_false(rs_reporter_served(&r));
}

/* Of many children's reports one is lost nearly every time: it does not hold the others up. */
static void one_report_is_lost__the_child_has_moved_on_with_the_others(void **state) {
    (void)state;
    rs_reporter r = collector();
    const uint64_t least[] = {950, 970, 950}; /* both answer; one does not; it does not again: it has not moved */
    rs_report out;
    for (uint32_t mark = 0; mark < 3; mark++) {
        rs_time now = (mark + 1) * MS;
        rs_report own = at_sn(960 + 20 * mark), a = child_at(950), b = child_at(960 + 20 * mark);
        rs_reporter_mark(&r, now, &own);
        if (mark == 0)
            rs_reporter_heard(&r, now, 1, &a);
        rs_reporter_heard(&r, now, 2, &b);
        rs_reporter_make(&r, now + MS / 2, &out);
        assert_int_equal(out.least, least[mark]);
    }
}

static void one_report_is_lost_at_the_rings_end__it_goes_on_at_its_beginning(void **state) {
    (void)state;
    rs_reporter r = collector();
    rs_report first = at_sn(995), second = at_sn(10), a = child_at(990), b = child_at(995), later = child_at(10), out;
    rs_reporter_mark(&r, 1 * MS, &first);
    rs_reporter_heard(&r, 1 * MS, 1, &a);
    rs_reporter_heard(&r, 1 * MS, 2, &b);
    rs_reporter_mark(&r, 2 * MS, &second);
    rs_reporter_heard(&r, 2 * MS, 2, &later);
    rs_reporter_make(&r, 2 * MS + MS / 2, &out);
    assert_int_equal(out.least, 5);
}

/* On a slow and busy way children answer late, each at another time, and those who collect for others more than
 * once. */
static void children_answer_one_by_one__a_mark_has_two_reports_at_most(void **state) {
    (void)state;
    rs_reporter r = collector();
    rs_report out;
    for (uint32_t mark = 0; mark < 5; mark++) {
        rs_time at = (mark + 1) * 100 * MS;
        rs_report own = at_sn(mark * 10), child = child_at(mark * 10);
        uint64_t told = 0;
        uint32_t reports = 0;
        rs_reporter_mark(&r, at, &own);
        for (rs_time now = at; now < at + 100 * MS; now += MS) {
            if ((now - at) % (10 * MS) == 5 * MS && now < at + 45 * MS)
                rs_reporter_heard(&r, now, 1 + (uint32_t)(now / (10 * MS) % 2), &child);
            if (!rs_reporter_due(&r, now))
                continue;
            rs_reporter_make(&r, now, &out);
            told = out.least;
            reports++;
        }
        assert_int_equal(told, mark * 10);
        assert_in_range(reports, 1, mark ? 2 : 5); /* how often marks come is known from the second on */
    }
}

static void strangers_and_nonsense__are_not_heard(void **state) {
    (void)state;
    rs_reporter r = collector();
    rs_report outside = child_at(1000), fine = child_at(1);
    assert_false(rs_reporter_heard(&r, MS, 7, &fine));
    assert_false(rs_reporter_heard(&r, MS, 1, &outside));
    assert_true(rs_reporter_heard(&r, MS, 1, &fine));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_size__each_has_one_parent_and_few_children),
        cmocka_unit_test(ten_thousand__five_levels),
        cmocka_unit_test(report__there_and_back),
        cmocka_unit_test(request__there_and_back),
        cmocka_unit_test(garbage__is_refused_or_means_itself),
        cmocka_unit_test(all_answered__the_least_goes_up_at_once),
        cmocka_unit_test(around_the_end__behind_is_behind),
        cmocka_unit_test(one_does_not_answer__it_is_waited_for_a_little_and_then_named),
        cmocka_unit_test(one_report_is_lost__the_child_has_moved_on_with_the_others),
        cmocka_unit_test(one_report_is_lost_at_the_rings_end__it_goes_on_at_its_beginning),
        cmocka_unit_test(children_answer_one_by_one__a_mark_has_two_reports_at_most),
        cmocka_unit_test(strangers_and_nonsense__are_not_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
