#include "daemon/metrics/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/accept.h"
#include "daemon/log.h"
#include "daemon/units.h"

#define HEAD_MAX 256

typedef struct {
    rs_metrics_server *server;
    rs_watch watch;
    bool used;
    rs_time until;
    char request[RS_METRICS_REQUEST_MAX + 1];
    size_t received;
    char *answer; /* NULL until the request is whole */
    size_t length, sent;
} connection;

struct rs_metrics_server {
    rs_loop *loop;
    rs_metrics_page_fn *page;
    void *context;
    rs_watch watch;
    rs_accept_pause pause;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    connection connections[RS_METRICS_CONNECTIONS_MAX];
};

static void drop(connection *c) {
    int fd = c->watch.fd;
    rs_loop_unwatch(c->server->loop, &c->watch);
    close(fd);
    free(c->answer);
    *c = (connection){0};
}

/* What the first line of a request asks for: a status to answer. */
static int judge(const char *request) {
    const char *end = strstr(request, "\r\n");
    const char *target = strchr(request, ' ');
    if (!end || !target || target > end)
        return 400;
    const char *version = strchr(target + 1, ' ');
    if (!version || version > end || strncmp(version + 1, "HTTP/1.", 7) != 0)
        return 400;
    if ((size_t)(target - request) != 3 || memcmp(request, "GET", 3) != 0)
        return 405;
    size_t length = strcspn(target + 1, " ?");
    return length == 8 && memcmp(target + 1, "/metrics", 8) == 0 ? 200 : 404;
}

static const char *reason(int status) {
    switch (status) {
    case 200:
        return "OK";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 431:
        return "Request Header Fields Too Large";
    case 503:
        return "Service Unavailable";
    default:
        return "Bad Request";
    }
}

static const char *advice(int status) {
    switch (status) {
    case 404:
        return "there is only /metrics here\n";
    case 405:
        return "only GET is answered here\n";
    case 431:
        return "the request is too long\n";
    case 503:
        return "out of memory\n";
    default:
        return "this is no HTTP request\n";
    }
}

static void answer(connection *c, int status) {
    char head[HEAD_MAX];
    size_t length = 0;
    char *page = status == 200 ? c->server->page(c->server->context, &length) : NULL;
    if (status == 200 && !page)
        status = 503;
    const char *body = page ? page : advice(status);
    length = page ? length : strlen(body);
    const char *type = page ? "text/plain; version=0.0.4; charset=utf-8" : "text/plain; charset=utf-8";
    int used = snprintf(head, sizeof head,
                        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%sConnection: close\r\n\r\n",
                        status, reason(status), type, length, status == 405 ? "Allow: GET\r\n" : "");
    c->answer = malloc((size_t)used + length);
    if (c->answer) {
        memcpy(c->answer, head, (size_t)used);
        memcpy(c->answer + used, body, length);
        c->length = (size_t)used + length;
    }
    free(page);
}

/* False: the connection is over. */
static bool write_out(connection *c) {
    while (c->sent < c->length) {
        ssize_t wrote = send(c->watch.fd, c->answer + c->sent, c->length - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (wrote < 0)
            return errno == EAGAIN && rs_loop_watch(c->server->loop, &c->watch, c->watch.fd, EPOLLOUT);
        c->sent += (size_t)wrote;
    }
    shutdown(c->watch.fd, SHUT_WR);
    return false;
}

static bool read_in(connection *c) {
    ssize_t got = recv(c->watch.fd, c->request + c->received, RS_METRICS_REQUEST_MAX - c->received, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN))
        return false;
    if (got < 0)
        return true;
    c->received += (size_t)got;
    c->request[c->received] = '\0';
    if (memchr(c->request, '\0', c->received))
        answer(c, 400);
    else if (strstr(c->request, "\r\n\r\n"))
        answer(c, judge(c->request));
    else if (c->received == RS_METRICS_REQUEST_MAX)
        answer(c, 431);
    else
        return true;
    return c->answer && write_out(c);
}

static void on_connection(void *context, uint32_t events) {
    connection *c = context;
    bool stays = c->answer ? !(events & EPOLLERR) && write_out(c) : read_in(c);
    if (!stays)
        drop(c);
}

