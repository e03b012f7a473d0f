/* Message groups of a LAN that nobody manages: who is in a group, and the views of it.
 *
 * An agent whose program comes to a group asks three times who is in it, then makes its first view and says now and
 * then that it is there. Only an answer to a question of ours counts (it repeats a number that only who is at that
 * address knows); whoever says something new unasked is asked. The versions of views are a logical clock: nobody's is
 * below one that a message to it had, so that what a sender publishes once it knows of a member is owed to that member,
 * by the version in its packets (core/groups/streams.c). */
#include "daemon/lan/groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/random.h"
#include "core/base/xxh64.h"
#include "daemon/log.h"
#include "daemon/units.h"

#define ASKS 3u
#define TO_ALL 1u                    /* what a question to all asks to be repeated: its answers are asked once more */
#define HEARS_BOUND (25 * RS_SECOND) /* agents announce themselves by multicast every 10 s */
#define ASK_SILENT (12 * RS_SECOND)  /* those of a group say so as often */
#define GONE_AFTER (30 * RS_SECOND)
#define KNOWN_BOUND (5 * RS_SECOND) /* so long nobody is asked again who asks us */
#define SAY_EVERY (10 * RS_SECOND)
#define VERSION_JUMP (UINT64_C(1) << 28) /* a version further ahead is no version of this group's */
#define VERSION_UNIT 26u /* ns of the wall clock by which a group begins: 67 ms, so that 32 bits last for years */
#define GROUPS_BASE 0xefc00000u /* 239.192.0.0, as of paths */
#define GROUPS_BITS 0x007fffffu

/* Another agent in a group. */
typedef struct {
    uint32_t address;
    int32_t id; /* in views */
    uint16_t control_port, lan_port;
    uint64_t boot;
    char name[RS_LAN_NAME + 1];
    bool sender;  /* it publishes only */
    bool reached; /* by multicast from here */
    rs_time heard, answered, asked;
    rs_time multicast_at; /* it said by multicast that it is there; 0: it has not */
} group_member;

typedef struct {
    char protocol[32], order[8], options[RS_GROUP_OPTIONS_TEXT];
} group_facts;

typedef struct lan_group {
    struct lan_group *next;
    char name[ROSTRUM_GROUP_NAME_MAX + 1];
    uint32_t id;
    bool joined, used;           /* by programs here; joined: it receives */
    bool shown, shown_as_member; /* in the views that were made here; shown: there is one */
    bool asked;                  /* a program here wants it as in `wanted`, and not otherwise */
    group_facts wanted;          /* what it is if it is founded here */
    group_facts is;
    int64_t founded; /* 0: what the group is, is not known yet */
    uint32_t founder, address;
    uint16_t data_port;
    uint64_t version, pushed, heard_version;
    uint64_t pledged; /* the version that all were told with the last question: what they publish then is owed here */
    bool changed;     /* a view is due */
    unsigned asks, says;
    rs_time next_at;
    group_member *members;
    uint32_t count, room;
} lan_group;

struct rs_lan_groups {
    rs_lan_groups_options options;
    rs_manager_callbacks views;
    uint64_t random;
    lan_group *groups;
    uint32_t group_count;
    uint32_t *servers; /* addresses; the number in views is the index. This agent has the first */
    uint32_t server_count;
    rs_log_limit refusals;
};

/* --------------------------------------------------------------------------------------------------------- finding */

static lan_group *find(const rs_lan_groups *g, const char *name) {
    lan_group *group = g->groups;
    while (group && strcmp(group->name, name) != 0)
        group = group->next;
    return group;
}

static group_member *member_at(const lan_group *group, uint32_t address) {
    for (uint32_t i = 0; i < group->count; i++)
        if (group->members[i].address == address)
            return &group->members[i];
    return NULL;
}

