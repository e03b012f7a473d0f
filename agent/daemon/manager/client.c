#include "daemon/manager/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/manager/codec.h"
#include "daemon/manager/frames.h"
#include "daemon/manager/pending.h"
#include "daemon/round_trip.h"
#include "thrift_schema.h"

enum { READS_PER_TURN = 16, UNANSWERED_MAX = 3 };
#define MS ((rs_time)1000000)
#define TELL_PAUSE (1000 * MS)

#define RS_MANAGER_TEXT 320

typedef enum {
    RS_MANAGER_STOPPED,    /* before rs_manager_start */
    RS_MANAGER_WAITING,    /* for the next attempt to connect */
    RS_MANAGER_CONNECTING, /* the socket's connection */
    RS_MANAGER_SECURING,   /* TLS's handshake */
    RS_MANAGER_GREETING,   /* hello is out, the welcome not in */
    RS_MANAGER_UP
} rs_manager_state;

struct rs_manager_client {
    rs_manager_options options;
    rs_manager_callbacks callbacks;
    char *server;
    char manager[32]; /* address:port of the one connected to or tried, for text */
    struct sockaddr_in managers[1 + RS_MANAGER_STANDBYS_MAX];
    uint32_t manager_count, manager_index;
    rs_tls_identity *identity; /* NULL: no TLS */
    rs_frames frames;
    rs_manager_state state;
    rs_time state_since;
    rs_time down_since;   /* start, or the end of the last time it was up */
    rs_time next_attempt; /* in RS_MANAGER_WAITING */
    rs_time backoff;
    rs_time lease; /* shortest heard on this connection */
    rs_time keepalive_at;
    uint32_t unanswered; /* keepalives since anything was heard */
    rs_time asked_at;    /* of the first of these; RS_NEVER: none */
    bool silent;         /* it went unanswered for too long */
    uint32_t alive_due;  /* answers to keepalives of this connection that are still to come */
    bool checking;       /* rs_manager_confirm: when the last of them has come */
    uint64_t jitter;
    bool told_down; /* on_state(false) was called for this outage */
    bool broken;    /* the connection is of no use: close it at the next turn; `cause` says why */
    char cause[RS_MANAGER_TEXT];
    bool tls_cause; /* it is TLS's, and stays until somebody mends it */
    char told_cause[RS_MANAGER_TEXT];
    rs_time told_at; /* on_state(false), for the last time */
    int watched_fd;
    unsigned watched_wants;
    rs_manager_pending_list pending;
    rs_manager_deferred kept;
    rs_manager_stats stats;
};

/* ---- words ---- */

/* The connection is of no use for the reason given; the first reason stays. Closed at the next turn. */
__attribute__((format(printf, 2, 3))) static void break_link(rs_manager_client *link, const char *format, ...) {
    if (link->broken)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(link->cause, sizeof link->cause, format, arguments);
    va_end(arguments);
    link->broken = true;
}

/* The connection failed: by TLS, which says more, or as `error` (-errno) has it. */
static void break_by(rs_manager_client *link, int error) {
    const char *text = rs_frames_text(&link->frames);
    if (!link->broken)
        link->tls_cause = text[0] != '\0';
    break_link(link, "%s", text[0] ? text : strerror(-error));
}

static double seconds(rs_time time) {
    return (double)time / 1e9;
}

static const char *by_tls(const rs_manager_client *link) {
    return link->frames.tls ? " by TLS" : "";
}

void rs_manager_describe(const rs_manager_client *link, rs_time now, char *text, size_t text_size) {
    if (link->state == RS_MANAGER_STOPPED)
        snprintf(text, text_size, "not connected to manager %s yet", link->manager);
    else if (link->silent)
        snprintf(text, text_size, "manager %s is connected%s and has not answered for %.1f s", link->manager,
                 by_tls(link), seconds(now - link->asked_at));
    else if (link->state == RS_MANAGER_UP)
        snprintf(text, text_size, "connected to manager %s%s for %.1f s", link->manager, by_tls(link),
                 seconds(now - link->state_since));
    else if (link->cause[0])
        snprintf(text, text_size, "manager %s unreachable for %.1f s: %s", link->manager,
                 seconds(now - link->down_since), link->cause);
    else
        snprintf(text, text_size, "connecting to manager %s for %.1f s", link->manager,
                 seconds(now - link->down_since));
}

/* ---- life ---- */

