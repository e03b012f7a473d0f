/* What is here of one sender's packets in one region view; the own partition's are cached for others (Sec. 2.2). */
#ifndef RS_CORE_QSM_STREAMS_H
#define RS_CORE_QSM_STREAMS_H

#include "core/qsm/state.h"

bool rs_qsm_receive_data(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
rs_qsm_stream *rs_qsm_stream_find(const rs_qsm_view *view, rs_peer sender);
/* NULL: the sender is not known, or runs with another incarnation, or out of memory. */
rs_qsm_stream *rs_qsm_stream_get(rs_qsm_view *view, rs_peer sender, uint32_t incarnation);
void rs_qsm_stream_free(rs_qsm_stream *stream);
bool rs_qsm_stream_has(const rs_qsm_stream *stream, uint64_t sn);
/* The last of the packets up to which all of the own partition's have come. */
uint64_t rs_qsm_stream_cached(const rs_qsm_stream *stream);
/* Of those in (from, to]. */
uint32_t rs_qsm_stream_missing(const rs_qsm_stream *stream, uint64_t from, uint64_t to);
void rs_qsm_stream_naks(const rs_qsm_stream *stream, rs_qsm_ranges *out);
void rs_qsm_stream_stable(rs_qsm_stream *stream, uint64_t stable);
/* rs_group_engine.soon. */
rs_message_group rs_qsm_data_soon(const void *of_node, uint32_t ahead, const uint8_t *bytes, size_t length);
/* Tokens come: what they bring not for long enough is lost. */
void rs_qsm_stream_tick(rs_qsm_stream *stream, rs_time elapsed);
/* NULL: it is not cached here. */
const rs_qsm_packet *rs_qsm_stream_packet(const rs_qsm_stream *stream, uint64_t sn);
bool rs_qsm_ranges_has(const rs_qsm_ranges *ranges, uint64_t q);
void rs_qsm_ranges_both(rs_qsm_ranges *into, const rs_qsm_ranges *other);
bool rs_qsm_is_unsettled(const rs_qsm_stream *stream);

#endif
