/* What nodes do with packets of groups: one open hash over (node, group). */
#include "engine/state.h"

#include <string.h>

static uint64_t key_of(uint32_t node, uint32_t group) {
    return ((uint64_t)node << 32 | group) + 1;
}

static uint32_t first_slot(const sim *s, uint64_t key) {
    return (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (s->forwarding_slots - 1);
}

static uint32_t slot_of(const sim *s, uint64_t key) {
    uint32_t at = first_slot(s, key);
    while (s->forwardings[at].key && s->forwardings[at].key != key)
        at = (at + 1) & (s->forwarding_slots - 1);
    return at;
}

const forwarding *forwarding_of(const sim *s, uint32_t node, uint32_t group) {
    if (!s->forwarding_slots)
        return NULL;
    const forwarding *f = &s->forwardings[slot_of(s, key_of(node, group))];
    return f->key ? f : NULL;
}

void forwarding_fetch(const sim *s, uint32_t node, uint32_t group) {
    if (s->forwarding_slots)
        __builtin_prefetch(&s->forwardings[first_slot(s, key_of(node, group))]);
}

static void grow(sim *s) {
    uint32_t old = s->forwarding_slots;
    forwarding *slots = s->forwardings;
    s->forwarding_slots = old ? old * 2 : 256;
    s->forwardings = sim_take_lines(s, s->forwarding_slots * sizeof *slots);
    for (uint32_t i = 0; i < old; i++)
        if (slots[i].key)
            s->forwardings[slot_of(s, slots[i].key)] = slots[i];
    sim_give(s, slots, old * sizeof *slots);
}

static void drop_links(sim *s, const forwarding *f) {
    if (f->count > FORWARDING_NEAR)
        sim_give(s, f->links.far, f->count * sizeof *f->links.far);
}

/* An entry without links and member stays: the hash has no holes, and groups that changed once change again. */
void forwarding_set(sim *s, uint32_t node, uint32_t group, const uint32_t *links, uint32_t count, bool member) {
    if (s->forwarding_count * 2 >= s->forwarding_slots)
        grow(s);
    forwarding *f = &s->forwardings[slot_of(s, key_of(node, group))];
    s->forwarding_count += f->key == 0;
    drop_links(s, f);
    *f = (forwarding){.key = key_of(node, group), .count = count, .member = member};
    if (count > FORWARDING_NEAR)
        f->links.far = sim_take(s, count * sizeof *links);
    if (count)
        memcpy(count > FORWARDING_NEAR ? f->links.far : f->links.near, links, count * sizeof *links);
}

void forwardings_free(sim *s) {
    for (uint32_t i = 0; i < s->forwarding_slots; i++)
        drop_links(s, &s->forwardings[i]);
    sim_give(s, s->forwardings, s->forwarding_slots * sizeof *s->forwardings);
}
