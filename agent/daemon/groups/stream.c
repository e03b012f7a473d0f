/* Streams between the agent and programs, with frames of any number and size (docs/application-interface.md, Message
 * groups): each is a program's part in a group. It has a socket of its own, or is a channel of one that carries many:
 * then messages of many groups are read and written at once, and what waits, waits for all of them.
 *
 * What a program does not read waits here: of one that reads, as much as flow control lets come at once (a packet that
 * was missing, and all that waited for it: RS_UNREAD_MOST); of one that has read nothing for a while, RS_UNREAD_STUCK.
 * What comes then is lost to it, and it is told how much. What a program publishes while the engine has no room stays
 * in its socket: its next write waits. */
#include "daemon/groups/stream.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/group_frames.h"
#include "daemon/groups/kept.h"
#include "daemon/groups/ordered.h"
#include "daemon/groups/published.h"
#include "daemon/groups/stream_state.h"
#include "daemon/groups/unread.h"
#include "daemon/groups/views.h"

#define EVENTS_TURN 2048u
#define VIEW_ANEW 1u         /* of a frame */
#define WAIT_TOLD RS_SECOND  /* a program is waited for: told after so long */
#define OUT_SPARE (1u << 10) /* kept for text about what was lost */
#define SOCKET_BYTES (512 << 10)
#define READING (128 << 10) /* bytes of the kernel's, as an eighth of a ring (api/shared_ring.h) */
#define LOOK_EVERY RS_MILLISECOND
#define SLOW_TOLD (5 * RS_SECOND) /* who has lost messages is told of so long */
#define VIA_KEPT 3u               /* of a frame: api/group_frames.h */
#define LOST_NOT_KEPT 5u          /* of a frame, behind the reasons of rs_lost_reason */
#define PENDING_LEAST 64u
#define PENDING_MOST 65536u /* messages of a program whose completion is awaited, at most */

static void close_stream(rs_group_stream *s);
static void close_socket(rs_group_socket *at);

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
    s->may_publish = rs_api_may_publish(api, &s->socket->who, s->group->name);
    return s->receives ? rs_api_may_subscribe(api, &s->socket->who, s->group->name) : s->may_publish;
}

rs_group_stream *rs_stream_next(const rs_group_stream *s) {
    return s->next;
}

const rs_manager_group_options *rs_stream_options(const rs_group_stream *s) {
    return &s->options;
}

/* ------------------------------------------------------------------------------------------------- to programs */

static bool tell_lost(rs_group_stream *s, uint32_t sender, uint64_t sn, uint64_t count, uint8_t reason) {
    uint8_t *at = rs_unread_room(s->socket, RS_GROUP_FRAME_LOST);
    if (at) {
        rs_group_frame_lost(at, sender, sn, count, reason);
        rs_group_frame_put_channel(at, s->channel);
    }
    return at != NULL;
}

/* What was lost before for want of room is told first. */
static bool told_of_losses(rs_group_stream *s) {
    if (s->lost == 0)
        return true;
    if (rs_stream_unread(s->socket) > RS_UNREAD_STUCK / 2 || !tell_lost(s, 0, 0, s->lost, RS_LOST_SLOW))
        return false;
    s->lost = 0;
    return true;
}

static bool knows(rs_group_socket *s, const rs_group_peer *peer) {
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
    uint8_t *at = rs_unread_room(s, rs_group_frame_sender_length(length));
    if (!at)
        return false;
    rs_group_frame_sender(at, peer->address, peer->name, length);
    s->told[word] |= bit;
    return true;
}

void rs_stream_lost(rs_group_stream *s, const rs_messages_event *event) {
    const rs_group_peer *peer = rs_group_peer_at(s->groups, event->sender);
    if (!told_of_losses(s) || (peer && !knows(s->socket, peer)) ||
        !tell_lost(s, event->sender, event->sn, event->count, (uint8_t)event->reason))
        s->socket->loses = true, s->lost += event->count ? event->count : 1; /* 0: nobody knows */
}

static bool knows_all(rs_group_stream *s, const rs_peer *peers, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const rs_group_peer *peer = rs_group_peer_at(s->groups, peers[i]);
        if (peer && !knows(s->socket, peer))
            return false;
    }
    return true;
}

