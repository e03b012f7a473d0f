/* Batches between the core and the packet I/O.
 *
 * While packets come seldom, each wakes the loop, so that first light is seen at once. While they come densely the
 * socket is looked at by the clock instead, some packets a time: its buffer holds much more than comes in between,
 * and waking per packet would cost most of a core. */
#include "daemon/data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/wire.h"
#include "daemon/log.h"
#include "io/guard.h"

#define GROUPS_MAX 1024u
#define ROOM_EACH ((size_t)RS_FRAGMENT_MAX)
#define ROOMS_BYTES (RS_IO_BATCH * ROOM_EACH)
#define RECEIVE_TURN 256u /* datagrams read before the rest of the loop has its turn */
#define RECEIVE_PART 64u  /* ... and before they are digested: half a MB of jumbo frames is in the cache still */
#define ON_ROOMS_BYTES (RECEIVE_TURN * ROOM_EACH)
#define DENSE_GAP (150 * RS_MICROSECOND)     /* two arrivals closer than this are dense; attempts come more seldom */
#define DENSE_LOOK (400 * RS_MICROSECOND)    /* time between two looks at dense arrivals */
#define EMPTY_LOOKS 2                        /* looks without a packet after which arrivals wake the loop again */
#define BLOCKED_BOUND (100 * RS_MILLISECOND) /* a NIC that takes nothing this long loses what waits */

/* Where a waiting packet's payload lies, and where it goes: its group may be given up before it is sent. */
typedef struct {
    const uint8_t *payload;
    uint32_t address;
    uint16_t port;
} destination;

typedef struct {
    uint32_t address; /* 0 = free */
    uint16_t port;
    uint32_t senders, receivers;
    uint64_t drops;
    /* Sent to: where its packets really go; 0 = to itself. */
    uint32_t instead;
    uint16_t instead_port;
    /* A relay's: `alias` is where they come by unicast, whose `alias_of` this is; RS_NO_GROUP = none. */
    rs_group alias, alias_of;
    bool relays, by_unicast;
    uint32_t next; /* whom they are handed on to; 0 = nobody */
    uint16_t next_port;
} data_group;

/* A packet to hand on as it came, once its payload is in its place. */
typedef struct {
    uint8_t header[RS_IO_HEADER_BYTES];
    uint16_t header_length;
    uint32_t payload_length;
    const uint8_t *payload;
    rs_group group;
} handed_on;

struct rs_data {
    rs_loop *loop;
    rs_io *io;
    rs_data_callbacks callbacks;
    rs_watch readable, writable;
    data_group groups[GROUPS_MAX];
    uint32_t group_room; /* those in use are below this */
    uint32_t joined;
    /* sending */
    rs_packet_out slots[RS_IO_BATCH];
    destination destinations[RS_IO_BATCH];
    unsigned filled;
    uint8_t *rooms; /* for RS_IO_BATCH payloads, taken in turn */
    unsigned next_room;
    bool guarded, blocked;
    rs_time blocked_since;
    /* receiving */
    handed_on *on; /* RECEIVE_TURN; NULL until something is relayed */
    unsigned on_count;
    uint8_t *on_rooms; /* for payloads that are of no use here */
    unsigned on_room;
    uint64_t relayed, relay_lost;
    rs_time last_arrival, check_at; /* check_at RS_NEVER: arrivals wake the loop */
    int empty_looks;
    rs_log_limit complaints;
};

static void readable(void *context, uint32_t events);
static void writable(void *context, uint32_t events);

