import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.logbuffer.FragmentHandler;
import java.nio.file.Files;
import java.nio.file.Path;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.SleepingIdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Messages to several hosts by Aeron, a media driver in each program.
 *
 * <pre>
 *   AeronMessages receive ADDRESS MTU FOLDER COUNT
 *   AeronMessages send ADDRESS MTU FOLDER COUNT BYTES RATE RECEIVERS GO
 * </pre>
 */
public final class AeronMessages {
    private static final int STREAM = 11;
    private static final int FRAGMENTS = 64;
    private static final int WARM_UP = 20_000;
    /** All hosts share few cores: who spins while it has nothing to do takes them from who has. */
    private static final long IDLE_NS = 20_000;

    private AeronMessages() {
    }

    private static void publish(final ExclusivePublication publication, final UnsafeBuffer message, final IdleStrategy idle,
        final long number, final long dueNs) {
        message.putLong(0, number, Stamps.ORDER);
        message.putLong(Long.BYTES, dueNs, Stamps.ORDER);
        for (;;) {
            final long result = publication.offer(message);
            if (result > 0) {
                return;
            }
            if (result == Publication.CLOSED || result == Publication.MAX_POSITION_EXCEEDED) {
                throw new IllegalStateException("the publication ended: " + result);
            }
            idle.idle(0);
        }
    }

    private static void send(final Aeron aeron, final String channel, final String[] words, final IdleStrategy idle)
        throws Exception {
        final long count = Long.parseLong(words[4]);
        final long rate = Long.parseLong(words[6]);
        final UnsafeBuffer message = new UnsafeBuffer(new byte[Integer.parseInt(words[5])]);
        final String held = channel + "|fc=min,g:/" + words[7];
        try (ExclusivePublication publication = aeron.addExclusivePublication(held, STREAM)) {
            while (!publication.isConnected()) {
                Thread.sleep(1);
            }
            // Java compiles what it will need, as it has in a program that runs all day.
            for (int i = 0; i < WARM_UP; i++) {
                publish(publication, message, idle, Stamps.WARM_UP, System.nanoTime());
            }
            System.out.println("ready");
            while (!Files.exists(Path.of(words[8]))) {
                Thread.sleep(0, 200_000);
            }
            final long start = System.nanoTime();
            for (long i = 0; i < count; i++) {
                final long due = Stamps.due(start, i, rate);
                if (rate > 0) {
                    Stamps.await(due);
                }
                publish(publication, message, idle, i, due);
            }
            Stamps.sent(count, start);
            Thread.sleep(Long.MAX_VALUE); // repairs, until it is ended
        }
    }

    private static void receive(final Aeron aeron, final String channel, final int count, final IdleStrategy idle) {
        final Stamps stamps = new Stamps(count);
        final FragmentHandler handler = (buffer, at, length, header) ->
            stamps.take(buffer.getLong(at, Stamps.ORDER), buffer.getLong(at + Long.BYTES, Stamps.ORDER));
        try (Subscription subscription = aeron.addSubscription(channel + "|rcv-wnd=4m", STREAM)) {
            System.out.println("ready");
            for (;;) {
                idle.idle(subscription.poll(handler, FRAGMENTS));
            }
        }
    }

    public static void main(final String[] words) throws Exception {
        final String channel = "aeron:udp?endpoint=239.192.4.3:40457|interface=" + words[1] + "|mtu=" + words[2] + "|ttl=1";
        final IdleStrategy idle = new SleepingIdleStrategy(IDLE_NS);
        final MediaDriver.Context driver = new MediaDriver.Context()
            .aeronDirectoryName(Path.of(words[3], "aeron-" + words[1]).toString())
            .dirDeleteOnStart(true)
            .dirDeleteOnShutdown(true)
            .sharedIdleStrategy(new SleepingIdleStrategy(IDLE_NS))
            .termBufferSparseFile(true)
            .socketRcvbufLength(16 << 20)
            .socketSndbufLength(2 << 20)
            .initialWindowLength(4 << 20)
            .publicationTermBufferLength(16 << 20);
        try (MediaDriver media = MediaDriver.launch(driver);
            Aeron aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(media.aeronDirectoryName()))) {
            if (words[0].equals("send")) {
                send(aeron, channel, words, idle);
            }
            receive(aeron, channel, Integer.parseInt(words[4]), idle);
        }
    }
}
