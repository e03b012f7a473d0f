/* Seeded runs of a group's guarantees: a small network, a membership, and what is compared (guarantees.h). */
#include "messages/guarantees.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/heap.h"
#include "core/base/random.h"
#include "core/base/wire.h"
#include "core/groups/engine.h"
#include "core/groups/messages.h"
#include "core/order/order.h"

#define NODES_MOST 9u
#define GROUP 7u
#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
#define LIVES_MOST 64u /* of all nodes together: each begins with new state */
#define SEGMENTS_MOST 4096u
#define QUIET (6 * SECOND) /* at the end nothing fails any more */
#define STAMP 12u          /* bytes in front of each message: whose, in which life, the how many-th */

typedef enum { DATAGRAM, VIEW, CRASH, BEGIN, PAUSE, PART, HEAL, AWAY, BACK, PUBLISH } what;

typedef struct {
    int64_t at;
    uint64_t turn;
    what kind;
    uint32_t from, to, length;
    uint64_t version;
    uint8_t *bytes;
} event;

/* What one life of a node was given in one view. */
typedef struct {
    uint32_t life;
    uint64_t view, next, base; /* `next`: the view it went on to; 0: none */
    uint32_t member_count;
    rs_peer members[NODES_MOST];
    uint64_t *messages; /* sender, life, count: in one number */
    uint32_t count, room;
} segment;

typedef struct {
    rs_messages *engine;
    rs_order *order;
    uint32_t life, side; /* of a partition */
    bool alive, member;  /* the membership has it in */
    uint64_t told;       /* version of the newest view that is on its way to it, or there */
    uint64_t published, accepted;
    int64_t paused_until, silent_since;
    segment *now; /* what it is being given */
    uint64_t next_from[LIVES_MOST];
} node;

typedef struct {
    sim_guarantees_result *out;
    uint64_t random, turn, version;
    int64_t now, end, told_at;
    uint32_t count, lives, window;
    node nodes[NODES_MOST];
    event *heap;
    uint32_t heap_count, heap_room;
    segment *segments[SEGMENTS_MOST];
    uint32_t segment_count;
    bool total, agreed, away, dirty, failed;
    double loss, doubled;
    const char *protocol;
    uint32_t in[NODES_MOST], in_count; /* the newest view */
} run;

static uint64_t below(run *r, uint64_t bound) {
    return bound ? (rs_random_next(&r->random) >> 32) * bound >> 32 : 0;
}

static bool chance(run *r, double part) {
    return rs_random_part(rs_random_next(&r->random)) < part;
}

__attribute__((format(printf, 2, 3))) static void disagree(run *r, const char *format, ...) {
    va_list arguments;
    if (r->out->disagreements++ > 0)
        return;
    va_start(arguments, format);
    vsnprintf(r->out->text, sizeof r->out->text, format, arguments);
    va_end(arguments);
}

/* -------------------------------------------------------------------------------------------------------- events */

static bool before(const event *a, const event *b) {
    return a->at != b->at ? a->at < b->at : a->turn < b->turn;
}

static void post(run *r, event e) {
    if (r->heap_count == r->heap_room) {
        r->heap_room = r->heap_room ? 2 * r->heap_room : 256;
        event *larger = realloc(r->heap, r->heap_room * sizeof *larger);
        if (!larger) {
            r->failed = true;
            free(e.bytes);
            return;
        }
        r->heap = larger;
    }
    e.turn = r->turn++;
    uint32_t at = r->heap_count++;
    for (; at > 0 && before(&e, &r->heap[(at - 1) / 2]); at = (at - 1) / 2)
        r->heap[at] = r->heap[(at - 1) / 2];
    r->heap[at] = e;
}

static event next_event(run *r) {
    event first = r->heap[0], last = r->heap[--r->heap_count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < r->heap_count; child = 2 * at + 1) {
        if (child + 1 < r->heap_count && before(&r->heap[child + 1], &r->heap[child]))
            child++;
        if (!before(&r->heap[child], &last))
            break;
        r->heap[at] = r->heap[child];
        at = child;
    }
    r->heap[at] = last;
    return first;
}

