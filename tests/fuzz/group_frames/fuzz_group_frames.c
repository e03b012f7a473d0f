/* A group's own socket as librostrum reads it: any bytes from the agent, in pieces of any size, end in messages that
 * can be read to their last byte, and then as text. The first byte is the size of the pieces. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/connection.h"
#include "client/groups.h"

#include <rostrum/groups.h>

#define MESSAGE_BYTES 4096u
#define BYTES_MOST 32768u /* what a socket takes without being read */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool true_then) {
    if (!true_then)
        abort();
}

static void read_all(const rostrum_message *message) {
    static volatile uint8_t last;
    must(message->sender != NULL && strlen(message->sender) <= ROSTRUM_NAME_MAX);
    if (message->kind == ROSTRUM_MESSAGES_LOST) {
        must(message->why && message->why[0]);
        return;
    }
    if (message->kind == ROSTRUM_VIEW || message->kind == ROSTRUM_PRIMARY)
        return;
    const uint8_t *bytes = message->bytes;
    for (uint32_t i = 0; i < message->length; i++)
        last = bytes[i];
    (void)last;
}

/* Until nothing is left to take; returns the last code. */
static rostrum_code take(rostrum_group *group, rostrum_error *error) {
    rostrum_message message;
    rostrum_code code;
    while ((code = rostrum_next(group, &message, 0, error)) == ROSTRUM_OK)
        read_all(&message);
    const rostrum_view *view = rostrum_group_view(group);
    for (uint32_t i = 0; view && i < view->member_count + view->joined_count + view->left_count; i++)
        must(strlen(view->members[i]) <= ROSTRUM_NAME_MAX);
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int ends[2];
    rostrum_error error = {0};
    if (size < 1 || size > BYTES_MOST)
        return 0;
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    rostrum_group *group = rostrum_group_at(ends[0], "ricochet", "none", MESSAGE_BYTES);
    must(group != NULL);
    for (size_t at = 1, piece = (size_t)data[0] * 8 + 1; at < size; at += piece) {
        size_t length = size - at < piece ? size - at : piece;
        must(send(ends[1], data + at, length, MSG_NOSIGNAL) == (ssize_t)length);
        if (take(group, &error) != ROSTRUM_ERR_TIMEOUT)
            break;
    }
    close(ends[1]);
    must(take(group, &error) != ROSTRUM_ERR_TIMEOUT && error.code != ROSTRUM_OK);
    must(take(group, &error) != ROSTRUM_ERR_TIMEOUT); /* it stays ended */
    rostrum_leave(group);
    return 0;
}
