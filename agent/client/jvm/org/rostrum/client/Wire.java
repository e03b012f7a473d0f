package org.rostrum.client;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.UUID;

/** Bytes of the application interface (docs/application-interface.md): requests out, answers in. */
final class Wire {
    static final int MESSAGE_MAX = 196608;
    static final int TEXT_MAX = 4200;
    private static final int HEADER = 16;
    private static final short MAGIC = 0x5241;
    private static final byte VERSION = 1;

    static final int REGISTER = 1, ADD = 3, CREATE = 4, DROP = 5, SEND = 6, READ = 7, DELETE = 8, STATUS = 9;
    static final int SUBSCRIBE = 10, UNSUBSCRIBE = 11, CANCEL = 12, STREAM_SEND = 14, STREAM_END = 15;
    static final int STREAM_RECEIVE = 16, JOIN = 17, FETCH = 18, NAME = 19, PIN = 20, LEAVE = 21, STREAM_JOIN = 22;
    static final int EPHEMERAL = 24;
    static final int DONE = 128, ERROR = 129, REGISTERED = 130, ADDED = 131, CREATED = 132, OBJECT = 133;
    static final int RECEIVERS = 134, SENT = 135, EVENT = 136, TRANSFERS = 137, OBJECTS = 138, STATE = 139;
    static final int GROUP = 140, GROUPS = 141, STREAMED = 142;

    private static final String[] STATES = {"waiting", "receiving", "done", "failed", "left"};
    private static final String[] PATHS = {"none", "circuit", "packet"};
    private static final String[] PROTOCOLS = {"auto", "republic", "rdcm", "wan"};
    private static final String[] KINDS = {"", "phase", "receiver", "progress", "log"};
    private static final String[] DIGESTS = {"", "xxh3-128-tree", "sha256-tree"};

    private Wire() {}

    /** Fields of a request. */
    static final class Body {
        private ByteBuffer data = ByteBuffer.allocate(256).order(ByteOrder.LITTLE_ENDIAN);

        private ByteBuffer room(int bytes) {
            if (data.remaining() < bytes) {
                ByteBuffer more = ByteBuffer.allocate(2 * data.capacity() + bytes).order(ByteOrder.LITTLE_ENDIAN);
                data = more.put(data.flip());
            }
            return data;
        }

        Body u16(int value) {
            room(2).putShort((short) value);
            return this;
        }

        Body u32(long value) {
            room(4).putInt((int) value);
            return this;
        }

        Body u64(long value) {
            room(8).putLong(value);
            return this;
        }

        Body app(UUID app) {
            room(16).order(ByteOrder.BIG_ENDIAN);
            data.putLong(app.getMostSignificantBits()).putLong(app.getLeastSignificantBits());
            data.order(ByteOrder.LITTLE_ENDIAN);
            return this;
        }

        /** A text that may be empty. */
        Body option(String text) throws RostrumException {
            byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
            if (bytes.length > 255) {
                throw new RostrumException(RostrumException.Code.INVALID, "a name has 255 bytes at most: " + text);
            }
            room(1 + bytes.length).put((byte) bytes.length).put(bytes);
            return this;
        }

        Body text(String text) throws RostrumException {
            if (text == null || text.isEmpty()) {
                throw new RostrumException(RostrumException.Code.INVALID, "a name has 1 to 255 bytes");
            }
            return option(text);
        }

        Body texts(Collection<String> names) throws RostrumException {
            if (names.size() > 16384) {
                throw new RostrumException(RostrumException.Code.INVALID, names.size() + " servers are too many");
            }
            u16(names.size());
            for (String name : names) {
                text(name);
            }
            return this;
        }
    }

    /** A whole frame: head, message, and the text that names a descriptor. */
    static ByteBuffer frame(int type, long tag, Body body, String text) throws RostrumException {
        int length = HEADER + (body == null ? 0 : body.data.position());
        if (length > MESSAGE_MAX) {
            throw new RostrumException(RostrumException.Code.INVALID, "the names are too long together (192 KiB)");
        }
        byte[] place = text.getBytes(StandardCharsets.UTF_8);
        ByteBuffer out = ByteBuffer.allocate(8 + length + place.length).order(ByteOrder.LITTLE_ENDIAN);
        out.putInt(length).putInt(place.length).putShort(MAGIC).put(VERSION).put((byte) type).putInt(0).putLong(tag);
        if (body != null) {
            out.put(body.data.array(), 0, body.data.position());
        }
        return out.put(place).flip();
    }

    /** A frame without a message: this connection will be asked for by that key. */
    static ByteBuffer attach(String key) {
        byte[] place = ("attach " + key).getBytes(StandardCharsets.US_ASCII);
        return ByteBuffer.allocate(8 + place.length).order(ByteOrder.LITTLE_ENDIAN).putInt(0).putInt(place.length)
                .put(place).flip();
    }

    /**
     * One answer. `place` says where the descriptor is that other clients would have got with it; `value` depends on the
     * type.
     */
    record Answer(int type, long tag, Object value, String place) {
        boolean last() {
            return switch (type) {
                case RECEIVERS, EVENT, TRANSFERS, OBJECTS, GROUPS -> false;
                default -> true;
            };
        }
    }

    record Registered(String server, String version, long bootId) {}

    record Created(long handle, long size) {}

    record Digested(long size, String digest) {}

    record Joined(String protocol, String order, int messageBytes) {}

    private static final class Fields {
        final ByteBuffer in;

        Fields(byte[] data) {
            in = ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN);
        }

        int u8() {
            return in.get() & 0xff;
        }

        int u16() {
            return in.getShort() & 0xffff;
        }

        long u32() {
            return in.getInt() & 0xffffffffL;
        }

        long u64() {
            return in.getLong();
        }

