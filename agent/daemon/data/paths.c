/* Paths: asked of the manager, granted, moved, lost, given back (Republic, Table II). */
#include "daemon/data/paths.h"
#include "daemon/api/waits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/units.h"

#define DEFAULT_WAIT_MS 60000u      /* for the manager's first answer */
#define QUEUED_WAIT_MS 3600000u     /* it waits as it was told to (--wait): no longer than its longest */
#define BACK_WAIT (10 * RS_SECOND)  /* a manager that is there again has as long as a join gives it */
#define WAIT_MARGIN (2 * RS_SECOND) /* the manager gives up first, with better words */

static const char *kind_text(rs_path_kind kind) {
    return kind == RS_PATH_CIRCUIT ? "circuit" : "packet";
}

/* No path for this session: the core ends what waits for it. */
static void fail_path(rs_agent *agent, rs_send_state *s, rs_path *path, rostrum_code code, const char *text) {
    path->state = RS_PATH_STATE_NONE;
    s->failure = code;
    snprintf(s->denial, sizeof s->denial, "%s", text);
    rs_path_denied(agent->node, rs_agent_now(agent), s->base.xfer, text);
}

rs_time rs_paths_wait(uint32_t wait_ms, bool queued) {
    uint32_t wait = wait_ms ? wait_ms : queued ? QUEUED_WAIT_MS : DEFAULT_WAIT_MS;
    return (rs_time)wait * RS_MILLISECOND + WAIT_MARGIN;
}

rs_time rs_paths_bound_back(rs_time bound, rs_time now, uint32_t wait_ms) {
    rs_time wait = rs_paths_wait(wait_ms, false), least = now + (wait < BACK_WAIT ? wait : BACK_WAIT);
    return bound > least ? bound : least;
}

/* When the wait for a path that is asked for now, or whose turn it is now, is over. */
static rs_time bound_of(const rs_agent *agent, const rs_send_state *s, const rs_path *path) {
    return rs_agent_now(agent) + rs_paths_wait(s->wait_ms, path->queued_for[0] != '\0');
}

/* The path that a request or a response is about. */
static rs_path *path_of(rs_send_state *s, const char *request_id, const char *response_id) {
    rs_path *paths[] = {&s->path, &s->next_path};
    for (int i = 0; i < 2; i++)
        if ((request_id && paths[i]->state == RS_PATH_STATE_REQUESTED &&
             strcmp(paths[i]->request_id, request_id) == 0) ||
            (response_id && paths[i]->state == RS_PATH_STATE_GRANTED &&
             strcmp(paths[i]->response_id, response_id) == 0))
            return paths[i];
    return NULL;
}

static rs_send_state *find(const rs_agent *agent, const char *request_id, const char *response_id, rs_path **path) {
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        if ((*path = path_of(rs_sending_of(t), request_id, response_id)))
            return rs_sending_of(t);
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------- outwards */

static uint8_t part_bit(const rs_send_state *s, const rs_path *path) {
    return path == &s->path ? RS_PART_PRESENT : RS_PART_NEXT;
}

static void set_part(rs_send_state *s, const rs_path *path, uint32_t receiver, bool is_for_it) {
    uint8_t bit = part_bit(s, path);
    s->parts[receiver] = (uint8_t)(is_for_it ? s->parts[receiver] | bit : s->parts[receiver] & ~bit);
}

/* The receivers that a path is for. */
static uint32_t names_of(const rs_send_state *s, const rs_path *path, const char *names[RS_MANAGER_RECEIVERS_MAX]) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->receiver_count && count < RS_MANAGER_RECEIVERS_MAX; i++)
        if (s->parts[i] & part_bit(s, path))
            names[count++] = s->receivers[i].name;
    return count;
}

/* The longest to a receiver that the path is for, of those that are known; 0: none is. */
static uint32_t round_trip_us(const rs_agent *agent, const rs_send_state *s, const rs_path *path) {
    uint32_t longest = 0;
    for (uint32_t i = 0; i < s->receiver_count; i++) {
        uint32_t one = rs_control_round_trip_us(agent->control, s->peers[i]);
        longest = s->parts[i] & part_bit(s, path) && one > longest ? one : longest;
    }
    return longest;
}

static uint32_t deadline_ms(const rs_send_state *s, rs_time now) {
    if (s->deadline == RS_NEVER)
        return 0;
    return s->deadline > now ? (uint32_t)((s->deadline - now + RS_MILLISECOND - 1) / RS_MILLISECOND) : 1;
}

