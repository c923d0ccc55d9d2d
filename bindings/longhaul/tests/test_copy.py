"""``copy`` and ``sync`` against a server."""

from __future__ import annotations

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
        with self.assertRaises(longhaul.UsageError):
            longhaul.copy(f"{self.server.url}/missing", self.place, flags=["--no-such-flag"])
        with self.assertRaises(ConnectionError):
            longhaul.copy("ftp://127.0.0.1:1/x", self.place, flags=["--retries", "0"])

    def test_an_exception_in_the_callback_ends_the_copy(self) -> None:
        (self.place / "file").write_bytes(b"x")

        def stop(event: longhaul.Event) -> None:
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            longhaul.copy(self.place / "file", f"{self.server.url}/stopped", progress=stop)

    def test_a_missing_program_is_said_so(self) -> None:
        with self.assertRaisesRegex(longhaul.LonghaulError, "LONGHAUL_BIN"):
            longhaul.copy("a", "b", binary=str(self.place / "nothing"))


if __name__ == "__main__":
    unittest.main()
