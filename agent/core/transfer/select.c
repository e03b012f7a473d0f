/* Which engine a transfer goes by. */
#include "core/transfer/select.h"

#include <string.h>

#include "core/transfer/engine.h"

const rs_engine *rs_engine_of(const rs_node *node, uint32_t id) {
    for (uint32_t i = 0; i < node->engine_count; i++)
        if (node->engines[i]->id == id)
            return node->engines[i];
    return NULL;
}

void rs_engine_take(rs_transfer *t, const rs_engine *engine, void *own) {
    t->owner = own ? engine : NULL;
    t->own = own;
}

void rs_engine_drop(rs_node *node, rs_transfer *t) {
    if (t->own)
        t->owner->free(node, t);
    rs_list_remove(&t->in_acking);
    rs_list_remove(&t->in_mending);
    rs_engine_take(t, NULL, NULL);
    t->engine = node->engines[0];
}

void rs_engine_notify(rs_node *node, rs_time now, rs_transfer *t, rs_news_kind what) {
    const rs_news news = {.what = what};
    if (t->engine->notify)
        t->engine->notify(node, now, t, &news);
}

void rs_engine_stop(rs_node *node, rs_transfer *t) {
    if (t->engine->stop)
        t->engine->stop(node, t);
}

void rs_transfer_arm(rs_node *node, rs_transfer *t, const rs_time *dues, size_t count) {
    if (rs_is_finished(t))
        return;
    rs_time engines = t->engine->deadline ? t->engine->deadline(node, t) : RS_NEVER, due = rs_earliest(dues, count);
    rs_timer_set(&node->timers, &t->timer, engines < due ? engines : due);
}

void rs_engine_stats(const rs_node *node, const rs_transfer *t, rs_xfer_stats *out) {
    const rs_engine *engine = t->own ? t->owner : t->engine;
    out->protocol = (rs_protocol)engine->id;
    if (engine->stats)
        engine->stats(node, t, out);
}

/* Its engine still says how far receivers are, and peers still repair; only the tree is not there. */
void rs_stream_unicast(rs_node *node, rs_time now, rs_sending *x, const char *cause) {
    rs_event log = {.kind = RS_EV_LOG, .xfer = x->t.id, .session = x->t.session};
    rs_format(log.cause, sizeof log.cause, "%s: the stream goes on to each receiver by unicast", cause);
    rs_emit(node, &log);
    x->t.stream.by_unicast = true;
    const rs_news news = {.what = RS_NEWS_PATH_LOST};
    x->t.owner->notify(node, now, &x->t, &news);
}

/* -------------------------------------------------------------------------------------------- options of one send */

#define ASKED_MOST 256

static bool ask(const rs_node *node, const rs_engine *engine, const char *options, void *asked, char *text,
                size_t size) {
    if (!engine || !engine->ask) {
        rs_format(text, size, "%s takes no options", engine ? engine->word : "an unknown protocol");
        return false;
    }
    if (node->options[engine->id])
        memcpy(asked, node->options[engine->id], engine->asked_size);
    return engine->ask(options, asked, text, size);
}

bool rs_send_options_good(const rs_node *node, rs_protocol protocol, const char *options, char *text, size_t size) {
    max_align_t asked[ASKED_MOST / sizeof(max_align_t)] = {0};
    return ask(node, rs_engine_of(node, protocol), options, asked, text, size);
}

bool rs_engine_keep_options(rs_node *node, rs_sending *x, const rs_engine *engine, const char *options) {
    char text[64];
    x->asked = rs_memory_take(&node->allocator, engine->asked_size);
    return x->asked && ask(node, engine, options, x->asked, text, sizeof text);
}
