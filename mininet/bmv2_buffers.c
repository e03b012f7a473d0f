/* Preloaded into BMv2: larger rings on its ports.
 *
 * It reads each port by libpcap in immediate mode, whose default ring of 2 MB has places for some 128 jumbo frames: a
 * burst overflows it while other processes have the processors. No option of the switch changes it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

enum { RING_BYTES = 8 << 20 };

typedef struct pcap pcap_t;
typedef int activate_fn(pcap_t *);
typedef int set_buffer_size_fn(pcap_t *, int);

int pcap_activate(pcap_t *port);

int pcap_activate(pcap_t *port) {
    static activate_fn *next;
    static set_buffer_size_fn *set_buffer_size;
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "pcap_activate");
        *(void **)&set_buffer_size = dlsym(RTLD_NEXT, "pcap_set_buffer_size");
    }
    if (set_buffer_size != NULL)
        (void)set_buffer_size(port, RING_BYTES);
    return next(port);
}
