/* Messages of a LAN (agent/daemon/lan/wire.h): what is taken is in its ranges, and says the same when it is said
 * again. */
#include <stdlib.h>
#include <string.h>

#include "daemon/lan/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool true_then) {
    if (!true_then)
        abort();
}

static void read_group(const uint8_t *data, size_t size) {
    rs_lan_group_message one, two;
    uint8_t first[RS_LAN_GROUP_MESSAGE], second[RS_LAN_GROUP_MESSAGE];
    if (!rs_lan_group_decode(data, size, &one))
        return;
    must(one.id == rs_lan_group_id(one.group) && one.founded >= 0);
    rs_lan_group_encode(&one, first);
    must(rs_lan_group_decode(first, sizeof first, &two));
    rs_lan_group_encode(&two, second);
    must(memcmp(first, second, sizeof first) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rs_lan_message one, two;
    uint8_t first[RS_LAN_MESSAGE], second[RS_LAN_MESSAGE];
    read_group(data, size);
    if (!rs_lan_decode(data, size, &one))
        return 0;
    must(size >= RS_LAN_MESSAGE && rs_lan_name_ok(one.name) && rs_lan_name_ok(one.host));
    rs_lan_encode(&one, first);
    must(rs_lan_decode(first, sizeof first, &two));
    rs_lan_encode(&two, second);
    must(memcmp(first, second, sizeof first) == 0);
    return 0;
}
