#!/usr/bin/env python3
"""A scripted Enable server for the tests of the client libraries.

    scripted_server.py -- COMMAND ...

starts the server on a free port, writes the lists of its scenarios to two files, and runs COMMAND with three variables:
ENABLE_SCRIPTED (HOST:PORT of the server), ENABLE_SCENARIOS (the file for XML-RPC) and ENABLE_SCENARIOS_JSON (that for the
JSON interface). It ends when COMMAND ends, with its exit code.

The name of the client in a call chooses the scenario; a call that names no client is answered as a good server does.
Each line of a file is NAME, a tab, and the outcome that every library must have for EnableGetBufferSize:

    buffer=N       the answer is N
    refused=CODE   a fault or an HTTP status
    bad            what came back is no answer
    timeout        nothing came back in time
    no-server      the connection ended before an answer

Scenarios that are not `buffer` and not called `buffer-...` have the same outcome for each method.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import xmlrpc.client

ADVICE = {
    "client": "192.0.2.7",
    "set_buffer_bytes": 16_000_000,
    "bdp_bytes": 12_500_000_000.0,
    "streams": 4,
    "congestion_control": "bbr",
    "pace_bps": 10_000_000_000.0,
    "expected_bps": 9_400_000_000.0,
    "p10_bps": 7_100_000_000.0,
    "p90_bps": 9_700_000_000.0,
    "rtt_seconds": 0.0825,
    "bandwidth_bps": 10_000_000_000.0,
    "download_bps": 10_000_000_000.0,
    "upload_bps": 1_000_000_000,
    "loss": 0.00025,
    "limited_by": "congestion window",
    "asymmetric": True,
    "confidence": 0.75,
    "age_seconds": 12.5,
    "measured_by": "192.0.2.1 (same /24)",
    "why": "round trip × bandwidth, “measured” <today> & kept",
    "a_member_of_a_later_version": {"x": [1, 2]},
}
SPARSE = {"client": "192.0.2.7", "asymmetric": False, "confidence": 0, "why": "nothing is known yet"}
NET_INFO = {
    "client": "192.0.2.7",
    "tests": {
        "ping": {"rtt_seconds": 0.0825, "loss": 0.0, "count": 4},
        "bottleneck": {"bandwidth_bps": 10_000_000_000.0},
        "route": {"hops": ["192.0.2.1", "198.51.100.1"], "complete": True},
    },
    "note": "naïve “path”",
}
METHODS = ["EnableGetBufferSize", "EnableGetNetInfo", "EnableGetAdvice", "EnableAddHost", "EnableRemoveHost",
           "system.listMethods"]
#: By client: the answer to EnableGetNetInfo after a report, and the tests that were chosen.
REPORTED, CHOSEN = {}, {}
#: Files of a question without a client that gets the question back, as `echo` does.
ECHO_FILES = 4242
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\n"


def answer(inner):
    return ("<?xml version='1.0'?>\n<methodResponse><params><param><value>%s</value></param></params>"
            "</methodResponse>\n" % inner).encode()


def plain(body):
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunked(body, sizes=(1, 7, 50)):
    out, position, turn = [HEAD, b"Transfer-Encoding: chunked\r\n\r\n"], 0, 0
    while position < len(body):
        piece = body[position:position + sizes[turn % len(sizes)]]
        out += [b"%X;name=value\r\n" % len(piece), piece, b"\r\n"]
        position, turn = position + len(piece), turn + 1
    return b"".join(out) + b"0\r\nX-Trailer: yes\r\n\r\n"


def fault(members):
    inner = "".join("<member><name>%s</name><value>%s</value></member>" % pair for pair in members)
    return ("<methodResponse><fault><value><struct>%s</struct></value></fault></methodResponse>" % inner).encode()


def fault_of(code, text):
    return plain(fault([("faultCode", "<int>%d</int>" % code), ("faultString", "<string>%s</string>" % text)]))


def status(line, fields=b"", body=b"<html>no</html>"):
    return b"HTTP/1.1 " + line + b"\r\n" + fields + b"Content-Length: %d\r\n\r\n" % len(body) + body


GOOD = answer("<int>4194304</int>")
BOMB = (b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>]>"
        b"<methodResponse><params><param><value><string>&b;</string></value></param></params></methodResponse>")
EXTERNAL = (b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/hostname'>]>"
            b"<methodResponse><params><param><value><int>1</int></value></param></params></methodResponse>")

# name: (outcome, bytes that are sent and after which the connection ends)
def of_http(good):
    """The scenarios that do not depend on what a good answer is."""
    return {
        "chunked": ("buffer=4194304", chunked(good)),
        "until-close": ("buffer=4194304", HEAD + b"\r\n" + good),
        "http-1.0": ("buffer=4194304", b"HTTP/1.0 200 OK\r\n\r\n" + good),
        "interim-status": ("buffer=4194304", b"HTTP/1.1 100 Continue\r\n\r\n" + plain(good)),
        "lower-case-fields": ("buffer=4194304", b"HTTP/1.1 200 OK\r\ncontent-length:%d\r\n\r\n" % len(good) + good),
        "status-500": ("refused=500", status(b"500 Internal Server Error")),
        "status-413": ("refused=413", status(b"413 Payload Too Large")),
        "status-401": ("refused=401", status(b"401 Unauthorized", b"WWW-Authenticate: Basic realm=\"x\"\r\n")),
        "status-301": ("refused=301", status(b"301 Moved Permanently", b"Location: http://127.0.0.1:1/RPC2\r\n")),
        "status-307": ("refused=307", status(b"307 Temporary Redirect", b"Location: /RPC2\r\n")),
        "status-without-reason": ("refused=404", status(b"404")),
        "status-204": ("bad", b"HTTP/1.1 204 No Content\r\n\r\n"),
        "nothing": ("no-server", b""),
        "not-http": ("bad", b"220 ftp.example.org FTP server ready.\r\n"),
        "half-a-status-line": ("bad", b"HTTP/1.1 2"),
        "half-a-head": ("bad", b"HTTP/1.1 200 OK\r\nContent-Type: te"),
        "status-junk": ("bad", b"HTTP/1.1 abc OK\r\n\r\n" + good),
        "html": ("bad", plain(b"<html>hello</html>")),
        "empty-body": ("bad", plain(b"")),
        "truncated-body": ("bad", HEAD + b"Content-Length: %d\r\n\r\n" % len(good) + good[:-5]),
        "truncated-chunks": ("bad", chunked(good)[:-30]),
        "chunk-size-junk": ("bad", HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n" + good),
        "chunk-size-negative": ("bad", HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n" + good),
        "chunk-size-huge": ("bad", HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + good),
        "length-huge": ("bad", HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n" + good),
        "length-too-long": ("bad", HEAD + b"Content-Length: 262145\r\n\r\n" + b" " * 262145),
        "length-negative": ("bad", HEAD + b"Content-Length: -5\r\n\r\n" + good),
        "length-junk": ("bad", HEAD + b"Content-Length: many\r\n\r\n" + good),
        "two-lengths": ("bad", HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + good),
        "unknown-coding": ("bad", HEAD + b"Transfer-Encoding: gzip\r\n\r\n" + good),
    }


FIXED = dict(of_http(GOOD), **{
    "int": ("buffer=4194304", plain(GOOD)),
    "i4": ("buffer=65536", plain(answer("<i4>65536</i4>"))),
    "i8": ("buffer=10000000000", plain(answer("<i8>10000000000</i8>"))),
    "double": ("buffer=10000000000", plain(answer("<double>10000000000</double>"))),
    "double-exponent": ("buffer=12500000000", plain(answer("<double>1.25e10</double>"))),
    "double-fraction-of-zero": ("buffer=65536", plain(answer("<double>65536.000</double>"))),
    "white-space-and-comments": ("buffer=77", plain(
        b"<?xml version='1.0' encoding='utf-8'?>\n<!-- a -->\n<methodResponse >\n <params>\r\n\t<param>\n<value>\n"
        b"<int> 77\n</int><!-- - b --></value> </param></params>\n</methodResponse>\n<!-- c -->\n")),
    "character-reference": ("buffer=77", plain(answer("<int>&#55;&#x37;</int>"))),
    "cdata": ("buffer=77", plain(answer("<int><![CDATA[7]]>7</int>"))),
    "fault-unknown-path": ("refused=404", fault_of(404, "nothing is known of this path yet")),
    "fault-forbidden": ("refused=403", fault_of(403, "the token is missing or wrong")),
    "fault-busy": ("refused=503", fault_of(503, "too many requests")),
    "fault-negative": ("refused=-32601", fault_of(-32601, "no such method &lt;a&gt; &amp; “b” \u009b31m")),
    "fault-without-code": ("bad", plain(fault([("faultString", "<string>x</string>")]))),
    "fault-with-text-code": ("bad", plain(fault([("faultCode", "many"), ("faultString", "x")]))),
    "fault-without-struct": ("bad", plain(b"<methodResponse><fault><value><int>1</int></value></fault></methodResponse>")),
    "truncated-xml": ("bad", plain(GOOD[:-25])),
    "truncated-xml-until-close": ("bad", HEAD + b"\r\n" + GOOD[:70]),
    "entity-bomb": ("bad", plain(BOMB)),
    "external-entity": ("bad", plain(EXTERNAL)),
    "document-type": ("bad", plain(GOOD.replace(b"<methodR", b"<!DOCTYPE methodResponse><methodR", 1))),
    "undefined-entity": ("bad", plain(answer("<int>&nbsp;7</int>"))),
    "bad-character-reference": ("bad", plain(answer("<int>7&#0;</int>"))),
    "surrogate-reference": ("bad", plain(answer("<string>&#xD800;</string>"))),
    "not-utf-8": ("bad", plain(answer("<string>x</string>").replace(b"x", b"\xff"))),
    "overlong-utf-8": ("bad", plain(answer("<string>x</string>").replace(b"x", b"\xc0\xaf"))),
    "utf-16": ("bad", plain(GOOD.decode().replace("?>", " encoding='utf-16'?>").encode("utf-16"))),
    "nul": ("bad", plain(answer("<int>7\0</int>"))),
    "deep": ("bad", plain(answer("<array><data><value>" * 200 + "<int>1</int>" + "</value></data></array>" * 200))),
    "wide": ("bad", plain(answer("<array><data>" + "<value/>" * 16_400 + "</data></array>"))),
    "junk-after-the-answer": ("bad", plain(GOOD + b"<more/>")),
    "text-after-the-answer": ("bad", plain(GOOD + b"more")),
    "unclosed": ("bad", plain(b"<methodResponse><params><param><value><int>1</value></int></param></params></methodResponse>")),
    "no-params": ("bad", plain(b"<methodResponse></methodResponse>")),
    "empty-params": ("bad", plain(b"<methodResponse><params></params></methodResponse>")),
    "a-call": ("bad", plain(b"<methodCall><methodName>a</methodName></methodCall>")),
    "text-value": ("bad", plain(answer("4194304"))),
    "boolean-value": ("bad", plain(answer("<boolean>1</boolean>"))),
    "array-value": ("bad", plain(answer("<array><data/></array>"))),
    "negative": ("bad", plain(answer("<int>-1</int>"))),
    "fraction": ("bad", plain(answer("<double>0.5</double>"))),
    "not-a-number": ("bad", plain(answer("<double>nan</double>"))),
    "infinite": ("bad", plain(answer("<double>1e999</double>"))),
    "too-large": ("bad", plain(answer("<i8>99999999999999999999</i8>"))),
    "no-digits": ("bad", plain(answer("<int></int>"))),
    "word-for-digits": ("bad", plain(answer("<int>many</int>"))),
    "unknown-type": ("bad", plain(answer("<number>7</number>"))),
})
JSON_GOOD = json.dumps(dict(SPARSE, bdp_bytes=4_194_304)).encode()


def json_answer(**members):
    return plain(json.dumps(dict(SPARSE, **members)).encode())


def json_refusal(line, text):
    return status(line, body=json.dumps({"error": text}, ensure_ascii=False).encode())


FIXED_JSON = dict(of_http(JSON_GOOD), **{
    "int": ("buffer=4194304", plain(JSON_GOOD)),
    "large": ("buffer=10000000000", json_answer(bdp_bytes=10_000_000_000)),
    "whole-double": ("buffer=12500000000", plain(b'{"bdp_bytes": 1.25e10}')),
    "white-space": ("buffer=77", plain(b' \r\n\t{ "bdp_bytes" :\n77 } \n')),
    "null": ("buffer=7", json_answer(bdp_bytes=None, set_buffer_bytes=7)),
    "half-a-status-line": ("no-server", b"HTTP/1.1 2"),
    "refused-unknown": ("refused=404", json_refusal(b"404 Not Found", "the name x has no address")),
    "refused-token": ("refused=403", json_refusal(b"401 Unauthorized", "the token is missing")),
    "refused-busy": ("refused=503", json_refusal(b"503 Service Unavailable", "too many requests")),
    "refused-arguments": ("refused=-32602", json_refusal(b"400 Bad Request", "no client <a> & “b” \u009b31m")),
    "refused-without-text": ("refused=404", status(b"404 Not Found", body=b'{"error": 7}')),
    "buffer-unknown": ("refused=404", json_answer()),
    "buffer-negative": ("bad", json_answer(bdp_bytes=-1)),
    "buffer-fraction": ("bad", json_answer(bdp_bytes=0.5)),
    "buffer-text": ("bad", json_answer(bdp_bytes="4194304")),
    "buffer-boolean": ("bad", json_answer(bdp_bytes=True)),
    "truncated-json": ("bad", plain(JSON_GOOD[:-5])),
    "truncated-json-until-close": ("bad", HEAD + b"\r\n" + JSON_GOOD[:20]),
    "array": ("bad", plain(b"[1]")),
    "number": ("bad", plain(b"4194304")),
    "xml": ("bad", plain(GOOD)),
    "two-members-of-one-name": ("bad", plain(b'{"bdp_bytes": 1, "bdp_bytes": 2}')),
    "nan": ("bad", plain(b'{"bdp_bytes": NaN}')),
    "infinite": ("bad", plain(b'{"bdp_bytes": 1e999}')),
    "too-large": ("bad", plain(b'{"bdp_bytes": 99999999999999999999}')),
    "not-utf-8": ("bad", plain(b'{"why": "\xff"}')),
    "overlong-utf-8": ("bad", plain(b'{"why": "\xc0\xaf"}')),
    "surrogate": ("bad", plain(b'{"why": "\\ud800"}')),
    "utf-16": ("bad", plain(JSON_GOOD.decode().encode("utf-16"))),
    "nul": ("bad", plain(b'{"why": "\\u0000"}')),
    "deep": ("bad", plain(b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}")),
    "very-deep": ("bad", plain(b"[" * 100_000 + b"]" * 100_000)),
    "wide": ("bad", plain(json.dumps({"a": [0] * 16_400}).encode())),
    "junk-after-the-answer": ("bad", plain(JSON_GOOD + b"{}")),
})
# name: (outcome, what is sent first, what is sent for ever, pause between two pieces in seconds)
ENDLESS = {
    "endless-body": ("bad", HEAD + b"\r\n", b" " * 4096, 0),
    "endless-chunks": ("bad", HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"400\r\n" + b" " * 1024 + b"\r\n", 0),
    "endless-fields": ("bad", HEAD, b"X-Field: yes\r\n", 0),
    "endless-field": ("bad", HEAD + b"X-Field: ", b"x" * 4096, 0),
    "endless-status-line": ("bad", b"", b"x" * 4096, 0),
    "silent": ("timeout", b"", b"", 0.05),
    "silent-after-the-head": ("timeout", HEAD + b"Content-Length: 100\r\n\r\n", b"", 0.05),
    "silent-within-the-body": ("timeout", plain(GOOD)[:-10], b"", 0.05),
    "trickle": ("timeout", HEAD + b"\r\n", b" ", 0.05),
    "trickle-of-fields": ("timeout", HEAD, b"X: y\r\n", 0.2),
}


def read_request(connection):
    """The fields and the body of a request, or None if the client goes away."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, body = data.split(b"\r\n\r\n", 1)
    lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:])}
    while len(body) < int(fields.get("content-length", 0)):
        piece = connection.recv(65536)
        if not piece:
            return None
        body += piece
    return lines[0], fields, body