static rs_time or_default(rs_time time, rs_time otherwise) {
    return time > 0 ? time : otherwise;
}

static const char *options_wrong(const rs_manager_options *o, const rs_manager_callbacks *c,
                                 struct sockaddr_in *address) {
    if (!o->manager_address || inet_pton(AF_INET, o->manager_address, &address->sin_addr) != 1)
        return "the manager's address must be an IPv4 address";
    if (!o->server || !o->server[0] || strlen(o->server) > RS_MANAGER_NAME_MAX ||
        !rs_thrift_text_ok((const uint8_t *)o->server, strlen(o->server), RS_MANAGER_NAME_MAX))
        return "the server's name must have 1 ... 255 bytes of UTF-8";
    if (o->standby_count > RS_MANAGER_STANDBYS_MAX)
        return "that are too many managers";
    if (o->tls.certificate && (!o->tls.key || !o->tls.authority))
        return "TLS needs a certificate, its key and a CA";
    if (!c->watch)
        return "the link needs a watch callback";
    return NULL;
}

/* The manager to try now. */
static void choose_manager(rs_manager_client *link, uint32_t index) {
    link->manager_index = index;
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &link->managers[index].sin_addr, text, sizeof text);
    snprintf(link->manager, sizeof link->manager, "%s:%u", text, ntohs(link->managers[index].sin_port));
}

static void know_managers(rs_manager_client *link, struct sockaddr_in first) {
    const rs_manager_options *o = &link->options;
    first.sin_port = htons(o->manager_port);
    link->managers[0] = first;
    for (uint32_t i = 0; i < o->standby_count; i++)
        link->managers[1 + i] = (struct sockaddr_in){
            .sin_family = AF_INET, .sin_port = htons(o->standbys[i].port), .sin_addr = {htonl(o->standbys[i].address)}};
    link->manager_count = 1 + o->standby_count;
    choose_manager(link, 0);
}

rs_manager_client *rs_manager_new(const rs_manager_options *options, const rs_manager_callbacks *callbacks, char *text,
                                  size_t text_size) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *wrong = options_wrong(options, callbacks, &address);
    rs_manager_client *link = wrong ? NULL : calloc(1, sizeof *link);
    char *server = link ? strdup(options->server) : NULL;
    char tls_text[RS_TLS_TEXT] = "out of memory";
    if (server && options->tls.certificate)
        link->identity = rs_tls_identity_new(&options->tls, tls_text);
    if (!server || (options->tls.certificate && !link->identity)) {
        snprintf(text, text_size, "%s", wrong ? wrong : tls_text);
        free(server);
        free(link);
        return NULL;
    }
    link->options = *options;
    rs_manager_options *o = &link->options;
    o->manager_port = options->manager_port ? options->manager_port : 9090;
    o->connect_timeout = or_default(o->connect_timeout, 2000 * MS);
    o->answer_timeout = or_default(o->answer_timeout, 1000 * MS);
    o->backoff_min = or_default(o->backoff_min, 100 * MS);
    o->backoff_max = or_default(o->backoff_max, 2000 * MS);
    o->lease = or_default(o->lease, 5000 * MS);
    o->request_hold = or_default(o->request_hold, 24 * 3600 * 1000 * MS);
    o->stall_timeout = or_default(o->stall_timeout, 5000 * MS);
    o->server = link->server = server;
    o->manager_address = NULL; /* the caller's; `managers` has it */
    link->callbacks = *callbacks;
    know_managers(link, address);
    link->jitter = options->boot_id | 1;
    link->watched_fd = -1;
    link->backoff = o->backoff_min;
    link->asked_at = RS_NEVER;
    rs_frames_init(&link->frames);
    return link;
}

static void watch(rs_manager_client *link, int fd, unsigned wants) {
    if (fd == link->watched_fd && wants == link->watched_wants)
        return;
    link->watched_fd = fd;
    link->watched_wants = wants;
    link->callbacks.watch(link->callbacks.context, fd, wants);
}

void rs_manager_free(rs_manager_client *link) {
    if (!link)
        return;
    watch(link, -1, 0);
    rs_frames_close(&link->frames);
    rs_tls_identity_free(link->identity);
    rs_pending_clear(&link->pending);
    rs_deferred_clear(&link->kept);
    free(link->server);
    free(link);
}

static void set_state(rs_manager_client *link, rs_manager_state state, rs_time now) {
    link->state = state;
    link->state_since = now;
}

