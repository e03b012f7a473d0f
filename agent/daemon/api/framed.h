/* Messages of the application interface over a SOCK_STREAM socket, for programs that can pass no descriptors (a JVM):
 * each goes in a frame, and beside it, instead of a descriptor, a text that says where to find it
 * (docs/application-interface.md). No knowledge of what is in the messages. */
#ifndef RS_API_FRAMED_H
#define RS_API_FRAMED_H

#include <stddef.h>
#include <stdint.h>

#define RS_FRAMED_HEAD 8u        /* length of the message u32, of the text u32 */
#define RS_FRAMED_TEXT_MAX 4200u /* a path */

/* What of a frame came so far. All zero: nothing. */
typedef struct {
    uint8_t head[RS_FRAMED_HEAD];
    size_t head_got;
    uint8_t *body; /* message, text, NUL */
    size_t message, text, got;
} rs_framed;

typedef enum {
    RS_FRAMED_COMPLETE,
    RS_FRAMED_PART, /* the rest has not come */
    RS_FRAMED_GONE, /* nobody is there any more */
    RS_FRAMED_BAD,  /* too long: what follows cannot be read */
    RS_FRAMED_NO_ROOM
} rs_framed_state;

/* Reads on, without waiting, up to the end of the frame. */
rs_framed_state rs_framed_read(rs_framed *frame, int socket);
/* The text of a whole frame, ending with a NUL; "" if there is none. */
const char *rs_framed_text(const rs_framed *frame);
/* Ready for the next one; also at the end. */
void rs_framed_clear(rs_framed *frame);

/* A frame in memory that the caller frees; *length bytes. NULL: no memory. */
uint8_t *rs_framed_new(const uint8_t *message, size_t message_length, const char *text, size_t *length);
/* Writes on from *at, without waiting: 0 when all is written, else an errno (EAGAIN: later). */
int rs_framed_write(int socket, const uint8_t *data, size_t length, size_t *at);

#endif
