/* librostrum's message groups: frames on a group's own socket, both ways in large pieces. */
#include "client/groups.h"

#include "client/connection.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define IN_BYTES (256u << 10) /* read at once */
#define SEND_BOUND_MS 10000

int64_t rostrum_now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* ----------------------------------------------------------------------------------------------------- joining */

rostrum_group *rostrum_group_at(int fd, const char *protocol, const char *order, uint32_t message_bytes) {
    rostrum_group *group = calloc(1, sizeof *group);
    if (!group)
        return NULL;
    group->fd = fd;
    group->given[0] = group->given[1] = -1;
    group->message_bytes = message_bytes;
    snprintf(group->protocol, sizeof group->protocol, "%s", protocol);
    snprintf(group->order, sizeof group->order, "%s", order);
    return group;
}

static rostrum_code join(rostrum *agent, const char *name, const rostrum_group_options *options, uint32_t flags,
                         uint64_t start, rostrum_group **out, rostrum_error *error) {
    rostrum_outcome outcome = {.fd = -1};
    rs_api_request *request = rostrum_request(agent, RS_API_JOIN, 0);
    *out = NULL;
    request->number = start;
    request->flags = flags | (options && options->completion ? RS_API_JOIN_COMPLETE : 0) | RS_API_JOIN_RING;
    request->group = name;
    if (options) {
        request->protocol = options->protocol;
        request->order = options->order || !options->protocol ? options->order : "none";
        request->options = options->options;
    }
    rostrum_code code = rostrum_ask(agent, 0, -1, &outcome, error);
    if (code)
        return code;
    *out = rostrum_group_at(outcome.fd, outcome.protocol, outcome.order, outcome.message_bytes);
    if (!*out) {
        close(outcome.fd);
        return rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "no memory for a group");
    }
    (*out)->asks = true;
    (*out)->subscribes = flags & RS_API_JOIN_SUBSCRIBE;
    if (!(*out)->subscribes) /* the ring, if it gets one, is there already */
        (void)rostrum_group_fill(*out);
    if (!rostrum_group_take_ring(*out)) {
        rostrum_group_free(*out);
        *out = NULL;
        return rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "no memory, or no descriptors, for messages to the agent");
    }
    return ROSTRUM_OK;
}

rostrum_code rostrum_subscribe(rostrum *agent, const char *group, const rostrum_group_options *options,
                               rostrum_group **out, rostrum_error *error) {
    return join(agent, group, options, RS_API_JOIN_SUBSCRIBE, 0, out, error);
}

rostrum_code rostrum_subscribe_from(rostrum *agent, const char *group, const rostrum_group_options *options,
                                    uint64_t number, rostrum_group **out, rostrum_error *error) {
    return join(agent, group, options, RS_API_JOIN_SUBSCRIBE | RS_API_JOIN_FROM, number, out, error);
}

rostrum_code rostrum_subscribe_since(rostrum *agent, const char *group, const rostrum_group_options *options,
                                     uint64_t time_ns, rostrum_group **out, rostrum_error *error) {
    return join(agent, group, options, RS_API_JOIN_SUBSCRIBE | RS_API_JOIN_SINCE, time_ns, out, error);
}

rostrum_code rostrum_publisher(rostrum *agent, const char *group, const rostrum_group_options *options,
                               rostrum_group **out, rostrum_error *error) {
    return join(agent, group, options, 0, 0, out, error);
}

void rostrum_leave(rostrum_group *group) {
    if (!group)
        return;
    (void)rostrum_flush(group, NULL);
    rostrum_group_free(group);
}

void rostrum_group_free(rostrum_group *group) {
    close(group->fd);
    for (uint32_t i = 0; i < 2; i++)
        if (group->given[i] >= 0)
            close(group->given[i]);
    rs_shared_ring_close(&group->ring);
    rs_shared_ring_close(&group->published);
    for (uint32_t i = 0; i < ROSTRUM_SENDER_BUCKETS; i++)
        while (group->senders[i]) {
            rostrum_sender *gone = group->senders[i];
            group->senders[i] = gone->next;
            free(gone);
        }
    free(group->names);
    free(group->out.bytes);
    free(group->in.bytes);
    free(group->large.bytes);
    free(group);
}

const char *rostrum_group_protocol(const rostrum_group *group) {
    return group->protocol;
}

const char *rostrum_group_order(const rostrum_group *group) {
    return group->order;
}

