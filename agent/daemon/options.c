/* The command line: one table of options, from which both the parser and --help are made. */
#include "daemon/options.h"

#include <getopt.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "core/wan/options.h"
#include "daemon/data/nic.h"
#include "daemon/log.h"
#include "daemon/store/digest.h"
#include "daemon/units.h"
#include "io/io.h"

#define FIRST_OPTION 256
#define SEND_QUEUE_US 3000         /* rs_options_send_buffer: tests/lab/test_sender.py */
#define SEND_BUFFER_MOST (4 << 20) /* what back ends take unless told otherwise */
#define JUMBO 9000
#define SILENCE_BOUND (5 * (rs_time)1000000000)

typedef bool (*take_value)(rs_options *options, const char *text, char *error);

typedef struct {
    const char *name, *value, *help; /* `value`: a name for each value that it takes */
    take_value take;                 /* called for each */
} option;

#define ERROR_BYTES RS_IO_ERROR_MAX

static bool wrong(char *error, const char *text) {
    snprintf(error, ERROR_BYTES, "%s", text);
    return false;
}

static bool take_server(rs_options *o, const char *text, char *error) {
    o->server = text;
    size_t length = strlen(text);
    return (length >= 1 && length <= 255) || wrong(error, "a name has 1 to 255 bytes");
}

static bool take_interface(rs_options *o, const char *text, char *error) {
    o->interface = text;
    return text[0] != '\0' || wrong(error, "a network interface is needed, for example h1-eth0");
}

static bool take_address(rs_options *o, const char *text, char *error) {
    return (rs_parse_address(text, &o->address) && o->address != 0) ||
           wrong(error, "an IPv4 address is needed, for example 10.0.1.1");
}

static bool take_port(const char *text, uint16_t *out, char *error) {
    uint64_t port = 0;
    if (!rs_parse_integer(text, 1, UINT16_MAX, &port))
        return wrong(error, "a port is a number from 1 to 65535");
    *out = (uint16_t)port;
    return true;
}

static bool take_control_port(rs_options *o, const char *text, char *error) {
    return take_port(text, &o->control_port, error);
}

static bool take_data_port(rs_options *o, const char *text, char *error) {
    return take_port(text, &o->data_port, error);
}

static bool take_manager(rs_options *o, const char *text, char *error) {
    char one[64];
    o->standby_count = 0;
    for (uint32_t count = 0;; count++) {
        size_t length = strcspn(text, ",");
        uint32_t address = 0;
        uint16_t port = 0;
        snprintf(one, sizeof one, "%.*s", (int)length, text);
        if (length >= sizeof one || !rs_parse_endpoint(one, &address, &port))
            return wrong(error,
                         "an IPv4 address and a port are needed, for example 10.255.0.1:9090; more after commas");
        if (count > RS_MANAGER_STANDBYS_MAX)
            return wrong(error, "there are four managers at most");
        if (count == 0) {
            o->manager_address = address;
            o->manager_port = port;
        } else {
            o->standbys[count - 1] = (rs_manager_endpoint){address, port};
            o->standby_count = count;
        }
        if (!text[length])
            return true;
        text += length + 1;
    }
}

/* The file's first line, without what ends it. */
static bool take_token_file(rs_options *o, const char *text, char *error) {
    FILE *file = fopen(text, "r");
    bool got = file && fgets(o->token, (int)sizeof o->token, file);
    if (file)
        fclose(file);
    o->token[strcspn(o->token, "\r\n")] = '\0';
    size_t length = strlen(o->token);
    return (got && length >= 16 && length < sizeof o->token - 1) ||
           wrong(error, "a file is needed whose first line is a token of 16 to 253 characters");
}

/* Certificate, key, CA; rs_manager_new reads them. */
static bool take_manager_tls(rs_options *o, const char *text, char *error) {
    rs_tls_files *files = &o->manager_tls;
    if (files->authority)
        *files = (rs_tls_files){0}; /* given again: the last one counts */
    *(!files->certificate ? &files->certificate : !files->key ? &files->key : &files->authority) = text;
    return text[0] != '\0' || wrong(error, "three PEM files are needed: CERTIFICATE KEY CA");
}

