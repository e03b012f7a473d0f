/* A sending transfer from open to SEND_DONE: recipients done and failed, waits that end, connections up and down. */
#include "core/transfer/sender.h"

#include "core/transfer/engine.h"

#include <string.h>

#define LINGER (1000 * RS_MS) /* how long final messages (ABORT) and statistics stay */
#define TICK_LEAST (10 * RS_MS)
#define TICK_MOST (500 * RS_MS)
#define EVENTS_EACH 2u              /* that one call may make of each receiver: nothing came to it, and it failed */
#define OVER_BY_OTHERS (20 * RS_MS) /* of the 100 ms that one which fails may cost (docs/feedback.md) */
#define KEPT_AGAIN RS_CONTROL_LATE  /* who fetches the rest is asked so often whether it has it */

static rs_time tick(const rs_node *node) {
    rs_time tick = node->config.receiver_silence_bound / 10;
    return tick < TICK_LEAST ? TICK_LEAST : tick > TICK_MOST ? TICK_MOST : tick;
}

static const rs_talk talk;

static rs_status add_recipients(rs_node *node, rs_time now, rs_sending *x, const rs_send_params *params) {
    for (uint32_t i = 0; i < params->receiver_count; i++) {
        rs_recipient *r = &x->recipients[i];
        rs_peer_state *peer = rs_make_peer(node, params->receivers[i]);
        if (!peer)
            return RS_ERR_MEMORY;
        if (rs_recipient_of(x, peer->id)) {
            rs_drop_peer_if_idle(node, peer);
            return RS_ERR_INVALID;
        }
        rs_peer_session_attach(&r->link, &talk, peer, &x->t, now);
        rs_recipient_index(x, i);
    }
    return RS_OK;
}

void rs_sender_free(rs_node *node, rs_transfer *t) {
    rs_sending *x = (rs_sending *)t;
    rs_data_stop(node, x);
    rs_engine_stop(node, &x->t);
    rs_engine_drop(node, &x->t);
    rs_leave(node, &x->t);
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (x->recipients[i].carrier) /* before whom they go by */
            rs_peer_session_end(node, &x->recipients[i].link);
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_sender_wants_nothing(node, &x->recipients[i]);
        rs_peer_session_end(node, &x->recipients[i].link);
    }
    rs_carriers_free(node, x);
    rs_memory_give(&node->allocator, x->asked);
    rs_memory_give(&node->allocator, x->index);
    rs_memory_give(&node->allocator, x->recipients);
    rs_memory_give(&node->allocator, x);
}

/* A node that was restarted with its old seed draws another number all the same. */
static uint64_t draw_nonce(rs_node *node, rs_time now) {
    node->random += (uint64_t)now;
    for (;;) {
        uint64_t nonce = rs_random(node);
        if (nonce && !rs_find_nonce(node, nonce, false) && !rs_find_nonce(node, nonce, true))
            return nonce;
    }
}

static void arm(rs_node *node, rs_transfer *t) {
    rs_sender_arm(node, (rs_sending *)t);
}

