#include "daemon/link_codec.h"
#include "daemon/link_gobject.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <thrift/c_glib/protocol/thrift_binary_protocol.h>
#include <thrift/c_glib/transport/thrift_memory_buffer.h>

#include "rostrum_manager.h"

/* What live paths may take of hello's frame; the rest is for its other fields. */
enum { LIVE_PATHS_BYTES = RS_LINK_FRAME_MAX - 4096, LIVE_PATHS_MAX = 4096 };

typedef struct {
    ThriftMemoryBuffer *buffer;
    ThriftProtocol *protocol;
    rostrumManagerClient *client;
} encoder;

static rostrumManagerIf *encoder_open(encoder *e) {
    rs_link_gobject_repair();
    e->buffer = g_object_new(THRIFT_TYPE_MEMORY_BUFFER, "buf_size", RS_LINK_FRAME_MAX, NULL);
    e->protocol = g_object_new(THRIFT_TYPE_BINARY_PROTOCOL, "transport", e->buffer, NULL);
    e->client =
        g_object_new(ROSTRUM_TYPE_MANAGER_CLIENT, "input_protocol", e->protocol, "output_protocol", e->protocol, NULL);
    return ROSTRUM_MANAGER_IF(e->client);
}

/* `written`: what the generated call said. */
static rs_status encoder_close(encoder *e, gboolean written, GError *error, rs_link_frame *out) {
    rs_status status = written ? RS_OK : RS_ERR_LIMIT;
    if (written) {
        size_t length = e->buffer->buf->len;
        uint8_t *bytes = malloc(4 + length);
        if (bytes) {
            uint32_t prefix = htonl((uint32_t)length);
            memcpy(bytes, &prefix, 4);
            memcpy(bytes + 4, e->buffer->buf->data, length);
            *out = (rs_link_frame){bytes, 4 + length};
        } else {
            status = RS_ERR_MEMORY;
        }
    }
    g_clear_error(&error);
    g_object_unref(e->client);
    g_object_unref(e->protocol);
    g_object_unref(e->buffer);
    return status;
}

static bool text_ok(const char *text, size_t max) {
    return text && rs_link_text_ok((const uint8_t *)text, strnlen(text, max + 1), max);
}

static bool name_ok(const char *name) {
    return text_ok(name, RS_LINK_NAME_MAX) && name[0];
}

static bool names_ok(const char *const *names, uint32_t count) {
    if (count > RS_LINK_RECEIVERS_MAX)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!name_ok(names[i]))
            return false;
    return true;
}

static void add_names(GPtrArray *array, const char *const *names, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        g_ptr_array_add(array, g_strdup(names[i]));
}

/* The path as hello tells it, NULL if it cannot be told; `bytes` is about what it takes in the frame. */
static rostrumLivePath *live_path_object(const rs_link_live_path *path, size_t *bytes) {
    if (!name_ok(path->request_id) || !name_ok(path->response_id) || !names_ok(path->receivers, path->receiver_count) ||
        path->accepted_size > INT64_MAX)
        return NULL;
    char group[INET_ADDRSTRLEN];
    struct in_addr address = {htonl(path->group)};
    inet_ntop(AF_INET, &address, group, sizeof group);
    rostrumLivePath *object = g_object_new(ROSTRUM_TYPE_LIVE_PATH, NULL);
    object->request_id = g_strdup(path->request_id);
    object->response_id = g_strdup(path->response_id);
    object->group = g_strdup(group);
    object->kind = path->kind == RS_PATH_CIRCUIT ? ROSTRUM_PATH_KIND_CIRCUIT : ROSTRUM_PATH_KIND_PACKET;
    object->accepted_size = (gint64)path->accepted_size;
    add_names(object->receivers, path->receivers, path->receiver_count);
    *bytes = 64 + strlen(path->request_id) + strlen(path->response_id) + strlen(group);
    for (uint32_t i = 0; i < path->receiver_count; i++)
        *bytes += 4 + strlen(path->receivers[i]);
    return object;
}

