#include "daemon/seal/packets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/wire.h"
#include "core/groups/messages.h"
#include "io/guard.h"

#define FLAGS_AT 3
#define ROOM 66048u         /* a datagram and what its seal adds; not all begin at the same cache line's number */
#define STAGED 256u         /* datagrams in pieces that one receive call takes */
#define HEADER_MOST 64u     /* of which it is known whether the same packet comes again */
#define OPENED 16u          /* group messages that are opened, one after another, before the first of them is given */
#define OPENED_BYTES 16384u /* of them, at most: all stay in the first cache */

/* A packet that was sealed and that the NIC did not take: it comes again, and is not sealed twice. */
typedef struct {
    rs_io_packet packet;
    uint8_t header[HEADER_MOST];
    const rs_seal *by;
    uint64_t counter;
} sealed;

typedef struct {
    rs_io_group group;
    uint32_t length, source;
    bool marked;
} staged;

/* What was opened and is not given yet. */
typedef struct {
    staged from;
    uint8_t *bytes;
    size_t length;
    bool late;
} opened;

typedef struct {
    rs_io base;
    rs_io *inner;
    rs_keyring *ring;
    rs_seal_traffic traffic;
    bool whole;
    rs_seal_place places[RS_IO_GROUPS_MAX]; /* of groups, by number */
    /* sending: a ring of RS_IO_BATCH rooms */
    uint8_t *rooms;
    sealed waiting[RS_IO_BATCH];
    unsigned first, filled;
    /* receiving */
    const rs_io_sink *sink;
    uint8_t *scratch;      /* for what is not predicted */
    uint8_t *staged_rooms; /* NULL while nothing came in pieces */
    staged staged[STAGED];
    unsigned staged_count;
    opened opened[OPENED]; /* in `scratch` */
    unsigned opened_count;
    uint32_t opened_bytes;
    const staged *delivering; /* NULL: what the inner one is giving */
    bool late;                /* what is being given was sealed long before others of its transmitter that came */
} seal_io;

static void *memory(size_t bytes) {
    void *got = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return got == MAP_FAILED ? NULL : got;
}

/* -------------------------------------------------------------------------------------------------------- sending */

typedef struct {
    seal_io *io;
    const rs_io_packet *packets;
    unsigned count;
    volatile unsigned done; /* a fault may end it in the middle */
} job;

static bool same_packet(const sealed *w, const rs_io_packet *p) {
    const rs_io_packet *q = &w->packet;
    return q->address == p->address && q->port == p->port && q->header_length == p->header_length &&
           q->payload_length == p->payload_length && q->payload == p->payload && q->markable == p->markable &&
           memcmp(w->header, p->header, p->header_length) == 0;
}

/* To a single host, keys alone say for whom it is: addresses may be translated on the way. */
static rs_seal_place place_of(uint32_t address, uint16_t port) {
    return address >> 28 == 14 ? (rs_seal_place){address, port} : (rs_seal_place){0, 0};
}

/* Group messages: which keys, and what the datagram shows. */
static bool scope_of(const uint8_t *bytes, size_t length, rs_keys_kind *kind, uint32_t *shown) {
    bool region;
    uint32_t number;
    if (!rs_messages_scope(bytes, length, &region, &number) || number & RS_SHOWN_REGION)
        return false;
    *kind = region ? RS_KEYS_REGION : RS_KEYS_GROUP;
    *shown = number | (region ? RS_SHOWN_REGION : 0);
    return true;
}

/* With what that packet is sealed; NULL: no key. */
static rs_seal *sealing(const seal_io *io, const rs_io_packet *p, uint32_t *shown) {
    uint64_t id;
    rs_keys_kind kind = RS_KEYS_TRANSFER_OUT;
    if (io->traffic == RS_SEAL_DATA)
        return rs_wire_nonce(p->header, p->header_length, &id) ? rs_keyring_find(io->ring, kind, id) : NULL;
    if (!scope_of(p->header, p->header_length, &kind, shown))
        return NULL;
    return rs_keyring_find(io->ring, kind, *shown & ~RS_SHOWN_REGION);
}

