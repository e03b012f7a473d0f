/* messages: messages to several hosts by a group of rostrum, with librostrum.
 *
 *   messages receive SOCKET GROUP PROTOCOL COUNT
 *   messages send SOCKET GROUP PROTOCOL COUNT BYTES RATE GO
 *
 * RATE messages a second, 0 = as many as can be. PROTOCOL: PROTOCOL[,R,C,STAGGER]. */
#include "stamps.h"

#include <err.h>
#include <rostrum/groups.h>

#define WARM_UP 200

static const uint8_t app[16] = "rostrum-messages";

static rostrum_group *enter(char **words, bool subscribe) {
    rostrum *agent;
    rostrum_error error;
    rostrum_group *group;
    char protocol[32];
    rostrum_group_options options = {.protocol = protocol};
    if (sscanf(words[4], "%31[^,],%u,%u,%u", protocol, &options.r, &options.c, &options.stagger) < 1)
        errx(2, "%s is no protocol", words[4]);
    if (rostrum_connect(words[2], app, NULL, &agent, &error) ||
        (subscribe ? rostrum_subscribe : rostrum_publisher)(agent, words[3], &options, &group, &error))
        errx(1, "%s", error.words);
    return group;
}

static int receive(char **words) {
    static stamp_book book;
    if (!stamp_book_new(&book, strtoull(words[5], NULL, 10)))
        errx(1, "no memory for the book");
    rostrum_group *group = enter(words, true);
    rostrum_error error;
    rostrum_message message;
    uint64_t lost = 0;
    puts("ready");
    fflush(stdout);
    while (!rostrum_next(group, &message, -1, &error)) {
        if (message.kind == ROSTRUM_MESSAGES_LOST && ++lost <= 20)
            warnx("%s: %" PRIu64 " lost at %" PRIu64 ": %s", message.sender, message.count, message.sn, message.why);
        else if (message.kind == ROSTRUM_MESSAGE && stamp_take(&book, message.bytes, message.length))
            stamp_print(&book);
    }
    errx(1, "%s", error.words);
}

static void publish(rostrum_group *group, void *bytes, uint32_t length, uint64_t number, int64_t due, unsigned flags) {
    rostrum_error error;
    stamp_put(bytes, number, due);
    if (rostrum_publish(group, bytes, length, flags, &error))
        errx(1, "%s", error.words);
}

static int send_all(char **words) {
    const uint64_t count = strtoull(words[5], NULL, 10), rate = strtoull(words[7], NULL, 10);
    const uint32_t bytes = (uint32_t)strtoul(words[6], NULL, 10);
    rostrum_group *group = enter(words, false);
    char *message = calloc(1, bytes);
    if (!message)
        errx(1, "no memory for a message");
    for (int i = 0; i < WARM_UP; i++)
        publish(group, message, bytes, STAMP_WARM_UP, stamp_now(), 0);
    puts("ready");
    fflush(stdout);
    while (access(words[8], F_OK))
        usleep(200);
    const int64_t start = stamp_now();
    for (uint64_t i = 0; i < count; i++) {
        const int64_t due = stamp_due(start, i, rate);
        if (rate && due > stamp_now())
            stamp_wait(due);
        /* What is due by now already goes along. */
        bool more = i + 1 < count && (!rate || stamp_due(start, i + 1, rate) <= stamp_now());
        publish(group, message, bytes, i, due, more ? ROSTRUM_MORE : 0);
    }
    printf("{\"sent\": %" PRIu64 ", \"first_ns\": %" PRId64 ", \"last_ns\": %" PRId64 "}\n", count, start, stamp_now());
    fflush(stdout);
    for (;;)
        pause(); /* the agent answers requests for what was lost, until this is ended */
}

int main(int count, char **words) {
    if (count == 6 && !strcmp(words[1], "receive"))
        return receive(words);
    if (count == 9 && !strcmp(words[1], "send"))
        return send_all(words);
    fputs("see the head of messages.c\n", stderr);
    return 2;
}
