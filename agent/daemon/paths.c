/* Paths: asked of the manager, granted, moved, lost, given back (Republic, Table II). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sending.h"
#include "daemon/units.h"

#define DEFAULT_WAIT_MS 60000u      /* the manager's default is not known here */
#define WAIT_MARGIN (2 * RS_SECOND) /* the manager gives up first, with better words */

static const char *kind_text(rs_path_kind kind) {
    return kind == RS_PATH_CIRCUIT ? "circuit" : "packet";
}

static void fail_path(rs_agent *agent, rs_sending *s, rostrum_code code, const char *words) {
    s->held = RS_HELD_NONE;
    s->path_bound_at = RS_NEVER;
    s->failure = code;
    rs_path_denied(agent->node, rs_agent_now(agent), s->base.xfer, words);
}

/* ------------------------------------------------------------------------------------------------------- outwards */

void rs_paths_request(rs_agent *agent, rs_sending *s, uint64_t remaining) {
    const char *names[RS_LINK_RECEIVERS_MAX];
    char words[ROSTRUM_WORDS_MAX + 1] = "";
    rs_time now = rs_agent_now(agent);
    rs_paths_give_back(agent, s);
    for (uint32_t i = 0; i < s->receiver_count && i < RS_LINK_RECEIVERS_MAX; i++)
        names[i] = s->receivers[i].name;
    rs_uuid_text(s->request_id);
    const rs_link_request_params request = {.request_id = s->request_id,
                                            .object = s->base.id,
                                            .data_size = s->result.size,
                                            .remaining_size = remaining,
                                            .receivers = names,
                                            .receiver_count = s->receiver_count,
                                            .wait_ms = s->wait_ms,
                                            .deadline_ms = s->deadline_ms};
    s->queued_for[0] = '\0';
    s->held = RS_HELD_REQUESTED;
    rs_status status = rs_link_request(agent->link, now, &request, words, sizeof words);
    if (status != RS_OK) {
        fail_path(agent, s, status == RS_ERR_STATE ? ROSTRUM_ERR_UNAVAILABLE : ROSTRUM_ERR_LIMIT,
                  words[0] ? words : rs_strerror(status));
        return;
    }
    s->path_bound_at = now + (rs_time)(s->wait_ms ? s->wait_ms : DEFAULT_WAIT_MS) * RS_MILLISECOND + WAIT_MARGIN;
}

void rs_paths_give_back(rs_agent *agent, rs_sending *s) {
    rs_time now = rs_agent_now(agent);
    s->path_bound_at = RS_NEVER;
    if (s->held == RS_HELD_REQUESTED)
        rs_link_cancel(agent->link, now, s->request_id);
    if (s->held == RS_HELD_GRANTED) {
        rs_link_release(agent->link, now, s->request_id, s->response_id);
        rs_data_unuse(agent->data, s->group);
        s->group = RS_NO_GROUP;
        s->result.released_ns = rs_wall_clock();
        rs_sending_tell_phase(agent, s, "released", "");
    }
    s->held = RS_HELD_NONE;
    s->dark_count = 0;
    memset(s->dark, 0, s->receiver_count * sizeof *s->dark);
}

void rs_paths_tell_dark(rs_agent *agent, rs_sending *s) {
    const char *names[RS_LINK_RECEIVERS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->receiver_count && count < RS_LINK_RECEIVERS_MAX; i++)
        if (s->dark[i])
            names[count++] = s->receivers[i].name;
    memset(s->dark, 0, s->receiver_count * sizeof *s->dark);
    s->dark_count = 0;
    if (s->held != RS_HELD_GRANTED || count == 0)
        return;
    rs_log(RS_LOG_WARNING, "send", "object=%s no_light_at=%s and_others=%u", rs_id_text(&s->base.id),
           rs_quote(names[0]), count - 1);
    rs_link_no_light(agent->link, rs_agent_now(agent), s->response_id, names, count);
}

/* -------------------------------------------------------------------------------------------------------- inwards */

