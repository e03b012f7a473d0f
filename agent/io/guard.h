/* Copies between objects and packet buffers that survive an object's file being shortened by an application: where the
 * kernel would answer EFAULT, a copy in user space gets SIGBUS. */
#ifndef RS_IO_GUARD_H
#define RS_IO_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Takes over SIGBUS, or gives it back; counted. What has nothing to do with a guarded copy goes to the former handler.
 * False: the kernel refuses. */
bool rs_guard_start(void);
void rs_guard_stop(void);

/* False: one of the two cannot be read or written; what was copied until then stays. */
bool rs_guard_copy(void *to, const void *from, size_t length);
/* False: `work` met memory that cannot be read or written, and was left in the middle. It must hold nothing that its
 * end would have given back. */
bool rs_guard_run(void (*work)(void *context), void *context);

#endif
