/* Messages between a server that fetches an object and one that has it, or pieces of it (docs/protocol.md): bytes only.
 * A connection is about one object. Integers are little-endian; each message has a head of RS_PIECE_HEAD bytes: magic
 * u16, version u8, type u8, length u32 of what follows. */
#ifndef RS_PIECES_WIRE_H
#define RS_PIECES_WIRE_H

#include "core/base/types.h"

#define RS_PIECE_HEAD 8u
#define RS_PIECE_BODY_MOST 32768u /* of all messages but PIECE */
#define RS_PIECE_NAME 64u         /* with its NUL */
#define RS_PIECE_TEXT 160u

typedef enum {
    RS_PIECE_ASK = 1, /* who fetches says which object */
    RS_PIECE_HAS,     /* it is here: what it is */
    RS_PIECE_NO,      /* it is not, or not any more: why */
    RS_PIECE_WANT_LEAVES,
    RS_PIECE_LEAVES,   /* digests of pieces, in order */
    RS_PIECE_WANT,     /* a piece */
    RS_PIECE_PIECE,    /* its bytes follow the number */
    RS_PIECE_HAVE,     /* pieces that are here now, as bits */
    RS_PIECE_PEER,     /* another server that fetches it, or to which it is being sent */
    RS_PIECE_RUNS,     /* it is being sent from here just now: where its packets can be heard */
    RS_PIECE_STREAM,   /* it is a continuing stream, of which this is kept here */
    RS_PIECE_WANT_RUN, /* fragments of it; of none: STREAM again */
    RS_PIECE_RUN,      /* their bytes */
    RS_PIECE_KEY       /* before RUNS, where packets are sealed: with what */
} rs_piece_type;

typedef struct rs_piece_message {
    uint8_t type;
    rs_object_id id; /* ASK */
    uint16_t port;   /* ASK, PEER: where that server gives pieces itself; 0: it does not. RUNS: of the data channel */
    char name[RS_PIECE_NAME]; /* ASK, PEER */
    uint64_t size;            /* HAS; STREAM: of all fragments, RS_STREAM: not known yet */
    rs_digest root;           /* HAS; length 0: it is not known there yet */
    bool complete;            /* HAS: all pieces are here; else HAVE says which */
    bool gone;                /* NO: asking again is of no use */
    char text[RS_PIECE_TEXT]; /* NO */
    uint32_t first, count;    /* LEAVES, HAVE: pieces from there on, so many; WANT, PIECE: first; WANT_RUN: count */
    uint32_t address;         /* PEER; RUNS: the group. IPv4, host order */
    uint64_t nonce;           /* RUNS, KEY: its packets have it */
    uint16_t epoch;           /* KEY */
    uint8_t key[32];          /* KEY */
    uint8_t signer[32];       /* KEY; all zero: nothing is signed */
    uint32_t fragment_size;   /* RUNS, STREAM */
    uint64_t sn, here;        /* STREAM: from sn to before `here`; WANT_RUN, RUN: from sn on */
    bool no_leaves;           /* HAS: it knows no digests of pieces */
    const uint8_t *bytes;     /* LEAVES: digests; HAVE: bits; RUN: fragments; not copied */
    uint32_t length;          /* bytes of them; PIECE: of the piece */
} rs_piece_message;

/* The bytes of a message without what `bytes` is at, which follows; a PIECE's follow too. Room for
 * RS_PIECE_BODY_MOST. */
uint32_t rs_piece_put(const rs_piece_message *message, uint8_t *out);
/* A head: false if it is none of ours. The body's length is bounded: by RS_PIECE_BODY_MOST, a PIECE's by a piece. */
bool rs_piece_take_head(const uint8_t head[RS_PIECE_HEAD], uint8_t *type, uint32_t *length);
/* A body, of a PIECE its first 4 bytes. False: malformed. `bytes` of the result points into `body`. */
bool rs_piece_take(uint8_t type, const uint8_t *body, uint32_t length, rs_piece_message *out);

#endif
