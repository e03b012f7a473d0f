package org.rostrum.client;

import java.util.List;
import java.util.UUID;

/** What the agent tells. Times are ns since the epoch, rates bits/s, sizes bytes. */
public final class Values {
    private Values() {}

    /**
     * One receiver's outcome.
     *
     * @param name its server
     * @param state waiting, receiving, done, failed or left
     * @param digestRight the object is right there
     * @param hadIt it was there before
     * @param firstSn the first fragment it got by multicast
     * @param patched fragments that were sent again to it
     * @param firstLightNs when the first fragment came
     * @param completeNs when it was whole
     * @param cause why it failed
     */
    public record Receiver(
            String name,
            String state,
            boolean digestRight,
            boolean hadIt,
            long firstSn,
            long patched,
            long firstLightNs,
            long completeNs,
            String cause) {}

    /**
     * What a send came to.
     *
     * @param ok every receiver has the object, with the right digest
     * @param path circuit, packet or none
     * @param protocol republic, rdcm, wan or auto (no path was granted)
     * @param dataId the object
     * @param size of it
     * @param requestedNs when it was asked for
     * @param doneNs when it was over
     * @param packetsSent by multicast
     * @param bytesSent by this server for it
     * @param cause why it failed
     * @param reason why this kind of path
     * @param receivers in the order they were named
     */
    public record SendResult(
            boolean ok,
            String path,
            String protocol,
            long dataId,
            long size,
            long requestedNs,
            long doneNs,
            long packetsSent,
            long bytesSent,
            String cause,
            String reason,
            List<Receiver> receivers) {
        /**
         * Itself, if every receiver is right.
         *
         * @return this
         * @throws RostrumException FAILED: names those that are not
         */
        public SendResult orThrow() throws RostrumException {
            if (ok) {
                return this;
            }
            StringBuilder text = new StringBuilder(cause);
            for (Receiver one : receivers) {
                if (!one.digestRight()) {
                    String why = one.cause().isEmpty() ? one.state() : one.cause();
                    text.append(text.isEmpty() ? "" : "; ").append(one.name()).append(": ").append(why);
                }
            }
            throw new RostrumException(
                    RostrumException.Code.FAILED, text.isEmpty() ? "the transfer failed" : text.toString());
        }
    }

    /**
     * Something that happened to a transfer; what says nothing about the kind is 0 or empty.
     *
     * @param kind phase, receiver, progress or log
     * @param dataId of the object
     * @param sending seen at the sender
     * @param subject the phase, or the receiver
     * @param state the receiver's
     * @param timeNs when
     * @param bytes sent at least once, or present at this receiver
     * @param size of the object
     * @param text of a log line
     */
    public record Event(
            String kind,
            long dataId,
            boolean sending,
            String subject,
            String state,
            long timeNs,
            long bytes,
            long size,
            String text) {}

    /**
     * A transfer that runs.
     *
     * @param app whose it is; all zero: another application's
     * @param dataId its object
     * @param sending from here
     * @param phase it is in
     * @param peer the sender
     * @param size of it
     * @param bytes done
     */
    public record Transfer(UUID app, long dataId, boolean sending, String phase, String peer, long size, long bytes) {}

    /**
     * An object in the agent's store.
     *
     * @param app whose it is; all zero: another application's
     * @param dataId its number
     * @param complete it can be read
     * @param received by a transfer
     * @param holds transfers that use it
     * @param size of it
     * @param digest algorithm and hex digits; empty: not known yet
     */
    public record StoredObject(
            UUID app, long dataId, boolean complete, boolean received, long holds, long size, String digest) {}

    /**
     * The agent, now.
     *
     * @param server its name
     * @param version of the agent
     * @param bootId changes with each start
     * @param managerUp it has a manager
     * @param manager where
     * @param store its folder
     * @param storeUsed bytes
     * @param storeQuota bytes
     * @param clients connected
     * @param transfers that run
     * @param objects in the store
     */
    public record Status(
            String server,
            String version,
            long bootId,
            boolean managerUp,
            String manager,
            String store,
            long storeUsed,
            long storeQuota,
            long clients,
            List<Transfer> transfers,
            List<StoredObject> objects) {}

    /**
     * A message of a group, or word of losses.
     *
     * @param sender its server; of losses empty: of any
     * @param sn the packet's number, from 1 of each sender
     * @param part the place of a small message in its packet
     * @param data the message; null: something was lost
     * @param lost packets (of a program that was too slow: messages); 0: not known
     * @param why they were lost
     */
    public record Message(String sender, long sn, int part, byte[] data, long lost, String why) {}
}
