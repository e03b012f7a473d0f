#include "daemon/api/ephemeral.h"

#include <string.h>

#include "daemon/api/waits.h"

#define PERIOD_NS ((rs_time)1000000000)
#define FORGET_NS (600 * PERIOD_NS) /* a transfer to a process that is gone is over by then, or was never begun */

static bool is_here(const rs_api_server *server, const uint8_t app[16]) {
    for (uint32_t i = 0; i < server->client_count; i++) {
        const rs_api_client *client = server->clients[i];
        if (client->registered && !client->dead && client->ephemeral && memcmp(client->app, app, 16) == 0)
            return true;
    }
    return false;
}

static void forget(rs_ephemeral *all, uint32_t index) {
    all->count--;
    memmove(&all->gone[index], &all->gone[index + 1], (all->count - index) * sizeof all->gone[0]);
}

void rs_ephemeral_left(rs_api_server *server, const rs_api_client *client) {
    rs_ephemeral *all = &server->ephemeral;
    if (!client->ephemeral || is_here(server, client->app))
        return;
    for (uint32_t i = 0; i < all->count; i++)
        if (memcmp(all->gone[i].app, client->app, sizeof client->app) == 0)
            forget(all, i--);
    if (all->count == RS_EPHEMERAL_MOST)
        forget(all, 0);
    memcpy(all->gone[all->count].app, client->app, sizeof client->app);
    all->gone[all->count++].forget_at = server->now + FORGET_NS;
    all->next = server->now;
}

/* True: something of it is here, and cannot go yet. */
static bool free_objects(rs_api_server *server, const uint8_t app[16], rs_ephemeral_drop *drop) {
    bool left = false;
    uint32_t cursor = 0;
    for (rs_object *object; (object = rs_store_next(server->store, &cursor));) {
        if (object->phase == RS_OBJECT_CREATED || memcmp(object->id.app, app, sizeof object->id.app) != 0)
            continue;
        rs_object_id id = object->id;
        rs_error busy;
        bool changes = object->phase == RS_OBJECT_RECEIVING || object->phase == RS_OBJECT_CHECKING;
        if (!changes && drop(server, &id, &busy))
            cursor--; /* the store's last one is in its place now */
        else
            left = true;
    }
    return left;
}

void rs_ephemeral_work(rs_api_server *server, rs_ephemeral_drop *drop) {
    rs_ephemeral *all = &server->ephemeral;
    if (server->now < all->next)
        return;
    for (uint32_t i = 0; i < all->count; i++) {
        if (!is_here(server, all->gone[i].app)) {
            if (free_objects(server, all->gone[i].app, drop))
                all->gone[i].forget_at = server->now + FORGET_NS;
            if (server->now < all->gone[i].forget_at)
                continue;
        }
        forget(all, i--);
    }
    all->next = all->count ? server->now + PERIOD_NS : RS_NEVER;
}
