#include "core/transfer/proof.h"

#include <string.h>

#include "core/base/bytes.h"
#include "core/base/keyed_hash.h"
#include "core/feedback/report.h"
#include "core/transfer/engine.h"

#define ASK_WITHIN (20 * RS_MS) /* all receivers of a transfer, after they accepted */
#define ASK_PART 64             /* or, if that is sooner, that part of the time between two of its samples */
#define ASK_AGAIN (4 * RS_MS)   /* after so long, and twice as long each time... */
#define ASKS_MOST 6u            /* ...so often; then by a connection (252 ms in all) */

static uint64_t hash(const uint64_t key[2], const uint64_t *of, size_t count) {
    uint8_t bytes[16 * 8], *to = bytes;
    for (size_t i = 0; i < count; i++)
        to = rs_le_put(to, of[i], 8);
    uint64_t h = rs_keyed_hash(key, bytes, (size_t)(to - bytes));
    return h ? h : 1;
}

/* Of what OPEN says but for the digest: who does not know the challenge cannot find another OPEN that has the same. */
static uint64_t print_of(uint64_t nonce, uint64_t challenge, const rs_message *m) {
    const uint64_t key[2] = {challenge, nonce};
    uint64_t app[2];
    memcpy(app, m->open.object.app, sizeof app);
    const uint64_t of[] = {app[0],        app[1],      m->open.object.data,   m->open.size,      m->open.fragment_size,
                           m->open.first, m->open.end, m->open.group_address, m->open.data_port, m->open.engine};
    return hash(key, of, sizeof of / sizeof of[0]);
}

/* 0: it follows. */
static uint64_t print_of_digest(uint64_t nonce, uint64_t challenge, const rs_digest *digest) {
    const uint64_t key[2] = {challenge, ~nonce};
    uint64_t of[2 + sizeof digest->value / 8] = {digest->algorithm, digest->length};
    memcpy(of + 2, digest->value, digest->length);
    return digest->length ? hash(key, of, sizeof of / sizeof of[0]) : 0;
}

/* -------------------------------------------------------------------------------------------------- at a receiver */

void rs_proof_begin(rs_receiving *x) {
    x->proof.wanted = x->proof.of_all = true;
}

bool rs_proof_wait(rs_node *node, rs_time now, rs_receiving *x, rs_time within) {
    if (!x->proof.wanted)
        return false;
    rs_time due = within ? now + (rs_time)(rs_random(node) % (uint64_t)within) : now;
    if (due >= x->proof.ask_due)
        return false;
    x->proof.ask_due = due;
    return true;
}

bool rs_proof_accepted(rs_node *node, rs_time now, rs_receiving *x) {
    return rs_proof_wait(node, now, x, ASK_WITHIN);
}

/* Who carries said that time, too. */
static rs_time spread_over(const rs_receiving *x) {
    rs_time time = x->said_each / ASK_PART + 1;
    return time < ASK_WITHIN ? time : ASK_WITHIN;
}

bool rs_proof_spread(rs_node *node, rs_time now, rs_receiving *x) {
    if (x->proof.asked || x->state != RS_RX_RECEIVING)
        return false;
    x->proof.ask_due = RS_NEVER;
    return rs_proof_wait(node, now, x, spread_over(x));
}

bool rs_proof_unanswered(const rs_receiving *x) {
    return x->proof.wanted && x->proof.of_all && !x->proof.token && !x->link.via && !rs_peer_is_up(x->link.peer);
}

static const rs_digest *digest_here(const rs_receiving *x) {
    return x->proof.digest.length ? &x->proof.digest : &x->t.digest;
}

static bool same_digest(const rs_digest *a, const rs_digest *b) {
    return a->algorithm == b->algorithm && a->length == b->length && memcmp(a->value, b->value, a->length) == 0;
}

bool rs_proof_agrees(const rs_receiving *x, const rs_message *m) {
    if (m->open.size != x->t.size || m->open.fragment_size != x->t.fragment_size)
        return false;
    if (x->t.digest.length ? !same_digest(&x->t.digest, &m->open.digest)
                           : x->t.digest.algorithm != m->open.digest.algorithm)
        return false;
    if (m->session != x->t.session || m->open.path_kind == RS_OPEN_NO_PATH || x->path_kind == RS_OPEN_NO_PATH)
        return true; /* another session's path */
    return m->open.group_address == x->group_address && m->open.data_port == x->data_port &&
           m->open.engine == x->t.engine->id && m->open.first == x->ring.first && m->open.end == x->ring.end;
}