static void datagram(run *r, uint32_t from, uint32_t to, const uint8_t *head, uint32_t head_length, const uint8_t *rest,
                     uint32_t rest_length) {
    const node *n = &r->nodes[to];
    if (to >= r->count || !n->alive || n->side != r->nodes[from].side)
        return;
    uint32_t copies = chance(r, r->loss) ? 0 : chance(r, r->doubled) ? 2 : 1;
    r->out->lost += copies == 0;
    for (uint32_t i = 0; i < copies; i++) {
        uint8_t *bytes = malloc(head_length + rest_length + 1u);
        if (!bytes) {
            r->failed = true;
            return;
        }
        memcpy(bytes, head, head_length);
        if (rest_length)
            memcpy(bytes + head_length, rest, rest_length);
        int64_t delay = 50000 + (int64_t)below(r, 400000) + (chance(r, 0.01) ? (int64_t)below(r, 30 * MS) : 0);
        post(r, (event){r->now + delay, 0, DATAGRAM, from, to, head_length + rest_length, n->life, bytes});
    }
}

/* ------------------------------------------------------------------------------------------------- what is given */

static segment *segment_new(run *r, const node *n, const rs_order_event *e) {
    segment *s = r->segment_count < SEGMENTS_MOST ? calloc(1, sizeof *s) : NULL;
    if (!s) {
        r->failed = true;
        return NULL;
    }
    r->segments[r->segment_count++] = s;
    s->life = n->life;
    s->view = e->view;
    s->base = e->number;
    s->member_count = e->member_count;
    memcpy(s->members, e->members, e->member_count * sizeof(rs_peer));
    return s;
}

static void given_message(run *r, node *n, const rs_order_event *e) {
    segment *s = n->now;
    r->out->deliveries++;
    if (!s || e->view != s->view || e->length < STAMP) {
        disagree(r, "a message of view %llx outside of it", (unsigned long long)e->view);
        return;
    }
    uint32_t life = (uint32_t)rs_le_get(e->bytes, 4);
    uint64_t number = rs_le_get(e->bytes + 4, 8);
    if (r->total && e->number != s->base + s->count + 1)
        disagree(r, "message %llu has number %llu", (unsigned long long)(s->base + s->count + 1),
                 (unsigned long long)e->number);
    if (life >= LIVES_MOST || (n->next_from[life] && number != n->next_from[life])) {
        disagree(r, "of life %u message %llu came, %llu was next", life, (unsigned long long)number,
                 (unsigned long long)(life < LIVES_MOST ? n->next_from[life] : 0));
        return;
    }
    n->next_from[life] = number + 1;
    if (s->count == s->room) {
        uint32_t room = s->room ? 2 * s->room : 32;
        uint64_t *larger = realloc(s->messages, room * sizeof *larger);
        if (!larger) {
            r->failed = true;
            return;
        }
        s->messages = larger;
        s->room = room;
    }
    s->messages[s->count++] = (uint64_t)life << 48 | number;
}

static void given_view(run *r, node *n, const rs_order_event *e) {
    segment *next = segment_new(r, n, e);
    if (!next)
        return;
    r->out->views++;
    if (r->told_at && r->now - r->told_at > r->out->view_ns_worst)
        r->out->view_ns_worst = r->now - r->told_at;
    if (n->now && !e->anew)
        n->now->next = e->view;
    if (n->now && e->view <= n->now->view)
        disagree(r, "view %llx came after %llx", (unsigned long long)e->view, (unsigned long long)n->now->view);
    if (!n->now && !e->anew)
        disagree(r, "life %u begins with a view that it did not join with", n->life);
    /* who joins begins with any message of a sender, and so does everybody with a sender that joined */
    if (e->anew)
        memset(n->next_from, 0, sizeof n->next_from);
    n->now = next;
}

/* --------------------------------------------------------------------------------------------------------- nodes */