/* There is no manager to ask. The request waits for one, as long as it may wait for a path. */
static void tell_away(rs_agent *agent, rs_send_state *s) {
    char state[160], text[ROSTRUM_TEXT_MAX + 1];
    rs_manager_describe(agent->link, rs_agent_now(agent), state, sizeof state);
    snprintf(text, sizeof text, "waiting for the manager: %.150s", state);
    rs_sending_tell_phase(agent, s, "queued", text);
}

void rs_paths_request(rs_agent *agent, rs_send_state *s, uint64_t remaining) {
    const char *names[RS_MANAGER_RECEIVERS_MAX];
    char text[ROSTRUM_TEXT_MAX + 1] = "";
    rs_time now = rs_agent_now(agent);
    rs_path *path = s->path.state == RS_PATH_STATE_NONE ? &s->path : &s->next_path;
    for (uint32_t i = 0; i < s->receiver_count; i++)
        set_part(s, path, i, rs_path_wants(agent->node, s->base.xfer, s->peers[i]));
    uint32_t count = names_of(s, path, names);
    if (count == 0)
        return; /* all of them failed meanwhile: the core says what follows */
    *path = (rs_path){.state = RS_PATH_STATE_REQUESTED, .group = RS_NO_GROUP};
    path->bound_at = bound_of(agent, s, path);
    rs_uuid_text(path->request_id);
    const rs_manager_request_params request = {.request_id = path->request_id,
                                               .object = s->base.id,
                                               .data_size = s->result.size, /* of a stream 0: nobody knows */
                                               .remaining_size = s->base.source ? 0 : remaining,
                                               .receivers = names,
                                               .receiver_count = count,
                                               .wait_ms = s->wait_ms,
                                               .deadline_ms = deadline_ms(s, now),
                                               .round_trip_us = round_trip_us(agent, s, path),
                                               .splits = !s->base.source &&
                                                         rs_engine_has(rs_sending_engine(s->protocol), RS_ENGINE_PARTS),
                                               .parts = !s->base.source,
                                               .protocol = (rs_manager_protocol)(RS_MANAGER_AUTO + (int)s->protocol)};
    rs_log(RS_LOG_INFO, "send", "object=%s asks_for=path receivers=%u bytes=%llu request=%s", rs_id_text(&s->base.id),
           count, (unsigned long long)remaining, path->request_id);
    rs_status status = agent->lan ? rs_lan_request(agent->lan, &request, text, sizeof text)
                                  : rs_manager_request(agent->link, now, &request, text, sizeof text);
    if (status != RS_OK)
        fail_path(agent, s, path, status == RS_ERR_STATE ? ROSTRUM_ERR_UNAVAILABLE : ROSTRUM_ERR_LIMIT,
                  text[0] ? text : rs_strerror(status));
    else if (agent->link && !rs_manager_answers(agent->link))
        tell_away(agent, s);
}

static void withdraw(rs_agent *agent, const rs_path *path) {
    if (agent->lan)
        rs_lan_cancel(agent->lan, path->request_id);
    else
        rs_manager_cancel(agent->link, rs_agent_now(agent), path->request_id);
}

static void give_back(rs_agent *agent, rs_send_state *s, rs_path *path) {
    if (path->state == RS_PATH_STATE_REQUESTED)
        withdraw(agent, path);
    if (path->state == RS_PATH_STATE_GRANTED) {
        if (agent->lan)
            rs_lan_release(agent->lan, path->response_id);
        else
            rs_manager_release(agent->link, rs_agent_now(agent), path->request_id, path->response_id);
        rs_data_unuse(agent->data, path->group);
        s->result.released_ns = rs_wall_clock();
        rs_sending_tell_phase(agent, s, "released", "");
    }
    *path = (rs_path){.group = RS_NO_GROUP};
}

void rs_paths_session_over(rs_agent *agent, rs_send_state *s) {
    give_back(agent, s, &s->path);
    s->path = s->next_path;
    if (s->path.state == RS_PATH_STATE_REQUESTED)
        s->path.bound_at = bound_of(agent, s, &s->path);
    s->next_path = (rs_path){.group = RS_NO_GROUP};
    for (uint32_t i = 0; i < s->receiver_count; i++)
        s->parts[i] = s->parts[i] & RS_PART_NEXT ? RS_PART_PRESENT : 0;
    s->dark_count = 0;
    memset(s->dark, 0, s->receiver_count * sizeof *s->dark);
    if (s->path.state == RS_PATH_STATE_GRANTED && s->path.has_light)
        rs_path_light(agent->node, rs_agent_now(agent), s->base.xfer);
}

