#include "daemon/pieces/fetch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/api/waits.h"
#include "daemon/pieces/hear.h"
#include "daemon/pieces/holdings.h"
#include "daemon/pieces/plan.h"
#include "daemon/pieces/state.h"
#include "daemon/pieces/wire.h"
#include "daemon/secure.h"
#include "daemon/store/digest.h"
#include "daemon/units.h"

#define TICK (100 * RS_MILLISECOND)
#define CONNECT_BOUND (2 * RS_SECOND)
#define STALL_BOUND (5 * RS_SECOND)     /* a holder that was asked for pieces and gives nothing */
#define PROGRESS_BOUND (20 * RS_SECOND) /* a fetch to which nobody gives anything */
#define TRIES_MOST 20u                  /* of one holder that may have it yet */
#define FAILED_LATELY (60 * RS_SECOND)  /* so long what is sent is not fetched instead */
#define READ_TURN (1u << 20)
#define ASK_AGAIN RS_SECOND        /* the manager, while nobody gives it */
#define TOLD_BOUND (2 * RS_SECOND) /* what is new at an agent, the manager knows by then */
#define LEFT_LATELY (5 * RS_SECOND)
#define NEVER_BEGAN RS_SECOND /* after a send that ended without making it whole */

rs_time rs_fetch_now(const fetch *f) {
    return rs_agent_now(f->all->agent);
}

static uint32_t width_of(const fetch *f) {
    return rs_manifest_width(f->root.algorithm);
}

/* ------------------------------------------------------------------------------------------------------- holders */

static void forget_bits(holder *h) {
    fetch *f = h->of;
    for (uint32_t piece = 0; f->plan && h->bits && piece < f->pieces; piece++)
        if (h->bits[piece / 8] >> piece % 8 & 1)
            rs_piece_plan_holder(f->plan, piece, false);
    free(h->bits);
    h->bits = NULL;
}

static void hang_up(holder *h) {
    fetch *f = h->of;
    if (h->watch.active) {
        int fd = h->watch.fd;
        rs_loop_unwatch(f->all->agent->loop, &h->watch);
        rs_piece_pipe_end(&h->pipe);
        close(fd);
    }
    forget_bits(h);
    for (uint32_t i = 0; f->plan && f->object && i < h->asked_count; i++)
        if (!rs_pieces_have(f->object->pieces, h->asked[i]))
            rs_piece_plan_again(f->plan, h->asked[i]);
    h->asked_count = 0;
    h->in_length = 0;
    h->in_piece = false;
    if (f->leaves_of == h) {
        f->leaves_of = NULL;
        f->leaves_known = 0;
    }
}

/* It is tried again, unless that is of no use. */
static void lose(holder *h, bool for_good, const char *cause) {
    hang_up(h);
    snprintf(h->cause, sizeof h->cause, "%s", cause);
    bool gone = for_good || h->tries >= TRIES_MOST;
    h->state = gone ? HOLDER_GONE : HOLDER_WAITING;
    h->since = rs_fetch_now(h->of) + (rs_time)(h->tries < 4 ? 1u << h->tries : 16u) * TICK;
    rs_log(RS_LOG_DEBUG, "fetch", "object=%s from=%s lost=%s", rs_id_text(&h->of->id), rs_quote(h->name),
           rs_quote(cause));
}

static void say(holder *h, const rs_piece_message *m) {
    uint8_t bytes[RS_PIECE_HEAD + 512];
    uint32_t length = rs_piece_put(m, bytes);
    /* These are few and small: what the socket does not take at once, nobody reads. */
    if (rs_piece_write(&h->pipe, bytes, length, false) != (ssize_t)length)
        lose(h, false, "it does not read what it is asked");
}

static void fetch_ends(fetch *f, bool ok, const char *cause);
static void holder_ready(void *context, uint32_t events);

