/* Legs that a manager told (docs/wan.md), kept for when the object comes. */
#ifndef RS_DAEMON_WAYS_H
#define RS_DAEMON_WAYS_H

#include "daemon/manager/client.h"
#include "rostrum/types.h"

/* A copy of `count` legs and all that they point to, in one piece of memory: free() gives it back. NULL: there are
 * none, or out of memory. */
rs_manager_leg *rs_ways_copy(const rs_manager_leg *legs, uint32_t count);

/* Why there are none yet: the manager is not there, or what it said that they wait for ("": nothing). */
void rs_ways_none(const rs_manager_client *link, rs_time now, const char *waits_for, char text[ROSTRUM_TEXT_MAX + 1]);

#endif
