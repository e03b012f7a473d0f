package org.rostrum.client;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A message group this program is in. One thread may publish while another takes messages. */
public final class Group implements AutoCloseable {
    private static final int HEAD = 8;
    private static final int ROOM = 1 << 18;
    private static final Duration SEND_BOUND = Duration.ofSeconds(10);
    private static final List<String> REASONS = List.of(
            "lost in the network and not recovered in time",
            "lost in the network, and too much came after it",
            "this subscriber was too slow",
            "parts of a large message were lost",
            "its sender was restarted");

    private final String name;
    private final Wire.Joined terms;
    private final SocketChannel channel;
    private final Selector reads;
    private final Selector writes;
    private final Map<Integer, String> senders = new HashMap<>();
    private ByteBuffer in;
    private RostrumException ended;

    Group(String name, Wire.Joined terms, SocketChannel channel) throws RostrumException {
        this.name = name;
        this.terms = terms;
        this.channel = channel;
        this.in = ByteBuffer.allocate(terms.messageBytes() + ROOM).order(ByteOrder.LITTLE_ENDIAN).flip();
        try {
            channel.configureBlocking(false);
            reads = Selector.open();
            writes = Selector.open();
            channel.register(reads, SelectionKey.OP_READ);
            channel.register(writes, SelectionKey.OP_WRITE);
        } catch (IOException error) {
            throw new RostrumException(RostrumException.Code.IO, "joining " + name + ": " + error, error);
        }
    }

    /**
     * The longest message.
     *
     * @return bytes
     */
    public int messageBytes() {
        return terms.messageBytes();
    }

    /**
     * How messages go.
     *
     * @return the protocol: plain, ricochet, ...
     */
    public String protocol() {
        return terms.protocol();
    }

    /**
     * Publishes one message. Waits while the network or receivers take no more.
     *
     * @param message its bytes
     * @throws RostrumException INVALID: too long; TIMEOUT: no room for 10 s; UNAVAILABLE: the group or the agent ended
     */
    public void publish(byte[] message) throws RostrumException {
        publishAll(List.of(message));
    }

    /**
     * Publishes many at once, which is cheaper.
     *
     * @param messages in this order
     * @throws RostrumException as {@link #publish}
     */
    public synchronized void publishAll(List<byte[]> messages) throws RostrumException {
        int bytes = 0;
        for (byte[] one : messages) {
            if (one.length > terms.messageBytes()) {
                throw new RostrumException(
                        RostrumException.Code.INVALID,
                        one.length + " bytes are too long; " + name + " takes " + terms.messageBytes());
            }
            bytes = Math.addExact(bytes, HEAD + one.length);
        }
        ByteBuffer out = ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
        for (byte[] one : messages) {
            out.putInt(one.length).put((byte) 1).put((byte) 0).putShort((short) 0).put(one);
        }
        out.flip();
        try {
            while (out.hasRemaining()) {
                if (channel.write(out) == 0 && !ready(writes, SEND_BOUND)) {
                    throw new RostrumException(
                            RostrumException.Code.TIMEOUT,
                            "the agent had no room for 10 s: the network or receivers take no more");
                }
            }
        } catch (RostrumException error) {
            throw error;
        } catch (IOException error) {
            throw new RostrumException(
                    RostrumException.Code.UNAVAILABLE,
                    "the agent takes no more messages of " + name + " (it ended, or the group was deleted): " + error,
                    error);
        }
    }

    /**
     * The next message, or word of losses.
     *
     * @param bound how long to wait
     * @return it
     * @throws RostrumException TIMEOUT: none came; else there will be no more, and the text says why
     */
    public Values.Message next(Duration bound) throws RostrumException {
        long until = System.nanoTime() + bound.toNanos();
        while (true) {
            Values.Message message;
            while ((message = take()) == null && ended == null && whole()) {
                continue;
            }
            if (message != null) {
                return message;
            }
            if (ended != null) {
                throw ended;
            }
            try {
                Duration left = Duration.ofNanos(until - System.nanoTime());
                if (fill() == 0 && (left.isNegative() || !ready(reads, left)) && fill() == 0) {
                    throw new RostrumException(
                            RostrumException.Code.TIMEOUT, "no message of " + name + " within " + Connection.text(bound));
                }
            } catch (RostrumException error) {
                throw error;
            } catch (IOException error) {
                ended = new RostrumException(RostrumException.Code.UNAVAILABLE, name + ": the agent went away", error);
            }
        }
    }

    private static boolean ready(Selector selector, Duration bound) throws IOException {
        selector.select(Math.max(1, bound.toMillis()));
        boolean ready = !selector.selectedKeys().isEmpty();
        selector.selectedKeys().clear();
        return ready;
    }

    private int fill() throws IOException {
        in.compact();
        int got;
        try {
            got = in.hasRemaining() ? channel.read(in) : 0;
        } finally {
            in.flip();
        }
        if (got < 0) {
            throw new EOFException();
        }
        return got;
    }

    private boolean whole() {
        return in.remaining() >= HEAD && in.remaining() - HEAD >= Integer.toUnsignedLong(in.getInt(in.position()));
    }

    private RostrumException malformed() {
        return new RostrumException(RostrumException.Code.PROTOCOL, "the agent sent a malformed frame for " + name);
    }

    /** One frame; null if there is none whole, or it is no message. */
    private Values.Message take() {
        if (!whole()) {
            if (in.remaining() >= HEAD
                    && Integer.toUnsignedLong(in.getInt(in.position())) > terms.messageBytes() + (long) ROOM - HEAD) {
                ended = malformed();
            }
            return null;
        }
        int length = in.getInt(), kind = in.get(), flags = in.get() & 0xff;
        in.getShort();
        ByteBuffer body = in.slice(in.position(), length).order(ByteOrder.LITTLE_ENDIAN);
        in.position(in.position() + length);
        try {
            switch (kind) {
                case 2 -> {
                    String sender = senders.getOrDefault(body.getInt(), "");
                    int part = body.getInt();
                    long sn = body.getLong();
                    return new Values.Message(sender, sn, part, rest(body), 0, "");
                }
                case 3 -> senders.put(body.getInt(), new String(rest(body), StandardCharsets.UTF_8));
                case 4 -> {
                    String sender = senders.getOrDefault(body.getInt(), "");
                    body.getInt();
                    String why = flags < REASONS.size() ? REASONS.get(flags) : "lost";
                    return new Values.Message(sender, body.getLong(), 0, null, body.getLong(), why);
                }
                case 5 -> {
                    int code = body.getShort() & 0xffff;
                    String text = new String(rest(body), StandardCharsets.UTF_8);
                    // TIMEOUT would look as if messages could still come.
                    int end = code == 0 || code == 1 + RostrumException.Code.TIMEOUT.ordinal() ? 11 : code;
                    ended = RostrumException.of(end, text);
                }
                default -> ended = malformed();
            }
        } catch (java.nio.BufferUnderflowException error) {
            ended = malformed();
        }
        return null;
    }

    private static byte[] rest(ByteBuffer body) {
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return bytes;
    }

    /** Leaves the group. What was published still goes out. */
    @Override
    public void close() {
        Connection.close(channel);
        try {
            reads.close();
            writes.close();
        } catch (IOException ignored) {
            // they are closed all the same
        }
    }
}
