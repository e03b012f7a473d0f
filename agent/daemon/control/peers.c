/* Table of servers by name and number. Lookups by name happen once per connection or per receiver of a send. */
#include "daemon/control/peers.h"

#include <stdlib.h>
#include <string.h>

void rs_peers_free(rs_peers *peers) {
    free(peers->entries);
    *peers = (rs_peers){0};
}

/* FNV-1a */
static uint32_t hash_of(const char *name) {
    uint32_t hash = 0x811c9dc5u;
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 0x01000193u;
    return hash;
}

static bool is_named(const rs_peer_entry *entry, uint32_t hash, const char *name) {
    return entry->hash == hash && entry->used && strcmp(entry->name, name) == 0;
}

rs_peer rs_peers_find(const rs_peers *peers, const char *name) {
    uint32_t hash = hash_of(name);
    rs_peer first = RS_NO_PEER;
    for (uint32_t i = 0; i < peers->room; i++) {
        if (!is_named(&peers->entries[i], hash, name))
            continue;
        if (peers->entries[i].address != 0)
            return i;
        first = first == RS_NO_PEER ? i : first;
    }
    return first;
}

/* A number never used, or the one that was not spoken of for the longest time. */
static rs_peer choose(const rs_peers *peers) {
    rs_peer oldest = RS_NO_PEER;
    for (uint32_t i = 0; i < peers->room; i++) {
        const rs_peer_entry *entry = &peers->entries[i];
        if (!entry->used)
            return i;
        if (entry->holds == 0 && peers->room >= RS_PEERS_MAX &&
            (oldest == RS_NO_PEER || entry->last_used < peers->entries[oldest].last_used))
            oldest = i;
    }
    return oldest;
}

static bool grow(rs_peers *peers) {
    uint32_t room = peers->room ? peers->room * 2 : 64;
    rs_peer_entry *entries = room > RS_PEERS_MAX ? NULL : realloc(peers->entries, room * sizeof *entries);
    if (!entries)
        return false;
    memset(entries + peers->room, 0, (room - peers->room) * sizeof *entries);
    peers->entries = entries;
    peers->room = room;
    return true;
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
    peers->entries[peer] = (rs_peer_entry){.used = true, .hash = hash_of(name)};
    memcpy(peers->entries[peer].name, name, length + 1);
    return peer;
}

static rs_peer used_now(rs_peers *peers, rs_peer peer) {
    if (peer != RS_NO_PEER)
        peers->entries[peer].last_used = ++peers->uses;
    return peer;
}

/* Of several agents that connected by a name whose address nobody has told, the one that is there: who has a connection
 * or a transfer, and spoke last. */
static rs_peer likeliest(const rs_peers *peers, const char *name) {
    uint32_t hash = hash_of(name);
    rs_peer best = RS_NO_PEER;
    for (uint32_t i = 0; i < peers->room; i++) {
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
    for (uint32_t i = 0; i < peers->room; i++)
        if (is_named(&peers->entries[i], hash, name) && peers->entries[i].claimed == from)
            return i;
    return RS_NO_PEER;
}

rs_peer rs_peers_claim(rs_peers *peers, const char *name, uint32_t from) {
    rs_peer peer = rs_peers_find(peers, name);
    if (peer != RS_NO_PEER && peers->entries[peer].address != 0)
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
    return used_now(peers, peer == RS_NO_PEER ? new_number(peers, name) : peer);
}

rs_peer_entry *rs_peers_entry(const rs_peers *peers, rs_peer peer) {
    return &peers->entries[peer];
}

const char *rs_peers_name(const rs_peers *peers, rs_peer peer) {
    return peer < peers->room && peers->entries[peer].used ? peers->entries[peer].name : "an unknown server";
}

void rs_peers_hold(rs_peers *peers, rs_peer peer) {
    peers->entries[peer].holds++;
}

void rs_peers_release(rs_peers *peers, rs_peer peer) {
    if (peers->entries[peer].holds > 0)
        peers->entries[peer].holds--;
}