static void dial(holder *h) {
    fetch *f = h->of;
    struct sockaddr_in remote = {.sin_family = AF_INET, .sin_port = htons(h->port)}, local = {.sin_family = AF_INET};
    remote.sin_addr.s_addr = htonl(h->address);
    local.sin_addr.s_addr = htonl(f->all->agent->options.address);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    h->tries++;
    h->since = rs_fetch_now(f);
    if (fd >= 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    h->watch = (rs_watch){.ready = holder_ready, .context = h};
    if (fd < 0 || bind(fd, (struct sockaddr *)&local, sizeof local) < 0 ||
        (connect(fd, (struct sockaddr *)&remote, sizeof remote) < 0 && errno != EINPROGRESS) ||
        !rs_piece_pipe_start(&h->pipe, f->all->agent->trust, fd, false, h->name) ||
        !rs_loop_watch(f->all->agent->loop, &h->watch, fd, EPOLLOUT)) {
        int number = errno;
        rs_piece_pipe_end(&h->pipe);
        if (fd >= 0)
            close(fd);
        lose(h, false, strerror(number));
        return;
    }
    h->state = HOLDER_CONNECTING;
}

/* It is dialed at once, or at the next look after `at`. */
static void add_holder(fetch *f, const char *name, uint32_t address, uint16_t port, bool peer, rs_time at) {
    const rs_options *o = &f->all->agent->options;
    if (address == 0 || port == 0 || (address == o->address && port == o->piece_port))
        return;
    for (uint32_t i = 0; i < f->holder_count; i++)
        if (f->holders[i]->address == address && f->holders[i]->port == port)
            return;
    holder *h = f->holder_count < RS_FETCH_HOLDERS_MOST ? calloc(1, sizeof *h) : NULL;
    if (!h)
        return;
    *h = (holder){.of = f, .address = address, .port = port, .peer = peer, .since = at};
    snprintf(h->name, sizeof h->name, "%s", name);
    f->holders[f->holder_count++] = h;
    if (at <= rs_fetch_now(f) && !f->sleeps)
        dial(h);
}

/* ------------------------------------------------------------------------------------------------------- asking */

/* It has the whole of its rate for those it sends to, as long as others give pieces, or may within the first second. */
static bool is_spared(const holder *h) {
    const fetch *f = h->of;
    bool others = false;
    for (uint32_t i = 0; i < f->holder_count; i++)
        others |= !f->holders[i]->sends && f->holders[i]->state != HOLDER_GONE;
    return h->sends && others && rs_fetch_now(f) - f->others_at < RS_SECOND;
}

static void ask_more(holder *h) {
    fetch *f = h->of;
    if (is_spared(h))
        return;
    while (f->plan && h->state == HOLDER_READY && h->bits && h->asked_count < (h->sends ? 1 : WINDOW)) {
        uint32_t piece;
        if (!rs_piece_plan_next(f->plan, h->bits, &piece))
            return;
        if (h->asked_count == 0)
            h->since = rs_fetch_now(f);
        h->asked[h->asked_count++] = piece;
        const rs_piece_message m = {.type = RS_PIECE_WANT, .first = piece};
        say(h, &m);
    }
}

static void ask_all(fetch *f) {
    for (uint32_t i = 0; i < f->holder_count; i++)
        ask_more(f->holders[i]);
}

static void ask_leaves(fetch *f) {
    for (uint32_t i = 0; i < f->holder_count && !f->leaves_of && !f->plan; i++) {
        holder *h = f->holders[i];
        if (h->state != HOLDER_READY || h->no_leaves)
            continue;
        const rs_piece_message m = {.type = RS_PIECE_WANT_LEAVES};
        f->leaves_of = h;
        f->leaves_known = 0;
        h->since = rs_fetch_now(f);
        say(h, &m);
    }
}

/* All digests are here and make the object's: what is kept of it counts, the rest is asked for. */
static void begin_pieces(fetch *f) {
    f->plan = rs_piece_plan_new(f->pieces, f->all->agent->boot ^ f->id.data);
    if (!f->plan) {
        fetch_ends(f, false, "no memory");
        return;
    }
    f->kept = f->object->pieces->bytes;
    for (uint32_t piece = 0; piece < f->pieces; piece++)
        if (rs_pieces_have(f->object->pieces, piece))
            rs_piece_plan_here(f->plan, piece);
    for (uint32_t i = 0; i < f->holder_count; i++)
        for (uint32_t piece = 0; f->holders[i]->bits && piece < f->pieces; piece++)
            if (f->holders[i]->bits[piece / 8] >> piece % 8 & 1)
                rs_piece_plan_holder(f->plan, piece, true);
    if (f->hears.live)
        rs_piece_plan_wait(f->plan, f->hears.upto, f->pieces, true);
    for (uint32_t piece = 0; f->hears.fragments && !f->dead && piece < f->pieces; piece++)
        rs_hear_piece(f, piece);
    if (!f->dead)
        ask_all(f);
}

static bool begin_object(fetch *f, const holder *h, rs_error *error) {
    rs_manifest what = {.id = f->id,
                        .size = f->size,
                        .algorithm = f->root.algorithm,
                        .root = f->root,
                        .from_address = h->address,
                        .from_port = (uint16_t)(h->port - 1)};
    snprintf(what.from, sizeof what.from, "%s", h->name);
    f->object = rs_store_receive_pieces(f->all->agent->store, &what, error);
    f->leaves = f->object ? calloc((size_t)f->pieces + 1, width_of(f)) : NULL;
    if (f->object && !f->leaves)
        return rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "no memory for the digests of its pieces");
    return f->object != NULL;
}

/* The first that has it says what it is; whoever says otherwise later is not asked. */
static void holder_has(holder *h, const rs_piece_message *m) {
    fetch *f = h->of;
    rs_error error = {0};
    uint64_t pieces = m->size / RS_DIGEST_CHUNK + (m->size % RS_DIGEST_CHUNK != 0);
    if (rs_manifest_width(m->root.algorithm) == 0 || m->root.length != rs_manifest_width(m->root.algorithm) ||
        m->size > INT64_MAX / 2 || pieces > UINT32_MAX || h->state != HOLDER_ASKED) {
        lose(h, true, "what it says of the object makes no sense");
        return;
    }
    if (f->root.length > 0 && (!rs_digest_equal(&f->root, &m->root) || (f->object && f->size != m->size))) {
        lose(h, true, "it has another object by that id");
        return;
    }
    if (!f->object) {
        f->size = m->size;
        f->pieces = (uint32_t)pieces;
        f->root = m->root;
        if (!begin_object(f, h, &error)) {
            fetch_ends(f, false, error.text);
            return;
        }
    }
    h->state = HOLDER_READY;
    h->no_leaves = m->no_leaves;
    h->tries = 0;
    h->bits = calloc((size_t)f->pieces / 8 + 1, 1);
    if (!h->bits) {
        lose(h, true, "no memory");
        return;
    }
    if (m->complete)
        memset(h->bits, 0xff, (size_t)f->pieces / 8 + 1);
    for (uint32_t piece = 0; f->plan && m->complete && piece < f->pieces; piece++)
        rs_piece_plan_holder(f->plan, piece, true);
    if (f->pieces == 0)
        rs_fetch_all_here(f);
    else if (!f->plan)
        ask_leaves(f);
    else
        ask_more(h);
}

