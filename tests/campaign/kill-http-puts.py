#!/usr/bin/env python3
"""Tests that no file is lost when puts to a WebDAV server are killed.

Each time a file of 1 kB at `rclone serve webdav` is to be replaced by one of 8 MB, and `longhaul cp` is killed at a random
moment. The test fails ("lost") if the server then has neither of the two contents under the final name, if the same command
does not succeed afterwards, or if it leaves another file.

    cargo build --release
    tests/campaign/kill-http-puts.py [--kills 100] [--seed 7]

Needs rclone. LONGHAUL_BIN is the path of another binary. Exit code 1: something was lost.
"""

import argparse
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LONGHAUL = os.environ.get("LONGHAUL_BIN", str(ROOT / "target/release/longhaul"))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit("rclone does not start")


def attempt(place, port, dice, environment):
    """Kills one put. Returns whether it was still running, and what was lost."""
    served, source = place / "served", place / "source"
    old, new = dice.randbytes(1000), dice.randbytes(8_000_000)
    (served / "f").write_bytes(old)
    source.write_bytes(new)
    argv = [LONGHAUL, "cp", source, f"http://127.0.0.1:{port}/f"]
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    copy = subprocess.Popen([*argv, "--limit-rate", "100M"], **quiet)
    time.sleep(dice.random() * 0.9)
    copy.kill()
    was_running = copy.wait() < 0
    # The server has noticed it.
    time.sleep(0.3)
    lost = []
    if (served / "f").read_bytes() not in (old, new):
        lost.append("neither of the two contents")
    if subprocess.run(argv, **quiet).returncode != 0 or (served / "f").read_bytes() != new:
        lost.append("the same command does not succeed")
    if [path.name for path in served.iterdir()] != ["f"]:
        lost.append("another file is left")
    return was_running, lost


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not shutil.which("rclone"):
        sys.exit("rclone is not installed")
    dice = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="kill-http-puts-") as folder:
        place, port = Path(folder), free_port()
        (place / "served").mkdir()
        environment = dict(os.environ, XDG_STATE_HOME=str(place / "state"), LONGHAUL_HISTORY="off")
        argv = ["rclone", "serve", "webdav", str(place / "served"), "--addr", f"127.0.0.1:{port}"]
        server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(port)
            kills, lost = 0, []
            while kills < options.kills:
                was_running, faults = attempt(place, port, dice, environment)
                kills += was_running
                lost += faults
        finally:
            server.kill()
            server.wait()
    print(f"seed {options.seed}: {kills} puts killed, {len(lost)} lost {lost or ''}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
