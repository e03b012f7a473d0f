/* Objects that come in: room, group, payloads in place, digest; they become visible only when all of it is right. */
#include "daemon/data/receiving.h"
#include "daemon/api/waits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/data/combine.h"
#include "daemon/data/origin.h"
#include "daemon/data/overlay.h"
#include "daemon/data/receiving_state.h"
#include "daemon/data/sites.h"
#include "daemon/data/wrong_digest.h"
#include "daemon/pieces/fetch.h"
#include "daemon/pieces/hear.h"
#include "daemon/pieces/holdings.h"
#include "daemon/secure.h"
#include "daemon/streams/receive.h"
#include "daemon/units.h"

#define PROGRESS_EVERY (100 * RS_MILLISECOND)
#define STORED_MAX 512u                   /* payloads of one look at the data channel */
#define ALLOCATE_TURN (1u << 20)          /* bytes of room made in one turn of the loop, per transfer */
#define ALLOCATE_GAP (4 * RS_MILLISECOND) /* keeps ahead of 2 Gb/s; what comes faster makes its own room */
#define STALLED_TICKS 30u                 /* PROGRESS_EVERY each, in which an object that blocks room got too little */
#define STALLED_BYTES (1u << 20)          /* in that time */
#define DIGEST_TURN 1u                    /* chunks digested in one turn while data comes */
#define DIGEST_TURN_COMPLETE 8u           /* and when nothing else is left to do */
#define CHECK_TURN 4u /* pieces of objects on disk, checked in one turn when nothing is transferred */

/* Payloads that will be in place when the present look at the data channel ends. */
static struct {
    rs_receive_state *receiving;
    uint64_t offset;
    uint32_t length;
} stored[STORED_MAX];
static unsigned stored_count;

/* Fragments of streams among these: the core learns of each when its bytes are in place and are right. */
static struct {
    rs_receive_state *receiving;
    uint64_t offset;
    rs_packet_in packet; /* its header is below */
    uint8_t header[RS_DATA_HEADER];
} unchecked[STORED_MAX];
static unsigned unchecked_count;

static rs_receive_state *receiving_of(rs_transfer_entry *transfer) {
    return (rs_receive_state *)(void *)transfer;
}

static rs_receive_state *find(const rs_agent *agent, rs_xfer xfer) {
    rs_transfer_entry *transfer = rs_transfers_find(&agent->transfers, xfer);
    return transfer && !transfer->sending ? receiving_of(transfer) : NULL;
}

static void tell(rs_agent *agent, const rs_receive_state *r, rostrum_event_kind kind, const char *phase,
                 const char *text) {
    rs_xfer_stats stats = {0};
    rs_xfer_stats_get(agent->node, r->base.xfer, &stats);
    uint64_t streamed = r->base.sink ? rs_stream_sink_bytes(r->base.sink) : 0;
    rostrum_event event = {.kind = kind,
                           .size = r->base.sink ? streamed : r->size,
                           .session = r->session,
                           .bytes = r->base.sink ? streamed : stats.bytes_present};
    snprintf(event.subject, sizeof event.subject, "%s", phase);
    snprintf(event.text, sizeof event.text, "%s", text);
    rs_api_event(agent->api, &r->base.id, &event);
}

/* ------------------------------------------------------------------------------------------------------- starting */

/* What is passed on while it comes ends with it. */
static void drop_object(rs_agent *agent, rs_object *object, const char *cause) {
    if (object->phase != RS_OBJECT_COMPLETE)
        rs_sites_gone(agent->sites, object, cause);
    rs_store_discard(agent->store, object);
}

/* Its pieces may be of use later, unless it was left. */
static void let_go(rs_agent *agent, rs_object *object, bool left) {
    rs_sites_gone(agent->sites, object, "it does not come to its relay any more");
    if (left || !rs_store_keep(object))
        rs_store_discard(agent->store, object);
}

static void free_receiving(rs_agent *agent, rs_receive_state *r) {
    rs_data_leave(agent->data, r->group);
    rs_overlay_transfer_over(agent->overlay, r->base.xfer);
    rs_stream_sink_free(r->base.sink, "the agent is ending");
    if (r->serving)
        rs_store_release(r->base.object);
    else if (r->base.object)
        let_go(agent, r->base.object, r->base.left);
    rs_digest_tree_free(r->tree);
    free(r->leaves);
    free(r->repairers);
    rs_peers_release(&agent->peers, r->sender);
    free(r);
}

static rs_receive_state *receiving_object(const rs_agent *agent, const rs_object *object) {
    for (rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next)
        if (t->object == object)
            return receiving_of(t);
    return NULL;
}

rs_peer rs_receiving_from(const rs_agent *agent, const rs_object *object) {
    const rs_receive_state *r = receiving_object(agent, object);
    return r ? r->sender : RS_NO_PEER;
}

rs_digest rs_receiving_digest(const rs_agent *agent, const rs_object *object) {
    const rs_receive_state *r = receiving_object(agent, object);
    return r ? r->expected : (rs_digest){0};
}

bool rs_receiving_goes_on(const rs_agent *agent, const rs_object_id *id) {
    const rs_object *object = rs_store_find(agent->store, id);
    return object && object->phase == RS_OBJECT_RECEIVING && receiving_object(agent, object);
}

