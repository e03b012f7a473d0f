#include "daemon/data/probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEADERS 28u /* IPv4 and UDP */
#define SMALL 64u   /* bytes of a small packet's payload */
#define INTERVAL (2 * RS_MILLISECOND)
#define READS_PER_TURN 64

static const uint8_t magic[8] = "RSPROBE1";

/* Sorts of packets, in the order in which they are sent. */
enum { GROUP_SMALL, GROUP_FULL, UNICAST_SMALL, UNICAST_FULL, SORTS };

typedef struct {
    uint8_t magic[8];
    uint64_t probe; /* hash of the probe's id, in the sender's byte order: it is only compared */
    uint8_t sort;
    uint8_t number;
} payload;

typedef struct {
    char server[RS_MANAGER_NAME_MAX + 1];
    uint32_t address;
    uint16_t port;
    char cause[RS_PROBE_TEXT];
    rs_time took;
    bool settled;
    rs_watch watch;
    struct probe *probe;
} target;

typedef struct probe {
    rs_probes *owner;
    bool used;
    char id[RS_MANAGER_NAME_MAX + 1];
    uint64_t hash;
    rs_manager_probe_kind kind;
    rs_time began, until, next;
    uint32_t group;
    uint16_t port;
    uint32_t packets, mtu;
    uint32_t sent;           /* SEND: turns taken, each sends one packet of one sort to everybody it is for */
    uint32_t heard[SORTS];   /* LISTEN */
    uint8_t seen[SORTS][16]; /* a bit for each number: copies count once */
    char cause[RS_PROBE_TEXT];
    rs_watch watch; /* LISTEN; its socket. SEND: the socket alone */
    int fd;
    target *targets;
    uint32_t target_count, settled;
} probe;

struct rs_probes {
    rs_loop *loop;
    uint32_t address;
    rs_probes_report_fn *report;
    void *context;
    probe probes[RS_PROBES_MAX];
};

static uint64_t hash_of(const char *text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    return hash;
}

rs_probes *rs_probes_new(rs_loop *loop, uint32_t address, rs_probes_report_fn *report, void *context) {
    rs_probes *probes = calloc(1, sizeof *probes);
    if (!probes)
        return NULL;
    probes->loop = loop;
    probes->address = address;
    probes->report = report;
    probes->context = context;
    return probes;
}

static void close_target(rs_probes *probes, target *t) {
    if (t->watch.active) {
        int fd = t->watch.fd;
        rs_loop_unwatch(probes->loop, &t->watch);
        close(fd);
    }
}

static void drop(probe *p) {
    if (p->watch.active)
        rs_loop_unwatch(p->owner->loop, &p->watch);
    if (p->fd >= 0)
        close(p->fd);
    for (uint32_t i = 0; i < p->target_count; i++)
        close_target(p->owner, &p->targets[i]);
    free(p->targets);
    *p = (probe){.fd = -1};
}

void rs_probes_free(rs_probes *probes) {
    for (unsigned i = 0; probes && i < RS_PROBES_MAX; i++)
        if (probes->probes[i].used)
            drop(&probes->probes[i]);
    free(probes);
}

static void tell(rs_probes *probes, const probe *p, const char *phase, const char *cause) {
    rs_manager_reached reached[RS_PROBE_SERVERS_MAX];
    rs_manager_probe_report report = {.id = p->id,
                                      .phase = phase,
                                      .cause = cause,
                                      .group_small = p->heard[GROUP_SMALL],
                                      .group_full = p->heard[GROUP_FULL],
                                      .unicast_small = p->heard[UNICAST_SMALL],
                                      .unicast_full = p->heard[UNICAST_FULL]};
    if (p->kind == RS_MANAGER_PROBE_REACH) {
        for (uint32_t i = 0; i < p->target_count; i++)
            reached[i] = (rs_manager_reached){p->targets[i].server, p->targets[i].cause, p->targets[i].took};
        report.reached = reached;
        report.reached_count = p->target_count;
    }
    probes->report(probes->context, &report);
}

static void end(probe *p) {
    tell(p->owner, p, p->cause[0] ? "failed" : "done", p->cause);
    drop(p);
}

static void fault(probe *p, const char *what, int error) {
    if (!p->cause[0])
        snprintf(p->cause, sizeof p->cause, "%s: %s", what, strerror(error));
}

/* ---------------------------------------------------------------------------------------------------------- LISTEN */

