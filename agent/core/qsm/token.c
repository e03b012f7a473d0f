/* Tokens: one for all senders goes round each partition and from partition to partition (Sec. 2.3.2). On its way nodes
 * learn what they miss, and give and take it (Sec. 2.3.3); back at the region's leader it says what all have, and how
 * fast they receive. */
#include "core/qsm/token.h"

#include <string.h>

#include "core/qsm/regions.h"
#include "core/qsm/send.h"
#include "core/qsm/streams.h"

#define MS INT64_C(1000000)
#define PUSHES 128u                /* packets that one list has forwarded at most */
#define PULLS 256u                 /* packets of other partitions asked for at a time, */
#define PULLS_EACH 64u             /* ... of one node: of many that are missing each gives some */
#define ASK_AGAIN 3u               /* rounds after which they are asked for again, */
#define ASK_AGAIN_AFTER (200 * MS) /* or, of long rounds, so long after it */
#define STUCK_LEAST (50 * MS)      /* Nothing came so long: whoever has it is asked, stable or not. */
#define MEND_LEAST (10 * MS)       /* Pushes and pulls of a round take so long at most. */
#define WAKE_ROUNDS 10 /* intervals, and so many gaps between tokens, without one; then somebody tells the leader */
#define WAKE_GAPS 4
#define GAP_MOST (1000 * MS)
#define TAIL (25 * MS)   /* packets wait not so long before a node, unless its sender is told that it is behind */
#define ENTRIES_EACH 12u /* senders that a token begins with: their ranges need room */
/* While a sender begins, every so many partitions the leader of one tells it what the round found so far. A round of
 * 500 nodes takes longer than all of its start is to; those of 25 nodes and more are some milliseconds. */
#define BEGINS (200 * MS)
#define EARLY_EACH 4u

/* ------------------------------------------------------------------------------------------ messages to other nodes */

static void begin(rs_qsm_view *view, uint8_t *bytes, uint8_t kind, uint32_t incarnation) {
    rs_qsm_head head = {view->own->node->config.self, incarnation, view->region, view->version};
    rs_qsm_put_head(bytes, kind, &head);
}

/* PULL or NAK. */
static void send_list(rs_qsm_view *view, uint8_t kind, rs_peer to, const rs_qsm_entry *e, uint32_t partition,
                      const rs_qsm_ranges *ranges) {
    uint32_t length = (uint32_t)(RS_QSM_LIST_HEAD + rs_qsm_ranges_length(ranges));
    uint8_t *bytes = rs_qsm_small_new(view->own, to, length);
    if (!bytes)
        return;
    begin(view, bytes, kind, view->own->node->config.incarnation);
    rs_qsm_put_list(bytes, e->sender, e->incarnation, partition, ranges);
    rs_gm_seal(bytes, length);
    view->own->stats.pulls_sent += kind == RS_QSM_KIND_PULL;
    view->own->stats.naks_sent += kind == RS_QSM_KIND_NAK;
}

void rs_qsm_tell_position(rs_qsm_view *view, rs_time now, uint32_t place, rs_peer sender, uint32_t incarnation,
                          uint64_t sn) {
    uint8_t *bytes = rs_qsm_small_new(view->own, view->nodes[place], RS_QSM_POSITION_LENGTH);
    (void)now;
    if (!bytes)
        return;
    begin(view, bytes, RS_QSM_KIND_POSITION, view->own->node->config.incarnation);
    rs_qsm_put_position(bytes, sender, incarnation, sn);
    rs_gm_seal(bytes, RS_QSM_POSITION_LENGTH);
    view->own->stats.positions_sent++;
}

static void send_ack(rs_qsm_view *view, const rs_qsm_entry *e, const rs_qsm_ack *ack) {
    uint8_t *bytes = rs_qsm_small_new(view->own, e->sender, RS_QSM_ACK_LENGTH);
    if (!bytes)
        return;
    begin(view, bytes, RS_QSM_KIND_ACK, e->incarnation);
    rs_qsm_put_ack(bytes, ack);
    rs_gm_seal(bytes, RS_QSM_ACK_LENGTH);
    view->own->stats.acks_sent++;
}

static void send_token_ack(rs_qsm_view *view, rs_peer to, const rs_qsm_token *token) {
    uint8_t *bytes = rs_qsm_small_new(view->own, to, RS_QSM_TOKEN_HEAD);
    rs_qsm_token answer = *token;
    if (!bytes)
        return;
    answer.count = 0;
    begin(view, bytes, RS_QSM_KIND_TOKEN_ACK, 0);
    rs_qsm_put_token(bytes, &answer);
    rs_gm_seal(bytes, RS_QSM_TOKEN_HEAD);
    view->own->stats.token_acks_sent++;
}

/* -------------------------------------------------------------------------------------- at each node (Sec. 2.3.3) */

/* What this node has of one sender's packets. */
typedef struct {
    rs_qsm_stream *stream; /* NULL: of its own, or of a sender that is not known here */
    uint64_t newest, came, prefix, cached;
    rs_qsm_ranges naks;
} holding;

