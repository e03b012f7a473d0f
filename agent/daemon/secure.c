#include "daemon/secure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "core/base/wire.h"
#include "daemon/pieces/wire.h"
#include "daemon/store/digest.h"
#include "daemon/units.h"

#define LOOK_EVERY RS_SECOND /* for what was refused, and whose keys are to be others */
#define ASK_EVERY (RS_SECOND / 2)
#define KEYLESS_BOUND RS_SECOND /* that datagrams may lack a key unnoticed */
#define WISHES_MOST 16384u      /* servers: as many as one call takes */
#define STALE_MOST 256u
#define AT_TYPE 4

#define KEY_AGE (3600 * RS_SECOND)     /* then a transfer has another one, as the manager's scopes have (keys.py) */
#define RS_SECURE_HEAD_START RS_SECOND /* in which all have heard of a transfer's next key */

typedef struct rs_secure {
    rs_time due;
    rs_signer *signer;     /* NULL: nothing is signed here */
    rs_verifier *verifier; /* of others' signatures */
    rs_seal_stats said;    /* what was refused, as far as the log has it */
    rs_time keyless_since; /* of datagrams without a key since `said`: when that was seen; 0: there are none */
    uint64_t keyless;      /* and how many there were then */
    char **wishes;         /* servers whose keys this agent has asked for */
    uint32_t wished;
    bool ask;                   /* for them, now */
    uint64_t stale[STALE_MOST]; /* transfers from here of which a receiver has left */
    uint32_t stale_count;
} rs_secure;

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
    agent->keys = rs_keyring_new(rs_cipher_here());
    agent->secure = calloc(1, sizeof *agent->secure);
    bool ready = agent->keys && agent->secure && (agent->secure->verifier = rs_verifier_new());
    if (ready && agent->options.sign)
        ready = (agent->secure->signer = rs_signer_new()) != NULL;
    if (!ready)
        rs_log(RS_LOG_ERROR, "security", "out of memory, or there are no random numbers");
    else
        rs_log(RS_LOG_INFO, "security", "required: packets are sealed by %s%s", rs_cipher_name(rs_cipher_here()),
               agent->options.sign ? ", streams and messages signed by Ed25519" : "");
    return ready;
}

void rs_secure_free(rs_agent *agent) {
    rs_keyring_free(agent->keys);
    for (uint32_t i = 0; agent->secure && i < agent->secure->wished; i++)
        free(agent->secure->wishes[i]);
    if (agent->secure) {
        free(agent->secure->wishes);
        rs_signer_free(agent->secure->signer);
        rs_verifier_free(agent->secure->verifier);
    }
    free(agent->secure);
}

uint32_t rs_secure_bytes(const rs_agent *agent) {
    return agent->keys ? RS_SEAL_MORE : 0;
}

bool rs_secure_io_is_bare(const rs_io *io) {
    return strncmp(rs_io_name(io), "udp", 3) == 0;
}

rs_io *rs_secure_io(const rs_agent *agent, rs_io *io, rs_seal_traffic traffic, bool whole, char *error) {
    if (!io || !agent->keys)
        return io;
    rs_io *sealed = rs_seal_io(io, agent->keys, traffic, whole);
    if (!sealed)
        snprintf(error, RS_IO_ERROR_MAX, "no memory for sealed packets");
    return sealed;
}

bool rs_secure_digest(const rs_agent *agent, const rs_digest *digest) {
    return !agent->keys || digest->algorithm == RS_DIGEST_SHA256;
}

/* ----------------------------------------------------------------------------------------------------- signatures */

bool rs_secure_signs(const rs_agent *agent) {
    return agent->secure && agent->secure->signer;
}

bool rs_secure_sign(rs_agent *agent, rs_sign_what what, const rs_signed *packets, uint32_t count) {
    bool done = true;
    for (uint32_t at = 0; at < count && done; at += RS_SIGN_BATCH)
        done =
            rs_sign(agent->secure->signer, what, packets + at, count - at < RS_SIGN_BATCH ? count - at : RS_SIGN_BATCH);
    if (!done)
        rs_log_limited(&agent->unsealed, 10, RS_LOG_ERROR, "security",
                       "packets cannot be signed: nobody will take them");
    return done;
}

