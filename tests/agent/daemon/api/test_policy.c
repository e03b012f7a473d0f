/* The policy of an agent: what a file says, whom it is for, and what is wrong in one (agent/daemon/api/policy.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/api/policy.h"

static bool find(const char *name, uint32_t *out) {
    static const char *const names[] = {"alice", "bob", "trainers", "readers"};
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) {
            *out = 70001 + i;
            return true;
        }
    return false;
}

static const rs_policy_names names = {.user = find, .group = find};
static const rs_policy_who alice = {.uid = 70001, .gid = 70001}, bob = {.uid = 70002, .gid = 5},
                           trainer = {.uid = 9, .gid = 9, .group_count = 2, .groups = {8, 70003}},
                           both = {.uid = 70001, .gid = 70003}, stranger = {.uid = 7, .gid = 7};
static const uint8_t one[16] = {0x11, 0x11}, two[16] = {0x22};
#define ONE "11110000-0000-0000-0000-000000000000"

static rs_policy *parse(const char *text) {
    rs_error error = {0};
    rs_policy *policy = rs_policy_parse(text, strlen(text), &names, &error);
    if (!policy)
        fail_msg("%s", error.text);
    return policy;
}

static void sections__say_who_may_what(void **state) {
    (void)state;
    rs_policy *p =
        parse("# who\r\n[application weights]\nid = " ONE "\n\n[user alice]\r\nsend = h1 , h2\npublish = a*\n"
              "read = weights\n[group trainers]\nsend=h3\nwrite = *\nread =\n  [others]  \nsubscribe = news\n");
    assert_true(rs_policy_allows(p, &alice, RS_RIGHT_SEND, "h1"));
    assert_true(rs_policy_allows(p, &alice, RS_RIGHT_SEND, "h2"));
    assert_false(rs_policy_allows(p, &alice, RS_RIGHT_SEND, "h3"));
    assert_false(rs_policy_allows(p, &alice, RS_RIGHT_SEND, "h"));
    assert_false(rs_policy_allows(p, &alice, RS_RIGHT_SEND, "h11"));
    assert_true(rs_policy_allows(p, &alice, RS_RIGHT_PUBLISH, "a"));
    assert_true(rs_policy_allows(p, &alice, RS_RIGHT_PUBLISH, "alerts"));
    assert_false(rs_policy_allows(p, &alice, RS_RIGHT_PUBLISH, "b"));
    assert_false(rs_policy_allows(p, &alice, RS_RIGHT_SUBSCRIBE, "a"));
    assert_true(rs_policy_allows(p, &alice, RS_RIGHT_READ, one));
    assert_false(rs_policy_allows(p, &alice, RS_RIGHT_READ, two));
    assert_false(rs_policy_allows(p, &alice, RS_RIGHT_SUBSCRIBE, "news")); /* she has a section */
    assert_true(rs_policy_allows(p, &stranger, RS_RIGHT_SUBSCRIBE, "news"));
    assert_true(rs_policy_allows(p, &bob, RS_RIGHT_SUBSCRIBE, "news"));
    assert_false(rs_policy_allows(p, &bob, RS_RIGHT_SEND, "h1"));
    assert_true(rs_policy_allows(p, &trainer, RS_RIGHT_SEND, "h3"));
    assert_true(rs_policy_allows(p, &trainer, RS_RIGHT_WRITE, two));
    assert_false(rs_policy_allows(p, &trainer, RS_RIGHT_READ, one));
    assert_true(rs_policy_allows(p, &both, RS_RIGHT_SEND, "h1"));
    assert_true(rs_policy_allows(p, &both, RS_RIGHT_SEND, "h3"));
    rs_policy_free(p);
}

