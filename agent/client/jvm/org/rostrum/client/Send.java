package org.rostrum.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** A send under way. It goes on when this program ends. */
public final class Send {
    private final Connection connection;
    private final Connection.Call call;
    private final long dataId;
    private final Runnable refused;

    Send(Connection connection, Connection.Call call, long dataId, Runnable refused) {
        this.connection = connection;
        this.call = call;
        this.dataId = dataId;
        this.refused = refused;
    }

    /**
     * Waits for its end, as long as the agent lives: every phase has its bound there.
     *
     * @return what it came to; {@link Values.SendResult#orThrow} makes a failed receiver an exception
     * @throws RostrumException it could not be started
     */
    public Values.SendResult await() throws RostrumException {
        return await(null);
    }

    /**
     * The same, for so long.
     *
     * @param bound null: as long as the agent lives
     * @return what it came to
     * @throws RostrumException TIMEOUT: it goes on; wait again, or cancel it
     */
    public Values.SendResult await(Duration bound) throws RostrumException {
        try {
            return result(call, bound);
        } catch (RostrumException error) {
            if (call.done()) {
                refused.run();
            }
            throw error;
        }
    }

    /**
     * Is it over?
     *
     * @return await returns at once
     */
    public boolean done() {
        return call.done();
    }

    /**
     * Stops it; {@link #await} then gives the result.
     *
     * @throws RostrumException UNKNOWN: it is over
     */
    public void cancel() throws RostrumException {
        connection.ask(Wire.CANCEL, new Wire.Body().u64(dataId), "cancel of " + call.what, Agent.ANSWER_BOUND);
    }

    static Values.SendResult result(Connection.Call call, Duration bound) throws RostrumException {
        if (!(call.await(bound).value() instanceof Values.SendResult sent)) {
            throw new RostrumException(
                    RostrumException.Code.PROTOCOL, "the agent answered " + call.what + " with something else");
        }
        List<Values.Receiver> receivers = new ArrayList<>();
        call.rows().forEach(row -> {
            if (row instanceof Values.Receiver one) {
                receivers.add(one);
            }
        });
        return new Values.SendResult(
                sent.ok(), sent.path(), sent.protocol(), sent.dataId(), sent.size(), sent.requestedNs(), sent.doneNs(),
                sent.packetsSent(), sent.bytesSent(), sent.cause(), sent.reason(), receivers);
    }
}