uint32_t rostrum_group_message_bytes(const rostrum_group *group) {
    return group->message_bytes;
}

int rostrum_group_fd(const rostrum_group *group) {
    return group->fd;
}

bool rostrum_buffer_reserve(rostrum_buffer *b, size_t more) {
    if (b->length + more > b->room && b->start > 0) {
        memmove(b->bytes, b->bytes + b->start, b->length - b->start);
        b->length -= b->start;
        b->start = 0;
    }
    if (b->length + more <= b->room)
        return true;
    uint8_t *larger = realloc(b->bytes, b->length + more);
    if (!larger)
        return false;
    b->bytes = larger;
    b->room = b->length + more;
    return true;
}

/* 0 = one of them is ready; else an errno: ETIMEDOUT. `bound_ms` -1: none. */
static int wait_any(struct pollfd *ready, nfds_t of, int64_t bound_ms) {
    int64_t end = bound_ms < 0 ? INT64_MAX : rostrum_now_ms() + bound_ms;
    for (;;) {
        int64_t left = bound_ms < 0 ? -1 : end - rostrum_now_ms();
        int count = poll(ready, of, bound_ms < 0 ? -1 : left < 0 ? 0 : (int)left);
        if (count > 0)
            return 0;
        if (count == 0)
            return ETIMEDOUT;
        if (errno != EINTR)
            return errno;
    }
}

static int wait_ready(int fd, short events, int64_t bound_ms) {
    struct pollfd ready = {.fd = fd, .events = events};
    return wait_any(&ready, 1, bound_ms);
}

/* -------------------------------------------------------------------------------------------------- publishing */

bool rostrum_group_take_ring(rostrum_group *group) {
    uint32_t length;
    const uint8_t *at = group->in.bytes + group->in.start;
    if (group->subscribes || group->in.length - group->in.start < RS_GROUP_FRAME_HEAD ||
        rs_group_frame_head(at, &length) != RS_GROUP_FRAME_KIND_RING)
        return true;
    if (group->given[1] < 0) /* this program has no more descriptors */
        return false;
    group->in.start += RS_GROUP_FRAME_HEAD;
    return rs_shared_ring_open(&group->published, group->given[0]);
}

static rostrum_code agent_gone(rostrum_error *error, int number) {
    rostrum_error reason;
    (void)rs_error_system(&reason, number,
                          "the agent takes no more messages of this group (it ended, or the group was deleted)");
    return rostrum_fail(error, ROSTRUM_ERR_UNAVAILABLE, reason.text);
}

