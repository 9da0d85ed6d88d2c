"""Exceptions that signal handlers of the payload raise inside this package."""

from __future__ import annotations

# isort: off
import _signal  # type: ignore[import-not-found, unused-ignore]

# isort: on
from types import CodeType


def raised_by_handler(error: BaseException) -> bool:
    """Return whether a signal handler written in Python raised this exception.

    Such an exception, as of a timer that the payload has set, concerns the payload, whatever code
    it interrupts.
    """
    codes = _codes()
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _codes() -> set[CodeType]:
    handlers = (_signal.getsignal(number) for number in _signal.valid_signals())
    codes = (getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers)
    return {code for code in codes if isinstance(code, CodeType)}