void rs_paths_give_back(rs_agent *agent, rs_send_state *s) {
    give_back(agent, s, &s->path);
    give_back(agent, s, &s->next_path);
}

/* The next session's path may have to wait until the present one is given back: its time runs from then. */
rs_time rs_paths_deadline(const rs_send_state *s) {
    const rs_path *path = s->path.state == RS_PATH_STATE_NONE ? &s->next_path : &s->path;
    return path->state == RS_PATH_STATE_REQUESTED ? path->bound_at : RS_NEVER;
}

void rs_paths_timeout(rs_agent *agent, rs_send_state *s) {
    rs_path *path = s->path.state == RS_PATH_STATE_REQUESTED ? &s->path : &s->next_path;
    char text[ROSTRUM_TEXT_MAX + 1], state[160];
    bool up = agent->lan || rs_manager_answers(agent->link);
    if (agent->lan)
        rs_lan_describe(agent->lan, state, sizeof state);
    else
        rs_manager_describe(agent->link, rs_agent_now(agent), state, sizeof state);
    if (!up)
        snprintf(text, sizeof text, "no path within the bound: the manager did not come back; %.150s", state);
    else if (path->queued_for[0])
        snprintf(text, sizeof text, "no path within the bound; it waited for: %.180s", path->queued_for);
    else
        snprintf(text, sizeof text, "no path within the bound: no answer to the request; %.150s", state);
    withdraw(agent, path);
    fail_path(agent, s, path, up ? ROSTRUM_ERR_TIMEOUT : ROSTRUM_ERR_UNAVAILABLE, text);
}

void rs_paths_tell_dark(rs_agent *agent, rs_send_state *s) {
    const char *names[RS_MANAGER_RECEIVERS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->receiver_count && count < RS_MANAGER_RECEIVERS_MAX; i++)
        if (s->dark[i])
            names[count++] = s->receivers[i].name;
    memset(s->dark, 0, s->receiver_count * sizeof *s->dark);
    s->dark_count = 0;
    if (s->path.state != RS_PATH_STATE_GRANTED || count == 0)
        return;
    rs_log(RS_LOG_WARNING, "send", "object=%s no_light_at=%s and_others=%u", rs_id_text(&s->base.id),
           rs_quote(names[0]), count - 1);
    rs_report_now(agent, s); /* who had light tells the manager whose fault it is */
    if (agent->lan)
        rs_lan_no_light(agent->lan, s->path.response_id, names, count);
    else
        rs_manager_no_light(agent->link, rs_agent_now(agent), s->path.response_id, names, count);
}

/* -------------------------------------------------------------------------------------------------------- inwards */

/* The number by which this send knows a receiver; RS_NO_PEER: it has none by that name. */
static rs_peer receiver_named(const rs_agent *agent, const rs_send_state *s, const char *name) {
    rs_peer peer = rs_peers_find(&agent->peers, name);
    if (peer != RS_NO_PEER && rs_sending_receiver(s, peer) >= 0)
        return peer;
    for (uint32_t i = 0; i < s->receiver_count; i++)
        if (strcmp(s->receivers[i].name, name) == 0)
            return s->peers[i];
    return RS_NO_PEER;
}

static void learn_addresses(rs_agent *agent, const rs_send_state *s, const rs_manager_response *response) {
    agent->rack = response->own_rack ? response->own_rack : agent->rack;
    for (uint32_t i = 0; i < response->receiver_count; i++) {
        const rs_manager_server *server = &response->receivers[i];
        rs_peer peer = receiver_named(agent, s, server->server);
        if (peer == RS_NO_PEER)
            continue;
        if (agent->lan) /* it may have been named by its host or address */
            rs_peers_rename(&agent->peers, peer, rs_lan_own_name(agent->lan, response->response_id, server->server));
        rs_peers_told(&agent->peers, peer, server->address, server->control_port, server->rack);
        rs_control_address_known(agent->control, peer);
    }
}

/* Notes whom the path serves, if that is said; returns how many these are of those it was asked for, and who; 0 = all.
 */
