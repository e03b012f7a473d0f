/* The agent's object store: files in one tmpfs folder, keyed by (appID, dataID), within a quota (Republic, Sec.
 * III-A2).
 *
 * Received objects may lie on disk instead (rs_store_config.disk): these, and pieces of them, are found again at the
 * next start. There every piece is digested again before anybody is shown it.
 *
 * An object is BUILDING (an unnamed file: nobody can read what is half written, and a crash leaves nothing) and then
 * COMPLETE (named <store>/<appID>/<dataID>, mode 0440, and immutable by contract; an added file from elsewhere keeps
 * its
 * own name). Everything the store keeps alive counts against the quota, files that an application added from elsewhere
 * too. Not thread-safe: the daemon's loop owns it.
 *
 * Receiving:  rs_store_receive -> (rs_store_ensure, write into object->map)* -> rs_store_commit | rs_store_discard
 * Sending:    rs_store_find or rs_store_add -> rs_store_hold -> (send from object->map)* -> rs_store_release
 * Only sockets may read the map of an object that is not `private_file`: an application may still hold a writable
 * descriptor and shorten the file, which makes sendmsg fail with EFAULT (end the transfer with the reason) but would
 * kill a process that touches the memory itself. */
#ifndef RS_STORE_H
#define RS_STORE_H

#include <sys/types.h>

#include "api/error.h"
#include "core/base/types.h"
#include "daemon/store/manifest.h"
#include "daemon/store/pieces.h"

#define RS_STORE_PATH_SIZE 4200 /* a folder, a UUID and a number */

typedef struct rs_store rs_store;

typedef enum {
    RS_OBJECT_CREATED,   /* an application is writing it; no id yet */
    RS_OBJECT_RECEIVING, /* a transfer is writing it */
    RS_OBJECT_DIGESTING, /* added; its digest is being taken */
    RS_OBJECT_COMPLETE,
    RS_OBJECT_CHECKING, /* found on disk at the start: its pieces are being digested again */
    RS_OBJECT_PARTIAL   /* on disk: some pieces are here, and no transfer brings others at present */
} rs_object_phase;

/* Read-only for everyone but store.c, except `owner`, `told`, `added_again` and what is evict.c's. */
typedef struct rs_object {
    rs_object_id id;
    uint64_t size;
    rs_object_phase phase;
    rs_digest digest; /* algorithm 0 = not known yet */
    uint8_t *leaves;  /* digests of its chunks (daemon/store/digest.h), while it is here; NULL: not known */
    uint64_t leaf_count;
    rs_pieces *pieces; /* of one that is not whole: which of them are here (pieces.h); NULL: nobody counts them */
    bool on_disk;      /* it outlives the agent */
    uint8_t *map;      /* MAP_SHARED; writable while RECEIVING, else read-only in meaning; NULL if size is 0 */
    int fd;
    bool private_file;     /* no application ever had a writable descriptor of it */
    bool received;         /* by rs_store_receive */
    uint32_t holds;        /* transfers using it */
    uint64_t sent;         /* bytes before were sent to somebody, but for gaps */
    uint64_t owner;        /* of a CREATED or DIGESTING one: the client it goes away with; 0 = nobody */
    uint64_t handle;       /* names a CREATED one */
    bool pinned;           /* it does not go when room is made */
    rs_time goes_at;       /* evict.c: then it goes, to make room; 0: it stays */
    int64_t told_going_at; /* evict.c: since when, as rs_store_read_at */
    char *name;            /* by which a program knows it; NULL: by its number */
    bool told;             /* somebody was told that it is here, and hears of its end (rs_store_config.gone) */
    bool added_again;      /* after a restart, by the agent: a program that adds the same file takes it over */
    struct rs_object_private *internal;
} rs_object;

typedef struct {
    const char *directory;
    uint64_t quota_bytes;   /* 0 = what the tmpfs holds */
    uint32_t max_objects;   /* 0 = 4096 */
    uint64_t reserve_bytes; /* kept ready in the folder, besides what objects use (reserve.h); 0 = none */
    bool has_group;         /* objects are `group`'s to read, else that of the process */
    uint32_t group;
    bool by_grant;             /* or the owner's alone, but for users to whom their paths are given */
    const char *disk;          /* folder for received objects on disk; NULL: all are in memory */
    uint64_t disk_from;        /* received objects of so many bytes or more go there */
    uint64_t disk_quota_bytes; /* 0 = what the disk has */
    /* Something a person may want to know (an object found on disk, files that are none); may be NULL. */
    void (*log)(void *context, const char *text);
    /* An object with `told` goes; may be NULL. */
    void (*gone)(void *context, const rs_object_id *id);
    void *context;
    rs_time evict_notice; /* room is made by this time after something did not fit (evict.h); 0: by nobody */
} rs_store_config;

