/* How far the data channel runs ahead of its receivers, by what each last said it saw (RATE): no further than half of
 * what may wait at its socket, and no further than RS_AHEAD at the present rate, so that what a switch or a host cannot
 * carry waits at the sender and not in buffers on the way, where it would be late first and lost later. The first bound
 * keeps sockets from overflowing whatever the rate; the second is generous: a host that is busy with something else for
 * some milliseconds must not stop the others. A receiver that says nothing for RS_SILENT holds nobody up.
 *
 * A burst may take all that was under way to a receiver, with every packet that asked for a report: nothing would come
 * to open the window. So a shut window lets a few packets through now and then (as TCP does after a lost tail, RFC
 * 8985), each time after twice as long. Ours. */
#include "core/republic/window.h"

#include "core/republic/repair_sender.h"
#include "core/republic/speakers.h"

#define PROBE_PACKETS (RS_LOSS_RUN / 2)  /* a run of losses that takes the first of them leaves the last */
#define AHEAD_LEAST RS_LOSS_RUN          /* packets */
#define ROOM_UNKNOWN (UINT64_C(4) << 20) /* bytes: a quarter of what agents ask the kernel for (a bound) */
#define ROOM_LEAST 2                     /* packets: one is read while one comes (a bound) */
#define PROBE_AFTER (2 * RS_MS) /* besides two round trips (RFC 8985, Sec. 7.2), which are the least ones here */

uint64_t rs_window_room(const rs_sending *x, const rs_recipient *r) {
    uint64_t room = rs_tree_room(x, r), fits = (room ? room : ROOM_UNKNOWN) / 2 / (x->t.fragment_size + RS_DATA_HEADER);
    return fits > ROOM_LEAST ? fits : ROOM_LEAST;
}

uint64_t rs_window_of(const rs_sending *x, const rs_recipient *r) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_progress *progress = rs_progress_of(r);
    rs_time packet = rs_wire_time(x->t.fragment_size + RS_DATA_HEADER + RS_WIRE_OVERHEAD, rs_rate_bps(&x->rate));
    rs_time time = RS_AHEAD + 2 * progress->rate->model.min_rtt + 3 * rs_sent_times_interval(&own->sent_times, packet);
    uint64_t packets = (uint64_t)(time / packet);
    uint64_t fits = rs_window_room(x, r);
    packets = packets > AHEAD_LEAST ? packets : AHEAD_LEAST;
    if (!progress->rate->model.startup_done &&
        !rs_path_rate_is_known(x)) { /* slow start (RFC 5681): it doubles in a round trip */
        uint64_t seen = progress->seen_pos > own->high_pos ? progress->seen_pos - own->high_pos : 0;
        fits = own->first_window + seen < fits ? own->first_window + seen : fits;
    }
    return packets < fits ? packets : fits;
}

/* Its round ends within the window, or it is finished by other means. */
static bool out_of_it(const rs_sending *x, const rs_recipient *r, rs_time now, uint64_t window) {
    rs_progress *progress = rs_progress_of(r);
    return !rs_is_active(r) || r->light != RS_LIGHT_LIT || progress->on_trial || !rs_link_is_up(&r->link) ||
           now - progress->seen_at >= RS_SILENT || rs_tree_silent(x, r, now) ||
           progress->seen_pos + window >= progress->start_pos + (x->end - x->first);
}

static void find(rs_sending *x, rs_time now) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    own->window_of = NULL;
    own->window_pos = UINT64_MAX;
    for (uint32_t i = 0; i < rs_speaker_count(x); i++) {
        rs_recipient *r = rs_speaker(x, i);
        rs_progress *progress = rs_progress_of(r);
        if (!rs_is_active(r) || progress->seen_pos >= own->window_pos)
            continue;
        uint64_t window = rs_window_of(x, r);
        if (progress->seen_pos + window >= own->window_pos || out_of_it(x, r, now, window))
            continue;
        own->window_pos = progress->seen_pos + window;
        own->window_of = r;
    }
    /* A collector that is silent is told by what it leaves unanswered. */
    bool direct = own->window_of && !rs_tree_in_use(x);
    own->sent_times.answered = direct ? rs_progress_of(own->window_of)->seen_pos : UINT64_MAX;
    own->sent_times.timeout =
        direct ? 2 * rs_progress_of(own->window_of)->rate->model.min_rtt + 4 * own->sent_times.every : 0;
}

