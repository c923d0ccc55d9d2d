"""Network advice from an Enable server, with the standard library alone: the program is not needed.

An Enable server runs beside a data server and knows the paths to its clients. The functions here ask it about the path
between that server and this host:

    from longhaul import advice

    try:
        found = advice.get_advice("data.example.org", timeout=2)
    except advice.NoServer:
        found = None  # go on with the settings of the system

Each function takes the name of the data server first (a host, HOST:PORT or ``http://HOST:PORT``) and raises an
``EnableError``: ``InvalidServer``, ``NoServer``, ``TimedOut``, ``Refused`` or ``BadAnswer``. The functions keep no state and
may be called from several threads.
"""

from .advice import Advice, Question
from .answer import Value
from .calls import DEFAULT_PORT, DEFAULT_TIMEOUT, call, get_advice, get_buffer_size, get_net_info
from .errors import BadAnswer, EnableError, InvalidServer, NoServer, Refused, TimedOut, UNKNOWN_PATH

__all__ = [
    "DEFAULT_PORT",
    "DEFAULT_TIMEOUT",
    "UNKNOWN_PATH",
    "Advice",
    "BadAnswer",
    "EnableError",
    "InvalidServer",
    "NoServer",
    "Question",
    "Refused",
    "TimedOut",
    "Value",
    "call",
    "get_advice",
    "get_buffer_size",
    "get_net_info",
]
