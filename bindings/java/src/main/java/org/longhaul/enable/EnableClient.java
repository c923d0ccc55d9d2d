package org.longhaul.enable;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.longhaul.enable.EnableException.Kind;

/**
 * Questions to the Enable server of a data server.
 *
 * <p>The first argument of each call is the data server: a host, HOST:PORT, [ADDRESS]:PORT or http://HOST:PORT. A client
 * never changes, keeps no connection, and may be used by several threads. A call blocks its thread until the answer is there
 * or its time is up. Redirects are not followed, and proxies are not used.
 *
 * <pre>{@code
 * EnableClient enable = new EnableClient().withTimeout(Duration.ofSeconds(2));
 * try {
 *     Advice advice = enable.getAdvice("data.example.org");
 *     advice.streams().ifPresent(streams -> open(streams));
 * } catch (EnableException error) {
 *     // go on with the settings of the system
 * }
 * }</pre>
 */
public final class EnableClient {
    /** TCP port of an Enable server unless its configuration names another one. */
    public static final int DEFAULT_PORT = 2812;
    /** Time that a call may take unless told otherwise. */
    public static final Duration DEFAULT_TIMEOUT = Duration.ofSeconds(5);

    private final int port;
    private final Duration timeout;
    private final String token;

    /** A client with the default port and time-out, and without a token. */
    public EnableClient() {
        this(DEFAULT_PORT, DEFAULT_TIMEOUT, null);
    }

    private EnableClient(int port, Duration timeout, String token) {
        this.port = port;
        this.timeout = timeout;
        this.token = token;
    }

    /**
     * The same client with another port, for servers whose name has none.
     *
     * @param port 1 to 65535
     * @return the client
     * @throws IllegalArgumentException if the port is out of range
     */
    public EnableClient withPort(int port) {
        if (port < 1 || port > 65_535) {
            throw new IllegalArgumentException("the port must be 1 to 65535");
        }
        return new EnableClient(port, timeout, token);
    }

    /**
     * The same client with another time-out.
     *
     * @param timeout the time that a call may take as a whole, more than nothing and at most a day
     * @return the client
     * @throws IllegalArgumentException if the time is out of range
     */
    public EnableClient withTimeout(Duration timeout) {
        if (timeout.isZero() || timeout.isNegative() || timeout.compareTo(Duration.ofDays(1)) > 0) {
            throw new IllegalArgumentException("the time-out must be more than nothing and at most a day");
        }
        return new EnableClient(port, timeout, token);
    }

    /**
     * The same client with the token that methods need which change something.
     *
     * @param token 1 to 1024 visible ASCII characters
     * @return the client
     * @throws IllegalArgumentException if the token cannot be sent
     */
    public EnableClient withToken(String token) {
        String bare = token.strip();
        if (!bare.matches("[!-~]{1,1024}")) {
            throw new IllegalArgumentException("the token must be 1 to 1024 visible ASCII characters");
        }
        return new EnableClient(port, timeout, bare);
    }

    /**
     * Best TCP buffer for the path between the data server and this host.
     *
     * @param host the data server
     * @return bytes
     * @throws EnableException why there is no answer; a path that the server does not know yet is {@link Kind#REFUSED} with
     *     the code {@link EnableException#UNKNOWN_PATH}
     * @throws IllegalArgumentException if the name of the server cannot be used
     */
    public long getBufferSize(String host) throws EnableException {
        return bufferSize(host, null);
    }

    /**
     * Best TCP buffer for the path between the data server and another client.
     *
     * @param host the data server
     * @param client an IP address or a name
     * @return bytes
     * @throws EnableException as {@link #getBufferSize(String)}
     * @throws IllegalArgumentException if a name cannot be used
     */
    public long getBufferSize(String host, String client) throws EnableException {
        return bufferSize(host, client);
    }

    /**
     * Results of all tests of the path between the data server and this host.
     *
     * @param host the data server
     * @return names to values, as {@link #call} returns them
     * @throws EnableException as {@link #getBufferSize(String)}
     * @throws IllegalArgumentException if the name of the server cannot be used
     */
    public Map<String, Object> getNetInfo(String host) throws EnableException {
        return members(server(host), "EnableGetNetInfo", null);
    }

    /**
     * Results of all tests of the path between the data server and another client.
     *
     * @param host the data server
     * @param client an IP address or a name
     * @return names to values, as {@link #call} returns them
     * @throws EnableException as {@link #getBufferSize(String)}
     * @throws IllegalArgumentException if a name cannot be used
     */
    public Map<String, Object> getNetInfo(String host, String client) throws EnableException {
        return members(server(host), "EnableGetNetInfo", client);
    }

