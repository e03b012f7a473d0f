/* The agent's log as JSON: one object a line, whatever a stranger put into it. */
#include "daemon/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Runs `write_it` with stderr in a pipe. */
static void catch_line(void (*write_it)(void), char out[8192]) {
    int ends[2], kept = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    write_it();
    dup2(kept, STDERR_FILENO);
    close(ends[1]);
    ssize_t got = read(ends[0], out, 8191);
    assert_true(got > 0);
    out[got] = '\0';
    close(ends[0]);
    close(kept);
}

static void pairs(void) {
    rs_log(RS_LOG_INFO, "send", "object=%s phase=requested request=%s text=%s n=%d", "ab/7", "1-2-3",
           rs_quote("say \"it\" \\ \n\x07 \xff"), 3);
}

static void text(void) {
    rs_log(RS_LOG_WARNING, "data", "the socket's buffer was full: dropped=%d", 5);
}

static void long_one(void) {
    char text[3000];
    memset(text, '"', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    rs_log(RS_LOG_ERROR, "x", "%s", text);
}

static void log__pairs_are_members(void **state) {
    (void)state;
    char line[8192];
    rs_log_set_json(true);
    catch_line(pairs, line);
    assert_int_equal(line[0], '{');
    assert_non_null(
        strstr(line, "\"level\":\"info\",\"event\":\"send\",\"object\":\"ab/7\",\"phase\":\"requested\","
                     "\"request\":\"1-2-3\",\"text\":\"say \\\"it\\\" \\\\ \\\\x0a\\\\x07 \\ufffd\",\"n\":\"3\"}\n"));
    catch_line(text, line);
    assert_non_null(strstr(line, "\"dropped\":\"5\",\"text\":\"the socket's buffer was full:\"}\n"));
    catch_line(long_one, line);
    assert_string_equal(line + strlen(line) - 3, "\"}\n");
    rs_log_set_json(false);
    catch_line(text, line);
    assert_non_null(strstr(line, " warning data the socket's buffer was full: dropped=5\n"));
}

/* stderr is a pipe that nobody reads: logging goes on without waiting, and drops. Then somebody reads: what was kept is
 * there, whole and in order, and how much is not. */
static void log__a_reader_that_stands_still_holds_up_nobody(void **state) {
    (void)state;
    enum { LINES = 20000 };
    int ends[2], kept = dup(STDERR_FILENO);
    char line[512] = "";
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    rs_log_start();
    for (int i = 0; i < LINES; i++)
        rs_log(RS_LOG_INFO, "test", "n=%d some words to make it as long as lines are", i);
    uint64_t dropped = rs_log_dropped();
    assert_true(dropped > 0 && dropped < LINES);
    FILE *from = fdopen(ends[0], "r");
    uint64_t whole = 0, told = 0;
    int before = -1, number = -1;
    while (number != LINES) {
        unsigned long long some;
        assert_non_null(fgets(line, sizeof line, from));
        const char *at = strchr(line, ' ');
        assert_non_null(at);
        if (sscanf(at, " warning log dropped=%llu lines", &some) == 1) {
            told += some;
            continue;
        }
        assert_int_equal(sscanf(at, " info test n=%d", &number), 1);
        assert_true(number > before);
        before = number;
        if (++whole == LINES - dropped)
            rs_log(RS_LOG_INFO, "test", "n=%d", LINES); /* there is room again */
    }
    assert_int_equal(told, dropped);
    for (int i = 0; i < LINES; i++)
        rs_log(RS_LOG_INFO, "test", "n=%d some words to make it as long as lines are", i);
    rs_log_stop(1); /* nor does the end of the program wait for a reader */
    dup2(kept, STDERR_FILENO);
    fclose(from);
    close(ends[1]);
    close(kept);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(log__pairs_are_members),
                                       cmocka_unit_test(log__a_reader_that_stands_still_holds_up_nobody)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
