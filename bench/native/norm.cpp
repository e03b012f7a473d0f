/* norm: one file to several hosts by NORM (RFC 5740) with NRL's libnorm, whose header is C++.
 *
 *   norm receive --interface eth0 --id 2 --folder D --file F
 *   norm send --interface eth0 --id 1 --rate 600e6 --segment 1400 --acks 2,3,4 --file F
 *
 * Without --rate NORM's own congestion control finds one; with it that is off. --grtt: the round trip to begin with, in
 * seconds, if it is known. `send` ends when every receiver has acknowledged the object,
 * which it does when it has all of it; a receiver then goes on answering until it is ended. */
#include <normApi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <getopt.h>
#include <string>
#include <unistd.h>

namespace {

const char *const GROUP = "239.192.2.1";
const unsigned short PORT = 6003;
const unsigned int BUFFER = 256u << 20;
const unsigned int SOCKET_BUFFER = 64u << 20;
const unsigned short BLOCK = 128, PARITY = 8;
const double GRTT = 0.002; // seconds: what a rack has

struct Settings {
    std::string interface, folder, file, acks;
    unsigned id = 0, segment = 1400;
    double rate = 0, grtt = GRTT;
};

[[noreturn]] void die(const char *what) {
    std::fprintf(stderr, "norm: %s failed\n", what);
    std::exit(1);
}

NormSessionHandle open_session(NormInstanceHandle instance, const Settings &set) {
    NormSessionHandle session = NormCreateSession(instance, GROUP, PORT, set.id);
    if (session == NORM_SESSION_INVALID || !NormSetMulticastInterface(session, set.interface.c_str()))
        die("opening a session");
    NormSetTTL(session, 1);
    return session;
}

int receive(const Settings &set) {
    NormInstanceHandle instance = NormCreateInstance();
    if (!NormSetCacheDirectory(instance, set.folder.c_str()))
        die("the folder");
    NormSessionHandle session = open_session(instance, set);
    if (!NormStartReceiver(session, BUFFER) || !NormSetRxSocketBuffer(session, SOCKET_BUFFER))
        die("starting the receiver");
    NormSetRxCacheLimit(session, 4);
    std::puts("ready");
    std::fflush(stdout);
    NormEvent event;
    while (NormGetNextEvent(instance, &event)) {
        if (event.type == NORM_RX_OBJECT_ABORTED)
            die("receiving the object");
        if (event.type == NORM_RX_OBJECT_COMPLETED) {
            if (!NormFileRename(event.object, set.file.c_str()))
                die("naming the file");
            std::puts("complete");
            std::fflush(stdout);
        }
    }
    return 1;
}

unsigned add_receivers(NormSessionHandle session, const std::string &list) {
    unsigned count = 0;
    for (const char *at = list.c_str(); *at; count++) {
        char *end = nullptr;
        NormAddAckingNode(session, static_cast<NormNodeId>(std::strtoul(at, &end, 10)));
        at = *end == ',' ? end + 1 : end;
    }
    return count;
}

int send(const Settings &set) {
    NormInstanceHandle instance = NormCreateInstance();
    NormSessionHandle session = open_session(instance, set);
    NormSetCongestionControl(session, set.rate == 0, set.rate == 0);
    if (set.rate > 0)
        NormSetTxRate(session, set.rate);
    NormSetGrttEstimate(session, set.grtt);
    NormSetGroupSize(session, 10);
    NormSetTxCacheBounds(session, 1ull << 40, 1, 4);
    unsigned receivers = add_receivers(session, set.acks);
    if (!NormStartSender(session, 1, BUFFER, static_cast<UINT16>(set.segment), BLOCK, PARITY) ||
        !NormSetTxSocketBuffer(session, SOCKET_BUFFER))
        die("starting the sender");
    NormObjectHandle object = NormFileEnqueue(session, set.file.c_str());
    if (object == NORM_OBJECT_INVALID || !NormSetWatermark(session, object, true))
        die("queueing the file");
    NormEvent event;
    while (NormGetNextEvent(instance, &event)) {
        if (event.type != NORM_TX_WATERMARK_COMPLETED)
            continue;
        if (NormGetAckingStatus(session) == NORM_ACK_SUCCESS) {
            std::printf("{\"acknowledged\": %u}\n", receivers);
            return 0;
        }
        NormSetWatermark(session, object, true); // some have not all of it yet: ask again
    }
    return 1;
}

[[noreturn]] void usage() {
    std::fputs("usage: norm receive --interface NIC --id N --folder DIR --file FILE\n"
               "       norm send --interface NIC --id N [--rate BITS] [--grtt SECONDS] --segment BYTES --acks N,N,... "
               "--file FILE\n",
               stderr);
    std::exit(2);
}

} // namespace

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"interface", 1, nullptr, 'i'}, {"id", 1, nullptr, 'n'},   {"folder", 1, nullptr, 'd'},
        {"file", 1, nullptr, 'f'},      {"rate", 1, nullptr, 'r'}, {"segment", 1, nullptr, 's'},
        {"acks", 1, nullptr, 'a'},      {"grtt", 1, nullptr, 'g'}, {nullptr, 0, nullptr, 0},
    };
    Settings set;
    if (argc < 2)
        usage();
    bool sends = std::strcmp(argv[1], "send") == 0;
    if (!sends && std::strcmp(argv[1], "receive") != 0)
        usage();
    optind = 2;
    for (int option; (option = getopt_long(argc, argv, "", options, nullptr)) >= 0;) {
        switch (option) {
        case 'i':
            set.interface = optarg;
            break;
        case 'n':
            set.id = static_cast<unsigned>(std::strtoul(optarg, nullptr, 10));
            break;
        case 'd':
            set.folder = std::string(optarg) + "/";
            break;
        case 'f':
            set.file = optarg;
            break;
        case 'r':
            set.rate = std::strtod(optarg, nullptr);
            break;
        case 'g':
            set.grtt = std::strtod(optarg, nullptr);
            break;
        case 's':
            set.segment = static_cast<unsigned>(std::strtoul(optarg, nullptr, 10));
            break;
        case 'a':
            set.acks = optarg;
            break;
        default:
            usage();
        }
    }
    if (set.interface.empty() || set.id == 0 || set.file.empty() || (sends ? set.acks : set.folder).empty())
        usage();
    return sends ? send(set) : receive(set);
}