static void holder_leaves(holder *h, const rs_piece_message *m) {
    fetch *f = h->of;
    uint32_t width = width_of(f);
    if (f->leaves_of != h || m->first != f->leaves_known || m->count > f->pieces - f->leaves_known ||
        m->length != m->count * width) {
        lose(h, true, "its digests of pieces make no sense");
        ask_leaves(f);
        return;
    }
    memcpy(f->leaves + (size_t)m->first * width, m->bytes, m->length);
    f->leaves_known += m->count;
    h->since = f->progress_at = rs_fetch_now(f);
    if (f->leaves_known < f->pieces)
        return;
    if (rs_pieces_confirm(f->object->pieces, f->leaves, &f->root)) {
        f->leaves_of = NULL;
        begin_pieces(f);
        if (!f->dead && f->object->pieces->known == f->pieces)
            rs_fetch_all_here(f);
    } else {
        lose(h, true, "its digests of pieces do not make the object's");
        ask_leaves(f);
    }
}

static void holder_have(holder *h, const rs_piece_message *m) {
    fetch *f = h->of;
    if (!h->bits || m->first > f->pieces || m->count > f->pieces - m->first) {
        lose(h, true, "it says that it has pieces that there are not");
        return;
    }
    for (uint32_t i = 0; i < m->count; i++) {
        uint32_t piece = m->first + i;
        uint8_t bit = (uint8_t)(1u << piece % 8);
        if (!(m->bytes[i / 8] >> i % 8 & 1) || (h->bits[piece / 8] & bit))
            continue;
        h->bits[piece / 8] |= bit;
        if (f->plan)
            rs_piece_plan_holder(f->plan, piece, true);
        else
            f->progress_at = rs_fetch_now(f); /* it gives them once it has the digests */
    }
    ask_more(h);
}

/* ------------------------------------------------------------------------------------------------------- pieces */

void rs_fetch_all_here(fetch *f) {
    rs_agent *agent = f->all->agent;
    rs_object *object = f->object;
    rs_error error = {0};
    rs_digest found;
    if (!rs_digest_of_leaves(f->root.algorithm, f->leaves, f->pieces, &found) || !rs_digest_equal(&found, &f->root)) {
        fetch_ends(f, false, "its pieces do not make its digest");
        return;
    }
    if (!rs_store_commit(agent->store, object, &f->root, &error)) {
        fetch_ends(f, false, error.text);
        return;
    }
    rs_store_keep_leaves(object, f->leaves, f->pieces);
    f->leaves = NULL;
    f->object = NULL;
    fetch_ends(f, true, "");
}

/* asked[0] is whole in its place: right, or the holder is not asked any more. */
static void piece_done(holder *h) {
    fetch *f = h->of;
    rs_agent *agent = f->all->agent;
    uint32_t piece = h->asked[0];
    uint8_t leaf[32];
    h->in_piece = false;
    h->since = f->progress_at = rs_fetch_now(f);
    bool heard = rs_pieces_have(f->object->pieces, piece); /* meanwhile */
    if (heard && (!rs_digest_leaf(f->root.algorithm, f->object->map, f->size, piece, leaf) ||
                  memcmp(leaf, f->leaves + (size_t)piece * width_of(f), width_of(f)) != 0)) {
        rs_store_piece_gone(f->object, piece); /* what came last has spoilt it */
        rs_piece_plan_again(f->plan, piece);
        heard = false;
    }
    if (heard) {
        memmove(h->asked, h->asked + 1, --h->asked_count * sizeof h->asked[0]);
        ask_more(h);
        return;
    }
    if (!rs_digest_leaf(f->root.algorithm, f->object->map, f->size, piece, leaf) ||
        !rs_store_piece_came(f->object, piece, leaf)) {
        agent->fetch_wrong++;
        rs_log(RS_LOG_WARNING, "fetch", "object=%s piece=%u from=%s has a wrong digest: it is not asked any more",
               rs_id_text(&f->id), piece, rs_quote(h->name));
        lose(h, true, "a piece of it had a wrong digest");
        ask_all(f);
        return;
    }
    memmove(h->asked, h->asked + 1, --h->asked_count * sizeof h->asked[0]);
    rs_piece_plan_here(f->plan, piece);
    f->fetched += h->piece_length;
    h->given += h->piece_length;
    f->others_at = h->sends ? f->others_at : rs_fetch_now(f);
    agent->fetched_bytes += h->piece_length;
    if (f->object->pieces->known == f->pieces)
        rs_fetch_all_here(f);
    else
        ask_more(h);
}

