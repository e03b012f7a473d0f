/* A link driven by lines, so that other implementations of the manager can be met: `link_probe PORT [SERVER]`.
 *
 * Reads   request ID RECEIVER... | release ID RESPONSE | cancel ID | no_light RESPONSE RECEIVER... |
 *         report ID RESPONSE PHASE
 * Writes  up TEXT | down TEXT | response ID RESPONSE DECISION BYTES GROUP PORT REASON | moved RESPONSE KIND REASON |
 *         failed RESPONSE REASON | goodbye REASON | error STATUS TEXT
 * Ends at the end of its input. */
#include "daemon/manager/client.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    rs_manager_client *link;
    int fd;
    unsigned wants;
} probe = {.fd = -1};

static rs_time clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (rs_time)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void on_watch(void *context, int fd, unsigned wants) {
    (void)context;
    probe.fd = fd;
    probe.wants = wants;
}

static void on_state(void *context, bool up, const char *text) {
    (void)context;
    printf("%s %s\n", up ? "up" : "down", text);
}

static void on_response(void *context, const rs_manager_response *r) {
    (void)context;
    static const char *const decisions[] = {"", "accepted", "denied", "queued"};
    printf("response %s %s %s %llu %u.%u.%u.%u %u %s\n", r->request_id, r->response_id[0] ? r->response_id : "-",
           decisions[r->decision], (unsigned long long)r->accepted_size, r->group >> 24, r->group >> 16 & 255,
           r->group >> 8 & 255, r->group & 255, r->data_port, r->reason);
}

static void on_moved(void *context, const char *response_id, rs_path_kind kind, const char *reason) {
    (void)context;
    printf("moved %s %s %s\n", response_id, kind == RS_PATH_CIRCUIT ? "circuit" : "packet", reason);
}

static void on_failed(void *context, const char *response_id, const char *reason) {
    (void)context;
    printf("failed %s %s\n", response_id, reason);
}

static void on_goodbye(void *context, const char *reason) {
    (void)context;
    printf("goodbye %s\n", reason);
}

static rs_status command(char *const *arguments, uint32_t count, char *said, size_t said_size) {
    rs_time now = clock_now();
    if (count > 2 && strcmp(arguments[0], "request") == 0) {
        const rs_manager_request_params request = {.request_id = arguments[1],
                                                   .object = {.app = {0xab}, .data = UINT64_MAX},
                                                   .data_size = 1000000,
                                                   .remaining_size = 600000,
                                                   .receivers = (const char *const *)&arguments[2],
                                                   .receiver_count = count - 2};
        return rs_manager_request(probe.link, now, &request, said, said_size);
    }
    if (count == 3 && strcmp(arguments[0], "release") == 0)
        return rs_manager_release(probe.link, now, arguments[1], arguments[2]);
    if (count == 2 && strcmp(arguments[0], "cancel") == 0)
        return rs_manager_cancel(probe.link, now, arguments[1]);
    if (count > 2 && strcmp(arguments[0], "no_light") == 0)
        return rs_manager_no_light(probe.link, now, arguments[1], (const char *const *)&arguments[2], count - 2);
    if (count == 4 && strcmp(arguments[0], "report") == 0) {
        const rs_manager_receiver_report receiver = {"h3", "receiving", "", 5, 1, 1700000000000000000, 0};
        const rs_manager_report_params report = {.request_id = arguments[1],
                                                 .response_id = arguments[2],
                                                 .phase = arguments[3],
                                                 .cause = "\xc3\xa9toile",
                                                 .bytes = 1,
                                                 .receivers = &receiver,
                                                 .receiver_count = 1};
        return rs_manager_report(probe.link, now, &report);
    }
    return RS_ERR_INVALID;
}

static void run_line(char *line) {
    char *arguments[64], *rest = NULL, said[256] = "";
    uint32_t count = 0;
    for (char *word = strtok_r(line, " \n", &rest); word && count < 64; word = strtok_r(NULL, " \n", &rest))
        arguments[count++] = word;
    rs_status status = count ? command(arguments, count, said, sizeof said) : RS_ERR_INVALID;
    if (status != RS_OK)
        printf("error %d %s\n", status, said);
}

/* False at the end of the input. */
static bool turn(void) {
    rs_time wait = rs_manager_deadline(probe.link) - clock_now();
    short events =
        (short)((probe.wants & RS_MANAGER_READ ? POLLIN : 0) | (probe.wants & RS_MANAGER_WRITE ? POLLOUT : 0));
    struct pollfd polled[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = probe.fd, .events = events}};
    if (poll(polled, 2, wait <= 0 ? 0 : wait > 1000000000 ? 1000 : (int)(wait / 1000000) + 1) < 0)
        return false;
    if (probe.fd >= 0 && polled[1].revents) {
        bool both = polled[1].revents & (POLLERR | POLLHUP);
        rs_manager_on_ready(probe.link, clock_now(),
                            (both || polled[1].revents & POLLIN ? RS_MANAGER_READ : 0) |
                                (both || polled[1].revents & POLLOUT ? RS_MANAGER_WRITE : 0));
    }
    if (rs_manager_deadline(probe.link) <= clock_now())
        rs_manager_timeout(probe.link, clock_now());
    char line[4096];
    if (polled[0].revents) {
        if (!fgets(line, sizeof line, stdin))
            return false;
        run_line(line);
    }
    return true;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: link_probe PORT [SERVER]\n");
        return 2;
    }
    setvbuf(stdin, NULL, _IONBF, 0); /* poll must see every line */
    setvbuf(stdout, NULL, _IOLBF, 0);
    const rs_manager_options options = {.manager_address = "127.0.0.1",
                                        .manager_port = (uint16_t)atoi(argv[1]),
                                        .server = argc > 2 ? argv[2] : "h1",
                                        .boot_id = 1,
                                        .control_port = 7071};
    const rs_manager_callbacks callbacks = {.watch = on_watch,
                                            .on_state = on_state,
                                            .on_response = on_response,
                                            .on_moved = on_moved,
                                            .on_failed = on_failed,
                                            .on_goodbye = on_goodbye};
    char text[160];
    probe.link = rs_manager_new(&options, &callbacks, text, sizeof text);
    if (!probe.link) {
        fprintf(stderr, "link_probe: %s\n", text);
        return 1;
    }
    rs_manager_start(probe.link, clock_now());
    while (turn())
        ;
    rs_manager_free(probe.link);
    return 0;
}