    /**
     * Advice for a transfer between the data server and this host.
     *
     * @param host the data server
     * @return advice; for a path that the server does not know yet the confidence is 0, and the reason says so
     * @throws EnableException why there is no answer
     * @throws IllegalArgumentException if the name of the server cannot be used
     */
    public Advice getAdvice(String host) throws EnableException {
        return getAdvice(host, new Question());
    }

    /**
     * Advice for the transfer that a question describes. A question about this host tells what its processors can receive.
     *
     * @param host the data server
     * @param question what this host tells about itself and its transfer
     * @return advice; for a path that the server does not know yet the confidence is 0, and the reason says so
     * @throws EnableException why there is no answer
     * @throws IllegalArgumentException if a name cannot be used
     */
    public Advice getAdvice(String host, Question question) throws EnableException {
        ServerAddress server = server(host);
        Object members = question.withOwnProcessor().members();
        String method = "EnableGetAdvice";
        try {
            return new Advice(members(server, method, members));
        } catch (MalformedAnswerException error) {
            throw badAnswer(server, method, error.getMessage());
        }
    }

    /**
     * Calls any method with exactly these arguments.
     *
     * @param host the data server
     * @param method its name, for example {@code EnableAddHost}
     * @param arguments each a {@code String}, {@code Boolean}, {@code Integer}, {@code Long}, {@code Double}, or a {@code Map}
     *     from names to these; together at most 8192 bytes as XML
     * @return a {@code Long}, {@code Double}, {@code Boolean}, {@code String} (also times and base64), a {@code List} or a
     *     {@code Map} from names to these
     * @throws EnableException why there is no answer
     * @throws IllegalArgumentException if the name of the server or an argument cannot be used
     */
    public Object call(String host, String method, Object... arguments) throws EnableException {
        return answer(server(host), method, Arrays.asList(arguments));
    }

    private ServerAddress server(String host) {
        return new ServerAddress(host, port);
    }

    private long bufferSize(String host, String client) throws EnableException {
        ServerAddress server = server(host);
        String method = "EnableGetBufferSize";
        Object answer = answer(server, method, arguments(server, client));
        try {
            return Advice.wholeNumber(answer, "the answer");
        } catch (MalformedAnswerException error) {
            throw badAnswer(server, method, error.getMessage());
        }
    }

    /** The answer of a method, which is a struct. */
    private Map<String, Object> members(ServerAddress server, String method, Object second) throws EnableException {
        Object answer = answer(server, method, arguments(server, second));
        if (!(answer instanceof Map)) {
            throw badAnswer(server, method, "the answer is not a struct");
        }
        // The reader makes no other maps.
        @SuppressWarnings("unchecked")
        Map<String, Object> members = (Map<String, Object>) answer;
        return members;
    }

    /** The first argument of each method is the data server that is asked. */
    private static List<Object> arguments(ServerAddress server, Object second) {
        List<Object> arguments = new ArrayList<>();
        arguments.add(server.host);
        if (second != null) {
            arguments.add(second);
        }
        return arguments;
    }

    private Object answer(ServerAddress server, String method, List<?> arguments) throws EnableException {
        byte[] body = XmlRpcWriter.call(method, arguments);
        try {
            HttpPost.Response response = HttpPost.send(server, token, body, new Deadline(timeout));
            if (response.status >= 300) {
                throw refused(server, method, response.status, "HTTP status " + response.status);
            }
            return XmlRpcReader.read(response.body);
        } catch (EnableException error) {
            throw error;
        } catch (FaultException fault) {
            throw refused(server, method, fault.code, fault.getMessage());
        } catch (MalformedAnswerException error) {
            throw badAnswer(server, method, error.getMessage());
        } catch (SocketTimeoutException error) {
            throw new EnableException(Kind.TIMED_OUT, 0,
                    "the advice server at " + server + " did not answer within " + timeout.toMillis() + " ms");
        } catch (IOException error) {
            String reason = error instanceof InterruptedIOException ? "interrupted" : error.getMessage();
            throw new EnableException(Kind.NO_SERVER, 0, "no advice server answers at " + server + ": " + reason);
        }
    }

    private static EnableException refused(ServerAddress server, String method, int code, String message) {
        return new EnableException(Kind.REFUSED, code,
                "the advice server at " + server + " refused " + method + ": " + message);
    }

    private static EnableException badAnswer(ServerAddress server, String method, String reason) {
        return new EnableException(Kind.BAD_ANSWER, 0,
                server + " did not answer " + method + " as an advice server does: " + reason);
    }
}