static void flow(run *r, uint32_t which) {
    node *n = &r->nodes[which];
    rs_messages_event in;
    rs_messages_out packet;
    rs_order_event e;
    rs_order_out out;
    for (bool more = true; more;) {
        more = false;
        while (rs_messages_poll_event(n->engine, &in)) {
            if (in.kind == RS_MESSAGES_DELIVER)
                (void)rs_order_receive(n->order, r->now, in.sender, in.bytes, in.length);
            more = true;
        }
        while (rs_order_poll_event(n->order, r->now, &e)) {
            if (e.kind == RS_ORDER_MESSAGE)
                given_message(r, n, &e);
            else if (e.kind == RS_ORDER_VIEW)
                given_view(r, n, &e);
        }
        while (rs_order_poll_out(n->order, r->now, &out)) {
            more = true;
            if (out.peer == RS_NO_PEER)
                (void)rs_messages_publish(n->engine, r->now, GROUP, out.bytes, out.length, NULL);
            else
                datagram(r, which, out.peer, out.bytes, out.length, NULL, 0);
        }
        while (rs_messages_poll_tx(n->engine, r->now, &packet)) {
            const uint8_t *rest = packet.piece_count > 1 ? packet.piece[1].bytes : NULL;
            uint32_t length = packet.piece_count > 1 ? packet.piece[1].length : 0;
            if (packet.channel == RS_CH_GROUP) {
                for (uint32_t i = 0; i < r->count; i++)
                    if (i != which)
                        datagram(r, which, i, packet.piece[0].bytes, packet.piece[0].length, rest, length);
            } else {
                datagram(r, which, packet.peer, packet.piece[0].bytes, packet.piece[0].length, rest, length);
            }
        }
    }
}

static void leave_memory(node *n) {
    rs_messages_free(n->engine);
    rs_order_free(n->order);
    n->engine = NULL;
    n->order = NULL;
}

/* Another life: nothing of the one before is known. */
static bool begin(run *r, uint32_t which) {
    node *n = &r->nodes[which];
    leave_memory(n);
    if (r->lives == LIVES_MOST)
        return false;
    n->life = r->lives++;
    n->published = n->told = 0;
    n->now = NULL;
    n->alive = true;
    n->paused_until = 0;
    memset(n->next_from, 0, sizeof n->next_from);
    const rs_messages_config engine = {.self = which,
                                       .incarnation = n->life + 1,
                                       .seed = rs_random_next(&r->random),
                                       .receive_bytes = 1 << 18,
                                       .send_bytes = 1 << 18,
                                       .assembly_bytes = 1 << 18,
                                       .message_bytes = 1 << 16,
                                       .deliveries = 1024,
                                       .max_groups = 4,
                                       .max_streams = 64,
                                       .max_missing = 1024,
                                       .window_packets = 1024,
                                       .rx_queue_packets = 16};
    const rs_order_config order = {.group = GROUP,
                                   .self = which,
                                   .instance = n->life + 1,
                                   .total = r->total,
                                   .agreed = r->agreed,
                                   .message_bytes = 1 << 15,
                                   .window_messages = r->window};
    n->engine = rs_messages_new(&engine, &rs_heap);
    n->order = rs_order_new(&order, &rs_heap);
    return n->engine && n->order;
}

/* The membership tells a node of the newest view. */
static void take_view(run *r, uint32_t which, uint64_t version) {
    node *n = &r->nodes[which];
    rs_peer peers[NODES_MOST];
    uint32_t incarnations[NODES_MOST];
    if (version != r->version)
        return; /* a newer one is on its way */
    for (uint32_t i = 0; i < r->in_count; i++) {
        peers[i] = r->in[i];
        incarnations[i] = r->nodes[r->in[i]].life + 1;
    }
    const rs_messages_view view = {.group = GROUP,
                                   .version = version,
                                   .channel = 1,
                                   .members = peers,
                                   .member_count = r->in_count,
                                   .incarnations = incarnations,
                                   .order = version % 2 ? RS_ORDER_FIFO : RS_ORDER_NONE,
                                   .protocol = r->protocol};
    if (rs_messages_set_view(n->engine, r->now, &view) == RS_OK &&
        rs_order_view(n->order, r->now, version, peers, r->in_count) == RS_OK)
        flow(r, which);
}

/* ---------------------------------------------------------------------------------------------------- membership */

static bool reaches(const run *r, const node *n) {
    return n->alive && n->side == 0 && !r->away;
}

/* Who it hears of is in, who was silent for a lease is out: a new version, told with some delay. */
static void look_at_members(run *r, int64_t lease) {
    if (r->away)
        return;
    bool changed = r->dirty;
    for (uint32_t i = 0; i < r->count; i++) {
        node *n = &r->nodes[i];
        bool heard = reaches(r, n) && n->paused_until <= r->now;
        if (heard)
            n->silent_since = r->now;
        if (n->member && r->now - n->silent_since > lease) {
            n->member = false;
            changed = true;
        } else if (!n->member && heard) {
            if (n->now || n->told) /* it was put out meanwhile: it begins anew */
                r->failed |= !begin(r, i) && r->lives < LIVES_MOST;
            if (r->lives == LIVES_MOST)
                continue;
            n->member = true;
            changed = true;
        }
    }
    if (changed) {
        r->version++;
        r->told_at = r->now;
        r->in_count = 0;
        for (uint32_t i = 0; i < r->count; i++)
            if (r->nodes[i].member)
                r->in[r->in_count++] = i;
    }
    r->dirty = false;
    for (uint32_t i = 0; i < r->count; i++) {
        node *n = &r->nodes[i];
        if (n->member && reaches(r, n) && n->told != r->version && r->version) {
            n->told = r->version;
            post(r, (event){r->now + (int64_t)below(r, 40) * MS, 0, VIEW, 0, i, 0, r->version, NULL});
        }
    }
}

