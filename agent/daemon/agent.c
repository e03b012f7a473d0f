/* The agent's parts put together, and the turn of its loop: what came in, what is due, then all that the core has to
 * say. */
#include "daemon/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "core/base/heap.h"
#include "core/base/loss_pattern.h"
#include "core/rdcm/options.h"
#include "core/wan/options.h"
#include "daemon/api/access.h"
#include "daemon/api/waits.h"
#include "daemon/data/combine.h"
#include "daemon/data/journal.h"
#include "daemon/data/leave.h"
#include "daemon/data/names.h"
#include "daemon/data/nic.h"
#include "daemon/data/paths.h"
#include "daemon/data/receiving.h"
#include "daemon/data/sending.h"
#include "daemon/data/sites.h"
#include "daemon/groups/sockets.h"
#include "daemon/groups/trouble.h"
#include "daemon/metrics/metrics.h"
#include "daemon/pieces/fetch.h"
#include "daemon/pieces/hear.h"
#include "daemon/pieces/holdings.h"
#include "daemon/programs.h"
#include "daemon/secure.h"
#include "daemon/streams/late.h"
#include "daemon/streams/receive.h"
#include "daemon/streams/send.h"
#include "daemon/units.h"

#define EVICT_LOOK (250 * RS_MILLISECOND)
#define PUMP_PACKETS 1024u                  /* packets fetched from the core before sockets are looked at again */
#define BLOCKED_RETRY RS_MILLISECOND        /* how soon the core is asked again while the NIC takes nothing */
#define PREPARE_STEP (UINT64_C(2) << 20)    /* bytes of the reserve at a time: some ms at most */
#define PREPARE_IDLE (300 * RS_MILLISECOND) /* after a transfer: others on this machine may not be done with it */
#define PREPARE_PAUSE (4 * RS_MILLISECOND)
/* A sender's process that was stopped, and whose connection stands, is waited for; as long as the manager keeps its
 * packet paths (its setting `away`). */
#define SENDER_AWAY (120 * RS_SECOND)
#define SPARE_PART 8      /* of the link's rate: for those that fetch of an object while it is received here */
#define DESCRIPTORS 8192u /* twice the objects of a store (a bound) */
#define STOP_BOUND (500 * RS_MILLISECOND) /* for final messages to peers and manager */

#define CHECK_BOUND (2 * RS_SECOND) /* for its answer; one that is away took no path back */

/* -------------------------------------------------------------------------------------------------------- the pump */

/* What the core has to say goes to those who do it, packets to their channels. Only here is the core asked. What is
 * said may lead to more. */

static void measured(rs_agent *agent, rs_peer peer) {
    rs_peer_measured(agent->node, peer, (rs_time)rs_control_round_trip_us(agent->control, peer) * 1000);
}

static void peer_wanted(rs_agent *agent, rs_peer peer) {
    if (rs_control_is_up(agent->control, peer)) {
        measured(agent, peer);
        rs_peer_up(agent->node, rs_agent_now(agent), peer);
    } else {
        rs_control_want(agent->control, peer);
    }
}

static void stream_moved(rs_agent *agent, rs_xfer xfer) {
    const rs_transfer_entry *transfer = rs_transfers_find(&agent->transfers, xfer);
    if (transfer && transfer->source)
        rs_stream_source_moved(transfer->source);
    if (transfer && transfer->sink)
        rs_stream_sink_moved(transfer->sink);
}

static void handle_event(rs_agent *agent, const rs_event *event) {
    switch (event->kind) {
    case RS_EV_PATH_WANTED:
    case RS_EV_PHASE:
    case RS_EV_FIRST_LIGHT:
    case RS_EV_PEER_KEPT:
    case RS_EV_NO_LIGHT:
    case RS_EV_PEER_DONE:
    case RS_EV_PATH_DONE:
    case RS_EV_SEND_DONE:
    case RS_EV_RETAKE:
        rs_sending_event(agent, event);
        break;
    case RS_EV_PEER_FAILED:
    case RS_EV_PEER_LEFT:
        rs_secure_left(agent, event->xfer, event->peer);
        rs_sending_event(agent, event);
        break;
    case RS_EV_INCOMING:
    case RS_EV_SESSION:
    case RS_EV_COMPLETE:
    case RS_EV_DIGEST:
    case RS_EV_RECEIVE_DONE:
        rs_receiving_event(agent, event);
        break;
    case RS_EV_PEER_WANTED:
        peer_wanted(agent, event->peer);
        break;
    case RS_EV_RECEIVER_FAILED:
    case RS_EV_LINK_SUSPECTED:
    case RS_EV_LINK_WORKS:
    case RS_EV_VIEW_USED:
        rs_overlay_event(agent->overlay, event);
        break;
    case RS_EV_STREAM_MOVED:
        stream_moved(agent, event->xfer);
        break;
    case RS_EV_LOG: {
        const rs_transfer_entry *transfer = rs_transfers_find(&agent->transfers, event->xfer);
        rs_log(RS_LOG_INFO, "core", "object=%s %s", transfer ? rs_id_text(&transfer->id) : "-", event->cause);
        break;
    }
    }
}

/* Where bytes lie that the core sends, a fragment at most of a stream; NULL: they are gone. */
static const uint8_t *payload_of(const rs_transfer_entry *transfer, uint64_t offset) {
    if (transfer->source)
        return rs_stream_source_at(transfer->source, offset);
    if (transfer->sink)
        return rs_stream_sink_at(transfer->sink, offset);
    return transfer->object && transfer->object->map ? transfer->object->map + offset : NULL;
}