static rs_sending *make(rs_node *node, rs_time now, const rs_send_params *params) {
    uint32_t places = 4;
    while (places < 2 * params->receiver_count)
        places *= 2;
    const rs_engine *fallback = node->engines[0];
    rs_sending *x = rs_memory_take(&node->allocator, sizeof *x + fallback->sending_size);
    if (!x)
        return NULL;
    x->recipients =
        rs_memory_take(&node->allocator, params->receiver_count * (sizeof *x->recipients + fallback->recipient_size));
    x->index = rs_memory_take(&node->allocator, places * sizeof *x->index);
    if (!x->recipients || !x->index) {
        rs_memory_give(&node->allocator, x->index);
        rs_memory_give(&node->allocator, x->recipients);
        rs_memory_give(&node->allocator, x);
        return NULL;
    }
    uint8_t *theirs = (uint8_t *)(x->recipients + params->receiver_count);
    for (uint32_t i = 0; i < params->receiver_count; i++)
        x->recipients[i].fallback = theirs + i * fallback->recipient_size;
    x->index_mask = places - 1;
    x->t.fallback = x + 1;
    x->t.sending = true;
    x->t.free = rs_sender_free;
    x->t.arm = arm;
    x->t.object = params->object;
    x->t.size = params->size;
    x->t.fragment_size = node->config.fragment_size;
    x->t.fragments = rs_fragments(params->size, node->config.fragment_size);
    x->t.digest = params->digest;
    x->available = params->grows ? 0 : UINT64_MAX;
    x->t.engine = fallback;
    x->t.stream.on = params->size == RS_STREAM;
    x->stragglers = params->stragglers ? params->stragglers : node->config.stragglers;
    x->t.reserved_events = 16 + EVENTS_EACH * params->receiver_count;
    x->t.timer = (rs_timer){.due = RS_NEVER, .kind = RS_TIMER_SENDING, .owner = x};
    x->data_timer = (rs_timer){.due = RS_NEVER, .kind = RS_TIMER_DATA, .owner = x};
    rs_list_init(&x->in_ready);
    x->answer_due = x->path_done_due = x->fnsd_due = x->carried_due = x->knock_due = RS_NEVER;
    if (fallback->prepare)
        fallback->prepare(now, &x->t);
    return x;
}

rs_status rs_send_open(rs_node *node, rs_time now, const rs_send_params *params, rs_xfer *out) {
    char text[64];
    if (!params->receivers || params->receiver_count == 0 || params->digest.length > sizeof params->digest.value)
        return RS_ERR_INVALID;
    const rs_engine *engine = rs_engine_of(node, params->protocol);
    if (params->stragglers > RS_STRAGGLERS_EVICT || !engine || (params->size == RS_STREAM && !engine->stream))
        return RS_ERR_INVALID;
    bool optioned = params->options && params->options[0];
    if (optioned && !rs_send_options_good(node, params->protocol, params->options, text, sizeof text))
        return RS_ERR_INVALID;
    if (!params->beside && rs_find_sending(node, &params->object))
        return RS_ERR_EXISTS;
    if (params->grows && params->size == RS_STREAM)
        return RS_ERR_INVALID;
    if (params->receiver_count > node->config.max_receivers)
        return RS_ERR_LIMIT;
    if (params->size != RS_STREAM && rs_fragments(params->size, node->config.fragment_size) > RS_FRAGMENTS_MAX)
        return RS_ERR_LIMIT;
    rs_sending *x = make(node, now, params);
    if (!x)
        return RS_ERR_MEMORY;
    x->t.nonce = draw_nonce(node, now);
    rs_receiver_make_place(node, now, NULL);
    rs_status status = rs_enter(node, &x->t);
    if (status != RS_OK) {
        rs_memory_give(&node->allocator, x->index);
        rs_memory_give(&node->allocator, x->recipients);
        rs_memory_give(&node->allocator, x);
        return status;
    }
    x->recipient_count = params->receiver_count;
    status = add_recipients(node, now, x, params);
    if (status == RS_OK && optioned && !rs_engine_keep_options(node, x, engine, params->options))
        status = RS_ERR_MEMORY;
    if (status != RS_OK) {
        rs_sender_free(node, &x->t);
        return status;
    }
    x->tick_due = now + tick(node);
    x->stats.sending = true;
    *out = x->t.id;
    /* Connections come up while the manager looks for a path; of many it is known then to whom there will be any. */
    bool carried = rs_carriers_likely(node, engine, x->recipient_count);
    for (uint32_t i = 0; i < x->recipient_count && !carried; i++)
        rs_control_set_pending(node, now, &x->recipients[i].link, RS_CONTROL_CONNECT);
    if (carried)
        rs_carriers_connect(node, now, x);
    rs_sender_want_path(node, now, x);
    rs_sender_arm(node, x);
    return RS_OK;
}

static void leave_alone(rs_node *node, rs_time now, rs_recipient *r) {
    rs_sender_wants_nothing(node, r);
    rs_patch_ready(node, now, &r->link, false);
    rs_control_clear(node, now, &r->link, UINT32_MAX);
    const rs_news news = {.what = RS_NEWS_REMOVED, .receiver = r};
    if (r->link.transfer->engine->notify)
        r->link.transfer->engine->notify(node, now, r->link.transfer, &news);
}

