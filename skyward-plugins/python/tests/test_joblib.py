"""The joblib hook; skipped if joblib is not installed."""

from __future__ import annotations

import os
from typing import Any

import pytest

from .ranks import Plugin, World, require

require("joblib")

CORES = len(os.sched_getaffinity(0))
LIMITS = ["LOKY_MAX_CPU_COUNT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"]


def joblib(**config: Any) -> Plugin:
    """The joblib hook with this configuration."""
    return "joblib", {"inner_threads": None, "caller_helps": True, "retry": None, **config}


@pytest.mark.parametrize(
    ("workers", "config", "threads"), [(1, {}, CORES), (2, {}, max(1, CORES // 2)), (1, {"inner_threads": 3}, 3)]
)
def test_cores_are_divided_before_libraries_are_loaded(workers: int, config: dict[str, Any], threads: int) -> None:
    body = f"""
    import os, joblib, numpy
    result = [[os.environ[name] for name in {LIMITS}], joblib.cpu_count()]
    """
    after = f"import os; assert not any(name in os.environ for name in {LIMITS})"
    with World(1, workers) as world:
        for rank in world.run(joblib(**config), body=body, after=after):
            assert rank.code == 0, rank.error
            limits, count = rank.result
            assert limits[1:] == [str(threads)] * 2
            # A container may have fewer cores than it sees.
            assert count == int(limits[0]) <= max(1, CORES // workers)


def test_variables_of_the_image_are_kept() -> None:
    body = """
    import os
    result = os.environ["OMP_NUM_THREADS"]
    """
    with World(1) as world:
        [rank] = world.run(joblib(), body=body, env={"OMP_NUM_THREADS": "7"})
        assert (rank.code, rank.result) == (0, "7"), rank.error


def test_a_task_is_within_the_backend_and_a_gang_is_not() -> None:
    body = """
    from joblib.parallel import BACKENDS, get_active_backend
    def name():
        backend = get_active_backend()[0]
        return [type(backend).__name__, getattr(backend, "caller_helps", None), getattr(backend, "retry", None)]
    result = [task(name, gang=False), task(name, gang=True), name(), "skyward" in BACKENDS]
    """
    retry = {"crash": 1, "out_of_memory": 2, "node_lost": 3, "preempted": 4}
    pool, plain = ["SkywardBackend", False, [1, 2, 3, 4]], ["LokyBackend", None, None]
    # Without a world, the tasks of a broadcast do not wait for each other.
    for joined, broadcast in [(True, plain), (False, pool)]:
        with World(1, joined=joined) as world:
            [rank] = world.run(joblib(caller_helps=False, retry=retry), body=body)
            assert rank.code == 0, rank.error
            assert rank.result == [pool, broadcast, plain, True]
