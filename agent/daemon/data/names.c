#include "daemon/data/names.h"

#include <stdlib.h>
#include <string.h>

#include "api/wire.h"
#include "core/base/wire.h"
#include "daemon/control/control.h"
#include "daemon/data/nameless.h"
#include "daemon/data/receiving.h"
#include "daemon/pieces/holdings.h"
#include "daemon/secure.h"

#define TOLD 4096u /* pairs of transfer and receiver: forgotten, a name is told twice */
#define AT_TYPE 4

struct rs_names {
    rs_nameless *nameless; /* a small object is there before its name has come from the program */
    uint64_t told[TOLD];
};

rs_names *rs_names_new(void) {
    rs_names *names = calloc(1, sizeof *names);
    if (names && !(names->nameless = rs_nameless_new())) {
        free(names);
        return NULL;
    }
    return names;
}

void rs_names_free(rs_names *names) {
    if (names)
        rs_nameless_free(names->nameless);
    free(names);
}

void rs_names_goes(rs_names *names, const uint8_t *header, size_t header_length) {
    rs_message m;
    if (header_length > AT_TYPE && header[AT_TYPE] == RS_MSG_OPEN && rs_wire_decode(header, header_length, 0, &m))
        rs_nameless_opened(names->nameless, m.nonce, &m.open.object);
}

/* False: its connection is not there, or has no room. */
static bool tell(rs_agent *agent, rs_peer peer, uint64_t nonce, const rs_object *object) {
    uint64_t pair = nonce ^ (peer + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t *told = &agent->names->told[(pair >> 32) % TOLD];
    uint32_t knows = rs_control_knows(agent->control, peer);
    if (*told == pair || (knows != UINT32_MAX && !(knows & RS_HELLO_NAME)))
        return true;
    if (knows == UINT32_MAX)
        return false;
    rs_message name = {.type = RS_MSG_NAME, .nonce = nonce};
    uint8_t bytes[RS_HEADER_MAX];
    name.name.object = object->id;
    name.name.length = (uint16_t)strnlen(object->name, RS_NAME_MAX);
    memcpy(name.name.text, object->name, name.name.length);
    size_t size = rs_wire_encode(&name, 0, bytes, sizeof bytes);
    if (size && !rs_control_send(agent->control, peer, bytes, size, NULL))
        return false;
    *told = pair;
    return true;
}

static bool tell_late(void *context, rs_peer peer, uint64_t nonce) {
    rs_agent *agent = context;
    const rs_object *object = rs_store_find(agent->store, rs_nameless_object(agent->names->nameless, nonce));
    return !object || !object->name || tell(agent, peer, nonce, object);
}

/* This receiver has the object, or begins to have it. */
static void answered(rs_agent *agent, rs_peer peer, uint64_t nonce) {
    const rs_object_id *id = rs_nameless_object(agent->names->nameless, nonce);
    const rs_object *object = id ? rs_store_find(agent->store, id) : NULL;
    if (!object || (object->name && tell(agent, peer, nonce, object)))
        return;
    rs_nameless_note(agent->names->nameless, nonce, peer);
    if (object->name)
        rs_nameless_named(agent->names->nameless, id, tell_late, agent);
}

void rs_names_api(void *context, const rs_object_id *id, const char *text) {
    rs_agent *agent = context;
    const rs_object *object = rs_store_find(agent->store, id);
    if (object && object->name)
        rs_nameless_named(agent->names->nameless, id, tell_late, agent);
    rs_holdings_name_api(agent, id, text);
}

/* Who knows an object's application has a right to the object, and to say its name. A name that a program here has
 * given stays. */
static void named(const rs_agent *agent, const rs_message *m) {
    rs_object *object = rs_store_find(agent->store, &m->name.object);
    if (object && object->received && !object->name && rs_api_is_name(m->name.text, m->name.length))
        rs_store_rename(object, m->name.text);
}

bool rs_names_message(void *context, rs_peer peer, const uint8_t *header, size_t header_length, const uint8_t *payload,
                      uint32_t payload_length) {
    rs_agent *agent = context;
    rs_message m;
    if (rs_secure_message(agent, peer, header, header_length))
        return true;
    uint8_t type = header_length > AT_TYPE ? header[AT_TYPE] : 0;
    if (type == RS_MSG_CARRIED && agent->options.carry && rs_wire_decode(header, header_length, payload_length, &m)) {
        rs_control_used(agent->control, peer);
        rs_message within;
        if (m.carried.inner.type == RS_MSG_NAME && rs_wire_inner_get(&m.carried.inner, m.nonce, m.session, &within))
            named(agent, &within);
    }
    rs_nameless_again(agent->names->nameless, peer, tell_late, agent);
    bool answers = type == RS_MSG_OPEN_ACK || type == RS_MSG_INTL_SEQ || type == RS_MSG_DATA_RCVD;
    if ((answers || type == RS_MSG_NAME) && rs_wire_decode(header, header_length, payload_length, &m)) {
        if (type == RS_MSG_NAME)
            named(agent, &m);
        else if (type != RS_MSG_OPEN_ACK || m.open_ack.status != RS_ACK_REFUSED)
            answered(agent, peer, m.nonce);
    }
    return rs_receiving_message(agent, peer, header, header_length, payload, payload_length);
}
