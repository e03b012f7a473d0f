#include "daemon/groups/drain.h"

void rs_drain_looked(rs_drain *drain, rs_drain_socket socket, uint32_t count, bool all) {
    drain->read += count;
    drain->left[socket] = !all;
}

bool rs_drain_may_run(rs_drain *drain) {
    bool left = drain->left[RS_DRAIN_MULTICAST] || drain->left[RS_DRAIN_PEERS];
    drain->left[RS_DRAIN_MULTICAST] = drain->left[RS_DRAIN_PEERS] = false;
    if (left && !drain->waiting) {
        drain->waiting = true;
        drain->from = drain->read;
    }
    if (left && drain->read - drain->from < RS_DRAIN_MOST)
        return false;
    drain->waiting = false;
    return true;
}
