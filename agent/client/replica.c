/* How a replica gets the state: its WANT goes through the group as any message. One who has the state (a holder) keeps
 * it as it is when WANT comes, says OFFER, and sends it as an object; messages behind that point are applied after it.
 * All holders know who holds and who wants, as all see the same stream: if the one who is to give crashes, the view
 * that says so makes another one give, as its state is then. A holder that does not answer, or gives what makes no
 * sense, is passed over with the next WANT. rostrum.client.Replica does the same, message for message. */
#include "client/replica.h"

#include "api/group_frames.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define LOOK_MS 50        /* whether the object is there */
#define ATTEMPT_MS 10000  /* then the next holder is asked; twice as long each time */
#define UNWANTED_MS 60000 /* an object that came too late is looked for so long */
#define NEVER INT64_MAX
#define BUFFER_BYTES (256u << 20) /* of messages that wait for the state */
#define MESSAGE_COST 256          /* of each beside its bytes */
#define NAMES_MOST 64u            /* objects of one kind, and messages that wait to be said: 64 joiners at once */
#define NAME_ROOM 1024u           /* a state's name: the group's, a server's, numbers */
#define REASON_MOST 500           /* bytes of why a state is not given */

/* A message of replicas: "\0rostrum", kind, u64 nonce, u32 attempt, then what the kind has. */
#define MARK "\0rostrum"
#define MARK_BYTES 8u
#define CONTROL_BYTES 21u

typedef enum { CLAIM = 'C', WANT = 'W', OFFER = 'O', READY = 'R', FAILED = 'F' } kind;

typedef struct {
    uint8_t kind;
    uint64_t nonce;
    uint32_t attempt;
    const uint8_t *rest;
    uint32_t length;
} control;

/* A message or view that is kept: one block of memory. */
typedef struct held {
    struct held *next;
    rostrum_message message;
    rostrum_view view;
    size_t bytes;
    char text[];
} held;

/* A message that waits to be said. */
typedef struct saying {
    struct saying *next;
    uint32_t length;
    uint8_t bytes[];
} saying;

/* An object. */
typedef struct {
    char name[NAME_ROOM];
    rostrum_replica_who who;    /* whom it is for */
    rostrum_replica_send *send; /* by which it goes there */
    uint32_t attempt;           /* with which it was asked for */
    int64_t until_ms;           /* until when it may still come */
} object;

typedef struct {
    object *all; /* NAMES_MOST of them */
    uint32_t count;
} objects;

struct rostrum_replica {
    const rostrum_replica_world *world;
    void *of_world;
    rostrum_replica_callbacks callbacks;
    void *context;
    char *group;
    rostrum_replica_who me;
    rostrum_replica_table table; /* its lineage: that of the holders' state; its number: messages before this point */
    uint64_t mine;               /* lineage of this one's state */
    bool is_ready;               /* it has the state */
    bool knows;                  /* who holds: it saw all since somebody claimed the state */
    rostrum_replica_rows may;    /* while it does not: who may hold; nonce 0: whoever runs on that server */
    bool claims;                 /* its CLAIM is on its way */
    bool heard;                  /* its own WANT has come: what comes from there on counts */
    uint32_t attempt, attempts;
    int64_t ask_at_ms; /* again */
    held *buffer, **buffer_end;
    size_t buffered;
    held *last_view;
    objects offers;   /* objects that may bring the state */
    objects sends;    /* states that are being given */
    objects added;    /* for replicas of this server */
    objects unwanted; /* that came too late, or may come yet */
    char why[ROSTRUM_TEXT_MAX + 1];
    saying *out, **out_end;
    uint32_t out_count;
    rostrum_error broken; /* there will be no more */
};

static void follow(rostrum_replica *r, const rostrum_message *message, const rostrum_view *view);
static bool process(rostrum_replica *r, const rostrum_message *message, const rostrum_view *view);

static void break_with(rostrum_replica *r, rostrum_code code, const char *text) {
    if (r->broken.code)
        return;
    r->broken.code = code;
    snprintf(r->broken.text, sizeof r->broken.text, "%.100s: %.150s", r->group, text);
}

static void no_memory(rostrum_replica *r) {
    break_with(r, ROSTRUM_ERR_NO_ROOM, "no memory for replicas");
}

