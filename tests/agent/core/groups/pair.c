#include "pair.h"

bool pair_takes_queries;
uint64_t pair_fail_after = UINT64_MAX;

static void *alloc_or_fail(void *context, size_t size) {
    (void)context;
    if (pair_fail_after == 0)
        return NULL;
    pair_fail_after--;
    return calloc(1, size);
}

static void release(void *context, void *memory) {
    (void)context;
    free(memory);
}

rs_allocator pair_allocator(void) {
    return (rs_allocator){.alloc = alloc_or_fail, .release = release};
}

rs_messages *pair_node(rs_peer self, rs_messages_config config) {
    const rs_allocator allocator = pair_allocator();
    config.self = self;
    config.incarnation = config.incarnation ? config.incarnation : 3;
    config.receive_bytes = config.receive_bytes ? config.receive_bytes : 1 << 20;
    config.send_bytes = config.send_bytes ? config.send_bytes : 1 << 20;
    config.deliveries = config.deliveries ? config.deliveries : 1024;
    rs_messages *node = rs_messages_new(&config, &allocator);
    assert_non_null(node);
    return node;
}

void pair_view(rs_messages *node, uint64_t version, const rs_messages_view *like, uint32_t more) {
    rs_peer members[16] = {SENDER, RECEIVER};
    rs_messages_view view = *like;
    for (uint32_t i = 0; i < more; i++)
        members[2 + i] = 10 + i;
    view.group = GROUP;
    view.channel = 9;
    view.version = version;
    view.members = members;
    view.member_count = 2 + more;
    assert_int_equal(rs_messages_set_view(node, 0, &view), RS_OK);
}

uint32_t pair_take(rs_messages *node, rs_time now, datagram *out, uint32_t most) {
    rs_messages_out packet;
    uint32_t count = 0;
    while (count < most && rs_messages_poll_tx(node, now, &packet)) {
        if (!pair_takes_queries && rs_gm_get_kind(packet.piece[0].bytes, packet.piece[0].length) == RS_GM_KIND_QUERY)
            continue;
        datagram *d = &out[count++];
        d->length = 0;
        d->channel = packet.channel;
        d->peer = packet.peer;
        for (uint32_t i = 0; i < packet.piece_count; i++) {
            memcpy(d->bytes + d->length, packet.piece[i].bytes, packet.piece[i].length);
            d->length += packet.piece[i].length;
        }
    }
    return count;
}

rs_status pair_publish(rs_messages *node, rs_time now, uint8_t value, uint32_t length) {
    uint8_t *bytes = malloc(length + 1);
    assert_non_null(bytes);
    memset(bytes, value, length + 1);
    rs_status status = rs_messages_publish(node, now, GROUP, bytes, length, NULL);
    free(bytes);
    return status;
}

void pair_view_of(rs_messages *node, uint64_t version, const rs_messages_view *like, const pair_server *servers,
                  uint32_t count) {
    rs_peer members[16], publishers[16];
    uint32_t incarnations[32], members_done = 0, publishers_done = 0;
    rs_messages_view view = *like;
    assert_true(count <= 16);
    for (uint32_t i = 0; i < count; i++)
        if (!servers[i].publishes) {
            incarnations[members_done] = servers[i].incarnation;
            members[members_done++] = servers[i].peer;
        }
    for (uint32_t i = 0; i < count; i++)
        if (servers[i].publishes) {
            incarnations[members_done + publishers_done] = servers[i].incarnation;
            publishers[publishers_done++] = servers[i].peer;
        }
    view.group = GROUP;
    view.channel = 9;
    view.version = version;
    view.members = members;
    view.member_count = members_done;
    view.publishers = publishers;
    view.publisher_count = publishers_done;
    view.incarnations = incarnations;
    assert_int_equal(rs_messages_set_view(node, 0, &view), RS_OK);
}

void pair_give_from(rs_messages *node, rs_time now, rs_peer from, const datagram *d) {
    /* Exactly as many bytes as there are, so that the sanitizer sees a read beyond. */
    uint8_t *bytes = malloc(d->length);
    assert_non_null(bytes);
    memcpy(bytes, d->bytes, d->length);
    assert_true(rs_messages_receive(node, now, from, bytes, d->length));
    free(bytes);
}

void pair_give(rs_messages *node, rs_time now, const datagram *d) {
    pair_give_from(node, now, RS_NO_PEER, d);
}

void pair_expect(rs_messages *node, uint8_t value, uint32_t length) {
    rs_messages_event event;
    assert_true(rs_messages_poll_event(node, &event));
    assert_int_equal(event.kind, RS_MESSAGES_DELIVER);
    assert_int_equal(event.group, GROUP);
    assert_int_equal(event.length, length);
    for (uint32_t i = 0; i < length; i++)
        assert_int_equal(event.bytes[i], value);
}

void pair_expect_lost(rs_messages *node, uint64_t sn, uint64_t count, rs_messages_reason reason) {
    rs_messages_event event;
    assert_true(rs_messages_poll_event(node, &event));
    assert_int_equal(event.kind, RS_MESSAGES_LOST);
    assert_int_equal(event.group, GROUP);
    assert_int_equal(event.sender, SENDER);
    assert_int_equal(event.sn, sn);
    assert_int_equal(event.count, count);
    assert_int_equal(event.reason, reason);
}

void pair_expect_nothing(rs_messages *node) {
    rs_messages_event event;
    assert_false(rs_messages_poll_event(node, &event));
}

rs_messages_stats pair_stats(const rs_messages *node) {
    rs_messages_stats stats;
    rs_messages_stats_get(node, &stats);
    return stats;
}
