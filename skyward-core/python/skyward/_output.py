"""Decorators that choose which workers print, and `compute`, which does nothing here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import IO, Any, ParamSpec, TypeVar, overload

from ._cluster import InstanceInfo, instance_info

P = ParamSpec("P")
R = TypeVar("R")
Only = str | int | Collection[int] | Callable[[InstanceInfo], bool]
"""Which workers: `"head"`, a rank, several ranks, or a function of `InstanceInfo`."""


def stdout(only: Only = "head") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let only some workers print to standard output while the function runs."""
    return _limited(only, out=True, err=False)


def stderr(only: Only = "head") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let only some workers print to standard error while the function runs."""
    return _limited(only, out=False, err=True)


@overload
def silent(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def silent() -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def silent(function: Callable[..., Any] | None = None, /) -> Any:
    """Let no worker print while the function runs."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return _wrap(function, redirect_output)

    return decorate if function is None else decorate(function)


@contextmanager
def redirect_output(stdout: IO[str] | None = None, stderr: IO[str] | None = None) -> Iterator[None]:
    """Send what Python prints elsewhere for a while; nowhere, for a stream that is not given.

    What is written below Python (by a native library, or a child process) is not touched.
    """
    with open(os.devnull, "w", encoding="utf-8") as null, _replaced(stdout or null, stderr or null):
        yield


@overload
def compute(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def compute(**options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def compute(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """The function itself: on a worker it is already where it is to run."""
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
        return info.is_head
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
    """The function inside a context manager; a generator is inside of it for as long as it runs."""
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
