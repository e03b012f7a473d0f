#include "daemon/seal/seal.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"

#define KIND 0xe0u
#define KIND_MASK 0xf0u
#define COUNTER_BYTES 5
#define WORDS (RS_SEAL_WINDOW / 64 + 1) /* one more than the window: RFC 6479 */
#define BUCKETS_FIRST 64u               /* and never fewer than twice the streams */
#define BESIDE_MOST (6 + RS_SEAL_CLEAR_MOST + RS_SEAL_HEAD)

/* Who is heard, and where. */
typedef struct {
    uint16_t epoch;
    uint32_t name, transmitter; /* name: 0 but in a named one */
    rs_seal_place at;
    rs_cipher cipher;
} source;

/* One transmitter's packets to one address of this agent. */
typedef struct stream {
    uint64_t newest; /* counter; 0 = nothing came yet */
    uint64_t seen[WORDS];
    source of;
    rs_aead *aead;
    uint8_t nonce[RS_AEAD_NONCE];
} stream;

typedef struct {
    bool used;
    bool own; /* the key is that of our transmitter alone: nothing is opened with it */
    uint16_t number;
    uint8_t key[RS_AEAD_KEY];
    uint32_t transmitter; /* our first number */
    uint32_t used_up;     /* so many of ours were sealed with: each once, whatever comes in between */
    rs_time from, until;
} epoch;

struct rs_seal {
    rs_cipher cipher;
    bool named;
    bool shared; /* rs_seal_shared */
    epoch epochs[RS_SEAL_EPOCHS];
    /* sealing */
    epoch *current; /* NULL = none */
    rs_aead *aead;
    uint8_t nonce[RS_AEAD_NONCE];
    uint64_t counter;     /* of the last packet */
    uint32_t transmitter; /* the number it goes by */
    /* opening */
    stream **streams; /* by linear probing */
    size_t buckets;
    stream *last;  /* the one that came before is the likeliest */
    stream *spare; /* for who may turn out to be nobody */
    rs_seal_stats stats;
};

