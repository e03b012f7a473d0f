/* The loop around sendmmsg. */
#include "io/messages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void rs_messages_failed(rs_send_log *log, int cause, const rs_io_packet *packet) {
    log->stats->send_errors++;
    if (cause == log->last_errno)
        return;
    log->last_errno = cause;
    char text[160];
    snprintf(text, sizeof text, "a datagram of %u bytes could not be sent on %s: %s",
             packet->header_length + packet->payload_length, log->interface->name, strerror(cause));
    rs_io_warn(log->options, text);
}

int rs_messages_send(rs_send_log *log, int fd, struct mmsghdr *messages, const rs_io_packet *packets, unsigned count) {
    unsigned taken = 0;
    while (taken < count) {
        int sent = sendmmsg(fd, messages + taken, count - taken, 0);
        if (sent > 0) {
            for (int i = 0; i < sent; i++, taken++)
                log->stats->bytes_sent += packets[taken].header_length + packets[taken].payload_length;
            log->stats->packets_sent += (uint64_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno == EFAULT) {
            return taken > 0 ? (int)taken : RS_IO_UNREADABLE;
        } else if (errno != EINTR) {
            rs_messages_failed(log, errno, &packets[taken]);
            taken++;
        }
    }
    return (int)taken;
}
