/* Behaves as netmap(4) describes: the kernel looks at rings in calls only, keeps one slot, and owns what the program
 * gave back. */
#include "fake_netmap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/netmap_abi.h"

#define RINGS_MAX 8u
#define RING_BYTES (sizeof(rs_nm_ring) + FAKE_SLOTS * sizeof(rs_nm_slot))
#define BUFFERS (2 * (RINGS_MAX + 1) * FAKE_SLOTS)

fake_netmap fake;

static struct {
    uint8_t *memory;
    int nic_fd, host_fd;
    rs_nm_ring *rings[2 * (RINGS_MAX + 1)]; /* NIC transmit, host transmit, NIC receive, host receive */
    uint32_t seen[2 * (RINGS_MAX + 1)];     /* the kernel's own position */
} kernel;

static size_t ring_at(uint32_t index) {
    return 4096 + index * ((RING_BYTES + 127) / 128 * 128);
}

static size_t buffers_at(void) {
    return ring_at(2 * (RINGS_MAX + 1));
}

static size_t memory_bytes(void) {
    return buffers_at() + (size_t)BUFFERS * fake.buffer_bytes;
}

static void make_memory(void) {
    uint32_t count = 2 * (fake.rings + 1), buffer = 0;
    free(kernel.memory);
    kernel.memory = aligned_alloc(4096, (memory_bytes() + 4095) / 4096 * 4096);
    assert_non_null(kernel.memory);
    memset(kernel.memory, 0, memory_bytes());
    for (uint32_t side = 0; side < 2; side++) {
        rs_nm_interface *interface = (void *)(kernel.memory + side * 2048);
        interface->transmit_rings = interface->receive_rings = fake.rings;
        interface->host_transmit_rings = interface->host_receive_rings = side; /* older modules leave 0 */
        for (uint32_t i = 0; i < count; i++)
            interface->rings[i] = (ssize_t)(ring_at(i) - side * 2048);
    }
    for (uint32_t i = 0; i < count; i++) {
        rs_nm_ring *ring = kernel.rings[i] = (void *)(kernel.memory + ring_at(i));
        ring->buffers = (int64_t)(buffers_at() - ring_at(i));
        ring->slot_count = FAKE_SLOTS;
        ring->buffer_bytes = fake.buffer_bytes;
        ring->tail = i <= fake.rings ? FAKE_SLOTS - 1 : 0; /* all but one free, or none full */
        kernel.seen[i] = 0;
        for (uint32_t s = 0; s < FAKE_SLOTS; s++)
            ring->slots[s].buffer = buffer++;
    }
}

void fake_reset(void) {
    fake_free();
    fake = (fake_netmap){.version = RS_NM_API, .rings = 1, .buffer_bytes = FAKE_BUFFER};
    fake_frames *const all[] = {&fake.from_wire, &fake.to_wire, &fake.from_kernel, &fake.to_kernel};
    for (size_t i = 0; i < 4; i++) {
        all[i]->frames = calloc(FAKE_FRAMES, sizeof(fake_frame));
        assert_non_null(all[i]->frames);
    }
}

void fake_free(void) {
    free(fake.from_wire.frames), free(fake.to_wire.frames);
    free(fake.from_kernel.frames), free(fake.to_kernel.frames);
    free(kernel.memory);
    memset(&kernel, 0, sizeof kernel);
    memset(&fake, 0, sizeof fake);
}

void fake_add(fake_frames *to, const void *bytes, uint32_t length, uint16_t pieces) {
    assert_true(to->count < FAKE_FRAMES && length <= FAKE_BUFFER);
    fake_frame *frame = &to->frames[to->count++];
    *frame = (fake_frame){.length = length, .pieces = pieces};
    memcpy(frame->bytes, bytes, length);
}

void fake_clear(fake_frames *frames) {
    frames->count = 0;
}

static void take_first(fake_frames *frames) {
    memmove(frames->frames, frames->frames + 1, --frames->count * sizeof *frames->frames);
}

bool fake_would_wake(void) {
    for (uint32_t i = 0; i < fake.rings; i++)
        if (kernel.rings[i]->cur != kernel.rings[i]->tail)
            return true;
    return false;
}

void fake_check_buffers(void) {
    bool found[BUFFERS] = {false};
    for (uint32_t i = 0; i < 2 * (fake.rings + 1); i++)
        for (uint32_t s = 0; s < FAKE_SLOTS; s++) {
            uint32_t buffer = kernel.rings[i]->slots[s].buffer;
            assert_true(buffer < BUFFERS && !found[buffer]);
            found[buffer] = true;
        }
}

