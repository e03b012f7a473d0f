/* A netmap device in memory: rings that are synchronized as the kernel does it, a wire and a kernel's stack behind
 * them, and checks that the program keeps to the rules. One at a time. */
#ifndef TESTS_AGENT_FAKE_NETMAP_H
#define TESTS_AGENT_FAKE_NETMAP_H

#include "io/netmap.h"

#define FAKE_SLOTS 16u
#define FAKE_BUFFER 2048u
#define FAKE_FRAMES 1024u /* most that wait on one side */

typedef struct {
    uint32_t length;
    uint16_t pieces; /* slots it comes in; 0 and 1 are the same */
    uint8_t bytes[FAKE_BUFFER];
} fake_frame;

typedef struct {
    fake_frame *frames;
    unsigned count;
} fake_frames;

typedef struct {
    /* what it does */
    int open_errno, register_errno, map_errno; /* 0 = works */
    uint16_t version;                          /* API, 14 */
    uint32_t rings;                            /* of the NIC, each way */
    uint32_t buffer_bytes;
    bool separate_memory;
    bool wire_stuck, kernel_stuck; /* takes nothing */
    /* what comes in and what went out */
    fake_frames from_wire, to_wire, from_kernel, to_kernel;
    int open_fds, maps;
} fake_netmap;

extern fake_netmap fake;
extern const rs_netmap_device fake_device;

/* Everything working, nothing waiting. */
void fake_reset(void);
void fake_free(void);
void fake_add(fake_frames *to, const void *bytes, uint32_t length, uint16_t pieces);
/* Forgets what went out. */
void fake_clear(fake_frames *frames);
/* The NIC's descriptor is writable: a transmit ring has slots beyond its cur. */
bool fake_would_wake(void);
/* Fails unless every buffer lies in exactly one slot. */
void fake_check_buffers(void);

#endif
