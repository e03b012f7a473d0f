/* Messages on the application socket: encoding and parsing, with every check that needs no state. */
#include "api/wire.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/bytes.h"

bool rs_api_is_name(const char *text, size_t length) {
    const uint8_t *at = (const uint8_t *)text, *end = at + length;
    while (at < end) {
        uint32_t code = *at++, more = 0, least = 0;
        if (code < 0x80) {
            if (code < 0x20 || code == 0x7f)
                return false;
            continue;
        }
        if ((code & 0xe0) == 0xc0)
            code &= 0x1f, more = 1, least = 0x80;
        else if ((code & 0xf0) == 0xe0)
            code &= 0x0f, more = 2, least = 0x800;
        else if ((code & 0xf8) == 0xf0)
            code &= 0x07, more = 3, least = 0x10000;
        else
            return false;
        for (; more; more--, at++) {
            if (at == end || (*at & 0xc0) != 0x80)
                return false;
            code = code << 6 | (*at & 0x3f);
        }
        if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) || code < 0xa0)
            return false;
    }
    return length > 0;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool check_receivers(const rs_api_request *request, rs_error *error) {
    uint32_t count = request->receiver_count;
    if (count == 0 || count > ROSTRUM_RECEIVERS_MAX)
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "send needs 1 to %d receivers, not %u", ROSTRUM_RECEIVERS_MAX,
                            count);
    for (uint32_t i = 0; i < count; i++) {
        const char *name = request->receivers[i];
        size_t length = name ? strnlen(name, ROSTRUM_NAME_MAX + 1) : 0;
        if (length > ROSTRUM_NAME_MAX || !name || !rs_api_is_name(name, length))
            return rs_error_set(error, ROSTRUM_ERR_INVALID,
                                "receiver %u is not a server's name (1 to %d bytes of UTF-8)", i + 1, ROSTRUM_NAME_MAX);
    }
    const char **sorted = malloc(count * sizeof *sorted), *twice = NULL;
    if (!sorted)
        return rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "out of memory");
    memcpy(sorted, request->receivers, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (uint32_t i = 1; i < count && !twice; i++)
        twice = strcmp(sorted[i - 1], sorted[i]) == 0 ? sorted[i] : NULL;
    free(sorted);
    return !twice || rs_error_set(error, ROSTRUM_ERR_INVALID, "receiver %s is named twice", twice);
}

static bool check_process(const rs_api_request *request, rs_error *error) {
    size_t length = request->process ? strnlen(request->process, ROSTRUM_NAME_MAX + 1) : 0;
    if (length > ROSTRUM_NAME_MAX || !request->process || !rs_api_is_name(request->process, length))
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "the process's name needs 1 to %d bytes of UTF-8",
                            ROSTRUM_NAME_MAX);
    return true;
}

static bool check_options(const rs_api_request *request, const char *of, rs_error *error) {
    const char *options = request->options ? request->options : "";
    size_t length = strnlen(options, 256);
    return length == 0 || (length <= 255 && rs_api_is_name(options, length)) ||
           rs_error_set(error, ROSTRUM_ERR_INVALID, "%s options are name=value,name=value, 255 bytes at most", of);
}

static bool check_name(const rs_api_request *request, rs_error *error) {
    size_t length = request->group ? strnlen(request->group, ROSTRUM_NAME_MAX + 1) : 0;
    return (length <= ROSTRUM_NAME_MAX && request->group && rs_api_is_name(request->group, length)) ||
           rs_error_set(error, ROSTRUM_ERR_INVALID, "an object's name has 1 to %d bytes of UTF-8", ROSTRUM_NAME_MAX);
}

