"""The files of payloads on this node.

Each payload has a folder `payload_<digest>`, which all workers of the node share and may write at
the same time. Each file is replaced as a whole, and only if its content differs, so that readers
never see a part of it.

No worker waits for another, which may be stopped at any point. Instead, each worker says by a file
of its own that it uses the payload. The last one moves the folder aside before it removes it, so a
worker that begins to use the payload meanwhile misses its file, and writes all files anew.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from itertools import count
from typing import Final

from .._core.messages import Source
from .._core.modules import Layout, PayloadError
from .._core.package_names import PREFIX, is_digest

_BOM: Final = "\ufeff"
_numbers: Final = count()
_MARK: Final = ".used-by-"
"""What begins the name of the file by which a worker says that it uses a payload."""
_ME: Final = os.environ.get("SKYWARD_SLOT") or str(os.getpid())
_MOST_TRIES: Final = 100
"""How often the files are written while other workers remove them; each of these may do so once."""
_MOST_REMOVALS: Final = 10
_ROOM: Final = "free some space, or mend the permissions of this folder"
_ENCODING: Final = r"\A((?:[ \t\f]*(?:#[^\r\n]*)?(?:\r\n?|\n))??[ \t\f]*#[^\r\n]*?coding[:=][ \t]*)(?a:[-\w.]+)"
"""What matches the comment in the first two lines of a file that names its encoding."""


def write(folder: str, digest: str, source: Source, layout: Layout) -> str:
    """Write the files of a payload, unless they are there; return the folder of its package.

    Args:
        folder: the folder of all payloads of the node.
        digest: the digest of the payload.
        source: its source.
        layout: its layout.

    Raises:
        PayloadError: the digest or a path is not valid, the files cannot be written, or others can
            write into the folder.
    """
    if not is_digest(digest):
        raise PayloadError(f"the digest of a payload must consist of hexadecimal digits: {digest!r}")
    name = PREFIX + digest
    root = f"{folder}/{name}"
    try:
        _make_folder(folder)
        for left in reversed(range(_MOST_TRIES)):
            try:
                _write(folder, root, source, layout)
                os.stat(f"{root}/{_MARK}{_ME}")
                break
            except FileNotFoundError:
                if not left:
                    raise
    except OSError as error:
        # Of a file that is replaced, the second name is that of the payload.
        at = error.filename2 or error.filename
        where = f" ({at})" if at else ""
        advice = "give it a shorter name" if error.errno == errno.ENAMETOOLONG else _ROOM
        raise PayloadError(
            f"cannot write the files of the payload {source.main} on the node: {error.strerror or error}{where}; "
            f"{advice}, and call it again"
        ) from error
    except ValueError as error:
        raise PayloadError(f"the payload {source.main} has a file that cannot be written: {error}") from error
    # The import system remembers what was in the folder before.
    sys.path_importer_cache.pop(folder, None)
    return root


def _write(folder: str, root: str, source: Source, layout: Layout) -> None:
    _make_folder(root)
    _put(folder, f"{root}/{_MARK}{_ME}", b"")
    for path, text in source.files:
        # Tracebacks show the lines of the file in which the text is embedded.
        above = source.first_line - 1 if path == source.main else 0
        place = layout.places[path]
        for end, character in enumerate(place):
            if character == "/":
                _make_folder(f"{root}/{place[:end]}")
        content = _python(text, above) if path.endswith(".py") or path == source.main else text
        _put(folder, f"{root}/{place}", content.encode())
    # Last: it makes the package importable.
    _put(folder, f"{root}/__init__.py", _package(list(layout.places)).encode())


def _python(text: str, above: int) -> str:
    """Return source as a file has it: in UTF-8, whatever its text says, and below some empty lines."""
    plain = text.removeprefix(_BOM)
    if above or "coding" not in plain:
        return "\n" * above + plain
    import re

    return re.sub(_ENCODING, r"\1utf-8", plain)


def release(folder: str, digest: str) -> None:
    """Remove the files of a payload, unless another worker of the node uses them."""
    root = f"{folder}/{PREFIX}{digest}"
    with suppress(OSError):  # what is left ends with the node
        with suppress(FileNotFoundError):
            os.unlink(f"{root}/{_MARK}{_ME}")
        if _is_used(root):
            return
        aside = f"{folder}/{_unique()}.gone"
        os.rename(root, aside)
        if _is_used(aside):
            # Another worker has begun to use it. If the folder is there again, that worker has written it.
            with suppress(OSError):
                os.rename(aside, root)
                return
        _remove(aside)


def _remove(aside: str) -> None:
    """Remove a folder that was moved aside. Files that were on their way into it may still arrive there."""
    import shutil

    for _ in range(_MOST_REMOVALS):
        with suppress(OSError):
            shutil.rmtree(aside)
            return


def _is_used(root: str) -> bool:
    return any(name.startswith(_MARK) for name in os.listdir(root))


def _unique() -> str:
    return f".{os.getpid()}-{next(_numbers)}"


def _package(paths: list[str]) -> str:
    return (
        '"""A payload: the modules of its files are below this package."""\n\n'
        "from skyward._core import modules\n\n"
        f"modules.adopt(__name__, __file__, {paths!a})\n"
    )


def _make_folder(path: str) -> None:
    """Make a folder that only this user can write.

    Raises:
        OSError: it cannot be made.
        PayloadError: it is no folder, or others can write into it.
    """
    try:
        os.makedirs(path, mode=0o700)
    except FileExistsError:
        about = os.lstat(path)
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
            raise PayloadError(
                f"payloads are not written into {path}: other users could change them there; it must be a folder "
                f"that only the user {os.geteuid()} can write (owner {about.st_uid}, mode {about.st_mode & 0o7777:o})"
            ) from None


def _put(folder: str, path: str, data: bytes) -> None:
    """Replace a file, unless it has this content. It is written in the folder of all payloads first."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as known:
            if known.read(len(data) + 1) == data:
                return
    except OSError:
        pass  # most often there is no such file; replacing it reports what is wrong
    new = f"{folder}/{_unique()}.new"
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        os.replace(new, path)
    except BaseException:
        try:
            os.unlink(new)
        except OSError:
            pass
        raise
