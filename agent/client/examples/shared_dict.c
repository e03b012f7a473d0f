/* A dictionary that programs on many servers share: all have all of it, and see the same writes in the same order.
 *
 * On each server:  rostrum-example-shared-dict APP-UUID GROUP   (socket: $ROSTRUM_SOCKET), then lines such as
 * `colour=blue`; it prints what it has, a line for each write, until its input ends. */
#include <rostrum/replicas.h>

#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t count;
    char **lines; /* "key=value" each */
} dict;

static void set(dict *d, const char *line, size_t length) {
    const char *equals = memchr(line, '=', length);
    size_t at = 0, key = equals ? (size_t)(equals - line) + 1 : length;
    while (at < d->count && strncmp(d->lines[at], line, key) != 0)
        at++;
    if (at < d->count)
        free(d->lines[at]);
    else if (!(d->lines = realloc(d->lines, ++d->count * sizeof *d->lines)))
        err(1, "realloc");
    if (!(d->lines[at] = strndup(line, length)))
        err(1, "strndup");
}

static void deliver(void *context, const rostrum_message *message) {
    set(context, message->bytes, message->length);
}

static rostrum_code get_state(void *context, void **bytes, size_t *length) {
    dict *d = context;
    FILE *out = open_memstream((char **)bytes, length);
    for (size_t i = 0; out && i < d->count; i++)
        fprintf(out, "%s\n", d->lines[i]);
    return out && fclose(out) == 0 ? ROSTRUM_OK : ROSTRUM_ERR_NO_ROOM;
}

static rostrum_code set_state(void *context, const void *bytes, size_t length) {
    dict *d = context;
    while (d->count > 0)
        free(d->lines[--d->count]);
    for (const char *at = bytes, *end = at + length, *stop; at < end; at = stop + 1) {
        if (!(stop = memchr(at, '\n', (size_t)(end - at))))
            return ROSTRUM_ERR_INVALID;
        set(d, at, (size_t)(stop - at));
    }
    return ROSTRUM_OK;
}

static dict shared;

static void *show(void *replica) {
    rostrum_error error = {0};
    rostrum_code code;
    do {
        for (size_t i = 0; i < shared.count; i++)
            printf("%s ", shared.lines[i]);
        puts("");
        fflush(stdout);
        code = rostrum_replica_dispatch(replica, -1, &error);
    } while (!code);
    errx(1, "%s", error.text);
}

int main(int argc, char **argv) {
    static const rostrum_replica_callbacks callbacks = {deliver, get_state, set_state, NULL, NULL};
    uint8_t app[16];
    rostrum *agent;
    rostrum_replica *replica;
    rostrum_error error;
    pthread_t thread;
    if (argc < 3 || !rostrum_uuid_parse(argv[1], app))
        errx(2, "usage: %s APP-UUID GROUP", argv[0]);
    if (rostrum_connect(NULL, app, NULL, &agent, &error) ||
        rostrum_replica_open(agent, argv[2], NULL, &callbacks, &shared, &replica, &error) ||
        rostrum_replica_wait_ready(replica, 60000, &error))
        errx(1, "%s", error.text);
    if (pthread_create(&thread, NULL, show, replica))
        errx(1, "no thread");
    char *line = NULL;
    size_t room = 0;
    for (ssize_t length; (length = getline(&line, &room, stdin)) > 0;)
        if (rostrum_replica_publish(replica, line, (uint32_t)strcspn(line, "\n"), &error))
            errx(1, "%s", error.text);
    return 0;
}
