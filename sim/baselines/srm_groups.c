/* SRM (Floyd et al., 1997) in many groups of many publishers, for comparisons with Ricochet. Whoever misses a packet
 * asks the group for it, whoever has it answers the group, after random waits that suppress duplicates.
 *
 * Session messages (Sec. III-A) tell a group, from each member now and then, how far it heard each publisher, so that a
 * loss shows although its publisher is silent, and carry others' timestamps back, so that each pair knows its distance.
 * They take a share of the group's own traffic (the paper: 5 %). Publishers that were heard since the member's message
 * before last are named, others by turns. A publisher that is no member says none: its distance is taken for the mean
 * of the others'. One pair of laws (srm_law.h) holds for all groups of a node, so that waits adapt also where each
 * group loses seldom. */
#include "baselines/srm_groups.h"

#include <string.h>

#include "baselines/srm_law.h"
#include "core/groups/arrive.h"
#include "core/groups/members.h"
#include "core/groups/outbox.h"
#include "core/groups/streams.h"
#include "core/groups/views.h"

#define MS INT64_C(1000000)
#define S (1000 * MS)
#define MILLI 1000u
#define ROUNDS 4096u    /* packets that are asked for, or were repaired just now */
#define BUCKETS 1024u   /* a power of two */
#define NAMED 16u       /* members whose timestamps a session message carries back, by turns */
#define TOLD_TIMES 2u   /* session messages of a member that name a publisher's newest packet */
#define OLD 4u          /* publishers without news that it names, by turns */
#define SESSION_FIRST S /* before the group's rate is known */
#define SESSION_LEAST (10 * MS)
#define SESSION_MOST (60 * S)
#define DISTANCE_UNKNOWN (MS / 10) /* of all, until session messages tell */
#define GIVE_UP (60 * S)
#define DATAGRAM_OVERHEAD 66u /* bytes of Ethernet, IP and UDP in front of a message, and the gap behind it */

enum { KIND_SESSION = RS_GROUP_KIND_OWN, KIND_REQUEST, KIND_REPAIR };
typedef enum { TIMER_SESSION, TIMER_REQUEST, TIMER_REPAIR } timer_kind;

/* Both ends are in one process: structs go as they are. */
typedef struct {
    uint8_t kind[4];
    uint32_t from, group;
    uint32_t check; /* at RS_GM_CHECK_AT */
} head;

/* Behind it: `sources`, then `echoes`. */
typedef struct {
    head head;
    rs_time sent_at;
    uint32_t source_count, echo_count;
} session;

/* A publisher's newest packet that its sender heard of. */
typedef struct {
    uint32_t sender, incarnation;
    uint64_t sn;
} source;

/* The last session message of `peer` was sent at `sent_at` by its clock, and heard so long before this one. */
typedef struct {
    rs_time sent_at, held;
    uint64_t peer;
} echo;

typedef struct {
    head head;
    source packet;
} request;

/* Of another node. */
typedef struct {
    rs_time sent_at, heard_at; /* of its last session message */
    double distance;           /* ns, smoothed; 0: not known */
} peer;

/* A packet that is missing here, beside its rs_gm_missing. */
typedef struct {
    rs_timer timer;
    rs_time ignore_until; /* requests of others belong to the round that was backed off for */
    double delay;         /* until the first request, distances */
    uint32_t backoff, requests;
} wanted;

/* A packet that is here, and that others miss or missed. */
typedef struct {
    rs_timer timer; /* its repair is due; or its round ends, and it may be asked for again */
    uint32_t stream, next;
    uint64_t sn;
    rs_time asked_at; /* 0: it was repaired before anybody asked here */
    double distance;  /* of who asked, or of the publisher */
    uint32_t repairs;
    head head; /* of the repair that was given out */
} repair_round;

