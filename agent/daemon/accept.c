#include "daemon/accept.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

bool rs_accept_failed(rs_accept_pause *pause, int number, rs_time now, const char *door, char text[RS_ACCEPT_TEXT]) {
    text[0] = '\0';
    if (number != EMFILE && number != ENFILE && number != ENOBUFS && number != ENOMEM)
        return false;
    pause->again = now + RS_ACCEPT_PAUSE;
    if (pause->told)
        return true;
    pause->told = true;
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (number == EMFILE)
        snprintf(text, RS_ACCEPT_TEXT,
                 "nobody can be accepted at %s: %s (limit %llu). Raise LimitNOFILE= of the agent's unit, or end what "
                 "holds its connections; it tries again every second",
                 door, strerror(number), (unsigned long long)limit.rlim_cur);
    else
        snprintf(text, RS_ACCEPT_TEXT,
                 "nobody can be accepted at %s: %s. Free %s of this machine; it tries again every second", door,
                 strerror(number), number == ENFILE ? "files (sysctl fs.file-max)" : "memory");
    return true;
}

void rs_accept_worked(rs_accept_pause *pause) {
    pause->told = false;
}

bool rs_accept_resumes(rs_accept_pause *pause, rs_time now) {
    if (pause->again == 0 || now < pause->again)
        return false;
    pause->again = 0;
    return true;
}
