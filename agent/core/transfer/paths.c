/* Paths and sessions: one is wanted, granted, moves, fails or is done with; what is left goes by unicast. */
#include "core/transfer/paths.h"

#include "core/transfer/engine.h"

#define FEEDBACK (5 * RS_MS)

void rs_sender_phase(rs_node *node, rs_sending *x, rs_phase phase) {
    if (x->phase == phase)
        return;
    x->phase = phase;
    rs_emit(node, &(rs_event){.kind = RS_EV_PHASE, .xfer = x->t.id, .phase = phase, .session = x->t.session});
}

void rs_sender_want_path(rs_node *node, rs_time now, rs_sending *x) {
    if (x->next != RS_NEXT_NONE || !rs_sender_choose(x))
        return;
    x->next = RS_NEXT_WANTED;
    /* The manager may hold the answer back until the present path is released: that wait begins then. */
    x->answer_due = x->path_held ? RS_NEVER : now + node->config.answer_bound;
    rs_emit(node, &(rs_event){.kind = RS_EV_PATH_WANTED,
                              .xfer = x->t.id,
                              .bytes = x->t.size - x->wanted_from * x->t.fragment_size,
                              .session = x->sessions});
}

void rs_sender_open_members(rs_node *node, rs_time now, rs_sending *x) {
    rs_knock_begin(now, x);
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (!rs_is_active(r) || !r->member || r->light == RS_LIGHT_DEMOTED)
            continue;
        if (r->light == RS_LIGHT_LIT)
            r->light = RS_LIGHT_AWAITED;
        rs_control_set_pending(node, now, &r->link, RS_CONTROL_OPEN);
        rs_control_clear(node, now, &r->link, RS_CONTROL_DATA_FNSD); /* of the session before; OPEN says as much */
        if (rs_peer_is_up(r->link.peer) && !r->link.peer->rtt.smoothed && !r->reported)
            rs_ping(node, now, &r->link);
    }
}

/* For all that are wanted. */
static void begin_session(rs_node *node, rs_time now, rs_sending *x, uint64_t first, uint64_t end) {
    rs_sender_session_sent(x);
    rs_engine_notify(node, now, &x->t, RS_NEWS_SESSION);
    x->first = first;
    x->end = end;
    x->t.session = x->sessions++;
    x->pos = 0;
    rs_sender_join(node, now, x);
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
        rs_format(log.cause, sizeof log.cause, "a stream needs %s, which cannot be: %s", engine->name, why);
        rs_sender_fail_all(node, now, x, log.cause);
        return true;
    }
    rs_engine_drop(node, &x->t); /* a view may have come before, or memory ran short half way */
    rs_format(log.cause, sizeof log.cause, "by %s though %s was granted: %s", fallback->name, engine->name, why);
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
        RS_REPORTS_EACH * x->recipient_count > FEEDBACK ? RS_REPORTS_EACH * x->recipient_count : FEEDBACK;
    rs_rate_start(&x->rate, now, ceiling / 100 * 99 + 1, 2 * x->feedback_interval);
    rs_pacer_start(&x->pacer, now, rs_rate_bps(&x->rate));
    x->stats.granted_at = now;
    x->stats.high_rate_at = x->stats.data_done_at = 0;
    const rs_engine *engine = rs_engine_of(node, grant->protocol), *fallback = node->engines[0];
    if (engine && engine != fallback && begin_by(node, now, x, engine))
        return;
    if (rs_is_unicast(grant) || x->available < x->t.fragments)
        rs_sender_unicast(node, now, x, "nothing but patches can carry it");
    else
        fallback->path_granted(node, now, x);
}

/* No path is held: the next one's session begins, or is waited for from now on, or is wanted. */
static void next_session(rs_node *node, rs_time now, rs_sending *x) {
    if (x->next == RS_NEXT_GRANTED) {
        x->next = RS_NEXT_NONE;
        start_session(node, now, x, &x->next_grant);
    } else if (x->next == RS_NEXT_WANTED) {
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
        if (x->next == RS_NEXT_GRANTED) /* granted, never used */
            rs_emit(node, &(rs_event){.kind = RS_EV_PATH_DONE, .xfer = x->t.id, .session = x->sessions});
        x->next = RS_NEXT_NONE;
        return;
    }
    next_session(node, now, x);
}

