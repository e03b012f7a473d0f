/* norm_messages: messages to several hosts by a NORM stream (RFC 5740) with NRL's libnorm, whose header is C++.
 *
 *   norm_messages receive INTERFACE ID COUNT
 *   norm_messages send INTERFACE ID COUNT BYTES RATE LINK_BPS SEGMENT GO
 *
 * Each message is preceded by its length, as a stream has no bounds. RATE messages a second, 0 = as many as can be;
 * LINK_BPS: the rate it is told. With its own flow control: what was asked for of late is not overwritten. */
#include "stamps.h"

#include <normApi.h>

#include <unistd.h>
#include <vector>

namespace {

const char *const GROUP = "239.192.2.2";
const unsigned short PORT = 6004;
const unsigned int BUFFER = 64u << 20, STREAM = 8u << 20, SOCKET_BUFFER = 16u << 20;
const unsigned short BLOCK = 64, PARITY = 8;
const double GRTT = 0.002; // seconds: what a rack has
const int WARM_UP = 200;

[[noreturn]] void die(const char *what) {
    fprintf(stderr, "norm_messages: %s failed\n", what);
    exit(1);
}

NormSessionHandle open_session(NormInstanceHandle instance, char **words) {
    NormSessionHandle session =
        NormCreateSession(instance, GROUP, PORT, static_cast<NormNodeId>(strtoul(words[3], nullptr, 10)));
    if (session == NORM_SESSION_INVALID || !NormSetMulticastInterface(session, words[2]))
        die("opening a session");
    NormSetTTL(session, 1);
    return session;
}

struct Broken {}; // something was given up; the stream goes on at a later message

/* False: more has to come first. */
bool read_exactly(NormObjectHandle stream, char *to, unsigned bytes, unsigned &have) {
    while (have < bytes) {
        unsigned more = bytes - have;
        if (!NormStreamRead(stream, to + have, &more))
            throw Broken();
        if (more == 0)
            return false;
        have += more;
    }
    return true;
}

int receive(char **words) {
    static stamp_book book;
    if (!stamp_book_new(&book, strtoull(words[4], nullptr, 10)))
        die("keeping the book");
    NormInstanceHandle instance = NormCreateInstance();
    NormSessionHandle session = open_session(instance, words);
    if (!NormStartReceiver(session, BUFFER) || !NormSetRxSocketBuffer(session, SOCKET_BUFFER))
        die("starting the receiver");
    puts("ready");
    fflush(stdout);
    std::vector<char> message(1 << 20);
    uint32_t length = 0;
    unsigned head = 0, have = 0;
    auto take = [&](NormObjectHandle stream) {
        for (;;) {
            if (!read_exactly(stream, reinterpret_cast<char *>(&length), sizeof length, head))
                return;
            if (length > message.size())
                die("keeping step with the stream");
            if (!read_exactly(stream, message.data(), length, have))
                return;
            head = have = 0;
            if (stamp_take(&book, message.data(), length))
                stamp_print(&book); // and goes on answering until it is ended
        }
    };
    NormEvent event;
    while (NormGetNextEvent(instance, &event)) {
        if (event.type != NORM_RX_OBJECT_UPDATED)
            continue;
        try {
            take(event.object);
        } catch (const Broken &) {
            head = have = 0;
            while (!NormStreamSeekMsgStart(event.object)) {
            }
        }
    }
    return 1;
}

struct Sender {
    NormInstanceHandle instance;
    NormObjectHandle stream;
    std::vector<char> packet; // a length, a message
    bool flush;               // after each message

    void wait() const {
        NormEvent event;
        NormGetNextEvent(instance, &event);
    }

    void put(const char *bytes, unsigned count) const {
        while (count) {
            unsigned taken = NormStreamWrite(stream, bytes, count);
            bytes += taken;
            count -= taken;
            if (count)
                wait();
        }
    }

    static void publish(void *context, uint64_t number, int64_t due, int) {
        Sender &sender = *static_cast<Sender *>(context);
        stamp_put(sender.packet.data() + sizeof(uint32_t), number, due);
        sender.put(sender.packet.data(), static_cast<unsigned>(sender.packet.size()));
        NormStreamMarkEom(sender.stream);
        if (sender.flush)
            NormStreamFlush(sender.stream, false, NORM_FLUSH_PASSIVE);
    }
};

int send(char **words) {
    const uint64_t count = strtoull(words[4], nullptr, 10), rate = strtoull(words[6], nullptr, 10);
    const uint32_t bytes = static_cast<uint32_t>(strtoul(words[5], nullptr, 10));
    const auto segment = static_cast<unsigned short>(strtoul(words[8], nullptr, 10));
    NormInstanceHandle instance = NormCreateInstance();
    NormSessionHandle session = open_session(instance, words);
    NormSetTxRate(session, strtod(words[7], nullptr));
    NormSetCongestionControl(session, false);
    NormSetGrttEstimate(session, GRTT);
    NormSetGrttProbingMode(session, NORM_PROBE_NONE);
    if (!NormStartSender(session, 1, BUFFER, segment, BLOCK, PARITY) || !NormSetTxSocketBuffer(session, SOCKET_BUFFER))
        die("starting the sender");
    Sender sender{instance, NormStreamOpen(session, STREAM), {}, true};
    sender.packet.resize(sizeof bytes + bytes);
    memcpy(sender.packet.data(), &bytes, sizeof bytes);
    for (int i = 0; i < WARM_UP; i++)
        Sender::publish(&sender, STAMP_WARM_UP, stamp_now(), 0);
    sender.flush = rate != 0;
    stamp_await(words[9]);
    const int64_t start = stamp_send(count, rate, Sender::publish, &sender);
    NormStreamFlush(sender.stream, true, NORM_FLUSH_ACTIVE);
    stamp_print_sent(count, start);
    for (;;)
        sender.wait(); // repairs, until it is ended
}

} // namespace

int main(int count, char **words) {
    if (count == 5 && !strcmp(words[1], "receive"))
        return receive(words);
    if (count == 10 && !strcmp(words[1], "send"))
        return send(words);
    fputs("see the head of norm_messages.cpp\n", stderr);
    return 2;
}
