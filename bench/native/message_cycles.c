/* What a packet of group messages costs a node's CPU (the counterpart of Fig. 11 of Ricochet's paper), without sockets:
 * a system of n nodes, each in d random groups of n * d / s, runs with loss; all that one node receives is recorded and
 * then given to that node again, timed. `data`: only multicast data packets, with the repairs made of them; `all`: with
 * the repairs that others sent, per data packet. JSON on standard output.
 *
 *   message_cycles [groups per node] [nodes] [group size] [data packets] [loss, percent] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/heap.h"
#include "core/groups/messages.h"
#include "core/groups/wire.h"

#define MESSAGE 1024
#define ROUNDS 5

typedef struct {
    uint8_t *bytes;
    uint32_t length;
    bool data;
} packet;

typedef struct {
    uint32_t nodes, degree, size, groups, packets;
    double loss;
    rs_peer *members; /* [group][node], the first sizes[group] of each */
    uint32_t *sizes;
    rs_messages **node;
    uint64_t random;
    rs_time now;
    packet *trace;
    uint32_t trace_count, trace_room, data_count;
} system_state;

static uint32_t below(system_state *s, uint32_t bound) {
    s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((s->random >> 33) * bound >> 31);
}

static rs_messages *new_node(const system_state *s, rs_peer self) {
    rs_messages_config config = {.self = self, .incarnation = 1, .seed = self, .packet_bytes = 1472};
    config.receive_bytes = self ? 1 << 20 : 8 << 20; /* all of it touched while it warms up */
    config.send_bytes = 1 << 20;
    rs_messages *node = rs_messages_new(&config, &rs_heap);
    if (!node)
        abort();
    for (uint32_t g = 0; g < s->groups; g++) {
        const rs_peer *members = s->members + (size_t)g * s->nodes;
        bool member = false;
        for (uint32_t i = 0; i < s->sizes[g]; i++)
            member |= members[i] == self;
        rs_messages_view view = {.group = g,
                                 .channel = g,
                                 .version = 1,
                                 .members = members,
                                 .member_count = s->sizes[g],
                                 .protocol = "ricochet"};
        if (member && rs_messages_set_view(node, s->now, &view) != RS_OK)
            abort();
    }
    return node;
}

static void record(system_state *s, const rs_messages_out *out, bool data) {
    if (s->trace_count == s->trace_room) {
        s->trace_room = s->trace_room ? s->trace_room * 2 : 4096;
        s->trace = realloc(s->trace, s->trace_room * sizeof *s->trace);
        if (!s->trace)
            abort();
    }
    packet *p = &s->trace[s->trace_count++];
    *p = (packet){.data = data, .bytes = malloc(2048)};
    if (!p->bytes)
        abort();
    for (uint32_t i = 0; i < out->piece_count; i++) {
        memcpy(p->bytes + p->length, out->piece[i].bytes, out->piece[i].length);
        p->length += out->piece[i].length;
    }
    s->data_count += data;
}

/* Packets go straight to their receivers, some are lost. */
static void carry(system_state *s, rs_peer from) {
    rs_messages_out out;
    rs_messages_event event;
    uint8_t bytes[2048];
    while (rs_messages_poll_tx(s->node[from], s->now, &out)) {
        bool data = out.channel == RS_CH_GROUP;
        uint32_t length = 0;
        for (uint32_t i = 0; i < out.piece_count; i++) {
            memcpy(bytes + length, out.piece[i].bytes, out.piece[i].length);
            length += out.piece[i].length;
        }
        uint32_t count = data ? s->sizes[out.group] : 1;
        for (uint32_t i = 0; i < count; i++) {
            rs_peer to = data ? s->members[(size_t)out.group * s->nodes + i] : out.peer;
            if (to == from || (double)below(s, 1u << 30) < s->loss * (1u << 30))
                continue;
            if (to == 0)
                record(s, &out, data);
            rs_messages_receive(s->node[to], s->now, from, bytes, length);
            while (rs_messages_poll_event(s->node[to], &event))
                ;
        }
    }
}

