package org.longhaul.enable;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Proxy;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Connects to a server before a deadline. */
final class Connector {
    private Connector() {}

    /**
     * A socket that is connected to the first address that answers.
     *
     * @throws SocketTimeoutException at the deadline
     * @throws IOException if no address answers
     */
    static Socket connect(ServerAddress server, Deadline deadline) throws IOException {
        InetAddress[] addresses = addresses(server.host, deadline);
        IOException last = new ConnectException("the name has no address");
        boolean timedOut = false;
        for (int i = 0; i < addresses.length; i++) {
            // A proxy's path is not the caller's.
            Socket socket = new Socket(Proxy.NO_PROXY);
            try {
                // Each address has its share of the time, so that a dead one does not use it up.
                int share = Math.max(1, deadline.left() / (addresses.length - i));
                socket.connect(new InetSocketAddress(addresses[i], server.port), share);
                return socket;
            } catch (IOException error) {
                socket.close();
                timedOut |= error instanceof SocketTimeoutException;
                last = error;
            }
        }
        throw timedOut ? new SocketTimeoutException() : last;
    }

    /** The addresses of a host. The resolver has no time-out of ours, so another thread waits for it. */
    private static InetAddress[] addresses(String host, Deadline deadline) throws IOException {
        FutureTask<InetAddress[]> lookup = new FutureTask<>(() -> InetAddress.getAllByName(host));
        Thread resolver = new Thread(lookup, "enable-resolver");
        resolver.setDaemon(true);
        resolver.start();
        try {
            return lookup.get(deadline.left(), TimeUnit.MILLISECONDS);
        } catch (TimeoutException error) {
            throw new SocketTimeoutException();
        } catch (ExecutionException error) {
            throw new ConnectException("the name has no address");
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted");
        }
    }
}
