#include "core/feedback/report.h"

#include "core/base/bytes.h"

enum { KIND_REPORT = 1, KIND_REQUEST = 2, KIND_SAID = 3, KIND_TOLD = 4 };

/* Of the wire. */
#define PPM_MOST 1000000u
#define RECEIVERS_MOST (1u << 24)
#define SAID_HEAD 36u

_Static_assert(RS_REQUEST_BYTES + 16 * RS_REQUEST_RANGES <= RS_HEADER_MAX, "a request fits a header");

static uint8_t *put_common(uint8_t *to, uint8_t kind, uint32_t session, uint64_t nonce) {
    to = rs_le_put(to, RS_REPORT_MAGIC, 2);
    to = rs_le_put(to, RS_WIRE_VERSION, 1);
    to = rs_le_put(to, kind, 1);
    to = rs_le_put(to, session, 4);
    return rs_le_put(to, nonce, 8);
}

static bool get_common(const uint8_t **from, uint8_t kind, uint32_t *session, uint64_t *nonce) {
    bool ours = rs_le_take(from, 2) == RS_REPORT_MAGIC;
    ours &= rs_le_take(from, 1) == RS_WIRE_VERSION;
    ours &= rs_le_take(from, 1) == kind;
    *session = (uint32_t)rs_le_take(from, 4);
    *nonce = rs_le_take(from, 8);
    return ours && *nonce != 0 && *session < RS_SESSIONS_MAX;
}

size_t rs_report_encode(const rs_report *r, uint8_t *out) {
    uint8_t *to = put_common(out, KIND_REPORT, r->session, r->nonce);
    const uint64_t longs[] = {r->highest, r->received, r->repairs,   r->dropped,
                              r->at,      r->waited,   r->share_bps, r->least};
    const uint32_t shorts[] = {r->flags, r->receivers, r->least_of, r->lossy_ppm, r->lossy_of, r->silent, 0, 0};
    for (size_t i = 0; i < sizeof longs / sizeof longs[0]; i++)
        to = rs_le_put(to, longs[i], 8);
    for (size_t i = 0; i < sizeof shorts / sizeof shorts[0]; i++)
        to = rs_le_put(to, shorts[i], 4);
    return (size_t)(to - out);
}

/* Bounds as RATE has them: sums of these do not overflow. */
static bool is_sane(const rs_report *r) {
    const uint32_t known = RS_REPORT_OWN | RS_REPORT_LEAST | RS_REPORT_DONE | RS_REPORT_COMPLETE;
    bool waits = (r->flags & RS_REPORT_LEAST) != 0, done = (r->flags & RS_REPORT_DONE) != 0;
    return (r->flags & ~known) == 0 && !(waits && done) && (done || !(r->flags & RS_REPORT_COMPLETE)) &&
           r->receivers > 0 && r->receivers <= RECEIVERS_MOST && r->highest < RS_STREAM_FRAGMENTS &&
           r->least < RS_STREAM_FRAGMENTS && r->received <= RS_RATE_COUNT_MAX && r->repairs <= RS_RATE_COUNT_MAX &&
           r->dropped <= RS_RATE_COUNT_MAX && r->at <= RS_RATE_AT_MAX && r->waited <= RS_RATE_WAITED_MAX &&
           r->share_bps <= RS_RATE_BPS_MAX && r->lossy_ppm <= PPM_MOST;
}

bool rs_report_decode(const uint8_t *bytes, size_t length, rs_report *r) {
    if (length != RS_REPORT_BYTES || !get_common(&bytes, KIND_REPORT, &r->session, &r->nonce))
        return false;
    uint64_t *longs[] = {&r->highest, &r->received, &r->repairs,   &r->dropped,
                         &r->at,      &r->waited,   &r->share_bps, &r->least};
    uint32_t *shorts[] = {&r->flags, &r->receivers, &r->least_of, &r->lossy_ppm, &r->lossy_of, &r->silent};
    for (size_t i = 0; i < sizeof longs / sizeof longs[0]; i++)
        *longs[i] = rs_le_take(&bytes, 8);
    for (size_t i = 0; i < sizeof shorts / sizeof shorts[0]; i++)
        *shorts[i] = (uint32_t)rs_le_take(&bytes, 4);
    return rs_le_take(&bytes, 8) == 0 && is_sane(r);
}

