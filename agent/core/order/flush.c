/* How one view ends and the next begins. The smallest member of the membership's view asks all of it what they have
 * (REQUEST, REPORT), says how the view before ends, for all who were in it alike (INSTALL), waits until all have that
 * (READY), and says that the new view holds (COMMIT). A member that was asked gives out and acknowledges nothing more
 * of the old view, and nothing of an older request counts: so whatever one application was given is in what the next
 * coordinator is told, whoever has crashed meanwhile. */
#include "core/order/flush.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/memory.h"
#include "core/order/delivery.h"

#define REPORT_FIXED (RS_ORDER_HEADER + 80u)
#define REPORT_SENDER 24u
#define REPORT_MEMBER 8u
#define INSTALL_FIXED (RS_ORDER_HEADER + 52u)
#define INSTALL_MEMBER 12u
#define INSTALL_HOLDER 8u
#define RUN 4u

/* A REPORT, read. What it lists is in its bytes. */
typedef struct {
    uint64_t promised, epoch, number, install, from, known;
    uint32_t instance, senders, members, runs;
    const uint8_t *sender_rows, *member_rows, *run_rows;
} report;

bool rs_order_leads(const rs_order *o) {
    return o->wanted_count > 0 && o->wanted[0] == o->config.self;
}

static uint32_t wanted_place(const rs_order *o, rs_peer peer) {
    for (uint32_t i = 0; i < o->wanted_count; i++)
        if (o->wanted[i] == peer)
            return i;
    return UINT32_MAX;
}

void rs_order_install_free(rs_order *o) {
    rs_memory_give(&o->allocator, o->install.members);
    rs_memory_give(&o->allocator, o->install.holders);
    memset(&o->install, 0, sizeof o->install);
}

void rs_order_flush_end(rs_order *o) {
    rs_order_flush *f = &o->flush;
    for (uint32_t i = 0; f->reports && i < o->wanted_count; i++)
        rs_order_block_drop(o, f->reports[i]);
    rs_memory_give(&o->allocator, f->reports);
    rs_memory_give(&o->allocator, f->ready);
    rs_order_block_drop(o, f->proposal);
    memset(f, 0, sizeof *f);
}

static void tick_soon(rs_order *o, rs_time now) {
    o->tick_at = now < o->tick_at ? now : o->tick_at;
}

/* ------------------------------------------------------------------------------------------------------- reports */

/* Runs of a part of the log; how many. `at` may be NULL. */
static uint32_t put_runs(const uint16_t *log, uint64_t room, uint64_t from, uint64_t to, uint8_t **at) {
    uint32_t runs = 0;
    for (uint64_t g = from; g < to; runs++) {
        uint16_t which = log[g & (room - 1)];
        uint32_t count = 0;
        for (; g < to && log[g & (room - 1)] == which && count < UINT16_MAX; g++)
            count++;
        if (at) {
            *at = rs_le_put(*at, which, 2);
            *at = rs_le_put(*at, count, 2);
        }
    }
    return runs;
}

/* What this member has; `epoch` is the one asked for, 0: nobody has asked. */
static rs_order_block *make_report(rs_order *o, uint64_t epoch) {
    const rs_order_install *in = &o->install;
    bool prepared = in->epoch && in->ready;
    uint32_t runs = put_runs(o->log, o->log_room, o->committed, o->known, NULL), members = prepared ? in->count : 0;
    uint32_t length = REPORT_FIXED + o->sender_count * REPORT_SENDER + members * REPORT_MEMBER + runs * RUN;
    rs_order_block *block = rs_order_block_new(o, length, RS_ORDER_KIND_REPORT, epoch);
    if (!block)
        return NULL;
    uint8_t *at = rs_le_put(block->bytes + RS_ORDER_HEADER, o->promised, 8);
    at = rs_le_put(at, o->epoch, 8);
    at = rs_le_put(at, o->base, 8);
    at = rs_le_put(at, prepared ? in->epoch : 0, 8);
    at = rs_le_put(at, o->committed, 8);
    at = rs_le_put(at, o->known, 8);
    at = rs_le_put(at, o->config.instance, 4);
    at = rs_le_put(at, o->sender_count, 4);
    at = rs_le_put(at, members, 4);
    at = rs_le_put(at, runs, 4);
    at = rs_le_put(at, 0, 8);
    at = rs_le_put(at, 0, 8);
    for (uint32_t i = 0; i < o->sender_count; i++) {
        const rs_order_sender *s = &o->senders[i];
        at = rs_le_put(at, s->is.peer, 4);
        at = rs_le_put(at, s->is.instance, 4);
        at = rs_le_put(at, s->have, 8);
        at = rs_le_put(at, s->committed, 8);
    }
    for (uint32_t i = 0; i < members; i++) {
        at = rs_le_put(at, in->members[i].peer, 4);
        at = rs_le_put(at, in->members[i].instance, 4);
    }
    put_runs(o->log, o->log_room, o->committed, o->known, &at);
    rs_order_seal(block);
    return block;
}

