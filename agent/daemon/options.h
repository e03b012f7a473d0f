/* The agent's command line. */
#ifndef RS_DAEMON_OPTIONS_H
#define RS_DAEMON_OPTIONS_H

#include <stdio.h>

#include "core/transfer/node.h"
#include "daemon/manager/client.h"
#include "io/io.h"
#include "rostrum_version.h" /* made from VERSION */

#define RS_LAN_ASKED_MAX 256u

typedef struct {
    const char *server;    /* this server's name in the topology */
    const char *interface; /* data NIC */
    uint32_t address;      /* of the data NIC, host order */
    uint16_t control_port, data_port;
    uint16_t piece_port;      /* where others fetch pieces of objects */
    int64_t fetch_rate_bps;   /* that they get, all together; 0 = no bound */
    uint64_t wan_buffer;      /* bytes that sends by wan may have under way, all together; 0 = the default */
    uint32_t manager_address; /* host order; 0 = no manager */
    uint16_t manager_port;
    rs_manager_endpoint standbys[RS_MANAGER_STANDBYS_MAX]; /* further managers, one of which may lead */
    uint32_t standby_count;
    bool standalone, standalone_receives; /* it needs no manager; others' sends to anybody come here too */
    uint32_t lan_peers[RS_LAN_ASKED_MAX]; /* agents to ask for by unicast, host order */
    uint32_t lan_peer_count;
    rs_tls_files manager_tls; /* all NULL = plain */
    char token[256];          /* tells the manager who this agent is; "" = none */
    const char *metrics;      /* where to serve metrics: ADDRESS:PORT or a socket's path; NULL = nowhere */
    const char *socket_path;
    uint32_t socket_mode;
    bool has_group;
    uint32_t group;     /* whose members may use socket and objects; else the process's own */
    const char *policy; /* file: what programs may do; NULL = everything */
    const char *audit;  /* file: who asked for what; NULL = nowhere */
    const char *store_directory;
    uint64_t quota_bytes;       /* 0 = what the tmpfs holds */
    const char *disk_directory; /* where received objects lie on disk; NULL = nowhere */
    uint64_t disk_from;         /* received objects of so many bytes or more */
    uint64_t disk_quota_bytes;  /* 0 = what the disk has */
    uint64_t keep_quota_bytes;  /* messages that groups keep for replay, in memory and on disk */
    rs_time evict_notice;       /* received objects go to make room, told so long before; 0: none do */
    uint64_t reserve_bytes;     /* memory kept ready for objects */
    const char *io;             /* back end */
    int receive_buffer;         /* bytes; 0: the back end's default */
    uint32_t mtu;               /* 0 = the interface's */
    int64_t nic_rate_bps;       /* 0 = the interface's */
    rs_time attempt_interval;   /* 0 = by the circuit technology */
    uint32_t light_confirm;     /* 0 = the core's choice */
    rs_start_policy start_policy;
    rs_repair_policy repairs;
    rs_straggler_policy stragglers;
    rs_time silence_bound; /* never 0: parts multiply it */
    const char *loss;      /* NULL = none */
    uint64_t seed;         /* 0 = random */
    uint8_t digest_algorithm;
    bool security; /* required: TLS, and packets are sealed */
    bool sign;     /* and streams and messages are signed */
    uint32_t max_connections;
    bool relay;                /* it is there to take objects from other sites */
    bool carry;                /* of many receivers some carry control messages to the others; never with security */
    bool carry_asked;          /* it was not the default */
    uint32_t direct_receivers; /* more of a transfer report by a tree; 0 = the core's choice */
    const char *log_level;
} rs_options;

typedef enum { RS_OPTIONS_RUN, RS_OPTIONS_TOLD, RS_OPTIONS_WRONG } rs_options_result;

/* RUN: `out` is complete, its texts are argv's. TOLD: --help or --version was answered on `say`. WRONG: words are on
 * `complain`. */
rs_options_result rs_options_parse(int argc, char *const *argv, rs_options *out, FILE *say, FILE *complain);

/* Bytes of the data channel that may wait in this host to be sent: what its NIC sends in 3 ms. Whoever else sends from
 * here shares the NIC's queue by how much waits in it, and TCP keeps its part there as short (TCP small queues: 1 ms,
 * or a few packets); a sender that is woken late goes on without a gap for as long. Two packets at least; 4 MiB at
 * most, and where nobody knows the NIC's rate. */
int rs_options_send_buffer(const rs_options *options);
/* With what packet I/O is opened; `log` takes its text. */
rs_io_options rs_options_io(const rs_options *options, rs_io_log log);

#endif
