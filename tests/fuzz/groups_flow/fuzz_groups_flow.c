/* Reports of how far receivers are, and the window they keep open: any bytes are a report or none, what is taken is
 * what was told, and whatever was reported a publisher that is let go on is at most a window ahead of what it knows. */
#include <stdlib.h>
#include <string.h>

#include "core/base/xxh64.h"
#include "core/groups/wire.h"
#include "daemon/groups/flow.h"

#define WINDOW 256u
#define SELF 9u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static rs_flow_ears ears;

static void must(bool true_then) {
    if (!true_then)
        abort();
}

static void decode(const uint8_t *bytes, size_t size) {
    rs_flow_report report;
    rs_flow_list list;
    uint8_t again[RS_FLOW_BYTES], list_again[RS_FLOW_LIST_BYTES(RS_FLOW_LIST)];
    if (rs_flow_list_decode(bytes, size, &list))
        must(list.count <= RS_FLOW_LIST && rs_flow_list_encode(list_again, &list) == size &&
             memcmp(list_again, bytes, size) == 0);
    if (!rs_flow_decode(bytes, size, &report))
        return;
    rs_flow_encode(again, &report);
    must(size == RS_FLOW_BYTES && memcmp(again, bytes, size) == 0);
}

/* Steps of 10 bytes: what, who, and a number. */
static void keep_window(const uint8_t *bytes, size_t size) {
    rs_flow_sum sum;
    rs_flow flow;
    rs_time now = 1000000000;
    uint32_t members[64], count = 0;
    rs_flow_sum_init(&sum, false);
    rs_flow_reset(&flow);
    for (; size >= 10; bytes += 10, size -= 10) {
        uint64_t number;
        memcpy(&number, bytes + 2, sizeof number);
        now += (rs_time)(bytes[0] >> 2) * 1000000;
        uint64_t refused = flow.refused;
        bool member = false;
        for (uint32_t i = 0; i < count; i++)
            member |= members[i] == bytes[1];
        if (bytes[0] % 4 == 0) {
            bool counts = rs_flow_reported(&sum, &flow, now, WINDOW, bytes[1], number);
            must(counts == (flow.refused == refused) && (!counts || (member && bytes[1] != SELF)));
        } else if (bytes[0] % 4 == 1) {
            rs_flow_reported(&sum, &flow, now, WINDOW, bytes[1], flow.newest - number % 512);
        } else if (number % 8 == 0) { /* a view: every second server, from one on */
            count = bytes[1] % 64;
            for (uint32_t i = 0; i < count; i++)
                members[i] = (uint32_t)((number >> 8) + 2 * i) & 0xff;
            rs_flow_view(&flow, SELF, 1, members, count);
        } else
            for (uint32_t i = bytes[1]; i > 0 && rs_flow_open(&sum, &flow, now, WINDOW); i--)
                rs_flow_published(&sum, &flow, flow.newest + 1, flow.newest + 1, 1);
        must(flow.reporter_count <= sizeof flow.reporters / sizeof flow.reporters[0]);
        for (uint32_t i = 0; i < flow.reporter_count; i++)
            must(flow.reporters[i].sn <= flow.newest);
        must(flow.floor <= flow.newest && flow.under_way <= flow.newest - flow.floor);
        must(sum.under_way == flow.under_way && flow.under_way <= flow.ahead && sum.busy_count == (flow.ahead > 0));
    }
}

static void hear(const uint8_t *bytes, size_t size) {
    uint32_t source = 0;
    if (size >= 8)
        memcpy(&source, bytes + 4, sizeof source); /* who it says it is of, or there would be no more to see */
    must(!rs_flow_hear(&ears, ~source, bytes, size, WINDOW));
    const rs_flow_heard *one = rs_flow_hear(&ears, source, bytes, size, WINDOW);
    must(!one || (one >= ears.streams && one < ears.streams + RS_FLOW_HEARD && one->newest > one->told));
    rs_flow_heard *due[RS_FLOW_LIST];
    for (uint32_t i = rs_flow_due(&ears, source, size, WINDOW, source % 2, due); i > 0; i--)
        must(due[i - 1] >= ears.streams && due[i - 1] < ears.streams + RS_FLOW_HEARD && due[i - 1]->unseen == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* Exactly as many bytes as there are, so that the sanitizer sees a read beyond. */
    uint8_t *bytes = malloc(size ? size : 1);
    must(bytes != NULL);
    if (size)
        memcpy(bytes, data, size);
    decode(bytes, size);
    hear(bytes, size);
    /* The same as if it had been made so: the fuzzer does not find the check. */
    if (size >= RS_GM_DATA_LEAST && rs_gm_get_kind(bytes, size) == RS_GM_KIND_DATA) {
        rs_gm_seal(bytes, size);
        hear(bytes, size);
    } else if (size >= RS_FLOW_LIST_BYTES(0)) {
        uint32_t check = (uint32_t)rs_gm_xxh64(bytes, size - 4, 0);
        memcpy(bytes + size - 4, &check, sizeof check);
        decode(bytes, size);
    }
    keep_window(bytes, size);
    free(bytes);
    return 0;
}
