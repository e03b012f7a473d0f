/* The seam of object engines. What every transfer shares (tables, peers, opening and accepting, checking, finishing,
 * streams) is the node's; how the bytes get there is an engine's. The node calls an engine by this table only, and no
 * other place asks which engine it is; an engine calls what it stands on directly. To add one: docs/engines.md,
 * "An engine of objects".
 *
 * path_granted, begin, data_packet, message, say and poll must be there. Any other operation may be NULL: then there is
 * nothing to do, or the call says RS_ERR_STATE. What an engine remembers hangs off rs_transfer.own, and only that
 * engine looks at it. Most operations serve both ends: rs_transfer.sending tells which one it is. */
#ifndef RS_CORE_TRANSFER_ENGINE_H
#define RS_CORE_TRANSFER_ENGINE_H

#include "core/transfer/state.h"

/* What happened to a transfer that its engine may have to act on. */
typedef enum {
    /* at the sender */
    RS_NEWS_SESSION,    /* another session begins, and what is known of the present one is about to go */
    RS_NEWS_DATA_TIMER, /* rs_sending.data_timer is due: the engine puts the transfer among the ready, or sets it again.
                           No events are made here. */
    RS_NEWS_ACCEPTED,   /* `receiver` has accepted */
    RS_NEWS_LEFT,       /* `receiver` has left the data channel: the rest goes to it by unicast */
    RS_NEWS_REMOVED,    /* `receiver` is done or has failed, or its control channel is down */
    RS_NEWS_RECEIVERS,  /* after that, once for all of them: what follows for those that are left */
    RS_NEWS_PATH_MOVED, /* the path is of `kind` from now on */
    RS_NEWS_PATH_LIGHT, /* the switches see data packets arrive at every receiver's */
    RS_NEWS_PATH_LOST,  /* of a stream: it goes on over the control channels (rs_stream.by_unicast) */
    RS_NEWS_RESUMED,    /* after a pause of the process, or a hold: what was measured across it means nothing */
    RS_NEWS_GROWN,      /* more of a stream may be sent; the session may not have begun yet */
    /* at a receiver */
    RS_NEWS_CONNECTED, /* the control channel, of a sender that to `receiver`, is up again while something is missing:
                        * what was said may be lost */
    RS_NEWS_DROPPED,   /* its socket overflowed: rs_receiving.session_dropped packets of the group so far */
    RS_NEWS_TAKEN,     /* the caller needs less of a stream than before */
    RS_NEWS_REFUSED,   /* the bytes of fragment `sn` of a stream were wrong, and are still missing; `from` repaired, or
                          RS_NO_PEER: they came by the data channel */
    RS_NEWS_ENDS,      /* a stream's end is known: rs_transfer.fragments. At the sender, too */
    RS_NEWS_LEAVES,    /* this receiver wants it no more: it asks nobody for anything, and is there for others */
    RS_NEWS_OVER,      /* the session's data channel is over: nobody sends by it any more */
    RS_NEWS_VERIFIED   /* all is here and checked, and it `serves` */
} rs_news_kind;

typedef struct {
    rs_news_kind what;      /* What happened. */
    rs_recipient *receiver; /* At a sender: the receiver that it happened to. */
    rs_path_kind kind;      /* The path's, of news about a path. */
    rs_peer from;           /* At a receiver: who sent the packet. */
    uint64_t sn;            /* The fragment that it is about. */
} rs_news;

/* Why a transfer is asked for a packet: the list of the node it is in. */
typedef enum {
    RS_TURN_DATA,  /* `ready`: data packets, as pacers allow */
    RS_TURN_ACK,   /* `acking`: before all else, like what is said on control channels */
    RS_TURN_REPAIR /* `mending`: to other receivers, in turn with patches */
} rs_turn;

/* Of an engine that carries what has no known end: two more, for only it knows which fragments of a window are here. */
typedef struct {
    /* All fragments below `*here` are here; none from `*top` on. */
    void (*extent)(const rs_transfer *t, uint64_t *here, uint64_t *top);
    bool (*lacks)(const rs_receiving *x, uint64_t sn); /* it is not here, and there is room for it */
} rs_engine_stream;

