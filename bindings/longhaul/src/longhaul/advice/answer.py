"""Reads the body of an XML-RPC answer within bounds."""

from __future__ import annotations

import base64
import math
import xmlrpc.client
from typing import Any, Dict, List, Union
from xml.parsers import expat

#: Longest body that is read, bytes.
MAX_BODY = 256 * 1024
#: Deepest nesting of elements.
MAX_DEPTH = 32
#: Most elements in a body.
MAX_ELEMENTS = 16_384

#: A value of an answer. Times and base64 are their text.
Value = Union[bool, int, float, str, "List[Value]", "Dict[str, Value]"]


class Malformed(Exception):
    """The body is not an XML-RPC answer."""


class _Bounds:
    """Counts the elements of a document and refuses a document type, which could define entities."""

    def __init__(self, target: xmlrpc.client.Unmarshaller) -> None:
        self._target = target
        self._depth = 0
        self._elements = 0

    def start(self, tag: str, attributes: Dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > MAX_DEPTH or self._elements > MAX_ELEMENTS:
            raise Malformed("too many or too deeply nested elements")
        self._target.start(tag, attributes)

    def end(self, tag: str) -> None:
        self._depth -= 1
        self._target.end(tag)

    def document_type(self, *_: object) -> None:
        raise Malformed("a document type declaration is not allowed")


def read_answer(body: bytes) -> Value:
    """The value of an answer.

    Raises ``xmlrpc.client.Fault`` if the server refused the call, ``Malformed`` if the body is no answer.
    """
    if len(body) > MAX_BODY:
        raise Malformed(f"longer than {MAX_BODY} bytes")
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("not UTF-8") from None
    target = xmlrpc.client.Unmarshaller()
    # Without an encoding it takes text as text, as expat gives it.
    target.xml("", None)
    bounds = _Bounds(target)
    # The encoding is given here, so that the document cannot choose another one.
    parser = expat.ParserCreate("UTF-8")
    parser.StartElementHandler = bounds.start
    parser.EndElementHandler = bounds.end
    parser.CharacterDataHandler = target.data
    parser.StartDoctypeDeclHandler = bounds.document_type
    # The unmarshaller trusts the form of the document: a wrong one surfaces as any of these.
    try:
        parser.Parse(body, True)
        values = target.close()
    except xmlrpc.client.Fault as fault:
        if not isinstance(fault.faultCode, int) or not isinstance(fault.faultString, str):
            raise Malformed("the fault has no code or no text") from None
        raise
    except (
        expat.ExpatError,
        xmlrpc.client.Error,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise Malformed(f"not an XML-RPC answer ({type(error).__name__})") from None
    if len(values) != 1:
        raise Malformed("not exactly one value")
    return _plain(values[0])


def _plain(value: Any) -> Value:
    """The value without the classes of ``xmlrpc.client``."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise Malformed("an integer does not fit 64 bits")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Malformed("a number is not finite")
        return value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, xmlrpc.client.Binary):
        return base64.b64encode(value.data).decode("ascii")
    if isinstance(value, xmlrpc.client.DateTime):
        return str(value)
    raise Malformed("a value of an unknown type")