static bool take_metrics(rs_options *o, const char *text, char *error) {
    uint32_t address;
    uint16_t port;
    struct sockaddr_un longest;
    o->metrics = text;
    return (text[0] == '/' && strlen(text) < sizeof longest.sun_path) || rs_parse_endpoint(text, &address, &port) ||
           wrong(error, "ADDRESS:PORT is needed, for example 10.255.1.1:9101, or the path of a unix socket");
}

static bool take_log_format(rs_options *o, const char *text, char *error) {
    (void)o;
    rs_log_set_json(strcmp(text, "json") == 0);
    return strcmp(text, "text") == 0 || strcmp(text, "json") == 0 || wrong(error, "it is text or json");
}

static bool take_socket(rs_options *o, const char *text, char *error) {
    o->socket_path = text;
    struct sockaddr_un longest;
    return (text[0] && strlen(text) < sizeof longest.sun_path) ||
           wrong(error, "a path for a unix socket has 1 to 107 bytes");
}

static bool take_socket_group(rs_options *o, const char *text, char *error) {
    const struct group *found = getgrnam(text);
    uint64_t number = 0;
    if (!found && !rs_parse_integer(text, 0, UINT32_MAX - 1, &number))
        return wrong(error, "this machine has no group of that name or number (getent group)");
    o->has_group = true;
    o->group = found ? found->gr_gid : (gid_t)number;
    return true;
}

static bool take_socket_mode(rs_options *o, const char *text, char *error) {
    char *end = NULL;
    unsigned long mode = strtoul(text, &end, 8);
    o->socket_mode = (uint32_t)mode;
    return (text[0] >= '0' && text[0] <= '7' && *end == '\0' && mode <= 0777 && (mode & 0600) == 0600) ||
           wrong(error, "an octal mode with the owner's read and write is needed, for example 0660");
}

static bool take_standalone(rs_options *o, const char *text, char *error) {
    o->standalone_receives = strcmp(text, "true") == 0;
    o->standalone = o->standalone_receives || strcmp(text, "sender") == 0;
    return o->standalone || strcmp(text, "false") == 0 || wrong(error, "it is true, sender or false");
}

static bool take_lan_peers(rs_options *o, const char *text, char *error) {
    for (const char *at = text; *at;) {
        char one[RS_ADDRESS_TEXT];
        size_t length = strcspn(at, ",");
        if (length >= sizeof one || o->lan_peer_count == RS_LAN_ASKED_MAX)
            return wrong(error, "at most 256 IPv4 addresses are needed, as in 10.0.0.2,10.0.0.3");
        memcpy(one, at, length);
        one[length] = 0;
        if (!rs_parse_address(one, &o->lan_peers[o->lan_peer_count++]))
            return wrong(error, "an IPv4 address of it is not understood, as in 10.0.0.2,10.0.0.3");
        at += length + (at[length] == ',');
    }
    return true;
}

static bool take_policy(rs_options *o, const char *text, char *error) {
    o->policy = text;
    return text[0] != '\0' || wrong(error, "a file is needed; docs/security.md says what is in it");
}

static bool take_audit(rs_options *o, const char *text, char *error) {
    o->audit = text;
    return text[0] != '\0' || wrong(error, "a file is needed, for example /var/log/rostrum/audit.jsonl");
}

static bool take_store(rs_options *o, const char *text, char *error) {
    o->store_directory = text;
    return text[0] != '\0' || wrong(error, "a folder on a tmpfs is needed");
}

static bool take_quota(rs_options *o, const char *text, char *error) {
    return (rs_parse_bytes(text, &o->quota_bytes) && o->quota_bytes > 0) ||
           wrong(error, "a size is needed, for example 4G or 512M");
}

static bool take_to_disk(rs_options *o, const char *text, char *error) {
    o->disk_directory = text;
    return text[0] != '\0' || wrong(error, "a folder on a disk is needed");
}

static bool take_disk_from(rs_options *o, const char *text, char *error) {
    return rs_parse_bytes(text, &o->disk_from) || wrong(error, "a size is needed, for example 64M, or 0");
}

