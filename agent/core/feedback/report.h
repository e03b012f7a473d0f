/* Datagrams between receivers, and from those who collect reports to the sender (docs/protocol.md, "Collected
 * reports"). Decoders take exactly what encoders make. */
#ifndef RS_CORE_FEEDBACK_REPORT_H
#define RS_CORE_FEEDBACK_REPORT_H

#include "core/base/ranges.h"
#include "core/base/types.h"
#include "core/base/wire.h"

/* Of the wire. */
#define RS_REPORT_BYTES 112
#define RS_REQUEST_BYTES 24
#define RS_REQUEST_RANGES 24u /* of one request (a bound) */

enum {
    RS_REPORT_OWN = 1,     /* What the reporter saw itself is told: `highest` to `waited`. */
    RS_REPORT_LEAST = 2,   /* Somebody it speaks for is waited for: `least` is told. */
    RS_REPORT_DONE = 4,    /* Nobody it speaks for is waited for any more. */
    RS_REPORT_COMPLETE = 8 /* Nor does anybody of them miss anything. */
};

typedef struct {
    uint64_t nonce;     /* The transfer's. */
    uint32_t session;   /* The session that it is about. */
    uint32_t flags;     /* RS_REPORT_* bits. */
    uint32_t receivers; /* It speaks for so many, itself included. */
    /* Of the reporter itself, as in RATE. */
    uint64_t highest, received, repairs, dropped, at, waited;
    /* Of all that it speaks for. */
    uint64_t share_bps; /* The least. */
    uint64_t least;     /* The newest sn of the one that is furthest behind, */
    uint32_t least_of;  /* and its address; 0: the reporter's own. */
    uint32_t lossy_ppm; /* The worst loss, */
    uint32_t lossy_of;  /* and whose; 0: the reporter's own. */
    uint32_t silent;    /* The address of one that is not heard; 0: nobody. */
} rs_report;

/* Fragments that the receiver misses and asks of the one it reports to. */
typedef struct {
    uint64_t nonce;                    /* The transfer's. */
    uint32_t session;                  /* The session that it is about. */
    uint32_t count;                    /* Length of `range`. */
    rs_range range[RS_REQUEST_RANGES]; /* Ascending, without overlap. */
} rs_repair_request;

size_t rs_report_encode(const rs_report *report, uint8_t *out); /* RS_REPORT_BYTES */
bool rs_report_decode(const uint8_t *bytes, size_t length, rs_report *out);
size_t rs_request_encode(const rs_repair_request *request, uint8_t *out); /* at most RS_HEADER_MAX */
bool rs_request_decode(const uint8_t *bytes, size_t length, rs_repair_request *out);

/* By which the two ends of a said message know each other (transfer/proof.h); 0: none. */
typedef struct {
    uint64_t token;     /* The sender's, to this receiver. */
    uint64_t challenge; /* The sender answers it. */
} rs_said_proof;

/* What a receiver without a connection to the sender says to it: RATE, DATA_RCVD that all is here, or PING, which asks
 * for TOLD. */
size_t rs_said_encode(const rs_message *message, const rs_said_proof *proof,
                      uint8_t *out); /* at most RS_HEADER_MAX; 0: it is not said so */
bool rs_said_decode(const uint8_t *bytes, size_t length, rs_message *out, rs_said_proof *proof);

#define RS_TOLD_BYTES 48 /* of the wire */

/* The sender's answer. */
typedef struct {
    uint64_t nonce;        /* The transfer's. */
    uint32_t session;      /* The session that it is about. */
    uint64_t challenge;    /* What was asked with. */
    uint64_t token;        /* For that receiver alone. */
    uint64_t print;        /* A hash of what OPEN says, */
    uint64_t digest_print; /* and of its digest; 0: that follows. */
} rs_told;

size_t rs_told_encode(const rs_told *told, uint8_t *out); /* RS_TOLD_BYTES */
bool rs_told_decode(const uint8_t *bytes, size_t length, rs_told *out);

#endif