static bool read_report(const uint8_t *bytes, size_t length, report *out) {
    if (length < REPORT_FIXED)
        return false;
    const uint8_t *at = bytes + RS_ORDER_HEADER;
    out->promised = rs_le_take(&at, 8);
    out->epoch = rs_le_take(&at, 8);
    out->number = rs_le_take(&at, 8);
    out->install = rs_le_take(&at, 8);
    out->from = rs_le_take(&at, 8);
    out->known = rs_le_take(&at, 8);
    out->instance = (uint32_t)rs_le_take(&at, 4);
    out->senders = (uint32_t)rs_le_take(&at, 4);
    out->members = (uint32_t)rs_le_take(&at, 4);
    out->runs = (uint32_t)rs_le_take(&at, 4);
    if (out->senders > RS_ORDER_MEMBERS_MOST || out->members > RS_ORDER_MEMBERS_MOST || out->runs > length ||
        length != REPORT_FIXED + (size_t)out->senders * REPORT_SENDER + (size_t)out->members * REPORT_MEMBER +
                      (size_t)out->runs * RUN ||
        out->instance == 0 || out->from > out->known)
        return false;
    out->sender_rows = bytes + REPORT_FIXED;
    out->member_rows = out->sender_rows + (size_t)out->senders * REPORT_SENDER;
    out->run_rows = out->member_rows + (size_t)out->members * REPORT_MEMBER;
    uint64_t count = 0;
    for (uint32_t i = 0; i < out->runs; i++) {
        if (rs_le_get(out->run_rows + (size_t)i * RUN, 2) >= out->senders)
            return false;
        count += rs_le_get(out->run_rows + (size_t)i * RUN + 2, 2);
    }
    return count == out->known - out->from;
}

static report report_of(const rs_order *o, uint32_t place) {
    report r = {0};
    const rs_order_block *block = o->flush.reports[place];
    (void)read_report(block->bytes, block->length, &r);
    return r;
}

/* ------------------------------------------------------------------------------------------------ the coordinator */

static void send_small(rs_order *o, rs_peer to, rs_order_kind kind, uint64_t epoch) {
    rs_order_block *block = rs_order_block_new(o, RS_ORDER_HEADER, kind, epoch);
    if (!block)
        return;
    rs_order_seal(block);
    rs_order_send(o, to, block);
}

static void evaluate(rs_order *o, rs_time now);
static void commit(rs_order *o, rs_time now, uint64_t epoch);
static bool take_install(rs_order *o, rs_time now, uint64_t epoch, const uint8_t *bytes, size_t length);

static bool all_reported(const rs_order *o) {
    for (uint32_t i = 0; i < o->wanted_count; i++)
        if (!o->flush.reports[i])
            return false;
    return true;
}

static void forget_report(rs_order *o, uint32_t place) {
    rs_order_block_drop(o, o->flush.reports[place]);
    o->flush.reports[place] = NULL;
}

static void report_self(rs_order *o) {
    uint32_t self = wanted_place(o, o->config.self);
    forget_report(o, self);
    o->flush.reports[self] = make_report(o, o->flush.epoch);
}

void rs_order_flush_begin(rs_order *o, rs_time now, uint64_t epoch) {
    rs_order_flush_end(o);
    rs_order_flush *f = &o->flush;
    f->reports = rs_memory_take(&o->allocator, o->wanted_count * sizeof(rs_order_block *));
    f->ready = rs_memory_take(&o->allocator, o->wanted_count * sizeof *f->ready);
    if (!f->reports || !f->ready) {
        rs_order_flush_end(o); /* again at the next tick */
        return;
    }
    f->epoch = epoch;
    o->promised = epoch > o->promised ? epoch : o->promised;
    o->heard_at = o->frozen ? o->heard_at : now;
    o->frozen = true;
    if (!o->install.ready)
        rs_order_install_free(o);
    o->stats.flushes++;
    send_small(o, RS_NO_PEER, RS_ORDER_KIND_REQUEST, epoch);
    f->again_at = now + o->config.again;
    f->since = now;
    report_self(o);
    tick_soon(o, now);
    if (all_reported(o))
        evaluate(o, now);
}

