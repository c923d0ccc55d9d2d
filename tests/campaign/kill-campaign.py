#!/usr/bin/env python3
"""Tests that no data is lost when copies are killed, cut off, or disturbed by other writers.

Each test ("moment") is one copy, a get or a put of one big file or of a tree, or a `sync --delete` of a tree, over a proxy that counts the
bytes of the data connections. At a random share of the bytes, which the seed decides, one fault happens:

    client, server, both    killed with SIGKILL; the server is started again
    link                    every connection is reset, and none is accepted for a short time
    disk                    the destination's file system is full (a small tmpfs; needs root)
    changed                 the content of the source changes
    writer                  a second copy, of another source, to the same destination
    stor                    a foreign client STORs to the partial file (puts; for gets: `writer`)

Then the copy is run with `--resume` until it exits with 0. The test fails ("lost") if

    the destination differs from the source (for `changed` and `writer`: from both complete contents),
    a file had its final name while it was incomplete (checked every few milliseconds),
    two copies to one destination both reported success though both were moving data, or only one did
        and the destination has other content,
    a partial file or a journal is left over,
    `sync --delete` has left a file that the source does not have,
    or no run of the copy exits with 0.

After `client`, `server`, `both` and `link`, a limited number of bytes may be sent again: of one file the share
--again of all bytes, and for each stream one block and what the kernel buffers.

With `--ways ssh carried sftp` the copies use one login by ssh to a server of the test's own: data beside ssh; everything
through ssh, because no port of the far end can be reached; and SFTP. One process dies with SIGKILL, at a random share of
the bytes, or (one moment of six) at a random time after the start, during the login:

    client       longhaul cp
    far end      one of its `longhaul serve --stdio` (ssh, carried), one of its sftp-server (sftp)
    login        the ssh that keeps the login which the sessions share (ControlMaster)
    data ssh     one ssh of a data connection (carried), or of a further connection (sftp)
    session      one process of sshd for a login

Such a test fails as well if processes of the copy stay: programs at the far end for more than FAR_END_BOUND after the
copy has ended, logins at either end for more than LOGIN_BOUND; or if a journal stays. Moments in which the copy ended before
anything was killed are shown, and not counted as kills.

    cargo build --release
    tests/campaign/kill-campaign.py                          # 200 moments, about 25 minutes
    tests/campaign/kill-campaign.py --moments 16 --seed 7    # a short run
    tests/campaign/kill-campaign.py --seed 7 --only 12       # repeats one moment and keeps its files
    tests/campaign/kill-campaign.py --ways ssh carried sftp  # the same by ssh, about 30 minutes
    tests/campaign/kill-campaign.py --sabotage content       # breaks copies (content, early, leftover): must fail

The program prints a table; --json FILE writes every moment. Exit code 1: data was lost, or too much was sent
again. LONGHAUL_BIN is the path of another binary.
"""

import argparse
import collections
import datetime
import ftplib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import ssh_host
from ftp_proxy import Proxy

ROOT = Path(__file__).resolve().parent.parent.parent
LONGHAUL = os.environ.get("LONGHAUL_BIN", str(ROOT / "target/release/longhaul"))

FAULTS = ["client", "server", "both", "link", "disk", "changed", "writer", "stor"]
SHAPES = ["big get", "big put", "tree get", "tree put", "tree sync get", "tree sync put"]
# Faults after which the bytes that are sent again are limited. Others, such as a changed source, require it.
COUNTED = {"client", "server", "both", "link"}
BLOCK = 256 << 10
# Upper bound of the bytes of a stream that are in socket buffers, including those of the proxy.
IN_FLIGHT = 1 << 20
STREAMS = 2
CONCURRENCY = 2
TIMEOUT = 120

