#include "core/rate/bic.h"

/* Where no other source is named: tcp_bic.c. */
/* The values of Linux's BIC (net/ipv4/tcp_bic.c), which its authors wrote. Xu et al. call them low_window, S_max, B,
 * beta and smooth_part. */
#define LOW_WINDOW 14u    /* packets: below, it grows and shrinks as Reno's */
#define MAX_INCREMENT 16u /* packets in a round trip */
#define B 4u
#define BETA 819u       /* of 1024: the window is that part of itself after a loss */
#define SMOOTH_PART 20u /* round trips from B packets below the last maximum to it */
#define LEAST 2u        /* packets, as TCP's threshold after a loss (RFC 5681, equation 4) */

void rs_bic_start(rs_bic *bic, uint32_t most) {
    most = most < LEAST ? LEAST : most;
    *bic = (rs_bic){.window = RS_BIC_FIRST < most ? RS_BIC_FIRST : most, .most = most, .slow_start_until = UINT32_MAX};
}

/* Packets for which the window grows by one: binary search for the last maximum, at most MAX_INCREMENT per window;
 * beyond it slowly at first, as the search was symmetric. */
static uint32_t packets_per_step(const rs_bic *bic) {
    uint32_t w = bic->window, last = bic->last_max;
    if (w <= LOW_WINDOW)
        return w;
    if (w < last) {
        uint32_t distance = (last - w) / B;
        if (distance > MAX_INCREMENT)
            return w / MAX_INCREMENT;
        return distance <= 1 ? w * SMOOTH_PART / B : w / distance;
    }
    if (w < last + B)
        return w * SMOOTH_PART / B;
    if (w < last + MAX_INCREMENT * (B - 1))
        return w * (B - 1) / (w - last);
    return w / MAX_INCREMENT;
}

void rs_bic_packet(rs_bic *bic) {
    if (bic->window >= bic->most)
        return;
    if (bic->window < bic->slow_start_until) {
        bic->window++;
        return;
    }
    if (++bic->came < packets_per_step(bic))
        return;
    bic->came = 0;
    bic->window++;
}

void rs_bic_loss(rs_bic *bic) {
    uint32_t w = bic->window;
    bool falling = w < bic->last_max; /* fast convergence: make room for others */
    bic->last_max = falling ? (uint32_t)((uint64_t)w * (1024 + BETA) / 2048) : w;
    w = w <= LOW_WINDOW ? w / 2 : (uint32_t)((uint64_t)w * BETA / 1024);
    bic->window = bic->slow_start_until = w < LEAST ? LEAST : w;
    bic->came = 0;
}

void rs_bic_halve(rs_bic *bic) {
    bic->window = bic->window / 2 < LEAST ? LEAST : bic->window / 2;
}
