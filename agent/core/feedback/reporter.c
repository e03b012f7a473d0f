#include "core/feedback/reporter.h"

#define WAIT_LEAST (30 * INT64_C(1000))  /* for the reports of each level below (rostrum sim run broadcast); */
#define WAIT_MOST (1000 * INT64_C(1000)) /* a bound */
#define WAIT_PART 8                      /* of the time between marks (docs/feedback.md) */
#define AGAIN_PART 2 /* of it, between two reports of one mark: children may answer one by one (docs/feedback.md) */
#define AGAIN_MOST (50 * INT64_C(1000000)) /* a bound: no marks come in a pause */

void rs_reporter_session(rs_reporter *r, uint64_t first, uint64_t end) {
    r->first = first;
    r->end = end;
    r->own = (rs_report){0};
    r->done = r->complete = r->made = false;
    r->due = INT64_MAX;
    for (uint32_t i = 0; i < r->child_count; i++) {
        r->children[i].heard = r->children[i].late = r->children[i].tell_over = false;
        r->children[i].marks = r->marks;
    }
}

rs_reporter_child *rs_reporter_child_of(rs_reporter *r, rs_peer peer) {
    for (uint32_t i = 0; i < r->child_count; i++)
        if (r->children[i].peer == peer)
            return &r->children[i];
    return NULL;
}

/* How far b is behind a in the ring; negative: it is ahead. */
static int64_t behind(const rs_reporter *r, uint64_t a, uint64_t b) {
    uint64_t ring = r->end - r->first, distance = a >= b ? a - b : a + ring - b;
    return distance <= ring / 2 ? (int64_t)distance : -(int64_t)(ring - distance);
}

static bool is_silent(const rs_reporter *r, const rs_reporter_child *c, rs_time now) {
    return r->marks - c->marks >= RS_REPORT_SILENT_MARKS && now - c->heard_at >= RS_REPORT_SILENT;
}

static bool is_done(const rs_reporter_child *c) {
    return c->heard && (c->said.flags & RS_REPORT_DONE);
}

static rs_time wait_of(const rs_reporter *r) {
    rs_time each = r->mark_every / WAIT_PART;
    each = each < WAIT_LEAST ? WAIT_LEAST : each > WAIT_MOST ? WAIT_MOST : each;
    return each * (rs_time)r->height;
}

/* When those that were too late for the report of the newest mark are told of. */
static rs_time again_at(const rs_reporter *r, rs_time now) {
    rs_time each = r->mark_every / AGAIN_PART, due = now + wait_of(r);
    rs_time least = r->made_at + (each < AGAIN_MOST ? each : AGAIN_MOST);
    return r->made && due < least ? least : due;
}

static void maybe_complete(rs_reporter *r, rs_time now) {
    if (r->made)
        return;
    for (uint32_t i = 0; i < r->child_count; i++)
        if (r->children[i].late)
            return;
    r->due = now;
}

void rs_reporter_mark(rs_reporter *r, rs_time now, const rs_report *own) {
    r->mark_every = r->marks ? now - r->marked_at : 0;
    r->marked_at = now;
    r->marks++;
    r->made = false;
    int64_t moved = (r->own.flags & own->flags & RS_REPORT_OWN) ? behind(r, own->highest, r->own.highest) : 0;
    r->moved = moved > 0 ? (uint64_t)moved : 0;
    r->own = *own;
    rs_time due = now + wait_of(r);
    r->due = r->due < due ? r->due : due;
    for (uint32_t i = 0; i < r->child_count; i++) {
        rs_reporter_child *c = &r->children[i];
        bool answered = c->heard && (c->said.flags & RS_REPORT_OWN) && (own->flags & RS_REPORT_OWN) &&
                        behind(r, own->highest, c->said.highest) <= 0;
        c->late = !answered && !is_done(c) && !is_silent(r, c, now);
    }
    maybe_complete(r, now);
}

void rs_reporter_done(rs_reporter *r, rs_time now, bool complete) {
    r->done = true;
    r->complete |= complete;
    r->due = now;
}

