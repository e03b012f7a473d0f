/* The control channel: who is accepted, who is connected to, and when either is given up. */
#include "daemon/control/control.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/control/pool.h"
#include "daemon/round_trip.h"
#include "daemon/units.h"

#define ACCEPTS_A_TURN 16
#define KEEPALIVES 3 /* a second apart; of a path that loses a tenth of them all are lost once in a thousand times */
#define RETRANSMIT_LEAST_US 5000
#define RETRANSMIT_MOST_MS 1000 /* the least that Linux takes */
#define DELAY_MOST_US 2000
#define SEGMENT_SHORT 1220             /* bytes: they pass wherever IPv6 does */
#define TWO_TICKS_US 20000             /* of 100 Hz, the slowest clock */
#define LONG_TRIP (5 * RS_MILLISECOND) /* beyond what fabrics have */
/* The kernel waits a second for the answer to a first segment. After these another attempt begins beside the ones
 * before: the first that is answered is taken, for a long way may answer late as well as not at all. */
#define KNOCK_AFTER (20 * RS_MILLISECOND) /* and twice, four times as long after the next ones */
#define KNOCKS_MOST 5u
#define LOOK_LEAST 256u /* connections that are looked at each RS_POOL_TICK, */
#define LOOK_TICKS 8u   /* or more, so that all are in so many */

/* Linux 6.15; older kernels refuse, take 200 ms to miss a lost last segment, and are silent up to as long again as a
 * link did not work. */
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif
#ifndef TCP_RTO_MIN_US
#define TCP_RTO_MIN_US 45
#endif
#ifndef TCP_DELACK_MAX_US
#define TCP_DELACK_MAX_US 46
#endif

/* The kernel takes no less than two ticks of its clock for a time: 2 ms at 1,000 Hz, 8 at 250. */
static void set_time(int fd, int option, int time_us) {
    while (setsockopt(fd, IPPROTO_TCP, option, &time_us, sizeof time_us) < 0 && time_us < TWO_TICKS_US)
        time_us *= 2;
}

/* Dead hosts must be noticed: by unacknowledged data, and by keepalives when nothing is sent. The kernel gives a
 * connection up when `dead_timeout` is over and the last probe was not answered: several have to be lost before, for
 * while packets flow by other ways nothing is said for long. Lost segments are to be noticed, too, and soon: a transfer
 * may wait for the message in it. */
static void set_options(const rs_control *control, int fd) {
    int dead_s = (int)(control->options.dead_timeout / RS_SECOND);
    int idle_s = dead_s > KEEPALIVES ? dead_s - KEEPALIVES : 1;
    int one = 1, interval_s = 1, probes = KEEPALIVES, retransmit_most_ms = RETRANSMIT_MOST_MS;
    unsigned user_timeout_ms = (unsigned)(control->options.dead_timeout / RS_MILLISECOND);
    rs_connection_mark_control(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    set_time(fd, TCP_RTO_MIN_US, RETRANSMIT_LEAST_US);
    set_time(fd, TCP_DELACK_MAX_US, DELAY_MOST_US);
    setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &retransmit_most_ms, sizeof retransmit_most_ms);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof user_timeout_ms);
}

/* ------------------------------------------------------------------------------------------------------ accepting */

static void refuse(rs_control *control, int fd, const struct sockaddr_in *remote, const char *cause) {
    char address[RS_ADDRESS_TEXT];
    control->stats.refused++;
    rs_log_limited(&control->refusals, 5, RS_LOG_WARNING, "control", "refused address=%s:%u cause=%s",
                   rs_address_text(ntohl(remote->sin_addr.s_addr), address), ntohs(remote->sin_port), rs_quote(cause));
    close(fd);
}