/* Opens the folder (it must exist, on tmpfs, used by no other agent) and clears objects that an earlier run left. Names
 * in it are application ids, which are the right to the objects: it gets mode 0710, so that only its owner can list it
 * and the group can read what it knows the name of. NULL and `error` otherwise. */
rs_store *rs_store_open(const rs_store_config *config, rs_error *error);
/* Objects' names are removed; descriptors and mappings others hold stay valid. */
void rs_store_close(rs_store *store);

/* Frees up to `max_bytes` (at least 2 MiB) of what deleted and discarded objects left behind (with small pages some
 * 0.15 ms per MiB); true if there is more. */
bool rs_store_work(rs_store *store, uint64_t max_bytes);

/* Makes up to `max_bytes` of the reserve ready; true if there is more to do. */
bool rs_store_prepare(rs_store *store, uint64_t max_bytes);
bool rs_store_prepared(const rs_store *store);
uint64_t rs_store_in_reserve(const rs_store *store); /* bytes */

uint64_t rs_store_used(const rs_store *store); /* bytes of memory, whole pages */
uint64_t rs_store_quota(const rs_store *store);
uint64_t rs_store_disk_used(const rs_store *store);
uint64_t rs_store_disk_quota(const rs_store *store); /* 0: there is no folder on disk */
/* Digests up to `max_pieces` pieces of objects found on disk. An object that is done with it is COMPLETE or PARTIAL
 * then, and told by `*done` (NULL: none is). True: there is more to do. */
bool rs_store_check_step(rs_store *store, uint32_t max_pieces, rs_object **done);
/* Wall-clock nanoseconds, for order only, which a clock that is set back does not change: of the last read (or its
 * coming), and now. */
int64_t rs_store_read_at(const rs_object *object);
int64_t rs_store_clock(void);
/* The most bytes that something lacked, since the last call. */
uint64_t rs_store_take_lacking(rs_store *store, bool disk);
/* How many objects there are, and how many there may be; bytes that one takes of its quota. */
uint32_t rs_store_count(const rs_store *store);
uint32_t rs_store_most(const rs_store *store);
uint64_t rs_store_takes(const rs_object *object);
const char *rs_store_directory(const rs_store *store);

/* NULL if there is none by that id in any phase but CREATED. */
rs_object *rs_store_find(const rs_store *store, const rs_object_id *id);
/* All objects, in no order: *cursor starts at 0; NULL at the end. The store must not change between calls. */
rs_object *rs_store_next(const rs_store *store, uint32_t *cursor);

/* A file for an application to write into: rs_store_allocate_step until nothing is left to do, then rs_store_writer_fd.
 * Errors: NO_ROOM, LIMIT, INVALID (size), IO. */
rs_object *rs_store_create(rs_store *store, uint64_t size, uint64_t owner, rs_error *error);
rs_object *rs_store_find_created(const rs_store *store, uint64_t handle);

/* An application says that `fd` is the object `id`: `fd` is a file of rs_store_create (then the object changes its
 * phase, and its size is the file's present size), or any regular tmpfs file or memfd (kept by a descriptor of the
 * store's own; the caller keeps `fd`). The result is DIGESTING. Errors: EXISTS, INVALID (not tmpfs, not regular,
 * changed its size...), NO_ROOM, LIMIT, IO. */
rs_object *rs_store_add(rs_store *store, const rs_object_id *id, int fd, uint64_t owner, rs_error *error);
/* Does it lie in that file? */
bool rs_store_is_file(const rs_object *object, int fd);
/* Takes over the digests of the object's chunks, which were allocated by malloc. */
void rs_store_keep_leaves(rs_object *object, uint8_t *leaves, uint64_t count);
/* DIGESTING -> COMPLETE. */
bool rs_store_added(rs_store *store, rs_object *object, const rs_digest *digest, rs_error *error);

