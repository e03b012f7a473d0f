#include "daemon/groups/flow.h"

#include <string.h>

#include "core/base/xxh64.h"
#include "core/groups/wire.h"

#define WINDOW_BYTES (8u << 20)
#define WINDOW_LEAST 256u
#define WINDOW_MOST 4096u
#define PACKET_COST 832u /* what the kernel needs beside a datagram's bytes */
#define LOOKS 64u        /* streams looked at for reports */
#define DUE_LEAST 4u     /* packets of a stream that are worth a datagram before its step */
#define MOST_OF_ALL 4u   /* windows under way, of groups that have their shares and large messages in them */
#define HELD_OF_ALL 2u   /* windows ahead, of groups in which somebody holds on */
#define UNREAD_COST 64u  /* what a message that waits for its program needs beside its bytes */
_Static_assert(WINDOW_MOST / RS_FLOW_STEPS / RS_FLOW_EACH <= RS_FLOW_DUE, "so many may be due");
_Static_assert(RS_FLOW_DUE <= RS_FLOW_LIST && RS_FLOW_HEARD % RS_FLOW_PLACES == 0, "places for all");

uint32_t rs_flow_window(uint32_t packet_bytes) {
    uint32_t packets = WINDOW_BYTES / (packet_bytes + PACKET_COST);
    return packets < WINDOW_LEAST ? WINDOW_LEAST : packets > WINDOW_MOST ? WINDOW_MOST : packets;
}

void rs_flow_sum_init(rs_flow_sum *sum, bool unread) {
    *sum = (rs_flow_sum){.unread = unread};
    rs_list_init(&sum->busy);
}

void rs_flow_reset(rs_flow *flow) {
    *flow = (rs_flow){0};
    rs_list_init(&flow->busy);
}

/* So much of it is ahead of who takes it by now, and under way. */
static void count(rs_flow_sum *sum, rs_flow *flow, uint64_t ahead, uint64_t under_way) {
    const bool was = !rs_list_empty(&flow->busy);
    sum->under_way += under_way - flow->under_way;
    flow->under_way = under_way;
    flow->ahead = ahead;
    if (ahead > 0 && !was) {
        rs_list_append(&sum->busy, &flow->busy);
        sum->busy_count++;
    } else if (ahead == 0 && was) {
        rs_list_remove(&flow->busy);
        sum->busy_count--;
    }
}

void rs_flow_end(rs_flow_sum *sum, rs_flow *flow) {
    count(sum, flow, 0, 0);
    rs_flow_reset(flow);
}

/* The sn of the slowest that has told one of late; what was published a while ago if nobody has. */
static uint64_t base(const rs_flow *flow, rs_time now) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < flow->reporter_count; i++)
        if (flow->reporters[i].sn > 0 && now - flow->reporters[i].at < RS_FLOW_FRESH && flow->reporters[i].sn < least)
            least = flow->reporters[i].sn;
    return least == UINT64_MAX ? flow->floor : least;
}

static void age(rs_flow *flow, rs_time now) {
    if (now - flow->mark_at < RS_FLOW_AGE)
        return;
    flow->floor = flow->mark;
    flow->mark = flow->newest;
    flow->mark_at = now;
}

static void count_from(rs_flow_sum *sum, rs_flow *flow, uint64_t from) {
    const uint64_t counts = from > flow->floor ? from : flow->floor;
    count(sum, flow, flow->newest > from ? flow->newest - from : 0, flow->newest > counts ? flow->newest - counts : 0);
}

/* Of groups where nothing is published any more, and nobody reports what was. */
static void age_all(rs_flow_sum *sum, rs_time now) {
    sum->aged_at = now;
    sum->packets /= 2;
    sum->bytes /= 2;
    for (rs_list *at = sum->busy.next, *after; at != &sum->busy; at = after) {
        after = at->next;
        rs_flow *flow = RS_HOLDER(rs_flow, busy, at);
        age(flow, now);
        count_from(sum, flow, base(flow, now));
    }
}

