"""A server for the tests: that of LONGHAUL_BIN, or of ``longhaul`` in PATH."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from longhaul.program import find_binary


class Server:
    """An anonymous server that may be written to, and its root."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="longhaul-served-")
        self.root = Path(self._place.name)
        flags = ["--listen", "127.0.0.1:0", "--root", self._place.name, "--anonymous", "rw", "--history", "off"]
        self._process = subprocess.Popen(
            [find_binary(), "serve", *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline().strip().rpartition(":")[2])
        self.url = f"ftp://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.communicate()
        self._place.cleanup()
