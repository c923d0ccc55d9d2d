#!/usr/bin/env python3
"""How soon does a copy follow a path that changes?

Each scenario is a path in three phases; its middle one differs from the other two:

    rate     a quarter of the rate, then four times as much again
    rtt      four times the round trip
    loss     1 % of the packets are lost
    cross    four stock flows (cubic, one stream) arrive, and leave

Every flow runs each scenario by itself, in a fresh lab. Prints one line of JSON a run; for each phase

    steady_mbit   what the flow got in the last third of the phase
    path_mbit     what the path could have given it: 1448/1500 of the rate; of it an even share
                  while there is cross traffic
    recovery_s    how long after the step the flow first got, over two seconds, nine tenths of
                  `path_mbit` (`to_path`), of its own steady rate (`to_steady`); null: not in this phase
    streams       median over the last third
    queue_delay   what pings took longer than on the path without a queue, over the last third
    cross_mbit    what the stock flows got together, `even_share` the flow's rate by an even one, and
                  `cross_recovery_s` how long until they had nine tenths of their even shares together

and, when all flows of a scenario are done, a line with `best_mbit`, for each phase the highest steady rate
of any flow, but no more than `path_mbit`, and `to_best`, each flow's recovery to nine tenths of that: what
can be set by hand is the oracle where packets are lost. `share_of_best` is each flow's steady rate by it.
A run that the lab could not carry is reported as such, without figures, and the exit code is 9.

    cargo build --release
    bench/steps.py                                          # all scenarios; about 25 minutes
    bench/steps.py --scenarios cross --flows no-flags,no-flags:cubic,16
    bench/steps.py --phase 15 --flows no-flags              # a first impression; 4 minutes

flows.py says how a flow is written.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True

import flows as lab  # noqa: E402

# TCP with timestamps carries so much of a rate in packets of 1500 bytes.
PAYLOAD = 1448 / 1500
# When the first phase begins, seconds after the lab: until then servers and clients start.
LEAD = 5.0
# A step is answered when a rate holds for so long, seconds.
WINDOW = 2.0
NEAR = 0.9
CROSS_FLOWS = 4
SCENARIOS = ("rate", "rtt", "loss", "cross")


def phases(scenario, options):
    """Rate (Mbit/s), round trip (ms), loss (%) and cross flows of the three phases."""
    usual = {"rate": options.rate, "rtt": options.rtt, "loss": 0.0, "cross": 0}
    other = {
        "rate": {"rate": options.rate / 4},
        "rtt": {"rtt": options.rtt * 4},
        "loss": {"loss": options.loss},
        "cross": {"cross": CROSS_FLOWS},
    }[scenario]
    return [usual, {**usual, **other}, usual]


def starts(options):
    """When the phases begin and the last one ends, seconds after the lab."""
    return [LEAD + options.phase * number for number in range(4)]


def trace(scenario, options):
    """The path over time as the lab reads it. It would begin again after its last line."""
    path, begins = phases(scenario, options), starts(options)
    rows = [(0.0, path[0]), (begins[1], path[1]), (begins[2], path[2]), (begins[2] + 1e5, path[2])]
    lines = [
        f"{at:.3f},{here['rate']}mbit,{here['rtt']}ms,{here['loss']}%" for at, here in rows
    ]
    return "\n".join(["seconds,rate,rtt,loss", *lines]) + "\n"


def inside(options):
    """On the lab: the flow, its cross traffic, the result file."""
    begun = time.monotonic()
    scratch = Path(options.inside)
    path = phases(options.scenario, options)
    moments = [begun + start for start in starts(options)]
    server, ping = lab.Server(scratch), lab.Ping()
    copy = lab.Copy(options.flow, server, scratch, 0, options.cc)
    running, cross = [copy, ping, server], []
    try:
        lab.wait_for_data([copy])
        for number, phase in enumerate(path):
            lab.watch([copy], moments[number])
            if phase["cross"]:
                cross = [
                    lab.Copy("stock", server, scratch, 1 + n, options.cc)
                    for n in range(phase["cross"])
                ]
                running = [*cross, *running]
            else:
                # They leave.
                for flow in cross:
                    flow.stop()
            lab.watch([copy], moments[number + 1])
        # The last moment lies between two samples.
        time.sleep(1)
        copy.check()
        result = measured(copy, cross, ping, path, moments)
    finally:
        for process in running:
            process.stop()
    (scratch / "result.json").write_text(json.dumps(result))


def measured(copy, cross, ping, path, moments):
    """What became of the flow in each phase; and its rate over time, for others to compare."""
    result = {"phases": []}
    for phase, begin, end in zip(path, moments, moments[1:]):
        late = end - (end - begin) / 3
        steady = copy.mbit(late, end)
        even = phase["rate"] * PAYLOAD / (1 + phase["cross"])
        one = {
            **phase,
            "steady_mbit": round(steady, 2),
            "path_mbit": round(even, 2),
            "recovery_s": {
                "to_path": recovery(copy.samples, begin, end, NEAR * even),
                "to_steady": recovery(copy.samples, begin, end, NEAR * steady),
            },
            "streams": copy.streams_between(late, end),
            "queue_delay": ping.queue(late, end, phase["rtt"]),
        }
        if phase["cross"]:
            got = [flow.mbit(late, end - WINDOW / 2) for flow in cross]
            one["cross_mbit"] = round(sum(got), 2)
            wanted = NEAR * even * phase["cross"]
            one["cross_recovery_s"] = recovery(together(cross), begin, end, wanted)
            one["even_share"] = round(steady * (1 + len(got)) / (steady + sum(got)), 3)
            one["jain"] = round(lab.jain([steady, *got]), 4)
        result["phases"].append(one)
    start = moments[0]
    result["samples"] = [(round(at - start, 3), moved) for at, moved in copy.samples]
    return result


def together(flows):
    """The samples of several flows as if they were one, at the moments of the first."""
    others = [list(flow.samples) for flow in flows[1:]]
    moments = ((at, moved, [lab.received(other, at) for other in others])
               for at, moved in list(flows[0].samples))
    return [(at, moved + sum(more)) for at, moved, more in moments if None not in more]


def recovery(samples, begin, end, wanted):
    """Seconds from `begin` until a stretch of two seconds begins with at least `wanted` Mbit/s."""
    step = 0.1
    for number in range(int((end - begin - WINDOW) / step) + 1):
        moment = begin + number * step
        rate = lab.mbit(samples, moment, moment + WINDOW)
        if rate is not None and rate >= wanted:
            return round(moment - begin, 1)
    return None


def run(scenario, flow, options):
    """One run in a fresh lab; its line, with the samples."""
    arguments = [
        "--scenario", scenario, "--flow", flow, "--rate", str(options.rate),
        "--rtt", str(options.rtt), "--loss", str(options.loss), "--phase", str(options.phase),
        "--cc", options.cc,
    ]
    queue = round(options.queue * options.rate * options.rtt * 1000 / 8 / 1500)
    network = [
        "--trace", options.trace_file, "--queue", f"{queue} packets", "--cc", options.cc,
        *(word for sysctl in lab.AUTOTUNED for word in ("--sysctl", sysctl)),
    ]
    Path(options.trace_file).write_text(trace(scenario, options))
    line = {
        "scenario": scenario, "flow": flow, "queue_packets": queue, "cc": options.cc,
        "phase_s": options.phase, "seed": options.seed,
    }
    line.update(lab.in_lab(network, __file__, arguments, options.seed))
    shown = {key: value for key, value in line.items() if key != "samples"}
    print(json.dumps(shown), flush=True)
    return line


def against_the_best(scenario, lines, options):
    """Each flow's recovery to the highest steady rate of any flow in each phase."""
    begins = [begin - LEAD for begin in starts(options)]
    best = [
        min(
            lines[0]["phases"][n]["path_mbit"],
            max(line["phases"][n]["steady_mbit"] for line in lines),
        )
        for n in range(3)
    ]
    recoveries = {
        line["flow"]: [
            recovery(line["samples"], begins[n], begins[n + 1], NEAR * best[n]) for n in range(3)
        ]
        for line in lines
    }
    print(json.dumps({
        "scenario": scenario, "best_mbit": best, "to_best": recoveries,
        "share_of_best": {
            line["flow"]: [
                round(line["phases"][n]["steady_mbit"] / best[n], 3) if best[n] else None
                for n in range(3)
            ]
            for line in lines
        },
    }), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenarios", default=",".join(SCENARIOS))
    parser.add_argument("--flows", default="no-flags,no-flags:cubic,8", help="each by itself")
    parser.add_argument("--phase", type=float, default=30, help="length of a phase, seconds")
    parser.add_argument("--rate", type=float, default=200, help="Mbit/s")
    parser.add_argument("--rtt", type=float, default=20, help="ms")
    parser.add_argument("--loss", type=float, default=1, help="of the scenario's middle, %%")
    parser.add_argument("--queue", type=float, default=1, help="in products of rate and rtt")
    parser.add_argument("--cc", default="cubic", help="of the hosts and the stock flows")
    parser.add_argument("--seed", type=int, default=1)
    for hidden in ("--inside", "--scenario", "--flow"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options)
        return
    scenarios = options.scenarios.split(",")
    if unknown := [word for word in scenarios if word not in SCENARIOS]:
        parser.error(f"no such scenario: {unknown[0]}")
    if options.phase < 3 * WINDOW:
        parser.error(f"--phase: {3 * WINDOW:.0f} seconds at least")
    everything_counts = True
    with tempfile.TemporaryDirectory(prefix="longhaul-steps-") as directory:
        options.trace_file = f"{directory}/path.csv"
        for scenario in scenarios:
            lines = [run(scenario, flow, options) for flow in options.flows.split(",")]
            counting = [line for line in lines if "phases" in line]
            everything_counts &= len(counting) == len(lines)
            if counting:
                against_the_best(scenario, counting, options)
    if not everything_counts:
        sys.exit(lab.INVALID)


if __name__ == "__main__":
    main()
