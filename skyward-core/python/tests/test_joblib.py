"""joblib on the workers of a pool, with a client that schedules the calls."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .conftest import Node
from .pool import Pool

pytestmark = pytest.mark.frameworks

PAYLOAD = """
import contextvars
import io
import multiprocessing
import os
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr

import skyward as sky
from joblib import Memory, Parallel, cpu_count, delayed, effective_n_jobs, parallel_config
from joblib.parallel import get_active_backend

def double(number, seconds=0.0):
    time.sleep(seconds)
    return 2 * number

def slowly(number, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)  # a thread is interrupted between two of these
    return number

def where(number, seconds=0.0):
    time.sleep(seconds)
    return os.getpid(), threading.get_ident()

class Odd(ValueError):
    pass

def refuse(number, at):
    if number == at:
        raise Odd(number, "odd")
    return number

def mark(folder, number, seconds):
    open(f"{folder}/{number}.begun", "w").close()
    slowly(number, seconds)
    open(f"{folder}/{number}.ended", "w").close()
    return number

def main(what, **more):
    with sky.integrations.joblib_backend():
        return globals()["do_" + what](**more)

def do_double(count, **more):
    return Parallel(**more)(delayed(double)(number) for number in range(count))

def largest(count, calls):
    from skyward.integrations import _joblib_batch
    sizes = []
    class Recorded(_joblib_batch.Batch):
        def __init__(self, calls, threads):
            super().__init__(calls, threads)
            sizes.append(len(calls))
    backend, _ = get_active_backend()
    module = sys.modules[type(backend).__module__]
    before, module.Batch = module.Batch, Recorded
    try:
        Parallel(n_jobs=-1)(calls)
    finally:
        module.Batch = before
    return max(sizes)

def do_bytes(count, each):
    return largest(count, (delayed(len)(os.urandom(each)) for number in range(count)))

def do_results(count, each):
    return largest(count, (delayed(bytes)(each) for number in range(count)))

def do_arrays(count):
    import numpy
    arrays = [numpy.full(1 << 17, float(number)) for number in range(count)]
    # After the first time they are known, so that their bytes do not count.
    return largest(count, (delayed(len)(array) for _ in range(20) for array in arrays))

def do_stream(count, **more):
    return list(Parallel(**more)(delayed(double)(number) for number in range(count)))

def do_places(count, **more):
    return [pid for pid, _ in Parallel(**more)(delayed(where)(number, 0.02) for number in range(count))]

def do_managed(count):
    with Parallel(n_jobs=-1) as parallel:
        return [parallel(delayed(double)(number) for number in range(count)) for _ in range(2)]

def do_managed_after_an_error():
    found = []
    with Parallel(n_jobs=-1, batch_size=1) as parallel:
        for _ in range(3):
            try:
                parallel(delayed(refuse)(number, 1) for number in range(20))
            except Odd:
                found.append(parallel(delayed(double)(number) for number in range(5)))
    return found

def do_lambda(count):
    offset = 7
    return Parallel(n_jobs=-1)(delayed(lambda number: number + offset)(number) for number in range(count))

def do_jobs():
    found = {}
    for jobs in (-1, -2, -100, 1, 2, 100, None):
        found[str(jobs)] = effective_n_jobs(jobs)
    try:
        effective_n_jobs(0)
    except ValueError as error:
        found["0"] = str(error)
    return found

def do_refuse(count, at, folder, **more):
    def calls():
        yield delayed(refuse)(at, at)
        for number in range(count):
            yield delayed(mark)(folder, number, 5.0)
    try:
        list(Parallel(n_jobs=-1, **more)(calls()))
    except Odd as error:
        return [type(error).__name__, list(error.args), "in refuse" in str(error.__cause__)]

def do_refuse_beside(count, seconds, **more):
    calls = [delayed(refuse)(0, 0), *(delayed(slowly)(number, seconds) for number in range(count))]
    try:
        list(Parallel(n_jobs=-1, batch_size=1, **more)(calls))
    except Odd as error:
        return list(error.args)

