/* The plainest engine of groups that recovers, as a proof of the seam (core/groups/engine.h): a member that misses a
 * packet asks its sender, again and again, by datagrams of a kind of the engine's own when its own timer says so; the
 * sender gives the packet to all by multicast, on the group's second channel. Nothing is measured, nothing adapts. */
#include <string.h>

#include "core/groups/members.h"
#include "core/groups/state.h"
#include "core/groups/streams.h"

#define KIND_ASK 40u
#define HEAD 16u
#define ASK (HEAD + RS_GM_ID)
#define QUEUE 256u

extern const rs_group_engine rs_group_engine_resend;

/* A packet that a sender gives again. */
typedef struct {
    rs_gm_id id;
    uint64_t at;
    uint32_t length;
    rs_group channel;
    uint8_t header[RS_GM_HEADER];
} gift;

typedef struct {
    rs_messages *node;
    rs_time ask_at; /* What is missing is asked for then. */
    struct {
        rs_peer peer;
        uint8_t bytes[ASK];
    } asks[QUEUE];
    gift gifts[QUEUE];
    uint32_t ask_head, ask_tail, gift_head, gift_tail;
    uint64_t asked, given;
} resend;

static const rs_group_option OPTIONS[] = {{"every", 1000, 1000000, 20000, false, "ms between requests", false}};
static const uint8_t KINDS[] = {KIND_ASK};

static rs_status start(rs_messages *node, void **out) {
    resend *own = rs_memory_take(&node->allocator, sizeof *own);
    if (!own)
        return RS_ERR_MEMORY;
    own->node = node;
    own->ask_at = RS_NEVER;
    *out = own;
    return RS_OK;
}

static void stop(void *own) {
    rs_memory_give(&((resend *)own)->node->allocator, own);
}

static rs_group_policy policy(const rs_messages *node, const rs_gm_group *next) {
    (void)next;
    return (rs_group_policy){.recovers = true, .give_up = node->config.give_up};
}

/* --------------------------------------------------------------------------------------------------- at a member */

static rs_time every(const rs_gm_group *group) {
    return (rs_time)group->option[0] * 1000;
}

static void missing(void *of_node, rs_time now, rs_gm_missing *lost) {
    resend *own = of_node;
    rs_time due = now + every(lost->stream->group);
    own->ask_at = due < own->ask_at ? due : own->ask_at;
}

static void ask(resend *own, const rs_gm_missing *lost) {
    uint8_t *bytes = own->asks[own->ask_tail % QUEUE].bytes;
    const rs_gm_stream *stream = lost->stream;
    memset(bytes, 0, HEAD);
    rs_gm_put_kind(bytes, KIND_ASK);
    memcpy(bytes + 4, &own->node->config.self, 4);
    rs_gm_put_id(bytes + HEAD, &(rs_gm_id){stream->sender, stream->incarnation, stream->group->id, lost->sn});
    rs_gm_seal(bytes, ASK);
    own->asks[own->ask_tail++ % QUEUE].peer = stream->sender;
    own->asked++;
}

static void timeout(void *of_node, rs_time now) {
    resend *own = of_node;
    const rs_list *all = &own->node->missing_order;
    if (now < own->ask_at)
        return;
    own->ask_at = RS_NEVER;
    for (const rs_list *at = all->next; at != all; at = at->next) {
        const rs_gm_missing *lost = RS_HOLDER(rs_gm_missing, order, at);
        const rs_gm_group *group = lost->stream->group;
        if (group->engine != &rs_group_engine_resend)
            continue;
        if (own->ask_tail - own->ask_head < QUEUE && now - lost->discovered >= every(group) / 2) /* not just late */
            ask(own, lost);
        own->ask_at = now + every(group) < own->ask_at ? now + every(group) : own->ask_at;
    }
}

static rs_time deadline(const void *own) {
    return ((const resend *)own)->ask_at;
}