static bool take_keep_quota(rs_options *o, const char *text, char *error) {
    return (rs_parse_bytes(text, &o->keep_quota_bytes) && o->keep_quota_bytes > 0) ||
           wrong(error, "a size is needed, for example 1G");
}

static bool take_wan_buffer(rs_options *o, const char *text, char *error) {
    return (rs_parse_bytes(text, &o->wan_buffer) && o->wan_buffer >= RS_WAN_MEMORY_LEAST &&
            o->wan_buffer <= RS_WAN_MEMORY_MOST) ||
           wrong(error, "a size of 1M to 1T is needed, for example 512M");
}

static bool take_disk_quota(rs_options *o, const char *text, char *error) {
    return (rs_parse_bytes(text, &o->disk_quota_bytes) && o->disk_quota_bytes > 0) ||
           wrong(error, "a size is needed, for example 500G");
}

static bool take_evict(rs_options *o, const char *text, char *error) {
    o->evict_notice = 0;
    return strcmp(text, "never") == 0 || (rs_parse_duration(text, &o->evict_notice) && o->evict_notice >= 100000000) ||
           wrong(error, "\"never\" is needed, or a time of 100ms or more");
}

static bool take_piece_port(rs_options *o, const char *text, char *error) {
    return take_port(text, &o->piece_port, error);
}

static bool take_fetch_rate(rs_options *o, const char *text, char *error) {
    return (rs_parse_rate(text, &o->fetch_rate_bps) && o->fetch_rate_bps >= 1000000) ||
           wrong(error, "a rate of at least 1M (bits/s) is needed, for example 500M");
}

static bool take_reserve(rs_options *o, const char *text, char *error) {
    return rs_parse_bytes(text, &o->reserve_bytes) || wrong(error, "a size is needed, for example 256M, or 0");
}

static bool take_io(rs_options *o, const char *text, char *error) {
    o->io = text;
    for (const rs_io_ops *const *ops = rs_io_backends; *ops; ops++)
        if (strcmp((*ops)->name, text) == 0)
            return true;
    return strcmp(text, "auto") == 0 || wrong(error, "there is no such packet I/O; see --help");
}

static bool take_receive_buffer(rs_options *o, const char *text, char *error) {
    uint64_t bytes = 0;
    if (!rs_parse_bytes(text, &bytes) || bytes < 64 << 10 || bytes > 1 << 30)
        return wrong(error, "a size from 64K to 1G is needed, for example 32M");
    o->receive_buffer = (int)bytes;
    return true;
}

static bool take_mtu(rs_options *o, const char *text, char *error) {
    uint64_t mtu = 0;
    if (!rs_parse_integer(text, 576, 65535, &mtu))
        return wrong(error, "an MTU is a number of bytes from 576 to 65535");
    o->mtu = (uint32_t)mtu;
    return true;
}

static bool take_nic_rate(rs_options *o, const char *text, char *error) {
    return (rs_parse_rate(text, &o->nic_rate_bps) && o->nic_rate_bps >= 1000000) ||
           wrong(error, "a rate of at least 1M (bits/s) is needed, for example 1G or 2.5G");
}

static bool take_attempt_interval(rs_options *o, const char *text, char *error) {
    if (strcmp(text, "auto") == 0) {
        o->attempt_interval = 0;
        return true;
    }
    return (rs_parse_duration(text, &o->attempt_interval) && o->attempt_interval >= 1000 &&
            o->attempt_interval <= 10000000000) ||
           wrong(error, "a duration from 1us to 10s is needed, for example 1.4ms, or auto");
}

static bool take_light_confirm(rs_options *o, const char *text, char *error) {
    uint64_t count = 0;
    if (!rs_parse_integer(text, 1, 255, &count))
        return wrong(error, "a number of packets from 1 to 255 is needed");
    o->light_confirm = (uint32_t)count;
    return true;
}