static rostrum_code fail_as(rostrum_error *error, const rostrum_error *reason) {
    if (error)
        *error = *reason;
    return reason->code;
}

bool rostrum_replica_is_control(const void *bytes, uint32_t length) {
    return length >= MARK_BYTES && memcmp(bytes, MARK, MARK_BYTES) == 0;
}

static bool take_control(const rostrum_message *message, const rostrum_view *view, control *out) {
    if (view || message->length < CONTROL_BYTES || !rostrum_replica_is_control(message->bytes, message->length))
        return false;
    const uint8_t *at = message->bytes;
    *out = (control){.kind = at[MARK_BYTES],
                     .nonce = rs_group_get(at + 9, 8),
                     .attempt = (uint32_t)rs_group_get(at + 17, 4),
                     .rest = at + CONTROL_BYTES,
                     .length = message->length - CONTROL_BYTES};
    return true;
}

/* Of a CLAIM or WANT: the nonce that a replica had before; of READY the lineage of its state. */
static uint64_t number_in(const control *c) {
    return c->length == 8 ? rs_group_get(c->rest, 8) : 0;
}

/* What an OFFER or FAILED has for `server`: the text behind its name and a line feed. False: it is another one's. */
static bool text_for(const control *c, const char *server, char *out, size_t room) {
    size_t name = strlen(server);
    if (c->length <= name || memcmp(c->rest, server, name) != 0 || c->rest[name] != '\n')
        return false;
    size_t length = c->length - name - 1;
    length = length < room ? length : room - 1;
    memcpy(out, c->rest + name + 1, length);
    out[length] = 0;
    return true;
}

/* --------------------------------------------------------------------------------------- objects and what is kept */

/* A new one; the oldest makes room. */
static object *put_object(rostrum_replica *r, objects *list, const char *name) {
    if (!list->all && !(list->all = calloc(NAMES_MOST, sizeof *list->all))) {
        no_memory(r);
        return NULL;
    }
    if (list->count == NAMES_MOST)
        memmove(list->all, list->all + 1, --list->count * sizeof *list->all);
    object *new = &list->all[list->count++];
    *new = (object){0};
    memcpy(new->name, name, strnlen(name, NAME_ROOM - 1));
    return new;
}

static void drop_object(objects *list, uint32_t which) {
    memmove(list->all + which, list->all + which + 1, (--list->count - which) * sizeof *list->all);
}

static void put_unwanted(rostrum_replica *r, const char *name) {
    object *late = put_object(r, &r->unwanted, name);
    if (late)
        late->until_ms = r->world->now_ms(r->of_world) + UNWANTED_MS;
}

/* An object that an OFFER names is read and deleted: only one that is a state of this group. */
static bool is_state_name(const rostrum_replica *r, const char *name) {
    static const char prefix[] = "rostrum.state/";
    size_t group = strlen(r->group);
    return strncmp(name, prefix, sizeof prefix - 1) == 0 && strncmp(name + sizeof prefix - 1, r->group, group) == 0 &&
           name[sizeof prefix - 1 + group] == '/';
}

/* All names of a view: members, joined, left. */
static const char *name_in(const rostrum_view *view, size_t which) {
    if (which < view->member_count)
        return view->members[which];
    which -= view->member_count;
    return which < view->joined_count ? view->joined[which] : view->left[which - view->joined_count];
}

static char *keep_text(held *h, size_t *at, const char *text) {
    char *to = h->text + *at;
    size_t length = strlen(text) + 1;
    memcpy(to, text, length);
    *at += length;
    return to;
}

static held *hold(rostrum_replica *r, const rostrum_message *message, const rostrum_view *view) {
    size_t names = view ? (size_t)view->member_count + view->joined_count + view->left_count : 0;
    const char *sender = message->sender ? message->sender : "";
    size_t pointers = names * sizeof(char *), size = pointers + strlen(sender) + 1 + message->length, at = pointers;
    for (size_t i = 0; i < names; i++)
        size += strlen(name_in(view, i)) + 1;
    held *h = malloc(sizeof *h + size);
    if (!h) {
        no_memory(r);
        return NULL;
    }
    *h = (held){.message = *message, .bytes = size + MESSAGE_COST};
    h->message.sender = keep_text(h, &at, sender);
    h->message.why = "";
    if (view) {
        const char **list = (const char **)(void *)h->text;
        for (size_t i = 0; i < names; i++)
            list[i] = keep_text(h, &at, name_in(view, i));
        h->view = *view;
        h->view.members = list;
        h->view.joined = list + view->member_count;
        h->view.left = list + view->member_count + view->joined_count;
    }
    if (message->length)
        memcpy(h->text + at, message->bytes, message->length);
    h->message.bytes = h->text + at;
    return h;
}

