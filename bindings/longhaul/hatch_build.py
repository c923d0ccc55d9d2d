"""Puts the programs into a wheel, where they are built: ``packaging/build python`` says which and for what platform.

Without ``LONGHAUL_WHEEL_PROGRAMS`` the wheel has the Python files alone, and runs the ``longhaul`` that it finds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: A directory; each file in it becomes a command of the environment.
PROGRAMS = "LONGHAUL_WHEEL_PROGRAMS"

#: Platforms that the programs run on, as in the name of a wheel (PEP 425, PEP 600).
PLATFORM = "LONGHAUL_WHEEL_PLATFORM"


class ProgramsInWheel(BuildHookInterface[Any]):
    """Adds the programs as scripts, which pip puts into ``bin`` of the environment as they are."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable installation has no programs of its own."""
        directory = os.environ.get(PROGRAMS)
        if not directory or version == "editable":
            return
        programs = sorted(Path(directory).iterdir())
        if not any(program.name == "longhaul" for program in programs):
            raise FileNotFoundError(f"no program longhaul in {directory}, which {PROGRAMS} names")
        for program in programs:
            build_data["shared_scripts"][str(program)] = program.name
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ[PLATFORM]}"