/* Of a group. */
typedef struct {
    rs_timer timer; /* of this member's session messages */
    rs_gm_group *group;
    rs_time since;          /* The last look at how much is published was then, */
    uint64_t passed;        /* when so many packets of all had been. */
    double rate;            /* bytes/s, smoothed; 0: nothing was published yet */
    uint32_t length;        /* of a data packet on the wire */
    uint32_t session_bytes; /* of this member's last session message on the wire */
    uint32_t turn;          /* of members whose timestamps are carried back */
    uint32_t old_turn;      /* of publishers without news */
} srm_group;

/* What was told of a stream, by its number. */
typedef struct {
    uint64_t sn;
    uint32_t times;
} told;

typedef struct {
    rs_messages *node;
    rs_timers timers;
    bool laws_set;
    srm_law request, repair;
    wanted *wanted; /* by place in node->missing */
    repair_round *rounds;
    uint32_t free, buckets[BUCKETS]; /* numbers of rounds + 1 */
    peer *peers;                     /* by number */
    told *told;
    uint32_t peer_count, told_count, group_count;
    double distances;         /* the sum of those known, */
    uint32_t distances_known; /* and how many these are */
    uint32_t due[ROUNDS];     /* ring of rounds whose repair is to be sent */
    uint32_t due_head, due_tail;
    srm_group *prepared;
    struct {
        uint64_t sessions, requests, repairs, heard, duplicates;
    } count;
} srm;

enum { OPTION_SESSION, OPTION_ADAPT, OPTION_C1, OPTION_C2, OPTION_D1, OPTION_D2 };
static const rs_group_option OPTIONS[] = {
    [OPTION_SESSION] = {"session", 0, 10 * MILLI, 50, true,
                        "share of the group's data that session messages have; 0: none is sent",
                        false}, /* Sec. III-A */
    [OPTION_ADAPT] = {"adapt", 0, MILLI, MILLI, false, "1: timers adapt (Sec. VII)", false},
    [OPTION_C1] = {"c1", 0, 100 * MILLI, 2 * MILLI, true, "requests wait C1 distances at least",
                   false}, /* Sec. VII-A's start */
    [OPTION_C2] = {"c2", 0, 100 * MILLI, 2 * MILLI, true, "and C2 more at random", false},
    [OPTION_D1] = {"d1", 0, 100 * MILLI, MILLI, true, "repairs wait D1 distances at least",
                   false}, /* log10 of ten members */
    [OPTION_D2] = {"d2", 0, 100 * MILLI, MILLI, true, "and D2 more at random", false},
};
static const uint8_t KINDS[] = {KIND_SESSION, KIND_REQUEST, KIND_REPAIR};

static double option(const rs_gm_group *group, uint32_t which) {
    return group->option[which] / (double)MILLI;
}

static bool adapts(const rs_gm_group *group) {
    return group->option[OPTION_ADAPT] > 0;
}

static double chance(srm *s) {
    return (double)(rs_gm_random(s->node) >> 11) / (double)(UINT64_C(1) << 53);
}

/* ------------------------------------------------------------------------------------------------------- a node */

static void stop(void *own) {
    srm *s = own;
    const rs_allocator *a = &s->node->allocator;
    rs_timers_free(&s->timers, a);
    void *all[] = {s->wanted, s->rounds, s->peers, s->told, s};
    rs_allocator copy = *a;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        rs_memory_give(&copy, all[i]);
}

static rs_status start(rs_messages *node, void **out) {
    srm *s = rs_memory_take(&node->allocator, sizeof *s);
    if (!s)
        return RS_ERR_MEMORY;
    s->node = node;
    s->wanted = rs_memory_take(&node->allocator, node->config.max_missing * sizeof *s->wanted);
    s->rounds = rs_memory_take(&node->allocator, ROUNDS * sizeof *s->rounds);
    uint32_t timers = node->config.max_missing + ROUNDS + node->config.max_groups;
    if (!s->wanted || !s->rounds || rs_timers_reserve(&s->timers, &node->allocator, timers) != RS_OK) {
        stop(s);
        return RS_ERR_MEMORY;
    }
    for (uint32_t i = 0; i < ROUNDS; i++)
        s->rounds[i].next = i + 1 < ROUNDS ? i + 2 : 0;
    s->free = 1;
    *out = s;
    return RS_OK;
}

