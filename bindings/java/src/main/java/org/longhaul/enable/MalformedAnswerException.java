package org.longhaul.enable;

/** What came back is not an answer; the message says why, without what was sent. */
final class MalformedAnswerException extends Exception {
    private static final long serialVersionUID = 1L;

    MalformedAnswerException(String message) {
        super(message);
    }
}
