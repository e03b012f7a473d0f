/* Republic's sender (Sec. III-A1): attempt sending until receivers have light, high rate for one whole round of each,
 * patches of what they ask for. One handler for each message of Table III. */
#include "core/republic/sender.h"

#include "core/republic/feedback_sender.h"
#include "core/republic/repair_sender.h"
#include "core/republic/speakers.h"
#include "core/republic/straggler.h"
#include "core/republic/tree_sender.h"
#include "core/republic/window.h"

/* The attempt interval when the path needs no reconfiguration doubles every 64 packets from the first to the last: a
 * hundred seconds of attempts are 20,000 packets (a bound). */
#define ATTEMPT_LIVE (RS_MS / 5)
#define ATTEMPT_STEP 64
#define ATTEMPT_SLOWEST (5 * RS_MS)
#define ATTEMPT_FRESH 4   /* when such a part of the receivers, or the last, have accepted it goes at once, */
#define ATTEMPT_SOONER 16 /* if that is more than that part of an interval before its time */
#define ATTEMPT_PART 2    /* of a slow link at most: the rest is for OPEN and what receivers are told (test_republic) */
#define PASS_OVER RS_CONTROL_LATE  /* who has not even accepted is not waited for longer, if others have light */
#define GRACE_LEAST RS_HOST_BUSY   /* once the circuit can be there, nobody waits longer for another's light... */
#define GRACE_MOST RS_CONTROL_LATE /* ...than that: INTL_SEQ, which says it, is a control message */
/* Of many on a path that is there already, some hear OPEN late, as it was lost: those that have light do not wait for
 * them once so many have it (a bound; with 1 % lost on each of four links 88 % have it at once) and no other had it
 * for five of the first attempts. Who comes later has a whole round all the same. */
#define MOST_LIT(members) ((members) - (members) / 4)
#define LIT_SETTLED (5 * ATTEMPT_LIVE)
#define DARK_LEAST (4 * RS_CONTROL_LATE) /* after 4 light bounds, at least this, who is dark gets patches; */
#define DARK_UNBOUNDED \
    (20 * RS_CONTROL_LATE) /* when the grant gave no light bound: 10 reconfigurations, at least this */
#define PATCH_LEAST (5 * RS_MS)
#define PATCH_LEAST_FEW (2 * RS_MS) /* RS_FEW */
#define PATCH_SOON (RS_MS / 2)

/* ------------------------------------------------------------------------------------------- attempts and light */

static void set_attempt_interval(const rs_node *node, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_time packet = rs_wire_time(x->t.fragment_size + RS_DATA_HEADER + RS_WIRE_OVERHEAD, x->rate.ceiling_bps);
    own->attempts = own->fresh = own->heard = 0;
    if (node->config.attempt_interval) {
        own->attempt_interval = node->config.attempt_interval;
    } else if (x->grant.reconfiguration) {
        own->attempt_interval = x->grant.reconfiguration / 50; /* 2 %: Sec. III-A1 finds 1-3 % best */
    } else {
        own->attempt_interval = ATTEMPT_LIVE > ATTEMPT_PART * packet ? ATTEMPT_LIVE : ATTEMPT_PART * packet;
    }
    if (own->attempt_interval < packet)
        own->attempt_interval = packet;
}

/* Those that have light wait so long for the others after the last that got it: the cross-connects of one circuit are
 * made together, and differ by less than half of the time that they take. Whoever is still dark then is most likely
 * alone with that (a firewall, say), and is finished by patches unless its light comes while the others are served. */
static rs_time light_grace(const rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (own->lone)
        return GRACE_MOST;
    rs_time grace = x->grant.reconfiguration / 2;
    return grace < GRACE_LEAST ? GRACE_LEAST : grace > GRACE_MOST ? GRACE_MOST : grace;
}

/* The only receiver that is left gets packets of its own as well by unicast as by multicast: it is not waited for as
 * long as several would be, whose unicast costs the sender many times as much. */