void rs_sender_done(rs_node *node, rs_time now, rs_recipient *r, uint64_t patched, bool had_it) {
    rs_sending *x = (rs_sending *)r->link.transfer;
    r->state = RS_RECIPIENT_DONE;
    r->patched = patched;
    x->done++;
    x->kept -= r->kept;
    leave_alone(node, now, r);
    if (had_it)
        rs_carriers_lost(node, now, x, r);
    rs_emit(node, &(rs_event){.kind = RS_EV_PEER_DONE,
                              .xfer = x->t.id,
                              .peer = r->link.peer->id,
                              .ok = true,
                              .had_it = had_it,
                              .bytes = patched,
                              .session = x->t.session});
}

void rs_sender_fail(rs_node *node, rs_time now, rs_recipient *r, bool tell, const char *cause) {
    rs_sending *x = (rs_sending *)r->link.transfer;
    rs_event event = {.kind = RS_EV_PEER_FAILED, .xfer = x->t.id, .peer = r->link.peer->id, .session = x->t.session};
    bool opened = rs_is_opened(r);
    rs_sender_failed(x, r);
    if (x->first_cause[0] == '\0')
        rs_format(x->first_cause, sizeof x->first_cause, "%s", cause);
    leave_alone(node, now, r);
    rs_carriers_lost(node, now, x, r);
    rs_format(event.cause, sizeof event.cause, "%s", cause);
    rs_text_keep(node, &r->link.cause, event.cause);
    if (tell && opened && rs_link_is_up(&r->link))
        rs_control_set_pending(node, now, &r->link, RS_CONTROL_ABORT);
    rs_emit(node, &event);
}

static void left(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r) {
    rs_sender_failed(x, r);
    x->left++;
    leave_alone(node, now, r);
    rs_carriers_lost(node, now, x, r);
    rs_emit(node, &(rs_event){.kind = RS_EV_PEER_LEFT,
                              .xfer = x->t.id,
                              .peer = r->link.peer->id,
                              .cause = "it left the transfer",
                              .session = x->t.session});
    rs_sender_settle(node, now, x);
}

void rs_sender_fail_all(rs_node *node, rs_time now, rs_sending *x, const char *cause) {
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (rs_is_active(&x->recipients[i]))
            rs_sender_fail(node, now, &x->recipients[i], true, cause);
    rs_sender_settle(node, now, x);
}

/* Somebody takes what is sent. */
static bool path_is_needed(const rs_sending *x) {
    return x->done + x->failed + x->kept < x->recipient_count;
}

/* All that are left fetch the rest otherwise. */
static void need_no_path(rs_node *node, rs_time now, rs_sending *x) {
    rs_data_stop(node, x);
    rs_engine_stop(node, &x->t);
    x->stats.data_done_at = now;
    x->fnsd_due = RS_NEVER;
    rs_sender_phase(node, x, RS_PHASE_PATCHING);
    if (x->path_held)
        rs_sender_path_done(node, now, x);
}

void rs_sender_settle(rs_node *node, rs_time now, rs_sending *x) {
    if (rs_is_finished(&x->t))
        return;
    if (x->done + x->failed < x->recipient_count && !path_is_needed(x)) {
        need_no_path(node, now, x);
        rs_sender_arm(node, x);
        return;
    }
    if (x->done + x->failed < x->recipient_count) {
        rs_engine_notify(node, now, &x->t, RS_NEWS_RECEIVERS);
        rs_sender_arm(node, x);
        return;
    }
    rs_event event = {
        .kind = RS_EV_SEND_DONE, .xfer = x->t.id, .ok = x->failed == x->left && x->done > 0, .bytes = x->done};
    rs_data_stop(node, x);
    rs_engine_stop(node, &x->t);
    if (x->stats.data_done_at == 0 && x->sessions)
        x->stats.data_done_at = now;
    rs_sender_path_done(node, now, x);
    rs_sender_phase(node, x, RS_PHASE_DONE);
    if (x->failed > x->left)
        rs_format(event.cause, sizeof event.cause, "%u of %u receivers failed; the first: %.120s", x->failed - x->left,
                  x->recipient_count, x->first_cause);
    else if (!event.ok)
        rs_format(event.cause, sizeof event.cause, "all receivers left");
    event.session = x->t.session;
    event.phase = RS_PHASE_DONE;
    rs_emit(node, &event);
    rs_list_remove(&x->t.hashed);
    rs_retire(node, &x->t);
    rs_timer_set(&node->timers, &x->t.timer, now + LINGER);
}