rs_status rs_link_encode_hello(const rs_link_options *options, rs_link_live_path_fn *live_path, void *context,
                               rs_link_frame *out) {
    if (!name_ok(options->server))
        return RS_ERR_INVALID;
    rostrumAgentInfo *info = g_object_new(ROSTRUM_TYPE_AGENT_INFO, NULL);
    info->version = ROSTRUM_VERSION;
    info->server = g_strdup(options->server);
    info->boot_id = (gint64)options->boot_id;
    info->control_port = options->control_port;
    info->wants_light = options->wants_light;
    info->__isset_wants_light = options->wants_light;
    info->knows_probes = info->__isset_knows_probes = true;
    info->knows_rdcm = info->__isset_knows_rdcm = true;
    info->group_protocols = g_ptr_array_new_with_free_func(g_free);
    info->__isset_group_protocols = true;
    for (uint32_t i = 0; i < options->group_protocol_count; i++)
        g_ptr_array_add(info->group_protocols, g_strdup(options->group_protocols[i]));
    if (options->token) {
        info->token = g_strdup(options->token);
        info->__isset_token = true;
    }
    if (options->software) {
        info->software = g_strdup(options->software);
        info->__isset_software = true;
    }
    size_t total = 0;
    rs_link_live_path path;
    for (uint32_t i = 0; live_path && i < LIVE_PATHS_MAX && live_path(context, i, &path); i++) {
        size_t bytes = 0;
        rostrumLivePath *object = live_path_object(&path, &bytes);
        if (!object)
            continue;
        total += bytes;
        if (total > LIVE_PATHS_BYTES) {
            g_object_unref(object);
            break;
        }
        g_ptr_array_add(info->live_paths, object);
    }
    encoder e;
    GError *error = NULL;
    rostrumManagerIf *manager = encoder_open(&e);
    gboolean written = rostrum_manager_client_send_hello(manager, info, &error);
    g_object_unref(info);
    return encoder_close(&e, written, error, out);
}

rs_status rs_link_encode_request(const char *sender, const rs_link_request_params *request, rs_link_frame *out) {
    if (!name_ok(request->request_id) || request->receiver_count == 0 ||
        !names_ok(request->receivers, request->receiver_count) || request->data_size > INT64_MAX ||
        request->remaining_size > request->data_size || request->wait_ms > INT32_MAX ||
        request->deadline_ms > INT32_MAX)
        return RS_ERR_INVALID;
    rostrumPathRequest *object = g_object_new(ROSTRUM_TYPE_PATH_REQUEST, NULL);
    object->request_id = g_strdup(request->request_id);
    object->app_id = g_byte_array_append(g_byte_array_new(), request->object.app, sizeof request->object.app);
    object->data_id = (gint64)request->object.data;
    object->data_size = (gint64)request->data_size;
    object->remaining_size = (gint64)request->remaining_size;
    object->sender = g_strdup(sender);
    add_names(object->receivers, request->receivers, request->receiver_count);
    object->wait_ms = (gint32)request->wait_ms;
    object->__isset_wait_ms = request->wait_ms != 0;
    object->deadline_ms = (gint32)request->deadline_ms;
    object->__isset_deadline_ms = request->deadline_ms != 0;
    object->protocol = request->protocol ? (rostrumProtocol)request->protocol : ROSTRUM_PROTOCOL_AUTO;
    object->__isset_protocol = true;
    object->splits = request->splits;
    object->__isset_splits = request->splits;
    encoder e;
    GError *error = NULL;
    rostrumManagerIf *manager = encoder_open(&e);
    gboolean written = rostrum_manager_client_send_request(manager, object, &error);
    g_object_unref(object);
    return encoder_close(&e, written, error, out);
}

rs_status rs_link_encode_release(const char *request_id, const char *response_id, rs_link_frame *out) {
    if (!name_ok(request_id) || !name_ok(response_id))
        return RS_ERR_INVALID;
    encoder e;
    GError *error = NULL;
    rostrumManagerIf *manager = encoder_open(&e);
    gboolean written = rostrum_manager_client_send_release(manager, request_id, response_id, &error);
    return encoder_close(&e, written, error, out);
}

rs_status rs_link_encode_cancel(const char *request_id, rs_link_frame *out) {
    if (!name_ok(request_id))
        return RS_ERR_INVALID;
    encoder e;
    GError *error = NULL;
    rostrumManagerIf *manager = encoder_open(&e);
    gboolean written = rostrum_manager_client_send_cancel(manager, request_id, &error);
    return encoder_close(&e, written, error, out);
}

rs_status rs_link_encode_view_used(const char *response_id, uint64_t version, rs_link_frame *out) {
    if (!name_ok(response_id) || version > INT64_MAX)
        return RS_ERR_INVALID;
    encoder e;
    GError *error = NULL;
    rostrumManagerIf *manager = encoder_open(&e);
    gboolean written = rostrum_manager_client_send_view_used(manager, response_id, (gint64)version, &error);
    return encoder_close(&e, written, error, out);
}