static uint32_t note_served(const rs_agent *agent, rs_send_state *s, const rs_path *path,
                            const rs_manager_response *response, rs_peer served[RS_MANAGER_RECEIVERS_MAX]) {
    uint32_t count = 0;
    if (response->receiver_count == 0)
        return 0;
    for (uint32_t i = 0; i < response->receiver_count && count < RS_MANAGER_RECEIVERS_MAX; i++) {
        rs_peer peer = receiver_named(agent, s, response->receivers[i].server);
        int64_t index = peer == RS_NO_PEER ? -1 : rs_sending_receiver(s, peer);
        if (index >= 0 && s->parts[index] & part_bit(s, path))
            served[count++] = peer;
    }
    for (uint32_t i = 0; i < s->receiver_count; i++)
        set_part(s, path, i, false);
    for (uint32_t i = 0; i < count; i++)
        set_part(s, path, (uint32_t)rs_sending_receiver(s, served[i]), true);
    if (count == 0)
        served[count++] = RS_NO_PEER; /* none of them: not all of them */
    return count;
}

/* Of the receivers, those whose light the manager does not expect. */
static uint32_t note_dark(const rs_agent *agent, const rs_send_state *s, const rs_manager_response *response,
                          rs_peer dark[RS_MANAGER_RECEIVERS_MAX]) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < response->dark_count && count < RS_MANAGER_RECEIVERS_MAX; i++) {
        rs_peer peer = rs_peers_find(&agent->peers, response->dark[i]);
        if (peer != RS_NO_PEER && rs_sending_receiver(s, peer) >= 0)
            dark[count++] = peer;
    }
    return count;
}

static void note_grant(rs_agent *agent, rs_send_state *s, rs_path *path, const rs_manager_response *response) {
    rostrum_send_result *result = &s->result;
    const char *names[RS_MANAGER_RECEIVERS_MAX];
    char text[ROSTRUM_TEXT_MAX + 1], address[RS_ADDRESS_TEXT], part[48] = "";
    uint32_t count = names_of(s, path, names);
    if (count < s->receiver_count)
        snprintf(part, sizeof part, ", to %u of %u receivers", count, s->receiver_count);
    if (result->accepted_ns == 0)
        result->accepted_ns = rs_wall_clock();
    result->path = response->kind == RS_PATH_CIRCUIT ? ROSTRUM_PATH_CIRCUIT : ROSTRUM_PATH_PACKET;
    result->protocol = (rostrum_protocol)(ROSTRUM_PROTOCOL_REPUBLIC + (int)response->protocol);
    result->reconfiguration_ns = response->reconfiguration;
    result->sessions++;
    snprintf(result->reason, sizeof result->reason, "%s", response->reason);
    snprintf(result->response_id, sizeof result->response_id, "%s", response->response_id);
    snprintf(path->response_id, sizeof path->response_id, "%s", response->response_id);
    memcpy(s->request_id, path->request_id, sizeof s->request_id);
    memcpy(s->response_id, path->response_id, sizeof s->response_id);
    rs_log(RS_LOG_INFO, "send", "object=%s granted=%s receivers=%u request=%s path=%s", rs_id_text(&s->base.id),
           kind_text(response->kind), count, path->request_id, path->response_id);
    path->state = RS_PATH_STATE_GRANTED;
    path->kind = response->kind;
    path->protocol = response->protocol;
    path->group_address = response->group;
    path->accepted_size = response->accepted_size;
    s->ever_granted = true;
    snprintf(text, sizeof text, "%s path, group %s, by %s%s%s%.120s", kind_text(response->kind),
             rs_address_text(response->group, address), rs_engine_name((uint32_t)response->protocol), part,
             response->reason[0] ? ": " : "", response->reason);
    rs_sending_tell_phase(agent, s, "accepted", text);
}

/* A circuit cannot be held for as long as it may take. */
static bool fits_stream(const rs_manager_response *response) {
    return response->kind == RS_PATH_PACKET && rs_engine_has(response->protocol, RS_ENGINE_STREAMS);
}

