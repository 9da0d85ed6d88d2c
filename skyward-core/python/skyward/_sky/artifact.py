"""`sky.artifact`: files, folders and bytes that stay on the node until the client brings them to itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from .._values.advice import type_name
from .cluster import instance_info, node_folder

_BYTES = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Artifact:
    """A file or folder that is kept on a node; `sky.artifact` makes it.

    It is plain data, which names the content and does not contain it. In Rust, its type is
    `Artifact` too.
    """

    node: int
    """Index of the node that keeps it."""
    id: str
    """Names it on its node: 32 hexadecimal digits."""
    name: str
    """What the file or folder is called."""
    size: int
    """Bytes of all files together."""
    sha256: str
    """SHA-256 in hexadecimal digits: of the file, or of the list of a folder's files."""
    files: int | None
    """How many files a folder has; None for a file."""


def artifact(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview, *, name: str | None = None, move: bool = False
) -> Artifact:
    """Keep a snapshot of a file, a folder or bytes on this node, for the caller in Rust to save.

    The returned object can be a part of a result, of a report, of an item of a stream, and of the
    result of a submitted call. In Rust, `Artifact::save_to(&pool, path)` brings the content to the
    client, also after the task has ended or failed. The artifact is kept until it is discarded, or
    the pool ends. Later changes of the source do not change it.

    An artifact is a copy. It takes no more of the disk where the file system lets files share their
    content (Btrfs, XFS). A folder keeps its empty folders, its links, and whether files can be
    executed by their owner. Its links must lead within the folder. Outside a pool the source is
    checked and hashed, and nothing is kept.

    A file that is written meanwhile is refused, if the system notes when it is written. That is not
    so for memory maps: a file into which one is written at the same time may be copied in a state
    between two writes. Flush and close the map first.

    If the process is killed, what is incomplete is removed later. Only if that happens at the
    instant in which `move` has renamed the source and not completed the artifact, the source stays
    in the node's folder, as `artifacts/.<id>.moved/content`, until the pool ends.

    Args:
        source: the path of a file or folder, or bytes. A link at this path is followed.
        name: what to call it; by default the last part of the path, or `"artifact"` for bytes.
        move: give up the source, which is then gone. On the same disk, nothing is copied. What a
            link at the path leads to stays and is copied; so is a file with hard links.

    Raises:
        TypeError: the source is neither a path nor bytes, or bytes are to be moved.
        ValueError: the name is no name of a file; the folder has a link that leads out of it, or a
            device, a named pipe or a socket; or it has more than 1,000,000 files, folders and links,
            or a list of them of more than 64 MiB.
        FileNotFoundError: there is nothing at the path.
        OSError: a file cannot be read or written, or the disk has too little room.
        RuntimeError: a file was changed while it was copied, or something was added to a folder or
            removed from it while it was moved.

    Example:
        torch.save(model.state_dict(), "model.pt")
        return {"loss": loss, "model": sky.artifact("model.pt")}
    """
    from . import snapshot

    if isinstance(source, _BYTES):
        if move:
            raise TypeError("sky.artifact cannot move bytes; leave out move=True, which is for files and folders")
        called = "artifact" if name is None else _checked(name)
        home, id = node_folder("sky.artifact"), os.urandom(16).hex()
        kept = snapshot.of_bytes(_flat(source), home, id)
    elif isinstance(source, str | os.PathLike):
        path = os.fsdecode(source)
        called = _base_name(path) if name is None else _checked(name)
        home, id = node_folder("sky.artifact"), os.urandom(16).hex()
        # With a slash at its end, the path of a link would be that of what the link leads to.
        kept = snapshot.of_path(path.rstrip("/") or path, home, id, move)
    else:
        raise TypeError(
            f"sky.artifact takes the path of a file or folder (str or os.PathLike) or bytes, not an object of type "
            f"{type_name(type(source))}: save it to a file first, or pass its bytes"
        )
    node = 0 if home is None else instance_info().node
    return Artifact(node, id, called, kept.size, kept.sha256, kept.files)


def _flat(data: bytes | bytearray | memoryview) -> memoryview:
    view = memoryview(data)
    if view.nbytes == 0:
        return memoryview(b"")
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())


def _checked(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of an artifact must be a str, not an object of type {type_name(type(name))}")
    plain = str.__str__(name)
    if plain in ("", ".", "..") or "/" in plain or "\0" in plain or plain != _encodable(plain):
        raise ValueError(f"{plain!r} cannot be the name of an artifact: it must be usable as the name of a file")
    return plain


def _base_name(path: str) -> str:
    return _encodable(os.path.basename(os.path.abspath(path))) or "artifact"


def _encodable(name: str) -> str:
    """Return a name without surrogates, which stand for bytes that are no text."""
    return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in name)