/* So that `*array` has a place `at`. */
static void *grown(srm *s, void *array, uint32_t *count, uint32_t at, size_t each) {
    if (at < *count)
        return array;
    uint32_t more = at + at / 2 + 64;
    void *larger = rs_memory_take(&s->node->allocator, more * each);
    if (!larger)
        return array;
    if (*count)
        memcpy(larger, array, *count * each);
    rs_memory_give(&s->node->allocator, array);
    *count = more;
    return larger;
}

/* NULL: no memory. */
static peer *peer_of(srm *s, uint32_t number) {
    s->peers = grown(s, s->peers, &s->peer_count, number, sizeof *s->peers);
    return number < s->peer_count ? &s->peers[number] : NULL;
}

static double distance(const srm *s, uint32_t number) {
    if (number < s->peer_count && s->peers[number].distance > 0)
        return s->peers[number].distance;
    return s->distances_known ? s->distances / s->distances_known : DISTANCE_UNKNOWN;
}

/* -------------------------------------------------------------------------------------------------------- views */

static rs_group_policy policy(const rs_messages *node, const rs_gm_group *next) {
    (void)node;
    (void)next;
    return (rs_group_policy){.recovers = true, .silent = true, .give_up = GIVE_UP};
}

static bool is_ours(const rs_gm_group *next) {
    return next->engine == &rs_group_engine_srm && next->member && next->member_count > 1;
}

static rs_status prepare(void *own, const rs_gm_group *group, const rs_gm_group *next) {
    srm *s = own;
    if (!is_ours(next) || (group->own && group->engine == &rs_group_engine_srm))
        return RS_OK;
    s->prepared = rs_memory_take(&s->node->allocator, sizeof *s->prepared);
    return s->prepared ? RS_OK : RS_ERR_MEMORY;
}

static void change(void *own, rs_gm_group *group, const rs_gm_group *next) {
    srm *s = own;
    srm_group *mine = group->own;
    if (!is_ours(next)) {
        if (mine) {
            rs_timer_set(&s->timers, &mine->timer, RS_NEVER);
            rs_memory_give(&s->node->allocator, mine);
        }
        group->own = NULL;
        return;
    }
    if (!mine) {
        mine = s->prepared;
        s->prepared = NULL;
        mine->timer = (rs_timer){.kind = TIMER_SESSION, .owner = mine};
        group->own = mine;
        if (next->option[OPTION_SESSION])
            rs_timer_set(&s->timers, &mine->timer, (rs_time)(chance(s) * (double)SESSION_FIRST));
    }
    mine->group = group;
    if (!s->laws_set) {
        s->request = srm_law_new(option(next, OPTION_C1), option(next, OPTION_C2), SRM_START_MOST, next->member_count);
        s->repair =
            srm_law_new(option(next, OPTION_D1), option(next, OPTION_D2), option(next, OPTION_D1), next->member_count);
        s->laws_set = true;
    }
}

static uint32_t before_body(const rs_gm_group *group) {
    (void)group;
    return sizeof(head) + RS_GM_HEADER;
}

/* ------------------------------------------------------------------------------------------------------ sending */

static head head_of(const srm *s, uint8_t kind, const rs_gm_group *group) {
    head h = {.from = s->node->config.self, .group = group->id};
    rs_gm_put_kind(h.kind, kind);
    return h;
}

static void put_source(uint8_t *out, uint32_t *count, const rs_gm_stream *stream) {
    source one = {stream->sender, stream->incarnation, stream->high};
    memcpy(out + (*count)++ * sizeof one, &one, sizeof one);
}