static void granted(rs_agent *agent, rs_send_state *s, rs_path *path, const rs_manager_response *response) {
    uint16_t port = response->data_port ? response->data_port : agent->options.data_port;
    rs_peer served[RS_MANAGER_RECEIVERS_MAX], dark[RS_MANAGER_RECEIVERS_MAX];
    uint32_t dark_count = note_dark(agent, s, response, dark);
    uint32_t served_count = note_served(agent, s, path, response, served);
    note_grant(agent, s, path, response);
    path->data_port = port;
    path->group = rs_data_use(agent->data, response->group, port);
    if (agent->lan)
        rs_lan_used(agent->lan, response->response_id, path->group);
    learn_addresses(agent, s, response);
    if (s->base.source && !fits_stream(response)) {
        give_back(agent, s, path);
        fail_path(
            agent, s, path, ROSTRUM_ERR_DENIED,
            "a stream goes by rdcm over a packet tree alone (a circuit cannot be held for as long as it may take), "
            "and the manager granted another path");
        return;
    }
    const rs_path_grant grant = {.group = path->group,
                                 .group_address = response->group,
                                 .data_port = port,
                                 .accepted_size = s->base.source ? RS_STREAM : response->accepted_size,
                                 .kind = response->kind,
                                 .reconfiguration = response->reconfiguration,
                                 .rate_bps = response->rate_bps,
                                 .light_bound = response->light_bound,
                                 .protocol = response->protocol,
                                 .no_overlay = agent->lan != NULL,
                                 .receivers = served,
                                 .receiver_count = served_count,
                                 .dark = dark,
                                 .dark_count = dark_count,
                                 .tree_links = response->tree_links,
                                 .path_links = response->path_links};
    rs_status status = RS_ERR_LIMIT;
    if (path->group != RS_NO_GROUP)
        status = rs_path_granted(agent->node, rs_agent_now(agent), s->base.xfer, &grant);
    if (status == RS_OK)
        return;
    rs_log(RS_LOG_ERROR, "send", "object=%s the granted path cannot be used: %s", rs_id_text(&s->base.id),
           rs_strerror(status));
    give_back(agent, s, path);
    fail_path(agent, s, path, ROSTRUM_ERR_LIMIT,
              status == RS_ERR_LIMIT ? "the granted path cannot be used here: no room for another group"
                                     : "the granted path cannot be used: it is for none of the receivers it was asked "
                                       "for, or a figure of it is out of its range");
}

static void on_response(void *context, const rs_manager_response *response) {
    rs_agent *agent = context;
    rs_path *path;
    rs_send_state *s = find(agent, response->request_id, NULL, &path);
    if (!s)
        return; /* the link itself gives back what nobody asked for any more */
    switch (response->decision) {
    case RS_MANAGER_ACCEPTED:
        granted(agent, s, path, response);
        break;
    case RS_MANAGER_QUEUED:
        snprintf(path->queued_for, sizeof path->queued_for, "%s", response->reason[0] ? response->reason : "its turn");
        path->bound_at = s->wait_ms ? path->bound_at : bound_of(agent, s, path);
        rs_sending_tell_phase(agent, s, "queued", response->reason);
        break;
    case RS_MANAGER_DENIED:
        rs_log(RS_LOG_WARNING, "send", "object=%s denied=%s", rs_id_text(&s->base.id), rs_quote(response->reason));
        fail_path(agent, s, path,
                  agent->lan || rs_manager_up(agent->link) ? ROSTRUM_ERR_DENIED : ROSTRUM_ERR_UNAVAILABLE,
                  response->reason);
        break;
    }
}

static void tell_log(rs_agent *agent, const rs_send_state *s, const char *text) {
    rostrum_event event = {.kind = ROSTRUM_EVENT_LOG, .sending = true, .size = s->result.size};
    snprintf(event.text, sizeof event.text, "%s", text);
    rs_api_event(agent->api, &s->base.id, &event);
}

static void on_moved(void *context, const char *response_id, rs_path_kind kind, const char *reason) {
    rs_agent *agent = context;
    rs_path *path;
    rs_send_state *s = find(agent, NULL, response_id, &path);
    if (!s)
        return;
    path->kind = kind;
    rs_log(RS_LOG_WARNING, "send", "object=%s moved_to=%s reason=%s", rs_id_text(&s->base.id), kind_text(kind),
           rs_quote(reason));
    s->result.path = kind == RS_PATH_CIRCUIT ? ROSTRUM_PATH_CIRCUIT : ROSTRUM_PATH_PACKET;
    snprintf(s->result.reason, sizeof s->result.reason, "%s", reason);
    char text[ROSTRUM_TEXT_MAX + 1];
    snprintf(text, sizeof text, "the path moved to a %s path: %.180s", kind_text(kind), reason);
    tell_log(agent, s, text);
    /* The core may be a step ahead: the next session has begun, and the report that the one before is done waits. */
    if (path == &s->path || rs_next_path_moved(agent->node, rs_agent_now(agent), s->base.xfer, kind) != RS_OK)
        rs_path_moved(agent->node, rs_agent_now(agent), s->base.xfer, kind);
}

