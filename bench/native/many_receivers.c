/* What one more receiver costs a sender, without sockets: a real node sends an object to as many receivers as are
 * wanted, which this program plays. They answer PING and OPEN, have light, report as they are told (to the sender, or
 * by the tree, of which only the top is heard here), and say that they have all. Time is virtual; the time that the
 * node's own calls take is measured: while it opens, while data flows, and at the end. Best of several runs by turns;
 * ratios and bytes are against the first number of receivers. JSON on standard output.
 *
 *   many_receivers [MiB] [runs] [receivers]... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/wire.h"
#include "core/feedback/report.h"
#include "core/transfer/node.h"

#define GROUP 1u
#define RATE INT64_C(10000000000)
#define DELAY INT64_C(20000)         /* one way */
#define SAMPLE_EACH INT64_C(1000000) /* 1,000 receivers a second say how far they are, whoever reports for them */
#define ROOM (UINT64_C(16) << 20)
#define PER_RACK 40u
#define FIRST_ADDRESS 0x0a000000u
#define BATCH 64u
#define MANY_MOST 16384u
#define CASES_MOST 8u

typedef enum { SETUP, DATA, END, PARTS } part;

typedef struct {
    rs_time at;
    rs_peer peer;
    rs_message_type type; /* RS_MSG_HELLO: a collected report */
    uint64_t value;
} answer;

typedef struct {
    rs_node *node;
    rs_time now;
    uint32_t count;
    uint64_t size;
    rs_xfer xfer;
    uint64_t nonce;
    uint32_t session;
    bool *accepted, *lit, *speaks;
    uint32_t *by_speech; /* who speaks, in any order */
    uint32_t speakers;
    uint64_t fragments, sent, newest;
    bool by_tree, asked, sent_all, done, ok;
    rs_time sample_at;
    uint32_t sample_of;
    answer *queue;
    size_t head, tail, room;
    part at;
    uint64_t took[PARTS], heard[PARTS], packets;
    uint64_t bytes, most;
} scene;

static void *counted_alloc(void *context, size_t size) {
    scene *s = context;
    size_t *block = calloc(1, size + sizeof(max_align_t));
    if (!block)
        return NULL;
    *block = size;
    s->bytes += size;
    s->most = s->bytes > s->most ? s->bytes : s->most;
    return (max_align_t *)(void *)block + 1;
}

static void counted_release(void *context, void *memory) {
    scene *s = context;
    size_t *block = (size_t *)(void *)((max_align_t *)memory - 1);
    s->bytes -= *block;
    free(block);
}

static rs_peer peer_at(void *context, uint32_t address, uint16_t port) {
    (void)context;
    (void)port;
    return address - FIRST_ADDRESS;
}

static bool place_of(void *context, rs_peer peer, uint32_t *address, uint16_t *port) {
    (void)context;
    *address = FIRST_ADDRESS + (peer == RS_NO_PEER ? MANY_MOST + 1 : peer);
    *port = 7071;
    return true;
}

static uint32_t rack_of(void *context, rs_peer peer) {
    (void)context;
    return peer == RS_NO_PEER ? MANY_MOST : 1 + peer / PER_RACK;
}

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t clock_cost; /* of two looks at it, which is none of the node's */

static void calibrate(void) {
    clock_cost = UINT64_MAX;
    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t began = clock_ns(), took = clock_ns() - began;
        clock_cost = took < clock_cost ? took : clock_cost;
    }
}

static void add_time(uint64_t *sum, uint64_t began) {
    uint64_t took = clock_ns() - began;
    *sum += took > clock_cost ? took - clock_cost : 0;
}

static void push(scene *s, rs_peer peer, rs_message_type type, uint64_t value) {
    if (s->tail - s->head == s->room) {
        size_t room = s->room ? 2 * s->room : 1024;
        answer *queue = malloc(room * sizeof *queue);
        if (!queue)
            abort();
        for (size_t i = 0; i < s->room; i++)
            queue[i] = s->queue[(s->head + i) % s->room];
        free(s->queue);
        s->queue = queue;
        s->tail -= s->head;
        s->head = 0;
        s->room = room;
    }
    s->queue[s->tail++ % s->room] = (answer){.at = s->now + 2 * DELAY, .peer = peer, .type = type, .value = value};
}

static void on_control(scene *s, const rs_packet_out *out) {
    rs_message m;
    if (!rs_wire_decode(out->header, out->header_length, out->payload_length, &m))
        abort();
    if (m.type == RS_MSG_PING) {
        push(s, out->peer, RS_MSG_PONG, m.ping.token);
    } else if (m.type == RS_MSG_OPEN) {
        s->nonce = m.nonce;
        s->session = m.session;
        push(s, out->peer, RS_MSG_OPEN_ACK, 0);
    } else if (m.type == RS_MSG_REPORT_TO && m.report_to.on) {
        s->by_tree = true;
        if (m.report_to.parent.address == 0 && !s->speaks[out->peer]) {
            s->speaks[out->peer] = true;
            s->by_speech[s->speakers++] = out->peer;
        }
    }
}

