/* Event loop over epoll_pwait2: its timeout counts ns, so there is no timer descriptor to set and read each turn. */
#include "daemon/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_MAX 64

struct rs_loop {
    int epoll_fd;
    rs_time now;
    rs_time read; /* the machine's clock, when it was read last */
    rs_time (*machine)(void);
    rs_loop_pauses pauses;
    int pending_count, pending_next; /* of `pending`, during a turn */
    struct epoll_event pending[EVENTS_MAX];
};

/* It goes on while the machine is suspended. */
static rs_time machine_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (rs_time)now.tv_sec * RS_SECOND + now.tv_nsec;
}

rs_time rs_loop_refresh(rs_loop *loop) {
    rs_time before = loop->read;
    loop->read = loop->machine();
    if (loop->read - before > RS_LOOP_PAUSE) {
        loop->pauses.count++;
        loop->pauses.time += loop->read - before;
    }
    loop->now = loop->read - loop->pauses.time;
    return loop->now;
}

rs_loop_pauses rs_loop_paused(const rs_loop *loop) {
    return loop->pauses;
}

void rs_loop_begin(rs_loop *loop) {
    loop->pauses = (rs_loop_pauses){0};
    loop->read = loop->machine();
    rs_loop_refresh(loop);
}

void rs_loop_clock_set(rs_loop *loop, rs_time (*machine)(void)) {
    loop->machine = machine;
    rs_loop_begin(loop);
}

rs_time rs_loop_now(const rs_loop *loop) {
    return loop->now;
}

int64_t rs_wall_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * RS_SECOND + now.tv_nsec;
}

rs_loop *rs_loop_new(void) {
    rs_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return NULL;
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0) {
        free(loop);
        return NULL;
    }
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    rs_loop_clock_set(loop, machine_clock);
    return loop;
}

void rs_loop_free(rs_loop *loop) {
    if (!loop)
        return;
    close(loop->epoll_fd);
    free(loop);
}

bool rs_loop_watch(rs_loop *loop, rs_watch *watch, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = watch};
    if (watch->active && watch->fd == fd && watch->events == events)
        return true;
    if (watch->active && watch->fd != fd)
        rs_loop_unwatch(loop, watch);
    if (epoll_ctl(loop->epoll_fd, watch->active ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0)
        return false;
    watch->active = true;
    watch->fd = fd;
    watch->events = events;
    return true;
}

void rs_loop_unwatch(rs_loop *loop, rs_watch *watch) {
    if (!watch->active)
        return;
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    watch->active = false;
    for (int i = loop->pending_next; i < loop->pending_count; i++)
        if (loop->pending[i].data.ptr == watch)
            loop->pending[i].data.ptr = NULL;
}

static int wait_for_events(rs_loop *loop, rs_time deadline) {
    struct timespec timeout = {0};
    if (deadline > rs_loop_refresh(loop))
        timeout.tv_nsec = (long)(deadline - loop->now < RS_LOOP_LOOK ? deadline - loop->now : RS_LOOP_LOOK);
    return epoll_pwait2(loop->epoll_fd, loop->pending, EVENTS_MAX, &timeout, NULL);
}

bool rs_loop_turn(rs_loop *loop, rs_time deadline) {
    int count = wait_for_events(loop, deadline);
    if (count < 0 && errno != EINTR)
        return false;
    rs_loop_refresh(loop);
    loop->pending_count = count > 0 ? count : 0;
    for (loop->pending_next = 0; loop->pending_next < loop->pending_count;) {
        struct epoll_event event = loop->pending[loop->pending_next++];
        rs_watch *watch = event.data.ptr;
        if (watch)
            watch->ready(watch->context, event.events);
    }
    loop->pending_count = loop->pending_next = 0;
    return true;
}
