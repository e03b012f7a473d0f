/* Wire formats of docs/protocol.md, version 2: the data channel's fixed header and the control channel's messages.
 *
 * Encoders never write, decoders never read, beyond the length they are given. Decoders take exactly what encoders
 * make: unknown flags, nonzero padding, trailing bytes, lengths out of bounds are errors. HELLO and ABORT keep their
 * first fields in every version, so that agents of two versions can tell each other why they part. */
#ifndef RS_CORE_WIRE_H
#define RS_CORE_WIRE_H

#include "core/base/types.h"

#define RS_WIRE_VERSION 2
/* The first two bytes of datagrams. */
#define RS_DATA_MAGIC 0x5253
#define RS_ACK_MAGIC 0x4152        /* between peers: rdcm/wire.h, */
#define RS_REPORT_MAGIC 0x5052     /* feedback/report.h, */
#define RS_WAN_STATUS_MAGIC 0x5357 /* and wan/wire.h */
#define RS_MESSAGES_MAGIC 0x5247   /* of group messages (groups/wire.h) */
#define RS_MESSAGES_KIND_AT 3      /* what a datagram of group messages is: */
#define RS_MESSAGES_KIND_DATA 1    /* a data packet of a group, */
#define RS_MESSAGES_KIND_REGION 16 /* or of a region */
#define RS_DATA_HEADER 32          /* bytes before the fragment in a data packet */
#define RS_REPAIR_HEADER 48        /* bytes before the payload in a repair packet */
#define RS_SEAL_BYTES 28           /* more in a packet that is sealed: docs/protocol.md */
#define RS_CONTROL_LENGTH 4        /* the length field in front of a control message */
#define RS_CONTROL_COMMON 20       /* length field and common part */
#define RS_CONTROL_PEEK 8          /* of a message's bytes tell how it lies in a stream */
#define RS_PATCH_HEADER 28         /* a PTCH_DATA up to its fragment */
#define RS_FRAGMENT_MAX 65000      /* bytes in a fragment */
#define RS_FRAGMENT_LEAST 256      /* of an object of more fragments than the next: work for each of them */
#define RS_FRAGMENTS_SMALL 65536   /* must stay in proportion to the bytes */
#define RS_STREAM_FRAGMENTS (UINT64_C(1) << 40) /* of a stream whose end is not known */
#define RS_NAME_MAX 255
#define RS_WIRE_KEY 32
#define RS_REPAIR_NUMBERS ((1u << 24) - 1)
#define RS_REPAIR_SPARSE 11u
#define RS_REPAIR_FAR 65535u
#define RS_REPAIR_NEAR 255u
#define RS_CAUSE_MAX 160           /* bytes kept of a cause, with its ending NUL */
#define RS_SESSIONS_MAX (1u << 24) /* of a transfer: data packets have 3 bytes for its number */

/* What a data packet costs on an Ethernet wire besides header and fragment: IPv4, UDP, Ethernet with FCS, preamble and
 * gap. */
#define RS_WIRE_OVERHEAD (20 + 8 + 18 + 20)

/* RS_DATA_LIMIT: `aux` holds a report of the engine's (RDCM: up to which sn the sender may go now). RS_DATA_REPORT:
 * whoever sees the packet says RATE at once. RS_DATA_REPAIR: the header is an rs_repair_header, and with it only:
 * RS_DATA_MARK, say what is missing (PTCH_MAP); RS_DATA_DONE, all data packets of the session were sent before. */
enum {
    RS_DATA_FIRST = 1,
    RS_DATA_ATTEMPT = 2,
    RS_DATA_REPORT = 4,
    RS_DATA_REPAIR = 8,
    RS_DATA_MARK = 16,
    RS_DATA_DONE = 32,
    RS_DATA_LIMIT = 64,
    RS_DATA_SEALED = 128 /* what follows the header is encrypted; nobody but the daemon's seal sees it */
};

typedef struct {
    uint8_t flags;
    uint8_t engine;   /* rs_protocol */
    uint32_t session; /* below RS_SESSIONS_MAX */
    uint64_t nonce;   /* of the transfer, as in its OPEN: of another opening's packets none is taken */
    uint64_t sn;
    uint64_t aux; /* object size with RS_DATA_FIRST, the engine's report with RS_DATA_LIMIT, else 0 */
} rs_data_header;

