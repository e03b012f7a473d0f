/* Requests that take time: reads that wait, allocation and digests a piece at a time, subscriptions; and the events and
 * news that end them. */
#include "daemon/api/waits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALLOCATE_BYTES ((uint64_t)4 << 20) /* per dispatch: about 1 ms */
#define DIGEST_CHUNKS_XXH3 8u              /* per dispatch: about 0.4 ms, from memory that is not cached */
#define DIGEST_CHUNKS_SHA256 1u
#define DIGEST_CHUNKS_FILE 1u /* of a file that is not in memory: what the disk gives in some 3 ms, others wait for */
/* A digest follows what is sent while that is so fast (2 Gb/s) that reading it twice from memory would be felt. */
#define FOLLOW_BYTES ((uint64_t)5 << 20)
#define FOLLOW_TIME ((rs_time)20000000)    /* ns */
#define FOLLOW_BEHIND ((uint64_t)16 << 20) /* what is sent before is in no cache */
#define FOLLOW_LOOKS 4                     /* at the beginning it waits so long for sending to become fast */

static bool is_work(rs_api_wait_kind kind) {
    return kind == RS_WAIT_CREATE || kind == RS_WAIT_DIGEST;
}

static bool is_listening(rs_api_wait_kind kind) {
    return kind == RS_WAIT_EVENTS || kind == RS_WAIT_SEND;
}

static bool same_id(const rs_object_id *a, const rs_object_id *b) {
    return a->data == b->data && memcmp(a->app, b->app, sizeof a->app) == 0;
}

rs_api_wait *rs_api_wait_new(rs_api_server *server, rs_api_client *client, rs_api_wait_kind kind,
                             const rs_api_call *call, const rs_object_id *id) {
    if (client && client->pending >= server->config.max_pending) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_LIMIT,
                           "this process has %u requests waiting already; take some answers first", client->pending);
        return NULL;
    }
    rs_api_wait **end = &server->waits;
    for (; *end; end = &(*end)->next)
        if (client && (*end)->call.client == call->client && (*end)->call.tag == call->tag) {
            rs_api_reply_error(server, call, ROSTRUM_ERR_INVALID,
                               "tag %" PRIu64 " is in use by a request that is not answered yet", call->tag);
            return NULL;
        }
    rs_api_wait *wait = calloc(1, sizeof *wait);
    if (!wait) {
        rs_api_reply_error(server, call, ROSTRUM_ERR_NO_ROOM, "the agent has no memory for one more request");
        return NULL;
    }
    wait->kind = kind;
    wait->call = client ? *call : (rs_api_call){0};
    wait->id = *id;
    wait->deadline = RS_NEVER;
    /* At the end, so that work and answers keep the order of the requests. */
    *end = wait;
    if (client)
        client->pending++;
    server->work_count += is_work(kind);
    server->listener_count += is_listening(kind);
    return wait;
}

void rs_api_wait_end(rs_api_server *server, rs_api_wait *wait, bool discard) {
    for (rs_api_wait **at = &server->waits; *at; at = &(*at)->next)
        if (*at == wait) {
            *at = wait->next;
            break;
        }
    rs_api_client *client = rs_api_client_find(server, wait->call.client);
    if (client)
        client->pending--;
    server->work_count -= is_work(wait->kind);
    server->listener_count -= is_listening(wait->kind);
    if (discard && wait->object) {
        rs_store_discard(server->store, wait->object);
        server->store_work = true;
    }
    rs_digest_tree_free(wait->tree);
    free(wait->cause);
    free(wait);
}

uint32_t rs_api_waits_forget(rs_api_server *server, uint64_t client, bool answer) {
    uint32_t count = 0;
    for (rs_api_wait *wait = server->waits, *next; wait; wait = next) {
        next = wait->next;
        /* An added object is the application's: its digest is finished whoever asked for it. */
        bool goes = wait->kind == RS_WAIT_READ || wait->kind == RS_WAIT_CREATE || is_listening(wait->kind);
        if (wait->call.client != client || !goes)
            continue;
        if (answer && !is_listening(wait->kind))
            rs_api_reply_error(server, &wait->call, ROSTRUM_ERR_CANCELLED,
                               "the process unregistered while it waited for object %" PRIu64, wait->id.data);
        rs_api_wait_end(server, wait, true);
        count++;
    }
    return count;
}

