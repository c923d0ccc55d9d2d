"""Posts one request and reads the response, within one deadline and within bounds."""

from __future__ import annotations

import http.client
import io
import ipaddress
import queue
import re
import socket
import threading
import time
from typing import Any, List, NoReturn, Optional, Tuple, Union, cast

from .answer import MAX_BODY
from .errors import BadAnswer, InvalidServer, NoServer, TimedOut

#: Most bytes of a response, with its head and the framing of its chunks.
MAX_RESPONSE = 4 * MAX_BODY


class Server:
    """Host and port of an Enable server."""

    def __init__(self, name: str, port: int) -> None:
        self.host, self.port = _host_and_port(name, port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Deadline:
    """The end of a call."""

    def __init__(self, server: Server, timeout: float) -> None:
        if not 0 < timeout <= 86_400:
            raise ValueError("timeout must be more than 0 and at most 86400 seconds")
        self._server = server
        self._timeout = timeout
        self._end = time.monotonic() + timeout

    def left(self) -> float:
        """Seconds that are left. Raises ``TimedOut`` if none are."""
        left = self._end - time.monotonic()
        if left <= 0:
            self.passed()
        return left

    def passed(self) -> NoReturn:
        """Raises ``TimedOut``."""
        raise TimedOut(f"the advice server at {self._server} did not answer within {self._timeout:g} s") from None


def post(server: Server, body: bytes, token: Optional[str], deadline: Deadline) -> Tuple[int, bytes]:
    """Status and body of the response. Redirects are not followed, and proxies are not used: a proxy's path is not
    the caller's."""
    head = [
        "POST /RPC2 HTTP/1.1",
        f"Host: {server}",
        "User-Agent: longhaul-python",
        "Content-Type: text/xml",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if token is not None:
        head.append(f"Authorization: Bearer {_checked_token(token)}")
    request = "\r\n".join([*head, "", ""]).encode("ascii") + body
    with _connect(server, deadline) as connection:
        wire = _Wire(connection, deadline)
        try:
            connection.settimeout(deadline.left())
            connection.sendall(request)
            return _read_response(wire)
        except socket.timeout:
            deadline.passed()
        except (OSError, http.client.HTTPException, ValueError) as error:
            if wire.received == 0:
                raise NoServer(f"no advice server answers at {server}: {_reason(error)}") from None
            raise BadAnswer(f"{server} did not answer as an advice server does: {_reason(error)}") from None


def _read_response(wire: _Wire) -> Tuple[int, bytes]:
    response = http.client.HTTPResponse(cast(socket.socket, wire), method="POST")
    with response:
        response.begin()
        if response.status // 100 != 2:
            return response.status, b""
        lengths = response.headers.get_all("Content-Length", [])
        codings = response.headers.get_all("Transfer-Encoding", [])
        if len(lengths) > 1 or any(not re.fullmatch("[0-9]{1,9}", length.strip()) for length in lengths):
            raise ValueError("an invalid Content-Length")
        if codings and [coding.strip().lower() for coding in codings] != ["chunked"]:
            raise ValueError("an unknown Transfer-Encoding")
        if lengths and int(lengths[0]) > MAX_BODY:
            raise ValueError(f"longer than {MAX_BODY} bytes")
        body = response.read(MAX_BODY + 1)
        if len(body) > MAX_BODY:
            raise ValueError(f"longer than {MAX_BODY} bytes")
        if lengths and not codings and len(body) < int(lengths[0]):
            raise ValueError("the answer is cut off")
        return response.status, body


class _Wire(io.RawIOBase):
    """The receiving side of a connection, as ``http.client`` reads it. Each read ends at the deadline of the whole call."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        super().__init__()
        self._connection = connection
        self._deadline = deadline
        #: Bytes received.
        self.received = 0

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # http.client reads a chunk of negative length to its end, which a server can put off for ever.
        if self.received > MAX_RESPONSE:
            raise ValueError(f"longer than {MAX_RESPONSE} bytes with its framing")
        self._connection.settimeout(self._deadline.left())
        count = self._connection.recv_into(buffer)
        self.received += count
        return count


def _connect(server: Server, deadline: Deadline) -> socket.socket:
    addresses = _addresses(server, deadline)
    timed_out = False
    reason: object = "the name has no address"
    for position, (family, address) in enumerate(addresses):
        try:
            connection = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            # This host may lack the address family.
            reason = _reason(error)
            continue
        try:
            # Each address has its share of the time, so that a dead one does not use it up.
            connection.settimeout(deadline.left() / (len(addresses) - position))
            connection.connect(address)
            return connection
        except socket.timeout:
            timed_out = True
            connection.close()
        except OSError as error:
            reason = _reason(error)
            connection.close()
        except BaseException:
            connection.close()
            raise
    if timed_out:
        deadline.passed()
    raise NoServer(f"no advice server answers at {server}: {reason}")


_Addresses = List[Tuple[int, Any]]


def _addresses(server: Server, deadline: Deadline) -> _Addresses:
    """The addresses of the server. The resolver has no time-out of ours, so another thread waits for it."""
    answers: queue.Queue[Union[_Addresses, Exception]] = queue.Queue()

    def resolve() -> None:
        try:
            found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
            answers.put([(int(family), address) for family, _, _, _, address in found])
        except (OSError, ValueError) as error:
            answers.put(error)

    if _is_address(server.host):
        resolve()
    else:
        threading.Thread(target=resolve, daemon=True, name="longhaul-resolver").start()
    try:
        answer = answers.get(timeout=deadline.left())
    except queue.Empty:
        deadline.passed()
    if isinstance(answer, Exception):
        raise NoServer(f"no advice server answers at {server}: {_reason(answer)}")
    return answer


def _reason(error: BaseException) -> str:
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection ended before an answer"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, http.client.HTTPException):
        # Its text holds what the server sent.
        return f"not an HTTP response ({type(error).__name__})"
    return str(error)


def _checked_token(token: str) -> str:
    token = token.strip()
    if not re.fullmatch("[!-~]{1,1024}", token):
        raise ValueError("the token must be 1 to 1024 visible ASCII characters")
    return token


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _host_and_port(name: str, port: int) -> Tuple[str, int]:
    """Host and port of HOST, HOST:PORT, [ADDRESS]:PORT or http://HOST:PORT; ``port`` is used if the name has none."""
    found = re.fullmatch(r"(?:http://)?(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]{1,253}))(?::([0-9]{1,5}))?/?", name)
    bare = re.fullmatch(r"(?:http://)?([0-9A-Fa-f:.]+)/?", name)
    if bare and ":" in bare[1] and _is_address(bare[1]):
        host = bare[1]
    elif found and (found[1] is None or (":" in found[1] and _is_address(found[1]))):
        host = found[1] or found[2]
        port = int(found[3]) if found[3] else port
    else:
        raise InvalidServer(f"{name!r} is no advice server: name a host, HOST:PORT, or http://HOST:PORT")
    if not 0 < port < 65_536:
        raise InvalidServer(f"{port} is no port of an advice server")
    return host, port
