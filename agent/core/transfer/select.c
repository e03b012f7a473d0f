/* Which engine a transfer goes by. */
#include "core/transfer/select.h"

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

void rs_engine_stats(const rs_node *node, const rs_transfer *t, rs_xfer_stats *out) {
    const rs_engine *engine = t->own ? t->owner : t->engine;
    out->protocol = (rs_protocol)engine->id;
    if (engine->stats)
        engine->stats(node, t, out);
}

/* Its engine still says how far receivers are, and peers still repair; only the tree is not there. */
void rs_stream_unicast(rs_node *node, rs_time now, rs_sending *x, const char *cause) {
    rs_event log = {.kind = RS_EV_LOG, .xfer = x->t.id, .session = x->t.session};
    rs_words(log.cause, sizeof log.cause, "%s: the stream goes on to each receiver by unicast", cause);
    rs_emit(node, &log);
    x->t.stream.by_unicast = true;
    const rs_news news = {.what = RS_NEWS_PATH_LOST};
    x->t.owner->notify(node, now, &x->t, &news);
}