static bool grant_is_sane(const rs_node *node, const rs_sending *x, const rs_path_grant *g) {
    const rs_engine *engine = rs_engine_of(node, g->protocol);
    bool unicast = rs_is_unicast(g) && engine && (engine->traits & RS_ENGINE_UNICAST);
    if (unicast && (x->recipient_count != 1 || g->group != RS_NO_GROUP || g->data_port != 0))
        return false;
    if (g->kind != RS_PATH_CIRCUIT && g->kind != RS_PATH_PACKET)
        return false;
    if (g->reconfiguration < 0 || g->reconfiguration > 60000 * RS_MS || g->light_bound < 0 || g->rate_bps < 0)
        return false;
    return g->light_bound <= 3600000 * RS_MS && (g->accepted_size > 0 || x->t.size == 0);
}

static rs_sending *sending(const rs_node *node, rs_xfer id) {
    rs_transfer *t = rs_by_id(node, id);
    return t && t->sending && !rs_is_finished(t) ? (rs_sending *)t : NULL;
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
    if (!grant_is_sane(node, x, grant))
        return RS_ERR_INVALID;
    if (x->next != RS_NEXT_WANTED)
        return RS_ERR_STATE;
    if (!rs_sender_served(x, grant))
        return RS_ERR_INVALID;
    x->next = RS_NEXT_NONE;
    x->answer_due = RS_NEVER;
    note_dark(x, grant);
    if (x->path_held) {
        x->next_grant = *grant;
        x->next_grant.receivers = x->next_grant.dark = NULL;
        x->next = RS_NEXT_GRANTED;
    } else {
        start_session(node, now, x, grant);
    }
    rs_sender_arm(node, x);
    return RS_OK;
}

void rs_sender_no_path(rs_node *node, rs_time now, rs_sending *x, const char *cause) {
    x->next = RS_NEXT_NONE;
    x->answer_due = RS_NEVER;
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (x->recipients[i].wanted && rs_is_active(&x->recipients[i]))
            rs_sender_fail(node, now, &x->recipients[i], true, cause);
    rs_sender_settle(node, now, x);
    if (!rs_is_finished(&x->t))
        rs_sender_want_path(node, now, x);
    rs_sender_arm(node, x);
}

rs_status rs_path_denied(rs_node *node, rs_time now, rs_xfer xfer, const char *cause) {
    rs_sending *x = sending(node, xfer);
    char text[RS_CAUSE_MAX];
    if (!x)
        return RS_ERR_UNKNOWN;
    if (x->next != RS_NEXT_WANTED)
        return RS_ERR_STATE;
    rs_format(text, sizeof text, "the path was denied: %s", cause ? cause : "no reason given");
    rs_sender_no_path(node, now, x, text);
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
    if (x->next != RS_NEXT_GRANTED)
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
    if (x->next != RS_NEXT_GRANTED)
        return RS_ERR_STATE;
    x->next = RS_NEXT_NONE;
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
    x->grant.kind = (rs_path_kind)RS_OPEN_NO_PATH;
    x->grant.group_address = x->grant.data_port = 0;
    if (x->next == RS_NEXT_GRANTED) /* granted, never used */
        rs_emit(node, &(rs_event){.kind = RS_EV_PATH_DONE, .xfer = x->t.id, .session = x->sessions});
    x->next = RS_NEXT_NONE;
    x->answer_due = x->path_done_due = RS_NEVER;
    if (!sending && x->end == x->t.fragments) { /* the data channel had done its part, but for repairs of a tail */
        rs_engine_stop(node, &x->t);
        if (!x->fnsd_said && x->fnsd_due == RS_NEVER)
            x->fnsd_due = now;
        return;
    }
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
    rs_format(log.cause, sizeof log.cause, "%s: the rest goes to each receiver by unicast", cause);
    rs_emit(node, &log);
    finish_by_patches(node, now, x);
    rs_sender_arm(node, x);
}

