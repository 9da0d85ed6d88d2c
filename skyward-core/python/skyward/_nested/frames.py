"""Callers of calls, and the calls that they have submitted."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
from _thread import allocate_lock
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from .._calls.errors import CallError
from .._calls.store import Hold
from .._core import modules, wire
from .._values.codec import Buffer
from .awaiting import Awaiting

_AGAIN: Final = 0.05
"""Seconds after which an interrupt is tried again that would have ruined an import."""


class Frame:
    """A caller: a run, or a call that this worker helps with while that run waits."""

    def __init__(self, run: int, help: int, depth: int) -> None:
        """Create a caller without calls.

        Args:
            run: the number of the worker's run.
            help: the number of the helped call; 0 for the run itself.
            depth: the number of callers above.
        """
        self.run = run
        self.help = help
        self.depth = depth
        self.calls: dict[int, Pending] = {}
        """The calls that it has submitted and that have no outcome yet."""
        self.seed: int | None = None
        """What the random numbers of its calls follow from; None without a seed."""
        self.seeded = 0
        """The number of its calls that were given a seed."""
        self.cancelled = False
        self.interrupted = False
        """Whether an interrupt was raised in its code, which happens once."""
        self.ended = False
        self.answered = False
        """Whether the client gets an answer of this helped call."""


class AsideFrame(Frame):
    """A helped call on a thread of its own, which is interrupted only in its own code."""

    def __init__(self, run: int, help: int, depth: int) -> None:
        super().__init__(run, help, depth)
        self.thread = 0
        self.waits: Awaiting[Any] | None = None
        self._guard = allocate_lock()
        self._is_in_own_code = False
        self._is_due_again = False
        """Whether a timer calls `cancel` again."""

    def enter(self) -> None:
        """Leave the call's own code for this package's.

        Raises:
            KeyboardInterrupt: an interrupt arrived at the last moment.
        """
        with self._guard:
            self._is_in_own_code = False
        # A pending asynchronous exception is raised when a function is entered or a loop continues.
        for _ in range(2):
            _breathe()

    def leave(self) -> None:
        """Return to the call's own code.

        Raises:
            KeyboardInterrupt: the call was cancelled meanwhile.
        """
        with self._guard:
            due = self.cancelled and not self.interrupted
            if due:
                self.interrupted = True
            self._is_in_own_code = True
        if due:
            raise KeyboardInterrupt("the call was cancelled")

    def cancel(self) -> None:
        """Interrupt the call, from another thread; while it imports a library, after the import."""
        import ctypes

        with self._guard:
            self.cancelled = True
            if not self._is_in_own_code:
                if self.waits is not None:
                    self.waits.wake()
            elif not self.interrupted:
                if modules.is_importing_library(sys._current_frames().get(self.thread)):
                    self._cancel_again()
                    return
                self.interrupted = True
                thread, error = ctypes.c_ulong(self.thread), ctypes.py_object(KeyboardInterrupt)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)

    def _cancel_again(self) -> None:
        if self._is_due_again:
            return
        timer = threading.Timer(_AGAIN, self._on_timer)
        timer.daemon = True
        with suppress(RuntimeError):  # no more threads: the client repeats the cancel of a call
            timer.start()
            self._is_due_again = True

    def _on_timer(self) -> None:
        self._is_due_again = False
        self.cancel()


def check_depth(depth: int) -> None:
    """Check that code with so many callers above it may submit a call.

    Raises:
        CallError: the call would be nested too deeply.
    """
    if depth >= wire.DEEPEST:
        raise CallError(
            f"a call may have at most {wire.DEEPEST} callers above it, and this one would have more: check the "
            "function for an endless recursion"
        )


def _breathe() -> None:
    """Do nothing; entering this function raises a pending exception."""


class Pending(concurrent.futures.Future[Any]):
    """A call that was submitted, and its outcome as far as it is known.

    `Future` adds what waits for the outcome.
    """

    def __init__(self, call: int, frame: Frame, holds: Sequence[Hold]) -> None:
        """Start without an outcome.

        Args:
            call: the number of the call.
            frame: the caller.
            holds: the files of the store that must stay until the outcome.
        """
        super().__init__()
        self.micros = 0
        """How long the call ran, in microseconds; 0 until its outcome."""
        self.answer_bytes = 0
        """The size of its answer; 0 until its outcome, and without an answer."""
        self._call = call
        self._frame = frame
        self._holds = holds
        self._over = False
        self._told = False
        """Whether the base class has called the callbacks, of which `Future` sets the first."""
        self._answer: Buffer | None = None
        self._failure: BaseException | None = None
        self._awaited: list[Awaiting[Any]] = []

    def _finish(self, seconds: float) -> bool:
        """Complete the base class, which runs callbacks; return False if its lock stays locked."""
        # A thread that was interrupted within `concurrent.futures.wait` can leave it locked.
        if not self._condition.acquire(timeout=seconds):
            return False
        self._condition.release()
        failure = self._failure
        try:
            if isinstance(failure, concurrent.futures.CancelledError):
                super().cancel()
                self.set_running_or_notify_cancel()
            elif failure is not None:
                self.set_exception(failure)
            else:
                self.set_result(None)
        finally:
            if not self._told:
                # It failed half way, because memory ran out.
                self._invoke_callbacks()  # type: ignore[attr-defined]
        return True
