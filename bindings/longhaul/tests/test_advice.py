"""Tests against the scripted server; with ENABLE_SERVER=HOST:PORT also against a real one."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import random
import socket
import unittest
import unittest.mock
import xmlrpc.client
from typing import Callable, List, Tuple

from longhaul import advice
from longhaul.advice.__main__ import main
from longhaul.advice.answer import Malformed, read_answer
from longhaul.advice.transport import Server

SCRIPTED = os.environ.get("ENABLE_SCRIPTED", "")
REAL = os.environ.get("ENABLE_SERVER", "")
#: Long enough for a busy machine; only scenarios without an answer use it up, and they use another one.
PATIENT = 60.0


def scenarios() -> List[Tuple[str, str]]:
    with open(os.environ["ENABLE_SCENARIOS"], encoding="ascii") as table:
        return [(name, outcome) for name, outcome in (line.rstrip("\n").split("\t") for line in table)]


def outcome_of(question: Callable[[], object]) -> str:
    try:
        return f"buffer={question()}"
    except advice.Refused as refusal:
        return f"refused={refusal.code}"
    except advice.BadAnswer:
        return "bad"
    except advice.TimedOut:
        return "timeout"
    except advice.NoServer:
        return "no-server"


@unittest.skipUnless(SCRIPTED, "ENABLE_SCRIPTED is not set: run bindings/scripted_server.py -- python3 -m unittest")
class Scripted(unittest.TestCase):
    def test_every_scenario_has_its_outcome_for_each_call(self) -> None:
        for name, expected in scenarios():
            timeout = 0.4 if expected == "timeout" else PATIENT
            with self.subTest(name):
                found = outcome_of(lambda: advice.get_buffer_size(SCRIPTED, client=name, timeout=timeout))
                self.assertEqual(found, expected)
                if expected.startswith("buffer") or name in ("negative", "fraction", "text-value", "boolean-value"):
                    continue
                found = outcome_of(lambda: advice.get_net_info(SCRIPTED, client=name, timeout=timeout))
                self.assertEqual(found, expected)
                question = advice.Question(client=name)
                found = outcome_of(lambda: advice.get_advice(SCRIPTED, question, timeout=timeout))
                self.assertEqual(found, expected)

    def test_advice_has_all_members(self) -> None:
        given = advice.get_advice(SCRIPTED, timeout=PATIENT)
        expected = advice.Advice(
            client="192.0.2.7",
            set_buffer_bytes=16_000_000,
            bdp_bytes=12_500_000_000,
            streams=4,
            congestion_control="bbr",
            pace_bps=10_000_000_000,
            expected_bps=9_400_000_000,
            p10_bps=7_100_000_000,
            p90_bps=9_700_000_000,
            rtt_seconds=0.0825,
            bandwidth_bps=10_000_000_000,
            download_bps=10_000_000_000,
            upload_bps=1_000_000_000,
            loss=0.00025,
            limited_by="congestion window",
            asymmetric=True,
            confidence=0.75,
            age_seconds=12.5,
            measured_by="192.0.2.1 (same /24)",
            why="round trip × bandwidth, “measured” <today> & kept",
        )
        self.assertEqual(given, expected)
        self.assertIsInstance(given.bdp_bytes, int)

    def test_a_question_about_this_host_tells_its_processors(self) -> None:
        question = advice.Question(files=4242)
        told = json.loads(advice.get_advice(SCRIPTED, question, timeout=PATIENT).why)["arguments"][1]
        of_core = told["processor_bps"] / told["processor_cores"]
        self.assertGreaterEqual(told["processor_cores"], 1)
        self.assertTrue(10**7 <= of_core <= 4 * 10**11, told)
        self.assertEqual(question.with_own_processor(), question.with_own_processor())

    def test_absent_members_are_unknown(self) -> None:
        given = advice.get_advice(SCRIPTED, advice.Question(client="sparse"), timeout=PATIENT)
        self.assertEqual(given, advice.Advice(client="192.0.2.7", why="nothing is known yet"))

    def test_a_member_of_the_wrong_type_is_a_bad_answer(self) -> None:
        with self.assertRaisesRegex(advice.BadAnswer, "streams"):
            advice.get_advice(SCRIPTED, advice.Question(client="wrong-type"), timeout=PATIENT)

    def test_the_question_and_the_token_arrive(self) -> None:
        question = advice.Question(
            client="echo",
            bytes=10**12,
            files=3,
            max_receive_buffer=6_291_456,
            max_set_buffer=212_992,
            direction="upload",
            max_send_buffer=4_194_304,
            client_bps=10**10,
            must_set_buffer=True,
            max_streams=8,
        )
        seen = json.loads(advice.get_advice(SCRIPTED, question, token=" a-token\n", timeout=PATIENT).why)
        self.assertEqual(seen["request"], "POST /RPC2 HTTP/1.1")
        self.assertEqual(seen["type"], "text/xml")
        self.assertEqual(seen["authorization"], "Bearer a-token")
        self.assertEqual(
            seen["arguments"],
            ["127.0.0.1", {
                "client": "echo",
                "bytes": 10**12,
                "files": 3,
                "max_receive_buffer": 6_291_456,
                "max_set_buffer": 212_992,
                "direction": "upload",
                "max_send_buffer": 4_194_304,
                "client_bps": 10**10,
                "must_set_buffer": True,
                "max_streams": 8,
            }],
        )

    def test_net_info_is_a_tree(self) -> None:
        info = advice.get_net_info(SCRIPTED, timeout=PATIENT)
        self.assertEqual(info["note"], "naïve “path”")
        tests = info["tests"]
        assert isinstance(tests, dict)
        self.assertEqual(tests["bottleneck"], {"bandwidth_bps": 10_000_000_000.0})
        self.assertEqual(tests["route"], {"hops": ["192.0.2.1", "198.51.100.1"], "complete": True})

    def test_any_method_can_be_called(self) -> None:
        methods = advice.call(SCRIPTED, "system.listMethods", timeout=PATIENT)
        assert isinstance(methods, list)
        self.assertIn("EnableGetAdvice", methods)
        with self.assertRaises(advice.Refused) as refused:
            advice.call(SCRIPTED, "NoSuchMethod", timeout=PATIENT)
        self.assertEqual(refused.exception.code, -32601)

    def test_a_change_needs_the_token(self) -> None:
        arguments = ("EnableAddHost", "192.0.2.1")
        self.assertIs(advice.call(SCRIPTED, *arguments, token="a-token", timeout=PATIENT), True)
        with self.assertRaises(advice.Refused) as refused:
            advice.call(SCRIPTED, *arguments, timeout=PATIENT)
        self.assertEqual(refused.exception.code, 403)

    def test_a_refusal_keeps_its_text_and_shows_it_without_control_characters(self) -> None:
        with self.assertRaises(advice.Refused) as refused:
            advice.get_buffer_size(SCRIPTED, client="fault-negative", timeout=PATIENT)
        self.assertEqual(refused.exception.message, "no such method <a> & “b” \x9b31m")
        self.assertNotIn("\x9b", str(refused.exception))

    def test_the_command_prints_advice_and_has_exit_codes(self) -> None:
        def run(*arguments: str) -> Tuple[int, str, str]:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(["--timeout", "60", *arguments])
            return code, out.getvalue(), err.getvalue()

        self.assertEqual(run(SCRIPTED, "--buffer"), (0, "4194304\n", ""))
        code, text, _ = run(SCRIPTED)
        self.assertEqual(code, 0)
        self.assertIn("streams             4\n", text)
        self.assertEqual(json.loads(run(SCRIPTED, "--json")[1])["streams"], 4)
        self.assertEqual(json.loads(run(SCRIPTED, "--info")[1])["note"], "naïve “path”")
        self.assertEqual(run(SCRIPTED, "--client", "fault-busy")[0], 1)
        self.assertEqual(run("a b")[0], 2)
        self.assertEqual(run(SCRIPTED, "--client", "nothing")[0], 5)
        self.assertEqual(run(SCRIPTED, "--client", "html")[0], 8)


class Local(unittest.TestCase):
    def test_a_server_is_a_host_with_or_without_port_and_scheme(self) -> None:
        for given, expected in [
            ("data.example.org", "data.example.org:2812"),
            ("data:99", "data:99"),
            ("http://data:99/", "data:99"),
            ("::1", "[::1]:2812"),
            ("[2001:db8::1]:7", "[2001:db8::1]:7"),
            ("[2001:db8::1]", "[2001:db8::1]:2812"),
            ("192.0.2.1:7", "192.0.2.1:7"),
        ]:
            self.assertEqual(str(Server(given, 2812)), expected)
        for given in ["", "a b", "host:port", "host:99999", "host:0", "https://host", "host/path", "a\r\nb", "[host]:1",
                      "[1]", "a:1:2", "x" * 254, "host\n", "user@host"]:
            with self.assertRaises(advice.InvalidServer, msg=given):
                Server(given, 2812)

    def test_nobody_listening_and_nobody_answering_are_told_apart(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = "127.0.0.1:%d" % silent.getsockname()[1]
            with self.assertRaisesRegex(advice.TimedOut, "within 0.1 s"):
                advice.get_buffer_size(address, timeout=0.1)
        with self.assertRaises(advice.NoServer):
            advice.get_buffer_size(address, timeout=PATIENT)

    def test_an_address_family_that_this_host_lacks_is_no_server(self) -> None:
        lacking = OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        with unittest.mock.patch("socket.socket", side_effect=lacking):
            with self.assertRaisesRegex(advice.NoServer, "not supported"):
                advice.get_buffer_size("[::1]:1", timeout=PATIENT)

    def test_an_unknown_name_is_no_server(self) -> None:
        with self.assertRaises((advice.NoServer, advice.TimedOut)):
            advice.get_buffer_size("no-such-host.invalid", timeout=10)

    def test_arguments_out_of_range_are_value_errors(self) -> None:
        for question in [advice.Question(bytes=-1), advice.Question(bytes=2**53), advice.Question(client="a\0")]:
            with self.assertRaises(ValueError):
                advice.get_advice("127.0.0.1:1", question)
        for timeout in (0.0, -1.0, float("nan"), float("inf")):
            with self.assertRaises(ValueError):
                advice.get_buffer_size("127.0.0.1:1", timeout=timeout)
        with self.assertRaises(ValueError):
            advice.call("127.0.0.1:1", "m", "a\x01b")

    def test_changed_answers_are_read_or_malformed(self) -> None:
        random_source = random.Random(14)
        members = {"why": "é & <", "rates": [1, 2.5, True], "when": xmlrpc.client.DateTime("20261123T02:12:36")}
        good = xmlrpc.client.dumps((members,), methodresponse=True).encode()
        fault = xmlrpc.client.dumps(xmlrpc.client.Fault(404, "not yet"), methodresponse=True).encode()
        for turn in range(4000):
            body = bytearray(good if turn % 2 else fault)
            for _ in range(random_source.randint(1, 4)):
                start = random_source.randrange(len(body))
                end = min(len(body), start + random_source.randint(0, 12))
                body[start:end] = random_source.choice(
                    [b"", bytes([random_source.randrange(256)]), b"<value>", b"</value>", b"<i8>9", b"&", bytes(body[:end])]
                )
            with contextlib.suppress(Malformed, xmlrpc.client.Fault):
                read_answer(bytes(body))


@unittest.skipUnless(REAL, "ENABLE_SERVER is not set: no real server to conform to")
class Conformance(unittest.TestCase):
    def test_advice_is_within_its_ranges(self) -> None:
        given = advice.get_advice(REAL, advice.Question(bytes=10**10), timeout=PATIENT)
        self.assertTrue(given.client)
        self.assertTrue(given.why)
        self.assertTrue(0 <= given.confidence <= 1)

    def test_buffer_and_results_are_given_or_the_path_is_unknown(self) -> None:
        for question in (advice.get_buffer_size, advice.get_net_info):
            try:
                self.assertTrue(question(REAL, timeout=PATIENT))
            except advice.Refused as refused:
                self.assertEqual(refused.code, advice.UNKNOWN_PATH)

    def test_methods_are_listed_and_unknown_ones_refused(self) -> None:
        methods = advice.call(REAL, "system.listMethods", timeout=PATIENT)
        assert isinstance(methods, list)
        for method in ("EnableGetBufferSize", "EnableGetNetInfo", "EnableGetAdvice"):
            self.assertIn(method, methods)
        with self.assertRaises(advice.Refused) as refused:
            advice.call(REAL, "EnableNoSuchMethod", timeout=PATIENT)
        self.assertEqual(refused.exception.code, -32601)

    def test_a_change_without_the_token_is_refused(self) -> None:
        with self.assertRaises(advice.Refused) as refused:
            advice.call(REAL, "EnableRemoveHost", "192.0.2.1", timeout=PATIENT)
        self.assertIn(refused.exception.code, (401, 403))


if __name__ == "__main__":
    unittest.main()
