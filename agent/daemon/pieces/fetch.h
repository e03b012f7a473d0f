/* Objects fetched from servers that have them: piece by piece from several at once, each checked before it counts.
 * What is on disk already is not fetched again; a partial object on disk is gone on with by itself. */
#ifndef RS_PIECES_FETCH_H
#define RS_PIECES_FETCH_H

#include "daemon/agent.h"

#define RS_FETCH_HOLDERS_MOST 32u
#define RS_FETCHES_MOST 256u

/* NULL: out of memory. */
rs_fetches *rs_fetches_new(rs_agent *agent);
void rs_fetches_free(rs_fetches *fetches);
rs_time rs_fetches_deadline(const rs_fetches *fetches);
void rs_fetches_timeout(rs_fetches *fetches);

/* The manager answers who has objects. */
void rs_fetches_link(rs_manager_callbacks *callbacks);
/* An application wants it. `holders`: "NAME", "NAME@ADDRESS" or "NAME@ADDRESS:PORT" each; none: the manager is asked.
 * False and `error`: it is not begun. That it came, or did not, the application's interface learns. */
bool rs_fetch_api(void *agent, const rs_object_id *id, const char *const *holders, uint32_t count, rs_error *error);
/* "NAME", "NAME@ADDRESS" or "NAME@ADDRESS:PORT". */
bool rs_fetch_parse_holder(const rs_agent *agent, const char *text, char name[64], uint32_t *address, uint16_t *port,
                           rs_error *error);
typedef enum {
    RS_GOES_FROM_START, /* what is here is of no use, or that failed a while ago */
    RS_GOES_WHEN_KNOWN, /* it may be the same: its digest, which follows, will tell */
    RS_GOES_NOT,        /* a program here has left it */
    RS_GOES_ON          /* what is missing is being fetched, from the sender and from others */
} rs_goes_on;
/* Somebody sends an object, `what`, and `here` is there by that id; NULL: nothing is. */
rs_goes_on rs_fetch_go_on(rs_fetches *fetches, const rs_object *here, const rs_manifest *what);
/* Somebody sends an object of that digest here: that goes first, and the fetch goes on if it does not become whole. */
void rs_fetch_give_way(rs_fetches *fetches, const rs_object_id *id, const rs_digest *digest);
/* A program wants it no more: what is here of it goes. False: it is not being fetched. */
bool rs_fetch_leave(rs_fetches *fetches, const rs_object_id *id);

/* For hear.c. */
struct fetch;
rs_time rs_fetch_now(const struct fetch *f);
void rs_fetch_all_here(struct fetch *f);  /* every piece is */
void rs_fetch_sweep(rs_fetches *fetches); /* what is dead is freed */

#endif
