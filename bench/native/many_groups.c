/* many_groups: messages in many groups at once, by channels of librostrum.
 *
 *   many_groups receive SOCKET NAME PROTOCOL GROUPS
 *   many_groups send SOCKET NAME PROTOCOL GROUPS BYTES SECONDS
 *
 * Joins groups NAME-0, NAME-1 ... and says "ready"; goes on when it reads a line. The sender then calls in all of
 * them until it reads another line, and says "called": a member that its agent does not know yet is not sent to.
 * After one more line it gives messages of all of them in turn to its agent, as fast as that takes them, and says
 * what it counted, and when (CLOCK_MONOTONIC). A receiver says "heard" when it was called in all, takes what comes,
 * and says what that is for each further line. Calls are not counted, nor are those of them that are told as lost:
 * what is lost of a group counts from its first message on, which tells how many were before it. The end of the
 * input ends both. PROTOCOL may be followed by options: "qsm,token=20". */
#include <err.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rostrum/channels.h>

static const uint8_t app[16] = "many-groups";
static const char call[] = "call";
#define CALL_MS 20
#define LOOK_MS 5 /* between looks at the input */

typedef struct {
    uint64_t messages, lost;
    int64_t first_ns, last_ns;
    uint32_t silent; /* groups in which nobody has called */
    bool *called;    /* by group */
    bool *begun;     /* by group: its messages are coming, and no calls any more */
} tally;

/* What a sender gives. */
typedef struct giving {
    rostrum_channel **groups;
    uint32_t count, bytes;
    int64_t end;
    tally *tally;
    struct fed {
        struct giving *all;
        uint32_t next; /* the number of the group's next message, with which it begins */
    } * feeds;         /* by group */
} giving;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void fail(const rostrum_error *error) {
    errx(1, "%s", error->text);
}

static void wait_line(void) {
    char line;
    if (read(STDIN_FILENO, &line, 1) <= 0)
        exit(0);
}

/* 1: a line was there; 0: not yet. */
static int look_for_line(void) {
    char lines[16];
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, 1, 0) <= 0)
        return 0;
    if (read(STDIN_FILENO, lines, sizeof lines) <= 0)
        exit(0);
    return 1;
}

/* Each feed is called in turn: so many groups have one message each. Until the end of the time. */
static int64_t give(void *context, void *to, uint32_t room) {
    struct fed *feed = context;
    giving *g = feed->all;
    if (g->end == 0 || g->bytes > room || (g->tally->last_ns = now_ns()) >= g->end)
        return ROSTRUM_FEED_EMPTY;
    memset(to, 0, g->bytes);
    memcpy(to, &feed->next, sizeof feed->next);
    feed->next++;
    g->tally->messages++;
    return g->bytes;
}

static rostrum_channels *enter(char **arguments, uint32_t count, giving *gives, tally *t) {
    rostrum *agent;
    rostrum_error error;
    rostrum_channels *all;
    rostrum_message message;
    rostrum_channel *which;
    const char *given = strchr(arguments[4], ',');
    char protocol[32], name[128];
    snprintf(protocol, sizeof protocol, "%.*s", (int)strcspn(arguments[4], ","), arguments[4]);
    const rostrum_group_options options = {.protocol = protocol, .order = "fifo", .options = given ? given + 1 : NULL};
    gives->groups = calloc(count, sizeof(rostrum_channel *));
    gives->feeds = calloc(count, sizeof *gives->feeds);
    if (!gives->groups || !gives->feeds || !t->called || !t->begun)
        errx(1, "no memory for %u groups", count);
    if (rostrum_connect(arguments[2], app, NULL, &agent, &error) || rostrum_channels_open(agent, &all, &error))
        fail(&error);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s-%u", arguments[3], i);
        gives->feeds[i].all = gives;
        if (rostrum_channel_open(all, name, &options, ROSTRUM_CHANNEL_SUBSCRIBE, give, &gives->feeds[i],
                                 &gives->groups[i], &error))
            fail(&error);
    }
    for (uint32_t joined = 0; joined < count;) {
        if (rostrum_channels_next(all, &which, &message, -1, &error))
            fail(&error);
        if (message.kind == ROSTRUM_ENDED)
            errx(1, "%s: %s", rostrum_channel_group(which), message.why);
        joined += message.kind == ROSTRUM_JOINED;
    }
    puts("ready");
    fflush(stdout);
    return all;
}

