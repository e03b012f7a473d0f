#include "daemon/data/transfers.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

void rs_transfers_add(rs_transfers *transfers, rs_transfer_entry *transfer) {
    rs_transfer_entry **bucket = &transfers->buckets[transfer->xfer % RS_TRANSFER_BUCKETS];
    rs_transfer_entry **list = transfer->sending ? &transfers->sending : &transfers->receiving;
    transfer->next_in_bucket = *bucket;
    *bucket = transfer;
    transfer->previous = NULL;
    transfer->next = *list;
    if (*list)
        (*list)->previous = transfer;
    *list = transfer;
    transfers->count++;
}

void rs_transfers_remove(rs_transfers *transfers, rs_transfer_entry *transfer) {
    rs_transfer_entry **at = &transfers->buckets[transfer->xfer % RS_TRANSFER_BUCKETS];
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

rs_transfer_entry *rs_transfers_find(const rs_transfers *transfers, rs_xfer xfer) {
    rs_transfer_entry *transfer = transfers->buckets[xfer % RS_TRANSFER_BUCKETS];
    while (transfer && transfer->xfer != xfer)
        transfer = transfer->next_in_bucket;
    return transfer;
}

void rs_totals_add(rs_totals_of *totals, const rs_xfer_stats *stats, bool ok) {
    totals->done += ok;
    totals->failed += !ok;
    totals->bytes += stats->bytes_present;
    totals->packets_sent += stats->packets_sent;
    totals->packets_attempt += stats->packets_attempt;
    totals->packets_redundant += stats->packets_redundant;
    totals->packets_received += stats->packets_received;
    totals->packets_old += stats->packets_old;
    totals->patches_sent += stats->patches_sent;
    totals->patches_received += stats->patches_received;
    totals->repairs_sent += stats->repairs_sent;
    totals->repairs_mended += stats->repairs_mended;
    totals->repairs_received += stats->repairs_received;
    totals->repairs_used += stats->repairs_used;
    totals->lost += stats->lost;
    totals->acks_sent += stats->acks_sent;
    totals->acks_received += stats->acks_received;
    totals->peer_repairs_sent += stats->peer_repairs_sent;
    totals->peer_repairs_received += stats->peer_repairs_received;
    totals->peer_repairs_old += stats->peer_repairs_old;
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
