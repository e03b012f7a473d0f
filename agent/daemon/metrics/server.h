/* A page for Prometheus over HTTP/1.1, and nothing else of HTTP: GET /metrics is answered, the connection closed.
 * Bounded in everything a stranger could waste: connections, bytes of a request, time. */
#ifndef RS_DAEMON_METRICS_SERVER_H
#define RS_DAEMON_METRICS_SERVER_H

#include "daemon/loop.h"

#define RS_METRICS_CONNECTIONS_MAX 8u
#define RS_METRICS_REQUEST_MAX 4096u /* bytes of a request's head */
#define RS_METRICS_TIME (5 * RS_SECOND)
#define RS_METRICS_TEXT 160

typedef struct rs_metrics_server rs_metrics_server;

/* The page, from malloc, and its length; NULL if out of memory. */
typedef char *rs_metrics_page_fn(void *context, size_t *length);

/* `where`: "ADDRESS:PORT" or a unix socket's path, which is replaced if nobody listens there. NULL: `text` say why. */
rs_metrics_server *rs_metrics_server_new(rs_loop *loop, const char *where, rs_metrics_page_fn *page, void *context,
                                         char text[RS_METRICS_TEXT]);
void rs_metrics_server_free(rs_metrics_server *server);
rs_time rs_metrics_server_deadline(const rs_metrics_server *server);
void rs_metrics_server_timeout(rs_metrics_server *server);

#endif
