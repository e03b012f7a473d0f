package org.rostrum.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.UUID;
import java.util.function.Consumer;

/**
 * A registered connection to the agent of this server: the paper's Table I, streams and message groups. Thread-safe. A
 * thread that is interrupted while it waits gets CANCELLED, and the connection stays.
 */
public final class Agent implements AutoCloseable {
    /** The application of the {@code rostrum} command, so that what one sends the other finds. */
    public static final UUID COMMAND_APP = UUID.fromString("f2face0d-cdcb-5605-8d7a-a2bb042789a5");

    /** Where the system's agent listens. */
    public static final Path SYSTEM_SOCKET = Path.of("/run/rostrum/agent.sock");

    static final Duration ANSWER_BOUND = Duration.ofSeconds(60);
    static final Duration LAST_WORD_BOUND = Duration.ofSeconds(10);
    private static final Duration JOIN_BOUND = Duration.ofSeconds(75); // the agent waits 60 s for a manager
    private static final int COPY_BYTES = 64 << 20;

    private final Connection connection;
    private final Wire.Registered agent;
    private final UUID app;

    private Agent(Path socket, UUID app, String process) throws RostrumException {
        this.app = app;
        connection = new Connection(socket);
        try {
            Wire.Body body = new Wire.Body().app(app).text(process);
            agent = expect(
                    connection.ask(Wire.REGISTER, body, "register", ANSWER_BOUND), Wire.Registered.class, "register");
        } catch (RostrumException error) {
            connection.close();
            throw error;
        }
    }

    /**
     * Connects to $ROSTRUM_SOCKET, or the system's agent.
     *
     * @param app what all processes of the application share: who knows it may read and delete its objects
     * @return the connection
     * @throws RostrumException UNAVAILABLE: no agent answers there
     */
    public static Agent connect(UUID app) throws RostrumException {
        String given = System.getenv("ROSTRUM_SOCKET");
        return connect(given == null || given.isEmpty() ? SYSTEM_SOCKET : Path.of(given), app, null);
    }

    /**
     * Connects to an agent.
     *
     * @param socket the agent's ({@code --socket}); the framed one beside it is used
     * @param app as above
     * @param process names this process in the agent's log; null: java and its number
     * @return the connection
     * @throws RostrumException UNAVAILABLE: no agent answers there
     */
    public static Agent connect(Path socket, UUID app, String process) throws RostrumException {
        String name = process == null ? "java[" + ProcessHandle.current().pid() + "]" : process;
        return new Agent(socket, app, name);
    }

    /**
     * This server.
     *
     * @return its name, by which others send to it
     */
    public String server() {
        return agent.server();
    }

    /**
     * Of the agent.
     *
     * @return its version
     */
    public String version() {
        return agent.version();
    }

    /**
     * Whose objects these are.
     *
     * @return the application
     */
    public UUID app() {
        return app;
    }

    /**
     * Can nothing be asked any more?
     *
     * @return it was closed, or the agent went away
     */
    public boolean closed() {
        return connection.closed();
    }

    private static <T> T expect(Wire.Answer answer, Class<T> type, String what) throws RostrumException {
        if (!type.isInstance(answer.value())) {
            throw new RostrumException(
                    RostrumException.Code.PROTOCOL, "the agent answered " + what + " with type " + answer.type());
        }
        return type.cast(answer.value());
    }

    private static Wire.Body id(long dataId) {
        return new Wire.Body().u64(dataId);
    }

    private static String name(long dataId) {
        return "object " + Long.toUnsignedString(dataId);
    }

    private static long milliseconds(Duration time) throws RostrumException {
        if (time == null || time.isZero()) {
            return 0;
        }
        if (time.isNegative() || time.compareTo(Duration.ofMillis(0xffffffffL)) > 0) {
            throw new RostrumException(RostrumException.Code.INVALID, time + " is not a time to wait");
        }
        return Math.max(1, time.toMillis());
    }

    /**
     * A writable file in the agent's store: the way to hand an object over without a copy.
     *
     * @param size bytes, all of them allocated
     * @return the file
     * @throws RostrumException NO_ROOM: quota or memory
     */
    public CreatedFile create(long size) throws RostrumException {
        if (size < 0) {
            throw new RostrumException(RostrumException.Code.INVALID, "no object has " + size + " bytes");
        }
        String what = "create of " + size + " bytes";
        Wire.Answer answer = connection.ask(Wire.CREATE, new Wire.Body().u64(size), what, ANSWER_BOUND);
        Wire.Created created = expect(answer, Wire.Created.class, what);
        try {
            return new CreatedFile(this, answer.place(), created);
        } catch (RostrumException error) {
            drop(created.handle());
            throw error;
        }
    }

