/* The agent's log: one line per event on stderr, "<UTC time> <level> <event> key=value ...", for people and grep; or as
 * JSON, for those who collect logs. */
#ifndef RS_DAEMON_LOG_H
#define RS_DAEMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { RS_LOG_DEBUG, RS_LOG_INFO, RS_LOG_WARNING, RS_LOG_ERROR } rs_log_level;

/* Lines below this level are not written. False if there is no level of that name. */
bool rs_log_set_level(const char *name);

/* Lines are JSON objects: "time", "level", "event", the pairs as members, other words in "text". */
void rs_log_set_json(bool json);

/* `event` is a short word ("control", "send", ...); the format makes "key=value" pairs. Values that may hold blanks go
 * through rs_quote. */
__attribute__((format(printf, 3, 4))) void rs_log(rs_log_level level, const char *event, const char *format, ...);

/* The same for what a stranger can cause at any rate: at most `per_second` lines a second, then one line that says how
 * many were left out. */
typedef struct {
    int64_t second;
    uint32_t written, left_out;
} rs_log_limit;
__attribute__((format(printf, 5, 6))) void rs_log_limited(rs_log_limit *limit, uint32_t per_second, rs_log_level level,
                                                          const char *event, const char *format, ...);

/* From now on lines are written by a thread of their own: whoever reads stderr, and however slowly, the loop does not
 * wait for it. RS_LOG_ROOM bytes may wait; lines that find no room are dropped, and when there is some again a line
 * says how many. Without it, or if there can be no thread, lines are written at once. */
#define RS_LOG_ROOM (256u << 10)
void rs_log_start(void);
/* Writes what waits, for so many ms at most; lines after that are written at once. */
void rs_log_stop(uint32_t most_ms);
/* Lines dropped so far. */
uint64_t rs_log_dropped(void);

/* The text in double quotes, control bytes and quotes escaped, cut at some 250 bytes. Valid until eight calls later. */
const char *rs_quote(const char *text);

#endif
