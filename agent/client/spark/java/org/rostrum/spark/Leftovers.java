package org.rostrum.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.OverlappingFileLockException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.UUID;
import java.util.function.Function;
import org.rostrum.client.Agent;
import org.rostrum.client.RostrumException;
import org.rostrum.client.Values;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Objects that a driver added stay when it is killed. So each has a file, of its user alone, that says the id of its
 * application, and is locked while the driver lives; the next driver here frees what nobody holds the lock of.
 */
final class Leftovers implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger("org.rostrum.spark");
    private static final String PREFIX = "rostrum-spark-";
    private static final int TEXT = 36; // of a UUID

    private final Path file;
    private final FileChannel channel;

    Leftovers(UUID app) throws IOException {
        file = Files.createTempFile(PREFIX, ".app"); // others may not read it
        channel = FileChannel.open(file, StandardOpenOption.WRITE);
        channel.lock();
        channel.write(ByteBuffer.wrap(app.toString().getBytes(StandardCharsets.UTF_8)));
    }

    /** Frees what killed drivers left; {@code link} connects for an application. */
    void free(Function<UUID, AgentLink> link) {
        try (DirectoryStream<Path> all = Files.newDirectoryStream(file.getParent(), PREFIX + "*.app")) {
            for (Path one : all) {
                if (!one.equals(file) && Files.isRegularFile(one, LinkOption.NOFOLLOW_LINKS)
                        && Files.getOwner(one).equals(Files.getOwner(file))) {
                    free(one, link);
                }
            }
        } catch (IOException error) {
            LOG.debug("what drivers left is not looked for: {}", error.getMessage());
        }
    }

    private static void free(Path one, Function<UUID, AgentLink> link) {
        try (FileChannel open = FileChannel.open(one, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            if (open.tryLock() == null || open.size() != TEXT) {
                return; // its driver lives, or begins just now
            }
            UUID app = UUID.fromString(Files.readString(one));
            try (AgentLink there = link.apply(app)) {
                int count = 0;
                for (Values.StoredObject object : there.get().status().objects()) {
                    if (object.app().equals(app)) {
                        delete(there.get(), object.dataId());
                        count++;
                    }
                }
                LOG.info("{} objects of a driver that was killed are freed", count);
            }
            Files.delete(one);
        } catch (IOException | OverlappingFileLockException | IllegalArgumentException error) {
            LOG.debug("{} stays: {}", one, error.toString());
        }
    }

    private static void delete(Agent agent, long id) throws RostrumException {
        try {
            agent.cancel(id);
        } catch (RostrumException over) {
            // mostly it is
        }
        agent.delete(id);
    }

    @Override
    public void close() {
        try {
            Files.deleteIfExists(file);
            channel.close();
        } catch (IOException error) {
            LOG.debug("{} stays: {}", file, error.getMessage());
        }
    }
}
