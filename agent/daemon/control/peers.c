/* Table of servers by name and number. It is looked up by name once for each connection and receiver of a send, by
 * address for each datagram between peers. */
#include "daemon/control/peers.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/units.h"

#define CANDIDATES 64u /* of which one loses its number */
#define NAMELESS '@'   /* of which the address follows: nobody has named who is there */

void rs_peers_free(rs_peers *peers) {
    free(peers->entries);
    free(peers->named);
    free(peers->located);
    *peers = (rs_peers){0};
}

/* FNV-1a */
static uint32_t hash_of(const char *name) {
    uint32_t hash = 0x811c9dc5u;
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 0x01000193u;
    return hash;
}

static rs_peer *by_name(const rs_peers *peers, uint32_t hash) {
    return &peers->named[hash & (peers->room - 1)];
}

static rs_peer *by_address(const rs_peers *peers, uint32_t address) {
    return &peers->located[(address * UINT32_C(2654435761) >> 8) & (peers->room - 1)];
}

static rs_peer first_named(const rs_peers *peers, uint32_t hash) {
    return peers->room ? *by_name(peers, hash) : RS_NO_PEER;
}

/* The lowest numbers are met last; of equals the callers take those. */
static void enter_name(rs_peers *peers, rs_peer peer) {
    rs_peer *first = by_name(peers, peers->entries[peer].hash);
    peers->entries[peer].next_named = *first;
    *first = peer;
}

static void leave_name(rs_peers *peers, rs_peer peer) {
    rs_peer *at = by_name(peers, peers->entries[peer].hash);
    while (*at != peer)
        at = &peers->entries[*at].next_named;
    *at = peers->entries[peer].next_named;
}

static void enter_address(rs_peers *peers, rs_peer peer) {
    rs_peer *first = by_address(peers, peers->entries[peer].address);
    peers->entries[peer].next_at = *first;
    *first = peer;
}

static void leave_address(rs_peers *peers, rs_peer peer) {
    rs_peer *at = by_address(peers, peers->entries[peer].address);
    while (*at != peer)
        at = &peers->entries[*at].next_at;
    *at = peers->entries[peer].next_at;
    peers->entries[peer].address = 0;
}

static bool is_named(const rs_peer_entry *entry, uint32_t hash, const char *name) {
    return entry->hash == hash && strcmp(entry->name, name) == 0;
}

rs_peer rs_peers_find(const rs_peers *peers, const char *name) {
    uint32_t hash = hash_of(name);
    rs_peer first = RS_NO_PEER;
    for (rs_peer i = first_named(peers, hash); i != RS_NO_PEER; i = peers->entries[i].next_named) {
        if (!is_named(&peers->entries[i], hash, name))
            continue;
        if (peers->entries[i].address != 0)
            return i;
        first = i < first ? i : first;
    }
    return first;
}

rs_peer rs_peers_of_name(const rs_peers *peers, const char *name, rs_peer after) {
    uint32_t hash = hash_of(name);
    rs_peer i = after == RS_NO_PEER ? first_named(peers, hash) : peers->entries[after].next_named;
    while (i != RS_NO_PEER && !is_named(&peers->entries[i], hash, name))
        i = peers->entries[i].next_named;
    return i;
}

/* A number never used, or of a few that nobody holds the one that was not spoken of for the longest time. */
static rs_peer choose(rs_peers *peers) {
    rs_peer oldest = RS_NO_PEER;
    if (peers->given < peers->room)
        return peers->given;
    for (uint32_t i = 0, found = 0; peers->room >= RS_PEERS_MAX && i < peers->room && found < CANDIDATES; i++) {
        rs_peer at = peers->hand++ & (peers->room - 1);
        if (peers->entries[at].holds > 0)
            continue;
        found++;
        if (oldest == RS_NO_PEER || peers->entries[at].last_used < peers->entries[oldest].last_used)
            oldest = at;
    }
    return oldest;
}

static bool grow(rs_peers *peers) {
    uint32_t room = peers->room ? peers->room * 2 : 64;
    rs_peer_entry *entries = room > RS_PEERS_MAX ? NULL : realloc(peers->entries, room * sizeof *entries);
    if (!entries)
        return false;
    peers->entries = entries;
    rs_peer *named = malloc(room * sizeof *named), *located = malloc(room * sizeof *located);
    if (!named || !located) {
        free(named);
        free(located);
        return false;
    }
    memset(entries + peers->room, 0, (room - peers->room) * sizeof *entries);
    memset(named, 0xff, room * sizeof *named); /* RS_NO_PEER */
    memset(located, 0xff, room * sizeof *located);
    free(peers->named);
    free(peers->located);
    peers->named = named;
    peers->located = located;
    peers->room = room;
    for (rs_peer i = 0; i < peers->given; i++) {
        enter_name(peers, i);
        if (entries[i].address)
            enter_address(peers, i);
    }
    return true;
}