static uint32_t number_of(const rostrum_channel *channel) {
    const struct fed *feed = rostrum_channel_context(channel);
    return (uint32_t)(feed - feed->all->feeds);
}

static void take(const rostrum_channel *channel, const rostrum_message *message, tally *t) {
    const uint32_t group = number_of(channel);
    if (message->kind == ROSTRUM_MESSAGE && message->length == sizeof call &&
        !memcmp(message->bytes, call, sizeof call)) {
        bool *called = &t->called[group];
        if (!*called && --t->silent == 0) {
            puts("heard");
            fflush(stdout);
        }
        *called = true;
        return;
    }
    if (message->kind == ROSTRUM_ENDED)
        errx(1, "%s: %s", rostrum_channel_group(channel), message->why);
    t->last_ns = now_ns();
    t->first_ns = t->first_ns ? t->first_ns : t->last_ns;
    if (message->kind == ROSTRUM_MESSAGE && !t->begun[group]) {
        uint32_t before = 0;
        memcpy(&before, message->bytes, message->length < sizeof before ? message->length : sizeof before);
        t->lost += before;
        t->begun[group] = true;
    }
    t->messages += message->kind == ROSTRUM_MESSAGE;
    t->lost += message->kind == ROSTRUM_MESSAGES_LOST && t->begun[group] ? message->count : 0;
}

static void tell(const tally *t) {
    printf("{\"messages\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"first_ns\": %" PRId64 ", \"last_ns\": %" PRId64 "}\n",
           t->messages, t->lost, t->first_ns, t->last_ns);
    fflush(stdout);
}

/* What comes until a line does, or, in the end, until `end`. */
static void take_all(rostrum_channels *all, tally *t, int64_t end) {
    rostrum_channel *which;
    rostrum_message message;
    rostrum_error error;
    for (uint32_t taken = 0; now_ns() < end; taken++) {
        rostrum_code code = rostrum_channels_next(all, &which, &message, LOOK_MS, &error);
        if (code == ROSTRUM_OK)
            take(which, &message, t);
        else if (code != ROSTRUM_ERR_TIMEOUT)
            fail(&error);
        if (end == INT64_MAX && (code || taken % 1024 == 0) && look_for_line())
            return;
    }
}

static void receive(rostrum_channels *all, tally *t) {
    for (;;) {
        take_all(all, t, INT64_MAX);
        tell(t);
    }
}

static void call_all(rostrum_channels *all, const giving *g) {
    rostrum_error error;
    rostrum_channel *which;
    rostrum_message message;
    do {
        for (uint32_t i = 0; i < g->count; i++)
            if (rostrum_channel_publish(g->groups[i], call, sizeof call, ROSTRUM_MORE, &error))
                fail(&error);
        while (rostrum_channels_next(all, &which, &message, CALL_MS, &error) == ROSTRUM_OK)
            ;
    } while (!look_for_line());
}

static void send_all(rostrum_channels *all, giving *g, char **arguments) {
    rostrum_error error;
    g->bytes = (uint32_t)strtoul(arguments[6], NULL, 10);
    g->tally->first_ns = now_ns();
    g->end = g->tally->first_ns + (int64_t)(strtod(arguments[7], NULL) * 1e9);
    for (uint32_t i = 0; i < g->count; i++)
        rostrum_channel_signal(g->groups[i]);
    tally heard = {.called = g->tally->called, .begun = g->tally->begun, .silent = UINT32_MAX};
    take_all(all, &heard, g->end);
    if (rostrum_channels_flush(all, &error))
        fail(&error);
    g->tally->last_ns = now_ns();
}

int main(int argc, char **arguments) {
    bool sends = argc == 8 && !strcmp(arguments[1], "send");
    uint32_t count = argc > 5 ? (uint32_t)strtoul(arguments[5], NULL, 10) : 0;
    tally t = {.silent = count, .called = calloc(count ? count : 1, 1), .begun = calloc(count ? count : 1, 1)};
    giving gives = {.count = count, .tally = &t};
    if (count == 0 || (!sends && (argc != 6 || strcmp(arguments[1], "receive") != 0))) {
        fputs("see the head of many_groups.c\n", stderr);
        return 2;
    }
    rostrum_channels *all = enter(arguments, count, &gives, &t);
    wait_line();
    if (sends) {
        call_all(all, &gives);
        puts("called");
        fflush(stdout);
        wait_line();
        send_all(all, &gives, arguments);
        tell(&t);
        wait_line(); /* the agent recovers what was lost, until all is counted */
    } else
        receive(all, &t);
    return 0;
}
