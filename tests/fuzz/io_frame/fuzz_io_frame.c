/* The parser of frames on any bytes: it stays within them, what it takes lies within the packet, and a frame built from
 * what it found is found again as the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool true_then) {
    if (!true_then)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rs_datagram found, again;
    uint8_t *packet = malloc(size ? size : 1); /* exactly as many bytes as there are: a read beyond is seen */
    must(packet != NULL);
    memcpy(packet, data, size);
    if (rs_frame_parse(packet, size, &found)) {
        must(found.data >= packet && found.data + found.length <= packet + size);
        (void)rs_frame_sound(&found);
        size_t length = found.length;
        uint8_t *frame = malloc(RS_FRAME_HEADERS + length);
        must(frame != NULL);
        const rs_frame_sender sender = {.address = found.source, .port = 7, .ttl = 1};
        rs_frame_build(frame, &sender, found.address, found.port, length);
        if (length > 0)
            memcpy(frame + RS_FRAME_HEADERS, found.data, length);
        rs_frame_checksum(frame, frame + RS_FRAME_HEADERS, length & ~(size_t)1,
                          frame + RS_FRAME_HEADERS + (length & ~(size_t)1), length & 1);
        must(rs_frame_parse(frame + RS_FRAME_ETHERNET, RS_FRAME_HEADERS - RS_FRAME_ETHERNET + length, &again));
        must(again.source == found.source && again.address == found.address && again.port == found.port);
        must(again.length == found.length && rs_frame_sound(&again));
        free(frame);
    }
    free(packet);
    return 0;
}
