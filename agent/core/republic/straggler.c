/* Receivers that hold the others back, and what a transfer's policy does with them: wait for them, demote them (they
 * leave the data channel and get what they miss by unicast, at the pace of their control channel), or evict them.
 *
 * As long as all wait for the slowest, nobody knows what the others would take. So a receiver on whose path a queue
 * stands, or whose window is shut, while most of the others show neither, for SLOW_FOR, is set aside for a TRIAL: rate
 * and window follow the others, whose start-up starts over. If it took less than SHARE of the median of what they take
 * then, the policy is carried out, for the rest of the transfer; otherwise it counts again, and the next trial waits
 * for TRIAL_AGAIN, twice as long each time. What it loses in a trial it asks for as any loss. Ours. */
#include "core/republic/straggler.h"

#include "core/republic/feedback_sender.h"
#include "core/republic/speakers.h"
#include "core/republic/window.h"

#define LOOK (5 * RS_MS)                    /* between two looks: everyone has reported since the last (STEADY_MOST) */
#define FORGIVEN RS_HOST_BUSY               /* not seen slow for so long: it starts over */
#define SLOW_FOR (6 * FORGIVEN)             /* slow for so long: a trial */
#define TRIAL RS_SILENT                     /* at most: whoever speaks at all has spoken */
#define TRIAL_LEAST RS_AHEAD                /* at least: what was under way for the slow one has arrived */
#define TRIAL_AGAIN (20 * TRIAL)            /* trials take a twentieth of the time of who is tried, */
#define TRIAL_AGAIN_MOST (16 * TRIAL_AGAIN) /* and a 320th, if they find nothing four times */
#define SHARE 2                             /* of the median rate: one half (docs/republic.md, "Stragglers") */

static bool is_slow(const rs_sending *x, const rs_recipient *r, rs_time now) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_progress *progress = rs_progress_of(r);
    bool shut = own->window_of == r && x->pos >= own->window_pos;
    return progress->rate->model.startup_done && (shut || rs_path_model_has_queue(&progress->rate->model, now));
}

/* Notes who holds the others back. False if nobody does, or so many that they are the usual case. */
static bool note_slow(rs_sending *x, rs_time now) {
    uint32_t slow = 0, others = 0;
    for (uint32_t i = 0; i < rs_speaker_count(x); i++) {
        rs_recipient *r = rs_speaker(x, i);
        rs_progress *progress = rs_progress_of(r);
        if (!rs_holds_back(x, r, now))
            continue;
        bool now_slow = is_slow(x, r, now);
        if (now_slow)
            progress->slow_at = now;
        if (now - progress->slow_at > FORGIVEN)
            progress->slow_since = 0;
        else if (progress->slow_since == 0)
            progress->slow_since = now;
        slow += progress->slow_since != 0;
        others += progress->slow_since == 0;
    }
    return slow > 0 && others >= slow;
}

static void begin_trial(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    bool any = false;
    for (uint32_t i = 0; i < rs_speaker_count(x); i++) {
        rs_recipient *r = rs_speaker(x, i);
        rs_progress *progress = rs_progress_of(r);
        if (!rs_holds_back(x, r, now) || !progress->slow_since || now - progress->slow_since < SLOW_FOR)
            continue;
        progress->on_trial = any = true;
        progress->slow_bps = rs_path_model_rate(&progress->rate->model);
    }
    if (!any)
        return;
    own->trial_began = now;
    own->trial_found_bps = x->rate.found_bps;
    x->rate.found_bps = x->rate.ceiling_bps;
    for (uint32_t i = 0; i < rs_speaker_count(x); i++)
        if (rs_holds_back(x, rs_speaker(x, i), now))
            rs_path_model_again(&rs_progress_of(rs_speaker(x, i))->rate->model);
    rs_rate_recompute(node, now, x);
}