rs_xfer rs_receiving_by(const rs_agent *agent, const rs_object *object) {
    const rs_receive_state *r = receiving_object(agent, object);
    return r ? r->base.xfer : 0;
}

/* An object whose sender is gone, between its transfer and that of the server that sends it on: the first bytes of it
 * are here. */
static struct {
    rs_object *object;
    uint64_t bytes;
} kept;

/* Another transfer goes on with it, or it goes. */
static void drop_kept(rs_agent *agent) {
    if (kept.object)
        drop_object(agent, kept.object, "its sender is gone, and nobody sent it on");
    kept.object = NULL;
}

/* True: the object is that one, and its bytes are in the new digest. */
static bool resume(rs_agent *agent, rs_receive_state *r, const rs_incoming *info, rs_xfer xfer) {
    if (!kept.object || memcmp(&kept.object->id, &info->object, sizeof info->object) != 0 ||
        kept.object->size != info->size)
        return false;
    uint64_t bytes = kept.bytes / info->fragment_size * info->fragment_size;
    if (bytes && rs_incoming_resume(agent->node, xfer, bytes) != RS_OK)
        bytes = 0;
    for (uint64_t at = 0; at < bytes; at += RS_DIGEST_CHUNK)
        rs_digest_tree_present(r->tree, at, bytes - at < RS_DIGEST_CHUNK ? bytes - at : RS_DIGEST_CHUNK);
    r->base.object = kept.object;
    r->resumed = r->base.object->pieces->known > 0;
    kept.object = NULL;
    rs_log(RS_LOG_INFO, "receive", "object=%s goes on where it was: bytes=%llu", rs_id_text(&info->object),
           (unsigned long long)bytes);
    return true;
}

static rs_group join(rs_agent *agent, const rs_incoming *info, char *error) {
    return rs_data_join(agent->data, info->group_address, info->data_port, error);
}

/* Nothing of it came for a while, or nothing at all from a sender that is gone. */
static bool gives_way(const rs_agent *agent, const rs_receive_state *r) {
    rs_xfer_stats stats = {0};
    if (!r->base.object || r->base.object->phase != RS_OBJECT_RECEIVING || r->complete)
        return false;
    rs_xfer_stats_get(agent->node, r->base.xfer, &stats);
    bool gone = r->announced_up && !rs_control_is_up(agent->control, r->sender);
    return r->stalled_ticks >= STALLED_TICKS || (gone && !r->resumed && stats.bytes_present == 0);
}

/* Room is promised to what is announced. Who announces and sends nothing keeps it from others only as long as nobody
 * else needs it: the object that has waited longest for its data gives way. */
static bool make_room(rs_agent *agent) {
    rs_receive_state *idle = NULL;
    for (rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next) {
        rs_receive_state *r = receiving_of(t);
        if (gives_way(agent, r) && (!idle || r->stalled_ticks > idle->stalled_ticks))
            idle = r;
    }
    if (!idle)
        return false;
    rs_log(RS_LOG_WARNING, "receive",
           "object=%s from=%s gives way: no data came of it for a while, and others need its room",
           rs_id_text(&idle->base.id), rs_quote(rs_peers_name(&agent->peers, idle->sender)));
    drop_object(agent, idle->base.object, "the room for it was needed");
    idle->base.object = NULL;
    rs_receive_cancel(agent->node, rs_agent_now(agent), idle->base.xfer,
                      "its data did not come, and another object needed the room that was kept for it");
    return true;
}

static void piece_came(void *context, uint64_t chunk, const uint8_t *leaf) {
    (void)rs_store_piece_came(context, chunk, leaf);
}

/* What is told to the store of an object that is announced, and of who sends it. */
static rs_manifest manifest_of(const rs_agent *agent, const rs_incoming *info) {
    rs_manifest what = {
        .id = info->object, .size = info->size, .algorithm = info->digest.algorithm, .root = info->digest};
    const rs_peer_entry *peer = rs_peers_entry(&agent->peers, info->sender);
    uint32_t address = rs_control_address(agent->control, info->sender);
    what.from_address = peer->address ? peer->address : address;
    what.from_port = peer->control_port ? peer->control_port : agent->options.control_port;
    snprintf(what.from, sizeof what.from, "%.63s", rs_peers_name(&agent->peers, info->sender));
    return what;
}

static bool prepare_object(rs_agent *agent, rs_receive_state *r, const rs_incoming *info, rs_xfer xfer, char *cause,
                           size_t size) {
    rs_error error = {0};
    if (info->digest.algorithm == RS_DIGEST_NONE) {
        snprintf(cause, size, "it is the rest of a stream that %.60s does not know: its agent was started again",
                 agent->options.server);
        return false;
    }
    r->tree = rs_secure_digest(agent, &info->digest) ? rs_digest_tree_new(info->digest.algorithm, info->size) : NULL;
    if (!r->tree) {
        snprintf(cause, size, "digest algorithm %u is not taken at %s", info->digest.algorithm, agent->options.server);
        return false;
    }
    const rs_manifest what = manifest_of(agent, info);
    if (resume(agent, r, info, xfer)) {
        rs_digest_tree_tell(r->tree, piece_came, r->base.object);
        return true;
    }
    do
        r->base.object = rs_store_receive_pieces(agent->store, &what, &error);
    while (!r->base.object && error.code == ROSTRUM_ERR_NO_ROOM && info->size <= rs_store_quota(agent->store) &&
           make_room(agent));
    if (!r->base.object)
        snprintf(cause, size, "no room at %.30s: %.115s", agent->options.server, error.text);
    else
        rs_digest_tree_tell(r->tree, piece_came, r->base.object);
    r->resumed = r->base.object && r->base.object->pieces->known > 0;
    return r->base.object != NULL;
}

