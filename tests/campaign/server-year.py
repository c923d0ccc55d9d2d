#!/usr/bin/env python3
"""Tests that a server which has served a year's sessions is as it was after the first ones.

Clients log in, fetch and store small files, list a directory and leave, some in the middle of something, as fast as the machine can. The
transfer log is rotated (renamed, then SIGHUP) while they do. The test fails if

    the server's memory (VmRSS), threads or open files grow after the first tenth of the sessions,
    a transfer is missing in the logs, or is there twice,
    a session or a transfer fails.

    tests/campaign/server-year.py                        # 100 000 sessions: 274 a day for a year
    tests/campaign/server-year.py --sessions 5000

Needs longhaul in target/release (or --programs DIR).
"""

import argparse
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SIZE = 1000


class Session:
    """A control connection."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.lines = self.socket.makefile("rb")
        self.reply("220")
        self.command("USER anonymous", "331", "230")
        self.command("PASS year@", "230")
        self.command("TYPE I", "200")

    def reply(self, *codes):
        line = self.lines.readline().decode()
        first = line[:4]
        while first[3:] == "-" and not (line.startswith(first[:3]) and line[3:4] == " "):
            line = self.lines.readline().decode()
        if line[:3] not in codes:
            raise RuntimeError(f"{line.strip()!r} instead of {codes}")
        return line

    def command(self, text, *codes):
        self.socket.sendall(f"{text}\r\n".encode())
        return self.reply(*codes)

    def data(self):
        address = self.command("EPSV", "229")
        return socket.create_connection((self.socket.getpeername()[0], int(address.split("|")[3])), timeout=60)

    def fetch(self, command):
        data = self.data()
        self.socket.sendall(f"{command}\r\n".encode())
        self.reply("125", "150")
        got = b"".join(iter(lambda: data.recv(65536), b""))
        data.close()
        self.reply("226")
        return got

    def store(self, name, content):
        data = self.data()
        self.socket.sendall(f"STOR {name}\r\n".encode())
        self.reply("125", "150")
        data.sendall(content)
        data.close()
        self.reply("226")

    def close(self):
        self.lines.close()
        self.socket.close()


def serve_one(address, number, content):
    """Makes session `number`; returns the number of its transfers, listings included."""
    session = Session(address)
    try:
        if session.fetch("RETR f") != content:
            raise RuntimeError("another content")
        if number % 7 == 0:
            session.store(f"put{number % 50}", content)
        if number % 11 == 0:
            session.fetch("MLSD d")
        if number % 5:
            session.command("QUIT", "221")
        elif number % 10 == 0:
            # Somebody leaves with a listener open, and without a word.
            session.command("EPSV", "229")
    finally:
        session.close()
    return 1 + (number % 7 == 0) + (number % 11 == 0)


def state_of(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    field = lambda name: int(next(line.split()[1] for line in status.splitlines() if line.startswith(name)))
    return field("VmRSS"), field("Threads"), len(os.listdir(f"/proc/{pid}/fd"))


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rotate-every", type=int, default=10_000, help="sessions")
    parser.add_argument("--programs", type=pathlib.Path, default=root / "target/release")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="year-") as place:
        sys.exit(campaign(options, pathlib.Path(place)))


def campaign(options, place):
    served, log = place / "served", place / "transfers"
    (served / "d").mkdir(parents=True)
    content = os.urandom(SIZE)
    (served / "f").write_bytes(content)
    for name in range(20):
        (served / "d" / f"f{name}").touch()
    words = ["serve", "--listen", "127.0.0.1:0", "--anonymous", "rw", "--root", served, "--transfer-log", log]
    server = subprocess.Popen(
        [options.programs.resolve() / "longhaul", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "LONGHAUL_CONFIG": "off", "LONGHAUL_HISTORY": "off"},
    )
    address = server.stdout.readline().split()[-1]
    lock, state = threading.Lock(), {"next": 0, "transfers": 0, "failed": [], "rotations": 0}
    samples = []

    def work():
        while True:
            with lock:
                number = state["next"]
                state["next"] += 1
                if number >= options.sessions:
                    return
                if number and number % options.rotate_every == 0:
                    log.rename(place / f"transfers.{number}")
                    server.send_signal(signal.SIGHUP)
                    state["rotations"] += 1
                if number % max(options.sessions // 50, 1) == 0:
                    samples.append((number, *state_of(server.pid)))
            try:
                transfers = serve_one(address, number, content)
            except (OSError, RuntimeError) as error:
                transfers = 0
                with lock:
                    state["failed"].append(f"session {number}: {error}")
            with lock:
                state["transfers"] += transfers

    begun = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(options.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begun
    time.sleep(2)
    samples.append((options.sessions, *state_of(server.pid)))
    server.terminate()
    ended = server.wait()
    logged = sum(len(path.read_text().splitlines()) for path in place.glob("transfers*"))
    early = [sample for sample in samples if options.sessions // 50 <= sample[0] <= options.sessions // 10]
    late = [sample for sample in samples if sample[0] >= options.sessions * 9 // 10]
    most = lambda part, field: max(sample[field] for sample in part)
    growth = most(late, 1) - most(early, 1)
    print(f"{options.sessions} sessions in {seconds:.0f} s, {state['transfers']} transfers, {state['rotations']} rotations of the log")
    print(f"memory {most(early, 1) / 1024:.1f} MiB in the first tenth, {most(late, 1) / 1024:.1f} MiB in the last; "
          f"threads {most(early, 2)}, {most(late, 2)}; open files {most(early, 3)}, {most(late, 3)}")
    faults = {
        "sessions that failed": len(state["failed"]),
        "lines of the logs that are missing or too many": abs(logged - state["transfers"]),
        # What the allocator keeps differs by the order of events.
        "KiB of growth above 2 MiB": max(growth - 2048, 0),
        "threads more": max(most(late, 2) - most(early, 2) - options.clients, 0),
        "open files more": max(most(late, 3) - most(early, 3) - 3 * options.clients, 0),
        "exit code of the server": ended,
    }
    for fault, number in faults.items():
        print(f"{fault}: {number}")
    for failed in state["failed"][:3]:
        print(failed)
    return any(faults.values())


if __name__ == "__main__":
    main()
