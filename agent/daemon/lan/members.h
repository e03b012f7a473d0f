/* The receivers of a path on a LAN: how each is reached, and what is said of them. No clock, no sockets. */
#ifndef RS_DAEMON_LAN_MEMBERS_H
#define RS_DAEMON_LAN_MEMBERS_H

#include "daemon/lan/peers.h"
#include "daemon/manager/client.h"

#define RS_LAN_NOBODY (-1)

typedef struct {
    char name[RS_MANAGER_NAME_MAX + 1]; /* as the request has it */
    rs_lan_known peer;                  /* as it was found, */
    rs_lan_known *place;                /* and where among all; NULL: not found */
    bool decided, direct;               /* multicast reaches it */
    bool listening;
    uint8_t small, full; /* test packets it heard */
    /* as part of the tree of relays */
    bool involved, ready, gone;
    uint16_t relay_port; /* by which it takes packets; 0 = not known */
    int32_t next;        /* whom it hands on to */
    rs_time heard;
} rs_lan_member;

/* One copy leaves each NIC: those that multicast reaches hand on to the others, each to one, and these to one each.
 * If it reaches nobody, the sender hands on to the first, `head`. False: nobody has to. */
bool rs_lan_members_plan(rs_lan_member *members, uint32_t count, rs_time now, int32_t *head);
/* All that hand on know to whom. */
bool rs_lan_members_ready(const rs_lan_member *members, uint32_t count);
/* Those that were found alone are left, if any was. */
bool rs_lan_members_found(rs_lan_member *members, uint32_t *count);
/* Two of them are one agent: `text` says which. */
bool rs_lan_members_twice(const rs_lan_member *members, uint32_t count, char *text, size_t size);

/* How they are reached; why those that hand on did not get ready; who was not found. */
void rs_lan_members_describe(const rs_lan_member *members, uint32_t count, char *text, size_t size);
void rs_lan_members_unready(const rs_lan_member *members, uint32_t count, char *text, size_t size);
void rs_lan_members_absent(const rs_lan_member *members, uint32_t count, uint16_t data_port, char *text, size_t size);

#endif
