/* The seam of object engines. What every transfer shares (tables, peers, opening and accepting, checking, finishing,
 * streams) is the node's; how the bytes get there is an engine's. The node calls an engine by this table only, and no
 * other place asks which engine it is; an engine calls what it stands on directly. To add one: a folder, a row in the
 * table of known engines (rs_engines_known, or rs_config.engines), a name in the IDL.
 *
 * Any operation may be NULL: then there is nothing to do, or the call says RS_ERR_STATE. What an engine remembers hangs
 * off rs_transfer.own, and only that engine looks at it. */
#ifndef RS_CORE_TRANSFER_ENGINE_H
#define RS_CORE_TRANSFER_ENGINE_H

#include "core/transfer/state.h"

/* At the sender. */
typedef struct {
    /* A path was granted, the session is begun. Returns NULL, or why it cannot go by this engine: then the fallback's
     * begin follows, which always can. */
    const char *(*begin)(rs_node *node, rs_time now, rs_sending *x);
    void (*path_moved)(rs_node *node, rs_time now, rs_sending *x, rs_path_kind kind);
    void (*resume)(rs_node *node, rs_time now, rs_sending *x); /* after a pause of the process, or a hold */
    /* A message that is the engine's: of light, rates, and what is missing. */
    rs_rx_verdict (*message)(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m);
    rs_rx_verdict (*peer_datagram)(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r,
                                   const rs_packet_in *packet);
    void (*advance)(rs_node *node, rs_time now,
                    rs_sending *x); /* something changed: a light, an answer, the position */
    void (*schedule)(rs_node *node, rs_time now, rs_sending *x); /* puts it among the ready, or arms its data timer */
    /* The next packet of the data channel. False: none now, and it is not among the ready any more. */
    bool (*poll_data)(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out);
    void (*timeout)(rs_node *node, rs_time now, rs_sending *x);
    rs_time (*deadline)(const rs_node *node, const rs_sending *x);
    void (*receiver_removed)(rs_node *node, rs_time now, rs_recipient *r); /* done, failed or out of reach */
    /* May come before the path, so before `begin`. */
    rs_status (*view)(rs_node *node, rs_time now, rs_sending *x, const rs_view *view);
    void (*stream_grown)(rs_node *node, rs_time now, rs_sending *x); /* more may be sent */
    void (*stats)(const rs_node *node, const rs_sending *x, rs_xfer_stats *out);
} rs_engine_sender;

/* At a receiver. */
typedef struct {
    bool (*begin)(rs_node *node, rs_receiving *x);               /* OPEN came. False: memory is short */
    bool (*accept)(rs_node *node, rs_time now, rs_receiving *x); /* there is room for it here. False: memory is short */
    void (*accepted)(rs_node *node, rs_time now, rs_receiving *x);
    rs_rx_result (*data_packet)(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h);
    rs_rx_result (*patch)(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn); /* PTCH_DATA */
    rs_rx_result (*peer_datagram)(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet);
    void (*data_over)(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m); /* DATA_FNSD */
    /* Makes the message for a bit of RS_SAY_* that is the engine's; `more`: the bit stays set for a further one. */
    bool (*says)(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more);
    /* OPEN again. True: it was all the engine's, and there is nothing else to do. */
    bool (*open_again)(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m);
    void (*ask_again)(rs_node *node, rs_time now, rs_receiving *x); /* requests or what they brought may be lost */
    void (*timeout)(rs_node *node, rs_time now, rs_receiving *x);   /* it may have ended after this */
    rs_time (*deadline)(const rs_node *node, const rs_receiving *x);
    bool (*poll_ack)(rs_node *node, rs_time now, rs_receiving *x, rs_packet_out *out);    /* while it is in in_acking */
    bool (*poll_repair)(rs_node *node, rs_time now, rs_receiving *x, rs_packet_out *out); /* while in in_mending */
    rs_status (*view)(rs_node *node, rs_time now, rs_receiving *x, const rs_view *view);
    rs_status (*verified)(rs_node *node, rs_time now, rs_receiving *x); /* NULL: it is done at once */
    void (*stop)(rs_node *node, rs_receiving *x);      /* it is finished: what only a live one needs is let go */
    bool (*lacks)(const rs_receiving *x, uint64_t sn); /* of a stream: not here, and there is room for it */
    void (*stream_taken)(rs_node *node, rs_time now, rs_receiving *x);
    bool (*stream_ends)(rs_node *node, rs_time now, rs_receiving *x, uint64_t size); /* false: it went further */
    void (*stats)(const rs_node *node, const rs_receiving *x, rs_xfer_stats *out);
} rs_engine_receiver;

struct rs_engine {
    uint8_t id;       /* in OPEN, in data packets, and the bit in HELLO: rs_protocol */
    const char *name; /* for people */
    bool (*fill_defaults)(rs_config *config);
    void (*free)(rs_node *node, rs_transfer *t);                     /* of rs_transfer.own, which is not NULL */
    uint64_t (*stream_here)(const rs_transfer *t);                   /* fragments from the first one on */
    void (*stream_end)(rs_node *node, rs_transfer *t, uint64_t end); /* of so many fragments, as is known now */
    uint32_t path_kinds;                                             /* bit k: it goes by paths of rs_path_kind k */
    uint32_t receiver_events; /* that may wait to be polled, of one receiving transfer */
    bool streams;             /* it carries what has no known end */
    bool by_light;            /* receivers tell when they have light, and are waited for */
    bool begins_over;         /* what is sent by unicast after it is the whole session, however far that was */
    rs_engine_sender sender;
    rs_engine_receiver receiver;
};

/* engine.c. The first one of the table is the fallback: it goes by every path, and needs nothing else. */
extern const rs_engine *const rs_engines_known[];
extern const uint32_t rs_engine_count;

/* select.c */
const rs_engine *rs_engine_of(const rs_node *node, uint32_t id); /* NULL: there is none */
void rs_engine_take(rs_transfer *t, const rs_engine *engine, void *own);
void rs_engine_drop(rs_node *node, rs_transfer *t); /* what an engine remembers; the transfer goes by the fallback */
bool rs_poll_acks(rs_node *node, rs_time now, rs_packet_out *out);
bool rs_poll_repairs(rs_node *node, rs_time now, rs_packet_out *out);
rs_rx_result rs_peer_datagram(rs_node *node, rs_time now, const rs_packet_in *packet);

#endif
