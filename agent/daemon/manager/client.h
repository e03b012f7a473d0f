/* The agent's connection to the manager (Republic, Table II): framed Thrift messages over one non-blocking TCP socket,
 * by TLS if it is asked for.
 *
 * Nothing here blocks, starts a thread or reads a clock. The owner hands in the time, watches the descriptor that
 * `watch` names, calls rs_manager_on_ready when it is ready, and rs_manager_timeout when rs_manager_deadline has come
 * (ask for the deadline again after every call). Callbacks run inside these calls and may call any function here but
 * rs_manager_free. Pointers in a callback's arguments are valid until it returns; what a caller passes in is copied.
 *
 * The client keeps one connection up, trying again after 0.1 ... 2 s for ever (of several managers, the next one),
 * sends Manager.hello on each, and counts as up after Agent.welcome. What happens to calls around an outage:
 *   requests: sent, and those the manager has not answered when the connection breaks repeated, on the next one (same
 *     id: no further effect). How long they wait for it is the owner's to say, by rs_manager_cancel; they fail with a
 *     cause after `request_hold`;
 *   releases, cancels, final reports: held (bounded) and told after the reconnect, in order;
 *   keepalives, other reports: dropped.
 * A path the manager accepts for a request that is not pending (any more) is released by the client itself. */
#ifndef RS_DAEMON_MANAGER_H
#define RS_DAEMON_MANAGER_H

#include "daemon/manager/tls.h"

#define RS_MANAGER_FRAME_MAX (1u << 21)  /* bytes of one frame, both ways */
#define RS_MANAGER_OUTPUT_MAX (8u << 20) /* bytes not yet taken by the socket; more closes the link */
#define RS_MANAGER_REQUESTS_MAX 1024u    /* requests without a final answer */
#define RS_MANAGER_DEFERRED_MAX \
    1024u                         /* releases, cancels and final reports kept for a reconnect; the oldest goes first */
#define RS_MANAGER_NAME_MAX 255u  /* bytes of a server's name or an id */
#define RS_MANAGER_TEXT_MAX 4096u /* bytes of a reason or cause */
#define RS_MANAGER_RECEIVERS_MAX 16384u   /* receivers of one request */
#define RS_MANAGER_GROUP_PEERS_MAX 65536u /* members of a message group, and views of one call */

/* What a request asks for; AUTO (0 too): the manager chooses. As in controller/rostrum.thrift. */
typedef enum {
    RS_MANAGER_AUTO = 1,
    RS_MANAGER_REPUBLIC = 2,
    RS_MANAGER_RDCM = 3,
    RS_MANAGER_WAN = 4
} rs_manager_protocol;

#define RS_MANAGER_STANDBYS_MAX 3u
#define RS_MANAGER_PROTOCOLS_MAX 4u
#define RS_MANAGER_ENGINES_MAX 16u /* of groups */

#define RS_MANAGER_READ 1u
#define RS_MANAGER_WRITE 2u

typedef struct rs_manager_client rs_manager_client;

typedef enum { RS_MANAGER_ACCEPTED = 1, RS_MANAGER_DENIED = 2, RS_MANAGER_QUEUED = 3 } rs_manager_decision;

/* Where a server's agent is reached on the packet network. */
typedef struct {
    const char *server;
    uint32_t address; /* IPv4, host order */
    uint16_t control_port;
    uint32_t rack; /* the same for servers at one switch; 0 = not known */
} rs_manager_server;

/* Answer to a request. What is behind `reason` holds only with RS_MANAGER_ACCEPTED, and then all of it was checked: the
 * group is a multicast address, ports and sizes are in range, every receiver has an address. */
typedef struct {
    const char *request_id;
    const char *response_id;
    rs_manager_decision decision;
    const char *reason; /* "" if there is nothing to say */
    uint64_t accepted_size;
    rs_path_kind kind;
    uint32_t group; /* IPv4, host order */
    uint16_t data_port;
    rs_time reconfiguration; /* 0 = live at once */
    int64_t rate_bps;        /* 0 = unknown */
    rs_time lease;           /* 0 = not said */
    rs_time light_bound;     /* 0 = never report */
    rs_protocol protocol;
    const rs_manager_server *receivers;
    uint32_t receiver_count; /* may be 0: the owner knows the addresses otherwise */
    const char *const *dark; /* receivers whose first packet need not be waited for */
    uint32_t dark_count;
    uint32_t own_rack;               /* of this server, as rs_manager_server.rack; 0 = not told */
    uint32_t tree_links, path_links; /* rs_path_grant; 0 = not told */
} rs_manager_response;

