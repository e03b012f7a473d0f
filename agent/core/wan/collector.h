/* A receiver's part in the tree by which NACKs go up where there are many (docs/wan.md, "Many receivers"): what those
 * below it miss of a section goes on with what it misses itself, in one NACK. It knows no node and no transfer. */
#ifndef RS_CORE_WAN_COLLECTOR_H
#define RS_CORE_WAN_COLLECTOR_H

#include "core/base/types.h"
#include "core/wan/wire.h"

#define RS_WAN_COLLECTED 16u /* sections at once (a bound): of more their receivers ask the sender */

/* What others miss of a section. */
typedef struct {
    uint64_t section;                /* Its number. */
    rs_time due;                     /* It goes on then at the latest; RS_NEVER: when the section is over here. */
    uint32_t receivers;              /* So many miss something of it; 0: nothing is kept here. */
    uint8_t map[RS_WAN_SECTION / 8]; /* A bit of each fragment that is missed. */
} rs_wan_collected;

typedef struct {
    rs_peer parent;                      /* Its NACKs go there; RS_NO_PEER: to the sender. */
    uint32_t height;                     /* Levels below. */
    uint32_t silent;                     /* So many NACKs in a row brought nothing by way of the parent. */
    rs_time alone_until;                 /* Then it is tried again; until then NACKs go to the sender. */
    rs_time answer;                      /* So long after a NACK by way of the parent something came of it, of late. */
    rs_time late;                        /* NACKs of those below come so long after a section is over here. */
    uint64_t ended;                      /* So many sections are over here, */
    rs_time ended_at[RS_WAN_COLLECTED];  /* the last ones of them at these times, by number. */
    uint32_t child_count;                /* So many say their NACKs here: */
    rs_peer children[RS_REPORT_TO_MOST]; /* these. */
    rs_wan_collected sections[RS_WAN_COLLECTED]; /* In no order. */
} rs_wan_collector;

bool rs_wan_collects_from(const rs_wan_collector *c, rs_peer peer);
/* NACKs may go to the parent now. */
bool rs_wan_has_parent(const rs_wan_collector *c, rs_time now);
/* Whether a NACK that went to the parent brought anything. */
void rs_wan_parent_was(rs_wan_collector *c, rs_time now, bool useful, rs_time grtt);
void rs_wan_parent_answered(rs_wan_collector *c, rs_time after, rs_time grtt);
/* How long to wait for the NACKs of those below once a section is over; 0: nobody is. */
rs_time rs_wan_collect_time(const rs_wan_collector *c, rs_time grtt);
/* That section is over here, the ones before were. */
void rs_wan_collect_over(rs_wan_collector *c, rs_time now, uint64_t section, rs_time grtt);
/* A NACK of one below, which speaks for so many. When it goes on: rs_wan_collect_due. */
void rs_wan_collect(rs_wan_collector *c, rs_time now, const rs_wan_nack *nack, uint32_t receivers, rs_time grtt);
rs_time rs_wan_collect_due(const rs_wan_collector *c);
/* What is kept of that section; NULL: nothing. Of any section that is due: rs_wan_collected_due. To forget it:
 * `receivers` 0. */
rs_wan_collected *rs_wan_collected_of(rs_wan_collector *c, uint64_t section);
rs_wan_collected *rs_wan_collected_due(rs_wan_collector *c, rs_time now);
/* A NACK of the fragments in a map of a section; bits 0: there are none. */
void rs_wan_nack_of(uint64_t section, const uint8_t map[RS_WAN_SECTION / 8], rs_wan_nack *out);

#endif