/* Those of which there is news, as many as fit, then some others by turns: who missed the news hears it later. */
static uint32_t put_sources(srm *s, srm_group *mine, uint8_t *out, uint32_t most) {
    const rs_list *streams = &mine->group->streams;
    uint32_t count = 0, number = 0, old = 0, from = mine->old_turn;
    for (const rs_list *at = streams->next; at != streams && count < most; at = at->next) {
        const rs_gm_stream *stream = RS_HOLDER(rs_gm_stream, in_group, at);
        s->told = grown(s, s->told, &s->told_count, stream->number, sizeof *s->told);
        if (stream->number >= s->told_count || stream->high < stream->base)
            continue;
        told *t = &s->told[stream->number];
        if (t->sn != stream->high)
            *t = (told){.sn = stream->high};
        bool turn = number++ >= from && old < OLD;
        if (t->times++ < TOLD_TIMES) {
            put_source(out, &count, stream);
        } else if (turn) {
            old++;
            mine->old_turn = number;
            put_source(out, &count, stream);
        }
    }
    mine->old_turn = old < OLD ? 0 : mine->old_turn;
    return count;
}

static uint32_t put_echoes(srm *s, rs_time now, srm_group *mine, uint8_t *out) {
    const rs_gm_group *group = mine->group;
    uint32_t count = 0;
    for (uint32_t i = 0; i < group->member_count && count < NAMED; i++) {
        uint32_t member = group->members[mine->turn++ % group->member_count];
        if (member >= s->peer_count || s->peers[member].heard_at == 0)
            continue;
        echo one = {s->peers[member].sent_at, now - s->peers[member].heard_at, member};
        memcpy(out + count++ * sizeof one, &one, sizeof one);
    }
    return count;
}

/* On the wire: of what came last, or was published here. */
static uint32_t data_length(const srm *s, const srm_group *mine) {
    const rs_gm_stream *own = mine->group->published;
    const rs_gm_slot *slot = own ? rs_gm_slot_of(own, own->seen) : NULL;
    if (mine->length || !slot || !rs_gm_slot_kept(s->node, own, *slot))
        return mine->length;
    const uint8_t *datagram = rs_gm_log_datagram(&s->node->out, rs_gm_slot_at(*slot));
    return RS_GM_HEADER + RS_GM_BODY + rs_gm_body_length(datagram + RS_GM_HEADER) + DATAGRAM_OVERHEAD;
}

/* A share of the group's data is for session messages of all members (Sec. III-A), which wait between half as long and
 * half as long again as it has them (as RTCP, RFC 3550, 6.3). */
static rs_time next_session(srm *s, rs_time now, srm_group *mine) {
    const rs_gm_group *group = mine->group;
    if (now > mine->since && (group->passed > mine->passed || mine->rate > 0)) {
        double rate =
            (double)((group->passed - mine->passed) * data_length(s, mine)) * 1e9 / (double)(now - mine->since);
        mine->rate = mine->rate > 0 ? (3 * mine->rate + rate) / 4 : rate;
    }
    mine->since = now;
    mine->passed = group->passed;
    double share = option(group, OPTION_SESSION) * mine->rate;
    double each = share > 0 ? group->member_count * mine->session_bytes / share * 1e9 : (double)SESSION_FIRST;
    each = each < (double)SESSION_LEAST  ? (double)SESSION_LEAST
           : each > (double)SESSION_MOST ? (double)SESSION_MOST
                                         : each;
    return now + (rs_time)((0.5 + chance(s)) * each);
}

