"""One exception per exit code of the program (``longhaul help``)."""

from __future__ import annotations

from typing import Any, Optional

from .summary import Summary


class LonghaulError(Exception):
    """The program has failed. ``exit_code`` is its exit code, ``summary`` the end of a copy, if it got that far."""

    def __init__(self, message: str, exit_code: int, summary: Optional[Summary] = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.summary = summary

    def __str__(self) -> str:
        # OSError would show its own fields.
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions travel between the processes of dask and multiprocessing.
        return type(self), (str(self), self.exit_code, self.summary)


class PartialFailure(LonghaulError):
    """Some of several files failed."""


class UsageError(LonghaulError, ValueError):
    """The arguments are invalid."""


class Refused(LonghaulError, PermissionError):
    """Login or permission refused."""


class NotFound(LonghaulError, FileNotFoundError):
    """No such file or directory."""


class Unreachable(LonghaulError, ConnectionError):
    """The peer cannot be reached, or was lost after all retries."""


class IntegrityError(LonghaulError):
    """The data that arrived differs from the source."""


class LocalError(LonghaulError, OSError):
    """A local file or disk, or another copy that writes the destination."""


class ProtocolError(LonghaulError):
    """The peer refused for another reason."""


class Interrupted(LonghaulError):
    """A signal has ended the program."""


_BY_EXIT_CODE: dict[int, type[LonghaulError]] = {
    1: PartialFailure,
    2: UsageError,
    3: Refused,
    4: NotFound,
    5: Unreachable,
    6: IntegrityError,
    7: LocalError,
    8: ProtocolError,
    130: Interrupted,
}


def error_of(exit_code: int, message: str, summary: Optional[Summary] = None) -> LonghaulError:
    """The exception of an exit code."""
    return _BY_EXIT_CODE.get(exit_code, LonghaulError)(message, exit_code, summary)
