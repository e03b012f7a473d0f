/* Sends to several sites: a sending of its own for each leg that the manager names. A relay is an ordinary receiver of
 * a leg, and an ordinary sender in its site, of an object that grows while it is sent. */
#include "daemon/data/sites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/waits.h"
#include "daemon/data/orders.h"
#include "daemon/data/paths.h"
#include "daemon/data/receiving.h"
#include "daemon/data/ways.h"
#include "daemon/units.h"

#define ASK_AGAIN RS_SECOND /* the manager, while it has no legs or no answer */
#define RELAYS_TRIED 8u     /* relays that may fail in one send, of all sites */
#define RELAYS_MOST 256u    /* orders of this agent at a time */
#define REPORT_GAP (50 * RS_MILLISECOND)
#define REPORT_EVERY RS_SECOND
#define LOOK_EVERY (250 * RS_MILLISECOND)
/* Its site's receivers keep what they have of it for the silence bound: another one must be there before. */
#define RELAY_DOWN RS_SECOND
#define LAST_REPORTS 5u              /* the final answer is said so often, each REPORT_EVERY */
#define RELAY_SILENT (6 * RS_SECOND) /* a relay that has the object, and says nothing for so long, is gone */
#define ORDER_WAITS (30 * RS_SECOND) /* for the object to come */
#define WAYS_LAST (10 * RS_SECOND)   /* legs told beforehand: their relays have waited as long */

/* One way of a send. */
struct rs_leg {
    rs_leg *next;
    char id[RS_MANAGER_NAME_MAX + 1], site[RS_MANAGER_NAME_MAX + 1],
        relay[RS_MANAGER_NAME_MAX + 1]; /* relay "": own site */
    uint32_t address;                   /* of the relay */
    uint16_t port;
    bool relay_dials;
    rs_send_state *parent;
    rs_send_state *carrier; /* NULL: it is over */
    uint32_t *receivers;    /* places of its receivers among the parent's */
    uint32_t receiver_count;
    bool carried;       /* the relay has all */
    rs_time heard_at;   /* the relay has spoken then */
    bool was_up;        /* it was connected, */
    rs_time down_since; /* and is not since then; RS_NEVER: it is */
    bool gone;          /* that was for too long */
    uint64_t bytes;     /* sent for it */
};

struct rs_spread {
    char request_id[RS_UUID_TEXT];
    rs_time ask_at, bound_at; /* RS_NEVER: nothing is asked */
    rs_leg *legs;
    bool *placed; /* receivers that a leg is for, or that are final */
    char waits_for[ROSTRUM_TEXT_MAX + 1];
    char avoid[RELAYS_TRIED][RS_MANAGER_NAME_MAX + 1];
    uint32_t avoid_count;
    bool cancelled, answered;
};

struct rs_sites {
    rs_sites_face face; /* first */
    rs_agent *agent;
    char own[RS_MANAGER_NAME_MAX + 1]; /* site; "": there are no sites */
    rs_relay *relays;
};

void rs_sites_free(rs_sites *sites) {
    while (sites && sites->relays) {
        rs_relay *relay = sites->relays;
        sites->relays = relay->next;
        rs_relay_free(sites->agent, relay);
    }
    free(sites);
}

static bool do_several(const rs_sites *sites) {
    return sites->own[0] != '\0';
}

void rs_sites_link_up(rs_sites *sites) {
    sites->own[0] = '\0';
}

static bool is_final(const rostrum_receiver *receiver) {
    return receiver->state >= ROSTRUM_RECEIVER_DONE;
}

static int64_t place_of(const rs_send_state *parent, const char *name) {
    for (uint32_t i = 0; i < parent->receiver_count; i++)
        if (strcmp(parent->receivers[i].name, name) == 0)
            return i;
    return -1;
}

static void tell_text(rs_agent *agent, rs_send_state *parent, const char *text) {
    rs_log(RS_LOG_INFO, "sites", "object=%s %s", rs_id_text(&parent->base.id), text);
    rostrum_event event = {.kind = ROSTRUM_EVENT_LOG, .sending = true, .size = parent->result.size};
    snprintf(event.text, sizeof event.text, "%s", text);
    rs_api_event(agent->api, &parent->base.id, &event);
}

static void fail_receiver(rs_agent *agent, rs_send_state *parent, uint32_t place, const char *cause) {
    rostrum_receiver *receiver = &parent->receivers[place];
    receiver->state = ROSTRUM_RECEIVER_FAILED;
    snprintf(receiver->cause, sizeof receiver->cause, "%s", cause);
    parent->spread->placed[place] = true;
    rs_sending_tell_receiver(agent, parent, receiver);
}

/* ------------------------------------------------------------------------------------------------- what was asked */

/* Relays have to hold to it; times are hints. */
static bool binds(const rs_send_state *parent) {
    return parent->options[0] || parent->stragglers != ROSTRUM_STRAGGLERS_DEFAULT;
}

/* From now; 0: there is none. */
static uint32_t left_ms(const rs_agent *agent, rs_time deadline) {
    rs_time now = rs_agent_now(agent), left = deadline > now ? (deadline - now) / RS_MILLISECOND : 0;
    return deadline == RS_NEVER ? 0 : left < 1 ? 1 : left < INT32_MAX ? (uint32_t)left : INT32_MAX;
}

/* ------------------------------------------------------------------------------------------------ asking for legs */