static void try_lone(rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    const rs_recipient *only = NULL;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        const rs_recipient *r = &x->recipients[i];
        if (!r->member || !rs_is_active(r))
            continue;
        if (only)
            return;
        only = r;
    }
    own->lone = own->all_dark = only != NULL;
    if (only && rs_has_accepted(only))
        own->grace_due = now + light_grace(x);
}

/* How long to wait for light, measured from now. On the path of a further session the others do not wait again for a
 * receiver that stayed dark on the one before; it can have light all the same. Nor for those that the manager named. */
static void wait_for_light(rs_node *node, rs_time now, rs_sending *x, bool moved) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_time bound = x->grant.light_bound;
    rs_time dark = bound ? bound * 4 : x->grant.reconfiguration * 10, least = bound ? DARK_LEAST : DARK_UNBOUNDED;
    if (dark < least)
        dark = least;
    if (dark > node->config.no_path_bound)
        dark = node->config.no_path_bound;
    own->path_at = now;
    own->light_due = bound ? now + bound : RS_NEVER;
    own->pass_over_due = now + (x->grant.reconfiguration * 4 > PASS_OVER ? x->grant.reconfiguration * 4 : PASS_OVER);
    own->dark_due = now + dark;
    own->dark_passed = own->path_lit = false;
    own->light_at = 0;
    own->all_dark = !moved;
    own->lone = own->counted = false;
    own->grace_due = RS_NEVER;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (!r->member)
            continue;
        if (moved && r->light == RS_LIGHT_SKIPPED)
            r->light = RS_LIGHT_AWAITED;
        else if (!moved && r->named_dark && r->light != RS_LIGHT_DEMOTED)
            r->light = RS_LIGHT_SKIPPED;
        rs_progress_of(r)->no_light_told = false;
        own->all_dark &= r->named_dark || !rs_is_active(r);
        if (moved &&
            r->light == RS_LIGHT_LIT) /* it is at high rate already; the others get their chance on the new path */
            own->grace_due = now + (bound ? bound : DARK_LEAST);
    }
    if (own->grace_due != RS_NEVER)
        own->light_at = own->grace_due - light_grace(x);
    else if (!own->all_dark && x->grant.kind == RS_PATH_PACKET)
        try_lone(now, x);
}

/* Light before the circuit can have been made is that of receivers in the sender's own rack, and tells nothing of the
 * others. */
static rs_time grace_from(const rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_time made = own->path_at + x->grant.reconfiguration;
    if (!own->light_at)
        return made + x->grant.reconfiguration;
    return own->light_at > made ? own->light_at : made;
}

static void note_lit(rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (own->light_at < now)
        own->light_at = now;
    if (own->grace_due == RS_NEVER)
        own->grace_due = grace_from(x) + light_grace(x);
}

/* Of those that others carry to many accept at once, and most likely the last: the next attempt would come to them up
 * to an interval later. For a few it is not worth one, as each adds to all others' rounds. */
static void probe_soon(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (!x->carriers || x->phase != RS_PHASE_ATTEMPT || x->grant.reconfiguration || node->config.attempt_interval)
        return;
    own->fresh++;
    own->heard++;
    bool many = own->fresh * ATTEMPT_FRESH >= own->members || own->heard >= own->members;
    if (!many || own->attempt_due - now <= own->attempt_interval / ATTEMPT_SOONER)
        return;
    own->attempt_due = now;
    rs_republic_schedule(node, now, x);
}

static void accepted(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (r->member && r->light != RS_LIGHT_LIT && x->grant.light_bound && now + x->grant.light_bound < own->light_due)
        own->light_due = now + x->grant.light_bound;
    rs_time from = grace_from(x) > now ? grace_from(x) : now;
    if ((own->light_at || own->all_dark) && own->grace_due == RS_NEVER)
        own->grace_due = from + light_grace(x);
    rs_republic_advance(node, now, x);
    if (r->member && r->light == RS_LIGHT_AWAITED)
        probe_soon(node, now, x);
}