static holding holding_of(rs_qsm_view *view, rs_time now, rs_qsm_entry *e) {
    const rs_messages_config *config = &view->own->node->config;
    if (e->sender == config->self) {
        bool this_life = view->out && e->incarnation == config->incarnation;
        uint64_t sent = this_life ? view->out->sent - 1 : 0;
        if (this_life && e->newest > sent)
            e->newest = sent; /* Nobody can have heard of more. */
        return (holding){NULL,
                         sent,
                         sent,
                         this_life ? sent : RS_QSM_SN_MOST,
                         this_life ? sent : RS_QSM_SN_MOST,
                         {.end = RS_QSM_SN_MOST}};
    }
    rs_qsm_stream *stream = rs_qsm_stream_get(view, e->sender, e->incarnation);
    if (!stream)
        return (holding){0};
    /* A token may come before packets that were sent before it: what is newer than all that came here is lost only if
     * it was not here at the next one either, and nothing newer came for some time. */
    uint64_t cutoff = e->cutoff < stream->came ? e->cutoff : stream->came;
    if (stream->came == stream->last_came && now - stream->came_at >= TAIL && stream->last_cutoff > cutoff)
        cutoff = stream->last_cutoff;
    stream->mended = now - stream->visited_at >= MEND_LEAST ? stream->cutoff : stream->mended;
    stream->visited_at = now;
    stream->last_came = stream->came;
    stream->found = 0;
    stream->last_cutoff = e->cutoff > stream->last_cutoff ? e->cutoff : stream->last_cutoff;
    if (cutoff > stream->cutoff) {
        stream->found = rs_qsm_stream_missing(stream, stream->cutoff, cutoff);
        stream->cutoff = cutoff;
    }
    stream->cached = e->cached > stream->cached ? e->cached : stream->cached;
    rs_qsm_stream_stable(stream, e->stable);
    holding mine = {stream, stream->newest, stream->came, stream->prefix, rs_qsm_stream_cached(stream), {0}};
    rs_qsm_stream_naks(stream, &mine.naks);
    return mine;
}

static uint32_t count_of(const rs_qsm_ranges *ranges) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < ranges->count; i++)
        count += ranges->range[i].count;
    return count;
}

/* Between neighbours: what it misses and this node has is pushed; what this one misses and it has is pulled. */
static void exchange(rs_qsm_view *view, const rs_qsm_token *token, const rs_qsm_entry *e, const holding *mine,
                     rs_peer with) {
    rs_qsm_ranges pull = {.end = e->naks.end};
    uint32_t pushed = 0, skipped = 0, pulled = 0;
    /* Of many that are missing the next node pushes the first ones: every other round the ones after are pulled. */
    uint32_t skip = token->round % 2 && count_of(&mine->naks) > PUSHES ? PUSHES : 0;
    for (uint32_t i = 0; i < e->naks.count; i++)
        for (uint32_t k = 0; k < e->naks.range[i].count && pushed < PUSHES; k++) {
            uint64_t q = e->naks.range[i].first + k;
            if (q >= mine->naks.end)
                break;
            if (rs_qsm_ranges_has(&mine->naks, q))
                continue;
            rs_qsm_forward_to(view, e->sender, rs_qsm_sn_of(view, view->partition, q), with);
            pushed++;
        }
    for (uint32_t i = 0; i < mine->naks.count; i++)
        for (uint32_t k = 0; k < mine->naks.range[i].count && pulled < PUSHES; k++) {
            uint64_t q = mine->naks.range[i].first + k;
            if (q >= e->naks.end || rs_qsm_ranges_has(&e->naks, q) || skipped++ < skip)
                continue;
            pulled++;
            if (pull.count && pull.range[pull.count - 1].first + pull.range[pull.count - 1].count == q)
                pull.range[pull.count - 1].count++;
            else if (pull.count < RS_QSM_RANGES) {
                pull.range[pull.count].first = q;
                pull.range[pull.count++].count = 1;
            }
        }
    if (pull.count)
        send_list(view, RS_QSM_KIND_PULL, with, e, view->partition, &pull);
}

/* Who of a partition is asked: its nodes take turns, by who asks and how often, so that its leader has no more to give
 * than others. One that takes no tokens gives nothing either. */
static uint32_t replica_of(const rs_qsm_view *view, uint32_t partition, uint32_t turn) {
    uint32_t p = view->partitions, size = (view->count - partition + p - 1) / p;
    for (uint32_t i = 0; i < size; i++) {
        uint32_t place = partition + p * ((view->self / p + turn + i) % size);
        if (rs_qsm_is_alive(view, place) && !(view->silent && view->silent[place]))
            return place;
    }
    return rs_qsm_partition_leader(view, partition);
}

/* Of other partitions' nodes, what all who cache it have: it can be given at once. The token says so of what is stable
 * there a round after it is; but what was lost before the last round, they gave each other in that round. Who has it
 * not yet does not answer, and is asked again. Where a node is silent no round tells what is stable. */