static void send_message(rs_agent *agent, const rs_packet_out *out) {
    rs_connection_payload payload = {0};
    if (out->payload_length > 0) {
        rs_transfer_entry *transfer = rs_transfers_find(&agent->transfers, out->xfer);
        const uint8_t *at = transfer ? payload_of(transfer, out->payload_offset) : NULL;
        if (!at)
            return;
        if (transfer->object)
            rs_store_read_ahead(transfer->object, out->payload_offset);
        payload = (rs_connection_payload){.map = at,
                                          .fd = transfer->object ? transfer->object->fd : -1,
                                          .offset = out->payload_offset,
                                          .length = out->payload_length};
        rs_sending_count(transfer, out);
    }
    rs_names_goes(agent->names, out->header, out->header_length);
    rs_secure_goes(agent, out->peer, out->header, out->header_length);
    rs_control_send(agent->control, out->peer, out->header, out->header_length, out->payload_length ? &payload : NULL);
}

static void unreadable(void *context, rs_xfer xfer) {
    rs_agent *agent = context;
    rs_transfer_entry *transfer = rs_transfers_find(&agent->transfers, xfer);
    if (transfer && transfer->sending)
        rs_sending_cancel(agent, transfer, "the object's file became shorter while it was being sent");
}

static void send_data(rs_agent *agent, const rs_packet_out *out) {
    rs_transfer_entry *transfer = rs_transfers_find(&agent->transfers, out->xfer);
    const uint8_t *payload = transfer && out->payload_length ? payload_of(transfer, out->payload_offset) : NULL;
    if (!transfer || (out->payload_length > 0 && !payload))
        return;
    if (out->combine.count > 0) {
        uint8_t *room = rs_data_payload_room(agent->data);
        if (!rs_combine_make(room, out->payload_length, transfer->object->map, &out->combine)) {
            unreadable(agent, out->xfer);
            return;
        }
        payload = room;
    }
    if (transfer->object && out->payload_length > 0)
        rs_store_read_ahead(transfer->object, out->payload_offset);
    rs_sending_count(transfer, out);
    rs_data_push(agent->data, payload);
}

static void send_to_peer(rs_agent *agent, const rs_packet_out *out) {
    const rs_transfer_entry *transfer = rs_transfers_find(&agent->transfers, out->xfer);
    rs_transfer_entry *of = rs_transfers_find(&agent->transfers, out->xfer);
    const uint8_t *payload = transfer && out->payload_length ? payload_of(transfer, out->payload_offset) : NULL;
    if (of && of->sending)
        rs_sending_count(of, out);
    if (out->payload_length == 0 || payload)
        rs_overlay_send(agent->overlay, out, payload);
}

/* True: packets went out. */
static bool pump_packets(rs_agent *agent) {
    unsigned count = 0;
    rs_packet_out *out;
    while (count < PUMP_PACKETS && (out = rs_data_slot(agent->data)) &&
           rs_poll_tx(agent->node, rs_agent_now(agent), out)) {
        if (out->channel == RS_CH_GROUP)
            send_data(agent, out);
        else if (out->channel == RS_CH_PEER_RELIABLE)
            send_message(agent, out);
        else
            send_to_peer(agent, out);
        count++;
    }
    rs_data_flush(agent->data);
    rs_overlay_flush(agent->overlay);
    if (count > 0)
        rs_api_digest_sent(agent->api, rs_agent_now(agent));
    return count > 0;
}

void rs_agent_pump(rs_agent *agent) {
    bool more = true;
    for (unsigned rounds = 0; more && rounds < 16; rounds++) {
        rs_event event;
        more = false;
        while (rs_poll_event(agent->node, &event)) {
            handle_event(agent, &event);
            more = true;
        }
        more |= pump_packets(agent);
        more |= rs_groups_pump(agent->groups);
    }
}

/* -------------------------------------------------------------------------------------------------------- the loop */

static rs_time earlier(rs_time a, rs_time b) {
    return a < b ? a : b;
}

/* The reserve of the store is filled again while there is nothing better to do. */
static rs_time prepare_due(const rs_agent *agent) {
    bool idle = agent->transfers.count == 0 && !rs_store_prepared(agent->store);
    return idle ? agent->prepare_at : RS_NEVER;
}

static void prepare(rs_agent *agent) {
    bool more = rs_store_prepare(agent->store, PREPARE_STEP);
    agent->prepare_at = rs_loop_refresh(agent->loop) + (more ? PREPARE_PAUSE : RS_SECOND);
}

static void on_checked(void *context) {
    rs_agent *agent = context;
    rs_groups_checked(agent->groups);
    if (agent->held_until == RS_NEVER)
        return;
    agent->held_until = RS_NEVER;
    rs_node_hold(agent->node, rs_agent_now(agent), false);
}

/* What came meanwhile is read before anything is sent, or counts as silence. The manager is asked first: paths of a
 * sender may have been taken back, or moved, and who publishes may be out of its groups. */
