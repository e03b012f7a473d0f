/* RDCM over the link: views of overlays in, their use and failures out (controller/rostrum.thrift). */
#include "daemon/manager/codec.h"
#include "link_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    rs_thrift_overlay_view view;
    rs_thrift_server_address addresses[3];
    uint8_t app[17];
} sample;

static sample *fill(sample *s) {
    static const char *const children[] = {"h4", "h5"};
    *s = (sample){.addresses = {{.server = "h3", .address = "10.0.3.1", .control_port = 7071},
                                {.server = "h4", .address = "10.0.4.1", .control_port = 7071},
                                {.server = "h5", .address = "nowhere", .control_port = 7071}},
                  .app = {0xff, 0, 0xfe}}; /* no text */
    s->view = (rs_thrift_overlay_view){.response_id = "p1",
                                       .version = 3,
                                       .group = "239.192.0.5",
                                       .app_id = {s->app, 16},
                                       .data_id = 77,
                                       .sender = "h1",
                                       .leaf_predecessor = "h3",
                                       .leaf_successor = "h4",
                                       .leaf_parent = "h2",
                                       .children = {children, 2},
                                       .addresses = {s->addresses, 2}};
    return s;
}

typedef struct {
    unsigned delivered;
    rs_manager_view view; /* its numbers: what it points at is gone */
    bool right;
} seen;

static void see(void *context, const rs_manager_message *message) {
    seen *s = context;
    const rs_manager_view *v = &message->view;
    s->delivered++;
    s->view = *v;
    s->right = message->call == RS_THRIFT_AGENT_VIEW && strcmp(v->response_id, "p1") == 0 && v->object.app[0] == 0xff &&
               strcmp(v->sender, "h1") == 0 && strcmp(v->leaf.predecessor, "h3") == 0 &&
               strcmp(v->leaf.successor, "h4") == 0 && strcmp(v->leaf.parent, "h2") == 0 && v->child_count == 2 &&
               strcmp(v->children[1], "h5") == 0 && strcmp(v->servers[1].server, "h4") == 0 &&
               v->servers[1].address == 0x0a000401 && v->servers[1].control_port == 7071;
}

static bool decode(const sample *of, seen *s) {
    link_frame frame = link_frame_view(&of->view);
    char text[160];
    *s = (seen){0};
    bool ok = rs_manager_decode(frame.data + 4, frame.len - 4, see, s, text, sizeof text);
    free(frame.data);
    return ok;
}

static void view__comes_field_by_field(void **state) {
    (void)state;
    seen s;
    sample view;
    assert_true(decode(fill(&view), &s));
    assert_int_equal(s.delivered, 1);
    assert_true(s.right);
    assert_int_equal(s.view.version, 3);
    assert_int_equal(s.view.object.data, 77);
    assert_int_equal(s.view.group, 0xefc00005);
    assert_null(s.view.proxy.predecessor);
    assert_null(s.view.proxy.successor);
    assert_int_equal(s.view.server_count, 2);
}

/* The connection stays; who sent it hears no view_used. */
static void view__that_makes_no_sense_is_not_used(void **state) {
    (void)state;
    seen s;
    sample view;
    fill(&view)->view.app_id.length = 15;
    assert_true(decode(&view, &s));
    assert_int_equal(s.delivered, 0);
    fill(&view)->view.version = -1;
    assert_true(decode(&view, &s));
    assert_int_equal(s.delivered, 0);
    fill(&view)->view.addresses.count = 3; /* the third one's is none */
    assert_true(decode(&view, &s));
    assert_int_equal(s.delivered, 0);
}

typedef struct {
    unsigned delivered;
    uint32_t count;
    rs_manager_key keys[8];
    char server[8]; /* of the last key: what a key points to is gone after the call */
} seen_keys;

static void see_keys(void *context, const rs_manager_message *message) {
    seen_keys *s = context;
    assert_int_equal(message->call, RS_THRIFT_AGENT_KEYS);
    s->delivered++;
    s->count = message->key_count;
    assert_true(s->count <= 8);
    memcpy(s->keys, message->keys, s->count * sizeof s->keys[0]);
    if (s->count && s->keys[s->count - 1].server)
        snprintf(s->server, sizeof s->server, "%s", s->keys[s->count - 1].server);
}

