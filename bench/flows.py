"""Copies and pings over a path of the lab, and what each gets: shared by the scripts beside it.

A flow is written FLAGS[:CC], FLAGS one of
    no-flags       what `longhaul cp` does by itself, bbr perhaps among it
    N              N streams, set by hand, buffers left to the kernel
    stock          the same as 1
    mi, mi+, aimd  the modes of the 2008 paper
    anything else  one stream, with --buffer so
CC is the congestion control (`--cc`, also asked of the server). Without it `no-flags` has the choice, and
all others have the lab's.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGHAUL = os.environ.get("LONGHAUL_BIN", str(ROOT / "target/release/longhaul"))
INVALID = 9
PORT = 2811
# How long the flows may take until data moves on all of them.
START = 30
# A file with a hole of this size costs no disk and lasts for hours.
FILE_BYTES = 1 << 40
# As Linux 6.18 ships, but for what setsockopt may ask for.
AUTOTUNED = [
    "net.ipv4.tcp_moderate_rcvbuf=1",
    "net.ipv4.tcp_rmem=4096 131072 33554432",
    "net.ipv4.tcp_wmem=4096 16384 4194304",
]
LIMITS = ["net.core.rmem_max=16777216", "net.core.wmem_max=16777216"]


def jain(shares):
    """Jain's index of some shares; none at all is no sharing."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def received(samples, moment):
    """Bytes at `moment`, from (time, bytes) samples, on the line between its neighbours."""
    before, after = None, None
    for sample in samples:
        if sample[0] <= moment:
            before = sample
        else:
            after = sample
            break
    if before is None or after is None:
        return None
    share = (moment - before[0]) / (after[0] - before[0])
    return before[1] + share * (after[1] - before[1])


def mbit(samples, begin, end):
    """Mbit/s between two moments; none if the samples do not reach so far."""
    first, last = (received(samples, moment) for moment in (begin, end))
    if first is None or last is None:
        return None
    return (last - first) * 8 / (end - begin) / 1e6


def flags(flow, cc):
    """The flags of a flow, in a lab whose hosts run the congestion control `cc`."""
    kind, _, own = flow.partition(":")
    if kind == "no-flags":
        return ["--cc", own] if own else []
    if kind in ("mi", "mi+", "aimd"):
        chosen = ["-p", kind]
    elif kind.isdigit():
        chosen = ["-p", kind, "--buffer", "kernel"]
    elif kind == "stock":
        chosen = ["-p", "1", "--buffer", "kernel"]
    else:
        chosen = ["-p", "1", "--buffer", kind]
    return [*chosen, "--cc", own or cc]


def on_host(host):
    return [LONGHAUL, "lab", "exec", host, "--"]


