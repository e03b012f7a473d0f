/* What the data NIC is. */
#ifndef RS_DAEMON_NIC_H
#define RS_DAEMON_NIC_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of an IP packet; 0 if there is no such interface. */
uint32_t rs_nic_mtu(const char *interface);
/* Bits/s as the driver says; 0 if it does not know. */
int64_t rs_nic_rate(const char *interface);
/* Payload bytes of a full packet: the largest multiple of 64, of 16 where a seal takes `sealed` bytes, that fits. */
uint32_t rs_fragment_size(uint32_t mtu, uint32_t sealed);

#endif
