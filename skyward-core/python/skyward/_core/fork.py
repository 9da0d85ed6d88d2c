"""Processes that a payload forks: they get default signal handlers, and no part of the worker."""

from __future__ import annotations

# isort: off
import _signal  # type: ignore[import-not-found, unused-ignore]

# isort: on
import os
import sys
from _thread import get_ident, start_new_thread
from collections.abc import Callable, Mapping
from signal import SIGINT, SIGUSR1, valid_signals
from types import FrameType
from typing import Any, Final, NoReturn

_BLOCKED: Final = tuple(map(int, valid_signals()))
"""All signals: a handler of the payload that raises must not do so while the lock is taken."""
_LONGEST: Final = 1.0
"""The most seconds that a fork waits for the lock."""
_MOMENT: Final = 0.001
"""Seconds after which a signal is sent again, outside of the callback that it interrupted."""

is_child = False
"""Whether this process was forked by a worker."""


class Forks:
    """Blocks signals around each fork, and detaches the child from the worker.

    CPython forgets a signal that reaches a child inside `fork`, because it clears the signals that
    wait for a handler. A blocked signal stays pending in the kernel until the child has default
    handlers.

    If a handler raised an exception in one of the callbacks, or in `sys.unraisablehook`, Python
    would print the exception and discard it. The stack that a handler interrupts shows whether one
    of them is running.
    """

    def __init__(
        self,
        handlers: Mapping[int, object],
        detach: Callable[[], None],
        lock: Callable[[], Any],
        unraisable: Callable[[sys.UnraisableHookArgs], None] | None = None,
    ) -> None:
        """Register the callbacks for the rest of the life of this process.

        Args:
            handlers: the worker's signal handlers. A child keeps handlers that the payload has set.
            detach: gives up, in a child, what belongs to the worker alone.
            lock: returns the RLock that guards the calls' connections, or None. A fork holds it, so
                that the child knows all connections and can close them.
            unraisable: the worker's `sys.unraisablehook`.
        """
        self._handlers = handlers
        self._detach = detach
        self._lock = lock
        self._held: dict[int, Any] = {}
        self._masks: dict[int, Any] = {}
        self._deferred = False
        callbacks = (self._before, self._after_in_parent, self._restore, send_again)
        self._codes = {callback.__code__ for callback in callbacks}
        if unraisable is not None:
            self._codes.add(unraisable.__code__)
        os.register_at_fork(
            before=self._before, after_in_parent=self._after_in_parent, after_in_child=self._after_in_child
        )

    def is_within(self, frame: FrameType | None) -> bool:
        """Return whether a signal interrupted a callback, or a function that it calls."""
        while frame is not None:
            if frame.f_code in self._codes:
                return True
            frame = frame.f_back
        return False

    def defer(self, frame: FrameType | None) -> bool:
        """Return whether a signal interrupted a callback; if so, send it again after the fork."""
        if not self.is_within(frame):
            return False
        self._deferred = True
        return True

    def _before(self) -> None:
        if not is_child:
            self._masks[get_ident()] = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
            _signal.pthread_sigmask(_signal.SIG_BLOCK, _BLOCKED)
            lock = self._lock()
            if lock is not None:
                # Recorded first: a handler whose signal came before may still raise here.
                self._held[get_ident()] = lock
                # Do not wait for ever: the lock's holder may be in a finalizer that waits for the
                # forking thread.
                if not lock.acquire(timeout=_LONGEST):
                    del self._held[get_ident()]

    def _after_in_parent(self) -> None:
        if not is_child:
            lock = self._held.pop(get_ident(), None)
            if lock is not None and lock._is_owned():
                lock.release()
            self._restore()
            if self._deferred:
                self._deferred = False
                send_again()

    def _after_in_child(self) -> None:
        global is_child
        if is_child:
            return
        is_child = True
        if (lock := self._lock()) is not None:
            # Its owner may be a thread that the child does not have.
            lock._at_fork_reinit()
        for number, handler in self._handlers.items():
            if _signal.getsignal(number) is handler:
                default = _signal.default_int_handler if number == SIGINT else _signal.SIG_DFL
                _signal.signal(number, default)
        _forget_stacks()
        try:
            self._detach()
            self._restore()
        except KeyboardInterrupt:
            # A SIGINT was sent to the child. The code that forks cannot catch it, so send it again.
            send_again()

    def _restore(self) -> None:
        mask = self._masks.pop(get_ident(), None)
        if mask is None:
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _BLOCKED)
        else:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def send_again() -> None:
    """Send SIGINT to this process in a moment, because an interrupt was lost in a callback."""
    try:
        start_new_thread(_interrupt, (os.getpid(),))
    except RuntimeError:
        pass  # no thread can be started; the client repeats its request


def end(error: BaseException | None) -> NoReturn:
    """End a child in which the payload has returned or raised.

    Only the parent runs the code around the call.

    The exit code is that of a plain Python program. Hooks are not left, and functions registered
    with `atexit` are not called.
    """
    status = 0
    try:
        if isinstance(error, SystemExit):
            if isinstance(error.code, int):
                status = error.code & 0xFF
            elif error.code is not None:
                status = 1
                sys.stderr.write(f"{error.code}\n")
        elif error is not None:
            status = 1
            sys.excepthook(type(error), error, error.__traceback__)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _forget_stacks() -> None:
    """Give up SIGUSR1 in the child: only the worker itself is asked for its stacks."""
    import faulthandler

    if not callable(_signal.getsignal(SIGUSR1)):
        faulthandler.unregister(SIGUSR1)
        _signal.signal(SIGUSR1, _signal.SIG_DFL)


def _interrupt(process: int) -> None:
    import time

    time.sleep(_MOMENT)
    if os.getpid() == process:
        os.kill(process, SIGINT)
