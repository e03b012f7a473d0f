package org.rostrum.spark;

import java.util.List;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Large broadcast values go by rostrum, from the driver to all executors' servers at once:
 * {@code spark.plugins=org.rostrum.spark.RostrumPlugin}.
 */
public final class RostrumPlugin implements SparkPlugin {
    /** As Spark makes it. */
    public RostrumPlugin() {}

    @Override
    public DriverPlugin driverPlugin() {
        return new DriverSide();
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new ExecutorSide();
    }

    private static DriverSide driver() {
        if (Side.current() instanceof DriverSide driver) {
            return driver;
        }
        throw new IllegalStateException("this is for programs in the driver");
    }

    /**
     * For programs in the driver.
     *
     * @return servers that executors are on, as their agents say; without the driver's
     */
    public static List<String> servers() {
        return driver().servers();
    }

    /**
     * Executors that cannot get what a program sends by itself.
     *
     * @return how many have no agent
     */
    public static int executorsWithoutAgents() {
        return driver().executorsWithoutAgents();
    }

    /**
     * Under which the application's objects are, for programs that add their own.
     *
     * @return a UUID
     */
    public static String app() {
        return driver().app();
    }

    /**
     * Names an object that the program is about to add.
     *
     * @return its dataID
     */
    public static long newObject() {
        return driver().newObject();
    }

    /**
     * Sends an object that the program added, to all executors' servers, and to those of executors that come later.
     *
     * @param id of {@link #newObject}
     */
    public static void send(long id) {
        driver().sendObject(id);
    }

    /**
     * Frees it, everywhere.
     *
     * @param id of {@link #newObject}
     */
    public static void free(long id) {
        driver().unpersist(id, true);
    }
}