/* A piece begins; answers come in the order of requests. */
static void piece_begins(holder *h, uint32_t piece, uint32_t length) {
    fetch *f = h->of;
    rs_error error = {0};
    if (!f->plan || h->asked_count == 0 || h->asked[0] != piece ||
        length != rs_pieces_length(f->object->pieces, piece)) {
        lose(h, true, "it gives what it was not asked for");
        return;
    }
    if (!rs_store_ensure(f->all->agent->store, f->object, (uint64_t)piece * RS_DIGEST_CHUNK, length, &error)) {
        fetch_ends(f, false, error.text);
        return;
    }
    h->in_piece = true;
    h->piece_got = 0;
    h->piece_length = length;
}

static uint8_t *piece_at(const holder *h) {
    return h->of->object->map + (uint64_t)h->asked[0] * RS_DIGEST_CHUNK + h->piece_got;
}

/* ------------------------------------------------------------------------------------------------------- reading */

static void take(holder *h, const rs_piece_message *m) {
    switch (m->type) {
    case RS_PIECE_HAS:
        holder_has(h, m);
        break;
    case RS_PIECE_NO:
        lose(h, m->gone && !h->peer, m->text);
        break;
    case RS_PIECE_LEAVES:
        holder_leaves(h, m);
        break;
    case RS_PIECE_HAVE:
        holder_have(h, m);
        break;
    case RS_PIECE_KEY:
        rs_secure_hear(h->of->all->agent, m);
        break;
    case RS_PIECE_RUNS:
        h->sends = true;
        rs_hear(h->of, m);
        break;
    case RS_PIECE_PEER:
        add_holder(h->of, m->name, m->address, m->port, true, 0);
        break;
    default:
        lose(h, true, "it asks instead of answering");
    }
}

/* What is in `in`: whole messages, and the beginning of a piece. */
static void take_input(holder *h) {
    fetch *f = h->of;
    size_t used = 0;
    while (!f->dead && h->watch.active && !h->in_piece && h->in_length - used >= RS_PIECE_HEAD) {
        uint8_t type;
        uint32_t length;
        rs_piece_message m;
        const uint8_t *body = h->in + used + RS_PIECE_HEAD;
        size_t here = h->in_length - used - RS_PIECE_HEAD;
        if (!rs_piece_take_head(h->in + used, &type, &length)) {
            lose(h, true, "it speaks another protocol");
            return;
        }
        uint32_t body_length = type == RS_PIECE_PIECE ? 4 : length;
        if (here < body_length)
            break;
        if (!rs_piece_take(type, body, body_length, &m)) {
            lose(h, true, "it said something malformed");
            return;
        }
        used += RS_PIECE_HEAD + body_length;
        if (type != RS_PIECE_PIECE) {
            take(h, &m);
            continue;
        }
        piece_begins(h, m.first, length - 4);
        if (f->dead || !h->in_piece)
            return;
        size_t some = h->in_length - used < h->piece_length ? h->in_length - used : h->piece_length;
        memcpy(piece_at(h), h->in + used, some);
        h->piece_got = (uint32_t)some;
        used += some;
        if (h->piece_got == h->piece_length)
            piece_done(h);
    }
    if (f->dead || !h->watch.active)
        return;
    memmove(h->in, h->in + used, h->in_length - used);
    h->in_length -= used;
}

/* False: nothing more is there, or it is over. */
static bool read_some(holder *h, uint32_t *budget) {
    fetch *f = h->of;
    uint8_t *to = h->in_piece ? piece_at(h) : h->in + h->in_length;
    size_t room = h->in_piece ? h->piece_length - h->piece_got : sizeof h->in - h->in_length;
    /* Without a piece under way only a little is read, so that the next one goes to its place at once. */
    if (!h->in_piece && f->plan && h->asked_count > 0 && room > 64)
        room = h->in_length < 64 ? 64 - h->in_length : room;
    ssize_t got = rs_piece_read(&h->pipe, to, room);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        bool other = got < 0 && errno == EKEYREJECTED;
        lose(h, other,
             got == 0 ? "it closed the connection"
             : other  ? "its certificate is that of another server, or tenant"
                      : strerror(errno));
        ask_all(f);
    }
    if (got <= 0)
        return false;
    *budget -= (uint32_t)got < *budget ? (uint32_t)got : *budget;
    h->since = rs_fetch_now(f);
    if (!h->in_piece) {
        h->in_length += (size_t)got;
        take_input(h);
    } else if ((h->piece_got += (uint32_t)got) == h->piece_length) {
        piece_done(h);
        if (!f->dead && h->watch.active)
            take_input(h);
    }
    return !f->dead && h->watch.active && (*budget > 0 || rs_piece_pending(&h->pipe));
}

static void connected(holder *h) {
    const rs_agent *agent = h->of->all->agent;
    int number = 0;
    socklen_t length = sizeof number;
    if (getsockopt(h->watch.fd, SOL_SOCKET, SO_ERROR, &number, &length) < 0 || number != 0) {
        lose(h, false, strerror(number ? number : errno));
        return;
    }
    (void)rs_loop_watch(agent->loop, &h->watch, h->watch.fd, EPOLLIN);
    h->state = HOLDER_ASKED;
    h->since = rs_fetch_now(h->of);
    rs_piece_message m = {.type = RS_PIECE_ASK, .id = h->of->id, .port = agent->options.piece_port};
    snprintf(m.name, sizeof m.name, "%.63s", agent->options.server);
    say(h, &m);
}

