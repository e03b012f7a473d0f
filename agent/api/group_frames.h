/* Frames of a message group's own socket (docs/application-interface.md, Message groups). Used by the agent and by
 * librostrum. Little-endian, one behind the other: length u32 (bytes behind the head), kind u8, flags u8, channel u16,
 * 0 where the socket is of one group; else the program's number for a group, from 1.
 *
 *   PUBLISH  a message                                       program to agent
 *   JOIN     a request JOIN (api/wire.h)                     program to agent, of a channel
 *   LEAVE                                                    program to agent, of a channel; others agent to program
 *   JOINED   largest message u32, protocol, order: each a length u8 and a text
 *   MESSAGE  sender u32, part u32, sn u64, a message         flags: how it came (0 multicast, 1 repair, 2 asked for,
 *                                                            3 kept from before)
 *   SENDER   number u32, its server's name                   before the first message of a sender
 *   LOST     sender u32 (0: of any), zero u32, sn u64, count u64     flags: why
 *   END      code u16, words                                 nothing follows (of the channel)
 *   COMPLETE number u64, count u64                           of the messages that the program published in the group,
 *                                                            so many are complete; of `count` more nobody knows
 *   VIEW     view u64, number u64, three counts u32 (members, joined, left), and their numbers u32, each after its
 *            SENDER                                          flags: 1 this server joined with it, or the program came
 *                                                            while it held
 *   PRIMARY                                                  flags: 1 in the primary part (again), 0 not, as far as is
 *                                                            known
 *   RING                                                     the first frame, with two descriptors: frames come by that
 *                                                            memory from here on (api/shared_ring.h), or go by it to
 *                                                            the agent if the program does not subscribe; the other
 *                                                            wakes who waits for room: an eventfd, the agent; a
 *                                                            socket, the program
 *   WAKE                                                     there is something in the memory; either way
 *
 * Where there is a ring, what comes by the socket came after all that is in the ring. Of who publishes by a ring
 * nothing is taken by the socket. */
#ifndef RS_API_GROUP_FRAMES_H
#define RS_API_GROUP_FRAMES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define RS_GROUP_FRAME_HEAD 8u
#define RS_GROUP_FRAME_MESSAGE (RS_GROUP_FRAME_HEAD + 16u)
#define RS_GROUP_FRAME_LOST (RS_GROUP_FRAME_HEAD + 24u)
#define RS_GROUP_FRAME_VIEW (RS_GROUP_FRAME_HEAD + 28u)
#define RS_GROUP_FRAME_COMPLETE (RS_GROUP_FRAME_HEAD + 16u)
#define RS_GROUP_FRAME_VIEW_MOST 4096u /* numbers in a VIEW */

enum {
    RS_GROUP_FRAME_KIND_PUBLISH = 1,
    RS_GROUP_FRAME_KIND_MESSAGE = 2,
    RS_GROUP_FRAME_KIND_SENDER = 3,
    RS_GROUP_FRAME_KIND_LOST = 4,
    RS_GROUP_FRAME_KIND_END = 5,
    RS_GROUP_FRAME_KIND_VIEW = 6,
    RS_GROUP_FRAME_KIND_PRIMARY = 7,
    RS_GROUP_FRAME_KIND_JOIN = 8,
    RS_GROUP_FRAME_KIND_LEAVE = 9,
    RS_GROUP_FRAME_KIND_JOINED = 10,
    RS_GROUP_FRAME_KIND_COMPLETE = 11,
    RS_GROUP_FRAME_KIND_RING = 12,
    RS_GROUP_FRAME_KIND_WAKE = 13
};

