#!/usr/bin/env python3
"""Tests that a queue delivers every file once, and verified, while its workers are killed.

A PostgreSQL of the test's own, a server with small files, and several workers, each with a state directory. One worker, in turn,
is killed with SIGKILL at intervals and started again; with --outage the database is stopped in between, too. The test fails if

    a job does not end as `done`, or has another number of attempts that ended well than one,
    two attempts of a job ran at the same time (by the times of the database),
    a file is missing at the destination, or differs from its source,
    or something else than the files is there (partial files, journals).

    tests/campaign/queue-campaign.py                                  # 10 000 files, 4 workers, a kill each 30 s
    tests/campaign/queue-campaign.py --files 500 --kill-every 5 --outage 20
    tests/campaign/queue-campaign.py --lab                            # each worker, the server and the database on a host of the lab

Needs longhaul and longhaul-queue in target/release (or --programs DIR), and PostgreSQL (tests/install-peers).
"""

import argparse
import filecmp
import glob
import os
import pathlib
import pwd
import random
import signal
import subprocess
import sys
import tempfile
import time

OVERLAPS = """SELECT COUNT(*) FROM longhaul_queue.attempts a JOIN longhaul_queue.attempts b
    ON a.job = b.job AND a.number < b.number AND (a.ended_at IS NULL OR b.started_at < a.ended_at)"""
NOT_ONCE = """SELECT COUNT(*) FROM (SELECT jobs.id FROM longhaul_queue.jobs LEFT JOIN longhaul_queue.attempts
    ON job = id AND outcome = 'done' GROUP BY jobs.id HAVING COUNT(number) <> 1) AS wrong"""
STATES = "SELECT string_agg(state || ' ' || n, ', ') FROM (SELECT state, COUNT(*) n FROM longhaul_queue.jobs GROUP BY state) s"
OUTCOMES = "SELECT string_agg(o || ' ' || n, ', ') FROM (SELECT outcome o, COUNT(*) n FROM longhaul_queue.attempts GROUP BY outcome) s"
OPEN = "SELECT COUNT(*) FROM longhaul_queue.jobs WHERE state IN ('waiting', 'running')"


def on_host(options, name):
    """The words that run a program on a host of the lab."""
    return [options.programs / "longhaul", "lab", "exec", name, "--"] if options.lab else []


def address_of(options, name):
    return os.environ[f"LAB_{name.upper()}"] if options.lab else "127.0.0.1"


def enter_lab(options):
    """Runs this script again in the lab's network: a database, a server, and the workers, 10 ms and 200 Mbit/s from both."""
    names = [f"w{number}" for number in range(options.workers)]
    hosts = "".join(f"[hosts.{name}]\n" for name in ["db", "src", *names])
    path = '[[paths]]\nbetween = ["{}", "{}"]\nrtt = "10ms"\nrate = "200mbit"\n'
    paths = "".join(path.format(name, end) for name in names for end in ["db", "src"])
    with tempfile.NamedTemporaryFile("w", prefix="queue-", suffix=".toml", delete=False) as topology:
        topology.write('[default]\nrtt = "1ms"\n' + hosts + paths)
    net = [options.programs / "longhaul", "lab", "net", "-q", "--wait", "--topology", topology.name, "--"]
    sys.exit(subprocess.run([*net, sys.executable, *sys.argv]).returncode)


class Postgres:
    """A server below a directory, as another account than root."""

    def __init__(self, place, host, address):
        self.host, self.address = host, address
        self.bin = max(glob.glob("/usr/lib/postgresql/*/bin"))
        self.place, self.data = place, place / "pg"
        self.account = ["setpriv", "--pdeathsig", "INT"]
        self.data.mkdir()
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            self.account += ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
            for path in [place, self.data]:
                os.chown(path, user.pw_uid, user.pw_gid)
        words = ["-A", "trust", "-U", "queue", "-E", "UTF8", "--locale=C", "-D", self.data]
        subprocess.run([*self.account, f"{self.bin}/initdb", *words], check=True, stdout=subprocess.DEVNULL, cwd="/")
        self.start()
        self.run("createdb", "queue")
        if host:
            (self.data / "pg_hba.conf").open("a").write("host all all all trust\n")
            self.run("psql", "-d", "queue", "-c", "SELECT pg_reload_conf()")
        self.url = f"postgres://queue@{address}/queue" if host else f"postgres://queue@localhost/queue?host={place}"

    def start(self):
        listens = self.address if self.host else ""
        words = ["-c", f"listen_addresses={listens}", "-k", self.place, "-D", self.data]
        command = [*self.host, *self.account, f"{self.bin}/postgres", *words]
        with open(self.place / "postgres.log", "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")
        while self.run("pg_isready", "-q", "-d", "postgres", check=False).returncode != 0:
            time.sleep(0.05)

    def stop(self):
        os.kill(int((self.data / "postmaster.pid").read_text().split()[0]), signal.SIGINT)
        self.process.wait()

    def run(self, program, *words, check=True):
        command = [*self.account, f"{self.bin}/{program}", "-U", "queue", "-h", self.place, *words]
        return subprocess.run(command, check=check, capture_output=True, text=True, cwd="/")

    def ask(self, question):
        return self.run("psql", "-d", "queue", "-Atc", question).stdout.strip()


