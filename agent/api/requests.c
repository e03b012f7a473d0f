/* Requests of the application socket: encoding (librostrum) and parsing with every check that needs no state (agent).
 */
#include "api/bytes.h"

#include <inttypes.h>
#include <stdlib.h>

/* Well-formed UTF-8 without control characters: what may stand in a log line. */
static bool is_name(const char *text, size_t length) {
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
    const char *sorted[ROSTRUM_RECEIVERS_MAX];
    uint32_t count = request->receiver_count;
    if (count == 0 || count > ROSTRUM_RECEIVERS_MAX)
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "send needs 1 to %d receivers, not %u", ROSTRUM_RECEIVERS_MAX,
                            count);
    for (uint32_t i = 0; i < count; i++) {
        const char *name = request->receivers[i];
        size_t length = name ? strnlen(name, ROSTRUM_NAME_MAX + 1) : 0;
        if (length > ROSTRUM_NAME_MAX || !name || !is_name(name, length))
            return rs_error_set(error, ROSTRUM_ERR_INVALID,
                                "receiver %u is not a server's name (1 to %d bytes of UTF-8)", i + 1, ROSTRUM_NAME_MAX);
        sorted[i] = name;
    }
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (uint32_t i = 1; i < count; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            return rs_error_set(error, ROSTRUM_ERR_INVALID, "receiver %s is named twice", sorted[i]);
    return true;
}

static bool check_process(const rs_api_request *request, rs_error *error) {
    size_t length = request->process ? strnlen(request->process, ROSTRUM_NAME_MAX + 1) : 0;
    if (length > ROSTRUM_NAME_MAX || !request->process || !is_name(request->process, length))
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "the process's name needs 1 to %d bytes of UTF-8",
                            ROSTRUM_NAME_MAX);
    return true;
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
    if ((protocol[0] || order[0]) && strcmp(order, "none") != 0 && strcmp(order, "fifo") != 0)
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "a group's order is none or fifo");
    const char *options = request->options ? request->options : "";
    if (options[0] && !protocol[0])
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "options of a group go with its protocol");
    if (strnlen(options, 256) > 255 || (options[0] && !is_name(options, strlen(options))))
        return rs_error_set(error, ROSTRUM_ERR_INVALID,
                            "a group's options are name=value,name=value, 255 bytes at most");
    return true;
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
        break;
    case RS_API_ADD:
    case RS_API_DELETE:
    case RS_API_SUBSCRIBE:
    case RS_API_CANCEL:
        rs_put_u64(out, request->data_id);
        break;
    case RS_API_CREATE:
    case RS_API_DROP:
    case RS_API_UNSUBSCRIBE:
        rs_put_u64(out, request->number);
        break;
    case RS_API_READ:
    case RS_API_STREAM_RECEIVE:
        rs_put_u64(out, request->data_id);
        rs_put_u32(out, request->wait_ms);
        break;
    case RS_API_STREAM_END:
        rs_put_u64(out, request->data_id);
        rs_put_u64(out, request->number);
        break;
    case RS_API_SEND:
    case RS_API_STREAM_SEND:
        if (!check_receivers(request, error))
            return false;
        rs_put_u64(out, request->data_id);
        rs_put_u32(out, request->flags);
        rs_put_u32(out, request->wait_ms);
        rs_put_u32(out, request->deadline_ms);
        rs_put_u16(out, (uint16_t)request->receiver_count);
        for (uint32_t i = 0; i < request->receiver_count; i++)
            rs_put_text(out, request->receivers[i]);
        break;
    case RS_API_JOIN:
        if (!check_join(request, error))
            return false;
        rs_put_u32(out, request->flags);
        rs_put_text(out, request->group);
        rs_put_text(out, request->protocol);
        rs_put_text(out, request->order);
        rs_put_text(out, request->options);
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

static bool parse_fields(rs_reader *in, rs_api_request *out, rs_error *error) {
    size_t used = 0;
    switch (out->type) {
    case RS_API_REGISTER:
        rs_get(in, out->app, sizeof out->app);
        out->process = get_name(in, out, &used);
        return in->bad || check_process(out, error);
    case RS_API_UNREGISTER:
    case RS_API_STATUS:
        return true;
    case RS_API_ADD:
    case RS_API_DELETE:
    case RS_API_SUBSCRIBE:
    case RS_API_CANCEL:
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
        uint32_t count = rs_get_u16(in);
        for (; !in->bad && out->receiver_count < count && out->receiver_count < ROSTRUM_RECEIVERS_MAX;
             out->receiver_count++)
            out->receivers[out->receiver_count] = get_name(in, out, &used);
        if (!in->bad && out->receiver_count < count)
            return rs_error_set(error, ROSTRUM_ERR_INVALID, "send needs 1 to %d receivers, not %u",
                                ROSTRUM_RECEIVERS_MAX, count);
        return in->bad || check_receivers(out, error);
    case RS_API_JOIN:
        out->flags = rs_get_u32(in);
        out->group = get_name(in, out, &used);
        out->protocol = get_name(in, out, &used);
        out->order = get_name(in, out, &used);
        out->options = get_name(in, out, &used);
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