/* The next attempt within this version of the membership. */
static void attempt(rs_order *o, rs_time now, uint64_t above) {
    uint64_t last = above > o->promised ? above : o->promised;
    last = last > o->epoch ? last : o->epoch;
    uint64_t next = last >> 8 == o->version ? last + 1 : o->version << 8;
    if (next >> 8 == o->version && (next & RS_ORDER_ATTEMPTS) < RS_ORDER_ATTEMPTS)
        rs_order_flush_begin(o, now, next);
}

/* The view of that number was agreed on, or can have been: who has not heard so does now, and reports again. */
static void finish_older(rs_order *o, rs_time now, uint64_t epoch) {
    send_small(o, RS_NO_PEER, RS_ORDER_KIND_COMMIT, epoch);
    for (uint32_t i = 0; i < o->wanted_count; i++)
        if (o->wanted[i] != o->config.self && report_of(o, i).epoch != epoch)
            forget_report(o, i);
    if (o->install.epoch == epoch && o->install.ready)
        commit(o, now, epoch);
    report_self(o);
    send_small(o, RS_NO_PEER, RS_ORDER_KIND_REQUEST, o->flush.epoch);
    o->flush.again_at = now + o->config.again;
    if (all_reported(o))
        evaluate(o, now);
}

/* Of the newest view that somebody is ready for: all of it who are in this one are. */
static bool all_are_ready(const rs_order *o, uint64_t epoch, const report *who) {
    for (uint32_t i = 0; i < who->members; i++) {
        rs_peer peer = (rs_peer)rs_le_get(who->member_rows + (size_t)i * REPORT_MEMBER, 4);
        uint32_t instance = (uint32_t)rs_le_get(who->member_rows + (size_t)i * REPORT_MEMBER + 4, 4);
        uint32_t place = wanted_place(o, peer);
        if (place == UINT32_MAX)
            continue;
        report r = report_of(o, place);
        if (r.instance == instance && r.install != epoch)
            return false;
    }
    return true;
}

typedef struct {
    uint64_t *have, *used;
    uint32_t *holder;
} cut;

/* The log as the view before ends: what the best informed survivor knows, as far as the messages are anywhere, then
 * what is in nobody's log, sender by sender. Returns the runs. */
static uint8_t *end_of_log(rs_order *o, const report *best, cut *c, uint32_t *runs, uint64_t *final) {
    uint8_t *rows = rs_memory_take(&o->allocator, ((size_t)best->runs + 1 + best->senders * 64u) * RUN), *at = rows;
    bool complete = true;
    if (!rows)
        return NULL;
    *runs = 0;
    *final = best->from;
    for (uint32_t i = 0; i < best->runs && complete; i++) {
        uint32_t which = (uint32_t)rs_le_get(best->run_rows + (size_t)i * RUN, 2);
        uint64_t count = rs_le_get(best->run_rows + (size_t)i * RUN + 2, 2);
        complete = c->have[which] - c->used[which] >= count;
        count = complete ? count : c->have[which] - c->used[which];
        if (count == 0)
            continue;
        c->used[which] += count;
        *final += count;
        at = rs_le_put(at, which, 2);
        at = rs_le_put(at, count, 2);
        ++*runs;
    }
    for (uint32_t which = 0; which < best->senders; which++)
        for (uint32_t i = 0; i < 64 && c->used[which] < c->have[which]; i++) {
            uint64_t count = c->have[which] - c->used[which];
            count = count < UINT16_MAX ? count : UINT16_MAX;
            c->used[which] += count;
            *final += count;
            at = rs_le_put(at, which, 2);
            at = rs_le_put(at, count, 2);
            ++*runs;
        }
    return rows;
}

/* For each sender of the view before: up to where somebody has its messages, and who. */
static void find_cut(const rs_order *o, uint64_t before, const report *best, cut *c) {
    for (uint32_t s = 0; s < best->senders; s++) {
        const uint8_t *row = best->sender_rows + (size_t)s * REPORT_SENDER;
        c->used[s] = rs_le_get(row + 16, 8);
        c->holder[s] = RS_NO_PEER;
        for (uint32_t i = 0; i < o->wanted_count; i++) {
            report r = report_of(o, i);
            if (r.epoch != before || r.senders != best->senders)
                continue;
            uint64_t have = rs_le_get(r.sender_rows + (size_t)s * REPORT_SENDER + 8, 8);
            if (c->holder[s] == RS_NO_PEER || have > c->have[s]) {
                c->have[s] = have;
                c->holder[s] = o->wanted[i];
            }
        }
        c->have[s] = c->have[s] > c->used[s] ? c->have[s] : c->used[s];
    }
}

