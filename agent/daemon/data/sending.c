/* Sends of the applications: from the request to the answer. */
#include "daemon/data/sending.h"
#include "daemon/api/waits.h"

#include "daemon/api/server.h"
#include "daemon/data/journal.h"
#include "daemon/data/overlay.h"
#include "daemon/data/paths.h"
#include "daemon/data/sites.h"
#include "daemon/secure.h"
#include "daemon/store/digest.h"
#include "daemon/streams/send.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the link, beside a send: what its receivers fetch that kept pieces of it, and what others do. */
#define SPARE_PART 8u
#define STRANGERS_SPARE_PART 32u
#define REPORT_GAP (50 * RS_MILLISECOND)  /* between two reports to the manager, at least, and... */
#define REPORT_EACH (50 * RS_MICROSECOND) /* ...for each receiver: a report names all, which takes 0.4 us each */
#define PROGRESS_EVERY (100 * RS_MILLISECOND)

static void copy_text(char *out, const char *text) {
    snprintf(out, ROSTRUM_TEXT_MAX + 1, "%s", text);
}

static rs_send_state *first_sending(rs_agent *agent) {
    return rs_sending_of(agent->transfers.sending);
}

static rs_send_state *next_sending(rs_send_state *sending) {
    return rs_sending_of(sending->base.next);
}

/* Where a peer is in the index, or belongs. */
static uint32_t place_in_index(const rs_send_state *s, rs_peer peer) {
    uint32_t at = peer * UINT32_C(2654435761) & s->index_mask;
    while (s->index[at] && s->peers[s->index[at] - 1] != peer)
        at = (at + 1) & s->index_mask;
    return at;
}

int64_t rs_sending_receiver(const rs_send_state *sending, rs_peer peer) {
    return (int64_t)sending->index[place_in_index(sending, peer)] - 1;
}

/* ------------------------------------------------------------------------------------------- telling the manager */

static const char *const state_names[] = {
    [ROSTRUM_RECEIVER_WAITING] = "waiting", [ROSTRUM_RECEIVER_RECEIVING] = "receiving",
    [ROSTRUM_RECEIVER_DONE] = "done",       [ROSTRUM_RECEIVER_FAILED] = "failed",
    [ROSTRUM_RECEIVER_LEFT] = "left",
};

static void sample(rs_agent *agent, rs_send_state *s) {
    rs_xfer_stats stats;
    if (s->spread)
        rs_sites_sample(agent->sites, s);
    if (rs_xfer_stats_get(agent->node, s->base.xfer, &stats) != RS_OK)
        return; /* closed in the core: the last sample stands */
    s->stats = stats;
    if (stats.rate_bps > s->result.rate_bps)
        s->result.rate_bps = stats.rate_bps;
}

void rs_report_later(rs_agent *agent, rs_send_state *s) {
    if (s->report_at == RS_NEVER && s->ever_granted)
        s->report_at = rs_agent_now(agent) + REPORT_GAP + REPORT_EACH * s->receiver_count;
}

static const char *phase_name(const rs_send_state *s) {
    if (s->final_phase)
        return s->final_phase;
    return s->phase == RS_PHASE_PATCHING || s->phase == RS_PHASE_DONE ? "patching"
           : s->phase == RS_PHASE_HIGH_RATE                           ? "high-rate"
                                                                      : "attempt";
}

void rs_report_now(rs_agent *agent, rs_send_state *s) {
    s->report_at = RS_NEVER;
    if (!s->ever_granted || !agent->link)
        return; /* the manager knows what it did not grant */
    rs_manager_receiver_report *receivers = calloc(s->receiver_count, sizeof *receivers);
    if (!receivers)
        return;
    for (uint32_t i = 0; i < s->receiver_count; i++) {
        const rostrum_receiver *from = &s->receivers[i];
        receivers[i] = (rs_manager_receiver_report){.server = from->name,
                                                    .state = state_names[from->state],
                                                    .cause = from->cause,
                                                    .initial_sn = from->initial_sn,
                                                    .patched_fragments = from->patched_fragments,
                                                    .first_light_ns = from->first_light_ns,
                                                    .complete_ns = from->complete_ns};
    }
    sample(agent, s);
    const rs_manager_report_params report = {.request_id = s->request_id,
                                             .response_id = s->response_id,
                                             .phase = phase_name(s),
                                             .cause = s->result.cause,
                                             .bytes = s->result.size,
                                             .sent_packets = s->stats.packets_sent,
                                             .redundant_packets = s->stats.packets_redundant,
                                             .patched_packets = s->stats.patches_sent + s->stats.repairs_sent,
                                             .receivers = receivers,
                                             .receiver_count = s->receiver_count};
    rs_manager_report(agent->link, rs_agent_now(agent), &report);
    free(receivers);
}

/* ----------------------------------------------------------------------------------------------- telling clients */

