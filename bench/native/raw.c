/* raw: sends an object once over one way of packet I/O, or receives it. See raw.h.
 *
 *   raw receive --method udp --interface eth0 --address 10.0.0.2 --shared S --number 0 --file F --size N [--scratch]
 *   raw send --method udp --interface eth0 --address 10.0.0.1 --shared S --receivers 3 --file F
 *
 * `send` ends when every receiver has every packet; it prints one line of JSON. */
#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SLOTS_BYTES (4u << 20) /* scratch memory: stays in the cache, as nothing else does */
#define STEP (2u << 20)        /* of a file's memory made at once */
#define STALL_NS 1000000000ull /* no receiver gets on: packets were lost */
#define SENDER_PAUSE_NS 50000
#define RECEIVER_PAUSE_NS 300000 /* unless --pause says otherwise */
#define WINDOW_PACKETS 900 /* less than the kernel lets wait between two interfaces (net.core.netdev_max_backlog) */
#define SOCKET_BYTES (64 << 20)

static const rs_raw_method *const methods[] = {&rs_raw_udp, &rs_raw_udp_gso, &rs_raw_packet, &rs_raw_xdp};

typedef struct {
    bool sends, scratch;
    const char *method, *file, *shared;
    unsigned number;
    uint64_t window, pause_ns;
} settings;

void rs_raw_die(const char *what) {
    fprintf(stderr, "raw: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pause_ns(long ns) {
    const struct timespec t = {.tv_nsec = ns};
    nanosleep(&t, NULL);
}

void rs_raw_room(rs_raw *raw, uint64_t sn) {
    uint64_t end = (sn + 1) * raw->payload;
    if (raw->slots > 0 || end <= raw->allocated || raw->allocated >= raw->size)
        return;
    uint64_t step = end - raw->allocated > STEP ? end - raw->allocated : STEP;
    if (step > raw->size - raw->allocated)
        step = raw->size - raw->allocated;
    if (fallocate(raw->file_fd, 0, (off_t)raw->allocated, (off_t)step) != 0)
        rs_raw_die("no memory for the file");
    raw->allocated += step;
}

void rs_raw_arrived(rs_raw *raw, uint64_t sn) {
    if (sn + 1 > atomic_load_explicit(&raw->own->next, memory_order_relaxed))
        atomic_store_explicit(&raw->own->next, sn + 1, memory_order_relaxed);
    atomic_store_explicit(&raw->own->count, atomic_load_explicit(&raw->own->count, memory_order_relaxed) + 1,
                          memory_order_release);
}

int rs_raw_socket(const rs_raw *raw, bool receives) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1, bytes = SOCKET_BYTES;
    const struct sockaddr_in group = {
        .sin_family = AF_INET, .sin_port = htons(raw->port), .sin_addr.s_addr = htonl(raw->group)};
    const struct ip_mreqn member = {.imr_multiaddr = group.sin_addr,
                                    .imr_address.s_addr = htonl(raw->address),
                                    .imr_ifindex = (int)raw->interface_index};
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0)
        rs_raw_die("no socket");
    if (setsockopt(fd, SOL_SOCKET, receives ? SO_RCVBUFFORCE : SO_SNDBUFFORCE, &bytes, sizeof bytes) != 0)
        rs_raw_die("cannot have a large socket buffer");
    if (receives && (bind(fd, (const struct sockaddr *)&group, sizeof group) != 0 ||
                     setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &member, sizeof member) != 0))
        rs_raw_die("cannot join the group");
    if (!receives && (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &member, sizeof member) != 0 ||
                      connect(fd, (const struct sockaddr *)&group, sizeof group) != 0))
        rs_raw_die("cannot send to the group");
    return fd;
}

/* ---------------------------------------------------------------------------------------------------- the two sides */

static uint64_t least(const rs_raw *raw, bool count) {
    uint64_t low = UINT64_MAX;
    for (unsigned i = 0; i < raw->receivers; i++) {
        const rs_raw_progress *one = &raw->shared->receiver[i];
        uint64_t value = count ? atomic_load(&one->count) : atomic_load(&one->next);
        low = value < low ? value : low;
    }
    return low;
}

