"""Who calls: the run of a worker, the calls that it helps with, and the threads of its payload."""

from __future__ import annotations

import threading
from _thread import get_ident
from typing import TYPE_CHECKING, Any, Final

from .. import _state, _strays
from .._notices import notices
from .errors import CallError
from .frames import AsideFrame, Awaiting, Frame

if TYPE_CHECKING:
    from ..worker import Worker

OUTSIDE: Final = "calls work only inside of a payload, while a task runs on a worker"


class Callers:
    """The callers of a worker's process.

    On the main thread the runner's `busy` is false while anything here is touched, so that an interrupt comes
    before or after it. What may interrupt the main thread while it waits here is noted by the signal handler, which
    wakes it (`wake_main`), and raised by the main thread itself.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.runner = worker.runner
        self.main: Final = notices.main
        self.lock: Any = threading.RLock()
        """Is held by whoever touches what is here."""
        self.stack: list[Frame] = []
        """What the main thread runs: the run, and helped calls within it, each within the one before."""
        self.asides: dict[int, AsideFrame] = {}
        self.threads: dict[int, Frame] = {}
        """The callers of other threads; those that are not here belong to the run."""
        self.main_wait: Awaiting | None = None
        """What the main thread waits for, unless it runs a helped call meanwhile."""

    def enter(self) -> bool:
        """Leave the payload's code; what `leave` is to be given.

        Raises:
            CallError: this interrupts the code here, as a finalizer may do.
        """
        if self.lock._is_owned():
            raise CallError("a finalizer cannot wait for calls or submit any")
        me = get_ident()
        if me == self.main:
            was = self.runner.busy
            self.runner.busy = False
            return was
        frame = self.aside()
        if frame is None:
            return False
        frame.enter()
        return True

    def leave(self, was: bool) -> None:
        """Go on with the payload's code.

        Raises:
            KeyboardInterrupt: it was cancelled meanwhile.
        """
        if not was:
            return
        if get_ident() == self.main:
            self.runner.busy = True
            if self.runner.missed:
                self.worker.look()
        elif frame := self.aside():
            frame.leave()

    def aside(self) -> AsideFrame | None:
        """The helped call that this thread is for."""
        me = get_ident()
        frame = self.threads.get(me)
        # The thread that serves calls back for the callers of other threads.
        return frame if isinstance(frame, AsideFrame) and frame.thread == me else None

    def wake_main(self) -> None:
        """Have the main thread look up if it waits here. The signal handlers call this."""
        awaiting = self.main_wait
        if awaiting is not None:
            awaiting.wake()

    def helped(self) -> Frame | None:
        """The helped call that the main thread runs innermost."""
        return self.stack[-1] if len(self.stack) > 1 else None

    def is_doomed(self) -> bool:
        """Whether what the main thread runs innermost, or something around it, was cancelled."""
        worker = self.worker
        return worker.terminated or worker.session.cancelled or any(frame.cancelled for frame in self.stack)

    # With the lock held

    def root(self) -> Frame:
        """The run that the main thread executes."""
        run = self.worker.session.running
        if run is None:
            raise CallError(OUTSIDE)
        if not self.stack:
            root = Frame(run, 0, _state.depth)
            root.interrupted = self.runner.interrupted
            self.stack.append(root)
        return self.stack[0]

    def caller(self) -> Frame:
        """Who calls on this thread.

        Raises:
            CallError: nobody that could, as no task runs, or the thread goes on with one that has ended.
        """
        me = get_ident()
        known = self.threads.get(me)
        if known is not None:
            return known
        root = self.root()
        if me == self.main:
            return self.stack[-1]
        stray = _strays.begun()
        if stray is not None:
            raise CallError(
                f"this thread executes `{stray}`, which belongs to a run that has ended: its calls would be those of "
                "another task; end the thread with its run, or start one in each run that calls"
            )
        return root