/* A file for a transfer to write into, with a hold on it. The room is reserved; of a big object only the beginning is
 * allocated at once, since with small pages that takes 0.25 ms per MiB: rs_store_allocate_step does the rest, a piece
 * at a time. Errors: EXISTS (whole, or already being received), NO_ROOM, LIMIT, INVALID, IO. */
rs_object *rs_store_receive(rs_store *store, const rs_object_id *id, uint64_t size, rs_error *error);
/* The same, counting pieces: on disk if the store has one for objects of that size, else in memory. One that is PARTIAL
 * is taken up where it was, if `what` can be the same object; else EXISTS. */
rs_object *rs_store_receive_pieces(rs_store *store, const rs_manifest *what, rs_error *error);
/* Is `object`, PARTIAL, the beginning of that one? */
bool rs_store_resumes(const rs_object *object, const rs_manifest *what);
/* A piece is in its place, with that digest: false if the piece was here, or has another digest. What is on disk goes
 * there, and leaves memory after a while. The second: it is not (any more). */
bool rs_store_piece_came(rs_object *object, uint64_t piece, const uint8_t *leaf);
void rs_store_piece_gone(rs_object *object, uint64_t piece);
/* The digest of the whole object became known. False: pieces here are of another one. */
bool rs_store_root_known(rs_object *object, const rs_digest *root);
/* RECEIVING -> PARTIAL, and the transfer's hold is released: what came of it stays, on disk. False: there is nothing to
 * keep, or it is in memory; discard it. */
bool rs_store_keep(rs_object *object);
/* What a partial object is, by its manifest. NULL: not on disk. */
const rs_manifest *rs_store_manifest(const rs_object *object);
/* Who sent or gave it, or does just now: `from` of the result. NULL: not known. */
const rs_manifest *rs_store_origin(const rs_object *object);
/* Bytes from `offset` on are about to be read in order: of one on disk, what follows is fetched ahead. */
void rs_store_read_ahead(rs_object *object, uint64_t offset);
/* Bytes were read in order by who reads them once: what the kernel needs for a mapping of them is given back. */
void rs_store_was_read(const rs_object *object, uint64_t offset, uint64_t length);
/* Allocates up to `max_bytes` more. Returns the bytes still to do, or -1 and `error` (the tmpfs is full: give the
 * transfer up). */
int64_t rs_store_allocate_step(rs_store *store, rs_object *object, uint64_t max_bytes, rs_error *error);
/* Before writing at [offset, offset + length) while allocation is not done. Cheap when it is there already. */
bool rs_store_ensure(rs_store *store, rs_object *object, uint64_t offset, uint64_t length, rs_error *error);
/* RECEIVING -> COMPLETE, and the transfer's hold is released. The digest was checked by the caller. */
bool rs_store_commit(rs_store *store, rs_object *object, const rs_digest *digest, rs_error *error);

/* By which name a program knows it, of up to 255 bytes; "": none. */
void rs_store_rename(rs_object *object, const char *name);
/* It stays when room is made, or does not any more. On disk it stays so after a restart. */
void rs_store_pin(rs_object *object, bool on);

/* Frees an object of any phase but COMPLETE, with a receiving transfer's hold. Not while it is sent. */
void rs_store_discard(rs_store *store, rs_object *object);

/* A transfer uses the object, COMPLETE or DIGESTING: it cannot be deleted until released. */
void rs_store_hold(rs_object *object);
void rs_store_release(rs_object *object);

/* A new descriptor, read-only, that the caller closes (or hands over). -1 and `error`: BUSY if it is not whole. */
int rs_store_reader_fd(const rs_object *object, rs_error *error);
/* A new descriptor of a CREATED one, readable and writable. */
int rs_store_writer_fd(const rs_object *object, rs_error *error);

/* The same, for programs that can take no descriptor: by which path to open it. A CREATED one gets a name in `app`'s
 * folder until it is added. False and `error`: INVALID for a file that has no name (a memfd). */
bool rs_store_reader_path(const rs_object *object, uid_t uid, char out[RS_STORE_PATH_SIZE], rs_error *error);
bool rs_store_writer_path(rs_object *object, uid_t uid, const uint8_t app[16], char out[RS_STORE_PATH_SIZE],
                          rs_error *error);

/* COMPLETE objects: UNKNOWN if there is none, BUSY (with the reason) while a transfer holds it or it is being built.
 * Descriptors that readers have stay valid; the memory is free when the last of them is closed. */
bool rs_store_delete(rs_store *store, const rs_object_id *id, rs_error *error);

#endif