const uint8_t *rs_secure_signer(const rs_agent *agent, rs_keys_kind kind, uint64_t id) {
    return agent->keys ? rs_keyring_signer(agent->keys, kind, id) : NULL;
}

bool rs_secure_is_signed(rs_agent *agent, const uint8_t *signer, rs_sign_what what, const rs_signed *packet) {
    return rs_verify(agent->secure->verifier, signer, what, packet);
}

/* ---------------------------------------------------------------------------------------------- manager's keys */

/* Its key is of use here: another manager is asked for it as well. */
static void remember(rs_secure *x, const char *server) {
    for (uint32_t i = 0; i < x->wished; i++)
        if (strcmp(x->wishes[i], server) == 0)
            return;
    char **more = x->wished < WISHES_MOST ? realloc(x->wishes, (x->wished + 1u) * sizeof *more) : NULL;
    x->wishes = more ? more : x->wishes;
    char *copy = more ? strdup(server) : NULL;
    if (copy)
        x->wishes[x->wished++] = copy;
}

static void wish(rs_agent *agent, const char *server) {
    if (!rs_keyring_may_ask(agent->keys, RS_KEYS_PEER, rs_keyring_name(server), rs_agent_now(agent), ASK_EVERY))
        return;
    remember(agent->secure, server);
    agent->secure->ask = true;
    agent->secure->due = rs_agent_now(agent);
}

/* NULL: its key was asked for. */
static rs_seal *peer_seal(rs_agent *agent, const char *server) {
    const uint64_t name = rs_keyring_name(server);
    rs_seal *seal = rs_keyring_find(agent->keys, RS_KEYS_PEER, name);
    if (!seal)
        seal = rs_keyring_take(agent->keys, RS_KEYS_PEER, name, rs_agent_now(agent));
    if (seal && !rs_seal_ready(seal)) {
        wish(agent, server);
        return NULL;
    }
    return seal;
}

rs_seal *rs_secure_peer(rs_agent *agent, const char *server) {
    rs_seal *seal = peer_seal(agent, server);
    if (!seal)
        rs_keyring_count_unsealable(agent->keys);
    return seal;
}

static void ask(rs_agent *agent) {
    rs_secure *x = agent->secure;
    if (x->ask && agent->link && rs_manager_up(agent->link) && x->wished > 0)
        (void)rs_manager_peer_keys(agent->link, rs_agent_now(agent), (const char *const *)x->wishes, x->wished);
    x->ask = false;
}

static bool learn(rs_agent *agent, const rs_manager_key *key) {
    rs_time now = rs_agent_now(agent);
    if (key->purpose == RS_MANAGER_KEY_SELF) {
        if (key->id != agent->options.address)
            rs_log(RS_LOG_ERROR, "security",
                   "the topology has another address for this server than --address says: nobody will believe its "
                   "datagrams; make them the same");
        agent->secure->ask = true; /* another connection, or manager: others have their keys anew as well */
        return rs_seal_learn(rs_keyring_self(agent->keys), key->epoch, key->key, key->transmitter, now + key->in);
    }
    const rs_keys_kind kind = key->purpose == RS_MANAGER_KEY_GROUP    ? RS_KEYS_GROUP
                              : key->purpose == RS_MANAGER_KEY_REGION ? RS_KEYS_REGION
                                                                      : RS_KEYS_PEER;
    const uint64_t id = kind == RS_KEYS_PEER ? rs_keyring_name(key->server) : key->id;
    rs_seal *seal = rs_keyring_take(agent->keys, kind, id, now);
    if (!seal)
        return false;
    if (kind == RS_KEYS_PEER && !rs_seal_ready(seal))
        remember(agent->secure, key->server);
    if (kind == RS_KEYS_PEER)
        rs_keyring_set_signer(agent->keys, kind, id, key->signs ? key->signer : NULL);
    return kind == RS_KEYS_PEER ? rs_seal_learn_own(seal, key->epoch, key->key, key->transmitter)
                                : rs_seal_learn(seal, key->epoch, key->key, key->transmitter, now + key->in);
}

