package org.rostrum.spark;

/** Those of this plugin: a program ends without them. */
final class Threads {
    private Threads() {}

    static Thread daemon(Runnable what) {
        Thread thread = new Thread(what, "rostrum-spark");
        thread.setDaemon(true);
        return thread;
    }
}