static rostrum_event blank_event(const rs_agent *agent, const rs_send_state *s, rostrum_event_kind kind) {
    (void)agent;
    uint64_t streamed = s->base.source ? rs_stream_source_bytes(s->base.source) : 0;
    return (rostrum_event){.kind = kind,
                           .sending = true,
                           .size = s->base.source ? streamed : s->result.size,
                           .session = s->result.sessions ? s->result.sessions - 1 : 0,
                           .bytes = s->base.source ? streamed : s->stats.bytes_present,
                           .rate_bps = s->stats.rate_bps,
                           .receivers = s->receiver_count,
                           .receivers_done = s->stats.receivers_done,
                           .receivers_failed = s->stats.receivers_failed};
}

void rs_sending_tell_phase(rs_agent *agent, rs_send_state *s, const char *phase, const char *text) {
    rs_log(RS_LOG_INFO, "send", "object=%s phase=%s%s%s", rs_id_text(&s->base.id), phase, text[0] ? " text=" : "",
           text[0] ? rs_quote(text) : "");
    if (s->leg)
        return; /* its whole tells what matters */
    rostrum_event event = blank_event(agent, s, ROSTRUM_EVENT_PHASE);
    snprintf(event.subject, sizeof event.subject, "%s", phase);
    copy_text(event.text, text);
    rs_api_event(agent->api, &s->base.id, &event);
}

void rs_sending_tell_receiver(rs_agent *agent, rs_send_state *s, const rostrum_receiver *receiver) {
    if (s->leg) {
        rs_sites_receiver(agent->sites, s, receiver);
        rs_report_later(agent, s);
        return;
    }
    if (s->relayed)
        rs_sites_relay_changed(agent->sites, s);
    sample(agent, s);
    rostrum_event event = blank_event(agent, s, ROSTRUM_EVENT_RECEIVER);
    event.state = receiver->state;
    event.sn = receiver->initial_sn;
    snprintf(event.subject, sizeof event.subject, "%s", receiver->name);
    copy_text(event.text, receiver->cause);
    rs_api_event(agent->api, &s->base.id, &event);
    rs_report_later(agent, s);
}

static void tell_progress(rs_agent *agent, rs_send_state *s) {
    sample(agent, s);
    if (s->leg || !rs_api_event_wanted(agent->api, &s->base.id))
        return;
    rostrum_event event = blank_event(agent, s, ROSTRUM_EVENT_PROGRESS);
    rs_api_event(agent->api, &s->base.id, &event);
}

/* ------------------------------------------------------------------------------------------------------- starting */

static void free_sending(rs_agent *agent, rs_send_state *s) {
    rs_data_forget(agent->data, s->base.xfer);
    rs_overlay_transfer_over(agent->overlay, s->base.xfer);
    for (uint32_t i = 0; i < s->receiver_count; i++)
        rs_peers_release(&agent->peers, s->peers[i]);
    if (s->base.object)
        rs_store_release(s->base.object);
    rs_stream_source_free(s->base.source);
    rs_sites_spread_free(agent->sites, s->spread);
    free(s->index);
    free(s->peers);
    free(s->receivers);
    free(s->dark);
    free(s->parts);
    free(s->options);
    free(s);
}

/* A number for each receiver, which it keeps until the transfer is over. */
static bool number_receivers(rs_agent *agent, rs_send_state *s, const rs_api_send *send) {
    for (uint32_t i = 0; i < send->receiver_count; i++) {
        rs_peer peer = rs_peers_number(&agent->peers, send->receivers[i]);
        if (peer == RS_NO_PEER)
            return false;
        rs_peers_hold(&agent->peers, peer);
        s->peers[i] = peer;
        s->receiver_count = i + 1;
        uint32_t at = place_in_index(s, peer);
        s->index[at] = s->index[at] ? s->index[at] : i + 1;
        snprintf(s->receivers[i].name, sizeof s->receivers[i].name, "%s", send->receivers[i]);
    }
    return true;
}

rs_protocol rs_sending_engine(rostrum_protocol protocol) {
    return protocol == ROSTRUM_PROTOCOL_AUTO ? RS_PROTOCOL_REPUBLIC
                                             : (rs_protocol)((int)protocol - ROSTRUM_PROTOCOL_REPUBLIC);
}

static rostrum_protocol of_streams(void) {
    uint32_t engine = 0;
    while (engine + 1 < RS_ENGINES_MOST && !rs_engine_has(engine, RS_ENGINE_STREAMS))
        engine++;
    return (rostrum_protocol)(ROSTRUM_PROTOCOL_REPUBLIC + engine);
}