static bool close_packet(const seal_io *io, const rs_io_packet *p, sealed *w, uint8_t *out) {
    uint8_t flagged[HEADER_MOST];
    const rs_seal_place to = place_of(p->address, p->port);
    uint32_t shown = 0;
    rs_seal *by = sealing(io, p, &shown);
    if (!by)
        return false;
    bool done;
    if (io->traffic == RS_SEAL_MESSAGES) {
        done = rs_seal_close_shown(by, to, shown, p->header, p->header_length, p->payload, p->payload_length, out);
    } else {
        if (p->header_length < RS_IO_HEADER_BYTES || p->header_length > HEADER_MOST)
            return false;
        memcpy(flagged, p->header, p->header_length);
        flagged[FLAGS_AT] |= RS_DATA_SEALED;
        done = rs_seal_close(by, to, RS_IO_HEADER_BYTES, flagged, p->header_length, p->payload, p->payload_length, out);
    }
    w->by = by;
    w->counter = rs_seal_counter(by);
    return done;
}

static void seal_all(void *context) {
    job *j = context;
    seal_io *io = j->io;
    for (unsigned i = j->done; i < j->count; i++) {
        const rs_io_packet *p = &j->packets[i];
        unsigned at = (io->first + i) % RS_IO_BATCH;
        sealed *w = &io->waiting[at];
        w->packet = *p;
        if (p->header_length <= HEADER_MOST)
            memcpy(w->header, p->header, p->header_length);
        if (!close_packet(io, p, w, io->rooms + (size_t)at * ROOM)) {
            return;
        }
        j->done = i + 1;
    }
}

/* How many of the packets were sealed before, and wait. Their counters must not be older than receivers look back. */
static unsigned known(const seal_io *io, const rs_io_packet *packets, unsigned count) {
    unsigned found = 0;
    while (found < count && found < io->filled) {
        const sealed *w = &io->waiting[(io->first + found) % RS_IO_BATCH];
        uint32_t shown;
        const rs_seal *by = sealing(io, &packets[found], &shown);
        if (packets[found].header_length > HEADER_MOST || !same_packet(w, &packets[found]) || !by || by != w->by ||
            rs_seal_counter(by) - w->counter > RS_SEAL_WINDOW / 4)
            break;
        found++;
    }
    return found;
}

static int seal_send(rs_io *base, const rs_io_packet *packets, unsigned count) {
    seal_io *io = (seal_io *)base;
    rs_io_packet out[RS_IO_BATCH];
    count = count < RS_IO_BATCH ? count : RS_IO_BATCH;
    job j = {.io = io, .packets = packets, .count = count, .done = known(io, packets, count)};
    bool read = rs_guard_run(seal_all, &j);
    const unsigned ready = j.done;
    io->filled = ready;
    if (ready == 0 && !read)
        return RS_IO_UNREADABLE;
    if (ready == 0) { /* without a key the first is lost: others may have theirs */
        rs_keyring_count_unsealable(io->ring);
        return 1;
    }
    const uint32_t more = io->traffic == RS_SEAL_MESSAGES ? RS_SEAL_SHOWN + RS_SEAL_MORE : RS_SEAL_MORE;
    for (unsigned i = 0; i < ready; i++) {
        const uint8_t *room = io->rooms + (size_t)((io->first + i) % RS_IO_BATCH) * ROOM;
        uint32_t length = packets[i].header_length + packets[i].payload_length + more;
        uint32_t head = length < RS_IO_HEADER_BYTES ? length : RS_IO_HEADER_BYTES;
        out[i] = packets[i];
        out[i].header = room;
        out[i].header_length = (uint16_t)head;
        out[i].payload = room + head;
        out[i].payload_length = length - head;
    }
    int taken = rs_io_send(io->inner, out, ready);
    if (taken > 0) {
        io->first = (io->first + (unsigned)taken) % RS_IO_BATCH;
        io->filled -= (unsigned)taken;
    }
    return taken;
}

