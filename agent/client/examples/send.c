/* Sends a file to servers:  rostrum-example-send APP-UUID DATA-ID FILE SERVER...   (socket: $ROSTRUM_SOCKET) DATA-ID is
 * a number or a name. */
#include <rostrum/rostrum.h>

#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static void on_event(void *context, const rostrum_event *event) {
    (void)context;
    if (event->kind == ROSTRUM_EVENT_PHASE || event->kind == ROSTRUM_EVENT_RECEIVER)
        printf("%s %s\n", event->subject, event->text);
}

/* The file's bytes in the agent's store: created there, so that nothing is copied again. */
static int copy_file(rostrum *agent, const char *path) {
    rostrum_error error;
    struct stat info;
    int from = open(path, O_RDONLY | O_CLOEXEC), to;
    if (from < 0 || fstat(from, &info) < 0)
        err(1, "%s", path);
    if (rostrum_create(agent, (uint64_t)info.st_size, &to, NULL, &error))
        errx(1, "%s", error.text);
    for (off_t at = 0; at < info.st_size;)
        if (sendfile(to, from, &at, (size_t)(info.st_size - at)) <= 0)
            err(1, "%s", path);
    close(from);
    return to;
}

int main(int argc, char **argv) {
    uint8_t app[16];
    rostrum *agent;
    rostrum_error error;
    if (argc < 5 || !rostrum_uuid_parse(argv[1], app))
        errx(2, "usage: %s APP-UUID DATA-ID FILE SERVER...", argv[0]);
    uint64_t data_id;
    if (rostrum_data_id(argv[2], &data_id, &error) || rostrum_connect(NULL, app, NULL, &agent, &error))
        errx(1, "%s", error.text);

    int file = copy_file(agent, argv[3]);
    rostrum_send_options options = {.on_event = on_event};
    rostrum_send_result *result;
    rostrum_code code = rostrum_send_file(agent, data_id, file, (const char *const *)argv + 4, (uint32_t)(argc - 4),
                                          &options, &result, &error);
    close(file);
    for (uint32_t i = 0; result && i < result->receiver_count; i++) {
        const rostrum_receiver *one = &result->receivers[i];
        printf("%s: %s, first fragment %" PRIu64 ", %" PRIu64 " patched\n", one->name,
               one->digest_ok ? "digest right" : one->cause, one->initial_sn, one->patched_fragments);
    }
    if (code)
        warnx("%s", error.text);
    rostrum_send_result_free(result);
    rostrum_close(agent);
    return code != ROSTRUM_OK;
}