static uint64_t window_of_all(const rs_flow_sum *sum, uint32_t window) {
    const uint64_t bytes = sum->packets ? sum->bytes / sum->packets : WINDOW_BYTES;
    const uint64_t packets = sum->unread ? WINDOW_BYTES / (bytes + UNREAD_COST)
                                         : rs_flow_window(bytes < WINDOW_BYTES ? (uint32_t)bytes : WINDOW_BYTES);
    return packets > window ? packets : window;
}

static uint64_t at_least(uint64_t share) {
    return share > RS_FLOW_SHARE ? share : RS_FLOW_SHARE;
}

/* So many packets of a group in which somebody holds on may be ahead. */
static uint64_t held_share(const rs_flow_sum *sum, uint32_t window) {
    return at_least(HELD_OF_ALL * window_of_all(sum, window) / (sum->busy_count ? sum->busy_count : 1));
}

bool rs_flow_open(rs_flow_sum *sum, rs_flow *flow, rs_time now, uint32_t window) {
    age(flow, now);
    const uint64_t from = base(flow, now);
    if (!sum)
        return flow->newest - from < window;
    if (now - sum->aged_at >= RS_FLOW_AGE)
        age_all(sum, now);
    count_from(sum, flow, from);
    const bool held = flow->ahead > flow->under_way;
    if (flow->newest - from >= window || (sum->under_way < window && !held))
        return flow->newest - from < window;
    const uint64_t all = window_of_all(sum, window), busy = sum->busy_count ? sum->busy_count : 1;
    if (held && flow->ahead >= held_share(sum, window))
        return false;
    return sum->under_way < all || (sum->under_way < MOST_OF_ALL * all && flow->under_way < at_least(all / (2 * busy)));
}

static uint32_t hash(uint32_t address, uint32_t group) {
    uint32_t h = (address ^ group * UINT32_C(0x9e3779b1)) * UINT32_C(0x85ebca6b);
    return (h ^ h >> 15) * UINT32_C(0xc2b2ae35);
}

static bool lower(uint32_t a, uint32_t b, uint32_t group) {
    uint32_t x = hash(a, group), y = hash(b, group);
    return x < y || (x == y && a < b);
}

/* The same ones as rs_flow_chosen; what is known of who stays is kept. */
void rs_flow_view(rs_flow *flow, uint32_t self, uint32_t group, const uint32_t *members, uint32_t count) {
    uint32_t chosen[RS_FLOW_REPORTERS], have = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = have;
        while (at > 0 && lower(members[i], chosen[at - 1], group))
            at--;
        if (at == RS_FLOW_REPORTERS)
            continue;
        have += have < RS_FLOW_REPORTERS;
        memmove(chosen + at + 1, chosen + at, (have - at - 1) * sizeof *chosen);
        chosen[at] = members[i];
    }
    rs_flow before = *flow;
    flow->reporter_count = 0;
    for (uint32_t i = 0; i < have; i++) {
        if (chosen[i] == self)
            continue;
        uint32_t old = 0, at = flow->reporter_count++;
        while (old < before.reporter_count && before.reporters[old].address != chosen[i])
            old++;
        flow->reporters[at].address = chosen[i];
        flow->reporters[at].sn = old < before.reporter_count ? before.reporters[old].sn : 0;
        flow->reporters[at].at = old < before.reporter_count ? before.reporters[old].at : 0;
        flow->reporters[at].step = old < before.reporter_count ? before.reporters[old].step : 0;
        flow->reporters[at].step_at = old < before.reporter_count ? before.reporters[old].step_at : 0;
    }
}

void rs_flow_published(rs_flow_sum *sum, rs_flow *flow, uint64_t first, uint64_t last, uint32_t bytes) {
    if (flow->newest == 0) /* its numbers may go on where they once were */
        flow->newest = flow->floor = flow->mark = first - 1;
    const uint64_t more = last > flow->newest ? last - flow->newest : 0;
    flow->newest += more;
    if (!sum)
        return;
    sum->packets += more;
    sum->bytes += bytes;
    if (more > 0)
        count(sum, flow, flow->ahead + more, flow->under_way + more);
}

