/* The sender's paths, sessions and phases (Sec. III-A1): attempt sending, high rate, the stop rule, and what follows.
 */
#include "core/republic/republic.h"
#include "core/transfer/engine.h"

#define ATTEMPT_LIVE 200000         /* attempt interval when the path needs no reconfiguration: 0.2 ms */
#define ATTEMPT_SLOWEST (5 * RS_MS) /* it doubles every ATTEMPT_STEP packets up to this */
#define PASS_OVER \
    (250 * RS_MS) /* receivers that have not even accepted are not waited for longer, if others have light */
#define GRACE_LEAST (50 * RS_MS)      /* a host may be busy for so long; */
#define GRACE_MOST (250 * RS_MS)      /* nobody waits longer for another's light, however slow the circuit switch is */
#define DARK_LEAST (1000 * RS_MS)     /* after 4 light bounds, at least this, a dark receiver is finished by patches; */
#define DARK_UNBOUNDED (5000 * RS_MS) /* when the grant gave no light bound: 10 reconfiguration times, at least this */
#define DRAIN (1 * RS_MS)             /* from the last data packet to releasing the path: let it get there first */
#define FEEDBACK (5 * RS_MS)
#define FEEDBACK_EACH 50000 /* ns per receiver: at most 20,000 RATE messages a second in all */

void rs_sender_phase(rs_node *node, rs_sending *x, rs_phase phase) {
    if (x->phase == phase)
        return;
    x->phase = phase;
    rs_emit(node, &(rs_event){.kind = RS_EV_PHASE, .xfer = x->t.id, .phase = phase, .session = x->t.session});
}

void rs_sender_want_path(rs_node *node, rs_time now, rs_sending *x) {
    if (x->path_wanted || x->has_next || !rs_sender_choose(x))
        return;
    x->path_wanted = true;
    /* The manager may hold the answer back until the present path is released: that wait begins then. */
    x->answer_due = x->path_held ? RS_NEVER : now + node->config.answer_bound;
    rs_emit(node, &(rs_event){.kind = RS_EV_PATH_WANTED,
                              .xfer = x->t.id,
                              .bytes = x->t.size - x->wanted_from * x->t.fragment_size,
                              .session = x->sessions});
}

static void set_attempt_interval(const rs_node *node, rs_sending *x) {
    rs_time packet = rs_wire_time(x->t.fragment_size + RS_DATA_HEADER + RS_WIRE_OVERHEAD, x->rate.ceiling_bps);
    x->attempt_slows = false;
    x->attempts = 0;
    if (node->config.attempt_interval) {
        x->attempt_interval = node->config.attempt_interval;
    } else if (x->grant.reconfiguration) {
        x->attempt_interval = x->grant.reconfiguration / 50; /* 2 %: Sec. III-A1 finds 1-3 % best */
    } else {
        x->attempt_interval = ATTEMPT_LIVE;
        x->attempt_slows = true;
    }
    if (x->attempt_interval < packet)
        x->attempt_interval = packet;
}

/* Those that have light wait so long for the others after the last that got it: the cross-connects of one circuit are
 * made together, and differ by less than half of the time that they take. Whoever is still dark then is most likely
 * alone with that (a firewall, say), and is finished by patches unless its light comes while the others are served. */
static rs_time light_grace(const rs_sending *x) {
    rs_time grace = x->grant.reconfiguration / 2;
    return grace < GRACE_LEAST ? GRACE_LEAST : grace > GRACE_MOST ? GRACE_MOST : grace;
}

/* How long to wait for light, measured from now. On the path of a further session the others do not wait again for a
 * receiver that stayed dark on the one before; it can have light all the same. Nor for those that the manager named. */
