/* Who may ask for what: the policy asked for each request, and each request told to whoever writes it down. */
#ifndef RS_API_ACCESS_H
#define RS_API_ACCESS_H

#include "daemon/api/waits.h"

/* True: the request may be served. False: it is answered, with words that say what the policy lacks. */
bool rs_api_may(rs_api_server *server, const rs_api_client *client, const rs_api_call *call,
                const rs_api_request *request);
/* May this program see that application's objects in lists? Without a policy: its own, and root and the agent's user
 * all. */
bool rs_api_may_see(const rs_api_server *server, const rs_api_client *client, const uint8_t app[16]);

/* What programs may do from now on; NULL: everything. The caller's, and valid until the next one. With another one
 * before, what waits to read and may not any more ends. */
void rs_api_policy_set(rs_api_server *server, const rs_policy *policy);
/* Whether a program may join as that request JOIN says, which came otherwise than as a call. It is told to whoever is
 * told of what programs ask for. False and `text`. */
bool rs_api_may_join(rs_api_server *server, const rs_policy_who *who, const char *process,
                     const rs_api_request *request, char text[ROSTRUM_TEXT_MAX + 1]);
bool rs_api_may_publish(const rs_api_server *server, const rs_policy_who *who, const char *group);
bool rs_api_may_subscribe(const rs_api_server *server, const rs_policy_who *who, const char *group);

#endif
