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

/* Frames of more than one slot, refused. */
uint64_t rs_netmap_in_pieces(const rs_io *io);

#endif
