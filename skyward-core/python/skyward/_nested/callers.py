"""The callers of a worker: its run, the calls that it helps with, and the payload's threads."""

from __future__ import annotations

import threading
from _thread import get_ident
from typing import Any, Final

from .._calls.errors import CallError
from .._core import state, strays
from .._libraries import seeds
from .._sky.notices import notices
from .awaiting import Awaiting
from .frames import AsideFrame, Frame
from .host import Host

OUTSIDE: Final = "calls can be submitted only inside a payload, while a task runs on a worker"


class Callers:
    """The callers of a worker's process.

    On the main thread, the runner's `busy` is false while the state here is used, so that an
    interrupt comes before or after that. While the main thread waits here, a signal handler only
    records the interrupt and wakes the thread (`wake_main`), and the main thread raises it itself.
    """

    def __init__(self, worker: Host) -> None:
        self.worker = worker
        self.runner = worker.runner
        self.main: Final = notices.main
        self.lock: Any = threading.RLock()
        """Held while any of this state is used."""
        self.stack: list[Frame] = []
        """What the main thread runs: the run, and the helped calls, each within the one before."""
        self.asides: dict[int, AsideFrame] = {}
        self.threads: dict[int, Frame] = {}
        """The callers by thread; threads without an entry belong to the run."""
        self.main_wait: Awaiting[Any] | None = None
        """What the main thread waits for, unless it runs a helped call now."""

    def enter(self) -> bool:
        """Leave the payload's code; return the argument for `leave`.

        Raises:
            CallError: called by a finalizer that interrupted the code here.
        """
        if self.lock._is_owned():
            raise CallError("a finalizer cannot submit calls or wait for them")
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
        """Return to the payload's code.

        Raises:
            KeyboardInterrupt: the code was cancelled meanwhile.
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
        """Return the helped call that this thread was started for, if any."""
        me = get_ident()
        frame = self.threads.get(me)
        # The thread that serves calls also has entries, of callers for which it runs callbacks.
        return frame if isinstance(frame, AsideFrame) and frame.thread == me else None

    def wake_main(self) -> None:
        """Wake the main thread if it waits here; called by the signal handlers."""
        awaiting = self.main_wait
        if awaiting is not None:
            awaiting.wake()

    def helped(self) -> Frame | None:
        """Return the innermost helped call that the main thread runs, if any."""
        return self.stack[-1] if len(self.stack) > 1 else None

    def is_in_call(self) -> bool:
        """Return whether this thread runs a helped call."""
        me = get_ident()
        known = self.threads.get(me)
        return known.help != 0 if known is not None else me == self.main and len(self.stack) > 1

    def is_doomed(self) -> bool:
        """Return whether the main thread's innermost code, or code around it, was cancelled."""
        worker = self.worker
        return worker.terminated or worker.session.cancelled or any(frame.cancelled for frame in self.stack)

    # With the lock held

    def root(self) -> Frame:
        """Return the run that the main thread executes."""
        run = self.worker.session.running
        if run is None:
            raise CallError(OUTSIDE)
        if not self.stack:
            root = Frame(run, 0, state.depth)
            root.interrupted = self.runner.interrupted
            root.seed = seeds.root
            self.stack.append(root)
        return self.stack[0]

    def caller(self) -> Frame:
        """Return the caller of this thread.

        Raises:
            CallError: no task is running, or the thread belongs to a task that has ended.
        """
        me = get_ident()
        known = self.threads.get(me)
        if known is not None:
            return known
        root = self.root()
        if me == self.main:
            return self.stack[-1]
        stray = strays.begun()
        if stray is not None:
            raise CallError(
                f"this thread executes `{stray}` of a run that has ended, so its calls would belong to another task; "
                "end the thread before its run ends, or start one in each run that submits calls"
            )
        return root
