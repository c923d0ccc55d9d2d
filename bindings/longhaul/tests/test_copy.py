"""``copy`` and ``sync`` against a server."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from served import Server

import longhaul


class CopyTest(unittest.TestCase):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server()
        cls.addClassCleanup(cls.server.close)

    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)

    def test_a_copy_reports_its_progress_and_its_end(self) -> None:
        (self.place / "up").write_bytes(b"x" * 100_000)
        events: list[longhaul.Event] = []
        summary = longhaul.copy(self.place / "up", f"{self.server.url}/copied", progress=events.append)
        self.assertEqual((summary.files, summary.bytes), (1, 100_000))
        self.assertTrue(summary.verified)
        self.assertEqual((self.server.root / "copied").read_bytes(), b"x" * 100_000)
        kinds = [event["event"] for event in events]
        self.assertEqual(kinds[-1], "summary")
        self.assertLessEqual({"started", "finished"}, set(kinds))

    def test_a_sync_copies_what_differs_and_deletes_what_is_gone(self) -> None:
        tree = self.place / "tree"
        tree.mkdir()
        for name in ("a", "b"):
            (tree / name).write_text(name)
        self.assertEqual(longhaul.sync(tree, f"{self.server.url}/tree").files, 2)
        (tree / "a").unlink()
        summary = longhaul.sync(tree, f"{self.server.url}/tree", delete=True)
        self.assertEqual(summary.fields["deleted"], 1)
        self.assertEqual([path.name for path in (self.server.root / "tree").iterdir()], ["b"])

    def test_failures_are_exceptions_of_python(self) -> None:
        with self.assertRaises(FileNotFoundError) as missing:
            longhaul.copy(f"{self.server.url}/missing", self.place)
        self.assertIsInstance(missing.exception, longhaul.NotFound)
        self.assertIn("missing", str(missing.exception))
        self.assertEqual(getattr(missing.exception, "exit_code"), 4)
        with self.assertRaisesRegex(longhaul.UsageError, "--no-such-flag"):
            longhaul.copy(f"{self.server.url}/missing", self.place, flags=["--no-such-flag"])
        with self.assertRaises(ConnectionError):
            longhaul.copy("ftp://127.0.0.1:1/x", self.place, flags=["--retries", "0"])

    def test_flags_in_one_text_are_refused(self) -> None:
        with self.assertRaisesRegex(TypeError, "list of words"):
            longhaul.copy(f"{self.server.url}/missing", self.place, flags="--retries 0")

    def test_an_exception_in_the_callback_ends_the_copy(self) -> None:
        (self.place / "file").write_bytes(b"x")

        def stop(event: longhaul.Event) -> None:
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            longhaul.copy(self.place / "file", f"{self.server.url}/stopped", progress=stop)

    def test_ctrl_c_ends_the_program_too_and_the_copy_can_be_resumed(self) -> None:
        source, target = self.place / "long", f"{self.server.url}/interrupted"
        source.write_bytes(b"x" * 4_000_000)
        script = """if True:
            import longhaul, signal, sys
            # Commands in the background ignore it, and so do the tests there.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            def show(event):
                # The rate makes this last for many seconds.
                if event["event"] == "progress" and event["safe"] > 0:
                    print("moving", flush=True)
            longhaul.copy(sys.argv[1], sys.argv[2], progress=show, flags=["--limit-rate", "2mbit"])
        """
        with subprocess.Popen(
            [sys.executable, "-c", script, str(source), target],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(longhaul.__file__).parents[1])},
        ) as process:
            self.addCleanup(process.kill)
            assert process.stdout is not None and process.stderr is not None
            self.assertEqual(process.stdout.readline(), b"moving\n")
            # To Python alone; a terminal sends it to both.
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            process.wait()
        self.assertIn(b"KeyboardInterrupt", said)
        self.assertEqual(_programs_with(target), [])
        self.assertFalse((self.server.root / "interrupted").exists())
        summary = longhaul.copy(source, target, resume=True)
        self.assertLess(summary.bytes, 4_000_000)
        self.assertEqual((self.server.root / "interrupted").read_bytes(), source.read_bytes())

    def test_exceptions_can_be_sent_to_other_processes(self) -> None:
        with self.assertRaises(longhaul.NotFound) as missing:
            longhaul.copy(f"{self.server.url}/missing", self.place)
        received = pickle.loads(pickle.dumps(missing.exception))
        self.assertEqual((type(received), received.exit_code), (longhaul.NotFound, 4))
        self.assertEqual(str(received), str(missing.exception))

    def test_a_missing_program_is_said_so(self) -> None:
        missing = str(self.place / "nothing")
        with self.assertRaisesRegex(longhaul.LonghaulError, f"{missing}.*LONGHAUL_BIN"):
            longhaul.copy("a", "b", binary=missing)


def _programs_with(argument: str) -> list[bytes]:
    """The command lines of processes that have this argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes()
        except OSError:
            continue
        if argument.encode() in arguments.split(b"\0"):
            found.append(arguments)
    return found


if __name__ == "__main__":
    unittest.main()
