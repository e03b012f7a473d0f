#include "core/rate/sent_times.h"

void rs_sent_times_start(rs_sent_times *m, rs_time now, rs_time least, rs_time every) {
    *m = (rs_sent_times){.least = least, .due = now, .answered = UINT64_MAX};
    rs_sent_times_every(m, every);
}

void rs_sent_times_least(rs_sent_times *m, rs_time least) {
    m->least = least;
    m->every = m->every > least ? m->every : least;
}

void rs_sent_times_every(rs_sent_times *m, rs_time every) {
    m->every = every > m->least ? every : m->least;
}

static const rs_sent_time *nth(const rs_sent_times *m, uint64_t n) {
    return &m->ring[n % RS_SENT_TIMES];
}

rs_time rs_sent_times_interval(const rs_sent_times *m, rs_time packet) {
    rs_time share =
        m->interval < (uint64_t)(RS_SENT_TIMES_MOST / packet) ? (rs_time)m->interval * packet : RS_SENT_TIMES_MOST;
    return m->every > share ? m->every : share;
}

rs_time rs_sent_times_next_report(const rs_sent_times *m) {
    return m->count ? nth(m, m->count - 1)->at + m->least : INT64_MIN;
}

static bool answers_are_late(const rs_sent_times *m, rs_time now) {
    uint64_t kept = m->count < RS_SENT_TIMES ? m->count : RS_SENT_TIMES, n = m->count;
    if (kept == 0 || m->answered == UINT64_MAX || now - nth(m, n - 1)->at >= RS_SENT_TIMES_MOST)
        return false;
    while (n > m->count - kept && nth(m, n - 1)->pos > m->answered)
        n--;
    return n < m->count && now - nth(m, n)->at > m->timeout;
}

bool rs_sent_times_add(rs_sent_times *m, rs_time now, uint64_t pos, bool last) {
    if (now < m->due && !(last && now >= rs_sent_times_next_report(m)))
        return false;
    if (m->count && !last && pos - nth(m, m->count - 1)->pos < m->interval &&
        now - nth(m, m->count - 1)->at < RS_SENT_TIMES_MOST)
        return false;
    if (answers_are_late(m, now))
        return false;
    m->ring[m->count++ % RS_SENT_TIMES] = (rs_sent_time){pos, now};
    m->due = now + m->every;
    return true;
}

const rs_sent_time *rs_sent_times_at(const rs_sent_times *m, uint64_t pos) {
    uint64_t kept = m->count < RS_SENT_TIMES ? m->count : RS_SENT_TIMES;
    for (uint64_t n = m->count; n > m->count - kept; n--)
        if (nth(m, n - 1)->pos <= pos)
            return nth(m, n - 1);
    return NULL;
}

rs_time rs_sent_times_time(const rs_sent_times *m, uint64_t pos) {
    const rs_sent_time *before = rs_sent_times_at(m, pos), *newest = nth(m, m->count - 1);
    if (!before)
        return RS_NEVER;
    if (before == newest)
        return before->at;
    const rs_sent_time *after = before == &m->ring[RS_SENT_TIMES - 1] ? &m->ring[0] : before + 1;
    return before->at +
           (rs_time)((uint64_t)(after->at - before->at) * (pos - before->pos) / (after->pos - before->pos));
}
