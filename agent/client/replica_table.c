/* Rows of replicas, and their bytes (replica_table.h). */
#include "client/replica_table.h"

#include "api/group_frames.h"

#include <stdlib.h>
#include <string.h>

#define HEAD 24u
#define ROW 21u

rostrum_replica_who rostrum_replica_who_of(const char *server, uint64_t nonce) {
    rostrum_replica_who who = {.nonce = nonce};
    memcpy(who.server, server, strnlen(server, ROSTRUM_NAME_MAX));
    return who;
}

static int compare(const rostrum_replica_who *a, const rostrum_replica_who *b) {
    int order = strcmp(a->server, b->server);
    return order ? order : (a->nonce > b->nonce) - (a->nonce < b->nonce);
}

bool rostrum_replica_is(const rostrum_replica_who *a, const rostrum_replica_who *b) {
    return compare(a, b) == 0;
}

rostrum_replica_row *rostrum_replica_find(const rostrum_replica_rows *rows, const rostrum_replica_who *who) {
    for (uint32_t i = 0; i < rows->count; i++)
        if (rostrum_replica_is(&rows->rows[i].who, who))
            return &rows->rows[i];
    return NULL;
}

rostrum_replica_row *rostrum_replica_put(rostrum_replica_rows *rows, const rostrum_replica_who *who, bool sorted) {
    rostrum_replica_row *there = rostrum_replica_find(rows, who);
    if (there)
        return there;
    if (rows->count == ROSTRUM_REPLICAS_MOST)
        return NULL;
    if (rows->count == rows->room) {
        uint32_t room = rows->room ? 2 * rows->room : 8;
        rostrum_replica_row *larger = reallocarray(rows->rows, room, sizeof *larger);
        if (!larger)
            return NULL;
        rows->rows = larger;
        rows->room = room;
    }
    uint32_t at = rows->count++;
    for (; sorted && at > 0 && compare(&rows->rows[at - 1].who, who) > 0; at--)
        rows->rows[at] = rows->rows[at - 1];
    rows->rows[at] = (rostrum_replica_row){.who = *who};
    return &rows->rows[at];
}

void rostrum_replica_remove(rostrum_replica_rows *rows, const rostrum_replica_who *who) {
    rostrum_replica_row *there = rostrum_replica_find(rows, who);
    if (!there)
        return;
    size_t behind = rows->count - (size_t)(there - rows->rows) - 1;
    memmove(there, there + 1, behind * sizeof *there);
    rows->count--;
}

void rostrum_replica_rows_clear(rostrum_replica_rows *rows) {
    free(rows->rows);
    *rows = (rostrum_replica_rows){0};
}

void rostrum_replica_table_clear(rostrum_replica_table *table) {
    rostrum_replica_rows_clear(&table->holders);
    rostrum_replica_rows_clear(&table->wanting);
}

static uint8_t *put(uint8_t *at, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++)
        *at++ = (uint8_t)(value >> 8 * i);
    return at;
}

static uint8_t *put_rows(uint8_t *at, const rostrum_replica_rows *rows) {
    for (uint32_t i = 0; i < rows->count; i++) {
        const rostrum_replica_row *row = &rows->rows[i];
        size_t server = strlen(row->who.server), giver = strlen(row->giver.server);
        at = put(put(put(at, row->who.nonce, 8), row->attempt, 4), row->giver.nonce, 8);
        at = put(at, server, 1);
        memcpy(at, row->who.server, server);
        at = put(at + server, giver, 1);
        memcpy(at, row->giver.server, giver);
        at += giver;
    }
    return at;
}

uint8_t *rostrum_replica_table_write(const rostrum_replica_table *table, size_t *length) {
    size_t rows = (size_t)table->holders.count + table->wanting.count;
    uint8_t *bytes = malloc(HEAD + rows * (ROW + 1 + 2 * ROSTRUM_NAME_MAX));
    if (!bytes)
        return NULL;
    uint8_t *at = put(put(bytes, table->number, 8), table->lineage, 8);
    at = put(put(at, table->holders.count, 4), table->wanting.count, 4);
    at = put_rows(put_rows(at, &table->holders), &table->wanting);
    *length = (size_t)(at - bytes);
    return bytes;
}

/* A name behind its length; false: it is cut off, or has a NUL. */
static bool take_name(const uint8_t *bytes, size_t length, size_t *at, char name[ROSTRUM_NAME_MAX + 1]) {
    if (*at >= length)
        return false;
    size_t size = bytes[(*at)++];
    if (length - *at < size || memchr(bytes + *at, 0, size))
        return false;
    memcpy(name, bytes + *at, size);
    name[size] = 0;
    *at += size;
    return true;
}

static bool take_row(const uint8_t *bytes, size_t length, size_t *at, rostrum_replica_rows *rows, bool sorted) {
    rostrum_replica_row row = {0};
    if (length - *at < ROW)
        return false;
    row.who.nonce = rs_group_get(bytes + *at, 8);
    row.attempt = (uint32_t)rs_group_get(bytes + *at + 8, 4);
    row.giver.nonce = rs_group_get(bytes + *at + 12, 8);
    *at += ROW - 1;
    if (!take_name(bytes, length, at, row.who.server) || !take_name(bytes, length, at, row.giver.server))
        return false;
    rostrum_replica_row *into = rostrum_replica_put(rows, &row.who, sorted);
    if (into)
        *into = row;
    return into != NULL;
}

bool rostrum_replica_table_read(const uint8_t *bytes, size_t length, rostrum_replica_table *out, size_t *used) {
    *out = (rostrum_replica_table){0};
    if (length < HEAD)
        return false;
    out->number = rs_group_get(bytes, 8);
    out->lineage = rs_group_get(bytes + 8, 8);
    uint64_t holders = rs_group_get(bytes + 16, 4), wanting = rs_group_get(bytes + 20, 4);
    bool good = holders <= ROSTRUM_REPLICAS_MOST && wanting <= ROSTRUM_REPLICAS_MOST;
    *used = HEAD;
    for (uint64_t i = 0; good && i < holders + wanting; i++)
        good = take_row(bytes, length, used, i < holders ? &out->holders : &out->wanting, i < holders);
    if (!good)
        rostrum_replica_table_clear(out);
    return good;
}
