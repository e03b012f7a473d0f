/* What the kernel has measured of a TCP connection. */
#include "daemon/round_trip.h"

#include <linux/tcp.h> /* <netinet/tcp.h> ends its tcp_info before tcpi_min_rtt */
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

#define MOST_US (60u * 1000 * 1000) /* what is not measured is UINT32_MAX there */

uint32_t rs_round_trip_us(int fd) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
        size < offsetof(struct tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt || info.tcpi_min_rtt > MOST_US)
        return 0;
    return info.tcpi_min_rtt;
}
