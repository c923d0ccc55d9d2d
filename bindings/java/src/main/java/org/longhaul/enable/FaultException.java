package org.longhaul.enable;

/** The server refused the call. */
final class FaultException extends Exception {
    private static final long serialVersionUID = 1L;

    final int code;

    FaultException(int code, String message) {
        super(message);
        this.code = code;
    }
}
