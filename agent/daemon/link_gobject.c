#include "daemon/link_gobject.h"

#include <thrift/c_glib/protocol/thrift_binary_protocol.h>
#include <thrift/c_glib/transport/thrift_memory_buffer.h>

#include "rostrum_agent.h"
#include "rostrum_manager.h"

typedef void finalizer(GObject *object);

static GQuark quark(void) {
    return g_quark_from_static_string("rs-link-finalizer");
}

static GObjectClass *base_class(void) {
    static GObjectClass *class;
    if (!class)
        class = g_type_class_ref(G_TYPE_OBJECT);
    return class;
}

static void finalize_whole(GObject *object) {
    finalizer **own = g_type_get_qdata(G_OBJECT_TYPE(object), quark());
    (*own)(object);
    base_class()->finalize(object);
}

void rs_link_gobject_repair_class(GType type) {
    if (g_type_get_qdata(type, quark()))
        return;
    GObjectClass *class = g_type_class_ref(type); /* kept: the repair is for good */
    if (class->finalize == base_class()->finalize)
        return;
    finalizer **own = class->finalize == finalize_whole ? g_type_get_qdata(g_type_parent(type), quark()) : NULL;
    if (!own) {
        own = g_new(finalizer *, 1);
        *own = class->finalize;
    }
    g_type_set_qdata(type, quark(), own);
    class->finalize = finalize_whole;
}

void rs_link_gobject_repair(void) {
    static gboolean done;
    if (done)
        return;
    done = TRUE;
    const GType types[] = {
        THRIFT_TYPE_MEMORY_BUFFER,
        THRIFT_TYPE_BINARY_PROTOCOL,
        ROSTRUM_TYPE_MANAGER_CLIENT,
        ROSTRUM_TYPE_SERVER_ADDRESS,
        ROSTRUM_TYPE_LIVE_PATH,
        ROSTRUM_TYPE_AGENT_INFO,
        ROSTRUM_TYPE_PATH_REQUEST,
        ROSTRUM_TYPE_PATH_RESPONSE,
        ROSTRUM_TYPE_RECEIVER_REPORT,
        ROSTRUM_TYPE_TRANSFER_REPORT,
        ROSTRUM_TYPE_AGENT_WELCOME_ARGS,
        ROSTRUM_TYPE_AGENT_GOODBYE_ARGS,
        ROSTRUM_TYPE_AGENT_RESPONSE_ARGS,
        ROSTRUM_TYPE_AGENT_MOVED_ARGS,
        ROSTRUM_TYPE_AGENT_FAILED_ARGS,
        ROSTRUM_TYPE_AGENT_LIGHT_ARGS,
        ROSTRUM_TYPE_OVERLAY_VIEW,
        ROSTRUM_TYPE_AGENT_VIEW_ARGS,
        ROSTRUM_TYPE_FAILURE_REPORT,
        ROSTRUM_TYPE_PROBE_ORDER,
        ROSTRUM_TYPE_AGENT_PROBE_ARGS,
        ROSTRUM_TYPE_PROBE_REPORT,
        ROSTRUM_TYPE_PROBE_REACH,
        ROSTRUM_TYPE_GROUP_OPTIONS,
        ROSTRUM_TYPE_GROUP_USE,
        ROSTRUM_TYPE_GROUP_PEER,
        ROSTRUM_TYPE_GROUP_FACTS,
        ROSTRUM_TYPE_GROUP_VIEW,
        ROSTRUM_TYPE_AGENT_GROUP_VIEW_ARGS,
        ROSTRUM_TYPE_AGENT_GROUP_REFUSED_ARGS,
    };
    for (size_t i = 0; i < G_N_ELEMENTS(types); i++)
        rs_link_gobject_repair_class(types[i]);
}
