/* The LAN's messages as bytes. */
#include "daemon/lan/wire.h"

#include <string.h>

#include "core/base/bytes.h"

#define MAGIC 0x4e4c5352u /* "RSLN" */
#define VERSION 1u

enum {
    AT_VERSION = 4,
    AT_TYPE = 5,
    AT_FLAGS = 6,
    AT_NONCE = 8,
    AT_COOKIE = 16,
    AT_BOOT = 24,
    AT_GROUP = 32,
    AT_NEXT = 36,
    AT_DATA_PORT = 40,
    AT_CONTROL_PORT = 42,
    AT_NEXT_PORT = 44,
    AT_NEXT_LAN_PORT = 46,
    AT_MTU = 48,
    AT_SMALL = 50,
    AT_FULL = 51,
    AT_NAME = 52,
    AT_HOST = AT_NAME + RS_LAN_NAME + 1,
    AT_END = AT_HOST + RS_LAN_NAME + 1
};
_Static_assert(AT_END <= RS_LAN_MESSAGE, "a message has room for its fields");

bool rs_lan_name_ok(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
    size_t length = strlen(name);
    return length <= RS_LAN_NAME && strspn(name, letters) == length;
}

static bool get_name(const uint8_t *at, char out[RS_LAN_NAME + 1]) {
    memcpy(out, at, RS_LAN_NAME + 1);
    return memchr(out, 0, RS_LAN_NAME + 1) && rs_lan_name_ok(out);
}

void rs_lan_encode(const rs_lan_message *m, uint8_t out[RS_LAN_MESSAGE]) {
    memset(out, 0, RS_LAN_MESSAGE);
    rs_le_put(out, MAGIC, 4);
    out[AT_VERSION] = VERSION;
    out[AT_TYPE] = (uint8_t)m->type;
    rs_le_put(out + AT_FLAGS, m->flags, 2);
    rs_le_put(out + AT_NONCE, m->nonce, 8);
    rs_le_put(out + AT_COOKIE, m->cookie, 8);
    rs_le_put(out + AT_BOOT, m->boot, 8);
    rs_le_put(out + AT_GROUP, m->group, 4);
    rs_le_put(out + AT_NEXT, m->next, 4);
    rs_le_put(out + AT_DATA_PORT, m->data_port, 2);
    rs_le_put(out + AT_CONTROL_PORT, m->control_port, 2);
    rs_le_put(out + AT_NEXT_PORT, m->next_port, 2);
    rs_le_put(out + AT_NEXT_LAN_PORT, m->next_lan_port, 2);
    rs_le_put(out + AT_MTU, m->mtu, 2);
    out[AT_SMALL] = m->small;
    out[AT_FULL] = m->full;
    memcpy(out + AT_NAME, m->name, strnlen(m->name, RS_LAN_NAME));
    memcpy(out + AT_HOST, m->host, strnlen(m->host, RS_LAN_NAME));
}

static bool is_multicast(uint32_t address) {
    return address >> 28 == 0xe;
}

/* What a message of its type must have. */
static bool makes_sense(const rs_lan_message *m) {
    switch (m->type) {
    case RS_LAN_QUERY:
        return true;
    case RS_LAN_HERE:
        return m->name[0] && m->control_port && m->mtu >= 576;
    case RS_LAN_LISTEN:
    case RS_LAN_HEARD:
    case RS_LAN_TEST:
    case RS_LAN_RELAYS:
    case RS_LAN_END:
        return is_multicast(m->group) && m->data_port;
    case RS_LAN_RELAY: /* to somebody, by all three, or to nobody */
        return is_multicast(m->group) && m->data_port && !is_multicast(m->next) && m->next != UINT32_MAX &&
               !m->next == !m->next_port && !m->next == !m->next_lan_port;
    case RS_LAN_HOP:
    case RS_LAN_HOP_OK:
        return is_multicast(m->group) && m->data_port && m->next_port;
    }
    return false;
}

bool rs_lan_decode(const uint8_t *bytes, size_t length, rs_lan_message *out) {
    if (length < RS_LAN_MESSAGE || rs_le_get(bytes, 4) != MAGIC || bytes[AT_VERSION] != VERSION)
        return false;
    *out = (rs_lan_message){.type = (rs_lan_type)bytes[AT_TYPE],
                            .flags = (uint16_t)rs_le_get(bytes + AT_FLAGS, 2),
                            .nonce = rs_le_get(bytes + AT_NONCE, 8),
                            .cookie = rs_le_get(bytes + AT_COOKIE, 8),
                            .boot = rs_le_get(bytes + AT_BOOT, 8),
                            .group = (uint32_t)rs_le_get(bytes + AT_GROUP, 4),
                            .next = (uint32_t)rs_le_get(bytes + AT_NEXT, 4),
                            .data_port = (uint16_t)rs_le_get(bytes + AT_DATA_PORT, 2),
                            .control_port = (uint16_t)rs_le_get(bytes + AT_CONTROL_PORT, 2),
                            .next_port = (uint16_t)rs_le_get(bytes + AT_NEXT_PORT, 2),
                            .next_lan_port = (uint16_t)rs_le_get(bytes + AT_NEXT_LAN_PORT, 2),
                            .mtu = (uint16_t)rs_le_get(bytes + AT_MTU, 2),
                            .small = bytes[AT_SMALL],
                            .full = bytes[AT_FULL]};
    return get_name(bytes + AT_NAME, out->name) && get_name(bytes + AT_HOST, out->host) && makes_sense(out);
}
