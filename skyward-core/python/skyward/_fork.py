"""Processes that a payload forks: they have the handlers of a plain Python program, and no part in the worker."""

from __future__ import annotations

# isort: off
import _signal  # type: ignore[import-not-found, unused-ignore]

# isort: on
import os
import sys
from _thread import get_ident, start_new_thread
from collections.abc import Callable, Mapping
from signal import SIGINT, SIGTERM, SIGUSR1
from types import FrameType
from typing import Any, Final, NoReturn

_BLOCKED: Final = (int(SIGINT), int(SIGTERM))
_MOMENT: Final = 0.001
"""Seconds after which a signal is sent again, from outside of the callback that it hit."""

is_child = False
"""Whether this process was forked by a worker."""


class Forks:
    """Blocks SIGINT and SIGTERM around each fork of this process, and takes the worker out of the child.

    A signal that reaches a child inside `fork` is forgotten by CPython, which clears what was noted for a handler.
    A blocked one stays pending in the kernel until the child has default handlers.

    An exception that a handler raises in one of the callbacks would be printed, and lost; so would one that it raises
    in the function that Python calls with what it cannot raise. The frames that a handler interrupts say whether it
    has interrupted one of them.
    """

    def __init__(
        self,
        handlers: Mapping[int, object],
        detach: Callable[[], None],
        unraisable: Callable[[sys.UnraisableHookArgs], None] | None = None,
    ) -> None:
        """Register the callbacks, for the rest of this process's life.

        Args:
            handlers: the handlers of the worker. A child keeps those that the payload has set.
            detach: gives up what belongs to the worker alone, in a child.
            unraisable: the worker's `sys.unraisablehook`.
        """
        self._handlers = handlers
        self._detach = detach
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
        """Whether a signal interrupted one of the callbacks, or what they call."""
        while frame is not None:
            if frame.f_code in self._codes:
                return True
            frame = frame.f_back
        return False

    def defer(self, frame: FrameType | None) -> bool:
        """Whether a signal interrupted one of the callbacks. Then it is sent again when the fork is over."""
        if not self.is_within(frame):
            return False
        self._deferred = True
        return True

    def _before(self) -> None:
        if not is_child:
            self._masks[get_ident()] = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
            _signal.pthread_sigmask(_signal.SIG_BLOCK, _BLOCKED)

    def _after_in_parent(self) -> None:
        if not is_child:
            self._restore()
            if self._deferred:
                self._deferred = False
                send_again()

    def _after_in_child(self) -> None:
        global is_child
        if is_child:
            return
        is_child = True
        for number, handler in self._handlers.items():
            if _signal.getsignal(number) is handler:
                default = _signal.default_int_handler if number == SIGINT else _signal.SIG_DFL
                _signal.signal(number, default)
        _forget_stacks()
        try:
            self._detach()
            self._restore()
        except KeyboardInterrupt:
            # A SIGINT that was sent to the child: where it forks nobody can catch it, so it comes once more.
            send_again()

    def _restore(self) -> None:
        mask = self._masks.pop(get_ident(), None)
        if mask is None:
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _BLOCKED)
        else:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def send_again() -> None:
    """Interrupt this process in a moment: what an interrupt raised was lost in a callback."""
    try:
        start_new_thread(_interrupt, (os.getpid(),))
    except RuntimeError:
        pass  # no thread can be started; the client repeats what it asks for


def end(error: BaseException | None) -> NoReturn:
    """End a child in which the payload has returned or raised: what is around the call is its parent's.

    The exit code is that of a plain program. Hooks are not left, and what was registered with `atexit` is not called.
    """
    code: object = 0
    try:
        if isinstance(error, SystemExit):
            code = error.code
        elif error is not None and isinstance(error, (Exception, KeyboardInterrupt)):
            sys.excepthook(type(error), error, error.__traceback__)
            code = 1
        if code is not None and not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF if isinstance(code, int) else 0)


def _forget_stacks() -> None:
    """Leave SIGUSR1 to the child: only the worker is asked for its stacks."""
    import faulthandler

    if not callable(_signal.getsignal(SIGUSR1)):
        faulthandler.unregister(SIGUSR1)
        _signal.signal(SIGUSR1, _signal.SIG_DFL)


def _interrupt(process: int) -> None:
    import time

    time.sleep(_MOMENT)
    if os.getpid() == process:
        os.kill(process, SIGINT)
