#include "core/wan/sections.h"

/* By multicast a packet crosses the sender's own link once, for all who miss it; by unicast once for each of them, but
 * then only their own links. The first link is the narrow one where many sites hang on one sender, so its packets
 * decide; where that saves less than a tenth of them, unicast spares all the others. */
#define WORTH 0.9 /* docs/wan.md */

bool rs_wan_sections_start(rs_wan_sections *s, const rs_allocator *allocator, uint64_t fragments, uint32_t receivers) {
    *s = (rs_wan_sections){.count = (fragments + RS_WAN_SECTION - 1) / RS_WAN_SECTION, .receivers = receivers};
    rs_list_init(&s->gathering);
    rs_list_init(&s->ready);
    s->open = rs_memory_take(allocator, (s->count + 1) * sizeof *s->open);
    return s->open != NULL;
}

static void close_section(rs_wan_sections *s, const rs_allocator *allocator, rs_wan_section *section) {
    rs_list_remove(&section->listed);
    s->open[section->number] = NULL;
    rs_memory_give(allocator, section);
}

void rs_wan_sections_free(rs_wan_sections *s, const rs_allocator *allocator) {
    if (s->open)
        rs_wan_sections_release(s, allocator, s->count);
    rs_memory_give(allocator, s->open);
    rs_memory_give(allocator, s->mended);
    s->open = NULL;
    s->mended = NULL;
}

bool rs_wan_sections_merge(rs_wan_sections *s, const rs_allocator *allocator) {
    s->mended = rs_memory_take(allocator, RS_WAN_MENDED * sizeof *s->mended);
    return s->mended != NULL;
}

void rs_wan_sections_release(rs_wan_sections *s, const rs_allocator *allocator, uint64_t number) {
    for (; s->freed < number && s->freed < s->count; s->freed++)
        if (s->open[s->freed])
            close_section(s, allocator, s->open[s->freed]);
}

static bool in_map(const uint8_t *map, uint32_t at) {
    return map[at / 8] >> at % 8 & 1;
}

/* It went for all, and whoever misses it now could not know that yet. */
static bool is_under_way(const rs_wan_sections *s, rs_time now, uint64_t sn) {
    const rs_wan_mended *m = s->mended ? &s->mended[sn / RS_WAN_SECTION % RS_WAN_MENDED] : NULL;
    return m && m->of == sn / RS_WAN_SECTION + 1 && now - m->at < s->moot &&
           in_map(m->map, (uint32_t)(sn % RS_WAN_SECTION));
}

static void went_for_all(rs_wan_sections *s, rs_time now, uint64_t sn) {
    if (!s->mended)
        return;
    rs_wan_mended *m = &s->mended[sn / RS_WAN_SECTION % RS_WAN_MENDED];
    if (m->of != sn / RS_WAN_SECTION + 1 || now - m->at >= s->moot)
        *m = (rs_wan_mended){.of = sn / RS_WAN_SECTION + 1};
    m->at = now;
    m->map[sn % RS_WAN_SECTION / 8] |= (uint8_t)(1u << sn % 8);
}

/* Something in it is to be repaired. */
static bool says_anything(const rs_wan_sections *s, rs_time now, const rs_wan_nack *nack) {
    for (uint32_t i = 0; i < nack->bits; i++)
        if (in_map(nack->map, i) && !is_under_way(s, now, nack->base + i))
            return true;
    return false;
}

bool rs_wan_sections_nack(rs_wan_sections *s, const rs_allocator *allocator, rs_time now, uint32_t receiver,
                          const rs_wan_nack *nack) {
    uint64_t number = nack->base / RS_WAN_SECTION, bit = UINT64_C(1) << receiver % RS_WAN_BITS;
    rs_wan_section *section = s->open[number];
    if (!says_anything(s, now, nack))
        return true;
    if (!section) {
        section = rs_memory_take(allocator, sizeof *section);
        if (!section)
            return false;
        section->number = number;
        section->ready_at = now + s->gather;
        rs_list_init(&section->listed);
        rs_list_append(&s->gathering, &section->listed);
        s->open[number] = section;
    }
    for (uint32_t i = 0; i < nack->bits; i++) {
        uint64_t *who = &section->who[nack->base % RS_WAN_SECTION + i];
        if (!in_map(nack->map, i) || (*who & bit) || is_under_way(s, now, nack->base + i))
            continue;
        section->missing += *who == 0;
        section->misses++;
        *who |= bit;
    }
    return true;
}

