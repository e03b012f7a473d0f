/* An agent without a manager, on any LAN (--standalone): finds other agents, and grants the paths of its own sends
 * itself: by multicast where a test shows that it gets through, else handed on from server to server. docs/lan.md.
 *
 * It stands in for the connection to the manager: the same requests, the same answers. */
#ifndef RS_DAEMON_LAN_H
#define RS_DAEMON_LAN_H

#include "daemon/data/data.h"
#include "daemon/lan/peers.h"
#include "daemon/manager/client.h"

#define RS_LAN_PORT 7072u
#define RS_LAN_PATHS_MAX 256u    /* asked for or granted; further ones wait for their turn */
#define RS_LAN_ANSWERS_MAX 2000u /* to others, a second */

typedef struct rs_lan rs_lan;

typedef struct {
    rs_loop *loop;
    rs_data *data;
    const char *server, *interface;
    uint32_t address;
    uint16_t control_port, data_port;
    uint64_t boot, seed;
    uint32_t mtu;
    bool receives; /* it is one that anybody may send to */
    /* Asked at once, besides all that multicast reaches; IPv4, host order. */
    const uint32_t *asked;
    uint32_t asked_count;
    const rs_manager_callbacks *callbacks; /* on_response, on_failed, and those of groups; copied */
    /* Members of a group that its multicast does not reach. */
    void (*on_copies)(void *context, const char *group, const uint32_t *addresses, uint32_t count);
} rs_lan_options;

/* NULL with the reason in the log. */
rs_lan *rs_lan_new(const rs_lan_options *options);
void rs_lan_free(rs_lan *lan);
rs_time rs_lan_deadline(const rs_lan *lan);
void rs_lan_timeout(rs_lan *lan);

/* As the functions of manager/client.h with these names. Receivers are named by server, host or address. */
rs_status rs_lan_request(rs_lan *lan, const rs_manager_request_params *request, char *text, size_t text_size);
void rs_lan_release(rs_lan *lan, const char *response_id);
void rs_lan_cancel(rs_lan *lan, const char *request_id);
void rs_lan_no_light(rs_lan *lan, const char *response_id, const char *const *receivers, uint32_t receiver_count);
/* The path is in use by that number of the data channel: what is sent to it may have to go elsewhere. */
void rs_lan_used(rs_lan *lan, const char *response_id, rs_group group);
/* What a receiver of a path is called by its own agent. */
const char *rs_lan_own_name(const rs_lan *lan, const char *response_id, const char *receiver);
/* As rs_manager_group, with all that a new group has; `asked`: a group that is otherwise is refused. */
void rs_lan_group(rs_lan *lan, rs_manager_group_call call, const char *group, const rs_manager_group_options *facts,
                  bool asked);
void rs_lan_describe(const rs_lan *lan, char *text, size_t text_size);

/* The index-th agent known; false: there are no more. */
bool rs_lan_peer(const rs_lan *lan, uint32_t index, rs_lan_peer_info *out);
/* By the name of the agent, of its host, or its address, among those heard of lately. */
bool rs_lan_find(const rs_lan *lan, const char *name, rs_lan_peer_info *out);
uint64_t rs_lan_malformed(const rs_lan *lan);

#endif
