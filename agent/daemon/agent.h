/* The agent: what the parts of the daemon share. The core decides, everything else carries out
 * (docs/architecture.md).
 *
 * Parts call the core freely; what the core answers is fetched by the pump at the end of each turn of the loop, never
 * inside another call. */
#ifndef RS_DAEMON_AGENT_H
#define RS_DAEMON_AGENT_H

#include "core/transfer/node.h"
#include "daemon/api/server.h"
#include "daemon/control/control.h"
#include "daemon/control/peers.h"
#include "daemon/data/data.h"
#include "daemon/data/overlay.h"
#include "daemon/data/probe.h"
#include "daemon/data/repairs.h"
#include "daemon/groups/groups.h"
#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/manager/link.h"
#include "daemon/metrics/metrics.h"
#include "daemon/metrics/server.h"
#include "daemon/options.h"
#include "daemon/store/digest.h"
#include "daemon/store/store.h"

#define RS_TRANSFER_BUCKETS 256u

/* A transfer of the core and the object it reads or fills; first member of rs_sending and rs_receiving. */
typedef struct rs_transfer {
    struct rs_transfer *next_in_bucket;
    struct rs_transfer *next, *previous; /* all of one direction */
    rs_xfer xfer;
    bool sending;
    rs_object_id id;
    rs_object *object; /* NULL once it was handed back to the store, and of streams */
    struct rs_stream_source *source;
    struct rs_stream_sink *sink;
    rs_time progress_at;
} rs_transfer;

typedef struct rs_sending rs_sending;
typedef struct rs_receiving rs_receiving;
typedef struct rs_stream_source rs_stream_source;
typedef struct rs_stream_sink rs_stream_sink;
typedef struct rs_stream_reader rs_stream_reader;

typedef struct {
    rs_transfer *buckets[RS_TRANSFER_BUCKETS];
    rs_transfer *sending, *receiving;
    uint32_t count;
} rs_transfers;

typedef struct rs_agent {
    rs_options options;
    uint64_t boot;
    int64_t started_ns;
    uint32_t fragment_size;
    rs_loop *loop;
    rs_peers peers;
    rs_node *node;
    rs_store *store;
    rs_control *control;
    rs_data *data;
    rs_repairs *repairs; /* received */
    rs_api_server *api;
    rs_link *link; /* NULL without a manager */
    rs_overlay *overlay;
    rs_groups *groups;
    rs_probes *probes;
    rs_metrics_server *metrics; /* NULL without --metrics */
    rs_totals totals;
    rs_watch api_watch, link_watch, signal_watch;
    rs_transfers transfers;
    rs_stream_reader *stream_readers; /* programs that wait for a stream to begin */
    rs_loop_pauses pauses;            /* of this process, as far as they were dealt with */
    rs_time held_until; /* no data packet goes out before the manager has answered, or then; RS_NEVER: they may */
    rs_time prepare_at; /* next piece of the store's reserve, when nothing is being transferred */
    uint64_t packets_bad;
    uint64_t packets_other_version; /* of the data channel */
    uint64_t digest_chunks_wrong;   /* of objects received here */
    uint64_t digest_chunks_fetched; /* of these, once more from the sender */
    uint64_t digest_chunks_retaken; /* of objects sent from here, because a receiver's copy stayed wrong */
    rs_log_limit malformed, versions, drops, offers, refusals, endings, programs; /* lines that others cause, by kind */
    bool stopping;
} rs_agent;

/* agent.c. NULL: it could not start, the log says why. */
rs_agent *rs_agent_new(const rs_options *options);
/* Runs until SIGTERM or SIGINT. False: the loop failed. */
bool rs_agent_run(rs_agent *agent);
void rs_agent_free(rs_agent *agent);

/* pump.c: everything the core has to say. What is said may lead to more. */
void rs_agent_pump(rs_agent *agent);
/* What a transfer sends cannot be read any more. */
void rs_agent_unreadable(void *agent, rs_xfer xfer);

static inline rs_time rs_agent_now(const rs_agent *agent) {
    return rs_loop_now(agent->loop);
}

/* transfers.c */
void rs_transfers_add(rs_transfers *transfers, rs_transfer *transfer);
void rs_transfers_remove(rs_transfers *transfers, rs_transfer *transfer);
rs_transfer *rs_transfers_find(const rs_transfers *transfers, rs_xfer xfer);
/* Where bytes lie that the core sends, a fragment at most of a stream; NULL: they are gone. */
const uint8_t *rs_transfer_payload(const rs_transfer *transfer, uint64_t offset);
/* "<first 8 digits of the appID>.../<dataID>" for logs. Valid until four calls later. */
const char *rs_id_text(const rs_object_id *id);
/* A version-4 UUID's text. */
#define RS_UUID_TEXT 37
void rs_uuid_text(char out[RS_UUID_TEXT]);

/* sending.c: the application's sends. */
void rs_sending_api(void *agent, const rs_api_send *send);
void rs_sending_added_api(void *agent, const rs_object *object);
void rs_sending_unreadable_api(void *agent, const rs_object *object, const char *words);
void rs_sending_cancel_api(void *agent, const rs_api_call *call, const rs_object_id *id);
void rs_sending_event(rs_agent *agent, const rs_event *event);
/* Payload bytes that go out for it. */
void rs_sending_count(rs_transfer *transfer, uint32_t bytes);
void rs_sending_cancel(rs_agent *agent, rs_transfer *transfer, const char *cause);
rs_time rs_sending_deadline(const rs_agent *agent);
void rs_sending_timeout(rs_agent *agent);
void rs_sending_free_all(rs_agent *agent);

/* paths.c: the manager's answers, for sends. */
void rs_paths_link_callbacks(rs_agent *agent, rs_link_callbacks *callbacks);

/* receiving.c: objects that come in. */
void rs_receiving_event(rs_agent *agent, const rs_event *event);
bool rs_receiving_predict(void *agent, rs_group group, uint32_t ahead, uint8_t **place, uint32_t *length);
uint8_t *rs_receiving_deliver(void *agent, rs_group group, const uint8_t *header, size_t header_length,
                              uint32_t payload_length);
void rs_receiving_delivered(void *agent);
/* A message of the control channel; false: malformed. */
bool rs_receiving_message(void *agent, rs_peer peer, const uint8_t *header, size_t header_length,
                          const uint8_t *payload, uint32_t payload_length);
/* A packet from a peer by UDP: an acknowledgement or a repair (RDCM). */
void rs_receiving_datagram(rs_agent *agent, rs_peer peer, const uint8_t *header, size_t header_length,
                           const uint8_t *payload, uint32_t payload_length);
/* An application deletes the object: what is left of its transfer, repairs for others, ends. */
void rs_receiving_let_go(void *agent, const rs_object_id *id);
/* A bounded piece of what is not urgent (room in the store, digests); returns when the next piece is due. */
rs_time rs_receiving_work(rs_agent *agent);
rs_time rs_receiving_deadline(const rs_agent *agent);
void rs_receiving_timeout(rs_agent *agent);
void rs_receiving_cancel(rs_agent *agent, rs_transfer *transfer, const char *cause);
void rs_receiving_free_all(rs_agent *agent);

/* status.c */
void rs_status_api(void *agent, const rs_api_call *call);

#endif
