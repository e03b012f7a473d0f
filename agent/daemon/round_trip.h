/* Round trips of TCP connections, as the kernel measures them. */
#ifndef RS_DAEMON_ROUND_TRIP_H
#define RS_DAEMON_ROUND_TRIP_H

#include <stdint.h>

/* The least of the last minutes (TCP_INFO, tcpi_min_rtt), in microseconds; 0: none was measured. */
uint32_t rs_round_trip_us(int fd);

#endif
