#include "daemon/secure.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "daemon/seal/packets.h"
#include "daemon/store/digest.h"

#define LOOK_EVERY RS_SECOND /* for what was refused */

bool rs_secure_start(rs_agent *agent) {
    if (!agent->options.security)
        return true;
    /* Keys must not get into a core dump, nor be read by other programs of the same user. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        rs_log(RS_LOG_WARNING, "security", "core dumps may hold keys: %s", strerror(errno));
    char text[RS_TLS_TEXT];
    agent->trust = rs_tls_identity_new(&agent->options.manager_tls, text);
    if (!agent->trust) {
        rs_log(RS_LOG_ERROR, "security", "%s", text);
        return false;
    }
    agent->seal = rs_seal_new(rs_cipher_here());
    agent->seal_due = RS_NEVER;
    if (!agent->seal)
        rs_log(RS_LOG_ERROR, "security", "memory is short");
    else
        rs_log(RS_LOG_INFO, "security", "required: packets are sealed by %s", rs_cipher_name(rs_cipher_here()));
    return agent->seal != NULL;
}

uint32_t rs_secure_bytes(const rs_agent *agent) {
    return agent->seal ? RS_SEAL_MORE : 0;
}

bool rs_secure_io_whole(const rs_io *io) {
    return strncmp(rs_io_name(io), "udp", 3) == 0;
}

rs_io *rs_secure_io(const rs_agent *agent, rs_io *io, size_t clear, bool whole, char *error) {
    if (!io || !agent->seal)
        return io;
    rs_io *sealed = rs_seal_io(io, agent->seal, clear, whole);
    if (!sealed)
        snprintf(error, RS_IO_ERROR_MAX, "no memory for sealed packets");
    return sealed;
}

bool rs_secure_digest(const rs_agent *agent, const rs_digest *digest) {
    return !agent->seal || digest->algorithm == RS_DIGEST_SHA256;
}

static void on_keys(void *context, const rs_manager_key *keys, uint32_t count) {
    rs_agent *agent = context;
    rs_time now = rs_agent_now(agent);
    for (uint32_t i = 0; i < count; i++)
        if (!rs_seal_learn(agent->seal, keys[i].epoch, keys[i].key, keys[i].transmitter, now + keys[i].in))
            rs_log(RS_LOG_ERROR, "security", "a key cannot be used: memory is short");
    agent->seal_due = now;
}

void rs_secure_link(const rs_agent *agent, rs_manager_options *options, rs_manager_callbacks *callbacks) {
    if (!agent->seal)
        return;
    options->seals = true;
    callbacks->on_keys = on_keys;
}

rs_time rs_secure_deadline(const rs_agent *agent) {
    return agent->seal ? agent->seal_due : RS_NEVER;
}

/* What did not pass since the last look, in words: an operator must see that somebody tries, or was left out. */
static void tell_refused(rs_agent *agent) {
    rs_seal_stats now;
    rs_seal_stats_get(agent->seal, &now);
    for (unsigned i = RS_SEAL_RIGHT + 1; i < RS_SEAL_VERDICTS; i++) {
        uint64_t more = now.opened[i] - agent->seal_told.opened[i];
        if (more > 0)
            rs_log_limited(&agent->unsealed, 10, RS_LOG_WARNING, "security", "packets refused=%llu cause=%s",
                           (unsigned long long)more, rs_quote(rs_seal_text((rs_seal_verdict)i)));
    }
    if (now.unsealable > agent->seal_told.unsealable)
        rs_log_limited(&agent->unsealed, 10, RS_LOG_WARNING, "security",
                       "packets not sent=%llu cause=\"the manager gave no key: it is away, or runs without `security: "
                       "required`\"",
                       (unsigned long long)(now.unsealable - agent->seal_told.unsealable));
    agent->seal_told = now;
}

void rs_secure_timeout(rs_agent *agent) {
    rs_time now = rs_agent_now(agent);
    if (!agent->seal || now < agent->seal_due)
        return;
    uint16_t before = rs_seal_epoch(agent->seal);
    rs_time next = rs_seal_tick(agent->seal, now);
    if (rs_seal_epoch(agent->seal) != before)
        rs_log(RS_LOG_INFO, "security", "epoch=%u in use", rs_seal_epoch(agent->seal));
    tell_refused(agent);
    agent->seal_due = next < now + LOOK_EVERY ? next : now + LOOK_EVERY;
}