/* -1: as many as can be were met. */
static int32_t server_id(rs_lan_groups *g, uint32_t address) {
    for (uint32_t i = 0; i < g->server_count; i++)
        if (g->servers[i] == address)
            return (int32_t)i;
    if (g->server_count == RS_LAN_SERVERS_MAX)
        return -1;
    g->servers[g->server_count] = address;
    return (int32_t)g->server_count++;
}

bool rs_lan_groups_has(const rs_lan_groups *g, uint32_t address) {
    for (const lan_group *group = g->groups; group; group = group->next)
        if (group->founded && group->address == address)
            return true;
    return false;
}

/* --------------------------------------------------------------------------------------------------------- speaking */

static bool hears(const group_member *m, rs_time now) {
    return m && m->multicast_at && now - m->multicast_at < ASK_SILENT;
}

/* Repeated only by who gets what is sent to that address. */
static uint64_t nonce_for(const rs_lan_groups *g, uint32_t address) {
    uint8_t bytes[4];
    rs_le_put(bytes, address, 4);
    return rs_gm_xxh64(bytes, sizeof bytes, g->options.secret) | 2;
}

/* `echo`: what the other one asked to be repeated, or 0; `ask`: it is asked to repeat ours. */
static void say(const rs_lan_groups *g, const lan_group *group, uint64_t echo, bool ask, bool heard, uint32_t address,
                uint16_t port) {
    rs_lan_group_message m = {
        .id = group->id, .version = group->version, .founded = group->founded, .founder = group->founder};
    m.head.type = RS_LAN_GROUP;
    m.head.nonce = echo;
    m.head.cookie = !ask ? 0 : address ? nonce_for(g, address) : TO_ALL;
    m.head.group = group->address;
    m.head.data_port = group->data_port;
    m.head.flags = (uint16_t)((group->joined ? RS_LAN_MEMBER
                               : group->used ? RS_LAN_SENDER
                                             : 0) |
                              (heard ? RS_LAN_HEARS : 0));
    memcpy(m.group, group->name, sizeof m.group);
    memcpy(m.protocol, group->is.protocol, sizeof m.protocol);
    memcpy(m.order, group->is.order, sizeof m.order);
    memcpy(m.options, group->is.options, sizeof m.options);
    g->options.say(g->options.context, &m, address, port);
}

static void say_to(const rs_lan_groups *g, rs_time now, const lan_group *group, group_member *m, bool ask) {
    say(g, group, 0, ask, hears(m, now), m->address, m->lan_port);
    m->asked = ask ? now : m->asked;
}

/* By multicast and broadcast, and by unicast to members that do not hear it. */
static void say_to_all(const rs_lan_groups *g, rs_time now, const lan_group *group, bool ask) {
    say(g, group, 0, ask, false, 0, 0);
    for (uint32_t i = 0; i < group->count; i++)
        if (ask || !group->members[i].reached)
            say_to(g, now, group, &group->members[i], ask);
}

/* Those who may be in it without being known, and whom multicast may not reach. */
static void ask_around(const rs_lan_groups *g, rs_time now, const lan_group *group) {
    say_to_all(g, now, group, true);
    for (uint32_t i = 0; i < RS_LAN_PEERS_MAX; i++) {
        const rs_lan_known *p = &g->options.peers[i];
        if (p->used && p->has_cookie && now - p->heard < RS_LAN_FRESH && p->address != g->options.address &&
            !member_at(group, p->address) && (!p->multicast_heard || now - p->multicast_heard >= HEARS_BOUND))
            say(g, group, 0, true, false, p->address, p->lan_port);
    }
}

/* ------------------------------------------------------------------------------------------------------------ views */

static void tell_copies(const rs_lan_groups *g, const lan_group *group) {
    uint32_t *addresses = calloc(group->count + 1u, sizeof *addresses), count = 0;
    for (uint32_t i = 0; addresses && i < group->count; i++)
        if (!group->members[i].sender && !group->members[i].reached)
            addresses[count++] = group->members[i].address;
    if (addresses)
        g->options.copies(g->options.context, group->name, addresses, count);
    free(addresses);
}

