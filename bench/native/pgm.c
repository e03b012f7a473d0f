/* pgm: one file to several hosts by PGM (RFC 3208) over UDP, with OpenPGM.
 *
 *   pgm receive --address 10.0.0.2 --sender 10.0.0.1 --file F --size N
 *   pgm send --address 10.0.0.1 --rate 600e6 --mtu 1500 --receivers 3 --file F
 *
 * Without --rate PGM's own congestion control finds one (PGMCC; receivers are told --paced if there is a rate).
 * Each message is its offset in the file and a piece of it. PGM itself does not tell a sender what arrived: a receiver
 * that has all opens a TCP connection to the sender, which ends when all have. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <pgm/pgm.h>

#define GROUP "239.192.3.1"
#define UDP_PORT 3055
#define DATA_PORT 7500
#define DONE_PORT 7501
#define WINDOW 60000 /* packets */
#define HEADERS 80   /* IP, UDP and PGM's, as much as they can be */
#define SERVE_EVERY 16
#define RATE_MOST 1e9

typedef struct {
    const char *address, *sender, *file;
    uint64_t size;
    double rate;
    int mtu;
    unsigned receivers;
    bool paced;
} settings;

_Noreturn static void die(const char *what) {
    fprintf(stderr, "pgm: %s: %s\n", what, strerror(errno));
    exit(1);
}

_Noreturn static void die_of(const char *what, const pgm_error_t *error) {
    fprintf(stderr, "pgm: %s: %s\n", what, error && error->message ? error->message : "unknown cause");
    exit(1);
}

/* ------------------------------------------------------------------------------------------------------- the socket */

static void set_int(pgm_sock_t *sock, int option, int value) {
    if (!pgm_setsockopt(sock, IPPROTO_PGM, option, &value, sizeof value)) {
        fprintf(stderr, "pgm: option %d cannot be %d\n", option, value);
        exit(1);
    }
}

/* Draft pgmcc, as far as OpenPGM has it. */
static void set_congestion_control(pgm_sock_t *sock) {
    const struct pgm_pgmccinfo_t info = {.ack_bo_ivl = 50000, .ack_c = 75, .ack_c_p = 500};
    if (!pgm_setsockopt(sock, IPPROTO_PGM, PGM_USE_PGMCC, &info, sizeof info))
        die("congestion control");
}

static void set_sender(pgm_sock_t *sock, const settings *set) {
    static const int heartbeats_us[] = {20000, 20000, 20000, 20000, 100000, 500000, 1000000};
    int bytes_per_s = (int)((set->paced ? set->rate : RATE_MOST) / 8);
    set_int(sock, PGM_SEND_ONLY, 1);
    set_int(sock, PGM_TXW_SQNS, WINDOW);
    set_int(sock, PGM_TXW_MAX_RTE, bytes_per_s);
    set_int(sock, PGM_AMBIENT_SPM, 1000000);
    if (!pgm_setsockopt(sock, IPPROTO_PGM, PGM_HEARTBEAT_SPM, heartbeats_us, sizeof heartbeats_us))
        die("heartbeats");
}

static void set_receiver(pgm_sock_t *sock) {
    set_int(sock, PGM_RECV_ONLY, 1);
    set_int(sock, PGM_PASSIVE, 0);
    set_int(sock, PGM_RXW_SQNS, WINDOW);
    set_int(sock, PGM_PEER_EXPIRY, 30000000);
    set_int(sock, PGM_SPMR_EXPIRY, 250000);
    set_int(sock, PGM_NAK_BO_IVL, 5000);
    set_int(sock, PGM_NAK_RPT_IVL, 200000);
    set_int(sock, PGM_NAK_RDATA_IVL, 200000);
    set_int(sock, PGM_NAK_DATA_RETRIES, 50);
    set_int(sock, PGM_NAK_NCF_RETRIES, 50);
}

