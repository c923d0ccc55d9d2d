"""What a caller asks, and what the server advises."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Dict, Optional, Union

from .answer import Malformed, Value
from .processor import own_processor

#: Numbers from here on have no double of their own, and XML-RPC carries large numbers as doubles.
_MAX_NUMBER = 2**53


@dataclass(frozen=True)
class Question:
    """What a client tells about itself and its transfer. Everything may be unknown."""

    #: Another client than the caller, an IP address or a name.
    client: Optional[str] = None
    #: Bytes to transfer.
    bytes: Optional[int] = None
    #: The way of the data: ``"download"`` (the default) from the data server, or ``"upload"`` to it.
    direction: Optional[str] = None
    #: Files to transfer.
    files: Optional[int] = None
    #: Largest receive buffer that the client's kernel allows (the third number of tcp_rmem), bytes.
    max_receive_buffer: Optional[int] = None
    #: Largest send buffer that the client's kernel allows (the third number of tcp_wmem), bytes. For uploads.
    max_send_buffer: Optional[int] = None
    #: Largest buffer that a program may set on the client (rmem_max, for uploads wmem_max), bytes.
    max_set_buffer: Optional[int] = None
    #: Fastest rate at which the client's processor or disk takes data, bits per second.
    client_bps: Optional[int] = None
    #: Rate that the client's processors can receive, all cores together, bits per second. It decides streams; no rate is
    #: advised by it. ``get_advice`` estimates it, and the cores, for a question about this host that does not tell it.
    processor_bps: Optional[int] = None
    #: Cores of the client.
    processor_cores: Optional[int] = None
    #: The client cannot let the kernel choose its buffer: it sets one in any case.
    must_set_buffer: bool = False
    #: Most streams that the client can open.
    max_streams: Optional[int] = None

    def with_own_processor(self) -> Question:
        """The question with the estimate of this host's processors, if it is about this host and does not tell its own."""
        if self.client is not None or self.processor_bps is not None:
            return self
        bps, cores = own_processor()
        return replace(self, processor_bps=bps, processor_cores=cores)

    def members(self) -> Dict[str, Union[bool, int, float, str]]:
        """The members that are known. Raises ``ValueError`` if a number is negative or 2**53 or more, or if there is no such
        direction."""
        if self.direction not in (None, "download", "upload"):
            raise ValueError("direction must be download or upload")
        members: Dict[str, Union[bool, int, float, str]] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or value is False:
                continue
            if isinstance(value, int) and not 0 <= value < _MAX_NUMBER:
                raise ValueError(f"{field.name} must be 0 or more and less than 2**53")
            members[field.name] = value
        return members


@dataclass(frozen=True)
class Advice:
    """Advice for transfers in the direction of the question. A value that is unknown, or that is best left to the kernel, is
    ``None``."""

    #: The client that the advice is for, an IP address.
    client: str = ""
    #: Socket buffer of one stream to set with SO_SNDBUF and SO_RCVBUF, bytes. ``None``: set none, because a buffer that is
    #: set ends the kernel's autotuning for the life of the connection.
    set_buffer_bytes: Optional[int] = None
    #: Round trip × bottleneck bandwidth, bytes: what all streams together need. Programs that cannot leave the
    #: buffer to the kernel set this.
    bdp_bytes: Optional[int] = None
    #: Streams to open.
    streams: Optional[int] = None
    #: Congestion control of the sender, by its kernel name.
    congestion_control: Optional[str] = None
    #: Pacing rate of all streams together, bits per second.
    pace_bps: Optional[int] = None
    #: Expected goodput of a long transfer, bits per second: the median.
    expected_bps: Optional[int] = None
    #: One transfer in ten is slower than this, bits per second.
    p10_bps: Optional[int] = None
    #: One transfer in ten is faster than this, bits per second.
    p90_bps: Optional[int] = None
    #: Round trip, seconds.
    rtt_seconds: Optional[float] = None
    #: Bandwidth of the bottleneck in the direction of the question, bits per second.
    bandwidth_bps: Optional[int] = None
    #: Measured rate of the path to the client, and of the path from it, bits per second.
    download_bps: Optional[int] = None
    upload_bps: Optional[int] = None
    #: Share of lost packets, 0 to 1.
    loss: Optional[float] = None
    #: What is expected to limit a transfer, in the words of ``longhaul cp --why``.
    limited_by: Optional[str] = None
    #: The two directions of the path differ: one rate is at least twice the other, or the routes differ.
    asymmetric: bool = False
    #: How far to trust the advice, 0 (a guess) to 1.
    confidence: float = 0.0
    #: Age of the newest measurement that the advice rests on, seconds.
    age_seconds: Optional[float] = None
    #: Another client whose measurements stand in for this one's, and why.
    measured_by: Optional[str] = None
    #: One sentence: the reason.
    why: str = ""


def advice_of(answer: Value) -> Advice:
    """The advice in an answer. Members that are not known here are ignored. Raises ``Malformed``."""
    if not isinstance(answer, dict):
        raise Malformed("the advice is not a struct")
    members: Dict[str, Any] = {}
    for field in fields(Advice):
        if field.name not in answer:
            continue
        value = answer[field.name]
        kind = str(field.type)
        if "int" in kind:
            members[field.name] = whole_number(value, field.name)
        elif "float" in kind:
            members[field.name] = _number(value, field.name)
        elif isinstance(value, bool if "bool" in kind else str):
            members[field.name] = value
        else:
            raise Malformed(f"{field.name} has the wrong type")
    return Advice(**members)


def whole_number(value: Value, name: str) -> int:
    """A number that is 0 or more and whole; large ones come as doubles."""
    number = _number(value, name)
    if number != int(number) or number >= 2**63:
        raise Malformed(f"{name} is not a whole number")
    return value if isinstance(value, int) else int(number)


def _number(value: Value, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise Malformed(f"{name} is not a number that is 0 or more")
    return float(value)