static void look_for_pause(rs_agent *agent) {
    rs_loop_pauses pauses = rs_loop_paused(agent->loop);
    rs_time lost = pauses.time - agent->pauses.time, now = rs_agent_now(agent);
    if (lost == 0)
        return;
    agent->pauses = pauses;
    rs_log(RS_LOG_WARNING, "agent", "this process did not run for %.1f s; no bound on others' silence counts that",
           (double)lost / 1e9);
    rs_node_paused(agent->node, now);
    if (!agent->link || lost < RS_CHECK_FROM)
        return;
    rs_groups_hold(agent->groups, now + CHECK_BOUND, lost);
    agent->held_until = agent->transfers.sending ? now + CHECK_BOUND : RS_NEVER;
    rs_node_hold(agent->node, now, agent->transfers.sending != NULL);
    rs_manager_confirm(agent->link, now); /* it hears of this agent at once, too: the pause was silence for it */
}

static rs_time next_deadline(const rs_agent *agent) {
    rs_time core = earlier(rs_deadline(agent->node), agent->held_until);
    if (rs_data_blocked(agent->data) && core < rs_agent_now(agent) + BLOCKED_RETRY)
        core = rs_agent_now(agent) + BLOCKED_RETRY;
    rs_time deadline = earlier(core, rs_data_due(agent->data));
    deadline = earlier(deadline, rs_control_deadline(agent->control));
    deadline = earlier(deadline, rs_api_server_deadline(agent->api));
    deadline = earlier(deadline, rs_sending_deadline(agent));
    deadline = earlier(deadline, rs_receiving_deadline(agent));
    deadline = earlier(deadline, rs_sites_deadline(agent->sites));
    deadline = earlier(deadline, prepare_due(agent));
    deadline = earlier(deadline, rs_groups_deadline(agent->groups));
    deadline = earlier(deadline, rs_groups_trouble_deadline(agent->groups));
    deadline = earlier(deadline, rs_streams_deadline(agent));
    deadline = earlier(deadline, rs_late_deadline(agent));
    deadline = earlier(deadline, rs_fetches_deadline(agent->fetches));
    deadline = earlier(deadline, rs_journal_deadline(agent->journal));
    if (agent->evict)
        deadline = earlier(deadline, agent->evict_at);
    deadline = earlier(deadline, rs_holdings_deadline(agent->holdings));
    deadline = earlier(deadline, rs_secure_deadline(agent));
    if (agent->piece_server)
        deadline = earlier(deadline, rs_piece_server_deadline(agent->piece_server));
    if (agent->probes)
        deadline = earlier(deadline, rs_probes_deadline(agent->probes));
    if (agent->metrics)
        deadline = earlier(deadline, rs_metrics_server_deadline(agent->metrics));
    if (agent->lan)
        deadline = earlier(deadline, rs_lan_deadline(agent->lan));
    return agent->link ? earlier(deadline, rs_manager_deadline(agent->link)) : deadline;
}

static void make_room(rs_agent *agent) {
    rs_time now = rs_agent_now(agent);
    if (!agent->evict || now < agent->evict_at)
        return;
    agent->evict_at = now + EVICT_LOOK;
    if (rs_evict_look(agent->evict, now))
        rs_api_store_work(agent->api);
}

static bool keys_are_needed(void *context, rs_keys_kind kind, uint64_t id) {
    rs_agent *agent = context;
    switch (kind) {
    case RS_KEYS_TRANSFER_OUT:
        return rs_nonce_is_used(agent->node, id, true);
    case RS_KEYS_TRANSFER_IN:
        return rs_nonce_is_used(agent->node, id, false) || rs_late_hears(agent, id) || rs_hears(agent->fetches, id);
    case RS_KEYS_GROUP:
    case RS_KEYS_REGION:
        return rs_groups_knows(agent->groups, (uint32_t)id, kind == RS_KEYS_REGION);
    case RS_KEYS_PEER:
        return true;
    }
    return false;
}

static void timeouts(rs_agent *agent) {
    rs_time now = rs_agent_now(agent);
    if (agent->transfers.count > 0)
        agent->prepare_at = now + PREPARE_IDLE;
    rs_data_timeout(agent->data);
    rs_control_timeout(agent->control);
    if (agent->link && now >= rs_manager_deadline(agent->link))
        rs_manager_timeout(agent->link, now);
    if (now >= agent->held_until)
        on_checked(agent);
    if (now >= rs_deadline(agent->node))
        rs_timeout(agent->node, now);
    if (now >= rs_api_server_deadline(agent->api))
        rs_api_server_dispatch(agent->api, now);
    if (now >= rs_sending_deadline(agent))
        rs_sending_timeout(agent);
    if (now >= rs_sites_deadline(agent->sites))
        rs_sites_timeout(agent->sites);
    if (now >= rs_receiving_deadline(agent))
        rs_receiving_timeout(agent);
    if (now >= rs_streams_deadline(agent))
        rs_streams_timeout(agent);
    if (now >= rs_late_deadline(agent))
        rs_late_timeout(agent);
    if (now >= prepare_due(agent))
        prepare(agent);
    if (now >= rs_groups_deadline(agent->groups))
        rs_groups_timeout(agent->groups);
    rs_groups_tell_trouble(agent->groups);
    rs_fetches_timeout(agent->fetches);
    rs_journal_timeout(agent->journal, now);
    rs_secure_timeout(agent, keys_are_needed);
    make_room(agent);
    rs_holdings_timeout(agent->holdings);
    if (agent->piece_server && now >= rs_piece_server_deadline(agent->piece_server))
        rs_piece_server_timeout(agent->piece_server);
    if (agent->probes && now >= rs_probes_deadline(agent->probes))
        rs_probes_timeout(agent->probes);
    if (agent->lan && now >= rs_lan_deadline(agent->lan))
        rs_lan_timeout(agent->lan);
    if (agent->metrics && now >= rs_metrics_server_deadline(agent->metrics))
        rs_metrics_server_timeout(agent->metrics);
}