/* ------------------------------------------------------------------------------------------------------ receiving */

typedef struct {
    rs_seal *by;
    rs_seal_place at;
    size_t clear;
    const uint8_t *bytes;
    size_t length;
    uint8_t *head, *rest;
    rs_seal_verdict verdict;
} opening;

static void open_it(void *context) {
    opening *o = context;
    o->verdict = rs_seal_open(o->by, o->at, o->clear, o->bytes, o->length, o->head, RS_IO_HEADER_BYTES, o->rest);
}

/* With what a datagram is opened; NULL: it is of no transfer or group of this agent, or not sealed. * */
static rs_seal *opener(const seal_io *io, const uint8_t *bytes, size_t length, size_t clear) {
    uint64_t nonce;
    rs_seal *by = NULL;
    bool looks = length > clear;
    if (looks && io->traffic == RS_SEAL_DATA) {
        looks = bytes[FLAGS_AT] & RS_DATA_SEALED && rs_wire_nonce(bytes, length, &nonce);
        by = looks ? rs_keyring_find(io->ring, RS_KEYS_TRANSFER_IN, nonce) : NULL;
    } else if (looks) {
        uint32_t shown = rs_seal_shown(bytes);
        looks = rs_seal_looks_sealed(bytes + clear, length - clear);
        by = looks ? rs_keyring_find(io->ring, shown & RS_SHOWN_REGION ? RS_KEYS_REGION : RS_KEYS_GROUP,
                                     shown & ~RS_SHOWN_REGION)
                   : NULL;
    }
    if (!by)
        rs_keyring_count(io->ring, looks ? RS_SEAL_SCOPE : RS_SEAL_PLAIN);
    return by;
}

static uint32_t seal_source(const rs_io *base) {
    const seal_io *io = (const seal_io *)base;
    return io->delivering ? io->delivering->source : rs_io_source(io->inner);
}

static bool seal_marked(const rs_io *base) {
    const seal_io *io = (const seal_io *)base;
    return io->delivering ? io->delivering->marked : rs_io_marked(io->inner);
}

/* Group messages in one piece: what it shows is what it is of. */
static void give_message(const seal_io *io, rs_io_group group, const uint8_t *bytes, size_t length) {
    rs_keys_kind kind;
    uint32_t shown;
    const uint8_t *own = bytes + RS_SEAL_SHOWN;
    size_t rest = length - RS_SEAL_SHOWN, head = rest < RS_IO_HEADER_BYTES ? rest : RS_IO_HEADER_BYTES;
    if (scope_of(own, rest, &kind, &shown) && shown == rs_seal_shown(bytes))
        (void)io->sink->deliver(io->sink->context, group, own, head, (uint32_t)(rest - head));
    else
        rs_keyring_count(io->ring, RS_SEAL_SCOPE);
}

/* What was opened, in the order it came in. */
static void give_opened(seal_io *io) {
    const unsigned count = io->opened_count;
    const staged *before = io->delivering;
    for (unsigned i = 0; i < count; i++) {
        const opened *o = &io->opened[i];
        io->delivering = &o->from;
        io->late = o->late;
        give_message(io, o->from.group, o->bytes, o->length);
    }
    io->delivering = before;
    io->opened_count = 0;
    io->opened_bytes = 0;
}

/* Group messages in one piece: several are opened before the first is given. What opens and what takes them are more
 * code than the first cache holds: by turns, each finds its own gone. */