        String text() {
            byte[] bytes = new byte[u8()];
            in.get(bytes);
            return new String(bytes, StandardCharsets.UTF_8);
        }

        UUID app() {
            in.order(ByteOrder.BIG_ENDIAN);
            UUID app = new UUID(in.getLong(), in.getLong());
            in.order(ByteOrder.LITTLE_ENDIAN);
            return app;
        }

        String name(String[] names) {
            int number = u8();
            return number < names.length ? names[number] : "unknown-" + number;
        }

        String digest() {
            String algorithm = name(DIGESTS);
            byte[] bytes = new byte[u8()];
            in.get(bytes);
            return bytes.length == 0 ? "" : algorithm + ":" + HexFormat.of().formatHex(bytes);
        }

        void skip(int bytes) {
            in.get(new byte[bytes]);
        }
    }

    /**
     * What came in a frame.
     *
     * @throws RostrumException PROTOCOL: it is no answer of an agent
     */
    static Answer parse(byte[] message, String place) throws RostrumException {
        Fields in = new Fields(message);
        try {
            if (in.in.getShort() != MAGIC || in.in.get() != VERSION) {
                throw wrong("what answers is not a rostrum agent of interface version " + VERSION);
            }
            int type = in.u8();
            in.u32();
            long tag = in.u64();
            Object value = body(type, in);
            if (in.in.hasRemaining()) {
                throw wrong("the agent sent an answer with " + in.in.remaining() + " bytes too many");
            }
            return new Answer(type, tag, value, place);
        } catch (BufferUnderflowException error) {
            throw wrong("the agent sent a malformed answer of " + message.length + " bytes");
        }
    }

    private static RostrumException wrong(String text) {
        return new RostrumException(RostrumException.Code.PROTOCOL, text);
    }

    private static Object body(int type, Fields in) throws RostrumException {
        return switch (type) {
            case DONE -> Boolean.TRUE;
            case ERROR -> RostrumException.of(in.u16(), in.text());
            case REGISTERED -> new Registered(in.text(), in.text(), in.u64());
            case ADDED, OBJECT -> new Digested(in.u64(), in.digest());
            case CREATED -> new Created(in.u64(), in.u64());
            case STREAMED -> in.u64();
            case GROUP -> new Joined(in.text(), in.text(), (int) Math.min(in.u32(), 1 << 30));
            case EVENT -> event(in);
            case SENT -> sent(in);
            case STATE -> state(in);
            case RECEIVERS -> rows(in, Wire::receiver);
            case TRANSFERS -> rows(in, Wire::transfer);
            case OBJECTS -> rows(in, Wire::object);
            case GROUPS -> rows(in, Wire::group);
            default -> throw wrong("the agent sent an answer of type " + type + ", which this client does not know");
        };
    }

    private interface Row {
        Object take(Fields in);
    }

    private static List<Object> rows(Fields in, Row row) {
        int count = in.u16();
        List<Object> out = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            out.add(row.take(in));
        }
        return out;
    }

    private static Values.Event event(Fields in) {
        String kind = in.name(KINDS);
        boolean sending = in.u8() != 0;
        String state = in.name(STATES);
        long dataId = in.u64(), time = in.u64();
        in.u32();
        long bytes = in.u64(), size = in.u64();
        in.skip(8 + 8 + 12);
        return new Values.Event(kind, dataId, sending, in.text(), state, time, bytes, size, in.text());
    }

    private static Values.SendResult sent(Fields in) {
        boolean ok = in.u8() != 0;
        String path = in.name(PATHS), protocol = in.name(PROTOCOLS);
        long dataId = in.u64(), size = in.u64();
        long[] times = new long[7];
        for (int i = 0; i < times.length; i++) {
            times[i] = in.u64();
        }
        in.skip(8 + 4 + 4);
        long[] numbers = new long[9];
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = in.u64();
        }
        String cause = in.text(), reason = in.text();
        in.text();
        return new Values.SendResult(
                ok, path, protocol, dataId, size, times[0], times[6], numbers[0], numbers[7], cause, reason, List.of());
    }

    private static Values.Status state(Fields in) {
        String server = in.text(), version = in.text();
        long boot = in.u64();
        in.u64();
        boolean up = in.u8() != 0;
        String manager = in.text(), store = in.text();
        long used = in.u64(), quota = in.u64(), clients = in.u32();
        in.u64();
        return new Values.Status(
                server, version, boot, up, manager, store, used, quota, clients, List.of(), List.of());
    }

    private static Object receiver(Fields in) {
        String name = in.text(), state = in.name(STATES);
        int flags = in.u8();
        long sn = in.u64(), patched = in.u64(), first = in.u64(), complete = in.u64();
        return new Values.Receiver(
                name, state, (flags & 1) != 0, (flags & 2) != 0, sn, patched, first, complete, in.text());
    }

    private static Object transfer(Fields in) {
        UUID app = in.app();
        long dataId = in.u64();
        boolean sending = in.u8() != 0;
        in.skip(2);
        String phase = in.text(), peer = in.text();
        long size = in.u64(), bytes = in.u64();
        in.skip(8 + 12 + 8 + 7 * 8 + 8);
        return new Values.Transfer(app, dataId, sending, phase, peer, size, bytes);
    }

    private static Object object(Fields in) {
        UUID app = in.app();
        long dataId = in.u64();
        boolean complete = in.u8() == 1, received = in.u8() != 0;
        long holds = in.u32(), size = in.u64();
        return new Values.StoredObject(app, dataId, complete, received, holds, size, in.digest());
    }

    private static Object group(Fields in) {
        String name = in.text();
        for (int i = 0; i < 3; i++) {
            in.text();
        }
        in.skip(4 + 8 + 1 + 3 * 4 + 6 * 8);
        return name;
    }
}
