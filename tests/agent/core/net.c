/* The network in virtual time. */
#include "net_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Memory that can be made to fail, and is counted. */

static void *test_alloc(void *context, size_t size) {
    net_memory *m = context;
    net *n = m->net;
    n->allocations++;
    if (n->fail_at >= 0 && n->fail_at-- == 0)
        return NULL;
    uint64_t *memory = calloc(1, 16 + size);
    if (!memory)
        return NULL;
    n->outstanding++;
    memory[0] = size;
    m->bytes += size;
    m->most = m->bytes > m->most ? m->bytes : m->most;
    return memory + 2;
}

static void test_release(void *context, void *memory) {
    net_memory *m = context;
    uint64_t *start = (uint64_t *)memory - 2;
    m->net->outstanding--;
    m->bytes -= start[0];
    free(start);
}

void *grow(void *array, size_t count, size_t *capacity, size_t each) {
    if (count < *capacity)
        return array;
    *capacity = *capacity ? *capacity * 2 : 64;
    array = realloc(array, *capacity * each);
    assert_non_null(array);
    return array;
}

void hash(net *n, const void *bytes, size_t length) {
    for (size_t i = 0; i < length; i++)
        n->knobs.trace = (n->knobs.trace ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
}

double net_random(net *n) {
    n->random ^= n->random << 13;
    n->random ^= n->random >> 7;
    n->random ^= n->random << 17;
    return (double)(n->random >> 11) / (double)(UINT64_C(1) << 53);
}

/* The heap of what is on its way. */

static bool earlier(const net_place *a, const net_place *b) {
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void push(net *n, net_item *item) {
    n->heap = grow(n->heap, n->heap_count, &n->heap_capacity, sizeof *n->heap);
    const net_place place = {item->at, n->order++, item};
    size_t at = n->heap_count++;
    for (; at && earlier(&place, &n->heap[(at - 1) / 2]); at = (at - 1) / 2)
        n->heap[at] = n->heap[(at - 1) / 2];
    n->heap[at] = place;
}

static net_item *pop(net *n) {
    net_item *top = n->heap[0].item;
    const net_place last = n->heap[--n->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < n->heap_count && earlier(&n->heap[child + 1], &n->heap[child]))
            child++;
        if (child >= n->heap_count || !earlier(&n->heap[child], &last))
            break;
        n->heap[at] = n->heap[child];
        at = child;
    }
    n->heap[at] = last;
    return top;
}

/* Millions of these come and go, mostly one for another: those that are done are used again. */
static net_item *spare;

net_item *item(net_what what, rs_time at, rs_peer from, rs_peer to) {
    net_item *i = spare;
    if (i)
        spare = i->next;
    else
        i = malloc(sizeof *i);
    assert_non_null(i);
    memset(i, 0, offsetof(net_item, combine));
    i->combine.count = 0;
    i->what = what;
    i->at = at;
    i->from = from;
    i->to = to;
    return i;
}

static void item_free(net_item *i) {
    free(i->more);
    i->next = spare;
    spare = i;
}

/* Making and ending. */

void start_node(net *n, rs_peer server) {
    rs_config config = n->config;
    config.seed = n->config.seed + server * 1000 + n->servers[server].epoch;
    net_memory *memory = &n->servers[server].memory;
    rs_allocator allocator = {.alloc = test_alloc, .release = test_release, .context = memory};
    *memory = (net_memory){.net = n};
    int64_t fail_at = n->fail_at;
    n->fail_at = -1;
    n->servers[server].node = rs_node_new(&config, &allocator);
    n->fail_at = fail_at;
    assert_non_null(n->servers[server].node);
}

net *net_new(uint32_t servers, const rs_config *config, uint64_t seed) {
    net *n = calloc(1, sizeof *n);
    for (size_t i = 0; i < sizeof n->leaves; i++)
        n->leaves[i] = (uint8_t)(i * 7 + i / 16);
    assert_true(servers <= SERVERS_MAX);
    n->server_count = servers;
    n->servers = calloc(servers, sizeof *n->servers);
    n->due = calloc(servers, sizeof *n->due);
    n->connections = calloc((size_t)servers * servers, sizeof *n->connections);
    n->config = *config;
    n->config.seed = seed;
    n->random = seed * 2 + 88172645463325252u;
    n->fail_at = -1;
    n->knobs = (net_knobs){.now = NET_START,
                           .data_delay = 50 * US,
                           .control_delay = 50 * US,
                           .connect_delay = 100 * US,
                           .manager_delay = 1 * MS,
                           .control_rate_bps = 1000000000,
                           .grant = true,
                           .trace = UINT64_C(0xcbf29ce484222325)};
    n->knobs.path = (rs_path_grant){.group = NET_GROUP,
                                    .group_address = 0xefff0000 + NET_GROUP,
                                    .data_port = 7070,
                                    .kind = RS_PATH_PACKET,
                                    .rate_bps = 1000000000};
    for (uint32_t i = 0; i < servers; i++)
        start_node(n, i);
    return n;
}

/* NET_TRACE=1 prints what all that was said and told came to: a change that must keep behaviour keeps these. */
static void print_trace(const net *n) {
    if (getenv("NET_TRACE"))
        print_message("trace %016llx of %llu packets until %lld ns\n", (unsigned long long)n->knobs.trace,
                      (unsigned long long)n->knobs.data_packets, (long long)net_now(n));
}

void net_free(net *n) {
    print_trace(n);
    for (uint32_t i = 0; i < n->server_count; i++) {
        rs_node_free(n->servers[i].node);
        for (uint32_t s = 0; s < n->servers[i].store_count; s++)
            free(n->servers[i].stores[s].stored);
    }
    while (n->heap_count)
        item_free(pop(n));
    uint64_t outstanding = n->outstanding;
    free(n->heap);
    free(n->said);
    free(n->told);
    free(n->connections);
    free(n->servers);
    free(n->due);
    free(n);
    assert_int_equal(outstanding, 0);
}

net_knobs *net_knob(net *n) {
    return &n->knobs;
}

rs_node *net_node(net *n, rs_peer server) {
    return n->servers[server].node;
}

/* By the clock of its process, which stands still while that does. */
static rs_time server_now(const net *n, const net_server *s) {
    return n->knobs.now - s->lost;
}

static bool is_paused(const net *n, const net_server *s) {
    return n->knobs.now < s->paused_until;
}

rs_time net_now(const net *n) {
    return n->knobs.now - NET_START;
}

net_connection *between(net *n, rs_peer a, rs_peer b) {
    return &n->connections[(size_t)(a < b ? a : b) * n->server_count + (a < b ? b : a)];
}

static void connect_to(net *n, rs_peer from, rs_peer to) {
    net_item *i = item(DO_CONNECTED, n->knobs.now + n->knobs.connect_delay, from, to);
    i->epoch = to < n->server_count ? between(n, from, to)->epoch : 0;
    push(n, i);
}

static rs_group group_of(const rs_incoming *info) {
    return info->group_address ? info->group_address & 0xffff : RS_NO_GROUP;
}

static void further_session(net *n, rs_peer server, rs_xfer xfer) {
    net_server *s = &n->servers[server];
    rs_incoming info;
    if (rs_incoming_info(s->node, xfer, &info) != RS_OK || s->group == group_of(&info))
        return;
    s->group = group_of(&info);
    assert_int_equal(rs_incoming_accept(s->node, server_now(n, s), xfer, s->group, s->room), RS_OK);
}

static void incoming(net *n, rs_peer server, rs_xfer xfer) {
    net_server *s = &n->servers[server];
    rs_incoming info;
    s->incoming = xfer;
    assert_int_equal(rs_incoming_info(s->node, xfer, &info), RS_OK);
    s->group = group_of(&info);
    if (s->app == APP_REFUSES) {
        assert_int_equal(rs_incoming_refuse(s->node, server_now(n, s), xfer, "quota of 1 GB is used up"), RS_OK);
    } else if (s->app == APP_HAS_IT) {
        assert_int_equal(rs_incoming_have(s->node, server_now(n, s), xfer), RS_OK);
    } else if (s->app == APP_KEEPS) {
        assert_int_equal(rs_incoming_kept(s->node, server_now(n, s), xfer), RS_OK);
    } else if (s->app == APP_ACCEPTS) {
        uint64_t fragments = info.size == RS_STREAM ? n->stream_most
                             : info.size            ? (info.size - 1) / info.fragment_size + 1
                                                    : 1;
        net_store store = {.xfer = xfer,
                           .data = info.object.data,
                           .size = info.size,
                           .stream = info.size == RS_STREAM,
                           .fragment_size = info.fragment_size,
                           .fragments = fragments};
        const net_store *before = NULL;
        for (uint32_t i = 0; i < s->store_count && n->knobs.resumes; i++)
            before = s->stores[i].data == info.object.data && !s->stores[i].whole ? &s->stores[i] : before;
        uint64_t kept = 0;
        while (before && kept + 1 < fragments && before->stored[kept])
            kept++;
        if (kept)
            assert_int_equal(rs_incoming_resume(s->node, xfer, kept * info.fragment_size), RS_OK);
        if (rs_incoming_accept(s->node, server_now(n, s), xfer, s->group, s->room) != RS_OK) {
            assert_int_equal(rs_incoming_refuse(s->node, server_now(n, s), xfer, "out of memory"), RS_OK);
            return;
        }
        store.stored = calloc(fragments, 1);
        if (kept)
            memcpy(store.stored, before->stored, kept);
        store.stored_bytes = kept * info.fragment_size;
        uint32_t place = 0;
        while (place < s->store_count && s->stores[place].data != info.object.data)
            place++;
        assert_true(place < OBJECTS_MAX);
        if (place == s->store_count)
            s->store_count++;
        free(s->stores[place].stored);
        s->stores[place] = store;
    }
}

static void complete(net *n, rs_peer server, rs_xfer xfer) {
    net_store *store = store_of(&n->servers[server], xfer);
    assert_non_null(store);
    rs_xfer_stats stats;
    assert_int_equal(rs_xfer_stats_get(n->servers[server].node, xfer, &stats), RS_OK);
    store->size = stats.size;                           /* of a stream it is known now */
    assert_int_equal(store->stored_bytes, store->size); /* COMPLETE means complete */
    rs_incoming info;
    assert_int_equal(rs_incoming_info(n->servers[server].node, xfer, &info), RS_OK);
    store->unchecked = rs_digest_follows(&info.digest);
    if (store->unchecked)
        return;
    net_item *i = item(DO_VERIFIED, n->knobs.now + n->servers[server].verify_time, server, server);
    i->epoch = n->servers[server].epoch;
    i->xfer = xfer;
    push(n, i);
}

/* `part` of those that the path is wanted for, at random. */
static uint32_t some_of_them(net *n, rs_peer sender, rs_xfer xfer, rs_peer *out) {
    uint32_t count = 0, some;
    for (rs_peer to = 0; to < n->server_count; to++)
        if (rs_path_wants(n->servers[sender].node, xfer, to))
            out[count++] = to;
    some = count < n->knobs.part ? count : n->knobs.part;
    for (uint32_t i = 0; i < some; i++) {
        uint32_t other = i + (uint32_t)(net_random(n) * (count - i));
        rs_peer chosen = out[other];
        out[other] = out[i];
        out[i] = chosen;
    }
    return some;
}

static void happened(net *n, rs_peer server, const rs_event *e) {
    net_server *s = &n->servers[server];
    hash(n, &n->knobs.now, sizeof n->knobs.now);
    hash(n, &e->kind, sizeof e->kind);
    hash(n, e->cause, strlen(e->cause));
    n->told = grow(n->told, n->told_count, &n->told_capacity, sizeof *n->told);
    n->told[n->told_count++] = (net_told){n->knobs.now, server, *e};
    if (e->kind == RS_EV_PEER_WANTED) {
        connect_to(n, server, e->peer);
    } else if (e->kind == RS_EV_PATH_WANTED && n->knobs.grant) {
        net_item *i = item(DO_GRANT, n->knobs.now + n->knobs.manager_delay, server, server);
        i->epoch = s->epoch;
        i->xfer = e->xfer;
        push(n, i);
    } else if (e->kind == RS_EV_RETAKE) {
        s->retaken++;
        assert_int_equal(rs_send_retaken(s->node, server_now(n, s), e->xfer, e->peer, e->sn, !s->changed), RS_OK);
    } else if (e->kind == RS_EV_INCOMING) {
        incoming(n, server, e->xfer);
    } else if (e->kind == RS_EV_SESSION) {
        further_session(n, server, e->xfer);
    } else if (e->kind == RS_EV_COMPLETE) {
        complete(n, server, e->xfer);
    } else if (e->kind == RS_EV_DIGEST && store_of(s, e->xfer) && store_of(s, e->xfer)->unchecked) {
        complete(n, server, e->xfer);
    } else if (e->kind == RS_EV_RECEIVE_DONE && store_of(s, e->xfer)) {
        store_of(s, e->xfer)->done = true;
        store_of(s, e->xfer)->whole = e->ok;
    }
}

void pump(net *n, rs_peer server) {
    rs_node *node = n->servers[server].node;
    rs_packet_out out;
    rs_event event;
    bool any = true;
    n->due[server] = NOT_ASKED;
    if (n->servers[server].frozen || n->servers[server].dead || is_paused(n, &n->servers[server]))
        return;
    while (any) {
        any = false;
        while (rs_poll_event(node, &event)) {
            happened(n, server, &event);
            any = true;
        }
        while (rs_poll_tx(node, server_now(n, &n->servers[server]), &out)) {
            any = true;
            if (out.channel == RS_CH_GROUP)
                put_data(n, server, &out);
            else if (out.channel == RS_CH_PEER_DATAGRAM)
                put_datagram(n, server, &out);
            else
                put_control(n, server, &out);
        }
    }
}

/* Wakes a node whose deadline has come. Its deadline must move, or output come out (poll_tx may have set a deadline
 * for what it found). */
static void wake(net *n, rs_peer server) {
    rs_node *node = n->servers[server].node;
    rs_time now = server_now(n, &n->servers[server]);
    for (int turns = 0; rs_deadline(node) <= now; turns++) {
        if (turns == 4) {
            net_show(n);
            fail_msg("server %u does not move past its deadline at %lld", server, (long long)net_now(n));
        }
        rs_timeout(node, now);
        pump(n, server);
    }
}

/* What reaches a node. */

static bool is_piece(const rs_combine *c, uint64_t offset) {
    for (uint32_t i = 0; i < c->count; i++)
        if (c->offset[i] == offset)
            return true;
    return false;
}

/* The XOR of the payload's pieces and of those to combine it with is the fragment: each of the latter is one of the
 * former and here, and the fragment is the one that is left. */
static void combined(const net_store *store, const rs_rx_result *r, const net_item *i) {
    assert_int_equal(r->combine->count + 1, i->combine.count);
    assert_true(is_piece(&i->combine, r->offset));
    assert_true(r->length <= i->payload_length);
    for (uint32_t p = 0; p < r->combine->count; p++) {
        uint64_t offset = r->combine->offset[p];
        assert_true(offset != r->offset && is_piece(&i->combine, offset));
        assert_int_not_equal(store->stored[offset / store->fragment_size], 0);
        for (uint32_t q = 0; q < p; q++)
            assert_true(r->combine->offset[q] != offset);
        uint64_t left = store->size - offset, whole = left < store->fragment_size ? left : store->fragment_size;
        assert_int_equal(r->combine->length[p], whole < r->length ? whole : r->length);
    }
}

static void stored(net_server *s, const rs_rx_result *r, const net_item *i) {
    if (r->verdict != RS_RX_STORE && r->verdict != RS_RX_COMBINE)
        return;
    net_store *store = store_of(s, r->xfer);
    assert_non_null(store);
    uint64_t sn = r->offset / store->fragment_size;
    assert_true(r->offset + r->length == (sn + 1) * store->fragment_size || r->offset + r->length == store->size ||
                store->size == RS_STREAM);
    if (r->verdict == RS_RX_COMBINE) {
        combined(store, r, i);
    } else {
        assert_true(i->combine.count == 0);
        assert_int_equal(r->offset, i->payload_offset);
        assert_int_equal(r->length, i->payload_length);
    }
    assert_true(sn < store->fragments);
    assert_int_equal(store->stored[sn], 0); /* stored once */
    bool wrong = i->wrong || (sn >= s->spoils_from && sn < s->spoils_to);
    store->stored[sn] = wrong ? WRONG : RIGHT;
    store->wrong += wrong;
    store->stored_bytes += r->length;
}

/* Of a complete object the digest of a piece was wrong: its fragments are fetched once more. */
static void fetch_again(net *n, net_server *s, rs_xfer xfer) {
    net_store *store = store_of(s, xfer);
    uint64_t offset = s->wrong_offset, length = s->wrong_length;
    assert_non_null(store);
    assert_int_equal(rs_fetch_again(s->node, server_now(n, s), xfer, &offset, &length), RS_OK);
    assert_true(offset <= s->wrong_offset && offset + length >= s->wrong_offset + s->wrong_length);
    for (uint64_t at = offset; at < offset + length; at += store->fragment_size) {
        store->wrong -= store->stored[at / store->fragment_size] == WRONG;
        store->stored[at / store->fragment_size] = 0;
    }
    store->stored_bytes -= length;
    s->fetches++;
    s->retakes = true;
}

/* Pieces of so many fragments have digests of their own. */
#define PIECE 64

/* The first piece that is wrong is fetched again, this and the next time. */
static void find_wrong(net_server *s, const net_store *store) {
    uint64_t sn = 0;
    while (store->stored[sn] != WRONG)
        sn++;
    uint64_t first = sn / PIECE * PIECE * store->fragment_size, left = store->size - first;
    s->wrong_times = 1;
    s->wrong_offset = first;
    s->wrong_length = left < PIECE * store->fragment_size ? left : PIECE * store->fragment_size;
    s->retakes = false;
}

static void verify(net *n, net_server *s, rs_xfer xfer) {
    net_store *store = store_of(s, xfer);
    if (s->wrong_times == 0 && store && store->wrong > 0 && !store->stream) {
        find_wrong(s, store);
        s->spoils_to = 0; /* it changes what comes once */
    }
    if (s->wrong_times == 0) {
        rs_verified(s->node, server_now(n, s), xfer, !s->bad_digest, "the digest of chunk 0 is wrong");
        return;
    }
    s->wrong_times--;
    rs_leaves_want(s->node, server_now(n, s), xfer, 3, s->retakes ? 1 : 20, s->retakes);
}

static void connected(net *n, const net_item *i) {
    net_connection *c = between(n, i->from, i->to);
    net_server *a = &n->servers[i->from], *b = &n->servers[i->to];
    if (c->up || a->dead)
        return;
    if (b->dead || b->unreachable || a->unreachable) {
        rs_peer_down(a->node, server_now(n, a), i->to, "connection refused");
        pump(n, i->from);
        return;
    }
    c->up = true;
    c->full[0] = c->full[1] = false;
    c->free_at[0] = c->free_at[1] = n->knobs.now;
    if (n->knobs.measures)
        rs_peer_measured(a->node, i->to, 2 * n->knobs.control_delay);
    if (rs_peer_up(a->node, server_now(n, a), i->to) != RS_OK ||
        rs_peer_up(b->node, server_now(n, b), i->from) != RS_OK) {
        net_cut(n, i->from, i->to);
        return;
    }
    pump(n, i->from);
    pump(n, i->to);
}

static void deliver(net *n, net_item *i) {
    net_server *s = &n->servers[i->to];
    rs_channel channel = i->what == DO_DATA       ? RS_CH_GROUP
                         : i->what == DO_DATAGRAM ? RS_CH_PEER_DATAGRAM
                                                  : RS_CH_PEER_RELIABLE;
    rs_packet_in in = {.channel = channel,
                       .peer = i->what == DO_DATA ? RS_NO_PEER : i->from,
                       .group = i->group,
                       .header = i->more ? i->more : i->bytes,
                       .header_length = i->length,
                       .payload_length = i->payload_length,
                       .marked = n->knobs.marks && i->what != DO_CONTROL,
                       .late = n->knobs.late && i->what == DO_DATA};
    if (i->what != DO_CONTROL)
        watch(n, true, channel, i->from, i->to, in.header, in.header_length);
    if (i->what == DO_CONTROL && n->knobs.tamper && n->knobs.tamper(n, i->from, i->to, &in, n->knobs.tamper_context))
        return;
    rs_stream_piece piece;
    if (i->wrong && rs_stream_piece_of(s->node, &in, &piece) && piece.lacks) {
        rs_stream_piece_refuse(s->node, server_now(n, s), &in);
        return;
    }
    rs_rx_result r = rs_receive(s->node, server_now(n, s), &in);
    if (i->what == DO_DATA)
        n->knobs.contradictions += r.verdict == RS_RX_BAD;
    else
        assert_int_not_equal(r.verdict, RS_RX_BAD); /* nodes make no bad messages */
    stored(s, &r, i);
    if (r.verdict == RS_RX_LEAVES) {
        assert_true(r.offset == 3 && r.length == (s->retakes ? 16 : 320));
        assert_memory_equal(r.leaves, n->leaves + 48, r.length);
        fetch_again(n, s, r.xfer);
    }
}

/* Somebody was told that there is another server. */
static void nobody_answers(net *n, const net_item *i) {
    rs_peer_down(n->servers[i->from].node, server_now(n, &n->servers[i->from]), i->to, "no route to host");
    pump(n, i->from);
}

static void happen(net *n, net_item *i) {
    if (i->to >= n->server_count) {
        nobody_answers(n, i);
        return;
    }
    net_server *s = &n->servers[i->to];
    net_connection *c = between(n, i->from, i->to);
    switch (i->what) {
    case DO_DATA:
    case DO_DATAGRAM:
        if (s->epoch == i->epoch && !s->dead && !s->frozen)
            deliver(n, i);
        break;
    case DO_CONTROL:
        if (c->up && c->epoch == i->epoch && !s->dead && !s->frozen)
            deliver(n, i);
        break;
    case DO_DRAINED:
        if (c->up && c->epoch == i->epoch) {
            c->full[i->from < i->to] = false;
            rs_peer_writable(n->servers[i->from].node, server_now(n, &n->servers[i->from]), i->to, true);
        }
        pump(n, i->from);
        break;
    case DO_CONNECTED:
        connected(n, i);
        break;
    case DO_GRANT:
        if (s->epoch == i->epoch && !s->dead) {
            rs_path_grant grant = n->knobs.path;
            rs_peer part[SERVERS_MAX];
            if (n->knobs.part)
                grant = net_part(n, grant.accepted_size, some_of_them(n, i->to, i->xfer, part), part);
            grant.accepted_size = grant.accepted_size ? grant.accepted_size : UINT64_MAX;
            rs_path_granted(s->node, server_now(n, s), i->xfer, &grant);
        }
        break;
    case DO_VERIFIED:
        if (s->epoch == i->epoch && !s->dead)
            verify(n, s, i->xfer);
        break;
    }
    pump(n, i->to);
}

/* What comes for a process that is stopped waits in its sockets, as far as these have room; of data they have none.
 * True: it was put off, or lost. */
static bool waits_for_pause(net *n, net_item *i) {
    rs_time from = n->servers[i->from].paused_until;
    rs_time until = i->to < n->server_count ? n->servers[i->to].paused_until : from; /* else: nobody is there */
    if (i->what == DO_DRAINED || i->what == DO_CONNECTED)
        until = until > from ? until : from;
    if (n->knobs.now >= until)
        return false;
    net_server *to = &n->servers[i->to < n->server_count ? i->to : i->from];
    if ((i->what == DO_DATA || i->what == DO_DATAGRAM) && to->waiting++ >= SOCKET_MOST) {
        item_free(i);
        return true;
    }
    i->at = until;
    push(n, i);
    return true;
}

/* False: it is stopped. All that waited has been read when it looks at its deadlines again. */
static bool goes_on(net *n, rs_peer server) {
    net_server *s = &n->servers[server];
    if (is_paused(n, s))
        return false;
    if (s->paused) {
        s->paused = false;
        s->waiting = 0;
        rs_node_paused(s->node, server_now(n, s));
        pump(n, server);
    }
    return true;
}

/* As the world's clock tells it. */
static rs_time due_of(net *n, rs_peer server) {
    rs_time *due = &n->due[server];
    if (*due == NOT_ASKED) {
        const net_server *s = &n->servers[server];
        *due = s->dead || s->frozen ? RS_NEVER : rs_deadline(s->node);
        *due = *due < RS_NEVER - s->lost ? *due + s->lost : RS_NEVER;
        if (s->paused)
            *due = s->paused_until;
    }
    return *due;
}

static rs_time next_time(net *n) {
    rs_time next = n->heap_count ? n->heap[0].at : RS_NEVER;
    for (uint32_t i = 0; i < n->server_count; i++) {
        rs_time due = due_of(n, i);
        next = due < next ? due : next;
    }
    return next;
}

bool step(net *n, rs_time bound) {
    rs_time next = next_time(n);
    if (next == RS_NEVER || next > bound)
        return false;
    n->knobs.now = next > n->knobs.now ? next : n->knobs.now;
    while (n->heap_count && n->heap[0].at <= n->knobs.now) {
        net_item *i = pop(n);
        if (waits_for_pause(n, i))
            continue;
        happen(n, i);
        item_free(i);
    }
    for (uint32_t i = 0; i < n->server_count; i++) {
        if (due_of(n, i) > n->knobs.now)
            continue;
        n->due[i] = NOT_ASKED;
        if (!n->servers[i].dead && !n->servers[i].frozen && goes_on(n, i))
            wake(n, i);
    }
    return true;
}

/* What a test called meanwhile is not known here. */
static void all_moved(net *n) {
    for (uint32_t i = 0; i < n->server_count; i++)
        n->due[i] = NOT_ASKED;
}

void net_at(net *n, rs_time time) {
    all_moved(n);
    while (step(n, NET_START + time))
        ;
    n->knobs.now = NET_START + time;
}

rs_time net_run(net *n, rs_time bound) {
    all_moved(n);
    rs_time last = n->knobs.now;
    size_t told = n->told_count;
    while (step(n, NET_START + bound)) {
        if (n->told_count != told)
            last = n->knobs.now;
        told = n->told_count;
    }
    return last - NET_START;
}
