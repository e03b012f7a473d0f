/* rostrumd: the agent of rostrum on a server. */
#include <stdio.h>

#include "daemon/agent.h"

#define LAST_LINES_MS 500 /* for the last lines of the log, if nobody reads it */

int main(int argc, char **argv) {
    rs_options options;
    switch (rs_options_parse(argc, argv, &options, stdout, stderr)) {
    case RS_OPTIONS_TOLD:
        return 0;
    case RS_OPTIONS_WRONG:
        return 2;
    case RS_OPTIONS_RUN:
        break;
    }
    rs_log_start();
    rs_agent *agent = rs_agent_new(&options);
    bool ok = agent && rs_agent_run(agent);
    rs_agent_free(agent);
    if (agent)
        rs_log(RS_LOG_INFO, "agent", "ended");
    rs_log_stop(LAST_LINES_MS);
    return ok ? 0 : 1;
}