/* -------------------------------------------------------------------------------------------------- at the sender */

static void give(resend *own, const rs_gm_stream *stream, const rs_gm_id *id) {
    const rs_gm_slot *slot = rs_gm_slot_of(stream, id->sn);
    if (!slot || !rs_gm_slot_kept(own->node, stream, *slot) || rs_gm_slot_at(*slot) >= own->node->sent)
        return;
    for (uint32_t i = own->gift_head; i != own->gift_tail; i++)
        if (own->gifts[i % QUEUE].at == rs_gm_slot_at(*slot))
            return; /* others asked for it, too */
    if (own->gift_tail - own->gift_head == QUEUE)
        return;
    gift *g = &own->gifts[own->gift_tail++ % QUEUE];
    const uint8_t *body = rs_gm_log_datagram(&own->node->out, rs_gm_slot_at(*slot)) + RS_GM_HEADER;
    *g = (gift){.id = *id,
                .at = rs_gm_slot_at(*slot),
                .length = RS_GM_BODY + rs_gm_body_length(body),
                .channel = stream->group->more_count ? stream->group->more_channels[0] : stream->group->channel};
    rs_gm_put_header(g->header, RS_GM_KIND_AGAIN, id);
    own->given++;
}

static bool datagram(void *of_node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    resend *own = of_node;
    rs_peer asker;
    rs_gm_id id;
    (void)now;
    if (length != ASK)
        return false;
    memcpy(&asker, bytes + 4, 4);
    rs_gm_get_id(bytes + HEAD, &id);
    if (!rs_gm_is_from(own->node, from, asker) || !rs_gm_intact(own->node, bytes, length))
        return true;
    const rs_gm_stream *stream = rs_gm_stream_find(own->node, id.sender, id.group);
    if (stream && stream->own && stream->incarnation == id.incarnation && rs_gm_is_member(stream->group, asker))
        give(own, stream, &id);
    return true;
}

static bool poll(void *of_node, rs_time now, rs_messages_out *out) {
    resend *own = of_node;
    (void)now;
    if (own->ask_head != own->ask_tail) {
        *out = (rs_messages_out){.channel = RS_CH_PEER_DATAGRAM,
                                 .peer = own->asks[own->ask_head % QUEUE].peer,
                                 .group = RS_NO_GROUP,
                                 .piece_count = 1,
                                 .piece = {{own->asks[own->ask_head % QUEUE].bytes, ASK}}};
        own->ask_head++;
        return true;
    }
    while (own->gift_head != own->gift_tail) {
        const gift *g = &own->gifts[own->gift_head++ % QUEUE];
        if (!rs_gm_log_has(&own->node->out, g->at))
            continue;
        const uint8_t *body = rs_gm_log_datagram(&own->node->out, g->at) + RS_GM_HEADER;
        *out = (rs_messages_out){.channel = RS_CH_GROUP,
                                 .peer = RS_NO_PEER,
                                 .group = g->channel,
                                 .piece_count = 2,
                                 .piece = {{g->header, RS_GM_HEADER}, {body, g->length}}};
        return true;
    }
    return false;
}

static uint32_t stats(const void *of_node, rs_group_stat *out) {
    const resend *own = of_node;
    out[0] = (rs_group_stat){"resends", "asked", own->asked, false};
    out[1] = (rs_group_stat){"resends", "given", own->given, false};
    return 2;
}

const rs_group_engine rs_group_engine_resend = {.name = "resend",
                                                .options = OPTIONS,
                                                .option_count = sizeof OPTIONS / sizeof *OPTIONS,
                                                .kinds = KINDS,
                                                .kind_count = sizeof KINDS,
                                                .start = start,
                                                .stop = stop,
                                                .policy = policy,
                                                .missing = missing,
                                                .datagram = datagram,
                                                .timeout = timeout,
                                                .deadline = deadline,
                                                .poll = poll,
                                                .stats = stats};
