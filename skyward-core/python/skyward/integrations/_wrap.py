"""What the decorators have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any

from .. import _state
from .._cluster import InstanceInfo


def before(function: Callable[..., Any], prepare: Callable[[], None]) -> Callable[..., Any]:
    """The function, with a preparation at the start of each call."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        prepare()
        return function(*args, **kwargs)

    @wraps(function)
    def iterate(*args: Any, **kwargs: Any) -> Any:
        prepare()
        yield from function(*args, **kwargs)

    return iterate if isgeneratorfunction(function) else call


def decorator(function: Callable[..., Any] | None, prepare: Callable[[], None]) -> Any:
    """Serve both forms of a decorator: with and without arguments."""
    if function is not None:
        return before(function, prepare)
    return lambda function: before(function, prepare)


def together(info: InstanceInfo) -> bool:
    """Whether there are other workers to join, and they run this task too: one alone would wait for them for ever.

    Raises:
        RuntimeError: there are, and the pool does not know that they are one world: when it lost one of them, the
            others would keep a group that is dead.
    """
    if info.total_workers == 1 or not _state.gang:
        return False
    if not info.joined:
        raise RuntimeError(
            f"the payload's decorator joins {info.total_workers} workers into one world, and the pool was made without "
            "knowing it, so it could not start all of them again when one is lost: declare the payload on the pool's "
            "builder, `.payload::<…>()` with the type that `#[skyward::compute(…, payload = …)]` names, or "
            "`.payload_of(&call)`. The decorator is seen there when it stands on the payload's own function by a name "
            "that is imported or assigned; for one that a function or a condition gives, add the plugin, "
            "`plugins::jax()` or `plugins::torch()`"
        )
    return True


def set_environment(values: Mapping[str, object]) -> None:
    """Set variables that are not set: what a plugin or the user set before stays."""
    for name, value in values.items():
        os.environ.setdefault(name, str(value))


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These environment variables, and afterwards those that were."""
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
