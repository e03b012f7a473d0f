#include "daemon/data/overlay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/wire.h"
#include "daemon/agent.h"
#include "daemon/data/sending.h"
#include "daemon/secure.h"
#include "daemon/units.h"
#include "io/datagrams.h"
#include "io/guard.h"

#define EARLY_MOST 64u               /* views of transfers that have not begun here yet; the oldest gives way */
#define EARLY_BOUND (60 * RS_SECOND) /* and this old ones are of no use */
#define RECEIVE_TURN 256u
#define UNNAMED_MOST 16u
#define LOOK_EVERY (RS_SECOND / 1000)
#define SEALED_ROOM (4u << 20) /* bytes of sealed datagrams that wait for the socket; more are sent first */

/* A view as numbers: what a transfer of the core takes, and for whose report. `held` are all the peers in it. */
typedef struct kept_view {
    rs_object_id id;
    uint32_t group; /* of the path it is of: an object that is sent again has another */
    rs_xfer xfer;   /* 0: of no transfer yet */
    rs_time since;
    char response_id[RS_MANAGER_NAME_MAX + 1];
    rs_view view;
    rs_peer *held;
    uint32_t held_count;
    struct kept_view *next;
} kept_view;

struct rs_overlay {
    rs_agent *agent;
    rs_overlay_callbacks callbacks;
    rs_datagrams *datagrams;
    rs_watch readable;
    kept_view *views; /* the newest first */
    /* Peers that are known by their connections alone and sent a datagram: hints, checked. */
    rs_peer unnamed[UNNAMED_MOST];
    uint32_t next_unnamed;
    rs_time look_again; /* for another one, not before */
    uint8_t *sealed;    /* NULL: datagrams go as they are */
    size_t sealed_used;
    uint8_t *opened;
    /* Peers whose datagrams came by a translation of addresses: hints, checked. */
    rs_peer translated[UNNAMED_MOST];
    uint32_t next_translated;
    rs_time look_outside; /* for another one, not before */
};

static void free_view(rs_overlay *o, kept_view *k) {
    for (uint32_t i = 0; i < k->held_count; i++)
        rs_peers_release(&o->agent->peers, k->held[i]);
    free((void *)(uintptr_t)k->view.children);
    free(k->held);
    free(k);
}

/* ---------------------------------------------------------------------------------------------------------- packets */

/* Without a view nobody names a sender to its receivers: its connection tells where it is. 0: not known. */
static uint32_t address_of(const rs_overlay *o, rs_peer peer) {
    uint32_t named = rs_peers_entry(&o->agent->peers, peer)->address;
    return named ? named : rs_control_address(o->agent->control, peer);
}

/* Of an agent that nobody named to this one: as of any other here. */
static uint16_t port_of(const rs_overlay *o, rs_peer peer) {
    const rs_peer_entry *entry = rs_peers_entry(&o->agent->peers, peer);
    if (entry->outside_port)
        return entry->outside_port;
    return entry->address ? entry->control_port : o->agent->options.control_port;
}

/* Its datagrams may come from another port, for they may be translated on their way. */
static bool may_be_translated(const rs_overlay *o, rs_peer peer) {
    const rs_peer_entry *entry = rs_peers_entry(&o->agent->peers, peer);
    return entry->dials || entry->address == 0;
}

static bool is_at(const rs_overlay *o, rs_peer peer, uint32_t address) {
    return peer < o->agent->peers.room && o->agent->peers.entries[peer].used && address_of(o, peer) == address;
}

/* Who that is; RS_NO_PEER: nobody this agent has to do with. Who was not named is looked for among the connections, not
 * for each of a stranger's datagrams. */