bool rs_flow_reported(rs_flow_sum *sum, rs_flow *flow, rs_time now, uint32_t window, uint32_t address, uint64_t sn) {
    uint32_t i = 0;
    while (i < flow->reporter_count && flow->reporters[i].address != address)
        i++;
    /* Receivers go on by steps; half of one allows for what came in another order. Less is from who holds on, or who
     * hears of many groups: it counts as long as a step comes in time, or if all but one has been taken. */
    uint64_t step = window / RS_FLOW_STEPS / 2;
    bool known = i < flow->reporter_count && sn > 0 && sn <= flow->newest;
    bool steps = known && (flow->reporters[i].sn == 0 || sn >= flow->reporters[i].step + (step ? step : 1));
    bool goes_on = known && sn > flow->reporters[i].sn && flow->newest - sn < step;
    bool holds = known && sn >= flow->reporters[i].sn && now - flow->reporters[i].step_at < RS_FLOW_HOLD;
    flow->refused += !steps && !goes_on && !holds;
    if (!steps && !goes_on && !holds)
        return false;
    flow->reporters[i].at = now;
    flow->reporters[i].sn = sn;
    /* It has almost all: what it holds on for from here is new. Where the share is less than a step, of that. */
    const uint64_t share = sum ? held_share(sum, window) : window;
    const bool renews = goes_on && (flow->newest - sn <= share / 4 || sn - flow->reporters[i].step >= share / 2);
    if (steps || (renews && share / 4 < step))
        flow->reporters[i].step = sn;
    if (steps || renews)
        flow->reporters[i].step_at = now;
    if (sum)
        count_from(sum, flow, base(flow, now));
    return true;
}

bool rs_flow_chosen(uint32_t self, uint32_t group, const uint32_t *members, uint32_t count) {
    uint32_t own = hash(self, group), lower = 0;
    for (uint32_t i = 0; i < count && lower < RS_FLOW_REPORTERS; i++) {
        uint32_t other = hash(members[i], group);
        lower += other < own || (other == own && members[i] < self);
    }
    return lower < RS_FLOW_REPORTERS;
}

static uint32_t sender_at(uint32_t sender) {
    return hash(sender, 0) % RS_FLOW_SENDERS;
}

static void leave_line(rs_flow_ears *ears, rs_flow_heard *h) {
    const uint16_t place = (uint16_t)(h - ears->streams + 1);
    const uint32_t s = sender_at(h->sender);
    if (ears->senders[s].first != place && h->before == 0)
        return;
    *(h->before ? &ears->streams[h->before - 1].after : &ears->senders[s].first) = h->after;
    *(h->after ? &ears->streams[h->after - 1].before : &ears->senders[s].last) = h->before;
    h->before = h->after = 0;
}

/* They are reported, or not waited for any more. */
static void take_unseen(rs_flow_ears *ears, rs_flow_heard *h) {
    uint32_t *all = &ears->senders[sender_at(h->sender)].unseen;
    *all -= *all < h->unseen ? *all : h->unseen;
    h->unseen = 0;
}

static void join_line(rs_flow_ears *ears, rs_flow_heard *h) {
    const uint16_t place = (uint16_t)(h - ears->streams + 1);
    const uint32_t s = sender_at(h->sender);
    if (ears->senders[s].first == place || h->before != 0)
        return;
    h->before = ears->senders[s].last;
    *(h->before ? &ears->streams[h->before - 1].after : &ears->senders[s].first) = place;
    ears->senders[s].last = place;
}

/* Who is held back stays: its sender would go on into a program that is behind. */
static rs_flow_heard *any_of(rs_flow_heard *first, uint32_t from) {
    uint32_t i = 0;
    while (i < RS_FLOW_PLACES && first[(from + i) % RS_FLOW_PLACES].held_back)
        i++;
    return &first[(from + i) % RS_FLOW_PLACES];
}

/* Its place; else one that can be had: of a stream that is reported as far as it is known, if there is one. */
static rs_flow_heard *place_of(rs_flow_ears *ears, uint32_t sender, uint32_t incarnation, uint32_t group, bool *known) {
    rs_flow_heard *first = &ears->streams[hash(sender, group) % (RS_FLOW_HEARD / RS_FLOW_PLACES) * RS_FLOW_PLACES];
    rs_flow_heard *idle = NULL;
    *known = false;
    for (uint32_t i = 0; i < RS_FLOW_PLACES && !*known; i++) {
        rs_flow_heard *h = &first[i];
        const bool same = h->sender == sender && h->group == group;
        *known = same && h->incarnation == incarnation;
        if (same || (!idle && h->newest == h->told && !h->held_back))
            idle = h;
        if (same)
            break;
    }
    return idle ? idle : any_of(first, hash(group, sender) % RS_FLOW_PLACES);
}

