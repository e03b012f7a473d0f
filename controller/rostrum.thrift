/* The agent-manager interface (Republic, Table II), shared by the agent (C, generated) and the manager (Python, loaded as it is).
 *
 * Transport: TCP (or TLS on it: docs/care.md), framed (4-byte big-endian length), binary protocol, frames of at most 1 MiB. The agent
 * connects to the manager's Thrift port and keeps the connection. Calls go in BOTH directions on that one connection, all of them `oneway`:
 * the agent calls service Manager, the manager calls service Agent, so a response needs no second connection and no waiting thread. Any
 * Thrift client that sends Manager.hello first can request paths.
 *
 * Bounds stand with the fields: bytes of a text (255 where nothing is said), elements of a list; `unknown = "pass"`: a value that is not known
 * here is handed on, not refused. The agent's C types and its checks are made from this file (agent/daemon/manager/thrift_generate.py).
 *
 * Units are in the names. Servers are named as in the topology file. 64-bit ids are signed only because Thrift has no unsigned type.
 */
namespace py rostrum

/** Protocol version carried in hello; the manager refuses another major with Agent.goodbye. */
const i32 VERSION = 1

enum Decision {
  ACCEPTED = 1,
  DENIED = 2,
  /** Ours: still waiting; `reason` says for what. Any number of QUEUED may precede ACCEPTED or DENIED. */
  QUEUED = 3
}

enum PathKind {
  CIRCUIT = 1,
  PACKET = 2
}

/** How data and repairs travel on a path. */
enum Protocol {
  /** In a request: the manager chooses. Never in a response. */
  AUTO = 1,
  /** Rounds of the whole object, gaps patched by the sender. */
  REPUBLIC = 2,
  /** Receivers mend each other's losses along a backup overlay (RDCM): packet trees of two or more receivers. */
  RDCM = 3,
  /** Sections with consolidated NACKs, a rate by delay: packet trees with long round trips. */
  WAN = 4
}

/** Where a server's agent is reached on the packet network. */
struct ServerAddress {
  1: required string server,
  2: required string address,
  3: required i32 control_port,
  /** Servers with the same number are attached to the same switch: reports of many receivers are collected rack by rack. Absent = not known. */
  4: optional i32 rack
}

/** A path the agent holds; told again after a reconnect, so that a restarted manager adopts it instead of cleaning it away. */
struct LivePath {
  1: required string request_id,
  2: required string response_id,
  3: required string group,
  4: required PathKind kind,
  5: required list<string> receivers (max = "16384"),
  6: required i64 accepted_size,
  /** Ours: by which it sends; absent = REPUBLIC. */
  7: optional Protocol protocol
}

/** An option of an engine, for people who choose its value: a decimal number, here in thousandths. */
struct EngineOption {
  1: required string name,
  2: required i64 least_milli,
  3: required i64 most_milli,
  /** What it is where nobody says anything. */
  4: required i64 usual_milli,
  /** It may have up to three digits behind the point; else it is a whole number. */
  5: required bool fraction,
  /** For people, with its unit. */
  6: optional string meaning (max = "100"),
  /** It came after a release: it is left out where all are named while it has its usual value. Absent = false. */
  7: optional bool later
}

/** A protocol that an agent has an engine for, and the options that it takes. */
struct Engine {
  1: required string name,
  2: required list<EngineOption> options (max = "16"),
  /** Its groups travel in regions (GroupRegion). Absent = false. */
  3: optional bool regions,
  /** For people. */
  4: optional string meaning (max = "100")
}

/** What a key is for (docs/security.md). */
enum KeyFor {
  /** The agent itself: what others seal for it. Nobody else has it. */
  SELF = 1,
  /** `id`: the group's number. Whoever is in its view has the key, and can read and make what is sealed with it. */
  GROUP = 2,
  REGION = 3,
  /** `server`: what this agent seals for that one, made of that one's own key: of this transmitter's packets alone. */
  PEER = 4
}