static void tell_peer(const rs_lan_groups *g, int32_t id, const char *name, uint32_t address, uint16_t port,
                      uint64_t boot) {
    const rs_manager_group_peer peer = {.id = id, .server = name, .address = address, .port = port, .boot_id = boot};
    g->views.on_group_peer(g->views.context, &peer);
}

/* The group is taken from programs here. */
static void drop(rs_lan_groups *g, lan_group *group) {
    for (lan_group **at = &g->groups; *at; at = &(*at)->next)
        if (*at == group) {
            *at = group->next;
            break;
        }
    g->group_count--;
    free(group->members);
    free(group);
}

static void leave(rs_lan_groups *g, rs_time now, lan_group *group) {
    group->joined = group->used = false;
    say(g, group, 0, false, false, 0, 0);
    for (uint32_t i = 0; i < group->count; i++)
        say_to(g, now, group, &group->members[i], false);
    drop(g, group);
}

static void refuse(rs_lan_groups *g, rs_time now, lan_group *group) {
    char text[ROSTRUM_TEXT_MAX + 1], name[ROSTRUM_GROUP_NAME_MAX + 1], founder[RS_ADDRESS_TEXT];
    snprintf(text, sizeof text,
             "%.64s runs %s%s%.64s with order %s, as %s founded it, other than was asked for: "
             "leave the options out",
             group->name, group->is.protocol, group->is.options[0] ? " and " : "", group->is.options, group->is.order,
             rs_address_text(group->founder, founder));
    memcpy(name, group->name, sizeof name);
    leave(g, now, group);
    g->views.on_group_refused(g->views.context, name, text);
}

static bool is_wanted(const lan_group *group) {
    return !group->asked ||
           (strcmp(group->is.protocol, group->wanted.protocol) == 0 &&
            strcmp(group->is.order, group->wanted.order) == 0 && strcmp(group->is.options, group->wanted.options) == 0);
}

/* Nobody said what it is. */
static void found(rs_lan_groups *g, lan_group *group) {
    group->is = group->wanted;
    group->founded = g->options.wall_clock();
    group->founder = g->options.address;
    group->data_port = g->options.data_port;
    /* Whoever published in an earlier group of the name remembers its versions: those of this one are later. */
    uint64_t begin = (uint64_t)group->founded >> VERSION_UNIT;
    group->version = group->version > begin ? group->version : begin;
    group->pledged = group->version;
    /* by its name, so that two who found it at one time choose the same */
    group->address =
        g->options.address_free(g->options.context, GROUPS_BASE | ((uint32_t)rs_mix(group->id) & GROUPS_BITS));
}

static void make_view(rs_lan_groups *g, rs_time now, lan_group *group) {
    int32_t *members = calloc(group->count + 1u, sizeof *members),
            *senders = calloc(group->count + 1u, sizeof *senders);
    uint32_t member_count = 0, sender_count = 0;
    group->changed = false;
    if (!members || !senders) {
        free(members);
        free(senders);
        group->next_at = now + RS_SECOND;
        return;
    }
    tell_peer(g, 0, g->options.server, g->options.address, g->options.control_port, g->options.boot);
    *(group->shown_as_member ? &members[member_count++] : &senders[sender_count++]) = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        const group_member *m = &group->members[i];
        tell_peer(g, m->id, m->name, m->address, m->control_port, m->boot);
        *(m->sender ? &senders[sender_count++] : &members[member_count++]) = m->id;
    }
    if (group->version <= group->pushed)
        group->version = group->pushed + 1;
    group->pushed = group->version;
    const rs_manager_group_view view = {.id = group->id,
                                        .version = group->version,
                                        .full = true,
                                        .group = group->name,
                                        .addresses = &group->address,
                                        .address_count = 1,
                                        .port = group->data_port,
                                        .options = {group->is.protocol, group->is.order, group->is.options},
                                        .members = members,
                                        .member_count = member_count,
                                        .senders = senders,
                                        .sender_count = sender_count};
    g->views.on_group_view(g->views.context, &view);
    tell_copies(g, group);
    free(members);
    free(senders);
}