    void drop(long handle) {
        try {
            connection.start(Wire.DROP, new Wire.Body().u64(handle), "drop", "", null);
        } catch (RostrumException gone) {
            // the agent drops it when the connection ends
        }
    }

    /**
     * Makes a created file an object. It must not change afterwards.
     *
     * @param dataId its number; of a name: {@link DataId#of}
     * @param file closed here
     * @throws RostrumException EXISTS, NO_ROOM
     */
    public void add(long dataId, CreatedFile file) throws RostrumException {
        // The digest is taken before the answer: a large object takes its time.
        Duration bound = ANSWER_BOUND.plusMillis(file.size() / 50_000);
        Connection.Call call = connection.start(Wire.ADD, id(dataId), "add of " + name(dataId), file.place(), null);
        try {
            call.await(bound);
            file.given();
        } finally {
            connection.forget(call);
            file.close();
        }
    }

    /**
     * Makes a copy of these bytes an object.
     *
     * @param dataId its number
     * @param data its remaining bytes
     * @throws RostrumException EXISTS, NO_ROOM
     */
    public void add(long dataId, ByteBuffer data) throws RostrumException {
        add(dataId, copy(data));
    }

    /**
     * Makes a copy of a file an object.
     *
     * @param dataId its number
     * @param source a regular file
     * @throws RostrumException EXISTS, NO_ROOM; IO: it cannot be read
     */
    public void add(long dataId, Path source) throws RostrumException {
        add(dataId, copy(source));
    }

    private CreatedFile copy(ByteBuffer data) throws RostrumException {
        CreatedFile file = create(data.remaining());
        try {
            if (data.hasRemaining()) {
                file.map().put(data.duplicate());
            }
            return file;
        } catch (RostrumException error) {
            file.close();
            throw error;
        }
    }

    private CreatedFile copy(Path source) throws RostrumException {
        try (FileChannel in = FileChannel.open(source, StandardOpenOption.READ)) {
            CreatedFile file = create(in.size());
            try {
                for (long at = 0; at < file.size(); ) {
                    int part = (int) Math.min(COPY_BYTES, file.size() - at);
                    ByteBuffer to = file.map(at, part);
                    while (to.hasRemaining()) {
                        if (in.read(to, at + to.position()) < 0) {
                            throw new IOException("it became shorter");
                        }
                    }
                    at += part;
                }
                return file;
            } catch (IOException error) {
                file.close();
                throw error;
            }
        } catch (RostrumException error) {
            throw error;
        } catch (IOException error) {
            throw new RostrumException(RostrumException.Code.IO, source + " cannot be read: " + error, error);
        }
    }

    /**
     * Sends an object that is here to servers, as usual.
     *
     * @param dataId its number
     * @param receivers their names, 1 to 16384
     * @return the send, which goes on when this program ends
     * @throws RostrumException INVALID; what the agent says comes by {@link Send#await}
     */
    public Send send(long dataId, Collection<String> receivers) throws RostrumException {
        return send(dataId, receivers, SendOptions.USUAL);
    }

    /**
     * Sends an object that is here to servers.
     *
     * @param dataId its number
     * @param receivers their names, 1 to 16384
     * @param how it is to be sent
     * @return the send, which goes on when this program ends
     * @throws RostrumException INVALID; what the agent says comes by {@link Send#await}
     */
    public Send send(long dataId, Collection<String> receivers, SendOptions how) throws RostrumException {
        return start(dataId, receivers, how, "", () -> {});
    }

    /**
     * Adds and sends in one: data leaves while the digest is taken.
     *
     * @param dataId its number
     * @param receivers their names
     * @param how it is to be sent
     * @param file closed here
     * @return the send
     * @throws RostrumException INVALID
     */
    public Send send(long dataId, Collection<String> receivers, SendOptions how, CreatedFile file)
            throws RostrumException {
        try {
            long handle = file.handle();
            Send send = start(dataId, receivers, how, file.place(), () -> drop(handle));
            file.given();
            return send;
        } finally {
            file.close();
        }
    }

    /**
     * The same with a copy of these bytes.
     *
     * @param dataId its number
     * @param receivers their names
     * @param data its remaining bytes
     * @return the send
     * @throws RostrumException NO_ROOM
     */
    public Send send(long dataId, Collection<String> receivers, byte[] data) throws RostrumException {
        return send(dataId, receivers, SendOptions.USUAL, copy(ByteBuffer.wrap(data)));
    }

    private static Wire.Body request(long dataId, Collection<String> receivers, SendOptions how)
            throws RostrumException {
        Wire.Body body = id(dataId).u32(how.flags()).u32(milliseconds(how.pathWait())).u32(milliseconds(how.deadline()));
        body.texts(receivers);
        return how.options().isEmpty() ? body : body.text(how.options());
    }

