/* The LAN's messages as bytes. */
#include "daemon/lan/wire.h"

#include <string.h>

#include "core/base/bytes.h"
#include "core/base/xxh64.h"

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
    AT_END = AT_HOST + RS_LAN_NAME + 1,
    /* of message groups, besides */
    AT_ID = RS_LAN_MESSAGE,
    AT_FOUNDER = AT_ID + 4,
    AT_VIEW = AT_FOUNDER + 4,
    AT_FOUNDED = AT_VIEW + 8,
    AT_ORDER = AT_FOUNDED + 8,
    AT_PROTOCOL = AT_ORDER + 8,
    AT_OPTIONS = AT_PROTOCOL + 32,
    AT_GROUP_NAME = AT_OPTIONS + RS_GROUP_OPTIONS_TEXT,
    AT_GROUP_END = AT_GROUP_NAME + ROSTRUM_GROUP_NAME_MAX + 1
};
_Static_assert(AT_END <= RS_LAN_MESSAGE && AT_GROUP_END <= RS_LAN_GROUP_MESSAGE, "a message has room for its fields");

#define VERSIONS_MOST (UINT64_C(1) << 48)

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
    case RS_LAN_GROUP:
        return m->name[0] && m->control_port;
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

/* -------------------------------------------------------------------------------------------------- message groups */

uint32_t rs_lan_group_id(const char *group) {
    return (uint32_t)rs_gm_xxh64((const uint8_t *)group, strlen(group), 0);
}

void rs_lan_group_encode(const rs_lan_group_message *m, uint8_t out[RS_LAN_GROUP_MESSAGE]) {
    memset(out, 0, RS_LAN_GROUP_MESSAGE);
    rs_lan_encode(&m->head, out);
    rs_le_put(out + AT_ID, m->id, 4);
    rs_le_put(out + AT_FOUNDER, m->founder, 4);
    rs_le_put(out + AT_VIEW, m->version, 8);
    rs_le_put(out + AT_FOUNDED, (uint64_t)m->founded, 8);
    memcpy(out + AT_ORDER, m->order, strnlen(m->order, sizeof m->order - 1));
    memcpy(out + AT_PROTOCOL, m->protocol, strnlen(m->protocol, sizeof m->protocol - 1));
    memcpy(out + AT_OPTIONS, m->options, strnlen(m->options, sizeof m->options - 1));
    memcpy(out + AT_GROUP_NAME, m->group, strnlen(m->group, sizeof m->group - 1));
}

/* A text that ends in its field, of letters that may stand in a log. */
static bool get_text(const uint8_t *at, size_t size, const char *letters, char *out) {
    memcpy(out, at, size);
    return memchr(out, 0, size) && strspn(out, letters) == strlen(out);
}

bool rs_lan_group_decode(const uint8_t *bytes, size_t length, rs_lan_group_message *out) {
    static const char word[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    static const char options[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-=,";
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
    if (length < RS_LAN_GROUP_MESSAGE || !rs_lan_decode(bytes, length, &out->head) || out->head.type != RS_LAN_GROUP)
        return false;
    out->id = (uint32_t)rs_le_get(bytes + AT_ID, 4);
    out->founder = (uint32_t)rs_le_get(bytes + AT_FOUNDER, 4);
    out->version = rs_le_get(bytes + AT_VIEW, 8);
    out->founded = (int64_t)rs_le_get(bytes + AT_FOUNDED, 8);
    if (!get_text(bytes + AT_ORDER, sizeof out->order, word, out->order) ||
        !get_text(bytes + AT_PROTOCOL, sizeof out->protocol, word, out->protocol) ||
        !get_text(bytes + AT_OPTIONS, sizeof out->options, options, out->options) ||
        !get_text(bytes + AT_GROUP_NAME, sizeof out->group, name, out->group))
        return false;
    /* `founded` 0: it does not know yet what the group is */
    bool known = is_multicast(out->head.group) && out->head.data_port && out->protocol[0] && out->order[0];
    return out->group[0] && out->id == rs_lan_group_id(out->group) && out->version < VERSIONS_MOST &&
           out->founded >= 0 && (out->founded == 0 || known);
}
