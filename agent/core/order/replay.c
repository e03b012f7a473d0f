/* Who has which messages, and pulling them: one run of records at a time, from one member, in datagrams. */
#include "core/order/replay.h"

#include <string.h>

#include "core/base/bytes.h"
#include "core/base/memory.h"
#include "core/base/random.h"
#include "core/base/xxh64.h"

#define VERSION 1u
#define HEAD 16u
#define ASK_BYTES (HEAD + 8u)
#define HAVE_BYTES (HEAD + 68u)
#define PULL_BYTES (HEAD + 12u)
#define PIECE_BYTES (HEAD + 16u)
#define CHECK_AT 4u
#define OUT_MOST 512u /* datagrams that wait: eight windows; more is as good as lost */
#define ASK_TRIES 12u /* then a member has nothing: some 10 s */
#define PULL_TRIES 6u /* then it is another one's turn: some 2 s */
#define BACK_OFF 5u   /* doublings of the time to ask again, at most */
#define ASKED_AT_ONCE 8u
#define CUTS_MOST 64u

typedef enum { ASK = 1, HAVE = 2, PULL = 3, PIECE = 4 } kind;

/* Another member. */
typedef struct {
    rs_peer peer;
    bool answered, settled; /* it said what it has; and that this is all */
    bool bad;               /* it did not give what it said it has */
    uint32_t tries, token;
    rs_time asked_at;
    uint64_t first, last; /* what it has; 0: nothing */
} holder;

typedef struct leaving {
    struct leaving *next;
    rs_peer peer;
    uint32_t length;
    uint8_t bytes[];
} leaving;

/* What is being pulled. */
typedef struct {
    bool active;
    rs_peer peer;
    uint32_t token, tries;
    uint64_t number;
    uint32_t total; /* bytes; 0: not known yet */
    uint32_t got;   /* pieces */
    uint32_t last;  /* the last piece that was asked for */
    rs_time asked_at;
    uint8_t *bytes, *have; /* `have`: a byte for each piece */
    size_t room;
} pulling;

struct rs_replay {
    rs_replay_config config;
    rs_allocator allocator;
    rs_history *history;
    uint64_t joined; /* the view that this member joined with; 0: none yet */
    uint64_t held;   /* the last number that it had then */
    uint64_t end;    /* messages before that view */
    uint64_t floor;  /* older ones are not kept here */
    uint64_t hint;   /* a program waits for this one; 0: none does */
    uint64_t pin;
    uint32_t cuts;
    bool settled; /* all have answered */
    holder *holders;
    uint32_t holder_count;
    pulling pull;
    leaving *out, **out_end, *sent;
    uint32_t out_count;
    rs_time tick_at;
    rs_replay_stats stats;
};

/* ------------------------------------------------------------------------------------------------------------- out */

static uint32_t check_of(const uint8_t *bytes, size_t length) {
    return (uint32_t)rs_gm_xxh64(bytes + CHECK_AT + 4, length - CHECK_AT - 4, rs_le_get(bytes, CHECK_AT));
}

/* To be filled from HEAD on, and sealed. NULL: too many wait, or out of memory. */
static leaving *begin(rs_replay *r, rs_peer to, kind what, uint32_t token, uint32_t length) {
    leaving *one = r->out_count < OUT_MOST ? rs_memory_take(&r->allocator, sizeof *one + length) : NULL;
    if (!one)
        return NULL;
    one->peer = to;
    one->length = length;
    uint8_t *at = rs_le_put(one->bytes, RS_REPLAY_MAGIC, 2);
    at = rs_le_put(at, VERSION, 1);
    at = rs_le_put(at, what, 1);
    at = rs_le_put(at, 0, 4);
    at = rs_le_put(at, r->config.group, 4);
    rs_le_put(at, token, 4);
    return one;
}

static void post(rs_replay *r, leaving *one) {
    rs_le_put(one->bytes + CHECK_AT, check_of(one->bytes, one->length), 4);
    *r->out_end = one;
    r->out_end = &one->next;
    r->out_count++;
}

