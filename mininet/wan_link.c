/* wan_link: a wide-area network between network interfaces: delay, rate, queues, loss, marks.
 *
 *   wan_link STATS SEED INTERFACE,DELAY_US,UP_BPS,DOWN_BPS,QUEUE,UP_PPM,DOWN_PPM,BURST,MARK ...
 *
 * Each interface is a port. What comes in at one is shaped to UP_BPS behind a queue of QUEUE bytes, and goes out at
 * another (at all others if it is multicast) after both ports' delays, shaped to DOWN_BPS there. Rate 0: not limited.
 * PPM packets in a million are lost each way, in bursts of BURST packets in the mean. Where more than MARK bytes wait,
 * packets that may be marked are (ECN; 0: never).
 *
 * Times are exact: a packet's arrival is the kernel's stamp, and what it waits for is computed from that, however late
 * this program looks. It says "ready", runs until it is ended, and keeps its counters in the file STATS, of which
 * mininet/emulator.py knows the form. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <math.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORTS 16
#define STATIONS 64
#define FRAME 16384      /* of a ring: an MTU of 9000 fits */
#define RING (48u << 20) /* bytes of it, for each port */
#define BLOCK (1u << 20)
#define NEAR_NS 5000      /* what is due so soon goes now */
#define NAP_NS 30000      /* between looks while there is something to do */
#define AWAKE_NS 50000000 /* so long after the last packet it looks that often */
#define BATCH 64
#define OVERHEAD 24 /* preamble, check sequence and gap of a frame */
#define BUCKETS 500 /* of 10 us: how much later than due packets went */
#define BUCKET_NS 10000
#define PACKETS_MOST (1u << 19)

typedef struct {
    uint64_t came, lost_up, full_up, sent, lost_down, full_down, marked, refused;
} counters;

typedef struct {
    uint64_t ports, overrun, no_memory, late_most_ns, late[BUCKETS];
    counters port[PORTS];
} counts;

typedef struct {
    uint8_t *bytes;
    uint32_t length, users;
} packet;

/* A rate behind a bounded queue. */
typedef struct {
    uint64_t bps, queue, mark;
    int64_t free_at;
} shaper;

/* Gilbert's model: all is lost in a burst, nothing outside. */
typedef struct {
    double begins, ends;
    bool bad;
    uint64_t random;
} loss;

typedef struct {
    const char *name;
    int fd, index;
    uint8_t *ring;
    uint32_t frames, at;
    int64_t delay;
    shaper up, down;
    loss up_loss, down_loss;
    packet *batch[BATCH];
    int64_t due[BATCH]; /* when these were to go */
    uint32_t batched;
} port;

typedef struct {
    int64_t at;
    uint64_t order;
    packet *what;
    uint16_t to;
    bool shaped; /* it has been through the rate of the port that it goes out at */
} event;

static port ports[PORTS];
static uint32_t port_count;
static counts *stats;
static event *heap;
static uint32_t heap_count;
static uint64_t order;
static struct {
    uint8_t address[ETH_ALEN];
    uint32_t port;
} stations[STATIONS];
static uint32_t station_count;

