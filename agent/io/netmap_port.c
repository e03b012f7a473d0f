/* Opening a netmap port, and what is done with rings and slots whatever they carry. */
#include "io/netmap_port.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool no_device(char *error) {
    if (errno == ENOENT || errno == ENXIO || errno == ENODEV)
        snprintf(error, RS_IO_ERROR_MAX,
                 "there is no %s: load the kernel module (modprobe netmap; docs/netmap.md says how to build it)",
                 RS_NM_DEVICE);
    else
        snprintf(error, RS_IO_ERROR_MAX, "cannot open %s: %s (root is needed, or rights on the device)", RS_NM_DEVICE,
                 strerror(errno));
    return false;
}

static bool no_register(const char *interface, const rs_nm_request *request, char *error) {
    int cause = errno;
    if (cause == EBUSY)
        snprintf(error, RS_IO_ERROR_MAX, "%s is in use by another netmap program: end it", interface);
    else if (cause == EINVAL && request->version != RS_NM_API)
        snprintf(error, RS_IO_ERROR_MAX, "the netmap module speaks API %u, this agent %u: install a module that fits",
                 request->version, RS_NM_API);
    else
        snprintf(error, RS_IO_ERROR_MAX, "netmap does not take %s: %s (dmesg may say more)", interface,
                 strerror(cause));
    return false;
}

static bool enter(rs_nm_port *port, rs_nm_side *side, const char *interface, uint32_t mode, rs_nm_register *body,
                  char *error) {
    rs_nm_request request = {.version = RS_NM_API, .type = RS_NM_REQUEST_REGISTER, .body = (uintptr_t)body};
    snprintf(request.name, sizeof request.name, "%s", interface);
    body->mode = mode;
    body->flags = RS_NM_EXCLUSIVE;
    side->fd = port->device->open(RS_NM_DEVICE);
    if (side->fd < 0)
        return no_device(error);
    return port->device->control(side->fd, RS_NM_CONTROL, &request) == 0 || no_register(interface, &request, error);
}

static uint32_t at_least_one(uint32_t count) {
    return count > 0 ? count : 1;
}

static bool find_rings(rs_nm_port *port, rs_nm_side *side, const rs_nm_register *body, bool host, char *error) {
    rs_nm_interface *interface = (rs_nm_interface *)(void *)((uint8_t *)port->memory + body->interface);
    uint32_t host_transmit = at_least_one(interface->host_transmit_rings);
    uint32_t nic_transmit = interface->transmit_rings, nic_receive = interface->receive_rings;
    uint32_t all_transmit = nic_transmit + host_transmit;
    uint32_t transmit_from = host ? nic_transmit : 0, receive_from = all_transmit + (host ? nic_receive : 0);
    side->transmit_count = host ? host_transmit : nic_transmit;
    side->receive_count = host ? at_least_one(interface->host_receive_rings) : nic_receive;
    if (side->transmit_count == 0 || side->receive_count == 0 || side->transmit_count > RS_NM_RINGS_MAX ||
        side->receive_count > RS_NM_RINGS_MAX) {
        snprintf(error, RS_IO_ERROR_MAX, "netmap shows %u transmit and %u receive rings; 1 to %u of each are usable",
                 side->transmit_count, side->receive_count, RS_NM_RINGS_MAX);
        return false;
    }
    for (uint32_t i = 0; i < side->transmit_count; i++)
        side->transmit[i] = rs_nm_ring_at(interface, transmit_from + i);
    for (uint32_t i = 0; i < side->receive_count; i++)
        side->receive[i] = rs_nm_ring_at(interface, receive_from + i);
    return true;
}

static bool buffers_hold(const rs_nm_port *port, const char *interface, uint32_t frame_bytes, char *error) {
    uint32_t bytes = port->nic.receive[0]->buffer_bytes;
    if (bytes >= frame_bytes)
        return true;
    snprintf(error, RS_IO_ERROR_MAX,
             "netmap's buffers have %u bytes, frames of %s up to %u: write %u to "
             "/sys/module/netmap/parameters/buf_size while nothing uses netmap, or make the MTU smaller",
             bytes, interface, frame_bytes, (frame_bytes + 1023) / 1024 * 1024);
    return false;
}

