"""Nested calls, with a client that schedules them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .client import source
from .conftest import Node
from .pool import Pool

PAYLOAD = """
import concurrent.futures
import os
import threading
import time

import skyward as sky

def double(number):
    return 2 * number

def fib(number):
    if number < 2:
        return number
    left, right = sky.submit(fib, number - 1), sky.submit(fib, number - 2)
    return left.result() + right.result()

def deep(levels):
    return [os.getpid()] if levels == 0 else [os.getpid(), *sky.submit(deep, levels - 1).result()]

def whose(number):
    return os.getpid()

def both(number):
    futures = [sky.submit(double, number + n) for n in range(3)]
    return [future.result() for future in futures]

class Odd(ValueError):
    def __init__(self, number, *, why):
        super().__init__(number)
        self.why = why

class Plain(ValueError):
    pass

class Frozen(ValueError):
    def __setattr__(self, name, value):
        raise AttributeError(f"cannot set {name}")

def fail(kind):
    if kind == "plain":
        raise Plain("no", 7)
    if kind == "frozen":
        raise Frozen("no", 7)
    if kind == "odd":
        raise Odd(3, why="odd")
    if kind == "exit":
        raise SystemExit(3)
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "lock":
        return threading.Lock()
    raise AssertionError(kind)

def main(what, **more):
    return globals()["do_" + what](**more)

def do_result(count):
    return [sky.submit(double, number).result() for number in range(count)]

def do_all(count):
    futures = [sky.submit(double, number) for number in range(count)]
    return [future.result() for future in futures]

def do_nested(count):
    futures = [sky.submit(both, number) for number in range(count)]
    return [future.result() for future in futures]

def do_map(count, **more):
    return list(sky.map(double, range(count), **more))

def do_map_two(count):
    return list(sky.map(pow, range(count), [2] * count))

def do_futures_wait(count):
    futures = [sky.submit(both, number) for number in range(count)]
    done, left = concurrent.futures.wait(futures)
    assert not left
    return [future.result() for future in futures]

def do_futures_as_completed(count):
    futures = [sky.submit(double, number) for number in range(count)]
    return sorted(future.result() for future in concurrent.futures.as_completed(futures))

def do_sky_wait(count):
    futures = [sky.submit(double, number) for number in range(count)]
    done, left = sky.wait(futures, return_when="FIRST_COMPLETED")
    assert done and len(done) + len(left) == count
    done, left = sky.wait(futures)
    assert not left
    first = [sky.submit(double, 1), sky.submit(fail, "plain"), sky.submit(double, 2)]
    done, left = sky.wait(first, return_when="FIRST_EXCEPTION")
    assert first[1] in done
    assert sky.wait([], timeout=0) == (set(), set())
    return sorted(future.result() for future in futures)

def do_as_completed(count):
    futures = [sky.submit(double, number) for number in range(count)]
    return sorted(future.result() for future in sky.as_completed(futures, timeout=60))

def do_fib(number):
    return fib(number)

def do_deep(levels):
    return deep(levels)

def do_threads(count):
    def ask(number):
        return sky.submit(double, number).result()
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        return list(threads.map(ask, range(count)))

def do_callbacks(count):
    done = threading.Event()
    results = []
    def took(future):
        results.append(future.result())
        if len(results) == count:
            done.set()
        else:
            sky.submit(double, len(results)).add_done_callback(took)
    sky.submit(double, 0).add_done_callback(took)
    assert done.wait(60)
    return results

def do_raise(kind):
    future = sky.submit(fail, kind)
    try:
        future.result()
    except BaseException as error:
        same = future.exception() is error
        cause = str(error.__cause__)
        return [type(error).__name__, isinstance(error, sky.CallError), str(error), cause, same]
