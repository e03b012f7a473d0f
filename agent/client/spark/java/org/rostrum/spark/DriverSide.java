package org.rostrum.spark;

import com.codahale.metrics.Counter;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.lang.ref.SoftReference;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.python.PythonBroadcast;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.broadcast.BroadcastFactory;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.rostrum.client.Agent;
import org.rostrum.client.CreatedFile;
import org.rostrum.client.ReadObject;
import org.rostrum.client.RostrumException;
import org.rostrum.client.Send;
import org.rostrum.client.SendOptions;
import org.rostrum.client.Values;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.reflect.ClassTag;

/** The driver's part: sends values, answers executors, frees what is over. */
final class DriverSide extends Side implements DriverPlugin {
    static final List<String> SPARK_TRIED = List.of("3.5", "4.0", "4.1", "4.2", "4.3");
    private static final long OBJECTS = 1L << 48; // from here on those that are no broadcasts of Spark's
    private static final String MODE = "spark.rostrum.broadcast";
    private static final int LAST_TRIES = 30;
    private static final Logger LOG = LoggerFactory.getLogger("org.rostrum.spark");
    private static final String[] SECRET = {
        "spark.io.encryption.enabled", "spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption",
        "spark.ssl.rpc.enabled"
    };

    /** A value that went by rostrum. */
    private final class Sent<T> {
        final RostrumBroadcast<T> twin; // not the one that the program has: Spark sees when nobody has that any more
        private T strong; // until the agent's copy is open here
        private SoftReference<T> soft;
        private ReadObject copy; // stays readable if the agent ends
        private Broadcast<T> bySpark;
        private boolean over;
        private boolean sending;
        private final Set<String> late = new HashSet<>();

        Sent(RostrumBroadcast<T> twin, T value) {
            this.twin = twin;
            this.strong = value;
        }

        synchronized T value() {
            T one = strong != null ? strong : soft.get();
            if (one == null) {
                try (ReadObject again = link.get().read(twin.id(), null)) {
                    one = twin.from(again.channel(), again.size());
                } catch (IOException error) {
                    one = fromCopy(error);
                }
                soft = new SoftReference<>(one);
            }
            return one;
        }

        private T fromCopy(IOException why) {
            if (copy == null) {
                throw new UncheckedIOException("the value of broadcast " + twin.id() + " is lost", why);
            }
            try {
                return twin.from(copy.channel(), copy.size());
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        /** The value needs no memory of this process any more, if it is short. */
        synchronized void opened(ReadObject read) {
            if (over) {
                read.close();
                return;
            }
            copy = read;
            soft = new SoftReference<>(strong);
            strong = null;
        }

        /** The same value by Spark's own means, for executors that cannot have it otherwise. */
        synchronized Broadcast<T> bySpark() {
            if (bySpark == null) {
                bySpark = spark.newBroadcast(value(), false, twin.id(), true, twin.tag());
            }
            return bySpark;
        }

        /** Is no send under way? Else it is among those of the next. */
        synchronized boolean addLate(String server) {
            if (sending) {
                late.add(server);
                return false;
            }
            sending = true;
            return true;
        }

        /** A send is over: those of the next. */
        synchronized List<String> lateOnes() {
            List<String> next = over ? List.of() : List.copyOf(late);
            late.clear();
            sending = !next.isEmpty();
            return next;
        }

        synchronized void end() {
            over = true;
            if (copy != null) {
                copy.close();
            }
        }
    }

    private final Counter byRostrum = new Counter();
    private final Counter bytes = new Counter();
    private final Counter small = new Counter();
    private final Counter fallbacks = new Counter();
    private final Counter incomplete = new Counter();
    private final Counter executorFallbacks = new Counter();
    private final Map<Long, Sent<?>> values = new ConcurrentHashMap<>();
    private final Map<Long, Boolean> deleting = new ConcurrentHashMap<>();
    private final ExecutorService waiters = Executors.newCachedThreadPool(Threads::daemon);
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(Threads::daemon);
    private final UUID app = UUID.randomUUID();
    private final AtomicLong objects = new AtomicLong();
    private BroadcastTable table;
    private AgentLink link;
    private Leftovers leftovers;
    private BroadcastFactory spark;
    private boolean compressed;
    private long threshold;
    private String saidLast = "";

    @Override
    public Map<String, String> init(SparkContext context, PluginContext plugin) {
        SparkConf conf = context.conf();
        try {
            String mode = conf.get(MODE, "auto");
            if (!List.of("auto", "always", "off").contains(mode)) {
                throw new IllegalArgumentException(
                        "spark.rostrum.broadcast is auto, always or off, not " + mode);
            }
            if (mode.equals("off")) {
                return Map.of();
            }
            refuseWhatDoesNotFit(context.version(), conf);
            compressed = conf.getBoolean("spark.broadcast.compress", true);
            threshold = conf.getSizeAsBytes("spark.rostrum.threshold", "1m");
            link = new AgentLink(conf, app, "spark-driver " + context.appName());
            table = new BroadcastTable(link.get().server());
            spark = RostrumBroadcastFactory.install(SparkEnv.get().broadcastManager(), this);
        } catch (RostrumException | ReflectiveOperationException | RuntimeException | LinkageError error) {
            LOG.warn("broadcasts go by Spark's own means: {}", text(error));
            return Map.of();
        }
        Side.begin(this);
        rememberApp(conf);
        context.addSparkListener(new SparkListener() {
            @Override
            public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
                table.executorGone(event.executorId());
            }
        });
        timer.scheduleWithFixedDelay(this::deleteAgain, 1, 1, TimeUnit.SECONDS);
        LOG.info("broadcasts from {} bytes on go by rostrum, from server {}", threshold, serverName());
        return Map.of("app", app.toString());
    }

