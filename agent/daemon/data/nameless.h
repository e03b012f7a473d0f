/* Receivers that answered before the program gave their object's name: they are told it once it is known. */
#ifndef RS_DAEMON_NAMELESS_H
#define RS_DAEMON_NAMELESS_H

#include <stdbool.h>

#include "core/base/types.h"

#define RS_NAMELESS_MOST 65536u /* of all transfers; above, those of some are forgotten, and know the number */

typedef struct rs_nameless rs_nameless;
/* False: it cannot be told just now. */
typedef bool (*rs_nameless_tell)(void *context, rs_peer peer, uint64_t nonce);

/* NULL: no memory. */
rs_nameless *rs_nameless_new(void);
void rs_nameless_free(rs_nameless *n);

/* That transfer opens that object. One that shares its place with another is forgotten. */
void rs_nameless_opened(rs_nameless *n, uint64_t nonce, const rs_object_id *object);
/* NULL: not known. */
const rs_object_id *rs_nameless_object(const rs_nameless *n, uint64_t nonce);
/* It has answered, and is to be told. */
void rs_nameless_note(rs_nameless *n, uint64_t nonce, rs_peer peer);
/* The object has a name: all of its receivers are told. Who cannot be stays. */
void rs_nameless_named(rs_nameless *n, const rs_object_id *object, rs_nameless_tell tell, void *context);
/* That receiver is heard again: it is told what it could not be. */
void rs_nameless_again(rs_nameless *n, rs_peer peer, rs_nameless_tell tell, void *context);

#endif
