package org.rostrum.client;

import java.io.IOException;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;

/** A file of the agent's store, open here. */
abstract class StoreFile implements AutoCloseable {
    private final FileChannel channel;
    private final long size;
    private final FileChannel.MapMode mode;

    StoreFile(String place, long size, FileChannel.MapMode mode, OpenOption... how) throws RostrumException {
        FileChannel open = null;
        try {
            if (place.isEmpty() || size < 0 || place.codePoints().anyMatch(c -> c < 32 || c == 0xfffd)) {
                throw new RostrumException(
                        RostrumException.Code.PROTOCOL,
                        "the agent did not say where the file of " + Long.toUnsignedString(size) + " bytes is");
            }
            open = FileChannel.open(Path.of(place), how);
            if (open.size() < size) {
                throw new RostrumException(
                        RostrumException.Code.IO,
                        place + " has " + open.size() + " bytes, not " + size + ": it was deleted meanwhile; read again");
            }
        } catch (IOException | IllegalArgumentException error) {
            close(open);
            if (error instanceof RostrumException known) {
                throw known;
            }
            String hint = error instanceof NoSuchFileException
                    ? " is not there: it was deleted meanwhile, or this process sees another file system than the agent"
                            + " (mount the agent's store into the container)"
                    : " cannot be opened (is this user in the group of the agent's socket?): " + error;
            throw new RostrumException(RostrumException.Code.IO, place + hint, error);
        }
        this.channel = open;
        this.size = size;
        this.mode = mode;
    }

    private static void close(FileChannel channel) {
        try {
            if (channel != null) {
                channel.close();
            }
        } catch (IOException ignored) {
            // it is closed all the same
        }
    }

    /**
     * Its length.
     *
     * @return bytes
     */
    public final long size() {
        return size;
    }

    /**
     * All of it, mapped: no copy. It stays valid after {@link #close}.
     *
     * @return its bytes
     * @throws RostrumException INVALID: more than 2^31 - 1 bytes (map parts), IO
     */
    public final MappedByteBuffer map() throws RostrumException {
        return map(0, size);
    }

    /**
     * A part of it, mapped.
     *
     * @param offset bytes from its beginning
     * @param length bytes, at most 2^31 - 1
     * @return these bytes
     * @throws RostrumException INVALID: there are no such bytes; IO
     */
    public final MappedByteBuffer map(long offset, long length) throws RostrumException {
        if (offset < 0 || length < 0 || offset > size - length || length > Integer.MAX_VALUE) {
            throw new RostrumException(
                    RostrumException.Code.INVALID,
                    length + " bytes from " + offset + " on cannot be mapped at once, of " + size
                            + "; a ByteBuffer has at most 2147483647");
        }
        try {
            return channel.map(mode, offset, length);
        } catch (IOException error) {
            throw new RostrumException(RostrumException.Code.IO, "the object cannot be mapped: " + error, error);
        }
    }

    /**
     * The file itself.
     *
     * @return a channel that {@link #close} closes
     */
    public final FileChannel channel() {
        return channel;
    }

    /** Closes the file; mappings stay. */
    @Override
    public void close() {
        close(channel);
    }
}
