/* Sealed datagrams: what a key's holders alone can make and read, once each. One rs_seal has the keys of one scope: of
 * a transfer, of a group, or of what is sent to this agent alone (keyring.h).
 *
 * A key is valid for an *epoch*, and with it comes a number of this *transmitter* that nobody else has in the epoch. Of
 * both together a key of the transmitter's own is made, which every holder of the epoch's key can make as well; whoever
 * is given that one alone can seal, and neither open nor seal as another. A datagram on the wire, little-endian:
 *
 *     clear bytes     as many as both ends agree on: what switches look at, or whose keys these are
 *     kind u8         0xe0 and the cipher (rs_cipher)
 *     counter u40     of the transmitter's packets, from 1, never twice with a key
 *     epoch u16
 *     transmitter u32
 *     the rest, encrypted
 *     tag, 16 bytes   of all that, and of address and port that it was sent to
 *
 * Nonces are made from the counter, which knows nothing of what is sent. Each receiver takes a counter once (a sliding
 * window by transmitter and address), and only once the tag was right: forgeries change nothing here.
 *
 * Whoever holds the epoch's key can seal as any transmitter, by any counter. Where several hold a key (rs_seal_shared)
 * that silences nobody: what has a counter that came before, or one older than the window, is told as LATE; the caller
 * takes of it what is missing, or newer than all that came, for what it was sealed for has numbers of its own. */
#ifndef RS_DAEMON_SEAL_SEAL_H
#define RS_DAEMON_SEAL_SEAL_H

#include "daemon/seal/aead.h"

#define RS_SEAL_HEAD 12u
#define RS_SEAL_MORE (RS_SEAL_HEAD + RS_AEAD_TAG) /* bytes that a sealed datagram has more */
#define RS_SEAL_SHOWN 4u                          /* clear bytes that say whose keys a datagram is sealed by */
#define RS_SEAL_CLEAR_MOST 32u
#define RS_SEAL_WINDOW 4096u                     /* counters behind the newest that are still taken */
#define RS_SEAL_EPOCHS 4u                        /* known at a time; another one takes the place of the oldest */
#define RS_SEAL_STREAMS 32768u                   /* transmitters times addresses that are heard */
#define RS_SEAL_PACKETS (UINT64_C(1) << 31)      /* by one key; then comes the transmitter's next number */
#define RS_SEAL_NUMBERS 256u                     /* so many: the manager's numbers are multiples of this */
#define RS_SEAL_RETIRE (5 * INT64_C(1000000000)) /* ns that an older epoch is still taken once the next is in use */

typedef struct rs_seal rs_seal;

typedef enum {
    RS_SEAL_RIGHT,
    RS_SEAL_PLAIN,    /* it is not sealed */
    RS_SEAL_SHORT,    /* cut */
    RS_SEAL_EPOCH,    /* of an epoch whose key is not here (any more) */
    RS_SEAL_FORGED,   /* the tag is wrong: changed on its way, sent elsewhere, or made without the key */
    RS_SEAL_REPLAYED, /* its counter was taken before, or is older than the window */
    RS_SEAL_ROOM,     /* too many transmitters */
    RS_SEAL_SCOPE,    /* of a transfer or group that this agent has no key of, or made with a key of another one */
    RS_SEAL_VERDICTS,
    RS_SEAL_LATE = RS_SEAL_VERDICTS /* right, but REPLAYED by its counter: new, or once more (rs_seal_shared) */
} rs_seal_verdict;

const char *rs_seal_text(rs_seal_verdict verdict); /* for people */

typedef struct {
    uint64_t sealed, unsealable; /* sent; not sent, because there is no key */
    uint64_t opened[RS_SEAL_VERDICTS];
    uint64_t late;    /* opened, and LATE */
    uint32_t streams; /* transmitters heard, times addresses; of now */
} rs_seal_stats;

/* Where a datagram goes, or came to, in host order. */
typedef struct {
    uint32_t address;
    uint16_t port;
} rs_seal_place;

