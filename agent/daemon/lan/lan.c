/* Agents of a LAN that nobody manages: who is there, whether multicast gets through, and if not, who hands on to
 * whom. */
#include "daemon/lan/lan.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/random.h"
#include "core/base/xxh64.h"
#include "daemon/data/transfers.h"
#include "daemon/lan/groups.h"
#include "daemon/lan/members.h"
#include "daemon/lan/peers.h"
#include "daemon/lan/served.h"
#include "daemon/lan/sockets.h"
#include "daemon/lan/wire.h"
#include "daemon/log.h"
#include "daemon/units.h"

#define LAN_GROUP 0xefff4748u    /* 239.255.71.72: where agents are asked for and announce themselves */
#define GROUPS_BASE 0xefc00000u  /* 239.192.0.0: groups of paths */
#define GROUPS_BITS 0x007fffffu  /* of these Ethernet addresses have no more than 23 */
#define GROUPS_LEAST 0x00000200u /* those below have Ethernet addresses that switches flood (224.0.0.x) */
#define READS_PER_TURN 256
#define ANNOUNCE_EVERY (10 * RS_SECOND)
#define FIND_BOUND (5 * RS_SECOND)       /* where a send does not say how long it waits */
#define FIND_LEAST RS_SECOND             /* of one that waited for its turn */
#define FIND_FIRST (25 * RS_MILLISECOND) /* a question is asked again after this, then after twice as long */
#define FIND_LONGEST (500 * RS_MILLISECOND)
#define TEST_EVERY (5 * RS_MILLISECOND)
#define TEST_BOUND (300 * RS_MILLISECOND) /* of test packets none came: none come. Snooping switches learn in some ms */
#define TEST_SILENCE (1500 * RS_MILLISECOND)
#define RELAY_EVERY (20 * RS_MILLISECOND)
#define RELAY_BOUND (3 * RS_SECOND)       /* until all relays are ready */
#define RELAY_KEEP (500 * RS_MILLISECOND) /* while the path is in use */
#define RELAY_SILENCE (1500 * RS_MILLISECOND)
#define LIGHT_BOUND (400 * RS_MILLISECOND)
#define HEADERS 28u /* IPv4 and UDP */
typedef enum { FINDING, TESTING, RELAYING, GRANTED, WAITING } path_phase;

typedef struct lan_path {
    struct lan_path *next;
    char request_id[RS_UUID_TEXT], response_id[RS_UUID_TEXT];
    path_phase phase;
    bool granted;
    rs_object_id object;
    uint64_t remaining;
    rs_manager_protocol protocol;
    rs_time began, until, phase_at, next_at, pause;
    rs_time wait, asked;
    bool waits;  /* so long from when it was asked, its turn included; else from when its turn comes */
    bool queued; /* it was told to wait for its turn */
    bool parts;  /* who is not found fails alone */
    uint32_t group;
    uint64_t nonce;
    bool tested;
    rs_group used; /* its number in the data channel */
    int32_t head;  /* to whom the sender sends instead of to the group */
    rs_lan_member *members;
    uint32_t count;
} lan_path;

struct rs_lan {
    rs_lan_options options;
    rs_manager_callbacks callbacks;
    uint64_t random, secret, nonce;
    char host[RS_LAN_NAME + 1];
    uint16_t lan_port;
    rs_watch unicast, multicast, broadcast;
    uint32_t broadcast_address; /* 0 = none; asks where multicast does not get through */
    rs_lan_known *peers;
    lan_path *paths;     /* the newest first */
    uint32_t path_count; /* but for those that wait for their turn */
    rs_lan_served *served;
    rs_lan_groups *groups;
    uint32_t *asked;
    rs_time announce_at, queried_at;
    uint32_t announced;
    int64_t answers_second;
    uint32_t answers;
    uint64_t malformed;
    rs_log_limit refusals;
};

static rs_time now_of(const rs_lan *lan) {
    return rs_loop_now(lan->options.loop);
}

/* --------------------------------------------------------------------------------------------------------- sending */

/* Who says it. */
static void sign(const rs_lan *lan, rs_lan_message *m) {
    m->boot = lan->options.boot;
    m->control_port = lan->options.control_port;
    m->mtu = (uint16_t)(lan->options.mtu < UINT16_MAX ? lan->options.mtu : UINT16_MAX);
    snprintf(m->name, sizeof m->name, "%s", lan->options.server);
    memcpy(m->host, lan->host, sizeof m->host);
}

static rs_lan_message blank(const rs_lan *lan, rs_lan_type type) {
    rs_lan_message m = {.type = type};
    sign(lan, &m);
    return m;
}

static void send_bytes(const rs_lan *lan, const uint8_t *bytes, size_t length, uint32_t address, uint16_t port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(address)}};
    (void)sendto(lan->unicast.fd, bytes, length, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to);
}

static void send_message(const rs_lan *lan, const rs_lan_message *m, uint32_t address, uint16_t port) {
    uint8_t bytes[RS_LAN_MESSAGE];
    rs_lan_encode(m, bytes);
    send_bytes(lan, bytes, sizeof bytes, address, port);
}