/* As the manager wants names (docs/groups.md). */
static bool check_join(const rs_api_request *request, rs_error *error) {
    const char *name = request->group ? request->group : "";
    size_t length = strnlen(name, ROSTRUM_GROUP_NAME_MAX + 1);
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-";
    if (length == 0 || length > ROSTRUM_GROUP_NAME_MAX || strspn(name, allowed) != length)
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "a group's name has 1 to %d characters of A-Z a-z 0-9 . _ : -",
                            ROSTRUM_GROUP_NAME_MAX);
    const char *order = request->order ? request->order : "", *protocol = request->protocol ? request->protocol : "";
    if (strnlen(protocol, 32) > 31 || strspn(protocol, allowed) != strlen(protocol))
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "a group's protocol is a name such as plain or ricochet");
    rs_group_delivery delivery;
    if ((protocol[0] || order[0]) && !rs_group_delivery_parse(order, &delivery))
        return rs_error_set(error, ROSTRUM_ERR_INVALID,
                            "a group's order is none, fifo, sender, agreed or total (docs/groups.md)");
    uint32_t from = request->flags & (RS_API_JOIN_FROM | RS_API_JOIN_SINCE);
    if (from && (!(request->flags & RS_API_JOIN_SUBSCRIBE) || from == (RS_API_JOIN_FROM | RS_API_JOIN_SINCE)))
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "who subscribes says from which message or from which time on");
    const char *options = request->options ? request->options : "";
    if (!protocol[0] && (options[0] || (order[0] && strcmp(order, "none") != 0)))
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "order and options of a group go with its protocol");
    return check_options(request, "a group's", error);
}

static void put_receivers(rs_api_message *out, const rs_api_request *request) {
    rs_put_u16(out, (uint16_t)request->receiver_count);
    for (uint32_t i = 0; i < request->receiver_count; i++)
        rs_put_text(out, request->receivers[i]);
}

static void put_join(rs_api_message *out, const rs_api_request *request) {
    rs_put_u32(out, request->flags);
    rs_put_text(out, request->group);
    rs_put_text(out, request->protocol);
    rs_put_text(out, request->order);
    rs_put_text(out, request->options);
    if (request->flags & (RS_API_JOIN_FROM | RS_API_JOIN_SINCE))
        rs_put_u64(out, request->number);
}

bool rs_api_encode_request(const rs_api_request *request, rs_api_message *out, rs_error *error) {
    rs_api_begin(out, request->type, request->tag);
    switch (request->type) {
    case RS_API_REGISTER:
        if (!check_process(request, error))
            return false;
        rs_put(out, request->app, sizeof request->app);
        rs_put_text(out, request->process);
        break;
    case RS_API_UNREGISTER:
    case RS_API_STATUS:
    case RS_API_NAMES:
    case RS_API_EPHEMERAL:
    case RS_API_CHANNELS:
        break;
    case RS_API_ADD:
    case RS_API_DELETE:
    case RS_API_SUBSCRIBE:
    case RS_API_CANCEL:
    case RS_API_LEAVE:
        rs_put_u64(out, request->data_id);
        break;
    case RS_API_CREATE:
    case RS_API_DROP:
    case RS_API_UNSUBSCRIBE:
        rs_put_u64(out, request->number);
        break;
    case RS_API_READ:
    case RS_API_STREAM_RECEIVE:
    case RS_API_PIN:
        rs_put_u64(out, request->data_id);
        rs_put_u32(out, request->type == RS_API_PIN ? request->flags : request->wait_ms);
        break;
    case RS_API_FETCH:
    case RS_API_STREAM_JOIN:
        if (request->receiver_count > 0 && !check_receivers(request, error))
            return false;
        rs_put_u64(out, request->data_id);
        rs_put_u32(out, request->wait_ms);
        put_receivers(out, request);
        break;
    case RS_API_NAME:
        if (!check_name(request, error))
            return false;
        rs_put_u64(out, request->data_id);
        rs_put_text(out, request->group);
        break;
    case RS_API_STREAM_END:
        rs_put_u64(out, request->data_id);
        rs_put_u64(out, request->number);
        break;
    case RS_API_SEND:
    case RS_API_STREAM_SEND:
        if (!check_receivers(request, error) || !check_options(request, "a send's", error))
            return false;
        rs_put_u64(out, request->data_id);
        rs_put_u32(out, request->flags);
        rs_put_u32(out, request->wait_ms);
        rs_put_u32(out, request->deadline_ms);
        put_receivers(out, request);
        if (request->options && request->options[0])
            rs_put_text(out, request->options);
        break;
    case RS_API_JOIN:
        if (!check_join(request, error))
            return false;
        put_join(out, request);
        break;
    default:
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "there is no request of type %u", request->type);
    }
    return !out->overflow ||
           rs_error_set(error, ROSTRUM_ERR_INVALID, "the names of the receivers are too long together (%u bytes)",
                        RS_API_MESSAGE_MAX);
}