SSH_SHAPES = ["big get", "big put", "big get", "big put", "tree get", "tree put"]
SSH_FAULTS = {
    "ssh": ["client", "far end", "login", "session"],
    "carried": ["client", "far end", "login", "data ssh", "session"],
    "sftp": ["client", "far end", "login", "data ssh", "session"],
}
SSH_CASES = [(way, fault) for way, faults in SSH_FAULTS.items() for fault in faults]
# A program at the far end ends with its input (docs/ssh.md); the rest is for a busy machine.
FAR_END_BOUND = 5
# A login ends 30 s after a kill (docs/ssh.md).
LOGIN_BOUND = 30 + FAR_END_BOUND
# Upper bound of the bytes of a stream on their way through ssh: the window of its channel (2 MiB), and pipes and sockets.
THROUGH_SSH = 4 << 20
# By SFTP no checksums show which bytes arrived after the last line of the journal, or after the server has last forced them
# to disk (puts): those that were not reported as safe this long before the kill may be sent again.
JOURNAL_SECONDS = 0.4


class Server:
    """`longhaul serve`, always on the same port."""

    def __init__(self, root, log):
        self.root, self.log, self.port, self.process = root, log, 0, None

    def start(self):
        argv = [LONGHAUL, "serve", "--listen", f"127.0.0.1:{self.port}", "--root", str(self.root),
                "--anonymous", "rw"]
        until = time.monotonic() + TIMEOUT
        while True:
            self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=self.log, text=True)
            line = self.process.stdout.readline()
            if line.startswith("listening on"):
                self.port = int(line.rsplit(":", 1)[1])
                return
            self.process.wait()
            if time.monotonic() > until:
                raise RuntimeError("the server does not start")
            time.sleep(0.1)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Watcher:
    """Watches all files that have their final names, and records incomplete ones."""

    def __init__(self, place, allowed):
        self.place, self.allowed = place, allowed  # Relative name -> checksums of complete contents.
        self.seen, self.broken, self.over = set(), [], threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.wait(0.004):
            self.look()

    def look(self):
        for name, sums in self.allowed.items():
            try:
                with open(self.place / name, "rb") as file:
                    stat = os.fstat(file.fileno())
                    key = (name, stat.st_ino, stat.st_size, stat.st_mtime_ns)
                    if key in self.seen:
                        continue
                    if hashlib.sha1(file.read()).digest() not in sums:
                        self.broken.append(f"{name} had its name with {stat.st_size} bytes, not whole")
                    self.seen.add(key)
            except OSError:
                pass

    def end(self):
        self.over.set()
        self.thread.join()
        self.look()
        return sorted(set(self.broken))


def sum_of(path):
    return hashlib.sha1(path.read_bytes()).digest()


def fill(place, shape, dice, size):
    """Writes the source; returns the names of its files."""
    if shape.startswith("big"):
        place.mkdir(parents=True)
        (place / "big.dat").write_bytes(dice.randbytes(size))
        return ["big.dat"]
    names = []
    left = size
    while left > 0:
        part = min(left, dice.choice([0, 1, 999, 64 << 10, 400_000, 1_500_000]) or 1)
        name = f"d{dice.randrange(4)}/" * dice.randrange(3) + f"file {len(names)}.dat"
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(dice.randbytes(part))
        names.append(name)
        left -= part
    (place / "empty.dat").write_bytes(b"")
    return names + ["empty.dat"]