/* An answer of those who serve others. */
static void say(void *context, const rs_lan_message *what, uint32_t address, uint16_t port) {
    rs_lan_message m = *what;
    sign(context, &m);
    send_message(context, &m, address, port);
}

/* What this agent is in a message group; address 0: to all of the LAN. */
static void say_group(void *context, rs_lan_group_message *m, uint32_t address, uint16_t port) {
    const rs_lan *lan = context;
    uint8_t bytes[RS_LAN_GROUP_MESSAGE];
    sign(lan, &m->head);
    rs_lan_group_encode(m, bytes);
    send_bytes(lan, bytes, sizeof bytes, address ? address : LAN_GROUP, address ? port : RS_LAN_PORT);
    if (!address && m->head.cookie && lan->broadcast_address) /* questions alone */
        send_bytes(lan, bytes, sizeof bytes, lan->broadcast_address, RS_LAN_PORT);
}

static void send_query(const rs_lan *lan, uint32_t address, uint16_t port) {
    rs_lan_message m = blank(lan, RS_LAN_QUERY);
    m.nonce = lan->nonce;
    send_message(lan, &m, address, port);
}

/* What is answered is for all that look for somebody: many of these ask no oftener than one. */
static void query_all(rs_lan *lan) {
    rs_time now = now_of(lan);
    if (lan->queried_at && now - lan->queried_at < FIND_FIRST)
        return;
    lan->queried_at = now;
    send_query(lan, LAN_GROUP, RS_LAN_PORT);
    if (lan->broadcast_address)
        send_query(lan, lan->broadcast_address, RS_LAN_PORT);
}

static void announce(const rs_lan *lan) {
    rs_lan_message m = blank(lan, RS_LAN_HERE);
    m.flags = lan->options.receives ? RS_LAN_RECEIVES : 0;
    send_message(lan, &m, LAN_GROUP, RS_LAN_PORT);
}

/* One that stands for having been asked from that address: orders are taken with it alone. */
static uint64_t cookie_for(const rs_lan *lan, uint32_t address, uint16_t port) {
    uint8_t bytes[6];
    memcpy(bytes, &address, 4);
    memcpy(bytes + 4, &port, 2);
    uint64_t cookie = rs_gm_xxh64(bytes, sizeof bytes, lan->secret);
    return cookie ? cookie : 1;
}

/* ----------------------------------------------------------------------------------------------------------- peers */

static void on_here(rs_lan *lan, const rs_lan_message *m, uint32_t from, uint16_t port) {
    bool answer = m->nonce == lan->nonce && m->cookie;
    if (rs_lan_peer_heard(lan->peers, now_of(lan), m, from, port, answer))
        rs_log_limited(&lan->refusals, 20, RS_LOG_INFO, "lan", "found=%s host=%s", rs_quote(m->name),
                       rs_quote(m->host));
}

bool rs_lan_peer(const rs_lan *lan, uint32_t index, rs_lan_peer_info *out) {
    for (uint32_t i = 0; i < RS_LAN_PEERS_MAX; i++) {
        if (!lan->peers[i].used || index--)
            continue;
        *out = rs_lan_peer_describe(&lan->peers[i], now_of(lan));
        return true;
    }
    return false;
}

bool rs_lan_find(const rs_lan *lan, const char *name, rs_lan_peer_info *out) {
    const rs_lan_known *p = rs_lan_peer_named(lan->peers, now_of(lan), name, false);
    if (p)
        *out = rs_lan_peer_describe(p, now_of(lan));
    return p != NULL;
}

/* ----------------------------------------------------------------------------------------------------------- paths */

static void end_relays(const rs_lan *lan, const lan_path *path) {
    for (uint32_t i = 0; i < path->count; i++) {
        const rs_lan_member *m = &path->members[i];
        if (!m->involved)
            continue;
        rs_lan_message end = blank(lan, RS_LAN_END);
        end.cookie = m->peer.cookie;
        end.group = path->group;
        end.data_port = lan->options.data_port;
        send_message(lan, &end, m->peer.address, m->peer.lan_port);
    }
}

/* Its turn has come: its receivers are looked for. */
static void begin(rs_lan *lan, lan_path *path) {
    path->phase = FINDING;
    path->began = now_of(lan);
    rs_time left = path->waits ? path->wait - (path->began - path->asked) : path->wait;
    rs_time least = path->wait < FIND_LEAST ? path->wait : FIND_LEAST;
    path->until = path->began + (left > least ? left : least);
    path->pause = FIND_FIRST;
    path->next_at = path->began; /* answers come from the loop alone */
    lan->path_count++;
}

/* One that waits for its turn. */
static void begin_oldest(rs_lan *lan) {
    lan_path *oldest = NULL;
    for (lan_path *path = lan->paths; path; path = path->next)
        oldest = path->phase == WAITING ? path : oldest;
    if (oldest && lan->path_count < RS_LAN_PATHS_MAX)
        begin(lan, oldest);
}