/* A text into the request's own room, so that it ends with a NUL. */
static const char *get_name(rs_reader *in, rs_api_request *request, size_t *used) {
    size_t room = sizeof request->text - *used;
    char *to = request->text + *used;
    size_t length = in->at < in->end ? *in->at : 0;
    /* Cannot be: every name takes as much room in the message. */
    if (room <= length) {
        in->bad = true;
        return "";
    }
    rs_get_text(in, to, room);
    for (char *inner; !in->bad && (inner = memchr(to, 0, length));)
        *inner = '\x01'; /* a NUL inside would hide the rest from the check: let that find a control character */
    *used += length + 1;
    return to;
}

static bool get_names(rs_reader *in, rs_api_request *out, size_t *used, const char *what, rs_error *error) {
    uint32_t count = rs_get_u16(in);
    for (; !in->bad && out->receiver_count < count && out->receiver_count < ROSTRUM_RECEIVERS_MAX;
         out->receiver_count++)
        out->receivers[out->receiver_count] = get_name(in, out, used);
    return in->bad || out->receiver_count == count ||
           rs_error_set(error, ROSTRUM_ERR_INVALID, "%s needs 1 to %d receivers, not %u", what, ROSTRUM_RECEIVERS_MAX,
                        count);
}

static bool parse_fields(rs_reader *in, rs_api_request *out, rs_error *error) {
    size_t used = 0;
    switch (out->type) {
    case RS_API_REGISTER:
        rs_get(in, out->app, sizeof out->app);
        out->process = get_name(in, out, &used);
        return in->bad || check_process(out, error);
    case RS_API_UNREGISTER:
    case RS_API_STATUS:
    case RS_API_NAMES:
    case RS_API_EPHEMERAL:
    case RS_API_CHANNELS:
        return true;
    case RS_API_ADD:
    case RS_API_DELETE:
    case RS_API_SUBSCRIBE:
    case RS_API_CANCEL:
    case RS_API_LEAVE:
        out->data_id = rs_get_u64(in);
        return true;
    case RS_API_CREATE:
    case RS_API_DROP:
    case RS_API_UNSUBSCRIBE:
        out->number = rs_get_u64(in);
        return true;
    case RS_API_STREAM_END:
        out->data_id = rs_get_u64(in);
        out->number = rs_get_u64(in);
        return true;
    case RS_API_READ:
    case RS_API_STREAM_RECEIVE:
        out->data_id = rs_get_u64(in);
        out->wait_ms = rs_get_u32(in);
        return true;
    case RS_API_SEND:
    case RS_API_STREAM_SEND:
        out->data_id = rs_get_u64(in);
        out->flags = rs_get_u32(in);
        out->wait_ms = rs_get_u32(in);
        out->deadline_ms = rs_get_u32(in);
        if (!get_names(in, out, &used, "send", error))
            return false;
        if (!in->bad && in->at != in->end) { /* newer than the rest: who asks for none says nothing */
            out->options = get_name(in, out, &used);
            in->bad |= !out->options[0];
        }
        return in->bad || (check_receivers(out, error) && check_options(out, "a send's", error));
    case RS_API_FETCH:
    case RS_API_STREAM_JOIN:
        out->data_id = rs_get_u64(in);
        out->wait_ms = rs_get_u32(in);
        return get_names(in, out, &used, "fetch", error) &&
               (in->bad || out->receiver_count == 0 || check_receivers(out, error));
    case RS_API_NAME:
        out->data_id = rs_get_u64(in);
        out->group = get_name(in, out, &used);
        return in->bad || check_name(out, error);
    case RS_API_PIN:
        out->data_id = rs_get_u64(in);
        out->flags = rs_get_u32(in);
        return true;
    case RS_API_JOIN:
        out->flags = rs_get_u32(in);
        out->group = get_name(in, out, &used);
        out->protocol = get_name(in, out, &used);
        out->order = get_name(in, out, &used);
        out->options = get_name(in, out, &used);
        if (out->flags & (RS_API_JOIN_FROM | RS_API_JOIN_SINCE))
            out->number = rs_get_u64(in);
        return in->bad || check_join(out, error);
    default:
        return rs_error_set(error, ROSTRUM_ERR_PROTOCOL, "there is no request of type %u", out->type);
    }
}

