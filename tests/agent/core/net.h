/* A small network in virtual time: nodes, a control channel between each two, one data channel, light that comes and
 * goes, losses, a manager, and applications that store what they are told to. Tests say what happens when, and read
 * what came of it.
 *
 * Checked at every step: a fragment is stored once, in its place; after rs_timeout at its deadline a node's deadline
 * moves. */
#ifndef TEST_NET_H
#define TEST_NET_H

#include "core/base/wire.h"
#include "core/transfer/node.h"

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define SEC INT64_C(1000000000)
#define ANYONE RS_NO_PEER
#define NET_START (1 * SEC) /* time does not begin at 0 */
#define NET_GROUP 7         /* the usual one, which all hear */

typedef struct net net;

typedef struct {
    rs_time at;
    rs_peer from, to;
    rs_message message;
    uint32_t payload_length;
} net_said;

typedef struct {
    rs_time at;
    rs_peer node;
    rs_event event;
} net_told;

/* What the network does to a data packet on its way to a server: true = it is lost. Of repair packets (flag
 * RS_DATA_REPAIR) sn and aux are not to be looked at. */
typedef bool (*net_drop)(net *n, rs_peer to, const rs_data_header *header, void *context);

/* Of each data packet and each packet between peers (acknowledgements and repairs of RDCM): when it is sent (`to`
 * ANYONE for the data channel) and when it arrives. */
typedef void (*net_watch)(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                          size_t length, void *context);

/* Of each control message as it arrives: what is said instead is put into `in`, whose header is the function's then.
 * True: it never comes. */
typedef bool (*net_tamper)(net *n, rs_peer from, rs_peer to, rs_packet_in *in, void *context);

/* What the application side of a server does. */
/* KEEPS: it has some from before and fetches the rest, until it is told to do otherwise. */
typedef enum { APP_ACCEPTS, APP_REFUSES, APP_HAS_IT, APP_SLEEPS, APP_KEEPS } net_app;

typedef struct {
    rs_time now;
    /* knobs, to be set before or between runs */
    rs_time data_delay, data_jitter; /* one way */
    rs_time control_delay, connect_delay, manager_delay;
    int64_t control_rate_bps; /* of each connection; 0 = endless */
    int64_t control_port_bps; /* what switches leave to control messages to each server; 0 = endless */
    double loss;              /* of data packets, everywhere */
    double burst;             /* mean number of packets lost in a row; 0 = each by itself */
    int64_t uplink_bps;       /* the senders' own ports: what they carry; 0 = endless */
    uint64_t uplink_bytes;    /* and the queue in front of each */
    rs_time look;             /* receivers look at their sockets so often; 0 = at once */
    double duplicate;
    bool marks; /* every packet of the data channel, and of those between peers, was marked by a switch on its way */
    bool late;  /* every packet of the data channel may be a copy of one that came before (rs_packet_in.late) */
    bool grant; /* the manager grants `path` (accepted_size 0 = all) when asked */
    rs_path_grant path;
    uint32_t part; /* a grant serves so many of the receivers it is wanted for; 0 = all */
    net_drop drop;
    void *drop_context;
    bool measures;    /* connections tell round trips */
    double peer_loss; /* of packets between peers */
    net_watch watch;
    void *watch_context;
    net_tamper tamper; /* NULL: nobody does */
    void *tamper_context;
    bool resumes; /* what came of an object from a server that is gone counts when another sends it on */
    bool quiet;   /* keep no record of messages: for the large runs */
    /* what came of it */
    uint64_t data_packets;   /* put on the data channel, repair packets too */
    uint64_t repair_packets; /* of these, with fragments in them */
    uint64_t uplink_drops;   /* data packets that found the queue full */
    uint64_t contradictions; /* data packets that contradict the transfer they name */
    uint64_t trace;          /* hash of everything said and told */
} net_knobs;

net *net_new(uint32_t servers, const rs_config *config, uint64_t seed);
void net_free(net *n); /* fails the test if a node leaked */
net_knobs *net_knob(net *n);
rs_node *net_node(net *n, rs_peer server);
rs_time net_now(const net *n); /* since NET_START */
double net_random(net *n);     /* [0, 1) */

/* Time. `net_at` runs to that time after NET_START; `net_run` until nothing is to come or the bound, and returns the
 * time since NET_START. */
void net_at(net *n, rs_time time);
rs_time net_run(net *n, rs_time bound);