def good_answer(request, fields, method, arguments, client):
    """What a good server says. `echo` returns what was asked, so that a test can look at it."""
    if method == "EnableGetBufferSize":
        return 4_194_304
    if method == "EnableGetNetInfo":
        return NET_INFO
    if method == "system.listMethods":
        return METHODS
    told = arguments[1] if len(arguments) > 1 and isinstance(arguments[1], dict) else {}
    if method == "EnableGetAdvice" and (client == "echo" or told.get("files") == ECHO_FILES):
        seen = {
            "request": request,
            "type": fields.get("content-type"),
            "authorization": fields.get("authorization"),
            "arguments": arguments,
        }
        return dict(SPARSE, why=json.dumps(seen, sort_keys=True, separators=(",", ":")))
    if method == "EnableGetAdvice":
        if client == "wrong-type":
            return dict(SPARSE, streams="four")
        return SPARSE if client == "sparse" else ADVICE
    if method in ("EnableAddHost", "EnableRemoveHost"):
        if fields.get("authorization") != "Bearer a-token":
            return xmlrpc.client.Fault(403, "the token is missing or wrong")
        return arguments == ("192.0.2.1",)
    return xmlrpc.client.Fault(-32601, "no such method")


def change(method, resource, fields, body):
    """Whether a change by the JSON interface is one that the tests make; remembers what can be read back."""
    told = json.loads(body) if fields.get("content-type") == "application/json" else None
    if (method, resource) == ("POST", "report"):
        REPORTED[told["client"]] = {
            "client": told["client"],
            "tests": {"transfer": {"detail": told.get("detail")}},
            **{quantity: {"latest": value} for quantity, value in told["values"].items()},
        }
        return True
    if (method, resource) == ("PUT", "hosts/192.0.2.9/tests"):
        CHOSEN["192.0.2.9"] = told
        return True
    expected = {
        ("POST", "hosts"): b'{"client":"192.0.2.1"}',
        ("DELETE", "hosts/192.0.2.1"): b"",
        ("DELETE", "hosts/192.0.2.9"): b"",
        ("DELETE", "hosts/.."): b"",
        ("POST", "hosts/192.0.2.1/tests/ping%2Fx"): b"",
    }
    return expected.get((method, resource)) == body


