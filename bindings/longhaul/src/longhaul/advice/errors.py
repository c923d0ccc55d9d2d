"""Why there is no answer."""

from __future__ import annotations

#: Code of a refusal: nothing is known of this path yet, and the server has scheduled a test.
UNKNOWN_PATH = 404


class EnableError(Exception):
    """A question without an answer."""


class InvalidServer(EnableError, ValueError):
    """The name of the server cannot be used. Nothing was sent."""


class NoServer(EnableError):
    """No server answers there: the name is unknown, the connection is refused, or it ended before an answer."""


class TimedOut(EnableError):
    """The server did not answer in time."""


class Refused(EnableError):
    """The server refused the call."""

    #: Code of the fault (404: the path is unknown, 403: the token is missing or wrong, 503: busy, -32601: no such
    #: method, -32602: wrong arguments, -32603: the server failed), or the HTTP status.
    code: int
    #: The server's explanation, as sent. The text of the exception has its control characters escaped.
    message: str

    def __init__(self, server: str, method: str, code: int, message: str) -> None:
        super().__init__(f"the advice server at {server} refused {method}: {printable(message)} ({code})")
        self.code = code
        self.message = message


class BadAnswer(EnableError):
    """What came back is not an answer to the call."""


def printable(text: str) -> str:
    """The text with everything escaped that could steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