static bool prepare_stream(rs_agent *agent, rs_receive_state *r, const rs_incoming *info, char *cause, size_t size) {
    r->size = 0;
    r->allocated = true;
    r->base.sink = rs_stream_sink_new(agent, info, cause, size);
    return r->base.sink != NULL;
}

/* Room, digest and group for an object, or a window for a stream. NULL with the reason in `cause`. */
static rs_receive_state *prepare(rs_agent *agent, const rs_incoming *info, rs_xfer xfer, char *cause,
                                 size_t cause_size) {
    char text[RS_IO_ERROR_MAX];
    rs_receive_state *r = calloc(1, sizeof *r);
    if (!r) {
        snprintf(cause, cause_size, "no memory at %s", agent->options.server);
        return NULL;
    }
    r->base.id = info->object;
    r->sender = info->sender;
    r->group = RS_NO_GROUP;
    r->expected = info->digest;
    r->size = info->size;
    r->session = info->session;
    r->allocated = info->size == 0;
    r->started_ns = rs_wall_clock();
    r->announced_up = rs_control_is_up(agent->control, r->sender);
    rs_peers_hold(&agent->peers, r->sender);
    rs_control_used(agent->control, r->sender);
    if (!(info->size == RS_STREAM ? prepare_stream(agent, r, info, cause, cause_size)
                                  : prepare_object(agent, r, info, xfer, cause, cause_size)))
        goto fail;
    if (info->group_address != 0 && (r->group = join(agent, info, text)) == RS_NO_GROUP) {
        snprintf(cause, cause_size, "%.60s: %.90s", agent->options.server, text);
        goto fail;
    }
    return r;
fail:
    free_receiving(agent, r);
    return NULL;
}

static void refuse(rs_agent *agent, rs_xfer xfer, const rs_incoming *info, const char *cause) {
    rs_log_limited(&agent->refusals, 5, RS_LOG_WARNING, "receive", "object=%s from=%s refused=%s",
                   rs_id_text(&info->object), rs_quote(rs_peers_name(&agent->peers, info->sender)), rs_quote(cause));
    rs_incoming_refuse(agent->node, rs_agent_now(agent), xfer, cause);
    rs_api_object_failed(agent->api, &info->object, cause);
}

/* An object of that id is here already. */
static void meet_existing(rs_agent *agent, rs_xfer xfer, const rs_incoming *info, const rs_object *object) {
    bool alike = object->phase == RS_OBJECT_COMPLETE && object->size == info->size;
    if (alike && rs_digest_follows(&info->digest))
        return; /* it may be the same: its digest will tell */
    if (alike && rs_digest_equal(&object->digest, &info->digest)) {
        rs_log_limited(&agent->offers, 20, RS_LOG_INFO, "receive", "object=%s from=%s is here already",
                       rs_id_text(&info->object), rs_quote(rs_peers_name(&agent->peers, info->sender)));
        rs_incoming_have(agent->node, rs_agent_now(agent), xfer);
        return;
    }
    if (object->phase == RS_OBJECT_DIGESTING && object->size == info->size) {
        rs_incoming_kept(agent->node, rs_agent_now(agent), xfer); /* asked again, its digest will tell */
        return;
    }
    char cause[160];
    snprintf(cause, sizeof cause, "%.60s has another object by that id%s", agent->options.server,
             object->phase == RS_OBJECT_COMPLETE ? ": delete it there, or send this one by another id"
                                                 : ", not whole yet");
    rs_incoming_refuse(agent->node, rs_agent_now(agent), xfer, cause);
    rs_log_limited(&agent->refusals, 5, RS_LOG_WARNING, "receive", "object=%s refused=%s", rs_id_text(&info->object),
                   rs_quote(cause));
}