static rs_send_state *new_sending(rs_agent *agent, const rs_api_send *send) {
    rs_send_state *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    while (s->index_mask < 2 * send->receiver_count)
        s->index_mask = 2 * s->index_mask + 1;
    s->index = calloc(s->index_mask + (size_t)1, sizeof *s->index);
    s->peers = calloc(send->receiver_count, sizeof *s->peers);
    s->receivers = calloc(send->receiver_count, sizeof *s->receivers);
    s->dark = calloc(send->receiver_count, sizeof *s->dark);
    s->parts = calloc(send->receiver_count, sizeof *s->parts);
    s->base.sending = true;
    s->base.id = send->id;
    s->call = send->call;
    s->wait_ms = send->wait_ms;
    s->stragglers = send->stragglers;
    s->protocol = send->object ? send->protocol : of_streams();
    s->deadline = send->deadline_ms ? rs_agent_now(agent) + (rs_time)send->deadline_ms * RS_MILLISECOND : RS_NEVER;
    s->path.group = s->next_path.group = RS_NO_GROUP;
    s->options = strdup(send->options ? send->options : "");
    s->report_at = RS_NEVER;
    s->failure = ROSTRUM_ERR_FAILED;
    s->result = (rostrum_send_result){.data_id = send->id.data,
                                      .size = send->object ? send->object->size : 0,
                                      .requested_ns = rs_wall_clock(),
                                      .fragment_size = agent->fragment_size,
                                      .receivers = s->receivers,
                                      .receiver_count = send->receiver_count};
    if (!s->index || !s->peers || !s->receivers || !s->dark || !s->parts || !s->options ||
        !number_receivers(agent, s, send)) {
        free_sending(agent, s);
        return NULL;
    }
    return s;
}