/* Seals by `cipher`, opens what is sealed by any. NULL: out of memory. */
rs_seal *rs_seal_new(rs_cipher cipher);
/* The same for an agent's own key, which nobody has but it and the manager: what comes says in its 4 clear bytes whose
 * it is (rs_seal_transmitter_key). It seals nothing. */
rs_seal *rs_seal_new_named(void);
void rs_seal_free(rs_seal *seal); /* keys are wiped */

/* A key of the manager's: taken at once, sealed with from `from` on; older ones are forgotten RS_SEAL_RETIRE later. One
 * that is known already stays as it is. False: OpenSSL or memory. */
bool rs_seal_learn(rs_seal *seal, uint16_t epoch, const uint8_t key[RS_AEAD_KEY], uint32_t transmitter, rs_time from);
/* The key of one transmitter, of whose epoch the key is not known here: to seal with from now on. */
bool rs_seal_learn_own(rs_seal *seal, uint16_t epoch, const uint8_t key[RS_AEAD_KEY], uint32_t transmitter);
/* Others hold its keys as well: packets whose counter came before, or is older than the window, are LATE. Without it
 * they are REPLAYED. */
void rs_seal_shared(rs_seal *seal);
/* What a transmitter is given, if not the epoch's key; `name`: 0, or the clear bytes of an agent's own key. */
bool rs_seal_transmitter_key(const uint8_t epoch_key[RS_AEAD_KEY], uint32_t name, uint32_t transmitter,
                             uint8_t out[RS_AEAD_KEY]);
/* What time brings: the next epoch comes in use, old ones go. Returns when it has to be called again. */
rs_time rs_seal_tick(rs_seal *seal, rs_time now);
/* The keys that whoever joins needs: the one in use, and the next; at most RS_SEAL_EPOCHS. */
typedef struct {
    uint16_t epoch;
    uint8_t key[RS_AEAD_KEY];
    rs_time from;
} rs_seal_key;
unsigned rs_seal_keys(const rs_seal *seal, rs_seal_key out[RS_SEAL_EPOCHS]); /* the newest first; to be wiped */
bool rs_seal_ready(const rs_seal *seal);                                     /* there is a key to seal with */
uint16_t rs_seal_epoch(const rs_seal *seal);                                 /* in use; 0 = none */
rs_time rs_seal_since(const rs_seal *seal);                                  /* of the newest key; RS_NEVER: none */
uint64_t rs_seal_counter(const rs_seal *seal);                               /* datagrams sealed so far, by all keys */

/* Writes the datagram of head and rest, sealed, to `out`, RS_SEAL_MORE bytes more than both have; the first `clear`
 * bytes (at most RS_SEAL_CLEAR_MOST, and the head's) stay readable. False: there is no key. */
bool rs_seal_close(rs_seal *seal, rs_seal_place to, size_t clear, const uint8_t *head, size_t head_length,
                   const uint8_t *rest, size_t rest_length, uint8_t *out);
/* The same with the number `shown` in 4 clear bytes in front of the head. */
bool rs_seal_close_shown(rs_seal *seal, rs_seal_place to, uint32_t shown, const uint8_t *head, size_t head_length,
                         const uint8_t *rest, size_t rest_length, uint8_t *out);
/* Whether bytes behind clear ones look like those of a sealed datagram. */
bool rs_seal_looks_sealed(const uint8_t *bytes, size_t length);
uint32_t rs_seal_shown(const uint8_t *bytes); /* what such a datagram shows */
/* The datagram's own `length - RS_SEAL_MORE` bytes: as many as there are of the first `head_length` (at least `clear`)
 * go to `head`, the others to `rest`. In place: `head` is bytes + RS_SEAL_HEAD, and `rest` follows it. Unless the
 * answer is RIGHT or LATE, nothing is known of them. */
rs_seal_verdict rs_seal_open(rs_seal *seal, rs_seal_place at, size_t clear, const uint8_t *bytes, size_t length,
                             uint8_t *head, size_t head_length, uint8_t *rest);
void rs_seal_stats_get(const rs_seal *seal, rs_seal_stats *out);
/* For tests: the transmitter's next counter. */
void rs_seal_skip(rs_seal *seal, uint64_t counter);

#endif
