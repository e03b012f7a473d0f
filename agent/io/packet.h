/* Back end `packet`: frames of our own by AF_PACKET, received in a ring the kernel shares with us (TPACKET_V3). Needs
 * CAP_NET_RAW. */
#ifndef RS_IO_PACKET_H
#define RS_IO_PACKET_H

#include "io/io.h"

extern const rs_io_ops rs_io_packet_ring;

/* Opens it as on a kernel whose rings tell how joined datagrams are to be cut, or not (packet_ring.h). */
rs_io *rs_packet_open(const rs_io_options *options, bool tells_joined, char *error);

#endif