/* ---- output ---- */

static void want(rs_manager_client *link) {
    rs_frames *f = &link->frames;
    if (f->fd < 0)
        watch(link, -1, 0);
    else if (link->state == RS_MANAGER_CONNECTING)
        watch(link, f->fd, RS_MANAGER_WRITE);
    else
        watch(link, f->fd, RS_MANAGER_READ | (rs_frames_output(f) || rs_frames_wants_write(f) ? RS_MANAGER_WRITE : 0));
}

/* There is a connection that frames go through. */
static bool carries(const rs_manager_client *link) {
    return link->frames.fd >= 0 && link->state != RS_MANAGER_CONNECTING && link->state != RS_MANAGER_SECURING;
}

/* Into the output buffer; breaks the link when that is full. */
static void put(rs_manager_client *link, rs_time now, const rs_manager_frame *frame) {
    int error = rs_frames_put(&link->frames, now, frame->bytes, frame->length);
    if (error == -ENOBUFS)
        break_link(link, "it takes nothing: %u MiB wait to be sent for %.1f s", RS_MANAGER_OUTPUT_MAX >> 20,
                   seconds(now - link->frames.out_progress));
    else if (error)
        break_by(link, error);
}

static void flush(rs_manager_client *link, rs_time now) {
    if (link->broken || !carries(link))
        return;
    int error = rs_frames_flush(&link->frames, now);
    if (error)
        break_by(link, error);
    want(link);
}

/* ---- connecting ---- */

static void say_hello(rs_manager_client *link, rs_time now) {
    set_state(link, RS_MANAGER_GREETING, now);
    rs_manager_frame hello;
    rs_status status = rs_manager_encode_hello(&link->options, rs_round_trip_us(link->frames.fd),
                                               link->callbacks.live_path, link->callbacks.context, &hello);
    if (status != RS_OK) {
        break_link(link, "hello could not be encoded: %s",
                   status == RS_ERR_LIMIT ? "it would be too long" : "out of memory");
        return;
    }
    put(link, now, &hello);
    free(hello.bytes);
    flush(link, now);
}

static void attempt(rs_manager_client *link, rs_time now) {
    char text[RS_TLS_TEXT];
    set_state(link, RS_MANAGER_CONNECTING, now);
    if (link->identity && !rs_tls_identity_refresh(link->identity, text)) {
        link->tls_cause = true;
        break_link(link, "%s", text);
        return;
    }
    int error =
        rs_frames_connect(&link->frames, now, &link->managers[link->manager_index], link->options.stall_timeout);
    if (error)
        break_by(link, error);
    else
        want(link);
}

static void securing_ready(rs_manager_client *link, rs_time now) {
    int error = rs_frames_secure(&link->frames, link->identity, &link->managers[link->manager_index]);
    if (error == 0)
        say_hello(link, now);
    else if (error != -EAGAIN)
        break_by(link, error);
}

static void connecting_ready(rs_manager_client *link, rs_time now) {
    int error = rs_frames_connected(&link->frames);
    if (error == -EINPROGRESS)
        return;
    if (error) {
        break_by(link, error);
    } else if (link->identity) {
        set_state(link, RS_MANAGER_SECURING, now);
        securing_ready(link, now);
    } else {
        say_hello(link, now);
    }
}

/* Between half and one and a half of the backoff, so that many agents do not come back in step. */
static rs_time jittered(rs_manager_client *link) {
    link->jitter ^= link->jitter << 13;
    link->jitter ^= link->jitter >> 7;
    link->jitter ^= link->jitter << 17;
    return link->backoff / 2 + (rs_time)(link->jitter % (uint64_t)link->backoff);
}

/* What TLS has to say is told although the outage was: it does not pass by itself. Not too often, if it alternates. */
static bool worth_telling(const rs_manager_client *link, rs_time now) {
    return !link->told_down ||
           (link->tls_cause && strcmp(link->cause, link->told_cause) != 0 && now - link->told_at >= TELL_PAUSE);
}

static void tell_down(rs_manager_client *link, rs_time now) {
    if (!worth_telling(link, now))
        return;
    link->told_down = true;
    link->told_at = now;
    memcpy(link->told_cause, link->cause, sizeof link->told_cause);
    char text[RS_MANAGER_TEXT + 64];
    rs_manager_describe(link, now, text, sizeof text);
    if (link->callbacks.on_state)
        link->callbacks.on_state(link->callbacks.context, false, text);
}

