/* Regions and Algorithm 1 (Ricochet, Sec. 4.1): what bins choose adds up to what each group is to have, whatever the
 * groups, and however they came to be what they are. */
#include <stdio.h>

#include "check.h"

#include "core/base/heap.h"
#include "core/ricochet/ricochet.h"
#include "core/ricochet/state.h"

#define NODES 40u
#define GROUPS 60u
#define SELF 0u

static uint64_t state;

static uint32_t below(uint32_t bound) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) * bound >> 31);
}

static void seed(void) {
    const char *given = getenv("SEED");
    state = given ? strtoull(given, NULL, 10) : (uint64_t)(uintptr_t)&given * UINT64_C(2654435761) >> 16;
    print_message("SEED=%llu\n", (unsigned long long)state);
}

static rs_messages *new_node(void) {
    rs_messages_config config = {.self = SELF, .seed = state, .receive_bytes = 1 << 20, .send_bytes = 1 << 20};
    rs_messages *node = rs_messages_new(&config, &rs_heap);
    assert_non_null(node);
    return node;
}

/* The paper's example, Fig. 7: c of A, B, C = 5, 4, 3, and bin ab chooses 0.4 from region ab, 0.8 from abc. */
static void regions__algorithm_gives_the_paper_s_example(void **unused) {
    (void)unused;
    rs_lec_group a = {.id = 1}, b = {.id = 2}, c = {.id = 3};
    rs_lec_group *groups[] = {&a, &b, &c};
    uint32_t level[3];
    uint64_t rate[3];
    a.rate = 5 * RS_LEC_ONE / 10;
    b.rate = 4 * RS_LEC_ONE / 10;
    c.rate = 3 * RS_LEC_ONE / 10;
    assert_int_equal(rs_lec_algorithm(groups, 3, level, rate), 3);
    assert_ptr_equal(groups[0], &c); /* the minimum first, then what is left of the others */
    assert_ptr_equal(groups[1], &b);
    assert_int_equal(level[1], 1);
    assert_int_equal(level[2], 2);
    assert_int_equal(rate[0], c.rate);
    assert_int_equal(rate[1], b.rate - c.rate);
    assert_int_equal(rate[2], a.rate - b.rate);
}

static void regions__groups_alike_share_one_bin(void **unused) {
    (void)unused;
    rs_lec_group a = {.id = 1, .rate = 7}, b = {.id = 2, .rate = 7}, none = {.id = 3, .rate = 0};
    rs_lec_group *groups[] = {&a, &none, &b};
    uint32_t level[3];
    uint64_t rate[3];
    assert_int_equal(rs_lec_algorithm(groups, 3, level, rate), 1);
    assert_int_equal(rate[0], 7);
    assert_int_equal(level[0], 1); /* not the group that wants no repairs */
}

/* What the test knows of a group. */
static struct {
    bool exists, member[NODES];
    uint64_t version;
    uint32_t c_milli, r, stagger;
} model[GROUPS];

static void push_view(rs_messages *node, uint32_t id) {
    rs_peer members[NODES];
    char options[64];
    snprintf(options, sizeof options, "r=%u,c=%u.%03u,stagger=%u", model[id].r ? model[id].r : 8,
             model[id].c_milli / 1000, model[id].c_milli % 1000, model[id].stagger ? model[id].stagger : 1);
    rs_messages_view view = {.group = id,
                             .channel = id,
                             .version = ++model[id].version,
                             .members = members,
                             .protocol = "ricochet",
                             .options = options};
    for (uint32_t i = 0; i < NODES; i++) {
        if (model[id].member[i])
            members[view.member_count++] = i;
    }
    assert_int_equal(rs_messages_set_view(node, 0, &view), RS_OK);
}

static uint32_t others(uint32_t id) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < NODES; i++)
        count += i != SELF && model[id].member[i];
    return count;
}

/* The node makes repairs of the group. */
static bool active(uint32_t id) {
    return model[id].exists && model[id].member[SELF] && others(id) > 0;
}

static bool shares(uint32_t id, const rs_lec_plane *plane, rs_peer peer) {
    return active(id) && model[id].r == plane->r && model[id].stagger == plane->stagger && model[id].member[peer];
}

static bool holds(const rs_lec_bin *bin, uint32_t id) {
    for (uint32_t i = 0; i < bin->group_count; i++) {
        if (bin->groups[i]->id == id)
            return true;
    }
    return false;
}

/* A region's peers share exactly the same groups, and for each of these what its bins choose of a member is c / |A|. */
static void check_region(const rs_lec_plane *plane, const rs_lec_region *region) {
    for (uint32_t id = 0; id < GROUPS; id++) {
        bool here = shares(id, plane, region->peers[0]->id);
        uint64_t sum = 0;
        for (uint32_t i = 0; i < region->peer_count; i++)
            assert_int_equal(shares(id, plane, region->peers[i]->id), here);
        for (uint32_t i = 0; i < region->share_count; i++) {
            const rs_lec_bin *bin = region->shares[i].bin;
            bool used = false;
            sum += holds(bin, id) ? region->shares[i].rate : 0;
            for (uint32_t k = 0; k < bin->use_count; k++)
                used |= bin->uses[k].region == region && bin->uses[k].rate == region->shares[i].rate;
            assert_true(used);
        }
        uint64_t wanted = here ? (uint64_t)model[id].c_milli * RS_LEC_ONE / ((uint64_t)others(id) * 1000) : 0;
        assert_int_equal(sum, wanted < RS_LEC_ONE ? wanted : RS_LEC_ONE);
    }
}

