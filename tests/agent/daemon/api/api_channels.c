#include "api_channels.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/group_frames.h"

#define BYTES (1u << 16)
#define CHANNELS 16
#define LARGEST 1000u

static struct {
    int fd; /* -1: no program has channels */
    uint8_t in[BYTES];
    size_t length;
    uint64_t published[CHANNELS];
} program = {.fd = -1};

void fake_channels_open(rs_api_server *api, const rs_api_join *join) {
    int ends[2];
    if (program.fd >= 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        rs_api_reply_error(api, &join->call, ROSTRUM_ERR_LIMIT, "one program has channels");
        return;
    }
    memset(&program, 0, sizeof program);
    program.fd = ends[0];
    rs_api_reply_group(api, &join->call, "", "", LARGEST, ends[1]);
}

static void give(uint8_t *frame, uint16_t channel) {
    uint32_t length;
    (void)rs_group_frame_head(frame, &length);
    rs_group_frame_put_channel(frame, channel);
    if (send(program.fd, frame, RS_GROUP_FRAME_HEAD + length, MSG_NOSIGNAL) != (ssize_t)(RS_GROUP_FRAME_HEAD + length))
        fake_channels_stop();
}

static void answer(int kind, uint16_t channel, const uint8_t *bytes, uint32_t length) {
    uint8_t frame[RS_GROUP_FRAME_MESSAGE + LARGEST];
    if (channel >= CHANNELS || length > LARGEST)
        abort();
    if (kind == RS_GROUP_FRAME_KIND_JOIN) {
        rs_group_frame_joined(frame, LARGEST, "qsm", 3, "fifo", 4);
        give(frame, channel);
        rs_group_frame_sender(frame, 1, "h2", 2);
        give(frame, channel);
    } else if (kind == RS_GROUP_FRAME_KIND_PUBLISH) {
        uint64_t sn = ++program.published[channel];
        rs_group_frame_message(frame, length, 0, 1, 0, sn);
        memcpy(frame + RS_GROUP_FRAME_MESSAGE, bytes, length);
        give(frame, channel);
        rs_group_frame_complete(frame, sn, 0);
        give(frame, channel);
    }
}

bool fake_channels_tick(void) {
    ssize_t got = 0;
    if (program.fd < 0)
        return false;
    while (program.fd >= 0 &&
           (got = recv(program.fd, program.in + program.length, BYTES - program.length, MSG_DONTWAIT)) > 0) {
        size_t at = 0;
        uint32_t length;
        program.length += (size_t)got;
        while (program.fd >= 0 && program.length - at >= RS_GROUP_FRAME_HEAD) {
            int kind = rs_group_frame_head(program.in + at, &length);
            if (program.length - at < RS_GROUP_FRAME_HEAD + (size_t)length)
                break;
            answer(kind, rs_group_frame_channel(program.in + at), program.in + at + RS_GROUP_FRAME_HEAD, length);
            at += RS_GROUP_FRAME_HEAD + (size_t)length;
        }
        memmove(program.in, program.in + at, program.length - at);
        program.length -= at;
    }
    if (got == 0)
        fake_channels_stop();
    return program.fd >= 0;
}

void fake_channels_stop(void) {
    if (program.fd >= 0)
        close(program.fd);
    program.fd = -1;
}