rs_proof_of_sender rs_proof_end(rs_receiving *x) {
    rs_proof_of_sender had = x->proof;
    x->proof = (rs_proof_of_sender){.ask_due = RS_NEVER, .token = had.token};
    return had;
}

bool rs_proof_digest(rs_node *node, rs_time now, rs_receiving *x, const rs_digest *digest) {
    if (digest->algorithm != x->t.digest.algorithm)
        return false; /* the sender itself is asked when nothing comes of it */
    if (x->proof.digest.length && same_digest(&x->proof.digest, digest))
        return false;
    x->proof.digest = *digest;
    x->proof.wanted = true;
    x->proof.asked = 0;
    x->proof.ask_due = RS_NEVER;
    return rs_proof_wait(node, now, x, spread_over(x));
}

rs_told_what rs_proof_told(rs_time now, rs_receiving *x, const rs_packet_in *packet) {
    rs_told told;
    if (packet->payload_length || !rs_told_decode(packet->header, packet->header_length, &told))
        return RS_TOLD_NO;
    if (!x->proof.wanted || packet->peer != x->link.peer->id || x->proof.asked == 0 ||
        told.challenge != x->proof.challenge)
        return RS_TOLD_NOTHING;
    x->link.heard_at = now;
    x->proof.token = told.token;
    if (told.session != x->t.session)
        return RS_TOLD_NOTHING; /* its OPEN is on its way, or it is asked again */
    const rs_message known = {.open = {.object = x->t.object,
                                       .size = x->t.size,
                                       .fragment_size = x->t.fragment_size,
                                       .first = x->ring.first,
                                       .end = x->ring.end,
                                       .group_address = x->group_address,
                                       .data_port = x->data_port,
                                       .engine = x->t.engine->id}};
    const rs_digest *digest = digest_here(x);
    if (print_of(x->t.nonce, told.challenge, &known) != told.print)
        return RS_TOLD_FALSE;
    if ((digest->length > 0) != (told.digest_print != 0))
        return RS_TOLD_NOTHING; /* it is on its way, or who answered did not know it yet: it is asked again */
    return print_of_digest(x->t.nonce, told.challenge, digest) == told.digest_print ? RS_TOLD_TRUE : RS_TOLD_FALSE;
}

bool rs_proof_ask(rs_node *node, rs_time now, rs_receiving *x) {
    const uint64_t of[] = {x->t.nonce, (uint64_t)now, rs_random(node)};
    if (!x->link.via || x->proof.asked == ASKS_MOST) {
        x->proof.ask_due = RS_NEVER;
        return false;
    }
    x->proof.challenge = hash(node->config.secret, of, sizeof of / sizeof of[0]);
    x->proof.ask_due = now + (ASK_AGAIN << x->proof.asked++);
    return true;
}

uint16_t rs_proof_say(const rs_receiving *x, const rs_message *m, uint8_t *out) {
    const rs_said_proof proof = {.token = x->proof.token, .challenge = x->proof.wanted ? x->proof.challenge : 0};
    return m->type == RS_MSG_PING || proof.token ? (uint16_t)rs_said_encode(m, &proof, out) : 0;
}

/* ---------------------------------------------------------------------------------------------------- at a sender */

/* Nothing is kept of it: whoever asks can be told again. */
static uint64_t token_of(const rs_node *node, const rs_recipient *r) {
    const uint64_t of[] = {r->link.transfer->nonce, r->link.peer->id};
    return hash(node->config.secret, of, sizeof of / sizeof of[0]);
}

bool rs_proof_said(const rs_node *node, rs_recipient *r, const rs_packet_in *packet, rs_message *m, bool *itself,
                   bool *asks) {
    rs_said_proof proof;
    if (packet->payload_length || !rs_said_decode(packet->header, packet->header_length, m, &proof))
        return false;
    *itself = proof.token == token_of(node, r);
    *asks = proof.challenge != 0;
    if (*asks)
        r->challenge = proof.challenge;
    return true;
}

uint16_t rs_proof_answer(const rs_node *node, const rs_recipient *r, const rs_message *open, uint8_t *out) {
    const rs_told told = {.nonce = open->nonce,
                          .session = open->session,
                          .challenge = r->challenge,
                          .token = token_of(node, r),
                          .print = print_of(open->nonce, r->challenge, open),
                          .digest_print = print_of_digest(open->nonce, r->challenge, &open->open.digest)};
    return r->challenge && open->session < RS_SESSIONS_MAX ? (uint16_t)rs_told_encode(&told, out) : 0;
}