rs_status rs_link_encode_failure(const char *response_id, uint64_t version, bool link_failed, rs_ring_kind ring,
                                 const char *server, rs_link_frame *out) {
    if (!name_ok(response_id) || !name_ok(server) || version > INT64_MAX)
        return RS_ERR_INVALID;
    rostrumFailureReport *object = g_object_new(ROSTRUM_TYPE_FAILURE_REPORT, NULL);
    object->response_id = g_strdup(response_id);
    object->version = (gint64)version;
    object->kind = link_failed ? ROSTRUM_FAILURE_KIND_LINK : ROSTRUM_FAILURE_KIND_RECEIVER;
    object->ring = ring == RS_RING_PROXY ? ROSTRUM_RING_KIND_PROXY : ROSTRUM_RING_KIND_LEAF;
    object->server = g_strdup(server);
    encoder e;
    GError *error = NULL;
    rostrumManagerIf *manager = encoder_open(&e);
    gboolean written = rostrum_manager_client_send_failure(manager, object, &error);
    g_object_unref(object);
    return encoder_close(&e, written, error, out);
}

rs_status rs_link_encode_keepalive(rs_link_frame *out) {
    encoder e;
    GError *error = NULL;
    rostrumManagerIf *manager = encoder_open(&e);
    gboolean written = rostrum_manager_client_send_keepalive(manager, &error);
    return encoder_close(&e, written, error, out);
}

rs_status rs_link_encode_no_light(const char *response_id, const char *const *receivers, uint32_t receiver_count,
                                  rs_link_frame *out) {
    if (!name_ok(response_id) || receiver_count == 0 || !names_ok(receivers, receiver_count))
        return RS_ERR_INVALID;
    GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
    add_names(names, receivers, receiver_count);
    encoder e;
    GError *error = NULL;
    rostrumManagerIf *manager = encoder_open(&e);
    gboolean written = rostrum_manager_client_send_no_light(manager, response_id, names, &error);
    g_ptr_array_unref(names);
    return encoder_close(&e, written, error, out);
}

static bool report_ok(const rs_link_report_params *report) {
    if (!name_ok(report->request_id) || !name_ok(report->response_id) || !name_ok(report->phase) ||
        !text_ok(report->cause, RS_LINK_TEXT_MAX) || report->receiver_count > RS_LINK_RECEIVERS_MAX ||
        (report->bytes | report->sent_packets | report->redundant_packets | report->patched_packets) > INT64_MAX)
        return false;
    for (uint32_t i = 0; i < report->receiver_count; i++) {
        const rs_link_receiver_report *r = &report->receivers[i];
        if (!name_ok(r->server) || !name_ok(r->state) || !text_ok(r->cause, RS_LINK_TEXT_MAX) ||
            (r->initial_sn | r->patched_fragments) > INT64_MAX)
            return false;
    }
    return true;
}

rs_status rs_link_encode_report(const rs_link_report_params *report, rs_link_frame *out) {
    if (!report_ok(report))
        return RS_ERR_INVALID;
    rostrumTransferReport *object = g_object_new(ROSTRUM_TYPE_TRANSFER_REPORT, NULL);
    object->request_id = g_strdup(report->request_id);
    object->response_id = g_strdup(report->response_id);
    object->phase = g_strdup(report->phase);
    object->cause = g_strdup(report->cause);
    object->bytes = (gint64)report->bytes;
    object->sent_packets = (gint64)report->sent_packets;
    object->redundant_packets = (gint64)report->redundant_packets;
    object->patched_packets = (gint64)report->patched_packets;
    for (uint32_t i = 0; i < report->receiver_count; i++) {
        const rs_link_receiver_report *from = &report->receivers[i];
        rostrumReceiverReport *r = g_object_new(ROSTRUM_TYPE_RECEIVER_REPORT, NULL);
        r->server = g_strdup(from->server);
        r->state = g_strdup(from->state);
        r->cause = g_strdup(from->cause);
        r->initial_sn = (gint64)from->initial_sn;
        r->patched_fragments = (gint64)from->patched_fragments;
        r->first_light_ns = from->first_light_ns;
        r->complete_ns = from->complete_ns;
        g_ptr_array_add(object->receivers, r);
    }
    encoder e;
    GError *error = NULL;
    rostrumManagerIf *manager = encoder_open(&e);
    gboolean written = rostrum_manager_client_send_report(manager, object, &error);
    g_object_unref(object);
    return encoder_close(&e, written, error, out);
}