static void count(probe *p, const uint8_t *bytes, size_t length) {
    payload head;
    if (length < sizeof head)
        return;
    memcpy(&head, bytes, sizeof head);
    if (memcmp(head.magic, magic, sizeof magic) != 0 || head.probe != p->hash || head.sort >= SORTS ||
        head.number >= p->packets)
        return;
    uint8_t *bits = &p->seen[head.sort][head.number / 8];
    uint8_t bit = (uint8_t)(1u << (head.number % 8));
    if (*bits & bit)
        return;
    *bits |= bit;
    p->heard[head.sort]++;
}

static void on_packets(void *context, uint32_t events) {
    probe *p = context;
    uint8_t bytes[sizeof(payload)];
    (void)events;
    for (unsigned i = 0; i < READS_PER_TURN; i++) {
        ssize_t got = recv(p->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got < 0)
            break;
        count(p, bytes, (size_t)got);
    }
    bool all = true;
    for (unsigned sort = 0; sort < SORTS; sort++)
        all &= p->heard[sort] == p->packets;
    if (all)
        end(p);
}

static void listen_to(probe *p) {
    const int on = 1, off = 0;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(p->port)};
    struct ip_mreqn membership = {.imr_multiaddr = {htonl(p->group)}, .imr_address = {htonl(p->owner->address)}};
    p->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    p->watch = (rs_watch){.ready = on_packets, .context = p};
    if (p->fd < 0 || setsockopt(p->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        setsockopt(p->fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof off) != 0 ||
        bind(p->fd, (struct sockaddr *)&here, sizeof here) != 0)
        fault(p, "cannot listen for probe packets", errno);
    else if (setsockopt(p->fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) != 0)
        fault(p, "cannot join the group", errno);
    else if (!rs_loop_watch(p->owner->loop, &p->watch, p->fd, EPOLLIN))
        fault(p, "cannot watch the socket", errno);
    if (p->cause[0]) {
        end(p);
        return;
    }
    p->next = p->until;
    tell(p->owner, p, "listening", "");
}

/* ------------------------------------------------------------------------------------------------------------ SEND */

static void put(probe *p, uint32_t address, unsigned sort, uint8_t number) {
    static uint8_t bytes[UINT16_MAX]; /* zero behind the head */
    payload head = {.probe = p->hash, .sort = (uint8_t)sort, .number = number};
    memcpy(head.magic, magic, sizeof magic);
    memcpy(bytes, &head, sizeof head);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(p->port), .sin_addr = {htonl(address)}};
    size_t length = sort == GROUP_FULL || sort == UNICAST_FULL ? p->mtu - HEADERS : SMALL;
    if (sendto(p->fd, bytes, length, 0, (struct sockaddr *)&to, sizeof to) >= 0)
        return;
    if (errno == EMSGSIZE && !p->cause[0])
        snprintf(p->cause, sizeof p->cause, "the data NIC does not take packets of %u bytes: its MTU is smaller",
                 p->mtu);
    else if (errno != EAGAIN && errno != ECONNREFUSED && errno != ENOBUFS)
        fault(p, sort == GROUP_SMALL || sort == GROUP_FULL ? "cannot send to the group" : "cannot send to a receiver",
              errno);
}

static void open_sender(probe *p) {
    const int probing = IP_PMTUDISC_PROBE, ttl = 16, off = 0;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(p->owner->address)}};
    struct ip_mreqn by = {.imr_address = {htonl(p->owner->address)}};
    p->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (p->fd < 0 || bind(p->fd, (struct sockaddr *)&here, sizeof here) != 0 ||
        setsockopt(p->fd, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by) != 0 ||
        setsockopt(p->fd, IPPROTO_IP, IP_MULTICAST_TTL, &ttl, sizeof ttl) != 0 ||
        setsockopt(p->fd, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof off) != 0 ||
        setsockopt(p->fd, IPPROTO_IP, IP_MTU_DISCOVER, &probing, sizeof probing) != 0)
        fault(p, "cannot send probe packets", errno);
    if (p->cause[0])
        end(p);
}

/* One turn: the next number of one sort. Unicast ones may wait for a neighbour's address, so they begin early. */
static void send_next(probe *p) {
    unsigned sort = p->sent % SORTS;
    uint8_t number = (uint8_t)(p->sent / SORTS);
    if (sort == GROUP_SMALL || sort == GROUP_FULL)
        put(p, p->group, sort, number);
    else
        for (uint32_t i = 0; i < p->target_count; i++)
            put(p, p->targets[i].address, sort, number);
    p->next += INTERVAL;
    if (++p->sent == p->packets * SORTS || p->next > p->until)
        end(p);
}

/* ----------------------------------------------------------------------------------------------------------- REACH */

static void settle(target *t, int error) {
    probe *p = t->probe;
    t->settled = true;
    t->took = rs_loop_now(p->owner->loop) - p->began;
    if (error)
        snprintf(t->cause, sizeof t->cause, "%s", strerror(error));
    close_target(p->owner, t);
    if (++p->settled == p->target_count)
        end(p);
}

