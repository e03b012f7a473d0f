package org.rostrum.client;

import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;

/** An object on this server, to read. Its memory is free when nobody has it open or mapped any more. */
public final class ReadObject extends StoreFile {
    private final String digest;

    ReadObject(String place, Wire.Digested what) throws RostrumException {
        super(place, what.size(), FileChannel.MapMode.READ_ONLY, StandardOpenOption.READ);
        this.digest = what.digest();
    }

    /**
     * What the agent has checked it by.
     *
     * @return algorithm and hex digits
     */
    public String digest() {
        return digest;
    }
}