static void holder_ready(void *context, uint32_t events) {
    holder *h = context;
    rs_fetches *all = h->of->all;
    uint32_t budget = READ_TURN;
    if (h->state == HOLDER_CONNECTING) {
        connected(h);
    } else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        while (read_some(h, &budget))
            ;
    }
    if (h->watch.active && !rs_piece_flush(&h->pipe))
        lose(h, false, strerror(errno));
    if (h->watch.active && h->state != HOLDER_CONNECTING)
        (void)rs_loop_watch(all->agent->loop, &h->watch, h->watch.fd,
                            EPOLLIN | (rs_piece_waits(&h->pipe) ? EPOLLOUT : 0));
    rs_fetch_sweep(all);
}

/* --------------------------------------------------------------------------------------------------------- life */

static fetch *find(const rs_fetches *all, const rs_object_id *id) {
    for (fetch *f = all->first; f; f = f->next)
        if (!f->dead && memcmp(&f->id, id, sizeof *id) == 0)
            return f;
    return NULL;
}

/* Its connections end; it is freed by `sweep`. */
static resume *resume_of(rs_fetches *all, const rs_object_id *id);

static void fetch_ends(fetch *f, bool ok, const char *cause) {
    rs_agent *agent = f->all->agent;
    rs_object_id id = f->id;
    if (f->dead)
        return;
    rs_hear_end(f);
    f->dead = true;
    rs_log(ok ? RS_LOG_INFO : RS_LOG_WARNING, "fetch",
           "object=%s %s bytes=%llu fetched=%llu kept=%llu heard=%llu took_ms=%lld%s%s", rs_id_text(&id),
           ok ? "done" : "failed", (unsigned long long)f->size, (unsigned long long)f->fetched,
           (unsigned long long)f->kept, (unsigned long long)f->heard,
           (long long)((rs_fetch_now(f) - f->began) / RS_MILLISECOND), ok ? "" : " cause=", ok ? "" : rs_quote(cause));
    if (f->object && !rs_store_keep(f->object))
        rs_store_discard(agent->store, f->object);
    f->object = NULL;
    resume *r = ok ? NULL : resume_of(f->all, &id);
    if (r)
        r->failed_at = rs_fetch_now(f);
    if (ok)
        rs_api_object_complete(agent->api, &id);
    else
        (f->background ? rs_api_object_failed : rs_api_fetch_failed)(agent->api, &id, cause);
}

void rs_fetch_sweep(rs_fetches *all) {
    for (fetch **at = &all->first; *at;) {
        fetch *f = *at;
        if (!f->dead) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        all->count--;
        for (uint32_t i = 0; i < f->holder_count; i++) {
            hang_up(f->holders[i]);
            free(f->holders[i]);
        }
        rs_piece_plan_free(f->plan);
        free(f->leaves);
        free(f->hears.bits);
        free(f->hears.got);
        free(f);
    }
}

/* What is here of it says what it is. */
static void note_what(fetch *f) {
    const rs_object *partial = rs_store_find(f->all->agent->store, &f->id);
    const rs_manifest *manifest = partial ? rs_store_manifest(partial) : NULL;
    if (manifest && manifest->root.length > 0) {
        f->root = manifest->root;
        f->size = manifest->size;
    }
}

static void check_sleeper(fetch *f);

static fetch *fetch_new(rs_fetches *all, const rs_object_id *id, bool background) {
    fetch *f = all->count < RS_FETCHES_MOST ? calloc(1, sizeof *f) : NULL;
    if (!f)
        return NULL;
    *f = (fetch){.all = all, .id = *id, .background = background, .next = all->first};
    f->began = f->progress_at = f->others_at = rs_agent_now(all->agent);
    all->first = f;
    all->count++;
    note_what(f);
    return f;
}

static void ask_manager(fetch *f) {
    rs_agent *agent = f->all->agent;
    rs_time now = rs_fetch_now(f);
    if (now < f->ask_at || !rs_holdings_wanted(agent->holdings))
        return;
    f->ask_at = now + ASK_AGAIN;
    (void)rs_manager_fetch(agent->link, now, &f->id, !f->object && !rs_store_find(agent->store, &f->id));
}

bool rs_fetch_parse_holder(const rs_agent *agent, const char *text, char name[RS_PIECE_NAME], uint32_t *address,
                           uint16_t *port, rs_error *error) {
    const char *at = strchr(text, '@');
    size_t length = at ? (size_t)(at - text) : strlen(text);
    if (length == 0 || length >= RS_PIECE_NAME)
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "a holder is NAME, NAME@ADDRESS or NAME@ADDRESS:PORT");
    memcpy(name, text, length);
    name[length] = '\0';
    *port = agent->options.piece_port;
    if (at)
        return rs_parse_address(at + 1, address) || rs_parse_endpoint(at + 1, address, port) ||
               rs_error_set(error, ROSTRUM_ERR_INVALID, "\"%.60s\" is no IPv4 address with or without a port", at + 1);
    rs_lan_peer_info known;
    if (agent->lan && rs_lan_find(agent->lan, name, &known)) {
        *address = known.address;
        *port = (uint16_t)(known.control_port + 1);
        return true;
    }
    rs_peer peer = rs_peers_find(&agent->peers, name);
    const rs_peer_entry *entry = peer == RS_NO_PEER ? NULL : rs_peers_entry(&agent->peers, peer);
    *address = entry ? entry->address : 0;
    if (entry && *address == 0)
        *address = entry->claimed;
    if (*address)
        *port = entry->control_port ? (uint16_t)(entry->control_port + 1) : *port;
    return *address || rs_error_set(error, ROSTRUM_ERR_UNKNOWN,
                                    "this agent does not know where %.60s is: name it as %.60s@ADDRESS", name, name);
}