/** A key with which agents seal datagrams to each other. */
struct SealKey {
  /** Names it in packets; 1 to 65535. */
  1: required i32 epoch,
  2: required binary key (max = "32"),
  /** This and the next 255 numbers are this agent's alone in the epoch: it seals as them. PEER: this number alone. */
  3: required i64 transmitter,
  /** From then on it is sealed with; opened at once. The one before is opened for 5 s more. */
  4: required i32 in_ms,
  5: required KeyFor purpose (unknown = "pass"),
  /** SELF, PEER: the address that this agent's packets show. */
  6: required i64 id,
  7: optional string server,
  /** PEER: the key by which that server's agent signs (AgentInfo.signer). Absent = it does not sign. */
  8: optional binary signer (max = "32")
}

struct AgentInfo {
  1: required i32 version,
  2: required string server,
  /** Differs at each start of the agent: paths of an earlier boot are released. */
  3: required i64 boot_id,
  4: required i32 control_port,
  5: required list<LivePath> live_paths (max = "4096"),
  /** Ours: call Agent.light for the paths it holds. */
  6: optional bool wants_light,
  /** Ours: the engines of groups it has (GroupOptions.protocol); groups of others, or with options that are none of theirs, are refused to it.
   *  Absent = it knows no groups. (8 was group_protocols, names alone.) */
  13: optional list<Engine> group_engines (max = "16"),
  /** Ours: the secret that makes this agent known to a manager that asks for one (rostrum-manager --agent-tokens). */
  9: optional string token (max = "4096"),
  /** Ours: the release of its program. */
  10: optional string software,
  /** Ours: it carries out Agent.probe. Others are not asked. */
  11: optional bool knows_probes,
  /** Ours: the protocols of objects and streams that it has engines for, by the names of Protocol in small letters: "republic", "rdcm", "wan". A path has
   *  a protocol that its sender and all its receivers know, and Agent.view is called of those of "rdcm". Absent = Republic alone. (7 was knows_rdcm.) */
  12: optional list<string> protocols (max = "16"),
  /** Ours: it sends to receivers in several sites by legs, and can be a relay. */
  14: optional bool knows_sites,
  /** Ours: it is there to be one (rostrumd --relay). */
  15: optional bool relay,
  /** Ours: it tells what it holds (Manager.holds); TCP port where other agents fetch that, 0 = they cannot. Absent = it does not tell. */
  16: optional i32 piece_port,
  /** Ours: it sends objects to those who fetch them together (Agent.serve). Absent = false. */
  17: optional bool serves,
  /** Ours: the least round trip of this connection, in microseconds, as the agent's TCP measured it. Absent = it did not. */
  18: optional i32 round_trip_us,
  /** Ours: it seals datagrams with the keys of Agent.keys, and takes none that is not sealed. Absent = false. */
  19: optional bool seals,
  /** Ours: its public key of Ed25519: it signs streams and messages by it (rostrumd --sign). Absent = it does not sign. */
  20: optional binary signer (max = "32"),
  /** Ours: as a relay it holds to SendTerms. Absent = false. */
  21: optional bool knows_terms
}

struct PathRequest {
  /** Locally generated, unique (a UUID's text). Repeating a request with the same id has no further effect. */
  1: required string request_id,
  2: required binary app_id (max = "16"),
  3: required i64 data_id,
  4: required i64 data_size,
  5: required i64 remaining_size,
  6: required string sender,
  7: required list<string> receivers (max = "16384"),
  /** Ours: give up (DENIED) when not accepted within this time; absent = the manager's default. */
  8: optional i32 wait_ms,
  /** Ours: when the transfer should be done, from now; a hint for schedulers. */
  9: optional i32 deadline_ms,
  /** Ours: absent = AUTO. RDCM for one receiver is DENIED with a reason; for agents that do not know it, or WAN, the request waits. */
  10: optional Protocol protocol,
  /** Ours: ACCEPTED may come for some of the receivers (PathResponse.receivers names them); the sender then requests the others, with a request of its own for the same object. Absent = all or nothing. */
  11: optional bool splits,
  /** Ours: the longest round trip to a receiver, in microseconds, of those that the sender's agent has measured. Absent = it has measured none. */
  12: optional i32 round_trip_us
}

