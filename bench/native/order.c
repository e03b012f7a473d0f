/* order: one member of a group with total order, with librostrum (ordered.h).
 *
 *   order SOCKET GROUP PROTOCOL ORDER MEMBERS BYTES
 *
 * Says "ready" when all members are in its view. One thread publishes, the other takes. */
#include <err.h>
#include <pthread.h>
#include <unistd.h>

#include <rostrum/groups.h>

#include "ordered.h"

static const uint8_t app[16] = "order";

typedef struct {
    rostrum_group *group;
    uint32_t bytes, phase;
    uint64_t number;
    double rate, seconds, offset;
} sending;

static void *publish(void *context) {
    sending *s = context;
    rostrum_error error;
    uint8_t *bytes = calloc(1, s->bytes);
    stamp mark = {.phase = s->phase, .number = s->number};
    int64_t begin = now_ns() + (int64_t)(s->offset * 1e9), end = begin + (int64_t)(s->seconds * 1e9);
    if (!bytes)
        errx(1, "no memory for %u bytes", s->bytes);
    for (uint64_t i = 0;; i++) {
        int64_t due = s->rate > 0 ? begin + (int64_t)((double)i / s->rate * 1e9) : 0;
        for (int64_t now; (now = now_ns()) < due && due < end;) /* eight that look often would be what is measured */
            usleep((useconds_t)((due - now) / 1000 + 1));
        mark.at_ns = now_ns();
        mark.last = mark.at_ns >= end || due >= end;
        mark.number += 1024;
        memcpy(bytes, &mark, sizeof mark);
        bool more = s->rate <= 0 && !mark.last && i % 16 != 15;
        if (rostrum_publish(s->group, bytes, s->bytes, more ? ROSTRUM_MORE : 0, &error))
            errx(1, "%s", error.text);
        if (mark.last)
            break;
    }
    free(bytes);
    return NULL;
}

int main(int count, char **arguments) {
    static tally t;
    rostrum *agent;
    rostrum_group *group;
    rostrum_error error;
    rostrum_message message;
    if (count != 7)
        errx(2, "order SOCKET GROUP PROTOCOL ORDER MEMBERS BYTES");
    t.members = (uint32_t)strtoul(arguments[5], NULL, 10);
    const rostrum_group_options options = {.protocol = arguments[3], .order = arguments[4]};
    if (rostrum_connect(arguments[1], app, NULL, &agent, &error) ||
        rostrum_subscribe(agent, arguments[2], &options, &group, &error))
        errx(1, "%s", error.text);
    const rostrum_view *view = NULL;
    while (!view || view->member_count < t.members) {
        if (rostrum_next(group, &message, -1, &error))
            errx(1, "%s", error.text);
        view = rostrum_group_view(group);
    }
    puts("ready");
    fflush(stdout);
    sending s = {
        .group = group, .bytes = (uint32_t)strtoul(arguments[6], NULL, 10), .number = (uint64_t)getpid() << 40};
    while (tally_begin(&t, &s.rate, &s.seconds, &s.offset)) {
        pthread_t thread;
        s.phase = t.phase;
        if (pthread_create(&thread, NULL, publish, &s))
            errx(1, "no thread");
        bool over = false;
        while (!over) {
            if (rostrum_next(group, &message, -1, &error))
                errx(1, "%s", error.text);
            if (message.kind == ROSTRUM_MESSAGES_LOST)
                errx(1, "%llu lost: %s", (unsigned long long)message.count, message.why);
            over = message.kind == ROSTRUM_MESSAGE && tally_take(&t, message.bytes, message.length);
        }
        pthread_join(thread, NULL);
        tally_tell(&t);
    }
    return 0;
}