rs_status rs_link_encode_probe_report(const rs_link_probe_report *report, rs_link_frame *out) {
    if (!name_ok(report->id) || !name_ok(report->phase) || !text_ok(report->cause, RS_LINK_TEXT_MAX) ||
        !text_ok(report->software, RS_LINK_NAME_MAX) || !text_ok(report->interface, RS_LINK_NAME_MAX) ||
        report->mtu > INT32_MAX || report->reached_count > RS_LINK_RECEIVERS_MAX)
        return RS_ERR_INVALID;
    for (uint32_t i = 0; i < report->reached_count; i++)
        if (!name_ok(report->reached[i].server) || !text_ok(report->reached[i].cause, RS_LINK_TEXT_MAX))
            return RS_ERR_INVALID;
    rostrumProbeReport *object = g_object_new(ROSTRUM_TYPE_PROBE_REPORT, NULL);
    object->probe_id = g_strdup(report->id);
    object->phase = g_strdup(report->phase);
    object->cause = g_strdup(report->cause);
    object->software = g_strdup(report->software);
    object->data_interface = g_strdup(report->interface);
    object->mtu = (gint32)report->mtu;
    object->rate_bps = report->rate_bps;
    object->wall_clock_ns = report->wall_clock_ns;
    object->group_small = (gint32)(report->group_small & INT32_MAX);
    object->group_full = (gint32)(report->group_full & INT32_MAX);
    object->unicast_small = (gint32)(report->unicast_small & INT32_MAX);
    object->unicast_full = (gint32)(report->unicast_full & INT32_MAX);
    for (uint32_t i = 0; i < report->reached_count; i++) {
        rostrumProbeReach *one = g_object_new(ROSTRUM_TYPE_PROBE_REACH, NULL);
        one->server = g_strdup(report->reached[i].server);
        one->cause = g_strdup(report->reached[i].cause);
        one->took_ns = report->reached[i].took;
        g_ptr_array_add(object->reached, one);
    }
    encoder e;
    GError *error = NULL;
    rostrumManagerIf *manager = encoder_open(&e);
    gboolean written = rostrum_manager_client_send_probe_report(manager, object, &error);
    g_object_unref(object);
    return encoder_close(&e, written, error, out);
}

rs_status rs_link_encode_group(rs_link_group_call call, const char *group, const rs_link_group_options *options,
                               const rs_link_group_view *held, rs_link_frame *out) {
    if (!name_ok(group) || (options && (!name_ok(options->protocol) || !name_ok(options->order))))
        return RS_ERR_INVALID;
    rostrumGroupUse *use = g_object_new(ROSTRUM_TYPE_GROUP_USE, NULL);
    use->group = g_strdup(group);
    if (options) {
        rostrumGroupOptions *o = g_object_new(ROSTRUM_TYPE_GROUP_OPTIONS, NULL);
        o->protocol = g_strdup(options->protocol);
        o->order = g_strdup(options->order);
        o->r = (gint32)options->r;
        o->c = (gint32)options->c;
        o->stagger = (gint32)options->stagger;
        use->options = o;
        use->__isset_options = true;
    }
    if (held) {
        char address[INET_ADDRSTRLEN];
        struct in_addr in = {htonl(held->address)};
        inet_ntop(AF_INET, &in, address, sizeof address);
        use->id = (gint32)held->id;
        use->version = (gint64)held->version;
        use->address = g_strdup(address);
        use->__isset_id = use->__isset_version = use->__isset_address = true;
    }
    encoder e;
    GError *error = NULL;
    rostrumManagerIf *manager = encoder_open(&e);
    gboolean written = call == RS_LINK_GROUP_JOIN    ? rostrum_manager_client_send_join_group(manager, use, &error)
                       : call == RS_LINK_GROUP_USE   ? rostrum_manager_client_send_use_group(manager, use, &error)
                       : call == RS_LINK_GROUP_LEAVE ? rostrum_manager_client_send_leave_group(manager, group, &error)
                                                     : rostrum_manager_client_send_unuse_group(manager, group, &error);
    g_object_unref(use);
    return encoder_close(&e, written, error, out);
}