class Server:
    """A server on host b, which serves a file without end to nowhere in particular."""

    def __init__(self, scratch):
        with open(scratch / "zeros", "wb") as zeros:
            zeros.truncate(FILE_BYTES)
        self.address = os.environ["LAB_B"]
        self.process = subprocess.Popen(
            [
                *on_host("b"), LONGHAUL, "serve", "--listen", f"{self.address}:{PORT}",
                "--root", str(scratch), "--anonymous", "ro",
                "--max-sessions-per-address", "100", "--max-sessions-per-user", "100",
            ],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        if not self.process.stdout.readline():
            sys.exit("the server did not start")

    def stop(self):
        self.process.kill()
        self.process.wait()


class Copy:
    """A copy from host b to nowhere on host a, and what it tells while it runs."""

    def __init__(self, flow, server, scratch, number, cc):
        self.flow = flow
        self.samples = []
        self.streams = []
        self.buffer = 0
        self.errors = open(scratch / f"flow-{number}.err", "w+")
        self.process = subprocess.Popen(
            [
                *on_host("a"), LONGHAUL, "cp", "--json", "--verify", "none", *flags(flow, cc),
                f"ftp://{server.address}:{PORT}/zeros", "/dev/null",
            ],
            stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            now = time.monotonic()
            event = json.loads(line)
            if event["event"] == "progress" and event["bytes"] > 0:
                self.samples.append((now, event["bytes"]))
                self.streams.append((now, event["streams"]))
                self.buffer = max(self.buffer, event["buffer_bytes"])

    def check(self):
        """Ends the run if the copy ended."""
        if self.process.poll() is not None:
            self.errors.seek(0)
            last = self.errors.read().strip().splitlines()[-1:]
            sys.exit(f"the flow {self.flow} ended: {' '.join(last)}")

    def mbit(self, begin, end):
        """Mbit/s between two moments of the past."""
        rate = mbit(list(self.samples), begin, end)
        if rate is None:
            sys.exit(f"the flow {self.flow} told nothing for the whole time")
        return rate

    def streams_between(self, begin, end):
        """Median of its number of streams."""
        seen = [streams for moment, streams in list(self.streams) if begin <= moment <= end]
        return statistics.median(seen) if seen else None

    def stop(self):
        self.process.kill()
        self.process.wait()


class Ping:
    """Ten pings a second from host a to b: what they take longer than the empty path is queue."""

    def __init__(self):
        self.samples = []
        self.process = subprocess.Popen(
            [*on_host("a"), "ping", "-n", "-i", "0.1", os.environ["LAB_B"]],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            found = re.search(r"time=([0-9.]+)", line)
            if found:
                self.samples.append((time.monotonic(), float(found[1])))

    def queue(self, begin, end, rtt):
        """Milliseconds above `rtt` between two moments: median and 95th percentile."""
        seen = sorted(ms - rtt for moment, ms in list(self.samples) if begin <= moment <= end)
        if not seen:
            return None
        return {
            "median_ms": round(statistics.median(seen), 2),
            "p95_ms": round(seen[int(0.95 * (len(seen) - 1))], 2),
        }

    def stop(self):
        self.process.kill()
        self.process.wait()


def wait_for_data(copies):
    """Until data moves on all of them."""
    give_up = time.monotonic() + START
    while not all(copy.samples for copy in copies):
        if time.monotonic() > give_up:
            sys.exit(f"not all flows moved data within {START} s")
        watch(copies, time.monotonic() + 0.05)


def watch(copies, until):
    """Waits until a moment; a copy that ends meanwhile ends the run."""
    while time.monotonic() < until:
        for copy in copies:
            copy.check()
        time.sleep(min(0.2, max(0.0, until - time.monotonic())))


def milliseconds(text):
    """`20ms`, `0.1s`."""
    found = re.fullmatch(r"([0-9.]+)(ms|s)", text)
    if not found:
        sys.exit(f"'{text}' is no time; write 20ms or 0.1s")
    return float(found[1]) * (1000 if found[2] == "s" else 1)


def in_lab(network, script, arguments, seed):
    """Runs `script --inside DIRECTORY ARGUMENTS` in a fresh lab with the options `network`.

    What it left in DIRECTORY/result.json, or under `invalid` why it does not count.
    """
    with tempfile.TemporaryDirectory(prefix="longhaul-bench-") as directory:
        os.chmod(directory, 0o755)
        limits = LIMITS if os.geteuid() == 0 else []
        done = subprocess.run([
            LONGHAUL, "lab", "net", "--wait", "--quiet", "--seed", str(seed),
            "--report", f"{directory}/report.json", *network,
            *(word for sysctl in limits for word in ("--sysctl", sysctl)), "--",
            sys.executable, "-B", script, "--inside", directory, *arguments,
        ])
        result, report = Path(directory, "result.json"), Path(directory, "report.json")
        if done.returncode not in (0, INVALID) or not result.exists():
            sys.exit(f"the lab ended with exit code {done.returncode}")
        invalid = json.loads(report.read_text())["invalid"] if report.exists() else []
        if invalid or done.returncode == INVALID:
            return {"invalid": invalid}
        return json.loads(result.read_text())