static void incoming(rs_agent *agent, rs_xfer xfer) {
    rs_incoming info;
    char cause[160];
    if (rs_incoming_info(agent->node, xfer, &info) != RS_OK)
        return;
    const rs_object *existing = info.size == RS_STREAM ? NULL : rs_store_find(agent->store, &info.object);
    const rs_manifest what = manifest_of(agent, &info);
    rs_goes_on goes_on = info.size == RS_STREAM
                             ? RS_GOES_FROM_START
                             : rs_fetch_go_on(agent->fetches, existing == kept.object ? NULL : existing, &what);
    if (goes_on == RS_GOES_ON || goes_on == RS_GOES_NOT)
        (goes_on == RS_GOES_ON ? rs_incoming_kept : rs_receive_leave)(agent->node, rs_agent_now(agent), xfer);
    if (goes_on != RS_GOES_FROM_START)
        return;
    if (info.size != RS_STREAM) {
        rs_fetch_give_way(agent->fetches, &info.object, &info.digest);
        existing = rs_store_find(agent->store, &info.object);
    }
    if (existing && existing != kept.object && !rs_store_resumes(existing, &what)) {
        meet_existing(agent, xfer, &info, existing);
        return;
    }
    rs_receive_state *r = agent->stopping ? NULL : prepare(agent, &info, xfer, cause, sizeof cause);
    drop_kept(agent);
    if (!r) {
        refuse(agent, xfer, &info, agent->stopping ? "the agent is ending" : cause);
        return;
    }
    rs_status status =
        rs_incoming_accept(agent->node, rs_agent_now(agent), xfer, r->group, rs_data_room(agent->data, r->group));
    if (status != RS_OK) {
        rs_log(RS_LOG_ERROR, "receive", "object=%s the core does not take it: %s", rs_id_text(&info.object),
               rs_strerror(status));
        free_receiving(agent, r);
        return;
    }
    r->base.xfer = xfer;
    r->base.progress_at = rs_agent_now(agent) + PROGRESS_EVERY;
    rs_transfers_add(&agent->transfers, &r->base);
    rs_overlay_transfer(agent->overlay, xfer, &info.object, info.group_address);
    if (r->base.sink)
        rs_stream_sink_begin(r->base.sink, xfer);
    char address[RS_ADDRESS_TEXT];
    rs_log_limited(&agent->offers, 20, RS_LOG_INFO, "receive", "%s=%s from=%s bytes=%llu group=%s:%u session=%u",
                   r->base.sink ? "stream" : "object", rs_id_text(&info.object),
                   rs_quote(rs_peers_name(&agent->peers, info.sender)), (unsigned long long)r->size,
                   rs_address_text(info.group_address, address), info.data_port, info.session);
    tell(agent, r, ROSTRUM_EVENT_PHASE, "accepted", "");
    if (r->base.object) {
        rs_origin_begin(agent, &r->origin, &info.object, r->sender, &r->expected);
        rs_sites_incoming(agent->sites, &info.object);
    }
}

/* The next session's group is joined before the last one's is left: they may be the same. */
static void next_session(rs_agent *agent, rs_receive_state *r) {
    rs_incoming info;
    char error[RS_IO_ERROR_MAX];
    if (rs_incoming_info(agent->node, r->base.xfer, &info) != RS_OK)
        return;
    rs_group group = info.group_address ? join(agent, &info, error) : RS_NO_GROUP;
    if (info.group_address && group == RS_NO_GROUP) {
        rs_receive_cancel(agent->node, rs_agent_now(agent), r->base.xfer, error);
        return;
    }
    rs_incoming_accept(agent->node, rs_agent_now(agent), r->base.xfer, group, rs_data_room(agent->data, group));
    rs_data_leave(agent->data, r->group);
    r->group = group;
    r->session = info.session;
    char address[RS_ADDRESS_TEXT];
    rs_log(RS_LOG_INFO, "receive", "object=%s session=%u group=%s:%u", rs_id_text(&r->base.id), r->session,
           rs_address_text(info.group_address, address), info.data_port);
}

/* ------------------------------------------------------------------------------------------------------- payloads */

/* Where a fragment belongs, with room behind it; NULL if the store has none left (the transfer is given up). */
static uint8_t *place_of(rs_agent *agent, rs_receive_state *r, uint64_t offset, uint32_t length) {
    rs_error error = {0};
    if (r->base.sink)
        return rs_stream_sink_at(r->base.sink, offset);
    if (!r->base.object || r->base.object->phase != RS_OBJECT_RECEIVING || offset > r->size ||
        length > r->size - offset || !r->base.object->map)
        return NULL;
    if (!r->allocated && !rs_store_ensure(agent->store, r->base.object, offset, length, &error)) {
        rs_receive_cancel(agent->node, rs_agent_now(agent), r->base.xfer, error.text);
        return NULL;
    }
    for (uint64_t piece = offset / RS_DIGEST_CHUNK; r->resumed && piece * RS_DIGEST_CHUNK < offset + length; piece++)
        rs_store_piece_gone(r->base.object, piece); /* until it is digested again: what comes may be wrong */
    return r->base.object->map + offset;
}

bool rs_receiving_predict(void *context, rs_group group, uint32_t ahead, uint8_t **place, uint32_t *length) {
    rs_agent *agent = context;
    rs_xfer xfer;
    uint64_t offset;
    if (!rs_predict(agent->node, group, ahead, &xfer, &offset, length))
        return false;
    rs_receive_state *r = find(agent, xfer);
    for (unsigned i = 0; i < unchecked_count; i++) /* the core, which does not know of it, would name its place again */
        if (unchecked[i].receiving == r)
            return false;
    *place = r ? place_of(agent, r, offset, *length) : NULL;
    return *place != NULL;
}

static void count_bad(rs_agent *agent, const char *channel, const char *from) {
    agent->packets_bad++;
    rs_log_limited(&agent->malformed, 5, RS_LOG_WARNING, "receive", "malformed on=%s from=%s", channel, rs_quote(from));
}

