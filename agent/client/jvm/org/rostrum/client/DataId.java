package org.rostrum.client;

import java.nio.charset.StandardCharsets;

/** The numbers of objects that are known by names. */
public final class DataId {
    private static final long[] START = {
        0x6a09e667f3bcc908L, 0xbb67ae8584caa73bL, 0x3c6ef372fe94f82bL, 0xa54ff53a5f1d36f1L,
        0x510e527fade682d1L, 0x9b05688c2b3e6c1fL, 0x1f83d9abfb41bd6bL, 0x5be0cd19137e2179L
    };
    private static final byte[][] SIGMA = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
        {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
        {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
        {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
        {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
        {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
        {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
        {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
        {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
        {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}
    };
    private static final int BLOCK = 128;

    private DataId() {}

    /**
     * The number that a name stands for: the BLAKE2b of 8 bytes (RFC 7693) of its UTF-8, as librostrum's rostrum_data_id
     * and the {@code rostrum} command have it.
     *
     * @param name not empty
     * @return the dataID
     */
    public static long of(String name) {
        byte[] text = name.getBytes(StandardCharsets.UTF_8);
        if (text.length == 0) {
            throw new IllegalArgumentException("an object's name is not empty");
        }
        long[] state = START.clone();
        state[0] ^= 0x01010000L ^ 8; // one byte of fan-out, one of depth, no key, 8 bytes
        int at = 0;
        for (; text.length - at > BLOCK; at += BLOCK) {
            compress(state, text, at, at + BLOCK, false);
        }
        compress(state, text, at, text.length, true);
        return state[0];
    }

    private static void compress(long[] state, byte[] text, int from, int end, boolean last) {
        long[] m = new long[16];
        for (int i = from; i < end && i < from + BLOCK; i++) {
            m[(i - from) / 8] |= (text[i] & 0xffL) << 8 * ((i - from) % 8);
        }
        long[] v = new long[16];
        System.arraycopy(state, 0, v, 0, 8);
        System.arraycopy(START, 0, v, 8, 8);
        v[12] ^= end;
        v[14] = last ? ~v[14] : v[14];
        for (int round = 0; round < 12; round++) {
            byte[] s = SIGMA[round % 10];
            for (int i = 0; i < 4; i++) {
                mix(v, i, 4 + i, 8 + i, 12 + i, m[s[2 * i]], m[s[2 * i + 1]]);
            }
            for (int i = 0; i < 4; i++) {
                mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[s[8 + 2 * i]], m[s[9 + 2 * i]]);
            }
        }
        for (int i = 0; i < 8; i++) {
            state[i] ^= v[i] ^ v[8 + i];
        }
    }

    private static void mix(long[] v, int a, int b, int c, int d, long x, long y) {
        v[a] += v[b] + x;
        v[d] = Long.rotateRight(v[d] ^ v[a], 32);
        v[c] += v[d];
        v[b] = Long.rotateRight(v[b] ^ v[c], 24);
        v[a] += v[b] + y;
        v[d] = Long.rotateRight(v[d] ^ v[a], 16);
        v[c] += v[d];
        v[b] = Long.rotateRight(v[b] ^ v[c], 63);
    }
}