/* Looks at all receivers, at most four times in a grace. */
static void look_for_light(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_time grace = light_grace(x), again = RS_NEVER;
    own->grace_due = RS_NEVER;
    if (x->phase != RS_PHASE_ATTEMPT && x->phase != RS_PHASE_HIGH_RATE)
        return;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (!rs_is_active(r) || !r->member || r->light == RS_LIGHT_LIT || !rs_has_accepted(r))
            continue;
        rs_time due = (r->accepted_at > grace_from(x) ? r->accepted_at : grace_from(x)) + grace;
        if (now >= due && r->light == RS_LIGHT_AWAITED) {
            r->light = RS_LIGHT_SKIPPED;
            own->counted = false;
        }
        if (now < due && (r->light == RS_LIGHT_AWAITED || own->all_dark) && due < again)
            again = due;
    }
    own->dark_passed |= own->all_dark && again == RS_NEVER;
    if (again != RS_NEVER)
        own->grace_due = again > now + grace / 4 ? again : now + grace / 4;
    rs_republic_advance(node, now, x);
}

const char *rs_republic_path_granted(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    own->stop_pos = 0;
    set_attempt_interval(node, x);
    wait_for_light(node, now, x, false);
    if (!rs_tree_begin(node, now, x)) {
        rs_sender_phase(node, x, RS_PHASE_ATTEMPT); /* of a session that has begun */
        rs_sender_unicast(node, now, x, "out of memory: it is not known how fast receivers are");
        return NULL;
    }
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (rs_is_active(&x->recipients[i]) && x->recipients[i].member && x->recipients[i].light != RS_LIGHT_DEMOTED)
            rs_progress_of(&x->recipients[i])->sampled = false;
    rs_sender_open_members(node, now, x);
    own->attempt_due = now;
    rs_sender_phase(node, x, RS_PHASE_ATTEMPT);
    rs_republic_schedule(node, now, x);
    rs_sender_want_path(node, now, x); /* the rest, of the object or of the receivers */
    rs_republic_advance(node, now, x);
    return NULL;
}

static void high_rate(rs_node *node, rs_time now, rs_sending *x) {
    x->stats.high_rate_at = now;
    x->rate.from_pos = x->pos;
    x->rate.epoch_end = now + x->rate.epoch;
    rs_sender_phase(node, x, RS_PHASE_HIGH_RATE);
    rs_rate_begin(x, now);
    rs_window_start(x, now);
    rs_pacer_start(&x->pacer, now, rs_rate_bps(&x->rate));
    rs_republic_schedule(node, now, x);
    rs_repair_high_rate(x);
}

static void resume(rs_node *node, rs_time now, rs_sending *x) {
    if (x->phase != RS_PHASE_HIGH_RATE)
        return;
    x->rate.from_pos = x->pos;
    x->rate.epoch_end = now + x->rate.epoch;
    rs_rate_begin(x, now);
    rs_window_start(x, now);
    rs_pacer_start(&x->pacer, now, rs_rate_bps(&x->rate));
    rs_republic_schedule(node, now, x);
}

static void tell_dark(rs_node *node, rs_time now, const rs_sending *x, rs_recipient *r, rs_time since) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_event event = {.kind = RS_EV_NO_LIGHT, .xfer = x->t.id, .peer = r->link.peer->id, .session = x->t.session};
    char others[48] = "";
    rs_progress_of(r)->no_light_told = true;
    if (own->lit)
        rs_format(others, sizeof others, ", while %u others had light", own->lit);
    rs_format(event.cause, sizeof event.cause, "no data packet in %lld ms on a %s path (%u sent)%s",
              (long long)((now - since) / RS_MS), x->grant.kind == RS_PATH_CIRCUIT ? "circuit" : "packet",
              (unsigned)x->pos, others);
    rs_emit(node, &event);
}

