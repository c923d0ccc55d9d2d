"""fsspec's own tests of a file system, and what is special here."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from fsspec.tests import abstract
from served import Server

from longhaul.filesystem import LonghaulFileSystem, register


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    """A directory of its own for each test."""

    @pytest.fixture
    def fs(self, server: Server) -> LonghaulFileSystem:
        return LonghaulFileSystem("127.0.0.1", server.port)

    @pytest.fixture
    def fs_path(self, fs: LonghaulFileSystem) -> str:
        path = f"/{uuid.uuid4().hex}"
        fs.mkdir(path)
        return path


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc]
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc]
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc]
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc]
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc]
    pass


class TestOwn(Fixtures):
    def test_parts_of_a_file_are_read(self, fs: LonghaulFileSystem, fs_path: str) -> None:
        path = f"{fs_path}/a file?"
        fs.pipe_file(path, bytes(range(256)))
        assert fs.cat_file(path, 10, 13) == b"\n\x0b\x0c"
        assert fs.cat_file(path, -2) == b"\xfe\xff"
        with fs.open(path, "rb", block_size=16) as file:
            file.seek(250)
            assert file.read() == bytes(range(250, 256))

    def test_append_goes_on_behind_the_end(self, fs: LonghaulFileSystem, fs_path: str) -> None:
        for word in (b"one ", b"two"):
            with fs.open(f"{fs_path}/words", "ab") as file:
                file.write(word)
        assert fs.cat_file(f"{fs_path}/words") == b"one two"

    def test_entries_have_type_size_and_time(self, fs: LonghaulFileSystem, fs_path: str) -> None:
        fs.pipe_file(f"{fs_path}/dir/file", b"12345")
        assert fs.ls(fs_path, detail=False) == [f"{fs_path}/dir"]
        assert fs.isdir(f"{fs_path}/dir")
        assert fs.info(f"{fs_path}/dir/file")["size"] == 5
        assert fs.modified(f"{fs_path}/dir/file").year >= 2024
        assert fs.ls(f"{fs_path}/dir/file", detail=False) == [f"{fs_path}/dir/file"]
        fs.mv(f"{fs_path}/dir/file", f"{fs_path}/moved")
        assert fs.find(fs_path) == [f"{fs_path}/moved"]
        with pytest.raises(FileNotFoundError):
            fs.ls(f"{fs_path}/missing")

    def test_urls_lead_here(self, server: Server, fs: LonghaulFileSystem, fs_path: str) -> None:
        fs.pipe_file(f"{fs_path}/f", b"by url")
        register()
        with fsspec.open(f"{server.url}{fs_path}/f") as file:
            assert file.read() == b"by url"
        found: Any = fsspec.get_filesystem_class("ftp")
        assert found is LonghaulFileSystem
