package org.rostrum.spark;

import com.codahale.metrics.Counter;
import com.codahale.metrics.Timer;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.BlockResult;
import org.apache.spark.storage.BroadcastBlockId;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.util.TaskCompletionListener;
import org.rostrum.client.Agent;
import org.rostrum.client.ReadObject;
import org.rostrum.client.RostrumException;
import org.rostrum.client.Values;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/** An executor's part: reads values from its server's agent, fetches those that are not there, frees what is over. */
final class ExecutorSide extends Side implements ExecutorPlugin {
    private static final Logger LOG = LoggerFactory.getLogger("org.rostrum.spark");
    private static final long PERIOD_MS = 1000;
    private static final Duration SLICE = Duration.ofSeconds(2); // then the driver is asked how the send goes
    private static final int LAST_TRIES = 60; // 100 ms apart; after 10 s a worker kills its executor

    private final Counter reads = new Counter();
    private final Counter fetches = new Counter();
    private final Counter fallbacks = new Counter();
    private final Timer readTime = new Timer();
    private final Map<Long, WeakReference<Object>> values = new ConcurrentHashMap<>();
    private final Map<Long, Object> locks = new ConcurrentHashMap<>();
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(Threads::daemon);
    private PluginContext plugin;
    private AgentLink link;
    private Duration timeout;
    private String server = "";
    private String announced;
    private boolean told;
    private Thread hook;

    @Override
    public void init(PluginContext context, Map<String, String> given) {
        String app = given == null ? null : given.get("app");
        if (app == null) {
            return; // the driver does without
        }
        plugin = context;
        timeout = Duration.ofSeconds(context.conf().getTimeAsSeconds("spark.rostrum.timeout", "120s"));
        context.metricRegistry().register("reads", reads);
        context.metricRegistry().register("fetches", fetches);
        context.metricRegistry().register("fallbacks", fallbacks);
        context.metricRegistry().register("readTime", readTime);
        link = new AgentLink(context.conf(), UUID.fromString(app), "spark-executor " + context.executorID());
        announce();
        Side.begin(this);
        hook = new Thread(this::freeAll, "rostrum-spark-end");
        Runtime.getRuntime().addShutdownHook(hook);
        timer.scheduleWithFixedDelay(this::look, PERIOD_MS, PERIOD_MS, TimeUnit.MILLISECONDS);
    }

    /** The driver knows this executor's server, or that it has none. */
    private void announce() {
        try {
            server = link.get().server();
        } catch (RostrumException error) {
            if (announced == null) {
                LOG.warn("broadcasts come by Spark's own means: {}", error.getMessage());
            }
            server = "";
        }
        if (!server.equals(announced)) {
            try {
                ask("here", Map.of());
                announced = server;
            } catch (IOException error) {
                LOG.warn("the driver does not know of server {}: {}", server, error.getMessage());
            }
        }
    }

    private Map<?, ?> ask(String what, Map<String, Object> more) throws IOException {
        Map<String, Object> message = new HashMap<>(more);
        message.put("op", what);
        message.put("server", server);
        message.put("executor", plugin.executorID());
        try {
            return (Map<?, ?>) plugin.ask(message);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted", error);
        } catch (Exception error) {
            throw new IOException("the driver did not answer: " + error.getMessage(), error);
        }
    }

    /** Each second: what is here of this application, and is it needed? */
    private void look() {
        try {
            values.values().removeIf(value -> value.get() == null);
            locks.keySet().retainAll(values.keySet());
            announce();
            if (server.isEmpty()) {
                return;
            }
            Agent agent = link.get();
            List<Long> ids = objects(agent, false);
            if (ids.isEmpty() && !told) {
                return;
            }
            Map<?, ?> answer = ask("held", Map.of("ids", new ArrayList<>(ids)));
            told = !ids.isEmpty();
            for (Object id : (Collection<?>) answer.get("drop")) {
                drop(agent, (Long) id);
            }
        } catch (IOException | RuntimeException error) {
            LOG.debug("objects are looked through later: {}", error.getMessage());
        }
    }

    /** Of this application on this server, with those that are still being received or without them. */
    private static List<Long> objects(Agent agent, boolean coming) throws RostrumException {
        List<Long> ids = new ArrayList<>();
        for (Values.StoredObject one : agent.status().objects()) {
            if ((one.complete() || coming) && one.app().equals(agent.app())) {
                ids.add(one.dataId());
            }
        }
        return ids;
    }

    private boolean drop(Agent agent, long id) {
        values.remove(id);
        locks.remove(id);
        try {
            agent.delete(id);
            return true;
        } catch (RostrumException error) {
            return error.code() != RostrumException.Code.BUSY;
        }
    }

