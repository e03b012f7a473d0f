/* The XDP program of back end `xdp`: datagrams to joined groups go to a socket, everything else to the kernel.
 *
 * It hangs on the interface by a BPF link, which the kernel takes off when its descriptor is closed, also by a crash:
 * no stale program stays behind. */
#ifndef RS_IO_XDP_PROGRAM_H
#define RS_IO_XDP_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int groups_fd, sockets_fd, program_fd, link_fd; /* -1 = none */
} rs_xdp_program;

/* Puts the program on an interface, in the driver (native mode), for the socket of queue 0. `fragments`: frames may be
 * longer than a page. False with the reason in `error` (RS_IO_ERROR_MAX); rs_xdp_program_detach either way. */
bool rs_xdp_program_attach(rs_xdp_program *program, const char *interface, unsigned interface_index, int socket_fd,
                           bool fragments, char *error);
void rs_xdp_program_detach(rs_xdp_program *program);

/* Datagrams to address:port (host byte order) go to the socket, or no longer. False: errno has the cause. */
bool rs_xdp_program_take(const rs_xdp_program *program, uint32_t address, uint16_t port);
void rs_xdp_program_pass(const rs_xdp_program *program, uint32_t address, uint16_t port);

#endif