static void wait_for_light(rs_node *node, rs_time now, rs_sending *x, bool moved) {
    rs_time bound = x->grant.light_bound;
    rs_time dark = bound ? bound * 4 : x->grant.reconfiguration * 10, least = bound ? DARK_LEAST : DARK_UNBOUNDED;
    if (dark < least)
        dark = least;
    if (dark > node->config.no_path_bound)
        dark = node->config.no_path_bound;
    x->path_at = now;
    x->light_due = bound ? now + bound : RS_NEVER;
    x->pass_over_due = now + (x->grant.reconfiguration * 4 > PASS_OVER ? x->grant.reconfiguration * 4 : PASS_OVER);
    x->dark_due = now + dark;
    x->dark_passed = x->path_lit = false;
    x->light_at = 0;
    x->all_dark = !moved;
    x->grace_due = RS_NEVER;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (!r->member)
            continue;
        r->passed_over = r->apart || (!moved && ((r->passed_over && !r->lit) || r->named_dark));
        r->no_light_told = false;
        x->all_dark &= r->named_dark || r->state != RS_RECIPIENT_ACTIVE;
        if (moved && r->lit) /* it is at high rate already; the others get their chance on the new path */
            x->grace_due = now + (bound ? bound : DARK_LEAST);
    }
    if (x->grace_due != RS_NEVER)
        x->light_at = x->grace_due - light_grace(x);
}

static rs_time grace_from(const rs_sending *x) {
    return x->light_at ? x->light_at : x->path_at + 2 * x->grant.reconfiguration;
}

void rs_republic_lit(rs_time now, rs_sending *x) {
    if (x->light_at < now)
        x->light_at = now;
    if (x->grace_due == RS_NEVER)
        x->grace_due = x->light_at + light_grace(x);
}

static void accepted(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r) {
    if (r->member && !r->lit && x->grant.light_bound && now + x->grant.light_bound < x->light_due)
        x->light_due = now + x->grant.light_bound;
    rs_time from = grace_from(x) > now ? grace_from(x) : now;
    if ((x->light_at || x->all_dark) && x->grace_due == RS_NEVER)
        x->grace_due = from + light_grace(x);
    rs_republic_advance(node, now, x);
}

/* Looks at all receivers, at most four times in a grace. */
static void look_for_light(rs_node *node, rs_time now, rs_sending *x) {
    rs_time grace = light_grace(x), again = RS_NEVER;
    x->grace_due = RS_NEVER;
    if (x->phase != RS_PHASE_ATTEMPT && x->phase != RS_PHASE_HIGH_RATE)
        return;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (r->state != RS_RECIPIENT_ACTIVE || !r->member || r->lit || !r->accepted)
            continue;
        rs_time due = (r->accepted_at > grace_from(x) ? r->accepted_at : grace_from(x)) + grace;
        r->passed_over |= now >= due;
        if (now < due && (!r->passed_over || x->all_dark) && due < again)
            again = due;
    }
    x->dark_passed |= x->all_dark && again == RS_NEVER;
    if (again != RS_NEVER)
        x->grace_due = again > now + grace / 4 ? again : now + grace / 4;
    rs_republic_advance(node, now, x);
}

void rs_sender_open_members(rs_node *node, rs_time now, rs_sending *x) {
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (r->state != RS_RECIPIENT_ACTIVE || !r->member || r->apart)
            continue;
        r->lit = r->rated = r->dropped = false;
        r->expected = r->lost = 0;
        r->watch = (rs_loss_watch){0};
        r->road = (rs_road){0};
        rs_say(node, now, &r->link, RS_SAY_OPEN);
        rs_unsay(node, now, &r->link, RS_SAY_DATA_FNSD); /* of the session before; OPEN says as much */
        if (r->link.peer->up && !r->link.peer->rtt.smoothed)
            rs_ping(node, now, &r->link);
    }
}

/* For all that are wanted. */
static void begin_session(rs_node *node, rs_time now, rs_sending *x, uint64_t first, uint64_t end) {
    rs_sender_session_sent(x);
    rs_repair_begin_session(node, x);
    x->first = first;
    x->end = end;
    x->t.session = x->sessions++;
    x->pos = x->stop_pos = x->rate_from_pos = 0;
    rs_sender_join(node, now, x);
    x->cuts_logged = 0;
    x->fnsd_said = false;
    x->fnsd_due = RS_NEVER;
    x->rings[x->t.session % RS_RINGS] = (rs_session_ring){x->t.session, first, end};
}

