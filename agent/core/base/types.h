/* Types the core shares with its caller: ids, time, addresses, packets, payload references.
 *
 * Everything is opaque or handed in: time is int64 nanoseconds of the caller's clock, peers and groups are small
 * integers the caller maps to addresses, payload is a reference into an object and is never copied in the core. */
#ifndef RS_CORE_TYPES_H
#define RS_CORE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int64_t rs_time;   /* ns, monotonic */
typedef uint32_t rs_peer;  /* a server, numbered by the caller */
typedef uint32_t rs_group; /* a data channel (multicast group of a path), numbered by the caller */
typedef uint32_t rs_xfer;  /* a transfer at this node (as sender or as receiver); 0 = none */

#define RS_NEVER INT64_MAX
#define RS_NO_PEER UINT32_MAX
#define RS_NO_GROUP UINT32_MAX

/* An object as the application names it: appID (UUID) and application-wide unique dataID (Republic, Sec. III). */
typedef struct {
    uint8_t app[16];
    uint64_t data;
} rs_object_id;

/* Digest of a whole object, computed and checked by the caller; the core carries it. */
typedef struct {
    uint8_t algorithm; /* 0 = none, 1 = xxh3-128 tree, 2 = SHA-256 tree (docs/protocol.md) */
    uint8_t length;    /* bytes used of value */
    uint8_t value[32];
} rs_digest;

/* An algorithm without a value: it is being taken, and told later. */
static inline bool rs_digest_follows(const rs_digest *digest) {
    return digest->algorithm != 0 && digest->length == 0;
}

/* Which of the node's three channels a packet takes. The agent maps them to UDP multicast, UDP unicast and TCP; the
 * simulator to its links. */
typedef enum {
    RS_CH_GROUP,         /* data channel, one to many, unreliable */
    RS_CH_PEER_DATAGRAM, /* one to one, unreliable */
    RS_CH_PEER_RELIABLE  /* control channel: one to one, ordered, reliable while the connection lives */
} rs_channel;

#define RS_HEADER_MAX 512 /* encoded header or control message without its payload */
#define RS_COMBINE_MAX 21 /* fragments in one coded repair */

/* Pieces of an object whose XOR is meant, shorter ones filled up with zeros. */
typedef struct {
    uint32_t count;
    uint32_t length[RS_COMBINE_MAX];
    uint64_t offset[RS_COMBINE_MAX];
} rs_combine;

/* A packet out of the core. On the reliable channel `header` begins with the message's length field, which counts the
 * payload too: header and payload go into the stream as they are. `payload_length` bytes of object `xfer`'s data at
 * `payload_offset` follow the header on the wire; where `combine.count` is not 0, the XOR of those pieces instead, the
 * longest of which has `payload_length` bytes. */
typedef struct {
    rs_channel channel;
    rs_peer peer;   /* to whom, on the peer channels */
    rs_group group; /* on RS_CH_GROUP */
    rs_xfer xfer;   /* whose object the payload comes from */
    uint64_t payload_offset;
    uint32_t payload_length;
    rs_combine combine;
    bool markable; /* switches may mark it instead of losing it (ECN): its engine heeds marks */
    uint16_t header_length;
    uint8_t header[RS_HEADER_MAX];
} rs_packet_out;

/* A packet into the core: its header (on the data channel the fixed data header, as long as
 * rs_wire_data_header_length says, on the control channel one whole
 * control message with its length field, without PTCH_DATA's payload: rs_wire_frame in base/wire.h cuts a stream so)
 * and how many payload bytes came behind it. */
typedef struct {
    rs_channel channel;
    rs_peer peer;   /* from whom; RS_NO_PEER on the data channel if the caller cannot tell */
    rs_group group; /* on RS_CH_GROUP */
    const uint8_t *header;
    size_t header_length;
    uint32_t payload_length;
    bool marked;    /* by a switch whose queue was long (ECN) */
    rs_time waited; /* so long it had been in this host when it was read; 0: not known */
    bool late;      /* it may be a copy of one that came before: taken only for a fragment that is not here */
} rs_packet_in;

