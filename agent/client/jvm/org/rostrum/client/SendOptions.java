package org.rostrum.client;

import java.time.Duration;
import java.util.function.Consumer;

/**
 * How to send.
 *
 * @param pathWait how long to wait for a path; null: the manager's default
 * @param deadline when it should be done, a hint for the scheduler; null: none
 * @param protocol auto, republic, rdcm or wan
 * @param stragglers wait, demote or evict those less than half as fast as half of the others; null: as the agent was
 *     told
 * @param options of the protocol, name=value joined by commas; "": none
 * @param onEvent called with each event in a thread of the connection's; null: nobody
 */
public record SendOptions(
        Duration pathWait,
        Duration deadline,
        String protocol,
        String stragglers,
        String options,
        Consumer<Values.Event> onEvent) {
    /** As usual. */
    public static final SendOptions USUAL = new SendOptions(null, null, "auto", null, "", null);

    /**
     * The usual, with news.
     *
     * @param onEvent called with each event; progress has bytes and size
     * @return the options
     */
    public static SendOptions telling(Consumer<Values.Event> onEvent) {
        return new SendOptions(null, null, "auto", null, "", onEvent);
    }

    int flags() throws RostrumException {
        int way = java.util.List.of("auto", "republic", "rdcm", "wan").indexOf(protocol);
        int policy = stragglers == null ? 0 : java.util.List.of("", "wait", "demote", "evict").indexOf(stragglers);
        if (way < 0 || policy < 0) {
            throw new RostrumException(
                    RostrumException.Code.INVALID,
                    "protocols are auto, republic, rdcm, wan, and stragglers wait, demote, evict: not " + protocol + ", "
                            + stragglers);
        }
        return (onEvent != null ? 1 : 0) | policy << 1 | way << 3;
    }
}
