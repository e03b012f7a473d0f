package org.rostrum.client;

import java.io.EOFException;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/**
 * One connection to the agent: requests with tags, answers to whoever waits. Threads of its own read and write, since a
 * program's thread that is interrupted within either would close the channel (java.nio.channels.InterruptibleChannel).
 */
final class Connection {
    private static final Duration ATTACH_BOUND = Duration.ofSeconds(10);
    private static final int EVENTS_MAX = 4096; // that wait for a slow callback; later ones are dropped
    private static final ByteBuffer END = ByteBuffer.allocate(0);

    private final Path path;
    private final SocketChannel channel;
    private final AtomicLong tags = new AtomicLong();
    private final Map<Long, Call> calls = new ConcurrentHashMap<>();
    private final LinkedBlockingQueue<ByteBuffer> out = new LinkedBlockingQueue<>();
    private final LinkedBlockingQueue<Runnable> told = new LinkedBlockingQueue<>();
    private volatile RostrumException ended;

    /** A request under way. */
    final class Call {
        final long tag;
        final String what;
        private final Consumer<Values.Event> onEvent;
        private final List<Object> rows = new ArrayList<>();
        private Wire.Answer answer;
        private RostrumException error;

        Call(long tag, String what, Consumer<Values.Event> onEvent) {
            this.tag = tag;
            this.what = what;
            this.onEvent = onEvent;
        }

        private synchronized void settle(Wire.Answer given, RostrumException failed) {
            if (answer == null && error == null) {
                answer = given;
                error = failed;
                notifyAll();
            }
        }

        private synchronized void add(List<?> more) {
            rows.addAll(more);
        }

        synchronized List<Object> rows() {
            return List.copyOf(rows);
        }

        synchronized boolean done() {
            return answer != null || error != null;
        }

        /** The final answer; `bound` null: as long as the agent lives. */
        synchronized Wire.Answer await(Duration bound) throws RostrumException {
            long until = bound == null ? 0 : System.nanoTime() + bound.toNanos();
            try {
                while (!done()) {
                    long left = bound == null ? 0 : (until - System.nanoTime() + 999_999) / 1_000_000;
                    if (bound != null && left <= 0) {
                        throw new RostrumException(
                                RostrumException.Code.TIMEOUT, what + ": no answer of the agent within " + text(bound));
                    }
                    wait(left);
                }
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new RostrumException(
                        RostrumException.Code.CANCELLED, what + ": the thread that waited was interrupted");
            }
            if (error != null) {
                throw new RostrumException(error.code(), error.getMessage(), error);
            }
            return answer;
        }
    }

    static String text(Duration time) {
        return time.toMillis() / 1000.0 + " s";
    }

    Connection(Path path) throws RostrumException {
        this.path = path;
        this.channel = open(path);
        start("rostrum-agent", this::receive);
        start("rostrum-requests", this::write);
    }

