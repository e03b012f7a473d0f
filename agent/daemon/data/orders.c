/* A relay's orders: from what the manager says to their end. */
#include "daemon/data/orders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/data/ways.h"

static const char *const policies[] = {[ROSTRUM_STRAGGLERS_DEFAULT] = "",
                                       [ROSTRUM_STRAGGLERS_WAIT] = "wait",
                                       [ROSTRUM_STRAGGLERS_DEMOTE] = "demote",
                                       [ROSTRUM_STRAGGLERS_EVICT] = "evict"};

const char *rs_policy_word(rostrum_straggler_policy policy) {
    return policies[policy];
}

void rs_relay_free(rs_agent *agent, rs_relay *relay) {
    for (uint32_t i = 0; i < relay->count; i++)
        free(relay->names[i]);
    if (relay->peer != RS_NO_PEER)
        rs_peers_release(&agent->peers, relay->peer);
    free(relay->names);
    free(relay->last);
    free(relay->causes);
    free(relay->options);
    free(relay->onward);
    free(relay);
}

static void take_terms(rs_relay *relay, const rs_manager_terms *terms) {
    size_t policy = 0;
    relay->deadline = RS_NEVER;
    if (!terms)
        return;
    while (policy < sizeof policies / sizeof *policies && strcmp(policies[policy], terms->stragglers) != 0)
        policy++;
    relay->stragglers = (rostrum_straggler_policy)policy; /* one of none: pass_on says so */
    relay->wait_ms = terms->wait_ms;
    if (terms->deadline_ms)
        relay->deadline = relay->since + (rs_time)terms->deadline_ms * RS_MILLISECOND;
}

rs_relay *rs_relay_new(rs_agent *agent, const rs_manager_relay_order *order, bool keeps) {
    rs_relay *relay = calloc(1, sizeof *relay);
    if (!relay)
        return NULL;
    relay->peer = RS_NO_PEER;
    relay->names = calloc(order->receiver_count + 1u, sizeof *relay->names);
    relay->last = calloc(order->receiver_count + 1u, sizeof *relay->last);
    relay->causes = calloc(order->receiver_count + 1u, sizeof *relay->causes);
    relay->options = strdup(order->terms ? order->terms->options : "");
    bool good = relay->names && relay->last && relay->causes && relay->options;
    for (uint32_t i = 0; good && i < order->receiver_count; i++) {
        good = (relay->names[i] = strdup(order->receivers[i])) != NULL;
        relay->count = i + (good ? 1 : 0);
        relay->last[i] = (rs_manager_receiver_report){.server = relay->names[i], .state = "waiting", .cause = ""};
    }
    rs_peer peer = good && order->origin.address
                       ? rs_peers_at(&agent->peers, order->origin.server, order->origin.address)
                   : good ? rs_peers_number(&agent->peers, order->origin.server)
                          : RS_NO_PEER;
    if (peer == RS_NO_PEER) {
        rs_relay_free(agent, relay);
        return NULL;
    }
    relay->peer = peer;
    rs_peers_hold(&agent->peers, peer);
    if (order->origin.address) {
        rs_peers_entry(&agent->peers, peer)->address = order->origin.address;
        rs_peers_entry(&agent->peers, peer)->control_port = order->origin.control_port;
        rs_control_address_known(agent->control, peer);
    }
    snprintf(relay->leg_id, sizeof relay->leg_id, "%s", order->leg_id);
    snprintf(relay->origin, sizeof relay->origin, "%s", order->origin.server);
    relay->id = order->object;
    relay->dials = order->dials;
    relay->keeps = order->keeps || keeps;
    relay->since = rs_agent_now(agent);
    relay->state = "waiting";
    relay->onward = rs_ways_copy(order->onward, order->onward_count);
    relay->onward_count = relay->onward ? order->onward_count : 0;
    take_terms(relay, order->terms);
    return relay;
}
