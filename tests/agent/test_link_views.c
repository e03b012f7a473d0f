/* RDCM over the link: views of overlays in, their use and failures out (controller/rostrum.thrift). */
#include "daemon/link_codec.h"
#include "link_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static rostrumServerAddress *address_of(const char *server, const char *address) {
    return g_object_new(ROSTRUM_TYPE_SERVER_ADDRESS, "server", server, "address", address, "control_port", 7071, NULL);
}

static rostrumOverlayView *sample(void) {
    rostrumOverlayView *v = g_object_new(ROSTRUM_TYPE_OVERLAY_VIEW, NULL);
    const guint8 app[16] = {0xff, 0, 0xfe}; /* no text */
    v->response_id = g_strdup("p1");
    v->version = 3;
    v->group = g_strdup("239.192.0.5");
    v->app_id = g_byte_array_append(g_byte_array_new(), app, sizeof app);
    v->data_id = 77;
    v->sender = g_strdup("h1");
    v->leaf_predecessor = g_strdup("h3");
    v->leaf_successor = g_strdup("h4");
    v->leaf_parent = g_strdup("h2");
    v->__isset_leaf_predecessor = v->__isset_leaf_successor = v->__isset_leaf_parent = true;
    g_ptr_array_add(v->children, g_strdup("h4"));
    g_ptr_array_add(v->children, g_strdup("h5"));
    g_ptr_array_add(v->addresses, address_of("h3", "10.0.3.1"));
    g_ptr_array_add(v->addresses, address_of("h4", "10.0.4.1"));
    return v;
}

typedef struct {
    unsigned delivered;
    rs_link_view view; /* its numbers: what it points at is gone */
    bool right;
} seen;

static void see(void *context, const rs_link_message *message) {
    seen *s = context;
    const rs_link_view *v = &message->view;
    s->delivered++;
    s->view = *v;
    s->right = message->call == RS_LINK_CALL_VIEW && strcmp(v->response_id, "p1") == 0 && v->object.app[0] == 0xff &&
               strcmp(v->sender, "h1") == 0 && strcmp(v->leaf.predecessor, "h3") == 0 &&
               strcmp(v->leaf.successor, "h4") == 0 && strcmp(v->leaf.parent, "h2") == 0 && v->child_count == 2 &&
               strcmp(v->children[1], "h5") == 0 && strcmp(v->servers[1].server, "h4") == 0 &&
               v->servers[1].address == 0x0a000401 && v->servers[1].control_port == 7071;
}

static bool decode(rostrumOverlayView *view, seen *s) {
    GByteArray *frame = link_frame_view(view);
    char words[160];
    *s = (seen){0};
    bool ok = rs_link_decode(frame->data + 4, frame->len - 4, see, s, words, sizeof words);
    g_byte_array_unref(frame);
    g_object_unref(view);
    return ok;
}

static void view__comes_field_by_field(void **state) {
    (void)state;
    seen s;
    assert_true(decode(sample(), &s));
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
    rostrumOverlayView *v = sample();
    g_byte_array_set_size(v->app_id, 15);
    assert_true(decode(v, &s));
    assert_int_equal(s.delivered, 0);
    v = sample();
    v->version = -1;
    assert_true(decode(v, &s));
    assert_int_equal(s.delivered, 0);
    v = sample();
    g_ptr_array_add(v->addresses, address_of("h5", "nowhere"));
    assert_true(decode(v, &s));
    assert_int_equal(s.delivered, 0);
    v = sample();
    g_byte_array_set_size(v->app_id, 17);
    assert_false(decode(v, &s)); /* longer than the interface says */
}

static void failures_and_use__go_as_the_manager_reads_them(void **state) {
    (void)state;
    rs_link_frame frame;
    ThriftStruct *args;
    assert_int_equal(rs_link_encode_failure("p1", 3, true, RS_RING_PROXY, "h4", &frame), RS_OK);
    char *name = link_call_decode(frame.bytes + 4, frame.length - 4, &args);
    assert_string_equal(name, "failure");
    const rostrumFailureReport *report = ((rostrumManagerFailureArgs *)args)->report;
    assert_string_equal(report->response_id, "p1");
    assert_int_equal(report->version, 3);
    assert_int_equal(report->kind, ROSTRUM_FAILURE_KIND_LINK);
    assert_int_equal(report->ring, ROSTRUM_RING_KIND_PROXY);
    assert_string_equal(report->server, "h4");
    g_object_unref(args);
    free(name);
    free(frame.bytes);
    assert_int_equal(rs_link_encode_view_used("p1", 9, &frame), RS_OK);
    name = link_call_decode(frame.bytes + 4, frame.length - 4, &args);
    assert_string_equal(name, "view_used");
    assert_int_equal(((rostrumManagerViewUsedArgs *)args)->version, 9);
    g_object_unref(args);
    free(name);
    free(frame.bytes);
    assert_int_equal(rs_link_encode_view_used("p1", UINT64_MAX, &frame), RS_ERR_INVALID);
    assert_int_equal(rs_link_encode_failure("p1", 1, false, RS_RING_LEAF, "", &frame), RS_ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(view__comes_field_by_field),
        cmocka_unit_test(view__that_makes_no_sense_is_not_used),
        cmocka_unit_test(failures_and_use__go_as_the_manager_reads_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
