/* What `--security required` asks of an agent's packets: none goes out that is not sealed, and none is looked at.
 *
 * The sender of a transfer draws the key of its data channel, and gives it to its receivers alone, before each OPEN
 * (KEY, docs/protocol.md). Whenever a receiver has left or failed, and each hour, the others get another one. Keys of
 * groups and of what goes to a single agent come from the manager. */
#ifndef RS_DAEMON_SECURE_H
#define RS_DAEMON_SECURE_H

#include "daemon/agent.h"
#include "daemon/seal/packets.h"

/* Without `--security required` all of these do nothing. */

/* False: it could not be done, the log says why. */
bool rs_secure_start(rs_agent *agent);
void rs_secure_free(rs_agent *agent);
/* What a packet has less room for. */
uint32_t rs_secure_bytes(const rs_agent *agent);
/* Seals by that packet I/O, which it owns then. NULL with the reason in `error`. */
rs_io *rs_secure_io(const rs_agent *agent, rs_io *io, rs_seal_traffic traffic, bool whole, char *error);
bool rs_secure_io_is_bare(const rs_io *io); /* before anything else is around it */
/* With that digest objects may come. */
bool rs_secure_digest(const rs_agent *agent, const rs_digest *digest);
/* With what datagrams for that server's agent are sealed; NULL: with nothing yet, its key was asked for. */
rs_seal *rs_secure_peer(rs_agent *agent, const char *server);

/* Streams and messages from here are signed (--security signed). */
bool rs_secure_signs(const rs_agent *agent);
/* Signs packets by batches; false: it could not be done. */
bool rs_secure_sign(rs_agent *agent, rs_sign_what what, const rs_signed *packets, uint32_t count);
/* By which key whoever these keys belong to signs; NULL: it does not. */
const uint8_t *rs_secure_signer(const rs_agent *agent, rs_keys_kind kind, uint64_t id);
bool rs_secure_is_signed(rs_agent *agent, const uint8_t *signer, rs_sign_what what, const rs_signed *packet);

/* This control message goes out: in front of an OPEN go the transfer's keys. */
void rs_secure_goes(rs_agent *agent, rs_peer peer, const uint8_t *header, size_t header_length);
/* This one came: true if it is a KEY, with which it is done. */
bool rs_secure_message(rs_agent *agent, rs_peer peer, const uint8_t *header, size_t header_length);
/* It is no receiver of that transfer any more. */
void rs_secure_left(rs_agent *agent, rs_xfer xfer, rs_peer peer);

/* Who fetches an object hears its packets while it is sent to others: the keys of that transfer, as messages (at most
 * `most`; how many there are); and what is done with one. */
uint32_t rs_secure_tell(rs_agent *agent, uint64_t nonce, struct rs_piece_message *out, uint32_t most);
void rs_secure_hear(rs_agent *agent, const struct rs_piece_message *key);

/* The manager's part. */
void rs_secure_link(const rs_agent *agent, rs_manager_options *options, rs_manager_callbacks *callbacks);
rs_time rs_secure_deadline(const rs_agent *agent);
/* Whether keys are of use any more. */
typedef bool rs_secure_needed(void *agent, rs_keys_kind kind, uint64_t id);
void rs_secure_timeout(rs_agent *agent, rs_secure_needed *needed);

#endif