struct PathResponse {
  1: required string request_id,
  2: required string response_id,
  3: required Decision decision (unknown = "pass"),
  /** Why it is queued or denied, or why a packet path was chosen; text for a person. Empty when there is nothing to say. */
  4: required string reason (max = "4096"),
  /* The rest only with ACCEPTED. */
  /** Bytes this session may send; less than remaining_size = request the rest when the session is done. */
  5: optional i64 accepted_size,
  6: optional PathKind kind,
  /** IPv4 multicast group of the path, and the UDP port of the data channel. */
  7: optional string group,
  8: optional i32 data_port,
  /** Expected circuit reconfiguration time; 0 = the circuit is live (or a packet path): light within about a round trip. */
  9: optional i64 reconfiguration_ns,
  /** What the path can carry at most (bits/s on the wire); the agent finds the rest. */
  10: optional i64 rate_bps,
  /** When the agent is silent this long (Manager.keepalive) the manager moves the path off its circuit, or takes it back if the connection is
   *  gone too. */
  11: optional i32 lease_ms,
  /** Report Manager.no_light for receivers that got no first packet in this time. */
  12: optional i32 light_bound_ms,
  /** Whom the path serves: all that were asked for, unless PathRequest.splits. */
  13: optional list<ServerAddress> receivers (max = "16384"),
  /** REPUBLIC, RDCM or WAN; absent = REPUBLIC. With RDCM an Agent.view of this response follows at once, to the sender and to every receiver. */
  14: optional Protocol protocol,
  /** Ours: of the receivers, those that saw nothing of earlier paths of this kind. The sender need not wait for their first packet; it still reports Manager.no_light for them. */
  15: optional list<string> dark (max = "16384"),
  /** ServerAddress.rack of the sender itself. */
  16: optional i32 sender_rack,
  /** Ours, with WAN by multicast: the links of the path's tree, the sender's own included; and of the ways to each receiver, all together. Absent = not known. */
  17: optional i32 tree_links,
  18: optional i32 path_links
}

/** What a program asked of a send: whoever passes its object on to other sites holds to it, too. */
struct SendTerms {
  /** Of the engine WAN, NAME=VALUE joined by commas, such as "congestion=friendly": its legs over the wide area go by them, and what relays pass on. */
  1: required string options,
  /** Of a receiver less than half as fast as half of the others: "wait", "demote", "evict"; "" = as the agent that sends was told. */
  2: required string stragglers,
  /** As PathRequest.wait_ms and .deadline_ms, from now; 0 = not asked for. */
  3: required i32 wait_ms,
  4: required i32 deadline_ms
}

/** A send to receivers of several sites (docs/wan.md, "Sites"), asked for before any path; to be asked again for receivers whose relay is gone. */
struct SplitRequest {
  /** As PathRequest.request_id. */
  1: required string request_id,
  2: required binary app_id (max = "16"),
  3: required i64 data_id,
  4: required list<string> receivers (max = "16384"),
  /** Relays that failed in this send. */
  5: required list<string> avoid (max = "1024"),
  /** Then a relay is one that holds to them (AgentInfo.knows_terms). Absent = nothing was asked for. */
  6: optional SendTerms terms
}

