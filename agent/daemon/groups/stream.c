/* Streams between the agent and programs: one socket for each group that a program publishes to or subscribes to, with
 * frames of any number and size (docs/application-interface.md, Message groups).
 *
 * What a program does not read waits here: of one that reads, as much as flow control lets come at once (a packet that
 * was missing, and all that waited for it: RS_UNREAD_MOST); of one that has read nothing for STUCK, RS_UNREAD_STUCK.
 * What comes then is lost to it, and it is told how much. What a program publishes while the engine has no room stays
 * in its socket: its next write waits. */
#include "daemon/groups/stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/group_frames.h"
#include "daemon/api/access.h"
#include "daemon/groups/ordered.h"
#include "daemon/groups/views.h"

#define EVENTS_TURN 2048u
#define VIEW_ANEW 1u        /* of a frame */
#define WAIT_TOLD RS_SECOND /* a program is waited for: told after so long */
#define IN_FIRST (256u << 10)
#define OUT_FIRST (64u << 10)
#define OUT_SPARE (1u << 10) /* kept for text about what was lost */
#define OUT_PIECE (256u << 10)
#define SOCKET_BYTES (512 << 10)
#define SLOW_TOLD (5 * RS_SECOND) /* who has lost messages is told of so long */
#define STUCK RS_FLOW_HOLD        /* a program that reads nothing so long is not waited for */

struct rs_group_stream {
    rs_group_stream *next, *next_dirty;
    rs_groups *groups;
    rs_local_group *group;
    bool receives, waits, paused, dirty, blocked, may_publish;
    bool refused; /* it published, and may not */
    rs_api_call call;
    rs_time deadline;
    rs_manager_group_options options;
    char protocol[32], order[RS_GROUP_DELIVERY_TEXT], option_text[RS_GROUP_OPTIONS_TEXT];
    int fd, given; /* given: the program's own, to be `fd` once it is open; else -1 */
    rs_watch watch;
    uint8_t *in, *out;
    size_t in_start, in_length, in_room;
    size_t out_start, out_length, out_room;
    rs_time progress_at;
    uint64_t lost; /* not told yet: there was no room */
    uint64_t lost_all;
    rs_time lost_at; /* the last of them */
    char process[ROSTRUM_NAME_MAX + 1];
    rs_policy_who who;
    uint64_t *told; /* bit i: the program knows the name of the peer with that index */
    uint32_t told_size;
};

static void close_stream(rs_group_stream *s);

bool rs_stream_waits(const rs_group_stream *s) {
    return s->waits;
}

bool rs_stream_receives(const rs_group_stream *s) {
    return s->receives;
}

rs_time rs_stream_deadline(const rs_group_stream *s) {
    return s->deadline;
}

bool rs_stream_may(rs_group_stream *s) {
    const rs_api_server *api = s->groups->agent->api;
    s->may_publish = rs_api_may_publish(api, &s->who, s->group->name);
    return s->receives ? rs_api_may_subscribe(api, &s->who, s->group->name) : s->may_publish;
}

rs_group_stream *rs_stream_next(const rs_group_stream *s) {
    return s->next;
}

const rs_manager_group_options *rs_stream_options(const rs_group_stream *s) {
    return &s->options;
}

/* ------------------------------------------------------------------------------------------------- to programs */

static size_t waiting(const rs_group_stream *s) {
    return s->out_length - s->out_start;
}

/* How much may wait for it now. */
static size_t most(const rs_group_stream *s) {
    rs_time now = rs_agent_now(s->groups->agent);
    return waiting(s) == 0 || now - s->progress_at < STUCK ? RS_UNREAD_MOST : RS_UNREAD_STUCK;
}

