/* What others say to a member that keeps messages, and what a disk says after a crash: any bytes. The first byte says
 * which: even, a file of kept messages; odd, steps of a byte (whose, and whether it is sealed), a length, and that many
 * bytes; a length of 255 is a view, of 254 a pause. */
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/heap.h"
#include "core/base/xxh64.h"
#include "core/order/replay.h"

#define SEGMENT (64u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t last;

static void *take_segment(void *context, uint64_t first, size_t bytes) {
    (void)context;
    (void)first;
    return calloc(1, bytes);
}

static void give_segment(void *context, uint64_t first, void *memory, size_t bytes, bool drop) {
    (void)context;
    (void)first;
    (void)bytes;
    (void)drop;
    free(memory);
}

static void read_all(const rs_history *h) {
    rs_history_record r;
    for (uint64_t number = 1; rs_history_find(h, number, &r); number = r.number + 1) {
        for (uint32_t i = 0; i < r.length; i++)
            last = r.bytes[i];
        for (uint32_t i = 0; i < r.name_length; i++)
            last = (uint8_t)r.name[i];
    }
}

static void load(rs_history *h, const uint8_t *data, size_t size) {
    uint8_t *memory = size ? malloc(size) : NULL;
    rs_history_record r = {0};
    if (!memory)
        return;
    memcpy(memory, data, size);
    for (size_t at = 0, length; at + RS_HISTORY_HEAD < size;
         at += length) { /* most that it writes would not be whole */
        length = RS_HISTORY_HEAD + (size_t)memory[at + 3] + rs_le_get(memory + at + 4, 4);
        if (length > size - at)
            break;
        rs_le_put(memory + at + 8, rs_gm_xxh64(memory + at + 16, length - 16, rs_le_get(memory + at + 4, 4)), 8);
    }
    if (!rs_history_load(h, size > 32 ? rs_le_get(memory + 24, 8) : 1, memory, size))
        free(memory);
    read_all(h);
    (void)rs_history_since(h, 5, &r);
    rs_history_cut(h, rs_history_first(h) + 3);
    read_all(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const rs_history_config kept = {
        .bytes = 4 * SEGMENT, .segment_bytes = SEGMENT, .take = take_segment, .give = give_segment};
    const rs_replay_config config = {.group = 7, .self = 0, .seed = 1, .message_bytes = 4096};
    rs_history *h = rs_history_new(&kept, &rs_heap);
    rs_replay *r = h ? rs_replay_new(&config, h, &rs_heap) : NULL;
    const rs_peer peers[] = {0, 1, 2, 0};
    rs_order_event view = {.kind = RS_ORDER_VIEW,
                           .view = 1,
                           .number = 20,
                           .members = peers,
                           .member_count = 3,
                           .joined = peers + 3,
                           .joined_count = 1,
                           .anew = true};
    rs_time now = 1000000;
    if (!r)
        abort();
    for (uint64_t number = 1; number <= 10; number++) {
        const rs_history_record record = {
            .number = number, .view = 1, .time = number, .name = "h", .name_length = 1, .bytes = data, .length = 0};
        (void)rs_history_add(h, &record, 1, UINT64_MAX);
    }
    if (size > 0 && data[0] % 2 == 0)
        load(h, data + 1, size - 1);
    else
        rs_replay_view(r, now, &view);
    for (size_t at = 1; size > 0 && data[0] % 2 && at + 2 <= size; now += 1000000) {
        uint8_t who = data[at], length = data[at + 1], bytes[256];
        at += 2;
        if (length == 255) {
            view.view++;
            view.anew = who & 1;
            view.number = 20 + who;
            rs_replay_view(r, now, &view);
        } else if (length == 254) {
            now += 20000000 * (rs_time)who;
            rs_replay_timeout(r, now);
        } else {
            size_t there = size - at < length ? size - at : length;
            memcpy(bytes, data + at, there);
            at += there;
            if (who & 4 && there >= 16) {
                rs_le_put(bytes, RS_REPLAY_MAGIC, 2);
                bytes[2] = 1;
                rs_le_put(bytes + 8, 7, 4);
                rs_le_put(bytes + 4, rs_gm_xxh64(bytes + 8, there - 8, rs_le_get(bytes, 4)), 4);
            }
            (void)rs_replay_receive(r, now, 1, who & 3, bytes, there);
        }
        rs_replay_out out;
        rs_history_record record;
        for (uint32_t i = 0; i < 64 && rs_replay_poll_out(r, &out); i++)
            last = out.bytes[out.length - 1];
        rs_replay_sent(r);
        (void)rs_replay_at(r, 1 + who, 20, &record);
        read_all(h);
    }
    rs_replay_free(r);
    rs_history_free(h);
    return 0;
}
