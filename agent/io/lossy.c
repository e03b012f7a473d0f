/* Interceptor that loses received datagrams on purpose, or changes, doubles and reorders them, reproducibly: for tests
 * and experiments. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/loss_pattern.h"
#include "core/base/random.h"
#include "io/io.h"

typedef enum { UNIFORM, BURST, GILBERT, FIRST, PATTERN, CORRUPT } loss_kind;

#define HELD_MOST 64u /* datagrams whose payload is dealt with after the receive call */

/* CORRUPT: a datagram that is spoilt. Its payload is there when the receive call is over. */
typedef struct {
    rs_io_group group;
    uint8_t header[RS_IO_HEADER_BYTES];
    size_t header_length;
    uint8_t *place; /* FLIP and DOUBLE: where the sink has its payload; LATE: the payload, ours */
    uint32_t length;
    enum { FLIP, DOUBLE, LATE } how;
    uint64_t bit;    /* FLIP: of the payload */
    uint32_t source; /* who sent it */
    bool whole;      /* LATE, for a sink that reads whole datagrams: `place` has the header, too */
} spoilt;

typedef struct {
    loss_kind kind;
    double probability; /* of all datagrams; FIRST: unused; CORRUPT: of being spoilt, a third of them each way */
    double length;      /* mean or exact run; FIRST: how many */
    uint64_t seed;
} loss_spec;

/* Loss of one group goes its own way, so that what happens does not depend on how groups interleave. */
typedef struct loss_state {
    struct loss_state *next;
    rs_io_group group;
    uint64_t random;
    bool bad;
    uint64_t run_left; /* BURST, FIRST: datagrams still to lose */
    rs_loss_pattern pattern;
} loss_state;

typedef struct {
    rs_io base;
    rs_io *inner;
    loss_spec spec;
    loss_state *states;
    uint64_t lost; /* or spoilt */
    spoilt held[HELD_MOST];
    unsigned held_count;
    const rs_io_sink *sink;   /* the upper one, during a receive call */
    const spoilt *delivering; /* one that the inner io does not deliver just now */
} lossy_io;

/* ------------------------------------------------------------------------------------------------------- the spec */

static bool parse_number(const char **text, double *out) {
    char *end;
    if (**text != ':')
        return false;
    errno = 0;
    *out = strtod(*text + 1, &end);
    if (end == *text + 1 || errno != 0 || !isfinite(*out))
        return false;
    *text = end;
    return true;
}

static bool parse_seed(const char **text, uint64_t *seed) {
    if (**text == '\0')
        return true;
    if (strncmp(*text, ":seed=", 6) != 0)
        return false;
    char *end;
    errno = 0;
    *seed = strtoull(*text + 6, &end, 10);
    bool ok = end != *text + 6 && errno == 0 && *end == '\0' && (*text)[6] != '-';
    *text = end;
    return ok;
}

static bool parse_spec(const char *text, loss_spec *out, char *error) {
    static const char *const names[] = {"uniform", "burst", "gilbert", "first", "pattern", "corrupt"};
    size_t name_length = strcspn(text, ":");
    const char *rest = text + name_length;
    *out = (loss_spec){.length = 1};
    int kind = -1;
    for (int i = 0; i < 6; i++)
        if (strlen(names[i]) == name_length && strncmp(text, names[i], name_length) == 0)
            kind = i;
    bool ok = kind >= 0;
    if (ok)
        out->kind = (loss_kind)kind;
    if (ok && out->kind != FIRST)
        ok = parse_number(&rest, &out->probability) && out->probability >= 0 && out->probability <= 1;
    bool has_length =
        out->kind != UNIFORM && out->kind != CORRUPT && (out->kind != PATTERN || (*rest == ':' && rest[1] != 's'));
    if (ok && has_length)
        ok = parse_number(&rest, &out->length) && out->length >= 1 && out->length <= 1e9 && out->probability < 1;
    ok = ok && (out->kind != PATTERN || out->length <= RS_LOSS_RUN_MAX) && parse_seed(&rest, &out->seed);
    /* A run of N is left after N in the mean: the chain must enter it more seldom than always. */
    if (ok && out->kind == GILBERT)
        ok = out->probability / (1 - out->probability) / out->length <= 1;
    if (!ok)
        snprintf(
            error, RS_IO_ERROR_MAX,
            "loss \"%.40s\" is not understood: uniform:P, burst:P:N, gilbert:P:N (P a share from 0 to 1, N a run "
            "of 1 or more), pattern:P or pattern:P:N (N to 64), corrupt:P or first:N, then :seed=S if wanted, as in "
            "gilbert:0.01:5",
            text);
    return ok;
}

