/* What an agent does for others of its LAN: hears their tests, hands their packets on. */
#include "daemon/lan/served.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/random.h"
#include "daemon/lan/sockets.h"
#include "daemon/log.h"

#define RELAY_PORT 7100u /* and RS_LAN_RELAYS_MAX - 1 more */
#define READS_PER_TURN 256
#define LISTEN_TIME (200 * RS_MILLISECOND) /* of a test that nobody asks about any more: it is over */
#define RELAY_LIFE (6 * RS_SECOND)         /* of one whose sender says nothing any more */

/* A test of somebody else's that is heard here. */
typedef struct {
    bool used;
    uint64_t nonce;
    uint32_t group, owner;
    uint16_t port;
    uint8_t small, full;
    rs_time until;
    rs_watch watch;
    rs_lan_served *served;
} lan_listen;

/* A group of somebody else's that is handed on here. */
typedef struct {
    bool used;
    uint32_t group, owner;
    uint16_t port, relay_port;
    bool parent, hop_ok;
    uint32_t next;
    uint16_t next_port, next_lan_port;
    uint64_t nonce;
    rs_time until;
} lan_relay;

struct rs_lan_served {
    rs_lan_served_options options;
    uint64_t random;
    lan_listen listens[RS_LAN_LISTENS_MAX];
    lan_relay relays[RS_LAN_RELAYS_MAX];
    rs_log_limit refusals;
};

static void on_test_packets(void *context, uint32_t events) {
    lan_listen *l = context;
    uint8_t bytes[RS_LAN_MESSAGE];
    rs_lan_message m;
    (void)events;
    for (unsigned i = 0; i < READS_PER_TURN; i++) {
        ssize_t got = recv(l->watch.fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got < 0)
            return;
        if (!rs_lan_decode(bytes, (size_t)got, &m) || m.type != RS_LAN_TEST || m.nonce != l->nonce)
            continue;
        uint8_t *count = m.flags & RS_LAN_FULL ? &l->full : &l->small;
        *count = (uint8_t)(*count + (*count < UINT8_MAX));
    }
}

static void drop_listen(lan_listen *l) {
    if (l->watch.active) {
        int fd = l->watch.fd;
        rs_loop_unwatch(l->served->options.loop, &l->watch);
        close(fd);
    }
    l->used = false;
}

static lan_listen *listen_for(rs_lan_served *served, const rs_lan_message *m, uint32_t from) {
    lan_listen *unused = NULL;
    for (unsigned i = 0; i < RS_LAN_LISTENS_MAX; i++) {
        lan_listen *l = &served->listens[i];
        if (l->used && l->nonce == m->nonce && l->owner == from && l->group == m->group && l->port == m->data_port)
            return l;
        unused = l->used ? unused : l;
    }
    int fd = unused ? rs_lan_receiver_open(served->options.address, m->group, m->data_port) : -1;
    if (fd < 0)
        return NULL;
    *unused = (lan_listen){.used = true,
                           .nonce = m->nonce,
                           .group = m->group,
                           .port = m->data_port,
                           .owner = from,
                           .watch = {.ready = on_test_packets, .context = unused},
                           .served = served};
    if (rs_loop_watch(served->options.loop, &unused->watch, fd, EPOLLIN))
        return unused;
    close(fd);
    unused->used = false;
    return NULL;
}

void rs_lan_on_listen(rs_lan_served *served, const rs_lan_message *m, uint32_t from, uint16_t port) {
    lan_listen *l = listen_for(served, m, from);
    rs_lan_message answer = {.type = RS_LAN_HEARD};
    if (l) {
        l->until = rs_loop_now(served->options.loop) + LISTEN_TIME;
        on_test_packets(l, EPOLLIN); /* those in the socket came before the question */
    }
    answer.nonce = m->nonce;
    answer.group = m->group;
    answer.data_port = m->data_port;
    answer.flags = l ? RS_LAN_READY : 0;
    answer.small = l ? l->small : 0;
    answer.full = l ? l->full : 0;
    served->options.say(served->options.context, &answer, from, port);
}

static void drop_relay(rs_lan_served *served, lan_relay *r) {
    rs_data_relay_end(served->options.data, r->group, r->port);
    r->used = false;
}

static lan_relay *relay_of(rs_lan_served *served, const rs_lan_message *m) {
    for (unsigned i = 0; i < RS_LAN_RELAYS_MAX; i++)
        if (served->relays[i].used && served->relays[i].group == m->group && served->relays[i].port == m->data_port)
            return &served->relays[i];
    return NULL;
}

static lan_relay *make_relay(rs_lan_served *served, const rs_lan_message *m, uint32_t from) {
    char error[RS_IO_ERROR_MAX] = "as many groups as an agent hands on are handed on here already";
    unsigned start = (unsigned)(rs_random_next(&served->random) % RS_LAN_RELAYS_MAX);
    bool parent = m->flags & RS_LAN_PARENT;
    for (unsigned i = 0; i < RS_LAN_RELAYS_MAX; i++) {
        unsigned slot = (start + i) % RS_LAN_RELAYS_MAX;
        lan_relay *r = &served->relays[slot];
        uint16_t relay_port = (uint16_t)(RELAY_PORT + slot);
        if (r->used)
            continue;
        if (!rs_data_relay(served->options.data, m->group, m->data_port, served->options.address, relay_port, parent,
                           error))
            continue; /* another program has that port */
        *r = (lan_relay){.used = true,
                         .group = m->group,
                         .port = m->data_port,
                         .owner = from,
                         .relay_port = relay_port,
                         .parent = parent,
                         .nonce = rs_random_next(&served->random) | 1};
        return r;
    }
    rs_log_limited(&served->refusals, 5, RS_LOG_WARNING, "lan", "no relay for another agent: %s", error);
    return NULL;
}

