#include "core/transfer/carriers.h"

#include <string.h>

#include "core/feedback/tree.h"
#include "core/transfer/engine.h"
#include "core/transfer/places.h"

#define ANSWER_WITHIN (100 * RS_MS) /* docs/feedback.md */
/* When a carrier is lost those it carried to are connected to, so many within so long. */
#define CONNECT_AT_ONCE 32u
#define CONNECT_EACH (2 * RS_MS)
#define UNLIKE_MOST 8u /* links that are to be told something else: no more are looked at */

typedef struct {
    uint32_t place;       /* The recipient of that place. */
    uint32_t count, told; /* It carries to so many, and has been told of so many. */
    uint32_t *members;    /* Their places, by their numbers. */
    bool lost;            /* It does so no more. */
    uint32_t gone;        /* Of its members: so many have left it then. */
    rs_time heard_at;     /* It brought an answer then. */
} rs_carrier;

struct rs_carriers {
    uint32_t count;
    rs_time connecting_at; /* The last of CONNECT_EACH begins then, */
    uint32_t connecting;   /* and has so many. */
    rs_carrier carrier[RS_CARRIERS_MOST];
    uint32_t places[]; /* All members. */
};

static uint32_t place_of(const rs_sending *x, const rs_recipient *r) {
    return (uint32_t)(r - x->recipients);
}

static rs_carrier *carrier_at(const rs_sending *x, uint32_t place) {
    rs_carriers *all = x->carriers;
    for (uint32_t i = 0; all && i < all->count; i++)
        if (all->carrier[i].place == place && !all->carrier[i].lost)
            return &all->carrier[i];
    return NULL;
}

static rs_carrier *carrier_of(const rs_recipient *r) {
    const rs_sending *x = (const rs_sending *)r->link.transfer;
    return r->carrier ? &x->carriers->carrier[r->carrier - 1] : NULL;
}

/* ---------------------------------------------------------------------------------------------- who carries to whom */

bool rs_carriers_likely(const rs_node *node, const rs_engine *engine, uint32_t receivers) {
    return node->config.carries && engine == node->engines[0] && node->config.directory.place_of &&
           receivers > node->config.direct_receivers;
}

static bool is_any(const rs_node *node, const rs_sending *x, const rs_recipient *r) {
    (void)node, (void)x, (void)r;
    return true;
}

void rs_carriers_connect(rs_node *node, rs_time now, rs_sending *x) {
    uint32_t count = 0, *starts = NULL;
    rs_ordered *order = rs_order_by_racks(node, x, is_any, &count);
    if (order && (starts = rs_memory_take(&node->allocator, count * sizeof *starts))) {
        const rs_tree shape = rs_tree_by_racks(node, order, count, starts);
        for (uint32_t i = 0; i < count; i++)
            if (rs_tree_place_of(&shape, i).parent == RS_TREE_SENDER)
                rs_control_set_pending(node, now, &x->recipients[order[i].place].link, RS_CONTROL_CONNECT);
    }
    rs_memory_give(&node->allocator, starts);
    rs_memory_give(&node->allocator, order);
}

static bool may_carry(const rs_node *node, const rs_recipient *r) {
    const rs_directory *d = &node->config.directory;
    return r->carrier == 0 && (!rs_peer_is_up(r->link.peer) || !d->carries || d->carries(d->context, r->link.peer->id));
}

static bool may_be_carried(const rs_node *node, const rs_sending *x, const rs_carried_pair *pair) {
    const rs_recipient *r = &x->recipients[pair->member];
    return pair->carrier != pair->member && rs_is_active(r) && !rs_has_accepted(r) && !r->kept &&
           !rs_peer_is_up(r->link.peer) && may_carry(node, &x->recipients[pair->carrier]);
}

/* Those of one carrier follow each other. */
void rs_carriers_begin(rs_node *node, rs_time now, rs_sending *x, const rs_carried_pair *pairs, uint32_t count) {
    if (!node->config.carries || x->carriers || count == 0)
        return;
    rs_carriers *all = rs_memory_take(&node->allocator, sizeof *all + count * sizeof all->places[0]);
    if (!all)
        return;
    x->carriers = all;
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!may_be_carried(node, x, &pairs[i]))
            continue;
        rs_carrier *c = all->count ? &all->carrier[all->count - 1] : NULL;
        if (!c || c->place != pairs[i].carrier) {
            if (all->count == RS_CARRIERS_MOST)
                break;
            c = &all->carrier[all->count++];
            *c = (rs_carrier){.place = pairs[i].carrier, .members = &all->places[used], .heard_at = now};
        }
        if (c->count == RS_CARRIED_MOST)
            continue;
        rs_recipient *r = &x->recipients[pairs[i].member];
        r->carrier = (uint16_t)all->count;
        r->carried_as = (uint16_t)c->count;
        c->members[c->count++] = pairs[i].member;
        used++;
        rs_peer_session_go_by(node, now, &r->link, x->recipients[c->place].link.peer);
    }
    for (uint32_t i = 0; i < all->count; i++)
        rs_control_set_pending(node, now, &x->recipients[all->carrier[i].place].link, RS_CONTROL_CARRY_TO);
    x->carried_due = all->count ? now + ANSWER_WITHIN : RS_NEVER;
}