/* Whether anything is heard, by the time that the first unanswered keepalive has waited. */
static void note_silence(rs_manager_client *link, rs_time now, bool silent) {
    if (!silent)
        link->unanswered = 0;
    if (link->silent == silent) {
        link->asked_at = silent ? link->asked_at : RS_NEVER;
        return;
    }
    char text[RS_MANAGER_TEXT + 64];
    link->silent = silent;
    if (silent)
        rs_manager_describe(link, now, text, sizeof text);
    else
        snprintf(text, sizeof text, "manager %s answers again, after %.1f s", link->manager,
                 seconds(now - link->asked_at));
    link->asked_at = silent ? link->asked_at : RS_NEVER;
    if (link->callbacks.on_silent)
        link->callbacks.on_silent(link->callbacks.context, silent, text);
}

/* Closes a broken connection and plans the next attempt. */
static void close_broken(rs_manager_client *link, rs_time now) {
    bool was_up = link->state == RS_MANAGER_UP;
    watch(link, -1, 0);
    rs_frames_close(&link->frames);
    link->broken = link->silent = false;
    link->asked_at = RS_NEVER;
    if (was_up) {
        link->down_since = now;
        link->stats.disconnects++;
        rs_pending_hold(&link->pending, now);
    }
    set_state(link, RS_MANAGER_WAITING, now);
    if (link->tls_cause) /* the next handshake will hardly do better, and costs both ends */
        link->backoff = link->options.backoff_max;
    link->next_attempt = now + jittered(link);
    tell_down(link, now);
    link->tls_cause = false;
    choose_manager(link, (link->manager_index + 1) % link->manager_count);
    if (link->manager_index > 0)
        return; /* the others are asked before there is a longer pause */
    link->backoff = link->backoff * 2 < link->options.backoff_max ? link->backoff * 2 : link->options.backoff_max;
}

/* Repeats what the last connection may not have carried: releases first, they make room for the requests. */
static void repeat(rs_manager_client *link, rs_time now) {
    for (uint32_t i = 0; i < link->kept.count && !link->broken; i++) {
        rs_manager_deferred_call *call = rs_deferred_at(&link->kept, i);
        put(link, now, &call->frame);
        call->sent_at = now;
    }
    for (uint32_t i = 0; i < link->pending.count && !link->broken; i++) {
        put(link, now, &link->pending.items[i].frame);
        link->pending.items[i].held_since = RS_NEVER;
        link->stats.requests_repeated++;
    }
}

static void welcomed(rs_manager_client *link, rs_time now, const char *manager) {
    if (link->state == RS_MANAGER_UP)
        return;
    set_state(link, RS_MANAGER_UP, now);
    link->stats.connects++;
    link->told_down = false;
    link->cause[0] = '\0';
    link->backoff = link->options.backoff_min;
    link->lease = link->options.lease;
    link->keepalive_at = now + link->lease / 4;
    link->unanswered = link->alive_due = 0;
    link->asked_at = RS_NEVER;
    repeat(link, now);
    if (link->checking)
        link->keepalive_at = now;
    char text[RS_MANAGER_NAME_MAX + 64];
    snprintf(text, sizeof text, "connected to manager %s%s (%s)", link->manager, by_tls(link), manager);
    if (link->callbacks.on_state)
        link->callbacks.on_state(link->callbacks.context, true, text);
}

/* ---- calls from the manager ---- */

static bool holds_path(const rs_manager_client *link, const char *response_id) {
    rs_manager_live_path path;
    for (uint32_t i = 0; link->callbacks.live_path && link->callbacks.live_path(link->callbacks.context, i, &path); i++)
        if (strcmp(path.response_id, response_id) == 0)
            return true;
    return false;
}

static void handle_response(rs_manager_client *link, rs_time now, const rs_manager_message *message) {
    const rs_manager_response *response = &message->response;
    bool granted = response->decision == RS_MANAGER_ACCEPTED || message->unusable;
    bool known = response->decision == RS_MANAGER_QUEUED ? rs_pending_has(&link->pending, response->request_id)
                                                         : rs_pending_remove(&link->pending, response->request_id);
    /* A path nobody waits for would live as long as the keepalives: give it back, unless the response came twice. */
    if (granted && (message->unusable || !known) && !holds_path(link, response->response_id))
        rs_manager_release(link, now, response->request_id, response->response_id);
    if (!known)
        return;
    if (response->decision == RS_MANAGER_ACCEPTED && response->lease > 0 && response->lease < link->lease) {
        link->lease = response->lease;
        if (now + link->lease / 4 < link->keepalive_at)
            link->keepalive_at = now + link->lease / 4;
    }
    if (link->callbacks.on_response)
        link->callbacks.on_response(link->callbacks.context, response);
}

