"""Loads the recipe of Spack with stand-ins for its API, and runs build and installation with commands that are only noted.

    python3 packaging/checks/spack_recipe.py packaging/spack/package.py

Prints the commands, on Linux and on macOS. A name that spack.package does not export is an error, as far as the list here
knows it: its names are those of Spack 1.0 that recipes of the build system `cargo` use.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from pathlib import PurePosixPath
from typing import Any, Iterator

COMMANDS: list[list[str]] = []
DIRECTIVES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
# Of the blocks `with when(...)` around a directive.
CONDITIONS: list[str] = []


class Place(str):
    """A prefix of Spack: its attributes are directories and files below it."""

    def __getattr__(self, name: str) -> "Place":
        return Place(os.path.join(self, name))


class Executable:
    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, *arguments: Any, **_: Any) -> None:
        COMMANDS.append([self.path, *map(str, arguments)])


class Builder:
    """Of build_systems/cargo.py: what a builder inherits."""

    std_build_args = ["-j", "2"]
    build_args: list[str] = []

    def __init__(self, pkg: Any) -> None:
        self.pkg, self.spec, self.build_directory = pkg, pkg.spec, "/stage/src"


class Spec:
    version = "0.1.0"

    def __init__(self, platform: str) -> None:
        self.platform = platform

    def satisfies(self, constraint: str) -> bool:
        """Whether it has a variant, with its default, where that exists."""
        if not constraint.startswith("+"):
            return False
        name = constraint[1:]
        variants = [named for kind, arguments, named in DIRECTIVES if kind == "variant" and arguments[0] == name]
        return any(named.get("when", f"platform={self.platform}") == f"platform={self.platform}" for named in variants)


class Package:
    def __init__(self, platform: str) -> None:
        self.prefix, self.spec = Place("/prefix"), Spec(platform)
        self.stage = types.SimpleNamespace(source_path="/stage/src")
        self.module = types.SimpleNamespace(cargo=Executable("cargo"))


@contextlib.contextmanager
def working_dir(_: str) -> Iterator[None]:
    yield


def directive(name: str) -> Any:
    def note(*arguments: Any, **named: Any) -> None:
        conditions = {"when": CONDITIONS[-1]} if CONDITIONS else {}
        DIRECTIVES.append((name, arguments, conditions | named))

    return note


@contextlib.contextmanager
def when(condition: str) -> Iterator[None]:
    CONDITIONS.append(condition)
    yield
    CONDITIONS.pop()


def module(name: str, **members: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    vars(made).update(members)
    sys.modules[name] = made
    return made


def main(recipe: str) -> None:
    directives = {name: directive(name) for name in ("license", "version", "variant", "depends_on", "conflicts", "maintainers")}
    module("spack")
    module(
        "spack.package",
        Executable=Executable,
        which=Executable,
        working_dir=working_dir,
        when=when,
        join_path=lambda *parts: str(PurePosixPath(*parts)),
        run_after=lambda phase: lambda function: function,
        **directives,
    )
    for name in ("spack_repo", "spack_repo.builtin"):
        module(name)
    cargo = module("spack_repo.builtin.build_systems.cargo", CargoPackage=Package, CargoBuilder=Builder)
    module("spack_repo.builtin.build_systems", cargo=cargo)
    names: dict[str, Any] = {}
    with open(recipe, encoding="utf-8") as text:
        exec(compile(text.read(), recipe, "exec"), names)
    for wanted in ("license", "version", "depends_on"):
        if not any(name == wanted for name, _, _ in DIRECTIVES):
            raise SystemExit(f"the recipe has no {wanted}")
    for title, platform in (("Linux:", "linux"), ("macOS:", "darwin")):
        COMMANDS.clear()
        package = names["Longhaul"](platform)
        names["CargoBuilder"](package).build(package, package.spec, package.prefix)
        package.install_shared_files()
        print(title)
        for command in COMMANDS:
            print(*command)


if __name__ == "__main__":
    main(sys.argv[1])
