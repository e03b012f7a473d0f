/* What an agent does for others of its LAN, within bounds: it hears their tests, and hands on their packets. */
#ifndef RS_DAEMON_LAN_SERVED_H
#define RS_DAEMON_LAN_SERVED_H

#include "daemon/data/data.h"
#include "daemon/lan/wire.h"

#define RS_LAN_LISTENS_MAX 64u /* tests at a time */
#define RS_LAN_RELAYS_MAX 64u  /* groups that are handed on here, at a time */

typedef struct rs_lan_served rs_lan_served;

typedef struct {
    rs_loop *loop;
    rs_data *data;
    uint32_t address; /* IPv4, host order */
    uint64_t seed;
    void *context;
    /* Sends a message; who says it is filled in by the callee. */
    void (*say)(void *context, const rs_lan_message *message, uint32_t address, uint16_t port);
} rs_lan_served_options;

/* NULL: out of memory. */
rs_lan_served *rs_lan_served_new(const rs_lan_served_options *options);
void rs_lan_served_free(rs_lan_served *served);
rs_time rs_lan_served_deadline(const rs_lan_served *served);
void rs_lan_served_timeout(rs_lan_served *served);
/* That group is handed on here. */
bool rs_lan_served_has(const rs_lan_served *served, uint32_t group);

/* Messages; those with a cookie are handed in only if it was right. */
void rs_lan_on_listen(rs_lan_served *served, const rs_lan_message *m, uint32_t from, uint16_t port);
void rs_lan_on_relay(rs_lan_served *served, const rs_lan_message *m, uint32_t from, uint16_t port);
void rs_lan_on_end(rs_lan_served *served, const rs_lan_message *m, uint32_t from);
void rs_lan_on_hop(rs_lan_served *served, const rs_lan_message *m, uint32_t from, uint16_t port);
void rs_lan_on_hop_ok(rs_lan_served *served, const rs_lan_message *m, uint32_t from);

#endif