/* Patches have an end, and so has whoever asks for ever. True: it was given up. */
bool rs_sender_too_many(rs_node *node, rs_time now, rs_recipient *r) {
    rs_sending *x = (rs_sending *)r->link.transfer;
    if (r->patches_sent <= 8 * x->t.fragments + 1024)
        return false;
    rs_sender_fail(node, now, r, true, "asks for the same fragments over and over: 8 times the object was patched");
    rs_sender_settle(node, now, x);
    return true;
}

void rs_sender_patch(rs_node *node, rs_time now, rs_recipient *r, uint64_t from, uint64_t to) {
    if (rs_sender_too_many(node, now, r))
        return;
    r->progress_at = now;
    if (rs_sender_wants(node, r, from, to))
        rs_patch_ready(node, now, &r->link, true);
}

static const char *seconds(char *out, size_t size, rs_time time) {
    rs_format(out, size, "%lld.%lld s", (long long)(time / (1000 * RS_MS)), (long long)(time / (100 * RS_MS) % 10));
    return out;
}

/* Thousands that others report of say seldom themselves how far they are, and nothing is waited for sooner. But whose
 * connection ended is to come back, and when all is sent each has to answer. */
static rs_time silent_since(const rs_node *node, rs_time now, const rs_sending *x, const rs_recipient *r) {
    const rs_peer_state *p = r->link.peer;
    rs_time heard = r->link.heard_at, until = now; /* the time between two is a random one, of said_each on average */
    rs_time due = heard + x->said_each + x->said_each / 2 + tick(node) - node->config.receiver_silence_bound / 2;
    if (!r->reported || due <= heard)
        return heard;
    if (x->stats.data_done_at && x->stats.data_done_at < until)
        until = x->stats.data_done_at;
    if (!rs_link_is_up(&r->link) && p->down_since < until)
        until = p->down_since;
    until = until < due ? until : due;
    return until > heard ? until : heard;
}

/* True if the recipient was given up. */
static bool watch_one(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r) {
    const rs_peer_state *p = r->link.peer;
    bool up = rs_link_is_up(&r->link);
    if (r->kept && up && now - r->progress_at >= KEPT_AGAIN) {
        r->progress_at = now;
        rs_control_set_pending(node, now, &r->link, RS_CONTROL_OPEN);
    }
    rs_time bound = node->config.receiver_silence_bound, stall = node->config.no_path_bound;
    /* Before the first path nobody owes anything, and the caller may not even know the addresses. */
    rs_time since = rs_is_opened(r) ? silent_since(node, now, x, r) : RS_NEVER;
    rs_time over = r->member ? x->stats.data_done_at : 0, progress = r->progress_at > over ? r->progress_at : over;
    bool all_sent = !r->kept && r->reached >= x->t.fragments && (!r->member || x->phase == RS_PHASE_PATCHING);
    char text[RS_CAUSE_MAX], time[32];
    if (since != RS_NEVER && now - since >= bound) {
        seconds(time, sizeof time, now - since);
        if (up)
            rs_format(text, sizeof text, "said nothing for %s though its control channel is up", time);
        else
            rs_format(text, sizeof text, "cannot be reached for %s: %s", time,
                      p->down_cause ? p->down_cause : "no connection came up");
    } else if (all_sent && !rs_digest_follows(&x->t.digest) && now - progress >= stall &&
               !x->t.stream.on) { /* whose program may still be taking what came */
        rs_format(text, sizeof text, "is alive but neither asked for patches nor confirmed the object for %s",
                  seconds(time, sizeof time, now - progress));
    } else {
        rs_time at_end = x->phase == RS_PHASE_PATCHING ? now - x->stats.data_done_at : 0;
        bool doubtful = at_end >= (r->challenge ? bound / 2 : bound / 5); /* one that cannot ask may not be reached */
        if (r->carrier && rs_is_opened(r) && (now - since >= bound / 4 * 3 || doubtful))
            rs_carriers_doubt(node, now, x, r);
        rs_time quiet = r->reported ? bound / 2 : tick(node);
        if (rs_is_opened(r) && !r->kept && up && now - since >= quiet)
            rs_control_set_pending(node, now, &r->link, /* its answer to OPEN may be lost: it had no room for it */
                                   RS_CONTROL_PING | (rs_has_accepted(r) || r->link.via ? 0 : RS_CONTROL_OPEN));
        return false;
    }
    rs_sender_fail(node, now, r, true, text);
    return true;
}

