/* Writes a received object to standard output:  rostrum-example-receive APP-UUID DATA-ID [WAIT-SECONDS]   (socket:
 * $ROSTRUM_SOCKET) DATA-ID is a number or a name. Shows the asynchronous way: a loop that could watch other descriptors
 * too. */
#include <rostrum/rostrum.h>

#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    bool done;
    int status;
} state;

static void on_read(void *context, const rostrum_answer *answer) {
    state *now = context;
    now->done = true;
    now->status = 1;
    if (answer->error.code) {
        warnx("%s", answer->error.text);
        return;
    }
    char *data = answer->size ? mmap(NULL, answer->size, PROT_READ, MAP_SHARED, answer->fd, 0) : NULL;
    if (data == MAP_FAILED)
        warn("mmap");
    else if (fwrite(data ? data : "", 1, answer->size, stdout) == answer->size && fflush(stdout) == 0)
        now->status = 0;
    if (data && data != MAP_FAILED)
        munmap(data, answer->size);
    close(answer->fd);
}

int main(int argc, char **argv) {
    uint8_t app[16];
    rostrum *agent;
    rostrum_error error;
    uint64_t data_id;
    state now = {0};
    if (argc < 3 || !rostrum_uuid_parse(argv[1], app))
        errx(2, "usage: %s APP-UUID DATA-ID [WAIT-SECONDS]", argv[0]);
    uint32_t wait_ms = argc > 3 ? (uint32_t)(strtoul(argv[3], NULL, 0) * 1000) : 60000;
    if (rostrum_data_id(argv[2], &data_id, &error) || rostrum_connect(NULL, app, NULL, &agent, &error))
        errx(1, "%s", error.text);
    if (rostrum_start_read(agent, data_id, wait_ms, on_read, &now, NULL, &error))
        errx(1, "%s", error.text);
    while (!now.done) {
        struct pollfd ready = {.fd = rostrum_fd(agent), .events = POLLIN};
        if (poll(&ready, 1, -1) < 0)
            err(1, "poll");
        (void)rostrum_dispatch(agent, NULL);
    }
    rostrum_close(agent);
    return now.status;
}
