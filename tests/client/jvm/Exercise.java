import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.rostrum.client.Agent;
import org.rostrum.client.CreatedFile;
import org.rostrum.client.DataId;
import org.rostrum.client.Group;
import org.rostrum.client.ReadObject;
import org.rostrum.client.RostrumException;
import org.rostrum.client.Send;
import org.rostrum.client.SendOptions;
import org.rostrum.client.StreamReader;
import org.rostrum.client.StreamWriter;
import org.rostrum.client.Values;

/** Uses the client as its arguments say, and prints what came of it: SOCKET APP COMMAND ... */
public final class Exercise {
    private static final Duration WAIT = Duration.ofSeconds(60);

    private Exercise() {}

    static void check(boolean right, String what) {
        if (!right) {
            throw new IllegalStateException("not so: " + what);
        }
    }

    static byte[] content(long seed, int bytes) {
        byte[] data = new byte[bytes];
        new Random(seed).nextBytes(data);
        return data;
    }

    static String digest(ByteBuffer data) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        digest.update(data);
        return HexFormat.of().formatHex(digest.digest());
    }

    interface Work {
        void run() throws Exception;
    }

    /** The code of the error that must come. */
    static void fails(RostrumException.Code code, String words, Work work) throws Exception {
        try {
            work.run();
        } catch (RostrumException error) {
            boolean same = error.code() == code && error.getMessage().contains(words);
            check(same, code + " with " + words + ", but " + error.code() + ": " + error.getMessage());
            return;
        }
        check(false, "no error where " + code + " should be");
    }

    public static void main(String[] arguments) throws Exception {
        Path socket = Path.of(arguments[0]);
        UUID app = UUID.fromString(arguments[1]);
        String[] rest = Arrays.copyOfRange(arguments, 3, arguments.length);
        if (arguments[2].equals("garbage")) {
            garbage(socket, app, Integer.parseInt(rest[0]));
            return;
        }
        try (Agent agent = Agent.connect(socket, app, "exercise")) {
            check(agent.app().equals(app) && !agent.closed(), "the connection");
            switch (arguments[2]) {
                case "objects" -> objects(agent, List.of(rest));
                case "read" -> {
                    try (ReadObject object = agent.read(Long.parseUnsignedLong(rest[0]), WAIT)) {
                        System.out.println(object.size() + " " + digest(object.map()) + " " + object.digest());
                    }
                }
                case "fetch" -> {
                    try (ReadObject object = agent.fetch(Long.parseUnsignedLong(rest[0]), List.of(rest[1]), WAIT)) {
                        System.out.println(object.size() + " " + digest(object.map()));
                    }
                }
                case "cancel" -> cancel(agent, List.of(rest));
                case "ephemeral" -> ephemeral(agent);
                case "stream-send" -> streamSend(agent, Integer.parseInt(rest[0]), List.of(rest).subList(1, rest.length));
                case "stream-receive" -> streamReceive(agent);
                case "publish" -> publish(agent);
                case "subscribe" -> subscribe(agent);
                default -> throw new IllegalArgumentException(arguments[2]);
            }
        }
    }

    /** Table I, from the sender's side; receivers are `names`. */
    static void objects(Agent agent, List<String> names) throws Exception {
        byte[] data = content(1, 3_000_001);
        long before = agent.status().storeUsed();
        try (CreatedFile dropped = agent.create(5_000_000)) {
            check(dropped.map().remaining() == 5_000_000, "all of a created file is mapped");
            check(agent.status().storeUsed() > before, "it is on the quota");
        }
        check(agent.status().storeUsed() == before, "a created file that was dropped is on the quota no more");
        fails(RostrumException.Code.NO_ROOM, "quota", () -> agent.create(1L << 40));
        fails(RostrumException.Code.INVALID, "-1", () -> agent.create(-1));
        fails(RostrumException.Code.UNKNOWN, "", () -> agent.read(99, null));
        fails(RostrumException.Code.TIMEOUT, "", () -> agent.read(99, Duration.ofMillis(50)));

        AtomicLong told = new AtomicLong();
        CountDownLatch over = new CountDownLatch(1);
        SendOptions how = SendOptions.telling(event -> {
            if (event.kind().equals("progress")) {
                told.set(event.size());
            }
            if (event.subject().equals("done")) {
                over.countDown();
            }
        });
        CreatedFile file = agent.create(data.length);
        file.map().put(data);
        Values.SendResult result = agent.send(7, names, how, file).await().orThrow();
        check(over.await(1, TimeUnit.SECONDS), "events come before the result");
        check(result.size() == data.length && result.receivers().size() == names.size(), result.toString());
        check(told.get() == 0 || told.get() == data.length, "progress tells the size");
        System.out.println(digest(ByteBuffer.wrap(data)));

        agent.add(8, ByteBuffer.wrap(data));
        fails(RostrumException.Code.EXISTS, "8", () -> agent.add(8, ByteBuffer.wrap(data)));
        agent.name(8, "eight");
        agent.pin(8, true);
        try (ReadObject own = agent.read(8, null)) {
            check(own.map().equals(ByteBuffer.wrap(data)), "one's own object");
            check(own.map(1, 2).equals(ByteBuffer.wrap(data, 1, 2)), "a part of it");
            fails(RostrumException.Code.INVALID, "mapped", () -> own.map(1, data.length));
            agent.delete(8);
            check(own.map().equals(ByteBuffer.wrap(data)), "what is read stays when it is deleted");
        }
        agent.add(9, ByteBuffer.allocate(0));
        agent.send(9, names).await().orThrow();
        Path source = Files.createTempFile("rostrum", ".object");
        Files.write(source, data);
        agent.add(DataId.of("from a file"), source);
        Files.delete(source);
        try (ReadObject own = agent.read(DataId.of("from a file"), null)) {
            check(own.map().equals(ByteBuffer.wrap(data)), "a file's copy");
        }
        fails(RostrumException.Code.UNKNOWN, "add it first", () -> agent.send(1234, names).await());
        fails(RostrumException.Code.INVALID, "twice", () -> agent.send(7, List.of("x", "x")).await());
        check(agent.status().objects().stream().anyMatch(one -> one.dataId() == 7 && one.complete()), "status");
        CreatedFile last = agent.create(4096);
        fails(RostrumException.Code.EXISTS, "7", () -> agent.send(7, names, SendOptions.USUAL, last).await());
    }

    /** Leaves an object, and ends as one that is killed does. */
    static void ephemeral(Agent agent) throws Exception {
        agent.ephemeral();
        agent.add(6, ByteBuffer.wrap(content(6, 1000)));
        System.out.println("added");
        Runtime.getRuntime().halt(0);
    }

    /** A send that never ends by itself, as the manager says nothing; one that waits for it is interrupted. */
    static void cancel(Agent agent, List<String> names) throws Exception {
        agent.add(5, ByteBuffer.wrap(content(2, 1000)));
        Send send = agent.send(5, names);
        fails(RostrumException.Code.TIMEOUT, "no answer", () -> send.await(Duration.ofMillis(20)));
        Thread.currentThread().interrupt();
        fails(RostrumException.Code.CANCELLED, "interrupted", send::await);
        check(Thread.interrupted(), "the thread stays interrupted");
        send.cancel();
        check(!send.await().ok() && send.await().cause().contains("cancelled"), "the result says so");
        check(send.done() && !agent.closed(), "the connection lives on");
        System.out.println("cancelled");
    }

    static void streamSend(Agent agent, int bytes, List<String> names) throws Exception {
        byte[] data = content(3, bytes);
        try (StreamWriter out = agent.streamSend(70, names)) {
            for (int at = 0; at < data.length; at += 65_537) {
                out.write(data, at, Math.min(65_537, data.length - at));
            }
            out.finish(WAIT).orThrow();
        }
        System.out.println(bytes + " " + digest(ByteBuffer.wrap(data)));
        try (StreamWriter out = agent.streamSend(71, names)) {
            out.write(1);
        }
    }

    static void streamReceive(Agent agent) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        long bytes = 0;
        try (InputStream in = agent.streamReceive(70, WAIT)) {
            byte[] piece = new byte[100_000];
            for (int got = in.read(piece); got >= 0; got = in.read(piece)) {
                digest.update(piece, 0, got);
                bytes += got;
            }
            check(in.read(piece) == -1, "the end stays");
        }
        System.out.println(bytes + " " + HexFormat.of().formatHex(digest.digest()));
        try (StreamReader in = agent.streamReceive(71, WAIT)) {
            in.readAllBytes();
            check(false, "a stream that was not finished is whole");
        } catch (RostrumException error) {
            System.out.println("failed: " + error.getMessage());
        }
    }

    static void publish(Agent agent) throws Exception {
        try (Group group = agent.publisher("ticks", "plain", "none");
                Group back = agent.join("back", "plain", "none")) {
            fails(RostrumException.Code.INVALID, "too long", () -> group.publish(new byte[group.messageBytes() + 1]));
            // Until the subscriber says that it hears: multicast keeps nothing for who comes later.
            for (int i = 0; i < 600; i++) {
                group.publish("ready?".getBytes(StandardCharsets.UTF_8));
                try {
                    System.out.println(new String(back.next(Duration.ofMillis(100)).data(), StandardCharsets.UTF_8));
                    return;
                } catch (RostrumException none) {
                    check(none.code() == RostrumException.Code.TIMEOUT, none.getMessage());
                }
            }
        }
        check(false, "an answer came");
    }

    static void subscribe(Agent agent) throws Exception {
        try (Group group = agent.join("ticks", "plain", "none");
                Group back = agent.publisher("back", "plain", "none")) {
            check(group.protocol().equals("plain"), group.protocol());
            try {
                agent.join("other", null, "total").close();
                check(false, "an order without a protocol was taken for none");
            } catch (RostrumException refused) {
                check(refused.getMessage().contains("go with its protocol"), refused.getMessage());
            }
            Values.Message message = group.next(WAIT);
            System.out.println(message.sender() + ": " + new String(message.data(), StandardCharsets.UTF_8));
            byte[] answer = ("from " + agent.server()).getBytes(StandardCharsets.UTF_8);
            for (int i = 0; i < 50; i++) {
                back.publish(answer);
                Thread.sleep(20);
            }
        }
    }

    /** What answers is no agent: every call ends with words. */
    static void garbage(Path socket, UUID app, int times) throws IOException {
        for (int i = 0; i < times; i++) {
            try (Agent agent = Agent.connect(socket, app, "exercise")) {
                try (ReadObject object = agent.read(7, Duration.ofMillis(1))) {
                    System.out.println(i + " an object of " + object.size() + " bytes");
                }
            } catch (RostrumException error) {
                System.out.println(i + " " + error.code() + ": " + error.getMessage());
            }
        }
    }
}