static void listener_ready(void *context, uint32_t events) {
    rs_control *control = context;
    (void)events;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        struct sockaddr_in remote = {0};
        socklen_t length = sizeof remote;
        int fd = accept4(control->listener.fd, (struct sockaddr *)&remote, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            char text[RS_ACCEPT_TEXT];
            if (rs_accept_failed(&control->pause, errno, rs_pool_now(control), "the control channel", text)) {
                if (text[0])
                    rs_log(RS_LOG_ERROR, "control", "%s", text);
                rs_loop_watch(control->options.loop, &control->listener, control->listener.fd, 0);
                if (control->next_tick > control->pause.again)
                    control->next_tick = control->pause.again;
            }
            return;
        }
        rs_accept_worked(&control->pause);
        char text[RS_CONNECTION_TEXT];
        const char *full = rs_pool_make_place(control, ntohl(remote.sin_addr.s_addr));
        if (full) {
            refuse(control, fd, &remote, full);
            continue;
        }
        rs_connection *c = rs_pool_add(control, fd, false, RS_NO_PEER, &remote);
        if (!c) {
            refuse(control, fd, &remote, "out of memory");
            continue;
        }
        set_options(control, fd);
        control->stats.accepted++;
        if (!rs_pool_say_hello(control, c, text))
            rs_pool_close(control, c, RS_LOG_WARNING, text);
        if (control->next_tick == RS_NEVER)
            control->next_tick = rs_pool_now(control) + RS_POOL_TICK;
    }
}

/* ----------------------------------------------------------------------------------------------------- connecting */

static int start_connect(const rs_control *control, const struct sockaddr_in *remote, bool shorter, char *text) {
    const int segment = SEGMENT_SHORT;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        snprintf(text, RS_CONNECTION_TEXT, "cannot open a socket: %s", strerror(errno));
        return -1;
    }
    struct sockaddr_in source = {.sin_family = AF_INET};
    source.sin_addr.s_addr = htonl(control->options.address);
    set_options(control, fd);
    if (shorter)
        setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
    if (bind(fd, (const struct sockaddr *)&source, sizeof source) != 0 ||
        (connect(fd, (const struct sockaddr *)remote, sizeof *remote) != 0 && errno != EINPROGRESS)) {
        rs_pool_cannot_connect(text, ntohl(remote->sin_addr.s_addr), ntohs(remote->sin_port), strerror(errno));
        close(fd);
        return -1;
    }
    return fd;
}

/* One more. NULL: why not. */
static rs_connection *attempt(rs_control *control, rs_peer peer, char *text) {
    const rs_peer_entry *entry = rs_peers_entry(control->options.peers, peer);
    struct sockaddr_in remote = {.sin_family = AF_INET, .sin_port = htons(entry->control_port)};
    remote.sin_addr.s_addr = htonl(entry->address);
    const bool shorter = rs_pool_now(control) < control->peers[peer].shorter_until;
    int fd = start_connect(control, &remote, shorter, text);
    if (fd < 0)
        return NULL;
    rs_connection *c = rs_pool_add(control, fd, true, peer, &remote);
    if (c) {
        c->shorter = shorter;
        return c;
    }
    close(fd);
    snprintf(text, RS_CONNECTION_TEXT, "out of memory");
    return NULL;
}

static void try_connect(rs_control *control, rs_peer peer) {
    rs_pool_peer *p = &control->peers[peer];
    const rs_peer_entry *entry = rs_peers_entry(control->options.peers, peer);
    if (!p->wanted || p->sending || p->connecting || entry->address == 0 || entry->dials ||
        rs_pool_now(control) < p->retry_at)
        return;
    char text[RS_CONNECTION_TEXT] = "";
    const char *full = rs_pool_make_place(control, 0);
    if (full)
        snprintf(text, sizeof text, "%s", full);
    else
        p->connecting = attempt(control, peer, text);
    p->knocks = 0;
    if (p->connecting) {
        if (control->next_tick > rs_pool_now(control) + KNOCK_AFTER)
            control->next_tick = rs_pool_now(control) + KNOCK_AFTER;
        return;
    }
    rs_pool_back_off(control, peer);
    control->callbacks.peer_down(control->callbacks.context, peer, text);
}

/* When another attempt begins beside one that nothing answers, the newest; RS_NEVER: none does. */
static rs_time knock_at(const rs_control *control, const rs_connection *c) {
    if (c->phase != RS_CONNECTION_CONNECTING)
        return RS_NEVER;
    const rs_pool_peer *p = &control->peers[c->peer];
    return p->connecting == c && p->wanted && p->knocks < KNOCKS_MOST ? c->phase_since + (KNOCK_AFTER << p->knocks)
                                                                      : RS_NEVER;
}