static void say_session(srm *s, rs_time now, srm_group *mine) {
    rs_gm_small *small = rs_gm_small_new(s->node);
    if (small) {
        session m = {.head = head_of(s, KIND_SESSION, mine->group), .sent_at = now};
        const uint32_t room = sizeof small->bytes - sizeof m - NAMED * sizeof(echo);
        m.source_count = put_sources(s, mine, small->bytes + sizeof m, room / sizeof(source));
        uint32_t length = (uint32_t)(sizeof m + m.source_count * sizeof(source));
        m.echo_count = put_echoes(s, now, mine, small->bytes + length);
        length += m.echo_count * (uint32_t)sizeof(echo);
        memcpy(small->bytes, &m, sizeof m);
        rs_gm_small_to_group(small, mine->group->channel, length);
        s->count.sessions++;
        mine->session_bytes = length + DATAGRAM_OVERHEAD;
    }
    rs_timer_set(&s->timers, &mine->timer, next_session(s, now, mine));
}

/* ----------------------------------------------------------------------------------------------------- requests */

static wanted *wanted_of(const srm *s, const rs_gm_missing *missing) {
    return &s->wanted[missing - s->node->missing];
}

static void wait_to_ask(srm *s, rs_time now, wanted *w, const rs_gm_missing *missing) {
    rs_time wait = srm_law_wait(&s->request, chance(s), distance(s, missing->stream->sender), w->backoff);
    w->ignore_until = w->backoff ? now + wait / 2 : now;
    rs_timer_set(&s->timers, &w->timer, now + wait);
}

static void missing_one(void *own, rs_time now, rs_gm_missing *missing) {
    srm *s = own;
    wanted *w = wanted_of(s, missing);
    *w = (wanted){.timer = {.kind = TIMER_REQUEST, .owner = missing}};
    if (adapts(missing->stream->group))
        srm_law_adapt(&s->request);
    wait_to_ask(s, now, w, missing);
}

static void found_one(void *own, rs_gm_missing *missing, const uint8_t *body, uint32_t length) {
    srm *s = own;
    wanted *w = wanted_of(s, missing);
    (void)body;
    (void)length;
    rs_timer_set(&s->timers, &w->timer, RS_NEVER);
    if (w->requests) {
        srm_law_count(&s->request, w->requests - 1);
        srm_law_took(&s->request, w->delay);
    }
}

static void lost_one(void *own, rs_gm_missing *missing) {
    srm *s = own;
    rs_timer_set(&s->timers, &wanted_of(s, missing)->timer, RS_NEVER);
}

/* By this member, or another. */
static void was_asked_for(srm *s, rs_time now, rs_gm_missing *missing) {
    wanted *w = wanted_of(s, missing);
    if (w->requests++ == 0)
        w->delay = (double)(now - missing->discovered) / distance(s, missing->stream->sender);
}

static void back_off(srm *s, rs_time now, rs_gm_missing *missing) {
    wanted *w = wanted_of(s, missing);
    w->backoff += w->backoff < SRM_BACKOFF_MOST;
    wait_to_ask(s, now, w, missing);
}

static void ask(srm *s, rs_time now, rs_gm_missing *missing) {
    const rs_gm_stream *stream = missing->stream;
    rs_gm_small *small = rs_gm_small_new(s->node);
    if (small) {
        request m = {head_of(s, KIND_REQUEST, stream->group), {stream->sender, stream->incarnation, missing->sn}};
        memcpy(small->bytes, &m, sizeof m);
        rs_gm_small_to_group(small, stream->group->channel, sizeof m);
        s->count.requests++;
    }
    was_asked_for(s, now, missing);
    if (adapts(stream->group))
        srm_law_was_first(&s->request);
    back_off(s, now, missing);
}

/* ------------------------------------------------------------------------------------------------------ repairs */

static uint32_t *bucket(srm *s, uint32_t stream, uint64_t sn) {
    return &s->buckets[rs_mix(sn ^ (uint64_t)stream << 32) & (BUCKETS - 1)];
}

static repair_round *round_find(srm *s, uint32_t stream, uint64_t sn) {
    for (uint32_t at = *bucket(s, stream, sn); at; at = s->rounds[at - 1].next)
        if (s->rounds[at - 1].stream == stream && s->rounds[at - 1].sn == sn)
            return &s->rounds[at - 1];
    return NULL;
}

