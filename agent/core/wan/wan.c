/* The row of the engine for wide areas in the table of engines. */
#include "core/wan/wan.h"

#include <string.h>

#include "core/wan/nack_tree.h"
#include "core/wan/receiver.h"
#include "core/wan/sender.h"

#define MEMORY (UINT64_C(512) << 20) /* docs/wan.md */

static bool configure(const void *given, void *options) {
    rs_wan_node *own = options;
    rs_wan_config *c = &own->config;
    if (given)
        *c = *(const rs_wan_config *)given;
    c->memory = c->memory ? c->memory : MEMORY;
    own->pool.bound = c->memory;
    bool fixed = c->congestion == RS_WAN_FIXED;
    return c->congestion <= RS_WAN_FIXED && (fixed ? c->fixed_bps > 0 : c->fixed_bps == 0) && c->proactive != 1 &&
           c->proactive <= RS_COMBINE_MAX && c->memory >= RS_WAN_MEMORY_LEAST && c->memory <= RS_WAN_MEMORY_MOST;
}

/* A number of at most six digits in front of `*end`; -1: there is none. */
static int64_t number_of(const char *text, const char **end) {
    int64_t number = 0;
    for (*end = text; **end >= '0' && **end <= '9' && *end - text < 6; ++*end)
        number = number * 10 + (**end - '0');
    return *end == text ? -1 : number;
}

/* A rate such as 200M, in bit/s; 0: it is none. */
static int64_t rate_of(const char *text) {
    const char *end;
    int64_t rate = number_of(text, &end), times = *end == 'M' ? 1000000 : *end == 'G' ? 1000000000 : 0;
    rate *= times;
    return times && end[1] == '\0' && rate >= 1000000 && rate <= INT64_C(1000000000000) ? rate : 0;
}

static bool take_congestion(const char *value, rs_wan_config *c) {
    c->fixed_bps = strncmp(value, "fixed:", 6) == 0 ? rate_of(value + 6) : 0;
    c->congestion = c->fixed_bps ? RS_WAN_FIXED : strcmp(value, "friendly") == 0 ? RS_WAN_FRIENDLY : RS_WAN_OWN;
    return c->congestion != RS_WAN_OWN || strcmp(value, "own") == 0;
}

static bool take_coding(const char *value, rs_wan_config *c) {
    const char *end = value;
    int64_t share = strncmp(value, "proactive:", 10) == 0 ? number_of(value + 10, &end) : 0;
    c->proactive = *end == '\0' && share >= 2 && share <= RS_COMBINE_MAX ? (uint32_t)share : 0;
    c->coded = strcmp(value, "repairs") == 0;
    return c->proactive || c->coded || strcmp(value, "none") == 0;
}

static bool take_slow(const char *value, rs_wan_config *c) {
    c->wait = strcmp(value, "wait") == 0;
    return c->wait || strcmp(value, "demote") == 0;
}

static bool ask(const char *text, void *asked, char *message, size_t size) {
    static const struct {
        const char *name, *values;
        bool (*take)(const char *value, rs_wan_config *c);
    } options[] = {{"congestion", "own, friendly or fixed:RATE (1M to 1000G)", take_congestion},
                   {"coding", "none, repairs or proactive:N (2 to 21)", take_coding},
                   {"slow", "demote or wait", take_slow}};
    char one[64];
    for (size_t length; *text; text += length + (text[length] == ',')) {
        length = strcspn(text, ",");
        bool whole = length < sizeof one;
        rs_format(one, sizeof one, "%.*s", (int)(whole ? length : sizeof one - 1), text);
        size_t name = strcspn(one, "="), i = 0;
        while (i < sizeof options / sizeof *options &&
               (one[name] != '=' || strlen(options[i].name) != name || strncmp(options[i].name, one, name) != 0))
            i++;
        if (i == sizeof options / sizeof *options) {
            rs_format(message, size, "wan has no option %.32s: there are congestion, coding and slow", one);
            return false;
        }
        if (!whole || !options[i].take(one + name + 1, asked)) {
            rs_format(message, size, "%s is %s, not %.40s", options[i].name, options[i].values, one + name + 1);
            return false;
        }
    }
    return true;
}