static void watch(rs_node *node, rs_time now, rs_sending *x) {
    bool any = false;
    x->tick_due = now + tick(node);
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (rs_is_active(&x->recipients[i]))
            any |= watch_one(node, now, x, &x->recipients[i]);
    if (any)
        rs_sender_settle(node, now, x);
}

/* Who has no connection says by a datagram that it is whole, which may be lost: it is asked again, less and less
 * often. */
static rs_time finished_again(rs_time now, const rs_sending *x) {
    rs_time since = now - x->stats.data_done_at;
    return now + (since < OVER_BY_OTHERS ? OVER_BY_OTHERS : since < RS_REQUEST_TIMEOUT ? since : RS_REQUEST_TIMEOUT);
}

static void say_finished(rs_node *node, rs_time now, rs_sending *x) {
    bool again = x->fnsd_said;
    x->fnsd_due = RS_NEVER;
    x->fnsd_said = true;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (!rs_is_active(r) || !r->member)
            continue;
        if (again || !rs_hears_of_others(r))
            rs_control_set_pending(node, now, &r->link, RS_CONTROL_DATA_FNSD);
        if (!again && rs_hears_of_others(r))
            x->fnsd_due = now + OVER_BY_OTHERS;
        else if (r->carrier)
            x->fnsd_due = finished_again(now, x);
    }
}

static void no_answer(rs_node *node, rs_time now, rs_sending *x) {
    char text[RS_CAUSE_MAX], time[32];
    rs_format(text, sizeof text, "no answer to the path request for %s; ask the manager why",
              seconds(time, sizeof time, node->config.answer_bound));
    rs_sender_no_path(node, now, x, text);
}

void rs_sender_timeout(rs_node *node, rs_time now, rs_sending *x) {
    if (rs_is_finished(&x->t)) {
        rs_sender_free(node, &x->t);
        return;
    }
    if (x->t.engine->timeout)
        x->t.engine->timeout(node, now, &x->t);
    if (now >= x->fnsd_due)
        say_finished(node, now, x);
    rs_carriers_timeout(node, now, x);
    rs_knock_timeout(node, now, x);
    if (now >= x->path_done_due)
        rs_sender_path_done(node, now, x);
    if (now >= x->answer_due)
        no_answer(node, now, x);
    if (!rs_is_finished(&x->t) && now >= x->tick_due)
        watch(node, now, x);
    if (!rs_is_finished(&x->t))
        rs_sender_arm(node, x);
}

void rs_sender_arm(rs_node *node, rs_sending *x) {
    const rs_time dues[] = {x->answer_due, x->path_done_due, x->fnsd_due, x->tick_due, x->carried_due, x->knock_due};
    rs_transfer_arm(node, &x->t, dues, sizeof dues / sizeof dues[0]);
}

rs_status rs_send_cancel(rs_node *node, rs_time now, rs_xfer xfer, const char *cause) {
    rs_transfer *t = rs_by_id(node, xfer);
    char text[RS_CAUSE_MAX];
    if (!t || !t->sending || rs_is_finished(t))
        return RS_ERR_UNKNOWN;
    rs_format(text, sizeof text, "cancelled by the sender: %s", cause ? cause : "no reason given");
    rs_sender_fail_all(node, now, (rs_sending *)t, text);
    return RS_OK;
}