/* On the data channel nobody can be answered: whose agent it is, its control connection tells. */
static void count_wrong(rs_agent *agent, const rs_packet_in *packet, rs_rx_verdict what) {
    if (what == RS_RX_BAD)
        count_bad(agent, "data-channel", "somebody");
    if (what != RS_RX_VERSION)
        return;
    agent->packets_other_version++;
    rs_log_limited(&agent->versions, 5, RS_LOG_WARNING, "receive",
                   "data packet of wire version %d, this agent speaks version %d: update the older agent",
                   rs_wire_version(packet->header, packet->header_length), RS_WIRE_VERSION);
}

/* ------------------------------------------------------------------------------------------- fragments of streams */

static rs_packet_in packet_of(unsigned at) {
    rs_packet_in packet = unchecked[at].packet;
    packet.header = unchecked[at].header;
    return packet;
}

static void refuse_fragment(rs_agent *agent, const rs_receive_state *r, const rs_packet_in *packet, uint64_t offset) {
    const char *from = packet->peer == RS_NO_PEER ? "its data channel" : rs_peers_name(&agent->peers, packet->peer);
    agent->stream_fragments_refused++;
    rs_log_limited(&agent->refused_fragments, 5, RS_LOG_WARNING, "stream",
                   "stream=%s bytes at %llu are not those that were sent: dropped, and asked for again by=%s",
                   rs_id_text(&r->base.id), (unsigned long long)offset, rs_quote(from));
    rs_stream_piece_refuse(agent->node, rs_agent_now(agent), packet);
}

/* Where the payload of a stream's packet goes until it was looked at. */
static uint8_t *look_later(rs_agent *agent, const rs_packet_in *packet, const rs_stream_piece *piece) {
    rs_receive_state *r = find(agent, piece->xfer);
    if (!r || !r->base.sink || unchecked_count == STORED_MAX)
        return NULL;
    for (unsigned i = 0; i < unchecked_count; i++)
        if (unchecked[i].offset == piece->offset && unchecked[i].receiving == r)
            return NULL; /* twice: no two datagrams share a place */
    unchecked[unchecked_count].receiving = r;
    unchecked[unchecked_count].offset = piece->offset;
    unchecked[unchecked_count].packet = *packet;
    memcpy(unchecked[unchecked_count++].header, packet->header, RS_DATA_HEADER);
    return place_of(agent, r, piece->offset, packet->payload_length);
}

static void check_streams(rs_agent *agent) {
    for (unsigned i = 0; i < unchecked_count; i++) {
        const rs_packet_in packet = packet_of(i);
        const rs_receive_state *r = unchecked[i].receiving;
        if (rs_stream_sink_is_right(r->base.sink, unchecked[i].offset, NULL, unchecked[i].packet.payload_length))
            (void)rs_receive(agent->node, rs_agent_now(agent), &packet);
        else
            refuse_fragment(agent, r, &packet, unchecked[i].offset);
    }
    unchecked_count = 0;
}

/* True: these are bytes of a stream, and wrong; nothing is left to do. */
static bool is_wrong(rs_agent *agent, const rs_packet_in *packet, const uint8_t *payload) {
    rs_stream_piece piece;
    if (!rs_stream_piece_of(agent->node, packet, &piece) || !piece.lacks)
        return false;
    const rs_receive_state *r = find(agent, piece.xfer);
    if (!r || !r->base.sink || rs_stream_sink_is_right(r->base.sink, piece.offset, payload, packet->payload_length))
        return false;
    refuse_fragment(agent, r, packet, piece.offset);
    return true;
}

uint8_t *rs_receiving_deliver(void *context, rs_group group, const uint8_t *header, size_t header_length,
                              uint32_t payload_length) {
    rs_agent *agent = context;
    const rs_packet_in packet = {.channel = RS_CH_GROUP,
                                 .peer = RS_NO_PEER,
                                 .group = group,
                                 .header = header,
                                 .header_length = header_length,
                                 .payload_length = payload_length,
                                 .marked = rs_data_marked(agent->data),
                                 .late = rs_data_late(agent->data)};
    if (rs_wire_data_header_length(header, header_length) == RS_REPAIR_HEADER && header_length == RS_DATA_HEADER)
        return packet.late ? NULL : rs_repairs_take(agent->repairs, group, header, payload_length);
    rs_stream_piece piece;
    if (agent->stream_sinks && header_length == RS_DATA_HEADER && rs_stream_piece_of(agent->node, &packet, &piece) &&
        piece.lacks)
        return look_later(agent, &packet, &piece);
    rs_rx_result result = rs_receive(agent->node, rs_agent_now(agent), &packet);
    if (result.verdict == RS_RX_BAD || result.verdict == RS_RX_VERSION)
        count_wrong(agent, &packet, result.verdict);
    if (result.verdict == RS_RX_UNKNOWN && !packet.late)
        return rs_hear_packet(agent->fetches, group, header, header_length, payload_length);
    if (result.verdict != RS_RX_STORE)
        return NULL;
    rs_receive_state *r = find(agent, result.xfer);
    uint8_t *place = r && stored_count < STORED_MAX ? place_of(agent, r, result.offset, result.length) : NULL;
    if (!place)
        return NULL;
    stored[stored_count].receiving = r;
    stored[stored_count].offset = result.offset;
    stored[stored_count++].length = result.length;
    return place;
}

