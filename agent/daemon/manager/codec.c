#include "daemon/manager/codec.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "thrift_schema.h"

/* What live paths may take of hello's frame; the rest is for its other fields. */
enum { LIVE_PATHS_BYTES = RS_LINK_FRAME_MAX - 8192, LIVE_PATHS_MAX = 4096, ADDRESS_SIZE = INET_ADDRSTRLEN };

static rs_status encode(uint32_t call, const void *args, rs_link_frame *out) {
    uint8_t *bytes;
    size_t length;
    switch (rs_thrift_encode(&rs_thrift_service_manager, call, args, RS_LINK_FRAME_MAX, &bytes, &length)) {
    case RS_THRIFT_OK:
        *out = (rs_link_frame){bytes, length};
        return RS_OK;
    case RS_THRIFT_INVALID:
        return RS_ERR_INVALID;
    case RS_THRIFT_TOO_LONG:
        return RS_ERR_LIMIT;
    case RS_THRIFT_NO_MEMORY:
        break;
    }
    return RS_ERR_MEMORY;
}

/* What the IDL's bounds do not say: names are not empty. */
static bool is_named(const char *name) {
    return name && name[0];
}

static bool are_named(const char *const *names, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (!is_named(names[i]))
            return false;
    return true;
}

static rs_thrift_list texts(const char *const *items, uint32_t count) {
    return (rs_thrift_list){items, count};
}

static const char *dotted(uint32_t address, char text[ADDRESS_SIZE]) {
    return inet_ntop(AF_INET, &(struct in_addr){htonl(address)}, text, ADDRESS_SIZE);
}

static const char **copied(const char *const *names, uint32_t count) {
    const char **copy = calloc(count + 1u, sizeof *copy);
    if (copy && count > 0)
        memcpy(copy, names, count * sizeof *copy);
    return copy;
}

/* The paths that are held, as many as fit. `groups` keeps the text of their groups; names of receivers are copied,
 * because the owner's need to hold until the next path only. */
static uint32_t live_paths(rs_link_live_path_fn *live_path, void *context, rs_thrift_live_path *paths,
                           char (*groups)[ADDRESS_SIZE]) {
    uint32_t count = 0;
    size_t total = 0;
    rs_link_live_path from;
    for (uint32_t i = 0; live_path && i < LIVE_PATHS_MAX && live_path(context, i, &from); i++) {
        rs_thrift_live_path *to = &paths[count];
        bool circuit = from.kind == RS_PATH_CIRCUIT;
        *to = (rs_thrift_live_path){.request_id = from.request_id,
                                    .response_id = from.response_id,
                                    .group = dotted(from.group, groups[count]),
                                    .kind = circuit ? RS_THRIFT_PATH_KIND_CIRCUIT : RS_THRIFT_PATH_KIND_PACKET,
                                    .receivers = texts(from.receivers, from.receiver_count),
                                    .accepted_size = (int64_t)from.accepted_size};
        bool good = is_named(from.request_id) && is_named(from.response_id) && from.accepted_size <= INT64_MAX &&
                    are_named(from.receivers, from.receiver_count);
        size_t size = good ? rs_thrift_size(&rs_thrift_shape_live_path, to) : 0;
        if (total + size > LIVE_PATHS_BYTES)
            break;
        if (size == 0 || !(to->receivers.items = copied(from.receivers, from.receiver_count)))
            continue;
        total += size;
        count++;
    }
    return count;
}

static void free_paths(rs_thrift_live_path *paths, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        free((void *)(uintptr_t)paths[i].receivers.items);
    free(paths);
}

rs_status rs_link_encode_hello(const rs_link_options *options, rs_link_live_path_fn *live_path, void *context,
                               rs_link_frame *out) {
    if (!is_named(options->server))
        return RS_ERR_INVALID;
    rs_thrift_live_path *paths = calloc(LIVE_PATHS_MAX, sizeof *paths);
    char(*groups)[ADDRESS_SIZE] = calloc(LIVE_PATHS_MAX, sizeof *groups);
    rs_status status = RS_ERR_MEMORY;
    uint32_t count = 0;
    if (paths && groups) {
        count = live_paths(live_path, context, paths, groups);
        const rs_thrift_manager_hello args = {
            .info = {.version = RS_THRIFT_VERSION,
                     .server = options->server,
                     .boot_id = (int64_t)options->boot_id,
                     .control_port = options->control_port,
                     .live_paths = {paths, count},
                     .has_wants_light = options->wants_light,
                     .wants_light = options->wants_light,
                     .has_knows_rdcm = true,
                     .knows_rdcm = true,
                     .has_group_protocols = true,
                     .group_protocols = texts(options->group_protocols, options->group_protocol_count),
                     .token = options->token,
                     .software = options->software,
                     .has_knows_probes = true,
                     .knows_probes = true}};
        status = encode(RS_THRIFT_MANAGER_HELLO, &args, out);
    }
    free_paths(paths, count);
    free(groups);
    return status;
}