    /** Raises IllegalStateException, which says what would permit it: a Spark that was not tried, or secrets. */
    static void refuseWhatDoesNotFit(String version, SparkConf conf) {
        if (SPARK_TRIED.stream().noneMatch(one -> version.startsWith(one + "."))
                && !conf.getBoolean("spark.rostrum.anyVersion", false)) {
            throw new IllegalStateException("this is Spark " + version + ", and " + String.join(", ", SPARK_TRIED)
                    + " are what was tried; spark.rostrum.anyVersion=true tries another");
        }
        for (String key : SECRET) {
            if (conf.getBoolean(key, false) && !conf.getBoolean("spark.rostrum.unencrypted", false)) {
                throw new IllegalStateException(key + " is set, and agents encrypt only where the topology says"
                        + " security: required; spark.rostrum.unencrypted=true permits it");
            }
        }
    }

    private void rememberApp(SparkConf conf) {
        try {
            leftovers = new Leftovers(app);
            waiters.execute(() -> leftovers.free(one -> new AgentLink(conf, one, "spark-driver: what another left")));
        } catch (IOException error) {
            LOG.warn("objects stay if this driver is killed: {}", error.toString());
        }
    }

    private String serverName() {
        try {
            return link.get().server();
        } catch (RostrumException error) {
            return "?";
        }
    }

    @Override
    public void registerMetrics(String appId, PluginContext plugin) {
        plugin.metricRegistry().register("broadcasts", byRostrum);
        plugin.metricRegistry().register("bytes", bytes);
        plugin.metricRegistry().register("leftToSpark", small);
        plugin.metricRegistry().register("fallbacks", fallbacks);
        plugin.metricRegistry().register("incompleteSends", incomplete);
        plugin.metricRegistry().register("executorFallbacks", executorFallbacks);
    }

    List<String> servers() {
        return table.servers();
    }

    int executorsWithoutAgents() {
        return table.executorsWithoutAgents();
    }

    String app() {
        return app.toString();
    }

    long newObject() {
        return OBJECTS | objects.incrementAndGet();
    }

    /** What a program added: executors that come later get it when they come, as they cannot ask for it. */
    void sendObject(long id) {
        List<String> to = table.servers();
        Sent<Object> sent = new Sent<>(null, null);
        sent.sending = !to.isEmpty();
        table.sending(id, to);
        values.put(id, sent);
        if (!to.isEmpty()) {
            sendAgain(id, to, sent);
        }
    }

    private void sendTo(String server) {
        values.forEach((id, sent) -> {
            if (sent.twin == null && !server.isEmpty() && table.isMissing(id, server)) {
                sendLate(id, server, sent);
            }
        });
    }

    private void sendLate(long id, String server, Sent<?> sent) {
        table.expect(id, server);
        if (sent.addLate(server)) {
            sendAgain(id, List.of(server), sent);
        }
    }