/* ------------------------------------------------------------------------------- what is said, and what comes in */

/* To one that has left the data channel: its session is the whole object, by patches. */
static void open_apart(const rs_node *node, const rs_sending *x, rs_message *m) {
    m->open.first = 0;
    m->open.end = x->t.fragments;
    m->open.group_address = 0;
    m->open.data_port = 0;
    m->open.path_kind = RS_OPEN_NO_PATH;
    m->open.engine = node->engines[0]->id;
}

/* To one whose session is over: what that did not bring comes by patches. */
static void open_over(const rs_node *node, const rs_recipient *r, rs_message *m) {
    m->open.first = r->first;
    m->open.end = r->reached;
    m->open.group_address = 0;
    m->open.data_port = 0;
    m->open.path_kind = RS_OPEN_NO_PATH;
    m->open.engine = node->engines[0]->id;
}

static void open_says(const rs_sending *x, rs_message *m) {
    m->type = RS_MSG_OPEN;
    m->open.size = x->t.size;
    m->open.fragment_size = x->t.fragment_size;
    m->open.first = x->first;
    m->open.end = x->end;
    m->open.object = x->t.object;
    m->open.engine = x->t.engine->id;
    m->open.feedback_us = (uint32_t)(x->feedback_interval / 1000);
    m->open.digest = x->t.digest;
    m->open.light_confirm = (uint8_t)x->light_confirm;
    m->open.group_address = x->grant.group_address;
    m->open.data_port = x->grant.data_port;
    m->open.path_kind = (uint8_t)x->grant.kind;
}

static void opens(const rs_node *node, const rs_sending *x, const rs_recipient *r, rs_message *m) {
    open_says(x, m);
    m->session = r->light == RS_LIGHT_DEMOTED ? RS_SESSION_DEMOTED : r->session;
    if (r->light == RS_LIGHT_DEMOTED) {
        open_apart(node, x, m);
    } else if (!r->member) {
        open_over(node, r, m);
    } else if (!rs_has_accepted(r) && x->t.stream.on) {
        m->open.size = RS_STREAM; /* or who has not heard of it would take it for an object; its end it hears then */
        m->open.end = RS_STREAM_FRAGMENTS;
    }
}

/* What the caller tells others by their connections goes to who has none like the rest. */
static bool name_says(const rs_node *node, const rs_sending *x, rs_message *m) {
    const rs_directory *d = &node->config.directory;
    const char *name = d->object_name ? d->object_name(d->context, &x->t.object) : "";
    m->type = RS_MSG_NAME;
    m->name.object = x->t.object;
    m->name.length = (uint16_t)strnlen(name, RS_NAME_MAX);
    memcpy(m->name.text, name, m->name.length);
    return m->name.length > 0;
}

static bool says(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what, rs_message *m, bool *more) {
    const rs_sending *x = (const rs_sending *)link->transfer;
    const rs_recipient *r = RS_HOLDER(rs_recipient, link, link);
    (void)now;
    if (rs_is_finished(&x->t) || !rs_is_active(r))
        return false;
    if (what == RS_CONTROL_OPEN || what == RS_CONTROL_TELL) { /* by a datagram, what OPEN says */
        opens(node, x, r, m);
        return what == RS_CONTROL_OPEN || link->via;
    }
    if (what == RS_CONTROL_DATA_FNSD)
        m->type = RS_MSG_DATA_FNSD;
    else if (what == RS_CONTROL_LEAVES)
        return rs_leaves_said(x, r, m);
    else if (what == RS_CONTROL_CARRY_TO)
        return rs_carriers_tell(node, x, r, m, more);
    else if (what == RS_CONTROL_NAME)
        return name_says(node, x, m);
    else
        return x->t.engine->tell && x->t.engine->tell(node, x, r, what, m);
    m->session = r->light == RS_LIGHT_DEMOTED ? RS_SESSION_DEMOTED : r->session;
    return true;
}

