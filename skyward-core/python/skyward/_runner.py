"""Runs one task: loads the payload, enters the task hooks, calls the entry, converts what comes back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CoroutineType, GeneratorType
from typing import Any, Protocol

from . import _fork, _state, _world
from ._failure import failure_map, misfit, simple_failure
from ._hooks import Hook, HookError, Stack
from ._notices import notices
from ._payload import Payload
from ._trace import belong
from ._values import Buffer, EncodeError, encode


class Stream(Protocol):
    """Where the items of a generator go."""

    def wait(self) -> bool:
        """Wait until another item may be sent, or a notice has come; False when the task was cancelled."""
        ...

    def may_put(self) -> bool:
        """Whether another item may be sent."""
        ...

    def put(self, parts: list[Buffer]) -> None:
        """Send an item."""
        ...


class Call(Protocol):
    """A call that a payload has submitted: the runner has only loaded the payload that it belongs to."""

    def __call__(self) -> Any:
        """Decode it and run it."""
        ...

    def answer(self, value: Any) -> list[Buffer]:
        """The answer of a function that has returned."""
        ...

    def fail(
        self, error: BaseException, owned: Callable[[str], bool] | None = None
    ) -> tuple[list[Buffer] | None, dict[str, Any]]:
        """The answer of a function that has raised; None and a failure map where it has not begun."""
        ...


class Cancelled(BaseException):
    """The task was cancelled while its generator waited for credit."""


class Runner:
    """Runs tasks one after the other.

    `busy` is true only while code of the payload or of a hook runs: only then may an interrupt raise
    `KeyboardInterrupt`, because everything else here must not stop half way. Who raises it says so in `interrupted`.
    An interrupt at another time is noted in `missed`, and `look` is called as soon as `busy` is true; so it is when
    a notice has come. `look` raises what is to be raised in the payload.
    """

    def __init__(self, hooks: list[Hook], look: Callable[[], None]) -> None:
        self.hooks = hooks
        self.look = look
        self.missed = False
        self.busy = False
        self.interrupted = False
        self.trace: tuple[str, str] | None = None

    def run(
        self,
        payload: Payload,
        arguments: dict[str, Any],
        trace: tuple[str, str] | None,
        stream: Stream | None,
        call: Call | None = None,
    ) -> tuple[list[Buffer] | None, dict[str, Any]]:
        """One call: the encoded result and an empty map, or None and the failure map."""
        if trace != self.trace:
            self.trace = trace
            belong(trace)
        self.interrupted = False
        function: Callable[..., Any] | None = None
        stack = Stack() if self.hooks else None
        try:
            try:
                # Not while busy: an interrupt must not come half way.
                _world.show(_state.gang)
                self.busy = True
                if self.missed or notices.pending:
                    self.look()
                function = payload._function or payload.function()
                if stack is not None:
                    stack.enter(self.hooks)
                if payload.on_notice:
                    for asked in payload.on_notice:
                        notices.register(asked)
                value = function(**arguments) if call is None else call()
                if type(value) is CoroutineType:
                    value = _await(value)
                if stream is not None:
                    self._stream(value, stream)
                    value = None
                if _fork.is_child:
                    _fork.end(None)
                notices.forget()
                if stack is not None:
                    self._leave(stack, None)
                self.busy = False
                return encode(value) if call is None else call.answer(value), {}
            except BaseException as error:
                self.busy = False
                notices.forget()
                if _fork.is_child:
                    _fork.end(error)
                if stack is not None:
                    self.busy = True
                    failure = stack.leave(error)
                    self.busy = False
                    if failure is not None and not isinstance(error, Exception):
                        # The task ended as it was told, but what is around it is not as it was.
                        return None, failure_map(failure)
                return self._fail(error, payload, function, arguments, call)
        except BaseException as error:
            # An interrupt, or what a function has raised because of a notice, came between two lines above.
            self.busy = False
            notices.forget()
            return self._fail(error, payload, function, arguments, call)

    @staticmethod
    def _leave(stack: Stack, error: BaseException | None) -> None:
        failure = stack.leave(error)
        if failure is not None:
            raise failure

    def _stream(self, value: Any, stream: Stream) -> None:
        """Send what a generator yields, as long as there is credit."""
        if not hasattr(type(value), "__next__"):
            raise EncodeError("the payload was called as a stream, so it must return a generator", value)
        # Of the items that wait here all but the last came early: the generator went on because of a notice.
        items: list[Any] = []
        ended = False
        try:
            while items or not ended:
                self.busy = False
                if not stream.wait():
                    raise Cancelled
                self.busy = True
                try:
                    if self.missed or notices.pending:
                        self._look_at_yield(value, items)
                    if not stream.may_put():
                        continue
                    if not items:
                        items.append(next(value))
                except StopIteration:
                    ended = True
                    notices.forget()
                    continue
                self.busy = False
                stream.put(encode(items.pop(0)))
        finally:
            self.busy = True
            if type(value) is GeneratorType:
                value.close()

    def _look_at_yield(self, value: Any, items: list[Any]) -> None:
        """Look at the connection while a generator waits: what a notice has to raise is raised at its `yield`."""
        try:
            self.look()
        except Exception as error:
            if type(value) is not GeneratorType or value.gi_frame is None:
                raise
            items.append(value.throw(error))

    def _fail(
        self,
        error: BaseException,
        payload: Payload,
        function: Callable[..., Any] | None,
        arguments: dict[str, Any],
        call: Call | None,
    ) -> tuple[list[Buffer] | None, dict[str, Any]]:
        if call is None or function is None or self.interrupted:
            return None, self._failure(error, payload, function, arguments)
        return call.fail(error, payload.owns)

    def _failure(
        self,
        error: BaseException,
        payload: Payload,
        function: Callable[..., Any] | None,
        arguments: dict[str, Any],
    ) -> dict[str, Any]:
        if isinstance(error, Cancelled):
            return simple_failure("cancelled", "the task was cancelled")
        described = failure_map(error, payload.owns)
        if self.interrupted:
            return {
                **described,
                "kind": "cancelled",
                "message": described["message"] or "the task was interrupted",
            }
        if isinstance(error, TypeError) and function is not None and not isinstance(error, HookError):
            reason = misfit(function, arguments)
            if reason is not None:
                return {**described, "kind": "arguments", "message": reason[0], "path": reason[1]}
        return described


def _await(value: Any) -> Any:
    import asyncio

    return asyncio.run(value)


def flush() -> None:
    """Write out what the payload printed; whatever the payload made of `sys.stdout` is its own business."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
