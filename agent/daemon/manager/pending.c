#include "daemon/manager/pending.h"

#include <stdlib.h>
#include <string.h>

static uint32_t find(const rs_manager_pending_list *list, const char *id) {
    uint32_t i = 0;
    while (i < list->count && strcmp(list->items[i].id, id) != 0)
        i++;
    return i;
}

/* Takes the entry out and gives its id. */
static char *take_out(rs_manager_pending_list *list, uint32_t index) {
    rs_manager_pending gone = list->items[index];
    list->count--;
    list->bytes -= gone.frame.length;
    memmove(&list->items[index], &list->items[index + 1], (list->count - index) * sizeof gone);
    free(gone.frame.bytes);
    return gone.id;
}

rs_status rs_pending_add(rs_manager_pending_list *list, const char *id, rs_manager_frame frame, rs_time held_since) {
    if (rs_pending_has(list, id))
        return RS_ERR_EXISTS;
    if (list->count == RS_MANAGER_REQUESTS_MAX || list->bytes + frame.length > RS_PENDING_BYTES_MAX)
        return RS_ERR_LIMIT;
    if (list->count == list->size) {
        uint32_t size = list->size ? list->size * 2 : 16;
        rs_manager_pending *items = realloc(list->items, size * sizeof *items);
        if (!items)
            return RS_ERR_MEMORY;
        list->items = items;
        list->size = size;
    }
    char *copy = strdup(id);
    if (!copy)
        return RS_ERR_MEMORY;
    list->bytes += frame.length;
    list->items[list->count++] = (rs_manager_pending){copy, frame, held_since};
    return RS_OK;
}

bool rs_pending_has(const rs_manager_pending_list *list, const char *id) {
    return find(list, id) < list->count;
}

bool rs_pending_remove(rs_manager_pending_list *list, const char *id) {
    uint32_t i = find(list, id);
    if (i == list->count)
        return false;
    free(take_out(list, i));
    return true;
}

void rs_pending_hold(rs_manager_pending_list *list, rs_time now) {
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].held_since == RS_NEVER)
            list->items[i].held_since = now;
}

rs_time rs_pending_deadline(const rs_manager_pending_list *list, rs_time hold) {
    rs_time first = RS_NEVER;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].held_since != RS_NEVER && list->items[i].held_since + hold < first)
            first = list->items[i].held_since + hold;
    return first;
}

char *rs_pending_expire(rs_manager_pending_list *list, rs_time now, rs_time hold) {
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].held_since != RS_NEVER && list->items[i].held_since + hold <= now)
            return take_out(list, i);
    return NULL;
}

void rs_pending_clear(rs_manager_pending_list *list) {
    while (list->count > 0)
        free(take_out(list, list->count - 1));
    free(list->items);
    *list = (rs_manager_pending_list){0};
}

rs_manager_deferred_call *rs_deferred_at(rs_manager_deferred *kept, uint32_t index) {
    return &kept->items[(kept->first + index) % RS_MANAGER_DEFERRED_MAX];
}

static void drop_first(rs_manager_deferred *kept) {
    rs_manager_deferred_call *call = rs_deferred_at(kept, 0);
    kept->bytes -= call->frame.length;
    free(call->frame.bytes);
    kept->first = (kept->first + 1) % RS_MANAGER_DEFERRED_MAX;
    kept->count--;
}

void rs_deferred_add(rs_manager_deferred *kept, rs_manager_frame frame, rs_time sent_at) {
    while (kept->count > 0 &&
           (kept->count == RS_MANAGER_DEFERRED_MAX || kept->bytes + frame.length > RS_DEFERRED_BYTES_MAX)) {
        if (rs_deferred_at(kept, 0)->sent_at == RS_NEVER)
            kept->dropped++;
        drop_first(kept);
    }
    kept->bytes += frame.length;
    *rs_deferred_at(kept, kept->count++) = (rs_manager_deferred_call){frame, sent_at};
}

void rs_deferred_prune(rs_manager_deferred *kept, rs_time before) {
    while (kept->count > 0 && rs_deferred_at(kept, 0)->sent_at < before)
        drop_first(kept);
}

void rs_deferred_clear(rs_manager_deferred *kept) {
    while (kept->count > 0)
        drop_first(kept);
}