/* Where there is no room for it the one that is out has to do. */
static void knock_again(rs_control *control, rs_peer peer) {
    rs_pool_peer *p = &control->peers[peer];
    char text[RS_CONNECTION_TEXT];
    bool room = control->stats.connections < control->options.max_connections;
    rs_connection *another = room ? attempt(control, peer, text) : NULL;
    p->connecting = another ? another : p->connecting;
    p->knocks = another ? p->knocks + 1 : KNOCKS_MOST;
    control->stats.knocked += another != NULL;
}

void rs_control_want(rs_control *control, rs_peer peer) {
    rs_pool_peer *p = rs_pool_peer_of(control, peer);
    if (!p || p->sending)
        return;
    if (!p->wanted) {
        p->wanted = true;
        control->wanted_count++;
        rs_peers_hold(control->options.peers, peer);
    }
    rs_time now = rs_pool_now(control);
    p->wanted_until = now + control->options.want_bound;
    if (control->next_tick == RS_NEVER)
        control->next_tick = now + RS_POOL_TICK;
    if (p->retry_at > now && p->retry_at < control->next_tick)
        control->next_tick = p->retry_at;
    try_connect(control, peer);
}

/* Somebody may have connected to here by that name. Of a send to thousands each address is told, and what was opened
 * from here needs no look at all connections. */
static bool may_have_come(const rs_control *control, const char *name) {
    const rs_peers *peers = control->options.peers;
    for (rs_peer i = rs_peers_of_name(peers, name, RS_NO_PEER); i != RS_NO_PEER; i = rs_peers_of_name(peers, name, i)) {
        const rs_pool_peer *p = i < control->peer_room ? &control->peers[i] : NULL;
        bool opened_here = p && ((p->sending && p->sending->outgoing) || p->connecting);
        if (p && p->connections > (opened_here ? 1u : 0u))
            return true;
    }
    return false;
}

void rs_control_address_known(rs_control *control, rs_peer peer) {
    if (peer >= control->peer_room)
        return;
    const char *name = rs_peers_name(control->options.peers, peer);
    rs_connection *first = may_have_come(control, name) ? control->connections : NULL;
    for (rs_connection *c = first, *next; c; c = next) {
        next = c->next;
        if (c->peer == RS_NO_PEER || rs_pool_may_be(control, peer, c) ||
            strcmp(rs_peers_name(control->options.peers, c->peer), name) != 0)
            continue;
        rs_pool_close(control, c, RS_LOG_WARNING, "it had the name of a server whose address is another");
        next = control->connections;
    }
    try_connect(control, peer);
}

void rs_control_used(rs_control *control, rs_peer peer) {
    const rs_pool_peer *p = peer < control->peer_room ? &control->peers[peer] : NULL;
    if (p && p->sending)
        p->sending->used = true;
    bool others = p && p->connections > (p->sending ? 1u : 0u);
    for (rs_connection *c = others ? control->connections : NULL; c; c = c->next)
        c->used |= c->peer == peer;
}

bool rs_control_is_up(const rs_control *control, rs_peer peer) {
    return peer < control->peer_room && control->peers[peer].sending;
}

uint32_t rs_control_address(const rs_control *control, rs_peer peer) {
    return rs_control_is_up(control, peer) ? control->peers[peer].sending->remote_address : 0;
}

uint32_t rs_control_round_trip_us(const rs_control *control, rs_peer peer) {
    rs_peer_entry *entry = rs_peers_entry(control->options.peers, peer);
    bool is_long = (rs_time)entry->round_trip_us * RS_MICROSECOND > control->options.long_trip;
    if (is_long && rs_control_is_up(control, peer)) /* perhaps a busy host: the kernel may have measured less since */
        entry->round_trip_us = rs_round_trip_us(control->peers[peer].sending->fd);
    return entry->round_trip_us;
}

uint32_t rs_control_knows(const rs_control *control, rs_peer peer) {
    const rs_connection *c = rs_control_is_up(control, peer) ? control->peers[peer].sending : NULL;
    return c && c->phase == RS_CONNECTION_UP ? c->knows : UINT32_MAX;
}

