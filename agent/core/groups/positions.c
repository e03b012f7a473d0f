#include "core/groups/positions.h"

#include "core/groups/members.h"
#include "core/groups/naks.h"
#include "core/groups/outbox.h"
#include "core/groups/publish.h"
#include "core/groups/streams.h"

#define MS INT64_C(1000000)
#define SLOW (30000 * MS) /* between heartbeats long after the last packet */
#define BEATS_DOUBLED 24u
#define OTHERS_LOOKED_AT 32u /* other groups that may be told of, at most */
#define MEMBERS_MOST 256u    /* of a group whose members are compared with another's */
#define EVERYBODY 256u       /* of rs_gm_group.told: as many as the group has heard */
#define LOSS_SAMPLE 64u      /* packets */
#define LOSS_LITTLE 20u      /* thousandths */
#define CALM_SECOND 2u       /* where little is lost: the first heartbeat, and this one */
#define FIRST (250 * MS)     /* after a view */
#define ROUNDS 7u            /* at doubled distances; afterwards, seldom, only those that were heard once */
#define IN_ROUND 16u
#define LOOKED_AT 1024u /* members and publishers in a round */
#define IN_SECOND 256u

/* -------------------------------------------------------------------------------------------------- heartbeats
 * The last packet before a pause is followed by nothing that would show its loss. So its sender says after a while how
 * far it is in the group, several times at growing distances (as LBRM does), unless more was published meanwhile. What
 * it says to one group it says of others, too, that it published to of late: their members are often the same. */

/* What share of packets the network loses, by what this node misses and is asked for. */
static bool little_is_lost(rs_messages *node) {
    const rs_messages_stats *stats = &node->stats;
    uint64_t seen = stats->data_received + stats->data_sent;
    uint64_t lost = stats->discovered + node->asked_here - stats->recovered_data;
    uint64_t more = seen - node->seen;
    if (more >= LOSS_SAMPLE) {
        uint64_t gone = lost > node->lost ? lost - node->lost : 0, milli = gone * 1000 / (more + gone);
        node->loss_milli = (uint32_t)(node->loss_known ? (3 * node->loss_milli + milli) / 4 : milli);
        node->loss_known = true;
        node->seen = seen;
        node->lost = lost;
    }
    return node->loss_known && node->loss_milli < LOSS_LITTLE;
}

/* How many of `group`, of 256, hear what this node sends to `other`. */
static uint32_t hear(const rs_messages *node, const rs_gm_group *other, const rs_gm_group *group) {
    if (other->channel == group->channel)
        return EVERYBODY;
    uint32_t both = 0, all = group->member_count - group->member;
    if (all == 0 || group->member_count > MEMBERS_MOST || other->member_count > MEMBERS_MOST)
        return 0;
    for (uint32_t i = 0, k = 0; i < group->member_count && k < other->member_count;) {
        rs_peer a = group->members[i], b = other->members[k];
        both += a == b && a != node->config.self;
        i += a <= b;
        k += b <= a;
    }
    return both * EVERYBODY / all;
}

static void put_item(rs_gm_small *small, uint32_t count, const rs_gm_group *group) {
    uint64_t sn = group->published->seen; /* what waits here to be sent is not missed by anybody */
    rs_gm_state_item item = {group->id, sn, rs_gm_publish_views(group, sn)};
    rs_gm_put_state_item(small->bytes + RS_GM_STATE + count * RS_GM_STATE_ITEM, &item);
}

/* Others that this node published to of late, the newest first; what is on its way just now will come by itself. */
static uint32_t put_others(rs_messages *node, rs_time now, const rs_gm_group *group, rs_gm_small *small) {
    uint32_t fit = (node->config.packet_bytes - RS_GM_STATE) / RS_GM_STATE_ITEM, count = 1, looked_at = 0;
    fit = node->config.lone_heartbeats ? 1 : fit < RS_GM_STATE_ITEMS ? fit : RS_GM_STATE_ITEMS;
    for (const rs_list *at = node->beating.prev; at != &node->beating && count < fit && looked_at < OTHERS_LOOKED_AT;
         at = at->prev) {
        rs_gm_group *other = RS_HOLDER(rs_gm_group, beating, at);
        looked_at++;
        if (other == group || !other->published || other->published->seen == 0 ||
            now - other->published_at < node->config.heartbeat / 4)
            continue;
        uint32_t told = hear(node, group, other);
        if (told == 0)
            continue;
        other->told += told;
        put_item(small, count++, other);
    }
    return count;
}

