/* Message groups over the link: views in, joins out (controller/rostrum.thrift). */
#include "daemon/link_codec.h"
#include "link_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void add_peer(GPtrArray *peers, int id, const char *server, const char *address, int port) {
    rostrumGroupPeer *p = g_object_new(ROSTRUM_TYPE_GROUP_PEER, NULL);
    p->id = id;
    p->server = g_strdup(server);
    p->address = g_strdup(address);
    p->port = port;
    p->boot_id = 5;
    g_ptr_array_add(peers, p);
}

static rostrumGroupView *view_of(int id, gint64 version) {
    rostrumGroupView *v = g_object_new(ROSTRUM_TYPE_GROUP_VIEW, NULL);
    const gint32 members[] = {3, 1, 2};
    v->id = id;
    v->version = version;
    g_array_append_vals(v->members, members, 3);
    return v;
}

static void give_facts(rostrumGroupView *v, const char *address) {
    rostrumGroupOptions *o = g_object_new(ROSTRUM_TYPE_GROUP_OPTIONS, NULL);
    o->protocol = g_strdup("ricochet");
    o->order = g_strdup("fifo");
    o->r = 8;
    o->c = 5;
    o->stagger = 1;
    v->facts = g_object_new(ROSTRUM_TYPE_GROUP_FACTS, NULL);
    v->facts->group = g_strdup("ticks");
    v->facts->address = g_strdup(address);
    v->facts->data_port = 7070;
    v->facts->options = o;
    v->__isset_facts = true;
}

typedef struct {
    unsigned delivered;
    uint32_t peers, views, addresses, ids[8];
    bool right;
} seen;

static void see(void *context, const rs_link_message *message) {
    seen *s = context;
    if (message->call != RS_LINK_CALL_GROUP_VIEW)
        return;
    s->delivered++;
    s->peers = message->group_peer_count;
    s->views = message->group_view_count;
    for (uint32_t i = 0; i < message->group_peer_count; i++)
        s->addresses += message->group_peers[i].address & 0xff;
    for (uint32_t i = 0; i < message->group_view_count && i < 8; i++)
        s->ids[i] = message->group_views[i].id;
    const rs_link_group_view *v = message->group_views;
    if (message->group_view_count > 0)
        s->right = v->full && strcmp(v->group, "ticks") == 0 && v->address == 0xefc00009 && v->port == 7070 &&
                   v->member_count == 3 && v->members[0] == 3 && v->members[2] == 2 && v->sender_count == 0 &&
                   strcmp(v->options.protocol, "ricochet") == 0 && strcmp(v->options.order, "fifo") == 0 &&
                   v->options.r == 8 && v->options.c == 5;
}

static GByteArray *sample(void) {
    GPtrArray *peers = g_ptr_array_new_with_free_func(g_object_unref);
    GPtrArray *views = g_ptr_array_new_with_free_func(g_object_unref);
    add_peer(peers, 1, "h1", "10.0.0.1", 7071);
    add_peer(peers, 2, "h2", "nowhere", 7071);
    add_peer(peers, 3, "h3", "10.0.0.3", 0);
    add_peer(peers, 4, "h4", "10.0.0.4", 7071);
    g_ptr_array_add(views, view_of(9, 4));
    give_facts(g_ptr_array_index(views, 0), "239.192.0.9");
    g_ptr_array_add(views, view_of(10, 1)); /* full, but without facts */
    g_ptr_array_add(views, view_of(11, 1));
    give_facts(g_ptr_array_index(views, 2), "10.0.0.9"); /* no group's address */
    rostrumGroupView *delta = view_of(12, 7);
    delta->base_version = 6;
    delta->__isset_base_version = true;
    g_ptr_array_add(views, delta);
    GByteArray *frame = link_frame_group_view(peers, views);
    g_ptr_array_unref(peers);
    g_ptr_array_unref(views);
    return frame;
}

static void views__come_field_by_field_without_what_makes_no_sense(void **state) {
    (void)state;
    GByteArray *frame = sample();
    char words[160];
    seen s = {0};
    assert_true(rs_link_decode(frame->data + 4, frame->len - 4, see, &s, words, sizeof words));
    assert_int_equal(s.delivered, 1);
    assert_true(s.right);
    assert_int_equal(s.peers, 2);
    assert_int_equal(s.addresses, 1 + 4);
    assert_int_equal(s.views, 2);
    assert_int_equal(s.ids[0], 9);
    assert_int_equal(s.ids[1], 12);
    g_byte_array_unref(frame);
}

static void views__cut_short_or_changed_do_no_harm(void **state) {
    (void)state;
    GByteArray *frame = sample();
    char words[160];
    seen s = {0};
    for (size_t length = 0; length < frame->len - 4; length++) {
        uint8_t *exact = malloc(length + 1); /* what is read behind it is seen */
        memcpy(exact, frame->data + 4, length);
        assert_false(rs_link_decode(exact, length, see, &s, words, sizeof words));
        free(exact);
    }
    assert_int_equal(s.delivered, 0);
    unsigned seed = 11;
    for (int i = 0; i < 3000; i++) {
        uint8_t *copy = malloc(frame->len - 4);
        memcpy(copy, frame->data + 4, frame->len - 4);
        for (int flips = 1 + rand_r(&seed) % 4; flips > 0; flips--)
            copy[(unsigned)rand_r(&seed) % (frame->len - 4)] = (uint8_t)rand_r(&seed);
        (void)rs_link_decode(copy, frame->len - 4, see, &s, words, sizeof words);
        free(copy);
    }
    g_byte_array_unref(frame);
}

static void joins__go_as_the_manager_reads_them(void **state) {
    (void)state;
    rs_link_frame frame;
    ThriftStruct *args;
    const rs_link_group_options options = {"ricochet", "fifo", 8, 5, 2};
    const rs_link_group_view held = {.id = 9, .version = 4, .address = 0xefc00009};
    assert_int_equal(rs_link_encode_group(RS_LINK_GROUP_JOIN, "ticks", &options, &held, &frame), RS_OK);
    char *name = link_call_decode(frame.bytes + 4, frame.length - 4, &args);
    assert_string_equal(name, "join_group");
    const rostrumGroupUse *use = ((rostrumManagerJoinGroupArgs *)args)->group;
    assert_string_equal(use->group, "ticks");
    assert_string_equal(use->options->protocol, "ricochet");
    assert_int_equal(use->options->stagger, 2);
    assert_true(use->__isset_id && use->__isset_version && use->__isset_address);
    assert_string_equal(use->address, "239.192.0.9");
    g_object_unref(args);
    free(name);
    free(frame.bytes);
    assert_int_equal(rs_link_encode_group(RS_LINK_GROUP_LEAVE, "ticks", NULL, NULL, &frame), RS_OK);
    name = link_call_decode(frame.bytes + 4, frame.length - 4, &args);
    assert_string_equal(name, "leave_group");
    assert_string_equal(((rostrumManagerLeaveGroupArgs *)args)->group, "ticks");
    g_object_unref(args);
    free(name);
    free(frame.bytes);
    assert_int_equal(rs_link_encode_group(RS_LINK_GROUP_USE, "", NULL, NULL, &frame), RS_ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views__come_field_by_field_without_what_makes_no_sense),
        cmocka_unit_test(views__cut_short_or_changed_do_no_harm),
        cmocka_unit_test(joins__go_as_the_manager_reads_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