static inline void rs_group_put(uint8_t *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static inline uint64_t rs_group_get(const uint8_t *from, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

static inline void rs_group_frame_put_head(uint8_t *to, uint32_t length, uint8_t kind, uint8_t flags) {
    rs_group_put(to, length, 4);
    rs_group_put(to + 4, (uint32_t)kind | (uint32_t)flags << 8, 4);
}

/* The kind; 0 if it is none. */
static inline int rs_group_frame_head(const uint8_t *from, uint32_t *length) {
    *length = (uint32_t)rs_group_get(from, 4);
    return from[4] <= RS_GROUP_FRAME_KIND_WAKE ? from[4] : 0;
}

static inline uint16_t rs_group_frame_channel(const uint8_t *frame) {
    return (uint16_t)rs_group_get(frame + 6, 2);
}

/* Of a frame that was written. */
static inline void rs_group_frame_put_channel(uint8_t *frame, uint16_t channel) {
    rs_group_put(frame + 6, channel, 2);
}

static inline void rs_group_frame_message(uint8_t *to, uint32_t length, uint8_t via, uint32_t sender, uint32_t part,
                                          uint64_t sn) {
    rs_group_frame_put_head(to, 16 + length, RS_GROUP_FRAME_KIND_MESSAGE, via);
    rs_group_put(to + 8, sender, 4);
    rs_group_put(to + 12, part, 4);
    rs_group_put(to + 16, sn, 8);
}

static inline size_t rs_group_frame_sender_length(size_t name) {
    return RS_GROUP_FRAME_HEAD + 4 + name;
}

static inline void rs_group_frame_sender(uint8_t *to, uint32_t number, const char *name, size_t length) {
    rs_group_frame_put_head(to, 4 + (uint32_t)length, RS_GROUP_FRAME_KIND_SENDER, 0);
    rs_group_put(to + 8, number, 4);
    memcpy(to + 12, name, length);
}

static inline void rs_group_frame_lost(uint8_t *to, uint32_t sender, uint64_t sn, uint64_t count, uint8_t reason) {
    rs_group_frame_put_head(to, 24, RS_GROUP_FRAME_KIND_LOST, reason);
    rs_group_put(to + 8, sender, 8);
    rs_group_put(to + 16, sn, 8);
    rs_group_put(to + 24, count, 8);
}

/* `counts`: members, joined, left; `numbers` are all of them. */
static inline void rs_group_frame_view(uint8_t *to, uint8_t flags, uint64_t view, uint64_t number,
                                       const uint32_t counts[3], const uint32_t *numbers) {
    uint32_t all = counts[0] + counts[1] + counts[2];
    rs_group_frame_put_head(to, 28 + 4 * all, RS_GROUP_FRAME_KIND_VIEW, flags);
    rs_group_put(to + 8, view, 8);
    rs_group_put(to + 16, number, 8);
    for (uint32_t i = 0; i < 3; i++)
        rs_group_put(to + 24 + 4 * (size_t)i, counts[i], 4);
    for (uint32_t i = 0; i < all; i++)
        rs_group_put(to + RS_GROUP_FRAME_VIEW + 4 * (size_t)i, numbers[i], 4);
}

static inline void rs_group_frame_complete(uint8_t *to, uint64_t number, uint64_t given_up) {
    rs_group_frame_put_head(to, 16, RS_GROUP_FRAME_KIND_COMPLETE, 0);
    rs_group_put(to + 8, number, 8);
    rs_group_put(to + 16, given_up, 8);
}

static inline size_t rs_group_frame_joined_length(size_t protocol, size_t order) {
    return RS_GROUP_FRAME_HEAD + 6 + protocol + order;
}

static inline void rs_group_frame_joined(uint8_t *to, uint32_t message_bytes, const char *protocol,
                                         size_t protocol_length, const char *order, size_t order_length) {
    rs_group_frame_put_head(to, 6 + (uint32_t)(protocol_length + order_length), RS_GROUP_FRAME_KIND_JOINED, 0);
    rs_group_put(to + 8, message_bytes, 4);
    to[12] = (uint8_t)protocol_length;
    memcpy(to + 13, protocol, protocol_length);
    to[13 + protocol_length] = (uint8_t)order_length;
    memcpy(to + 14 + protocol_length, order, order_length);
}

static inline size_t rs_group_frame_end_length(size_t words) {
    return RS_GROUP_FRAME_HEAD + 2 + words;
}

static inline void rs_group_frame_end(uint8_t *to, uint16_t code, const char *text, size_t length) {
    rs_group_frame_put_head(to, 2 + (uint32_t)length, RS_GROUP_FRAME_KIND_END, 0);
    rs_group_put(to + 8, code, 2);
    memcpy(to + 10, text, length);
}

#endif