rs_status rs_link_encode_request(const char *sender, const rs_link_request_params *request, rs_link_frame *out) {
    if (!is_named(request->request_id) || request->receiver_count == 0 ||
        !are_named(request->receivers, request->receiver_count) || request->data_size > INT64_MAX ||
        request->remaining_size > request->data_size || request->wait_ms > INT32_MAX ||
        request->deadline_ms > INT32_MAX)
        return RS_ERR_INVALID;
    const rs_thrift_manager_request args = {
        .request = {.request_id = request->request_id,
                    .app_id = {request->object.app, sizeof request->object.app},
                    .data_id = (int64_t)request->object.data,
                    .data_size = (int64_t)request->data_size,
                    .remaining_size = (int64_t)request->remaining_size,
                    .sender = sender,
                    .receivers = texts(request->receivers, request->receiver_count),
                    .has_wait_ms = request->wait_ms != 0,
                    .wait_ms = (int32_t)request->wait_ms,
                    .has_deadline_ms = request->deadline_ms != 0,
                    .deadline_ms = (int32_t)request->deadline_ms,
                    .has_protocol = true,
                    .protocol = request->protocol ? (int32_t)request->protocol : RS_THRIFT_PROTOCOL_AUTO,
                    .has_splits = request->splits,
                    .splits = request->splits}};
    return encode(RS_THRIFT_MANAGER_REQUEST, &args, out);
}

rs_status rs_link_encode_release(const char *request_id, const char *response_id, rs_link_frame *out) {
    if (!is_named(request_id) || !is_named(response_id))
        return RS_ERR_INVALID;
    const rs_thrift_manager_release args = {request_id, response_id};
    return encode(RS_THRIFT_MANAGER_RELEASE, &args, out);
}

rs_status rs_link_encode_cancel(const char *request_id, rs_link_frame *out) {
    if (!is_named(request_id))
        return RS_ERR_INVALID;
    const rs_thrift_manager_cancel args = {request_id};
    return encode(RS_THRIFT_MANAGER_CANCEL, &args, out);
}

rs_status rs_link_encode_view_used(const char *response_id, uint64_t version, rs_link_frame *out) {
    if (!is_named(response_id) || version > INT64_MAX)
        return RS_ERR_INVALID;
    const rs_thrift_manager_view_used args = {response_id, (int64_t)version};
    return encode(RS_THRIFT_MANAGER_VIEW_USED, &args, out);
}

rs_status rs_link_encode_failure(const char *response_id, uint64_t version, rs_link_failure_kind kind,
                                 rs_ring_kind ring, const char *server, rs_link_frame *out) {
    if (!is_named(response_id) || !is_named(server) || version > INT64_MAX)
        return RS_ERR_INVALID;
    const rs_thrift_manager_failure args = {
        .report = {.response_id = response_id,
                   .version = (int64_t)version,
                   .kind = (int32_t)kind,
                   .ring = ring == RS_RING_PROXY ? RS_THRIFT_RING_KIND_PROXY : RS_THRIFT_RING_KIND_LEAF,
                   .server = server}};
    return encode(RS_THRIFT_MANAGER_FAILURE, &args, out);
}

rs_status rs_link_encode_keepalive(rs_link_frame *out) {
    return encode(RS_THRIFT_MANAGER_KEEPALIVE, NULL, out);
}

rs_status rs_link_encode_no_light(const char *response_id, const char *const *receivers, uint32_t receiver_count,
                                  rs_link_frame *out) {
    if (!is_named(response_id) || receiver_count == 0 || !are_named(receivers, receiver_count))
        return RS_ERR_INVALID;
    const rs_thrift_manager_no_light args = {response_id, texts(receivers, receiver_count)};
    return encode(RS_THRIFT_MANAGER_NO_LIGHT, &args, out);
}