static rs_order_block *encode_install(rs_order *o, uint64_t before, uint64_t base, const report *best, const cut *c,
                                      const uint8_t *rows, uint32_t runs, uint64_t final) {
    uint32_t holders = before ? best->senders : 0;
    uint32_t length = INSTALL_FIXED + o->wanted_count * INSTALL_MEMBER + holders * INSTALL_HOLDER + runs * RUN;
    rs_order_block *block = rs_order_block_new(o, length, RS_ORDER_KIND_INSTALL, o->flush.epoch);
    if (!block)
        return NULL;
    uint8_t *at = rs_le_put(block->bytes + RS_ORDER_HEADER, before, 8);
    at = rs_le_put(at, base, 8);
    at = rs_le_put(at, before ? best->from : 0, 8);
    at = rs_le_put(at, final, 8);
    at = rs_le_put(at, o->wanted_count, 4);
    at = rs_le_put(at, holders, 4);
    at = rs_le_put(at, runs, 4);
    at = rs_le_put(at, 0, 8);
    for (uint32_t i = 0; i < o->wanted_count; i++) {
        report r = report_of(o, i);
        at = rs_le_put(at, o->wanted[i], 4);
        at = rs_le_put(at, r.instance, 4);
        at = rs_le_put(at, before && r.epoch == before, 4);
    }
    for (uint32_t i = 0; i < holders; i++) {
        at = rs_le_put(at, rs_le_get(best->sender_rows + (size_t)i * REPORT_SENDER, 4), 4);
        at = rs_le_put(at, c->holder[i], 4);
    }
    if (runs)
        memcpy(at, rows, (size_t)runs * RUN);
    rs_order_seal(block);
    return block;
}

/* All have reported, and those who were in the newest view are all in it: how it ends. */
static void propose(rs_order *o, rs_time now, uint64_t before) {
    report best = {0};
    uint64_t base = 0;
    for (uint32_t i = 0; i < o->wanted_count; i++) {
        report r = report_of(o, i);
        if (before == 0)
            base = r.number > base ? r.number : base;
        else if (r.epoch == before && (!best.sender_rows || r.known > best.known))
            best = r;
    }
    cut c = {0};
    uint8_t *rows = NULL;
    uint32_t runs = 0;
    uint64_t final = 0;
    bool room = true;
    if (before) {
        c.have = rs_memory_take(&o->allocator, best.senders * sizeof *c.have);
        c.used = rs_memory_take(&o->allocator, best.senders * sizeof *c.used);
        c.holder = rs_memory_take(&o->allocator, best.senders * sizeof *c.holder);
        room = c.have && c.used && c.holder;
        if (room) {
            find_cut(o, before, &best, &c);
            rows = end_of_log(o, &best, &c, &runs, &final);
        }
        room = rows != NULL;
        base = best.number + final;
    }
    o->flush.proposal = room ? encode_install(o, before, base, &best, &c, rows, runs, final) : NULL;
    rs_memory_give(&o->allocator, c.have);
    rs_memory_give(&o->allocator, c.used);
    rs_memory_give(&o->allocator, c.holder);
    rs_memory_give(&o->allocator, rows);
    if (!o->flush.proposal)
        return; /* again at the next tick */
    o->flush.installing = true;
    o->flush.again_at = now + o->config.again;
    o->flush.proposal->holders++;
    rs_order_block *proposal = o->flush.proposal;
    if (o->wanted_count > 1) {
        proposal->holders++;
        rs_order_send(o, RS_NO_PEER, proposal);
    }
    (void)take_install(o, now, o->flush.epoch, proposal->bytes, proposal->length);
    rs_order_block_drop(o, proposal);
}