static void drop_path(rs_lan *lan, lan_path *path) {
    for (lan_path **at = &lan->paths; *at; at = &(*at)->next)
        if (*at == path) {
            *at = path->next;
            break;
        }
    lan->path_count -= path->phase != WAITING;
    end_relays(lan, path);
    free(path->members);
    free(path);
    begin_oldest(lan);
}

/* What ends a path before it was granted, or after. */
static void fail(rs_lan *lan, lan_path *path, const char *text) {
    const rs_manager_callbacks *c = &lan->callbacks;
    rs_log(RS_LOG_WARNING, "lan", "request=%s failed=%s", path->request_id, rs_quote(text));
    char request_id[RS_UUID_TEXT], response_id[RS_UUID_TEXT];
    memcpy(request_id, path->request_id, sizeof request_id);
    memcpy(response_id, path->response_id, sizeof response_id);
    bool granted = path->granted;
    drop_path(lan, path);
    if (granted) {
        c->on_failed(c->context, response_id, text);
        return;
    }
    const rs_manager_response response = {
        .request_id = request_id, .response_id = "", .decision = RS_MANAGER_DENIED, .reason = text};
    c->on_response(c->context, &response);
}

static void grant(rs_lan *lan, lan_path *path) {
    char text[200], request_id[RS_UUID_TEXT], response_id[RS_UUID_TEXT];
    path->phase = GRANTED;
    path->next_at = RS_NEVER;
    for (uint32_t i = 0; i < path->count; i++)
        if (path->members[i].involved)
            path->next_at = now_of(lan) + RELAY_KEEP;
    if (path->granted) { /* the relays changed under it */
        rs_lan_used(lan, path->response_id, path->used);
        return;
    }
    rs_manager_server *servers = calloc(path->count, sizeof *servers);
    if (!servers) {
        fail(lan, path, "out of memory");
        return;
    }
    for (uint32_t i = 0; i < path->count; i++)
        servers[i] = (rs_manager_server){.server = path->members[i].name,
                                         .address = path->members[i].peer.address,
                                         .control_port = path->members[i].peer.control_port};
    rs_lan_members_describe(path->members, path->count, text, sizeof text);
    path->granted = true;
    memcpy(request_id, path->request_id, sizeof request_id);
    memcpy(response_id, path->response_id, sizeof response_id);
    const rs_manager_response response = {.request_id = request_id,
                                          .response_id = response_id,
                                          .decision = RS_MANAGER_ACCEPTED,
                                          .reason = text,
                                          .accepted_size = path->remaining,
                                          .kind = RS_PATH_PACKET,
                                          .group = path->group,
                                          .data_port = lan->options.data_port,
                                          .light_bound = LIGHT_BOUND,
                                          .protocol = path->protocol <= RS_MANAGER_REPUBLIC
                                                          ? RS_PROTOCOL_REPUBLIC
                                                          : (rs_protocol)(path->protocol - RS_MANAGER_REPUBLIC),
                                          .receivers = servers,
                                          .receiver_count = path->count};
    lan->callbacks.on_response(lan->callbacks.context, &response); /* may release it */
    free(servers);
}

/* ---------------------------------------------------------------------------------------------------------- relays */

static void send_relay(const rs_lan *lan, const lan_path *path, const rs_lan_member *m) {
    rs_lan_message order = blank(lan, RS_LAN_RELAY);
    const rs_lan_member *next = m->next == RS_LAN_NOBODY ? NULL : &path->members[m->next];
    order.cookie = m->peer.cookie;
    order.nonce = path->nonce;
    order.group = path->group;
    order.data_port = lan->options.data_port;
    order.flags = m->direct ? 0 : RS_LAN_PARENT;
    if (next && next->relay_port) {
        order.next = next->peer.address;
        order.next_port = next->relay_port;
        order.next_lan_port = next->peer.lan_port;
    }
    send_message(lan, &order, m->peer.address, m->peer.lan_port);
}

/* If it reaches nobody, the sender hands on to the first. */
static void plan_relays(rs_lan *lan, lan_path *path) {
    if (!rs_lan_members_plan(path->members, path->count, now_of(lan), &path->head)) {
        grant(lan, path);
        return;
    }
    path->phase = RELAYING;
    path->phase_at = now_of(lan);
    path->next_at = now_of(lan);
}

static void relay_tick(rs_lan *lan, lan_path *path) {
    rs_time now = now_of(lan);
    for (uint32_t i = 0; i < path->count; i++)
        if (path->members[i].involved && !path->members[i].gone && !path->members[i].ready)
            send_relay(lan, path, &path->members[i]);
    path->next_at = now + RELAY_EVERY;
    if (now - path->phase_at < RELAY_BOUND)
        return;
    char text[ROSTRUM_TEXT_MAX + 1];
    rs_lan_members_unready(path->members, path->count, text, sizeof text);
    fail(lan, path, text);
}

