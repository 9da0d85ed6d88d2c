"""What an artifact or a save is made from: a file or a folder, checked before anything of it is copied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from .._core import file_kinds
from .._core.links import leads_within

_MOST: Final = 1_000_000
"""The most entries of a list. The client refuses longer ones."""


class Found(NamedTuple):
    """A file, folder or link."""

    path: bytes
    """The path below the source; empty for the source itself."""
    kind: str
    about: os.stat_result
    target: bytes = b""
    """What a link leads to."""

    @property
    def is_executable(self) -> bool:
        """Whether it is a file that its owner may execute."""
        return self.kind == file_kinds.FILE and file_kinds.is_executable(self.about.st_mode)

    def below(self, root: str) -> str:
        """Return its path below this file or folder, in which it has the same place."""
        return f"{root}/{os.fsdecode(self.path)}" if self.path else root


def find(source: str, keeper: str = "sky.artifact") -> list[Found]:
    """Return a file, or a folder and all that is below it, in the order of the bytes of their paths.

    The source may be a link, which is followed.

    Args:
        source: its path.
        keeper: the function that keeps it, for messages.

    Raises:
        OSError: something cannot be read, or is not there.
        ValueError: a link leads out of the folder, something is no file, folder or link, or there are
            too many of them.
    """
    about = os.stat(source)
    found = [Found(b"", _kind(source, about, keeper), about)]
    if found[0].kind != file_kinds.FOLDER:
        return found
    for path, entry in _below(source):
        if len(found) == _MOST:
            raise too_many(source, f"more than {_MOST:,} files, folders and links", keeper)
        about = entry.stat(follow_symlinks=False)
        kind = _kind(entry.path, about, keeper)
        target = ""
        if kind == file_kinds.LINK:
            target = os.readlink(entry.path)
            _check_link(f"{source}/{path}", target, path.count("/"), keeper)
        found.append(Found(os.fsencode(path), kind, about, os.fsencode(target)))
    return sorted(found, key=lambda each: each.path)


def paths(source: str) -> list[bytes]:
    """Return the paths of all that is below a folder, in the order of their bytes.

    Raises:
        OSError: something cannot be read, or is not there.
    """
    return sorted(os.fsencode(path) for path, _ in _below(source))


def too_many(source: str, what: str, keeper: str = "sky.artifact") -> ValueError:
    """Return the error for a folder that has more than an artifact or a save may have."""
    return ValueError(
        f"{keeper} cannot keep {source}: it has {what}, which is more than the client accepts; pack them into one "
        "file, e.g. with tarfile, and keep that"
    )


def _below(source: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(f"{source}/{folder}") as entries:
            for entry in entries:
                path = f"{folder}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{path}/")
                yield path, entry


def _kind(path: str, about: os.stat_result, keeper: str) -> str:
    kind = file_kinds.kind(about.st_mode)
    if kind is None:
        raise ValueError(
            f"{keeper} cannot keep {path}: it is {file_kinds.described(about.st_mode)}, and only files, folders and "
            "links can be kept; leave it out"
        )
    return kind


def _check_link(path: str, target: str, depth: int, keeper: str) -> None:
    """Check that a link, below so many folders of the source, leads to something in the source."""
    if not leads_within(target, depth):
        raise ValueError(
            f"{keeper} cannot keep the link {path}: it leads to {target}, and a link must lead within the folder "
            "by a relative path that has `..` only at its beginning; copy the file to the place of the link, or leave "
            "the link out"
        )