/* The receiver may have missed what was on the way: it gets the OPEN again, answers, and asks again for what it
 * misses. */
static void peer_up(rs_node *node, rs_time now, rs_peer_session *link) {
    rs_recipient *r = RS_HOLDER(rs_recipient, link, link);
    rs_sending *x = (rs_sending *)r->link.transfer;
    const rs_directory *d = &node->config.directory;
    rs_carriers_leave(node, now, r);
    if (d->carries && !d->carries(d->context, link->peer->id))
        rs_carriers_lost(node, now, x, r);
    if (r->state == RS_RECIPIENT_FAILED && link->cause)
        rs_control_set_pending(node, now, link, RS_CONTROL_ABORT); /* it asks, as another one told it so */
    if (!rs_is_active(r) || !rs_is_opened(r))
        return;
    bool over = r->light == RS_LIGHT_DEMOTED || !r->member || x->fnsd_said;
    if (r->kept)
        over = false;
    rs_control_set_pending(node, now, &r->link,
                           RS_CONTROL_OPEN | (r->kept || r->reported ? 0 : RS_CONTROL_PING) |
                               (over ? RS_CONTROL_DATA_FNSD : 0));
    const rs_news news = {.what = RS_NEWS_CONNECTED, .receiver = r};
    if (rs_has_accepted(r) && x->t.engine->notify)
        x->t.engine->notify(node, now, &x->t, &news);
}

static void peer_down(rs_node *node, rs_time now, rs_peer_session *link) {
    rs_recipient *r = RS_HOLDER(rs_recipient, link, link);
    leave_alone(node, now, r);
    rs_carriers_lost(node, now, (rs_sending *)link->transfer, r);
    if (rs_is_active(r))
        rs_control_set_pending(node, now, &r->link, rs_is_opened(r) ? RS_CONTROL_OPEN : RS_CONTROL_CONNECT);
}

static const rs_talk talk = {.says = says, .up = peer_up, .down = peer_down, .carried = rs_carriers_wrap};

/* Nothing goes to it by this transfer any more. When it was the last, the path is given back. */
static void keeps(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r) {
    if (r->kept)
        return;
    r->kept = true;
    x->kept++;
    r->state = RS_RECIPIENT_OPENED;
    r->light = RS_LIGHT_DEMOTED;
    const rs_news news = {.what = RS_NEWS_LEFT, .receiver = r};
    if (x->t.engine->notify)
        x->t.engine->notify(node, now, &x->t, &news);
    x->taking -= r->member;
    r->member = r->wanted = false;
    leave_alone(node, now, r);
    rs_carriers_lost(node, now, x, r);
    rs_emit(node, &(rs_event){.kind = RS_EV_PEER_KEPT, .xfer = x->t.id, .peer = r->link.peer->id});
    if (!path_is_needed(x))
        need_no_path(node, now, x);
    else
        rs_engine_notify(node, now, &x->t, RS_NEWS_RECEIVERS);
}

static rs_rx_verdict on_open_ack(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    char cause[RS_CAUSE_MAX];
    r->progress_at = now;
    if (m->open_ack.status == RS_ACK_KEPT) {
        keeps(node, now, x, r);
        rs_sender_arm(node, x);
        return RS_RX_NONE;
    }
    if (m->open_ack.status == RS_ACK_HAVE) {
        /* One that had accepted it got it here: it has only forgotten this transfer, which it was done with. */
        rs_sender_done(node, now, r, 0, !rs_has_accepted(r) && !r->kept);
        rs_sender_settle(node, now, x);
    } else if (m->open_ack.status == RS_ACK_LEAVES) {
        left(node, now, x, r);
    } else if (m->open_ack.status == RS_ACK_REFUSED) {
        rs_format(cause, sizeof cause, "refused the object: %s", m->open_ack.cause.text);
        rs_sender_fail(node, now, r, false, cause);
        rs_sender_settle(node, now, x);
    } else {
        r->room = m->open_ack.room;
    }
    if (m->open_ack.status == RS_ACK_ACCEPTED && !rs_has_accepted(r)) {
        r->state = RS_RECIPIENT_ACCEPTED;
        r->accepted_at = now;
        if (r->kept) /* that came to nothing: it takes all by unicast */
            rs_control_set_pending(node, now, &r->link, RS_CONTROL_DATA_FNSD);
        x->kept -= r->kept;
        r->kept = false;
        if (r->carrier)
            rs_control_set_pending(node, now, &r->link, RS_CONTROL_NAME);
        const rs_news news = {.what = RS_NEWS_ACCEPTED, .receiver = r};
        if (x->t.stream.on && x->t.size != RS_STREAM)
            rs_control_set_pending(node, now, &r->link, RS_CONTROL_OPEN);
        if (x->t.engine->notify)
            x->t.engine->notify(node, now, &x->t, &news);
        rs_sender_arm(node, x);
    }
    return RS_RX_NONE;
}

