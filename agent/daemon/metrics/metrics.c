#include "daemon/metrics/metrics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "daemon/api/status.h"
#include "daemon/data/nic.h"
#include "daemon/data/sending.h"
#include "daemon/groups/kept.h"
#include "daemon/groups/sockets.h"
#include "daemon/streams/receive.h"
#include "daemon/streams/send.h"
#include "daemon/units.h"

#define PAGE_BYTES (256u << 10) /* with as many agents of a LAN as are known */
#define KEPT_MOST 256u          /* groups whose kept messages are told one by one */

typedef struct {
    char *bytes;
    size_t used;
} page;

__attribute__((format(printf, 2, 3))) static void put(page *p, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int added = vsnprintf(p->bytes + p->used, PAGE_BYTES - p->used, format, arguments);
    va_end(arguments);
    if (added > 0 && p->used + (size_t)added < PAGE_BYTES)
        p->used += (size_t)added; /* what does not fit is left out, whole */
}

static void family(page *p, const char *name, const char *type, const char *help) {
    put(p, "# HELP rostrum_agent_%s %s\n# TYPE rostrum_agent_%s %s\n", name, help, name, type);
}

static void counter(page *p, const char *name, uint64_t value, const char *help) {
    family(p, name, "counter", help);
    put(p, "rostrum_agent_%s %" PRIu64 "\n", name, value);
}

static void gauge(page *p, const char *name, double value, const char *help) {
    family(p, name, "gauge", help);
    put(p, "rostrum_agent_%s %.17g\n", name, value);
}

static void by(page *p, const char *name, const char *label, const char *value, uint64_t number) {
    put(p, "rostrum_agent_%s{%s=\"%s\"} %" PRIu64 "\n", name, label, value, number);
}

/* A label's value: backslash, quote and line end escaped, other control bytes left out. */
static void put_label(char *out, size_t room, const char *text) {
    size_t used = 0;
    for (; *text && used + 3 < room; text++) {
        if (*text == '"' || *text == '\\')
            out[used++] = '\\';
        if ((unsigned char)*text >= 0x20)
            out[used++] = *text;
    }
    out[used] = '\0';
}

