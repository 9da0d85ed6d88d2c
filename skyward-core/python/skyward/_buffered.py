"""What a worker has buffered is written before its process ends.

A worker ends by `os._exit`, so that no thread that a payload or a framework has left behind can keep
it. Therefore this module does what the ends of Python and of the C library would do for open files.
"""

from __future__ import annotations

import gc
import io
import sys
from _io import _IOBase  # type: ignore[import-not-found, unused-ignore]
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from types import FunctionType, ModuleType
from typing import Any, Final

from . import _strays
from ._package_names import is_root

_LONGEST: Final = 2.0
"""The most seconds for all files: what is written may go to a full pipe, or to a server that is
gone.
"""
_IN_MEMORY: Final = (io.RawIOBase, io.BytesIO, io.StringIO)
"""Files without a buffer, and those that are nothing else."""
_STAYING: Final = (FunctionType, ModuleType, type)


def write_out() -> None:
    """Write what open files have buffered, and finalize what the modules of payloads hold.

    Each file is written on a thread of its own, so that one that blocks keeps no other back.
    """
    end = monotonic() + _LONGEST
    _strays.note()
    _within(end, [*(file.flush for file in _files()), _flush_stdio])
    # A thread that executes code of a payload would fail without these objects, and report that.
    if not _strays.threads:
        _within(end, [_clear_payloads])


def _files() -> Iterator[Any]:
    """Yield the open files that may have a buffer."""
    gc.unfreeze()
    for thing in gc.get_objects():
        # Asked of the type: an object may pretend to be of a class, and do much to find out.
        kind = type(thing)
        if issubclass(kind, _IOBase) and not issubclass(kind, _IN_MEMORY):
            yield thing


def _flush_stdio() -> None:
    """Write what the C library has buffered, such as the output of `printf` in native code."""
    import ctypes

    ctypes.CDLL(None).fflush(None)


def _clear_payloads() -> None:
    """Remove what the modules of payloads hold, the latest first, so that it is finalized.

    An archive gets its directory, and a compressed file its last block. Functions, classes and
    modules stay at first, because finalizers use them. What only functions and classes hold, as a
    closure or an attribute, is finalized with them.
    """
    modules = [module for name, module in sys.modules.items() if is_root(name.partition(".")[0])][::-1]
    for staying in (_STAYING, ModuleType):
        for names in map(vars, modules):
            for name in list(names)[::-1]:
                if not name.startswith("__") and not issubclass(type(names[name]), staying):
                    del names[name]
    if modules:
        gc.collect()


def _within(end: float, actions: Iterable[Callable[[], object]]) -> None:
    """Do all of this at the same time, and return when all is done, at the latest at the end."""
    from threading import Thread

    threads = []
    for action in actions:
        thread = Thread(target=_attempt, args=(action,), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system starts no more threads
            _attempt(action)
        else:
            threads.append(thread)
    for thread in threads:
        thread.join(max(0.0, end - monotonic()))


def _attempt(action: Callable[[], object]) -> None:
    try:
        action()
    except BaseException:
        pass  # nobody is left who could be told, and other files are to be written all the same
