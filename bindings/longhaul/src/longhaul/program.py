"""Finds and runs the program."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Optional

from .errors import LonghaulError, error_of

#: Names the program, instead of the first ``longhaul`` in PATH.
BINARY_VARIABLE = "LONGHAUL_BIN"

#: A program that was asked to end has this long to record what is safe on disk.
_SECONDS_TO_END = 30


def find_binary(binary: Optional[str] = None) -> str:
    """The path of the program: as named, else the one that came with this package, else the first in PATH."""
    named = binary or os.environ.get(BINARY_VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise LonghaulError(f"{named} is no program; correct the argument binary or {BINARY_VARIABLE}", 127)
        return found
    found = shutil.which("longhaul", path=os.pathsep.join(_directories_of_this_package())) or shutil.which("longhaul")
    if found is None:
        raise LonghaulError(f"the program longhaul is not in PATH; install it, or set {BINARY_VARIABLE}", 127)
    return found


def _directories_of_this_package() -> list[str]:
    """Where pip puts the programs of a wheel: an environment need not be activated, and its directory not in PATH."""
    # Beside the package itself (`pip install --target`), of this interpreter, and of the user (`--user`).
    beside = Path(__file__).resolve().parents[1] / "bin"
    return [str(beside), sysconfig.get_path("scripts"), str(Path(site.getuserbase()) / "bin")]


def _environment(password: Optional[str]) -> Optional[Mapping[str, str]]:
    # Arguments can be read by every account of the host.
    return None if password is None else {**os.environ, "LONGHAUL_PASSWORD": password}


def failure_message(text: str) -> str:
    """The message of a failure: the program writes it last, and that of invalid arguments first, with help below."""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("error: "):
        return lines[0].removeprefix("error: ")
    return lines[-1].removeprefix("longhaul: ") if lines else ""


def output(
    arguments: Sequence[str], *, binary: Optional[str] = None, password: Optional[str] = None
) -> bytes:
    """Runs the program to its end; its standard output."""
    done = subprocess.run(
        [find_binary(binary), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        env=_environment(password),
    )
    if done.returncode != 0:
        raise error_of(done.returncode, failure_message(done.stderr.decode(errors="replace")))
    return done.stdout


@contextmanager
def running(
    arguments: Sequence[str],
    stderr: IO[bytes],
    *,
    binary: Optional[str] = None,
    password: Optional[str] = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A running program, which ends with the block."""
    process = subprocess.Popen(
        [find_binary(binary), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=_environment(password),
    )
    try:
        yield process
    finally:
        # After an exception (of a callback, or Ctrl-C) nothing reads the output any more: closed first, it cannot
        # keep the program from ending.
        if process.stdout is not None:
            process.stdout.close()
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