/* Why this send cannot be started, or NULL. */
static const char *cannot_start(const rs_agent *agent, const rs_api_send *send, rostrum_code *code, char *text,
                                size_t size) {
    *code = ROSTRUM_ERR_INVALID;
    for (uint32_t i = 0; i < send->receiver_count; i++) {
        if (strcmp(send->receivers[i], agent->options.server) == 0) {
            snprintf(text, size, "%s is the sender and has the object already: leave it out of the receivers",
                     agent->options.server);
            return text;
        }
    }
    uint32_t streams = 0;
    for (const rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        streams += t->source != NULL;
    *code = ROSTRUM_ERR_LIMIT;
    if (!send->object && streams >= RS_STREAMS_MOST)
        return "as many streams as an agent takes are being sent from here already";
    *code = ROSTRUM_ERR_UNAVAILABLE;
    if (agent->stopping)
        return "this agent is ending";
    if (!agent->link && !agent->lan)
        return "this agent was started without a manager (--manager), and not told to do without (--standalone true): "
               "it can receive but not send";
    return NULL;
}

/* Of what is being added it follows; a stream has none. */
static rs_digest digest_of(const rs_agent *agent, const rs_object *object) {
    if (!object)
        return (rs_digest){0};
    if (object->phase == RS_OBJECT_RECEIVING)
        return rs_sites_digest(agent->sites, object);
    return object->phase == RS_OBJECT_DIGESTING ? (rs_digest){.algorithm = agent->options.digest_algorithm}
                                                : object->digest;
}

static const rs_send_state *being_sent(const rs_agent *agent, const rs_object_id *id) {
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        if (memcmp(&t->id, id, sizeof *id) == 0)
            return rs_sending_of(t);
    return NULL;
}

static void take_object(rs_agent *agent, rs_send_state *s, rs_object *object) {
    s->base.object = object;
    if (object)
        rs_store_hold(object);
    rs_transfers_add(&agent->transfers, &s->base);
    s->base.progress_at = rs_agent_now(agent) + PROGRESS_EVERY;
}

/* Opens it in the core. False: with the reason. */
static bool open_transfer(rs_agent *agent, rs_send_state *s, const rs_api_send *send, bool beside, rostrum_code *code,
                          char *text) {
    const rs_send_params params = {.object = send->id,
                                   .size = send->object ? send->object->size : RS_STREAM,
                                   .digest = digest_of(agent, send->object),
                                   .receivers = s->peers,
                                   .receiver_count = s->receiver_count,
                                   .stragglers = (rs_straggler_policy)send->stragglers,
                                   .protocol = rs_sending_engine(s->protocol),
                                   .options = send->options,
                                   .grows = send->object && send->object->phase == RS_OBJECT_RECEIVING,
                                   .beside = beside};
    rs_status status = rs_send_open(agent->node, rs_agent_now(agent), &params, &s->base.xfer);
    if (status != RS_OK) {
        *code = status == RS_ERR_EXISTS  ? ROSTRUM_ERR_EXISTS
                : status == RS_ERR_LIMIT ? ROSTRUM_ERR_LIMIT
                                         : ROSTRUM_ERR_INVALID;
        snprintf(text, ROSTRUM_TEXT_MAX + 1, "cannot send %s %s: %s", send->object ? "object" : "stream",
                 rs_id_text(&send->id),
                 status == RS_ERR_EXISTS ? "it is being sent from here already" : rs_strerror(status));
        return false;
    }
    if (send->object)
        rs_send_leaves(agent->node, s->base.xfer, send->object->leaves, send->object->leaf_count);
    return true;
}

/* Where there are several sites an object goes by legs, of which the manager tells, and otherwise by itself. NULL: it
 * was not begun, with the reason. */
static rs_send_state *begin(rs_agent *agent, const rs_api_send *send, struct rs_leg *leg, bool relayed,
                            rostrum_code *code, char *message) {
    char text[ROSTRUM_TEXT_MAX + 1];
    const char *cause = cannot_start(agent, send, code, text, sizeof text);
    bool spreads = !cause && !leg && send->object && rs_sites_several(agent->sites);
    if (!cause && send->options && send->options[0]) {
        *code = ROSTRUM_ERR_INVALID;
        if (send->protocol == ROSTRUM_PROTOCOL_AUTO)
            cause = "options of a send are its protocol's: name one, such as wan";
        else if (!rs_send_options_good(agent->node, rs_sending_engine(send->protocol), send->options, text,
                                       sizeof text))
            cause = text;
    }
    if (spreads && being_sent(agent, &send->id)) {
        *code = ROSTRUM_ERR_EXISTS;
        snprintf(text, sizeof text, "cannot send object %s: it is being sent from here already", rs_id_text(&send->id));
        cause = text;
    }
    if (cause) {
        snprintf(message, ROSTRUM_TEXT_MAX + 1, "%s", cause);
        return NULL;
    }
    rs_send_state *s = new_sending(agent, send);
    if (!s) {
        *code = ROSTRUM_ERR_LIMIT;
        snprintf(message, ROSTRUM_TEXT_MAX + 1, "no memory or no room for %u receivers", send->receiver_count);
        return NULL;
    }
    s->leg = leg;
    s->relayed = relayed;
    if (!spreads && !open_transfer(agent, s, send, leg || relayed, code, message)) {
        free_sending(agent, s);
        return NULL;
    }
    take_object(agent, s, send->object);
    if (spreads && !rs_sites_spread(agent->sites, s)) {
        *code = ROSTRUM_ERR_LIMIT;
        snprintf(message, ROSTRUM_TEXT_MAX + 1, "no memory for legs");
        rs_transfers_remove(&agent->transfers, &s->base);
        free_sending(agent, s);
        return NULL;
    }
    return s;
}

rs_send_state *rs_sending_leg(rs_agent *agent, const rs_api_send *send, struct rs_leg *leg, char *text) {
    rostrum_code code;
    return begin(agent, send, leg, false, &code, text);
}

rs_send_state *rs_sending_relayed(rs_agent *agent, const rs_api_send *send, bool relayed, char *text) {
    rostrum_code code;
    return begin(agent, send, NULL, relayed, &code, text);
}

/* ------------------------------------------------------------------------------------------------------- a restart */

static rs_sent_from source_of(const rs_object *object, char path[RS_STORE_PATH_SIZE], int64_t *changed_ns) {
    struct stat info;
    rs_error error;
    path[0] = '\0';
    if (object->on_disk)
        return RS_SENT_FROM_STORE;
    if (object->received || object->handle || fstat(object->fd, &info) < 0 ||
        !rs_store_reader_path(object, geteuid(), path, &error))
        return RS_SENT_FROM_MEMORY;
    *changed_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    return RS_SENT_FROM_FILE;
}

/* `use` gets it, with the receivers that are not served: all, while it goes on. */
static void with_record(rs_agent *agent, const rs_send_state *s, bool over,
                        void (*use)(rs_agent *agent, const rs_send_record *record)) {
    char path[RS_STORE_PATH_SIZE];
    const rs_object *object = s->base.object;
    const char **receivers = calloc(s->receiver_count, sizeof *receivers);
    rs_send_record record = {.id = s->base.id,
                             .size = object->size,
                             .root = {.algorithm = agent->options.digest_algorithm},
                             .began_ns = s->began_ns,
                             .wait_ms = s->wait_ms,
                             .protocol = (uint8_t)s->protocol,
                             .stragglers = (uint8_t)s->stragglers,
                             .path = path,
                             .name = object->name ? object->name : "",
                             .options = s->options,
                             .receivers = receivers};
    record.from = source_of(object, path, &record.changed_ns);
    if (object->phase == RS_OBJECT_COMPLETE)
        record.root = object->digest;
    for (uint32_t i = 0; receivers && i < s->receiver_count; i++)
        if (!over || (s->receivers[i].state != ROSTRUM_RECEIVER_DONE && s->receivers[i].state != ROSTRUM_RECEIVER_LEFT))
            receivers[record.receiver_count++] = s->receivers[i].name;
    if (receivers)
        use(agent, &record);
    free(receivers);
}

static void write_down(rs_agent *agent, const rs_send_record *record) {
    rs_journal_write(agent->journal, record);
}

/* It is told to the journal what to go on with after a restart. */
static void of_program(rs_send_state *s, const rs_api_send *send, int64_t began_ns) {
    if (send->object)
        s->in_journal = RS_JOURNAL_DUE;
    s->began_ns = began_ns;
}

static bool has_receiver(const rs_agent *agent, const rs_send_state *s, const char *name) {
    rs_peer peer = rs_peers_find(&agent->peers, name);
    bool has = peer != RS_NO_PEER && rs_sending_receiver(s, peer) >= 0;
    for (uint32_t i = 0; !has && i < s->receiver_count; i++) /* its peer has another name by now */
        has = strcmp(s->receivers[i].name, name) == 0;
    return has;
}

static bool same_receivers(const rs_agent *agent, const rs_send_state *s, const rs_api_send *send) {
    bool same = send->receiver_count == s->receiver_count; /* and none is named twice */
    for (uint32_t i = 0; same && i < send->receiver_count; i++)
        same = has_receiver(agent, s, send->receivers[i]);
    return same;
}

/* A program sends what goes on after a restart anyway: it is told of that one's end. */
static bool goes_on_anyway(rs_agent *agent, const rs_api_send *send) {
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next) {
        rs_send_state *s = rs_sending_of(t);
        if (s->in_journal != RS_JOURNAL_RESUMED || memcmp(&t->id, &send->id, sizeof send->id) != 0 ||
            !same_receivers(agent, s, send))
            continue;
        s->in_journal = RS_JOURNAL_WRITTEN;
        s->call = send->call;
        return true;
    }
    (void)rs_journal_forget(agent->journal, &send->id);
    return false;
}

