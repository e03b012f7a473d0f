/* The sender's side of collected reports (docs/feedback.md). Its *speakers* are the receivers whose reports it reads:
 * all of them while they are few; of many those at the top of the tree, and a few that hold the others back, which
 * speak for themselves. Whatever it does for a report, a packet or a repair looks at speakers only. */
#ifndef RS_CORE_REPUBLIC_TREE_SENDER_H
#define RS_CORE_REPUBLIC_TREE_SENDER_H

#include "core/transfer/state.h"

#define RS_SPEAKERS_MOST 32u

/* A path was granted: whether and by which tree the session's receivers report. */
void rs_tree_begin(rs_node *node, rs_time now, rs_sending *x);
bool rs_tree_in_use(const rs_sending *x);
uint32_t rs_speaker_count(const rs_sending *x);
uint32_t rs_speakers_most(const rs_sending *x); /* their places are below */
rs_recipient *rs_speaker(const rs_sending *x, uint32_t place);
uint32_t rs_speaker_place(const rs_sending *x, const rs_recipient *r); /* of one that speaks */
bool rs_tree_unknown(const rs_sending *x, const rs_recipient *r); /* its agent knows no tree: RATE tells its place */
bool rs_speaks(const rs_sending *x, const rs_recipient *r);
uint64_t rs_tree_room(const rs_sending *x, const rs_recipient *r); /* r->room, or the least that it speaks for */

void rs_tree_accepted(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r);
/* It is done, failed, out of reach, or off the data channel. */
void rs_tree_on_receiver_removed(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r);
bool rs_tree_tell(const rs_node *node, const rs_sending *x, const rs_recipient *r, uint32_t what, rs_message *m);
rs_rx_verdict rs_tree_report(rs_node *node, rs_time now, rs_sending *x, const rs_packet_in *packet);
/* RATE of one that is no speaker: does it agree with what was said for it? `pos`, and losses, are what it says. */
void rs_tree_sample(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r, uint64_t pos, uint32_t lossy_ppm);
bool rs_tree_silent(const rs_sending *x, const rs_recipient *r, rs_time now); /* a speaker holds nobody back any more */
void rs_tree_heard(const rs_sending *x, const rs_recipient *r);
bool rs_tree_asks_twice(const rs_sending *x, bool asked); /* a packet asks for reports like the one before it */
void rs_tree_sender_free(rs_node *node, rs_sending *x);

#endif
