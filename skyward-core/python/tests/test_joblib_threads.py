"""joblib on threads that have no configuration of their own: they use the backend of their task."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from skyward._core import wire

from .conftest import Node
from .pool import Pool

pytestmark = pytest.mark.frameworks

PAYLOAD = """
import asyncio
import multiprocessing
import os
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import skyward as sky
from joblib import Parallel, delayed, effective_n_jobs, parallel_backend, parallel_config
from joblib.parallel import get_active_backend

def double(number, seconds=0.0):
    time.sleep(seconds)
    return 2 * number

def pid(number):
    time.sleep(0.02)
    return os.getpid()

def used():
    # The name of the backend, and its number of jobs for -1 and for None.
    return [type(get_active_backend()[0]).__name__, effective_n_jobs(-1), effective_n_jobs(None)]

def work(count=20, **more):
    return [used(), Parallel(**{"n_jobs": -1, **more})(delayed(double)(number) for number in range(count))]

def on_thread(function, *args, **more):
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(function, *args, **more).result()

def on_plain_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]

def on_timer(function):
    found, done = [], threading.Event()
    def run():
        found.append(function())
        done.set()
    threading.Timer(0.01, run).start()
    done.wait()
    return found[0]

def on_event_loop(function):
    async def run():
        return await asyncio.to_thread(function)
    return asyncio.run(run())

def below_a_thread(function):
    return on_plain_thread(lambda: on_thread(function))

WAYS = {way.__name__: way for way in (on_thread, on_plain_thread, on_timer, on_event_loop, below_a_thread)}

def main(what, options=None, **more):
    if options is None:
        return globals()["do_" + what](**more)
    with sky.integrations.joblib_backend(**options):
        return globals()["do_" + what](**more)

def do_way(way, **more):
    return WAYS[way](lambda: work(**more))

def do_decorated(way):
    @sky.integrations.joblib_backend(n_jobs=2)
    def call():
        return WAYS[way](work)
    return call()

def do_options(way):
    def options():
        backend, jobs = get_active_backend()
        return [backend.caller_helps, backend.inner_max_num_threads, jobs, backend.retry and backend.retry.crash]
    return [options(), WAYS[way](options)]

def do_retry(way):
    with sky.integrations.joblib_backend(n_jobs=2, caller_helps=False, retry=sky.Retry(crash=7)):
        return do_options(way)

def do_by_name():
    def options(backend):
        return [backend.caller_helps, backend.retry and backend.retry.crash, backend.inner_max_num_threads]
    sky.integrations.joblib.register()
    plain = Parallel(n_jobs=-1, backend="skyward")._backend
    def named():
        # Backends of other tasks, whose calls run here, keep theirs.
        for backend in (plain._at(1), pickle.loads(pickle.dumps(plain))):
            assert options(backend) == [True, None, None]
        found = [options(Parallel(n_jobs=-1, backend="skyward")._backend)]
        with parallel_config(backend="skyward", inner_max_num_threads=1):
            found.append(options(get_active_backend()[0]))
        with parallel_backend("skyward", caller_helps=True):
            found.append(options(get_active_backend()[0]))
        return found
    with sky.integrations.joblib_backend(caller_helps=False, retry=sky.Retry(crash=7)):
        return [named(), on_thread(named)]

def do_explicit():
    def explicit():
        found = [used()]
        with parallel_config(backend="threading", n_jobs=3):
            found.append(used())
        found.append(used())
        with parallel_backend("sequential"):
            found.append(used())
        with parallel_config(n_jobs=-1):
            found.append(used())
            with sky.integrations.joblib_backend(n_jobs=1):
                found.append(used())
            found.append(used())
        found.append(used())
        pids = Parallel(n_jobs=2, backend="threading")(delayed(pid)(n) for n in range(4))
        return [found, set(pids) == {os.getpid()}]
    return on_thread(explicit)

def do_hints():
    def found():
        return [
            sorted(set(Parallel(n_jobs=-1, **hint)(delayed(pid)(number) for number in range(20))))
            for hint in ({}, {"prefer": "threads"}, {"prefer": "processes"}, {"require": "sharedmem"})
        ]
    return [found(), on_thread(found)]

kept = []

def do_keep():
    kept[:] = [ThreadPoolExecutor(1)]
    def first():
        with parallel_config(n_jobs=2):
            inside = used()
        return [inside, used()]
    return kept[0].submit(first).result()

def do_kept():
    return kept[0].submit(used).result()

def do_used():
    return used()

def do_left():
    # The block ends before the thread's own block does.
    entered, left = threading.Event(), threading.Event()
    def wait():
        with parallel_config(n_jobs=2):
            entered.set()
            left.wait()
        return used()
    with ThreadPoolExecutor(1) as executor:
        with sky.integrations.joblib_backend():
            running = executor.submit(wait)
            entered.wait()
        left.set()
        return running.result()