/** One way of such a send. */
struct Leg {
  /** Unique. A relay's order and its reports have it too. */
  1: required string leg_id,
  2: required string site,
  /** It takes the object over the wide area, by unicast, and passes it on to the others. Absent: the sender's own site, to whose receivers it requests a path. */
  3: optional ServerAddress relay,
  /** In the site and in those behind it; the relay among them if the object is for it too. */
  4: required list<string> receivers (max = "16384"),
  /** The sender cannot reach the relay (address translation): connection and datagrams begin at the relay. */
  5: required bool relay_dials,
  /** Why this way, for a person. */
  6: required string reason (max = "4096")
}

/** `legs` is empty while there is none for some receivers, or can be none (`ever`); `reason` says why. */
struct SplitAnswer {
  1: required string request_id,
  2: required list<Leg> legs (max = "1024"),
  3: required string reason (max = "4096"),
  4: required bool ever,
  /** SplitRequest.terms are in the orders. Absent = this manager does not know them. */
  5: optional bool with_terms
}

/** To a relay: it passes that object on to these receivers while it comes from `origin`, or from its store. No receivers: it is one itself, and only
 *  dials. */
struct RelayOrder {
  1: required string leg_id,
  2: required binary app_id (max = "16"),
  3: required i64 data_id,
  4: required ServerAddress origin,
  5: required list<string> receivers (max = "16384"),
  /** Connection and datagrams begin at the relay. */
  6: required bool dials,
  /** The object is for the relay itself, too: else it goes from its store when it was passed on. */
  7: required bool keeps,
  /** Its own ways to them, known beforehand: orders to the relays behind it have gone out, and it connects to them before the object is there. Absent: it
   *  asks (Manager.split). */
  8: optional list<Leg> onward (max = "1024"),
  /** To be held to. Absent = nothing was asked for. */
  9: optional SendTerms terms
}

/** Which of a receiver's two rings (RDCM, Sec. 3.2). */
enum RingKind {
  LEAF = 1,
  PROXY = 2
}

/** What one node must know of a path's backup overlay. An absent name = there is none: the sender is in no ring (its `children` are the highest
 * ring, or the only receiver), a receiver that is no proxy has no proxy ring, an only receiver no ring at all (it acknowledges to the sender).
 * In each ring a receiver acknowledges to predecessor and parent, and repairs its successor.
 */
struct OverlayView {
  1: required string response_id,
  /** Grows with each change of the overlay; a node that has a higher one ignores this. */
  2: required i64 version,
  /** IPv4 multicast group of the path. */
  3: required string group,
  4: required binary app_id (max = "16"),
  5: required i64 data_id,
  6: required string sender,
  7: optional string leaf_predecessor,
  8: optional string leaf_successor,
  9: optional string leaf_parent,
  10: optional string proxy_predecessor,
  11: optional string proxy_successor,
  12: optional string proxy_parent,
  /** Who acknowledge to this node as their overlay parent. */
  13: required list<string> children (max = "16384"),
  /** Of everybody named here. Datagrams between peers go to UDP port `control_port`. */
  14: required list<ServerAddress> addresses (max = "16385")
}

enum FailureKind {
  /** Repairs to the server keep failing: it is gone. */
  RECEIVER = 1,
  /** The server gets everything by repair for a while: a link of the tree that leads to it is gone. */
  LINK = 2,
  /** A LINK report of the server is over: packets come to it by the tree. */
  LINK_WORKS = 3
}

/** What a receiver (or, of an only receiver, the sender) finds out about its successor in a ring of the view `version`.
  * What goes on is reported again, at growing intervals: the manager may have been away. */
struct FailureReport {
  1: required string response_id,
  2: required i64 version,
  3: required FailureKind kind,
  4: required RingKind ring,
  /** The successor in that ring. */
  5: required string server
}

/** One receiver's outcome, for the manager's transfer list. */
struct ReceiverReport {
  1: required string server,
  /** "waiting", "receiving", "done", "failed" */
  2: required string state,
  3: required string cause (max = "4096"),
  4: required i64 initial_sn,
  5: required i64 patched_fragments,
  /** Wall clock, ns since the epoch; 0 = not yet. */
  6: required i64 first_light_ns,
  7: required i64 complete_ns
}