static void ask(rs_sites *sites, rs_send_state *parent) {
    rs_agent *agent = sites->agent;
    rs_spread *spread = parent->spread;
    const char **names = calloc(parent->receiver_count, sizeof *names);
    const char *avoid[RELAYS_TRIED];
    uint32_t count = 0;
    spread->ask_at = rs_agent_now(agent) + ASK_AGAIN;
    for (uint32_t i = 0; names && i < parent->receiver_count; i++)
        if (!spread->placed[i])
            names[count++] = parent->receivers[i].name;
    for (uint32_t i = 0; i < spread->avoid_count; i++)
        avoid[i] = spread->avoid[i];
    const rs_manager_terms terms = {.options = parent->options,
                                    .stragglers = rs_policy_word(parent->stragglers),
                                    .wait_ms = parent->wait_ms,
                                    .deadline_ms = left_ms(agent, parent->deadline)};
    bool asked = binds(parent) || terms.wait_ms || terms.deadline_ms;
    if (count)
        (void)rs_manager_split(agent->link, rs_agent_now(agent), spread->request_id, &parent->base.id, names, count,
                               avoid, spread->avoid_count, asked ? &terms : NULL);
    free(names);
}

static void begin_to_ask(rs_sites *sites, rs_send_state *parent) {
    parent->spread->bound_at = rs_agent_now(sites->agent) + rs_paths_wait(parent->wait_ms, false);
    rs_uuid_text(parent->spread->request_id);
    if (parent->relayed)
        parent->spread->ask_at = rs_agent_now(sites->agent); /* the manager has perhaps said it: take_ways */
    else
        ask(sites, parent);
}

static bool do_spread(rs_sites *sites, rs_send_state *parent) {
    rs_spread *spread = calloc(1, sizeof *spread);
    bool *placed = calloc(parent->receiver_count, sizeof *placed);
    if (!spread || !placed) {
        free(spread);
        free(placed);
        return false;
    }
    spread->placed = placed;
    parent->spread = spread;
    begin_to_ask(sites, parent);
    return true;
}

static void do_spread_free(rs_sites *sites, rs_spread *spread) {
    (void)sites;
    while (spread && spread->legs) {
        rs_leg *leg = spread->legs;
        spread->legs = leg->next;
        if (leg->carrier)
            leg->carrier->leg = NULL;
        free(leg->receivers);
        free(leg);
    }
    if (spread)
        free(spread->placed);
    free(spread);
}

/* All receivers are done or failed, and no leg is left: the answer. The parent is gone then. */
static void settle(rs_sites *sites, rs_send_state *parent) {
    rs_spread *spread = parent->spread;
    uint32_t failed = 0;
    const char *first = "";
    if (spread->legs || spread->answered)
        return;
    for (uint32_t i = 0; i < parent->receiver_count; i++) {
        if (!is_final(&parent->receivers[i]))
            return;
        if (parent->receivers[i].state == ROSTRUM_RECEIVER_FAILED && failed++ == 0)
            first = parent->receivers[i].cause;
    }
    spread->answered = true;
    char cause[ROSTRUM_TEXT_MAX + 1] = "";
    if (failed)
        snprintf(cause, sizeof cause, "%u of %u receivers failed; the first: %.160s", failed, parent->receiver_count,
                 first);
    rs_sending_over(sites->agent, parent, failed == 0, cause);
}

static void drop_leg(rs_leg *leg) {
    rs_leg **at = &leg->parent->spread->legs;
    while (*at != leg)
        at = &(*at)->next;
    *at = leg->next;
    free(leg->receivers);
    free(leg);
}

/* Its receivers that have nothing want another way; those that can have none fail. */
static void leg_failed(rs_sites *sites, rs_leg *leg, const char *cause) {
    rs_agent *agent = sites->agent;
    rs_send_state *parent = leg->parent;
    rs_spread *spread = parent->spread;
    char text[ROSTRUM_TEXT_MAX + 1];
    bool again = leg->relay[0] && spread->avoid_count < RELAYS_TRIED && !spread->cancelled, any = false;
    snprintf(text, sizeof text, "site %.40s: relay %.40s failed: %.120s", leg->site, leg->relay, cause);
    for (uint32_t i = 0; i < leg->receiver_count; i++) {
        const rostrum_receiver *receiver = &parent->receivers[leg->receivers[i]];
        if (is_final(receiver))
            continue;
        if (!again || strcmp(receiver->name, leg->relay) == 0) {
            fail_receiver(agent, parent, leg->receivers[i], leg->relay[0] ? text : cause);
        } else {
            spread->placed[leg->receivers[i]] = false;
            any = true;
        }
    }
    if (again)
        memcpy(spread->avoid[spread->avoid_count++], leg->relay, sizeof leg->relay);
    tell_text(agent, parent, text);
    drop_leg(leg);
    if (any)
        begin_to_ask(sites, parent);
    settle(sites, parent);
}

/* Nobody of it is left, and the relay needs nothing more. */
static bool leg_over(rs_sites *sites, rs_leg *leg) {
    rs_send_state *parent = leg->parent;
    for (uint32_t i = 0; i < leg->receiver_count; i++)
        if (leg->carrier || !is_final(&parent->receivers[leg->receivers[i]]))
            return false;
    if (leg->relay[0]) {
        char text[ROSTRUM_TEXT_MAX + 1];
        uint32_t done = 0;
        for (uint32_t i = 0; i < leg->receiver_count; i++)
            done += parent->receivers[leg->receivers[i]].state == ROSTRUM_RECEIVER_DONE;
        snprintf(text, sizeof text,
                 "site %.40s: %u of %u receivers done, by relay %.40s; %llu bytes went over the wide area", leg->site,
                 done, leg->receiver_count, leg->relay, (unsigned long long)leg->bytes);
        tell_text(sites->agent, parent, text);
    }
    drop_leg(leg);
    settle(sites, parent);
    return true;
}