void rs_carriers_free(rs_node *node, rs_sending *x) {
    rs_memory_give(&node->allocator, x->carriers);
    x->carriers = NULL;
}

void rs_carriers_leave(rs_node *node, rs_time now, rs_recipient *r) {
    if (r->carrier == 0)
        return;
    r->carrier = 0;
    rs_peer_session_go_by(node, now, &r->link, NULL);
    if (rs_is_active(r) && rs_is_opened(r) && !rs_peer_is_up(r->link.peer))
        rs_control_set_pending(node, now, &r->link, RS_CONTROL_OPEN);
}

static void look_again(rs_sending *x, rs_time due) {
    x->carried_due = due < x->carried_due ? due : x->carried_due;
}

/* False: others come first, and it will be looked at again. */
static bool leaves_now(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r) {
    rs_carriers *all = x->carriers;
    if (rs_is_active(r) && rs_is_opened(r) && !rs_peer_is_up(r->link.peer)) {
        if (now - all->connecting_at >= CONNECT_EACH) {
            all->connecting_at = now;
            all->connecting = 0;
        }
        if (all->connecting == CONNECT_AT_ONCE) {
            look_again(x, all->connecting_at + CONNECT_EACH);
            return false;
        }
        all->connecting++;
    }
    rs_carriers_leave(node, now, r);
    return true;
}

void rs_carriers_doubt(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r) {
    leaves_now(node, now, x, r);
}

static void let_go(rs_node *node, rs_time now, rs_sending *x, rs_carrier *c) {
    uint32_t place = (uint32_t)(c - x->carriers->carrier) + 1;
    for (; c->gone < c->count; c->gone++) {
        rs_recipient *r = &x->recipients[c->members[c->gone]];
        if (r->carrier == place && !leaves_now(node, now, x, r))
            return;
    }
}

static void lose(rs_node *node, rs_time now, rs_sending *x, rs_carrier *c, const char *why) {
    rs_event log = {.kind = RS_EV_LOG, .xfer = x->t.id, .peer = x->recipients[c->place].link.peer->id};
    c->lost = true;
    rs_format(log.cause, sizeof log.cause, "this receiver carries messages to others no more: %s", why);
    rs_emit(node, &log);
    rs_control_clear(node, now, &x->recipients[c->place].link, RS_CONTROL_CARRY_TO);
    let_go(node, now, x, c);
    x->t.arm(node, &x->t);
}

void rs_carriers_lost(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r) {
    rs_carrier *c = carrier_at(x, place_of(x, r));
    if (c && !rs_is_finished(&x->t))
        lose(node, now, x, c, "it takes no part, is silent, or does not know how");
}

static bool owes(const rs_recipient *r) {
    return rs_is_active(r) && rs_is_opened(r) && !rs_has_accepted(r);
}

/* Who has not answered by now is asked without anybody between. */
void rs_carriers_timeout(rs_node *node, rs_time now, rs_sending *x) {
    if (now < x->carried_due)
        return;
    x->carried_due = RS_NEVER;
    for (uint32_t i = 0; x->carriers && i < x->carriers->count; i++) {
        rs_carrier *c = &x->carriers->carrier[i];
        if (c->lost) {
            let_go(node, now, x, c);
            continue;
        }
        bool silent = owes(&x->recipients[c->place]), waits = false;
        for (uint32_t k = 0; k < c->count && !waits; k++)
            waits = owes(&x->recipients[c->members[k]]) && x->recipients[c->members[k]].carrier == i + 1;
        if (!waits)
            continue;
        if (now - c->heard_at < ANSWER_WITHIN) {
            look_again(x, c->heard_at + ANSWER_WITHIN);
        } else if (silent) {
            lose(node, now, x, c, "it has not answered within 100 ms");
        } else {
            for (uint32_t k = 0; k < c->count; k++) {
                rs_recipient *r = &x->recipients[c->members[k]];
                if (owes(r) && r->carrier == i + 1 && !leaves_now(node, now, x, r))
                    break;
            }
        }
    }
}

/* -------------------------------------------------------------------------------------------------- what is said */

bool rs_carry_is_answer(uint8_t type) {
    return type == RS_MSG_OPEN_ACK || type == RS_MSG_INTL_SEQ || type == RS_MSG_PING || type == RS_MSG_PONG;
}

bool rs_carry_add(rs_message *m, uint32_t number) {
    if (m->carry.bytes == 0) {
        m->carry.base = (uint16_t)(number / RS_CARRY_BITS * RS_CARRY_BYTES);
        m->carry.bytes = RS_CARRY_BYTES;
        memset(m->carry.set, 0, sizeof m->carry.set);
    }
    uint32_t first = 8u * m->carry.base;
    if (number < first || number - first >= RS_CARRY_BITS)
        return false;
    m->carry.set[(number - first) / 8] |= (uint8_t)(1u << (number - first) % 8);
    return true;
}