/** Sent by the sender's agent at each change of phase and at the end. */
struct TransferReport {
  1: required string request_id,
  2: required string response_id,
  /** "attempt", "high-rate", "patching", "done", "failed" */
  3: required string phase,
  4: required string cause (max = "4096"),
  5: required i64 bytes,
  6: required i64 sent_packets,
  7: required i64 redundant_packets,
  8: required i64 patched_packets,
  9: required list<ReceiverReport> receivers (max = "16384")
}

/** How a relay's part of a send goes, for the sender; at each change, each second, and a few times after the end. */
struct RelayReport {
  1: required string leg_id,
  2: required string origin,
  3: required string relay,
  /** "waiting", "passing", "done", "failed" */
  4: required string state,
  5: required string cause (max = "4096"),
  6: required i64 bytes,
  7: required list<ReceiverReport> receivers (max = "16384")
}

/** An object that is whole at an agent, or is no longer. */
struct HeldObject {
  1: required binary app_id (max = "16"),
  2: required i64 data_id,
  3: required i64 size,
  /** "<algorithm>:<hexadecimal>" */
  4: required string digest,
  /** By which a program knows it; absent = by its number. With `gone`: the object is not here, but on its way somewhere. */
  5: optional string name,
  /** It is not there any more. Absent = false. */
  6: optional bool gone
}

/** An agent wants an object from others. Repeated while nobody gives it. */
struct FetchRequest {
  1: required binary app_id (max = "16"),
  2: required i64 data_id,
  /** It has nothing of it, and may be sent it together with others. */
  3: required bool together
}

/** Whose object it is that a server sends (docs/wan.md, "Sites"). */
struct ObjectOrigin {
  1: required binary app_id (max = "16"),
  2: required i64 data_id,
  /** Who sends it. */
  3: required string sender,
  /** Who has that one pass it on; the sender itself if nobody does. */
  4: required string origin,
  /** What the origin has by that id, as HeldObject.digest; empty: it has not told yet. Ask again. */
  5: required string digest,
  /** As it was asked for. Several may have that server pass on an object by that id: the answer is of the one whose digest it is, if there is one. */
  6: required string asked
}

/** Where pieces of an object are given. */
struct Holder {
  1: required string server,
  2: required string address,
  3: required i32 piece_port
}

struct FetchAnswer {
  1: required binary app_id (max = "16"),
  2: required i64 data_id,
  3: required list<Holder> holders (max = "32"),
  /** One of them was told to send it to all who fetch it now: pieces are asked for only if that does not begin within this time. 0 = nobody was. */
  4: required i32 sent_within_ms,
  /** Why there are none, or what is done; for a person. */
  5: required string reason (max = "4096")
}

/** To a holder: these servers fetch the object; it is sent to all of them at once. */
struct ServeOrder {
  1: required binary app_id (max = "16"),
  2: required i64 data_id,
  3: required list<string> receivers (max = "16384")
}

/** How the messages of a group travel; texts, so that engines can be added. (3 to 5 were r, c and stagger, of "ricochet".) */
struct GroupOptions {
  /** The name of the engine: "plain" (unreliable), "ricochet". */
  1: required string protocol,
  /** Delivery: "none" or "fifo" (per sender); with guarantees "sender", "agreed" or "total", and behind it what is not usual: ",guarantee=reliable", then
   *  ",slow=drop" or ",slow=disconnect", then with "total" ",keep=64M" or ",keep=10m" and ",keep-on=disk". */
  2: required string order,
  /** "name=value,name=value": the engine's own. In facts all that the engine has; in a use what is not named is as the group has it, or as usual. */
  6: required string options
}

