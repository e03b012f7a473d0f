/* librostrum's channels: frames of many groups on one socket, and feeds that messages are pulled from. */
#include "client/connection.h"
#include "client/groups.h"

#include <rostrum/channels.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHANNELS_MOST 65535u
#define FRAMES_TURN 256u /* frames taken, and then feeds are pulled from */

struct rostrum_channel {
    rostrum_channels *all;
    uint16_t number;
    bool joined, ended;
    bool active;            /* It is among those whose feeds are pulled from. */
    bool signalled;         /* It is among those that were signalled. */
    rostrum_channel *after; /* the next one of these */
    rostrum_feed_fn *feed;
    void *context;
    char group[ROSTRUM_GROUP_NAME_MAX + 1];
};

struct rostrum_channels {
    rostrum_group *wire;         /* the socket */
    rostrum_channel **by_number; /* `room` of them */
    uint32_t room, count, next;
    rostrum_channel **turns; /* a ring of `room`: whose feeds may have something, each once */
    uint32_t turn_head, turn_count;
    uint32_t taken;       /* frames since feeds were pulled from */
    int wake;             /* an eventfd */
    pthread_mutex_t lock; /* of what follows */
    rostrum_channel *signalled;
    rs_api_request *request;
    rs_api_message *message;
};

/* ----------------------------------------------------------------------------------------------------- joining */

rostrum_code rostrum_channels_open(rostrum *agent, rostrum_channels **out, rostrum_error *error) {
    rostrum_outcome outcome = {.fd = -1};
    *out = NULL;
    (void)rostrum_request(agent, RS_API_CHANNELS, 0);
    rostrum_code code = rostrum_ask(agent, 0, -1, &outcome, error);
    if (code)
        return code;
    rostrum_channels *all = calloc(1, sizeof *all);
    if (all) {
        all->wire = rostrum_group_at(outcome.fd, "", "", outcome.message_bytes);
        all->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        all->request = calloc(1, sizeof *all->request);
        all->message = malloc(sizeof *all->message);
        all->next = 1;
    }
    if (!all || !all->wire || all->wake < 0 || !all->request || !all->message) {
        if (!all || !all->wire)
            close(outcome.fd);
        rostrum_channels_close(all);
        return rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "no memory or descriptors for channels");
    }
    pthread_mutex_init(&all->lock, NULL);
    *out = all;
    return ROSTRUM_OK;
}

void rostrum_channels_close(rostrum_channels *all) {
    if (!all)
        return;
    if (all->wire) {
        (void)rostrum_flush(all->wire, NULL);
        rostrum_group_free(all->wire);
    }
    if (all->wake >= 0)
        close(all->wake);
    for (uint32_t i = 0; i < all->room; i++)
        free(all->by_number[i]);
    free(all->by_number);
    free(all->turns);
    free(all->request);
    free(all->message);
    free(all);
}

/* A number that no channel has, in turn: what is under way of one that was closed belongs to nobody. 0: none. */
static uint32_t free_number(const rostrum_channels *all) {
    for (uint32_t i = 0; i < CHANNELS_MOST; i++) {
        uint32_t number = (all->next - 1 + i) % CHANNELS_MOST + 1;
        if (number >= all->room || !all->by_number[number])
            return number;
    }
    return 0;
}

static bool reserve(rostrum_channels *all, uint32_t number) {
    if (number < all->room)
        return true;
    uint32_t more = all->room ? all->room : 16;
    while (more <= number)
        more *= 2;
    rostrum_channel **larger = calloc(more, sizeof(rostrum_channel *)),
                    **turns = calloc(more, sizeof(rostrum_channel *));
    if (!larger || !turns) {
        free(larger);
        free(turns);
        return false;
    }
    for (uint32_t i = 0; i < all->room; i++)
        larger[i] = all->by_number[i];
    for (uint32_t i = 0; i < all->turn_count; i++)
        turns[i] = all->turns[(all->turn_head + i) % all->room];
    free(all->by_number);
    free(all->turns);
    all->by_number = larger;
    all->turns = turns;
    all->turn_head = 0;
    all->room = more;
    return true;
}