/* The agent sees what is in the ring. False: it is gone. */
static bool tell_agent(rostrum_group *group) {
    uint8_t frame[RS_GROUP_FRAME_HEAD];
    struct pollfd end = {.fd = group->fd};
    if (!rs_shared_ring_tell(&group->published))
        return poll(&end, 1, 0) < 1;
    rs_group_frame_put_head(frame, 0, RS_GROUP_FRAME_KIND_WAKE, 0);
    ssize_t sent;
    do
        sent = send(group->fd, frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent >= 0 || errno == EAGAIN || errno == ENOBUFS; /* what fills the socket are wakes */
}

static rostrum_code flush_ring(rostrum_group *group, rostrum_error *error) {
    rostrum_buffer *out = &group->out;
    size_t room;
    while (out->start < out->length && (room = rs_shared_ring_free(&group->published)) > 0) {
        size_t left = out->length - out->start, piece = left < room ? left : room;
        memcpy(rs_shared_ring_put(&group->published, piece), out->bytes + out->start, piece);
        out->start += piece;
    }
    if (!tell_agent(group))
        return agent_gone(error, EPIPE);
    if (out->start < out->length)
        return group->published.broken ? agent_gone(error, EPROTO) : ROSTRUM_ERR_BUSY;
    out->start = out->length = 0;
    return ROSTRUM_OK;
}

rostrum_code rostrum_group_flush_some(rostrum_group *group, rostrum_error *error) {
    rostrum_buffer *out = &group->out;
    if (group->published.page)
        return flush_ring(group, error);
    while (out->start < out->length) {
        ssize_t sent = send(group->fd, out->bytes + out->start, out->length - out->start, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            out->start += (size_t)sent;
            continue;
        }
        int number = sent == 0 ? EAGAIN : errno;
        if (number == EAGAIN || number == ENOBUFS)
            return ROSTRUM_ERR_BUSY;
        if (number != EINTR)
            return agent_gone(error, number);
    }
    out->start = out->length = 0;
    return ROSTRUM_OK;
}

/* 0 = there may be room, or the agent is gone; else an errno: ETIMEDOUT. */
static int wait_room(rostrum_group *group) {
    uint8_t wakes[64];
    if (!group->published.page)
        return wait_ready(group->fd, POLLOUT, SEND_BOUND_MS);
    if (!rs_shared_ring_await_room(&group->published))
        return 0;
    struct pollfd ready[] = {{.fd = group->given[1], .events = POLLIN}, {.fd = group->fd}}; /* or its end */
    int number = wait_any(ready, 2, SEND_BOUND_MS);
    (void)recv(group->given[1], wakes, sizeof wakes, MSG_DONTWAIT);
    return number;
}

rostrum_code rostrum_flush(rostrum_group *group, rostrum_error *error) {
    rostrum_code code;
    while ((code = rostrum_group_flush_some(group, error)) == ROSTRUM_ERR_BUSY) {
        int number = wait_room(group);
        if (number == ETIMEDOUT)
            return rostrum_fail(error, ROSTRUM_ERR_TIMEOUT,
                                "the agent had no room for 10 s: receivers or the network take no more");
        if (number && number != EINTR)
            return agent_gone(error, number);
    }
    return code;
}

static void put_frame(uint8_t *to, const void *bytes, uint32_t length) {
    rs_group_frame_put_head(to, length, RS_GROUP_FRAME_KIND_PUBLISH, 0);
    if (length)
        memcpy(to + RS_GROUP_FRAME_HEAD, bytes, length);
}

rostrum_code rostrum_publish(rostrum_group *group, const void *bytes, uint32_t length, unsigned flags,
                             rostrum_error *error) {
    rostrum_buffer *out = &group->out;
    if (length > group->message_bytes)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "the message is longer than a group's messages may be");
    if (out->length - out->start > 2 * ROSTRUM_OUT_KEPT) { /* of a call that timed out */
        rostrum_code code = rostrum_flush(group, error);
        if (code)
            return code;
    }
    size_t need = RS_GROUP_FRAME_HEAD + (size_t)length;
    uint8_t *at =
        group->published.page && out->start == out->length ? rs_shared_ring_put(&group->published, need) : NULL;
    if (at) {
        put_frame(at, bytes, length);
        return flags & ROSTRUM_MORE && group->published.put - group->published.told < ROSTRUM_OUT_KEPT
                   ? ROSTRUM_OK
                   : rostrum_flush(group, error);
    }
    if (!rostrum_buffer_reserve(out, need > ROSTRUM_OUT_KEPT || out->room ? need : ROSTRUM_OUT_KEPT + need))
        return rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "no memory for a message");
    put_frame(out->bytes + out->length, bytes, length);
    out->length += need;
    if (flags & ROSTRUM_MORE && out->length - out->start < ROSTRUM_OUT_KEPT)
        return ROSTRUM_OK;
    return rostrum_flush(group, error);
}

/* ------------------------------------------------------------------------------------------------------ taking */

static const char *name_of(rostrum_group *group, uint32_t number) {
    if (group->last && group->last->number == number)
        return group->last->name;
    const rostrum_sender *s = group->senders[number % ROSTRUM_SENDER_BUCKETS];
    while (s && s->number != number)
        s = s->next;
    group->last = s ? s : group->last;
    return s ? s->name : "";
}

static bool learn_sender(rostrum_group *group, uint32_t number, const uint8_t *name, size_t length) {
    rostrum_sender **head = &group->senders[number % ROSTRUM_SENDER_BUCKETS];
    group->last = NULL;
    for (rostrum_sender **at = head; *at; at = &(*at)->next) {
        rostrum_sender *known = *at; /* told again: the newest of a number counts, and names given out stay */
        if (known->number == number && strlen(known->name) == length && memcmp(known->name, name, length) == 0) {
            *at = known->next;
            known->next = *head;
            *head = known;
            return true;
        }
    }
    rostrum_sender *s = malloc(sizeof *s + length + 1);
    if (!s)
        return false;
    s->number = number;
    memcpy(s->name, name, length);
    s->name[length] = 0;
    s->next = *head;
    *head = s;
    return true;
}

static const char *reason_text(uint8_t reason) {
    static const char *const text[] = {"lost in the network and not recovered in time",
                                       "lost in the network, and too much came after it",
                                       "this subscriber was too slow",
                                       "parts of a large message were lost",
                                       "its sender was restarted",
                                       "no member keeps it any more"};
    return reason < sizeof text / sizeof text[0] ? text[reason] : "lost";
}

