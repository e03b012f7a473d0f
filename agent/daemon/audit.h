/* Who asked for what: a file of JSON objects, one a line, only ever appended to (docs/security.md, "Programs"). */
#ifndef RS_DAEMON_AUDIT_H
#define RS_DAEMON_AUDIT_H

#include "daemon/api/server.h"

typedef struct rs_audit rs_audit;

/* Opens the file, or makes it, mode 0600. NULL and `error`. */
rs_audit *rs_audit_open(const char *path, const char *server, rs_error *error);
void rs_audit_close(rs_audit *audit);
/* After it was renamed: a new one is made. False and `error`: lines go on to the old one. */
bool rs_audit_reopen(rs_audit *audit, rs_error *error);
/* Each writes a line; a file that takes none is told in the log. */
void rs_audit_asked(rs_audit *audit, const rs_api_asked *asked);
/* Something the agent itself did or let happen: names and values, NULL at the end. */
void rs_audit_event(rs_audit *audit, const char *what, ...) __attribute__((sentinel));

#endif