static rs_peer peer_from(rs_overlay *o, uint32_t address) {
    rs_peer peer = rs_peers_located(&o->agent->peers, address);
    if (peer != RS_NO_PEER)
        return peer;
    for (uint32_t i = 0; i < UNNAMED_MOST; i++)
        if (is_at(o, o->unnamed[i], address))
            return o->unnamed[i];
    if (rs_agent_now(o->agent) < o->look_again)
        return RS_NO_PEER;
    o->look_again = rs_agent_now(o->agent) + LOOK_EVERY;
    for (rs_peer i = 0; i < o->agent->peers.room; i++)
        if (is_at(o, i, address)) {
            o->unnamed[o->next_unnamed++ % UNNAMED_MOST] = i;
            return i;
        }
    return RS_NO_PEER;
}

static bool hand_over(rs_overlay *o, rs_peer peer, const uint8_t *bytes, size_t length) {
    size_t header;
    return rs_wire_datagram(bytes, length, &header) >= 0 &&
           o->callbacks.packet(o->callbacks.context, peer, bytes, header, bytes + header, (uint32_t)(length - header));
}

/* From a port that is no peer's, or not of the peer that was found by the address alone. It is of an agent behind a
 * translation if it is of a transfer with that one: strangers do not know a transfer's nonce. Several agents may be
 * behind one address; of strangers' datagrams few are looked at. */
static void from_outside(rs_overlay *o, uint32_t address, uint16_t port, const uint8_t *bytes, size_t length) {
    rs_peers *peers = &o->agent->peers;
    for (uint32_t i = 0; i < UNNAMED_MOST; i++)
        if (is_at(o, o->translated[i], address) && peers->entries[o->translated[i]].outside_port == port &&
            hand_over(o, o->translated[i], bytes, length))
            return;
    if (rs_agent_now(o->agent) < o->look_outside)
        return;
    o->look_outside = rs_agent_now(o->agent) + LOOK_EVERY;
    for (rs_peer i = 0; i < peers->room; i++)
        if (is_at(o, i, address) && may_be_translated(o, i) && hand_over(o, i, bytes, length)) {
            peers->entries[i].outside_port = port;
            o->translated[o->next_translated++ % UNNAMED_MOST] = i;
            return;
        }
}

/* What was sealed for this agent: whose it is, and its bytes, which take the place of the datagram's. False: nobody
 * looks at it. */
static bool open_sealed(rs_overlay *o, const uint8_t **bytes, size_t *length, uint32_t *whose) {
    rs_seal_verdict verdict = rs_seal_open(rs_keyring_self(o->agent->keys), (rs_seal_place){0, 0}, RS_SEAL_SHOWN,
                                           *bytes, *length, o->opened, RS_DATAGRAM_MAX, NULL);
    if (verdict != RS_SEAL_RIGHT)
        return false;
    *whose = rs_seal_shown(o->opened);
    *bytes = o->opened + RS_SEAL_SHOWN;
    *length -= RS_SEAL_MORE + RS_SEAL_SHOWN;
    return true;
}

static void taken(void *context, uint32_t address, uint16_t port, const uint8_t *bytes, size_t length) {
    rs_overlay *o = context;
    uint32_t whose = address;
    if (o->sealed && (length < RS_SEAL_MORE + RS_SEAL_SHOWN || !open_sealed(o, &bytes, &length, &whose)))
        return;
    if (o->callbacks.datagram(o->callbacks.context, whose, bytes, length))
        return;
    rs_peer peer = peer_from(o, whose);
    if (peer == RS_NO_PEER && whose == address)
        return; /* a stranger's */
    bool its_own = peer != RS_NO_PEER && (o->sealed || port == port_of(o, peer));
    if (its_own && (hand_over(o, peer, bytes, length) || !may_be_translated(o, peer)))
        return;
    from_outside(o, address, port, bytes, length);
}

/* By the clock of the turn's beginning they would have come before they were sent, on a busy host by 20 ms: round trips
 * would seem shorter than the path has, and each later one a queue. */
static void read_now(void *context) {
    rs_overlay *o = context;
    rs_loop_refresh(o->agent->loop);
}