static rostrum_code end_with(rostrum_group *group, rostrum_error *error, rostrum_code code, const char *text) {
    (void)rostrum_fail(&group->ended, code, text);
    return rostrum_fail(error, code, text);
}

/* False: it is malformed, or out of memory. */
static bool take_view(rostrum_group *group, const uint8_t *fields, uint32_t length, bool anew) {
    uint64_t all = 0;
    uint32_t counts[3];
    if (length < 28)
        return false;
    for (uint32_t i = 0; i < 3; i++) {
        counts[i] = (uint32_t)rs_group_get(fields + 16 + 4 * (size_t)i, 4);
        all += counts[i];
    }
    if (all > RS_GROUP_FRAME_VIEW_MOST || length != 28 + 4 * all)
        return false;
    const char **names = malloc((all + 1) * sizeof *names);
    if (!names)
        return false;
    for (uint32_t i = 0; i < all; i++)
        names[i] = name_of(group, (uint32_t)rs_group_get(fields + 28 + 4 * (size_t)i, 4));
    free(group->names);
    group->names = names;
    group->view = (rostrum_view){.id = rs_group_get(fields, 8),
                                 .number = rs_group_get(fields + 8, 8),
                                 .members = names,
                                 .joined = names + counts[0],
                                 .left = names + counts[0] + counts[1],
                                 .member_count = counts[0],
                                 .joined_count = counts[1],
                                 .left_count = counts[2],
                                 .anew = anew};
    return true;
}

const rostrum_view *rostrum_group_view(const rostrum_group *group) {
    return group->names ? &group->view : NULL;
}

bool rostrum_group_take_frame(rostrum_group *group, const uint8_t *at, uint32_t length, int kind, rostrum_message *out,
                              rostrum_error *error) {
    const uint8_t *fields = at + RS_GROUP_FRAME_HEAD;
    if (kind == RS_GROUP_FRAME_KIND_MESSAGE && length >= 16) {
        *out = (rostrum_message){.sender = name_of(group, (uint32_t)rs_group_get(fields, 4)),
                                 .part = (uint32_t)rs_group_get(fields + 4, 4),
                                 .sn = rs_group_get(fields + 8, 8),
                                 .bytes = fields + 16,
                                 .length = length - 16,
                                 .via = (rostrum_via)at[5]};
        return true;
    }
    if (kind == RS_GROUP_FRAME_KIND_LOST && length == 24) {
        *out = (rostrum_message){.kind = ROSTRUM_MESSAGES_LOST,
                                 .sender = name_of(group, (uint32_t)rs_group_get(fields, 4)),
                                 .sn = rs_group_get(fields + 8, 8),
                                 .count = rs_group_get(fields + 16, 8),
                                 .why = reason_text(at[5])};
        return true;
    }
    if (kind == RS_GROUP_FRAME_KIND_VIEW && take_view(group, fields, length, at[5] & 1)) {
        *out = (rostrum_message){.kind = ROSTRUM_VIEW, .sender = "", .why = ""};
        return true;
    }
    if (kind == RS_GROUP_FRAME_KIND_PRIMARY && length == 0) {
        *out = (rostrum_message){.kind = ROSTRUM_PRIMARY, .sender = "", .count = at[5] & 1, .why = ""};
        return true;
    }
    if (kind == RS_GROUP_FRAME_KIND_COMPLETE && length == 16) {
        *out = (rostrum_message){.kind = ROSTRUM_COMPLETE,
                                 .sender = "",
                                 .sn = rs_group_get(fields, 8),
                                 .count = rs_group_get(fields + 8, 8),
                                 .why = ""};
        return true;
    }
    if (kind == RS_GROUP_FRAME_KIND_WAKE && length == 0)
        return false; /* what it says is in the ring */
    if (kind == RS_GROUP_FRAME_KIND_RING && length == 0 && group->given[1] >= 0 && !group->ring.page) {
        if (!rs_shared_ring_open(&group->ring, group->given[0]))
            (void)end_with(group, error, ROSTRUM_ERR_NO_ROOM, "no memory for messages of the agent");
    } else if (kind == RS_GROUP_FRAME_KIND_SENDER && length >= 4 && length <= 4 + ROSTRUM_NAME_MAX) {
        if (!learn_sender(group, (uint32_t)rs_group_get(fields, 4), fields + 4, length - 4))
            (void)end_with(group, error, ROSTRUM_ERR_NO_ROOM, "no memory for a sender's name");
    } else if (kind == RS_GROUP_FRAME_KIND_END && length >= 2 && length <= 2 + ROSTRUM_TEXT_MAX) {
        char text[ROSTRUM_TEXT_MAX + 1] = {0};
        memcpy(text, fields + 2, length - 2);
        rostrum_code code = (rostrum_code)rs_group_get(fields, 2);
        /* TIMEOUT would look as if messages could still come. */
        bool known = code != ROSTRUM_OK && code != ROSTRUM_ERR_TIMEOUT;
        (void)end_with(group, error, known ? code : ROSTRUM_ERR_UNAVAILABLE, text);
    } else {
        (void)end_with(group, error, ROSTRUM_ERR_PROTOCOL, "the agent sent a malformed frame");
    }
    return false;
}

