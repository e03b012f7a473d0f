/* Republic (docs/republic.md) in the table of engines: the fallback, which goes by every path. */
#include "core/republic/republic.h"

#include "core/republic/feedback_receiver.h"
#include "core/republic/receiver.h"
#include "core/republic/sender.h"
#include "core/republic/speakers.h"
#include "core/republic/tree_receiver.h"
#include "core/republic/tree_sender.h"

static rs_rx_verdict message(rs_node *node, rs_time now, rs_peer_session *link, const rs_message *m) {
    rs_transfer *t = link->transfer;
    if (t->sending)
        return rs_republic_sender_message(node, now, (rs_sending *)t, RS_HOLDER(rs_recipient, link, link), m);
    rs_republic_receiver_message(node, now, (rs_receiving *)t, m);
    return RS_RX_NONE;
}

static bool poll(rs_node *node, rs_time now, rs_transfer *t, rs_turn turn, rs_packet_out *out) {
    if (turn != RS_TURN_DATA)
        return rs_tree_poll(node, now, (rs_receiving *)t, turn == RS_TURN_REPAIR, out);
    return rs_republic_poll_data(node, now, (rs_sending *)t, out);
}

static void timeout(rs_node *node, rs_time now, rs_transfer *t) {
    if (t->sending)
        rs_republic_sender_timeout(node, now, (rs_sending *)t);
    else
        rs_republic_receiver_timeout(node, now, (rs_receiving *)t);
}

static rs_time deadline(const rs_node *node, const rs_transfer *t) {
    (void)node;
    return t->sending ? rs_republic_sender_due((const rs_sending *)t)
                      : rs_republic_receiver_due((const rs_receiving *)t);
}

static void notify(rs_node *node, rs_time now, rs_transfer *t, const rs_news *news) {
    if (t->sending)
        rs_republic_sender_news(node, now, (rs_sending *)t, news);
    else if (news->what == RS_NEWS_CONNECTED)
        rs_republic_connected(node, now, (rs_receiving *)t);
    else if (news->what == RS_NEWS_DROPPED)
        rs_report_soon(node, now, (rs_receiving *)t);
    else if (news->what == RS_NEWS_OVER)
        rs_tree_over(node, now, (rs_receiving *)t);
    else if (news->what == RS_NEWS_VERIFIED)
        rs_tree_verified(node, now, (rs_receiving *)t);
}

static void stats(const rs_node *node, const rs_transfer *t, rs_xfer_stats *out) {
    const rs_sending *x = (const rs_sending *)t;
    (void)node;
    if (!t->sending)
        return;
    const rs_repairing *p = &rs_republic_sender_of(x)->repair;
    out->repairs_mended += rs_repair_is_coded(p) ? p->table.mended : 0;
    out->rate_bps = x->phase == RS_PHASE_HIGH_RATE ? rs_rate_bps(&x->rate) : 0;
}

static void stop(rs_node *node, rs_transfer *t) {
    if (t->sending)
        rs_republic_sender_stop(node, (rs_sending *)t);
    else
        rs_tree_receiver_free(node, (rs_receiving *)t);
}

static rs_rx_result peer_datagram(rs_node *node, rs_time now, rs_transfer *t, const rs_packet_in *packet) {
    if (!t->sending)
        return rs_tree_datagram(node, now, (rs_receiving *)t, packet);
    return (rs_rx_result){.verdict = rs_tree_report(node, now, (rs_sending *)t, packet)};
}

static void free_own(rs_node *node, rs_transfer *t) {
    if (t->sending)
        rs_tree_sender_free(node, (rs_sending *)t);
    else
        rs_tree_receiver_free(node, (rs_receiving *)t);
}

static void prepare(rs_time now, rs_transfer *t) {
    if (t->sending) {
        rs_republic_sender *own = rs_republic_sender_of((const rs_sending *)t);
        own->light_due = own->pass_over_due = own->grace_due = own->dark_due = RS_NEVER;
        own->advance_due = own->repair.tail_due = RS_NEVER;
        return;
    }
    rs_republic_receiver *own = rs_republic_receiver_of((const rs_receiving *)t);
    own->reported_at = now - 1000 * RS_MS;
    own->report_due = own->retry_due = own->tail_due = own->map_due = RS_NEVER;
}

static void lay_sets(rs_receiving *x, uint64_t *words) {
    rs_seqset_init(&rs_republic_receiver_of(x)->asked, words ? x->t.fragments : 0, words);
}

const rs_engine rs_engine_republic = {
    .id = RS_PROTOCOL_REPUBLIC,
    .name = "Republic",
    .word = "republic",
    .path_kinds = 1u << RS_OPEN_NO_PATH | 1u << RS_PATH_CIRCUIT | 1u << RS_PATH_PACKET,
    .traits = RS_ENGINE_PARTS,
    .receiver_events = 10,
    .sending_size = sizeof(rs_republic_sender),
    .recipient_size = sizeof(rs_progress),
    .receiving_size = sizeof(rs_republic_receiver),
    .prepare = prepare,
    .sets = 1,
    .lay_sets = lay_sets,
    .path_granted = rs_republic_path_granted,
    .begin = rs_republic_begin,
    .data_packet = rs_republic_data,
    .message = message,
    .serves = rs_tree_is_on,
    .say = rs_republic_say,
    .tell = rs_tree_tell,
    .report_to = rs_tree_told,
    .peer_datagram = peer_datagram,
    .poll = poll,
    .timeout = timeout,
    .deadline = deadline,
    .notify = notify,
    .stats = stats,
    .stop = stop,
    .free = free_own,
};