static void begin(rs_flow_ears *ears, rs_flow_heard *h, uint32_t sender, uint32_t incarnation, uint32_t group,
                  uint64_t sn) {
    take_unseen(ears, h);
    leave_line(ears, h);
    *h = (rs_flow_heard){.sender = sender, .group = group, .incarnation = incarnation};
    h->newest = h->told = sn > 0 ? sn - 1 : 0;
}

/* Non-NULL: by a step. */
static rs_flow_heard *move(rs_flow_ears *ears, rs_flow_heard *h, uint64_t sn, uint32_t window) {
    if (sn > h->newest) {
        const uint64_t more = sn - h->newest;
        const uint32_t moved = more < window ? (uint32_t)more : window;
        h->unseen += moved;
        ears->senders[sender_at(h->sender)].unseen += moved;
        h->newest = sn;
        join_line(ears, h);
    }
    if (h->newest - h->told < window / RS_FLOW_STEPS)
        return NULL;
    take_unseen(ears, h);
    return h;
}

/* Packets of that size: as many as take the same room. */
static uint32_t step_of_all(uint32_t window, size_t packet_bytes) {
    const uint32_t packets = rs_flow_window(packet_bytes < WINDOW_BYTES ? (uint32_t)packet_bytes : WINDOW_BYTES);
    return (packets > window ? packets : window) / RS_FLOW_STEPS;
}

bool rs_flow_is_due(const rs_flow_ears *ears, uint32_t source, size_t length, uint32_t window) {
    const uint32_t unseen = ears->senders[sender_at(source)].unseen;
    return unseen >= window / RS_FLOW_STEPS && unseen >= step_of_all(window, length);
}

/* One by one: what is left waits for the next step, and those of few packets for more of them. */
static uint32_t due_alone(rs_flow_ears *ears, uint32_t s, uint32_t step, rs_flow_heard *due[RS_FLOW_LIST]) {
    const uint32_t most = step > RS_FLOW_EACH ? step / RS_FLOW_EACH : 1;
    uint32_t found = 0;
    ears->senders[s].unseen = 0;
    for (uint32_t i = 0; i < LOOKS && ears->senders[s].first != 0 && found < most && found < RS_FLOW_DUE; i++) {
        rs_flow_heard *h = &ears->streams[ears->senders[s].first - 1];
        leave_line(ears, h);
        if (h->unseen >= DUE_LEAST)
            due[found++] = h;
        else if (h->unseen > 0)
            join_line(ears, h);
        h->unseen = h->unseen >= DUE_LEAST ? 0 : h->unseen;
    }
    return found;
}

uint32_t rs_flow_due(rs_flow_ears *ears, uint32_t source, size_t length, uint32_t window, bool lists,
                     rs_flow_heard *due[RS_FLOW_LIST]) {
    const uint32_t s = sender_at(source);
    uint32_t found = 0;
    if (!rs_flow_is_due(ears, source, length, window))
        return 0;
    if (!lists)
        return due_alone(ears, s, step_of_all(window, length), due);
    while (ears->senders[s].first != 0 && found < RS_FLOW_LIST) {
        rs_flow_heard *h = &ears->streams[ears->senders[s].first - 1];
        leave_line(ears, h);
        if (h->unseen > 0)
            due[found++] = h;
        take_unseen(ears, h);
    }
    if (ears->senders[s].first == 0)
        ears->senders[s].unseen = 0;
    return found;
}

