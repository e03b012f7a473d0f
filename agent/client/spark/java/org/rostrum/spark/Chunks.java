package org.rostrum.spark;

import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.List;

/** A serialized value of any size, in pieces. */
final class Chunks extends OutputStream {
    private static final int CHUNK = 4 << 20;

    private final List<byte[]> full = new ArrayList<>();
    private byte[] last = new byte[64 << 10]; // most values are small
    private int used;

    long size() {
        return full.stream().mapToLong(one -> one.length).sum() + used;
    }

    @Override
    public void write(int value) {
        room();
        last[used++] = (byte) value;
    }

    @Override
    public void write(byte[] from, int offset, int length) {
        for (int done = 0; done < length; ) {
            room();
            int part = Math.min(length - done, last.length - used);
            System.arraycopy(from, offset + done, last, used, part);
            used += part;
            done += part;
        }
    }

    private void room() {
        if (used == last.length) {
            full.add(last);
            last = new byte[CHUNK];
            used = 0;
        }
    }

    void writeTo(OutputStream to) throws IOException {
        for (byte[] one : full) {
            to.write(one, 0, one.length);
        }
        to.write(last, 0, used);
    }
}
