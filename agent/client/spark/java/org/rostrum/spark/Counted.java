package org.rostrum.spark;

import java.io.OutputStream;

/** How many bytes a value takes. */
final class Counted extends OutputStream {
    private long size;

    long size() {
        return size;
    }

    @Override
    public void write(int value) {
        size++;
    }

    @Override
    public void write(byte[] from, int offset, int length) {
        size += length;
    }
}