bool rs_io_lossy_check(const char *spec, char *error) {
    loss_spec parsed;
    return parse_spec(spec, &parsed, error);
}

/* ------------------------------------------------------------------------------------------------------ the chance */

static bool chance(loss_state *state, double probability) {
    return rs_random_part(rs_random_next(&state->random)) < probability;
}

/* Good datagrams between two runs are geometric; their mean makes the lost ones P of all. */
static bool lose_burst(loss_state *state, const loss_spec *spec) {
    double p = spec->probability, n = floor(spec->length);
    if (state->run_left == 0 && chance(state, p / (p + n * (1 - p))))
        state->run_left = (uint64_t)n;
    if (state->run_left == 0)
        return false;
    state->run_left--;
    return true;
}

static bool lose_gilbert(loss_state *state, const loss_spec *spec) {
    double leave = 1 / spec->length, enter = leave * spec->probability / (1 - spec->probability);
    state->bad = state->bad ? !chance(state, leave) : chance(state, enter);
    return state->bad;
}

static bool lose_first(loss_state *state) {
    if (state->run_left == 0)
        return false;
    state->run_left--;
    return true;
}

static bool lose(loss_state *state, const loss_spec *spec, const uint8_t *header, size_t length) {
    switch (spec->kind) {
    case UNIFORM:
        return chance(state, spec->probability);
    case BURST:
        return lose_burst(state, spec);
    case GILBERT:
        return lose_gilbert(state, spec);
    case FIRST:
        return lose_first(state);
    case PATTERN:
        return rs_loss_pattern_loses(&state->pattern, header, length);
    case CORRUPT:
        return false;
    }
    return false;
}

/* A datagram in one piece, to a sink that may read it all at once. */
static void deliver_datagram(lossy_io *io, const spoilt *s, const uint8_t *bytes) {
    io->delivering = s;
    uint8_t *place = io->sink->deliver(io->sink->context, s->group, bytes, s->header_length, s->length);
    io->delivering = NULL;
    if (place)
        memcpy(place, bytes + s->header_length, s->length);
}

static void spoil_datagram(lossy_io *io, spoilt *s, const uint8_t *bytes, uint64_t bit) {
    size_t length = s->header_length + s->length;
    uint8_t *copy = malloc(length);
    if (!copy)
        return;
    memcpy(copy, bytes, length);
    s->whole = true;
    s->place = copy;
    if (s->how == LATE) {
        io->held_count++;
        return;
    }
    if (s->how == FLIP)
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
    else
        deliver_datagram(io, s, copy);
    deliver_datagram(io, s, copy);
    free(copy);
}

/* One of the three: a bit of header or payload is another; it comes twice; it comes after later ones. */
static uint8_t *spoil(lossy_io *io, loss_state *state, const uint8_t *header, size_t header_length, uint32_t length) {
    spoilt *s = &io->held[io->held_count];
    *s = (spoilt){.group = state->group, .header_length = header_length, .length = length};
    memcpy(s->header, header, header_length);
    uint64_t bits = (header_length + length) * 8u, bit = rs_random_next(&state->random) % bits;
    s->how = rs_random_next(&state->random) % 3;
    s->source = rs_io_source(io->inner);
    io->lost++;
    if (!io->sink->predict) {
        spoil_datagram(io, s, header, bit);
        return NULL;
    }
    if (s->how == LATE) {
        s->place = malloc(length ? length : 1);
        io->held_count += s->place != NULL;
        return s->place;
    }
    if (s->how == FLIP && bit < header_length * 8u)
        s->header[bit / 8] ^= (uint8_t)(1u << bit % 8);
    s->place = io->sink->deliver(io->sink->context, state->group, s->header, header_length, length);
    s->bit = bit - header_length * 8u;
    if (s->place && !(s->how == FLIP && bit < header_length * 8u))
        io->held_count++;
    return s->place;
}