_Noreturn static void die(const char *what) {
    fprintf(stderr, "wan_link: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t); /* the clock of packets' stamps */
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ------------------------------------------------------------------------------------------------ what is under way */

static bool sooner(const event *a, const event *b) {
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void push(int64_t at, packet *what, uint32_t to, bool shaped) {
    if (heap_count == PACKETS_MOST) {
        stats->no_memory++;
        return;
    }
    event e = {at, order++, what, (uint16_t)to, shaped};
    what->users++;
    uint32_t i = heap_count++;
    for (; i && sooner(&e, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = e;
}

static event pop(void) {
    event top = heap[0], e = heap[--heap_count];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < heap_count; i = child) {
        child += child + 1 < heap_count && sooner(&heap[child + 1], &heap[child]);
        if (!sooner(&heap[child], &e))
            break;
        heap[i] = heap[child];
    }
    heap[i] = e;
    return top;
}

static void release(packet *p) {
    if (--p->users == 0)
        free(p);
}

/* --------------------------------------------------------------------------------------------- what befalls packets */

static double draw(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

static bool is_lost(loss *l) {
    if (l->begins <= 0)
        return false;
    l->bad = draw(&l->random) < (l->bad ? 1 - l->ends : l->begins);
    return l->bad;
}

/* RFC 3168: of an IPv4 packet that allows it. */
static bool mark(packet *p) {
    uint8_t *ip = p->bytes + ETH_HLEN;
    if (p->length < ETH_HLEN + 20 || p->bytes[12] != 8 || p->bytes[13] != 0 || (ip[1] & 3) == 0)
        return false;
    uint32_t sum = (uint32_t)(ip[10] << 8 | ip[11]) + (ip[1] & 3u);
    ip[1] |= 3;
    sum += 0xffff - 3u; /* the old bits out, the new ones in: RFC 1624 */
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    ip[10] = (uint8_t)(sum >> 8);
    ip[11] = (uint8_t)sum;
    return true;
}

/* When a packet that comes now has left; -1: the queue is full. */
static int64_t shape(shaper *s, int64_t now, packet *p, counters *c) {
    if (s->bps == 0)
        return now;
    int64_t free_at = s->free_at > now ? s->free_at : now;
    uint64_t waits = (uint64_t)((double)(free_at - now) * (double)s->bps / 8e9);
    if (waits + p->length > s->queue)
        return -1;
    if (s->mark && waits > s->mark)
        c->marked += mark(p);
    s->free_at = free_at + (int64_t)((double)(p->length + OVERHEAD) * 8e9 / (double)s->bps);
    return s->free_at;
}

static void flush(uint32_t number) {
    port *o = &ports[number];
    struct mmsghdr messages[BATCH] = {0};
    struct iovec parts[BATCH];
    for (uint32_t i = 0; i < o->batched; i++) {
        parts[i] = (struct iovec){o->batch[i]->bytes, o->batch[i]->length};
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    for (uint32_t done = 0; done < o->batched;) {
        int sent = sendmmsg(o->fd, messages + done, o->batched - done, MSG_DONTWAIT);
        stats->port[number].refused += sent <= 0;
        stats->port[number].sent += sent > 0 ? (uint64_t)sent : 0;
        done += sent > 0 ? (uint32_t)sent : 1;
    }
    int64_t now = clock_now();
    for (uint32_t i = 0; i < o->batched; i++) {
        uint64_t late = now > o->due[i] ? (uint64_t)(now - o->due[i]) : 0;
        stats->late[late / BUCKET_NS < BUCKETS ? late / BUCKET_NS : BUCKETS - 1]++;
        stats->late_most_ns = late > stats->late_most_ns ? late : stats->late_most_ns;
        release(o->batch[i]);
    }
    o->batched = 0;
}

/* What is due at its port: into the queue of that port's rate, or out. */
static void leave(const event *e) {
    port *o = &ports[e->to];
    counters *c = &stats->port[e->to];
    if (!e->shaped && is_lost(&o->down_loss)) {
        c->lost_down++;
        release(e->what);
    } else if (!e->shaped && o->down.bps) {
        int64_t at = shape(&o->down, e->at, e->what, c);
        c->full_down += at < 0;
        if (at >= 0)
            push(at, e->what, e->to, true);
        release(e->what);
    } else {
        o->due[o->batched] = e->at;
        o->batch[o->batched++] = e->what;
        if (o->batched == BATCH)
            flush(e->to);
    }
}

static bool send_due(void) {
    int64_t now = clock_now();
    bool any = heap_count && heap[0].at <= now + NEAR_NS;
    while (heap_count && heap[0].at <= now + NEAR_NS) {
        const event e = pop();
        leave(&e);
    }
    for (uint32_t i = 0; i < port_count; i++)
        if (ports[i].batched)
            flush(i);
    return any;
}

/* ---------------------------------------------------------------------------------------------------- what comes in */

static uint32_t port_of(const uint8_t *address) {
    for (uint32_t i = 0; i < station_count; i++)
        if (memcmp(stations[i].address, address, ETH_ALEN) == 0)
            return stations[i].port;
    return PORTS;
}

static void learn(const uint8_t *address, uint32_t from) {
    if (port_of(address) != PORTS || station_count == STATIONS)
        return;
    memcpy(stations[station_count].address, address, ETH_ALEN);
    stations[station_count++].port = from;
}

static void come_in(uint32_t from, const uint8_t *bytes, uint32_t length, int64_t at) {
    port *in = &ports[from];
    counters *c = &stats->port[from];
    c->came++;
    learn(bytes + ETH_ALEN, from);
    packet *p = malloc(sizeof *p + length);
    if (!p) {
        stats->no_memory++;
        return;
    }
    *p = (packet){(uint8_t *)(p + 1), length, 1};
    memcpy(p->bytes, bytes, length);
    int64_t out = shape(&in->up, at, p, c);
    bool dropped = out >= 0 && is_lost(&in->up_loss);
    c->full_up += out < 0;
    c->lost_up += dropped;
    uint32_t to = bytes[0] & 1 ? PORTS : port_of(bytes);
    for (uint32_t i = 0; i < port_count && out >= 0 && !dropped; i++)
        if (i != from && (to == PORTS || to == i))
            push(out + in->delay + ports[i].delay, p, i, false);
    release(p);
}

static bool read_ring(uint32_t number) {
    port *in = &ports[number];
    bool any = false;
    for (uint32_t count = 0; count < in->frames; count++) {
        struct tpacket2_hdr *h = (struct tpacket2_hdr *)(void *)(in->ring + (size_t)in->at * FRAME);
        uint32_t status = __atomic_load_n(&h->tp_status, __ATOMIC_ACQUIRE);
        if (!(status & TP_STATUS_USER))
            break;
        stats->overrun += (status & TP_STATUS_LOSING) != 0;
        come_in(number, (uint8_t *)h + h->tp_mac, h->tp_snaplen, (int64_t)h->tp_sec * 1000000000 + h->tp_nsec);
        __atomic_store_n(&h->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        in->at = (in->at + 1) % in->frames;
        any = true;
    }
    return any;
}

/* --------------------------------------------------------------------------------------------------- from arguments */

static void open_port(port *p) {
    int version = TPACKET_V2, one = 1, buffer = 32 << 20;
    p->fd = socket(AF_PACKET, SOCK_RAW, 0);
    p->index = (int)if_nametoindex(p->name);
    const struct tpacket_req ring = {BLOCK, RING / BLOCK, FRAME, RING / FRAME};
    const struct sockaddr_ll where = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = p->index};
    if (p->fd < 0 || p->index == 0 || setsockopt(p->fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) ||
        setsockopt(p->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) ||
        setsockopt(p->fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one) ||
        setsockopt(p->fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer) ||
        setsockopt(p->fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring))
        die(p->name);
    p->ring = mmap(NULL, RING, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_LOCKED | MAP_POPULATE, p->fd, 0);
    p->frames = RING / FRAME;
    if (p->ring == MAP_FAILED || bind(p->fd, (const struct sockaddr *)&where, sizeof where))
        die(p->name);
}

static loss loss_of(double ppm, double burst, uint64_t seed) {
    double share = ppm / 1e6;
    return (loss){.begins = share < 1 ? share / (burst * (1 - share)) : 1, .ends = 1 / burst, .random = seed};
}

static void add_port(char *text, uint64_t seed) {
    port *p = &ports[port_count];
    double v[8] = {0};
    char *at = strchr(text, ',');
    for (uint32_t i = 0; i < 8; i++) {
        if (!at) {
            errno = EINVAL;
            die(text);
        }
        *at++ = '\0';
        v[i] = strtod(at, NULL);
        at = strchr(at, ',');
    }
    double burst = v[6] >= 1 ? v[6] : 1;
    p->name = text;
    p->delay = (int64_t)(v[0] * 1000);
    p->up = (shaper){(uint64_t)v[1], (uint64_t)v[3], (uint64_t)v[7], 0};
    p->down = (shaper){(uint64_t)v[2], (uint64_t)v[3], (uint64_t)v[7], 0};
    p->up_loss = loss_of(v[4], burst, seed * 1000003 + 2 * port_count);
    p->down_loss = loss_of(v[5], burst, seed * 1000003 + 2 * port_count + 1);
    open_port(p);
    port_count++;
}

static void wait_for_work(int64_t active_at) {
    int64_t now = clock_now(), due = heap_count ? heap[0].at - now : INT64_MAX;
    if (due <= NEAR_NS)
        return;
    if (due != INT64_MAX || now - active_at < AWAKE_NS) {
        int64_t nap = due < NAP_NS ? due : NAP_NS;
        const struct timespec t = {0, nap};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
        return;
    }
    struct pollfd fds[PORTS];
    for (uint32_t i = 0; i < port_count; i++)
        fds[i] = (struct pollfd){.fd = ports[i].fd, .events = POLLIN};
    (void)poll(fds, port_count, 100);
}

int main(int argc, char **argv) {
    if (argc < 5 || argc > 3 + PORTS) {
        fprintf(stderr, "usage: wan_link STATS SEED "
                        "INTERFACE,DELAY_US,UP_BPS,DOWN_BPS,QUEUE,UP_PPM,DOWN_PPM,BURST,MARK ...   (2 to 16 ports)\n");
        return 2;
    }
    int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || ftruncate(file, sizeof(counts)))
        die(argv[1]);
    stats = mmap(NULL, sizeof(counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    heap = calloc(PACKETS_MOST, sizeof *heap);
    if (stats == MAP_FAILED || !heap)
        die(argv[1]);
    for (int i = 3; i < argc; i++)
        add_port(argv[i], strtoull(argv[2], NULL, 10));
    stats->ports = port_count;
    prctl(PR_SET_TIMERSLACK, 1);
    const struct sched_param soon = {.sched_priority = 10};
    if (sched_setscheduler(0, SCHED_FIFO, &soon))
        fprintf(stderr, "wan_link: no real-time priority: %s\n", strerror(errno));
    puts("ready");
    fflush(stdout);
    for (int64_t active_at = 0;;) {
        bool any = false;
        for (uint32_t i = 0; i < port_count; i++)
            any |= read_ring(i);
        any |= send_due();
        active_at = any ? clock_now() : active_at;
        wait_for_work(active_at);
    }
}
