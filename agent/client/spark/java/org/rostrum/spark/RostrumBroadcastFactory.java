package org.rostrum.spark;

import java.lang.reflect.Field;
import org.apache.spark.SparkConf;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.broadcast.BroadcastFactory;
import org.apache.spark.broadcast.BroadcastManager;
import scala.reflect.ClassTag;

/** In the place of Spark's own factory, which gets what does not go by rostrum. */
final class RostrumBroadcastFactory implements BroadcastFactory {
    private final DriverSide driver;
    private final BroadcastFactory spark;

    private RostrumBroadcastFactory(DriverSide driver, BroadcastFactory spark) {
        this.driver = driver;
        this.spark = spark;
    }

    /** Spark has no setting for this since 2.0: the field of its manager is set. Gives Spark's own. */
    static BroadcastFactory install(BroadcastManager manager, DriverSide driver) throws ReflectiveOperationException {
        Field field = BroadcastManager.class.getDeclaredField("broadcastFactory");
        field.setAccessible(true);
        BroadcastFactory spark = (BroadcastFactory) field.get(manager);
        field.set(manager, new RostrumBroadcastFactory(driver, spark));
        return spark;
    }

    @Override
    public void initialize(boolean isDriver, SparkConf conf) {}

    @Override
    public <T> Broadcast<T> newBroadcast(T value, boolean isLocal, long id, boolean serializedOnly, ClassTag<T> tag) {
        Broadcast<T> ours = isLocal ? null : driver.broadcast(value, id, serializedOnly, tag);
        return ours != null ? ours : spark.newBroadcast(value, isLocal, id, serializedOnly, tag);
    }

    @Override
    public void unbroadcast(long id, boolean removeFromDriver, boolean blocking) {
        driver.unpersist(id, removeFromDriver);
        spark.unbroadcast(id, removeFromDriver, blocking); // executors' values are Spark's blocks
    }

    @Override
    public void stop() {
        spark.stop();
    }
}
