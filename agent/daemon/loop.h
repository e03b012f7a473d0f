/* The agent's event loop: descriptors by epoll, one deadline, the monotonic clock. One thread, no busy polling. */
#ifndef RS_DAEMON_LOOP_H
#define RS_DAEMON_LOOP_H

#include <sys/epoll.h>

#include "core/types.h"

#define RS_SECOND ((rs_time)1000000000)
#define RS_MILLISECOND ((rs_time)1000000)
#define RS_MICROSECOND ((rs_time)1000)

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

/* Waits until something is ready or the monotonic clock reaches `deadline` (RS_NEVER: no limit), then calls what is
 * ready. False with errno. */
bool rs_loop_turn(rs_loop *loop, rs_time deadline);

/* Monotonic time, as of the end of the last wait or the last rs_loop_refresh. */
rs_time rs_loop_now(const rs_loop *loop);
rs_time rs_loop_refresh(rs_loop *loop);
/* Nanoseconds since the epoch. */
int64_t rs_wall_clock(void);

#endif