static void everybody__may_do_all_without_one_and_nothing_by_an_empty_one(void **state) {
    (void)state;
    rs_policy *p = parse("");
    const rs_policy_who root = {0}, own = {.uid = geteuid()};
    for (rs_right right = 0; right < RS_RIGHTS; right++) {
        assert_true(rs_policy_allows(NULL, &stranger, right, one));
        assert_false(rs_policy_allows(p, &stranger, right, one));
        assert_true(rs_policy_allows(p, &root, right, one));
        assert_true(rs_policy_allows(p, &own, right, one));
    }
    rs_policy_free(p);
}

static void mistakes__are_told_with_the_line_and_what_to_do(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"\nsend = h1", "line 2: a section is needed before"},
        {"[user carol]", "line 1: this machine has no user carol; make it"},
        {"[group carol]", "line 1: this machine has no group carol"},
        {"[user]", "line 1: a section is [user NAME]"},
        {"[users alice]", "line 1: a section is [user NAME]"},
        {"[user alice", "line 1: a section's line ends with \"]\""},
        {"[others]\n[others]", "line 2: there is a section for it already"},
        {"[user alice]\n[user 70001]", "line 2: there is a section for it already"},
        {"[others]\nsend h1", "line 2: a line is \"right = subject"},
        {"[others]\nsned = h1", "line 2: there is no right \"sned\": send, publish"},
        {"[others]\nsend = h1\nsend = h2", "line 3: \"send\" is said twice"},
        {"[others]\nsend = h1,", "line 2: there is nothing between two commas"},
        {"[others]\nsend = h*1", "line 2: \"*\" stands at the end"},
        {"[others]\nread = weights", "line 2: \"weights\" is no UUID, and no section"},
        {"[others]\nread = 1111*", "line 2: \"1111*\" is no UUID"},
        {"[application a]\n[others]", "line 2: [application a] before this line needs a line \"id = UUID\""},
        {"[application a]\n", "line 1: [application a] needs a line"},
        {"[application a]\nid = 5", "line 2: an application has one line"},
        {"[application a]\nsend = h1", "line 2: an application has one line"},
        {"[application *]\n", "line 1: an application's name is"},
        {"[others]\nsend = \x01", "line 2: a name is UTF-8"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rs_error error = {0};
        assert_null(rs_policy_parse(wrong[i][0], strlen(wrong[i][0]), &names, &error));
        if (strncmp(error.text, wrong[i][1], strlen(wrong[i][1])) != 0)
            fail_msg("%s: \"%s\"", wrong[i][0], error.text);
    }
    rs_error error = {0};
    assert_null(rs_policy_parse("[others]\n\0", 10, &names, &error));
}

static void file__that_others_can_change_is_refused(void **state) {
    (void)state;
    char path[] = "/tmp/rostrum-policy-XXXXXX";
    rs_error error = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "[others]\nsend = *\n", 18) == 18);
    rs_policy *p = rs_policy_load(path, &error);
    assert_non_null(p);
    rs_policy_free(p);
    assert_int_equal(fchmod(fd, 0620), 0);
    assert_null(rs_policy_load(path, &error));
    assert_non_null(strstr(error.text, "chmod go-w"));
    assert_null(rs_policy_load("/tmp", &error));
    close(fd);
    unlink(path);
    assert_null(rs_policy_load(path, &error));
    assert_non_null(strstr(error.text, "No such file"));
}

static void peer__is_known_by_the_system(void **state) {
    (void)state;
    int ends[2];
    rs_policy_who who;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_true(rs_policy_peer(ends[0], &who));
    assert_int_equal(who.uid, geteuid());
    assert_int_equal(who.gid, getegid());
    assert_int_equal(who.pid, getpid());
    assert_int_equal(who.group_count, getgroups(0, NULL));
    close(ends[0]);
    close(ends[1]);
    assert_false(rs_policy_peer(ends[0], &who));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections__say_who_may_what),
        cmocka_unit_test(everybody__may_do_all_without_one_and_nothing_by_an_empty_one),
        cmocka_unit_test(mistakes__are_told_with_the_line_and_what_to_do),
        cmocka_unit_test(file__that_others_can_change_is_refused),
        cmocka_unit_test(peer__is_known_by_the_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
