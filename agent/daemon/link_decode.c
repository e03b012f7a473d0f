#include "daemon/link_codec.h"
#include "daemon/link_gobject.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thrift/c_glib/protocol/thrift_binary_protocol.h>
#include <thrift/c_glib/transport/thrift_memory_buffer.h>

#include "rostrum_agent.h"

/* The library's memory buffer moves all that is left at each read, which makes a long frame of small fields quadratic.
 * This one is the same but for reading from memory that stays where it is. */
typedef struct {
    ThriftMemoryBuffer parent;
    const uint8_t *at;
    size_t left;
} span;

typedef struct {
    ThriftMemoryBufferClass parent;
} span_class;

static gint32 span_read(ThriftTransport *transport, gpointer out, guint32 length, GError **error) {
    (void)error;
    span *s = (span *)transport;
    guint32 give = length < s->left ? length : (guint32)s->left;
    if (give > 0)
        memcpy(out, s->at, give);
    s->at += give;
    s->left -= give;
    return (gint32)give;
}

static gint32 span_read_all(ThriftTransport *transport, gpointer out, guint32 length, GError **error) {
    span *s = (span *)transport;
    if (s->left < length) {
        g_set_error(error, THRIFT_TRANSPORT_ERROR, THRIFT_TRANSPORT_ERROR_RECEIVE, "frame ends early");
        return -1;
    }
    return span_read(transport, out, length, error);
}

static void span_class_init(gpointer class, gpointer data) {
    (void)data;
    ThriftTransportClass *transport = class;
    transport->read = span_read;
    transport->read_all = span_read_all;
}

static GType span_type(void) {
    static GType type;
    if (type == 0) {
        rs_link_gobject_repair();
        type = g_type_register_static_simple(THRIFT_TYPE_MEMORY_BUFFER, "rsLinkSpan", sizeof(span_class),
                                             span_class_init, sizeof(span), NULL, (GTypeFlags)0);
        rs_link_gobject_repair_class(type);
    }
    return type;
}

static bool parse_ipv4(const char *text, uint32_t *out) {
    struct in_addr address;
    if (!text || inet_pton(AF_INET, text, &address) != 1)
        return false;
    *out = ntohl(address.s_addr);
    return true;
}

/* What makes an accepted response unusable; NULL if nothing does. */
static const char *fill_grant(const rostrumPathResponse *from, rs_link_response *to) {
    if (!from->__isset_accepted_size || from->accepted_size < 0)
        return "it has no accepted size";
    if (!from->__isset_kind || (from->kind != ROSTRUM_PATH_KIND_CIRCUIT && from->kind != ROSTRUM_PATH_KIND_PACKET))
        return "it does not say whether the path is a circuit or a packet path";
    if (!from->__isset_group || !parse_ipv4(from->group, &to->group) || !IN_MULTICAST(to->group))
        return "its group is not an IPv4 multicast address";
    if (!from->__isset_data_port || from->data_port < 1 || from->data_port > UINT16_MAX)
        return "its data port is not in 1 ... 65535";
    if (from->reconfiguration_ns < 0 || from->rate_bps < 0 || from->lease_ms < 0 || from->light_bound_ms < 0)
        return "a time or rate in it is negative";
    to->accepted_size = (uint64_t)from->accepted_size;
    to->kind = from->kind == ROSTRUM_PATH_KIND_CIRCUIT ? RS_PATH_CIRCUIT : RS_PATH_PACKET;
    to->data_port = (uint16_t)from->data_port;
    to->reconfiguration = from->reconfiguration_ns;
    to->rate_bps = from->rate_bps;
    to->lease = (rs_time)from->lease_ms * 1000000;
    to->light_bound = (rs_time)from->light_bound_ms * 1000000;
    bool rdcm = from->__isset_protocol && from->protocol == ROSTRUM_PROTOCOL_RDCM;
    to->protocol = rdcm ? RS_PROTOCOL_RDCM : RS_PROTOCOL_REPUBLIC;
    return NULL;
}

