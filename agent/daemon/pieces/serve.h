/* Gives pieces of objects here to servers that fetch them: whole objects, and those that are still coming (of
 * these who fetches checks each piece: their sender may have said what they are, and nobody knows yet whether they
 * are that). All together get no more than a rate. Who knows an object's application and number may have it, as on
 * every other door. */
#ifndef RS_PIECES_SERVE_H
#define RS_PIECES_SERVE_H

#include "daemon/loop.h"
#include "daemon/manager/tls.h"
#include "daemon/pieces/wire.h"
#include "daemon/store/store.h"

#define RS_PIECE_CLIENTS_MOST 256u

typedef struct rs_piece_server rs_piece_server;

typedef struct {
    rs_loop *loop;
    rs_store *store;
    uint32_t address; /* IPv4, host order */
    uint16_t port;
    rs_tls_identity *identity; /* NULL: plain; else both ends show certificates. Must outlive it */
    int64_t rate_bps;          /* 0: no bound */
    /* What those like `name` get together of an object that is under way here, sent or received: that goes first. 0: no
     * bound. */
    int64_t (*spare_bps)(void *context, const rs_object_id *id, const char *name);
    /* Of an object that comes in, what its sender says it is; length 0: not known. */
    rs_digest (*digest_of)(void *context, const rs_object *object);
    /* Of an object that is not here: why, if more is known of it. NULL: nothing is. */
    const char *(*why_not)(void *context, const rs_object_id *id);
    /* `name` fetches an object. If it is being sent from here just now, this says where it is heard: RUNS (address 0:
     * nowhere), then a PEER for each receiver; `most` at most. Returns how many messages these are; 0: it is not. */
    uint32_t (*runs)(void *context, const rs_object_id *id, const char *name, rs_piece_message *out, uint32_t most);
    /* Of a continuing stream that is sent from here or comes in: STREAM, what is kept of it (false: there is none); and
     * the bytes of fragments from `sn` on, as far as these are kept, at most `most` of them in `room` bytes. */
    bool (*stream)(void *context, const rs_object_id *id, rs_piece_message *out);
    uint32_t (*run)(void *context, const rs_object_id *id, uint64_t sn, uint32_t most, uint8_t *out, uint32_t room);
    void *context;
} rs_piece_server_config;

typedef struct {
    uint64_t bytes, pieces; /* given */
    uint64_t refused;       /* connections that broke the rules, or came when all places were taken */
    uint32_t clients;
} rs_piece_server_stats;

/* NULL: it cannot listen there, errno says why. */
rs_piece_server *rs_piece_server_new(const rs_piece_server_config *config);
void rs_piece_server_free(rs_piece_server *server);
rs_time rs_piece_server_deadline(const rs_piece_server *server);
void rs_piece_server_timeout(rs_piece_server *server);
rs_piece_server_stats rs_piece_server_stats_get(const rs_piece_server *server);
/* An application deletes the object: who fetches it is told. */
void rs_piece_server_let_go(rs_piece_server *server, const rs_object_id *id);

#endif
