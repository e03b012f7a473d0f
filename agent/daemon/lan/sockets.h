/* Sockets of the LAN's messages and tests; addresses are IPv4, host order. Both return -1 with errno. */
#ifndef RS_DAEMON_LAN_SOCKETS_H
#define RS_DAEMON_LAN_SOCKETS_H

#include <stdint.h>

#include "daemon/lan/wire.h"

/* For what comes to group:port, which may be a broadcast address, by the interface of that address. */
int rs_lan_receiver_open(uint32_t address, uint32_t group, uint16_t port);
/* For what comes to the address itself, and for all that is sent; port 0: any. */
int rs_lan_speaker_open(uint32_t address, uint16_t port);
/* Of the network that the interface has this address in; 0 = it has none. */
uint32_t rs_lan_broadcast_address(const char *interface, uint32_t address);
/* This host's, as it may stand in a message. */
void rs_lan_host_name(char out[RS_LAN_NAME + 1]);

#endif