static void learn_addresses(rs_agent *agent, const rs_link_response *response) {
    for (uint32_t i = 0; i < response->receiver_count; i++) {
        const rs_link_server *server = &response->receivers[i];
        rs_peer peer = rs_peers_find(&agent->peers, server->server);
        if (peer == RS_NO_PEER)
            continue;
        rs_peer_entry *entry = rs_peers_entry(&agent->peers, peer);
        entry->address = server->address;
        entry->control_port = server->control_port;
        rs_control_address_known(agent->control, peer);
    }
}

static void note_grant(rs_agent *agent, rs_sending *s, const rs_link_response *response) {
    rostrum_send_result *result = &s->result;
    char words[ROSTRUM_WORDS_MAX + 1], address[RS_ADDRESS_TEXT];
    if (result->accepted_ns == 0)
        result->accepted_ns = rs_wall_clock();
    result->path = response->kind == RS_PATH_CIRCUIT ? ROSTRUM_PATH_CIRCUIT : ROSTRUM_PATH_PACKET;
    result->reconfiguration_ns = response->reconfiguration;
    result->sessions++;
    snprintf(result->reason, sizeof result->reason, "%s", response->reason);
    snprintf(result->response_id, sizeof result->response_id, "%s", response->response_id);
    snprintf(s->response_id, sizeof s->response_id, "%s", response->response_id);
    s->held = RS_HELD_GRANTED;
    s->path_bound_at = RS_NEVER;
    s->group_address = response->group;
    s->accepted_size = response->accepted_size;
    snprintf(words, sizeof words, "%s path, group %s%s%.180s", kind_text(response->kind),
             rs_address_text(response->group, address), response->reason[0] ? ": " : "", response->reason);
    rs_sending_tell_phase(agent, s, "accepted", words);
}

static void granted(rs_agent *agent, rs_sending *s, const rs_link_response *response) {
    uint16_t port = response->data_port ? response->data_port : agent->options.data_port;
    note_grant(agent, s, response);
    s->group = rs_data_use(agent->data, response->group, port);
    learn_addresses(agent, response);
    const rs_path_grant grant = {.group = s->group,
                                 .group_address = response->group,
                                 .data_port = port,
                                 .accepted_size = response->accepted_size,
                                 .kind = response->kind,
                                 .reconfiguration = response->reconfiguration,
                                 .rate_bps = response->rate_bps,
                                 .light_bound = response->light_bound};
    rs_status status = s->group == RS_NO_GROUP
                           ? RS_ERR_LIMIT
                           : rs_path_granted(agent->node, rs_agent_now(agent), s->base.xfer, &grant);
    if (status == RS_OK) {
        s->ever_granted = true;
        return;
    }
    rs_log(RS_LOG_ERROR, "send", "object=%s the core cannot use the path: %s", rs_id_text(&s->base.id),
           rs_strerror(status));
    rs_paths_give_back(agent, s);
    s->failure = ROSTRUM_ERR_LIMIT;
    rs_path_denied(agent->node, rs_agent_now(agent), s->base.xfer,
                   "the granted path cannot be used: too many at a time");
}

static void on_response(void *context, const rs_link_response *response) {
    rs_agent *agent = context;
    rs_sending *s = rs_sending_find_request(agent, response->request_id);
    if (!s || s->held != RS_HELD_REQUESTED)
        return; /* the link itself gives back what nobody asked for any more */
    switch (response->decision) {
    case RS_LINK_ACCEPTED:
        granted(agent, s, response);
        break;
    case RS_LINK_QUEUED:
        snprintf(s->queued_for, sizeof s->queued_for, "%s", response->reason);
        rs_sending_tell_phase(agent, s, "queued", response->reason);
        break;
    case RS_LINK_DENIED:
        rs_log(RS_LOG_WARNING, "send", "object=%s denied=%s", rs_id_text(&s->base.id), rs_quote(response->reason));
        fail_path(agent, s, rs_link_up(agent->link) ? ROSTRUM_ERR_DENIED : ROSTRUM_ERR_UNAVAILABLE, response->reason);
        break;
    }
}

static void tell_log(rs_agent *agent, const rs_sending *s, const char *words) {
    rostrum_event event = {.kind = ROSTRUM_EVENT_LOG, .sending = true, .size = s->result.size};
    snprintf(event.words, sizeof event.words, "%s", words);
    rs_api_event(agent->api, &s->base.id, &event);
}

