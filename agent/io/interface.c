/* Interfaces by name, and buffers of sockets. */
#include "io/interface.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static bool ask(const char *name, struct ifreq *mtu, struct ifreq *hardware) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    snprintf(mtu->ifr_name, sizeof mtu->ifr_name, "%s", name);
    *hardware = *mtu;
    bool ok = ioctl(fd, SIOCGIFMTU, mtu) == 0 && ioctl(fd, SIOCGIFHWADDR, hardware) == 0;
    close(fd);
    return ok;
}

bool rs_interface_find(const rs_io_options *options, rs_interface *out, char *error) {
    struct ifreq mtu = {0}, hardware = {0};
    *out = (rs_interface){.index = if_nametoindex(options->interface)};
    snprintf(out->name, sizeof out->name, "%s", options->interface);
    if (out->index == 0 || !ask(out->name, &mtu, &hardware)) {
        snprintf(error, RS_IO_ERROR_MAX, "no network interface \"%s\" here", options->interface);
        return false;
    }
    out->mtu = (uint32_t)mtu.ifr_mtu;
    memcpy(out->mac, hardware.ifr_hwaddr.sa_data, sizeof out->mac);
    if (options->mtu > out->mtu) {
        snprintf(error, RS_IO_ERROR_MAX, "an MTU of %u was asked for, but %s has %u", options->mtu, out->name,
                 out->mtu);
        return false;
    }
    if (options->mtu > 0)
        out->mtu = options->mtu;
    return true;
}

int rs_socket_buffer(int fd, int force_option, int option, int wanted) {
    if (setsockopt(fd, SOL_SOCKET, force_option, &wanted, sizeof wanted) == 0)
        return wanted;
    int got = 0;
    socklen_t length = sizeof got;
    (void)setsockopt(fd, SOL_SOCKET, option, &wanted, sizeof wanted);
    if (getsockopt(fd, SOL_SOCKET, option, &got, &length) != 0)
        return wanted;
    return got / 2; /* the kernel tells twice what was set: half is for its own use */
}

void rs_io_warn(const rs_io_options *options, const char *text) {
    if (options->log)
        options->log(options->log_context, RS_IO_LOG_WARNING, text);
}

void rs_warn_buffer(const rs_io_options *options, int option, int got, int wanted) {
    char text[200];
    bool receive = option == SO_RCVBUF;
    snprintf(
        text, sizeof text,
        "%s buffer is %d bytes, %d were wanted: bursts may be lost; raise net.core.%cmem_max or give CAP_NET_ADMIN",
        receive ? "receive" : "send", got, wanted, receive ? 'r' : 'w');
    rs_io_warn(options, text);
}
