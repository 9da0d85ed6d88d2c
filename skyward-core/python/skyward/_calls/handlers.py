"""Exceptions of signal handlers inside this package, and of memory or stack that runs out there."""

from __future__ import annotations

# isort: off
import _signal  # type: ignore[import-not-found, unused-ignore]

# isort: on
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

EXHAUSTED: Final = (MemoryError, RecursionError)
"""What Python raises where memory or stack runs out."""


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


@contextmanager
def ignored(*kinds: type[Exception]) -> Iterator[None]:
    """Context manager: ignore these exceptions, unless a signal handler raised them.

    A timer's handler often raises `TimeoutError`, which is an `OSError`.
    """
    try:
        yield
    except kinds as error:
        if raised_by_handler(error):
            raise


def _codes() -> set[CodeType]:
    codes = (_code(_signal.getsignal(number)) for number in _signal.valid_signals())
    return {code for code in codes if isinstance(code, CodeType)}


def _code(handler: Any) -> Any:
    """Return the code of a handler, which may be any callable; None if it has none in Python."""
    while isinstance(handler, partial):
        handler = handler.func
    if callable(handler) and not isinstance(handler, FunctionType | MethodType):
        handler = type(handler).__call__
    return getattr(getattr(handler, "__func__", handler), "__code__", None)
