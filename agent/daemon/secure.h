/* What `--security required` asks of an agent's packets: none goes out that is not sealed, and none is looked at. */
#ifndef RS_DAEMON_SECURE_H
#define RS_DAEMON_SECURE_H

#include "daemon/agent.h"
#include "daemon/seal/seal.h"

/* Without `--security required` all of these do nothing. */

/* False: it could not be done, the log says why. */
bool rs_secure_start(rs_agent *agent);
/* What a packet has less room for. */
uint32_t rs_secure_bytes(const rs_agent *agent);
/* Seals by that packet I/O, which it owns then; `clear` bytes stay readable. NULL with the reason in `error`. */
rs_io *rs_secure_io(const rs_agent *agent, rs_io *io, size_t clear, bool whole, char *error);
bool rs_secure_io_whole(const rs_io *io); /* before anything else is around it */
/* With that digest objects may come. */
bool rs_secure_digest(const rs_agent *agent, const rs_digest *digest);
/* The manager's part. */
void rs_secure_link(const rs_agent *agent, rs_manager_options *options, rs_manager_callbacks *callbacks);
rs_time rs_secure_deadline(const rs_agent *agent);
void rs_secure_timeout(rs_agent *agent);

#endif
