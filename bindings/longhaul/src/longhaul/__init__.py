"""Copies files over long-distance networks with the program ``longhaul``.

>>> import longhaul
>>> longhaul.copy("ftp://host/data/big.dat", ".", progress=print)  # doctest: +SKIP
"""

from .copying import copy, sync
from .errors import (
    IntegrityError,
    Interrupted,
    LocalError,
    LonghaulError,
    NotFound,
    PartialFailure,
    ProtocolError,
    Refused,
    Unreachable,
    UsageError,
)
from .summary import Event, Summary

__all__ = [
    "Event",
    "IntegrityError",
    "Interrupted",
    "LocalError",
    "LonghaulError",
    "NotFound",
    "PartialFailure",
    "ProtocolError",
    "Refused",
    "Summary",
    "Unreachable",
    "UsageError",
    "copy",
    "sync",
]
