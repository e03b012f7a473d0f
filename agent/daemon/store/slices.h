/* Memory of objects that come or are created: made slice by slice, in any order. Used by store.c alone; the rest of it
 * is rs_store_allocate_step and rs_store_ensure. */
#ifndef RS_STORE_SLICES_H
#define RS_STORE_SLICES_H

#include "daemon/store/store.h"

/* The object's room is reserved, and allocated by and by. */
bool rs_slices_reserve(rs_object *object, rs_error *error);
/* Its first `bytes` are allocated: the file came from the reserve. */
void rs_slices_are_ready(rs_object *object, uint64_t bytes);
/* What is not allocated is not promised any more. */
void rs_slices_forget(rs_object *object);
/* Up to `bytes` of the reserve, or what the oldest of the dead takes, is free at once. False: there is neither. */
bool rs_slices_make_room(rs_store *store, uint64_t bytes, bool disk);
/* What the oldest of the dead takes is. */
void rs_slices_bury_oldest(rs_store *store);

#endif
