"""joblib's configuration for threads that have none of their own.

joblib keeps its configuration for each thread. A thread that a payload starts, or that runs a call
beside the main thread, would therefore take joblib's own processes, which cannot import the
payload's modules.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import main_thread
from typing import Any, Final

from joblib import parallel  # type: ignore[import-untyped,import-not-found,unused-ignore]

Shares = list[tuple[int, "_Shared"]]
"""Configurations for the threads without one, each with the thread that has entered it."""

ENTERED: Final[Shares] = []
"""The configurations that a plugin or a payload has entered and not left."""
BATCHES: Final[Shares] = []
"""The configurations within the batches that run, for processes in which none is entered."""


class _Shared(dict[str, Any]):
    """A configuration that no thread owns. A copy, which joblib makes for a thread, is a plain dict."""


class _Threads:
    """Takes the place of joblib's `threading.local`: `config` is the thread's own, or a shared one."""

    def __getattr__(self, name: str) -> Any:
        own = _own.__dict__.get(name)
        if own is not None or name != "config":
            return getattr(_own, name)
        me = get_ident()
        # The main thread enters what it uses.
        for shares in (ENTERED, BATCHES) if me != _MAIN else ():
            # The thread that has entered a configuration leaves it for a while to run other
            # coroutines.
            found = next((config for thread, config in reversed([*shares]) if thread != me), None)
            if found is not None:
                return found
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        # At its end, `parallel_config` sets what it has found at its begin.
        if isinstance(value, _Shared) or value is parallel.default_parallel_config:
            _own.__dict__.pop(name, None)
        else:
            setattr(_own, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_own, name)


@contextmanager
def shared(config: Mapping[str, Any], shares: Shares = ENTERED) -> Iterator[None]:
    """Let all other threads of this process that have no configuration of their own take this one.

    Of several, they take the one that was entered last.
    """
    entry = (get_ident(), _Shared(config))
    shares.append(entry)
    try:
        yield
    finally:
        shares[:] = [other for other in shares if other is not entry]


_MAIN: Final = main_thread().ident
_own: Final = parallel._backend
"""The configuration that each thread has itself."""
threads: Final = _Threads()
"""What joblib itself uses from now on."""
parallel._backend = threads