static void free_held(held *h) {
    while (h) {
        held *next = h->next;
        free(h);
        h = next;
    }
}

static held *take_buffer(rostrum_replica *r) {
    held *all = r->buffer;
    r->buffer = NULL;
    r->buffer_end = &r->buffer;
    r->buffered = 0;
    return all;
}

static void keep_last_view(rostrum_replica *r, const rostrum_message *message, const rostrum_view *view) {
    held *h = hold(r, message, view);
    free_held(r->last_view);
    r->last_view = h;
}

static void tell_view(rostrum_replica *r) {
    if (r->last_view && r->callbacks.confchg)
        r->callbacks.confchg(r->context, &r->last_view->view);
}

/* ---------------------------------------------------------------------------------------------------------- saying */

/* Never waits: whoever publishes may wait for this thread to read. */
static void say_pending(rostrum_replica *r) {
    rostrum_error reason = {0};
    while (r->out) {
        rostrum_code code = r->world->try_publish(r->of_world, r->out->bytes, r->out->length, &reason);
        if (code == ROSTRUM_ERR_BUSY)
            return;
        if (code) {
            break_with(r, code, reason.text);
            return;
        }
        saying *said = r->out;
        r->out = said->next;
        r->out_end = r->out ? r->out_end : &r->out;
        r->out_count--;
        free(said);
    }
}

static void say(rostrum_replica *r, kind what, uint64_t nonce, uint32_t attempt, const void *rest, size_t length) {
    saying *s = r->out_count < 4 * NAMES_MOST ? malloc(sizeof *s + CONTROL_BYTES + length) : NULL;
    if (!s) {
        no_memory(r);
        return;
    }
    s->next = NULL;
    s->length = (uint32_t)(CONTROL_BYTES + length);
    memcpy(s->bytes, MARK, MARK_BYTES);
    s->bytes[MARK_BYTES] = (uint8_t)what;
    rs_group_put(s->bytes + 9, nonce, 8);
    rs_group_put(s->bytes + 17, attempt, 4);
    if (length)
        memcpy(s->bytes + CONTROL_BYTES, rest, length);
    *r->out_end = s;
    r->out_end = &s->next;
    r->out_count++;
    say_pending(r);
}

static void say_number(rostrum_replica *r, kind what, uint32_t attempt, uint64_t number) {
    uint8_t rest[8];
    rs_group_put(rest, number, 8);
    say(r, what, r->me.nonce, attempt, rest, sizeof rest);
}

static void say_text(rostrum_replica *r, kind what, const rostrum_replica_who *who, uint32_t attempt,
                     const char *text) {
    char rest[ROSTRUM_NAME_MAX + 1 + NAME_ROOM];
    int length = snprintf(rest, sizeof rest, "%s\n%s", who->server, text);
    if (what == FAILED && length > REASON_MOST)
        length = REASON_MOST;
    say(r, what, who->nonce, attempt, rest, (size_t)length);
}

/* -------------------------------------------------------------------------------------- of one who lacks the state */