static rs_rx_verdict on_data_rcvd(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    char cause[RS_CAUSE_MAX];
    if (m->data_rcvd.status == RS_RCVD_LEFT) {
        left(node, now, x, r);
        return RS_RX_NONE;
    }
    if (m->data_rcvd.status == RS_RCVD_COMPLETE) {
        rs_sender_done(node, now, r, m->data_rcvd.patched, false);
    } else {
        bool mismatch = m->data_rcvd.status == RS_RCVD_MISMATCH;
        rs_format(cause, sizeof cause, "%s: %s", mismatch ? "got the object with a wrong digest" : "gave up",
                  m->data_rcvd.cause.text);
        rs_sender_fail(node, now, r, false, cause);
    }
    rs_sender_settle(node, now, x);
    return RS_RX_NONE;
}

static rs_rx_verdict on_abort(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    char cause[RS_CAUSE_MAX];
    if (r->kept)
        return RS_RX_NONE; /* a PING reached it, to whom this transfer means nothing between two OPENs */
    rs_format(cause, sizeof cause, "aborted: %s", m->abort.cause.text);
    rs_sender_fail(node, now, r, false, cause);
    rs_sender_settle(node, now, x);
    return RS_RX_NONE;
}

rs_rx_verdict rs_sender_message(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    r->link.heard_at = now;
    if (!rs_is_active(r))
        return RS_RX_NONE; /* control that crossed ours */
    /* If it is whole it has accepted, whatever became of its answer: who carries to it may have lost that. */
    const rs_message accepted = {.type = RS_MSG_OPEN_ACK, .nonce = m->nonce, .session = m->session};
    if (m->type == RS_MSG_DATA_RCVD && m->data_rcvd.status == RS_RCVD_COMPLETE && r->state == RS_RECIPIENT_OPENED)
        on_open_ack(node, now, x, r, &accepted);
    if (!rs_has_accepted(r) &&
        (m->type == RS_MSG_INTL_SEQ || m->type == RS_MSG_PTCH_REQ || m->type == RS_MSG_DATA_RCVD ||
         m->type == RS_MSG_RATE || m->type == RS_MSG_PTCH_MAP || m->type == RS_MSG_LEAF_REQ))
        return RS_RX_NONE; /* about an earlier transfer of this object */
    switch (m->type) {
    case RS_MSG_OPEN_ACK:
        return on_open_ack(node, now, x, r, m);
    case RS_MSG_INTL_SEQ:
    case RS_MSG_PTCH_REQ:
    case RS_MSG_PTCH_MAP:
    case RS_MSG_RATE:
        return x->t.engine->message(node, now, &r->link, m);
    case RS_MSG_DATA_RCVD:
        return on_data_rcvd(node, now, x, r, m);
    case RS_MSG_LEAF_REQ:
        return rs_on_leaf_req(node, now, x, r, m);
    case RS_MSG_ABORT:
        return on_abort(node, now, x, r, m);
    case RS_MSG_PING:
        rs_on_ping(node, now, &r->link, m);
        return RS_RX_NONE;
    case RS_MSG_PONG:
        rs_on_pong(now, &r->link, m);
        return RS_RX_NONE;
    default:
        return RS_RX_BAD;
    }
}
