"""Runs one task: load the payload, enter the task hooks, call the entry, encode the result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import copy_context
from types import CoroutineType, GeneratorType
from typing import Any, Protocol

from .._core import fork, state
from .._libraries import world
from .._sky.notices import notices
from .._sky.trace import belong
from .._values.codec import Buffer, encode
from .._values.errors import EncodeError
from . import event_loop
from .failure import failure_map, misfit, simple_failure
from .hooks import Hook, HookError, Stack
from .payload import Payload


class Stream(Protocol):
    """Sends the items of a generator."""

    def wait(self) -> bool:
        """Wait until an item may be sent or a notice has come; return False if cancelled."""
        ...

    def may_put(self) -> bool:
        """Return whether another item may be sent."""
        ...

    def put(self, parts: list[Buffer]) -> None:
        """Send an item."""
        ...


class Call(Protocol):
    """A call of another payload function; the runner only loads the payload that it belongs to."""

    def __call__(self) -> Any:
        """Decode the call and run it."""
        ...

    def answer(self, value: Any) -> list[Buffer]:
        """Encode the answer of a function that has returned."""
        ...

    def fail(
        self, error: BaseException, owned: Callable[[str], bool] | None = None
    ) -> tuple[list[Buffer] | None, dict[str, Any]]:
        """Encode the answer of a function that raised; a failure map if it did not begin."""
        ...


class Cancelled(BaseException):
    """The task was cancelled while its generator waited for credit."""


class Runner:
    """Runs tasks one after another.

    `busy` is true only while code of the payload or of a hook runs. Only then may an interrupt
    raise `KeyboardInterrupt`, because the runner's own code must not stop half way. The code that
    raises it sets `interrupted`.

    An interrupt at another time sets `missed`, and `look` is called as soon as `busy` is true
    again. The same holds when a notice has come. `look` raises what has to be raised in the
    payload.
    """

    def __init__(self, hooks: list[Hook], look: Callable[[], None], on_import: Callable[[bool], None]) -> None:
        self.hooks = hooks
        self.look = look
        self.on_import = on_import
        self.missed = False
        self.busy = False
        self.interrupted = False
        self.trace: tuple[str, str] | None = None
        self.context = copy_context()
        """The context variables at the beginning of the payload, with which helped calls begin."""

    def run(
        self,
        payload: Payload,
        arguments: dict[str, Any],
        trace: tuple[str, str] | None,
        stream: Stream | None,
        call: Call | None = None,
    ) -> tuple[list[Buffer] | None, dict[str, Any]]:
        """Run one call; return the encoded result and an empty map, or None and the failure map."""
        if trace != self.trace:
            self.trace = trace
            belong(trace)
        self.interrupted = False
        function: Callable[..., Any] | None = None
        stack = Stack() if self.hooks else None
        try:
            try:
                # Not while busy: an interrupt must not stop this half way.
                world.show(state.gang)
                if payload._function is None:
                    self.on_import(True)
                self.busy = True
                if self.missed or notices.pending:
                    self.look()
                function = payload._function
                if function is None:
                    function = payload.function()
                    self.busy = False
                    self.on_import(False)
                    self.busy = True
                    if self.missed:
                        self.look()  # an interrupt or a notice came while a library was imported
                if stack is not None:
                    stack.enter(self.hooks)
                if payload.on_notice:
                    for asked in payload.on_notice:
                        notices.register(asked)
                self.context = copy_context()
                value = function(**arguments) if call is None else call()
                if type(value) is CoroutineType:
                    value = event_loop.run(value)
                if stream is not None:
                    self._stream(value, stream)
                    value = None
                if fork.is_child:
                    fork.end(None)
                if notices.of_task:
                    notices.forget()
                if stack is not None:
                    self._leave(stack, None)
                self.busy = False
                return encode(value) if call is None else call.answer(value), {}
            except BaseException as error:
                self.busy = False
                notices.forget()
                if fork.is_child:
                    fork.end(None if isinstance(error, Cancelled) else error)
                if stack is not None:
                    self.busy = True
                    failure = stack.leave(error)
                    self.busy = False
                    if failure is not None and not isinstance(error, Exception):
                        # The task ended as requested, but a hook failed, so the worker is not as it
                        # was before.
                        return None, failure_map(failure)
                return self._fail(error, payload, function, arguments, call)
        except BaseException as error:
            # Either an interrupt, or an exception of a notice function, was raised between two
            # lines above.
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
        # A notice function's exception makes the generator yield an item before there is credit. Such
        # items wait here.
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
        """Read the connection while a generator waits; raise notice exceptions at its `yield`."""
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


def flush() -> None:
    """Flush what the payload printed; a payload may have replaced `sys.stdout` by anything."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
