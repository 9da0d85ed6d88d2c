# /// script
# requires-python = ">=3.10"
# dependencies = []
# ///
"""Nested calls, as measured by `cargo xtask bench python`."""

import statistics
import time
from time import perf_counter

import skyward as sky


def same(value: int) -> int:
    """Do nothing; the call is measured."""
    return value


def nested(count: int) -> float:
    """Make calls one after another, and return the median of their durations in microseconds."""
    times = []
    for value in range(count + 100):
        began = perf_counter()
        sky.submit(same, value).result()
        times.append((perf_counter() - began) * 1e6)
    return statistics.median(times[100:])


def leaves(depth: int) -> int:
    """Return the number of leaves of a tree with three calls on each level."""
    if depth == 0:
        return 1
    futures = [sky.submit(leaves, depth - 1) for _ in range(3)]
    return sum(future.result() for future in futures)


def recursion(depth: int) -> float:
    """Build such a tree twice, and return the seconds that the second one took."""
    seconds = 0.0
    for _ in range(2):
        began = perf_counter()
        if leaves(depth) != 3**depth:
            raise AssertionError("leaves are missing")
        seconds = perf_counter() - began
    return seconds


def hold(depth: int) -> None:
    """Run a tree of calls until it is cancelled; each leaf reports that it runs."""
    if depth == 0:
        sky.report(True)
        time.sleep(600)
        return
    for future in [sky.submit(hold, depth - 1) for _ in range(3)]:
        future.result()