static void take_repair(rs_agent *agent, const rs_repair_packet *repair) {
    const rs_packet_in packet = {.channel = RS_CH_GROUP,
                                 .peer = RS_NO_PEER,
                                 .group = repair->group,
                                 .header = repair->header,
                                 .header_length = sizeof repair->header,
                                 .payload_length = repair->payload_length};
    rs_rx_result result = rs_receive(agent->node, rs_agent_now(agent), &packet);
    if (result.verdict == RS_RX_BAD || result.verdict == RS_RX_VERSION)
        count_wrong(agent, &packet, result.verdict);
    if (result.verdict != RS_RX_STORE && result.verdict != RS_RX_COMBINE)
        return;
    rs_receive_state *r = find(agent, result.xfer);
    uint8_t *place = r && r->tree ? place_of(agent, r, result.offset, result.length) : NULL;
    if (!place)
        return;
    memcpy(place, repair->payload, result.length);
    if (result.verdict == RS_RX_COMBINE)
        rs_combine_xor(place, result.length, r->base.object->map, result.combine);
    rs_digest_tree_present(r->tree, result.offset, result.length);
}

void rs_receiving_delivered(void *context) {
    rs_agent *agent = context;
    rs_repair_packet repair;
    check_streams(agent);
    for (unsigned i = 0; i < stored_count; i++) {
        const rs_receive_state *r = stored[i].receiving;
        if (!r->tree)
            continue;
        rs_digest_tree_present(r->tree, stored[i].offset, stored[i].length);
        if (r->base.object && r->base.object->map)
            rs_digest_tree_warm(r->tree, r->base.object->map);
    }
    stored_count = 0;
    rs_hear_delivered(agent->fetches);
    while (rs_repairs_next(agent->repairs, &repair))
        take_repair(agent, &repair);
}

bool rs_receiving_message(void *context, rs_peer peer, const uint8_t *header, size_t header_length,
                          const uint8_t *payload, uint32_t payload_length) {
    rs_agent *agent = context;
    const rs_packet_in packet = {.channel = RS_CH_PEER_RELIABLE,
                                 .peer = peer,
                                 .group = RS_NO_GROUP,
                                 .header = header,
                                 .header_length = header_length,
                                 .payload_length = payload_length};
    if (agent->stream_sinks && payload_length > 0 && is_wrong(agent, &packet, payload))
        return true;
    rs_rx_result result = rs_receive(agent->node, rs_agent_now(agent), &packet);
    if (result.verdict == RS_RX_BAD) {
        count_bad(agent, "control-channel", rs_peers_name(&agent->peers, peer));
        return false;
    }
    rs_receive_state *r =
        result.verdict == RS_RX_STORE || result.verdict == RS_RX_LEAVES ? find(agent, result.xfer) : NULL;
    if (r && result.verdict == RS_RX_LEAVES) {
        rs_wrong_digest_leaves(agent, r, &result);
        return true;
    }
    uint8_t *place = r && result.length == payload_length ? place_of(agent, r, result.offset, result.length) : NULL;
    if (place) {
        memcpy(place, payload, payload_length);
        if (r->tree)
            rs_digest_tree_present(r->tree, result.offset, result.length);
    }
    return true;
}

bool rs_receiving_datagram(void *context, rs_peer peer, const uint8_t *header, size_t header_length,
                           const uint8_t *payload, uint32_t payload_length) {
    rs_agent *agent = context;
    const rs_packet_in packet = {.channel = RS_CH_PEER_DATAGRAM,
                                 .peer = peer,
                                 .group = RS_NO_GROUP,
                                 .header = header,
                                 .header_length = header_length,
                                 .payload_length = payload_length,
                                 .marked = rs_overlay_marked(agent->overlay),
                                 .waited = rs_overlay_waited(agent->overlay)};
    if (agent->stream_sinks && payload_length > 0 && is_wrong(agent, &packet, payload))
        return false;
    rs_rx_result result = rs_receive(agent->node, rs_agent_now(agent), &packet);
    if (result.verdict == RS_RX_BAD)
        count_bad(agent, "peer-datagram", rs_peers_name(&agent->peers, peer));
    rs_receive_state *r = result.verdict == RS_RX_STORE ? find(agent, result.xfer) : NULL;
    uint8_t *place = r && result.length == payload_length ? place_of(agent, r, result.offset, result.length) : NULL;
    if (place) {
        memcpy(place, payload, payload_length);
        if (r->tree && peer != r->sender)
            rs_repairers_note(&r->repairers, r->size, peer, result.offset, result.length);
        if (r->tree)
            rs_digest_tree_present(r->tree, result.offset, result.length);
    }
    return result.verdict < RS_RX_UNKNOWN;
}

void rs_receiving_let_go(void *context, const rs_object_id *id) {
    rs_agent *agent = context;
    for (rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next) {
        rs_receive_state *r = receiving_of(t);
        if (!r->serving || memcmp(&t->id, id, sizeof *id) != 0)
            continue;
        rs_store_release(t->object);
        r->serving = false;
        t->object = NULL;
        rs_receive_cancel(agent->node, rs_agent_now(agent), t->xfer, "deleted");
    }
}

