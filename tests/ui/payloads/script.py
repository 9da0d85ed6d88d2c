"""A script as it is: what it does when it is started by hand is nobody's payload."""

# /// script
# dependencies = ["numpy"]

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import skyward as sky

if TYPE_CHECKING:
    from skyward import Compute


def make(count: int) -> Iterator[int]:
    """Yield numbers."""
    yield from range(count)


def stream(count: int) -> Iterator[int]:
    """Return the generator of another function."""
    return make(count)


def start(pool: Compute) -> int:
    """Take what the annotation names, which no worker evaluates."""
    return sky.instance_info().rank


first, second = (lambda count: count), (lambda count: 2 * count)

if __name__ == "__main__":
    with sky.Compute(provider=sky.AWS()) as compute:
        print(stream(3) >> compute)