static uint64_t draw_nonce(void) {
    uint64_t nonce = 0;
    while (nonce == 0) {
        while (getrandom(&nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
            continue;
        nonce >>= 1;
    }
    return nonce;
}

/* Another replica from here on, for all; its nonce before. */
static uint64_t renew(rostrum_replica *r) {
    uint64_t before = r->me.nonce;
    r->me.nonce = draw_nonce();
    r->is_ready = r->heard = r->claims = false;
    r->attempt = 0;
    r->ask_at_ms = NEVER;
    r->offers.count = 0;
    free_held(take_buffer(r));
    return before;
}

static void claim(rostrum_replica *r) {
    uint64_t before = renew(r);
    r->claims = true;
    say_number(r, CLAIM, 0, before);
}

static void want(rostrum_replica *r, uint64_t before) {
    if (++r->attempt > r->attempts) {
        break_with(r, ROSTRUM_ERR_UNAVAILABLE, r->why);
        return;
    }
    uint32_t doubled = r->attempt - 1 < 6 ? r->attempt - 1 : 6;
    r->ask_at_ms = r->world->now_ms(r->of_world) + ((int64_t)ATTEMPT_MS << doubled);
    say_number(r, WANT, r->attempt, before);
}

static void begin_want(rostrum_replica *r) {
    uint64_t before = renew(r);
    want(r, before);
}

static bool is_among(const char *const *names, uint32_t count, const char *name) {
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* It was in the view before, too, without a break. */
static bool has_stayed(const rostrum_view *view, const char *server) {
    return is_among(view->members, view->member_count, server) && !is_among(view->joined, view->joined_count, server) &&
           !is_among(view->left, view->left_count, server);
}

static rostrum_replica_row *put_row(rostrum_replica *r, rostrum_replica_rows *rows, const rostrum_replica_who *who) {
    rostrum_replica_row *row = rostrum_replica_put(rows, who, rows != &r->table.wanting);
    if (!row && rows->count < ROSTRUM_REPLICAS_MOST) /* more than that are passed over */
        no_memory(r);
    return row;
}

static void put_may(rostrum_replica *r, const char *server, uint64_t nonce) {
    rostrum_replica_who who = rostrum_replica_who_of(server, nonce);
    (void)put_row(r, &r->may, &who);
}

/* What was before does not count: others go on with the state, or all begin. */
static void joined(rostrum_replica *r, const rostrum_message *message, const rostrum_view *view) {
    bool all_new = true;
    keep_last_view(r, message, view);
    for (uint32_t i = 0; i < view->member_count; i++)
        all_new = all_new && is_among(view->joined, view->joined_count, view->members[i]);
    if (all_new) {
        r->table.holders.count = r->table.wanting.count = 0;
        r->knows = true;
        claim(r);
        return;
    }
    r->knows = false;
    r->may.count = 0;
    for (uint32_t i = 0; i < view->member_count; i++)
        if (!is_among(view->joined, view->joined_count, view->members[i]) &&
            strcmp(view->members[i], r->me.server) != 0)
            put_may(r, view->members[i], 0);
    if (view->joined_count == 0) /* another program of this server may be one */
        put_may(r, r->me.server, 0);
    begin_want(r);
}

/* Until none of those who may hold is left: then nobody does. */
static void follow_unknowing(rostrum_replica *r, const rostrum_message *message, const rostrum_view *view,
                             const control *c) {
    if (view) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < r->may.count; i++)
            if (has_stayed(view, r->may.rows[i].who.server))
                r->may.rows[kept++] = r->may.rows[i];
        r->may.count = kept;
        if (kept == 0) {
            r->knows = true;
            r->table.holders.count = r->table.wanting.count = 0;
        }
        return;
    }
    if (!c || (c->kind != CLAIM && c->kind != WANT && c->kind != READY))
        return;
    if (c->kind != READY && number_in(c)) {
        rostrum_replica_who before = rostrum_replica_who_of(message->sender, number_in(c));
        rostrum_replica_remove(&r->may, &before);
    }
    if (c->kind != WANT)
        put_may(r, message->sender, c->nonce);
    if (c->kind == CLAIM && r->heard)
        r->ask_at_ms = 0; /* it knows nothing of this one's WANT */
}

static void answered(rostrum_replica *r, const rostrum_message *message, const control *c) {
    char text[NAME_ROOM];
    if (!text_for(c, r->me.server, text, sizeof text))
        return;
    if (c->kind == OFFER && is_state_name(r, text)) {
        (void)put_object(r, &r->offers, text);
    } else if (c->kind == FAILED && c->attempt == r->attempt) {
        snprintf(r->why, sizeof r->why, "%.64s did not give its state: %.160s", message->sender, text);
        r->ask_at_ms = 0;
    }
}

static void hear(rostrum_replica *r, const rostrum_message *message, const rostrum_view *view) {
    control c = {0};
    bool is_control = take_control(message, view, &c);
    bool from_me = is_control && c.nonce == r->me.nonce && strcmp(message->sender, r->me.server) == 0;
    if (view && !r->heard)
        keep_last_view(r, message, view);
    if (!r->knows)
        follow_unknowing(r, message, view, is_control ? &c : NULL);
    if (r->knows)
        follow(r, message, view);
    from_me = from_me && c.nonce == r->me.nonce; /* it may have become another one */
    if (from_me && c.kind == WANT) {
        r->heard = true;
    } else if (is_control && c.nonce == r->me.nonce && (c.kind == OFFER || c.kind == FAILED)) {
        answered(r, message, &c);
    } else if (from_me && c.kind == CLAIM) {
        const rostrum_replica_rows *holders = &r->table.holders;
        r->claims = false;
        if (holders->count == 1 && rostrum_replica_is(&holders->rows[0].who, &r->me)) {
            r->table.number = message->sn;
            r->mine = r->table.lineage;
            r->is_ready = true;
            tell_view(r);
        } else {
            begin_want(r);
        }
    }
    if (!r->heard)
        return;
    held *h = hold(r, message, view);
    if (!h)
        return;
    *r->buffer_end = h;
    r->buffer_end = &h->next;
    r->buffered += h->bytes;
    if (r->buffered > BUFFER_BYTES)
        break_with(r, ROSTRUM_ERR_LIMIT, "too much came before the state");
}

/* It has the state: tells that, and takes what had to wait. Whether a message was delivered. */
static bool begin_with_state(rostrum_replica *r, rostrum_replica_table *table, const char *name) {
    uint64_t number = table->number;
    bool delivered = false;
    rostrum_replica_table_clear(&r->table);
    r->table = *table;
    r->mine = table->lineage;
    r->is_ready = r->knows = true;
    for (uint32_t i = 0; i < r->offers.count; i++)
        if (strcmp(r->offers.all[i].name, name) != 0)
            put_unwanted(r, r->offers.all[i].name);
    r->offers.count = 0;
    held *buffered = take_buffer(r);
    say_number(r, READY, r->attempt, r->mine);
    tell_view(r);
    for (held *h = buffered; h && !r->broken.code; h = h->next) {
        const rostrum_view *view = h->message.kind == ROSTRUM_VIEW ? &h->view : NULL;
        if (view ? view->number < number : h->message.sn <= number)
            continue;
        if (r->is_ready)
            delivered |= process(r, &h->message, view);
        else
            hear(r, &h->message, view);
    }
    free_held(buffered);
    return delivered;
}

/* One that makes no sense: its giver is passed over. */
static void refuse_state(rostrum_replica *r, uint32_t which, const char *why) {
    char name[NAME_ROOM];
    memcpy(name, r->offers.all[which].name, sizeof name);
    drop_object(&r->offers, which);
    if (!r->world->forget(r->of_world, name))
        put_unwanted(r, name);
    snprintf(r->why, sizeof r->why, "%s", why);
    r->ask_at_ms = 0;
}

/* Whether a message was delivered: what had to wait for the state is behind it. */
static bool look_for_state(rostrum_replica *r) {
    if (r->world->now_ms(r->of_world) >= r->ask_at_ms)
        want(r, 0);
    for (uint32_t i = 0; r->heard && i < r->offers.count && !r->broken.code; i++) {
        const uint8_t *bytes;
        size_t length, used = 0;
        rostrum_error reason = {0};
        rostrum_replica_table table;
        char name[NAME_ROOM];
        rostrum_code code = r->world->read(r->of_world, r->offers.all[i].name, &bytes, &length, &reason);
        if (code == ROSTRUM_ERR_UNAVAILABLE)
            break_with(r, code, reason.text);
        if (code)
            continue;
        memcpy(name, r->offers.all[i].name, sizeof name);
        bool good = rostrum_replica_table_read(bytes, length, &table, &used);
        const char *why = "a malformed state came";
        if (good && r->callbacks.set_state(r->context, bytes + used, length - used)) {
            rostrum_replica_table_clear(&table);
            why = "the program does not take the state that came";
            good = false;
        }
        r->world->unread(r->of_world, bytes, length);
        if (!good) {
            refuse_state(r, i, why);
            return false;
        }
        (void)r->world->forget(r->of_world, name);
        return begin_with_state(r, &table, name);
    }
    return false;
}

/* -------------------------------------------------------------------------------------- of one who gives the state */

static void give_bytes(rostrum_replica *r, const rostrum_replica_who *who, uint32_t attempt, const char *name,
                       rostrum_error *error) {
    void *state = NULL;
    size_t length = 0, table_length = 0;
    rostrum_replica_send *send = NULL;
    bool here = strcmp(who->server, r->me.server) == 0;
    rostrum_replica_table table = r->table;
    table.lineage = r->mine;
    rostrum_code code = r->callbacks.get_state(r->context, &state, &length);
    uint8_t *head = code ? NULL : rostrum_replica_table_write(&table, &table_length);
    if (!head)
        snprintf(error->text, sizeof error->text, "%s", code ? "the program has none to give" : "no memory");
    error->code = code ? code : head ? ROSTRUM_OK : ROSTRUM_ERR_NO_ROOM;
    if (head && here)
        error->code = r->world->add(r->of_world, name, head, table_length, state, length, error);
    else if (head)
        error->code = r->world->send(r->of_world, name, who->server, head, table_length, state, length, &send, error);
    free(head);
    free(state);
    object *given = error->code ? NULL : put_object(r, here ? &r->added : &r->sends, name);
    if (given) {
        given->who = *who;
        given->send = send;
        given->attempt = attempt;
    } else if (send) {
        r->world->abandon(r->of_world, send);
    }
}

static void give(rostrum_replica *r, const rostrum_replica_who *to, uint32_t attempt) {
    rostrum_replica_who who = *to; /* the rows may move */
    rostrum_error error = {0};
    char name[NAME_ROOM];
    snprintf(name, sizeof name, "rostrum.state/%s/%s/%" PRIx64 "/%" PRIu32 "/%" PRIx64, r->group, who.server, who.nonce,
             attempt, r->me.nonce);
    if (strcmp(who.server, r->me.server) == 0) {
        for (uint32_t i = r->added.count; i > 0; i--)
            if (rostrum_replica_is(&r->added.all[i - 1].who, &who) || (i == 1 && r->added.count == NAMES_MOST)) {
                (void)r->world->forget(r->of_world, r->added.all[i - 1].name);
                drop_object(&r->added, i - 1);
            }
    } else if (r->sends.count == NAMES_MOST) {
        say_text(r, FAILED, &who, attempt, "too many states are being given");
        return;
    }
    give_bytes(r, &who, attempt, name, &error);
    if (error.code)
        say_text(r, FAILED, &who, attempt, error.text);
    else
        say_text(r, OFFER, &who, attempt, name);
}

static void look_at_objects(rostrum_replica *r) {
    for (uint32_t i = 0; i < r->sends.count;) {
        rostrum_error result = {0};
        if (!r->world->sent(r->of_world, r->sends.all[i].send, &result)) {
            i++;
            continue;
        }
        if (result.code)
            say_text(r, FAILED, &r->sends.all[i].who, r->sends.all[i].attempt, result.text);
        (void)r->world->forget(r->of_world, r->sends.all[i].name);
        drop_object(&r->sends, i);
    }
    for (uint32_t i = 0; i < r->unwanted.count;)
        if (r->world->forget(r->of_world, r->unwanted.all[i].name) ||
            r->world->now_ms(r->of_world) > r->unwanted.all[i].until_ms)
            drop_object(&r->unwanted, i);
        else
            i++;
}

/* ----------------------------------------------------------------------------------------------------------- of all */

static void claim_if_none(rostrum_replica *r) {
    if (r->table.holders.count == 0 && !r->is_ready && !r->claims)
        claim(r); /* the first one to claim begins anew */
}

static void appoint(rostrum_replica *r, rostrum_replica_row *wanting) {
    const rostrum_replica_rows *holders = &r->table.holders;
    wanting->giver = (rostrum_replica_who){0};
    if (holders->count > 0)
        wanting->giver = holders->rows[((uint64_t)wanting->attempt + holders->count - 1) % holders->count].who;
    if (r->is_ready && rostrum_replica_is(&wanting->giver, &r->me))
        give(r, &wanting->who, wanting->attempt);
}

static void follow_view(rostrum_replica *r, const rostrum_view *view) {
    rostrum_replica_rows *all[] = {&r->table.holders, &r->table.wanting};
    for (int which = 0; which < 2; which++) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < all[which]->count; i++)
            if (has_stayed(view, all[which]->rows[i].who.server))
                all[which]->rows[kept++] = all[which]->rows[i];
        all[which]->count = kept;
    }
    for (uint32_t i = 0; i < r->table.wanting.count; i++)
        if (!rostrum_replica_find(&r->table.holders, &r->table.wanting.rows[i].giver))
            appoint(r, &r->table.wanting.rows[i]);
    claim_if_none(r);
}

