"""What a copy has done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

#: One line of ``--json``: ``event`` says of what kind it is.
Event = dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """The end of a copy. ``fields`` has all that the program says."""

    files: int
    bytes: int
    seconds: float
    verified: Optional[str]
    fields: Event = field(repr=False)