static bool turn(rs_agent *agent, rs_time bound) {
    rs_time work = rs_receiving_work(agent);
    rs_sites_work(agent->sites);
    rs_agent_pump(agent);
    rs_time deadline = earlier(next_deadline(agent), bound);
    if (!rs_loop_turn(agent->loop, earlier(deadline, work))) {
        rs_log(RS_LOG_ERROR, "agent", "waiting for events failed: %s", strerror(errno));
        return false;
    }
    look_for_pause(agent);
    timeouts(agent);
    return true;
}

/* Final messages: peers and the manager learn that this agent ends, within a bound. */
static void stop(rs_agent *agent) {
    rs_time bound = rs_agent_now(agent) + STOP_BOUND;
    char cause[160];
    snprintf(cause, sizeof cause, "the agent of %.100s is ending", agent->options.server);
    rs_log(RS_LOG_INFO, "agent", "ending transfers=%u", agent->transfers.count);
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        rs_sending_cancel(agent, t, cause);
    for (rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next)
        rs_receiving_cancel(agent, t, cause);
    do
        rs_agent_pump(agent);
    while ((agent->transfers.count > 0 || rs_control_waiting(agent->control) > 0) && rs_agent_now(agent) < bound &&
           turn(agent, bound));
}

bool rs_agent_run(rs_agent *agent) {
    bool ok = true;
    rs_loop_begin(agent->loop); /* to fill the store's reserve takes seconds where many start at once */
    while (ok && !agent->stopping)
        ok = turn(agent, RS_NEVER);
    if (ok)
        stop(agent);
    return ok;
}

/* ------------------------------------------------------------------------------------------------------ callbacks */

static void on_signal(void *context, uint32_t events) {
    rs_agent *agent = context;
    struct signalfd_siginfo info;
    (void)events;
    if (read(agent->signal_watch.fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    if (info.ssi_signo == SIGHUP) {
        rs_programs_reload(agent);
        return;
    }
    if (agent->stopping) /* asked twice */
        _exit(1);
    rs_log(RS_LOG_INFO, "agent", "signal=%s", strsignal((int)info.ssi_signo));
    agent->stopping = true;
}

static void on_api_ready(void *context, uint32_t events) {
    rs_agent *agent = context;
    (void)events;
    rs_api_server_dispatch(agent->api, rs_agent_now(agent));
}

static void on_link_ready(void *context, uint32_t events) {
    rs_agent *agent = context;
    unsigned ready = 0;
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        ready |= RS_MANAGER_READ;
    if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
        ready |= RS_MANAGER_WRITE;
    rs_manager_on_ready(agent->link, rs_agent_now(agent), ready);
}

static void on_peer_up(void *context, rs_peer peer) {
    rs_agent *agent = context;
    measured(agent, peer);
    rs_peer_up(agent->node, rs_agent_now(agent), peer);
}

static void on_peer_down(void *context, rs_peer peer, const char *cause) {
    rs_agent *agent = context;
    rs_peer_down(agent->node, rs_agent_now(agent), peer, cause);
}

static void on_peer_writable(void *context, rs_peer peer, bool writable) {
    rs_agent *agent = context;
    rs_peer_writable(agent->node, rs_agent_now(agent), peer, writable);
}

static bool on_peer_is_plain(void *context, rs_peer peer) {
    const rs_agent *agent = context;
    return rs_peer_is_plain(agent->node, peer);
}

static void on_dropped(void *context, rs_group group, uint64_t count) {
    rs_agent *agent = context;
    agent->totals.socket_drops += count;
    rs_log_limited(&agent->drops, 5, RS_LOG_WARNING, "data", "the socket's buffer was full: dropped=%llu",
                   (unsigned long long)count);
    rs_receive_drops(agent->node, rs_agent_now(agent), group, count);
}

static void on_waited(void *context, rs_group group, rs_time time) {
    rs_agent *agent = context;
    rs_receive_waited(agent->node, group, time);
}

static void on_probe(void *context, const rs_manager_probe *order) {
    rs_agent *agent = context;
    rs_probes_order(agent->probes, order);
}

static void on_probe_report(void *context, rs_manager_probe_report *report) {
    rs_agent *agent = context;
    report->software = RS_VERSION;
    report->interface = agent->options.interface;
    report->mtu = rs_nic_mtu(agent->options.interface); /* as it is now, whatever it was at the start */
    report->rate_bps =
        agent->options.nic_rate_bps ? agent->options.nic_rate_bps : rs_nic_rate(agent->options.interface);
    report->wall_clock_ns = rs_wall_clock();
    agent->totals.probes++;
    rs_log(RS_LOG_INFO, "probe", "id=%s phase=%s cause=%s", rs_quote(report->id), report->phase,
           rs_quote(report->cause));
    if (agent->link)
        rs_manager_probe_report_send(agent->link, rs_agent_now(agent), report);
}

static bool on_datagrams(void *context) {
    rs_agent *agent = context;
    return rs_groups_read_first(agent->groups);
}

static void on_datagrams_read(void *context, unsigned count, bool all) {
    rs_agent *agent = context;
    rs_groups_datagrams_read(agent->groups, count, all);
}

static bool on_datagram(void *context, uint32_t source, const uint8_t *bytes, size_t length) {
    rs_agent *agent = context;
    return rs_groups_datagram(agent->groups, source, bytes, length);
}

static void on_manager_state(void *context, bool up, const char *text) {
    rs_agent *agent = context;
    rs_log(up ? RS_LOG_INFO : RS_LOG_WARNING, "manager", "up=%d text=%s", up, rs_quote(text));
    agent->manager_met |= up;
    if (up) {
        rs_groups_link_up(agent->groups);
        rs_sites_link_up(agent->sites);
    }
    rs_holdings_link_changed(agent->holdings);
    rs_paths_link_state(agent, up);
}

static void on_manager_silent(void *context, bool silent, const char *text) {
    rs_agent *agent = context;
    rs_log(silent ? RS_LOG_WARNING : RS_LOG_INFO, "manager", "silent=%d text=%s", silent, rs_quote(text));
    if (!silent)
        rs_groups_link_answers(agent->groups);
    rs_paths_link_state(agent, !silent);
}

static void log_io(void *context, rs_io_log_level level, const char *text) {
    (void)context;
    rs_log(level == RS_IO_LOG_WARNING ? RS_LOG_WARNING : RS_LOG_INFO, "io", "%s", text);
}

static void log_api(void *context, const char *text) {
    rs_agent *agent = context;
    rs_log_limited(&agent->programs, 50, RS_LOG_INFO, "api", "%s", text);
}

/* ---------------------------------------------------------------------------------------------------------- birth */

static uint64_t random_number(void) {
    uint64_t number = 0;
    while (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number || number == 0)
        ;
    return number;
}

static bool start_signals(rs_agent *agent) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    agent->signal_watch = (rs_watch){.ready = on_signal, .context = agent};
    return fd >= 0 && rs_loop_watch(agent->loop, &agent->signal_watch, fd, EPOLLIN);
}

/* The kernel makes its table larger at each power of two, and waits 10 to 40 ms for all processors then. */
static void make_room_for_descriptors(void) {
    struct rlimit limit = {DESCRIPTORS, DESCRIPTORS};
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    rlim_t room = limit.rlim_cur < DESCRIPTORS ? limit.rlim_cur : DESCRIPTORS;
    close(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, (int)room - 1));
}

