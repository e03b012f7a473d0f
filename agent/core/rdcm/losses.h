/* Which losses on the tree tell of congestion (Sec. 3.5: "Packet loss is used as the signal for congestion"), and which
 * come whatever is sent: those a receiver finds at half its window, too. */
#ifndef RS_CORE_RDCM_LOSSES_H
#define RS_CORE_RDCM_LOSSES_H

#include "core/rate/bic.h"

typedef struct {
    uint64_t sent, lost; /* packets */
    uint64_t gaps;       /* losses in a row are one */
} rs_loss_tally;

typedef struct {
    uint64_t counted;               /* one past the highest sn that counts so far */
    uint64_t recover;               /* what was lost below belongs to a window that was cut already */
    rs_loss_tally usual;            /* at half the window, where that is what is always lost */
    rs_loss_tally recent;           /* since the last trial */
    uint64_t round_end, round_lost; /* about a window */
    /* a trial: half the window for so many packets; 0 = none */
    uint64_t trial_packets;
    rs_loss_tally trial;
    rs_bic before;
    uint64_t rest;      /* packets until the next one may be */
    uint32_t doublings; /* doublings of that */
} rs_losses;

/* Packets below `top` went by. True if a trial ended, and the window is another. */
bool rs_losses_passed(rs_losses *l, rs_bic *bic, uint64_t top);
/* [from, to) was lost. `flight_end`: what may be under way already, which a smaller window does not hold back;
 * `limits`: this window is what holds the sender. True if the window was cut. */
bool rs_losses_lost(rs_losses *l, rs_bic *bic, uint64_t from, uint64_t to, uint64_t flight_end, bool limits);

#endif