void rs_carry_trim(rs_message *m) {
    uint32_t from = 0, to = RS_CARRY_BYTES;
    while (from + 1 < to && m->carry.set[from] == 0)
        from++;
    while (to > from + 1 && m->carry.set[to - 1] == 0)
        to--;
    memmove(m->carry.set, m->carry.set + from, to - from);
    m->carry.base = (uint16_t)(m->carry.base + from);
    m->carry.bytes = (uint8_t)(to - from);
}

bool rs_carry_has(const rs_message *m, uint32_t number) {
    uint32_t first = 8u * m->carry.base;
    return number >= first && number - first < 8u * m->carry.bytes &&
           (m->carry.set[(number - first) / 8] >> (number - first) % 8 & 1);
}

bool rs_carriers_tell(const rs_node *node, const rs_sending *x, const rs_recipient *r, rs_message *m, bool *more) {
    rs_carrier *c = carrier_at(x, place_of(x, r));
    if (!c || c->told == c->count)
        return false;
    m->type = RS_MSG_CARRY_TO;
    m->carry_to.first = (uint16_t)c->told;
    m->carry_to.count = 0;
    while (m->carry_to.count < RS_CARRY_PLACES && c->told < c->count) {
        rs_peer peer = x->recipients[c->members[c->told]].link.peer->id;
        if (!rs_place_on_wire(node, peer, &m->carry_to.places[m->carry_to.count]))
            return false; /* it is not known where that one is any more: none of those is answered for */
        m->carry_to.count++;
        c->told++;
    }
    *more = c->told < c->count;
    return true;
}

/* All others by the same carrier that are to be told the same now. */
static void gather(rs_node *node, rs_time now, const rs_peer_session *link, uint32_t what, const rs_message *said,
                   rs_message *m) {
    rs_list *all = &link->via->talking;
    uint32_t unlike = 0;
    for (rs_list *at = all->next, *next; at != all && unlike < UNLIKE_MOST; at = next) {
        next = at->next;
        rs_peer_session *other = RS_HOLDER(rs_peer_session, in_talking, at);
        if (other == link || other->via != link->via || other->transfer != link->transfer ||
            rs_peer_session_next(other) != what)
            continue;
        rs_message theirs = {0};
        rs_wire_inner inner;
        bool more;
        if (!rs_peer_session_makes(node, now, other, what, &theirs, &more)) {
            other->pending &= ~what;
        } else if (theirs.session == said->session && rs_wire_inner_set(&inner, &theirs) &&
                   rs_wire_inner_same(&inner, &m->carry.inner)) {
            if (!rs_carry_add(m, RS_HOLDER(rs_recipient, link, other)->carried_as))
                continue;
            other->pending &= ~what;
        } else {
            unlike++;
        }
        if (other->pending == 0)
            rs_list_remove(&other->in_talking);
    }
}

bool rs_carriers_wrap(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what, rs_message *m,
                      rs_packet_out *out) {
    rs_recipient *r = RS_HOLDER(rs_recipient, link, link);
    const rs_carrier *c = carrier_of(r);
    const rs_sending *x = (const rs_sending *)link->transfer;
    rs_message said = *m;
    if (what == RS_CONTROL_TELL) {
        out->channel = RS_CH_PEER_DATAGRAM;
        out->peer = link->peer->id;
        out->header_length = rs_proof_answer(node, r, m, out->header);
        return out->header_length > 0;
    }
    if (x->recipients[c->place].link.pending & (RS_CONTROL_OPEN | RS_CONTROL_CARRY_TO)) {
        link->pending |= what; /* the carrier itself comes first */
        return false;
    }
    *m = (rs_message){.type = RS_MSG_CARRY, .nonce = said.nonce, .session = said.session};
    bool further = said.type == RS_MSG_OPEN && said.session > 0; /* nobody takes another one's word for it */
    if (further || !rs_wire_inner_set(&m->carry.inner, &said)) {
        link->pending |= what;
        rs_carriers_leave(node, now, r);
        return false;
    }
    rs_carry_add(m, r->carried_as);
    gather(node, now, link, what, &said, m);
    rs_carry_trim(m);
    return true;
}

rs_recipient *rs_carriers_next(rs_time now, rs_sending *x, const rs_recipient *r, const rs_message *m, uint32_t *at) {
    rs_carrier *c = carrier_at(x, place_of(x, r));
    if (!c)
        return NULL;
    c->heard_at = now;
    for (uint32_t i = *at > 8u * m->carry.base ? *at : 8u * m->carry.base;
         i < c->count && i < 8u * (m->carry.base + m->carry.bytes); i++) {
        rs_recipient *member = &x->recipients[c->members[i]];
        if (!rs_carry_has(m, i) || carrier_of(member) != c)
            continue;
        *at = i + 1;
        return member;
    }
    return NULL;
}