static void on_data(scene *s, const rs_packet_out *out) {
    rs_data_header h;
    if (!rs_wire_decode_data(out->header, out->header_length, &h))
        abort();
    s->newest = h.sn;
    s->sent++;
    s->packets += s->at == DATA;
    for (uint32_t i = 1; (h.flags & RS_DATA_ATTEMPT) && i <= s->count; i++) {
        if (!s->accepted[i] || s->lit[i])
            continue;
        s->lit[i] = true;
        push(s, i, RS_MSG_INTL_SEQ, h.sn);
    }
    bool asked = !(h.flags & RS_DATA_ATTEMPT) && (h.flags & RS_DATA_REPORT);
    bool again = s->asked && s->by_tree; /* for those that lost the packet before */
    s->asked = asked;
    if (asked && !again)
        for (uint32_t i = 1; i <= (s->by_tree ? s->speakers : s->count); i++)
            push(s, s->by_tree ? s->by_speech[i - 1] : i, s->by_tree ? RS_MSG_HELLO : RS_MSG_RATE, h.sn);
}

static void on_event(scene *s, const rs_event *event) {
    if (event->kind == RS_EV_PATH_WANTED) {
        const rs_path_grant grant = {.group = GROUP,
                                     .group_address = 0xefff0001,
                                     .data_port = 7071,
                                     .accepted_size = s->size,
                                     .kind = RS_PATH_PACKET,
                                     .rate_bps = RATE};
        if (rs_path_granted(s->node, s->now, s->xfer, &grant) != RS_OK)
            abort();
    } else if (event->kind == RS_EV_PEER_WANTED) {
        (void)rs_peer_up(s->node, s->now, event->peer);
    } else if (event->kind == RS_EV_PHASE && event->phase == RS_PHASE_HIGH_RATE) {
        s->at = DATA;
        s->sample_at = s->now;
    } else if (event->kind == RS_EV_PHASE && event->phase >= RS_PHASE_PATCHING) {
        s->at = END;
        for (uint32_t i = 1; !s->sent_all && i <= s->count; i++)
            push(s, i, RS_MSG_DATA_RCVD, 0);
        s->sent_all = true;
    } else if (event->kind == RS_EV_SEND_DONE) {
        s->done = true;
        s->ok = event->ok;
    }
}

/* The node's turn: what is due, what it tells, what it sends. Only its own calls are timed. */
static bool turn(scene *s) {
    static rs_packet_out out[BATCH];
    rs_event event;
    uint32_t count = 0;
    uint64_t began = clock_ns();
    if (rs_deadline(s->node) <= s->now)
        rs_timeout(s->node, s->now);
    while (rs_poll_event(s->node, &event))
        on_event(s, &event);
    while (count < BATCH && rs_poll_tx(s->node, s->now, &out[count]))
        count++;
    add_time(&s->took[s->at], began);
    for (uint32_t i = 0; i < count; i++)
        if (out[i].channel == RS_CH_GROUP)
            on_data(s, &out[i]);
        else
            on_control(s, &out[i]);
    return count == BATCH;
}

static rs_message message_of(const scene *s, const answer *a) {
    rs_message m = {.type = a->type, .nonce = s->nonce, .session = s->session};
    if (a->type == RS_MSG_PONG)
        m.ping.token = a->value;
    else if (a->type == RS_MSG_OPEN_ACK)
        m.open_ack.room = ROOM;
    else if (a->type == RS_MSG_INTL_SEQ)
        m.intl_seq.sn = a->value;
    else if (a->type == RS_MSG_RATE)
        m.rate.highest = a->value, m.rate.received = a->value, m.rate.at = (uint64_t)(a->at - DELAY),
        m.rate.share_bps = (uint64_t)RATE, m.rate.receivers = 1;
    return m;
}

static void hear(scene *s) {
    const answer a = s->queue[s->head++ % s->room];
    uint8_t bytes[RS_HEADER_MAX];
    rs_packet_in in = {.channel = RS_CH_PEER_RELIABLE, .peer = a.peer, .header = bytes};
    if (a.type == RS_MSG_HELLO) {
        const rs_report report = {.nonce = s->nonce,
                                  .session = s->session,
                                  .flags = RS_REPORT_OWN | RS_REPORT_LEAST,
                                  .receivers = s->count / s->speakers,
                                  .highest = a.value,
                                  .received = a.value,
                                  .at = (uint64_t)(a.at - DELAY),
                                  .share_bps = (uint64_t)RATE,
                                  .least = a.value};
        in.channel = RS_CH_PEER_DATAGRAM;
        in.header_length = rs_report_encode(&report, bytes);
    } else {
        const rs_message m = message_of(s, &a);
        in.header_length = rs_wire_encode(&m, 0, bytes, sizeof bytes);
        s->accepted[a.peer] |= a.type == RS_MSG_OPEN_ACK;
    }
    uint64_t began = clock_ns();
    rs_rx_result result = rs_receive(s->node, s->now, &in);
    add_time(&s->took[s->at], began);
    s->heard[s->at]++;
    if (result.verdict == RS_RX_BAD)
        abort();
}

