/* The journal of sends in virtual time: what it writes down, what it goes on with, when it gives up, and that garbage
 * in its files is no send. */
#include "daemon/data/journal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <rostrum/types.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/random.h"
#include "daemon/loop.h"
#include "daemon/store/digest.h"

#define HOUR (3600 * RS_SECOND)
#define SIZE 5000u
#define BEGAN ((int64_t)1700000000 * 1000000000)

static char memory[64], disk[64], source[96];
static const rs_object_id id = {{0x11, 0x22, 0xff}, 7};
static const char *const receivers[] = {"h2", "h3", "h4"};

/* The daemon, played. */
static struct {
    rs_store *store;
    int64_t clock_ns;
    uint32_t adds, drops, starts, receivers; /* of the latest start */
    bool refuses;
    rs_digest digest; /* of what is added */
} played;

static int64_t played_clock(void) {
    return played.clock_ns;
}

static rs_object *played_add(void *context, const rs_object_id *what, int fd, rs_error *error) {
    (void)context;
    played.adds++;
    rs_object *object = rs_store_add(played.store, what, fd, 0, error);
    assert_non_null(object);
    assert_true(rs_store_added(played.store, object, &played.digest, error));
    return object;
}

static void played_drop(void *context, const rs_object_id *what) {
    rs_error error;
    (void)context;
    played.drops++;
    assert_true(rs_store_delete(played.store, what, &error));
}

static bool played_start(void *context, const rs_send_record *record, rs_object *object, char *text) {
    (void)context;
    assert_int_equal(object->size, record->size);
    assert_string_equal(record->receivers[record->receiver_count - 1], "h4");
    assert_string_equal(record->options, "congestion=friendly");
    assert_string_equal(record->name, "model.bin");
    snprintf(text, ROSTRUM_TEXT_MAX + 1, "the manager is not there");
    played.starts += !played.refuses;
    played.receivers = record->receiver_count;
    return !played.refuses;
}

static rs_journal *open_journal(rs_time now) {
    const rs_journal_config config = {.directory = disk,
                                      .store = played.store,
                                      .clock = played_clock,
                                      .add = played_add,
                                      .drop = played_drop,
                                      .start = played_start};
    rs_journal *journal = rs_journal_new(&config, now);
    assert_non_null(journal);
    return journal;
}

static rs_send_record record_of(rs_sent_from from) {
    struct stat info;
    assert_int_equal(stat(source, &info), 0);
    rs_send_record record = {.id = id,
                             .size = SIZE,
                             .root = played.digest,
                             .from = from,
                             .changed_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec,
                             .began_ns = BEGAN,
                             .wait_ms = 3000,
                             .protocol = ROSTRUM_PROTOCOL_WAN,
                             .stragglers = ROSTRUM_STRAGGLERS_EVICT,
                             .path = from == RS_SENT_FROM_FILE ? source : "",
                             .name = "model.bin",
                             .options = "congestion=friendly",
                             .receiver_count = 3,
                             .receivers = receivers};
    return record;
}