/* By the engine that was granted, if it can. */
static bool begin_by(rs_node *node, rs_time now, rs_sending *x, const rs_engine *engine) {
    rs_event log = {.kind = RS_EV_LOG, .xfer = x->t.id, .session = x->t.session};
    const char *why = engine->path_granted(node, now, x);
    if (!why)
        return true;
    const rs_engine *fallback = node->engines[0];
    if (x->t.stream.on && !fallback->stream) { /* it needs to know where it ends */
        rs_words(log.cause, sizeof log.cause, "a stream needs %s, which cannot be: %s", engine->name, why);
        rs_sender_fail_all(node, now, x, log.cause);
        return true;
    }
    rs_engine_drop(node, &x->t); /* a view may have come before, or memory ran short half way */
    rs_words(log.cause, sizeof log.cause, "by %s though %s was granted: %s", fallback->name, engine->name, why);
    rs_emit(node, &log);
    return false;
}

static void start_session(rs_node *node, rs_time now, rs_sending *x, const rs_path_grant *grant) {
    uint64_t left = x->t.fragments - x->wanted_from;
    uint64_t accepted = rs_fragments(grant->accepted_size, x->t.fragment_size);
    int64_t ceiling = node->config.nic_rate_bps;
    if (grant->rate_bps && grant->rate_bps < ceiling)
        ceiling = grant->rate_bps;
    if (!rs_sender_has_members(x)) { /* granted, and needed by nobody any more */
        rs_emit(node, &(rs_event){.kind = RS_EV_PATH_DONE, .xfer = x->t.id, .session = x->sessions});
        rs_sender_want_path(node, now, x);
        return;
    }
    x->grant = *grant;
    x->path_held = true;
    begin_session(node, now, x, x->wanted_from, x->wanted_from + (accepted < left ? accepted : left));
    x->light_confirm = node->config.light_confirm ? node->config.light_confirm : grant->reconfiguration ? 3 : 1;
    x->feedback_interval =
        FEEDBACK_EACH * x->recipient_count > FEEDBACK ? FEEDBACK_EACH * x->recipient_count : FEEDBACK;
    rs_rate_start(&x->rate, now, ceiling / 100 * 99 + 1, 2 * x->feedback_interval);
    rs_pacer_start(&x->pacer, now, rs_rate_bps(&x->rate));
    x->stats.granted_at = now;
    x->stats.high_rate_at = x->stats.data_done_at = 0;
    const rs_engine *engine = rs_engine_of(node, grant->protocol), *fallback = node->engines[0];
    if (!engine || engine == fallback || !begin_by(node, now, x, engine))
        fallback->path_granted(node, now, x);
}

const char *rs_republic_path_granted(rs_node *node, rs_time now, rs_sending *x) {
    set_attempt_interval(node, x);
    wait_for_light(node, now, x, false);
    rs_sender_open_members(node, now, x);
    x->attempt_due = now;
    rs_sender_phase(node, x, RS_PHASE_ATTEMPT);
    rs_republic_schedule(node, now, x);
    rs_sender_want_path(node, now, x); /* the rest, of the object or of the receivers */
    rs_republic_advance(node, now, x);
    return NULL;
}

static void high_rate(rs_node *node, rs_time now, rs_sending *x) {
    x->stats.high_rate_at = now;
    x->rate_from_pos = x->pos;
    x->rate.epoch_end = now + x->rate.epoch;
    rs_sender_phase(node, x, RS_PHASE_HIGH_RATE);
    rs_rate_begin(x, now);
    rs_window_start(x, now);
    rs_pacer_start(&x->pacer, now, rs_rate_bps(&x->rate));
    rs_republic_schedule(node, now, x);
    rs_repair_high_rate(x);
}