/* NULL: it cannot be, and its receivers have failed. */
static rs_leg *make_leg(rs_send_state *parent, const rs_manager_leg *from) {
    rs_leg *leg = calloc(1, sizeof *leg);
    uint32_t *receivers = calloc(from->receiver_count, sizeof *receivers);
    if (!leg || !receivers) {
        free(leg);
        free(receivers);
        return NULL;
    }
    leg->receivers = receivers;
    leg->parent = parent;
    snprintf(leg->id, sizeof leg->id, "%s", from->leg_id);
    snprintf(leg->site, sizeof leg->site, "%s", from->site);
    for (uint32_t i = 0; i < from->receiver_count; i++) {
        int64_t place = place_of(parent, from->receivers[i]);
        if (place < 0 || parent->spread->placed[place])
            continue;
        parent->spread->placed[place] = true;
        leg->receivers[leg->receiver_count++] = (uint32_t)place;
    }
    if (from->relay) {
        snprintf(leg->relay, sizeof leg->relay, "%s", from->relay->server);
        leg->address = from->relay->address;
        leg->port = from->relay->control_port;
        leg->relay_dials = from->relay_dials;
    }
    leg->next = parent->spread->legs;
    parent->spread->legs = leg;
    return leg;
}

static void learn_relay(rs_agent *agent, const rs_leg *leg) {
    rs_peer peer = rs_peers_find(&agent->peers, leg->relay);
    if (peer == RS_NO_PEER)
        return;
    rs_peers_told(&agent->peers, peer, leg->address, leg->port, 0);
    rs_peers_entry(&agent->peers, peer)->dials = leg->relay_dials;
    rs_control_address_known(agent->control, peer);
}

static void begin_leg(rs_sites *sites, rs_leg *leg) {
    rs_agent *agent = sites->agent;
    rs_send_state *parent = leg->parent;
    char text[ROSTRUM_TEXT_MAX + 1];
    const char *relay = leg->relay;
    const char **names = calloc(leg->receiver_count + 1, sizeof *names);
    for (uint32_t i = 0; names && i < leg->receiver_count; i++)
        names[i] = parent->receivers[leg->receivers[i]].name;
    const rs_api_send send = {.id = parent->base.id,
                              .object = parent->base.object,
                              .stream = -1,
                              .process = "a leg",
                              .wait_ms = parent->wait_ms,
                              .deadline_ms = left_ms(agent, parent->deadline),
                              .options = parent->options,
                              .stragglers = relay[0] ? ROSTRUM_STRAGGLERS_DEFAULT : parent->stragglers,
                              .protocol = relay[0] ? ROSTRUM_PROTOCOL_WAN : parent->protocol,
                              .receivers = relay[0] ? &relay : names,
                              .receiver_count = relay[0] ? 1 : leg->receiver_count};
    leg->heard_at = rs_agent_now(agent);
    leg->down_since = RS_NEVER;
    snprintf(text, sizeof text, "no memory for a leg");
    leg->carrier = names ? rs_sending_leg(agent, &send, leg, text) : NULL;
    free(names);
    if (!leg->carrier)
        leg_failed(sites, leg, text);
    else if (relay[0])
        learn_relay(agent, leg);
}

static void no_way(rs_sites *sites, rs_send_state *parent, const char *reason) {
    for (uint32_t i = 0; i < parent->receiver_count; i++)
        if (!parent->spread->placed[i])
            fail_receiver(sites->agent, parent, i, reason);
    parent->spread->ask_at = parent->spread->bound_at = RS_NEVER;
    snprintf(parent->denial, sizeof parent->denial, "%s", reason);
    parent->failure = ROSTRUM_ERR_DENIED;
    settle(sites, parent);
}

static rs_send_state *asking(const rs_agent *agent, const char *request_id) {
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next) {
        rs_spread *spread = rs_sending_of(t)->spread;
        if (spread && spread->ask_at != RS_NEVER && strcmp(spread->request_id, request_id) == 0)
            return rs_sending_of(t);
    }
    return NULL;
}

static void note_ways(rs_agent *agent, rs_send_state *parent, const rs_manager_split_answer *answer) {
    char text[ROSTRUM_TEXT_MAX + 1];
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < answer->leg_count && used < sizeof text; i++)
        if (answer->legs[i].relay)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s%.150s", used ? "; " : "", answer->legs[i].reason);
    if (!parent->ever_granted) {
        parent->ever_granted = true;
        parent->result.accepted_ns = rs_wall_clock();
        parent->result.path = ROSTRUM_PATH_PACKET;
        parent->result.protocol = text[0] ? ROSTRUM_PROTOCOL_WAN : ROSTRUM_PROTOCOL_REPUBLIC;
        snprintf(parent->result.reason, sizeof parent->result.reason, "%s", text);
    }
    rs_sending_tell_phase(agent, parent, "accepted", text);
    if (text[0] && (strstr(parent->options, "coding=repairs") || strstr(parent->options, "coding=proactive")))
        tell_text(agent, parent, "coding holds within sites: to one relay, by unicast, each repair is a plain copy");
}

