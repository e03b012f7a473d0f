/* Plays the receivers of a real agent's send, over sockets: one process that has the addresses of all of them (its
 * namespace takes a whole network as its own). Each accepts the sender's connection, says its name, answers OPEN and
 * PING, has light at the first attempt, reports as it is told (to the sender, or by the tree, of which only the top is
 * heard here), says now and then how far it is, and has all when the sender asks. Payloads are not looked at, and
 * nothing is ever missing: what is measured is the sender.
 *
 *   agent_receivers INTERFACE FILE
 *
 * A line of FILE for each that may be asked: its name and its address. Runs until its standard input ends. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/wire.h"
#include "core/feedback/report.h"
#include "core/transfer/node.h"

#define PORT 7071
#define HOSTS 65536u /* of the network, by the lower half of an address */
#define SPEAKERS_MOST 64u
#define IN_BYTES 2048u
#define BATCH 64u
#define HEAD_BYTES 128u
#define ROOM (UINT64_C(16) << 20)
#define SHARE INT64_C(10000000000)
#define SAMPLE INT64_C(250000000) /* ns: each says so often how far it is where the sender names no other time */
#define EVENTS 256

typedef struct {
    char name[RS_NAME_MAX + 1];
    int fd; /* its control connection; -1: none */
    uint32_t address;
    bool accepted, lit;
    uint8_t in[IN_BYTES];
    size_t in_length;
} receiver;

typedef struct {
    receiver *at;
    int fd; /* its datagrams leave here */
} speaker;

typedef struct {
    receiver *by_host[HOSTS], **all;
    uint32_t count;
    speaker speakers[SPEAKERS_MOST];
    uint32_t speaker_count, turn, accepted;
    bool by_tree, asked;
    uint64_t nonce, newest, received;
    uint32_t session, group, sender, interface;
    int epoll, listener, data;
    int64_t sample_at, sample; /* the next receiver says how far it is then; each so often */
} scene;

static void fail(const char *what) {
    fprintf(stderr, "agent_receivers: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct sockaddr_in place(uint32_t address, uint16_t port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(address);
    return to;
}

static void watch(const scene *s, int fd, void *what) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        fail("epoll");
}

/* A connection that takes no more, or is gone, is the sender's loss. */
static void say(receiver *r, const rs_message *m) {
    uint8_t bytes[RS_HEADER_MAX];
    size_t length = rs_wire_encode(m, 0, bytes, sizeof bytes);
    if (r->fd >= 0 && send(r->fd, bytes, length, MSG_NOSIGNAL) != (ssize_t)length)
        fprintf(stderr, "agent_receivers: %s cannot answer: %s\n", r->name, strerror(errno));
}

static rs_message message(const scene *s, rs_message_type type) {
    return (rs_message){.type = type, .nonce = s->nonce, .session = s->session};
}

static void listen_to_group(scene *s, const rs_message *open) {
    if (s->data >= 0 && s->group == open->open.group_address)
        return;
    if (s->data >= 0)
        close(s->data);
    const int one = 1, buffer = 64 << 20;
    struct sockaddr_in at = place(open->open.group_address, open->open.data_port);
    struct ip_mreqn join = {.imr_ifindex = (int)s->interface};
    join.imr_multiaddr = at.sin_addr;
    s->group = open->open.group_address;
    s->data = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->data < 0 || setsockopt(s->data, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(s->data, (const struct sockaddr *)&at, sizeof at) != 0 ||
        setsockopt(s->data, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join) != 0)
        fail("the data channel");
    if (setsockopt(s->data, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0)
        setsockopt(s->data, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    watch(s, s->data, &s->data);
}

static void begin(scene *s, const rs_message *open) {
    if (s->nonce == open->nonce)
        return;
    for (uint32_t i = 0; i < s->speaker_count; i++)
        close(s->speakers[i].fd);
    for (uint32_t i = 0; i < s->count; i++)
        s->all[i]->accepted = s->all[i]->lit = false;
    s->nonce = open->nonce;
    s->session = open->session;
    s->speaker_count = s->accepted = s->turn = 0;
    s->newest = s->received = 0;
    s->by_tree = s->asked = false;
    s->sample = SAMPLE;
    listen_to_group(s, open);
}

static void speaks(scene *s, receiver *r) {
    for (uint32_t i = 0; i < s->speaker_count; i++)
        if (s->speakers[i].at == r)
            return;
    if (s->speaker_count == SPEAKERS_MOST)
        return;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = place(r->address, PORT), to = place(s->sender, PORT);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof at) != 0 ||
        connect(fd, (const struct sockaddr *)&to, sizeof to) != 0)
        fail("a socket for reports");
    s->speakers[s->speaker_count++] = (speaker){r, fd};
}

