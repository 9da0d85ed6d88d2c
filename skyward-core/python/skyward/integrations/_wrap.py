"""Parts that the decorators share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any

from .._sky.cluster import InstanceInfo, is_in_broadcast


def around(function: Callable[..., Any], prepare: Callable[[], AbstractContextManager[None]]) -> Callable[..., Any]:
    """Return the function within a context manager, which is made and entered at each call."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with prepare():
            return function(*args, **kwargs)

    @wraps(function)
    def iterate(*args: Any, **kwargs: Any) -> Any:
        with prepare():
            yield from function(*args, **kwargs)

    return iterate if isgeneratorfunction(function) else call


def decorator(function: Callable[..., Any] | None, prepare: Callable[[], AbstractContextManager[None]]) -> Any:
    """Support a decorator with and without arguments."""
    if function is not None:
        return around(function, prepare)
    return lambda function: around(function, prepare)


def together(info: InstanceInfo) -> bool:
    """Return whether this task runs on several workers at the same time, which have to join.

    A task on a single worker must not join: it would wait for the others forever.

    Raises:
        RuntimeError: the pool does not know that its workers are one world. If it lost one of them,
            the others would keep a dead process group.
    """
    if info.total_workers == 1 or not is_in_broadcast():
        return False
    if not info.joined:
        raise RuntimeError(
            f"the payload's decorator joins {info.total_workers} workers into one world, but the pool does not know "
            "that, so it could not restart all of them when one is lost: declare the payload on the pool's builder, "
            "with `.payload::<…>()` and the type that `#[skyward::compute(…, payload = …)]` names, or with "
            "`.payload_of(&call)`. The builder recognises the decorator if it stands on the payload's own function by "
            "a name that is imported or assigned; for a decorator that a function or a condition returns, add the "
            "plugin, `plugins::jax()` or `plugins::torch()`"
        )
    return True


def set_environment(values: Mapping[str, object]) -> None:
    """Set variables that are not set yet; values of a plugin or the user are kept."""
    for name, value in values.items():
        os.environ.setdefault(name, str(value))


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Context manager: set these environment variables, and restore the old ones at the end."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
