/* A fetch under way, for the files of this folder alone. */
#ifndef RS_PIECES_STATE_H
#define RS_PIECES_STATE_H

#include "daemon/pieces/fetch.h"
#include "daemon/pieces/pipe.h"
#include "daemon/pieces/plan.h"
#include "daemon/pieces/retry.h"
#include "daemon/pieces/wire.h"

#define WINDOW 3u       /* pieces asked of one holder at a time */
#define HEARD_MOST 512u /* payloads of one look at the data channel */

typedef enum { HOLDER_WAITING, HOLDER_CONNECTING, HOLDER_ASKED, HOLDER_READY, HOLDER_GONE } holder_state;

typedef struct fetch fetch;

typedef struct {
    fetch *of;
    holder_state state;
    rs_watch watch;
    rs_piece_pipe pipe;
    uint32_t address;
    uint16_t port;
    char name[RS_PIECE_NAME];
    char cause[RS_PIECE_TEXT]; /* why it is gone, or waits */
    uint32_t tries;
    rs_time since; /* something happened; WAITING: when it is tried again */
    bool peer;     /* fetches it itself, or is being sent it: told by another holder */
    bool sends;    /* to others, just now: asked for pieces only if nobody else gives any */
    bool no_leaves;
    uint8_t *bits; /* what it has */
    uint32_t asked[WINDOW], asked_count;
    uint64_t given; /* bytes */
    uint8_t in[RS_PIECE_HEAD + RS_PIECE_BODY_MOST];
    size_t in_length;
    bool in_piece; /* the bytes of asked[0] come; so many are here: */
    uint32_t piece_got, piece_length;
} holder;

struct fetch {
    fetch *next;
    rs_fetches *all;
    rs_object_id id;
    bool background;   /* nobody waits for it: a partial object is gone on with */
    bool dead;         /* to be freed when the present call is done */
    bool asks;         /* the manager, who has it */
    bool sleeps;       /* it is being sent here */
    bool for_send;     /* a sender waits for it */
    rs_time ask_at;    /* the next time */
    char answer[160];  /* why nobody has it, by the manager's report */
    rs_object *object; /* NULL: what it is, is not known yet */
    uint64_t size;
    uint32_t pieces;
    rs_digest root;  /* length 0: not known yet */
    uint8_t *leaves; /* as far as they came, `leaves_known` */
    uint32_t leaves_known;
    holder *leaves_of;   /* who is asked for them */
    rs_piece_plan *plan; /* NULL: leaves are not all here */
    rs_time began, progress_at;
    rs_time others_at;             /* one that does not send it gave a piece last then, or it began */
    uint64_t fetched, kept, heard; /* bytes */
    /* A transfer to others that is heard here; `fragments` 0: none. */
    struct {
        rs_group group;
        uint64_t nonce, fragments;
        uint32_t fragment_size;
        uint8_t *bits; /* fragments that came */
        uint32_t *got; /* bytes of each piece that came; UINT32_MAX: they were wrong */
        bool live;     /* packets come */
        rs_time at;    /* the newest one came then, */
        uint32_t upto; /* and pieces below are not waited for */
    } hears;
    uint32_t holder_count;
    holder *holders[RS_FETCH_HOLDERS_MOST];
};

/* Partial objects, and when each is gone on with. */
typedef struct resume {
    struct resume *next;
    rs_object_id id;
    rs_retry retry;
    uint32_t failed_from; /* who sent it when it was last gone on with for that */
    rs_time failed_at;    /* a fetch of it failed last then; RS_NEVER: none did */
    bool seen;
} resume;

/* Payloads that will be in place when the present look at the data channel ends. */
typedef struct {
    fetch *of; /* NULL: it ended meanwhile */
    uint64_t offset;
    uint32_t length;
} payload;

struct rs_fetches {
    rs_agent *agent;
    fetch *first;
    uint32_t count;
    uint32_t hearing; /* of them */
    payload payloads[HEARD_MOST];
    uint32_t payload_count;
    resume *resumes;
    rs_object_id left; /* a program left it until then, while a sender waited for it */
    rs_time left_until;
    rs_time check_at;
};

#endif