bool rs_replay_poll_out(rs_replay *r, rs_replay_out *out) {
    leaving *one = r->out;
    if (!one)
        return false;
    r->out = one->next;
    r->out_end = r->out ? r->out_end : &r->out;
    r->out_count--;
    one->next = r->sent;
    r->sent = one;
    *out = (rs_replay_out){one->peer, one->bytes, one->length};
    return true;
}

static void drop_all(rs_replay *r, leaving **list) {
    while (*list) {
        leaving *one = *list;
        *list = one->next;
        rs_memory_give(&r->allocator, one);
    }
}

void rs_replay_sent(rs_replay *r) {
    drop_all(r, &r->sent);
}

static holder *holder_of(const rs_replay *r, rs_peer peer) {
    for (uint32_t i = 0; i < r->holder_count; i++)
        if (r->holders[i].peer == peer)
            return &r->holders[i];
    return NULL;
}

static uint32_t token_of(rs_replay *r) {
    return (uint32_t)(rs_random_next(&r->config.seed) >> 32);
}

/* -------------------------------------------------------------------------------------------- what is to be pulled */

static bool has(const holder *h, uint64_t number) {
    return !h->bad && h->last > 0 && h->first <= number && number <= h->last;
}

/* The first number from there on that is not here and that somebody has; 0: there is none. */
static uint64_t next_wanted(const rs_replay *r, uint64_t from) {
    uint64_t number = from > r->floor ? from : r->floor;
    number = number ? number : 1;
    while (number <= r->end && (number = rs_history_missing(r->history, number, r->end)) != 0) {
        uint64_t next = UINT64_MAX;
        for (uint32_t i = 0; i < r->holder_count; i++) {
            const holder *h = &r->holders[i];
            if (has(h, number))
                return number;
            if (!h->bad && h->first > number && h->first < next)
                next = h->first;
        }
        number = next;
    }
    return 0;
}

static uint64_t wanted(const rs_replay *r) {
    uint64_t number = r->hint ? next_wanted(r, r->hint) : 0;
    return number ? number : next_wanted(r, 1);
}

static void pull_end(rs_replay *r) {
    rs_memory_give(&r->allocator, r->pull.bytes);
    rs_memory_give(&r->allocator, r->pull.have);
    r->pull = (pulling){0};
}

static uint32_t pieces_of(uint32_t total) {
    return (total + RS_REPLAY_PIECE - 1) / RS_REPLAY_PIECE;
}

/* Asks for pieces that are not here: the first so many. */
static void ask_pieces(rs_replay *r, rs_time now) {
    pulling *p = &r->pull;
    uint32_t ranges[RS_REPLAY_RANGES][2], count = 0, many = 0,
                                          pieces = p->total ? pieces_of(p->total) : RS_REPLAY_WINDOW;
    for (uint32_t i = 0; i < pieces && many < RS_REPLAY_WINDOW; i++) {
        if (p->have && p->have[i])
            continue;
        if (count > 0 && ranges[count - 1][1] == i) {
            ranges[count - 1][1]++;
        } else {
            if (count == RS_REPLAY_RANGES)
                break;
            ranges[count][0] = i;
            ranges[count++][1] = i + 1;
        }
        p->last = i;
        many++;
    }
    p->asked_at = now;
    leaving *one = begin(r, p->peer, PULL, p->token, PULL_BYTES + 8 * count);
    if (!one)
        return;
    uint8_t *at = rs_le_put(one->bytes + HEAD, p->number, 8);
    at = rs_le_put(at, count, 4);
    for (uint32_t i = 0; i < count; i++) {
        at = rs_le_put(at, (uint64_t)ranges[i][0] * RS_REPLAY_PIECE, 4);
        at = rs_le_put(at, (uint64_t)ranges[i][1] * RS_REPLAY_PIECE, 4);
    }
    post(r, one);
}