static void resume(rs_node *node, rs_time now, rs_sending *x) {
    if (x->phase != RS_PHASE_HIGH_RATE)
        return;
    x->rate_from_pos = x->pos;
    x->rate.epoch_end = now + x->rate.epoch;
    rs_rate_begin(x, now);
    rs_window_start(x, now);
    rs_pacer_start(&x->pacer, now, rs_rate_bps(&x->rate));
    rs_republic_schedule(node, now, x);
}

static void tell_dark(rs_node *node, rs_time now, const rs_sending *x, rs_recipient *r, rs_time since) {
    rs_event event = {.kind = RS_EV_NO_LIGHT, .xfer = x->t.id, .peer = r->link.peer->id, .session = x->t.session};
    char others[48] = "";
    r->no_light_told = true;
    if (x->lit)
        rs_words(others, sizeof others, ", while %u others had light", x->lit);
    rs_words(event.cause, sizeof event.cause, "no data packet in %lld ms on a %s path (%u sent)%s",
             (long long)((now - since) / RS_MS), x->grant.kind == RS_PATH_CIRCUIT ? "circuit" : "packet",
             (unsigned)x->pos, others);
    rs_emit(node, &event);
}

static bool is_dark(const rs_recipient *r) {
    return r->state == RS_RECIPIENT_ACTIVE && r->member && !r->lit && !r->apart && r->accepted && !r->no_light_told;
}

static void tell_all_dark(rs_node *node, rs_time now, rs_sending *x) {
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (is_dark(r))
            tell_dark(node, now, x, r, r->accepted_at > x->path_at ? r->accepted_at : x->path_at);
    }
}

/* One RS_EV_NO_LIGHT for each receiver that has accepted and seen nothing for the path's bound. */
static void tell_no_light(rs_node *node, rs_time now, rs_sending *x) {
    x->light_due = RS_NEVER;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (!is_dark(r))
            continue;
        rs_time since = r->accepted_at > x->path_at ? r->accepted_at : x->path_at;
        if (now < since + x->grant.light_bound) {
            if (since + x->grant.light_bound < x->light_due)
                x->light_due = since + x->grant.light_bound;
            continue;
        }
        tell_dark(node, now, x, r, since);
    }
}

/* DATA_FNSD goes out when a receiver that lost nothing has had time to say DATA_RCVD. */
static rs_time patch_timeout(const rs_node *node, const rs_sending *x) {
    rs_time late = 0;
    if (node->config.patch_timeout)
        return node->config.patch_timeout;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        const rs_recipient *r = &x->recipients[i];
        rs_time its = rs_rtt_late(&r->link.peer->rtt, 10 * RS_MS);
        if (r->state == RS_RECIPIENT_ACTIVE && r->member && r->accepted && its > late)
            late = its;
    }
    late *= 2;
    return late < 5 * RS_MS ? 5 * RS_MS : late > 200 * RS_MS ? 200 * RS_MS : late;
}

static void data_done(rs_node *node, rs_time now, rs_sending *x) {
    rs_straggler_stop(x);
    bool coded = x->repair.coded;
    rs_data_stop(node, x);
    x->stats.data_done_at = now;
    x->light_due = x->pass_over_due = x->grace_due = x->dark_due = RS_NEVER;
    tell_all_dark(node, now, x);
    if (!rs_repair_tail(node, now, x)) {
        x->path_done_due = now + DRAIN;
        x->fnsd_due = now + (coded ? DRAIN : patch_timeout(node, x)); /* coded: they wait for it to ask for patches */
    }
    rs_sender_phase(node, x, RS_PHASE_PATCHING);
    rs_republic_schedule(node, now, x);
}

void rs_sender_data_over(rs_node *node, rs_time now, rs_sending *x, bool whole) {
    x->path_done_due = now + DRAIN;
    x->fnsd_due = whole ? now + patch_timeout(node, x) : now;
    rs_sender_arm(node, x);
}