def good_json(request, fields, query, body):
    """What a good server says to a request of its JSON interface, as HTTP."""
    method, target, _ = request.split(" ")
    resource = target.partition("?")[0].removeprefix("/api/v1/")
    client = query.get("client", "")
    if method != "GET":
        if fields.get("authorization") != "Bearer a-token":
            return json_refusal(b"401 Unauthorized", "the token is missing or wrong")
        answer = {"changed": change(method, resource, fields, body)}
    elif resource == "net-info":
        answer = REPORTED.get(client, NET_INFO)
    elif resource == "qos":
        # A rate is a whole number, as in the service.
        wanted = int(query.get("rate_bps", "0")) > 0
        answer = {"dscp": 1, "class": "lower effort", "reservation_helps": wanted, "why": "bulk"}
    elif resource == "hosts":
        answer = {"total": 1, "hosts": [{"client": "192.0.2.7"}]}
        answer["hosts"] += [{"client": name, "tests": tests} for name, tests in CHOSEN.items()]
    elif client == "echo" or query.get("files") == str(ECHO_FILES):
        seen = {"request": request, "authorization": fields.get("authorization")}
        answer = dict(SPARSE, why=json.dumps(seen, sort_keys=True, separators=(",", ":")))
    elif client == "wrong-type":
        answer = dict(SPARSE, streams="four")
    else:
        answer = SPARSE if client == "sparse" else ADVICE
    return plain(json.dumps(answer, ensure_ascii=False).encode())


