/* The transfers of this agent: their table, what they came to in numbers, and the names of things in logs. */
#ifndef RS_DAEMON_TRANSFERS_H
#define RS_DAEMON_TRANSFERS_H

#include "core/transfer/node.h"
#include "daemon/loop.h"
#include "daemon/store/store.h"

#define RS_TRANSFER_BUCKETS 256u

/* A transfer of the core and the object it reads or fills; first member of rs_send_state and
 * rs_receive_state. */
typedef struct rs_transfer_entry {
    struct rs_transfer_entry *next_in_bucket;
    struct rs_transfer_entry *next, *previous; /* all of one direction */
    rs_xfer xfer;
    bool sending;
    rs_object_id id;
    rs_object *object; /* NULL once it was handed back to the store, and of streams */
    struct rs_stream_source *source;
    struct rs_stream_sink *sink;
    bool left; /* a program here wants it no more; it goes on for others for a moment */
    rs_time progress_at;
} rs_transfer_entry;

typedef struct rs_send_state rs_send_state;
typedef struct rs_receive_state rs_receive_state;

typedef struct {
    rs_transfer_entry *buckets[RS_TRANSFER_BUCKETS];
    rs_transfer_entry *sending, *receiving;
    uint32_t count;
} rs_transfers;

/* Of transfers that ended; of one direction. */
typedef struct {
    uint64_t done, failed;
    uint64_t bytes;
    uint64_t packets_sent, packets_attempt, packets_redundant, packets_received, packets_old;
    uint64_t patches_sent, patches_received;
    uint64_t repairs_sent, repairs_mended, repairs_received, repairs_used;
    uint64_t lost;
    uint64_t acks_sent, acks_received, peer_repairs_sent, peer_repairs_received, peer_repairs_old;
} rs_totals_of;

typedef struct {
    rs_totals_of sent, received;
    uint64_t socket_drops;                      /* data packets that the kernel dropped because its buffer was full */
    uint64_t probes;                            /* reports to the manager */
    uint64_t stream_bytes_out, stream_bytes_in; /* of programs: taken from them, handed to them */
} rs_totals;

void rs_totals_add(rs_totals_of *totals, const rs_xfer_stats *stats, bool ok);

void rs_transfers_add(rs_transfers *transfers, rs_transfer_entry *transfer);
void rs_transfers_remove(rs_transfers *transfers, rs_transfer_entry *transfer);
rs_transfer_entry *rs_transfers_find(const rs_transfers *transfers, rs_xfer xfer);
/* "<first 8 digits of the appID>.../<dataID>" for logs. Valid until four calls later. */
const char *rs_id_text(const rs_object_id *id);
/* A version-4 UUID's text. */
#define RS_UUID_TEXT 37
void rs_uuid_text(char out[RS_UUID_TEXT]);

#endif