/* -------------------------------------------------------------------------------------------------------- verdict */

void rs_receiving_verdict(rs_agent *agent, rs_receive_state *r, bool ok, const char *cause) {
    if (!ok && r->base.object) { /* whatever pieces are right, nobody knows which */
        drop_object(agent, r->base.object, cause);
        r->base.object = NULL;
    }
    rs_verified(agent->node, rs_agent_now(agent), r->base.xfer, ok, cause);
    if (ok)
        rs_api_object_complete(agent->api, &r->base.id);
}

/* Whoever passes it on has not made another one of it. */
static bool is_its_senders(rs_agent *agent, rs_receive_state *r) {
    char cause[RS_ORIGIN_CAUSE];
    const rs_origin_verdict found = rs_origin_check(agent, &r->origin, &r->base.id, r->sender, &r->expected, cause);
    if (found == RS_ORIGIN_OTHER)
        rs_receiving_verdict(agent, r, false, cause);
    return found == RS_ORIGIN_SAME;
}

static void check_digest(rs_agent *agent, rs_receive_state *r) {
    rs_digest found;
    rs_error error = {0};
    char cause[160];
    if (!rs_digest_tree_final(r->tree, &found)) {
        rs_receiving_verdict(agent, r, false, "not every byte that was announced came to the store");
        return;
    }
    if (!rs_digest_equal(&found, &r->expected)) {
        rs_wrong_digest_mend(agent, r);
        return;
    }
    rs_object *object = r->base.object;
    if (!rs_store_commit(agent->store, object, &found, &error)) {
        snprintf(cause, sizeof cause, "the store at %.60s: %.80s", agent->options.server, error.text);
        rs_receiving_verdict(agent, r, false, cause);
        return;
    }
    uint64_t leaf_count;
    uint8_t *leaves = rs_digest_tree_take_leaves(r->tree, &leaf_count);
    rs_store_keep_leaves(object, leaves, leaf_count);
    if (r->origin.wanted) /* the manager takes nobody else's word for it */
        rs_holdings_tell(agent->holdings, object);
    rs_xfer_stats stats = {0};
    rs_xfer_stats_get(agent->node, r->base.xfer, &stats);
    rs_sites_object_complete(agent->sites, object);
    r->serving = rs_engine_has(stats.protocol, RS_ENGINE_SERVES);
    if (r->serving)
        rs_store_hold(object);
    else
        r->base.object = NULL;
    rs_receiving_verdict(agent, r, true, "");
}

/* True: there is more to digest. */
static bool digest_step(rs_agent *agent, rs_receive_state *r) {
    if (!r->base.object || r->base.object->phase != RS_OBJECT_RECEIVING)
        return false;
    uint64_t pending = rs_digest_tree_pending(r->tree);
    if (pending > 0)
        rs_digest_tree_step(r->tree, r->base.object->map, r->complete ? DIGEST_TURN_COMPLETE : DIGEST_TURN);
    pending = rs_digest_tree_pending(r->tree);
    if (r->complete && pending == 0 && !r->leaves_asked && !rs_digest_follows(&r->expected) && is_its_senders(agent, r))
        check_digest(agent, r);
    return pending > 0;
}

void rs_receiving_origin(void *context, const rs_manager_origin *answer) {
    rs_agent *agent = context;
    for (rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next) {
        rs_receive_state *r = receiving_of(t);
        if (memcmp(&t->id, &answer->id, sizeof t->id) == 0 &&
            strcmp(rs_peers_name(&agent->peers, r->sender), answer->sender) == 0) {
            rs_origin_told(&r->origin, answer);
            digest_step(agent, r);
            return; /* it may be over */
        }
    }
}

/* Room is made ahead of the data, but not all at once: that would keep the processor from seeing first light. */
static rs_time allocate_step(rs_agent *agent, rs_receive_state *r) {
    rs_error error = {0};
    if (r->allocated || !r->base.object || r->base.object->phase != RS_OBJECT_RECEIVING)
        return RS_NEVER;
    if (rs_agent_now(agent) < r->allocate_at)
        return r->allocate_at;
    int64_t left = rs_store_allocate_step(agent->store, r->base.object, ALLOCATE_TURN, &error);
    if (left < 0)
        rs_receive_cancel(agent->node, rs_agent_now(agent), r->base.xfer, error.text);
    r->allocated = left <= 0;
    r->allocate_at = rs_agent_now(agent) + ALLOCATE_GAP;
    return r->allocated ? RS_NEVER : r->allocate_at;
}

/* Objects that were found on disk: a piece in each turn, more while nothing else is to do. */
static bool check_step(rs_agent *agent) {
    rs_object *done;
    bool more = rs_store_check_step(agent->store, agent->transfers.count ? 1 : CHECK_TURN, &done);
    if (done && done->phase == RS_OBJECT_COMPLETE)
        rs_api_object_complete(agent->api, &done->id);
    return more;
}

rs_time rs_receiving_work(rs_agent *agent) {
    rs_time next = check_step(agent) ? rs_agent_now(agent) : RS_NEVER;
    for (rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next) {
        rs_time allocate = allocate_step(agent, receiving_of(t));
        rs_time digest = digest_step(agent, receiving_of(t)) ? rs_agent_now(agent) : RS_NEVER;
        next = allocate < next ? allocate : next;
        next = digest < next ? digest : next;
    }
    return next;
}