void rs_api_send_events_end(rs_api_server *server, const rs_api_call *call) {
    for (rs_api_wait *wait = server->waits; wait; wait = wait->next)
        if (wait->kind == RS_WAIT_SEND && wait->call.client == call->client && wait->call.tag == call->tag) {
            rs_api_wait_end(server, wait, false);
            return;
        }
}

void rs_api_waits_expire(rs_api_server *server) {
    if (server->now < server->read_deadline)
        return;
    server->read_deadline = RS_NEVER;
    for (rs_api_wait *wait = server->waits, *next; wait; wait = next) {
        next = wait->next;
        if (wait->kind != RS_WAIT_READ)
            continue;
        if (wait->deadline > server->now) {
            if (wait->deadline < server->read_deadline)
                server->read_deadline = wait->deadline;
            continue;
        }
        const rs_object *object = rs_store_find(server->store, &wait->id);
        bool partial = object && object->phase == RS_OBJECT_PARTIAL, over = !object || partial;
        rs_api_reply_error(server, &wait->call, ROSTRUM_ERR_TIMEOUT,
                           "object %" PRIu64 " is not whole on %s after %u ms: %s%s", wait->id.data,
                           server->server_name, wait->wait_ms,
                           partial && wait->cause                          ? "a part is here: "
                           : partial                                       ? "a part is here; resume fetches the rest"
                           : object && object->phase == RS_OBJECT_CHECKING ? "it is being checked after a restart"
                           : object                                        ? "it is being received"
                           : wait->cause                                   ? "the last transfer of it failed: "
                                                                           : "nobody has sent it here",
                           over && wait->cause ? wait->cause : "");
        rs_api_wait_end(server, wait, false);
    }
}

static void work_create(rs_api_server *server, rs_api_wait *wait) {
    rs_error error;
    int64_t left = rs_store_allocate_step(server->store, wait->object, ALLOCATE_BYTES, &error);
    if (left > 0)
        return;
    const rs_api_client *client = rs_api_client_find(server, wait->call.client);
    bool path = client && client->framed;
    int fd = left < 0 || path ? -1 : rs_store_writer_fd(wait->object, &error);
    bool shown =
        left >= 0 && path && rs_store_writer_path(wait->object, client->uid, client->app, server->where, &error);
    if (fd < 0 && !shown) {
        rs_api_reply_failure(server, &wait->call, &error);
        rs_api_wait_end(server, wait, true);
        return;
    }
    rs_api_encode_created(&server->message, wait->call.tag, wait->object->handle, wait->object->size);
    rs_api_transmit(server, wait->call.client, fd, false);
    rs_api_wait_end(server, wait, false);
}

/* No digest: the object goes, as soon as nothing is sent from it any more. */
static void digest_failed(rs_api_server *server, rs_api_wait *wait, const rs_error *error) {
    rs_api_reply_failure(server, &wait->call, error);
    wait->failed = true;
    if (wait->object->holds == 0)
        rs_api_wait_end(server, wait, true);
    else
        server->handlers.on_unreadable(server->handlers.context, wait->object, error->text);
}

/* So many chunks more have their digests, or -1 with errno. */
static void digest_went(rs_api_server *server, rs_api_wait *wait, int64_t did, uint64_t left) {
    rs_error error;
    rs_digest digest;
    rs_object *object = wait->object;
    bool failed = false;
    if (did > 0 && object->size >= left)
        rs_store_was_read(object, object->size - left, (uint64_t)did * RS_DIGEST_CHUNK);
    if (did < 0)
        failed = !rs_error_system(
            &error, errno, "object %" PRIu64 " cannot be read (was its file shortened after add?)", object->id.data);
    else if (rs_digest_tree_pending(wait->tree))
        return;
    else if (!rs_digest_tree_final(wait->tree, &digest))
        failed =
            !rs_error_set(&error, ROSTRUM_ERR_IO, "no digest of object %" PRIu64 " could be taken", object->id.data);
    if (failed || !rs_store_added(server->store, object, &digest, &error)) {
        digest_failed(server, wait, &error);
        return;
    }
    uint64_t leaf_count;
    uint8_t *leaves = rs_digest_tree_take_leaves(wait->tree, &leaf_count);
    rs_store_keep_leaves(object, leaves, leaf_count);
    if (object->holds > 0)
        server->handlers.on_added(server->handlers.context, object);
    rs_api_reply_added(server, &wait->call, object);
    rs_object_id id = object->id;
    rs_api_wait_end(server, wait, false);
    rs_api_object_complete(server, &id);
}

