/* The table of who has a group's state and who wants it, as another replica sent it in front of the state: any bytes.
 * What is read can be written, and is read alike. */
#include <stdlib.h>
#include <string.h>

#include "client/replica_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool true_then) {
    if (!true_then)
        abort();
}

static void same(const rostrum_replica_rows *a, const rostrum_replica_rows *b) {
    must(a->count == b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        must(strlen(a->rows[i].who.server) <= ROSTRUM_NAME_MAX && strlen(a->rows[i].giver.server) <= ROSTRUM_NAME_MAX);
        must(rostrum_replica_is(&a->rows[i].who, &b->rows[i].who) && a->rows[i].attempt == b->rows[i].attempt);
        must(rostrum_replica_is(&a->rows[i].giver, &b->rows[i].giver));
        must(rostrum_replica_find(a, &a->rows[i].who) == &a->rows[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rostrum_replica_table table, again;
    size_t used = 0, length = 0, used_again = 0;
    uint8_t *exact = malloc(size ? size : 1); /* a read behind it is seen */
    if (!exact)
        return 0;
    if (size)
        memcpy(exact, data, size);
    if (rostrum_replica_table_read(exact, size, &table, &used)) {
        must(used <= size && table.holders.count <= ROSTRUM_REPLICAS_MOST &&
             table.wanting.count <= ROSTRUM_REPLICAS_MOST);
        uint8_t *bytes = rostrum_replica_table_write(&table, &length);
        must(bytes && length <= used && rostrum_replica_table_read(bytes, length, &again, &used_again));
        must(used_again == length && again.number == table.number && again.lineage == table.lineage);
        same(&table.holders, &again.holders);
        same(&table.wanting, &again.wanting);
        free(bytes);
        rostrum_replica_table_clear(&again);
    }
    rostrum_replica_table_clear(&table);
    free(exact);
    return 0;
}
