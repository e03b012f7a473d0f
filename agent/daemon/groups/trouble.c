/* Who holds a group with guarantees up, as the manager is told. */
#include "daemon/groups/trouble.h"

#include <string.h>

#include "daemon/groups/state.h"
#include "daemon/groups/stream.h"
#include "daemon/groups/views.h"
#include "daemon/manager/client.h"

#define LOOK (RS_SECOND / 4)
#define TELL RS_SECOND
#define PUT_OUT_TOLD (10 * RS_SECOND)
#define SILENT (3 * RS_SECOND) /* as a lease is usually: who is silent to the manager too is put out by then */

static uint32_t slow_here(const rs_local_group *group, rs_time now, rs_manager_slow *out) {
    uint32_t count = 0;
    for (const rs_group_stream *s = group->streams; s && count + 1 < RS_MANAGER_TROUBLE_MOST; s = rs_stream_next(s))
        count += rs_stream_is_slow(s, now, &out[count]);
    if (group->put_out[0] && now - group->put_out_at < PUT_OUT_TOLD)
        out[count++] = (rs_manager_slow){group->put_out, "put-out", group->put_out_lost};
    return count;
}

static uint32_t silent_elsewhere(rs_groups *g, const rs_local_group *group, rs_time now, const char **out) {
    rs_peer peers[RS_MANAGER_TROUBLE_MOST];
    uint32_t found = rs_order_silent(group->ordered, now, SILENT, peers, RS_MANAGER_TROUBLE_MOST), count = 0;
    for (uint32_t i = 0; i < found; i++) {
        const rs_group_peer *peer = rs_group_peer_at(g, peers[i]);
        if (peer)
            out[count++] = peer->name;
    }
    return count;
}

/* Of what is told: another one is told at once. */
static uint64_t digest_of(const rs_manager_group_trouble *trouble) {
    uint64_t digest = trouble->slow_count;
    for (uint32_t i = 0; i < trouble->slow_count; i++)
        digest = digest * 31 + (uint8_t)trouble->slow[i].state[0] + strlen(trouble->slow[i].program);
    for (uint32_t i = 0; i < trouble->silent_count; i++)
        for (const char *c = trouble->silent[i]; *c; c++)
            digest = digest * 131 + (uint8_t)*c;
    return digest;
}

static void tell(rs_groups *g, rs_local_group *group, rs_time now) {
    rs_manager_slow slow[RS_MANAGER_TROUBLE_MOST];
    const char *silent[RS_MANAGER_TROUBLE_MOST];
    rs_manager_group_trouble trouble = {.group = group->name, .slow = slow, .silent = silent};
    trouble.slow_count = slow_here(group, now, slow);
    trouble.silent_count = silent_elsewhere(g, group, now, silent);
    bool any = trouble.slow_count + trouble.silent_count > 0;
    uint64_t digest = digest_of(&trouble);
    if (!any && group->trouble_at == 0)
        return;
    if (any && group->trouble_at > 0 && digest == group->trouble && now - group->trouble_at < TELL)
        return;
    if (rs_manager_tell_group_trouble(g->agent->link, now, &trouble) != RS_OK)
        return; /* in a moment again */
    group->trouble = digest;
    group->trouble_at = any ? now : 0;
}

void rs_groups_tell_trouble(rs_groups *g) {
    rs_time now = rs_agent_now(g->agent);
    if (!g->ordered || !g->agent->link || !rs_manager_up(g->agent->link) || now - g->trouble_looked_at < LOOK)
        return;
    g->trouble_looked_at = now;
    for (rs_local_group *group = g->ordered; group; group = group->next_ordered)
        tell(g, group, now);
}

rs_time rs_groups_trouble_deadline(const rs_groups *g) {
    return g->ordered && g->agent->link && rs_manager_up(g->agent->link) ? g->trouble_looked_at + LOOK : RS_NEVER;
}
