/* Preloaded into ovs-vswitchd: larger buffers on its packet sockets.
 *
 * The user-space datapath reads each port from an AF_PACKET socket, whose default buffer holds about twenty jumbo
 * frames: a burst at 1 Gbit/s overflows it while the one forwarding thread serves another port. The default is a
 * setting of the whole machine (net.core.rmem_default), so the lab asks for more on these sockets alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/socket.h>

enum { BUFFER_BYTES = 16 << 20 };

typedef int socket_fn(int domain, int type, int protocol);

int socket(int domain, int type, int protocol) {
    static socket_fn *next;
    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "socket");
    int fd = next(domain, type, protocol);
    if (fd >= 0 && domain == AF_PACKET) {
        const int bytes = BUFFER_BYTES;
        /* Refused only without CAP_NET_ADMIN, and then the default still forwards at low rates. */
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
    }
    return fd;
}