static void publish(run *r, uint32_t which) {
    node *n = &r->nodes[which];
    uint8_t bytes[6000];
    uint32_t length = STAMP + (uint32_t)below(r, chance(r, 0.05) ? 5000 : 200);
    memset(bytes, (int)which, length);
    uint8_t *at = rs_le_put(bytes, n->life, 4);
    rs_le_put(at, n->published + 1, 8);
    if (rs_order_publish(n->order, r->now, bytes, length) == RS_OK) {
        n->published++;
        r->out->published++;
        flow(r, which);
    }
}

static void fail(run *r, const event *e) {
    node *n = &r->nodes[e->to];
    switch (e->kind) {
    case CRASH:
        if (n->alive) {
            r->out->crashes++;
            n->alive = false;
            n->now = NULL;
            leave_memory(n);
        }
        break;
    case BEGIN:
        if (!n->alive && r->lives < LIVES_MOST) {
            r->failed |= !begin(r, e->to);
            n->member = false; /* by another boot id */
            r->dirty = true;
        }
        break;
    case PAUSE:
        if (n->alive) {
            r->out->pauses++;
            n->paused_until = r->now + (int64_t)below(r, 1500) * MS;
        }
        break;
    case PART:
        r->out->partitions++;
        for (uint32_t i = 0; i < r->count; i++)
            r->nodes[i].side = (uint32_t)below(r, 2);
        break;
    case HEAL:
        for (uint32_t i = 0; i < r->count; i++)
            r->nodes[i].side = 0;
        break;
    case AWAY:
        r->out->absences++;
        r->away = true;
        break;
    default: /* BACK: who was silent meanwhile has a lease to say something */
        r->away = false;
        for (uint32_t i = 0; i < r->count; i++)
            r->nodes[i].silent_since = r->now;
        break;
    }
}

/* ------------------------------------------------------------------------------------------------------- compared */

static bool is_prefix(const segment *a, const segment *b) {
    return a->count <= b->count &&
           (a->count == 0 || memcmp(a->messages, b->messages, a->count * sizeof(uint64_t)) == 0);
}

/* Of one sender. */
static uint32_t pick(const segment *s, uint32_t life, uint64_t *out) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->messages[i] >> 48 == life)
            out[count++] = s->messages[i];
    return count;
}

static void compare_senders(run *r, const segment *a, const segment *b) {
    uint64_t *x = malloc(((size_t)a->count + b->count + 1) * sizeof *x);
    if (!x) {
        r->failed = true;
        return;
    }
    uint64_t *y = x + a->count;
    for (uint32_t life = 0; life < r->lives; life++) {
        uint32_t m = pick(a, life, x), n = pick(b, life, y), both = m < n ? m : n;
        if (memcmp(x, y, both * sizeof *x) != 0)
            disagree(r, "in view %llx lives %u and %u have other messages of %u", (unsigned long long)a->view, a->life,
                     b->life, life);
        if (a->next && a->next == b->next && m != n)
            disagree(r, "from view %llx lives %u and %u went on with %u and %u messages of %u",
                     (unsigned long long)a->view, a->life, b->life, m, n, life);
    }
    free(x);
}

/* Whose it is went on to another view, or is in that one at the end. */
static bool goes_on(const run *r, const segment *s) {
    bool is_last = false;
    for (uint32_t i = 0; i < r->count; i++)
        is_last |= r->nodes[i].alive && r->nodes[i].member && r->nodes[i].now == s;
    return s->next || is_last;
}