/* Those that the path was for; the others still want theirs. */
static void part_by_unicast(rs_node *node, rs_time now, rs_sending *x, bool held, const char *cause) {
    rs_event log = {.kind = RS_EV_LOG, .xfer = x->t.id, .session = x->t.session};
    rs_format(log.cause, sizeof log.cause, "%.100s: the rest goes to each receiver it was for by unicast", cause);
    rs_emit(node, &log);
    rs_sender_part_failed(node, now, x, held, cause);
    if (held) {
        rs_data_stop(node, x);
        rs_engine_stop(node, &x->t);
        x->stats.data_done_at = now;
        x->path_done_due = x->fnsd_due = RS_NEVER;
        rs_sender_phase(node, x, RS_PHASE_PATCHING);
    } else {
        x->next = RS_NEXT_NONE;
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
    if (x->next != RS_NEXT_WANTED && !x->path_held)
        return x->sessions ? RS_OK : RS_ERR_STATE;
    bool held = x->path_held;
    x->path_held = false;
    if (x->sessions == 0) {
        rs_format(log.cause, sizeof log.cause, "no path: %s", cause ? cause : "no reason given");
        rs_sender_fail_all(node, now, x, log.cause);
        return RS_OK;
    }
    rs_format(log.cause, sizeof log.cause, "the path failed: %s", cause ? cause : "no reason given");
    if (x->t.stream.on && x->t.own)
        rs_stream_unicast(node, now, x, log.cause);
    else if (x->t.stream.on)
        rs_sender_fail_all(node, now, x, log.cause);
    else if (rs_sender_others(x))
        part_by_unicast(node, now, x, held, log.cause);
    else
        rs_sender_unicast(node, now, x, log.cause);
    return RS_OK;
}

/* Who comes to a session, and who leaves. */

/* The data channel is over for it, until another session is for it again. */
static void leave(rs_node *node, rs_time now, rs_recipient *r) {
    r->member = false;
    if (!rs_is_active(r) || r->light == RS_LIGHT_DEMOTED)
        return;
    if (r->light == RS_LIGHT_LIT)
        r->light = RS_LIGHT_AWAITED;
    r->progress_at = now;
    rs_control_set_pending(node, now, &r->link, RS_CONTROL_DATA_FNSD);
}

void rs_sender_join(rs_node *node, rs_time now, rs_sending *x) {
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        bool joins = r->wanted && rs_is_active(r) && r->light != RS_LIGHT_DEMOTED;
        r->wanted = false;
        if (r->member && !joins)
            leave(node, now, r);
        if (!joins)
            continue;
        if (r->state == RS_RECIPIENT_NEW) {
            r->state = RS_RECIPIENT_OPENED;
            r->link.heard_at = now; /* from now on it owes answers */
        }
        r->member = true;
        r->session = x->t.session;
        r->first = x->first;
        r->reached = x->end;
    }
    rs_sender_count(x);
}

void rs_sender_demote(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r) {
    r->light = RS_LIGHT_DEMOTED;
    r->progress_at = now;
    const rs_news news = {.what = RS_NEWS_LEFT, .receiver = r};
    if (x->t.engine->notify)
        x->t.engine->notify(node, now, &x->t, &news);
    rs_control_set_pending(node, now, &r->link, RS_CONTROL_OPEN | RS_CONTROL_DATA_FNSD);
}

void rs_sender_part_failed(rs_node *node, rs_time now, rs_sending *x, bool held, const char *cause) {
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (!rs_is_active(r) || r->light == RS_LIGHT_DEMOTED || !(held ? r->member : r->wanted))
            continue;
        if (rs_is_opened(r))
            rs_sender_demote(node, now, x, r);
        else
            rs_sender_fail(node, now, r, false, cause); /* it never had a path, and its address may not be known */
    }
}

bool rs_path_wants(const rs_node *node, rs_xfer xfer, rs_peer peer) {
    const rs_transfer *t = rs_by_id(node, xfer);
    if (!t || !t->sending || rs_is_finished(t) || ((const rs_sending *)t)->next != RS_NEXT_WANTED)
        return false;
    const rs_recipient *r = rs_recipient_of((const rs_sending *)t, peer);
    return r && r->wanted && rs_is_active(r);
}