typedef struct {
    rs_manager_client *link;
    rs_time now;
} turn;

static void handle(void *context, const rs_manager_message *message) {
    rs_manager_client *link = ((turn *)context)->link;
    rs_time now = ((turn *)context)->now;
    const rs_manager_callbacks *c = &link->callbacks;
    if (message->call == RS_THRIFT_AGENT_GOODBYE) {
        link->backoff = link->options.backoff_max;
        break_link(link, "it refused this agent: %s", message->reason);
        if (c->on_goodbye)
            c->on_goodbye(c->context, message->reason);
    } else if (message->call == RS_THRIFT_AGENT_WELCOME) {
        welcomed(link, now, message->id);
    } else if (link->state != RS_MANAGER_UP) {
        break_link(link, "it spoke before its welcome");
    } else if (message->call == RS_THRIFT_AGENT_RESPONSE) {
        handle_response(link, now, message);
    } else if (message->call == RS_THRIFT_AGENT_MOVED) {
        if (c->on_moved)
            c->on_moved(c->context, message->id, message->kind, message->reason);
    } else if (message->call == RS_THRIFT_AGENT_LIGHT) {
        if (c->on_light)
            c->on_light(c->context, message->id);
    } else if (message->call == RS_THRIFT_AGENT_PROBE) {
        if (c->on_probe)
            c->on_probe(c->context, &message->probe);
    } else if (message->call == RS_THRIFT_AGENT_GROUP_VIEW || message->call == RS_THRIFT_AGENT_GROUP_REGIONS) {
        for (uint32_t i = 0; c->on_group_peer && i < message->group_peer_count; i++)
            c->on_group_peer(c->context, &message->group_peers[i]);
        for (uint32_t i = 0; c->on_group_region && i < message->group_region_count; i++)
            c->on_group_region(c->context, &message->group_regions[i]);
        for (uint32_t i = 0; c->on_group_view && i < message->group_view_count; i++)
            c->on_group_view(c->context, &message->group_views[i]);
    } else if (message->call == RS_THRIFT_AGENT_GROUP_REFUSED) {
        if (c->on_group_refused)
            c->on_group_refused(c->context, message->id, message->reason);
    } else if (message->call == RS_THRIFT_AGENT_VIEW) {
        if (c->on_view)
            c->on_view(c->context, &message->view);
    } else if (message->call == RS_THRIFT_AGENT_SITE) {
        if (c->on_site)
            c->on_site(c->context, message->id);
    } else if (message->call == RS_THRIFT_AGENT_LEGS) {
        if (c->on_legs)
            c->on_legs(c->context, &message->legs);
    } else if (message->call == RS_THRIFT_AGENT_RELAY) {
        if (c->on_relay)
            c->on_relay(c->context, &message->relay);
    } else if (message->call == RS_THRIFT_AGENT_RELAYED) {
        if (c->on_relayed)
            c->on_relayed(c->context, &message->relayed);
    } else if (message->call == RS_THRIFT_AGENT_ORIGIN) {
        if (c->on_origin)
            c->on_origin(c->context, &message->origin);
    } else if (message->call == RS_THRIFT_AGENT_TELL_OBJECTS) {
        if (c->on_tell_objects)
            c->on_tell_objects(c->context);
    } else if (message->call == RS_THRIFT_AGENT_HOLDERS) {
        if (c->on_holders)
            c->on_holders(c->context, &message->holders);
    } else if (message->call == RS_THRIFT_AGENT_SERVE) {
        if (c->on_serve)
            c->on_serve(c->context, &message->serve);
    } else if (message->call == RS_THRIFT_AGENT_KEYS) {
        if (c->on_keys && link->identity) /* by TLS alone */
            c->on_keys(c->context, message->keys, message->key_count);
    } else if (message->call == RS_THRIFT_AGENT_ALIVE) {
        link->alive_due -= link->alive_due > 0;
        if (link->checking && link->alive_due == 0) {
            link->checking = false;
            if (c->on_checked)
                c->on_checked(c->context);
        }
    } else if (message->call == RS_THRIFT_AGENT_FAILED && c->on_failed) {
        c->on_failed(c->context, message->id, message->reason);
    }
}

