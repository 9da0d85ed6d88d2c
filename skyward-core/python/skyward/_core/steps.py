"""Generators and coroutines that run inside a scope, step by step."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextlib import AbstractContextManager
from types import coroutine
from typing import Any


def step(scope: AbstractContextManager[Any], steps: Any) -> Generator[Any, Any, Any]:
    """Run a generator, or what can be awaited, inside a scope; leave the scope between its steps.

    Args:
        scope: a context manager that can be entered again.
        steps: has the methods `send` and `throw` of a generator.
    """
    resume, value = steps.send, None
    while True:
        with scope:
            try:
                given = resume(value)
            except StopIteration as end:
                return end.value
        try:
            resume, value = steps.send, (yield given)
        except BaseException as error:
            resume, value = steps.throw, error


@coroutine
def step_awaited(scope: AbstractContextManager[Any], steps: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Await a coroutine inside a scope; leave the scope while it waits and its thread runs others."""
    return (yield from step(scope, steps))
