"""The manifest of a commit or a data set: a list of its files, which the client sends before their content."""

from __future__ import annotations

import os
from typing import Final, Literal

import msgspec

from .._core import file_kinds, wire
from .._core.links import leads_within
from .files import Refused, shown

LONGEST: Final = 64 << 20
"""The most bytes of a manifest."""
_MOST: Final = 1_000_000
_LONGEST_FILE: Final = (1 << 63) - 1
_DIGEST: Final = 64

Listed = tuple[bytes, Literal["file", "folder", "link"], int, str, bool, bytes]
"""Path, kind, size, SHA-256 of a file, whether the owner may execute it, target of a link."""
_decode: Final = msgspec.msgpack.Decoder(list[Listed]).decode


def read(body: memoryview) -> list[Listed]:
    """Return the entries of a manifest, of which each is in a folder that comes before it.

    Raises:
        Refused: it is no manifest, or has a path or a link that leads out of the folder.
    """
    try:
        entries = _decode(body)
    except wire.UNREADABLE as error:
        raise Refused("invalid", f"the manifest cannot be read: {error}") from None
    if not entries or entries[0][:2] != (b"", file_kinds.FOLDER):
        raise Refused("invalid", "the manifest does not begin with its folder, which has an empty path")
    if len(entries) > _MOST:
        raise Refused("invalid", f"the manifest has {len(entries)} entries, and at most {_MOST} are possible")
    kinds = {b"": file_kinds.FOLDER}
    for path, kind, size, digest, _, target in entries[1:]:
        why = _refusal(path, kind, size, digest, target, kinds)
        if why is not None:
            raise Refused("invalid", f"the manifest's entry {shown(path)!r} {why}")
        kinds[path] = kind
    return entries


def _refusal(path: bytes, kind: str, size: int, digest: str, target: bytes, before: dict[bytes, str]) -> str | None:
    """Return why an entry cannot be in the folder; None if it can."""
    parts = path.split(b"/")
    if b"\0" in path or any(part in (b"", b".", b"..") for part in parts):
        return "is no path below the folder"
    if path in before:
        return "is there twice"
    if before.get(b"/".join(parts[:-1])) != file_kinds.FOLDER:
        return "is in no folder that comes before it"
    if kind == file_kinds.FILE and not (0 <= size <= _LONGEST_FILE and len(digest) == _DIGEST):
        return f"cannot have {size} bytes with the SHA-256 {digest[:100]!r}"
    if kind == file_kinds.LINK and (
        not target or b"\0" in target or not leads_within(os.fsdecode(target), len(parts) - 1)
    ):
        return f"leads to {shown(target)!r}, which is not in the folder"
    return None