static void try_again(rs_agent *agent, const rs_send_record *rest) {
    rs_journal_over(agent->journal, rs_agent_now(agent), &rest->id, rest->receiver_count > 0 ? rest : NULL);
}

/* One that an agent's end stops goes on when it is started again. */
static void no_longer_written(rs_agent *agent, const rs_send_state *s, bool ok) {
    if (agent->stopping || s->in_journal < RS_JOURNAL_WRITTEN)
        return;
    if (!ok && s->in_journal == RS_JOURNAL_RESUMED && s->failure != ROSTRUM_ERR_CANCELLED && s->base.object)
        with_record(agent, s, true, try_again);
    else
        rs_journal_over(agent->journal, rs_agent_now(agent), &s->base.id, NULL);
}

static bool send_again(void *context, const rs_send_record *record, rs_object *object, char *text) {
    rs_agent *agent = context;
    rostrum_code code;
    const rs_api_send send = {.id = record->id,
                              .object = object,
                              .stream = -1,
                              .process = "restart",
                              .wait_ms = record->wait_ms,
                              .stragglers = (rostrum_straggler_policy)record->stragglers,
                              .protocol = (rostrum_protocol)record->protocol,
                              .options = record->options,
                              .receiver_count = record->receiver_count,
                              .receivers = record->receivers};
    rs_send_state *s = begin(agent, &send, NULL, NULL, &code, text);
    if (!s)
        return false;
    of_program(s, &send, record->began_ns);
    s->in_journal = RS_JOURNAL_RESUMED;
    if (!object->name && record->name[0])
        rs_store_rename(object, record->name);
    return true;
}

static rs_object *add_again(void *context, const rs_object_id *id, int fd, rs_error *error) {
    rs_agent *agent = context;
    return rs_api_add_again(agent->api, id, fd, error);
}

static void drop_again(void *context, const rs_object_id *id) {
    rs_agent *agent = context;
    rs_error error;
    (void)rs_api_drop(agent->api, id, &error);
}

rs_journal *rs_sending_journal(rs_agent *agent) {
    const rs_journal_config config = {.directory = agent->options.disk_directory,
                                      .store = agent->store,
                                      .clock = rs_wall_clock,
                                      .add = add_again,
                                      .drop = drop_again,
                                      .start = send_again,
                                      .context = agent};
    return rs_journal_new(&config, rs_agent_now(agent));
}

/* -------------------------------------------------------------------------------------------- programs */

void rs_sending_api(void *context, const rs_api_send *send) {
    rs_agent *agent = context;
    char text[ROSTRUM_TEXT_MAX + 1];
    rostrum_code code;
    if (send->object && goes_on_anyway(agent, send))
        return;
    rs_send_state *s = begin(agent, send, NULL, NULL, &code, text);
    if (!s) {
        rs_api_reply_error(agent->api, &send->call, code, "%s", text);
        if (send->stream >= 0)
            close(send->stream);
        return;
    }
    of_program(s, send, s->result.requested_ns);
    if (!send->object && !(s->base.source = rs_stream_source_new(agent, s, send->stream)))
        rs_sending_cancel(agent, &s->base, "no memory for a stream");
    rs_log(RS_LOG_INFO, "send", "%s=%s phase=requested bytes=%llu receivers=%u process=%s",
           send->object ? "object" : "stream", rs_id_text(&s->base.id), (unsigned long long)s->result.size,
           s->receiver_count, rs_quote(send->process));
    rostrum_event event = blank_event(agent, s, ROSTRUM_EVENT_PHASE);
    snprintf(event.subject, sizeof event.subject, "requested");
    rs_api_event(agent->api, &s->base.id, &event);
}

void rs_sending_count(rs_transfer_entry *transfer, const rs_packet_out *out) {
    uint64_t end = out->payload_offset + out->payload_length;
    rs_sending_of(transfer)->result.bytes_sent += out->payload_length;
    if (transfer->object && out->payload_length > 0 && end > transfer->object->sent)
        transfer->object->sent = end;
}

void rs_sending_cancel(rs_agent *agent, rs_transfer_entry *transfer, const char *cause) {
    rs_sending_of(transfer)->failure = ROSTRUM_ERR_CANCELLED;
    if (rs_sending_of(transfer)->spread) {
        rs_sites_cancel(agent->sites, rs_sending_of(transfer), cause);
        return;
    }
    rs_send_cancel(agent->node, rs_agent_now(agent), transfer->xfer, cause);
}