static rs_wan_repair choose(const rs_wan_sections *s, const rs_wan_section *section) {
    if (s->mended || s->receivers > RS_WAN_BITS)
        return s->coded ? RS_WAN_CODED : RS_WAN_MULTICAST;
    if (s->coded && section->missing > 1 && s->receivers > 1)
        return RS_WAN_CODED;
    return section->missing < WORTH * section->misses ? RS_WAN_MULTICAST : RS_WAN_UNICAST;
}

/* Sections whose NACKs were gathered long enough are to be repaired, the oldest first. */
static void gathered(rs_wan_sections *s, rs_time now) {
    while (!rs_list_empty(&s->gathering)) {
        rs_wan_section *section = RS_HOLDER(rs_wan_section, listed, s->gathering.next);
        if (section->ready_at > now)
            return;
        section->by = choose(s, section);
        s->by_multicast += section->by != RS_WAN_UNICAST;
        s->by_unicast += section->by == RS_WAN_UNICAST;
        rs_list_append(&s->ready, &section->listed);
    }
}

rs_time rs_wan_sections_due(const rs_wan_sections *s, rs_time now) {
    if (!rs_list_empty(&s->ready))
        return now;
    if (rs_list_empty(&s->gathering))
        return RS_NEVER;
    return RS_HOLDER(rs_wan_section, listed, s->gathering.next)->ready_at;
}

static uint32_t bits(uint64_t word) {
    uint32_t count = 0;
    for (; word; word &= word - 1)
        count++;
    return count;
}

static void mended(rs_wan_section *section, uint32_t at, uint64_t who) {
    section->misses -= bits(section->who[at] & who);
    section->who[at] &= ~who;
    section->missing -= section->who[at] == 0;
}

/* Fragments of which no receiver misses two: whoever misses one has the others. */
static void combine(rs_wan_section *section, rs_wan_mend *out) {
    uint64_t first = section->number * RS_WAN_SECTION, taken = 0;
    out->count = 0;
    for (uint32_t i = section->at; i < RS_WAN_SECTION && out->count < RS_REPAIR_SPARSE; i++) {
        if (section->who[i] == 0 || (section->who[i] & taken))
            continue;
        taken |= section->who[i];
        out->member[out->count++] = first + i;
        mended(section, i, UINT64_MAX);
    }
}

bool rs_wan_sections_mend(rs_wan_sections *s, const rs_allocator *allocator, rs_time now, rs_wan_mend *out) {
    gathered(s, now);
    if (rs_list_empty(&s->ready))
        return false;
    rs_wan_section *section = RS_HOLDER(rs_wan_section, listed, s->ready.next);
    while (section->who[section->at] == 0) /* a NACK that came meanwhile may be of what is before */
        section->at = (section->at + 1) % RS_WAN_SECTION;
    *out = (rs_wan_mend){.sn = section->number * RS_WAN_SECTION + section->at, .count = 1};
    out->member[0] = out->sn;
    uint64_t who = section->who[section->at];
    if (section->by == RS_WAN_CODED) {
        combine(section, out);
    } else if (section->by == RS_WAN_UNICAST) {
        out->unicast = true;
        out->bit = (uint32_t)__builtin_ctzll(who);
        mended(section, section->at, UINT64_C(1) << out->bit);
    } else {
        mended(section, section->at, UINT64_MAX);
    }
    for (uint32_t i = 0; i < out->count && !out->unicast; i++)
        went_for_all(s, now, out->member[i]);
    if (section->missing == 0)
        close_section(s, allocator, section);
    return true;
}
