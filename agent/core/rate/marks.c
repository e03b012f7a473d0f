#include "core/rate/marks.h"

void rs_marks_start(rs_marks *m, rs_time now, rs_time least, rs_time every) {
    *m = (rs_marks){.least = least, .due = now};
    rs_marks_every(m, every);
}

void rs_marks_least(rs_marks *m, rs_time least) {
    m->least = least;
    m->every = m->every > least ? m->every : least;
}

void rs_marks_every(rs_marks *m, rs_time every) {
    m->every = every > m->least ? every : m->least;
}

static const rs_mark *nth(const rs_marks *m, uint64_t n) {
    return &m->ring[n % RS_MARKS];
}

rs_time rs_marks_may(const rs_marks *m) {
    return m->count ? nth(m, m->count - 1)->at + m->least : INT64_MIN;
}

bool rs_marks_packet(rs_marks *m, rs_time now, uint64_t pos, bool last) {
    if (now < m->due && !(last && now >= rs_marks_may(m)))
        return false;
    m->ring[m->count++ % RS_MARKS] = (rs_mark){pos, now};
    m->due = now + m->every;
    return true;
}

const rs_mark *rs_marks_at(const rs_marks *m, uint64_t pos) {
    uint64_t kept = m->count < RS_MARKS ? m->count : RS_MARKS;
    for (uint64_t n = m->count; n > m->count - kept; n--)
        if (nth(m, n - 1)->pos <= pos)
            return nth(m, n - 1);
    return NULL;
}

rs_time rs_marks_time(const rs_marks *m, uint64_t pos) {
    const rs_mark *before = rs_marks_at(m, pos), *newest = nth(m, m->count - 1);
    if (!before)
        return RS_NEVER;
    if (before == newest)
        return before->at;
    const rs_mark *after = before == &m->ring[RS_MARKS - 1] ? &m->ring[0] : before + 1;
    return before->at +
           (rs_time)((uint64_t)(after->at - before->at) * (pos - before->pos) / (after->pos - before->pos));
}