bool rs_fetch_api(void *context, const rs_object_id *id, const char *const *holders, uint32_t count, rs_error *error) {
    rs_agent *agent = context;
    rs_fetches *all = agent->fetches;
    char name[RS_PIECE_NAME];
    rs_lan_peer_info near;
    uint32_t address;
    uint16_t port;
    const rs_object *here = rs_store_find(agent->store, id);
    fetch *f = find(all, id);
    for (uint32_t i = 0; i < count; i++)
        if (!rs_fetch_parse_holder(agent, holders[i], name, &address, &port, error))
            return false;
    /* It may come without: then there is nothing to do; its sender may be gone, which shows after a while. */
    bool comes = here && !f && here->phase != RS_OBJECT_PARTIAL;
    const rs_manifest *origin = here ? rs_store_origin(here) : NULL;
    if (count == 0 && !f && !comes && !origin && !rs_holdings_wanted(agent->holdings) &&
        (!agent->lan || !rs_lan_peer(agent->lan, 0, &near)))
        return rs_error_set(error, ROSTRUM_ERR_INVALID,
                            "nobody is named that has object %llu, and no %s to ask: say from whom",
                            (unsigned long long)id->data, agent->lan ? "other agent was heard of" : "manager is there");
    if (!f && !(f = fetch_new(all, id, false)))
        return rs_error_set(error, ROSTRUM_ERR_LIMIT, "this agent fetches %u objects already, or has no memory",
                            all->count);
    f->background = false;
    f->sleeps |= comes;
    for (uint32_t i = 0; i < count; i++)
        if (rs_fetch_parse_holder(agent, holders[i], name, &address, &port, error))
            add_holder(f, name, address, port, false, 0);
    if (origin)
        add_holder(f, origin->from, origin->from_address, (uint16_t)(origin->from_port + 1), false, 0);
    /* Without a manager nobody knows who has it: those of the LAN say so themselves. */
    for (uint32_t i = 0; count == 0 && agent->lan && rs_lan_peer(agent->lan, i, &near); i++)
        if (near.heard < RS_LAN_FRESH)
            add_holder(f, near.name, near.address, (uint16_t)(near.control_port + 1), false, 0);
    if (count == 0 && !f->asks && rs_holdings_wanted(agent->holdings)) {
        f->asks = true;
        f->ask_at = rs_agent_now(agent);
        ask_manager(f);
    }
    return true;
}

rs_goes_on rs_fetch_go_on(rs_fetches *fetches, const rs_object *here, const rs_manifest *what) {
    rs_time now = rs_agent_now(fetches->agent);
    fetch *f = find(fetches, &what->id);
    if (fetches->left_until > now && memcmp(&fetches->left, &what->id, sizeof what->id) == 0) {
        fetches->left_until = 0;
        return RS_GOES_NOT;
    }
    if (!here)
        return RS_GOES_FROM_START;
    if (f && f->sleeps && here->phase == RS_OBJECT_PARTIAL)
        check_sleeper(f);
    bool little = f && !f->background && here->pieces && here->pieces->known * 8 < here->pieces->count;
    if (f && here->phase != RS_OBJECT_CHECKING && (f->sleeps || little))
        return RS_GOES_FROM_START; /* little is lost, and a send serves several */
    if (here->size != what->size || here->phase == RS_OBJECT_COMPLETE || fetches->agent->stopping)
        return RS_GOES_FROM_START;
    if (here->phase == RS_OBJECT_CHECKING)
        return RS_GOES_ON; /* it will be known what is here */
    if (!here->pieces || here->pieces->known == 0)
        return RS_GOES_FROM_START;
    if (rs_digest_follows(&what->root))
        return here->phase == RS_OBJECT_PARTIAL ? RS_GOES_WHEN_KNOWN : RS_GOES_FROM_START;
    if (f ? !rs_digest_equal(&f->root, &what->root) : !rs_store_resumes(here, what))
        return RS_GOES_FROM_START;
    resume *r = resume_of(fetches, &what->id);
    if (!f && r && r->failed_at != RS_NEVER && now - r->failed_at < FAILED_LATELY &&
        r->failed_from == what->from_address)
        return RS_GOES_FROM_START;
    if (!f && !(f = fetch_new(fetches, &what->id, true)))
        return RS_GOES_FROM_START;
    if (r)
        r->failed_from = what->from_address;
    f->for_send = true;
    if (f->root.length == 0)
        f->root = what->root;
    rs_log(RS_LOG_DEBUG, "fetch", "object=%s goes on with the pieces that are here, from=%s", rs_id_text(&what->id),
           rs_quote(what->from));
    add_holder(f, what->from, what->from_address, (uint16_t)(what->from_port + 1), false, 0);
    return RS_GOES_ON;
}

