"""The questions to an Enable server."""

from __future__ import annotations

import xmlrpc.client
from typing import Any, Dict, Optional, Tuple, Union

from .advice import Advice, Question, advice_of, whole_number
from .answer import Malformed, Value, read_answer
from .errors import BadAnswer, Refused
from .transport import Deadline, Server, post

#: TCP port of an Enable server unless its configuration names another one.
DEFAULT_PORT = 2812
#: Seconds that a call may take unless told otherwise.
DEFAULT_TIMEOUT = 5.0

#: An argument of a method.
Argument = Union[bool, int, float, str, Dict[str, Union[bool, int, float, str]]]


def get_buffer_size(
    host: str,
    *,
    client: Optional[str] = None,
    port: int = DEFAULT_PORT,
    timeout: float = DEFAULT_TIMEOUT,
    token: Optional[str] = None,
) -> int:
    """Best TCP buffer in bytes for the path between the data server ``host`` and this host.

    ``client`` names another client than this host, ``port`` the port if ``host`` has none, ``timeout`` the seconds that
    the whole call may take, and ``token`` what the server wants from those who may change something.

    Raises ``EnableError``. A path that the server does not know yet is ``Refused`` with the code ``UNKNOWN_PATH``.
    """
    answer = _Call(host, port, timeout, token)
    return answer.whole_number("EnableGetBufferSize", *_named(client))


def get_net_info(
    host: str,
    *,
    client: Optional[str] = None,
    port: int = DEFAULT_PORT,
    timeout: float = DEFAULT_TIMEOUT,
    token: Optional[str] = None,
) -> Dict[str, Value]:
    """Results of all tests of the path between the data server ``host`` and this host.

    The arguments and errors are those of ``get_buffer_size``.
    """
    return _Call(host, port, timeout, token).members("EnableGetNetInfo", *_named(client))


def get_advice(
    host: str,
    question: Optional[Question] = None,
    *,
    port: int = DEFAULT_PORT,
    timeout: float = DEFAULT_TIMEOUT,
    token: Optional[str] = None,
) -> Advice:
    """Advice for a transfer between the data server ``host`` and this host: buffer, streams, expected rate and more.

    A question about this host tells what its processors can receive. For a path that the server does not know yet the
    confidence is 0, and ``why`` says so. The other arguments and the errors are those of ``get_buffer_size``; ``ValueError`` if a number of the question is out of range.
    """
    asked = (question if question is not None else Question()).with_own_processor()
    return _Call(host, port, timeout, token).advice("EnableGetAdvice", asked.members())


def call(
    host: str,
    method: str,
    *arguments: Argument,
    port: int = DEFAULT_PORT,
    timeout: float = DEFAULT_TIMEOUT,
    token: Optional[str] = None,
) -> Value:
    """Calls any method with exactly these arguments, for example ``call(host, "EnableAddHost", "192.0.2.7", token="…")``."""
    return _Call(host, port, timeout, token).value(method, *arguments)


class _Call:
    """One call of one server."""

    def __init__(self, host: str, port: int, timeout: float, token: Optional[str]) -> None:
        self._server = Server(host, port)
        self._deadline = Deadline(self._server, timeout)
        self._token = token

    def value(self, method: str, *arguments: Argument) -> Value:
        body = xmlrpc.client.dumps(tuple(_wire_value(argument) for argument in arguments), method)
        status, answer = post(self._server, body.encode("utf-8"), self._token, self._deadline)
        if status // 100 != 2:
            raise Refused(str(self._server), method, status, f"HTTP status {status}")
        try:
            return read_answer(answer)
        except xmlrpc.client.Fault as fault:
            raise Refused(str(self._server), method, fault.faultCode, fault.faultString) from None
        except Malformed as error:
            raise self._bad(method, error) from None

    def whole_number(self, method: str, *arguments: Argument) -> int:
        answer = self.value(method, self._server.host, *arguments)
        try:
            return whole_number(answer, "the answer")
        except Malformed as error:
            raise self._bad(method, error) from None

    def members(self, method: str, *arguments: Argument) -> Dict[str, Value]:
        answer = self.value(method, self._server.host, *arguments)
        if not isinstance(answer, dict):
            raise self._bad(method, "the answer is not a struct")
        return answer

    def advice(self, method: str, *arguments: Argument) -> Advice:
        try:
            return advice_of(self.members(method, *arguments))
        except Malformed as error:
            raise self._bad(method, error) from None

    def _bad(self, method: str, reason: object) -> BadAnswer:
        return BadAnswer(f"{self._server} did not answer {method} as an advice server does: {reason}")


def _named(client: Optional[str]) -> Tuple[str, ...]:
    return () if client is None else (client,)


def _wire_value(value: Argument) -> Any:
    """The value as XML-RPC carries it: integers beyond 32 bits are doubles."""
    if isinstance(value, dict):
        return {name: _wire_value(member) for name, member in value.items()}
    if isinstance(value, str) and not all(c in "\t\n\r" or c >= " " and not "\ud800" <= c <= "\udfff" for c in value):
        raise ValueError("XML cannot carry the control characters of an argument")
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**31) <= value < 2**31:
        return float(value)
    return value