static void on_failed(void *context, const char *response_id, const char *reason) {
    rs_agent *agent = context;
    rs_path *path;
    rs_send_state *s = find(agent, NULL, response_id, &path);
    if (!s)
        return;
    rs_log(RS_LOG_WARNING, "send", "object=%s path_failed=%s", rs_id_text(&s->base.id), rs_quote(reason));
    char text[ROSTRUM_TEXT_MAX + 1];
    snprintf(text, sizeof text, "the path failed: %.200s", reason);
    tell_log(agent, s, text);
    if (path == &s->next_path) {
        rs_data_unuse(agent->data, path->group);
        *path = (rs_path){.group = RS_NO_GROUP};
        if (rs_next_path_failed(agent->node, rs_agent_now(agent), s->base.xfer) == RS_OK)
            return; /* and wants another */
    }
    rs_path_failed(agent->node, rs_agent_now(agent), s->base.xfer, reason);
}

static void on_light(void *context, const char *response_id) {
    rs_agent *agent = context;
    rs_path *path;
    rs_send_state *s = find(agent, NULL, response_id, &path);
    if (!s)
        return;
    path->has_light = true;
    if (path != &s->path)
        return;
    rs_log(RS_LOG_INFO, "send", "object=%s light=switches path=%s", rs_id_text(&s->base.id), path->response_id);
    rs_path_light(agent->node, rs_agent_now(agent), s->base.xfer);
}

static void describe_live(const rs_send_state *s, const rs_path *path, rs_manager_live_path *out) {
    static const char *names[RS_MANAGER_RECEIVERS_MAX]; /* must hold until the next call */
    uint32_t count = names_of(s, path, names);
    *out = (rs_manager_live_path){.request_id = path->request_id,
                                  .response_id = path->response_id,
                                  .group = path->group_address,
                                  .kind = path->kind,
                                  .receivers = names,
                                  .receiver_count = count,
                                  .accepted_size = path->accepted_size,
                                  .protocol = path->protocol};
}

static bool live_path(void *context, uint32_t index, rs_manager_live_path *out) {
    const rs_agent *agent = context;
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next) {
        const rs_path *paths[] = {&rs_sending_of(t)->path, &rs_sending_of(t)->next_path};
        for (int i = 0; i < 2; i++)
            if (paths[i]->state == RS_PATH_STATE_GRANTED && index-- == 0) {
                describe_live(rs_sending_of(t), paths[i], out);
                return true;
            }
    }
    return false;
}

void rs_paths_link_state(rs_agent *agent, bool up) {
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next) {
        rs_send_state *s = rs_sending_of(t);
        if (s->path.state != RS_PATH_STATE_REQUESTED)
            continue; /* for the next session's path there is time */
        if (!up) {
            tell_away(agent, s);
            continue;
        }
        /* Who is queued already is told why again: a manager that was only silent does not say it twice. */
        const char *queued_for = s->path.queued_for;
        s->path.bound_at = rs_paths_bound_back(s->path.bound_at, rs_agent_now(agent), s->wait_ms);
        rs_sending_tell_phase(agent, s, "queued",
                              queued_for[0] ? queued_for : "the manager is there: asking for a path");
    }
}

static void on_goodbye(void *context, const char *reason) {
    (void)context;
    rs_log(RS_LOG_ERROR, "manager", "it refuses this agent: %s", rs_quote(reason));
}

static void watch(void *context, int fd, unsigned wants) {
    rs_agent *agent = context;
    uint32_t events =
        ((wants & RS_MANAGER_READ) ? (uint32_t)EPOLLIN : 0) | ((wants & RS_MANAGER_WRITE) ? (uint32_t)EPOLLOUT : 0);
    if (fd < 0)
        rs_loop_unwatch(agent->loop, &agent->link_watch);
    else if (!rs_loop_watch(agent->loop, &agent->link_watch, fd, events))
        rs_log(RS_LOG_ERROR, "manager", "cannot watch the connection");
}

void rs_paths_link_callbacks(rs_agent *agent, rs_manager_callbacks *callbacks) {
    *callbacks = (rs_manager_callbacks){.context = agent,
                                        .watch = watch,
                                        .on_response = on_response,
                                        .on_moved = on_moved,
                                        .on_failed = on_failed,
                                        .on_light = on_light,
                                        .on_goodbye = on_goodbye,
                                        .live_path = live_path};
}