/* A sender that waits for it asks again soon, and learns it then. */
bool rs_fetch_leave(rs_fetches *fetches, const rs_object_id *id) {
    fetch *f = find(fetches, id);
    if (!f)
        return false;
    if (f->for_send) {
        fetches->left = *id;
        fetches->left_until = rs_fetch_now(f) + LEFT_LATELY;
    }
    bool here = f->object != NULL;
    fetch_ends(f, false, "a program here left it");
    rs_fetch_sweep(fetches);
    rs_object *partial = here ? rs_store_find(fetches->agent->store, id) : NULL;
    if (partial && partial->phase == RS_OBJECT_PARTIAL)
        rs_store_discard(fetches->agent->store, partial);
    return true;
}

void rs_fetch_give_way(rs_fetches *fetches, const rs_object_id *id, const rs_digest *digest) {
    fetch *f = find(fetches, id);
    if (!f || f->sleeps || (f->root.length > 0 && digest->length > 0 && !rs_digest_equal(&f->root, digest)))
        return;
    for (uint32_t i = 0; i < f->holder_count; i++) {
        holder *h = f->holders[i];
        hang_up(h);
        h->state = h->state == HOLDER_GONE ? HOLDER_GONE : HOLDER_WAITING;
    }
    rs_piece_plan_free(f->plan);
    free(f->leaves);
    f->plan = NULL;
    f->leaves = NULL;
    f->leaves_known = 0;
    rs_hear_end(f);
    if (f->object && !rs_store_keep(f->object))
        rs_store_discard(f->all->agent->store, f->object);
    f->object = NULL;
    f->sleeps = true;
    f->progress_at = rs_fetch_now(f);
    rs_log(RS_LOG_INFO, "fetch", "object=%s waits: it is being sent here", rs_id_text(&f->id));
}

/* Whether what it waits for, a send or the check after a restart, made the object whole, goes on, or is over. */
static void check_sleeper(fetch *f) {
    const rs_object *object = rs_store_find(f->all->agent->store, &f->id);
    bool partial = object && object->phase == RS_OBJECT_PARTIAL;
    if (object && object->phase == RS_OBJECT_COMPLETE) {
        fetch_ends(f, true, "");
    } else if (object && !partial) {
        f->progress_at = rs_fetch_now(f);
    } else if (partial || rs_fetch_now(f) - f->progress_at > NEVER_BEGAN) {
        f->sleeps = false;
        f->others_at = rs_fetch_now(f);
        note_what(f);
        f->progress_at = rs_fetch_now(f);
        f->ask_at = rs_fetch_now(f);
        for (uint32_t i = 0; i < f->holder_count; i++)
            f->holders[i]->since = rs_fetch_now(f);
    }
}

/* ----------------------------------------------------------------------------------------------------- the manager */

static void on_holders(void *context, const rs_manager_holders *answer) {
    rs_agent *agent = context;
    fetch *f = find(agent->fetches, &answer->id);
    if (!f || !f->asks)
        return;
    rs_time now = rs_fetch_now(f), at = answer->sent_within > 0 ? now + answer->sent_within : 0;
    snprintf(f->answer, sizeof f->answer, "%s", answer->holder_count ? "" : answer->reason);
    rs_log(RS_LOG_INFO, "fetch", "object=%s holders=%u sent_within_ms=%lld%s%s", rs_id_text(&f->id),
           answer->holder_count, (long long)(answer->sent_within / RS_MILLISECOND), answer->reason[0] ? " text=" : "",
           answer->reason[0] ? rs_quote(answer->reason) : "");
    if (at > 0)
        f->progress_at = f->ask_at = at;
    for (uint32_t i = 0; i < answer->holder_count; i++)
        add_holder(f, answer->holders[i].server, answer->holders[i].address, answer->holders[i].control_port, false,
                   at);
    rs_fetch_sweep(agent->fetches);
}

void rs_fetches_link(rs_manager_callbacks *callbacks) {
    callbacks->on_holders = on_holders;
}

/* ------------------------------------------------------------------------------------------------------- resuming */

static resume *resume_of(rs_fetches *all, const rs_object_id *id) {
    for (resume *r = all->resumes; r; r = r->next)
        if (memcmp(&r->id, id, sizeof *id) == 0)
            return r;
    resume *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    rs_time now = rs_agent_now(all->agent);
    *r = (resume){.next = all->resumes, .id = *id, .retry = rs_retry_begin(now), .failed_at = RS_NEVER};
    all->resumes = r;
    return r;
}

