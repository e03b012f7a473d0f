/* Message groups in the simulator: the agent's rs_messages (core/groups/messages.h) at hosts, and a workload of many
 * publishers. Members are told of a group when it is made; who publishes learns of it when it first does. This file is
 * also read by Python (cffi): plain declarations only. */
#ifndef ROSTRUM_SIM_MESSAGES_H
#define ROSTRUM_SIM_MESSAGES_H

#include "engine/sim.h"

#pragma GCC visibility push(default)

/* All groups of one simulation. */
typedef struct sim_groups sim_groups;

/* Zero = default of the engine. */
typedef struct {
    uint64_t seed;
    uint32_t packet_bytes;
    uint64_t receive_bytes, send_bytes;
    uint32_t max_groups, max_streams, max_missing, window_packets, kept_repairs, repair_buffers;
    int64_t nak_delay_ns, nak_retry_ns, give_up_ns, give_up_plain_ns, flush_ns, heartbeat_ns;
    uint32_t heartbeats;
} sim_messages_params;

typedef struct {
    const char *protocol;    /* name of its engine */
    const char *options;     /* of that engine, as in rs_messages_view */
    uint32_t order;          /* rs_messages_order */
    bool tell_given_up;      /* what is given up is among the recoveries */
    const uint32_t *regions; /* of sim_message_region: their hosts together are the members */
    uint32_t region_count;   /* 0: the group is by itself */
} sim_group_params;

/* Processor time at a host; 0 = none. One processor does it all, in turn; what it has no time for waits in a buffer of
 * `buffer_bytes`, and what does not fit there is lost. */
typedef struct {
    int64_t receive_ns, send_ns; /* a datagram */
    int64_t message_ns;          /* a message, published or delivered */
    int64_t token_ns;            /* a token of QSM, besides */
    int64_t cold_ns;             /* a message of a group that is none of the last `warm_groups` heard of, besides */
    uint32_t warm_groups;        /* groups whose state is in the processor's caches */
    uint32_t buffer_bytes;
} sim_host_costs;

/* Of all hosts together. A message is expected at each member but its publisher; packets are those of the whole run. */
typedef struct {
    uint64_t published, expected;
    uint64_t by_data, by_repair, by_retransmit; /* deliveries, by how they came */
    uint64_t lost;                              /* told to subscribers as lost */
    uint64_t discovered, data_sent, repairs_sent, naks_sent, retransmits_sent, heartbeats_sent;
    uint64_t data_received, repairs_received, repairs_used, repairs_useless, repairs_combined;
    uint64_t xors, bad, refused, regions_most, bins_most;
    uint64_t buffer_lost; /* datagrams that came to busy processors with full buffers */
} sim_messages_stats;

/* A message that did not come by multicast, or that was given up. */
typedef struct {
    int64_t late_ns;  /* from when it was published to when it was delivered; given up: to when it was found missing */
    int64_t known_ns; /* from when it was found missing to when it was delivered; 0 if a repair told and brought it */
    uint32_t host;
    uint32_t via; /* rs_messages_via; 3: given up, of groups that tell it */
} sim_recovery;

sim_groups *sim_groups_new(sim *s);
void sim_groups_free(sim_groups *groups); /* before the simulation */

/* The engine at a host that has none. */
bool sim_use_messages(sim_groups *groups, uint32_t host, const sim_messages_params *params);
/* A group of hosts that all have the engine; its number, from 1, which is also that of its multicast packets. SIM_ERROR
 * if that cannot be. A further channel, for engines that use two, has that number + 2^24. */
uint32_t sim_message_group(sim_groups *groups, const sim_group_params *params, const uint32_t *members, uint32_t count);
/* A region of hosts that all have the engine, for groups that overlap in it; its number, which is no group, is that
 * of its multicast packets. Other hosts are told of it when they first publish to one of its groups. SIM_ERROR if that
 * cannot be. */
uint32_t sim_message_region(sim_groups *groups, const sim_group_params *params, const uint32_t *nodes, uint32_t count);
bool sim_message_costs(sim_groups *groups, uint32_t host, const sim_host_costs *costs);
/* From `start` to `stop` the host publishes messages of `bytes` to all its groups in turn, as fast as its processor and
 * the engine take them. */
bool sim_publish_all(sim_groups *groups, uint32_t host, uint32_t bytes, int64_t start, int64_t stop);
/* The host's processor does nothing in [from, to). */
bool sim_message_freeze(sim_groups *groups, uint32_t host, int64_t from, int64_t to);
/* What the host's engines count under that name and kind ("": of all kinds; core/groups/messages.h). */
uint64_t sim_messages_count(const sim_groups *groups, uint32_t host, const char *name, const char *kind);
/* From `start` to `stop` the host publishes messages of `bytes` (at least 8), `per_s` a second in the mean, to groups
 * drawn at random from all that there are then, or from its own. */
bool sim_publish(sim_groups *groups, uint32_t host, bool own_groups, double per_s, uint32_t bytes, int64_t start,
                 int64_t stop);
/* Only what is published in [from, to) counts from now on [all]: neither a beginning nor an end is like the rest. */
void sim_count_between(sim_groups *groups, int64_t from, int64_t to);
void sim_messages_stats_get(const sim_groups *groups, sim_messages_stats *out);
const sim_recovery *sim_recoveries(const sim_groups *groups, uint64_t *count);

#pragma GCC visibility pop

#endif