static void pull_begin(rs_replay *r, rs_time now) {
    uint64_t number = r->settled && !r->pull.active ? wanted(r) : 0;
    uint32_t fit = 0, which;
    for (uint32_t i = 0; number && i < r->holder_count; i++)
        fit += has(&r->holders[i], number);
    if (!fit)
        return;
    which = (uint32_t)(rs_random_next(&r->config.seed) >> 32) % fit;
    for (uint32_t i = 0; i < r->holder_count; i++)
        if (has(&r->holders[i], number) && which-- == 0)
            r->pull = (pulling){.active = true, .peer = r->holders[i].peer, .token = token_of(r), .number = number};
    ask_pieces(r, now);
}

/* ---------------------------------------------------------------------------------------------------- who has what */

static bool is_over(const holder *h) {
    return h->bad || (h->answered && h->settled) || h->tries >= ASK_TRIES;
}

static rs_time due(const rs_replay *r, uint32_t tries, rs_time since) {
    return since + (r->config.again << (tries < BACK_OFF ? tries : BACK_OFF));
}

/* Somebody has still to say what it has. */
static bool is_open(const rs_replay *r) {
    for (uint32_t i = 0; i < r->holder_count; i++)
        if (!is_over(&r->holders[i]))
            return true;
    return false;
}

/* There may be something to get from others. */
static bool is_short(const rs_replay *r) {
    return r->end > 0 && (r->held > 0 || rs_history_missing(r->history, 1, r->end) != 0);
}

bool rs_replay_is_complete(const rs_replay *r) {
    return r->joined && r->settled && !r->pull.active && wanted(r) == 0 && !(is_short(r) && is_open(r));
}

/* Asks, and goes on when all have answered. */
static void look(rs_replay *r, rs_time now) {
    uint32_t asked = 0, open = 0;
    if (!r->joined)
        return;
    if (!r->settled || is_short(r))
        for (uint32_t i = 0; i < r->holder_count; i++) {
            holder *h = &r->holders[i];
            if (is_over(h))
                continue;
            open++;
            if (asked == ASKED_AT_ONCE || (h->tries > 0 && now < due(r, h->tries - 1, h->asked_at)))
                continue;
            h->token = token_of(r);
            leaving *one = begin(r, h->peer, ASK, h->token, ASK_BYTES);
            if (!one)
                break;
            rs_le_put(one->bytes + HEAD, rs_history_last(r->history) < r->end ? rs_history_last(r->history) : r->end,
                      8);
            post(r, one);
            h->tries++;
            h->asked_at = now;
            asked++;
        }
    bool unheard = false;
    for (uint32_t i = 0; i < r->holder_count; i++)
        unheard |= !r->holders[i].answered && !is_over(&r->holders[i]);
    r->settled |= !unheard || !is_short(r);
    pull_begin(r, now);
    r->tick_at = open > 0 ? now + r->config.again / 2 : RS_NEVER;
    if (r->pull.active) {
        rs_time again = due(r, r->pull.tries, r->pull.asked_at);
        r->tick_at = again < r->tick_at ? again : r->tick_at;
    }
}

void rs_replay_view(rs_replay *r, rs_time now, const rs_order_event *view) {
    holder *holders = rs_memory_take(&r->allocator, (view->member_count + 1) * sizeof *holders);
    uint32_t count = 0;
    if (view->anew) {
        rs_history_cut(r->history, view->number); /* these numbers are other messages' now */
        pull_end(r);
        r->joined = view->view;
        r->held = rs_history_last(r->history);
        r->end = view->number;
        r->floor = r->cuts = 0;
        r->settled = false;
    }
    for (uint32_t i = 0; holders && i < view->member_count; i++) {
        const holder *before = view->anew ? NULL : holder_of(r, view->members[i]);
        for (uint32_t j = 0; j < view->joined_count && before; j++)
            before = view->joined[j] == view->members[i] ? NULL : before;
        if (view->members[i] != r->config.self)
            holders[count++] = before ? *before : (holder){.peer = view->members[i]};
    }
    rs_memory_give(&r->allocator, r->holders);
    r->holders = holders;
    r->holder_count = count;
    if (r->pull.active && !holder_of(r, r->pull.peer))
        pull_end(r);
    look(r, now);
}

