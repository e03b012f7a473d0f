#include "daemon/manager/codec.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "thrift_schema.h"

static bool parse_ipv4(const char *text, uint32_t *out) {
    struct in_addr address;
    if (!text || inet_pton(AF_INET, text, &address) != 1)
        return false;
    *out = ntohl(address.s_addr);
    return true;
}

/* What makes an accepted response unusable; NULL if nothing does. */
static const char *fill_grant(const rs_thrift_path_response *from, rs_link_response *to) {
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
    bool rdcm = from->has_protocol && from->protocol == RS_THRIFT_PROTOCOL_RDCM;
    to->protocol = rdcm ? RS_PROTOCOL_RDCM : RS_PROTOCOL_REPUBLIC;
    return NULL;
}

/* Addresses of servers; NULL: memory is short, or *wrong says what is wrong with one of them. */
static rs_link_server *servers_of(const rs_thrift_list *from, const char **wrong) {
    const rs_thrift_server_address *servers = from->items;
    rs_link_server *made = calloc(from->count + 1u, sizeof *made);
    *wrong = made ? NULL : "memory is short";
    for (uint32_t i = 0; i < from->count && !*wrong; i++) {
        if (!servers[i].server[0] || !parse_ipv4(servers[i].address, &made[i].address))
            *wrong = "a receiver's address is not IPv4";
        else if (servers[i].control_port < 1 || servers[i].control_port > UINT16_MAX)
            *wrong = "a receiver's control port is not in 1 ... 65535";
        made[i].server = servers[i].server;
        made[i].control_port = (uint16_t)servers[i].control_port;
    }
    return made;
}

static void deliver_response(const rs_thrift_path_response *from, rs_link_deliver_fn *deliver, void *context) {
    rs_link_message message = {.call = RS_THRIFT_AGENT_RESPONSE};
    rs_link_response *to = &message.response;
    char reason[160];
    const char *wrong = NULL, *wrong_server;
    rs_link_server *receivers = servers_of(&from->receivers, &wrong_server);
    to->request_id = from->request_id;
    to->response_id = from->response_id;
    to->reason = from->reason;
    switch (from->decision) {
    case RS_THRIFT_DECISION_ACCEPTED:
        to->decision = RS_LINK_ACCEPTED;
        wrong = fill_grant(from, to);
        wrong = wrong ? wrong : wrong_server;
        to->receivers = receivers;
        to->receiver_count = from->receivers.count;
        to->dark = from->dark.items;
        to->dark_count = from->dark.count;
        break;
    case RS_THRIFT_DECISION_QUEUED:
        to->decision = RS_LINK_QUEUED;
        break;
    case RS_THRIFT_DECISION_DENIED:
        to->decision = RS_LINK_DENIED;
        break;
    default:
        wrong = "its decision is none of ACCEPTED, DENIED, QUEUED";
    }
    if (wrong) {
        snprintf(reason, sizeof reason, "the manager's response cannot be used: %s", wrong);
        *to = (rs_link_response){.request_id = from->request_id, .response_id = from->response_id};
        to->decision = RS_LINK_DENIED;
        to->reason = reason;
        message.unusable = true;
    }
    deliver(context, &message);
    free(receivers);
}

