/* Who is who: peers by number, transfers by id and by object. */
#include "core/transfer/tables.h"

#include "core/transfer/engine.h"

#include <string.h>

#define PLACE_KEPT (1u << 20) /* bytes of which are here: it does not give its place to another */

uint64_t rs_random(rs_node *node) {
    return rs_random_next(&node->random);
}

static uint32_t peer_bucket(const rs_node *node, rs_peer id) {
    return (uint32_t)rs_mix(id) & node->bucket_mask;
}

/* Object ids come from strangers: the seed keeps them from choosing their bucket. */
static uint32_t object_bucket(const rs_node *node, const rs_object_id *object, bool sending) {
    uint64_t a, b;
    memcpy(&a, object->app, 8);
    memcpy(&b, object->app + 8, 8);
    return (uint32_t)rs_mix(rs_mix(rs_mix(a ^ node->config.seed) ^ b) ^ object->data ^ (uint64_t)sending) &
           node->bucket_mask;
}

static uint32_t nonce_bucket(const rs_node *node, uint64_t nonce) {
    return (uint32_t)rs_mix(nonce ^ node->config.seed) & node->bucket_mask;
}

uint64_t rs_fragments(uint64_t size, uint32_t fragment_size) {
    if (size == RS_STREAM)
        return RS_STREAM_FRAGMENTS;
    return size == 0 ? 1 : (size - 1) / fragment_size + 1;
}

uint32_t rs_fragment_length(const rs_transfer *t, uint64_t sn) {
    return sn + 1 < t->fragments ? t->fragment_size : (uint32_t)(t->size - sn * t->fragment_size);
}

rs_peer_state *rs_find_peer(const rs_node *node, rs_peer id) {
    const rs_list *bucket = &node->peer_buckets[peer_bucket(node, id)];
    for (rs_list *at = bucket->next; at != bucket; at = at->next) {
        rs_peer_state *peer = RS_HOLDER(rs_peer_state, hashed, at);
        if (peer->id == id)
            return peer;
    }
    return NULL;
}

rs_peer_state *rs_make_peer(rs_node *node, rs_peer id) {
    rs_peer_state *peer = rs_find_peer(node, id);
    if (peer)
        return peer;
    if (rs_timers_reserve(&node->timers, &node->allocator, node->timer_count + 1) != RS_OK)
        return NULL;
    if (rs_events_reserve(node, 1) != RS_OK)
        return NULL;
    peer = rs_memory_take(&node->allocator, sizeof *peer);
    if (!peer) {
        rs_events_release(node, 1);
        return NULL;
    }
    node->timer_count++;
    node->peer_count++;
    peer->id = id;
    peer->down_since = RS_NEVER;
    peer->retry_at = INT64_MIN;
    peer->timer = (rs_timer){.due = RS_NEVER, .kind = RS_TIMER_PEER, .owner = peer};
    rs_list_init(&peer->links);
    rs_list_init(&peer->talking);
    rs_list_init(&peer->patching);
    rs_list_init(&peer->in_talking);
    rs_list_init(&peer->in_patching);
    rs_list_init(&peer->hashed);
    rs_list_append(&node->peer_buckets[peer_bucket(node, id)], &peer->hashed);
    return peer;
}

void rs_free_peer(rs_node *node, rs_peer_state *peer) {
    rs_timer_set(&node->timers, &peer->timer, RS_NEVER);
    rs_list_remove(&peer->hashed);
    rs_list_remove(&peer->in_talking);
    rs_list_remove(&peer->in_patching);
    rs_events_release(node, 1);
    node->timer_count--;
    node->peer_count--;
    rs_memory_give(&node->allocator, peer->down_cause);
    rs_memory_give(&node->allocator, peer->unknown_replies);
    rs_memory_give(&node->allocator, peer);
}

void rs_drop_peer_if_idle(rs_node *node, rs_peer_state *peer) {
    if (peer->connection == RS_PEER_DOWN && rs_list_empty(&peer->links))
        rs_free_peer(node, peer);
}

/* Finished transfers give way to new ones, the oldest first. */
static void make_room(rs_node *node) {
    while (node->kept_sent + node->kept_received > RS_KEPT) {
        if (node->kept_sent >= node->kept_received) {
            rs_transfer *t = RS_HOLDER(rs_transfer, listed, node->sent.next);
            t->free(node, t);
        } else {
            rs_transfer *t = RS_HOLDER(rs_transfer, listed, node->received.next);
            t->free(node, t);
        }
    }
}

static uint32_t free_slot(rs_node *node) {
    for (uint32_t i = 0; i < node->slot_count; i++) {
        uint32_t slot = (node->next_slot + i) % node->slot_count;
        if (!node->slots[slot])
            return slot;
    }
    return node->slot_count;
}

rs_status rs_enter(rs_node *node, rs_transfer *t) {
    if (node->live >= node->config.max_transfers)
        return RS_ERR_LIMIT;
    make_room(node);
    uint32_t slot = free_slot(node);
    if (slot == node->slot_count)
        return RS_ERR_LIMIT;
    if (rs_timers_reserve(&node->timers, &node->allocator, node->timer_count + 1) != RS_OK)
        return RS_ERR_MEMORY;
    if (t->sending && rs_timers_reserve(&node->data_timers, &node->allocator, node->slot_count) != RS_OK)
        return RS_ERR_MEMORY;
    if (rs_events_reserve(node, t->reserved_events) != RS_OK)
        return RS_ERR_MEMORY;
    node->timer_count++;
    node->live++;
    rs_list_init(&t->in_acking);
    rs_list_init(&t->in_mending);
    node->slots[slot] = t;
    node->next_slot = (slot + 1) % node->slot_count;
    if (++node->slot_generation[slot] == 0)
        node->slot_generation[slot] = 1;
    t->id = (uint32_t)node->slot_generation[slot] << 16 | slot;
    rs_list_init(&t->hashed);
    rs_list_init(&t->by_nonce);
    rs_list_init(&t->listed);
    rs_list_append(&node->nonce_buckets[nonce_bucket(node, t->nonce)], &t->by_nonce);
    rs_list_append(&node->transfer_buckets[object_bucket(node, &t->object, t->sending)], &t->hashed);
    rs_list_append(t->sending ? &node->sending : &node->receiving, &t->listed);
    return RS_OK;
}