/* Room for `length` bytes behind what waits; NULL: the program reads too slowly. */
static uint8_t *room(rs_group_stream *s, size_t length) {
    const size_t bound = most(s);
    if (waiting(s) + length > bound)
        return NULL;
    /* Moved when that pays, or when there is no other way. */
    if (s->out_start > 0 && s->out_length + length > s->out_room &&
        (s->out_start >= s->out_room / 2 || s->out_length + length > bound)) {
        memmove(s->out, s->out + s->out_start, waiting(s));
        s->out_length -= s->out_start;
        s->out_start = 0;
    }
    if (s->out_length == 0)
        s->progress_at = rs_agent_now(s->groups->agent); /* it had read all */
    if (s->out_length + length > s->out_room) {
        size_t more = s->out_room ? s->out_room : OUT_FIRST;
        while (more < s->out_length + length)
            more *= 2;
        more = more < bound ? more : bound;
        uint8_t *larger = realloc(s->out, more);
        if (!larger)
            return NULL;
        s->out = larger;
        s->out_room = more;
    }
    uint8_t *at = s->out + s->out_length;
    s->out_length += length;
    if (!s->dirty) {
        s->dirty = true;
        s->next_dirty = s->groups->dirty;
        s->groups->dirty = s;
    }
    return at;
}

static bool tell_lost(rs_group_stream *s, uint32_t sender, uint64_t sn, uint64_t count, uint8_t reason) {
    uint8_t *at = room(s, RS_GROUP_FRAME_LOST);
    if (at)
        rs_group_frame_lost(at, sender, sn, count, reason);
    return at != NULL;
}

/* What was lost before for want of room is told first. */
static bool told_of_losses(rs_group_stream *s) {
    if (s->lost == 0)
        return true;
    if (waiting(s) > RS_UNREAD_STUCK / 2 || !tell_lost(s, 0, 0, s->lost, RS_LOST_SLOW))
        return false;
    s->lost = 0;
    return true;
}

static bool knows(rs_group_stream *s, const rs_group_peer *peer) {
    uint32_t word = peer->index / 64;
    uint64_t bit = UINT64_C(1) << peer->index % 64;
    if (word >= s->told_size) {
        uint32_t more = word + 16;
        uint64_t *larger = realloc(s->told, more * sizeof *larger);
        if (!larger)
            return false;
        memset(larger + s->told_size, 0, (more - s->told_size) * sizeof *larger);
        s->told = larger;
        s->told_size = more;
    }
    if (s->told[word] & bit)
        return true;
    size_t length = strnlen(peer->name, 255);
    uint8_t *at = room(s, rs_group_frame_sender_length(length));
    if (!at)
        return false;
    rs_group_frame_sender(at, peer->address, peer->name, length);
    s->told[word] |= bit;
    return true;
}

void rs_stream_message(rs_group_stream *s, const rs_messages_event *event) {
    const rs_group_peer *peer = rs_group_peer_at(s->groups, event->sender);
    bool fits = waiting(s) + event->length + OUT_SPARE <= most(s) && told_of_losses(s) && (!peer || knows(s, peer));
    uint8_t *at = fits ? room(s, RS_GROUP_FRAME_MESSAGE + (size_t)event->length) : NULL;
    if (!at) {
        s->lost++;
        s->lost_all++;
        s->lost_at = rs_agent_now(s->groups->agent);
        s->group->lost_slow++;
        return;
    }
    rs_group_frame_message(at, event->length, (uint8_t)event->via, event->sender, event->part, event->sn);
    memcpy(at + RS_GROUP_FRAME_MESSAGE, event->bytes, event->length);
}

void rs_stream_lost(rs_group_stream *s, const rs_messages_event *event) {
    const rs_group_peer *peer = rs_group_peer_at(s->groups, event->sender);
    if (!told_of_losses(s) || (peer && !knows(s, peer)) ||
        !tell_lost(s, event->sender, event->sn, event->count, (uint8_t)event->reason))
        s->lost += event->count;
}

static bool knows_all(rs_group_stream *s, const rs_peer *peers, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const rs_group_peer *peer = rs_group_peer_at(s->groups, peers[i]);
        if (peer && !knows(s, peer))
            return false;
    }
    return true;
}

