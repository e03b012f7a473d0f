package org.rostrum.client;

import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;

/**
 * A file in the agent's store, to write, and then to {@link Agent#add add} or {@link Agent#send send}: no copy. Closed
 * before that, it goes back.
 */
public final class CreatedFile extends StoreFile {
    private final Agent agent;
    private final long handle;
    private boolean given;

    CreatedFile(Agent agent, String place, Wire.Created what) throws RostrumException {
        super(
                place, what.size(), FileChannel.MapMode.READ_WRITE, StandardOpenOption.READ, StandardOpenOption.WRITE);
        this.agent = agent;
        this.handle = what.handle();
    }

    String place() throws RostrumException {
        if (given) {
            throw new RostrumException(RostrumException.Code.INVALID, "this file is an object already");
        }
        return "file " + handle;
    }

    long handle() {
        return handle;
    }

    void given() {
        given = true;
    }

    @Override
    public void close() {
        super.close();
        if (!given) {
            given = true;
            agent.drop(handle);
        }
    }
}
