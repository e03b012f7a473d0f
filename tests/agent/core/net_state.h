/* What the test network remembers: net.c runs it, net_tests.c is what tests do to it and see of it. */
#ifndef TEST_NET_STATE_H
#define TEST_NET_STATE_H

#include "net.h"

#define SERVERS_MAX 1100
#define WRITABLE_BYTES 262144
#define OBJECTS_MAX 64

#define NOT_ASKED INT64_MIN
#define SOCKET_MOST 512

enum { RIGHT = 1, WRONG = 2 };

typedef enum { DO_DATA, DO_DATAGRAM, DO_CONTROL, DO_CONNECTED, DO_GRANT, DO_VERIFIED, DO_DRAINED } net_what;

typedef struct net_item {
    rs_time at;
    struct net_item *next; /* of those that are spare */
    net_what what;
    rs_peer from, to;
    uint32_t epoch; /* of the connection, or of the server */
    uint32_t length, payload_length;
    bool wrong; /* its payload is not what the sender has */
    uint64_t payload_offset;
    rs_group group;
    rs_xfer xfer;
    uint8_t *more; /* headers over 128 bytes */
    /* what is not set below is not looked at: these are many, and long */
    rs_combine combine;
    uint8_t bytes[128];
} net_item;

/* In the heap of what is on its way: what is compared lies in it. */
typedef struct {
    rs_time at;
    uint64_t order;
    net_item *item;
} net_place;

typedef struct {
    rs_xfer xfer;
    uint64_t data, size;
    uint32_t fragment_size;
    uint64_t stored_bytes, fragments;
    bool unchecked;  /* all is here, the digest not */
    uint8_t *stored; /* of each fragment: 0 not here, RIGHT, or WRONG bytes */
    uint64_t wrong;  /* so many of these */
    bool stream, whole;
    bool done; /* RECEIVE_DONE: its place may be forgotten */
} net_store;

typedef struct {
    struct net *net;
    uint64_t bytes, most; /* allocated by its node */
} net_memory;

typedef struct {
    rs_node *node;
    net_memory memory;
    bool dead, frozen, unreachable, bad_digest, mute;
    bool paused; /* its process is stopped, or has not been told yet that it was */
    rs_time paused_until;
    uint32_t waiting;     /* datagrams in its sockets while it is stopped: SOCKET_MOST, the rest is lost */
    rs_time lost;         /* in which its process was stopped, all together */
    uint32_t wrong_times; /* the piece has a wrong digest so often more */
    uint64_t wrong_offset, wrong_length;
    bool retakes, changed; /* asks to; its own bytes have changed */
    uint32_t fetches, retaken;
    uint64_t spoils_from, spoils_to; /* fragments that its memory changes when they come */
    uint32_t epoch;
    rs_time dark_until, ringing_until, verify_time;
    double ringing_loss;
    int64_t bottleneck_bps;
    uint32_t buffer_packets;
    bool at_socket;
    uint64_t room;        /* told as the bytes its socket takes */
    rs_time port_free;    /* the bottleneck's queue is empty then */
    rs_time uplink_free;  /* and that of its own port */
    rs_time control_free; /* control's queue to it is empty then */
    bool in_burst;
    net_app app;
    net_store stores[OBJECTS_MAX];
    uint32_t store_count;
    rs_xfer incoming;
    rs_group group; /* it listens to, besides NET_GROUP */
} net_server;

typedef struct {
    bool up;
    uint32_t epoch;
    rs_time free_at[2]; /* the pipe each way is empty then */
    rs_time said_at[2];
    bool full[2];
} net_connection;

struct net {
    net_knobs knobs;
    uint32_t server_count;
    net_server *servers;
    rs_time *due;                /* of each server: the deadline of its node; NOT_ASKED: that was called since */
    net_connection *connections; /* upper triangle as a square */
    net_place *heap;
    size_t heap_count, heap_capacity;
    uint64_t order, random;
    net_said *said;
    size_t said_count, said_capacity;
    net_told *told;
    size_t told_count, told_capacity;
    uint64_t last_sn;
    int64_t fail_at;
    uint64_t allocations, outstanding;
    rs_config config;
    rs_straggler_policy stragglers;
    rs_digest digest;
    uint64_t stream_most;
    uint32_t groups; /* made for parts */
    uint8_t leaves[64 * 16];
};

/* net.c */
void *grow(void *array, size_t count, size_t *capacity, size_t each);
void hash(net *n, const void *bytes, size_t length);
void push(net *n, net_item *item); /* what happens at item->at */
net_item *item(net_what what, rs_time at, rs_peer from, rs_peer to);
void start_node(net *n, rs_peer server);
void pump(net *n, rs_peer server); /* events and packets out, until there are none */
bool step(net *n, rs_time bound);  /* to the next thing that happens; false if that is later */
net_connection *between(net *n, rs_peer a, rs_peer b);

/* net_links.c: packets that a node gives out */
void put_control(net *n, rs_peer from, const rs_packet_out *out);
void put_data(net *n, rs_peer from, const rs_packet_out *out);
void put_datagram(net *n, rs_peer from, const rs_packet_out *out);
void watch(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header, size_t length);
net_store *store_of(net_server *s, rs_xfer xfer);

#endif