static bool start_core(rs_agent *agent, uint64_t seed) {
    const rs_options *o = &agent->options;
    uint32_t mtu = o->mtu ? o->mtu : rs_nic_mtu(o->interface);
    agent->fragment_size = rs_fragment_size(mtu, rs_secure_bytes(agent));
    rs_rdcm_config rdcm = rs_rdcm_of_agents();
    rdcm.stream_bytes = RS_STREAM_BYTES;
    const rs_wan_config wan = {.memory = o->wan_buffer};
    const rs_config config = {.seed = seed,
                              .fragment_size = agent->fragment_size,
                              .nic_rate_bps = o->nic_rate_bps ? o->nic_rate_bps : rs_nic_rate(o->interface),
                              .attempt_interval = o->attempt_interval,
                              .light_confirm = o->light_confirm,
                              .start_policy = o->start_policy,
                              .repairs = o->repairs,
                              .stragglers = o->stragglers,
                              .receiver_silence_bound = o->silence_bound,
                              .sender_silence_bound = o->silence_bound,
                              .sender_away_bound = SENDER_AWAY,
                              .direct_receivers = o->direct_receivers,
                              .directory = rs_overlay_directory(agent),
                              .carries = o->carry,
                              .secret = {random_number(), random_number()},
                              .options[RS_PROTOCOL_RDCM] = &rdcm,
                              .options[RS_PROTOCOL_WAN] = &wan,
                              .answer_bound =
                                  7 * 24 * 3600 * RS_SECOND /* paths.c bounds the wait, with better words */};
    agent->node = agent->fragment_size ? rs_node_new(&config, &rs_heap) : NULL;
    if (!agent->node)
        rs_log(RS_LOG_ERROR, "agent", "cannot start the protocol engine (MTU %u, memory)", mtu);
    return agent->node != NULL;
}

/* What is of no transfer to this server may be of a stream that a program here has joined. */
static uint8_t *deliver(void *context, rs_group group, const uint8_t *header, size_t header_length,
                        uint32_t payload_length) {
    uint8_t *place = rs_receiving_deliver(context, group, header, header_length, payload_length);
    return place ? place : rs_late_packet(context, group, header, header_length, payload_length);
}

static void delivered(void *context) {
    rs_receiving_delivered(context);
    rs_late_delivered(context);
}