/* A frame at the end of what is to be written; returns where its fields belong. */
static uint8_t *put_frame(rostrum_channels *all, uint16_t channel, uint8_t kind, uint8_t flags, size_t length) {
    rostrum_buffer *out = &all->wire->out;
    if (!rostrum_buffer_reserve(out, RS_GROUP_FRAME_HEAD + length))
        return NULL;
    uint8_t *at = out->bytes + out->length;
    rs_group_frame_put_head(at, (uint32_t)length, kind, flags);
    rs_group_frame_put_channel(at, channel);
    out->length += RS_GROUP_FRAME_HEAD + length;
    return at + RS_GROUP_FRAME_HEAD;
}

static rostrum_code ask_to_join(rostrum_channel *channel, const rostrum_group_options *options, unsigned flags,
                                rostrum_error *error) {
    rostrum_channels *all = channel->all;
    rs_error why;
    *all->request = (rs_api_request){.type = RS_API_JOIN, .group = channel->group};
    bool completes = flags & ROSTRUM_CHANNEL_COMPLETION || (options && options->completion);
    all->request->flags =
        (flags & ROSTRUM_CHANNEL_SUBSCRIBE ? RS_API_JOIN_SUBSCRIBE : 0) | (completes ? RS_API_JOIN_COMPLETE : 0);
    if (options) {
        all->request->protocol = options->protocol;
        all->request->order = options->order || !options->protocol ? options->order : "none";
        all->request->options = options->options;
    }
    if (!rs_api_encode_request(all->request, all->message, &why))
        return rostrum_fail(error, why.code, why.text);
    uint8_t *at = put_frame(all, channel->number, RS_GROUP_FRAME_KIND_JOIN, 0, all->message->length);
    if (!at)
        return rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "no memory for a channel");
    memcpy(at, all->message->data, all->message->length);
    return all->wire->out.length - all->wire->out.start < ROSTRUM_OUT_KEPT ? ROSTRUM_OK
                                                                           : rostrum_flush(all->wire, error);
}

rostrum_code rostrum_channel_open(rostrum_channels *all, const char *group, const rostrum_group_options *options,
                                  unsigned flags, rostrum_feed_fn *feed, void *context, rostrum_channel **out,
                                  rostrum_error *error) {
    uint32_t number = free_number(all);
    *out = NULL;
    if (number == 0)
        return rostrum_fail(error, ROSTRUM_ERR_LIMIT, "a socket has 65,535 channels at most");
    if (!group || strlen(group) > ROSTRUM_GROUP_NAME_MAX)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "a group's name has 1 to 128 characters");
    rostrum_channel *channel = reserve(all, number) ? calloc(1, sizeof *channel) : NULL;
    if (!channel)
        return rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "no memory for a channel");
    *channel = (rostrum_channel){.all = all, .number = (uint16_t)number, .feed = feed, .context = context};
    memcpy(channel->group, group, strlen(group));
    rostrum_code code = ask_to_join(channel, options, flags, error);
    if (code == ROSTRUM_ERR_INVALID || code == ROSTRUM_ERR_NO_ROOM) {
        free(channel);
        return code;
    }
    all->by_number[number] = channel;
    all->next = number + 1;
    *out = channel;
    return ROSTRUM_OK; /* what the agent does not take now goes later */
}

void rostrum_channel_close(rostrum_channel *channel) {
    rostrum_channels *all = channel->all;
    if (!channel->ended)
        (void)put_frame(all, channel->number, RS_GROUP_FRAME_KIND_LEAVE, 0, 0);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < all->turn_count && channel->active; i++) {
        rostrum_channel *one = all->turns[(all->turn_head + i) % all->room];
        if (one != channel)
            all->turns[(all->turn_head + kept++) % all->room] = one;
    }
    all->turn_count = channel->active ? kept : all->turn_count;
    pthread_mutex_lock(&all->lock);
    for (rostrum_channel **at = &all->signalled; *at; at = &(*at)->after)
        if (*at == channel) {
            *at = channel->after;
            break;
        }
    pthread_mutex_unlock(&all->lock);
    all->by_number[channel->number] = NULL;
    free(channel);
}

const char *rostrum_channel_group(const rostrum_channel *channel) {
    return channel->group;
}

void *rostrum_channel_context(const rostrum_channel *channel) {
    return channel->context;
}

/* ------------------------------------------------------------------------------------------------------- feeds */

void rostrum_channel_signal(rostrum_channel *channel) {
    rostrum_channels *all = channel->all;
    const uint64_t one = 1;
    pthread_mutex_lock(&all->lock);
    bool wakes = !all->signalled;
    if (!channel->signalled) {
        channel->signalled = true;
        channel->after = all->signalled;
        all->signalled = channel;
    }
    pthread_mutex_unlock(&all->lock);
    if (wakes && write(all->wake, &one, sizeof one) < 0 && errno != EAGAIN)
        abort(); /* cannot be: an eventfd takes eight bytes */
}