static void run_system(system_state *s) {
    uint8_t message[MESSAGE];
    memset(message, 7, sizeof message);
    while (s->data_count < s->packets) {
        uint32_t group = below(s, s->groups);
        if (s->sizes[group] < 2)
            continue;
        rs_peer sender = s->members[(size_t)group * s->nodes + below(s, s->sizes[group])];
        s->now += 1000000000 / (100 * s->nodes);
        if (rs_messages_publish(s->node[sender], s->now, group, message, sizeof message, NULL) != RS_OK)
            abort();
        carry(s, sender);
        for (uint32_t i = 0; i < s->sizes[group]; i++)
            carry(s, s->members[(size_t)group * s->nodes + i]);
    }
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* CPU time of one pass over the trace in a new node, per data packet, in ns; the first quarter warms up. */
/* What one node has counted at its end. */
typedef struct {
    double received, xors, repairs_sent, repairs_received;
    unsigned long long regions, bins;
} counts;

static double replay(system_state *s, bool data_only, counts *out_counts) {
    rs_messages *node = new_node(s, 0);
    rs_messages_out out;
    rs_messages_event event;
    double start = 0;
    uint32_t counted = 0;
    rs_time now = 1000000000;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->trace_count; i++) {
        const packet *p = &s->trace[i];
        if (i == s->trace_count / 4)
            start = seconds();
        if (data_only && !p->data)
            continue;
        counted += p->data && i >= s->trace_count / 4;
        now += 1000;
        rs_messages_receive(node, now, RS_NO_PEER, p->bytes, p->length);
        while (rs_messages_poll_event(node, &event))
            sum += event.length;
        while (rs_messages_poll_tx(node, now, &out))
            sum += out.piece[0].length;
    }
    double spent = seconds() - start;
    rs_messages_stats stats;
    rs_messages_stats_get(node, &stats);
    *out_counts = (counts){.received = (double)stats.data_received,
                           .xors = (double)rs_messages_count(node, "xors", NULL),
                           .repairs_sent = (double)rs_messages_count(node, "repairs", "sent"),
                           .repairs_received = (double)rs_messages_count(node, "repairs", "received"),
                           .regions = rs_messages_count(node, "regions", NULL),
                           .bins = rs_messages_count(node, "bins", NULL)};
    rs_messages_free(node);
    if (sum == 0)
        abort();
    return spent * 1e9 / counted;
}

/* Ricochet, Sec. 5: n * d / s groups, each node in d of them, so that their sizes differ around s. */
static void make_groups(system_state *s) {
    s->groups = s->nodes * s->degree / s->size;
    s->members = calloc((size_t)s->groups * s->nodes, sizeof *s->members);
    s->sizes = calloc(s->groups, sizeof *s->sizes);
    uint32_t *all = calloc(s->groups, sizeof *all);
    if (!s->members || !s->sizes || !all)
        abort();
    for (uint32_t g = 0; g < s->groups; g++)
        all[g] = g;
    for (uint32_t node = 0; node < s->nodes; node++) {
        for (uint32_t i = 0; i < s->degree && i < s->groups; i++) {
            uint32_t at = i + below(s, s->groups - i), group = all[at];
            all[at] = all[i];
            all[i] = group;
            s->members[(size_t)group * s->nodes + s->sizes[group]++] = node;
        }
    }
    free(all);
}

int main(int count, char **arguments) {
    system_state s = {.degree = 128, .nodes = 64, .size = 10, .packets = 40000, .loss = 0.01, .random = 42, .now = 1};
    if (count > 1)
        s.degree = (uint32_t)strtoul(arguments[1], NULL, 10);
    if (count > 2)
        s.nodes = (uint32_t)strtoul(arguments[2], NULL, 10);
    if (count > 3)
        s.size = (uint32_t)strtoul(arguments[3], NULL, 10);
    if (count > 4)
        s.packets = (uint32_t)strtoul(arguments[4], NULL, 10);
    if (count > 5)
        s.loss = strtod(arguments[5], NULL) / 100;
    if (s.size < 2 || s.nodes < s.size || s.degree == 0 || s.nodes * s.degree < s.size || s.packets == 0) {
        fprintf(stderr, "message_cycles: nodes >= group size >= 2, groups per node and packets at least 1\n");
        return 2;
    }
    make_groups(&s);
    s.node = calloc(s.nodes, sizeof(rs_messages *));
    if (!s.node)
        abort();
    for (uint32_t i = 0; i < s.nodes; i++)
        s.node[i] = new_node(&s, i);
    run_system(&s);
    double data[ROUNDS], all[ROUNDS];
    counts stats;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        data[i] = replay(&s, true, &stats);
        all[i] = replay(&s, false, &stats);
    }
    printf("{\"groups_per_node\": %u, \"nodes\": %u, \"group_size\": %u, \"loss\": %g, \"regions\": %llu, \"bins\": "
           "%llu,\n",
           s.degree, s.nodes, s.size, s.loss, stats.regions, stats.bins);
    printf(" \"xors_per_packet\": %.2f, \"repairs_sent_per_packet\": %.3f, \"repairs_received_per_packet\": %.3f,\n",
           stats.xors / stats.received, stats.repairs_sent / stats.received, stats.repairs_received / stats.received);
    printf(" \"data_ns\": [");
    for (uint32_t i = 0; i < ROUNDS; i++)
        printf("%s%.0f", i ? ", " : "", data[i]);
    printf("], \"all_ns\": [");
    for (uint32_t i = 0; i < ROUNDS; i++)
        printf("%s%.0f", i ? ", " : "", all[i]);
    printf("]}\n");
    return 0;
}
