#include "daemon/seal/keyring.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"
#include "core/base/xxh64.h"

#define BUCKETS 4096u
#define KINDS (RS_KEYS_PEER + 1)

typedef struct scope {
    struct scope *next;
    rs_keys_kind kind;
    uint64_t id;
    rs_peer owner;
    rs_time needed_at; /* the last time that it was */
    rs_time asked_at;  /* for its key */
    rs_peer *told;     /* who was given it from here */
    uint32_t told_count;
    bool signs; /* whoever it belongs to, by this key */
    uint8_t signer[RS_SIGN_PUBLIC];
    rs_seal *seal;
} scope;

struct rs_keyring {
    rs_cipher cipher;
    scope *buckets[BUCKETS];
    scope *last; /* found the last time */
    rs_seal *self;
    uint32_t count, counts[KINDS];
    rs_seal_stats gone; /* of scopes that are gone, and of datagrams of none */
};

rs_keyring *rs_keyring_new(rs_cipher cipher) {
    rs_keyring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return NULL;
    ring->cipher = cipher;
    ring->self = rs_seal_new_named();
    if (ring->self)
        return ring;
    free(ring);
    return NULL;
}

static void add_stats(rs_seal_stats *sum, const rs_seal *seal, bool now) {
    rs_seal_stats one;
    rs_seal_stats_get(seal, &one);
    sum->sealed += one.sealed;
    sum->unsealable += one.unsealable;
    for (unsigned i = 0; i < RS_SEAL_VERDICTS; i++)
        sum->opened[i] += one.opened[i];
    sum->late += one.late;
    sum->streams += now ? one.streams : 0;
}

static void drop(rs_keyring *ring, scope **at) {
    scope *one = *at;
    *at = one->next;
    if (ring->last == one)
        ring->last = NULL;
    add_stats(&ring->gone, one->seal, false);
    rs_seal_free(one->seal);
    ring->count--;
    ring->counts[one->kind]--;
    free(one->told);
    free(one);
}

void rs_keyring_free(rs_keyring *ring) {
    if (!ring)
        return;
    for (unsigned i = 0; i < BUCKETS; i++)
        while (ring->buckets[i])
            drop(ring, &ring->buckets[i]);
    rs_seal_free(ring->self);
    free(ring);
}

static scope **bucket_of(rs_keyring *ring, rs_keys_kind kind, uint64_t id) {
    return &ring->buckets[rs_mix(id ^ (uint64_t)kind << 60) % BUCKETS];
}

static scope *find(const rs_keyring *ring, rs_keys_kind kind, uint64_t id) {
    scope *one = ring->last;
    if (one && one->kind == kind && one->id == id)
        return one;
    one = *bucket_of((rs_keyring *)(uintptr_t)ring, kind, id);
    while (one && (one->kind != kind || one->id != id))
        one = one->next;
    return one;
}

rs_seal *rs_keyring_find(rs_keyring *ring, rs_keys_kind kind, uint64_t id) {
    scope *one = find(ring, kind, id);
    if (one)
        ring->last = one;
    return one ? one->seal : NULL;
}

rs_seal *rs_keyring_take(rs_keyring *ring, rs_keys_kind kind, uint64_t id, rs_time now) {
    scope *one = find(ring, kind, id);
    if (one) {
        one->needed_at = now;
        return one->seal;
    }
    one = ring->count < RS_KEYRING_MOST ? calloc(1, sizeof *one) : NULL;
    rs_seal *seal = one ? rs_seal_new(ring->cipher) : NULL;
    if (!seal) {
        free(one);
        return NULL;
    }
    if (kind != RS_KEYS_PEER)
        rs_seal_shared(seal);
    scope **at = bucket_of(ring, kind, id);
    *one = (scope){
        .next = *at, .kind = kind, .id = id, .owner = RS_NO_PEER, .needed_at = now, .asked_at = RS_NEVER, .seal = seal};
    *at = one;
    ring->count++;
    ring->counts[kind]++;
    return seal;
}

rs_seal *rs_keyring_self(rs_keyring *ring) {
    return ring->self;
}

uint64_t rs_keyring_name(const char *server) {
    return rs_gm_xxh64((const uint8_t *)server, strlen(server), 0);
}

rs_peer rs_keyring_owner(const rs_keyring *ring, rs_keys_kind kind, uint64_t id) {
    const scope *one = find(ring, kind, id);
    return one ? one->owner : RS_NO_PEER;
}

void rs_keyring_set_owner(rs_keyring *ring, rs_keys_kind kind, uint64_t id, rs_peer owner) {
    scope *one = find(ring, kind, id);
    if (one)
        one->owner = owner;
}