static bool start_data(rs_agent *agent, uint64_t seed) {
    const rs_options *o = &agent->options;
    char error[RS_IO_ERROR_MAX];
    rs_io_options options = rs_options_io(o, log_io);
    options.send_buffer = rs_options_send_buffer(o);
    rs_io *io = rs_io_open(o->io, &options, error);
    const bool bare = io && rs_secure_io_is_bare(io);
    if (io && o->loss) {
        rs_log(RS_LOG_WARNING, "io", "received data packets are lost on purpose: %s", o->loss);
        io = rs_io_lossy(io, o->loss, seed, error);
    }
    io = rs_secure_io(agent, io, RS_SEAL_DATA, bare, error);
    if (!io) {
        rs_log(RS_LOG_ERROR, "io", "%s", error);
        return false;
    }
    const rs_data_callbacks callbacks = {.context = agent,
                                         .predict = rs_receiving_predict,
                                         .deliver = deliver,
                                         .delivered = delivered,
                                         .dropped = on_dropped,
                                         .waited = on_waited,
                                         .unreadable = unreadable};
    agent->repairs = rs_repairs_new();
    agent->data = rs_data_new(agent->loop, io, &callbacks);
    if (!agent->data || !agent->repairs)
        rs_log(RS_LOG_ERROR, "data", "out of memory");
    return agent->data && agent->repairs;
}

static bool start_control(rs_agent *agent) {
    char error[RS_CONNECTION_TEXT];
    const rs_control_options options = {.loop = agent->loop,
                                        .peers = &agent->peers,
                                        .server = agent->options.server,
                                        .boot = agent->boot,
                                        .address = agent->options.address,
                                        .port = agent->options.control_port,
                                        .max_connections = agent->options.max_connections,
                                        .carries = agent->options.carry,
                                        .identity = agent->trust,
                                        .dead_timeout = agent->options.silence_bound};
    const rs_control_callbacks callbacks = {.context = agent,
                                            .peer_up = on_peer_up,
                                            .peer_down = on_peer_down,
                                            .peer_is_plain = on_peer_is_plain,
                                            .peer_writable = on_peer_writable,
                                            .message = rs_names_message};
    agent->control = rs_control_new(&options, &callbacks, error);
    if (!agent->control)
        rs_log(RS_LOG_ERROR, "control", "%s", error);
    return agent->control != NULL;
}

static bool start_overlay(rs_agent *agent) {
    const rs_overlay_callbacks callbacks = {.context = agent,
                                            .ready = on_datagrams,
                                            .read = on_datagrams_read,
                                            .datagram = on_datagram,
                                            .packet = rs_receiving_datagram};
    agent->overlay = rs_overlay_new(agent, &callbacks);
    return agent->overlay != NULL;
}

static void log_store(void *context, const char *text) {
    (void)context;
    rs_log(RS_LOG_INFO, "store", "%s", text);
}

static void let_go(void *context, const rs_object_id *id) {
    rs_agent *agent = context;
    if (agent->piece_server)
        rs_piece_server_let_go(agent->piece_server, id);
    rs_receiving_let_go(agent, id);
    (void)rs_journal_forget(agent->journal, id);
}

/* Before an object goes to make room: its events, the log. */
static void object_goes(void *context, const rs_object *object, rs_time in) {
    rs_agent *agent = context;
    rostrum_event event = {.kind = ROSTRUM_EVENT_PHASE, .size = object->size};
    snprintf(event.subject, sizeof event.subject, "%s", in == RS_NEVER ? "stays" : in > 0 ? "goes" : "gone");
    if (in > 0 && in != RS_NEVER)
        snprintf(event.text, sizeof event.text, "room is needed: it goes in %.1f s unless it is read or pinned",
                 (double)in / 1e9);
    rs_log(in == RS_NEVER ? RS_LOG_INFO : RS_LOG_WARNING, "store", "object=%s %s bytes=%llu%s%s",
           rs_id_text(&object->id), event.subject, (unsigned long long)object->size, event.text[0] ? " text=" : "",
           event.text[0] ? rs_quote(event.text) : "");
    rs_api_event(agent->api, &object->id, &event);
}

static void object_gone(void *context, const rs_object_id *id) {
    const rs_agent *agent = context;
    if (agent->holdings)
        rs_holdings_gone(agent->holdings, id);
}

