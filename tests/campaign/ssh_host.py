"""An ssh server for one user's key, and the processes of one moment of a campaign at both of its ends."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

# The value of this variable names the moment to which a program at the far end belongs.
MARK = "LONGHAUL_CAMPAIGN"
SFTP_SERVERS = ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server",
                "/usr/libexec/sftp-server"]
# Sessions take the connection for one from elsewhere, to an address that only the far end has: no port can be reached.
CLOSED = "SSH_CONNECTION='192.0.2.1 4711 127.0.0.5 22'\nexport SSH_CONNECTION\n"


def sftp_server():
    return next((path for path in SFTP_SERVERS if Path(path).exists()), None)


def missing():
    """The first program that is not installed."""
    programs = ["ssh", "sshd", "ssh-keygen"]
    return next((name for name in programs if not shutil.which(name)), None if sftp_server() else "sftp-server")


class Process:
    """One process, by what /proc says about it."""

    def __init__(self, pid):
        self.pid = pid
        self.words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        self.line = b" ".join(self.words).decode(errors="replace").strip()
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
        self.state, self.parent, self.start = stat[0], int(stat[1]), int(stat[19])

    def variables(self):
        try:
            return Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return []

    def name(self):
        return os.path.basename(self.words[0].decode(errors="replace"))

    def kill(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
            return True
        except ProcessLookupError:
            return False


def processes():
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                found.append(Process(int(entry)))
            except (OSError, IndexError):
                pass
    return [one for one in found if one.state != "Z"]


def below(pid, everything):
    """All processes below one."""
    parents, found = {pid}, []
    while parents:
        children = [one for one in everything if one.parent in parents]
        found += children
        parents = {one.pid for one in children}
    return found


class SshHost:
    """sshd, whose logins find a longhaul, and ssh's settings for it. `place` is a directory of the moment alone."""

    def __init__(self, place, longhaul, is_closed):
        self.place, self.mark = place, f"{MARK}={place}".encode()
        # ssh's sockets have short names only.
        self.sockets = place / "s"
        for folder in (self.sockets, place / "programs", place / "far"):
            folder.mkdir()
        program = place / "programs/longhaul"
        program.write_text(f"#!/bin/sh\n{CLOSED if is_closed else ''}exec {longhaul} \"$@\"\n")
        program.chmod(0o755)
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / key)], check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        (place / "known").write_text(f"[127.0.0.1]:{self.port} {(place / 'host.pub').read_text()}")
        (place / "sshd.conf").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {place}/host\nAuthorizedKeysFile {place}/user.pub\n"
            "PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            f"PermitRootLogin yes\nSubsystem sftp {sftp_server()}\nSetEnv PATH={place}/programs:/usr/bin:/bin "
            f"LONGHAUL_HISTORY=off LONGHAUL_CONFIG=off XDG_STATE_HOME={place}/far {MARK}={place}\n")
        (place / "ssh.conf").write_text(
            f"IdentityFile {place}/user\nIdentitiesOnly yes\nUserKnownHostsFile {place}/known\n"
            "GlobalKnownHostsFile none\nStrictHostKeyChecking yes\n")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.log = open(place / "sshd.log", "w")
        self.process = subprocess.Popen([shutil.which("sshd"), "-D", "-e", "-f", str(place / "sshd.conf")],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.wait_for()

    def wait_for(self):
        until = time.monotonic() + 30
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("sshd does not start") from None
                time.sleep(0.02)

    def options(self):
        return ["--ssh", f"ssh -F {self.place}/ssh.conf"]

    def programs(self, everything=None):
        """Programs that logins have started, also those that have lost their sshd."""
        everything = processes() if everything is None else everything
        return [one for one in everything if self.mark in one.variables() and not one.name().startswith("sshd")]

    def sessions(self):
        """Processes of sshd for one login each."""
        return [one for one in below(self.process.pid, processes()) if one.name().startswith("sshd")]

    def masters(self, everything=None):
        """Processes of ssh that keep a login, the first one's at the beginning."""
        everything = processes() if everything is None else everything
        found = [one for one in everything if one.line.startswith(f"ssh: {self.sockets}/")]
        return sorted(found, key=lambda one: one.line)

    def channels(self, client):
        """Processes of ssh that a client has started, in the order of their start."""
        found = [one for one in below(client, processes()) if one.name() == "ssh"]
        return sorted(found, key=lambda one: (one.start, one.pid))

    def logins_at(self, everything):
        """Processes of ssh at this end, whoever is their parent."""
        return [one for one in everything if f"-F {self.place}/ssh.conf" in one.line and one.name() == "ssh"]

    def left(self):
        """What is left of a copy: programs and logins."""
        everything = processes()
        found = self.programs(everything) + self.masters(everything) + self.logins_at(everything)
        return sorted({one.line for one in found + below(self.process.pid, everything)})

    def close(self):
        everything = processes()
        for one in below(self.process.pid, everything) + self.masters(everything) + self.logins_at(everything):
            one.kill()
        for one in self.programs(everything):
            one.kill()
        self.process.kill()
        self.process.wait()
        self.log.close()
