#include "core/base/types.h"

const char *rs_strerror(rs_status status) {
    switch (status) {
    case RS_OK:
        return "ok";
    case RS_ERR_MEMORY:
        return "out of memory";
    case RS_ERR_INVALID:
        return "an argument is out of its range";
    case RS_ERR_EXISTS:
        return "that object is already being sent from here";
    case RS_ERR_UNKNOWN:
        return "no such transfer, peer or path";
    case RS_ERR_LIMIT:
        return "a cap of this agent (transfers, receivers, object size) is reached";
    case RS_ERR_STATE:
        return "the call does not fit the transfer's state";
    case RS_ERR_PROTOCOL:
        return "this agent has no engine for that protocol";
    }
    return "unknown error";
}