static void heard(scene *s, receiver *r, const rs_message *m) {
    rs_message answer;
    switch (m->type) {
    case RS_MSG_PING:
        answer = (rs_message){.type = RS_MSG_PONG, .nonce = m->nonce, .session = m->session};
        answer.ping.token = m->ping.token;
        say(r, &answer);
        break;
    case RS_MSG_OPEN:
        begin(s, m);
        s->accepted += !r->accepted;
        r->accepted = true;
        answer = message(s, RS_MSG_OPEN_ACK);
        answer.open_ack.room = ROOM;
        say(r, &answer);
        break;
    case RS_MSG_REPORT_TO:
        s->by_tree |= m->report_to.on;
        if (m->report_to.sample_us)
            s->sample = (int64_t)m->report_to.sample_us * 1000;
        if (m->report_to.on && m->report_to.parent.address == 0)
            speaks(s, r);
        break;
    case RS_MSG_DATA_FNSD:
        answer = message(s, RS_MSG_DATA_RCVD);
        say(r, &answer);
        break;
    default:
        break;
    }
}

static void gone(receiver *r) {
    close(r->fd);
    r->fd = -1;
    r->in_length = 0;
}

static void read_connection(scene *s, receiver *r) {
    ssize_t got = recv(r->fd, r->in + r->in_length, sizeof r->in - r->in_length, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        gone(r);
        return;
    }
    r->in_length += (size_t)got;
    size_t at = 0, header;
    uint32_t payload;
    while (at < r->in_length && rs_wire_frame(r->in + at, r->in_length - at, &header, &payload) == 1 &&
           r->in_length - at >= header + payload) {
        rs_message m;
        if (rs_wire_decode(r->in + at, header, payload, &m))
            heard(s, r, &m);
        at += header + payload;
    }
    r->in_length -= at;
    memmove(r->in, r->in + at, r->in_length);
}