const uint8_t *rs_keyring_signer(const rs_keyring *ring, rs_keys_kind kind, uint64_t id) {
    const scope *one = find(ring, kind, id);
    return one && one->signs ? one->signer : NULL;
}

void rs_keyring_set_signer(rs_keyring *ring, rs_keys_kind kind, uint64_t id, const uint8_t *key) {
    scope *one = find(ring, kind, id);
    if (!one)
        return;
    one->signs = key != NULL;
    if (key)
        memcpy(one->signer, key, sizeof one->signer);
}

void rs_keyring_drop(rs_keyring *ring, rs_keys_kind kind, uint64_t id) {
    for (scope **at = bucket_of(ring, kind, id); *at; at = &(*at)->next)
        if ((*at)->kind == kind && (*at)->id == id) {
            drop(ring, at);
            return;
        }
}

bool rs_keyring_told(rs_keyring *ring, rs_keys_kind kind, uint64_t id, rs_peer peer) {
    scope *one = find(ring, kind, id);
    for (uint32_t i = 0; one && i < one->told_count; i++)
        if (one->told[i] == peer)
            return true;
    uint32_t count = one ? one->told_count : 0;
    if (one && (count & (count - 1)) == 0) { /* full: rooms are powers of two */
        rs_peer *more = realloc(one->told, (count ? 2 * count : 1) * sizeof *more);
        one->told = more ? more : one->told;
        one = more ? one : NULL;
    }
    if (one)
        one->told[one->told_count++] = peer;
    return one != NULL;
}

bool rs_keyring_untold(rs_keyring *ring, rs_keys_kind kind, uint64_t id, rs_peer peer) {
    scope *one = find(ring, kind, id);
    for (uint32_t i = 0; one && i < one->told_count; i++)
        if (one->told[i] == peer) {
            one->told[i] = one->told[one->told_count - 1];
            one->told[one->told_count - 1] = RS_NO_PEER; /* its place stays: rooms are powers of two */
            return true;
        }
    return false;
}

const rs_peer *rs_keyring_all_told(const rs_keyring *ring, rs_keys_kind kind, uint64_t id, uint32_t *count) {
    const scope *one = find(ring, kind, id);
    *count = one ? one->told_count : 0;
    return one ? one->told : NULL;
}

bool rs_keyring_may_ask(rs_keyring *ring, rs_keys_kind kind, uint64_t id, rs_time now, rs_time every) {
    scope *one = find(ring, kind, id);
    if (!one || (one->asked_at != RS_NEVER && now - one->asked_at < every))
        return false;
    one->asked_at = now;
    return true;
}

rs_time rs_keyring_tick(rs_keyring *ring, rs_time now, bool (*needed)(void *context, rs_keys_kind kind, uint64_t id),
                        void *context) {
    rs_time next = rs_seal_tick(ring->self, now);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (scope **at = &ring->buckets[i]; *at;) {
            scope *one = *at;
            if (needed(context, one->kind, one->id))
                one->needed_at = now;
            if (now - one->needed_at >= RS_KEYRING_LINGER) {
                drop(ring, at);
                continue;
            }
            rs_time due = rs_seal_tick(one->seal, now);
            next = due < next ? due : next;
            at = &one->next;
        }
    return next;
}

uint32_t rs_keyring_old(const rs_keyring *ring, rs_keys_kind kind, rs_time now, rs_time age, uint64_t *ids,
                        uint32_t most) {
    uint32_t found = 0;
    for (unsigned i = 0; i < BUCKETS && ring->counts[kind] > 0; i++)
        for (const scope *one = ring->buckets[i]; one && found < most; one = one->next) {
            rs_time since = one->kind == kind ? rs_seal_since(one->seal) : RS_NEVER;
            if (since != RS_NEVER && now - since >= age)
                ids[found++] = one->id;
        }
    return found;
}

void rs_keyring_stats(const rs_keyring *ring, rs_seal_stats *out) {
    *out = ring->gone;
    add_stats(out, ring->self, true);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (const scope *one = ring->buckets[i]; one; one = one->next)
            add_stats(out, one->seal, true);
}

void rs_keyring_count(rs_keyring *ring, rs_seal_verdict verdict) {
    ring->gone.opened[verdict]++;
}

void rs_keyring_count_unsealable(rs_keyring *ring) {
    ring->gone.unsealable++;
}

uint32_t rs_keyring_scopes(const rs_keyring *ring, rs_keys_kind kind) {
    return ring->counts[kind];
}
