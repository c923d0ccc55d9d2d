"""Prints the advice of an Enable server: ``python -m longhaul.advice HOST``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import List, Optional

from . import (
    DEFAULT_PORT,
    DEFAULT_TIMEOUT,
    BadAnswer,
    EnableError,
    InvalidServer,
    Question,
    Refused,
    get_advice,
    get_buffer_size,
    get_net_info,
)
from .errors import printable


def main(arguments: Optional[List[str]] = None) -> int:
    """Exit code: 0 answered, 1 refused, 2 usage, 5 no server or no answer in time, 8 not an answer."""
    parser = argparse.ArgumentParser(prog="python -m longhaul.advice", description="Prints the advice of an Enable server.")
    parser.add_argument("host", help="data server: HOST, HOST:PORT or http://HOST:PORT")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--buffer", action="store_true", help="print the best TCP buffer in bytes, and nothing else")
    what.add_argument("--info", action="store_true", help="print the results of all tests as JSON")
    what.add_argument("--json", action="store_true", help="print the advice as JSON")
    parser.add_argument("--client", help="ask for another client than this host")
    parser.add_argument("--bytes", type=int, help="bytes to transfer")
    parser.add_argument("--upload", action="store_true", help="ask for transfers from the client to the data server")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT, metavar="SECONDS")
    options = parser.parse_args(arguments)
    try:
        print(_answer(options))
    except Refused as error:
        return _failed(error, 1)
    except BadAnswer as error:
        return _failed(error, 8)
    except (InvalidServer, ValueError) as error:
        return _failed(error, 2)
    except EnableError as error:
        return _failed(error, 5)
    return 0


def _answer(options: argparse.Namespace) -> str:
    host, port, timeout = options.host, options.port, options.timeout
    if options.buffer:
        return str(get_buffer_size(host, client=options.client, port=port, timeout=timeout))
    if options.info:
        return json.dumps(get_net_info(host, client=options.client, port=port, timeout=timeout), indent=2)
    direction = "upload" if options.upload else None
    question = Question(client=options.client, bytes=options.bytes, direction=direction)
    advice = get_advice(host, question, port=port, timeout=timeout)
    members = {name: value for name, value in dataclasses.asdict(advice).items() if value is not None}
    if options.json:
        return json.dumps(members, indent=2)
    width = max(len(name) for name in members)
    return "\n".join(f"{name:{width}}  {printable(str(value))}" for name, value in members.items())


def _failed(error: Exception, code: int) -> int:
    print(f"longhaul.advice: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