static void take_connections(scene *s) {
    struct sockaddr_in from, to;
    socklen_t length = sizeof from;
    int fd;
    while ((fd = accept4(s->listener, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        length = sizeof to;
        receiver *r = getsockname(fd, (struct sockaddr *)&to, &length) == 0
                          ? s->by_host[ntohl(to.sin_addr.s_addr) % HOSTS]
                          : NULL;
        length = sizeof from;
        if (!r) {
            close(fd);
            continue;
        }
        if (r->fd >= 0)
            gone(r);
        r->fd = fd;
        s->sender = ntohl(from.sin_addr.s_addr);
        watch(s, fd, r);
        rs_message hello = {.type = RS_MSG_HELLO};
        hello.hello.engines = 1u << RS_PROTOCOL_REPUBLIC | RS_HELLO_TREE;
        hello.hello.boot = 1;
        hello.hello.name_length = (uint16_t)strlen(r->name);
        memcpy(hello.hello.name, r->name, hello.hello.name_length);
        say(r, &hello);
    }
}

static void light(scene *s, uint64_t sn) {
    for (uint32_t i = 0; i < s->count; i++) {
        receiver *r = s->all[i];
        if (!r->accepted || r->lit)
            continue;
        r->lit = true;
        rs_message m = message(s, RS_MSG_INTL_SEQ);
        m.intl_seq.sn = sn;
        say(r, &m);
    }
}

static void say_rate(const scene *s, receiver *r) {
    rs_message m = message(s, RS_MSG_RATE);
    m.rate.highest = s->newest;
    m.rate.received = s->received;
    m.rate.at = (uint64_t)now_ns();
    m.rate.share_bps = (uint64_t)SHARE;
    m.rate.receivers = 1;
    say(r, &m);
}

static void report(const scene *s) {
    if (!s->by_tree) {
        for (uint32_t i = 0; i < s->count; i++)
            if (s->all[i]->lit)
                say_rate(s, s->all[i]);
        return;
    }
    for (uint32_t i = 0; i < s->speaker_count; i++) {
        uint8_t bytes[RS_HEADER_MAX];
        const rs_report one = {.nonce = s->nonce,
                               .session = s->session,
                               .flags = RS_REPORT_OWN | RS_REPORT_LEAST,
                               .receivers = s->accepted / s->speaker_count,
                               .highest = s->newest,
                               .received = s->received,
                               .at = (uint64_t)now_ns(),
                               .share_bps = (uint64_t)SHARE,
                               .least = s->newest};
        size_t length = rs_report_encode(&one, bytes);
        if (send(s->speakers[i].fd, bytes, length, 0) < 0 && errno != EAGAIN)
            fprintf(stderr, "agent_receivers: a report: %s\n", strerror(errno));
    }
}

static void take_data(scene *s) {
    static uint8_t heads[BATCH][HEAD_BYTES];
    static struct mmsghdr messages[BATCH];
    static struct iovec vectors[BATCH];
    for (uint32_t i = 0; i < BATCH; i++) { /* the rest of a packet is thrown away */
        vectors[i] = (struct iovec){heads[i], HEAD_BYTES};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &vectors[i], .msg_iovlen = 1};
    }
    int got = recvmmsg(s->data, messages, BATCH, 0, NULL);
    for (int i = 0; i < got; i++) {
        rs_data_header h;
        if (messages[i].msg_len < RS_DATA_HEADER || !rs_wire_decode_data(heads[i], RS_DATA_HEADER, &h) ||
            h.nonce != s->nonce)
            continue;
        s->newest = h.sn;
        s->received++;
        bool attempt = (h.flags & RS_DATA_ATTEMPT) != 0, asked = !attempt && (h.flags & RS_DATA_REPORT) != 0;
        bool again = s->asked && s->by_tree; /* for those that lost the packet before */
        s->asked = asked && !again;          /* on a slow path each asks, and every other one counts */
        if (attempt)
            light(s, h.sn);
        else if (asked && !again)
            report(s);
    }
}

static void take_samples(scene *s) {
    int64_t now = now_ns(), each = s->accepted ? s->sample / s->accepted + 1 : SAMPLE;
    if (!s->by_tree || s->received == 0 || now - s->sample_at > 100 * each)
        s->sample_at = now;
    for (; s->sample_at < now; s->sample_at += each) {
        receiver *r = s->all[s->turn++ % s->count];
        if (r->lit)
            say_rate(s, r);
    }
}

static void read_names(scene *s, const char *path) {
    char name[RS_NAME_MAX + 1], address[64];
    FILE *file = fopen(path, "re");
    s->all = calloc(HOSTS, sizeof *s->all);
    if (!file || !s->all)
        fail(path);
    while (s->count < HOSTS && fscanf(file, "%31s %63s", name, address) == 2) {
        struct in_addr at;
        receiver *r = calloc(1, sizeof *r);
        if (!r || inet_pton(AF_INET, address, &at) != 1)
            fail(path);
        snprintf(r->name, sizeof r->name, "%s", name);
        r->fd = -1;
        r->address = ntohl(at.s_addr);
        s->all[s->count++] = s->by_host[r->address % HOSTS] = r;
    }
    fclose(file);
}

int main(int argc, char **argv) {
    static scene s = {.data = -1};
    const int one = 1;
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    struct rlimit limit;
    if (argc != 3) {
        fprintf(stderr, "usage: agent_receivers INTERFACE FILE\n");
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    read_names(&s, argv[2]);
    s.interface = if_nametoindex(argv[1]);
    s.epoll = epoll_create1(EPOLL_CLOEXEC);
    s.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s.interface == 0 || s.epoll < 0 || s.listener < 0 ||
        setsockopt(s.listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(s.listener, (const struct sockaddr *)&any, sizeof any) != 0 || listen(s.listener, 16384) != 0)
        fail(argv[1]);
    watch(&s, s.listener, &s.listener);
    watch(&s, STDIN_FILENO, &s.epoll);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(s.epoll, events, EVENTS, 10);
        for (int i = 0; i < count; i++) {
            void *what = events[i].data.ptr;
            if (what == &s.epoll)
                return 0;
            if (what == &s.data)
                take_data(&s);
            else if (what == &s.listener)
                take_connections(&s);
            else if (((receiver *)what)->fd >= 0)
                read_connection(&s, what);
        }
        take_samples(&s);
    }
}
