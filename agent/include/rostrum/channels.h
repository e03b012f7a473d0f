/* Channels: many message groups by one socket, and feeds that the messages are pulled from (QSM, Sec. 2.5).
 *
 *     static int64_t give(void *context, void *to, uint32_t room) {   // called when the agent takes more
 *         struct queue *queue = context;
 *         return queue_is_empty(queue) ? ROSTRUM_FEED_EMPTY : queue_take(queue, to, room);
 *     }
 *     rostrum_channels_open(agent, &channels, &error);
 *     rostrum_channel_open(channels, "ticks", NULL, ROSTRUM_CHANNEL_SUBSCRIBE, give, &queue, &ticks, &error);
 *     while (!rostrum_channels_next(channels, &channel, &message, -1, &error))
 *         ...                                                         // of all groups
 *
 * A program with many groups reads and writes messages of all of them at once, and joins them without waiting for each.
 * A feed that said it is empty is not called again before rostrum_channel_signal: groups that nothing happens in cost
 * nothing. Channels of one socket wait together: a program that must not let one group wait for another's slow members
 * opens several.
 *
 * All is used by one thread, which calls rostrum_channels_next again and again; rostrum_channel_signal by any. */
#ifndef ROSTRUM_CHANNELS_H
#define ROSTRUM_CHANNELS_H

#include <rostrum/groups.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rostrum_channels rostrum_channels;
typedef struct rostrum_channel rostrum_channel;

#define ROSTRUM_CHANNEL_SUBSCRIBE 1u  /* to receive, not only to publish */
#define ROSTRUM_CHANNEL_COMPLETION 2u /* ROSTRUM_COMPLETE tells what all members have (QSM) */
#define ROSTRUM_FEED_EMPTY (-1)

/* Writes the next message, of `room` bytes at most, to `to`, and returns its length; ROSTRUM_FEED_EMPTY: there is none
 * now. It is called by rostrum_channels_next, as the agent takes more, of all feeds in turn. It must not call what is
 * declared here but rostrum_channel_signal. */
typedef int64_t rostrum_feed_fn(void *context, void *to, uint32_t room);

/* Errors: UNAVAILABLE, LIMIT (too many programs have channels), as of any call. */
ROSTRUM_API rostrum_code rostrum_channels_open(rostrum *agent, rostrum_channels **out, rostrum_error *error);
/* Leaves all groups, and frees; what was published still goes out. */
ROSTRUM_API void rostrum_channels_close(rostrum_channels *channels);

/* Asks for a group; ROSTRUM_JOINED or ROSTRUM_ENDED (with why not) comes by rostrum_channels_next. `feed` may be NULL:
 * it is only received, or published to by rostrum_channel_publish. A feed is called from ROSTRUM_JOINED on. Errors:
 * LIMIT (65,535 channels), NO_ROOM, INVALID (a name or options that cannot be). */
ROSTRUM_API rostrum_code rostrum_channel_open(rostrum_channels *channels, const char *group,
                                              const rostrum_group_options *options, unsigned flags,
                                              rostrum_feed_fn *feed, void *context, rostrum_channel **out,
                                              rostrum_error *error);
/* Leaves the group. The channel is gone; after ROSTRUM_ENDED, too, it has to be closed. */
ROSTRUM_API void rostrum_channel_close(rostrum_channel *channel);
ROSTRUM_API const char *rostrum_channel_group(const rostrum_channel *channel);
ROSTRUM_API void *rostrum_channel_context(const rostrum_channel *channel);
/* Its feed has something (again). Any thread may call it, as long as the channel is not closed. */
ROSTRUM_API void rostrum_channel_signal(rostrum_channel *channel);
/* Instead of a feed: publishes a copy. Waits while the agent takes no more. Errors as of rostrum_publish; INVALID also
 * before ROSTRUM_JOINED. */
ROSTRUM_API rostrum_code rostrum_channel_publish(rostrum_channel *channel, const void *bytes, uint32_t length,
                                                 unsigned flags, rostrum_error *error);
/* Sends what rostrum_channel_publish kept for more to come (ROSTRUM_MORE); rostrum_channels_next does so, too. */
ROSTRUM_API rostrum_code rostrum_channels_flush(rostrum_channels *channels, rostrum_error *error);

/* The next message of any channel, as by rostrum_next. Before it waits, and from time to time, it pulls from feeds. */
ROSTRUM_API rostrum_code rostrum_channels_next(rostrum_channels *channels, rostrum_channel **channel,
                                               rostrum_message *message, int timeout_ms, rostrum_error *error);

#ifdef __cplusplus
}
#endif

#endif