    /** Sends it; null: it is one for Spark's own means. */
    <T> Broadcast<T> broadcast(T value, long id, boolean serializedOnly, ClassTag<T> tag) {
        String mode = SparkEnv.get().conf().get(MODE, "auto"); // read each time: a program may change it
        List<String> to = table.servers();
        if (mode.equals("off") || (!mode.equals("always") && to.size() < 2) || knownSize(value) < threshold) {
            small.inc();
            return null;
        }
        try {
            Agent agent = link.get();
            char kind = compressed ? Raw.NONE : Raw.kind(value);
            CreatedFile file = kind == Raw.NONE ? written(agent, value, tag) : raw(agent, value);
            if (file == null) {
                small.inc();
                return null;
            }
            start(agent, id, file, to, new Sent<>(new RostrumBroadcast<>(id, tag, compressed, kind), value));
            byRostrum.inc();
            bytes.inc(file.size());
            return new RostrumBroadcast<>(id, tag, compressed, kind);
        } catch (IOException error) {
            fallbacks.inc();
            tell("broadcast " + id + " goes by Spark's own means: " + text(error));
            return null;
        }
    }

    /** A file with an array; null: it is a small one. */
    private CreatedFile raw(Agent agent, Object array) throws IOException {
        long size = Raw.size(array);
        if (size < threshold) {
            return null;
        }
        CreatedFile file = agent.create(size);
        try {
            Raw.write(array, file.channel());
            return file;
        } catch (IOException | RuntimeException error) {
            file.close();
            throw error;
        }
    }

    /** A file with the value serialized; null: it is a small one. */
    private <T> CreatedFile written(Agent agent, T value, ClassTag<T> tag) throws IOException {
        Chunks data = new Chunks();
        Counted counted = new Counted();
        boolean twice = !compressed && knownSize(value) < Long.MAX_VALUE; // takes less time than to keep it meanwhile
        RostrumBroadcast.serialize(value, compressed, tag, twice ? counted : data);
        long size = twice ? counted.size() : data.size();
        if (size < threshold) {
            return null;
        }
        CreatedFile file = agent.create(size);
        try (OutputStream out = Mapped.output(file.channel(), size)) {
            if (twice) {
                RostrumBroadcast.serialize(value, false, tag, out);
            } else {
                data.writeTo(out);
            }
            return file;
        } catch (IOException | RuntimeException error) {
            file.close();
            throw error;
        }
    }

    private void start(Agent agent, long id, CreatedFile file, List<String> to, Sent<?> sent) throws IOException {
        if (to.isEmpty()) {
            agent.add(id, file);
        }
        sent.sending = !to.isEmpty();
        table.sending(id, to);
        values.put(id, sent);
        if (to.isEmpty()) {
            waiters.execute(() -> opened(agent, id, sent));
            return;
        }
        try {
            Send send = agent.send(id, to, SendOptions.USUAL, file);
            waiters.execute(() -> await(agent, id, to, sent, send));
        } catch (RostrumException error) {
            table.forget(id);
            values.remove(id);
            throw error;
        }
    }

    private void opened(Agent agent, long id, Sent<?> sent) {
        try {
            sent.opened(agent.read(id, Duration.ofSeconds(30)));
        } catch (RostrumException error) {
            LOG.debug("the value of broadcast {} stays in this process: {}", id, error.getMessage());
        }
    }

    private void await(Agent agent, long id, List<String> to, Sent<?> sent, Send send) {
        String failure = "";
        try {
            Values.SendResult result = send.await().orThrow();
            LOG.info("broadcast {}: {} bytes to {} servers by {} ({}) in {} ms", id, result.size(), to.size(),
                    result.path(), result.protocol(), (result.doneNs() - result.requestedNs()) / 1_000_000);
        } catch (RostrumException error) {
            failure = error.getMessage();
            if (values.containsKey(id)) {
                incomplete.inc();
                tell("broadcast " + id + " did not reach all servers: " + failure);
            }
        }
        table.sent(id, to, failure);
        if (values.containsKey(id) && sent.twin != null) {
            opened(agent, id, sent);
        }
        List<String> late = sent.lateOnes();
        if (!late.isEmpty()) {
            sendAgain(id, late, sent);
        }
    }