static bool take_repairs(rs_options *o, const char *text, char *error) {
    bool patches = strcmp(text, "patches") == 0;
    o->repairs = patches ? RS_REPAIRS_PATCHES_ONLY : RS_REPAIRS_BY_LOSS;
    return patches || strcmp(text, "by-loss") == 0 || wrong(error, "it is by-loss or patches");
}

static bool take_start_on(rs_options *o, const char *text, char *error) {
    static const char *names[] = {"last", "first", "switches"}; /* in the order of rs_start_policy */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i]) == 0) {
            o->start_policy = (rs_start_policy)i;
            return true;
        }
    return wrong(error, "it is last, first or switches");
}

static bool take_silence_bound(rs_options *o, const char *text, char *error) {
    return (rs_parse_duration(text, &o->silence_bound) && o->silence_bound >= 100000000 &&
            o->silence_bound <= 600000000000) ||
           wrong(error, "a duration from 100ms to 10min is needed, for example 5s");
}

static bool take_carry(rs_options *o, const char *text, char *error) {
    o->carry = o->carry_asked = strcmp(text, "true") == 0;
    return o->carry || strcmp(text, "false") == 0 || wrong(error, "it is true or false");
}

static bool take_direct_receivers(rs_options *o, const char *text, char *error) {
    uint64_t count = 0;
    if (!rs_parse_integer(text, 1, 65536, &count))
        return wrong(error, "a number from 1 to 65536 is needed");
    o->direct_receivers = (uint32_t)count;
    return true;
}

static bool take_digest(rs_options *o, const char *text, char *error) {
    o->digest_algorithm = strcmp(text, "sha256") == 0 ? RS_DIGEST_SHA256 : RS_DIGEST_XXH3;
    return strcmp(text, "xxh3") == 0 || strcmp(text, "sha256") == 0 || wrong(error, "it is either xxh3 or sha256");
}

static bool take_security(rs_options *o, const char *text, char *error) {
    o->sign = strcmp(text, "signed") == 0;
    o->security = o->sign || strcmp(text, "required") == 0;
    return o->security || strcmp(text, "off") == 0 || wrong(error, "it is required, signed or off");
}

static bool take_max_connections(rs_options *o, const char *text, char *error) {
    uint64_t count = 0;
    if (!rs_parse_integer(text, 1, 65536, &count))
        return wrong(error, "a number from 1 to 65536 is needed");
    o->max_connections = (uint32_t)count;
    return true;
}

static bool take_relay(rs_options *o, const char *text, char *error) {
    o->relay = strcmp(text, "yes") == 0;
    return o->relay || strcmp(text, "no") == 0 || wrong(error, "it is either yes or no");
}

static bool take_stragglers(rs_options *o, const char *text, char *error) {
    static const char *const names[] = {"wait", "demote", "evict"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i]) == 0)
            o->stragglers = (rs_straggler_policy)(RS_STRAGGLERS_WAIT + i);
    return o->stragglers != RS_STRAGGLERS_DEFAULT || wrong(error, "it is one of wait, demote, evict");
}

static bool take_loss(rs_options *o, const char *text, char *error) {
    o->loss = text;
    return rs_io_lossy_check(text, error);
}

static bool take_seed(rs_options *o, const char *text, char *error) {
    return rs_parse_integer(text, 1, UINT64_MAX, &o->seed) || wrong(error, "a number from 1 on is needed");
}

static bool take_log_level(rs_options *o, const char *text, char *error) {
    o->log_level = text;
    return rs_log_set_level(text) || wrong(error, "it is one of debug, info, warning, error");
}