static void on_keys(void *context, const rs_manager_key *keys, uint32_t count) {
    rs_agent *agent = context;
    for (uint32_t i = 0; i < count; i++)
        if (!learn(agent, &keys[i]))
            rs_log(RS_LOG_ERROR, "security", "a key cannot be used: out of memory");
    agent->secure->due = rs_agent_now(agent);
}

void rs_secure_link(const rs_agent *agent, rs_manager_options *options, rs_manager_callbacks *callbacks) {
    if (!agent->keys)
        return;
    options->seals = true;
    options->signer = rs_secure_signs(agent) ? rs_signer_public(agent->secure->signer) : NULL;
    callbacks->on_keys = on_keys;
}

/* --------------------------------------------------------------------------------------------- keys of transfers */

/* Another key, to be sealed with from then on. */
static bool draw(rs_agent *agent, rs_seal *seal, rs_time from) {
    uint8_t key[RS_AEAD_KEY];
    rs_seal_key known[RS_SEAL_EPOCHS];
    unsigned count = rs_seal_keys(seal, known);
    const uint16_t epoch = count == 0 ? 1 : (uint16_t)(known[0].epoch % UINT16_MAX + 1);
    bool done = rs_random_key(key) && rs_seal_learn(seal, epoch, key, 0, from);
    rs_wipe(known, sizeof known);
    rs_wipe(key, sizeof key);
    if (!done)
        rs_log(RS_LOG_ERROR, "security", "no key for a transfer: out of memory, or there are no random numbers");
    agent->secure->due = rs_agent_now(agent);
    return done;
}

static void give(rs_agent *agent, rs_peer peer, uint64_t nonce, const rs_seal_key *key) {
    uint8_t bytes[RS_HEADER_MAX];
    rs_time wait = key->from - rs_agent_now(agent);
    rs_message m = {.type = RS_MSG_KEY, .nonce = nonce};
    m.key.epoch = key->epoch;
    m.key.in_ms = wait > 0 ? (uint32_t)(wait / RS_MILLISECOND) : 0;
    memcpy(m.key.key, key->key, sizeof m.key.key);
    if (rs_secure_signs(agent))
        memcpy(m.key.signer, rs_signer_public(agent->secure->signer), sizeof m.key.signer);
    size_t size = rs_wire_encode(&m, 0, bytes, sizeof bytes);
    (void)rs_control_send(agent->control, peer, bytes, size, NULL);
    rs_wipe(&m, sizeof m);
    rs_wipe(bytes, sizeof bytes);
}

void rs_secure_goes(rs_agent *agent, rs_peer peer, const uint8_t *header, size_t header_length) {
    uint64_t nonce;
    if (!agent->keys || header_length <= AT_TYPE || header[AT_TYPE] != RS_MSG_OPEN ||
        !rs_wire_nonce(header, header_length, &nonce) || !rs_control_is_up(agent->control, peer))
        return;
    rs_seal *seal = rs_keyring_take(agent->keys, RS_KEYS_TRANSFER_OUT, nonce, rs_agent_now(agent));
    if (!seal || (!rs_seal_ready(seal) && !draw(agent, seal, rs_agent_now(agent))) ||
        !rs_keyring_told(agent->keys, RS_KEYS_TRANSFER_OUT, nonce, peer))
        return;
    (void)peer_seal(agent, rs_peers_entry(&agent->peers, peer)->name); /* there may be datagrams for it, soon */
    rs_seal_key keys[RS_SEAL_EPOCHS];
    for (unsigned i = rs_seal_keys(seal, keys); i > 0; i--)
        give(agent, peer, nonce, &keys[i - 1]);
    rs_wipe(keys, sizeof keys);
}

/* NULL: it says that nothing is signed. */
static const uint8_t *signer_of(const uint8_t key[RS_SIGN_PUBLIC]) {
    static const uint8_t none[RS_SIGN_PUBLIC];
    return memcmp(key, none, sizeof none) == 0 ? NULL : key;
}