static bool give_view(rs_group_stream *s, const rs_order_event *event, uint8_t flags) {
    const uint32_t counts[] = {event->member_count, event->joined_count, event->left_count};
    uint32_t all = counts[0] + counts[1] + counts[2];
    uint8_t *at = all <= RS_GROUP_FRAME_VIEW_MOST && told_of_losses(s) && knows_all(s, event->members, all)
                      ? rs_unread_room(s->socket, RS_GROUP_FRAME_VIEW + 4 * (size_t)all)
                      : NULL;
    if (at) {
        rs_group_frame_view(at, flags, event->view, event->number, counts, event->members);
        rs_group_frame_put_channel(at, s->channel);
    }
    return at != NULL;
}

static bool give_primary(rs_group_stream *s, bool primary) {
    uint8_t *at = rs_unread_room(s->socket, RS_GROUP_FRAME_HEAD);
    if (at) {
        rs_group_frame_put_head(at, 0, RS_GROUP_FRAME_KIND_PRIMARY, primary);
        rs_group_frame_put_channel(at, s->channel);
    }
    return at != NULL;
}

/* Nothing, where programs are told of no views. */
static bool tell_view_that_holds(const rs_local_group *group, rs_group_stream *s) {
    if (!group->ordered || !group->view_peers || !group->delivery.tells_views)
        return true;
    const rs_order_event view = {.kind = RS_ORDER_VIEW,
                                 .view = group->view,
                                 .number = group->view_number,
                                 .members = group->view_peers,
                                 .member_count = group->view_count};
    return give_view(s, &view, VIEW_ANEW);
}

/* What holds now is told before anything else of the group, as to one that joined: it has lost what was before. */
static bool told_of_view(rs_group_stream *s) {
    if (!s->owes_view)
        return true;
    const rs_local_group *group = s->group;
    s->owes_view = !tell_view_that_holds(group, s) || (group->not_primary && !give_primary(s, false));
    return !s->owes_view;
}

void rs_stream_message(rs_group_stream *s, const rs_messages_event *event) {
    const rs_group_peer *peer = rs_group_peer_at(s->groups, event->sender);
    bool fits = rs_stream_unread(s->socket) + event->length + OUT_SPARE <= rs_stream_unread_most(s->socket) &&
                told_of_losses(s) && told_of_view(s) && (!peer || knows(s->socket, peer));
    uint8_t *at = fits ? rs_unread_room(s->socket, RS_GROUP_FRAME_MESSAGE + (size_t)event->length) : NULL;
    if (!at) {
        s->lost++;
        s->socket->loses = true;
        s->lost_all++;
        s->lost_at = rs_agent_now(s->groups->agent);
        s->group->lost_slow++;
        return;
    }
    rs_group_frame_message(at, event->length, (uint8_t)event->via, event->sender, event->part, event->sn);
    rs_group_frame_put_channel(at, s->channel);
    memcpy(at + RS_GROUP_FRAME_MESSAGE, event->bytes, event->length);
}

/* What is complete is told; later, if there is no room. */
static void tell_complete(rs_group_stream *s) {
    if (s->complete_to == s->completed)
        return;
    uint8_t *at = rs_unread_room(s->socket, RS_GROUP_FRAME_COMPLETE);
    s->socket->completes |= !at;
    if (!at)
        return;
    rs_group_frame_complete(at, s->completed, s->given_up);
    rs_group_frame_put_channel(at, s->channel);
    s->complete_to = s->completed;
    s->given_up = 0;
}

static void tell_complete_again(rs_group_socket *at) {
    if (!at->completes || rs_stream_unread(at) > RS_UNREAD_HOLD)
        return;
    at->completes = false;
    if (at->alone)
        tell_complete(at->alone);
    for (uint32_t i = 0; i < at->channel_room; i++)
        if (at->channels[i])
            tell_complete(at->channels[i]);
}

void rs_stream_complete(rs_group_stream *s, uint64_t sn, uint64_t given_up) {
    uint64_t before = s->completed;
    while (s->pending_head != s->pending_tail) {
        const rs_stream_pending *first = &s->pending[s->pending_head % s->pending_room];
        if (first->sn > sn)
            break;
        s->completed = first->number;
        s->pending_head++;
    }
    s->given_up += s->completed > before ? given_up : 0;
    if (!s->waits)
        tell_complete(s);
}

bool rs_stream_wants_completion(const rs_group_stream *s) {
    return s->complete;
}

static bool has_pending_room(rs_group_stream *s) {
    uint32_t count = s->pending_tail - s->pending_head;
    if (!s->complete || count < s->pending_room)
        return true;
    uint32_t larger = s->pending_room ? 2 * s->pending_room : PENDING_LEAST;
    rs_stream_pending *ring = larger <= PENDING_MOST ? malloc(larger * sizeof *ring) : NULL;
    if (!ring)
        return false;
    for (uint32_t i = s->pending_head; i != s->pending_tail; i++)
        ring[i % larger] = s->pending[i % s->pending_room];
    free(s->pending);
    s->pending = ring;
    s->pending_room = larger;
    return true;
}