static pgm_sock_t *open_socket(const settings *set, bool sends) {
    pgm_error_t *error = NULL;
    struct pgm_addrinfo_t *where = NULL;
    pgm_sock_t *sock = NULL;
    char network[64];
    int buffer = 64 << 20;
    if (!pgm_init(&error))
        die_of("pgm_init", error);
    snprintf(network, sizeof network, "%s;%s", set->address, GROUP);
    if (!pgm_getaddrinfo(network, NULL, &where, &error) ||
        !pgm_socket(&sock, AF_INET, SOCK_SEQPACKET, IPPROTO_UDP, &error))
        die_of("no socket", error);
    set_int(sock, PGM_UDP_ENCAP_UCAST_PORT, UDP_PORT);
    set_int(sock, PGM_UDP_ENCAP_MCAST_PORT, UDP_PORT);
    set_int(sock, PGM_MTU, set->mtu);
    if (!set->paced)
        set_congestion_control(sock);
    if (sends)
        set_sender(sock, set);
    else
        set_receiver(sock);
    (void)pgm_setsockopt(sock, SOL_SOCKET, sends ? SO_SNDBUF : SO_RCVBUF, &buffer, sizeof buffer);
    struct pgm_sockaddr_t own = {.sa_port = DATA_PORT, .sa_addr.sport = DATA_PORT + 1};
    pgm_gsi_create_from_string(&own.sa_addr.gsi, set->address, -1);
    struct pgm_interface_req_t interface = {.ir_interface = where->ai_recv_addrs[0].gsr_interface};
    memcpy(&interface.ir_address, &where->ai_send_addrs[0].gsr_addr, sizeof interface.ir_address);
    if (!pgm_bind3(sock, &own, sizeof own, &interface, sizeof interface, &interface, sizeof interface, &error))
        die_of("cannot bind", error);
    for (unsigned i = 0; i < where->ai_recv_addrs_len; i++)
        if (!pgm_setsockopt(sock, IPPROTO_PGM, PGM_JOIN_GROUP, &where->ai_recv_addrs[i], sizeof(struct group_req)))
            die("cannot join the group");
    if (!pgm_setsockopt(sock, IPPROTO_PGM, PGM_SEND_GROUP, &where->ai_send_addrs[0], sizeof(struct group_req)))
        die("cannot send to the group");
    pgm_freeaddrinfo(where);
    set_int(sock, PGM_MULTICAST_LOOP, 0);
    set_int(sock, PGM_MULTICAST_HOPS, 1);
    set_int(sock, PGM_NOBLOCK, 1);
    if (!pgm_connect(sock, &error))
        die_of("cannot connect", error);
    return sock;
}

static void wait_for(pgm_sock_t *sock, bool sends) {
    struct pollfd fds[PGM_BUS_SOCKET_READ_COUNT + PGM_SEND_SOCKET_WRITE_COUNT];
    int count = sizeof fds / sizeof *fds;
    if (pgm_poll_info(sock, fds, &count, sends ? POLLIN | POLLOUT : POLLIN) > 0)
        poll(fds, (nfds_t)count, 1);
}

/* ---------------------------------------------------------------------------------------------------- the two sides */

static struct sockaddr_in done_at(const char *address) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(DONE_PORT), .sin_addr.s_addr = inet_addr(address)};
}

/* Lets the sender answer requests for repairs. */
static void serve(pgm_sock_t *sock) {
    char none[1];
    size_t bytes = 0;
    pgm_error_t *error = NULL;
    (void)!pgm_recv(sock, none, sizeof none, 0, &bytes, &error);
    if (error)
        pgm_error_free(error);
}

static void send_all(pgm_sock_t *sock, const settings *set, const uint8_t *object, uint64_t size) {
    uint64_t piece = (uint64_t)(set->mtu - HEADERS) - sizeof(uint64_t), sent = 0;
    uint8_t *message = malloc((size_t)set->mtu);
    if (!message)
        die("no memory");
    for (uint64_t at = 0; at < size;) {
        size_t length = size - at < piece ? (size_t)(size - at) : (size_t)piece, written = 0;
        memcpy(message, &at, sizeof at);
        memcpy(message + sizeof at, object + at, length);
        int status = pgm_send(sock, message, sizeof at + length, &written);
        if (status == PGM_IO_STATUS_NORMAL) {
            at += length;
            if (++sent % SERVE_EVERY == 0)
                serve(sock);
        } else if (status == PGM_IO_STATUS_ERROR || status == PGM_IO_STATUS_RESET) {
            die("pgm_send");
        } else {
            serve(sock);
        }
    }
    free(message);
}

