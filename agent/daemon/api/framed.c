#include "daemon/api/framed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "api/wire.h"

static uint32_t get_u32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void put_u32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

/* Reads on until *got is `want`. */
static rs_framed_state fill(int socket, uint8_t *to, size_t want, size_t *got) {
    while (*got < want) {
        ssize_t now = recv(socket, to + *got, want - *got, MSG_DONTWAIT);
        if (now < 0 && errno == EINTR)
            continue;
        if (now < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return RS_FRAMED_PART;
        if (now <= 0)
            return RS_FRAMED_GONE;
        *got += (size_t)now;
    }
    return RS_FRAMED_COMPLETE;
}

rs_framed_state rs_framed_read(rs_framed *frame, int socket) {
    rs_framed_state state = fill(socket, frame->head, sizeof frame->head, &frame->head_got);
    if (state != RS_FRAMED_COMPLETE)
        return state;
    if (!frame->body) {
        frame->message = get_u32(frame->head);
        frame->text = get_u32(frame->head + 4);
        if (frame->message > RS_API_MESSAGE_MAX || frame->text > RS_FRAMED_TEXT_MAX)
            return RS_FRAMED_BAD;
        frame->body = malloc(frame->message + frame->text + 1);
        if (!frame->body)
            return RS_FRAMED_NO_ROOM;
        frame->got = 0;
        frame->body[frame->message + frame->text] = 0;
    }
    return fill(socket, frame->body, frame->message + frame->text, &frame->got);
}

const char *rs_framed_text(const rs_framed *frame) {
    return (const char *)frame->body + frame->message;
}

void rs_framed_clear(rs_framed *frame) {
    free(frame->body);
    memset(frame, 0, sizeof *frame);
}

uint8_t *rs_framed_new(const uint8_t *message, size_t message_length, const char *text, size_t *length) {
    size_t text_length = strlen(text);
    uint8_t *out = malloc(RS_FRAMED_HEAD + message_length + text_length);
    if (!out)
        return NULL;
    put_u32(out, (uint32_t)message_length);
    put_u32(out + 4, (uint32_t)text_length);
    memcpy(out + RS_FRAMED_HEAD, message, message_length);
    memcpy(out + RS_FRAMED_HEAD + message_length, text, text_length);
    *length = RS_FRAMED_HEAD + message_length + text_length;
    return out;
}

int rs_framed_write(int socket, const uint8_t *data, size_t length, size_t *at) {
    while (*at < length) {
        ssize_t now = send(socket, data + *at, length - *at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (now >= 0)
            *at += (size_t)now;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}
