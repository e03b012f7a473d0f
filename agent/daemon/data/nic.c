/* Asks the kernel about an interface. */
#include "daemon/data/nic.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/wire.h"

static bool ask(const char *interface, unsigned long what, struct ifreq *request) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    snprintf(request->ifr_name, sizeof request->ifr_name, "%s", interface);
    bool ok = ioctl(fd, what, request) == 0;
    close(fd);
    return ok;
}

uint32_t rs_nic_mtu(const char *interface) {
    struct ifreq request = {0};
    return ask(interface, SIOCGIFMTU, &request) && request.ifr_mtu > 0 ? (uint32_t)request.ifr_mtu : 0;
}

int64_t rs_nic_rate(const char *interface) {
    struct ethtool_cmd command = {.cmd = ETHTOOL_GSET};
    struct ifreq request = {0};
    request.ifr_data = (void *)&command;
    if (!ask(interface, SIOCETHTOOL, &request))
        return 0;
    uint32_t speed = ethtool_cmd_speed(&command);
    return speed == 0 || speed == (uint32_t)SPEED_UNKNOWN || speed == UINT16_MAX ? 0 : (int64_t)speed * 1000000;
}

uint32_t rs_fragment_size(uint32_t mtu, uint32_t sealed) {
    uint32_t headers = 20 + 8 + RS_REPAIR_HEADER + sealed; /* the longer header: repairs carry as much */
    uint32_t room = mtu > headers ? mtu - headers : 0;
    if (room > RS_FRAGMENT_MAX)
        room = RS_FRAGMENT_MAX;
    const uint32_t unit = sealed ? 16 : 64; /* of 1500 bytes rounding to 64 would take what a seal takes once more */
    return room / unit * unit;
}
