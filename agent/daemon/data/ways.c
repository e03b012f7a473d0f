#include "daemon/data/ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *keep(char **at, const char *text) {
    size_t size = strlen(text) + 1;
    char *kept = memcpy(*at, text, size);
    *at += size;
    return kept;
}

/* In one piece: the legs, their relays, the names of their receivers, and behind them all texts. */
rs_manager_leg *rs_ways_copy(const rs_manager_leg *legs, uint32_t count) {
    size_t names = 0, texts = 0;
    for (uint32_t i = 0; i < count; i++) {
        names += legs[i].receiver_count;
        texts += strlen(legs[i].leg_id) + strlen(legs[i].site) + strlen(legs[i].reason) + 3;
        texts += legs[i].relay ? strlen(legs[i].relay->server) + 1 : 0;
        for (uint32_t k = 0; k < legs[i].receiver_count; k++)
            texts += strlen(legs[i].receivers[k]) + 1;
    }
    rs_manager_leg *copy =
        count ? malloc(count * (sizeof *copy + sizeof(rs_manager_server)) + names * sizeof(const char *) + texts)
              : NULL;
    if (!copy)
        return NULL;
    rs_manager_server *relays = (void *)(copy + count);
    const char **receivers = (void *)(relays + count);
    char *at = (void *)(receivers + names);
    for (uint32_t i = 0; i < count; i++) {
        copy[i] = legs[i];
        copy[i].leg_id = keep(&at, legs[i].leg_id);
        copy[i].site = keep(&at, legs[i].site);
        copy[i].reason = keep(&at, legs[i].reason);
        if (legs[i].relay) {
            relays[i] = *legs[i].relay;
            relays[i].server = keep(&at, legs[i].relay->server);
            copy[i].relay = &relays[i];
        }
        copy[i].receivers = receivers;
        for (uint32_t k = 0; k < legs[i].receiver_count; k++)
            *receivers++ = keep(&at, legs[i].receivers[k]);
    }
    return copy;
}

void rs_ways_none(const rs_manager_client *link, rs_time now, const char *waits_for, char text[ROSTRUM_TEXT_MAX + 1]) {
    char why[181] = "the manager did not answer";
    if (!rs_manager_up(link))
        rs_manager_describe(link, now, why, sizeof why);
    else if (waits_for[0])
        snprintf(why, sizeof why, "%s", waits_for);
    snprintf(text, ROSTRUM_TEXT_MAX + 1, "no way to all sites within the bound: %s", why);
}