static void readable(void *context, uint32_t events) {
    rs_overlay *o = context;
    (void)events;
    if (!o->callbacks.ready(o->callbacks.context))
        return;
    unsigned count = rs_datagrams_receive(o->datagrams, RECEIVE_TURN, taken, read_now, o);
    o->callbacks.read(o->callbacks.context, count, count < RECEIVE_TURN);
}

typedef struct {
    rs_seal *seal;
    uint32_t shown;
    const uint8_t *head, *rest;
    size_t head_length, rest_length;
    uint8_t *out;
    bool done;
} sealing;

static void seal_it(void *context) {
    sealing *s = context;
    s->done = rs_seal_close_shown(s->seal, (rs_seal_place){0, 0}, s->shown, s->head, s->head_length, s->rest,
                                  s->rest_length, s->out);
}

/* What is sealed waits until the flush, as payloads do. It is for that server alone. */
static void put(rs_overlay *o, const char *server, rs_seal_place to, const uint8_t *head, size_t head_length,
                const uint8_t *rest, size_t rest_length) {
    if (!o->sealed) {
        rs_datagrams_send(o->datagrams, to.address, to.port, head, head_length, rest, rest_length);
        return;
    }
    const size_t length = head_length + rest_length + RS_SEAL_SHOWN + RS_SEAL_MORE;
    rs_seal *seal = rs_secure_peer(o->agent, server);
    if (length > RS_DATAGRAM_MAX || !seal)
        return;
    if (SEALED_ROOM - o->sealed_used < length)
        rs_overlay_flush(o);
    uint8_t *at = o->sealed + o->sealed_used;
    sealing s = {seal, o->agent->options.address, head, rest, head_length, rest_length, at, false};
    if (!rs_guard_run(seal_it, &s) || !s.done)
        return; /* the object's file was shortened; or there is no key */
    o->sealed_used += length;
    /* without payload it is control, which goes before others */
    size_t first = rest_length > 0 ? RS_SEAL_HEAD : length < RS_DATAGRAM_HEADER_MAX ? length : RS_DATAGRAM_HEADER_MAX;
    rs_datagrams_send(o->datagrams, to.address, to.port, at, first, at + first, length - first);
}

void rs_overlay_send(rs_overlay *o, const rs_packet_out *out, const uint8_t *payload) {
    uint32_t address = address_of(o, out->peer);
    if (!address)
        return;
    put(o, rs_peers_entry(&o->agent->peers, out->peer)->name, (rs_seal_place){address, port_of(o, out->peer)},
        out->header, out->header_length, payload, out->payload_length);
    if (out->markable)
        rs_datagrams_markable(o->datagrams);
}

rs_time rs_overlay_waited(const rs_overlay *o) {
    return rs_datagrams_waited(o->datagrams);
}

bool rs_overlay_marked(const rs_overlay *o) {
    return rs_datagrams_marked(o->datagrams);
}

void rs_overlay_send_bytes(rs_overlay *o, const char *server, uint32_t address, uint16_t port, const uint8_t *head,
                           size_t head_length, const uint8_t *rest, size_t rest_length) {
    put(o, server, (rs_seal_place){address, port}, head, head_length, rest, rest_length);
}

/* ------------------------------------------------------------------------------------------------------- directory */

/* Port 0: only who is known. */
static rs_peer peer_at(void *context, uint32_t address, uint16_t port) {
    rs_agent *agent = context;
    if (address == agent->options.address)
        return RS_NO_PEER;
    return port ? rs_peers_locate(&agent->peers, address, port) : rs_peers_located(&agent->peers, address);
}

