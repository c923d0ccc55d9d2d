package org.longhaul.enable;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.Locale;

/**
 * Posts one request and reads the response, within one deadline and within bounds.
 *
 * <p>A socket is used, because the HTTP clients of Java 11 bound neither the whole call nor the head of a response, and one
 * of them repeats a POST that was not answered.
 */
final class HttpPost {
    /** Most bytes of all heads of a response: the interim ones and the last. */
    private static final int MAX_HEAD = 64 * 1024;
    /** Longest line of a head. */
    private static final int MAX_LINE = 8192;
    /** A body up to the end of the connection. */
    private static final int UNTIL_END = -1;

    /** The server closed or reset the connection before any byte of an answer. */
    static final class NoAnswerException extends IOException {
        private static final long serialVersionUID = 1L;

        NoAnswerException() {
            super("the connection ended before an answer");
        }
    }

    private final Socket socket;
    private final InputStream input;
    private final Deadline deadline;
    private final byte[] buffer = new byte[8192];
    private int at;
    private int filled;
    private boolean received;
    private int headBytes;
    private int status;
    private int length;
    private boolean chunked;

    private HttpPost(Socket socket, Deadline deadline) throws IOException {
        this.socket = socket;
        this.input = socket.getInputStream();
        this.deadline = deadline;
    }

    /** A response: its status, and its body if the status is 2xx. */
    static final class Response {
        final int status;
        final byte[] body;

        private Response(int status, byte[] body) {
            this.status = status;
            this.body = body;
        }
    }

    /**
     * Sends {@code body} to /RPC2. Redirects are not followed.
     *
     * @throws SocketTimeoutException at the deadline
     * @throws MalformedAnswerException if what came back is no HTTP response within the bounds
     * @throws IOException if no server answers
     */
    static Response send(ServerAddress server, String token, byte[] body, Deadline deadline)
            throws IOException, MalformedAnswerException {
        String authorization = token == null ? "" : "Authorization: Bearer " + token + "\r\n";
        String head = "POST /RPC2 HTTP/1.1\r\nHost: " + server + "\r\nUser-Agent: enable-java/0.1.0\r\n"
                + "Content-Type: text/xml\r\nConnection: close\r\n" + authorization + "Content-Length: "
                + body.length + "\r\n\r\n";
        ByteArrayOutputStream request = new ByteArrayOutputStream();
        request.write(head.getBytes(StandardCharsets.US_ASCII));
        request.write(body);
        try (Socket socket = Connector.connect(server, deadline)) {
            HttpPost post = new HttpPost(socket, deadline);
            try {
                // Java cannot bound the time of a write; a request fits the socket's send buffer (XmlRpcWriter).
                socket.getOutputStream().write(request.toByteArray());
                return post.response();
            } catch (SocketTimeoutException error) {
                throw error;
            } catch (IOException error) {
                if (post.received) {
                    throw new MalformedAnswerException("the connection was lost");
                }
                throw new NoAnswerException();
            }
        }
    }

    private Response response() throws IOException, MalformedAnswerException {
        do {
            head();
        } while (status < 200);
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        if (status < 300 && chunked) {
            chunks(body);
        } else if (status < 300 && status != 204 && length == UNTIL_END) {
            while (at < filled || fill()) {
                body(filled - at, body);
            }
        } else if (status < 300 && status != 204) {
            body(length, body);
        }
        return new Response(status, body.toByteArray());
    }

    private void head() throws IOException, MalformedAnswerException {
        String line = line();
        require(line.matches("HTTP/1\\.[0-9] [1-5][0-9][0-9]( .*)?"), "not an HTTP response");
        status = Integer.parseInt(line.substring(9, 12));
        length = UNTIL_END;
        chunked = false;
        for (line = line(); !line.isEmpty(); line = line()) {
            int colon = line.indexOf(':');
            require(colon > 0, "not an HTTP response");
            if (status >= 200 && status < 300) {
                field(line.substring(0, colon).toLowerCase(Locale.ROOT), line.substring(colon + 1).strip());
            }
        }
    }

    private void field(String name, String value) throws MalformedAnswerException {
        if (name.equals("content-length")) {
            require(value.matches("[0-9]{1,9}") && length == UNTIL_END, "an invalid Content-Length");
            length = Integer.parseInt(value);
        } else if (name.equals("transfer-encoding")) {
            require(value.equalsIgnoreCase("chunked") && !chunked, "an unknown Transfer-Encoding");
            chunked = true;
        }
    }

    private void chunks(ByteArrayOutputStream body) throws IOException, MalformedAnswerException {
        while (true) {
            String line = line();
            // The bound of a head is for heads: each chunk adds to the body, which has its own.
            headBytes = 0;
            String size = line.split("[; \t]", 2)[0];
            require(size.matches("[0-9A-Fa-f]{1,6}"), "an invalid chunk");
            int count = Integer.parseInt(size, 16);
            if (count == 0) {
                break;
            }
            body(count, body);
            require(line().isEmpty(), "an invalid chunk");
        }
        while (!line().isEmpty()) {
            // Trailers mean nothing here; the bound of a head ends them.
            continue;
        }
    }

    private void body(int count, ByteArrayOutputStream body) throws IOException, MalformedAnswerException {
        require(count <= XmlRpcReader.MAX_BODY - body.size(), "longer than " + XmlRpcReader.MAX_BODY + " bytes");
        for (int left = count; left > 0; ) {
            require(at < filled || fill(), "the answer is cut off");
            int part = Math.min(left, filled - at);
            body.write(buffer, at, part);
            at += part;
            left -= part;
        }
    }

    /** A line without its end. */
    private String line() throws IOException, MalformedAnswerException {
        StringBuilder line = new StringBuilder();
        while (true) {
            if (at == filled && !fill()) {
                throw new MalformedAnswerException("the connection ended before an answer");
            }
            char c = (char) (buffer[at++] & 0xff);
            if (c == '\n') {
                break;
            }
            headBytes++;
            require(line.length() < MAX_LINE && headBytes <= MAX_HEAD, "the head of the response is too long");
            line.append(c);
        }
        int end = line.length();
        return line.substring(0, end > 0 && line.charAt(end - 1) == '\r' ? end - 1 : end);
    }

    /** Receives into the empty buffer; false at the end of the connection. */
    private boolean fill() throws IOException {
        socket.setSoTimeout(deadline.left());
        int count = input.read(buffer);
        if (count < 0) {
            if (!received) {
                throw new NoAnswerException();
            }
            return false;
        }
        at = 0;
        filled = count;
        received = true;
        return true;
    }

    private static void require(boolean condition, String problem) throws MalformedAnswerException {
        if (!condition) {
            throw new MalformedAnswerException(problem);
        }
    }
}
