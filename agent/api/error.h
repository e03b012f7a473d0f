/* An error as a value: a code of the application interface and words a person can act on. */
#ifndef RS_ERROR_H
#define RS_ERROR_H

#include <rostrum/types.h>

typedef rostrum_error rs_error;

/* Fills `error` (which may be NULL) and returns false, so that a failing function can `return rs_error_set(...)`. */
__attribute__((format(printf, 3, 4))) bool rs_error_set(rs_error *error, rostrum_code code, const char *format, ...);

/* The same with ": <strerror(number)>" at the end; ENOSPC, EDQUOT and ENOMEM become ROSTRUM_ERR_NO_ROOM, the rest
 * ROSTRUM_ERR_IO. */
__attribute__((format(printf, 3, 4))) bool rs_error_system(rs_error *error, int number, const char *format, ...);

#endif
