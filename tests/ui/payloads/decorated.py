"""Functions that are called otherwise than they are written."""

import functools
from collections.abc import Callable
from typing import Any

from math import *  # noqa: F403


def seeded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Pass a seed."""

    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        return function(42, **arguments)

    return call


@seeded
def draw(seed: int, count: int) -> list[int]:
    """Take an argument that Rust does not pass."""
    return [seed] * count


drawn = seeded(lambda seed, count: [seed] * count)


def entry(count: int) -> int:
    """Return what it was given."""
    return count


def optional(count: int, depth: int, width: int = 1) -> int:
    """Take three arguments, of which two are required."""
    return count + depth + width


if __name__ == "__main__":
    entry = entry(3)