/* The median rate of those that count; 0 if nobody does. */
static int64_t median(const rs_sending *x, rs_time now) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < rs_speaker_count(x); i++)
        count += rs_holds_back(x, rs_speaker(x, i), now);
    for (uint32_t i = 0; i < rs_speaker_count(x); i++) {
        int64_t rate = rs_path_model_rate(&rs_progress_of(rs_speaker(x, i))->rate->model);
        uint32_t less = 0, same = 0;
        if (!rs_holds_back(x, rs_speaker(x, i), now))
            continue;
        for (uint32_t k = 0; k < rs_speaker_count(x); k++) {
            int64_t other = rs_path_model_rate(&rs_progress_of(rs_speaker(x, k))->rate->model);
            if (!rs_holds_back(x, rs_speaker(x, k), now))
                continue;
            less += other < rate;
            same += other == rate;
        }
        if (less <= count / 2 && less + same > count / 2)
            return rate;
    }
    return 0;
}

static void tell(rs_node *node, rs_time now, const rs_sending *x, const rs_recipient *r, int64_t others, char *text) {
    rs_progress *progress = rs_progress_of(r);
    rs_event event = {.kind = RS_EV_LOG, .xfer = x->t.id, .peer = r->link.peer->id, .session = x->t.session};
    rs_format(text, RS_CAUSE_MAX, "too slow: it took %lld Mb/s for %lld ms where half of the others take %lld Mb/s",
              (long long)(progress->slow_bps / 1000000), (long long)((now - progress->slow_since) / RS_MS),
              (long long)(others / 1000000));
    rs_format(event.cause, sizeof event.cause, "%.120s: %s", text,
              x->stragglers == RS_STRAGGLERS_EVICT ? "evicted" : "demoted, it is finished by unicast");
    rs_emit(node, &event);
}

static void end_trial(rs_node *node, rs_time now, rs_sending *x, int64_t others) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    bool any = false;
    char text[RS_CAUSE_MAX];
    own->trial_began = 0;
    for (uint32_t i = 0; i < rs_speaker_count(x); i++) {
        rs_recipient *r = rs_speaker(x, i);
        rs_progress *progress = rs_progress_of(r);
        if (!progress->on_trial)
            continue;
        progress->on_trial = false;
        if (!rs_is_active(r) || progress->slow_bps >= others / SHARE) {
            progress->slow_since = 0;
            continue;
        }
        any = true;
        tell(node, now, x, r, others, text);
        if (x->stragglers == RS_STRAGGLERS_EVICT)
            rs_sender_fail(node, now, r, true, text);
        else
            rs_sender_demote(node, now, x, r);
    }
    if (!any) {
        x->rate.found_bps = own->trial_found_bps;
        own->trial_next = now + (TRIAL_AGAIN << own->trials);
        own->trials += TRIAL_AGAIN << own->trials < TRIAL_AGAIN_MOST;
    }
    rs_rate_recompute(node, now, x);
    if (any)
        rs_sender_settle(node, now, x);
}

void rs_straggler_look(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (x->stragglers == RS_STRAGGLERS_WAIT || x->phase != RS_PHASE_HIGH_RATE || now < own->straggler_due)
        return;
    own->straggler_due = now + LOOK;
    if (own->trial_began) {
        int64_t others = median(x, now);
        bool clear = now - own->trial_began >= TRIAL_LEAST;
        for (uint32_t i = 0; i < rs_speaker_count(x); i++)
            clear &= !rs_progress_of(rs_speaker(x, i))->on_trial ||
                     rs_progress_of(rs_speaker(x, i))->slow_bps < others / SHARE / 2;
        if (clear || now - own->trial_began >= TRIAL)
            end_trial(node, now, x, others);
    } else if (note_slow(x, now) && now >= own->trial_next) {
        begin_trial(node, now, x);
    }
}

void rs_straggler_stop(rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    own->trial_began = 0;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_progress_of(&x->recipients[i])->on_trial = false;
        rs_progress_of(&x->recipients[i])->slow_since = 0;
    }
}