static bool start_api(rs_agent *agent) {
    const rs_options *o = &agent->options;
    rs_error error = {0};
    const rs_store_config store = {.directory = o->store_directory,
                                   .quota_bytes = o->quota_bytes,
                                   .reserve_bytes = o->reserve_bytes,
                                   .has_group = o->has_group,
                                   .group = o->group,
                                   .by_grant = o->policy != NULL,
                                   .disk = o->disk_directory,
                                   .disk_from = o->disk_from,
                                   .disk_quota_bytes = o->disk_quota_bytes,
                                   .log = log_store,
                                   .evict_notice = o->evict_notice,
                                   .gone = object_gone,
                                   .context = agent};
    agent->store = rs_store_open(&store, &error);
    if (!agent->store) {
        rs_log(RS_LOG_ERROR, "store", "%s", error.text);
        return false;
    }
    (void)rs_store_prepare(agent->store, o->reserve_bytes);
    if (!rs_store_prepared(agent->store))
        rs_log(RS_LOG_WARNING, "store",
               "%" PRIu64 " of %" PRIu64 " bytes of --reserve are ready: %s has no room for more; its tmpfs holds the "
               "quota and the reserve",
               rs_store_in_reserve(agent->store), o->reserve_bytes, o->store_directory);
    const rs_evict_config evict = {
        .store = agent->store, .notice = o->evict_notice, .tell = object_goes, .context = agent};
    agent->evict = o->evict_notice ? rs_evict_new(&evict) : NULL;
    const rs_api_config config = {.socket_path = o->socket_path,
                                  .socket_mode = o->socket_mode,
                                  .has_group = o->has_group,
                                  .group = o->group,
                                  .server_name = o->server,
                                  .version = RS_VERSION,
                                  .boot_id = agent->boot,
                                  .digest_algorithm = o->digest_algorithm};
    const rs_api_handlers handlers = {.on_send = rs_sending_api,
                                      .on_added = rs_sending_added_api,
                                      .on_unreadable = rs_sending_unreadable_api,
                                      .on_cancel = rs_sending_cancel_api,
                                      .on_leave = rs_leave_api,
                                      .on_status = rs_status_api,
                                      .on_delete = let_go,
                                      .on_fetch = rs_fetch_api,
                                      .on_name = rs_names_api,
                                      .on_join = rs_groups_api,
                                      .on_channels = rs_groups_channels,
                                      .on_asked = agent->audit ? rs_programs_asked : NULL,
                                      .on_stream_end = rs_stream_end_api,
                                      .on_stream_receive = rs_stream_take_api,
                                      .on_stream_join = rs_late_api,
                                      .log = log_api,
                                      .context = agent};
    agent->api = rs_api_server_new(&config, &handlers, agent->store, &error);
    if (!agent->api) {
        rs_log(RS_LOG_ERROR, "api", "%s", error.text);
        return false;
    }
    rs_api_policy_set(agent->api, agent->policy);
    agent->api_watch = (rs_watch){.ready = on_api_ready, .context = agent};
    return rs_loop_watch(agent->loop, &agent->api_watch, rs_api_server_fd(agent->api), EPOLLIN);
}

static rs_digest digest_of(void *context, const rs_object *object) {
    return rs_receiving_digest(context, object);
}

static const char *why_not(void *context, const rs_object_id *id) {
    const rs_agent *agent = context;
    return rs_journal_why(agent->journal, id);
}

/* The link of who sends is what its receivers wait for; that of a receiver carries little the other way. */
static int64_t spare_bps(void *context, const rs_object_id *id, const char *name) {
    const rs_agent *agent = context;
    const rs_options *o = &agent->options;
    int64_t nic_bps = o->nic_rate_bps ? o->nic_rate_bps : rs_nic_rate(o->interface);
    uint32_t part = rs_sending_spare_part(agent, id, name);
    if (part > 0)
        return nic_bps / part;
    return rs_receiving_goes_on(agent, id) ? nic_bps / SPARE_PART : 0;
}

/* Without it everything else works: others cannot fetch from here. */
static bool start_pieces(rs_agent *agent) {
    const rs_options *o = &agent->options;
    const rs_piece_server_config config = {.loop = agent->loop,
                                           .store = agent->store,
                                           .address = o->address,
                                           .port = o->piece_port,
                                           .identity = agent->trust,
                                           .rate_bps = o->fetch_rate_bps,
                                           .spare_bps = spare_bps,
                                           .digest_of = digest_of,
                                           .why_not = why_not,
                                           .runs = rs_late_runs,
                                           .stream = rs_late_kept,
                                           .run = rs_late_run,
                                           .context = agent};
    agent->piece_server = rs_piece_server_new(&config);
    if (!agent->piece_server)
        rs_log(RS_LOG_WARNING, "pieces", "nobody can fetch objects from here: port %u (--piece-port): %s",
               o->piece_port, strerror(errno));
    agent->fetches = rs_fetches_new(agent);
    agent->holdings = rs_holdings_new(agent);
    agent->journal = rs_sending_journal(agent);
    agent->names = rs_names_new();
    return agent->fetches && agent->holdings && agent->journal && agent->names;
}

static bool start_metrics(rs_agent *agent) {
    char text[RS_METRICS_TEXT];
    if (!agent->options.metrics)
        return true;
    agent->metrics = rs_metrics_server_new(agent->loop, agent->options.metrics, rs_metrics_page, agent, text);
    if (!agent->metrics)
        rs_log(RS_LOG_ERROR, "metrics", "%s", text);
    return agent->metrics != NULL;
}

static bool start_lan(rs_agent *agent, uint64_t seed) {
    const rs_options *o = &agent->options;
    if (!o->standalone)
        return true;
    if (o->manager_address) {
        rs_log(RS_LOG_ERROR, "lan", "--manager and --standalone exclude each other: paths are asked of one of them");
        return false;
    }
    rs_manager_callbacks callbacks;
    rs_paths_link_callbacks(agent, &callbacks);
    rs_groups_link_callbacks(&callbacks);
    const rs_lan_options options = {.loop = agent->loop,
                                    .data = agent->data,
                                    .server = o->server,
                                    .interface = o->interface,
                                    .address = o->address,
                                    .control_port = o->control_port,
                                    .data_port = o->data_port,
                                    .boot = agent->boot,
                                    .seed = seed,
                                    .mtu = o->mtu ? o->mtu : rs_nic_mtu(o->interface),
                                    .receives = o->standalone_receives,
                                    .asked = o->lan_peers,
                                    .asked_count = o->lan_peer_count,
                                    .callbacks = &callbacks,
                                    .on_copies = rs_groups_copies};
    agent->lan = rs_lan_new(&options);
    return agent->lan != NULL;
}

