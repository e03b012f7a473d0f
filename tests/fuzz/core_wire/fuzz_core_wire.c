/* Decoders of the wire formats on any bytes: they stay within them, and what they take is what the encoder makes, byte
 * for byte. First byte: length of what is given as payload behind the message, in units of 300 bytes; the rest is the
 * message. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/wire.h"
#include "core/feedback/report.h"
#include "core/rdcm/wire.h"
#include "core/wan/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool true_then) {
    if (!true_then)
        abort();
}

static void data_header(const uint8_t *bytes, size_t size) {
    rs_data_header header;
    uint8_t again[RS_DATA_HEADER];
    if (!rs_wire_decode_data(bytes, size, &header))
        return;
    must(rs_wire_version(bytes, size) == RS_WIRE_VERSION);
    rs_wire_encode_data(&header, again);
    must(size == RS_DATA_HEADER && memcmp(again, bytes, size) == 0);
}

static void repair_header(const uint8_t *bytes, size_t size) {
    rs_repair_header header;
    uint8_t again[RS_REPAIR_HEADER];
    if (!rs_wire_decode_repair(bytes, size, &header))
        return;
    must(header.count <= RS_COMBINE_MAX && rs_wire_data_header_length(bytes, size) == size);
    for (uint32_t i = 1; i < header.count; i++)
        must(header.member[i] > header.member[i - 1]);
    rs_wire_encode_repair(&header, again);
    must(size == RS_REPAIR_HEADER && memcmp(again, bytes, size) == 0);
}

static void acknowledgement(const uint8_t *bytes, size_t size) {
    rs_ack ack;
    uint8_t again[RS_ACK_HEADER + 8 * RS_ACK_WORDS];
    size_t header_length;
    if (rs_wire_datagram(bytes, size, &header_length) > 0)
        must(header_length <= size);
    if (!rs_ack_decode(bytes, size, &ack))
        return;
    must(ack.words <= RS_ACK_WORDS && rs_ack_encode(&ack, again) == size && memcmp(again, bytes, size) == 0);
}

static void report(const uint8_t *bytes, size_t size) {
    rs_report told;
    rs_repair_request asked;
    uint8_t again[RS_HEADER_MAX];
    rs_message said;
    rs_said_proof proof;
    rs_told answer;
    if (rs_said_decode(bytes, size, &said, &proof))
        must(rs_said_encode(&said, &proof, again) == size && memcmp(again, bytes, size) == 0);
    if (rs_told_decode(bytes, size, &answer))
        must(rs_told_encode(&answer, again) == size && memcmp(again, bytes, size) == 0);
    if (rs_report_decode(bytes, size, &told))
        must(rs_report_encode(&told, again) == size && memcmp(again, bytes, size) == 0);
    if (rs_request_decode(bytes, size, &asked))
        must(rs_request_encode(&asked, again) == size && memcmp(again, bytes, size) == 0);
}

static void status(const uint8_t *bytes, size_t size) {
    rs_wan_status s;
    uint8_t again[RS_HEADER_MAX];
    if (!rs_wan_decode_status(bytes, size, &s))
        return;
    must(s.nack_count <= RS_WAN_NACKS && rs_wan_encode_status(&s, again) == size && memcmp(again, bytes, size) == 0);
    for (uint32_t i = 0; i < s.nack_count; i++)
        must(s.nacks[i].base % RS_WAN_SECTION + s.nacks[i].bits <= RS_WAN_SECTION);
}

static void control(const uint8_t *bytes, size_t size, uint32_t payload) {
    rs_message message;
    uint8_t again[RS_HEADER_MAX];
    if (!rs_wire_decode(bytes, size, payload, &message))
        return;
    if (message.version != RS_WIRE_VERSION) { /* what came behind is not known */
        must(message.type == RS_MSG_HELLO || message.type == RS_MSG_ABORT);
        return;
    }
    size_t length = rs_wire_encode(&message, payload, again, sizeof again);
    must(length == size && memcmp(again, bytes, size) == 0);
    must(rs_wire_encode(&message, payload, again, size - 1) == 0);
    /* A reader of the stream cuts it out as it is. */
    size_t header_length = 0;
    uint32_t payload_length = 0;
    must(rs_wire_frame(bytes, RS_CONTROL_PEEK, &header_length, &payload_length) == 1);
    must(header_length == size && payload_length == payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t header_length;
    uint32_t payload_length;
    if (size == 0)
        return 0;
    /* Exactly as many bytes as there are, so that the sanitizer sees a read beyond. */
    uint8_t *bytes = malloc(size - 1 ? size - 1 : 1);
    must(bytes != NULL);
    memcpy(bytes, data + 1, size - 1);
    data_header(bytes, size - 1);
    repair_header(bytes, size - 1);
    acknowledgement(bytes, size - 1);
    report(bytes, size - 1);
    status(bytes, size - 1);
    control(bytes, size - 1, (uint32_t)data[0] * 300);
    rs_wire_frame(bytes, size - 1, &header_length, &payload_length);
    free(bytes);
    return 0;
}
