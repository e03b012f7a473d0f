/* Back end `xdp`: AF_XDP. Frames of joined groups come from the driver into memory shared with the kernel, frames to
 * groups go out of such memory; both pass the kernel's stack and its queueing discipline by. Everything else on the
 * interface (control channel, ARP, ...) stays with the kernel. Needs Linux 6.6 for frames longer than a page, a driver
 * with native XDP (veth has it), one receive queue, CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF. */
#ifndef RS_IO_XDP_H
#define RS_IO_XDP_H

#include "io/io.h"

extern const rs_io_ops rs_io_xdp;

#endif