static bool is_dark(const rs_recipient *r) {
    return rs_is_active(r) && r->member && r->light < RS_LIGHT_LIT && rs_has_accepted(r) &&
           !rs_progress_of(r)->no_light_told;
}

static void tell_all_dark(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (own->counted && own->lit == own->members)
        return;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (is_dark(r))
            tell_dark(node, now, x, r, r->accepted_at > own->path_at ? r->accepted_at : own->path_at);
    }
}

/* One RS_EV_NO_LIGHT for each receiver that has accepted and seen nothing for the path's bound. */
static void tell_no_light(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    own->light_due = RS_NEVER;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (!is_dark(r))
            continue;
        rs_time since = r->accepted_at > own->path_at ? r->accepted_at : own->path_at;
        if (now < since + x->grant.light_bound) {
            if (since + x->grant.light_bound < own->light_due)
                own->light_due = since + x->grant.light_bound;
            continue;
        }
        tell_dark(node, now, x, r, since);
    }
}

/* DATA_FNSD goes out when a receiver that lost nothing has had time to say DATA_RCVD. Those whose reports others
 * collect are not asked how far they are, and are as far as those. Where no round trip is known yet, or that of another
 * day by which it costs little to be wrong, it is no longer than from the grant to the answer to OPEN. */
static rs_time patch_timeout(const rs_node *node, const rs_sending *x) {
    bool few = x->t.fragments <= RS_FEW && !x->carriers; /* who is carried to takes it for too soon (hearsay) */
    rs_time late = 0, least = few ? PATCH_LEAST_FEW : PATCH_LEAST;
    if (node->config.patch_timeout)
        return node->config.patch_timeout;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        const rs_recipient *r = &x->recipients[i];
        if (!rs_is_active(r) || !r->member || !rs_has_accepted(r) || r->reported)
            continue;
        rs_time answered = r->accepted_at - x->stats.granted_at, most = 10 * RS_MS;
        rs_time known = rs_rtt_late(&r->link.peer->rtt, answered < most ? answered : most);
        rs_time its = few && answered < known ? answered : known;
        late = its > late ? its : late;
    }
    late *= 2;
    return late < least ? least : late > 200 * RS_MS ? 200 * RS_MS : late;
}

/* Half of them are whole: the others take as long again at most, or lost something. */
static void end_soon(rs_node *node, rs_time now, rs_sending *x) {
    rs_time due = now + (now - x->stats.data_done_at) + PATCH_SOON;
    if (x->t.fragments > RS_FEW || x->fnsd_said || x->carriers || 2 * x->done < x->recipient_count ||
        due >= x->fnsd_due || node->config.patch_timeout)
        return;
    x->fnsd_due = due;
    rs_sender_arm(node, x);
}

static void data_done(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_straggler_stop(x);
    bool coded = rs_repair_is_coded(&own->repair);
    rs_data_stop(node, x);
    x->stats.data_done_at = now;
    own->light_due = own->pass_over_due = own->grace_due = own->dark_due = RS_NEVER;
    tell_all_dark(node, now, x);
    if (!rs_repair_tail(node, now, x)) {
        x->path_done_due = now + RS_DRAIN;
        x->fnsd_due =
            now + (coded ? RS_DRAIN : patch_timeout(node, x)); /* coded: they wait for it to ask for patches */
    }
    rs_sender_phase(node, x, RS_PHASE_PATCHING);
    rs_republic_schedule(node, now, x);
}

void rs_sender_data_over(rs_node *node, rs_time now, rs_sending *x, bool complete) {
    x->path_done_due = now + RS_DRAIN;
    x->fnsd_due = complete ? now + patch_timeout(node, x) : now;
    rs_sender_arm(node, x);
}

static uint64_t round_end(const rs_sending *x, const rs_recipient *r) {
    return rs_progress_of(r)->start_pos + (x->end - x->first);
}

