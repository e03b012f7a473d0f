/* What programs send: frames from their sockets (stream.h). */
#ifndef RS_DAEMON_GROUPS_PUBLISHED_H
#define RS_DAEMON_GROUPS_PUBLISHED_H

#include "daemon/groups/stream_state.h"

/* What has come already: as much as the engine takes. False: the program does not keep to the format. */
bool rs_published_take(rs_group_socket *s);
/* The socket is readable. False, also: the program is gone. */
bool rs_published_read(rs_group_socket *s);
void rs_published_free(rs_group_socket *s);

#endif
