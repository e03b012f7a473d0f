/* Back end `udp`: ordinary sockets, batched. Works everywhere, needs no privilege but for large buffers. */
#ifndef RS_IO_UDP_H
#define RS_IO_UDP_H

#include "io/io.h"

extern const rs_io_ops rs_io_udp;

#endif
