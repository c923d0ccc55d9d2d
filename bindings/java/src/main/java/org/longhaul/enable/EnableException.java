package org.longhaul.enable;

import java.io.IOException;

/** A question without an answer. {@link #kind()} says why; the message is one sentence for people. */
public final class EnableException extends IOException {
    private static final long serialVersionUID = 1L;

    /** Code of a refusal: nothing is known of this path yet, and the server has scheduled a test. */
    public static final int UNKNOWN_PATH = 404;
    /** Code of a refusal: the token is missing or wrong. */
    public static final int FORBIDDEN = 403;
    /** Code of a refusal: too many requests, or too many hosts. */
    public static final int BUSY = 503;
    /** Code of a refusal: there is no such method. */
    public static final int NO_METHOD = -32601;

    /** Why there is no answer. */
    public enum Kind {
        /** The name of the server is unknown, the connection is refused, or it ended before an answer. */
        NO_SERVER,
        /** The server did not answer in time. */
        TIMED_OUT,
        /** The server refused the call; {@link EnableException#code()} says why. */
        REFUSED,
        /** What came back is not an answer to the call. */
        BAD_ANSWER
    }

    /** Why there is no answer. */
    private final Kind kind;
    /** Code of a refusal, or 0. */
    private final int code;

    EnableException(Kind kind, int code, String message) {
        super(printable(message));
        this.kind = kind;
        this.code = code;
    }

    /**
     * Why there is no answer.
     *
     * @return the kind
     */
    public Kind kind() {
        return kind;
    }

    /**
     * Code of a refusal: that of the server's fault, or an HTTP status.
     *
     * @return the code; 0 for all other kinds
     */
    public int code() {
        return code;
    }

    /** Text of a peer may hold characters that steer a terminal. */
    private static String printable(String text) {
        StringBuilder out = new StringBuilder();
        text.codePoints().forEach(point -> {
            int type = Character.getType(point);
            boolean steers = type == Character.CONTROL || type == Character.FORMAT || type == Character.SURROGATE
                    || type == Character.LINE_SEPARATOR || type == Character.PARAGRAPH_SEPARATOR;
            if (steers) {
                out.append(String.format("\\u{%x}", point));
            } else {
                out.appendCodePoint(point);
            }
        });
        return out.toString();
    }
}
