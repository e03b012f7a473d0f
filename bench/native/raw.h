/* The ceiling of a way of packet I/O: an object sent once, numbered packet by packet, without protocol or repairs.
 *
 * Nothing is lost for want of room: the sender reads, in memory shared with the receivers, how far each of them is, and
 * stays within a window. So it goes as fast as the slowest receiver takes, with feedback that costs nothing. */
#ifndef RS_BENCH_RAW_H
#define RS_BENCH_RAW_H

#include <stdbool.h>
#include <stdint.h>

#define RS_RAW_RECEIVERS_MAX 16
#define RS_RAW_BATCH 64u /* packets handled at once */

typedef struct {
    uint64_t sn;
    uint64_t unused;
} rs_raw_header;

/* What a receiver tells, on a cache line of its own. */
typedef struct {
    _Alignas(64) _Atomic uint64_t next; /* one more than the highest number seen */
    _Atomic uint64_t count;             /* packets placed */
} rs_raw_progress;

typedef struct {
    rs_raw_progress receiver[RS_RAW_RECEIVERS_MAX];
} rs_raw_shared;

typedef struct {
    const char *interface;
    uint32_t interface_index, address, group; /* addresses in host byte order */
    uint16_t port;
    uint32_t mtu;
    uint32_t payload; /* of each packet but the last */
    uint8_t *object;  /* mapped; scratch memory of `slots` payloads if slots > 0 */
    uint64_t size, packets, slots;
    uint64_t allocated; /* of the receiver's file */
    int file_fd;
    rs_raw_shared *shared;
    rs_raw_progress *own;
    unsigned receivers;
} rs_raw;

/* One way of packet I/O. Functions return only when all is well: what fails ends the program with the reason. */
typedef struct {
    const char *name;
    void *(*sender)(const rs_raw *raw);
    void (*send)(void *sender, const rs_raw *raw, uint64_t first, unsigned count);
    void *(*receiver)(rs_raw *raw);
    /* Takes what is there, at most about RS_RAW_BATCH packets; their number. */
    unsigned (*receive)(void *receiver, rs_raw *raw);
    int (*wait_fd)(void *receiver);
} rs_raw_method;

extern const rs_raw_method rs_raw_udp, rs_raw_udp_gso, rs_raw_packet, rs_raw_xdp;

/* Bytes of payload in packet `sn`. */
static inline uint32_t rs_raw_length(const rs_raw *raw, uint64_t sn) {
    uint64_t left = raw->size - sn * raw->payload;
    return left < raw->payload ? (uint32_t)left : raw->payload;
}

/* Where the payload of packet `sn` belongs. */
static inline uint8_t *rs_raw_place(const rs_raw *raw, uint64_t sn) {
    return raw->object + (raw->slots > 0 ? sn % raw->slots : sn) * raw->payload;
}

/* Makes the file's memory up to the end of packet `sn`, a step ahead. */
void rs_raw_room(rs_raw *raw, uint64_t sn);
/* Counts packet `sn`, which is in its place. */
void rs_raw_arrived(rs_raw *raw, uint64_t sn);
/* Ends the program: "what: cause of errno". */
_Noreturn void rs_raw_die(const char *what);
/* A UDP socket that is a member of the group, or sends to it. */
int rs_raw_socket(const rs_raw *raw, bool receives);

#endif