bool rs_api_parse_request(const uint8_t *data, size_t length, rs_api_request *out, rs_error *error) {
    rs_reader in = {.at = data, .end = data + length};
    memset(out, 0, offsetof(rs_api_request, text));
    uint16_t magic = rs_get_u16(&in);
    uint8_t version = rs_get_u8(&in), type = rs_get_u8(&in);
    uint32_t zero = rs_get_u32(&in);
    uint64_t tag = rs_get_u64(&in);
    if (in.bad || magic != RS_API_MAGIC)
        return rs_error_set(error, ROSTRUM_ERR_PROTOCOL, "this is not a message of the rostrum application interface");
    if (version != RS_API_VERSION)
        return rs_error_set(error, ROSTRUM_ERR_PROTOCOL,
                            "the client speaks version %u of the interface, this agent version %u", version,
                            RS_API_VERSION);
    out->type = type;
    out->tag = tag;
    if (!parse_fields(&in, out, error))
        return false;
    if (in.bad || in.at != in.end || zero)
        return rs_error_set(error, ROSTRUM_ERR_PROTOCOL, "a request of type %u with %zu bytes is malformed", type,
                            length);
    return true;
}

/* Answers of the application socket: encoding (agent) and parsing (librostrum). */

enum { RECEIVER_DIGEST_OK = 1, RECEIVER_HAD_IT = 2 };

void rs_api_begin(rs_api_message *out, uint8_t type, uint64_t tag) {
    out->length = 0;
    out->overflow = false;
    rs_put_u16(out, RS_API_MAGIC);
    rs_put_u8(out, RS_API_VERSION);
    rs_put_u8(out, type);
    rs_put_u32(out, 0);
    rs_put_u64(out, tag);
}

void rs_api_encode_error(rs_api_message *out, uint64_t tag, rostrum_code code, const char *text) {
    rs_api_begin(out, RS_API_ERROR, tag);
    rs_put_u16(out, (uint16_t)code);
    rs_put_text(out, text);
}

void rs_api_encode_registered(rs_api_message *out, uint64_t tag, const char *server, const char *version,
                              uint64_t boot_id) {
    rs_api_begin(out, RS_API_REGISTERED, tag);
    rs_put_text(out, server);
    rs_put_text(out, version);
    rs_put_u64(out, boot_id);
}

static void put_digest(rs_api_message *out, uint8_t algorithm, uint8_t length, const uint8_t *value) {
    length = length <= 32 ? length : 0;
    rs_put_u8(out, algorithm);
    rs_put_u8(out, length);
    rs_put(out, value, length);
}

void rs_api_encode_object(rs_api_message *out, uint8_t type, uint64_t tag, const rs_api_object_info *info) {
    rs_api_begin(out, type, tag);
    rs_put_u64(out, info->size);
    put_digest(out, info->digest_algorithm, info->digest_length, info->digest);
}

void rs_api_encode_created(rs_api_message *out, uint64_t tag, uint64_t handle, uint64_t size) {
    rs_api_begin(out, RS_API_CREATED, tag);
    rs_put_u64(out, handle);
    rs_put_u64(out, size);
}

void rs_api_encode_streamed(rs_api_message *out, uint64_t tag, uint64_t bytes) {
    rs_api_begin(out, RS_API_STREAMED, tag);
    rs_put_u64(out, bytes);
}

void rs_api_encode_event(rs_api_message *out, uint64_t tag, const rostrum_event *event) {
    rs_api_begin(out, RS_API_EVENT, tag);
    rs_put_u8(out, (uint8_t)event->kind);
    rs_put_u8(out, event->sending);
    rs_put_u8(out, (uint8_t)event->state);
    rs_put_u64(out, event->data_id);
    rs_put_i64(out, event->time_ns);
    rs_put_u32(out, event->session);
    rs_put_u64(out, event->bytes);
    rs_put_u64(out, event->size);
    rs_put_u64(out, event->sn);
    rs_put_i64(out, event->rate_bps);
    rs_put_u32(out, event->receivers);
    rs_put_u32(out, event->receivers_done);
    rs_put_u32(out, event->receivers_failed);
    rs_put_text(out, event->subject);
    rs_put_text(out, event->text);
}