/** A group to join or to publish to. */
struct GroupUse {
  /** 1 to 128 characters of A-Z a-z 0-9 . _ : - */
  1: required string group,
  /** Absent = as the group is; a group that is not there yet is made with these, or with the manager's defaults. */
  2: optional GroupOptions options,
  /** What the agent holds of it, told again after a reconnect, so that a restarted manager keeps id and address and goes on counting versions. */
  3: optional i32 id,
  4: optional i64 version,
  5: optional string address
}

/** A program that does not take the messages of a group with guarantees in time. `state`: "waited-for" (all wait for it), "loses" (`lost` messages, so
 *  far), "put-out". */
struct SlowProgram {
  1: required string program,
  2: required string state,
  3: required i64 lost
}

/** Who holds a group with guarantees up, as this member sees it now: told when that changes, and each second while it is so; nobody at the end. */
struct GroupTrouble {
  1: required string group,
  /** Programs here. */
  2: required list<SlowProgram> slow (max = "64"),
  /** Members of which nothing has come for a lease, while the group waits for them. */
  3: required list<string> silent (max = "64")
}

/** A server that views name by its id. Told once on a connection, with the first view that names it; told again when its port or boot id
 * changed. The ids are the same for all agents, and stay when the manager restarts on the same topology.
 */
struct GroupPeer {
  1: required i32 id,
  2: required string server,
  3: required string address,
  /** UDP: repairs and NAKs. */
  4: required i32 port,
  /** Differs at each start of its agent: what was known of an earlier one (its sequence numbers) is void, and packets of another one than
   *  this are not taken. 0 = not known yet. That it is larger means nothing: clocks are set back. */
  5: required i64 boot_id
}

/** What all who know a group must know. */
struct GroupFacts {
  1: required string group,
  /** IPv4 multicast address and UDP port. Groups may share an address: receivers tell them apart by the id in the packets. */
  2: required string address,
  3: required i32 data_port,
  4: required GroupOptions options,
  /** Further addresses, for engines that use several: the group's channels are `address` (0) and these (1 and on), in this order. */
  5: optional list<string> more_addresses (max = "1023"),
  /** Of engines with regions: those that together have the members, told before (or with) the view; `address` is 0.0.0.0 then, and not used.
   *  Absent = the engine has no regions. */
  6: optional list<i32> regions (max = "4096")
}

/** One immutable view of a region: servers that are in the same groups, whose messages travel together (section 2.1 of the paper on QSM). To those in
 *  it, and to whoever publishes to one of its groups. A larger version replaces the one before it; without servers: it is of no interest here any more.
 */
struct GroupRegion {
  1: required i32 region,
  2: required i64 version,
  /** IPv4 multicast. Absent: to each server by unicast. Who is in the region listens there, as long as for a group after a change. */
  3: optional string address,
  4: required i32 data_port,
  5: required string protocol,
  6: required string options,
  /** Ids of peers: all of them, or, with `base_version`, those that came since. */
  7: required list<i32> nodes (max = "65536"),
  /** Delta: what follows is as in that version, but for who came and who went. */
  8: optional i64 base_version,
  9: optional list<i32> gone (max = "65536")
}

/** One immutable view. Full: `base_version` is absent, `facts` is there, `members` and `senders` are all there are. Delta: what changed since the
 * version before; an agent that does not hold `base_version` calls join_group (use_group) again and gets it full.
 */
struct GroupView {
  /** The group's number, also in its packets. */
  1: required i32 id,
  2: required i64 version,
  3: optional i64 base_version,
  /** With a delta only when something in it changed. After a change of address, listen at the old one for 5 s more. */
  4: optional GroupFacts facts,
  /** Ids of peers that joined (delta: since the version before; one that was a member already has a new boot id). */
  5: required list<i32> members (max = "65536"),
  /** Those that publish without having joined: to them go NAKs. They get the same views as members: packets of a sender that is in neither
   *  list are not taken, and only members are answered. */
  6: required list<i32> senders (max = "65536"),
  /** Delta: no longer of the group. Who turns from member to sender, or the other way round, is in the list of what it is now, and not here. */
  7: required list<i32> gone (max = "65536"),
  /** At which of the group's channels this agent listens, if it is a member. Absent: at all of them, or, with a delta that has no facts, as it did. */
  8: optional list<i32> listens (max = "1024"),
  /** Full: this agent was out of the group since the view that it holds, if it holds one, and is a member anew. What was published before is not for
   *  it: what it misses of that it need not wait for. */
  9: optional bool rejoined
}