static void activate(rostrum_channel *channel) {
    rostrum_channels *all = channel->all;
    if (channel->active || !channel->joined || channel->ended || !channel->feed)
        return;
    channel->active = true;
    all->turns[(all->turn_head + all->turn_count++) % all->room] = channel;
}

static void take_signals(rostrum_channels *all) {
    uint64_t count;
    pthread_mutex_lock(&all->lock);
    rostrum_channel *first = all->signalled;
    all->signalled = NULL;
    for (rostrum_channel *channel = first; channel; channel = channel->after)
        channel->signalled = false;
    if (first && read(all->wake, &count, sizeof count) < 0 && errno != EAGAIN)
        abort(); /* as above */
    /* The list is this thread's: but a signal may put a channel into a new one, so that it is gone through here. */
    for (rostrum_channel *channel = first, *after; channel; channel = after) {
        after = channel->after;
        activate(channel);
    }
    pthread_mutex_unlock(&all->lock);
}

/* From all feeds in turn, while the socket has taken what was pulled before. */
static bool pull(rostrum_channels *all) {
    rostrum_buffer *out = &all->wire->out;
    bool well = true;
    all->taken = 0;
    while (well && all->turn_count > 0 && out->length - out->start < ROSTRUM_OUT_KEPT) {
        rostrum_channel *channel = all->turns[all->turn_head];
        uint32_t room = all->wire->message_bytes;
        well = rostrum_buffer_reserve(out, RS_GROUP_FRAME_HEAD + (size_t)room);
        uint8_t *at = out->bytes + out->length;
        int64_t length = well ? channel->feed(channel->context, at + RS_GROUP_FRAME_HEAD, room) : ROSTRUM_FEED_EMPTY;
        all->turn_head = (all->turn_head + 1) % all->room;
        all->turn_count--;
        channel->active = false;
        if (length < 0 || length > room)
            continue;
        (void)put_frame(all, channel->number, RS_GROUP_FRAME_KIND_PUBLISH, 0, (size_t)length);
        activate(channel);
    }
    return well;
}

/* What the socket takes now. 0, or an errno. */
static int send_some(rostrum_channels *all) {
    rostrum_buffer *out = &all->wire->out;
    while (out->start < out->length) {
        ssize_t sent =
            send(all->wire->fd, out->bytes + out->start, out->length - out->start, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0)
            out->start += (size_t)sent;
        else if (sent < 0 && errno != EINTR)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? 0 : errno;
    }
    out->start = out->length = 0;
    return 0;
}

rostrum_code rostrum_channels_flush(rostrum_channels *all, rostrum_error *error) {
    return rostrum_flush(all->wire, error);
}

rostrum_code rostrum_channel_publish(rostrum_channel *channel, const void *bytes, uint32_t length, unsigned flags,
                                     rostrum_error *error) {
    rostrum_channels *all = channel->all;
    rostrum_buffer *out = &all->wire->out;
    if (!channel->joined || channel->ended)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "the channel is not joined (yet, or any more)");
    if (length > all->wire->message_bytes)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "the message is longer than a group's messages may be");
    if (out->length - out->start > 2 * ROSTRUM_OUT_KEPT) { /* of a call that timed out */
        rostrum_code code = rostrum_flush(all->wire, error);
        if (code)
            return code;
    }
    uint8_t *at = put_frame(all, channel->number, RS_GROUP_FRAME_KIND_PUBLISH, 0, length);
    if (!at)
        return rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "no memory for a message");
    if (length)
        memcpy(at, bytes, length);
    if (flags & ROSTRUM_MORE && out->length - out->start < ROSTRUM_OUT_KEPT)
        return ROSTRUM_OK;
    return rostrum_flush(all->wire, error);
}

/* ------------------------------------------------------------------------------------------------------ taking */

static void take_end(rostrum_channel *channel, const uint8_t *fields, uint32_t length, rostrum_message *out) {
    static _Thread_local char text[ROSTRUM_TEXT_MAX + 1];
    memset(text, 0, sizeof text);
    memcpy(text, fields + 2, length - 2);
    channel->ended = true;
    *out = (rostrum_message){.kind = ROSTRUM_ENDED, .sender = "", .count = rs_group_get(fields, 2), .why = text};
}