/* Handles the frames that are in, all of them: the socket may never become readable for them again. */
static void handle_frames(rs_manager_client *link, rs_time now) {
    const uint8_t *frame;
    size_t length;
    char text[RS_MANAGER_TEXT / 2];
    turn t = {link, now};
    while (!link->broken) {
        int got = rs_frames_next(&link->frames, &frame, &length);
        if (got == 0)
            return;
        if (got < 0)
            break_link(link, "it sent a frame of no or more than 2 MiB length; is it a manager's Thrift port?");
        else if (!rs_manager_decode(frame, length, handle, &t, text, sizeof text))
            break_link(link, "it sent a malformed call: %s", text);
    }
}

static void read_in(rs_manager_client *link, rs_time now) {
    for (unsigned reads = 0; reads < READS_PER_TURN && !link->broken; reads++) {
        int got = rs_frames_fill(&link->frames, now);
        if (got > 0)
            note_silence(link, now, false);
        handle_frames(link, now);
        if (got == RS_FRAMES_EOF)
            break_link(link, "it closed the connection");
        else if (got < 0)
            break_by(link, got);
        if (got <= 0)
            return;
    }
}

/* ---- turns ---- */

static void fail_expired(rs_manager_client *link, rs_time now) {
    char *id;
    while ((id = rs_pending_expire(&link->pending, now, link->options.request_hold))) {
        char text[RS_MANAGER_TEXT + 64];
        rs_manager_describe(link, now, text, sizeof text);
        rs_manager_response response = {
            .request_id = id, .response_id = "", .decision = RS_MANAGER_DENIED, .reason = text};
        if (link->callbacks.on_response)
            link->callbacks.on_response(link->callbacks.context, &response);
        free(id);
    }
}

static void keepalive(rs_manager_client *link, rs_time now) {
    /* Its socket may be there while it is not; a manager that has standbys answers. */
    if (link->manager_count > 1 && link->unanswered >= UNANSWERED_MAX) {
        break_link(link, "it answered none of %u keepalives", link->unanswered);
        return;
    }
    link->unanswered++;
    link->asked_at = link->asked_at == RS_NEVER ? now : link->asked_at;
    rs_manager_frame frame;
    if (rs_manager_encode_keepalive(&frame) == RS_OK) {
        put(link, now, &frame);
        free(frame.bytes);
        link->stats.keepalives++;
        link->alive_due++;
    }
    link->keepalive_at = now + link->lease / 4;
    rs_deferred_prune(&link->kept, now - link->options.stall_timeout);
}

static rs_time silence_deadline(const rs_manager_client *link) {
    return link->asked_at == RS_NEVER || link->silent ? RS_NEVER : link->asked_at + link->options.answer_timeout;
}

/* When the peer's stalling ends the connection. */
static rs_time stall_deadline(const rs_manager_client *link) {
    rs_time first = RS_NEVER;
    if (!carries(link))
        return first;
    if (rs_frames_output(&link->frames))
        first = link->frames.out_progress + link->options.stall_timeout;
    if (rs_frames_partial(&link->frames) && link->frames.in_progress + link->options.stall_timeout < first)
        first = link->frames.in_progress + link->options.stall_timeout;
    return first;
}

static rs_time state_deadline(const rs_manager_client *link) {
    switch (link->state) {
    case RS_MANAGER_WAITING:
        return link->next_attempt;
    case RS_MANAGER_CONNECTING:
    case RS_MANAGER_SECURING:
    case RS_MANAGER_GREETING:
        return link->state_since + link->options.connect_timeout;
    case RS_MANAGER_UP:
        return silence_deadline(link) < link->keepalive_at ? silence_deadline(link) : link->keepalive_at;
    case RS_MANAGER_STOPPED:
        break;
    }
    return RS_NEVER;
}

rs_time rs_manager_deadline(const rs_manager_client *link) {
    if (link->broken)
        return 0;
    rs_time deadline = state_deadline(link);
    rs_time stall = stall_deadline(link);
    rs_time held = rs_pending_deadline(&link->pending, link->options.request_hold);
    deadline = stall < deadline ? stall : deadline;
    return held < deadline ? held : deadline;
}

