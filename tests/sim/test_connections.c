/* When the simulator's control channel misses what was lost: as Linux' TCP does, with agents' options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/state.h"

#define US INT64_C(1000)
#define MS (1000 * US)
#define THERE (10 * US)

static struct {
    packet *packet;
    rs_time at;
} sent[16];
static uint32_t sent_count, due_count;
static rs_time due[32];
static place places[2] = {{.host = true}, {.host = true, .host_index = 1}};
static host hosts[2] = {{.place = 0}, {.place = 1}};

void network_send(sim *s, uint32_t node, packet *p) {
    (void)node;
    assert_true(sent_count < 16);
    sent[sent_count].packet = p;
    sent[sent_count++].at = s->now;
}

void event_put(sim *s, rs_time at, event_kind kind, uint32_t a, uint32_t b, packet *p) {
    (void)s, (void)a, (void)b, (void)p;
    assert_int_equal(kind, EVENT_AGAIN);
    due[due_count++] = at;
}

void host_receive(sim *s, host *h, packet *p) {
    (void)s, (void)h, (void)p;
}

void host_pump(sim *s, host *h) {
    (void)s, (void)h;
}

static void until(sim *s, rs_time end) {
    for (;;) {
        rs_time first = RS_NEVER;
        uint32_t which = 0;
        for (uint32_t i = 0; i < due_count; i++)
            if (due[i] < first) {
                first = due[i];
                which = i;
            }
        if (first > end)
            break;
        due[which] = due[--due_count];
        s->now = first;
        connection_again(s, 0, 1);
    }
    s->now = end;
}

static packet *say(sim *s) {
    packet *p = packet_new(s, PACKET_CONTROL, 4);
    p->from = 0;
    p->to = 1;
    p->wire_bytes = 100;
    connection_send(s, 0, 1, p);
    return p;
}

/* One message has come before: the round trip is known. */
static sim *begin(void) {
    sim *s = calloc(1, sizeof *s);
    s->places = places;
    s->place_count = 2;
    s->hosts = hosts;
    sent_count = due_count = 0;
    packet *p = say(s);
    until(s, THERE);
    connection_arrived(s, p);
    until(s, MS);
    sent_count = 0;
    return s;
}

static void end(sim *s) {
    for (uint32_t i = 0; i < s->connection_slots; i++) {
        if (s->connections[i]) {
            assert_int_equal(s->connections[i]->missing_count, 0);
            assert_int_equal(s->connections[i]->delivered, s->connections[i]->sent);
            flights_free(s, &s->connections[i]->early);
            free(s->connections[i]->missing);
        }
        free(s->connections[i]);
    }
    free(s->connections);
    packets_free(s);
    free(s);
}

static void arrives(sim *s, packet *p, rs_time at) {
    until(s, at);
    connection_arrived(s, p);
}

static void lone_one_waits_for_the_time_out(void **state) {
    (void)state;
    sim *s = begin();
    packet *p = say(s);
    connection_lost(s, p);
    until(s, 40 * MS);
    assert_int_equal(sent_count, 2);
    assert_true(sent[1].at == MS + 2 * 2 * THERE + 5 * MS);
    arrives(s, p, 40 * MS);
    end(s);
}

static void several__a_probe_shows_it(void **state) {
    (void)state;
    sim *s = begin();
    packet *p[2] = {say(s), say(s)};
    connection_lost(s, p[0]);
    connection_lost(s, p[1]);
    until(s, 40 * MS);
    assert_int_equal(sent_count, 4);
    assert_true(sent[2].at >= 3 * MS && sent[3].at <= 3 * MS + 3 * 2 * THERE);
    arrives(s, p[1], 40 * MS);
    arrives(s, p[0], 40 * MS);
    end(s);
}

static void later_one_shows_it(void **state) {
    (void)state;
    sim *s = begin();
    packet *p = say(s);
    connection_lost(s, p);
    until(s, 2 * MS);
    packet *later = say(s);
    arrives(s, later, 2 * MS + THERE);
    until(s, 3 * MS);
    assert_int_equal(sent_count, 3);
    assert_ptr_equal(sent[2].packet, p);
    assert_true(sent[2].at == 2 * MS + 2 * THERE);
    arrives(s, p, 30 * MS);
    assert_int_equal(sent_count, 3);
    end(s);
}

static void three_at_once_show_it__fewer_a_timer(void **state) {
    (void)state;
    for (uint32_t count = 2; count <= 3; count++) {
        sim *s = begin();
        packet *p = say(s), *others[3];
        for (uint32_t i = 0; i < count; i++)
            others[i] = say(s);
        connection_lost(s, p);
        for (uint32_t i = 0; i < count; i++)
            arrives(s, others[i], MS + THERE);
        until(s, 5 * MS);
        rs_time again = MS + 2 * THERE + (count < 3 ? 2 * MS + 2 * THERE / 4 : 0);
        assert_int_equal(sent_count, count + 2);
        assert_true(sent[count + 1].at == again);
        arrives(s, p, 6 * MS);
        end(s);
    }
}

/* What was sent again and lost again is missed again. */
static void again_and_again(void **state) {
    (void)state;
    sim *s = begin();
    packet *p = say(s);
    for (int i = 1; i <= 3; i++) {
        connection_lost(s, p);
        until(s, s->now + 25 * MS);
        assert_int_equal(sent_count, i + 1);
    }
    arrives(s, p, s->now + THERE);
    end(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lone_one_waits_for_the_time_out), cmocka_unit_test(several__a_probe_shows_it),
        cmocka_unit_test(later_one_shows_it), cmocka_unit_test(three_at_once_show_it__fewer_a_timer),
        cmocka_unit_test(again_and_again)};
    return cmocka_run_group_tests_name("connections", tests, NULL, NULL);
}