/* NULL: there are too many. */
static repair_round *round_new(srm *s, uint32_t stream, uint64_t sn) {
    if (!s->free)
        return NULL;
    uint32_t at = s->free, *first = bucket(s, stream, sn);
    repair_round *r = &s->rounds[at - 1];
    s->free = r->next;
    *r = (repair_round){.timer = {.kind = TIMER_REPAIR, .owner = r}, .stream = stream, .sn = sn, .next = *first};
    *first = at;
    return r;
}

static void round_end(srm *s, repair_round *r) {
    uint32_t at = (uint32_t)(r - s->rounds) + 1, *link = bucket(s, r->stream, r->sn);
    while (*link != at)
        link = &s->rounds[*link - 1].next;
    *link = r->next;
    rs_timer_set(&s->timers, &r->timer, RS_NEVER);
    r->next = s->free;
    s->free = at;
}

/* It is here, and may be sent. */
static bool is_kept(const srm *s, const rs_gm_stream *stream, uint64_t sn) {
    const rs_gm_slot *slot = rs_gm_slot_of(stream, sn);
    bool unsent = slot && stream->own && rs_gm_slot_at(*slot) >= s->node->sent;
    return slot && !unsent && rs_gm_slot_kept(s->node, stream, *slot);
}

/* A repair, of whoever, makes others' superfluous for a while. */
static void hold(srm *s, rs_time now, repair_round *r) {
    if (r->repairs++ == 0 && r->asked_at)
        srm_law_took(&s->repair, (double)(now - r->asked_at) / r->distance);
    rs_timer_set(&s->timers, &r->timer, now + (rs_time)(SRM_HOLD * r->distance));
}

static void repair_timer(srm *s, rs_time now, repair_round *r) {
    if (r->repairs) {
        if (r->asked_at)
            srm_law_count(&s->repair, r->repairs - 1);
        round_end(s, r);
        return;
    }
    s->due[s->due_tail++ % ROUNDS] = (uint32_t)(r - s->rounds);
    const rs_gm_stream *stream = rs_gm_stream_numbered(s->node, r->stream);
    if (stream && stream->group && adapts(stream->group))
        srm_law_was_first(&s->repair);
    hold(s, now, r);
}

static bool poll(void *own, rs_time now, rs_messages_out *out) {
    srm *s = own;
    (void)now;
    while (s->due_head != s->due_tail) {
        repair_round *r = &s->rounds[s->due[s->due_head++ % ROUNDS]];
        const rs_gm_stream *stream = rs_gm_stream_numbered(s->node, r->stream);
        if (!stream || !stream->group || !is_kept(s, stream, r->sn))
            continue;
        const rs_gm_log *log = rs_gm_log_of(s->node, stream);
        uint64_t at = rs_gm_slot_at(*rs_gm_slot_of(stream, r->sn));
        const uint8_t *datagram = rs_gm_log_datagram(log, at);
        r->head = head_of(s, KIND_REPAIR, stream->group);
        rs_gm_seal((uint8_t *)&r->head, sizeof r->head);
        *out = (rs_messages_out){
            .channel = RS_CH_GROUP, .peer = RS_NO_PEER, .group = stream->group->channel, .piece_count = 2};
        out->piece[0].bytes = (const uint8_t *)&r->head;
        out->piece[0].length = sizeof r->head;
        out->piece[1].bytes = datagram;
        out->piece[1].length = RS_GM_HEADER + RS_GM_BODY + rs_gm_body_length(datagram + RS_GM_HEADER);
        s->count.repairs++;
        return true;
    }
    return false;
}

/* ---------------------------------------------------------------------------------------------------- receiving */

