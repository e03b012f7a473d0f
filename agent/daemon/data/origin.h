/* Whose object it is that comes. A relay tells its receivers a digest of its own making, and could tell them that of
 * another object: with `--security required`, where there are several sites, the manager is asked whether that server
 * passes on somebody else's, and which digest that one's has. Several may have it pass on objects by the same id: it is
 * asked once more with the digest of what comes before anything is refused. */
#ifndef RS_DAEMON_ORIGIN_H
#define RS_DAEMON_ORIGIN_H

#include "daemon/agent.h"
#include "daemon/store/digest.h"

#define RS_ORIGIN_CAUSE 220

/* Of one incoming object. */
typedef struct {
    bool wanted;                        /* The object is nobody's before the manager has answered. */
    bool told;                          /* It has: */
    bool own;                           /* the object is its sender's own, */
    char name[RS_MANAGER_NAME_MAX + 1]; /* or that server's, */
    char digest[RS_DIGEST_TEXT];        /* with this digest; "": the manager does not know it yet. */
    char asked[RS_DIGEST_TEXT];         /* With which digest of what comes it was asked, */
    char answered[RS_DIGEST_TEXT];      /* and what it answered to. */
    rs_time ask_at;                     /* Again. */
    rs_time waits_since;                /* The object is whole, and its verdict is not known; 0: not yet. */
} rs_origin;

typedef enum {
    RS_ORIGIN_UNKNOWN, /* it has to wait */
    RS_ORIGIN_SAME,
    RS_ORIGIN_OTHER /* the bytes are not the origin's */
} rs_origin_verdict;

/* When `sender` announces it: the manager is asked, if need be. `digest`: as far as it is told. */
void rs_origin_begin(rs_agent *agent, rs_origin *origin, const rs_object_id *id, rs_peer sender,
                     const rs_digest *digest);
/* At times, while it comes, and when its digest is told: questions and answers get lost with connections to
 * managers. */
void rs_origin_ask(rs_agent *agent, rs_origin *origin, const rs_object_id *id, rs_peer sender, const rs_digest *digest);
void rs_origin_told(rs_origin *origin, const rs_manager_origin *answer);
/* Of an object whose bytes have that digest. */
rs_origin_verdict rs_origin_judge(const rs_origin *origin, const rs_digest *digest);
/* The same, of an object that is whole: the manager is asked, if need be; `cause` is set when the bytes are others. */
rs_origin_verdict rs_origin_check(rs_agent *agent, rs_origin *origin, const rs_object_id *id, rs_peer sender,
                                  const rs_digest *digest, char cause[RS_ORIGIN_CAUSE]);
/* It has waited long enough for that; why nobody could say it. */
bool rs_origin_is_in_vain(const rs_agent *agent, const rs_origin *origin, char cause[RS_ORIGIN_CAUSE]);

#endif