void rs_api_encode_sent(rs_api_message *out, uint64_t tag, const rostrum_send_result *result) {
    rs_api_begin(out, RS_API_SENT, tag);
    rs_put_u8(out, result->ok);
    rs_put_u8(out, (uint8_t)result->path);
    rs_put_u8(out, (uint8_t)result->protocol);
    rs_put_u64(out, result->data_id);
    rs_put_u64(out, result->size);
    rs_put_i64(out, result->requested_ns);
    rs_put_i64(out, result->accepted_ns);
    rs_put_i64(out, result->attempt_ns);
    rs_put_i64(out, result->high_rate_ns);
    rs_put_i64(out, result->data_done_ns);
    rs_put_i64(out, result->released_ns);
    rs_put_i64(out, result->done_ns);
    rs_put_i64(out, result->reconfiguration_ns);
    rs_put_u32(out, result->sessions);
    rs_put_u32(out, result->fragment_size);
    rs_put_u64(out, result->packets_sent);
    rs_put_u64(out, result->packets_attempt);
    rs_put_u64(out, result->packets_redundant);
    rs_put_u64(out, result->packets_patched);
    rs_put_u64(out, result->packets_repair);
    rs_put_u64(out, result->losses_repaired);
    rs_put_u64(out, result->acks_received);
    rs_put_u64(out, result->bytes_sent);
    rs_put_i64(out, result->rate_bps);
    rs_put_text(out, result->cause);
    rs_put_text(out, result->reason);
    rs_put_text(out, result->response_id);
}

void rs_api_encode_state(rs_api_message *out, uint64_t tag, const rostrum_status *status) {
    rs_api_begin(out, RS_API_STATE, tag);
    rs_put_text(out, status->server);
    rs_put_text(out, status->version);
    rs_put_u64(out, status->boot_id);
    rs_put_i64(out, status->started_ns);
    rs_put_u8(out, status->manager_up);
    rs_put_text(out, status->manager);
    rs_put_text(out, status->store);
    rs_put_u64(out, status->store_used);
    rs_put_u64(out, status->store_quota);
    rs_put_u32(out, status->clients);
    rs_put_u64(out, status->packets_bad);
}

static void put_receiver(rs_api_message *out, const rostrum_receiver *row) {
    rs_put_text(out, row->name);
    rs_put_u8(out, (uint8_t)row->state);
    rs_put_u8(out, (uint8_t)((row->digest_ok ? RECEIVER_DIGEST_OK : 0) | (row->had_it ? RECEIVER_HAD_IT : 0)));
    rs_put_u64(out, row->initial_sn);
    rs_put_u64(out, row->patched_fragments);
    rs_put_i64(out, row->first_light_ns);
    rs_put_i64(out, row->complete_ns);
    rs_put_text(out, row->cause);
}

static void put_transfer(rs_api_message *out, const rostrum_transfer *row) {
    rs_put(out, row->app, sizeof row->app);
    rs_put_u64(out, row->data_id);
    rs_put_u8(out, row->sending);
    rs_put_u8(out, (uint8_t)row->path);
    rs_put_u8(out, (uint8_t)row->protocol);
    rs_put_text(out, row->phase);
    rs_put_text(out, row->peer);
    rs_put_u64(out, row->size);
    rs_put_u64(out, row->bytes);
    rs_put_i64(out, row->rate_bps);
    rs_put_u32(out, row->receivers);
    rs_put_u32(out, row->receivers_done);
    rs_put_u32(out, row->receivers_failed);
    rs_put_i64(out, row->requested_ns);
    rs_put_u64(out, row->view);
    rs_put_u64(out, row->acks_sent);
    rs_put_u64(out, row->acks_received);
    rs_put_u64(out, row->repairs_sent);
    rs_put_u64(out, row->repairs_received);
    rs_put_u64(out, row->repairs_old);
    rs_put_u64(out, row->window);
    rs_put_i64(out, row->ack_timeout_ns);
}

static void put_object(rs_api_message *out, const rostrum_object *row) {
    rs_put(out, row->app, sizeof row->app);
    rs_put_u64(out, row->data_id);
    rs_put_u8(out, (uint8_t)row->state);
    uint8_t received = row->received ? 1 : 0, pinned = row->received && row->pinned ? 2 : 0;
    rs_put_u8(out, (uint8_t)(received | pinned | (row->received && row->goes ? 4 : 0)));
    rs_put_u32(out, row->holds);
    rs_put_u64(out, row->size);
    put_digest(out, row->digest_algorithm, row->digest_length, row->digest);
}

void rs_api_encode_group(rs_api_message *out, uint64_t tag, const char *protocol, const char *order,
                         uint32_t message_bytes) {
    rs_api_begin(out, RS_API_GROUP, tag);
    rs_put_text(out, protocol);
    rs_put_text(out, order);
    rs_put_u32(out, message_bytes);
}