/* -------------------------------------------------------------------------------------------------------------- in */

static void receive_ask(rs_replay *r, rs_peer from, const uint8_t *bytes) {
    uint64_t number = rs_le_get(bytes + HEAD, 8), last = rs_history_last(r->history);
    leaving *one = begin(r, from, HAVE, (uint32_t)rs_le_get(bytes + 12, 4), HAVE_BYTES);
    if (!one)
        return;
    uint64_t at_number = number < last ? number : last;
    rs_history_record record = {0};
    if (!rs_history_find(r->history, at_number, &record) || record.number != at_number)
        at_number = 0;
    uint8_t *at = rs_le_put(one->bytes + HEAD, r->settled ? rs_history_first(r->history) : 0, 8);
    at = rs_le_put(at, r->settled ? last : 0, 8);
    at = rs_le_put(at, r->joined, 8);
    at = rs_le_put(at, r->held, 8);
    at = rs_le_put(at, at_number, 8);
    at = rs_le_put(at, at_number ? record.view : 0, 8);
    at = rs_le_put(at, at_number ? rs_history_view_first(r->history, at_number) : 0, 8);
    at = rs_le_put(at, at_number ? rs_history_digest(r->history, at_number) : 0, 8);
    rs_le_put(at, r->settled, 4);
    post(r, one);
}

/* What is here differs from what the other has: whose counts? Who was in the group before, or came with more. */
static bool yields_to(const rs_replay *r, rs_peer peer, uint64_t joined, uint64_t held) {
    if (joined != r->joined)
        return joined != 0 && joined < r->joined;
    return held != r->held ? held > r->held : peer < r->config.self;
}

static bool receive_have(rs_replay *r, rs_time now, holder *h, const uint8_t *bytes) {
    const uint8_t *at = bytes + HEAD;
    uint64_t first = rs_le_take(&at, 8), last = rs_le_take(&at, 8), joined = rs_le_take(&at, 8),
             held = rs_le_take(&at, 8);
    uint64_t number = rs_le_take(&at, 8), view = rs_le_take(&at, 8), view_first = rs_le_take(&at, 8);
    uint64_t digest = rs_le_take(&at, 8);
    bool settled = rs_le_take(&at, 4) != 0;
    if (first > last || (first == 0) != (last == 0) || view_first > number || (number > 0 && view_first == 0))
        return false;
    if (h->tries == 0 || (uint32_t)rs_le_get(bytes + 12, 4) != h->token)
        return true; /* of a question before */
    h->answered = true;
    h->settled = settled;
    h->first = first;
    h->last = last;
    uint64_t mine = number ? rs_history_digest(r->history, number) : 0;
    if (mine && mine != digest && number <= r->end && yields_to(r, h->peer, joined, held)) {
        rs_history_record record;
        (void)rs_history_find(r->history, number, &record);
        uint64_t cut = record.view == view ? rs_history_view_first(r->history, number) : view_first;
        rs_history_cut(r->history, ++r->cuts < CUTS_MOST ? cut - 1 : 0);
        for (uint32_t i = 0; i < r->holder_count; i++) {
            r->holders[i].answered = false;
            r->holders[i].tries = 0;
        }
        r->settled = false;
        pull_end(r);
    }
    look(r, now);
    return true;
}

