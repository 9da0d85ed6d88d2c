"""The batches that joblib runs on workers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from joblib import parallel_config  # type: ignore[import-untyped,import-not-found,unused-ignore]

from ._joblib_shared import BATCHES, Shared

_controller: tuple[int, Any] | None = None
"""The number of loaded modules at the last search for libraries, and the result of the search."""

_lock = threading.Lock()
_in_use: list[int] = []
"""The limits of the batches that run in this process now."""
_originals: list[tuple[Any, Any]] = []
"""The controllers that were used, each with the original limits: one from the first batch, and one
for each search with a new result.
"""


class Batch:
    """Some calls of joblib, and a limit for the threads of the numeric libraries."""

    def __init__(self, calls: Any, threads: int | None) -> None:
        """Wrap a batch.

        Args:
            calls: joblib's `BatchedCalls`.
            threads: the threads of each library; None for no limit.
        """
        self.calls = calls
        self.threads = threads
        # Errors about calls that cannot be sent name the call by this.
        self.__qualname__ = _name(calls)

    def __call__(self) -> Any:
        """Run the calls, and return the list of their results."""
        calls = self.calls
        with (
            limited(self.threads),
            parallel_config(backend=calls._backend, n_jobs=calls._n_jobs) as config,
            Shared(config, BATCHES),
        ):
            return calls()

    def __reduce__(self) -> Any:
        return Batch, (self.calls, self.threads)


@contextmanager
def limited(threads: int | None) -> Iterator[None]:
    """Limit the threads of the numeric libraries that are loaded in this process.

    Batches may overlap on threads of one process, and end in any order. The limit of BLAS applies
    to the process: the batch that began last decides it, and the last batch that ends restores it.
    The limit of OpenMP applies to each thread.
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
    """Let any thread limit BLAS: threadpoolctl 3.8 accepts limits from the first thread alone."""
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
    """Find the loaded libraries; search again, which takes milliseconds, only after new imports."""
    global _controller
    from threadpoolctl import ThreadpoolController

    if _controller is None or _controller[0] != len(sys.modules):
        _controller = (len(sys.modules), ThreadpoolController())
    return _controller[1]


def _name(calls: Any) -> str:
    """Return a short name for the functions of a batch."""
    function = calls.items[0][0] if calls.items else calls
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