static bool give_view(rs_group_stream *s, const rs_order_event *event, uint8_t flags) {
    const uint32_t counts[] = {event->member_count, event->joined_count, event->left_count};
    uint32_t all = counts[0] + counts[1] + counts[2];
    uint8_t *at = all <= RS_GROUP_FRAME_VIEW_MOST && told_of_losses(s) && knows_all(s, event->members, all)
                      ? room(s, RS_GROUP_FRAME_VIEW + 4 * (size_t)all)
                      : NULL;
    if (at)
        rs_group_frame_view(at, flags, event->view, event->number, counts, event->members);
    return at != NULL;
}

static bool give_primary(rs_group_stream *s, bool primary) {
    uint8_t *at = room(s, RS_GROUP_FRAME_HEAD);
    if (at)
        rs_group_frame_put_head(at, 0, RS_GROUP_FRAME_KIND_PRIMARY, primary);
    return at != NULL;
}

static bool is_full(const rs_group_stream *s) {
    return waiting(s) > RS_UNREAD_HOLD;
}

static bool has_lost(const rs_group_stream *s) {
    return s->lost > 0;
}

bool rs_stream_is_slow(const rs_group_stream *s, rs_time now, rs_manager_slow *out) {
    bool loses = s->lost_all > 0 && now - s->lost_at < SLOW_TOLD;
    bool waited_for = s->group->delivery.slow == RS_SLOW_WAIT && s->group->waited_at > 0 && is_full(s);
    if (s->waits || !s->receives || (!loses && !waited_for))
        return false;
    *out = (rs_manager_slow){s->process, waited_for ? "waited-for" : "loses", s->lost_all};
    return true;
}

bool rs_stream_is_catching_up(const rs_group_stream *s, rs_time now) {
    return s->receives && waiting(s) > RS_UNREAD_HOLD && now - s->progress_at < STUCK;
}

static void watch(rs_group_stream *s) {
    uint32_t events = (s->paused ? 0u : (uint32_t)EPOLLIN) | (s->blocked ? (uint32_t)EPOLLOUT : 0u);
    rs_loop_watch(s->groups->agent->loop, &s->watch, s->fd, events);
}

/* False: the program is gone. */
static bool flush(rs_group_stream *s) {
    bool blocked = false;
    while (waiting(s) > 0 && !blocked) {
        size_t piece = waiting(s) < OUT_PIECE ? waiting(s) : OUT_PIECE;
        ssize_t sent = send(s->fd, s->out + s->out_start, piece, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            s->out_start += (size_t)sent;
            s->progress_at = rs_agent_now(s->groups->agent);
        } else if (sent < 0 && errno != EINTR) {
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS)
                return false;
            blocked = true;
        }
    }
    if (waiting(s) == 0)
        s->out_start = s->out_length = 0;
    if (waiting(s) == 0 && s->out_room > RS_UNREAD_STUCK) { /* a flood is over */
        free(s->out);
        s->out = NULL;
        s->out_room = 0;
    }
    if (!blocked && s->lost > 0)
        (void)told_of_losses(s);
    if (blocked != s->blocked) {
        s->blocked = blocked;
        watch(s);
    }
    return true;
}

void rs_streams_flush(rs_groups *g) {
    while (g->dirty) {
        rs_group_stream *s = g->dirty;
        g->dirty = s->next_dirty;
        s->dirty = false;
        if (!s->blocked && !flush(s))
            close_stream(s);
    }
}

/* ----------------------------------------------------------------------------------------------- from programs */

/* Other programs of this server hear it too. */
static void tell_neighbours(const rs_group_stream *from, const uint8_t *bytes, uint32_t length, uint64_t sn) {
    if (from->group->receiver_count == (from->receives ? 1u : 0u))
        return;
    const rs_messages_event event = {
        .sender = from->groups->agent->options.address, .sn = sn, .bytes = bytes, .length = length, .via = RS_VIA_DATA};
    for (rs_group_stream *s = from->group->streams; s; s = s->next)
        if (s != from && s->receives && !s->waits)
            rs_stream_message(s, &event);
}