static void open_message(seal_io *io, rs_io_group group, const uint8_t *bytes, size_t length) {
    const size_t plain = length > RS_SEAL_MORE ? length - RS_SEAL_MORE : 0;
    rs_seal *by = plain > RS_IO_PAYLOAD_MAX ? NULL : opener(io, bytes, length, RS_SEAL_SHOWN);
    if (!by)
        return;
    if (io->opened_count == OPENED || io->opened_bytes + plain > OPENED_BYTES)
        give_opened(io);
    uint8_t *at = io->scratch + io->opened_bytes;
    const rs_seal_verdict verdict = rs_seal_open(by, io->places[group], RS_SEAL_SHOWN, bytes, length, at,
                                                 RS_IO_HEADER_BYTES, at + RS_IO_HEADER_BYTES);
    if (verdict != RS_SEAL_RIGHT && verdict != RS_SEAL_LATE)
        return;
    io->opened[io->opened_count++] = (opened){
        .from = {.group = group, .source = seal_source(&io->base), .marked = seal_marked(&io->base)},
        .bytes = at,
        .length = plain,
        .late = verdict == RS_SEAL_LATE,
    };
    io->opened_bytes += (uint32_t)(plain + 63) / 64 * 64;
}

/* One datagram in one piece, to whom it is for; nobody has seen it until its tag was right. */
static void open_datagram(seal_io *io, rs_io_group group, const uint8_t *bytes, size_t length) {
    const rs_io_sink *sink = io->sink;
    if (io->traffic == RS_SEAL_MESSAGES) {
        open_message(io, group, bytes, length);
        return;
    }
    uint8_t header[RS_IO_HEADER_BYTES], *place = NULL;
    size_t plain = length > RS_SEAL_MORE ? length - RS_SEAL_MORE : 0;
    uint32_t head = plain < RS_IO_HEADER_BYTES ? (uint32_t)plain : RS_IO_HEADER_BYTES, room = 0;
    const uint32_t rest = (uint32_t)plain - head;
    rs_seal *by = plain > RS_IO_PAYLOAD_MAX ? NULL : opener(io, bytes, length, RS_IO_HEADER_BYTES);
    if (!by)
        return;
    if (sink->predict && (!sink->predict(sink->context, group, 0, &place, &room) || room < rest))
        place = NULL;
    opening o = {.by = by,
                 .at = io->places[group],
                 .clear = RS_IO_HEADER_BYTES,
                 .bytes = bytes,
                 .length = length,
                 .head = sink->predict ? header : io->scratch,
                 .rest = place ? place : io->scratch + RS_IO_HEADER_BYTES,
                 .verdict = RS_SEAL_FORGED};
    if (place && !rs_guard_run(open_it, &o)) { /* the object's file was shortened: what it opened to is gone */
        place = NULL;
        o.rest = io->scratch + RS_IO_HEADER_BYTES;
        open_it(&o);
    } else if (!place) {
        open_it(&o);
    }
    if (o.verdict != RS_SEAL_RIGHT && o.verdict != RS_SEAL_LATE)
        return;
    io->late = o.verdict == RS_SEAL_LATE;
    o.head[FLAGS_AT] &= (uint8_t)~RS_DATA_SEALED;
    uint8_t *target = sink->deliver(sink->context, group, o.head, head, rest);
    if (target && target != o.rest && rest > 0)
        (void)rs_guard_copy(target, o.rest, rest); /* a shortened file: its digest will tell */
}

static uint8_t *take(void *context, rs_io_group group, const uint8_t *header, size_t header_length,
                     uint32_t payload_length) {
    seal_io *io = context;
    if (io->whole || payload_length == 0) {
        open_datagram(io, group, header, header_length + payload_length);
        return NULL;
    }
    if (io->staged_count == STAGED || payload_length > RS_IO_PAYLOAD_MAX)
        return NULL;
    uint8_t *room = io->staged_rooms + (size_t)io->staged_count * ROOM;
    io->staged[io->staged_count++] = (staged){.group = group,
                                              .length = (uint32_t)header_length + payload_length,
                                              .source = rs_io_source(io->inner),
                                              .marked = rs_io_marked(io->inner)};
    memcpy(room, header, header_length);
    return room + header_length;
}

