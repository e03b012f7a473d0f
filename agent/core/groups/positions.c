/* How far publishers are that nothing is heard of. What a publisher sent last, and its heartbeats, may all miss a
 * member: its switch had no rules yet, or restarts. So a member asks, by unicast, those that its view lists and that it
 * does not hear: soon after each view, then at growing distances; those that left, too, while they are remembered. The
 * answer is a STATE, no longer than what asked for it; what is missing by it is asked for, or told as lost, as ever. A
 * second and a round have a bound of questions, however many groups and members there are. */
#include "core/groups/state.h"

#define MS INT64_C(1000000)
#define FIRST (250 * MS) /* after a view */
#define ROUNDS 7u        /* at doubled distances; afterwards, seldom, only those that were heard once */
#define IN_ROUND 16u
#define LOOKED_AT 1024u /* members and publishers in a round */
#define IN_SECOND 256u

static rs_time round_wait(uint32_t round) {
    return FIRST << (round < ROUNDS ? round : ROUNDS);
}

void rs_gm_query_view(rs_messages *node, rs_time now, rs_gm_group *group) {
    if (!group->member || group->open) {
        rs_timer_set(&node->queries, &group->query, RS_NEVER);
        return;
    }
    /* Not all members at once. */
    rs_time due = now + FIRST + (rs_time)(rs_gm_mix(node->config.self ^ group->version << 32) % (uint64_t)FIRST);
    group->query_rounds = 0;
    if (!group->query.at || due < group->query.due)
        rs_timer_set(&node->queries, &group->query, due);
}

static bool have_turn(rs_messages *node, rs_time now) {
    if (now - node->queries_from >= 1000 * MS) {
        node->queries_from = now;
        node->queries_sent = 0;
    }
    return node->queries_sent < IN_SECOND;
}

static void ask(rs_messages *node, const rs_gm_group *group, rs_peer peer, const rs_gm_stream *stream) {
    rs_gm_small *small = rs_gm_small_new(node);
    if (!small)
        return;
    rs_gm_state_item item = {group->id, stream ? stream->high + 1 : 1, {.count = 1}};
    item.views.view[0].version = (uint32_t)group->version;
    rs_gm_put_positions(small->bytes, RS_GM_KIND_QUERY, node->config.self, node->config.incarnation, 1);
    rs_gm_put_state_item(small->bytes + RS_GM_STATE, &item);
    small->length = RS_GM_STATE + RS_GM_STATE_ITEM;
    rs_gm_seal(small->bytes, small->length);
    small->channel = RS_CH_PEER_DATAGRAM;
    small->peer = peer;
    node->queries_sent++;
    node->stats.queries_sent++;
}

static void ask_listed(rs_messages *node, rs_time now, rs_gm_group *group) {
    uint32_t all = group->member_count + group->publisher_count, asked = 0;
    bool seldom = group->query_rounds >= ROUNDS;
    rs_time silent = seldom ? 2 * round_wait(ROUNDS) : round_wait(group->query_rounds) / 2;
    for (uint32_t i = 0; i < all && i < LOOKED_AT && asked < IN_ROUND && have_turn(node, now); i++) {
        /* Those that only publish first: nothing else is to be heard of them. */
        uint32_t at = group->query_cursor++ % all;
        rs_peer peer =
            at < group->publisher_count ? group->publishers[at] : group->members[at - group->publisher_count];
        const rs_gm_stream *stream = rs_gm_stream_find(node, peer, group->id);
        if (peer == node->config.self || (seldom && !stream) || (stream && now - stream->heard_at < silent))
            continue;
        ask(node, group, peer, stream);
        asked++;
    }
}

/* The newest last: those that were not heard since. */
static void ask_departed(rs_messages *node, rs_time now, const rs_gm_group *group) {
    uint32_t asked = 0;
    for (const rs_list *at = node->departed.prev; at != &node->departed && asked < IN_ROUND; at = at->prev) {
        const rs_gm_stream *stream = RS_HOLDER(rs_gm_stream, departed, at);
        if (!rs_gm_departed_counts(now, group, stream))
            break;
        if (stream->group != group || stream->heard_at > stream->departed_at || !have_turn(node, now))
            continue;
        ask(node, group, stream->sender, stream);
        asked++;
    }
}

void rs_gm_query_timeout(rs_messages *node, rs_time now) {
    for (const rs_timer *timer; (timer = rs_timers_first(&node->queries)) && timer->due <= now;) {
        rs_gm_group *group = timer->owner;
        if (!have_turn(node, now)) {
            rs_timer_set(&node->queries, &group->query, now + FIRST);
            continue;
        }
        ask_departed(node, now, group);
        ask_listed(node, now, group);
        group->query_rounds += group->query_rounds < ROUNDS;
        rs_timer_set(&node->queries, &group->query, now + round_wait(group->query_rounds));
    }
}

/* Members are told, and of a group that was forgotten here those who heard something of it. */
static bool position(rs_messages *node, rs_peer asker, rs_gm_state_item *item) {
    const rs_gm_group *group = rs_gm_group_find(node, item->group);
    if (group && !rs_gm_is_member(group, asker)) {
        node->stats.naks_refused++;
        return false;
    }
    if (group && group->own) {
        item->sn = group->own->seen;
        item->views = rs_gm_publish_views(group, item->sn);
        return item->sn > 0;
    }
    uint64_t sn = rs_gm_publish_forgotten(node, item->group);
    if (sn == 0 || item->sn <= 1)
        return false;
    item->sn = sn;
    item->views.view[0].back = RS_GM_BACK_MOST;
    item->views.count = 1;
    return true;
}

bool rs_gm_receive_query(rs_messages *node, rs_peer from, const uint8_t *bytes, size_t length) {
    rs_peer asker;
    uint32_t incarnation, count = rs_gm_get_positions(bytes, length, RS_GM_KIND_QUERY, &asker, &incarnation), told = 0;
    if (count == 0)
        return false;
    if (asker == node->config.self || !rs_gm_is_from(node, from, asker) || !rs_gm_intact(node, bytes, length))
        return true;
    node->stats.queries_received++;
    rs_gm_small *small = rs_gm_small_new(node);
    if (!small)
        return true;
    for (uint32_t i = 0; i < count; i++) {
        rs_gm_state_item item;
        rs_gm_get_state_item(bytes, i, &item);
        if (position(node, asker, &item))
            rs_gm_put_state_item(small->bytes + RS_GM_STATE + told++ * RS_GM_STATE_ITEM, &item);
    }
    if (told == 0) {
        rs_list_append(&node->smalls_free, &small->order);
        return true;
    }
    rs_gm_put_state(small->bytes, node->config.self, node->config.incarnation, told);
    small->length = RS_GM_STATE + told * RS_GM_STATE_ITEM;
    rs_gm_seal(small->bytes, small->length);
    small->channel = RS_CH_PEER_DATAGRAM;
    small->peer = asker;
    return true;
}
