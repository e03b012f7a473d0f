/* Sockets of the LAN's messages and tests. */
#include "daemon/lan/sockets.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int rs_lan_receiver_open(uint32_t address, uint32_t group, uint16_t port) {
    const int on = 1, off = 0;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(group)}};
    struct ip_mreqn membership = {.imr_multiaddr = {htonl(group)}, .imr_address = {htonl(address)}};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof off) == 0 &&
        bind(fd, (struct sockaddr *)&here, sizeof here) == 0 &&
        (!IN_MULTICAST(group) || setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) == 0))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

int rs_lan_speaker_open(uint32_t address, uint16_t port) {
    const int probing = IP_PMTUDISC_PROBE, ttl = 8, off = 0, on = 1;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(address)}};
    struct ip_mreqn by = {.imr_address = {htonl(address)}};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on) == 0 &&
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by) == 0 &&
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &ttl, sizeof ttl) == 0 &&
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof off) == 0 &&
        setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probing, sizeof probing) == 0 &&
        bind(fd, (struct sockaddr *)&here, sizeof here) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

uint32_t rs_lan_broadcast_address(const char *interface, uint32_t address) {
    struct ifreq request = {0};
    struct sockaddr_in in;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    bool known = ioctl(fd, SIOCGIFNETMASK, &request) == 0;
    close(fd);
    memcpy(&in, &request.ifr_netmask, sizeof in);
    uint32_t hosts = ~ntohl(in.sin_addr.s_addr);
    return known && hosts > 1 && hosts != UINT32_MAX ? address | hosts : 0;
}

void rs_lan_host_name(char out[RS_LAN_NAME + 1]) {
    if (gethostname(out, RS_LAN_NAME + 1) != 0)
        out[0] = 0;
    out[RS_LAN_NAME] = 0;
    for (char *c = out; *c; c++) {
        const char one[2] = {*c, 0};
        *c = rs_lan_name_ok(one) ? *c : '-';
    }
}