static void evaluate(rs_order *o, rs_time now) {
    uint64_t newest = 0, next = 0, above = 0;
    uint32_t who = 0;
    for (uint32_t i = 0; i < o->wanted_count; i++) {
        report r = report_of(o, i);
        newest = r.epoch > newest ? r.epoch : newest;
        above = r.promised > above ? r.promised : above;
        if (r.install > next) {
            next = r.install;
            who = i;
        }
    }
    if (above > o->flush.epoch || newest > o->flush.epoch) {
        attempt(o, now, above > newest ? above : newest);
        return;
    }
    for (uint32_t i = 0; i < o->wanted_count; i++) {
        report r = report_of(o, i);
        if (r.epoch != newest && r.install == newest && newest) {
            finish_older(o, now, newest);
            return;
        }
    }
    const report ready = report_of(o, who);
    if (next > newest && all_are_ready(o, next, &ready)) {
        finish_older(o, now, next);
        return;
    }
    propose(o, now, newest);
}

static void look_at_ready(rs_order *o, rs_time now) {
    rs_order_flush *f = &o->flush;
    if (!f->epoch || !f->installing || !o->install.ready || o->install.epoch != f->epoch)
        return;
    for (uint32_t i = 0; i < o->wanted_count; i++)
        if (!f->ready[i] && o->wanted[i] != o->config.self)
            return;
    uint64_t epoch = f->epoch;
    if (o->wanted_count > 1)
        send_small(o, RS_NO_PEER, RS_ORDER_KIND_COMMIT, epoch);
    rs_order_flush_end(o);
    commit(o, now, epoch);
}

/* ------------------------------------------------------------------------------------------------------ a member */

static void send_report(rs_order *o, rs_time now, rs_peer to, uint64_t epoch) {
    rs_order_block *block = make_report(o, epoch);
    o->report_at = now;
    if (block)
        rs_order_send(o, to, block);
}

static void requested(rs_order *o, rs_time now, rs_peer from, uint64_t epoch) {
    if (epoch >> 8 > o->version) { /* the membership has told the coordinator first */
        o->early_from = from;
        o->early_epoch = epoch;
        return;
    }
    if (o->wanted_count == 0 || from != o->wanted[0] || epoch >> 8 != o->version || rs_order_leads(o))
        return;
    o->heard_at = now;
    if (epoch >= o->promised && epoch > o->epoch) {
        o->promised = epoch;
        o->frozen = true;
        if (o->install.epoch && o->install.epoch < epoch && !o->install.ready)
            rs_order_install_free(o);
    }
    send_report(o, now, from, epoch);
    tick_soon(o, now);
}

/* The log as INSTALL says it ends, behind what is known here. */
static bool extend_log(rs_order *o, uint64_t from, uint64_t final, const uint8_t *rows, uint32_t runs) {
    if (from > o->known || !rs_order_log_room(o, final > o->known ? final : o->known))
        return false;
    /* What is known here behind `from` and not in what counts was nobody's who is in the next view: told again. */
    for (uint32_t i = 0; i < o->sender_count; i++)
        o->senders[i].in_log = o->senders[i].in_complete = o->senders[i].committed;
    for (uint64_t g = o->committed; g < from; g++)
        o->senders[o->log[g & (o->log_room - 1)]].in_log++;
    uint64_t g = from;
    for (uint32_t i = 0; i < runs; i++) {
        uint16_t which = (uint16_t)rs_le_get(rows + (size_t)i * RUN, 2);
        uint64_t count = rs_le_get(rows + (size_t)i * RUN + 2, 2);
        for (uint64_t j = 0; j < count; j++, g++)
            if (g >= o->committed) {
                o->log[g & (o->log_room - 1)] = which;
                o->senders[which].in_log++;
            }
    }
    o->known = final;
    o->complete = o->committed;
    for (uint32_t i = 0; i < o->sender_count; i++) {
        rs_order_sender *s = &o->senders[i];
        s->high = s->in_log > s->have ? s->in_log : s->have;
        s->tries = s->put_off = 0;
        s->gap_at = s->high > s->have ? 1 : 0;
    }
    return true;
}

/* Of which member of the new view each row tells; false: this member is not as it says. */
static bool read_members(rs_order *o, rs_order_install *in, const uint8_t *rows, uint32_t count) {
    bool found = false;
    in->members = rs_memory_take(&o->allocator, count * sizeof *in->members);
    if (!in->members)
        return false;
    in->count = count;
    for (uint32_t i = 0; i < count; i++, rows += INSTALL_MEMBER) {
        rs_order_member *m = &in->members[i];
        *m = (rs_order_member){.peer = (rs_peer)rs_le_get(rows, 4),
                               .instance = (uint32_t)rs_le_get(rows + 4, 4),
                               .survivor = rs_le_get(rows + 8, 4) != 0};
        if (i > 0 && m->peer <= in->members[i - 1].peer)
            return false;
        if (m->peer == o->config.self) {
            found = m->instance == o->config.instance;
            in->survivor = m->survivor;
        }
    }
    return found && (!in->survivor || in->before == o->epoch);
}

