/* Datagrams to and from single peers, beside the data channel: one UDP socket, sent and received in batches. What the
 * socket does not take is lost, as datagrams may be.
 *
 * Joined, datagrams of one size to one peer leave in one message and come as one (UDP_SEGMENT, UDP_GRO): for all of the
 * kernel in between they are a single packet of up to 64 KB, which a virtual network may lose as one.
 *
 * Addresses and ports are in host byte order. */
#ifndef RS_IO_DATAGRAMS_H
#define RS_IO_DATAGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RS_DATAGRAM_HEADER_MAX 704 /* the longest head of a repair of group messages has 656, its seal 28 */
#define RS_DATAGRAM_MAX 65507
#define RS_DSCP_CONTROL 48 /* CS6, network control: above multicast's 46 (docs/operating.md, "Egress queues") */

typedef struct rs_datagrams rs_datagrams;

/* Whatever came: `bytes` hold until it returns. */
typedef void (*rs_datagram_taken)(void *context, uint32_t address, uint16_t port, const uint8_t *bytes, size_t length);
/* Some have been read, and are handed over next: all of them have come before now. NULL: nobody asks. */
typedef void (*rs_datagrams_read)(void *context);

/* On that address and port of this machine; `joined`: where the kernel can. NULL with the reason in `error` (of `size`
 * bytes). */
rs_datagrams *rs_datagrams_open(uint32_t address, uint16_t port, bool joined, char *error, size_t size);
void rs_datagrams_close(rs_datagrams *d);
int rs_datagrams_fd(const rs_datagrams *d); /* readable when datagrams are waiting */

/* Put into the next batch: the header is copied, the payload (which may be NULL) must not change until the flush.
 * Those to one peer keep their order. Without payload it is control (an acknowledgement, a report) and marked
 * RS_DSCP_CONTROL: switches have a class for that above multicast, whose losses it tells of. */
void rs_datagrams_send(rs_datagrams *d, uint32_t address, uint16_t port, const uint8_t *header, size_t header_length,
                       const uint8_t *payload, size_t payload_length);
/* Switches may mark the one put last instead of losing it (ECT(0), RFC 3168). */
void rs_datagrams_markable(rs_datagrams *d);
void rs_datagrams_flush(rs_datagrams *d);
/* Those that wait, until `limit` were taken or a few more: what came as one is taken whole. Returns how many. */
unsigned rs_datagrams_receive(rs_datagrams *d, unsigned limit, rs_datagram_taken taken, rs_datagrams_read read,
                              void *context);
bool rs_datagrams_marked(const rs_datagrams *d); /* the one that is being given was, by a switch */
/* ns that it had waited here when it was read, as far as the kernel tells; of joined ones the first. */
int64_t rs_datagrams_waited(const rs_datagrams *d);
uint64_t rs_datagrams_lost(const rs_datagrams *d); /* that the socket did not take */

#endif
