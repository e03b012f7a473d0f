/* Sections at the sender (Sec. V: packets grouped to sections, NACKs buffered): who misses what of each section that
 * is not freed yet, when that is repaired, and by which packets. */
#ifndef RS_CORE_WAN_SECTIONS_H
#define RS_CORE_WAN_SECTIONS_H

#include "core/base/list.h"
#include "core/base/memory.h"
#include "core/wan/wire.h"

/* Receivers are told apart by bits of a word; of more than these some share a bit, and all repairs go by multicast. */
#define RS_WAN_BITS 64 /* docs/wan.md */

typedef enum { RS_WAN_MULTICAST, RS_WAN_UNICAST, RS_WAN_CODED } rs_wan_repair;

/* A section of which something is missing. */
typedef struct {
    rs_list listed;   /* Its place among those that gather NACKs, or among those that are being repaired. */
    uint64_t number;  /* Its first fragment is that times RS_WAN_SECTION. */
    rs_time ready_at; /* NACKs are gathered until then. */
    rs_wan_repair by; /* How it is repaired, once it is. */
    uint32_t missing; /* Fragments that somebody misses, */
    uint32_t misses;  /* and how many misses that are, of all receivers together. */
    uint32_t at;      /* The next one to be looked at. */
    uint64_t who[RS_WAN_SECTION];
} rs_wan_section;

/* A packet that repairs. */
typedef struct {
    uint64_t sn;                       /* The first fragment of it. */
    uint32_t count;                    /* 1, or of a coded one the fragments whose XOR it is... */
    uint64_t member[RS_REPAIR_SPARSE]; /* ...in increasing order. */
    bool unicast;                      /* It goes by unicast, */
    uint32_t bit;                      /* to the receiver of that bit. */
} rs_wan_mend;

#define RS_WAN_MENDED 64 /* sections of which is known what went out for all (a bound) */

/* What went for all of a section. */
typedef struct {
    uint64_t of;                     /* That section's number + 1; 0: none's. */
    rs_time at;                      /* The last of it went then. */
    uint8_t map[RS_WAN_SECTION / 8]; /* A bit of each fragment that did. */
} rs_wan_mended;

typedef struct {
    rs_list gathering;     /* Sections of which NACKs are gathered, */
    rs_list ready;         /* and those that are being repaired. */
    rs_wan_section **open; /* By number; NULL: nothing is missing. */
    uint64_t count;        /* The object has so many. */
    uint64_t freed;        /* All before are freed: nobody needs them from here. */
    uint32_t receivers;
    bool coded;            /* Repairs may be coded. */
    rs_time moot;          /* A NACK that comes so soon after what it names went for all was said before that came. */
    rs_wan_mended *mended; /* RS_WAN_MENDED of them, by number; NULL: NACKs are not `merged`, which come late. */
    rs_time gather;        /* From the first NACK of a section to its repair. */
    uint64_t by_multicast; /* So many sections were repaired by multicast so far, */
    uint64_t by_unicast;   /* and so many by unicast. */
} rs_wan_sections;

bool rs_wan_sections_start(rs_wan_sections *s, const rs_allocator *allocator, uint64_t fragments, uint32_t receivers);
/* From now on a NACK may speak for several receivers. False: out of memory. */
bool rs_wan_sections_merge(rs_wan_sections *s, const rs_allocator *allocator);
void rs_wan_sections_free(rs_wan_sections *s, const rs_allocator *allocator);
/* A receiver's NACK of a section that is not freed: notes it. False: out of memory, it will ask again. */
bool rs_wan_sections_nack(rs_wan_sections *s, const rs_allocator *allocator, rs_time now, uint32_t receiver,
                          const rs_wan_nack *nack);
/* Sections before `number` are needed by nobody. */
void rs_wan_sections_release(rs_wan_sections *s, const rs_allocator *allocator, uint64_t number);
/* When the next one is due; RS_NEVER: none. */
rs_time rs_wan_sections_due(const rs_wan_sections *s, rs_time now);
/* The next packet that repairs; false: none is due. */
bool rs_wan_sections_mend(rs_wan_sections *s, const rs_allocator *allocator, rs_time now, rs_wan_mend *out);

#endif