    private Send start(long dataId, Collection<String> receivers, SendOptions how, String place, Runnable refused)
            throws RostrumException {
        Wire.Body body = request(dataId, receivers, how);
        Connection.Call call = connection.start(Wire.SEND, body, "send of " + name(dataId), place, how.onEvent());
        return new Send(connection, call, dataId, refused);
    }

    /**
     * An object, as soon as it is whole here.
     *
     * @param dataId its number
     * @param wait for it; null or zero: it must be here
     * @return the object, mapped by {@link ReadObject#map}
     * @throws RostrumException UNKNOWN, BUSY: it is not here (whole); TIMEOUT: it did not come
     */
    public ReadObject read(long dataId, Duration wait) throws RostrumException {
        Wire.Body body = id(dataId).u32(milliseconds(wait));
        return object(connection.ask(Wire.READ, body, "read of " + name(dataId), bound(wait)), dataId);
    }

    /**
     * An object that other servers have, from all of them at once, piece by piece.
     *
     * @param dataId its number
     * @param holders who has it: "h1", or "h1@10.0.1.1"; empty: the manager is asked
     * @param wait then it goes on, and {@link #read} waits for it
     * @return the object
     * @throws RostrumException FAILED: with what each holder said; TIMEOUT
     */
    public ReadObject fetch(long dataId, Collection<String> holders, Duration wait) throws RostrumException {
        Wire.Body body = id(dataId).u32(milliseconds(wait)).texts(holders);
        return object(connection.ask(Wire.FETCH, body, "fetch of " + name(dataId), bound(wait)), dataId);
    }

    private static Duration bound(Duration wait) {
        return wait == null ? ANSWER_BOUND : wait.plus(ANSWER_BOUND);
    }

    private static ReadObject object(Wire.Answer answer, long dataId) throws RostrumException {
        return new ReadObject(answer.place(), expect(answer, Wire.Digested.class, "read of " + name(dataId)));
    }

    private void ask(int type, Wire.Body body, String what) throws RostrumException {
        connection.ask(type, body, what, ANSWER_BOUND);
    }

    /**
     * Removes an object from this server; who reads it keeps it.
     *
     * @param dataId its number
     * @throws RostrumException UNKNOWN, BUSY
     */
    public void delete(long dataId) throws RostrumException {
        ask(Wire.DELETE, id(dataId), "delete of " + name(dataId));
    }

    /**
     * Stops the sending of an object, whichever process of the application started it.
     *
     * @param dataId its number
     * @throws RostrumException UNKNOWN
     */
    public void cancel(long dataId) throws RostrumException {
        ask(Wire.CANCEL, id(dataId), "cancel of " + name(dataId));
    }

    /**
     * This server wants an object or stream no more that comes to it; the others go on.
     *
     * @param dataId its number
     * @throws RostrumException UNKNOWN: it does not come in here
     */
    public void leave(long dataId) throws RostrumException {
        ask(Wire.LEAVE, id(dataId), "leaving " + name(dataId));
    }

    /**
     * The application's objects here go with the last of its processes that asked so, however it ends; a transfer that
     * uses one ends first.
     *
     * @throws RostrumException PROTOCOL: the agent is older than that
     */
    public void ephemeral() throws RostrumException {
        ask(Wire.EPHEMERAL, new Wire.Body(), "ephemeral");
    }

    /**
     * The manager lists the object by this name.
     *
     * @param dataId its number, mostly {@link DataId#of} of the name
     * @param text 1 to 255 bytes
     * @throws RostrumException INVALID
     */
    public void name(long dataId, String text) throws RostrumException {
        ask(Wire.NAME, id(dataId).text(text), "name of " + name(dataId));
    }

    /**
     * The object stays when the agent makes room, or may go again.
     *
     * @param dataId its number
     * @param on it stays
     * @throws RostrumException UNKNOWN
     */
    public void pin(long dataId, boolean on) throws RostrumException {
        ask(Wire.PIN, id(dataId).u32(on ? 1 : 0), "pin of " + name(dataId));
    }

    /**
     * News of an object's transfers here, whoever started them.
     *
     * @param dataId its number
     * @param onEvent called in a thread of the connection's
     * @return closing it ends the news
     * @throws RostrumException LIMIT
     */
    public AutoCloseable subscribe(long dataId, Consumer<Values.Event> onEvent) throws RostrumException {
        String what = "news of " + name(dataId);
        Connection.Call call = connection.start(Wire.SUBSCRIBE, id(dataId), what, "", onEvent);
        call.await(ANSWER_BOUND);
        return () -> {
            connection.forget(call);
            ask(Wire.UNSUBSCRIBE, new Wire.Body().u64(call.tag), what);
        };
    }

