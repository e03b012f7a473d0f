/* Messages of the application socket, both ways. The first byte chooses: a request (as the agent parses it), an answer
 * (as librostrum does), or frames of requests. A request that is accepted must be encoded to the same bytes again. */
#include "api/wire.h"
#include "daemon/api/framed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static rs_api_request request;
static rs_api_message message;
static rs_api_answer answer;

static void parse_request(const uint8_t *data, size_t size) {
    rs_error error;
    if (!rs_api_parse_request(data, size, &request, &error)) {
        if (!error.text[0] || !error.code)
            abort();
        return;
    }
    if (!rs_api_encode_request(&request, &message, &error) || message.length != size ||
        memcmp(message.data, data, size) != 0)
        abort();
}

static void parse_answer(const uint8_t *data, size_t size) {
    rs_error error;
    rostrum_receiver receiver;
    rostrum_transfer transfer;
    rostrum_object object;
    rostrum_group_status group;
    if (!rs_api_parse_answer(data, size, &answer, &error))
        return;
    if (answer.type == RS_API_RECEIVERS)
        while (rs_api_next_receiver(&answer, &receiver))
            ;
    if (answer.type == RS_API_TRANSFERS)
        while (rs_api_next_transfer(&answer, &transfer))
            ;
    if (answer.type == RS_API_OBJECTS)
        while (rs_api_next_object(&answer, &object))
            ;
    if (answer.type == RS_API_GROUPS)
        while (rs_api_next_group(&answer, &group))
            ;
}

/* Bytes as they come on the framed socket, to the end of the connection. */
static void read_frames(const uint8_t *data, size_t size) {
    int ends[2];
    rs_framed frame = {0};
    rs_framed_state state;
    if (size > 65536 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return;
    if (send(ends[0], data, size, MSG_DONTWAIT) < 0)
        size = 0;
    close(ends[0]);
    for (size_t frames = 0; (state = rs_framed_read(&frame, ends[1])) == RS_FRAMED_COMPLETE; frames++) {
        if (frame.message)
            parse_request(frame.body, frame.message);
        if (strlen(rs_framed_text(&frame)) > frame.text || frames * RS_FRAMED_HEAD > size)
            abort();
        rs_framed_clear(&frame);
    }
    if (state != RS_FRAMED_GONE && state != RS_FRAMED_BAD)
        abort();
    rs_framed_clear(&frame);
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size)
        return 0;
    /* A copy of exactly that size, so that reading one byte too many is seen. */
    uint8_t *copy = malloc(size - 1 ? size - 1 : 1);
    if (!copy)
        return 0;
    memcpy(copy, data + 1, size - 1);
    if (data[0] % 4 == 2)
        read_frames(copy, size - 1);
    else if (data[0] % 2)
        parse_answer(copy, size - 1);
    else
        parse_request(copy, size - 1);
    free(copy);
    return 0;
}