static void put_group(rs_api_message *out, const rostrum_group_status *row) {
    rs_put_text(out, row->name);
    rs_put_text(out, row->protocol);
    rs_put_text(out, row->order);
    rs_put_text(out, row->address);
    rs_put_u32(out, row->id);
    rs_put_u64(out, row->version);
    rs_put_u8(out, row->joined);
    rs_put_u32(out, row->members);
    rs_put_u32(out, row->subscribers);
    rs_put_u32(out, row->publishers);
    rs_put_u64(out, row->published);
    rs_put_u64(out, row->delivered);
    rs_put_u64(out, row->lost);
    rs_put_u64(out, row->lost_slow);
    rs_put_u64(out, row->by_repair);
    rs_put_u64(out, row->by_request);
}

static void put_object_name(rs_api_message *out, const rs_api_object_name *row) {
    rs_put(out, row->app, sizeof row->app);
    rs_put_u64(out, row->data_id);
    rs_put_text(out, row->name);
}

/* Rows one after the other; the count in front is filled in at the end. A row that overflows is taken back. */
#define DEFINE_ROWS(function, row_type, type, put)                                               \
    uint32_t function(rs_api_message *out, uint64_t tag, const row_type *rows, uint32_t count) { \
        uint32_t done = 0;                                                                       \
        rs_api_begin(out, type, tag);                                                            \
        rs_put_u16(out, 0);                                                                      \
        for (; done < count && done < UINT16_MAX; done++) {                                      \
            size_t before = out->length;                                                         \
            put(out, &rows[done]);                                                               \
            if (out->overflow) {                                                                 \
                out->overflow = false;                                                           \
                out->length = before;                                                            \
                break;                                                                           \
            }                                                                                    \
        }                                                                                        \
        out->data[RS_API_HEADER_SIZE] = (uint8_t)done;                                           \
        out->data[RS_API_HEADER_SIZE + 1] = (uint8_t)(done >> 8);                                \
        return done;                                                                             \
    }

DEFINE_ROWS(rs_api_encode_receivers, rostrum_receiver, RS_API_RECEIVERS, put_receiver)
DEFINE_ROWS(rs_api_encode_transfers, rostrum_transfer, RS_API_TRANSFERS, put_transfer)
DEFINE_ROWS(rs_api_encode_objects, rostrum_object, RS_API_OBJECTS, put_object)
DEFINE_ROWS(rs_api_encode_names, rs_api_object_name, RS_API_NAMED, put_object_name)
DEFINE_ROWS(rs_api_encode_groups, rostrum_group_status, RS_API_GROUPS, put_group)

static void get_digest(rs_reader *in, uint8_t *algorithm, uint8_t *length, uint8_t value[32]) {
    *algorithm = rs_get_u8(in);
    *length = rs_get_u8(in);
    if (*length > 32) {
        *length = 0;
        in->bad = true;
    }
    rs_get(in, value, *length);
}

static void get_event(rs_reader *in, rostrum_event *event) {
    event->kind = (rostrum_event_kind)rs_get_u8(in);
    event->sending = rs_get_u8(in) != 0;
    event->state = (rostrum_receiver_state)rs_get_u8(in);
    event->data_id = rs_get_u64(in);
    event->time_ns = rs_get_i64(in);
    event->session = rs_get_u32(in);
    event->bytes = rs_get_u64(in);
    event->size = rs_get_u64(in);
    event->sn = rs_get_u64(in);
    event->rate_bps = rs_get_i64(in);
    event->receivers = rs_get_u32(in);
    event->receivers_done = rs_get_u32(in);
    event->receivers_failed = rs_get_u32(in);
    rs_get_text(in, event->subject, sizeof event->subject);
    rs_get_text(in, event->text, sizeof event->text);
}