/* Of keys that cannot be ones the others are taken. */
static void keys__come_field_by_field(void **state) {
    (void)state;
    const uint8_t secret[32] = {1, 2, 3};
    const rs_thrift_seal_key right = {
        .epoch = 9, .key = {secret, 32}, .transmitter = 512, .in_ms = 2000, .purpose = RS_MANAGER_KEY_GROUP, .id = 7};
    rs_thrift_seal_key sent[4], wrong[9];
    for (unsigned i = 0; i < 4; i++)
        sent[i] = right;
    for (unsigned i = 0; i < 9; i++)
        wrong[i] = right;
    sent[1].epoch = 0;
    sent[2].key.length = 31;
    sent[3] = (rs_thrift_seal_key){.epoch = 65535,
                                   .key = {secret, 32},
                                   .transmitter = UINT32_MAX,
                                   .purpose = RS_MANAGER_KEY_PEER,
                                   .server = "h4",
                                   .id = UINT32_MAX};
    wrong[0].epoch = 65536;
    wrong[1].transmitter = 511;
    wrong[2].transmitter = INT64_C(1) << 32;
    wrong[3].in_ms = -1;
    wrong[4].purpose = 0;
    wrong[5].purpose = 5;
    wrong[6].id = -1;
    wrong[7].id = INT64_C(1) << 32;
    wrong[8].purpose = RS_MANAGER_KEY_PEER; /* and no server */
    const rs_thrift_agent_keys calls[] = {{{sent, 4}}, {{wrong, 9}}, {{NULL, 0}}};
    for (size_t i = 0; i < 3; i++) {
        seen_keys s = {0};
        char text[160];
        link_frame frame = link_frame_of(RS_THRIFT_AGENT_KEYS, &calls[i]);
        assert_true(rs_manager_decode(frame.data + 4, frame.len - 4, see_keys, &s, text, sizeof text));
        assert_int_equal(s.delivered, 1);
        assert_int_equal(s.count, i == 0 ? 2 : 0);
        if (i == 0) {
            assert_int_equal(s.keys[0].epoch, 9);
            assert_memory_equal(s.keys[0].key, secret, 32);
            assert_int_equal(s.keys[0].transmitter, 512);
            assert_int_equal(s.keys[0].in, 2000000000);
            assert_int_equal(s.keys[0].purpose, RS_MANAGER_KEY_GROUP);
            assert_int_equal(s.keys[0].id, 7);
            assert_null(s.keys[0].server);
            assert_int_equal(s.keys[1].epoch, 65535);
            assert_int_equal(s.keys[1].purpose, RS_MANAGER_KEY_PEER);
            assert_string_equal(s.server, "h4");
        }
        free(frame.data);
    }
}

static void failures_and_use__go_as_the_manager_reads_them(void **state) {
    (void)state;
    rs_manager_frame frame;
    assert_int_equal(rs_manager_encode_failure("p1", 3, RS_MANAGER_TREE_LINK_FAILED, RS_RING_PROXY, "h4", &frame),
                     RS_OK);
    const rs_thrift_manager_failure *args = link_call_decode(frame.bytes + 4, frame.length - 4, "failure");
    const rs_thrift_failure_report *report = &args->report;
    assert_string_equal(report->response_id, "p1");
    assert_int_equal(report->version, 3);
    assert_int_equal(report->kind, RS_THRIFT_FAILURE_KIND_LINK);
    assert_int_equal(report->ring, RS_THRIFT_RING_KIND_PROXY);
    assert_string_equal(report->server, "h4");
    link_args_free(args);
    free(frame.bytes);
    assert_int_equal(rs_manager_encode_view_used("p1", 9, &frame), RS_OK);
    const rs_thrift_manager_view_used *used = link_call_decode(frame.bytes + 4, frame.length - 4, "view_used");
    assert_int_equal(used->version, 9);
    link_args_free(used);
    free(frame.bytes);
    assert_int_equal(rs_manager_encode_view_used("p1", UINT64_MAX, &frame), RS_ERR_INVALID);
    assert_int_equal(rs_manager_encode_failure("p1", 1, RS_MANAGER_RECEIVER_FAILED, RS_RING_LEAF, "", &frame),
                     RS_ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(view__comes_field_by_field),
        cmocka_unit_test(view__that_makes_no_sense_is_not_used),
        cmocka_unit_test(keys__come_field_by_field),
        cmocka_unit_test(failures_and_use__go_as_the_manager_reads_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
