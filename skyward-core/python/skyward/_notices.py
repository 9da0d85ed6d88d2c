"""Notices of the end of a worker's machine, and the functions that a payload wants to be called then."""

from __future__ import annotations

from _thread import get_ident, interrupt_main
from collections.abc import Callable
from signal import SIGURG
from time import monotonic
from typing import Final

from ._complaint import complain

Function = Callable[[float], object]

_SAME: Final = 2.0
"""Seconds by which the deadlines of two messages about the same end may differ: they take different times to arrive."""


class _Registered:
    """A function, and the notice with which it was called last."""

    __slots__ = ("function", "told")

    def __init__(self, function: Function) -> None:
        self.function = function
        self.told = 0


class Notices:
    """The latest notice, and the functions that are to know of it."""

    def __init__(self) -> None:
        self.main: int | None = None
        """The thread on which functions are called; None outside of a worker, and in what it has forked."""
        self.look: Callable[[], None] = lambda: None
        """Looks at the worker's connection, if the thread and the moment allow that."""
        self.pending = False
        """Whether there may be a function that does not know of the latest notice."""
        self.loading: list[Function] | None = None
        """Where a payload that is being imported keeps its functions."""
        self.in_task = False
        """Whether a task runs, to which the functions belong that are registered."""
        self._kind = ""
        self._deadline: float | None = None
        self._number = 0
        """The notices that were given so far."""
        self._telling = False
        self._staying: list[_Registered] = []
        self._of_task: list[_Registered] = []

    def give(self, kind: str, seconds: float) -> None:
        """Take note of a notice. One that is repeated changes nothing, another one replaces it."""
        deadline = monotonic() + seconds
        known = self._deadline
        if known is not None and kind == self._kind and abs(deadline - known) < _SAME:
            return
        self._kind, self._deadline = kind, deadline
        self._number += 1
        self.pending = True

    def left(self) -> float | None:
        """Seconds until the machine ends; None without a notice."""
        return None if self._deadline is None else max(0.0, self._deadline - monotonic())

    def forget(self) -> None:
        """Forget the functions of the task: its payload has returned or raised."""
        self._of_task.clear()

    def register(self, function: Function) -> None:
        """Have a function called once with each notice, and at once if there is one and this is the main thread."""
        if self.loading is not None:
            self.loading.append(function)
            return
        if self.main is None:
            return
        functions = self._of_task if self.in_task else self._staying
        registered = next((known for known in functions if known.function == function), None)
        if registered is None:
            registered = _Registered(function)
            functions.append(registered)
        if self._deadline is None:
            return
        if get_ident() == self.main:
            self._call(registered)
        elif registered.told < self._number:
            self.pending = True
            # As if a signal had come: no system call of the main thread ends early for this.
            interrupt_main(SIGURG)

    def tell(self) -> None:
        """Call the functions that do not know of the latest notice, on the main thread.

        Raises:
            Exception: the first that one of them raised; the others were called too.
            BaseException: one of them was interrupted, or ends the task; the others were not called.
        """
        if self._telling:
            return  # a function looks at the connection; whoever called it goes on with the others
        self._telling = True
        failed: Exception | None = None
        try:
            while self.pending:
                self.pending = False
                for registered in (*self._staying, *self._of_task):
                    try:
                        self._call(registered)
                    except Exception as error:
                        if failed is not None:
                            complain(f"another function failed at a notice: {error!r}")
                        failed = failed or error
        except BaseException:
            self.pending = True
            raise
        finally:
            self._telling = False
        if failed is not None:
            raise failed

    def _call(self, registered: _Registered) -> None:
        left = self.left()
        if left is not None and registered.told < self._number:
            registered.told = self._number
            registered.function(left)


notices: Final = Notices()
"""Those of this process."""


def notice() -> float | None:
    """Seconds until the machine of this worker ends, at least 0.0; None while nobody has given notice.

    A provider takes a machine back (preemption), its time or the pool's budget runs out. A training asks between two
    steps, and saves its state when there is an answer::

        for step, batch in enumerate(batches):
            train(batch)
            if sky.notice() is not None:
                save(step)
                break

    On the main thread of a task it looks at the worker's connection, which takes a few microseconds, so the answer is
    never older than what has arrived; there it may raise what functions of `on_notice` raise. On other threads and in
    processes that the task has forked it answers what this process knows. Outside of a worker it is None.
    """
    notices.look()
    return notices.left()


def on_notice(function: Function) -> Function:
    """Have a function called with the seconds that are left when notice of the machine's end is given.

    It is called once for each notice; when one was given before, at once. May be used as a decorator::

        def train(steps: int) -> int:
            @sky.on_notice
            def save(left: float) -> None:
                checkpoint(state)

    The function runs on the main thread, between two bytecodes of the payload, as the handler of a signal does: while
    Python computes, when a call of native code returns, and while a generator waits at a `yield`. It does not run while
    the main thread sleeps or is in native code; a loop with long calls asks `sky.notice()` between them. What the
    function raises is raised in the payload, where it stands at that moment; when several are registered, all are
    called first.

    Functions that a task registers are forgotten when it ends. Those that are registered while the payload's module is
    imported are registered anew when each task of that payload begins. Those that are registered outside of tasks, by
    hooks around the app, stay; what they raise while no task runs is written to standard error. It may be called on any
    thread. Outside of a worker, and in processes that the task has forked, the function is not called.

    Args:
        function: is called with the seconds that are left, at least 0.0; what it returns is ignored.

    Returns:
        The function.
    """
    notices.register(function)
    return function
