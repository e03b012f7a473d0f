/* The network interface a back end sends and receives on. */
#ifndef RS_IO_INTERFACE_H
#define RS_IO_INTERFACE_H

#include <net/if.h>

#include "io/io.h"

typedef struct {
    char name[IF_NAMESIZE];
    unsigned index;
    uint32_t mtu; /* bytes of an IP packet, as wanted by the options or the interface's own */
    uint8_t mac[6];
} rs_interface;

/* Looks up options->interface. False with the reason in `error`: there is no such interface, or its MTU is smaller than
 * the one wanted. */
bool rs_interface_find(const rs_io_options *options, rs_interface *out, char *error);

/* A socket's send or receive buffer. SO_SNDBUF or SO_RCVBUF is bounded by the kernel's limits, its FORCE sister is not
 * but needs CAP_NET_ADMIN: it is tried first. Returns the bytes there are, which may be fewer than wanted. */
int rs_socket_buffer(int fd, int force_option, int option, int wanted);

/* Says that a buffer is smaller than wanted and what helps. */
void rs_warn_buffer(const rs_io_options *options, int option, int got, int wanted);

void rs_io_warn(const rs_io_options *options, const char *text);

#endif