static void process(const rs_agent *agent, page *p) {
    char server[600];
    put_label(server, sizeof server, agent->options.server);
    family(p, "info", "gauge", "Always 1; who this is.");
    put(p, "rostrum_agent_info{server=\"%s\",version=\"%s\"} 1\n", server, RS_VERSION);
    gauge(p, "start_time_seconds", (double)agent->started_ns / 1e9, "Wall clock at the start, since the epoch.");
    rs_loop_pauses pauses = rs_loop_paused(agent->loop);
    counter(p, "pauses_total", pauses.count, "Times that this process did not run for half a second or more.");
    family(p, "paused_seconds_total", "counter", "How long it did not run, in those.");
    put(p, "rostrum_agent_paused_seconds_total %.6f\n", (double)pauses.time / 1e9);
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    double seconds = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                     (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
    family(p, "cpu_seconds_total", "counter", "Processor time used, user and system.");
    put(p, "rostrum_agent_cpu_seconds_total %.6f\n", seconds);
    gauge(p, "resident_max_bytes", (double)use.ru_maxrss * 1024,
          "Most memory resident so far, mapped objects included.");
    gauge(p, "nic_mtu_bytes", rs_nic_mtu(agent->options.interface), "MTU of the data NIC now.");
}

static void manager(const rs_agent *agent, page *p) {
    rs_manager_stats s = agent->link ? rs_manager_stats_get(agent->link) : (rs_manager_stats){0};
    gauge(p, "manager_up", agent->link && rs_manager_answers(agent->link), "1 = the manager is connected and answers.");
    counter(p, "manager_connects_total", s.connects, "Connections that the manager welcomed.");
    counter(p, "manager_disconnects_total", s.disconnects, "Connections to it that were lost.");
    family(p, "manager_frames_total", "counter", "Calls on the present and earlier connections.");
    by(p, "manager_frames_total", "direction", "in", s.frames_in);
    by(p, "manager_frames_total", "direction", "out", s.frames_out);
    family(p, "manager_bytes_total", "counter", "Bytes of these calls.");
    by(p, "manager_bytes_total", "direction", "in", s.bytes_in);
    by(p, "manager_bytes_total", "direction", "out", s.bytes_out);
    gauge(p, "manager_requests_waiting", s.requests_pending, "Requests for paths without a final answer.");
    counter(p, "manager_requests_repeated_total", s.requests_repeated, "Requests said again after a reconnect.");
    gauge(p, "manager_calls_kept", s.kept, "Releases and final reports kept for a reconnect.");
    counter(p, "manager_calls_dropped_total", s.kept_dropped, "Of these, dropped because too many were kept.");
    counter(p, "log_lines_dropped_total", rs_log_dropped(), "Lines of the log that nobody read in time.");
    counter(p, "probes_total", agent->totals.probes, "Reports about probes that the manager ordered.");
}

/* Of an agent without a manager: the others, for people and for the `rostrum` command. */
static void lan(const rs_agent *agent, page *p) {
    rs_lan_peer_info peer;
    uint64_t packets, lost;
    if (!agent->lan)
        return;
    rs_data_relayed(agent->data, &packets, &lost);
    counter(p, "lan_relayed_packets_total", packets, "Packets of others handed on to the next server.");
    counter(p, "lan_relayed_packets_lost_total", lost, "Of these, lost because the NIC took no more.");
    counter(p, "lan_group_copies_total", rs_groups_copied(agent->groups),
            "Packets of message groups sent once more by unicast, to members that multicast does not reach.");
    counter(p, "lan_messages_bad_total", rs_lan_malformed(agent->lan), "Messages of the LAN that could not be read.");
    family(p, "lan_peer_mtu_bytes", "gauge", "Agents heard of, and the MTU of each.");
    for (uint32_t i = 0; rs_lan_peer(agent->lan, i, &peer); i++) {
        char address[RS_ADDRESS_TEXT];
        put(p,
            "rostrum_agent_lan_peer_mtu_bytes{name=\"%s\",host=\"%s\",address=\"%s\",port=\"%u\",receives=\"%d\","
            "multicast=\"%d\"} %u\n",
            peer.name, peer.host, rs_address_text(peer.address, address), peer.control_port, peer.receives,
            peer.multicast, peer.mtu);
    }
}

static void control(const rs_agent *agent, page *p) {
    rs_control_stats s = rs_control_stats_get(agent->control);
    gauge(p, "control_connections", s.connections, "Connections to other agents now.");
    family(p, "control_connections_total", "counter", "Connections to other agents by what became of them.");
    by(p, "control_connections_total", "kind", "accepted", s.accepted);
    by(p, "control_connections_total", "kind", "opened", s.opened);
    by(p, "control_connections_total", "kind", "refused", s.refused);
    by(p, "control_connections_total", "kind", "evicted", s.evicted);
    by(p, "control_connections_total", "kind", "broken", s.broken);
    by(p, "control_connections_total", "kind", "unreached", s.unreached);
    counter(p, "control_messages_bad_total", s.malformed, "Messages on them that could not be read.");
    counter(p, "data_packets_bad_total", agent->packets_bad, "Data packets that could not be read.");
    counter(p, "data_packets_other_version_total", agent->packets_other_version,
            "Data packets of another version of the wire.");
    counter(p, "digest_chunks_wrong_total", agent->digest_chunks_wrong,
            "MiBs of received objects whose digest was not the sender's.");
    counter(p, "digest_chunks_fetched_again_total", agent->digest_chunks_fetched,
            "Fetches of such a MiB from the sender.");
    counter(p, "digest_chunks_retaken_total", agent->digest_chunks_retaken,
            "MiBs of sent objects that were digested again because a receiver's copy stayed wrong.");
    counter(p, "stream_fragments_refused_total", agent->stream_fragments_refused,
            "Fragments of received streams that were not as their sender sealed them: dropped, and asked for again.");
    counter(p, "data_socket_drops_total", agent->totals.socket_drops, "Data packets dropped at full socket buffers.");
    const rs_io_stats io = rs_data_io_stats(agent->data);
    counter(p, "data_packets_intercepted_total", io.intercepted, "Lost on purpose (--loss).");
    family(p, "nic_frames_total", "counter", "Frames of the host's other traffic handed on (--io netmap).");
    by(p, "nic_frames_total", "direction", "to-kernel", io.to_kernel);
    by(p, "nic_frames_total", "direction", "from-kernel", io.from_kernel);
    counter(p, "nic_frames_lost_total", io.to_kernel_lost, "Of these, dropped because the kernel's ring was full.");
}

/* With `--security required` alone. */
static void sealed(const rs_agent *agent, page *p) {
    static const char *const causes[RS_SEAL_VERDICTS] = {NULL,    "plain",  "short",    "epoch",
                                                         "wrong", "replay", "too-many", "scope"};
    rs_seal_stats s;
    if (!agent->keys)
        return;
    rs_keyring_stats(agent->keys, &s);
    counter(p, "packets_sealed_total", s.sealed, "Datagrams sealed.");
    counter(p, "packets_unsealable_total", s.unsealable, "Datagrams not sent, because there was no key.");
    counter(p, "packets_opened_total", s.opened[RS_SEAL_RIGHT], "Sealed datagrams whose tag was right.");
    counter(p, "packets_late_total", s.late,
            "Sealed datagrams whose counter came before, or is far behind: once more, or "
            "another holder of the key uses counters in their transmitter's name.");
    family(p, "packets_refused_total", "counter", "Datagrams that nobody has looked at, by cause.");
    for (unsigned i = RS_SEAL_RIGHT + 1; i < RS_SEAL_VERDICTS; i++)
        by(p, "packets_refused_total", "cause", causes[i], s.opened[i]);
    gauge(p, "seal_epoch", rs_seal_epoch(rs_keyring_self(agent->keys)), "Epoch of this agent's own key; 0 = none.");
    family(p, "seal_scopes", "gauge", "What there are keys for.");
    static const char *const kinds[] = {NULL, "transfer-out", "transfer-in", "group", "region", "peer"};
    for (unsigned i = RS_KEYS_TRANSFER_OUT; i <= RS_KEYS_PEER; i++)
        by(p, "seal_scopes", "kind", kinds[i], rs_keyring_scopes(agent->keys, (rs_keys_kind)i));
    gauge(p, "seal_transmitters", s.streams, "Transmitters heard, times addresses.");
}

static void store(const rs_agent *agent, page *p) {
    uint32_t cursor = 0;
    uint64_t objects = 0;
    while (rs_store_next(agent->store, &cursor))
        objects++;
    gauge(p, "store_used_bytes", (double)rs_store_used(agent->store), "Memory of objects, in whole pages.");
    gauge(p, "store_quota_bytes", (double)rs_store_quota(agent->store), "Most that objects may take.");
    gauge(p, "store_reserve_bytes", (double)rs_store_in_reserve(agent->store), "Memory ready for objects to come.");
    gauge(p, "store_disk_used_bytes", (double)rs_store_disk_used(agent->store), "Disk of objects (--to-disk).");
    const rs_piece_server_stats given =
        agent->piece_server ? rs_piece_server_stats_get(agent->piece_server) : (rs_piece_server_stats){0};
    const rs_evict_stats room = agent->evict ? rs_evict_stats_get(agent->evict) : (rs_evict_stats){0};
    counter(p, "store_evicted_objects_total", room.objects, "Objects that went to make room (--evict).");
    counter(p, "store_evicted_bytes_total", room.bytes, "Bytes of objects that went to make room.");
    gauge(p, "store_going_bytes", (double)room.going_bytes, "Bytes of objects that will go to make room.");
    gauge(p, "store_short_bytes", (double)room.short_of, "Bytes of room that are wanted and cannot be made.");
    counter(p, "fetched_bytes_total", agent->fetched_bytes, "Bytes of pieces fetched from other agents, checked.");
    counter(p, "fetched_pieces_wrong_total", agent->fetch_wrong, "Fetched pieces whose digest was wrong.");
    counter(p, "fetch_served_bytes_total", given.bytes, "Bytes of pieces that other agents fetched from here.");
    counter(p, "fetch_served_together_total", agent->served_together,
            "Objects sent from here because several servers fetched them together.");
    gauge(p, "fetch_clients", (double)given.clients, "Connections of agents that fetch from here.");
    gauge(p, "store_objects", (double)objects, "Objects, those being received included.");
}

/* Of transfers under way, added to what the ended ones left. */
static rs_totals_of so_far(const rs_agent *agent, const rs_transfer_entry *first, rs_totals_of totals,
                           uint64_t *count) {
    uint64_t done = totals.done, failed = totals.failed;
    for (const rs_transfer_entry *t = first; t; t = t->next) {
        rs_xfer_stats stats;
        ++*count;
        if (rs_xfer_stats_get(agent->node, t->xfer, &stats) == RS_OK)
            rs_totals_add(&totals, &stats, true);
    }
    totals.done = done;
    totals.failed = failed;
    return totals;
}

/* What servers do for each other: `r` of what is received here, `s` of what is sent from here. */
static void peers(page *p, const rs_totals_of *s, const rs_totals_of *r) {
    family(p, "acks_total", "counter", "RDCM: acknowledgements between servers.");
    by(p, "acks_total", "direction", "sent", r->acks_sent);
    by(p, "acks_total", "direction", "received", r->acks_received + s->acks_received);
    family(p, "peer_repairs_total", "counter", "RDCM: fragments mended between receivers; old: had been here already.");
    by(p, "peer_repairs_total", "kind", "sent", r->peer_repairs_sent);
    by(p, "peer_repairs_total", "kind", "received", r->peer_repairs_received);
    by(p, "peer_repairs_total", "kind", "old", r->peer_repairs_old);
}

/* Bytes of sends by wan that may be needed again, of all of them together. */
static void send_buffers(const rs_agent *agent, page *p) {
    rs_send_buffers b;
    if (rs_send_buffers_get(agent->node, RS_PROTOCOL_WAN, &b) != RS_OK)
        return;
    family(p, "wan_buffer_bytes", "gauge", "Sent by wan and perhaps needed again: by all sends together.");
    by(p, "wan_buffer_bytes", "kind", "used", b.used);
    by(p, "wan_buffer_bytes", "kind", "most", b.used_most);
    by(p, "wan_buffer_bytes", "kind", "wanted", b.wanted);
    by(p, "wan_buffer_bytes", "kind", "bound", b.bound);
    gauge(p, "wan_buffer_sends", b.sends, "Sends by wan that share that bound.");
}

static void transfers(const rs_agent *agent, page *p) {
    uint64_t sending = 0, receiving = 0;
    rs_totals_of s = so_far(agent, agent->transfers.sending, agent->totals.sent, &sending);
    rs_totals_of r = so_far(agent, agent->transfers.receiving, agent->totals.received, &receiving);
    family(p, "transfers_under_way", "gauge", "Transfers now.");
    by(p, "transfers_under_way", "direction", "send", sending);
    by(p, "transfers_under_way", "direction", "receive", receiving);
    family(p, "sends_total", "counter", "Sends that ended.");
    by(p, "sends_total", "outcome", "done", s.done);
    by(p, "sends_total", "outcome", "failed", s.failed);
    family(p, "receives_total", "counter", "Objects that came in, or did not.");
    by(p, "receives_total", "outcome", "done", r.done);
    by(p, "receives_total", "outcome", "failed", r.failed);
    counter(p, "sent_bytes_total", s.bytes, "Bytes of distinct fragments sent.");
    counter(p, "received_bytes_total", r.bytes, "Bytes of objects stored.");
    family(p, "data_packets_sent_total", "counter", "Data packets sent, and of these those of some kind.");
    by(p, "data_packets_sent_total", "kind", "all", s.packets_sent);
    by(p, "data_packets_sent_total", "kind", "attempt", s.packets_attempt);
    by(p, "data_packets_sent_total", "kind", "redundant", s.packets_redundant);
    by(p, "data_packets_sent_total", "kind", "repair", s.repairs_sent);
    family(p, "data_packets_received_total", "counter", "Data packets received, and of these those of some kind.");
    by(p, "data_packets_received_total", "kind", "all", r.packets_received);
    by(p, "data_packets_received_total", "kind", "old", r.packets_old);
    by(p, "data_packets_received_total", "kind", "repair", r.repairs_received);
    counter(p, "fragments_lost_total", r.lost, "Fragments found missing by this receiver.");
    counter(p, "fragments_repaired_total", r.repairs_used, "Of these, mended by repair packets.");
    counter(p, "patches_sent_total", s.patches_sent, "Fragments sent again to single receivers.");
    counter(p, "patches_received_total", r.patches_received, "Fragments received so.");
    counter(p, "losses_mended_total", s.repairs_mended, "Losses of all receivers mended by repair packets sent here.");
    peers(p, &s, &r);
    send_buffers(agent, p);
}

static void streams(const rs_agent *agent, page *p) {
    uint64_t sending = 0, receiving = 0;
    for (const rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        sending += t->source != NULL;
    for (const rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next)
        receiving += t->sink != NULL;
    family(p, "streams", "gauge", "Continuing streams now, among the transfers under way.");
    by(p, "streams", "direction", "send", sending);
    by(p, "streams", "direction", "receive", receiving);
    family(p, "stream_bytes_total", "counter", "Bytes of streams taken from programs, and handed to programs.");
    by(p, "stream_bytes_total", "direction", "send", agent->totals.stream_bytes_out);
    by(p, "stream_bytes_total", "direction", "receive", agent->totals.stream_bytes_in);
}

/* How lost messages were recovered here, of all groups (core/groups/messages.h, rs_messages_stats). */
static void group_repairs(page *p, const rs_messages_stats *s) {
    counter(p, "group_packets_found_missing_total", s->discovered, "Packets of messages found missing.");
    family(p, "group_packets_recovered_total", "counter", "Of these, how they came after all.");
    by(p, "group_packets_recovered_total", "via", "repair", s->recovered_repair);
    by(p, "group_packets_recovered_total", "via", "retransmit", s->recovered_retransmit);
    by(p, "group_packets_recovered_total", "via", "late", s->recovered_data);
    counter(p, "group_packets_lost_total", s->lost, "Packets of messages that programs were told are lost.");
    family(p, "group_requests_total", "counter", "Requests (NAKs) for missing packets, and answers.");
    by(p, "group_requests_total", "kind", "sent", s->naks_sent);
    by(p, "group_requests_total", "kind", "packets", s->asked);
    by(p, "group_requests_total", "kind", "received", s->naks_received);
    by(p, "group_requests_total", "kind", "repeated", s->naks_repeated);
    by(p, "group_requests_total", "kind", "answered", s->retransmits_sent);
    family(p, "group_position_queries_total", "counter", "Questions for how far a publisher is that is not heard.");
    by(p, "group_position_queries_total", "direction", "sent", s->queries_sent);
    by(p, "group_position_queries_total", "direction", "received", s->queries_received);
    family(p, "group_heartbeats_total", "counter", "Heartbeats of quiet senders.");
    by(p, "group_heartbeats_total", "direction", "sent", s->heartbeats_sent);
    by(p, "group_heartbeats_total", "direction", "received", s->heartbeats_received);
}

/* What engines count besides: group_<name>_total by kind, or group_<name>. */
static void group_engines(const rs_agent *agent, page *p) {
    rs_group_stat stats[RS_GROUP_STATS_MOST];
    for (uint32_t e = 0; e < rs_group_engine_count; e++) {
        uint32_t count = rs_groups_engine_stats(agent->groups, e, stats);
        for (uint32_t i = 0; i < count; i++) {
            char name[64], text[96];
            const char *what = stats[i].name, *engine = rs_group_engines_known[e]->name;
            snprintf(name, sizeof name, "group_%s%s", what, stats[i].gauge ? "" : "_total");
            snprintf(text, sizeof text, "Of message groups, as the engine %s counts %s.", engine, what);
            if (i == 0 || strcmp(stats[i - 1].name, what) != 0)
                family(p, name, stats[i].gauge ? "gauge" : "counter", text);
            by(p, name, stats[i].kind ? "kind" : "engine", stats[i].kind ? stats[i].kind : engine, stats[i].value);
        }
    }
}

/* Messages for replay, in memory and on disk. */
static void group_kept(const rs_agent *agent, page *p) {
    rs_kept_facts facts[KEPT_MOST];
    char names[KEPT_MOST][2 * ROSTRUM_GROUP_NAME_MAX + 4];
    uint32_t count = rs_kept_list(agent->groups, facts, KEPT_MOST);
    for (uint32_t i = 0; i < count; i++)
        put_label(names[i], sizeof names[i], facts[i].group);
    gauge(p, "groups_kept_bytes", (double)rs_kept_bytes(agent->groups), "What all groups keep for replay.");
    family(p, "group_kept_bytes", "gauge", "What a group keeps for replay.");
    for (uint32_t i = 0; i < count; i++)
        by(p, "group_kept_bytes", "group", names[i], facts[i].bytes);
    family(p, "group_kept_messages", "gauge", "Messages from the oldest to the newest that a group keeps.");
    for (uint32_t i = 0; i < count; i++)
        by(p, "group_kept_messages", "group", names[i], facts[i].last ? facts[i].last - facts[i].first + 1 : 0);
}

static void groups(const rs_agent *agent, page *p) {
    rs_messages_stats s;
    rs_groups_stats(agent->groups, &s);
    group_engines(agent, p);
    group_kept(agent, p);
    gauge(p, "groups", (double)s.groups, "Message groups with a view here.");
    gauge(p, "group_packets_missing", (double)s.missing, "Packets of messages missing now.");
    counter(p, "group_messages_published_total", s.published, "Messages published here.");
    counter(p, "group_messages_delivered_total", s.delivered, "Messages of other servers that came.");
    family(p, "group_packets_total", "counter", "Data packets of messages, by multicast.");
    by(p, "group_packets_total", "direction", "sent", s.data_sent);
    by(p, "group_packets_total", "direction", "received", s.data_received);
    family(p, "group_datagrams_refused_total", "counter", "Datagrams of messages that were of no use, by why.");
    by(p, "group_datagrams_refused_total", "reason", "duplicate", s.duplicates);
    by(p, "group_datagrams_refused_total", "reason", "foreign", s.foreign);
    by(p, "group_datagrams_refused_total", "reason", "malformed", s.bad);
    by(p, "group_datagrams_refused_total", "reason", "corrupt", s.corrupt);
    by(p, "group_datagrams_refused_total", "reason", "forged", s.forged);
    by(p, "group_datagrams_refused_total", "reason", "bound", s.refused);
    by(p, "group_datagrams_refused_total", "reason", "stranger", s.strangers);
    by(p, "group_datagrams_refused_total", "reason", "unlikely", s.claims);
    by(p, "group_datagrams_refused_total", "reason", "version", s.versions);
    by(p, "group_datagrams_refused_total", "reason", "report", rs_groups_reports_refused(agent->groups));
    by(p, "group_datagrams_refused_total", "reason", "queue-full", s.rx_queue_dropped);
    family(p, "group_requests_refused_total", "counter", "Packets of messages asked for and not given, by why.");
    by(p, "group_requests_refused_total", "reason", "no-member", s.naks_refused);
    by(p, "group_requests_refused_total", "reason", "budget", s.naks_over);
    counter(p, "group_packets_early_total", s.early, "Packets of senders that no view listed yet.");
    gauge(p, "group_streams", (double)s.streams, "Senders in groups that messages came from.");
    gauge(p, "group_window_bytes", (double)s.window_bytes, "What is known of their packets.");
    rs_io_stats io = rs_groups_io_stats(agent->groups);
    counter(p, "group_datagrams_intercepted_total", io.intercepted, "Lost on purpose (--loss).");
    counter(p, "group_socket_drops_total", rs_groups_socket_drops(agent->groups), "Dropped at full socket buffers.");
    group_repairs(p, &s);
}

char *rs_metrics_page(void *context, size_t *length) {
    const rs_agent *agent = context;
    page p = {.bytes = malloc(PAGE_BYTES)};
    if (!p.bytes)
        return NULL;
    process(agent, &p);
    manager(agent, &p);
    control(agent, &p);
    lan(agent, &p);
    store(agent, &p);
    transfers(agent, &p);
    streams(agent, &p);
    groups(agent, &p);
    sealed(agent, &p);
    *length = p.used;
    return p.bytes;
}

/* ---------------------------------------------------------------------------------------------------------- status */

static const char *const phase_names[] = {
    [RS_PHASE_WAITING] = "waiting",   [RS_PHASE_ATTEMPT] = "attempt", [RS_PHASE_HIGH_RATE] = "high-rate",
    [RS_PHASE_PATCHING] = "patching", [RS_PHASE_DONE] = "done",
};

static rostrum_transfer describe(const rs_agent *agent, rs_transfer_entry *t) {
    rs_xfer_stats stats = {0};
    rs_incoming incoming;
    rs_xfer_stats_get(agent->node, t->xfer, &stats);
    rostrum_transfer out = {.data_id = t->id.data,
                            .sending = t->sending,
                            .size = stats.size,
                            .bytes = stats.bytes_present,
                            .rate_bps = stats.rate_bps,
                            .receivers = stats.receivers,
                            .receivers_done = stats.receivers_done,
                            .receivers_failed = stats.receivers_failed,
                            .protocol = (rostrum_protocol)(ROSTRUM_PROTOCOL_REPUBLIC + (int)stats.protocol),
                            .view = stats.view,
                            .acks_sent = stats.acks_sent,
                            .acks_received = stats.acks_received,
                            .repairs_sent = stats.peer_repairs_sent,
                            .repairs_received = stats.peer_repairs_received,
                            .repairs_old = stats.peer_repairs_old,
                            .window = stats.window,
                            .ack_timeout_ns = stats.ack_timeout};
    memcpy(out.app, t->id.app, sizeof out.app);
    snprintf(out.phase, sizeof out.phase, "%s", t->sending ? phase_names[stats.phase] : "receiving");
    if (t->source || t->sink) {
        out.size = out.bytes = t->source ? rs_stream_source_bytes(t->source) : rs_stream_sink_bytes(t->sink);
        if (!t->sending || stats.phase == RS_PHASE_HIGH_RATE)
            snprintf(out.phase, sizeof out.phase, "streaming");
    }
    if (t->sending) {
        out.path = rs_sending_of(t)->result.path;
        out.requested_ns = rs_sending_of(t)->result.requested_ns;
    } else if (rs_incoming_info(agent->node, t->xfer, &incoming) == RS_OK) {
        snprintf(out.peer, sizeof out.peer, "%s", rs_peers_name(&agent->peers, incoming.sender));
    }
    return out;
}

void rs_status_api(void *context, const rs_api_call *call) {
    rs_agent *agent = context;
    uint32_t count = 0;
    rostrum_transfer *transfers = calloc(agent->transfers.count + 1u, sizeof *transfers);
    if (!transfers) {
        rs_api_reply_error(agent->api, call, ROSTRUM_ERR_LIMIT, "no memory to list the transfers");
        return;
    }
    uint32_t group_count = rs_groups_count(agent->groups);
    rostrum_group_status *groups = calloc(group_count + 1u, sizeof *groups);
    if (groups)
        group_count = rs_groups_status(agent->groups, groups, group_count);
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        transfers[count++] = describe(agent, t);
    for (rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next)
        transfers[count++] = describe(agent, t);
    rostrum_status status = {.started_ns = agent->started_ns,
                             .manager_up = agent->link && rs_manager_answers(agent->link),
                             .packets_bad = agent->packets_bad + rs_control_stats_get(agent->control).malformed,
                             .transfers = transfers,
                             .transfer_count = count,
                             .groups = groups,
                             .group_count = groups ? group_count : 0};
    if (agent->lan)
        rs_lan_describe(agent->lan, status.manager, sizeof status.manager);
    else if (agent->link)
        rs_manager_describe(agent->link, rs_agent_now(agent), status.manager, sizeof status.manager);
    else
        snprintf(status.manager, sizeof status.manager, "none (started without --manager)");
    rs_api_reply_status(agent->api, call, &status);
    free(groups);
    free(transfers);
}