static uint32_t check_plane(rs_ricochet *own, rs_lec_plane *plane) {
    uint32_t placed = 0, regions = 0, neighbours = 0;
    rs_lec_settle(own, plane);
    for (uint32_t i = 0; i < 2048; i++) {
        for (rs_list *at = plane->regions[i].next; at != &plane->regions[i]; at = at->next) {
            const rs_lec_region *region = RS_HOLDER(rs_lec_region, hashed, at);
            regions++;
            assert_true(region->peer_count > 0);
            placed += region->peer_count;
            check_region(plane, region);
        }
        for (rs_list *at = plane->bins[i].next; at != &plane->bins[i]; at = at->next) {
            const rs_lec_bin *bin = RS_HOLDER(rs_lec_bin, hashed, at);
            assert_true(bin->use_count > 0);
            for (uint32_t k = 0; k < bin->group_count; k++) {
                const rs_lec_group *group = bin->groups[k];
                assert_ptr_equal(group->bins[bin->positions[k]], bin);
                assert_int_equal(group->places[bin->positions[k]], k);
            }
        }
    }
    for (rs_peer peer = 1; peer < NODES; peer++) {
        bool any = false;
        for (uint32_t id = 0; id < GROUPS && !any; id++)
            any = shares(id, plane, peer);
        neighbours += any;
    }
    assert_int_equal(placed, neighbours);
    return regions;
}

static void regions__views_that_change_conserve_all_targets(void **unused) {
    (void)unused;
    seed();
    memset(model, 0, sizeof model);
    rs_messages *node = new_node();
    rs_ricochet *own = rs_gm_engine_own(node, &rs_group_engine_ricochet);
    for (uint32_t step = 0; step < 600; step++) {
        uint32_t id = below(GROUPS), what = below(12);
        if (!model[id].exists || what == 0) {
            if (model[id].exists)
                assert_int_equal(rs_messages_forget(node, 0, id), RS_OK);
            memset(&model[id], 0, sizeof model[id]);
            model[id].exists = true;
            model[id].r = below(4) ? 8 : 5;
            model[id].stagger = below(4) ? 1 : 2;
            model[id].c_milli = 1 + below(9000);
            for (uint32_t i = 0; i < NODES; i++)
                model[id].member[i] = i == SELF || below(4) == 0;
        } else if (what == 1)
            model[id].c_milli = 1 + below(9000);
        else if (what == 2)
            model[id].member[SELF] = !model[id].member[SELF];
        else {
            rs_peer peer = 1 + below(NODES - 1);
            model[id].member[peer] = !model[id].member[peer];
        }
        push_view(node, id);
        if (step % 5)
            continue;
        uint64_t regions = 0;
        for (uint32_t i = 0; i < RS_LEC_PLANES; i++) {
            if (own->planes[i].peers)
                regions += check_plane(own, &own->planes[i]);
        }
        assert_int_equal(regions, own->regions);
    }
    for (uint32_t id = 0; id < GROUPS; id++)
        rs_messages_forget(node, 0, id);
    assert_int_equal(own->regions, 0);
    assert_int_equal(own->bins, 0);
    rs_messages_free(node);
}

/* One member more in one group: only the regions of that group's members are reckoned again. */
static void regions__one_change_touches_few_bins(void **unused) {
    (void)unused;
    rs_messages *node = new_node();
    rs_ricochet *own = rs_gm_engine_own(node, &rs_group_engine_ricochet);
    memset(model, 0, sizeof model);
    for (uint32_t id = 0; id < GROUPS; id++) {
        model[id].c_milli = 2000;
        model[id].member[SELF] = true;
        for (uint32_t i = 0; i < 4; i++)
            model[id].member[1 + (id + i * 7) % (NODES - 2)] = true;
        push_view(node, id);
    }
    rs_lec_plane *plane = &own->planes[0];
    while (!plane->peers)
        plane++;
    rs_lec_settle(own, plane);
    model[3].member[NODES - 1] = true;
    push_view(node, 3);
    uint32_t marked = 0;
    for (rs_list *at = plane->dirty_peers.next; at != &plane->dirty_peers; at = at->next)
        marked++;
    assert_int_equal(marked, others(3));
    rs_messages_free(node);
}

