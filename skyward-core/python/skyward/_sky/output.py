"""Decorators that choose which workers print, and `compute`, which does nothing on a worker."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import IO, Any, ParamSpec, TypeVar, overload

from .._core.steps import step, step_awaited
from .cluster import InstanceInfo, instance_info, is_head
from .redirect import Discard, Redirect

P = ParamSpec("P")
R = TypeVar("R")
Only = str | int | Collection[int] | Callable[[InstanceInfo], bool]
"""Which workers: `"head"` (rank 0), a rank, several ranks, or a function of `InstanceInfo`."""


def stdout(only: Only = "head") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: only some workers print to standard output while the function runs.

    Only what Python prints is affected, not output of native libraries or child processes. While a
    coroutine waits, and between the items of a generator, the worker prints as it did before.

    Args:
        only: `"head"` for rank 0, a rank, several ranks, or a function that gets
            `sky.instance_info()` and returns whether this worker prints.

    Raises:
        ValueError: `only` is another string than `"head"`.

    Example:
        @sky.stdout(only="head")
        def train(): ...
    """
    return _limited(only, out=True, err=False)


def stderr(only: Only = "head") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: only some workers print to standard error while the function runs.

    Takes the same argument as `stdout`.
    """
    return _limited(only, out=False, err=True)


@overload
def silent(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def silent() -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def silent(function: Callable[..., Any] | None = None, /) -> Any:
    """Decorator: no worker prints to standard output or standard error while the function runs."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return _wrap(function, redirect_output)

    return decorate if function is None else decorate(function)


def redirect_output(stdout: IO[str] | None = None, stderr: IO[str] | None = None) -> AbstractContextManager[None]:
    """Context manager: redirect Python's standard output and standard error.

    A stream that is not given is discarded. Output of native libraries and child processes is not
    affected.

    Args:
        stdout: text file that receives standard output; None to discard it.
        stderr: text file that receives standard error; None to discard it.
    """
    return Redirect(Discard() if stdout is None else stdout, Discard() if stderr is None else stderr)


@overload
def compute(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def compute(**options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def compute(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Return the function unchanged: on a worker, it already runs where it should.

    This lets a module with Skyward's decorators be imported by a payload. All options are ignored.
    """
    if function is None:
        return lambda function: function
    return function


function = compute
"""The same as `compute`."""


def _limited(only: Only, out: bool, err: bool) -> Callable[[Callable[P, R]], Callable[P, R]]:
    if isinstance(only, str) and only != "head":
        raise ValueError(f'only must be "head", a rank, ranks, or a function of the instance info, not {only!r}')

    def limit() -> AbstractContextManager[None]:
        if _selected(only):
            return nullcontext()
        return Redirect(Discard() if out else None, Discard() if err else None)

    return lambda function: _wrap(function, limit)


def _selected(only: Only) -> bool:
    info = instance_info()
    if isinstance(only, str):
        return is_head()
    if isinstance(only, int):
        return info.global_worker_index == only
    if callable(only):
        return bool(only(info))
    return info.global_worker_index in only


def _wrap(function: Callable[..., Any], around: Callable[[], AbstractContextManager[None]]) -> Callable[..., Any]:
    """Wrap a function in a context manager, which is left while a coroutine or generator waits."""
    from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with around():
            return function(*args, **kwargs)

    @wraps(function)
    def iterate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from step(around(), function(*args, **kwargs)))

    @wraps(function)
    async def finish(*args: Any, **kwargs: Any) -> Any:
        return await step_awaited(around(), function(*args, **kwargs))

    @wraps(function)
    async def stream(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        scope, items = around(), function(*args, **kwargs)
        resume, value = items.asend, None
        while True:
            try:
                item = await step_awaited(scope, resume(value))
            except StopAsyncIteration:
                return
            try:
                resume, value = items.asend, (yield item)
            except GeneratorExit:
                await step_awaited(scope, items.aclose())
                raise
            except BaseException as error:
                resume, value = items.athrow, error

    if isasyncgenfunction(function):
        return stream
    if iscoroutinefunction(function):
        return finish
    return iterate if isgeneratorfunction(function) else call
