/* Writes an object that other servers have to standard output:  rostrum-example-fetch APP-UUID NAME [HOLDER...]
 * (socket: $ROSTRUM_SOCKET) NAME is a number or a name; without holders the manager is asked who has it. */
#include <rostrum/rostrum.h>

#include <err.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    uint8_t app[16];
    rostrum *agent;
    rostrum_error error;
    uint64_t id, size;
    int fd;
    if (argc < 3 || !rostrum_uuid_parse(argv[1], app))
        errx(2, "usage: %s APP-UUID NAME [HOLDER...]", argv[0]);
    if (rostrum_data_id(argv[2], &id, &error) || rostrum_connect(NULL, app, NULL, &agent, &error))
        errx(1, "%s", error.text);
    if (rostrum_fetch(agent, id, (const char *const *)argv + 3, (uint32_t)(argc - 3), 0, &fd, &size, &error))
        errx(1, "%s", error.text);
    char bytes[65536];
    for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;)
        if (fwrite(bytes, 1, (size_t)got, stdout) != (size_t)got)
            err(1, "standard output");
    close(fd);
    rostrum_close(agent);
    return fflush(stdout) ? 1 : 0;
}
