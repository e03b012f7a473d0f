/* What the back ends on ordinary UDP sockets share: one socket that sends, one for each joined group. */
#ifndef RS_IO_SOCKETS_H
#define RS_IO_SOCKETS_H

#include "io/frame.h"
#include "io/messages.h"

typedef struct {
    int fd; /* -1 = free */
    rs_io_group number;
    uint64_t drops;
    bool lively, muted;     /* something came since rs_sockets_wake; not watched until it is called again */
    unsigned last_batch;    /* messages of the last read: how many places are worth predicting next time */
    unsigned last_segments; /* datagrams the kernel puts together in a message, of late */
} rs_socket_group;

/* First member of a back end's own structure. */
typedef struct {
    rs_io base;
    rs_io_options options; /* defaults filled in */
    rs_interface interface;
    int send_fd, epoll_fd;
    bool (*tune)(int fd); /* more options for a group's socket, may be NULL; false leaves the cause in errno */
    rs_socket_group *groups;
    unsigned group_count, group_room; /* slots in use are anywhere in [0, group_room) */
    unsigned muted_count;
    unsigned next_slot; /* whose turn it is to be read first */
    rs_io_stats stats;
    rs_send_log log;
    bool buffer_warned;
    uint32_t source; /* of the datagram that is being delivered */
    bool marked;     /* it was, by a switch */
} rs_sockets;

/* A back end's own structure of `size` bytes, whose first member this is; the rest is zero. NULL with the reason. */
rs_sockets *rs_sockets_new(size_t size, const rs_io_ops *ops, char *error);
/* Memory for packets, touched as far as it is needed. NULL with the reason. */
uint8_t *rs_sockets_buffers(size_t bytes, char *error);
/* False with the reason in `error`; rs_sockets_close either way. */
bool rs_sockets_open(rs_sockets *io, const rs_io_options *options, char *error);
/* The same for a back end below the kernel's IP, which brings a host none of its own datagrams: what its frames have in
 * common. The port is that of a socket, so that nobody else has it. */
bool rs_sockets_open_frames(rs_sockets *io, const rs_io_options *options, rs_frame_sender *out, char *error);
/* Closes everything but does not free `io`. */
void rs_sockets_close(rs_sockets *io);

/* One datagram a message: contract of rs_io_ops.send. */
int rs_sockets_send(rs_io *io, const rs_io_packet *packets, unsigned count);

bool rs_sockets_join(rs_io *io, rs_io_group number, uint32_t address, uint16_t port, char *error);
void rs_sockets_leave(rs_io *io, rs_io_group number);
/* Reads a group once; what it delivers is added to `total`, at most `limit`. False when the socket had no more. */
typedef bool (*rs_sockets_read)(rs_sockets *io, rs_socket_group *group, unsigned limit, const rs_io_sink *sink,
                                unsigned *total);
/* Reads groups by turns until none has more or *total is `limit`. Of many only those that the kernel says are ready. */
void rs_sockets_receive(rs_sockets *io, unsigned limit, const rs_io_sink *sink, rs_sockets_read read, unsigned *total);
/* A switch marked the message (ECN's "congestion experienced"): by what the kernel says of it, if it was asked by
 * IP_RECVTOS. */
bool rs_sockets_was_marked(struct msghdr *message);
#define RS_ECN_MASK 3
#define RS_ECN_ABLE 2 /* ECT(0) */
/* Reads the kernel's count of drops that came with a message. */
void rs_sockets_note_drops(rs_sockets *io, rs_socket_group *group, struct msghdr *message);

void rs_sockets_wake(rs_io *io, bool by_arrivals);
int rs_sockets_receive_fd(const rs_io *io);
int rs_sockets_send_fd(const rs_io *io);
uint64_t rs_sockets_drops(const rs_io *io, rs_io_group number);
uint64_t rs_sockets_receive_room(const rs_io *io, rs_io_group number);
int64_t rs_sockets_waited(const rs_io *io, rs_io_group number);
uint32_t rs_sockets_source(const rs_io *io);
bool rs_sockets_marked(const rs_io *io);
void rs_sockets_stats(const rs_io *io, rs_io_stats *out);

#endif
