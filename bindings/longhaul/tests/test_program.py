"""Which program is run."""

from __future__ import annotations

import os
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import longhaul
from longhaul import program


class FindBinary(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        self.own, self.other = self._program("own"), self._program("other")
        environment = unittest.mock.patch.dict(os.environ, {"PATH": str(self.other.parent)})
        environment.start()
        self.addCleanup(environment.stop)
        os.environ.pop(program.BINARY_VARIABLE, None)

    def _program(self, directory: str) -> Path:
        (self.place / directory).mkdir()
        made = self.place / directory / "longhaul"
        made.write_text("#!/bin/sh\n")
        made.chmod(0o755)
        return made

    def _of_the_package(self, *directories: Path) -> unittest.mock._patch[unittest.mock.MagicMock]:
        return unittest.mock.patch.object(
            program, "_directories_of_this_package", return_value=[str(one) for one in directories]
        )

    def test_the_program_of_the_wheel_comes_before_that_in_path(self) -> None:
        with self._of_the_package(self.own.parent):
            self.assertEqual(program.find_binary(), str(self.own))

    def test_a_named_program_comes_before_that_of_the_wheel(self) -> None:
        with self._of_the_package(self.own.parent):
            self.assertEqual(program.find_binary(str(self.other)), str(self.other))
            os.environ[program.BINARY_VARIABLE] = str(self.other)
            self.assertEqual(program.find_binary(), str(self.other))

    def test_a_package_without_a_program_takes_that_in_path(self) -> None:
        with self._of_the_package(self.place):
            self.assertEqual(program.find_binary(), str(self.other))

    def test_no_program_at_all_is_an_error_with_a_way_out(self) -> None:
        os.environ["PATH"] = str(self.place)
        with self._of_the_package(self.place), self.assertRaisesRegex(longhaul.LonghaulError, "LONGHAUL_BIN"):
            program.find_binary()


if __name__ == "__main__":
    unittest.main()