/* A repair: the XOR of fragments, of which each of those it is for misses one. */
typedef struct {
    bool mark, done;
    uint8_t engine;
    uint32_t session;
    uint64_t nonce;
    uint32_t number; /* of the session's repair packets, from 1 to RS_REPAIR_NUMBERS */
    uint32_t count;  /* members; 0: only a mark */
    /* Fragments, in increasing order: RS_REPAIR_SPARSE of them each at most RS_REPAIR_FAR from the one before, or
     * RS_COMBINE_MAX at most RS_REPAIR_NEAR. */
    uint64_t member[RS_COMBINE_MAX];
} rs_repair_header;

typedef enum {
    RS_MSG_HELLO = 1,
    RS_MSG_OPEN = 2,
    RS_MSG_OPEN_ACK = 3,
    RS_MSG_INTL_SEQ = 4,
    RS_MSG_PTCH_REQ = 5,
    RS_MSG_PTCH_DATA = 6,
    RS_MSG_DATA_FNSD = 7,
    RS_MSG_DATA_RCVD = 8,
    RS_MSG_RATE = 9,
    RS_MSG_ABORT = 10,
    RS_MSG_PING = 11,
    RS_MSG_PONG = 12,
    RS_MSG_PTCH_MAP = 13,
    RS_MSG_LEAF_REQ = 14,
    RS_MSG_LEAVES = 15,
    RS_MSG_REPORT_TO = 16,
    RS_MSG_NAME = 17, /* between agents: no engine takes them */
    RS_MSG_KEY = 18,
    RS_MSG_CARRY_TO = 19,
    RS_MSG_CARRY = 20,
    RS_MSG_CARRIED = 21
} rs_message_type;

/* What a RATE may say at most: a receiver says no more, and sums of these do not overflow. */
#define RS_RATE_COUNT_MAX (UINT64_C(1) << 48)  /* packets */
#define RS_RATE_BPS_MAX (UINT64_C(1) << 50)    /* 1.1 Pb/s */
#define RS_RATE_AT_MAX (UINT64_C(1) << 62)     /* ns: 146 years */
#define RS_RATE_WAITED_MAX (UINT64_C(1) << 40) /* ns: 18 minutes */

/* KEPT: some of it is here from before, the rest is being fetched by pieces; to be asked again. LEAVES, LEFT: the
 * receiver wants it no more, and nothing is wrong. */
enum { RS_ACK_ACCEPTED = 0, RS_ACK_REFUSED = 1, RS_ACK_HAVE = 2, RS_ACK_KEPT = 3, RS_ACK_LEAVES = 4 };
enum { RS_RCVD_COMPLETE = 0, RS_RCVD_MISMATCH = 1, RS_RCVD_GIVEN_UP = 2, RS_RCVD_LEFT = 3 };
/* OPEN's path kind: an rs_path_kind; or the session has no data channel and comes by patches. */
enum { RS_OPEN_NO_PATH = 0 };

#define RS_MAP_BYTES 448
#define RS_MAP_BITS (8 * RS_MAP_BYTES) /* fragments one PTCH_MAP tells of, one by one */
#define RS_LEAVES_BYTES 448            /* of digests in one LEAVES: 28 of 16 bytes, 14 of 32 */

/* In PTCH_REQ: the range lies in the ring of the whole object, [0, number of fragments). */
#define RS_SESSION_OBJECT UINT32_MAX
/* In OPEN to one receiver: it leaves the data channel for good, its session is the whole object by patches. */
#define RS_SESSION_DEMOTED (UINT32_MAX - 1)

typedef struct {
    uint16_t length;
    char text[RS_CAUSE_MAX]; /* text[length] is 0 */
} rs_wire_cause;

#define RS_HELLO_TREE (UINT32_C(1) << 31)  /* in HELLO, beside engines: it knows REPORT_TO */
#define RS_HELLO_NAME (UINT32_C(1) << 30)  /* the same: it knows NAME */
#define RS_HELLO_CARRY (UINT32_C(1) << 29) /* the same: it knows CARRY_TO, CARRY and CARRIED */
#define RS_HELLO_ENGINES UINT32_C(0xff)    /* the same: engines, whose numbers are below 8 */
/* The same: for which server what follows is (rs_wire_hello_for); 0: nothing is said of that. */
#define RS_HELLO_FOR UINT32_C(0x1fffff00)
#define RS_REPORT_TO_MOST 32u /* children of one receiver */
#define RS_CARRY_PLACES 64u   /* named by one CARRY_TO */
#define RS_CARRY_BYTES 128u   /* of one CARRY's set */
#define RS_CARRY_BITS (8 * RS_CARRY_BYTES)
#define RS_CARRIED_MOST 16384u /* receivers of one carrier: their numbers are below */
#define RS_INNER_BYTES 288u

