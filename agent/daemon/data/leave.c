#include "daemon/data/leave.h"

#include <string.h>

#include "daemon/api/waits.h"
#include "daemon/pieces/fetch.h"
#include "daemon/streams/late.h"
#include "daemon/streams/receive.h"

static rs_transfer_entry *coming(const rs_agent *agent, const rs_object_id *id) {
    for (rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next)
        if (memcmp(&t->id, id, sizeof *id) == 0 && !t->left &&
            (t->sink || (t->object && t->object->phase != RS_OBJECT_COMPLETE)))
            return t;
    return NULL;
}

void rs_leave_api(void *context, const rs_api_call *call, const rs_object_id *id) {
    rs_agent *agent = context;
    rs_transfer_entry *t = coming(agent, id);
    bool fetched = rs_fetch_leave(agent->fetches, id) || rs_late_leave(agent, id);
    if (t) {
        t->left = true;
        if (t->sink)
            rs_stream_sink_leave(t->sink);
        else
            rs_api_object_failed(agent->api, id, "a program here left it");
        (void)rs_receive_leave(agent->node, rs_agent_now(agent), t->xfer);
    }
    if (!t && !fetched) {
        rs_api_reply_error(agent->api, call, ROSTRUM_ERR_UNKNOWN, "object %s is not coming in here", rs_id_text(id));
        return;
    }
    rs_log(RS_LOG_INFO, "receive", "object=%s is left", rs_id_text(id));
    rs_api_reply_ok(agent->api, call);
}
