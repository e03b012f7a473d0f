package org.rostrum.spark;

import java.nio.file.Path;
import java.util.UUID;
import org.apache.spark.SparkConf;
import org.rostrum.client.Agent;
import org.rostrum.client.RostrumException;

/** The connection to this server's agent, made again when it broke: not more often than it makes sense to ask. */
final class AgentLink implements AutoCloseable {
    private static final long RETRY_NS = 5_000_000_000L;

    private final Path socket;
    private final UUID app;
    private final String process;
    private Agent agent;
    private RostrumException failure;
    private long failedAt;

    AgentLink(SparkConf conf, UUID app, String process) {
        String given = conf.get("spark.rostrum.socket", "");
        String environment = System.getenv("ROSTRUM_SOCKET");
        if (given.isEmpty() && environment != null) {
            given = environment;
        }
        this.socket = given.isEmpty() ? Agent.SYSTEM_SOCKET : Path.of(given);
        this.app = app;
        this.process = process;
    }

    synchronized Agent get() throws RostrumException {
        if (agent != null && !agent.closed()) {
            return agent;
        }
        if (failure != null && System.nanoTime() - failedAt < RETRY_NS) {
            throw failure;
        }
        try {
            agent = Agent.connect(socket, app, process);
            failure = null;
            return agent;
        } catch (RostrumException error) {
            agent = null;
            failure = error;
            failedAt = System.nanoTime();
            throw error;
        }
    }

    @Override
    public synchronized void close() {
        if (agent != null) {
            agent.close();
        }
    }
}