static bool place_of(void *context, rs_peer peer, uint32_t *address, uint16_t *port) {
    const rs_agent *agent = context;
    if (peer == RS_NO_PEER) {
        *address = agent->options.address;
        *port = agent->options.control_port;
        return *address != 0;
    }
    const rs_peer_entry *entry = rs_peers_entry(&agent->peers, peer);
    bool by_connection = agent->options.carry && !entry->dials; /* nobody names a sender to its receivers */
    *address = by_connection ? address_of(agent->overlay, peer) : entry->address;
    *port = by_connection ? port_of(agent->overlay, peer) : entry->control_port;
    return *address != 0;
}

static uint32_t rack_of(void *context, rs_peer peer) {
    const rs_agent *agent = context;
    return peer == RS_NO_PEER ? agent->rack : rs_peers_entry(&agent->peers, peer)->rack;
}

static bool knows_tree(void *context, rs_peer peer) {
    const rs_agent *agent = context;
    return rs_control_knows(agent->control, peer) & RS_HELLO_TREE;
}

static bool carries(void *context, rs_peer peer) {
    const rs_agent *agent = context;
    return rs_control_knows(agent->control, peer) & RS_HELLO_CARRY;
}

/* "" of this server's own: who is not named here is not named to others. */
static const char *name_of(void *context, rs_peer peer) {
    const rs_agent *agent = context;
    const char *name = rs_peers_name(&agent->peers, peer);
    return name[0] == '@' ? "" : name;
}

static rs_peer peer_called(void *context, uint32_t address, uint16_t port, const char *name) {
    rs_agent *agent = context;
    if (address == agent->options.address || strcmp(name, agent->options.server) == 0)
        return RS_NO_PEER;
    return rs_peers_heard(&agent->peers, name, address, port);
}

static const char *object_name(void *context, const rs_object_id *id) {
    const rs_agent *agent = context;
    const rs_object *object = rs_store_find(agent->store, id);
    return object && object->name ? object->name : "";
}

rs_directory rs_overlay_directory(rs_agent *agent) {
    return (rs_directory){.peer_at = peer_at,
                          .place_of = place_of,
                          .rack_of = rack_of,
                          .knows_tree = knows_tree,
                          .carries = carries,
                          .name_of = name_of,
                          .peer_called = peer_called,
                          .object_name = object_name,
                          .context = agent,
                          .host_bits = 8};
}

void rs_overlay_flush(rs_overlay *o) {
    rs_datagrams_flush(o->datagrams);
    o->sealed_used = 0;
}

/* ------------------------------------------------------------------------------------------------------------ views */

/* The number of somebody the view names; RS_NO_PEER for nobody and for this server itself. */
static rs_peer number(const rs_overlay *o, const char *name) {
    if (!name || strcmp(name, o->agent->options.server) == 0)
        return RS_NO_PEER;
    return rs_peers_find(&o->agent->peers, name);
}

static bool learn_servers(rs_overlay *o, const rs_manager_view *v, kept_view *k) {
    k->held = calloc(v->server_count + 1u, sizeof *k->held);
    if (!k->held)
        return false;
    for (uint32_t i = 0; i < v->server_count; i++) {
        if (strcmp(v->servers[i].server, o->agent->options.server) == 0)
            continue;
        rs_peer peer = rs_peers_at(&o->agent->peers, v->servers[i].server, v->servers[i].address);
        if (peer == RS_NO_PEER)
            return false;
        rs_peers_hold(&o->agent->peers, peer);
        k->held[k->held_count++] = peer;
        rs_peers_told(&o->agent->peers, peer, v->servers[i].address, v->servers[i].control_port, v->servers[i].rack);
        rs_control_address_known(o->agent->control, peer);
    }
    return true;
}

static rs_ring_place ring(const rs_overlay *o, const rs_manager_ring *r) {
    return (rs_ring_place){number(o, r->predecessor), number(o, r->successor), number(o, r->parent)};
}