/* Where an agent takes datagrams. */
typedef struct {
    uint32_t address; /* IPv4, host order; 0: nowhere */
    uint16_t port;
} rs_wire_place;

/* A message within another one, of the same transfer and session: its type and its fields as they are on the wire. */
typedef struct {
    uint8_t type; /* of rs_message_type; 0: none */
    uint16_t length;
    uint8_t bytes[RS_INNER_BYTES];
} rs_wire_inner;

typedef struct {
    rs_message_type type;
    uint8_t version; /* of the wire; another than RS_WIRE_VERSION in HELLO and ABORT only */
    uint64_t nonce;  /* of the transfer: drawn by its sender, the same in its every message and data packet */
    uint32_t session;
    union {
        struct {
            uint32_t engines; /* bit e: the agent knows engine e; and RS_HELLO_... */
            uint64_t boot;
            uint16_t name_length;
            char name[RS_NAME_MAX + 1];
        } hello;
        struct {
            rs_object_id object;
            uint64_t size;
            uint32_t fragment_size;
            uint64_t first, end; /* the session's ring: [first, end) */
            uint32_t feedback_us;
            uint32_t group_address;
            uint16_t data_port;
            uint8_t engine;    /* rs_protocol, or one that is not known here */
            uint8_t path_kind; /* rs_path_kind, RS_OPEN_NO_PATH, or one that is not known here */
            uint8_t light_confirm;
            uint32_t epoch; /* 0 */
            rs_digest digest;
        } open;
        struct {
            uint8_t status;
            uint64_t room; /* bytes of data packets that may wait at the receiver before it drops any; 0 = unknown */
            rs_wire_cause cause;
        } open_ack;
        struct {
            uint64_t sn;
        } intl_seq;
        struct {
            uint64_t start, end; /* both excluded, going around */
        } ptch_req;
        struct {
            uint64_t sn;
        } ptch_data;
        struct {
            uint8_t status;
            uint64_t patched;
            rs_wire_cause cause;
        } data_rcvd;
        struct {
            uint64_t highest, received, repairs, dropped, share_bps;
            uint64_t at;        /* ns of the receiver's clock, when the newest of these packets came to its host */
            uint64_t waited;    /* ns that it waited there before it was read */
            uint32_t receivers; /* that the report speaks for: 1, itself, until reports are aggregated */
        } rate;
        struct {
            rs_wire_cause cause;
        } abort;
        struct {
            uint64_t token; /* PONG too */
        } ping;
        struct {
            uint64_t from, base;       /* of [from, base) nothing is missing; bits speak of [base, base + bits) */
            uint32_t number;           /* newest repair packet of the session seen; 0 = none */
            bool last;                 /* nothing else is missing of what was to come until now */
            uint16_t bits;             /* at most RS_MAP_BITS */
            uint8_t map[RS_MAP_BYTES]; /* bit i % 8 of byte i / 8 set: fragment base + i is missing */
        } ptch_map;
        struct {
            uint64_t first; /* leaf of the digest tree */
            uint16_t count; /* at least 1 */
            bool retake;    /* one leaf: the sender takes the digest of its bytes again before it answers */
        } leaf_req;
        struct {
            uint64_t first;
            uint16_t count;
            uint8_t width; /* bytes of each */
            uint8_t bytes[RS_LEAVES_BYTES];
        } leaves;
        struct {
            bool on;              /* it reports by the tree; else by RATE, and the rest is 0 */
            uint8_t height;       /* levels below it */
            uint32_t sample_us;   /* so often it says RATE all the same; at least 1 */
            rs_wire_place parent; /* to whom; nowhere: to the sender */
            uint8_t count;
            rs_wire_place children[RS_REPORT_TO_MOST]; /* whose reports it collects */
        } report_to;
        struct {
            rs_object_id object;
            uint16_t length; /* 1 to RS_NAME_MAX */
            char text[RS_NAME_MAX + 1];
        } name; /* by which programs at the sender know the object */
        struct {
            uint16_t epoch; /* at least 1 */
            uint32_t in_ms; /* it is sealed with from then on */
            uint8_t key[RS_WIRE_KEY];
            uint8_t signer[RS_WIRE_KEY]; /* by which its sender signs a stream; all zero: it does not */
        } key;                           /* of the transfer's data channel */
        struct {
            uint16_t first; /* number of the first of them */
            uint8_t count;  /* at least 1 */
            rs_wire_place places[RS_CARRY_PLACES];
        } carry_to; /* receivers that the one it is for carries to */
        struct {
            uint16_t base;               /* bit i of the set is receiver 8 * base + i */
            uint8_t bytes;               /* of the set, at least 1; neither the first nor the last is 0 */
            uint8_t set[RS_CARRY_BYTES]; /* whom it is for, or who says it */
            rs_wire_inner inner;         /* none: nothing can be carried to them */
        } carry;
        struct {
            rs_wire_place sender; /* of the transfer; nowhere: it goes to the sender */
            uint8_t name_length;  /* 0: not told */
            char name[RS_NAME_MAX + 1];
            rs_wire_inner inner;
        } carried;
    };
} rs_message;

