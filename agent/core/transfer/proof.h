/* A receiver to whom another one carries (carriers.h) has no connection to the sender, and each might be anybody. By a
 * datagram it asks the sender itself, at the address where that is known to be, what it is being sent; the answer has
 * the number that was asked with, which nobody else saw. So what the carrier said is true, or the sender is asked by a
 * connection and what the carrier began starts over. And the answer has a number that only this receiver gets, at its
 * own address: by that the sender knows its later datagrams. docs/feedback.md, "Carried messages". */
#ifndef RS_CORE_TRANSFER_PROOF_H
#define RS_CORE_TRANSFER_PROOF_H

#include "core/transfer/state.h"

/* ---- at a receiver (receiver.c) */
/* It was opened by another one's word. It is proven once accepted; until then nothing that is no good news is said. */
void rs_proof_begin(rs_receiving *x);
/* The sender is to be asked within that time from now; sooner if it was to be sooner. True: its timer is to be set. */
bool rs_proof_wait(rs_node *node, rs_time now, rs_receiving *x, rs_time within);
bool rs_proof_accepted(rs_node *node, rs_time now, rs_receiving *x);
/* How many there are is known now. */
bool rs_proof_spread(rs_node *node, rs_time now, rs_receiving *x);
/* It was asked in vain, and is by a connection that has not come up: there may be no such sender. */
bool rs_proof_unanswered(const rs_receiving *x);
/* A digest that was to follow came by who carries. */
bool rs_proof_digest(rs_node *node, rs_time now, rs_receiving *x, const rs_digest *digest);
/* It is due. True: it is asked by a datagram now; false: by a connection. */
bool rs_proof_ask(rs_node *node, rs_time now, rs_receiving *x);
/* What the sender says by its own connection is what is known here; a digest that is known here only is not. */
bool rs_proof_agrees(const rs_receiving *x, const rs_message *open);
/* What it waits for no more, as it is true. */
rs_proof_of_sender rs_proof_end(rs_receiving *x);
typedef enum { RS_TOLD_NO, RS_TOLD_NOTHING, RS_TOLD_TRUE, RS_TOLD_FALSE } rs_told_what;
/* What a datagram says: it is no answer; it proves nothing; what is known is true; is not. */
rs_told_what rs_proof_told(rs_time now, rs_receiving *x, const rs_packet_in *packet);
/* What it says by a datagram; 0: that cannot be said so. */
uint16_t rs_proof_say(const rs_receiving *x, const rs_message *m, uint8_t *out);

/* ---- at a sender */
/* A datagram of a receiver without a connection: what it says, and whether its own number is with that. False: it is
 * none. */
bool rs_proof_said(const rs_node *node, rs_recipient *r, const rs_packet_in *packet, rs_message *m, bool *itself,
                   bool *asks);
/* The answer to who asked, by the OPEN that it would be told; 0: it needs a connection. */
uint16_t rs_proof_answer(const rs_node *node, const rs_recipient *r, const rs_message *open, uint8_t *out);

#endif
