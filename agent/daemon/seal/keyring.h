/* The keys of this agent by what they are for. Each scope has a rs_seal of its own, so that what is sealed for one is
 * of no use in another:
 *
 *   a transfer that is sent from here: its sender draws the key, and gives it to its receivers alone, by TLS;
 *   a transfer that comes in: as its sender gave it;
 *   a group, or a region of groups: the manager gives it to those who are in its view;
 *   a peer: what is sent to that server alone. The manager makes it of the peer's own key, so that nobody but the two,
 *   and it, can seal or open: nobody can speak for another;
 *   this agent itself: its own key, with which it opens what any peer has sealed for it. */
#ifndef RS_DAEMON_SEAL_KEYRING_H
#define RS_DAEMON_SEAL_KEYRING_H

#include "daemon/seal/seal.h"
#include "daemon/seal/sign.h"

#define RS_KEYRING_MOST 65536u                      /* scopes */
#define RS_KEYRING_LINGER (5 * INT64_C(1000000000)) /* ns that a scope is kept when nothing needs it any more */

typedef enum {
    RS_KEYS_TRANSFER_OUT = 1, /* by its nonce */
    RS_KEYS_TRANSFER_IN,
    RS_KEYS_GROUP, /* by the manager's number */
    RS_KEYS_REGION,
    RS_KEYS_PEER, /* by rs_keyring_name of its server */
} rs_keys_kind;

typedef struct rs_keyring rs_keyring;

/* Seals by `cipher`. NULL: out of memory. */
rs_keyring *rs_keyring_new(rs_cipher cipher);
void rs_keyring_free(rs_keyring *ring); /* keys are wiped */

/* NULL: there is none. */
rs_seal *rs_keyring_find(rs_keyring *ring, rs_keys_kind kind, uint64_t id);
/* Makes it if there is none. NULL: out of memory, or RS_KEYRING_MOST. */
rs_seal *rs_keyring_take(rs_keyring *ring, rs_keys_kind kind, uint64_t id, rs_time now);
rs_seal *rs_keyring_self(rs_keyring *ring);
uint64_t rs_keyring_name(const char *server);
/* Who gave the key of a transfer: RS_NO_PEER until it is said. */
rs_peer rs_keyring_owner(const rs_keyring *ring, rs_keys_kind kind, uint64_t id);
void rs_keyring_set_owner(rs_keyring *ring, rs_keys_kind kind, uint64_t id, rs_peer owner);

/* By which key whoever that scope belongs to signs: the sender of a transfer, a peer. NULL: it does not, or there is
 * no such scope. A NULL `key` says that it does not. */
const uint8_t *rs_keyring_signer(const rs_keyring *ring, rs_keys_kind kind, uint64_t id);
void rs_keyring_set_signer(rs_keyring *ring, rs_keys_kind kind, uint64_t id, const uint8_t *key);

void rs_keyring_drop(rs_keyring *ring, rs_keys_kind kind, uint64_t id);
/* To whom the keys of a scope were given from here. False: out of memory. */
bool rs_keyring_told(rs_keyring *ring, rs_keys_kind kind, uint64_t id, rs_peer peer);
/* It has no right to the next one. False: it was not given any. */
bool rs_keyring_untold(rs_keyring *ring, rs_keys_kind kind, uint64_t id, rs_peer peer);
const rs_peer *rs_keyring_all_told(const rs_keyring *ring, rs_keys_kind kind, uint64_t id, uint32_t *count);
/* Whether to ask for a scope's key now: once in `every`. */
bool rs_keyring_may_ask(rs_keyring *ring, rs_keys_kind kind, uint64_t id, rs_time now, rs_time every);

/* What time brings; scopes that `needed` denies for RS_KEYRING_LINGER go. Returns when it has to be called again. */
rs_time rs_keyring_tick(rs_keyring *ring, rs_time now, bool (*needed)(void *context, rs_keys_kind kind, uint64_t id),
                        void *context);
/* Scopes of that kind whose newest key is of `age` or more: at most `most` of their ids; how many. */
uint32_t rs_keyring_old(const rs_keyring *ring, rs_keys_kind kind, rs_time now, rs_time age, uint64_t *ids,
                        uint32_t most);
/* Of all together, those that are gone too. */
void rs_keyring_stats(const rs_keyring *ring, rs_seal_stats *out);
void rs_keyring_count(rs_keyring *ring, rs_seal_verdict verdict); /* of a datagram whose scope is not here */
void rs_keyring_count_unsealable(rs_keyring *ring);               /* and of one that could not be sealed */
uint32_t rs_keyring_scopes(const rs_keyring *ring, rs_keys_kind kind);

#endif
