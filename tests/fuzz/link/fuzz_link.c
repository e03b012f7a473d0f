/* Frames from the manager: the decoder. What passes must read back as sane values. */
#include "daemon/manager/codec.h"
#include "thrift_schema.h"

#include <stdlib.h>
#include <string.h>

static void use(const char *text) {
    if (!text || strlen(text) > RS_MANAGER_TEXT_MAX)
        abort();
}

/* The checked list is there to its last number. */
static void use_numbers(const int32_t *numbers, uint32_t count) {
    static volatile int32_t last;
    if (count > RS_MANAGER_GROUP_PEERS_MAX)
        abort();
    for (uint32_t i = 0; i < count; i++)
        last = numbers[i];
    (void)last;
}

static void use_groups(const rs_manager_message *message) {
    for (uint32_t i = 0; i < message->group_peer_count; i++) {
        const rs_manager_group_peer *peer = &message->group_peers[i];
        use(peer->server);
        if (peer->id < 0 || peer->port == 0 || !peer->server[0])
            abort();
    }
    for (uint32_t i = 0; i < message->group_view_count; i++) {
        const rs_manager_group_view *view = &message->group_views[i];
        use_numbers(view->members, view->member_count);
        use_numbers(view->senders, view->sender_count);
        use_numbers(view->gone, view->gone_count);
        use_numbers(view->listens, view->listen_count);
        if (view->version == 0 || (view->full ? !view->group : view->base_version == 0))
            abort();
        if (!view->group)
            continue;
        use(view->group);
        use(view->options.protocol);
        use(view->options.order);
        if (!view->group[0] || view->port == 0 || view->address_count == 0)
            abort();
        for (uint32_t k = 0; k < view->address_count; k++)
            if (view->addresses[k] >> 28 != 14)
                abort();
    }
}

static void use_legs(const rs_manager_leg *legs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        use(legs[i].site);
        if (!legs[i].leg_id[0] || legs[i].receiver_count == 0 || (legs[i].relay && legs[i].relay->control_port == 0))
            abort();
        for (uint32_t k = 0; k < legs[i].receiver_count; k++)
            use(legs[i].receivers[k]);
    }
}

static void use_order(const rs_manager_relay_order *order) {
    use_legs(order->onward, order->onward_count);
    if (!order->leg_id[0] || !order->origin.server[0] || order->origin.control_port == 0)
        abort();
    if (!order->terms)
        return;
    use(order->terms->options);
    use(order->terms->stragglers);
    if (order->terms->wait_ms > INT32_MAX || order->terms->deadline_ms > INT32_MAX)
        abort();
}

static void deliver(void *context, const rs_manager_message *message) {
    ++*(unsigned *)context;
    if (message->call == RS_THRIFT_AGENT_GROUP_VIEW) {
        use_groups(message);
        return;
    }
    if (message->call == RS_THRIFT_AGENT_RELAY) {
        use_order(&message->relay);
        return;
    }
    if (message->call == RS_THRIFT_AGENT_LEGS) {
        use(message->legs.reason);
        use_legs(message->legs.legs, message->legs.leg_count);
        return;
    }
    /* Of orders and views of overlays, which have no id. */
    if (message->call == RS_THRIFT_AGENT_PROBE || message->call == RS_THRIFT_AGENT_VIEW) {
        use(message->call == RS_THRIFT_AGENT_PROBE ? message->probe.id : message->view.response_id);
        return;
    }
    if (message->call != RS_THRIFT_AGENT_RESPONSE) {
        use(message->id);
        use(message->reason);
        return;
    }
    const rs_manager_response *r = &message->response;
    use(r->request_id);
    use(r->response_id);
    use(r->reason);
    if (r->decision == RS_MANAGER_ACCEPTED && (r->data_port == 0 || r->group >> 28 != 14 || r->receiver_count > 1024))
        abort();
    for (uint32_t i = 0; i < r->receiver_count; i++)
        use(r->receivers[i].server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    unsigned delivered = 0;
    char text[160] = "";
    bool ok = rs_manager_decode(data, size, deliver, &delivered, text, sizeof text);
    /* An order to probe, or a view of an overlay, that makes no sense is passed over. */
    if (delivered > (ok ? 1 : 0) || (!ok && !text[0]))
        abort();
    return 0;
}
