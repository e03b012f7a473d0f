package org.rostrum.client;

import java.io.IOException;

/** A request failed. The message says what happened, why, and what to do: mostly it is the agent's own. */
public class RostrumException extends IOException {
    private static final long serialVersionUID = 1L;

    /** Why a request failed (agent/include/rostrum/types.h); the order is that of the numbers, from 1. */
    public enum Code {
        /** Arguments that cannot be. */
        INVALID,
        /** No application was named. */
        NOT_REGISTERED,
        /** That object or transfer exists. */
        EXISTS,
        /** No such object, transfer or server. */
        UNKNOWN,
        /** Held by a transfer, or not whole yet. */
        BUSY,
        /** The store's quota is reached, or memory. */
        NO_ROOM,
        /** A bound on waiting passed. */
        TIMEOUT,
        /** The manager said no. */
        DENIED,
        /** It was cancelled. */
        CANCELLED,
        /** As many as may be are there already. */
        LIMIT,
        /** The agent, or the manager behind it, cannot be reached. */
        UNAVAILABLE,
        /** The system said no. */
        IO,
        /** Somebody does not speak this protocol. */
        PROTOCOL,
        /** A transfer did not reach every receiver. */
        FAILED
    }

    /** Why. */
    private final Code code;

    /**
     * An error.
     *
     * @param code why
     * @param text what happened
     */
    public RostrumException(Code code, String text) {
        super(text);
        this.code = code;
    }

    RostrumException(Code code, String text, Throwable cause) {
        super(text, cause);
        this.code = code;
    }

    /**
     * Why.
     *
     * @return the agent's code
     */
    public Code code() {
        return code;
    }

    static RostrumException of(int number, String text) {
        Code[] codes = Code.values();
        return new RostrumException(number >= 1 && number <= codes.length ? codes[number - 1] : Code.FAILED, text);
    }
}
