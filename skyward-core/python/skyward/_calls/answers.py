"""Run a call on a worker and encode its answer; decode the answer where it is read."""

from __future__ import annotations

from collections.abc import Callable
from types import CoroutineType
from typing import Any, Final, NamedTuple

from .._libraries import seeds
from .._tasks import event_loop
from .._tasks.failure import failure_map
from .._tasks.hooks import HookError
from .._values.codec import Buffer
from .errors import CallError, RemoteError, RemoteTraceback
from .handlers import raised_by_handler
from .pickles import dumps, loads, name_of
from .process_store import on_loaded

_RETURNED: Final = b"\0"
_RAISED: Final = b"\1"


class _UnreadableError(Exception):
    """The function or the arguments of a call cannot be unpickled."""


class Results(NamedTuple):
    """What a batch of `sky.map` returns."""

    values: list[Any]
    """The results of its items, up to the one that raised."""
    raised: bytes | None
    """The packed exception of that one, or None."""


class Call:
    """The function and the arguments of one call."""

    def __init__(self, body: Buffer) -> None:
        self._body: Buffer = body
        self._name = "the call"
        self._began = False

    def __call__(self) -> Any:
        """Run the call.

        Raises:
            BaseException: the arguments cannot be decoded, or the function raised it.
        """
        body, self._body = self._body, b""
        try:
            function, args, kwargs, seed = loads(body)
        except Exception as error:
            if raised_by_handler(error):
                raise
            raise _UnreadableError from error
        del body
        on_loaded()
        self._name = name_of(function)
        self._began = True
        if seed is not None:
            seeds.begin(seed)
        return completed(function(*args, **kwargs))

    def answer(self, value: Any) -> list[Buffer]:
        """Encode the answer of a function that has returned."""
        try:
            return [dumps(value, _RETURNED)]
        except Exception as error:
            if raised_by_handler(error):
                return pack_error(error)
            if isinstance(value, Results) and (found := self._up_to_unpicklable(value)):
                return found
            kind = type(value).__qualname__
            return pack_error(CallError(f"{self._name} returned a {kind}, which cannot be pickled: {error}"))

    def _up_to_unpicklable(self, results: Results) -> list[Buffer] | None:
        """Encode the results of a batch up to the first that cannot be pickled."""
        for number, value in enumerate(results.values):
            [answer] = self.answer(value)
            if has_raised(answer):
                return self.answer(Results(results.values[:number], bytes(answer)))
        return None

    def fail(
        self, error: BaseException, owned: Callable[[str], bool] | None = None
    ) -> tuple[list[Buffer] | None, dict[str, Any]]:
        """Encode the answer of a function that raised, and return it with an empty map.

        If the function did not begin, return None and a failure map.
        """
        if isinstance(error, _UnreadableError):
            cause = error.__cause__ or error
            message = f"cannot unpickle the function or its arguments on the worker that runs the call: {cause}"
            return None, {**failure_map(cause, owned), "kind": "arguments", "message": message, "path": ""}
        if not self._began or isinstance(error, HookError):
            return None, failure_map(error, owned)
        return pack_error(error, owned), {}


def completed(value: Any) -> Any:
    """Return the value that a function has returned; run it first if it is a coroutine."""
    if type(value) is CoroutineType:
        return event_loop.run(value)
    return value


def pack_error(error: BaseException, owned: Callable[[str], bool] | None = None) -> list[Buffer]:
    """Encode the answer of a function that has raised this exception."""
    described = failure_map(error, owned)
    name = f"{described['module']}.{described['type']}".removeprefix("builtins.")
    pickled = b""
    if isinstance(error, Exception):
        try:
            pickled = bytes(dumps(error))
        except Exception:
            pass
    return [dumps((pickled, name, described["message"], described["traceback"]), _RAISED)]


def unpack(answer: Buffer) -> tuple[Any, BaseException | None]:
    """Return the value of an answer and None, or None and the exception that the call raised.

    Raises:
        CallError: the answer cannot be unpickled.
        Exception: what a signal handler of the payload raised meanwhile.
    """
    view = memoryview(answer)
    if view[0] == _RETURNED[0]:
        try:
            return loads(view[1:]), None
        except Exception as error:
            if raised_by_handler(error):
                raise
            raise CallError(f"cannot unpickle the result of the call: {error}") from error
    try:
        pickled, name, message, traceback = loads(view[1:])
    except Exception as error:
        if raised_by_handler(error):
            raise
        raise CallError(f"cannot unpickle the answer of the call: {error}") from error
    raised: BaseException | None = None
    if pickled:
        try:
            # This also fails for an exception whose constructor takes other arguments than its
            # `args`.
            raised = loads(pickled)
        except Exception as error:
            if raised_by_handler(error):
                raise
    if not isinstance(raised, BaseException):
        raised = RemoteError(f"{name}: {message}" if message else name, name, traceback)
    # A class may refuse to set attributes, as frozen dataclasses do.
    BaseException.__setattr__(raised, "__cause__", RemoteTraceback(traceback))
    return None, raised


def has_raised(answer: Buffer) -> bool:
    """Return whether an answer is that of a function that raised."""
    return memoryview(answer)[0] == _RAISED[0]
