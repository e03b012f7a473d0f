#include "daemon/manager/codec.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/groups/engine.h"
#include "core/transfer/node.h"
#include "thrift_schema.h"

/* What live paths may take of hello's frame; the rest is for its other fields. */
enum { LIVE_PATHS_BYTES = RS_MANAGER_FRAME_MAX / 2 - 8192, LIVE_PATHS_MAX = 4096, ADDRESS_SIZE = INET_ADDRSTRLEN };

static rs_status encode(uint32_t call, const void *args, rs_manager_frame *out) {
    uint8_t *bytes;
    size_t length;
    switch (rs_thrift_encode(&rs_thrift_service_manager, call, args, RS_MANAGER_FRAME_MAX, &bytes, &length)) {
    case RS_THRIFT_OK:
        *out = (rs_manager_frame){bytes, length};
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
static uint32_t live_paths(rs_manager_live_path_fn *live_path, void *context, rs_thrift_live_path *paths,
                           char (*groups)[ADDRESS_SIZE]) {
    uint32_t count = 0;
    size_t total = 0;
    rs_manager_live_path from;
    for (uint32_t i = 0; live_path && i < LIVE_PATHS_MAX && live_path(context, i, &from); i++) {
        rs_thrift_live_path *to = &paths[count];
        bool circuit = from.kind == RS_PATH_CIRCUIT;
        *to = (rs_thrift_live_path){.request_id = from.request_id,
                                    .response_id = from.response_id,
                                    .group = dotted(from.group, groups[count]),
                                    .kind = circuit ? RS_THRIFT_PATH_KIND_CIRCUIT : RS_THRIFT_PATH_KIND_PACKET,
                                    .receivers = texts(from.receivers, from.receiver_count),
                                    .accepted_size = (int64_t)from.accepted_size,
                                    .has_protocol = from.protocol != RS_PROTOCOL_REPUBLIC,
                                    .protocol = (int32_t)from.protocol + RS_THRIFT_PROTOCOL_REPUBLIC};
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

/* The options of a group engine, one behind the other from `out` on; returns how many. */
static uint32_t engine_options(const rs_group_engine *engine, rs_thrift_engine_option *out) {
    const rs_group_option *o = engine->options;
    for (uint32_t i = 0; i < engine->option_count; i++, o++)
        out[i] = (rs_thrift_engine_option){o->name,     o->least_milli, o->most_milli, o->usual_milli,
                                           o->fraction, o->meaning,     o->later,      o->later};
    return engine->option_count;
}

rs_status rs_manager_encode_hello(const rs_manager_options *options, uint32_t round_trip_us,
                                  rs_manager_live_path_fn *live_path, void *context, rs_manager_frame *out) {
    if (!is_named(options->server) || options->group_engine_count > RS_MANAGER_ENGINES_MAX)
        return RS_ERR_INVALID;
    rs_thrift_live_path *paths = calloc(LIVE_PATHS_MAX, sizeof *paths);
    char(*groups)[ADDRESS_SIZE] = calloc(LIVE_PATHS_MAX, sizeof *groups);
    rs_status status = RS_ERR_MEMORY;
    const char *protocols[RS_MANAGER_PROTOCOLS_MAX];
    rs_thrift_engine engines[RS_MANAGER_ENGINES_MAX];
    rs_thrift_engine_option group_options[RS_MANAGER_ENGINES_MAX][RS_GROUP_OPTIONS_MOST];
    uint32_t count = 0, protocol_count = 0;
    for (uint32_t i = 0; i < options->group_engine_count; i++) {
        const rs_group_engine *engine = options->group_engines[i];
        engines[i] = (rs_thrift_engine){.name = engine->name,
                                        .options = {group_options[i], engine_options(engine, group_options[i])},
                                        .has_regions = true,
                                        .regions = engine->region != NULL,
                                        .meaning = engine->meaning};
    }
    for (uint32_t e = 0; e < RS_ENGINES_MOST && protocol_count < RS_MANAGER_PROTOCOLS_MAX; e++)
        if (rs_engine_name(e))
            protocols[protocol_count++] = rs_engine_name(e);
    if (paths && groups) {
        count = live_paths(live_path, context, paths, groups);
        const rs_thrift_manager_hello args = {.info = {.version = RS_THRIFT_VERSION,
                                                       .server = options->server,
                                                       .boot_id = (int64_t)options->boot_id,
                                                       .control_port = options->control_port,
                                                       .live_paths = {paths, count},
                                                       .has_wants_light = options->wants_light,
                                                       .wants_light = options->wants_light,
                                                       .has_protocols = true,
                                                       .protocols = texts(protocols, protocol_count),
                                                       .has_group_engines = true,
                                                       .group_engines = {engines, options->group_engine_count},
                                                       .token = options->token,
                                                       .software = options->software,
                                                       .has_knows_sites = options->knows_sites,
                                                       .knows_sites = options->knows_sites,
                                                       .has_knows_terms = options->knows_sites,
                                                       .knows_terms = options->knows_sites,
                                                       .has_relay = options->relay,
                                                       .relay = options->relay,
                                                       .has_piece_port = options->tells_objects,
                                                       .piece_port = options->piece_port,
                                                       .has_seals = options->seals,
                                                       .seals = options->seals,
                                                       .has_signer = options->signer != NULL,
                                                       .signer = {options->signer, options->signer ? 32 : 0},
                                                       .has_serves = options->serves,
                                                       .serves = options->serves,
                                                       .has_round_trip_us = round_trip_us != 0,
                                                       .round_trip_us = (int32_t)round_trip_us,
                                                       .has_knows_probes = true,
                                                       .knows_probes = true}};
        status = encode(RS_THRIFT_MANAGER_HELLO, &args, out);
    }
    free_paths(paths, count);
    free(groups);
    return status;
}

rs_status rs_manager_encode_request(const char *sender, const rs_manager_request_params *request,
                                    rs_manager_frame *out) {
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
                    .has_round_trip_us = request->round_trip_us != 0,
                    .round_trip_us = (int32_t)request->round_trip_us,
                    .has_splits = request->splits,
                    .splits = request->splits}};
    return encode(RS_THRIFT_MANAGER_REQUEST, &args, out);
}

rs_status rs_manager_encode_release(const char *request_id, const char *response_id, rs_manager_frame *out) {
    if (!is_named(request_id) || !is_named(response_id))
        return RS_ERR_INVALID;
    const rs_thrift_manager_release args = {request_id, response_id};
    return encode(RS_THRIFT_MANAGER_RELEASE, &args, out);
}

rs_status rs_manager_encode_cancel(const char *request_id, rs_manager_frame *out) {
    if (!is_named(request_id))
        return RS_ERR_INVALID;
    const rs_thrift_manager_cancel args = {request_id};
    return encode(RS_THRIFT_MANAGER_CANCEL, &args, out);
}

rs_status rs_manager_encode_view_used(const char *response_id, uint64_t version, rs_manager_frame *out) {
    if (!is_named(response_id) || version > INT64_MAX)
        return RS_ERR_INVALID;
    const rs_thrift_manager_view_used args = {response_id, (int64_t)version};
    return encode(RS_THRIFT_MANAGER_VIEW_USED, &args, out);
}

rs_status rs_manager_encode_failure(const char *response_id, uint64_t version, rs_manager_failure_kind kind,
                                    rs_ring_kind ring, const char *server, rs_manager_frame *out) {
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

rs_status rs_manager_encode_keepalive(rs_manager_frame *out) {
    return encode(RS_THRIFT_MANAGER_KEEPALIVE, NULL, out);
}

rs_status rs_link_encode_receiver_change(const char *response_id, const char *server, bool joins,
                                         rs_manager_frame *out) {
    if (!is_named(response_id) || !is_named(server))
        return RS_ERR_INVALID;
    const rs_thrift_manager_receiver_change args = {response_id, server, joins};
    return encode(RS_THRIFT_MANAGER_RECEIVER_CHANGE, &args, out);
}

rs_status rs_manager_encode_no_light(const char *response_id, const char *const *receivers, uint32_t receiver_count,
                                     rs_manager_frame *out) {
    if (!is_named(response_id) || receiver_count == 0 || !are_named(receivers, receiver_count))
        return RS_ERR_INVALID;
    const rs_thrift_manager_no_light args = {response_id, texts(receivers, receiver_count)};
    return encode(RS_THRIFT_MANAGER_NO_LIGHT, &args, out);
}

static bool are_rows(const rs_manager_receiver_report *from, uint32_t count) {
    bool good = true;
    for (uint32_t i = 0; i < count; i++)
        good = good && is_named(from[i].server) && is_named(from[i].state) &&
               (from[i].initial_sn | from[i].patched_fragments) <= INT64_MAX;
    return good;
}

/* NULL: out of memory. */
static rs_thrift_receiver_report *receiver_rows(const rs_manager_receiver_report *from, uint32_t count) {
    rs_thrift_receiver_report *rows = calloc(count + 1u, sizeof *rows);
    for (uint32_t i = 0; rows && i < count; i++)
        rows[i] = (rs_thrift_receiver_report){.server = from[i].server,
                                              .state = from[i].state,
                                              .cause = from[i].cause,
                                              .initial_sn = (int64_t)from[i].initial_sn,
                                              .patched_fragments = (int64_t)from[i].patched_fragments,
                                              .first_light_ns = from[i].first_light_ns,
                                              .complete_ns = from[i].complete_ns};
    return rows;
}

rs_status rs_manager_encode_report(const rs_manager_report_params *report, rs_manager_frame *out) {
    if (!is_named(report->request_id) || !is_named(report->response_id) || !is_named(report->phase) ||
        (report->bytes | report->sent_packets | report->redundant_packets | report->patched_packets) > INT64_MAX ||
        report->receiver_count > RS_MANAGER_RECEIVERS_MAX)
        return RS_ERR_INVALID;
    rs_thrift_receiver_report *rows = receiver_rows(report->receivers, report->receiver_count);
    if (!rows)
        return RS_ERR_MEMORY;
    const rs_thrift_manager_report args = {.report = {.request_id = report->request_id,
                                                      .response_id = report->response_id,
                                                      .phase = report->phase,
                                                      .cause = report->cause,
                                                      .bytes = (int64_t)report->bytes,
                                                      .sent_packets = (int64_t)report->sent_packets,
                                                      .redundant_packets = (int64_t)report->redundant_packets,
                                                      .patched_packets = (int64_t)report->patched_packets,
                                                      .receivers = {rows, report->receiver_count}}};
    bool good = are_rows(report->receivers, report->receiver_count);
    rs_status status = good ? encode(RS_THRIFT_MANAGER_REPORT, &args, out) : RS_ERR_INVALID;
    free(rows);
    return status;
}

rs_status rs_manager_encode_split(const char *request_id, const rs_object_id *object, const char *const *receivers,
                                  uint32_t receiver_count, const char *const *avoid, uint32_t avoid_count,
                                  const rs_manager_terms *terms, rs_manager_frame *out) {
    const rs_manager_terms none = {.options = "", .stragglers = ""}, *of = terms ? terms : &none;
    if (!is_named(request_id) || receiver_count == 0 || !are_named(receivers, receiver_count) ||
        !are_named(avoid, avoid_count) || of->wait_ms > INT32_MAX || of->deadline_ms > INT32_MAX)
        return RS_ERR_INVALID;
    const rs_thrift_send_terms told = {.options = of->options,
                                       .stragglers = of->stragglers,
                                       .wait_ms = (int32_t)of->wait_ms,
                                       .deadline_ms = (int32_t)of->deadline_ms};
    const rs_thrift_manager_split args = {{.request_id = request_id,
                                           .app_id = {object->app, sizeof object->app},
                                           .data_id = (int64_t)object->data,
                                           .receivers = texts(receivers, receiver_count),
                                           .avoid = texts(avoid, avoid_count),
                                           .terms = terms ? &told : NULL}};
    return encode(RS_THRIFT_MANAGER_SPLIT, &args, out);
}

rs_status rs_manager_encode_relayed(const rs_manager_relay_report *report, rs_manager_frame *out) {
    if (!is_named(report->leg_id) || !is_named(report->origin) || !is_named(report->relay) ||
        !is_named(report->state) || report->bytes > INT64_MAX || report->receiver_count > RS_MANAGER_RECEIVERS_MAX ||
        !are_rows(report->receivers, report->receiver_count))
        return RS_ERR_INVALID;
    rs_thrift_receiver_report *rows = receiver_rows(report->receivers, report->receiver_count);
    if (!rows)
        return RS_ERR_MEMORY;
    const rs_thrift_manager_relayed args = {{.leg_id = report->leg_id,
                                             .origin = report->origin,
                                             .relay = report->relay,
                                             .state = report->state,
                                             .cause = report->cause,
                                             .bytes = (int64_t)report->bytes,
                                             .receivers = {rows, report->receiver_count}}};
    rs_status status = encode(RS_THRIFT_MANAGER_RELAYED, &args, out);
    free(rows);
    return status;
}

rs_status rs_manager_encode_holds(const rs_manager_held *held, uint32_t count, bool reset, rs_manager_frame *out) {
    rs_thrift_held_object rows[RS_MANAGER_HELD_MAX];
    if (count > RS_MANAGER_HELD_MAX)
        return RS_ERR_LIMIT;
    for (uint32_t i = 0; i < count; i++) {
        if (held[i].size > INT64_MAX)
            return RS_ERR_INVALID;
        rows[i] = (rs_thrift_held_object){.app_id = {held[i].id.app, sizeof held[i].id.app},
                                          .data_id = (int64_t)held[i].id.data,
                                          .size = (int64_t)held[i].size,
                                          .digest = held[i].digest,
                                          .name = held[i].name,
                                          .has_gone = held[i].gone,
                                          .gone = held[i].gone};
    }
    const rs_thrift_manager_holds args = {.objects = {rows, count}, .reset = reset};
    return encode(RS_THRIFT_MANAGER_HOLDS, &args, out);
}

rs_status rs_manager_encode_whose(const rs_object_id *id, const char *sender, const char *digest,
                                  rs_manager_frame *out) {
    const rs_thrift_manager_whose args = {
        .app_id = {id->app, sizeof id->app}, .data_id = (int64_t)id->data, .sender = sender, .digest = digest};
    return is_named(sender) ? encode(RS_THRIFT_MANAGER_WHOSE, &args, out) : RS_ERR_INVALID;
}

rs_status rs_manager_encode_fetch(const rs_object_id *id, bool together, rs_manager_frame *out) {
    const rs_thrift_manager_fetch args = {
        {.app_id = {id->app, sizeof id->app}, .data_id = (int64_t)id->data, .together = together}};
    return encode(RS_THRIFT_MANAGER_FETCH, &args, out);
}

rs_status rs_manager_encode_peer_keys(const char *const *servers, uint32_t count, rs_manager_frame *out) {
    const rs_thrift_manager_peer_keys args = {{servers, count}};
    return are_named(servers, count) ? encode(RS_THRIFT_MANAGER_PEER_KEYS, &args, out) : RS_ERR_INVALID;
}

rs_status rs_manager_encode_probe_report(const rs_manager_probe_report *report, rs_manager_frame *out) {
    if (!is_named(report->id) || !is_named(report->phase) || report->mtu > INT32_MAX ||
        report->reached_count > RS_MANAGER_RECEIVERS_MAX)
        return RS_ERR_INVALID;
    rs_thrift_probe_reach *reached = calloc(report->reached_count + 1u, sizeof *reached);
    if (!reached)
        return RS_ERR_MEMORY;
    bool good = true;
    for (uint32_t i = 0; i < report->reached_count; i++) {
        const rs_manager_reached *from = &report->reached[i];
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

rs_status rs_manager_encode_group(rs_manager_group_call call, const char *group,
                                  const rs_manager_group_options *options, const rs_manager_group_view *held,
                                  rs_manager_frame *out) {
    if (!is_named(group) || (options && (!is_named(options->protocol) || !is_named(options->order))))
        return RS_ERR_INVALID;
    if (call == RS_MANAGER_GROUP_LEAVE || call == RS_MANAGER_GROUP_UNUSE) {
        const rs_thrift_manager_leave_group args = {group}; /* unuse_group's are the same */
        return encode(call == RS_MANAGER_GROUP_LEAVE ? RS_THRIFT_MANAGER_LEAVE_GROUP : RS_THRIFT_MANAGER_UNUSE_GROUP,
                      &args, out);
    }
    rs_thrift_group_options given = {0};
    if (options)
        given = (rs_thrift_group_options){options->protocol, options->order, options->options};
    char address[ADDRESS_SIZE];
    rs_thrift_group_use use = {.group = group, .options = options ? &given : NULL};
    if (held) {
        use.has_id = use.has_version = true;
        use.id = (int32_t)held->id;
        use.version = (int64_t)held->version;
        if (held->address_count > 0) /* a group in regions has none of its own */
            use.address = dotted(held->addresses[0], address);
    }
    const rs_thrift_manager_join_group args = {use}; /* use_group's are the same */
    return encode(call == RS_MANAGER_GROUP_JOIN ? RS_THRIFT_MANAGER_JOIN_GROUP : RS_THRIFT_MANAGER_USE_GROUP, &args,
                  out);
}

rs_status rs_manager_encode_group_trouble(const rs_manager_group_trouble *trouble, rs_manager_frame *out) {
    rs_thrift_slow_program slow[RS_MANAGER_TROUBLE_MOST];
    if (!is_named(trouble->group) || trouble->slow_count > RS_MANAGER_TROUBLE_MOST ||
        trouble->silent_count > RS_MANAGER_TROUBLE_MOST)
        return RS_ERR_INVALID;
    for (uint32_t i = 0; i < trouble->slow_count; i++)
        slow[i] = (rs_thrift_slow_program){trouble->slow[i].program, trouble->slow[i].state,
                                           (int64_t)(trouble->slow[i].lost & INT64_MAX)};
    const rs_thrift_manager_group_trouble args = {.trouble = {.group = trouble->group,
                                                              .slow = {slow, trouble->slow_count},
                                                              .silent = {trouble->silent, trouble->silent_count}}};
    return encode(RS_THRIFT_MANAGER_GROUP_TROUBLE, &args, out);
}

/* ---- from the manager ---- */

static bool parse_ipv4(const char *text, uint32_t *out) {
    struct in_addr address;
    if (!text || inet_pton(AF_INET, text, &address) != 1)
        return false;
    *out = ntohl(address.s_addr);
    return true;
}

/* What makes an accepted response unusable; NULL if nothing does. */
static const char *fill_grant(const rs_thrift_path_response *from, rs_manager_response *to) {
    if (!from->has_accepted_size || from->accepted_size < 0)
        return "it has no accepted size";
    if (!from->has_kind || (from->kind != RS_THRIFT_PATH_KIND_CIRCUIT && from->kind != RS_THRIFT_PATH_KIND_PACKET))
        return "it does not say whether the path is a circuit or a packet path";
    if (!parse_ipv4(from->group, &to->group) || !IN_MULTICAST(to->group))
        return "its group is not an IPv4 multicast address";
    if (!from->has_data_port || from->data_port < 1 || from->data_port > UINT16_MAX)
        return "its data port is not in 1 ... 65535";
    if (from->reconfiguration_ns < 0 || from->rate_bps < 0 || from->lease_ms < 0 || from->light_bound_ms < 0)
        return "a time or rate in it is negative";
    to->accepted_size = (uint64_t)from->accepted_size;
    to->kind = from->kind == RS_THRIFT_PATH_KIND_CIRCUIT ? RS_PATH_CIRCUIT : RS_PATH_PACKET;
    to->data_port = (uint16_t)from->data_port;
    to->reconfiguration = from->reconfiguration_ns;
    to->rate_bps = from->rate_bps;
    to->lease = (rs_time)from->lease_ms * 1000000;
    to->light_bound = (rs_time)from->light_bound_ms * 1000000;
    to->protocol =
        from->has_protocol ? (rs_protocol)(from->protocol - RS_THRIFT_PROTOCOL_REPUBLIC) : RS_PROTOCOL_REPUBLIC;
    if (!rs_engine_name((uint32_t)to->protocol))
        return "its protocol is one that this agent has no engine for";
    return NULL;
}

/* Addresses of servers; NULL: out of memory, or *wrong says what is wrong with one of them. */
static rs_manager_server *servers_of(const rs_thrift_list *from, const char **wrong) {
    const rs_thrift_server_address *servers = from->items;
    rs_manager_server *made = calloc(from->count + 1u, sizeof *made);
    *wrong = made ? NULL : "out of memory";
    for (uint32_t i = 0; i < from->count && !*wrong; i++) {
        if (!servers[i].server[0] || !parse_ipv4(servers[i].address, &made[i].address))
            *wrong = "a receiver's address is not IPv4";
        else if (servers[i].control_port < 1 || servers[i].control_port > UINT16_MAX)
            *wrong = "a receiver's control port is not in 1 ... 65535";
        made[i].server = servers[i].server;
        made[i].control_port = (uint16_t)servers[i].control_port;
        made[i].rack = servers[i].has_rack && servers[i].rack > 0 ? (uint32_t)servers[i].rack : 0;
    }
    return made;
}

static void deliver_response(const rs_thrift_path_response *from, rs_manager_deliver_fn *deliver, void *context) {
    rs_manager_message message = {.call = RS_THRIFT_AGENT_RESPONSE};
    rs_manager_response *to = &message.response;
    char reason[160];
    const char *wrong = NULL, *wrong_server;
    rs_manager_server *receivers = servers_of(&from->receivers, &wrong_server);
    to->request_id = from->request_id;
    to->response_id = from->response_id;
    to->reason = from->reason;
    switch (from->decision) {
    case RS_THRIFT_DECISION_ACCEPTED:
        to->decision = RS_MANAGER_ACCEPTED;
        wrong = fill_grant(from, to);
        wrong = wrong ? wrong : wrong_server;
        to->receivers = receivers;
        to->receiver_count = from->receivers.count;
        to->dark = from->dark.items;
        to->dark_count = from->dark.count;
        to->own_rack = from->has_sender_rack && from->sender_rack > 0 ? (uint32_t)from->sender_rack : 0;
        to->tree_links = from->has_tree_links && from->tree_links > 0 ? (uint32_t)from->tree_links : 0;
        to->path_links = from->has_path_links && from->path_links > 0 ? (uint32_t)from->path_links : 0;
        break;
    case RS_THRIFT_DECISION_QUEUED:
        to->decision = RS_MANAGER_QUEUED;
        break;
    case RS_THRIFT_DECISION_DENIED:
        to->decision = RS_MANAGER_DENIED;
        break;
    default:
        wrong = "its decision is none of ACCEPTED, DENIED, QUEUED";
    }
    if (wrong) {
        snprintf(reason, sizeof reason, "the manager's response cannot be used: %s", wrong);
        *to = (rs_manager_response){.request_id = from->request_id, .response_id = from->response_id};
        to->decision = RS_MANAGER_DENIED;
        to->reason = reason;
        message.unusable = true;
    }
    deliver(context, &message);
    free(receivers);
}

/* An order that makes no sense is not carried out; the manager hears nothing of it, and says so to whoever asked. */
static void deliver_probe(const rs_thrift_probe_order *from, rs_manager_deliver_fn *deliver, void *context) {
    const char *wrong;
    rs_manager_server *servers = servers_of(&from->servers, &wrong);
    rs_manager_message message = {.call = RS_THRIFT_AGENT_PROBE};
    bool packets = from->kind == RS_THRIFT_PROBE_KIND_LISTEN || from->kind == RS_THRIFT_PROBE_KIND_SEND;
    bool good = !wrong && from->probe_id[0] && from->time_ms >= 1 && from->time_ms <= 60000;
    message.probe = (rs_manager_probe){.id = from->probe_id,
                                       .kind = (rs_manager_probe_kind)from->kind,
                                       .time = (rs_time)from->time_ms * 1000000,
                                       .servers = servers,
                                       .server_count = from->servers.count};
    if (good && packets) {
        good = parse_ipv4(from->group, &message.probe.group) && IN_MULTICAST(message.probe.group) && from->port >= 1 &&
               from->port <= UINT16_MAX && from->packets >= 1 && from->packets <= 100 && from->mtu >= 576 &&
               from->mtu <= UINT16_MAX;
        message.probe.port = (uint16_t)from->port;
        message.probe.packets = (uint32_t)from->packets;
        message.probe.mtu = (uint32_t)from->mtu;
    }
    if (good)
        deliver(context, &message);
    free(servers);
}

/* A view of an object that is none is not used: the manager hears no view_used. */
static void deliver_view(const rs_thrift_overlay_view *from, rs_manager_deliver_fn *deliver, void *context) {
    rs_manager_message message = {.call = RS_THRIFT_AGENT_VIEW};
    rs_manager_view *to = &message.view;
    const char *wrong;
    rs_manager_server *servers = servers_of(&from->addresses, &wrong);
    *to = (rs_manager_view){.response_id = from->response_id,
                            .version = (uint64_t)from->version,
                            .object.data = (uint64_t)from->data_id,
                            .sender = from->sender,
                            .leaf = {from->leaf_predecessor, from->leaf_successor, from->leaf_parent},
                            .proxy = {from->proxy_predecessor, from->proxy_successor, from->proxy_parent},
                            .children = from->children.items,
                            .child_count = from->children.count,
                            .servers = servers,
                            .server_count = from->addresses.count};
    bool good = !wrong && from->version >= 0 && parse_ipv4(from->group, &to->group) &&
                from->app_id.length == sizeof to->object.app && from->response_id[0];
    if (good) {
        memcpy(to->object.app, from->app_id.bytes, sizeof to->object.app);
        deliver(context, &message);
    }
    free(servers);
}

/* The addresses of the group's channels, NULL: out of memory, or one of them is no group's. */
static uint32_t *addresses_of(const rs_thrift_group_facts *facts) {
    const char *const *more = facts->more_addresses.items;
    uint32_t *made = calloc(facts->more_addresses.count + 1u, sizeof *made);
    bool good = made && parse_ipv4(facts->address, &made[0]) && IN_MULTICAST(made[0]);
    for (uint32_t i = 0; i < facts->more_addresses.count && good; i++)
        good = parse_ipv4(more[i], &made[i + 1]) && IN_MULTICAST(made[i + 1]);
    if (!good)
        free(made);
    return good ? made : NULL;
}

/* False: a view nobody could use. `to->addresses` is the caller's to free. */
static bool fill_group_view(const rs_thrift_group_view *from, rs_manager_group_view *to) {
    const rs_thrift_group_facts *facts = from->facts;
    *to = (rs_manager_group_view){.id = (uint32_t)from->id,
                                  .version = (uint64_t)from->version,
                                  .full = !from->has_base_version,
                                  .base_version = (uint64_t)from->base_version,
                                  .members = from->members.items,
                                  .member_count = from->members.count,
                                  .senders = from->senders.items,
                                  .sender_count = from->senders.count,
                                  .gone = from->gone.items,
                                  .gone_count = from->gone.count,
                                  .says_listens = from->has_listens,
                                  .listens = from->listens.items,
                                  .listen_count = from->listens.count,
                                  .rejoined = from->has_rejoined && from->rejoined};
    if (from->id < 0 || from->version < 1 || (to->full ? !facts : from->base_version < 1))
        return false;
    if (!facts)
        return true;
    const rs_thrift_group_options *options = &facts->options;
    to->group = facts->group;
    to->port = (uint16_t)facts->data_port;
    to->options = (rs_manager_group_options){options->protocol, options->order, options->options};
    if (!facts->group[0] || facts->data_port < 1 || facts->data_port > UINT16_MAX)
        return false;
    to->in_regions = facts->has_regions;
    to->regions = facts->regions.items;
    to->region_count = facts->regions.count;
    if (facts->has_regions)
        return true;
    to->addresses = addresses_of(facts);
    to->address_count = facts->more_addresses.count + 1;
    return to->addresses != NULL;
}

static bool fill_region(const rs_thrift_group_region *from, rs_manager_group_region *to) {
    *to = (rs_manager_group_region){.region = (uint32_t)from->region,
                                    .version = (uint64_t)from->version,
                                    .full = !from->has_base_version,
                                    .base_version = (uint64_t)from->base_version,
                                    .port = (uint16_t)from->data_port,
                                    .protocol = from->protocol,
                                    .options = from->options,
                                    .nodes = from->nodes.items,
                                    .node_count = from->nodes.count,
                                    .gone = from->gone.items,
                                    .gone_count = from->gone.count};
    if (from->region < 1 || from->version < 1 || from->data_port < 1 || from->data_port > UINT16_MAX ||
        !from->protocol[0])
        return false;
    return !from->address || (parse_ipv4(from->address, &to->address) && IN_MULTICAST(to->address));
}

/* Those that are peers; NULL: out of memory. */
static rs_manager_group_peer *peers_of(const rs_thrift_list *list, uint32_t *count) {
    const rs_thrift_group_peer *from = list->items;
    rs_manager_group_peer *peers = calloc(list->count + 1u, sizeof *peers);
    *count = 0;
    for (uint32_t i = 0; peers && i < list->count; i++) {
        rs_manager_group_peer *to = &peers[*count];
        *to = (rs_manager_group_peer){.id = from[i].id,
                                      .server = from[i].server,
                                      .port = (uint16_t)from[i].port,
                                      .boot_id = (uint64_t)from[i].boot_id};
        *count += from[i].id >= 0 && from[i].server[0] && parse_ipv4(from[i].address, &to->address) &&
                  from[i].port >= 1 && from[i].port <= UINT16_MAX;
    }
    return peers;
}

static void deliver_regions(const rs_thrift_agent_group_regions *args, rs_manager_deliver_fn *deliver, void *context) {
    const rs_thrift_group_region *each = args->regions.items;
    uint32_t peer_count;
    rs_manager_group_peer *peers = peers_of(&args->peers, &peer_count);
    rs_manager_group_region *regions = calloc(args->regions.count + 1u, sizeof *regions);
    rs_manager_message message = {
        .call = RS_THRIFT_AGENT_GROUP_REGIONS, .group_peers = peers, .group_regions = regions};
    message.group_peer_count = peer_count;
    for (uint32_t i = 0; peers && regions && i < args->regions.count; i++)
        message.group_region_count += fill_region(&each[i], &regions[message.group_region_count]);
    deliver(context, &message);
    free(peers);
    free(regions);
}

/* What is no peer or no view is left out: the manager is asked again for what is missing then. */
static void deliver_group_view(const rs_thrift_agent_group_view *args, rs_manager_deliver_fn *deliver, void *context) {
    const rs_thrift_group_view *each = args->views.items;
    uint32_t peer_count;
    rs_manager_group_peer *peers = peers_of(&args->peers, &peer_count);
    rs_manager_group_view *views = calloc(args->views.count + 1u, sizeof *views);
    rs_manager_message message = {.call = RS_THRIFT_AGENT_GROUP_VIEW, .group_peers = peers, .group_views = views};
    message.group_peer_count = peer_count;
    for (uint32_t i = 0; peers && views && i < args->views.count; i++)
        message.group_view_count += fill_group_view(&each[i], &views[message.group_view_count]);
    deliver(context, &message);
    for (uint32_t i = 0; i < message.group_view_count; i++)
        free((void *)(uintptr_t)views[i].addresses);
    free(peers);
    free(views);
}

/* Legs as the agent takes them, of `count`; both arrays are the caller's to free. */
typedef struct {
    rs_manager_leg *legs;
    rs_manager_server *relays;
    uint32_t count;
} legs_read;

/* Of the legs one that cannot be used makes all of them useless: why, or NULL. */
static const char *read_legs(const rs_thrift_list *from, legs_read *to) {
    const rs_thrift_leg *legs = from->items;
    to->legs = calloc(from->count + 1u, sizeof *to->legs);
    to->relays = calloc(from->count + 1u, sizeof *to->relays);
    if (!to->legs || !to->relays)
        return "out of memory";
    for (uint32_t i = 0; i < from->count; i++) {
        const rs_thrift_server_address *relay = legs[i].relay;
        to->legs[i] = (rs_manager_leg){.leg_id = legs[i].leg_id,
                                       .site = legs[i].site,
                                       .receivers = legs[i].receivers.items,
                                       .receiver_count = legs[i].receivers.count,
                                       .relay_dials = legs[i].relay_dials,
                                       .reason = legs[i].reason};
        if (!legs[i].leg_id[0] || legs[i].receivers.count == 0 ||
            !are_named(legs[i].receivers.items, legs[i].receivers.count))
            return "a leg has no id, or is for nobody";
        if (!relay)
            continue;
        to->relays[i] = (rs_manager_server){.server = relay->server, .control_port = (uint16_t)relay->control_port};
        to->legs[i].relay = &to->relays[i];
        if (!relay->server[0] || !parse_ipv4(relay->address, &to->relays[i].address) || relay->control_port < 1 ||
            relay->control_port > UINT16_MAX)
            return "a relay's name, address or port is none";
    }
    to->count = from->count;
    return NULL;
}

static void free_legs(legs_read *read) {
    free(read->legs);
    free(read->relays);
}

static void deliver_legs(const rs_thrift_split_answer *from, rs_manager_deliver_fn *deliver, void *context) {
    rs_manager_message message = {.call = RS_THRIFT_AGENT_LEGS};
    legs_read read = {0};
    const char *wrong = read_legs(&from->legs, &read);
    char reason[160];
    message.legs = (rs_manager_split_answer){.request_id = from->request_id,
                                             .legs = read.legs,
                                             .leg_count = read.count,
                                             .ever = from->ever,
                                             .with_terms = from->has_with_terms && from->with_terms,
                                             .reason = from->reason};
    if (wrong) {
        snprintf(reason, sizeof reason, "the manager's legs cannot be used: %s", wrong);
        message.legs.ever = true;
        message.legs.reason = reason;
    }
    deliver(context, &message);
    free_legs(&read);
}

/* What makes no sense is not done: the sender hears nothing of that relay, and asks for another one. */
static void deliver_relay(const rs_thrift_relay_order *from, rs_manager_deliver_fn *deliver, void *context) {
    rs_manager_message message = {.call = RS_THRIFT_AGENT_RELAY};
    rs_manager_relay_order *to = &message.relay;
    const rs_thrift_send_terms *terms = from->terms;
    rs_manager_terms asked;
    legs_read onward = {0};
    *to = (rs_manager_relay_order){
        .leg_id = from->leg_id,
        .object.data = (uint64_t)from->data_id,
        .origin = {.server = from->origin.server, .control_port = (uint16_t)from->origin.control_port},
        .receivers = from->receivers.items,
        .receiver_count = from->receivers.count,
        .dials = from->dials,
        .keeps = from->keeps};
    bool good = from->leg_id[0] && from->app_id.length == sizeof to->object.app && from->origin.server[0] &&
                parse_ipv4(from->origin.address, &to->origin.address) && from->origin.control_port >= 1 &&
                from->origin.control_port <= UINT16_MAX && are_named(from->receivers.items, from->receivers.count) &&
                (to->origin.address || !from->dials) && (!terms || (terms->wait_ms >= 0 && terms->deadline_ms >= 0));
    if (!good)
        return;
    if (terms) {
        asked = (rs_manager_terms){.options = terms->options,
                                   .stragglers = terms->stragglers,
                                   .wait_ms = (uint32_t)terms->wait_ms,
                                   .deadline_ms = (uint32_t)terms->deadline_ms};
        to->terms = &asked;
    }
    if (from->has_onward && read_legs(&from->onward, &onward) == NULL) {
        to->onward = onward.legs;
        to->onward_count = onward.count;
    }
    memcpy(to->object.app, from->app_id.bytes, sizeof to->object.app);
    deliver(context, &message);
    free_legs(&onward);
}

static void deliver_relayed(const rs_thrift_relay_report *from, rs_manager_deliver_fn *deliver, void *context) {
    rs_manager_message message = {.call = RS_THRIFT_AGENT_RELAYED};
    const rs_thrift_receiver_report *rows = from->receivers.items;
    rs_manager_receiver_report *made = calloc(from->receivers.count + 1u, sizeof *made);
    bool good = made && from->bytes >= 0;
    for (uint32_t i = 0; good && i < from->receivers.count; i++) {
        good = rows[i].initial_sn >= 0 && rows[i].patched_fragments >= 0;
        made[i] = (rs_manager_receiver_report){.server = rows[i].server,
                                               .state = rows[i].state,
                                               .cause = rows[i].cause,
                                               .initial_sn = (uint64_t)rows[i].initial_sn,
                                               .patched_fragments = (uint64_t)rows[i].patched_fragments,
                                               .first_light_ns = rows[i].first_light_ns,
                                               .complete_ns = rows[i].complete_ns};
    }
    message.relayed = (rs_manager_relay_report){.leg_id = from->leg_id,
                                                .origin = from->origin,
                                                .relay = from->relay,
                                                .state = from->state,
                                                .cause = from->cause,
                                                .bytes = (uint64_t)from->bytes,
                                                .receivers = made,
                                                .receiver_count = from->receivers.count};
    if (good)
        deliver(context, &message);
    free(made);
}

static void deliver_origin(const rs_thrift_object_origin *from, rs_manager_deliver_fn *deliver, void *context) {
    rs_manager_message message = {.call = RS_THRIFT_AGENT_ORIGIN};
    rs_manager_origin *to = &message.origin;
    *to = (rs_manager_origin){{.data = (uint64_t)from->data_id}, from->sender, from->origin, from->digest, from->asked};
    if (from->app_id.length != sizeof to->id.app || !is_named(from->sender) || !is_named(from->origin))
        return;
    memcpy(to->id.app, from->app_id.bytes, sizeof to->id.app);
    deliver(context, &message);
}

/* Holders that cannot be used are left out. */
static void deliver_holders(const rs_thrift_fetch_answer *from, rs_manager_deliver_fn *deliver, void *context) {
    rs_manager_message message = {.call = RS_THRIFT_AGENT_HOLDERS};
    rs_manager_holders *to = &message.holders;
    const rs_thrift_holder *each = from->holders.items;
    rs_manager_server made[RS_MANAGER_HOLDERS_MAX];
    *to = (rs_manager_holders){.id.data = (uint64_t)from->data_id,
                               .holders = made,
                               .sent_within = from->sent_within_ms > 0 ? from->sent_within_ms * (rs_time)1000000 : 0,
                               .reason = from->reason};
    if (from->app_id.length != sizeof to->id.app)
        return;
    memcpy(to->id.app, from->app_id.bytes, sizeof to->id.app);
    for (uint32_t i = 0; i < from->holders.count && to->holder_count < RS_MANAGER_HOLDERS_MAX; i++) {
        rs_manager_server *one = &made[to->holder_count];
        *one = (rs_manager_server){.server = each[i].server, .control_port = (uint16_t)each[i].piece_port};
        to->holder_count += each[i].server[0] && parse_ipv4(each[i].address, &one->address) && one->address &&
                            each[i].piece_port >= 1 && each[i].piece_port <= UINT16_MAX;
    }
    deliver(context, &message);
}

static void deliver_serve(const rs_thrift_serve_order *from, rs_manager_deliver_fn *deliver, void *context) {
    rs_manager_message message = {.call = RS_THRIFT_AGENT_SERVE};
    rs_manager_serve *to = &message.serve;
    *to = (rs_manager_serve){.id.data = (uint64_t)from->data_id,
                             .receivers = from->receivers.items,
                             .receiver_count = from->receivers.count};
    if (from->app_id.length != sizeof to->id.app || from->receivers.count == 0 ||
        !are_named(from->receivers.items, from->receivers.count))
        return;
    memcpy(to->id.app, from->app_id.bytes, sizeof to->id.app);
    deliver(context, &message);
}

/* Purposes that are not known here are passed over. */
static bool key_is_good(const rs_thrift_seal_key *key) {
    bool peer = key->purpose == RS_MANAGER_KEY_PEER;
    if (key->epoch < 1 || key->epoch > UINT16_MAX || key->key.length != sizeof((rs_manager_key *)0)->key ||
        key->transmitter < 0 || key->transmitter > UINT32_MAX || key->in_ms < 0 || key->id < 0 || key->id > UINT32_MAX)
        return false;
    if (key->has_signer && key->signer.length != sizeof((rs_manager_key *)0)->signer)
        return false;
    return peer ? key->server && is_named(key->server)
                : key->purpose >= RS_MANAGER_KEY_SELF && key->purpose < RS_MANAGER_KEY_PEER &&
                      key->transmitter % 256 == 0;
}

static void deliver_keys(const rs_thrift_agent_keys *args, rs_manager_deliver_fn *deliver, void *context) {
    rs_manager_key *keys = calloc(args->keys.count + 1u, sizeof *keys);
    rs_manager_message message = {.call = RS_THRIFT_AGENT_KEYS, .id = "", .reason = "", .keys = keys};
    if (!keys)
        return;
    for (uint32_t i = 0; i < args->keys.count; i++) {
        const rs_thrift_seal_key *from = (const rs_thrift_seal_key *)args->keys.items + i;
        if (!key_is_good(from))
            continue;
        rs_manager_key *to = &keys[message.key_count++];
        to->purpose = (rs_manager_key_purpose)from->purpose;
        to->id = (uint32_t)from->id;
        to->server = to->purpose == RS_MANAGER_KEY_PEER ? from->server : NULL;
        to->epoch = (uint16_t)from->epoch;
        memcpy(to->key, from->key.bytes, sizeof to->key);
        to->transmitter = (uint32_t)from->transmitter;
        to->in = from->in_ms * (rs_time)1000000;
        to->signs = to->purpose == RS_MANAGER_KEY_PEER && from->has_signer;
        if (to->signs)
            memcpy(to->signer, from->signer.bytes, sizeof to->signer);
    }
    deliver(context, &message);
    explicit_bzero(keys, args->keys.count * sizeof *keys);
    free(keys);
}

static void deliver_call(uint32_t call, const void *args, rs_manager_deliver_fn *deliver, void *context) {
    rs_manager_message message = {.call = call, .id = "", .reason = ""};
    switch (call) {
    case RS_THRIFT_AGENT_WELCOME:
        message.id = ((const rs_thrift_agent_welcome *)args)->manager;
        message.manager_boot = ((const rs_thrift_agent_welcome *)args)->manager_boot_id;
        break;
    case RS_THRIFT_AGENT_GOODBYE:
        message.reason = ((const rs_thrift_agent_goodbye *)args)->reason;
        break;
    case RS_THRIFT_AGENT_RESPONSE:
        deliver_response(&((const rs_thrift_agent_response *)args)->response, deliver, context);
        return;
    case RS_THRIFT_AGENT_MOVED: {
        const rs_thrift_agent_moved *moved = args;
        message.id = moved->response_id;
        message.kind = moved->kind == RS_THRIFT_PATH_KIND_CIRCUIT ? RS_PATH_CIRCUIT : RS_PATH_PACKET;
        message.reason = moved->reason;
        break;
    }
    case RS_THRIFT_AGENT_FAILED:
        message.id = ((const rs_thrift_agent_failed *)args)->response_id;
        message.reason = ((const rs_thrift_agent_failed *)args)->reason;
        break;
    case RS_THRIFT_AGENT_LIGHT:
        message.id = ((const rs_thrift_agent_light *)args)->response_id;
        break;
    case RS_THRIFT_AGENT_PROBE:
        deliver_probe(&((const rs_thrift_agent_probe *)args)->order, deliver, context);
        return;
    case RS_THRIFT_AGENT_VIEW:
        deliver_view(&((const rs_thrift_agent_view *)args)->view, deliver, context);
        return;
    case RS_THRIFT_AGENT_GROUP_VIEW:
        deliver_group_view(args, deliver, context);
        return;
    case RS_THRIFT_AGENT_SITE:
        message.id = ((const rs_thrift_agent_site *)args)->site;
        break;
    case RS_THRIFT_AGENT_LEGS:
        deliver_legs(&((const rs_thrift_agent_legs *)args)->answer, deliver, context);
        return;
    case RS_THRIFT_AGENT_RELAY:
        deliver_relay(&((const rs_thrift_agent_relay *)args)->order, deliver, context);
        return;
    case RS_THRIFT_AGENT_RELAYED:
        deliver_relayed(&((const rs_thrift_agent_relayed *)args)->report, deliver, context);
        return;
    case RS_THRIFT_AGENT_ORIGIN:
        deliver_origin(&((const rs_thrift_agent_origin *)args)->origin, deliver, context);
        return;
    case RS_THRIFT_AGENT_HOLDERS:
        deliver_holders(&((const rs_thrift_agent_holders *)args)->answer, deliver, context);
        return;
    case RS_THRIFT_AGENT_SERVE:
        deliver_serve(&((const rs_thrift_agent_serve *)args)->order, deliver, context);
        return;
    case RS_THRIFT_AGENT_KEYS:
        deliver_keys(args, deliver, context);
        return;
    case RS_THRIFT_AGENT_GROUP_REGIONS:
        deliver_regions(args, deliver, context);
        return;
    case RS_THRIFT_AGENT_GROUP_REFUSED:
        message.id = ((const rs_thrift_agent_group_refused *)args)->group;
        message.reason = ((const rs_thrift_agent_group_refused *)args)->reason;
        break;
    default: /* alive; what a newer manager says */
        break;
    }
    deliver(context, &message);
}

bool rs_manager_decode(const uint8_t *frame, size_t length, rs_manager_deliver_fn *deliver, void *context,
                       char *message, size_t text_size) {
    rs_thrift_call call;
    char text[RS_THRIFT_TEXT_SIZE];
    if (!rs_thrift_decode(&rs_thrift_service_agent, frame, length, &call, text)) {
        snprintf(message, text_size, "%s", text);
        return false;
    }
    deliver_call(call.call, call.args, deliver, context);
    rs_thrift_call_free(&call);
    return true;
}
