#include "core/republic/speakers.h"

#include "core/feedback/reporter.h"

rs_tree_sender *rs_tree_of(const rs_sending *x) {
    rs_tree_sender *t = x->t.owner && x->t.owner->id == RS_PROTOCOL_REPUBLIC ? x->t.own : NULL;
    return t && t->nodes ? t : NULL;
}

bool rs_tree_in_use(const rs_sending *x) {
    return rs_tree_of(x) != NULL;
}

uint32_t rs_speaker_count(const rs_sending *x) {
    return rs_tree_of(x) ? rs_tree_of(x)->speaker_count : x->recipient_count;
}

uint32_t rs_speakers_most(const rs_sending *x) {
    return rs_tree_of(x) ? RS_SPEAKERS_MOST : x->recipient_count;
}

uint32_t rs_reporters_most(const rs_sending *x) {
    const rs_tree_sender *t = rs_tree_of(x);
    uint32_t speakers = rs_speaker_count(x);
    return t && t->children_most > speakers ? t->children_most : speakers;
}

rs_recipient *rs_speaker(const rs_sending *x, uint32_t place) {
    return &x->recipients[rs_tree_of(x) ? rs_tree_of(x)->speakers[place].place : place];
}

rs_tree_speaker *rs_tree_speaker_of(const rs_tree_sender *t, uint32_t place) {
    for (uint32_t i = 0; i < t->speaker_count; i++)
        if (t->speakers[i].place == place)
            return (rs_tree_speaker *)(uintptr_t)&t->speakers[i];
    return NULL;
}

uint32_t rs_speaker_place(const rs_sending *x, const rs_recipient *r) {
    const rs_tree_sender *t = rs_tree_of(x);
    return t ? (uint32_t)(rs_tree_speaker_of(t, rs_place_of(x, r)) - t->speakers) : rs_place_of(x, r);
}

bool rs_tree_unknown(const rs_sending *x, const rs_recipient *r) {
    return rs_tree_of(x)->nodes[rs_place_of(x, r)].unknown;
}

bool rs_speaks(const rs_sending *x, const rs_recipient *r) {
    return !rs_tree_of(x) || rs_tree_speaker_of(rs_tree_of(x), rs_place_of(x, r));
}

uint64_t rs_tree_room(const rs_sending *x, const rs_recipient *r) {
    const rs_tree_sender *t = rs_tree_of(x);
    return t && t->least_room && (r->room == 0 || t->least_room < r->room) ? t->least_room : r->room;
}

bool rs_tree_silent(const rs_sending *x, const rs_recipient *r, rs_time now) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    const rs_tree_sender *t = rs_tree_of(x);
    const rs_tree_speaker *s = t ? rs_tree_speaker_of(t, rs_place_of(x, r)) : NULL;
    return s && own->sent_times.count - s->marks >= RS_REPORT_SILENT_MARKS &&
           now - rs_progress_of(r)->seen_at >= RS_REPORT_SILENT;
}

void rs_tree_heard(const rs_sending *x, const rs_recipient *r) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_tree_sender *t = rs_tree_of(x);
    rs_tree_speaker *s = t ? rs_tree_speaker_of(t, rs_place_of(x, r)) : NULL;
    if (s)
        s->marks = own->sent_times.count;
}

bool rs_tree_asks_twice(const rs_sending *x, bool asked) {
    rs_tree_sender *t = rs_tree_of(x);
    bool twice = t && t->asked && !asked;
    if (t)
        t->asked = asked;
    return twice;
}