static void give_name(rs_peers *peers, rs_peer peer, const char *name) {
    memcpy(peers->entries[peer].name, name, strlen(name) + 1);
    peers->entries[peer].hash = hash_of(name);
    enter_name(peers, peer);
}

static rs_peer new_number(rs_peers *peers, const char *name) {
    size_t length = strlen(name);
    if (length == 0 || length > RS_NAME_MAX)
        return RS_NO_PEER;
    rs_peer peer = choose(peers);
    if (peer == RS_NO_PEER && grow(peers))
        peer = choose(peers);
    if (peer == RS_NO_PEER)
        return RS_NO_PEER;
    if (peer < peers->given) {
        leave_name(peers, peer);
        if (peers->entries[peer].address)
            leave_address(peers, peer);
    } else {
        peers->given++;
    }
    peers->entries[peer] = (rs_peer_entry){.used = true};
    give_name(peers, peer, name);
    return peer;
}

static rs_peer used_now(rs_peers *peers, rs_peer peer) {
    if (peer != RS_NO_PEER)
        peers->entries[peer].last_used = ++peers->uses;
    return peer;
}

/* ------------------------------------------------------------------------------------------------------- addresses */

rs_peer rs_peers_located(const rs_peers *peers, uint32_t address) {
    rs_peer i = peers->room ? *by_address(peers, address) : RS_NO_PEER;
    while (i != RS_NO_PEER && peers->entries[i].address != address)
        i = peers->entries[i].next_at;
    return i;
}

void rs_peers_told(rs_peers *peers, rs_peer peer, uint32_t address, uint16_t control_port, uint32_t rack) {
    rs_peer_entry *entry = &peers->entries[peer];
    rs_peer before = rs_peers_located(peers, address);
    if (entry->address != address)
        entry->outside_port = 0;
    if (before != peer) {
        if (before != RS_NO_PEER && peers->entries[before].name[0] == NAMELESS)
            leave_address(peers, before); /* this is who was there */
        if (entry->address)
            leave_address(peers, peer);
        entry->address = address;
        if (address)
            enter_address(peers, peer);
    }
    entry->control_port = control_port;
    entry->rumoured = false;
    entry->rack = rack ? rack : entry->rack;
}

rs_peer rs_peers_locate(rs_peers *peers, uint32_t address, uint16_t control_port) {
    rs_peer peer = rs_peers_located(peers, address);
    char name[1 + RS_ADDRESS_TEXT] = {NAMELESS};
    if (peer == RS_NO_PEER) {
        rs_address_text(address, name + 1);
        peer = new_number(peers, name);
    }
    if (peer != RS_NO_PEER && peers->entries[peer].address == 0)
        rs_peers_told(peers, peer, address, control_port, 0);
    return used_now(peers, peer);
}

/* Nobody had named who is at that address: it is the server of this name. */
static rs_peer take_over(rs_peers *peers, const char *name, uint32_t address) {
    rs_peer peer = rs_peers_located(peers, address);
    size_t length = strlen(name);
    if (peer == RS_NO_PEER || peers->entries[peer].name[0] != NAMELESS || length == 0 || length > RS_NAME_MAX)
        return new_number(peers, name);
    leave_name(peers, peer);
    give_name(peers, peer, name);
    return peer;
}

/* ----------------------------------------------------------------------------------------------------------- names */

/* Of several agents that connected by a name whose address nobody has told, the one that is there: who has a connection
 * or a transfer, and spoke last. */
static rs_peer likeliest(const rs_peers *peers, const char *name) {
    uint32_t hash = hash_of(name);
    rs_peer best = RS_NO_PEER;
    for (rs_peer i = first_named(peers, hash); i != RS_NO_PEER; i = peers->entries[i].next_named) {
        const rs_peer_entry *one = &peers->entries[i], *other = best == RS_NO_PEER ? NULL : &peers->entries[best];
        if (!is_named(one, hash, name))
            continue;
        if (one->address != 0)
            return i;
        bool there = one->holds > 0;
        if (!other || (there && other->holds == 0) ||
            (there == (other->holds > 0) && one->last_used > other->last_used))
            best = i;
    }
    return best;
}

