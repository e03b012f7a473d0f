/* A narrow place that two share, as a fluid in steps of a quarter of a ms: the engine `wan` (its own code for the rate,
 * agent/core/wan/congestion.h), CUBIC (RFC 9438) and BBR (its first version, as Linux has it) send through one queue
 * without an end. `rostrum sim run wan --friendly` runs it. */
#ifndef SIM_NARROW_H
#define SIM_NARROW_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_NARROW_WARM 3000 /* ms, for which the first of both is alone, if so wanted; not counted */
#define SIM_NARROW_LATE 5000 /* ms, at the end */

/* SIM_FRIENDLY, SIM_OWN: `wan` with that congestion. */
typedef enum { SIM_FRIENDLY, SIM_CUBIC, SIM_BBR, SIM_OWN } sim_narrow_kind;

typedef struct {
    double link_bps;
    double queue;       /* bytes that it takes */
    double mark;        /* packets that find more bytes there are marked (ECN); 0: none is */
    int32_t rtt_ms;     /* without a queue */
    int32_t narrows_ms; /* then its link becomes a tenth; 0: never */
    double late_ms;     /* so late, in the mean, our receiver's host takes the packet of which a status tells */
    bool unpaced;       /* CUBIC sends when it is acknowledged, as Linux's, whose slow start sends in bursts */
} sim_narrow_place;

typedef struct {
    int32_t kind;               /* a sim_narrow_kind */
    int32_t begins_ms, ends_ms; /* 0: it does not end */
} sim_narrow_flow;

typedef struct {
    double carried[2];            /* bytes of each, after SIM_NARROW_WARM */
    int32_t events[2];            /* at which a CUBIC made its window smaller since then */
    double sent_for[2];           /* bytes that each has sent since then */
    double late[2], late_sent[2]; /* bytes of each that came, and that it sent, in SIM_NARROW_LATE */
} sim_narrow_result;

#pragma GCC visibility push(default)
/* False: out of memory, or a place that is none (a round trip below 1 ms, no link, no time). */
bool sim_narrow_run(const sim_narrow_place *place, const sim_narrow_flow flows[2], int32_t seconds,
                    sim_narrow_result *out);
#pragma GCC visibility pop

#endif
