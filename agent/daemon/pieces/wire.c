#include "daemon/pieces/wire.h"

#include <stddef.h>
#include <string.h>

#include "api/bytes.h"
#include "core/base/bytes.h"
#include "daemon/store/digest.h"

#define MAGIC 0x5052u
#define VERSION 1u

/* Fields in the order of their bytes. A number is as wide there as in memory; a text has its length before it. What
 * only one kind has (HAS, LEAVES, HAVE: bits and runs of bytes) follows in code. */
typedef enum { END, FLAG, NUMBER, TEXT, BYTES } field_kind;

typedef struct {
    field_kind kind;
    uint16_t at, size;
} field;

#define FIELD(kind, member) \
    { kind, offsetof(rs_piece_message, member), sizeof((rs_piece_message *)0)->member }
#define FIELDS_MOST 5

static const field FIELDS[RS_PIECE_KEY + 1][FIELDS_MOST] = {
    [RS_PIECE_ASK] = {FIELD(BYTES, id.app), FIELD(NUMBER, id.data), FIELD(NUMBER, port), FIELD(TEXT, name)},
    [RS_PIECE_HAS] = {FIELD(NUMBER, size), FIELD(NUMBER, root.algorithm), FIELD(NUMBER, root.length)},
    [RS_PIECE_NO] = {FIELD(FLAG, gone), FIELD(TEXT, text)},
    [RS_PIECE_LEAVES] = {FIELD(NUMBER, first), FIELD(NUMBER, count)},
    [RS_PIECE_WANT] = {FIELD(NUMBER, first)},
    [RS_PIECE_PIECE] = {FIELD(NUMBER, first)},
    [RS_PIECE_HAVE] = {FIELD(NUMBER, first), FIELD(NUMBER, count)},
    [RS_PIECE_PEER] = {FIELD(NUMBER, address), FIELD(NUMBER, port), FIELD(TEXT, name)},
    [RS_PIECE_RUNS] = {FIELD(NUMBER, address), FIELD(NUMBER, port), FIELD(NUMBER, nonce), FIELD(NUMBER, fragment_size)},
    [RS_PIECE_STREAM] = {FIELD(NUMBER, fragment_size), FIELD(NUMBER, sn), FIELD(NUMBER, here), FIELD(NUMBER, size)},
    [RS_PIECE_WANT_RUN] = {FIELD(NUMBER, sn), FIELD(NUMBER, count)},
    [RS_PIECE_RUN] = {FIELD(NUMBER, sn)},
    [RS_PIECE_KEY] = {FIELD(NUMBER, nonce), FIELD(NUMBER, epoch), FIELD(BYTES, key), FIELD(BYTES, signer)},
};

static uint64_t load(const void *from, size_t size) {
    switch (size) {
    case 1:
        return *(const uint8_t *)from;
    case 2:
        return *(const uint16_t *)from;
    case 4:
        return *(const uint32_t *)from;
    default:
        return *(const uint64_t *)from;
    }
}

static void keep(void *to, size_t size, uint64_t value) {
    switch (size) {
    case 1:
        *(uint8_t *)to = (uint8_t)value;
        break;
    case 2:
        *(uint16_t *)to = (uint16_t)value;
        break;
    case 4:
        *(uint32_t *)to = (uint32_t)value;
        break;
    default:
        *(uint64_t *)to = value;
        break;
    }
}

static uint8_t *put_fields(const rs_piece_message *m, uint8_t *out) {
    for (const field *f = FIELDS[m->type]; f < FIELDS[m->type] + FIELDS_MOST && f->kind; f++) {
        const void *from = (const uint8_t *)m + f->at;
        size_t length = f->kind == TEXT ? strnlen(from, f->size - 1u) : f->size;
        if (f->kind == NUMBER) {
            out = rs_le_put(out, load(from, f->size), f->size);
            continue;
        }
        if (f->kind == TEXT)
            *out++ = (uint8_t)length;
        memcpy(out, from, length);
        out += length;
    }
    return out;
}

static void take_fields(rs_reader *in, rs_piece_message *m) {
    for (const field *f = FIELDS[m->type]; f < FIELDS[m->type] + FIELDS_MOST && f->kind; f++) {
        void *to = (uint8_t *)m + f->at;
        if (f->kind == NUMBER)
            keep(to, f->size, rs_get_uint(in, f->size));
        else if (f->kind == FLAG)
            *(bool *)to = rs_get_u8(in) != 0;
        else if (f->kind == TEXT)
            rs_get_text(in, to, f->size);
        else
            rs_get(in, to, f->size);
    }
}

uint32_t rs_piece_put(const rs_piece_message *m, uint8_t *out) {
    uint8_t *at = put_fields(m, out + RS_PIECE_HEAD);
    uint32_t follows =
        m->type == RS_PIECE_LEAVES || m->type == RS_PIECE_HAVE || m->type == RS_PIECE_PIECE || m->type == RS_PIECE_RUN
            ? m->length
            : 0;
    if (m->type == RS_PIECE_HAS) {
        *at++ = (uint8_t)(m->complete | m->no_leaves << 1);
        memcpy(at, m->root.value, m->root.length);
        at += m->root.length;
    }
    uint32_t length = (uint32_t)(at - out);
    at = rs_le_put(out, MAGIC, 2);
    *at++ = VERSION;
    *at++ = m->type;
    rs_le_put(at, length - RS_PIECE_HEAD + follows, 4);
    return length;
}

bool rs_piece_take_head(const uint8_t head[RS_PIECE_HEAD], uint8_t *type, uint32_t *length) {
    *type = head[3];
    *length = (uint32_t)rs_le_get(head + 4, 4);
    if (rs_le_get(head, 2) != MAGIC || head[2] != VERSION || *type < RS_PIECE_ASK || *type > RS_PIECE_KEY)
        return false;
    if (*type == RS_PIECE_PIECE)
        return *length > 4 && *length - 4 <= RS_DIGEST_CHUNK;
    return *length <= RS_PIECE_BODY_MOST - RS_PIECE_HEAD;
}

bool rs_piece_take(uint8_t type, const uint8_t *body, uint32_t length, rs_piece_message *out) {
    rs_reader in = {.at = body, .end = body + length};
    memset(out, 0, sizeof *out);
    if (type < RS_PIECE_ASK || type > RS_PIECE_KEY)
        return false;
    out->type = type;
    take_fields(&in, out);
    if (in.bad)
        return false;
    uint32_t rest = (uint32_t)(in.end - in.at);
    switch (type) {
    case RS_PIECE_HAS: {
        uint8_t flags = rs_get_u8(&in);
        out->complete = flags & 1;
        out->no_leaves = flags >> 1 & 1;
        if (out->root.length > sizeof out->root.value)
            return false;
        rs_get(&in, out->root.value, out->root.length);
        return !in.bad && in.at == in.end;
    }
    case RS_PIECE_LEAVES:
    case RS_PIECE_HAVE:
        if (out->count == 0 || out->count > UINT32_MAX - out->first ||
            (type == RS_PIECE_HAVE ? rest != (out->count + 7) / 8 : rest != out->count * 16 && rest != out->count * 32))
            return false;
        break;
    case RS_PIECE_RUN:
        if (rest == 0)
            return false;
        break;
    case RS_PIECE_PIECE:
        return true;
    default:
        return rest == 0;
    }
    out->bytes = in.at;
    out->length = rest;
    return true;
}