static void added_is_there(rostrum_replica *r, const rostrum_replica_who *who) {
    for (uint32_t i = 0; i < r->added.count; i++)
        if (rostrum_replica_is(&r->added.all[i].who, who)) {
            (void)r->world->forget(r->of_world, r->added.all[i].name);
            drop_object(&r->added, i);
            return;
        }
}

/* Who holds and who wants: the same at all who know, as all see the same messages. */
static void follow(rostrum_replica *r, const rostrum_message *message, const rostrum_view *view) {
    rostrum_replica_table *table = &r->table;
    control c;
    if (view) {
        follow_view(r, view);
        return;
    }
    if (!take_control(message, NULL, &c))
        return;
    rostrum_replica_who who = rostrum_replica_who_of(message->sender, c.nonce);
    if (c.kind == CLAIM || c.kind == WANT) { /* it was another one before */
        rostrum_replica_who before = rostrum_replica_who_of(message->sender, number_in(&c));
        rostrum_replica_remove(&table->holders, &before);
        rostrum_replica_remove(&table->wanting, &before);
        claim_if_none(r);
    }
    if (c.kind == CLAIM && table->holders.count == 0) {
        if (put_row(r, &table->holders, &who))
            table->lineage = message->sn;
    } else if (c.kind == WANT) {
        rostrum_replica_remove(&table->holders, &who);
        rostrum_replica_row *row = put_row(r, &table->wanting, &who);
        if (row) {
            row->attempt = c.attempt;
            appoint(r, row);
        }
    } else if (c.kind == READY) {
        rostrum_replica_remove(&table->wanting, &who);
        if (table->holders.count == 0) /* those that it has it of are gone */
            table->lineage = number_in(&c);
        if (table->lineage == number_in(&c))
            (void)put_row(r, &table->holders, &who);
        added_is_there(r, &who);
    } else if (c.kind == OFFER && c.nonce == r->me.nonce && r->is_ready) { /* too late */
        char late[NAME_ROOM];
        if (text_for(&c, r->me.server, late, sizeof late) && is_state_name(r, late))
            put_unwanted(r, late);
    }
}

