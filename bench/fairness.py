#!/usr/bin/env python3
"""Do flows share one full bottleneck evenly, and how long is the queue that they keep?

Starts a lab, in it a server and one client for each flow, waits until data moves on all of them, lets
them settle, and counts what each receives in the next minute. Prints one line of JSON a run: Mbit/s,
streams and the largest receive buffer of each flow (bytes, as its kernel reports them); Jain's index,
(Σx)² / (n·Σx²), which is 1 when all are equal; where flows of several kinds take part, what one of each
kind gets on average, by an even share; and what pings take longer than on the empty path. A run that
the lab could not carry is reported as such, without figures, and the exit code is 9.

    cargo build --release
    bench/fairness.py                                       # two drs, two on the kernel's autotuning
    bench/fairness.py --flows auto,auto,kernel,kernel       # the same of --buffer auto
    bench/fairness.py --flows no-flags,no-flags             # two that choose all by themselves
    bench/fairness.py --flows no-flags:cubic,stock*4        # one that may not choose bbr, among four
    bench/fairness.py --autotuning off                      # the kernels of the papers: 64 KB, unless set
    bench/fairness.py --set auto --runs 3                   # all that docs/benchmarks.md shows

FLOW*N is a flow N times; flows.py says how else a flow is written. Without autotuning the bottleneck is
20 Mbit/s unless --rate says otherwise: a window of 64 KB is then enough for a quarter of it, also when
the queue is full (100 ms), so that a flow that nobody sizes can have its share; of 100 Mbit/s it could
not. Buffers that somebody sets may grow to 16 MB, which needs root (net.core.rmem_max and wmem_max are
raised).
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True

import flows as lab  # noqa: E402

SETTINGS = {
    "on": lab.AUTOTUNED,
    # As in the experiments that repeat the papers: a receive window of 64 KB. Nothing grows to
    # tcp_rmem's third value by itself, but the kernel hardly opens a window beyond it.
    "off": [
        "net.ipv4.tcp_moderate_rcvbuf=0",
        "net.ipv4.tcp_rmem=4096 102400 16777216",
        "net.ipv4.tcp_wmem=4096 131072 131072",
    ],
}
# Sets of flows that are measured one after the other.
SETS = {
    "auto": [
        *(f"{kind}*{n}" for kind in ("no-flags", "no-flags:cubic") for n in (2, 3, 4)),
        *(f"{kind},stock*{n}" for kind in ("no-flags", "no-flags:cubic") for n in (1, 2, 4, 8)),
        *(f"stock*{n}" for n in (2, 4, 5, 9)),
        "no-flags", "no-flags:cubic", "stock", "8", "16",
    ],
}


def flows_of(text):
    """`a*2,b` as a, a, b."""
    every = []
    for word in text.split(","):
        flow, _, times = word.partition("*")
        every += [flow] * int(times or 1)
    return every


def inside(options):
    """On the lab: server, flows, the result file."""
    scratch = Path(options.inside)
    server, ping = lab.Server(scratch), lab.Ping()
    every = enumerate(flows_of(options.flows))
    copies = [lab.Copy(flow, server, scratch, n, options.cc) for n, flow in every]
    try:
        lab.wait_for_data(copies)
        begin = time.monotonic() + options.settle
        end = begin + options.seconds
        # A little longer: the last moment lies between two samples.
        lab.watch(copies, end + 1)
        result = measured(copies, ping, begin, end, lab.milliseconds(options.rtt))
    finally:
        for process in [*copies, ping, server]:
            process.stop()
    (scratch / "result.json").write_text(json.dumps(result))


def measured(copies, ping, begin, end, rtt):
    """What each flow got between two moments, and how even that is."""
    rates = [copy.mbit(begin, end) for copy in copies]
    result = {
        "flows": [
            {
                "flow": copy.flow,
                "mbit": round(rate, 2),
                "streams": copy.streams_between(begin, end),
                "buffer_bytes_max": copy.buffer,
            }
            for copy, rate in zip(copies, rates)
        ],
        "jain": round(lab.jain(rates), 4),
        "mbit": round(sum(rates), 2),
        "queue_delay": ping.queue(begin, end, rtt),
    }
    kinds = {copy.flow for copy in copies}
    if len(kinds) > 1:
        even = sum(rates) / len(rates)
        of = {kind: [r for c, r in zip(copies, rates) if c.flow == kind] for kind in kinds}
        result["even_shares"] = {
            kind: round(sum(got) / len(got) / even, 3) for kind, got in sorted(of.items())
        }
    return result


def run(options, flows, seed):
    """One run in a fresh lab; prints its line. Whether it counts."""
    rate = options.rate or {"on": "100mbit", "off": "20mbit"}[options.autotuning]
    network = [
        "--rtt", options.rtt, "--rate", rate, "--queue", options.queue, "--cc", options.cc,
        *(word for sysctl in SETTINGS[options.autotuning] for word in ("--sysctl", sysctl)),
    ]
    arguments = [
        "--flows", flows, "--seconds", str(options.seconds), "--settle", str(options.settle),
        "--rtt", options.rtt, "--cc", options.cc,
    ]
    line = {
        "run": flows, "autotuning": options.autotuning, "rtt": options.rtt, "rate": rate,
        "queue": options.queue, "cc": options.cc, "seconds": options.seconds, "seed": seed,
    }
    line.update(lab.in_lab(network, __file__, arguments, seed))
    print(json.dumps(line), flush=True)
    return "jain" in line


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flows", default="drs,drs,kernel,kernel", help="FLOW[*N],...")
    parser.add_argument("--set", choices=SETS, help="several runs in place of --flows")
    parser.add_argument("--seconds", type=float, default=60, help="that are measured")
    parser.add_argument("--settle", type=float, default=20, help="seconds before that")
    parser.add_argument("--autotuning", choices=SETTINGS, default="on", help="in the kernels")
    parser.add_argument("--rtt", default="20ms")
    parser.add_argument("--rate", help="of the bottleneck (default 100mbit, 20mbit)")
    parser.add_argument("--queue", default="1bdp")
    parser.add_argument("--cc", default="cubic", help="of the hosts")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options)
        return
    every = SETS[options.set] if options.set else [options.flows]
    valid = [
        run(options, flows, options.seed + number)
        for number in range(options.runs)
        for flows in every
    ]
    if not all(valid):
        sys.exit(lab.INVALID)


if __name__ == "__main__":
    main()
