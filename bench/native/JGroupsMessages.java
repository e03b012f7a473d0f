import java.io.ByteArrayInputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.BytesMessage;
import org.jgroups.Receiver;
import org.jgroups.util.MessageBatch;

/**
 * Messages to several hosts by JGroups.
 *
 * <pre>
 *   JGroupsMessages receive ADDRESS XMIT_MS BUNDLE COUNT MEMBERS
 *   JGroupsMessages send ADDRESS XMIT_MS BUNDLE COUNT MEMBERS BYTES RATE GO
 * </pre>
 *
 * XMIT_MS: time between two requests for what is missing; BUNDLE: most bytes in a datagram; MEMBERS: of the group, to be
 * waited for.
 */
public final class JGroupsMessages {
    private static final String STACK = """
        <config xmlns="urn:org:jgroups">
          <UDP bind_addr="%s" mcast_addr="239.192.4.5" mcast_port="45588" ip_ttl="1" mcast_recv_buf_size="16m"
               ucast_recv_buf_size="16m" mcast_send_buf_size="2m" ucast_send_buf_size="2m" bundler.max_size="%s"
               thread_pool.min_threads="0" thread_pool.max_threads="200"/>
          <PING/>
          <FD_ALL3 timeout="40000" interval="8000"/>
          <VERIFY_SUSPECT2 timeout="1500"/>
          <pbcast.NAKACK2 xmit_interval="%s"/>
          <UNICAST3 xmit_interval="%2$s"/>
          <pbcast.STABLE desired_avg_gossip="50000" max_bytes="4M"/>
          <pbcast.GMS print_local_addr="false" join_timeout="1000"/>
          <MFC max_credits="4M" min_threshold="0.4"/>
          <UFC max_credits="4M" min_threshold="0.4"/>
          <FRAG2 frag_size="%s"/>
        </config>
        """;
    private static final int WARM_UP = 20_000;

    private JGroupsMessages() {
    }

    private static byte[] stamped(final int bytes, final long number, final long dueNs) {
        final byte[] message = new byte[bytes];
        ByteBuffer.wrap(message).order(Stamps.ORDER).putLong(number).putLong(dueNs);
        return message;
    }

    private static void send(final JChannel channel, final String[] words) throws Exception {
        final int bytes = Integer.parseInt(words[6]);
        final long count = Long.parseLong(words[4]);
        final long rate = Long.parseLong(words[7]);
        // Java compiles what it will need, as it has in a program that runs all day.
        for (int i = 0; i < WARM_UP; i++) {
            channel.send(new BytesMessage(null, stamped(bytes, Stamps.WARM_UP, System.nanoTime())));
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
            channel.send(new BytesMessage(null, stamped(bytes, i, due)));
        }
        Stamps.sent(count, start);
    }

    private static final class Taker implements Receiver {
        private final Stamps stamps;

        Taker(final Stamps stamps) {
            this.stamps = stamps;
        }

        @Override
        public void receive(final Message message) {
            final ByteBuffer bytes =
                ByteBuffer.wrap(message.getArray(), message.getOffset(), message.getLength()).order(Stamps.ORDER);
            stamps.take(bytes.getLong(), bytes.getLong());
        }

        @Override
        public void receive(final MessageBatch batch) {
            for (final Message message : batch) {
                receive(message);
            }
        }
    }

    public static void main(final String[] words) throws Exception {
        final int bundle = Integer.parseInt(words[3]);
        final String stack = STACK.formatted(words[1], words[3], words[2], Integer.toString(Math.max(1100, bundle - 200)));
        final JChannel channel = new JChannel(new ByteArrayInputStream(stack.getBytes(StandardCharsets.UTF_8)));
        final boolean sends = words[0].equals("send");
        channel.setDiscardOwnMessages(true);
        if (!sends) {
            channel.setReceiver(new Taker(new Stamps(Integer.parseInt(words[4]))));
        }
        channel.connect("bench");
        while (channel.getView().size() < Integer.parseInt(words[5])) {
            Thread.sleep(1);
        }
        if (sends) {
            send(channel, words);
        } else {
            System.out.println("ready");
        }
        Thread.sleep(Long.MAX_VALUE); // repairs, until it is ended
    }
}