/* With the state; whether it was delivered. */
static bool process(rostrum_replica *r, const rostrum_message *message, const rostrum_view *view) {
    if (view) {
        r->table.number = view->number;
        follow(r, message, view);
        if (r->callbacks.confchg)
            r->callbacks.confchg(r->context, view);
        return false;
    }
    r->table.number = message->sn;
    if (!rostrum_replica_is_control(message->bytes, message->length)) {
        r->callbacks.deliver(r->context, message);
        return true;
    }
    follow(r, message, NULL);
    if (r->table.holders.count > 0 && r->table.lineage != r->mine)
        begin_want(r); /* all who had this one's state crashed, and another one began anew */
    return false;
}

static bool take(rostrum_replica *r, const rostrum_message *message, const rostrum_view *view) {
    if (message->kind == ROSTRUM_PRIMARY) {
        if (r->callbacks.primary)
            r->callbacks.primary(r->context, message->count != 0);
        return false;
    }
    if (message->kind == ROSTRUM_MESSAGES_LOST) {
        if (r->is_ready || r->heard)
            begin_want(r); /* it lacks messages: its state counts no more */
        return false;
    }
    if (message->kind != ROSTRUM_MESSAGE && message->kind != ROSTRUM_VIEW)
        return false;
    if (view && view->anew) {
        joined(r, message, view);
        return false;
    }
    if (r->is_ready)
        return process(r, message, view);
    hear(r, message, view);
    return false;
}

