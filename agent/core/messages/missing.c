/* What is known to be missing: asked for by NAKs where the group has them (Sec. 4.2.7), given up in the end. All waits
 * are the same length, so each queue is in order of its deadlines. */
#include <string.h>

#include "core/messages/state.h"

#define NAK_BATCH 8192u /* packets asked for in one go; the rest at once after that */
#define NAK_OPEN 32u    /* NAKs being put together */

static rs_gm_missing *new_missing(rs_messages *node) {
    if (node->missing_free) {
        rs_gm_missing *missing = &node->missing[node->missing_free - 1];
        node->missing_free = missing->next_free;
        return missing;
    }
    if (node->missing_used == node->config.max_missing)
        return NULL;
    rs_gm_missing *missing = &node->missing[node->missing_used++];
    rs_list_init(&missing->nak);
    rs_list_init(&missing->doom);
    rs_list_init(&missing->kept);
    return missing;
}

bool rs_gm_missing_new(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn) {
    rs_gm_missing *missing = new_missing(node);
    node->stats.discovered++;
    if (!missing) {
        rs_gm_lost(node, stream, sn, 1, RS_LOST_WINDOW);
        rs_gm_assembly_broken(node, stream, sn);
        return false;
    }
    missing->stream = stream;
    missing->sn = sn;
    missing->discovered = now;
    missing->rounds = 0;
    *rs_gm_slot_of(stream, sn) = (uint64_t)(missing - node->missing) << 2 | RS_GM_MISSING;
    if (stream->group->naks) {
        missing->due = now + node->config.nak_delay;
        rs_list_append(&node->nak_first, &missing->nak);
        rs_list_append(&node->doom, &missing->doom);
    } else
        rs_list_append(&node->doom_plain, &missing->doom);
    node->stats.missing++;
    return true;
}

void rs_gm_missing_found(rs_messages *node, rs_gm_missing *missing) {
    rs_list_remove(&missing->nak);
    rs_list_remove(&missing->doom);
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

/* NAKs of one round that are being put together, by whom they go to. */
typedef struct {
    rs_messages *node;
    uint32_t most; /* items in a datagram */
    struct {
        rs_gm_small *small;
        uint32_t count, round;
        rs_gm_nak_item last;
    } open[NAK_OPEN];
} naks;

static void send_nak(naks *n, uint32_t at) {
    rs_gm_small *small = n->open[at].small;
    if (!small)
        return;
    n->open[at].small = NULL;
    uint32_t count = n->open[at].count;
    rs_gm_put_nak_item(small->bytes + RS_GM_NAK + (count - 1) * RS_GM_NAK_ITEM, &n->open[at].last);
    small->length = RS_GM_NAK + count * RS_GM_NAK_ITEM;
    rs_gm_put_nak(small->bytes, n->node->config.self, count, n->open[at].round);
    n->node->stats.naks_sent++;
    /* The sender's copies of the same: a later round does not fail by one lost packet. */
    for (uint32_t i = 1; i < n->open[at].round; i++) {
        rs_gm_small *copy = rs_gm_small_new(n->node);
        if (!copy)
            return;
        copy->channel = small->channel;
        copy->peer = small->peer;
        copy->group = small->group;
        copy->length = small->length;
        memcpy(copy->bytes, small->bytes, small->length);
        n->node->stats.naks_sent++;
    }
}

static void ask(naks *n, rs_peer peer, const rs_gm_missing *missing, uint32_t round) {
    uint32_t at = (uint32_t)rs_gm_mix(peer) % NAK_OPEN;
    rs_gm_id id = {missing->stream->sender, missing->stream->incarnation, missing->stream->group->id, missing->sn};
    if (n->open[at].small && (n->open[at].small->peer != peer || n->open[at].round != round))
        send_nak(n, at);
    if (n->open[at].small) {
        rs_gm_nak_item *last = &n->open[at].last;
        uint64_t ahead = id.sn - last->id.sn - 1;
        if (last->id.group == id.group && last->id.sender == id.sender && last->id.incarnation == id.incarnation &&
            ahead < 32) {
            last->mask |= UINT32_C(1) << ahead;
            return;
        }
        if (n->open[at].count == n->most)
            send_nak(n, at);
        else
            rs_gm_put_nak_item(n->open[at].small->bytes + RS_GM_NAK + (n->open[at].count - 1) * RS_GM_NAK_ITEM, last);
    }
    if (!n->open[at].small) {
        n->open[at].small = rs_gm_small_new(n->node);
        if (!n->open[at].small)
            return;
        n->open[at].small->channel = RS_CH_PEER_DATAGRAM;
        n->open[at].small->peer = peer;
        n->open[at].count = 0;
        n->open[at].round = round;
    }
    n->open[at].count++;
    n->open[at].last = (rs_gm_nak_item){id, 0};
}

/* The sender is asked, from the second round on other members too, which have it if they are as lucky as most. */
static void ask_round(naks *n, rs_gm_missing *missing, uint64_t draw) {
    const rs_gm_group *group = missing->stream->group;
    if (missing->rounds < RS_GM_ROUNDS_MOST)
        missing->rounds++;
    ask(n, missing->stream->sender, missing, missing->rounds);
    for (uint32_t i = 1, asked = 0; i < missing->rounds + 2 && i <= group->member_count && asked + 1 < missing->rounds;
         i++) {
        rs_peer helper = group->members[(draw + i) % group->member_count];
        if (helper == n->node->config.self || helper == missing->stream->sender)
            continue;
        ask(n, helper, missing, missing->rounds);
        asked++;
    }
}

static bool due(const rs_list *queue, rs_time now) {
    return !rs_list_empty(queue) && RS_HOLDER(rs_gm_missing, nak, queue->next)->due <= now;
}

static void send_naks(rs_messages *node, rs_time now) {
    if (!due(&node->nak_first, now) && !due(&node->nak_again, now))
        return;
    uint32_t fit = (node->config.packet_bytes - RS_GM_NAK) / RS_GM_NAK_ITEM;
    naks n = {.node = node, .most = fit < RS_GM_NAK_ITEMS ? fit : RS_GM_NAK_ITEMS};
    uint64_t draw = rs_gm_random(node) >> 32;
    uint32_t left = NAK_BATCH;
    while (left > 0 && (due(&node->nak_first, now) || due(&node->nak_again, now))) {
        rs_list *queue = due(&node->nak_first, now) ? &node->nak_first : &node->nak_again;
        rs_gm_missing *missing = RS_HOLDER(rs_gm_missing, nak, queue->next);
        ask_round(&n, missing, draw);
        missing->due = now + node->config.nak_retry;
        rs_list_append(&node->nak_again, &missing->nak);
        left--;
    }
    for (uint32_t i = 0; i < NAK_OPEN; i++)
        send_nak(&n, i);
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
    send_naks(node, now);
}

static rs_time first_of(const rs_list *queue) {
    return rs_list_empty(queue) ? RS_NEVER : RS_HOLDER(rs_gm_missing, nak, queue->next)->due;
}

rs_time rs_gm_missing_deadline(const rs_messages *node) {
    rs_time first = first_of(&node->nak_first), again = first_of(&node->nak_again);
    rs_time doom = doomed_at(node, &node->doom), plain = doomed_at(node, &node->doom_plain);
    first = first < again ? first : again;
    doom = doom < plain ? doom : plain;
    return first < doom ? first : doom;
}
