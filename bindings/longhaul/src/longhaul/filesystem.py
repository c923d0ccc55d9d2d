"""A file system for fsspec: ``gsiftp:``, ``ftps:`` and, after :func:`register`, ``ftp:``."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional
from urllib.parse import quote

import fsspec
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from fsspec.utils import infer_storage_options

from . import copying, program
from .errors import NotFound, ProtocolError
from .summary import Event

_KINDS = {"dir": "directory", "file": "file", "link": "link", "other": "other"}


def register() -> None:
    """Makes this the file system of ``ftp:``, too, instead of fsspec's own."""
    fsspec.register_implementation("ftp", LonghaulFileSystem, clobber=True)


class LonghaulFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of one server. Each operation is one run of the program; ``flags`` are flags that each gets."""

    protocol = ("gsiftp", "ftps", "ftp")
    root_marker = "/"
    cachable = False

    def __init__(
        self,
        host: str,
        port: Optional[int] = None,
        username: Optional[str] = None,
        password: Optional[str] = None,
        scheme: str = "ftp",
        flags: tuple[str, ...] = (),
        binary: Optional[str] = None,
        **options: Any,
    ) -> None:
        super().__init__(host=host, port=port, username=username, **options)
        user = "" if username is None else f"{quote(username, safe='')}@"
        name = f"[{host}]" if ":" in host else host
        self._server = f"{scheme}://{user}{name}" + ("" if port is None else f":{port}")
        self._flags = copying.flag_list(flags)
        self._run: dict[str, Any] = {"binary": binary, "password": password}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        if "://" in path:
            path = infer_storage_options(path)["path"]
        return "/" + path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(urlpath: str) -> dict[str, Any]:
        found: dict[str, Any] = infer_storage_options(urlpath)
        found.pop("path", None)
        found["scheme"] = found.pop("protocol")
        return found

    def _url(self, path: str) -> str:
        return self._server + quote(self._strip_protocol(path))

    def _verb(self, verb: str, *arguments: str) -> bytes:
        return program.output([verb, *self._flags, "--", *arguments], **self._run)

    def _copy(self, source: str, destination: str) -> None:
        copying.copy(source, destination, flags=self._flags, **self._run)

    def _entry(self, path: str, line: bytes) -> dict[str, Any]:
        said = json.loads(line)
        is_link = said["type"] == "link"
        modified = said["modified"]
        return {
            **said,
            "name": path,
            "type": _KINDS[said["type"]],
            "size": said["size"] if said["type"] == "file" or is_link else 0,
            "islink": is_link,
            "modified": modified and _time(modified),
        }

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if path == "/":
            return {"name": path, "type": "directory", "size": 0}
        return self._entry(path, program.output(["stat", "--json", *self._flags, "--", self._url(path)], **self._run))

    def exists(self, path: str, **_: Any) -> bool:
        try:
            self.info(path)
        except NotFound:
            return False
        return True

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        lines = program.output(["ls", "--json", *self._flags, "--", self._url(path)], **self._run).splitlines()
        names = [os.path.basename(json.loads(line)["name"]) for line in lines]
        # The listing of a file is the file itself; a directory may hold one of its own name.
        if names == [os.path.basename(path)] and self.isfile(path):
            entries = [self._entry(path, lines[0])]
        else:
            place = path.rstrip("/")
            entries = [self._entry(f"{place}/{name}", line) for name, line in zip(names, lines)]
        return entries if detail else sorted(entry["name"] for entry in entries)

    def modified(self, path: str) -> datetime:
        time = self.info(path).get("modified")
        if time is None:
            raise ProtocolError(f"the server does not tell the time of {path}", 8)
        return time  # type: ignore[no-any-return]

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        if self.exists(path):
            raise FileExistsError(path)
        if create_parents:
            self.makedirs(path)
        else:
            self._verb("mkdir", self._url(path))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if path == "/":
            return
        if not exist_ok and self.exists(path):
            raise FileExistsError(path)
        program.output(["mkdir", "--parents", *self._flags, "--", self._url(path)], **self._run)

    def rmdir(self, path: str) -> None:
        if self.ls(path):
            raise OSError(f"{path} is not empty")
        self._remove(path, recursive=True)

    def _rm(self, path: str) -> None:
        self._remove(path, recursive=False)

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        for one in [path] if isinstance(path, str) else path:
            for match in self.expand_path(one) if any(sign in one for sign in "*?[") else [one]:
                self._remove(match, recursive)

    def _remove(self, path: str, recursive: bool) -> None:
        program.output(
            ["rm", *(["--recursive"] if recursive else []), *self._flags, "--", self._url(path)], **self._run
        )

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        self._verb("mv", self._url(path1), self._url(path2))

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        self.makedirs(self._parent(path2), exist_ok=True)
        self._copy(self._url(path1), self._url(path2))

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **_: Any
    ) -> None:
        if outfile is not None or hasattr(lpath, "write"):
            (outfile or lpath).write(self.cat_file(rpath))
            return
        if self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        self._transfer(self._url(rpath), _local(lpath), callback)

    def put_file(
        self, lpath: str, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **_: Any
    ) -> None:
        if mode == "create" and self.exists(rpath):
            raise FileExistsError(rpath)
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        self.makedirs(self._parent(rpath), exist_ok=True)
        self._transfer(_local(lpath), self._url(rpath), callback)

    def _transfer(self, source: str, destination: str, callback: Any) -> None:
        def follow(event: Event) -> None:
            if event["event"] == "planned":
                callback.set_size(event["bytes"])
            elif event["event"] in ("progress", "summary"):
                callback.absolute_update(event["bytes"])

        copying.copy(source, destination, progress=follow, flags=self._flags, **self._run)

    def cat_file(
        self, path: str, start: Optional[int] = None, end: Optional[int] = None, **_: Any
    ) -> bytes:
        if start is None and end is None:
            return self._range(path, 0, None)
        size = self.info(path)["size"]
        first = max(0, start + size if start is not None and start < 0 else start or 0)
        last = size if end is None else min(size, end + size if end < 0 else end)
        return self._range(path, first, last - first) if last > first else b""

    def _range(self, path: str, offset: int, length: Optional[int]) -> bytes:
        arguments = ["cp", "--quiet", *self._flags]
        if offset:
            arguments += ["--offset", str(offset)]
        if length is not None:
            arguments += ["--length", str(length)]
        return program.output([*arguments, "--", self._url(path), "-"], **self._run)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **options: Any) -> LonghaulFile:
        if mode == "xb" and self.exists(path):
            raise FileExistsError(path)
        return LonghaulFile(self, path, mode, block_size or 4 << 20, **options)


class LonghaulFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file. What is written is kept in a temporary file, and uploaded, verified, when it is closed."""

    def __init__(self, fs: LonghaulFileSystem, path: str, mode: str, block_size: int, **options: Any) -> None:
        self._spool: Any = None
        # The base class does not know `xb`; that the file is new was checked.
        super().__init__(fs, path, mode.replace("x", "w"), block_size, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs.cat_file(self.path, start, end)  # type: ignore[no-any-return]

    def _initiate_upload(self) -> None:
        self._spool = tempfile.NamedTemporaryFile(prefix="longhaul-")
        if self.mode == "ab":
            try:
                self._spool.write(self.fs.cat_file(self.path))
            except NotFound:
                pass

    def _upload_chunk(self, final: bool = False) -> bool:
        self.buffer.seek(0)
        self._spool.write(self.buffer.read())
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        """Uploads what was written."""
        self._spool.flush()
        self.fs.put_file(self._spool.name, self.path)
        self._spool.close()

    def discard(self) -> None:
        """Forgets what was written."""
        if self._spool is not None:
            self._spool.close()


def _local(path: Any) -> str:
    # In a plain path `*` would be a wildcard.
    return Path(path).absolute().as_uri()


def _time(text: str) -> datetime:
    return datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