bool rs_secure_message(rs_agent *agent, rs_peer peer, const uint8_t *header, size_t header_length) {
    rs_message m;
    if (header_length <= AT_TYPE || header[AT_TYPE] != RS_MSG_KEY)
        return false;
    if (!agent->keys || !rs_wire_decode(header, header_length, 0, &m))
        return true;
    rs_time now = rs_agent_now(agent);
    (void)peer_seal(agent, rs_peers_entry(&agent->peers, peer)->name);
    const rs_peer sender = rs_nonce_sender(agent->node, m.nonce);
    /* who gives the key of a transfer is its sender, as long as there is one */
    if (sender == RS_NO_PEER || sender == peer) {
        rs_seal *seal = rs_keyring_take(agent->keys, RS_KEYS_TRANSFER_IN, m.nonce, now);
        if (seal && rs_keyring_owner(agent->keys, RS_KEYS_TRANSFER_IN, m.nonce) != peer) {
            rs_keyring_drop(agent->keys, RS_KEYS_TRANSFER_IN, m.nonce);
            seal = rs_keyring_take(agent->keys, RS_KEYS_TRANSFER_IN, m.nonce, now);
            rs_keyring_set_owner(agent->keys, RS_KEYS_TRANSFER_IN, m.nonce, peer);
        }
        if (!seal || !rs_seal_learn(seal, m.key.epoch, m.key.key, 0, now + m.key.in_ms * RS_MILLISECOND))
            rs_log(RS_LOG_ERROR, "security", "the key of a transfer cannot be used: out of memory");
        rs_keyring_set_signer(agent->keys, RS_KEYS_TRANSFER_IN, m.nonce, signer_of(m.key.signer));
        agent->secure->due = now;
    } else {
        rs_log_limited(&agent->unsealed, 10, RS_LOG_WARNING, "security",
                       "server=%s gives a key for a transfer that another server sends: it is not taken",
                       rs_quote(rs_peers_entry(&agent->peers, peer)->name));
    }
    rs_wipe(&m, sizeof m);
    return true;
}

uint32_t rs_secure_tell(rs_agent *agent, uint64_t nonce, rs_piece_message *out, uint32_t most) {
    rs_seal_key keys[RS_SEAL_EPOCHS];
    const rs_seal *seal = agent->keys ? rs_keyring_find(agent->keys, RS_KEYS_TRANSFER_OUT, nonce) : NULL;
    uint32_t count = seal ? rs_seal_keys(seal, keys) : 0, told = 0;
    for (; told < count && told < most; told++) {
        out[told] = (rs_piece_message){.type = RS_PIECE_KEY, .nonce = nonce, .epoch = keys[told].epoch};
        memcpy(out[told].key, keys[told].key, sizeof out[told].key);
        if (rs_secure_signs(agent))
            memcpy(out[told].signer, rs_signer_public(agent->secure->signer), sizeof out[told].signer);
    }
    rs_wipe(keys, sizeof keys);
    return told;
}

void rs_secure_hear(rs_agent *agent, const rs_piece_message *key) {
    rs_time now = rs_agent_now(agent);
    const uint64_t nonce = key->nonce;
    bool free_to_take = agent->keys && nonce && key->epoch && rs_nonce_sender(agent->node, nonce) == RS_NO_PEER &&
                        rs_keyring_owner(agent->keys, RS_KEYS_TRANSFER_IN, nonce) == RS_NO_PEER;
    rs_seal *seal = free_to_take ? rs_keyring_take(agent->keys, RS_KEYS_TRANSFER_IN, nonce, now) : NULL;
    if (seal && rs_seal_learn(seal, key->epoch, key->key, 0, now))
        rs_keyring_set_signer(agent->keys, RS_KEYS_TRANSFER_IN, nonce, signer_of(key->signer));
}

void rs_secure_left(rs_agent *agent, rs_xfer xfer, rs_peer peer) {
    uint64_t nonce;
    if (!agent->keys || rs_send_nonce(agent->node, xfer, &nonce) != RS_OK ||
        !rs_keyring_untold(agent->keys, RS_KEYS_TRANSFER_OUT, nonce, peer))
        return;
    for (uint32_t i = 0; i < agent->secure->stale_count; i++)
        if (agent->secure->stale[i] == nonce)
            return;
    if (agent->secure->stale_count < STALE_MOST) /* else others that leave say so again */
        agent->secure->stale[agent->secure->stale_count++] = nonce;
}

