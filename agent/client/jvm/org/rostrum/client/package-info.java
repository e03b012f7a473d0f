/**
 * The client of the rostrum agent on this server, in plain Java 17: objects, streams and message groups.
 *
 * <p>Messages go over the agent's framed socket (docs/application-interface.md), objects lie in files that are mapped:
 * one copy for all programs of a server. Sizes are bytes, times are {@link java.time.Duration} or, of what the agent
 * tells, ns since the epoch (0: has not happened).
 *
 * <pre>{@code
 * try (Agent agent = Agent.connect(app)) {
 *     agent.send(7, List.of("h3", "h5"), bytes).await().orThrow();
 * }
 * try (Agent agent = Agent.connect(app); ReadObject object = agent.read(7, Duration.ofSeconds(30))) {
 *     use(object.map());      // on h3 and h5
 * }
 * }</pre>
 */
package org.rostrum.client;