static void pull_others(rs_qsm_view *view, rs_time now, const rs_qsm_token *token, const rs_qsm_entry *e,
                        rs_qsm_stream *stream) {
    uint64_t sns[PULLS], known = stream->cached > stream->mended ? stream->cached : stream->mended;
    uint64_t to = stream->cutoff < known || stream->stuck >= STUCK_LEAST ? stream->cutoff : known;
    uint32_t count = 0, p = view->partitions;
    if (p == 1 || to <= stream->prefix)
        return;
    bool again = token->round - stream->asked_round >= ASK_AGAIN || now - stream->asked_at >= ASK_AGAIN_AFTER;
    if (again || stream->asked < stream->prefix) {
        stream->asked = stream->prefix;
        stream->asked_round = token->round;
        stream->asked_at = now;
    }
    for (uint64_t sn = stream->asked + 1; sn <= to && count < PULLS; sn++) {
        stream->asked = sn;
        if (sn % p != view->partition && !rs_qsm_stream_has(stream, sn))
            sns[count++] = sn;
    }
    for (uint32_t first = 0, lists = 0; first < count; first++) {
        if (sns[first] == 0)
            continue;
        uint32_t partition = (uint32_t)(sns[first] % p), taken = 0;
        uint32_t place = replica_of(view, partition, token->round / ASK_AGAIN + lists++);
        rs_qsm_ranges ranges = {.end = to / p + 1};
        for (uint32_t i = first; i < count && ranges.count < RS_QSM_RANGES && taken < PULLS_EACH; i++) {
            if (sns[i] == 0 || sns[i] % p != partition)
                continue;
            taken++;
            uint32_t last = ranges.count - 1;
            if (ranges.count && ranges.range[last].first + ranges.range[last].count == sns[i] / p)
                ranges.range[last].count++;
            else {
                ranges.range[ranges.count].first = sns[i] / p;
                ranges.range[ranges.count++].count = 1;
            }
            sns[i] = 0;
        }
        if (place != RS_QSM_NOWHERE && place != view->self && ranges.count)
            send_list(view, RS_QSM_KIND_PULL, view->nodes[place], e, partition, &ranges);
    }
}

static void tell_early(rs_qsm_view *view, const rs_qsm_token *token, const rs_qsm_entry *e) {
    const uint32_t senders = token->count * token->parts;
    if (e->rate == UINT32_MAX)
        return;
    send_ack(view, e,
             &(rs_qsm_ack){.stable = e->stable,
                           .cached = e->cached > e->stable ? e->cached : e->stable,
                           .behind = e->behind,
                           .round = token->round,
                           .senders = senders,
                           .rate = e->rate,
                           .share = senders ? token->rate / senders : token->rate,
                           .missing = e->missing,
                           .interval_us = RS_QSM_GOES_ON});
}

static void visit_entry(rs_qsm_view *view, rs_time now, const rs_qsm_token *token, rs_qsm_entry *e, rs_qsm_hop at,
                        rs_peer from, bool first) {
    rs_qsm *own = view->own;
    holding mine = holding_of(view, now, e);
    bool neighbour = from != RS_NO_PEER && from != own->node->config.self;
    if (e->sender == own->node->config.self && view->out && e->incarnation == own->node->config.incarnation)
        rs_qsm_out_acked(view, now, e->stable, e->cached);
    if (neighbour && !first)
        exchange(view, token, e, &mine, from);
    if (at.phase == 1) { /* round the partition: what all of it miss, only the sender has */
        if (e->all.count && e->sender != own->node->config.self)
            send_list(view, RS_QSM_KIND_NAK, e->sender, e, view->partition, &e->all);
        if (mine.stream && view->partition % EARLY_EACH == EARLY_EACH - 1 && now - mine.stream->began_at < BEGINS)
            tell_early(view, token, e);
        e->naks = e->all = (rs_qsm_ranges){0};
        return;
    }
    uint64_t known = e->newest > e->cutoff ? e->newest : e->cutoff;
    if (mine.stream && known > mine.came + e->behind)
        e->behind = known - mine.came;
    e->newest = mine.newest > e->newest ? mine.newest : e->newest;
    e->now_stable = mine.prefix < e->now_stable ? mine.prefix : e->now_stable;
    e->now_cached = mine.cached < e->now_cached ? mine.cached : e->now_cached;
    if (mine.stream) {
        uint32_t rate = rs_qsm_meter_rate(&mine.stream->meter, now);
        uint32_t missing = mine.stream->found;
        e->rate = rate < e->rate ? rate : e->rate;
        e->missing = missing > e->missing ? (uint16_t)missing : e->missing;
        pull_others(view, now, token, e, mine.stream);
    }
    e->naks = mine.naks;
    if (first)
        e->all = mine.naks;
    else
        rs_qsm_ranges_both(&e->all, &mine.naks);
}

