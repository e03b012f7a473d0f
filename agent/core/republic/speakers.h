/* The receivers whose reports a sender reads, its *speakers* (docs/feedback.md): all of them while they are few; of
 * many those at the top of the tree, and a few that hold the others back, which speak for themselves. Whatever it does
 * for a report, a packet or a repair looks at speakers only. */
#ifndef RS_CORE_REPUBLIC_SPEAKERS_H
#define RS_CORE_REPUBLIC_SPEAKERS_H

#include "core/republic/state.h"

#define RS_SPEAKERS_MOST 32u /* docs/feedback.md */
#define RS_TREE_NOBODY UINT32_MAX

/* A receiver's place in the tree. */
typedef struct {
    uint32_t parent;      /* It reports to the recipient of that place; RS_TREE_NOBODY: to the sender. */
    uint32_t first_child; /* Its children begin with that one... */
    uint32_t next;        /* ...and its parent's go on with that one. */
    uint32_t rack;        /* Servers of a rack have it in common. */
    uint8_t height;       /* So many levels are below it. */
    bool placed;          /* It has a place in the tree. */
    bool demoted;         /* It was bypassed: it collects for nobody any more. */
    bool unknown;         /* Its agent knows no tree: it reports by RATE. */
} rs_tree_member;

typedef struct {
    uint32_t place;     /* It is the recipient of that place. */
    uint64_t marks;     /* So many reports had been asked for when it was heard last. */
    rs_time slow_since; /* The one below it that is furthest behind is so since then: */
    uint32_t slow;      /* the recipient of that place. */
    uint64_t claim;     /* It claimed of late that all below it had so much, */
    uint64_t claim_old; /* and that, at least CLAIM_AGE ago... */
    rs_time claim_at;   /* ...counted from then. */
    uint32_t claim_ppm; /* It claimed that they lose so much. */
    uint32_t disputes;  /* Its claims were disputed so often. */
} rs_tree_speaker;

typedef struct {
    rs_tree_speaker speakers[RS_SPEAKERS_MOST]; /* Who reports to the sender itself; */
    uint32_t speaker_count;                     /* so many. */
    uint32_t promoted;                          /* So many of them speak for themselves. */
    uint32_t children_most;   /* Who collects most collects of so many, unless some were bypassed since. */
    rs_tree_member *nodes;    /* By the places of the recipients; NULL: there is no tree, all report to the sender. */
    uint64_t least_room;      /* The least room that one of all receivers told; 0: none did. */
    rs_time sample;           /* Each receiver says RATE so often all the same. */
    bool asked;               /* The packet before asked for reports. */
    rs_receiver_rate rates[]; /* Of the speakers, by their places: of all receivers where there is no tree. */
} rs_tree_sender;

rs_tree_sender *rs_tree_of(const rs_sending *x);                              /* NULL: all report to it */
rs_tree_speaker *rs_tree_speaker_of(const rs_tree_sender *t, uint32_t place); /* NULL: others speak for it */

static inline uint32_t rs_place_of(const rs_sending *x, const rs_recipient *r) {
    return (uint32_t)(r - x->recipients);
}

bool rs_tree_in_use(const rs_sending *x);
uint32_t rs_speaker_count(const rs_sending *x);
uint32_t rs_speakers_most(const rs_sending *x);  /* their places are below */
uint32_t rs_reporters_most(const rs_sending *x); /* so many report to the sender, or to one that collects */
rs_recipient *rs_speaker(const rs_sending *x, uint32_t place);
uint32_t rs_speaker_place(const rs_sending *x, const rs_recipient *r); /* of one that speaks */
bool rs_tree_unknown(const rs_sending *x, const rs_recipient *r); /* its agent knows no tree: RATE tells its place */
bool rs_speaks(const rs_sending *x, const rs_recipient *r);
uint64_t rs_tree_room(const rs_sending *x, const rs_recipient *r); /* r->room, or the least that it speaks for */
bool rs_tree_silent(const rs_sending *x, const rs_recipient *r, rs_time now); /* a speaker holds nobody back any more */
void rs_tree_heard(const rs_sending *x, const rs_recipient *r);
bool rs_tree_asks_twice(const rs_sending *x, bool asked); /* a packet asks for reports like the one before it */

#endif