static void compare(run *r, const segment *a, const segment *b) {
    r->out->checks++;
    if (a->member_count != b->member_count || memcmp(a->members, b->members, a->member_count * sizeof(rs_peer)) != 0)
        disagree(r, "view %llx has other members at lives %u and %u", (unsigned long long)a->view, a->life, b->life);
    if (a->base != b->base)
        disagree(r, "view %llx begins at other numbers at lives %u and %u", (unsigned long long)a->view, a->life,
                 b->life);
    if (a->next && b->next && a->next != b->next)
        disagree(r, "lives %u and %u went on from view %llx to %llx and %llx", a->life, b->life,
                 (unsigned long long)a->view, (unsigned long long)a->next, (unsigned long long)b->next);
    if (!r->total) {
        compare_senders(r, a, b);
        return;
    }
    /* Also who crashed, or was cut off, has nothing that those who went on have not; in agreed delivery it may. */
    if (r->agreed && !(goes_on(r, a) && goes_on(r, b)))
        return;
    if (!is_prefix(a, b) && !is_prefix(b, a))
        disagree(r, "in view %llx lives %u and %u have another order", (unsigned long long)a->view, a->life, b->life);
    if ((a->next && a->count < b->count) || (b->next && b->count < a->count))
        disagree(r, "view %llx ended with %u and %u messages at lives %u and %u", (unsigned long long)a->view, a->count,
                 b->count, a->life, b->life);
}

static void judge(run *r) {
    for (uint32_t i = 0; i < r->segment_count; i++)
        for (uint32_t j = i + 1; j < r->segment_count; j++)
            if (r->segments[i]->view == r->segments[j]->view)
                compare(r, r->segments[i], r->segments[j]);
    const segment *last = NULL;
    for (uint32_t i = 0; i < r->count; i++) {
        const node *n = &r->nodes[i];
        if (!n->alive || !n->member)
            continue;
        rs_order_stats stats;
        rs_order_stats_get(n->order, &stats);
        bool stuck = !n->now || n->now->member_count != r->in_count || stats.kept_bytes > 0 ||
                     (last && (last->view != n->now->view || last->count != n->now->count)) ||
                     (n->published && n->next_from[n->life] && n->next_from[n->life] != n->published + 1);
        r->out->stuck += stuck;
        if (stuck && !r->out->text[0])
            snprintf(r->out->text, sizeof r->out->text,
                     "life %u of member %u is stuck: view %llx of version %llu, %u messages, %llu bytes kept, "
                     "published %llu, next %llu",
                     n->life, i, n->now ? (unsigned long long)n->now->view : 0, (unsigned long long)r->version,
                     n->now ? n->now->count : 0, (unsigned long long)stats.kept_bytes, (unsigned long long)n->published,
                     (unsigned long long)n->next_from[n->life]);
        r->out->flushes += stats.flushes;
        r->out->relayed += stats.relayed;
        r->out->asked += stats.naks_sent;
        last = last ? last : n->now;
    }
}

/* ---------------------------------------------------------------------------------------------------------- a run */

static void plan(run *r, bool calm) {
    int64_t busy = (int64_t)(500 + below(r, 3000)) * MS;
    r->end = busy + QUIET;
    for (uint32_t i = 0, many = 20 + (uint32_t)below(r, 150); i < many; i++)
        post(r, (event){(int64_t)below(r, (uint64_t)busy / 1000) * 1000, 0, PUBLISH, 0, (uint32_t)below(r, r->count), 0,
                        0, NULL});
    for (uint32_t i = 0, many = 1 + (uint32_t)below(r, 5); i < many && !calm; i++) {
        int64_t at = (int64_t)below(r, (uint64_t)busy / 1000) * 1000;
        uint32_t whom = (uint32_t)below(r, r->count);
        static const what kinds[] = {CRASH, CRASH, PAUSE, PART, AWAY};
        what kind = kinds[below(r, 5)];
        post(r, (event){at, 0, kind, 0, whom, 0, 0, NULL});
        if (kind == CRASH && chance(r, 0.7))
            post(r, (event){at + (int64_t)below(r, 2000) * MS, 0, BEGIN, 0, whom, 0, 0, NULL});
        if (kind == PART)
            post(r, (event){at + (int64_t)below(r, 1500) * MS, 0, HEAL, 0, 0, 0, 0, NULL});
        if (kind == AWAY)
            post(r, (event){at + (int64_t)below(r, 1000) * MS, 0, BACK, 0, 0, 0, 0, NULL});
    }
    post(r, (event){busy, 0, HEAL, 0, 0, 0, 0, NULL});
    post(r, (event){busy, 0, BACK, 0, 0, 0, 0, NULL});
}