static void state_timeout(rs_manager_client *link, rs_time now) {
    if (link->state == RS_MANAGER_WAITING)
        attempt(link, now);
    else if (link->state == RS_MANAGER_UP && silence_deadline(link) <= now)
        note_silence(link, now, true);
    else if (link->state == RS_MANAGER_UP)
        keepalive(link, now);
    else
        break_link(link,
                   link->state == RS_MANAGER_CONNECTING ? "no answer to the connection attempt in %.1f s"
                   : link->state == RS_MANAGER_SECURING
                       ? "TLS's handshake was not done in %.1f s; does it listen with --thrift-tls?"
                       : "it took the connection but sent no welcome in %.1f s",
                   seconds(link->options.connect_timeout));
}

/* Every entry from the event loop ends here. */
static void settle(rs_manager_client *link, rs_time now) {
    flush(link, now);
    if (link->broken)
        close_broken(link, now);
    want(link);
}

void rs_manager_timeout(rs_manager_client *link, rs_time now) {
    if (link->state == RS_MANAGER_STOPPED)
        return;
    if (!link->broken && stall_deadline(link) <= now)
        break_link(link,
                   rs_frames_output(&link->frames) ? "it took no output for %.1f s"
                                                   : "it stopped inside a frame for %.1f s",
                   seconds(link->options.stall_timeout));
    if (!link->broken && state_deadline(link) <= now)
        state_timeout(link, now);
    settle(link, now);
    fail_expired(link, now);
    settle(link, now);
}

void rs_manager_on_ready(rs_manager_client *link, rs_time now, unsigned ready) {
    if (link->frames.fd < 0 || link->broken) {
        settle(link, now);
        return;
    }
    if (link->state == RS_MANAGER_CONNECTING)
        connecting_ready(link, now);
    else if (link->state == RS_MANAGER_SECURING)
        securing_ready(link, now);
    else if (ready & RS_MANAGER_READ || rs_frames_wants_write(&link->frames))
        read_in(link, now);
    settle(link, now);
}

void rs_manager_start(rs_manager_client *link, rs_time now) {
    if (link->state != RS_MANAGER_STOPPED)
        return;
    link->down_since = now;
    attempt(link, now);
    settle(link, now);
}

void rs_manager_confirm(rs_manager_client *link, rs_time now) {
    if (link->state == RS_MANAGER_STOPPED)
        return;
    link->checking = true;
    if (rs_manager_up(link)) {
        keepalive(link, now);
        settle(link, now);
    }
}

bool rs_manager_up(const rs_manager_client *link) {
    return link->state == RS_MANAGER_UP && !link->broken;
}

bool rs_manager_answers(const rs_manager_client *link) {
    return rs_manager_up(link) && !link->silent;
}

rs_manager_stats rs_manager_stats_get(const rs_manager_client *link) {
    rs_manager_stats stats = link->stats;
    stats.frames_in = link->frames.frames_in;
    stats.frames_out = link->frames.frames_out;
    stats.bytes_in = link->frames.bytes_in;
    stats.bytes_out = link->frames.bytes_out;
    stats.requests_pending = link->pending.count;
    stats.kept = link->kept.count;
    stats.kept_dropped = link->kept.dropped;
    return stats;
}

/* ---- the calls of Table II ---- */

/* Sends now if up, and keeps the call for the next connection in either case. Takes the frame over. */
static void keep(rs_manager_client *link, rs_time now, rs_manager_frame frame) {
    bool up = link->state == RS_MANAGER_UP && !link->broken;
    if (up)
        put(link, now, &frame);
    rs_deferred_prune(&link->kept, now - link->options.stall_timeout);
    rs_deferred_add(&link->kept, frame, up && !link->broken ? now : RS_NEVER);
    flush(link, now);
}

static const char *status_text(rs_status status) {
    switch (status) {
    case RS_ERR_INVALID:
        return "a path request needs an id, 1 ... 16384 receivers named in UTF-8, and sizes below 2^63";
    case RS_ERR_LIMIT:
        return "too many path requests wait for the manager (1024 or 2 MiB)";
    case RS_ERR_EXISTS:
        return "a path request of that id waits already";
    default:
        return "out of memory";
    }
}