static void say(rs_messages *node, rs_time now, rs_gm_group *group) {
    rs_gm_small *small = group->published->seen ? rs_gm_small_new(node) : NULL;
    if (!small)
        return;
    put_item(small, 0, group);
    uint32_t count = put_others(node, now, group, small);
    rs_gm_put_state(small->bytes, group->published->sender, group->published->incarnation, count);
    rs_gm_small_to_group(small, group->channel, RS_GM_STATE + count * RS_GM_STATE_ITEM);
    node->stats.heartbeats_sent++;
}

/* Where much is lost all heartbeats are due, else two. But for the first, and the last where much is lost, those give
 * way that others made good for: they told as many members as the group has. */
static bool is_due(rs_messages *node, rs_gm_group *group) {
    bool calm = little_is_lost(node), last = group->beats + 1 == node->config.heartbeats;
    if (calm && group->beats > 0 && (group->beats != CALM_SECOND && !(last && group->beats < CALM_SECOND)))
        return false;
    if (group->beats == 0 || (last && !calm) || group->told < EVERYBODY)
        return true;
    group->told -= EVERYBODY;
    return false;
}

void rs_gm_heartbeats_begin(rs_messages *node, rs_time now, rs_gm_group *group) {
    group->published_at = now;
    group->beats = group->told = 0;
    rs_list_append(&node->beating, &group->beating);
    group->beat_at = now + node->config.heartbeat;
    if (!group->heartbeat.at || group->heartbeat.due > group->beat_at)
        rs_timer_set(&node->heartbeats, &group->heartbeat, group->beat_at);
}

/* One, two, four ... waits after the last packet; after a while, evenly. */
static rs_time next_beat(const rs_messages *node, rs_time now, const rs_gm_group *group) {
    rs_time wait = group->beats < BEATS_DOUBLED ? node->config.heartbeat << group->beats : RS_NEVER;
    return group->beats < node->config.heartbeats || wait < SLOW ? group->published_at + wait : now + SLOW;
}

/* Members that the first ones did not reach (their switch restarts, say) hear a later one: as long as the group is in
 * use here they go on (as in LBRM). Where anybody may publish, nobody tells how long that is, and they end. */
static void heartbeat(rs_messages *node, rs_time now, rs_gm_group *group) {
    rs_timer_set(&node->heartbeats, &group->heartbeat, RS_NEVER);
    bool first = group->beats < node->config.heartbeats,
         goes_on = group->published && !group->policy.silent && (group->policy.recovers || !group->open);
    if (goes_on && (first || !group->open)) {
        if (now >= group->beat_at) {
            if (!first || is_due(node, group))
                say(node, now, group);
            group->beats += group->beats < BEATS_DOUBLED;
            group->beat_at = next_beat(node, now, group);
        }
        first = group->beats < node->config.heartbeats;
        if (first || !group->open)
            rs_timer_set(&node->heartbeats, &group->heartbeat, group->beat_at);
        if (first)
            return;
    }
    rs_list_remove(&group->beating);
}

/* By its own word, after it was asked: what led the stream beyond where its sender is was none of its packets. The
 * stream goes on behind that, with what is published from now on; where packets are stamped, those that came were
 * genuine, and it cannot be before them. */
static void lead_back(rs_messages *node, rs_gm_stream *stream, uint64_t sn) {
    bool stamped = node->config.stamps.make != NULL;
    if (!stream->doubted || sn + 1 >= stream->base || (stamped && sn < stream->seen))
        return;
    rs_gm_stream_restart(node, stream, sn + 1);
    stream->settled_base &= stream->seen > 0; /* of what came nothing was its own: where it begins is to be told yet */
    stream->seen = stream->seen > sn ? sn : stream->seen;
    stream->outside = 0;
}

