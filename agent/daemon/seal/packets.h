/* Packet I/O that seals what is sent and opens what comes: around any back end, before anybody has looked at a packet.
 *
 * A packet is encrypted on its way from the object to the buffer that the back end sends from, and decrypted on its way
 * to where it most likely belongs (rs_io_sink.predict): nothing is copied for it but what was predicted wrongly. */
#ifndef RS_DAEMON_SEAL_PACKETS_H
#define RS_DAEMON_SEAL_PACKETS_H

#include "daemon/seal/seal.h"
#include "io/io.h"

/* Of each datagram the first `clear` bytes stay readable (0 or RS_IO_HEADER_BYTES: the header of the data channel, in
 * which SEALED says so). `seal` must outlive it; `inner` is owned from then on, also when this fails. `whole`: `inner`
 * has a datagram in one piece where nothing is predicted, as back ends on sockets do. NULL: memory is short. */
rs_io *rs_seal_io(rs_io *inner, rs_seal *seal, size_t clear, bool whole);

#endif
