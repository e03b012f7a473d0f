/* order_cpg: one member of a group of corosync's CPG, agreed order (ordered.h).
 *
 *   order_cpg GROUP MEMBERS BYTES
 *
 * Built when it is needed: cc order_cpg.c -lcpg. Says "ready" when all members are in its group. */
#include <corosync/cpg.h>
#include <err.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ordered.h"

static tally counted;
static size_t in_group;
static bool over;

static void deliver(cpg_handle_t handle, const struct cpg_name *group, uint32_t node, uint32_t pid, void *message,
                    size_t length) {
    (void)handle;
    (void)group;
    (void)node;
    (void)pid;
    over |= tally_take(&counted, message, length);
}

static void confchg(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *members, size_t count,
                    const struct cpg_address *left, size_t left_count, const struct cpg_address *joined,
                    size_t joined_count) {
    (void)handle;
    (void)group;
    (void)members;
    (void)left;
    (void)left_count;
    (void)joined;
    (void)joined_count;
    in_group = count;
}

int main(int count, char **arguments) {
    static cpg_callbacks_t callbacks = {.cpg_deliver_fn = deliver, .cpg_confchg_fn = confchg};
    cpg_handle_t handle;
    struct cpg_name name;
    int fd;
    double rate, seconds, offset;
    if (count != 4)
        errx(2, "order_cpg GROUP MEMBERS BYTES");
    counted.members = (uint32_t)strtoul(arguments[2], NULL, 10);
    size_t bytes = strtoul(arguments[3], NULL, 10);
    uint8_t *message = calloc(1, bytes);
    name.length = strlen(arguments[1]);
    memcpy(name.value, arguments[1], name.length);
    cs_error_t error = CS_ERR_TRY_AGAIN;
    for (int i = 0; i < 300 && error != CS_OK; i++, usleep(error == CS_OK ? 0 : 100000))
        error = cpg_initialize(&handle, &callbacks);
    for (int i = 0; i < 300 && error == CS_OK; i++) {
        error = cpg_join(handle, &name);
        if (error != CS_ERR_TRY_AGAIN)
            break;
        usleep(100000);
        error = CS_OK;
    }
    if (error != CS_OK || cpg_fd_get(handle, &fd) != CS_OK || !message)
        errx(1, "corosync does not answer: error %d", error);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (in_group < counted.members) {
        poll(&ready, 1, 1000);
        cpg_dispatch(handle, CS_DISPATCH_ALL);
    }
    puts("ready");
    fflush(stdout);
    stamp mark = {.number = (uint64_t)getpid() << 40};
    while (tally_begin(&counted, &rate, &seconds, &offset)) {
        int64_t begin = now_ns() + (int64_t)(offset * 1e9), end = begin + (int64_t)(seconds * 1e9);
        bool sends = true;
        over = false;
        mark.phase = counted.phase;
        for (uint64_t i = 0; !over;) {
            int64_t now = now_ns(), due = rate > 0 ? begin + (int64_t)((double)i / rate * 1e9) : 0;
            bool sent = false;
            for (int burst = 0; sends && burst < 16 && (now >= due || due >= end); burst++) {
                mark.at_ns = now_ns();
                mark.last = mark.at_ns >= end || due >= end;
                mark.number += 1024;
                memcpy(message, &mark, sizeof mark);
                struct iovec vector = {.iov_base = message, .iov_len = bytes};
                error = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &vector, 1);
                if (error == CS_ERR_TRY_AGAIN)
                    break;
                if (error != CS_OK)
                    errx(1, "cpg_mcast_joined: error %d", error);
                sent = true;
                i++;
                sends = !mark.last;
                due = rate > 0 ? begin + (int64_t)((double)i / rate * 1e9) : 0;
                now = now_ns();
            }
            (void)poll(&ready, 1, sent ? 0 : 1);
            if (ready.revents)
                cpg_dispatch(handle, CS_DISPATCH_ALL);
        }
        tally_tell(&counted);
    }
    return 0;
}
