#include "rdcm/overlay.h"

#include "check.h"

typedef struct {
    overlay *o;
    uint64_t random;
    uint32_t rings;
    rs_peer members[OVERLAY_NODES][OVERLAY_CHILDREN];
    bool alone[OVERLAY_NODES][OVERLAY_CHILDREN]; /* the only receiver of its branch: it is its leaf ring */
    uint32_t count[OVERLAY_NODES];
    rs_peer parent[OVERLAY_NODES];
} maker;

static uint32_t below(maker *m, uint32_t bound) {
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (uint32_t)((m->random >> 33) % bound);
}

static uint32_t add_node(maker *m, uint32_t parent) {
    assert_true(m->o->nodes < OVERLAY_NODES);
    m->o->parent[m->o->nodes] = parent;
    m->o->server[m->o->nodes] = RS_NO_PEER;
    return m->o->nodes++;
}

static rs_peer least_burdened(maker *m, const rs_peer *receivers, uint32_t count) {
    rs_peer best = receivers[below(m, count)];
    for (uint32_t i = 0; i < count; i++)
        if (m->o->at[receivers[i]].rings < m->o->at[best].rings)
            best = receivers[i];
    return best;
}

/* The subtree over these receivers, under a node of its own. Returns the ring at its highest branching + 1; 0 = a
 * single receiver. */
static uint32_t grow(maker *m, uint32_t parent, const rs_peer *receivers, uint32_t count) {
    uint32_t node = add_node(m, parent);
    while (below(m, 4) == 0)
        node = add_node(m, node); /* a switch that only passes on */
    if (count == 1) {
        m->o->server[node] = receivers[0];
        m->o->node_of[receivers[0]] = node;
        return 0;
    }
    uint32_t branches = 2 + below(m, count < 6 ? count - 1 : 5), from = 0, subs[8], firsts[9];
    branches = branches > count ? count : branches;
    for (uint32_t b = 0; b < branches; b++) {
        uint32_t left = count - from, keep = branches - b - 1;
        uint32_t take = b + 1 == branches ? left : 1 + below(m, left - keep);
        firsts[b] = from;
        subs[b] = grow(m, node, receivers + from, take);
        from += take;
    }
    firsts[branches] = count;
    uint32_t ring = m->rings++;
    m->count[ring] = branches;
    for (uint32_t b = 0; b < branches; b++) {
        rs_peer proxy = least_burdened(m, receivers + firsts[b], firsts[b + 1] - firsts[b]);
        m->o->at[proxy].rings++;
        m->members[ring][b] = proxy;
        m->alone[ring][b] = subs[b] == 0;
        if (subs[b])
            m->parent[subs[b] - 1] = proxy;
    }
    return ring + 1;
}

static void place(maker *m, uint32_t ring) {
    for (uint32_t i = 0; i < m->count[ring]; i++) {
        rs_peer self = m->members[ring][i], parent = m->parent[ring];
        overlay_place *at = &m->o->at[self], *up = &m->o->at[parent];
        rs_ring_place *p = m->alone[ring][i] ? &at->leaf : &at->proxy;
        assert_int_equal(p->successor, RS_NO_PEER); /* Theorem 1 */
        p->successor = m->members[ring][(i + 1) % m->count[ring]];
        p->predecessor = m->members[ring][(i + m->count[ring] - 1) % m->count[ring]];
        p->parent = parent == self ? RS_NO_PEER : parent;
        if (parent != self)
            up->children[up->child_count++] = self;
    }
}

void overlay_make(overlay *o, uint32_t receivers, uint64_t seed, const bool *without) {
    static maker m; /* large */
    rs_peer all[OVERLAY_SERVERS];
    uint32_t count = 0;
    memset(o, 0, sizeof *o);
    memset(&m, 0, sizeof m);
    m.o = o;
    m.random = seed * 2 + 88172645463325252u;
    for (int i = 0; i < 8; i++)
        below(&m, 2);
    o->nodes = 1;
    for (rs_peer i = 1; i <= receivers; i++)
        if (!without || !without[i])
            all[count++] = i;
    for (uint32_t i = 0; i <= receivers; i++)
        o->at[i].leaf = o->at[i].proxy = (rs_ring_place){RS_NO_PEER, RS_NO_PEER, RS_NO_PEER};
    uint32_t top = grow(&m, 0, all, count);
    if (top == 0) {
        o->at[all[0]].leaf.parent = 0;
        o->at[0].children[o->at[0].child_count++] = all[0];
        return;
    }
    m.parent[top - 1] = 0;
    for (uint32_t ring = 0; ring < m.rings; ring++)
        place(&m, ring);
}

void overlay_tell_one(net *n, const overlay *o, rs_peer server, rs_xfer xfer, uint64_t version) {
    const overlay_place *at = &o->at[server];
    rs_view view = {.version = version,
                    .leaf = at->leaf,
                    .proxy = at->proxy,
                    .children = at->children,
                    .child_count = at->child_count};
    rs_status status = rs_set_view(net_node(n, server), net_knob(n)->now, xfer, &view);
    assert_true(status == RS_OK || status == RS_ERR_UNKNOWN || status == RS_ERR_STATE || status == RS_ERR_MEMORY);
    net_call(n, server, RS_OK);
}

void overlay_tell(net *n, const overlay *o, uint32_t receivers, rs_xfer sending, uint64_t version) {
    overlay_tell_one(n, o, 0, sending, version);
    for (rs_peer i = 1; i <= receivers; i++)
        if (o->at[i].leaf.parent != RS_NO_PEER || o->at[i].leaf.predecessor != RS_NO_PEER)
            overlay_tell_one(n, o, i, net_receiving(n, i), version);
}

bool overlay_is_below(const overlay *o, rs_peer server, uint32_t node) {
    for (uint32_t at = o->node_of[server]; at; at = o->parent[at])
        if (at == node)
            return true;
    return node == 0;
}
