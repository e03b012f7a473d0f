/* SIGBUS while a copy runs ends the copy. A fault is raised in the thread that causes it. */
#include "io/guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

static _Thread_local sigjmp_buf resume;
static _Thread_local volatile sig_atomic_t copying;
static struct sigaction former;
static unsigned users;

static void on_fault(int number, siginfo_t *info, void *context) {
    if (copying) {
        copying = 0;
        siglongjmp(resume, 1);
    }
    if (former.sa_flags & SA_SIGINFO) {
        former.sa_sigaction(number, info, context);
    } else if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) {
        former.sa_handler(number);
    } else { /* comes again at once, and ends the process as it would have */
        signal(number, SIG_DFL);
    }
}

bool rs_guard_start(void) {
    /* SA_NODEFER: leaving the handler by a jump must not leave the signal blocked. */
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    if (users == 0 && sigaction(SIGBUS, &action, &former) != 0)
        return false;
    users++;
    return true;
}

void rs_guard_stop(void) {
    if (users > 0 && --users == 0)
        (void)sigaction(SIGBUS, &former, NULL);
}

bool rs_guard_run(void (*work)(void *context), void *context) {
    if (sigsetjmp(resume, 0) != 0)
        return false;
    copying = 1;
    atomic_signal_fence(memory_order_seq_cst);
    work(context);
    atomic_signal_fence(memory_order_seq_cst);
    copying = 0;
    return true;
}

typedef struct {
    void *to;
    const void *from;
    size_t length;
} copy;

static void do_copy(void *context) {
    const copy *c = context;
    memcpy(c->to, c->from, c->length);
}

bool rs_guard_copy(void *to, const void *from, size_t length) {
    copy c = {to, from, length};
    return rs_guard_run(do_copy, &c);
}