/* ------------------------------------------------------------------------------------------------------------ turns */

rostrum_replica *rostrum_replica_new(const rostrum_replica_world *world, void *of_world, const char *server,
                                     const char *group, const rostrum_replica_callbacks *callbacks, void *context) {
    rostrum_replica *r = calloc(1, sizeof *r);
    if (r && !(r->group = strdup(group))) {
        free(r);
        r = NULL;
    }
    if (!r)
        return NULL;
    r->world = world;
    r->of_world = of_world;
    r->callbacks = *callbacks;
    r->context = context;
    r->me = rostrum_replica_who_of(server, draw_nonce());
    r->attempts = ROSTRUM_REPLICA_ATTEMPTS;
    r->ask_at_ms = NEVER;
    r->buffer_end = &r->buffer;
    r->out_end = &r->out;
    snprintf(r->why, sizeof r->why, "no member that has the state answered");
    return r;
}

void rostrum_replica_free(rostrum_replica *r) {
    for (uint32_t i = 0; i < r->sends.count; i++)
        r->world->abandon(r->of_world, r->sends.all[i].send);
    objects *lists[] = {&r->offers, &r->sends, &r->added, &r->unwanted};
    for (int i = 0; i < 4; i++)
        free(lists[i]->all);
    while (r->out) {
        saying *next = r->out->next;
        free(r->out);
        r->out = next;
    }
    free_held(r->buffer);
    free_held(r->last_view);
    rostrum_replica_table_clear(&r->table);
    rostrum_replica_rows_clear(&r->may);
    free(r->group);
    free(r);
}

