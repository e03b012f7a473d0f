/* What the kernel lets into a packet socket: datagrams of joined groups and nothing else. */
#ifndef RS_IO_PACKET_FILTER_H
#define RS_IO_PACKET_FILTER_H

#include <linux/filter.h>

#include "io/members.h"

#define RS_PACKET_FILTER_MAX BPF_MAXINSNS

/* Writes a classic BPF program that takes whole UDP datagrams to the members' addresses and ports, VLAN tag or not.
 * Returns its length. Groups on very many ports need more than the kernel allows: then all whole UDP datagrams are
 * taken, and it is for the receiver to look at them. */
unsigned rs_packet_filter_write(const rs_members *members, struct sock_filter program[RS_PACKET_FILTER_MAX]);

/* Writes the program and gives it to a socket. False leaves the cause in errno. */
bool rs_packet_filter_attach(int fd, const rs_members *members);

#endif