/* One whole frame. 1: `out` is filled; 0: it says nothing to the program; -1: the socket is of no use any more. */
static int take(rostrum_channels *all, const uint8_t *at, uint32_t length, rostrum_channel **channel,
                rostrum_message *out, rostrum_error *error) {
    int kind = rs_group_frame_head(at, &length);
    uint16_t number = rs_group_frame_channel(at);
    rostrum_channel *of = number < all->room ? all->by_number[number] : NULL;
    const uint8_t *fields = at + RS_GROUP_FRAME_HEAD;
    *channel = of;
    if (number > 0 && !of && kind != RS_GROUP_FRAME_KIND_SENDER)
        return 0; /* it was closed */
    if (of && kind == RS_GROUP_FRAME_KIND_JOINED) {
        of->joined = true;
        activate(of);
        *out = (rostrum_message){.kind = ROSTRUM_JOINED, .sender = "", .why = ""};
        return 1;
    }
    if (of && kind == RS_GROUP_FRAME_KIND_END && length >= 2 && length <= 2 + ROSTRUM_TEXT_MAX) {
        take_end(of, fields, length, out);
        return 1;
    }
    bool filled = rostrum_group_take_frame(all->wire, at, length, kind, out, error);
    return all->wire->ended.code ? -1 : filled && of;
}

static rostrum_code fail_with(rostrum_channels *all, rostrum_error *error, rostrum_code code, const char *text) {
    (void)rostrum_fail(&all->wire->ended, code, text);
    return rostrum_fail(error, code, text);
}

static rostrum_code wait_for(const rostrum_channels *all, int64_t bound_ms, rostrum_error *error) {
    bool writes = all->wire->out.length > all->wire->out.start || all->turn_count > 0;
    struct pollfd ready[2] = {{.fd = all->wire->fd, .events = (short)(POLLIN | (writes ? POLLOUT : 0))},
                              {.fd = all->wake, .events = POLLIN}};
    int count = poll(ready, 2, (int)bound_ms);
    if (count > 0 || (count < 0 && errno == EINTR))
        return ROSTRUM_OK;
    return rostrum_fail(error, ROSTRUM_ERR_TIMEOUT, "no message came in time");
}

rostrum_code rostrum_channels_next(rostrum_channels *all, rostrum_channel **channel, rostrum_message *message,
                                   int timeout_ms, rostrum_error *error) {
    rostrum_buffer *in = &all->wire->in;
    int64_t end = timeout_ms > 0 ? rostrum_now_ms() + timeout_ms : 0;
    while (!all->wire->ended.code) {
        uint32_t length;
        while (all->taken < FRAMES_TURN && in->length - in->start >= RS_GROUP_FRAME_HEAD) {
            const uint8_t *at = in->bytes + in->start;
            (void)rs_group_frame_head(at, &length);
            if (in->length - in->start < RS_GROUP_FRAME_HEAD + (size_t)length)
                break;
            in->start += RS_GROUP_FRAME_HEAD + (size_t)length;
            all->taken++;
            int found = take(all, at, length, channel, message, error);
            if (found > 0)
                return ROSTRUM_OK;
            if (found < 0)
                return rostrum_fail(error, all->wire->ended.code, all->wire->ended.text);
        }
        bool more = all->taken >= FRAMES_TURN;
        take_signals(all);
        if (!pull(all))
            return fail_with(all, error, ROSTRUM_ERR_NO_ROOM, "no memory for messages");
        int number = send_some(all);
        if (number == 0 && more)
            continue;
        number = number ? number : rostrum_group_fill(all->wire);
        if (number == EAGAIN || number == EWOULDBLOCK) {
            int64_t left = timeout_ms > 0 ? end - rostrum_now_ms() : timeout_ms;
            if (timeout_ms >= 0 && left <= 0)
                return rostrum_fail(error, ROSTRUM_ERR_TIMEOUT, "no message came in time");
            rostrum_code code = wait_for(all, left, error);
            if (code)
                return code;
        } else if (number && number != EINTR) {
            return fail_with(all, error, number == EPROTO ? ROSTRUM_ERR_PROTOCOL : ROSTRUM_ERR_UNAVAILABLE,
                             number == ECONNRESET || number == EPIPE ? "the agent went away" : strerror(number));
        }
    }
    return rostrum_fail(error, all->wire->ended.code, all->wire->ended.text);
}
