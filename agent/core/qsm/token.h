/* Tokens and loss recovery (Sec. 2.3.2, 2.3.3): a region view's timers and messages between its nodes. */
#ifndef RS_CORE_QSM_TOKEN_H
#define RS_CORE_QSM_TOKEN_H

#include "core/qsm/state.h"

bool rs_qsm_receive_token(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
bool rs_qsm_receive_token_ack(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
bool rs_qsm_receive_pull(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
bool rs_qsm_receive_position(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
/* Something is not stable: the leader makes tokens, and others see to it that it does. */
void rs_qsm_token_wake(rs_qsm_view *view, rs_time now);
bool rs_qsm_token_idle(const rs_qsm_view *view);
void rs_qsm_token_timeout(rs_qsm_view *view, rs_time now);
rs_time rs_qsm_token_deadline(const rs_qsm_view *view);
void rs_qsm_tell_position(rs_qsm_view *view, rs_time now, uint32_t place, rs_peer sender, uint32_t incarnation,
                          uint64_t sn);

#endif
