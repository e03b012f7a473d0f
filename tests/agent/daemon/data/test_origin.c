/* Whose object it is that comes, by the manager's word. */
#include "daemon/data/origin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const rs_digest digest = {.algorithm = RS_DIGEST_SHA256, .length = 4, .value = {0x12, 0xab, 0, 0xff}};

#define OURS "sha256-tree:12ab00ff"

/* To who has told the digest of what comes. */
static rs_manager_origin answer(const char *origin, const char *text) {
    return (rs_manager_origin){.sender = "relay", .origin = origin, .digest = text, .asked = OURS};
}

static void origin__is_nothing_to_ask_for_without_security_or_sites(void **state) {
    (void)state;
    const rs_origin origin = {.wanted = false};
    assert_int_equal(rs_origin_judge(&origin, &digest), RS_ORIGIN_SAME);
}

static void origin__waits_for_the_managers_word(void **state) {
    (void)state;
    rs_origin origin = {.wanted = true};
    assert_int_equal(rs_origin_judge(&origin, &digest), RS_ORIGIN_UNKNOWN);
    const rs_manager_origin no_digest = answer("home", "");
    rs_origin_told(&origin, &no_digest);
    assert_int_equal(rs_origin_judge(&origin, &digest), RS_ORIGIN_UNKNOWN);
}

static void origin__takes_what_is_the_senders_own_whatever_it_is(void **state) {
    (void)state;
    rs_origin origin = {.wanted = true};
    const rs_manager_origin own = answer("relay", "");
    rs_origin_told(&origin, &own);
    assert_int_equal(rs_origin_judge(&origin, &digest), RS_ORIGIN_SAME);
}

static void origin__takes_from_a_relay_only_what_has_the_origins_digest(void **state) {
    (void)state;
    rs_origin origin = {.wanted = true};
    const rs_manager_origin right = answer("home", "sha256-tree:12ab00ff"),
                            other = answer("home", "sha256-tree:12ab00fe"),
                            shorter = answer("home", "sha256-tree:12ab00"),
                            law = answer("home", "xxh3-128-tree:12ab00ff");
    rs_origin_told(&origin, &right);
    assert_int_equal(rs_origin_judge(&origin, &digest), RS_ORIGIN_SAME);
    assert_string_equal(origin.name, "home");
    const rs_manager_origin wrong[] = {other, shorter, law};
    for (unsigned i = 0; i < 3; i++) {
        rs_origin_told(&origin, &wrong[i]);
        assert_int_equal(rs_origin_judge(&origin, &digest), RS_ORIGIN_OTHER);
    }
}

/* Several may have that server pass on objects by one id: the first answer can be of another's. */
static void origin__is_asked_again_with_the_digest_before_anything_is_refused(void **state) {
    (void)state;
    rs_origin origin = {.wanted = true};
    rs_manager_origin others = answer("thief", "sha256-tree:00000000");
    others.asked = "";
    rs_origin_told(&origin, &others);
    assert_int_equal(rs_origin_judge(&origin, &digest), RS_ORIGIN_UNKNOWN);
    const rs_manager_origin ours = answer("home", OURS);
    rs_origin_told(&origin, &ours);
    assert_int_equal(rs_origin_judge(&origin, &digest), RS_ORIGIN_SAME);
    others.asked = OURS;
    rs_origin_told(&origin, &others);
    assert_int_equal(rs_origin_judge(&origin, &digest), RS_ORIGIN_OTHER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(origin__is_nothing_to_ask_for_without_security_or_sites),
        cmocka_unit_test(origin__waits_for_the_managers_word),
        cmocka_unit_test(origin__takes_what_is_the_senders_own_whatever_it_is),
        cmocka_unit_test(origin__takes_from_a_relay_only_what_has_the_origins_digest),
        cmocka_unit_test(origin__is_asked_again_with_the_digest_before_anything_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
