/* Whatever a stranger sends on the control channel's TCP port: framing, buffers, then the core as a receiver behind
 * it.
 *
 * Input: one byte that sets how the stream is cut into pieces, then the stream. A message that breaks the rules must
 * end the connection, and nothing must crash, leak or read past its end. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/heap.h"
#include "core/transfer/node.h"
#include "daemon/control/connection.h"

#define PEER 3
#define NOW RS_SECOND

static bool message(void *context, const uint8_t *header, size_t header_length, const uint8_t *payload,
                    uint32_t payload_length, char *text) {
    rs_node *node = context;
    const rs_packet_in packet = {.channel = RS_CH_PEER_RELIABLE,
                                 .peer = PEER,
                                 .group = RS_NO_GROUP,
                                 .header = header,
                                 .header_length = header_length,
                                 .payload_length = payload_length};
    rs_rx_result result = rs_receive(node, NOW, &packet);
    if (result.verdict == RS_RX_STORE && payload_length > 0) { /* every byte that is announced can be read */
        volatile uint8_t first = payload[0], last = payload[payload_length - 1];
        (void)first, (void)last;
    }
    snprintf(text, RS_CONNECTION_TEXT, "malformed");
    return result.verdict != RS_RX_BAD;
}

static void answer(rs_node *node) {
    rs_event event;
    rs_packet_out out;
    for (int i = 0; i < 1000 && rs_poll_event(node, &event); i++) {
        if (event.kind == RS_EV_INCOMING)
            rs_incoming_accept(node, NOW, event.xfer, 0, 1 << 20);
        if (event.kind == RS_EV_COMPLETE)
            rs_verified(node, NOW, event.xfer, true, "");
    }
    for (int i = 0; i < 1000 && rs_poll_tx(node, NOW, &out); i++)
        if (out.header_length > sizeof out.header)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > 200000)
        return 0;
    int ends[2];
    size_t piece = data[0] ? data[0] * 7u : size;
    const rs_config config = {.seed = 1};
    rs_node *node = rs_node_new(&config, &rs_heap);
    rs_connection *connection = calloc(1, sizeof *connection);
    if (!node || !connection || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        abort();
    connection->fd = ends[0];
    connection->phase = RS_CONNECTION_UP;
    rs_peer_up(node, NOW, PEER);
    char text[RS_CONNECTION_TEXT] = "";
    bool alive = true;
    for (size_t at = 1; alive && at < size;) {
        size_t length = size - at < piece ? size - at : piece;
        ssize_t sent = send(ends[1], data + at, length, MSG_NOSIGNAL);
        at += sent > 0 ? (size_t)sent : 0;
        alive = rs_connection_read(connection, NOW, message, node, text);
        answer(node);
        if (connection->in_length > RS_CONNECTION_IN_MAX)
            abort();
    }
    if (!alive && !text[0])
        abort(); /* it must say why */
    close(ends[1]);
    rs_connection_free(connection);
    rs_node_free(node);
    return 0;
}