/* --------------------------------------------------------------------------------------------------------- events */

static void receive_done(rs_agent *agent, rs_receive_state *r, const rs_event *event) {
    rs_log_limited(&agent->endings, 20, event->ok || r->base.left ? RS_LOG_INFO : RS_LOG_WARNING, "receive",
                   "object=%s from=%s %s%s%s", rs_id_text(&r->base.id),
                   rs_quote(rs_peers_name(&agent->peers, r->sender)), event->ok ? "done" : "failed",
                   event->ok ? "" : " cause=", event->ok ? "" : rs_quote(event->cause));
    tell(agent, r, ROSTRUM_EVENT_PHASE, "done", event->ok ? "" : event->cause);
    rs_xfer_stats stats = {0};
    rs_xfer_stats_get(agent->node, r->base.xfer, &stats);
    rs_totals_add(&agent->totals.received, &stats, event->ok);
    rs_object_id id = r->base.id;
    rs_stream_sink_free(r->base.sink, event->cause);
    r->base.sink = NULL;
    rs_transfers_remove(&agent->transfers, &r->base);
    if (event->replaced && r->base.object && !r->serving) {
        drop_kept(agent);
        kept.object = r->base.object;
        kept.bytes = event->bytes;
        r->base.object = NULL;
    }
    free_receiving(agent, r);
    if (!event->ok && !event->replaced)
        rs_api_object_failed(agent->api, &id, event->cause);
}

/* The digest that was to follow: what was to be checked with it is checked. */
static void digest_came(rs_agent *agent, rs_receive_state *r) {
    rs_incoming info;
    if (rs_incoming_info(agent->node, r->base.xfer, &info) != RS_OK)
        return;
    r->expected = info.digest;
    if (r->base.object && r->base.object->phase == RS_OBJECT_RECEIVING)
        (void)rs_store_root_known(r->base.object, &info.digest);
    for (const rs_transfer_entry *t = agent->transfers.sending; t && r->base.object; t = t->next)
        if (t->object == r->base.object && t->xfer)
            rs_send_digest(agent->node, rs_agent_now(agent), t->xfer, &info.digest);
    if (r->complete)
        digest_step(agent, r);
}

void rs_receiving_event(rs_agent *agent, const rs_event *event) {
    rs_receive_state *r = find(agent, event->xfer);
    if (event->kind == RS_EV_INCOMING || (event->kind == RS_EV_DIGEST && !r)) {
        incoming(agent, event->xfer);
        return;
    }
    if (!r)
        return;
    if (event->kind == RS_EV_DIGEST)
        digest_came(agent, r);
    if (event->kind == RS_EV_SESSION)
        next_session(agent, r);
    if (event->kind == RS_EV_COMPLETE && r->base.sink) {
        rs_stream_sink_complete(r->base.sink);
    } else if (event->kind == RS_EV_COMPLETE) {
        r->complete = true;
        digest_step(agent, r);
    }
    if (event->kind == RS_EV_RECEIVE_DONE)
        receive_done(agent, r, event);
}

rs_time rs_receiving_deadline(const rs_agent *agent) {
    rs_time earliest = RS_NEVER;
    for (const rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next)
        earliest = t->progress_at < earliest ? t->progress_at : earliest;
    return earliest;
}

static void note_progress(rs_agent *agent, rs_receive_state *r) {
    rs_xfer_stats stats = {0};
    rs_xfer_stats_get(agent->node, r->base.xfer, &stats);
    if (r->complete || stats.bytes_present >= r->moved_bytes + STALLED_BYTES) {
        r->moved_bytes = stats.bytes_present;
        r->stalled_ticks = 0;
    } else if (r->stalled_ticks < STALLED_TICKS) {
        r->stalled_ticks++;
    }
}

void rs_receiving_timeout(rs_agent *agent) {
    rs_time now = rs_agent_now(agent);
    for (rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next) {
        if (now < t->progress_at)
            continue;
        t->progress_at = now + PROGRESS_EVERY;
        note_progress(agent, receiving_of(t));
        rs_receive_state *r = receiving_of(t);
        char cause[RS_ORIGIN_CAUSE];
        rs_origin_ask(agent, &r->origin, &t->id, r->sender, &r->expected);
        if (rs_origin_is_in_vain(agent, &r->origin, cause)) {
            rs_receive_cancel(agent->node, now, t->xfer, cause);
            return; /* it is over; the rest at the next turn, which is due */
        }
        if (rs_api_event_wanted(agent->api, &t->id))
            tell(agent, receiving_of(t), ROSTRUM_EVENT_PROGRESS, "", "");
    }
}

void rs_receiving_cancel(rs_agent *agent, rs_transfer_entry *transfer, const char *cause) {
    rs_receive_cancel(agent->node, rs_agent_now(agent), transfer->xfer, cause);
}

void rs_receiving_free_all(rs_agent *agent) {
    while (agent->transfers.receiving) {
        rs_transfer_entry *t = agent->transfers.receiving;
        rs_transfers_remove(&agent->transfers, t);
        free_receiving(agent, receiving_of(t));
    }
}