static void get_sent(rs_reader *in, rostrum_send_result *result) {
    result->ok = rs_get_u8(in) != 0;
    result->path = (rostrum_path)rs_get_u8(in);
    result->protocol = (rostrum_protocol)rs_get_u8(in);
    result->data_id = rs_get_u64(in);
    result->size = rs_get_u64(in);
    result->requested_ns = rs_get_i64(in);
    result->accepted_ns = rs_get_i64(in);
    result->attempt_ns = rs_get_i64(in);
    result->high_rate_ns = rs_get_i64(in);
    result->data_done_ns = rs_get_i64(in);
    result->released_ns = rs_get_i64(in);
    result->done_ns = rs_get_i64(in);
    result->reconfiguration_ns = rs_get_i64(in);
    result->sessions = rs_get_u32(in);
    result->fragment_size = rs_get_u32(in);
    result->packets_sent = rs_get_u64(in);
    result->packets_attempt = rs_get_u64(in);
    result->packets_redundant = rs_get_u64(in);
    result->packets_patched = rs_get_u64(in);
    result->packets_repair = rs_get_u64(in);
    result->losses_repaired = rs_get_u64(in);
    result->acks_received = rs_get_u64(in);
    result->bytes_sent = rs_get_u64(in);
    result->rate_bps = rs_get_i64(in);
    rs_get_text(in, result->cause, sizeof result->cause);
    rs_get_text(in, result->reason, sizeof result->reason);
    rs_get_text(in, result->response_id, sizeof result->response_id);
}

static void get_state(rs_reader *in, rostrum_status *status) {
    rs_get_text(in, status->server, sizeof status->server);
    rs_get_text(in, status->version, sizeof status->version);
    status->boot_id = rs_get_u64(in);
    status->started_ns = rs_get_i64(in);
    status->manager_up = rs_get_u8(in) != 0;
    rs_get_text(in, status->manager, sizeof status->manager);
    rs_get_text(in, status->store, sizeof status->store);
    status->store_used = rs_get_u64(in);
    status->store_quota = rs_get_u64(in);
    status->clients = rs_get_u32(in);
    status->packets_bad = rs_get_u64(in);
}

static bool get_fields(rs_reader *in, rs_api_answer *out) {
    switch (out->type) {
    case RS_API_DONE:
        return true;
    case RS_API_ERROR:
        out->error.code = (rostrum_code)rs_get_u16(in);
        rs_get_text(in, out->error.text, sizeof out->error.text);
        return true;
    case RS_API_REGISTERED:
        rs_get_text(in, out->status.server, sizeof out->status.server);
        rs_get_text(in, out->status.version, sizeof out->status.version);
        out->status.boot_id = rs_get_u64(in);
        return true;
    case RS_API_CREATED:
        out->handle = rs_get_u64(in);
        out->object.size = rs_get_u64(in);
        return true;
    case RS_API_STREAMED:
        out->object.size = rs_get_u64(in);
        return true;
    case RS_API_ADDED:
    case RS_API_OBJECT:
        out->object.size = rs_get_u64(in);
        get_digest(in, &out->object.digest_algorithm, &out->object.digest_length, out->object.digest);
        return true;
    case RS_API_EVENT:
        get_event(in, &out->event);
        return true;
    case RS_API_SENT:
        get_sent(in, &out->result);
        return true;
    case RS_API_STATE:
        get_state(in, &out->status);
        return true;
    case RS_API_GROUP:
        rs_get_text(in, out->protocol, sizeof out->protocol);
        rs_get_text(in, out->order, sizeof out->order);
        out->message_bytes = rs_get_u32(in);
        return true;
    case RS_API_RECEIVERS:
    case RS_API_TRANSFERS:
    case RS_API_OBJECTS:
    case RS_API_GROUPS:
        out->rows = rs_get_u16(in);
        out->row = in->at;
        out->end = in->end;
        in->at = in->end;
        return true;
    default:
        return false;
    }
}

bool rs_api_parse_answer(const uint8_t *data, size_t length, rs_api_answer *out, rs_error *error) {
    rs_reader in = {.at = data, .end = data + length};
    memset(out, 0, sizeof *out);
    uint16_t magic = rs_get_u16(&in);
    uint8_t version = rs_get_u8(&in);
    out->type = rs_get_u8(&in);
    (void)rs_get_u32(&in);
    out->tag = rs_get_u64(&in);
    if (in.bad || magic != RS_API_MAGIC || version != RS_API_VERSION)
        return rs_error_set(error, ROSTRUM_ERR_PROTOCOL,
                            "what answers on the socket is not a rostrum agent of interface version %u",
                            RS_API_VERSION);
    if (!get_fields(&in, out) || in.bad || in.at != in.end)
        return rs_error_set(error, ROSTRUM_ERR_PROTOCOL, "the agent sent a malformed answer of type %u with %zu bytes",
                            out->type, length);
    return true;
}