bool rs_nm_port_open(rs_nm_port *port, const rs_netmap_device *device, const char *interface, uint32_t frame_bytes,
                     char *error) {
    rs_nm_register nic = {0}, host = {0};
    *port = (rs_nm_port){.device = device, .nic.fd = -1, .host.fd = -1};
    if (!enter(port, &port->nic, interface, RS_NM_ALL_NIC, &nic, error))
        return false;
    host.memory = nic.memory;
    if (!enter(port, &port->host, interface, RS_NM_HOST, &host, error))
        return false;
    if (host.memory != nic.memory) {
        snprintf(error, RS_IO_ERROR_MAX, "netmap keeps %s and its host rings in different memory (%u and %u)",
                 interface, nic.memory, host.memory);
        return false;
    }
    port->memory_bytes = nic.memory_bytes > host.memory_bytes ? nic.memory_bytes : host.memory_bytes;
    port->memory = device->map(port->memory_bytes, port->nic.fd);
    if (!port->memory) {
        snprintf(error, RS_IO_ERROR_MAX, "cannot map %zu bytes of netmap's memory: %s", port->memory_bytes,
                 strerror(errno));
        return false;
    }
    return find_rings(port, &port->nic, &nic, false, error) && find_rings(port, &port->host, &host, true, error) &&
           buffers_hold(port, interface, frame_bytes, error);
}

void rs_nm_port_close(rs_nm_port *port) {
    if (port->memory)
        port->device->unmap(port->memory, port->memory_bytes);
    if (port->host.fd >= 0)
        port->device->close(port->host.fd);
    if (port->nic.fd >= 0)
        port->device->close(port->nic.fd);
    port->memory = NULL;
    port->nic.fd = port->host.fd = -1;
}

void rs_nm_sync(const rs_nm_port *port, const rs_nm_side *side, unsigned long direction) {
    (void)port->device->control(side->fd, direction, NULL); /* fails only for a NIC that is gone: its rings stay */
}

#define LEFT_TO_OTHERS 8u /* one slot in so many */

static uint32_t free_slots(const rs_nm_ring *ring) {
    return ring->tail >= ring->head ? ring->tail - ring->head : ring->tail + ring->slot_count - ring->head;
}

static rs_nm_ring *look_for_free(const rs_nm_side *side, uint32_t *preferred, bool leave) {
    for (uint32_t i = 0; i < side->transmit_count; i++) {
        uint32_t number = (*preferred + i) % side->transmit_count;
        rs_nm_ring *ring = side->transmit[number];
        if (free_slots(ring) > (leave ? ring->slot_count / LEFT_TO_OTHERS : 0)) {
            *preferred = number;
            return ring;
        }
    }
    return NULL;
}

rs_nm_ring *rs_nm_free_ring(const rs_nm_port *port, const rs_nm_side *side, uint32_t *preferred, bool leave) {
    rs_nm_ring *ring = look_for_free(side, preferred, leave);
    if (ring)
        return ring;
    rs_nm_sync(port, side, RS_NM_SYNC_TRANSMIT);
    return look_for_free(side, preferred, leave);
}

/* netmap(4): poll waits for slots beyond cur. */
void rs_nm_want_more(const rs_nm_side *side) {
    for (uint32_t i = 0; i < side->transmit_count; i++)
        side->transmit[i]->cur = side->transmit[i]->tail;
}

void rs_nm_pass_on(rs_nm_slot *from, rs_nm_ring *to) {
    rs_nm_slot *slot = &to->slots[to->head];
    uint32_t spare = slot->buffer;
    slot->buffer = from->buffer;
    slot->length = from->length;
    slot->flags = RS_NM_BUFFER_CHANGED;
    from->buffer = spare;
    from->flags = RS_NM_BUFFER_CHANGED;
    to->head = to->cur = rs_nm_next(to, to->head);
}