void rs_sending_added_api(void *context, const rs_object *object) {
    rs_agent *agent = context;
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        if (t->object == object) {
            rs_send_leaves(agent->node, t->xfer, object->leaves, object->leaf_count);
            rs_send_digest(agent->node, rs_agent_now(agent), t->xfer, &object->digest);
            if (rs_sending_of(t)->in_journal >= RS_JOURNAL_WRITTEN)
                with_record(agent, rs_sending_of(t), false, write_down);
        }
}

void rs_sending_unreadable_api(void *context, const rs_object *object, const char *text) {
    rs_agent *agent = context;
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        if (t->object == object)
            rs_sending_cancel(agent, t, text);
}

void rs_sending_cancel_api(void *context, const rs_api_call *call, const rs_object_id *id) {
    rs_agent *agent = context;
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        if (memcmp(&t->id, id, sizeof *id) == 0 && !rs_sending_of(t)->leg) {
            rs_sending_cancel(agent, t, "an application there asked for it");
            rs_api_reply_ok(agent->api, call);
            return;
        }
    if (rs_journal_forget(agent->journal, id))
        rs_api_reply_ok(agent->api, call);
    else
        rs_api_reply_error(agent->api, call, ROSTRUM_ERR_UNKNOWN, "object %s is not being sent from here",
                           rs_id_text(id));
}

uint32_t rs_sending_spare_part(const rs_agent *agent, const rs_object_id *id, const char *name) {
    const rs_send_state *s = being_sent(agent, id);
    if (!s || s->phase >= RS_PHASE_DONE)
        return 0;
    bool flows = s->phase < RS_PHASE_PATCHING;
    for (uint32_t i = 0; i < s->receiver_count; i++)
        if (strcmp(s->receivers[i].name, name) == 0)
            return flows ? SPARE_PART : 0;
    return flows ? STRANGERS_SPARE_PART : SPARE_PART;
}

uint32_t rs_sending_runs(void *context, const rs_object_id *id, const char *name, rs_piece_message *out,
                         uint32_t most) {
    rs_agent *agent = context;
    const rs_send_state *s = being_sent(agent, id);
    uint64_t nonce;
    uint32_t count = 0;
    bool sends = s && (s->base.object || s->base.source) && !s->spread && s->path.state == RS_PATH_STATE_GRANTED &&
                 s->phase < RS_PHASE_DONE;
    if (!sends || most == 0 || rs_send_nonce(agent->node, s->base.xfer, &nonce) != RS_OK)
        return 0;
    bool heard = s->path.group_address != 0 && s->path.kind == RS_PATH_PACKET && s->phase < RS_PHASE_PATCHING;
    for (uint32_t i = 0; i < s->receiver_count; i++)
        if (strcmp(s->receivers[i].name, name) == 0)
            return 0; /* it is a receiver */
    if (agent->link && heard)
        (void)rs_link_receiver_change(agent->link, rs_agent_now(agent), s->path.response_id, name, true);
    count = heard ? rs_secure_tell(agent, nonce, out, most - 1) : 0;
    out[count++] = (rs_piece_message){.type = RS_PIECE_RUNS, /* and is to be spared, heard or not */
                                      .address = heard ? s->path.group_address : 0,
                                      .port = s->path.data_port,
                                      .nonce = nonce,
                                      .fragment_size = agent->fragment_size};
    for (uint32_t i = 0; i < s->receiver_count && count < most; i++) {
        const rs_peer_entry *entry = rs_peers_entry(&agent->peers, s->peers[i]);
        if (s->receivers[i].state >= ROSTRUM_RECEIVER_FAILED || !entry || !entry->address || !entry->control_port)
            continue;
        out[count] = (rs_piece_message){
            .type = RS_PIECE_PEER, .address = entry->address, .port = (uint16_t)(entry->control_port + 1)};
        snprintf(out[count++].name, RS_PIECE_NAME, "%.63s", s->receivers[i].name);
    }
    if (heard)
        rs_log(RS_LOG_INFO, "send", "object=%s heard_by=%s", rs_id_text(id), rs_quote(name));
    return count;
}

/* A receiver's copy of a chunk stays wrong: are the bytes here still those whose digest was told? */
static void retake(rs_agent *agent, const rs_send_state *s, const rs_event *event) {
    const rs_object *object = s->base.object;
    if (!object || !object->leaves)
        return; /* it is not whole here */
    const rs_digest *digest = &object->digest;
    uint8_t leaf[sizeof digest->value];
    bool same = rs_digest_leaf(digest->algorithm, object->map, object->size, event->sn, leaf) &&
                memcmp(leaf, object->leaves + event->sn * digest->length, digest->length) == 0;
    agent->digest_chunks_retaken++;
    rs_log(RS_LOG_WARNING, "send", "object=%s chunk=%llu is wrong at %s again and again; the bytes here are %s",
           rs_id_text(&s->base.id), (unsigned long long)event->sn, rs_quote(rs_peers_name(&agent->peers, event->peer)),
           same ? "unchanged" : "others than were digested");
    rs_send_retaken(agent->node, rs_agent_now(agent), s->base.xfer, event->peer, event->sn, same);
}

