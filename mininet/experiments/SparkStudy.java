import com.sun.net.httpserver.HttpServer;
import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.OutputStream;
import java.io.Serializable;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.JavaConverters;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * The application of {@code rostrum lab run spark}: told what to do by lines, answers by lines. Ways are torrent4,
 * torrent16 (blocks of MB), rostrum and http.
 */
public final class SparkStudy {
    private final JavaSparkContext context;
    private final SparkSession session;
    private final Path folder;
    private final String address;
    private Broadcast<byte[]> kept;
    private int keptSum;

    private SparkStudy(SparkConf conf, Path folder, String address) {
        session = SparkSession.builder().config(conf).getOrCreate();
        context = new JavaSparkContext(session.sparkContext());
        this.folder = folder;
        this.address = address;
    }

    public static void main(String[] words) throws Exception {
        SparkStudy study = new SparkStudy(new SparkConf(), Path.of(words[0]), words[1]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("answer ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] told = line.split(" ");
            String answer;
            switch (told[0]) {
                case "executors" -> answer = "" + (study.session.sparkContext().getExecutorMemoryStatus().size() - 1);
                case "servers" -> answer = "" + org.rostrum.spark.RostrumPlugin.servers().size();
                case "broadcast" -> answer = study.time(told[1], Long.parseLong(told[2]), Integer.parseInt(told[3]));
                case "keep" -> answer = study.keep(Integer.parseInt(told[1]));
                case "kept" -> answer = study.kept(Integer.parseInt(told[1]));
                case "job" -> answer = study.job(told[1], told[2], Double.parseDouble(told[3]));
                default -> throw new IllegalArgumentException(line);
            }
            System.out.println("answer " + answer);
        }
        study.context.close();
    }

    private void choose(String way) {
        SparkConf conf = SparkEnv.get().conf();
        conf.set("spark.rostrum.broadcast", way.equals("rostrum") ? "auto" : "off");
        conf.set("spark.broadcast.blockSize", way.equals("torrent16") ? "16m" : "4m");
    }

    /** Where a value comes from by HTTP: as of Spark's HttpBroadcast, one file, a GET of each executor. */
    private record Page(String url) implements Serializable {
        byte[] value() throws Exception {
            try (InputStream in = URI.create(url).toURL().openStream();
                    ObjectInputStream objects = new ObjectInputStream(new BufferedInputStream(in, 1 << 20))) {
                return (byte[]) objects.readObject();
            }
        }
    }

    /** What a task of an executor does: the ms (of the machine's clock) at which it holds the value, or -1. */
    private interface Hold extends Serializable {
        long at() throws Exception;
    }

    /** A task for each executor, all at once. */
    private List<Long> hold(int executors, Hold task) {
        List<Integer> numbers = IntStream.range(0, executors).boxed().collect(Collectors.toList());
        ClassTag<Long> tag = ClassTag$.MODULE$.apply(Long.class);
        Function1<Iterator<Integer>, Iterator<Long>> run =
                (Function1<Iterator<Integer>, Iterator<Long>> & Serializable) all -> {
                    try {
                        return JavaConverters.asScalaIterator(List.of(task.at()).iterator());
                    } catch (Exception error) {
                        throw new IllegalStateException(error);
                    }
                };
        return context.parallelize(numbers, executors).rdd().barrier().mapPartitions(run, false, tag).toJavaRDD().collect();
    }

    private static long sent() throws Exception {
        long total = 0;
        for (String row : Files.readAllLines(Path.of("/proc/net/dev"))) {
            int colon = row.indexOf(':');
            if (colon > 0 && !row.substring(0, colon).trim().equals("lo")) {
                total += Long.parseLong(row.substring(colon + 1).trim().split("\\s+")[8]);
            }
        }
        return total;
    }

    /** Seconds from the call until the last executor holds the value; the driver's bytes; are all right? */
    private String time(String way, long size, int executors) throws Exception {
        byte[] value = new byte[(int) size];
        new Random(size).nextBytes(value);
        int sum = Arrays.hashCode(value);
        choose(way);
        long egress = sent();
        List<Long> ends;
        long began;
        HttpServer server = null;
        Broadcast<byte[]> broadcast = null;
        if (way.equals("http")) {
            began = System.currentTimeMillis();
            Path file = folder.resolve("http-value");
            try (OutputStream out = Files.newOutputStream(file);
                    ObjectOutputStream objects = new ObjectOutputStream(out)) {
                objects.writeObject(value);
            }
            server = HttpServer.create(new InetSocketAddress(address, 0), 100);
            server.setExecutor(Executors.newCachedThreadPool());
            server.createContext("/value", exchange -> {
                exchange.sendResponseHeaders(200, Files.size(file));
                try (OutputStream out = exchange.getResponseBody()) {
                    Files.copy(file, out);
                }
            });
            server.start();
            Page page = new Page("http://" + address + ":" + server.getAddress().getPort() + "/value");
            ends = hold(executors, () -> held(page.value(), sum));
            Files.delete(file);
        } else {
            began = System.currentTimeMillis();
            Broadcast<byte[]> one = context.broadcast(value);
            broadcast = one;
            ends = hold(executors, () -> held(one.value(), sum));
        }
        String kind = broadcast == null ? "Http" : broadcast.getClass().getSimpleName();
        long last = ends.stream().filter(at -> at > 0).max(Long::compare).orElse(began);
        boolean exact = ends.stream().allMatch(at -> at > 0);
        egress = sent() - egress;
        if (server != null) {
            server.stop(0);
        }
        if (broadcast != null) {
            broadcast.destroy(true);
        }
        return (last - began) / 1000.0 + " " + egress + " " + exact + " " + kind;
    }

    private String keep(int size) {
        byte[] value = new byte[size];
        new Random(size).nextBytes(value);
        choose("rostrum");
        kept = context.broadcast(value);
        keptSum = Arrays.hashCode(value);
        return kept.getClass().getSimpleName();
    }

    /** Does each of so many executors hold it? */
    private String kept(int executors) {
        Broadcast<byte[]> one = kept;
        int sum = keptSum;
        return "" + hold(executors, () -> held(one.value(), sum)).stream().allMatch(at -> at > 0);
    }

    private static long held(byte[] value, int sum) {
        long now = System.currentTimeMillis();
        return Arrays.hashCode(value) == sum ? now : -1;
    }

    /** Seconds of a job, and what it computed: the same by all ways. */
    private String job(String which, String way, double scale) {
        choose(way);
        long began = System.currentTimeMillis();
        double result =
                switch (which) {
                    case "word2vec" -> word2vec((int) (262_144 * scale));
                    case "lda" -> lda((int) (131_072 * scale));
                    case "joins" -> joins((long) (1_000_000 * scale));
                    default -> throw new IllegalArgumentException(which);
                };
        return (System.currentTimeMillis() - began) / 1000.0 + " " + result;
    }

    /** As Word2Vec's: the vectors of all words go to all; pairs of words move some of them. */
    private double word2vec(int words) {
        int dimensions = 64;
        float[] vectors = new float[words * dimensions];
        Random random = new Random(1);
        for (int at = 0; at < vectors.length; at++) {
            vectors[at] = random.nextFloat() - 0.5f;
        }
        double loss = 0;
        for (int turn = 0; turn < 3; turn++) {
            int seed = turn;
            Broadcast<float[]> model = context.broadcast(vectors);
            List<float[]> moves = context.parallelize(IntStream.range(0, 6).boxed().collect(Collectors.toList()), 6)
                    .map(part -> pairs(model.value(), dimensions, seed * 6 + part))
                    .collect();
            for (float[] one : moves) {
                for (int at = 0; at + dimensions < one.length; at += dimensions + 1) {
                    int word = (int) one[at];
                    for (int k = 0; k < dimensions; k++) {
                        vectors[word * dimensions + k] += one[at + 1 + k];
                        loss += one[at + 1 + k];
                    }
                }
            }
            model.destroy(false);
        }
        return loss;
    }

    private static float[] pairs(float[] vectors, int dimensions, int seed) {
        Random random = new Random(seed);
        int words = vectors.length / dimensions;
        int count = 2000;
        float[] moves = new float[count * (dimensions + 1)];
        for (int pair = 0; pair < count; pair++) {
            int a = random.nextInt(words);
            int b = random.nextInt(words);
            double dot = 0;
            for (int k = 0; k < dimensions; k++) {
                dot += vectors[a * dimensions + k] * vectors[b * dimensions + k];
            }
            float step = (float) (0.025 * (1 - 1 / (1 + Math.exp(-dot))));
            moves[pair * (dimensions + 1)] = a;
            for (int k = 0; k < dimensions; k++) {
                moves[pair * (dimensions + 1) + 1 + k] = step * vectors[b * dimensions + k];
            }
        }
        return moves;
    }

    /** As LDA's: topics by words go to all; documents give counts. */
    private double lda(int words) {
        int topics = 32;
        double[] model = new double[words * topics];
        Random random = new Random(2);
        for (int at = 0; at < model.length; at++) {
            model[at] = random.nextDouble() + 0.01;
        }
        double likelihood = 0;
        for (int turn = 0; turn < 3; turn++) {
            int seed = turn;
            Broadcast<double[]> one = context.broadcast(model);
            List<double[]> counts = context.parallelize(IntStream.range(0, 6).boxed().collect(Collectors.toList()), 6)
                    .map(part -> documents(one.value(), topics, seed * 6 + part))
                    .collect();
            for (double[] part : counts) {
                likelihood += part[topics];
                for (int at = 0; at < model.length; at += topics) {
                    model[at + at / topics % topics] += part[at / topics % topics] / words;
                }
            }
            one.destroy(false);
        }
        return likelihood;
    }

    private static double[] documents(double[] model, int topics, int seed) {
        Random random = new Random(seed);
        int words = model.length / topics;
        double[] counts = new double[topics + 1];
        for (int token = 0; token < 100_000; token++) {
            int word = random.nextInt(words);
            double sum = 0;
            for (int k = 0; k < topics; k++) {
                sum += model[word * topics + k];
            }
            for (int k = 0; k < topics; k++) {
                counts[k] += model[word * topics + k] / sum;
            }
            counts[topics] += Math.log(sum);
        }
        return counts;
    }

    /** As queries of TPC-H: line items with orders, with their customers; the smaller table goes to all. */
    private double joins(long orders) {
        Dataset<Row> items = session.range(0, orders, 1, 6)
                .select(functions.expr("(id * 7919) % " + orders + " AS orderkey"), functions.expr("id % 97 AS price"));
        Dataset<Row> order = session.range(0, orders, 1, 6)
                .select(
                        functions.expr("id AS orderkey"),
                        functions.expr("(id * 31) % " + orders / 10 + " AS custkey"),
                        functions.expr("id % 2406 AS orderdate"));
        Dataset<Row> customer = session.range(0, orders / 10, 1, 6)
                .select(functions.expr("id AS custkey"), functions.expr("id % 25 AS nation"));
        Row first = items.join(functions.broadcast(order), "orderkey")
                .join(functions.broadcast(customer), "custkey")
                .where("orderdate < 1200")
                .groupBy("nation")
                .agg(functions.sum("price").alias("revenue"))
                .agg(functions.sum("revenue"))
                .first();
        return first.getLong(0);
    }
}