/* What to do with a received packet's payload. */
typedef enum {
    RS_RX_NONE,    /* no payload, or the packet was handled */
    RS_RX_STORE,   /* new fragment: store it at `offset` of transfer `xfer`'s object; the core counts it as present */
    RS_RX_COMBINE, /* the same, but what to store is the first `length` bytes of payload XOR the pieces in `combine` */
    RS_RX_OLD,     /* a fragment that is already there (or a transfer already done): drop it */
    RS_RX_UNKNOWN, /* no such transfer here: drop it */
    RS_RX_LEAVES,  /* `length` bytes of digests of pieces, the first of which is piece `offset`, are at `leaves` */
    RS_RX_VERSION, /* of another version of the wire: drop it and count it */
    RS_RX_BAD      /* malformed or contradicting: drop it and count it; on the reliable channel close the connection */
} rs_rx_verdict;

typedef struct {
    rs_rx_verdict verdict;
    rs_xfer xfer;
    uint64_t offset;
    uint32_t length;
    const uint8_t *leaves;     /* with RS_RX_LEAVES, until the next call */
    const rs_combine *combine; /* with RS_RX_COMBINE, until the next call: pieces that were to be stored before */
} rs_rx_result;

/* How a path carries the data channel. */
typedef enum { RS_PATH_CIRCUIT = 1, RS_PATH_PACKET = 2 } rs_path_kind;

#define RS_ENGINES_MOST 32 /* their numbers are below */

/* By which protocol a transfer runs: Republic (docs/republic.md), RDCM (docs/rdcm.md), which is for packet trees, or
 * the one for wide areas (docs/wan.md). The numbers are those of engines on the wire. */
typedef enum { RS_PROTOCOL_REPUBLIC = 0, RS_PROTOCOL_RDCM = 1, RS_PROTOCOL_WAN = 2 } rs_protocol;

/* The rings of a backup overlay that a receiver joins (RDCM Sec. 3.2): exactly one leaf ring, if there is more than
 * one receiver, and at most one proxy ring. */
typedef enum { RS_RING_LEAF = 0, RS_RING_PROXY = 1 } rs_ring_kind;

/* A receiver's place in a ring; RS_NO_PEER = none. It acknowledges to predecessor and parent, and repairs the
 * successor. A receiver that is its own parent, because it is the proxy of its leaf ring, says RS_NO_PEER there. With a
 * single receiver there is no ring: it has the sender as parent of its leaf place, and neither neighbour. */
typedef struct {
    rs_peer predecessor, successor, parent;
} rs_ring_place;

/* What a node must know of a transfer's backup overlay. `children`: who acknowledges to it as its overlay parent,
 * without itself; of the sender: the highest ring, or the only receiver. Versions of a transfer increase. */
typedef struct {
    uint64_t version;
    rs_ring_place leaf, proxy;
    const rs_peer *children;
    uint32_t child_count;
} rs_view;

#define RS_STREAM UINT64_MAX /* as a size: a continuing stream, whose end is told later (rs_stream_extend) */

/* Memory, handed in so that tests can make it fail. `alloc` returns zeroed memory or NULL. */
typedef struct {
    void *(*alloc)(void *context, size_t size);
    void (*release)(void *context, void *memory);
    void *context;
    /* NULL, or: this part is written soon, for the first time. */
    void (*soon)(void *context, void *memory, size_t size);
} rs_allocator;

/* Results of the core's calls; negative = error. rs_strerror gives the text. */
typedef enum {
    RS_OK = 0,
    RS_ERR_MEMORY = -1,  /* allocation failed; nothing changed */
    RS_ERR_INVALID = -2, /* an argument is out of its range */
    RS_ERR_EXISTS = -3,  /* that transfer is already open here */
    RS_ERR_UNKNOWN = -4, /* no such transfer, peer or path */
    RS_ERR_LIMIT = -5,   /* a fixed cap (transfers, receivers) is reached */
    RS_ERR_STATE = -6,   /* the call does not fit the transfer's state */
    RS_ERR_PROTOCOL = -7 /* no engine of that protocol here */
} rs_status;

const char *rs_strerror(rs_status status);

#endif
