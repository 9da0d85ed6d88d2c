"""The errors of nested calls."""

from __future__ import annotations

import concurrent.futures
from typing import Any


class CallError(RuntimeError):
    """A call could not be submitted, or has no result; the message says why."""


class StoreFull(CallError):
    """A call is too large for a frame, and its arrays do not fit into the store of the node."""


class WorkerLost(CallError):
    """The workers that ran a call were lost, and no attempts are left.

    The task that submitted the call continues.
    """


class RemoteError(CallError):
    """A call raised an exception that cannot be raised in the caller.

    Either it cannot be pickled, or it is not an `Exception`, such as `SystemExit`.

    Attributes:
        type_name: the type of the exception, with its module.
        traceback: the traceback on the worker that ran the call, as text.
    """

    def __init__(self, message: str, type_name: str = "", traceback: str = "") -> None:
        """Describe the exception.

        Args:
            message: its type and text.
            type_name: its type, with the module.
            traceback: its traceback on the worker that ran the call.
        """
        super().__init__(message)
        self.type_name = type_name
        self.traceback = traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.type_name, self.traceback)


class RemoteTraceback(Exception):
    """The cause of an exception that a call raised.

    Its text is the traceback on the worker that ran the call.
    """

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args


CallTimeoutError: type[TimeoutError] = TimeoutError
if not issubclass(concurrent.futures.TimeoutError, TimeoutError):

    class _CallTimeoutError(concurrent.futures.TimeoutError, TimeoutError):  # type: ignore[misc, unused-ignore]
        """Combines the two timeout classes of Python 3.10."""

    CallTimeoutError = _CallTimeoutError


def from_failure(failure: dict[str, Any]) -> BaseException:
    """Return the exception for a call that has no answer.

    Args:
        failure: the failure map of the client, or of the worker that ran the call.
    """
    kind = str(failure.get("kind"))
    message = str(failure.get("message") or kind)
    if hint := failure.get("hint"):
        message = f"{message} ({hint})"
    if kind == "cancelled":
        return concurrent.futures.CancelledError(message)
    if kind == "lost":
        return WorkerLost(message)
    if kind == "timeout":
        return CallTimeoutError(message)
    traceback = str(failure.get("traceback") or "")
    if not traceback:
        return CallError(message if kind == "refused" else f"{kind}: {message}")
    name = f"{failure.get('module')}.{failure.get('type')}".removeprefix("builtins.")
    error = RemoteError(f"{kind}: {name}: {message}", name, traceback)
    error.__cause__ = RemoteTraceback(traceback)
    return error