static bool read_holders(rs_order *o, rs_order_install *in, const uint8_t *rows, uint32_t count) {
    if (!in->survivor)
        return true;
    in->holders = rs_memory_take(&o->allocator, (count + 1) * sizeof *in->holders);
    if (!in->holders || count != o->sender_count)
        return false;
    for (uint32_t i = 0; i < count; i++, rows += INSTALL_HOLDER) {
        if (rs_le_get(rows, 4) != o->senders[i].is.peer)
            return false;
        in->holders[i] = (rs_peer)rs_le_get(rows + 4, 4);
    }
    return true;
}

/* False: malformed. */
static bool take_install(rs_order *o, rs_time now, uint64_t epoch, const uint8_t *bytes, size_t length) {
    if (length < INSTALL_FIXED)
        return false;
    rs_order_install in = {.epoch = epoch};
    const uint8_t *at = bytes + RS_ORDER_HEADER;
    in.before = rs_le_take(&at, 8);
    in.base = rs_le_take(&at, 8);
    uint64_t from = rs_le_take(&at, 8);
    in.final = rs_le_take(&at, 8);
    uint32_t members = (uint32_t)rs_le_take(&at, 4), holders = (uint32_t)rs_le_take(&at, 4);
    uint32_t runs = (uint32_t)rs_le_take(&at, 4);
    if (members == 0 || members > RS_ORDER_MEMBERS_MOST || holders > RS_ORDER_MEMBERS_MOST || runs > length ||
        length !=
            INSTALL_FIXED + (size_t)members * INSTALL_MEMBER + (size_t)holders * INSTALL_HOLDER + (size_t)runs * RUN)
        return false;
    const uint8_t *member_rows = bytes + INSTALL_FIXED;
    const uint8_t *holder_rows = member_rows + (size_t)members * INSTALL_MEMBER;
    const uint8_t *run_rows = holder_rows + (size_t)holders * INSTALL_HOLDER;
    uint64_t count = 0;
    for (uint32_t i = 0; i < runs; i++) {
        if (rs_le_get(run_rows + (size_t)i * RUN, 2) >= holders)
            return false;
        count += rs_le_get(run_rows + (size_t)i * RUN + 2, 2);
    }
    if (in.final < from || count != in.final - from)
        return false;
    if (o->install.epoch == epoch) {
        o->ready_at = o->install.ready ? 0 : o->ready_at; /* told again */
        tick_soon(o, now);
        return true;
    }
    rs_order_install was = o->install;
    bool good = read_members(o, &in, member_rows, members) && read_holders(o, &in, holder_rows, holders) &&
                (!in.survivor || extend_log(o, from, in.final, run_rows, runs));
    if (!good) {
        rs_memory_give(&o->allocator, in.members);
        rs_memory_give(&o->allocator, in.holders);
        return true; /* of what this member is not, or no more */
    }
    rs_memory_give(&o->allocator, was.members);
    rs_memory_give(&o->allocator, was.holders);
    o->install = in;
    o->promised = epoch;
    o->frozen = true;
    rs_order_advance(o, now);
    rs_order_install_look(o, now);
    tick_soon(o, now);
    return true;
}

static void say_ready(rs_order *o, rs_time now) {
    o->ready_at = now;
    if (!rs_order_leads(o))
        send_small(o, o->wanted[0], RS_ORDER_KIND_READY, o->install.epoch);
}

void rs_order_install_look(rs_order *o, rs_time now) {
    rs_order_install *in = &o->install;
    if (!in->epoch || in->ready)
        return;
    if (in->survivor) {
        rs_order_advance(o, now);
        if (o->complete < in->final)
            return;
    }
    in->ready = true;
    say_ready(o, now);
    if (o->flush.epoch == in->epoch)
        look_at_ready(o, now);
}

/* ------------------------------------------------------------------------------------------------- the view holds */

static bool was_in(const rs_order *o, const rs_order_member *m) {
    for (uint32_t i = 0; i < o->sender_count; i++)
        if (o->senders[i].is.peer == m->peer)
            return o->senders[i].is.instance == m->instance;
    return false;
}