/* Relays are kept alive; one that is silent is gone around. */
static void keep_tick(rs_lan *lan, lan_path *path) {
    rs_time now = now_of(lan);
    bool changed = false;
    for (uint32_t i = 0; i < path->count; i++) {
        rs_lan_member *m = &path->members[i];
        if (!m->involved || m->gone)
            continue;
        if (now - m->heard > RELAY_SILENCE) {
            m->gone = changed = true;
            rs_log(RS_LOG_WARNING, "lan", "relay=%s is silent: bypassed", rs_quote(m->name));
        } else {
            send_relay(lan, path, m);
        }
    }
    path->next_at = now + RELAY_KEEP;
    if (changed)
        plan_relays(lan, path);
}

static void on_relays(rs_lan *lan, const rs_lan_message *m, uint32_t from, uint16_t port) {
    for (lan_path *path = lan->paths; path; path = path->next)
        for (uint32_t i = 0; path->nonce == m->nonce && i < path->count; i++) {
            rs_lan_member *one = &path->members[i];
            if (one->peer.address != from || one->peer.lan_port != port || !one->involved)
                continue;
            bool fresh = one->relay_port != m->next_port;
            one->heard = now_of(lan);
            one->relay_port = m->next_port;
            bool knows_next =
                one->next == RS_LAN_NOBODY || (m->next == path->members[one->next].peer.address && m->next != 0);
            one->ready = m->flags & RS_LAN_READY && knows_next && (m->next_port || one->direct);
            for (uint32_t k = 0; k < path->count && fresh; k++)
                if (path->members[k].next == (int32_t)i && path->phase == RELAYING)
                    send_relay(lan, path, &path->members[k]);
            return;
        }
}

/* ----------------------------------------------------------------------------------------------------------- tests */

static bool group_is_used(const rs_lan *lan, uint32_t group) {
    for (const lan_path *path = lan->paths; path; path = path->next)
        if (path->group == group)
            return true;
    return (group & GROUPS_BITS) < GROUPS_LEAST || (group & GROUPS_BITS) == (LAN_GROUP & GROUPS_BITS) ||
           rs_lan_served_has(lan->served, group) || rs_lan_groups_has(lan->groups, group);
}

/* Of 2^23: Ethernet has no more addresses for them, so that no two paths share one there. */
static uint32_t group_free(void *context, uint32_t wanted) {
    while (group_is_used(context, wanted))
        wanted = GROUPS_BASE | ((wanted + 1) & GROUPS_BITS);
    return wanted;
}

static void send_test(const rs_lan *lan, const lan_path *path, bool full) {
    static uint8_t bytes[UINT16_MAX];
    rs_lan_message m = blank(lan, RS_LAN_TEST);
    m.nonce = path->nonce;
    m.group = path->group;
    m.data_port = lan->options.data_port;
    m.flags = full ? RS_LAN_FULL : 0;
    rs_lan_encode(&m, bytes);
    size_t length = full && lan->options.mtu > RS_LAN_MESSAGE + HEADERS ? lan->options.mtu - HEADERS : RS_LAN_MESSAGE;
    send_bytes(lan, bytes, length < sizeof bytes ? length : sizeof bytes, path->group, lan->options.data_port);
}

static void ask_to_listen(const rs_lan *lan, const lan_path *path, const rs_lan_member *m) {
    rs_lan_message listen = blank(lan, RS_LAN_LISTEN);
    listen.cookie = m->peer.cookie;
    listen.nonce = path->nonce;
    listen.group = path->group;
    listen.data_port = lan->options.data_port;
    send_message(lan, &listen, m->peer.address, m->peer.lan_port);
}

static void note_verdict(rs_lan *lan, rs_lan_member *m, bool direct) {
    rs_lan_known *p = m->place;
    m->decided = true;
    m->direct = direct;
    if (rs_lan_peer_is_at(p, &m->peer)) {
        p->multicast = direct ? 1 : m->small ? -2 : -1;
        p->multicast_until = now_of(lan) + RS_LAN_FRESH;
    }
    if (!direct)
        rs_log(RS_LOG_WARNING, "lan", "peer=%s multicast does not get through%s", rs_quote(m->name),
               m->small ? ": small packets do, full-sized ones do not; is an MTU smaller there?" : "");
}

static void advance_test(rs_lan *lan, lan_path *path) {
    bool listening = true, decided = true;
    for (uint32_t i = 0; i < path->count; i++) {
        rs_lan_member *m = &path->members[i];
        if (!m->decided && m->small && m->full)
            note_verdict(lan, m, true);
        listening &= m->decided || m->listening;
        decided &= m->decided;
    }
    if (decided) {
        plan_relays(lan, path);
        return;
    }
    if (listening && !path->tested) {
        path->tested = true;
        path->phase_at = now_of(lan);
        send_test(lan, path, false);
        send_test(lan, path, true);
        path->next_at = now_of(lan) + RS_MILLISECOND;
    }
}