static void report(const rs_raw *raw, double seconds) {
    uint64_t most = 0;
    for (unsigned i = 0; i < raw->receivers; i++) {
        uint64_t count = atomic_load(&raw->shared->receiver[i].count);
        most = raw->packets - count > most ? raw->packets - count : most;
    }
    printf("{\"packets\": %llu, \"payload\": %u, \"seconds\": %.6f, \"most_lost\": %llu}\n",
           (unsigned long long)raw->packets, raw->payload, seconds, (unsigned long long)most);
    if (most > 0) {
        fprintf(stderr, "raw: a receiver missed %llu of %llu packets\n", (unsigned long long)most,
                (unsigned long long)raw->packets);
        exit(1);
    }
}

static void run_sender(rs_raw *raw, const rs_raw_method *method, uint64_t window_bytes) {
    void *sender = method->sender(raw);
    uint64_t window = window_bytes / raw->payload, next = 0, start = now_ns(), seen = 0, seen_at = start;
    window = window > WINDOW_PACKETS ? WINDOW_PACKETS : window;
    while (next < raw->packets || least(raw, true) < raw->packets) {
        uint64_t low = least(raw, false), limit = low + window;
        if (low > seen) {
            seen = low;
            seen_at = now_ns();
        } else if (now_ns() - seen_at > STALL_NS) {
            break;
        }
        limit = limit < raw->packets ? limit : raw->packets;
        if (next >= limit || (limit - next < RS_RAW_BATCH && limit < raw->packets)) {
            pause_ns(SENDER_PAUSE_NS);
            continue;
        }
        unsigned count = limit - next < RS_RAW_BATCH ? (unsigned)(limit - next) : RS_RAW_BATCH;
        method->send(sender, raw, next, count);
        next += count;
    }
    report(raw, (double)(now_ns() - start) / 1e9);
}

/* Sockets are looked at by the clock while packets come: to be woken for each would take most of a core. */
static void run_receiver(rs_raw *raw, const rs_raw_method *method, uint64_t look_ns) {
    void *receiver = method->receiver(raw);
    struct pollfd ready = {.fd = method->wait_fd(receiver), .events = POLLIN};
    puts("ready");
    fflush(stdout);
    unsigned empty = 0;
    while (atomic_load(&raw->own->count) < raw->packets) {
        unsigned got = method->receive(receiver, raw);
        empty = got > 0 ? 0 : empty + 1;
        if (empty > 20)
            poll(&ready, 1, 100);
        else if (got < RS_RAW_BATCH / 2)
            pause_ns((long)look_ns);
    }
}

/* ---------------------------------------------------------------------------------------------------- command line */

