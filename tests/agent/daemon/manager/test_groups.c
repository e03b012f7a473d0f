/* Message groups over the link: views in, joins out (controller/rostrum.thrift). */
#include "daemon/manager/codec.h"
#include "link_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    unsigned delivered;
    uint32_t peers, views, addresses, ids[8];
    bool right;
} seen;

static void see(void *context, const rs_manager_message *message) {
    seen *s = context;
    if (message->call != RS_THRIFT_AGENT_GROUP_VIEW)
        return;
    s->delivered++;
    s->peers = message->group_peer_count;
    s->views = message->group_view_count;
    for (uint32_t i = 0; i < message->group_peer_count; i++)
        s->addresses += message->group_peers[i].address & 0xff;
    for (uint32_t i = 0; i < message->group_view_count && i < 8; i++)
        s->ids[i] = message->group_views[i].id;
    const rs_manager_group_view *v = message->group_views;
    if (message->group_view_count > 0)
        s->right = v->full && strcmp(v->group, "ticks") == 0 && v->address_count == 2 &&
                   v->addresses[0] == 0xefc00009 && v->addresses[1] == 0xefc0000a && v->says_listens &&
                   v->listens[0] == 1 && v->rejoined && v->port == 7070 && v->member_count == 3 && v->members[0] == 3 &&
                   v->members[2] == 2 && v->sender_count == 0 && strcmp(v->options.protocol, "ricochet") == 0 &&
                   strcmp(v->options.order, "fifo") == 0 && strcmp(v->options.options, "r=8,c=5") == 0;
}

static link_frame sample(void) {
    static const int32_t members[] = {3, 1, 2};
    static const rs_thrift_group_peer peers[] = {{1, "h1", "10.0.0.1", 7071, 5},
                                                 {2, "h2", "nowhere", 7071, 5},
                                                 {3, "h3", "10.0.0.3", 0, 5},
                                                 {4, "h4", "10.0.0.4", 7071, 5}};
    static const int32_t listens[] = {1};
    static const char *const more[] = {"239.192.0.10"}, *const bad_address[] = {"10.0.0.9"};
    const rs_thrift_group_facts good = {.group = "ticks",
                                        .address = "239.192.0.9",
                                        .data_port = 7070,
                                        .options = {"ricochet", "fifo", "r=8,c=5"},
                                        .has_more_addresses = true,
                                        .more_addresses = {more, 1}};
    rs_thrift_group_facts bad = good, bad_more = good;
    bad.address = bad_address[0];
    bad_more.more_addresses.items = bad_address;
    const rs_thrift_group_view views[] = {
        {.id = 9,
         .version = 4,
         .members = {members, 3},
         .facts = &good,
         .has_listens = true,
         .listens = {listens, 1},
         .has_rejoined = true,
         .rejoined = true},
        {.id = 10, .version = 1, .members = {members, 3}},                     /* full, but without facts */
        {.id = 11, .version = 1, .members = {members, 3}, .facts = &bad},      /* no group's address */
        {.id = 13, .version = 1, .members = {members, 3}, .facts = &bad_more}, /* nor this one */
        {.id = 12, .version = 7, .members = {members, 3}, .has_base_version = true, .base_version = 6}};
    return link_frame_group_view(peers, 4, views, 5);
}

static void views__come_field_by_field_without_what_makes_no_sense(void **state) {
    (void)state;
    link_frame frame = sample();
    char text[160];
    seen s = {0};
    assert_true(rs_manager_decode(frame.data + 4, frame.len - 4, see, &s, text, sizeof text));
    assert_int_equal(s.delivered, 1);
    assert_true(s.right);
    assert_int_equal(s.peers, 2);
    assert_int_equal(s.addresses, 1 + 4);
    assert_int_equal(s.views, 2);
    assert_int_equal(s.ids[0], 9);
    assert_int_equal(s.ids[1], 12);
    free(frame.data);
}

