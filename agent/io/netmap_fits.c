#include "io/netmap_fits.h"

#include <errno.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* A path below `sys`, PATH_MAX bytes; false where it is too long. */
static bool path_below(char *path, const char *sys, const char *format, const char *name) {
    char rest[PATH_MAX / 2];
    snprintf(rest, sizeof rest, format, name);
    return snprintf(path, PATH_MAX, "%s/%s", sys, rest) < PATH_MAX;
}

static bool there_is(const char *sys, const char *format, const char *name) {
    char path[PATH_MAX];
    return path_below(path, sys, format, name) && access(path, F_OK) == 0;
}

/* Asks the driver of an interface; false without an answer. */
static bool ethtool(const char *interface, void *what) {
    struct ifreq request = {.ifr_data = what};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    bool answered = fd >= 0 && ioctl(fd, SIOCETHTOOL, &request) == 0;
    if (fd >= 0)
        close(fd);
    return answered;
}

/* Reads where a link of sysfs points, without the folders before it. */
static bool last_of_link(const char *sys, const char *format, const char *name, char *last, size_t size) {
    char path[PATH_MAX], target[PATH_MAX];
    ssize_t length = path_below(path, sys, format, name) ? readlink(path, target, sizeof target - 1) : -1;
    if (length <= 0)
        return false;
    target[length] = '\0';
    const char *slash = strrchr(target, '/');
    snprintf(last, size, "%.*s", (int)size - 1, slash ? slash + 1 : target);
    return true;
}

/* The kernel module of the interface's driver; "" if it has none, as some virtual interfaces. The driver is asked for
 * its name first, for sysfs may be mounted by another network namespace, which has another interface of that name;
 * drivers by bus are the same in all (Documentation/ABI/testing/sysfs-bus-pci). */
static void driver_module(const char *sys, const char *interface, char *module, size_t size) {
    struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
    module[0] = '\0';
    if (!ethtool(interface, &driver)) {
        last_of_link(sys, "class/net/%s/device/driver/module", interface, module, size);
        return;
    }
    driver.driver[sizeof driver.driver - 1] = '\0';
    if (!last_of_link(sys, "bus/pci/drivers/%s/module", driver.driver, module, size) &&
        !last_of_link(sys, "bus/virtio/drivers/%s/module", driver.driver, module, size))
        snprintf(module, size, "%s", driver.driver);
}

bool rs_netmap_offloads(const char *interface) {
    struct ethtool_value value = {.cmd = ETHTOOL_GTXCSUM};
    return ethtool(interface, &value) && value.data != 0;
}

/* A driver built for netmap needs symbols of its module, so the kernel names it among the module's holders
 * (Documentation/ABI/testing/sysfs-module). */
bool rs_netmap_fits(const char *sys, const char *interface, char *error) {
    char module[64], holder[80];
    if (!there_is(sys, "module/%s", "netmap")) {
        snprintf(error, RS_IO_ERROR_MAX, "its kernel module is not loaded");
        return false;
    }
    driver_module(sys, interface, module, sizeof module);
    snprintf(holder, sizeof holder, "%s", module);
    if (!module[0] || !there_is(sys, "module/netmap/holders/%s", holder)) {
        snprintf(error, RS_IO_ERROR_MAX,
                 "%s has no driver of netmap's (%s), and its emulated mode is no faster than sockets", interface,
                 module[0] ? module : "it is virtual");
        return false;
    }
    if (rs_netmap_offloads(interface)) {
        snprintf(error, RS_IO_ERROR_MAX,
                 "%s leaves checksums to the NIC, which netmap does not, and the host's other traffic would end: "
                 "ethtool -K %s tx off gso off tso off",
                 interface, interface);
        return false;
    }
    return true;
}
