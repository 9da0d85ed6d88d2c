"""A client that brings data sets to a mover, and the manifests of its folders, for tests."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from skyward._core import wire

from .attending import Attendant, Here
from .mover import Failure

ROOT = (b"", "folder", 0, "", False, b"")
MODIFIED = 1_000_000_000 * 10**9
"""The time of modification of all files of data sets."""


@dataclass
class Listed:
    """A data set of the client: its manifest and the content of its files."""

    entries: list[tuple[Any, ...]] = field(default_factory=lambda: [ROOT])
    contents: dict[int, bytes] = field(default_factory=dict)

    def file(self, path: bytes, data: bytes, executable: bool = False) -> Listed:
        self.contents[len(self.entries)] = data
        self.entries.append((path, "file", len(data), sha256(data).hexdigest(), executable, b""))
        return self

    def folder(self, path: bytes) -> Listed:
        self.entries.append((path, "folder", 0, "", False, b""))
        return self

    def link(self, path: bytes, target: bytes) -> Listed:
        self.entries.append((path, "link", 0, "", False, target))
        return self

    @property
    def body(self) -> bytes:
        return msgspec.msgpack.encode(self.entries)

    @property
    def id(self) -> str:
        return sha256(self.body).hexdigest()

    @property
    def tree(self) -> dict[bytes, Any]:
        """What `tree_of` returns for its tree."""
        found: dict[bytes, Any] = {}
        for index, (path, kind, _, _, executable, target) in enumerate(self.entries[1:], 1):
            file = (self.contents.get(index), 0o555 if executable else 0o444)
            found[path] = {"file": file, "folder": None, "link": target}[kind]
        return found

    def indices(self) -> list[int]:
        """The files that are sent if there is nothing."""
        return [index for index, data in self.contents.items() if data]


def tree_of(root: bytes | str) -> dict[bytes, Any]:
    """Return what is below a folder: contents and modes of files, targets of links, None for folders."""
    root = os.fsencode(root)
    found: dict[bytes, Any] = {}
    for base, names, files in os.walk(root):
        for name in [*names, *files]:
            path = base + b"/" + name
            about = os.lstat(path)
            key = path[len(root) + 1 :]
            if os.path.islink(path):
                found[key] = os.readlink(path)
            elif os.path.isdir(path):
                assert about.st_mode & 0o777 == 0o755
                found[key] = None
            else:
                assert about.st_mtime_ns == MODIFIED
                found[key] = (Path(os.fsdecode(path)).read_bytes(), about.st_mode & 0o777)
    return found


class DataClient:
    """Sends the requests of data sets over a connection."""

    def __init__(self, client: Attendant) -> None:
        self.client = client

    def attach(self, data: Listed, most: int = 0) -> tuple[str, list[int]]:
        """Return the path of the tree, and the indices of the missing files."""
        head, body = self.client.ask(wire.DATA_ATTACH, most, body=data.body)
        return self.attached(head, body, data)

    def fill(self, data: Listed, *ranges: tuple[int, int, int]) -> None:
        """Send ranges of files."""
        body = b"".join(data.contents[index][offset : offset + length] for index, offset, length in ranges)
        assert self.client.ask(wire.FILL, data.id, ranges, body=body) == ([wire.DONE], b"")

    def fill_all(self, data: Listed, missing: list[int]) -> None:
        """Send all of these files: small ones together, large ones in pieces."""
        together: list[tuple[int, int, int]] = []
        for index in missing:
            size = len(data.contents[index])
            if size <= 1000:
                together.append((index, 0, size))
                continue
            for offset in range(0, size, wire.LARGEST_PIECE):
                self.fill(data, (index, offset, min(wire.LARGEST_PIECE, size - offset)))
        if together:
            self.fill(data, *together)

    def publish(self, data: Listed) -> str:
        """Return the path of the tree."""
        path, missing = self.attached(*self.client.ask(wire.PUBLISH, data.id), data)
        assert missing == []
        return path

    def bring(self, data: Listed, most: int = 0) -> str:
        """Do all that is needed; return the path of the tree."""
        path, missing = self.attach(data, most)
        if missing:
            self.fill_all(data, missing)
            assert self.publish(data) == path
        return path

    def attach_failure(self, data: Listed, most: int = 0) -> Failure:
        return self.client.failure(wire.DATA_ATTACH, most, body=data.body)

    def fill_failure(self, data: Listed, *ranges: tuple[int, int, int], body: bytes = b"") -> Failure:
        return self.client.failure(wire.FILL, data.id, ranges, body=body)

    def publish_failure(self, data: Listed) -> Failure:
        return self.client.failure(wire.PUBLISH, data.id)

    @staticmethod
    def attached(head: list[Any], body: bytes, data: Listed) -> tuple[str, list[int]]:
        assert head[:2] == [wire.ATTACHED, data.id], head
        missing = msgspec.msgpack.decode(body)
        assert head[3] is (missing == []), head
        return os.fsdecode(head[2]), missing


def end(here: Here) -> None:
    """Give back the locks of a mover of this process, as its end would."""
    data = here.program._data
    for fill in data._fills.values():
        os.close(fill.lock)
        fill.ended.set()
    for lock in data._uses.values():
        os.close(lock)
    data._fills.clear()
    data._uses.clear()