/* Whether the object is being sent fast, looked at now and then. */
static bool follows(rs_api_wait *wait, rs_time now) {
    const rs_object *object = wait->object;
    if (wait->failed || object->holds == 0 || object->sent == object->size)
        return false;
    uint64_t left = rs_digest_tree_pending(wait->tree) * RS_DIGEST_CHUNK;
    if (object->sent + left > object->size + FOLLOW_BEHIND)
        return wait->follows = false;
    if (wait->looks == 0 || now - wait->looked_at >= FOLLOW_TIME) {
        wait->looks += wait->looks < FOLLOW_LOOKS;
        wait->follows = object->sent - wait->sent >= FOLLOW_BYTES || wait->looks < FOLLOW_LOOKS;
        wait->sent = object->sent;
        wait->looked_at = now;
    }
    return wait->follows;
}

/* Until when nothing but sending takes its digest further; 0: it is work to do. */
static rs_time follows_until(const rs_api_wait *wait) {
    bool follows = wait->kind == RS_WAIT_DIGEST && !wait->failed && wait->follows && wait->object->holds > 0 &&
                   wait->object->sent < wait->object->size;
    return follows ? wait->looked_at + FOLLOW_TIME : 0;
}

static void work_digest(rs_api_server *server, rs_api_wait *wait) {
    const rs_object *object = wait->object;
    if (wait->failed) {
        if (object->holds == 0)
            rs_api_wait_end(server, wait, true);
        return;
    }
    if (follows(wait, server->now))
        return;
    bool fast = server->config.digest_algorithm == RS_DIGEST_XXH3;
    uint64_t left = rs_digest_tree_pending(wait->tree) * RS_DIGEST_CHUNK; /* in order */
    uint64_t most = rs_store_takes(object) == 0 ? DIGEST_CHUNKS_FILE : fast ? DIGEST_CHUNKS_XXH3 : DIGEST_CHUNKS_SHA256;
    int64_t did = rs_digest_tree_step_shared(wait->tree, object->map, most);
    digest_went(server, wait, did, left);
}

bool rs_api_add_object(rs_api_server *server, rs_api_wait *wait, int fd, rs_error *error) {
    wait->object = rs_store_add(server->store, &wait->id, fd, 0, error);
    wait->tree = wait->object ? rs_digest_tree_new(server->config.digest_algorithm, wait->object->size) : NULL;
    if (wait->tree) {
        rs_digest_tree_all_present(wait->tree);
        return true;
    }
    if (wait->object)
        rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "the agent has no memory for the digest of object %" PRIu64,
                     wait->id.data);
    rs_api_wait_end(server, wait, true);
    return false;
}

rs_object *rs_api_add_again(rs_api_server *server, const rs_object_id *id, int fd, rs_error *error) {
    const rs_api_call nobody = {0};
    rs_api_wait *wait = rs_api_wait_new(server, NULL, RS_WAIT_DIGEST, &nobody, id);
    if (!wait || !rs_api_add_object(server, wait, fd, error)) {
        if (!wait)
            rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "the agent has no memory for one more request");
        return NULL;
    }
    wait->object->added_again = true;
    return wait->object;
}

/* Bytes it has yet to go through, at most. */
static uint64_t work_left(const rs_api_wait *wait) {
    return wait->tree ? rs_digest_tree_pending(wait->tree) * RS_DIGEST_CHUNK : wait->object->size;
}

/* By turns the oldest, for several at once would all come later and none earlier, and the one with the least to do:
 * what is small does not wait for what is large, and no flood of small ones keeps a large one waiting. */