def inner(number):
    return [os.getpid(), on_thread(work, 5)]

def do_batches():
    return [os.getpid(), Parallel(n_jobs=-1, batch_size=1)(delayed(inner)(number) for number in range(6))]

def do_aside(count):
    futures = [sky.submit(on_thread, work, 5) for _ in range(count)]
    futures += [sky.submit(work, 5) for _ in range(count)]
    while not all(future.done() for future in futures):
        time.sleep(0.01)  # the worker does not see this wait
    return [future.result() for future in futures]

late = {}

def do_begin_late():
    late.update(go=threading.Event(), found=[])
    def run():
        late["go"].wait(20)
        try:
            work(5)
        except sky.CallError as error:
            late["found"].append(str(error))
    late["thread"] = threading.Thread(target=run)
    late["thread"].start()

def do_end_late():
    late["go"].set()
    late["thread"].join(20)
    return late["found"]

def do_beside():
    # A thread enters the backend, and batches of it run beside this thread.
    entered, left = threading.Event(), threading.Event()
    def run():
        with sky.integrations.joblib_backend():
            entered.set()
            found = Parallel(n_jobs=-1, batch_size=1)(delayed(double)(number, 0.1) for number in range(12))
            left.wait()
        return found
    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(run)
        entered.wait()
        end, found = time.monotonic() + 0.5, set()
        while time.monotonic() < end:
            found.add(used()[0])
        left.set()
        return [sorted(found), running.result()]

def do_items():
    # joblib takes the later items on a thread of its own.
    def items():
        with parallel_config(n_jobs=2):
            return Parallel(n_jobs=-1, batch_size=1)(delayed(double)(effective_n_jobs(None)) for _ in range(40))
    return [items(), on_thread(items)]

def do_nested():
    with sky.integrations.joblib_backend(n_jobs=2):
        with sky.integrations.joblib_backend(n_jobs=1):
            inner = on_thread(used)
        return [inner, on_thread(used)]

def do_async():
    outside = used()
    async def other(begun, done):
        await begun.wait()
        found = used()
        done.set()
        return found
    @sky.integrations.joblib_backend(n_jobs=2)
    async def call(begun, done):
        running = asyncio.get_running_loop().run_in_executor(None, work, 5)
        begun.set()
        await done.wait()
        return [used(), await running]
    async def both():
        begun, done = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(call(begun, done), other(begun, done))
    def run():
        found, beside = asyncio.run(both())
        return [*found, beside == outside, used() == outside, on_thread(used) == outside]
    return [run(), on_thread(run)]

def do_generator():
    outside = used()
    @sky.integrations.joblib_backend(n_jobs=2)
    def call():
        try:
            yield used()
            yield on_thread(work, 5)
        except ValueError as error:
            yield [str(error), used()]
        return "returned"
    def whole():
        return (yield from call())
    def run():
        steps, found = whole(), []
        for _ in range(2):
            found += [next(steps), used() == outside]
        found += [steps.throw(ValueError("thrown")), used() == outside]
        try:
            next(steps)
        except StopIteration as end:
            found.append(end.value)
        # Its end changes nothing within a configuration of its caller, or after that.
        steps = call()
        next(steps)
        with parallel_config(backend="threading", n_jobs=3):
            steps.close()
            found.append(used()[0])
        return [*found, used() == outside]
    return [run(), on_thread(run)]

def do_forked():
    def child(queue):
        queue.put([work(5), on_thread(work, 5)])
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    found = queue.get()
    process.join()
    return found