/* This server's place in a ring of the backup overlay; NULL = none. */
typedef struct {
    const char *predecessor, *successor, *parent;
} rs_manager_ring;

/* What this server must know of the backup overlay of an RDCM path. `servers`: addresses of those named. Versions are
 * those of the path, which response id and group tell apart from other paths of the same object. */
typedef struct {
    const char *response_id;
    uint64_t version;
    uint32_t group; /* IPv4, host order */
    rs_object_id object;
    const char *sender;
    rs_manager_ring leaf, proxy;
    const char *const *children;
    uint32_t child_count;
    const rs_manager_server *servers;
    uint32_t server_count;
} rs_manager_view;

/* With what datagrams are sealed (struct SealKey of controller/rostrum.thrift). */
typedef enum {
    RS_MANAGER_KEY_SELF = 1,
    RS_MANAGER_KEY_GROUP,
    RS_MANAGER_KEY_REGION,
    RS_MANAGER_KEY_PEER
} rs_manager_key_purpose;

typedef struct {
    rs_manager_key_purpose purpose;
    uint32_t id;        /* of a group or region; else the address that this agent's packets show */
    const char *server; /* of a peer */
    uint16_t epoch;
    uint8_t key[32];
    uint32_t transmitter; /* the first of this agent's numbers */
    rs_time in;           /* it is sealed with from then on */
    bool signs;           /* PEER: that server's agent signs, by this key */
    uint8_t signer[32];
} rs_manager_key;

/* What the manager wants looked at (struct ProbeOrder of controller/rostrum.thrift); all of it was checked. */
typedef enum {
    RS_MANAGER_PROBE_FACTS = 1,
    RS_MANAGER_PROBE_LISTEN,
    RS_MANAGER_PROBE_SEND,
    RS_MANAGER_PROBE_REACH
} rs_manager_probe_kind;

typedef struct {
    const char *id;
    rs_manager_probe_kind kind;
    rs_time time;
    uint32_t group; /* IPv4, host order */
    uint16_t port;
    uint32_t packets;
    uint32_t mtu;
    const rs_manager_server *servers;
    uint32_t server_count;
} rs_manager_probe;

/* Sends to several sites (structs of the same names in controller/rostrum.thrift); addresses and names were checked. */
typedef struct {
    const char *options;    /* of the engine for wide areas, NAME=VALUE joined by commas; "": none */
    const char *stragglers; /* "wait", "demote", "evict"; "": as an agent was told */
    uint32_t wait_ms, deadline_ms;
} rs_manager_terms;

typedef struct {
    const char *leg_id, *site;
    const rs_manager_server *relay; /* NULL: the own site */
    const char *const *receivers;
    uint32_t receiver_count;
    bool relay_dials;
    const char *reason;
} rs_manager_leg;

typedef struct {
    const char *request_id;
    const rs_manager_leg *legs;
    uint32_t leg_count; /* 0: not yet, or (`ever`) never */
    bool ever;
    bool with_terms; /* the relays' orders hold those of the request */
    const char *reason;
} rs_manager_split_answer;

typedef struct {
    const char *leg_id;
    rs_object_id object;
    rs_manager_server origin; /* address 0: it is not known, and the origin connects */
    const char *const *receivers;
    uint32_t receiver_count;
    bool dials, keeps;
    const rs_manager_leg *onward; /* its own legs; none: it asks for them */
    uint32_t onward_count;
    const rs_manager_terms *terms; /* NULL: none */
} rs_manager_relay_order;

/* Objects at agents (structs of the same names in controller/rostrum.thrift); addresses, ports and names were checked.
 */
#define RS_MANAGER_HELD_MAX 256u   /* of one call */
#define RS_MANAGER_HOLDERS_MAX 32u /* of one answer */