    /** To servers that were not there, and did not find who gives it to them. */
    private void sendAgain(long id, List<String> to, Sent<?> sent) {
        try {
            Agent agent = link.get();
            Send send = agent.send(id, to);
            waiters.execute(() -> await(agent, id, to, sent, send));
        } catch (RostrumException error) {
            table.sent(id, to, error.getMessage());
            sent.lateOnes();
        }
    }

    private synchronized void tell(String text) {
        if (!text.replaceAll("\\d+", "").equals(saidLast)) {
            saidLast = text.replaceAll("\\d+", "");
            LOG.warn(text);
        } else {
            LOG.debug(text);
        }
    }

    private static long knownSize(Object value) {
        if (value instanceof byte[] array) {
            return array.length;
        }
        if (value instanceof PythonBroadcast python) {
            try {
                return Files.size(Path.of(python.path()));
            } catch (IOException | RuntimeException error) {
                return Long.MAX_VALUE;
            }
        }
        return Long.MAX_VALUE;
    }

    @Override
    @SuppressWarnings("unchecked")
    <T> T value(RostrumBroadcast<T> of) {
        Sent<T> sent = (Sent<T>) values.get(of.id());
        if (sent == null) {
            throw new IllegalStateException("broadcast " + of.id() + " was destroyed");
        }
        return sent.value();
    }

    /** Objects on executors' servers go when those ask next. */
    void unpersist(long id, boolean destroy) {
        if (!values.containsKey(id)) {
            return;
        }
        if (destroy) {
            Sent<?> sent = values.remove(id);
            table.forget(id);
            if (sent != null) {
                sent.end();
            }
            deleting.put(id, true);
            waiters.execute(() -> delete(id));
        } else {
            table.unpersist(id);
        }
    }

    private void delete(long id) {
        try {
            Agent agent = link.get();
            try {
                agent.cancel(id);
            } catch (RostrumException over) {
                // mostly it is
            }
            agent.delete(id);
            deleting.remove(id);
        } catch (RostrumException error) {
            if (error.code() != RostrumException.Code.BUSY) {
                deleting.remove(id); // it went with the agent
            }
        }
    }

    private void deleteAgain() {
        deleting.keySet().forEach(this::delete);
    }

    @Override
    public Object receive(Object message) {
        // Of the JDK's types alone: Spark's messages do not know the classes of --jars.
        Map<?, ?> asked = (Map<?, ?>) message;
        String server = String.valueOf(asked.get("server"));
        Map<String, Object> answer = new HashMap<>();
        if (table == null) {
            return answer;
        }
        switch (String.valueOf(asked.get("op"))) {
            case "here" -> {
                table.executorHere(String.valueOf(asked.get("executor")), server);
                waiters.execute(() -> sendTo(server));
            }
            case "held" -> {
                List<Long> ids = new ArrayList<>();
                ((Collection<?>) asked.get("ids")).forEach(id -> ids.add((Long) id));
                answer.put("drop", new ArrayList<>(table.held(server, ids)));
            }
            case "find" -> {
                BroadcastTable.Place place = table.find((Long) asked.get("id"), server);
                answer.put("known", place.known());
                answer.put("coming", place.coming());
                answer.put("failure", place.failure());
            }
            case "send" -> {
                long id = (Long) asked.get("id");
                Sent<?> sent = values.get(id);
                if (sent != null) {
                    sendLate(id, server, sent);
                }
            }
            case "spark" -> {
                long id = (Long) asked.get("id");
                Sent<?> sent = values.get(id);
                executorFallbacks.inc();
                tell("executor " + asked.get("executor") + " gets broadcast " + id + " by Spark's own means: "
                        + asked.get("why"));
                answer.put("broadcast", sent == null ? null : sent.bySpark());
            }
            default -> throw new IllegalArgumentException("an executor asked for " + asked.get("op"));
        }
        return answer;
    }

    @Override
    public void shutdown() {
        if (link == null) {
            return;
        }
        timer.shutdownNow();
        values.keySet().forEach(id -> {
            Sent<?> sent = values.remove(id);
            if (sent != null) {
                sent.end();
                deleting.put(id, true);
            }
        });
        try {
            deleteAgain();
            for (int tries = 0; !deleting.isEmpty() && tries < LAST_TRIES; tries++) { // sends are being cancelled
                TimeUnit.MILLISECONDS.sleep(100);
                deleteAgain();
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        waiters.shutdown();
        if (leftovers != null && deleting.isEmpty()) {
            leftovers.close();
        }
        Side.end(this);
        link.close();
    }
}