/* In the order of --help. */
static const option options_table[] = {
    {"server", "NAME", "this server's name in the topology file (needed)", take_server},
    {"interface", "NIC", "network interface of the data network (needed)", take_interface},
    {"address", "IPV4", "this server's address on that interface (needed)", take_address},
    {"socket", "PATH", "unix socket for applications (needed)", take_socket},
    {"socket-group", "GROUP", "whose members may use the socket and read the objects [the agent's own]",
     take_socket_group},
    {"socket-mode", "MODE", "of the socket, octal [0660]", take_socket_mode},
    {"policy", "FILE",
     "which users and groups of this server may send where, publish, subscribe, read and delete; read again on SIGHUP "
     "[whoever may connect may do all]",
     take_policy},
    {"audit", "FILE", "append who asked for what, a JSON object a line; opened again on SIGHUP [nowhere]", take_audit},
    {"store", "DIR", "folder for objects, on a tmpfs (needed)", take_store},
    {"manager", "IPV4:PORT[,...]",
     "the manager's Thrift port, and those of its standbys, tried in turn; without it this agent can receive but not "
     "send",
     take_manager},
    {"standalone", "true|sender|false",
     "need no manager: find the other agents of the LAN, and send to them by multicast, or from server to server where "
     "it does not get through; sender: but let nobody send here who asks for anybody [false]",
     take_standalone},
    {"lan-peers", "IPV4[,...]", "standalone agents to look for besides those that multicast reaches [none]",
     take_lan_peers},
    {"control-port", "PORT", "TCP port of the control channel [7071]", take_control_port},
    {"data-port", "PORT", "UDP port of the data channel, if the manager names none [7070]", take_data_port},
    {"piece-port", "PORT", "TCP port where other agents fetch objects [the control port's next]", take_piece_port},
    {"fetch-rate", "RATE", "what other agents get at most by fetching from here, all together [no bound]",
     take_fetch_rate},
    {"quota", "SIZE", "most that objects may take of the store, for example 4G [what the tmpfs holds]", take_quota},
    {"to-disk", "DIR",
     "folder on a disk for objects that are received: they may be larger than memory, and the next start finds them, "
     "or their pieces, again, and goes on with what was being sent [all are in memory]",
     take_to_disk},
    {"disk-from", "SIZE", "with --to-disk: smaller objects stay in memory [0]", take_disk_from},
    {"disk-quota", "SIZE", "most that objects may take of --to-disk [what the disk holds]", take_disk_quota},
    {"keep-quota", "SIZE", "most that messages kept for replay take, of all groups that have keep [256M]",
     take_keep_quota},
    {"wan-buffer", "SIZE", "most that sends by wan may have sent and not know to be there, all together [512M]",
     take_wan_buffer},
    {"evict", "TIME|never",
     "when the store is 9/10 full, or something does not fit: received objects that were read longest ago go, so long "
     "after that was told; those that are pinned stay [never]",
     take_evict},
    {"reserve", "SIZE", "memory kept ready for objects to come, besides what they use; helps in virtual machines [0]",
     take_reserve},
    {"manager-tls", "CERTIFICATE KEY CA",
     "speak TLS with the manager: this agent's certificate, which names it, its key, and the CA of the manager's (PEM) "
     "[plain]",
     take_manager_tls},
    {"manager-token", "FILE", "its first line tells the manager who this agent is [none]", take_token_file},
    {"metrics", "WHERE", "serve metrics for Prometheus at ADDRESS:PORT or a unix socket /PATH [nowhere]", take_metrics},
    {"relay", "YES", "yes: take what comes from other sites before their receivers do [no: as the topology says]",
     take_relay},
    {"mtu", "BYTES", "largest IP packet on the data channel [the interface's MTU]", take_mtu},
    {"nic-rate", "RATE", "what the NIC can send, in bits/s on the wire, for example 1G [the interface's speed]",
     take_nic_rate},
    {"io", "NAME", "packet I/O: auto, udp, udp-gso, packet, xdp, netmap [auto]", take_io},
    {"receive-buffer", "SIZE",
     "data packets that may wait to be read: of each group [16M], or --io packet's ring [32M]", take_receive_buffer},
    {"attempt-interval", "TIME",
     "time between packets while there is no light yet, for example 1.4ms [auto: 2 % of the\n"
     "                              circuit's reconfiguration time]",
     take_attempt_interval},
    {"light-confirm", "N", "packets in a row a receiver must see before it reports light [auto]", take_light_confirm},
    {"start-on", "last|first|switches",
     "go to high rate when the last, or the first, receiver has light; switches: or when P4 switches saw it [last]",
     take_start_on},
    {"repairs", "by-loss|patches", "repair losses by multicast where that costs less, or point to point [by-loss]",
     take_repairs},
    {"silence-bound", "TIME", "give up a peer that says nothing this long [5s]", take_silence_bound},
    {"digest", "xxh3|sha256", "digest of objects added here [xxh3; with --security required sha256]", take_digest},
    {"security", "required|signed|off",
     "TLS with manager and agents, sealed packets, SHA-256; nothing else; signed: streams and messages from here are "
     "signed, too, and messages to here must be [off]",
     take_security},
    {"max-connections", "N", "control connections at a time [16384]", take_max_connections},
    {"direct-receivers", "N", "receivers of a transfer that report to its sender; more report by a tree [32]",
     take_direct_receivers},
    {"carry", "true|false", "some of many receivers carry control messages for the others; not with security [true]",
     take_carry},
    {"stragglers", "POLICY",
     "a receiver less than half as fast as half of the others: wait for it, demote it to unicast, or evict it; for "
     "sends that do not say [wait]",
     take_stragglers},
    {"loss", "SPEC",
     "lose received data packets on purpose: uniform:P, burst:P:N, gilbert:P:N, first:N, "
     "pattern:P:N, or spoil them: corrupt:P",
     take_loss},
    {"seed", "N", "seed of every random choice, to repeat a run [random]", take_seed},
    {"log-level", "LEVEL", "debug, info, warning or error [info]", take_log_level},
    {"log-format", "FORMAT", "lines of text, or json: an object a line [text]", take_log_format},
};
#define OPTION_COUNT (sizeof options_table / sizeof *options_table)