    @Override
    @SuppressWarnings("unchecked")
    <T> T value(RostrumBroadcast<T> of) {
        synchronized (locks.computeIfAbsent(of.id(), id -> new Object())) {
            WeakReference<Object> known = values.get(of.id());
            Object value = known == null ? null : known.get();
            BroadcastBlockId block = new BroadcastBlockId(of.id(), "");
            BlockManager blocks = SparkEnv.get().blockManager();
            if (value == null) {
                value = kept(blocks, block);
            }
            if (value == null) {
                try {
                    value = get(of);
                } catch (IOException error) {
                    return bySpark(of, error);
                }
                if (!blocks.putSingle(block, (T) value, StorageLevel.MEMORY_AND_DISK(), false, of.tag())) {
                    LOG.debug("Spark has no room to keep broadcast {}", of.id());
                }
            }
            values.put(of.id(), new WeakReference<>(value));
            return (T) value;
        }
    }

    private static Object kept(BlockManager blocks, BroadcastBlockId block) {
        Option<BlockResult> found = blocks.getLocalValues(block);
        if (found.isEmpty()) {
            return null;
        }
        Object value = found.get().data().hasNext() ? found.get().data().next() : null;
        TaskContext task = TaskContext.get();
        if (task == null) {
            blocks.releaseLock(block, Option.empty());
        } else { // as Spark does: it is not thrown out while the task uses it
            task.addTaskCompletionListener((TaskCompletionListener) ended -> blocks.releaseLock(block, Option.empty()));
        }
        return value;
    }

    private <T> T get(RostrumBroadcast<T> of) throws IOException {
        long began = System.nanoTime();
        long fetchedBefore = fetches.getCount();
        try (ReadObject object = object(link.get(), of.id())) {
            T value = of.from(object.channel(), object.size());
            reads.inc();
            LOG.info("broadcast {}: {} bytes read in {} ms{}", of.id(), object.size(),
                    (System.nanoTime() - began) / 1_000_000,
                    fetches.getCount() > fetchedBefore ? ", fetched from those that have it" : "");
            return value;
        } finally {
            readTime.update(System.nanoTime() - began, TimeUnit.NANOSECONDS);
        }
    }

    private ReadObject object(Agent agent, long id) throws IOException {
        try {
            return agent.read(id, null);
        } catch (RostrumException error) {
            if (!maybeLater(error)) {
                throw error;
            }
        }
        long until = System.nanoTime() + timeout.toNanos();
        boolean fetched = false;
        boolean sent = false;
        while (true) {
            Map<?, ?> place = ask("find", Map.of("id", id));
            if (!Boolean.TRUE.equals(place.get("known"))) {
                throw new IllegalStateException("broadcast " + id + " was destroyed");
            }
            try {
                if (Boolean.TRUE.equals(place.get("coming"))) {
                    return agent.read(id, SLICE);
                }
                if (!fetched) { // the manager knows who has it
                    fetched = true;
                    ReadObject object = agent.fetch(id, List.of(), timeout);
                    fetches.inc();
                    return object;
                }
                if (sent) {
                    return agent.read(id, null);
                }
                sent = true;
                ask("send", Map.of("id", id));
            } catch (RostrumException error) {
                String first = String.valueOf(place.get("failure"));
                IOException why = first.isEmpty() ? error : new IOException(first + "; " + error.getMessage(), error);
                boolean coming = Boolean.TRUE.equals(place.get("coming"));
                if ((coming && !maybeLater(error)) || (sent && !coming) || System.nanoTime() > until) {
                    throw why;
                }
            }
        }
    }

    private static boolean maybeLater(RostrumException error) {
        return switch (error.code()) {
            case TIMEOUT, UNKNOWN, BUSY -> true;
            default -> false;
        };
    }

    @SuppressWarnings("unchecked")
    private <T> T bySpark(RostrumBroadcast<T> of, IOException why) {
        LOG.warn("broadcast {} comes by Spark's own means: {}", of.id(), why.getMessage());
        fallbacks.inc();
        try {
            Object other = ask("spark", Map.of("id", of.id(), "why", String.valueOf(why.getMessage()))).get("broadcast");
            if (other == null) {
                throw new IllegalStateException("broadcast " + of.id() + " was destroyed");
            }
            return ((Broadcast<T>) other).value();
        } catch (IOException error) {
            error.addSuppressed(why);
            throw new UncheckedIOException(error);
        }
    }

    /** The application ends here. Another executor of this server gets again what it has not read yet. */
    private void freeAll() {
        try {
            Agent agent = link.get();
            boolean busy = true;
            for (int tries = 0; busy && tries < LAST_TRIES; tries++) {
                busy = false;
                for (long id : objects(agent, true)) { // what is on its way is busy until it is here
                    busy |= !drop(agent, id);
                }
                if (busy) {
                    TimeUnit.MILLISECONDS.sleep(100);
                }
            }
        } catch (RostrumException error) {
            LOG.debug("objects stay here: {}", error.getMessage());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void shutdown() {
        if (link == null) {
            return;
        }
        timer.shutdownNow();
        Side.end(this);
        freeAll();
        try {
            Runtime.getRuntime().removeShutdownHook(hook);
        } catch (IllegalStateException already) {
            // the process ends: the hook runs too, and finds nothing
        }
        link.close();
    }
}