static void begin_legs(rs_sites *sites, rs_send_state *parent, const rs_manager_split_answer *answer) {
    rs_agent *agent = sites->agent;
    rs_spread *spread = parent->spread;
    spread->ask_at = spread->bound_at = RS_NEVER;
    note_ways(agent, parent, answer);
    rs_leg *made[64];
    uint32_t count = 0;
    for (uint32_t i = 0; i < answer->leg_count && count < 64; i++)
        if ((made[count] = make_leg(parent, &answer->legs[i])))
            count++;
    for (uint32_t i = 0; i < parent->receiver_count; i++)
        if (!spread->placed[i])
            fail_receiver(agent, parent, i, "the manager named no leg for it, or out of memory");
    spread->answered = true; /* not while they begin */
    for (uint32_t i = 0; i < count; i++)
        begin_leg(sites, made[i]);
    spread->answered = false;
    settle(sites, parent);
}

static void on_legs(void *context, const rs_manager_split_answer *answer) {
    rs_agent *agent = context;
    rs_sites *sites = agent->sites;
    rs_send_state *parent = asking(agent, answer->request_id);
    if (!parent)
        return;
    rs_spread *spread = parent->spread;
    if (answer->leg_count == 0 && answer->ever) {
        no_way(sites, parent, answer->reason);
        return;
    }
    if (answer->leg_count && binds(parent) && !answer->with_terms) {
        no_way(sites, parent, "the manager's release tells relays of other sites neither options nor stragglers");
        return;
    }
    if (answer->leg_count == 0) {
        if (strcmp(spread->waits_for, answer->reason) != 0)
            rs_sending_tell_phase(agent, parent, "queued", answer->reason);
        snprintf(spread->waits_for, sizeof spread->waits_for, "%s", answer->reason);
        return;
    }
    begin_legs(sites, parent, answer);
}

/* It passes on, and the manager has said the legs with its order. False: it has to be asked. The parent may be gone
 * after this. */
static bool take_ways(rs_sites *sites, rs_send_state *parent) {
    rs_time now = rs_agent_now(sites->agent);
    for (rs_relay *relay = sites->relays; relay; relay = relay->next) {
        if (relay->sending != parent || !relay->onward)
            continue;
        rs_manager_leg *legs = relay->onward;
        const rs_manager_split_answer answer = {
            .legs = legs, .leg_count = relay->onward_count, .with_terms = true, .reason = ""};
        relay->onward = NULL;
        relay->onward_count = 0;
        bool fresh = now - relay->since < WAYS_LAST;
        if (fresh)
            begin_legs(sites, parent, &answer);
        free(legs);
        return fresh;
    }
    return false;
}

/* -------------------------------------------------------------------------------------------------- what they do */

static bool do_path(rs_sites *sites, rs_send_state *carrier, uint64_t remaining) {
    rs_agent *agent = sites->agent;
    if (!carrier->leg->relay[0])
        return false;
    const rs_path_grant grant = {.group = RS_NO_GROUP,
                                 .accepted_size = remaining ? remaining : 1,
                                 .kind = RS_PATH_PACKET,
                                 .protocol = RS_PROTOCOL_WAN};
    rs_status status = rs_path_granted(agent->node, rs_agent_now(agent), carrier->base.xfer, &grant);
    if (status != RS_OK)
        rs_path_denied(agent->node, rs_agent_now(agent), carrier->base.xfer, rs_strerror(status));
    return true;
}

static void do_receiver(rs_sites *sites, rs_send_state *carrier, const rostrum_receiver *receiver) {
    rs_send_state *parent = carrier->leg->parent;
    int64_t place = place_of(parent, receiver->name);
    if (place < 0 || is_final(&parent->receivers[place]))
        return; /* a relay that the object is not for */
    if (carrier->leg->relay[0] && receiver->state == ROSTRUM_RECEIVER_FAILED)
        return; /* what follows from that is seen when the leg ends */
    parent->receivers[place] = *receiver;
    rs_sending_tell_receiver(sites->agent, parent, &parent->receivers[place]);
}

static void do_carried(rs_sites *sites, rs_send_state *carrier, bool ok, const char *cause) {
    rs_leg *leg = carrier->leg;
    rs_send_state *parent = leg->parent;
    leg->carrier = NULL;
    leg->carried = ok;
    leg->heard_at = rs_agent_now(sites->agent);
    leg->bytes = carrier->result.bytes_sent;
    const rostrum_receiver none = {0}, *alone = carrier->receiver_count == 1 ? &carrier->receivers[0] : &none;
    parent->result.bytes_sent += carrier->result.bytes_sent;
    parent->stats.packets_sent += carrier->stats.packets_sent;
    parent->stats.packets_redundant += carrier->stats.packets_redundant;
    parent->stats.patches_sent += carrier->stats.patches_sent;
    parent->stats.repairs_sent += carrier->stats.repairs_sent;
    carrier->leg = NULL;
    if (leg_over(sites, leg))
        return;
    if (!ok || !leg->relay[0])
        leg_failed(sites, leg,
                   leg->gone         ? "its connection ended and did not come back"
                   : alone->cause[0] ? alone->cause
                   : cause[0]        ? cause
                                     : "it ended early");
}

