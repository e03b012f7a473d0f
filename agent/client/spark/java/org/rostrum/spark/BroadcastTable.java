package org.rostrum.spark;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/**
 * What the driver knows: on which server each executor is, and which servers get which object. Thread-safe; it asks
 * nobody and waits for nothing.
 */
final class BroadcastTable {
    private static final class Entry {
        final Set<String> expected = new HashSet<>(); // a send is under way to them
        final Set<String> told = new HashSet<>(); // it was sent to them, whatever came of it
        final Set<String> unwanted = new HashSet<>(); // they hold it since before an unpersist
        String failure = "";
    }

    /** Where an executor gets an object from. */
    record Place(boolean known, boolean coming, String failure) {}

    private final String driver;
    private final Map<String, String> executors = new HashMap<>();
    private final Map<Long, Entry> entries = new HashMap<>();

    BroadcastTable(String driver) {
        this.driver = driver;
    }

    synchronized void executorHere(String executor, String server) {
        executors.put(executor, server);
    }

    synchronized void executorGone(String executor) {
        executors.remove(executor);
    }

    /** Servers that executors with agents are on; the driver's is not among them. */
    synchronized List<String> servers() {
        Set<String> names = new TreeSet<>(executors.values());
        names.remove("");
        names.remove(driver);
        return List.copyOf(names);
    }

    synchronized int executorsWithoutAgents() {
        return (int) executors.values().stream().filter(String::isEmpty).count();
    }

    synchronized void sending(long id, Collection<String> servers) {
        Entry entry = new Entry();
        entry.expected.addAll(servers);
        entry.told.addAll(servers);
        entries.put(id, entry);
    }

    /** A server that was not there asked for it to be sent. */
    synchronized void expect(long id, String server) {
        Entry entry = entries.get(id);
        if (entry != null) {
            entry.expected.add(server);
            entry.told.add(server);
        }
    }

    synchronized void sent(long id, Collection<String> to, String failure) {
        Entry entry = entries.get(id);
        if (entry != null) {
            entry.expected.removeAll(to);
            entry.failure = failure;
        }
    }

    /** It was never sent to that server, nor is it the driver's. */
    synchronized boolean isMissing(long id, String server) {
        Entry entry = entries.get(id);
        return entry != null && !server.equals(driver) && !entry.told.contains(server);
    }

    synchronized Place find(long id, String server) {
        Entry entry = entries.get(id);
        if (entry == null) {
            return new Place(false, false, "");
        }
        entry.unwanted.remove(server);
        return new Place(true, server.equals(driver) || entry.expected.contains(server), entry.failure);
    }

    /** An executor's server has these objects of the application: those that nobody needs there. */
    synchronized List<Long> held(String server, Collection<Long> ids) {
        List<Long> drop = new ArrayList<>();
        for (long id : ids) {
            Entry entry = entries.get(id);
            if (entry == null || (entry.unwanted.contains(server) && !server.equals(driver))) {
                drop.add(id);
            }
        }
        entries.forEach((id, entry) -> {
            if (!ids.contains(id)) {
                entry.unwanted.remove(server); // it dropped it, as it was told
            }
        });
        return drop;
    }

    /** Executors need it no more, until one asks again. */
    synchronized void unpersist(long id) {
        Entry entry = entries.get(id);
        if (entry != null) {
            entry.unwanted.addAll(executors.values());
            entry.expected.clear();
        }
    }

    synchronized boolean forget(long id) {
        return entries.remove(id) != null;
    }
}