static void help(FILE *say) {
    fputs("rostrumd: the agent of rostrum on a server. It runs in the foreground and logs to stderr; SIGTERM ends it "
          "in order.\n\n"
          "usage: rostrumd --server NAME --interface NIC --address IPV4 --socket PATH --store DIR [option ...]\n\n",
          say);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char left[40];
        snprintf(left, sizeof left, "--%s %s", options_table[i].name, options_table[i].value);
        fprintf(say, "  %-27s %s\n", left, options_table[i].help);
    }
    fputs("  --help                      this text\n"
          "  --version                   version\n\n"
          "Sizes: K, M, G, T (powers of 1024). Rates: K, M, G (powers of 1000). Times: ns, us, ms, s, min.\n\n"
          "Server h1 of the lab, by hand:\n"
          "  rostrumd --server h1 --interface h1-eth0 --address 10.0.1.1 --manager 10.255.0.1:9090 \\\n"
          "      --socket /run/rostrum/h1/agent.sock --store /run/rostrum/h1/objects --quota 4G --nic-rate 1G\n\n"
          "Exit codes: 0 ended in order, 1 could not start or failed (the last log line says why), 2 wrong command "
          "line.\n",
          say);
}

static const char *missing(const rs_options *o) {
    if (!o->server)
        return "--server";
    if (!o->interface)
        return "--interface";
    if (o->address == 0)
        return "--address";
    if (!o->socket_path)
        return "--socket";
    return o->store_directory ? NULL : "--store";
}

/* All values of one option; the first is optarg, more are the arguments behind it. */
static bool take_values(const option *which, int argc, char *const *argv, rs_options *out, FILE *complain) {
    char error[ERROR_BYTES];
    const char *value = optarg, *more = which->value;
    for (;; value = argv[optind++]) {
        if (!which->take(out, value, error)) {
            fprintf(complain, "rostrumd: --%s \"%s\": %s\n", which->name, value, error);
            return false;
        }
        more = strchr(more, ' ');
        if (!more++)
            return true;
        if (optind >= argc || strncmp(argv[optind], "--", 2) == 0) {
            fprintf(complain, "rostrumd: --%s needs %s; see rostrumd --help\n", which->name, which->value);
            return false;
        }
    }
}