static rs_leg *leg_of(const rs_agent *agent, const char *leg_id) {
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        for (rs_leg *leg = rs_sending_of(t)->spread ? rs_sending_of(t)->spread->legs : NULL; leg; leg = leg->next)
            if (leg->relay[0] && strcmp(leg->id, leg_id) == 0)
                return leg;
    return NULL;
}

static rostrum_receiver_state state_of(const char *word) {
    return strcmp(word, "done") == 0        ? ROSTRUM_RECEIVER_DONE
           : strcmp(word, "failed") == 0    ? ROSTRUM_RECEIVER_FAILED
           : strcmp(word, "left") == 0      ? ROSTRUM_RECEIVER_LEFT
           : strcmp(word, "receiving") == 0 ? ROSTRUM_RECEIVER_RECEIVING
                                            : ROSTRUM_RECEIVER_WAITING;
}

static void on_relayed(void *context, const rs_manager_relay_report *report) {
    rs_agent *agent = context;
    rs_sites *sites = agent->sites;
    rs_leg *leg = leg_of(agent, report->leg_id);
    if (!leg || strcmp(leg->relay, report->relay) != 0)
        return;
    rs_send_state *parent = leg->parent;
    leg->heard_at = rs_agent_now(agent);
    for (uint32_t i = 0; i < report->receiver_count; i++) {
        const rs_manager_receiver_report *from = &report->receivers[i];
        int64_t place = place_of(parent, from->server);
        rostrum_receiver *to = place < 0 ? NULL : &parent->receivers[place];
        bool its = false;
        for (uint32_t m = 0; to && m < leg->receiver_count; m++)
            its |= leg->receivers[m] == (uint32_t)place;
        if (!its || is_final(to) || strcmp(to->name, leg->relay) == 0 || state_of(from->state) == to->state)
            continue;
        to->state = state_of(from->state);
        snprintf(to->cause, sizeof to->cause, "%s", from->cause);
        to->digest_ok = to->state == ROSTRUM_RECEIVER_DONE;
        to->initial_sn = from->initial_sn;
        to->patched_fragments = from->patched_fragments;
        to->first_light_ns = from->first_light_ns;
        to->complete_ns = to->state == ROSTRUM_RECEIVER_DONE ? rs_wall_clock() : 0; /* by the clock of this server */
        rs_sending_tell_receiver(agent, parent, to);
    }
    bool ended = strcmp(report->state, "failed") == 0 || strcmp(report->state, "done") == 0;
    if (leg_over(sites, leg) || !ended || leg->carrier)
        return;
    leg_failed(sites, leg, report->cause[0] ? report->cause : "it ended without all of its receivers");
}

static void do_cancel(rs_sites *sites, rs_send_state *parent, const char *cause) {
    rs_agent *agent = sites->agent;
    rs_spread *spread = parent->spread;
    char text[ROSTRUM_TEXT_MAX + 1];
    snprintf(text, sizeof text, "cancelled by the sender: %.200s", cause);
    spread->cancelled = true;
    spread->ask_at = spread->bound_at = RS_NEVER;
    for (uint32_t i = 0; i < parent->receiver_count; i++)
        if (!is_final(&parent->receivers[i]))
            fail_receiver(agent, parent, i, text);
    for (rs_leg *leg = spread->legs, *next; leg; leg = next) {
        next = leg->next;
        if (leg->carrier)
            rs_sending_cancel(agent, &leg->carrier->base, cause);
        else
            drop_leg(leg);
    }
    /* Without legs it ends at the next look: whoever cancels walks through the transfers. */
    spread->bound_at = rs_agent_now(agent);
}

static void do_sample(rs_sites *sites, rs_send_state *parent) {
    uint64_t bytes = 0, legs = 0;
    int64_t rate = 0;
    (void)sites;
    for (const rs_leg *leg = parent->spread->legs; leg; leg = leg->next, legs++) {
        bytes += leg->carrier ? leg->carrier->stats.bytes_present : parent->result.size;
        rate += leg->carrier ? leg->carrier->stats.rate_bps : 0;
    }
    parent->stats.rate_bps = rate;
    parent->stats.bytes_present = legs ? bytes / legs : parent->stats.bytes_present;
    parent->stats.receivers_done = parent->stats.receivers_failed = 0;
    for (uint32_t i = 0; i < parent->receiver_count; i++) {
        parent->stats.receivers_done += parent->receivers[i].state == ROSTRUM_RECEIVER_DONE;
        parent->stats.receivers_failed += parent->receivers[i].state == ROSTRUM_RECEIVER_FAILED;
    }
}

/* ---------------------------------------------------------------------------------------------------- as a relay */

static void report(rs_sites *sites, rs_relay *relay) {
    rs_agent *agent = sites->agent;
    static const char *const text[] = {[ROSTRUM_RECEIVER_WAITING] = "waiting",
                                       [ROSTRUM_RECEIVER_RECEIVING] = "receiving",
                                       [ROSTRUM_RECEIVER_DONE] = "done",
                                       [ROSTRUM_RECEIVER_FAILED] = "failed",
                                       [ROSTRUM_RECEIVER_LEFT] = "left"};
    relay->report_at = rs_agent_now(agent) + REPORT_EVERY;
    if (relay->count == 0)
        return; /* it is a receiver like others: what it has it says itself */
    for (uint32_t i = 0; i < relay->count && relay->sending; i++) {
        const rostrum_receiver *from = &relay->sending->receivers[place_of(relay->sending, relay->names[i])];
        snprintf(relay->causes[i], sizeof relay->causes[i], "%s", from->cause);
        relay->last[i] = (rs_manager_receiver_report){.server = relay->names[i],
                                                      .state = text[from->state],
                                                      .cause = relay->causes[i],
                                                      .initial_sn = from->initial_sn,
                                                      .patched_fragments = from->patched_fragments,
                                                      .first_light_ns = from->first_light_ns,
                                                      .complete_ns = from->complete_ns};
    }
    const rs_manager_relay_report said = {.leg_id = relay->leg_id,
                                          .origin = relay->origin,
                                          .relay = agent->options.server,
                                          .state = relay->state,
                                          .cause = relay->cause,
                                          .bytes = relay->grown,
                                          .receivers = relay->last,
                                          .receiver_count = relay->count};
    (void)rs_manager_relayed(agent->link, rs_agent_now(agent), &said);
}