static void test_tick(rs_lan *lan, lan_path *path) {
    rs_time now = now_of(lan), since = now - path->phase_at;
    for (uint32_t i = 0; i < path->count; i++) {
        rs_lan_member *m = &path->members[i];
        m->decided = m->decided || rs_lan_peer_is_tried(m->place, now, &m->peer, &m->direct); /* by another path */
        if (m->decided)
            continue;
        if (since > TEST_SILENCE && !m->listening) {
            char text[160];
            snprintf(text, sizeof text, "%.80s was found, but does not answer any more", m->name);
            fail(lan, path, text);
            return;
        }
        if (path->tested && since > TEST_BOUND)
            note_verdict(lan, m, false);
        else
            ask_to_listen(lan, path, m);
    }
    if (path->tested) {
        send_test(lan, path, false);
        send_test(lan, path, true);
    }
    path->next_at = now + TEST_EVERY;
    advance_test(lan, path);
}

static void on_heard(rs_lan *lan, const rs_lan_message *m, uint32_t from, uint16_t port) {
    for (lan_path *path = lan->paths; path; path = path->next)
        for (uint32_t i = 0; path->nonce == m->nonce && path->phase == TESTING && i < path->count; i++) {
            rs_lan_member *one = &path->members[i];
            if (one->peer.address != from || one->peer.lan_port != port)
                continue;
            one->listening = m->flags & RS_LAN_READY;
            one->small = m->small;
            one->full = m->full;
        }
}

/* ---------------------------------------------------------------------------------------------------------- finding */

static void begin_test(rs_lan *lan, lan_path *path) {
    rs_time now = now_of(lan);
    path->group = group_free(lan, GROUPS_BASE | ((uint32_t)rs_random_next(&lan->random) & GROUPS_BITS));
    path->phase = TESTING;
    path->phase_at = now;
    path->next_at = now + TEST_EVERY;
    for (uint32_t i = 0; i < path->count; i++) {
        rs_lan_member *m = &path->members[i];
        m->decided = rs_lan_peer_is_tried(m->place, now, &m->peer, &m->direct);
        if (!m->decided)
            ask_to_listen(lan, path, m);
    }
    advance_test(lan, path);
}

/* Who has answered since the path was asked for: an agent that was started again takes no orders with the cookie that
 * it gave before, and nothing may have said so where multicast is blocked. */
static void advance_find(rs_lan *lan, lan_path *path) {
    bool all = true;
    for (uint32_t i = 0; i < path->count; i++) {
        rs_lan_member *m = &path->members[i];
        rs_lan_known *p = m->place ? NULL : rs_lan_peer_named(lan->peers, now_of(lan), m->name, true);
        if (p && p->answered >= path->began) {
            m->peer = *p;
            m->place = p;
        }
        all &= m->place != NULL;
    }
    if (!all)
        return;
    char text[200];
    if (rs_lan_members_twice(path->members, path->count, text, sizeof text)) {
        fail(lan, path, text);
        return;
    }
    begin_test(lan, path);
}

/* It may be gone after that. */
static void say_queued(const rs_lan *lan, const lan_path *path, const char *text) {
    char request_id[RS_UUID_TEXT];
    memcpy(request_id, path->request_id, sizeof request_id);
    const rs_manager_response response = {
        .request_id = request_id, .response_id = "", .decision = RS_MANAGER_QUEUED, .reason = text};
    lan->callbacks.on_response(lan->callbacks.context, &response);
}

static void find_tick(rs_lan *lan, lan_path *path) {
    rs_time now = now_of(lan);
    if (path->queued) { /* its turn has come */
        path->queued = false;
        say_queued(lan, path, "its receivers, which are looked for");
        return;
    }
    bool unknown = path->pause > FIND_FIRST; /* or it has moved */
    for (uint32_t i = 0; i < path->count; i++) {
        const rs_lan_member *m = &path->members[i];
        const rs_lan_known *p = m->place ? NULL : rs_lan_peer_named(lan->peers, now, m->name, false);
        uint32_t address;
        if (p)
            send_query(lan, p->address, p->has_cookie ? p->lan_port : RS_LAN_PORT);
        else if (!m->place && rs_parse_address(m->name, &address))
            send_query(lan, address, RS_LAN_PORT);
        unknown |= !m->place && !p;
    }
    if (unknown)
        query_all(lan);
    path->next_at = now + path->pause;
    path->pause = path->pause * 2 < FIND_LONGEST ? path->pause * 2 : FIND_LONGEST;
    if (now < path->until)
        return;
    char text[ROSTRUM_TEXT_MAX + 1];
    if (path->parts &&
        rs_lan_members_found(path->members, &path->count)) { /* the others are asked for again, and fail alone */
        advance_find(lan, path);
        return;
    }
    rs_lan_members_absent(path->members, path->count, lan->options.data_port, text, sizeof text);
    fail(lan, path, text);
}

static void wait_tick(rs_lan *lan, lan_path *path) {
    char text[100];
    snprintf(text, sizeof text, "its turn: %u sends are under way, which is as many as go at once without a manager",
             RS_LAN_PATHS_MAX);
    path->next_at = RS_NEVER; /* one that is over says when */
    path->queued = true;
    say_queued(lan, path, text);
}

