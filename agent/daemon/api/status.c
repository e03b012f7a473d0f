#include "daemon/api/status.h"

#include <stdio.h>
#include <string.h>

#include "daemon/api/access.h"

static void hide_app(const rs_api_server *server, const rs_api_client *asks, uint8_t app[16]) {
    if (!rs_api_may_see(server, asks, app))
        memset(app, 0, sizeof asks->app);
}

static void object_row(const rs_object *object, rostrum_object *row) {
    *row = (rostrum_object){.data_id = object->id.data,
                            .state =
                                object->phase == RS_OBJECT_COMPLETE ? ROSTRUM_OBJECT_COMPLETE : ROSTRUM_OBJECT_BUILDING,
                            .received = object->received,
                            .pinned = object->pinned,
                            .goes = object->goes_at != 0,
                            .holds = object->holds,
                            .size = object->size,
                            .digest_algorithm = object->digest.algorithm,
                            .digest_length = object->digest.length};
    memcpy(row->app, object->id.app, sizeof row->app);
    memcpy(row->digest, object->digest.value, sizeof row->digest);
}

static void put_objects(rs_api_server *server, const rs_api_call *call) {
    const rs_api_client *asks = rs_api_client_find(server, call->client);
    rostrum_object rows[64]; /* always fit in one message */
    uint32_t cursor = 0, count;
    do {
        const rs_object *object;
        for (count = 0; count < sizeof rows / sizeof *rows && (object = rs_store_next(server->store, &cursor)); count++)
            object_row(object, &rows[count]);
        for (uint32_t i = 0; i < count; i++)
            hide_app(server, asks, rows[i].app);
        if (count) {
            (void)rs_api_encode_objects(&server->message, call->tag, rows, count);
            rs_api_transmit(server, call->client, -1, false);
        }
    } while (count);
}

void rs_api_reply_names(rs_api_server *server, const rs_api_call *call) {
    const rs_api_client *asks = rs_api_client_find(server, call->client);
    rs_api_object_name rows[64]; /* always fit in one message */
    const rs_object *object = NULL;
    uint32_t cursor = 0;
    do {
        uint32_t count = 0;
        while (count < sizeof rows / sizeof *rows && (object = rs_store_next(server->store, &cursor)))
            if (object->name && rs_api_may_see(server, asks, object->id.app)) {
                rows[count] = (rs_api_object_name){.data_id = object->id.data, .name = object->name};
                memcpy(rows[count++].app, object->id.app, sizeof rows->app);
            }
        if (count) {
            (void)rs_api_encode_names(&server->message, call->tag, rows, count);
            rs_api_transmit(server, call->client, -1, false);
        }
    } while (object);
    rs_api_reply_ok(server, call);
}

void rs_api_reply_status(rs_api_server *server, const rs_api_call *call, const rostrum_status *status) {
    rostrum_status whole = *status;
    (void)snprintf(whole.server, sizeof whole.server, "%s", server->server_name);
    (void)snprintf(whole.version, sizeof whole.version, "%s", server->version);
    (void)snprintf(whole.store, sizeof whole.store, "%s", rs_store_directory(server->store));
    whole.boot_id = server->config.boot_id;
    whole.store_used = rs_store_used(server->store);
    whole.store_quota = rs_store_quota(server->store);
    whole.clients = server->client_count;
    for (uint32_t done = 0; done < status->transfer_count;) {
        rostrum_transfer rows[32];
        uint32_t left = status->transfer_count - done, count = left < 32 ? left : 32;
        memcpy(rows, status->transfers + done, count * sizeof *rows);
        for (uint32_t i = 0; i < count; i++)
            hide_app(server, rs_api_client_find(server, call->client), rows[i].app);
        done += rs_api_encode_transfers(&server->message, call->tag, rows, count);
        rs_api_transmit(server, call->client, -1, false);
    }
    for (uint32_t done = 0; done < status->group_count;) {
        done += rs_api_encode_groups(&server->message, call->tag, status->groups + done, status->group_count - done);
        rs_api_transmit(server, call->client, -1, false);
    }
    put_objects(server, call);
    rs_api_encode_state(&server->message, call->tag, &whole);
    rs_api_transmit(server, call->client, -1, false);
}
