package org.rostrum.spark;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Random;

/** Arrays go into files and come back; what no array can be is refused. Arguments: a folder, a seed. */
public final class RawExercise {
    public static void main(String[] words) throws IOException {
        Random random = new Random(Long.parseLong(words[1]));
        int beyond = (72 << 20) / 8 + 3; // more than is mapped at once
        for (int length : new int[] {0, 1, 1000 + random.nextInt(1000), beyond}) {
            byte[] bytes = new byte[length];
            random.nextBytes(bytes);
            int[] ints = random.ints(length).toArray();
            long[] longs = random.longs(length).toArray();
            double[] doubles = random.doubles(length).toArray();
            float[] floats = new float[length];
            for (int at = 0; at < length; at++) {
                floats[at] = (float) doubles[at];
            }
            check(Arrays.equals(bytes, (byte[]) through(words[0], bytes)));
            check(Arrays.equals(ints, (int[]) through(words[0], ints)));
            check(Arrays.equals(longs, (long[]) through(words[0], longs)));
            check(Arrays.equals(floats, (float[]) through(words[0], floats)));
            check(Arrays.equals(doubles, (double[]) through(words[0], doubles)));
        }
        Path file = Files.createTempFile(Path.of(words[0]), "raw", "");
        try (RandomAccessFile open = new RandomAccessFile(file.toFile(), "rw")) {
            open.setLength(1001);
            for (char kind : new char[] {'I', 'J', 'F', 'D', '?', Raw.NONE}) {
                try {
                    Raw.read(kind, open.getChannel(), kind == '?' || kind == Raw.NONE ? 1000 : 1001);
                    check(false);
                } catch (IOException error) {
                    check(error.getMessage().contains("array"));
                }
            }
        }
        check(Raw.kind(null) == Raw.NONE && Raw.kind("text") == Raw.NONE && Raw.kind(new char[9]) == Raw.NONE);
        System.out.println("right");
    }

    private static Object through(String folder, Object array) throws IOException {
        Path file = Files.createTempFile(Path.of(folder), "raw", "");
        try (RandomAccessFile open = new RandomAccessFile(file.toFile(), "rw")) {
            open.setLength(Raw.size(array));
            Raw.write(array, open.getChannel());
            return Raw.read(Raw.kind(array), open.getChannel(), Raw.size(array));
        } finally {
            Files.delete(file);
        }
    }

    private static void check(boolean right) {
        if (!right) {
            throw new AssertionError();
        }
    }
}