static void take_event(run *r, const event *e) {
    node *n = &r->nodes[e->to];
    if (e->kind == DATAGRAM || e->kind == VIEW || e->kind == PUBLISH) {
        bool same_life = e->kind != DATAGRAM || e->version == n->life;
        if (!n->alive || !same_life) {
            free(e->bytes);
            return;
        }
        if (n->paused_until > r->now) { /* it waits in its socket */
            event later = *e;
            later.at = n->paused_until;
            post(r, later);
            return;
        }
    }
    if (e->kind == PUBLISH) {
        publish(r, e->to);
    } else if (e->kind == VIEW) {
        take_view(r, e->to, e->version);
    } else if (e->kind == DATAGRAM) {
        if (rs_le_get(e->bytes, 2) == RS_MESSAGES_MAGIC)
            (void)rs_messages_receive(n->engine, r->now, e->from, e->bytes, e->length);
        else
            (void)rs_order_receive(n->order, r->now, e->from, e->bytes, e->length);
        flow(r, e->to);
        free(e->bytes);
    } else {
        fail(r, e);
    }
}

static int64_t deadline_of(const run *r, const node *n) {
    if (!n->alive || !n->engine)
        return RS_NEVER;
    int64_t engine = rs_messages_deadline(n->engine), order = rs_order_deadline(n->order);
    int64_t due = engine < order ? engine : order;
    due = due > r->now ? due : r->now;
    return due > n->paused_until ? due : n->paused_until;
}

static void go(run *r, int64_t lease) {
    int64_t look_at = 0;
    while (!r->failed) {
        int64_t at = look_at;
        uint32_t who = UINT32_MAX;
        for (uint32_t i = 0; i < r->count; i++) {
            int64_t due = deadline_of(r, &r->nodes[i]);
            if (due < at) {
                at = due;
                who = i;
            }
        }
        if (r->heap_count > 0 && r->heap[0].at <= at) {
            event e = next_event(r);
            r->now = e.at > r->now ? e.at : r->now;
            if (r->now > r->end) {
                free(e.bytes);
                return;
            }
            take_event(r, &e);
            continue;
        }
        r->now = at > r->now ? at : r->now;
        if (r->now > r->end)
            return;
        if (who == UINT32_MAX) {
            look_at_members(r, lease);
            look_at = r->now + 20 * MS;
        } else {
            rs_messages_timeout(r->nodes[who].engine, r->now);
            rs_order_timeout(r->nodes[who].order, r->now);
            flow(r, who);
        }
    }
}

bool sim_guarantees_run(const sim_guarantees_params *params, sim_guarantees_result *out) {
    run *r = calloc(1, sizeof *r);
    memset(out, 0, sizeof *out);
    if (!r)
        return false;
    r->out = out;
    r->random = params->seed;
    r->count = 2 + (uint32_t)below(r, NODES_MOST - 2);
    r->total = chance(r, 0.6);
    r->window = 8 + (uint32_t)below(r, 64);
    r->protocol = chance(r, 0.5) ? "plain" : "ricochet";
    r->loss = params->calm ? 0 : chance(r, 0.3) ? 0 : rs_random_part(rs_random_next(&r->random)) * 0.1;
    r->doubled = params->calm ? 0 : 0.01;
    r->count = params->members && params->members <= NODES_MOST ? params->members : r->count;
    r->total = params->order ? params->order >= 2 : r->total;
    r->agreed = params->order ? params->order == 3 : r->total && params->seed % 2 == 0;
    r->protocol = params->protocol ? params->protocol : r->protocol;
    int64_t lease = (int64_t)(200 + below(r, 800)) * MS;
    for (uint32_t i = 0; i < r->count; i++)
        r->failed |= !begin(r, i);
    plan(r, params->calm);
    go(r, lease);
    if (!r->failed)
        judge(r);
    out->members = r->count;
    out->total = r->total;
    out->agreed = r->agreed;
    for (uint32_t i = 0; i < r->count; i++)
        leave_memory(&r->nodes[i]);
    for (uint32_t i = 0; i < r->segment_count; i++) {
        free(r->segments[i]->messages);
        free(r->segments[i]);
    }
    for (uint32_t i = 0; i < r->heap_count; i++)
        free(r->heap[i].bytes);
    free(r->heap);
    bool good = !r->failed;
    free(r);
    return good;
}
