#include "daemon/manager/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sends now if up, and keeps the call for the next connection in either case. Takes the frame over. */
static void keep(rs_link *link, rs_time now, rs_link_frame frame) {
    bool up = link->state == RS_LINK_UP && !link->broken;
    if (up)
        rs_link_put(link, now, &frame);
    rs_kept_prune(&link->kept, now - link->options.stall_timeout);
    rs_kept_add(&link->kept, frame, up && !link->broken ? now : RS_NEVER);
    rs_link_flush(link, now);
}

static const char *status_words(rs_status status) {
    switch (status) {
    case RS_ERR_INVALID:
        return "a path request needs an id, 1 ... 1024 receivers named in UTF-8, and sizes below 2^63";
    case RS_ERR_LIMIT:
        return "too many path requests wait for the manager (1024 or 1 MiB)";
    case RS_ERR_EXISTS:
        return "a path request of that id waits already";
    default:
        return "out of memory";
    }
}

rs_status rs_link_request(rs_link *link, rs_time now, const rs_link_request_params *request, char *words,
                          size_t words_size) {
    bool up = rs_link_up(link);
    char scratch[1];
    if (!words) {
        words = scratch;
        words_size = sizeof scratch;
    }
    if (link->state == RS_LINK_STOPPED) {
        rs_link_describe(link, now, words, words_size);
        return RS_ERR_STATE;
    }
    rs_link_frame frame;
    rs_status status = rs_link_encode_request(link->server, request, &frame);
    if (status == RS_OK) {
        status = rs_pending_add(&link->pending, request->request_id, frame, up ? RS_NEVER : now);
        if (status != RS_OK)
            free(frame.bytes);
    }
    if (status != RS_OK) {
        snprintf(words, words_size, "%s", status_words(status));
        return status;
    }
    if (up) {
        rs_link_put(link, now, &frame);
        rs_link_flush(link, now);
    }
    return RS_OK;
}

rs_status rs_link_release(rs_link *link, rs_time now, const char *request_id, const char *response_id) {
    rs_link_frame frame;
    rs_status status = rs_link_encode_release(request_id, response_id, &frame);
    if (status == RS_OK)
        keep(link, now, frame);
    return status;
}

rs_status rs_link_cancel(rs_link *link, rs_time now, const char *request_id) {
    rs_link_frame frame;
    rs_status status = rs_link_encode_cancel(request_id, &frame);
    if (status != RS_OK)
        return status;
    rs_pending_remove(&link->pending, request_id);
    keep(link, now, frame);
    return RS_OK;
}

/* Sends a frame that is not worth keeping, if the link is up. Takes it over. */
static rs_status pass(rs_link *link, rs_time now, rs_link_frame frame) {
    bool up = rs_link_up(link);
    if (up) {
        rs_link_put(link, now, &frame);
        rs_link_flush(link, now);
    }
    free(frame.bytes);
    return up ? RS_OK : RS_ERR_STATE;
}

rs_status rs_link_no_light(rs_link *link, rs_time now, const char *response_id, const char *const *receivers,
                           uint32_t receiver_count) {
    rs_link_frame frame;
    rs_status status = rs_link_encode_no_light(response_id, receivers, receiver_count, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_link_report(rs_link *link, rs_time now, const rs_link_report_params *report) {
    rs_link_frame frame;
    rs_status status = rs_link_encode_report(report, &frame);
    if (status != RS_OK)
        return status;
    if (strcmp(report->phase, "done") != 0 && strcmp(report->phase, "failed") != 0)
        return pass(link, now, frame);
    keep(link, now, frame);
    return RS_OK;
}

rs_status rs_link_view_used(rs_link *link, rs_time now, const char *response_id, uint64_t version) {
    rs_link_frame frame;
    rs_status status = rs_link_encode_view_used(response_id, version, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_link_failure(rs_link *link, rs_time now, const char *response_id, uint64_t version,
                          rs_link_failure_kind kind, rs_ring_kind ring, const char *server) {
    rs_link_frame frame;
    rs_status status = rs_link_encode_failure(response_id, version, kind, ring, server, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_link_group(rs_link *link, rs_time now, rs_link_group_call call, const char *group,
                        const rs_link_group_options *options, const rs_link_group_view *held) {
    rs_link_frame frame;
    rs_status status = rs_link_encode_group(call, group, options, held, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}

rs_status rs_link_probe_report_send(rs_link *link, rs_time now, const rs_link_probe_report *report) {
    rs_link_frame frame;
    rs_status status = rs_link_encode_probe_report(report, &frame);
    return status == RS_OK ? pass(link, now, frame) : status;
}
