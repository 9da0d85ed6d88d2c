"""The random numbers of tasks and of their calls.

A worker that runs a call within another task gives the call generators of its own, so that the caller
draws what it would draw if the call ran elsewhere. If a seed is set, a call begins with numbers that
follow from its place below its task, on whichever worker it runs.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from .._core import state
from . import generators

root: int | None = None
"""The seed of the running task; None without one."""


class Seeded(Protocol):
    """A caller of calls, whose random numbers follow from a seed."""

    help: int
    """The number of the helped call; 0 for the run itself."""
    seed: int | None


def follow(seed: int, number: int) -> int:
    """Return the seed of the `number`-th call of the code that has this seed."""
    # Few tasks need it.
    from zlib import crc32

    return crc32(f"{seed}/{number}".encode())


def begin(seed: int) -> None:
    """Let the code of this thread, and the calls that it makes, draw the numbers of a seed.

    A thread beside the main thread shares the generators of the process, which stay as they are.
    """
    global root
    import keras

    hub = state.worker and state.worker.hub
    me = get_ident()
    frame: Seeded | None = None
    if hub is not None:
        frame = hub.threads.get(me) or (hub.stack[-1] if me == hub.main and hub.stack else None)
    if frame is not None:
        frame.seed = seed
    if frame is None or frame.help == 0:
        root = seed
    if frame is None or frame.help == 0 or me == hub.main:
        keras.utils.set_random_seed(seed)


class Apart:
    """Keeps the generators of a waiting task as they are, for a call that its worker runs meanwhile."""

    def __enter__(self) -> None:
        self._restores: list[Callable[[], object]] = []
        try:
            self._begin_all()
        except BaseException:
            # An interrupt, or a signal handler of the payload has raised.
            self.__exit__()
            raise

    def _begin_all(self) -> None:
        modules = sys.modules
        if not self._begin(generators.python()):
            self._keep(modules.get("random"), "getstate", "setstate", "seed")
        if not self._begin(generators.numpy()):
            self._keep(modules.get("numpy.random"), "get_state", "set_state", "seed", legacy=False)
        torch: Any = modules.get("torch")
        self._keep(getattr(torch, "default_generator", None), "get_state", "set_state", "manual_seed")
        cuda: Any = modules.get("torch.cuda")
        if torch is not None and cuda is not None and cuda.is_initialized():
            self._keep(cuda, "get_rng_state_all", "set_rng_state_all", "manual_seed_all")

    def _begin(self, generator: generators.PythonGenerator | generators.NumpyGenerator | None) -> bool:
        if generator is not None:
            with suppress(Exception):
                generator.begin(self._restores)
                return True
        return False

    def _keep(self, source: Any, read: str, write: str, seed: str, **how: object) -> None:
        """Remember a state that the functions of these names read and write, and set another one."""
        if source is None:
            return
        # The payload may have put something in place of a function, and another thread may be
        # importing the library now.
        with suppress(Exception):
            self._restores.append(partial(getattr(source, write), getattr(source, read)(**how)))
            getattr(source, seed)(int.from_bytes(os.urandom(4), "little"))

    def __exit__(self, *_: object) -> None:
        # If one failed half way, the next has kept what the first had set.
        for restore in reversed(self._restores):
            with suppress(Exception):
                restore()
