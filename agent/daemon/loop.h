/* The agent's event loop: descriptors by epoll, one deadline, one clock. One thread, no busy polling.
 *
 * The clock counts the time in which this process ran. One that was stopped (SIGSTOP, a paused or moved virtual
 * machine, a suspended host) heard nobody meanwhile, and nobody was silent for that: what they said waits in the
 * sockets. So the clock stands still while the process does, every bound goes on where it was, and what waits is read
 * before any of them is over. No wait is longer than RS_LOOP_LOOK; when the clock was not read for RS_LOOP_PAUSE all
 * the same, the process did not run. */
#ifndef RS_DAEMON_LOOP_H
#define RS_DAEMON_LOOP_H

#include <sys/epoll.h>

#include "core/base/types.h"

#define RS_SECOND ((rs_time)1000000000)
#define RS_MILLISECOND ((rs_time)1000000)
#define RS_MICROSECOND ((rs_time)1000)

#define RS_LOOP_LOOK (100 * RS_MILLISECOND)
#define RS_LOOP_PAUSE (500 * RS_MILLISECOND)

typedef struct rs_loop rs_loop;

/* Called with EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP bits. May watch and unwatch anything. */
typedef void (*rs_loop_ready)(void *context, uint32_t events);

/* A watched descriptor; lies in its owner's structure, zeroed but for the callback before the first watch. */
typedef struct {
    rs_loop_ready ready;
    void *context;
    int fd;
    uint32_t events;
    bool active;
} rs_watch;

/* NULL with errno. Makes the thread's timers exact (timer slack 1 ns). */
rs_loop *rs_loop_new(void);
void rs_loop_free(rs_loop *loop);

/* Level-triggered. Watching what is watched changes the events; false with errno. */
bool rs_loop_watch(rs_loop *loop, rs_watch *watch, int fd, uint32_t events);
/* Before the descriptor is closed. No event of this turn reaches it any more. */
void rs_loop_unwatch(rs_loop *loop, rs_watch *watch);

/* Waits until something is ready or the clock reaches `deadline` (RS_NEVER: no limit), for RS_LOOP_LOOK at most, then
 * calls what is ready. False with errno. */
bool rs_loop_turn(rs_loop *loop, rs_time deadline);

/* The time, as of the end of the last wait or the last rs_loop_refresh. */
rs_time rs_loop_now(const rs_loop *loop);
rs_time rs_loop_refresh(rs_loop *loop);
typedef struct {
    uint64_t count;
    rs_time time; /* all that the clock left out */
} rs_loop_pauses;

/* Of this process so far, as of the last reading of the clock. */
rs_loop_pauses rs_loop_paused(const rs_loop *loop);
/* The turns begin: what the process was busy with since rs_loop_new, as long as it may have been, was no pause. */
void rs_loop_begin(rs_loop *loop);
/* For tests: reads the machine's clock by this. */
void rs_loop_clock_set(rs_loop *loop, rs_time (*machine)(void));
/* Nanoseconds since the epoch. */
int64_t rs_wall_clock(void);

#endif
