#include "core/groups/missing.h"

#include "core/groups/deliver.h"
#include "core/groups/naks.h"

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
    missing->ask.owner = missing->give_up.owner = missing;
    rs_list_init(&missing->order);
    rs_list_init(&missing->waiting);
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
    const rs_gm_group *group = stream->group;
    if (group->policy.naks)
        rs_gm_nak_schedule(node, now, missing);
    rs_list_append(&node->missing_order, &missing->order);
    if (group->policy.give_up != RS_NEVER)
        rs_timer_set(&node->give_up_timers, &missing->give_up, now + group->policy.give_up);
    node->stats.missing++;
    if (group->engine->missing)
        group->engine->missing(rs_gm_engine_own(node, group->engine), now, missing);
    return true;
}

void rs_gm_missing_free(rs_messages *node, rs_gm_missing *missing) {
    rs_gm_nak_end(node, missing);
    rs_timer_set(&node->give_up_timers, &missing->give_up, RS_NEVER);
    rs_list_remove(&missing->order);
    missing->stream->missing--;
    missing->stream = NULL;
    missing->next_free = node->missing_free;
    node->missing_free = (uint32_t)(missing - node->missing) + 1;
    node->stats.missing--;
}

void rs_gm_missing_drop(rs_messages *node, rs_gm_missing *missing) {
    const rs_group_engine *engine = missing->stream->group->engine;
    if (engine->lost)
        engine->lost(rs_gm_engine_own(node, engine), missing);
    rs_gm_missing_free(node, missing);
}

void rs_gm_missing_lost(rs_messages *node, rs_time now, rs_gm_missing *missing, rs_messages_reason reason) {
    rs_gm_stream *stream = missing->stream;
    uint64_t sn = missing->sn;
    (void)now;
    *rs_gm_slot_of(stream, sn) = RS_GM_GONE;
    rs_gm_missing_drop(node, missing);
    rs_gm_lost(node, stream, sn, 1, reason);
    rs_gm_assembly_broken(node, stream, sn);
}

void rs_gm_missing_timeout(rs_messages *node, rs_time now) {
    for (const rs_timer *timer; (timer = rs_timers_first(&node->give_up_timers)) && timer->due <= now;) {
        rs_gm_missing *missing = timer->owner;
        rs_gm_stream *stream = missing->stream;
        rs_gm_missing_lost(node, now, missing, RS_LOST_NETWORK);
        if (stream->group->order == RS_ORDER_FIFO)
            rs_gm_deliver_run(node, now, stream);
    }
    rs_gm_nak_timeout(node, now);
}

rs_time rs_gm_missing_deadline(const rs_messages *node) {
    const rs_timer *ask = rs_timers_first(&node->nak_timers), *give_up = rs_timers_first(&node->give_up_timers);
    rs_time first = ask ? ask->due : RS_NEVER, last = give_up ? give_up->due : RS_NEVER;
    return first < last ? first : last;
}

uint64_t rs_messages_oldest_missing(const rs_messages *node, rs_peer sender, rs_message_group group) {
    uint32_t looked_at = 0;
    for (const rs_list *at = node->missing_order.next; at != &node->missing_order && looked_at < LOOKED_AT;
         at = at->next) {
        const rs_gm_missing *missing = RS_HOLDER(rs_gm_missing, order, at);
        if (!missing->stream->group->policy.recovers)
            continue;
        looked_at++;
        if (missing->stream->sender == sender && missing->stream->group->id == group)
            return missing->sn;
    }
    return 0;
}
