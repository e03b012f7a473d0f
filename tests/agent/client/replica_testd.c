/* A replica in C whose world is another program, by frames on standard input and output: u32 length, then a letter and
 * what it has (tests/client/test_replica.py). The state is all messages, numbers, as "[1, 2]". */
#include "client/replica.h"

#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FRAME_MOST (4u << 20)

struct rostrum_replica_send {
    uint32_t number;
};

static uint8_t in[FRAME_MOST], out[FRAME_MOST];
static uint32_t in_length;
static bool said_busy;
static long *seen;
static size_t seen_count;
static const char *names[64];
static rostrum_view view;

static void write_frame(size_t length) {
    uint32_t head = (uint32_t)length;
    if (fwrite(&head, sizeof head, 1, stdout) != 1 || fwrite(out, 1, length, stdout) != length || fflush(stdout))
        exit(0);
}

static void read_frame(void) {
    if (fread(&in_length, sizeof in_length, 1, stdin) != 1 || in_length >= FRAME_MOST ||
        fread(in, 1, in_length, stdin) != in_length)
        exit(0);
    in[in_length] = 0;
}

static size_t put(size_t at, const void *bytes, size_t length) {
    if (length)
        memcpy(out + at, bytes, length);
    return at + length;
}

/* Asks and waits for the answer, whose first byte is returned. */
static uint8_t ask(size_t length) {
    write_frame(length);
    read_frame();
    return in[0];
}

static uint8_t ask_of(char letter, const char *text) {
    out[0] = (uint8_t)letter;
    return ask(put(1, text, strlen(text)));
}

static int64_t now_ms(void *world) {
    (void)world;
    int64_t now;
    (void)ask_of('T', "");
    memcpy(&now, in + 1, sizeof now);
    return now;
}

static char *take_text(char **at) {
    char *text = *at;
    *at += strlen(text) + 1;
    return text;
}

static rostrum_code next(void *world, rostrum_message *message, const rostrum_view **of, int timeout_ms,
                         rostrum_error *error) {
    (void)world;
    (void)timeout_ms;
    uint8_t kind = ask_of('N', "");
    char *at = (char *)in + 9;
    uint64_t number;
    memcpy(&number, in + 1, sizeof number);
    if (kind == 'M') {
        const char *sender = take_text(&at);
        size_t before = (size_t)(at - (char *)in);
        *message =
            (rostrum_message){.sender = sender, .sn = number, .bytes = at, .length = in_length - (uint32_t)before};
        return ROSTRUM_OK;
    }
    if (kind != 'V') {
        error->code = ROSTRUM_ERR_TIMEOUT;
        return error->code;
    }
    view = (rostrum_view){.number = number, .member_count = in[9], .joined_count = in[10], .left_count = in[11]};
    view.anew = in[12];
    at = (char *)in + 13;
    for (size_t i = 0; i < (size_t)in[9] + in[10] + in[11]; i++)
        names[i] = take_text(&at);
    view.members = names;
    view.joined = names + view.member_count;
    view.left = view.joined + view.joined_count;
    *message = (rostrum_message){.kind = ROSTRUM_VIEW, .sender = ""};
    *of = &view;
    return ROSTRUM_OK;
}

static rostrum_code try_publish(void *world, const void *bytes, uint32_t length, rostrum_error *error) {
    (void)world;
    (void)error;
    out[0] = 'U';
    said_busy = ask(put(1, bytes, length)) != 'y';
    return said_busy ? ROSTRUM_ERR_BUSY : ROSTRUM_OK;
}

static rostrum_code read_object(void *world, const char *name, const uint8_t **bytes, size_t *length,
                                rostrum_error *error) {
    (void)world;
    (void)error;
    if (ask_of('R', name) != 'y')
        return ROSTRUM_ERR_UNKNOWN;
    uint8_t *copy = malloc(in_length);
    if (!copy)
        err(1, "malloc");
    *length = in_length - 1;
    memcpy(copy, in + 1, *length);
    *bytes = copy;
    return ROSTRUM_OK;
}

static void unread(void *world, const uint8_t *bytes, size_t length) {
    (void)world;
    (void)length;
    free((void *)(uintptr_t)bytes);
}

static bool forget(void *world, const char *name) {
    (void)world;
    return ask_of('D', name) == 'y';
}

static rostrum_code add(void *world, const char *name, const void *table, size_t table_length, const void *state,
                        size_t state_length, rostrum_error *error) {
    (void)world, (void)name, (void)table, (void)table_length, (void)state, (void)state_length;
    error->code = ROSTRUM_ERR_NO_ROOM; /* each server has one program */
    return error->code;
}

