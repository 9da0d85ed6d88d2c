"""Outside a pool, payloads run as in a pool of one worker."""

from __future__ import annotations

import asyncio
import concurrent.futures
import decimal
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import count, islice, repeat
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward._core import fork, state
from skyward._libraries import seeds

ran: list[object] = []


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in no pool, and have a seed, as tests before may have left one in this process."""
    monkeypatch.setattr(state, "worker", None)
    monkeypatch.setattr(fork, "is_child", False)
    monkeypatch.delenv("SKYWARD_CLUSTER", raising=False)
    monkeypatch.setattr(seeds, "root", 7)


def note(value: Any) -> Any:
    ran.append(value)
    return value


def double(x: int) -> int:
    if x < 0:
        raise ValueError(f"{x} is negative")
    return 2 * x


def nest(levels: int, frames: int = 20) -> int:
    if frames:
        return nest(levels, frames - 1)
    return 0 if levels == 0 else 1 + int(sky.submit(nest, levels - 1).result())


def draw() -> float:
    return random.random()


async def later(x: int) -> int:
    await asyncio.sleep(0)
    return x + 1


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def test_calls_run_in_their_order_when_they_are_submitted() -> None:
    futures = [sky.submit(note, x) for x in (3, 1, 2)]
    assert ran == [3, 1, 2]
    assert [future.result(timeout=0) for future in futures] == [3, 1, 2]
    assert all(future.done() and not future.cancel() and not future.cancelled() for future in futures)
    assert sky.wait(futures) == (set(futures), set())
    assert set(sky.as_completed(futures)) == set(futures)
    assert concurrent.futures.wait(futures).done == set(futures)
    futures[0].add_done_callback(lambda future: ran.append(future.result()))
    assert ran == [3, 1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"ordered": False}, {"chunksize": 3}, {"window": 2}])
def test_map_returns_what_it_returns_in_a_pool(options: dict[str, Any]) -> None:
    assert list(sky.map(double, range(50), **options)) == [2 * x for x in range(50)]
    assert list(sky.options(timeout=60).map(pow, [2, 3], [3, 2], **options)) == [8, 9]


def test_map_takes_no_more_items_than_it_needs() -> None:
    assert list(islice(sky.map(note, count()), 3)) == [0, 1, 2]
    assert len(ran) < 100


def test_a_call_gets_copies_and_a_put_value_itself() -> None:
    value = [1]
    assert sky.submit(list.append, value, 2).result() is None
    assert value == [1]
    shared = sky.put(value)
    value.append(9)
    assert (sky.submit(len, shared).result(), shared.get()) == (1, [1])
    assert list(sky.map(sorted, repeat(shared, 2))) == [[1], [1]]
    with pytest.raises(sky.CallError, match="a lock cannot be put into the store"):
        sky.put(threading.Lock())


def test_exceptions_are_those_of_a_pool() -> None:
    future = sky.submit(double, -1)
    with pytest.raises(ValueError, match="-1 is negative") as raised:
        future.result()
    assert "in double" in str(raised.value.__cause__)
    assert isinstance(future.exception(), ValueError)
    results = sky.map(double, [1, -2, 3])
    assert next(results) == 2
    with pytest.raises(ValueError, match="-2"):
        next(results)
    with pytest.raises(sky.RemoteError, match="SystemExit: 3"):
        sky.submit(sys.exit, 3).result()
    with pytest.raises(sky.CallError, match="argument 1 of double, a lock, cannot be pickled"):
        sky.submit(double, threading.Lock())
    with pytest.raises(sky.CallError, match="returned a lock, which cannot be pickled"):
        sky.submit(threading.Lock).result()
    with pytest.raises(TypeError, match="takes a function"):
        sky.submit(3)  # type: ignore[arg-type]
    with pytest.raises(sky.CallError, match=r"no other worker \(give the pool more"):
        sky.options(help=False).submit(note, 1).result()
    assert ran == []


def test_a_call_that_takes_too_long_has_no_result() -> None:
    with pytest.raises(TimeoutError, match="longer than its 1e-09 s"):
        sky.options(timeout=1e-9).submit(double, 1).result()


def test_calls_nest_as_deeply_as_in_a_pool() -> None:
    assert sky.submit(nest, 63).result() == 63
    with pytest.raises(sky.CallError, match="at most 64 callers above it"):
        sky.submit(nest, 64).result()


def test_a_call_shares_neither_random_numbers_nor_context_variables() -> None:
    random.seed(1)
    expected = [random.random(), random.random()]
    random.seed(1)
    with decimal.localcontext(decimal.Context(prec=3)):
        found = [random.random(), sky.submit(draw).result(), random.random()]
        assert sky.submit(lambda: decimal.getcontext().prec).result() == 28
    assert [found[0], found[2]] == expected


def test_coroutines_and_loops() -> None:
    async def run() -> list[int]:
        return [await asyncio.wrap_future(sky.submit(later, 1)), sky.submit(later, 2).result()]

    assert sky.submit(later, 0).result() == 1
    assert asyncio.run(run()) == [2, 3]


def test_threads_may_submit_calls() -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda x: sky.submit(double, x).result(), range(4))) == [0, 2, 4, 6]


def test_a_process_that_a_payload_has_started_is_not_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYWARD_CLUSTER", "{}")
    for call in (lambda: sky.submit(len, ""), lambda: sky.map(len, [""]), lambda: sky.put(1)):
        with pytest.raises(sky.CallError, match="only inside a payload"):
            call()


@pytest.mark.parametrize(
    "decorate",
    [
        *(sky.compute, sky.function, sky.silent, sky.stdout(only="head"), sky.stderr(only="head"), sky.on_notice),
        *(sky.integrations.jax, sky.integrations.torch(backend="gloo"), sky.integrations.transformers()),
    ],
)
def test_decorated_functions_run_as_they_are(decorate: Callable[..., Any]) -> None:
    assert decorate(double)(4) == 8
    assert sky.submit(decorate(double), 4).result() == 8


def test_a_script_keeps_its_globals(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import skyward as sky\n"
        "class Box:\n    made = 0\n"
        "total = 0\n"
        "def add(x):\n    global total\n    total += x\n    Box.made += 1\n    return Box()\n"
        "boxes = list(sky.map(add, [1, 2, 3]))\n"
        "print(total, Box.made, all(isinstance(box, Box) for box in boxes), sky.submit(lambda: total).result())\n"
    )
    root = Path(sky.__file__).parent.parent
    done = subprocess.run([sys.executable, script], env={"PYTHONPATH": str(root)}, capture_output=True, check=True)
    assert done.stdout.split() == [b"6", b"3", b"True", b"6"]