static const char *fill_receivers(const GPtrArray *from, rs_link_server *to) {
    for (guint i = 0; i < from->len; i++) {
        const rostrumServerAddress *server = g_ptr_array_index(from, i);
        if (!server->server[0] || !parse_ipv4(server->address, &to[i].address))
            return "a receiver's address is not IPv4";
        if (server->control_port < 1 || server->control_port > UINT16_MAX)
            return "a receiver's control port is not in 1 ... 65535";
        to[i].server = server->server;
        to[i].control_port = (uint16_t)server->control_port;
    }
    return NULL;
}

static void deliver_response(const rostrumPathResponse *from, rs_link_deliver_fn *deliver, void *context) {
    rs_link_message message = {.call = RS_LINK_CALL_RESPONSE};
    rs_link_response *to = &message.response;
    char reason[160];
    const char *wrong = NULL;
    guint count = from->__isset_receivers ? from->receivers->len : 0;
    rs_link_server *receivers = g_new0(rs_link_server, count);
    GPtrArray *dark = from->__isset_dark ? from->dark : NULL;
    to->request_id = from->request_id;
    to->response_id = from->response_id;
    to->reason = from->reason;
    switch (from->decision) {
    case ROSTRUM_DECISION_ACCEPTED:
        to->decision = RS_LINK_ACCEPTED;
        wrong = fill_grant(from, to);
        if (!wrong && count > 0)
            wrong = fill_receivers(from->receivers, receivers);
        to->receivers = receivers;
        to->receiver_count = count;
        to->dark = dark ? (const char *const *)dark->pdata : NULL;
        to->dark_count = dark ? dark->len : 0;
        break;
    case ROSTRUM_DECISION_QUEUED:
        to->decision = RS_LINK_QUEUED;
        break;
    case ROSTRUM_DECISION_DENIED:
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
    g_free(receivers);
}

/* An order that makes no sense is not carried out; the manager hears nothing of it, and says so to whoever asked. */
static void deliver_probe(const rostrumProbeOrder *from, rs_link_deliver_fn *deliver, void *context) {
    guint count = from->__isset_servers ? from->servers->len : 0;
    rs_link_server *servers = g_new0(rs_link_server, count);
    rs_link_message message = {.call = RS_LINK_CALL_PROBE};
    bool packets = from->kind == ROSTRUM_PROBE_KIND_LISTEN || from->kind == ROSTRUM_PROBE_KIND_SEND;
    bool good = from->probe_id[0] && from->time_ms >= 1 && from->time_ms <= 60000;
    message.probe = (rs_link_probe){.id = from->probe_id,
                                    .kind = (rs_link_probe_kind)from->kind,
                                    .time = (rs_time)from->time_ms * 1000000,
                                    .servers = servers,
                                    .server_count = count};
    if (good && packets) {
        good = from->__isset_group && parse_ipv4(from->group, &message.probe.group) &&
               IN_MULTICAST(message.probe.group) && from->port >= 1 && from->port <= UINT16_MAX && from->packets >= 1 &&
               from->packets <= 100 && from->mtu >= 576 && from->mtu <= UINT16_MAX;
        message.probe.port = (uint16_t)from->port;
        message.probe.packets = (uint32_t)from->packets;
        message.probe.mtu = (uint32_t)from->mtu;
    }
    if (good && count > 0)
        good = fill_receivers(from->servers, servers) == NULL;
    if (good)
        deliver(context, &message);
    g_free(servers);
}

/* A view of an object that is none is not used: the manager hears no view_used. */
static void deliver_view(const rostrumOverlayView *from, rs_link_deliver_fn *deliver, void *context) {
    rs_link_message message = {.call = RS_LINK_CALL_VIEW};
    rs_link_view *to = &message.view;
    guint count = from->addresses->len;
    rs_link_server *servers = g_new0(rs_link_server, count);
    *to = (rs_link_view){.response_id = from->response_id,
                         .version = (uint64_t)from->version,
                         .object.data = (uint64_t)from->data_id,
                         .sender = from->sender,
                         .leaf = {from->__isset_leaf_predecessor ? from->leaf_predecessor : NULL,
                                  from->__isset_leaf_successor ? from->leaf_successor : NULL,
                                  from->__isset_leaf_parent ? from->leaf_parent : NULL},
                         .proxy = {from->__isset_proxy_predecessor ? from->proxy_predecessor : NULL,
                                   from->__isset_proxy_successor ? from->proxy_successor : NULL,
                                   from->__isset_proxy_parent ? from->proxy_parent : NULL},
                         .children = (const char *const *)from->children->pdata,
                         .child_count = from->children->len,
                         .servers = servers,
                         .server_count = count};
    bool good = from->version >= 0 && parse_ipv4(from->group, &to->group) &&
                from->app_id->len == sizeof to->object.app && from->response_id[0] &&
                from->children->len <= RS_LINK_RECEIVERS_MAX && fill_receivers(from->addresses, servers) == NULL;
    if (good) {
        memcpy(to->object.app, from->app_id->data, sizeof to->object.app);
        deliver(context, &message);
    }
    g_free(servers);
}

/* False: a view nobody could use. */
static bool fill_group_view(const rostrumGroupView *from, rs_link_group_view *to) {
    const rostrumGroupFacts *facts = from->__isset_facts ? from->facts : NULL;
    *to = (rs_link_group_view){.id = (uint32_t)from->id,
                               .version = (uint64_t)from->version,
                               .full = !from->__isset_base_version,
                               .base_version = (uint64_t)from->base_version,
                               .members = (const int32_t *)(void *)from->members->data,
                               .member_count = from->members->len,
                               .senders = (const int32_t *)(void *)from->senders->data,
                               .sender_count = from->senders->len,
                               .gone = (const int32_t *)(void *)from->gone->data,
                               .gone_count = from->gone->len};
    if (from->id < 0 || from->version < 1 || (to->full ? !facts : from->base_version < 1))
        return false;
    if (!facts)
        return true;
    const rostrumGroupOptions *options = facts->options;
    to->group = facts->group;
    to->port = (uint16_t)facts->data_port;
    to->options = (rs_link_group_options){options->protocol, options->order, (uint32_t)options->r, (uint32_t)options->c,
                                          (uint32_t)options->stagger};
    return facts->group[0] && parse_ipv4(facts->address, &to->address) && IN_MULTICAST(to->address) &&
           facts->data_port >= 1 && facts->data_port <= UINT16_MAX && options->r >= 0 && options->c >= 0 &&
           options->stagger >= 0;
}

/* What is no peer or no view is left out: the manager is asked again for what is missing then. */
static void deliver_group_view(const rostrumAgentGroupViewArgs *args, rs_link_deliver_fn *deliver, void *context) {
    rs_link_group_peer *peers = g_new0(rs_link_group_peer, args->peers->len);
    rs_link_group_view *views = g_new0(rs_link_group_view, args->views->len);
    rs_link_message message = {.call = RS_LINK_CALL_GROUP_VIEW, .group_peers = peers, .group_views = views};
    for (guint i = 0; i < args->peers->len; i++) {
        const rostrumGroupPeer *from = g_ptr_array_index(args->peers, i);
        rs_link_group_peer *to = &peers[message.group_peer_count];
        *to = (rs_link_group_peer){.id = from->id, .server = from->server, .port = (uint16_t)from->port};
        message.group_peer_count += from->id >= 0 && from->server[0] && parse_ipv4(from->address, &to->address) &&
                                    from->port >= 1 && from->port <= UINT16_MAX;
    }
    for (guint i = 0; i < args->views->len; i++)
        message.group_view_count +=
            fill_group_view(g_ptr_array_index(args->views, i), &views[message.group_view_count]);
    deliver(context, &message);
    g_free(peers);
    g_free(views);
}

static void deliver_call(rs_link_call call, ThriftStruct *args, rs_link_deliver_fn *deliver, void *context) {
    rs_link_message message = {.call = call, .id = "", .reason = ""};
    switch (call) {
    case RS_LINK_CALL_WELCOME:
        message.id = ((rostrumAgentWelcomeArgs *)args)->manager;
        message.manager_boot = ((rostrumAgentWelcomeArgs *)args)->manager_boot_id;
        break;
    case RS_LINK_CALL_GOODBYE:
        message.reason = ((rostrumAgentGoodbyeArgs *)args)->reason;
        break;
    case RS_LINK_CALL_RESPONSE:
        deliver_response(((rostrumAgentResponseArgs *)args)->response, deliver, context);
        return;
    case RS_LINK_CALL_MOVED:
        message.id = ((rostrumAgentMovedArgs *)args)->response_id;
        message.kind =
            ((rostrumAgentMovedArgs *)args)->kind == ROSTRUM_PATH_KIND_CIRCUIT ? RS_PATH_CIRCUIT : RS_PATH_PACKET;
        message.reason = ((rostrumAgentMovedArgs *)args)->reason;
        break;
    case RS_LINK_CALL_FAILED:
        message.id = ((rostrumAgentFailedArgs *)args)->response_id;
        message.reason = ((rostrumAgentFailedArgs *)args)->reason;
        break;
    case RS_LINK_CALL_LIGHT:
        message.id = ((rostrumAgentLightArgs *)args)->response_id;
        break;
    case RS_LINK_CALL_PROBE:
        deliver_probe(((rostrumAgentProbeArgs *)args)->order, deliver, context);
        return;
    case RS_LINK_CALL_VIEW:
        deliver_view(((rostrumAgentViewArgs *)args)->view, deliver, context);
        return;
    case RS_LINK_CALL_GROUP_VIEW:
        deliver_group_view((const rostrumAgentGroupViewArgs *)args, deliver, context);
        return;
    case RS_LINK_CALL_GROUP_REFUSED:
        message.id = ((rostrumAgentGroupRefusedArgs *)args)->group;
        message.reason = ((rostrumAgentGroupRefusedArgs *)args)->reason;
        break;
    case RS_LINK_CALL_UNKNOWN:
        break;
    }
    deliver(context, &message);
}

static GType args_type(rs_link_call call) {
    switch (call) {
    case RS_LINK_CALL_WELCOME:
        return ROSTRUM_TYPE_AGENT_WELCOME_ARGS;
    case RS_LINK_CALL_GOODBYE:
        return ROSTRUM_TYPE_AGENT_GOODBYE_ARGS;
    case RS_LINK_CALL_RESPONSE:
        return ROSTRUM_TYPE_AGENT_RESPONSE_ARGS;
    case RS_LINK_CALL_MOVED:
        return ROSTRUM_TYPE_AGENT_MOVED_ARGS;
    case RS_LINK_CALL_FAILED:
        return ROSTRUM_TYPE_AGENT_FAILED_ARGS;
    case RS_LINK_CALL_LIGHT:
        return ROSTRUM_TYPE_AGENT_LIGHT_ARGS;
    case RS_LINK_CALL_PROBE:
        return ROSTRUM_TYPE_AGENT_PROBE_ARGS;
    case RS_LINK_CALL_VIEW:
        return ROSTRUM_TYPE_AGENT_VIEW_ARGS;
    case RS_LINK_CALL_GROUP_VIEW:
        return ROSTRUM_TYPE_AGENT_GROUP_VIEW_ARGS;
    case RS_LINK_CALL_GROUP_REFUSED:
        return ROSTRUM_TYPE_AGENT_GROUP_REFUSED_ARGS;
    case RS_LINK_CALL_UNKNOWN:
        break;
    }
    return G_TYPE_INVALID;
}

bool rs_link_decode(const uint8_t *frame, size_t length, rs_link_deliver_fn *deliver, void *context, char *words,
                    size_t words_size) {
    rs_link_call call;
    if (!rs_link_check(frame, length, &call, words, words_size))
        return false;
    if (call == RS_LINK_CALL_UNKNOWN) {
        deliver_call(call, NULL, deliver, context);
        return true;
    }
    span *s = g_object_new(span_type(), NULL);
    s->at = frame;
    s->left = length;
    ThriftProtocol *protocol = g_object_new(THRIFT_TYPE_BINARY_PROTOCOL, "transport", s, NULL);
    ThriftStruct *args = g_object_new(args_type(call), NULL);
    gchar *name = NULL;
    ThriftMessageType type;
    gint32 sequence;
    GError *error = NULL;
    bool ok = thrift_protocol_read_message_begin(protocol, &name, &type, &sequence, &error) >= 0 &&
              thrift_struct_read(args, protocol, &error) >= 0;
    if (ok)
        deliver_call(call, args, deliver, context);
    else
        snprintf(words, words_size, "%s", error ? error->message : "it could not be decoded");
    g_clear_error(&error);
    g_free(name);
    g_object_unref(args);
    g_object_unref(protocol);
    g_object_unref(s);
    return ok;
}