rs_status rs_lan_request(rs_lan *lan, const rs_manager_request_params *request, char *text, size_t text_size) {
    lan_path *path = calloc(1, sizeof *path);
    rs_lan_member *members = calloc(request->receiver_count, sizeof *members);
    if (!path || !members) {
        snprintf(text, text_size, "out of memory");
        free(path);
        free(members);
        return RS_ERR_LIMIT;
    }
    snprintf(path->request_id, sizeof path->request_id, "%s", request->request_id);
    rs_uuid_text(path->response_id);
    path->object = request->object;
    path->remaining = request->remaining_size;
    path->protocol = request->protocol;
    path->wait = request->wait_ms ? request->wait_ms * RS_MILLISECOND : FIND_BOUND;
    path->waits = request->wait_ms > 0;
    path->asked = now_of(lan);
    path->parts = request->parts;
    path->nonce = rs_random_next(&lan->random) | 1;
    path->used = RS_NO_GROUP;
    path->head = RS_LAN_NOBODY;
    path->members = members;
    path->count = request->receiver_count;
    for (uint32_t i = 0; i < path->count; i++) {
        snprintf(members[i].name, sizeof members[i].name, "%s", request->receivers[i]);
        members[i].next = RS_LAN_NOBODY;
    }
    path->next = lan->paths;
    lan->paths = path;
    path->phase = WAITING;
    path->next_at = now_of(lan);
    if (lan->path_count < RS_LAN_PATHS_MAX)
        begin(lan, path);
    return RS_OK;
}

static lan_path *find_path(const rs_lan *lan, const char *request_id, const char *response_id) {
    for (lan_path *path = lan->paths; path; path = path->next)
        if ((request_id && strcmp(path->request_id, request_id) == 0) ||
            (response_id && path->granted && strcmp(path->response_id, response_id) == 0))
            return path;
    return NULL;
}

void rs_lan_release(rs_lan *lan, const char *response_id) {
    lan_path *path = find_path(lan, NULL, response_id);
    if (path)
        drop_path(lan, path);
}

void rs_lan_cancel(rs_lan *lan, const char *request_id) {
    lan_path *path = find_path(lan, request_id, NULL);
    if (path)
        drop_path(lan, path);
}

void rs_lan_used(rs_lan *lan, const char *response_id, rs_group group) {
    lan_path *path = find_path(lan, NULL, response_id);
    if (!path)
        return;
    path->used = group;
    const rs_lan_member *head = path->head == RS_LAN_NOBODY ? NULL : &path->members[path->head];
    rs_data_redirect(lan->options.data, group, head ? head->peer.address : 0, head ? head->relay_port : 0);
}

const char *rs_lan_own_name(const rs_lan *lan, const char *response_id, const char *receiver) {
    const lan_path *path = find_path(lan, NULL, response_id);
    for (uint32_t i = 0; path && i < path->count; i++)
        if (strcmp(path->members[i].name, receiver) == 0)
            return path->members[i].peer.name;
    return receiver;
}

void rs_lan_no_light(rs_lan *lan, const char *response_id, const char *const *receivers, uint32_t receiver_count) {
    lan_path *path = find_path(lan, NULL, response_id);
    bool changed = false;
    for (uint32_t i = 0; path && i < path->count; i++)
        for (uint32_t k = 0; k < receiver_count; k++)
            if (strcmp(path->members[i].name, receivers[k]) == 0 && path->members[i].direct) {
                note_verdict(lan, &path->members[i], false);
                changed = true;
            }
    if (changed)
        plan_relays(lan, path);
}

void rs_lan_group(rs_lan *lan, rs_manager_group_call call, const char *group, const rs_manager_group_options *facts,
                  bool asked) {
    rs_lan_groups_call(lan->groups, now_of(lan), call, group, facts, asked);
}

static void on_copies(void *context, const char *group, const uint32_t *addresses, uint32_t count) {
    const rs_lan *lan = context;
    lan->options.on_copies(lan->callbacks.context, group, addresses, count);
}

void rs_lan_describe(const rs_lan *lan, char *text, size_t text_size) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < RS_LAN_PEERS_MAX; i++)
        count += lan->peers[i].used && now_of(lan) - lan->peers[i].heard < RS_LAN_FRESH;
    snprintf(text, text_size, "none (standalone): %u other agents heard of on %s", count, lan->options.interface);
}

/* ------------------------------------------------------------------------------------------------- asked by others */

static void on_query(rs_lan *lan, const rs_lan_message *m, uint32_t from, uint16_t port) {
    rs_lan_message here = blank(lan, RS_LAN_HERE);
    here.nonce = m->nonce;
    here.cookie = cookie_for(lan, from, port);
    here.flags = lan->options.receives ? RS_LAN_RECEIVES : 0;
    send_message(lan, &here, from, port);
}

/* -------------------------------------------------------------------------------------------------------- messages */

/* No more than so many a second are answered, whoever asks. */
static bool may_answer(rs_lan *lan) {
    int64_t second = (int64_t)(now_of(lan) / RS_SECOND);
    if (second != lan->answers_second) {
        lan->answers_second = second;
        lan->answers = 0;
    }
    return lan->answers++ < RS_LAN_ANSWERS_MAX;
}

