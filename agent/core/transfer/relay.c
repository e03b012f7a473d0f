#include "core/transfer/relay.h"

#include <string.h>

#include "core/transfer/carriers.h"
#include "core/transfer/events.h"
#include "core/transfer/peer_sessions.h"
#include "core/transfer/places.h"
#include "core/transfer/tables.h"

#define TOGETHER (RS_MS / 100)  /* an answer waits so long for others that are the same */
#define BUNDLES_MOST 256        /* each way: all of them are looked through */
#define RELAYED_MOST (1u << 15) /* others that are carried to from here, of all transfers (a bound) */
#define DIALLED_MOST 1024u      /* connections that are asked for at a time and have not come up (a bound) */

typedef struct rs_relay rs_relay;

typedef struct {
    rs_peer_session link; /* The talk with it, for the sender. Without a peer: it is this node, or out of memory. */
    rs_relay *relay;
    uint32_t number;
    bool dialled;   /* A connection was asked for, and has not come up. */
    bool waits;     /* One is to be asked for when others have come up. */
    bool unreached; /* None did: nothing is carried to it any more. */
} relayed;

/* Some that came to be known together. */
typedef struct {
    rs_list listed;
    uint32_t count;
    relayed others[];
} block;

/* A message to, or from, some of them. */
typedef struct {
    rs_list listed;
    rs_time due; /* From them: it goes on then. */
    uint32_t session, left, words;
    rs_wire_inner inner;
    uint64_t set[]; /* Their numbers. */
} bundle;

struct rs_relay {
    rs_receiving *x;
    rs_list blocks;
    uint32_t count;
    uint32_t dialled, waiting, unreached; /* So many of them are. */
    uint32_t next;                        /* Those that wait are looked for from there on. */
    rs_list down, up; /* Bundles, the oldest first: of a kind of message there is one at most for each. */
};

