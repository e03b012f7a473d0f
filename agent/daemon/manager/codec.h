/* Calls of the agent-manager interface as frames: the link's values to those of controller/rostrum.thrift and back,
 * and what its types cannot say is checked here (names are not empty, addresses are IPv4, ports are ports). */
#ifndef RS_DAEMON_MANAGER_CODEC_H
#define RS_DAEMON_MANAGER_CODEC_H

#include "daemon/manager/client.h"
#include "daemon/manager/thrift_codec.h"

/* A frame with its 4-byte length prefix, from malloc. */
typedef struct {
    uint8_t *bytes;
    size_t length;
} rs_manager_frame;

typedef bool rs_manager_live_path_fn(void *context, uint32_t index, rs_manager_live_path *out);

/* Each returns RS_OK, RS_ERR_INVALID (a text is missing, too long or not UTF-8, or a number does not fit Thrift's
 * signed types), RS_ERR_LIMIT (the frame would be too long) or RS_ERR_MEMORY; `out` is set with RS_OK only. */
/* Tells as many live paths as fit the frame; `round_trip_us` 0: not known. */
rs_status rs_manager_encode_hello(const rs_manager_options *options, uint32_t round_trip_us,
                                  rs_manager_live_path_fn *live_path, void *context, rs_manager_frame *out);
rs_status rs_manager_encode_request(const char *sender, const rs_manager_request_params *request,
                                    rs_manager_frame *out);
rs_status rs_manager_encode_release(const char *request_id, const char *response_id, rs_manager_frame *out);
rs_status rs_manager_encode_cancel(const char *request_id, rs_manager_frame *out);
rs_status rs_manager_encode_keepalive(rs_manager_frame *out);
rs_status rs_link_encode_receiver_change(const char *response_id, const char *server, bool joins,
                                         rs_manager_frame *out);
rs_status rs_manager_encode_no_light(const char *response_id, const char *const *receivers, uint32_t receiver_count,
                                     rs_manager_frame *out);
rs_status rs_manager_encode_report(const rs_manager_report_params *report, rs_manager_frame *out);
rs_status rs_manager_encode_view_used(const char *response_id, uint64_t version, rs_manager_frame *out);
rs_status rs_manager_encode_failure(const char *response_id, uint64_t version, rs_manager_failure_kind kind,
                                    rs_ring_kind ring, const char *server, rs_manager_frame *out);
rs_status rs_manager_encode_group(rs_manager_group_call call, const char *group,
                                  const rs_manager_group_options *options, const rs_manager_group_view *held,
                                  rs_manager_frame *out);
rs_status rs_manager_encode_group_trouble(const rs_manager_group_trouble *trouble, rs_manager_frame *out);
rs_status rs_manager_encode_split(const char *request_id, const rs_object_id *object, const char *const *receivers,
                                  uint32_t receiver_count, const char *const *avoid, uint32_t avoid_count,
                                  const rs_manager_terms *terms, rs_manager_frame *out);
rs_status rs_manager_encode_relayed(const rs_manager_relay_report *report, rs_manager_frame *out);
rs_status rs_manager_encode_whose(const rs_object_id *id, const char *sender, const char *digest,
                                  rs_manager_frame *out);
rs_status rs_manager_encode_holds(const rs_manager_held *held, uint32_t count, bool reset, rs_manager_frame *out);
rs_status rs_manager_encode_fetch(const rs_object_id *id, bool together, rs_manager_frame *out);
rs_status rs_manager_encode_peer_keys(const char *const *servers, uint32_t count, rs_manager_frame *out);
rs_status rs_manager_encode_probe_report(const rs_manager_probe_report *report, rs_manager_frame *out);

/* A call from the manager. Which fields hold depends on `call`. */
typedef struct {
    uint32_t call; /* RS_THRIFT_AGENT_* */
    const char
        *id; /* moved, failed, light: the response's id; welcome, group_refused, site: the manager's, group's, site's */
    const char *reason;   /* goodbye, moved, failed, group_refused */
    int64_t manager_boot; /* welcome */
    rs_path_kind kind;    /* moved */
    rs_manager_response response;
    rs_manager_probe probe;
    rs_manager_view view;
    rs_manager_split_answer legs;
    rs_manager_relay_order relay;
    rs_manager_relay_report relayed;
    rs_manager_origin origin;
    rs_manager_holders holders;
    rs_manager_serve serve;
    const rs_manager_key *keys;
    uint32_t key_count;
    const rs_manager_group_peer *group_peers; /* group_view */
    uint32_t group_peer_count;
    const rs_manager_group_region *group_regions;
    uint32_t group_region_count;
    const rs_manager_group_view *group_views;
    uint32_t group_view_count;
    /* response: ACCEPTED, but what it grants is unusable; then the decision reads DENIED and the reason says why. */
    bool unusable;
} rs_manager_message;

typedef void rs_manager_deliver_fn(void *context, const rs_manager_message *message);

/* Checks the frame (without its length prefix), decodes it and hands it to `deliver`; pointers hold until that returns.
 * False: nothing was delivered, `text` says why. */
bool rs_manager_decode(const uint8_t *frame, size_t length, rs_manager_deliver_fn *deliver, void *context, char *text,
                       size_t text_size);

#endif