def do_timeout(seconds, **more):
    try:
        list(Parallel(n_jobs=-1, timeout=0.3, **more)(delayed(slowly)(number, seconds) for number in range(8)))
    except multiprocessing.TimeoutError as error:
        return type(error).__name__

def do_twice(folder, batch_size):
    with Parallel(n_jobs=-1, batch_size=batch_size) as parallel:
        parallel(delayed(double)(number, 0.005) for number in range(100))
        open(os.path.join(folder, "again"), "w").close()
        parallel(delayed(double)(number, 0.005) for number in range(400))

def do_unpicklable_argument(count):
    def calls():
        for number in range(count):
            yield delayed(double)(number, 0.0)
        yield delayed(double)(threading.Lock())
    try:
        Parallel(n_jobs=-1, batch_size=1)(calls())
    except sky.CallError as error:
        return str(error)

def lock(number):
    return threading.Lock()

def do_unpicklable_result(**more):
    try:
        list(Parallel(n_jobs=-1, **more)(delayed(lock)(number) for number in range(4)))
    except sky.CallError as error:
        return str(error)

def do_exit():
    try:
        Parallel(n_jobs=-1)(delayed(sys.exit)(number) for number in range(4))
    except sky.RemoteError as error:
        return str(error)

def do_broken_items():
    def calls():
        yield delayed(double)(1)
        raise Odd("no more")
    try:
        Parallel(n_jobs=-1)(calls())
    except Odd as error:
        return str(error)

def do_broken_items_later(count):
    def calls():
        for number in range(count):
            yield delayed(double)(number)
        raise Odd("no more")
    try:
        Parallel(n_jobs=-1, batch_size=1)(calls())
    except Odd as error:
        return str(error)

class Gone(BaseException):
    pass

def do_items_that_end(count, **more):
    def calls():
        for number in range(count):
            yield delayed(double)(number)
        raise Gone("no more")
    helps = more.pop("caller_helps", True)
    with sky.integrations.joblib_backend(caller_helps=helps):
        try:
            return list(Parallel(n_jobs=-1, batch_size=1, **more)(calls()))
        except Gone as error:
            return str(error)

def do_closed(count, **more):
    told = io.StringIO()
    with redirect_stderr(told):
        parallel = Parallel(n_jobs=-1, batch_size=1, verbose=11, **more)
        def calls():
            for number in range(count):
                yield delayed(double)(number, 0.1)
            told.close()
        try:
            return list(parallel(calls()))
        except ValueError as error:
            return str(error)

class Heavy:
    def __init__(self, number):
        self.number = number
    def __reduce__(self):
        if self.number == 7:
            raise Gone("not this one")
        return Heavy, (self.number,)

def do_argument_that_ends(**more):
    try:
        return list(Parallel(n_jobs=-1, batch_size=1, **more)(delayed(type)(Heavy(n)) for n in range(12)))
    except Gone as error:
        return str(error)

def by_name(number):
    time.sleep(0.05)
    return os.getpid(), sum(Parallel(n_jobs=2, backend="skyward")(delayed(double)(n) for n in range(number)))

def do_by_name():
    found = Parallel(n_jobs=-1, batch_size=1)(delayed(by_name)(4) for _ in range(8))
    return [len({pid for pid, _ in found}), [total for _, total in found]]

variable = contextvars.ContextVar("variable", default="default")

def do_seen_by_items(count):
    variable.set("set")
    seen = set()
    def calls():
        for number in range(count):
            inner = Parallel(n_jobs=-1, batch_size=1)(delayed(double)(n) for n in range(3))
            seen.add((threading.current_thread().name, effective_n_jobs(-1), variable.get(), sum(inner)))
            yield delayed(double)(number)
    assert Parallel(n_jobs=-1, batch_size=1, pre_dispatch=2)(calls()) == [2 * number for number in range(count)]
    return sorted(seen)

def leaf(number):
    return [(os.getpid(), threading.active_count(), effective_n_jobs(-1))]

def level(number, below):
    under = leaf if below == 0 else level
    arguments = () if below == 0 else (below - 1,)
    found = Parallel(n_jobs=-1)(delayed(under)(n, *arguments) for n in range(3))
    return [(os.getpid(), threading.active_count(), effective_n_jobs(-1)), *(place for part in found for place in part)]