static rs_qsm_entry *entry_of(rs_qsm *own, rs_peer sender) {
    for (uint32_t i = 0; i < own->entry_count; i++)
        if (own->entries[i].sender == sender)
            return &own->entries[i];
    return NULL;
}

static uint32_t part_of(rs_peer sender, uint32_t parts) {
    return (uint32_t)(rs_mix(sender) % parts);
}

/* How many bytes the entries' ranges may have in one datagram is bounded by that many entries. */
static uint32_t entries_most(const rs_qsm *own) {
    uint32_t room = (own->node->config.packet_bytes - RS_QSM_TOKEN_HEAD) / RS_QSM_ENTRY;
    return room < RS_QSM_ENTRIES ? room : RS_QSM_ENTRIES;
}

static void add_entry(rs_qsm *own, rs_peer sender, uint32_t incarnation, uint64_t cutoff, uint64_t stable,
                      uint64_t cached, uint64_t so_far) {
    if (own->entry_count >= entries_most(own))
        return;
    own->entries[own->entry_count++] = (rs_qsm_entry){.sender = sender,
                                                      .incarnation = incarnation,
                                                      .cutoff = cutoff,
                                                      .stable = stable,
                                                      .cached = cached,
                                                      .now_stable = so_far,
                                                      .now_cached = so_far,
                                                      .rate = UINT32_MAX};
}

/* Tokens go on until all have been told that all have everything. */
static bool goes_on(const rs_qsm_stream *stream) {
    return stream->newest > stream->spread;
}

static bool own_unsettled(const rs_qsm_view *view, bool leading) {
    return view->out && view->self != RS_QSM_NOWHERE &&
           view->out->sent - 1 > (leading ? view->out->spread : view->out->stable);
}

/* Senders that are heard here and not in the token yet; of what nodes before have of them nothing is known: 0. */
static void add_entries(rs_qsm_view *view, const rs_qsm_token *token, uint64_t so_far) {
    rs_qsm *own = view->own;
    const rs_messages_config *config = &own->node->config;
    bool leading = token->leader == config->self;
    if (own_unsettled(view, leading) && part_of(config->self, token->parts) == token->part &&
        !entry_of(own, config->self))
        add_entry(own, config->self, config->incarnation, view->out->told, view->out->stable, view->out->cached,
                  so_far);
    for (rs_list *at = view->streams.next; at != &view->streams; at = at->next) {
        const rs_qsm_stream *stream = RS_HOLDER(rs_qsm_stream, in_view, at);
        if ((leading ? goes_on(stream) : rs_qsm_is_unsettled(stream)) &&
            part_of(stream->sender, token->parts) == token->part && !entry_of(own, stream->sender))
            add_entry(own, stream->sender, stream->incarnation, stream->told, stream->stable, stream->cached, so_far);
    }
}

/* A round is over: what all have is known, unless somebody was passed over. */
static void finish(rs_qsm_view *view, rs_time now, const rs_qsm_token *token) {
    rs_qsm *own = view->own;
    uint32_t senders = token->count * token->parts, turns = rs_qsm_ack_turns(senders);
    if (token->round != view->round || view->outstanding == 0)
        return;
    rs_time took = now - view->round_at > view->interval ? now - view->round_at : view->interval;
    view->outstanding--;
    own->stats.rounds += token->part == 0;
    own->stats.rounds_incomplete += token->incomplete && token->part == 0;
    for (uint32_t i = 0; i < own->entry_count; i++) {
        const rs_qsm_entry *e = &own->entries[i];
        uint64_t stable = e->stable, cached = e->cached;
        if (!token->incomplete) {
            uint64_t all = e->now_stable < e->newest ? e->now_stable : e->newest;
            uint64_t caching = e->now_cached < e->newest ? e->now_cached : e->newest;
            stable = all > stable ? all : stable;
            cached = caching > cached ? caching : cached;
        }
        rs_qsm_ack ack = {.stable = stable,
                          .cached = cached,
                          .behind = e->behind,
                          .round = token->round,
                          .senders = senders,
                          .rate = e->rate == UINT32_MAX ? 0 : e->rate,
                          .share = senders ? token->rate / senders : token->rate,
                          .missing = e->missing,
                          .interval_us = token->incomplete ? 0 : (uint32_t)(took / 1000)};
        if (e->sender == own->node->config.self) {
            if (!view->out || e->incarnation != own->node->config.incarnation)
                continue;
            view->out->told = e->newest;
            view->out->spread = !token->incomplete && e->stable > view->out->spread ? e->stable : view->out->spread;
            rs_qsm_out_acked(view, now, stable, cached);
            rs_qsm_out_told(view, now, &ack);
            continue;
        }
        rs_qsm_stream *stream = rs_qsm_stream_get(view, e->sender, e->incarnation);
        if (!stream)
            continue;
        stream->spread = !token->incomplete && e->stable > stream->spread ? e->stable : stream->spread;
        stream->told = e->newest > stream->told ? e->newest : stream->told;
        stream->newest = e->newest > stream->newest ? e->newest : stream->newest;
        stream->cached = cached > stream->cached ? cached : stream->cached;
        rs_qsm_stream_stable(stream, stable);
        if (token->round % turns == part_of(e->sender, turns))
            send_ack(view, e, &ack);
    }
}

