/* The agent: what the parts of the daemon share. The core decides, everything else carries out
 * (docs/architecture.md).
 *
 * Parts call the core freely; what the core answers is fetched by the pump at the end of each turn of the loop, never
 * inside another call. */
#ifndef RS_DAEMON_AGENT_H
#define RS_DAEMON_AGENT_H

#include "daemon/api/server.h"
#include "daemon/audit.h"
#include "daemon/control/control.h"
#include "daemon/control/peers.h"
#include "daemon/data/data.h"
#include "daemon/data/overlay.h"
#include "daemon/data/probe.h"
#include "daemon/data/repairs.h"
#include "daemon/data/transfers.h"
#include "daemon/groups/groups.h"
#include "daemon/lan/lan.h"
#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/manager/client.h"
#include "daemon/metrics/server.h"
#include "daemon/options.h"
#include "daemon/pieces/serve.h"
#include "daemon/seal/keyring.h"
#include "daemon/store/evict.h"
#include "daemon/store/store.h"

typedef struct rs_stream_reader rs_stream_reader;
typedef struct rs_stream_ended rs_stream_ended;
typedef struct rs_fetches rs_fetches;
typedef struct rs_holdings rs_holdings;
typedef struct rs_journal rs_journal;
struct rs_names;

typedef struct rs_agent {
    rs_options options;
    uint64_t boot;
    int64_t started_ns;
    uint32_t fragment_size;
    uint32_t rack; /* as the manager numbers them; 0 = it did not tell */
    rs_loop *loop;
    rs_peers peers;
    rs_node *node;
    rs_store *store;
    rs_evict *evict; /* NULL: nothing goes to make room */
    rs_time evict_at;
    rs_control *control;
    rs_data *data;
    rs_repairs *repairs; /* received */
    rs_api_server *api;
    rs_policy *policy;       /* NULL: programs may do everything */
    rs_audit *audit;         /* NULL: it is written nowhere */
    rs_manager_client *link; /* NULL without a manager */
    rs_lan *lan;             /* which paths are asked of instead (--standalone); NULL = none */
    rs_overlay *overlay;
    rs_groups *groups;
    rs_probes *probes;
    rs_piece_server *piece_server; /* NULL: it could not listen */
    rs_fetches *fetches;
    rs_holdings *holdings;
    rs_journal *journal;
    struct rs_names *names;
    struct rs_sites *sites;
    bool sites_known;           /* this connection's manager, or the last one's, has said that there are several */
    bool manager_met;           /* one was connected to, and would have said it */
    rs_metrics_server *metrics; /* NULL without --metrics */
    rs_totals totals;
    rs_tls_identity *trust; /* what other agents are shown; NULL: plain */
    rs_keyring *keys;       /* NULL: packets go as they are (secure.h) */
    struct rs_secure *secure;
    rs_watch api_watch, link_watch, signal_watch;
    rs_transfers transfers;
    struct rs_late *late_streams;     /* that programs here have joined */
    rs_stream_ended *ended_streams;   /* that others have joined */
    rs_stream_reader *stream_readers; /* programs that wait for a stream to begin */
    rs_loop_pauses pauses;            /* of this process, as far as they were dealt with */
    rs_time held_until; /* no data packet goes out before the manager has answered, or then; RS_NEVER: they may */
    rs_time prepare_at; /* next piece of the store's reserve, when nothing is being transferred */
    uint64_t packets_bad;
    uint64_t packets_other_version;      /* of the data channel */
    uint32_t stream_sinks;               /* streams that come in */
    uint64_t stream_fragments_refused;   /* their bytes were not those that the sender sealed */
    uint64_t fetched_bytes, fetch_wrong; /* of pieces: that came right; that did not */
    uint64_t served_together;            /* objects sent because several servers fetched them */
    uint64_t digest_chunks_wrong;        /* of objects received here */
    uint64_t digest_chunks_fetched;      /* of these, once more from the sender */
    uint64_t digest_chunks_retaken;      /* of objects sent from here, because a receiver's copy stayed wrong */
    rs_log_limit malformed, versions, drops, offers, refusals, endings, programs, refused_fragments,
        unsealed; /* lines that others cause, by kind */
    bool stopping;
} rs_agent;

/* agent.c. NULL: it could not start, the log says why. */
rs_agent *rs_agent_new(const rs_options *options);
/* Runs until SIGTERM or SIGINT. False: the loop failed. */
bool rs_agent_run(rs_agent *agent);
void rs_agent_free(rs_agent *agent);
/* Everything the core has to say is carried out; the end of each turn of the loop. */
void rs_agent_pump(rs_agent *agent);

#define RS_CHECK_FROM RS_SECOND /* a pause so long may have cost a path, or groups: the manager is asked */

static inline rs_time rs_agent_now(const rs_agent *agent) {
    return rs_loop_now(agent->loop);
}

#endif