typedef struct {
    rs_object_id id;
    uint64_t size;
    const char *digest, *name; /* name NULL: it has none */
    bool gone;
} rs_manager_held;

/* Whose object it is that a server sends. */
typedef struct {
    rs_object_id id;
    const char *sender, *origin; /* The same: nobody has it pass on that object. */
    const char *digest;          /* Of what the origin has, as in rs_manager_held; "": not known yet. */
    const char *asked;           /* As rs_manager_whose was. */
} rs_manager_origin;

typedef struct {
    rs_object_id id;
    const rs_manager_server *holders; /* control_port: where they give pieces */
    uint32_t holder_count;
    rs_time sent_within; /* 0: nobody was told to send it */
    const char *reason;
} rs_manager_holders;

typedef struct {
    rs_object_id id;
    const char *const *receivers;
    uint32_t receiver_count;
} rs_manager_serve;

/* Message groups (structs of the same names in controller/rostrum.thrift). */
typedef struct {
    const char *protocol, *order, *options;
} rs_manager_group_options;

typedef struct {
    int32_t id;
    const char *server;
    uint32_t address; /* IPv4, host order */
    uint16_t port;
    uint64_t boot_id; /* of its agent; 0: the manager does not know it yet */
} rs_manager_group_peer;

typedef struct {
    uint32_t id;
    uint64_t version;
    bool full;             /* else what changed since `base_version` */
    uint64_t base_version; /* not full */
    const char *group;     /* its name; NULL: name, addresses, port and options are as they were */
    /* Of its channels: multicast, IPv4, host order. At least one, if there is a name and no regions. */
    const uint32_t *addresses;
    uint32_t address_count;
    uint16_t port;
    bool in_regions; /* With a name: it is in these, told before. */
    const int32_t *regions;
    uint32_t region_count;
    bool says_listens; /* else a member listens at all of them, or, without a name, as it did */
    const int32_t *listens;
    uint32_t listen_count;
    bool rejoined; /* This agent was out of the group since the view that it has. */
    rs_manager_group_options options;
    const int32_t *members, *senders, *gone; /* ids of peers */
    uint32_t member_count, sender_count, gone_count;
} rs_manager_group_view;

typedef struct {
    uint32_t region;
    uint64_t version;
    bool full;             /* else what changed since `base_version` */
    uint64_t base_version; /* not full */
    uint32_t address;      /* IPv4, host order; 0: none, by unicast */
    uint16_t port;
    const char *protocol, *options;
    const int32_t *nodes, *gone; /* ids of peers; full, and none: it is of no interest any more */
    uint32_t node_count, gone_count;
} rs_manager_group_region;

typedef enum {
    RS_MANAGER_GROUP_JOIN,
    RS_MANAGER_GROUP_LEAVE,
    RS_MANAGER_GROUP_USE,
    RS_MANAGER_GROUP_UNUSE
} rs_manager_group_call;

typedef struct {
    const char *server;
    const char *state; /* "waiting", "receiving", "done", "failed" */
    const char *cause;
    uint64_t initial_sn;
    uint64_t patched_fragments;
    int64_t first_light_ns; /* wall clock, ns since the epoch; 0 = not yet */
    int64_t complete_ns;
} rs_manager_receiver_report;

/* How a relay's part goes: from it, or to the sender. */
typedef struct {
    const char *leg_id, *origin, *relay;
    const char *state; /* "waiting", "passing", "done", "failed" */
    const char *cause;
    uint64_t bytes; /* of the object, that are at the relay */
    const rs_manager_receiver_report *receivers;
    uint32_t receiver_count;
} rs_manager_relay_report;

/* A path the agent holds, told in hello. */
typedef struct {
    const char *request_id;
    const char *response_id;
    uint32_t group; /* IPv4, host order */
    rs_path_kind kind;
    const char *const *receivers;
    uint32_t receiver_count;
    uint64_t accepted_size;
    rs_protocol protocol;
} rs_manager_live_path;