/* The token is at this node. */
static void visit(rs_qsm_view *view, rs_time now, rs_qsm_token *token, rs_qsm_hop at, rs_peer from) {
    rs_qsm *own = view->own;
    uint32_t leader = rs_qsm_place_of(view, token->leader), place = rs_qsm_place_of(view, from);
    rs_time elapsed = now - view->ticked_at < 2 * view->interval ? now - view->ticked_at : 2 * view->interval;
    bool other_partition = place == RS_QSM_NOWHERE || place % view->partitions != view->partition;
    bool first = at.phase == 0 && (at.place == leader || other_partition);
    if (at.phase == 2) {
        finish(view, now, token);
        return;
    }
    if (at.phase == 0) {
        uint32_t rate =
            rs_qsm_meter_rate(&view->meter, now) + (view->out ? rs_qsm_meter_rate(&view->out->control.sent, now) : 0);
        token->rate = rate < token->rate ? rate : token->rate;
        add_entries(view, token, at.place == leader ? RS_QSM_SN_MOST : 0);
    }
    for (uint32_t i = 0; i < own->entry_count; i++)
        visit_entry(view, now, token, &own->entries[i], at, other_partition ? RS_NO_PEER : from, first);
    if (at.phase == 0 && token->part == 0) {
        bool unsettled = false;
        for (rs_list *s = view->streams.next; s != &view->streams; s = s->next) {
            rs_qsm_stream *stream = RS_HOLDER(rs_qsm_stream, in_view, s);
            rs_qsm_stream_tick(stream, elapsed);
            unsettled |= rs_qsm_is_unsettled(stream);
        }
        view->ticked_at = now;
        view->wake_at = RS_NEVER;
        view->wakes = 0;
        if (unsettled)
            rs_qsm_token_wake(view, now);
    }
}

/* ------------------------------------------------------------------------------------------------- from hop to hop */

static bool read_entries(rs_qsm *own, const uint8_t *bytes, size_t length, const rs_qsm_token *token) {
    size_t at = RS_QSM_TOKEN_HEAD;
    if (token->count > RS_QSM_ENTRIES)
        return false;
    for (own->entry_count = 0; own->entry_count < token->count; own->entry_count++)
        at += rs_qsm_get_entry(bytes + at, length - at, &own->entries[own->entry_count]);
    return true;
}

/* Lists of ranges that there is no room for are left out: nothing is known of what they would say. */
static uint32_t write_token(rs_qsm_view *view, rs_qsm_token *token, uint8_t *bytes) {
    rs_qsm *own = view->own;
    size_t at = RS_QSM_TOKEN_HEAD, most = own->node->config.packet_bytes;
    token->from = own->node->config.self;
    token->count = own->entry_count;
    begin(view, bytes, RS_QSM_KIND_TOKEN, own->node->config.incarnation);
    rs_qsm_put_token(bytes, token);
    for (uint32_t i = 0; i < own->entry_count; i++) {
        rs_qsm_entry entry = own->entries[i];
        size_t behind = (size_t)(own->entry_count - i - 1) * RS_QSM_ENTRY;
        size_t ranges = (size_t)(entry.naks.count + entry.all.count) * RS_QSM_RANGE;
        if (at + RS_QSM_ENTRY + ranges + behind > most)
            entry.naks = entry.all = (rs_qsm_ranges){0};
        at += rs_qsm_put_entry(bytes + at, &entry);
    }
    rs_gm_seal(bytes, at);
    return (uint32_t)at;
}

static void send_again(rs_qsm_view *view, rs_qsm_pass *pass, rs_time now) {
    uint8_t *bytes = rs_qsm_small_new(view->own, view->nodes[pass->place], pass->length);
    pass->due = now + (RS_QSM_RETRY << pass->tries);
    pass->tries++;
    if (bytes)
        memcpy(bytes, pass->bytes, pass->length);
    view->own->stats.tokens_sent++;
    view->own->stats.tokens_again += pass->tries > 1;
}

static bool pass_on(rs_qsm_view *view, rs_time now, rs_qsm_token *token, rs_qsm_hop to) {
    rs_qsm *own = view->own;
    rs_qsm_pass *pass = rs_memory_take(&own->node->allocator, sizeof *pass + own->node->config.packet_bytes);
    if (!pass)
        return false;
    token->phase = (uint8_t)to.phase;
    *pass = (rs_qsm_pass){.place = to.place, .phase = to.phase, .token = *token};
    pass->length = write_token(view, token, pass->bytes);
    rs_list_init(&pass->in_view);
    rs_list_append(&view->passes, &pass->in_view);
    rs_qsm_view_wake(view);
    send_again(view, pass, now);
    return true;
}

