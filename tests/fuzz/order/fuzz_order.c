/* What others say to a group's guarantees: any bytes, from any peer, sealed or not, while views change. Each step is a
 * byte (whose, and whether it is sealed), a length, and that many bytes; a length of 255 is a view, of 254 a pause. */
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/heap.h"
#include "core/base/xxh64.h"
#include "core/order/order.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void drain(rs_order *order, rs_time now) {
    static volatile uint8_t last;
    rs_order_event event;
    rs_order_out out;
    for (uint32_t i = 0; i < 64 && rs_order_poll_out(order, now, &out); i++)
        last = out.bytes[out.length - 1];
    while (rs_order_poll_event(order, now, &event)) {
        for (uint32_t i = 0; event.kind == RS_ORDER_MESSAGE && i < event.length; i++)
            last = event.bytes[i];
        for (uint32_t i = 0; event.members && i < event.member_count + event.joined_count + event.left_count; i++)
            last = (uint8_t)event.members[i];
    }
    (void)last;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const rs_order_config config = {.group = 7, .self = data && size ? data[0] % 3 : 0, .instance = 9, .total = true};
    rs_order *order = rs_order_new(&config, &rs_heap);
    const rs_peer members[] = {0, 1, 2};
    uint64_t version = 1;
    rs_time now = 1000000;
    if (!order)
        abort();
    rs_order_view(order, now, version, members, 3);
    for (size_t at = 1; at + 2 <= size; now += 1000000) {
        uint8_t who = data[at], length = data[at + 1], bytes[256];
        at += 2;
        if (length == 255) {
            rs_order_view(order, now, ++version, members, 3);
        } else if (length == 254) {
            now += 20000000 * (rs_time)who;
            rs_order_timeout(order, now);
        } else {
            size_t there = size - at < length ? size - at : length;
            memcpy(bytes, data + at, there);
            at += there;
            if (who & 4 && there >= 12) {
                rs_le_put(bytes, RS_ORDER_MAGIC, 2);
                bytes[2] = 1;
                rs_le_put(bytes + 8, 7, 4);
                rs_le_put(bytes + 4, rs_gm_xxh64(bytes + 8, there - 8, rs_le_get(bytes, 4)), 4);
            }
            (void)rs_order_receive(order, now, who & 3, bytes, there);
            (void)rs_order_publish(order, now, "x", 1);
        }
        drain(order, now);
    }
    rs_order_free(order);
    return 0;
}
