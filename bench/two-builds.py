#!/usr/bin/env python3
"""Two builds of longhaul against each other: did a change make anything slower?

Every row is measured with both builds in turn, several times in one run; the figure is the ratio of
the medians, above 1 where the new build is faster. Both ends are of the same build. Run it on an
otherwise idle machine, as root for the long path:

    bench/two-builds.py OLD/longhaul NEW/longhaul [--size 1G] [--runs 7] [--only get-1,wan-get]
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

UNITS = {"k": 10, "m": 20, "g": 30}


def size(text):
    unit = text[-1].lower()
    return int(text[:-1]) << UNITS[unit] if unit in UNITS else int(text)


class Server:
    """`longhaul serve` of one build over a directory, on a free port."""

    def __init__(self, build, root):
        argv = [build, "serve", "--listen", "127.0.0.1:0", "--root", str(root)]
        argv += ["--anonymous", "rw", "--sync-policy", "none"]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        line = self.process.stdout.readline().decode()
        self.address = line.split()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def copy(build, *arguments):
    """Seconds of one `longhaul cp`."""
    argv = [build, "cp", "--quiet", "--sync-policy", "none", *map(str, arguments)]
    begun = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def served(*options, up=False, small=False):
    """A row over loopback: `cp` with these options from (or `up` to) a fresh server."""

    def row(build, place):
        name = "small" if small else "large"
        with Server(build, place / "root") as server:
            url = f"ftp://{server.address}"
            if up:
                source, target = place / "root" / name, f"{url}/copy"
            else:
                source, target = f"{url}/{name}", "/dev/null" if not small else place / "copy"
            seconds = copy(build, *options, source, target)
        (place / "root" / "copy").unlink(missing_ok=True)
        return seconds

    return row


def local(*options):
    def row(build, place):
        target = place / "copy"
        target.unlink(missing_ok=True)
        return copy(build, *options, place / "root" / "large", target)

    return row


def wan(up):
    """A row over an emulated path: 500 Mbit/s, 50 ms, 0.01 % loss; 128 MiB, no other flags."""

    def row(build, place):
        listen = "$LAB_B:2811"
        ends = ["$LAB_URL/wan", "/dev/null"]
        if up:
            ends = [str(place / "root" / "wan"), "$LAB_URL/copy"]
        script = f"""
            {build} lab exec b -- {build} serve --listen {listen} --root {place}/root \
                --anonymous rw --sync-policy none >/dev/null 2>&1 &
            sleep 1
            LAB_URL=ftp://{listen}
            begun=$(date +%s.%N)
            {build} lab exec a -- {build} cp --quiet --sync-policy none {ends[0]} {ends[1]} || exit 1
            echo "$begun $(date +%s.%N)"
        """
        argv = [build, "lab", "net", "--rtt", "50ms", "--rate", "500mbit", "--loss", "0.01%"]
        done = subprocess.run(argv + ["--", "sh", "-c", script], check=True, capture_output=True)
        begun, ended = done.stdout.decode().split()[-2:]
        (place / "root" / "copy").unlink(missing_ok=True)
        return float(ended) - float(begun)

    return row


ROWS = {
    "get-1": ("get to /dev/null, 1 stream, verified", served("-p", "1")),
    "get-4": ("get to /dev/null, 4 streams, not verified", served("-p", "4", "--verify", "none")),
    "put-1": ("put into tmpfs, 1 stream, verified", served("-p", "1", up=True)),
    "put-4": ("put into tmpfs, 4 streams, verified", served("-p", "4", up=True)),
    "tiny-get": ("get of one tiny file", served(small=True)),
    "tiny-put": ("put of one tiny file", served(up=True, small=True)),
    "local": ("copy within tmpfs, verified", local()),
    "local-none": ("copy within tmpfs, not verified", local("--verify", "none")),
    "wan-get": ("get, 500 Mbit/s, 50 ms, 0.01 %, 128 MiB", wan(False)),
    "wan-put": ("put, 500 Mbit/s, 50 ms, 0.01 %, 128 MiB", wan(True)),
}


def write(path, length):
    with open(path, "wb") as file:
        block = os.urandom(1 << 20)
        while length > 0:
            file.write(block[: min(length, len(block))])
            length -= len(block)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--size", type=size, default=1 << 30)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only", default=",".join(ROWS))
    options = parser.parse_args()
    builds = [str(Path(build).resolve()) for build in (options.old, options.new)]
    place = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="two-builds-"))
    try:
        (place / "root").mkdir()
        write(place / "root" / "large", options.size)
        write(place / "root" / "wan", 128 << 20)
        write(place / "root" / "small", 1000)
        print("| row | old, s | new, s | old : new |\n| --- | --- | --- | --- |")
        for key in options.only.split(","):
            name, row = ROWS[key]
            seconds = [[], []]
            for run in range(options.runs):
                # Neither build is always the first.
                for which in (0, 1) if run % 2 == 0 else (1, 0):
                    seconds[which].append(row(builds[which], place))
            old, new = (statistics.median(each) for each in seconds)
            spread = ["%.3f to %.3f" % (min(each), max(each)) for each in seconds]
            print(f"| {name} | {old:.3f} ({spread[0]}) | {new:.3f} ({spread[1]}) | {old / new:.2f} |")
            sys.stdout.flush()
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