def serve(connection):
    with connection:
        read = read_request(connection)
        if read is None:
            return
        request, fields, body = read
        is_json = " /api/v1/" in request
        fixed, good = (FIXED_JSON, JSON_GOOD) if is_json else (FIXED, GOOD)
        if is_json:
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(request.split(" ")[1]).query))
            client = query.get("client", "")
        else:
            arguments, method = xmlrpc.client.loads(body)
            client = arguments[1] if len(arguments) > 1 else ""
            if isinstance(client, dict):
                client = client.get("client", "")
        if client == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif client in fixed:
            connection.sendall(fixed[client][1])
            finish(connection)
        elif client in ENDLESS:
            _, first, again, pause = ENDLESS[client]
            connection.sendall(first)
            connection.settimeout(pause or None)
            while True:
                connection.sendall(again)
                if pause and closed(connection):
                    return
        elif client == "drip":
            for position in range(len(plain(good))):
                connection.sendall(plain(good)[position:position + 1])
            finish(connection)
        elif is_json:
            connection.sendall(good_json(request, fields, query, body))
            finish(connection)
        else:
            value = good_answer(request, fields, method, arguments, client)
            value = value if isinstance(value, xmlrpc.client.Fault) else (value,)
            text = xmlrpc.client.dumps(value, methodresponse=True)
            connection.sendall(plain(text.encode()))
            finish(connection)