/** What preflight and doctor ask of agents. */
enum ProbeKind {
  /** Tell about yourself. */
  FACTS = 1,
  /** Count the packets of this probe that come in, by the group and to this server alone. Reported at once ("listening"), then when all are in or the
   * time is over. */
  LISTEN = 2,
  /** Send `packets` small and `packets` full-sized packets to the group, and as many of both to each of `servers`. */
  SEND = 3,
  /** Connect to the control port of each of `servers`. */
  REACH = 4
}

struct ProbeOrder {
  1: required string probe_id,
  2: required ProbeKind kind,
  /** The report comes no later than this. */
  3: required i32 time_ms,
  /* LISTEN and SEND. */
  4: optional string group,
  /** UDP. */
  5: optional i32 port,
  /** Of each sort. */
  6: optional i32 packets,
  /** Bytes of a full-sized IP packet. */
  7: optional i32 mtu,
  /* SEND and REACH. */
  8: optional list<ServerAddress> servers (max = "1024")
}

/** How it went with one of `servers`. */
struct ProbeReach {
  1: required string server,
  /** Empty = connected. */
  2: required string cause (max = "4096"),
  3: required i64 took_ns
}

struct ProbeReport {
  1: required string probe_id,
  /** "listening", "done", "failed" */
  2: required string phase,
  3: required string cause (max = "4096"),
  /* What the agent is, in every report. */
  4: required string software,
  5: required string data_interface,
  /** Bytes of an IP packet that the data NIC carries; bits/s, 0 = not known. */
  6: required i32 mtu,
  7: required i64 rate_bps,
  8: required i64 wall_clock_ns,
  /* LISTEN: packets that came in. */
  9: required i32 group_small,
  10: required i32 group_full,
  11: required i32 unicast_small,
  12: required i32 unicast_full,
  /* REACH. */
  13: required list<ProbeReach> reached (max = "1024")
}

service Manager {
  /** First on every connection. The manager answers Agent.welcome, or Agent.goodbye with the reason and closes. */
  oneway void hello(1: AgentInfo info),
  oneway void request(1: PathRequest request),
  /** The data channel is done (or given up): the path goes back. Unknown ids are ignored. */
  oneway void release(1: string request_id, 2: string response_id),
  /** Withdraws a request that is still queued. */
  oneway void cancel(1: string request_id),
  /** At least three times per lease. */
  oneway void keepalive(),
  /** These receivers sent no INTL_SEQ within light_bound_ms: the manager moves the path (same group) to the packet network, or fails it. */
  oneway void no_light(1: string response_id, 2: list<string> receivers (max = "16384")),
  oneway void report(1: TransferReport report),
  /** The view of this version is in use: rings of older ones are left, the new predecessors can repair. */
  oneway void view_used(1: string response_id, 2: i64 version),
  oneway void failure(1: FailureReport report),
  /** To receive (and publish to) the group: answered by Agent.group_view or Agent.group_refused. Repeating it gets the view again, full. */
  oneway void join_group(1: GroupUse group),
  oneway void leave_group(1: string group),
  /** To publish without receiving: answered like join_group. Of a member it changes nothing until leave_group, which leaves it a sender. */
  oneway void use_group(1: GroupUse group),
  oneway void unuse_group(1: string group),
  oneway void group_trouble(1: GroupTrouble trouble),
  oneway void probe_report(1: ProbeReport report),
  oneway void split(1: SplitRequest request),
  oneway void relayed(1: RelayReport report),
  /** Of a receiver, where `security: required`: whose is the object that this server sends here, with that digest (HeldObject.digest; empty: it has not
   *  told one yet)? Answered by Agent.origin. */
  oneway void whose(1: binary app_id (max = "16"), 2: i64 data_id, 3: string sender, 4: string digest),
  /** Objects that came or went since the last call, in order; `reset`: what was told before is void. */
  oneway void holds(1: list<HeldObject> objects (max = "256"), 2: bool reset),
  /** Answered by Agent.holders, perhaps after a moment in which others ask for the same. */
  oneway void fetch(1: FetchRequest request),
  /** Keys for these servers (KeyFor.PEER), answered by Agent.keys as each has an agent here, and again whenever they are others. */
  oneway void peer_keys(1: list<string> servers (max = "16384")),
  /** To the path's sender's word: a server that is no receiver hears its packets from now on (it is in the tree, and in no overlay); or, not `joins`, one is
   *  no receiver any more, of tree and overlay. What cannot be (a circuit) changes nothing. */
  oneway void receiver_change(1: string response_id, 2: string server, 3: bool joins)
}

