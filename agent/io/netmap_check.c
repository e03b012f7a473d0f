/* Our declarations against the system's, where <net/netmap.h> is installed. */
#include "io/netmap_abi.h"

#if __has_include(<net/netmap.h>)
#include <net/if.h>
#include <net/netmap.h>

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs " has another size")
#define SAME_PLACE(ours, our_field, theirs, their_field)                       \
    _Static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field), \
                   #theirs "." #their_field " lies elsewhere")
#define SAME(ours, theirs) _Static_assert((ours) == (theirs), #theirs " is another")

SAME_SIZE(rs_nm_slot, struct netmap_slot);
SAME_PLACE(rs_nm_slot, buffer, struct netmap_slot, buf_idx);
SAME_PLACE(rs_nm_slot, length, struct netmap_slot, len);
SAME_PLACE(rs_nm_slot, flags, struct netmap_slot, flags);
SAME_SIZE(rs_nm_ring, struct netmap_ring);
SAME_PLACE(rs_nm_ring, buffers, struct netmap_ring, buf_ofs);
SAME_PLACE(rs_nm_ring, slot_count, struct netmap_ring, num_slots);
SAME_PLACE(rs_nm_ring, buffer_bytes, struct netmap_ring, nr_buf_size);
SAME_PLACE(rs_nm_ring, head, struct netmap_ring, head);
SAME_PLACE(rs_nm_ring, cur, struct netmap_ring, cur);
SAME_PLACE(rs_nm_ring, tail, struct netmap_ring, tail);
SAME_PLACE(rs_nm_ring, slots, struct netmap_ring, slot);
SAME_SIZE(rs_nm_interface, struct netmap_if);
SAME_PLACE(rs_nm_interface, transmit_rings, struct netmap_if, ni_tx_rings);
SAME_PLACE(rs_nm_interface, receive_rings, struct netmap_if, ni_rx_rings);
SAME_PLACE(rs_nm_interface, host_transmit_rings, struct netmap_if, ni_host_tx_rings);
SAME_PLACE(rs_nm_interface, host_receive_rings, struct netmap_if, ni_host_rx_rings);
SAME_PLACE(rs_nm_interface, rings, struct netmap_if, ring_ofs);
SAME_SIZE(rs_nm_request, struct nmreq_header);
SAME_PLACE(rs_nm_request, type, struct nmreq_header, nr_reqtype);
SAME_PLACE(rs_nm_request, name, struct nmreq_header, nr_name);
SAME_PLACE(rs_nm_request, options, struct nmreq_header, nr_options);
SAME_PLACE(rs_nm_request, body, struct nmreq_header, nr_body);
SAME_SIZE(rs_nm_register, struct nmreq_register);
SAME_PLACE(rs_nm_register, interface, struct nmreq_register, nr_offset);
SAME_PLACE(rs_nm_register, memory_bytes, struct nmreq_register, nr_memsize);
SAME_PLACE(rs_nm_register, memory, struct nmreq_register, nr_mem_id);
SAME_PLACE(rs_nm_register, mode, struct nmreq_register, nr_mode);
SAME_PLACE(rs_nm_register, flags, struct nmreq_register, nr_flags);
SAME(RS_NM_BUFFER_CHANGED, NS_BUF_CHANGED);
SAME(RS_NM_MORE_FRAGMENTS, NS_MOREFRAG);
SAME(RS_NM_EXCLUSIVE, NR_EXCLUSIVE);
SAME((int)RS_NM_ALL_NIC, (int)NR_REG_ALL_NIC);
SAME((int)RS_NM_HOST, (int)NR_REG_SW);
SAME(RS_NM_REQUEST_REGISTER, NETMAP_REQ_REGISTER);
SAME(RS_NM_CONTROL, NIOCCTRL);
SAME(RS_NM_SYNC_TRANSMIT, NIOCTXSYNC);
SAME(RS_NM_SYNC_RECEIVE, NIOCRXSYNC);
_Static_assert(RS_NM_API >= NETMAP_MIN_API && RS_NM_API <= NETMAP_MAX_API, "another netmap API");
#endif