static void count_light(rs_sending *x) {
    x->members = x->waiting = x->lit = 0;
    x->stop_pos = 0;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        const rs_recipient *r = &x->recipients[i];
        if (r->state != RS_RECIPIENT_ACTIVE || !r->member)
            continue;
        x->members++;
        if (!r->lit) {
            x->waiting += !r->passed_over;
            if (x->path_lit && !r->passed_over && x->light_pos + (x->end - x->first) > x->stop_pos)
                x->stop_pos = x->light_pos + (x->end - x->first); /* until it says where its round begins */
            continue;
        }
        x->lit++;
        if (r->start_pos + (x->end - x->first) > x->stop_pos)
            x->stop_pos = r->start_pos + (x->end - x->first);
    }
}

/* Where Fig. 3 goes from attempt to high rate and to the end, whatever changed: a light, a failure, a bound, the
 * position. */
void rs_republic_advance(rs_node *node, rs_time now, rs_sending *x) {
    if (x->phase != RS_PHASE_ATTEMPT && x->phase != RS_PHASE_HIGH_RATE)
        return;
    count_light(x);
    bool round_left = x->pos < x->stop_pos; /* some receiver with light has not had its whole round */
    bool all_lit = x->waiting == 0 && (x->lit > 0 || x->dark_passed || x->members == 0);
    if (all_lit && !round_left) {
        data_done(node, now, x);
    } else if (x->phase == RS_PHASE_ATTEMPT && round_left) {
        if (all_lit || x->path_lit || node->config.start_policy == RS_START_ON_FIRST)
            high_rate(node, now, x);
    } else if (x->phase == RS_PHASE_HIGH_RATE && !round_left) {
        /* Only receivers without light are left: no use in sending them more than attempts. */
        x->attempt_due = now + x->attempt_interval;
        rs_sender_phase(node, x, RS_PHASE_ATTEMPT);
        rs_republic_schedule(node, now, x);
    } else if (rs_list_empty(&x->in_ready) && x->data_timer.at == 0) {
        rs_republic_schedule(node, now, x); /* it had paused at the end of a round */
    }
    rs_sender_arm(node, x);
}

/* No path is held: the next one's session begins, or is waited for from now on, or is wanted. */
static void next_session(rs_node *node, rs_time now, rs_sending *x) {
    if (x->has_next) {
        x->has_next = false;
        start_session(node, now, x, &x->next_grant);
    } else if (x->path_wanted) {
        x->answer_due = now + node->config.answer_bound;
    } else {
        rs_sender_want_path(node, now, x);
    }
}

/* The drain after the last data packet is over, or nobody needs the path any more. */
void rs_sender_path_done(rs_node *node, rs_time now, rs_sending *x) {
    x->path_done_due = RS_NEVER;
    if (x->path_held)
        rs_emit(node, &(rs_event){.kind = RS_EV_PATH_DONE, .xfer = x->t.id, .session = x->t.session});
    x->path_held = false;
    if (x->done + x->failed == x->recipient_count) {
        if (x->has_next) /* granted, never used */
            rs_emit(node, &(rs_event){.kind = RS_EV_PATH_DONE, .xfer = x->t.id, .session = x->sessions});
        x->has_next = false;
        return;
    }
    next_session(node, now, x);
}

/* Light is not waited for any longer of those that have not accepted yet, or of all. DATA_FNSD will have them ask for
 * everything. */
static void pass_over(rs_node *node, rs_time now, rs_sending *x, bool accepted_too) {
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (r->state == RS_RECIPIENT_ACTIVE && r->member && !r->lit && (accepted_too || !r->accepted))
            r->passed_over = true;
    }
    x->dark_passed |= accepted_too;
    rs_republic_advance(node, now, x);
}

void rs_republic_sender_timeout(rs_node *node, rs_time now, rs_sending *x) {
    if (now >= x->advance_due) {
        x->advance_due = RS_NEVER;
        rs_republic_advance(node, now, x);
    }
    if (now >= x->light_due)
        tell_no_light(node, now, x);
    if (now >= x->pass_over_due) {
        x->pass_over_due = RS_NEVER;
        pass_over(node, now, x, false);
    }
    if (now >= x->grace_due)
        look_for_light(node, now, x);
    if (now >= x->dark_due) {
        x->dark_due = RS_NEVER;
        pass_over(node, now, x, true);
    }
    if (now >= x->repair.tail_due)
        rs_repair_timeout(node, now, x);
}

