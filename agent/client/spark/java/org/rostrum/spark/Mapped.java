package org.rostrum.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import org.apache.spark.storage.StorageUtils;

/** A file of the agent's store as a stream: bytes are copied once, and what is done with is unmapped at once. */
final class Mapped {
    private static final int WINDOW = 64 << 20;

    private Mapped() {}

    private static final class Window {
        private final FileChannel file;
        private final MapMode mode;
        private final long size;
        private MappedByteBuffer bytes;
        private long next;

        Window(FileChannel file, MapMode mode, long size) {
            this.file = file;
            this.mode = mode;
            this.size = size;
        }

        /** Bytes that are mapped and not used yet; null: the file ends. */
        MappedByteBuffer more() throws IOException {
            if (bytes == null || !bytes.hasRemaining()) {
                close();
                if (next == size) {
                    return null;
                }
                int length = (int) Math.min(WINDOW, size - next);
                bytes = file.map(mode, next, length);
                next += length;
            }
            return bytes;
        }

        void close() {
            if (bytes != null) {
                StorageUtils.dispose(bytes);
                bytes = null;
            }
        }
    }

    static InputStream input(FileChannel file, long size) {
        Window window = new Window(file, MapMode.READ_ONLY, size);
        return new InputStream() {
            @Override
            public int read() throws IOException {
                MappedByteBuffer bytes = window.more();
                return bytes == null ? -1 : bytes.get() & 0xff;
            }

            @Override
            public int read(byte[] to, int offset, int length) throws IOException {
                if (length == 0) {
                    return 0;
                }
                MappedByteBuffer bytes = window.more();
                if (bytes == null) {
                    return -1;
                }
                int count = Math.min(length, bytes.remaining());
                bytes.get(to, offset, count);
                return count;
            }

            @Override
            public void close() {
                window.close();
            }
        };
    }

    static OutputStream output(FileChannel file, long size) {
        Window window = new Window(file, MapMode.READ_WRITE, size);
        return new OutputStream() {
            private MappedByteBuffer room() throws IOException {
                MappedByteBuffer bytes = window.more();
                if (bytes == null) {
                    throw new IOException("the value became longer than " + size + " bytes while it was written");
                }
                return bytes;
            }

            @Override
            public void write(int value) throws IOException {
                room().put((byte) value);
            }

            @Override
            public void write(byte[] from, int offset, int length) throws IOException {
                for (int done = 0; done < length; ) {
                    MappedByteBuffer bytes = room();
                    int count = Math.min(length - done, bytes.remaining());
                    bytes.put(from, offset + done, count);
                    done += count;
                }
            }

            @Override
            public void close() {
                window.close();
            }
        };
    }
}