/* ------------------------------------------------------------------------------------------------------------- time */

static bool is_asking(const lan_group *group) {
    return !group->shown || (group->joined && !group->shown_as_member);
}

static void next_ask(rs_lan_groups *g, rs_time now, lan_group *group) {
    static const rs_time pauses[ASKS] = {25 * RS_MILLISECOND, 50 * RS_MILLISECOND, 75 * RS_MILLISECOND};
    if (group->asks < ASKS) {
        group->version += group->asks == 0;
        if (group->heard_version > group->version)
            group->version = group->heard_version;
        group->pledged = group->version;
        ask_around(g, now, group);
        group->next_at = now + pauses[group->asks++];
        return;
    }
    if (!group->founded)
        found(g, group);
    if (!is_wanted(group)) {
        refuse(g, now, group);
        return;
    }
    group->shown = true;
    group->shown_as_member = group->joined;
    group->says = 0;
    group->next_at = now;
    uint64_t newest = group->version;
    group->version = group->pledged;
    make_view(g, now, group);
    group->changed |= newest > group->version;
    group->version = newest > group->version ? newest : group->version;
}

static void forget_silent(rs_lan_groups *g, rs_time now, lan_group *group) {
    for (uint32_t i = 0; i < group->count;) {
        group_member *m = &group->members[i];
        if (now - m->heard > GONE_AFTER) {
            rs_log(RS_LOG_INFO, "lan", "group=%s member=%s is silent: it is out", group->name, rs_quote(m->name));
            *m = group->members[--group->count];
            group->version++;
            group->changed = true;
            continue;
        }
        if (now - m->heard > ASK_SILENT)
            say_to(g, now, group, m, true);
        i++;
    }
}

static void next_say(rs_lan_groups *g, rs_time now, lan_group *group) {
    static const rs_time pauses[] = {300 * RS_MILLISECOND, RS_SECOND, 3 * RS_SECOND};
    forget_silent(g, now, group);
    say_to_all(g, now, group, false);
    /* not all groups and agents at once */
    rs_time spread = (rs_time)(rs_random_next(&g->random) % (uint64_t)RS_SECOND);
    group->next_at = now + (group->says < 3 ? pauses[group->says] : SAY_EVERY - spread);
    group->says++;
}

void rs_lan_groups_timeout(rs_lan_groups *g, rs_time now) {
    for (lan_group *group = g->groups, *next; group; group = next) {
        next = group->next;
        if (group->next_at <= now && is_asking(group)) {
            next_ask(g, now, group); /* it may be gone */
            continue;
        }
        if (group->shown && group->heard_version > group->version && !is_asking(group)) {
            group->version = group->heard_version;
            group->changed = true;
        }
        if (group->next_at <= now)
            next_say(g, now, group);
        if (group->shown && group->changed)
            make_view(g, now, group);
    }
}

rs_time rs_lan_groups_deadline(const rs_lan_groups *g) {
    rs_time first = RS_NEVER;
    for (const lan_group *group = g->groups; group; group = group->next) {
        bool due = group->shown && (group->changed || (group->heard_version > group->version && !is_asking(group)));
        if (due || group->next_at < first)
            first = due ? 0 : group->next_at;
    }
    return first;
}

/* ---------------------------------------------------------------------------------------------------- from programs */

static lan_group *make(rs_lan_groups *g, rs_time now, const char *name) {
    char text[160];
    uint32_t id = rs_lan_group_id(name);
    lan_group *group = g->group_count < RS_LAN_GROUPS_MAX ? calloc(1, sizeof *group) : NULL;
    snprintf(text, sizeof text, "%u groups are used here already, as many as can be without a manager", g->group_count);
    for (const lan_group *other = g->groups; other; other = other->next)
        if (other->id == id) {
            snprintf(text, sizeof text, "its number is that of %.100s: choose another name", other->name);
            free(group);
            group = NULL;
        }
    if (!group) {
        g->views.on_group_refused(g->views.context, name, text);
        return NULL;
    }
    snprintf(group->name, sizeof group->name, "%s", name);
    group->id = id;
    group->next_at = now;
    group->next = g->groups;
    g->groups = group;
    g->group_count++;
    return group;
}

