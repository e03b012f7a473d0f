/* Objects of applications that asked for it (EPHEMERAL) go with the last of their processes, however that ends. What a
 * transfer still uses, or brings later, goes a while after. */
#ifndef RS_API_EPHEMERAL_H
#define RS_API_EPHEMERAL_H

#include <stdbool.h>
#include <stdint.h>

#include "api/error.h"
#include "core/base/types.h"

#define RS_EPHEMERAL_MOST 64 /* applications at once; of more, the longest gone is forgotten */

typedef struct {
    struct {
        uint8_t app[16];
        rs_time forget_at; /* nothing of it has come for long */
    } gone[RS_EPHEMERAL_MOST];
    uint32_t count;
    rs_time next; /* when to look; RS_NEVER if count is 0 */
} rs_ephemeral;

struct rs_api_server;
struct rs_api_client;

/* The client unregistered or is gone: when it asked, and no other process of its application did, objects go. */
void rs_ephemeral_left(struct rs_api_server *server, const struct rs_api_client *client);
/* Takes an object from the store; false: not now. */
typedef bool rs_ephemeral_drop(struct rs_api_server *server, const rs_object_id *id, rs_error *busy);
/* Frees what can be freed by now. Cheap before server->ephemeral.next. */
void rs_ephemeral_work(struct rs_api_server *server, rs_ephemeral_drop *drop);

#endif
