/* What is known to be missing, and given up in the end. All bounds are the same, so each queue is in order of its
 * deadlines. */
#include "core/groups/state.h"

#define LOOKED_AT 64u /* missing packets of other streams, before a stream's oldest */

static rs_gm_missing *new_missing(rs_messages *node) {
    if (node->missing_free) {
        rs_gm_missing *missing = &node->missing[node->missing_free - 1];
        node->missing_free = missing->next_free;
        return missing;
    }
    if (node->missing_used == node->config.max_missing)
        return NULL;
    rs_gm_missing *missing = &node->missing[node->missing_used++];
    missing->ask.owner = missing;
    rs_list_init(&missing->doom);
    rs_list_init(&missing->kept);
    return missing;
}

bool rs_gm_missing_new(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn) {
    /* One stream leaves at least as much room as it has. */
    bool room = node->stats.missing + stream->missing < node->config.max_missing;
    rs_gm_missing *missing = room ? new_missing(node) : NULL;
    node->stats.discovered++;
    if (!missing) {
        rs_gm_lost(node, stream, sn, 1, RS_LOST_WINDOW);
        rs_gm_assembly_broken(node, stream, sn);
        return false;
    }
    missing->stream = stream;
    stream->missing++;
    missing->sn = sn;
    missing->discovered = now;
    *rs_gm_slot_of(stream, sn) = (uint64_t)(missing - node->missing) << 2 | RS_GM_MISSING;
    if (stream->group->naks) {
        rs_gm_ask_later(node, now, missing);
        rs_list_append(&node->doom, &missing->doom);
    } else
        rs_list_append(&node->doom_plain, &missing->doom);
    node->stats.missing++;
    return true;
}

void rs_gm_missing_found(rs_messages *node, rs_gm_missing *missing) {
    rs_timer_set(&node->asking, &missing->ask, RS_NEVER);
    rs_list_remove(&missing->doom);
    missing->stream->missing--;
    missing->stream = NULL;
    missing->next_free = node->missing_free;
    node->missing_free = (uint32_t)(missing - node->missing) + 1;
    node->stats.missing--;
}

void rs_gm_missing_lost(rs_messages *node, rs_time now, rs_gm_missing *missing, rs_messages_reason reason) {
    rs_gm_stream *stream = missing->stream;
    uint64_t sn = missing->sn;
    (void)now;
    *rs_gm_slot_of(stream, sn) = RS_GM_GONE;
    rs_gm_kept_lost(node, missing);
    rs_gm_missing_found(node, missing);
    rs_gm_lost(node, stream, sn, 1, reason);
    rs_gm_assembly_broken(node, stream, sn);
}

static rs_time doomed_at(const rs_messages *node, const rs_list *queue) {
    if (rs_list_empty(queue))
        return RS_NEVER;
    rs_time bound = queue == &node->doom ? node->config.give_up : node->config.give_up_plain;
    return RS_HOLDER(rs_gm_missing, doom, queue->next)->discovered + bound;
}

static void give_up(rs_messages *node, rs_time now, const rs_list *queue) {
    while (doomed_at(node, queue) <= now) {
        rs_gm_missing *missing = RS_HOLDER(rs_gm_missing, doom, queue->next);
        rs_gm_stream *stream = missing->stream;
        rs_gm_missing_lost(node, now, missing, RS_LOST_NETWORK);
        if (stream->group->order == RS_ORDER_FIFO)
            rs_gm_deliver_run(node, now, stream);
    }
}

void rs_gm_missing_timeout(rs_messages *node, rs_time now) {
    give_up(node, now, &node->doom);
    give_up(node, now, &node->doom_plain);
    rs_gm_ask_timeout(node, now);
}

rs_time rs_gm_missing_deadline(const rs_messages *node) {
    const rs_timer *ask = rs_timers_first(&node->asking);
    rs_time first = ask ? ask->due : RS_NEVER;
    rs_time doom = doomed_at(node, &node->doom), plain = doomed_at(node, &node->doom_plain);
    doom = doom < plain ? doom : plain;
    return first < doom ? first : doom;
}

uint64_t rs_messages_oldest_missing(const rs_messages *node, rs_peer sender, rs_message_group group) {
    uint32_t looked_at = 0;
    for (const rs_list *at = node->doom.next; at != &node->doom && looked_at < LOOKED_AT; at = at->next, looked_at++) {
        const rs_gm_missing *missing = RS_HOLDER(rs_gm_missing, doom, at);
        if (missing->stream->sender == sender && missing->stream->group->id == group)
            return missing->sn;
    }
    return 0;
}