static rs_options_result take_all(int argc, char *const *argv, rs_options *out, FILE *say, FILE *complain) {
    struct option longs[OPTION_COUNT + 3] = {{0}};
    int found;
    for (size_t i = 0; i < OPTION_COUNT; i++)
        longs[i] = (struct option){options_table[i].name, required_argument, NULL, FIRST_OPTION + (int)i};
    longs[OPTION_COUNT] = (struct option){"help", no_argument, NULL, 'h'};
    longs[OPTION_COUNT + 1] = (struct option){"version", no_argument, NULL, 'V'};
    optind = 0; /* start over: tests parse more than once */
    opterr = 0;
    while ((found = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
        if (found == 'h') {
            help(say);
            return RS_OPTIONS_TOLD;
        }
        if (found == 'V') {
            fprintf(say, "rostrumd %s\n", RS_VERSION);
            return RS_OPTIONS_TOLD;
        }
        if (found < FIRST_OPTION) {
            fprintf(complain, "rostrumd: %s \"%s\"; see rostrumd --help\n",
                    found == ':' ? "a value is missing behind" : "there is no option", argv[optind - 1]);
            return RS_OPTIONS_WRONG;
        }
        if (!take_values(&options_table[found - FIRST_OPTION], argc, argv, out, complain))
            return RS_OPTIONS_WRONG;
    }
    return RS_OPTIONS_RUN;
}

rs_options_result rs_options_parse(int argc, char *const *argv, rs_options *out, FILE *say, FILE *complain) {
    *out = (rs_options){.control_port = 7071,
                        .data_port = 7070,
                        .io = "auto",
                        .max_connections = 16384,
                        .socket_mode = 0660,
                        .keep_quota_bytes = UINT64_C(256) << 20, /* a few groups of 64M, and little beside objects */
                        .silence_bound = SILENCE_BOUND,
                        .carry = true,
                        .log_level = "info"};
    rs_options_result result = take_all(argc, argv, out, say, complain);
    if (result != RS_OPTIONS_RUN)
        return result;
    if (optind < argc) {
        fprintf(complain, "rostrumd: \"%s\" is not understood; see rostrumd --help\n", argv[optind]);
        return RS_OPTIONS_WRONG;
    }
    if (out->security && (!out->manager_tls.authority || out->standalone)) {
        fprintf(complain,
                "rostrumd: --security required needs a manager that hands out keys, and --manager-tls "
                "CERTIFICATE KEY CA for it%s; see rostrumd --help\n",
                out->standalone ? ", and not --standalone" : "");
        return RS_OPTIONS_WRONG;
    }
    if (out->security && out->digest_algorithm == RS_DIGEST_XXH3) {
        fprintf(complain, "rostrumd: --digest xxh3 finds accidents, not changes that somebody makes: --security "
                          "required takes sha256\n");
        return RS_OPTIONS_WRONG;
    }
    if (out->security && out->carry_asked)
        rs_log(RS_LOG_WARNING, "agent", "--carry true is off: with --security required each says what it says itself");
    out->carry &= !out->security;
    out->manager_tls.strict = out->security;
    if (out->digest_algorithm == 0)
        out->digest_algorithm = out->security ? RS_DIGEST_SHA256 : RS_DIGEST_XXH3;
    if (out->piece_port == 0)
        out->piece_port = (uint16_t)(out->control_port + 1);
    const char *absent = missing(out);
    if (absent) {
        fprintf(complain, "rostrumd: %s is needed; see rostrumd --help\n", absent);
        return RS_OPTIONS_WRONG;
    }
    return RS_OPTIONS_RUN;
}

int rs_options_send_buffer(const rs_options *o) {
    int64_t nic_bps = o->nic_rate_bps ? o->nic_rate_bps : rs_nic_rate(o->interface);
    int64_t bytes = nic_bps / 8 * SEND_QUEUE_US / 1000000, least = 2 * (int64_t)(o->mtu ? o->mtu : JUMBO);
    if (nic_bps == 0 || bytes > SEND_BUFFER_MOST)
        return SEND_BUFFER_MOST;
    return (int)(bytes < least ? least : bytes);
}

rs_io_options rs_options_io(const rs_options *o, rs_io_log log) {
    return (rs_io_options){.interface = o->interface,
                           .address = o->address,
                           .mtu = o->mtu,
                           .receive_buffer = o->receive_buffer,
                           .log = log};
}
