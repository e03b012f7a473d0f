#include "core/qsm/completion.h"

#include <string.h>

#include "core/groups/members.h"

#define ROOM_LEAST 64u
#define GIVEN_UP (1u << 31)

rs_status rs_qsm_completion_tell(void *of_node, rs_gm_group *group, bool tell) {
    rs_qsm *own = of_node;
    if (!tell)
        rs_qsm_completion_end(own, group);
    if (!tell || group->own)
        return RS_OK;
    rs_qsm_completion *c = rs_memory_take(&own->node->allocator, sizeof *c);
    if (!c)
        return RS_ERR_MEMORY;
    *c = (rs_qsm_completion){.group = group->id};
    c->first = c->next = group->published ? group->published->high + 1 : 1;
    rs_list_init(&c->done);
    group->own = c;
    own->completions++;
    return RS_OK;
}

void rs_qsm_completion_end(rs_qsm *own, rs_gm_group *group) {
    rs_qsm_completion *c = group->own;
    if (!c)
        return;
    rs_list_remove(&c->done);
    rs_memory_give(&own->node->allocator, c->left);
    rs_memory_give(&own->node->allocator, c);
    group->own = NULL;
    own->completions--;
}

static uint32_t *at(const rs_qsm_completion *c, uint64_t sn) {
    return &c->left[sn & (c->room - 1)];
}

/* What is complete from the first on is told. */
static void advance(rs_qsm *own, rs_qsm_completion *c) {
    uint64_t before = c->first;
    for (; c->first < c->next && (*at(c, c->first) & ~GIVEN_UP) == 0; c->first++)
        c->given_up += *at(c, c->first) != 0;
    if (c->first > before)
        rs_list_keep(&own->completed, &c->done, true);
}

static bool reserve(rs_qsm *own, rs_qsm_completion *c) {
    if (c->next - c->first < c->room)
        return true;
    const rs_allocator *allocator = &own->node->allocator;
    uint32_t room = c->room ? 2 * c->room : ROOM_LEAST;
    uint32_t *left = rs_memory_take(allocator, room * sizeof *left);
    if (!left)
        return false;
    for (uint64_t sn = c->first; sn < c->next; sn++)
        left[sn & (room - 1)] = *at(c, sn);
    rs_memory_give(allocator, c->left);
    c->left = left;
    c->room = room;
    return true;
}

/* What waits is bounded as requests are: a group has no more packets under way than its regions keep. */
void rs_qsm_completion_begin(rs_qsm *own, rs_gm_group *group, uint64_t sn, uint32_t requests) {
    rs_qsm_completion *c = group->own;
    if (!c || sn < c->next)
        return;
    if (c->first == c->next)
        c->first = c->next = sn; /* numbers go on beyond what was used once */
    for (; c->next <= sn; c->next++) {
        if (!reserve(own, c)) { /* nobody can say of these */
            c->given_up += c->next - c->first + 1;
            c->first = c->next = sn + 1;
            rs_list_keep(&own->completed, &c->done, true);
            return;
        }
        *at(c, c->next) = c->next == sn ? requests : 0;
    }
    advance(own, c);
}

void rs_qsm_completion_packet(rs_qsm *own, const rs_qsm_own_packet *packet, bool given_up) {
    rs_qsm_inner inner;
    bool well;
    if (own->completions == 0 || !packet->bytes)
        return;
    for (size_t place = RS_QSM_DATA_HEAD; rs_qsm_get_inner(packet->bytes, packet->length, &place, &inner, &well);) {
        const rs_gm_group *group = rs_gm_group_find(own->node, inner.group);
        rs_qsm_completion *c = group && group->engine->complete == rs_qsm_completion_tell ? group->own : NULL;
        if (!c || inner.sn < c->first || inner.sn >= c->next || (*at(c, inner.sn) & ~GIVEN_UP) == 0)
            continue;
        *at(c, inner.sn) = (*at(c, inner.sn) - 1) | (given_up ? GIVEN_UP : 0);
        advance(own, c);
    }
}

bool rs_qsm_completion_poll(void *of_node, rs_messages_event *out) {
    rs_qsm *own = of_node;
    if (rs_list_empty(&own->completed))
        return false;
    rs_qsm_completion *c = RS_HOLDER(rs_qsm_completion, done, own->completed.next);
    rs_list_remove(&c->done);
    *out = (rs_messages_event){.kind = RS_MESSAGES_COMPLETE,
                               .group = c->group,
                               .sender = own->node->config.self,
                               .incarnation = own->node->config.incarnation,
                               .sn = c->first - 1,
                               .count = c->given_up};
    c->given_up = 0;
    return true;
}