def start_worker(options, place, url, number):
    words = ["--name", f"w{number}", "--state", place / f"w{number}", "--jobs", str(options.jobs), "--lease", options.lease]
    environment = {**os.environ, "LONGHAUL_QUEUE": url, "LONGHAUL_CONFIG": "off", "LONGHAUL_HISTORY": "off"}
    with open(place / f"w{number}.log", "a") as log:
        return subprocess.Popen(
            [*on_host(options, f"w{number}"), options.programs / "longhaul", "worker", *words],
            stdout=subprocess.DEVNULL, stderr=log, env=environment,
        )


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=4, help="jobs at a time of each worker")
    parser.add_argument("--kill-every", type=float, default=30, help="seconds")
    parser.add_argument("--outage", type=float, default=0, help="stop the database for 5 s, each so many seconds")
    parser.add_argument("--lease", default="60s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lab", action="store_true", help="in the lab's network")
    parser.add_argument("--programs", type=pathlib.Path, default=root / "target/release")
    options = parser.parse_args()
    options.programs = options.programs.resolve()
    if options.lab and "LAB_DB" not in os.environ:
        enter_lab(options)
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="queue-", dir="/tmp") as place:
        sys.exit(campaign(options, chance, pathlib.Path(place)))


def campaign(options, chance, place):
    place.chmod(0o755)
    served, copied = place / "served", place / "copied"
    served.mkdir()
    copied.mkdir()
    postgres = Postgres(place, on_host(options, "db"), address_of(options, "db"))
    server = subprocess.Popen(
        [*on_host(options, "src"), options.programs / "longhaul", "serve", "--listen", f"{address_of(options, 'src')}:0",
         "--anonymous", "ro", "--root", served],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    address = server.stdout.readline().split()[-1]
    lines = []
    for number in range(options.files):
        (served / f"f{number}").write_bytes(chance.randbytes(chance.randrange(200_000)))
        lines.append(f"ftp://{address}/f{number}\t{copied}/f{number}\n")
    (place / "list").write_text("".join(lines))
    submit = [*on_host(options, "w0"), options.programs / "longhaul", "queue", "submit", "--database", postgres.url, "--from", place / "list"]
    begun = time.monotonic()
    subprocess.run(submit, check=True, stdout=subprocess.DEVNULL)
    print(f"{options.files} jobs submitted in {time.monotonic() - begun:.1f} s", flush=True)
    workers = [start_worker(options, place, postgres.url, n) for n in range(options.workers)]
    begun, kills, outages = time.monotonic(), 0, 0
    next_kill, next_outage = options.kill_every, options.outage
    while True:
        time.sleep(0.5)
        elapsed = time.monotonic() - begun
        if options.outage and elapsed > next_outage:
            postgres.stop()
            time.sleep(5)
            postgres.start()
            outages, next_outage = outages + 1, elapsed + 5 + options.outage
        if elapsed > next_kill:
            victim = kills % options.workers
            workers[victim].kill()
            workers[victim].wait()
            workers[victim] = start_worker(options, place, postgres.url, victim)
            kills, next_kill = kills + 1, elapsed + options.kill_every
            print(f"{elapsed:6.0f} s: w{victim} killed; {postgres.ask(STATES)}", flush=True)
        if postgres.ask(OPEN) == "0":
            break
    seconds = time.monotonic() - begun
    for worker in workers:
        worker.terminate()
    ends = [worker.wait() for worker in workers]
    server.kill()
    names = {f"f{number}" for number in range(options.files)}
    wrong = [name for name in names if not (copied / name).exists() or not filecmp.cmp(served / name, copied / name, False)]
    extra = sorted(set(os.listdir(copied)) - names)
    faults = {
        "not done by one attempt": int(postgres.ask(NOT_ONCE)),
        "attempts at the same time": int(postgres.ask(OVERLAPS)),
        "files that are missing or differ": len(wrong),
        "other files": len(extra),
        "workers that did not end well": sum(end != 0 for end in ends),
    }
    print(f"{options.files} files in {seconds:.0f} s, {kills} workers killed, {outages} outages of the database")
    print(f"jobs: {postgres.ask(STATES)}; attempts: {postgres.ask(OUTCOMES)}")
    for fault, number in faults.items():
        print(f"{fault}: {number}")
    postgres.stop()
    return any(faults.values())


if __name__ == "__main__":
    main()