static rs_api_wait *next_work(rs_api_server *server) {
    rs_api_wait *found = NULL;
    server->oldest_turn = !server->oldest_turn;
    for (rs_api_wait *wait = server->waits; wait && !(found && server->oldest_turn); wait = wait->next)
        if (is_work(wait->kind) && server->now >= follows_until(wait) && (!found || work_left(wait) < work_left(found)))
            found = wait;
    return found;
}

void rs_api_waits_work(rs_api_server *server) {
    rs_api_wait *wait = next_work(server);
    if (wait && wait->kind == RS_WAIT_CREATE)
        work_create(server, wait);
    else if (wait)
        work_digest(server, wait);
}

rs_time rs_api_waits_due(const rs_api_server *server) {
    rs_time due = RS_NEVER;
    for (const rs_api_wait *wait = server->work_count ? server->waits : NULL; wait && due > 0; wait = wait->next) {
        rs_time until = is_work(wait->kind) ? follows_until(wait) : RS_NEVER;
        due = until < due ? until : due;
    }
    return due;
}

void rs_api_digest_sent(rs_api_server *server, rs_time now) {
    for (rs_api_wait *wait = server->work_count ? server->waits : NULL, *next; wait; wait = next) {
        next = wait->next;
        if (wait->kind != RS_WAIT_DIGEST || !follows(wait, now))
            continue;
        uint64_t left = rs_digest_tree_pending(wait->tree) * RS_DIGEST_CHUNK;
        int64_t did = rs_digest_tree_follow_shared(wait->tree, wait->object->map, wait->object->sent);
        if (did != 0)
            digest_went(server, wait, did, left);
    }
}

void rs_api_object_complete(rs_api_server *server, const rs_object_id *id) {
    const rs_object *object = rs_store_find(server->store, id);
    if (!object || object->phase != RS_OBJECT_COMPLETE)
        return;
    for (rs_api_wait *wait = server->waits, *next; wait; wait = next) {
        next = wait->next;
        if (wait->kind == RS_WAIT_READ && same_id(&wait->id, id)) {
            rs_api_reply_object(server, &wait->call, object);
            rs_api_wait_end(server, wait, false);
        }
    }
}

void rs_api_object_failed(rs_api_server *server, const rs_object_id *id, const char *cause) {
    for (rs_api_wait *wait = server->waits; wait; wait = wait->next)
        if (wait->kind == RS_WAIT_READ && same_id(&wait->id, id)) {
            free(wait->cause);
            wait->cause = strndup(cause, ROSTRUM_TEXT_MAX); /* without memory: the text is shorter, nothing else */
        }
}

void rs_api_fetch_failed(rs_api_server *server, const rs_object_id *id, const char *cause) {
    for (rs_api_wait *wait = server->waits, *next; wait; wait = next) {
        next = wait->next;
        if (wait->kind == RS_WAIT_READ && wait->fetch && same_id(&wait->id, id)) {
            rs_api_reply_error(server, &wait->call, ROSTRUM_ERR_FAILED, "object %" PRIu64 " was not fetched: %s",
                               id->data, cause);
            rs_api_wait_end(server, wait, false);
        }
    }
    rs_api_object_failed(server, id, cause);
}

bool rs_api_event_wanted(const rs_api_server *server, const rs_object_id *id) {
    if (!server->listener_count)
        return false;
    for (const rs_api_wait *wait = server->waits; wait; wait = wait->next)
        if (is_listening(wait->kind) && same_id(&wait->id, id))
            return true;
    return false;
}

void rs_api_event(rs_api_server *server, const rs_object_id *id, const rostrum_event *event) {
    if (!server->listener_count)
        return;
    rostrum_event copy = *event;
    copy.data_id = id->data;
    if (!copy.time_ns) {
        struct timespec time;
        clock_gettime(CLOCK_REALTIME, &time);
        copy.time_ns = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
    }
    for (rs_api_wait *wait = server->waits; wait; wait = wait->next)
        if (is_listening(wait->kind) && same_id(&wait->id, id)) {
            rs_api_encode_event(&server->message, wait->call.tag, &copy);
            rs_api_transmit(server, wait->call.client, -1, copy.kind == ROSTRUM_EVENT_PROGRESS);
        }
}
