/* The receivers whose reports a sender reads, its *speakers* (docs/feedback.md): all of them while they are few; of many
 * those at the top of the tree, and a few that hold the others back, which speak for themselves. Whatever it does for a
 * report, a packet or a repair looks at speakers only. */
#ifndef RS_CORE_REPUBLIC_SPEAKERS_H
#define RS_CORE_REPUBLIC_SPEAKERS_H

#include "core/republic/state.h"

#define RS_SPEAKERS_MOST 32u
#define RS_TREE_NOBODY UINT32_MAX

typedef struct {
    uint32_t parent; /* place of a recipient; RS_TREE_NOBODY: the sender */
    uint32_t first_child, next;
    uint8_t height;
    bool placed;  /* It has a place in the tree. */
    bool demoted; /* it was bypassed: it collects for nobody any more */
    bool unknown; /* its agent knows no tree: it reports by RATE */
} rs_tree_member;

typedef struct {
    uint32_t place; /* of the recipient */
    uint64_t marks; /* asked for when it was heard last */
    rs_time slow_since;
    uint32_t slow; /* the one below it that is furthest behind since then */
    /* What it claimed of those below: of late, and at least CLAIM_AGE ago. */
    uint64_t claim, claim_old;
    rs_time claim_at;
    uint32_t claim_ppm;
    uint32_t disputes;
} rs_tree_speaker;

typedef struct {
    rs_tree_speaker speakers[RS_SPEAKERS_MOST];
    uint32_t speaker_count, promoted;
    rs_tree_member *nodes;
    uint64_t least_room;
    rs_time sample;
    bool asked; /* the packet before asked for reports */
} rs_tree_sender;

rs_tree_sender *rs_tree_of(const rs_sending *x);                              /* NULL: all report to it */
rs_tree_speaker *rs_tree_speaker_of(const rs_tree_sender *t, uint32_t place); /* NULL: others speak for it */

static inline uint32_t rs_place_of(const rs_sending *x, const rs_recipient *r) {
    return (uint32_t)(r - x->recipients);
}

bool rs_tree_in_use(const rs_sending *x);
uint32_t rs_speaker_count(const rs_sending *x);
uint32_t rs_speakers_most(const rs_sending *x); /* their places are below */
rs_recipient *rs_speaker(const rs_sending *x, uint32_t place);
uint32_t rs_speaker_place(const rs_sending *x, const rs_recipient *r); /* of one that speaks */
bool rs_tree_unknown(const rs_sending *x, const rs_recipient *r); /* its agent knows no tree: RATE tells its place */
bool rs_speaks(const rs_sending *x, const rs_recipient *r);
uint64_t rs_tree_room(const rs_sending *x, const rs_recipient *r); /* r->room, or the least that it speaks for */
bool rs_tree_silent(const rs_sending *x, const rs_recipient *r, rs_time now); /* a speaker holds nobody back any more */
void rs_tree_heard(const rs_sending *x, const rs_recipient *r);
bool rs_tree_asks_twice(const rs_sending *x, bool asked); /* a packet asks for reports like the one before it */

#endif
