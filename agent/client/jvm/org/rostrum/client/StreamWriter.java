package org.rostrum.client;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.time.Duration;

/**
 * A continuing stream that is being sent. {@link #finish} says that it is whole; closed before, it fails at all
 * receivers, as it does when the thread that writes is interrupted.
 */
public final class StreamWriter extends OutputStream {
    private final Connection connection;
    private final Connection.Call call;
    private final Connection.Attached to;
    private final long dataId;
    private long written;

    StreamWriter(Connection connection, Connection.Call call, Connection.Attached to, long dataId) {
        this.connection = connection;
        this.call = call;
        this.to = to;
        this.dataId = dataId;
    }

    @Override
    public void write(int one) throws IOException {
        write(new byte[] {(byte) one}, 0, 1);
    }

    /**
     * Writes all of it. Waits while the slowest receiver, or the path, holds the stream back.
     *
     * @throws RostrumException it failed; the text says why
     */
    @Override
    public void write(byte[] data, int offset, int length) throws IOException {
        write(ByteBuffer.wrap(data, offset, length));
    }

    /**
     * The same.
     *
     * @param data all of it is written
     * @throws IOException as above
     */
    public void write(ByteBuffer data) throws IOException {
        try {
            while (data.hasRemaining()) {
                written += to.channel().write(data);
            }
        } catch (IOException error) {
            Values.SendResult result = Send.result(call, Agent.LAST_WORD_BOUND);
            throw new RostrumException(
                    RostrumException.Code.FAILED, call.what + ": " + (result.cause().isEmpty() ? error : result.cause()));
        }
    }

    /**
     * This was all: waits until every receiver's program has it, or has failed.
     *
     * @param bound null: as long as the agent lives
     * @return what it came to
     * @throws RostrumException TIMEOUT, or why it could not be sent at all
     */
    public Values.SendResult finish(Duration bound) throws RostrumException {
        try {
            Wire.Body body = new Wire.Body().u64(dataId).u64(written);
            connection.ask(Wire.STREAM_END, body, "the end of " + call.what, Agent.ANSWER_BOUND);
        } catch (RostrumException error) {
            if (!call.done()) {
                throw error; // else the stream itself says why
            }
        }
        return Send.result(call, bound);
    }

    /** Without {@link #finish} before, the stream fails. */
    @Override
    public void close() {
        Connection.close(to.channel());
        connection.forget(call);
    }
}
