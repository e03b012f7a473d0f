/* TLS of the connections to the manager and to other agents: both ends show certificates. The manager's names its
 * address, an agent's its server. Non-blocking, on a descriptor that stays the caller's. Of what goes wrong there are
 * words for people, on this end's files too. */
#ifndef RS_DAEMON_MANAGER_TLS_H
#define RS_DAEMON_MANAGER_TLS_H

#include "core/base/types.h"

#include <sys/types.h>

#define RS_TLS_TEXT 256

/* Paths of PEM files; the certificate's may hold a chain. The texts must stay. */
typedef struct {
    const char *certificate, *key, *authority;
    bool strict; /* TLS 1.3 alone; whom a list in the CA's file revokes is refused */
} rs_tls_files;

typedef struct rs_tls_identity rs_tls_identity; /* the files, as last read */
typedef struct rs_tls rs_tls;                   /* a connection */

/* NULL with the reason if the files are of no use or out of memory. */
rs_tls_identity *rs_tls_identity_new(const rs_tls_files *files, char text[RS_TLS_TEXT]);
/* Reads the files again if they have changed. False with the reason: they are of no use; connections there are go on.
 * */
bool rs_tls_identity_refresh(rs_tls_identity *identity, char text[RS_TLS_TEXT]);
void rs_tls_identity_free(rs_tls_identity *identity);

/* On the connected `fd`, to a manager at `address` (IPv4, host order); NULL if out of memory. `identity` must outlive
 * it. */
rs_tls *rs_tls_new(rs_tls_identity *identity, int fd, uint32_t address);
/* The same to another agent, which opened the connection if `accepts`. Without a handshake of its own: the first reads
 * and writes do it. Who it is, rs_tls_is_agent says. */
rs_tls *rs_tls_new_peer(rs_tls_identity *identity, int fd, bool accepts);
/* The certificate that it was shown is still good by the files as last read: false once it is revoked, or its CA gone.
 * Costs nothing while the files are the same. */
bool rs_tls_holds(rs_tls *tls);
/* Once something was read: its certificate is one of the agent of that server (URI:rostrum:agent:NAME), and of the same
 * tenant as ours (URI:rostrum:tenant:NAME), or both are of none. */
bool rs_tls_is_agent(const rs_tls *tls, const char *server);
/* Of whose agent it is, and if it is of another tenant, for people. */
const char *rs_tls_agent(const rs_tls *tls, char out[RS_TLS_TEXT]);
void rs_tls_free(rs_tls *tls); /* says goodbye if it can be said without waiting */

/* 0 = done, -EAGAIN = call again when the descriptor is ready (rs_tls_wants_write), other negatives = failed. */
int rs_tls_handshake(rs_tls *tls);
/* Bytes; -EAGAIN = nothing now; 0 (read only) = the peer ended the stream; other negatives = failed. A read of at least
 * 16 KiB leaves nothing in here that the descriptor would not wake for. */
ssize_t rs_tls_read(rs_tls *tls, void *out, size_t size);
ssize_t rs_tls_write(rs_tls *tls, const void *bytes, size_t length);
/* The handshake, or the last read, goes on when the descriptor takes output. */
bool rs_tls_wants_write(const rs_tls *tls);
bool rs_tls_shaken(const rs_tls *tls);      /* the handshake is done */
bool rs_tls_pending(const rs_tls *tls);     /* there is more to read, of which the descriptor does not tell */
bool rs_tls_partial(const rs_tls *tls);     /* inside a record */
const char *rs_tls_text(const rs_tls *tls); /* why it failed; "" if only the socket did */

#endif