static void on_connected(void *context, uint32_t events) {
    target *t = context;
    int error = 0;
    socklen_t length = sizeof error;
    (void)events;
    if (getsockopt(t->watch.fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
        error = errno;
    settle(t, error);
}

static void reach(probe *p) {
    for (uint32_t i = 0; i < p->target_count; i++) {
        target *t = &p->targets[i];
        struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(p->owner->address)}};
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(t->port), .sin_addr = {htonl(t->address)}};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        t->watch = (rs_watch){.ready = on_connected, .context = t};
        bool begun = fd >= 0 && bind(fd, (struct sockaddr *)&here, sizeof here) == 0 &&
                     (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS) &&
                     rs_loop_watch(p->owner->loop, &t->watch, fd, EPOLLOUT);
        if (begun)
            continue;
        t->settled = true;
        snprintf(t->cause, sizeof t->cause, "%s", strerror(errno));
        if (fd >= 0)
            close(fd);
        p->settled++;
    }
    p->next = p->until;
    if (p->settled == p->target_count)
        end(p);
}

/* ---------------------------------------------------------------------------------------------------------- orders */

static bool take_targets(probe *p, const rs_manager_probe *order) {
    if (order->server_count > RS_PROBE_SERVERS_MAX) {
        snprintf(p->cause, sizeof p->cause, "a probe names at most %u servers", RS_PROBE_SERVERS_MAX);
        return false;
    }
    p->targets = order->server_count ? calloc(order->server_count, sizeof *p->targets) : NULL;
    if (order->server_count && !p->targets) {
        snprintf(p->cause, sizeof p->cause, "out of memory");
        return false;
    }
    p->target_count = order->server_count;
    for (uint32_t i = 0; i < order->server_count; i++) {
        target *t = &p->targets[i];
        snprintf(t->server, sizeof t->server, "%s", order->servers[i].server);
        t->address = order->servers[i].address;
        t->port = order->servers[i].control_port;
        t->probe = p;
    }
    return true;
}

static probe *free_slot(rs_probes *probes) {
    for (unsigned i = 0; i < RS_PROBES_MAX; i++)
        if (!probes->probes[i].used)
            return &probes->probes[i];
    return NULL;
}

void rs_probes_order(rs_probes *probes, const rs_manager_probe *order) {
    probe none = {.fd = -1}, *p = free_slot(probes);
    bool full = p == NULL;
    p = full ? &none : p;
    rs_time now = rs_loop_refresh(probes->loop);
    *p = (probe){.owner = probes,
                 .used = true,
                 .hash = hash_of(order->id),
                 .kind = order->kind,
                 .began = now,
                 .until = now + order->time,
                 .next = now,
                 .group = order->group,
                 .port = order->port,
                 .packets = order->packets,
                 .mtu = order->mtu,
                 .fd = -1};
    snprintf(p->id, sizeof p->id, "%s", order->id);
    if (full)
        snprintf(p->cause, sizeof p->cause, "%u probes are under way already; try again later", RS_PROBES_MAX);
    if (full || !take_targets(p, order)) {
        end(p);
        return;
    }
    switch (order->kind) {
    case RS_MANAGER_PROBE_FACTS:
        end(p);
        break;
    case RS_MANAGER_PROBE_LISTEN:
        listen_to(p);
        break;
    case RS_MANAGER_PROBE_SEND:
        open_sender(p);
        break;
    case RS_MANAGER_PROBE_REACH:
        reach(p);
        break;
    }
}

rs_time rs_probes_deadline(const rs_probes *probes) {
    rs_time first = RS_NEVER;
    for (unsigned i = 0; i < RS_PROBES_MAX; i++)
        if (probes->probes[i].used && probes->probes[i].next < first)
            first = probes->probes[i].next;
    return first;
}

static void out_of_time(probe *p) {
    for (uint32_t i = 0; i < p->target_count && p->kind == RS_MANAGER_PROBE_REACH; i++)
        if (!p->targets[i].settled)
            snprintf(p->targets[i].cause, sizeof p->targets[i].cause, "no answer in %.1f s",
                     (double)(p->until - p->began) / 1e9);
    end(p);
}

void rs_probes_timeout(rs_probes *probes) {
    rs_time now = rs_loop_now(probes->loop);
    for (unsigned i = 0; i < RS_PROBES_MAX; i++) {
        probe *p = &probes->probes[i];
        if (!p->used || p->next > now)
            continue;
        if (p->kind == RS_MANAGER_PROBE_SEND)
            send_next(p);
        else
            out_of_time(p);
    }
}
