/* A link, its manager's end on loopback and what the callbacks said. Time is the test's own: sockets are real, waiting
 * is not. */
#ifndef RS_TEST_LINK_FIXTURE_H
#define RS_TEST_LINK_FIXTURE_H

#include "link_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS ((rs_time)1000000)

typedef struct {
    rs_manager_client *link;
    rs_time now;
    int fd;
    unsigned wants;
    link_peer peer;
    link_peer other; /* a second manager, of link_fixture_setup_two */
    unsigned ups, downs, responses, moves, failures, lights, goodbyes, lives, confirmed, silences, answers;
    char text[512], reason[256], id[64];
    rs_manager_decision decision;
    uint64_t accepted_size;
    rs_path_kind kind;
    rs_manager_live_path live[2];
} fixture;

int link_fixture_setup(void **state);
int link_fixture_setup_two(void **state);
int link_fixture_setup_tls(void **state, const rs_tls_files *tls); /* `tls` must stay */
int link_fixture_teardown(void **state);
#define with_two_managers(test) cmocka_unit_test_setup_teardown(test, link_fixture_setup_two, link_fixture_teardown)
#define with_link(test) cmocka_unit_test_setup_teardown(test, link_fixture_setup, link_fixture_teardown)

/* One turn of the event loop, waiting at most 100 ms for the socket. */
void turn(fixture *f);
#define turn_until(f, condition)                                                      \
    do {                                                                              \
        int turns = 0;                                                                \
        while (!(condition)) {                                                        \
            if (++turns > 300)                                                        \
                fail_msg("waited for " #condition "; the last words: %s", (f)->text); \
            turn(f);                                                                  \
        }                                                                             \
    } while (0)

/* Time goes on to the next deadline, and what is due happens. */
void skip_to_deadline(fixture *f);
/* The next call the agent makes; its arguments, until link_args_free. */
const void *expect_call(fixture *f, const char *expected);
/* Sends and frees. */
void send_frame(fixture *f, link_frame frame);
void grant(fixture *f, const char *request_id, const char *response_id);
void respond(fixture *f, const char *request_id, int32_t decision, const char *reason);
/* The manager accepts the connection and reads hello. */
void greet(fixture *f);
/* Starts the link or lets it reconnect, until it is up. */
void come_up(fixture *f);
rs_status ask(fixture *f, const char *id);

#endif
