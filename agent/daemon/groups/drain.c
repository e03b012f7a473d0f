#include "daemon/groups/drain.h"

void rs_drain_looked(rs_drain *drain, rs_drain_socket socket, uint32_t count, bool all, rs_time came) {
    drain->read += count;
    drain->left[socket] = !all;
    drain->came[socket] = came;
}

bool rs_drain_may_run(rs_drain *drain, rs_time now) {
    bool left = drain->left[RS_DRAIN_MULTICAST] || drain->left[RS_DRAIN_PEERS], behind = false;
    if (left && !drain->waiting) {
        drain->waiting = true;
        drain->since = now;
        drain->from = drain->read;
        drain->behind[RS_DRAIN_MULTICAST] = drain->behind[RS_DRAIN_PEERS] = true;
    }
    for (unsigned i = 0; i < RS_DRAIN_SOCKETS; i++) {
        drain->behind[i] &= drain->left[i] && drain->came[i] < drain->since;
        behind |= drain->behind[i];
        drain->left[i] = false;
        drain->came[i] = 0;
    }
    if (left && behind && drain->read - drain->from < RS_DRAIN_MOST)
        return false;
    drain->waiting = false;
    return true;
}
