/* The names by which programs know objects, told from the sender's agent to the receivers' (docs/protocol.md, NAME):
 * once to each receiver of a transfer, when it has answered the OPEN, or when the program gives the name later. */
#ifndef RS_DAEMON_NAMES_H
#define RS_DAEMON_NAMES_H

#include "daemon/agent.h"

typedef struct rs_names rs_names;

/* NULL: no memory. */
rs_names *rs_names_new(void);
void rs_names_free(rs_names *names);

/* This control message goes out: of an OPEN it is remembered which object it opens. */
void rs_names_goes(rs_names *names, const uint8_t *header, size_t header_length);
/* What rs_api_handlers has as `on_name`. */
void rs_names_api(void *agent, const rs_object_id *object, const char *name);
/* What rs_control_callbacks has as `message`: takes NAME, and hands on the rest to rs_receiving_message. */
bool rs_names_message(void *agent, rs_peer peer, const uint8_t *header, size_t header_length, const uint8_t *payload,
                      uint32_t payload_length);

#endif
