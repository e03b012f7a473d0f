/* The choice of a back end, and the checks in front of all of them. */
#include "io/io.h"

#include <stdio.h>
#include <string.h>

#include "io/netmap.h"
#include "io/netmap_fits.h"
#include "io/packet.h"
#include "io/udp.h"
#include "io/udp_gso.h"
#include "io/xdp.h"

/* The first is what others are replaced by: it works everywhere. */
const rs_io_ops *const rs_io_backends[] = {&rs_io_udp, &rs_io_udp_gso, &rs_io_packet_ring,
                                           &rs_io_xdp, &rs_io_netmap,  NULL};

/* What "auto" tries, in this order: docs/performance.md has the measurements behind it. */
static const struct {
    const rs_io_ops *ops;
    const char *reason;
} automatic[] = {
    {&rs_io_netmap, "its module drives this NIC, and no kernel stands between the rings and the objects"},
    {&rs_io_udp_gso, "least processor time per byte at every MTU; this kernel has UDP_SEGMENT and UDP_GRO"},
    {&rs_io_packet_ring, "next best: this host gives packet sockets, but its kernel does not join datagrams"},
    {&rs_io_udp, "this host has neither joined datagrams nor packet sockets for us"},
};
#define AUTOMATIC (sizeof automatic / sizeof *automatic)

static void tell(const rs_io_options *options, rs_io_log_level level, const char *text) {
    if (options->log)
        options->log(options->log_context, level, text);
}

static const rs_io_ops *find_backend(const char *name) {
    for (const rs_io_ops *const *ops = rs_io_backends; *ops; ops++)
        if (strcmp((*ops)->name, name) == 0)
            return *ops;
    return NULL;
}

static void name_backends(char *error, const char *wanted) {
    int used = snprintf(error, RS_IO_ERROR_MAX, "no packet I/O back end \"%.40s\"; there are: auto", wanted);
    for (const rs_io_ops *const *ops = rs_io_backends; *ops && used < RS_IO_ERROR_MAX; ops++)
        used += snprintf(error + used, (size_t)(RS_IO_ERROR_MAX - used), ", %s", (*ops)->name);
}

/* The kernel, the interface or missing rights do not let a back end work: the one that works everywhere does. */
static rs_io *open_instead(const rs_io_ops *wanted, const rs_io_options *options, char *error) {
    char text[RS_IO_ERROR_MAX + 80];
    snprintf(text, sizeof text, "packet I/O: %s does not work here: %s; %s is used instead", wanted->name, error,
             rs_io_backends[0]->name);
    rs_io *io = rs_io_backends[0]->open(options, error);
    if (io)
        tell(options, RS_IO_LOG_WARNING, text);
    return io;
}

/* NULL with the last one's text in `error`. */
static rs_io *open_best(const rs_io_options *options, char *error) {
    char text[2 * RS_IO_ERROR_MAX];
    for (size_t i = 0; i < AUTOMATIC; i++) {
        bool fits = automatic[i].ops != &rs_io_netmap || rs_netmap_fits("/sys", options->interface, error);
        rs_io *io = fits ? automatic[i].ops->open(options, error) : NULL;
        if (io)
            snprintf(text, sizeof text, "packet I/O: auto chose %s: %s", automatic[i].ops->name, automatic[i].reason);
        else
            snprintf(text, sizeof text, "packet I/O: auto does not choose %s: %s", automatic[i].ops->name, error);
        if (io || i + 1 < AUTOMATIC)
            tell(options, RS_IO_LOG_INFO, text);
        if (io)
            return io;
    }
    return NULL;
}

rs_io *rs_io_open(const char *backend, const rs_io_options *options, char *error) {
    error[0] = '\0';
    if (!options->interface || !options->interface[0] || options->address == 0) {
        snprintf(error, RS_IO_ERROR_MAX, "an interface and its IPv4 address are needed");
        return NULL;
    }
    if (strcmp(backend, "auto") == 0)
        return open_best(options, error);
    const rs_io_ops *ops = find_backend(backend);
    if (!ops) {
        name_backends(error, backend);
        return NULL;
    }
    rs_io *io = ops->open(options, error);
    return io || ops == rs_io_backends[0] ? io : open_instead(ops, options, error);
}

void rs_io_close(rs_io *io) {
    if (io)
        io->ops->close(io);
}

int rs_io_send(rs_io *io, const rs_io_packet *packets, unsigned count) {
    return count == 0 ? 0 : io->ops->send(io, packets, count < RS_IO_BATCH ? count : RS_IO_BATCH);
}

bool rs_io_join(rs_io *io, rs_io_group group, uint32_t address, uint16_t port, char *error) {
    if (address == 0 || port == 0) {
        snprintf(error, RS_IO_ERROR_MAX, "an address and a port other than 0 are needed to receive");
        return false;
    }
    return io->ops->join(io, group, address, port, error);
}

void rs_io_leave(rs_io *io, rs_io_group group) {
    io->ops->leave(io, group);
}

int rs_io_receive(rs_io *io, unsigned limit, const rs_io_sink *sink) {
    return io->ops->receive(io, limit, sink);
}

int rs_io_receive_fd(const rs_io *io) {
    return io->ops->receive_fd(io);
}

int rs_io_send_fd(const rs_io *io) {
    return io->ops->send_fd(io);
}

void rs_io_wake(rs_io *io, bool by_arrivals) {
    if (io->ops->wake)
        io->ops->wake(io, by_arrivals);
}

uint64_t rs_io_drops(const rs_io *io, rs_io_group group) {
    return io->ops->drops(io, group);
}

uint64_t rs_io_receive_room(const rs_io *io, rs_io_group group) {
    return io->ops->receive_room(io, group);
}

int64_t rs_io_waited(const rs_io *io, rs_io_group group) {
    return io->ops->waited ? io->ops->waited(io, group) : 0;
}

uint32_t rs_io_source(const rs_io *io) {
    return io->ops->source ? io->ops->source(io) : 0;
}

bool rs_io_marked(const rs_io *io) {
    return io->ops->marked && io->ops->marked(io);
}

bool rs_io_late(const rs_io *io) {
    return io->ops->late && io->ops->late(io);
}

void rs_io_stats_get(const rs_io *io, rs_io_stats *out) {
    memset(out, 0, sizeof *out);
    io->ops->stats(io, out);
}

const char *rs_io_name(const rs_io *io) {
    return io->ops->name;
}
