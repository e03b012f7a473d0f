/* copies: one file to several hosts by as many TCP connections at once, each as fast as it goes.
 *
 *   copies receive --address 10.0.0.2 --port 7100 --file F --size N [--ready] [--check]
 *   copies send --congestion cubic [--pace 50e6] [--check] --file F 10.0.0.2:7100 10.0.0.3:7100
 *
 * The sender has a process for each receiver (sendfile from the page cache); a receiver answers with one byte when it
 * has the whole file. `send` ends when all have answered. With --ready its pages are there, and mapped, before. With
 * --check the sender takes the file's digest once, meanwhile, and says it at the end; a receiver takes it of what comes
 * as long as that is in the cache, and answers if they are alike. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/store/xxh3.h"

#define PIECE (1u << 20)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

typedef struct {
    const char *address, *port, *file, *congestion;
    uint64_t size;
    double pace; /* bit/s, of each copy; 0: as TCP finds */
    bool ready, check;
} settings;

/* Of the file to send: taken by the first process, which writes a byte to `taken` for each receiver then. */
typedef struct {
    uint8_t digest[RS_XXH3_BYTES];
    int taken[2];
} file_digest;

_Noreturn static void die(const char *what) {
    fprintf(stderr, "copies: %s: %s\n", what, strerror(errno));
    exit(1);
}

static struct sockaddr_in address_of(const char *host, const char *port) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_addr.s_addr = inet_addr(host),
                                .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
}

static void check(int peer, const rs_xxh3 *way, const void *stream) {
    uint8_t told[RS_XXH3_BYTES], found[RS_XXH3_BYTES];
    way->end(stream, found);
    if (recv(peer, told, sizeof told, MSG_WAITALL) != sizeof told)
        die("no digest");
    errno = EBADMSG;
    if (memcmp(told, found, sizeof told) != 0)
        die("the digest");
}

static void receive(const settings *set) {
    const struct sockaddr_in own = address_of(set->address, set->port);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(listener, (const struct sockaddr *)&own, sizeof own) != 0 || listen(listener, 1) != 0)
        die("cannot listen");
    int file = open(set->file, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || ftruncate(file, (off_t)set->size) != 0)
        die(set->file);
    uint8_t *map = mmap(NULL, set->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED)
        die("cannot map the file");
    if (set->ready && madvise(map, set->size, MADV_POPULATE_WRITE) != 0)
        die("no memory for the file");
    const rs_xxh3 *way = rs_xxh3_best();
    void *stream = way->create();
    if (!stream)
        die("no memory");
    way->begin(stream);
    puts("ready");
    fflush(stdout);
    int peer = accept(listener, NULL, NULL);
    for (uint64_t done = 0; done < set->size;) {
        uint64_t left = set->size - done;
        ssize_t got = recv(peer, map + done, left < PIECE ? left : PIECE, 0);
        if (got <= 0)
            die("the sender went away");
        if (set->check)
            way->add(stream, map + done, (size_t)got);
        done += (uint64_t)got;
    }
    if (set->check)
        check(peer, way, stream);
    way->release(stream);
    if (send(peer, "k", 1, 0) != 1)
        die("cannot answer");
    /* Not closed with data of ours still unread: wait for the sender's end. */
    char end;
    (void)recv(peer, &end, 1, 0);
}

static void send_one(const settings *set, const file_digest *of, char *target) {
    char *port = strchr(target, ':');
    if (!port)
        die("HOST:PORT is needed");
    *port++ = '\0';
    const struct sockaddr_in peer = address_of(target, port);
    int file = open(set->file, O_RDONLY), fd = socket(AF_INET, SOCK_STREAM, 0);
    struct stat facts;
    if (file < 0 || fstat(file, &facts) != 0)
        die(set->file);
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, set->congestion, (socklen_t)strlen(set->congestion)) != 0)
        die(set->congestion);
    uint64_t pace = (uint64_t)(set->pace / 8);
    if (pace && setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &pace, sizeof pace) != 0)
        die("the pace");
    if (connect(fd, (const struct sockaddr *)&peer, sizeof peer) != 0)
        die(target);
    for (off_t at = 0; at < facts.st_size;) {
        if (sendfile(fd, file, &at, (size_t)(facts.st_size - at)) < 0)
            die("sendfile");
    }
    char answer;
    if (set->check && (read(of->taken[0], &answer, 1) != 1 || send(fd, of->digest, sizeof of->digest, 0) < 0))
        die("the digest");
    if (recv(fd, &answer, 1, 0) != 1)
        die("no answer");
}

static void take_digest(const settings *set, file_digest *of, int receivers) {
    struct stat facts;
    int file = open(set->file, O_RDONLY);
    if (file < 0 || fstat(file, &facts) != 0)
        die(set->file);
    const uint8_t *map = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED)
        die("cannot map the file");
    rs_xxh3_best()->whole(map, (size_t)facts.st_size, of->digest);
    for (int i = 0; i < receivers; i++)
        if (write(of->taken[1], "d", 1) != 1)
            die("the digest");
}

static int send_all(const settings *set, char **targets, int count) {
    file_digest *of = mmap(NULL, sizeof *of, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (of == MAP_FAILED || pipe(of->taken) != 0)
        die("no memory");
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (child == 0) {
            close(of->taken[1]); /* so that it hears of it when there will be no digest */
            send_one(set, of, targets[i]);
            exit(0);
        }
    }
    if (set->check)
        take_digest(set, of, count);
    int failures = 0, status;
    while (wait(&status) > 0)
        failures += status != 0;
    return failures > 0;
}

static void usage(void) {
    fputs("usage: copies receive --address IPV4 --port N --file FILE --size BYTES [--ready] [--check]\n"
          "       copies send --congestion NAME [--pace BITS] [--check] --file FILE IPV4:PORT ...\n",
          stderr);
    exit(2);
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"address", 1, 0, 'a'}, {"port", 1, 0, 'p'},       {"file", 1, 0, 'f'},
                                            {"size", 1, 0, 's'},    {"congestion", 1, 0, 'c'}, {"pace", 1, 0, 'r'},
                                            {"ready", 0, 0, 'w'},   {"check", 0, 0, 'd'},      {.name = NULL}};
    settings set = {.port = "7100", .congestion = "cubic"};
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
        case 'p':
            set.port = optarg;
            break;
        case 'f':
            set.file = optarg;
            break;
        case 's':
            set.size = strtoull(optarg, NULL, 10);
            break;
        case 'c':
            set.congestion = optarg;
            break;
        case 'w':
            set.ready = true;
            break;
        case 'd':
            set.check = true;
            break;
        case 'r':
            set.pace = strtod(optarg, NULL);
            break;
        default:
            usage();
        }
    }
    if (!set.file || (sends ? optind == argc : !set.address || !set.size))
        usage();
    if (sends)
        return send_all(&set, argv + optind, argc - optind);
    receive(&set);
    return 0;
}