/* Whether a datagram by multicast is a data packet of group messages, by its first four bytes (groups/wire.h), as what
 * loses packets on purpose has to know. */
bool rs_wire_is_message_data(const uint8_t *bytes, size_t length);

/* Writes RS_DATA_HEADER bytes. */
void rs_wire_encode_data(const rs_data_header *header, uint8_t out[RS_DATA_HEADER]);

/* False if the bytes are not a data header of this version. */
bool rs_wire_decode_data(const uint8_t *bytes, size_t length, rs_data_header *out);

/* Of which transfer a datagram is, whatever it is: all of them have it at the same place. False: too short. */
bool rs_wire_nonce(const uint8_t *bytes, size_t length, uint64_t *nonce);
/* A datagram from a peer, of any engine: how many of its bytes are header as rs_packet_in wants it, the rest being
 * payload. -1: none of ours. */
int rs_wire_datagram(const uint8_t *bytes, size_t length, size_t *header_length);

/* The wire version that a datagram of the data channel or between peers claims; -1 if it is none of ours. */
int rs_wire_version(const uint8_t *bytes, size_t have);

/* How many bytes in front of its payload a data packet has, told by its first 4 bytes: RS_DATA_HEADER, or
 * RS_REPAIR_HEADER for a repair. */
size_t rs_wire_data_header_length(const uint8_t *bytes, size_t have);
/* Of a header of RS_REPAIR_HEADER bytes. */
uint8_t rs_wire_repair_engine(const uint8_t *header);

/* Writes RS_REPAIR_HEADER bytes. Members are as rs_repair_header says. */
void rs_wire_encode_repair(const rs_repair_header *header, uint8_t out[RS_REPAIR_HEADER]);

/* False if the bytes are not a repair's header of this version. */
bool rs_wire_decode_repair(const uint8_t *bytes, size_t length, rs_repair_header *out);

/* Writes a whole control message with its length field (PTCH_DATA: up to its fragment of `payload_length` bytes, which
 * the caller puts behind it). Returns the bytes written; 0 if they do not fit `capacity` or the message is not valid.
 * RS_HEADER_MAX always suffices. */
size_t rs_wire_encode(const rs_message *message, uint32_t payload_length, uint8_t *out, size_t capacity);

/* Reads a whole control message with its length field (PTCH_DATA: its first RS_PATCH_HEADER bytes, `payload_length`
 * bytes of fragment behind them; else `payload_length` is 0). False if malformed. */
bool rs_wire_decode(const uint8_t *bytes, size_t length, uint32_t payload_length, rs_message *out);

/* For a reader of the control channel's byte stream: how the next message lies in it, from its first `have` bytes. 1:
 * known (RS_CONTROL_PEEK bytes suffice), `*header_length` bytes are the message as rs_packet_in wants it, and
 * `*payload_length` bytes of fragment follow; 0: more bytes are needed; -1: none of ours, close the connection. */
int rs_wire_frame(const uint8_t *bytes, size_t have, size_t *header_length, uint32_t *payload_length);

/* Of a server's name, the bits RS_HELLO_FOR; never 0. */
uint32_t rs_wire_hello_for(const char *name);

void rs_wire_cause_set(rs_wire_cause *cause, const char *text);

/* A control message's fields alone, at most `most` bytes: what goes within others. False: it cannot be said, or is
 * longer; and: malformed. */
bool rs_wire_encode_fields(const rs_message *message, uint8_t *out, size_t most, size_t *length);
bool rs_wire_decode_fields(uint8_t type, uint64_t nonce, uint32_t session, const uint8_t *fields, size_t length,
                           rs_message *out);
/* False: it is of a kind that is not carried. */
bool rs_wire_inner_set(rs_wire_inner *inner, const rs_message *message);
/* The message that it is. False: malformed, or none. */
bool rs_wire_inner_get(const rs_wire_inner *inner, uint64_t nonce, uint32_t session, rs_message *out);
bool rs_wire_inner_same(const rs_wire_inner *one, const rs_wire_inner *other);

#endif