static void put(uint8_t *at, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *at, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

const char *rs_seal_text(rs_seal_verdict verdict) {
    static const char *const words[RS_SEAL_VERDICTS] = {
        [RS_SEAL_RIGHT] = "right",
        [RS_SEAL_PLAIN] = "not sealed",
        [RS_SEAL_SHORT] = "cut",
        [RS_SEAL_EPOCH] = "of an epoch whose key is not here",
        [RS_SEAL_FORGED] = "its tag is wrong",
        [RS_SEAL_REPLAYED] = "it came before, or very late",
        [RS_SEAL_ROOM] = "too many transmitters",
        [RS_SEAL_SCOPE] = "of a transfer, group or agent whose key is not here",
    };
    return words[verdict];
}

/* ------------------------------------------------------------------------------------------------------------ keys */

bool rs_seal_transmitter_key(const uint8_t epoch_key[RS_AEAD_KEY], uint32_t name, uint32_t transmitter,
                             uint8_t out[RS_AEAD_KEY]) {
    uint8_t info[22] = "rostrum seal 2";
    put(info + 14, name, 4);
    put(info + 18, transmitter, 4);
    return rs_hkdf(epoch_key, RS_AEAD_KEY, NULL, 0, info, sizeof info, out, RS_AEAD_KEY);
}

/* The key that a transmitter's packets are sealed with, and what its nonces begin from. */
static bool derive(const epoch *e, rs_cipher cipher, uint32_t name, uint32_t transmitter, uint8_t key[RS_AEAD_KEY],
                   uint8_t nonce[RS_AEAD_NONCE]) {
    uint8_t info[8] = "packets", out[RS_AEAD_KEY + RS_AEAD_NONCE], own[RS_AEAD_KEY];
    info[7] = (uint8_t)cipher;
    bool done = true;
    if (e->own)
        memcpy(own, e->key, sizeof own);
    else
        done = rs_seal_transmitter_key(e->key, name, transmitter, own);
    done = done && rs_hkdf(own, sizeof own, NULL, 0, info, sizeof info, out, sizeof out);
    memcpy(key, out, RS_AEAD_KEY);
    memcpy(nonce, out + RS_AEAD_KEY, RS_AEAD_NONCE);
    rs_wipe(out, sizeof out);
    rs_wipe(own, sizeof own);
    return done;
}

static epoch *find_epoch(rs_seal *s, uint16_t number) {
    for (unsigned i = 0; i < RS_SEAL_EPOCHS; i++)
        if (s->epochs[i].used && s->epochs[i].number == number)
            return &s->epochs[i];
    return NULL;
}

/* Seals with that epoch's key from now on, by the next of the transmitter's numbers. */
static bool use(rs_seal *s, epoch *e) {
    uint8_t key[RS_AEAD_KEY];
    s->transmitter = e->transmitter + e->used_up;
    bool done = !s->named && e->used_up < (e->own ? 1 : RS_SEAL_NUMBERS) &&
                derive(e, s->cipher, 0, s->transmitter, key, s->nonce);
    if (done && s->aead)
        done = rs_aead_rekey(s->aead, key);
    else if (done)
        done = (s->aead = rs_aead_new(s->cipher, key, true)) != NULL;
    rs_wipe(key, sizeof key);
    e->used_up += done;
    s->current = done || s->named ? e : NULL;
    s->counter = 0;
    return s->current != NULL;
}

static void free_stream(stream *st) {
    if (!st)
        return;
    rs_aead_free(st->aead);
    rs_wipe(st, sizeof *st);
    free(st);
}

static size_t bucket_of(const source *of) {
    uint64_t mixed = rs_mix(((uint64_t)of->epoch << 32 | of->transmitter) + RS_RANDOM_STEP);
    mixed = rs_mix(mixed ^ ((uint64_t)of->at.address << 24 | (uint64_t)of->at.port << 8 | (uint64_t)of->cipher));
    return (size_t)rs_mix(mixed ^ of->name);
}

static void insert(rs_seal *s, stream *st) {
    size_t at = bucket_of(&st->of) % s->buckets;
    while (s->streams[at])
        at = (at + 1) % s->buckets;
    s->streams[at] = st;
}

/* Puts all into as many buckets as that, but those of the epoch `gone` (NULL = none). */
static bool settle(rs_seal *s, size_t buckets, const epoch *gone) {
    stream **old = s->streams, **fresh = calloc(buckets, sizeof *fresh);
    size_t count = s->buckets;
    if (!fresh)
        return false;
    s->streams = fresh;
    s->buckets = buckets;
    s->stats.streams = 0;
    s->last = NULL;
    for (size_t i = 0; i < count; i++) {
        if (old[i] && gone && old[i]->of.epoch == gone->number) {
            free_stream(old[i]);
        } else if (old[i]) {
            insert(s, old[i]);
            s->stats.streams++;
        }
    }
    free(old);
    return true;
}

static void forget(rs_seal *s, epoch *e) {
    if (!settle(s, s->buckets, e))
        return; /* out of memory: it is retired some other time */
    free_stream(s->spare);
    s->spare = NULL;
    if (s->current == e)
        s->current = NULL;
    rs_wipe(e, sizeof *e);
}

static bool learn(rs_seal *s, const epoch *told) {
    epoch *e = find_epoch(s, told->number);
    if (e && memcmp(e->key, told->key, RS_AEAD_KEY) == 0)
        return true;
    if (e) /* another manager's, by the same number */
        forget(s, e);
    for (unsigned i = 0; i < RS_SEAL_EPOCHS && !e; i++)
        if (!s->epochs[i].used)
            e = &s->epochs[i];
    for (unsigned i = 0; i < RS_SEAL_EPOCHS && (!e || e->used); i++)
        if (!e || s->epochs[i].from < e->from)
            e = &s->epochs[i];
    if (e->used)
        forget(s, e);
    if (e->used)
        return false;
    *e = *told;
    return s->current || use(s, e); /* nothing to wait for */
}

bool rs_seal_learn(rs_seal *s, uint16_t number, const uint8_t key[RS_AEAD_KEY], uint32_t transmitter, rs_time from) {
    epoch told = {.used = true, .number = number, .transmitter = transmitter, .from = from, .until = RS_NEVER};
    memcpy(told.key, key, RS_AEAD_KEY);
    bool done = learn(s, &told);
    rs_wipe(&told, sizeof told);
    return done;
}

bool rs_seal_learn_own(rs_seal *s, uint16_t number, const uint8_t key[RS_AEAD_KEY], uint32_t transmitter) {
    const epoch *known = find_epoch(s, number);
    if (known && memcmp(known->key, key, RS_AEAD_KEY) == 0)
        return true;                              /* its counter goes on */
    for (unsigned i = 0; i < RS_SEAL_EPOCHS; i++) /* nobody opens with them: none is of use any more */
        if (s->epochs[i].used)
            forget(s, &s->epochs[i]);
    epoch told = {.used = true, .own = true, .number = number, .transmitter = transmitter, .until = RS_NEVER};
    memcpy(told.key, key, RS_AEAD_KEY);
    bool done = learn(s, &told);
    rs_wipe(&told, sizeof told);
    return done;
}

rs_time rs_seal_tick(rs_seal *s, rs_time now) {
    epoch *newest = NULL;
    rs_time next = RS_NEVER;
    for (unsigned i = 0; i < RS_SEAL_EPOCHS; i++) {
        epoch *e = &s->epochs[i];
        if (e->used && e->from <= now && (!newest || e->from > newest->from))
            newest = e;
        else if (e->used && e->from > now && e->from < next)
            next = e->from;
    }
    if (newest && newest != s->current)
        (void)use(s, newest);
    for (unsigned i = 0; i < RS_SEAL_EPOCHS; i++) {
        epoch *e = &s->epochs[i];
        if (!e->used || !newest || e == newest || e->from > now)
            continue;
        if (e->until == RS_NEVER)
            e->until = newest->from + RS_SEAL_RETIRE;
        if (e->until <= now)
            forget(s, e);
        else if (e->until < next)
            next = e->until;
    }
    return next;
}

unsigned rs_seal_keys(const rs_seal *s, rs_seal_key out[RS_SEAL_EPOCHS]) {
    unsigned count = 0;
    for (unsigned i = 0; i < RS_SEAL_EPOCHS; i++) {
        const epoch *e = &s->epochs[i];
        if (!e->used || e->own || (s->current && e->from < s->current->from))
            continue;
        unsigned at = count++;
        for (; at > 0 && out[at - 1].from < e->from; at--)
            out[at] = out[at - 1];
        out[at] = (rs_seal_key){.epoch = e->number, .from = e->from};
        memcpy(out[at].key, e->key, RS_AEAD_KEY);
    }
    return count;
}

bool rs_seal_ready(const rs_seal *s) {
    return s->current != NULL;
}

uint64_t rs_seal_counter(const rs_seal *s) {
    return s->stats.sealed;
}

uint16_t rs_seal_epoch(const rs_seal *s) {
    return s->current ? s->current->number : 0;
}

rs_time rs_seal_since(const rs_seal *s) {
    const epoch *newest = NULL;
    for (unsigned i = 0; i < RS_SEAL_EPOCHS; i++)
        if (s->epochs[i].used && (!newest || s->epochs[i].from > newest->from))
            newest = &s->epochs[i];
    return newest ? newest->from : RS_NEVER;
}

/* --------------------------------------------------------------------------------------------------------- packets */

static void nonce_of(const uint8_t base[RS_AEAD_NONCE], uint64_t counter, uint8_t out[RS_AEAD_NONCE]) {
    memcpy(out, base, RS_AEAD_NONCE);
    for (unsigned i = 0; i < 8; i++)
        out[RS_AEAD_NONCE - 1 - i] ^= (uint8_t)(counter >> (8 * i)); /* as in TLS 1.3 */
}

/* What the tag speaks for beside the encrypted bytes: address, port, clear bytes, head. */
static size_t beside(rs_seal_place place, const uint8_t *clear, size_t length, const uint8_t *head,
                     uint8_t out[BESIDE_MOST]) {
    put(out, place.address, 4);
    put(out + 4, place.port, 2);
    memcpy(out + 6, clear, length);
    memcpy(out + 6 + length, head, RS_SEAL_HEAD);
    return 6 + length + RS_SEAL_HEAD;
}

static bool seal(rs_seal *s, rs_seal_place to, const uint8_t *shown, size_t clear, const rs_aead_piece hidden[2],
                 uint8_t *out) {
    uint8_t nonce[RS_AEAD_NONCE], more[BESIDE_MOST];
    if (s->current && s->counter >= RS_SEAL_PACKETS)
        (void)use(s, s->current);
    if (!s->current || s->named) {
        s->stats.unsealable++;
        return false;
    }
    uint8_t *at = out + clear, *body = at + RS_SEAL_HEAD;
    memcpy(out, shown, clear);
    s->counter++;
    at[0] = (uint8_t)(KIND | (unsigned)s->cipher);
    put(at + 1, s->counter, COUNTER_BYTES);
    put(at + 6, s->current->number, 2);
    put(at + 8, s->transmitter, 4);
    nonce_of(s->nonce, s->counter, nonce);
    size_t length = beside(to, out, clear, at, more), first = hidden[0].length, second = hidden[1].length;
    const rs_aead_piece pieces[2] = {{hidden[0].in, body, first}, {hidden[1].in, body + first, second}};
    if (!rs_aead_seal(s->aead, nonce, more, length, pieces, 2, body + first + second)) {
        s->stats.unsealable++;
        return false;
    }
    s->stats.sealed++;
    return true;
}

bool rs_seal_close(rs_seal *s, rs_seal_place to, size_t clear, const uint8_t *head, size_t head_length,
                   const uint8_t *rest, size_t rest_length, uint8_t *out) {
    if (clear > head_length) {
        s->stats.unsealable++;
        return false;
    }
    const rs_aead_piece hidden[2] = {{head + clear, NULL, head_length - clear}, {rest, NULL, rest_length}};
    return seal(s, to, head, clear, hidden, out);
}

bool rs_seal_close_shown(rs_seal *s, rs_seal_place to, uint32_t shown, const uint8_t *head, size_t head_length,
                         const uint8_t *rest, size_t rest_length, uint8_t *out) {
    const rs_aead_piece hidden[2] = {{head, NULL, head_length}, {rest, NULL, rest_length}};
    uint8_t clear[RS_SEAL_SHOWN];
    put(clear, shown, sizeof clear);
    return seal(s, to, clear, sizeof clear, hidden, out);
}

bool rs_seal_looks_sealed(const uint8_t *bytes, size_t length) {
    return length > 0 && (bytes[0] & KIND_MASK) == KIND;
}

uint32_t rs_seal_shown(const uint8_t *bytes) {
    return (uint32_t)get(bytes, RS_SEAL_SHOWN);
}

static bool is_late(const stream *st, uint64_t counter) {
    return counter <= st->newest && st->newest - counter >= RS_SEAL_WINDOW;
}

static bool is_new(const stream *st, uint64_t counter) {
    if (counter > st->newest)
        return true;
    return !is_late(st, counter) && !(st->seen[counter / 64 % WORDS] >> (counter % 64) & 1);
}

static void take(stream *st, uint64_t counter) {
    if (counter > st->newest) {
        uint64_t from = st->newest / 64, to = counter / 64;
        uint64_t words = to - from < WORDS ? to - from : WORDS;
        for (uint64_t i = 0; i < words; i++)
            st->seen[(to - i) % WORDS] = 0;
        st->newest = counter;
    }
    st->seen[counter / 64 % WORDS] |= UINT64_C(1) << (counter % 64);
}

static bool same(const stream *st, const source *of) {
    return st->of.transmitter == of->transmitter && st->of.name == of->name && st->of.at.address == of->at.address &&
           st->of.at.port == of->at.port && st->of.epoch == of->epoch && st->of.cipher == of->cipher;
}

static stream *find(rs_seal *s, const source *of) {
    if (s->last && same(s->last, of))
        return s->last;
    for (size_t i = bucket_of(of) % s->buckets; s->streams[i]; i = (i + 1) % s->buckets)
        if (same(s->streams[i], of))
            return s->last = s->streams[i];
    return NULL;
}

static bool has_room(rs_seal *s) {
    return (s->stats.streams + 1) * 2 <= s->buckets || settle(s, s->buckets * 2, NULL);
}

/* Of somebody who was not heard yet: in `spare`, until a tag was right. NULL: out of memory. */
static stream *candidate(rs_seal *s, const epoch *e, const source *of) {
    uint8_t key[RS_AEAD_KEY];
    stream *st = s->spare ? s->spare : (s->spare = calloc(1, sizeof *st));
    if (!st)
        return NULL;
    if (st->aead && same(st, of))
        return st;
    bool ready = derive(e, of->cipher, of->name, of->transmitter, key, st->nonce);
    if (ready && st->aead && st->of.cipher == of->cipher) {
        ready = rs_aead_rekey(st->aead, key);
    } else if (ready) {
        rs_aead_free(st->aead);
        ready = (st->aead = rs_aead_new(of->cipher, key, false)) != NULL;
    }
    rs_wipe(key, sizeof key);
    st->of = *of;
    if (ready)
        return st;
    free_stream(st);
    s->spare = NULL;
    return NULL;
}

static rs_seal_verdict judge(rs_seal *s, rs_seal_place place, size_t clear, const uint8_t *bytes, size_t length,
                             uint8_t *head, size_t head_length, uint8_t *rest) {
    const uint8_t *at = bytes + clear, *body = at + RS_SEAL_HEAD;
    if (length <= clear || (at[0] & KIND_MASK) != KIND || (s->named && clear != RS_SEAL_SHOWN))
        return RS_SEAL_PLAIN;
    if (length < clear + RS_SEAL_MORE)
        return RS_SEAL_SHORT;
    rs_cipher cipher = (rs_cipher)(at[0] & ~KIND_MASK);
    if (cipher != RS_AES_256_GCM && cipher != RS_CHACHA20_POLY1305)
        return RS_SEAL_FORGED;
    uint64_t counter = get(at + 1, COUNTER_BYTES);
    if (counter == 0 || counter > RS_SEAL_PACKETS)
        return RS_SEAL_FORGED; /* no transmitter goes so far with a key */
    const epoch *e = find_epoch(s, (uint16_t)get(at + 6, 2));
    if (!e || e->own)
        return RS_SEAL_EPOCH;
    const source of = {.epoch = e->number,
                       .name = s->named ? rs_seal_shown(bytes) : 0,
                       .transmitter = (uint32_t)get(at + 8, 4),
                       .at = place,
                       .cipher = cipher};
    stream *known = find(s, &of), *st = known;
    const bool again = st && !is_new(st, counter); /* or another holder of the key has used that counter */
    if (again && !s->shared)
        return RS_SEAL_REPLAYED;
    if (!st && (s->stats.streams >= RS_SEAL_STREAMS || !has_room(s)))
        return RS_SEAL_ROOM;
    if (!st && !(st = candidate(s, e, &of)))
        return RS_SEAL_ROOM;
    uint8_t nonce[RS_AEAD_NONCE], more[BESIDE_MOST], shown[RS_SEAL_CLEAR_MOST];
    nonce_of(st->nonce, counter, nonce);
    size_t hidden = length - clear - RS_SEAL_MORE;
    size_t first = head_length > clear ? head_length - clear : 0;
    first = first < hidden ? first : hidden;
    size_t beside_length = beside(place, bytes, clear, at, more);
    memcpy(shown, bytes, clear); /* `head` may lie there */
    const bool whole = rest == head + clear + first;
    const rs_aead_piece pieces[2] = {{body, head + clear, whole ? hidden : first},
                                     {body + first, rest, hidden - first}};
    uint8_t tag[RS_AEAD_TAG];
    memcpy(tag, body + hidden, sizeof tag);
    if (!rs_aead_open(st->aead, nonce, more, beside_length, pieces, whole ? 1 : 2, tag))
        return RS_SEAL_FORGED;
    memcpy(head, shown, clear);
    if (again)
        return RS_SEAL_LATE;
    if (!known) {
        s->spare = NULL;
        insert(s, st);
        s->last = st;
        s->stats.streams++;
    }
    take(st, counter);
    return RS_SEAL_RIGHT;
}

rs_seal_verdict rs_seal_open(rs_seal *s, rs_seal_place at, size_t clear, const uint8_t *bytes, size_t length,
                             uint8_t *head, size_t head_length, uint8_t *rest) {
    rs_seal_verdict verdict = judge(s, at, clear, bytes, length, head, head_length, rest);
    if (verdict == RS_SEAL_LATE)
        s->stats.late++;
    else
        s->stats.opened[verdict]++;
    return verdict;
}

void rs_seal_stats_get(const rs_seal *s, rs_seal_stats *out) {
    *out = s->stats;
}

void rs_seal_skip(rs_seal *s, uint64_t counter) {
    s->counter = counter - 1;
}

void rs_seal_shared(rs_seal *s) {
    s->shared = true;
}

/* ----------------------------------------------------------------------------------------------------------- birth */

static rs_seal *new_seal(rs_cipher cipher, bool named) {
    rs_seal *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->cipher = cipher;
    s->named = named;
    s->buckets = BUCKETS_FIRST;
    s->streams = calloc(s->buckets, sizeof *s->streams);
    if (s->streams)
        return s;
    free(s);
    return NULL;
}

rs_seal *rs_seal_new(rs_cipher cipher) {
    return new_seal(cipher, false);
}

rs_seal *rs_seal_new_named(void) {
    return new_seal(RS_AES_256_GCM, true);
}

void rs_seal_free(rs_seal *s) {
    if (!s)
        return;
    for (size_t i = 0; i < s->buckets; i++)
        free_stream(s->streams[i]);
    free_stream(s->spare);
    rs_aead_free(s->aead);
    free(s->streams);
    rs_wipe(s, sizeof *s);
    free(s);
}