/* A member says that a publisher is so far. NULL: nothing may be made of it. */
static rs_gm_stream *reach(srm *s, rs_time now, rs_gm_group *group, const source *it) {
    bool fresh = false;
    const rs_gm_id id = {it->sender, it->incarnation, group->id, it->sn};
    rs_gm_stream *stream = rs_gm_stream_find(s->node, id.sender, id.group);
    if (!stream || stream->incarnation != id.incarnation || stream->unheard) {
        stream = id.sender == s->node->config.self ? NULL : rs_gm_stream_get(s->node, group, &id, false, &fresh);
        if (stream && fresh)
            rs_gm_stream_start(stream, id.sn);
    }
    if (stream && !stream->own && id.sn > stream->high && id.sn - stream->high <= s->node->config.window_packets)
        rs_gm_stream_reach(s->node, now, stream, id.sn, false);
    return stream;
}

static void hear_echo(srm *s, rs_time now, uint32_t from, const echo *one) {
    rs_time both_ways = now - one->sent_at - one->held;
    peer *p = one->peer == s->node->config.self ? peer_of(s, from) : NULL;
    if (!p || both_ways <= 0)
        return;
    double half = (double)both_ways / 2;
    s->distances -= p->distance;
    s->distances_known += p->distance <= 0;
    p->distance = p->distance > 0 ? p->distance + (half - p->distance) / 8 : half;
    s->distances += p->distance;
}

static bool hear_session(srm *s, rs_time now, rs_gm_group *group, const uint8_t *bytes, size_t length) {
    session m;
    if (length < sizeof m)
        return false;
    memcpy(&m, bytes, sizeof m);
    if (length != sizeof m + (uint64_t)m.source_count * sizeof(source) + (uint64_t)m.echo_count * sizeof(echo))
        return false;
    peer *p = peer_of(s, m.head.from);
    if (p) {
        p->sent_at = m.sent_at;
        p->heard_at = now;
    }
    const uint8_t *at = bytes + sizeof m;
    for (uint32_t i = 0; i < m.source_count; i++, at += sizeof(source)) {
        source one;
        memcpy(&one, at, sizeof one);
        reach(s, now, group, &one);
    }
    for (uint32_t i = 0; i < m.echo_count; i++, at += sizeof(echo)) {
        echo one;
        memcpy(&one, at, sizeof one);
        hear_echo(s, now, m.head.from, &one);
    }
    return true;
}

static bool hear_request(srm *s, rs_time now, rs_gm_group *group, const uint8_t *bytes, size_t length) {
    request m;
    if (length != sizeof m)
        return false;
    memcpy(&m, bytes, sizeof m);
    const rs_gm_stream *stream = reach(s, now, group, &m.packet);
    const rs_gm_slot *slot = stream ? rs_gm_slot_of(stream, m.packet.sn) : NULL;
    if (!slot)
        return true;
    if (rs_gm_slot_is(*slot, RS_GM_MISSING)) {
        rs_gm_missing *missing = rs_gm_missing_at(s->node, *slot);
        was_asked_for(s, now, missing);
        if (now >= wanted_of(s, missing)->ignore_until)
            back_off(s, now, missing);
    } else if (is_kept(s, stream, m.packet.sn) && !round_find(s, stream->number, m.packet.sn)) {
        repair_round *r = round_new(s, stream->number, m.packet.sn);
        if (!r)
            return true;
        if (adapts(group))
            srm_law_adapt(&s->repair);
        r->asked_at = now;
        r->distance = distance(s, m.head.from);
        rs_timer_set(&s->timers, &r->timer, now + srm_law_wait(&s->repair, chance(s), r->distance, 0));
    }
    return true;
}

