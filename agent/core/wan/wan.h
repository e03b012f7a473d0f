/* Objects over wide areas (docs/wan.md): Sec. V of Bakharev and Siemens, "Evaluation of Reliable Multicast
 * Implementations with Proposed Adaptation for Delivery of Big Data in Wide Area Networks". Packets are grouped to
 * sections; the next section flows while earlier ones are repaired. */
#ifndef RS_CORE_WAN_WAN_H
#define RS_CORE_WAN_WAN_H

#include "core/transfer/engine.h"

extern const rs_engine rs_engine_wan;

#endif