void rostrum_replica_set_attempts(rostrum_replica *r, uint32_t attempts) {
    r->attempts = attempts;
}

rostrum_code rostrum_replica_step(rostrum_replica *r, int64_t deadline_ms, bool *delivered, rostrum_error *error) {
    rostrum_message message = {0};
    const rostrum_view *view = NULL;
    rostrum_error reason = {0};
    *delivered = false;
    if (!r->broken.code)
        say_pending(r);
    if (!r->broken.code)
        look_at_objects(r);
    if (!r->broken.code && !r->is_ready)
        *delivered = look_for_state(r);
    if (r->broken.code)
        return fail_as(error, &r->broken);
    if (*delivered)
        return ROSTRUM_OK;
    int64_t now = r->world->now_ms(r->of_world), until = deadline_ms;
    bool busy = !r->is_ready || r->out || r->sends.count > 0 || r->unwanted.count > 0;
    if (busy && until > now + LOOK_MS)
        until = now + LOOK_MS;
    int wait = until <= now ? 0 : until - now > 3600000 ? 3600000 : (int)(until - now);
    rostrum_code code = r->world->next(r->of_world, &message, &view, wait, &reason);
    if (code == ROSTRUM_ERR_TIMEOUT)
        return r->world->now_ms(r->of_world) >= deadline_ms ? fail_as(error, &reason) : ROSTRUM_OK;
    if (code)
        return fail_as(error, &reason);
    *delivered = take(r, &message, message.kind == ROSTRUM_VIEW ? view : NULL);
    return r->broken.code ? fail_as(error, &r->broken) : ROSTRUM_OK;
}

static rostrum_code run(rostrum_replica *r, int timeout_ms, bool ready, rostrum_error *error) {
    int64_t deadline = timeout_ms < 0 ? NEVER : r->world->now_ms(r->of_world) + timeout_ms;
    rostrum_code code = ROSTRUM_OK;
    for (bool delivered = false; !code && !(ready ? r->is_ready : delivered);)
        code = rostrum_replica_step(r, deadline, &delivered, error);
    return code;
}

rostrum_code rostrum_replica_dispatch(rostrum_replica *r, int timeout_ms, rostrum_error *error) {
    return run(r, timeout_ms, false, error);
}

rostrum_code rostrum_replica_wait_ready(rostrum_replica *r, int timeout_ms, rostrum_error *error) {
    return run(r, timeout_ms, true, error);
}

const rostrum_replica_table *rostrum_replica_table_of(const rostrum_replica *r) {
    return &r->table;
}

void *rostrum_replica_of_world(const rostrum_replica *r) {
    return r->of_world;
}

int rostrum_replica_ready(const rostrum_replica *r) {
    return r->is_ready;
}
