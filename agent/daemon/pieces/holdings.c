#include "daemon/pieces/holdings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/data/sending.h"
#include "daemon/store/digest.h"

#define EVERY (100 * RS_MILLISECOND)
#define GONE_MOST 1024u /* not told yet; when there are more, all that is here is told again */
#define SERVES_MOST 16u /* orders of the manager carried out at a time */
#define SERVE_WAIT_MS 1500u

struct rs_holdings {
    rs_agent *agent;
    rs_time check_at;
    bool wanted; /* the manager of this connection wants to be told */
    bool reset;  /* nothing was told on this connection */
    uint32_t gone_count;
    rs_object_id gone[GONE_MOST];
};

/* One batch of what is to be told, those that went first. */
static void tell(rs_holdings *h) {
    rs_agent *agent = h->agent;
    rs_manager_held rows[RS_MANAGER_HELD_MAX];
    char digests[RS_MANAGER_HELD_MAX][RS_DIGEST_TEXT];
    rs_object *told[RS_MANAGER_HELD_MAX];
    uint32_t count = 0, cursor = 0, went = 0;
    for (; went < h->gone_count && count < RS_MANAGER_HELD_MAX; went++)
        rows[count++] = (rs_manager_held){.id = h->gone[went], .digest = "", .gone = true};
    uint32_t came = count;
    for (rs_object *object; count < RS_MANAGER_HELD_MAX && (object = rs_store_next(agent->store, &cursor));) {
        if (object->phase != RS_OBJECT_COMPLETE || object->told)
            continue;
        rs_digest_text(&object->digest, digests[count]);
        told[count] = object;
        rows[count] =
            (rs_manager_held){.id = object->id, .size = object->size, .digest = digests[count], .name = object->name};
        count++;
    }
    if (count == 0 && !h->reset)
        return;
    if (rs_manager_holds(agent->link, rs_agent_now(agent), rows, count, h->reset) != RS_OK)
        return; /* down: all of it is told on the next connection */
    for (uint32_t i = came; i < count; i++)
        told[i]->told = true;
    h->reset = false;
    h->gone_count -= went;
    memmove(h->gone, h->gone + went, h->gone_count * sizeof h->gone[0]);
}

static void forget_told(rs_holdings *h) {
    uint32_t cursor = 0;
    for (rs_object *object; (object = rs_store_next(h->agent->store, &cursor));)
        object->told = false;
    h->gone_count = 0;
    h->reset = true;
}

void rs_holdings_link_changed(rs_holdings *h) {
    forget_told(h);
    h->wanted = false;
}

static void on_tell_objects(void *context) {
    const rs_agent *agent = context;
    agent->holdings->wanted = true;
    agent->holdings->check_at = rs_agent_now(agent);
}

bool rs_holdings_wanted(const rs_holdings *h) {
    return h->wanted && h->agent->link && rs_manager_up(h->agent->link);
}

void rs_holdings_gone(rs_holdings *h, const rs_object_id *id) {
    if (h->reset)
        return;
    if (h->gone_count == GONE_MOST)
        forget_told(h);
    else
        h->gone[h->gone_count++] = *id;
}

void rs_holdings_name_api(void *context, const rs_object_id *id, const char *name) {
    const rs_agent *agent = context;
    const rs_object *object = rs_store_find(agent->store, id);
    const rs_manager_held row = {.id = *id, .digest = "", .name = name, .gone = true};
    if (rs_holdings_wanted(agent->holdings) && !agent->holdings->reset && (!object || !object->told))
        (void)rs_manager_holds(agent->link, rs_agent_now(agent), &row, 1, false);
}

rs_time rs_holdings_deadline(const rs_holdings *h) {
    return h->wanted ? h->check_at : RS_NEVER;
}

void rs_holdings_tell(rs_holdings *h, const rs_object *object) {
    if (!rs_holdings_wanted(h))
        return;
    for (unsigned batches = 0; batches <= GONE_MOST / RS_MANAGER_HELD_MAX && !object->told; batches++)
        tell(h);
}

void rs_holdings_timeout(rs_holdings *h) {
    rs_time now = rs_agent_now(h->agent);
    if (!h->wanted || now < h->check_at)
        return;
    h->check_at = now + EVERY;
    if (rs_holdings_wanted(h))
        tell(h);
}

/* Servers fetch it together. What goes wrong they notice: then they ask for pieces. */
static void on_serve(void *context, const rs_manager_serve *order) {
    rs_agent *agent = context;
    char text[ROSTRUM_TEXT_MAX + 1] = "it is not whole here (any more)";
    rs_object *object = rs_store_find(agent->store, &order->id);
    const rs_api_send send = {.id = order->id,
                              .object = object,
                              .stream = -1,
                              .process = "fetch",
                              .wait_ms = SERVE_WAIT_MS,
                              .protocol = ROSTRUM_PROTOCOL_AUTO,
                              .receivers = order->receivers,
                              .receiver_count = order->receiver_count};
    uint32_t serving = 0;
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        serving += rs_sending_of(t)->call.client == 0 && !rs_sending_of(t)->leg && !rs_sending_of(t)->relayed &&
                   rs_sending_of(t)->in_journal != RS_JOURNAL_RESUMED;
    bool complete = object && object->phase == RS_OBJECT_COMPLETE;
    if (serving >= SERVES_MOST)
        snprintf(text, sizeof text, "%u objects are being sent to servers that fetch them already", serving);
    bool ok = complete && serving < SERVES_MOST && rs_sending_relayed(agent, &send, false, text);
    rs_log(ok ? RS_LOG_INFO : RS_LOG_WARNING, "fetch", "object=%s sent to those that fetch it: receivers=%u%s%s",
           rs_id_text(&order->id), order->receiver_count, ok ? "" : " not begun: ", ok ? "" : rs_quote(text));
    agent->served_together += ok;
}

void rs_holdings_link(const rs_agent *agent, rs_manager_options *options, rs_manager_callbacks *callbacks) {
    options->tells_objects = true;
    options->piece_port = agent->piece_server ? agent->options.piece_port : 0;
    options->serves = agent->options.fetch_rate_bps == 0; /* a send has no bound of its own */
    callbacks->on_tell_objects = on_tell_objects;
    callbacks->on_serve = on_serve;
}

rs_holdings *rs_holdings_new(rs_agent *agent) {
    rs_holdings *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->agent = agent;
    h->reset = true;
    h->check_at = 0;
    return h;
}

void rs_holdings_free(rs_holdings *h) {
    free(h);
}