/* Members, who joined, who left, as the application is told. */
static bool view_event(rs_order *o, const rs_order_install *in, rs_order_waiting *event) {
    rs_peer *peers = rs_memory_take(&o->allocator, (2 * (size_t)in->count + o->sender_count + 1) * sizeof *peers);
    if (!peers)
        return false;
    *event = (rs_order_waiting){.kind = RS_ORDER_VIEW,
                                .number = in->base,
                                .view = in->epoch,
                                .peers = peers,
                                .member_count = in->count,
                                .anew = !in->survivor,
                                .primary = true};
    for (uint32_t i = 0; i < in->count; i++)
        *peers++ = in->members[i].peer;
    for (uint32_t i = 0; i < in->count; i++)
        if (!in->members[i].survivor || (in->survivor && !was_in(o, &in->members[i]))) {
            *peers++ = in->members[i].peer;
            event->joined_count++;
        }
    for (uint32_t i = 0; in->survivor && i < o->sender_count; i++) {
        bool stays = false;
        for (uint32_t j = 0; j < in->count && !stays; j++)
            stays = in->members[j].peer == o->senders[i].is.peer &&
                    in->members[j].instance == o->senders[i].is.instance && in->members[j].survivor;
        if (!stays) {
            *peers++ = o->senders[i].is.peer;
            event->left_count++;
        }
    }
    return true;
}

static void commit(rs_order *o, rs_time now, uint64_t epoch) {
    rs_order_install *in = &o->install;
    rs_order_waiting event;
    rs_order_sender *senders = rs_memory_take(&o->allocator, in->count * sizeof *senders);
    if (!senders || !view_event(o, in, &event)) {
        rs_memory_give(&o->allocator, senders);
        return; /* READY is said again, and so is COMMIT */
    }
    if (in->survivor) {
        rs_order_commit_to(o, in->final);
    }
    (void)rs_order_push(o, &event);
    for (uint32_t i = 0; i < in->count; i++) {
        senders[i].is = in->members[i];
        senders[i].heard_at = now;
    }
    rs_order_view_free(o);
    o->senders = senders;
    o->sender_count = in->count;
    for (uint32_t i = 0; i < in->count; i++)
        if (in->members[i].peer == o->config.self)
            o->self = i;
    o->epoch = epoch;
    o->base = in->base;
    o->frozen = o->promised > epoch;
    o->primary = true;
    o->heard_at = o->ran_at = now;
    o->told_at = o->ack_at = now;
    o->stats.views++;
    rs_order_install_free(o);
    tick_soon(o, now);
}

void rs_order_implied(rs_order *o, rs_time now, uint64_t epoch) {
    if (o->install.epoch == epoch && o->install.ready && o->flush.epoch != epoch)
        commit(o, now, epoch);
}

/* ------------------------------------------------------------------------------------------------------- arrival */

static bool reported(rs_order *o, rs_time now, rs_peer from, uint64_t epoch, const uint8_t *bytes, size_t length) {
    report r;
    if (!read_report(bytes, length, &r))
        return false;
    uint32_t place = wanted_place(o, from);
    rs_order_flush *f = &o->flush;
    if (place == UINT32_MAX || !rs_order_leads(o))
        return true;
    if (epoch == 0 && f->epoch && !f->installing && !f->reports[place]) {
        send_small(o, from, RS_ORDER_KIND_REQUEST, f->epoch); /* it was not there yet when all were asked */
        return true;
    }
    if (!f->epoch) {
        for (uint32_t i = 0; i < o->sender_count; i++)
            if (o->senders[i].is.peer == from && o->senders[i].is.instance == r.instance &&
                (r.epoch == o->epoch || r.install == o->epoch))
                return true;
        if (epoch == 0 && o->epoch >> 8 == o->version)
            attempt(o, now, r.promised >> 8 == o->version ? r.promised : 0); /* it is new here, or was left out */
        return true;
    }
    if (f->installing) {
        if (report_of(o, place).instance != r.instance)
            attempt(o, now, r.promised >> 8 == o->version ? r.promised : 0);
        return true;
    }
    if (epoch != f->epoch || r.promised >> 8 > o->version)
        return true;
    rs_order_block *block = rs_memory_take(&o->allocator, sizeof *block + length);
    if (!block)
        return true;
    block->holders = 1;
    block->length = (uint32_t)length;
    memcpy(block->bytes, bytes, length);
    forget_report(o, place);
    f->reports[place] = block;
    report_self(o);
    if (all_reported(o))
        evaluate(o, now);
    return true;
}