static bool hear_repair(srm *s, rs_time now, rs_gm_group *group, const uint8_t *bytes, size_t length) {
    const uint8_t *datagram = bytes + sizeof(head);
    rs_gm_id id;
    rs_gm_body body;
    if (length < sizeof(head) || !rs_gm_get_data(datagram, length - sizeof(head), &id, &body) || id.group != group->id)
        return false;
    s->count.heard++;
    const rs_gm_stream *stream = rs_gm_stream_find(s->node, id.sender, id.group);
    const rs_gm_slot *slot = stream ? rs_gm_slot_of(stream, id.sn) : NULL;
    s->count.duplicates += slot && rs_gm_slot_is(*slot, RS_GM_RECORD);
    rs_gm_receive_carried(s->node, now, id.sender, datagram, length - sizeof(head), RS_VIA_RETRANSMIT);
    stream = rs_gm_stream_find(s->node, id.sender, id.group);
    repair_round *r = stream ? round_find(s, stream->number, id.sn) : NULL;
    if (stream && !r) {
        r = round_new(s, stream->number, id.sn);
        if (r)
            r->distance = distance(s, id.sender);
    }
    if (r)
        hold(s, now, r);
    return true;
}

static bool datagram(void *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    srm *s = own;
    head h;
    if (length < sizeof h)
        return false;
    memcpy(&h, bytes, sizeof h);
    bool repair = h.kind[3] == KIND_REPAIR; /* what it carries has a check of its own */
    rs_gm_group *group = rs_gm_group_find(s->node, h.group);
    if (!group || !is_ours(group) || h.from == s->node->config.self) {
        s->node->stats.foreign += !group;
        return true;
    }
    if (!rs_gm_is_from(s->node, from, h.from) || !rs_gm_is_member(group, h.from) ||
        !rs_gm_intact(s->node, bytes, repair ? sizeof h : length))
        return true;
    if (repair)
        return hear_repair(s, now, group, bytes, length);
    return h.kind[3] == KIND_SESSION ? hear_session(s, now, group, bytes, length)
                                     : hear_request(s, now, group, bytes, length);
}

static void received(void *own, rs_time now, rs_gm_group *group, const uint8_t *bytes, uint32_t length) {
    srm_group *mine = group->own;
    (void)own;
    (void)now;
    (void)bytes;
    if (mine)
        mine->length = length + DATAGRAM_OVERHEAD;
}

/* ------------------------------------------------------------------------------------------------ timers, counts */

static void timeout(void *own, rs_time now) {
    srm *s = own;
    for (rs_timer *t; (t = rs_timers_first(&s->timers)) && t->due <= now;) {
        rs_timer_set(&s->timers, t, RS_NEVER);
        switch ((timer_kind)t->kind) {
        case TIMER_SESSION:
            say_session(s, now, t->owner);
            break;
        case TIMER_REQUEST:
            ask(s, now, t->owner);
            break;
        case TIMER_REPAIR:
            repair_timer(s, now, t->owner);
            break;
        }
    }
}

static rs_time deadline(const void *own) {
    const srm *s = own;
    const rs_timer *first = rs_timers_first(&s->timers);
    return first ? first->due : RS_NEVER;
}

static uint32_t stats(const void *own, rs_group_stat *out) {
    const srm *s = own;
    const rs_group_stat all[] = {
        {"srm", "sessions", s->count.sessions, false},
        {"srm", "requests", s->count.requests, false},
        {"srm", "repairs", s->count.repairs, false},
        {"srm", "heard", s->count.heard, false},
        {"srm", "duplicates", s->count.duplicates, false},
        {"srm", "distance_ns", s->distances_known ? (uint64_t)(s->distances / s->distances_known) : 0, true},
    };
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        out[i] = all[i];
    return sizeof all / sizeof *all;
}

const rs_group_engine rs_group_engine_srm = {.name = "srm",
                                             .options = OPTIONS,
                                             .option_count = sizeof OPTIONS / sizeof *OPTIONS,
                                             .kinds = KINDS,
                                             .kind_count = sizeof KINDS,
                                             .start = start,
                                             .stop = stop,
                                             .policy = policy,
                                             .prepare = prepare,
                                             .change = change,
                                             .head = before_body,
                                             .received = received,
                                             .datagram = datagram,
                                             .missing = missing_one,
                                             .found = found_one,
                                             .lost = lost_one,
                                             .timeout = timeout,
                                             .deadline = deadline,
                                             .poll = poll,
                                             .stats = stats};