static void views__cut_short_or_changed_do_no_harm(void **state) {
    (void)state;
    link_frame frame = sample();
    char text[160];
    seen s = {0};
    for (size_t length = 0; length < frame.len - 4; length++) {
        uint8_t *exact = malloc(length + 1); /* what is read behind it is seen */
        memcpy(exact, frame.data + 4, length);
        assert_false(rs_manager_decode(exact, length, see, &s, text, sizeof text));
        free(exact);
    }
    assert_int_equal(s.delivered, 0);
    unsigned seed = 11;
    for (int i = 0; i < 3000; i++) {
        uint8_t *copy = malloc(frame.len - 4);
        memcpy(copy, frame.data + 4, frame.len - 4);
        for (int flips = 1 + rand_r(&seed) % 4; flips > 0; flips--)
            copy[(unsigned)rand_r(&seed) % (frame.len - 4)] = (uint8_t)rand_r(&seed);
        (void)rs_manager_decode(copy, frame.len - 4, see, &s, text, sizeof text);
        free(copy);
    }
    free(frame.data);
}

static void joins__go_as_the_manager_reads_them(void **state) {
    (void)state;
    rs_manager_frame frame;
    const rs_manager_group_options options = {"ricochet", "fifo", "stagger=2"};
    const uint32_t address = 0xefc00009;
    const rs_manager_group_view held = {.id = 9, .version = 4, .addresses = &address, .address_count = 1};
    assert_int_equal(rs_manager_encode_group(RS_MANAGER_GROUP_JOIN, "ticks", &options, &held, &frame), RS_OK);
    const rs_thrift_manager_join_group *args = link_call_decode(frame.bytes + 4, frame.length - 4, "join_group");
    const rs_thrift_group_use *use = &args->group;
    assert_string_equal(use->group, "ticks");
    assert_string_equal(use->options->protocol, "ricochet");
    assert_string_equal(use->options->options, "stagger=2");
    assert_true(use->has_id && use->has_version);
    assert_string_equal(use->address, "239.192.0.9");
    link_args_free(args);
    free(frame.bytes);
    assert_int_equal(rs_manager_encode_group(RS_MANAGER_GROUP_LEAVE, "ticks", NULL, NULL, &frame), RS_OK);
    const rs_thrift_manager_leave_group *left = link_call_decode(frame.bytes + 4, frame.length - 4, "leave_group");
    assert_string_equal(left->group, "ticks");
    link_args_free(left);
    free(frame.bytes);
    assert_int_equal(rs_manager_encode_group(RS_MANAGER_GROUP_USE, "", NULL, NULL, &frame), RS_ERR_INVALID);
    const rs_manager_slow slow[] = {{"python[7]", "waited-for", 0}, {"cat[9]", "put-out", 12}};
    const char *const silent[] = {"h3"};
    rs_manager_group_trouble trouble = {"ticks", slow, silent, 2, 1};
    assert_int_equal(rs_manager_encode_group_trouble(&trouble, &frame), RS_OK);
    const rs_thrift_manager_group_trouble *told = link_call_decode(frame.bytes + 4, frame.length - 4, "group_trouble");
    assert_string_equal(told->trouble.group, "ticks");
    assert_int_equal(told->trouble.slow.count, 2);
    assert_int_equal(((const rs_thrift_slow_program *)told->trouble.slow.items)[1].lost, 12);
    assert_string_equal(((const char *const *)told->trouble.silent.items)[0], "h3");
    link_args_free(told);
    free(frame.bytes);
    trouble.slow_count = RS_MANAGER_TROUBLE_MOST + 1;
    assert_int_equal(rs_manager_encode_group_trouble(&trouble, &frame), RS_ERR_INVALID);
}

/* As an agent tells a group of QSM again when its manager is back. */
static void join__of_a_group_in_regions_has_no_address(void **state) {
    (void)state;
    rs_manager_frame frame;
    const rs_manager_group_view held = {.id = 9, .version = 4, .in_regions = true};
    assert_int_equal(rs_manager_encode_group(RS_MANAGER_GROUP_JOIN, "ticks", NULL, &held, &frame), RS_OK);
    const rs_thrift_manager_join_group *args = link_call_decode(frame.bytes + 4, frame.length - 4, "join_group");
    assert_true(args->group.has_id && args->group.id == 9);
    assert_null(args->group.address);
    link_args_free(args);
    free(frame.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(join__of_a_group_in_regions_has_no_address),
        cmocka_unit_test(views__come_field_by_field_without_what_makes_no_sense),
        cmocka_unit_test(views__cut_short_or_changed_do_no_harm),
        cmocka_unit_test(joins__go_as_the_manager_reads_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