/* As recv, with the descriptors of a ring. */
static ssize_t receive(rostrum_group *group, uint8_t *bytes, size_t most) {
    if (!group->asks)
        return recv(group->fd, bytes, most, MSG_DONTWAIT);
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof group->given)];
    struct iovec place = {bytes, most};
    struct msghdr message = {
        .msg_iov = &place, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(group->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    group->asks = got <= 0;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof group->given))
        memcpy(group->given, CMSG_DATA(c), sizeof group->given);
    return got;
}

int rostrum_group_fill(rostrum_group *group) {
    rostrum_buffer *in = &group->in;
    uint32_t length = 0;
    size_t have = in->length - in->start, want = IN_BYTES;
    if (have >= RS_GROUP_FRAME_HEAD) {
        (void)rs_group_frame_head(in->bytes + in->start, &length);
        if (length > group->message_bytes + RS_GROUP_FRAME_MESSAGE)
            return EPROTO;
        if (RS_GROUP_FRAME_HEAD + (size_t)length > have + want)
            want = RS_GROUP_FRAME_HEAD + (size_t)length - have;
    }
    if (have == 0)
        in->start = in->length = 0;
    if (!rostrum_buffer_reserve(in, have == 0 || in->room - in->length < want / 4 ? want : in->room - in->length))
        return ENOMEM;
    ssize_t got = receive(group, in->bytes + in->length, in->room - in->length);
    if (got > 0)
        in->length += (size_t)got;
    return got > 0 ? 0 : got == 0 ? ECONNRESET : errno;
}

/* What was read of the ring before is the agent's again. */
static void give_back(rostrum_group *group, bool all) {
    if (rs_shared_ring_give_back(&group->ring, all) && eventfd_write(group->given[1], 1) != 0)
        (void)end_with(group, NULL, ROSTRUM_ERR_UNAVAILABLE, strerror(errno));
}

/* A frame that is larger than the ring comes piece by piece. NULL: it is not whole yet. */
static const uint8_t *large_frame(rostrum_group *group, const uint8_t *bytes, size_t waiting, size_t whole) {
    rostrum_buffer *large = &group->large;
    size_t more = whole - large->length < waiting ? whole - large->length : waiting;
    if (!rostrum_buffer_reserve(large, whole - large->length)) {
        (void)end_with(group, NULL, ROSTRUM_ERR_NO_ROOM, "no memory for a large message");
        return NULL;
    }
    memcpy(large->bytes + large->length, bytes, more);
    large->length += more;
    rs_shared_ring_take(&group->ring, more);
    return large->length == whole ? large->bytes : NULL;
}

/* The next whole frame of the ring; NULL: there is none (yet). */
static const uint8_t *ring_frame(rostrum_group *group, uint32_t *length) {
    rostrum_buffer *large = &group->large;
    const uint8_t *at;
    const bool parted = large->length > 0;
    if (parted)
        (void)rs_group_frame_head(large->bytes, length);
    size_t whole = parted ? RS_GROUP_FRAME_HEAD + (size_t)*length : RS_GROUP_FRAME_HEAD;
    size_t waiting = rs_shared_ring_waiting(&group->ring, parted ? 1 : whole, &at);
    if (parted)
        return waiting > 0 ? large_frame(group, at, waiting, whole) : NULL;
    if (waiting < RS_GROUP_FRAME_HEAD)
        return NULL;
    (void)rs_group_frame_head(at, length);
    whole += *length;
    if (*length > group->message_bytes + RS_GROUP_FRAME_MESSAGE) {
        (void)end_with(group, NULL, ROSTRUM_ERR_PROTOCOL, strerror(EPROTO));
        return NULL;
    }
    if (whole > group->ring.size)
        return large_frame(group, at, waiting, whole);
    if (waiting < whole && rs_shared_ring_waiting(&group->ring, whole, &at) < whole)
        return NULL;
    rs_shared_ring_take(&group->ring, whole);
    return at;
}

