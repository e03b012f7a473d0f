/* Connecting to an agent's socket. */
#include "api/socket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define WAITING_MOST 1024

static volatile sig_atomic_t signals;
static int listener;

/* The third makes room. */
static void on_alarm(int number) {
    (void)number;
    if (++signals == 3)
        close(accept(listener, NULL, NULL));
}

/* More connections wait than may, and the program has a timer: the call failed with "Interrupted system call". */
static void connect__waits_on_after_signals(void **state) {
    (void)state;
    char folder[] = "/tmp/rostrum-socket-XXXXXX", path[64];
    rs_error error;
    int waiting[WAITING_MOST], count = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
    listener = rs_unix_listen(path, SOCK_SEQPACKET, 0600, NULL, &error);
    assert_true(listener >= 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    for (;;) {
        assert_true(count < WAITING_MOST);
        int fd = waiting[count++] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
        if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0)
            break;
    }
    assert_int_equal(errno, EAGAIN);
    const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    const struct itimerval often = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    int fd = rs_unix_connect(path, true, &error);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    if (fd < 0)
        print_message("after %d signals: %s\n", (int)signals, error.text);
    assert_true(fd >= 0 && signals >= 3);
    close(fd);
    while (count)
        close(waiting[--count]);
    close(listener);
    unlink(path);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(connect__waits_on_after_signals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