/* Any callback may be NULL but `watch`. */
typedef struct {
    void *context;
    /* Watch `fd` for `wants` (RS_MANAGER_READ | RS_MANAGER_WRITE), and no other descriptor of this link. fd = -1: none;
     * called before a watched descriptor is closed. Level-triggered. */
    void (*watch)(void *context, int fd, unsigned wants);
    /* Up: text names the manager. Down: text says why and since when. Only changes are told, the first failure to
     * connect, and what is wrong with TLS: that does not pass by itself. */
    void (*on_state)(void *context, bool up, const char *text);
    /* The manager of this connection answers nothing (it is stopped, or cut off), or does again. */
    void (*on_silent)(void *context, bool silent, const char *text);
    void (*on_response)(void *context, const rs_manager_response *response);
    void (*on_moved)(void *context, const char *response_id, rs_path_kind kind, const char *reason);
    void (*on_failed)(void *context, const char *response_id, const char *reason);
    /* Every receivers' rack has light, by the report of its switches (asked for by `wants_light`). */
    void (*on_light)(void *context, const char *response_id);
    void (*on_probe)(void *context, const rs_manager_probe *probe);
    void (*on_view)(void *context, const rs_manager_view *view);
    /* Peers come before views that name them. */
    void (*on_group_peer)(void *context, const rs_manager_group_peer *peer);
    void (*on_group_region)(void *context, const rs_manager_group_region *view); /* before groups that name it */
    void (*on_group_view)(void *context, const rs_manager_group_view *view);
    void (*on_group_refused)(void *context, const char *group, const char *reason);
    /* The network has several sites, and this server is in that one; told on each connection. */
    void (*on_site)(void *context, const char *name);
    void (*on_legs)(void *context, const rs_manager_split_answer *answer);
    void (*on_relay)(void *context, const rs_manager_relay_order *order);
    void (*on_relayed)(void *context, const rs_manager_relay_report *report);
    void (*on_origin)(void *context, const rs_manager_origin *answer);
    void (*on_tell_objects)(void *context); /* on each connection to a manager that wants rs_manager_holds */
    void (*on_holders)(void *context, const rs_manager_holders *answer);
    void (*on_serve)(void *context, const rs_manager_serve *order);
    void (*on_keys)(void *context, const rs_manager_key *keys, uint32_t count); /* only over TLS; wiped afterwards */
    /* The manager refuses this agent; the link closes and tries again later. */
    void (*on_goodbye)(void *context, const char *reason);
    /* All that the manager had said of this agent's paths when rs_manager_confirm was called has been told. */
    void (*on_checked)(void *context);
    /* The index-th path held, false when there are no more. Its pointers need to hold until the next call. */
    bool (*live_path)(void *context, uint32_t index, rs_manager_live_path *out);
} rs_manager_callbacks;

typedef struct {
    uint32_t address; /* IPv4, host order */
    uint16_t port;
} rs_manager_endpoint;

/* Zero in a time means its default, given in brackets. */
typedef struct {
    const char *manager_address; /* IPv4, dotted */
    uint16_t manager_port;       /* [9090] */
    /* Other managers of the same network, one of which leads: tried in turn when this one is not there. */
    rs_manager_endpoint standbys[RS_MANAGER_STANDBYS_MAX];
    uint32_t standby_count;
    const char *server; /* this server's name in the topology */
    uint64_t boot_id;   /* higher at each start of the agent (the manager keeps the newest); seeds the jitter too */
    uint16_t control_port;
    bool wants_light;
    bool knows_sites, relay;                            /* on_site and its like are there; it is there to be a relay */
    bool tells_objects, serves;                         /* rs_manager_holds is called, on_serve is there */
    bool seals;                                         /* on_keys is there, and nothing goes without them */
    const uint8_t *signer;                              /* public key by which it signs, 32 bytes; NULL: it does not */
    uint16_t piece_port;                                /* of those told; 0: nobody can fetch them */
    const struct rs_group_engine *const *group_engines; /* those it has; must stay */
    uint32_t group_engine_count;
    rs_tls_files tls;        /* all NULL = no TLS; read again for each connection if they changed; must stay */
    const char *token;       /* NULL = none; must stay */
    const char *software;    /* NULL = not said; must stay */
    rs_time connect_timeout; /* for the connection, then again for TLS, and for the manager's welcome [2 s] */
    rs_time answer_timeout;  /* a manager that leaves a keepalive unanswered this long is silent [1 s] */
    rs_time backoff_min;     /* [0.1 s] */
    rs_time backoff_max;     /* [2 s] */
    rs_time lease; /* until a response says another [5 s]; a keepalive goes out every quarter of the shortest lease */
    rs_time request_hold; /* how long unanswered requests wait for a connection at most [a day] */
    rs_time
        stall_timeout; /* a peer that takes no output, or stops inside a frame, this long loses the connection [5 s] */
} rs_manager_options;