static void want(lan_group *group, const rs_manager_group_options *facts, bool asked) {
    if (group->asked || (group->wanted.protocol[0] && !asked))
        return;
    group->asked = asked;
    snprintf(group->wanted.protocol, sizeof group->wanted.protocol, "%s", facts->protocol);
    snprintf(group->wanted.order, sizeof group->wanted.order, "%s", facts->order);
    snprintf(group->wanted.options, sizeof group->wanted.options, "%s", facts->options);
}

void rs_lan_groups_call(rs_lan_groups *g, rs_time now, rs_manager_group_call call, const char *name,
                        const rs_manager_group_options *facts, bool asked) {
    lan_group *group = find(g, name);
    bool comes = call == RS_MANAGER_GROUP_JOIN || call == RS_MANAGER_GROUP_USE;
    if (!group && comes)
        group = make(g, now, name);
    if (!group)
        return;
    bool joined = group->joined;
    if (comes)
        want(group, facts, asked);
    group->joined = call == RS_MANAGER_GROUP_JOIN || (group->joined && call != RS_MANAGER_GROUP_LEAVE);
    group->used = call == RS_MANAGER_GROUP_USE || (group->used && call != RS_MANAGER_GROUP_UNUSE);
    if (!group->joined && !group->used) {
        leave(g, now, group);
        return;
    }
    if (group->joined && !joined) { /* in views once the others know */
        group->asks = 0;
        group->next_at = now;
    } else if (joined && !group->joined) {
        group->shown_as_member = false;
        group->version++;
        group->changed = true;
        group->says = 0;
        group->next_at = now;
    }
}

/* ------------------------------------------------------------------------------------------------------ from others */

static bool is_older(const rs_lan_group_message *m, const lan_group *group) {
    return m->founded != group->founded ? m->founded < group->founded : m->founder < group->founder;
}

/* What the older of two groups of the name is, holds. False: the group is gone. */
static bool take_facts(rs_lan_groups *g, rs_time now, lan_group *group, const rs_lan_group_message *m) {
    if (m->founded == 0 || (group->founded && !is_older(m, group)))
        return true;
    memcpy(group->is.protocol, m->protocol, sizeof group->is.protocol);
    memcpy(group->is.order, m->order, sizeof group->is.order);
    memcpy(group->is.options, m->options, sizeof group->is.options);
    group->founded = m->founded;
    group->founder = m->founder;
    group->address = m->head.group;
    group->data_port = m->head.data_port;
    group->version++;
    group->changed = true;
    if (!group->shown || is_wanted(group))
        return true;
    refuse(g, now, group);
    return false;
}

static group_member *add_member(rs_lan_groups *g, lan_group *group, uint32_t address) {
    int32_t id = server_id(g, address);
    if (group->count == group->room && group->room < RS_LAN_MEMBERS_MAX) {
        uint32_t room = group->room ? 2 * group->room : 8;
        group_member *more = realloc(group->members, room * sizeof *more);
        if (more) {
            group->members = more;
            group->room = room;
        }
    }
    if (id < 0 || group->count == group->room) {
        rs_log_limited(&g->refusals, 5, RS_LOG_WARNING, "lan", "group=%s no room for another member, of %u",
                       group->name, group->count);
        return NULL;
    }
    group->members[group->count] = (group_member){.address = address, .id = id};
    return &group->members[group->count++];
}

