package org.longhaul.enable;

import java.net.SocketTimeoutException;
import java.time.Duration;

/** The end of a call. */
final class Deadline {
    private final long end;

    Deadline(Duration timeout) {
        end = System.nanoTime() + timeout.toNanos();
    }

    /**
     * Milliseconds that are left, at least 1.
     *
     * @throws SocketTimeoutException if none are
     */
    int left() throws SocketTimeoutException {
        long left = end - System.nanoTime();
        if (left <= 0) {
            throw new SocketTimeoutException();
        }
        return (int) Math.min(Integer.MAX_VALUE, left / 1_000_000 + 1);
    }
}
