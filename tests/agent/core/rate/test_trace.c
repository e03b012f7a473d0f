/* Rate control alone (rate/control.c), against traces: made here by a sender and a link in virtual time, or read from a
 * file (`test_core_trace FILE` prints the rate after each report).
 *
 * A trace is text, an event a line, times in ns, `#` begins a comment:
 *   start NOW CEILING_BPS PACKET_BYTES FIRST_BPS   the data channel begins; what path and NIC carry at most
 *   mark NOW POS                                   the packet at that position leaves and asks for a report
 *   report NOW POS AT WAITED RECEIVED REPAIRS DROPPED SENT IDLE LATE EVERY ROOM KNOWN
 *                                                  one comes: the fields of rs_rate_sample, by its names */
#include "check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"
#include "core/rate/control.h"
#include "core/rate/pacer.h"

#define MS INT64_C(1000000)
#define EPOCH (20 * MS)
#define REPORTS (4096u * 4)

typedef struct {
    rs_rate rate;
    rs_receiver_rate receiver;
    rs_sent_times sent_times;
} control;

static void start(control *c, rs_time now, int64_t ceiling_bps, uint32_t packet_bytes, int64_t first_bps) {
    *c = (control){0};
    rs_rate_start(&c->rate, now, ceiling_bps, EPOCH);
    rs_path_model_start(&c->receiver.model, packet_bytes, first_bps);
    c->rate.model_bps = first_bps;
}

static int64_t take(control *c, const rs_rate_sample *s) {
    if (rs_control_path(&c->rate, &c->receiver, &c->sent_times, s))
        c->rate.model_bps = s->rate_is_known ? 0 : c->receiver.model.wanted_bps;
    if (rs_control_losses(&c->rate, &c->receiver, s) == RS_LOSS_CUT)
        rs_control_losses_done(&c->receiver);
    rs_rate_tick(&c->rate, s->now);
    return rs_rate_bps(&c->rate);
}

/* ------------------------------------------------------------------------------------------------ replaying a trace */

