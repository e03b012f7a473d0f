/* many_groups: messages in many groups at once, with librostrum.
 *
 *   many_groups receive SOCKET NAME PROTOCOL GROUPS
 *   many_groups send SOCKET NAME PROTOCOL GROUPS BYTES SECONDS
 *
 * Joins groups NAME-0, NAME-1 ... and says "ready"; goes on when it reads a line. The sender then calls in all of them
 * until it reads another line: a member that its agent does not know yet is not sent to. It publishes to all of them in
 * turn, as fast as the agent takes messages, and says what it counted, and when (CLOCK_MONOTONIC). A receiver says
 * "heard" when it was called in all, takes what comes, and says what that is for each further line. Calls are not
 * counted. The end of the input ends both. */
#include <err.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <rostrum/groups.h>

static const uint8_t app[16] = "many-groups";
static const char call[] = "call";
#define CALL_MS 20

typedef struct {
    uint64_t messages, lost;
    int64_t first_ns, last_ns;
    uint32_t silent; /* groups in which nobody has called */
    bool *called;    /* by group */
} tally;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static rostrum_group **enter(char **arguments, uint32_t count) {
    rostrum *agent;
    rostrum_error error;
    rostrum_group **groups = calloc(count, sizeof *groups);
    const char *given = strchr(arguments[4], ',');
    char protocol[32], name[128];
    snprintf(protocol, sizeof protocol, "%.*s", (int)strcspn(arguments[4], ","), arguments[4]);
    const rostrum_group_options options = {.protocol = protocol, .options = given ? given + 1 : NULL};
    if (!groups)
        errx(1, "no memory for %u groups", count);
    if (rostrum_connect(arguments[2], app, NULL, &agent, &error))
        errx(1, "%s", error.text);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s-%u", arguments[3], i);
        if (rostrum_subscribe(agent, name, &options, &groups[i], &error))
            errx(1, "%s: %s", name, error.text);
    }
    puts("ready");
    fflush(stdout);
    return groups;
}

static void wait_line(void) {
    char line;
    if (read(STDIN_FILENO, &line, 1) <= 0)
        exit(0);
}

static void hear_call(uint32_t group, tally *t) {
    if (t->called[group])
        return;
    t->called[group] = true;
    if (--t->silent == 0) {
        puts("heard");
        fflush(stdout);
    }
}

static void take(rostrum_group **groups, uint32_t i, tally *t) {
    rostrum_group *group = groups[i];
    rostrum_message message;
    rostrum_error error;
    rostrum_code code;
    while ((code = rostrum_next(group, &message, 0, &error)) == ROSTRUM_OK) {
        if (message.kind == ROSTRUM_MESSAGE && message.length == sizeof call &&
            !memcmp(message.bytes, call, sizeof call)) {
            hear_call(i, t);
            continue;
        }
        t->last_ns = now_ns();
        t->first_ns = t->first_ns ? t->first_ns : t->last_ns;
        if (message.kind == ROSTRUM_MESSAGE)
            t->messages++;
        else
            t->lost += message.count;
    }
    if (code != ROSTRUM_ERR_TIMEOUT)
        errx(1, "%s", error.text);
}

static void tell(const tally *t) {
    printf("{\"messages\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"first_ns\": %" PRId64 ", \"last_ns\": %" PRId64 "}\n",
           t->messages, t->lost, t->first_ns, t->last_ns);
    fflush(stdout);
}

static void receive(rostrum_group **groups, uint32_t count, tally *t) {
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN}, ready[64];
    for (uint32_t i = 0; i < count; i++) {
        event.data.u64 = i;
        epoll_ctl(epoll, EPOLL_CTL_ADD, rostrum_group_fd(groups[i]), &event);
        take(groups, i, t);
    }
    event.data.u64 = count;
    epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    for (bool over = false; !over;) {
        int some = epoll_wait(epoll, ready, 64, -1);
        for (int i = 0; i < some; i++) {
            char lines[16];
            if (ready[i].data.u64 < count)
                take(groups, (uint32_t)ready[i].data.u64, t);
            else if (read(STDIN_FILENO, lines, sizeof lines) > 0)
                tell(t);
            else
                over = true;
        }
    }
}

static void call_all(rostrum_group **groups, uint32_t count) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    rostrum_error error;
    do {
        for (uint32_t i = 0; i < count; i++)
            if (rostrum_publish(groups[i], call, sizeof call, 0, &error))
                errx(1, "%s", error.text);
    } while (poll(&input, 1, CALL_MS) == 0);
    wait_line();
}

static void send_all(rostrum_group **groups, uint32_t count, char **arguments, tally *t) {
    uint32_t bytes = (uint32_t)strtoul(arguments[6], NULL, 10);
    int64_t end = now_ns() + (int64_t)(strtod(arguments[7], NULL) * 1e9);
    char *message = calloc(1, bytes ? bytes : 1);
    rostrum_error error;
    if (!message)
        errx(1, "no memory for a message");
    t->first_ns = now_ns();
    for (uint32_t i = 0; (t->last_ns = now_ns()) < end; i = (i + 1) % count) {
        if (rostrum_publish(groups[i], message, bytes, 0, &error))
            errx(1, "%s", error.text);
        t->messages++;
    }
    free(message);
}

int main(int argc, char **arguments) {
    bool sends = argc == 8 && !strcmp(arguments[1], "send");
    uint32_t count = argc > 5 ? (uint32_t)strtoul(arguments[5], NULL, 10) : 0;
    tally t = {.silent = count, .called = calloc(count ? count : 1, sizeof(bool))};
    if (count == 0 || (!sends && (argc != 6 || strcmp(arguments[1], "receive") != 0))) {
        fputs("see the head of many_groups.c\n", stderr);
        return 2;
    }
    rostrum_group **groups = enter(arguments, count);
    wait_line();
    if (!t.called)
        errx(1, "no memory for %u groups", count);
    if (sends) {
        call_all(groups, count);
        send_all(groups, count, arguments, &t);
        tell(&t);
        wait_line(); /* the agent recovers what was lost, until all is counted */
    } else
        receive(groups, count, &t);
    return 0;
}