static void relay_ends(rs_sites *sites, rs_relay *relay, bool ok, const char *cause) {
    relay->over = true;
    relay->state = ok ? "done" : "failed";
    snprintf(relay->cause, sizeof relay->cause, "%s", cause);
    rs_log(ok ? RS_LOG_INFO : RS_LOG_WARNING, "sites", "object=%s for=%s passed on: %s%s%s", rs_id_text(&relay->id),
           rs_quote(relay->origin), relay->state, ok ? "" : " cause=", ok ? "" : rs_quote(cause));
    report(sites, relay);
}

static void do_relay_changed(rs_sites *sites, const rs_send_state *sending) {
    rs_time soon = rs_agent_now(sites->agent) + REPORT_GAP;
    for (rs_relay *relay = sites->relays; relay; relay = relay->next)
        if (relay->sending == sending)
            relay->report_at = soon < relay->report_at ? soon : relay->report_at;
}

static void do_relay_over(rs_sites *sites, const rs_send_state *sending, bool ok, const char *cause) {
    for (rs_relay *relay = sites->relays; relay; relay = relay->next)
        if (relay->sending == sending) {
            relay_ends(sites, relay, ok, cause);
            relay->sending = NULL;
        }
}

static rs_relay *passing(const rs_sites *sites, const rs_object_id *id) {
    for (rs_relay *relay = sites->relays; relay; relay = relay->next)
        if (relay->sending && memcmp(&relay->id, id, sizeof *id) == 0)
            return relay;
    return NULL;
}

/* An earlier order of the object is carried out: its origin was followed by another, or two servers send the same.
 * What is passed on goes once for both, and each origin hears of it. Those that the earlier one does not name, or that
 * it serves by other options, wait until it is over. */
static void share(rs_relay *relay, rs_relay *earlier) {
    if (strcmp(relay->options, earlier->options) != 0 || relay->stragglers != earlier->stragglers)
        return;
    for (uint32_t i = 0; i < relay->count; i++)
        if (place_of(earlier->sending, relay->names[i]) < 0)
            return;
    relay->begun = true;
    relay->state = earlier->state;
    relay->grown = earlier->grown;
    relay->sending = earlier->sending;
    relay->keeps = earlier->keeps = relay->keeps || earlier->keeps;
    rs_log(RS_LOG_INFO, "sites", "object=%s for=%s goes on with what is passed on for=%s", rs_id_text(&relay->id),
           rs_quote(relay->origin), rs_quote(earlier->origin));
}

/* The object is here, or comes from the origin: it is passed on. */
static void pass_on(rs_sites *sites, rs_relay *relay) {
    rs_agent *agent = sites->agent;
    char text[ROSTRUM_TEXT_MAX + 1];
    if (relay->begun || relay->over)
        return;
    rs_object *object = rs_store_find(agent->store, &relay->id);
    bool parent = object && object->phase == RS_OBJECT_COMPLETE;
    bool comes = object && object->phase == RS_OBJECT_RECEIVING && rs_receiving_from(agent, object) == relay->peer;
    if (!parent && !comes)
        return;
    if (relay->count == 0) {
        relay->begun = relay->over = true;
        return;
    }
    rs_relay *earlier = passing(sites, &relay->id);
    if (earlier) {
        share(relay, earlier);
        return;
    }
    const rs_api_send send = {.id = relay->id,
                              .object = object,
                              .stream = -1,
                              .process = relay->origin,
                              .wait_ms = relay->wait_ms,
                              .deadline_ms = left_ms(agent, relay->deadline),
                              .stragglers = relay->stragglers,
                              .options = relay->options,
                              .protocol = parent && !relay->options[0] ? ROSTRUM_PROTOCOL_AUTO : ROSTRUM_PROTOCOL_WAN,
                              .receivers = (const char *const *)relay->names,
                              .receiver_count = relay->count};
    relay->begun = true;
    relay->state = "passing";
    relay->grown = parent ? object->size : 0;
    if (relay->stragglers <= ROSTRUM_STRAGGLERS_EVICT)
        relay->sending = rs_sending_relayed(agent, &send, true, text);
    else
        snprintf(text, sizeof text, "the relay does not know the send's policy for stragglers");
    if (!relay->sending)
        relay_ends(sites, relay, false, text);
}

static bool is_ordered(const rs_sites *sites, const rs_object_id *id, const rs_relay *but) {
    for (const rs_relay *relay = sites->relays; relay; relay = relay->next)
        if (relay != but && memcmp(&relay->id, id, sizeof *id) == 0)
            return true;
    return false;
}