static void count_lit(rs_sending *x, const rs_recipient *r) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    uint64_t end = round_end(x, r);
    own->lit++;
    if (end > own->rounds_end)
        own->rounds_last = 0;
    own->rounds_end = end > own->rounds_end ? end : own->rounds_end;
    own->rounds_last += end == own->rounds_end;
}

static void count_all(rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    own->members = own->waiting = own->lit = own->rounds_last = 0;
    own->rounds_end = 0;
    own->counted = true;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        const rs_recipient *r = &x->recipients[i];
        bool counts = rs_is_active(r) && r->member;
        rs_progress_of(r)->counted = counts;
        own->members += counts;
        own->waiting += counts && r->light == RS_LIGHT_AWAITED;
        if (counts && r->light == RS_LIGHT_LIT)
            count_lit(x, r);
    }
}

/* Its light has come. */
static void note_light(rs_sending *x, const rs_recipient *r, rs_light before) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    own->counted &= rs_progress_of(r)->counted;
    if (!own->counted)
        return;
    own->waiting -= before == RS_LIGHT_AWAITED;
    count_lit(x, r);
}

/* It is done or has failed. Of many, each ends once and nobody else is looked at. */
static void note_end(rs_sending *x, const rs_recipient *r) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (!rs_progress_of(r)->counted || rs_is_active(r))
        return;
    rs_progress_of(r)->counted = false;
    own->members--;
    own->waiting -= r->light == RS_LIGHT_AWAITED;
    own->lit -= r->light == RS_LIGHT_LIT;
    if (r->light == RS_LIGHT_LIT && round_end(x, r) == own->rounds_end && --own->rounds_last == 0)
        own->counted = false;
}

static void count_light(rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    uint64_t path_end = own->light_pos + (x->end - x->first);
    if (!own->counted)
        count_all(x);
    own->stop_pos = own->rounds_end;
    if (own->path_lit && own->waiting && path_end > own->stop_pos)
        own->stop_pos = path_end; /* until they say where their rounds begin */
}

/* Nearly all have light, on a path that needed no circuit to be made. */
static bool most_lit(rs_time now, const rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (!rs_tree_in_use(x) || x->grant.kind != RS_PATH_PACKET || own->lit < MOST_LIT(own->members))
        return false;
    if (now < own->light_at + LIT_SETTLED)
        own->advance_due = own->light_at + LIT_SETTLED;
    return now >= own->light_at + LIT_SETTLED;
}

/* Where Fig. 3 goes from attempt to high rate and to the end, whatever changed: a light, a failure, a bound, the
 * position. */
void rs_republic_advance(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (x->phase != RS_PHASE_ATTEMPT && x->phase != RS_PHASE_HIGH_RATE)
        return;
    count_light(x);
    bool round_left = x->pos < own->stop_pos; /* some receiver with light has not had its whole round */
    bool all_lit = own->waiting == 0 && (own->lit > 0 || own->dark_passed || own->members == 0);
    if (all_lit && !round_left) {
        data_done(node, now, x);
    } else if (x->phase == RS_PHASE_ATTEMPT && round_left) {
        if (all_lit || own->path_lit || node->config.start_policy == RS_START_ON_FIRST || most_lit(now, x))
            high_rate(node, now, x);
    } else if (x->phase == RS_PHASE_HIGH_RATE && !round_left) {
        /* Only receivers without light are left: no use in sending them more than attempts. */
        own->attempt_due = now + own->attempt_interval;
        rs_sender_phase(node, x, RS_PHASE_ATTEMPT);
        rs_republic_schedule(node, now, x);
    } else if (rs_list_empty(&x->in_ready) && x->data_timer.at == 0) {
        rs_republic_schedule(node, now, x); /* it had paused at the end of a round */
    }
    rs_sender_arm(node, x);
}

/* Light is not waited for any longer of those that have not accepted yet, or of all. DATA_FNSD will have them ask for
 * everything. */