"""


@pytest.fixture
def make_pool(node: Node) -> Callable[..., Pool]:
    def make(workers: int = 1, payload: Any = PAYLOAD, **more: Any) -> Pool:
        return Pool(node, workers, payload, **more)

    return make


WAYS: dict[str, Any] = {
    "result": [0, 2, 4, 6, 8, 10, 12],
    "all": [0, 2, 4, 6, 8, 10, 12],
    "map": [0, 2, 4, 6, 8, 10, 12],
    "map_two": [0, 1, 4, 9, 16, 25, 36],
    "futures_as_completed": [0, 2, 4, 6, 8, 10, 12],
    "sky_wait": [0, 2, 4, 6, 8, 10, 12],
    "as_completed": [0, 2, 4, 6, 8, 10, 12],
    "threads": [0, 2, 4, 6, 8, 10, 12],
    "callbacks": [0, 2, 4, 6, 8, 10, 12],
    "nested": [[2 * (n + m) for m in range(3)] for n in range(7)],
    "futures_wait": [[2 * (n + m) for m in range(3)] for n in range(7)],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("workers", [1, 2])
def test_as_many_parents_as_workers(make_pool: Callable[..., Pool], workers: int, way: str) -> None:
    pool = make_pool(workers)
    tasks = [pool.start(index, what=way, count=7) for index in range(workers)]
    for task in tasks:
        assert pool.outcome(task) == (True, WAYS[way])
    pool.settle()


@pytest.mark.parametrize("workers", [1, 2])
def test_recursion(make_pool: Callable[..., Pool], workers: int) -> None:
    pool = make_pool(workers)
    assert pool.call(what="fib", number=7) == 13
    assert pool.counts["help"] > 0


def test_three_levels_in_one_worker(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    assert len(set(pool.call(what="deep", levels=3))) == 1
    assert pool.counts["help"] == 3


def test_another_thread_of_the_only_worker_helps_if_its_main_thread_does_not_wait(
    make_pool: Callable[..., Pool],
) -> None:
    pool = make_pool()
    assert pool.call(what="futures_wait", count=2) == [[0, 2, 4], [2, 4, 6]]
    assert pool.counts["help"] == 0
    assert pool.counts["aside"] == 8


def test_a_cancel_does_not_interrupt_the_import_of_a_library_on_another_thread(
    make_pool: Callable[..., Pool], tmp_path: Path
) -> None:
    library = """
        import sys, time
        from pathlib import Path
        if hasattr(sys, 'native'):
            raise RuntimeError('native can only be initialized once per process')
        sys.native = True
        folder = Path(__file__).parent
        (folder / 'began').touch()
        while not (folder / 'gate').exists():
            time.sleep(0.01)
    """
    payload = """
        import concurrent.futures, sys, threading, time
        import skyward as sky

        def slow():
            import native
            while True:
                time.sleep(0.01)

        def main(what, folder):
            if folder not in sys.path:
                sys.path.insert(0, folder)
            if what == 'wait':
                concurrent.futures.wait([sky.submit(slow)])
            import native
            while any(thread.name.startswith('skyward call ') for thread in threading.enumerate()):
                time.sleep(0.01)
            return what
    """
    (tmp_path / "native.py").write_text(source(library))
    pool = make_pool(payload=source(payload))
    task = pool.start(0, what="wait", folder=str(tmp_path))
    while not (tmp_path / "began").exists():
        pool.step()
    pool.interrupt(task)
    ok, _ = pool.outcome(task)
    assert not ok
    for _ in range(20):
        pool.step()
    (tmp_path / "gate").touch()
    assert pool.call(what="import", folder=str(tmp_path)) == "import"
    pool.settle()


@pytest.mark.parametrize("kind", ["plain", "frozen"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_call_that_raises(make_pool: Callable[..., Pool], workers: int, kind: str) -> None:
    pool = make_pool(workers)
    name, is_ours, text, cause, same = pool.call(what="raise", kind=kind)
    assert (name, is_ours, text, same) == (kind.capitalize(), False, "('no', 7)", True)
    assert f'raise {name}("no", 7)' in cause
    assert "_calls" not in cause
    assert "_nested" not in cause


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("odd", "RemoteError", "Odd: 3"),
        ("exit", "RemoteError", "SystemExit: 3"),
        ("interrupt", "RemoteError", "KeyboardInterrupt"),
        ("lock", "CallError", "fail returned a lock, which cannot be pickled"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_call_that_raises_what_cannot_be_sent(
    make_pool: Callable[..., Pool], workers: int, kind: str, name: str, text: str
) -> None:
    # A single worker helps with the call; of two workers, the other one runs it.
    pool = make_pool(workers)
    found, is_ours, message, cause, _ = pool.call(what="raise", kind=kind)
    assert (found, is_ours) == (name, True)
    assert text in message
    if name == "RemoteError":
        assert "in fail" in cause