rs_time rs_republic_sender_due(const rs_sending *x) {
    const rs_time dues[] = {x->light_due, x->pass_over_due, x->grace_due,
                            x->dark_due,  x->advance_due,   x->repair.tail_due};
    rs_time due = RS_NEVER;
    for (size_t i = 0; i < sizeof dues / sizeof dues[0]; i++)
        due = dues[i] < due ? dues[i] : due;
    return due;
}

static bool grant_is_sane(const rs_sending *x, const rs_path_grant *g) {
    if (g->kind != RS_PATH_CIRCUIT && g->kind != RS_PATH_PACKET)
        return false;
    if (g->reconfiguration < 0 || g->reconfiguration > 60000 * RS_MS || g->light_bound < 0 || g->rate_bps < 0)
        return false;
    return g->light_bound <= 3600000 * RS_MS && (g->accepted_size > 0 || x->t.size == 0);
}

static rs_sending *sending(const rs_node *node, rs_xfer id) {
    rs_transfer *t = rs_by_id(node, id);
    return t && t->sending && !t->finished ? (rs_sending *)t : NULL;
}

static void note_dark(rs_sending *x, const rs_path_grant *grant) {
    for (uint32_t i = 0; i < x->recipient_count; i++)
        x->recipients[i].named_dark = false;
    for (uint32_t i = 0; i < grant->dark_count; i++) {
        rs_recipient *r = rs_recipient_of(x, grant->dark[i]);
        if (r)
            r->named_dark = true;
    }
}

rs_status rs_path_granted(rs_node *node, rs_time now, rs_xfer xfer, const rs_path_grant *grant) {
    rs_sending *x = sending(node, xfer);
    if (!x)
        return RS_ERR_UNKNOWN;
    if (!grant_is_sane(x, grant))
        return RS_ERR_INVALID;
    if (!x->path_wanted)
        return RS_ERR_STATE;
    if (!rs_sender_served(x, grant))
        return RS_ERR_INVALID;
    x->path_wanted = false;
    x->answer_due = RS_NEVER;
    note_dark(x, grant);
    if (x->path_held) {
        x->next_grant = *grant;
        x->next_grant.receivers = x->next_grant.dark = NULL;
        x->has_next = true;
    } else {
        start_session(node, now, x, grant);
    }
    rs_sender_arm(node, x);
    return RS_OK;
}

void rs_sender_no_path(rs_node *node, rs_time now, rs_sending *x, const char *cause) {
    x->path_wanted = false;
    x->answer_due = RS_NEVER;
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (x->recipients[i].wanted && x->recipients[i].state == RS_RECIPIENT_ACTIVE)
            rs_sender_fail(node, now, &x->recipients[i], true, cause);
    rs_sender_settle(node, now, x);
    if (!x->t.finished)
        rs_sender_want_path(node, now, x);
    rs_sender_arm(node, x);
}

rs_status rs_path_denied(rs_node *node, rs_time now, rs_xfer xfer, const char *cause) {
    rs_sending *x = sending(node, xfer);
    char words[RS_CAUSE_MAX];
    if (!x)
        return RS_ERR_UNKNOWN;
    if (!x->path_wanted)
        return RS_ERR_STATE;
    rs_words(words, sizeof words, "the path was denied: %s", cause ? cause : "no reason given");
    rs_sender_no_path(node, now, x, words);
    return RS_OK;
}