rs_peer rs_peers_number(rs_peers *peers, const char *name) {
    rs_peer peer = likeliest(peers, name);
    if (peer == RS_NO_PEER)
        return used_now(peers, new_number(peers, name));
    rs_peer_entry *entry = &peers->entries[peer];
    if (entry->address == 0 && entry->holds == 0)
        entry->claimed = 0; /* whoever said so is gone: it is known by name alone again, so whoever comes is it */
    return used_now(peers, peer);
}

/* Of a name whose address nobody has told; RS_NO_PEER: nobody of that name came from there. */
static rs_peer find_claim(const rs_peers *peers, const char *name, uint32_t from) {
    uint32_t hash = hash_of(name);
    rs_peer found = RS_NO_PEER;
    for (rs_peer i = first_named(peers, hash); i != RS_NO_PEER; i = peers->entries[i].next_named)
        if (is_named(&peers->entries[i], hash, name) && peers->entries[i].claimed == from && i < found)
            found = i;
    return found;
}

rs_peer rs_peers_claim(rs_peers *peers, const char *name, uint32_t from) {
    rs_peer peer = rs_peers_find(peers, name);
    const rs_peer_entry *told = peer == RS_NO_PEER ? NULL : &peers->entries[peer];
    if (told && told->address != 0 && (!told->rumoured || told->address == from))
        return used_now(peers, peer);
    peer = find_claim(peers, name, from);
    if (peer == RS_NO_PEER)
        peer = find_claim(peers, name, 0); /* known by name alone */
    if (peer == RS_NO_PEER)
        peer = new_number(peers, name);
    if (peer != RS_NO_PEER)
        peers->entries[peer].claimed = from;
    return used_now(peers, peer);
}

rs_peer rs_peers_at(rs_peers *peers, const char *name, uint32_t address) {
    rs_peer peer = rs_peers_find(peers, name);
    if (peer != RS_NO_PEER && peers->entries[peer].address == 0) {
        rs_peer there = find_claim(peers, name, address);
        peer = there == RS_NO_PEER ? peer : there;
    }
    return used_now(peers, peer == RS_NO_PEER ? take_over(peers, name, address) : peer);
}

rs_peer rs_peers_heard(rs_peers *peers, const char *name, uint32_t address, uint16_t control_port) {
    rs_peer there = rs_peers_located(peers, address), named = rs_peers_find(peers, name);
    bool taken = named != RS_NO_PEER && peers->entries[named].address != 0;
    size_t length = strlen(name);
    if (taken || length == 0 || length > RS_NAME_MAX ||
        (there != RS_NO_PEER && peers->entries[there].name[0] != NAMELESS))
        return rs_peers_locate(peers, address, control_port);
    rs_peer peer = find_claim(peers, name, address); /* it has connected from there */
    if (peer == RS_NO_PEER)
        peer = there == RS_NO_PEER ? new_number(peers, name) : there;
    if (peer == RS_NO_PEER)
        return peer;
    rs_peers_rename(peers, peer, name);
    if (peers->entries[peer].address == 0)
        rs_peers_told(peers, peer, address, control_port, 0);
    peers->entries[peer].rumoured = true;
    return used_now(peers, peer);
}

void rs_peers_answers(rs_peers *peers, rs_peer peer, const char *name) {
    size_t length = strlen(name);
    if (peers->entries[peer].name[0] == NAMELESS && length > 0 && length <= RS_NAME_MAX &&
        rs_peers_find(peers, name) == RS_NO_PEER)
        rs_peers_rename(peers, peer, name);
}

rs_peer_entry *rs_peers_entry(const rs_peers *peers, rs_peer peer) {
    return &peers->entries[peer];
}

const char *rs_peers_name(const rs_peers *peers, rs_peer peer) {
    return peer < peers->room && peers->entries[peer].used ? peers->entries[peer].name : "an unknown server";
}

bool rs_peers_is_named(const rs_peers *peers, rs_peer peer) {
    return peers->entries[peer].name[0] != NAMELESS;
}

void rs_peers_rename(rs_peers *peers, rs_peer peer, const char *name) {
    if (strlen(name) > RS_NAME_MAX || strcmp(peers->entries[peer].name, name) == 0)
        return;
    leave_name(peers, peer);
    give_name(peers, peer, name);
}

void rs_peers_hold(rs_peers *peers, rs_peer peer) {
    peers->entries[peer].holds++;
}

void rs_peers_release(rs_peers *peers, rs_peer peer) {
    if (peers->entries[peer].holds > 0)
        peers->entries[peer].holds--;
}
