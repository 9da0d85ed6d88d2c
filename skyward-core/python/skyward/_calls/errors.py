"""What goes wrong with calls within calls."""

from __future__ import annotations

import concurrent.futures
from typing import Any


class CallError(RuntimeError):
    """A call could not be submitted, or has no answer."""


class StoreFull(CallError):
    """A call is too large for a frame, and its arrays have no room in the store of the node."""


class WorkerLost(CallError):
    """The workers that ran a call have ended, and so have its tries. The caller goes on."""


class RemoteError(CallError):
    """A call has raised what cannot be raised here: it cannot be pickled, or is no `Exception`, as `SystemExit`."""

    def __init__(self, message: str, type_name: str = "", traceback: str = "") -> None:
        """Describe what was raised.

        Args:
            message: the type and its text.
            type_name: the type, with its module.
            traceback: where it was raised, on the worker that ran the call.
        """
        super().__init__(message)
        self.type_name = type_name
        self.traceback = traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.type_name, self.traceback)


class RemoteTraceback(Exception):
    """The cause of an exception that a call has raised: its text is the traceback on the worker that ran the call."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args


CallTimeoutError: type[TimeoutError] = TimeoutError
if not issubclass(concurrent.futures.TimeoutError, TimeoutError):

    class _CallTimeoutError(concurrent.futures.TimeoutError, TimeoutError):  # type: ignore[misc, unused-ignore]
        """Both of the classes that Python 3.10 has for it."""

    CallTimeoutError = _CallTimeoutError


def from_failure(failure: dict[str, Any]) -> BaseException:
    """What a caller gets for a call that has no answer.

    Args:
        failure: the map that the client, or the worker that ran the call, describes it with.
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
