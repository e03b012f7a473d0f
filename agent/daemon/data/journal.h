/* Sends that are under way, written down beside the objects on disk: an agent that was restarted, or killed, goes on
 * with them by itself. Who receives says what it kept, so that only the rest is sent.
 *
 * One file a send, "<appID>/<dataID>.send" (store/record.h), from some 100 ms after its begin to its end. At a start
 * each is looked at: the object is found on disk, or its file is added again if that is as it was (its size, the time
 * of its last change, and then its digest). What cannot go on says why, once in the log and to each server that asks
 * for the object. Receivers that are not reached are tried again at growing intervals, for a day.
 *
 * No clock and no sends of its own: the daemon gives both. */
#ifndef RS_DAEMON_JOURNAL_H
#define RS_DAEMON_JOURNAL_H

#include "daemon/store/record.h"
#include "daemon/store/store.h"

typedef struct rs_journal rs_journal;

typedef struct {
    const char *directory; /* NULL: nothing is written down, nothing goes on */
    rs_store *store;
    int64_t (*clock)(void); /* wall clock, ns: for the age of records */
    /* The file becomes an object, whose digest is taken then. NULL and `error`. */
    rs_object *(*add)(void *context, const rs_object_id *id, int fd, rs_error *error);
    /* What `add` made is of no use. */
    void (*drop)(void *context, const rs_object_id *id);
    /* Begins the send. False, with the reason (ROSTRUM_TEXT_MAX + 1 bytes): it is tried again later. */
    bool (*start)(void *context, const rs_send_record *record, rs_object *object, char *text);
    void *context;
} rs_journal_config;

/* Finds what an earlier run wrote down. NULL: out of memory, or the folder cannot be read. */
rs_journal *rs_journal_new(const rs_journal_config *config, rs_time now);
/* What is written down stays. */
void rs_journal_free(rs_journal *journal);
rs_time rs_journal_deadline(const rs_journal *journal);
void rs_journal_timeout(rs_journal *journal, rs_time now);

/* A send is under way; or more is known of it. */
void rs_journal_write(rs_journal *journal, const rs_send_record *record);
/* It is over. With `rest` it was one that went on after a restart, and is tried again for these receivers. */
void rs_journal_over(rs_journal *journal, rs_time now, const rs_object_id *id, const rs_send_record *rest);
/* Nobody wants a send that waits to go on. False: none waits. */
bool rs_journal_forget(rs_journal *journal, const rs_object_id *id);
/* Why a send of that object did not go on after the restart; NULL: none that did not. */
const char *rs_journal_why(const rs_journal *journal, const rs_object_id *id);

#endif
