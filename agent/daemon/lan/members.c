#include "daemon/lan/members.h"

#include <stdio.h>

#include "daemon/lan/lan.h"

bool rs_lan_members_ready(const rs_lan_member *members, uint32_t count) {
    bool ready = true;
    for (uint32_t i = 0; i < count; i++)
        ready &= !members[i].involved || members[i].gone || members[i].ready;
    return ready;
}

/* The next one that multicast reaches, from `from` on and around. */
static uint32_t next_direct(const rs_lan_member *members, uint32_t count, uint32_t from) {
    for (uint32_t i = from;; i = i + 1 < count ? i + 1 : 0)
        if (members[i].direct && !members[i].gone)
            return i;
}

bool rs_lan_members_plan(rs_lan_member *members, uint32_t count, rs_time now, int32_t *head) {
    int32_t previous = RS_LAN_NOBODY;
    uint32_t direct = 0, handed = 0, turn = count - 1;
    *head = RS_LAN_NOBODY;
    for (uint32_t i = 0; i < count; i++) {
        rs_lan_member *m = &members[i];
        m->next = RS_LAN_NOBODY;
        m->ready = m->involved = false;
        m->heard = now;
        direct += m->direct && !m->gone;
        handed += !m->direct && !m->gone;
    }
    for (uint32_t i = 0; i < count && handed > 0; i++) {
        rs_lan_member *m = &members[i];
        if (m->direct || m->gone)
            continue;
        m->involved = true;
        if (direct == 0) {
            if (previous == RS_LAN_NOBODY)
                *head = (int32_t)i;
            else
                members[previous].next = (int32_t)i;
            previous = (int32_t)i;
            continue;
        }
        uint32_t at = turn = next_direct(members, count, turn + 1 < count ? turn + 1 : 0);
        members[at].involved = true;
        while (members[at].next != RS_LAN_NOBODY)
            at = (uint32_t)members[at].next;
        members[at].next = (int32_t)i;
    }
    return handed > 0;
}

void rs_lan_members_describe(const rs_lan_member *members, uint32_t count, char *text, size_t size) {
    uint32_t direct = 0, handed = 0;
    for (uint32_t i = 0; i < count; i++) {
        direct += members[i].direct;
        handed += !members[i].direct;
    }
    if (handed == 0)
        snprintf(text, size, "multicast gets through to all %u", count);
    else
        snprintf(text, size,
                 "multicast gets through to %u of %u: for the others the data is handed on from server to server",
                 direct, count);
}

void rs_lan_members_unready(const rs_lan_member *members, uint32_t count, char *text, size_t size) {
    for (uint32_t i = 0; i < count; i++) {
        const rs_lan_member *m = &members[i];
        if (!m->involved || m->gone || m->ready)
            continue;
        if (m->relay_port == 0) {
            snprintf(text, size, "%.60s, to which multicast does not get through, does not answer any more", m->name);
            return;
        }
        if (m->next != RS_LAN_NOBODY) {
            snprintf(text, size,
                     "multicast does not get through, and %.60s does not reach %.60s: does a firewall refuse UDP port "
                     "%u?",
                     m->name, members[m->next].name, RS_LAN_PORT);
            return;
        }
    }
    snprintf(text, size, "relays did not get ready");
}

bool rs_lan_members_found(rs_lan_member *members, uint32_t *count) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < *count; i++)
        found += members[i].place != NULL;
    for (uint32_t i = 0, at = 0; found > 0 && i < *count; i++)
        if (members[i].place)
            members[at++] = members[i];
    *count = found ? found : *count;
    return found > 0;
}

bool rs_lan_members_twice(const rs_lan_member *members, uint32_t count, char *text, size_t size) {
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (members[i].peer.address == members[k].peer.address &&
                members[i].peer.control_port == members[k].peer.control_port) {
                snprintf(text, size, "%.60s and %.60s are the same agent: name it once", members[k].name,
                         members[i].name);
                return true;
            }
    return false;
}

void rs_lan_members_absent(const rs_lan_member *members, uint32_t count, uint16_t data_port, char *text, size_t size) {
    size_t used = 0;
    uint32_t absent = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!members[i].place && absent++ < 3)
            used += (size_t)snprintf(text + used, size - used, "%s%.40s", used ? ", " : "", members[i].name);
    snprintf(text + used, size - used,
             "%s: no agent answers by that name; does rostrum receive run there, does its firewall take UDP %u and %u?",
             absent > 3 ? ", ..." : "", RS_LAN_PORT, data_port);
}