/* A node that takes no tokens may hear of this one nonetheless. */
static void send_copy(rs_qsm_view *view, rs_qsm_token *token, rs_qsm_hop to) {
    rs_qsm *own = view->own;
    uint8_t *bytes = rs_qsm_small_new(own, view->nodes[to.place], own->node->config.packet_bytes);
    if (!bytes)
        return;
    rs_qsm_token copy = *token;
    copy.copy = true;
    copy.phase = (uint8_t)to.phase;
    uint32_t length = write_token(view, &copy, bytes);
    RS_HOLDER(rs_qsm_small, order, own->smalls.prev)->length = length;
    own->stats.tokens_sent++;
}

static bool have_silent(rs_qsm_view *view) {
    if (!view->silent)
        view->silent = rs_memory_take(&view->own->node->allocator, view->count * sizeof *view->silent);
    return view->silent != NULL;
}

/* From this node, which was at `at`, to where it goes next; several places may be this node's own. */
static void go_on(rs_qsm_view *view, rs_time now, rs_qsm_token *token, rs_qsm_hop at) {
    uint32_t leader = rs_qsm_place_of(view, token->leader);
    rs_peer self = view->own->node->config.self;
    for (uint32_t i = 0; i < view->count + 2 * view->partitions + 2; i++) {
        at = rs_qsm_next_hop(view, leader, at);
        if (at.place == view->self) {
            visit(view, now, token, at, self);
            if (at.phase == 2)
                return;
        } else if (view->silent && view->silent[at.place] > 0 && at.phase < 2) {
            token->incomplete |= at.phase == 0 && view->silent[at.place] < RS_QSM_SILENT_MOST;
            send_copy(view, token, at); /* who takes it is silent no more */
            if (at.phase == 0 && token->part == 0)
                view->silent[at.place] += view->since < 4 * view->interval ? view->since : 4 * view->interval;
            view->own->stats.tokens_skipped++;
        } else {
            pass_on(view, now, token, at);
            return;
        }
    }
}

/* The node did not take the token. */
static void pass_over(rs_qsm_view *view, rs_time now, rs_qsm_pass *pass) {
    rs_qsm_token token;
    rs_list_remove(&pass->in_view);
    view->own->stats.tokens_skipped++;
    if (have_silent(view) && view->silent[pass->place] < RS_QSM_TRIED) /* others may have been on their way to it */
        view->silent[pass->place] = RS_QSM_TRIED;
    if (pass->phase < 2 && rs_qsm_get_token(pass->bytes, pass->length, &token) &&
        read_entries(view->own, pass->bytes, pass->length, &token)) {
        token.incomplete |= pass->phase == 0;
        go_on(view, now, &token, (rs_qsm_hop){pass->place, pass->phase});
    }
    rs_memory_give(&view->own->node->allocator, pass);
}

static void generate(rs_qsm_view *view, rs_time now) {
    rs_qsm *own = view->own;
    uint32_t load[RS_QSM_PARTS], most = UINT32_MAX;
    /* As many tokens as hold all senders with room for their ranges; usually one. */
    for (view->parts = 1;; view->parts *= 2) {
        memset(load, 0, sizeof load);
        most = 0;
        for (rs_list *at = view->streams.next; at != &view->streams; at = at->next) {
            const rs_qsm_stream *stream = RS_HOLDER(rs_qsm_stream, in_view, at);
            uint32_t part = part_of(stream->sender, view->parts);
            load[part] += goes_on(stream);
            most = load[part] > most ? load[part] : most;
        }
        if (most < ENTRIES_EACH || view->parts == RS_QSM_PARTS)
            break;
    }
    view->since = now - view->round_at;
    view->round++;
    view->round_at = now;
    view->next_at = now + view->interval;
    view->outstanding = view->parts;
    for (uint32_t part = 0; part < view->parts; part++) {
        rs_qsm_token token = {.from = own->node->config.self,
                              .leader = own->node->config.self,
                              .round = view->round,
                              .part = (uint8_t)part,
                              .parts = (uint8_t)view->parts,
                              .rate = UINT32_MAX};
        rs_qsm_hop here = {view->self, 0};
        own->entry_count = 0;
        visit(view, now, &token, here, RS_NO_PEER);
        token.count = own->entry_count;
        if (own->entry_count == 0)
            view->outstanding--;
        else
            go_on(view, now, &token, here);
    }
    view->token_at = now;
}

/* ---------------------------------------------------------------------------------------------------------- receive */

/* A datagram of a node of the view, for a node of it. NULL: `*bad` or of no interest. */
static rs_qsm_view *for_node(rs_qsm *own, rs_peer from, const uint8_t *bytes, size_t length, rs_qsm_head *head) {
    rs_qsm_view *view = rs_qsm_view_find(own, head->region, head->version);
    if (!view || view->self == RS_QSM_NOWHERE || head->who == own->node->config.self) {
        own->stats.foreign++;
        return NULL;
    }
    if (!rs_gm_is_from(own->node, from, head->who) || !rs_gm_intact(own->node, bytes, length))
        return NULL;
    return view;
}

