/* Frames from the manager, checked byte by byte before the Thrift library sees them.
 *
 * The library trusts lengths (a string's length is allocated before it is read), takes any element type for a list's
 * elements, and grows a list that comes twice. So a frame is walked here first, against the shapes of service Agent
 * in controller/rostrum.thrift: lengths within the frame, known fields of the right type, once each, required ones
 * present, texts of sane length in UTF-8, nesting bounded, nothing behind the end. Unknown fields and calls pass if
 * they are well formed: a newer manager may say more. */
#ifndef RS_DAEMON_LINK_CHECK_H
#define RS_DAEMON_LINK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Calls of service Agent. */
typedef enum {
    RS_LINK_CALL_WELCOME,
    RS_LINK_CALL_GOODBYE,
    RS_LINK_CALL_RESPONSE,
    RS_LINK_CALL_MOVED,
    RS_LINK_CALL_FAILED,
    RS_LINK_CALL_LIGHT,
    RS_LINK_CALL_PROBE,
    RS_LINK_CALL_VIEW,
    RS_LINK_CALL_GROUP_VIEW,
    RS_LINK_CALL_GROUP_REFUSED,
    RS_LINK_CALL_UNKNOWN /* the last: of a newer manager; to be ignored */
} rs_link_call;

/* False: not a oneway call, malformed, or beyond a bound; `words` then says what and at which byte. */
bool rs_link_check(const uint8_t *frame, size_t length, rs_link_call *call, char *words, size_t words_size);

/* Valid UTF-8 without NUL, at most `max` bytes. */
bool rs_link_text_ok(const uint8_t *text, size_t length, size_t max);

#endif