rs_status rs_link_encode_report(const rs_link_report_params *report, rs_link_frame *out) {
    if (!is_named(report->request_id) || !is_named(report->response_id) || !is_named(report->phase) ||
        (report->bytes | report->sent_packets | report->redundant_packets | report->patched_packets) > INT64_MAX ||
        report->receiver_count > RS_LINK_RECEIVERS_MAX)
        return RS_ERR_INVALID;
    rs_thrift_receiver_report *rows = calloc(report->receiver_count + 1u, sizeof *rows);
    if (!rows)
        return RS_ERR_MEMORY;
    bool good = true;
    for (uint32_t i = 0; i < report->receiver_count; i++) {
        const rs_link_receiver_report *from = &report->receivers[i];
        good = good && is_named(from->server) && is_named(from->state) &&
               (from->initial_sn | from->patched_fragments) <= INT64_MAX;
        rows[i] = (rs_thrift_receiver_report){.server = from->server,
                                              .state = from->state,
                                              .cause = from->cause,
                                              .initial_sn = (int64_t)from->initial_sn,
                                              .patched_fragments = (int64_t)from->patched_fragments,
                                              .first_light_ns = from->first_light_ns,
                                              .complete_ns = from->complete_ns};
    }
    const rs_thrift_manager_report args = {.report = {.request_id = report->request_id,
                                                      .response_id = report->response_id,
                                                      .phase = report->phase,
                                                      .cause = report->cause,
                                                      .bytes = (int64_t)report->bytes,
                                                      .sent_packets = (int64_t)report->sent_packets,
                                                      .redundant_packets = (int64_t)report->redundant_packets,
                                                      .patched_packets = (int64_t)report->patched_packets,
                                                      .receivers = {rows, report->receiver_count}}};
    rs_status status = good ? encode(RS_THRIFT_MANAGER_REPORT, &args, out) : RS_ERR_INVALID;
    free(rows);
    return status;
}

rs_status rs_link_encode_probe_report(const rs_link_probe_report *report, rs_link_frame *out) {
    if (!is_named(report->id) || !is_named(report->phase) || report->mtu > INT32_MAX ||
        report->reached_count > RS_LINK_RECEIVERS_MAX)
        return RS_ERR_INVALID;
    rs_thrift_probe_reach *reached = calloc(report->reached_count + 1u, sizeof *reached);
    if (!reached)
        return RS_ERR_MEMORY;
    bool good = true;
    for (uint32_t i = 0; i < report->reached_count; i++) {
        const rs_link_reached *from = &report->reached[i];
        good = good && is_named(from->server);
        reached[i] = (rs_thrift_probe_reach){from->server, from->cause, from->took};
    }
    const rs_thrift_manager_probe_report args = {
        .report = {.probe_id = report->id,
                   .phase = report->phase,
                   .cause = report->cause,
                   .software = report->software,
                   .data_interface = report->interface,
                   .mtu = (int32_t)report->mtu,
                   .rate_bps = report->rate_bps,
                   .wall_clock_ns = report->wall_clock_ns,
                   .group_small = (int32_t)(report->group_small & INT32_MAX),
                   .group_full = (int32_t)(report->group_full & INT32_MAX),
                   .unicast_small = (int32_t)(report->unicast_small & INT32_MAX),
                   .unicast_full = (int32_t)(report->unicast_full & INT32_MAX),
                   .reached = {reached, report->reached_count}}};
    rs_status status = good ? encode(RS_THRIFT_MANAGER_PROBE_REPORT, &args, out) : RS_ERR_INVALID;
    free(reached);
    return status;
}

rs_status rs_link_encode_group(rs_link_group_call call, const char *group, const rs_link_group_options *options,
                               const rs_link_group_view *held, rs_link_frame *out) {
    if (!is_named(group) || (options && (!is_named(options->protocol) || !is_named(options->order))))
        return RS_ERR_INVALID;
    if (call == RS_LINK_GROUP_LEAVE || call == RS_LINK_GROUP_UNUSE) {
        const rs_thrift_manager_leave_group args = {group}; /* unuse_group's are the same */
        return encode(call == RS_LINK_GROUP_LEAVE ? RS_THRIFT_MANAGER_LEAVE_GROUP : RS_THRIFT_MANAGER_UNUSE_GROUP,
                      &args, out);
    }
    rs_thrift_group_options given = {0};
    if (options)
        given = (rs_thrift_group_options){options->protocol, options->order, (int32_t)options->r, (int32_t)options->c,
                                          (int32_t)options->stagger};
    char address[ADDRESS_SIZE];
    rs_thrift_group_use use = {.group = group, .options = options ? &given : NULL};
    if (held) {
        use.has_id = use.has_version = true;
        use.id = (int32_t)held->id;
        use.version = (int64_t)held->version;
        use.address = dotted(held->address, address);
    }
    const rs_thrift_manager_join_group args = {use}; /* use_group's are the same */
    return encode(call == RS_LINK_GROUP_JOIN ? RS_THRIFT_MANAGER_JOIN_GROUP : RS_THRIFT_MANAGER_USE_GROUP, &args, out);
}
