/* Memberships by ordinary sockets. */
#include "io/members.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

rs_member *rs_members_number(const rs_members *members, rs_io_group number) {
    for (unsigned i = 0; i < members->room; i++)
        if (members->list[i].fd >= 0 && members->list[i].number == number)
            return &members->list[i];
    return NULL;
}

static bool is_to(const rs_member *member, uint32_t address, uint16_t port) {
    return member->fd >= 0 && member->address == address && member->port == port;
}

/* Datagrams of one group come in runs. */
rs_member *rs_members_to(rs_members *members, uint32_t address, uint16_t port) {
    if (members->last_found < members->room && is_to(&members->list[members->last_found], address, port))
        return &members->list[members->last_found];
    for (unsigned i = 0; i < members->room; i++)
        if (is_to(&members->list[i], address, port)) {
            members->last_found = i;
            return &members->list[i];
        }
    return NULL;
}

/* Not bound, and IP_MULTICAST_ALL off: the kernel gives this socket no datagram. */
static int open_membership(uint32_t address, unsigned interface_index, uint32_t interface_address) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || !IN_MULTICAST(address))
        return fd;
    int zero = 0;
    struct ip_mreqn membership = {.imr_ifindex = (int)interface_index};
    membership.imr_multiaddr.s_addr = htonl(address);
    membership.imr_address.s_addr = htonl(interface_address);
    if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &zero, sizeof zero) == 0 &&
        setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) == 0)
        return fd;
    int cause = errno;
    close(fd);
    errno = cause;
    return -1;
}

static rs_member *free_member(rs_members *members) {
    for (unsigned i = 0; i < members->room; i++)
        if (members->list[i].fd < 0)
            return &members->list[i];
    if (members->room >= RS_IO_GROUPS_MAX)
        return NULL;
    unsigned room = members->room ? members->room * 2 : 8;
    rs_member *list = realloc(members->list, room * sizeof *list);
    if (!list)
        return NULL;
    for (unsigned i = members->room; i < room; i++)
        list[i] = (rs_member){.fd = -1};
    rs_member *fresh = &list[members->room];
    members->list = list;
    members->room = room;
    return fresh;
}

rs_member *rs_members_add(rs_members *members, rs_io_group number, uint32_t address, uint16_t port,
                          unsigned interface_index, uint32_t interface_address, char *error) {
    char text[INET_ADDRSTRLEN];
    struct in_addr in = {htonl(address)};
    inet_ntop(AF_INET, &in, text, sizeof text);
    if (rs_members_number(members, number)) {
        snprintf(error, RS_IO_ERROR_MAX, "group number %u is in use", number);
        return NULL;
    }
    if (rs_members_to(members, address, port)) {
        snprintf(error, RS_IO_ERROR_MAX, "%s:%u is received already", text, port);
        return NULL;
    }
    rs_member *member = free_member(members);
    if (!member) {
        snprintf(error, RS_IO_ERROR_MAX, "no room for another group (at most %d)", RS_IO_GROUPS_MAX);
        return NULL;
    }
    int fd = open_membership(address, interface_index, interface_address);
    if (fd < 0) {
        snprintf(error, RS_IO_ERROR_MAX, "cannot join %s: %s", text, strerror(errno));
        return NULL;
    }
    *member = (rs_member){.fd = fd, .number = number, .address = address, .port = port};
    members->count++;
    return member;
}

void rs_members_remove(rs_members *members, rs_member *member) {
    close(member->fd);
    member->fd = -1;
    members->count--;
}

void rs_members_free(rs_members *members) {
    for (unsigned i = 0; i < members->room; i++)
        if (members->list[i].fd >= 0)
            close(members->list[i].fd);
    free(members->list);
    *members = (rs_members){0};
}

void rs_members_share_drops(rs_members *members, uint64_t drops) {
    uint64_t arrived = 0, left = drops;
    rs_member *most = NULL;
    for (unsigned i = 0; i < members->room; i++) {
        rs_member *member = &members->list[i];
        if (member->fd < 0)
            continue;
        arrived += member->arrived;
        if (!most || member->arrived > most->arrived)
            most = member;
    }
    for (unsigned i = 0; i < members->room && arrived > 0; i++) {
        rs_member *member = &members->list[i];
        if (member->fd < 0)
            continue;
        uint64_t share = drops * member->arrived / arrived;
        member->drops += share;
        left -= share;
        member->arrived = 0;
    }
    if (most)
        most->drops += left;
}
