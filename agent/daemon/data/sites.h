/* Sends to several sites: legs over the wide area to relays, and relays that pass on what comes (docs/wan.md). */
#ifndef RS_DAEMON_SITES_H
#define RS_DAEMON_SITES_H

#include "daemon/data/sending.h"

typedef struct rs_leg rs_leg;
typedef struct rs_spread rs_spread;
typedef struct rs_sites rs_sites;

/* What sending.c and receiving.c call goes by a table: they know nothing of legs, and sites.c stands on both. */
typedef struct {
    bool (*several)(const rs_sites *sites);
    bool (*spread)(rs_sites *sites, rs_send_state *parent);
    bool (*path)(rs_sites *sites, rs_send_state *carrier, uint64_t remaining);
    void (*receiver)(rs_sites *sites, rs_send_state *carrier, const rostrum_receiver *receiver);
    void (*carried)(rs_sites *sites, rs_send_state *carrier, bool ok, const char *cause);
    void (*cancel)(rs_sites *sites, rs_send_state *parent, const char *cause);
    void (*spread_free)(rs_sites *sites, rs_spread *spread);
    void (*sample)(rs_sites *sites, rs_send_state *parent);
    void (*relay_changed)(rs_sites *sites, const rs_send_state *sending);
    void (*relay_over)(rs_sites *sites, const rs_send_state *sending, bool ok, const char *cause);
    void (*incoming)(rs_sites *sites, const rs_object_id *id);
    void (*object_complete)(rs_sites *sites, const rs_object *object);
    void (*gone)(rs_sites *sites, const rs_object *object, const char *cause);
    rs_digest (*digest)(const rs_sites *sites, const rs_object *object);
} rs_sites_calls;

typedef struct {
    const rs_sites_calls *calls;
} rs_sites_face;

#define RS_SITES_CALL(sites, what) (((const rs_sites_face *)(const void *)(sites))->calls->what)

rs_sites *rs_sites_new(rs_agent *agent);
void rs_sites_free(rs_sites *sites);
/* The manager's calls. */
void rs_sites_link(rs_manager_options *options, rs_manager_callbacks *callbacks);
/* A manager is there: whether there are sites it says next. While none is there are those of before. */
void rs_sites_link_up(rs_sites *sites);

/* Whether a send of an object goes by legs: there are several sites. */
static inline bool rs_sites_several(const rs_sites *sites) {
    return RS_SITES_CALL(sites, several)(sites);
}
/* `parent` goes by legs: the manager is asked which. False: out of memory. */
static inline bool rs_sites_spread(rs_sites *sites, rs_send_state *parent) {
    return RS_SITES_CALL(sites, spread)(sites, parent);
}
/* Of a leg: a path is wanted that is not asked of the manager. False: it is one of its own site. */
static inline bool rs_sites_path(rs_sites *sites, rs_send_state *carrier, uint64_t remaining) {
    return RS_SITES_CALL(sites, path)(sites, carrier, remaining);
}
/* Of a leg: a receiver's state has changed; the sending itself is over, and gone after this. */
static inline void rs_sites_receiver(rs_sites *sites, rs_send_state *carrier, const rostrum_receiver *receiver) {
    RS_SITES_CALL(sites, receiver)(sites, carrier, receiver);
}
static inline void rs_sites_carried(rs_sites *sites, rs_send_state *carrier, bool ok, const char *cause) {
    RS_SITES_CALL(sites, carried)(sites, carrier, ok, cause);
}
static inline void rs_sites_cancel(rs_sites *sites, rs_send_state *parent, const char *cause) {
    RS_SITES_CALL(sites, cancel)(sites, parent, cause);
}
static inline void rs_sites_spread_free(rs_sites *sites, rs_spread *spread) {
    RS_SITES_CALL(sites, spread_free)(sites, spread);
}
/* Figures of its legs. */
static inline void rs_sites_sample(rs_sites *sites, rs_send_state *parent) {
    RS_SITES_CALL(sites, sample)(sites, parent);
}

/* Of what this server passes on: a receiver's state has changed; all of it is over. */
static inline void rs_sites_relay_changed(rs_sites *sites, const rs_send_state *sending) {
    RS_SITES_CALL(sites, relay_changed)(sites, sending);
}
static inline void rs_sites_relay_over(rs_sites *sites, const rs_send_state *sending, bool ok, const char *cause) {
    RS_SITES_CALL(sites, relay_over)(sites, sending, ok, cause);
}

/* An object comes in, from somebody; it is parent, and in the store; it goes away before. */
static inline void rs_sites_incoming(rs_sites *sites, const rs_object_id *id) {
    RS_SITES_CALL(sites, incoming)(sites, id);
}
static inline void rs_sites_object_complete(rs_sites *sites, const rs_object *object) {
    RS_SITES_CALL(sites, object_complete)(sites, object);
}
static inline void rs_sites_gone(rs_sites *sites, const rs_object *object, const char *cause) {
    RS_SITES_CALL(sites, gone)(sites, object, cause);
}
/* Of an object that comes in. */
static inline rs_digest rs_sites_digest(const rs_sites *sites, const rs_object *object) {
    return RS_SITES_CALL(sites, digest)(sites, object);
}
/* What has come of objects may go on; once in each turn of the loop. */
void rs_sites_work(rs_sites *sites);

rs_time rs_sites_deadline(const rs_sites *sites);
void rs_sites_timeout(rs_sites *sites);

#endif
