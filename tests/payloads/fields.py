"""Results with named fields, for tests of what Rust asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


@dataclass
class Summary:
    mean: float
    spread: float


class Score(NamedTuple):
    loss: float
    accuracy: float


def describe(values: list[float]) -> Summary:
    """Mean and spread of the values."""
    return Summary(sum(values) / len(values), max(values) - min(values))


def scores(count: int) -> Iterator[Score]:
    """Scores that differ in both of their fields."""
    for number in range(count):
        yield Score(float(number), 0.5)


def kind(data: object = None) -> str:
    """The name of the argument's type."""
    return type(data).__name__


def kind_of(data: object) -> str:
    """The same without a default."""
    return type(data).__name__
