/* When descriptors or memory run out, nobody can be accepted, and a listener that is watched all the same makes
 * the loop spin. So it is left alone for a while, and what to do is said once, until somebody is accepted again. */
#ifndef RS_DAEMON_ACCEPT_H
#define RS_DAEMON_ACCEPT_H

#include "core/base/types.h"

#define RS_ACCEPT_PAUSE INT64_C(1000000000)
#define RS_ACCEPT_TEXT 256

typedef struct {
    rs_time again; /* when to listen again; 0 = listening */
    bool told;
} rs_accept_pause;

/* accept() failed with `number`. True: stop listening until `again`. `text` are then for the log, or empty: they have
 * been said. False: another failure, of the one who wanted in. */
bool rs_accept_failed(rs_accept_pause *pause, int number, rs_time now, const char *door, char text[RS_ACCEPT_TEXT]);
/* Somebody was accepted. */
void rs_accept_worked(rs_accept_pause *pause);
/* True, once: it is time to listen again. */
bool rs_accept_resumes(rs_accept_pause *pause, rs_time now);

#endif