static void on_moved(void *context, const char *response_id, rs_path_kind kind, const char *reason) {
    rs_agent *agent = context;
    rs_sending *s = rs_sending_find_response(agent, response_id);
    if (!s)
        return;
    rs_log(RS_LOG_WARNING, "send", "object=%s moved_to=%s reason=%s", rs_id_text(&s->base.id), kind_text(kind),
           rs_quote(reason));
    s->result.path = kind == RS_PATH_CIRCUIT ? ROSTRUM_PATH_CIRCUIT : ROSTRUM_PATH_PACKET;
    snprintf(s->result.reason, sizeof s->result.reason, "%s", reason);
    char words[ROSTRUM_WORDS_MAX + 1];
    snprintf(words, sizeof words, "the path moved to a %s path: %.180s", kind_text(kind), reason);
    tell_log(agent, s, words);
    rs_path_moved(agent->node, rs_agent_now(agent), s->base.xfer, kind);
}

static void on_failed(void *context, const char *response_id, const char *reason) {
    rs_agent *agent = context;
    rs_sending *s = rs_sending_find_response(agent, response_id);
    if (!s)
        return;
    rs_log(RS_LOG_WARNING, "send", "object=%s path_failed=%s", rs_id_text(&s->base.id), rs_quote(reason));
    char words[ROSTRUM_WORDS_MAX + 1];
    snprintf(words, sizeof words, "the path failed: %.200s", reason);
    tell_log(agent, s, words);
    rs_path_failed(agent->node, rs_agent_now(agent), s->base.xfer, reason);
}

static bool live_path(void *context, uint32_t index, rs_link_live_path *out) {
    static const char *names[RS_LINK_RECEIVERS_MAX]; /* must hold until the next call */
    rs_agent *agent = context;
    for (rs_transfer *t = agent->transfers.sending; t; t = t->next) {
        const rs_sending *s = rs_sending_of(t);
        if (s->held != RS_HELD_GRANTED || index-- > 0)
            continue;
        uint32_t count = s->receiver_count < RS_LINK_RECEIVERS_MAX ? s->receiver_count : RS_LINK_RECEIVERS_MAX;
        for (uint32_t i = 0; i < count; i++)
            names[i] = s->receivers[i].name;
        *out = (rs_link_live_path){.request_id = s->request_id,
                                   .response_id = s->response_id,
                                   .group = s->group_address,
                                   .kind = s->result.path == ROSTRUM_PATH_CIRCUIT ? RS_PATH_CIRCUIT : RS_PATH_PACKET,
                                   .receivers = names,
                                   .receiver_count = count,
                                   .accepted_size = s->accepted_size};
        return true;
    }
    return false;
}

static void on_state(void *context, bool up, const char *words) {
    (void)context;
    rs_log(up ? RS_LOG_INFO : RS_LOG_WARNING, "manager", "up=%d words=%s", up, rs_quote(words));
}

static void on_goodbye(void *context, const char *reason) {
    (void)context;
    rs_log(RS_LOG_ERROR, "manager", "it refuses this agent: %s", rs_quote(reason));
}

static void watch(void *context, int fd, unsigned wants) {
    rs_agent *agent = context;
    uint32_t events =
        ((wants & RS_LINK_READ) ? (uint32_t)EPOLLIN : 0) | ((wants & RS_LINK_WRITE) ? (uint32_t)EPOLLOUT : 0);
    if (fd < 0)
        rs_loop_unwatch(agent->loop, &agent->link_watch);
    else if (!rs_loop_watch(agent->loop, &agent->link_watch, fd, events))
        rs_log(RS_LOG_ERROR, "manager", "cannot watch the connection");
}

void rs_paths_link_callbacks(rs_agent *agent, rs_link_callbacks *callbacks) {
    *callbacks = (rs_link_callbacks){.context = agent,
                                     .watch = watch,
                                     .on_state = on_state,
                                     .on_response = on_response,
                                     .on_moved = on_moved,
                                     .on_failed = on_failed,
                                     .on_goodbye = on_goodbye,
                                     .live_path = live_path};
}