static rostrum_code send_object(void *world, const char *name, const char *server, const void *table,
                                size_t table_length, const void *state, size_t state_length,
                                rostrum_replica_send **send, rostrum_error *error) {
    (void)world;
    out[0] = 'X';
    size_t at = put(1, server, strlen(server) + 1);
    at = put(at, name, strlen(name) + 1);
    at = put(put(at, table, table_length), state, state_length);
    if (ask(at) != 'y') {
        error->code = ROSTRUM_ERR_NO_ROOM;
        snprintf(error->text, sizeof error->text, "there is no room");
        return error->code;
    }
    *send = calloc(1, sizeof **send);
    if (!*send)
        err(1, "calloc");
    memcpy(&(*send)->number, in + 1, sizeof(*send)->number);
    return ROSTRUM_OK;
}

static bool sent(void *world, rostrum_replica_send *send, rostrum_error *result) {
    (void)world;
    out[0] = 'E';
    uint8_t how = ask(put(1, &send->number, sizeof send->number));
    if (how == 'n')
        return false;
    if (how == 'f') {
        result->code = ROSTRUM_ERR_FAILED;
        snprintf(result->text, sizeof result->text, "it failed");
    }
    free(send);
    return true;
}

static void abandon(void *world, rostrum_replica_send *send) {
    (void)world;
    free(send);
}

static void see(long number) {
    seen = realloc(seen, ++seen_count * sizeof *seen);
    if (!seen)
        err(1, "realloc");
    seen[seen_count - 1] = number;
}

static void deliver(void *context, const rostrum_message *message) {
    (void)context;
    char text[24] = {0};
    memcpy(text, message->bytes, message->length < sizeof text ? message->length : sizeof text - 1);
    see(strtol(text, NULL, 10));
}

static rostrum_code get_state(void *context, void **bytes, size_t *length) {
    (void)context;
    FILE *text = open_memstream((char **)bytes, length);
    fputs("[", text);
    for (size_t i = 0; i < seen_count; i++)
        fprintf(text, "%s%ld", i ? ", " : "", seen[i]);
    fputs("]", text);
    return fclose(text) ? ROSTRUM_ERR_NO_ROOM : ROSTRUM_OK;
}

static rostrum_code set_state(void *context, const void *bytes, size_t length) {
    (void)context;
    char *text = strndup(bytes, length), *at = text + 1;
    seen_count = 0;
    for (char *end; at < text + length; at = end + 1) {
        long number = strtol(at, &end, 10);
        if (end == at)
            break;
        see(number);
    }
    free(text);
    return ROSTRUM_OK;
}

static void tell(const rostrum_replica *replica) {
    void *state;
    size_t length;
    const rostrum_replica_rows *holders = &rostrum_replica_table_of(replica)->holders;
    (void)get_state(NULL, &state, &length);
    int at = snprintf((char *)out, sizeof out, "K{\"ready\": %d, \"busy\": %d, \"seen\": %.*s, \"holders\": [",
                      rostrum_replica_ready(replica), said_busy, (int)length, (char *)state);
    for (uint32_t i = 0; i < holders->count; i++)
        at += snprintf((char *)out + at, sizeof out - (size_t)at, "%s[\"%s\", %" PRIu64 "]", i ? ", " : "",
                       holders->rows[i].who.server, holders->rows[i].who.nonce);
    at += snprintf((char *)out + at, sizeof out - (size_t)at, "]}");
    free(state);
    write_frame((size_t)at);
}

int main(int argc, char **argv) {
    static const rostrum_replica_world world = {now_ms, next, try_publish, read_object, unread,
                                                forget, add,  send_object, sent,        abandon};
    static const rostrum_replica_callbacks callbacks = {
        .deliver = deliver, .get_state = get_state, .set_state = set_state};
    rostrum_error error;
    bool delivered;
    if (argc < 3)
        errx(2, "usage: %s SERVER GROUP", argv[0]);
    rostrum_replica *replica = rostrum_replica_new(&world, NULL, argv[1], argv[2], &callbacks, NULL);
    if (!replica)
        errx(1, "no memory");
    rostrum_replica_set_attempts(replica, 1000);
    for (;;) { /* a frame: step; until its input ends */
        read_frame();
        rostrum_code code = rostrum_replica_step(replica, -1, &delivered, &error);
        if (code && code != ROSTRUM_ERR_TIMEOUT)
            errx(1, "%s", error.text);
        tell(replica);
    }
}
