#include "daemon/pieces/wire.h"

#include <string.h>

#include "api/bytes.h"
#include "core/base/bytes.h"
#include "daemon/store/digest.h"

#define MAGIC 0x5052u
#define VERSION 1u

static uint8_t *put_text(uint8_t *out, const char *text, size_t most) {
    size_t length = strnlen(text, most - 1);
    *out++ = (uint8_t)length;
    memcpy(out, text, length);
    return out + length;
}

uint32_t rs_piece_put(const rs_piece_message *m, uint8_t *out) {
    uint8_t *at = out + RS_PIECE_HEAD;
    uint32_t follows =
        m->type == RS_PIECE_LEAVES || m->type == RS_PIECE_HAVE || m->type == RS_PIECE_PIECE || m->type == RS_PIECE_RUN
            ? m->length
            : 0;
    switch (m->type) {
    case RS_PIECE_ASK:
        memcpy(at, m->id.app, sizeof m->id.app);
        at = rs_le_put(at + sizeof m->id.app, m->id.data, 8);
        at = rs_le_put(at, m->port, 2);
        at = put_text(at, m->name, sizeof m->name);
        break;
    case RS_PIECE_HAS:
        at = rs_le_put(at, m->size, 8);
        *at++ = m->root.algorithm;
        *at++ = m->root.length;
        *at++ = (uint8_t)(m->complete | m->no_leaves << 1);
        memcpy(at, m->root.value, m->root.length);
        at += m->root.length;
        break;
    case RS_PIECE_NO:
        *at++ = m->gone;
        at = put_text(at, m->words, sizeof m->words);
        break;
    case RS_PIECE_LEAVES:
    case RS_PIECE_HAVE:
        at = rs_le_put(at, m->first, 4);
        at = rs_le_put(at, m->count, 4);
        break;
    case RS_PIECE_WANT:
    case RS_PIECE_PIECE:
        at = rs_le_put(at, m->first, 4);
        break;
    case RS_PIECE_PEER:
        at = rs_le_put(at, m->address, 4);
        at = rs_le_put(at, m->port, 2);
        at = put_text(at, m->name, sizeof m->name);
        break;
    case RS_PIECE_RUNS:
        at = rs_le_put(at, m->address, 4);
        at = rs_le_put(at, m->port, 2);
        at = rs_le_put(at, m->nonce, 8);
        at = rs_le_put(at, m->fragment_size, 4);
        break;
    case RS_PIECE_STREAM:
        at = rs_le_put(at, m->fragment_size, 4);
        at = rs_le_put(at, m->sn, 8);
        at = rs_le_put(at, m->here, 8);
        at = rs_le_put(at, m->size, 8);
        break;
    case RS_PIECE_WANT_RUN:
        at = rs_le_put(at, m->sn, 8);
        at = rs_le_put(at, m->count, 4);
        break;
    case RS_PIECE_RUN:
        at = rs_le_put(at, m->sn, 8);
        break;
    default:
        break;
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
    if (rs_le_get(head, 2) != MAGIC || head[2] != VERSION || *type < RS_PIECE_ASK || *type > RS_PIECE_RUN)
        return false;
    if (*type == RS_PIECE_PIECE)
        return *length > 4 && *length - 4 <= RS_DIGEST_CHUNK;
    return *length <= RS_PIECE_BODY_MOST - RS_PIECE_HEAD;
}

static bool rest_of(rs_reader *in, rs_piece_message *out) {
    out->bytes = in->at;
    out->length = (uint32_t)(in->end - in->at);
    return !in->bad && out->length > 0;
}

bool rs_piece_take(uint8_t type, const uint8_t *body, uint32_t length, rs_piece_message *out) {
    rs_reader in = {.at = body, .end = body + length};
    uint8_t flags;
    memset(out, 0, sizeof *out);
    out->type = type;
    switch (type) {
    case RS_PIECE_ASK:
        rs_get(&in, out->id.app, sizeof out->id.app);
        out->id.data = rs_get_u64(&in);
        out->port = rs_get_u16(&in);
        rs_get_text(&in, out->name, sizeof out->name);
        break;
    case RS_PIECE_HAS:
        out->size = rs_get_u64(&in);
        out->root.algorithm = rs_get_u8(&in);
        out->root.length = rs_get_u8(&in);
        flags = rs_get_u8(&in);
        out->complete = flags & 1;
        out->no_leaves = flags >> 1 & 1;
        if (out->root.length > sizeof out->root.value)
            return false;
        rs_get(&in, out->root.value, out->root.length);
        break;
    case RS_PIECE_NO:
        out->gone = rs_get_u8(&in) != 0;
        rs_get_text(&in, out->words, sizeof out->words);
        break;
    case RS_PIECE_WANT_LEAVES:
        break;
    case RS_PIECE_LEAVES:
    case RS_PIECE_HAVE:
        out->first = rs_get_u32(&in);
        out->count = rs_get_u32(&in);
        out->bytes = in.at;
        out->length = (uint32_t)(in.end - in.at);
        if (in.bad || out->count == 0 || out->count > UINT32_MAX - out->first ||
            (type == RS_PIECE_HAVE ? out->length != (out->count + 7) / 8
                                   : out->length != out->count * 16 && out->length != out->count * 32))
            return false;
        in.at = in.end;
        break;
    case RS_PIECE_WANT:
        out->first = rs_get_u32(&in);
        break;
    case RS_PIECE_PIECE:
        out->first = rs_get_u32(&in);
        in.at = in.end;
        break;
    case RS_PIECE_PEER:
        out->address = rs_get_u32(&in);
        out->port = rs_get_u16(&in);
        rs_get_text(&in, out->name, sizeof out->name);
        break;
    case RS_PIECE_RUNS:
        out->address = rs_get_u32(&in);
        out->port = rs_get_u16(&in);
        out->nonce = rs_get_u64(&in);
        out->fragment_size = rs_get_u32(&in);
        break;
    case RS_PIECE_STREAM:
        out->fragment_size = rs_get_u32(&in);
        out->sn = rs_get_u64(&in);
        out->here = rs_get_u64(&in);
        out->size = rs_get_u64(&in);
        break;
    case RS_PIECE_WANT_RUN:
        out->sn = rs_get_u64(&in);
        out->count = rs_get_u32(&in);
        break;
    case RS_PIECE_RUN:
        out->sn = rs_get_u64(&in);
        return rest_of(&in, out);
    default:
        return false;
    }
    return !in.bad && in.at == in.end;
}
