/* Which peers have repaired which pieces of an object: they are asked about if these are wrong. */
#ifndef RS_DAEMON_REPAIRERS_H
#define RS_DAEMON_REPAIRERS_H

#include "daemon/control/peers.h"

#define RS_REPAIRERS 3u /* of a piece, that are named */
#define RS_REPAIRERS_TEXT (RS_REPAIRERS * 41u + 8u)

typedef rs_peer rs_repairers; /* RS_REPAIRERS for each piece, RS_NO_PEER: nobody; to be freed */

/* That peer has repaired these bytes of an object of `size` bytes. `*of` NULL: nobody has before. */
void rs_repairers_note(rs_repairers **of, uint64_t size, rs_peer peer, uint64_t offset, uint32_t length);
/* Those of a piece as text, and then nobody: what comes next may be others'. `of` may be NULL. */
const char *rs_repairers_take(const rs_peers *peers, rs_repairers *of, uint64_t chunk, char text[RS_REPAIRERS_TEXT]);

#endif
