/* Packet I/O of the data channel behind one small table of functions, so that a back end can be a socket, a packet
 * ring or an interceptor.
 *
 * Sending is gathered: header bytes and a payload that lies in a mapped object. Receiving is scattered: before a batch
 * is read the sink says where the next payloads most likely belong, a socket back end lets the kernel write them there,
 * and what was predicted wrongly is moved. Rings copy each payload once, from the ring to the place the sink names.
 * Nothing here knows the protocol: addresses, bytes, places.
 *
 * Addresses and ports are in host byte order. Errors are words a person can act on, written to `error`. No call
 * blocks. */
#ifndef RS_IO_IO_H
#define RS_IO_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RS_IO_HEADER_BYTES 32 /* data header in front of every payload (docs/protocol.md) */
#define RS_IO_BATCH 126       /* most datagrams of one send or receive call: 18 times the 7 jumbo frames of a message */
#define RS_IO_SOON_MOST 4u
#define RS_IO_ERROR_MAX 256
#define RS_IO_PAYLOAD_MAX 65507

typedef struct rs_io rs_io;
typedef uint32_t rs_io_group; /* the caller's number for a joined group, at most RS_IO_GROUPS_MAX at a time */
#define RS_IO_GROUPS_MAX 1024

typedef enum { RS_IO_LOG_INFO, RS_IO_LOG_WARNING } rs_io_log_level;
typedef void (*rs_io_log)(void *context, rs_io_log_level level, const char *text);

/* Zero in any field means its default, given in brackets. */
typedef struct {
    const char *interface; /* data NIC, required */
    uint32_t address;      /* source address, required */
    uint32_t mtu;          /* bytes of an IP packet [the interface's] */
    int receive_buffer;    /* bytes per joined group [16 MiB]; less with a warning when the kernel allows no more */
    int send_buffer;       /* bytes [4 MiB] */
    int ttl;               /* of multicast [8] */
    bool loopback;         /* this host's own datagrams come back to groups joined here [no] */
    rs_io_log log;         /* may be NULL */
    void *log_context;
} rs_io_options;

/* One datagram to send: header, then payload. Both stay the caller's and must not change until the call returns. */
typedef struct {
    uint32_t address; /* group or host */
    uint16_t port;
    uint16_t header_length;
    uint32_t payload_length;
    const uint8_t *header;
    const uint8_t *payload;
    bool markable; /* switches may mark it instead of losing it (ECT(0), RFC 3168); back ends on sockets say so */
} rs_io_packet;

/* Where received datagrams go. */
typedef struct {
    /* Room for the payload of the `ahead`-th next datagram of `group` (ahead < RS_IO_BATCH), false if there is none.
     * It must hold nothing that matters: another datagram's bytes may be written there, *length of them at most. */
    bool (*predict)(void *context, rs_io_group group, uint32_t ahead, uint8_t **place, uint32_t *length);
    /* A datagram came: once for each, in order of arrival. Its first `header_length` bytes (at most RS_IO_HEADER_BYTES)
     * are at `header`; `payload_length` bytes follow it. Returns where the payload belongs (room for all of it, shared
     * with no other datagram of the same receive call), or NULL to drop it. The payload is there when the receive call
     * returns, not before.
     * Without `predict` (NULL), a back end on UDP sockets has the whole datagram at `header`, in one piece. */
    uint8_t *(*deliver)(void *context, rs_io_group group, const uint8_t *header, size_t header_length,
                        uint32_t payload_length);
    /* Without `predict`: of what it has read a back end on UDP sockets shows each datagram earlier, too, when it is the
     * `ahead`-th one from now: from `soon_most` (at most RS_IO_SOON_MOST) on, where there are as many, down to 1. NULL:
     * it does not. */
    void (*soon)(void *context, uint32_t ahead, const uint8_t *bytes, size_t length);
    uint32_t soon_most;
    void *context;
} rs_io_sink;

/* Counters since the interface was opened. */
typedef struct {
    uint64_t packets_sent, bytes_sent, send_errors;
    uint64_t packets_received, bytes_received;
    uint64_t predicted;   /* payloads the kernel wrote to their final place */
    uint64_t moved;       /* payloads that had to be copied there */
    uint64_t dropped;     /* by the buffers of sockets, of all groups; rings count by group alone: rs_io_drops */
    uint64_t intercepted; /* thrown away on purpose by a lossy interceptor */
    /* Frames of the host's other traffic, of a back end that has the whole NIC (netmap); else 0. */
    uint64_t to_kernel, from_kernel; /* handed on */
    uint64_t to_kernel_lost;         /* the kernel's queue was full */
} rs_io_stats;

