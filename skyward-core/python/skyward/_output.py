"""Decorators that choose which workers print, and `compute`, which does nothing on a worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import IO, Any, ParamSpec, TypeVar, overload

from ._cluster import InstanceInfo, instance_info, is_head

P = ParamSpec("P")
R = TypeVar("R")
Only = str | int | Collection[int] | Callable[[InstanceInfo], bool]
"""Which workers: `"head"` (rank 0), a rank, several ranks, or a function of `InstanceInfo`."""


def stdout(only: Only = "head") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: only some workers print to standard output while the function runs.

    Only what Python prints is affected, not output of native libraries or child processes.

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


@contextmanager
def redirect_output(stdout: IO[str] | None = None, stderr: IO[str] | None = None) -> Iterator[None]:
    """Context manager: redirect Python's standard output and standard error.

    A stream that is not given is discarded. Output of native libraries and child processes is not
    affected.

    Args:
        stdout: text file that receives standard output; None to discard it.
        stderr: text file that receives standard error; None to discard it.
    """
    with open(os.devnull, "w", encoding="utf-8") as null, _replaced(stdout or null, stderr or null):
        yield


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

    @contextmanager
    def limit() -> Iterator[None]:
        if _selected(only):
            yield
            return
        with open(os.devnull, "w", encoding="utf-8") as null, _replaced(null if out else None, null if err else None):
            yield

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


@contextmanager
def _replaced(out: IO[str] | None, err: IO[str] | None) -> Iterator[None]:
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out or before[0], err or before[1]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _wrap(function: Callable[..., Any], around: Callable[[], Any]) -> Callable[..., Any]:
    """Wrap a function in a context manager; a generator stays inside it until it ends."""
    from inspect import isgeneratorfunction

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with around():
            return function(*args, **kwargs)

    @wraps(function)
    def iterate(*args: Any, **kwargs: Any) -> Any:
        with around():
            yield from function(*args, **kwargs)

    return iterate if isgeneratorfunction(function) else call
