/* A group's socket, or one of many groups (channels.c): what was read of it and is to be written. */
#ifndef ROSTRUM_CLIENT_GROUPS_H
#define ROSTRUM_CLIENT_GROUPS_H

#include "api/group_delivery.h"
#include "api/group_frames.h"
#include "api/shared_ring.h"

#include <rostrum/groups.h>

#include <stdbool.h>
#include <stddef.h>

#define ROSTRUM_OUT_KEPT (64u << 10) /* bytes of messages that wait for more */
#define ROSTRUM_SENDER_BUCKETS 256u

typedef struct rostrum_sender {
    struct rostrum_sender *next;
    uint32_t number;
    char name[];
} rostrum_sender;

typedef struct {
    uint8_t *bytes;
    size_t start, length, room;
} rostrum_buffer;

struct rostrum_group {
    int fd;
    uint32_t message_bytes;
    char protocol[32], order[RS_GROUP_DELIVERY_TEXT];
    rostrum_buffer out, in;
    bool asks, subscribes;    /* asks: for a ring, which has not come yet */
    int given[2];             /* descriptors that came with it; -1: none */
    rs_shared_ring ring;      /* what comes by the socket is behind what is in it */
    rs_shared_ring published; /* of who does not subscribe: in front of `out`, and the socket only wakes the agent */
    rostrum_buffer large;     /* what there is of a frame that does not fit the ring; given out when it is whole */
    const rostrum_sender *last;
    const char **names; /* of `view` */
    rostrum_view view;
    rostrum_sender *senders[ROSTRUM_SENDER_BUCKETS];
    rostrum_error ended; /* the agent's final messages, or why there are none */
};

int64_t rostrum_now_ms(void);
/* A group at its own socket, which is the group's; NULL without memory. */
rostrum_group *rostrum_group_at(int fd, const char *protocol, const char *order, uint32_t message_bytes);
/* Closes the socket; nothing is sent. */
void rostrum_group_free(rostrum_group *group);
/* Room for `more` bytes behind what is there. */
bool rostrum_buffer_reserve(rostrum_buffer *buffer, size_t more);
/* Sends what the agent has room for. BUSY (`error` untouched): that was not all. */
rostrum_code rostrum_group_flush_some(rostrum_group *group, rostrum_error *error);
/* Who publishes only takes the ring that may have come. False: there is no memory for it. */
bool rostrum_group_take_ring(rostrum_group *group);
/* Reads what is there. 0 = something came, else an errno; ECONNRESET at the end. */
int rostrum_group_fill(rostrum_group *group);
/* One whole frame at `at`. True: `out` is filled. */
bool rostrum_group_take_frame(rostrum_group *group, const uint8_t *at, uint32_t length, int kind, rostrum_message *out,
                              rostrum_error *error);

#endif