static bool receive_pull(rs_replay *r, rs_peer from, const uint8_t *bytes, size_t length) {
    const uint8_t *at = bytes + HEAD;
    uint64_t number = rs_le_take(&at, 8), ranges = rs_le_take(&at, 4);
    uint32_t token = (uint32_t)rs_le_get(bytes + 12, 4), sent = 0;
    if (ranges == 0 || ranges > RS_REPLAY_RANGES || length != PULL_BYTES + 8 * ranges)
        return false;
    size_t total = 0;
    const uint8_t *records = r->settled ? rs_history_raw(r->history, number, RS_REPLAY_RUN, &total) : NULL;
    if (!records) {
        leaving *one = begin(r, from, PIECE, token, PIECE_BYTES);
        if (one) {
            rs_le_put(one->bytes + HEAD, number, 8);
            post(r, one);
        }
        return true;
    }
    for (uint64_t i = 0; i < ranges; i++) {
        uint64_t offset = rs_le_take(&at, 4), to = rs_le_take(&at, 4);
        if (offset % RS_REPLAY_PIECE || to < offset)
            return false;
        for (to = to < total ? to : total; offset < to && sent < RS_REPLAY_WINDOW; offset += RS_REPLAY_PIECE, sent++) {
            size_t piece = total - offset < RS_REPLAY_PIECE ? total - offset : RS_REPLAY_PIECE;
            leaving *one = begin(r, from, PIECE, token, PIECE_BYTES + (uint32_t)piece);
            if (!one)
                return true;
            uint8_t *put = rs_le_put(one->bytes + HEAD, number, 8);
            put = rs_le_put(put, total, 4);
            put = rs_le_put(put, offset, 4);
            memcpy(put, records + offset, piece);
            post(r, one);
            r->stats.served++;
        }
    }
    return true;
}

/* It did not give what it said it has. */
static void refuse(rs_replay *r) {
    holder *h = holder_of(r, r->pull.peer);
    if (h)
        h->bad = true;
    r->stats.refused++;
    pull_end(r);
}

static void take_records(rs_replay *r, uint64_t wall) {
    const pulling p = r->pull;
    rs_history_record record;
    uint64_t next = p.number;
    for (size_t at = 0, length; at < p.total; at += length, next++) {
        length = rs_history_parse(p.bytes + at, p.total - at, &record);
        if (length == 0 || record.number != next || record.length > r->config.message_bytes) {
            refuse(r);
            return;
        }
        rs_status status = next <= r->end ? rs_history_add(r->history, &record, wall, r->pin) : RS_ERR_STATE;
        if (status == RS_ERR_LIMIT || status == RS_ERR_MEMORY)
            r->floor = next + 1;
        r->stats.pulled += status == RS_OK;
    }
    if (r->hint >= p.number && r->hint < next)
        r->hint = 0;
    pull_end(r);
}

static bool receive_piece(rs_replay *r, rs_time now, uint64_t wall, rs_peer from, const uint8_t *bytes, size_t length) {
    pulling *p = &r->pull;
    const uint8_t *at = bytes + HEAD;
    uint64_t number = rs_le_take(&at, 8);
    uint32_t total = (uint32_t)rs_le_take(&at, 4), offset = (uint32_t)rs_le_take(&at, 4);
    size_t piece = length - PIECE_BYTES;
    if (!p->active || from != p->peer || (uint32_t)rs_le_get(bytes + 12, 4) != p->token || number != p->number)
        return true;
    if (total == 0) { /* it went meanwhile */
        holder *h = holder_of(r, from);
        if (h)
            h->first = number + 1 > h->first ? number + 1 : h->first;
        if (h && h->first > h->last)
            h->first = h->last = 0;
        pull_end(r);
        look(r, now);
        return true;
    }
    uint64_t most = (uint64_t)r->config.message_bytes + RS_HISTORY_HEAD + 255;
    if (total > (most > RS_REPLAY_RUN ? most : RS_REPLAY_RUN) || (p->total && total != p->total) ||
        offset % RS_REPLAY_PIECE || offset >= total ||
        piece != (total - offset < RS_REPLAY_PIECE ? total - offset : RS_REPLAY_PIECE)) {
        refuse(r);
        look(r, now);
        return false;
    }
    if (!p->total) {
        p->bytes = rs_memory_take(&r->allocator, total);
        p->have = rs_memory_take(&r->allocator, pieces_of(total));
        if (!p->bytes || !p->have) {
            pull_end(r);
            return true;
        }
        p->total = total;
        p->last = p->last < pieces_of(total) ? p->last : pieces_of(total) - 1;
    }
    uint32_t which = offset / RS_REPLAY_PIECE;
    if (p->have[which])
        return true;
    p->have[which] = 1;
    p->got++;
    p->tries = 0;
    memcpy(p->bytes + offset, at, piece);
    if (p->got == pieces_of(total)) {
        take_records(r, wall);
        look(r, now);
    } else if (which == p->last) { /* what was before it and is not here was lost */
        ask_pieces(r, now);
    }
    return true;
}