static void pass_over(rs_node *node, rs_time now, rs_sending *x, bool accepted_too) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    own->counted = false;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (rs_is_active(r) && r->member && r->light == RS_LIGHT_AWAITED && (accepted_too || !rs_has_accepted(r)))
            r->light = RS_LIGHT_SKIPPED;
    }
    own->dark_passed |= accepted_too;
    rs_republic_advance(node, now, x);
}

void rs_republic_sender_timeout(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (now >= own->advance_due) {
        own->advance_due = RS_NEVER;
        rs_republic_advance(node, now, x);
    }
    if (now >= own->light_due)
        tell_no_light(node, now, x);
    if (now >= own->pass_over_due) {
        own->pass_over_due = RS_NEVER;
        pass_over(node, now, x, false);
    }
    if (now >= own->grace_due)
        look_for_light(node, now, x);
    if (now >= own->dark_due) {
        own->dark_due = RS_NEVER;
        pass_over(node, now, x, true);
    }
    if (now >= own->repair.tail_due)
        rs_repair_timeout(node, now, x);
}

rs_time rs_republic_sender_due(const rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    const rs_time dues[] = {own->light_due, own->pass_over_due, own->grace_due,
                            own->dark_due,  own->advance_due,   own->repair.tail_due};
    return rs_earliest(dues, sizeof dues / sizeof dues[0]);
}

static void path_moved(rs_node *node, rs_time now, rs_sending *x, rs_path_kind kind) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    x->grant.kind = kind;
    if (kind == RS_PATH_PACKET)
        x->grant.reconfiguration = 0;
    set_attempt_interval(node, x);
    wait_for_light(node, now, x, true);
    if (x->phase == RS_PHASE_ATTEMPT && own->attempt_due > now + own->attempt_interval) {
        own->attempt_due = now + own->attempt_interval;
        rs_republic_schedule(node, now, x);
    }
    rs_republic_advance(node, now, x);
}

/* RS_START_ON_SWITCHES: a hint of the switches. */
static void light_seen(rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (node->config.start_policy != RS_START_ON_SWITCHES || x->phase != RS_PHASE_ATTEMPT || own->path_lit)
        return;
    own->path_lit = true;
    own->light_pos = x->pos;
    rs_republic_advance(node, now, x);
}

void rs_republic_sender_news(rs_node *node, rs_time now, rs_sending *x, const rs_news *news) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    switch (news->what) {
    case RS_NEWS_SESSION:
        rs_repair_begin_session(node, x);
        own->counted = false;
        own->cuts_logged = 0;
        own->stop_pos = 0;
        own->light_due = own->pass_over_due = own->grace_due = own->dark_due = RS_NEVER;
        break;
    case RS_NEWS_CONNECTED:
        rs_tree_connected(node, now, x, news->receiver);
        break;
    case RS_NEWS_LEFT:
        own->counted = false;
        rs_repair_on_receiver_removed(now, x, news->receiver);
        rs_tree_on_receiver_removed(node, now, x, news->receiver);
        break;
    case RS_NEWS_DATA_TIMER:
        rs_republic_schedule(node, now, x);
        break;
    case RS_NEWS_ACCEPTED:
        rs_tree_accepted(node, now, x, news->receiver);
        accepted(node, now, x, news->receiver);
        break;
    case RS_NEWS_REMOVED:
        note_end(x, news->receiver);
        rs_window_on_receiver_removed(node, now, x, news->receiver);
        rs_repair_on_receiver_removed(now, x, news->receiver);
        rs_tree_on_receiver_removed(node, now, x, news->receiver);
        break;
    case RS_NEWS_RECEIVERS:
        rs_republic_advance(node, now, x);
        if (x->phase == RS_PHASE_PATCHING)
            end_soon(node, now, x);
        break;
    case RS_NEWS_PATH_MOVED:
        path_moved(node, now, x, news->kind);
        break;
    case RS_NEWS_PATH_LIGHT:
        light_seen(node, now, x);
        break;
    case RS_NEWS_RESUMED:
        resume(node, now, x);
        break;
    default:
        break;
    }
}

