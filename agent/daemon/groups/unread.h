/* What a program has not read yet of what its socket is to carry: in the ring that it shares with the agent
 * (api/shared_ring.h), if there is one, and behind that in a buffer of the agent's. */
#ifndef RS_DAEMON_GROUPS_UNREAD_H
#define RS_DAEMON_GROUPS_UNREAD_H

#include "daemon/groups/stream_state.h"

/* Room for `length` bytes behind what waits; NULL: the program reads too slowly. */
uint8_t *rs_unread_room(rs_group_socket *s, size_t length);

typedef enum {
    RS_UNREAD_GONE,    /* The program is. */
    RS_UNREAD_BLOCKED, /* It has to read first: its socket, or the eventfd of its ring, will be ready then. */
    RS_UNREAD_SENT     /* It has all. */
} rs_unread_state;
rs_unread_state rs_unread_flush(rs_group_socket *s);

/* The program gets a ring by its new socket, if it asked for one, and there is memory for it. `roomy` is called when it
 * has read, and was waited for. */
void rs_unread_ring(rs_group_socket *s, void (*roomy)(void *context, uint32_t events));
/* The program's ends of a ring: what it shares, and the descriptor by which who took of it says so. */
bool rs_unread_give(const rs_group_socket *s, int memory, int event);
/* The program has read of its ring. */
void rs_unread_woken(const rs_group_socket *s);
/* What the ring has no room for now will not come any more: what does comes by the socket. Whether there was any. */
bool rs_unread_cut(rs_group_socket *s);
void rs_unread_free(rs_group_socket *s);

#define RS_RINGS_MOST 256u /* of all programs together */

#endif
