import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Locale;
import java.util.concurrent.locks.LockSupport;

/** Stamps in the messages of a bench, and what a receiver makes of them: the counterpart of stamps.h. */
final class Stamps {
    static final int BYTES = 16;
    static final long WARM_UP = 1L << 62;
    static final ByteOrder ORDER = ByteOrder.nativeOrder();

    private final int count;
    private final BitSet seen;
    private final int[] tenths;
    private int received;
    private long again;
    private long malformed;
    private long firstNs;
    private long lastNs;
    private boolean printed;

    /** For messages 0 ... count - 1. When the program is told to end, it says what has come. */
    Stamps(final int count) {
        this.count = count;
        seen = new BitSet(count);
        tenths = new int[count];
        Runtime.getRuntime().addShutdownHook(new Thread(this::print));
    }

    /** When message `number` is due; `rate` messages a second, 0 = now. */
    static long due(final long startNs, final long number, final long rate) {
        return rate == 0 ? System.nanoTime() : startNs + number * (1_000_000_000L / rate);
    }

    static void await(final long dueNs) {
        for (long left = dueNs - System.nanoTime(); left > 0; left = dueNs - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    synchronized void take(final long number, final long dueNs) {
        final long now = System.nanoTime();
        if (number >= WARM_UP || printed) {
            return;
        }
        if (number < 0 || number >= count || dueNs > now) {
            malformed++;
        } else if (seen.get((int) number)) {
            again++;
        } else {
            seen.set((int) number);
            tenths[received++] = (int) Math.min(Integer.MAX_VALUE, (now - dueNs) / 100);
            firstNs = firstNs == 0 ? dueNs : firstNs;
            lastNs = now;
            if (received == count) {
                print();
            }
        }
    }

    private synchronized void print() {
        if (printed) {
            return;
        }
        printed = true;
        Arrays.sort(tenths, 0, received);
        System.out.printf(
            Locale.ROOT,
            "{\"received\": %d, \"again\": %d, \"malformed\": %d, \"first_ns\": %d, \"last_ns\": %d, "
                + "\"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}%n",
            received, again, malformed, firstNs, lastNs, share(0.5), share(0.9), share(0.99), share(1));
        System.out.flush();
    }

    private double share(final double part) {
        return received == 0 ? 0 : tenths[(int) Math.min(received - 1, (long) (part * received))] / 10.0;
    }

    static void sent(final long count, final long startNs) {
        System.out.printf(
            Locale.ROOT, "{\"sent\": %d, \"first_ns\": %d, \"last_ns\": %d}%n", count, startNs, System.nanoTime());
        System.out.flush();
    }
}
