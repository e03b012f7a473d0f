/* Which losses on the tree tell of congestion (Sec. 3.5: "Packet loss is used as the signal for congestion"), and which
 * come whatever is sent: those a receiver finds at half its window, too. */
#ifndef RS_CORE_RDCM_LOSSES_H
#define RS_CORE_RDCM_LOSSES_H

#include "core/rate/bic.h"

typedef struct {
    uint64_t sent; /* So many packets went by, */
    uint64_t lost; /* of which so many were lost, */
    uint64_t gaps; /* in so many runs. */
} rs_loss_tally;

typedef struct {
    uint64_t counted;       /* One past the highest sn that counts so far. */
    uint64_t recover;       /* What was lost below belongs to a window that was cut already. */
    rs_loss_tally usual;    /* That is lost at half the window, where it is what is always lost. */
    rs_loss_tally recent;   /* Since the last trial. */
    uint64_t round_end;     /* The present round, of about a window, ends there, */
    uint64_t round_lost;    /* and has lost so many packets. */
    uint64_t trial_packets; /* Half the window is tried for so many packets; 0: there is no trial. */
    rs_loss_tally trial;    /* It has shown that. */
    rs_bic before;          /* The window was that before it. */
    uint64_t rest;          /* So many packets go until the next one may be. */
    uint32_t doublings;     /* That was doubled so often. */
} rs_losses;

/* Packets below `top` went by. True if a trial ended, and the window is another. */
bool rs_losses_passed(rs_losses *l, rs_bic *bic, uint64_t top);
/* [from, to) was lost. `flight_end`: what may be under way already, which a smaller window does not hold back;
 * `limits`: this window is what holds the sender. True if the window was cut. */
bool rs_losses_lost(rs_losses *l, rs_bic *bic, uint64_t from, uint64_t to, uint64_t flight_end, bool limits);

#endif