static bool next_of_ring(rostrum_group *group, rostrum_message *message, rostrum_error *error) {
    const uint8_t *at;
    uint32_t length;
    if (!group->ring.page)
        return false;
    while (!group->ended.code) {
        give_back(group, false);
        if (!(at = ring_frame(group, &length)))
            break;
        int kind = rs_group_frame_head(at, &length);
        bool given = rostrum_group_take_frame(group, at, length, kind, message, error);
        if (at == group->large.bytes)
            group->large.length = 0; /* its bytes stay until the next call */
        if (given)
            return true;
    }
    if (group->ring.broken && !group->ended.code)
        (void)end_with(group, error, ROSTRUM_ERR_PROTOCOL, strerror(EPROTO));
    return false;
}

static bool next_of_socket(rostrum_group *group, rostrum_message *message, rostrum_error *error) {
    rostrum_buffer *in = &group->in;
    while (!group->ended.code && in->length - in->start >= RS_GROUP_FRAME_HEAD) {
        const uint8_t *at = in->bytes + in->start;
        uint32_t length;
        int kind = rs_group_frame_head(at, &length);
        if (in->length - in->start < RS_GROUP_FRAME_HEAD + (size_t)length)
            break;
        in->start += RS_GROUP_FRAME_HEAD + (size_t)length;
        if (rostrum_group_take_frame(group, at, length, kind, message, error) ||
            (kind == RS_GROUP_FRAME_KIND_RING && next_of_ring(group, message, error)))
            return true;
    }
    return false;
}

/* Until something may have come. 0, or an errno: ETIMEDOUT, ECONNRESET at the end. */
static int await(rostrum_group *group, int timeout_ms, int64_t end) {
    if (group->ring.page) {
        give_back(group, true);
        if (!rs_shared_ring_sleep(&group->ring))
            return 0;
    }
    int number = group->ring.page && timeout_ms != 0 ? EAGAIN : rostrum_group_fill(group);
    if (number != EAGAIN && number != EWOULDBLOCK)
        return number;
    int64_t left = timeout_ms > 0 ? end - rostrum_now_ms() : timeout_ms;
    if (timeout_ms >= 0 && left <= 0)
        return ETIMEDOUT;
    number = wait_ready(group->fd, POLLIN, left);
    return number == 0 && group->ring.page ? rostrum_group_fill(group) : number;
}

rostrum_code rostrum_next(rostrum_group *group, rostrum_message *message, int timeout_ms, rostrum_error *error) {
    int64_t end = timeout_ms > 0 ? rostrum_now_ms() + timeout_ms : 0;
    while (!group->ended.code) {
        if (next_of_ring(group, message, error) || next_of_socket(group, message, error))
            return ROSTRUM_OK;
        if (group->ended.code)
            break;
        int number = await(group, timeout_ms, end);
        if (number == ETIMEDOUT)
            return rostrum_fail(error, ROSTRUM_ERR_TIMEOUT, "no message came in time");
        if (number == ECONNRESET && next_of_ring(group, message, error))
            return ROSTRUM_OK; /* what the agent put there last */
        if (number && number != EINTR && !group->ended.code)
            (void)end_with(group, error, number == EPROTO ? ROSTRUM_ERR_PROTOCOL : ROSTRUM_ERR_UNAVAILABLE,
                           number == ECONNRESET ? "the agent went away" : strerror(number));
    }
    return rostrum_fail(error, group->ended.code, group->ended.text);
}

rostrum_code rostrum_group_dispatch(rostrum_group *group, rostrum_deliver_fn *deliver, rostrum_confchg_fn *confchg,
                                    void *context, int timeout_ms, rostrum_error *error) {
    rostrum_message message;
    for (;;) {
        rostrum_code code = rostrum_next(group, &message, timeout_ms, error);
        if (code)
            return code;
        if (message.kind != ROSTRUM_VIEW) {
            deliver(context, &message);
            return ROSTRUM_OK;
        }
        if (confchg)
            confchg(context, &group->view);
    }
}