typedef struct {
    const char *request_id;
    rs_object_id object;
    uint64_t data_size;
    uint64_t remaining_size;
    const char *const *receivers;
    uint32_t receiver_count;
    uint32_t wait_ms;     /* 0 = the manager's default */
    uint32_t deadline_ms; /* 0 = none */
    rs_manager_protocol protocol;
    uint32_t round_trip_us; /* the longest that is known to a receiver; 0 = none is */
    bool splits;            /* a path to some of the receivers will do: the others are asked for by themselves */
    bool parts;             /* the same, where the engine is not known yet (a LAN): it is no stream */
} rs_manager_request_params;

typedef struct {
    const char *request_id;
    const char *response_id;
    const char *phase; /* "attempt", "high-rate", "patching", "done", "failed"; the last two are final */
    const char *cause;
    uint64_t bytes;
    uint64_t sent_packets;
    uint64_t redundant_packets;
    uint64_t patched_packets;
    const rs_manager_receiver_report *receivers;
    uint32_t receiver_count;
} rs_manager_report_params;

typedef struct {
    const char *server;
    const char *cause; /* "" = connected */
    rs_time took;
} rs_manager_reached;

typedef struct {
    const char *id;
    const char *phase; /* "listening", "done", "failed" */
    const char *cause;
    const char *software;
    const char *interface;
    uint32_t mtu;
    int64_t rate_bps;
    int64_t wall_clock_ns;
    uint32_t group_small, group_full, unicast_small, unicast_full;
    const rs_manager_reached *reached;
    uint32_t reached_count;
} rs_manager_probe_report;

typedef struct {
    uint64_t connects, disconnects, frames_in, frames_out, bytes_in, bytes_out, keepalives, requests_repeated,
        kept_dropped;
    uint32_t requests_pending, kept;
} rs_manager_stats;

/* NULL if out of memory or an option is invalid; `text` (of `text_size` bytes) then says which. Nothing is
 * connected before rs_manager_start. */
rs_manager_client *rs_manager_new(const rs_manager_options *options, const rs_manager_callbacks *callbacks, char *text,
                                  size_t text_size);
/* Closes without a message to the manager; `watch(-1)` is called if a descriptor was watched. */
void rs_manager_free(rs_manager_client *link);

void rs_manager_start(rs_manager_client *link, rs_time now);
/* `ready`: RS_MANAGER_READ | RS_MANAGER_WRITE; an error or hang-up on the descriptor counts as both. */
void rs_manager_on_ready(rs_manager_client *link, rs_time now, unsigned ready);
void rs_manager_timeout(rs_manager_client *link, rs_time now);
rs_time rs_manager_deadline(const rs_manager_client *link); /* RS_NEVER before rs_manager_start */
bool rs_manager_up(const rs_manager_client *link);
/* It is up, and the manager is not silent. */
bool rs_manager_answers(const rs_manager_client *link);
/* Asks the manager to answer, at once or when it is connected; then on_checked is called. */
void rs_manager_confirm(rs_manager_client *link, rs_time now);
/* State as text, for people: "connected to manager ..." or "manager 10.255.0.1:9090 unreachable for 3.2 s: Connection
 * refused". */
void rs_manager_describe(const rs_manager_client *link, rs_time now, char *text, size_t text_size);
rs_manager_stats rs_manager_stats_get(const rs_manager_client *link);

/* The calls of Table II. RS_OK = sent or kept. RS_ERR_INVALID: an argument is out of range; RS_ERR_LIMIT: too many
 * requests or too large; RS_ERR_STATE: the link is down (no_light, passing reports), or was not started; RS_ERR_EXISTS:
 * that request is pending. rs_manager_request says it in `text` too (may be NULL). */