def finish(connection):
    """Ends the answer and waits for the client, so that no reset overtakes it."""
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(65536):
        pass


def closed(connection):
    """Waits for the pause; whether the client has gone."""
    try:
        return not connection.recv(65536)
    except socket.timeout:
        return False


def serve_quietly(connection):
    try:
        serve(connection)
    except OSError:
        pass  # The client left early, as some scenarios want.


def outcomes(fixed):
    table = {name: entry[0] for group in (fixed, ENDLESS) for name, entry in group.items()}
    return dict(table, reset="no-server", drip="buffer=4194304")


def main(arguments):
    if len(arguments) < 2 or arguments[0] != "--":
        sys.exit(__doc__)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def accept():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve_quietly, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with tempfile.TemporaryDirectory() as place:
        surroundings = dict(os.environ, ENABLE_SCRIPTED="127.0.0.1:%d" % listener.getsockname()[1])
        for variable, fixed in (("ENABLE_SCENARIOS", FIXED), ("ENABLE_SCENARIOS_JSON", FIXED_JSON)):
            surroundings[variable] = os.path.join(place, variable)
            with open(surroundings[variable], "w") as table:
                for name, outcome in outcomes(fixed).items():
                    table.write("%s\t%s\n" % (name, outcome))
        sys.exit(subprocess.call(arguments[1:], env=surroundings))


if __name__ == "__main__":
    main(sys.argv[1:])
