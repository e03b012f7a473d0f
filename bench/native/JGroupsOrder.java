import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;

/** One member of a group of JGroups with SEQUENCER, as order.c: JGroupsOrder ADDRESS MEMBERS BYTES. */
public final class JGroupsOrder {
    private static final String STACK = """
        <config xmlns="urn:org:jgroups">
          <UDP bind_addr="%s" mcast_addr="239.192.100.9" mcast_port="45599" ip_ttl="8" mcast_recv_buf_size="4m"
               ucast_recv_buf_size="4m" mcast_send_buf_size="1m" ucast_send_buf_size="1m" diag.enabled="false"/>
          <PING/>
          <FD_ALL3 timeout="120000" interval="24000"/>
          <pbcast.NAKACK2 xmit_interval="100"/>
          <UNICAST3 xmit_interval="100"/>
          <pbcast.STABLE desired_avg_gossip="50000" max_bytes="4M"/>
          <pbcast.GMS print_local_addr="false" join_timeout="1000"/>
          <UFC max_credits="2M" min_threshold="0.4"/>
          <MFC max_credits="2M" min_threshold="0.4"/>
          <SEQUENCER/>
          <FRAG2 frag_size="60000"/>
        </config>
        """;
    private static final int MOST = 1 << 20;
    private static final int[] LATE_US = new int[MOST];
    private static int members;
    private static volatile int phase;
    private static int ended;
    private static int late;
    private static long messages;
    private static long hash;
    private static long firstNs;
    private static long lastNs;
    private static volatile CountDownLatch over = new CountDownLatch(1);

    private JGroupsOrder() {
    }

    private static synchronized void take(final byte[] bytes, final int offset, final int length)
        throws InterruptedException {
        final ByteBuffer in = ByteBuffer.wrap(bytes, offset, length).order(ByteOrder.LITTLE_ENDIAN);
        final int last = in.getInt();
        final int of = in.getInt();
        while (of > phase) { // its sender was told of the phase before this member
            JGroupsOrder.class.wait();
        }
        if (of < phase) {
            return;
        }
        if (last != 0) {
            if (++ended == members) {
                over.countDown();
            }
            return;
        }
        final long at = in.getLong();
        final long now = System.nanoTime();
        hash = (hash ^ in.getLong()) * 0x100000001b3L;
        messages++;
        firstNs = firstNs == 0 ? now : firstNs;
        lastNs = now;
        if (late < MOST) {
            LATE_US[late++] = (int) ((now - at) / 1000);
        }
    }

    public static void main(final String[] words) throws Exception {
        members = Integer.parseInt(words[1]);
        final int size = Integer.parseInt(words[2]);
        final String stack = STACK.formatted(words[0]);
        final JChannel channel = new JChannel(new ByteArrayInputStream(stack.getBytes(StandardCharsets.UTF_8)));
        channel.setReceiver(new Receiver() {
            @Override
            public void receive(final Message message) {
                try {
                    take(message.getArray(), message.getOffset(), message.getLength());
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            }
        });
        channel.connect("order");
        System.out.println("view " + channel.getView().size()); // who starts the next one waits for it
        System.out.flush();
        while (channel.getView().size() < members) {
            Thread.sleep(5);
        }
        System.out.println("ready");
        System.out.flush();
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        long number = ProcessHandle.current().pid() << 40;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            final double rate = Double.parseDouble(line.split(" ")[0]);
            final double seconds = Double.parseDouble(line.split(" ")[1]);
            final double offset = Double.parseDouble(line.split(" ")[2]);
            synchronized (JGroupsOrder.class) {
                over = new CountDownLatch(1);
                messages = firstNs = lastNs = 0;
                ended = late = 0;
                hash = 0xcbf29ce484222325L;
                phase++;
                JGroupsOrder.class.notifyAll();
            }
            final long begin = System.nanoTime() + (long) (offset * 1e9);
            final long end = begin + (long) (seconds * 1e9);
            boolean last = false;
            for (long i = 0; !last; i++) {
                final long due = rate > 0 ? begin + (long) (i / rate * 1e9) : 0;
                while (System.nanoTime() < due && due < end) {
                    LockSupport.parkNanos(due - System.nanoTime());
                }
                final long now = System.nanoTime();
                last = now >= end || due >= end;
                final ByteBuffer out = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
                number += 1024;
                out.putInt(last ? 1 : 0).putInt(phase).putLong(now).putLong(number);
                channel.send(new BytesMessage(null, out.array()));
            }
            over.await();
            synchronized (JGroupsOrder.class) {
                final int[] sorted = Arrays.copyOf(LATE_US, late);
                Arrays.sort(sorted);
                System.out.printf(
                    Locale.ROOT, "{\"messages\": %d, \"first_ns\": %d, \"last_ns\": %d, \"p50_us\": %d, "
                    + "\"p99_us\": %d, \"hash\": \"%016x\"}%n", messages, firstNs, lastNs, late > 0 ? sorted[late / 2] : 0,
                    late > 0 ? sorted[(int) (late * 99L / 100)] : 0, hash);
                System.out.flush();
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
