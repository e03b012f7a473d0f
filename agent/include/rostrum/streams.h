/* Continuing streams: what one program writes, programs on many servers read, while it is being written
 * (docs/application-interface.md).
 *
 *     rostrum_stream *log;
 *     if (rostrum_stream_send(agent, 7, (const char *[]){"h3", "h5"}, 2, NULL, &log, &error) ||
 *         rostrum_stream_write(log, line, length, &error) || rostrum_stream_finish(log, NULL, &error))
 *         errx(1, "%s", error.text);
 *     rostrum_stream_close(log);
 *
 * and on h3 and h5:
 *
 *     rostrum_code code = rostrum_stream_receive(agent, 7, 60000, &log, &error);
 *     while (!code && !(code = rostrum_stream_read(log, bytes, sizeof bytes, &length, &error)) && length > 0)
 *         use(bytes, length);
 *
 * A stream is of the connection it was begun on: close it before that. */
#ifndef ROSTRUM_STREAMS_H
#define ROSTRUM_STREAMS_H

#include <rostrum/rostrum.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A stream that this program writes or reads. */
typedef struct rostrum_stream rostrum_stream;

/* Begins a stream to the servers named. Of `options` (may be NULL) wait_ms, stragglers and on_event count: it goes by
 * RDCM over a packet tree. Errors come from writing and finishing it. */
ROSTRUM_API rostrum_code rostrum_stream_send(rostrum *agent, uint64_t data_id, const char *const *receivers,
                                             uint32_t receiver_count, const rostrum_send_options *options,
                                             rostrum_stream **out, rostrum_error *error);
/* Writes all of it; waits while the path or the slowest receiver holds the stream back. After an error there is no
 * more. */
ROSTRUM_API rostrum_code rostrum_stream_write(rostrum_stream *stream, const void *bytes, size_t length,
                                              rostrum_error *error);
/* This was all: waits until the program of every receiver has it, or has failed. FAILED if some has; *result (may be
 * NULL) then has the whole story, as of rostrum_send. */
ROSTRUM_API rostrum_code rostrum_stream_finish(rostrum_stream *stream, rostrum_send_result **result,
                                               rostrum_error *error);

/* A stream that comes to this server, or begins within wait_ms (0: it must have begun). A program that reads nothing
 * for two of the agent's silence bounds (10 s) while something waits fails here; the others go on. */
ROSTRUM_API rostrum_code rostrum_stream_receive(rostrum *agent, uint64_t data_id, uint32_t wait_ms,
                                                rostrum_stream **out, rostrum_error *error);
/* A stream under way that is not for this server: of servers that receive it, or send it ("NAME", "NAME@ADDRESS" or
 * "NAME@ADDRESS:PORT"). It begins with the oldest bytes that these keep (some MB), and goes on to its end. Nobody waits
 * for who has joined: a program that falls further behind fails. */
ROSTRUM_API rostrum_code rostrum_stream_join(rostrum *agent, uint64_t data_id, const char *const *holders,
                                             uint32_t holder_count, uint32_t wait_ms, rostrum_stream **out,
                                             rostrum_error *error);
/* Waits for bytes; *length is 0 at the end of the stream, which is whole then. Errors: UNKNOWN, TIMEOUT (it did not
 * begin), EXISTS (another program here reads it), FAILED (there will be no more, and it is not whole; the text says
 * why). */
ROSTRUM_API rostrum_code rostrum_stream_read(rostrum_stream *stream, void *bytes, size_t room, size_t *length,
                                             rostrum_error *error);

/* The socket of its bytes, to poll: writable, or readable. */
ROSTRUM_API int rostrum_stream_fd(const rostrum_stream *stream);
/* Before its end it fails: at all receivers if this program wrote it, else here (rostrum_leave_object before: it is
 * left). May be NULL. */
ROSTRUM_API void rostrum_stream_close(rostrum_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