struct rs_engine {
    uint8_t id;                     /* in OPEN, in data packets, and the bit in HELLO: rs_protocol */
    const char *name;               /* for people */
    const char *word;               /* in the IDL and in commands */
    uint32_t path_kinds;            /* bit k: it goes by paths of rs_path_kind k */
    uint32_t traits;                /* of rs_engine_trait */
    uint32_t receiver_events;       /* that may wait to be polled, of one receiving transfer */
    const rs_engine_stream *stream; /* NULL: it carries none */
    size_t options_size;
    /* Of the first engine of a table: bytes that it remembers of each transfer and of each receiver of one, which lie
     * with these and are zero, and what fills in the rest. */
    size_t sending_size, recipient_size, receiving_size;
    void (*prepare)(rs_time now, rs_transfer *t); /* Fills in what is not zero there. */
    /* The same of an accepted object's fragments: so many sets of them, at `words` from now on; NULL: nowhere. */
    size_t sets;
    void (*lay_sets)(rs_receiving *x, uint64_t *words); /* Has the sets begin at `words`. */
    /* A receiver that has all is still needed by others: the engine ends it (rs_receiver_end). */
    bool (*serves)(const rs_receiving *x);
    /* Fills in `options` from what the caller gave (NULL: all defaults). False: out of range. */
    bool (*configure)(const void *given, void *options);
    /* Options of one send, NAME=VALUE joined by commas: into `asked`, `asked_size` bytes that begin as those of the
     * node's options do. False, with the reason: not to be had. NULL: it takes none. */
    bool (*ask)(const char *text, void *asked, char *reason, size_t size);
    size_t asked_size; /* Bytes of the options of one send. */
    /* At the sender: a path was granted, the session is begun. Returns NULL, or why it cannot go by this engine: then
     * the fallback's follows, which always can. */
    const char *(*path_granted)(rs_node *node, rs_time now, rs_sending *x);
    /* At a receiver: it is accepted, there is room for it here. False: out of memory, and nothing is kept. */
    bool (*begin)(rs_node *node, rs_time now, rs_receiving *x);
    /* At a receiver, not before it is accepted: a data packet of the group, with RS_DATA_REPAIR one of repairs, whose
     * header the engine decodes; or, if the packet came by RS_CH_PEER_RELIABLE, a patch. */
    rs_rx_result (*data_packet)(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h,
                                const rs_packet_in *packet);
    /* A control message: INTL_SEQ, PTCH_REQ, PTCH_MAP, RATE from a receiver (link->peer); from the sender DATA_FNSD,
     * and OPEN when the transfer is known here already: a repetition, or a further session. */
    rs_rx_verdict (*message)(rs_node *node, rs_time now, rs_peer_session *link, const rs_message *m);
    /* At a receiver: makes the message for a bit of RS_CONTROL_* that is the engine's. `more`: the bit stays set for a
     * further one. Control messages are made from the state when they can be sent; none is ever queued. */
    bool (*say)(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more);
    /* At a sender: the same, for a bit of RS_CONTROL_* that the node does not know. */
    bool (*tell)(const rs_node *node, const rs_sending *x, const rs_recipient *r, uint32_t what, rs_message *m);
    rs_rx_verdict (*report_to)(rs_node *node, rs_time now, rs_receiving *x,
                               const rs_message *m); /* to whom to report */
    rs_rx_result (*peer_datagram)(rs_node *node, rs_time now, rs_transfer *t, const rs_packet_in *packet);
    /* The next packet of that turn. False: none now, and the transfer is not in that list any more. */
    bool (*poll)(rs_node *node, rs_time now, rs_transfer *t, rs_turn turn, rs_packet_out *out);
    void (*timeout)(rs_node *node, rs_time now, rs_transfer *t); /* a receiver may have ended after this */
    rs_time (*deadline)(const rs_node *node, const rs_transfer *t);
    void (*notify)(rs_node *node, rs_time now, rs_transfer *t, const rs_news *news); /* News of the node's own. */
    /* At a sender it may come before the path, so before the engine has begun. */
    rs_status (*view)(rs_node *node, rs_time now, rs_transfer *t, const rs_view *view);
    void (*stats)(const rs_node *node, const rs_transfer *t, rs_xfer_stats *out); /* Adds its counters. */
    void (*buffers)(const rs_node *node, rs_send_buffers *out);                   /* NULL: it bounds none. */
    /* The sender's data channel is over before its time, or the transfer is finished: what only a live one needs is let
     * go. */
    void (*stop)(rs_node *node, rs_transfer *t);
    void (*free)(rs_node *node, rs_transfer *t); /* of rs_transfer.own, which is not NULL */
};

/* engine.c. The first one of the table is the fallback: it goes by every path, and needs nothing else. */
extern const rs_engine *const rs_engines_known[];
extern const uint32_t rs_engine_count;

/* What engines stand on. */
#include "core/transfer/carriers.h"
#include "core/transfer/events.h"
#include "core/transfer/knock.h"
#include "core/transfer/members.h"
#include "core/transfer/paths.h"
#include "core/transfer/peer_sessions.h"
#include "core/transfer/pieces.h"
#include "core/transfer/proof.h"
#include "core/transfer/receiver.h"
#include "core/transfer/relay.h"
#include "core/transfer/select.h"
#include "core/transfer/sender.h"
#include "core/transfer/stream.h"
#include "core/transfer/tables.h"

#endif