bool rs_replay_receive(rs_replay *r, rs_time now, uint64_t wall, rs_peer from, const uint8_t *bytes, size_t length) {
    bool good = length >= HEAD && rs_le_get(bytes, 2) == RS_REPLAY_MAGIC && bytes[2] == VERSION &&
                rs_le_get(bytes + RS_ORDER_GROUP_AT, 4) == r->config.group &&
                rs_le_get(bytes + CHECK_AT, 4) == check_of(bytes, length);
    holder *h = good ? holder_of(r, from) : NULL;
    if (good && !h)
        return true; /* nothing is said to who is no member */
    if (good && bytes[3] == ASK && length == ASK_BYTES)
        receive_ask(r, from, bytes);
    else if (good && bytes[3] == HAVE && length == HAVE_BYTES)
        good = receive_have(r, now, h, bytes);
    else if (good && bytes[3] == PULL && length > PULL_BYTES)
        good = receive_pull(r, from, bytes, length);
    else if (good && bytes[3] == PIECE && length >= PIECE_BYTES && length <= PIECE_BYTES + RS_REPLAY_PIECE)
        good = receive_piece(r, now, wall, from, bytes, length);
    else
        good = false;
    r->stats.bad += !good;
    return good;
}

/* -------------------------------------------------------------------------------------------------- programs, time */

rs_replay_answer rs_replay_at(rs_replay *r, uint64_t number, uint64_t given, rs_history_record *out) {
    bool found = rs_history_find(r->history, number, out);
    if (found && out->number == number)
        return RS_REPLAY_HERE;
    uint64_t from_others = r->settled ? next_wanted(r, number) : 0;
    if (number <= r->end && number >= r->floor && (!r->settled || from_others == number || is_open(r))) {
        r->hint = number;
        return RS_REPLAY_WAITS;
    }
    uint64_t next = found ? out->number : given + 1;
    next = from_others && from_others < next ? from_others : next;
    *out = (rs_history_record){.number = next < given + 1 ? next : given + 1};
    return RS_REPLAY_GONE;
}

void rs_replay_pin(rs_replay *r, uint64_t number) {
    r->pin = number;
}

uint64_t rs_replay_pinned(const rs_replay *r) {
    return r->pin;
}

void rs_replay_timeout(rs_replay *r, rs_time now) {
    if (now < r->tick_at)
        return;
    if (r->pull.active && now >= due(r, r->pull.tries, r->pull.asked_at)) {
        if (++r->pull.tries > PULL_TRIES)
            refuse(r);
        else
            ask_pieces(r, now);
    }
    look(r, now);
}

rs_time rs_replay_deadline(const rs_replay *r) {
    return r->joined ? r->tick_at : RS_NEVER;
}

void rs_replay_stats_get(const rs_replay *r, rs_replay_stats *out) {
    *out = r->stats;
}

rs_replay *rs_replay_new(const rs_replay_config *config, rs_history *history, const rs_allocator *allocator) {
    rs_replay *r = rs_memory_take(allocator, sizeof *r);
    if (!r)
        return NULL;
    r->config = *config;
    r->config.again = config->again ? config->again : 30000000;
    r->config.message_bytes = config->message_bytes ? config->message_bytes : 1u << 20;
    r->allocator = *allocator;
    r->history = history;
    r->pin = UINT64_MAX;
    r->tick_at = RS_NEVER;
    r->out_end = &r->out;
    return r;
}

void rs_replay_free(rs_replay *r) {
    if (!r)
        return;
    const rs_allocator allocator = r->allocator;
    pull_end(r);
    drop_all(r, &r->sent);
    drop_all(r, &r->out);
    rs_memory_give(&allocator, r->holders);
    rs_memory_give(&allocator, r);
}