static void write_source(const char *text) {
    int fd = open(source, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && ftruncate(fd, SIZE) == 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static const char *record_path(void) {
    static char path[200];
    (void)snprintf(path, sizeof path, "%s/1122ff00-0000-0000-0000-000000000000/7.send", disk);
    return path;
}

static bool is_written(void) {
    return access(record_path(), F_OK) == 0;
}

static int set_up(void **state) {
    rs_error error;
    (void)state;
    memset(&played, 0, sizeof played);
    strcpy(memory, "/dev/shm/rostrum-journal-XXXXXX");
    strcpy(disk, "/var/tmp/rostrum-journal-XXXXXX");
    if (!mkdtemp(memory) || !mkdtemp(disk))
        return -1;
    (void)snprintf(source, sizeof source, "%s/source", disk);
    write_source("bytes");
    const rs_store_config config = {.directory = memory};
    played.store = rs_store_open(&config, &error);
    played.clock_ns = BEGAN;
    played.digest = (rs_digest){.algorithm = RS_DIGEST_XXH3, .length = 16, .value = {1, 2, 3}};
    return played.store ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    rs_store_close(played.store);
    (void)unlink(source);
    (void)unlink(record_path());
    char app[200];
    (void)snprintf(app, sizeof app, "%s/1122ff00-0000-0000-0000-000000000000", disk);
    (void)rmdir(app);
    return rmdir(memory) == 0 && rmdir(disk) == 0 ? 0 : -1;
}

/* Time passes, the journal's and that on the wall. */
static rs_time pass(rs_journal *journal, rs_time now, rs_time by) {
    for (rs_time end = now + by; rs_journal_deadline(journal) <= end;) {
        rs_time next = rs_journal_deadline(journal);
        played.clock_ns += next > now ? next - now : 0;
        now = next > now ? next : now;
        rs_journal_timeout(journal, now);
    }
    return now;
}

static void what_was_sent__goes_on_once(void **state) {
    (void)state;
    rs_journal *journal = open_journal(0);
    assert_int_equal(rs_journal_deadline(journal), RS_NEVER);
    const rs_send_record record = record_of(RS_SENT_FROM_FILE);
    rs_journal_write(journal, &record);
    assert_true(is_written());
    rs_journal_free(journal);
    journal = open_journal(0);
    (void)pass(journal, 0, HOUR);
    assert_int_equal(played.adds, 1);
    assert_int_equal(played.starts, 1);
    assert_int_equal(played.receivers, 3);
    assert_true(is_written());
    assert_false(rs_journal_forget(journal, &id)); /* it runs */
    rs_journal_over(journal, HOUR, &id, NULL);
    assert_false(is_written());
    assert_int_equal(rs_journal_deadline(journal), RS_NEVER);
    rs_journal_free(journal);
}

/* Its sender is gone for hours, its receivers for hours after that: the rest of them is tried until all are reached. */
static void receivers_that_are_not_reached__are_tried_for_hours(void **state) {
    (void)state;
    rs_journal *journal = open_journal(0);
    rs_send_record record = record_of(RS_SENT_FROM_FILE);
    rs_journal_write(journal, &record);
    rs_journal_free(journal);
    played.clock_ns += 5 * HOUR;
    journal = open_journal(0);
    rs_time now = 0;
    record.receivers = receivers + 1;
    record.receiver_count = 2;
    for (uint32_t tries = 1; played.clock_ns < BEGAN + 20 * HOUR; tries++) {
        now = pass(journal, now, HOUR);
        assert_int_equal(played.starts, tries);
        assert_int_equal(played.receivers, tries == 1 ? 3 : 2);
        rs_journal_over(journal, now, &id, &record);
        assert_true(is_written());
    }
    assert_true(played.starts > 80 && played.starts < 200);
    assert_int_equal(played.adds, 1);
    assert_true(rs_journal_forget(journal, &id)); /* cancelled */
    assert_false(is_written());
    rs_journal_free(journal);
}

static void after_a_day__it_says_that_it_could_not(void **state) {
    (void)state;
    rs_journal *journal = open_journal(0);
    const rs_send_record record = record_of(RS_SENT_FROM_FILE);
    rs_journal_write(journal, &record);
    rs_journal_free(journal);
    played.refuses = true;
    journal = open_journal(0);
    rs_time now = pass(journal, 0, 23 * HOUR);
    assert_null(rs_journal_why(journal, &id));
    (void)pass(journal, now, 2 * HOUR);
    assert_string_equal(rs_journal_why(journal, &id), "the agent was restarted, and for a day it could not go on");
    assert_int_equal(played.drops, 1);
    assert_false(is_written());
    assert_int_equal(rs_journal_deadline(journal), RS_NEVER);
    rs_journal_free(journal);
}

static void check_failure(rs_sent_from from, bool other_digest, const char *why) {
    rs_journal *journal = open_journal(0);
    rs_send_record record = record_of(from);
    if (other_digest)
        record.root.value[0] ^= 1;
    if (from == RS_SENT_FROM_FILE && !other_digest)
        record.changed_ns++;
    rs_journal_write(journal, &record);
    rs_journal_free(journal);
    journal = open_journal(0);
    (void)pass(journal, 0, HOUR);
    assert_int_equal(played.starts, 0);
    assert_non_null(rs_journal_why(journal, &id));
    assert_non_null(strstr(rs_journal_why(journal, &id), why));
    assert_false(is_written());
    assert_null(rs_store_find(played.store, &id));
    assert_false(rs_journal_forget(journal, &id)); /* there was nothing to stop */
    assert_null(rs_journal_why(journal, &id));
    rs_journal_free(journal);
}

static void what_is_not_as_it_was__does_not_go_on(void **state) {
    (void)state;
    check_failure(RS_SENT_FROM_FILE, false, "its file was changed since");
    check_failure(RS_SENT_FROM_FILE, true, "its bytes were changed since");
    check_failure(RS_SENT_FROM_MEMORY, false, "in the memory of the agent alone");
    check_failure(RS_SENT_FROM_STORE, false, "its copy on disk there is gone");
    assert_int_equal(played.drops, 1);
}

static void other_names__are_no_sends(void **state) {
    (void)state;
    rs_journal *journal = open_journal(0);
    const rs_send_record record = record_of(RS_SENT_FROM_FILE);
    rs_journal_write(journal, &record);
    rs_journal_free(journal);
    char other[200];
    (void)snprintf(other, sizeof other, "%s/1122ff00-0000-0000-0000-000000000000/8.send", disk);
    assert_int_equal(rename(record_path(), other), 0);
    journal = open_journal(0);
    assert_int_equal(rs_journal_deadline(journal), RS_NEVER);
    assert_int_equal(access(other, F_OK), -1);
    rs_journal_free(journal);
}

static void without_a_folder__nothing_is_written(void **state) {
    (void)state;
    const rs_journal_config config = {.store = played.store, .clock = played_clock};
    rs_journal *journal = rs_journal_new(&config, 0);
    const rs_send_record record = record_of(RS_SENT_FROM_FILE);
    assert_non_null(journal);
    rs_journal_write(journal, &record);
    rs_journal_over(journal, 0, &id, NULL);
    assert_false(is_written());
    rs_journal_free(journal);
}

/* A record that was torn or changed anywhere is none; what is taken is what was put. */
static void garbage__is_no_record(void **state) {
    (void)state;
    const char *why;
    uint8_t *bytes;
    const char *text = getenv("ROSTRUM_TEST_SEED");
    uint64_t random = text ? (uint64_t)strtoull(text, NULL, 10) : (uint64_t)getpid();
    print_message("seed %" PRIu64 "\n", random);
    const rs_send_record record = record_of(RS_SENT_FROM_FILE);
    size_t length = rs_send_record_put(&record, &bytes);
    rs_send_record *same = rs_send_record_take(bytes, length, &why);
    assert_non_null(same);
    assert_memory_equal(&same->id, &record.id, sizeof record.id);
    assert_true(rs_digest_equal(&same->root, &record.root));
    assert_int_equal(same->changed_ns, record.changed_ns);
    assert_string_equal(same->path, source);
    assert_int_equal(same->receiver_count, 3);
    assert_string_equal(same->receivers[1], "h3");
    free(same);
    for (size_t cut = 0; cut < length; cut++)
        assert_null(rs_send_record_take(bytes, cut, &why));
    for (unsigned i = 0; i < 2000; i++) {
        uint64_t at = rs_random_next(&random) % length;
        uint8_t by = (uint8_t)(1 + rs_random_next(&random) % 255);
        bytes[at] ^= by;
        assert_null(rs_send_record_take(bytes, length, &why));
        bytes[at] ^= by;
    }
    free(bytes);
    rs_send_record bad = record;
    bad.receiver_count = 0;
    assert_int_equal(rs_send_record_put(&bad, &bytes), 0);
    bad = record;
    bad.path = "";
    assert_int_equal(rs_send_record_put(&bad, &bytes), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_sent__goes_on_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(receivers_that_are_not_reached__are_tried_for_hours, set_up, tear_down),
        cmocka_unit_test_setup_teardown(after_a_day__it_says_that_it_could_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_as_it_was__does_not_go_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_names__are_no_sends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_a_folder__nothing_is_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(garbage__is_no_record, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