/* --------------------------------------------------------------------------------------------------------- ending */

static void answer(rs_agent *agent, rs_send_state *s, bool ok, const char *cause) {
    rostrum_send_result *result = &s->result;
    result->ok = ok;
    result->done_ns = rs_wall_clock();
    copy_text(result->cause, ok ? "" : cause);
    result->packets_sent = s->stats.packets_sent;
    result->packets_attempt = s->stats.packets_attempt;
    result->packets_redundant = s->stats.packets_redundant;
    result->packets_patched = s->stats.patches_sent;
    result->packets_repair = s->stats.repairs_sent;
    result->losses_repaired = s->stats.repairs_mended;
    result->acks_received = s->stats.acks_received;
    /* Who cancels learns the same whether a path had been granted yet or not. */
    if (!s->ever_granted && !ok && s->failure != ROSTRUM_ERR_CANCELLED)
        rs_api_reply_error(agent->api, &s->call, s->failure, "%s", cause);
    else
        rs_api_reply_send(agent->api, &s->call, result);
}

static const char *first_cause(const rs_send_state *s, const char *fallback) {
    if (fallback[0])
        return fallback;
    for (uint32_t i = 0; i < s->receiver_count; i++)
        if (s->receivers[i].state == ROSTRUM_RECEIVER_FAILED)
            return s->receivers[i].cause;
    return "it did not reach every receiver";
}

/* Whoever asked for it is told, and it is gone. */
static void end(rs_agent *agent, rs_send_state *s, bool ok, const char *cause) {
    char text[ROSTRUM_TEXT_MAX + 1];
    copy_text(text, cause);
    rs_transfers_remove(&agent->transfers, &s->base);
    no_longer_written(agent, s, ok);
    if (s->relayed)
        rs_sites_relay_over(agent->sites, s, ok, text);
    else if (s->leg)
        rs_sites_carried(agent->sites, s, ok, text);
    else
        answer(agent, s, ok, text);
    free_sending(agent, s);
}

void rs_sending_over(rs_agent *agent, rs_send_state *s, bool ok, const char *cause) {
    sample(agent, s);
    s->final_phase = ok ? "done" : "failed";
    rs_sending_tell_phase(agent, s, "done", cause);
    end(agent, s, ok, cause);
}

static void send_done(rs_agent *agent, rs_send_state *s, const rs_event *event) {
    const char *cause = event->ok ? "" : s->denial[0] && !s->ever_granted ? s->denial : first_cause(s, event->cause);
    sample(agent, s);
    rs_paths_give_back(agent, s);
    s->phase = RS_PHASE_DONE;
    if (s->base.source)
        s->result.size = rs_stream_source_bytes(s->base.source);
    s->final_phase = event->ok ? "done" : "failed";
    rs_totals_add(&agent->totals.sent, &s->stats, event->ok);
    copy_text(s->result.cause, cause);
    rs_report_now(agent, s);
    rs_sending_tell_phase(agent, s, "done", cause);
    end(agent, s, event->ok, cause);
}

/* --------------------------------------------------------------------------------------------------------- events */

static void phase_entered(rs_agent *agent, rs_send_state *s, rs_phase phase) {
    s->phase = phase;
    if (s->base.source)
        rs_stream_source_moved(s->base.source);
    if (phase == RS_PHASE_ATTEMPT)
        s->result.attempt_ns = rs_wall_clock();
    if (phase == RS_PHASE_HIGH_RATE)
        s->result.high_rate_ns = rs_wall_clock();
    const char *name = phase == RS_PHASE_ATTEMPT     ? "attempt"
                       : phase == RS_PHASE_HIGH_RATE ? "high-rate"
                       : phase == RS_PHASE_PATCHING  ? "patching"
                                                     : NULL;
    if (name)
        rs_sending_tell_phase(agent, s, name, "");
    rs_report_later(agent, s);
}

