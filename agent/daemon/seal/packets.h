/* Packet I/O that seals what is sent and opens what comes: around any back end, before anybody has looked at a packet.
 *
 * A packet is encrypted on its way from the object to the buffer that the back end sends from, and decrypted on its way
 * to where it most likely belongs (rs_io_sink.predict): nothing is copied for it but what was predicted wrongly. */
#ifndef RS_DAEMON_SEAL_PACKETS_H
#define RS_DAEMON_SEAL_PACKETS_H

#include "daemon/seal/keyring.h"
#include "io/io.h"

typedef enum {
    RS_SEAL_DATA,    /* the data channel: its header stays readable, SEALED says so; keys by the nonce in it */
    RS_SEAL_MESSAGES /* messages of groups: 4 bytes in front say of which (rs_messages_scope) */
} rs_seal_traffic;

/* The number that a datagram of group messages shows: of a group, or of a region with RS_SHOWN_REGION. */
#define RS_SHOWN_REGION (UINT32_C(1) << 31)

/* `ring` must outlive it; `inner` is owned from then on, also when this fails. `whole`: `inner` has a datagram in one
 * piece where nothing is predicted, as back ends on sockets do. NULL: out of memory. */
rs_io *rs_seal_io(rs_io *inner, rs_keyring *ring, rs_seal_traffic traffic, bool whole);

#endif