    private static void start(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    private static SocketChannel open(Path path) throws RostrumException {
        Path framed = Path.of(path + ".framed");
        try {
            return SocketChannel.open(UnixDomainSocketAddress.of(framed));
        } catch (IOException | IllegalArgumentException | UnsupportedOperationException error) {
            throw new RostrumException(
                    RostrumException.Code.UNAVAILABLE,
                    "no agent answers at " + framed + " (is a rostrumd running there, and as new as this client?): "
                            + error.getMessage(),
                    error);
        }
    }

    boolean closed() {
        return ended != null;
    }

    /**
     * Sends a request.
     *
     * @param what names it in errors
     * @param place where the descriptor is that goes with it; "": none
     */
    Call start(int type, Wire.Body body, String what, String place, Consumer<Values.Event> onEvent)
            throws RostrumException {
        Call call = new Call(tags.incrementAndGet(), what, onEvent);
        ByteBuffer frame = Wire.frame(type, call.tag, body, place);
        calls.put(call.tag, call);
        RostrumException now = ended;
        if (now != null) {
            calls.remove(call.tag);
            throw new RostrumException(now.code(), now.getMessage(), now);
        }
        if (onEvent != null) {
            tellEvents();
        }
        out.add(frame);
        return call;
    }

    Wire.Answer ask(int type, Wire.Body body, String what, Duration bound) throws RostrumException {
        Call call = start(type, body, what, "", null);
        try {
            return call.await(bound);
        } finally {
            forget(call);
        }
    }

    void forget(Call call) {
        calls.remove(call.tag);
    }

    /** A new connection that a request can name by its key, to be a stream's or a group's. */
    record Attached(SocketChannel channel, String key) {}

    Attached attach() throws RostrumException {
        byte[] random = new byte[16];
        new SecureRandom().nextBytes(random);
        String key = HexFormat.of().formatHex(random);
        SocketChannel other = open(path);
        // A read that blocks for ever would hang the program: the answer is due at once.
        Thread watch = new Thread(() -> {
            try {
                Thread.sleep(ATTACH_BOUND.toMillis());
                other.close();
            } catch (InterruptedException | IOException over) {
                Thread.currentThread().interrupt();
            }
        });
        watch.setDaemon(true);
        watch.start();
        try {
            writeAll(other, Wire.attach(key));
            Wire.Answer answer = read(other);
            if (answer.value() instanceof RostrumException error) {
                throw error;
            }
            if (answer.type() != Wire.DONE) {
                throw new RostrumException(
                        RostrumException.Code.PROTOCOL, "the agent answered an attachment by " + answer.type());
            }
            return new Attached(other, key);
        } catch (IOException error) {
            close(other);
            throw error instanceof RostrumException known
                    ? known
                    : new RostrumException(
                            RostrumException.Code.UNAVAILABLE, "the agent at " + path + " went away", error);
        } finally {
            watch.interrupt();
        }
    }

    private static void writeAll(SocketChannel to, ByteBuffer data) throws IOException {
        while (data.hasRemaining()) {
            to.write(data);
        }
    }

    private static ByteBuffer readAll(SocketChannel from, int bytes) throws IOException {
        ByteBuffer data = ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
        while (data.hasRemaining()) {
            if (from.read(data) < 0) {
                throw new EOFException();
            }
        }
        return data.flip();
    }

    private static Wire.Answer read(SocketChannel from) throws IOException {
        ByteBuffer head = readAll(from, 8);
        int length = head.getInt(), text = head.getInt();
        if (length < 0 || length > Wire.MESSAGE_MAX || text < 0 || text > Wire.TEXT_MAX) {
            throw new RostrumException(
                    RostrumException.Code.PROTOCOL, "the agent sent a frame of " + Integer.toUnsignedString(length)
                            + " bytes; is it an agent's framed socket?");
        }
        byte[] message = readAll(from, length).array();
        return Wire.parse(message, new String(readAll(from, text).array(), StandardCharsets.UTF_8));
    }

    private void write() {
        try {
            for (ByteBuffer frame = out.take(); frame != END; frame = out.take()) {
                writeAll(channel, frame);
            }
        } catch (IOException | InterruptedException error) {
            // The reader sees the end, after what the agent had said before it.
        }
    }

    private void receive() {
        RostrumException reason;
        try {
            while (true) {
                deliver(read(channel));
            }
        } catch (RostrumException error) {
            reason = error;
        } catch (IOException error) {
            reason = new RostrumException(
                    RostrumException.Code.UNAVAILABLE, "the agent at " + path + " went away", error);
        } catch (RuntimeException error) {
            reason = new RostrumException(
                    RostrumException.Code.PROTOCOL, "the agent sent what cannot be understood: " + error, error);
        }
        ended = reason;
        out.add(END);
        told.add(() -> {});
        close(channel);
        for (Call call : List.copyOf(calls.values())) {
            call.settle(null, reason);
        }
        calls.clear();
    }

    private void deliver(Wire.Answer answer) throws RostrumException {
        if (answer.type() == Wire.ERROR && answer.tag() == 0) {
            throw (RostrumException) answer.value(); // about the connection itself
        }
        Call call = calls.get(answer.tag());
        if (call == null) {
            return; // whoever asked has given up
        }
        if (answer.value() instanceof Values.Event event) {
            if (call.onEvent != null && told.size() < EVENTS_MAX) {
                told.add(() -> call.onEvent.accept(event));
            }
        } else if (!answer.last()) {
            call.add((List<?>) answer.value());
        } else {
            Runnable settle = () -> {
                if (answer.value() instanceof RostrumException error) {
                    call.settle(null, error);
                } else {
                    call.settle(answer, null);
                }
            };
            if (call.onEvent == null || call.done()) {
                settle.run();
            } else {
                told.add(settle); // when the callback has had what came before
            }
        }
    }

    private boolean telling;

    private synchronized void tellEvents() {
        if (!telling) {
            telling = true;
            start("rostrum-events", this::tell);
        }
    }

    /** Calls callbacks: one may ask the agent, be slow or fail, and only its own call waits for it. */
    private void tell() {
        while (ended == null || !told.isEmpty()) {
            try {
                Runnable job = told.poll(1, TimeUnit.SECONDS);
                if (job != null) {
                    job.run();
                }
            } catch (InterruptedException over) {
                return;
            } catch (RuntimeException error) {
                Thread current = Thread.currentThread();
                Thread.UncaughtExceptionHandler handler = Thread.getDefaultUncaughtExceptionHandler();
                (handler != null ? handler : current.getUncaughtExceptionHandler()).uncaughtException(current, error);
            }
        }
    }

    /** Calls under way fail. */
    void close() {
        close(channel);
    }

    static void close(SocketChannel one) {
        try {
            one.close();
        } catch (IOException ignored) {
            // it is closed all the same
        }
    }
}