static void send_hop(const rs_lan_served *served, const lan_relay *r) {
    rs_lan_message hop = {.type = RS_LAN_HOP};
    hop.nonce = r->nonce;
    hop.group = r->group;
    hop.data_port = r->port;
    hop.next_port = r->next_port;
    served->options.say(served->options.context, &hop, r->next, r->next_lan_port);
}

void rs_lan_on_relay(rs_lan_served *served, const rs_lan_message *m, uint32_t from, uint16_t port) {
    lan_relay *r = relay_of(served, m);
    if (r && r->owner != from)
        return; /* somebody else's */
    if (r && r->parent != (bool)(m->flags & RS_LAN_PARENT)) {
        drop_relay(served, r);
        r = NULL;
    }
    r = r ? r : make_relay(served, m, from);
    rs_lan_message answer = {.type = RS_LAN_RELAYS};
    answer.nonce = m->nonce;
    answer.group = m->group;
    answer.data_port = m->data_port;
    if (r) {
        r->until = rs_loop_now(served->options.loop) + RELAY_LIFE;
        if (r->next != m->next || r->next_port != m->next_port || r->next_lan_port != m->next_lan_port) {
            r->next = m->next;
            r->next_port = m->next_port;
            r->next_lan_port = m->next_lan_port;
            r->hop_ok = false;
            rs_data_relay_to(served->options.data, r->group, r->port, 0, 0);
        }
        /* Nothing is sent to anybody who has not said that it takes it. */
        if (r->next && !r->hop_ok)
            send_hop(served, r);
        answer.next_port = r->relay_port;
        answer.next = r->next;
        answer.flags = !r->next || r->hop_ok ? RS_LAN_READY : 0;
    }
    served->options.say(served->options.context, &answer, from, port);
}

void rs_lan_on_hop(rs_lan_served *served, const rs_lan_message *m, uint32_t from, uint16_t port) {
    const lan_relay *r = relay_of(served, m);
    if (!r || !r->parent || r->relay_port != m->next_port)
        return;
    rs_lan_message answer = {.type = RS_LAN_HOP_OK};
    answer.nonce = m->nonce;
    answer.group = m->group;
    answer.data_port = m->data_port;
    answer.next_port = m->next_port;
    served->options.say(served->options.context, &answer, from, port);
}

void rs_lan_on_hop_ok(rs_lan_served *served, const rs_lan_message *m, uint32_t from) {
    lan_relay *r = relay_of(served, m);
    if (!r || r->nonce != m->nonce || r->next != from || r->next_port != m->next_port || r->hop_ok)
        return;
    r->hop_ok = true;
    rs_data_relay_to(served->options.data, r->group, r->port, r->next, r->next_port);
}

void rs_lan_on_end(rs_lan_served *served, const rs_lan_message *m, uint32_t from) {
    lan_relay *r = relay_of(served, m);
    if (r && r->owner == from)
        drop_relay(served, r);
}

/* ----------------------------------------------------------------------------------------------------------- birth */

bool rs_lan_served_has(const rs_lan_served *served, uint32_t group) {
    for (unsigned i = 0; i < RS_LAN_RELAYS_MAX; i++)
        if (served->relays[i].used && served->relays[i].group == group)
            return true;
    return false;
}

rs_time rs_lan_served_deadline(const rs_lan_served *served) {
    rs_time first = RS_NEVER;
    for (unsigned i = 0; i < RS_LAN_LISTENS_MAX; i++)
        if (served->listens[i].used && served->listens[i].until < first)
            first = served->listens[i].until;
    for (unsigned i = 0; i < RS_LAN_RELAYS_MAX; i++)
        if (served->relays[i].used && served->relays[i].until < first)
            first = served->relays[i].until;
    return first;
}

static void drop_until(rs_lan_served *served, rs_time now) {
    for (unsigned i = 0; i < RS_LAN_LISTENS_MAX; i++)
        if (served->listens[i].used && now >= served->listens[i].until)
            drop_listen(&served->listens[i]);
    for (unsigned i = 0; i < RS_LAN_RELAYS_MAX; i++)
        if (served->relays[i].used && now >= served->relays[i].until)
            drop_relay(served, &served->relays[i]);
}

void rs_lan_served_timeout(rs_lan_served *served) {
    drop_until(served, rs_loop_now(served->options.loop));
}

rs_lan_served *rs_lan_served_new(const rs_lan_served_options *options) {
    rs_lan_served *served = calloc(1, sizeof *served);
    if (!served)
        return NULL;
    served->options = *options;
    served->random = options->seed;
    return served;
}

void rs_lan_served_free(rs_lan_served *served) {
    if (!served)
        return;
    drop_until(served, RS_NEVER);
    free(served);
}
