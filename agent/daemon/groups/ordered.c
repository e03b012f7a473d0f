/* Groups with guarantees: what the engine brings goes to core/order. What that gives out goes to programs (stream.c),
 * and to the engine (sockets.c). */
#include "daemon/groups/ordered.h"

#include <stdlib.h>

#include "core/base/heap.h"
#include "daemon/groups/kept.h"

static bool brings(void *context, uint32_t group, rs_peer sender) {
    const rs_groups *g = context;
    return rs_messages_brings(g->node, sender, group);
}

static bool make(rs_groups *g, rs_local_group *group) {
    rs_kept_begin(g, group);
    const rs_history *history = rs_kept_history(group);
    uint32_t instance = g->incarnation + UINT32_C(2654435761) * g->instances++;
    const rs_order_config config = {.group = group->id,
                                    .self = g->agent->options.address,
                                    .instance = instance ? instance : 1,
                                    .total = group->delivery.total,
                                    .agreed = group->delivery.agreed,
                                    .number = history ? rs_history_last(history) : 0,
                                    .message_bytes = g->message_bytes,
                                    .brings = brings,
                                    .context = g};
    group->ordered = rs_order_new(&config, &rs_heap);
    if (!group->ordered)
        return false;
    group->next_ordered = g->ordered;
    g->ordered = group;
    return true;
}

rs_status rs_ordered_view(rs_groups *g, rs_local_group *group, const rs_peer *members, uint32_t count) {
    if (!group->ordered && !make(g, group))
        return RS_ERR_MEMORY;
    rs_time now = rs_agent_now(g->agent);
    rs_status status = rs_order_view(group->ordered, now, group->version, members, count);
    if (status != RS_ERR_STATE)
        return status;
    rs_ordered_forget(g, group); /* versions started over */
    return make(g, group) ? rs_order_view(group->ordered, now, group->version, members, count) : RS_ERR_MEMORY;
}

void rs_ordered_forget(rs_groups *g, rs_local_group *group) {
    if (!group->ordered)
        return;
    for (rs_local_group **at = &g->ordered; *at; at = &(*at)->next_ordered)
        if (*at == group) {
            *at = group->next_ordered;
            break;
        }
    rs_order_free(group->ordered);
    free(group->view_peers);
    group->ordered = NULL;
    group->view_peers = NULL;
    group->view_count = 0;
    group->waited_at = 0;
    group->not_primary = false;
}

void rs_ordered_take(rs_groups *g, rs_local_group *group, rs_peer from, const uint8_t *bytes, uint32_t length) {
    if (!rs_order_receive(group->ordered, rs_agent_now(g->agent), from, bytes, length))
        rs_log_limited(&g->complaints, 5, RS_LOG_WARNING, "groups", "group=%s a malformed message of its guarantees",
                       group->name);
}

rs_status rs_ordered_publish(rs_groups *g, rs_local_group *group, const uint8_t *bytes, uint32_t length) {
    rs_status status = group->ordered ? rs_order_publish(group->ordered, rs_agent_now(g->agent), bytes, length)
                                      : RS_ERR_LIMIT; /* not a member yet */
    group->published += status == RS_OK;
    return status == RS_ERR_MEMORY ? RS_ERR_LIMIT : status;
}

/* -------------------------------------------------------------------------------------------------------- turns */

rs_time rs_ordered_deadline(const rs_groups *g) {
    rs_time deadline = RS_NEVER;
    for (const rs_local_group *group = g->ordered; group; group = group->next_ordered) {
        rs_time due = rs_order_deadline(group->ordered);
        deadline = due < deadline ? due : deadline;
    }
    rs_time kept = rs_kept_deadline(g);
    return kept < deadline ? kept : deadline;
}

void rs_ordered_timeout(rs_groups *g) {
    rs_kept_timeout(g);
    for (rs_local_group *group = g->ordered; group; group = group->next_ordered)
        rs_order_timeout(group->ordered, rs_agent_now(g->agent));
}