static int seal_receive(rs_io *base, unsigned limit, const rs_io_sink *sink) {
    seal_io *io = (seal_io *)base;
    const rs_io_sink own = {.deliver = take, .context = io};
    if (!io->whole)
        limit = limit < STAGED ? limit : STAGED;
    io->sink = sink;
    int count = rs_io_receive(io->inner, limit, &own);
    for (unsigned i = 0; i < io->staged_count; i++) {
        io->delivering = &io->staged[i];
        open_datagram(io, io->staged[i].group, io->staged_rooms + (size_t)i * ROOM, io->staged[i].length);
    }
    io->delivering = NULL;
    give_opened(io);
    io->staged_count = 0;
    io->sink = NULL;
    return count;
}

static bool seal_join(rs_io *base, rs_io_group group, uint32_t address, uint16_t port, char *error) {
    seal_io *io = (seal_io *)base;
    if (group >= RS_IO_GROUPS_MAX) {
        snprintf(error, RS_IO_ERROR_MAX, "group numbers of sealed packets are below %d", RS_IO_GROUPS_MAX);
        return false;
    }
    if (!rs_io_join(io->inner, group, address, port, error))
        return false;
    io->places[group] = place_of(address, port);
    return true;
}

/* ------------------------------------------------------------------------------------------------------ the wrapper */

static void seal_leave(rs_io *base, rs_io_group group) {
    rs_io_leave(((seal_io *)base)->inner, group);
}

static void seal_close(rs_io *base) {
    seal_io *io = (seal_io *)base;
    rs_io_close(io->inner);
    if (io->rooms)
        munmap(io->rooms, (size_t)RS_IO_BATCH * ROOM);
    if (io->staged_rooms)
        munmap(io->staged_rooms, (size_t)STAGED * ROOM);
    free(io->scratch);
    free(io);
}

static int seal_receive_fd(const rs_io *base) {
    return rs_io_receive_fd(((const seal_io *)base)->inner);
}

static int seal_send_fd(const rs_io *base) {
    return rs_io_send_fd(((const seal_io *)base)->inner);
}

static void seal_wake(rs_io *base, bool by_arrivals) {
    rs_io_wake(((seal_io *)base)->inner, by_arrivals);
}

static uint64_t seal_drops(const rs_io *base, rs_io_group group) {
    return rs_io_drops(((const seal_io *)base)->inner, group);
}

static uint64_t seal_receive_room(const rs_io *base, rs_io_group group) {
    return rs_io_receive_room(((const seal_io *)base)->inner, group);
}

static int64_t seal_waited(const rs_io *base, rs_io_group group) {
    return rs_io_waited(((const seal_io *)base)->inner, group);
}

static bool seal_late(const rs_io *base) {
    return ((const seal_io *)base)->late;
}

static void seal_stats(const rs_io *base, rs_io_stats *out) {
    rs_io_stats_get(((const seal_io *)base)->inner, out);
}

static const rs_io_ops seal_ops = {.name = "sealed",
                                   .summary = "seals what is sent and opens what comes",
                                   .close = seal_close,
                                   .send = seal_send,
                                   .join = seal_join,
                                   .leave = seal_leave,
                                   .receive = seal_receive,
                                   .receive_fd = seal_receive_fd,
                                   .send_fd = seal_send_fd,
                                   .wake = seal_wake,
                                   .drops = seal_drops,
                                   .receive_room = seal_receive_room,
                                   .waited = seal_waited,
                                   .source = seal_source,
                                   .marked = seal_marked,
                                   .late = seal_late,
                                   .stats = seal_stats};

rs_io *rs_seal_io(rs_io *inner, rs_keyring *ring, rs_seal_traffic traffic, bool whole) {
    seal_io *io = calloc(1, sizeof *io);
    if (!io) {
        rs_io_close(inner);
        return NULL;
    }
    io->base.ops = &seal_ops;
    io->inner = inner;
    io->ring = ring;
    io->traffic = traffic;
    io->whole = whole;
    io->scratch = malloc(ROOM);
    io->rooms = memory((size_t)RS_IO_BATCH * ROOM);
    io->staged_rooms = whole ? NULL : memory((size_t)STAGED * ROOM);
    if (io->scratch && io->rooms && (whole || io->staged_rooms))
        return &io->base;
    seal_close(&io->base);
    return NULL;
}
