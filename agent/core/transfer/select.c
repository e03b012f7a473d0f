/* Which engine a transfer goes by, and what comes and goes for engines that talk between receivers. */
#include "core/transfer/engine.h"

#define VIEW_CHILDREN 4096

const rs_engine *rs_engine_of(const rs_node *node, uint32_t id) {
    for (uint32_t i = 0; i < node->engine_count; i++)
        if (node->engines[i]->id == id)
            return node->engines[i];
    return NULL;
}

void rs_engine_take(rs_transfer *t, const rs_engine *engine, void *own) {
    t->owner = own ? engine : NULL;
    t->own = own;
}

void rs_engine_drop(rs_node *node, rs_transfer *t) {
    if (t->own)
        t->owner->free(node, t);
    rs_list_remove(&t->in_acking);
    rs_list_remove(&t->in_mending);
    rs_engine_take(t, NULL, NULL);
    t->engine = node->engines[0];
}

void rs_engine_notify(rs_node *node, rs_time now, rs_transfer *t, rs_news_kind what) {
    const rs_news news = {.what = what};
    if (t->engine->notify)
        t->engine->notify(node, now, t, &news);
}

void rs_engine_stop(rs_node *node, rs_transfer *t) {
    if (t->engine->stop)
        t->engine->stop(node, t);
}

void rs_engine_stats(const rs_node *node, const rs_transfer *t, rs_xfer_stats *out) {
    const rs_engine *engine = t->own ? t->owner : t->engine;
    out->protocol = (rs_protocol)engine->id;
    if (engine->stats)
        engine->stats(node, t, out);
}

bool rs_poll_acks(rs_node *node, rs_time now, rs_packet_out *out) {
    while (!rs_list_empty(&node->acking)) {
        rs_transfer *t = RS_HOLDER(rs_transfer, in_acking, node->acking.next);
        if (t->engine->poll(node, now, t, RS_TURN_ACK, out))
            return true;
    }
    return false;
}

/* One repair to another receiver; transfers take turns. */
bool rs_poll_repairs(rs_node *node, rs_time now, rs_packet_out *out) {
    while (!rs_list_empty(&node->mending)) {
        rs_transfer *t = RS_HOLDER(rs_transfer, in_mending, node->mending.next);
        if (t->engine->poll(node, now, t, RS_TURN_REPAIR, out)) {
            rs_list_append(&node->mending, &t->in_mending);
            return true;
        }
        rs_list_remove(&t->in_mending);
        rs_receiver_arm(node, (rs_receiving *)t);
    }
    return false;
}

rs_rx_result rs_peer_datagram(rs_node *node, rs_time now, const rs_packet_in *packet) {
    uint64_t nonce;
    if (packet->peer == RS_NO_PEER || !rs_wire_nonce(packet->header, packet->header_length, &nonce))
        return (rs_rx_result){.verdict = RS_RX_BAD};
    rs_receiving *in = rs_receiving_of_packet(node, nonce);
    if (in && in->state != RS_RX_OFFERED && in->t.engine->peer_datagram)
        return in->t.engine->peer_datagram(node, now, &in->t, packet);
    rs_sending *out = (rs_sending *)rs_find_nonce(node, nonce, true);
    if (out && out->t.engine->peer_datagram && rs_recipient_of(out, packet->peer))
        return out->t.engine->peer_datagram(node, now, &out->t, packet);
    return (rs_rx_result){.verdict = RS_RX_UNKNOWN};
}

static bool is_sane(const rs_view *v) {
    if (v->child_count > VIEW_CHILDREN || (v->child_count && !v->children))
        return false;
    return v->proxy.predecessor == RS_NO_PEER || v->leaf.predecessor != RS_NO_PEER;
}

/* A sender may be told its view before its path, so before it is known by which engine it goes: the first that takes
 * views has it, and lets it go if another one begins. */
static const rs_engine *of_views(const rs_node *node) {
    for (uint32_t i = 0; i < node->engine_count; i++)
        if (node->engines[i]->view)
            return node->engines[i];
    return NULL;
}

rs_status rs_set_view(rs_node *node, rs_time now, rs_xfer xfer, const rs_view *view) {
    rs_transfer *t = rs_by_id(node, xfer);
    if (!t || t->finished)
        return RS_ERR_UNKNOWN;
    if (!is_sane(view))
        return RS_ERR_INVALID;
    const rs_engine *engine = t->engine->view || !t->sending ? t->engine : of_views(node);
    return engine && engine->view ? engine->view(node, now, t, view) : RS_ERR_STATE;
}
