/* Transfers to other servers that a fetch hears: their packets bring pieces of its object, too, at nobody's cost. */
#ifndef RS_PIECES_HEAR_H
#define RS_PIECES_HEAR_H

#include "daemon/pieces/fetch.h"
#include "daemon/pieces/wire.h"

struct fetch;

/* By RUNS of a holder: once for each fetch. */
void rs_hear(struct fetch *f, const rs_piece_message *runs);
void rs_hear_end(struct fetch *f);
/* Counts the piece if all of its bytes were heard and are right. It may end the fetch. */
void rs_hear_piece(struct fetch *f, uint32_t piece);
/* From time to time: what was to come by itself and does not is asked for. */
void rs_hear_look(struct fetch *f);

/* Whether a transfer of that nonce to others is heard for some object. */
bool rs_hears(const rs_fetches *fetches, uint64_t nonce);

/* A data packet of no transfer to this server: where its payload belongs, if a fetch hears it; else NULL. The second:
 * all such payloads are in their places. */
uint8_t *rs_hear_packet(rs_fetches *fetches, rs_group group, const uint8_t *header, size_t header_length,
                        uint32_t payload_length);
void rs_hear_delivered(rs_fetches *fetches);

#endif