rs_status rs_path_moved(rs_node *node, rs_time now, rs_xfer xfer, rs_path_kind kind) {
    rs_sending *x = sending(node, xfer);
    if (!x)
        return RS_ERR_UNKNOWN;
    if (kind != RS_PATH_CIRCUIT && kind != RS_PATH_PACKET)
        return RS_ERR_INVALID;
    if (!x->path_held)
        return RS_ERR_STATE;
    if (x->phase != RS_PHASE_ATTEMPT && x->phase != RS_PHASE_HIGH_RATE)
        return RS_OK; /* the data channel is done with it */
    const rs_news news = {.what = RS_NEWS_PATH_MOVED, .kind = kind};
    if (x->t.engine->notify)
        x->t.engine->notify(node, now, &x->t, &news);
    return RS_OK;
}

static void path_moved(rs_node *node, rs_time now, rs_sending *x, rs_path_kind kind) {
    x->grant.kind = kind;
    if (kind == RS_PATH_PACKET)
        x->grant.reconfiguration = 0;
    set_attempt_interval(node, x);
    wait_for_light(node, now, x, true);
    if (x->phase == RS_PHASE_ATTEMPT && x->attempt_due > now + x->attempt_interval) {
        x->attempt_due = now + x->attempt_interval;
        rs_republic_schedule(node, now, x);
    }
    rs_republic_advance(node, now, x);
}

/* RS_START_ON_SWITCHES: a hint of the switches. */
static void light_seen(rs_node *node, rs_time now, rs_sending *x) {
    if (node->config.start_policy != RS_START_ON_SWITCHES || x->phase != RS_PHASE_ATTEMPT || x->path_lit)
        return;
    x->path_lit = true;
    x->light_pos = x->pos;
    rs_republic_advance(node, now, x);
}

void rs_republic_sender_news(rs_node *node, rs_time now, rs_sending *x, const rs_news *news) {
    switch (news->what) {
    case RS_NEWS_DATA_TIMER:
        rs_republic_schedule(node, now, x);
        break;
    case RS_NEWS_ACCEPTED:
        accepted(node, now, x, news->receiver);
        break;
    case RS_NEWS_REMOVED:
        rs_window_left(node, now, x, news->receiver);
        rs_repair_left(now, x, news->receiver);
        break;
    case RS_NEWS_RECEIVERS:
        rs_republic_advance(node, now, x);
        break;
    case RS_NEWS_PATH_MOVED:
        path_moved(node, now, x, news->kind);
        break;
    case RS_NEWS_PATH_LIGHT:
        light_seen(node, now, x);
        break;
    case RS_NEWS_RESUMED:
        resume(node, now, x);
        break;
    default:
        break;
    }
}

void rs_republic_sender_stop(rs_node *node, rs_sending *x) {
    rs_straggler_stop(x);
    rs_repair_end(node, x);
    x->light_due = x->pass_over_due = x->grace_due = x->dark_due = RS_NEVER;
}

rs_status rs_path_light(rs_node *node, rs_time now, rs_xfer xfer) {
    rs_sending *x = sending(node, xfer);
    if (!x)
        return RS_ERR_UNKNOWN;
    if (!x->path_held)
        return RS_ERR_STATE;
    rs_engine_notify(node, now, &x->t, RS_NEWS_PATH_LIGHT);
    return RS_OK;
}

rs_status rs_next_path_moved(rs_node *node, rs_time now, rs_xfer xfer, rs_path_kind kind) {
    rs_sending *x = sending(node, xfer);
    (void)now;
    if (!x)
        return RS_ERR_UNKNOWN;
    if (kind != RS_PATH_CIRCUIT && kind != RS_PATH_PACKET)
        return RS_ERR_INVALID;
    if (!x->has_next)
        return RS_ERR_STATE;
    x->next_grant.kind = kind;
    x->next_grant.rate_bps = 0; /* it was the other kind's */
    if (kind == RS_PATH_PACKET)
        x->next_grant.reconfiguration = 0;
    return RS_OK;
}

rs_status rs_next_path_failed(rs_node *node, rs_time now, rs_xfer xfer) {
    rs_sending *x = sending(node, xfer);
    if (!x)
        return RS_ERR_UNKNOWN;
    if (!x->has_next)
        return RS_ERR_STATE;
    x->has_next = false;
    rs_sender_want_path(node, now, x);
    rs_sender_arm(node, x);
    return RS_OK;
}

