"""Parts that the benchmarks of the peers share: calls, command line, rounds, and output as JSON."""

import argparse
import json
import statistics
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")

SIZE = 64 << 20
"""The size of a large value, in bytes."""


class Table:
    """The rows that the command line requests, with their values."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        """Read the command line, which begins with one of these words, if there are any."""
        parser = argparse.ArgumentParser()
        if words:
            parser.add_argument("word", choices=list(words))
        parser.add_argument("--only", default="")
        parser.add_argument("--quick", action="store_true")
        options = parser.parse_args()
        self.only = {row for row in options.only.split(",") if row}
        self.quick: bool = options.quick
        self.word: str = getattr(options, "word", "")
        self.rows: dict[str, float] = {}

    def wants(self, name: str) -> bool:
        """Return whether a row is requested."""
        return not self.only or name in self.only

    def row(self, name: str, measured: Callable[[], float]) -> None:
        """Measure a row, if it is requested."""
        if self.wants(name):
            self.rows[name] = measured()

    def started(self, began: float) -> None:
        """Record the time from the start to the first result."""
        took = perf_counter() - began
        self.row("warm_start_s", lambda: took)

    def times(self, count: int) -> int:
        """Return how often to repeat something: less with `--quick`."""
        return max(2, count // 10) if self.quick else count

    def print(self) -> None:
        """Print the values as JSON, in one line."""
        print(json.dumps(self.rows), flush=True)


def nothing(_: int = 0) -> None:
    """Do nothing."""


def same(value: T) -> T:
    """Return the argument."""
    return value


def p50_us(call: Callable[[], Any], count: int) -> float:
    """Return the median duration of a call, in microseconds."""
    for _ in range(10):
        call()
    times = []
    for _ in range(count):
        began = perf_counter()
        call()
        times.append((perf_counter() - began) * 1e6)
    return statistics.median(times)


def per_second(calls: Callable[[int], Any], count: int) -> float:
    """Return how many calls are done per second."""
    calls(min(count, 100))
    began = perf_counter()
    calls(count)
    return count / (perf_counter() - began)


def gib_per_second(there_and_back: Callable[[], int], times: int) -> float:
    """Return the best GiB per second of `SIZE` bytes, counted in both directions."""
    best = float("inf")
    for _ in range(times):
        began = perf_counter()
        size = there_and_back()
        best = min(best, perf_counter() - began)
        if size != SIZE:
            raise AssertionError(f"{size} bytes came back")
    return 2 * SIZE / best / (1 << 30)
