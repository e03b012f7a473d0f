/* Datagrams or frames that leave a socket one a message: what went, what could not, and who is told. */
#ifndef RS_IO_MESSAGES_H
#define RS_IO_MESSAGES_H

#include <sys/socket.h>

#include "io/interface.h"

typedef struct {
    const rs_io_options *options;
    const rs_interface *interface;
    rs_io_stats *stats;
    int last_errno; /* the cause told last */
} rs_send_log;

/* A packet that cannot be sent is lost, as any on the data channel may be; each new cause is told. */
void rs_messages_failed(rs_send_log *log, int cause, const rs_io_packet *packet);
/* Sends message i for packet i: contract of rs_io_ops.send. */
int rs_messages_send(rs_send_log *log, int fd, struct mmsghdr *messages, const rs_io_packet *packets, unsigned count);

#endif