/* Nobody ordered it: it is here for this server's own programs. */
static bool is_own(const rs_sites *sites, const rs_object_id *id) {
    const rs_object *object = rs_store_find(sites->agent->store, id);
    return object && object->phase == RS_OBJECT_COMPLETE && !is_ordered(sites, id, NULL);
}

/* The relays behind this one are connected to before there is anything to pass on: over a long way that takes as many
 * round trips as the object's first packets. */
static void connect_onward(rs_agent *agent, const rs_relay *relay) {
    for (uint32_t i = 0; i < relay->onward_count; i++) {
        const rs_manager_server *to = relay->onward[i].relay;
        rs_peer peer = to && !relay->onward[i].relay_dials ? rs_peers_number(&agent->peers, to->server) : RS_NO_PEER;
        if (peer == RS_NO_PEER)
            continue;
        rs_peers_told(&agent->peers, peer, to->address, to->control_port, 0);
        rs_control_want(agent->control, peer);
    }
}

static void on_relay(void *context, const rs_manager_relay_order *order) {
    rs_agent *agent = context;
    rs_sites *sites = agent->sites;
    uint32_t count = 0;
    for (rs_relay *relay = sites->relays; relay; relay = relay->next, count++)
        if (strcmp(relay->leg_id, order->leg_id) == 0)
            return;
    bool to_do = order->receiver_count || order->dials; /* for nobody else: it only connects to the sender */
    rs_relay *relay = count < RELAYS_MOST && to_do ? rs_relay_new(agent, order, is_own(sites, &order->object)) : NULL;
    if (!relay) {
        rs_log(RS_LOG_WARNING, "sites", "object=%s for=%s is not passed on: %u orders, or no memory",
               rs_id_text(&order->object), rs_quote(order->origin.server), count);
        return; /* the sender hears nothing of it, and takes another relay */
    }
    relay->next = sites->relays;
    sites->relays = relay;
    rs_log(RS_LOG_INFO, "sites", "object=%s for=%s to be passed on to receivers=%u", rs_id_text(&relay->id),
           rs_quote(relay->origin), relay->count);
    if (relay->dials)
        rs_control_want(agent->control, relay->peer);
    connect_onward(agent, relay);
    pass_on(sites, relay);
    report(sites, relay);
}

static void do_incoming(rs_sites *sites, const rs_object_id *id) {
    for (rs_relay *relay = sites->relays; relay; relay = relay->next)
        if (memcmp(&relay->id, id, sizeof *id) == 0)
            pass_on(sites, relay);
}

static void grow(rs_sites *sites, const rs_object *object, uint64_t bytes) {
    rs_agent *agent = sites->agent;
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        if (t->object == object && t->xfer)
            (void)rs_send_grown(agent->node, rs_agent_now(agent), t->xfer, bytes);
}

/* To other relays what has gaps before it goes on, too: each would else wait for the repair of each section. */
void rs_sites_work(rs_sites *sites) {
    rs_agent *agent = sites->agent;
    for (rs_relay *relay = sites->relays; relay; relay = relay->next) {
        const rs_object *object = relay->sending ? relay->sending->base.object : NULL;
        rs_xfer by = object && object->phase == RS_OBJECT_RECEIVING ? rs_receiving_by(agent, object) : 0;
        uint64_t bytes, count = by ? rs_receive_count(agent->node, by) : 0;
        if (count == relay->came || rs_receive_prefix(agent->node, by, relay->grown, &bytes) != RS_OK)
            continue;
        relay->came = count;
        if (bytes > relay->grown)
            grow(sites, object, relay->grown = bytes);
        for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
            if (t->object == object && t->xfer)
                (void)rs_send_comes_by(agent->node, rs_agent_now(agent), t->xfer, by);
    }
}

static void do_object_complete(rs_sites *sites, const rs_object *object) {
    rs_agent *agent = sites->agent;
    for (rs_relay *relay = sites->relays; relay; relay = relay->next)
        if (relay->sending && relay->sending->base.object == object)
            relay->grown = object->size;
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        if (t->object == object && t->xfer) {
            rs_send_leaves(agent->node, t->xfer, object->leaves, object->leaf_count);
            (void)rs_send_digest(agent->node, rs_agent_now(agent), t->xfer, &object->digest);
        }
    grow(sites, object, object->size);
    do_incoming(sites, &object->id);
}

static void do_gone(rs_sites *sites, const rs_object *object, const char *cause) {
    rs_agent *agent = sites->agent;
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        if (t->object == object) {
            t->object = NULL;
            if (t->xfer)
                rs_data_forget(agent->data, t->xfer);
            rs_sending_cancel(agent, t, cause);
        }
}

/* --------------------------------------------------------------------------------------------------------- time */

/* A relay whose process ended is not waited for as long as one that is silent. */
static void check_connection(rs_agent *agent, rs_leg *leg) {
    rs_time now = rs_agent_now(agent);
    bool up = rs_control_is_up(agent->control, leg->carrier->peers[0]);
    leg->was_up |= up;
    if (up || !leg->was_up)
        leg->down_since = RS_NEVER;
    else if (leg->down_since == RS_NEVER)
        leg->down_since = now;
    else if (now - leg->down_since >= RELAY_DOWN && !leg->gone) {
        leg->gone = true;
        rs_sending_cancel(agent, &leg->carrier->base, "the relay is gone");
    }
}