/* NULL: no memory, or no numbers left. */
static kept_view *keep(rs_overlay *o, const rs_manager_view *v) {
    kept_view *k = calloc(1, sizeof *k);
    rs_peer *children = calloc(v->child_count + 1u, sizeof *children);
    if (!k || !children) {
        free(k);
        free(children);
        return NULL;
    }
    k->id = v->object;
    k->group = v->group;
    k->since = rs_agent_now(o->agent);
    k->view.version = v->version;
    k->view.children = children;
    snprintf(k->response_id, sizeof k->response_id, "%s", v->response_id);
    if (!learn_servers(o, v, k)) {
        free_view(o, k);
        return NULL;
    }
    k->view.leaf = ring(o, &v->leaf);
    /* The only receiver is in no ring: it answers to the sender (types.h). */
    if (!v->leaf.predecessor && !v->leaf.successor && !v->leaf.parent)
        k->view.leaf.parent = number(o, v->sender);
    k->view.proxy = ring(o, &v->proxy);
    for (uint32_t i = 0; i < v->child_count; i++) {
        rs_peer child = number(o, v->children[i]);
        if (child != RS_NO_PEER)
            children[k->view.child_count++] = child;
    }
    return k;
}

static bool same_path(const kept_view *a, const kept_view *b) {
    return memcmp(&a->id, &b->id, sizeof a->id) == 0 && a->group == b->group;
}

/* Views that are older than the one that came for the same transfer, or for the same path while that has none, or that
 * waited for one too long. */
static void prune(rs_overlay *o, const kept_view *newest) {
    uint32_t early = 0;
    for (kept_view **at = &o->views; *at;) {
        kept_view *k = *at;
        bool replaced = k != newest && k->xfer == newest->xfer && (k->xfer || same_path(k, newest));
        bool late = k->xfer == 0 && (rs_agent_now(o->agent) - k->since > EARLY_BOUND || ++early > EARLY_MOST);
        if (!replaced && !late) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        free_view(o, k);
    }
}

static void hand_in(rs_overlay *o, kept_view *k) {
    rs_status status = rs_set_view(o->agent->node, rs_agent_now(o->agent), k->xfer, &k->view);
    bool usual = status == RS_OK || status == RS_ERR_STATE; /* it goes by unicast, or by Republic */
    rs_log(usual ? RS_LOG_DEBUG : RS_LOG_WARNING, "overlay", "object=%s view=%llu%s%s", rs_id_text(&k->id),
           (unsigned long long)k->view.version,
           status == RS_OK ? "" : " not used: ", status == RS_OK ? "" : rs_strerror(status));
}

/* Of the transfers of that object the one that this path is for. An object may be received and sent on at a time, and
 * be sent again while the manager still tells views of the last path. */
static const rs_transfer_entry *transfer_of(const rs_agent *agent, const rs_manager_view *view) {
    rs_incoming info;
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        if (memcmp(&t->id, &view->object, sizeof t->id) == 0 &&
            strcmp(rs_sending_of(t)->path.response_id, view->response_id) == 0)
            return t;
    for (const rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next)
        if (memcmp(&t->id, &view->object, sizeof t->id) == 0 &&
            rs_incoming_info(agent->node, t->xfer, &info) == RS_OK && info.group_address == view->group)
            return t;
    return NULL;
}

void rs_overlay_view(void *context, const rs_manager_view *view) {
    rs_agent *agent = context;
    rs_overlay *o = agent->overlay;
    kept_view *k = keep(o, view);
    if (!k) {
        rs_log(RS_LOG_WARNING, "overlay", "no room for a view of %u servers", view->server_count);
        return;
    }
    const rs_transfer_entry *t = transfer_of(agent, view);
    k->xfer = t ? t->xfer : 0;
    k->next = o->views;
    o->views = k;
    prune(o, k);
    if (t)
        hand_in(o, k);
}

void rs_overlay_transfer(rs_overlay *o, rs_xfer xfer, const rs_object_id *id, uint32_t group) {
    for (kept_view *k = o->views; k; k = k->next)
        if (k->xfer == 0 && k->group == group && memcmp(&k->id, id, sizeof *id) == 0) {
            k->xfer = xfer;
            hand_in(o, k);
            return;
        }
}

