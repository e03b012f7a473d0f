/* The seam of group engines. What all groups share is the node's: packets and their numbers, which of them are missing,
 * order, large messages, events, views, who is believed, NAKs. How losses come back, what else members tell each other,
 * and how long a loss is worth waiting for is an engine's. The node calls an engine by this table only, and no other
 * place asks which engine it is; an engine calls what it stands on directly (state.h, and the headers beside it). To
 * add one: a folder, and a row in the table of known engines (engines.c).
 *
 * Any operation but `policy` may be NULL: then there is nothing to do. What an engine remembers of a node is `own`,
 * of a group rs_gm_group.own, and only that engine looks at it. Datagrams of an engine begin like all others with the
 * magic, the version and their kind, and have their check where rs_gm_seal puts it. */
#ifndef RS_CORE_GROUPS_ENGINE_H
#define RS_CORE_GROUPS_ENGINE_H

#include "core/groups/messages.h"

#define RS_GROUP_OPTIONS_MOST 8u
#define RS_GROUP_OPTIONS_TEXT 256u /* bytes of all options of a group as text, with the 0 behind them */
#define RS_GROUP_HEAD_MOST 672u    /* bytes in the first piece of a datagram of two */
#define RS_GROUP_KIND_OWN 32u      /* kinds of datagrams from here on are free for engines */

typedef struct rs_gm_group rs_gm_group;
typedef struct rs_gm_missing rs_gm_missing;

/* An option that views of an engine's groups may carry, as "name=value,name=value". Values are decimal numbers, kept in
 * thousandths. */
typedef struct {
    const char *name;
    uint32_t least_milli, most_milli, usual_milli;
    bool fraction;       /* It need not be a whole number. */
    const char *meaning; /* for people, with its unit, in 100 bytes at most (rostrum.thrift); NULL: nothing is said */
    /* Left out of the options' text while it has its usual value. So is each that came after a release: agents of that
     * refuse names that they do not know, and standalone groups compare the text. The usual value is then what the
     * engine did before, and stays. Never changed of an option that was in a release: the text would be another. */
    bool later;
} rs_group_option;

/* What a group does about packets that are missing. */
typedef struct {
    bool recovers;   /* They may come yet, also those behind which nothing came: publishers tell how far they are. */
    bool naks;       /* They are asked for: of their sender first, then of other members in turn (naks.c). */
    bool alone;      /* With NAKs: nothing else brings them, so they are asked for at once. */
    bool silent;     /* The engine itself tells how far publishers are: there are no heartbeats. */
    rs_time give_up; /* They are told as lost so long after they were found missing, */
    /* ... or, of what a publisher sent before it heard the view with which it came back, so long; 0: the same. */
    rs_time give_up_behind;
} rs_group_policy;

/* A count of an engine, for metrics. */
typedef struct rs_group_stat {
    const char *name, *kind; /* one kind of what is counted under that name; NULL: there are no kinds */
    uint64_t value;
    bool gauge; /* It also goes down. */
} rs_group_stat;
#define RS_GROUP_STATS_MOST 32u

struct rs_group_engine {
    const char *name;    /* in views, in configuration, and for people */
    const char *meaning; /* for people, in 100 bytes at most (rostrum.thrift); NULL: nothing is said */
    const rs_group_option *options;
    uint32_t option_count;
    const uint8_t *kinds; /* of datagrams that are the engine's: no other engine of the node has them */
    uint32_t kind_count;

    /* ---- life of the engine's part of a node: what `start` makes is `own` below; without it, `own` is the node.
     * rs_gm_engine_config tells it what it is given for itself. */
    rs_status (*start)(rs_messages *node, void **own);
    void (*stop)(void *own);

    /* ---- views. `group` is as it was (without members if it is new), `next` as it is going to be. */
    rs_group_policy (*policy)(const rs_messages *node, const rs_gm_group *next);
    /* A view is about to hold: checks what the options' ranges do not say, and makes room; nothing has changed yet. On
     * an error rs_gm_refuse tells why. */
    rs_status (*prepare)(void *own, const rs_gm_group *group, const rs_gm_group *next);
    /* Cannot fail. Called for the engine that the group leaves, too. */
    void (*change)(void *own, rs_gm_group *group, const rs_gm_group *next);
    /* A region has a new view, or none any more (of no nodes). For engines whose groups travel in regions. */
    rs_status (*region)(void *own, rs_time now, const rs_messages_region *view);

    /* ---- data */
    /* Bytes in front of a packet's body in the engine's longest datagram that carries one: bodies leave them room. */
    uint32_t (*head)(const rs_gm_group *group);
    /* The channels a data packet of this node goes to: the one of this turn, from 0; RS_NO_GROUP ends them. NULL: it
     * goes to the group's first channel alone. */
    rs_group (*channel)(const rs_gm_group *group, uint64_t sn, uint32_t turn);
    /* Instead of `channel`: a sealed data packet of this node's stream is taken into datagrams of the engine's own, as
     * far as there is room; what comes out of these at other nodes goes through rs_gm_receive_carried (arrive.h).
     * False: not now; it is offered again with each poll. */
    bool (*carry)(void *own, rs_time now, rs_gm_group *group, const uint8_t *datagram, uint32_t length);
    /* A new data packet came by multicast. */
    void (*received)(void *own, rs_time now, rs_gm_group *group, const uint8_t *datagram, uint32_t length);
    /* Packets have arrived, however they came: what they made possible may be done now. */
    void (*arrived)(void *own, rs_time now);
    /* rs_messages_soon, of a datagram of one of the engine's kinds. */
    rs_message_group (*soon)(const void *own, uint32_t ahead, const uint8_t *bytes, size_t length);
    /* A datagram of one of the engine's kinds, from whom (RS_NO_PEER: nobody knows). False: it is malformed. */
    bool (*datagram)(void *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);

    /* ---- what is missing */
    void (*missing)(void *own, rs_time now, rs_gm_missing *missing);
    /* It is here: `body` is its body. Then, or after `lost`, `missing` is free for another one. */
    void (*found)(void *own, rs_gm_missing *missing, const uint8_t *body, uint32_t length);
    void (*lost)(void *own, rs_gm_missing *missing);
    /* With NAKs: it comes once another one comes that was asked for, and need not be asked for itself yet. */
    bool (*comes_with_another)(const void *own, const rs_gm_missing *missing);
    /* With NAKs: when so many packets of the group came after it, the engine brings it no more; 0: nobody can say. */
    uint32_t (*hope_packets)(const rs_gm_group *group);

    /* ---- completion (rs_messages_tell_completion) */
    rs_status (*complete)(void *own, rs_gm_group *group, bool tell);
    bool (*completed)(void *own, rs_messages_event *out); /* The next event of that kind, if there is one. */

    /* ---- timers, output, counts */
    void (*timeout)(void *own, rs_time now);
    rs_time (*deadline)(const void *own);
    bool (*poll)(void *own, rs_time now, rs_messages_out *out);
    void (*take_back)(void *own); /* What `poll` gave out is the engine's again. */
    /* RS_GROUP_STATS_MOST at most; how many there are. */
    uint32_t (*stats)(const void *own, rs_group_stat *out);
};

/* node.c: what the engine of that name is given for itself, while it starts; NULL: nothing. */
const void *rs_gm_engine_config(const rs_messages *node, const char *engine);

/* engines.c: those that every node knows; the first one is the usual one. */
extern const rs_group_engine *const rs_group_engines_known[];
extern const uint32_t rs_group_engine_count;

#endif
