/* messages: messages to several hosts by a group of rostrum, with librostrum.
 *
 *   messages receive SOCKET GROUP PROTOCOL COUNT
 *   messages send SOCKET GROUP PROTOCOL COUNT BYTES RATE GO
 *
 * RATE messages a second, 0 = as many as can be. PROTOCOL: PROTOCOL[,OPTION=VALUE...]. */
#include "stamps.h"

#include <err.h>
#include <rostrum/groups.h>

#define WARM_UP 200

static const uint8_t app[16] = "rostrum-messages";

static rostrum_group *enter(char **arguments, bool subscribe) {
    rostrum *agent;
    rostrum_error error;
    rostrum_group *group;
    const char *given = strchr(arguments[4], ',');
    char protocol[32];
    snprintf(protocol, sizeof protocol, "%.*s", (int)strcspn(arguments[4], ","), arguments[4]);
    const rostrum_group_options options = {.protocol = protocol, .options = given ? given + 1 : NULL};
    if (rostrum_connect(arguments[2], app, NULL, &agent, &error) ||
        (subscribe ? rostrum_subscribe : rostrum_publisher)(agent, arguments[3], &options, &group, &error))
        errx(1, "%s", error.text);
    return group;
}

static int receive(char **arguments) {
    static stamp_book book;
    if (!stamp_book_new(&book, strtoull(arguments[5], NULL, 10)))
        errx(1, "no memory for the book");
    rostrum_group *group = enter(arguments, true);
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
    errx(1, "%s", error.text);
}

typedef struct {
    rostrum_group *group;
    char *message;
    uint32_t bytes;
} publisher;

/* What is due by now already goes along. */
static void publish(void *context, uint64_t number, int64_t due, int more) {
    const publisher *p = context;
    rostrum_error error;
    stamp_put(p->message, number, due);
    if (rostrum_publish(p->group, p->message, p->bytes, more ? ROSTRUM_MORE : 0, &error))
        errx(1, "%s", error.text);
}

static int send_all(char **arguments) {
    const uint64_t count = strtoull(arguments[5], NULL, 10), rate = strtoull(arguments[7], NULL, 10);
    publisher p = {.group = enter(arguments, false), .bytes = (uint32_t)strtoul(arguments[6], NULL, 10)};
    p.message = calloc(1, p.bytes);
    if (!p.message)
        errx(1, "no memory for a message");
    for (int i = 0; i < WARM_UP; i++)
        publish(&p, STAMP_WARM_UP, stamp_now(), 0);
    stamp_await(arguments[8]);
    stamp_print_sent(count, stamp_send(count, rate, publish, &p));
    for (;;)
        pause(); /* the agent answers requests for what was lost, until this is ended */
}

int main(int count, char **arguments) {
    if (count == 6 && !strcmp(arguments[1], "receive"))
        return receive(arguments);
    if (count == 9 && !strcmp(arguments[1], "send"))
        return send_all(arguments);
    fputs("see the head of messages.c\n", stderr);
    return 2;
}