/* When a shut window lets some packets through. */
static rs_time probe_due(const rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    const rs_recipient *r = own->window_of;
    rs_progress *progress = rs_progress_of(r);
    rs_time after = (PROBE_AFTER + 2 * progress->rate->model.min_rtt + own->sent_times.every) << own->probes;
    return (own->probes && own->probed_at > progress->seen_at ? own->probed_at : progress->seen_at) + after;
}

/* When the next data packet may go, as far as receivers are concerned. */
static rs_time window_due(rs_sending *x, rs_time now) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (x->phase != RS_PHASE_HIGH_RATE)
        return now;
    if (x->pos >= own->window_pos)
        find(x, now);
    if (x->pos >= own->window_pos) {
        rs_time due = probe_due(x), silent = rs_progress_of(own->window_of)->seen_at + RS_SILENT;
        if (now < due)
            return due < silent ? due : silent;
        own->probes++;
        own->probed_at = now;
        own->window_pos = x->pos + PROBE_PACKETS;
    }
    /* The last one waits until it may ask for a report: without one nothing would open the window again. */
    return x->pos + 1 == own->window_pos && rs_sent_times_next_report(&own->sent_times) > now
               ? rs_sent_times_next_report(&own->sent_times)
               : now;
}

void rs_republic_schedule(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_time due = x->phase == RS_PHASE_ATTEMPT ? own->attempt_due : rs_pacer_due(&x->pacer);
    rs_time open = x->phase == RS_PHASE_PATCHING ? now : window_due(x, now);
    if (x->phase == RS_PHASE_PATCHING && !rs_repair_tail_sends(x)) {
        rs_data_stop(node, x);
        return;
    }
    rs_data_schedule(node, now, x, open > due ? open : due);
}

/* The slowest has moved on, or another is the slowest now: data packets may go again. */
static void recompute_window(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    bool waits = rs_tree_in_use(x) && x->pos + 1 == own->window_pos; /* until its last packet may ask for a report */
    bool shut = x->pos >= own->window_pos || waits;
    find(x, now);
    if (shut && x->pos < own->window_pos) {
        rs_pacer_resume(&x->pacer, now);
        rs_republic_schedule(node, now, x);
    }
}

void rs_window_start(rs_sending *x, rs_time now) {
    for (uint32_t i = 0; i < rs_speaker_count(x); i++) {
        rs_progress_of(rs_speaker(x, i))->seen_pos = x->pos; /* attempts are too few to wait anywhere */
        rs_progress_of(rs_speaker(x, i))->seen_at = now;
    }
    find(x, now);
}

void rs_window_seen(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, uint64_t pos) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_progress *progress = rs_progress_of(r);
    progress->seen_at = now;
    if (pos > progress->seen_pos)
        progress->seen_pos = pos;
    if (r == own->window_of)
        own->probes = 0;
    if (x->phase != RS_PHASE_HIGH_RATE || !rs_speaks(x, r))
        return;
    if (r == own->window_of || progress->seen_pos + rs_window_of(x, r) < own->window_pos)
        recompute_window(node, now, x);
}

void rs_window_recompute(rs_node *node, rs_time now, rs_sending *x) {
    if (x->phase == RS_PHASE_HIGH_RATE)
        recompute_window(node, now, x);
}

void rs_window_on_receiver_removed(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (x->phase == RS_PHASE_HIGH_RATE && r == own->window_of)
        recompute_window(node, now, x);
}
