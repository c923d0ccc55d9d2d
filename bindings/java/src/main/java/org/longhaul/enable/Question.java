package org.longhaul.enable;

import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;

/**
 * What a client tells about itself and its transfer. Everything may be unknown. A question never changes; each method
 * returns another one.
 */
public final class Question {
    /** Numbers from here on have no double of their own, and XML-RPC carries large numbers as doubles. */
    private static final long LIMIT = 1L << 53;

    private final Map<String, Object> members;

    /** A question that tells nothing. */
    public Question() {
        this(Collections.emptyMap());
    }

    private Question(Map<String, Object> members) {
        this.members = members;
    }

    /**
     * Asks for another client than the caller.
     *
     * @param client an IP address or a name
     * @return the question with it
     */
    public Question withClient(String client) {
        return with("client", client);
    }

    /**
     * Tells the bytes to transfer.
     *
     * @param bytes 0 or more and less than 2^53
     * @return the question with it
     * @throws IllegalArgumentException if the number is out of range
     */
    public Question withBytes(long bytes) {
        return withNumber("bytes", bytes);
    }

    /**
     * Asks for transfers from the client to the data server, in place of those to the client.
     *
     * @return the question with it
     */
    public Question forUpload() {
        return with("direction", "upload");
    }

    /**
     * Tells the files to transfer.
     *
     * @param files 0 or more and less than 2^53
     * @return the question with it
     * @throws IllegalArgumentException if the number is out of range
     */
    public Question withFiles(long files) {
        return withNumber("files", files);
    }

    /**
     * Tells the largest receive buffer that the client's kernel allows (the third number of tcp_rmem).
     *
     * @param bytes 0 or more and less than 2^53
     * @return the question with it
     * @throws IllegalArgumentException if the number is out of range
     */
    public Question withMaxReceiveBuffer(long bytes) {
        return withNumber("max_receive_buffer", bytes);
    }

    /**
     * Tells the largest send buffer that the client's kernel allows (the third number of tcp_wmem). For uploads.
     *
     * @param bytes 0 or more and less than 2^53
     * @return the question with it
     * @throws IllegalArgumentException if the number is out of range
     */
    public Question withMaxSendBuffer(long bytes) {
        return withNumber("max_send_buffer", bytes);
    }

    /**
     * Tells the largest buffer that a program may set on the client (rmem_max, for uploads wmem_max).
     *
     * @param bytes 0 or more and less than 2^53
     * @return the question with it
     * @throws IllegalArgumentException if the number is out of range
     */
    public Question withMaxSetBuffer(long bytes) {
        return withNumber("max_set_buffer", bytes);
    }

    /**
     * Tells the fastest rate at which the client's processor or disk takes data.
     *
     * @param bitsPerSecond 0 or more and less than 2^53
     * @return the question with it
     * @throws IllegalArgumentException if the number is out of range
     */
    public Question withClientBps(long bitsPerSecond) {
        return withNumber("client_bps", bitsPerSecond);
    }

    /**
     * Tells what the client's processors can receive. It decides streams; no rate is advised by it. {@link EnableClient}
     * estimates it for a question about this host that does not tell it.
     *
     * @param bitsPerSecond of all cores together, 0 or more and less than 2^53
     * @param cores 0 or more and less than 2^53
     * @return the question with it
     * @throws IllegalArgumentException if a number is out of range
     */
    public Question withProcessor(long bitsPerSecond, long cores) {
        return withNumber("processor_bps", bitsPerSecond).withNumber("processor_cores", cores);
    }

    /** The question with the estimate of this host's processors, if it is about this host and does not tell its own. */
    Question withOwnProcessor() {
        if (members.containsKey("client") || members.containsKey("processor_bps")) {
            return this;
        }
        OwnProcessor own = OwnProcessor.found();
        return withProcessor(own.bps(), own.cores());
    }

    /**
     * Tells that the client cannot let the kernel choose its buffer: it sets one in any case.
     *
     * @return the question with it
     */
    public Question withMustSetBuffer() {
        return with("must_set_buffer", true);
    }

    /**
     * Tells the most streams that the client can open.
     *
     * @param streams 0 or more and less than 2^53
     * @return the question with it
     * @throws IllegalArgumentException if the number is out of range
     */
    public Question withMaxStreams(long streams) {
        return withNumber("max_streams", streams);
    }

    Map<String, Object> members() {
        return members;
    }

    private Question withNumber(String name, long number) {
        if (number < 0 || number >= LIMIT) {
            throw new IllegalArgumentException(name + " must be 0 or more and less than 2^53");
        }
        return with(name, number);
    }

    private Question with(String name, Object value) {
        Map<String, Object> more = new TreeMap<>(members);
        more.put(name, value);
        return new Question(more);
    }
}
