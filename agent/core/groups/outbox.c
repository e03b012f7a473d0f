#include "core/groups/outbox.h"

#include "core/groups/deliver.h"

rs_gm_small *rs_gm_small_new(rs_messages *node) {
    rs_gm_small *small;
    if (!rs_list_empty(&node->smalls_free))
        small = RS_HOLDER(rs_gm_small, order, node->smalls_free.next);
    else {
        small = node->smalls_made < RS_GM_SMALLS ? rs_memory_take(&node->allocator, sizeof *small) : NULL;
        if (!small)
            return NULL;
        node->smalls_made++;
        rs_list_init(&small->order);
    }
    small->peer = RS_NO_PEER;
    small->group = RS_NO_GROUP;
    rs_list_append(&node->smalls, &small->order);
    return small;
}

void rs_gm_small_to_peer(rs_gm_small *small, rs_peer peer, uint32_t length) {
    small->channel = RS_CH_PEER_DATAGRAM;
    small->peer = peer;
    small->length = length;
    rs_gm_seal(small->bytes, length);
}

void rs_gm_small_to_group(rs_gm_small *small, rs_group channel, uint32_t length) {
    small->channel = RS_CH_GROUP;
    small->group = channel;
    small->length = length;
    rs_gm_seal(small->bytes, length);
}

bool rs_gm_poll_small(rs_messages *node, rs_messages_out *out) {
    if (rs_list_empty(&node->smalls))
        return false;
    rs_gm_small *small = RS_HOLDER(rs_gm_small, order, node->smalls.next);
    *out = (rs_messages_out){.channel = small->channel, .peer = small->peer, .group = small->group, .piece_count = 1};
    out->piece[0].bytes = small->bytes;
    out->piece[0].length = small->length;
    rs_list_append(&node->handed_smalls, &small->order);
    return true;
}

void rs_gm_take_back(rs_messages *node) {
    while (!rs_list_empty(&node->handed_smalls))
        rs_list_append(&node->smalls_free, node->handed_smalls.next);
    while (!rs_list_empty(&node->handed_assemblies))
        rs_gm_assembly_free(node, RS_HOLDER(rs_gm_assembly, by_age, node->handed_assemblies.next));
    for (uint32_t i = 0; i < node->engine_count; i++)
        if (node->engines[i]->take_back)
            node->engines[i]->take_back(node->engine_own[i]);
}

void rs_gm_smalls_free(rs_messages *node) {
    rs_list *lists[] = {&node->smalls, &node->smalls_free};
    for (uint32_t i = 0; i < 2; i++)
        while (!rs_list_empty(lists[i])) {
            rs_gm_small *small = RS_HOLDER(rs_gm_small, order, lists[i]->next);
            rs_list_remove(&small->order);
            rs_memory_give(&node->allocator, small);
        }
}
