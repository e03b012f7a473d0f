package org.rostrum.client;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;

/** A continuing stream that comes to this server. Read without long pauses: who takes nothing for 10 s fails. */
public final class StreamReader extends InputStream {
    private final Connection connection;
    private final Connection.Call call;
    private final Connection.Attached from;
    private final long dataId;
    private long read;
    private boolean ended;

    StreamReader(Connection connection, Connection.Call call, Connection.Attached from, long dataId) {
        this.connection = connection;
        this.call = call;
        this.from = from;
        this.dataId = dataId;
    }

    @Override
    public int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    /**
     * Up to `length` bytes, as soon as there are some; -1 at the end, and then it was all.
     *
     * @throws RostrumException there will be no more, and that is not all; the text says why
     */
    @Override
    public int read(byte[] data, int offset, int length) throws IOException {
        if (ended || length == 0) {
            return ended ? -1 : 0;
        }
        int got = from.channel().read(ByteBuffer.wrap(data, offset, length));
        if (got >= 0) {
            read += got;
            return got;
        }
        Object all = call.await(Agent.LAST_WORD_BOUND).value();
        if (!(all instanceof Long bytes) || bytes != read) {
            throw new RostrumException(
                    RostrumException.Code.UNAVAILABLE, call.what + ": " + read + " of " + all + " bytes came");
        }
        ended = true;
        return -1;
    }

    /**
     * It is wanted no more: the others go on, and this is no failure of the stream.
     *
     * @throws RostrumException UNKNOWN: it does not come in here
     */
    public void leave() throws RostrumException {
        connection.ask(Wire.LEAVE, new Wire.Body().u64(dataId), "leaving " + call.what, Agent.ANSWER_BOUND);
        close();
    }

    /** Before the end: this receiver fails, the others go on. */
    @Override
    public void close() {
        Connection.close(from.channel());
        connection.forget(call);
    }
}