/* Calls `each` with every report's time and the rate after it. False: a line is none of these. */
static bool replay(FILE *trace, void (*each)(void *context, rs_time now, int64_t bps), void *context) {
    control c = {0};
    char line[512];
    while (fgets(line, sizeof line, trace)) {
        rs_rate_sample s = {0};
        int64_t ceiling, first;
        uint32_t bytes, known;
        rs_time now;
        uint64_t pos;
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (sscanf(line, "start %" SCNd64 " %" SCNd64 " %" SCNu32 " %" SCNd64, &now, &ceiling, &bytes, &first) == 4) {
            start(&c, now, ceiling, bytes, first);
            rs_sent_times_start(&c.sent_times, now, 0, 0); /* the trace says which packets are marked */
        } else if (sscanf(line, "mark %" SCNd64 " %" SCNu64, &now, &pos) == 2) {
            rs_sent_times_add(&c.sent_times, now, pos, false);
        } else if (sscanf(line,
                          "report %" SCNd64 " %" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                          " %" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNu64 " %" SCNu32,
                          &s.now, &s.pos, &s.at, &s.waited, &s.received, &s.repairs, &s.dropped, &s.sent, &s.idle,
                          &s.late, &s.reports_every, &s.room, &known) == 13) {
            s.rate_is_known = known != 0;
            each(context, s.now, take(&c, &s));
        } else {
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------------------------ a sender, a link, a receiver */

typedef struct {
    int64_t link_bps;     /* The narrowest place on the way, */
    uint64_t queue_bytes; /* what may stand in front of it, */
    rs_time delay;        /* one way without it, */
    double loss;          /* and packets lost whatever is sent. */
    rs_time late;         /* The link's host serves it up to so long late, each packet by itself. */
    uint32_t bytes;       /* of a packet on the wire; 0: 1,500 */
    uint64_t seed;
    rs_time time;
} link_case;

typedef struct {
    int64_t bps[REPORTS]; /* after each report */
    uint32_t reports;
    uint64_t sent, received;   /* in the second half of the time */
    rs_time worst_queue, half; /* likewise */
    int64_t least_bps;         /* likewise */
} outcome;

static void sample_line(FILE *trace, const rs_rate_sample *s) {
    fprintf(trace,
            "report %" PRId64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
            " %" PRId64 " %" PRId64 " %" PRId64 " %" PRIu64 " %d\n",
            s->now, s->pos, s->at, s->waited, s->received, s->repairs, s->dropped, s->sent, s->idle, s->late,
            s->reports_every, s->room, s->rate_is_known);
}

/* Sends as the verdicts say; what happens goes into the trace. */
static void run(const link_case *l, FILE *trace, outcome *out) {
    static rs_rate_sample coming[REPORTS]; /* reports under way, with `now` when they arrive */
    const uint32_t bytes = l->bytes ? l->bytes : 1500;
    const int64_t ceiling = l->late ? 2 * l->link_bps : INT64_C(10000000000), first = ceiling / 10;
    control c;
    rs_pacer pacer;
    rs_time now = 1000 * MS, end = now + l->time, free_at = now, came_last = 0;
    uint64_t pos = 0, received = 0, random = l->seed;
    uint32_t next = 0, made = 0;
    *out = (outcome){.half = now + l->time / 2, .least_bps = INT64_MAX};
    start(&c, now, ceiling, bytes, first);
    rs_sent_times_start(&c.sent_times, now, MS / 20, MS / 5);
    rs_pacer_start(&pacer, now, rs_rate_bps(&c.rate));
    fprintf(trace, "start %" PRId64 " %" PRId64 " %u %" PRId64 "\n", now, ceiling, bytes, first);
    while (now < end && out->reports < REPORTS) {
        if (next < made && coming[next % REPORTS].now <= now) {
            rs_rate_sample s = coming[next++ % REPORTS];
            s.sent = pos;
            s.idle = pacer.lost;
            s.reports_every = c.sent_times.every;
            sample_line(trace, &s);
            pacer.rate_bps = out->bps[out->reports++] = take(&c, &s);
            if (now >= out->half && pacer.rate_bps < out->least_bps)
                out->least_bps = pacer.rate_bps;
            rs_sent_times_every(&c.sent_times, c.receiver.model.startup_done ? MS : MS / 5);
            continue;
        }
        if (!rs_pacer_ready(&pacer, now)) {
            now = rs_pacer_due(&pacer);
            if (next < made && coming[next % REPORTS].now < now)
                now = coming[next % REPORTS].now;
            continue;
        }
        rs_time queue = free_at > now ? free_at - now : 0;
        bool lost = (double)queue * (double)l->link_bps / 8e9 + bytes > (double)l->queue_bytes ||
                    rs_random_part(rs_random_next(&random)) < l->loss;
        if (now >= out->half) {
            out->sent++;
            out->received += !lost;
            out->worst_queue = queue > out->worst_queue ? queue : out->worst_queue;
        }
        bool marked = rs_sent_times_add(&c.sent_times, now, pos, false);
        if (marked)
            fprintf(trace, "mark %" PRId64 " %" PRIu64 "\n", now, pos);
        if (!lost) {
            free_at = (free_at > now ? free_at : now) + rs_wire_time(bytes, l->link_bps);
            received++;
            rs_time late = l->late ? (rs_time)(rs_random_next(&random) % (uint64_t)l->late) : 0;
            rs_time came = free_at + late > came_last ? free_at + late : came_last;
            came_last = came;
            if (marked)
                coming[made++ % REPORTS] = (rs_rate_sample){
                    .now = came + 2 * l->delay, .pos = pos, .at = came + l->delay, .received = received, .room = 8192};
        }
        pos++;
        rs_pacer_sent(&pacer, now, bytes);
    }
}

static outcome result;

static double share_of_link(const link_case *l) {
    return (double)result.received * 1500 * 8e9 / (double)l->link_bps / (double)(l->time / 2);
}

static void any_link__is_used_and_little_is_lost(void **state) {
    (void)state;
    FILE *none = fopen("/dev/null", "w");
    assert_non_null(none);
    const int64_t rates[] = {INT64_C(100000000), INT64_C(300000000), INT64_C(1000000000), INT64_C(9400000000)};
    const rs_time delays[] = {MS / 50, MS / 2, 2 * MS};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        for (size_t k = 0; k < sizeof delays / sizeof delays[0]; k++) {
            const link_case l = {.link_bps = rates[i], .queue_bytes = 1 << 20, .delay = delays[k], .time = 1000 * MS};
            run(&l, none, &result);
            double share = share_of_link(&l), lost = 1 - (double)result.received / (double)result.sent;
            printf("%5lld Mb/s, %4lld us: %.1f %% used, %.3f %% lost, queue %.2f ms at most\n",
                   (long long)rates[i] / 1000000, (long long)delays[k] / 1000, 100 * share, 100 * lost,
                   (double)result.worst_queue / 1e6);
            assert_true(share > 0.95);
            assert_true(lost < 0.02); /* so much is not taken for congestion (rate.c, LOSS_PPM) */
        }
    fclose(none);
}

static void losses_that_are_not_congestion__do_not_lower_the_rate(void **state) {
    (void)state;
    FILE *none = fopen("/dev/null", "w");
    assert_non_null(none);
    const link_case l = {.link_bps = INT64_C(1000000000),
                         .queue_bytes = 1 << 20,
                         .delay = MS / 10,
                         .loss = 0.01,
                         .seed = 7,
                         .time = 2000 * MS};
    run(&l, none, &result);
    assert_true(share_of_link(&l) > 0.9);
    fclose(none);
}

/* Few packets make a sample on a slow link: one that comes late by most of a packet's time does not lower the rate. */
static void slow_link_whose_host_is_busy__keeps_its_rate(void **state) {
    (void)state;
    FILE *none = fopen("/dev/null", "w");
    assert_non_null(none);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const link_case l = {.link_bps = INT64_C(10000000),
                             .queue_bytes = 1 << 20,
                             .delay = MS / 2,
                             .late = 5 * MS,
                             .bytes = 9000,
                             .seed = seed,
                             .time = 16000 * MS};
        run(&l, none, &result);
        assert_true(result.least_bps > l.link_bps / 100 * 86);
    }
    fclose(none);
}

typedef struct {
    const outcome *expected;
    uint32_t count, others;
} comparison;

static void compare(void *context, rs_time now, int64_t bps) {
    comparison *c = context;
    (void)now;
    c->others += c->count >= c->expected->reports || c->expected->bps[c->count] != bps;
    c->count++;
}

static void trace__gives_the_same_verdicts_again(void **state) {
    (void)state;
    const link_case cases[] = {
        {.link_bps = INT64_C(300000000), .queue_bytes = 1 << 18, .delay = MS / 10, .time = 500 * MS},
        {.link_bps = INT64_C(1000000000),
         .queue_bytes = 1 << 15,
         .delay = MS / 10,
         .loss = 0.002,
         .seed = 1,
         .time = 500 * MS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        FILE *trace = tmpfile();
        assert_non_null(trace);
        run(&cases[i], trace, &result);
        assert_true(result.reports > 100);
        rewind(trace);
        comparison c = {.expected = &result};
        assert_true(replay(trace, compare, &c));
        assert_int_equal(c.count, result.reports);
        assert_int_equal(c.others, 0);
        fclose(trace);
    }
}

static void trace__with_a_line_that_is_none_is_refused(void **state) {
    (void)state;
    char text[] = "# nothing yet\nstart 0 1000 1500 1000\nreport 1 2 3\n";
    FILE *trace = fmemopen(text, strlen(text), "r");
    assert_non_null(trace);
    comparison c = {.expected = &result};
    assert_false(replay(trace, compare, &c));
    fclose(trace);
}

static void print(void *context, rs_time now, int64_t bps) {
    (void)context;
    printf("%" PRId64 " %" PRId64 "\n", now, bps);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        FILE *trace = fopen(argv[1], "r");
        if (!trace || !replay(trace, print, NULL)) {
            fprintf(stderr, "%s: %s\n", argv[1], trace ? "a line is no event of a trace" : "cannot be read");
            return 1;
        }
        fclose(trace);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_link__is_used_and_little_is_lost),
        cmocka_unit_test(losses_that_are_not_congestion__do_not_lower_the_rate),
        cmocka_unit_test(slow_link_whose_host_is_busy__keeps_its_rate),
        cmocka_unit_test(trace__gives_the_same_verdicts_again),
        cmocka_unit_test(trace__with_a_line_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
