/* Nodes of group messages on a network in virtual time: packets are lost at receivers, delayed (and so reordered), and
 * duplicated as a test wants. Keeps account of what each node must get, and gets. */
#ifndef TEST_MESSAGES_CLUSTER_H
#define TEST_MESSAGES_CLUSTER_H

#include "check.h"
#include "core/groups/engine.h"
#include "core/groups/wire.h"
#include "core/qsm/wire.h"
#include "core/ricochet/wire.h"

#define MS INT64_C(1000000)
#define US INT64_C(1000)

typedef struct cluster cluster;

typedef struct {
    uint32_t nodes;
    uint64_t seed;
    double loss, duplicated;   /* of each packet at each receiver, whatever it carries */
    double corrupted;          /* one bit of it, anywhere, is another */
    bool loss_of_data_only;    /* only multicast data is lost, as in the paper's experiments */
    rs_time delay, jitter;     /* one way */
    rs_messages_config config; /* `self` and `seed` are filled in */
} cluster_options;

/* What one published message is, and who has it. */
typedef struct {
    rs_message_group group;
    rs_peer sender;
    uint32_t length;
    rs_time at;
    uint8_t *due; /* by node: 1 = subscribed when it was published */
    uint8_t *had; /* by node: how many times it was delivered */
} cluster_message;

cluster *cluster_new(const cluster_options *options);
void cluster_free(cluster *c);
rs_messages *cluster_node(cluster *c, uint32_t number);
rs_time cluster_now(const cluster *c);
/* Every node that is or was a member, or publishes, gets the view at once. Options but members, count, group and
 * version are taken from `like`. Who is no more a member need not get what it has not yet. */
void cluster_view(cluster *c, rs_message_group group, const rs_peer *members, uint32_t count,
                  const rs_messages_view *like);
/* Random groups of the workload (n, d, s): `groups` of them, each node in `d` of them on average (Ricochet, Sec. 5). */
void cluster_random_groups(cluster *c, uint32_t groups, uint32_t size, const rs_messages_view *like);
/* One member joins or leaves, by what changed; who joins gets the whole view. */
void cluster_join(cluster *c, rs_message_group group, rs_peer peer);
void cluster_leave(cluster *c, rs_message_group group, rs_peer peer);
/* Somebody leaves the group, or somebody who never was in it joins. */
void cluster_move(cluster *c, rs_message_group group);
bool cluster_is_member(const cluster *c, rs_message_group group, rs_peer peer);
void cluster_publish(cluster *c, rs_peer sender, rs_message_group group, uint32_t length);
/* Time goes on, with all that happens meanwhile. */
void cluster_run(cluster *c, rs_time until);
uint32_t cluster_random(cluster *c, uint32_t bound);
void cluster_loss(cluster *c, double loss);
/* Nothing goes to it or comes from it, and new views do not name it as a publisher. */
void cluster_cut(cluster *c, rs_peer peer, bool cut);
/* The same, and it stands still: no timer of it runs, and it hears of no view. Once one leaves it out, what it has not
 * got is not due to it any more; the next view that has it again says that it is there anew. What it publishes before
 * it hears of that one is due to nobody. */
void cluster_halt(cluster *c, rs_peer peer, bool halted);
/* Up to where that node was told that its own packets are complete. */
uint64_t cluster_complete(const cluster *c, rs_peer peer, rs_message_group group);
void cluster_corrupt(cluster *c, double corrupted);

typedef struct {
    uint64_t due, delivered, missed, twice, wrong; /* messages; wrong: other bytes, or not for that node */
    uint64_t out_of_order;                         /* FIFO groups */
    uint64_t lost_events;
    uint64_t packets_lost; /* data packets the network lost */
    rs_time slowest;       /* from publishing to delivery */
    uint64_t slow;         /* more than 250 ms after they were found missing */
    uint64_t by_via[3];
    rs_time late_sum[3]; /* since discovery */
} cluster_account;

cluster_account cluster_check(cluster *c);
/* Repairs that carried packets of a group, summed over packets and targets, by what was on the wire. */
uint64_t cluster_included(const cluster *c, rs_message_group group);
/* Data packets of a group that its members received by multicast. */
uint64_t cluster_received(const cluster *c, rs_message_group group);
uint64_t cluster_received_by(const cluster *c, rs_message_group group, rs_peer peer);
/* Repairs a node was sent. */
uint64_t cluster_repairs_to(const cluster *c, rs_peer peer);
/* Packets sent on groups' second channels. */
uint64_t cluster_on_second_channels(const cluster *c);
uint64_t cluster_seed(void);

#endif
