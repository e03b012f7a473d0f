import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.logbuffer.BufferClaim;
import io.aeron.logbuffer.FragmentHandler;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.SleepingIdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * One file to several hosts by Aeron, a media driver in each program.
 *
 * <pre>
 *   AeronCopy receive ADDRESS SENDER MTU RECEIVERS FILE SIZE
 *   AeronCopy send ADDRESS - MTU RECEIVERS FILE GO
 * </pre>
 *
 * Each message is its offset in the file and a piece of it. The sender says "ready" when all receivers are connected, begins
 * when the file GO exists, and ends when every receiver has told, by a TCP connection, that it has all.
 */
public final class AeronCopy {
    private static final int STREAM = 10;
    private static final int DONE_PORT = 40500;
    private static final int OFFSET = Long.BYTES;
    private static final int SEGMENT = 1 << 29;
    private static final int FRAGMENTS = 64;
    private static final int WARM_UP = 20_000;
    /** All hosts share two cores: who spins while it has nothing to do takes them from who has. */
    private static final long IDLE_NS = 50_000;

    private final UnsafeBuffer[] segments;
    private final long size;

    private AeronCopy(final Path file, final long size, final boolean writes) throws IOException {
        this.size = size;
        segments = new UnsafeBuffer[(int) ((size + SEGMENT - 1) / SEGMENT)];
        final StandardOpenOption[] options = writes
            ? new StandardOpenOption[] {StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE}
            : new StandardOpenOption[] {StandardOpenOption.READ};
        try (FileChannel channel = FileChannel.open(file, options)) {
            for (int i = 0; i < segments.length; i++) {
                final long start = (long) i * SEGMENT;
                final FileChannel.MapMode mode = writes ? FileChannel.MapMode.READ_WRITE : FileChannel.MapMode.READ_ONLY;
                segments[i] = new UnsafeBuffer(channel.map(mode, start, Math.min(SEGMENT, size - start)));
            }
        }
    }

    /** Most bytes from an offset on that lie in one segment, at most `most`. */
    private int piece(final long offset, final int most) {
        final long end = Math.min(size, (offset / SEGMENT + 1) * SEGMENT);
        return (int) Math.min(most, end - offset);
    }

    private void send(final ExclusivePublication publication, final IdleStrategy idle) {
        final BufferClaim claim = new BufferClaim();
        final int most = publication.maxPayloadLength() - OFFSET;
        for (long offset = 0; offset < size;) {
            final int length = piece(offset, most);
            final long result = publication.tryClaim(OFFSET + length, claim);
            if (result == Publication.CLOSED || result == Publication.NOT_CONNECTED
                || result == Publication.MAX_POSITION_EXCEEDED) {
                throw new IllegalStateException("the receivers went away: " + result);
            }
            if (result > 0) {
                claim.buffer().putLong(claim.offset(), offset);
                claim.buffer().putBytes(
                    claim.offset() + OFFSET, segments[(int) (offset / SEGMENT)], (int) (offset % SEGMENT), length);
                claim.commit();
                offset += length;
            }
            idle.idle(result > 0 ? 1 : 0);
        }
    }

    /** Messages that are nothing: Java compiles what it will need, as it has in a program that runs all day. */
    private static void warmUp(final ExclusivePublication publication, final IdleStrategy idle) {
        final UnsafeBuffer nothing = new UnsafeBuffer(new byte[publication.maxPayloadLength()]);
        nothing.putLong(0, -1);
        for (int sent = 0; sent < WARM_UP;) {
            final long result = publication.offer(nothing);
            sent += result > 0 ? 1 : 0;
            idle.idle(result > 0 ? 1 : 0);
        }
    }

    private void receive(final Subscription subscription, final IdleStrategy idle) {
        final long[] received = {0};
        final FragmentHandler handler = (buffer, at, length, header) -> {
            final long offset = buffer.getLong(at);
            if (offset < 0) {
                return;
            }
            segments[(int) (offset / SEGMENT)].putBytes(
                (int) (offset % SEGMENT), buffer, at + OFFSET, length - OFFSET);
            received[0] += length - OFFSET;
        };
        while (received[0] < size) {
            idle.idle(subscription.poll(handler, FRAGMENTS));
        }
    }

    private static MediaDriver.Context driver(final String folder) {
        return new MediaDriver.Context()
            .aeronDirectoryName(folder)
            .dirDeleteOnStart(true)
            .dirDeleteOnShutdown(true)
            .sharedIdleStrategy(new SleepingIdleStrategy(IDLE_NS))
            .termBufferSparseFile(true)
            .socketRcvbufLength(16 << 20)
            .socketSndbufLength(2 << 20)
            .initialWindowLength(4 << 20)
            .publicationTermBufferLength(16 << 20);
    }

    public static void main(final String[] words) throws Exception {
        final boolean sends = words[0].equals("send");
        final String address = words[1];
        final int mtu = Integer.parseInt(words[3]);
        final int receivers = Integer.parseInt(words[4]);
        final Path file = Path.of(words[5]);
        final String channel = "aeron:udp?endpoint=239.192.4.1:40456|interface=" + address + "|mtu=" + mtu + "|ttl=1"
            + (sends ? "|fc=min,g:/" + receivers : "|rcv-wnd=4m");
        final IdleStrategy idle = new SleepingIdleStrategy(IDLE_NS);
        try (MediaDriver media = MediaDriver.launch(driver(file.resolveSibling("aeron-" + address).toString()));
            Aeron aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(media.aeronDirectoryName()))) {
            if (sends) {
                final AeronCopy copy = new AeronCopy(file, Files.size(file), false);
                try (ServerSocket done = new ServerSocket(DONE_PORT, 16, InetAddress.getByName(address));
                    ExclusivePublication publication = aeron.addExclusivePublication(channel, STREAM)) {
                    while (!publication.isConnected()) {
                        Thread.sleep(1);
                    }
                    warmUp(publication, idle);
                    System.out.println("ready");
                    while (!Files.exists(Path.of(words[6]))) {
                        Thread.sleep(0, 200_000);
                    }
                    copy.send(publication, idle);
                    for (int i = 0; i < receivers; i++) {
                        done.accept();
                    }
                    System.out.println("complete");
                    // Closing a driver takes its time; all have the file.
                    Runtime.getRuntime().halt(0);
                }
            }
            final AeronCopy copy = new AeronCopy(file, Long.parseLong(words[6]), true);
            try (Subscription subscription = aeron.addSubscription(channel, STREAM)) {
                System.out.println("ready");
                copy.receive(subscription, idle);
                try (Socket done = new Socket()) {
                    done.connect(new InetSocketAddress(words[2], DONE_PORT));
                    Thread.sleep(Long.MAX_VALUE); // the bench ends it
                }
            }
        }
    }
}