bool rs_control_send(rs_control *control, rs_peer peer, const uint8_t *header, size_t header_length,
                     const rs_connection_payload *payload) {
    if (!rs_control_is_up(control, peer))
        return false;
    rs_connection *c = control->peers[peer].sending;
    char text[RS_CONNECTION_TEXT];
    if (!rs_connection_send(c, rs_pool_now(control), header, header_length, payload, text)) {
        if (c->reading) { /* who reads of it finds its end, and closes it */
            shutdown(c->fd, SHUT_RDWR);
            return false;
        }
        control->stats.broken++;
        rs_pool_close(control, c, RS_LOG_WARNING, text);
        return false;
    }
    rs_pool_count_waiting(control, c);
    /* Slow readers, however many, must not fill the memory. */
    bool full = c->out_length >= RS_CONNECTION_HIGH || (c->out_length > 0 && control->waiting >= RS_CONNECTIONS_HIGH);
    if (!c->choked && full) {
        c->choked = true;
        control->callbacks.peer_writable(control->callbacks.context, peer, false);
    }
    rs_pool_watch(control, c);
    return true;
}

size_t rs_control_waiting(const rs_control *control) {
    return control->waiting;
}

/* ----------------------------------------------------------------------------------------------------------- time */

/* Why a connection must go, or NULL. `text`: room for it. */
static const char *overdue(const rs_control *control, const rs_connection *c, rs_time now,
                           char text[RS_CONNECTION_TEXT]) {
    const rs_control_options *o = &control->options;
    if (c->phase == RS_CONNECTION_CONNECTING && now - c->phase_since >= o->connect_timeout)
        return rs_pool_cannot_connect(text, c->remote_address, c->remote_port, "no answer");
    if (c->phase == RS_CONNECTION_GREETING && now - c->phase_since >= o->connect_timeout)
        return "no HELLO came";
    if (c->stalled_since != RS_NEVER && now - c->stalled_since >= o->dead_timeout)
        return "it does not read what is sent to it";
    if (c->tls && !rs_tls_holds(c->tls))
        return "its certificate was revoked, or the CA that signed it is not in the CA's file any more";
    return NULL;
}

/* `c` may be gone after this. */
/* What was sent is not acknowledged, however often it went: of who does not read, it would be. */
static bool is_unheard(const rs_connection *c) {
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    return c->stalled_since != RS_NEVER && getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
           info.tcpi_unacked > 0 && info.tcpi_backoff > 0;
}

static void look_at(rs_control *control, rs_connection *c, rs_time now) {
    char text[RS_CONNECTION_TEXT];
    const char *cause = overdue(control, c, now, text);
    c->unheard |= cause && is_unheard(c);
    bool idle = !cause && c->phase == RS_CONNECTION_UP && now - c->last_activity >= control->options.idle_timeout;
    bool in_use = rs_pool_in_use(control, c);
    bool useless = c->phase == RS_CONNECTION_UP && !in_use && !c->used && !rs_pool_proven(control, c) &&
                   now - c->phase_since >= control->options.use_bound;
    if (cause)
        control->stats.broken += !rs_pool_has_another(control, c);
    else if (useless)
        cause = "nothing came by it, and nobody has told where its server is";
    if (cause || idle)
        rs_pool_close(control, c, cause ? RS_LOG_WARNING : RS_LOG_DEBUG, cause ? cause : "unused for a while");
    else if (knock_at(control, c) <= now)
        knock_again(control, c->peer);
}

/* At all while some are not up yet, which are tried again within milliseconds. Of thousands that are up at a part each
 * time, and at each of them within LOOK_TICKS. */
static void check_connections(rs_control *control, rs_time now) {
    uint32_t count = control->stats.connections, part = count / LOOK_TICKS + 1;
    bool all = control->young_count > 0 || count <= LOOK_LEAST;
    if (all)
        control->looked_at = control->connections;
    for (uint32_t left = all ? count : part > LOOK_LEAST ? part : LOOK_LEAST; left > 0; left--) {
        rs_connection *c = control->looked_at || all ? control->looked_at : control->connections;
        if (!c)
            break;
        control->looked_at = c->next;
        look_at(control, c, now);
    }
}

