#!/usr/bin/env python3
"""What longhaul alone is measured for: I/O methods on loopback, and what idle sessions cost.

Prints tables of docs/benchmarks.md; beside its peers it is measured by `longhaul lab run loopback`.
Every row is measured in turn with the others in one run; figures are medians. Run it on an otherwise
idle machine:

    cargo build --release && bench/longhaul-alone.py [--size 4G] [--runs 5] [--only io,idle]
"""

import argparse
import asyncio
import atexit
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).resolve().parent.parent
LONGHAUL = os.environ.get("LONGHAUL_BIN", str(ROOT / "target/release/longhaul"))


def size(text):
    units = {"k": 10, "m": 20, "g": 30}
    unit = text[-1].lower()
    return int(text[:-1]) << units[unit] if unit in units else int(text)


def cpu_of(pid):
    """User and system seconds of a process, its live descendants and those they have reaped."""
    parents, seconds = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        seconds[int(entry.name)] = sum(int(f) for f in fields[11:15]) / TICKS

    def descends(process):
        while process and process != pid:
            process = parents.get(process, 0)
        return process == pid

    return sum(seconds[process] for process in seconds if descends(process))


class Server:
    """A server process and its address."""

    def __init__(self, argv):
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        atexit.register(self.process.kill)
        line = self.process.stdout.readline().decode()
        self.port = int(line.strip().rsplit(":", 1)[1])

    def stop(self):
        self.process.kill()
        self.process.wait()


def longhaul_server(root, *more):
    argv = [LONGHAUL, "serve", "--listen", "127.0.0.1:0", "--root", str(root), "--anonymous", "rw"]
    return Server(argv + list(more))


def measure(server, argv):
    """Wall seconds, and CPU seconds of both ends."""
    before_server = cpu_of(server.process.pid)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wall = time.monotonic() - start
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)} failed: {done.stderr.decode()[-500:]}")
    time.sleep(0.2)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    client = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, client + cpu_of(server.process.pid) - before_server


def table(title, nbytes, rows, runs, cleanup=None):
    """Rows are (label, server, argv); measured in turn, `runs` times after one warm-up."""
    figures = {label: [] for label, _, _ in rows}
    for turn in range(runs + 1):
        for label, server, argv in rows:
            result = measure(server, argv)
            if cleanup:
                cleanup()
            if turn > 0:
                figures[label].append(result)
    print(f"\n{title}\n")
    print("| program | GB/s median (min-max) | CPU s/GB |")
    print("| --- | --- | --- |")
    gigabytes = nbytes / 1e9
    for label, _, _ in rows:
        rates = [gigabytes / wall for wall, _ in figures[label]]
        cpus = [cpu / gigabytes for _, cpu in figures[label]]
        print(f"| {label} | {statistics.median(rates):.2f} ({min(rates):.2f}-{max(rates):.2f}) "
              f"| {statistics.median(cpus):.3f} |", flush=True)


def io_tables(args, scratch, source):
    target = scratch / "target.dat"
    for destination in ("/dev/null", str(target)):
        servers = {m: longhaul_server(source.parent, "--io", m)
                   for m in ("copy", "sendfile", "splice", "zerocopy")}
        rows = []
        for method, server in servers.items():
            url = f"ftp://127.0.0.1:{server.port}/{source.name}"
            for receive in ("copy", "splice"):
                rows.append((f"send {method}, receive {receive}", server,
                             [LONGHAUL, "cp", "-q", "-p", "1", "--verify", "none", "--io", receive,
                              url, destination]))
        where = "/dev/null" if destination == "/dev/null" else "a tmpfs file"
        table(f"methods, 1 stream, to {where}", args.size, rows, args.runs,
              lambda: target.unlink(missing_ok=True))
        for server in servers.values():
            server.stop()


def idle(args, scratch, source):
    resource.setrlimit(resource.RLIMIT_NOFILE, (args.sessions + 200,) * 2)
    server = longhaul_server(source.parent, "--max-sessions", "20000",
                             "--max-sessions-per-address", "20000", "--max-sessions-per-user", "20000")

    def memory():
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        return int(next(l for l in status.splitlines() if l.startswith("VmRSS")).split()[1]) / 1024

    async def session():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await reader.readline()
        for line in (b"USER anonymous\r\n", b"PASS a@b\r\n"):
            writer.write(line)
            reply = await reader.readline()
        if not reply.startswith(b"230"):
            sys.exit(f"login refused: {reply}")
        return writer

    async def all_sessions():
        before = memory()
        held = []
        start = time.monotonic()
        while len(held) < args.sessions:
            held += await asyncio.gather(*(session() for _ in range(200)))
        seconds = time.monotonic() - start
        after = memory()
        print(f"\n{len(held)} idle logged-in sessions: server memory {before:.0f} -> {after:.0f} MB "
              f"({(after - before) * 1024 / len(held):.1f} kB a session), logged in within {seconds:.1f} s")

    asyncio.run(all_sessions())
    server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=size, default=4 << 30)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=10000)
    parser.add_argument("--only", default="io,idle")
    parser.add_argument("--tmpfs", default="/dev/shm", help="where the destination file goes")
    parser.add_argument("--dir", default=None, help="where the source file goes")
    args = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="longhaul-bench-", dir=args.tmpfs))
    sources = Path(tempfile.mkdtemp(prefix="longhaul-bench-", dir=args.dir))
    for place in (scratch, sources):
        place.chmod(0o755)
    source = sources / "big.dat"
    if os.geteuid() == 0:
        # Reclaiming a full page cache in the middle of a run would be measured as somebody's slowness.
        subprocess.run(["sync"], check=True)
        Path("/proc/sys/vm/drop_caches").write_text("3")
    try:
        with open(source, "wb") as out:
            for _ in range(args.size >> 20):
                out.write(os.urandom(1 << 20))
        subprocess.run(["cat", str(source)], stdout=subprocess.DEVNULL, check=True)
        load = os.getloadavg()[0]
        print(f"kernel {os.uname().release}, {os.cpu_count()} processors, load before {load:.2f}, "
              f"file {args.size} bytes, {args.runs} runs")
        for name, part in (("io", io_tables), ("idle", idle)):
            if name in args.only.split(","):
                part(args, scratch, source)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(sources, ignore_errors=True)


if __name__ == "__main__":
    main()
