#include "daemon/data/repairers.h"

#include <stdio.h>
#include <stdlib.h>

#include "daemon/store/digest.h"

void rs_repairers_note(rs_repairers **of, uint64_t size, rs_peer peer, uint64_t offset, uint32_t length) {
    const uint64_t count = (size + RS_DIGEST_CHUNK - 1) / RS_DIGEST_CHUNK;
    if (length == 0)
        return;
    if (!*of) {
        *of = malloc(count * RS_REPAIRERS * sizeof **of);
        for (uint64_t i = 0; *of && i < count * RS_REPAIRERS; i++)
            (*of)[i] = RS_NO_PEER;
    }
    for (uint64_t chunk = offset / RS_DIGEST_CHUNK; *of && chunk <= (offset + length - 1) / RS_DIGEST_CHUNK; chunk++) {
        rs_peer *its = *of + chunk * RS_REPAIRERS;
        uint32_t i = 0;
        while (i < RS_REPAIRERS && its[i] != RS_NO_PEER && its[i] != peer)
            i++;
        if (i < RS_REPAIRERS)
            its[i] = peer;
    }
}

const char *rs_repairers_take(const rs_peers *peers, rs_repairers *of, uint64_t chunk, char text[RS_REPAIRERS_TEXT]) {
    rs_peer *its = of ? of + chunk * RS_REPAIRERS : NULL;
    size_t used = 0;
    snprintf(text, RS_REPAIRERS_TEXT, "nobody");
    for (uint32_t i = 0; its && i < RS_REPAIRERS && its[i] != RS_NO_PEER && used < RS_REPAIRERS_TEXT; i++) {
        int more =
            snprintf(text + used, RS_REPAIRERS_TEXT - used, "%s%.40s", i ? "," : "", rs_peers_name(peers, its[i]));
        used += more > 0 ? (size_t)more : 0;
        its[i] = RS_NO_PEER;
    }
    return text;
}
