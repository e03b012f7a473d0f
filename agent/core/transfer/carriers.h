/* Of many receivers some carry control messages between the sender and the others, each for those below it in the tree
 * of reports (docs/feedback.md, "Carried messages"): the sender has connections to these only. What a receiver is told,
 * and what it answers, is made and taken as if it had a connection of its own. */
#ifndef RS_CORE_TRANSFER_CARRIERS_H
#define RS_CORE_TRANSFER_CARRIERS_H

#include "core/transfer/state.h"

#define RS_CARRIERS_MOST 16u

typedef struct rs_carriers rs_carriers;

/* Who is carried to, by whom: places among the recipients. */
typedef struct {
    uint32_t carrier, member;
} rs_carried_pair;

/* A send to so many by that engine will have them, most likely. */
bool rs_carriers_likely(const rs_node *node, const rs_engine *engine, uint32_t receivers);
/* Connections come up, to those that will carry, while the manager looks for a path: if it is known where all are. */
void rs_carriers_connect(rs_node *node, rs_time now, rs_sending *x);
/* From now on. Who has a connection, or was opened before, is left out. Out of memory: all are. */
void rs_carriers_begin(rs_node *node, rs_time now, rs_sending *x, const rs_carried_pair *pairs, uint32_t count);
void rs_carriers_free(rs_node *node, rs_sending *x);
/* That receiver carries no more, if it did: others have connections of their own. */
void rs_carriers_lost(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r);
/* It has a connection of its own from now on; one is opened if something is to be said. */
void rs_carriers_leave(rs_node *node, rs_time now, rs_recipient *r);
/* What it is told, or answers, seems not to come through: it has a connection of its own, if not too many do so. */
void rs_carriers_doubt(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r);
/* It came from that receiver, of those it carries to: `next` names them one by one, from `*at` 0 on. NULL: no more. */
rs_recipient *rs_carriers_next(rs_time now, rs_sending *x, const rs_recipient *r, const rs_message *m, uint32_t *at);
/* CARRY_TO to it. */
bool rs_carriers_tell(const rs_node *node, const rs_sending *x, const rs_recipient *r, rs_message *m, bool *more);
/* rs_talk.carried of a recipient's link: one message to all that are told the same. */
bool rs_carriers_wrap(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what, rs_message *m,
                      rs_packet_out *out);
void rs_carriers_timeout(rs_node *node, rs_time now, rs_sending *x);

/* Of those kinds is what one that is carried to says to the sender by who carries. */
bool rs_carry_is_answer(uint8_t type);
/* Numbers as CARRY has them. False: that one is too far from the others. */
bool rs_carry_add(rs_message *m, uint32_t number);
void rs_carry_trim(rs_message *m); /* after the last one */
bool rs_carry_has(const rs_message *m, uint32_t number);

#endif
