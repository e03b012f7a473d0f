/* What came before timers were due is read before they run (QSM, end of Sec. 2.5).
 *
 * An agent that is late (it did not run, or had much else to do) finds in its sockets what others said meanwhile. A
 * timer that ran first would send a token again whose acknowledgement waits there, take its next node for silent, or
 * packets for lost that are here. So the timers of groups wait while a look at the sockets leaves some in them: until
 * each has been empty, or a datagram was read of it that came after they began to wait. Where nobody can say when one
 * came: until RS_DRAIN_MOST were read, which is what sockets hold when they are full. A flood that never leaves them
 * empty so delays timers by what it has waiting, however long this process does not run between them. */
#ifndef RS_DAEMON_GROUPS_DRAIN_H
#define RS_DAEMON_GROUPS_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/types.h"

/* A receive buffer of 16 MiB, the usual one, which Linux doubles, by packets of 1,472 bytes and what it needs beside
 * each: 14,563. */
#define RS_DRAIN_MOST 16384u

typedef enum { RS_DRAIN_MULTICAST, RS_DRAIN_PEERS, RS_DRAIN_SOCKETS } rs_drain_socket;

typedef struct {
    bool left[RS_DRAIN_SOCKETS];    /* the last look left datagrams in that one, */
    rs_time came[RS_DRAIN_SOCKETS]; /* ... of which it took one that came then */
    bool waiting;                   /* timers are due, and wait, */
    rs_time since;                  /* ... since then, */
    uint64_t read, from;            /* when `from` of the `read` datagrams had been read, */
    bool behind[RS_DRAIN_SOCKETS];  /* for those that came before to be read of that one */
} rs_drain;

/* A look at a socket took so many, the last of which came then (0: nobody knows); `all`: it is empty now. */
void rs_drain_looked(rs_drain *drain, rs_drain_socket socket, uint32_t count, bool all, rs_time came);
/* Timers are due: may they run? Where they do, the next ones wait again. Each turn looks at every socket that has
 * something, so what was left before the looks of this turn does not count. */
bool rs_drain_may_run(rs_drain *drain, rs_time now);

#endif
