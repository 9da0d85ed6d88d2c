"""The files of payloads on this node.

Each payload has a folder `payload_<digest>`, which all workers of the node share and may write at
the same time. Each file is replaced as a whole, and only if its content differs, so that readers
never see a part of it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Final

from ._messages import Source
from ._modules import Layout, PayloadError
from ._package_names import PREFIX, is_digest

_BOM: Final = "\ufeff"
_numbers: Final = count()
_MARK: Final = ".used-by-"
"""What begins the name of the file by which a worker says that it uses a payload."""
_ME: Final = os.environ.get("SKYWARD_SLOT") or str(os.getpid())


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
        with _locked(folder):
            _write(root, source, layout)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise PayloadError(
            f"cannot write the files of the payload {source.main} on the node: {error.strerror or error}{where}; "
            "free some space, or mend the permissions of this folder, and call it again"
        ) from error
    except ValueError as error:
        raise PayloadError(f"the payload {source.main} has a file that cannot be written: {error}") from error
    # The import system remembers what was in the folder before.
    sys.path_importer_cache.pop(folder, None)
    return root


def _write(root: str, source: Source, layout: Layout) -> None:
    _make_folder(root)
    for path, text in source.files:
        # Tracebacks show the lines of the file in which the text is embedded.
        above = source.first_line - 1 if path == source.main else 0
        lines = "\n" * above + text.removeprefix(_BOM) if above else text
        place = layout.places[path]
        for end, character in enumerate(place):
            if character == "/":
                _make_folder(f"{root}/{place[:end]}")
        _put(f"{root}/{place}", lines.encode())
    _put(f"{root}/{_MARK}{_ME}", b"")
    # Last: it makes the package importable.
    _put(f"{root}/__init__.py", _package(list(layout.places)).encode())


def release(folder: str, digest: str) -> None:
    """Remove the files of a payload, unless another worker of the node uses them."""
    root = f"{folder}/{PREFIX}{digest}"
    try:
        with _locked(folder):
            with suppress(FileNotFoundError):
                os.unlink(f"{root}/{_MARK}{_ME}")
            if not any(name.startswith(_MARK) for name in os.listdir(root)):
                import shutil

                shutil.rmtree(root)
    except OSError:
        pass  # what is left ends with the node


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Keep other workers of the node from writing or removing files of payloads.

    The lock is released explicitly: a child that the payload has forked shares the descriptor.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _package(paths: list[str]) -> str:
    return (
        '"""A payload: the modules of its files are below this package."""\n\n'
        "from skyward import _modules\n\n"
        f"_modules.adopt(__name__, __file__, {paths!a})\n"
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


def _put(path: str, data: bytes) -> None:
    """Replace a file, unless it has this content."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as known:
            if known.read(len(data) + 1) == data:
                return
    except OSError:
        pass  # most often there is no such file; replacing it reports what is wrong
    new = f"{path}.{os.getpid()}-{next(_numbers)}.new"
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