/* An order that makes no sense is not carried out; the manager hears nothing of it, and says so to whoever asked. */
static void deliver_probe(const rs_thrift_probe_order *from, rs_link_deliver_fn *deliver, void *context) {
    const char *wrong;
    rs_link_server *servers = servers_of(&from->servers, &wrong);
    rs_link_message message = {.call = RS_THRIFT_AGENT_PROBE};
    bool packets = from->kind == RS_THRIFT_PROBE_KIND_LISTEN || from->kind == RS_THRIFT_PROBE_KIND_SEND;
    bool good = !wrong && from->probe_id[0] && from->time_ms >= 1 && from->time_ms <= 60000;
    message.probe = (rs_link_probe){.id = from->probe_id,
                                    .kind = (rs_link_probe_kind)from->kind,
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
static void deliver_view(const rs_thrift_overlay_view *from, rs_link_deliver_fn *deliver, void *context) {
    rs_link_message message = {.call = RS_THRIFT_AGENT_VIEW};
    rs_link_view *to = &message.view;
    const char *wrong;
    rs_link_server *servers = servers_of(&from->addresses, &wrong);
    *to = (rs_link_view){.response_id = from->response_id,
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

/* False: a view nobody could use. */
static bool fill_group_view(const rs_thrift_group_view *from, rs_link_group_view *to) {
    const rs_thrift_group_facts *facts = from->facts;
    *to = (rs_link_group_view){.id = (uint32_t)from->id,
                               .version = (uint64_t)from->version,
                               .full = !from->has_base_version,
                               .base_version = (uint64_t)from->base_version,
                               .members = from->members.items,
                               .member_count = from->members.count,
                               .senders = from->senders.items,
                               .sender_count = from->senders.count,
                               .gone = from->gone.items,
                               .gone_count = from->gone.count};
    if (from->id < 0 || from->version < 1 || (to->full ? !facts : from->base_version < 1))
        return false;
    if (!facts)
        return true;
    const rs_thrift_group_options *options = &facts->options;
    to->group = facts->group;
    to->port = (uint16_t)facts->data_port;
    to->options = (rs_link_group_options){options->protocol, options->order, (uint32_t)options->r, (uint32_t)options->c,
                                          (uint32_t)options->stagger};
    return facts->group[0] && parse_ipv4(facts->address, &to->address) && IN_MULTICAST(to->address) &&
           facts->data_port >= 1 && facts->data_port <= UINT16_MAX && options->r >= 0 && options->c >= 0 &&
           options->stagger >= 0;
}

/* What is no peer or no view is left out: the manager is asked again for what is missing then. */
static void deliver_group_view(const rs_thrift_agent_group_view *args, rs_link_deliver_fn *deliver, void *context) {
    const rs_thrift_group_peer *from = args->peers.items;
    const rs_thrift_group_view *each = args->views.items;
    rs_link_group_peer *peers = calloc(args->peers.count + 1u, sizeof *peers);
    rs_link_group_view *views = calloc(args->views.count + 1u, sizeof *views);
    rs_link_message message = {.call = RS_THRIFT_AGENT_GROUP_VIEW, .group_peers = peers, .group_views = views};
    for (uint32_t i = 0; peers && views && i < args->peers.count; i++) {
        rs_link_group_peer *to = &peers[message.group_peer_count];
        *to = (rs_link_group_peer){.id = from[i].id,
                                   .server = from[i].server,
                                   .port = (uint16_t)from[i].port,
                                   .boot_id = (uint64_t)from[i].boot_id};
        message.group_peer_count += from[i].id >= 0 && from[i].server[0] && parse_ipv4(from[i].address, &to->address) &&
                                    from[i].port >= 1 && from[i].port <= UINT16_MAX;
    }
    for (uint32_t i = 0; peers && views && i < args->views.count; i++)
        message.group_view_count += fill_group_view(&each[i], &views[message.group_view_count]);
    deliver(context, &message);
    free(peers);
    free(views);
}

static void deliver_call(uint32_t call, const void *args, rs_link_deliver_fn *deliver, void *context) {
    rs_link_message message = {.call = call, .id = "", .reason = ""};
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
    case RS_THRIFT_AGENT_GROUP_REFUSED:
        message.id = ((const rs_thrift_agent_group_refused *)args)->group;
        message.reason = ((const rs_thrift_agent_group_refused *)args)->reason;
        break;
    default: /* alive; what a newer manager says */
        break;
    }
    deliver(context, &message);
}

bool rs_link_decode(const uint8_t *frame, size_t length, rs_link_deliver_fn *deliver, void *context, char *words,
                    size_t words_size) {
    rs_thrift_call call;
    char text[RS_THRIFT_TEXT_SIZE];
    if (!rs_thrift_decode(&rs_thrift_service_agent, frame, length, &call, text)) {
        snprintf(words, words_size, "%s", text);
        return false;
    }
    deliver_call(call.call, call.args, deliver, context);
    rs_thrift_call_free(&call);
    return true;
}
