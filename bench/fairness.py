#!/usr/bin/env python3
"""Do transfers with differently sized buffers share one full bottleneck evenly?

Starts a lab, in it a server and one client for each flow, waits until data moves on all of them, lets
them settle, and counts what each receives in the next minute. Prints one line of JSON a run: Mbit/s of
each flow and the largest receive buffer that it had (bytes, as its kernel reports them), and Jain's
index, (Σx)² / (n·Σx²), which is 1 when all are equal. A run that the lab could not carry is reported
as such, without figures, and the exit code is 9.

    cargo build --release
    bench/fairness.py                                # two drs, two on the kernel's autotuning
    bench/fairness.py --flows auto,auto,kernel,kernel
    bench/fairness.py --autotuning off               # the kernels of the papers: 64 KB, unless set
    bench/fairness.py --flows drs,drs,drs,drs --runs 5

Without autotuning the bottleneck is 20 Mbit/s unless --rate says otherwise: a window of 64 KB is then
enough for a quarter of it, also when the queue is full (100 ms), so that a flow that nobody sizes can
have its share; of 100 Mbit/s it could not. Buffers that somebody sets may grow to 16 MB, which needs
root (net.core.rmem_max and wmem_max are raised).
"""

import argparse
import json
import os
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

SETTINGS = {
    # As Linux 6.18 ships, but for what setsockopt may ask for.
    "on": [
        "net.ipv4.tcp_moderate_rcvbuf=1",
        "net.ipv4.tcp_rmem=4096 131072 33554432",
        "net.ipv4.tcp_wmem=4096 16384 4194304",
    ],
    # As in the experiments that repeat the papers: a receive window of 64 KB. Nothing grows to
    # tcp_rmem's third value by itself, but the kernel hardly opens a window beyond it.
    "off": [
        "net.ipv4.tcp_moderate_rcvbuf=0",
        "net.ipv4.tcp_rmem=4096 102400 16777216",
        "net.ipv4.tcp_wmem=4096 131072 131072",
    ],
}
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
        elif after is None:
            after = sample
    if before is None or after is None:
        return None
    share = (moment - before[0]) / (after[0] - before[0])
    return before[1] + share * (after[1] - before[1])


class Flow:
    """A copy to nowhere, and the bytes that it tells about."""

    def __init__(self, policy, server, scratch, number):
        self.policy = policy
        self.samples = []
        self.buffer = 0
        self.errors = open(scratch / f"flow-{number}.err", "w+")
        command = [
            *on_host("a"), LONGHAUL, "cp", "--json", "--verify", "none", "-p", "1",
            "--buffer", policy, f"ftp://{server}:{PORT}/zeros", "/dev/null",
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            now = time.monotonic()
            event = json.loads(line)
            if event["event"] == "progress" and event["bytes"] > 0:
                self.samples.append((now, event["bytes"]))
                self.buffer = max(self.buffer, event["buffer_bytes"])

    def check(self):
        """Ends the run if the copy ended."""
        if self.process.poll() is not None:
            self.errors.seek(0)
            last = self.errors.read().strip().splitlines()[-1:]
            sys.exit(f"a flow with --buffer {self.policy} ended: {' '.join(last)}")

    def rate(self, begin, end):
        """Mbit/s between two moments."""
        first, last = (received(list(self.samples), moment) for moment in (begin, end))
        if first is None or last is None:
            sys.exit(f"a flow with --buffer {self.policy} told nothing for the whole time")
        return (last - first) * 8 / (end - begin) / 1e6


def on_host(host):
    return [LONGHAUL, "lab", "exec", host, "--"]


def inside(options):
    """On the lab: server, flows, one line of JSON into the result file."""
    scratch, server = Path(options.inside), os.environ["LAB_B"]
    with open(scratch / "zeros", "wb") as zeros:
        zeros.truncate(FILE_BYTES)
    serve = [
        *on_host("b"), LONGHAUL, "serve", "--listen", f"{server}:{PORT}",
        "--root", str(scratch), "--anonymous", "ro",
    ]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        if not process.stdout.readline():
            sys.exit("the server did not start")
        policies = options.flows.split(",")
        flows = [Flow(policy, server, scratch, n) for n, policy in enumerate(policies)]
        try:
            rates = measured(flows, options)
        finally:
            for flow in flows:
                flow.process.kill()
            process.kill()
    result = {
        "flows": [
            {
                "buffer": flow.policy,
                "mbit": round(rate, 2),
                "buffer_bytes_max": flow.buffer,
            }
            for flow, rate in zip(flows, rates)
        ],
        "jain": round(jain(rates), 4),
    }
    (scratch / "result.json").write_text(json.dumps(result))


def measured(flows, options):
    """Mbit/s of each flow, once data moves on all and they have settled."""
    give_up = time.monotonic() + START
    while not all(flow.samples for flow in flows):
        if time.monotonic() > give_up:
            sys.exit(f"not all flows moved data within {START} s")
        for flow in flows:
            flow.check()
        time.sleep(0.05)
    begin = time.monotonic() + options.settle
    end = begin + options.seconds
    # A little longer: the last moment lies between two samples.
    while time.monotonic() < end + 1:
        for flow in flows:
            flow.check()
        time.sleep(0.2)
    return [flow.rate(begin, end) for flow in flows]


def run(options, seed):
    """One run in a fresh lab; prints its line. Whether it counts."""
    rate = options.rate or {"on": "100mbit", "off": "20mbit"}[options.autotuning]
    with tempfile.TemporaryDirectory(prefix="longhaul-fairness-") as directory:
        os.chmod(directory, 0o755)
        sysctls = SETTINGS[options.autotuning] + (LIMITS if os.geteuid() == 0 else [])
        command = [
            LONGHAUL, "lab", "net", "--wait", "--quiet", "--seed", str(seed),
            "--report", f"{directory}/report.json", "--rtt", options.rtt, "--rate", rate,
            "--queue", options.queue, "--cc", options.cc,
            *(word for sysctl in sysctls for word in ("--sysctl", sysctl)), "--",
            sys.executable, __file__, "--inside", directory, "--flows", options.flows,
            "--seconds", str(options.seconds), "--settle", str(options.settle),
        ]
        done = subprocess.run(command)
        line = {
            "autotuning": options.autotuning, "rtt": options.rtt, "rate": rate,
            "queue": options.queue, "cc": options.cc, "seconds": options.seconds, "seed": seed,
        }
        result = Path(directory, "result.json")
        report = Path(directory, "report.json")
        invalid = json.loads(report.read_text())["invalid"] if report.exists() else []
        if done.returncode not in (0, INVALID) or not result.exists():
            sys.exit(f"the lab ended with exit code {done.returncode}")
        if invalid or done.returncode == INVALID:
            line["invalid"] = invalid
        else:
            line.update(json.loads(result.read_text()))
        print(json.dumps(line), flush=True)
        return "jain" in line


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flows", default="drs,drs,kernel,kernel", help="--buffer of each flow")
    parser.add_argument("--seconds", type=float, default=60, help="that are measured")
    parser.add_argument("--settle", type=float, default=20, help="seconds before that")
    parser.add_argument("--autotuning", choices=SETTINGS, default="on", help="in the kernels")
    parser.add_argument("--rtt", default="20ms")
    parser.add_argument("--rate", help="of the bottleneck (default 100mbit, 20mbit)")
    parser.add_argument("--queue", default="1bdp")
    parser.add_argument("--cc", default="cubic", help="the same for all flows")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options)
        return
    valid = [run(options, options.seed + number) for number in range(options.runs)]
    if not all(valid):
        sys.exit(INVALID)


if __name__ == "__main__":
    main()