static void deliver_held(lossy_io *io, const spoilt *s, const uint8_t *payload) {
    if (s->whole) {
        deliver_datagram(io, s, payload);
        return;
    }
    io->delivering = s;
    uint8_t *place = io->sink->deliver(io->sink->context, s->group, s->header, s->header_length, s->length);
    io->delivering = NULL;
    if (place)
        memcpy(place, payload, s->length);
}

/* Payloads are in their places now. Those that come late wait for the next call, whatever comes with it. */
static void spoil_payloads(lossy_io *io) {
    unsigned left = 0;
    for (unsigned i = 0; i < io->held_count; i++) {
        const spoilt *s = &io->held[i];
        if (s->how == LATE)
            io->held[left++] = *s;
        else if (s->how == FLIP)
            s->place[s->bit / 8] ^= (uint8_t)(1u << s->bit % 8);
        else
            deliver_held(io, s, s->place);
    }
    io->held_count = left;
}

static void deliver_late(lossy_io *io, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        deliver_held(io, &io->held[i], io->held[i].place);
        free(io->held[i].place);
    }
    memmove(&io->held[0], &io->held[count], (io->held_count - count) * sizeof io->held[0]);
    io->held_count -= count;
}

/* ------------------------------------------------------------------------------------------------------ the wrapper */

static bool pass_predict(void *context, rs_io_group group, uint32_t ahead, uint8_t **place, uint32_t *length) {
    const rs_io_sink *sink = ((lossy_io *)context)->sink;
    return sink->predict && sink->predict(sink->context, group, ahead, place, length);
}

static uint8_t *lose_or_deliver(void *context, rs_io_group group, const uint8_t *header, size_t header_length,
                                uint32_t payload_length) {
    lossy_io *io = context;
    for (loss_state *state = io->states; state; state = state->next)
        if (state->group == group && io->spec.kind == CORRUPT && io->held_count < HELD_MOST &&
            (header_length == RS_IO_HEADER_BYTES || (!io->sink->predict && header_length > 0)) &&
            chance(state, io->spec.probability))
            return spoil(io, state, header, header_length, payload_length);
        else if (state->group == group && lose(state, &io->spec, header, header_length)) {
            io->lost++;
            return NULL;
        }
    return io->sink->deliver(io->sink->context, group, header, header_length, payload_length);
}

static int lossy_receive(rs_io *base, unsigned limit, const rs_io_sink *sink) {
    lossy_io *io = (lossy_io *)base;
    const rs_io_sink own = {.predict = sink->predict ? pass_predict : NULL, .deliver = lose_or_deliver, .context = io};
    io->sink = sink;
    unsigned late = io->held_count;
    int count = rs_io_receive(io->inner, limit, &own);
    deliver_late(io, late);
    spoil_payloads(io);
    io->sink = NULL;
    return count == 0 ? (int)late : count; /* late ones alone are packets, too: their payloads are in place now */
}

static bool lossy_join(rs_io *base, rs_io_group group, uint32_t address, uint16_t port, char *error) {
    lossy_io *io = (lossy_io *)base;
    loss_state *state = calloc(1, sizeof *state);
    if (!state) {
        snprintf(error, RS_IO_ERROR_MAX, "no memory to join another group");
        return false;
    }
    if (!rs_io_join(io->inner, group, address, port, error)) {
        free(state);
        return false;
    }
    *state =
        (loss_state){.next = io->states, .group = group, .random = io->spec.seed ^ ((uint64_t)address << 16) ^ port};
    if (io->spec.kind == FIRST)
        state->run_left = (uint64_t)io->spec.length;
    if (io->spec.kind == PATTERN)
        state->pattern = rs_loss_pattern_of(io->spec.seed, io->spec.probability, (uint32_t)io->spec.length);
    io->states = state;
    return true;
}