/* A back end. The public functions below check arguments and call these. */
typedef struct {
    const char *name;
    const char *summary; /* one line for --help */
    rs_io *(*open)(const rs_io_options *options, char *error);
    void (*close)(rs_io *io);
    int (*send)(rs_io *io, const rs_io_packet *packets, unsigned count);
    bool (*join)(rs_io *io, rs_io_group group, uint32_t address, uint16_t port, char *error);
    void (*leave)(rs_io *io, rs_io_group group);
    int (*receive)(rs_io *io, unsigned limit, const rs_io_sink *sink);
    int (*receive_fd)(const rs_io *io);
    int (*send_fd)(const rs_io *io);
    void (*wake)(rs_io *io, bool by_arrivals); /* NULL: arrivals cost the same either way */
    uint64_t (*drops)(const rs_io *io, rs_io_group group);
    uint64_t (*receive_room)(const rs_io *io, rs_io_group group);
    int64_t (*waited)(const rs_io *io, rs_io_group group); /* may be NULL */
    uint32_t (*source)(const rs_io *io);                   /* may be NULL */
    bool (*marked)(const rs_io *io);                       /* may be NULL */
    bool (*late)(const rs_io *io);                         /* may be NULL */
    void (*stats)(const rs_io *io, rs_io_stats *out);
} rs_io_ops;

/* First member of every back end's own structure. */
struct rs_io {
    const rs_io_ops *ops;
};

/* Opens an interface with the back end called `backend`, or the best one for this machine when it is "auto" (the choice
 * and its reason are logged). Where that back end cannot work, a warning says why and `udp` is opened instead: see
 * rs_io_name. `error` has room for RS_IO_ERROR_MAX bytes. NULL with the reason in `error`: unknown back end, no such
 * interface, not its address, no memory. */
rs_io *rs_io_open(const char *backend, const rs_io_options *options, char *error);
void rs_io_close(rs_io *io);

/* Number of datagrams taken, from the first on. Fewer than `count`: send the rest when send_fd is writable, the NIC's
 * queue is full. A datagram the kernel refuses for good (interface down, too large) counts as taken and as a send
 * error: the data channel may lose. RS_IO_UNREADABLE: nothing was taken, because the memory of the first payload cannot
 * be read (the mapped file was shortened); sending it again is of no use. */
#define RS_IO_UNREADABLE (-1)
int rs_io_send(rs_io *io, const rs_io_packet *packets, unsigned count);

/* Receive what is sent to address:port on the interface; this machine's own address instead of a group's needs no
 * membership. False with the reason in `error`: too many groups, the number is in use, or the kernel refuses. */
bool rs_io_join(rs_io *io, rs_io_group group, uint32_t address, uint16_t port, char *error);
void rs_io_leave(rs_io *io, rs_io_group group);

/* Reads datagrams that have come, at most `limit`, from all groups in turn. Returns how many; 0 = none are waiting. The
 * sink must not call back into this io. What the kernel joined is read together: so few of the limit may be left, and
 * more wait all the same. */
#define RS_IO_TOGETHER 128u
int rs_io_receive(rs_io *io, unsigned limit, const rs_io_sink *sink);

int rs_io_receive_fd(const rs_io *io); /* readable when datagrams are waiting */
int rs_io_send_fd(const rs_io *io);    /* writable when the queue has room */

/* Whether arrivals need make receive_fd readable (at first they do). Who looks by the clock while datagrams come
 * densely says no: then the kernel does not go through the list of waiters for each datagram, which a virtual network
 * does in the sender's time. What waits when arrivals count again makes it readable at once. */
void rs_io_wake(rs_io *io, bool by_arrivals);

/* Datagrams of a group that this host's buffers dropped since it was joined. */
uint64_t rs_io_drops(const rs_io *io, rs_io_group group);
/* Bytes of datagrams of about the MTU that may wait there before any is dropped: what the system granted, not what was
 * asked for, less what it needs to keep them. Groups may share it (rings). 0: no such group. */
uint64_t rs_io_receive_room(const rs_io *io, rs_io_group group);
/* How long (ns) the newest datagram received of a group had waited in this host before it was read; 0: not known. */
int64_t rs_io_waited(const rs_io *io, rs_io_group group);
/* While the sink is given a datagram: the address it was sent from, in host order; 0: not known (rings do not say). */
uint32_t rs_io_source(const rs_io *io);
/* And whether a switch marked it on its way, because its queue was long (ECN); false: rings do not say. */
bool rs_io_marked(const rs_io *io);
/* And whether it may be a copy of one that came before, sent once more by whoever heard that (rs_seal_shared). */
bool rs_io_late(const rs_io *io);
void rs_io_stats_get(const rs_io *io, rs_io_stats *out);
const char *rs_io_name(const rs_io *io);

/* The back ends known, ended by NULL. */
extern const rs_io_ops *const rs_io_backends[];

/* Interceptor that loses received datagrams before the sink sees them: of each group the same ones for the same spec
 * and seed. It owns `inner` from then on, also when it fails. NULL with the reason in `error` for a wrong spec. Specs:
 *   uniform:P     each datagram with probability P
 *   burst:P:N     runs of N datagrams, P of all in the mean
 *   gilbert:P:N   two-state Markov chain: P of all in the mean, N the mean run
 *   first:N       the first N datagrams of each group
 *   pattern:P     the first copies of fragments that a seed picks, P of all (base/loss_pattern.h: as in the simulator)
 *   pattern:P:N   these in runs of N
 *   corrupt:P     none is lost: with probability P one bit of a datagram is another, or it comes twice, or late
 * each with ":seed=S" at its end if wanted, which is mixed with `seed`. */
rs_io *rs_io_lossy(rs_io *inner, const char *spec, uint64_t seed, char *error);
/* Checks a spec alone. */
bool rs_io_lossy_check(const char *spec, char *error);

#endif
