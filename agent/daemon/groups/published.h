/* What programs send: frames from their sockets (stream.h), or from rings that they share with the agent
 * (api/shared_ring.h): then the socket only wakes it. */
#ifndef RS_DAEMON_GROUPS_PUBLISHED_H
#define RS_DAEMON_GROUPS_PUBLISHED_H

#include "daemon/groups/stream_state.h"

/* What has come already: as much as the engine takes. False: the program does not keep to the format. */
bool rs_published_take(rs_group_socket *s);
/* The socket is readable. False, also: the program is gone. */
bool rs_published_read(rs_group_socket *s);
/* The program gets a ring by its new socket, if it asked for one, and there is memory for it. */
void rs_published_ring(rs_group_socket *s);
void rs_published_free(rs_group_socket *s);

#endif