static relayed *other_of(const rs_relay *relay, uint32_t number) {
    for (rs_list *at = relay->blocks.next; at != &relay->blocks; at = at->next) {
        block *b = RS_HOLDER(block, listed, at);
        if (number < b->count)
            return &b->others[number];
        number -= b->count;
    }
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------------- bundles */

static bool has(const bundle *b, uint32_t number) {
    return number / 64 < b->words && (b->set[number / 64] >> number % 64 & 1);
}

static void drop(rs_node *node, bundle *b) {
    rs_list_remove(&b->listed);
    rs_memory_give(&node->allocator, b);
}

static void take_out(rs_node *node, bundle *b, uint32_t number) {
    if (!has(b, number))
        return;
    b->set[number / 64] &= ~(UINT64_C(1) << number % 64);
    if (--b->left == 0)
        drop(node, b);
}

/* What is older of that kind does not matter any more; of kind 0, nothing that is older does. */
static void supersede(rs_node *node, rs_list *bundles, uint32_t number, uint8_t kind, const bundle *by) {
    for (rs_list *at = bundles->next, *next; at != bundles; at = next) {
        next = at->next;
        bundle *b = RS_HOLDER(bundle, listed, at);
        if (b != by && (b->inner.type == kind || kind == 0))
            take_out(node, b, number);
    }
}

static bool is_full(const rs_list *bundles) {
    uint32_t count = 0;
    for (const rs_list *at = bundles->next; at != bundles && count < BUNDLES_MOST; at = at->next)
        count++;
    return count == BUNDLES_MOST;
}

static bundle *make(rs_node *node, const rs_relay *relay, rs_list *bundles, uint32_t session,
                    const rs_wire_inner *inner) {
    uint32_t words = (relay->count + 63) / 64;
    bundle *b = is_full(bundles) ? NULL : rs_memory_take(&node->allocator, sizeof *b + words * sizeof b->set[0]);
    if (!b)
        return NULL; /* as if it was lost: the sender asks without anybody between */
    b->due = RS_NEVER;
    b->session = session;
    b->words = words;
    b->inner = *inner;
    rs_list_init(&b->listed);
    rs_list_append(bundles, &b->listed);
    return b;
}

static void put_in(bundle *b, uint32_t number) {
    if (has(b, number))
        return;
    b->set[number / 64] |= UINT64_C(1) << number % 64;
    b->left++;
}

/* Towards the sender. */
static void tell(rs_node *node, rs_time now, rs_relay *relay, uint32_t number, uint32_t session,
                 const rs_wire_inner *inner) {
    rs_list *up = &relay->up;
    bundle *with = NULL;
    for (rs_list *at = up->next; at != up && !with; at = at->next) {
        bundle *b = RS_HOLDER(bundle, listed, at);
        if (b->session == session && number / 64 < b->words && rs_wire_inner_same(&b->inner, inner))
            with = b;
    }
    if (!with && !(with = make(node, relay, up, session, inner)))
        return;
    if (with->due == RS_NEVER)
        with->due = now + TOGETHER;
    put_in(with, number);
    supersede(node, up, number, inner->type, with);
    if (with->left == relay->count)
        with->due = now;
    relay->x->t.arm(node, &relay->x->t);
}

static void cannot(rs_node *node, rs_time now, relayed *to) {
    const rs_wire_inner nothing = {0};
    supersede(node, &to->relay->down, to->number, 0, NULL);
    if (to->link.peer)
        rs_control_clear(node, now, &to->link, RS_CONTROL_CARRY);
    tell(node, now, to->relay, to->number, 0, &nothing);
}

/* ------------------------------------------------------------------------------------------- the talk with one */

static bundle *first_for(const rs_relay *relay, uint32_t number, const bundle *after) {
    for (rs_list *at = after ? after->listed.next : relay->down.next; at != &relay->down; at = at->next)
        if (has(RS_HOLDER(bundle, listed, at), number))
            return RS_HOLDER(bundle, listed, at);
    return NULL;
}

static bool says(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what, rs_message *m, bool *more) {
    const relayed *to = RS_HOLDER(relayed, link, link);
    const rs_directory *d = &node->config.directory;
    const rs_receiving *x = to->relay->x;
    bundle *b = first_for(to->relay, to->number, NULL);
    (void)now;
    if (!b || what != RS_CONTROL_CARRY || !rs_place_on_wire(node, x->link.peer->id, &m->carried.sender))
        return false;
    m->type = RS_MSG_CARRIED;
    m->session = b->session;
    m->carried.inner = b->inner;
    if (b->inner.type == RS_MSG_OPEN && d->name_of) {
        const char *name = d->name_of(d->context, x->link.peer->id);
        m->carried.name_length = (uint8_t)strnlen(name, RS_NAME_MAX);
        memcpy(m->carried.name, name, m->carried.name_length);
    }
    *more = first_for(to->relay, to->number, b) != NULL;
    take_out(node, b, to->number);
    return true;
}

/* Something is to be said to it. Whoever names places has few of them dialled at a time, and none twice. */
static void reach(rs_node *node, rs_time now, relayed *to) {
    rs_relay *relay = to->relay;
    bool up = rs_peer_is_up(to->link.peer);
    if (!up && !to->dialled && relay->dialled == DIALLED_MOST) {
        relay->waiting += !to->waits;
        to->waits = true;
        return;
    }
    relay->dialled += !up && !to->dialled;
    to->dialled |= !up;
    rs_control_set_pending(node, now, &to->link, RS_CONTROL_CARRY);
}

/* It is dialled no more: others may be. */
static void settled(rs_node *node, rs_time now, relayed *to) {
    rs_relay *relay = to->relay;
    relay->dialled -= to->dialled;
    to->dialled = false;
    while (relay->waiting && relay->dialled < DIALLED_MOST) {
        relayed *other = other_of(relay, relay->next++ % relay->count);
        if (!other->waits)
            continue;
        other->waits = false;
        relay->waiting--;
        reach(node, now, other);
    }
}

static void up(rs_node *node, rs_time now, rs_peer_session *link) {
    const rs_directory *d = &node->config.directory;
    relayed *to = RS_HOLDER(relayed, link, link);
    to->relay->unreached -= to->unreached;
    to->unreached = false;
    if (d->carries && !d->carries(d->context, link->peer->id))
        cannot(node, now, to);
    else if (to->waits)
        rs_control_set_pending(node, now, link, RS_CONTROL_CARRY);
    to->relay->waiting -= to->waits;
    to->waits = false;
    settled(node, now, to);
}

static void down(rs_node *node, rs_time now, rs_peer_session *link) {
    if (link->pending)
        cannot(node, now, RS_HOLDER(relayed, link, link));
}

static void unreached(rs_node *node, rs_time now, rs_peer_session *link) {
    relayed *to = RS_HOLDER(relayed, link, link);
    rs_event log = {.kind = RS_EV_LOG, .xfer = link->transfer->id, .peer = link->peer->id};
    if (!to->dialled)
        return;
    to->unreached = true;
    if (to->relay->unreached++ == 0) {
        rs_format(log.cause, sizeof log.cause,
                  "this receiver is to carry messages to others, of whom one cannot be reached: %.60s",
                  link->peer->down_cause ? link->peer->down_cause : "no connection came up");
        rs_emit(node, &log);
    }
    cannot(node, now, to);
    settled(node, now, to);
}

static const rs_talk talk = {.says = says, .up = up, .down = down, .unreached = unreached};

/* -------------------------------------------------------------------------------------------------- what comes in */

void rs_carry_relay_free(rs_node *node, rs_receiving *x) {
    rs_relay *relay = x->relay;
    x->relay = NULL;
    if (!relay)
        return;
    for (rs_list *at = relay->blocks.next, *next; at != &relay->blocks; at = next) {
        next = at->next;
        block *b = RS_HOLDER(block, listed, at);
        for (uint32_t i = 0; i < b->count; i++)
            rs_peer_session_end(node, &b->others[i].link);
        rs_memory_give(&node->allocator, b);
    }
    while (!rs_list_empty(&relay->down))
        drop(node, RS_HOLDER(bundle, listed, relay->down.next));
    while (!rs_list_empty(&relay->up))
        drop(node, RS_HOLDER(bundle, listed, relay->up.next));
    node->relayed -= relay->count;
    rs_memory_give(&node->allocator, relay);
}

static rs_relay *relay_of(rs_node *node, rs_receiving *x) {
    if (!x->relay && (x->relay = rs_memory_take(&node->allocator, sizeof *x->relay))) {
        x->relay->x = x;
        rs_list_init(&x->relay->blocks);
        rs_list_init(&x->relay->down);
        rs_list_init(&x->relay->up);
    }
    return x->relay;
}

rs_rx_verdict rs_carry_relay_told(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    const rs_directory *d = &node->config.directory;
    uint32_t count = m->carry_to.count;
    rs_relay *relay = d->peer_at && !x->link.via ? relay_of(node, x) : NULL;
    if (!relay || node->relayed + count > RELAYED_MOST)
        return RS_RX_NONE; /* the sender hears nothing of them, and asks them itself */
    if (m->carry_to.first != relay->count || relay->count + count > RS_CARRIED_MOST)
        return RS_RX_BAD;
    block *b = rs_memory_take(&node->allocator, sizeof *b + count * sizeof b->others[0]);
    if (!b)
        return RS_RX_NONE;
    for (uint32_t i = 0; i < count; i++) {
        const rs_wire_place *at = &m->carry_to.places[i];
        rs_peer peer = d->peer_at(d->context, at->address, at->port);
        rs_peer_state *p = peer == RS_NO_PEER || peer == x->link.peer->id ? NULL : rs_make_peer(node, peer);
        b->others[i].relay = relay;
        b->others[i].number = relay->count + i;
        if (p)
            rs_peer_session_attach(&b->others[i].link, &talk, p, &x->t, now);
    }
    b->count = count;
    rs_list_init(&b->listed);
    rs_list_append(&relay->blocks, &b->listed);
    relay->count += count;
    node->relayed += count;
    return RS_RX_NONE;
}

rs_rx_verdict rs_carry_relay_carry(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    const rs_directory *d = &node->config.directory;
    rs_relay *relay = x->relay;
    bundle *b = relay && relay->count && m->carry.inner.type
                    ? make(node, relay, &relay->down, m->session, &m->carry.inner)
                    : NULL;
    if (!b)
        return RS_RX_NONE;
    uint32_t first = 8u * m->carry.base, end = first + 8u * m->carry.bytes;
    b->left = 1; /* so that it stays until all are in it */
    for (uint32_t i = first; i < end && i < relay->count; i++) {
        relayed *to = rs_carry_has(m, i) ? other_of(relay, i) : NULL;
        if (!to)
            continue;
        if (!to->link.peer || to->unreached || (d->carries && !d->carries(d->context, to->link.peer->id))) {
            cannot(node, now, to);
            continue;
        }
        put_in(b, i);
        supersede(node, &relay->down, i, b->inner.type, b);
        reach(node, now, to);
    }
    if (--b->left == 0)
        drop(node, b);
    return RS_RX_NONE;
}

rs_rx_verdict rs_carry_relay_answer(rs_node *node, rs_time now, rs_receiving *x, rs_peer from, const rs_message *m) {
    if (!rs_carry_is_answer(m->carried.inner.type))
        return RS_RX_BAD;
    const rs_peer_state *p = x->relay ? rs_find_peer(node, from) : NULL;
    for (const rs_list *at = p ? p->links.next : NULL; p && at != &p->links; at = at->next) {
        const rs_peer_session *link = RS_HOLDER(rs_peer_session, in_peer, at);
        if (link->talk != &talk || link->transfer != &x->t)
            continue;
        tell(node, now, x->relay, RS_HOLDER(relayed, link, link)->number, m->session, &m->carried.inner);
        return RS_RX_NONE;
    }
    return RS_RX_NONE;
}

/* ------------------------------------------------------------------------------------------- to the sender */

static bundle *first_due(rs_time now, const rs_relay *relay) {
    for (rs_list *at = relay->up.next; at != &relay->up; at = at->next)
        if (RS_HOLDER(bundle, listed, at)->due <= now)
            return RS_HOLDER(bundle, listed, at);
    return NULL;
}

bool rs_carry_relay_says(rs_time now, rs_node *node, rs_receiving *x, rs_message *m, bool *more) {
    bundle *b = x->relay ? first_due(now, x->relay) : NULL;
    if (!b)
        return false;
    m->type = RS_MSG_CARRY;
    m->session = b->session;
    m->carry.bytes = 0;
    m->carry.inner = b->inner;
    uint32_t numbers = 64 * b->words, left = b->left;
    for (uint32_t i = 0; i < numbers && left; i++) {
        if (!has(b, i))
            continue;
        if (!rs_carry_add(m, i))
            break;
        left--;
        take_out(node, b, i);
    }
    rs_carry_trim(m);
    *more = first_due(now, x->relay) != NULL;
    if (!*more)
        x->t.arm(node, &x->t);
    return true;
}

rs_time rs_carry_relay_due(const rs_receiving *x) {
    rs_time due = RS_NEVER;
    if (!x->relay || (x->link.pending & RS_CONTROL_CARRY))
        return due;
    for (rs_list *at = x->relay->up.next; at != &x->relay->up; at = at->next) {
        const bundle *b = RS_HOLDER(bundle, listed, at);
        due = b->due < due ? b->due : due;
    }
    return due;
}

void rs_carry_relay_timeout(rs_node *node, rs_time now, rs_receiving *x) {
    if (rs_carry_relay_due(x) <= now)
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_CARRY);
}