"""

WAYS = ["on_thread", "on_plain_thread", "on_timer", "on_event_loop", "below_a_thread"]
OURS = ["SkywardBackend", 2, 1]


@pytest.fixture
def make_pool(node: Node) -> Callable[..., Pool]:
    def make(workers: int = 2) -> Pool:
        return Pool(node, workers, PAYLOAD)

    return make


def doubles(count: int) -> list[int]:
    return [2 * number for number in range(count)]


@pytest.mark.parametrize("way", WAYS)
def test_threads_of_the_payload_use_the_pool(make_pool: Callable[..., Pool], way: str) -> None:
    pool = make_pool()
    assert pool.call(what="way", options={}, way=way) == [OURS, doubles(20)]
    assert pool.call(what="way", options={}, way=way, return_as="list", timeout=30) == [OURS, doubles(20)]
    assert pool.call(what="decorated", way=way) == [["SkywardBackend", 2, 2], doubles(20)]
    assert pool.counts["run"] > 3, "tasks, and batches on the other worker"
    pool.settle()


@pytest.mark.parametrize("way", WAYS)
def test_the_options_of_the_task_reach_its_threads(make_pool: Callable[..., Pool], way: str) -> None:
    pool = make_pool()
    options = {"n_jobs": 2, "caller_helps": False, "inner_max_num_threads": 1}
    own, found = pool.call(what="options", options=options, way=way)
    assert own == found == [False, 1, 2, None]
    own, found = pool.call(what="retry", way=way)
    assert own == found == [False, None, 2, 7]


def test_code_that_names_the_backend_keeps_the_options_of_the_task(make_pool: Callable[..., Pool]) -> None:
    own, found = make_pool().call(what="by_name")
    assert own == found == [[False, 7, None], [False, 7, 1], [True, 7, None]]


def test_the_configuration_of_a_thread_itself_wins(make_pool: Callable[..., Pool]) -> None:
    threading, sequential = ["ThreadingBackend", 3], "SequentialBackend"
    found, is_here = make_pool().call(what="explicit", options={})
    assert is_here
    assert found[0] == found[2] == found[7] == OURS
    assert [found[1][0], found[1][2]] == threading
    assert found[3][0] == sequential
    assert found[4] == found[6] == ["SkywardBackend", 2, 2]
    assert found[5] == OURS


def test_hints_mean_the_same_on_each_thread(make_pool: Callable[..., Pool]) -> None:
    own, found = make_pool().call(what="hints", options={})
    (caller,) = own[3]
    (other,) = {pid for pids in own for pid in pids} - {caller}
    assert own == [[*sorted([caller, other])]] * 3 + [[caller]]
    # The main thread waits for the other thread, so it does not help.
    assert found == [[other]] * 3 + [[caller]]


def test_the_backend_ends_with_its_task_on_all_threads(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    outside = pool.call(what="used")
    assert outside[0] != "SkywardBackend"
    assert pool.call(what="keep", options={}) == [["SkywardBackend", 2, 2], OURS]
    assert pool.call(what="kept") == outside
    assert pool.call(what="kept", options={"n_jobs": 2}) == ["SkywardBackend", 2, 2]
    assert pool.call(what="keep")[1] == outside
    assert pool.call(what="kept", options={}) == OURS
    assert pool.call(what="left") == outside
    assert pool.call(what="used") == outside


def test_threads_within_a_batch(make_pool: Callable[..., Pool]) -> None:
    caller, found = make_pool().call(what="batches", options={})
    assert {pid for pid, _ in found} > {caller}
    assert [result for _, result in found] == [[OURS, doubles(5)]] * 6


@pytest.mark.parametrize("workers", [1, 2])
def test_calls_that_run_on_a_thread_beside_their_caller(make_pool: Callable[..., Pool], workers: int) -> None:
    pool = make_pool(workers)
    found = pool.call(what="aside", options={}, count=2)
    assert pool.counts["aside"] > 0 or workers > 1
    for (backend, _, _), results in found:
        # A call on another worker is a task of its own, which no plugin surrounds here.
        assert backend == "SkywardBackend" or workers > 1
        assert results == doubles(5)


def test_a_thread_of_an_ended_task_cannot_use_the_pool_of_the_next(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    pool.call(what="begin_late", options={})
    (said,) = pool.call(what="end_late", options={})
    assert "`run` of a run that has ended" in said


@pytest.mark.parametrize("workers", [1, 2])
def test_the_main_thread_uses_only_what_it_has_entered(make_pool: Callable[..., Pool], workers: int) -> None:
    pool = make_pool(workers)
    pool.workers[0].send([wire.SIZE, 2])
    (found, results) = pool.call(what="beside")
    assert results == doubles(12)
    assert found == pool.call(what="used")[:1]


def test_threads_use_the_backend_that_was_entered_last(make_pool: Callable[..., Pool]) -> None:
    assert make_pool().call(what="nested") == [["SkywardBackend", 2, 1], ["SkywardBackend", 2, 2]]


def test_items_are_made_within_the_configuration_of_their_call(make_pool: Callable[..., Pool]) -> None:
    assert make_pool().call(what="items", options={}) == [[4] * 40] * 2


def test_coroutines_beside_the_backend_do_not_see_it(make_pool: Callable[..., Pool]) -> None:
    for own, below, *same in make_pool().call(what="async"):
        assert own == ["SkywardBackend", 2, 2]
        assert below == [["SkywardBackend", 2, 2], doubles(5)]
        assert same == [True, True, True]


def test_the_caller_of_a_generator_does_not_see_its_backend(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    ours, before = ["SkywardBackend", 2, 2], pool.call(what="used")
    for found in pool.call(what="generator"):
        steps = [ours, True, [ours, doubles(5)], True, ["thrown", ours], True, "returned"]
        assert found == [*steps, "ThreadingBackend", True]
    assert pool.call(what="used") == before


def test_forked_children_and_gangs_are_sequential_on_each_thread(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    assert pool.call(what="forked", options={}) == [[["SkywardBackend", 1, 1], doubles(5)]] * 2
    pool.workers[0].gang = [1, 1, 1]
    assert pool.call(what="way", options={}, way="on_thread") == [["SkywardBackend", 1, 1], doubles(20)]
