/* All bytes of an object are here, and its digest is wrong: some were changed on the way. The sender's digests of
 * pieces, which its own digest is of, tell which; these are fetched again. */
#ifndef RS_DAEMON_WRONG_DIGEST_H
#define RS_DAEMON_WRONG_DIGEST_H

#include "daemon/data/receiving_state.h"

void rs_wrong_digest_mend(rs_agent *agent, rs_receive_state *r);
/* The sender's digests of pieces came. */
void rs_wrong_digest_leaves(rs_agent *agent, rs_receive_state *r, const rs_rx_result *result);

#endif
