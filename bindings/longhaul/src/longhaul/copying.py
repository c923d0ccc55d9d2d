"""``longhaul cp`` and ``longhaul sync``."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Optional, Union

from . import program
from .errors import error_of
from .summary import Event, Summary

Progress = Callable[[Event], None]
Place = Union[str, "os.PathLike[str]"]


def copy(
    source: Union[Place, Sequence[Place]],
    destination: Place,
    *,
    recursive: bool = False,
    resume: bool = False,
    progress: Optional[Progress] = None,
    flags: Sequence[str] = (),
    password: Optional[str] = None,
    binary: Optional[str] = None,
) -> Summary:
    """Copies files and trees between URLs and local paths; returns when they are verified and on disk.

    ``progress`` is called with each event; an exception in it ends the copy, which ``resume`` continues later.
    ``flags`` are more flags of ``longhaul cp``. Raises a :class:`LonghaulError`.
    """
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    arguments = ["cp"]
    if recursive:
        arguments.append("--recursive")
    if resume:
        arguments.append("--resume")
    arguments += [*flag_list(flags), "--", *[os.fspath(one) for one in sources], os.fspath(destination)]
    return _run(arguments, progress, password, binary)


def sync(
    source: Place,
    destination: Place,
    *,
    delete: bool = False,
    checksum: bool = False,
    progress: Optional[Progress] = None,
    flags: Sequence[str] = (),
    password: Optional[str] = None,
    binary: Optional[str] = None,
) -> Summary:
    """Copies what differs in size or time (``checksum``: in content); ``delete`` removes what the source lacks."""
    arguments = ["sync"]
    if delete:
        arguments.append("--delete")
    if checksum:
        arguments.append("--checksum")
    arguments += [*flag_list(flags), "--", os.fspath(source), os.fspath(destination)]
    return _run(arguments, progress, password, binary)


def flag_list(flags: Sequence[str]) -> list[str]:
    """A text would be taken for its letters, each a word of the command."""
    if isinstance(flags, str):
        raise TypeError('flags is a list of words, as in flags=["--limit-rate", "100M"]')
    return list(flags)


def _run(
    arguments: list[str], progress: Optional[Progress], password: Optional[str], binary: Optional[str]
) -> Summary:
    arguments.insert(1, "--json")
    last: Event = {}
    failure: Event = {}
    with tempfile.TemporaryFile() as messages:
        with program.running(arguments, messages, binary=binary, password=password) as process:
            assert process.stdout is not None
            for line in process.stdout:
                last = json.loads(line)
                if last.get("event") == "failed":
                    failure = last
                if progress is not None:
                    progress(last)
            code = process.wait()
        messages.seek(0)
        said = program.failure_message(messages.read().decode(errors="replace"))
    summary = None
    if last.get("event") == "summary":
        summary = Summary(last["files"], last["bytes"], last["seconds"], last["verified"], last)
    if code != 0:
        reason = (summary and summary.fields.get("error")) or failure.get("error") or said
        raise error_of(code, str(reason), summary)
    if summary is None:
        raise error_of(8, "the program ended without a summary")
    return summary
