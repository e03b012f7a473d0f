package org.rostrum.spark;

import java.io.IOException;
import java.lang.reflect.Array;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.util.Map;
import org.apache.spark.storage.StorageUtils;

/** Arrays of primitive types as objects: their elements alone, little-endian, which Java's serialization copies thrice. */
final class Raw {
    /** What a serialized value has in the place of an array's type. */
    static final char NONE = '-';

    private static final Map<Class<?>, Character> KINDS =
            Map.of(byte[].class, 'B', int[].class, 'I', long[].class, 'J', float[].class, 'F', double[].class, 'D');
    private static final int WINDOW = 64 << 20; // bytes, whole elements

    private Raw() {}

    /** The type of an array that goes as it is, or NONE. */
    static char kind(Object value) {
        return value == null ? NONE : KINDS.getOrDefault(value.getClass(), NONE);
    }

    private static int width(char kind) {
        return switch (kind) {
            case 'B' -> 1;
            case 'I', 'F' -> 4;
            default -> 8;
        };
    }

    static long size(Object array) {
        return (long) Array.getLength(array) * width(kind(array));
    }

    static void write(Object array, FileChannel to) throws IOException {
        copy(array, to, MapMode.READ_WRITE);
    }

    static Object read(char kind, FileChannel from, long size) throws IOException {
        if (!KINDS.containsValue(kind)) {
            throw new IOException("there are no arrays of type " + kind);
        }
        long count = size / width(kind);
        if (size % width(kind) != 0 || count > Integer.MAX_VALUE - 8) {
            throw new IOException("an object of " + size + " bytes is no array of type " + kind);
        }
        int length = (int) count;
        Object array =
                switch (kind) {
                    case 'B' -> new byte[length];
                    case 'I' -> new int[length];
                    case 'J' -> new long[length];
                    case 'F' -> new float[length];
                    default -> new double[length];
                };
        copy(array, from, MapMode.READ_ONLY);
        return array;
    }

    private static void copy(Object array, FileChannel file, MapMode mode) throws IOException {
        char kind = kind(array);
        long size = size(array);
        boolean in = mode == MapMode.READ_ONLY;
        for (long at = 0; at < size; at += WINDOW) {
            MappedByteBuffer bytes = file.map(mode, at, Math.min(WINDOW, size - at));
            try {
                bytes.order(ByteOrder.LITTLE_ENDIAN);
                int first = (int) (at / width(kind));
                int count = bytes.remaining() / width(kind);
                if (in) {
                    get(bytes, array, first, count);
                } else {
                    put(bytes, array, first, count);
                }
            } finally {
                StorageUtils.dispose(bytes);
            }
        }
    }

    private static void get(MappedByteBuffer from, Object array, int first, int count) {
        if (array instanceof byte[] to) {
            from.get(to, first, count);
        } else if (array instanceof int[] to) {
            from.asIntBuffer().get(to, first, count);
        } else if (array instanceof long[] to) {
            from.asLongBuffer().get(to, first, count);
        } else if (array instanceof float[] to) {
            from.asFloatBuffer().get(to, first, count);
        } else if (array instanceof double[] to) {
            from.asDoubleBuffer().get(to, first, count);
        }
    }

    private static void put(MappedByteBuffer to, Object array, int first, int count) {
        if (array instanceof byte[] from) {
            to.put(from, first, count);
        } else if (array instanceof int[] from) {
            to.asIntBuffer().put(from, first, count);
        } else if (array instanceof long[] from) {
            to.asLongBuffer().put(from, first, count);
        } else if (array instanceof float[] from) {
            to.asFloatBuffer().put(from, first, count);
        } else if (array instanceof double[] from) {
            to.asDoubleBuffer().put(from, first, count);
        }
    }
}