static int run_sender(const settings *set) {
    struct stat facts;
    int file = open(set->file, O_RDONLY), listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    if (file < 0 || fstat(file, &facts) != 0)
        die(set->file);
    uint8_t *object = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_SHARED, file, 0);
    const struct sockaddr_in own = done_at(set->address);
    if (object == MAP_FAILED || listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(listener, (const struct sockaddr *)&own, sizeof own) != 0 || listen(listener, 16) != 0)
        die("cannot listen");
    pgm_sock_t *sock = open_socket(set, true);
    send_all(sock, set, object, (uint64_t)facts.st_size);
    for (unsigned done = 0; done < set->receivers;) {
        serve(sock);
        if (accept(listener, NULL, NULL) >= 0)
            done++;
        else
            wait_for(sock, false);
    }
    return 0;
}

static int run_receiver(const settings *set) {
    int file = open(set->file, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || ftruncate(file, (off_t)set->size) != 0)
        die(set->file);
    uint8_t *object = mmap(NULL, set->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), message[65536];
    if (object == MAP_FAILED)
        die("cannot map the file");
    pgm_sock_t *sock = open_socket(set, false);
    puts("ready");
    fflush(stdout);
    for (uint64_t got = 0, at; got < set->size;) {
        size_t bytes = 0;
        pgm_error_t *error = NULL;
        int status = pgm_recv(sock, message, sizeof message, 0, &bytes, &error);
        if (status == PGM_IO_STATUS_ERROR || status == PGM_IO_STATUS_RESET)
            die_of("packets are lost for good", error);
        if (status != PGM_IO_STATUS_NORMAL || bytes <= sizeof at) {
            wait_for(sock, false);
            continue;
        }
        memcpy(&at, message, sizeof at);
        if (at > set->size || bytes - sizeof at > set->size - at)
            die("a message that is none of ours");
        memcpy(object + at, message + sizeof at, bytes - sizeof at);
        got += bytes - sizeof at;
    }
    const struct sockaddr_in sender = done_at(set->sender);
    int done = socket(AF_INET, SOCK_STREAM, 0);
    if (done < 0 || connect(done, (const struct sockaddr *)&sender, sizeof sender) != 0)
        die("cannot tell the sender");
    for (;;) /* others may still need what this one asks for: the bench ends it */
        pause();
}

static void usage(void) {
    fputs("usage: pgm receive --address IPV4 --sender IPV4 --mtu BYTES --file FILE --size BYTES [--paced]\n"
          "       pgm send --address IPV4 [--rate BITS] --mtu BYTES --receivers N --file FILE\n",
          stderr);
    exit(2);
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"address", 1, 0, 'a'},   {"sender", 1, 0, 'o'}, {"file", 1, 0, 'f'},
                                            {"size", 1, 0, 's'},      {"rate", 1, 0, 'r'},   {"mtu", 1, 0, 'm'},
                                            {"receivers", 1, 0, 'n'}, {"paced", 0, 0, 'p'},  {.name = NULL}};
    settings set = {.mtu = 1500};
    if (argc < 2)
        usage();
    bool sends = strcmp(argv[1], "send") == 0;
    if (!sends && strcmp(argv[1], "receive") != 0)
        usage();
    optind = 2;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) >= 0;) {
        switch (option) {
        case 'a':
            set.address = optarg;
            break;
        case 'o':
            set.sender = optarg;
            break;
        case 'f':
            set.file = optarg;
            break;
        case 's':
            set.size = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            set.rate = strtod(optarg, NULL);
            set.paced = true;
            break;
        case 'p':
            set.paced = true;
            break;
        case 'm':
            set.mtu = (int)strtol(optarg, NULL, 10);
            break;
        case 'n':
            set.receivers = (unsigned)strtoul(optarg, NULL, 10);
            break;
        default:
            usage();
        }
    }
    if (!set.address || !set.file || (sends ? set.receivers == 0 : !set.sender || set.size == 0))
        usage();
    return sends ? run_sender(&set) : run_receiver(&set);
}
