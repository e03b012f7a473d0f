/* A whole agent on loopback, without a manager and without a thread: a test turns its loop. */
#ifndef TESTS_LONE_AGENT_H
#define TESTS_LONE_AGENT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "daemon/agent.h"
#include "daemon/options.h"

typedef struct {
    char directory[64], store[96], socket[96], port[8], data_port[8];
    rs_agent *agent;
} lone_agent;

/* Of that server name, at 127.0.0.1, with that packet I/O; its ports go by the process. */
static inline void lone_agent_start_with(lone_agent *w, char *server, char *io) {
    rs_options options;
    snprintf(w->directory, sizeof w->directory, "/dev/shm/rostrum-%s-XXXXXX", server);
    assert_non_null(mkdtemp(w->directory));
    snprintf(w->store, sizeof w->store, "%s/objects", w->directory);
    assert_int_equal(mkdir(w->store, 0755), 0);
    snprintf(w->socket, sizeof w->socket, "%s/agent.sock", w->directory);
    snprintf(w->port, sizeof w->port, "%d", 20000 + getpid() % 20000);
    snprintf(w->data_port, sizeof w->data_port, "%d", 40000 + getpid() % 20000);
    static char names[][16] = {"rostrumd", "--server", "--interface",    "lo",   "--address",   "127.0.0.1", "--socket",
                               "--store",  "--quota",  "--control-port", "--io", "--data-port", "1000000"};
    /* The agent keeps what it is given. */
    char *argv[] = {names[0], names[1],  server,       names[2], names[3],  names[4], names[5],
                    names[6], w->socket, names[7],     w->store, names[9],  w->port,  names[10],
                    io,       names[11], w->data_port, names[8], names[12], NULL};
    assert_int_equal(rs_options_parse((int)(sizeof argv / sizeof *argv) - 1, argv, &options, stdout, stderr),
                     RS_OPTIONS_RUN);
    w->agent = rs_agent_new(&options);
    assert_non_null(w->agent);
}

static inline void lone_agent_start(lone_agent *w, char *server) {
    static char io[] = "udp";
    lone_agent_start_with(w, server, io);
}

static inline void lone_agent_stop(lone_agent *w) {
    char command[128];
    rs_agent_free(w->agent);
    snprintf(command, sizeof command, "rm -r %s", w->directory);
    assert_int_equal(system(command), 0);
}

#endif