static void receiver_event(rs_agent *agent, rs_send_state *s, const rs_event *event) {
    int64_t index = rs_sending_receiver(s, event->peer);
    if (index < 0)
        return;
    rostrum_receiver *receiver = &s->receivers[index];
    switch (event->kind) {
    case RS_EV_FIRST_LIGHT:
        receiver->state = ROSTRUM_RECEIVER_RECEIVING;
        receiver->cause[0] = '\0'; /* it was dark */
        if (receiver->first_light_ns == 0) {
            receiver->first_light_ns = rs_wall_clock();
            receiver->initial_sn = event->sn;
        }
        rs_log(RS_LOG_INFO, "send", "object=%s light_at=%s sn=%llu", rs_id_text(&s->base.id), rs_quote(receiver->name),
               (unsigned long long)event->sn);
        break;
    case RS_EV_PEER_KEPT:
        receiver->state = ROSTRUM_RECEIVER_RECEIVING;
        rs_log(RS_LOG_INFO, "send", "object=%s goes_on_at=%s with what it kept", rs_id_text(&s->base.id),
               rs_quote(receiver->name));
        break;
    case RS_EV_PEER_DONE:
        receiver->state = ROSTRUM_RECEIVER_DONE;
        receiver->digest_ok = true;
        receiver->had_it = event->had_it;
        receiver->patched_fragments = event->bytes;
        if (event->bytes * s->result.fragment_size < s->result.size)
            receiver->cause[0] = '\0'; /* it was late, not dark: multicast packets came */
        receiver->complete_ns = rs_wall_clock();
        rs_log(RS_LOG_INFO, "send", "object=%s done_at=%s patched=%llu%s", rs_id_text(&s->base.id),
               rs_quote(receiver->name), (unsigned long long)event->bytes, event->had_it ? " had_it=1" : "");
        break;
    case RS_EV_PEER_LEFT:
        receiver->state = ROSTRUM_RECEIVER_LEFT;
        copy_text(receiver->cause, event->cause);
        if (agent->link && s->path.state == RS_PATH_STATE_GRANTED && s->path.kind == RS_PATH_PACKET)
            (void)rs_link_receiver_change(agent->link, rs_agent_now(agent), s->path.response_id, receiver->name, false);
        rs_log(RS_LOG_INFO, "send", "object=%s left_at=%s", rs_id_text(&s->base.id), rs_quote(receiver->name));
        break;
    default:
        receiver->state = ROSTRUM_RECEIVER_FAILED;
        copy_text(receiver->cause, event->cause);
        rs_log(RS_LOG_WARNING, "send", "object=%s failed_at=%s cause=%s", rs_id_text(&s->base.id),
               rs_quote(receiver->name), rs_quote(event->cause));
    }
    rs_sending_tell_receiver(agent, s, receiver);
}

void rs_sending_event(rs_agent *agent, const rs_event *event) {
    rs_transfer_entry *transfer = rs_transfers_find(&agent->transfers, event->xfer);
    if (!transfer || !transfer->sending)
        return;
    rs_send_state *s = rs_sending_of(transfer);
    int64_t index;
    switch (event->kind) {
    case RS_EV_RETAKE:
        retake(agent, s, event);
        break;
    case RS_EV_PATH_WANTED:
        if (!s->leg || !rs_sites_path(agent->sites, s, event->bytes))
            rs_paths_request(agent, s, event->bytes);
        break;
    case RS_EV_PHASE:
        phase_entered(agent, s, event->phase);
        break;
    case RS_EV_FIRST_LIGHT:
    case RS_EV_PEER_KEPT:
    case RS_EV_PEER_DONE:
    case RS_EV_PEER_FAILED:
    case RS_EV_PEER_LEFT:
        receiver_event(agent, s, event);
        break;
    case RS_EV_NO_LIGHT:
        index = rs_sending_receiver(s, event->peer);
        if (index >= 0 && !s->dark[index]) {
            s->dark[index] = true;
            s->dark_count++;
            snprintf(s->receivers[index].cause, sizeof s->receivers[index].cause,
                     "%.120s: it got the rest by unicast; look at its firewall and its IGMP or multicast filters",
                     event->cause);
        }
        break;
    case RS_EV_PATH_DONE:
        s->result.data_done_ns = rs_wall_clock();
        rs_paths_tell_dark(agent, s); /* while the path is still this one */
        sample(agent, s);
        rs_sending_tell_phase(agent, s, "data-done", "");
        rs_paths_session_over(agent, s);
        break;
    case RS_EV_SEND_DONE:
        send_done(agent, s, event);
        break;
    default:
        break;
    }
}

/* ----------------------------------------------------------------------------------------------------------- time */

rs_time rs_sending_deadline(const rs_agent *agent) {
    rs_time earliest = RS_NEVER;
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next) {
        const rs_send_state *s = rs_sending_of(t);
        rs_time own = rs_paths_deadline(s);
        own = s->report_at < own ? s->report_at : own;
        own = t->progress_at < own ? t->progress_at : own;
        own = s->dark_count > 0 ? rs_agent_now(agent) : own;
        earliest = own < earliest ? own : earliest;
    }
    return earliest;
}

void rs_sending_timeout(rs_agent *agent) {
    rs_time now = rs_agent_now(agent);
    for (rs_send_state *s = first_sending(agent); s; s = next_sending(s)) {
        if (s->dark_count > 0)
            rs_paths_tell_dark(agent, s);
        if (now >= rs_paths_deadline(s))
            rs_paths_timeout(agent, s);
        if (now >= s->report_at)
            rs_report_now(agent, s);
        if (now >= s->base.progress_at) {
            s->base.progress_at = now + PROGRESS_EVERY;
            if (s->in_journal == RS_JOURNAL_DUE) {
                s->in_journal = RS_JOURNAL_WRITTEN;
                with_record(agent, s, false, write_down);
            }
            tell_progress(agent, s);
        }
    }
}

void rs_sending_free_all(rs_agent *agent) {
    while (agent->transfers.sending) {
        rs_send_state *s = first_sending(agent);
        rs_transfers_remove(&agent->transfers, &s->base);
        free_sending(agent, s);
    }
}
