/* Unix sockets that carry one message per record and descriptors beside it (SOCK_SEQPACKET, SCM_RIGHTS). Used by the
 * agent and by librostrum. Paths may be longer than a sockaddr_un holds. */
#ifndef RS_API_SOCKET_H
#define RS_API_SOCKET_H

#include "api/error.h"

#include <sys/types.h>

/* A non-blocking listening socket of `type` at `path`, of that group (NULL: the process's). A socket file that nobody
 * listens on is replaced. -1 and `error`: EXISTS if somebody does. */
int rs_unix_listen(const char *path, int type, mode_t mode, const gid_t *group, rs_error *error);

/* A connected socket. -1 and `error` (UNAVAILABLE). */
int rs_unix_connect(const char *path, bool nonblocking, rs_error *error);

/* Sends one message, and `fd` with it if it is not -1. Returns 0 or errno's value (EAGAIN: later). */
int rs_unix_send(int socket, const void *data, size_t length, int fd, bool nonblocking);

/* Receives one message. Returns its length, 0 at the end of the connection, -1 with errno (EMSGSIZE: longer than
 * `size`). *fd is the first descriptor that came with it, or -1; more than one are closed. */
ssize_t rs_unix_receive(int socket, void *data, size_t size, int *fd, bool nonblocking);

#endif
