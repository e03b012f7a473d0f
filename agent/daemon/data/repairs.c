#include "daemon/data/repairs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROOM 256u         /* packets; no look at the data channel brings more */
#define EACH (64u * 1024) /* bytes of address space; what is not touched costs no memory */
#define MORE (RS_REPAIR_HEADER - RS_DATA_HEADER)

typedef struct {
    rs_group group;
    uint8_t header[RS_DATA_HEADER];
    uint32_t rest;
} taken;

struct rs_repairs {
    uint8_t *memory;
    unsigned count, next;
    taken packets[ROOM];
};

rs_repairs *rs_repairs_new(void) {
    rs_repairs *repairs = calloc(1, sizeof *repairs);
    if (!repairs)
        return NULL;
    void *memory =
        mmap(NULL, (size_t)ROOM * EACH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        free(repairs);
        return NULL;
    }
    repairs->memory = memory;
    return repairs;
}

void rs_repairs_free(rs_repairs *repairs) {
    if (!repairs)
        return;
    munmap(repairs->memory, (size_t)ROOM * EACH);
    free(repairs);
}

uint8_t *rs_repairs_take(rs_repairs *repairs, rs_group group, const uint8_t *header, uint32_t rest) {
    if (repairs->count == ROOM || rest < MORE || rest > EACH)
        return NULL;
    taken *packet = &repairs->packets[repairs->count];
    packet->group = group;
    packet->rest = rest;
    memcpy(packet->header, header, RS_DATA_HEADER);
    return repairs->memory + (size_t)repairs->count++ * EACH;
}

bool rs_repairs_next(rs_repairs *repairs, rs_repair_packet *out) {
    if (repairs->next == repairs->count) {
        repairs->next = repairs->count = 0;
        return false;
    }
    const taken *packet = &repairs->packets[repairs->next];
    const uint8_t *rest = repairs->memory + (size_t)repairs->next++ * EACH;
    out->group = packet->group;
    memcpy(out->header, packet->header, RS_DATA_HEADER);
    memcpy(out->header + RS_DATA_HEADER, rest, MORE);
    out->payload = rest + MORE;
    out->payload_length = packet->rest - MORE;
    return true;
}
