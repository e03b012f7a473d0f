/* Who of a group's replicas has the state and who wants it, and its bytes in front of a state (those of
 * rostrum.client.Replica):
 *
 *     u64 number, u64 lineage, u32 holders, u32 wanting      little-endian
 *     holders + wanting times: u64 nonce, u32 attempt, u64 the giver's nonce, u8 length, its server's name,
 *                              u8 length, the giver's server's name
 */
#ifndef ROSTRUM_CLIENT_REPLICA_TABLE_H
#define ROSTRUM_CLIENT_REPLICA_TABLE_H

#include <rostrum/types.h>

#define ROSTRUM_REPLICAS_MOST 4096u /* rows of one kind: more than a group has members */

/* A replica. */
typedef struct {
    uint64_t nonce;                    /* its own, of this time that it joined; 0: any of that server */
    char server[ROSTRUM_NAME_MAX + 1]; /* its server's name */
} rostrum_replica_who;

typedef struct {
    rostrum_replica_who who;   /* whose row it is */
    rostrum_replica_who giver; /* of one that wants the state: who is to give it; "" none */
    uint32_t attempt;          /* of one that wants the state: how often it has asked */
} rostrum_replica_row;

typedef struct {
    rostrum_replica_row *rows;
    uint32_t count, room;
} rostrum_replica_rows;

typedef struct {
    uint64_t number;              /* messages before this point of the stream */
    uint64_t lineage;             /* of the state: the number of the CLAIM that it began with */
    rostrum_replica_rows holders; /* sorted by server, nonce */
    rostrum_replica_rows wanting; /* in the order in which they asked */
} rostrum_replica_table;

bool rostrum_replica_is(const rostrum_replica_who *a, const rostrum_replica_who *b);
/* `server` is cut at ROSTRUM_NAME_MAX bytes. */
rostrum_replica_who rostrum_replica_who_of(const char *server, uint64_t nonce);

/* NULL: it is not there. */
rostrum_replica_row *rostrum_replica_find(const rostrum_replica_rows *rows, const rostrum_replica_who *who);
/* The row that is there, or a new one: where it belongs by server and nonce, or (not `sorted`) behind all. NULL: there
 * are ROSTRUM_REPLICAS_MOST already, or there is no memory. */
rostrum_replica_row *rostrum_replica_put(rostrum_replica_rows *rows, const rostrum_replica_who *who, bool sorted);
void rostrum_replica_remove(rostrum_replica_rows *rows, const rostrum_replica_who *who);
void rostrum_replica_rows_clear(rostrum_replica_rows *rows);
void rostrum_replica_table_clear(rostrum_replica_table *table);

/* Memory of malloc; NULL: there is none. */
uint8_t *rostrum_replica_table_write(const rostrum_replica_table *table, size_t *length);
/* Fills `out`, which is empty, to be cleared; `used` bytes are before the state. False: it is malformed, or memory is
 * short; `out` is empty. */
bool rostrum_replica_table_read(const uint8_t *bytes, size_t length, rostrum_replica_table *out, size_t *used);

#endif