    /**
     * The agent, its transfers and objects, now.
     *
     * @return what it says
     * @throws RostrumException UNAVAILABLE
     */
    public Values.Status status() throws RostrumException {
        Connection.Call call = connection.start(Wire.STATUS, null, "status", "", null);
        try {
            Values.Status one = expect(call.await(ANSWER_BOUND), Values.Status.class, "status");
            List<Values.Transfer> transfers = new ArrayList<>();
            List<Values.StoredObject> objects = new ArrayList<>();
            for (Object row : call.rows()) {
                if (row instanceof Values.Transfer transfer) {
                    transfers.add(transfer);
                } else if (row instanceof Values.StoredObject object) {
                    objects.add(object);
                }
            }
            return new Values.Status(
                    one.server(), one.version(), one.bootId(), one.managerUp(), one.manager(), one.store(),
                    one.storeUsed(), one.storeQuota(), one.clients(), transfers, objects);
        } finally {
            connection.forget(call);
        }
    }

    /**
     * Begins a continuing stream to servers: write into what comes back, then finish it.
     *
     * @param dataId its number
     * @param receivers their names
     * @return where to write
     * @throws RostrumException UNAVAILABLE, LIMIT
     */
    public StreamWriter streamSend(long dataId, Collection<String> receivers) throws RostrumException {
        SendOptions how = new SendOptions(null, null, "rdcm", null, "", null);
        Wire.Body body = request(dataId, receivers, how);
        Connection.Attached to = connection.attach();
        String what = "stream " + Long.toUnsignedString(dataId);
        Connection.Call call = connection.start(Wire.STREAM_SEND, body, what, "socket " + to.key(), null);
        return new StreamWriter(connection, call, to, dataId);
    }

    /**
     * A stream that comes to this server.
     *
     * @param dataId its number
     * @param wait for it to begin
     * @return where to read
     * @throws RostrumException LIMIT; what becomes of it is told by reading
     */
    public StreamReader streamReceive(long dataId, Duration wait) throws RostrumException {
        return reader(Wire.STREAM_RECEIVE, id(dataId).u32(milliseconds(wait)), dataId);
    }

    /**
     * A stream under way that is not for this server: from the oldest bytes that holders keep to its end.
     *
     * @param dataId its number
     * @param holders who receives or sends it
     * @param wait for it to be joined
     * @return where to read
     * @throws RostrumException INVALID
     */
    public StreamReader streamJoin(long dataId, Collection<String> holders, Duration wait) throws RostrumException {
        return reader(Wire.STREAM_JOIN, id(dataId).u32(milliseconds(wait)).texts(holders), dataId);
    }

    private StreamReader reader(int type, Wire.Body body, long dataId) throws RostrumException {
        Connection.Attached from = connection.attach();
        String what = "stream " + Long.toUnsignedString(dataId);
        Connection.Call call = connection.start(type, body, what, "socket " + from.key(), null);
        return new StreamReader(connection, call, from, dataId);
    }

    /**
     * Joins a message group to take messages, and to publish.
     *
     * @param group its name
     * @param protocol plain, ricochet, ...; null: as the group is, and then no order but none may be given
     * @param order none or fifo
     * @return the group
     * @throws RostrumException DENIED, UNAVAILABLE, TIMEOUT, LIMIT
     */
    public Group join(String group, String protocol, String order) throws RostrumException {
        return member(group, true, protocol, order);
    }

    /**
     * The same to publish only.
     *
     * @param group its name
     * @param protocol plain, ricochet, ...; null: as the group is, and then no order but none may be given
     * @param order none or fifo
     * @return the group
     * @throws RostrumException as {@link #join}
     */
    public Group publisher(String group, String protocol, String order) throws RostrumException {
        return member(group, false, protocol, order);
    }

    private Group member(String group, boolean subscribe, String protocol, String order) throws RostrumException {
        String way = protocol == null ? "" : protocol;
        Wire.Body body = new Wire.Body().u32(subscribe ? 1 : 0).text(group);
        body.option(way).option(order == null ? way.isEmpty() ? "" : "none" : order).option("");
        Connection.Attached socket = connection.attach();
        Connection.Call call =
                connection.start(Wire.JOIN, body, "joining " + group, "socket " + socket.key(), null);
        try {
            Wire.Joined terms = expect(call.await(JOIN_BOUND), Wire.Joined.class, "joining " + group);
            return new Group(group, terms, socket.channel());
        } catch (RostrumException error) {
            Connection.close(socket.channel());
            throw error;
        } finally {
            connection.forget(call);
        }
    }

    /** Unregisters. Sends go on; created files that were not added go back. */
    @Override
    public void close() {
        connection.close();
    }
}