static rs_rx_verdict message(rs_node *node, rs_time now, rs_peer_session *link, const rs_message *m) {
    rs_transfer *t = link->transfer;
    if (t->sending)
        return rs_wan_on_request(node, now, (rs_sending *)t, RS_HOLDER(rs_recipient, link, link), m);
    return rs_wan_receiver_message(node, now, (rs_receiving *)t, m);
}

static bool say(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more) {
    return what == RS_CONTROL_PTCH_REQ && rs_wan_request(node, now, x, m, more);
}

static rs_rx_result peer_datagram(rs_node *node, rs_time now, rs_transfer *t, const rs_packet_in *packet) {
    if (t->sending)
        return (rs_rx_result){.verdict = rs_wan_on_status(node, now, (rs_sending *)t, packet)};
    return rs_wan_repair_datagram(node, now, (rs_receiving *)t, packet);
}

static bool poll(rs_node *node, rs_time now, rs_transfer *t, rs_turn turn, rs_packet_out *out) {
    if (turn == RS_TURN_DATA)
        return rs_wan_poll_data(node, now, (rs_sending *)t, out);
    return turn == RS_TURN_ACK && rs_wan_poll_status(node, now, (rs_receiving *)t, out);
}

static void timeout(rs_node *node, rs_time now, rs_transfer *t) {
    if (!t->own)
        return;
    if (t->sending)
        rs_wan_sender_timeout(node, now, (rs_sending *)t);
    else
        rs_wan_receiver_timeout(node, now, (rs_receiving *)t);
}

static rs_time deadline(const rs_node *node, const rs_transfer *t) {
    (void)node;
    if (!t->own)
        return RS_NEVER;
    return t->sending ? rs_wan_sender_due((const rs_sending *)t) : rs_wan_receiver_due((const rs_receiving *)t);
}

static void notify(rs_node *node, rs_time now, rs_transfer *t, const rs_news *news) {
    if (t->sending)
        rs_wan_sender_news(node, now, (rs_sending *)t, news);
    else if (t->own && news->what == RS_NEWS_CONNECTED)
        rs_wan_connected(node, now, (rs_receiving *)t);
}

static void stats(const rs_node *node, const rs_transfer *t, rs_xfer_stats *out) {
    (void)node;
    if (t->own && t->sending)
        rs_wan_sender_stats((const rs_sending *)t, out);
}

static void buffers(const rs_node *node, rs_send_buffers *out) {
    const rs_wan_pool *pool = &rs_wan_node_of(node)->pool;
    *out = (rs_send_buffers){.bound = pool->bound,
                             .used = pool->used,
                             .used_most = pool->used_most,
                             .wanted = pool->wanted,
                             .sends = pool->count};
}

static void stop(rs_node *node, rs_transfer *t) {
    if (t->sending && t->own)
        rs_wan_sender_stop(node, (rs_sending *)t);
}

static void let_go(rs_node *node, rs_transfer *t) {
    if (t->sending)
        rs_wan_sender_free(node, (rs_sending *)t);
    else
        rs_wan_receiver_free(node, (rs_receiving *)t);
}

const rs_engine rs_engine_wan = {
    .id = RS_PROTOCOL_WAN,
    .name = "wide-area sections",
    .word = "wan",
    .path_kinds = 1u << RS_PATH_PACKET,
    .traits = RS_ENGINE_UNICAST,
    .receiver_events = 10,
    .options_size = sizeof(rs_wan_node),
    .configure = configure,
    .ask = ask,
    .asked_size = sizeof(rs_wan_config),
    .path_granted = rs_wan_begin,
    .begin = rs_wan_accept,
    .data_packet = rs_wan_data,
    .message = message,
    .say = say,
    .tell = rs_wan_tree_tell,
    .report_to = rs_wan_told,
    .peer_datagram = peer_datagram,
    .poll = poll,
    .timeout = timeout,
    .deadline = deadline,
    .notify = notify,
    .stats = stats,
    .buffers = buffers,
    .stop = stop,
    .free = let_go,
};
