/* Objects that come in: room in the store, payloads to their places, digest, commit. */
#ifndef RS_DAEMON_RECEIVING_H
#define RS_DAEMON_RECEIVING_H

#include "daemon/agent.h"

void rs_receiving_event(rs_agent *agent, const rs_event *event);
bool rs_receiving_predict(void *agent, rs_group group, uint32_t ahead, uint8_t **place, uint32_t *length);
uint8_t *rs_receiving_deliver(void *agent, rs_group group, const uint8_t *header, size_t header_length,
                              uint32_t payload_length);
void rs_receiving_delivered(void *agent);
/* A message of the control channel; false: malformed. */
bool rs_receiving_message(void *agent, rs_peer peer, const uint8_t *header, size_t header_length,
                          const uint8_t *payload, uint32_t payload_length);
/* A packet from a peer by UDP: an acknowledgement or a repair (RDCM). */
bool rs_receiving_datagram(void *agent, rs_peer peer, const uint8_t *header, size_t header_length,
                           const uint8_t *payload, uint32_t payload_length);
/* The manager's answer whose object comes. */
void rs_receiving_origin(void *agent, const rs_manager_origin *answer);
/* An application deletes the object: what is left of its transfer, repairs for others, ends. */
void rs_receiving_let_go(void *agent, const rs_object_id *id);
/* It is being received here just now. */
bool rs_receiving_goes_on(const rs_agent *agent, const rs_object_id *id);
/* Of an object that comes in: from whom, RS_NO_PEER: it does not; its digest; by which transfer, 0: it does not. */
rs_peer rs_receiving_from(const rs_agent *agent, const rs_object *object);
rs_digest rs_receiving_digest(const rs_agent *agent, const rs_object *object);
rs_xfer rs_receiving_by(const rs_agent *agent, const rs_object *object);
/* It is whole and right, or is given up. */
void rs_receiving_verdict(rs_agent *agent, rs_receive_state *r, bool ok, const char *cause);
/* A bounded piece of what is not urgent (room in the store, digests); returns when the next piece is due. */
rs_time rs_receiving_work(rs_agent *agent);
rs_time rs_receiving_deadline(const rs_agent *agent);
void rs_receiving_timeout(rs_agent *agent);
void rs_receiving_cancel(rs_agent *agent, rs_transfer_entry *transfer, const char *cause);
void rs_receiving_free_all(rs_agent *agent);

#endif