void rs_retire(rs_node *node, rs_transfer *t) {
    node->live--;
    if (t->sending)
        node->kept_sent++;
    else
        node->kept_received++;
    rs_list_append(t->sending ? &node->sent : &node->received, &t->listed);
}

void rs_leave(rs_node *node, rs_transfer *t) {
    rs_timer_set(&node->timers, &t->timer, RS_NEVER);
    rs_list_remove(&t->hashed);
    rs_list_remove(&t->by_nonce);
    rs_list_remove(&t->listed);
    node->slots[t->id & 0xffff] = NULL;
    node->timer_count--;
    rs_events_release(node, t->reserved_events);
    if (!rs_is_finished(t))
        node->live--;
    else if (t->sending)
        node->kept_sent--;
    else
        node->kept_received--;
}

rs_transfer *rs_by_id(const rs_node *node, rs_xfer id) {
    uint32_t slot = id & 0xffff;
    if (slot >= node->slot_count || !node->slots[slot] || node->slots[slot]->id != id)
        return NULL;
    return node->slots[slot];
}

rs_status rs_send_nonce(const rs_node *node, rs_xfer xfer, uint64_t *nonce) {
    const rs_transfer *t = rs_by_id(node, xfer);
    if (!t || !t->sending || rs_is_finished(t))
        return RS_ERR_UNKNOWN;
    *nonce = t->nonce;
    return RS_OK;
}

static rs_transfer *find(const rs_node *node, const rs_object_id *object, bool sending) {
    const rs_list *bucket = &node->transfer_buckets[object_bucket(node, object, sending)];
    for (rs_list *at = bucket->next; at != bucket; at = at->next) {
        rs_transfer *t = RS_HOLDER(rs_transfer, hashed, at);
        if (t->sending == sending && t->object.data == object->data && memcmp(t->object.app, object->app, 16) == 0)
            return t;
    }
    return NULL;
}

rs_transfer *rs_find_nonce(const rs_node *node, uint64_t nonce, bool sending) {
    const rs_list *bucket = &node->nonce_buckets[nonce_bucket(node, nonce)];
    for (rs_list *at = bucket->next; at != bucket; at = at->next) {
        rs_transfer *t = RS_HOLDER(rs_transfer, by_nonce, at);
        if (t->sending == sending && t->nonce == nonce)
            return t;
    }
    return NULL;
}

rs_sending *rs_find_sending(const rs_node *node, const rs_object_id *object) {
    return (rs_sending *)find(node, object, true);
}

rs_receiving *rs_find_receiving(const rs_node *node, const rs_object_id *object) {
    return (rs_receiving *)find(node, object, false);
}

/* -------------------------------------------------------------------------------------------- who gives its place */

static bool gives_place(const rs_receiving *x) {
    return x->state == RS_RX_OFFERED || x->state == RS_RX_RECEIVING;
}

/* Whose word it is that it comes: who carries may have made up its sender. */
static rs_peer_state *announcer(const rs_receiving *x) {
    return x->link.via ? x->link.via : x->link.peer;
}

/* No peer keeps others out by announcing objects: while there are no places, the peer that has the most gives one to
 * any that would still have fewer with it. Of its objects the one goes of which the least is here, none of which a
 * MiB came; of those that are alike the oldest. */
rs_receiving *rs_gives_place(const rs_node *node, const rs_peer_state *newcomer) {
    if (node->live < node->config.max_transfers)
        return NULL;
    uint32_t own = 0;
    for (rs_list *at = node->sending.next; at != &node->sending; at = at->next)
        own++;
    for (rs_list *at = node->receiving.next; at != &node->receiving; at = at->next)
        announcer((rs_receiving *)RS_HOLDER(rs_transfer, listed, at))->announced = 0;
    const rs_peer_state *most = NULL;
    for (rs_list *at = node->receiving.next; at != &node->receiving; at = at->next) {
        rs_peer_state *p = announcer((rs_receiving *)RS_HOLDER(rs_transfer, listed, at));
        p->announced++;
        if (!most || p->announced > most->announced)
            most = p;
    }
    uint32_t fewer = newcomer ? 0 : own;
    for (rs_list *at = node->receiving.next; at != &node->receiving && newcomer; at = at->next)
        fewer += announcer((rs_receiving *)RS_HOLDER(rs_transfer, listed, at)) == newcomer;
    if (!most || most->announced <= fewer + 1)
        return NULL;
    rs_receiving *least = NULL;
    for (rs_list *at = node->receiving.next; at != &node->receiving; at = at->next) {
        rs_receiving *x = (rs_receiving *)RS_HOLDER(rs_transfer, listed, at);
        if (announcer(x) == most && gives_place(x) && x->stats.bytes_present < PLACE_KEPT &&
            (!least || x->stats.bytes_present < least->stats.bytes_present))
            least = x;
    }
    return least;
}
