/* When a partial object is gone on with: soon after the transfer broke off, then at growing intervals, for a day. */
#ifndef RS_PIECES_RETRY_H
#define RS_PIECES_RETRY_H

#include "daemon/loop.h"

#define RS_RETRY_FIRST (500 * RS_MILLISECOND)
#define RS_RETRY_MOST (60 * RS_SECOND) /* between two tries */
#define RS_RETRY_BOUND (24 * 3600 * RS_SECOND)

typedef struct {
    rs_time first; /* it became partial then */
    rs_time at;    /* the next try */
    rs_time gap;
} rs_retry;

static inline rs_retry rs_retry_begin(rs_time now) {
    return (rs_retry){.first = now, .at = now + RS_RETRY_FIRST, .gap = RS_RETRY_FIRST};
}

static inline bool rs_retry_due(const rs_retry *r, rs_time now) {
    return now >= r->at && now - r->first <= RS_RETRY_BOUND;
}

static inline void rs_retry_tried(rs_retry *r, rs_time now) {
    r->gap = r->gap < RS_RETRY_MOST / 2 ? 2 * r->gap : RS_RETRY_MOST;
    r->at = now + r->gap;
}

#endif