def do_nested(below):
    return level(0, below)

def do_pipeline(count):
    first = Parallel(n_jobs=-1, return_as="generator", batch_size=1)(
        delayed(double)(number, 0.005) for number in range(count)
    )
    # Each takes more items than are under way, and they come by calls of their own.
    tens = (sum(next(first) for _ in range(10)) for _ in range(count // 10))
    return Parallel(n_jobs=-1, batch_size=1, pre_dispatch=1)(delayed(double)(number) for number in tens)

def do_two(count):
    first = Parallel(n_jobs=-1, return_as="generator", batch_size=1)(
        delayed(double)(number, 0.02) for number in range(count)
    )
    found = [next(first)]
    try:
        Parallel(n_jobs=-1)(delayed(refuse)(number, 0) for number in range(4))
    except Odd:
        return found + list(first)

def do_dropped(folder, count):
    results = Parallel(n_jobs=-1, return_as="generator", batch_size=1)(
        delayed(mark)(folder, number, 0.05) for number in range(count)
    )
    first = next(results)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        del results
    return [first, Parallel(n_jobs=-1)(delayed(double)(number) for number in range(4))]

left = []

def do_left(count):
    left.append(Parallel(n_jobs=-1, return_as="generator")(delayed(double)(number, 0.05) for number in range(count)))
    return next(left[-1])

def served():
    return [thread.name for thread in threading.enumerate() if thread.name == "skyward joblib"]

def do_threads_left():
    end = time.monotonic() + 30
    while served() and time.monotonic() < end:
        time.sleep(0.01)
    return served()

def inside(number):
    def threads(_):
        return os.getpid(), threading.get_ident()
    places = Parallel(n_jobs=2, prefer="threads")(delayed(threads)(n) for n in range(20))
    shared = Parallel(n_jobs=2, require="sharedmem")(delayed(threads)(n) for n in range(20))
    return [os.getpid(), sorted({pid for pid, _ in places}), sorted({pid for pid, _ in shared})]

def do_threads():
    return Parallel(n_jobs=-1)(delayed(inside)(number) for number in range(4))

def do_sharedmem():
    seen = []
    Parallel(n_jobs=2, require="sharedmem")(delayed(seen.append)(number) for number in range(10))
    return sorted(seen)

def do_prefer():
    return sorted({pid for pid, _ in Parallel(n_jobs=-1, prefer="threads")(delayed(where)(n, 0.02) for n in range(20))})

def pools(number):
    import numpy
    from threadpoolctl import threadpool_info
    numpy.ones((2, 2)) @ numpy.ones((2, 2))
    return [found["num_threads"] for found in threadpool_info()]

def do_inner(threads):
    before = pools(0)
    with parallel_config(backend="skyward", inner_max_num_threads=threads):
        found = Parallel(n_jobs=-1)(delayed(pools)(number) for number in range(4))
    return [before, found, pools(0)]

def do_overlap(first, second):
    from threadpoolctl import threadpool_limits
    pools(0)
    # More threads than either limit, on any number of cores.
    with threadpool_limits(4):
        return overlap(first, second)

def overlap(first, second):
    from skyward.integrations._joblib_batch import limited
    found = [pools(0)]
    with ThreadPoolExecutor(1) as other:
        outer = limited(first)
        outer.__enter__()
        def inner():
            with limited(second):
                begun.set()
                ended.wait()
                found.append(pools(0))
        begun, ended = threading.Event(), threading.Event()
        running = other.submit(inner)
        begun.wait()
        outer.__exit__(None, None, None)
        ended.set()
        running.result()
    return [*found, pools(0)]

def do_verbose():
    told = io.StringIO()
    with redirect_stderr(told):
        Parallel(n_jobs=-1, verbose=10)(delayed(double)(number) for number in range(10))
    return told.getvalue()

def do_memory(folder):
    cached = Memory(folder, verbose=0).cache(slow)
    calls = [delayed(cached)(number, folder) for number in (1, 2, 3)]
    return [Parallel(n_jobs=-1)(calls), Parallel(n_jobs=-1)(calls), len(os.listdir(f"{folder}/marks"))]

def slow(number, folder):
    open(f"{folder}/marks/{number}.{time.monotonic_ns()}", "w").close()
    return number * 10

def do_batches(count):
    sizes = []
    from skyward.integrations import _joblib_calls
    before = _joblib_calls.Batch
    class Counted(before):
        def __init__(self, calls, threads):
            super().__init__(calls, threads)
            sizes.append(len(calls))
    from skyward.integrations import _joblib_backend
    _joblib_backend.Batch = Counted
    try:
        results = Parallel(n_jobs=-1)(delayed(double)(number) for number in range(count))
    finally:
        _joblib_backend.Batch = before
    assert results == [2 * number for number in range(count)]
    return sizes

def now(folder, number):
    open(f"{folder}/{number}.begun", "w").close()
    running = len([name for name in os.listdir(folder) if name.endswith("begun")])
    time.sleep(0.03)
    os.unlink(f"{folder}/{number}.begun")
    return running

def do_running(folder, count, **more):
    return Parallel(**more)(delayed(now)(folder, number) for number in range(count))

def do_many(count):
    return sum(Parallel(n_jobs=-1, pre_dispatch="all", batch_size=1)(delayed(double)(n) for n in range(count)))

def do_in_thread(count):
    found = []
    def work():
        with sky.integrations.joblib_backend():
            found.extend(Parallel(n_jobs=-1)(delayed(double)(number) for number in range(count)))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found

def do_without_help(count, **more):
    with sky.integrations.joblib_backend(caller_helps=False):
        return [os.getpid(), do_places(count, n_jobs=-1)]

@sky.integrations.joblib_backend
def decorated(count):
    return do_double(count, n_jobs=-1), effective_n_jobs(-1)

@sky.integrations.sklearn_backend(n_jobs=-1)
def with_arguments(count):
    return do_double(count), effective_n_jobs(None)

@sky.integrations.joblib_backend()
def items(count):
    for number in range(count):
        yield effective_n_jobs(-1)

@sky.integrations.joblib_backend
async def awaited(number):
    found = [effective_n_jobs(-1)]
    for _ in range(number):
        await asyncio.sleep(0.01)
        found.append(effective_n_jobs(-1))
    with parallel_config(n_jobs=2):
        await asyncio.sleep(0.01)
        found.append(effective_n_jobs(None))
    try:
        await asyncio.wait_for(asyncio.sleep(30), 0.01)
    except asyncio.TimeoutError:
        found.append("late")
    return [*found, do_double(3, n_jobs=-1)]

def plain_async():
    outside = type(get_active_backend()[0]).__name__
    async def several():
        found = await asyncio.gather(awaited(3), awaited(1), awaited(0))
        return [*found, type(get_active_backend()[0]).__name__ == outside]
    found = asyncio.run(several())
    try:
        @sky.integrations.joblib_backend
        async def several_items():
            yield 1
    except TypeError as error:
        found.append(str(error))
    return [*found, type(get_active_backend()[0]).__name__ == outside]

def plain(what):
    return globals()["plain_" + what]()

def plain_forms():
    pools = [sky.integrations.JoblibPool(nodes=4, concurrency=4), sky.integrations.ScikitLearnPool(nodes=4)]
    pools += [sky.integrations.sklearn_backend(object()), sky.integrations.joblib_backend(pools[0])]
    found = []
    for pool in pools:
        with pool:
            found.append(do_double(3, n_jobs=-1) == [0, 2, 4] and effective_n_jobs(-1))
    return [found, decorated(3), with_arguments(3), list(items(2))]

def plain_name():
    with parallel_config(backend="skyward"):
        return effective_n_jobs(-1)
"""


@pytest.fixture
def make_pool(node: Node) -> Callable[..., Pool]:
    def make(workers: int = 2) -> Pool:
        return Pool(node, workers, PAYLOAD)

    return make


def doubles(count: int) -> list[int]:
    return [2 * number for number in range(count)]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("more", [{"n_jobs": -1}, {"n_jobs": 2}, {"n_jobs": -1, "batch_size": 7}, {}])
def test_results_keep_their_order(make_pool: Callable[..., Pool], workers: int, more: dict[str, Any]) -> None:
    pool = make_pool(workers)
    assert pool.call(what="double", count=200, **more) == doubles(200)
    assert pool.call(what="double", count=0, **more) == []
    assert (sum(pool.counts.values()) > 0) == (workers > 1 and "n_jobs" in more)
    pool.settle()


def test_all_workers_take_part_and_the_caller_helps(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(3)
    assert len(set(pool.call(what="places", count=60, n_jobs=-1))) == 3
    assert pool.counts["help"] > 0
    pool.counts["help"] = 0
    caller, places = pool.call(what="without_help", count=30)
    assert len(set(places)) == 2
    assert caller not in places
    assert pool.counts["help"] == 0


def test_as_many_callers_as_workers(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(2)
    tasks = [pool.start(index, what="double", count=50, n_jobs=-1) for index in range(2)]
    for task in tasks:
        assert pool.outcome(task) == (True, doubles(50))
    pool.settle()


def test_jobs_are_workers(make_pool: Callable[..., Pool]) -> None:
    found = make_pool(3).call(what="jobs")
    no_meaning = "n_jobs == 0 in Parallel has no meaning"
    assert found == {"-1": 3, "-2": 2, "-100": 1, "1": 1, "2": 2, "100": 3, "None": 1, "0": no_meaning}


def test_fewer_jobs_than_workers_are_a_limit(make_pool: Callable[..., Pool], tmp_path: Path) -> None:
    pool = make_pool(3)
    assert max(pool.call(what="running", folder=str(tmp_path), count=30, n_jobs=2)) == 2
    assert max(pool.call(what="running", folder=str(tmp_path), count=30, n_jobs=-1)) == 3


@pytest.mark.parametrize("return_as", ["generator", "generator_unordered"])
@pytest.mark.parametrize("workers", [2, 3])
def test_results_one_by_one(make_pool: Callable[..., Pool], workers: int, return_as: str) -> None:
    found = make_pool(workers).call(what="stream", count=50, n_jobs=-1, return_as=return_as)
    assert (sorted(found) if return_as == "generator_unordered" else found) == doubles(50)


def test_a_generator_that_feeds_another(make_pool: Callable[..., Pool]) -> None:
    expected = [4 * sum(range(first, first + 10)) for first in range(0, 100, 10)]
    assert make_pool().call(what="pipeline", count=100) == expected


def test_the_error_of_one_leaves_the_other_alone(make_pool: Callable[..., Pool]) -> None:
    assert make_pool().call(what="two", count=30) == doubles(30)


def test_a_generator_that_is_dropped_gives_up_its_calls(make_pool: Callable[..., Pool], tmp_path: Path) -> None:
    pool = make_pool()
    assert pool.call(what="dropped", folder=str(tmp_path), count=1000) == [0, [0, 2, 4, 6]]
    assert len(list(tmp_path.glob("*.begun"))) < 50
    pool.settle()


def test_a_generator_that_outlives_its_task_leaves_no_thread(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    assert pool.call(what="left", count=1000) == 0
    assert pool.call(what="threads_left") == []


def test_parallel_as_a_context_manager(make_pool: Callable[..., Pool]) -> None:
    assert make_pool().call(what="managed", count=30) == [doubles(30), doubles(30)]


def test_a_context_manager_is_used_again_after_an_error(make_pool: Callable[..., Pool]) -> None:
    assert make_pool().call(what="managed_after_an_error") == [doubles(5)] * 3


def test_functions_without_a_name(make_pool: Callable[..., Pool]) -> None:
    assert make_pool().call(what="lambda", count=10) == [number + 7 for number in range(10)]


@pytest.mark.parametrize("return_as", ["list", "generator", "generator_unordered"])
def test_the_first_error_ends_all(make_pool: Callable[..., Pool], tmp_path: Path, return_as: str) -> None:
    pool = make_pool()
    arguments: dict[str, Any] = {"count": 40, "at": -1, "folder": str(tmp_path), "batch_size": 1}
    assert pool.call(what="refuse", return_as=return_as, **arguments) == ["Odd", [-1, "odd"], True]
    pool.settle()
    # The caller may help with a call while the error comes.
    assert len(list(tmp_path.glob("*.ended"))) < 10


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("more", [{}, {"return_as": "generator"}, {"timeout": 600}, {"pre_dispatch": "all"}])
def test_an_error_ends_also_the_call_with_which_its_caller_helps(
    make_pool: Callable[..., Pool], workers: int, more: dict[str, Any]
) -> None:
    pool = make_pool(workers)
    # Its deadline is earlier than the ends of the other calls.
    assert pool.call(what="refuse_beside", count=6, seconds=300.0, **more) == [0, "odd"]
    pool.settle()
    assert pool.call(what="threads_left") == []


@pytest.mark.parametrize("return_as", ["list", "generator", "generator_unordered"])
def test_a_timeout(make_pool: Callable[..., Pool], return_as: str) -> None:
    pool = make_pool()
    assert pool.call(what="timeout", seconds=600.0, return_as=return_as) == "TimeoutError"
    pool.settle()


@pytest.mark.parametrize("batch_size", ["auto", 10])
def test_batches_of_several_items_wait_for_the_next_free_worker(
    make_pool: Callable[..., Pool], tmp_path: Path, batch_size: str | int
) -> None:
    pool = make_pool(2)
    task = pool.start(0, what="twice", folder=str(tmp_path), batch_size=batch_size)
    waits = []
    while task not in pool.outcomes:
        pool.step()
        if (tmp_path / "again").exists():
            waits.append(bool(pool.queued))
    ok, _ = pool.outcome(task)
    assert ok
    assert sum(waits) > len(waits) / 2


def test_results_within_the_timeout(make_pool: Callable[..., Pool]) -> None:
    assert make_pool().call(what="stream", count=50, n_jobs=-1, timeout=30) == doubles(50)


@pytest.mark.parametrize("count", [0, 100])
def test_arguments_that_cannot_be_sent(make_pool: Callable[..., Pool], count: int) -> None:
    found = make_pool().call(what="unpicklable_argument", count=count)
    assert "argument 1 of double, a lock, cannot be pickled" in found


@pytest.mark.parametrize("return_as", ["list", "generator"])
def test_results_that_cannot_be_sent(make_pool: Callable[..., Pool], return_as: str) -> None:
    assert "lock returned" in make_pool().call(what="unpicklable_result", return_as=return_as)


def test_base_exceptions_of_calls(make_pool: Callable[..., Pool]) -> None:
    assert "SystemExit: " in make_pool().call(what="exit")


@pytest.mark.parametrize("more", [{"what": "broken_items"}, {"what": "broken_items_later", "count": 100}])
def test_items_that_raise(make_pool: Callable[..., Pool], more: dict[str, Any]) -> None:
    assert make_pool().call(**more) == "no more"


WAYS: list[dict[str, Any]] = [
    {},
    {"return_as": "generator"},
    {"return_as": "generator_unordered"},
    {"timeout": 60},
    {"pre_dispatch": 1},
    {"pre_dispatch": 1, "return_as": "generator"},
]


@pytest.mark.parametrize("more", [*WAYS, {"caller_helps": False}])
@pytest.mark.parametrize("count", [1, 12])
def test_items_that_raise_a_base_exception(make_pool: Callable[..., Pool], count: int, more: dict[str, Any]) -> None:
    pool = make_pool()
    assert pool.outcome(pool.start(0, what="items_that_end", count=count, **more), 20) == (True, "no more")
    assert pool.call(what="threads_left") == []


@pytest.mark.parametrize("more", [*WAYS, {"pre_dispatch": "all"}])
def test_progress_output_that_fails(make_pool: Callable[..., Pool], more: dict[str, Any]) -> None:
    pool = make_pool()
    ok, found = pool.outcome(pool.start(0, what="closed", count=6, **more), 20)
    assert (ok, found) == (True, "I/O operation on closed file")


@pytest.mark.parametrize("more", [*WAYS, {"pre_dispatch": "all"}])
def test_arguments_that_raise_a_base_exception(make_pool: Callable[..., Pool], more: dict[str, Any]) -> None:
    pool = make_pool()
    assert pool.outcome(pool.start(0, what="argument_that_ends", **more), 20) == (True, "not this one")
    assert pool.call(what="threads_left") == []


def test_a_batch_names_the_backend(make_pool: Callable[..., Pool]) -> None:
    assert make_pool().call(what="by_name") == [2, [sum(doubles(4))] * 8]


def test_later_items_see_what_the_first_see(make_pool: Callable[..., Pool]) -> None:
    found = make_pool().call(what="seen_by_items", count=12)
    assert found == [["MainThread", 2, "set", 6], ["skyward joblib", 2, "set", 6]]


@pytest.mark.parametrize("workers", [2, 3])
def test_three_levels_take_no_further_process_and_few_threads(make_pool: Callable[..., Pool], workers: int) -> None:
    pool = make_pool(workers)
    found = pool.call(what="nested", below=2)
    assert len(found) == 1 + 3 + 9 + 27
    assert len({pid for pid, _, _ in found}) <= workers
    # One thread per `Parallel` that waits on a worker's stack, and the thread that serves the
    # calls.
    assert max(threads for _, threads, _ in found) <= 2 + 3 * 3
    assert {jobs for _, _, jobs in found} == {workers, 1}
    pool.settle()


def test_the_innermost_level_is_sequential(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    found = pool.call(what="nested", below=3)
    assert len(found) == 1 + 3 + 9 + 27 + 81
    calls = pool.counts["run"] + pool.counts["help"] + pool.counts["aside"] - pool.counts["refused"]
    assert calls <= 3 + 9 + 27


def test_threads_are_for_the_worker_that_asks_for_them(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    for pid, preferred, shared in pool.call(what="threads"):
        assert preferred == shared == [pid]
    assert pool.call(what="sharedmem") == list(range(10))
    # The whole pool is larger than the threads of one worker.
    assert len(pool.call(what="prefer")) == 2


def test_the_threads_of_libraries_are_limited_while_a_batch_runs(make_pool: Callable[..., Pool]) -> None:
    before, found, after = make_pool().call(what="inner", threads=1)
    assert before
    assert found == [[1] * len(before)] * 4
    assert before == after


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 1), (1, 2)])
def test_batches_overlap_in_a_process(make_pool: Callable[..., Pool], first: int, second: int) -> None:
    before, within, after = make_pool().call(what="overlap", first=first, second=second)
    assert before
    assert before == after == [4] * len(before)
    assert within == [second] * len(before)


def test_progress_is_reported(make_pool: Callable[..., Pool]) -> None:
    told = make_pool().call(what="verbose")
    assert "Using backend SkywardBackend with 2 concurrent workers." in told
    assert "Done  10 out of  10" in told


def test_a_cache_is_found_again(make_pool: Callable[..., Pool], tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    assert make_pool().call(what="memory", folder=str(tmp_path)) == [[10, 20, 30], [10, 20, 30], 3]


def test_short_calls_come_in_batches(make_pool: Callable[..., Pool]) -> None:
    sizes = make_pool().call(what="batches", count=2000)
    assert sum(sizes) == 2000
    assert len(sizes) < 100
    assert max(sizes) >= 64


def test_batches_dispatched_at_once_wait_for_room(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    task = pool.start(0, what="many", count=500)
    most = 0
    while task not in pool.outcomes:
        pool.step()
        most = max(most, len(pool.queued) + len(pool.running))
    assert pool.outcome(task) == (True, sum(doubles(500)))
    assert most <= 2 * 2 + 2 + 1


def test_a_thread_of_the_payload(make_pool: Callable[..., Pool]) -> None:
    assert make_pool().call(what="in_thread", count=20) == doubles(20)


def test_all_forms_of_the_decorator(node: Node) -> None:
    pool = Pool(node, 2, PAYLOAD.replace("def main(what", "def plain_main(what").replace("def plain(", "def main("))
    found, decorated, with_arguments, items = pool.call(what="forms")
    assert found == [2, 2, 2, 2]
    assert decorated == [[0, 2, 4], 2]
    assert with_arguments == [[0, 2, 4], 2]
    assert items == [2, 2]
    assert pool.call(what="name") == 2


def test_a_call_that_was_cancelled_while_it_was_pickled() -> None:
    from skyward.integrations._joblib_calls import Calls

    class Submitted(Future[Any]):
        _holds = ()

    futures: list[Future[Any]] = []

    class Cancelling:
        def _submit(self, *_: Any) -> tuple[Future[Any], int]:
            calls.cancel()
            futures.append(Submitted())
            return futures[-1], 10

    batch: Any = SimpleNamespace(calls=[1])
    options: Any = Cancelling()
    calls = Calls(options, 4, lambda *_: None, SimpleNamespace(_call_id=1))
    calls.submit(batch, lambda _: None)
    calls.submit(batch, lambda _: None)
    assert [future.cancelled() for future in futures] == [True], "what comes later is dropped"


def test_batches_have_a_bounded_number_of_bytes_and_of_arrays(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    assert pool.call(what="bytes", count=40, each=6 << 20) <= 2
    assert pool.call(what="bytes", count=200, each=10) > 2
    assert pool.call(what="arrays", count=100) <= 64


def test_batches_have_a_bounded_number_of_bytes_in_their_results(make_pool: Callable[..., Pool]) -> None:
    assert make_pool().call(what="results", count=30, each=6 << 20) <= 2


def test_asynchronous_functions(node: Node) -> None:
    # Import asyncio only here: a call that is cancelled during the import leaves it half imported.
    payload = "import asyncio\n" + PAYLOAD
    pool = Pool(node, 2, payload.replace("def main(what", "def plain_main(what").replace("def plain(", "def main("))
    *found, is_left, refused, is_left_at_last = pool.call(what="async")
    assert found == [[2] * (1 + waits) + [2, "late", [0, 2, 4]] for waits in (3, 1, 0)]
    assert "several_items, an asynchronous generator" in refused
    assert is_left
    assert is_left_at_last


def test_gangs_and_code_outside_a_pool_are_sequential(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    pool.workers[0].gang = [1, 1, 1]
    assert pool.call(what="double", count=10, n_jobs=-1) == doubles(10)
    assert pool.call(what="jobs")["-1"] == 1
    assert pool.counts == {"run": 0, "help": 0, "aside": 0, "refused": 0}
    program = PAYLOAD + textwrap.dedent("""
        import json
        print(json.dumps([main('double', count=5, n_jobs=-1), main('jobs')['-1']]))
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=120)
    assert json.loads(done.stdout) == [doubles(5), 1]


def test_a_call_that_is_cancelled_within_parallel(make_pool: Callable[..., Pool], tmp_path: Path) -> None:
    pool = make_pool()
    task = pool.start(0, what="running", folder=str(tmp_path), count=100_000, n_jobs=-1)
    while pool.counts["help"] < 3:
        pool.step()
    pool.interrupt(task)
    ok, _ = pool.outcome(task)
    assert not ok
    pool.settle()
    assert pool.call(what="double", count=20, n_jobs=-1) == doubles(20)
    assert pool.call(what="threads_left") == []


@pytest.mark.parametrize(("version", "expected"), [("1.3.2", "1.3.2"), (None, "not installed")])
def test_a_joblib_that_is_too_old_or_not_there(tmp_path: Path, version: str | None, expected: str) -> None:
    broken = "raise ImportError('none')" if version is None else f"__version__ = {version!r}"
    (tmp_path / "joblib.py").write_text(broken)
    source = f"""
    import sys
    sys.path.insert(0, {str(tmp_path)!r})
    import skyward as sky
    try:
        with sky.integrations.joblib_backend():
            pass
    except sky.integrations.BackendError as error:
        print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], capture_output=True, check=True, timeout=60, text=True
    )
    assert expected in done.stdout
    assert "joblib>=1.4" in done.stdout
    assert "plugins::joblib()" in done.stdout
