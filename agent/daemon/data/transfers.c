/* The table of transfers, and names of things. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/agent.h"
#include "daemon/streams/streams.h"

void rs_transfers_add(rs_transfers *transfers, rs_transfer *transfer) {
    rs_transfer **bucket = &transfers->buckets[transfer->xfer % RS_TRANSFER_BUCKETS];
    rs_transfer **list = transfer->sending ? &transfers->sending : &transfers->receiving;
    transfer->next_in_bucket = *bucket;
    *bucket = transfer;
    transfer->previous = NULL;
    transfer->next = *list;
    if (*list)
        (*list)->previous = transfer;
    *list = transfer;
    transfers->count++;
}

void rs_transfers_remove(rs_transfers *transfers, rs_transfer *transfer) {
    rs_transfer **at = &transfers->buckets[transfer->xfer % RS_TRANSFER_BUCKETS];
    while (*at && *at != transfer)
        at = &(*at)->next_in_bucket;
    if (!*at)
        return;
    *at = transfer->next_in_bucket;
    if (transfer->next)
        transfer->next->previous = transfer->previous;
    if (transfer->previous)
        transfer->previous->next = transfer->next;
    else if (transfer->sending)
        transfers->sending = transfer->next;
    else
        transfers->receiving = transfer->next;
    transfers->count--;
}

rs_transfer *rs_transfers_find(const rs_transfers *transfers, rs_xfer xfer) {
    rs_transfer *transfer = transfers->buckets[xfer % RS_TRANSFER_BUCKETS];
    while (transfer && transfer->xfer != xfer)
        transfer = transfer->next_in_bucket;
    return transfer;
}

const uint8_t *rs_transfer_payload(const rs_transfer *transfer, uint64_t offset) {
    if (transfer->source)
        return rs_stream_source_at(transfer->source, offset);
    if (transfer->sink)
        return rs_stream_sink_at(transfer->sink, offset);
    return transfer->object && transfer->object->map ? transfer->object->map + offset : NULL;
}

const char *rs_id_text(const rs_object_id *id) {
    static char texts[4][48];
    static unsigned turn;
    char *text = texts[turn++ % 4];
    snprintf(text, sizeof texts[0], "%02x%02x%02x%02x/%llu", id->app[0], id->app[1], id->app[2], id->app[3],
             (unsigned long long)id->data);
    return text;
}

void rs_uuid_text(char out[RS_UUID_TEXT]) {
    uint8_t b[16] = {0};
    ssize_t got = getrandom(b, sizeof b, 0);
    (void)got; /* 16 bytes are never short once the kernel's generator is ready, and getrandom waits for that */
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    int used = 0;
    for (int i = 0; i < 16; i++)
        used += snprintf(out + used, (size_t)(RS_UUID_TEXT - used),
                         i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", b[i]);
}
