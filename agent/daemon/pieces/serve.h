/* Gives pieces of objects here to servers that fetch them: whole objects, and those that are still coming. All together
 * get no more than a rate. Who knows an object's application and number may have it, as on every other door. */
#ifndef RS_PIECES_SERVE_H
#define RS_PIECES_SERVE_H

#include "daemon/loop.h"
#include "daemon/store/store.h"

#define RS_PIECE_CLIENTS_MOST 256u

typedef struct rs_piece_server rs_piece_server;

typedef struct {
    rs_loop *loop;
    rs_store *store;
    uint32_t address; /* IPv4, host order */
    uint16_t port;
    int64_t rate_bps; /* 0: no bound */
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