void rs_republic_sender_stop(rs_node *node, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_straggler_stop(x);
    rs_repair_end(node, x);
    own->light_due = own->pass_over_due = own->grace_due = own->dark_due = RS_NEVER;
}

/* -------------------------------------------------------------------------------------------- the data channel */

static void data_packet(rs_time now, rs_sending *x, rs_packet_out *out) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    uint64_t sn = x->first + x->pos % (x->end - x->first);
    rs_data_header header = {.session = x->t.session, .nonce = x->t.nonce, .sn = sn};
    if (sn == 0 || sn == x->first) {
        header.flags |= RS_DATA_FIRST;
        header.aux = x->t.size;
    }
    bool asks = false;
    if (x->phase == RS_PHASE_ATTEMPT)
        header.flags |= RS_DATA_ATTEMPT;
    else
        asks = rs_sent_times_add(&own->sent_times, now, x->pos,
                                 x->pos + 1 >= own->window_pos || x->pos + 1 == own->stop_pos);
    if (rs_tree_asks_twice(x, asks) || asks)
        header.flags |= RS_DATA_REPORT;
    rs_data_packet(x, &header, out);
}

static void attempt_sent(const rs_node *node, rs_time now, rs_sending *x) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    bool slows =
        !node->config.attempt_interval && !x->grant.reconfiguration; /* nobody knows when there will be light */
    x->stats.packets_attempt++;
    own->attempts++;
    own->fresh = 0;
    if (slows && own->attempts % ATTEMPT_STEP == 0 && own->attempt_interval < ATTEMPT_SLOWEST)
        own->attempt_interval *= 2;
    own->attempt_due += own->attempt_interval;
    if (own->attempt_due <= now) /* the caller was late: do not catch up, a probe's worth is its time */
        own->attempt_due = now + own->attempt_interval;
}

/* A repair packet instead of a data packet. */
static bool poll_repair(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out) {
    if (!rs_repair_poll(node, now, x, out))
        return false;
    rs_pacer_sent(&node->nic, now, rs_wire_bytes(out));
    rs_pacer_sent(&x->pacer, now, rs_wire_bytes(out));
    rs_republic_schedule(node, now, x);
    return true;
}

bool rs_republic_poll_data(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    if (poll_repair(node, now, x, out))
        return true;
    if (x->phase == RS_PHASE_PATCHING) {
        rs_data_stop(node, x);
        return false;
    }
    data_packet(now, x, out);
    rs_repair_data_sent(x);
    x->pos++;
    x->stats.packets_sent++;
    rs_pacer_sent(&node->nic, now, rs_wire_bytes(out));
    if (x->phase == RS_PHASE_ATTEMPT) {
        attempt_sent(node, now, x);
    } else {
        if (rs_rate_tick(&x->rate, now))
            rs_rate_apply(x);
        rs_pacer_sent(&x->pacer, now, rs_wire_bytes(out));
    }
    if (x->pos == own->stop_pos) { /* the round is whole: what follows is an event, and events come from rs_timeout */
        rs_data_stop(node, x);
        own->advance_due = now;
        rs_sender_arm(node, x);
        return true;
    }
    rs_republic_schedule(node, now, x);
    return true;
}

/* ---------------------------------------------------------------------------------------------- what they say */

