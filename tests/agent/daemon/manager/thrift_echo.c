/* Decodes frames and encodes them again, so that other implementations of the interface can be compared with this one:
 * `thrift_echo agent|manager`. Reads frames with their 4-byte length prefix, writes for each the frame again, or one
 * with the top bit of its length set that says as text what is wrong with it. */
#include "thrift_schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME_MAX = 1 << 21 };

static void answer(const void *bytes, size_t length, uint32_t flag) {
    uint32_t n = (uint32_t)length | flag;
    const uint8_t prefix[] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
    fwrite(prefix, 1, sizeof prefix, stdout);
    fwrite(bytes, 1, length, stdout);
    fflush(stdout);
}

static void echo(const rs_thrift_service *service, const uint8_t *frame, size_t length) {
    rs_thrift_call call;
    char text[RS_THRIFT_TEXT_SIZE];
    uint8_t *again;
    size_t again_length;
    if (!rs_thrift_decode(service, frame, length, &call, text)) {
        answer(text, strlen(text), 1u << 31);
        return;
    }
    if (call.call == service->count) {
        answer("unknown", 7, 1u << 31);
    } else if (rs_thrift_encode(service, call.call, call.args, FRAME_MAX, &again, &again_length) == RS_THRIFT_OK) {
        answer(again + 4, again_length - 4, 0);
        free(again);
    } else {
        answer("what was decoded cannot be encoded", 34, 1u << 31);
    }
    rs_thrift_call_free(&call);
}

int main(int argc, char **argv) {
    const rs_thrift_service *service =
        argc == 2 && strcmp(argv[1], "manager") == 0 ? &rs_thrift_service_manager : &rs_thrift_service_agent;
    uint8_t prefix[4];
    while (fread(prefix, 1, sizeof prefix, stdin) == sizeof prefix) {
        size_t length = (size_t)prefix[0] << 24 | (size_t)prefix[1] << 16 | (size_t)prefix[2] << 8 | prefix[3];
        uint8_t *frame = length <= FRAME_MAX ? malloc(length + 1) : NULL; /* exact, but for an empty one */
        if (!frame || fread(frame, 1, length, stdin) != length) {
            free(frame);
            return 1;
        }
        echo(service, frame, length);
        free(frame);
    }
    return 0;
}
