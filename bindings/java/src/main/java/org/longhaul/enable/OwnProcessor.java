package org.longhaul.enable;

import java.util.Arrays;

/**
 * The rate that the processors of this host can receive: a cheap estimate that goes with a question.
 *
 * <p>The work of a receiver is mostly that of its memory: the network card writes each byte, the kernel reads it and writes
 * it to the program, and the work for its packets costs about as much again. So a core receives about a quarter of what it
 * copies. The estimate is good to a factor of two: it tells a processor that is slow for its path from one that is not.
 */
final class OwnProcessor {
    /** Cost of a byte received, in bytes copied. */
    private static final int COPIES = 4;
    /** Bytes of a copy: more than the caches of a core hold. */
    private static final int PIECE = 4 << 20;
    /** The fastest one counts: another process may have taken the core in the others. */
    private static final int ROUNDS = 8;
    /** Bounds of what is believed of a core, bits per second. */
    private static final long LEAST_OF_CORE = 10_000_000L;
    private static final long MOST_OF_CORE = 400_000_000_000L;

    private final long bps;
    private final int cores;

    private OwnProcessor() {
        cores = Math.max(1, Runtime.getRuntime().availableProcessors());
        byte[] from = new byte[PIECE];
        byte[] to = new byte[PIECE];
        Arrays.fill(from, (byte) 1);
        Arrays.fill(to, (byte) 2);
        long fastest = Long.MAX_VALUE;
        for (int round = 0; round < ROUNDS; round++) {
            long begin = System.nanoTime();
            System.arraycopy(from, 0, to, 0, PIECE);
            fastest = Math.min(fastest, System.nanoTime() - begin);
        }
        long ofCore = PIECE * 8L * 1_000_000_000L / Math.max(1, fastest) / COPIES;
        bps = Math.min(Math.max(ofCore, LEAST_OF_CORE), MOST_OF_CORE) * cores;
    }

    /** Measured when it is first wanted, for some milliseconds. */
    private static final class Once {
        static final OwnProcessor FOUND = new OwnProcessor();
    }

    /** The estimate for this host. */
    static OwnProcessor found() {
        return Once.FOUND;
    }

    /** Rate of all cores together, bits per second. */
    long bps() {
        return bps;
    }

    /** Cores that this process may use. */
    int cores() {
        return cores;
    }
}