bool rs_api_next_receiver(rs_api_answer *answer, rostrum_receiver *out) {
    rs_reader in = {.at = answer->row, .end = answer->end};
    if (answer->rows == 0)
        return false;
    rs_get_text(&in, out->name, sizeof out->name);
    out->state = (rostrum_receiver_state)rs_get_u8(&in);
    uint8_t flags = rs_get_u8(&in);
    out->digest_ok = flags & RECEIVER_DIGEST_OK;
    out->had_it = flags & RECEIVER_HAD_IT;
    out->initial_sn = rs_get_u64(&in);
    out->patched_fragments = rs_get_u64(&in);
    out->first_light_ns = rs_get_i64(&in);
    out->complete_ns = rs_get_i64(&in);
    rs_get_text(&in, out->cause, sizeof out->cause);
    answer->row = in.at;
    answer->rows -= !in.bad;
    return !in.bad;
}

bool rs_api_next_transfer(rs_api_answer *answer, rostrum_transfer *out) {
    rs_reader in = {.at = answer->row, .end = answer->end};
    if (answer->rows == 0)
        return false;
    rs_get(&in, out->app, sizeof out->app);
    out->data_id = rs_get_u64(&in);
    out->sending = rs_get_u8(&in) != 0;
    out->path = (rostrum_path)rs_get_u8(&in);
    out->protocol = (rostrum_protocol)rs_get_u8(&in);
    rs_get_text(&in, out->phase, sizeof out->phase);
    rs_get_text(&in, out->peer, sizeof out->peer);
    out->size = rs_get_u64(&in);
    out->bytes = rs_get_u64(&in);
    out->rate_bps = rs_get_i64(&in);
    out->receivers = rs_get_u32(&in);
    out->receivers_done = rs_get_u32(&in);
    out->receivers_failed = rs_get_u32(&in);
    out->requested_ns = rs_get_i64(&in);
    out->view = rs_get_u64(&in);
    out->acks_sent = rs_get_u64(&in);
    out->acks_received = rs_get_u64(&in);
    out->repairs_sent = rs_get_u64(&in);
    out->repairs_received = rs_get_u64(&in);
    out->repairs_old = rs_get_u64(&in);
    out->window = rs_get_u64(&in);
    out->ack_timeout_ns = rs_get_i64(&in);
    answer->row = in.at;
    answer->rows -= !in.bad;
    return !in.bad;
}

bool rs_api_next_group(rs_api_answer *answer, rostrum_group_status *out) {
    rs_reader in = {.at = answer->row, .end = answer->end};
    if (answer->rows == 0)
        return false;
    rs_get_text(&in, out->name, sizeof out->name);
    rs_get_text(&in, out->protocol, sizeof out->protocol);
    rs_get_text(&in, out->order, sizeof out->order);
    rs_get_text(&in, out->address, sizeof out->address);
    out->id = rs_get_u32(&in);
    out->version = rs_get_u64(&in);
    out->joined = rs_get_u8(&in) != 0;
    out->members = rs_get_u32(&in);
    out->subscribers = rs_get_u32(&in);
    out->publishers = rs_get_u32(&in);
    out->published = rs_get_u64(&in);
    out->delivered = rs_get_u64(&in);
    out->lost = rs_get_u64(&in);
    out->lost_slow = rs_get_u64(&in);
    out->by_repair = rs_get_u64(&in);
    out->by_request = rs_get_u64(&in);
    answer->row = in.at;
    answer->rows -= !in.bad;
    return !in.bad;
}

bool rs_api_next_object(rs_api_answer *answer, rostrum_object *out) {
    rs_reader in = {.at = answer->row, .end = answer->end};
    if (answer->rows == 0)
        return false;
    rs_get(&in, out->app, sizeof out->app);
    out->data_id = rs_get_u64(&in);
    out->state = (rostrum_object_state)rs_get_u8(&in);
    uint8_t received = rs_get_u8(&in);
    out->received = received != 0;
    out->pinned = received & 2;
    out->goes = received & 4;
    out->holds = rs_get_u32(&in);
    out->size = rs_get_u64(&in);
    get_digest(&in, &out->digest_algorithm, &out->digest_length, out->digest);
    answer->row = in.at;
    answer->rows -= !in.bad;
    return !in.bad;
}