void rs_overlay_transfer_over(rs_overlay *o, rs_xfer xfer) {
    for (kept_view **at = &o->views; *at;) {
        kept_view *k = *at;
        if (k->xfer != xfer) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        free_view(o, k);
    }
}

void rs_overlay_event(rs_overlay *o, const rs_event *event) {
    const kept_view *k = o->views;
    while (k && k->xfer != event->xfer)
        k = k->next;
    if (!k || !o->agent->link)
        return;
    rs_time now = rs_agent_now(o->agent);
    if (event->kind == RS_EV_VIEW_USED) {
        rs_log(RS_LOG_INFO, "overlay", "object=%s view=%llu in use", rs_id_text(&k->id),
               (unsigned long long)event->version);
        rs_manager_view_used(o->agent->link, now, k->response_id, event->version);
        return;
    }
    const char *name = rs_peers_name(&o->agent->peers, event->peer);
    const rs_manager_failure_kind kind = event->kind == RS_EV_RECEIVER_FAILED  ? RS_MANAGER_RECEIVER_FAILED
                                         : event->kind == RS_EV_LINK_SUSPECTED ? RS_MANAGER_TREE_LINK_FAILED
                                                                               : RS_MANAGER_TREE_LINK_WORKS;
    static const char *const text[] = {[RS_MANAGER_RECEIVER_FAILED] = "answers to no repair: it has failed",
                                       [RS_MANAGER_TREE_LINK_FAILED] =
                                           "gets everything by repair: a link above it has failed",
                                       [RS_MANAGER_TREE_LINK_WORKS] = "gets packets by the tree: no link has failed"};
    rs_log(kind == RS_MANAGER_TREE_LINK_WORKS ? RS_LOG_INFO : RS_LOG_WARNING, "overlay",
           "object=%s successor=%s ring=%s %s", rs_id_text(&k->id), rs_quote(name),
           event->ring == RS_RING_LEAF ? "leaf" : "proxy", text[kind]);
    rs_manager_failure(o->agent->link, now, k->response_id, event->version, kind, event->ring, name);
}

/* ---------------------------------------------------------------------------------------------------------- birth */

rs_overlay *rs_overlay_new(rs_agent *agent, const rs_overlay_callbacks *callbacks) {
    char error[160] = "out of memory";
    rs_overlay *o = calloc(1, sizeof *o);
    if (!o) {
        rs_log(RS_LOG_ERROR, "overlay", "%s", error);
        return NULL;
    }
    o->agent = agent;
    o->callbacks = *callbacks;
    o->readable = (rs_watch){.ready = readable, .context = o};
    bool joined = strcmp(agent->options.io, "udp") != 0;
    o->datagrams = rs_datagrams_open(agent->options.address, agent->options.control_port, joined, error, sizeof error);
    if (agent->keys) {
        o->sealed = malloc(SEALED_ROOM);
        o->opened = malloc(RS_DATAGRAM_MAX);
    }
    bool ready = !agent->keys || (o->sealed && o->opened);
    if (!o->datagrams || !ready || !rs_loop_watch(agent->loop, &o->readable, rs_datagrams_fd(o->datagrams), EPOLLIN)) {
        rs_log(RS_LOG_ERROR, "overlay", "%s", error);
        rs_overlay_free(o);
        return NULL;
    }
    return o;
}

void rs_overlay_free(rs_overlay *o) {
    if (!o)
        return;
    while (o->views) {
        kept_view *k = o->views;
        o->views = k->next;
        free_view(o, k);
    }
    if (o->datagrams)
        rs_loop_unwatch(o->agent->loop, &o->readable);
    rs_datagrams_close(o->datagrams);
    free(o->sealed);
    free(o->opened);
    free(o);
}
