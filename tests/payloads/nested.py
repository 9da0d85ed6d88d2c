"""Payloads that call other workers of their pool."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import skyward as sky


class Odd(ValueError):
    """What a call raises."""


def square(number: int) -> int:
    """A call."""
    return number * number


def where(_: int) -> tuple[int, int]:
    """Which worker runs a call: its rank and its process."""
    time.sleep(0.02)
    return sky.instance_info().global_worker_index, os.getpid()


def refuse(number: int) -> int:
    """A call that raises."""
    raise Odd(f"{number} is odd")


def results(count: int) -> int:
    """Submit calls one by one and wait for each."""
    futures = [sky.submit(square, number) for number in range(count)]
    return sum(future.result() for future in futures)


def mapped(count: int) -> int:
    """Map."""
    return sum(sky.map(square, range(count)))


def hidden(count: int) -> int:
    """Wait in a way that the worker does not see."""
    futures = [sky.submit(square, number) for number in range(count)]
    done, waiting = concurrent.futures.wait(futures, timeout=60)
    assert not waiting
    return sum(future.result() for future in done)


def streamed(count: int) -> Iterator[int]:
    """Call from a generator."""
    for number in range(count):
        yield sky.submit(square, number).result()


def fibonacci(number: int) -> int:
    """Recurse over the pool."""
    if number < 2:
        return number
    left, right = (sky.submit(fibonacci, number - 1 - step) for step in range(2))
    return left.result() + right.result()


def spread(count: int) -> list[tuple[int, int]]:
    """Which workers run calls."""
    return [sky.submit(where, number) for number in range(count)] and list(
        sky.map(where, range(count), chunksize=1)
    )


def raised() -> list[str]:
    """What the exception of a call looks like to its caller."""
    try:
        sky.submit(refuse, 3).result()
    except Odd as error:
        return [type(error).__name__, str(error), str(error.__cause__)]
    return []


def die(marker: str) -> int:
    """A call that ends its worker, each time it runs."""
    with open(marker, "a") as file:
        file.write(f"{os.getpid()}\n")
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def survives(marker: str) -> list[str]:
    """Call what kills its worker, and live."""
    try:
        # A timeout keeps this worker from helping with it.
        sky.options(timeout=30).submit(die, marker).result()
    except sky.WorkerLost as error:
        return [str(error), str(sky.submit(square, 7).result())]
    return []


def hold(folder: str, name: str) -> int:
    """A call that begins and does not end by itself."""
    try:
        Path(folder, f"{name}.{os.getpid()}").touch()
        while True:
            time.sleep(0.01)
    finally:
        Path(folder, f"{name}.ended").touch()


def held(gate: str, number: int) -> int:
    """A call that ends when a file is there."""
    while not Path(gate).exists():
        time.sleep(0.01)
    return number


def held_once(gate: str) -> int:
    """A task that ends when a file is there."""
    return held(gate, 1)


def gated(gate: str) -> int:
    """Nine calls that end when a file is there."""
    futures = [sky.submit(held, gate, number) for number in range(9)]
    return sum(future.result() for future in futures)


def alone(how: str) -> str:
    """A call that no other worker takes."""
    if how == "timeout":
        return str(sky.options(timeout=60).submit(square, 3).result())
    if how == "deadline":
        return str(sky.submit(square, 3).result(timeout=60))
    if how == "hidden":
        future = sky.submit(square, 3)
        concurrent.futures.wait([future])
        return str(future.result())
    if how == "overrun":
        future = sky.options(timeout=0.5).submit(time.sleep, 60.0)
    else:
        future = sky.options(help=False, queue_timeout=0.5).submit(square, 3)
    try:
        return str(future.result())
    except (TimeoutError, sky.CallError) as error:
        return f"{type(error).__name__}: {error}"


def tree(folder: str) -> int:
    """Two calls that do not end, one of them two levels deep."""
    one = sky.submit(hold, folder, "leaf")
    two = sky.submit(below, folder)
    return one.result() + two.result()


def below(folder: str) -> int:
    """A call that calls."""
    return int(sky.submit(hold, folder, "deep").result())


def deep(level: int = 0) -> int:
    """Recurse without an end."""
    return int(sky.submit(deep, level + 1).result())


def bottomless() -> str:
    """What a recursion without an end becomes."""
    try:
        deep()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def unpicklable() -> str:
    """What a function that cannot be pickled becomes."""
    import threading

    try:
        sky.submit(square, threading.Lock())
    except sky.CallError as error:
        return str(error)
    return ""


def latency(count: int) -> float:
    """Microseconds of one call after the other, the median."""
    took = []
    for number in range(count):
        began = time.perf_counter()
        sky.submit(square, number).result()
        took.append(time.perf_counter() - began)
    return sorted(took)[len(took) // 2] * 1e6
