package org.longhaul.enable;

import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;

/**
 * Advice for transfers in the direction of the question. A value that is unknown, or that is best left to the kernel, is
 * empty.
 */
public final class Advice {
    private final String client;
    private final OptionalLong setBufferBytes;
    private final OptionalLong bdpBytes;
    private final OptionalLong streams;
    private final Optional<String> congestionControl;
    private final OptionalLong paceBps;
    private final OptionalLong expectedBps;
    private final OptionalLong p10Bps;
    private final OptionalLong p90Bps;
    private final OptionalDouble rttSeconds;
    private final OptionalLong bandwidthBps;
    private final OptionalLong downloadBps;
    private final OptionalLong uploadBps;
    private final OptionalDouble loss;
    private final Optional<String> limitedBy;
    private final boolean asymmetric;
    private final double confidence;
    private final OptionalDouble ageSeconds;
    private final Optional<String> measuredBy;
    private final String why;

    /** Reads an answer. Members that are not known here are ignored. */
    Advice(Map<String, Object> answer) throws MalformedAnswerException {
        client = text(answer, "client").orElse("");
        setBufferBytes = whole(answer, "set_buffer_bytes");
        bdpBytes = whole(answer, "bdp_bytes");
        streams = whole(answer, "streams");
        congestionControl = text(answer, "congestion_control");
        paceBps = whole(answer, "pace_bps");
        expectedBps = whole(answer, "expected_bps");
        p10Bps = whole(answer, "p10_bps");
        p90Bps = whole(answer, "p90_bps");
        rttSeconds = number(answer, "rtt_seconds");
        bandwidthBps = whole(answer, "bandwidth_bps");
        downloadBps = whole(answer, "download_bps");
        uploadBps = whole(answer, "upload_bps");
        loss = number(answer, "loss");
        limitedBy = text(answer, "limited_by");
        asymmetric = flag(answer, "asymmetric");
        confidence = number(answer, "confidence").orElse(0);
        ageSeconds = number(answer, "age_seconds");
        measuredBy = text(answer, "measured_by");
        why = text(answer, "why").orElse("");
    }

    /**
     * The client that the advice is for.
     *
     * @return an IP address
     */
    public String client() {
        return client;
    }

    /**
     * Socket buffer of one stream to set with SO_SNDBUF and SO_RCVBUF. Empty: set none, because a buffer that is set ends
     * the kernel's autotuning for the life of the connection.
     *
     * @return bytes
     */
    public OptionalLong setBufferBytes() {
        return setBufferBytes;
    }

    /**
     * Round trip × bottleneck bandwidth: what all streams together need. Programs that cannot leave the buffer
     * to the kernel set this.
     *
     * @return bytes
     */
    public OptionalLong bdpBytes() {
        return bdpBytes;
    }

    /**
     * Streams to open.
     *
     * @return their number
     */
    public OptionalLong streams() {
        return streams;
    }

    /**
     * Congestion control of the sender.
     *
     * @return its kernel name
     */
    public Optional<String> congestionControl() {
        return congestionControl;
    }

    /**
     * Pacing rate of all streams together.
     *
     * @return bits per second
     */
    public OptionalLong paceBps() {
        return paceBps;
    }

    /**
     * Expected goodput of a long transfer: the median.
     *
     * @return bits per second
     */
    public OptionalLong expectedBps() {
        return expectedBps;
    }

    /**
     * One transfer in ten is slower than this.
     *
     * @return bits per second
     */
    public OptionalLong p10Bps() {
        return p10Bps;
    }

    /**
     * One transfer in ten is faster than this.
     *
     * @return bits per second
     */
    public OptionalLong p90Bps() {
        return p90Bps;
    }

    /**
     * Round trip.
     *
     * @return seconds
     */
    public OptionalDouble rttSeconds() {
        return rttSeconds;
    }

    /**
     * Measured rate of the path to the client.
     *
     * @return bits per second
     */
    public OptionalLong downloadBps() {
        return downloadBps;
    }

    /**
     * Measured rate of the path from the client.
     *
     * @return bits per second
     */
    public OptionalLong uploadBps() {
        return uploadBps;
    }

    /**
     * Bandwidth of the bottleneck in the direction of the question.
     *
     * @return bits per second
     */
    public OptionalLong bandwidthBps() {
        return bandwidthBps;
    }

    /**
     * Share of lost packets.
     *
     * @return 0 to 1
     */
    public OptionalDouble loss() {
        return loss;
    }

    /**
     * What is expected to limit a transfer.
     *
     * @return in the words of {@code longhaul cp --why}
     */
    public Optional<String> limitedBy() {
        return limitedBy;
    }

    /**
     * Whether the two directions of the path differ.
     *
     * @return true if they do
     */
    public boolean isAsymmetric() {
        return asymmetric;
    }

    /**
     * How far to trust the advice.
     *
     * @return 0 (a guess) to 1
     */
    public double confidence() {
        return confidence;
    }

    /**
     * Age of the newest measurement that the advice rests on.
     *
     * @return seconds
     */
    public OptionalDouble ageSeconds() {
        return ageSeconds;
    }

    /**
     * Another client whose measurements stand in for this one's, and why.
     *
     * @return a text for people
     */
    public Optional<String> measuredBy() {
        return measuredBy;
    }

    /**
     * The reason.
     *
     * @return one sentence
     */
    public String why() {
        return why;
    }

    /** A number that is 0 or more and whole; large ones come as doubles. */
    static long wholeNumber(Object value, String name) throws MalformedAnswerException {
        if (value instanceof Long && (Long) value >= 0) {
            return (Long) value;
        }
        if (value instanceof Double) {
            double number = (Double) value;
            if (number >= 0 && number < 0x1p63 && number == Math.rint(number)) {
                return (long) number;
            }
        }
        throw new MalformedAnswerException(name + " is not a whole number that is 0 or more");
    }

    private static OptionalLong whole(Map<String, Object> answer, String name) throws MalformedAnswerException {
        Object value = answer.get(name);
        return value == null ? OptionalLong.empty() : OptionalLong.of(wholeNumber(value, name));
    }

    private static OptionalDouble number(Map<String, Object> answer, String name) throws MalformedAnswerException {
        Object value = answer.get(name);
        if (value == null) {
            return OptionalDouble.empty();
        }
        if (value instanceof Number && ((Number) value).doubleValue() >= 0) {
            return OptionalDouble.of(((Number) value).doubleValue());
        }
        throw new MalformedAnswerException(name + " is not a number that is 0 or more");
    }

    private static Optional<String> text(Map<String, Object> answer, String name) throws MalformedAnswerException {
        Object value = answer.get(name);
        if (value == null || value instanceof String) {
            return Optional.ofNullable((String) value);
        }
        throw new MalformedAnswerException(name + " is not a text");
    }

    private static boolean flag(Map<String, Object> answer, String name) throws MalformedAnswerException {
        Object value = answer.get(name);
        if (value == null || value instanceof Boolean) {
            return Boolean.TRUE.equals(value);
        }
        throw new MalformedAnswerException(name + " is not a boolean");
    }
}
