package org.rostrum.spark;

/** What this process is to the application: its driver or an executor. */
abstract class Side {
    private static volatile Side current;

    /** Of this process, by its plugin. */
    static Side current() {
        Side one = current;
        if (one == null) {
            throw new IllegalStateException(
                    "a broadcast went by rostrum, and this process does not have its plugin: spark.plugins must name"
                            + " org.rostrum.spark.RostrumPlugin for the driver and the executors alike");
        }
        return one;
    }

    static void begin(Side side) {
        current = side;
    }

    static void end(Side side) {
        if (current == side) {
            current = null;
        }
    }

    /** Why, for a log. */
    static String text(Throwable error) {
        String said = error.getMessage();
        boolean known = error instanceof java.io.IOException || error instanceof IllegalStateException
                || error instanceof IllegalArgumentException;
        return known && said != null ? said : error.toString();
    }

    abstract <T> T value(RostrumBroadcast<T> of);
}
