# /// script
# requires-python = ">=3.10"
# dependencies = []
# ///
"""Calls within calls, as `cargo xtask bench python` measures them."""

import statistics
import time
from time import perf_counter

import skyward as sky


def same(value: int) -> int:
    """A call that does nothing."""
    return value


def nested(count: int) -> float:
    """Microseconds that half of the calls take at most, one after another."""
    times = []
    for value in range(count + 100):
        began = perf_counter()
        sky.submit(same, value).result()
        times.append((perf_counter() - began) * 1e6)
    return statistics.median(times[100:])


def leaves(depth: int) -> int:
    """Three calls on each level, each of which waits for its own."""
    if depth == 0:
        return 1
    futures = [sky.submit(leaves, depth - 1) for _ in range(3)]
    return sum(future.result() for future in futures)


def recursion(depth: int) -> float:
    """Seconds of the second such tree."""
    seconds = 0.0
    for _ in range(2):
        began = perf_counter()
        if leaves(depth) != 3**depth:
            raise AssertionError("leaves are missing")
        seconds = perf_counter() - began
    return seconds


def hold(depth: int) -> None:
    """A tree of calls that runs until it is cancelled; reports when a leaf runs."""
    if depth == 0:
        sky.report(True)
        time.sleep(600)
        return
    for future in [sky.submit(hold, depth - 1) for _ in range(3)]:
        future.result()
