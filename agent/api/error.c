#include "api/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool rs_error_set(rs_error *error, rostrum_code code, const char *format, ...) {
    if (!error)
        return false;
    va_list args;
    va_start(args, format);
    error->code = code;
    (void)vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return false;
}

bool rs_error_system(rs_error *error, int number, const char *format, ...) {
    if (!error)
        return false;
    va_list args;
    va_start(args, format);
    int used = vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    bool room = number == ENOSPC || number == EDQUOT || number == ENOMEM;
    error->code = room ? ROSTRUM_ERR_NO_ROOM : ROSTRUM_ERR_IO;
    if (used >= 0 && (size_t)used < sizeof error->text) {
        char text[96];
        (void)snprintf(error->text + used, sizeof error->text - (size_t)used, ": %s",
                       strerror_r(number, text, sizeof text));
    }
    return false;
}
