/* What came before timers were due is read before they run (QSM, end of Sec. 2.5).
 *
 * An agent that is late (it did not run, or had much else to do) finds in its sockets what others said meanwhile. A
 * timer that ran first would send a token again whose acknowledgement waits there, take its next node for silent, or
 * packets for lost that are here. So the timers of groups wait while a look at the sockets leaves some in them: until
 * they are empty, or RS_DRAIN_MOST datagrams were read, which is what they hold when they are full. A flood that never
 * leaves them empty so delays timers by that many datagrams, however long this process does not run between them. */
#ifndef RS_DAEMON_GROUPS_DRAIN_H
#define RS_DAEMON_GROUPS_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

/* A receive buffer of 16 MiB, the usual one, which Linux doubles, by packets of 1,472 bytes and what it needs beside
 * each: 14,563. */
#define RS_DRAIN_MOST 16384u

typedef enum { RS_DRAIN_MULTICAST, RS_DRAIN_PEERS, RS_DRAIN_SOCKETS } rs_drain_socket;

typedef struct {
    bool left[RS_DRAIN_SOCKETS]; /* the last look left datagrams in that one */
    bool waiting;                /* timers are due, and wait, */
    uint64_t read, from;         /* ... since `from` of the `read` datagrams had been read */
} rs_drain;

/* A look at a socket took so many; `all`: it is empty now. */
void rs_drain_looked(rs_drain *drain, rs_drain_socket socket, uint32_t count, bool all);
/* Timers are due: may they run? Where they do, the next ones wait again. Each turn looks at every socket that has
 * something, so what was left before the looks of this turn does not count. */
bool rs_drain_may_run(rs_drain *drain);

#endif