/* Servers and their light. */
void net_dark_until(net *n, rs_peer server, rs_time time); /* no data packet reaches it before; RS_NEVER = ever */
void net_ringing_until(net *n, rs_peer server, rs_time time, double loss);
void net_bottleneck(net *n, rs_peer server, int64_t rate_bps, uint32_t buffer_packets, bool at_socket);
void net_room(net *n, rs_peer server, uint64_t bytes); /* what it tells senders that its socket takes */
void net_kill(net *n, rs_peer server);                 /* crashes: says nothing any more, its connections end */
void net_freeze(net *n, rs_peer server);               /* says nothing any more, its connections stay */
/* Its process is stopped from now for so long. Its connections stay, what comes by them waits, data is lost. */
void net_pause(net *n, rs_peer server, rs_time time);
void net_restart(net *n, rs_peer server);   /* again, with nothing known */
void net_cut(net *n, rs_peer a, rs_peer b); /* the control connection ends, what is on the way is lost */
void net_unreachable(net *n, rs_peer server, bool unreachable); /* its control channel cannot be connected */
void net_mute(net *n, rs_peer server, bool mute);               /* packets between peers neither leave nor reach it */
void net_application(net *n, rs_peer server, net_app app);
void net_bad_digest(net *n, rs_peer server);
/* The first `times` times that it is complete, these bytes are wrong there: it fetches them again. From the second time
 * on the sender looks at its bytes again. */
void net_wrong_piece(net *n, rs_peer server, uint64_t offset, uint64_t length, uint32_t times);
void net_bytes_change(net *n, rs_peer sender); /* what it digests again is not what it was */
/* The memory of a server changes these fragments as they come: what it stores, and repairs others with. Of a sender: as
 * it sends them, by whatever channel. A receiver of a stream finds wrong what comes, as agents do by its check; of an
 * object by its digest, and fetches the piece again. */
void net_spoils(net *n, rs_peer server, uint64_t from, uint64_t to);
uint64_t net_wrong(const net *n, rs_peer server, uint64_t data); /* fragments of it that are wrong there now */
uint32_t net_fetches(const net *n, rs_peer server);              /* of wrong pieces */
uint32_t net_retaken(const net *n, rs_peer sender);              /* digests taken again */
void net_verify_takes(net *n, rs_peer server, rs_time time);
void net_allocations(net *n, int64_t fail_at);          /* the so manieth allocation from now fails; -1 = none */
uint64_t net_allocated(const net *n);                   /* allocations made so far */
uint64_t net_memory_most(const net *n, rs_peer server); /* bytes its node had at once, at most */

/* Transfers. */
rs_object_id net_object(uint64_t data);
rs_status net_send(net *n, rs_peer from, uint64_t data, uint64_t size, uint32_t receivers, const rs_peer *to,
                   rs_xfer *out);
void net_stragglers(net *n, rs_straggler_policy policy);    /* of sends from now on */
void net_digest(net *n, rs_digest digest);                  /* the same */
rs_xfer net_send_all(net *n, uint64_t data, uint64_t size); /* from server 0 to all the others */
/* A stream by RDCM to all the others, of which at most so many fragments are to be sent. */
rs_xfer net_stream_all(net *n, uint64_t data, uint64_t fragments_most);
/* The knob's path for so many bytes, to some receivers, under a group that only receivers of its session hear. */
rs_path_grant net_part(net *n, uint64_t bytes, uint32_t count, const rs_peer *receivers);
void net_grant(net *n, rs_peer sender, rs_xfer xfer, const rs_path_grant *grant);

/* After a call into a node: asserts that it went well and lets the node speak. */
void net_call(net *n, rs_peer server, rs_status status);

/* What came of it. */
bool net_has(const net *n, rs_peer server, uint64_t data); /* whole, verified, RECEIVE_DONE */
const net_told *net_event(const net *n, rs_peer node, rs_event_kind kind, rs_peer peer); /* the first, NULL if none */
const net_told *net_event_nth(const net *n, rs_peer node, rs_event_kind kind, uint32_t which); /* from 0 */
uint32_t net_events(const net *n, rs_peer node, rs_event_kind kind, rs_peer peer);             /* how many */
const net_said *net_message(const net *n, rs_peer from, rs_peer to, rs_message_type type, uint32_t which);
uint32_t net_messages(const net *n, rs_peer from, rs_peer to, rs_message_type type);
rs_xfer_stats net_stats(net *n, rs_peer node, rs_xfer xfer);
rs_xfer net_receiving(const net *n, rs_peer server); /* the last transfer offered to it */
uint64_t net_last_sn(const net *n);                  /* of the last data packet sent */
void net_show(const net *n);                         /* the timeline, for a person with a failing test */

#endif