static void give_up(rs_control *control, rs_peer peer) {
    bool known = rs_peers_entry(control->options.peers, peer)->address != 0;
    rs_peer kept = peer;
    rs_pool_stop_wanting(control, peer);
    if (!known)
        control->callbacks.peer_down(control->callbacks.context, kept, "nobody told its address");
}

static void check_wanted(rs_control *control, rs_time now) {
    for (rs_peer peer = 0; peer < control->peer_room && control->wanted_count > 0; peer++) {
        if (!control->peers[peer].wanted)
            continue;
        if (now >= control->peers[peer].wanted_until && !control->peers[peer].connecting)
            give_up(control, peer);
        else
            try_connect(control, peer);
    }
}

static rs_time next_tick(const rs_control *control, rs_time now) {
    if (!control->connections && control->wanted_count == 0)
        return control->pause.again ? control->pause.again : RS_NEVER;
    rs_time tick = now + RS_POOL_TICK;
    for (rs_peer peer = 0; peer < control->peer_room && control->wanted_count > 0; peer++)
        if (control->peers[peer].wanted && control->peers[peer].retry_at > now && control->peers[peer].retry_at < tick)
            tick = control->peers[peer].retry_at;
    for (const rs_connection *c = control->young_count > 0 ? control->connections : NULL; c; c = c->next)
        if (knock_at(control, c) < tick)
            tick = knock_at(control, c);
    return tick;
}

rs_time rs_control_deadline(const rs_control *control) {
    return control->next_tick;
}

void rs_control_timeout(rs_control *control) {
    rs_time now = rs_pool_now(control);
    if (now < control->next_tick)
        return;
    char text[RS_TLS_TEXT];
    if (control->options.identity) /* who is revoked does not stay; files that cannot be read change nothing */
        (void)rs_tls_identity_refresh(control->options.identity, text);
    if (rs_accept_resumes(&control->pause, now))
        rs_loop_watch(control->options.loop, &control->listener, control->listener.fd, EPOLLIN);
    check_connections(control, now);
    check_wanted(control, now);
    control->next_tick = next_tick(control, now);
}

/* ------------------------------------------------------------------------------------------------ birth and death */

static int open_listener(const rs_control_options *options, char *error) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(options->port)};
    address.sin_addr.s_addr = htonl(options->address);
    if (fd >= 0)
        rs_connection_mark_control(fd); /* of the answer to a SYN, too */
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 256) == 0)
        return fd;
    char text[RS_ADDRESS_TEXT];
    snprintf(error, RS_CONNECTION_TEXT, "cannot listen on %s:%u for the control channel: %s",
             rs_address_text(options->address, text), options->port, strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

static void set_default(rs_time *value, rs_time fallback) {
    if (*value == 0)
        *value = fallback;
}

rs_control *rs_control_new(const rs_control_options *options, const rs_control_callbacks *callbacks, char *error) {
    rs_control *control = calloc(1, sizeof *control);
    if (!control) {
        snprintf(error, RS_CONNECTION_TEXT, "out of memory");
        return NULL;
    }
    control->options = *options;
    control->callbacks = *callbacks;
    control->next_tick = RS_NEVER;
    set_default(&control->options.connect_timeout, 2 * RS_SECOND);
    set_default(&control->options.want_bound, 6 * RS_SECOND);
    set_default(&control->options.idle_timeout, 60 * RS_SECOND);
    set_default(&control->options.long_trip, LONG_TRIP);
    set_default(&control->options.use_bound, 10 * RS_SECOND);
    set_default(&control->options.dead_timeout, 5 * RS_SECOND);
    control->listener = (rs_watch){.ready = listener_ready, .context = control};
    int fd = open_listener(options, error);
    if (fd < 0 || !rs_loop_watch(options->loop, &control->listener, fd, EPOLLIN)) {
        if (fd >= 0)
            close(fd);
        free(control);
        return NULL;
    }
    return control;
}

void rs_control_free(rs_control *control) {
    if (!control)
        return;
    while (control->connections)
        rs_pool_drop(control, control->connections);
    int fd = control->listener.fd;
    rs_loop_unwatch(control->options.loop, &control->listener);
    close(fd);
    free(control->peers);
    free(control);
}

rs_control_stats rs_control_stats_get(const rs_control *control) {
    return control->stats;
}