rs_status rs_manager_request(rs_manager_client *link, rs_time now, const rs_manager_request_params *request, char *text,
                             size_t text_size);
rs_status rs_manager_release(rs_manager_client *link, rs_time now, const char *request_id, const char *response_id);
rs_status rs_manager_cancel(rs_manager_client *link, rs_time now, const char *request_id);
/* A server hears a path's packets from now on without being its receiver, or (not `joins`) is no receiver any more. */
rs_status rs_link_receiver_change(rs_manager_client *link, rs_time now, const char *response_id, const char *server,
                                  bool joins);
rs_status rs_manager_no_light(rs_manager_client *link, rs_time now, const char *response_id,
                              const char *const *receivers, uint32_t receiver_count);
rs_status rs_manager_report(rs_manager_client *link, rs_time now, const rs_manager_report_params *report);
/* What happened to a successor in a ring (enum FailureKind of controller/rostrum.thrift). */
typedef enum {
    RS_MANAGER_RECEIVER_FAILED = 1,
    RS_MANAGER_TREE_LINK_FAILED = 2, /* one above it */
    RS_MANAGER_TREE_LINK_WORKS = 3   /* and that is over */
} rs_manager_failure_kind;

/* RDCM: the view is in use; something happened to a successor in a ring. */
rs_status rs_manager_view_used(rs_manager_client *link, rs_time now, const char *response_id, uint64_t version);
rs_status rs_manager_failure(rs_manager_client *link, rs_time now, const char *response_id, uint64_t version,
                             rs_manager_failure_kind kind, rs_ring_kind ring, const char *server);
/* RS_MANAGER_GROUP_JOIN and _USE: `options` NULL: as the group is. `held` NULL: nothing of it is held here (its id,
 * version and address are told otherwise). Sent if the link is up, else RS_ERR_STATE: tell again when it is. */
rs_status rs_manager_group(rs_manager_client *link, rs_time now, rs_manager_group_call call, const char *group,
                           const rs_manager_group_options *options, const rs_manager_group_view *held);
/* Who holds a group with guarantees up: programs here, and members that are silent. */
#define RS_MANAGER_TROUBLE_MOST 16u
typedef struct {
    const char *program, *state; /* "waited-for", "loses", "put-out" */
    uint64_t lost;
} rs_manager_slow;
typedef struct {
    const char *group;
    const rs_manager_slow *slow;
    const char *const *silent;
    uint32_t slow_count, silent_count;
} rs_manager_group_trouble;
rs_status rs_manager_tell_group_trouble(rs_manager_client *link, rs_time now, const rs_manager_group_trouble *trouble);
/* To receivers in several sites: answered by on_legs. Sent if the link is up, else RS_ERR_STATE: ask again then.
 * `terms` NULL: none. */
rs_status rs_manager_split(rs_manager_client *link, rs_time now, const char *request_id, const rs_object_id *object,
                           const char *const *receivers, uint32_t receiver_count, const char *const *avoid,
                           uint32_t avoid_count, const rs_manager_terms *terms);
rs_status rs_manager_relayed(rs_manager_client *link, rs_time now, const rs_manager_relay_report *report);
/* Whose object that server sends, by this digest ("": not known yet): answered by on_origin. Sent if the link is up,
 * else RS_ERR_STATE. */
rs_status rs_manager_whose(rs_manager_client *link, rs_time now, const rs_object_id *id, const char *sender,
                           const char *digest);
/* After on_tell_objects. Objects that came or went; `reset`: what was told before is void. The second is answered by
 * on_holders. Both: sent if the link is up, else RS_ERR_STATE. */
rs_status rs_manager_holds(rs_manager_client *link, rs_time now, const rs_manager_held *held, uint32_t count,
                           bool reset);
rs_status rs_manager_fetch(rs_manager_client *link, rs_time now, const rs_object_id *id, bool together);
/* Keys for these servers: on_keys is called as each has an agent at the manager, and whenever they are others. */
rs_status rs_manager_peer_keys(rs_manager_client *link, rs_time now, const char *const *servers, uint32_t count);
rs_status rs_manager_probe_report_send(rs_manager_client *link, rs_time now, const rs_manager_probe_report *report);

#endif
