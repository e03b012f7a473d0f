/* What a program has not read yet of what its socket is to carry. */
#ifndef RS_DAEMON_GROUPS_UNREAD_H
#define RS_DAEMON_GROUPS_UNREAD_H

#include "daemon/groups/stream_state.h"

/* Room for `length` bytes behind what waits; NULL: the program reads too slowly. */
uint8_t *rs_unread_room(rs_group_socket *s, size_t length);

typedef enum {
    RS_UNREAD_GONE,    /* The program is. */
    RS_UNREAD_BLOCKED, /* It has to read first. */
    RS_UNREAD_SENT     /* It has all. */
} rs_unread_state;
rs_unread_state rs_unread_flush(rs_group_socket *s);

#endif
