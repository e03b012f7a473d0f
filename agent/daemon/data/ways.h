/* Legs that a manager told (docs/wan.md), kept for when the object comes. */
#ifndef RS_DAEMON_WAYS_H
#define RS_DAEMON_WAYS_H

#include "daemon/manager/client.h"

/* A copy of `count` legs and all that they point to, in one piece of memory: free() gives it back. NULL: there are
 * none, or out of memory. */
rs_manager_leg *rs_ways_copy(const rs_manager_leg *legs, uint32_t count);

#endif
