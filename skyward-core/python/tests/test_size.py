"""How many calls run at a time: as many as the pool may have workers, not as it has at the moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from skyward._core import wire

from .conftest import Node
from .pool import Pool

pytestmark = pytest.mark.frameworks

PAYLOAD = """
import time

import skyward as sky
from joblib import Parallel, delayed, effective_n_jobs

def double(number, seconds=0.0):
    time.sleep(seconds)
    return 2 * number

def main(what, **more):
    with sky.integrations.joblib_backend():
        return globals()["do_" + what](**more)

def do_jobs():
    return [effective_n_jobs(jobs) for jobs in (-1, -2, 3, 100)]

def do_joblib(count):
    return len(Parallel(n_jobs=-1, batch_size=1)(delayed(double)(number, 0.2) for number in range(count)))

def do_map(count):
    return len(list(sky.map(double, range(count), [0.2] * count, chunksize=1)))
"""


@pytest.fixture
def make_pool(node: Node) -> Callable[..., Pool]:
    def make(workers: int) -> Pool:
        return Pool(node, workers, PAYLOAD)

    return make


@pytest.mark.parametrize(("size", "jobs"), [(1, [1, 1, 1, 1]), (2, [2, 1, 2, 2]), (6, [6, 5, 3, 6])])
def test_jobs_are_the_workers_that_the_pool_may_have(
    make_pool: Callable[..., Pool], size: int, jobs: list[int]
) -> None:
    pool = make_pool(1)
    pool.workers[0].send([wire.SIZE, size])
    assert pool.call(what="jobs") == jobs
    pool.workers[0].send([wire.SIZE, 2 * size])
    assert pool.call(what="jobs")[0] == 2 * size


@pytest.mark.parametrize("what", ["joblib", "map"])
@pytest.mark.parametrize("size", [2, 6])
def test_more_calls_wait_than_the_pool_has_workers(make_pool: Callable[..., Pool], what: str, size: int) -> None:
    pool = make_pool(1)
    pool.workers[0].send([wire.SIZE, size])
    task = pool.start(0, what=what, count=30)
    most = 0
    while task not in pool.outcomes:
        pool.step()
        most = max(most, len(pool.queued))
    # An elastic pool grows while calls wait, up to its most workers.
    assert size <= most <= 2 * size + 2
    pool.settle()
