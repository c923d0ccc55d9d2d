"""The rate that the processors of this host can receive: a cheap estimate that goes with a question.

The work of a receiver is mostly that of its memory: the network card writes each byte, the kernel reads it and writes it to
the program, and the work for its packets costs about as much again. So a core receives about a quarter of what it copies.
The estimate is good to a factor of two: it tells a processor that is slow for its path from one that is not.
"""

from __future__ import annotations

import functools
import os
import time
from typing import Tuple

#: Cost of a byte received, in bytes copied.
_COPIES = 4
#: Bytes of a copy: more than the caches of a core hold.
_PIECE = 4 << 20
#: The fastest one counts: another process may have taken the core in the others.
_ROUNDS = 8
#: Bounds of what is believed of a core, bits per second.
_OF_CORE = (10**7, 4 * 10**11)


@functools.lru_cache(maxsize=1)
def own_processor() -> Tuple[int, int]:
    """Bits per second that all cores together can receive, and the cores that this process may use. The first call of a
    process measures, for some milliseconds."""
    try:
        cores = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        cores = os.cpu_count() or 1
    source, target = bytes(b"\1") * _PIECE, memoryview(bytearray(b"\2") * _PIECE)
    fastest = float("inf")
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        target[:] = source
        fastest = min(fastest, time.perf_counter() - begin)
    of_core = int(_PIECE * 8 / max(fastest, 1e-9) / _COPIES)
    return min(max(of_core, _OF_CORE[0]), _OF_CORE[1]) * cores, cores