static void *map_file(int fd, uint64_t size, bool writes) {
    void *map = mmap(NULL, size, PROT_READ | (writes ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        rs_raw_die("cannot map a file");
    return map;
}

static void open_files(rs_raw *raw, const settings *set) {
    struct stat facts;
    int shared = open(set->shared, O_RDWR);
    if (shared < 0 || fstat(shared, &facts) != 0 || (size_t)facts.st_size < sizeof *raw->shared)
        rs_raw_die("--shared must be a file of 4096 bytes");
    raw->shared = map_file(shared, sizeof *raw->shared, true);
    raw->own = &raw->shared->receiver[set->number];
    if (set->sends) {
        raw->file_fd = open(set->file, O_RDONLY);
        if (raw->file_fd < 0 || fstat(raw->file_fd, &facts) != 0)
            rs_raw_die(set->file);
        raw->size = (uint64_t)facts.st_size;
        raw->object = map_file(raw->file_fd, raw->size, false);
    } else if (set->scratch) {
        raw->slots = SLOTS_BYTES / raw->payload;
        raw->object = calloc(raw->slots, raw->payload);
    } else {
        raw->file_fd = open(set->file, O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (raw->file_fd < 0 || ftruncate(raw->file_fd, (off_t)raw->size) != 0)
            rs_raw_die(set->file);
        raw->object = map_file(raw->file_fd, raw->size, true);
    }
    raw->packets = (raw->size + raw->payload - 1) / raw->payload;
}

static void know_interface(rs_raw *raw) {
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", raw->interface);
    if (fd < 0 || ioctl(fd, SIOCGIFMTU, &request) != 0)
        rs_raw_die(raw->interface);
    raw->mtu = (uint32_t)request.ifr_mtu;
    raw->payload = raw->mtu - 28 - (uint32_t)sizeof(rs_raw_header);
    raw->interface_index = if_nametoindex(raw->interface);
    close(fd);
}

static void usage(void) {
    fputs("usage: raw send|receive --method udp|udp-gso|packet|xdp --interface NIC --address IPV4 --shared FILE\n"
          "         --file FILE [--group IPV4] [--port N] [--window BYTES]\n"
          "         send: --receivers N    receive: --number N --size BYTES [--scratch] [--pause NS]\n",
          stderr);
    exit(2);
}

static void parse(int argc, char **argv, settings *set, rs_raw *raw) {
    enum { METHOD, INTERFACE, ADDRESS, SHARED, FILE_, GROUP, PORT, WINDOW, RECEIVERS, NUMBER, SIZE, SCRATCH, PAUSE };
    static const struct option options[] = {
        {"method", 1, 0, METHOD},       {"interface", 1, 0, INTERFACE},
        {"address", 1, 0, ADDRESS},     {"shared", 1, 0, SHARED},
        {"file", 1, 0, FILE_},          {"group", 1, 0, GROUP},
        {"port", 1, 0, PORT},           {"window", 1, 0, WINDOW},
        {"receivers", 1, 0, RECEIVERS}, {"number", 1, 0, NUMBER},
        {"size", 1, 0, SIZE},           {"scratch", 0, 0, SCRATCH},
        {"pause", 1, 0, PAUSE},         {.name = NULL},
    };
    int option;
    set->sends = argc > 1 && strcmp(argv[1], "send") == 0;
    if (argc < 2 || (!set->sends && strcmp(argv[1], "receive") != 0))
        usage();
    optind = 2;
    while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        switch (option) {
        case METHOD:
            set->method = optarg;
            break;
        case INTERFACE:
            raw->interface = optarg;
            break;
        case ADDRESS:
            raw->address = ntohl(inet_addr(optarg));
            break;
        case SHARED:
            set->shared = optarg;
            break;
        case FILE_:
            set->file = optarg;
            break;
        case GROUP:
            raw->group = ntohl(inet_addr(optarg));
            break;
        case PORT:
            raw->port = (uint16_t)strtoul(optarg, NULL, 10);
            break;
        case WINDOW:
            set->window = strtoull(optarg, NULL, 10);
            break;
        case RECEIVERS:
            raw->receivers = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case NUMBER:
            set->number = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case SIZE:
            raw->size = strtoull(optarg, NULL, 10);
            break;
        case PAUSE:
            set->pause_ns = strtoull(optarg, NULL, 10);
            break;
        case SCRATCH:
            set->scratch = true;
            break;
        default:
            usage();
        }
    }
    bool enough = set->method && raw->interface && raw->address && set->shared && (set->file || set->scratch) &&
                  (set->sends ? raw->receivers > 0 : raw->size > 0);
    if (!enough || raw->receivers > RS_RAW_RECEIVERS_MAX || set->number >= RS_RAW_RECEIVERS_MAX)
        usage();
}

int main(int argc, char **argv) {
    settings set = {.window = 8u << 20, .pause_ns = RECEIVER_PAUSE_NS};
    rs_raw raw = {.group = 0xEFC00101, .port = 7070, .file_fd = -1};
    parse(argc, argv, &set, &raw);
    prctl(PR_SET_TIMERSLACK, 1);
    know_interface(&raw);
    open_files(&raw, &set);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (strcmp(methods[i]->name, set.method) != 0)
            continue;
        if (set.sends)
            run_sender(&raw, methods[i], set.window);
        else
            run_receiver(&raw, methods[i], set.pause_ns);
        return 0;
    }
    usage();
}