/* What a sender says of itself in one group. */
static void hear_of(rs_messages *node, rs_time now, rs_gm_group *group, const rs_gm_id *id, const rs_gm_views *views) {
    bool fresh = false;
    const bool sealed = node->config.sealed, certain = sealed && node->came == RS_CAME_ALONE;
    rs_gm_stream *stream = rs_gm_stream_find(node, id->sender, group->id);
    const bool strange = !stream || stream->incarnation != id->incarnation || stream->unheard;
    if (strange && rs_gm_is_before(node, group, views)) {
        node->stats.refused++;
        rs_gm_doubt(node, now, group, id->sender, NULL);
        return;
    }
    if (stream && stream->incarnation == id->incarnation && rs_gm_departed_counts(now, group, stream)) {
        fresh = stream->unheard;
        stream->unheard = false;
    } else {
        stream = rs_gm_stream_get(node, group, id, true, &fresh);
        if (!stream || !rs_gm_believes(node, group, id->sender, id->incarnation)) {
            node->stats.refused++;
            return;
        }
    }
    stream->heard_at = now;
    if (fresh)
        rs_gm_stream_start(stream, id->sn + 1);
    else if (certain)
        lead_back(node, stream, id->sn);
    if (certain)
        stream->doubted = false;
    if (id->sn > stream->high && id->sn - stream->high > node->config.window_packets) {
        /* So much at once is believed when it is said again, or told when it was asked. */
        node->stats.claims++;
        if (sealed && !certain) {
            rs_gm_doubt(node, now, group, id->sender, stream);
            return;
        }
        bool again = certain || stream->outside == id->sn;
        stream->outside = id->sn;
        if (!again)
            return;
        if (!stream->rejoined || !group->policy.silent)
            rs_gm_stream_jump(node, now, stream, id->sn);
    }
    if (stream->rejoined && group->policy.silent) { /* what it published since comes by its engine */
        rs_gm_stream_place(node, now, stream, id->sn, views);
        return;
    }
    uint64_t before = stream->high, base = stream->base;
    rs_gm_stream_reach(node, now, stream, id->sn, false);
    rs_gm_stream_settle_base(node, now, stream, id->sn, views);
    rs_gm_nak_advance(node, now, stream, stream->base < base ? stream->base : before + 1);
}

bool rs_gm_receive_state(rs_messages *node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    rs_gm_id id;
    uint32_t count = rs_gm_get_state(bytes, length, &id.sender, &id.incarnation), heard = 0;
    if (count == 0)
        return false;
    if (id.sender == node->config.self || !rs_gm_is_from(node, from, id.sender) || !rs_gm_intact(node, bytes, length))
        return true;
    for (uint32_t i = 0; i < count; i++) {
        rs_gm_state_item item;
        rs_gm_get_state_item(bytes, i, &item);
        rs_gm_group *group = rs_gm_group_find(node, item.group);
        if (!group || !group->member)
            continue;
        heard++;
        id.group = item.group;
        id.sn = item.sn;
        hear_of(node, now, group, &id, &item.views);
    }
    if (heard)
        node->stats.heartbeats_received++;
    else
        node->stats.foreign++;
    return true;
}

/* --------------------------------------------------------------------------------------------------- questions
 * How far publishers are that nothing is heard of. What a publisher sent last, and its heartbeats, may all miss a
 * member: its switch had no rules yet, or restarts. So a member asks, by unicast, those that its view lists and that it
 * does not hear: soon after each view, then at growing distances; those that left, too, while they are remembered. The
 * answer is a STATE, no longer than what asked for it; what is missing by it is asked for, or told as lost, as ever. A
 * second and a round have a bound of questions, however many groups and members there are. */

static rs_time round_wait(uint32_t round) {
    return FIRST << (round < ROUNDS ? round : ROUNDS);
}

/* Where the engine tells how far publishers are, it says nothing of the time when this node was out of the group: who
 * published nothing since it is back is asked. */
static bool needs_no_word(const rs_gm_group *group, const rs_gm_stream *stream) {
    return group->policy.silent && (!stream || stream->own || !stream->rejoined || stream->placed);
}

static bool is_anything_to_ask(const rs_gm_group *group) {
    for (const rs_list *at = group->streams.next; group->policy.silent && at != &group->streams; at = at->next)
        if (!needs_no_word(group, RS_HOLDER(rs_gm_stream, in_group, at)))
            return true;
    return !group->policy.silent;
}

