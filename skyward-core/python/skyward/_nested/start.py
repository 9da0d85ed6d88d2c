"""Check where calls may be submitted, and create the hub at the first call of a process."""

from __future__ import annotations

import threading
from _thread import get_ident
from typing import Final, Protocol

from .._calls.errors import CallError
from .._calls.handlers import raised_by_handler
from .._core import fork, state
from .._sky.cluster import is_in_gang
from .._sky.notices import notices
from . import serving
from .callers import OUTSIDE
from .host import Host
from .hub import Hub


class Caller(Host, Protocol):
    """The worker of this process, as the one that submits calls."""

    hub: Hub | None
    """The calls of this process; None before the first call."""
    calls: str | None
    """The path at which the client connects; None if its agent cannot report calls."""
    wake: int | None
    """The pipe to the agent; None if its agent has none."""


_creating: Final = threading.Lock()


def current() -> Hub:
    """Return the hub of this process, created at its first call.

    Raises:
        CallError: no calls can be submitted here.
    """
    if fork.is_child:
        raise CallError("a process that a payload has forked cannot submit calls; submit them in the payload's process")
    worker: Caller | None = state.worker
    if worker is None or worker.session.running is None:
        raise CallError(OUTSIDE)
    if is_in_gang():
        raise CallError(
            "a task of a gang cannot submit calls: the gang occupies all workers at the same time; submit calls from a "
            "task that runs on one worker"
        )
    return worker.hub or _create(worker)


def _create(worker: Caller) -> Hub:
    if worker.calls is None or worker.wake is None:
        raise CallError("calls do not work on this node: its agent cannot report them to the client")
    is_main = get_ident() == notices.main
    was = worker.runner.busy
    if is_main:
        worker.runner.busy = False
    try:
        with _creating:
            worker.hub = hub = worker.hub or Hub(worker, worker.calls, serving.handle, serving.serve)
            return hub
    except (OSError, RuntimeError) as error:
        if raised_by_handler(error):
            raise
        raise CallError(f"cannot submit calls from this worker: {error}") from error
    finally:
        if is_main:
            worker.runner.busy = was
