"""Calls outside a pool: each runs in place, while it is submitted.

What a payload sees is what it sees in a pool of one worker: function, arguments and results are
pickled, so that a call changes nothing of its caller's, and its errors are those of a pool.
"""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import Callable
from contextvars import Context, ContextVar
from time import perf_counter_ns
from typing import Any, Final

from .._calls.answers import Call
from .._calls.errors import CallError, CallTimeoutError, from_failure
from .._calls.pickles import pack_call
from .._calls.references import Unstored
from .._core import fork, state
from .._libraries import seeds
from .._values.codec import Buffer
from .frames import Frame, Pending, check_depth
from .future import Future
from .helping import NoLoop, Room

_depth: Final[ContextVar[int]] = ContextVar("depth", default=0)
"""How many calls run around the running code."""

UNHELPED: Final = (
    "the call must not run on its caller's worker (`help=False`), and the pool has no other worker (give the pool more "
    "nodes or workers)"
)


def is_outside() -> bool:
    """Return whether this process belongs to no pool: no worker, and no process that a payload has started."""
    return state.worker is None and not fork.is_child and "SKYWARD_CLUSTER" not in os.environ


class Ended(Future):
    """The future of a call that has run."""

    def __init__(self, answer: Buffer | None, failure: BaseException | None, micros: int) -> None:
        """Store the outcome.

        Args:
            answer: the packed answer; None if there is none.
            failure: why there is no answer.
            micros: how long the call ran, in microseconds.
        """
        Pending.__init__(self, 0, Frame(0, 0, 0), ())
        self.micros = micros
        self.answer_bytes = 0 if answer is None else len(answer)
        self._unpacked = None
        self._answer = answer
        self._failure = failure
        self._over = self._told = True
        self._finish(-1)

    def cancel(self) -> bool:
        """Return False: the call has ended."""
        return False

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[Any]], object]) -> None:
        """Call the function with the future."""
        concurrent.futures.Future.add_done_callback(self, fn)


def submit(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | None, help: bool
) -> tuple[Ended, int]:
    """Run a call, and return its future and the bytes of the call.

    Args:
        fn: the function.
        args: its positional arguments.
        kwargs: its keyword arguments.
        timeout: the seconds that it may take; a call that took longer has no result.
        help: whether its caller's worker may run it; there is no other.

    Raises:
        CallError: the call cannot be pickled, or is nested too deeply.
        KeyboardInterrupt: the user interrupts the program.
    """
    depth = _depth.get()
    check_depth(depth)
    body = pack_call(fn, args, kwargs, Unstored())
    length = len(body)
    if not help:
        return Ended(None, CallError(UNHELPED), 0), length
    began = perf_counter_ns()
    answer, failure = _run(Call(body), depth)
    micros = (perf_counter_ns() - began) // 1000
    if timeout is not None and micros > timeout * 1e6:
        answer, failure = None, CallTimeoutError(f"the call ran for {micros / 1e6:.1f} s, longer than its {timeout} s")
    return Ended(answer, failure, micros), length


def _run(call: Call, depth: int) -> tuple[Buffer | None, BaseException | None]:
    try:
        # Like a helped call, it does not see the context variables of its caller.
        value = Context().run(_apart, call, depth + 1)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        parts, failure = call.fail(error)
        return (None, from_failure(failure)) if parts is None else (parts[0], None)
    return call.answer(value)[0], None


def _apart(call: Call, depth: int) -> Any:
    """Run the call; it shares neither the event loop nor the random numbers of its caller."""
    _depth.set(depth)
    if threading.current_thread() is not threading.main_thread():
        return call()
    with Room(depth), NoLoop(), seeds.Apart():
        return call()