rs_status rs_manager_request(rs_manager_client *link, rs_time now, const rs_manager_request_params *request, char *text,
                             size_t text_size) {
    bool up = rs_manager_up(link);
    char scratch[1];
    if (!text) {
        text = scratch;
        text_size = sizeof scratch;
    }
    if (link->state == RS_MANAGER_STOPPED) {
        rs_manager_describe(link, now, text, text_size);
        return RS_ERR_STATE;
    }
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_request(link->server, request, &frame);
    if (status == RS_OK) {
        status = rs_pending_add(&link->pending, request->request_id, frame, up ? RS_NEVER : now);
        if (status != RS_OK)
            free(frame.bytes);
    }
    if (status != RS_OK) {
        snprintf(text, text_size, "%s", status_text(status));
        return status;
    }
    if (up) {
        put(link, now, &frame);
        flush(link, now);
    }
    return RS_OK;
}

rs_status rs_manager_release(rs_manager_client *link, rs_time now, const char *request_id, const char *response_id) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_release(request_id, response_id, &frame);
    if (status == RS_OK)
        keep(link, now, frame);
    return status;
}

rs_status rs_manager_cancel(rs_manager_client *link, rs_time now, const char *request_id) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_cancel(request_id, &frame);
    if (status != RS_OK)
        return status;
    rs_pending_remove(&link->pending, request_id);
    keep(link, now, frame);
    return RS_OK;
}

/* Sends a frame that is not worth keeping, if the link is up. Takes it over. */
static rs_status pass(rs_manager_client *link, rs_time now, rs_manager_frame frame) {
    bool up = rs_manager_up(link);
    if (up) {
        put(link, now, &frame);
        flush(link, now);
    }
    free(frame.bytes);
    return up ? RS_OK : RS_ERR_STATE;
}

rs_status rs_manager_no_light(rs_manager_client *link, rs_time now, const char *response_id,
                              const char *const *receivers, uint32_t receiver_count) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_no_light(response_id, receivers, receiver_count, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_link_receiver_change(rs_manager_client *link, rs_time now, const char *response_id, const char *server,
                                  bool joins) {
    rs_manager_frame frame;
    rs_status status = rs_link_encode_receiver_change(response_id, server, joins, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_manager_report(rs_manager_client *link, rs_time now, const rs_manager_report_params *report) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_report(report, &frame);
    if (status != RS_OK)
        return status;
    if (strcmp(report->phase, "done") != 0 && strcmp(report->phase, "failed") != 0)
        return pass(link, now, frame);
    keep(link, now, frame);
    return RS_OK;
}

rs_status rs_manager_view_used(rs_manager_client *link, rs_time now, const char *response_id, uint64_t version) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_view_used(response_id, version, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_manager_failure(rs_manager_client *link, rs_time now, const char *response_id, uint64_t version,
                             rs_manager_failure_kind kind, rs_ring_kind ring, const char *server) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_failure(response_id, version, kind, ring, server, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_manager_group(rs_manager_client *link, rs_time now, rs_manager_group_call call, const char *group,
                           const rs_manager_group_options *options, const rs_manager_group_view *held) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_group(call, group, options, held, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_manager_tell_group_trouble(rs_manager_client *link, rs_time now, const rs_manager_group_trouble *trouble) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_group_trouble(trouble, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_manager_split(rs_manager_client *link, rs_time now, const char *request_id, const rs_object_id *object,
                           const char *const *receivers, uint32_t receiver_count, const char *const *avoid,
                           uint32_t avoid_count, const rs_manager_terms *terms) {
    rs_manager_frame frame;
    rs_status status =
        rs_manager_encode_split(request_id, object, receivers, receiver_count, avoid, avoid_count, terms, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_manager_relayed(rs_manager_client *link, rs_time now, const rs_manager_relay_report *report) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_relayed(report, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_manager_whose(rs_manager_client *link, rs_time now, const rs_object_id *id, const char *sender,
                           const char *digest) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_whose(id, sender, digest, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_manager_holds(rs_manager_client *link, rs_time now, const rs_manager_held *held, uint32_t count,
                           bool reset) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_holds(held, count, reset, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_manager_fetch(rs_manager_client *link, rs_time now, const rs_object_id *id, bool together) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_fetch(id, together, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_manager_peer_keys(rs_manager_client *link, rs_time now, const char *const *servers, uint32_t count) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_peer_keys(servers, count, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_manager_probe_report_send(rs_manager_client *link, rs_time now, const rs_manager_probe_report *report) {
    rs_manager_frame frame;
    rs_status status = rs_manager_encode_probe_report(report, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}
