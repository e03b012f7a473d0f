/* Servers in racks of four, by their numbers; server 0 sends to all others. For tests of the tree of reports. */
#ifndef RS_TESTS_REPUBLIC_RACKS_H
#define RS_TESTS_REPUBLIC_RACKS_H

#include "net.h"

#define GIGABIT INT64_C(1000000000)
#define OBJECT (UINT64_C(64) << 20) /* 0.56 s */
#define SERVERS 23u
#define RACKS_BITS 16 /* rs_directory.host_bits */

static rs_peer racks_peer_at(void *context, uint32_t address, uint16_t port) {
    (void)context;
    (void)port;
    return (address & 0xffff) - 1;
}

static bool racks_place_of(void *context, rs_peer peer, uint32_t *address, uint16_t *port) {
    (void)context;
    peer = peer == RS_NO_PEER ? 0 : peer; /* only the sender asks for its own */
    *address = (peer / 4) << 16 | (peer + 1);
    *port = 7071;
    return true;
}

/* Times without a data packet. */
typedef struct {
    rs_time last, longest;
    rs_time from; /* they are looked at from then on */
} data_gaps;

/* To be called for all that net_knobs.watch tells. */
static inline void data_gaps_see(data_gaps *g, const net *n, bool arrives, rs_channel channel) {
    if (channel != RS_CH_GROUP || arrives)
        return;
    rs_time gap = net_now(n) - g->last;
    if (g->from && g->last >= g->from && gap > g->longest)
        g->longest = gap;
    g->last = net_now(n);
}

/* How many receivers have all of the object. */
static uint32_t complete(const net *n) {
    uint32_t count = 0;
    for (rs_peer i = 1; i < SERVERS; i++)
        count += net_has(n, i, 1);
    return count;
}

/* A network of that configuration on which server 0 begins to send. */
static inline net *racks_begin(const rs_config *config, uint64_t seed, net_watch watch, void *context) {
    net *n = net_new(SERVERS, config, seed);
    net_knob(n)->watch = watch;
    net_knob(n)->watch_context = context;
    net_send_all(n, 1, OBJECT);
    return n;
}

/* OPEN of a small object of that sender, as one who carries hands it in. */
static inline rs_message racks_open_by(rs_peer sender, uint64_t data) {
    rs_message said = {.type = RS_MSG_OPEN, .nonce = 4711}, m = {.type = RS_MSG_CARRIED, .nonce = 4711};
    said.open.object = net_object(data);
    said.open.size = said.open.end = 1;
    said.open.fragment_size = 1;
    said.open.path_kind = RS_PATH_PACKET;
    said.open.group_address = 0xe0000007;
    said.open.light_confirm = 1;
    m.carried.sender = (rs_wire_place){sender + 1, 7071};
    assert_true(rs_wire_inner_set(&m.carried.inner, &said));
    return m;
}

#endif