static bool start_link(rs_agent *agent) {
    char address[RS_ADDRESS_TEXT], text[RS_TLS_TEXT];
    if (agent->options.standalone)
        return true;
    if (agent->options.manager_address == 0) {
        rs_log(
            RS_LOG_WARNING, "manager",
            "none was named (--manager) and none is done without (--standalone true): this agent can receive but not "
            "send");
        return true;
    }
    rs_manager_options options = {.manager_address = rs_address_text(agent->options.manager_address, address),
                                  .manager_port = agent->options.manager_port,
                                  .server = agent->options.server,
                                  .boot_id = agent->boot,
                                  .control_port = agent->options.control_port,
                                  .software = RS_VERSION,
                                  .tls = agent->options.manager_tls,
                                  .token = agent->options.token[0] ? agent->options.token : NULL,
                                  .wants_light = agent->options.start_policy == RS_START_ON_SWITCHES};
    memcpy(options.standbys, agent->options.standbys, sizeof options.standbys);
    options.standby_count = agent->options.standby_count;
    rs_manager_callbacks callbacks;
    rs_paths_link_callbacks(agent, &callbacks);
    callbacks.on_state = on_manager_state;
    callbacks.on_silent = on_manager_silent;
    callbacks.on_probe = on_probe;
    callbacks.on_checked = on_checked;
    callbacks.on_view = rs_overlay_view;
    rs_groups_link_callbacks(&callbacks);
    rs_groups_link_options(&options);
    rs_sites_link(&options, &callbacks);
    rs_holdings_link(agent, &options, &callbacks);
    rs_fetches_link(&callbacks);
    rs_secure_link(agent, &options, &callbacks);
    options.relay = agent->options.relay;
    agent->probes = rs_probes_new(agent->loop, agent->options.address, on_probe_report, agent);
    if (!agent->probes) {
        rs_log(RS_LOG_ERROR, "manager", "out of memory");
        return false;
    }
    agent->link_watch = (rs_watch){.ready = on_link_ready, .context = agent};
    agent->link = rs_manager_new(&options, &callbacks, text, sizeof text);
    if (!agent->link) {
        rs_log(RS_LOG_ERROR, "manager", "%s", text);
        return false;
    }
    rs_manager_start(agent->link, rs_loop_refresh(agent->loop));
    return true;
}

rs_agent *rs_agent_new(const rs_options *options) {
    rs_agent *agent = calloc(1, sizeof *agent);
    if (!agent)
        return NULL;
    agent->options = *options;
    agent->boot = (uint64_t)
        rs_wall_clock(); /* later ones are greater: the manager tells a restarted agent from a stale one by it */
    agent->started_ns = rs_wall_clock();
    agent->loop = rs_loop_new();
    agent->held_until = RS_NEVER;
    uint64_t seed = rs_server_seed(options->seed ? options->seed : random_number(), options->server);
    make_room_for_descriptors();
    if (!agent->loop || !start_signals(agent)) {
        rs_log(RS_LOG_ERROR, "agent", "cannot start the event loop: %s", strerror(errno));
    } else if (rs_secure_start(agent) && rs_programs_start(agent) && start_data(agent, seed) &&
               start_core(agent, seed) && start_control(agent) && start_overlay(agent) &&
               (agent->sites = rs_sites_new(agent)) && (agent->groups = rs_groups_new(agent, seed)) &&
               start_api(agent) && start_pieces(agent) && start_metrics(agent) && start_lan(agent, seed) &&
               start_link(agent)) {
        char address[RS_ADDRESS_TEXT];
        rs_log(RS_LOG_INFO, "agent",
               "started server=%s version=%s address=%s interface=%s control_port=%u fragment=%u socket=%s",
               rs_quote(options->server), RS_VERSION, rs_address_text(options->address, address), options->interface,
               options->control_port, agent->fragment_size, options->socket_path);
        return agent;
    }
    rs_agent_free(agent);
    return NULL;
}

void rs_agent_free(rs_agent *agent) {
    if (!agent)
        return;
    rs_sending_free_all(agent);
    rs_receiving_free_all(agent);
    rs_fetches_free(agent->fetches);
    rs_journal_free(agent->journal);
    rs_piece_server_free(agent->piece_server);
    rs_late_free(agent);
    rs_streams_free(agent);
    rs_sites_free(agent->sites);
    rs_groups_free(agent->groups);
    rs_overlay_free(agent->overlay);
    rs_metrics_server_free(agent->metrics);
    rs_probes_free(agent->probes);
    rs_lan_free(agent->lan);
    if (agent->link)
        rs_manager_free(agent->link);
    if (agent->api) {
        rs_loop_unwatch(agent->loop, &agent->api_watch);
        rs_api_server_free(agent->api);
    }
    rs_policy_free(agent->policy);
    rs_audit_close(agent->audit);
    rs_control_free(agent->control);
    rs_evict_free(agent->evict);
    if (agent->store)
        rs_store_close(agent->store);
    rs_holdings_free(agent->holdings);
    rs_names_free(agent->names);
    rs_data_free(agent->data);
    rs_repairs_free(agent->repairs);
    if (agent->node)
        rs_node_free(agent->node);
    rs_peers_free(&agent->peers);
    rs_secure_free(agent);
    rs_tls_identity_free(agent->trust);
    if (agent->signal_watch.active) {
        int fd = agent->signal_watch.fd;
        rs_loop_unwatch(agent->loop, &agent->signal_watch);
        close(fd);
    }
    rs_loop_free(agent->loop);
    free(agent);
}
