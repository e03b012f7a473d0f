/* When the next data packet may go: how far the data channel runs ahead of its receivers, and whose turn it is. */
#ifndef RS_CORE_REPUBLIC_WINDOW_H
#define RS_CORE_REPUBLIC_WINDOW_H

#include "core/republic/state.h"

/* Who reports nothing for so long holds nobody back, patches are for it: however slow packets go, a report was asked
 * for since. */
#define RS_SILENT RS_SENT_TIMES_MOST
/* So much is under way besides what round trips take: three pauses of a host (RS_HOST_PAUSE), and a little. */
#define RS_AHEAD (20 * RS_MS)

void rs_republic_schedule(rs_node *node, rs_time now, rs_sending *x); /* among the ready, or its timer is set */
void rs_window_start(rs_sending *x, rs_time now);                     /* high rate begins */
uint64_t rs_window_room(const rs_sending *x, const rs_recipient *r);  /* half of what may wait at it, in packets */
uint64_t rs_window_of(const rs_sending *x, const rs_recipient *r);    /* packets that may be under way to it */
void rs_window_seen(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, uint64_t pos);
void rs_window_recompute(rs_node *node, rs_time now, rs_sending *x); /* others count than before */
/* It is done, failed or out of reach. */
void rs_window_on_receiver_removed(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r);

/* A circuit carries nobody else, and the manager told its rate: there is nothing to find, and what takes longer on the
 * way waits in a busy host. Window and losses still hold the sender back where receivers are slower. */
static inline bool rs_path_rate_is_known(const rs_sending *x) {
    return x->grant.kind == RS_PATH_CIRCUIT && x->grant.rate_bps > 0;
}

#endif
