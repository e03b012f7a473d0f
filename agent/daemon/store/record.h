/* What is written down of a send that is under way, so that an agent that was restarted can go on with it. Bytes only,
 * no I/O. A record is never believed: the file that it names is looked at again (data/journal.c).
 *
 * Integers are little-endian; strings have their length (16 bits) before them; a check at the end shows a torn write.
 */
#ifndef RS_STORE_RECORD_H
#define RS_STORE_RECORD_H

#include "core/base/types.h"

#define RS_SEND_RECORD_MOST (256u << 10) /* bytes: names of receivers are 192 KiB at most */

/* Where the bytes of the object lie. */
typedef enum {
    RS_SENT_FROM_FILE = 1, /* of a program, by its path */
    RS_SENT_FROM_STORE,    /* on the disk of this store */
    RS_SENT_FROM_MEMORY    /* they end with the agent */
} rs_sent_from;

typedef struct {
    rs_object_id id;
    uint64_t size;
    rs_digest root; /* length 0: it is not known yet */
    rs_sent_from from;
    int64_t changed_ns; /* when the file was changed last, wall clock */
    int64_t began_ns;   /* when the send began, wall clock */
    uint32_t wait_ms;
    uint8_t protocol, stragglers;      /* rostrum_protocol, rostrum_straggler_policy */
    const char *path, *name, *options; /* "": none */
    uint32_t receiver_count;
    const char *const *receivers;
} rs_send_record;

/* Its bytes, to be freed by the caller. 0: out of memory, or it is none that can be read again. */
size_t rs_send_record_put(const rs_send_record *record, uint8_t **out);
/* Strings and all in one piece of memory, to be freed by the caller. NULL: these bytes are no record, and `why` says it
 * as text. */
rs_send_record *rs_send_record_take(const uint8_t *bytes, size_t length, const char **why);

#endif
