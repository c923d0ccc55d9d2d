"""A proxy for one FTP client, on loopback: it counts what data connections carry, and can cut them all.

Addresses of data connections, in commands (PORT, EPRT, SPOR) and in replies (227, 229, those of SPAS), are
replaced by its own, so that it sees them whichever end opens them.
"""

import re
import socket
import struct
import threading
import time


class Proxy:
    """Relays control and data connections of one client, counts the data and can cut all of it."""

    def __init__(self):
        self.server = None  # Address to which connections are relayed.
        self.lock = threading.Lock()
        self.sockets = set()
        self.carried = 0
        self.first_data = None
        self.closed_until = 0.0
        self.over = False
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.start(self.accept)

    def start(self, target, *args):
        threading.Thread(target=target, args=args, daemon=True).start()

    def accept(self):
        while not self.over:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            if time.monotonic() < self.closed_until:
                reset(client)
                continue
            self.start(self.control, client)

    def control(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self.server), timeout=10)
            server.settimeout(None)
        except OSError:
            reset(client)
            return
        self.keep(client, server)
        self.start(self.lines, client, server, self.active)
        self.lines(server, client, self.passive)

    def keep(self, *sockets):
        with self.lock:
            self.sockets.update(sockets)

    def lines(self, source, sink, rewrite):
        """Relays lines, and replaces the addresses of data connections by those of the proxy."""
        try:
            for line in source.makefile("rb"):
                sink.sendall(rewrite(line))
        except (OSError, ValueError):
            pass
        self.end(source, sink)

    def end(self, *sockets):
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()
        with self.lock:
            self.sockets.difference_update(sockets)

    def passive(self, line):
        found = re.match(rb"229[ -].*\(\|\|\|(\d+)\|\)", line)
        if found:
            port = self.between(("127.0.0.1", int(found[1])))
            return line.replace(b"|||" + found[1] + b"|", b"|||%d|" % port)
        if re.match(rb"(227|229)[ -]| \d+,\d+,\d+,\d+,\d+,\d+", line):
            return re.sub(rb"\d+(,\d+){5}", self.other, line)
        return line

    def active(self, line):
        if re.match(rb"(PORT|SPOR) ", line, re.I):
            return re.sub(rb"\d+(,\d+){5}", self.other, line)
        found = re.match(rb"EPRT \|1\|([0-9.]+)\|(\d+)\|", line, re.I)
        if found:
            port = self.between((found[1].decode(), int(found[2])))
            return b"EPRT |1|127.0.0.1|%d|\r\n" % port
        return line

    def other(self, found):
        numbers = [int(n) for n in found[0].split(b",")]
        port = self.between((".".join(map(str, numbers[:4])), numbers[4] * 256 + numbers[5]))
        return b"127,0,0,1,%d,%d" % divmod(port, 256)

    def between(self, target):
        """Listens for connections to relay to `target`; returns the port."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.keep(listener)
        self.start(self.data, listener, target)
        return listener.getsockname()[1]

    def data(self, listener, target):
        while not self.over:
            try:
                one = listener.accept()[0]
                two = socket.create_connection(target, timeout=10)
            except OSError:
                return
            for end in (one, two):
                end.settimeout(None)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
            self.keep(one, two)
            self.start(self.relay, one, two)
            self.start(self.relay, two, one)

    def relay(self, source, sink):
        try:
            while block := source.recv(64 << 10):
                sink.sendall(block)
                with self.lock:
                    self.carried += len(block)
                    self.first_data = self.first_data or time.monotonic()
            sink.shutdown(socket.SHUT_WR)
        except (OSError, ValueError):
            self.end(source, sink)

    def cut(self, seconds=0.0):
        self.closed_until = time.monotonic() + seconds
        with self.lock:
            sockets, self.sockets = self.sockets, set()
        for one in sockets:
            reset(one)

    def close(self):
        self.over = True
        reset(self.listener)
        self.cut()


def reset(one):
    """Closes a socket with a reset, and wakes the thread that reads from it."""
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    one.close()
