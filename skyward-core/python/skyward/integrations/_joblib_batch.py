"""What joblib has a worker run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_controller: tuple[int, Any] | None = None
"""How many modules there were when the libraries of this process were looked for, and what was found."""

_lock = threading.Lock()
_in_use: list[int] = []
"""The limits of the batches that run in this process."""
_originals: list[tuple[Any, Any]] = []
"""What was found when the first of them began, and whenever more was found, with what its limits had been."""


class Batch:
    """Some calls, and how many threads the numeric libraries may use meanwhile."""

    def __init__(self, calls: Any, threads: int | None) -> None:
        """Wrap a batch.

        Args:
            calls: joblib's `BatchedCalls`.
            threads: the threads of each library; None: as many as it has.
        """
        self.calls = calls
        self.threads = threads
        # By this a message names what it cannot send.
        self.__qualname__ = _name(calls)

    def __call__(self) -> Any:
        """Run them; the list of their results."""
        with limited(self.threads):
            return self.calls()

    def __reduce__(self) -> Any:
        return Batch, (self.calls, self.threads)


@contextmanager
def limited(threads: int | None) -> Iterator[None]:
    """Limit the threads of the numeric libraries that this process has loaded.

    Batches may overlap on threads of one process, and end in any order. The limit of BLAS is one for the process: the
    last batch that began decides, and the last one out restores it. That of OpenMP is one for each thread.
    """
    if threads is None:
        yield
        return
    with _lock:
        controller = _find_libraries()
        _in_use.append(threads)
        with _any_thread_limits():
            blas = controller.select(user_api="blas").limit(limits=threads)
        if not _originals or _originals[-1][0] is not controller:
            _originals.append((controller, blas))
    try:
        with controller.select(user_api="openmp").limit(limits=threads):
            yield
    finally:
        with _lock, _any_thread_limits():
            _in_use.remove(threads)
            if _in_use:
                _originals[-1][0].select(user_api="blas").limit(limits=_in_use[-1])
            while _originals and not _in_use:
                _originals.pop()[1].restore_original_limits()


@contextmanager
def _any_thread_limits() -> Iterator[None]:
    """Have limits of BLAS hold whoever sets them: threadpoolctl 3.8 takes them from the first thread alone."""
    import threadpoolctl

    free = getattr(getattr(threadpoolctl, "OpenBLASController", None), "clear_controlling_thread", None)
    if free is None:
        yield
        return
    free(force=True)
    try:
        yield
    finally:
        free(force=True)


def _find_libraries() -> Any:
    """What threadpoolctl finds. The search takes milliseconds, and libraries come with modules."""
    global _controller
    from threadpoolctl import ThreadpoolController

    if _controller is None or _controller[0] != len(sys.modules):
        _controller = (len(sys.modules), ThreadpoolController())
    return _controller[1]


def _name(calls: Any) -> str:
    """The functions of a batch, in a few words."""
    function = calls.items[0][0] if calls.items else calls
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