rs_flow_heard *rs_flow_hear(rs_flow_ears *ears, uint32_t source, const uint8_t *packet, size_t length,
                            uint32_t window) {
    if (length < RS_GM_DATA_LEAST || rs_gm_get_kind(packet, length) != RS_GM_KIND_DATA)
        return NULL;
    rs_gm_id id;
    bool known;
    rs_gm_get_id(packet + RS_GM_HEADER - RS_GM_ID, &id);
    if (id.sender != source)
        return NULL;
    rs_flow_heard *h = place_of(ears, id.sender, id.incarnation, id.group, &known);
    if ((!known || id.sn != h->newest + 1) && !rs_gm_is_intact(packet, length))
        return NULL;
    if (!known || id.sn < h->told)
        begin(ears, h, id.sender, id.incarnation, id.group, id.sn);
    return move(ears, h, id.sn, window);
}

rs_flow_heard *rs_flow_given(rs_flow_ears *ears, uint32_t sender, uint32_t incarnation, uint32_t group, uint64_t sn,
                             uint32_t window) {
    bool known;
    rs_flow_heard *h = place_of(ears, sender, incarnation, group, &known);
    if (!known)
        begin(ears, h, sender, incarnation, group, sn);
    return move(ears, h, sn, window);
}

bool rs_flow_too_far(const rs_flow_heard *heard, uint64_t missing, uint32_t window) {
    return missing > 0 && heard->newest > missing && heard->newest - missing > RS_FLOW_MISSING * (uint64_t)window;
}

#define CHECKED (RS_FLOW_BYTES - 4) /* bytes of a report before its check */

static void put32(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t get32(const uint8_t *from) {
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

#define VERSION(number) (RS_FLOW_MAGIC | UINT32_C(number) << 16)

static void seal(uint8_t *bytes, size_t length) {
    put32(bytes + length - 4, (uint32_t)rs_gm_xxh64(bytes, length - 4, 0));
}

static bool is_sealed(const uint8_t *bytes, size_t length) {
    return get32(bytes + length - 4) == (uint32_t)rs_gm_xxh64(bytes, length - 4, 0);
}

static void put64(uint8_t *to, uint64_t value) {
    put32(to, (uint32_t)value);
    put32(to + 4, (uint32_t)(value >> 32));
}

static uint64_t get64(const uint8_t *from) {
    return get32(from) | (uint64_t)get32(from + 4) << 32;
}

void rs_flow_encode(uint8_t out[RS_FLOW_BYTES], const rs_flow_report *report) {
    put32(out, VERSION(1));
    put32(out + 4, report->from);
    put32(out + 8, report->incarnation);
    put32(out + 12, report->group);
    put64(out + 16, report->sn);
    seal(out, RS_FLOW_BYTES);
}

bool rs_flow_decode(const uint8_t *bytes, size_t length, rs_flow_report *out) {
    if (length != RS_FLOW_BYTES || get32(bytes) != VERSION(1) || !is_sealed(bytes, length))
        return false;
    *out = (rs_flow_report){
        .from = get32(bytes + 4), .incarnation = get32(bytes + 8), .group = get32(bytes + 12), .sn = get64(bytes + 16)};
    return true;
}

#define LIST_HEAD 16u
#define LIST_EACH 12u

size_t rs_flow_list_encode(uint8_t *out, const rs_flow_list *list) {
    put32(out, VERSION(2));
    put32(out + 4, list->from);
    put32(out + 8, list->incarnation);
    put32(out + 12, list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        put32(out + LIST_HEAD + i * LIST_EACH, list->stream[i].group);
        put64(out + LIST_HEAD + i * LIST_EACH + 4, list->stream[i].sn);
    }
    seal(out, RS_FLOW_LIST_BYTES(list->count));
    return RS_FLOW_LIST_BYTES(list->count);
}

bool rs_flow_list_decode(const uint8_t *bytes, size_t length, rs_flow_list *out) {
    if (length < RS_FLOW_LIST_BYTES(0) || get32(bytes) != VERSION(2))
        return false;
    out->count = get32(bytes + 12);
    if (out->count > RS_FLOW_LIST || length != RS_FLOW_LIST_BYTES(out->count) || !is_sealed(bytes, length))
        return false;
    out->from = get32(bytes + 4);
    out->incarnation = get32(bytes + 8);
    for (uint32_t i = 0; i < out->count; i++) {
        out->stream[i].group = get32(bytes + LIST_HEAD + i * LIST_EACH);
        out->stream[i].sn = get64(bytes + LIST_HEAD + i * LIST_EACH + 4);
    }
    return true;
}