static void take_member(rs_lan_groups *g, rs_time now, lan_group *group, const rs_lan_group_message *m, uint32_t from,
                        uint16_t port) {
    const rs_lan_message *head = &m->head;
    bool in = head->flags & (RS_LAN_MEMBER | RS_LAN_SENDER), sender = !(head->flags & RS_LAN_MEMBER);
    group_member *one = member_at(group, from);
    if (!in) {
        if (one) {
            *one = group->members[--group->count];
            group->version++;
            group->changed = true;
        }
        return;
    }
    bool differs = !one || one->boot != head->boot || one->sender != sender || one->control_port != head->control_port;
    if (!one && !(one = add_member(g, group, from)))
        return;
    group->version += differs;
    group->changed |= differs;
    /* it gets copies until it has heard this agent by multicast */
    rs_time soon = now + 200 * RS_MILLISECOND + (rs_time)(rs_random_next(&g->random) % (500 * RS_MILLISECOND));
    if (differs && group->shown && soon < group->next_at)
        group->next_at = soon;
    one->boot = head->boot;
    one->sender = sender;
    one->control_port = head->control_port;
    one->lan_port = port;
    one->answered = now;
    memcpy(one->name, head->name, sizeof one->name);
}

/* Of one who is in the group, as it was. */
static void note_alive(const rs_lan_groups *g, rs_time now, lan_group *group, group_member *one,
                       const rs_lan_group_message *m, bool multicast) {
    one->heard = now;
    uint64_t newest = group->version > group->heard_version ? group->version : group->heard_version;
    if (m->version > newest && (m->version < newest + VERSION_JUMP || !group->founded || !group->shown))
        group->heard_version = m->version;
    bool reached = m->head.flags & RS_LAN_HEARS;
    if (multicast)
        one->multicast_at = now;
    if (multicast || one->reached == reached)
        return;
    one->reached = reached;
    if (group->shown)
        tell_copies(g, group);
}

void rs_lan_groups_heard(rs_lan_groups *g, rs_time now, const rs_lan_group_message *m, uint32_t from, uint16_t port,
                         bool multicast) {
    const rs_lan_message *head = &m->head;
    lan_group *group = find(g, m->group);
    bool answers = head->nonce == nonce_for(g, from), asks = head->cookie != 0;
    bool in = head->flags & (RS_LAN_MEMBER | RS_LAN_SENDER), ask = false;
    if (from == g->options.address)
        return;
    if (!group) {
        if (!asks || multicast)
            return;
        lan_group none = {.id = m->id}; /* whoever asks has to know */
        memcpy(none.name, m->group, sizeof none.name);
        say(g, &none, head->cookie, false, false, from, port);
        return;
    }
    if (answers) {
        take_member(g, now, group, m, from, port);
        if (in && !take_facts(g, now, group, m))
            return;
    }
    group_member *one = member_at(group, from);
    bool same = one && one->boot == head->boot && one->sender == !(head->flags & RS_LAN_MEMBER);
    bool heard = hears(one, now);
    if (in && same)
        note_alive(g, now, group, one, m, multicast);
    bool older = in && m->founded && group->founded && is_older(m, group) && (!one || now - one->asked > RS_SECOND);
    if (!answers) /* what it says has to be true before it counts */
        ask =
            older || (in ? !same || (now - one->answered > KNOWN_BOUND && now - one->asked > RS_SECOND) : one != NULL);
    if (asks || ask || (!heard && hears(one, now)))
        say(g, group, head->cookie, ask, hears(one, now), from, port);
    if (one && ask)
        one->asked = now;
}

/* ------------------------------------------------------------------------------------------------------------ birth */

rs_lan_groups *rs_lan_groups_new(const rs_lan_groups_options *options) {
    rs_lan_groups *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->options = *options;
    g->views = *options->views;
    g->random = options->seed;
    g->servers = calloc(RS_LAN_SERVERS_MAX, sizeof *g->servers);
    if (!g->servers) {
        rs_lan_groups_free(g);
        return NULL;
    }
    (void)server_id(g, options->address);
    return g;
}

void rs_lan_groups_free(rs_lan_groups *g) {
    if (!g)
        return;
    while (g->groups)
        drop(g, g->groups);
    free(g->servers);
    free(g);
}
