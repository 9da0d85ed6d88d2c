"""What an artifact is made from: a file or a folder, checked before anything of it is copied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from .._core import file_kinds

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


def find(source: str) -> list[Found]:
    """Return a file, or a folder and all that is below it, in the order of the bytes of their paths.

    The source may be a link, which is followed.

    Raises:
        OSError: something cannot be read, or is not there.
        ValueError: a link leads out of the folder, something is no file, folder or link, or there are
            too many of them.
    """
    about = os.stat(source)
    found = [Found(b"", _kind(source, about), about)]
    if found[0].kind != file_kinds.FOLDER:
        return found
    for path, entry in _below(source):
        if len(found) == _MOST:
            raise too_many(source, f"more than {_MOST:,} files, folders and links")
        about = entry.stat(follow_symlinks=False)
        kind = _kind(entry.path, about)
        target = ""
        if kind == file_kinds.LINK:
            target = os.readlink(entry.path)
            _check_link(f"{source}/{path}", target, path.count("/"))
        found.append(Found(os.fsencode(path), kind, about, os.fsencode(target)))
    return sorted(found, key=lambda each: each.path)


def paths(source: str) -> list[bytes]:
    """Return the paths of all that is below a folder, in the order of their bytes.

    Raises:
        OSError: something cannot be read, or is not there.
    """
    return sorted(os.fsencode(path) for path, _ in _below(source))


def too_many(source: str, what: str) -> ValueError:
    """Return the error for a folder that has more than an artifact may have."""
    return ValueError(
        f"sky.artifact cannot keep {source}: it has {what}, which is more than the client accepts; pack them into one "
        "file, e.g. with tarfile, and pass that"
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


def _kind(path: str, about: os.stat_result) -> str:
    kind = file_kinds.kind(about.st_mode)
    if kind is None:
        raise ValueError(
            f"sky.artifact cannot keep {path}: it is {file_kinds.described(about.st_mode)}, and an artifact has only "
            "files, folders and links; leave it out, or pass a folder without it"
        )
    return kind


def _check_link(path: str, target: str, depth: int) -> None:
    """Check that a link whose folder has this depth leads to something in the source.

    It may lead up only at its beginning: elsewhere, it would lead up from where another link leads.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    if target.startswith("/") or up > depth or ".." in parts[up:]:
        raise ValueError(
            f"sky.artifact cannot keep the link {path}: it leads to {target}, and a link must lead within the folder "
            "by a relative path that has `..` only at its beginning; copy the file to the place of the link, or leave "
            "the link out"
        )