static void lossy_leave(rs_io *base, rs_io_group group) {
    lossy_io *io = (lossy_io *)base;
    rs_io_leave(io->inner, group);
    unsigned left = 0;
    for (unsigned i = 0; i < io->held_count; i++)
        if (io->held[i].group == group)
            free(io->held[i].place);
        else
            io->held[left++] = io->held[i];
    io->held_count = left;
    for (loss_state **at = &io->states; *at; at = &(*at)->next)
        if ((*at)->group == group) {
            loss_state *gone = *at;
            *at = gone->next;
            free(gone);
            return;
        }
}

static void lossy_close(rs_io *base) {
    lossy_io *io = (lossy_io *)base;
    rs_io_close(io->inner);
    for (unsigned i = 0; i < io->held_count; i++)
        free(io->held[i].place);
    while (io->states) {
        loss_state *gone = io->states;
        io->states = gone->next;
        free(gone);
    }
    free(io);
}

static int lossy_send(rs_io *base, const rs_io_packet *packets, unsigned count) {
    return rs_io_send(((lossy_io *)base)->inner, packets, count);
}

static int lossy_receive_fd(const rs_io *base) {
    return rs_io_receive_fd(((const lossy_io *)base)->inner);
}

static int lossy_send_fd(const rs_io *base) {
    return rs_io_send_fd(((const lossy_io *)base)->inner);
}

static void lossy_wake(rs_io *base, bool by_arrivals) {
    rs_io_wake(((lossy_io *)base)->inner, by_arrivals);
}

static uint64_t lossy_drops(const rs_io *base, rs_io_group group) {
    return rs_io_drops(((const lossy_io *)base)->inner, group);
}

static uint32_t lossy_source(const rs_io *base) {
    const lossy_io *io = (const lossy_io *)base;
    return io->delivering ? io->delivering->source : rs_io_source(io->inner);
}

static bool lossy_marked(const rs_io *base) {
    const lossy_io *io = (const lossy_io *)base;
    return !io->delivering && rs_io_marked(io->inner);
}

static int64_t lossy_waited(const rs_io *base, rs_io_group group) {
    return rs_io_waited(((const lossy_io *)base)->inner, group);
}

static uint64_t lossy_receive_room(const rs_io *base, rs_io_group group) {
    return rs_io_receive_room(((const lossy_io *)base)->inner, group);
}

static void lossy_stats(const rs_io *base, rs_io_stats *out) {
    const lossy_io *io = (const lossy_io *)base;
    rs_io_stats_get(io->inner, out);
    out->intercepted += io->lost;
}

static const rs_io_ops lossy_ops = {.name = "lossy",
                                    .summary = "loses received datagrams on purpose",
                                    .close = lossy_close,
                                    .send = lossy_send,
                                    .join = lossy_join,
                                    .leave = lossy_leave,
                                    .receive = lossy_receive,
                                    .receive_fd = lossy_receive_fd,
                                    .send_fd = lossy_send_fd,
                                    .wake = lossy_wake,
                                    .drops = lossy_drops,
                                    .receive_room = lossy_receive_room,
                                    .waited = lossy_waited,
                                    .source = lossy_source,
                                    .marked = lossy_marked,
                                    .stats = lossy_stats};

rs_io *rs_io_lossy(rs_io *inner, const char *spec, uint64_t seed, char *error) {
    loss_spec parsed;
    lossy_io *io = NULL;
    if (parse_spec(spec, &parsed, error)) {
        io = calloc(1, sizeof *io);
        if (!io)
            snprintf(error, RS_IO_ERROR_MAX, "no memory for the loss interceptor");
    }
    if (!io) {
        rs_io_close(inner);
        return NULL;
    }
    *io = (lossy_io){.base.ops = &lossy_ops, .inner = inner, .spec = parsed};
    /* A pattern is that of the simulator, too, which knows of the agent's seed alone. */
    io->spec.seed ^= parsed.kind == PATTERN ? seed : seed * RS_RANDOM_STEP;
    return &io->base;
}