/* A message became packets up to that one; several small messages may share it. */
static void await_completion(rs_group_stream *s, uint64_t sn) {
    if (!s->complete)
        return;
    if (s->pending_head != s->pending_tail && s->pending[(s->pending_tail - 1) % s->pending_room].sn == sn) {
        s->pending[(s->pending_tail - 1) % s->pending_room].number = s->published;
        return;
    }
    s->pending[s->pending_tail++ % s->pending_room] = (rs_stream_pending){s->published, sn};
}

static bool is_full(const rs_group_stream *s) {
    return rs_stream_unread(s->socket) > RS_UNREAD_HOLD;
}

static bool has_lost(const rs_group_stream *s) {
    return s->lost > 0;
}

bool rs_stream_is_slow(const rs_group_stream *s, rs_time now, rs_manager_slow *out) {
    bool loses = s->lost_all > 0 && now - s->lost_at < SLOW_TOLD;
    bool waited_for = s->group->delivery.slow == RS_SLOW_WAIT && s->group->waited_at > 0 && is_full(s);
    if (s->waits || !s->receives || (!loses && !waited_for))
        return false;
    *out = (rs_manager_slow){s->socket->process, waited_for ? "waited-for" : "loses", s->lost_all};
    return true;
}

/* Its socket is ready for more only when most of it is read: who reads it slowly reads all the same. */
void rs_stream_look(rs_group_stream *stream, rs_time now) {
    rs_group_socket *s = stream->socket;
    int left;
    if (!s->blocked || s->ring.page || now - s->looked_at < LOOK_EVERY || ioctl(s->fd, SIOCOUTQ, &left) != 0)
        return;
    s->looked_at = now;
    if (s->left - left >= READING)
        s->progress_at = now;
    if (s->left - left >= READING || left > s->left)
        s->left = left;
}

bool rs_stream_is_catching_up(const rs_group_stream *s, rs_time now) {
    return s->receives && rs_stream_unread(s->socket) > RS_UNREAD_HOLD &&
           now - s->socket->progress_at < RS_STREAM_STUCK;
}

static void watch(rs_group_socket *s) {
    const bool full = s->blocked && !s->ring.page;
    uint32_t events = (s->paused ? 0u : (uint32_t)EPOLLIN) | (full ? (uint32_t)EPOLLOUT : 0u);
    rs_loop_watch(s->groups->agent->loop, &s->watch, s->fd, events);
}

/* False: not yet. */
static bool told_what_is_owed(rs_group_stream *s) {
    return told_of_losses(s) && told_of_view(s);
}

/* False: the program is gone. */
static bool flush(rs_group_socket *s) {
    const rs_unread_state state = rs_unread_flush(s);
    const bool blocked = state == RS_UNREAD_BLOCKED;
    if (state == RS_UNREAD_GONE)
        return false;
    bool owes = s->loses && blocked;
    if (!blocked && s->alone)
        owes |= !told_what_is_owed(s->alone);
    for (uint32_t i = 0; i < s->channel_room && !blocked && s->loses; i++)
        owes |= s->channels[i] && !told_what_is_owed(s->channels[i]);
    s->loses = owes;
    if (!blocked)
        tell_complete_again(s);
    if (blocked != s->blocked) {
        s->blocked = blocked;
        watch(s);
    }
    return true;
}

