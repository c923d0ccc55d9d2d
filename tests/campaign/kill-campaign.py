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

    cargo build --release
    tests/campaign/kill-campaign.py                          # 200 moments, about 25 minutes
    tests/campaign/kill-campaign.py --moments 16 --seed 7    # a short run
    tests/campaign/kill-campaign.py --seed 7 --only 12       # repeats one moment and keeps its files
    tests/campaign/kill-campaign.py --sabotage content       # breaks copies (content, early, leftover): must fail

The program prints a table; --json FILE writes every moment. Exit code 1: data was lost, or too much was sent
again. LONGHAUL_BIN is the path of another binary.
"""

import argparse
import collections
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
        self.server = Server(self.served, self.log)
        self.proxy = Proxy()
        try:
            (self.target_side / "copy").mkdir()
            if self.is_sync():
                self.extra().mkdir(parents=True)
                (self.extra() / "old.dat").write_bytes(b"old")
            if self.fault == "disk":
                self.small_disk()
            self.server.start()
            self.proxy.server = self.server.port
            self.watched()
        finally:
            self.proxy.close()
            if self.server.process:
                self.server.kill()
            self.log.close()
            if self.mounted:
                subprocess.run(["umount", "-l", self.mounted], check=False)

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
        environment = dict(os.environ, XDG_STATE_HOME=str(self.place / "state"))
        argv = self.command(proxy, source, *more)
        self.log.write(f"+ {' '.join(argv)}\n")
        self.log.flush()
        return subprocess.Popen(argv, stdout=self.log, stderr=self.log, env=environment)

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
        goal = self.share * self.size
        until = time.monotonic() + TIMEOUT
        while copy.poll() is None and self.proxy.carried < goal and time.monotonic() < until:
            time.sleep(0.002)
        self.sabotage_early()
        getattr(self, f"do_{self.fault}")(copy)
        self.exits.append(self.finished(copy))

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
        if self.fault in COUNTED:
            self.again = max(0, self.proxy.carried - self.size)
            streams = STREAMS * (CONCURRENCY if self.shape.startswith("tree") else 1)
            self.allowed_again = int(self.options.again * self.size) + streams * (BLOCK + IN_FLIGHT)
            if self.shape.startswith("tree"):
                # The files of a bundle are sent again together.
                self.allowed_again += self.size

    def too_much(self):
        return self.again > self.allowed_again

    def told(self):
        return {"moment": self.number, "shape": self.shape, "fault": self.fault,
                "share": round(self.share, 4), "exits": self.exits, "attempts": self.attempts,
                "bytes": self.size, "sent_again": self.again, "allowed_again": self.allowed_again,
                "too_much_again": self.too_much(), "lost": self.lost}


def same(one, other):
    return other.is_file() and sum_of(one) == sum_of(other)


def same_bytes(path, content):
    return path.read_bytes() == content


def can_mount():
    return os.geteuid() == 0 and shutil.which("mount") is not None


def table(moments):
    rows = collections.defaultdict(list)
    for one in moments:
        rows[one.fault].append(one)
    print(f"\n{'fault':<10}{'moments':>9}{'lost':>6}{'again MB':>10}{'of all':>8}{'worst':>8}{'too much':>10}")
    for fault in FAULTS:
        if not (group := rows.get(fault)):
            continue
        again, size = sum(m.again for m in group), sum(m.size for m in group)
        counted = fault in COUNTED
        figures = (f"{again / 1e6:10.1f}{again / size:8.1%}{max(m.again / m.size for m in group):8.1%}"
                   f"{sum(m.too_much() for m in group):10}") if counted else f"{'-':>10}{'-':>8}{'-':>8}{'-':>10}"
        print(f"{fault:<10}{len(group):9}{sum(bool(m.lost) for m in group):6}{figures}")


def campaign(options, place):
    moments = []
    numbers = options.only if options.only else range(options.moments)
    for number in numbers:
        moment = Moment(options, number, place / str(number))
        if moment.fault == "disk" and not can_mount():
            print(f"{number:4} {moment.shape:<13} disk      skipped: only root can mount a small disk")
            continue
        began = time.monotonic()
        try:
            moment.run()
        except Exception as error:  # An error of the campaign itself counts as a failure.
            moment.lost.append(f"the campaign failed: {type(error).__name__}: {error}")
        verdict = "; ".join(moment.lost) or ("too much sent again" if moment.too_much() else "ok")
        print(f"{number:4} {moment.shape:<13} {moment.fault:<8} at {moment.share:4.0%}  exits {moment.exits}  "
              f"again {moment.again / 1e6:.1f} MB  {time.monotonic() - began:.1f} s  {verdict}", flush=True)
        moments.append(moment)
        if not moment.lost and not options.only:
            shutil.rmtree(place / str(number), ignore_errors=True)
    return moments


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="these moments; their files are kept")
    parser.add_argument("--size", type=int, default=32_000_000, help="bytes of the file or tree")
    parser.add_argument("--rate", default="100M", help="of the copy that is disturbed, bit/s")
    parser.add_argument("--again", type=float, default=0.01, help="share of the bytes that may be sent again")
    parser.add_argument("--sabotage", choices=["content", "early", "leftover"])
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    place = Path(tempfile.mkdtemp(prefix="kill-campaign-"))
    moments = campaign(options, place)
    table(moments)
    lost = [m for m in moments if m.lost]
    too_much = [m for m in moments if m.too_much()]
    result = {"seed": options.seed, "moments": len(moments), "lost": len(lost), "too_much_again": len(too_much),
              "size": options.size, "rate": options.rate, "each": [m.told() for m in moments]}
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nseed {options.seed}: {len(moments)} moments, {len(lost)} lost, {len(too_much)} sent too much again")
    if lost or options.only:
        print(f"files of {[m.number for m in lost or moments]} are in {place}")
    else:
        shutil.rmtree(place, ignore_errors=True)
    return 1 if lost or too_much or not moments else 0


if __name__ == "__main__":
    sys.exit(main())
