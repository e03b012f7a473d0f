/* Republic (docs/republic.md) in the table of engines: the fallback, which goes by every path. */
#include "core/republic/republic.h"

#include "core/transfer/engine.h"

static void receiver_removed(rs_node *node, rs_time now, rs_recipient *r) {
    rs_sending *x = (rs_sending *)r->link.transfer;
    rs_window_left(node, now, x, r);
    rs_repair_left(now, x, r);
}

const rs_engine rs_engine_republic = {
    .id = RS_PROTOCOL_REPUBLIC,
    .name = "Republic",
    .path_kinds = 1u << RS_OPEN_NO_PATH | 1u << RS_PATH_CIRCUIT | 1u << RS_PATH_PACKET,
    .receiver_events = 10,
    .by_light = true,
    .sender =
        {
            .begin = rs_republic_begin,
            .path_moved = rs_republic_path_moved,
            .resume = rs_republic_resume,
            .message = rs_republic_message,
            .advance = rs_republic_advance,
            .schedule = rs_republic_schedule,
            .poll_data = rs_republic_poll_data,
            .receiver_removed = receiver_removed,
        },
    .receiver =
        {
            .accepted = rs_republic_accepted,
            .data_packet = rs_republic_data,
            .patch = rs_republic_patch,
            .data_over = rs_republic_data_over,
            .says = rs_republic_says,
            .ask_again = rs_ask_again,
        },
};