/* Objects that are partly on disk are fetched on from where they came from. */
static void resume_partial(rs_fetches *all) {
    rs_agent *agent = all->agent;
    rs_time now = rs_agent_now(agent);
    uint32_t cursor = 0;
    for (resume *r = all->resumes; r; r = r->next)
        r->seen = false;
    for (rs_object *object; (object = rs_store_next(agent->store, &cursor));) {
        const rs_manifest *from = rs_store_manifest(object);
        resume *r = object->phase == RS_OBJECT_PARTIAL || find(all, &object->id) ? resume_of(all, &object->id) : NULL;
        if (!r)
            continue;
        r->seen = true;
        if (object->phase != RS_OBJECT_PARTIAL || !rs_retry_due(&r->retry, now) || !from->from_address ||
            find(all, &object->id) || agent->stopping)
            continue;
        fetch *f = fetch_new(all, &object->id, true);
        rs_retry_tried(&r->retry, now);
        if (f) /* when it does not come from there: others may have all of it */
            f->asks = rs_holdings_wanted(agent->holdings);
        if (f)
            add_holder(f, from->from, from->from_address, (uint16_t)(from->from_port + 1), false, 0);
    }
    for (resume **at = &all->resumes; *at;) {
        resume *r = *at;
        if (r->seen) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        free(r);
    }
}

/* ---------------------------------------------------------------------------------------------------------- time */

static void check_holder(holder *h) {
    rs_time now = rs_fetch_now(h->of), age = now - h->since;
    if (h->state == HOLDER_WAITING && age >= 0)
        dial(h);
    else if (h->state == HOLDER_CONNECTING && age > CONNECT_BOUND)
        lose(h, false, "no answer to a connect");
    else if ((h->state == HOLDER_ASKED || h->asked_count > 0 || h->of->leaves_of == h) && age > STALL_BOUND)
        lose(h, false, "it gave nothing for 5 s");
}

/* Why nothing comes from it. */
static void holder_text(const holder *h, char *text, size_t size) {
    uint32_t has = 0;
    for (uint32_t piece = 0; h->bits && piece < h->of->pieces; piece++)
        has += h->bits[piece / 8] >> piece % 8 & 1;
    if (h->state == HOLDER_READY && h->no_leaves)
        snprintf(text, size, "it is receiving the object itself, and is not done");
    else if (h->state == HOLDER_READY && has < h->of->pieces)
        snprintf(text, size, "it has no more than %u of %u pieces itself", has, h->of->pieces);
    else
        snprintf(text, size, "%s", h->cause[0] ? h->cause : "it says nothing");
}

/* What each holder says, or what came of it. */
static void why_nothing(const fetch *f, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "nobody gives it:");
    char why[RS_PIECE_TEXT];
    for (uint32_t i = 0; i < f->holder_count; i++) {
        const holder *h = f->holders[i];
        holder_text(h, why, sizeof why);
        int more = snprintf(text + used, size - used, " %.40s: %.120s;", h->name, why);
        used = more > 0 && used + (size_t)more < size ? used + (size_t)more : used;
    }
    text[used - (text[used - 1] == ';')] = '\0';
    if (f->answer[0] && f->holder_count == 0)
        snprintf(text, size, "%s", f->answer);
}

static void check_fetch(fetch *f) {
    bool alive = false;
    if (f->sleeps) {
        check_sleeper(f);
        return;
    }
    for (uint32_t i = 0; i < f->holder_count && !f->dead; i++)
        check_holder(f->holders[i]);
    if (f->dead)
        return;
    for (uint32_t i = 0; i < f->holder_count; i++) {
        const holder *h = f->holders[i];
        alive |= h->state != HOLDER_GONE && !(h->state == HOLDER_WAITING && f->background && h->tries >= 3);
    }
    rs_hear_look(f);
    ask_leaves(f);
    ask_all(f);
    if (f->asks && !alive)
        ask_manager(f);
    /* Who may be gone on with is not given up while the manager may yet name somebody. */
    alive |= f->hears.live || (f->asks && (!f->answer[0] || rs_fetch_now(f) - f->began < TOLD_BOUND));
    if (f->hears.live)
        f->progress_at = rs_fetch_now(f);
    if (alive && rs_fetch_now(f) - f->progress_at <= PROGRESS_BOUND)
        return;
    char text[ROSTRUM_TEXT_MAX + 1];
    why_nothing(f, text, sizeof text);
    fetch_ends(f, false, text);
}

rs_fetches *rs_fetches_new(rs_agent *agent) {
    rs_fetches *all = calloc(1, sizeof *all);
    if (all) {
        all->agent = agent;
        all->check_at = rs_agent_now(agent) + TICK;
    }
    return all;
}

void rs_fetches_free(rs_fetches *all) {
    if (!all)
        return;
    for (fetch *f = all->first; f; f = f->next) {
        if (f->object && !rs_store_keep(f->object))
            rs_store_discard(all->agent->store, f->object);
        f->object = NULL;
        rs_hear_end(f);
        f->dead = true;
    }
    rs_fetch_sweep(all);
    while (all->resumes) {
        resume *r = all->resumes;
        all->resumes = r->next;
        free(r);
    }
    free(all);
}

rs_time rs_fetches_deadline(const rs_fetches *all) {
    return all->check_at;
}

void rs_fetches_timeout(rs_fetches *all) {
    rs_time now = rs_agent_now(all->agent);
    if (now < all->check_at)
        return;
    resume_partial(all);
    for (fetch *f = all->first; f; f = f->next)
        if (!f->dead)
            check_fetch(f);
    rs_fetch_sweep(all);
    all->check_at = now + (all->first ? TICK : 5 * TICK);
}
