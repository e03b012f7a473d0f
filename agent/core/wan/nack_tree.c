#include "core/wan/nack_tree.h"

#include "core/feedback/tree.h"
#include "core/transfer/places.h"

#define NOBODY UINT32_MAX

struct rs_wan_place {
    uint32_t parent, first_child, next; /* Places of recipients; NOBODY: none, `parent`: the sender. */
    uint8_t height;                     /* Levels below. */
    bool placed;                        /* It is in the tree. */
};

static bool takes_part(const rs_node *node, const rs_sending *x, const rs_recipient *r) {
    (void)x;
    return rs_is_active(r) && r->member && r->light != RS_LIGHT_DEMOTED && rs_has_accepted(r) && rs_knows_tree(node, r);
}

static void add_child(rs_wan_place *places, uint32_t parent, uint32_t child) {
    places[child].parent = parent;
    places[child].next = NOBODY;
    if (parent == NOBODY)
        return;
    places[child].next = places[parent].first_child;
    places[parent].first_child = child;
}

static void tell(rs_node *node, rs_time now, rs_sending *x, uint32_t place) {
    rs_recipient *r = &x->recipients[place];
    if (rs_has_accepted(r) && rs_is_active(r))
        rs_control_set_pending(node, now, &r->link, RS_CONTROL_REPORT_TO);
}

bool rs_wan_tree_begin(rs_node *node, rs_time now, rs_sending *x) {
    const rs_config *c = &node->config;
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    uint32_t count = 0, *starts = NULL;
    rs_ordered *order = NULL;
    if (!c->directory.place_of || x->recipient_count <= c->direct_receivers || rs_is_unicast(&x->grant))
        return false;
    order = rs_order_by_racks(node, x, takes_part, &count);
    if (order && count > c->direct_receivers && (starts = rs_memory_take(&node->allocator, count * sizeof *starts)))
        w->places = rs_memory_take(&node->allocator, x->recipient_count * sizeof *w->places);
    if (w->places) {
        const rs_tree shape = rs_tree_by_racks(node, order, count, starts);
        for (uint32_t i = 0; i < x->recipient_count; i++)
            w->places[i] = (rs_wan_place){.parent = NOBODY, .first_child = NOBODY, .next = NOBODY};
        for (uint32_t i = count; i-- > 0;) {
            rs_tree_place place = rs_tree_place_of(&shape, i);
            rs_wan_place *p = &w->places[order[i].place];
            p->placed = true;
            p->height = (uint8_t)place.height;
            add_child(w->places, place.parent == RS_TREE_SENDER ? NOBODY : order[place.parent].place, order[i].place);
        }
        for (uint32_t i = 0; i < count; i++)
            tell(node, now, x, order[i].place);
    }
    rs_memory_give(&node->allocator, order);
    rs_memory_give(&node->allocator, starts);
    return w->places != NULL;
}

bool rs_wan_tree_tell(const rs_node *node, const rs_sending *x, const rs_recipient *r, uint32_t what, rs_message *m) {
    const rs_wan_sender *w = rs_wan_sender_of(&x->t);
    const rs_wan_place *places = w && x->t.owner == x->t.engine ? w->places : NULL;
    if (what != RS_CONTROL_REPORT_TO)
        return false;
    m->type = RS_MSG_REPORT_TO;
    const rs_wan_place *p = places ? &places[r - x->recipients] : NULL;
    if (!p || !p->placed)
        return true;
    m->report_to.on = true;
    m->report_to.height = p->height;
    m->report_to.sample_us = RS_WAN_REPORT_MOST / 1000; /* of statuses, which go to the sender as ever */
    if (p->parent != NOBODY && !rs_place_on_wire(node, x->recipients[p->parent].link.peer->id, &m->report_to.parent))
        return false;
    for (uint32_t at = p->first_child; at != NOBODY && m->report_to.count < RS_REPORT_TO_MOST; at = places[at].next)
        m->report_to.count +=
            rs_place_on_wire(node, x->recipients[at].link.peer->id, &m->report_to.children[m->report_to.count]);
    return true;
}

static uint32_t children_of(const rs_wan_place *places, uint32_t place) {
    uint32_t count = 0;
    for (uint32_t at = places[place].first_child; at != NOBODY; at = places[at].next)
        count++;
    return count;
}

void rs_wan_tree_without(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    uint32_t place = (uint32_t)(r - x->recipients);
    if (!w || !w->places || !w->places[place].placed || rs_is_finished(&x->t))
        return;
    rs_wan_place *places = w->places, *p = &places[place];
    uint32_t parent = p->parent, count = parent == NOBODY ? 0 : children_of(places, parent);
    if (parent != NOBODY) {
        uint32_t *at = &places[parent].first_child;
        while (*at != place)
            at = &places[*at].next;
        *at = p->next;
        count--;
    }
    for (uint32_t at = p->first_child, next; at != NOBODY; at = next) {
        next = places[at].next;
        bool fits = parent != NOBODY && count < RS_REPORT_TO_MOST;
        add_child(places, fits ? parent : NOBODY, at);
        count += fits;
        tell(node, now, x, at);
    }
    *p = (rs_wan_place){.parent = NOBODY, .first_child = NOBODY, .next = NOBODY};
    tell(node, now, x, place);
    if (parent != NOBODY)
        tell(node, now, x, parent);
}

void rs_wan_tree_free(rs_node *node, rs_wan_sender *w) {
    rs_memory_give(&node->allocator, w->places);
    w->places = NULL;
}