/* The receiver has light since `sn`. It has been sent a whole round when the sn before it comes by again. */
static rs_rx_verdict on_intl_seq(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    rs_progress *progress = rs_progress_of(r);
    if (m->session > x->t.session)
        return RS_RX_BAD;
    if (m->session < x->t.session || !r->member || r->light >= RS_LIGHT_LIT)
        return RS_RX_NONE;
    if (x->phase != RS_PHASE_ATTEMPT && x->phase != RS_PHASE_HIGH_RATE)
        return RS_RX_NONE;
    uint64_t ring = x->end - x->first;
    if (m->intl_seq.sn < x->first || m->intl_seq.sn - x->first >= ring || m->intl_seq.sn - x->first >= x->pos)
        return RS_RX_BAD; /* never sent */
    /* Of all the times it was sent, the last: later than the truth is safe, earlier is not. */
    uint64_t offset = m->intl_seq.sn - x->first;
    progress->start_pos = offset + (x->pos - 1 - offset) / ring * ring;
    rs_light before = r->light;
    r->light = RS_LIGHT_LIT;
    note_light(x, r, before);
    r->progress_at = now;
    progress->seen_pos = progress->start_pos;
    if (x->phase == RS_PHASE_HIGH_RATE)
        rs_tree_late(x, r);
    rs_window_seen(node, now, x, r, progress->seen_pos);
    note_lit(now, x);
    rs_emit(node, &(rs_event){.kind = RS_EV_FIRST_LIGHT,
                              .xfer = x->t.id,
                              .peer = r->link.peer->id,
                              .sn = m->intl_seq.sn,
                              .session = m->session});
    rs_republic_advance(node, now, x);
    return RS_RX_NONE;
}

static bool ring_named(const rs_sending *x, const rs_recipient *r, uint32_t session, rs_session_ring *out) {
    if (session == RS_SESSION_OBJECT || session == RS_SESSION_DEMOTED) {
        *out = (rs_session_ring){.first = 0, .end = x->t.fragments};
        return true;
    }
    if (session == r->session) { /* which may be long past */
        *out = (rs_session_ring){.session = session, .first = r->first, .end = r->reached};
        return true;
    }
    for (uint32_t i = 0; i < RS_RINGS; i++) {
        *out = x->rings[i];
        if (out->end && out->session == session)
            return true;
    }
    return false;
}

/* The range (start, end), both excluded, going around: to the fragments this receiver is to be patched. */
static rs_rx_verdict on_ptch_req(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    rs_session_ring ring;
    if (m->session > x->t.session && m->session != RS_SESSION_OBJECT &&
        !(r->light == RS_LIGHT_DEMOTED && m->session == RS_SESSION_DEMOTED))
        return RS_RX_BAD;
    if (!ring_named(x, r, m->session, &ring))
        return RS_RX_NONE; /* a session long past: the receiver asks again in the ring of the object */
    uint64_t start = m->ptch_req.start, end = m->ptch_req.end;
    if (start < ring.first || start >= ring.end || end < ring.first || end >= ring.end)
        return RS_RX_BAD;
    uint64_t size = ring.end - ring.first;
    uint64_t steps = end > start ? end - start : end + size - start;
    uint64_t many = size == 1 ? 1 : steps - 1;
    uint64_t from = start + 1 == ring.end ? ring.first : start + 1;
    uint64_t straight = many < ring.end - from ? many : ring.end - from;
    if (rs_sender_too_many(node, now, r))
        return RS_RX_NONE;
    r->progress_at = now;
    rs_repair_asked(node, now, x, r, from, from + straight);
    rs_repair_asked(node, now, x, r, ring.first, ring.first + (many - straight));
    return RS_RX_NONE;
}

/* Table III, and what is ours. */
static rs_rx_verdict (*const HANDLERS[])(rs_node *, rs_time, rs_sending *, rs_recipient *, const rs_message *) = {
    [RS_MSG_INTL_SEQ] = on_intl_seq,
    [RS_MSG_PTCH_REQ] = on_ptch_req,
    [RS_MSG_PTCH_MAP] = rs_on_ptch_map,
    [RS_MSG_RATE] = rs_on_rate,
};

rs_rx_verdict rs_republic_sender_message(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r,
                                         const rs_message *m) {
    return HANDLERS[m->type](node, now, x, r, m);
}
