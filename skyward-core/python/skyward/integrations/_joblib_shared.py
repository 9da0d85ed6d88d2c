"""joblib's configuration for threads that have none of their own.

joblib keeps its configuration for each thread. A thread that a payload starts, or that runs a call
beside the main thread, would therefore take joblib's own processes, which cannot import the
payload's modules.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Mapping
from contextlib import AbstractContextManager
from threading import main_thread
from types import TracebackType
from typing import Any, Final

from joblib import parallel  # type: ignore[import-untyped,import-not-found,unused-ignore]

Shares = list[tuple[int, "_Config"]]
"""Configurations for the threads without one, each with the thread that has entered it."""

ENTERED: Final[Shares] = []
"""The configurations that a plugin or a payload has entered and not left."""
BATCHES: Final[Shares] = []
"""The configurations within the batches that run, for processes in which none is entered."""


class _Config(dict[str, Any]):
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
        if isinstance(value, _Config) or value is parallel.default_parallel_config:
            _own.__dict__.pop(name, None)
        else:
            setattr(_own, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_own, name)


class Shared(AbstractContextManager[None]):
    """Lets all other threads of this process that have no configuration of their own take this one.

    Of several, they take the one that was entered last.
    """

    def __init__(self, config: Mapping[str, Any], shares: Shares = ENTERED) -> None:
        self._entry = (get_ident(), _Config(config))
        self._shares = shares

    def __enter__(self) -> None:
        self._shares.append(self._entry)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._shares[:] = [other for other in self._shares if other is not self._entry]


_MAIN: Final = main_thread().ident
_own: Final = parallel._backend
"""The configuration that each thread has itself."""
threads: Final = _Threads()
"""What joblib itself uses from now on."""
parallel._backend = threads