/* A leader that no token was heard of for so long does not make any. */
static rs_time leader_timeout(const rs_qsm_view *view) {
    return WAKE_ROUNDS * view->interval + WAKE_GAPS * view->gap;
}

/* It was here before; the newest round of a leader counts. Of two leaders the tokens of the one before the other go on:
 * if both did, each copy of a token would look like a new one. */
static bool is_seen(rs_qsm_view *view, rs_time now, const rs_qsm_token *token) {
    if (!view->seen)
        view->seen = rs_memory_take(&view->own->node->allocator, RS_QSM_PARTS * sizeof *view->seen);
    if (!view->seen || token->part >= RS_QSM_PARTS)
        return true;
    rs_qsm_seen *seen = &view->seen[token->part];
    if (seen->phases && seen->leader != token->leader && now - seen->at < leader_timeout(view) &&
        rs_qsm_place_of(view, seen->leader) < rs_qsm_place_of(view, token->leader))
        return true;
    if (seen->leader == token->leader && seen->phases) {
        if ((int32_t)(token->round - seen->round) < 0 ||
            (token->round == seen->round && seen->phases >> token->phase & 1))
            return true;
        seen->phases = token->round == seen->round ? seen->phases : 0;
    } else
        seen->phases = 0;
    seen->leader = token->leader;
    seen->round = token->round;
    seen->at = now;
    seen->phases |= 1u << token->phase;
    return false;
}

bool rs_qsm_receive_token(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    rs_qsm_head head;
    rs_qsm_token token;
    if (!rs_qsm_get_head(bytes, length, &head) || !rs_qsm_get_token(bytes, length, &token))
        return false;
    rs_qsm_view *view = for_node(own, from, bytes, length, &head);
    uint32_t leader = view ? rs_qsm_place_of(view, token.leader) : RS_QSM_NOWHERE;
    if (!view || rs_qsm_place_of(view, head.who) == RS_QSM_NOWHERE || leader == RS_QSM_NOWHERE)
        return true;
    send_token_ack(view, head.who, &token);
    if (have_silent(view))
        view->silent[rs_qsm_place_of(view, head.who)] = 0;
    if (is_seen(view, now, &token) || !read_entries(own, bytes, length, &token))
        return true;
    if (leader < view->self)
        view->leads = false;
    if (token.leader != own->node->config.self && token.phase == 0) {
        rs_time since = now - (view->token_at > view->woke_at ? view->token_at : view->woke_at);
        view->since = now - view->token_at;
        view->gap -= view->gap / 8;
        view->gap = since > view->gap && since < GAP_MOST ? since : view->gap;
        view->token_at = now;
    }
    rs_qsm_hop here = {view->self, token.phase};
    visit(view, now, &token, here, head.who);
    if (!token.copy && token.phase < 2)
        go_on(view, now, &token, here);
    rs_qsm_view_wake(view);
    return true;
}

bool rs_qsm_receive_token_ack(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    rs_qsm_head head;
    rs_qsm_token token;
    (void)now;
    if (!rs_qsm_get_head(bytes, length, &head) || !rs_qsm_get_token(bytes, length, &token))
        return false;
    rs_qsm_view *view = for_node(own, from, bytes, length, &head);
    uint32_t place = view ? rs_qsm_place_of(view, head.who) : RS_QSM_NOWHERE;
    if (place == RS_QSM_NOWHERE)
        return true;
    if (view->silent)
        view->silent[place] = 0;
    for (rs_list *at = view->passes.next, *after; at != &view->passes; at = after) {
        rs_qsm_pass *pass = RS_HOLDER(rs_qsm_pass, in_view, at);
        after = at->next;
        if (pass->place == place && pass->phase == token.phase && pass->token.round == token.round &&
            pass->token.part == token.part && pass->token.leader == token.leader) {
            rs_list_remove(at);
            rs_memory_give(&own->node->allocator, pass);
        }
    }
    return true;
}

bool rs_qsm_receive_pull(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    rs_qsm_head head;
    rs_qsm_ranges ranges;
    rs_peer sender;
    uint32_t incarnation, partition, given = 0;
    (void)now;
    if (!rs_qsm_get_head(bytes, length, &head) ||
        !rs_qsm_get_list(bytes, length, &sender, &incarnation, &partition, &ranges))
        return false;
    rs_qsm_view *view = for_node(own, from, bytes, length, &head);
    if (!view || rs_qsm_place_of(view, head.who) == RS_QSM_NOWHERE || partition != view->partition)
        return true;
    for (uint32_t i = 0; i < ranges.count; i++)
        for (uint32_t k = 0; k < ranges.range[i].count && given < PUSHES; k++, given++)
            rs_qsm_forward_to(view, sender, rs_qsm_sn_of(view, partition, ranges.range[i].first + k), head.who);
    return true;
}

