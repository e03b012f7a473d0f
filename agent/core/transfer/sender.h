/* A sending transfer: opening; recipients done and failed, waits that end, connections up and down. */
#ifndef RS_CORE_TRANSFER_SENDER_H
#define RS_CORE_TRANSFER_SENDER_H

#include "core/transfer/state.h"

/* ---- what is said, and what comes in */
rs_rx_verdict rs_sender_message(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m);
bool rs_sender_too_many(rs_node *node, rs_time now, rs_recipient *r); /* patches: it was given up */
/* Fragments [from, to) go to it by unicast, as often as that is sane. */
void rs_sender_patch(rs_node *node, rs_time now, rs_recipient *r, uint64_t from, uint64_t to);

/* ---- open, settle, fail, watch */
void rs_sender_fail(rs_node *node, rs_time now, rs_recipient *r, bool tell, const char *cause);
void rs_sender_fail_all(rs_node *node, rs_time now, rs_sending *x, const char *cause);
void rs_sender_done(rs_node *node, rs_time now, rs_recipient *r, uint64_t patched, bool had_it);
void rs_sender_settle(rs_node *node, rs_time now, rs_sending *x); /* after recipients were done or failed */
void rs_sender_timeout(rs_node *node, rs_time now, rs_sending *x);
void rs_sender_arm(rs_node *node, rs_sending *x);
void rs_sender_free(rs_node *node, rs_transfer *t);
#endif
