/* rostrumd: the agent of rostrum on a server. */
#include <stdio.h>

#include "daemon/agent.h"

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
    rs_agent *agent = rs_agent_new(&options);
    if (!agent)
        return 1;
    bool ok = rs_agent_run(agent);
    rs_agent_free(agent);
    rs_log(RS_LOG_INFO, "agent", "ended");
    return ok ? 0 : 1;
}