/* RS_ERR_LIMIT: later. */
static rs_status publish(rs_group_stream *s, const uint8_t *bytes, uint32_t length) {
    rs_groups *g = s->groups;
    rs_local_group *group = s->group;
    uint64_t sn = 0;
    rs_time now = rs_agent_now(g->agent);
    if (!rs_flow_open(&group->flow, now, g->window))
        return RS_ERR_LIMIT;
    if (group->delivery.guaranteed)
        return rs_ordered_publish(g, group, bytes, length);
    rs_status status = rs_messages_publish(g->node, now, group->id, bytes, length, &sn);
    if (status != RS_OK)
        return status;
    rs_flow_published(&group->flow, sn);
    group->published++;
    tell_neighbours(s, bytes, length, sn);
    return RS_OK;
}

static void set_paused(rs_group_stream *s, bool paused) {
    if (paused == s->paused)
        return;
    s->paused = paused;
    s->groups->paused_count += paused ? 1u : (uint32_t)-1;
    watch(s);
}

/* What is in the buffer. False: the program does not keep to the format. */
static bool take_frames(rs_group_stream *s) {
    bool full = false;
    if (!s->may_publish && s->in_length > 0) {
        s->refused = true;
        return false;
    }
    while (!full && s->in_length - s->in_start >= RS_GROUP_FRAME_HEAD) {
        const uint8_t *at = s->in + s->in_start;
        uint32_t length;
        if (rs_group_frame_head(at, &length) != RS_GROUP_FRAME_KIND_PUBLISH || length > s->groups->message_bytes)
            return false;
        if (s->in_length - s->in_start < RS_GROUP_FRAME_HEAD + (size_t)length)
            break;
        rs_status status = publish(s, at + RS_GROUP_FRAME_HEAD, length);
        if (status != RS_OK && status != RS_ERR_LIMIT)
            return false;
        full = status == RS_ERR_LIMIT;
        s->in_start += full ? 0 : RS_GROUP_FRAME_HEAD + (size_t)length;
    }
    set_paused(s, full);
    if (s->in_start > 0) {
        memmove(s->in, s->in + s->in_start, s->in_length - s->in_start);
        s->in_length -= s->in_start;
        s->in_start = 0;
    }
    return true;
}

/* Room for the rest of a large message, or for many small ones. */
static bool in_room(rs_group_stream *s) {
    size_t want = IN_FIRST;
    uint32_t length;
    if (s->in_length >= RS_GROUP_FRAME_HEAD && rs_group_frame_head(s->in, &length) == RS_GROUP_FRAME_KIND_PUBLISH &&
        length <= s->groups->message_bytes && RS_GROUP_FRAME_HEAD + (size_t)length > want)
        want = RS_GROUP_FRAME_HEAD + (size_t)length;
    if (s->in_room >= want)
        return true;
    uint8_t *larger = realloc(s->in, want);
    if (larger) {
        s->in = larger;
        s->in_room = want;
    }
    return larger != NULL;
}