size_t rs_request_encode(const rs_repair_request *r, uint8_t *out) {
    uint8_t *to = put_common(out, KIND_REQUEST, r->session, r->nonce);
    to = rs_le_put(to, r->count, 4);
    to = rs_le_put(to, 0, 4);
    for (uint32_t i = 0; i < r->count; i++) {
        to = rs_le_put(to, r->range[i].from, 8);
        to = rs_le_put(to, r->range[i].to, 8);
    }
    return (size_t)(to - out);
}

bool rs_request_decode(const uint8_t *bytes, size_t length, rs_repair_request *r) {
    if (length < RS_REQUEST_BYTES || !get_common(&bytes, KIND_REQUEST, &r->session, &r->nonce))
        return false;
    r->count = (uint32_t)rs_le_take(&bytes, 4);
    if (rs_le_take(&bytes, 4) != 0 || r->count == 0 || r->count > RS_REQUEST_RANGES ||
        length != RS_REQUEST_BYTES + 16 * (size_t)r->count)
        return false;
    for (uint32_t i = 0; i < r->count; i++) {
        r->range[i].from = rs_le_take(&bytes, 8);
        r->range[i].to = rs_le_take(&bytes, 8);
        if (r->range[i].from >= r->range[i].to || r->range[i].to > RS_STREAM_FRAGMENTS)
            return false;
    }
    return true;
}

static bool is_said(const rs_message *m) {
    return m->type == RS_MSG_RATE || (m->type == RS_MSG_PING && m->ping.token == 0) ||
           (m->type == RS_MSG_DATA_RCVD && m->data_rcvd.status == RS_RCVD_COMPLETE);
}

size_t rs_said_encode(const rs_message *m, const rs_said_proof *proof, uint8_t *out) {
    size_t length;
    if (!is_said(m) || m->session >= RS_SESSIONS_MAX ||
        !rs_wire_encode_fields(m, out + SAID_HEAD, RS_HEADER_MAX - SAID_HEAD, &length))
        return 0;
    uint8_t *to = rs_le_put(put_common(out, KIND_SAID, m->session, m->nonce), (uint64_t)m->type, 4);
    (void)rs_le_put(rs_le_put(to, proof->token, 8), proof->challenge, 8);
    return SAID_HEAD + length;
}

bool rs_said_decode(const uint8_t *bytes, size_t length, rs_message *m, rs_said_proof *proof) {
    uint32_t session;
    uint64_t nonce;
    if (length < SAID_HEAD || length > RS_HEADER_MAX || !get_common(&bytes, KIND_SAID, &session, &nonce))
        return false;
    uint64_t type = rs_le_take(&bytes, 4);
    proof->token = rs_le_take(&bytes, 8);
    proof->challenge = rs_le_take(&bytes, 8);
    return type <= UINT8_MAX && rs_wire_decode_fields((uint8_t)type, nonce, session, bytes, length - SAID_HEAD, m) &&
           is_said(m);
}

size_t rs_told_encode(const rs_told *told, uint8_t *out) {
    uint8_t *to = put_common(out, KIND_TOLD, told->session, told->nonce);
    const uint64_t longs[] = {told->challenge, told->token, told->print, told->digest_print};
    for (size_t i = 0; i < sizeof longs / sizeof longs[0]; i++)
        to = rs_le_put(to, longs[i], 8);
    return (size_t)(to - out);
}

bool rs_told_decode(const uint8_t *bytes, size_t length, rs_told *told) {
    if (length != RS_TOLD_BYTES || !get_common(&bytes, KIND_TOLD, &told->session, &told->nonce))
        return false;
    uint64_t *longs[] = {&told->challenge, &told->token, &told->print, &told->digest_print};
    for (size_t i = 0; i < sizeof longs / sizeof longs[0]; i++)
        *longs[i] = rs_le_take(&bytes, 8);
    return told->challenge != 0 && told->token != 0 && told->print != 0;
}
