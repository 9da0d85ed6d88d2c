"""Trains nothing, in every way that a declaration may ask for."""

# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy>=2"]
# ///

from collections.abc import AsyncIterator, Iterator


def train(epochs: int, batch_size: int, rate: float = 0.1, name: str = "model") -> dict[str, float]:
    """Return something for a report."""
    return {"loss": rate / epochs, "samples": float(batch_size), "name_length": float(len(name))}


def losses(epochs: int) -> Iterator[float]:
    """Yield the loss of each epoch."""
    for epoch in range(epochs):
        yield 1.0 / (epoch + 1)


def options(name: str, **settings: object) -> int:
    """Take any setting."""
    return len(settings) + len(name)


def by_position(first: int, /, second: int) -> int:
    """Take an argument that has no name."""
    return first + second


async def later(epochs: int) -> int:
    """Return at some other time."""
    return epochs


async def ticks(count: int) -> AsyncIterator[int]:
    """Yield at some other time."""
    for tick in range(count):
        yield tick