rs_data *rs_data_new(rs_loop *loop, rs_io *io, const rs_data_callbacks *callbacks) {
    rs_data *data = calloc(1, sizeof *data);
    if (!data) {
        rs_io_close(io);
        return NULL;
    }
    data->loop = loop;
    data->io = io;
    data->callbacks = *callbacks;
    void *rooms = mmap(NULL, ROOMS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data->rooms = rooms == MAP_FAILED ? NULL : rooms;
    data->guarded = rs_guard_start();
    data->check_at = RS_NEVER;
    data->readable = (rs_watch){.ready = readable, .context = data};
    data->writable = (rs_watch){.ready = writable, .context = data};
    if (!data->rooms || !data->guarded || !rs_loop_watch(loop, &data->readable, rs_io_receive_fd(io), EPOLLIN)) {
        rs_data_free(data);
        return NULL;
    }
    return data;
}

void rs_data_free(rs_data *data) {
    if (!data)
        return;
    rs_loop_unwatch(data->loop, &data->readable);
    rs_loop_unwatch(data->loop, &data->writable);
    rs_io_close(data->io);
    if (data->rooms)
        munmap(data->rooms, ROOMS_BYTES);
    if (data->on_rooms)
        munmap(data->on_rooms, ON_ROOMS_BYTES);
    free(data->on);
    if (data->guarded)
        rs_guard_stop();
    free(data);
}

/* --------------------------------------------------------------------------------------------------------- groups */

static rs_group number_of(rs_data *data, uint32_t address, uint16_t port) {
    rs_group unused = RS_NO_GROUP;
    for (uint32_t i = 0; i < data->group_room; i++) {
        if (data->groups[i].address == address && data->groups[i].port == port)
            return i;
        if (data->groups[i].address == 0 && unused == RS_NO_GROUP)
            unused = i;
    }
    if (unused == RS_NO_GROUP && data->group_room < GROUPS_MAX)
        unused = data->group_room++;
    if (unused != RS_NO_GROUP)
        data->groups[unused] =
            (data_group){.address = address, .port = port, .alias = RS_NO_GROUP, .alias_of = RS_NO_GROUP};
    return unused;
}

static void free_if_unused(rs_data *data, rs_group number) {
    data_group *group = &data->groups[number];
    if (group->senders == 0 && group->receivers == 0)
        group->address = 0;
}

rs_group rs_data_use(rs_data *data, uint32_t address, uint16_t port) {
    rs_group number = number_of(data, address, port);
    if (number != RS_NO_GROUP)
        data->groups[number].senders++;
    return number;
}

void rs_data_unuse(rs_data *data, rs_group number) {
    if (number == RS_NO_GROUP || data->groups[number].senders == 0)
        return;
    data->groups[number].senders--;
    free_if_unused(data, number);
}

rs_group rs_data_join(rs_data *data, uint32_t address, uint16_t port, char *error) {
    rs_group number = number_of(data, address, port);
    if (number == RS_NO_GROUP) {
        snprintf(error, RS_IO_ERROR_MAX, "too many groups at a time");
        return RS_NO_GROUP;
    }
    data_group *group = &data->groups[number];
    if (group->receivers == 0) {
        if (!rs_io_join(data->io, number, address, port, error)) {
            free_if_unused(data, number);
            return RS_NO_GROUP;
        }
        group->drops = 0;
        data->joined++;
    }
    group->receivers++;
    return number;
}

void rs_data_leave(rs_data *data, rs_group number) {
    if (number == RS_NO_GROUP || data->groups[number].receivers == 0)
        return;
    if (--data->groups[number].receivers == 0) {
        rs_io_leave(data->io, number);
        data->joined--;
    }
    free_if_unused(data, number);
}

/* -------------------------------------------------------------------------------------------------------- relays */

static rs_group find_group(const rs_data *data, uint32_t address, uint16_t port) {
    for (uint32_t i = 0; i < data->group_room; i++)
        if (data->groups[i].address == address && data->groups[i].port == port)
            return i;
    return RS_NO_GROUP;
}

static bool make_relay_rooms(rs_data *data, char *error) {
    if (!data->on_rooms) {
        void *rooms =
            mmap(NULL, ON_ROOMS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        data->on_rooms = rooms == MAP_FAILED ? NULL : rooms;
    }
    if (!data->on)
        data->on = calloc(RECEIVE_TURN, sizeof *data->on);
    if (data->on && data->on_rooms)
        return true;
    snprintf(error, RS_IO_ERROR_MAX, "no memory for relayed packets");
    return false;
}

bool rs_data_relay(rs_data *data, uint32_t address, uint16_t port, uint32_t here, uint16_t here_port, bool by_unicast,
                   char *error) {
    if (!make_relay_rooms(data, error))
        return false;
    rs_group number = rs_data_join(data, address, port, error);
    if (number == RS_NO_GROUP)
        return false;
    rs_group alias = by_unicast ? rs_data_join(data, here, here_port, error) : RS_NO_GROUP;
    if (by_unicast && alias == RS_NO_GROUP) {
        rs_data_leave(data, number);
        return false;
    }
    data_group *group = &data->groups[number];
    group->relays = true;
    group->by_unicast = by_unicast;
    group->alias = alias;
    if (by_unicast)
        data->groups[alias].alias_of = number;
    return true;
}

void rs_data_relay_to(rs_data *data, uint32_t address, uint16_t port, uint32_t next, uint16_t next_port) {
    rs_group number = find_group(data, address, port);
    if (number == RS_NO_GROUP || !data->groups[number].relays)
        return;
    data->groups[number].next = next;
    data->groups[number].next_port = next_port;
}

void rs_data_relay_end(rs_data *data, uint32_t address, uint16_t port) {
    rs_group number = find_group(data, address, port);
    if (number == RS_NO_GROUP || !data->groups[number].relays)
        return;
    data_group *group = &data->groups[number];
    rs_group alias = group->alias;
    group->relays = group->by_unicast = false;
    group->alias = RS_NO_GROUP;
    group->next = 0;
    rs_data_leave(data, alias);
    rs_data_leave(data, number);
}

void rs_data_redirect(rs_data *data, rs_group number, uint32_t host, uint16_t port) {
    if (number == RS_NO_GROUP)
        return;
    data->groups[number].instead = host;
    data->groups[number].instead_port = port;
}

void rs_data_relayed(const rs_data *data, uint64_t *packets, uint64_t *lost) {
    *packets = data->relayed;
    *lost = data->relay_lost;
}

rs_io_stats rs_data_io_stats(const rs_data *data) {
    rs_io_stats stats = {0};
    rs_io_stats_get(data->io, &stats);
    return stats;
}

uint64_t rs_data_room(const rs_data *data, rs_group number) {
    return number == RS_NO_GROUP ? 0 : rs_io_receive_room(data->io, number);
}

/* -------------------------------------------------------------------------------------------------------- sending */

static void drop_waiting(rs_data *data, unsigned count) {
    for (unsigned i = count; i < data->filled; i++) {
        data->slots[i - count] = data->slots[i];
        data->destinations[i - count] = data->destinations[i];
    }
    data->filled -= count;
}

static void set_blocked(rs_data *data, bool blocked) {
    if (blocked && !data->blocked) {
        data->blocked_since = rs_loop_now(data->loop);
        rs_loop_watch(data->loop, &data->writable, rs_io_send_fd(data->io), EPOLLOUT);
    } else if (!blocked && data->blocked) {
        rs_loop_unwatch(data->loop, &data->writable);
    }
    data->blocked = blocked;
}

void rs_data_flush(rs_data *data) {
    rs_io_packet packets[RS_IO_BATCH];
    while (data->filled > 0) {
        for (unsigned i = 0; i < data->filled; i++) {
            const rs_packet_out *out = &data->slots[i];
            packets[i] = (rs_io_packet){.address = data->destinations[i].address,
                                        .port = data->destinations[i].port,
                                        .header = out->header,
                                        .header_length = out->header_length,
                                        .payload = data->destinations[i].payload,
                                        .payload_length = out->payload_length,
                                        .markable = out->markable};
        }
        int taken = rs_io_send(data->io, packets, data->filled);
        if (taken == RS_IO_UNREADABLE) {
            rs_xfer xfer = data->slots[0].xfer;
            rs_data_forget(data, xfer);
            data->callbacks.unreadable(data->callbacks.context, xfer);
            continue;
        }
        bool all = (unsigned)taken == data->filled;
        drop_waiting(data, (unsigned)taken);
        if (!all && taken == 0) {
            set_blocked(data, true);
            return;
        }
    }
    set_blocked(data, false);
}

static void writable(void *context, uint32_t events) {
    (void)events;
    rs_data_flush(context);
}

bool rs_data_blocked(const rs_data *data) {
    return data->blocked;
}

rs_packet_out *rs_data_slot(rs_data *data) {
    if (data->filled == RS_IO_BATCH && !data->blocked)
        rs_data_flush(data);
    return data->blocked || data->filled == RS_IO_BATCH ? NULL : &data->slots[data->filled];
}

void rs_data_push(rs_data *data, const uint8_t *payload) {
    const data_group *group = &data->groups[data->slots[data->filled].group];
    data->destinations[data->filled++] = group->instead ? (destination){payload, group->instead, group->instead_port}
                                                        : (destination){payload, group->address, group->port};
}

uint8_t *rs_data_payload_room(rs_data *data) {
    return data->rooms + (size_t)(data->next_room++ % RS_IO_BATCH) * ROOM_EACH;
}

void rs_data_forget(rs_data *data, rs_xfer xfer) {
    unsigned kept = 0;
    for (unsigned i = 0; i < data->filled; i++) {
        if (data->slots[i].xfer == xfer)
            continue;
        if (kept != i) {
            data->slots[kept] = data->slots[i];
            data->destinations[kept] = data->destinations[i];
        }
        kept++;
    }
    data->filled = kept;
}

/* ------------------------------------------------------------------------------------------------------ receiving */

static rs_group real_group(const rs_data *data, rs_group number) {
    rs_group of = number < data->group_room ? data->groups[number].alias_of : RS_NO_GROUP;
    return of == RS_NO_GROUP ? number : of;
}

static void tell_waits_and_drops(rs_data *data) {
    /* What was taken came, to the core, when this turn began; how long it waited is measured now. Were the clock read
     * before that, a host that stands still in between would make it come before it was sent. */
    rs_time began = rs_loop_now(data->loop);
    for (uint32_t i = 0; i < data->group_room; i++) {
        data_group *group = &data->groups[i];
        if (group->receivers > 0 && !group->by_unicast) { /* of those that come by unicast that counts */
            rs_time waited = rs_io_waited(data->io, i), behind = rs_loop_refresh(data->loop) - began;
            data->callbacks.waited(data->callbacks.context, real_group(data, i), waited > 0 ? waited - behind : 0);
        }
        uint64_t drops = group->receivers > 0 ? rs_io_drops(data->io, i) : group->drops;
        if (drops != group->drops) {
            data->callbacks.dropped(data->callbacks.context, real_group(data, i), drops - group->drops);
            group->drops = drops;
        }
    }
}

bool rs_data_marked(const rs_data *data) {
    return rs_io_marked(data->io);
}

bool rs_data_late(const rs_data *data) {
    return rs_io_late(data->io);
}

static bool predict(void *context, rs_group number, uint32_t ahead, uint8_t **place, uint32_t *length) {
    rs_data *data = context;
    return data->callbacks.predict(data->callbacks.context, real_group(data, number), ahead, place, length);
}

static uint8_t *deliver(void *context, rs_group number, const uint8_t *header, size_t header_length,
                        uint32_t payload_length) {
    rs_data *data = context;
    rs_group real = real_group(data, number);
    const data_group *group = &data->groups[real];
    uint8_t *place = data->callbacks.deliver(data->callbacks.context, real, header, header_length, payload_length);
    if (group->next == 0 || group->by_unicast != (real != number) || payload_length > ROOM_EACH)
        return place;
    if (!place && rs_data_late(data)) /* whoever sends it once more does not have it sent on once more */
        return NULL;
    if (data->on_count == RECEIVE_TURN) {
        data->relay_lost++;
        return place;
    }
    if (!place)
        place = data->on_rooms + (size_t)(data->on_room++ % RECEIVE_TURN) * ROOM_EACH;
    handed_on *on = &data->on[data->on_count++];
    *on = (handed_on){
        .header_length = (uint16_t)header_length, .payload_length = payload_length, .payload = place, .group = real};
    memcpy(on->header, header, header_length);
    return place;
}

/* What found no room in the NIC's queue is lost, as in a switch: the engines mend it. */
static void hand_on(rs_data *data) {
    rs_io_packet packets[RS_IO_BATCH];
    for (unsigned done = 0; done < data->on_count;) {
        unsigned count = data->on_count - done < RS_IO_BATCH ? data->on_count - done : RS_IO_BATCH;
        for (unsigned i = 0; i < count; i++) {
            const handed_on *on = &data->on[done + i];
            packets[i] = (rs_io_packet){.address = data->groups[on->group].next,
                                        .port = data->groups[on->group].next_port,
                                        .header = on->header,
                                        .header_length = on->header_length,
                                        .payload = on->payload,
                                        .payload_length = on->payload_length};
        }
        int taken = rs_io_send(data->io, packets, count);
        data->relayed += taken > 0 ? (unsigned)taken : 0;
        if (taken < (int)count) {
            data->relay_lost += data->on_count - done - (taken > 0 ? (unsigned)taken : 0);
            break;
        }
        done += count;
    }
    data->on_count = 0;
}

static int look(rs_data *data) {
    const rs_io_sink sink = {.predict = predict, .deliver = deliver, .context = data};
    unsigned total = 0, count;
    do {
        count = (unsigned)rs_io_receive(data->io, RECEIVE_PART, &sink);
        total += count;
        if (count > 0) {
            hand_on(data);
            data->callbacks.delivered(data->callbacks.context);
        }
    } while (count >= RECEIVE_PART / 2 && total <= RECEIVE_TURN - RECEIVE_PART);
    if (total > 0)
        tell_waits_and_drops(data);
    return (int)total;
}

/* Arrivals wake the loop, or the clock does. */
static void wake_by_arrivals(rs_data *data, bool by_arrivals) {
    if (by_arrivals)
        data->check_at = RS_NEVER;
    rs_io_wake(data->io, by_arrivals);
    rs_loop_watch(data->loop, &data->readable, rs_io_receive_fd(data->io), by_arrivals ? EPOLLIN : 0);
}

static void readable(void *context, uint32_t events) {
    rs_data *data = context;
    rs_time now = rs_loop_now(data->loop);
    (void)events;
    int count = look(data);
    if (count <= 0)
        return;
    if (count > 1 || now - data->last_arrival < DENSE_GAP) {
        data->check_at = now + DENSE_LOOK;
        data->empty_looks = 0;
        wake_by_arrivals(data, false);
    }
    data->last_arrival = now;
}

rs_time rs_data_due(const rs_data *data) {
    rs_time blocked = data->blocked ? data->blocked_since + BLOCKED_BOUND : RS_NEVER;
    return blocked < data->check_at ? blocked : data->check_at;
}

void rs_data_timeout(rs_data *data) {
    rs_time now = rs_loop_now(data->loop);
    if (data->blocked && now - data->blocked_since >= BLOCKED_BOUND) {
        rs_log_limited(&data->complaints, 1, RS_LOG_WARNING, "data", "the NIC took nothing for %d ms: lost=%u packets",
                       (int)(BLOCKED_BOUND / RS_MILLISECOND), data->filled);
        data->filled = 0;
        set_blocked(data, false);
    }
    if (now < data->check_at)
        return;
    int count = look(data);
    data->empty_looks = count > 0 ? 0 : data->empty_looks + 1;
    data->check_at = count > (int)(RECEIVE_TURN - RECEIVE_PART) ? now : now + DENSE_LOOK;
    if (count > 0)
        data->last_arrival = now;
    if (data->empty_looks >= EMPTY_LOOKS)
        wake_by_arrivals(data, true);
}