bool rs_qsm_receive_position(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    rs_qsm_head head;
    rs_peer sender;
    uint32_t incarnation;
    uint64_t sn;
    if (!rs_qsm_get_head(bytes, length, &head) || !rs_qsm_get_position(bytes, length, &sender, &incarnation, &sn))
        return false;
    rs_qsm_view *view = for_node(own, from, bytes, length, &head);
    if (!view || (head.who != sender && rs_qsm_place_of(view, head.who) == RS_QSM_NOWHERE))
        return true;
    if (sender != own->node->config.self) {
        rs_qsm_stream *stream = rs_qsm_stream_get(view, sender, incarnation);
        if (!stream || (sn > stream->prefix && sn - stream->prefix > RS_QSM_WINDOW))
            return true;
        stream->newest = sn > stream->newest ? sn : stream->newest;
        stream->spread = sn <= stream->spread ? 0 : stream->spread; /* It has not heard that it is stable. */
    } else if (view->out)
        view->out->spread = 0;
    /* Whoever is told takes the leader's place, if that lets no token be seen. */
    if (rs_qsm_region_leader(view) != view->self && now - view->token_at > leader_timeout(view))
        view->leads = true;
    rs_qsm_token_wake(view, now);
    return true;
}

/* ---------------------------------------------------------------------------------------------------------- timers */

static bool is_leader(const rs_qsm_view *view) {
    return view->self != RS_QSM_NOWHERE && (view->leads || rs_qsm_region_leader(view) == view->self);
}

static bool any_unsettled(const rs_qsm_view *view) {
    for (rs_list *at = view->streams.next; at != &view->streams; at = at->next)
        if (goes_on(RS_HOLDER(rs_qsm_stream, in_view, at)))
            return true;
    return own_unsettled(view, true);
}

static void set_wake(rs_qsm_view *view, rs_time now) {
    view->wake_at = now + leader_timeout(view) + view->self % 16 * view->interval;
}

void rs_qsm_token_wake(rs_qsm_view *view, rs_time now) {
    rs_qsm_view_wake(view);
    if (view->self == RS_QSM_NOWHERE)
        return;
    if (view->next_at == RS_NEVER && is_leader(view))
        view->next_at = view->round_at + view->interval > now ? view->round_at + view->interval : now + view->interval;
    if (view->wake_at == RS_NEVER) {
        view->woke_at = now;
        set_wake(view, now);
    }
}

static void timeout_as_leader(rs_qsm_view *view, rs_time now) {
    if (view->outstanding && now - view->round_at >= 10 * view->interval + 1000 * MS) {
        view->outstanding = 0; /* It was lost with a node. */
        view->own->stats.rounds_incomplete++;
    }
    if (view->outstanding || now < view->next_at)
        return;
    if (is_leader(view) && any_unsettled(view))
        generate(view, now);
    else
        view->next_at = RS_NEVER;
}

/* Nobody passes tokens: the leader has heard nothing, or is gone; then another one is told. */
static void timeout_as_node(rs_qsm_view *view, rs_time now) {
    view->wake_at = RS_NEVER;
    if (is_leader(view) || view->count < 2)
        return;
    uint32_t leader = rs_qsm_region_leader(view);
    for (rs_list *at = view->streams.next; at != &view->streams; at = at->next) {
        const rs_qsm_stream *stream = RS_HOLDER(rs_qsm_stream, in_view, at);
        if (!rs_qsm_is_unsettled(stream))
            continue;
        uint32_t place = leader == RS_QSM_NOWHERE ? 0 : (leader + view->wakes / 2) % view->count;
        if (place != view->self)
            rs_qsm_tell_position(view, now, place, stream->sender, stream->incarnation, stream->newest);
        else {
            view->leads = true;
            rs_qsm_token_wake(view, now);
        }
        view->wakes++;
        set_wake(view, now);
        return;
    }
}

void rs_qsm_token_timeout(rs_qsm_view *view, rs_time now) {
    for (rs_list *at = view->passes.next, *after; at != &view->passes; at = after) {
        rs_qsm_pass *pass = RS_HOLDER(rs_qsm_pass, in_view, at);
        after = at->next;
        if (now < pass->due)
            continue;
        if (pass->tries < RS_QSM_TRIES)
            send_again(view, pass, now);
        else
            pass_over(view, now, pass);
    }
    timeout_as_leader(view, now);
    if (now >= view->wake_at)
        timeout_as_node(view, now);
}

rs_time rs_qsm_token_deadline(const rs_qsm_view *view) {
    rs_time first = view->wake_at;
    for (rs_list *at = view->passes.next; at != &view->passes; at = at->next)
        first = rs_qsm_earlier(first, RS_HOLDER(rs_qsm_pass, in_view, at)->due);
    if (view->outstanding)
        return rs_qsm_earlier(first, view->round_at + 10 * view->interval + 1000 * MS);
    return rs_qsm_earlier(first, view->next_at);
}

bool rs_qsm_token_idle(const rs_qsm_view *view) {
    return rs_list_empty(&view->passes) && view->next_at == RS_NEVER && view->wake_at == RS_NEVER && !view->outstanding;
}