/* The program moves head, and cur beyond it, only over slots that are its own. */
static void check_head(uint32_t index) {
    const rs_nm_ring *ring = kernel.rings[index];
    uint32_t given = (ring->head + FAKE_SLOTS - kernel.seen[index]) % FAKE_SLOTS;
    uint32_t owned = (ring->tail + FAKE_SLOTS - kernel.seen[index]) % FAKE_SLOTS;
    uint32_t wanted = (ring->cur + FAKE_SLOTS - kernel.seen[index]) % FAKE_SLOTS;
    assert_true(ring->head < FAKE_SLOTS && ring->cur < FAKE_SLOTS && given <= wanted && wanted <= owned);
}

static void transmit(uint32_t index, fake_frames *to, bool stuck) {
    rs_nm_ring *ring = kernel.rings[index];
    check_head(index);
    while (!stuck && kernel.seen[index] != ring->head) {
        const rs_nm_slot *slot = &ring->slots[kernel.seen[index]];
        assert_true(slot->length <= ring->buffer_bytes && (slot->flags & RS_NM_MORE_FRAGMENTS) == 0);
        fake_add(to, rs_nm_buffer(ring, slot), slot->length, 1);
        kernel.seen[index] = rs_nm_next(ring, kernel.seen[index]);
    }
    ring->tail = (kernel.seen[index] + FAKE_SLOTS - 1) % FAKE_SLOTS;
}

static uint32_t room(uint32_t index) {
    const rs_nm_ring *ring = kernel.rings[index];
    return (kernel.seen[index] + FAKE_SLOTS - 1 - ring->tail) % FAKE_SLOTS;
}

static void receive(uint32_t index, fake_frames *from) {
    rs_nm_ring *ring = kernel.rings[index];
    check_head(index);
    kernel.seen[index] = ring->head;
    while (from->count > 0 && room(index) >= (from->frames->pieces ? from->frames->pieces : 1)) {
        const fake_frame *frame = from->frames;
        for (uint16_t piece = 0; piece == 0 || piece < frame->pieces; piece++) {
            rs_nm_slot *slot = &ring->slots[ring->tail];
            slot->length = (uint16_t)frame->length;
            slot->flags = piece + 1 < frame->pieces ? RS_NM_MORE_FRAGMENTS : 0;
            memcpy(rs_nm_buffer(ring, slot), frame->bytes, frame->length);
            ring->tail = rs_nm_next(ring, ring->tail);
        }
        take_first(from);
    }
}

static int fake_register(int fd, rs_nm_request *request) {
    rs_nm_register *body = (void *)(uintptr_t)request->body;
    assert_int_equal(request->type, RS_NM_REQUEST_REGISTER);
    assert_int_equal(request->options, 0);
    assert_string_equal(request->name, "lo");
    if (request->version != fake.version || fake.register_errno) {
        errno = request->version != fake.version ? EINVAL : fake.register_errno;
        request->version = fake.version;
        return -1;
    }
    bool host = body->mode == RS_NM_HOST;
    if (!host) {
        assert_int_equal(body->mode, RS_NM_ALL_NIC);
        make_memory();
    }
    *(host ? &kernel.host_fd : &kernel.nic_fd) = fd;
    body->interface = host ? 2048 : 0;
    body->memory_bytes = memory_bytes();
    body->memory = host && fake.separate_memory ? 3 : 1;
    return 0;
}

static int control(int fd, unsigned long request, void *argument) {
    if (request == RS_NM_CONTROL)
        return fake_register(fd, argument);
    uint32_t first_receive = fake.rings + 1;
    bool host = fd == kernel.host_fd;
    assert_true(host || fd == kernel.nic_fd);
    for (uint32_t i = host ? fake.rings : 0; i < (host ? fake.rings + 1 : fake.rings); i++) {
        if (request == RS_NM_SYNC_TRANSMIT)
            transmit(i, host ? &fake.to_kernel : &fake.to_wire, host ? fake.kernel_stuck : fake.wire_stuck);
        else if (request == RS_NM_SYNC_RECEIVE)
            receive(first_receive + i, host ? &fake.from_kernel : &fake.from_wire);
        else
            fail_msg("ioctl %lx", request);
    }
    return 0;
}

static int open_device(const char *path) {
    assert_string_equal(path, "/dev/netmap");
    if (fake.open_errno) {
        errno = fake.open_errno;
        return -1;
    }
    fake.open_fds++;
    return eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK); /* always readable and writable */
}

static int close_device(int fd) {
    fake.open_fds--;
    return close(fd);
}

static void *map(size_t bytes, int fd) {
    assert_int_equal(fd, kernel.nic_fd);
    assert_int_equal(bytes, memory_bytes());
    errno = fake.map_errno;
    fake.maps += fake.map_errno == 0;
    return fake.map_errno ? NULL : kernel.memory;
}

static int unmap(void *memory, size_t bytes) {
    assert_ptr_equal(memory, kernel.memory);
    assert_int_equal(bytes, memory_bytes());
    fake.maps--;
    return 0;
}

const rs_netmap_device fake_device = {
    .open = open_device, .close = close_device, .control = control, .map = map, .unmap = unmap};
