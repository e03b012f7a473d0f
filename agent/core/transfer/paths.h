/* Paths, phases and sessions of a sending transfer, and who takes part in them. */
#ifndef RS_CORE_TRANSFER_PATHS_H
#define RS_CORE_TRANSFER_PATHS_H

#include "core/transfer/state.h"

/* ---- paths, phases, sessions */
void rs_sender_phase(rs_node *node, rs_sending *x, rs_phase phase);
void rs_sender_want_path(rs_node *node, rs_time now, rs_sending *x);
void rs_sender_open_members(rs_node *node, rs_time now, rs_sending *x); /* OPEN of a session that begins */
void rs_sender_path_done(rs_node *node, rs_time now, rs_sending *x);
/* What is left goes to each receiver by patches; `cause`: why, for a person. */
void rs_sender_unicast(rs_node *node, rs_time now, rs_sending *x, const char *cause);
/* There is no path for those it was wanted for: they fail with that cause, others want theirs. */
void rs_sender_no_path(rs_node *node, rs_time now, rs_sending *x, const char *cause);

/* ---- who comes to a session, and who leaves */
void rs_sender_join(rs_node *node, rs_time now, rs_sending *x); /* it begins */
void rs_sender_demote(rs_node *node, rs_time now, rs_sending *x,
                      rs_recipient *r); /* finished by unicast, from now on */
/* The present session's path failed, or (not `held`) the one that is wanted: whom it was for is finished by unicast. */
void rs_sender_part_failed(rs_node *node, rs_time now, rs_sending *x, bool held, const char *cause);

#endif