/* What is left of a transfer is not for who left it, and no key is used for ever: all receivers get another one. */
static void rekey(rs_agent *agent, uint64_t nonce) {
    rs_seal_key keys[RS_SEAL_EPOCHS];
    uint32_t told = 0;
    rs_seal *seal = rs_keyring_find(agent->keys, RS_KEYS_TRANSFER_OUT, nonce);
    if (!seal || !rs_nonce_is_used(agent->node, nonce, true) ||
        !draw(agent, seal, rs_agent_now(agent) + RS_SECURE_HEAD_START))
        return;
    const rs_peer *peers = rs_keyring_all_told(agent->keys, RS_KEYS_TRANSFER_OUT, nonce, &told);
    if (rs_seal_keys(seal, keys) > 0)
        for (uint32_t i = 0; i < told; i++)
            if (peers[i] != RS_NO_PEER && rs_control_is_up(agent->control, peers[i]))
                give(agent, peers[i], nonce, &keys[0]);
    rs_wipe(keys, sizeof keys);
}

rs_time rs_secure_deadline(const rs_agent *agent) {
    return agent->keys ? agent->secure->due : RS_NEVER;
}

/* ------------------------------------------------------------------------------------------------------------- time */

/* A key comes a moment after it is asked for, which is nothing to tell of; one that does not come is. */
static void tell_keyless(rs_agent *agent, const rs_seal_stats *now) {
    rs_secure *x = agent->secure;
    uint64_t more = now->unsealable - x->said.unsealable;
    if (more > 0 && x->keyless_since == 0) {
        x->keyless_since = rs_agent_now(agent);
        x->keyless = now->unsealable;
    } else if (more > 0 && rs_agent_now(agent) - x->keyless_since >= KEYLESS_BOUND) {
        if (now->unsealable > x->keyless)
            rs_log_limited(&agent->unsealed, 10, RS_LOG_WARNING, "security",
                           "packets not sent=%llu cause=\"there is no key yet, or the manager that gives it is away\"",
                           (unsigned long long)more);
        x->said.unsealable = now->unsealable;
        x->keyless_since = 0;
    }
}

/* What did not pass since the last look, in words: an operator must see that somebody tries, or was left out. */
static void tell_refused(rs_agent *agent) {
    rs_seal_stats now, *told = &agent->secure->said;
    rs_keyring_stats(agent->keys, &now);
    for (unsigned i = RS_SEAL_RIGHT + 1; i < RS_SEAL_VERDICTS; i++) {
        uint64_t more = now.opened[i] - told->opened[i];
        if (more > 0)
            rs_log_limited(&agent->unsealed, 10, RS_LOG_WARNING, "security", "packets refused=%llu cause=%s",
                           (unsigned long long)more, rs_quote(rs_seal_text((rs_seal_verdict)i)));
    }
    tell_keyless(agent, &now);
    now.unsealable = told->unsealable;
    if (now.late > told->late)
        rs_log_limited(
            &agent->unsealed, 10, RS_LOG_WARNING, "security",
            "packets late=%llu cause=\"their counters came before, or are far behind: sent once more by whoever heard "
            "them, or another holder of the key uses counters in their transmitter's name\"",
            (unsigned long long)(now.late - told->late));
    *told = now;
}

void rs_secure_timeout(rs_agent *agent, rs_secure_needed *needed) {
    rs_time now = rs_agent_now(agent);
    if (!agent->keys || now < agent->secure->due)
        return;
    rs_secure *x = agent->secure;
    const rs_seal *self = rs_keyring_self(agent->keys);
    uint16_t before = rs_seal_epoch(self);
    rs_time next = rs_keyring_tick(agent->keys, now, needed, agent);
    if (rs_seal_epoch(self) != before)
        rs_log(RS_LOG_INFO, "security", "epoch=%u in use", rs_seal_epoch(self));
    for (uint32_t i = 0; i < x->stale_count; i++)
        rekey(agent, x->stale[i]);
    x->stale_count = rs_keyring_old(agent->keys, RS_KEYS_TRANSFER_OUT, now, KEY_AGE, x->stale, STALE_MOST);
    for (uint32_t i = 0; i < x->stale_count; i++)
        rekey(agent, x->stale[i]);
    x->stale_count = 0;
    ask(agent);
    tell_refused(agent);
    x->due = next < now + LOOK_EVERY ? next : now + LOOK_EVERY;
}
