/* Groups of a back end that takes its frames below the kernel's stack: their numbers, addresses and drops, and the
 * membership itself (IGMP reports, the NIC's filter), which an ordinary socket per group keeps without ever reading. */
#ifndef RS_IO_MEMBERS_H
#define RS_IO_MEMBERS_H

#include "io/io.h"

typedef struct {
    int fd; /* -1 = free */
    rs_io_group number;
    uint32_t address;
    uint16_t port;
    uint64_t drops;
    uint32_t arrived; /* datagrams since drops were last shared out */
} rs_member;

typedef struct {
    rs_member *list; /* those in use are anywhere in it */
    unsigned room, count, last_found;
} rs_members;

/* Joins on the interface of that index and address. NULL with the reason in `error`: number in use, too many groups,
 * the kernel refuses, no memory. */
rs_member *rs_members_add(rs_members *members, rs_io_group number, uint32_t address, uint16_t port,
                          unsigned interface_index, uint32_t interface_address, char *error);
void rs_members_remove(rs_members *members, rs_member *member);
void rs_members_free(rs_members *members);

/* NULL if there is none. */
rs_member *rs_members_number(const rs_members *members, rs_io_group number);
rs_member *rs_members_to(rs_members *members, uint32_t address, uint16_t port);

/* Drops of a buffer that all groups share, told apart by what came of each since the last time. */
void rs_members_share_drops(rs_members *members, uint64_t drops);

#endif
