/* The receivers of a sending transfer: found by their peer; which of them a session is for. */
#ifndef RS_CORE_TRANSFER_MEMBERS_H
#define RS_CORE_TRANSFER_MEMBERS_H

#include "core/transfer/state.h"

rs_recipient *rs_recipient_of(const rs_sending *x, rs_peer peer);
void rs_recipient_index(rs_sending *x, uint32_t place); /* it can be found from now on */

bool rs_sender_lacks(const rs_sending *x, const rs_recipient *r); /* a session more, at least */
bool rs_sender_others(const rs_sending *x);                       /* somebody lacks one who is not in the present one */
bool rs_sender_choose(rs_sending *x);                             /* whom the next path is for; false: nobody */
bool rs_sender_served(rs_sending *x, const rs_path_grant *grant); /* of these, the grant is for some; false: none */
bool rs_sender_has_members(const rs_sending *x);                  /* a session that begins now */
void rs_sender_session_sent(rs_sending *x);                       /* it is over */
uint64_t rs_sender_sent(const rs_sending *x); /* distinct fragments, the mean of what was sent to each receiver */
/* Counts whom the mean is of, once it is settled who is in a session. */
void rs_sender_count(rs_sending *x);
void rs_sender_stats(const rs_node *node, const rs_sending *x, rs_xfer_stats *out);
void rs_sender_failed(rs_sending *x, rs_recipient *r); /* it counts no more */
/* Fragments [from, to) are to be patched, besides what is already. False: nothing is, or out of memory, and it will
 * ask again. */
bool rs_sender_wants(rs_node *node, rs_recipient *r, uint64_t from, uint64_t to);
void rs_sender_wants_nothing(rs_node *node, rs_recipient *r);

#endif