/* More than eight different (r, stagger), an r out of range, too many repairs: the caller is told, the group stays. */
static void regions__options_are_checked(void **unused) {
    (void)unused;
    rs_messages *node = new_node();
    rs_peer members[] = {SELF, 1};
    rs_messages_view view = {.version = 1, .members = members, .member_count = 2, .protocol = "ricochet"};
    const struct {
        const char *protocol, *options;
        rs_status status;
        const char *text;
    } wrong[] = {
        {"ricochet", "r=20", RS_ERR_LIMIT,
         "ricochet repairs with r 20, stagger 1 and flush 0 us, and this server is in groups with 8"},
        {"ricochet", "r=33", RS_ERR_INVALID, "r 33 is out of range: r of ricochet is a whole number from 1 to 32"},
        {"ricochet", "r=0", RS_ERR_INVALID, "from 1 to 32"},
        {"ricochet", "r=2.5", RS_ERR_INVALID, "whole number"},
        {"ricochet", "r=8,stagger=65", RS_ERR_INVALID, "stagger 65 is out of range"},
        {"ricochet", "c=64.001", RS_ERR_INVALID, "c of ricochet is 0 to 64"},
        {"ricochet", "c=-1", RS_ERR_INVALID, "c -1 is out of range"},
        {"ricochet", "c=1.2345", RS_ERR_INVALID, "c 1.2345 is out of range"},
        {"ricochet", "c=99999999999999999999", RS_ERR_INVALID, "out of range"},
        {"ricochet", "c", RS_ERR_INVALID, "c  is out of range"},
        {"ricochet", "r=8,r=8", RS_ERR_INVALID, "r is named twice"},
        {"ricochet", "lambda=3", RS_ERR_INVALID, "ricochet has no option 'lambda'; it has r, c, stagger, naks, flush"},
        {"plain", "r=8", RS_ERR_INVALID, "plain has no option 'r'; it has none"},
        {"telepathy", "", RS_ERR_PROTOCOL, "there is no group protocol 'telepathy' here; there is plain, ricochet"},
    };
    char options[16];
    for (uint32_t i = 0; i < RS_LEC_PLANES; i++) {
        snprintf(options, sizeof options, "r=%u", 2 + i);
        view.group = i;
        view.options = options;
        assert_int_equal(rs_messages_set_view(node, 0, &view), RS_OK);
    }
    view.group = 99;
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        view.protocol = wrong[i].protocol;
        view.options = wrong[i].options;
        assert_int_equal(rs_messages_set_view(node, 0, &view), wrong[i].status);
        if (!strstr(rs_messages_refusal(node), wrong[i].text))
            fail_msg("%s: %s", wrong[i].options, rs_messages_refusal(node));
    }
    assert_int_equal(rs_messages_forget(node, 0, 99), RS_ERR_UNKNOWN);
    assert_int_equal(rs_messages_forget(node, 0, 0), RS_OK);
    view.protocol = "ricochet";
    view.options = "r=20";
    assert_int_equal(rs_messages_set_view(node, 0, &view), RS_OK); /* a plane is free again */
    rs_messages_free(node);
}

/* The same values are the same text, with all that was not named, but for what agents of before do not know. */
static void regions__options_are_completed(void **unused) {
    (void)unused;
    rs_messages *node = new_node();
    char complete[RS_GROUP_OPTIONS_TEXT];
    assert_int_equal(rs_messages_check_options(node, "ricochet", NULL, NULL, complete), RS_OK);
    assert_string_equal(complete, "r=8,c=5,stagger=1,naks=1");
    assert_int_equal(rs_messages_check_options(node, "ricochet", NULL, "stagger=10,c=2.50,r=08", complete), RS_OK);
    assert_string_equal(complete, "r=8,c=2.5,stagger=10,naks=1");
    assert_int_equal(rs_messages_check_options(node, "ricochet", "stagger=10,c=2.5", "c=3", complete), RS_OK);
    assert_string_equal(complete, "r=8,c=3,stagger=10,naks=1");
    assert_int_equal(rs_messages_check_options(node, "ricochet", NULL, "flush=0.40,r=4", complete), RS_OK);
    assert_string_equal(complete, "r=4,c=5,stagger=1,naks=1,flush=0.4");
    assert_int_equal(rs_messages_check_options(node, "ricochet", complete, "flush=0.0", complete), RS_OK);
    assert_string_equal(complete, "r=4,c=5,stagger=1,naks=1");
    assert_int_equal(rs_messages_check_options(node, "plain", NULL, "", complete), RS_OK);
    assert_string_equal(complete, "");
    assert_int_equal(rs_messages_check_options(node, "ricochet", NULL, "r", complete), RS_ERR_INVALID);
    rs_messages_free(node);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions__algorithm_gives_the_paper_s_example),
        cmocka_unit_test(regions__groups_alike_share_one_bin),
        cmocka_unit_test(regions__views_that_change_conserve_all_targets),
        cmocka_unit_test(regions__one_change_touches_few_bins),
        cmocka_unit_test(regions__options_are_checked),
        cmocka_unit_test(regions__options_are_completed),
    };
    return cmocka_run_group_tests_name("regions", tests, NULL, NULL);
}