bool rs_order_flush_receive(rs_order *o, rs_time now, rs_peer from, rs_order_kind kind, uint64_t epoch,
                            const uint8_t *bytes, size_t length) {
    if (kind == RS_ORDER_KIND_REPORT)
        return reported(o, now, from, epoch, bytes, length);
    if (kind == RS_ORDER_KIND_INSTALL) {
        if (length < INSTALL_FIXED)
            return false;
        if (o->wanted_count == 0 || from != o->wanted[0] || epoch >> 8 != o->version || rs_order_leads(o) ||
            epoch < o->promised || epoch <= o->epoch)
            return true;
        o->heard_at = now;
        return take_install(o, now, epoch, bytes, length);
    }
    if (length != RS_ORDER_HEADER)
        return false;
    if (kind == RS_ORDER_KIND_REQUEST) {
        requested(o, now, from, epoch);
    } else if (kind == RS_ORDER_KIND_READY) {
        uint32_t place = wanted_place(o, from);
        if (o->flush.epoch == epoch && o->flush.installing && place != UINT32_MAX) {
            o->flush.ready[place] = true;
            look_at_ready(o, now);
        } else if (o->epoch == epoch && epoch) {
            send_small(o, from, RS_ORDER_KIND_COMMIT, epoch);
        }
    } else if (kind == RS_ORDER_KIND_COMMIT) {
        o->heard_at = now;
        if (o->install.epoch == epoch && o->install.ready && o->flush.epoch != epoch)
            commit(o, now, epoch);
    } else {
        return false;
    }
    return true;
}

/* -------------------------------------------------------------------------------------------------------- timers */

static void coordinator_again(rs_order *o, rs_time now) {
    rs_order_flush *f = &o->flush;
    f->again_at = now + o->config.again;
    if (!f->installing) {
        if (all_reported(o))
            evaluate(o, now);
        else
            send_small(o, RS_NO_PEER, RS_ORDER_KIND_REQUEST, f->epoch);
    } else {
        f->proposal->holders++;
        rs_order_send(o, RS_NO_PEER, f->proposal);
    }
}

void rs_order_flush_tick(rs_order *o, rs_time now) {
    if (rs_order_leads(o)) {
        if (!o->flush.epoch && o->epoch >> 8 != o->version)
            attempt(o, now, 0);
        else if (o->flush.epoch && now >= o->flush.again_at)
            coordinator_again(o, now);
    } else if (o->install.ready) {
        if (now - o->ready_at >= o->config.again)
            say_ready(o, now);
    } else if (!o->install.epoch && o->epoch >> 8 != o->version && now - o->report_at >= 4 * o->config.again) {
        send_report(o, now, o->wanted[0], 0); /* nobody asks: is this member forgotten? */
    }
}

static int by_number(const void *a, const void *b) {
    rs_peer x = *(const rs_peer *)a, y = *(const rs_peer *)b;
    return x < y ? -1 : x > y;
}

rs_status rs_order_view(rs_order *o, rs_time now, uint64_t version, const rs_peer *members, uint32_t count) {
    if (count == 0 || version > UINT64_MAX >> 8)
        return RS_ERR_INVALID;
    if (version <= o->version)
        return RS_ERR_STATE;
    if (count > RS_ORDER_MEMBERS_MOST)
        return RS_ERR_LIMIT;
    rs_peer *wanted = rs_memory_take(&o->allocator, count * sizeof *wanted);
    if (!wanted)
        return RS_ERR_MEMORY;
    memcpy(wanted, members, count * sizeof *wanted);
    qsort(wanted, count, sizeof *wanted, by_number);
    bool good = bsearch(&o->config.self, wanted, count, sizeof *wanted, by_number) != NULL;
    for (uint32_t i = 1; i < count; i++)
        good = good && wanted[i - 1] != wanted[i];
    if (!good) {
        rs_memory_give(&o->allocator, wanted);
        return RS_ERR_INVALID;
    }
    rs_order_flush_end(o);
    rs_memory_give(&o->allocator, o->wanted);
    o->wanted = wanted;
    o->wanted_count = count;
    const bool is_new = o->version == 0;
    if (is_new)
        o->ran_at = o->heard_at = now;
    o->version = version;
    o->report_at = now;
    tick_soon(o, now);
    if (rs_order_leads(o))
        rs_order_flush_begin(o, now, version << 8);
    else if (o->early_epoch >> 8 == version && o->early_from == wanted[0])
        requested(o, now, o->early_from, o->early_epoch);
    else if (is_new) /* what was asked before did not come here */
        send_report(o, now, wanted[0], 0);
    return RS_OK;
}