void rs_gm_query_view(rs_messages *node, rs_time now, rs_gm_group *group) {
    if (!group->member || group->open || !is_anything_to_ask(group)) {
        rs_timer_set(&node->queries, &group->query, RS_NEVER);
        return;
    }
    /* Not all members at once. */
    rs_time due = now + FIRST + (rs_time)(rs_mix(node->config.self ^ group->version << 32) % (uint64_t)FIRST);
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

static void ask_position(rs_messages *node, const rs_gm_group *group, rs_peer peer, const rs_gm_stream *stream) {
    rs_gm_small *small = rs_gm_small_new(node);
    if (!small)
        return;
    rs_gm_state_item item = {group->id, stream ? stream->high + 1 : 1, {.count = 1}};
    item.views.view[0].version = (uint32_t)group->version;
    rs_gm_put_positions(small->bytes, RS_GM_KIND_QUERY, node->config.self, node->config.incarnation, 1);
    rs_gm_put_state_item(small->bytes + RS_GM_STATE, &item);
    rs_gm_small_to_peer(small, peer, RS_GM_STATE + RS_GM_STATE_ITEM);
    node->queries_sent++;
    node->stats.queries_sent++;
}

void rs_gm_doubt(rs_messages *node, rs_time now, const rs_gm_group *group, rs_peer sender, rs_gm_stream *stream) {
    rs_time *at = stream ? &stream->doubted_at : &node->strange_at;
    if ((stream ? stream->doubted : *at > 0) && now - *at < node->config.nak_delay)
        return;
    if (!have_turn(node, now))
        return;
    *at = now;
    if (stream)
        stream->doubted = true;
    ask_position(node, group, sender, stream);
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
        if (peer == node->config.self || (seldom && !stream) || (stream && now - stream->heard_at < silent) ||
            needs_no_word(group, stream))
            continue;
        ask_position(node, group, peer, stream);
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
        if (stream->group != group || stream->heard_at > stream->departed_at || needs_no_word(group, stream) ||
            !have_turn(node, now))
            continue;
        ask_position(node, group, stream->sender, stream);
        asked++;
    }
}

static void query_timeout(rs_messages *node, rs_time now) {
    for (const rs_timer *timer; (timer = rs_timers_first(&node->queries)) && timer->due <= now;) {
        rs_gm_group *group = timer->owner;
        if (!have_turn(node, now)) {
            rs_timer_set(&node->queries, &group->query, now + FIRST);
            continue;
        }
        ask_departed(node, now, group);
        ask_listed(node, now, group);
        group->query_rounds += group->query_rounds < ROUNDS;
        bool ends = !is_anything_to_ask(group) || (group->policy.silent && group->query_rounds == ROUNDS);
        rs_timer_set(&node->queries, &group->query, ends ? RS_NEVER : now + round_wait(group->query_rounds));
    }
}

void rs_gm_positions_timeout(rs_messages *node, rs_time now) {
    query_timeout(node, now);
    for (rs_timer *timer; (timer = rs_timers_first(&node->heartbeats)) && timer->due <= now;)
        heartbeat(node, now, timer->owner);
}

rs_time rs_gm_positions_deadline(const rs_messages *node) {
    const rs_timer *beat = rs_timers_first(&node->heartbeats), *query = rs_timers_first(&node->queries);
    rs_time first = beat ? beat->due : RS_NEVER, second = query ? query->due : RS_NEVER;
    return first < second ? first : second;
}

void rs_gm_positions_end(rs_messages *node, rs_gm_group *group) {
    rs_timer_set(&node->heartbeats, &group->heartbeat, RS_NEVER);
    rs_timer_set(&node->queries, &group->query, RS_NEVER);
    rs_list_remove(&group->beating);
}

/* Members are told, and of a group that was forgotten here those who were members then. */
static bool position(rs_messages *node, rs_peer asker, rs_gm_state_item *item) {
    const rs_gm_group *group = rs_gm_group_find(node, item->group);
    if (group && !rs_gm_is_member(group, asker)) {
        node->stats.naks_refused++;
        return false;
    }
    if (group && group->published) {
        item->sn = group->published->seen;
        item->views = rs_gm_publish_views(group, item->sn);
        return item->sn > 0;
    }
    item->sn = rs_gm_publish_forgotten(node, item->group, asker, &item->views);
    return item->sn > 0;
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
    rs_gm_small_to_peer(small, asker, RS_GM_STATE + told * RS_GM_STATE_ITEM);
    return true;
}