static void handle(rs_lan *lan, const rs_lan_message *m, uint32_t from, uint16_t port) {
    bool ordered = m->cookie == cookie_for(lan, from, port);
    switch (m->type) {
    case RS_LAN_QUERY:
        if (may_answer(lan))
            on_query(lan, m, from, port);
        break;
    case RS_LAN_HERE:
        on_here(lan, m, from, port);
        break;
    case RS_LAN_LISTEN:
        if (ordered && may_answer(lan))
            rs_lan_on_listen(lan->served, m, from, port);
        break;
    case RS_LAN_HEARD:
        on_heard(lan, m, from, port);
        break;
    case RS_LAN_RELAY:
        if (ordered && may_answer(lan))
            rs_lan_on_relay(lan->served, m, from, port);
        break;
    case RS_LAN_RELAYS:
        on_relays(lan, m, from, port);
        break;
    case RS_LAN_HOP:
        if (may_answer(lan))
            rs_lan_on_hop(lan->served, m, from, port);
        break;
    case RS_LAN_HOP_OK:
        rs_lan_on_hop_ok(lan->served, m, from);
        break;
    case RS_LAN_END:
        if (ordered)
            rs_lan_on_end(lan->served, m, from);
        break;
    case RS_LAN_TEST:  /* comes to the sockets of tests */
    case RS_LAN_GROUP: /* take */
        break;
    }
}

/* A path may end in there. */
static void advance(rs_lan *lan, path_phase phase, void (*step)(rs_lan *, lan_path *)) {
    for (lan_path *path = lan->paths, *next; path; path = next) {
        next = path->next;
        if (path->phase == phase)
            step(lan, path);
    }
}

static void advance_relays(rs_lan *lan, lan_path *path) {
    if (rs_lan_members_ready(path->members, path->count))
        grant(lan, path);
}

static void take(rs_lan *lan, const uint8_t *bytes, size_t length, uint32_t from, uint16_t port, bool multicast) {
    rs_lan_message m;
    rs_lan_group_message group;
    if (!rs_lan_decode(bytes, length, &m) || (m.type == RS_LAN_GROUP && !rs_lan_group_decode(bytes, length, &group))) {
        lan->malformed++;
        return;
    }
    if (m.boot == lan->options.boot)
        return; /* its own */
    rs_lan_known *peer = multicast ? rs_lan_peer_at(lan->peers, from, m.control_port) : NULL;
    if (peer)
        peer->multicast_heard = now_of(lan);
    if (m.type != RS_LAN_GROUP)
        handle(lan, &m, from, port);
    else if (may_answer(lan))
        rs_lan_groups_heard(lan->groups, now_of(lan), &group, from, port, multicast);
}

static void read_all(rs_lan *lan, const rs_watch *watch) {
    uint8_t bytes[RS_LAN_GROUP_MESSAGE];
    struct sockaddr_in from;
    for (unsigned i = 0; watch->active && i < READS_PER_TURN; i++) {
        socklen_t length = sizeof from;
        ssize_t got = recvfrom(watch->fd, bytes, sizeof bytes, MSG_DONTWAIT, (struct sockaddr *)&from, &length);
        if (got < 0 && errno != ECONNREFUSED)
            break;
        if (got >= 0)
            take(lan, bytes, (size_t)got, ntohl(from.sin_addr.s_addr), ntohs(from.sin_port), watch == &lan->multicast);
    }
}

/* One of the sockets. */
static void ready(void *context, uint32_t events) {
    rs_lan *lan = context;
    (void)events;
    read_all(lan, &lan->multicast); /* before the answers to what comes by it */
    read_all(lan, &lan->unicast);
    read_all(lan, &lan->broadcast);
    advance(lan, FINDING, advance_find);
    advance(lan, TESTING, advance_test);
    advance(lan, RELAYING, advance_relays);
}

/* ------------------------------------------------------------------------------------------------------------ time */

rs_time rs_lan_deadline(const rs_lan *lan) {
    rs_time first = lan->announce_at;
    for (const lan_path *path = lan->paths; path; path = path->next)
        first = path->next_at < first ? path->next_at : first;
    rs_time served = rs_lan_served_deadline(lan->served), groups = rs_lan_groups_deadline(lan->groups);
    first = groups < first ? groups : first;
    return served < first ? served : first;
}

static void announce_tick(rs_lan *lan) {
    static const rs_time pauses[] = {100 * RS_MILLISECOND, 300 * RS_MILLISECOND, RS_SECOND, 3 * RS_SECOND};
    rs_time now = now_of(lan);
    announce(lan);
    query_all(lan);
    for (uint32_t i = 0; i < lan->options.asked_count; i++)
        send_query(lan, lan->asked[i], RS_LAN_PORT);
    lan->announce_at = now + (lan->announced < 4 ? pauses[lan->announced] : ANNOUNCE_EVERY);
    lan->announced++;
}

static void tick(rs_lan *lan, lan_path *path) {
    if (path->next_at > now_of(lan))
        return;
    void (*const ticks[])(rs_lan *, lan_path *) = {find_tick, test_tick, relay_tick, keep_tick, wait_tick};
    ticks[path->phase](lan, path);
}