static rs_time leg_due(const rs_leg *leg) {
    if (leg->relay[0] && leg->carrier)
        return leg->heard_at + LOOK_EVERY;
    return leg->relay[0] && leg->carried ? leg->heard_at + RELAY_SILENT : RS_NEVER;
}

rs_time rs_sites_deadline(const rs_sites *sites) {
    rs_time due = RS_NEVER;
    for (const rs_relay *relay = sites->relays; relay; relay = relay->next)
        due = relay->report_at < due ? relay->report_at : due;
    for (rs_transfer_entry *t = sites->agent->transfers.sending; t; t = t->next) {
        const rs_spread *spread = rs_sending_of(t)->spread;
        if (!spread)
            continue;
        due = spread->ask_at < due ? spread->ask_at : due;
        due = spread->bound_at < due ? spread->bound_at : due;
        for (const rs_leg *leg = spread->legs; leg; leg = leg->next)
            due = leg_due(leg) < due ? leg_due(leg) : due;
    }
    return due;
}

/* True: it, or the list it is in, has changed. */
static bool check_send(rs_sites *sites, rs_send_state *parent, rs_time now) {
    rs_spread *spread = parent->spread;
    if (now >= spread->bound_at && !spread->cancelled) {
        char text[ROSTRUM_TEXT_MAX + 1];
        rs_ways_none(sites->agent->link, now, spread->waits_for, text);
        no_way(sites, parent, text);
        return true;
    }
    if (now >= spread->bound_at) {
        spread->bound_at = RS_NEVER;
        settle(sites, parent);
        return true;
    }
    for (rs_leg *leg = spread->legs; leg; leg = leg->next)
        if (now >= leg_due(leg) && leg->carrier) {
            leg->heard_at = now;
            check_connection(sites->agent, leg);
        } else if (now >= leg_due(leg) && !rs_manager_answers(sites->agent->link)) {
            leg->heard_at = now; /* what it says comes by the manager */
        } else if (now >= leg_due(leg)) {
            leg_failed(sites, leg, "it has the object, and has said nothing of those behind it for 6 s");
            return true;
        }
    if (now >= spread->ask_at && take_ways(sites, parent))
        return true;
    if (now >= spread->ask_at)
        ask(sites, parent);
    return false;
}

static void check_relay(rs_sites *sites, rs_relay *relay, rs_time now) {
    rs_agent *agent = sites->agent;
    pass_on(sites, relay); /* what it waited for may be over */
    if (!relay->begun && !relay->over && now - relay->since >= ORDER_WAITS)
        relay_ends(sites, relay, false,
                   passing(sites, &relay->id) ? "the relay passes it on for another send, for 30 s already"
                                              : "the object did not come to the relay within 30 s");
    else
        report(sites, relay);
    if (relay->dials && !relay->begun && !rs_control_is_up(agent->control, relay->peer))
        rs_control_want(agent->control, relay->peer);
    relay->last_reports += relay->over && rs_manager_up(agent->link); /* else nobody hears them */
}

void rs_sites_timeout(rs_sites *sites) {
    rs_agent *agent = sites->agent;
    rs_time now = rs_agent_now(agent);
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        if (rs_sending_of(t)->spread && check_send(sites, rs_sending_of(t), now))
            break; /* the rest at the next turn, which is due */
    for (rs_relay **at = &sites->relays; *at;) {
        rs_relay *relay = *at;
        if (now >= relay->report_at)
            check_relay(sites, relay, now);
        if (relay->last_reports < LAST_REPORTS) {
            at = &relay->next;
            continue;
        }
        *at = relay->next;
        rs_error error = {0};
        if (!relay->keeps && !is_ordered(sites, &relay->id, relay)) /* it was here for others */
            (void)rs_store_delete(agent->store, &relay->id, &error);
        rs_relay_free(sites->agent, relay);
    }
}

/* ------------------------------------------------------------------------------------------------------- the link */

static void on_site(void *context, const char *name) {
    rs_agent *agent = context;
    snprintf(agent->sites->own, sizeof agent->sites->own, "%s", name);
    agent->sites_known = true;
    rs_log(RS_LOG_INFO, "sites", "this server is in site=%s", rs_quote(name));
}

void rs_sites_link(rs_manager_options *options, rs_manager_callbacks *callbacks) {
    options->knows_sites = true;
    callbacks->on_site = on_site;
    callbacks->on_legs = on_legs;
    callbacks->on_relay = on_relay;
    callbacks->on_relayed = on_relayed;
    callbacks->on_origin = rs_receiving_origin;
}

/* ------------------------------------------------------------------------------------------------------- birth */

static rs_digest do_digest(const rs_sites *sites, const rs_object *object) {
    return rs_receiving_digest(sites->agent, object);
}

static const rs_sites_calls calls = {.digest = do_digest,
                                     .several = do_several,
                                     .spread = do_spread,
                                     .path = do_path,
                                     .receiver = do_receiver,
                                     .carried = do_carried,
                                     .cancel = do_cancel,
                                     .spread_free = do_spread_free,
                                     .sample = do_sample,
                                     .relay_changed = do_relay_changed,
                                     .relay_over = do_relay_over,
                                     .incoming = do_incoming,
                                     .object_complete = do_object_complete,
                                     .gone = do_gone};

rs_sites *rs_sites_new(rs_agent *agent) {
    rs_sites *sites = calloc(1, sizeof *sites);
    if (!sites)
        return NULL;
    sites->agent = agent;
    sites->face.calls = &calls;
    return sites;
}
