"""Signals and forks of a worker: interrupts of its task, requests to read its connection, its end."""

from __future__ import annotations

# isort: off
import _signal  # type: ignore[import-not-found, unused-ignore]

# isort: on
import contextlib
import signal
import sys
from _thread import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any

from .._core import fork, modules
from .._core.complaint import complain
from .._sky.notices import notices
from .._tasks.failure import failure_map
from .._tasks.hooks import Hook
from .._tasks.runner import Runner
from .._tasks.session import LostDescriptorsError, Session
from .process import take_stacks_signal

if TYPE_CHECKING:
    from .._nested.hub import Hub


class LeaveError(BaseException):
    """The worker was asked to end while it waits for work."""


class Interrupts:
    """The part of a worker that handles signals and forks."""

    hub: Hub | None = None
    """The calls of this process; None before the first call."""

    def __init__(self, session: Session, task_hooks: list[Hook]) -> None:
        """Prepare the handlers; `take_signals` installs them.

        Args:
            session: the session with the client.
            task_hooks: the hooks around each task.
        """
        self.session = session
        self.runner = Runner(task_hooks, self.look, session.importing)
        self.waiting = False
        """Whether no task runs, so that the worker may end at once."""
        notices.main, notices.look = get_ident(), self.look_for_notice
        self._handlers = (self.on_interrupt, self.on_terminate, self.on_attend)
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGURG)
        handlers: dict[int, object] = dict(zip(signals, self._handlers, strict=True))
        self._forks = fork.Forks(handlers, self.detach, self.calls_lock, self.on_unraisable)

    def detach(self) -> None:
        """Give up the connections in a forked child; its parent keeps them."""
        if self.hub is not None:
            self.hub.detach()
        self.session.detach()

    def calls_lock(self) -> Any:
        """Return the lock of the calls of this process, if it has made any."""
        return None if self.hub is None else self.hub.lock

    def _has_signals(self) -> bool:
        # The wrapper of `getsignal` in the module `signal` takes longer than all the rest of a
        # call.
        handlers = self._handlers
        taken = _signal.getsignal(2) is handlers[0] and _signal.getsignal(15) is handlers[1]
        return taken and not callable(_signal.getsignal(10))

    def take_signals(self) -> None:
        """Install the signal handlers again; a payload or library may have replaced them.

        Python does not see handlers that native code installs, so this is called after each task
        that took long.
        """
        signal.signal(signal.SIGINT, self._handlers[0])
        signal.signal(signal.SIGTERM, self._handlers[1])
        # SIGURG: the agent asks the worker to read its connection. Unlike an interrupt, this does
        # not concern the payload, so system calls are restarted where possible.
        signal.signal(signal.SIGURG, self._handlers[2])
        signal.siginterrupt(signal.SIGURG, False)
        take_stacks_signal()

    def on_interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT: raise an interrupt in the payload, if its task was cancelled."""
        if self._forks.defer(frame):
            return
        if self.runner.busy:
            self.look()
        else:
            self.miss()

    def miss(self) -> None:
        """Remember a signal that arrives while no code of the payload runs."""
        self.runner.missed = True
        if self.hub is not None:
            self.hub.wake_main()

    def on_attend(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGURG: read the connection, or leave it to the next request of the client."""
        if not self.runner.busy:
            self.miss()
        elif not self._forks.is_within(frame):
            self.look()

    def look_for_notice(self) -> None:
        """Read the connection when a payload asks for a notice on the main thread."""
        if self.runner.busy and get_ident() == notices.main:
            self.look()

    def deliver_between_tasks(self) -> None:
        """Call functions that were registered outside of tasks; what they raise fails no task."""
        try:
            notices.deliver()
        except BaseException as error:
            complain(
                f"a function registered with sky.on_notice failed between tasks: {failure_map(error)['traceback']}"
            )

    def look(self) -> None:
        """Read the connection, then interrupt the running task or call notice functions if needed.

        Raises:
            KeyboardInterrupt: the task has to end.
            BaseException: what a function raises that is called because of a notice.
        """
        runner = self.runner
        runner.busy = runner.missed = False
        try:
            self.session.pump()
        except LostDescriptorsError:
            pass  # the worker ends for this reason after the task
        finally:
            runner.busy = True
        self.interrupt()
        if notices.pending and self._is_in_task and not self._must_wait():
            notices.deliver()

    def look_while_waiting(self) -> None:
        """Do what `look` does while the main thread waits for calls, without a busy runner.

        Raises:
            KeyboardInterrupt: the waiting task or call has to end.
            BaseException: what a function raises that is called because of a notice.
        """
        runner = self.runner
        runner.missed = False
        with contextlib.suppress(LostDescriptorsError):
            self.session.pump()
        self.interrupt()
        if notices.pending and self._is_in_task:
            runner.busy = True
            try:
                notices.deliver()
            finally:
                runner.busy = False

    def interrupt(self) -> None:
        """Raise an interrupt if the code on the main thread, or what is around it, was cancelled.

        An interrupt is raised once. The client repeats it, because it may arrive too early, or
        while a library is being imported.
        """
        runner, cancelled, hub = self.runner, self.session.cancelled, self.hub
        helped = None if hub is None else hub.helped()
        if hub is not None and helped is not None:
            if not helped.interrupted and hub.is_doomed() and not self._must_wait():
                hub.give_up(helped)
                raise KeyboardInterrupt("the call was cancelled")
        elif self.terminated or (cancelled and not runner.interrupted and not self._must_wait()):
            runner.interrupted = True
            if hub is not None and hub.stack:
                hub.give_up(hub.stack[0])
            raise KeyboardInterrupt("the task was cancelled" if cancelled else "the worker was asked to end")

    def _must_wait(self) -> bool:
        """Return whether an exception would ruin the process; if so, `look` is called later."""
        if self.terminated or not modules.is_importing_library(sys._getframe()):
            return False
        self.runner.missed = True
        return True

    @property
    def terminated(self) -> bool:
        """Whether the worker was asked to end as soon as possible."""
        return self.session.terminated

    @property
    def _is_in_task(self) -> bool:
        """Whether the main thread runs no helped call: then a notice concerns the task."""
        return self.hub is None or self.hub.helped() is None

    def on_terminate(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM: interrupt the running task, leave the hooks, and end."""
        self.session.leaving = self.session.terminated = True
        self.session.queue.clear()
        if self.waiting and not self._forks.defer(frame):
            self.waiting = False
            raise LeaveError
        self.on_interrupt(number, frame)

    def on_unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Handle an exception that Python can only print, of a finalizer or `fork` callback.

        If the exception is a task's interrupt, it is sent again, because otherwise the task would
        continue.
        """
        hub, runner = self.hub, self.runner
        is_interrupt = isinstance(unraisable.exc_value, KeyboardInterrupt)
        if get_ident() != notices.main:
            # This thread runs an aside call. The client repeats its cancel.
            aside = None if hub is None or not is_interrupt else hub.aside()
            if aside is not None and aside.interrupted:
                aside.interrupted = False
                return
        elif is_interrupt and runner.busy:
            interrupted = runner if hub is None else hub.helped() or runner
            if interrupted.interrupted:
                interrupted.interrupted = False
                fork.send_again()
                return
        sys.__unraisablehook__(unraisable)
