"""What the decorators have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
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
    """Whether there are other workers to join, and they run this task too: one alone would wait for them for ever."""
    return info.total_workers > 1 and _state.gang


def set_environment(values: Mapping[str, object]) -> None:
    """Set variables that are not set: what a plugin or the user set before stays."""
    for name, value in values.items():
        os.environ.setdefault(name, str(value))