service Agent {
  /** Answers Manager.keepalive. An agent that hears nothing any more tries the next manager, if there are several; one that was stopped itself
   *  knows by it that it has read whatever was said about its paths meanwhile. */
  oneway void alive(),
  oneway void welcome(1: string manager, 2: i64 manager_boot_id),
  oneway void goodbye(1: string reason (max = "4096")),
  oneway void response(1: PathResponse response),
  /** The path changed under the same group (for example circuit -> packet after a fault); keep attempting. */
  oneway void moved(1: string response_id, 2: PathKind kind, 3: string reason (max = "4096")),
  /** Every receivers' rack has light: their switches saw data come through (P4 switches; others say nothing, and then this never comes).
   *  Only to agents that want it; a hint, said again when the path has moved. */
  oneway void light(1: string response_id),
  /** The path is gone. The transfer fails with this cause unless every receiver is done or can be finished by patches. */
  oneway void failed(1: string response_id, 2: string reason (max = "4096")),
  /** A node's place in the backup overlay of a path of RDCM, to its sender and receivers; may come to a receiver before the sender's OPEN. */
  oneway void view(1: OverlayView view),
  /** Views of groups it has joined or uses, many in one call; each is in force when it is there. */
  oneway void group_view(1: list<GroupPeer> peers (max = "65536"), 2: list<GroupView> views (max = "65536")),
  /** It is not in the group (any more): an answer, or the group was deleted. */
  oneway void group_refused(1: string group, 2: string reason (max = "4096")),
  /** Carried out beside everything else, a few at a time; answered by Manager.probe_report. */
  oneway void probe(1: ProbeOrder order),
  /** With welcome, to agents that know sites, where there are several: in which one this server is. */
  oneway void site(1: string site),
  oneway void legs(1: SplitAnswer answer),
  oneway void relay(1: RelayOrder order),
  /** A relay's word, handed on. */
  oneway void relayed(1: RelayReport report),
  oneway void origin(1: ObjectOrigin origin),
  /** Views of regions, before the views of groups that name them; only to agents whose engines have regions. */
  oneway void group_regions(1: list<GroupPeer> peers (max = "65536"), 2: list<GroupRegion> regions (max = "65536")),
  /** After welcome, to agents that tell what they hold: this manager wants to know (Manager.holds), and answers Manager.fetch. */
  oneway void tell_objects(),
  oneway void holders(1: FetchAnswer answer),
  oneway void serve(1: ServeOrder order),
  /** After welcome, and when keys change; only to agents that seal, and by TLS alone. */
  oneway void keys(1: list<SealKey> keys (max = "16384"))
}