/* What is left becomes a session without a data channel: receivers ask for all they miss. */
static void finish_by_patches(rs_node *node, rs_time now, rs_sending *x) {
    bool sending = x->phase == RS_PHASE_ATTEMPT || x->phase == RS_PHASE_HIGH_RATE ||
                   x->t.engine != node->engines[0]; /* the fallback cannot go on where another engine was */
    rs_data_stop(node, x);
    rs_engine_drop(node, &x->t);
    x->no_data_channel = true;
    if (x->has_next) /* granted, never used */
        rs_emit(node, &(rs_event){.kind = RS_EV_PATH_DONE, .xfer = x->t.id, .session = x->sessions});
    x->path_wanted = x->has_next = false;
    x->answer_due = x->light_due = x->pass_over_due = x->grace_due = x->dark_due = x->path_done_due = RS_NEVER;
    if (!sending && x->end == x->t.fragments)
        return; /* the data channel had done its part */
    for (uint32_t i = 0; i < x->recipient_count; i++)
        x->recipients[i].wanted = x->recipients[i].member;
    begin_session(node, now, x, sending ? x->first : x->end, x->t.fragments);
    rs_sender_open_members(node, now, x);
    x->stats.data_done_at = now;
    x->fnsd_due = now;
    rs_sender_phase(node, x, RS_PHASE_PATCHING);
}

void rs_sender_unicast(rs_node *node, rs_time now, rs_sending *x, const char *cause) {
    rs_event log = {.kind = RS_EV_LOG, .xfer = x->t.id, .session = x->t.session};
    rs_words(log.cause, sizeof log.cause, "%s: the rest goes to each receiver by unicast", cause);
    rs_emit(node, &log);
    finish_by_patches(node, now, x);
    rs_sender_arm(node, x);
}

/* Those that the path was for; the others still want theirs. */
static void part_by_unicast(rs_node *node, rs_time now, rs_sending *x, bool held, const char *cause) {
    rs_event log = {.kind = RS_EV_LOG, .xfer = x->t.id, .session = x->t.session};
    rs_words(log.cause, sizeof log.cause, "%.100s: the rest goes to each receiver it was for by unicast", cause);
    rs_emit(node, &log);
    rs_sender_part_failed(node, now, x, held, cause);
    if (held) {
        rs_data_stop(node, x);
        rs_engine_stop(node, &x->t);
        x->stats.data_done_at = now;
        x->path_done_due = x->fnsd_due = RS_NEVER;
        rs_sender_phase(node, x, RS_PHASE_PATCHING);
    } else {
        x->path_wanted = false;
        x->answer_due = RS_NEVER;
    }
    next_session(node, now, x);
    rs_sender_settle(node, now, x);
    rs_sender_arm(node, x);
}

rs_status rs_path_failed(rs_node *node, rs_time now, rs_xfer xfer, const char *cause) {
    rs_sending *x = sending(node, xfer);
    rs_event log = {.kind = RS_EV_LOG, .xfer = xfer};
    if (!x)
        return RS_ERR_UNKNOWN;
    if (!x->path_wanted && !x->path_held)
        return x->sessions ? RS_OK : RS_ERR_STATE;
    bool held = x->path_held;
    x->path_held = false;
    if (x->sessions == 0) {
        rs_words(log.cause, sizeof log.cause, "no path: %s", cause ? cause : "no reason given");
        rs_sender_fail_all(node, now, x, log.cause);
        return RS_OK;
    }
    if (x->t.stream.on) {
        rs_words(log.cause, sizeof log.cause, "the path failed: %s", cause ? cause : "no reason given");
        rs_sender_fail_all(node, now, x, log.cause);
        return RS_OK;
    }
    rs_words(log.cause, sizeof log.cause, "the path failed: %s", cause ? cause : "no reason given");
    if (rs_sender_others(x))
        part_by_unicast(node, now, x, held, log.cause);
    else
        rs_sender_unicast(node, now, x, log.cause);
    return RS_OK;
}