static bool read_in(rs_group_stream *s) {
    if (!in_room(s))
        return false;
    ssize_t got = recv(s->fd, s->in + s->in_length, s->in_room - s->in_length, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (got == 0)
        return false;
    s->in_length += (size_t)got;
    return take_frames(s);
}

static void end_stream(rs_group_stream *s) {
    if (s->refused)
        rs_stream_refuse(s, ROSTRUM_ERR_DENIED,
                         "this user may not publish here: the policy of this server's agent does not say so. Have the "
                         "operator add the group to the line \"publish =\" of your user or group");
    else
        close_stream(s);
}

static void ready(void *context, uint32_t events) {
    rs_group_stream *s = context;
    bool alive = true;
    if (events & EPOLLOUT)
        alive = flush(s);
    if (alive && !s->paused && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        alive = read_in(s);
    else if (alive && (events & (EPOLLHUP | EPOLLERR)))
        rs_loop_unwatch(s->groups->agent->loop, &s->watch); /* what it published last is still to go */
    if (!alive)
        end_stream(s);
}

void rs_streams_resume(rs_groups *g) {
    if (g->paused_count == 0)
        return;
    for (rs_local_group *group = g->groups, *after; group; group = after) {
        after = group->next;
        for (rs_group_stream *s = group->streams, *next; s; s = next) {
            next = s->next;
            if (s->paused && !take_frames(s))
                end_stream(s);
        }
    }
}

/* -------------------------------------------------------------------------------------------------------- life */

rs_group_stream *rs_stream_new(rs_groups *g, rs_local_group *group, const rs_api_join *join, rs_time deadline) {
    rs_group_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->groups = g;
    s->group = group;
    s->waits = true;
    s->receives = join->subscribe;
    s->who = *join->who;
    s->may_publish = rs_api_may_publish(g->agent->api, &s->who, group->name);
    s->call = join->call;
    s->deadline = deadline;
    s->fd = -1;
    s->given = join->socket;
    s->watch = (rs_watch){.ready = ready, .context = s};
    snprintf(s->process, sizeof s->process, "%s", join->process && join->process[0] ? join->process : "program");
    snprintf(s->protocol, sizeof s->protocol, "%s", join->protocol);
    snprintf(s->order, sizeof s->order, "%s", join->order);
    snprintf(s->option_text, sizeof s->option_text, "%s", join->options);
    s->options = (rs_manager_group_options){s->protocol, s->order, s->option_text};
    s->next = group->streams;
    group->streams = s;
    group->stream_count++;
    group->receiver_count += s->receives;
    g->stream_count++;
    return s;
}

static void close_stream(rs_group_stream *s) {
    rs_groups *g = s->groups;
    rs_local_group *group = s->group;
    bool received = s->receives;
    for (rs_group_stream **at = &g->dirty; *at; at = &(*at)->next_dirty)
        if (*at == s) {
            *at = s->next_dirty;
            break;
        }
    for (rs_group_stream **at = &group->streams; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    group->stream_count--;
    group->receiver_count -= s->receives;
    g->stream_count--;
    g->paused_count -= s->paused;
    rs_loop_unwatch(g->agent->loop, &s->watch);
    if (s->fd >= 0)
        close(s->fd);
    if (s->given >= 0)
        close(s->given);
    free(s->in);
    free(s->out);
    free(s->told);
    free(s);
    rs_groups_stream_gone(g, group, received);
}

static void tell_view_that_holds(const rs_local_group *group, rs_group_stream *s) {
    if (!group->ordered || !group->view_peers || !group->delivery.tells_views)
        return;
    const rs_order_event view = {.kind = RS_ORDER_VIEW,
                                 .view = group->view,
                                 .number = group->view_number,
                                 .members = group->view_peers,
                                 .member_count = group->view_count};
    (void)give_view(s, &view, VIEW_ANEW);
}

void rs_stream_open(rs_group_stream *s) {
    int ends[2] = {s->given, -1};
    const int bytes = SOCKET_BYTES;
    rs_groups *g = s->groups;
    if (s->given < 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
        rs_stream_refuse(s, ROSTRUM_ERR_IO, "the agent has no descriptors left");
        return;
    }
    for (int i = 0; i < 2 && ends[i] >= 0; i++)
        if (setsockopt(ends[i], SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) != 0)
            setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes); /* as much as the system grants */
    s->waits = false;
    s->fd = ends[0];
    s->given = -1;
    s->progress_at = rs_agent_now(g->agent);
    watch(s);
    const rs_local_group *group = s->group;
    rs_api_reply_group(g->agent->api, &s->call, group->protocol, group->order, g->message_bytes, ends[1]);
    if (s->receives)
        tell_view_that_holds(group, s);
}

void rs_stream_refuse(rs_group_stream *s, rostrum_code code, const char *text) {
    if (s->waits) {
        rs_api_reply_error(s->groups->agent->api, &s->call, code, "%s", text);
    } else {
        size_t length = strnlen(text, 255);
        uint8_t *at = room(s, rs_group_frame_end_length(length));
        if (at)
            rs_group_frame_end(at, (uint16_t)code, text, length);
        (void)flush(s); /* what the socket takes: the program may have much unread */
    }
    close_stream(s);
}

/* -------------------------------------------------------------------------------------------------- guarantees */

static bool hears(const rs_group_stream *s) {
    return !rs_stream_waits(s) && rs_stream_receives(s);
}

/* A program's unread messages are so many that the group waits for it. */
static bool waits_for_program(rs_groups *g, rs_local_group *group) {
    const rs_group_stream *full = NULL;
    for (const rs_group_stream *s = group->streams; s && !full && group->delivery.slow == RS_SLOW_WAIT;
         s = rs_stream_next(s))
        full = hears(s) && is_full(s) ? s : NULL;
    rs_time now = rs_agent_now(g->agent);
    if (full && group->waited_at == 0)
        group->waited_at = now;
    if (full && now - group->waited_at >= WAIT_TOLD)
        rs_log_limited(&g->complaints, 1, RS_LOG_WARNING, "groups",
                       "group=%s waits for process=%s, which does not read; slow=drop or slow=disconnect would not",
                       group->name, full->process);
    group->waited_at = full ? group->waited_at : 0;
    return full != NULL;
}

static void keep_view(rs_local_group *group, const rs_order_event *event) {
    free(group->view_peers);
    group->view_peers = malloc(event->member_count * sizeof *group->view_peers);
    group->view_count = group->view_peers ? event->member_count : 0;
    if (group->view_peers)
        memcpy(group->view_peers, event->members, event->member_count * sizeof *group->view_peers);
    group->view = event->view;
    group->view_number = event->number;
}

/* False: the program did not get it, and must not go on as if it had. */
static bool give(rs_group_stream *s, const rs_local_group *group, const rs_order_event *event) {
    if (event->kind == RS_ORDER_MESSAGE) {
        const rs_messages_event message = {
            .sender = event->sender, .sn = event->number, .bytes = event->bytes, .length = event->length};
        rs_stream_message(s, &message);
        return group->delivery.slow != RS_SLOW_DISCONNECT || !has_lost(s);
    }
    if (!group->delivery.tells_views)
        return true;
    if (event->kind == RS_ORDER_PRIMARY)
        return give_primary(s, event->primary);
    return give_view(s, event, event->anew ? VIEW_ANEW : 0);
}

static void tell(rs_groups *g, rs_local_group *group, const rs_order_event *event) {
    if (event->kind == RS_ORDER_VIEW) {
        keep_view(group, event);
        rs_log(RS_LOG_INFO, "groups", "group=%s view=%llx members=%u joined=%u left=%u", group->name,
               (unsigned long long)event->view, event->member_count, event->joined_count, event->left_count);
    } else if (event->kind == RS_ORDER_PRIMARY) {
        group->not_primary = !event->primary;
        rs_log(RS_LOG_WARNING, "groups", "group=%s primary=%d", group->name, event->primary);
    }
    group->delivered += event->kind == RS_ORDER_MESSAGE;
    group->held++;
    for (rs_group_stream *s = group->streams, *next; s; s = next) {
        next = rs_stream_next(s);
        if (!hears(s) || give(s, group, event))
            continue;
        rs_log_limited(&g->complaints, 5, RS_LOG_WARNING, "groups", "group=%s process=%s is too slow and put out",
                       group->name, s->process);
        snprintf(group->put_out, sizeof group->put_out, "%s", s->process);
        group->put_out_at = rs_agent_now(g->agent);
        group->put_out_lost = s->lost_all;
        rs_stream_refuse(s, ROSTRUM_ERR_LIMIT, "this subscriber was too slow, and the group does not wait for such");
    }
    group->held--;
}

static bool give_out(rs_groups *g, rs_local_group *group) {
    rs_order_event event;
    uint32_t count = 0;
    while (count < EVENTS_TURN && !waits_for_program(g, group) &&
           rs_order_poll_event(group->ordered, rs_agent_now(g->agent), &event)) {
        tell(g, group, &event);
        count++;
    }
    return count == EVENTS_TURN;
}

bool rs_streams_take_ordered(rs_groups *g) {
    bool more = false;
    for (rs_local_group *group = g->ordered, *next; group; group = next) {
        next = group->next_ordered;
        more |= give_out(g, group);
    }
    return more;
}