bool rs_reporter_heard(rs_reporter *r, rs_time now, rs_peer peer, const rs_report *report) {
    rs_reporter_child *c = rs_reporter_child_of(r, peer);
    bool in_ring = report->highest >= r->first && report->highest < r->end;
    bool least_in_ring = report->least >= r->first && report->least < r->end;
    if (!c || ((report->flags & RS_REPORT_OWN) && !in_ring) || ((report->flags & RS_REPORT_LEAST) && !least_in_ring))
        return false;
    c->heard = true;
    c->late = false;
    c->heard_at = now;
    c->marks = r->marks;
    c->said = *report;
    rs_time due = again_at(r, now);
    r->due = r->due < due ? r->due : due;
    if (r->marks && now - r->marked_at <= wait_of(r))
        maybe_complete(r, now);
    return true;
}

bool rs_reporter_due(const rs_reporter *r, rs_time now) {
    return now >= r->due;
}

static void note_least(const rs_reporter *r, rs_report *out, uint64_t sn, uint32_t of) {
    if ((out->flags & RS_REPORT_LEAST) && behind(r, out->least, sn) <= 0)
        return;
    out->flags |= RS_REPORT_LEAST;
    out->least = sn;
    out->least_of = of;
}

/* What is furthest behind below a child. Of many children's reports one is lost nearly every time. A child that did not
 * answer the newest mark, but the one before, is taken to have moved as this receiver did: if it has not, the next
 * report says so. */
static uint64_t least_of(const rs_reporter *r, const rs_reporter_child *c) {
    uint64_t room = r->end - c->said.least;
    if (c->marks + 1 != r->marks)
        return c->said.least;
    return r->moved < room ? c->said.least + r->moved : r->first + (r->moved - room) % (r->end - r->first);
}

static void merge(const rs_reporter *r, rs_report *out, const rs_reporter_child *c) {
    const rs_report *said = &c->said;
    out->receivers += said->receivers;
    if (said->share_bps && (out->share_bps == 0 || said->share_bps < out->share_bps))
        out->share_bps = said->share_bps;
    if (said->lossy_ppm > out->lossy_ppm) {
        out->lossy_ppm = said->lossy_ppm;
        out->lossy_of = said->lossy_of ? said->lossy_of : c->address;
    }
    if (said->silent)
        out->silent = said->silent;
    if (said->flags & RS_REPORT_LEAST)
        note_least(r, out, least_of(r, c), said->least_of ? said->least_of : c->address);
}

void rs_reporter_make(rs_reporter *r, rs_time now, rs_report *out) {
    bool waits = !r->done;
    *out = r->own;
    out->receivers = 1;
    out->flags &= RS_REPORT_OWN;
    out->least = 0;
    out->least_of = out->lossy_of = out->silent = 0;
    if (r->done)
        out->flags = 0;
    if (out->flags & RS_REPORT_OWN)
        note_least(r, out, out->highest, 0);
    for (uint32_t i = 0; i < r->child_count; i++) {
        rs_reporter_child *c = &r->children[i];
        if (is_silent(r, c, now) && !is_done(c))
            continue;
        waits |= !is_done(c);
        if (c->heard)
            merge(r, out, c);
    }
    for (uint32_t i = 0; i < r->child_count; i++) { /* each in its turn */
        const rs_reporter_child *c = &r->children[(r->silent_turn + i) % r->child_count];
        if (is_silent(r, c, now) && !is_done(c)) {
            out->silent = c->address;
            r->silent_turn = (r->silent_turn + i + 1) % r->child_count;
            break;
        }
    }
    r->made = true;
    r->made_at = now;
    if (!waits)
        out->flags |= r->complete && rs_reporter_served(r) ? RS_REPORT_DONE | RS_REPORT_COMPLETE : RS_REPORT_DONE;
    r->due = INT64_MAX;
}

static bool is_complete(const rs_reporter_child *c) {
    return c->heard && (c->said.flags & RS_REPORT_COMPLETE);
}

void rs_reporter_over(rs_reporter *r) {
    for (uint32_t i = 0; i < r->child_count; i++)
        r->children[i].tell_over = true;
}

bool rs_reporter_tell_over(rs_reporter *r, rs_report *out, rs_peer *to) {
    for (uint32_t i = 0; i < r->child_count; i++) {
        rs_reporter_child *c = &r->children[i];
        if (!c->tell_over)
            continue;
        c->tell_over = false;
        if (is_complete(c))
            continue;
        *out = (rs_report){.flags = RS_REPORT_DONE, .receivers = 1};
        *to = c->peer;
        return true;
    }
    return false;
}

bool rs_reporter_served(const rs_reporter *r) {
    for (uint32_t i = 0; i < r->child_count; i++)
        if (!is_complete(&r->children[i]))
            return false;
    return true;
}
