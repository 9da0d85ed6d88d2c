"""The event loop of a worker, on which its coroutines run one after another.

There is one loop for the worker's life, so that what belongs to a loop, such as a connection or a
semaphore in a global variable, can be used by later tasks.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from .._core import fork
from .._sky.notices import notices

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

T = TypeVar("T")

_kept: AbstractEventLoop | None = None
"""The worker's loop; None before the first coroutine, and after one that was interrupted."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, and return its value.

    On the main thread, this uses the worker's loop. A coroutine on another thread, or of a call that
    runs while another coroutine waits, has a loop of its own.
    """
    global _kept
    import asyncio

    loop = _kept
    if get_ident() != notices.main or (loop is not None and loop.is_running()):
        return asyncio.run(coroutine)
    if loop is None or loop.is_closed():
        _kept = loop = asyncio.new_event_loop()
    # `asyncio.run` of a payload leaves none.
    asyncio.set_event_loop(loop)
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except BaseException as error:
        # An interrupt may have stopped the loop at any place.
        if not (fork.is_child or (task.done() and isinstance(error, Exception))):
            _kept = None
            _end(loop)
        raise


def leave() -> None:
    """End the worker's loop, and what still runs on it, before the process ends."""
    global _kept
    loop, _kept = _kept, None
    if loop is not None and not loop.is_closed():
        _end(loop)


def _end(loop: AbstractEventLoop) -> None:
    """End a loop as `asyncio.run` does: cancel its tasks, wait for them, and close it."""
    import asyncio

    try:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
