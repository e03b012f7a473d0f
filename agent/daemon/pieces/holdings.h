/* What whole objects are here, told to the manager: all of them on each connection, then what came and went, in batches
 * at most every 0.1 s. And its orders to send one of them to servers that fetch it together. */
#ifndef RS_PIECES_HOLDINGS_H
#define RS_PIECES_HOLDINGS_H

#include "daemon/agent.h"

typedef struct rs_holdings rs_holdings;

/* NULL: out of memory. */
rs_holdings *rs_holdings_new(rs_agent *agent);
void rs_holdings_free(rs_holdings *holdings);
rs_time rs_holdings_deadline(const rs_holdings *holdings);
void rs_holdings_timeout(rs_holdings *holdings);
void rs_holdings_link_changed(rs_holdings *holdings);
/* The manager is there, and wants to be told: it can be asked, too. */
bool rs_holdings_wanted(const rs_holdings *holdings);
/* An object is there: told at once, if the manager can be. */
void rs_holdings_tell(rs_holdings *holdings, const rs_object *object);
/* A program's name for an object, which may be on its way: the manager is told. */
void rs_holdings_name_api(void *agent, const rs_object_id *id, const char *name);
/* The store's report: an object that was told is not here any more. */
void rs_holdings_gone(rs_holdings *holdings, const rs_object_id *id);
void rs_holdings_link(const rs_agent *agent, rs_manager_options *options, rs_manager_callbacks *callbacks);

#endif
