/* Back end `udp-gso`: sockets whose kernel cuts and joins datagrams (UDP_SEGMENT, Linux 4.18; UDP_GRO, Linux 5.0). */
#ifndef RS_IO_UDP_GSO_H
#define RS_IO_UDP_GSO_H

#include "io/io.h"

extern const rs_io_ops rs_io_udp_gso;

#endif
