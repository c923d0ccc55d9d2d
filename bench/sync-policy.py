#!/usr/bin/env python3
"""What `--sync-policy file` costs against `none`: one big file to a real disk, and many small ones.

Rows are measured in turn, after all dirty pages were written; figures are medians. "and sync" is the
time until the bytes of a `none` run are on the disk, too (sync -f after the command): what the user
who wants them there pays. Run it on an otherwise idle machine; --disk must be on the disk in question:

    cargo build --release && bench/sync-policy.py --disk /data [--size 4G] [--runs 5] [--limit-rate 4G]
"""

import argparse
import atexit
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGHAUL = os.environ.get("LONGHAUL_BIN", str(ROOT / "target/release/longhaul"))
POLICIES = ("none", "file")


def size(text):
    units = {"k": 10, "m": 20, "g": 30}
    unit = text[-1].lower()
    return int(text[:-1]) << units[unit] if unit in units else int(text)


def server(root, policy):
    argv = [LONGHAUL, "serve", "--listen", "127.0.0.1:0", "--root", str(root), "--anonymous", "rw",
            "--sync-policy", policy]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    atexit.register(process.kill)
    return process.stdout.readline().decode().strip().rsplit(":", 1)[1]


def timed(argv):
    start = time.monotonic()
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)} failed: {done.stderr.decode()[-500:]}")
    return time.monotonic() - start


def measure(argv, disk):
    """Seconds of the command, and until its bytes are on the disk."""
    subprocess.run(["sync", "-f", str(disk)], check=True)
    command = timed(argv)
    return command, command + timed(["sync", "-f", str(disk)])


def table(title, rows, args, clean):
    """Rows are (label, {policy: argv})."""
    figures = {}
    for turn in range(args.runs + 1):
        for label, commands in rows:
            # Each policy goes first every other time.
            for policy in POLICIES if turn % 2 else reversed(POLICIES):
                clean()
                result = measure(commands[policy], args.disk)
                if turn > 0:
                    figures.setdefault((label, policy), []).append(result)
    clean()
    print(f"\n{title}\n")
    print("| | `none`, s (min-max) | `none` and sync, s | `file`, s (min-max) | `file` : `none` "
          "| `file` : `none` and sync |")
    print("| --- | --- | --- | --- | --- | --- |")
    for label, _ in rows:
        none, synced = zip(*figures[label, "none"])
        forced, _ = zip(*figures[label, "file"])
        median = statistics.median
        print(f"| {label} | {median(none):.2f} ({min(none):.2f}-{max(none):.2f}) | {median(synced):.2f} "
              f"| {median(forced):.2f} ({min(forced):.2f}-{max(forced):.2f}) "
              f"| {median(forced) / median(none):.3f} | {median(forced) / median(synced):.3f} |",
              flush=True)


def rows(args, served, name, target, ports, more):
    """A get and a put of `name` with each policy at the end that writes."""
    copy = [LONGHAUL, "cp", "-q", *more]
    if args.limit_rate:
        copy += ["--limit-rate", args.limit_rate]
    source = f"ftp://127.0.0.1:{ports['source']}/{name}"
    get = {p: copy + ["--sync-policy", p, source, str(target)] for p in POLICIES}
    put = {p: copy + [str(served / name), f"ftp://127.0.0.1:{ports[p]}/{target.name}"]
           for p in POLICIES}
    return [(f"get {name}", get), (f"put {name}", put)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--disk", required=True, help="directory on the disk to write to")
    parser.add_argument("--source", default="/dev/shm", help="directory of the source, not on that disk")
    parser.add_argument("--size", type=size, default=4 << 30)
    parser.add_argument("--files", type=int, default=1000, help="small files, 64 KiB each")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit-rate", help="of longhaul cp, bits per second: a network that is "
                        "slower than the disk")
    args = parser.parse_args()
    served = Path(tempfile.mkdtemp(prefix="longhaul-bench-", dir=args.source))
    written = Path(tempfile.mkdtemp(prefix="longhaul-bench-", dir=args.disk))
    target = written / "copy"

    def clean():
        for path in written.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    try:
        with open(served / "big", "wb") as out:
            for _ in range(args.size >> 20):
                out.write(os.urandom(1 << 20))
        (served / "small").mkdir()
        for number in range(args.files):
            (served / "small" / f"{number}").write_bytes(os.urandom(64 << 10))
        ports = {policy: server(written, policy) for policy in POLICIES}
        ports["source"] = server(served, "none")
        print(f"kernel {os.uname().release}, {os.cpu_count()} processors, load before "
              f"{os.getloadavg()[0]:.2f}, {args.runs} runs")
        table(f"one file of {args.size} bytes", rows(args, served, "big", target, ports, []), args, clean)
        table(f"{args.files} files of 64 KiB",
              rows(args, served, "small", target, ports, ["-r"]), args, clean)
    finally:
        shutil.rmtree(served, ignore_errors=True)
        shutil.rmtree(written, ignore_errors=True)


if __name__ == "__main__":
    main()