static void on_accept(void *context, uint32_t events) {
    rs_metrics_server *server = context;
    (void)events;
    int fd = accept4(server->watch.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    char text[RS_ACCEPT_TEXT];
    if (fd < 0 && rs_accept_failed(&server->pause, errno, rs_loop_now(server->loop), "the page of metrics", text)) {
        if (text[0])
            rs_log(RS_LOG_ERROR, "metrics", "%s", text);
        rs_loop_watch(server->loop, &server->watch, server->watch.fd, 0);
    }
    if (fd < 0)
        return;
    rs_accept_worked(&server->pause);
    connection *c = NULL;
    for (unsigned i = 0; i < RS_METRICS_CONNECTIONS_MAX && !c; i++)
        if (!server->connections[i].used)
            c = &server->connections[i];
    if (!c) { /* whoever has been here longest has had time to ask */
        c = &server->connections[0];
        for (unsigned i = 1; i < RS_METRICS_CONNECTIONS_MAX; i++)
            if (server->connections[i].until < c->until)
                c = &server->connections[i];
        drop(c);
    }
    c->server = server;
    c->used = true;
    c->until = rs_loop_now(server->loop) + RS_METRICS_TIME;
    c->watch = (rs_watch){.ready = on_connection, .context = c};
    if (!rs_loop_watch(server->loop, &c->watch, fd, EPOLLIN)) {
        close(fd);
        *c = (connection){0};
    }
}

/* A socket file that nobody listens on any more is taken away. */
static void clear_path(const char *path) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct stat found;
    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    if (stat(path, &found) != 0 || !S_ISSOCK(found.st_mode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno == ECONNREFUSED)
        unlink(path);
    if (fd >= 0)
        close(fd);
}

static int listen_tcp(uint32_t address, uint16_t port) {
    const int on = 1;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(address)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, (struct sockaddr *)&here, sizeof here) == 0 && listen(fd, 16) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int listen_unix(rs_metrics_server *server, const char *path) {
    struct sockaddr_un here = {.sun_family = AF_UNIX};
    snprintf(here.sun_path, sizeof here.sun_path, "%s", path);
    clear_path(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&here, sizeof here) == 0) {
        snprintf(server->path, sizeof server->path, "%s", path);
        if (listen(fd, 16) == 0)
            return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

rs_metrics_server *rs_metrics_server_new(rs_loop *loop, const char *where, rs_metrics_page_fn *page, void *context,
                                         char text[RS_METRICS_TEXT]) {
    uint32_t address = 0;
    uint16_t port = 0;
    rs_metrics_server *server = calloc(1, sizeof *server);
    if (!server) {
        snprintf(text, RS_METRICS_TEXT, "out of memory");
        return NULL;
    }
    server->loop = loop;
    server->page = page;
    server->context = context;
    server->watch = (rs_watch){.ready = on_accept, .context = server};
    int fd = -1;
    if (where[0] == '/')
        fd = listen_unix(server, where);
    else if (rs_parse_endpoint(where, &address, &port))
        fd = listen_tcp(address, port);
    else
        errno = EINVAL;
    if (fd >= 0 && rs_loop_watch(loop, &server->watch, fd, EPOLLIN))
        return server;
    snprintf(text, RS_METRICS_TEXT, "cannot serve metrics at %.80s: %s", where, strerror(errno));
    if (fd >= 0)
        close(fd);
    rs_metrics_server_free(server);
    return NULL;
}

void rs_metrics_server_free(rs_metrics_server *server) {
    if (!server)
        return;
    for (unsigned i = 0; i < RS_METRICS_CONNECTIONS_MAX; i++)
        if (server->connections[i].used)
            drop(&server->connections[i]);
    if (server->watch.active) {
        int fd = server->watch.fd;
        rs_loop_unwatch(server->loop, &server->watch);
        close(fd);
    }
    if (server->path[0])
        unlink(server->path);
    free(server);
}

rs_time rs_metrics_server_deadline(const rs_metrics_server *server) {
    rs_time first = server->pause.again ? server->pause.again : RS_NEVER;
    for (unsigned i = 0; i < RS_METRICS_CONNECTIONS_MAX; i++)
        if (server->connections[i].used && server->connections[i].until < first)
            first = server->connections[i].until;
    return first;
}

void rs_metrics_server_timeout(rs_metrics_server *server) {
    rs_time now = rs_loop_now(server->loop);
    if (rs_accept_resumes(&server->pause, now))
        rs_loop_watch(server->loop, &server->watch, server->watch.fd, EPOLLIN);
    for (unsigned i = 0; i < RS_METRICS_CONNECTIONS_MAX; i++)
        if (server->connections[i].used && server->connections[i].until <= now)
            drop(&server->connections[i]);
}
