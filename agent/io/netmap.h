/* Back end `netmap`, the paper's choice (section IV): the NIC's rings in our memory, the kernel's stack out of the way.
 *
 * It takes the whole NIC: what is not for a joined group is handed to the kernel by the host rings, and what the kernel
 * sends (control channel, ARP, IGMP) goes out between our frames. Both happen in rs_io_receive, so it has to be called
 * whenever rs_io_receive_fd is readable. docs/netmap.md says how to get the kernel module. */
#ifndef RS_IO_NETMAP_H
#define RS_IO_NETMAP_H

#include "io/io.h"

extern const rs_io_ops rs_io_netmap;

/* The device, so that tests can put one of their own in its place. Calls as of the C library. */
typedef struct {
    int (*open)(const char *path);
    int (*close)(int fd);
    int (*control)(int fd, unsigned long request, void *argument);
    void *(*map)(size_t bytes, int fd); /* NULL with errno */
    int (*unmap)(void *memory, size_t bytes);
} rs_netmap_device;

rs_io *rs_netmap_open(const rs_netmap_device *device, const rs_io_options *options, char *error);

/* What rs_io_stats has no room for. */
typedef struct {
    uint64_t to_kernel, from_kernel; /* frames handed on */
    uint64_t to_kernel_lost;         /* the host ring was full */
    uint64_t in_pieces;              /* frames of more than one slot, refused */
} rs_netmap_counts;

void rs_netmap_counts_get(const rs_io *io, rs_netmap_counts *out);

#endif
