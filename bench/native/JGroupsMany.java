import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.util.MessageBatch;

/**
 * Messages in many groups at once by JGroups: the counterpart of many_groups.c. Each group is a channel with a multicast
 * address of its own; channels are joined by the first member before the others come.
 *
 * <pre>
 *   JGroupsMany receive ADDRESS GROUPS MEMBERS
 *   JGroupsMany send ADDRESS GROUPS MEMBERS BYTES SECONDS
 * </pre>
 */
public final class JGroupsMany {
    private static final String STACK = """
        <config xmlns="urn:org:jgroups">
          <UDP bind_addr="%s" mcast_addr="239.192.%d.%d" mcast_port="45588" ip_ttl="8" mcast_recv_buf_size="4m"
               ucast_recv_buf_size="1m" mcast_send_buf_size="1m" ucast_send_buf_size="1m" bundler.max_size="1400"
               thread_pool.min_threads="0" thread_pool.max_threads="8" diag.enabled="false"/>
          <PING/>
          <FD_ALL3 timeout="120000" interval="24000"/>
          <pbcast.NAKACK2 xmit_interval="100"/>
          <UNICAST3 xmit_interval="100"/>
          <pbcast.STABLE desired_avg_gossip="50000" max_bytes="4M"/>
          <pbcast.GMS print_local_addr="false" join_timeout="3000"/>
          <MFC max_credits="2M" min_threshold="0.4"/>
          <FRAG2 frag_size="1200"/>
        </config>
        """;

    /** Each waits three seconds for members that are not there: eight at once make that a minute and a half for 256. */
    private static final int JOIN_AT_ONCE = 32;
    private static final AtomicLong MESSAGES = new AtomicLong();
    private static volatile long firstNs;
    private static volatile long lastNs;

    private JGroupsMany() {
    }

    private static final class Taker implements Receiver {
        @Override
        public void receive(final Message message) {
            count(1);
        }

        @Override
        public void receive(final MessageBatch batch) {
            count(batch.size());
        }

        private static void count(final int messages) {
            lastNs = System.nanoTime();
            if (firstNs == 0) {
                firstNs = lastNs;
            }
            MESSAGES.addAndGet(messages);
        }
    }

    private static JChannel join(final String address, final int group) throws Exception {
        final String stack = STACK.formatted(address, 100 + group / 250, 1 + group % 250);
        final JChannel channel = new JChannel(new ByteArrayInputStream(stack.getBytes(StandardCharsets.UTF_8)));
        channel.setDiscardOwnMessages(true);
        channel.setReceiver(new Taker());
        channel.connect("group-" + group);
        return channel;
    }

    private static void tell() {
        System.out.printf(
            Locale.ROOT, "{\"messages\": %d, \"lost\": 0, \"first_ns\": %d, \"last_ns\": %d}%n",
            MESSAGES.get(), firstNs, lastNs);
        System.out.flush();
    }

    public static void main(final String[] words) throws Exception {
        // A word of each of 256 channels is more than the pipe holds that is read when all is over.
        Logger.getLogger("").setLevel(Level.SEVERE);
        final int groups = Integer.parseInt(words[2]);
        final int members = Integer.parseInt(words[3]);
        final JChannel[] channels = new JChannel[groups];
        final CountDownLatch joined = new CountDownLatch(groups);
        final ExecutorService pool = Executors.newFixedThreadPool(JOIN_AT_ONCE);
        for (int i = 0; i < groups; i++) {
            final int group = i;
            pool.execute(() -> {
                try {
                    channels[group] = join(words[1], group);
                    joined.countDown();
                } catch (final Exception error) {
                    System.err.println(error);
                    System.exit(1);
                }
            });
        }
        joined.await();
        pool.shutdown();
        System.out.println("joined");
        System.out.flush();
        for (final JChannel channel : channels) {
            while (channel.getView().size() < members) {
                Thread.sleep(5);
            }
        }
        System.out.println("ready");
        System.out.flush();
        System.in.read();
        if (words[0].equals("send")) {
            final byte[] bytes = new byte[Integer.parseInt(words[4])];
            firstNs = System.nanoTime();
            final long end = firstNs + (long) (Double.parseDouble(words[5]) * 1e9);
            for (int i = 0; (lastNs = System.nanoTime()) < end; i = (i + 1) % groups) {
                channels[i].send(new BytesMessage(null, bytes));
                MESSAGES.incrementAndGet();
            }
            tell();
        }
        while (System.in.read() >= 0) {
            tell();
        }
        Runtime.getRuntime().halt(0);
    }
}