void rs_lan_timeout(rs_lan *lan) {
    rs_time now = now_of(lan);
    rs_lan_served_timeout(lan->served);
    rs_lan_groups_timeout(lan->groups, now);
    if (now >= lan->announce_at)
        announce_tick(lan);
    for (lan_path *path = lan->paths, *next; path; path = next) {
        next = path->next;
        tick(lan, path);
    }
    advance(lan, FINDING, advance_find);
}

/* ----------------------------------------------------------------------------------------------------------- birth */

static bool watch_socket(rs_lan *lan, rs_watch *watch, int fd) {
    *watch = (rs_watch){.ready = ready, .context = lan, .fd = -1};
    if (fd >= 0 && rs_loop_watch(lan->options.loop, watch, fd, EPOLLIN))
        return true;
    if (fd >= 0)
        close(fd);
    return false;
}

static bool open_sockets(rs_lan *lan) {
    uint32_t address = lan->options.address;
    int unicast = rs_lan_speaker_open(address, RS_LAN_PORT);
    if (unicast < 0 && errno == EADDRINUSE) {
        if (lan->options.receives)
            rs_log(RS_LOG_WARNING, "lan",
                   "another agent of this host has UDP port %u: this one is found by multicast alone", RS_LAN_PORT);
        unicast = rs_lan_speaker_open(address, 0);
    }
    lan->broadcast_address = rs_lan_broadcast_address(lan->options.interface, address);
    if (lan->broadcast_address &&
        !watch_socket(lan, &lan->broadcast, rs_lan_receiver_open(address, lan->broadcast_address, RS_LAN_PORT)))
        lan->broadcast_address = 0;
    if (watch_socket(lan, &lan->unicast, unicast) &&
        watch_socket(lan, &lan->multicast, rs_lan_receiver_open(address, LAN_GROUP, RS_LAN_PORT)))
        return true;
    rs_log(RS_LOG_ERROR, "lan", "cannot open UDP port %u on %s: %s", RS_LAN_PORT, lan->options.interface,
           strerror(errno));
    return false;
}

rs_lan *rs_lan_new(const rs_lan_options *options) {
    rs_lan *lan = calloc(1, sizeof *lan);
    if (!lan)
        return NULL;
    lan->options = *options;
    lan->callbacks = *options->callbacks;
    lan->random = options->seed ^ options->boot;
    while (getrandom(&lan->secret, sizeof lan->secret, 0) != (ssize_t)sizeof lan->secret)
        ;
    lan->nonce = rs_random_next(&lan->random) | 1;
    lan->peers = calloc(RS_LAN_PEERS_MAX, sizeof *lan->peers);
    lan->asked = calloc(options->asked_count + 1u, sizeof *lan->asked);
    rs_lan_host_name(lan->host);
    if (!rs_lan_name_ok(options->server) || !options->server[0]) {
        rs_log(RS_LOG_ERROR, "lan", "without a manager a server's name has at most %u letters, digits and . _ : -",
               RS_LAN_NAME);
        rs_lan_free(lan);
        return NULL;
    }
    const rs_lan_served_options served = {.loop = options->loop,
                                          .data = options->data,
                                          .address = options->address,
                                          .seed = options->seed ^ options->boot,
                                          .context = lan,
                                          .say = say};
    const rs_lan_groups_options groups = {.server = options->server,
                                          .address = options->address,
                                          .control_port = options->control_port,
                                          .data_port = options->data_port,
                                          .boot = options->boot,
                                          .seed = options->seed ^ options->boot,
                                          .secret = lan->secret,
                                          .peers = lan->peers,
                                          .views = options->callbacks,
                                          .context = lan,
                                          .say = say_group,
                                          .address_free = group_free,
                                          .copies = on_copies,
                                          .wall_clock = rs_wall_clock};
    lan->served = rs_lan_served_new(&served);
    lan->groups = rs_lan_groups_new(&groups);
    if (!lan->peers || !lan->asked || !lan->served || !lan->groups || !open_sockets(lan)) {
        rs_lan_free(lan);
        return NULL;
    }
    for (uint32_t i = 0; i < options->asked_count; i++)
        lan->asked[i] = options->asked[i];
    lan->announce_at = rs_loop_refresh(options->loop);
    return lan;
}

static void close_watch(const rs_lan *lan, rs_watch *watch) {
    if (!watch->active)
        return;
    int fd = watch->fd;
    rs_loop_unwatch(lan->options.loop, watch);
    close(fd);
}

void rs_lan_free(rs_lan *lan) {
    if (!lan)
        return;
    lan->path_count = UINT32_MAX; /* none begins */
    while (lan->paths)
        drop_path(lan, lan->paths);
    rs_lan_served_free(lan->served);
    rs_lan_groups_free(lan->groups);
    close_watch(lan, &lan->unicast);
    close_watch(lan, &lan->multicast);
    close_watch(lan, &lan->broadcast);
    free(lan->peers);
    free(lan->asked);
    free(lan);
}

uint64_t rs_lan_malformed(const rs_lan *lan) {
    return lan->malformed;
}
