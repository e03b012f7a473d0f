#include "daemon/pieces/hear.h"

#include <stdlib.h>

#include "daemon/data/data.h"
#include "daemon/pieces/state.h"
#include "daemon/store/digest.h"

#define QUIET (300 * RS_MILLISECOND) /* no packet of a transfer that is heard for so long: it is over, or stands */

/* What a sender tells of a transfer to others: its packets bring the rest of the object here, too. */
void rs_hear(fetch *f, const rs_piece_message *m) {
    char text[RS_IO_ERROR_MAX];
    rs_agent *agent = f->all->agent;
    uint64_t fragments = m->fragment_size ? f->size / m->fragment_size + (f->size % m->fragment_size != 0) : 0;
    bool sane = m->address >> 28 == 14 && m->port && m->nonce && m->fragment_size >= RS_FRAGMENT_LEAST &&
                m->fragment_size <= RS_FRAGMENT_MAX && fragments > 0 && fragments <= UINT32_MAX / 2;
    if (!f->object || f->hears.fragments || !sane)
        return;
    f->hears.bits = calloc(fragments / 8 + 1, 1);
    f->hears.got = calloc((size_t)f->pieces + 1, sizeof *f->hears.got);
    f->hears.group = f->hears.bits && f->hears.got ? rs_data_join(agent->data, m->address, m->port, text) : RS_NO_GROUP;
    if (f->hears.group == RS_NO_GROUP) {
        free(f->hears.bits);
        free(f->hears.got);
        f->hears.bits = NULL;
        f->hears.got = NULL;
        return; /* all of it is fetched */
    }
    f->hears.nonce = m->nonce;
    f->hears.fragments = fragments;
    f->hears.fragment_size = m->fragment_size;
    f->all->hearing++;
}

void rs_hear_end(fetch *f) {
    rs_fetches *all = f->all;
    for (uint32_t i = 0; i < all->payload_count; i++)
        if (all->payloads[i].of == f)
            all->payloads[i].of = NULL;
    if (f->hears.fragments == 0)
        return;
    rs_data_leave(all->agent->data, f->hears.group);
    free(f->hears.bits);
    free(f->hears.got);
    f->hears.bits = NULL;
    f->hears.got = NULL;
    f->hears.fragments = 0;
    f->hears.live = false;
    all->hearing--;
}

/* Packets come from piece `first` on: what follows comes by itself, what was passed and is not whole is asked for. */
static void note_live(fetch *f, uint32_t piece) {
    f->hears.at = rs_fetch_now(f);
    if (!f->hears.live) {
        f->hears.live = true;
        f->hears.upto = piece + 1;
        if (f->plan)
            rs_piece_plan_wait(f->plan, piece + 1, f->pieces, true);
    } else if (piece > f->hears.upto + 1) {
        if (f->plan)
            rs_piece_plan_wait(f->plan, f->hears.upto, piece - 1, false);
        f->hears.upto = piece - 1;
    }
}

uint8_t *rs_hear_packet(rs_fetches *all, rs_group group, const uint8_t *header, size_t header_length,
                        uint32_t payload_length) {
    rs_data_header h;
    rs_error error = {0};
    if (all->hearing == 0 || all->payload_count == HEARD_MOST || !rs_wire_decode_data(header, header_length, &h) ||
        (h.flags & RS_DATA_REPAIR))
        return NULL;
    fetch *f = all->first;
    while (f && (f->dead || f->hears.fragments == 0 || f->hears.group != group || f->hears.nonce != h.nonce))
        f = f->next;
    if (!f || h.sn >= f->hears.fragments)
        return NULL;
    uint64_t offset = h.sn * f->hears.fragment_size, left = f->size - offset;
    uint32_t length = left < f->hears.fragment_size ? (uint32_t)left : f->hears.fragment_size;
    uint32_t first = (uint32_t)(offset / RS_DIGEST_CHUNK), last = (uint32_t)((offset + length - 1) / RS_DIGEST_CHUNK);
    if (payload_length != length)
        return NULL;
    note_live(f, first);
    if (f->hears.bits[h.sn / 8] >> h.sn % 8 & 1)
        return NULL;
    for (uint32_t piece = first; piece <= last; piece++)
        if (rs_pieces_have(f->object->pieces, piece))
            return NULL; /* it was checked: nothing unchecked is written there */
    if (!rs_store_ensure(all->agent->store, f->object, offset, length, &error))
        return NULL;
    f->hears.bits[h.sn / 8] |= (uint8_t)(1u << h.sn % 8);
    all->payloads[all->payload_count++] = (payload){f, offset, length};
    return f->object->map + offset;
}

/* All of its bytes were heard: it counts, unless they are wrong. */
void rs_hear_piece(fetch *f, uint32_t piece) {
    uint8_t leaf[32];
    if (!f->plan || f->hears.got[piece] != rs_pieces_length(f->object->pieces, piece) ||
        rs_pieces_have(f->object->pieces, piece))
        return;
    if (!rs_digest_leaf(f->root.algorithm, f->object->map, f->size, piece, leaf) ||
        !rs_store_piece_came(f->object, piece, leaf)) {
        f->hears.got[piece] = UINT32_MAX; /* it is fetched */
        rs_piece_plan_wait(f->plan, piece, piece + 1, false);
        return;
    }
    rs_piece_plan_here(f->plan, piece);
    f->heard += rs_pieces_length(f->object->pieces, piece);
    f->progress_at = f->others_at = rs_fetch_now(f);
    if (f->object->pieces->known == f->pieces)
        rs_fetch_all_here(f);
}

void rs_hear_delivered(rs_fetches *all) {
    for (uint32_t i = 0; i < all->payload_count; i++) {
        fetch *f = all->payloads[i].of;
        uint64_t at = all->payloads[i].offset, end = at + all->payloads[i].length;
        while (f && !f->dead && at < end) {
            uint32_t piece = (uint32_t)(at / RS_DIGEST_CHUNK);
            uint64_t border = ((uint64_t)piece + 1) * RS_DIGEST_CHUNK, to = border < end ? border : end;
            if (f->hears.got[piece] != UINT32_MAX)
                f->hears.got[piece] += (uint32_t)(to - at);
            at = to;
            rs_hear_piece(f, piece);
        }
    }
    bool any = all->payload_count > 0;
    all->payload_count = 0;
    if (any)
        rs_fetch_sweep(all);
}

bool rs_hears(const rs_fetches *all, uint64_t nonce) {
    const fetch *f = all->hearing > 0 ? all->first : NULL;
    while (f && (f->dead || f->hears.fragments == 0 || f->hears.nonce != nonce))
        f = f->next;
    return f != NULL;
}

void rs_hear_look(fetch *f) {
    if (f->hears.live && rs_fetch_now(f) - f->hears.at > QUIET) {
        f->hears.live = false;
        if (f->plan)
            rs_piece_plan_wait(f->plan, 0, f->pieces, false);
    }
}