class Moment:
    """One copy with one fault, and the result."""

    def __init__(self, options, number, place):
        self.options, self.number, self.place = options, number, place
        self.dice = random.Random(f"{options.seed}:{number}")
        self.shape = SHAPES[number % len(SHAPES)]
        fault = FAULTS[number // len(SHAPES) % len(FAULTS)]
        self.fault = "writer" if fault == "stor" and self.shape.endswith("get") else fault
        # Of two syncs with other sources each deletes what the other copies.
        if self.is_sync() and self.fault in ("writer", "stor"):
            self.fault = "both"
        self.share = self.dice.random()
        self.lost, self.attempts, self.exits = [], 0, []
        self.size = self.again = self.allowed_again = 0
        self.mounted = None

    def run(self):
        self.place.mkdir()
        put = self.shape.endswith("put")
        self.served, self.here = self.place / "served", self.place / "here"
        self.served.mkdir()
        self.here.mkdir()
        source_side, self.target_side = (self.here, self.served) if put else (self.served, self.here)
        # A tree is copied into the destination directory under its own name.
        inner = "copy/source" if self.shape.startswith("tree") else "copy"
        self.source, self.target = source_side / "source", self.target_side / inner
        self.names = fill(self.source, self.shape, self.dice, self.options.size)
        self.size = sum((self.source / name).stat().st_size for name in self.names)
        self.sums = {name: {sum_of(self.source / name)} for name in self.names}
        self.log = open(self.place / "log", "w")
        self.open_ends()
        try:
            (self.target_side / "copy").mkdir()
            if self.is_sync():
                self.extra().mkdir(parents=True)
                (self.extra() / "old.dat").write_bytes(b"old")
            if self.fault == "disk":
                self.small_disk()
            self.start_server()
            self.watched()
        finally:
            self.close_ends()
            self.log.close()
            if self.mounted:
                subprocess.run(["umount", "-l", self.mounted], check=False)

    def open_ends(self):
        self.server = Server(self.served, self.log)
        self.proxy = Proxy()

    def start_server(self):
        self.server.start()
        self.proxy.server = self.server.port

    def close_ends(self):
        self.proxy.close()
        if self.server.process:
            self.server.kill()

    def watched(self):
        watcher = Watcher(self.target, self.sums)
        try:
            self.copy_with_fault()
            if self.exits[-1] != 0:
                self.resume()
        finally:
            self.lost += watcher.end()
        self.sabotage()
        self.check()

    def is_sync(self):
        return "sync" in self.shape

    def extra(self):
        """What a sync deletes."""
        return self.target / "extra"

    def ends(self, proxy, source):
        """Source and destination for the command line."""
        name = "" if self.shape.startswith("tree") else "/" + self.names[0]
        inner = "/source" if self.is_sync() else name or "/"
        url = f"ftp://127.0.0.1:{proxy.port}"
        if self.shape.endswith("get"):
            return [f"{url}/{source.relative_to(self.served)}{name}", f"{self.here}/copy{inner}"]
        return [f"{source}{name}", f"{url}/copy{inner}"]

    def command(self, proxy, source, *more):
        verb = ["sync", "--delete"] if self.is_sync() else ["cp"]
        argv = [LONGHAUL, *verb, "--json", "--retries", "3", "--timeout", "10", "--block", str(BLOCK),
                "--buffer", "128Ki", "-p", str(STREAMS), "--concurrency", str(CONCURRENCY), *more]
        if self.shape.startswith("tree"):
            argv.append("-r")
        return argv + self.ends(proxy, source)

    def start(self, proxy, source, *more):
        argv = self.command(proxy, source, *more)
        self.log.write(f"+ {' '.join(argv)}\n")
        self.log.flush()
        return subprocess.Popen(argv, stdout=self.events(), stderr=self.log, env=self.environment())

    def environment(self):
        return dict(os.environ, XDG_STATE_HOME=str(self.place / "state"))

    def events(self):
        """Where the next copy writes its events."""
        return self.log

    def finished(self, process):
        try:
            return process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.lost.append(f"a copy does not end within {TIMEOUT} s")
            return -1

    def copy_with_fault(self):
        rate = ["--limit-rate", self.options.rate]
        copy = self.start(self.proxy, self.source, *rate)
        self.wait_for_share(copy)
        self.sabotage_early()
        getattr(self, f"do_{self.fault}".replace(" ", "_"))(copy)
        self.exits.append(self.finished(copy))

    def wait_for_share(self, copy):
        goal = self.share * self.size
        until = time.monotonic() + TIMEOUT
        while copy.poll() is None and self.proxy.carried < goal and time.monotonic() < until:
            time.sleep(0.002)

    def resume(self):
        for _ in range(8):
            self.attempts += 1
            self.exits.append(self.finished(self.start(self.proxy, self.source, "--resume")))
            if self.exits[-1] == 0:
                return
        self.lost.append(f"does not end with 0: {self.exits}")

    def do_client(self, copy):
        copy.kill()

    def do_server(self, copy):
        self.server.kill()
        time.sleep(self.dice.random() * 0.5)
        self.server.start()

    def do_both(self, copy):
        copy.kill()
        self.do_server(copy)

    def do_link(self, copy):
        self.proxy.cut(self.dice.random() * 0.5)

    def small_disk(self):
        """Mounts a file system of half the needed size at the destination."""
        place = str(self.target_side / "copy")
        half = f"size={self.size // 2048}k,mode=777"
        subprocess.run(["mount", "-t", "tmpfs", "-o", half, "tmpfs", place], check=True)
        self.mounted = place

    def do_disk(self, copy):
        code = self.finished(copy)
        if code == 0:
            self.lost.append("a full disk was told as success")
        room = f"remount,size={self.size // 256}k"
        subprocess.run(["mount", "-o", room, self.mounted], check=True)

    def do_changed(self, copy):
        name = self.dice.choice([n for n in self.names if (self.source / n).stat().st_size])
        path = self.source / name
        length = path.stat().st_size
        other = self.dice.randbytes(max(1, length + self.dice.choice([0, -1, 1]) * (length // 3)))
        self.sums[name].add(hashlib.sha1(other).digest())
        # The file is replaced, as editors do, or overwritten in place.
        if self.dice.random() < 0.5:
            beside = self.place / "other"
            beside.write_bytes(other)
            os.replace(beside, path)
        else:
            path.write_bytes(other)

    def do_writer(self, copy):
        other = self.source.parent / "other" / "source"
        for name in self.names:
            (other / name).parent.mkdir(parents=True, exist_ok=True)
            content = self.dice.randbytes((self.source / name).stat().st_size)
            (other / name).write_bytes(content)
            self.sums[name].add(hashlib.sha1(content).digest())
        proxy = Proxy()
        proxy.server = self.server.port
        second = self.start(proxy, other, "--limit-rate", self.options.rate)
        named = None
        until = time.monotonic() + TIMEOUT
        while (copy.poll() is None or second.poll() is None) and time.monotonic() < until:
            if named is None and (self.target / self.names[0]).exists():
                named = time.monotonic()
            time.sleep(0.002)
        codes = (self.finished(copy), self.finished(second))
        proxy.close()
        # The second copy moved data before the first had ended.
        beside = proxy.first_data and named and proxy.first_data < named
        self.log.write(f"+ two writers ended with {codes}\n")
        if codes == (0, 0) and beside and self.shape.startswith("big"):
            self.lost.append("two copies to one destination at one time were both told success")
        if self.shape.startswith("big") and 0 in codes and codes != (0, 0):
            winner = self.source if codes[0] == 0 else other
            if not same(winner / self.names[0], self.target / self.names[0]):
                self.lost.append("the copy that was told success is not what is there")

    def do_stor(self, copy):
        name = self.dice.choice(self.names)
        content = self.dice.randbytes(100_000)
        ftp = ftplib.FTP()
        try:
            ftp.connect("127.0.0.1", self.server.port, timeout=10)
            ftp.login()
            ftp.voidcmd("TYPE I")
            partial = f"{self.target.relative_to(self.served)}/{name}.longhaul-partial"
            with ftp.transfercmd(f"STOR {partial}") as data:
                data.sendall(content)
            answer = ftp.voidresp()
        except (ftplib.Error, OSError) as error:
            answer = str(error)
        ftp.close()
        self.log.write(f"+ STOR to the partial file: {answer}\n")
        stray = self.target / f"{name}.longhaul-partial"
        self.finished(copy)
        if answer.startswith("226") and stray.exists() and same_bytes(stray, content):
            stray.unlink()  # The foreign client stored it before or after the copy.

    def sabotage(self):
        name = next(n for n in self.names if (self.source / n).stat().st_size)
        if self.options.sabotage == "content":
            path = self.target / name
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        elif self.options.sabotage == "leftover":
            (self.target / f"{name}.longhaul-partial").write_bytes(b"x")

    def sabotage_early(self):
        if self.options.sabotage == "early":
            until = time.monotonic() + 2
            while not self.target.exists() and time.monotonic() < until:
                time.sleep(0.01)
            name = next(n for n in self.names if (self.source / n).stat().st_size > 1)
            half = (self.source / name).read_bytes()[:-1]
            (self.target / name).parent.mkdir(parents=True, exist_ok=True)
            (self.target / name).write_bytes(half)
            time.sleep(0.1)

    def check(self):
        for name in self.names:
            path = self.target / name
            if not path.exists():
                self.lost.append(f"{name} is missing")
            elif self.fault in ("changed", "writer"):
                if sum_of(path) not in self.sums[name]:
                    self.lost.append(f"{name} is neither of the two contents")
            elif not same(self.source / name, path):
                self.lost.append(f"{name} is not what was sent")
        if self.is_sync() and self.extra().exists():
            self.lost.append("a file that the source does not have is left")
        for path in self.target_side.rglob("*"):
            # Unfinished files of bundles stay, as docs/resume.md says.
            if path.is_file() and ".longhaul" in path.name and not path.name.startswith("bundle-"):
                self.lost.append(f"{path.relative_to(self.target_side)} is left over")
        if self.is_counted():
            self.again = max(0, self.moved() - self.size)
            streams = STREAMS * (CONCURRENCY if self.shape.startswith("tree") else 1)
            self.allowed_again = int(self.options.again * self.size) + streams * (BLOCK + self.in_flight())
            if self.shape.startswith("tree"):
                # The files of a bundle are sent again together.
                self.allowed_again += self.size

    def is_counted(self):
        return self.fault in COUNTED

    def moved(self):
        """Bytes that data connections carried, of all runs."""
        return self.proxy.carried

    def in_flight(self):
        return IN_FLIGHT

    def row(self):
        """Its row in the table."""
        return self.fault

    def at(self):
        return f"at {self.share:4.0%}"

    def is_over(self):
        """Nothing is left to check."""
        return True

    def too_much(self):
        return self.again > self.allowed_again

    def told(self):
        return {"moment": self.number, "shape": self.shape, "fault": self.fault,
                "share": round(self.share, 4), "exits": self.exits, "attempts": self.attempts,
                "bytes": self.size, "sent_again": self.again, "allowed_again": self.allowed_again,
                "too_much_again": self.too_much(), "lost": self.lost}


class SshMoment(Moment):
    """One copy by one login, of whose processes one dies."""

    def __init__(self, options, number, place):
        super().__init__(options, number, place)
        cases = [case for case in SSH_CASES if case[0] in options.ways]
        self.way, self.fault = cases[number % len(cases)]
        self.shape = SSH_SHAPES[number // len(cases) % len(SSH_SHAPES)]
        self.delay = self.dice.random() * 0.6 if self.dice.random() < 1 / 6 else None
        self.killed, self.killed_at, self.runs, self.ended, self.host = None, None, [], None, None

    def open_ends(self):
        self.proxy = None
        self.host = ssh_host.SshHost(self.place, LONGHAUL, self.way == "carried")

    def start_server(self):
        pass

    def close_ends(self):
        # The host is left alone until nothing may be left there.
        self.ended = time.monotonic()

    def ends(self, _, source):
        name = "" if self.shape.startswith("tree") else "/" + self.names[0]
        scheme = "sftp" if self.way == "sftp" else "ssh"
        url = f"{scheme}://127.0.0.1:{self.host.port}{self.served}"
        if self.shape.endswith("get"):
            return [f"{url}/{source.relative_to(self.served)}{name}", f"{self.here}/copy{name or '/'}"]
        return [f"{source}{name}", f"{url}/copy{name or '/'}"]

    def command(self, proxy, source, *more):
        return super().command(proxy, source, *self.host.options(), *more)

    def environment(self):
        return dict(super().environment(), XDG_RUNTIME_DIR=str(self.host.sockets), LONGHAUL_HISTORY="off",
                    LONGHAUL_CONFIG="off")

    def events(self):
        self.runs.append(self.place / f"events {len(self.runs)}")
        return open(self.runs[-1], "w")

    def arrived(self):
        """Bytes of the destination that are in files, complete or not."""
        size = 0
        for path in (self.target_side / "copy").rglob("*"):
            try:
                size += path.stat().st_blocks * 512
            except OSError:
                pass
        return size

    def wait_for_share(self, copy):
        if self.delay is not None:
            return time.sleep(self.delay)
        goal = self.share * self.size
        until = time.monotonic() + TIMEOUT
        while copy.poll() is None and self.arrived() < goal and time.monotonic() < until:
            time.sleep(0.002)

    def kill_one(self, copy, victims):
        """Kills one of the processes, as soon as there is one, unless the copy ends first."""
        until = time.monotonic() + TIMEOUT
        while time.monotonic() < until:
            found = victims()
            if found:
                one = self.dice.choice(found)
                if copy.poll() is None and one.kill():
                    self.killed, self.killed_at = one.line, time.time()
                    self.log.write(f"+ killed {one.pid}: {one.line}\n")
                    self.log.flush()
                    return
            if copy.poll() is not None:
                return
            time.sleep(0.002)

    def do_client(self, copy):
        if copy.poll() is None:
            copy.kill()
            self.killed, self.killed_at = "longhaul cp", time.time()

    def do_far_end(self, copy):
        end = "sftp-server" if self.way == "sftp" else "serve --stdio"
        self.kill_one(copy, lambda: [one for one in self.host.programs() if one.line.endswith(end)])

    def do_login(self, copy):
        self.kill_one(copy, lambda: self.host.masters()[:1])

    def do_data_ssh(self, copy):
        self.kill_one(copy, lambda: self.host.channels(copy.pid)[1:] + self.host.masters()[1:])

    def do_session(self, copy):
        self.kill_one(copy, self.host.sessions)

    def moved(self):
        return sum(bytes_moved(run) for run in self.runs)

    def is_counted(self):
        return True

    def in_flight(self):
        size = THROUGH_SSH if self.way != "ssh" else IN_FLIGHT
        if self.way == "sftp" and self.killed:
            size += not_safe(self.runs[0], self.killed_at - JOURNAL_SECONDS) // STREAMS
            size += int(JOURNAL_SECONDS * bits(self.options.rate) / 8) // STREAMS
        return size

    def row(self):
        return f"{self.way}, {self.fault}"

    def at(self):
        when = f"at {self.share:4.0%}" if self.delay is None else f"at {self.delay:.2f} s"
        return when if self.killed else f"{when} (nothing killed)"

    def is_over(self):
        """Looks for what is left: programs soon after the end, logins later."""
        if self.host is None:
            return True
        age = time.monotonic() - self.ended
        programs, left = self.host.programs(), self.host.left()
        if left and age < FAR_END_BOUND or left and not programs and age < LOGIN_BOUND:
            return False
        if left:
            self.lost.append(f"{age:.0f} s after the end there are still {left}")
        for path in [*self.place.glob("state/**/*"), *self.place.glob("far/**/*"), *self.target_side.rglob("*")]:
            # Unfinished files of bundles stay, as docs/resume.md says.
            if path.is_file() and "longhaul" in path.name and not path.name.startswith("bundle-"):
                self.lost.append(f"{path.relative_to(self.place)} is left over")
        self.host.close()
        self.host = None
        return True

    def told(self):
        return dict(super().told(), way=self.way, killed=self.killed, delay=self.delay)


def progress(events):
    """What a run of a copy has said about its progress."""
    for line in events.read_text(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # The last line of a killed copy.
            continue
        if event.get("event") in ("progress", "summary"):
            yield event


def bytes_moved(events):
    return max((event["bytes"] for event in progress(events)), default=0)


def not_safe(events, until):
    """Bytes that a run had moved, but not reported as safe, at a time."""
    moved = safe = 0
    for event in progress(events):
        at = datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()
        moved = event["bytes"]
        if at > until:
            break
        safe = event["safe"] or 0
    return moved - safe


def bits(rate):
    return float(rate.rstrip("kMG")) * {"k": 1e3, "M": 1e6, "G": 1e9}.get(rate[-1], 1)


def same(one, other):
    return other.is_file() and sum_of(one) == sum_of(other)


def same_bytes(path, content):
    return path.read_bytes() == content


def can_mount():
    return os.geteuid() == 0 and shutil.which("mount") is not None


def table(moments):
    rows = collections.defaultdict(list)
    for one in moments:
        rows[one.row()].append(one)
    wide = max([10, *(len(row) + 2 for row in rows)])
    print(f"\n{'fault':<{wide}}{'moments':>9}{'lost':>6}{'again MB':>10}{'of all':>8}{'worst':>8}{'too much':>10}")
    for row in FAULTS + [f"{way}, {fault}" for way, fault in SSH_CASES]:
        if not (group := rows.get(row)):
            continue
        again, size = sum(m.again for m in group), sum(m.size for m in group)
        counted = group[0].is_counted()
        figures = (f"{again / 1e6:10.1f}{again / size:8.1%}{max(m.again / m.size for m in group):8.1%}"
                   f"{sum(m.too_much() for m in group):10}") if counted else f"{'-':>10}{'-':>8}{'-':>8}{'-':>10}"
        print(f"{row:<{wide}}{len(group):9}{sum(bool(m.lost) for m in group):6}{figures}")


def campaign(options, place):
    moments, open_ones = [], []
    numbers = options.only if options.only else range(options.moments)
    for number in numbers:
        moment = (Moment if options.ways == ["ftp"] else SshMoment)(options, number, place / str(number))
        if moment.fault == "disk" and not can_mount():
            print(f"{number:4} {moment.shape:<13} disk      skipped: only root can mount a small disk")
            continue
        began = time.monotonic()
        try:
            moment.run()
        except Exception as error:  # An error of the campaign itself counts as a failure.
            moment.lost.append(f"the campaign failed: {type(error).__name__}: {error}")
        print(f"{number:4} {moment.shape:<13} {moment.row():<8} {moment.at()}  exits {moment.exits}  "
              f"again {moment.again / 1e6:.1f} MB  {time.monotonic() - began:.1f} s  {verdict(moment)}", flush=True)
        moments.append(moment)
        open_ones = over(open_ones + [moment], options)
    while open_ones:
        time.sleep(0.5)
        open_ones = over(open_ones, options)
    return moments


def verdict(moment):
    return "; ".join(moment.lost) or ("too much sent again" if moment.too_much() else "ok")


def over(moments, options):
    """Those of which something may still be there. The files of the others are removed, if nothing was lost."""
    still = []
    for moment in moments:
        lost = len(moment.lost)
        if not moment.is_over():
            still.append(moment)
            continue
        if len(moment.lost) > lost:
            print(f"{moment.number:4} {verdict(moment)}", flush=True)
        if not moment.lost and not options.only:
            shutil.rmtree(moment.place, ignore_errors=True)
    return still


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="these moments; their files are kept")
    parser.add_argument("--size", type=int, default=32_000_000, help="bytes of the file or tree")
    parser.add_argument("--rate", default="100M", help="of the copy that is disturbed, bit/s")
    parser.add_argument("--again", type=float, default=0.01, help="share of the bytes that may be sent again")
    parser.add_argument("--ways", nargs="+", choices=["ftp", *SSH_FAULTS], default=["ftp"])
    parser.add_argument("--sabotage", choices=["content", "early", "leftover"])
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if "ftp" in options.ways and options.ways != ["ftp"]:
        parser.error("ftp has other faults: run it alone")
    if options.ways != ["ftp"] and ssh_host.missing():
        sys.exit(f"{ssh_host.missing()} is not installed")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    place = Path(tempfile.mkdtemp(prefix="kill-campaign-"))
    moments = campaign(options, place)
    table(moments)
    lost = [m for m in moments if m.lost]
    too_much = [m for m in moments if m.too_much()]
    result = {"seed": options.seed, "moments": len(moments), "lost": len(lost), "too_much_again": len(too_much),
              "ways": options.ways, "size": options.size, "rate": options.rate, "each": [m.told() for m in moments]}
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    kills = "" if options.ways == ["ftp"] else f", {sum(m.killed is not None for m in moments)} kills"
    print(f"\nseed {options.seed}: {len(moments)} moments{kills}, {len(lost)} lost, {len(too_much)} sent too much again")
    if lost or options.only:
        print(f"files of {[m.number for m in lost or moments]} are in {place}")
    else:
        shutil.rmtree(place, ignore_errors=True)
    return 1 if lost or too_much or not moments else 0


if __name__ == "__main__":
    sys.exit(main())
