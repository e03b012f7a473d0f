/* The application's buffer in front of the protocol (Ricochet, Sec. 4.2.6). */
#include <string.h>

#include "core/groups/state.h"

bool rs_messages_intake(rs_messages *node, rs_peer from, const uint8_t *bytes, size_t length) {
    if (length > node->config.packet_bytes) {
        node->stats.bad++;
        return true;
    }
    bool full = node->intake_count == node->config.intake_packets;
    uint32_t slot;
    if (full) {
        uint32_t victim = rs_gm_random_below(node, node->intake_count);
        slot = node->intake_order[victim];
        memmove(node->intake_order + victim, node->intake_order + victim + 1,
                (node->intake_count - victim - 1) * sizeof *node->intake_order);
        node->intake_count--;
        node->stats.intake_dropped++;
    } else
        slot = node->intake_order[node->intake_count]; /* the order is a permutation: behind the count are free ones */
    node->intake_order[node->intake_count++] = slot;
    node->intake_length[slot] = (uint32_t)length;
    node->intake_from[slot] = from;
    memcpy(node->intake + (size_t)slot * node->config.packet_bytes, bytes, length);
    return !full;
}

uint32_t rs_messages_work(rs_messages *node, rs_time now, uint32_t most) {
    uint32_t done = 0;
    for (; done < most && done < node->intake_count; done++) {
        uint32_t slot = node->intake_order[done];
        rs_messages_receive(node, now, node->intake_from[slot], node->intake + (size_t)slot * node->config.packet_bytes,
                            node->intake_length[slot]);
    }
    /* Those that were worked on are free: they go behind those that wait. */
    for (uint32_t i = 0; i < done; i++)
        node->intake_free[i] = node->intake_order[i];
    node->intake_count -= done;
    memmove(node->intake_order, node->intake_order + done, node->intake_count * sizeof *node->intake_order);
    memcpy(node->intake_order + node->intake_count, node->intake_free, done * sizeof *node->intake_order);
    return done;
}