void rs_streams_flush(rs_groups *g) {
    while (g->dirty) {
        rs_group_socket *s = g->dirty;
        g->dirty = s->next_dirty;
        s->dirty = false;
        if (!s->blocked && s->fd >= 0 && !flush(s))
            close_socket(s);
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

/* One of them is behind, and reads: it is waited for as if it were elsewhere (rs_flow_open). */
static bool has_neighbour_behind(const rs_group_stream *from, rs_time now) {
    if (from->group->receiver_count == (from->receives ? 1u : 0u))
        return false;
    for (rs_group_stream *s = from->group->streams; s; s = s->next) {
        if (s == from || s->waits)
            continue;
        rs_stream_look(s, now);
        if (rs_stream_is_catching_up(s, now))
            return true;
    }
    return false;
}

/* It stood still, which has not been dealt with yet, or has asked the manager. */
static bool must_hold(const rs_groups *g, rs_time now) {
    const rs_agent *agent = g->agent;
    return now < g->held_until ||
           (agent->link && rs_loop_paused(agent->loop).time - agent->pauses.time >= RS_CHECK_FROM);
}

/* RS_ERR_LIMIT: later. */
static rs_status publish(rs_group_stream *s, const uint8_t *bytes, uint32_t length) {
    rs_groups *g = s->groups;
    rs_local_group *group = s->group;
    uint64_t sn = 0;
    rs_time now = rs_agent_now(g->agent);
    if (must_hold(g, now) || !rs_flow_open(rs_group_sum(g, group), &group->flow, now, g->window) ||
        !has_pending_room(s))
        return RS_ERR_LIMIT;
    if (group->delivery.guaranteed)
        return rs_ordered_publish(g, group, bytes, length);
    if (has_neighbour_behind(s, now))
        return RS_ERR_LIMIT;
    rs_status status = rs_messages_publish(g->node, now, group->id, bytes, length, &sn);
    if (status != RS_OK)
        return status;
    const uint64_t last = rs_messages_last_published(g->node, group->id);
    rs_flow_published(rs_group_sum(g, group), &group->flow, sn, last, length);
    group->published++;
    s->published++;
    if (s->complete)
        await_completion(s, last);
    tell_neighbours(s, bytes, length, sn);
    return RS_OK;
}

/* Nothing follows on that channel. */
static void end_channel(rs_group_socket *at, uint16_t channel, rostrum_code code, const char *text) {
    size_t length = strnlen(text, ROSTRUM_TEXT_MAX);
    uint8_t *to = rs_unread_room(at, rs_group_frame_end_length(length));
    if (!to)
        return;
    rs_group_frame_end(to, (uint16_t)code, text, length);
    rs_group_frame_put_channel(to, channel);
}

void rs_stream_refuse_join(rs_groups *g, const rs_api_join *join, rostrum_code code, const char *text) {
    if (join->channels)
        end_channel(join->channels, join->channel, code, text);
    else
        rs_api_reply_error(g->agent->api, &join->call, code, "%s", text);
}

static rs_group_stream *channel_at(const rs_group_socket *s, uint16_t channel) {
    return channel < s->channel_room ? s->channels[channel] : NULL;
}

/* A program joins a group on a channel that is free, as by the request JOIN. False: it does not keep to the format. */
static bool take_join(rs_group_socket *at, uint16_t channel, const uint8_t *bytes, uint32_t length) {
    rs_groups *g = at->groups;
    rs_api_server *api = g->agent->api;
    rs_error error;
    char text[ROSTRUM_TEXT_MAX + 1];
    rs_api_request *request = malloc(sizeof *request);
    if (!request || channel_at(at, channel)) {
        free(request);
        return false;
    }
    bool well = rs_api_parse_request(bytes, length, request, &error) && request->type == RS_API_JOIN;
    rs_api_join join = {.channels = at, .channel = channel, .who = &at->who, .process = at->process, .socket = -1};
    if (!well) {
        rs_stream_refuse_join(g, &join, ROSTRUM_ERR_INVALID, error.text);
    } else if (!rs_api_may_join(api, &at->who, at->process, request, text)) {
        rs_stream_refuse_join(g, &join, ROSTRUM_ERR_DENIED, text);
    } else {
        join.subscribe = request->flags & RS_API_JOIN_SUBSCRIBE;
        join.complete = request->flags & RS_API_JOIN_COMPLETE;
        join.from = request->flags & RS_API_JOIN_FROM;
        join.since = request->flags & RS_API_JOIN_SINCE;
        join.start = request->number;
        join.group = request->group;
        join.protocol = request->protocol;
        join.order = request->order;
        join.options = request->options;
        rs_groups_api(g->agent, &join);
    }
    free(request);
    return true;
}

static void refuse_publisher(rs_group_stream *s) {
    rs_stream_refuse(s, ROSTRUM_ERR_DENIED,
                     "this user may not publish here: the policy of this server's agent does not say so. Have the "
                     "operator add the group to the line \"publish =\" of your user or group");
}

static rs_status take_frame(rs_group_socket *at, int kind, const uint8_t *frame, uint32_t length) {
    uint16_t channel = rs_group_frame_channel(frame);
    const uint8_t *bytes = frame + RS_GROUP_FRAME_HEAD;
    rs_group_stream *s = at->many ? channel_at(at, channel) : at->alone;
    if (at->many != (channel > 0))
        return RS_ERR_INVALID;
    if (at->many && kind == RS_GROUP_FRAME_KIND_JOIN)
        return take_join(at, channel, bytes, length) ? RS_OK : RS_ERR_INVALID;
    if (at->many && kind == RS_GROUP_FRAME_KIND_LEAVE && length == 0) {
        if (s)
            close_stream(s);
        return RS_OK;
    }
    if (kind != RS_GROUP_FRAME_KIND_PUBLISH || (s && s->waits))
        return RS_ERR_INVALID;
    if (!s)
        return RS_OK; /* the program has not read yet that the channel ended */
    if (s->may_publish)
        return publish(s, bytes, length);
    s->refused = true;
    if (!at->many)
        return RS_ERR_PROTOCOL;
    refuse_publisher(s);
    return RS_OK;
}

static const rs_published_calls CALLS = {.take = take_frame, .watch = watch};

static void end_socket(rs_group_socket *s) {
    if (s->alone && s->alone->refused)
        refuse_publisher(s->alone);
    else
        close_socket(s);
}

static void ready(void *context, uint32_t events) {
    rs_group_socket *s = context;
    bool alive = true;
    if (events & EPOLLOUT)
        alive = flush(s);
    if (alive && !s->paused && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        alive = rs_published_read(s);
    else if (alive && (events & (EPOLLHUP | EPOLLERR)))
        rs_loop_unwatch(s->groups->agent->loop, &s->watch); /* what it published last is still to go */
    if (!alive)
        end_socket(s);
}

/* The program has read of its ring. */
static void roomy(void *context, uint32_t events) {
    rs_group_socket *s = context;
    (void)events;
    rs_unread_woken(s);
    if (!flush(s))
        end_socket(s);
}

void rs_streams_resume(rs_groups *g) {
    for (rs_list *at = g->paused.next, *after; at != &g->paused; at = after) {
        after = at->next;
        rs_group_socket *s = RS_HOLDER(rs_group_socket, in_paused, at);
        if (!rs_published_take(s))
            end_socket(s);
    }
}

/* -------------------------------------------------------------------------------------------------------- life */

static rs_group_socket *new_socket(rs_groups *g, const rs_policy_who *who, const char *process, int given) {
    rs_group_socket *at = calloc(1, sizeof *at);
    if (!at)
        return NULL;
    at->groups = g;
    at->who = *who;
    at->fd = at->event = -1;
    at->given = given;
    at->calls = &CALLS;
    at->watch = (rs_watch){.ready = ready, .context = at};
    rs_list_init(&at->in_paused);
    rs_list_init(&at->in_groups);
    snprintf(at->process, sizeof at->process, "%s", process && process[0] ? process : "program");
    return at;
}

static void free_socket(rs_group_socket *at) {
    rs_groups *g = at->groups;
    for (rs_group_socket **dirty = &g->dirty; *dirty; dirty = &(*dirty)->next_dirty)
        if (*dirty == at) {
            *dirty = at->next_dirty;
            break;
        }
    rs_list_remove(&at->in_paused);
    rs_list_remove(&at->in_groups);
    rs_loop_unwatch(g->agent->loop, &at->watch);
    if (at->fd >= 0)
        close(at->fd);
    if (at->given >= 0)
        close(at->given);
    rs_unread_free(at);
    rs_published_free(at);
    free(at->told);
    free(at->channels);
    free(at);
}

/* The program is gone, or all it said here does not count. */
static void close_socket(rs_group_socket *at) {
    if (at->alone) {
        close_stream(at->alone);
        return;
    }
    for (uint32_t i = 0; i < at->channel_room; i++)
        if (at->channels[i])
            close_stream(at->channels[i]);
    at->groups->socket_count--;
    free_socket(at);
}

static void open_ring(rs_group_socket *at) {
    if (at->alone && at->alone->receives)
        rs_unread_ring(at, roomy);
    else
        rs_published_ring(at);
}

static void set_socket_bytes(int fd, int bytes) {
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) != 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes); /* as much as the system grants */
}

/* Both ends of a socket, or the program's own; the other one, or -1, is `*theirs`. */
static bool open_socket(rs_group_socket *at, int *theirs) {
    int ends[2] = {at->given, -1};
    if (at->given < 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return false;
    for (int i = 0; i < 2 && ends[i] >= 0; i++)
        set_socket_bytes(ends[i], SOCKET_BYTES);
    at->fd = ends[0];
    at->given = -1;
    at->progress_at = rs_agent_now(at->groups->agent);
    watch(at);
    if (ends[1] >= 0)
        open_ring(at);
    *theirs = ends[1];
    return true;
}

void rs_streams_channels(rs_groups *g, const rs_api_join *join) {
    rs_agent *agent = g->agent;
    int theirs = -1;
    rs_group_socket *at =
        g->socket_count < RS_GROUP_SOCKETS_MOST ? new_socket(g, join->who, join->process, join->socket) : NULL;
    if (!at || !open_socket(at, &theirs)) {
        rs_api_reply_error(agent->api, &join->call, ROSTRUM_ERR_LIMIT,
                           "this agent serves %u programs with channels, or is out of memory or descriptors",
                           g->socket_count);
        if (at)
            free_socket(at);
        else if (join->socket >= 0)
            close(join->socket);
        return;
    }
    at->many = true;
    g->socket_count++;
    rs_list_append(&g->sockets, &at->in_groups);
    rs_api_reply_group(agent->api, &join->call, "", "", g->message_bytes, theirs);
}

void rs_streams_end(rs_groups *g) {
    while (!rs_list_empty(&g->sockets)) {
        rs_group_socket *at = RS_HOLDER(rs_group_socket, in_groups, g->sockets.next);
        (void)flush(at);
        close_socket(at);
    }
}

static bool put_in_channel(rs_group_stream *s) {
    rs_group_socket *at = s->socket;
    if (s->channel >= at->channel_room) {
        uint32_t more = at->channel_room ? at->channel_room : 16;
        while (more <= s->channel)
            more *= 2;
        rs_group_stream **larger = realloc(at->channels, more * sizeof(rs_group_stream *));
        if (!larger)
            return false;
        memset(larger + at->channel_room, 0, (more - at->channel_room) * sizeof(rs_group_stream *));
        at->channels = larger;
        at->channel_room = more;
    }
    at->channels[s->channel] = s;
    return true;
}

rs_group_stream *rs_stream_new(rs_groups *g, rs_local_group *group, const rs_api_join *join, rs_time deadline) {
    rs_group_stream *s = aligned_alloc(RS_MEMORY_LINE, sizeof *s);
    size_t protocol = strlen(join->protocol) + 1, order = strlen(join->order) + 1, options = strlen(join->options) + 1;
    if (s) {
        memset(s, 0, sizeof *s);
        s->groups = g;
        s->channel = join->channel;
        s->texts = malloc(protocol + order + options);
        s->socket = join->channels ? join->channels : new_socket(g, join->who, join->process, join->socket);
    }
    if (!s || !s->texts || !s->socket || (join->channels && !put_in_channel(s))) {
        if (s && s->socket && !join->channels)
            free_socket(s->socket);
        if (s)
            free(s->texts);
        free(s);
        return NULL;
    }
    if (!join->channels) {
        s->socket->alone = s;
        s->socket->asks = join->ring;
    }
    s->group = group;
    s->waits = true;
    s->receives = join->subscribe;
    s->complete = join->complete;
    s->replaying = join->from || join->since;
    s->since = join->since;
    s->oldest = join->from && join->start == 0;
    s->cursor = join->since || join->start > 0 ? join->start : 1;
    s->may_publish = rs_api_may_publish(g->agent->api, &s->socket->who, group->name);
    s->call = join->call;
    s->deadline = deadline;
    memcpy(s->texts, join->protocol, protocol);
    memcpy(s->texts + protocol, join->order, order);
    memcpy(s->texts + protocol + order, join->options, options);
    s->options = (rs_manager_group_options){s->texts, s->texts + protocol, s->texts + protocol + order};
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
    bool received = s->receives, completed = s->complete, others = false;
    for (rs_group_stream **at = &group->streams; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    for (const rs_group_stream *other = group->streams; other && completed && !others; other = other->next)
        others = other->complete;
    if (completed && !others && rs_group_is_viewed(group))
        (void)rs_messages_tell_completion(g->node, group->id, false);
    group->stream_count--;
    group->receiver_count -= s->receives;
    group->replaying_count -= s->replaying && !s->waits;
    g->stream_count--;
    if (s->socket->many)
        s->socket->channels[s->channel] = NULL;
    else
        free_socket(s->socket);
    free(s->pending);
    free(s->texts);
    free(s);
    rs_groups_stream_gone(g, group, received);
}

static bool tell_joined(rs_group_stream *s) {
    const rs_local_group *group = s->group;
    size_t protocol = strlen(group->protocol), order = strlen(group->order);
    uint8_t *at = rs_unread_room(s->socket, rs_group_frame_joined_length(protocol, order));
    if (!at)
        return false;
    rs_group_frame_joined(at, s->groups->message_bytes, group->protocol, protocol, group->order, order);
    rs_group_frame_put_channel(at, s->channel);
    return true;
}

rs_status rs_stream_ask_completion(const rs_group_stream *s) {
    if (!s->complete)
        return RS_OK;
    return s->group->delivery.guaranteed ? RS_ERR_INVALID
                                         : rs_messages_tell_completion(s->groups->node, s->group->id, true);
}

void rs_stream_open(rs_group_stream *s) {
    rs_groups *g = s->groups;
    const rs_local_group *group = s->group;
    int theirs = -1;
    if (s->replaying && !rs_group_delivery_keeps(&group->delivery)) {
        rs_stream_refuse(
            s, ROSTRUM_ERR_DENIED,
            "this group keeps no messages: make it with --order total --keep 64M, or join it without --from");
        return;
    }
    rs_status status = rs_stream_ask_completion(s);
    if (status != RS_OK) {
        rs_stream_refuse(s, status == RS_ERR_INVALID ? ROSTRUM_ERR_INVALID : ROSTRUM_ERR_NO_ROOM,
                         status == RS_ERR_INVALID ? "this group's protocol does not tell what is complete; qsm does"
                                                  : "the agent has no memory left");
        return;
    }
    if (s->socket->many ? !tell_joined(s) : !open_socket(s->socket, &theirs)) {
        rs_stream_refuse(s, ROSTRUM_ERR_IO, "the agent has no descriptors left, or this program reads nothing");
        return;
    }
    s->waits = false;
    if (!s->socket->many)
        rs_api_reply_group(g->agent->api, &s->call, group->protocol, group->order, g->message_bytes, theirs);
    s->group->replaying_count += s->replaying;
    if (s->receives && !s->replaying) {
        s->owes_view = group->delivery.tells_views;
        s->socket->loses |= !told_of_view(s);
    }
}

void rs_stream_refuse(rs_group_stream *s, rostrum_code code, const char *text) {
    if (s->waits && !s->socket->many) {
        rs_api_reply_error(s->groups->agent->api, &s->call, code, "%s", text);
    } else {
        s->socket->progress_at = rs_agent_now(s->groups->agent); /* there is room behind all that may wait */
        if (!s->socket->many && flush(s->socket) && rs_unread_cut(s->socket))
            (void)tell_lost(s, 0, 0, 0, RS_LOST_SLOW); /* nobody knows how many */
        end_channel(s->socket, s->channel, code, text);
        if (!s->socket->many) {
            set_socket_bytes(s->socket->fd, (int)rs_stream_unread(s->socket) + SOCKET_BYTES);
            (void)flush(s->socket); /* all that is unread, and the reason behind it, if the system grants that much */
        }
    }
    close_stream(s);
}

/* -------------------------------------------------------------------------------------------------- guarantees */

static bool hears(const rs_group_stream *s) {
    return !rs_stream_waits(s) && rs_stream_receives(s) && !s->replaying;
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
                       group->name, full->socket->process);
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
    if (s->owes_view) {
        s->socket->loses |= !told_of_view(s);
        return true;
    }
    if (event->kind == RS_ORDER_PRIMARY ? give_primary(s, event->primary)
                                        : give_view(s, event, event->anew ? VIEW_ANEW : 0))
        return true;
    s->owes_view = s->socket->loses = true;
    return group->delivery.slow == RS_SLOW_DROP;
}

static void tell(rs_groups *g, rs_local_group *group, const rs_order_event *event) {
    if (event->kind == RS_ORDER_VIEW) {
        keep_view(group, event);
        group->not_primary = false; /* a view is always of the primary part */
        rs_log(RS_LOG_INFO, "groups", "group=%s view=%llx members=%u joined=%u left=%u", group->name,
               (unsigned long long)event->view, event->member_count, event->joined_count, event->left_count);
    } else if (event->kind == RS_ORDER_PRIMARY) {
        group->not_primary = !event->primary;
        rs_log(RS_LOG_WARNING, "groups", "group=%s primary=%d", group->name, event->primary);
    }
    group->delivered += event->kind == RS_ORDER_MESSAGE;
    group->given = event->kind == RS_ORDER_PRIMARY ? group->given : event->number;
    const rs_group_peer *peer = event->kind == RS_ORDER_MESSAGE ? rs_group_peer_at(g, event->sender) : NULL;
    rs_kept_event(g, group, event, peer ? peer->name : "");
    group->held++;
    for (rs_group_stream *s = group->streams, *next; s; s = next) {
        next = rs_stream_next(s);
        if (!hears(s) || give(s, group, event))
            continue;
        rs_log_limited(&g->complaints, 5, RS_LOG_WARNING, "groups", "group=%s process=%s is too slow and put out",
                       group->name, s->socket->process);
        snprintf(group->put_out, sizeof group->put_out, "%s", s->socket->process);
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

/* ------------------------------------------------------------------------------------------------------ replay */

/* False: there is no room for it now. */
static bool give_record(rs_group_stream *s, const rs_history_record *record) {
    rs_group_socket *to = s->socket;
    const rs_group_peer *peer = rs_group_peer_at(s->groups, record->sender);
    bool same =
        peer && strlen(peer->name) == record->name_length && memcmp(peer->name, record->name, record->name_length) == 0;
    size_t name = rs_group_frame_sender_length(record->name_length);
    if (rs_stream_unread(to) + name + RS_GROUP_FRAME_MESSAGE + record->length + OUT_SPARE > rs_stream_unread_most(to) ||
        (same && !knows(to, peer)))
        return false;
    uint8_t *at = same ? NULL : rs_unread_room(to, name);
    if (at) { /* another server had that address then */
        rs_group_frame_sender(at, record->sender, record->name, record->name_length);
        if (peer && peer->index / 64 < to->told_size)
            to->told[peer->index / 64] &= ~(UINT64_C(1) << peer->index % 64);
    }
    at = same || at ? rs_unread_room(to, RS_GROUP_FRAME_MESSAGE + (size_t)record->length) : NULL;
    if (!at)
        return false;
    rs_group_frame_message(at, record->length, VIA_KEPT, record->sender, 0, record->number);
    rs_group_frame_put_channel(at, s->channel);
    memcpy(at + RS_GROUP_FRAME_MESSAGE, record->bytes, record->length);
    return true;
}

/* It has all that was given out so far, and hears the group from here on. */
static void go_live(rs_group_stream *s) {
    rs_local_group *group = s->group;
    s->replaying = false;
    group->replaying_count--;
    s->owes_view = group->delivery.tells_views;
    s->socket->loses |= !told_of_view(s);
}

static bool find_start(rs_group_stream *s, rs_replay *replay) {
    rs_history_record record;
    if (s->since && !rs_replay_is_complete(replay))
        return false;
    if (s->since)
        s->cursor =
            rs_history_since(rs_kept_history(s->group), s->cursor, &record) ? record.number : s->group->given + 1;
    s->since = false;
    return true;
}

/* The next one; false: it has to wait. */
static bool replay_one(rs_group_stream *s, rs_replay *replay) {
    rs_history_record record;
    rs_replay_answer answer = rs_replay_at(replay, s->cursor, s->group->given, &record);
    if (answer == RS_REPLAY_WAITS || (answer == RS_REPLAY_HERE && !give_record(s, &record)))
        return false;
    if (answer == RS_REPLAY_GONE && !s->oldest && !tell_lost(s, 0, s->cursor, record.number - s->cursor, LOST_NOT_KEPT))
        return false;
    s->oldest = false;
    s->cursor = answer == RS_REPLAY_HERE ? s->cursor + 1 : record.number;
    return true;
}

/* True: there is more. */
static bool replay(rs_group_stream *s) {
    rs_local_group *group = s->group;
    rs_replay *replay = rs_kept_replay(group);
    uint32_t count = 0;
    if (!group->ordered || !group->view_peers || (replay && !find_start(s, replay)))
        return false;
    while (replay && s->cursor <= group->given && count < EVENTS_TURN && !is_full(s) && replay_one(s, replay))
        count++;
    if (!replay || s->cursor > group->given)
        go_live(s);
    return count == EVENTS_TURN;
}

static bool replay_all(rs_local_group *group) {
    uint64_t pin = UINT64_MAX;
    bool more = false;
    for (rs_group_stream *s = group->streams; s; s = s->next) {
        if (!s->replaying || s->waits)
            continue;
        more |= replay(s);
        if (s->replaying)
            pin = s->since || s->oldest ? 0 : s->cursor < pin ? s->cursor : pin;
    }
    if (group->kept)
        rs_replay_pin(rs_kept_replay(group), pin);
    return more;
}

bool rs_streams_take_ordered(rs_groups *g) {
    bool more = false;
    for (rs_local_group *group = g->ordered, *next; group; group = next) {
        next = group->next_ordered;
        more |= give_out(g, group);
        more |= group->replaying_count > 0 && replay_all(group);
    }
    return more;
}