static void play(scene *s) {
    while (!s->done) {
        while (turn(s))
            ;
        rs_time next = rs_deadline(s->node);
        if (s->head < s->tail && s->queue[s->head % s->room].at < next)
            next = s->queue[s->head % s->room].at;
        if (s->now < next)
            s->now = next;
        for (; s->by_tree && s->at == DATA && s->sample_at < s->now; s->sample_at += SAMPLE_EACH)
            push(s, 1 + s->sample_of++ % s->count, RS_MSG_RATE, s->newest);
        while (s->head < s->tail && s->queue[s->head % s->room].at <= s->now)
            hear(s);
    }
}

static scene run(uint32_t count, uint64_t size) {
    scene s = {.count = count, .size = size, .now = INT64_C(1000000000)};
    const rs_allocator allocator = {.alloc = counted_alloc, .release = counted_release, .context = &s};
    const rs_config config = {.nic_rate_bps = RATE,
                              .directory = {.peer_at = peer_at, .place_of = place_of, .rack_of = rack_of}};
    rs_peer *peers = calloc(count, sizeof *peers);
    s.accepted = calloc(count + 1, sizeof *s.accepted);
    s.lit = calloc(count + 1, sizeof *s.lit);
    s.speaks = calloc(count + 1, sizeof *s.speaks);
    s.by_speech = calloc(count + 1, sizeof *s.by_speech);
    s.node = rs_node_new(&config, &allocator);
    if (!peers || !s.accepted || !s.lit || !s.speaks || !s.by_speech || !s.node)
        abort();
    for (uint32_t i = 0; i < count; i++)
        peers[i] = i + 1;
    s.most = s.bytes;
    uint64_t alone = s.bytes, began = clock_ns();
    const rs_send_params params = {.size = size, .receivers = peers, .receiver_count = count};
    if (rs_send_open(s.node, s.now, &params, &s.xfer) != RS_OK)
        abort();
    add_time(&s.took[SETUP], began);
    play(&s);
    s.most -= alone;
    rs_node_free(s.node);
    free(peers);
    free(s.accepted);
    free(s.lit);
    free(s.speaks);
    free(s.by_speech);
    free(s.queue);
    if (!s.ok)
        abort();
    return s;
}

static void best_of(scene *best, const scene *s) {
    for (uint32_t i = 0; i < PARTS; i++)
        best->took[i] = s->took[i] < best->took[i] ? s->took[i] : best->took[i];
}

int main(int argc, char **argv) {
    uint32_t counts[CASES_MOST] = {10, 100, 1000, 10000}, cases = argc > 3 ? (uint32_t)argc - 3 : 4;
    uint64_t size = (argc > 1 ? strtoull(argv[1], NULL, 10) : 256) << 20;
    uint32_t runs = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 10;
    scene best[CASES_MOST];
    bool good = size && runs && cases <= CASES_MOST;
    for (uint32_t c = 0; good && argc > 3 && c < cases; c++)
        counts[c] = (uint32_t)strtoul(argv[3 + c], NULL, 10);
    for (uint32_t c = 0; good && c < cases; c++)
        good = counts[c] && counts[c] <= MANY_MOST;
    if (!good) {
        fprintf(stderr, "many_receivers: MiB and runs are at least 1, and at most %u numbers of 1 to %u receivers\n",
                CASES_MOST, MANY_MOST);
        return 2;
    }
    calibrate();
    for (uint32_t i = 0; i < runs; i++) /* by turns: the machine is not as fast at all times */
        for (uint32_t c = 0; c < cases; c++) {
            const scene s = run(counts[c], size);
            if (i == 0)
                best[c] = s;
            best_of(&best[c], &s);
        }
    printf("[");
    for (uint32_t c = 0; c < cases; c++) {
        const scene *s = &best[c];
        bool more = s->count > best[0].count;
        printf("%s\n{\"receivers\": %u, \"cpu_us_per_mb\": %.3f, \"cpu_ratio\": %.3f, \"packets\": %llu, "
               "\"reports\": %llu, \"setup_us_per_receiver\": %.3f, \"end_us_per_receiver\": %.3f, "
               "\"bytes\": %llu, \"bytes_per_receiver\": %.1f}",
               c ? "," : "", s->count, (double)s->took[DATA] / ((double)size / 1e3),
               (double)s->took[DATA] / (double)best[0].took[DATA], (unsigned long long)s->packets,
               (unsigned long long)s->heard[DATA], (double)s->took[SETUP] / 1e3 / s->count,
               (double)s->took[END] / 1e3 / s->count, (unsigned long long)s->most,
               more ? (double)(s->most - best[0].most) / (double)(s->count - best[0].count)
                    : (double)s->most / s->count);
    }
    printf("\n]\n");
    return 0;
}
