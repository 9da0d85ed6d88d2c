"""Notices that a worker's machine will end, and the functions that a payload registers for them."""

from __future__ import annotations

from _thread import get_ident, interrupt_main
from collections.abc import Callable
from signal import SIGURG
from time import monotonic
from typing import Final

from .._core.complaint import complain

Function = Callable[[float], object]

_SAME: Final = 2.0
"""Seconds. Two messages with the same kind are one notice if their deadlines differ by less,
because messages take different times to arrive.
"""


class _Registered:
    """A registered function, and the number of the last notice with which it was called."""

    __slots__ = ("function", "number")

    def __init__(self, function: Function) -> None:
        self.function = function
        self.number = 0


class Notices:
    """The latest notice, and the functions that are called at a notice."""

    def __init__(self) -> None:
        self.main: int | None = None
        """The thread on which functions are called; None outside workers and in forked processes."""
        self.look: Callable[[], None] = lambda: None
        """Reads the worker's connection, if the thread and the moment allow that."""
        self.pending = False
        """Whether there may be a function that was not called with the latest notice."""
        self.loading: list[Function] | None = None
        """The list that collects functions while a payload is imported; None otherwise."""
        self.in_task = False
        """Whether a task is running. Functions registered then belong to the task."""
        self._kind = ""
        self._deadline: float | None = None
        self._number = 0
        """The number of notices so far."""
        self._delivering = False
        self._staying: list[_Registered] = []
        self.of_task: list[_Registered] = []
        """The functions of the running task; `forget` forgets them."""

    def give(self, kind: str, seconds: float) -> None:
        """Record a notice. A repeated notice changes nothing; a different one replaces the last."""
        deadline = monotonic() + seconds
        known = self._deadline
        if known is not None and kind == self._kind and abs(deadline - known) < _SAME:
            return
        self._kind, self._deadline = kind, deadline
        self._number += 1
        self.pending = True

    @property
    def number(self) -> int:
        """How many different notices there have been so far."""
        return self._number

    def left(self) -> float | None:
        """Return the seconds until the machine ends; None without a notice."""
        return None if self._deadline is None else max(0.0, self._deadline - monotonic())

    def forget(self) -> None:
        """Forget the functions of a task whose payload has returned or raised."""
        self.of_task.clear()

    def register(self, function: Function) -> None:
        """Register a function that is called once with each notice.

        If there is a notice already, the function is called at once on the main thread, and soon
        from other threads.
        """
        if self.loading is not None:
            self.loading.append(function)
            return
        if self.main is None:
            return
        functions = self.of_task if self.in_task else self._staying
        registered = next((known for known in functions if known.function == function), None)
        if registered is None:
            registered = _Registered(function)
            functions.append(registered)
        if self._deadline is None:
            return
        if get_ident() == self.main:
            self._call(registered)
        elif registered.number < self._number:
            self.pending = True
            # Simulates a signal, but no system call of the main thread ends early.
            interrupt_main(SIGURG)

    def deliver(self) -> None:
        """Call the functions that were not called with the latest notice, on the main thread.

        Raises:
            Exception: the first exception that a function raised; the others were called too.
            BaseException: a function was interrupted or ends the task; the others were not called.
        """
        if self._delivering:
            return  # called by a function that reads the connection; the outer call continues with the others
        self._delivering = True
        failed: Exception | None = None
        try:
            while self.pending:
                self.pending = False
                for registered in (*self._staying, *self.of_task):
                    try:
                        self._call(registered)
                    except Exception as error:
                        if failed is not None:
                            complain(f"another function registered with sky.on_notice failed: {error!r}")
                        failed = failed or error
        except BaseException:
            self.pending = True
            raise
        finally:
            self._delivering = False
        if failed is not None:
            raise failed

    def _call(self, registered: _Registered) -> None:
        left = self.left()
        if left is not None and registered.number < self._number:
            registered.number = self._number
            registered.function(left)


notices: Final = Notices()
"""The notices of this process."""


def notice() -> float | None:
    """Return the seconds until this worker's machine ends; None while no end is announced.

    The answer is at least 0.0. A machine ends when the provider takes it back (preemption), when
    its time has expired, or when the pool's budget is spent. A training loop asks between two
    steps, and saves its state when the answer is not None::

        for step, batch in enumerate(batches):
            train(batch)
            if sky.notice() is not None:
                save(step)
                break

    On the main thread of a task, the function reads the worker's connection first, which takes a
    few microseconds. It may then raise what functions registered with `on_notice` raise. On other
    threads and in processes that the task has forked, it returns what this process knows already.
    Outside a worker it returns None.
    """
    notices.look()
    return notices.left()


def on_notice(function: Function) -> Function:
    """Register a function that is called when the end of this worker's machine is announced.

    The function is called once for each notice, and at once if there is a notice already.
    `on_notice` can be used as a decorator::

        def train(steps: int) -> int:
            @sky.on_notice
            def save(left: float) -> None:
                checkpoint(state)

    The function runs on the main thread between two bytecodes of the payload, like a signal
    handler: while Python code computes, when a call of native code returns, and while a generator
    waits at a `yield`. It does not run while the main thread sleeps or executes native code, so a
    loop with long calls should call `sky.notice()` between them. An exception of the function is
    raised in the payload, at the point where it was interrupted. If several functions are
    registered, all of them are called first.

    How long a function stays registered depends on where it was registered:

    - in a task: until the task ends;
    - while the payload's module is imported: it is registered again for each task of that payload;
    - outside tasks, by a hook around the app: for the worker's life. An exception of such a
      function between tasks is written to standard error.

    `on_notice` may be called on any thread. Outside a worker, and in processes that the task has
    forked, the function is never called.

    Args:
        function: called with the seconds that are left, at least 0.0; its return value is ignored.

    Returns:
        The function itself.
    """
    notices.register(function)
    return function
