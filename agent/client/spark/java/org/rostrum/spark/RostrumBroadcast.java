package org.rostrum.spark;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.ObjectOutputStream;
import java.io.OutputStream;
import java.lang.ref.Reference;
import java.lang.ref.SoftReference;
import java.nio.channels.FileChannel;
import org.apache.spark.SparkEnv;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.io.CompressionCodec$;
import org.apache.spark.serializer.DeserializationStream;
import org.apache.spark.serializer.SerializationStream;
import scala.reflect.ClassTag;

/**
 * A broadcast value that is an object of the agents: what goes with tasks is its number. Public as code that Spark SQL
 * generates names its class.
 *
 * @param <T> of the value
 */
public final class RostrumBroadcast<T> extends Broadcast<T> {
    private static final long serialVersionUID = 1L;

    /** Of the value. */
    private final ClassTag<T> tag;
    /** As the driver's settings say. */
    private final boolean compressed;
    /** Raw's: of an array that is not serialized. */
    private final char kind;

    private transient Reference<T> known;

    RostrumBroadcast(long id, ClassTag<T> tag, boolean compressed, char kind) {
        super(id, tag);
        this.tag = tag;
        this.compressed = compressed;
        this.kind = kind;
    }

    ClassTag<T> tag() {
        return tag;
    }

    @Override
    public synchronized T getValue() {
        T value = known == null ? null : known.get();
        if (value == null) {
            value = Side.current().value(this);
            known = new SoftReference<>(value);
        }
        return value;
    }

    @Override
    public void doUnpersist(boolean blocking) {
        SparkEnv.get().broadcastManager().unbroadcast(id(), false, blocking);
    }

    @Override
    public void doDestroy(boolean blocking) {
        SparkEnv.get().broadcastManager().unbroadcast(id(), true, blocking);
    }

    private void writeObject(ObjectOutputStream out) throws IOException {
        assertValid();
        out.defaultWriteObject();
    }

    static <T> void serialize(T value, boolean compressed, ClassTag<T> tag, OutputStream to) {
        SparkEnv env = SparkEnv.get();
        OutputStream out = compressed ? CompressionCodec$.MODULE$.createCodec(env.conf()).compressedOutputStream(to) : to;
        try (SerializationStream stream = env.serializer().newInstance().serializeStream(out)) {
            stream.writeObject(value, tag);
        }
    }

    /** The value of an object's file. */
    @SuppressWarnings("unchecked")
    T from(FileChannel file, long size) throws IOException {
        if (kind != Raw.NONE) {
            return (T) Raw.read(kind, file, size);
        }
        SparkEnv env = SparkEnv.get();
        InputStream plain = new BufferedInputStream(Mapped.input(file, size), 1 << 16);
        InputStream in =
                compressed ? CompressionCodec$.MODULE$.createCodec(env.conf()).compressedInputStream(plain) : plain;
        try (DeserializationStream stream = env.serializer().newInstance().deserializeStream(in)) {
            return stream.readObject(tag);
        }
    }
}
